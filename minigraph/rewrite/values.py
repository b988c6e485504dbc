"""`Values` as users call them: wrong arguments end in errors of `minigraph.errors`, and failing edits leave nothing."""

from __future__ import annotations

from inspect import isfunction

from minigraph.passes import values
from minigraph.passes.value_table import ValueTable
from minigraph.support.public import public


class Values(values.Values):
    __doc__ = values.Values.__doc__


# The passes of executors do without, because they ask thousands of times in a compilation.
for _owner in (ValueTable, values.Values):
    for _name, _method in list(vars(_owner).items()):
        if isfunction(_method) and not _name.startswith("_"):
            setattr(Values, _name, public(_method))
