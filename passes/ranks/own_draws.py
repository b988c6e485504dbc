"""Name operators whose random numbers each rank draws for itself."""

from __future__ import annotations

from collections.abc import Sequence

from minigraph.ir import Operator, Program
from minigraph.passes.ranks.shard_draws import drawing_ops, has_fixed_seed
from minigraph.passes.ranks.weighted_means import Samples, ops_of_loss
from minigraph.passes.rewriting import draws, open_axes

_HINT = "say parallel.DataParallel(..., exact=True), where they depend on step and shard, not on the number of ranks"


def describe_draws(program: Program, who: str = "rank", hint: str = _HINT) -> str | None:
    """Say by which operators ranks draw other random numbers for a loss than one rank draws; None if by none.

    Numbers that do not depend on samples, drawn with a seed of the operator, are those of one rank. `who` draws, and
    `hint` says what to do.
    """
    samples = Samples(program.global_block())
    drawing = [each for op in ops_of_loss(samples) for each in drawing_ops(op)]
    found = [
        op for op in reversed(drawing) if _changes(op) and not (has_fixed_seed(op) and _is_of_no_sample(op, samples))
    ]
    return said_of(found, who, hint)


def said_of(ops: Sequence[Operator], who: str = "rank", hint: str = _HINT) -> str | None:
    """Say that each rank draws the random numbers of operators for itself; None if there are none."""
    if not ops:
        return None
    names = ", ".join(dict.fromkeys(op.type for op in ops))
    return (
        f"each {who} draws the random numbers of {names} for itself, so that {who}s do not train as one: {hint} "
        f"(created at {ops[0].site})"
    )


def draws_of_rank(op: Operator) -> bool:
    """Whether an operator that was computed has drawn other numbers than on other ranks, or the same for samples."""
    return draws(op) and _changes(op) and not (has_fixed_seed(op) and not op.inputs)


def _changes(op: Operator) -> bool:
    """Whether the numbers that an operator draws change its result, as those of ``dropout(x, 0.0)`` do not."""
    return "dropout_prob" not in op.attrs or bool(op.attr("dropout_prob"))


def _is_of_no_sample(op: Operator, samples: Samples) -> bool:
    """Whether an operator neither reads nor makes something for each sample; in a block, of unknown size."""
    names = [*op.input_arg_names, *op.output_arg_names]
    return not any(samples.knows(name) or open_axes(op.block.find_var(name)) for name in names)
