"""Steps of several operators: arrays of tensors, branches, loops, state, sequences."""

from __future__ import annotations

from typing import Any

from minigraph import layers
from minigraph.ir import Variable
from minigraph.rewrite.random_programs.free_steps import FREE, Sources, like
from minigraph.rewrite.random_programs.sequence_steps import TYPES, on_sequences
from minigraph.rewrite.random_programs.stateful_steps import MADE_BY, STATEFUL


def _through_an_array(k: Sources, x: Variable, y: Variable, c: float) -> list[Any]:
    """Values written to an array of tensors, and read back or joined."""
    first, second = (layers.fill_constant([1], "int64", number) for number in (0, 1))
    array = layers.array_write(x, first)
    layers.array_write(like(x, y), second, array=array)
    joined = list(layers.tensor_array_to_tensor(array)) if c > 0 and x.shape else []
    return [layers.array_length(array), layers.array_read(array, second), *joined]


_CONTROL_FLOW = {"array": _through_an_array, **{name: FREE[name] for name in ("branch", "loop", "recurrent")}}
SEVERAL = {**_CONTROL_FLOW, **STATEFUL, "sequences": on_sequences}
"""Steps of several operators."""

RUN_BY = {
    "array": {"write_to_array", "read_from_array", "tensor_array_to_tensor", "lod_array_length"},
    "branch": {"conditional_block", "select_input"}, "loop": {"while"}, "recurrent": {"recurrent"}, "sequences": TYPES,
    **MADE_BY,
}  # fmt: skip
"""Types of operators that each of `SEVERAL` appends."""
