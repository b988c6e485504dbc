"""The notation of a program's text: names, values, attributes and fields, as `minigraph.ir.text` describes it."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minigraph.ir.role import Role
from minigraph.opdef import Attr, Slot
from minigraph.opdef.attr_types import DTYPE_ATTRS
from minigraph.types import DType, VarKind

PLAIN_NAME = r"[\w.@/$+-]+"
"""A name that needs no quotes, as a regular expression."""

_VARIABLE = {
    "kind": VarKind.LOD_TENSOR, "persistable": False, "stop_gradient": False, "is_data": False,
    "need_check_feed": False, "error_clip": None, "lod_level": 0,
}  # fmt: skip
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "param": {
        **_VARIABLE, "persistable": True, "trainable": True, "optimize_attr": {"learning_rate": 1.0},
        "regularizer": None, "do_model_average": True, "need_clip": True, "gradient_clip": None,
        "is_distributed": False,
    },
    "persist": {**_VARIABLE, "persistable": True},
    "data": {**_VARIABLE, "is_data": True, "stop_gradient": True},
    "var": _VARIABLE,
}  # fmt: skip
"""Kind of declaration -> field -> the value that goes without saying."""

PROGRAM_DEFAULTS = {"random_seed": 0, "backward_passes": 0}

_PHASES = Role.BACKWARD | Role.OPTIMIZE | Role.RPC | Role.DIST | Role.LR_SCHED
_is_plain = re.compile(PLAIN_NAME).fullmatch


def fields_text(thing: Any, defaults: Mapping[str, Any]) -> dict[str, str]:
    """The fields that differ from `defaults`, as text."""
    values = {name: getattr(thing, name) for name in defaults}
    return {name: value_text(value) for name, value in values.items() if value != defaults[name]}


def braces(fields: Mapping[str, str]) -> str:
    return f" {{{', '.join(f'{name}={text}' for name, text in fields.items())}}}" if fields else ""


def names_text(names: Iterable[str], slot: Slot | None, count: int) -> str:
    joined = ", ".join(names)
    return f"[{joined}]" if count != 1 or (slot is not None and slot.duplicable) else joined


def name_text(name: str) -> str:
    """`name` as it stands in text: plain, or in double quotes where it has other characters.

    Examples
    --------
    >>> print(name_text("fc_0.w_0@GRAD"), name_text("two words"))
    fc_0.w_0@GRAD "two words"
    """
    return name if _is_plain(name) else quoted(name, '"')


def value_text(value: Any) -> str:
    """A field's value in the notation of Python; ``<...>`` where it has no text that could be parsed again.

    Examples
    --------
    >>> print(value_text({"rate": 0.5}), value_text([True, None]), value_text(len))
    {'rate': 0.5} [True, None] <builtin_function_or_method len>
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return quoted(value, "'")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(value_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{value_text(key)}: {value_text(item)}' for key, item in value.items())}}}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _constructor_text(value)
    return _opaque_text(value)


def _constructor_text(strategy: Any) -> str:
    """A call that makes an equal object: with the fields that have no default or differ from it."""
    given = []
    for field in dataclasses.fields(strategy):
        value = getattr(strategy, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if field.init and (default is dataclasses.MISSING or value != default):
            given.append(f"{field.name}={value_text(value)}")
    return f"{type(strategy).__name__}({', '.join(given)})"


def _opaque_text(value: Any) -> str:
    words = [type(value).__name__, getattr(value, "__name__", None) or getattr(value, "name", "")]
    return f"<{' '.join(re.sub('[^A-Za-z0-9_.]', '', str(word)) for word in words if word)}>"


def attr_text(attr: Attr, value: Any) -> str:
    if attr.type == "int" and attr.name in DTYPE_ATTRS and value in DType._value2member_map_:
        return str(DType(value))
    if attr.type == "float":
        return _float32_text(value)
    if attr.type == "list[float]" and isinstance(value, list | tuple):
        return f"[{', '.join(map(_float32_text, value))}]"
    return value_text(list(value) if isinstance(value, tuple) else value)


def _float32_text(value: float) -> str:
    """The text of a float attribute with the fewest digits: its value is a float32, to which parsing rounds again."""
    if not hasattr(value, "__float__"):  # which the verifier refuses
        return value_text(value)
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if ctypes.c_float(short).value == value:
            return repr(short)
    return repr(value)


def role_text(role: Role) -> str:
    """Text of a role, such as ``'forward|loss'``; the number where a bit has no name."""
    parts = [part for part in Role if role & part]
    if sum(parts) != role:
        return str(int(role))
    words = [str(part.name).lower() for part in parts]
    return f"'{'|'.join(words if role & _PHASES else ['forward', *words])}'"


def quoted(text: str, mark: str) -> str:
    """A Python string literal between `mark`; what is not printable is escaped, so it has no line break."""
    return mark + "".join(_escaped(c, mark) for c in text) + mark


def _escaped(c: str, mark: str) -> str:
    if c in ("\\", mark):
        return "\\" + c
    return c if c.isprintable() else c.encode("unicode_escape").decode("ascii")
