"""Updates of many parameters by one operator, for rules that compute every element by itself.

What one parameter has to itself, such as ``Param`` and its moments, is a list here, the rest one for all. Programs need
no such operators; `minigraph.passes.MergeUpdates` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import minigraph.ops.adaptive_optimizer
import minigraph.ops.optimizer  # noqa: F401
from minigraph.opdef import Attr, OpDef, Slot, define, definition_of
from minigraph.types import product, require, require_floating

MERGED = {
    f"merged_{type}": type
    for type in (
        "sgd", "momentum", "adam", "adamw", "adamax", "adagrad", "decayed_adagrad", "adadelta", "rmsprop", "ftrl",
    )
}  # fmt: skip
"""Types of these operators, and what each does to every parameter."""

_DOC = """Several updates `{type}` at once, each of a parameter with its state.

With ``ClipFactor``, three numbers from a `clip_factor`, the gradients are first scaled down as it says. `sizes` are the
numbers of elements of the parameters.
"""


_SHARED = frozenset({"LearningRate", "Beta1Tensor", "Beta2Tensor", "SkipUpdate", "ClipFactor", "Shared"})


def own_slots(update: OpDef) -> tuple[str, ...]:
    """The inputs of an update, merged or not, that each parameter has to itself."""
    return tuple(slot.name for slot in update.inputs if slot.name not in _SHARED)


def _merged(type: str, of: str) -> OpDef:
    update = definition_of(of)
    own = own_slots(update)
    inputs = tuple(
        replace(slot, duplicable=slot.duplicable or slot.name in own, takes_rows=False) for slot in update.inputs
    )
    return OpDef(
        type=type,
        inputs=(*inputs, Slot("ClipFactor", dispensable=True)),
        outputs=tuple(replace(slot, duplicable=True) for slot in update.outputs),
        attrs={**update.attrs, "sizes": Attr("sizes", "list[int]")},
        infer=_inference(update, own),
        grad=None,
        backend_attrs=update.backend_attrs,
        doc=_DOC.format(type=of),
    )


def _inference(update: OpDef, own: Sequence[str]) -> Callable[..., Any]:
    """Infer for each parameter what the update infers."""

    def infer(*types: Any, sizes: Sequence[int], **attrs: Any) -> Any:
        *lists, factor = types
        if factor is not None:
            require_floating(factor, "ClipFactor")
            require(factor.shape in ((3,), (-1,)), f"ClipFactor must hold three numbers, got {list(factor.shape)}")
        given = dict(zip((slot.name for slot in update.inputs), lists, strict=True))
        count = len(given["Param"])
        for name in own:
            length = len(given[name] or ())
            require(length in (count, 0), f"{count} parameters but {length} in {name}")
        require(len(sizes) == count, f"{count} parameters but {len(sizes)} sizes")
        for param, size in zip(given["Param"], sizes, strict=True):
            fits = -1 in param.shape or product(param.shape) == size
            require(fits, f"sizes must count the elements of the parameters, got {size} for {list(param.shape)}")
        results = []
        for i in range(count):
            found = update.infer(*[(x[i] if x else None) if name in own else x for name, x in given.items()], **attrs)
            results.append(found if type(found) is tuple else (found,))
        by_output = tuple(map(list, zip(*results, strict=True)))
        return by_output if len(by_output) > 1 else by_output[0]

    return infer


for _type, _update in MERGED.items():
    define(_type, partial(_merged, _type, _update))
