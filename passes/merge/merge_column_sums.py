"""Merge the column sums of the gradient of a bias that is used many times, as by the steps of a network."""

from __future__ import annotations

from minigraph.ir import Operator, Program
from minigraph.passes.parts import Parts
from minigraph.passes.rewriting import MergeSmall, is_matrix, parts_of, replace_parts, sums_of


class MergeColumnSums(MergeSmall):
    """Replace a sum of column sums, the parts of a bias's gradient, by one column sum over all their rows.

    The parts are what ``elementwise_add_grad`` gives for a vector that was added to the rows of a matrix. Fewer than
    `least` are left alone, and gradients of more than `most_elements` elements.

    Law: the sum is the same up to rounding, both ways adding the same rows in another order: each element differs by at
    most ``2 (n + T) eps`` times the sum of magnitudes, for T parts with n rows in all. Nothing else changes.
    """

    def apply(self, program: Program) -> bool:
        totals = sums_of(program, "elementwise_add_grad", self.least)
        if not totals:
            return False
        values = Parts(program)
        changed = False
        for op in totals:
            found = parts_of(op, "elementwise_add_grad", values)
            parts = {name: grad for name, grad in found if self._sums_columns_at(op, name, grad, values)}
            if len(parts) >= self.least:
                _merge(op, parts, values)
                changed = True
        return changed

    def _sums_columns_at(self, total: Operator, name: str, grad: Operator, values: Parts) -> bool:
        """Whether `grad` sums the columns of a small matrix to `name`, and that matrix is still there at `total`."""
        d_out = values.input(grad, "Out@GRAD")
        columns, shape = (values.block.vars[each].shape or () for each in (name, d_out[0]))
        # The bias was broadcast to the rows, so that its gradient sums over them.
        is_over_rows = len(columns) == 1 and shape[1:] == columns and grad.attr("axis") in (-1, 1)
        is_small = is_matrix(values.block, d_out[0], self.most_elements)
        return is_over_rows and is_small and values.can_join(d_out, total)


def _merge(total: Operator, parts: dict[str, Operator], values: Parts) -> None:
    rows = [values.input(grad, "Out@GRAD") for grad in parts.values()]
    joined = values.join_rows(total, rows, total.outputs["Out"][0])
    replace_parts(total, parts, "reduce_sum", {"X": joined}, "Out", {"dim": [0]})
