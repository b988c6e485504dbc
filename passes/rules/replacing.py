"""Replace the operators of a match by those of a fragment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from minigraph import unique_name
from minigraph.errors import MinigraphError, RewriteError, RuleError
from minigraph.ir import Operator
from minigraph.ir.block_arguments import bind_slots
from minigraph.ir.operator import slot_names
from minigraph.ir.role import Role
from minigraph.opdef import EMPTY, OpDef, definition_of, is_update
from minigraph.passes.rewriting import is_random, served_by, stops_gradient
from minigraph.passes.rules.fragments import Fragment, Node, Result
from minigraph.passes.rules.matcher import Match
from minigraph.passes.values import Value, Values
from minigraph.support.undo import all_or_nothing


def replace(match: Match, fragment: Fragment, returned: list[str], rule: str) -> list[Operator] | None:
    """Replace the operators of a match by those of `fragment`, which returns these variables; returns the new ones.

    None is returned if the operator is an ``assign`` that has to stay, because its result is fetched or persistable.

    A new operator that makes a result has the role, the name scope and the source line of the operator that made it
    before, and its role_vars: of a backward operator those whose gradients it makes, of an update with the gradient
    that it reads now. The others have the role, the name scope and the line of the operator in whose place they are; a
    clip or a decay those of the matched one of its type.

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
    names = {name: match.value(name).name for name in fragment.placeholders}
    owner: dict[str, Operator] = {}
    copies: list[tuple[str, str]] = []
    for name, number, value in zip(returned, match.pattern.makers, match.results, strict=True):
        if value is None:
            names.setdefault(name, EMPTY)
            continue
        maker = match.ops[number]
        owner[value.name] = maker if match.pattern.place is None else place
        is_made = isinstance(fragment.meaning.get(name), Result)
        if is_made and name not in names:
            names[name] = value.name
        elif (
            is_made
            or stops_gradient(value.name, maker)
            or not _read_instead(value, values.read(names.get(name, name), place), values)
        ):
            copies.append((name, value.name))
    nodes = _needed_nodes(match, fragment, returned)
    places = [place] * len(nodes)
    if match.gradients_place is not None:
        first = fragment.needed_by(returned[:1])
        places = [place if node.index in first else match.gradients_place for node in nodes]
    new = [_new_op(node, names, owner, at, match) for node, at in zip(nodes, places, strict=True)]
    for source, target in copies:
        inputs = {"X": (names.get(source, source),)}
        new.append(_operator(definition_of("assign"), inputs, {"Out": (target,)}, {}, owner[target]))
        places.append(place)
    if len(new) > 1:
        _require_old_values(fragment, nodes, new, names, copies)
    if len(old) == len(new) and all([_is_same(*pair) for pair in zip(old, new, strict=True)]):
        if copies:
            return None
        raise RuleError(
            "it is what it replaces", hint="Add a condition with where, so that the replacement does not match again."
        )
    _require_same_draws(old, new)
    values._exchange(old, dict(zip(new, places, strict=True)), [each for each in match.results if each is not None])
    return new


def _needed_nodes(match: Match, fragment: Fragment, returned: Sequence[str]) -> Sequence[Node]:
    """Return the operators of the replacement that serve results which the matched operators make."""
    if None not in match.results:
        return fragment.nodes
    wanted = tuple([name for name, value in zip(returned, match.results, strict=True) if value is not None])
    nodes = fragment.parts.get(wanted)
    if nodes is None:
        drawn = [chain(*node.outputs.values()) for node in fragment.nodes if is_random(node.definition.type)]
        needed = fragment.needed_by([*wanted, *chain(*drawn)])
        nodes = fragment.parts[wanted] = [node for node in fragment.nodes if node.index in needed]
    return nodes


def _require_old_values(
    fragment: Fragment,
    nodes: Sequence[Node],
    new: Sequence[Operator],
    names: dict[str, str],
    copies: Sequence[tuple[str, str]],
) -> None:
    """Raise if an operator reads a placeholder whose variable an earlier one has written over."""
    reads = [*(chain(*node.reads.values()) for node in nodes), *((source,) for source, _ in copies)]
    written: set[str] = set()
    for op, read in zip(new, reads, strict=True):
        late = next((each for each in read if each in fragment.given and names.get(each, each) in written), None)
        if late is not None:
            raise RuleError(
                f"{op.type} reads {names.get(late, late)} after an earlier operator has written over it",
                hint="Let the replacement first read what its results overwrite: order its layers otherwise.",
            )
        written.update(op.output_arg_names)


def _is_same(op: Operator, other: Operator) -> bool:
    return (op.type, op.inputs, op.attrs) == (other.type, other.inputs, other.attrs)


def _operator(definition: OpDef, inputs: Any, outputs: Any, attrs: Any, served: Operator) -> Operator:
    role_vars = served_by(served, slot_names(outputs)) if served.role_vars else ()
    return Operator(definition, inputs, outputs, attrs, served.role, role_vars, served.namescope, served.site)


def _new_op(node: Node, names: dict[str, str], owner: dict[str, Operator], place: Operator, match: Match) -> Operator:
    """The operator of a node, with the names that it reads and writes in the program."""
    definition, layer, served = node.definition, "", None
    # Before the results: an operator may overwrite what it reads.
    inputs = {slot: tuple([names.get(each, each) for each in read]) for slot, read in node.reads.items()}
    outputs: dict[str, tuple[str, ...]] = {}
    for slot, made in node.outputs.items():
        given = []
        for each in made:
            name = names.get(each)
            if name is None or (name == EMPTY and not definition.output_slots[slot].dispensable):
                layer = layer or unique_name.generate(definition.type)
                name = place.block.free_name(f"{layer}.tmp")
            names[each] = name
            served = served or owner.get(name)
            given.append(name)
        outputs[slot] = tuple(given)
    if any([EMPTY in given for given in outputs.values()]):
        outputs = {slot: given for slot, given in outputs.items() if set(given) != {EMPTY}}
    if not all([slot in outputs for slot in definition.required_outputs]):
        bind_slots(definition.type, definition.output_slots, definition.required_outputs, outputs, "output")
    attrs = node.attrs
    if node.captured:
        captured = {name: getattr(match, each.parameter) for name, each in node.captured.items()}
        attrs = definition.convert_attrs({**attrs, **captured})
    if served is None:
        like = next((op for op in match.ops if op.definition is definition and _is_aside(op, place)), None)
        new = _operator(definition, inputs, outputs, attrs, like or place)
        new.role_vars = () if like is None else like.role_vars
        return new
    new = _operator(definition, inputs, outputs, attrs, served)
    if is_update(definition) and inputs["Grad"] != served.inputs.get("Grad"):
        old = served.inputs.get("Grad", ())
        new.role_vars = tuple([inputs["Grad"][0] if name in old else name for name in new.role_vars])
    return new


def _is_aside(op: Operator, place: Operator) -> bool:
    """Whether an operator clips or regularizes for what `place` does."""
    aside = Role.CLIP | Role.REGULARIZE
    return bool(op.role & aside) and op.role & ~aside == place.role & ~aside


def _read_instead(old: Value, new: Value, values: Values) -> bool:
    """Let all that read `old` read `new`; False if some cannot, or if `old` is read outside of the block."""
    if values.is_live_out(old):
        return False
    try:
        values.replace_all_uses(old, new)
    except RewriteError:
        return False
    return True


def _require_same_draws(old: Sequence[Operator], new: Sequence[Operator]) -> None:
    """Raise if random numbers would no longer be drawn, or others: operators after would draw other ones."""
    before, after = (sorted([op.type for op in ops if _may_draw(op)]) for ops in (old, new))
    if before != after:
        raise RuleError(
            f"it draws random numbers by {after or 'no operator'} in place of {before or 'none'}",
            hint="Leave operators that draw as they are: those after them would draw other numbers.",
        )


def _may_draw(op: Operator) -> bool:
    """Whether an operator may draw random numbers; none does that says of itself that this is a test."""
    return is_random(op.definition.type) and not op.attrs.get("is_test", False)
