"""Arrays of tensors: lists that a program grows while it runs, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.eager.guard import to_variable
from minigraph.errors import OpError, ProgramError, WrongTypeError, caller_site
from minigraph.ir import Variable, VarKind
from minigraph.ir.default_programs import is_imperative
from minigraph.layer_helper import LayerHelper, check_variable, constant, layer
from minigraph.layers.reshaping import stack
from minigraph.layers.tensor import concat
from minigraph.types import product

__all__ = ["array_length", "array_read", "array_write", "create_array", "tensor_array_to_tensor"]


@layer
def create_array(dtype: Any) -> Variable | list[Any]:
    """An array without elements; in the imperative mode a list.

    Parameters
    ----------
    dtype : str
        Element type of the tensors that it will hold.
    """
    if is_imperative():
        return []
    helper = LayerHelper("array")
    return helper.block.create_var(name=f"{helper.name}.out", dtype=dtype, type=VarKind.LOD_TENSOR_ARRAY)


@layer
def array_write(x: Variable, i: Variable, array: Variable | list[Any] | None = None) -> Variable | list[Any]:
    """Write a copy of `x` to the element `i` of `array`, which grows as far as needed.

    Parameters
    ----------
    x : Variable
    i : Variable, int64[1]
    array : Variable, optional
        Default: a new array.

    Returns
    -------
    Variable
        The array.

    Raises
    ------
    WrongTypeError
        If `array` is no array.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
    ...     zero, one = (fluid.layers.fill_constant([1], "int64", n) for n in (0, 1))
    ...     array = array_write(fluid.layers.ones([2], "float32"), one)
    ...     array_write(fluid.layers.zeros([3], "float32"), zero, array)
    ...     fluid.Executor().run(fetch_list=[array_read(array, one), array_length(array)])
    <Variable array_write_0.out: float32[-1] in an array>
    [array([1., 1.], dtype=float32), array([2])]
    """
    if check_variable(x, "array_write: x").kind is VarKind.LOD_TENSOR_ARRAY:
        raise WrongTypeError(f"array_write: x must be a tensor, got {x}")
    if is_imperative():
        return _write_to_list(x, i, [] if array is None else array)
    helper = LayerHelper("array_write")
    if array is None:
        array = helper.block.create_var(name=f"{helper.name}.out", dtype=x.dtype, type=VarKind.LOD_TENSOR_ARRAY)
    else:
        _check_array(array, "array_write")
    helper.append("write_to_array", {"X": x, "I": _check_index(i, "array_write")}, {"Out": array})
    return array


@layer
def array_read(array: Variable | list[Any], i: Variable) -> Variable:
    """The element `i`, int64[1], of `array`.

    Raises
    ------
    WrongTypeError
        If `array` is no array.
    OpError
        If no operator before has written to it.
    ExecutionError
        When run, if nothing was written there.
    """
    if is_imperative():
        found: Variable = _checked_list(array, "array_read")[_number(i, "array_read")]
        return found
    # The type of the result is that of the elements, which the first write tells.
    if not _check_array(array, "array_read").shape:
        raise OpError(
            f"array_read: nothing has written to the array {array} by then", site=caller_site(),
            hint="Write an element of the type that it is to hold before: layers.array_write(x, i, array).",
        )  # fmt: skip
    return LayerHelper("array_read").emit("read_from_array", X=array, I=_check_index(i, "array_read"))


@layer
def array_length(array: Variable | list[Any]) -> Variable | int:
    """Number of elements of `array`, int64[1]; in the imperative mode an int."""
    if is_imperative():
        return len(_checked_list(array, "array_length"))
    return constant(LayerHelper("array_length").emit("lod_array_length", X=_check_array(array, "array_length")))


@layer
def tensor_array_to_tensor(
    input: Variable | list[Any], axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """The elements of an array joined along `axis`, or with `use_stack` along a new one.

    Returns
    -------
    tuple of Variable
        The tensor, and the length of each element along `axis`, int32, 1 where it has no such dimension.
    """
    if is_imperative():
        return _join_list(_checked_list(input, "tensor_array_to_tensor"), axis, use_stack)
    helper = LayerHelper("tensor_array_to_tensor", name)
    out, lengths = helper.temporary(), helper.temporary(dtype="int32")
    _check_array(input, "tensor_array_to_tensor")
    attrs = {"axis": axis, "use_stack": use_stack}
    helper.append("tensor_array_to_tensor", {"X": input}, {"Out": out, "OutIndex": lengths}, attrs)
    return out, lengths


def _join_list(elements: list[Any], axis: int, use_stack: bool) -> tuple[Variable, Variable]:
    joined = stack(elements, axis) if use_stack else concat(elements, axis)
    # Of a new dimension each element takes 1.
    at = axis % (len(elements[0].shape) + use_stack)
    lengths = [each.shape[at] if at < len(each.shape) else 1 for each in elements]
    return joined, to_variable(np.array(lengths, "int32"))


def _write_to_list(x: Variable, i: Variable, array: Any) -> list[Any]:
    elements, at = _checked_list(array, "array_write"), _number(i, "array_write")
    # As in fluid's imperative mode; a program fills the places in between.
    if not 0 <= at <= len(elements):
        raise ProgramError(f"array_write: {at} is beyond the end of a list of {len(elements)} elements")
    elements[at : at + 1] = [x]
    return elements


def _number(i: Any, what: str) -> int:
    return int(_check_index(i, what).numpy().item())


def _checked_list(array: Any, what: str) -> list[Any]:
    if not isinstance(array, list):
        raise WrongTypeError(f"{what}: in the imperative mode an array is a list, got {type(array).__name__}")
    return array


def _check_array(array: Any, what: str) -> Variable:
    if not isinstance(array, Variable) or array.kind is not VarKind.LOD_TENSOR_ARRAY:
        raise WrongTypeError(f"{what}: {array!r:.60} is no array", hint="Make one with layers.create_array.")
    return array


def _check_index(i: Any, what: str) -> Variable:
    check_variable(i, f"{what}: i")
    if i.dtype.numpy.kind != "i" or product(i.shape or ()) not in (1, -1):
        raise WrongTypeError(f"{what}: i must be one integer, int64[1], got {i}")
    return i
