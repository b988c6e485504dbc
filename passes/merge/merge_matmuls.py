"""Merge the products in the gradient of a weight that is used many times, as by the steps of a network."""

from __future__ import annotations

from math import inf

from minigraph.ir import Operator, Program
from minigraph.passes.parts import Parts
from minigraph.passes.rewriting import MergeSmall, is_matrix, parts_of, replace_parts, sums_of
from minigraph.passes.values import Value


class MergeMatmuls(MergeSmall):
    """Replace a sum of products ``X_t' @ D_t``, the parts of a weight's gradient, by one product.

    The rows of all X_t and of all D_t are joined; ``mul_grad`` of both is the sum of the products, in one call and
    without a matrix for each. Joining costs nothing where an executor lets them lie side by side. Fewer parts than
    `least` are left alone, and parts with more than `most_elements` elements.

    Law: the sum is the same up to rounding, both ways adding the same products in another order: each element differs
    by at most ``2 (n + T) eps`` times ``sum_t |X_t|' @ |D_t|`` for T parts with n rows in all. Nothing else changes.

    The parts' operators stay where they also compute the gradient of X_t. All X_t and D_t are kept until the sum is
    made.
    """

    def apply(self, program: Program) -> bool:
        totals = sums_of(program, "mul_grad", self.least)
        if not totals:
            return False
        values = Parts(program)
        changed = False
        for op in totals:
            for parts in self._groups(op, values):
                _merge(op, parts, values)
                changed = True
        return changed

    def _groups(self, total: Operator, values: Parts) -> list[dict[str, Operator]]:
        """Group the parts of a sum, by name and in forward order, by the weight whose gradients they are."""
        groups: dict[Value, dict[str, Operator]] = {}
        for name, grad in parts_of(total, "mul_grad", values):
            if self._can_be_done_at(total, grad, values):
                # By value, not by name: a weight that is written in between is another one.
                groups.setdefault(values.input(grad, "Y"), {})[name] = grad
        return [group for group in groups.values() if len(group) >= self.least]

    def _can_be_done_at(self, total: Operator, grad: Operator, values: Parts) -> bool:
        """Whether `grad` reads small matrices, and a weight of any size, that are still there at `total`."""
        given = {slot: values.input(grad, slot) for slot in ("X", "Y", "Out@GRAD")}
        are_small = all(
            # The weight is only read for its shape.
            is_matrix(values.block, name, inf if slot == "Y" else self.most_elements)
            for slot, (name, _) in given.items()
        )
        is_there = values.is_there(given["Y"], total)
        return are_small and is_there and all(values.can_join(given[slot], total) for slot in ("X", "Out@GRAD"))


def _merge(total: Operator, parts: dict[str, Operator], values: Parts) -> None:
    grads = list(parts.values())
    joined = {
        slot: values.join_rows(total, [values.input(grad, slot) for grad in grads], total.outputs["Out"][0])
        for slot in ("X", "Out@GRAD")
    }
    weight = grads[0].inputs["Y"]
    replace_parts(total, parts, "mul_grad", {**joined, "Y": weight}, "Y@GRAD", {})
