"""Products of vectors and of whole batches, and the distance between tensors."""

from __future__ import annotations

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, emit, layer
from minigraph.layers.elementwise import elementwise_add, elementwise_mul

__all__ = ["addcmul", "addmm", "bmm", "cos_sim", "cross", "dist", "dot", "kron", "t"]


@layer
def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The products ``x[i] @ y[i]`` of two batches of as many matrices."""
    return emit("bmm", name, X=check_floating(x, "bmm: x"), Y=check_floating(y, "bmm: y"))


@layer
def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The sum of ``x * y`` over the last dimension, which stays as 1, for vectors or matrices of them."""
    return emit("dot", name, X=x, Y=y)


@layer
def cross(input: Variable, other: Variable, dim: int | None = None) -> Variable:
    """The cross products of vectors of size 3 along dimension `dim` (None: the first of that size)."""
    return emit("cross", X=input, Y=other, dim=dim)


@layer
def kron(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Kronecker product: each element of `x` times the whole of `y`, into `out` if given."""
    return emit("kron", name, X=x, Y=y, into=out)


@layer
def addmm(
    input: Variable, x: Variable, y: Variable, alpha: float = 1.0, beta: float = 1.0, name: str | None = None
) -> Variable:
    """``beta * input + alpha * x @ y``; dimensions of `input` that are 1 are repeated."""
    check_floating(input, "addmm: input")
    operands = {"X": check_floating(x, "addmm: x"), "Y": check_floating(y, "addmm: y")}
    return emit("addmm", name, Input=input, **operands, Alpha=float(alpha), Beta=float(beta))


@layer
def addcmul(
    input: Variable,
    tensor1: Variable,
    tensor2: Variable,
    value: float = 1.0,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """``input + value * tensor1 * tensor2``, into `out` if given."""
    total = elementwise_add(input, elementwise_mul(tensor1, tensor2) * float(value), name=name)
    return total if out is None else emit("assign", X=total, into=out)


@layer
def dist(x: Variable, y: Variable, p: float = 2) -> Variable:
    """The `p`-norm of ``x - y``, shape [1]; see the operator for 0 and the infinities."""
    return emit("dist", X=check_floating(x, "dist: x"), Y=check_floating(y, "dist: y"), p=float(p))


@layer
def t(input: Variable, name: str | None = None) -> Variable:
    """A matrix transposed; a vector as it is.

    Raises
    ------
    ProgramError
        If `input` has more than two dimensions.
    """
    rank = len(check_variable(input, "t: input").shape or ())
    if rank > 2:
        raise ProgramError(f"t: input must be a matrix, got {input}", hint="Use layers.transpose with perm.")
    return input if rank < 2 else LayerHelper("t", name).emit("transpose2", X=input, axis=[1, 0])


@layer
def cos_sim(X: Variable, Y: Variable) -> Variable:
    """The cosine of the angle between each vector of `X` and that of `Y`, float[vectors, 1].

    Parameters
    ----------
    X : Variable, float[vectors, ...]
    Y : Variable, float[vectors, ...] or float[1, ...]
        One vector is compared with all of `X`.
    """
    return emit("cos_sim", X=check_floating(X, "cos_sim: X"), Y=check_floating(Y, "cos_sim: Y"))
