"""Lesson 5: compute equal values once."""

from collections.abc import Hashable

from minigraph.ir import Operator, Program
from minigraph.passes.rewriting import is_random
from minigraph.rewrite import Pass, RewriteError, Values


class ShareEqual(Pass):
    """Let readers of an operator's result read that of an earlier operator that computes the same.

    Law: every value keeps its bits. Operators that draw random numbers stay, and so does a result that is fetched or
    persistable, or that a reader cannot read under the earlier name.
    """

    def apply(self, program: Program) -> bool:
        values, changed = Values(program), False
        first_of: dict[Hashable, Operator] = {}
        for op in list(program.global_block().ops):
            if is_random(op.type) or len(op.output_arg_names) != 1:
                continue
            first = first_of.setdefault(_key(op, values), op)
            result = values.written(op.output_arg_names[0], op)
            if first is op or values.is_live_out(result):
                continue
            try:
                values.replace_all_uses(result, values.written(first.output_arg_names[0], first))
            except RewriteError:  # a reader for which the earlier name means another value, or a sub-block
                continue
            values.erase(op)
            changed = True
        return changed


def _key(op: Operator, values: Values) -> Hashable:
    """Return a key that is equal for operators that compute the same: it has values, not names."""
    inputs = [(slot, *(values.read(name, op) for name in names)) for slot, names in op.inputs.items()]
    return op.type, tuple(inputs), repr(sorted(op.attrs.items()))
