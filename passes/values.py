"""Values of a program, and the edits that passes are made of: insert, replace a use, replace an operator, erase.

An edit under which a name would mean another value than before is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

from minigraph import unique_name
from minigraph.errors import MinigraphError, RewriteError, WrongTypeError
from minigraph.ir import Operator, Variable
from minigraph.ir.block_arguments import each_of
from minigraph.ir.dataflow import is_persistable
from minigraph.ir.operator import slot_names
from minigraph.ir.type_inference import explain
from minigraph.ir.variable import name_of
from minigraph.opdef import EMPTY, SUB_BLOCK, definition_of
from minigraph.passes.value_table import Edit, Use, Value, ValueTable
from minigraph.support.undo import all_or_nothing
from minigraph.types import TensorType

__all__ = ["Use", "Value", "Values", "require_same_types"]

Given: TypeAlias = "Value | Variable | str"
"""A value, or a name, which means the value that it has at the place of the edit."""
Slots: TypeAlias = "Mapping[str, Given | Sequence[Given]]"
Types: TypeAlias = "Mapping[str, TensorType | None]"


class Values(ValueTable):
    """Values that the operators of a block read and write.

    They are right after edits by the methods of this class, and after operators were removed and inputs replaced by
    others. The methods that edit notice other changes and look at the block anew.

    Parameters
    ----------
    block : Program or Block
        A program stands for its global block.

    Examples
    --------
    The name ``h`` means two values; only the first is scaled twice.

    >>> from minigraph import Program, rewrite
    >>> program = Program.parse('''
    ... block 0
    ...   data x: float32[2]
    ...   h: float32[2] = scale(X=x) {scale=2.0}
    ...   y: float32[2] = scale(X=h) {scale=3.0}
    ...   h = relu(X=y)
    ... ''')
    >>> program.roots = ("h",)
    >>> values = rewrite.Values(program)
    >>> first, second, _ = program.global_block().ops
    >>> values.input(second, "X"), values.is_used_once(values.input(second, "X"))
    (Value(name='h', number=1), True)
    >>> fused = values.replace_op(second, "scale", {"X": values.input(first, "X")}, attrs={"scale": 6.0})
    >>> values.erase(first)
    >>> print(program.global_block())
    block 0
      data x: float32[2]
      y: float32[2] = scale(X=x) {scale=6.0}
      h: float32[2] = relu(X=y)
    """

    # Edits

    def insert(
        self,
        type: str,
        inputs: Slots,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        *,
        before: Operator | None = None,
        after: Operator | None = None,
    ) -> Operator:
        """Insert an operator with the role, the name scope and the source line of the one beside it.

        Parameters
        ----------
        inputs : mapping
            Slot to a value or a name, or several. A name means the value that it has there.
        outputs : mapping, optional
            Slot to a name, or several; new names if it is left out.
        before, after : Operator
            The operator beside it; give one of the two.

        Raises
        ------
        RewriteError
            If an input is not there any more or not yet, or if an output is a name whose value is still read.
        """
        anchor = before or after
        if anchor is None or (before is not None and after is not None):
            raise RewriteError(f"{type}: a place is before one operator, or after one", hint="Give before=op.")
        self._require(anchor)
        place = before if after is None else after._next
        given = self._fresh_outputs(type) if outputs is None else outputs
        names = self._names_at(place, type, inputs)
        for name in _each_name(given):
            self._require_free(name, place, type)
        made = self._made(anchor, type, names, given, attrs, ())
        self._exchange((), {made: place})
        self._refresh()
        return made

    def replace_op(
        self,
        op: Operator,
        type: str,
        inputs: Slots,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Operator:
        """Put another operator in the place of `op`, with its role, its role_vars, its name scope and its source line.

        Parameters
        ----------
        outputs : mapping, optional
            Slot to a name, or several. Left out: what `op` writes in the slots of the same names, or in its only slot.
            What `op` writes and the new operator does not must be read by nobody.

        Raises
        ------
        RewriteError
            If an input is not there, a result that is read would get lost, or another name would change its value.
        """
        self._require(op)
        given = self._outputs_like(op, type) if outputs is None else outputs
        names = self._names_at(op, type, inputs)
        kept = set(_each_name(given))
        own = set(op.output_arg_names)
        for name in op.output_arg_names:
            if name not in kept:
                self._require_unused(name, op)
        for name in kept - own:
            self._require_free(name, op, type)
        results = [self.written(name, op) for name in own]
        made = self._made(op, type, names, given, attrs, op.role_vars)
        self._exchange([op], {made: op}, results)
        self._refresh()
        return made

    def replace_use(self, use: Use, value: Value) -> None:
        """Let an operator read `value` in one place.

        Raises
        ------
        RewriteError
            If the name of `value` means another value there, or if a sub-block reads the old one by name.
        """
        self._require(use.op)
        self._require_replaceable(use, value)
        self._set_input(use, value)

    def replace_all_uses(self, old: Value, new: Value) -> None:
        """Let all operators that read `old` read `new`, but for the one that makes `new`.

        A value that is fetched or persistable keeps its name.

        Raises
        ------
        RewriteError
            If one of them cannot; then none is changed.
        """
        self._refresh()
        maker = self.writer.get(new)
        uses = [use for use in self.users(old) if use.op is not maker]
        for use in uses:
            self._require_replaceable(use, new)
        for use in uses:
            self._set_input(use, new)

    def set_attr(self, op: Operator, name: str, value: Any) -> None:
        """Change an attribute, and with it the types of the results.

        Raises
        ------
        RewriteError
            If a result gets another type, and its name has other values, too.
        """
        self._require(op)
        shared = {
            name: self._declared_type(name) for name in op.output_arg_names if not self.is_only(self.written(name, op))
        }
        with all_or_nothing():
            op.set_attr(name, value)
            self.block.infer(op)
            require_same_types(op, shared)
        self._types.clear()
        self._version = self.block.program.version

    def erase(self, op: Operator) -> None:
        """Remove an operator whose results nobody reads.

        Raises
        ------
        RewriteError
            If an operator reads one, or if it may be fetched or is persistable.
        """
        self._require(op)
        for name in op.output_arg_names:
            self._require_unused(name, op)
        last = [name for name in op.output_arg_names if self._is_last(name, op)]
        self._forget(op)
        self.block.remove(op)
        for name in last:
            if name in self._writes:  # an earlier value is the last one now
                self.block.vars[name].tensor_type = self.type_of(self._reaching(name, self._place(None)))
        self._version = self.block.program.version

    # Checks

    def _require(self, op: Operator) -> None:
        if not isinstance(op, Operator):
            raise WrongTypeError(f"an edit takes an Operator, got {op!r:.60}", hint="Give one of block.ops.")
        self._refresh()
        if op not in self.position:
            raise self._not_in_block(op)
        self._look_at(op)

    def _names_at(self, place: Operator | None, type: str, inputs: Slots) -> dict[str, list[str]]:
        """Return names that mean the given values in front of `place`."""
        names = {}
        for slot, given in inputs.items():
            # A value is a tuple, and yet one.
            several = (given,) if isinstance(given, Value) else each_of(given)
            for each in several:
                if isinstance(each, Value):
                    self._require_there(each, place, f"{type} cannot read {each.name} in {slot}")
            names[slot] = [each.name if isinstance(each, Value) else name_of(each) for each in several]
        return names

    def _require_there(self, value: Value, place: Operator | None, refusal: str) -> None:
        found = self._reaching(value.name, self._place(place))
        if found == value:
            return
        writer, maker = self.writer.get(found), self.writer.get(value)
        if value.number and maker is None:
            reason = "the operator that makes the value is gone"
        elif writer is None or (maker is not None and self.position[writer] < self.position[maker]):
            reason = "the value is made later"
        else:
            reason = "the name has been written again, and means another value there"
        raise RewriteError(
            f"{refusal}: {reason}",
            details=[*([f"made by {maker}"] if maker else []), *([f"written by {writer}"] if writer else [])],
            site=None if place is None else place.site,
            hint=f"Keep the value under a name of its own: insert an assign of {value.name} where it is there.",
        )

    def _require_free(self, name: str, place: Operator | None, type: str) -> None:
        """Raise unless an operator may write `name` in front of `place`: nothing that reads it then changes."""
        if name == EMPTY or (name not in self._writes and self.block.find_var(name) is None):
            return
        start = self._place(place)
        old = self._reaching(name, start)
        later = [op for op in self.readers.get(old, ()) if self.position[op] >= start]
        if later:
            who = f"{later[0].type} still reads its value"
        elif self.is_live_out(old) and not is_persistable(self.block.find_var(name)):
            who = "its value may be fetched, or is taken from the block"
        else:
            return
        raise RewriteError(
            f"{type} cannot write {name}: {who}", details=[f"read by {op}" for op in later],
            site=None if place is None else place.site,
            hint="Leave outputs out for new names, then replace the uses that are to read the result.",
        )  # fmt: skip

    def _require_unused(self, name: str, op: Operator) -> None:
        value = self.written(name, op)
        readers = self.readers.get(value, ())
        if readers:
            raise RewriteError(
                f"{op.type} cannot go: {readers[0].type} reads {name}", details=[f"read by {each}" for each in readers],
                site=op.site, hint="Replace the uses of its results first: values.replace_all_uses(old, new).",
            )  # fmt: skip
        if self.is_live_out(value):
            var = self.block.find_var(name)
            why = "is persistable" if is_persistable(var) else "may be fetched, or is taken from the block"
            is_open = self.block.program.roots is None and self.block.idx == 0 and not is_persistable(var)
            raise RewriteError(
                f"{op.type} cannot go: {name} {why}", details=[str(op)], site=op.site,
                hint="Set program.roots to the names that are fetched." if is_open else
                "Keep the operator, or put one in its place that writes the name: values.replace_op.",
            )  # fmt: skip

    def _require_replaceable(self, use: Use, value: Value) -> None:
        op, slot, index = use.op, use.slot, use.index
        if slot is None or SUB_BLOCK in op.attrs:
            raise RewriteError(
                f"{op.type} reads the value by name, in its sub-block or because a result may keep it", site=op.site,
                details=[str(op)], hint="Leave operators with a sub-block as they are.",
            )  # fmt: skip
        if index >= len(op.inputs.get(slot, ())):
            raise self._no_such_place(op, slot, index, op.input(slot))
        self._require_there(value, op, f"{op.type} cannot read {value.name} in {slot}")
        old, new = self.type_of(self.read(op.inputs[slot][index], op)), self.type_of(value)
        if old is not None and new is not None and not old.fits(new):
            raise RewriteError(
                f"{op.type} cannot read {value.name} in {slot}: it is {new}, but the value there is {old}",
                site=op.site, details=[str(op)], hint="Put another operator in its place: values.replace_op.",
            )  # fmt: skip

    # Changes of the program and of the tables

    def _made(self, served: Operator, type: str, inputs: Any, outputs: Any, attrs: Any, role_vars: Any) -> Operator:
        """Return an operator for the place of `served`, which is not linked in yet."""
        fields = {"op_role": served.role, "op_namescope": served.namescope, "op_role_var": role_vars}
        return self.block._make_op(type, inputs, outputs, {**fields, **(attrs or {})}, served.site)

    def _exchange(
        self, old: Sequence[Operator], new: Mapping[Operator, Operator | None], results: Iterable[Value] = ()
    ) -> None:
        """Insert `new` operators, each before another one, in whose stead `old` ones go.

        They write the `results` of the old ones by the same names, for the same readers. The caller makes sure that
        nothing else reads the results of `old` operators, and that `new` ones find their inputs. The tables learn of it
        in `_refresh`.
        """
        self._refresh()
        results = tuple(results)
        # In a program of an executor all values of a name have the type with which it is declared.
        is_concrete = self.block.program.is_concrete
        kept = {} if is_concrete else {value.name: self.type_of(value) for value in results}
        numbers = {value.name: value.number for value in results}
        ops, places = list(new), list[Operator | None]()
        for place in new.values():
            while place in old:
                place = place._next  # type: ignore[union-attr]
            places.append(place)
        # Now: the tables and the operators still agree.
        read = [{}] * len(ops) if is_concrete else self._types_read(ops, places)
        left = {} if is_concrete else self.types_left(old, _made_by(ops, results))
        with all_or_nothing():
            for op in old:
                self.block.remove(op)
            for op, place, types in zip(ops, places, read, strict=True):
                self._link(op, place, kept, types)
            for name, last in left.items():
                self.block.vars[name].tensor_type = last
        self._edit = Edit(old, ops, places, numbers)
        self._version = self.block.program.version

    def types_left(self, old: Collection[Operator], kept: Collection[Value] = ()) -> Types:
        """Types of the values that become the last of their names when the last ones go with `old` operators.

        Values that are `kept` will be written by others.
        """
        found: dict[str, TensorType | None] = {}
        for op in old:
            for name in op.output_arg_names:
                count = len(self._written_at(name))
                if count < 2 or not self._is_last(name, op) or self.written(name, op) in kept:
                    continue
                values = [self._numbered(name, number) for number in range(1, count + 1)]
                staying = [value for value in values if value in kept or self.writer[value] not in old]
                if staying and name in self.block.vars:
                    found[name] = self.type_of(staying[-1])
        return found

    def _types_read(self, new: Sequence[Operator], places: Sequence[Operator | None]) -> list[Types]:
        """Types of the values that each operator finds in its place under names that are written several times.

        A name that is written once is declared with the only type that it has.
        """
        found, made = list[Types](), set[str]()
        for op, place in zip(new, places, strict=True):
            names = [name for name in op.input_arg_names if name not in made and len(self._written_at(name)) > 1]
            found.append({name: self.type_of(self._reaching(name, self._place(place))) for name in names})
            made.update(*op.outputs.values())
        return found

    def _link(self, op: Operator, place: Operator | None, kept: Types, read: Types) -> None:
        """Link an operator in before `place`; names that are `kept` or that it has `read` have these types."""
        block, types = self.block, dict(read)
        declared = {name: self._declared_type(name) for name in op.output_arg_names}
        results = {name: kept.get(name, each) for name, each in declared.items()}
        types.update({name: each for name, each in results.items() if each is not declared[name]})
        with self._declared(types) if types else nullcontext():
            try:
                block.infer(op)
            except MinigraphError as error:
                raise explain(error, op, block) from None
            block._link(place, op)
            require_same_types(op, results)

    @contextmanager
    def _declared(self, types: Types) -> Iterator[None]:
        """Inside, known variables are declared with other types; outside, with those of their last values."""
        known = [(var, var.tensor_type) for name in types if (var := self.block.find_var(name)) is not None]
        try:
            for var, _ in known:
                var.tensor_type = types[var.name]
            yield
        finally:
            for var, last in known:
                var.tensor_type = last or var.tensor_type

    def _set_input(self, use: Use, value: Value) -> None:
        op, slot, index = use.op, use.slot, use.index
        assert slot is not None
        self._look_at(op)
        self._forget_reads(op)
        names = list(op.inputs[slot])
        names[index] = value.name
        op.set_input(slot, names)
        self._note_reads(op)
        self._version = self.block.program.version

    # Names of results

    def _fresh_outputs(self, type: str, slots: Iterable[str] | None = None) -> dict[str, Any]:
        """Return new names for the results of an operator."""
        definition, layer = definition_of(type), unique_name.generate(type)
        found = {}
        for slot in definition.outputs:
            if slot.dispensable or (slots is not None and slot.name not in slots):
                continue
            if slot.duplicable:
                raise RewriteError(
                    f"{type}: how many variables {slot.name} has is not known",
                    hint=f"Give outputs={{'{slot.name}': [...]}}.",
                )
            found[slot.name] = self.block.free_name(f"{layer}.tmp")
        return found

    def _outputs_like(self, op: Operator, type: str) -> dict[str, Any]:
        """Return the names that `op` writes, for an operator of another type."""
        slots = definition_of(type).output_slots
        found = {slot: names for slot, names in op.outputs.items() if slot in slots}
        if not found:
            own = [names for slot, names in op.outputs.items() if not op.definition.output_slots[slot].intermediate]
            main = [slot.name for slot in slots.values() if not slot.intermediate and not slot.dispensable]
            if len(own) == len(main) == 1:
                found[main[0]] = own[0]
        missing = [slot for slot in slots if slot not in found]
        return {**found, **(self._fresh_outputs(type, missing) if missing else {})}


def _made_by(ops: Sequence[Operator], results: Iterable[Value]) -> set[Value]:
    """Those of `results` that one of `ops` makes."""
    made = {name for op in ops for name in op.output_arg_names}
    return {value for value in results if value.name in made}


def _each_name(slots: Mapping[str, Any]) -> list[str]:
    """The names in slots as they are given to an operator."""
    names = {slot: tuple(map(name_of, each_of(given))) for slot, given in slots.items()}
    return slot_names(names)


def require_same_types(op: Operator, types: Types) -> None:
    """Raise if variables no longer have these types, which those that read them expect."""
    for name, old in types.items():
        var = op.block.find_var(name)
        new = None if var is None else var.tensor_type
        if old is not new and old is not None and new is not None and not old.fits(new):
            raise RewriteError(
                f"{op.type} makes {name} {new}, but those that read it expect {old}", site=op.site, details=[str(op)],
                hint="Insert the operator with a new name for the result, then replace the uses that may read it.",
            )  # fmt: skip
