"""The type of a value in a program: an element type and a shape.

A dimension of -1 is unknown until the program runs. There is no rank 0: a scalar has shape ``[1]``, as in fluid.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from minigraph.errors import OpError, WrongTypeError


class DType(enum.IntEnum):
    """Element types, with fluid's names and numbers (the numbers stand in ``dtype`` attributes of op descs)."""

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    UINT8 = 20
    INT8 = 21

    numpy: np.dtype[Any]  # filled in below
    is_floating: bool

    __hash__ = int.__hash__  # Enum would hash the name, in Python, for each type looked up

    def __eq__(self, other: object) -> bool:
        """Compare with an element type, its number, its name or NumPy's type; an unknown name is an error."""
        if type(other) is DType:
            return self is other
        if isinstance(other, str):
            return self is as_dtype(other)
        if isinstance(other, type):
            with suppress(WrongTypeError):
                return self is as_dtype(other)
        return int.__eq__(self, other)  # a NumPy dtype compares itself

    def __ne__(self, other: object) -> bool:  # int has one of its own
        same = self.__eq__(other)
        return same if same is NotImplemented else not same

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype, under the name that lets ``np.dtype(DType.FP32)`` work."""
        return self.numpy

    text: str
    """Name of the NumPy dtype, which NumPy makes anew each time."""

    def __str__(self) -> str:
        return self.text

    def __format__(self, format_spec: str) -> str:
        return format(str(self), format_spec)


_NUMPY_NAMES = {
    DType.BOOL: "bool", DType.INT16: "int16", DType.INT32: "int32", DType.INT64: "int64", DType.FP16: "float16",
    DType.FP32: "float32", DType.FP64: "float64", DType.UINT8: "uint8", DType.INT8: "int8",
}  # fmt: skip
for _member, _name in _NUMPY_NAMES.items():
    _member.numpy, _member.text = np.dtype(_name), _name
    _member.is_floating = _member.numpy.kind == "f"
_BY_NAME = {name: member for member, name in _NUMPY_NAMES.items()}
_BY_NAME |= {"int": DType.INT64, "float": DType.FP64}  # Python's numbers
_BY_NUMPY = {member.numpy: member for member in _NUMPY_NAMES}


def as_dtype(dtype: Any) -> DType:
    """The `DType` of a name, a NumPy dtype or scalar type, fluid's number, or a `DType`.

    Raises
    ------
    WrongTypeError
        If it is none of these.

    Examples
    --------
    >>> as_dtype("float32"), as_dtype(np.int64).name, as_dtype(6).name
    (<DType.FP32: 5>, 'INT64', 'FP64')
    """
    if type(dtype) is DType:
        return dtype
    if type(dtype) is DTypeNumber:
        return dtype.named
    if isinstance(dtype, np.dtype) and (found := _BY_NUMPY.get(dtype)) is not None:
        return found
    try:
        if dtype is None:  # float64 to NumPy
            raise TypeError
        if isinstance(dtype, int) and not isinstance(dtype, bool):
            return DType(dtype)
        return _BY_NAME[dtype if isinstance(dtype, str) and dtype in _BY_NAME else np.dtype(dtype).name]
    except (KeyError, TypeError, ValueError):
        raise WrongTypeError(
            f"{dtype!r:.80} is not an element type", hint=f"Use one of {', '.join(_BY_NAME)}."
        ) from None


class DTypeNumber(int):
    """The number of an element type, as attributes have it; it equals the names of that type, too.

    It prints and is saved as the number.

    Examples
    --------
    >>> number = DTypeNumber.of(3)
    >>> number, number == 3, number == "int64", number == DType.FP32
    (3, True, True, False)
    """

    named: DType
    """The element type."""

    __hash__ = int.__hash__

    @staticmethod
    def of(number: int) -> int:
        """Return the one object for the number of an element type; another number as it is."""
        return _DTYPE_NUMBERS.get(number, number)

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other) if type(other) is int else self.named == other

    def __ne__(self, other: object) -> bool:
        return int.__ne__(self, other) if type(other) is int else self.named != other

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype, which lets NumPy compare with the number."""
        return self.named.numpy

    def __copy__(self) -> DTypeNumber:
        return self

    def __deepcopy__(self, memo: Any) -> DTypeNumber:
        return self

    def __reduce__(self) -> Any:
        return int, (int(self),)


_DTYPE_NUMBERS: dict[int, int] = {int(member): DTypeNumber(member) for member in _NUMPY_NAMES}
for _member in _NUMPY_NAMES:
    _DTYPE_NUMBERS[_member].named = _member  # type: ignore[attr-defined]


class VarKind(enum.Enum):
    """The kind of value that a variable holds."""

    LOD_TENSOR = "lod_tensor"
    """A dense array (fluid's word for it)."""
    SELECTED_ROWS = "selected_rows"
    """Rows of a mostly zero array, with their indices."""
    LOD_TENSOR_ARRAY = "lod_tensor_array"
    """A list of dense arrays, which grows as it is written; the type is that of each element."""
    STEP_SCOPES = "step_scopes"
    """Values that an operator of control flow keeps of each run of its sub-block, for the gradient."""
    RAW = "raw"
    """Value that few operators take: the name of a group of ranks, or a tensor whose type only a run knows."""
    FEED_MINIBATCH = "feed_minibatch"
    """List of the fed values, which the operators ``feed`` of a model read."""
    FETCH_LIST = "fetch_list"
    """List of the fetched values, which the operators ``fetch`` of a model write."""

    __hash__ = object.__hash__  # there is one of each; Enum would hash the name, in Python, for each type looked up

    def __str__(self) -> str:
        return f"VarType.{self.name}"


class TensorType(NamedTuple):
    """Element type and shape of a tensor, and how it is held.

    The shape of selected rows is that of the whole array; how many of its rows there are is known only when a program
    runs.

    Examples
    --------
    >>> print(TensorType(DType.FP32, (-1, 13)))
    float32[-1, 13]
    >>> print(TensorType(DType.FP32, (100, 8), VarKind.SELECTED_ROWS))
    float32[100, 8] as selected rows
    """

    dtype: DType
    shape: tuple[int, ...]
    kind: VarKind = VarKind.LOD_TENSOR

    def __str__(self) -> str:
        held = {VarKind.SELECTED_ROWS: " as selected rows", VarKind.LOD_TENSOR_ARRAY: " in an array"}
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{held.get(self.kind, '')}"

    @property
    def is_rows(self) -> bool:
        """Whether it is held as selected rows."""
        return self.kind is VarKind.SELECTED_ROWS

    @property
    def is_array(self) -> bool:
        """Whether it is held as an array of tensors."""
        return self.kind is VarKind.LOD_TENSOR_ARRAY

    def held_as(self, kind: VarKind) -> TensorType:
        return TensorType(self.dtype, self.shape, kind)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is known."""
        return -1 not in self.shape

    def fits(self, other: TensorType) -> bool:
        """Whether both can describe one value: equal but for dimensions that one of them does not know.

        An array to which nothing has been written has the shape ``()``, and fits every one of its element type.
        """
        if self.dtype is not other.dtype or self.kind is not other.kind:
            return False
        return same_shape(self.shape, other.shape) or (self.is_array and () in (self.shape, other.shape))

    def with_shape(self, shape: Iterable[int]) -> TensorType:
        """A dense tensor of this element type and another shape."""
        return TensorType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        """A dense tensor of this shape and another element type."""
        return TensorType(dtype, self.shape)


RAW = TensorType(DType.UINT8, (128,), VarKind.RAW)
"""The type of what is `VarKind.RAW`: as long as NCCL's name of a group of ranks."""

FIXED_TYPES = {kind: RAW._replace(kind=kind) for kind in (VarKind.RAW, VarKind.FEED_MINIBATCH, VarKind.FETCH_LIST)}
"""Kinds whose variables hold no tensor that a program describes, with the type that stands for it."""


def parse_type(text: str) -> TensorType:
    """The type of a dense tensor that is written as `text`.

    Examples
    --------
    >>> parse_type("float32[-1, 4]") == TensorType(DType.FP32, (-1, 4))
    True
    """
    dtype, _, dims = text.removesuffix("]").partition("[")
    return TensorType(as_dtype(dtype), tuple(int(dim) for dim in dims.split(",") if dim))


@functools.lru_cache(maxsize=4096)
def dense_type(dtype: DType, shape: tuple[int, ...]) -> TensorType:
    """The type of a dense tensor; programs have many variables of few types, which share them."""
    return TensorType(dtype, shape)


def require(condition: bool, message: str, hint: str = "") -> None:
    """Raise an `OpError` with `message` unless `condition` holds; the caller adds operator, values and source line."""
    if not condition:
        raise OpError(message, hint=hint)


def require_floating(x: TensorType, slot: str = "X") -> None:
    """Raise unless `x` has a floating-point element type."""
    if not x.dtype.is_floating:
        raise OpError(f"{slot} must be floating point, got {x.dtype}", hint="Convert it with layers.cast.")


def require_number(x: TensorType, slot: str = "X") -> None:
    """Raise if `x` holds booleans."""
    if x.dtype is DType.BOOL:
        raise OpError(f"{slot} must be a number, got bool", hint="Convert it with layers.cast.")


def require_same_dtype(slots: str, *types: TensorType) -> None:
    """Raise unless all `types` have one element type; `slots` names them in the message."""
    if any(t.dtype is not types[0].dtype for t in types):
        found = ", ".join(str(t.dtype) for t in types)
        raise OpError(f"{slots} must have one element type, got {found}", hint="Convert with layers.cast.")


def normalize_axis(axis: int, rank: int, name: str = "axis") -> int:
    """`axis` counted from the front; raises unless ``-rank <= axis < rank``."""
    require(-rank <= axis < rank, f"{name} must be in [{-rank}, {rank}), got {axis}")
    return axis + rank if axis < 0 else axis


def product(dims: Iterable[int]) -> int:
    """Product of dimensions, -1 when one of them is unknown (and none is 0)."""
    dims = tuple(dims)
    if 0 in dims:
        return 0
    return -1 if -1 in dims else math.prod(dims)


def same_dim(a: int, b: int) -> bool:
    """Whether two dimensions can be equal: unknown (-1) goes with everything."""
    return a == b or a == -1 or b == -1


def same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes can be equal."""
    return len(a) == len(b) and all(map(same_dim, a, b))


def merge_shapes(a: Sequence[int], b: Sequence[int], what: str) -> tuple[int, ...]:
    """The shape that both `a` and `b` describe; raises when they cannot be equal."""
    if not same_shape(a, b):
        raise OpError(f"{what} must have equal shapes, got {list(a)} and {list(b)}")
    return tuple(y if x == -1 else x for x, y in zip(a, b, strict=True))


def broadcast_shapes(x: Sequence[int], y: Sequence[int], axis: int = -1) -> tuple[int, ...]:
    """Shape of an elementwise result under fluid's rule for ``axis``.

    `y` is laid over `x` from dimension `axis` on (-1: right-aligned); trailing ones of `y` are dropped first when an
    axis is given, and equal shapes need none. Dimensions must be equal or 1. When right-aligned either side may be the
    larger.

    Examples
    --------
    >>> broadcast_shapes((2, 3, 4), (3,), axis=1)
    (2, 3, 4)
    """
    aligned = tuple(align_shape(x, y, axis))
    x = (1,) * (len(aligned) - len(x)) + tuple(x)
    out = []
    for a, b in zip(x, aligned, strict=True):
        if not (same_dim(a, b) or a == 1 or b == 1):
            raise OpError(
                f"shapes {list(x)} and {list(y)} do not broadcast at axis={axis}",
                hint="Give Y dimensions that equal those of X from dimension `axis` on, or are 1.",
            )
        # An unknown dimension beside a known one other than 1 has to be that one.
        out.append(b if a == 1 or (a == -1 and b != 1) else a)
    return tuple(out)


def align_shape(x: Sequence[int], y: Sequence[int], axis: int) -> tuple[int, ...]:
    """`y` with the ones added that make right-aligned broadcasting against `x` mean fluid's ``axis`` rule.

    Examples
    --------
    >>> align_shape((2, 3, 4), (2,), axis=0)
    (2, 1, 1)
    """
    y = tuple(y)
    if axis < -1:
        raise OpError(f"axis must be at least -1, got {axis}", hint="Count from the front, or give -1 for the end.")
    if axis == -1 or same_shape(x, y):
        return (1,) * (len(x) - len(y)) + y
    if len(y) > len(x) and axis != len(y) - len(x) and not all(dim == 1 for dim in x):
        raise OpError(
            f"X {list(x)} has fewer dimensions than Y {list(y)} and would lie under it from axis {axis}",
            hint="Reshape X to as many dimensions as Y has and leave axis at -1.",
        )
    if len(y) > len(x):
        return y
    if not 0 <= axis < max(len(x), 1):
        raise OpError(f"axis must be in [0, {len(x)}) or -1, got {axis}")
    while len(y) > 1 and axis + len(y) > len(x) and y[-1] == 1:
        y = y[:-1]
    if axis + len(y) > len(x):
        raise OpError(f"Y has {len(y)} dimensions, too many to lie over X {list(x)} from axis {axis}")
    return (1,) * axis + y + (1,) * (len(x) - axis - len(y))
