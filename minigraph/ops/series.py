"""Numbers in a row: ranges, grids, masks of lengths."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import require_one_element, require_one_integer
from minigraph.types import (
    DType,
    TensorType,
    as_dtype,
    require,
    require_floating,
    require_number,
    require_same_dtype,
)


@op("range", inputs="Start End Step", outputs="Out", grad=None)
def range(start: TensorType, end: TensorType, step: TensorType) -> TensorType:
    """``Out`` is Start, ``Start + Step`` and so on, up to but not including End; of one element each.

    How many there are is known only when the program runs. A Step that leads away from End is an error.
    """
    require_same_dtype("Start, End and Step", start, end, step)
    require_number(start, "Start")
    for slot, each in (("Start", start), ("End", end), ("Step", step)):
        require_one_element(each, slot)
    return start.with_shape((-1,))


@op("linspace", inputs="Start Stop Num", outputs="Out", grad=None)
def linspace(start: TensorType, stop: TensorType, num: TensorType) -> TensorType:
    """``Out`` is Num numbers from Start to Stop at equal distances; a single one is Start.

    How many there are is known only when the program runs.
    """
    require_same_dtype("Start and Stop", start, stop)
    require_floating(start, "Start")
    require(num.dtype is DType.INT32, f"Num must be int32, got {num.dtype}")
    for slot, each in (("Start", start), ("Stop", stop), ("Num", num)):
        require_one_element(each, slot)
    return start.with_shape((-1,))


@op("meshgrid", inputs="X", outputs="Out*", grad=fused("X", linear=True))
def meshgrid(xs: list[TensorType]) -> list[TensorType]:
    """``Out[i]`` is the vector ``X[i]`` along dimension i, repeated along the others: a dimension for each vector."""
    require(bool(xs), "X is missing")
    require_same_dtype("X", *xs)
    require_number(xs[0])
    require(all(x.rank == 1 for x in xs), f"X must be vectors, got {', '.join(map(str, xs))}")
    return [x.with_shape(dim for each in xs for dim in each.shape) for x in xs]


@op("sequence_mask", inputs="X MaxLenTensor", outputs="Y", grad=None)
def sequence_mask(
    x: TensorType, max_len_tensor: TensorType | None, *, maxlen: int = -1, out_dtype: int = 3
) -> TensorType:
    """``Y[..., j]`` is 1 where j is below X, else 0; j counts up to `maxlen`, or if it is negative to the largest of X.

    MaxLenTensor, of one element, takes the place of `maxlen`. X may have fractions: 2.5 counts for j up to 2, and the
    largest of X is cut to an integer.
    """
    require(x.dtype is not DType.BOOL, f"X must hold numbers, got {x}")
    if max_len_tensor is not None:
        require_one_integer(max_len_tensor, "MaxLenTensor")
        maxlen = -1
    else:
        require(maxlen != 0, "maxlen must be positive, or -1, got 0")
        maxlen = max(maxlen, -1)
    return TensorType(as_dtype(out_dtype), (*x.shape, maxlen))
