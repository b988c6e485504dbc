"""Tape of the computed steps, which becomes an ordinary program for their gradients.

Every computed operator leaves a `TapeStep`. For a backward pass a `Tape` collects the steps that some tensors depend
on, and numbers the values that they read and wrote. Computations of equal structure get equal numbers, so the program
that a tape stands for is built, differentiated by `minigraph.autodiff.backward` and compiled once for all of them.
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any

from minigraph import unique_name
from minigraph.autodiff.backward import gradients
from minigraph.autodiff.decompositions import has_rule
from minigraph.errors import NonfiniteError, Site
from minigraph.executor import Executor
from minigraph.executor.nonfinite_origin import origin
from minigraph.ir import Operator, Parameter, Program, Variable
from minigraph.kernels import find_specializer
from minigraph.kernels.numbers import are_numbers, on_numbers
from minigraph.kernels.registry import TypeOfArray
from minigraph.kernels.sparse_rows import added
from minigraph.opdef import OpDef
from minigraph.runtime.kernel_call import arguments_of, keywords_of, results_of
from minigraph.runtime.place import Place
from minigraph.runtime.scope import Scope
from minigraph.support.context import holding
from minigraph.support.float_errors import IgnoringErrors
from minigraph.types import TensorType

_SERIALS = itertools.count()
_RECORDING: ContextVar[bool] = ContextVar("recording", default=True)
_serial = operator.attrgetter("serial")
_KEPT_PLANS = 64
"""Maximum gradient plans of a place."""


def recording(wanted: bool) -> AbstractContextManager[None]:
    """Whether operators computed inside are remembered for `backward`."""
    return holding(_RECORDING, wanted)


def record_from_now_on(wanted: bool) -> None:
    """Whether operators are remembered for `backward` until the innermost `recording` ends."""
    _RECORDING.set(wanted)


def is_recording() -> bool:
    """Whether operators are remembered for `backward`."""
    return _RECORDING.get()


class OpCall:
    """An operator with its attributes on inputs of certain types: checked once, computed any number of times.

    Attributes
    ----------
    op : Operator
        Its variables are called by their positions, ``i0, i1, ...`` and ``o0, o1, ...``.
    input_types, output_types : tuple of TensorType
        By position. An output type may have unknown dimensions, where the shape depends on data.
    results : list of (TensorType, bool)
        The output types, each with whether all its dimensions are known.
    is_view : bool
        Whether the result may share memory with an input.
    takes_rng : bool
        Whether it may draw random numbers.
    is_differentiable : bool
        Whether a gradient can flow back through it, if need be once it is rewritten as other operators.
    """

    __slots__ = (
        "_arguments", "_function", "_in_order", "_results", "_unused", "input_types", "is_differentiable", "is_view",
        "op", "output_types", "results", "takes_rng",
    )  # fmt: skip

    def __init__(
        self, op: Operator, input_types: Sequence[TensorType], output_types: Sequence[TensorType], kernel: Any, xp: Any
    ) -> None:
        # A call is kept: with the names of tensors, equal calls on other tensors would differ.
        self.op = Operator(op.definition, _by_position(op.inputs, "i"), _by_position(op.outputs, "o"), op.attrs)
        self.op.site = op.site
        self.input_types, self.output_types = tuple(input_types), tuple(output_types)
        self._arguments: list[Any] = arguments_of(self.op, lambda name: int(name[1:]))
        """Positions among the inputs, for each argument."""
        given = [at for at in self._arguments if at is not None]
        self._in_order = self._arguments[: len(given)] == list(range(len(self.input_types)))
        self._unused = (None,) * (len(self._arguments) - len(given))
        self._function = IgnoringErrors()(self._quickest(kernel, xp))
        self.takes_rng = kernel.takes_rng
        self.is_view = kernel.view_of is not None
        slots = self.definition.outputs
        is_plain = all([not slot.duplicable and len(self.op.outputs.get(slot.name, ())) == 1 for slot in slots])
        self._results: Any = partial(results_of, self.op) if not is_plain else None if len(slots) > 1 else _alone
        """Function that makes a sequence of the result; None if it is one."""
        self.results = [(each, each.is_static) for each in self.output_types]
        self.is_differentiable = self.definition.grad is not None or has_rule(self.op)

    @property
    def definition(self) -> OpDef:
        return self.op.definition

    def _quickest(self, kernel: Any, xp: Any) -> Callable[..., Any]:
        """The function that computes the operator from its arguments: the kernel, or what is offered for the types."""
        keywords, types = keywords_of(self.op, kernel), (*self.input_types, *self.output_types)
        if are_numbers([each.shape for each in types]):
            return partial(on_numbers(kernel.function), xp, **keywords)
        offer = None if kernel.for_rows else find_specializer(self.op.type)
        if offer is not None and all([each.is_static for each in types]):
            seen = [TypeOfArray(each.shape, each.dtype.numpy) for each in self.input_types]
            found = offer(xp, *[_picked(at, seen) for at in self._arguments], **keywords)
            if found is not None:
                return found
        return partial(kernel.function, xp, **keywords)

    def compute(self, arrays: Sequence[Any], rng: Any) -> Sequence[Any]:
        """Arrays of the outputs by position, from those of the inputs."""
        if self.takes_rng:
            result = self._function(*[_picked(at, arrays) for at in self._arguments], rng=rng)
        elif self._in_order:
            result = self._function(*arrays, *self._unused)
        else:
            result = self._function(*[_picked(at, arrays) for at in self._arguments])
        return result if self._results is None else self._results(result)


def _picked(at: Any, values: Sequence[Any]) -> Any:
    """The values at a position or a list of positions; None for None."""
    return values[at] if at.__class__ is int else None if at is None else [values[i] for i in at]


def _alone(result: Any) -> tuple[Any]:
    return (result,)


def _by_position(slots: dict[str, tuple[str, ...]], letter: str) -> dict[str, tuple[str, ...]]:
    numbers = itertools.count()
    return {slot: tuple(f"{letter}{next(numbers)}" for _ in names) for slot, names in slots.items()}


def as_read(tensor: Any) -> tuple[Any, Any, Any]:
    """A tensor as a step reads it: with its value and its origin.

    A tensor whose ``stop_gradient`` is set at that time has none: no gradient flows back to what made it.
    """
    return tensor, tensor._held(), None if tensor.stop_gradient else tensor._origin


class TapeStep:
    """An operator that was computed: what it read, and what it wrote.

    Attributes
    ----------
    inputs : sequence of (tensor, array, origin)
        The value that each tensor had, and its origin: the step that made it with the position among its outputs, or
        None.
    outputs : list of (array, TensorType, stop_gradient, weak reference to the tensor)
        The tensors hold their step, not the other way round.
    site : Site or None
        The user's line.
    """

    __slots__ = ("call", "inputs", "outputs", "serial", "site")

    def __init__(self, call: OpCall, inputs: Sequence[tuple[Any, Any, Any]], site: Site | None) -> None:
        self.call, self.inputs, self.site = call, inputs, site
        self.outputs: list[tuple[Any, TensorType, bool, weakref.ref[Any]]] = []
        self.serial = next(_SERIALS)

    def add_output(self, tensor: Any) -> None:
        """Note the next output, which has its value, and tell it its origin."""
        tensor._origin = self, len(self.outputs)
        # Weak, so that an intermediate tensor dies with its last user; the step keeps its value for the backward pass.
        self.outputs.append((tensor.array, tensor.tensor_type, tensor.stop_gradient, weakref.ref(tensor)))


@dataclass(frozen=True, eq=False)
class TapePlan:
    """Plan of the gradients for all tapes of one structure.

    Attributes
    ----------
    program : Program
        The operators that `minigraph.autodiff.backward` appended.
    feed : dict
        Names to the numbers of the tape's values; a negative number -1-i is the seed of the target i.
    fetch : tuple of str or None
        The gradient of each input, None where there is none.
    """

    program: Program
    feed: dict[str, int]
    fetch: tuple[str | None, ...]


class TapePlans:
    """The plans of one place, the most recently used ones."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._executor = Executor(place)
        self._plans: OrderedDict[Any, TapePlan] = OrderedDict()

    def plan(
        self, tape: Tape, targets: Sequence[int], inputs: Sequence[int], constants: Sequence[int] = ()
    ) -> TapePlan:
        """The plan of the gradients of the values `targets` for `inputs`, where none flows to `constants`."""
        key = tape.structure(), tuple(targets), tuple(inputs), tuple(constants)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _plan(tape, targets, inputs, constants)
            if len(self._plans) > _KEPT_PLANS:
                self._plans.popitem(last=False)
        else:
            self._plans.move_to_end(key)
        return plan

    def gradients(
        self,
        tape: Tape,
        targets: Sequence[int],
        inputs: Sequence[int],
        seeds: Sequence[Any],
        constants: Sequence[int] = (),
    ) -> list[Any]:
        """Arrays of the gradients of the values `targets`, summed, for the values `inputs`; None where there is none.

        `seeds` holds what flows into each target, an array.
        """
        plan = self.plan(tape, targets, inputs, constants)
        feed = {name: tape.values[i] if i >= 0 else seeds[-1 - i] for name, i in plan.feed.items()}
        names = [name for name in plan.fetch if name is not None]
        # A new scope each time: nothing of a backward pass outlives it.
        arrays = dict(zip(names, self._executor.compute(plan.program, feed, names, Scope()), strict=True))
        return [None if name is None else arrays[name] for name in plan.fetch]


class Tape:
    """The steps that some tensors depend on, and the values that they read and wrote, numbered.

    Attributes
    ----------
    values : list
        Arrays by number.
    tensors : list
        Tensors whose gradients are those of the values, by number; None for one that is gone or has another value.
    """

    def __init__(self, targets: Sequence[Any]) -> None:
        self.steps = _steps_up_to(targets)
        self.values: list[Any] = []
        self.tensors: list[Any] = []
        self._firsts: dict[TapeStep, int] = {}
        """Number of the first value that a step wrote."""
        self._sources: dict[Any, int] = {}
        """Number of each value that no step wrote, by the identities of its tensor and its array."""
        self._types: list[TensorType] = []
        self._constant: list[bool] = []
        self._wiring = [self._add(step) for step in self.steps]
        self._targets = [self._number((t, t.array, t._origin), t.tensor_type) for t in targets]

    def _add(self, step: TapeStep) -> tuple[OpCall, tuple[int, ...], int]:
        reads = tuple(map(self._number, step.inputs, step.call.input_types))
        first = self._firsts[step] = len(self.values)
        for i, (value, tensor_type, constant, reference) in enumerate(step.outputs):
            # The tensor may have died, or have been written by a later step: its gradient is then of no use to anyone.
            tensor = reference()
            if tensor is not None and tensor._origin != (step, i):
                tensor = None
            self._declare(value, tensor_type, constant, tensor)
        return step.call, reads, first

    def _number(self, given: tuple[Any, Any, Any], tensor_type: TensorType) -> int:
        tensor, value, origin = given
        if origin is not None:
            return self._firsts[origin[0]] + int(origin[1])
        # A tensor that was set to another value in between is a different source for each value.
        key = id(tensor), id(value)
        number = self._sources.get(key)
        if number is None:
            number = self._sources[key] = len(self.values)
            constant = tensor.stop_gradient or (isinstance(tensor, Parameter) and not tensor.trainable)
            self._declare(value, tensor_type, constant, tensor if tensor._origin is None else None)
        return number

    def _declare(self, value: Any, tensor_type: TensorType, constant: bool, tensor: Any) -> None:
        self.values.append(value)
        self.tensors.append(tensor)
        self._types.append(tensor_type)
        self._constant.append(constant)

    @cached_property
    def numbers(self) -> dict[int, list[int]]:
        """The numbers by the identity of the tensor; several if it was set to other values in between."""
        found: dict[int, list[int]] = {}
        for number, tensor in enumerate(self.tensors):
            if tensor is not None:
                found.setdefault(id(tensor), []).append(number)
        return found

    def sources(self) -> list[Any]:
        """The tensors that a gradient flows to."""
        numbers = [found[0] for found in self.numbers.values()]
        return [self.tensors[i] for i in numbers if not self._constant[i] and self._types[i].dtype.is_floating]

    def gradients(
        self, plans: TapePlans, tensors: Sequence[Any], seeds: Sequence[Any], constants: Sequence[Any] = ()
    ) -> list[Any]:
        """Arrays of the gradients for `tensors` of the targets, summed; None where there is none.

        `seeds` holds an array for each target, what flows into it. No gradient flows to the tensors `constants`.
        """
        wanted, held = self._numbers_of(tensors), self._numbers_of(constants)
        arrays = plans.gradients(self, self._targets, wanted, seeds, held) if wanted else []
        return self._by_tensor(tensors, dict(zip(wanted, arrays, strict=True)), partial(added, plans.place.xp))

    def gradient_tensors(
        self, block: Any, tensors: Sequence[Any], seeds: Sequence[Any], constants: Sequence[Any] = ()
    ) -> list[Any]:
        """`gradients` as tensors that remember how they were computed, for gradients of gradients.

        `seeds` are tensors here. The operators that give the gradients are computed one by one in the eager `block`.
        """
        wanted = self._numbers_of(tensors)
        if not wanted:
            return [None] * len(tensors)
        plan = block.gradient_plans.plan(self, self._targets, wanted, self._numbers_of(constants))
        values = {name: self._value(i, block) if i >= 0 else as_read(seeds[-1 - i]) for name, i in plan.feed.items()}
        for op in plan.program.global_block().ops:
            block.replay(op, values)
        found = [None if name is None else values[name][0] for name in plan.fetch]
        return self._by_tensor(tensors, dict(zip(wanted, found, strict=True)), operator.add)

    @cached_property
    def _origins(self) -> dict[int, tuple[TapeStep, int]]:
        """Step and position among its outputs, by the number of the value."""
        return {first + i: (step, i) for step, first in self._firsts.items() for i in range(len(step.outputs))}

    def _value(self, number: int, block: Any) -> tuple[Any, Any, Any]:
        """A value as a step reads it; its tensor may be gone, or hold another value by now."""
        tensor, value, made_by = self.tensors[number], self.values[number], self._origins.get(number)
        if tensor is None:
            tensor = block.tensor(value)
            tensor.stop_gradient = self._constant[number]
        return tensor, value, made_by

    def _numbers_of(self, tensors: Sequence[Any]) -> list[int]:
        return [number for tensor in tensors for number in self.numbers.get(id(tensor), ())]

    def _by_tensor(self, tensors: Sequence[Any], found: dict[int, Any], add: Callable[[Any, Any], Any]) -> list[Any]:
        """Sum of the gradients that were found for the numbers of a tensor, for each tensor."""
        parts = [[found[number] for number in self.numbers.get(id(tensor), ())] for tensor in tensors]
        return [each[0] if len(each) == 1 else _sum(each, add) for each in parts]

    def origin_of_nonfinite(self, tensor: Any, place: Place) -> str:
        """Name the maker of the first value that is not finite between the only target and the gradient of `tensor`."""
        program, variables = self.program()
        recorded = {variable.name: value for variable, value in zip(variables, self.values, strict=True)}
        wanted = [variables[number] for number in self.numbers.get(id(tensor), ())]
        with unique_name.guard():
            found = [grad for grad in gradients([variables[self._targets[0]]], wanted) if grad is not None]
        ops = list(program.global_block().ops)
        return origin(ops, [grad.name for grad in found], {}, place, None, recorded)

    def structure(self) -> Any:
        """Equal for tapes of equal structure: operators, attributes, types, and which value goes where."""
        return tuple(self._wiring), tuple(self._types), tuple(self._constant)

    def program(self) -> tuple[Program, list[Variable]]:
        """The operators that were computed, and the variables by the numbers of their values."""
        program = Program()
        block = program.global_block()
        variables = []
        for tensor, type_, constant in zip(self.tensors, self._types, self._constant, strict=True):
            name = tensor.name if tensor is not None else "value"
            while name in block.vars:
                name += "'"
            variables.append(block.create_var(name=name, shape=type_.shape, dtype=type_.dtype, stop_gradient=constant))
        for step, (call, reads, first) in zip(self.steps, self._wiring, strict=True):
            op = call.op._copy(block)
            op.site = step.site
            op.inputs = _renamed(op.inputs, [variables[number].name for number in reads])
            op.outputs = _renamed(op.outputs, [variable.name for variable in variables[first:]])
            block._link(None, op)
        return program, variables


def _sum(parts: Sequence[Any], add: Callable[[Any, Any], Any]) -> Any:
    there = [part for part in parts if part is not None]
    return reduce(add, there) if there else None


def with_origin(error: NonfiniteError, param: Any, grad: Any) -> NonfiniteError:
    """`error` about `param` with what made the first value that is not finite, if the target is still there."""
    target = grad._target() if grad._target is not None else None
    if target is None:
        found = "what it was computed from is gone, so it is not known which operator made the first such value"
    else:
        found = Tape([target]).origin_of_nonfinite(param, param.block.place)
    message = error.message.replace(f"the gradient of {error.param} ", f"the gradient of {param.name} ")
    return NonfiniteError(message, param.name, details=[found], site=error.site, hint=error.hint)


def _renamed(slots: dict[str, tuple[str, ...]], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    by_position = iter(names)
    return {slot: tuple(next(by_position) for _ in old) for slot, old in slots.items()}


def _plan(tape: Tape, targets: Sequence[int], inputs: Sequence[int], constants: Sequence[int]) -> TapePlan:
    program, variables = tape.program()
    block = program.global_block()
    computed = set(block.ops)
    with unique_name.guard():
        seeds = [_like(variables[number], "@SEED") for number in targets]
        target, seed = variables[targets[0]], seeds[0]
        if len(targets) > 1:
            # One target, their weighted sum, because `gradients` does not add up targets that depend on each other.
            weighted = [
                block.emit("elementwise_mul", X=variables[number], Y=given)
                for number, given in zip(targets, seeds, strict=True)
            ]
            target = block.emit("sum", X=[block.emit("reduce_sum", X=each, reduce_all=True) for each in weighted])
            seed = block.emit("fill_constant", shape=[1], value=1.0, dtype=int(target.dtype), stop_gradient=True)
        no_grad = [variables[number] for number in constants]
        found = gradients([target], [variables[number] for number in inputs], [seed], no_grad)
    # Variables with a value are fed, also if a gradient operator was rewritten and another one writes its result.
    known = {variable.name for variable in variables}
    for op in list(block.ops):
        if op in computed or known.issuperset(op.output_arg_names):
            block.remove(op)
    numbers = {variable.name: number for number, variable in enumerate(variables)}
    numbers |= {variable.name: -1 - i for i, variable in enumerate(seeds)}
    read = {name for op in block.ops for name in op.input_arg_names} | {g.name for g in found if g is not None}
    feed = {name: number for name, number in numbers.items() if name in read}
    return TapePlan(program, feed, tuple(None if grad is None else grad.name for grad in found))


def _like(variable: Variable, suffix: str) -> Variable:
    return variable.block.create_var(
        name=variable.name + suffix, shape=variable.shape, dtype=variable.dtype, stop_gradient=True
    )


def _steps_up_to(targets: Sequence[Any]) -> list[TapeStep]:
    """Every step that the targets depend on, in the order in which they were computed."""
    seen: set[TapeStep] = set()
    pending = [t._origin[0] for t in targets if t._origin is not None]
    while pending:
        step = pending.pop()
        if step not in seen:
            seen.add(step)
            pending += [origin[0] for _, _, origin in step.inputs if origin is not None]
    return sorted(seen, key=_serial)
