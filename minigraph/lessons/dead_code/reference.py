"""Lesson 4: remove the operators that nobody needs."""

from minigraph.ir import Operator, Program
from minigraph.passes.rewriting import is_random
from minigraph.rewrite import Pass


class RemoveDead(Pass):
    """Remove operators on which neither fetched nor persistable variables depend.

    Law: fetched and persistable variables keep their values. Operators that draw random numbers stay, because those
    after them would draw other ones.
    """

    def apply(self, program: Program) -> bool:
        if program.roots is None:  # a later run may fetch anything
            return False
        block = program.global_block()
        wanted, dead = set(program.roots), list[Operator]()
        for op in reversed(list(block.ops)):
            written = op.output_arg_names
            is_kept = any(block.var(name).persistable for name in written if block.has_var(name))
            if not (is_kept or is_random(op.type) or wanted.intersection(written)):
                dead.append(op)
                continue
            # First what it writes, then what it reads: an operator may read the old value of a name that it writes.
            wanted.difference_update(written)
            wanted.update(op.input_arg_names)
        for op in dead:
            block.remove(op)
        return bool(dead)
