"""Whether matched operators may be replaced: who else reads what they make, and where the replacement can stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minigraph.errors import RewriteError
from minigraph.ir import Operator
from minigraph.ir.dataflow import is_persistable
from minigraph.opdef import EMPTY, is_update
from minigraph.passes.rewriting import stops_gradient
from minigraph.passes.rules.matcher import Match, MatchRecorder
from minigraph.passes.values import Value, Values


def may_replace(
    match: Match, needed: Iterable[str] | None, has_gradients: bool = False, recorder: MatchRecorder | None = None
) -> bool:
    """Whether the operators of a match may go; notes in the match which of them stay, and the place.

    Of several results those that nobody reads are left out.

    Parameters
    ----------
    needed : iterable of str or None
        Placeholders that the replacement reads; None if nothing takes the place of the operators.
    has_gradients : bool
        Whether all results but the first are gradients, which are computed in another place.
    """
    if not _are_alone(match) and not _may_go(match, needed is not None, recorder):
        return False
    gone = match.gone
    program = match.values.block.program
    if not (program.backward_passes or program.is_concrete or _may_differentiate(match, gone, recorder)):
        return False
    if len(match.results) > 1:
        wanted = [value if value and _is_wanted(value, gone, match.values) else None for value in match.results]
        match.results = tuple(wanted if any(wanted) else match.results)
    if needed is None:
        return True
    names = [value.name for value in match.results if value is not None]
    if not has_gradients:
        match.place = _place_of(match, gone, slice(None), needed, recorder)
        return match.place is not None
    result = match.results[0]
    if result is None or len(set(names)) < len(names):
        return False
    match.place = _place_of(match, gone, slice(1), [name for name in needed if name != "d"], recorder)
    match.gradients_place = match.place and _place_of(match, gone, slice(1, None), needed, recorder)
    return match.gradients_place is not None and match.values.is_there(result, match.gradients_place)


def may_read(match: Match, value: Value, recorder: MatchRecorder | None = None) -> bool:
    """Whether all that read the result of an ``assign`` can read `value`, so that no copy has to stay."""
    values, op, (result,) = match.values, match.ops[0], match.results
    if result is None:
        return True
    reason = _who_takes(result, "Out", op, values)
    if not reason:
        try:
            for use in values.users(result):
                values._require_replaceable(use, value)
        except RewriteError as error:
            reason = f"but {error.message}"
    if reason and recorder is not None:
        recorder.differs(op, "Out", f"a result whose readers can read {value.name}", f"{result.name}, {reason}")
    return not reason


def _may_differentiate(match: Match, gone: frozenset[Operator], recorder: MatchRecorder | None) -> bool:
    """Whether no value that goes, or that operators which go read, keeps gradients from what it is computed of."""
    values = match.values
    for op in match.ops:
        for slot, names in op.outputs.items():
            for name in names:
                if not stops_gradient(name, op) or (value := values.written(name, op)) in match.results:
                    continue
                if op in gone or not gone.isdisjoint(values.readers.get(value, ())):
                    if recorder is not None:
                        expected = "a result through which gradients flow, as they will through the replacement"
                        recorder.differs(op, slot, expected, f"{name}, which has stop_gradient")
                    return False
    return True


def _are_alone(match: Match) -> bool:
    """Whether the matched operators make nothing but values of the pattern, which nothing outside of it reads."""
    values, pattern = match.values, match.pattern
    for node, op in zip(pattern.ops, match.ops, strict=True):
        if not op.outputs.keys() <= node.makes:
            return False
    for place, count in pattern.between:
        value = match._found[place]
        if value is not None and (len(values.readers.get(value, ())) != count or values.is_live_out(value)):
            return False
    return True


def _may_go(match: Match, may_stay: bool, recorder: MatchRecorder | None) -> bool:
    """Whether the values inside of the match are read by no other operator, no fetch and no later run.

    An operator may stay as it is whose result might be fetched, unless the rule edits the matched ones in place.
    """
    values, returned = match.values, set(match.results)
    mine, kept = set(match.ops), set[Operator]()
    # Operators of a pattern stand after those that they read.
    for node, op in zip(reversed(match.pattern.ops), reversed(match.ops), strict=True):
        for slot, names in op.outputs.items():
            for name in names:
                if name == EMPTY or (value := values.written(name, op)) in returned:
                    continue
                readers = values.readers.get(value, ())
                others = () if mine.issuperset(readers) else [each for each in readers if each not in mine]
                reason = "" if others else _who_takes(value, slot, op, values)
                if not others and not reason and (not kept or kept.isdisjoint(readers)):
                    continue
                stays = node.shared or (may_stay and not others and reason in ("", _MAY_BE_FETCHED))
                if not stays or any([values.written(each, op) in returned for each in op.output_arg_names]):
                    if recorder is not None:
                        who = _who_reads(others) if others else reason
                        recorder.differs(op, slot, "a result that nothing else reads", f"{value.name}, {who}")
                    return False
                kept.add(op)
    match.kept = frozenset(kept)
    return True


def _is_wanted(value: Value, gone: frozenset[Operator], values: Values) -> bool:
    return values.is_live_out(value) or any([op not in gone for op in values.readers.get(value, ())])


_MAY_BE_FETCHED = "which may be fetched: program.roots does not say what is"


def _who_reads(others: Sequence[Operator]) -> str:
    reader = others[0]
    where = f" at {reader.site}" if reader.site is not None else ""
    return f"which {reader.type} reads{where}" + (f" and {len(others) - 1} more" if len(others) > 1 else "")


def _who_takes(value: Value, slot: str, op: Operator, values: Values) -> str:
    """Say who reads a value outside of the block; empty if nobody does."""
    if not values.is_live_out(value):
        return ""
    if is_persistable(values.block.find_var(value.name)):
        return "which is persistable"
    if values.block.idx:
        return "which is taken from the sub-block"
    if values.block.program.roots is not None:
        return "which is fetched"
    return "" if op.definition.output_slots[slot].intermediate else _MAY_BE_FETCHED


def _place_of(
    match: Match, gone: frozenset[Operator], which: slice, needed: Iterable[str], recorder: MatchRecorder | None
) -> Operator | None:
    """Return the operator in whose place all inputs are there, and where some of the results may be written."""
    values, pattern = match.values, match.pattern
    ends = [
        (value, match.ops[number])
        for number, value in zip(pattern.makers[which], match.results[which], strict=True)
        if value is not None
    ]
    inputs = [each for name in needed for each in _each(match.value(name))]
    for each in inputs:
        maker = values.writer.get(each)
        if maker is not None and maker in gone:
            if recorder is not None:
                recorder.differs(maker, "outputs", "inputs that the replaced operators do not make", each.name)
            return None
    roots = [op for _, op in ends]
    if len(ends) > 1:
        roots = sorted(dict.fromkeys(roots), key=values.position.__getitem__)
        names = {value.name for value, _ in ends}
        if len(names) < len(ends) or _overwrites(roots, names.intersection([each.name for each in inputs])):
            if recorder is not None:
                recorder.differs(
                    roots[-1], "outputs", "results with names of their own", "one that overwrites another value"
                )
            return None
    if pattern.place is not None:
        roots = [match.ops[pattern.place]]
    for place in roots:
        if all([values.is_there(each, place) for each in inputs]) and all(
            [_may_move(value, op, place, values, gone) for value, op in ends if op is not place]
        ):
            return place
    if recorder is not None and roots:
        _tell_place(match, inputs, roots[-1], recorder)
    elif recorder is not None:
        recorder.differs(match.ops[-1], "outputs", "a result", "none, for it is left out")
    return None


def _overwrites(roots: Sequence[Operator], names: Iterable[str]) -> bool:
    """Whether operators write over inputs of these names, but for a single operator that is made for it.

    A replacement knows of that: its pattern is an update, or writes in ``MeanOut`` over what it reads in ``Mean``.
    Others do so only where a program happens to write a name again.
    """
    return any([len(roots) > 1 or not _is_updated(name, roots[0]) for name in names])


def _is_updated(name: str, op: Operator) -> bool:
    slots = [slot for slot, given in op.inputs.items() if name in given]
    return is_update(op.definition) or any([name in op.outputs.get(f"{slot}Out", ()) for slot in slots])


def _each(found: Value | tuple[Value, ...] | None) -> tuple[Value, ...]:
    return () if found is None else (found,) if isinstance(found, Value) else found


def _may_move(value: Value, op: Operator, place: Operator, values: Values, gone: frozenset[Operator]) -> bool:
    """Whether `op` could write `value` at `place`: nobody reads or writes its name in between."""
    position = values.position
    here, there = position[op], position[place]
    if there > here:
        readers = values.readers.get(value, ())
        is_free = values.is_there(value, place)
    else:
        old = values.read(value.name, op)
        readers = values.readers.get(old, ())
        is_free = values.read(value.name, place) == old
    low, high = sorted((here, there))
    return is_free and not any([low <= position[each] <= high and each not in gone for each in readers])


def _tell_place(match: Match, inputs: list[Value], op: Operator, recorder: MatchRecorder) -> None:
    for value in inputs:
        found = match.values.read(value.name, op)
        if found == value:
            continue
        writer = match.values.producer(found)
        by = "" if writer is None else f"{writer.type} writes it again" + (f" at {writer.site}" if writer.site else "")
        slot = next((slot for slot, names in op.inputs.items() if value.name in names), None)
        reader, slot = (
            next(
                (each, name) for each in (op, *match.ops) for name, names in each.inputs.items() if value.name in names
            )
            if slot is None
            else (op, slot)
        )
        recorder.differs(reader, slot, f"{value.name} unchanged until {op.type}", by or "a later value of this name")
        return
    recorder.differs(op, "outputs", "a place for all results", "readers of one in between")
