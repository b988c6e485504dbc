"""From a program to a plan: prune, concrete shapes, rewrite, steps, liveness. Each stage can be called alone.

The first three work on programs: the executor's private copy, which `minigraph.lowering.prune` makes and in which
every shape is known. `to_steps` turns its operators into steps on values, where each value is written once, and
`release_after` says when a value is last used. `minigraph.lowering.codegen` makes a Python function of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minigraph.errors import ExecutionError, FeedError
from minigraph.ir import Block, Operator, Program, VarKind
from minigraph.ir.versions import Changes, separate
from minigraph.kernels import Kernel
from minigraph.opdef import EMPTY, SUB_BLOCK, OpDef, Slot
from minigraph.runtime.control_flow import BlockCall, call_of, forget_types, infer_again
from minigraph.runtime.kernel_call import arguments_of, has_rows, kernel_of
from minigraph.types import DType, TensorType

if TYPE_CHECKING:
    pass

_NO_TENSOR = TensorType(DType.BOOL, (0,))
"""Stands for the type of what is none: the scopes that runs of a sub-block leave behind."""


@dataclass(eq=False, slots=True)
class Value:
    """What one step writes, or a feed, or the state (a persistable variable) at the start of a run."""

    name: str
    tensor_type: TensorType
    origin: str
    """'feed', 'state' or 'step'."""
    storage: Value | None = None
    """The value whose memory this one may share; None if it has its own."""
    last_use: int = -1
    """While it is found out which values are released: the step that uses this one last."""
    register: int = 0
    """While instructions are made: where it is in a run, 0 as long as that is not known."""

    @property
    def has_known_size(self) -> bool:
        """Whether the shapes that are fed determine how large it is."""
        return self.tensor_type.is_static and not self.tensor_type.is_rows

    @property
    def root(self) -> Value:
        value = self
        while value.storage is not None:
            value = value.storage
        return value


@dataclass(eq=False, slots=True)
class Joined:
    """A vector over values that are neighbours in memory."""

    name: str
    tensor_type: TensorType
    parts: list[Value]
    register: int = 0
    """As of a `Value`."""


@dataclass(eq=False, slots=True)
class Step:
    """One kernel call."""

    op: Operator
    kernel: Kernel
    inputs: list[Value | list[Value | None] | None]
    """In slot order, as the kernel takes them."""
    outputs: list[list[Value | None]]
    """By slot."""
    in_place: bool = False
    """Each output takes over the memory of the state it replaces."""
    is_free: bool = False
    """What it joins or splits is in its places already."""
    targets: list[list[Value | Joined]] | None = None
    """By slot, what is written in place of the values, where a kernel gets vectors for its lists."""
    handed: Callable[..., Any] | None = None
    """What stands in for the kernel because all results go to the caller, see `minigraph.lowering.output_buffers`."""
    writes_over: bool = False
    """Its result may take over the memory of its input, see `minigraph.lowering.output_buffers`."""
    call: BlockCall | None = None
    """For an operator of control flow, what it does with its sub-block."""
    body: Steps | None = None
    """The sub-block as steps, whose feeds are what the call gives and whose fetches what it takes."""
    _read: list[Value] = field(init=False)
    _written: list[Value] = field(init=False)
    _joined: dict[int, list[Value | Joined | None]] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._read, self._written = _values_in(self.inputs), _values_in(self.outputs)

    @property
    def joined(self) -> dict[int, list[Value | Joined | None]]:
        """By position of an input, the list that the kernel gets where a vector stands for some of the values."""
        if self._joined is None:
            self._joined = {}
        return self._joined

    @joined.setter
    def joined(self, value: dict[int, list[Value | Joined | None]]) -> None:
        self._joined = value

    @property
    def has_joined(self) -> bool:
        """Whether a vector stands for some of the values; few steps have any, and need a table of them."""
        return bool(self._joined)

    def values_read(self) -> list[Value]:
        return self._read

    def values_written(self) -> list[Value]:
        return self._written


def _values_in(entries: Sequence[Value | list[Value | None] | None]) -> list[Value]:
    """All values of the entries, in order; where these are values, or one list of values, that is it."""
    if all([type(entry) is Value for entry in entries]):
        return entries  # type: ignore[return-value]  # is a list of values
    if len(entries) == 1 and type(entries[0]) is list and None not in entries[0]:
        return entries[0]  # type: ignore[return-value]  # has no gaps
    found: list[Value] = []
    for entry in entries:
        if isinstance(entry, Value):
            found.append(entry)
        elif entry is not None:
            found += [value for value in entry if value is not None]
    return found


@dataclass(eq=False)
class Steps:
    """A program as steps on values."""

    feeds: list[Value]
    state: list[Value]
    """Persistable variables that are read before they are written."""
    steps: list[Step]
    fetches: list[Value]
    new_state: dict[str, Value]
    """Persistable variables and the value each has at the end."""
    released: list[list[Value]] = field(default_factory=list)
    """For each step, the values last used by it."""
    arenas: list[list[Value]] = field(default_factory=list)
    """Values that are to be neighbours in memory, see `minigraph.lowering.flat_buffers`."""
    covers: list[tuple[Value, list[Value]]] = field(default_factory=list)
    """Values in the memory of others, which lie side by side."""
    vectors: list[Joined] = field(default_factory=list)
    """All vectors over parts of arenas."""
    copied: dict[int, list[Value]] = field(default_factory=dict)
    """By position of a step, the values that must be copied to their places in an arena before it."""

    @property
    def replaced_state(self) -> dict[str, Value]:
        """The part of the new state that is not written over the old one."""
        written_over = {id(value) for step in self.steps if step.in_place for value in step.values_written()}
        return {name: value for name, value in self.new_state.items() if id(value) not in written_over}


def concretize(program: Program, feed_types: Mapping[str, TensorType]) -> None:
    """Infer again with the types of what is fed, so that shapes are known, and each variable has one type.

    Shapes that depend on data stay -1.

    Raises
    ------
    OpError
        If an operator does not accept the shapes; it names the operator, its inputs and the user's line.
    """
    block = program.global_block()
    forget_types(program)
    for name, tensor_type in feed_types.items():
        if name in block.vars:
            block.vars[name].tensor_type = tensor_type
    changes: Changes = {}
    infer_again(block, changes)
    separate(changes)


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
        self.persistable: set[str] = set()
        """The names among these that live in the scope."""
        self.state: list[Value] = []
        self.feeds = [self._feed(name) for name in feed_names]

    def _feed(self, name: str) -> Value:
        value = self._declare(self.block.first_names.get(name, name), "feed")
        value.name = name
        return value

    def _declare(self, name: str, origin: str) -> Value:
        var = self.block.vars.get(name)
        if var is None:
            var = self.block.find_var(name)
            assert var is not None
        tensor_type = var.tensor_type
        kind = var.kind if tensor_type is None else tensor_type.kind
        if tensor_type is None:
            tensor_type = _NO_TENSOR
        if kind is VarKind.LOD_TENSOR_ARRAY:
            tensor_type = tensor_type.with_shape((-1, *tensor_type.shape))
        if var.persistable:
            self.persistable.add(name)
        value = self.current[name] = Value(name, tensor_type, origin)
        return value

    def build(self, fetch_names: Sequence[str]) -> Steps:
        steps = [self._step(op) for op in self.block.ops[:]]
        updated = {value.name for value in self.state if self.current[value.name] is not value}
        if updated:
            steps = _updates_last(steps, updated)
        fetches = [self._read(name, None) for name in fetch_names]
        new_state = {}
        if self.persistable and not self.block.idx:
            new_state = {
                name: value
                for name, value in self.current.items()
                if name in self.persistable and value.origin == "step"
            }
        result = Steps(self.feeds, self.state, steps, fetches, new_state)
        result.released = release_after(result)
        if updated:
            _update_in_place(result)
        return result

    def _step(self, op: Operator) -> Step:
        if SUB_BLOCK in op.attrs:
            return self._call_step(call_of(op))
        definition, current = op.definition, self.current.get
        kernel = kernel_of(op, self.place_kind, self.has_rows and has_rows(op, self.block))
        inputs = arguments_of(op, lambda name: current(name) or self._read(name, op))
        inputs += [self._previous(op.outputs[slot][0]) for slot in definition.updates]
        outputs = [
            [None if name == EMPTY else self._declare(name, "step") for name in op.outputs.get(slot.name, ())]
            for slot in definition.outputs
        ]
        step = Step(op, kernel, inputs, outputs)
        if kernel.view_of is not None:
            _share_storage(step, inputs[kernel.view_of])
        return step

    def _call_step(self, call: BlockCall) -> Step:
        """A step that has the values of all that the call reads and writes in one list each."""
        op = call.op
        body = _StepBuilder(call.body, call.given, self.place_kind, self.has_rows).build(call.taken)
        values = [self._read(name, op) if call.must_have(name) else self._previous(name) for name in call.reads]
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


def _share_storage(step: Step, source: Value | list[Value | None] | None) -> None:
    """Note that the first output may share the memory of `source`; for lists, one to one."""
    sources = source if isinstance(source, list) else [source]
    for value, target in zip(sources, step.outputs[0], strict=False):
        if value is not None and target is not None:
            target.storage = value


def release_after(steps: Steps) -> list[list[Value]]:
    """For each step the values that no later step reads and that neither fetch nor state keeps."""
    for number, step in enumerate(steps.steps):
        for value in step.values_read():
            value.last_use = number
        for value in step.values_written():
            value.last_use = number
    for value in (*steps.fetches, *steps.new_state.values(), *steps.state):
        value.last_use = -1
    released: list[list[Value]] = []
    none: list[Value] = []  # one for all: programs have many steps after which everything is still needed
    for number, step in enumerate(steps.steps):
        dying = []
        for values in (step.values_read(), step.values_written()):
            for value in values:
                if value.last_use == number:
                    value.last_use = -1  # it may be used twice
                    dying.append(value)
        released.append(dying or none)
    return released


def _updates_last(steps: list[Step], names: Collection[str]) -> list[Step]:
    """The steps with the updates of state behind all others, as far as no other reads what they write.

    So an update in place happens when nothing can fail any more, and a run that fails leaves the state as it was.
    `names` are those of state that is written.
    """
    first: list[Step] = []
    last: list[Step] = []
    read: set[int] = set()
    for step in reversed(steps):
        writes_state = any([value.name in names for value in step.values_written()])
        if writes_state and _state_replaced_by(step) and read.isdisjoint(map(id, step.values_written())):
            last.append(step)
        else:
            first.append(step)
            read.update(map(id, step.values_read()))
    return [*reversed(first), *reversed(last)]


def _state_replaced_by(step: Step) -> dict[str, Value]:
    """By name the state that `step` reads, if all it writes are new values of that; else empty."""
    if not step.kernel.takes_out:
        return {}
    old = {value.name: value for value in step.values_read() if value.origin == "state"}
    if not old:
        return {}
    new = step.values_written()
    replaced = {v.name: old[v.name] for v in new if v.name in old and v.tensor_type == old[v.name].tensor_type}
    return replaced if len(replaced) == len(new) else {}


def _update_in_place(steps: Steps) -> None:
    """Let each of the last steps write over the state it replaces, where nothing needs the old value any more."""
    updates: list[tuple[int, Step, dict[str, Value]]] = []
    for index in range(len(steps.steps) - 1, -1, -1):
        step = steps.steps[index]
        replaced = _state_replaced_by(step)
        if not replaced:
            break
        updates.append((index, step, replaced))
    last_read = {id(old): 0 for _, _, replaced in updates for old in replaced.values()}
    for index, step in enumerate(steps.steps):
        for value in step.values_read():
            if id(value.root) in last_read:
                last_read[id(value.root)] = index
    written = {id(value) for _, step, _ in updates for value in step.values_written()}  # perhaps views of the old
    for value in (*steps.fetches, *steps.new_state.values()):
        if id(value) not in written:
            last_read[id(value.root)] = len(steps.steps)
    for index, step, replaced in updates:
        step.in_place = all([last_read[id(old)] == index for old in replaced.values()])
        if step.in_place:
            for new in step.values_written():
                new.storage = replaced[new.name]
