"""Open sizes: dimensions that differ from feed to feed, and what was decided by them.

An `OpenSize` stands for a dimension that a program leaves open, such as the batch, or for a multiple or product of such
dimensions. It has the value that was fed. A question about it, such as whether it is 1 or more than 1,024, is answered
by this value, and the values with the same answer are noted. So whatever was computed from open sizes holds for all
other values that the notes allow. Where the number itself is taken, it holds for this value alone. An open size is no
`int` and has no hash, so that no question goes unnoted: C code and dictionaries would not ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any


class _Product:
    """A product of open dimensions, and the values for which every question about it has the same answer."""

    __slots__ = ("excluded", "high", "low", "numbers", "value")

    def __init__(self, numbers: tuple[int, ...], value: int) -> None:
        self.numbers = numbers
        """Numbers of the dimensions, in order."""
        self.value = value
        self.low: float = 1
        self.high: float = inf
        self.excluded: set[int] = set()

    def at(self, values: Sequence[int]) -> int:
        """The product where the dimensions have these values."""
        return prod([values[i] for i in self.numbers])

    def allows(self, value: int) -> bool:
        return self.low <= value <= self.high and value not in self.excluded

    def pin(self) -> int:
        """Allow the present value only, and return it."""
        self.low = self.high = self.value
        return self.value

    def is_below(self, bound: int) -> bool:
        if self.value < bound:
            self.high = min(self.high, bound - 1)
        else:
            self.low = max(self.low, bound)
        return self.value < bound

    def is_equal(self, value: int) -> bool:
        if self.value != value:
            self.excluded.add(value)
            return False
        self.pin()
        return True


class OpenDimensions:
    """The dimensions that a program leaves open, with the values that were fed, each at least 1.

    Examples
    --------
    >>> dimensions = OpenDimensions([32])
    >>> batch = dimensions.size(0)
    >>> (batch * 10 > 200), batch == 64, -1 in (batch, 10)
    (True, False, False)
    >>> [size for size in (8, 20, 21, 64, 128) if dimensions.allow([size])]
    [21, 128]
    """

    def __init__(self, values: Sequence[int]) -> None:
        self._values = values
        self._products: dict[tuple[int, ...], _Product] = {}
        self.cache: dict[Any, Any] = {}
        """Results for such sizes, by keys that have each size's `key`."""
        self._sizes: dict[tuple[int, tuple[int, ...]], OpenSize] = {}

    def size(self, number: int) -> OpenSize:
        """The size of one dimension."""
        return self._size(1, (number,))

    def allow(self, values: Sequence[int]) -> bool:
        """Whether what was decided holds for these values of the dimensions."""
        return all([each.allows(each.at(values)) for each in self._products.values()])

    def _size(self, factor: int, numbers: tuple[int, ...]) -> OpenSize:
        # There is one object for each size, so that equal shapes mostly hold the same objects.
        found = self._sizes.get((factor, numbers))
        if found is None:
            base = self._products.get(numbers)
            if base is None:
                value = prod([self._values[i] for i in numbers])
                base = self._products[numbers] = _Product(numbers, value)
            found = self._sizes[factor, numbers] = OpenSize(self, factor, base)
        return found


class OpenSize:
    """`factor` times a product of open dimensions."""

    __slots__ = ("_base", "_factor", "dimensions", "key")

    __hash__ = None  # type: ignore[assignment]  # says nothing of other values

    def __init__(self, dimensions: OpenDimensions, factor: int, base: _Product) -> None:
        self.dimensions, self._factor, self._base = dimensions, factor, base
        self.key = factor, base.numbers

    def at(self, values: Sequence[int]) -> int:
        """The size where the dimensions have these values."""
        return self._factor * self._base.at(values)

    def __index__(self) -> int:
        return self._factor * self._base.pin()

    __int__ = __index__

    def __repr__(self) -> str:
        return str(self._factor * self._base.value)  # for messages, which are not asked for twice

    def __bool__(self) -> bool:
        return True

    def _apart(self, other: Any) -> tuple[Any, Any]:
        """Divide two sizes by the open dimensions that they share; both are numbers if each has others."""
        if type(other) is not OpenSize:
            return self.__index__(), other
        mine, others = list(self._base.numbers), list(other._base.numbers)
        for number in self._base.numbers:
            if number in others:
                mine.remove(number)
                others.remove(number)
        if mine and others:
            return self.__index__(), other.__index__()
        return self._times(self._factor, mine), self._times(other._factor, others)

    # Comparisons

    def __eq__(self, other: object) -> bool:
        if type(other) is int:
            # A product is at least 1.
            return other >= self._factor and not other % self._factor and self._base.is_equal(other // self._factor)
        left, right = self._apart(other)
        return bool(left == right)

    def __lt__(self, other: Any) -> bool:
        if type(other) is int:
            return self._base.is_below(-(-other // self._factor))
        left, right = self._apart(other)
        return bool(left < right)

    def __le__(self, other: Any) -> bool:
        if type(other) is int:
            return self._base.is_below(other // self._factor + 1)
        left, right = self._apart(other)
        return bool(left <= right)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    # Arithmetic: what is no multiple of open dimensions is a number

    def __mul__(self, other: Any) -> Any:
        if type(other) is int and other >= 0:
            return self._times(self._factor * other, self._base.numbers)
        if type(other) is OpenSize:
            return self._times(self._factor * other._factor, (*self._base.numbers, *other._base.numbers))
        return self.__index__() * other

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        if type(other) is OpenSize and other._base is self._base:
            return self._times(self._factor + other._factor, self._base.numbers)
        return self.__index__() + _number(other) if other else self

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is OpenSize and other._base is self._base and other._factor <= self._factor:
            return self._times(self._factor - other._factor, self._base.numbers)
        return self.__index__() - _number(other) if other else self

    def __rsub__(self, other: Any) -> Any:
        return other - self.__index__()

    def __floordiv__(self, other: Any) -> Any:
        left, right = (self, other) if type(other) is int else self._apart(other)
        if type(left) is OpenSize and type(right) is int and right > 0 and not left._factor % right:
            return self._times(left._factor // right, left._base.numbers)
        return _number(left) // _number(right)

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self.__index__()

    def __mod__(self, other: Any) -> Any:
        left, right = (self, other) if type(other) is int else self._apart(other)
        if type(left) is OpenSize and type(right) is int and right > 0 and not left._factor % right:
            return 0
        return self.__index__() % _number(other)

    def __rmod__(self, other: Any) -> Any:
        return other % self.__index__()

    def __truediv__(self, other: Any) -> Any:
        return self.__index__() / _number(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.__index__()

    def __neg__(self) -> int:
        return -self.__index__()

    def _times(self, factor: int, numbers: Sequence[int]) -> Any:
        """A multiple of open dimensions; a number if there are none."""
        return self.dimensions._size(factor, tuple(sorted(numbers))) if factor and numbers else factor


def is_closed(shape: Sequence[Any]) -> bool:
    """Whether a shape has no open sizes."""
    return OpenSize not in map(type, shape)


def _number(value: Any) -> Any:
    return value.__index__() if type(value) is OpenSize else value


def closed(shape: tuple[Any, ...], values: Sequence[int]) -> tuple[int, ...]:
    """A shape with numbers for its open sizes, where the open dimensions have these values."""
    return tuple([size.at(values) if type(size) is OpenSize else size for size in shape])


def are_equal(shape: Sequence[int] | None, other: Sequence[int] | None) -> bool:
    """Whether two shapes are equal; a size is asked for only where the ranks are equal."""
    return shape is other or (shape is not None and other is not None and len(shape) == len(other) and shape == other)


def as_attr(shape: Sequence[Any]) -> list[int]:
    """A shape as the attribute of a reshape: -1 for its open size, if that is the only one and no size is 0."""
    is_open = [type(size) is OpenSize for size in shape]
    if is_open.count(True) != 1 or 0 in [size for size, each in zip(shape, is_open, strict=True) if not each]:
        return [int(size) for size in shape]
    return [-1 if each else size for size, each in zip(shape, is_open, strict=True)]
