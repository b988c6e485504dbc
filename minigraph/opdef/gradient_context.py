"""The arguments and results of gradient rules: names of values and gradients, and operators to append."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

GRAD_SUFFIX = "@GRAD"
EMPTY = "@EMPTY@"
"""Name in a list slot for a gradient that is absent."""


class OpSpec(NamedTuple):
    """An operator yet to be appended: what a gradient rule returns."""

    type: str
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    attrs: Mapping[str, Any]


class GradName(str):
    """A name ``v@GRAD`` that means the gradient of ``v`` in the current backward pass, whatever its name there."""

    __slots__ = ()

    @classmethod
    def of(cls, variable: str) -> GradName:
        """The gradient of a variable."""
        return cls(variable + GRAD_SUFFIX)

    @property
    def variable(self) -> str:
        """The variable whose gradient it names."""
        return self.removesuffix(GRAD_SUFFIX)


class GradContext:
    """The forward operator as a gradient rule sees it: names of values and of their gradients.

    `d_output` names the gradients that flow in, `d_input` those to compute, ``@EMPTY@`` where one is not wanted.
    """

    __slots__ = ("_no_grad", "op")

    def __init__(self, op: Any, no_grad: Callable[[str], bool]) -> None:
        self.op = op
        self._no_grad = no_grad

    def input(self, slot: str) -> list[str]:
        return list(self.op.input(slot))

    def output(self, slot: str) -> list[str]:
        return list(self.op.output(slot))

    def attr(self, name: str) -> Any:
        return self.op.attr(name)

    def d_output(self, slot: str) -> list[str]:
        return [GradName.of(name) for name in self.op.output(slot)]

    def d_input(self, slot: str) -> list[str]:
        return [EMPTY if self._no_grad(name) else GradName.of(name) for name in self.op.input(slot)]

    def holds_array(self, slot: str) -> bool:
        """Whether what is in an input slot is an array of tensors, which the imperative mode does not have."""
        var = self.op.block.find_var(self.op.input(slot)[0])
        return var is not None and var.tensor_type is not None and var.tensor_type.is_array

    def temporary(self) -> str:
        """A new name, for a value that one `OpSpec` writes and another one reads."""
        return self.op.block.free_name(f"{self.op.type}.tmp")


GradRule: TypeAlias = Callable[[GradContext], Iterable[OpSpec]]
"""Function from a context to the operators to append."""


@dataclass(frozen=True)
class BlockGrad:
    """The rule of an operator that runs a sub-block: its gradient is an operator that runs a block of gradients.

    `minigraph.autodiff.block_gradients` makes that block, by the rules of the operators inside.

    Attributes
    ----------
    reads : tuple of str
        Input slots that name the outer variables that the block reads; these get gradients.
    runs : str
        Output slot for what the runs leave behind.
    """

    reads: tuple[str, ...]
    runs: str
