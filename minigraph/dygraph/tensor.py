"""Variables that have a value: the imperative mode computes each operator when it is appended.

There is no second implementation. An `EagerBlock` takes operators like any block, checks and infers them by their
definitions, and evaluates them at once with the kernels that executors use. What was computed is remembered, and
`backward` turns it into an ordinary program, differentiates that with `minigraph.backward`, and evaluates the operators
which that appended.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from minigraph.backward import gradients
from minigraph.defaults import program_guard
from minigraph.errors import MinigraphError, ProgramError, WrongTypeError, caller_site
from minigraph.executor import Executor, blame
from minigraph.interpreter import evaluate
from minigraph.ir import Block, Operator, Parameter, Program, Variable, explain, infer_outputs
from minigraph.place import CPUPlace, Place
from minigraph.scope import Scope
from minigraph.types import TensorType, as_dtype
from minigraph.unique_name import generate

_SERIALS = itertools.count()
_RECORDING: ContextVar[bool] = ContextVar("recording", default=True)


class _Eager:
    """What tensors and parameters of the imperative mode have in common.

    Attributes
    ----------
    value : array
        Of the place where it was computed.
    grad : Tensor or None
        The gradient that `backward` has found. It can be set.
    """

    __slots__ = ()

    value: Any
    grad: Tensor | None
    _step: _Step | None
    block: Any
    name: str
    tensor_type: TensorType | None
    stop_gradient: bool

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value, as a NumPy array of the caller's own."""
        return np.array(self.block.place.to_host(self._held()))

    def _held(self) -> Any:
        if self.value is None:
            raise ProgramError(f"{self.name} has no value yet", site=caller_site())
        return self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numpy(), dtype=dtype)

    def item(self) -> Any:
        """The only element, as a Python number."""
        return self.numpy().item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __len__(self) -> int:
        return len(self._held())

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.tensor_type}, {self.numpy()!r})"

    def set_value(self, value: Any) -> None:
        """Replace the value by one of the same shape and dtype.

        Raises
        ------
        ProgramError
            If the shape or dtype differs.
        """
        array = np.asarray(value)
        assert self.tensor_type is not None
        if array.shape != self.tensor_type.shape or array.dtype != self.tensor_type.dtype.numpy:
            raise ProgramError(
                f"{self.name} is {self.tensor_type}, it cannot be set to {array.dtype}{list(array.shape)}",
                site=caller_site(),
            )
        self.value = self.block.place.xp.array(array)

    def detach(self) -> Tensor:
        """A tensor with the same value that no gradient flows through."""
        return Tensor.of(self.block, self._held(), stop_gradient=True)

    def gradient(self) -> np.ndarray[Any, Any] | None:
        """The gradient as a NumPy array, None if there is none."""
        return None if self.grad is None else self.grad.numpy()

    def clear_gradient(self) -> None:
        """Set the gradient to zero, if there is one."""
        if self.grad is not None:
            self.grad.value = self.grad.value * 0

    clear_grad = clear_gradient

    def backward(self, backward_strategy: Any = None) -> None:
        """Give every tensor that this one was computed from its gradient, as ``grad``.

        Inside `guard` it replaces the gradient of an earlier pass, as in fluid; outside, in the mode of Paddle 2, it is
        added to that.

        `backward_strategy` is accepted because fluid has it; gradients are always summed in the same order.

        Raises
        ------
        ProgramError
            If the tensor does not have exactly one element, or was not computed from anything with a gradient.
        """
        size = self._held().size
        if size != 1:
            raise ProgramError(
                f"backward starts from one number, {self.name} has {size}", site=caller_site(),
                hint="Reduce it with layers.mean or layers.reduce_sum.",
            )  # fmt: skip
        recorded = _Recorded([self])
        targets = recorded.tensors_with_gradient()
        if not targets:
            raise ProgramError(f"{self.name} was computed from nothing that has a gradient", site=caller_site())
        for tensor, grad in zip(targets, recorded.gradients([self], targets, None), strict=True):
            if grad is not None:
                _receive(tensor, grad)


class Tensor(_Eager, Variable):
    """A variable with a value."""

    __slots__ = ("__weakref__", "_step", "grad", "value")

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.value = None
        self.grad = None
        self._step = None

    @staticmethod
    def of(block: EagerBlock, array: Any, name: str | None = None, stop_gradient: bool = True) -> Tensor:
        """A tensor of `block` that holds `array`."""
        tensor_type = TensorType(as_dtype(array.dtype), tuple(array.shape))
        tensor = block.create_var(
            name=name or generate("generated_tensor"), shape=tensor_type.shape, dtype=tensor_type.dtype
        )
        assert isinstance(tensor, Tensor)
        tensor.value, tensor.stop_gradient = array, stop_gradient
        return tensor


class EagerParameter(_Eager, Parameter):
    """A parameter with a value."""

    __slots__ = ("__weakref__", "_step", "grad", "value")

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.value = None
        self.grad = None
        self._step = None


class _Step:
    """An operator that was computed: what it read, and what it wrote."""

    __slots__ = ("inputs", "op", "outputs", "serial")

    def __init__(self, op: Operator, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        self.op = op
        self.inputs: dict[str, Any] = inputs
        # Values and types only: the tensors hold the step, not the other way round.
        self.outputs = {name: (t.value, t.tensor_type, t.stop_gradient, weakref.ref(t)) for name, t in outputs.items()}
        self.serial = next(_SERIALS)


class EagerBlock(Block):
    """A block that computes operators instead of keeping them. It knows a variable as long as somebody holds it."""

    variable_type = Tensor
    parameter_type = EagerParameter

    def __init__(self, program: Program, place: Place) -> None:
        super().__init__(program, 0)
        self.vars = weakref.WeakValueDictionary()  # type: ignore[assignment]
        self.place = place
        self._rng = place.rng()
        self._kept: dict[Any, tuple[Program, list[str], Executor]] = {}

    def create_var(self, name: str | None = None, **fields: Any) -> Variable:  # type: ignore[override]
        # Names only tell tensors apart here, so one that is taken is no conflict.
        while name is None or name in self.vars:
            name = generate(name or "_generated_var")
        return super().create_var(name=name, **fields)

    def insert(self, before: Any, type: str, inputs: Any = None, outputs: Any = None, attrs: Any = None) -> Operator:
        """Compute the operator; `before` has no meaning here."""
        op = self._make_op(type, inputs or {}, outputs or {}, dict(attrs or {}), caller_site())
        reads = {name: self._tensor(name) for name in op.input_arg_names}
        old_values = {name: tensor._held() for name, tensor in reads.items()}
        try:
            infer_outputs(op, self)
            with np.errstate(all="ignore"):
                values = evaluate(op, old_values.__getitem__, self.place, self._rng)
        except MinigraphError as error:
            raise explain(error, op, self) from None
        except Exception as error:
            raise blame(error, op) from error
        writes = {name: self._tensor(name) for name in op.output_arg_names}
        self._store(op, writes, values, list(reads.values()))
        if _RECORDING.get() and any(not t.stop_gradient for t in reads.values()) and op.definition.grad is not None:
            step = _Step(op, {n: (t, old_values[n], t._step) for n, t in reads.items()}, writes)
            for tensor in writes.values():
                tensor._step = step
        else:
            for tensor in writes.values():
                tensor._step = None
        return op

    def _tensor(self, name: str) -> Any:
        return self.var(name)

    def _store(self, op: Operator, writes: Mapping[str, Any], values: Mapping[str, Any], reads: list[Any]) -> None:
        """Give the outputs their values; nothing flows back through what was computed from constants."""
        constant = not _RECORDING.get() or all(t.stop_gradient for t in reads)
        for name, tensor in writes.items():
            value = values[name]
            # Updates are made in place, so a value must be its tensor's own.
            tensor.value = value.copy() if any(value is t.value for t in reads) else value
            tensor.tensor_type = TensorType(as_dtype(value.dtype), tuple(value.shape))
            if constant and not isinstance(tensor, Parameter):
                tensor.stop_gradient = True

    def together(self, key: Any, emit: Any, pairs: Any) -> list[Variable]:
        """Compute what `emit` appends for (parameter, gradient) pairs as one program, so the meaning is the same."""
        types = tuple((param.tensor_type, grad.tensor_type) for param, grad in pairs)
        known = self._kept.get((key, types))
        if known is None:
            program = Program()
            block = program.global_block()
            mirrored = []
            for i, (param, grad) in enumerate(pairs):
                twin = block.create_parameter(f"param_{i}", param.shape, param.dtype)
                data = block.create_var(name=f"grad_{i}", shape=grad.shape, dtype=grad.dtype, is_data=True)
                mirrored.append((twin, data))
            names = [var.name for var in emit(block, mirrored)]
            known = self._kept[key, types] = program, names, Executor(self.place)
        program, names, executor = known
        feed = {f"grad_{i}": grad._held() for i, (_, grad) in enumerate(pairs)}
        scope = Scope()
        for i, (param, _) in enumerate(pairs):
            scope.var(f"param_{i}").value = param.value
        results = executor.compute(program, feed, names, scope)
        return [Tensor.of(self, value) for value in results]


class EagerProgram(Program):
    """A program whose one block computes at once.

    Attributes
    ----------
    accumulates : bool
        Whether `backward` adds to gradients instead of replacing them.
    """

    def __init__(self, place: Place | None = None, accumulates: bool = False) -> None:
        super().__init__()
        self.place = place or CPUPlace()
        self.accumulates = accumulates
        self.blocks = [EagerBlock(self, self.place)]


class _Recorded:
    """What some tensors were computed from, as a program that can be differentiated."""

    def __init__(self, targets: Sequence[Any]) -> None:
        self.program = Program()
        self.block = self.program.global_block()
        self.values: dict[str, Any] = {}
        self.tensors: dict[str, Any] = {}
        """Name in the program to the tensor, where it is still there."""
        self._names: dict[Any, str] = {}
        self.place = targets[0].block.place
        steps = _steps_behind(targets)
        for step in steps:
            self._add(step)
        for target in targets:
            self._name(target, target.value, target._step)

    def _add(self, step: _Step) -> None:
        renamed = {name: self._name(tensor, value, made_by) for name, (tensor, value, made_by) in step.inputs.items()}
        written = {}
        for name, (value, tensor_type, stop_gradient, reference) in step.outputs.items():
            tensor = reference()
            key = (id(step), name)
            written[name] = self._names[key] = self._declare(name, tensor_type, value, stop_gradient)
            if tensor is not None and tensor._step is step:
                self.tensors[written[name]] = tensor
        op = step.op._copy()
        op.inputs = {slot: tuple(renamed.get(n, n) for n in names) for slot, names in op.inputs.items()}
        op.outputs = {slot: tuple(written.get(n, n) for n in names) for slot, names in op.outputs.items()}
        self.block._link(None, op)

    def _name(self, tensor: Any, value: Any, made_by: _Step | None) -> str:
        """The name in the program of the value that `tensor` had, made by the step `made_by`."""
        key = (id(made_by), tensor.name) if made_by is not None else id(tensor)
        if key not in self._names:
            self._names[key] = self._declare(tensor.name, tensor.tensor_type, value, tensor.stop_gradient, tensor)
            self.tensors[self._names[key]] = tensor
        return self._names[key]

    def _declare(self, name: str, tensor_type: Any, value: Any, stop_gradient: bool, tensor: Any = None) -> str:
        while name in self.block.vars:
            name += "'"
        if isinstance(tensor, Parameter):
            var: Variable = self.block.create_parameter(name, tensor_type.shape, tensor_type.dtype)
            stop_gradient = stop_gradient or not tensor.trainable
        else:
            var = self.block.create_var(name=name, shape=tensor_type.shape, dtype=tensor_type.dtype)
        var.stop_gradient = stop_gradient
        self.values[name] = value
        return name

    def tensors_with_gradient(self) -> list[Any]:
        return [
            t for name, t in self.tensors.items() if not self.block.vars[name].stop_gradient and t.dtype.is_floating
        ]

    def gradients(self, targets: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any] | None) -> list[Any]:
        """Arrays of the gradients of `targets` with respect to `inputs`; None where there is none."""
        by_tensor = {id(tensor): name for name, tensor in self.tensors.items()}
        variables = [self.block.vars[by_tensor[id(t)]] for t in targets]
        wanted = [self.block.vars[by_tensor[id(t)]] if id(t) in by_tensor else None for t in inputs]
        given = (
            None if seeds is None else [self._seed(target, seed) for target, seed in zip(variables, seeds, strict=True)]
        )
        first = len(self.block.ops)
        found = (
            gradients(variables, [v for v in wanted if v is not None], given)
            if any(v is not None for v in wanted)
            else []
        )
        self._evaluate(self.block.ops[first:])
        results = iter(found)
        grads = [next(results) if v is not None else None for v in wanted]
        return [self.values[g.name] if g is not None else None for g in grads]

    def _seed(self, target: Variable, seed: Any) -> Variable | None:
        if seed is None:
            return None
        assert target.tensor_type is not None
        var = self.block.create_var(name=f"{target.name}@SEED", shape=target.shape, dtype=target.dtype)
        self.values[var.name] = seed._held()
        return var

    def _evaluate(self, ops: Sequence[Operator]) -> None:
        with np.errstate(all="ignore"):
            for op in ops:
                try:
                    self.values.update(evaluate(op, self.values.__getitem__, self.place, None))
                except Exception as error:
                    raise blame(error, op) from error


def _steps_behind(targets: Sequence[Any]) -> list[_Step]:
    """Every step that the targets depend on, in the order in which they were computed."""
    seen: dict[int, _Step] = {}
    pending = [t._step for t in targets if t._step is not None]
    while pending:
        step = pending.pop()
        if step.serial not in seen:
            seen[step.serial] = step
            pending.extend(made_by for _, _, made_by in step.inputs.values() if made_by is not None)
    return [seen[serial] for serial in sorted(seen)]


def _receive(tensor: Any, grad: Any) -> None:
    adds_up = tensor.block.program.accumulates and tensor.grad is not None
    total = tensor.grad.value + grad if adds_up else grad
    # A result may share the memory of another tensor's gradient.
    tensor.grad = Tensor.of(tensor.block, total.copy(), name=tensor.name + "@GRAD")


@contextmanager
def recording(wanted: bool) -> Iterator[None]:
    """Whether operators computed inside are remembered for `backward`."""
    token = _RECORDING.set(wanted)
    try:
        yield
    finally:
        _RECORDING.reset(token)


def is_eager(program: Program) -> bool:
    return isinstance(program, EagerProgram)


@contextmanager
def guard(place: Place | None = None) -> Iterator[None]:
    """Compute operators as they are written, inside."""
    if place is not None and not isinstance(place, Place):
        raise WrongTypeError(f"guard needs a Place, got {place!r:.60}", site=caller_site())
    program = EagerProgram(place)
    with program_guard(program, program):
        yield
