"""Recurrent networks over sequences of different lengths, whose step is built once, as the block of a loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Block, Variable, VarKind
from minigraph.layer_helper import LayerHelper, check_variable
from minigraph.layers.array import array_read, array_write
from minigraph.layers.compare import less_than
from minigraph.layers.loops import While
from minigraph.layers.rank_table import array_to_lod_tensor, shrink_memory
from minigraph.layers.tensor import fill_constant, increment
from minigraph.support.arguments import as_float
from minigraph.support.public import public
from minigraph.support.undo import note
from minigraph.types import as_dtype
from minigraph.unique_name import generate

__all__ = ["DynamicRNN"]


@public
class DynamicRNN:
    """Run what is built inside ``block()`` for each row of sequences of different lengths.

    Step by step, the rows of all sequences that still go on are one batch, longest sequence first. Inside, `step_input`
    gives the rows of a step, `static_input` a value for all steps, `memory` the state after the last step, and
    `update_memory` sets the state for the next one; `output` says what is collected. Calling the network afterwards
    gives the collected sequences, with the lengths of the step input.

    Parameters
    ----------
    name : str, optional

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.program_guard(fluid.Program()):
    ...     x = fluid.data("x", [None, 1], "float32", lod_level=1)
    ...     rnn = DynamicRNN()
    ...     with rnn.block():
    ...         row, total = rnn.step_input(x), rnn.memory(shape=[1])
    ...         updated = total + row
    ...         rnn.update_memory(total, updated)
    ...         rnn.output(updated)
    ...     sums = rnn()
    ...     rows = fluid.create_lod_tensor(np.array([[1], [2], [3]], "float32"), [[2, 1]], fluid.CPUPlace())
    ...     (found,) = fluid.Executor().run(feed={"x": rows}, fetch_list=[sums], return_numpy=False)
    >>> np.array(found).ravel()
    array([1., 3., 3.], dtype=float32)
    """

    BEFORE_RNN, IN_RNN, AFTER_RNN = 0, 1, 2

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("dynamic_rnn", name)
        self.status = DynamicRNN.BEFORE_RNN
        # Variables, from `block`, `step_input` or `memory` on.
        self.lod_rank_table: Any = None
        self.max_seq_len: Any = None
        self.step_idx: Any = None
        self.zero_idx: Any = None
        self.cond = self.helper.block.create_var(name=generate(f"{self.helper.name}.tmp"), dtype="bool", shape=[1])
        self.while_op = While(self.cond)
        self.mem_dict: dict[str, Variable] = {}
        self.mem_link: list[tuple[Variable, Variable]] = []
        self.input_array: list[Variable] = []
        self.output_array: list[Variable] = []
        self.outputs: list[Variable] = []

    @contextmanager
    def block(self) -> Iterator[None]:
        """Operators made inside are one step.

        Raises
        ------
        ProgramError
            If there is a block already, or when left, if there is no step input.
        """
        if self.status != DynamicRNN.BEFORE_RNN:
            raise ProgramError("a DynamicRNN has one block", hint="Make another DynamicRNN.")
        note(setattr, self, "status", self.status)
        self.step_idx = fill_constant([1], "int64", 0, force_cpu=True)
        self.status = DynamicRNN.IN_RNN
        with self.while_op.block():
            yield
            if self.max_seq_len is None:
                raise ProgramError("a DynamicRNN needs a step_input, which says how many steps there are")
            increment(self.step_idx, 1.0)
            for state, array in self.mem_link:
                array_write(state, self.step_idx, array)
            less_than(self.step_idx, self.max_seq_len, force_cpu=True, cond=self.cond)
        self.status = DynamicRNN.AFTER_RNN
        self.outputs = [array_to_lod_tensor(array, self.lod_rank_table) for array in self.output_array]

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """The rows of `x` that a step sees; all step inputs have the same lengths.

        Parameters
        ----------
        x : Variable, [rows, ...] with lengths
            With two levels of lengths a step sees sequences.
        level : int
            The level whose sequences the steps go through.

        Raises
        ------
        ProgramError
            Outside of `block`.
        """
        parent = self._outside("step_input")
        check_variable(x, "DynamicRNN.step_input: x")
        if self.lod_rank_table is None:
            self.lod_rank_table = self._append(parent, "lod_rank_table", {"X": x}, "lod_rank_table", level=level)
            given = {"RankTable": self.lod_rank_table}
            self.max_seq_len = self._append(parent, "max_sequence_len", given, "dynamic_rnn_max_seq_len")
            compared = {"X": self.step_idx, "Y": self.max_seq_len}
            parent.append_op("less_than", compared, {"Out": self.cond}, {"force_cpu": True})
        name = generate("dynamic_rnn_input_array")
        array = parent.create_var(name=name, type=VarKind.LOD_TENSOR_ARRAY, dtype=x.dtype)
        parent.append_op("lod_tensor_to_array", {"X": x, "RankTable": self.lod_rank_table}, {"Out": array})
        self.input_array.append(array)
        rows = array_read(array, self.step_idx)
        rows.lod_level = array.lod_level
        return rows

    def static_input(self, x: Variable) -> Variable:
        """The whole of `x`, one row or sequence for each sequence of the step input that still goes on.

        Raises
        ------
        ProgramError
            Outside of `block`, or before a `step_input`.
        """
        parent = self._outside("static_input")
        check_variable(x, "DynamicRNN.static_input: x")
        reordered = self._reordered(parent, x, "dynamic_rnn_static_input_reordered", "static_input")
        return shrink_memory(reordered, self.step_idx, self.lod_rank_table)

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> Variable:
        """A state, as the step before has left it.

        Parameters
        ----------
        init : Variable, optional
            What the first step sees: a row for each sequence, longest sequence first.
        shape : sequence of int, optional
            Without `init`: the shape of a row, all of whose elements are `value` at first.
        need_reorder : bool
            The rows of `init` stand in the order of the sequences, and are put in that of their lengths.
        dtype : str
            Without `init`.

        Raises
        ------
        ProgramError
            Outside of `block`, before a `step_input` that is needed, or if neither `init` nor `shape` is given.
        """
        parent = self._outside("memory")
        if self.zero_idx is None:
            self.zero_idx = self._append(
                parent, "fill_constant", {}, "zero_idx", shape=[1], dtype=as_dtype("int64"), value=0.0, force_cpu=True
            )
        if init is None:
            init = self._constant(parent, shape, value, dtype)
        elif need_reorder:
            check_variable(init, "DynamicRNN.memory: init")
            init = self._reordered(parent, init, "dynamic_rnn_mem_init_reordered", "memory with need_reorder")
        name = generate("dynamic_rnn_mem_array")
        array = parent.create_var(name=name, type=VarKind.LOD_TENSOR_ARRAY, dtype=init.dtype)
        parent.append_op("write_to_array", {"X": init, "I": self.zero_idx}, {"Out": array})
        before = shrink_memory(array_read(array, self.step_idx), self.step_idx, self._table("memory"))
        self.mem_dict[before.name] = array
        return before

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Let the next step see `new_mem` where this one saw `ex_mem`.

        Raises
        ------
        ProgramError
            Outside of `block`, or if `ex_mem` is no memory.
        """
        self._outside("update_memory")
        array = self.mem_dict.get(check_variable(ex_mem, "DynamicRNN.update_memory: ex_mem").name)
        if array is None:
            raise ProgramError(
                f"DynamicRNN.update_memory: {ex_mem} is no memory", hint="Pass what rnn.memory(...) returned."
            )
        self.mem_link.append((check_variable(new_mem, "DynamicRNN.update_memory: new_mem"), array))

    def output(self, *outputs: Variable) -> None:
        """Collect these of each step.

        Raises
        ------
        ProgramError
            Outside of `block`.
        """
        parent = self._outside("output")
        for each in outputs:
            name = generate(f"{self.helper.name}_output_array_{check_variable(each, 'DynamicRNN.output').name}")
            array = parent.create_var(name=name, type=VarKind.LOD_TENSOR_ARRAY, dtype=each.dtype)
            array_write(each, self.step_idx, array)
            self.output_array.append(array)

    def __call__(self, *args: Any, **kwargs: Any) -> Variable | list[Variable]:
        """The collected sequences, a list of them if there are several.

        Raises
        ------
        ProgramError
            Before `block` has been left.
        """
        if self.status != DynamicRNN.AFTER_RNN:
            raise ProgramError("a DynamicRNN has outputs when its block has been left")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def _outside(self, method: str) -> Block:
        """The block that the steps are made in."""
        if self.status != DynamicRNN.IN_RNN:
            raise ProgramError(f"DynamicRNN.{method} can only be called inside of block()")
        parent = self.helper.block.parent_block
        assert parent is not None
        return parent

    def _table(self, method: str) -> Any:
        if self.lod_rank_table is None:
            raise ProgramError(f"DynamicRNN: {method} needs a step_input before it")
        return self.lod_rank_table

    def _append(self, parent: Block, type: str, inputs: dict[str, Any], name: str, **attrs: Any) -> Variable:
        """Append an operator to the block outside, with a result that is constant."""
        made = parent.create_var(name=generate(name), dtype="int64", stop_gradient=True)
        parent.append_op(type, inputs, {"Out": made}, attrs)
        return made

    def _reordered(self, parent: Block, x: Variable, name: str, method: str) -> Variable:
        made = parent.create_var(name=generate(name), dtype=x.dtype)
        inputs = {"X": x, "RankTable": self._table(method)}
        parent.append_op("reorder_lod_tensor_by_rank", inputs, {"Out": made})
        return made

    def _constant(self, parent: Block, shape: Sequence[int] | None, value: float, dtype: Any) -> Variable:
        """A row of a value for each sequence."""
        if shape is None or not self.input_array:
            raise ProgramError("DynamicRNN.memory needs init, or a shape and a step_input before it")
        made = parent.create_var(name=generate("mem_init"), dtype=dtype)
        first = parent.create_var(name=generate("in0"), dtype=self.input_array[0].dtype)
        parent.append_op("read_from_array", {"X": self.input_array[0], "I": self.zero_idx}, {"Out": first})
        attrs = {"shape": [-1, *shape], "value": as_float(value), "dtype": as_dtype(dtype)}
        parent.append_op("fill_constant_batch_size_like", {"Input": first}, {"Out": made}, attrs)
        return made
