"""Steps: the kernel calls of a program, in order, on values that are written once each.

`concretize` infers every shape of the executor's private program; `to_steps` turns its operators into steps. Both leave
to later stages where values live and what is called for a step; steps never change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import chain
from typing import Any, TypeVar

from minigraph.errors import ExecutionError, FeedError
from minigraph.ir import Block, Operator, Program, VarKind
from minigraph.ir.effects import unchanged_names
from minigraph.ir.versions import Changes, separate
from minigraph.kernels import Kernel
from minigraph.kernels.registry import TypeOfArray
from minigraph.lowering.known_shapes import name_known_shapes
from minigraph.opdef import EMPTY, SUB_BLOCK, OpDef, Slot
from minigraph.runtime.control_flow import BlockCall, call_of, forget_types, infer_again, unfit_kernel
from minigraph.runtime.kernel_call import arguments_of, has_rows, kernel_of
from minigraph.types import DType, TensorType

_T = TypeVar("_T")

_NO_TENSOR = TensorType(DType.BOOL, (0,))
"""Type of what is no tensor: the scopes that runs of a sub-block leave behind."""


# Values and steps are equal by identity: one name has several values, and tables of other stages have them as keys.
# They never change, but are not frozen: there are many, and a frozen one takes three times as long to make.
@dataclass(eq=False, slots=True)
class Value:
    """Result of a step, a feed, or the state (a persistable variable) at the start of a run."""

    name: str
    tensor_type: TensorType
    origin: str
    """'feed', 'state' or 'step'."""

    @property
    def has_known_size(self) -> bool:
        """Whether the shapes that are fed determine the size."""
        kind = self.tensor_type
        return -1 not in kind.shape and kind.kind is not VarKind.SELECTED_ROWS


@dataclass(eq=False, slots=True)
class Step:
    """One kernel call."""

    op: Operator
    kernel: Kernel
    inputs: Sequence[Value | Sequence[Value | None] | None]
    """Arguments of the kernel in slot order."""
    outputs: Sequence[Sequence[Value | None]]
    """Results by output slot."""
    in_place: bool = False
    """Whether each output takes over the memory of the state that it replaces."""
    call: BlockCall | None = None
    """Values that an operator of control flow exchanges with its sub-block."""
    body: Steps | None = None
    """Steps of the sub-block: `call.given` are their feeds and `call.taken` their fetches."""

    reads: Sequence[Value] = field(init=False)
    writes: Sequence[Value] = field(init=False)

    def __post_init__(self) -> None:
        self.reads, self.writes = _values_in(self.inputs), _values_in(self.outputs)

    @property
    def has_known_sizes(self) -> bool:
        """Whether the shapes that are fed determine the size of every input and output."""
        return all([value.has_known_size for value in (*self.reads, *self.writes)])


def _values_in(entries: Sequence[Value | Sequence[Value | None] | None]) -> Sequence[Value]:
    """All values of the entries, in order; a list that holds just these is returned itself, as for most steps."""
    if all([type(entry) is Value for entry in entries]):
        return entries  # type: ignore[return-value]  # is a list of values
    if len(entries) == 1 and type(entries[0]) is list and None not in entries[0]:
        return entries[0]
    found: list[Value] = []
    for entry in entries:
        if isinstance(entry, Value):
            found.append(entry)
        elif entry is not None:
            found += [value for value in entry if value is not None]
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Storage:
    """Values that may share memory, each with the value whose memory it may share."""

    shared: Mapping[Value, Value]

    def root(self, value: Value) -> Value:
        """The value with memory of its own that `value` may lie in."""
        shared = self.shared
        while value in shared:
            value = shared[value]
        return value

    def without(self, values: Collection[Value]) -> Storage:
        """The same, but `values` have memory of their own."""
        if not values:
            return self
        return Storage({value: other for value, other in self.shared.items() if value not in values})


@dataclass(frozen=True, eq=False)
class Steps:
    """A program as steps on values."""

    feeds: Sequence[Value]
    state: Sequence[Value]
    """Persistable variables that are read before they are written."""
    steps: Sequence[Step]
    fetches: Sequence[Value]
    new_state: Mapping[str, Value]
    """Persistable variables and the value each has at the end."""
    storage: Storage
    """Views with their sources, and new state with the old state that it is written over."""
    found: dict[Any, Any] = field(default_factory=dict)
    """Results of the functions `at_all_sizes`."""

    def values(self) -> Iterator[Value]:
        """All values but those of sub-blocks, each once."""
        return chain(self.feeds, self.state, *[step.writes for step in self.steps])

    @property
    def replaced_state(self) -> Mapping[str, Value]:
        """The part of the new state that is not written over the old one."""
        return _replaced_state(self)


def at_all_sizes(function: Callable[[Steps], _T]) -> Callable[[Steps], _T]:
    """Compute `function` of steps once, for all sizes: no size may change its result."""

    @wraps(function)
    def kept(steps: Steps) -> _T:
        if function not in steps.found:
            steps.found[function] = function(steps)
        found: _T = steps.found[function]
        return found

    return kept


@at_all_sizes
def _replaced_state(steps: Steps) -> Mapping[str, Value]:
    written_over = {value for step in steps.steps if step.in_place for value in step.writes}
    return {name: value for name, value in steps.new_state.items() if value not in written_over}


def types_of_inputs(step: Step) -> list[Any]:
    """The types of what `step` reads, as specializers see them."""
    return [
        None if v is None else _type_of(v) if isinstance(v, Value) else [_type_of(each) for each in v if each]
        for v in step.inputs
    ]


def _type_of(value: Value) -> TypeOfArray:
    return TypeOfArray(value.tensor_type.shape, value.tensor_type.dtype.numpy)


def concretize(program: Program, feed_types: Mapping[str, TensorType]) -> None:
    """Infer again with the types of what is fed, so that shapes are known, and each variable has one type.

    Shapes that depend on data stay -1.

    Raises
    ------
    OpError
        If an operator does not accept the shapes; it names the operator, its inputs and the user's line.
    """
    block = program.global_block()
    name_known_shapes(program)
    forget_types(program)
    for name, tensor_type in feed_types.items():
        if name in block.vars:
            block.vars[name].tensor_type = tensor_type
    changes: Changes = {}
    infer_again(block, changes, [])
    separate(changes)
    program.is_concrete = True


def to_steps(program: Program, feed_names: Sequence[str], fetch_names: Sequence[str], place_kind: str) -> Steps:
    """Values and kernel calls instead of names and operators.

    Raises
    ------
    FeedError
        If a variable is read that must be fed and is not.
    ExecutionError
        If a variable is read that nothing has computed, or an operator has no kernel for the place.
    """
    has_rows = any(var.kind is VarKind.SELECTED_ROWS for var in program.list_vars())
    return _StepBuilder(program.global_block(), feed_names, place_kind, has_rows).build(fetch_names)


class _StepBuilder:
    def __init__(self, block: Block, feed_names: Sequence[str], place_kind: str, has_rows: bool) -> None:
        self.block = block
        self.place_kind = place_kind
        self.has_rows = has_rows
        """Whether selected rows may be anywhere."""
        self.current: dict[str, Value] = {}
        self.shared: dict[Value, Value] = {}
        self.persistable: set[str] = set()
        """The names among these that live in the scope."""
        self.state: list[Value] = []
        self.feeds = [self._feed(name) for name in feed_names]

    def _feed(self, name: str) -> Value:
        return self._declare(self.block.first_names.get(name, name), "feed", name)

    def _declare(self, name: str, origin: str, shown: str | None = None) -> Value:
        """A new value for a variable, which is called `shown` where that differs from the name."""
        var = self.block.vars.get(name)
        if var is None:
            var = self.block.find_var(name)
            assert var is not None
        tensor_type = var.tensor_type
        kind = var.kind if tensor_type is None else tensor_type.kind
        if tensor_type is None:
            tensor_type = _NO_TENSOR
        # Only a run knows the length of an array; a type of unknown size keeps the array out of the memory plan.
        if kind is VarKind.LOD_TENSOR_ARRAY:
            tensor_type = tensor_type.with_shape((-1, *tensor_type.shape))
        if var.persistable:
            self.persistable.add(name)
        value = self.current[name] = Value(shown or name, tensor_type, origin)
        return value

    def build(self, fetch_names: Sequence[str]) -> Steps:
        steps = [self._step(op) for op in self.block.ops[:]]
        updated = {value.name for value in self.state if self.current[value.name] is not value}
        if updated:
            steps = _updates_last(steps, updated)
        # Read after the steps: a fetch is the last value of its name, or state that no operator reads.
        fetches = [self._read(name, None) for name in fetch_names]
        # A sub-block writes no state itself: what it gives to outer variables its call writes.
        new_state = {}
        if self.persistable and not self.block.idx:
            new_state = {
                name: value
                for name, value in self.current.items()
                if name in self.persistable and value.origin != "state"
            }
        result = Steps(self.feeds, self.state, steps, fetches, new_state, Storage(self.shared))
        return _with_updates_in_place(result) if updated else result

    def _step(self, op: Operator) -> Step:
        if SUB_BLOCK in op.attrs:
            return self._call_step(call_of(op))
        definition, current = op.definition, self.current.get
        kernel = unfit_kernel(op) or kernel_of(op, self.place_kind, self.has_rows and has_rows(op, self.block))
        # Inputs before outputs: an operator that reads and writes one name reads the value before its own.
        inputs = arguments_of(op, lambda name: current(name) or self._read(name, op))
        inputs += [self._previous(op.outputs[slot][0]) for slot in definition.updates]
        unused = {EMPTY, *unchanged_names(op)}
        outputs = [
            [None if name in unused else self._declare(name, "step") for name in op.outputs.get(slot.name, ())]
            for slot in definition.outputs
        ]
        if kernel.view_of is not None:
            self._share(outputs[0], inputs[kernel.view_of])
        return Step(op, kernel, inputs, outputs)

    def _share(self, views: Sequence[Value | None], source: Value | Sequence[Value | None] | None) -> None:
        """Note that `views` may share the memory of `source`; for lists, one to one."""
        sources = [source] if source is None or isinstance(source, Value) else source
        self.shared.update({v: s for s, v in zip(sources, views, strict=False) if s is not None and v is not None})

    def _call_step(self, call: BlockCall) -> Step:
        """A step with one list of all values that the call reads, and one of all that it writes."""
        op = call.op
        body = _StepBuilder(call.body, call.given, self.place_kind, self.has_rows).build(call.taken)
        values = [self._read(name, op) if call.must_have(name) else self._previous(name) for name in call.reads]
        # Values before writes, for the same reason as in `_step`.
        written: list[Value | None] = [self._declare(name, "step") for name in call.writes]
        return Step(_as_lists(op), _CALL, [list(values)], [written], call=call, body=body)

    def _previous(self, name: str) -> Value | None:
        """The value of a variable that may have none yet."""
        var = self.block.find_var(name)
        return self._read(name, None) if name in self.current or (var is not None and var.persistable) else None

    def _read(self, name: str, op: Operator | None) -> Value:
        value = self.current.get(name)
        if value is not None:
            return value
        var = self.block.find_var(name)
        assert var is not None
        if var.persistable:
            value = self._declare(name, "state")
            self.state.append(value)
            return value
        site = op.site if op is not None else None
        reader = f", which {op.type} reads" if op is not None else ""
        if var.is_data:
            raise FeedError(
                f"{name} is not fed{reader}", details=[f"declared {var}"], site=site, hint=f"Add {name!r} to the feed."
            )
        raise ExecutionError(
            f"nothing computes {name}{reader}",
            site=site,
            hint="Feed it, or append the operator that computes it first.",
        )


_CALL = Kernel(lambda xp, values, *, rng: values, (), False, True, False, None, None)
"""Stands for the kernel of an operator of control flow, which is made of its sub-block."""


def _as_lists(op: Operator) -> Operator:
    """A stand-in for an operator of control flow with one list of inputs and one of outputs."""
    slots = (Slot("X", duplicable=True),), (Slot("Out", duplicable=True),)
    definition = OpDef(op.type, *slots, {}, op.definition.infer, None, {}, op.definition.doc)
    inputs, outputs = {"X": tuple(op.input_arg_names)}, {"Out": tuple(op.output_arg_names)}
    twin = Operator(definition, inputs, outputs, {}, role=op.role, namescope=op.namescope, site=op.site)
    twin._block = op._block
    return twin


def _updates_last(steps: list[Step], names: Collection[str]) -> list[Step]:
    """Move updates of state after all other steps, but for those whose results another step reads.

    An update in place then runs when nothing else can fail, so that a failed run leaves the state as it was. `names`
    are those of the state that is written.
    """
    first: list[Step] = []
    last: list[Step] = []
    read: set[Value] = set()
    # Values are written once, so only a read of what an update writes could forbid to move it.
    for step in reversed(steps):
        writes_state = any([value.name in names for value in step.writes])
        if writes_state and _state_replaced_by(step) and read.isdisjoint(step.writes):
            last.append(step)
        else:
            first.append(step)
            read.update(step.reads)
    return [*reversed(first), *reversed(last)]


def _state_replaced_by(step: Step) -> dict[Value, Value]:
    """Map each value that `step` writes to what it replaces: state, or beside state results of earlier steps.

    Empty if it writes anything else, and for a group of operators: one of them may read what another has written over.
    """
    if not step.kernel.takes_out or step.op.type == "fused_elementwise":
        return {}
    if all([value.origin != "state" for value in step.reads]):
        return {}
    old = {value.name: value for value in step.reads if value.origin in ("state", "step")}
    replaced = {v: old[v.name] for v in step.writes if v.name in old and v.tensor_type == old[v.name].tensor_type}
    is_update = len(replaced) == len(step.writes) and any([value.origin == "state" for value in replaced.values()])
    return replaced if is_update else {}


def _with_updates_in_place(steps: Steps) -> Steps:
    """Let each of the last steps write over the state that it replaces, where nothing reads the old value later."""
    root = steps.storage.root
    # Only an unbroken run of updates at the end: no kernel that may fail is to run after a write over state, but for
    # an exchange of updated parts, which fails only where all ranks end.
    replaced_by: dict[Step, dict[Value, Value]] = {}
    for step in reversed(steps.steps):
        replaced = _state_replaced_by(step)
        if not replaced:
            break
        replaced_by[step] = replaced
    last_read = dict.fromkeys([old for replaced in replaced_by.values() for old in replaced.values()], 0)
    for number, step in enumerate(steps.steps):
        for value in step.reads:
            if root(value) in last_read:
                last_read[root(value)] = number
    # A new value that may be a view of the old state has it as root, and is no later read of it.
    written = {new for replaced in replaced_by.values() for new in replaced}
    for value in (*steps.fetches, *steps.new_state.values()):
        if value not in written:
            last_read[root(value)] = len(steps.steps)
    found, shared = list(steps.steps), dict(steps.storage.shared)
    in_scope = set(steps.state)
    """Values that lie in the arrays of the scope: state, and what was written over it."""
    for number, step in enumerate(found):
        replaced = replaced_by.get(step, {})
        if not replaced or any([last_read[old] != number for old in replaced.values()]):
            continue
        # New state written over another array than the scope's would be lost; a view may belong to anything.
        elsewhere = [(new, old) for new, old in replaced.items() if old not in in_scope]
        if not any([new.name in steps.new_state or old in shared for new, old in elsewhere]):
            found[number] = replace(step, in_place=True)
            shared.update(replaced)
            in_scope.update([new for new, old in replaced.items() if old in in_scope])
    return replace(steps, steps=found, storage=Storage(shared), found={})
