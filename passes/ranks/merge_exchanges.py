"""Exchange gradients that are summed over ranks together: one exchange for many small arrays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from minigraph.ir import Block, Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for

_WAITS = frozenset({"c_sync_calc_stream", "c_sync_comm_stream"})


class MergeExchanges(Pass):
    """Sum all gradients of one type over the ranks in one exchange, where the first of them is needed.

    Only sums of dense values in place are merged, those that nothing reads or writes until then. Waits for a stream in
    place, which do nothing here, go.

    Law: every value keeps its bits, because each element is added over the ranks in the same order.
    """

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        changed = False
        for op in [op for type in _WAITS for op in block.ops.of_type(type)]:
            if op.inputs["X"] == op.outputs["Out"]:
                block.remove(op)
                changed = True
        if len(block.ops.of_type("c_allreduce_sum")) < 2:
            return changed
        waiting = _Waiting(block)
        for op in list(block.ops):
            if op.type == "c_allreduce_sum" and op.inputs["X"] == op.outputs["Out"]:
                waiting.add(op)
            elif op.definition.has_hidden_names or not waiting.names.isdisjoint(_used(op)):
                changed |= waiting.merge_before(op)
        return changed | waiting.merge_before(None)


@dataclass
class _Waiting:
    """Sums that may be made together, in order."""

    block: Block
    ops: list[Operator] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def add(self, op: Operator) -> None:
        (name,) = op.inputs["X"]
        kind = self.block.vars[name].tensor_type
        if name in self.names or kind is None or kind.is_rows:
            self.merge_before(op)
        if kind is not None and not kind.is_rows:
            self.ops.append(op)
            self.names.add(name)

    def merge_before(self, op: Operator | None) -> bool:
        """Merge what waits, at the last of its places: all values are there, and nobody has used one before `op`."""
        groups = defaultdict(list)
        for each in self.ops:
            groups[self.block.vars[each.inputs["X"][0]].dtype].append(each)
        self.ops, self.names = [], set()
        merged = [group for group in groups.values() if len(group) > 1]
        for group in merged:
            names = _as_read([each.inputs["X"][0] for each in group], group[-1]._next)
            insert_for(group[-1], "merged_c_allreduce_sum", {"X": names}, {"Out": names}, {"ring_id": 0})
            for each in group:
                self.block.remove(each)
        return bool(merged)


def _as_read(names: list[str], op: Operator | None) -> list[str]:
    """The names in the order in which operators from `op` on read them, so that an update finds them in its own."""
    rest = dict.fromkeys(names)
    found = []
    while op is not None and rest:
        found += [name for name in op.input_arg_names if name in rest and rest.pop(name) is None]
        op = op._next
    return [*found, *rest]


def _used(op: Operator) -> set[str]:
    return {*op.input_arg_names, *op.output_arg_names}
