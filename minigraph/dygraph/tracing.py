"""Make programs of layers: record what a layer computes, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.dygraph.layer import Layer, as_parts
from minigraph.eager.block import EagerBlock, EagerProgram
from minigraph.eager.guard import eager_block
from minigraph.eager.shared_variable import SharedVariable
from minigraph.eager.tape import is_recording, recording
from minigraph.eager.tensor import Eager, EagerParameter, Tensor
from minigraph.errors import OpError, ProgramError, Site, WrongTypeError, caller_site
from minigraph.executor import Executor
from minigraph.executor.compiled_program import BuildStrategy, CompiledProgram, ExecutionStrategy
from minigraph.ir import Operator, Parameter, Program
from minigraph.ir.default_programs import program_guard
from minigraph.runtime.scope import Scope, scope_guard
from minigraph.runtime.scope_variable import Changes
from minigraph.support.arguments import INTEGERS
from minigraph.support.context import holding
from minigraph.support.public import public

AnyTensor = Tensor | EagerParameter


@public
class TracedLayer:
    """A program that computes what a layer computed, on inputs of the same kind.

    Made by `trace`. Parameters are shared: a change by the layer, by an optimizer of either mode or by a run of the
    program is a change for all.

    Attributes
    ----------
    program : Program
        Ordinary and static. Inputs are ``feed_0, feed_1, ...``, results ``fetch_0, fetch_1, ...``, what lies between is
        ``t_0, t_1, ...``; parameters keep their names.
    scope : Scope
        Where an executor finds the parameters.
    parameters : dict
        The tensors that the program shares with the layer, by name.
    feed_names, fetch_names : list of str
    """

    def __init__(
        self,
        program: Program,
        parameters: Mapping[str, AnyTensor],
        feed_names: Sequence[str],
        fetch_names: Sequence[str],
    ) -> None:
        self.program = program
        self.parameters = dict(parameters)
        self.scope: Scope = _SharedScope(parameters)
        self.feed_names, self.fetch_names = list(feed_names), list(fetch_names)
        places = [tensor.block.place for tensor in parameters.values()]
        self._executor = Executor(places[0] if places else eager_block().place)
        self._compiled: CompiledProgram | None = None
        self._has_run = False

    @staticmethod
    def trace(layer: Layer, inputs: Any) -> tuple[Any, TracedLayer]:
        """Call ``layer(*inputs)`` and write down the operators that it computes.

        Parameters
        ----------
        inputs : Tensor or sequence of Tensor
            They may be nested in lists and tuples.

        Returns
        -------
        outputs : what the layer returned
        traced : TracedLayer

        Raises
        ------
        WrongTypeError
            If `layer` is no Layer, or an input or output is no Tensor.
        ProgramError
            If an input is given twice, or a tensor changes while the layer is called other than by an operator.

        Notes
        -----
        What the layer decides in Python is decided once: branches, loops, training or test mode, and numbers that it
        reads from a shape or a tensor. The leading dimension of each input is -1 in the program where the operators
        allow it, so that it runs on batches of another size; a size that the layer read from a shape stays what it was.

        Tensors that are neither inputs, parameters nor computed are persistable variables ``constant_0, ...``. The
        program can be differentiated however the layer was called, ``no_grad`` around the call included.

        Examples
        --------
        >>> from minigraph import dygraph
        >>> with dygraph.guard():
        ...     x = dygraph.to_variable(np.ones([4, 3], "float32"))
        ...     out, traced = TracedLayer.trace(dygraph.Linear(3, 2), [x])
        >>> [op.type for op in traced.program.global_block().ops]
        ['matmul', 'elementwise_add']
        >>> bool((traced([x])[0] == out.numpy()).all())
        True
        """
        if not isinstance(layer, Layer):
            raise WrongTypeError(f"trace needs a Layer, got {type(layer).__name__}")
        given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        sources = _tensors(given, "an input")
        # The program would have two feeds for one variable.
        if len({id(tensor) for tensor in sources}) < len(sources):
            raise ProgramError("an input is given twice", hint="Give a copy of it.")
        block = _TracingBlock(eager_block())
        block.refuses_decisions = _REFUSES.get()
        # `recording` and `as_parts`: gradients of the program must not depend on the mode in which the layer was
        # traced.
        with program_guard(block.program, block.program), recording(True), as_parts():
            outputs = layer(*given)
        results = _tensors(outputs, "an output")
        return outputs, _Translation(layer, sources, results, block.entries).traced()

    def set_strategy(
        self, build_strategy: BuildStrategy | None = None, exec_strategy: ExecutionStrategy | None = None
    ) -> None:
        """Say which rewrites the program is run with; `exec_strategy` has no effect.

        Raises
        ------
        ProgramError
            If the program has run already.
        WrongTypeError
            If a strategy is none.
        """
        if self._has_run:
            raise ProgramError("the program has run already", hint="Call set_strategy before.")
        self._compiled = CompiledProgram(self.program).with_data_parallel(None, build_strategy, exec_strategy)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the program on tensors or arrays, and return arrays.

        Raises
        ------
        ProgramError
            If there are more or fewer inputs than there were.
        """
        given = _flat(list(inputs) if isinstance(inputs, list | tuple) else [inputs])
        if len(given) != len(self.feed_names):
            raise ProgramError(f"there were {len(self.feed_names)} inputs, got {len(given)}")
        feed = {name: np.asarray(value) for name, value in zip(self.feed_names, given, strict=True)}
        self._has_run = True
        program = self._compiled or self.program
        found: list[Any] = self._executor.run(program, feed=feed, fetch_list=self.fetch_names, scope=self.scope)
        return found

    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> None:
        """Write the program and its parameters to a folder, as `minigraph.io.save_inference_model` does.

        Parameters
        ----------
        feed, fetch : sequence of int, optional
            The numbers of the inputs that are fed and of the results that are kept. Default: all.

        Raises
        ------
        WrongTypeError
            If `feed` or `fetch` holds anything but integers.
        ProgramError
            If there is no input or result of one of these numbers, or the results need an input that is not fed.
        """
        from minigraph.io import save_inference_model

        inputs, outputs = _picked(self.feed_names, feed, "feed"), _picked(self.fetch_names, fetch, "fetch")
        targets = [self.program.global_block().var(name) for name in outputs]
        with scope_guard(self.scope):
            save_inference_model(dirname, inputs, targets, self._executor, self.program)


def _picked(names: Sequence[str], numbers: Sequence[int] | None, what: str) -> list[str]:
    if numbers is None:
        return list(names)
    if not all(isinstance(number, INTEGERS) for number in numbers):
        raise WrongTypeError(f"{what} must hold integers, got {list(numbers)!r:.80}")
    if not all(0 <= number < len(names) for number in numbers):
        raise ProgramError(f"{what} must be in [0, {len(names)}), got {list(numbers)}")
    return [names[number] for number in numbers]


def _flat(nested: Any) -> list[Any]:
    return [leaf for item in nested for leaf in _flat(item)] if isinstance(nested, list | tuple) else [nested]


def _tensors(nested: Any, what: str) -> list[AnyTensor]:
    found = _flat(nested)
    for tensor in found:
        if not isinstance(tensor, Eager):
            raise WrongTypeError(f"{what} must be a Tensor, got {type(tensor).__name__}")
    return found


_REFUSES: ContextVar[bool] = ContextVar("refuses decisions", default=False)


def refusing_decisions() -> AbstractContextManager[None]:
    """Inside, a trace refuses that the value of a tensor decides, as in an ``if``, which it would do once for all."""
    return holding(_REFUSES, True)


# Writing down


@dataclass(frozen=True, slots=True)
class _Entry:
    """One operator that was computed."""

    type: str
    reads: Mapping[str, list[Any]]
    values_read: Mapping[int, Any]
    """Names of tensors, by the identity of the tensor."""
    writes: Mapping[str, list[Any]]
    values_written: Mapping[int, Any]
    constants: Mapping[int, tuple[bool, bool]]
    """For each tensor written, whether its gradient stopped as it was made, and once it was computed."""
    attrs: Mapping[str, Any]
    site: Site | None


class _TracingBlock(EagerBlock):
    """A block that computes as `observed` would, and writes down what it computes."""

    def __init__(self, observed: EagerBlock) -> None:
        program = EagerProgram(observed.place, accumulates=observed.program.accumulates)  # type: ignore[attr-defined]
        super().__init__(program, observed.place)
        program.blocks = [self]
        self.rng = observed.rng
        self.entries: list[_Entry] = []

    def append_op(
        self, type: str, inputs: Any = None, outputs: Any = None, attrs: Any = None, stop_gradient: bool = False
    ) -> Operator:
        reads, writes = self._by_slot(inputs or {}), self._by_slot(outputs or {})
        sources = [tensor for tensors in reads.values() for tensor in tensors]
        results = [tensor for tensors in writes.values() for tensor in tensors]
        # Before the operator runs, which may write over what it reads.
        values_read = {id(t): t.array for t in sources}
        made_constant = [t.stop_gradient or not is_recording() for t in results]
        op = super().append_op(type, inputs, outputs, attrs)
        constants = {id(t): (made, t.stop_gradient) for t, made in zip(results, made_constant, strict=True)}
        values_written = {id(t): t.array for t in results}
        self.entries.append(
            _Entry(type, reads, values_read, writes, values_written, constants, dict(attrs or {}), caller_site())
        )
        return op


class _Translation:
    """A static program made from what was written down."""

    def __init__(self, layer: Layer, inputs: list[AnyTensor], outputs: list[AnyTensor], entries: list[_Entry]) -> None:
        self.inputs, self.outputs, self.entries = inputs, outputs, entries
        params = [param for param in layer.parameters() if isinstance(param, EagerParameter)]
        self.members: list[AnyTensor] = [*params, *layer.buffers()]
        every = [t for e in entries for t in _all_of(e.reads) + _all_of(e.writes)] + self.members
        # Parameters keep their names, which numbered variables must not take.
        self.reserved = {t.name for t in every if isinstance(t, Parameter)}

    def traced(self) -> TracedLayer:
        try:
            self._translate(any_batch=True)
        except OpError:
            # Some operator has to know the size of the batch.
            self._translate(any_batch=False)
        feeds, fetches = ([self.names[id(t)] for t in tensors] for tensors in (self.inputs, self.outputs))
        return TracedLayer(self.program, self.kept, feeds, fetches)

    def _translate(self, any_batch: bool) -> None:
        self.program = Program()
        self.block = self.program.global_block()
        self.names: dict[int, str] = {}
        """Names of tensors, by the identity of the tensor."""
        self.values: dict[int, Any] = {}
        self.holders = {id(t.array): t for t in self.members}
        """Owners of values, by the identity of the value."""
        self.counts: dict[str, int] = {}
        self.kept: dict[str, AnyTensor] = {}
        """The tensors that are neither inputs nor computed."""
        for tensor in self.inputs:
            assert tensor.tensor_type is not None
            shape = [-1 if any_batch and i == 0 else dim for i, dim in enumerate(tensor.tensor_type.shape)]
            self._know(tensor, self._fresh("feed"), tensor.array)
            self.block.create_var(
                name=self.names[id(tensor)], shape=shape, dtype=tensor.dtype, is_data=True,
                stop_gradient=tensor.stop_gradient,
            )  # fmt: skip
        for entry in self.entries:
            self._append(entry)
        for tensor in self.outputs:
            self._read(tensor, tensor.array)

    def _append(self, entry: _Entry) -> None:
        inputs = {
            slot: [self._read(tensor, entry.values_read[id(tensor)]) for tensor in tensors]
            for slot, tensors in entry.reads.items()
        }
        outputs = {slot: [self._write(t, entry) for t in tensors] for slot, tensors in entry.writes.items()}
        op = self.block.append_op(entry.type, inputs, outputs, entry.attrs)
        op.site = entry.site

    def _read(self, tensor: AnyTensor, value: Any) -> str:
        """The name of `tensor` in the program."""
        if id(tensor) not in self.names:
            # `detach` gives the same value to another tensor, without an operator.
            original = self.holders.get(id(value))
            if original is None or original is tensor:
                self._keep(tensor, value)
            else:
                self._alias(tensor, original)
        # Such a change is in no operator, so the program would compute with the old value.
        if self.values[id(tensor)] is not value:
            raise ProgramError(
                f"{tensor.name} changed while the layer was called, but no operator wrote it",
                hint="Change it before or after the call, or by an operator.",
            )  # fmt: skip
        return self.names[id(tensor)]

    def _keep(self, tensor: AnyTensor, value: Any) -> None:
        """Declare a tensor that was there before the layer was called, or was made from an array."""
        if isinstance(tensor, EagerParameter):
            name = tensor.name
            if name in self.kept:
                raise ProgramError(f"two parameters are called {name}")
            self.block._add(tensor._copy_to(self.block))
        else:
            name = self._fresh("constant")
            assert tensor.tensor_type is not None
            self.block.create_var(
                name=name, shape=tensor.tensor_type.shape, dtype=tensor.dtype, persistable=True,
                stop_gradient=tensor.stop_gradient,
            )  # fmt: skip
        self.kept[name] = tensor
        self._know(tensor, name, value)

    def _alias(self, tensor: AnyTensor, original: AnyTensor) -> None:
        """Declare what `detach` made of another tensor."""
        source = self._read(original, tensor.array)
        self._know(tensor, self._fresh("t"), tensor.array)
        self.block.create_var(name=self.names[id(tensor)], stop_gradient=tensor.stop_gradient)
        self.block.append_op("assign", {"X": source}, {"Out": self.names[id(tensor)]})

    def _write(self, tensor: AnyTensor, entry: _Entry) -> str:
        if id(tensor) not in self.names:
            # A running statistic, which the layer holds: its operator writes over it.
            if tensor.persistable:
                self._keep(tensor, None)
            else:
                name = self._fresh("fetch" if any(tensor is t for t in self.outputs) else "t")
                was_made, was_computed = entry.constants[id(tensor)]
                # It may have been stopped since; only that it is computed from constants says nothing.
                stopped = was_made or (tensor.stop_gradient and not was_computed)
                self.block.create_var(name=name, stop_gradient=stopped)
                self.names[id(tensor)] = name
        self._know(tensor, self.names[id(tensor)], entry.values_written[id(tensor)])
        return self.names[id(tensor)]

    def _know(self, tensor: AnyTensor, name: str, value: Any) -> None:
        self.names[id(tensor)], self.values[id(tensor)] = name, value
        self.holders[id(value)] = tensor

    def _fresh(self, prefix: str) -> str:
        number = self.counts[prefix] = self.counts.get(prefix, -1) + 1
        name = f"{prefix}_{number}"
        return name if name not in self.reserved else self._fresh(prefix)


def _all_of(slots: Mapping[str, list[Any]]) -> list[Any]:
    return [tensor for tensors in slots.values() for tensor in tensors]


# Sharing


class _Unnoticed(Changes):
    """Changes that nothing counts: the count differs at each look, so that every run looks up the arrays."""

    __slots__ = ()

    @property
    def count(self) -> int:
        self.add()
        return self._count


class _SharedScope(Scope):
    """A scope that holds tensors."""

    def __init__(self, tensors: Mapping[str, AnyTensor]) -> None:
        super().__init__()
        self.changes = _Unnoticed()
        self._variables.update({name: SharedVariable(name, tensor) for name, tensor in tensors.items()})

    def note_written(self, names: Sequence[str]) -> None:
        for name in names:
            holder = self._variables[name]
            holder.value = holder.value
