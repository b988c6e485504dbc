"""Insert the operators that clip gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minigraph.errors import warn
from minigraph.ir import Block, Operator, Parameter, Program, Role, Variable
from minigraph.ir.name_scope import name_scope
from minigraph.passes import events
from minigraph.passes.base import Pass
from minigraph.support.gc_pause import without_collector

NONFINITE_GUARD = "guard_nonfinite"
"""Type of the operator that finds gradients that are NaN or infinite."""

Pair = tuple[Parameter, Variable]
Strategy = Any
"""A `minigraph.clip.GradientClipBase`: its ``insert(block, pairs)`` returns the clipped gradients."""


@without_collector
def clip_pairs(
    pairs: Sequence[Pair], strategy_of: Callable[[Parameter], Strategy | None], **emit_options: Any
) -> list[Pair]:
    """Append the clip operators for `pairs`; returns the pairs with the clipped gradients, in the same order.

    Parameters whose strategies are equal are clipped together, which is what a global norm means. A parameter without
    a strategy keeps its gradient, and so does one whose gradient is the result of clipping already.

    Warns
    -----
    UserWarning
        If a gradient has been clipped already.
    """
    done = {block: clipped_gradients(block) for block in dict.fromkeys(grad.block for _, grad in pairs)}
    # By block, since pairs of several programs may be given; dictionaries keep the order of the pairs.
    groups: dict[Block, dict[Any, tuple[Strategy, list[int]]]] = {block: {} for block in done}
    again = set()
    for position, (param, grad) in enumerate(pairs):
        strategy = strategy_of(param)
        if strategy is None:
            continue
        if grad.name in done[grad.block]:
            again.add(grad.name)
            continue
        first, positions = groups[grad.block].setdefault(strategy.group_key(), (strategy, []))
        positions.append(position)
        if strategy is not first:  # equal keys need not mean equal thresholds, as in fluid's named groups
            first.check_group(strategy, param)
    if again:
        have = "have" if len(again) > 1 else "has"
        warn(f"{', '.join(sorted(again))} {have} been clipped already and will not be clipped again")
    result = list(pairs)
    for block, by_key in groups.items():
        with block.program.role_guard(Role.OPTIMIZE | Role.CLIP), name_scope("gradient_clip"):
            for strategy, positions in by_key.values():
                with events.step(strategy, block.program):
                    clipped = strategy.insert(block, [pairs[i] for i in positions], **emit_options)
                for i, grad in zip(positions, clipped, strict=True):
                    result[i] = (pairs[i][0], grad)
    return result


def skipping_guards(block: Block) -> list[Operator]:
    """Return the guards that skip updates when gradients are not finite."""
    return [op for op in block.ops if op.type == NONFINITE_GUARD and op.attr("policy") == "skip"]


def skip_updates(block: Block, updates: Sequence[Operator]) -> None:
    """Make updates do nothing in steps in which a guard finds a gradient of their parameters that is not finite."""
    updated = {name for op in updates for name in op.inputs.get("Param", ())}
    flags = [op.outputs["Found"][0] for op in skipping_guards(block) if updated.intersection(op.attr("params"))]
    if flags:
        for op in _with_all_state(block, updates):
            op.set_input("SkipUpdate", flags)


def _with_all_state(block: Block, updates: Sequence[Operator]) -> Iterator[Operator]:
    """Yield the updates; an ``adamax`` takes over the ``scale`` that would change its state in every step."""
    # Fluid's adamax leaves its power to a `scale` after it, which a skipped update would not stop.
    writers = {op.outputs["Out"][0]: op for op in block.ops if op.type == "scale" and op.role & Role.OPTIMIZE}
    for op in updates:
        power = op.inputs["Beta1Pow"] if op.type == "adamax" and "Beta1PowOut" not in op.outputs else ()
        if not power or power[0] not in writers:
            yield op
            continue
        attrs = {**op.attrs, "op_role_var": op.role_vars, "op_namescope": op.namescope}
        with block.inserting_before(op, role=op.role):
            yield block.append_op("adamax", op.inputs, {**op.outputs, "Beta1PowOut": power}, attrs)
        block.remove(op)
        block.remove(writers[power[0]])


def clipped_gradients(block: Block) -> set[str]:
    """Return the names that clip operators of the block write, and what a decay makes of those."""
    found: set[str] = set()
    for op in block.ops:
        # The decay of selected rows has another name than the clipped gradient.
        if op.role & Role.CLIP or (op.role & Role.REGULARIZE and not found.isdisjoint(op.input_arg_names)):
            found.update(op.output_arg_names)
    return found


class ClipGradients(Pass):
    """Make each update read the clipped gradient that its parameter asks for.

    A parameter asks through its field ``gradient_clip``. Only the ``Grad`` input of an update changes; gradients keep
    their names, so a fetch still sees the unclipped value. An update that reads a clipped gradient already is left
    alone, so that applying the pass twice changes nothing the second time.
    """

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        updates = _updates_to_clip(block)
        if not updates:
            return False
        pairs = [_pair(block, op) for op in updates]
        # In front of the first update, where all gradients are made, and no parameter has changed.
        with block.inserting_before(updates[0]):
            clipped = clip_pairs(pairs, lambda param: param.gradient_clip)
        for op, (_, raw), (_, grad) in zip(updates, pairs, clipped, strict=True):
            op.replace_input(raw, grad)
        skip_updates(block, updates)
        return True


def _updates_to_clip(block: Block) -> list[Operator]:
    done = clipped_gradients(block)
    return [
        op
        for op in block.ops
        if op.role & Role.OPTIMIZE
        and {"Param", "Grad"} <= op.inputs.keys()
        and op.inputs["Grad"][0] not in done
        and getattr(block.find_var(op.inputs["Param"][0]), "gradient_clip", None) is not None
    ]


def _pair(block: Block, op: Operator) -> Pair:
    param = block.find_var(op.inputs["Param"][0])
    assert isinstance(param, Parameter)
    return param, block.var(op.inputs["Grad"][0])
