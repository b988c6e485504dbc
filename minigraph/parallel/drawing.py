"""Name operators whose random numbers each rank draws for itself."""

from __future__ import annotations

from minigraph.ir import Operator, Program
from minigraph.passes.rewriting import open_axes
from minigraph.passes.shard_draws import drawing_ops, has_fixed_seed
from minigraph.passes.weighted_means import Samples, ops_of_loss


def describe_draws(program: Program) -> str | None:
    """Say by which operators ranks draw other random numbers for a loss than one rank draws; None if by none.

    Numbers that do not depend on samples, drawn with a seed of the operator, are those of one rank.
    """
    samples = Samples(program.global_block())
    drawing = [each for op in ops_of_loss(samples) for each in drawing_ops(op)]
    found = [
        op for op in reversed(drawing) if _changes(op) and not (has_fixed_seed(op) and _is_of_no_sample(op, samples))
    ]
    if not found:
        return None
    names = ", ".join(dict.fromkeys(op.type for op in found))
    return (
        f"each rank draws the random numbers of {names} for itself, so that ranks do not train as one: say "
        "DataParallel(..., exact=True), where they depend on the step and the shard, not on the number of ranks "
        f"(created at {found[0].site})"
    )


def _changes(op: Operator) -> bool:
    """Whether the numbers that an operator draws change its result, as those of ``dropout(x, 0.0)`` do not."""
    return "dropout_prob" not in op.attrs or bool(op.attr("dropout_prob"))


def _is_of_no_sample(op: Operator, samples: Samples) -> bool:
    """Whether an operator neither reads nor makes something for each sample; in a block, of unknown size."""
    names = [*op.input_arg_names, *op.output_arg_names]
    return not any(samples.knows(name) or open_axes(op.block.find_var(name)) for name in names)
