"""Branches for single rows: each row of a batch goes through one of two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minigraph import unique_name
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable, emit
from minigraph.layers.branches import ConditionalBlock
from minigraph.layers.tensor import assign
from minigraph.support.public import public
from minigraph.support.undo import note
from minigraph.types import DType

__all__ = ["IfElse"]


@public
class IfElse:
    """Compute the rows for which a condition holds in one branch, the others in another, and put them together again.

    A branch that gets no row does not run.

    Parameters
    ----------
    cond : Variable, bool[rows, 1]
    name : str, optional

    Raises
    ------
    WrongTypeError
        If `cond` is not a Variable of booleans.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> from minigraph import layers
    >>> with fluid.program_guard(fluid.Program()):
    ...     x = fluid.data("x", [None, 1])
    ...     choice = IfElse(x > 0.0)
    ...     with choice.true_block():
    ...         choice.output(choice.input(x) * 10.0)
    ...     with choice.false_block():
    ...         choice.output(-choice.input(x))
    ...     (y,) = choice()
    ...     fluid.Executor().run(feed={"x": np.array([[1], [-2], [3]], "float32")}, fetch_list=[y])[0].ravel()
    array([10.,  2., 30.], dtype=float32)
    """

    OUT_IF_ELSE_BLOCKS, IN_IF_ELSE_TRUE_BLOCKS, IN_IF_ELSE_FALSE_BLOCKS = 0, 1, 2

    def __init__(self, cond: Variable, name: str | None = None) -> None:
        if check_variable(cond, "IfElse: cond").dtype is not DType.BOOL:
            raise WrongTypeError(f"IfElse: cond must hold booleans, got {cond}")
        self.helper = LayerHelper("ifelse", name)
        self.cond = cond
        self.status = IfElse.OUT_IF_ELSE_BLOCKS
        self._parts: dict[str, tuple[Variable, Variable]] = {}
        """Rows for which the condition holds, and the other rows, by the name of the input."""
        self._outputs: tuple[list[Variable], list[Variable]] = ([], [])

    def input(self, x: Variable) -> Variable:
        """The rows of `x` that the branch is for."""
        branch = self._branch("input")
        if check_variable(x, "IfElse.input: x").name not in self._parts:
            # Outside, because both branches take theirs from it.
            outside = self.helper.block.parent_block
            assert outside is not None
            names = [unique_name.generate(f"ifelse_input{self.helper.name}") for _ in range(2)]
            parts = outside.create_var(name=names[0]), outside.create_var(name=names[1])
            outputs = {"OutTrue": parts[0], "OutFalse": parts[1]}
            outside.append_op("split_lod_tensor", {"X": x, "Mask": self.cond}, outputs, {"level": 0})
            self._parts[x.name] = parts
            note(self._parts.pop, x.name)
        return self._parts[x.name][branch]

    def true_block(self) -> Any:
        """Operators made inside are for the rows for which the condition holds."""
        return self._block(IfElse.IN_IF_ELSE_TRUE_BLOCKS)

    def false_block(self) -> Any:
        """Operators made inside are for the other rows."""
        return self._block(IfElse.IN_IF_ELSE_FALSE_BLOCKS)

    @contextmanager
    def _block(self, status: int) -> Iterator[None]:
        if self.status != IfElse.OUT_IF_ELSE_BLOCKS:
            raise ProgramError("a branch of an IfElse cannot stand in one")
        # Tensors as condition: the block runs unless one of them is empty, so that a branch without rows is left out.
        with ConditionalBlock([self.cond]).block():
            self.status = status
            try:
                yield
            finally:
                self.status = IfElse.OUT_IF_ELSE_BLOCKS
            if not self._outputs[status - 1]:
                raise ProgramError("this branch of the IfElse has no output")

    def output(self, *outs: Variable) -> None:
        """Give the results of the branch: as many as the other one, of the same element types and row shapes."""
        branch = self._branch("output")
        outside = self.helper.block.parent_block
        assert outside is not None
        for out in outs:
            check_variable(out, "IfElse.output")
            name = unique_name.generate(f"{self.helper.name}_output")
            # Variables of the block are gone when it has run.
            copied = outside.create_var(name=name, shape=out.shape, dtype=out.dtype)
            assign(out, copied)
            self._outputs[branch].append(copied)
            note(self._outputs[branch].pop)

    def __call__(self) -> list[Variable]:
        """The outputs, row by row from the branch of the row.

        Raises
        ------
        ProgramError
            If the branches gave different numbers of outputs; `OpError` if these do not fit together.
        """
        true_outputs, false_outputs = self._outputs
        if self.status != IfElse.OUT_IF_ELSE_BLOCKS or len(true_outputs) != len(false_outputs) or not true_outputs:
            raise ProgramError(
                f"the branches of the IfElse have {len(true_outputs)} and {len(false_outputs)} outputs",
                hint="Give both branches the same number of outputs, at least one.",
            )
        return [self._merged(*each) for each in zip(true_outputs, false_outputs, strict=True)]

    def _merged(self, true: Variable, false: Variable) -> Variable:
        return emit("merge_lod_tensor", X=self.cond, Mask=self.cond, InTrue=true, InFalse=false, level=0)

    def _branch(self, method: str) -> int:
        if self.status == IfElse.OUT_IF_ELSE_BLOCKS:
            raise ProgramError(f"IfElse.{method} belongs inside of a branch")
        return self.status - 1
