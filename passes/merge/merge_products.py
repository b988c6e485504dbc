"""Merge the products of many matrices with one, as of the inputs of all steps with a weight."""

from __future__ import annotations

from minigraph import unique_name
from minigraph.ir import Operator, Program
from minigraph.passes.parts import Parts
from minigraph.passes.rewriting import MergeSmall, insert_for, is_matrix, is_read_by_many
from minigraph.passes.values import Value


class MergeProducts(MergeSmall):
    """Replace products ``X_t @ W`` with one W by one product, where every X_t is known before the first of them.

    The rows of all X_t are joined, and those of the product split. Neither costs anything where an executor lets the
    parts lie side by side. Fewer products than `least` are left alone, and those of an X_t with more than
    `most_elements` elements.

    Law: every product is the same up to rounding: a library of matrix products may add in another order for another
    number of rows. Each element differs by at most ``2 k eps`` times that of ``|X_t| @ |W|``, with k columns of X_t.
    """

    def apply(self, program: Program) -> bool:
        if not is_read_by_many(program, "mul", self.least):
            return False
        values = Parts(program)
        groups: list[list[Operator]] = []
        latest: dict[Value, list[Operator]] = {}
        for op in program.global_block().ops.of_type("mul"):
            if self._is_small(op, values):
                weight = values.input(op, "Y")
                group = latest.get(weight)
                # A product whose input is not known at the first one begins a new group.
                if group is None or not _can_be_done_at(group[0], op, values):
                    group = latest[weight] = []
                    groups.append(group)
                group.append(op)
        several = [group for group in groups if len(group) >= self.least]
        for group in several:
            _merge(group, values)
        return bool(several)

    def _is_small(self, op: Operator, values: Parts) -> bool:
        x, y = op.inputs["X"][0], op.inputs["Y"][0]
        return is_matrix(values.block, x, self.most_elements) and is_matrix(values.block, y)


def _can_be_done_at(first: Operator, op: Operator, values: Parts) -> bool:
    """Whether the inputs of `op` are known at `first`, and nothing uses the name of its result before `op`."""
    is_known = values.can_join(values.input(op, "X"), first) and values.is_there(values.input(op, "Y"), first)
    # The result comes earlier than before: its name must not mean something else there.
    return is_known and values.is_first(values.output(op, "Out"))


def _merge(ops: list[Operator], values: Parts) -> None:
    first = ops[0]
    block, outs = first.block, [op.outputs["Out"][0] for op in ops]
    rows = [(block.vars[op.inputs["X"][0]].shape or ())[0] for op in ops]
    joined = values.join_rows(first, [values.input(op, "X") for op in ops], outs[0])
    product = unique_name.generate(f"{outs[0]}@MERGED")
    insert_for(first, "mul", {"X": joined, "Y": first.inputs["Y"]}, {"Out": product}, {})
    insert_for(first, "split", {"X": product}, {"Out": outs}, {"axis": 0, "sections": rows})
    for op in ops:
        block.remove(op)
