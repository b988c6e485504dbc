"""Exchange some operators of a block for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minigraph.ir import Operator
from minigraph.ir.operator import slot_names
from minigraph.passes.values import Value, Values, require_same_types


class NewOp(NamedTuple):
    """An operator that takes the place of others."""

    type: str
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, ...]]
    attrs: Mapping[str, Any]
    served: Operator
    """The replaced operator whose role, name scope and source line it has."""
    role_vars: tuple[str, ...]


class BlockValues(Values):
    """`Values` that exchange several operators at once."""

    def refresh(self) -> None:
        """Look at the block anew if it was changed by others."""
        self._refresh()

    def exchange(
        self, old: Sequence[Operator], place: Operator, new: Sequence[NewOp], results: Sequence[Value]
    ) -> list[Operator]:
        """Put `new` operators where `place` is, one of the `old` ones, which go.

        They write the `results` by the same names, and those that read these go on reading them. The caller has made
        sure that nothing else reads what `old` operators write, and that `new` ones find what they read.
        """
        written = {value.name: value for value in results}
        types = {name: self.type_of(value) for name, value in written.items()}
        gone = set(old)
        behind = place._next
        while behind in gone:
            behind = behind._next
        # Readers first, because what an operator reads is found by who has written it.
        for op in sorted(old, key=self.position.__getitem__, reverse=True):
            self._forget(op)
            self.block.remove(op)
        made = []
        for type, inputs, outputs, attrs, served, role_vars in new:
            fields = {"op_role": served.role, "op_namescope": served.namescope, "op_role_var": role_vars}
            kept = {name: types[name] for name in slot_names(outputs) if name in types}
            read = {name: self.type_of(self._reaching(name, self._place(behind))) for name in slot_names(inputs)}
            with self._declared({**kept, **read}):
                op = self.block.insert(behind, type, inputs, outputs, {**attrs, **fields})
                require_same_types(op, kept)
            op.site = served.site
            self.position[op] = self._make_room(op)
            for name in op.output_arg_names:
                self._note_write(op, name, written[name].number if name in written else next(self._fresh))
            self._note_reads(op)
            made.append(op)
        self._version = self.block.program.version
        return made
