"""What an exchange of operators keeps: readers of a result that is another value now, and the order of random draws."""

from __future__ import annotations

from collections.abc import Sequence

from minigraph.errors import RewriteError, RuleError
from minigraph.ir import Operator
from minigraph.passes.rewriting import is_random
from minigraph.passes.values import Value, Values


def read_instead(old: Value, new: Value, values: Values) -> bool:
    """Let all that read `old` read `new`; False if some cannot, or if `old` is read outside of the block."""
    if values.is_live_out(old):
        return False
    try:
        values.replace_all_uses(old, new)
    except RewriteError:
        return False
    return True


def require_same_draws(old: Sequence[Operator], new: Sequence[Operator]) -> None:
    """Raise if random numbers would no longer be drawn, or others: operators behind would draw other ones."""
    before = sorted(op.type for op in old if is_random(op.type))
    after = sorted(op.type for op in new if is_random(op.type))
    if before != after:
        raise RuleError(f"it draws random numbers by {after or 'no operator'} in place of {before or 'none'}")
