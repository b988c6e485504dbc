"""One sum of columns for the gradient of a bias that is used in many places, such as the steps of a network."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import Values, join_rows, leave_out, replace_parts, sums_of


@dataclass(frozen=True)
class MergeColumnSums(Pass):
    """Compute a sum of sums of columns, parts of a bias's gradient, by one sum over all their rows.

    The parts are what ``elementwise_add_grad`` gives for a vector that was added to the rows of a matrix. Fewer than
    `least` are left alone, and gradients of more than `most_elements` elements.

    Law: the sum is the same up to rounding, both ways adding the same rows in another order: each element differs by at
    most ``2 (n + T) eps`` times the sum of magnitudes, for T parts with n rows in all. Nothing else changes.
    """

    rounds_otherwise: ClassVar[bool] = True

    least: int = 4
    most_elements: int = 65536

    def apply(self, program: Program) -> bool:
        totals = sums_of(program, "elementwise_add_grad", self.least)
        if not totals:
            return False
        values = Values(program)
        changed = False
        for op in totals:
            parts = self._parts(op, values)
            if len(parts) >= self.least:
                _merge(op, parts)
                changed = True
        return changed

    def _parts(self, total: Operator, values: Values) -> dict[str, Operator]:
        """The parts of a sum that are sums of columns, by name, in forward order."""
        counts = Counter(total.inputs["X"])
        found = {name: self._column_sum(name, total, values) for name in reversed(total.inputs["X"])}
        return {name: grad for name, grad in found.items() if grad is not None and counts[name] == 1}

    def _column_sum(self, name: str, total: Operator, values: Values) -> Operator | None:
        part = values.read(name, total)
        grad = values.maker(part, "elementwise_add_grad")
        if grad is None or grad.outputs.get("Y@GRAD") != (name,) or not values.is_used_once(part):
            return None
        d_out = values.input(grad, "Out@GRAD")
        columns, shape = (values.block.vars[each].shape or () for each in (name, d_out[0]))
        is_over_rows = len(columns) == 1 and shape[1:] == columns and grad.attr("axis") in (-1, 1)
        is_small = values.is_matrix(d_out[0], self.most_elements)
        return grad if is_over_rows and is_small and values.is_there(d_out, total) else None


def _merge(total: Operator, parts: dict[str, Operator]) -> None:
    names = [grad.inputs["Out@GRAD"][0] for grad in parts.values()]
    joined = join_rows(total, names, total.outputs["Out"][0])
    replace_parts(total, list(parts), "reduce_sum", {"X": joined}, "Out", {"dim": [0]})
    for name, grad in parts.items():
        leave_out(grad, name, "X@GRAD")
