"""Lesson 2: remove operators that multiply by 1."""

from minigraph.ir import Operator, Program
from minigraph.rewrite import Pass, RewriteError, Values


class RemoveScaleByOne(Pass):
    """Let readers of ``scale(x)`` by 1 without a bias read x itself.

    Law: every value keeps its bits. What is fetched or persistable keeps its operator, and so does a value that a
    reader cannot read under the name of x.
    """

    def apply(self, program: Program) -> bool:
        values, changed = Values(program), False
        for op in list(program.global_block().ops):
            if not _multiplies_by_one(op) or values.is_live_out(values.output(op, "Out")):
                continue
            try:
                values.replace_all_uses(values.output(op, "Out"), values.input(op, "X"))
            except RewriteError:  # a reader for which that name means another value, or a sub-block
                continue
            values.erase(op)
            changed = True
        if changed:  # what is gone may have freed a name that the readers of another value need
            self.apply(program)
        return changed


def _multiplies_by_one(op: Operator) -> bool:
    return (
        op.type == "scale" and op.attr("scale") == 1.0 and op.attr("bias") == 0.0 and not op.inputs.get("ScaleTensor")
    )
