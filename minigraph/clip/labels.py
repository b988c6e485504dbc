"""Labels in the name scopes of operators: the user's own strategy that appended them."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from types import FunctionType
from typing import Any

from minigraph.ir import Operator
from minigraph.ir.name_scope import plain_scope

_LABEL = re.compile(r"/gradient_clip(?:_[0-9]+)?/(.+?)/(?:gradient_clip(?:_[0-9]+)?/.*)?$")


def label_of(op: Operator) -> str:
    """Return the label of an operator: a name and, after a colon, a description; empty if there is none."""
    found = _LABEL.search(op.namescope)
    return found[1] if found is not None else ""


def labelled(strategy: Any) -> AbstractContextManager[None]:
    """Label the operators made inside with the name and the description of a user's own strategy."""
    named: Any = strategy if isinstance(strategy, FunctionType) else type(strategy)
    # `explain` describes the project's own strategies by the types of their operators.
    if named.__module__.partition(".")[0] == "minigraph":
        return nullcontext()
    describe = getattr(strategy, "describe", None)
    said = " ".join(str(describe()).split()) if callable(describe) else ""
    return plain_scope(f"{named.__name__}: {said}" if said else named.__name__)
