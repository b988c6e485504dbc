"""`Values` as users call them: wrong arguments end in errors of `minigraph.errors`, and failing edits leave nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any

from minigraph.errors import WrongTypeError
from minigraph.passes import values
from minigraph.passes.value_table import Value, ValueTable
from minigraph.support.public import public


class Values(values.Values):
    __doc__ = values.Values.__doc__


def _of_values(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method refuse what is no `Value`, such as a name, about which nothing would be known."""
    names = method.__code__.co_varnames[1 : method.__code__.co_argcount]
    places = [(place, name) for place, name in enumerate(names) if method.__annotations__.get(name) == "Value"]

    @wraps(method)
    def asked(self: Values, *args: Any, **keywords: Any) -> Any:
        for place, name in places:
            given = args[place] if place < len(args) else keywords.get(name, _ANY)
            if not isinstance(given, Value):
                raise WrongTypeError(
                    f"Values.{method.__name__} takes a Value as {name}, got {given!r:.60}",
                    hint='Ask for one: values.input(op, "X"), or values.output(op, "Out").',
                )
        return method(self, *args, **keywords)

    return asked if places else method


_ANY = Value("", 0)
"""Stands for an argument that is left out, which the call tells."""


# The passes of executors do without, because they ask thousands of times in a compilation.
for _owner in (ValueTable, values.Values):
    for _name, _method in list(vars(_owner).items()):
        if isfunction(_method) and not _name.startswith("_"):
            setattr(Values, _name, public(_of_values(_method)))
