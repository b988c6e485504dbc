"""Values that a gradient needs and that are overwritten before it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from minigraph import unique_name
from minigraph.errors import ProgramError
from minigraph.gradient_rules import GradName, OpSpec, source_slot
from minigraph.ir import Block, Operator
from minigraph.opdef import SUB_BLOCK
from minigraph.sub_blocks import is_count, is_counter, outer_names


class Overwriting:
    """Which temporaries get a second value, and where they are written.

    Of a persistable variable there is one gradient, that with respect to whatever value an operator has read. In a
    sub-block the variables outside of it have a value before; a gradient finds them as they were then, counters as
    they are afterwards, like the sub-block's own variables.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.names: set[str] = set()
        self.restored: set[tuple[Operator, str]] = set()
        """Writes that the gradients undo before those of earlier operators are computed."""
        self.before: set[str] = set()
        self._kept: dict[tuple[str, Operator, bool], str] = {}
        seen: set[str] = set()
        if block.idx:
            seen, written = map(set, outer_names(block))
            self.before = {name for name in written if not is_counter(block, name)}
            self.restored = {(op, op.outputs["Out"][0]) for op in block.ops if is_count(op, block)}
        for op in block.ops:
            seen.update(op.input_arg_names)
            results = op.output_arg_names
            if not seen.isdisjoint(results):
                found = {name: block.find_var(name) for name in results if name in seen}
                self.names.update(name for name, var in found.items() if var is None or not var.persistable)
            seen.update(results)

    @cached_property
    def position(self) -> dict[Operator, int]:
        """Where each operator stands; few programs need to know."""
        return {op: index for index, op in enumerate(self.block.ops)}

    @cached_property
    def writers(self) -> dict[str, list[Operator]]:
        """The operators that write each variable, in order."""
        writers: dict[str, list[Operator]] = {}
        for op in self.position:
            for name in op.output_arg_names:
                writers.setdefault(name, []).append(op)
        return writers

    def checked(self, spec: OpSpec, op: Operator) -> OpSpec:
        """`spec`, a gradient of `op`, reading copies of the values that it needs and that loops overwrite.

        Raises
        ------
        ProgramError
            If another operator overwrites a value.
        """
        if not self.names:
            return spec
        inputs = {}
        for slot, names in spec.inputs.items():
            source = source_slot(slot, op.definition)
            read, is_result = op.inputs.get(source, ()), source in op.definition.output_slots
            inputs[slot] = [
                name if isinstance(name, GradName) else self.kept(name, op, read, is_result) for name in names
            ]
        return spec._replace(inputs=inputs)

    def kept(self, name: str, op: Operator, read: Sequence[str] = (), is_result: bool = False) -> str:
        """A variable that still has the value of `name` that `op` has read, or as `is_result` written.

        Where the value is lost to a loop, or in one, an operator is inserted that copies it.
        """
        lost_to = self._lost_to(name, op, read, is_result) if name in self.names else None
        if lost_to is None:
            return name
        if not self.block.idx and SUB_BLOCK not in lost_to.attrs:
            raise ProgramError(
                f"the gradient of {op.type} needs the value of {name} that {lost_to.type} overwrites",
                details=[f"{op.type} was made at {op.site}"],
                site=lost_to.site,
                hint=f"Let {lost_to.type} write to a variable of its own.",
            )
        key = name, op, is_result
        if key not in self._kept:
            self._kept[key] = self._copy(name, op, is_result)
        return self._kept[key]

    def _lost_to(self, name: str, op: Operator, read: Sequence[str], is_result: bool) -> Operator | None:
        at = self.position[op]
        for writer in reversed(self.writers[name]):
            if name in self.before:
                is_lost = self.position[writer] < at or (writer is op and is_result)
            else:
                is_later = self.position[writer] > at or (writer is op and name in read and not is_result)
                is_lost = is_later and (writer, name) not in self.restored
            if is_lost:
                return writer
        return None

    def _copy(self, name: str, op: Operator, is_result: bool) -> str:
        var = self.block.find_var(name)
        assert var is not None and var.tensor_type is not None
        shape, dtype = var.tensor_type.shape, var.tensor_type.dtype
        copy = self.block.create_var(
            name=unique_name.generate(f"{name}@KEPT"),
            shape=shape,
            dtype=dtype,
            type=var.kind,
            stop_gradient=var.stop_gradient,
        )
        with self.block.inserting_before(op._next if is_result else op, role=op.role):
            made = self.block.append_op("assign", {"X": name}, {"Out": copy})
        made.site = op.site
        return copy.name
