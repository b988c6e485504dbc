"""CUDA graphs of plans: recorded after the first run, and launched as a whole in later runs.

A recording repeats the same kernels on the same memory. So the inputs and the allocations of kernels have memory that
nothing else gets, state stays where the scope has it, and fetches are copied. Only plans whose kernels neither read
values on the processor nor send any to the device can be recorded: `what_prevents` names the others. Labels that are
fed are checked before, see `minigraph.executor.cuda.index_checks`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minigraph.errors import warn
from minigraph.executor.cuda.index_checks import checks_of, fed_name, numbers_of
from minigraph.ir.operator import Operator
from minigraph.kernels.cuda.launching import Capturing
from minigraph.lowering.steps import Step, Steps
from minigraph.opdef import definition_of
from minigraph.runtime.place import Place

if TYPE_CHECKING:
    from minigraph.executor.plan import Plan

_MOST_RECORDINGS = 8
"""Maximum recordings of a plan; one whose state gets other arrays again and again then runs without a graph."""

_LOOKS_AT_VALUES = frozenset({
    "add_position_encoding", "affine_grid", "affine_grid_grad", "argsort", "assign_value", "auc",
    "autoclip_threshold", "average_accumulates", "beam_search", "beam_search_decode", "bpr_loss", "bpr_loss_grad",
    "center_loss", "chunk_eval", "crf_decoding", "crop", "crop_grad", "crop_tensor", "crop_tensor_grad",
    "ctc_align", "edit_distance", "elementwise_floordiv", "gather", "gather_grad", "gather_nd", "gather_nd_grad",
    "gather_tree", "hash", "hierarchical_sigmoid", "hierarchical_sigmoid_grad", "index_sample", "index_sample_grad",
    "index_select", "index_select_grad", "linear_chain_crf", "linear_chain_crf_grad", "linspace", "lod_array_length",
    "max_pool2d_with_index", "max_pool2d_with_index_grad", "max_pool3d_with_index", "max_pool3d_with_index_grad",
    "mean_iou", "merge_lod_tensor", "multiplex", "nce", "nce_grad", "nll_loss", "nll_loss_grad", "pow", "pow_grad",
    "precision_recall", "random_crop", "range", "read_from_array", "sample_logits", "sample_logits_grad", "scatter",
    "scatter_nd_add", "scatter_nd_add_grad", "select_input", "shape", "shard_index", "shard_seed", "shuffle_batch",
    "similarity_focus", "size", "split_lod_tensor", "top_k", "tree_conv", "tree_conv_grad", "unique",
    "unique_with_counts", "warpctc", "warpctc_grad", "where_index", "write_to_array",
})  # fmt: skip
"""Operators whose kernels read values on the processor, as checks of indices do, or send some to the device."""

_LOOKED_AT = frozenset({
    "AxesTensor", "AxesTensorList", "AxisTensor", "Beta1Tensor", "Beta2Tensor", "EndsTensor", "EndsTensorList",
    "ExpandTimes", "K", "Max", "MaxLenTensor", "MaxNorm", "Min", "OutSize", "Paddings", "SectionsTensorList", "Shape",
    "ShapeTensor", "ShapeTensorList", "SizeTensor", "SkipUpdate", "StartsTensor", "StartsTensorList", "StridesTensor",
    "StridesTensorList", "depth_tensor", "expand_times_tensor",
})  # fmt: skip
"""Inputs that replace attributes, or that decide whether a kernel works: if one is given, the processor reads it."""

_UPDATES_OF_ROWS = frozenset({"sgd", "adagrad", "adam", "adamw"})
"""Updates of the rows alone to which the gradient flows, unless their attribute `lazy_mode` is false."""

_RESIZED = frozenset({
    "bilinear_interp", "bilinear_interp_grad", "nearest_interp", "nearest_interp_grad", "trilinear_interp",
    "trilinear_interp_grad",
})  # fmt: skip
"""Operators whose Scale is a factor of sizes, and not of values as that of a normalization."""

_LOOKS_IF: Mapping[tuple[str, Any], str] = {
    ("pooling_type", "avg"): "divisors are sent",
    ("policy", "raise"): "a gradient that is not finite is to raise an error",
    ("strict", True): "the threshold is checked",
    ("allow_out_of_range", False): "indices are checked",
    ("maxlen", -1): "the shape of the result depends on values",
}

_CHECKED_INTEGERS = frozenset({"elementwise_div", "elementwise_mod", "elementwise_pow"})
_NORMS = frozenset({"clip_factor", "clip_by_global_norm", "global_norm"})


def what_prevents(op: Operator) -> str | None:
    """The reason why a kernel cannot be recorded; None if it can, provided that `numbers_of` are checked before."""
    if op.type in _LOOKS_AT_VALUES:
        return "its kernel reads values on the processor, or sends some"
    looked_at = _LOOKED_AT | {"Scale"} if op.type in _RESIZED else _LOOKED_AT
    given = [slot for slot in op.inputs if op.inputs[slot] and slot in looked_at]
    if given:
        return f"{given[0]} is read on the processor"
    for (attr, value), reason in _LOOKS_IF.items():
        if attr in op.definition.attrs and op.attr(attr) == value:
            return reason
    # Floating-point divisors need no check: they give infinities. float16 norms use the shared kernel.
    types = [
        var.dtype.numpy for name in op.input_arg_names if (var := op.block.find_var(name)) is not None and var.dtype
    ]
    if op.type in _CHECKED_INTEGERS and any(each.kind in "iu" for each in types):
        return "divisors and exponents are checked"
    if op.type in _NORMS and (op.attr("p") != 2 or any(each.itemsize == 2 for each in types)):
        return "the shared kernel of norms sends numbers"
    return None


def _has_fixed_rows(step: Step) -> bool:
    """Whether a step has selected rows, as many as ids; how many of their numbers differ may depend on values."""
    op, values = step.op, (*step.reads, *step.writes)
    rows = [value for value in values if value.tensor_type.is_rows]
    if not step.kernel.for_rows or any(value.origin != "step" for value in rows):
        return False
    if any(not value.has_known_size for value in values if value not in rows):
        return False
    if op.type == "sum":
        return len(rows) == len(values)
    if op.type in ("lookup_table_grad", "lookup_table_v2_grad"):  # leave out padding that is no row of the table
        return 0 <= op.attr("padding_idx") < step.writes[0].tensor_type.shape[0] or op.attr("padding_idx") == -1
    return op.type in _UPDATES_OF_ROWS and ("lazy_mode" not in op.definition.attrs or bool(op.attr("lazy_mode")))


def _what_prevents_step(step: Step) -> str | None:
    if step.call is not None:
        return "how often its block runs depends on values"
    if step.kernel.takes_rng:
        return "it draws random numbers"
    forward = step.op.definition.forward
    if step.op.definition.has_effect or (forward is not None and definition_of(forward).has_effect):
        return "it has an effect outside the program"
    if not (step.has_known_sizes or _has_fixed_rows(step)):
        return "a shape depends on values"
    numbers = numbers_of(step.op)
    if numbers is not None and fed_name(step, numbers.slot) is None:
        return f"{numbers.slot} is computed, and checked then"
    return what_prevents(step.op)


def obstacle(steps: Steps, replaced: Sequence[str]) -> str | None:
    """The reason why a plan cannot be recorded; None if it can.

    Parameters
    ----------
    replaced : sequence of str
        State that a run replaces by other arrays.
    """
    for step in steps.steps:
        reason = _what_prevents_step(step)
        if reason is not None:
            return f"{step.op.type}: {reason}"
    types = {value.name: value.tensor_type for value in steps.state}
    for name in replaced:
        if types.get(name) != steps.new_state[name].tensor_type:
            return f"{name}: the scope has no array for it before the run"
    return None


@dataclass(frozen=True, eq=False)
class _Recording:
    """A graph, with all the memory that its kernels use."""

    graph: Any
    stream: int
    """Address of the stream that launches the graph: graphs of one stream share memory."""
    state: Sequence[Any]
    inputs: dict[str, Any]
    fetched: list[Any]
    kept: tuple[Any, ...]


class GraphRuns:
    """The runs of one plan as a graph.

    Parameters
    ----------
    plan : Plan
    place : Place

    Attributes
    ----------
    obstacle : str or None
        Reason why the plan runs without a graph.
    """

    def __init__(self, plan: Plan, place: Place) -> None:
        self._place = place
        self._was_run = False
        self._recording: _Recording | None = None
        self._recorded = 0
        self._lock = threading.Lock()
        self.obstacle = obstacle(plan.steps, plan.compiled.replaces)
        self._checks = () if self.obstacle else tuple(dict.fromkeys(checks_of(plan.steps)))

    def run(
        self, plan: Plan, fed: Mapping[str, Any], feeds: Mapping[str, Any], state: Sequence[Any],
        find: Callable[[str], Any],
    ) -> list[Any] | None:  # fmt: skip
        """Fetched arrays, each the caller's own; None if the plan has to run without a graph.

        Parameters
        ----------
        plan : Plan
            The plan that this object was made for.
        fed : mapping of str to array
            Arrays that the caller feeds; labels among them are checked, without a wait if they are on the processor.
        feeds : mapping of str to array of the place
        state : list of array
            Arguments of the plan's function; the same list as long as the scope has the same arrays.
        find : callable
            Returns the array that the scope has for a name.
        """
        if self.obstacle is not None:
            return None
        if not all(numbers.fit(self._on_processor(fed[name])) for name, numbers in self._checks):
            return None
        with self._lock:
            if not self._was_run:  # compiling kernels and loading libraries cannot be recorded
                self._was_run = True
                return None
            # A graph knows addresses: other arrays of state need another recording.
            recording, stream = self._recording, self._place.xp.cuda.get_current_stream().ptr
            if recording is None or recording.state is not state or recording.stream != stream:
                recording = self._recording = self._record(plan, feeds, state, find)
            if recording is None:
                return None
            for name, array in recording.inputs.items():
                array[...] = feeds[name]
            recording.graph.launch()
            # The next launch writes over the fetched arrays.
            return [value.copy() for value in recording.fetched]

    def _on_processor(self, array: Any) -> Any:
        return array if isinstance(array, np.ndarray) else self._place.to_host(array)

    def _record(
        self, plan: Plan, feeds: Mapping[str, Any], state: Sequence[Any], find: Callable[[str], Any]
    ) -> _Recording | None:
        self._recorded += 1
        if self._recorded > _MOST_RECORDINGS:
            self._give_up("the scope is given other arrays from run to run")
            return None
        cuda = self._place.xp.cuda
        # A pool of its own: the graph writes to the same addresses at each launch, which nobody else may be given.
        pool, stream, beside = cuda.MemoryPool(), cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)
        targets = [find(name) for name in plan.compiled.replaces]
        launched_on = cuda.get_current_stream().ptr
        with cuda.using_allocator(pool.malloc):
            inputs = {name: array.copy() for name, array in feeds.items()}
            block = self._place.bytes(plan.buffers.layout.size)
            buffers = plan.buffers.layout.arrays(block)
            with stream, Capturing(beside, launched_on) as capturing:
                stream.begin_capture()
                try:
                    fetched = _call(plan, list(inputs.values()), state, buffers, targets)
                    graph = stream.end_capture()
                except Exception as error:
                    _end_quietly(stream)
                    self._give_up(f"{type(error).__name__}: {error}")
                    return None
        kept = (pool, stream, beside, block, buffers, targets, capturing.kept)
        return _Recording(graph, launched_on, state, inputs, fetched, kept)

    def _give_up(self, reason: str) -> None:
        self.obstacle = reason
        warn(f"cuda_graph: a program runs without a graph, because it could not be recorded: {reason}")


def _call(
    plan: Plan, inputs: Sequence[Any], state: Sequence[Any], buffers: Sequence[Any], targets: Sequence[Any]
) -> list[Any]:
    """Run the plan and write the new state over the old; returns the fetches."""
    fetched, new_state = plan.compiled.run(inputs, state, None, buffers, [])
    # Copied before state is written over, because they may share memory with it.
    fetched = [v.copy() if copy else v for v, copy in zip(fetched, plan.must_copy, strict=True)]
    new_state = [v.copy() if copy else v for v, copy in zip(new_state, plan.state_must_copy, strict=True)]
    for target, value in zip(targets, new_state, strict=True):
        target[...] = value
    return fetched


def _end_quietly(stream: Any) -> None:
    """End a recording that an error broke off; the stream may raise an error about that, too."""
    with suppress(Exception):
        stream.end_capture()
