"""Replace the operators of a match by those of a fragment."""

from __future__ import annotations

from typing import Any

from minigraph import unique_name
from minigraph.errors import MinigraphError, RuleError
from minigraph.ir import Operator
from minigraph.ir.block_arguments import bind_slots
from minigraph.ir.operator import slot_names
from minigraph.opdef import EMPTY, OpDef, definition_of
from minigraph.passes.rewriting import served_by
from minigraph.passes.rules.exchange import read_instead, require_same_draws
from minigraph.passes.rules.fragments import Fragment, Hole, Node, Result
from minigraph.passes.rules.matcher import Match
from minigraph.support.undo import all_or_nothing


def replace(match: Match, fragment: Fragment, returned: list[str], rule: str) -> list[Operator] | None:
    """Replace the operators of a match by those of `fragment`, which returns these variables; returns the new ones.

    None is returned if the operator is an ``assign`` that has to stay, because its result is fetched or persistable.

    A new operator that makes a result has the role, the name scope and the source line of the operator that made it
    before, and its role_vars, of a backward operator those whose gradients it makes; the others have those of the
    operator in whose place they are.

    Raises
    ------
    RuleError
        If the results have other types than those of the pattern, or if the operators would be the same as before.
    """
    if len(returned) != len(match.results):
        raise RuleError(
            f"{rule}: the replacement returns {len(returned)} values for {len(match.results)} of the pattern",
            hint="Return as many values in the same order.",
        )
    if match.place is None:
        raise RuleError(f"{rule}: the match is not one that may be replaced")
    old = [op for op in match.ops if op not in match.kept]
    try:
        with all_or_nothing():
            return _exchange(match, fragment, returned, old)
    except MinigraphError as error:
        raise RuleError(
            f"{rule}: the replacement does not fit: {error.message}", details=[*map(str, match.ops), *error.details],
            site=match.ops[-1].site,
            hint=(isinstance(error, RuleError) and error.hint)
            or "Let the replacement compute values of the same types, or add a condition with where.",
        ) from error  # fmt: skip


def _exchange(match: Match, fragment: Fragment, returned: list[str], old: list[Operator]) -> list[Operator] | None:
    values, place = match.values, match.place
    assert place is not None
    names = {each.name: match.value(each.name).name for each in fragment.meaning.values() if isinstance(each, Hole)}
    owner: dict[str, Operator] = {}
    copies: list[tuple[str, str]] = []
    for name, number, value in zip(returned, match.pattern.returned, match.results, strict=True):
        if value is None:
            names.setdefault(name, EMPTY)
            continue
        owner[value.name] = match.ops[match.pattern.maker[number].number] if match.pattern.place is None else place
        is_made = isinstance(fragment.meaning.get(name), Result)
        if is_made and name not in names:
            names[name] = value.name
        elif is_made or not read_instead(value, values.read(names.get(name, name), place), values):
            copies.append((name, value.name))
    first = range(len(fragment.nodes)) if match.gradients_place is None else fragment.needed_by(returned[:1])
    places = [place if node.index in first else match.gradients_place or place for node in fragment.nodes]
    new = [_new_op(node, names, owner, at, match) for node, at in zip(fragment.nodes, places, strict=True)]
    for source, target in copies:
        inputs = {"X": (names.get(source, source),)}
        new.append(_operator(definition_of("assign"), inputs, {"Out": (target,)}, {}, owner[target]))
        places.append(place)
    if len(old) == len(new) and all([_is_same(*pair) for pair in zip(old, new, strict=True)]):
        if copies:
            return None
        raise RuleError(
            "it is what it replaces", hint="Add a condition with where, so that the replacement does not match again."
        )
    require_same_draws(old, new)
    values._exchange(old, dict(zip(new, places, strict=True)), [each for each in match.results if each is not None])
    return new


def _is_same(op: Operator, other: Operator) -> bool:
    return (op.type, op.inputs, op.attrs) == (other.type, other.inputs, other.attrs)


def _operator(definition: OpDef, inputs: Any, outputs: Any, attrs: Any, served: Operator) -> Operator:
    fields = served.role, served_by(served, slot_names(outputs)), served.namescope, served.site
    return Operator(definition, inputs, outputs, attrs, *fields)


def _new_op(node: Node, names: dict[str, str], owner: dict[str, Operator], place: Operator, match: Match) -> Operator:
    """The operator of a node, with the names that it reads and writes in the program."""
    type, slots, layer = node.types[0], node.definition.output_slots, ""
    outputs: dict[str, tuple[str, ...]] = {}
    for slot, made in node.outputs.items():
        given = []
        for each in made:
            name = names.get(each)
            if name is None or (name == EMPTY and not slots[slot].dispensable):
                layer = layer or unique_name.generate(type)
                name = place.block.free_name(f"{layer}.tmp")
            names[each] = name
            given.append(name)
        if any(each != EMPTY for each in given):
            outputs[slot] = tuple(given)
    inputs = {slot: tuple([names.get(each, each) for each in read]) for slot, read in node.reads.items()}
    attrs = node.attrs
    if node.captured:
        captured = {name: getattr(match, each.parameter) for name, each in node.captured.items()}
        attrs = node.definition.convert_attrs({**attrs, **captured})
    outputs = bind_slots(type, slots, node.definition.required_outputs, outputs, "output")
    served = next((owner[each] for given in outputs.values() for each in given if each in owner), None)
    new = _operator(node.definition, inputs, outputs, attrs, served or place)
    if served is None:
        new.role_vars = ()
    return new
