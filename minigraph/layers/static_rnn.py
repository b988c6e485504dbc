"""Recurrent networks whose step is built once, as a sub-block, and run for each entry of a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from minigraph import unique_name
from minigraph.errors import ProgramError
from minigraph.ir import Block, Variable, VarKind
from minigraph.ir.effects import outer_names
from minigraph.layer_helper import LayerHelper, check_variable
from minigraph.layers.sub_block import building_sub_block
from minigraph.support.arguments import as_float
from minigraph.support.public import public
from minigraph.support.undo import note

__all__ = ["StaticRNN"]


@dataclass
class _Memory:
    """A state: what it starts with, what a step sees of the one before, and what it becomes."""

    initial: Variable
    before: Variable
    after: Variable | None = None


@public
class StaticRNN:
    """Run what is built inside ``step()`` for each entry of the first dimension of sequences.

    Inside, `step_input` gives the entry, `memory` the state of the step before and `update_memory` the state that the
    next step will see; `step_output` says what is collected. Calling the network afterwards gives the collected
    sequences.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> from minigraph import layers
    >>> with fluid.program_guard(fluid.Program()):
    ...     x, zero = fluid.data("x", [3, 1]), layers.fill_constant([1], "float32", 0.0)
    ...     rnn = StaticRNN()
    ...     with rnn.step():
    ...         entry, total = rnn.step_input(x), rnn.memory(zero)
    ...         updated = total + entry
    ...         rnn.update_memory(total, updated)
    ...         rnn.step_output(updated)
    ...     sums = rnn()
    ...     fluid.Executor().run(feed={"x": np.array([[1], [2], [3]], "float32")}, fetch_list=[sums])[0].ravel()
    array([1., 3., 6.], dtype=float32)
    """

    BEFORE_RNN_BLOCK, IN_RNN_BLOCK, AFTER_RNN_BLOCK = 0, 1, 2

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("static_rnn", name)
        self.status = StaticRNN.BEFORE_RNN_BLOCK
        self.seq_len: int | None = None
        self.memories: dict[str, _Memory] = {}
        self.inputs: list[Variable] = []
        self.outputs: list[Variable] = []

    @contextmanager
    def step(self) -> Iterator[None]:
        """Operators made inside are one step.

        Raises
        ------
        ProgramError
            When left, if there is no step input, or a memory was not updated.
        """
        if self.status != StaticRNN.BEFORE_RNN_BLOCK:
            raise ProgramError("a StaticRNN has one step", hint="Make another StaticRNN.")
        states: list[str] = []
        with building_sub_block(lambda inside: self._append(inside, states)):
            note(setattr, self, "status", self.status)
            self.status = StaticRNN.IN_RNN_BLOCK
            yield
            self.status = StaticRNN.AFTER_RNN_BLOCK
            # Still inside: what is kept of a state is an operator of the step.
            states += self._complete()

    def step_input(self, x: Variable) -> Variable:
        """The entry of `x`, of shape [length, ...], that the step is for; all such have one length.

        Raises
        ------
        ProgramError
            Outside of `step`, or if the length is another one.
        """
        inside = self._inside("step_input")
        if not check_variable(x, "StaticRNN.step_input: x").shape:
            raise ProgramError(f"StaticRNN.step_input: x must be a sequence, got {x}")
        assert x.shape is not None
        # A sequence that is asked for twice is one input of the operator.
        given = next((entry for entry in self.inputs if entry.name == x.name), None)
        if given is not None:
            return given
        note(setattr, self, "seq_len", self.seq_len)
        if self.seq_len is None:
            self.seq_len = x.shape[0]
        elif -1 not in (x.shape[0], self.seq_len) and x.shape[0] != self.seq_len:
            raise ProgramError(
                f"StaticRNN.step_input: {x} has {x.shape[0]} entries, the sequences before {self.seq_len}"
            )
        # Inside of the step the name of a sequence means its entry, as in fluid.
        entry = inside.create_var(name=x.name, shape=x.shape[1:], dtype=x.dtype)
        self.inputs.append(entry)
        note(self.inputs.pop)
        return entry

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """A state, as the step before has left it.

        Parameters
        ----------
        init : Variable, optional
            What the first step sees.
        shape : sequence of int, optional
            Without `init`: the first step sees `init_value` in this shape, in which the dimension `init_batch_dim_idx`
            is that of `batch_ref` at `ref_batch_dim_idx`.

        Raises
        ------
        ProgramError
            Outside of `step`, or if neither `init` nor both of `shape` and `batch_ref` are given.
        """
        inside = self._inside("memory")
        if init is None:
            if shape is None or batch_ref is None:
                raise ProgramError("StaticRNN.memory: give init, or shape and batch_ref")
            init = self._filled(shape, batch_ref, init_value, init_batch_dim_idx, ref_batch_dim_idx)
        if check_variable(init, "StaticRNN.memory: init").block is inside:
            raise ProgramError(
                f"StaticRNN.memory: {init.name} is made in the step, so the first one cannot start with it",
                hint="Make it before the step, or give shape and batch_ref.",
            )
        name = unique_name.generate(f"{self.helper.name}@mem")
        before = inside.create_var(name=name, shape=init.shape, dtype=init.dtype)
        self.memories[before.name] = _Memory(init, before)
        note(self.memories.pop, before.name)
        return before

    def _filled(
        self, shape: Sequence[int], batch_ref: Variable, value: float, batch_axis: int, reference_axis: int
    ) -> Variable:
        outside = self._outside()
        name = unique_name.generate(f"{self.helper.name}@memory_boot")
        boot = outside.create_var(name=name, shape=shape, dtype=batch_ref.dtype)
        # The entry of a sequence has the name of the sequence, which the operator outside reads.
        outside.append_op(
            "fill_constant_batch_size_like", {"Input": batch_ref.name}, {"Out": boot},
            {
                "value": as_float(value), "shape": list(shape), "dtype": int(batch_ref.dtype),
                "input_dim_idx": reference_axis, "output_dim_idx": batch_axis,
            },
        )  # fmt: skip
        return boot

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """The next step will see `var` where this one sees `mem`.

        Raises
        ------
        ProgramError
            If `mem` is no memory of this network, or `var` has another shape or element type.
        """
        self._inside("update_memory")
        check_variable(mem, "StaticRNN.update_memory: mem")
        memory = self.memories.get(mem.name)
        if memory is None:
            raise ProgramError(f"StaticRNN.update_memory: {mem.name} is no memory")
        memory.after = check_variable(var, "StaticRNN.update_memory: var")
        old, new = mem.tensor_type, var.tensor_type
        if old is not None and new is not None and not old.fits(new):
            raise ProgramError(
                f"StaticRNN.update_memory: the memory is {old}, its new value {new}",
                hint="Update a memory to the shape and element type that it starts with.",
            )  # fmt: skip

    def step_output(self, o: Variable) -> None:
        """Collect `o` of every step."""
        self._inside("step_output")
        result = self._noted(check_variable(o, "StaticRNN.step_output: o"))
        shape = [-1 if self.seq_len is None else self.seq_len, *(result.shape or ())]
        # The operator joins the values that a name has in the steps to a sequence of that name.
        self.outputs.append(self._outside().create_var(name=result.name, shape=shape, dtype=result.dtype))
        note(self.outputs.pop)

    def output(self, *outputs: Variable) -> None:
        """`step_output` for each."""
        for each in outputs:
            self.step_output(each)

    def __call__(self, *args: Any, **kwargs: Any) -> Variable | list[Variable]:
        """Return the collected sequences, one for each `step_output`; a single one without a list."""
        if self.status != StaticRNN.AFTER_RNN_BLOCK:
            raise ProgramError("a StaticRNN gives its outputs once its step is complete")
        if not self.outputs:
            raise ProgramError(
                f"the StaticRNN {self.helper.name} has no step output", hint="Call step_output inside of its step."
            )
        return self.outputs[0] if len(self.outputs) == 1 else list(self.outputs)

    def _noted(self, var: Variable) -> Variable:
        """`var` under a name of the network's own."""
        return self.helper.emit("rnn_memory_helper", X=var, dtype=int(var.dtype))

    def _complete(self) -> list[str]:
        """Finish the step, and return the names of the states that it leaves."""
        if not self.inputs:
            raise ProgramError(
                f"the StaticRNN {self.helper.name} has no step input", hint="Call step_input inside of its step."
            )
        states = []
        for memory in self.memories.values():
            if memory.after is None:
                raise ProgramError(
                    f"the memory that starts as {memory.initial.name} is never updated",
                    hint="Call update_memory inside of the step.",
                )  # fmt: skip
            states.append(self._noted(memory.after).name)
        return states

    def _append(self, inside: Block, states: list[str]) -> None:
        outside = self.helper.block
        scopes = outside.create_var(type=VarKind.STEP_SCOPES)
        memories = list(self.memories.values())
        touched, written = outer_names(inside)
        # Values go from step to step as memories: the gradient of the operator knows no other way.
        if written:
            raise ProgramError(
                f"the step of a StaticRNN writes {', '.join(written)}, made outside of it",
                hint="Carry it from step to step as a memory.",
            )  # fmt: skip
        outside.append_op(
            "recurrent",
            {
                "inputs": [entry.name for entry in self.inputs],
                "initial_states": [memory.initial for memory in memories], "parameters": touched,
            },
            {"outputs": self.outputs, "step_scopes": scopes},
            {
                "has_states": bool(memories), "ex_states": [memory.before.name for memory in memories],
                "states": states, "sub_block": inside,
            },
        )  # fmt: skip

    def _inside(self, method: str) -> Block:
        if self.status != StaticRNN.IN_RNN_BLOCK:
            raise ProgramError(f"StaticRNN.{method} belongs inside of the step", hint="with rnn.step(): ...")
        return self.helper.block

    def _outside(self) -> Block:
        outside = self.helper.block.parent_block
        assert outside is not None
        return outside
