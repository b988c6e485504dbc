"""PyTorch's methods for reading and scaling a gradient, for the tensors of the imperative mode.

``p.grad.data.norm(2).item()``, ``p.grad.data.mul_(0.5)``, ``p.grad.data.abs().max() > 1``. Methods that tensors have
already stay.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from numbers import Real
from typing import Any

from minigraph.compat.torch.norms import as_number, number, total_norm
from minigraph.dygraph import EagerParameter, Tensor, no_grad
from minigraph.eager.tensor import Eager
from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.support.public import public
from minigraph.unique_name import generate


class Data(Tensor):
    """The value of a tensor without its history: operators on it are not recorded, and both share the value."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any) -> None:
        name = generate(f"{owner.name}.data")
        Variable.__init__(self, owner.block, name, owner.tensor_type, stop_gradient=True)
        self._owner, self._grad, self._origin = owner, None, None

    @property
    def value(self) -> Any:
        return self._owner.value

    @value.setter
    def value(self, array: Any) -> None:
        self._owner.value = array


def norm(self: Any, p: Any = "fro") -> Any:
    """The norm of order `p` of all elements, of shape [1]; ``"fro"`` is 2. Without a gradient."""
    return total_norm([self], 2.0 if p == "fro" else as_number(p, "p"))


def mul_(self: Any, factor: Any) -> Any:
    """Multiply in place, by a number or a tensor; returns the tensor itself. It is not recorded for ``backward``.

    Raises
    ------
    ProgramError
        If the product has another shape than the tensor.
    """
    if not isinstance(factor, Eager):
        factor = number(self.block, as_number(factor, "factor"), self.dtype)
    with no_grad():
        if factor.value.size == 1:
            # An elementwise product would give a tensor without dimensions the factor's shape, [1].
            product = self.block.emit("scale", X=self, ScaleTensor=factor.astype(self.dtype))
        else:
            product = self * factor
    if product.shape != self.shape:
        raise ProgramError(f"{self.name} is {self.tensor_type}, it cannot become {product.tensor_type}")
    self.value = product.value
    return self


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A method that compares a tensor of one element with another or with a number; gives a Python bool."""

    def method(self: Any, other: Any) -> bool:
        if isinstance(other, Eager):
            other = other.item()
        return compare(self.item(), other) if isinstance(other, Real) else NotImplemented

    return method


_METHODS = {
    "data": property(Data), "norm": public(norm), "mul_": public(mul_),
    "__lt__": _comparison(operator.lt), "__le__": _comparison(operator.le),
    "__gt__": _comparison(operator.gt), "__ge__": _comparison(operator.ge),
}  # fmt: skip
_KNOWN = {name for cls in (Tensor, EagerParameter) for base in cls.__mro__[:-1] for name in vars(base)}
for _name, _method in _METHODS.items():
    if _name not in _KNOWN:
        setattr(Eager, _name, _method)
