"""Blocks and programs of the imperative mode: an operator is computed when it is appended."""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from minigraph import unique_name
from minigraph.eager.tape import (
    OpCall,
    TapePlans,
    TapeStep,
    as_read,
    is_recording,
    record_from_now_on,
    recording,
    with_origin,
)
from minigraph.eager.tensor import Eager, EagerParameter, Tensor
from minigraph.errors import (
    MinigraphError,
    NonfiniteError,
    OpError,
    ProgramError,
    Site,
    WrongTypeError,
    caller_site,
)
from minigraph.executor import Executor, nonfinite_check
from minigraph.ir import Block, Operator, Parameter, Program, Variable, explain
from minigraph.ir.default_programs import default_main_program, program_guard
from minigraph.ir.type_inference import blame
from minigraph.kernels.buffers import without_gaps
from minigraph.opdef import definition_of
from minigraph.runtime.kernel_call import kernel_of
from minigraph.runtime.place import CPUPlace, Place
from minigraph.runtime.scope import Scope
from minigraph.runtime.scope_variable import type_of
from minigraph.support.interrupts import deferred, is_interrupt
from minigraph.support.public import public
from minigraph.types import TensorType
from minigraph.unique_name import generate

_KEPT = 4096
"""Maximum entries of each cache of a block."""
_LISTS = frozenset((list, tuple))
_TENSORS: frozenset[Any] = frozenset((Tensor, EagerParameter))
_class_of = operator.attrgetter("__class__")
_FIELDS = ("op_role", "op_role_var", "op_namescope")
"""Attributes of fluid about the role of an operator, which the imperative mode does not use."""


class _Unusual(Exception):
    """A call that has to be checked."""


class EagerBlock(Block):
    """A block that computes operators instead of keeping them, and that holds its variables by weak references.

    Operators may read tensors of other blocks of the same place.
    """

    variable_type = Tensor
    parameter_type = EagerParameter
    refuses_decisions = False
    """Whether no value of a tensor may decide what is computed."""
    drawing: list[Operator] | None = None
    """List of the operators that have drawn random numbers, but for those of parameters; None if it is not kept."""

    def __init__(self, program: Program, place: Place) -> None:
        super().__init__(program, 0)
        self.vars = weakref.WeakValueDictionary()  # type: ignore[assignment]
        self.place = place
        self.rng = place.rng()
        self.gradient_plans = TapePlans(place)
        self._calls: dict[Any, OpCall] = {}
        self._known: dict[Any, tuple[OpCall, list[int] | None]] = {}
        """Calls by the keys of `_as_given`, with the places of their inputs among those given, None if in order."""
        self._programs: dict[Any, tuple[Program, list[str], Scope]] = {}
        self._executor = Executor(place)

    def create_var(self, name: str | None = None, initializer: Any = None, **fields: Any) -> Variable:  # type: ignore[override]
        existing: Any = None if name is None else self.vars.get(name)

        if initializer is not None and existing is not None and existing.array is None:
            # It was made in the main program and is now in the startup program, which is the same here.
            initializer(existing, self)
            return existing
        # Names only tell tensors apart here, so one that is taken is no conflict.
        while name is None or name in self.vars:
            name = generate(name or "_generated_var")
        return super().create_var(name=name, initializer=initializer, **fields)

    def temporary(self, name: str) -> Variable:
        if name in self.vars:
            return self.create_var(name)
        tensor = self.vars[name] = Tensor(self, name)
        return tensor

    def fresh(self, key: str) -> Variable:
        """A tensor for the result of an operator, which gets its name when somebody asks for it."""
        return Tensor(self, key=key)

    def name_of(self, tensor: Any, key: str) -> str:
        """A name made of `key`, by which `var` finds the tensor from now on."""
        name = generate(key)
        while name in self.vars:
            name = generate(key)
        self.vars[name] = tensor
        return name

    def create_parameter(self, name: str, *args: Any, **fields: Any) -> Parameter:
        # As in fluid's imperative mode, each call makes a parameter of its own, whatever its name.
        self.vars.pop(name, None)
        return super().create_parameter(name, *args, **fields)

    def train_mode(self) -> None:
        """Remember what is computed from now on for `backward`, until the guard ends."""
        record_from_now_on(True)

    def eval_mode(self) -> None:
        """Remember nothing from now on, until the guard ends."""
        record_from_now_on(False)

    def insert(self, before: Any, type: str, inputs: Any = None, outputs: Any = None, attrs: Any = None) -> Operator:
        """`append_op`; `before` has no meaning here."""
        return self.append_op(type, inputs, outputs, attrs)

    def append_op(
        self, type: str, inputs: Any = None, outputs: Any = None, attrs: Any = None, stop_gradient: bool = False
    ) -> Operator:
        """Compute the operator. What is returned calls its variables by position."""
        try:
            key, read, results = self._as_given(type, inputs or {}, outputs or {}, attrs or {})
            known = self._known.get(key)
        except (_Unusual, TypeError):  # an attribute may have no hash
            key = known = None
        if known is None:
            return self._insert_checked(type, inputs or {}, outputs or {}, attrs or {}, key)
        call, order = known
        if order is not None:
            read = [read[i] for i in order]
        self._compute(call, read, results, lambda: self._op_of(type, inputs, outputs, attrs))
        return call.op

    def _insert_checked(self, type: str, inputs: Any, outputs: Any, attrs: Any, key: Any) -> Operator:
        """`insert`, which checks everything; the call is kept by `key`, that of `_as_given`, if there is one."""
        reads, writes = self._by_slot(inputs), self._by_slot(outputs)
        call = self._call(type, reads, writes, attrs)
        results = [tensor for slot in call.op.outputs for tensor in writes[slot]]
        for tensor, inferred in zip(results, call.output_types, strict=True):
            if tensor.tensor_type is not None and tensor.tensor_type != inferred:
                _check_declared(type, tensor, inferred)
        read = [tensor for slot in call.op.inputs for tensor in reads[slot]]
        if key is not None and list(writes) == list(call.op.outputs):
            numbers = itertools.count()
            places = {slot: [next(numbers) for _ in tensors] for slot, tensors in reads.items()}
            order = [i for slot in call.op.inputs for i in places[slot]]
            _remember(self._known, key, (call, None if order == sorted(order) else order))
        self._compute(
            call, [as_read(tensor) for tensor in read], results, lambda: self._op_of(type, inputs, outputs, attrs)
        )
        return call.op

    def _op_of(self, type: str, inputs: Any, outputs: Any, attrs: Any) -> Operator:
        return self._make_op(type, self._by_slot(inputs or {}), self._by_slot(outputs or {}), dict(attrs or {}), None)

    def _as_given(self, type: str, inputs: Any, outputs: Any, attrs: Any) -> tuple[Any, list[Any], list[Any]]:
        """A key of all that a call depends on, the values that it reads as a step does, and the names that it writes.

        Calls with equal keys have passed the same checks, and need none.

        Raises
        ------
        _Unusual
            If anything is not as in nearly all calls, such as a tensor of another block or without a value.
        """
        key: list[Any] = [type]
        read: list[Any] = []
        results: list[Any] = []
        for slot, given in inputs.items():
            key.append(slot)
            for tensor in given if given.__class__ in _LISTS else (given,):
                if tensor.__class__ not in _TENSORS or tensor.block is not self:
                    raise _Unusual
                value = tensor.array
                if value is None:
                    raise _Unusual
                key.append(tensor.tensor_type)
                read.append((tensor, value, None if tensor.stop_gradient else tensor._origin))
        for slot, given in outputs.items():
            key.append(slot)
            for tensor in given if given.__class__ in _LISTS else (given,):
                if tensor.__class__ not in _TENSORS or tensor.block is not self:
                    raise _Unusual
                declared = tensor.tensor_type
                key.append(declared if declared is None else (declared, tensor._persistable or tensor.is_data))
                results.append(tensor)
        for name, value in attrs.items():
            key.append(name)
            if value.__class__ in _LISTS:
                key += value
                key += map(_class_of, value)
            else:
                key.append(value)
            key.append(value.__class__)  # because 1 == 1.0 == True
        return tuple(key), read, results

    def replay(self, op: Operator, values: dict[str, Any]) -> None:
        """Compute an operator of a program on `values`, and add what it makes to them.

        They are, by name, what a step reads: a tensor, its value and its origin.
        """
        reads = {slot: [values[name][0] for name in names] for slot, names in op.inputs.items()}
        writes: dict[str, list[Any]] = {
            slot: [self.fresh("_generated_var") for _ in names] for slot, names in op.outputs.items()
        }
        call = self._call(op.type, reads, writes, op.attrs)
        inputs = [values[name] for slot in call.op.inputs for name in op.inputs[slot]]
        self._compute(call, inputs, [tensor for slot in call.op.outputs for tensor in writes[slot]], lambda: op)
        for slot, names in op.outputs.items():
            values.update(zip(names, map(as_read, writes[slot]), strict=True))

    def _compute(
        self, call: OpCall, inputs: Sequence[Any], results: list[Any], to_blame: Callable[[], Operator]
    ) -> None:
        """Give the results their values, and remember the step if a gradient can flow back through it."""
        try:
            values = call.compute([array for _, array, _ in inputs], self.rng)
            if nonfinite_check.is_on:
                names = (tensor.name for tensor in results)
                nonfinite_check.check(call.op, zip(names, values, strict=True), self.place)
        except Exception as error:
            if is_interrupt(error):
                raise
            raise blame(error, self._linked(to_blame())) from error
        if self.drawing is not None and call.takes_rng and not any([tensor.persistable for tensor in results]):
            self.drawing.append(call.op)
        recorded = call.is_differentiable and is_recording() and not all([t.stop_gradient for t, _, _ in inputs])
        site = caller_site(2) if recorded else None  # this function and its caller are ours
        if len(results) > 1 and any([tensor._persistable for tensor in results]):  # statistics, which belong together
            with deferred():
                _give(call, inputs, results, values, recorded, site)
        else:
            _give(call, inputs, results, values, recorded, site)

    def _by_slot(self, given: Mapping[str, Any]) -> dict[str, list[Any]]:
        found = {}
        for slot, value in given.items():
            tensors = [self._tensor(v) for v in (value if isinstance(value, list | tuple) else (value,))]
            if tensors and tensors[0] is not None:
                found[slot] = tensors
        return found

    def _tensor(self, given: Any) -> Any:
        if isinstance(given, Eager):
            if given.block is not self and given.block.place != self.place:
                raise ProgramError(
                    f"{given.name} is on {given.block.place}, but this guard computes on {self.place}",
                    hint="Make a new tensor from its numpy() under the guard of this place.",
                )  # fmt: skip
            return given
        if isinstance(given, Variable):
            raise ProgramError(
                f"{given} is a variable of a program and has no value here",
                hint="Run the program with an Executor, or start from to_variable or to_tensor in the imperative mode.",
            )  # fmt: skip
        return given if given is None else self.var(given)

    def tensor(self, array: Any, name: str | None = None, stop_gradient: bool = True) -> Tensor:
        """A tensor that holds `array`."""
        tensor_type = type_of(array)
        tensor = Tensor(
            self, tensor_type=tensor_type, key="generated_tensor", kind=tensor_type.kind, stop_gradient=stop_gradient
        )
        if name is not None:
            while name in self.vars:
                name = generate(name)
            self.vars[name] = tensor
            tensor.name = name
        tensor.array = array
        return tensor

    # Calls

    def _call(
        self, type: str, reads: dict[str, list[Any]], writes: dict[str, list[Any]], attrs: Mapping[str, Any]
    ) -> OpCall:
        """The checked and prepared call for operators of this type, with these attributes, on inputs of these types."""
        try:
            definition = definition_of(type)
            attrs = {name: value for name, value in attrs.items() if name not in _FIELDS}
            key = (
                type,
                tuple(definition.convert_attrs(attrs).items()),
                tuple([(slot, *[t.tensor_type for t in tensors]) for slot, tensors in reads.items()]),
                tuple([(slot, len(tensors)) for slot, tensors in writes.items()]),
            )
        except MinigraphError as error:
            error.site = error.site or caller_site()
            raise
        call = self._calls.get(key)
        if call is None:
            op = self._linked(self._make_op(type, reads, writes, dict(attrs), caller_site()))
            call = _remember(self._calls, key, self._prepare(op, reads, writes))
        return call

    def _linked(self, op: Operator) -> Operator:
        # Without being inserted: errors look up its variables there.
        op._block = self
        return op

    def _prepare(self, op: Operator, reads: dict[str, list[Any]], writes: dict[str, list[Any]]) -> OpCall:
        try:
            inputs = {slot: [_known_type(op, slot, tensor) for tensor in reads[slot]] for slot in op.inputs}
            if op.definition.handles_lengths and op.definition.needs_lengths(op.attrs):
                raise OpError(
                    f"{op.type} works on sequences of different lengths, which tensors of the imperative mode lack",
                    hint="Pad the sequences and mask with layers.sequence_mask, or build a static program.",
                )
            inferred = op.definition.infer_types(inputs, op.attrs)
            for slot in op.outputs:
                if len(writes[slot]) != len(inferred[slot]):
                    raise OpError(
                        f"{op.type}: {slot} takes {len(inferred[slot])} variables here, got {len(writes[slot])}"
                    )
            input_types = [tensor_type for types in inputs.values() for tensor_type in types]
            output_types = [tensor_type for slot in op.outputs for tensor_type in inferred[slot]]
            kernel = kernel_of(op, self.place.kind, any([t.is_rows for t in (*input_types, *output_types)]))
        except MinigraphError as error:
            raise explain(error, op, self) from None
        return OpCall(op, input_types, output_types, kernel, self.place.xp)

    def emit_group(self, key: Any, emit: Any, pairs: Any) -> list[Variable]:
        """Compute what ``emit(block, pairs)`` appends for (parameter, gradient) pairs as one program.

        The block keeps the program and its state by `key` and the parameters.
        """
        # Strategies may look at the order of creation, and what has state is to have its own for other parameters.
        order = tuple(sorted(range(len(pairs)), key=lambda i: getattr(pairs[i][0], "creation", 0)))
        key = key, order, tuple((param.name, param.tensor_type, grad.tensor_type) for param, grad in pairs)
        known = self._programs.get(key)
        if known is None:
            program, startup, names = _program_for(emit, pairs)
            state = Scope()
            self._executor.run(startup, scope=state)
            known = _remember(self._programs, key, (program, names, state))
        program, names, state = known
        feed = {f"grad_{i}": grad._held() for i, (_, grad) in enumerate(pairs)}
        # Parameters are in a scope of their own below the state, which `drop_kids` empties when the run has ended.
        scope = state.new_scope()
        for i, (param, _) in enumerate(pairs):
            scope.var(f"param_{i}").value = param._held()
        try:
            return [self.tensor(value) for value in self._executor.compute(program, feed, names, scope)]
        except NonfiniteError as error:
            raise with_origin(error, *pairs[int(error.param.removeprefix("param_"))]) from error
        finally:
            state.drop_kids()


def _remember(table: dict[Any, Any], key: Any, value: Any) -> Any:
    if len(table) >= _KEPT:
        # All at once: a program whose shapes change with each step fills the table with entries that never come back.
        table.clear()
    table[key] = value
    return value


def _give(
    call: OpCall, inputs: Sequence[Any], results: list[Any], values: Sequence[Any], recorded: bool, site: Site | None
) -> None:
    step = TapeStep(call, inputs, site) if recorded else None
    for tensor, value, (tensor_type, is_static) in zip(results, values, call.results, strict=True):
        if isinstance(value, np.generic):
            value = np.asarray(value)
        elif call.is_view and value.__class__ is np.ndarray:
            value = without_gaps(np, value)
        tensor.array = value
        tensor.tensor_type = tensor_type if is_static else type_of(value)
        if step is not None:
            step.add_output(tensor)
            continue
        tensor._origin = None
        # A parameter keeps its flag: an operator that is not recorded may write one, and training goes on.
        if not isinstance(tensor, Parameter):
            tensor.stop_gradient = True


def _known_type(op: Operator, slot: str, tensor: Any) -> TensorType:
    if tensor.tensor_type is None:
        raise OpError(f"{op.type}: {slot} reads {tensor.name}, which nothing has written yet")
    found: TensorType = tensor.tensor_type
    return found


def _check_declared(op_type: str, tensor: Any, inferred: TensorType) -> None:
    declared = tensor.tensor_type
    is_bound = tensor.persistable or tensor.is_data
    if declared.dtype is not inferred.dtype or (is_bound and not declared.fits(inferred)):
        raise OpError(
            f"{op_type}: the result is {inferred} but {tensor.name} is declared {declared}", site=caller_site(),
            hint="Write to another variable, or declare this one accordingly.",
        )  # fmt: skip


def _program_for(emit: Any, pairs: Any) -> tuple[Program, Program, list[str]]:
    """A program of what `emit` appends for such parameters and gradients, one that makes its state, and its results."""
    program, startup = Program(), Program()
    block = program.global_block()
    mirrored = []
    for i, (param, grad) in enumerate(pairs):
        twin = block.create_parameter(f"param_{i}", param.shape, param.dtype)
        # Strategies look at the order of creation. Tensors that are no parameters may be clipped, too.
        twin.creation = getattr(param, "creation", twin.creation)
        data = block.create_var(name=f"grad_{i}", shape=grad.shape, dtype=grad.dtype, type=grad.kind, is_data=True)
        mirrored.append((twin, data))
    with program_guard(program, startup), unique_name.guard():
        return program, startup, [var.name for var in emit(block, mirrored)]


class EagerProgram(Program):
    """A program whose one block computes at once.

    Attributes
    ----------
    accumulates : bool
        Whether `backward` adds to gradients instead of replacing them.
    """

    computes_at_once = True

    def __init__(self, place: Place | None = None, accumulates: bool = False) -> None:
        super().__init__()
        self.place = place or CPUPlace()
        self.accumulates = accumulates
        self.blocks = [EagerBlock(self, self.place)]

    def current_block(self) -> Block:
        """The block of the innermost guard, so that a trace sees what is done with tensors from outside of it."""
        program = default_main_program()
        return (program if isinstance(program, EagerProgram) else self).blocks[0]


@public
@contextmanager
def guard(place: Place | None = None) -> Iterator[None]:
    """Compute operators as they are written, inside."""
    if place is not None and not isinstance(place, Place):
        raise WrongTypeError(f"guard needs a Place, got {place!r:.60}", hint="Give it CPUPlace() or CUDAPlace(0).")
    program = EagerProgram(place)
    # Names begin anew, as in fluid: a model made in a later guard finds its state in the files of an earlier one.
    with program_guard(program, program), unique_name.guard(), recording(True):
        yield
