"""The base of all operators of control flow, for plans and the interpreter alike.

A call reads variables by name, gives values to the sub-block before each of its runs, takes values from it afterwards,
and writes variables. How the sub-block itself is computed is the affair of the executor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias, cast

from minigraph.errors import OpError
from minigraph.ir import Block, Operator, VarKind
from minigraph.ir.effects import body_of, outer_names
from minigraph.ir.operator import slot_names
from minigraph.kernels.reduce import sum as sum_of
from minigraph.kernels.sparse_rows import SparseRows, joined, no_rows
from minigraph.opdef import register_sub_block_rule
from minigraph.types import TensorType

Body: TypeAlias = "Callable[[Sequence[Any]], Sequence[Any]]"
"""Computes a sub-block: the values of `BlockCall.given` to those of `BlockCall.taken`."""


class BlockCall(ABC):
    """One operator of control flow; a subclass describes the operators of the type that it is declared with.

    Attributes
    ----------
    reads, writes : list of str
        Variables of the operator's block that the call reads and writes; a variable that is read may lack a value.
    given, taken : list of str
        Variables of the sub-block, or seen from it, that get values before each run and give values after it.
    """

    may_stay_out: ClassVar[bool] = False
    """Whether the sub-block may not run at all."""

    def __init_subclass__(cls, type: str = "") -> None:
        if type:
            register_sub_block_rule(type, cls)

    def __init__(self, op: Operator) -> None:
        self.op = op
        self.body = body_of(op)
        self.touched, self.written = outer_names(self.body)
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.given: list[str] = []
        self.taken: list[str] = []
        self.private: set[str] = set()
        """Names among `given` whose memory nothing else writes to while the values of `taken` are used."""

    def must_have(self, name: str) -> bool:
        """Whether a variable has to have a value for the operator to run; an array without one is empty."""
        return name in set(slot_names(self.op.inputs)) and not self._is_array(name)

    @abstractmethod
    def run(self, body: Body, values: Sequence[Any], xp: Any) -> list[Any]:
        """The values of `writes` from those of `reads`."""

    # Types

    @abstractmethod
    def bind_types(self) -> None:
        """Set the types of the sub-block's variables that the operator gives it."""

    @abstractmethod
    def settle_types(self) -> None:
        """Set the types of the operator's outputs from those of the sub-block; raise if they do not fit."""

    def _slot(self, name: str) -> tuple[str, ...]:
        return self.op.inputs.get(name, ())

    def _pairs(self, names: Sequence[str], slot: str) -> list[tuple[str, str]]:
        """Names in the sub-block with the variables of a slot, which must be as many."""
        given = self._slot(slot)
        if len(names) != len(given):
            raise OpError(f"{self.op.type}: {slot} must be {len(names)} variables, got {len(given)}")
        return list(zip(names, given, strict=True))

    def _forward_block(self) -> Block:
        """The block of which the sub-block computes the gradient."""
        found = self.body.forward_block
        if found is None:
            raise OpError(f"{self.op.type}: block {self.body.idx} is the gradient of no block")
        return found

    def _type(self, name: str) -> TensorType | None:
        var = self.op.block.find_var(name)
        return None if var is None else var.tensor_type

    def _is_array(self, name: str) -> bool:
        """Whether what the operator calls `name` is an array of tensors."""
        var = self.op.block.find_var(name)
        return var is not None and var.kind is VarKind.LOD_TENSOR_ARRAY

    def _inner_type(self, name: str) -> TensorType | None:
        var = self.body.find_var(name)
        return None if var is None else var.tensor_type

    def _gradient_type(self, source: str, name: str) -> TensorType | None:
        """The type of a gradient of `source`, which the sub-block calls `name` and may compute as selected rows."""
        whole, inner = self._type(source), self._inner_type(name)
        return whole.held_as(inner.kind) if whole is not None and inner is not None and inner.is_rows else whole

    def _set_type(self, name: str, tensor_type: TensorType | None) -> None:
        var = self.op.block.find_var(name)
        # A persistable variable keeps its declared type, which other programs of the scope rely on.
        if var is not None and tensor_type is not None and not var.persistable:
            var.tensor_type = tensor_type


def call_of(op: Operator) -> BlockCall:
    """Describe an operator of control flow."""
    return cast(BlockCall, op.definition.call(op))


def unshared(value: Any) -> Any:
    """A copy that shares no memory with `value`, which may be gone before the copy is read."""
    return value.copy() if hasattr(value, "copy") else value


def zeros_like(value: Any, xp: Any) -> Any:
    """Zeros, an empty array of tensors, or None for a value that a branch would have made and did not."""
    return None if value is None else [] if isinstance(value, list) else xp.zeros_like(value)


class Sum:
    """Sum of the gradients of the runs of a sub-block: arrays are added at once, selected rows joined at the end."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._total: Any = None
        self._is_own = False
        """Whether the total has memory of its own, and may be changed in place."""
        self._rows: list[SparseRows] = []

    def add(self, part: Any) -> None:
        if isinstance(part, SparseRows):
            self._rows.append(part)
        elif isinstance(part, list):
            self._total = part if self._total is None else sum_of(self._xp, [self._total, part])
        elif self._is_own:  # the first part may belong to a value that others read
            self._total += part
        else:
            self._is_own = self._total is not None
            self._total = self._total + part if self._is_own else part

    def total(self, tensor_type: TensorType | None, like: Any) -> Any:
        """The sum; if there was no run, zeros like the array `like`, or no rows of it if that is the type."""
        if self._rows:
            return joined(self._xp, self._rows)
        if self._total is None and like is None:
            return None  # a variable without a value, as in a branch that was not taken, has no gradient
        if tensor_type is not None and tensor_type.is_rows:
            return no_rows(self._xp, like)
        return zeros_like(like, self._xp) if self._total is None else self._total
