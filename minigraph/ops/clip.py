"""Bounding values and norms: what gradient clipping is made of."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.norm import require_positive_order
from minigraph.ops.tensor import require_one_element
from minigraph.types import (
    DType,
    TensorType,
    normalize_axis,
    require,
    require_floating,
    require_same_dtype,
)


@op("clip", inputs="X Min Max", outputs="Out", rows="X", lod="X", grad=fused("X", "Min", "Max", lod=False))
def clip(
    x: TensorType, lower: TensorType | None = None, upper: TensorType | None = None, *, min: float, max: float
) -> TensorType:
    """``Out = min(max(X, low), high)``: each element limited to the interval [low, high].

    The bounds are the attributes, or the one element of ``Min`` or ``Max`` where given. NaN stays NaN. The gradient
    passes where low < X < high and is 0 elsewhere, exactly at a bound too.
    """
    require_floating(x)
    for slot, bound in (("Min", lower), ("Max", upper)):
        if bound is not None:
            require_same_dtype(f"X and {slot}", x, bound)
            require_one_element(bound, slot)
    if lower is None and upper is None:
        require(min < max, f"min must be below max, got min={min:g} and max={max:g}")
    return x


@op("clip_by_norm", inputs="X", outputs="Out", rows="X", lod="X", grad=fused("X"))
def clip_by_norm(x: TensorType, *, max_norm: float) -> TensorType:
    """X scaled down to an L2 norm of at most `max_norm`, ``Out = X * max_norm / max(norm(X), max_norm)``.

    A tensor whose norm is at most `max_norm` is left bit for bit as it is, zeros too; `max_norm` infinity never clips.
    The norm neither overflows nor underflows. One NaN makes every element NaN. One infinity makes it NaN and the finite
    elements 0.

    Notes
    -----
    Fluid gives NaN for zeros and for an infinite `max_norm`, takes float32 only, and has no gradient.
    """
    require_floating(x)
    require(max_norm > 0, f"max_norm must be positive, got {max_norm:g}")
    return x


@op(
    "clip_by_global_norm",
    inputs="X ClipNorm",
    outputs="Out* Norm",
    rows="X",
    grad=fused("X", "ClipNorm", d_out="Out Norm"),
)
def clip_by_global_norm(
    xs: list[TensorType], clip_norm: TensorType, *, p: float = 2.0, strict: bool = False
) -> tuple[list[TensorType], TensorType]:
    """All tensors of X scaled down together to a joint norm of at most ``ClipNorm``.

    ``Norm`` is the joint norm of order `p` before, as `global_norm` defines it, and
    ``Out[i] = X[i] * ClipNorm / max(Norm, ClipNorm)``. The tensors may differ in element type. At or under the
    threshold every tensor stays bit for bit as it is. One NaN makes all elements NaN; one infinity makes it NaN and the
    finite elements 0. With `strict` one infinity makes all elements NaN, as in TensorFlow, and a ``ClipNorm`` that is
    not positive is an error when the program runs.

    Where nothing is clipped, exactly at the threshold too, the gradient passes unchanged and ``ClipNorm`` has none.

    Notes
    -----
    Fluid has no such operator. For p = 2 it stands for fluid's chain of ``square``, ``reduce_sum``, ``sum``, ``sqrt``,
    ``elementwise_max``, ``elementwise_div`` and ``elementwise_mul``, whose squares may overflow and underflow.

    References
    ----------
    R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.
    """
    require_positive_order(p)
    for x in xs:
        require_floating(x)
    require_floating(clip_norm, "ClipNorm")
    require_one_element(clip_norm, "ClipNorm")
    return list(xs), clip_norm.with_shape((1,))


@op("clip_factor", inputs="X ClipNorm", outputs="Factor Norm", grad=None)
def clip_factor(xs: list[TensorType], clip_norm: TensorType, *, p: float = 2.0) -> tuple[TensorType, TensorType]:
    """Factor of `clip_by_global_norm` for the tensors of X, which an update applies.

    ``Factor`` holds three numbers: the threshold, and two whose product is the joint norm, see
    `minigraph.kernels.norm`. Their quotient may not fit one number. ``Norm`` is as there.
    """
    _, norm = clip_by_global_norm(xs, clip_norm, p=p)
    return TensorType(DType.FP64, (3,)), norm


@op("clip_by_axis_norm", inputs="X MaxNorm", outputs="Out", rows="X", grad=fused("X", "MaxNorm", to="X MaxNorm"))
def clip_by_axis_norm(
    x: TensorType, threshold: TensorType | None = None, *, axes: list[int], max_norm: float = 1.0, p: float = 2.0
) -> TensorType:
    """Each slice of X scaled down to a norm of at most `max_norm`, ``Out = X * max_norm / max(norm, max_norm)``.

    A slice runs over the dimensions `axes` (negative ones count from the end; none means all) at one index of the
    others, and has a norm of order `p` of its own, as `global_norm` defines it. The threshold is the attribute, or the
    one positive element of ``MaxNorm`` where given. A slice at or under it stays bit for bit as it is, zeros too. One
    NaN makes its slice NaN; one infinity makes it NaN and the finite elements of its slice 0.

    Where a slice is not clipped, exactly at the threshold too, the gradient passes unchanged and ``MaxNorm`` has none.

    Notes
    -----
    Fluid has no such operator; TensorFlow's ``clip_by_norm(t, clip_norm, axes)`` is one.
    """
    require_floating(x)
    require_positive_order(p)
    require(max_norm > 0, f"max_norm must be positive, got {max_norm:g}")
    found = [normalize_axis(axis, x.rank, "axes") for axis in axes]
    require(len(set(found)) == len(found), f"axes names a dimension twice: {list(axes)}")
    if threshold is not None:
        require_floating(threshold, "MaxNorm")
        require_one_element(threshold, "MaxNorm")
    return x
