"""Copy values that a gradient needs and that are overwritten before it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from minigraph import unique_name
from minigraph.ir import Block, Operator, Role
from minigraph.ir.effects import is_count, is_counter, outer_names
from minigraph.ir.versions import Changes, separate, types_in_order
from minigraph.opdef.gradient_context import GradName, OpSpec
from minigraph.opdef.gradient_rules import FusedGrad, source_slot
from minigraph.types import TensorType

_SUFFIX = "@KEPT"


def is_copy(op: Operator) -> bool:
    """Whether `Overwritten` has inserted an operator, to keep a value."""
    return op.type == "assign" and op.outputs["Out"][0].startswith(op.inputs["X"][0] + _SUFFIX)


def separate_types(block: Block) -> None:
    """Give values whose type is not that of their variable variables of their own, as lowering does.

    Operators that are appended later would otherwise be inferred with the last type of the variable.
    """
    changes: Changes = {}
    current: dict[str, TensorType] = {}
    for op, types in types_in_order(block):
        for name in op.output_arg_names:
            var = block.vars.get(name)
            found = types.get(name) or (var.tensor_type if var is not None else None)
            if found is None:
                continue
            if current.setdefault(name, found) != found:
                changes[op, name] = current[name]
                current[name] = found
    separate(changes)


class Overwritten:
    """Variables of a block that get a second value, and their writers.

    In a sub-block, a gradient finds outer variables as they were before the run. It finds counters, and the sub-block's
    own variables, as they are after the run.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.names: set[str] = set()
        self.restored: set[tuple[Operator, str]] = set()
        """Writes that gradients undo before the gradients of earlier operators run."""
        self.before: set[str] = set()
        self._kept: dict[tuple[str, Operator | None], str] = {}
        statistics: set[str] = set()  # updated in place, but constants for the gradient
        if block.idx:
            seen, written = map(set, outer_names(block))
            self.before = {name for name in written if not is_counter(block, name)}
            counts = ((op, op.outputs["Out"][0]) for op in block.ops if is_count(op, block))
            # A gradient finds the others as they were before the run, whatever they are incremented by.
            self.restored = {(op, name) for op, name in counts if name not in self.before}
        else:
            given = [var for var in block.vars.values() if var.persistable or var.is_data]
            seen = {var.name for var in given if not var.stop_gradient}
            statistics = {var.name for var in given if var.stop_gradient}
        for op in block.ops:
            read, results = op.input_arg_names, self._results(op)
            in_place = set(read).intersection(results) - statistics
            if in_place or not seen.isdisjoint(results):
                self.names.update(in_place, seen.intersection(results))
            seen.update(read)
            seen.update(results)

    @cached_property
    def position(self) -> dict[Operator, int]:
        """Position of each operator; computed only for the few programs that need it."""
        return {op: index for index, op in enumerate(self.block.ops)}

    @cached_property
    def writers(self) -> dict[str, list[Operator]]:
        """The operators that write each variable, in order."""
        writers: dict[str, list[Operator]] = {}
        for op in self.position:
            for name in self._results(op):
                writers.setdefault(name, []).append(op)
        return writers

    def undone(self, op: Operator) -> bool:
        """Whether gradients undo a write of `op` before the gradients of earlier operators run."""
        return any((op, name) in self.restored for name in op.output_arg_names)

    def ended_by(self, op: Operator) -> set[str]:
        """The variables that have another value, or none, before `op`."""
        return self.names.intersection(self._results(op))

    @staticmethod
    def _results(op: Operator) -> list[str]:
        """Names that an operator writes; none for an update of an optimizer.

        As in fluid, a parameter has one gradient even if it is updated between two losses of a program, and gradients
        read its value at the time when they run.
        """
        is_update = op.role & Role.OPTIMIZE or "ParamOut" in op.outputs
        return [] if is_update else op.output_arg_names

    def checked(self, spec: OpSpec, op: Operator) -> OpSpec:
        """Let `spec`, a gradient of `op`, read copies of the overwritten values that it needs."""
        if not self.names:
            return spec
        return spec._replace(inputs={slot: self.kept_in_slot(slot, names, op) for slot, names in spec.inputs.items()})

    def kept_in_slot(self, slot: str, names: Sequence[str], op: Operator) -> tuple[str, ...]:
        """Variables that have the values of `names` that a gradient of `op` reads in its input slot."""
        rule, source = op.definition.grad, source_slot(slot, op.definition)
        read, is_result = op.inputs.get(source, ()), source in op.definition.output_slots
        needs_value = not isinstance(rule, FusedGrad) or rule.needs_value(slot)

        def made(name: str) -> bool:
            # A gradient of other operators may read a result in a slot of its own.
            return is_result or (name in op.output_arg_names and name not in op.input_arg_names)

        return tuple(
            name if isinstance(name, GradName) else self.kept(name, op, read, made(name), needs_value) for name in names
        )

    def kept(
        self, name: str, op: Operator, read: Sequence[str] = (), is_result: bool = False, needs_value: bool = True
    ) -> str:
        """A variable that still has the value of `name` that `op` has read, or with `is_result` written.

        If the value is lost, an operator that copies it is inserted. Without `needs_value` only the type must be right.
        """
        if name not in self.names or not self._is_lost(name, op, read, is_result):
            return name
        writer = op if is_result else self._last_writer(name, op)
        if not needs_value and self._type(name, writer) == self._declared(name):
            return name
        if (name, writer) not in self._kept:
            self._kept[name, writer] = self._copy(name, op, writer, is_result)
        return self._kept[name, writer]

    def _last_writer(self, name: str, op: Operator) -> Operator | None:
        """The operator that wrote the value that `op` reads."""
        at = self.position[op]
        return next((each for each in reversed(self.writers[name]) if self.position[each] < at), None)

    def _declared(self, name: str) -> TensorType:
        var = self.block.find_var(name)
        assert var is not None and var.tensor_type is not None
        return var.tensor_type

    def _type(self, name: str, writer: Operator | None) -> TensorType:
        """The type of a value: that of its variable, unless the writer changed the type."""
        return self._declared(name) if writer is None else self._types.get((name, writer), self._declared(name))

    @cached_property
    def _types(self) -> dict[tuple[str, Operator], TensorType]:
        """Types of values that differ from those of their variables, by variable and writer."""
        found: dict[tuple[str, Operator], TensorType] = {}
        for op, types in types_in_order(self.block):
            found.update({(name, op): tensor_type for name, tensor_type in types.items() if name in self.names})
        return found

    def _is_lost(self, name: str, op: Operator, read: Sequence[str], is_result: bool) -> bool:
        at = self.position[op]
        for writer in self.writers[name]:
            if name in self.before:
                is_lost = self.position[writer] < at or (writer is op and is_result)
            else:
                is_later = self.position[writer] > at or (writer is op and name in read and not is_result)
                is_lost = is_later and (writer, name) not in self.restored
            if is_lost:
                return True
        return False

    def _copy(self, name: str, op: Operator, writer: Operator | None, is_result: bool) -> str:
        var, tensor_type = self.block.find_var(name), self._type(name, writer)
        assert var is not None
        copy = self.block.create_var(
            name=unique_name.generate(name + _SUFFIX),
            shape=tensor_type.shape,
            dtype=tensor_type.dtype,
            type=var.kind,
            stop_gradient=var.stop_gradient,
        )
        with self.block.inserting_before(op._next if is_result else op, role=op.role):
            made = self.block.append_op("assign", {"X": name}, {"Out": copy})
        made.site = op.site
        copy.tensor_type = tensor_type
        return copy.name
