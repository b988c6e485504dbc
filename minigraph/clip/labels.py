"""Labels by which operators show the strategy of a user's own that appended them: a part of their name scope."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from types import FunctionType
from typing import Any

from minigraph.ir import Operator
from minigraph.ir.name_scope import plain_scope

_LABEL = re.compile(r"/gradient_clip(?:_[0-9]+)?/(.+?)/(?:gradient_clip(?:_[0-9]+)?/.*)?$")


def label_of(op: Operator) -> str:
    """Label of an operator by `labelled`: a name and, behind a colon, a description; empty if there is none."""
    found = _LABEL.search(op.namescope)
    return found[1] if found is not None else ""


def labelled(strategy: Any) -> AbstractContextManager[None]:
    """Inside, operators get the name of a user's own strategy, and what it says by ``describe``."""
    named: Any = strategy if isinstance(strategy, FunctionType) else type(strategy)
    if named.__module__.partition(".")[0] == "minigraph":
        return nullcontext()
    describe = getattr(strategy, "describe", None)
    said = " ".join(str(describe()).split()) if callable(describe) else ""
    return plain_scope(f"{named.__name__}: {said}" if said else named.__name__)
