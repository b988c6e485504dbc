"""Fluid's path to `minigraph.reader.feeder`, and the checks of arguments that layers of users' own call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.eager.guard import enabled
from minigraph.errors import WrongTypeError
from minigraph.layer_helper import check_variable
from minigraph.reader.feeder import DataFeeder
from minigraph.support.public import public, refuse_unknown_names
from minigraph.types import as_dtype

__all__ = ["DataFeeder", "check_dtype", "check_type", "check_variable_and_dtype", "convert_dtype"]


@public
def convert_dtype(dtype: Any) -> str:
    """The name of an element type, such as ``float32``."""
    return as_dtype(dtype).text


@public
def check_type(
    input: Any, input_name: str, expected_type: type | tuple[type, ...], op_name: str, extra_message: str = ""
) -> None:
    """Raise unless `input` is of a type; the imperative mode checks nothing, as in fluid.

    Raises
    ------
    WrongTypeError
        If it is of another type.
    """
    if not enabled() and not isinstance(input, expected_type):
        types = expected_type if isinstance(expected_type, tuple) else (expected_type,)
        raise WrongTypeError(
            f"{op_name}: {input_name} must be {' or '.join(each.__name__ for each in types)},"
            f" got {type(input).__name__}: {input!r:.60}. {extra_message}".removesuffix(". ")
        )


@public
def check_dtype(
    input_dtype: Any, input_name: str, expected_dtype: Sequence[str], op_name: str, extra_message: str = ""
) -> None:
    """Raise unless an element type is one of those given; the imperative mode checks nothing, as in fluid.

    Raises
    ------
    WrongTypeError
        If it is another one.
    """
    if not enabled() and convert_dtype(input_dtype) not in expected_dtype:
        raise WrongTypeError(
            f"{op_name}: {input_name} must hold {' or '.join(expected_dtype)},"
            f" got {convert_dtype(input_dtype)}. {extra_message}".removesuffix(". "),
            hint="Convert it with layers.cast.",
        )


@public
def check_variable_and_dtype(
    input: Any, input_name: str, expected_dtype: Sequence[str], op_name: str, extra_message: str = ""
) -> None:
    """Raise unless `input` is a variable with one of these element types.

    Raises
    ------
    WrongTypeError
        Otherwise.
    """
    if not enabled():
        check_dtype(check_variable(input, f"{op_name}: {input_name}").dtype, input_name, expected_dtype, op_name,
                    extra_message)  # fmt: skip


refuse_unknown_names(__name__)
