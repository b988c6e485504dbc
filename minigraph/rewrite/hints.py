"""Hints from the code of a pass: operator types, layers and numbers that it names."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any

from minigraph import layers
from minigraph.opdef import all_definitions
from minigraph.passes.base import Pipeline, Rewrite
from minigraph.passes.rules.rule import Rule
from minigraph.rewrite.planting import plants_of
from minigraph.rewrite.random_programs.drawing import Hints, Pick
from minigraph.types import DType

_LARGEST = 100.0
"""Maximum size of a number that is taken for the value of an attribute."""

_NOT_WRITTEN = frozenset({"__doc__", "__firstlineno__", "__static_attributes__", "__annotate_func__"})
"""Members of a class that say nothing of what it does. Python before 3.13 knows only the first."""

_NOT_GIVEN = frozenset({"site", "_by_attrs"})
"""Attributes of a rule that say where it stands, and what it was used for."""

_OF_PYTHON = frozenset({"abc", "builtins", "dataclasses", "enum", "functools", "typing"})
"""Modules of Python whose code becomes part of classes: their words are not those of a pass."""

_OF_TRAINING = frozenset({"BACKWARD", "OPTIMIZE", "CLIP", "REGULARIZE", "role_vars", "Param", "ParamOut", "Grad"})
"""Words in the code of a pass that is about programs that train."""


_SELDOM = (DType.FP16, DType.INT16, DType.INT8, DType.UINT8)
_DTYPES = {name: dtype for dtype in _SELDOM for name in (dtype.name, dtype.text)}
"""Names of the element types that random programs seldom have."""


def hints_of(rewrite: Any, plants: Iterable[Callable[[Pick], Any]] = ()) -> Hints:
    """Read which operators, attributes and element types a pass names: in its code, its module, and its fields."""
    # The pattern names the subject of a rule; the code that all rules share would name a lot besides.
    types = {each.type for each in all_definitions()}
    found: set[Any] = set()
    seen: dict[int, Any] = {}
    for each in rewrite.passes if isinstance(rewrite, Pipeline) else (rewrite,):
        found.update(_words(each, seen))
    attrs = {name for each in all_definitions() for name in each.attrs}
    texts = sorted(word for word in found if isinstance(word, str))
    numbers = sorted({float(word) for word in found if isinstance(word, int | float) and abs(word) <= _LARGEST})
    return Hints(
        types=tuple(text for text in texts if text in types),
        numbers=tuple(numbers),
        attrs=tuple(text for text in texts if text in attrs),
        dtypes=tuple(sorted({_DTYPES[text] for text in texts if text in _DTYPES})),
        trains=bool(found & _OF_TRAINING),
        plants=(*plants, *plants_of(rewrite)),
    )


def _words(value: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """Strings and numbers in a value, in the code of functions and in what they name in their modules."""
    if isinstance(value, str | int | float):
        yield value
        return
    if id(value) in seen:
        return
    seen[id(value)] = value  # kept, so that no later value gets its id
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _words(each, seen)
    elif isinstance(value, FunctionType):
        yield from () if _is_of_python(value) else _of_function(value, seen)
    elif isinstance(value, CodeType):
        yield from _words(value.co_consts, seen)
        # Since Python 3.14 small integers stand in instructions, not among the constants.
        yield from (each.argval for each in dis.get_instructions(value) if each.opname == "LOAD_SMALL_INT")
        yield from (_OF_TRAINING | _DTYPES.keys()).intersection(value.co_names)
        if "layers" in value.co_names:
            yield from (name for name in value.co_names if hasattr(layers, name))
    elif isinstance(value, property | cached_property | classmethod | staticmethod):
        yield from _words(_wrapped(value), seen)
    elif inspect.isclass(value):
        yield from _of_class(value, seen)
    elif isinstance(value, Rewrite) or type(value).__module__ == getattr(value, "__module__", ""):
        yield from _words(list(_given(value)), seen)
        yield from _words(type(value), seen)


def _wrapped(member: Any) -> Any:
    """The function that a property or a method of a class is made of."""
    if isinstance(member, property):
        return member.fget
    return member.func if isinstance(member, cached_property) else member.__func__


def _given(value: Any) -> Iterator[Any]:
    """The attributes of an object, but for its place in the code and for what it has computed of the others.

    With these the programs that are drawn for a pass would depend on whether it was used before.
    """
    attributes: dict[str, Any] = getattr(value, "__dict__", {})
    for name, each in attributes.items():
        if name not in _NOT_GIVEN and not isinstance(getattr(type(value), name, None), cached_property):
            yield each


def _is_of_python(value: type | FunctionType) -> bool:
    return value.__module__ in _OF_PYTHON


def _of_class(kind: type, seen: dict[int, Any]) -> Iterator[Any]:
    for each in kind.__mro__:
        if not _is_of_python(each) and each.__module__ not in (Rewrite.__module__, Rule.__module__):
            yield from _words([part for name, part in vars(each).items() if name not in _NOT_WRITTEN], seen)


def _of_function(function: FunctionType, seen: dict[int, Any]) -> Iterator[Any]:
    yield from _words(function.__code__, seen)
    for name in dict.fromkeys(_names(function.__code__)):
        known = function.__globals__.get(name)
        is_own = getattr(known, "__module__", None) == function.__module__
        if is_own or isinstance(known, str | list | tuple | set | frozenset | dict):
            yield from _words(known, seen)
    for cell in function.__closure__ or ():
        yield from _words(cell.cell_contents, seen)


def _names(code: CodeType) -> Iterator[str]:
    """Names in the code of a function and of its comprehensions, whose code is part of it since Python 3.12 only."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)
