"""Name statistics and state that a rank makes of its own samples alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from minigraph.ir import Operator, Program, Role
from minigraph.ir.effects import unchanged_names
from minigraph.passes.ranks.shard_draws import keeps_seed
from minigraph.passes.ranks.shard_statistics import state_between_runs
from minigraph.passes.ranks.weighted_means import Samples


def describe_statistics(statistics: Iterable[tuple[Operator, Sequence[str]]], exact: bool = False) -> list[str]:
    """Say what each rank normalizes, and what it keeps, by its own samples.

    `statistics` are some of what `of_own_samples` finds. With `exact` a ``batch_norm`` has the statistics of shards,
    which do not depend on the number of ranks.
    """
    found: dict[str, list[tuple[Operator, Sequence[str]]]] = {}
    for op, kept in statistics:
        found.setdefault(op.type, []).append((op, kept))
    normalizing = found.pop("batch_norm", [])
    said = []
    if normalizing and not exact:
        names = ", ".join(op.output("Y")[0] for op, _ in normalizing)
        said.append(
            f"batch_norm normalizes {names} by statistics of a rank's own samples, so that ranks do not train as one: "
            "say DataParallel(..., sync_batch_norm=True) for statistics of all ranks' samples, exact=True for those of "
            "shards, or use_global_stats=True for running ones, or use group_norm or layer_norm "
            f"(created at {normalizing[0][0].site})"
        )
    for type, ops in found.items():
        names = ", ".join(dict.fromkeys(name for _, kept in ops for name in kept))
        said.append(
            f"{type} keeps {names} of a rank's own samples: add counts up over the ranks by c_allreduce_sum where you "
            f"read them, {'' if exact else 'say DataParallel(..., exact=True), '}or leave it out of the training "
            f"program (created at {ops[0][0].site})"
        )
    return said


def of_own_samples(program: Program) -> Iterator[tuple[Operator, list[str]]]:
    """Operators of the forward pass that make statistics of samples, or state, each with the state it keeps.

    What is made of values that the program exchanges is left out, and what is written over later.
    """
    block = program.global_block()
    samples, state = Samples(block), state_between_runs(block)
    last = {name: op for op in samples.ops for name in op.output_arg_names}
    # A run finds the state that the last run has kept; if that is of a rank's own samples, it is named there.
    exchanged = set(state)
    for op in samples.ops:
        of_samples = [name for name in op.input_arg_names if samples.knows(name)]
        if op.type.startswith("c_") or (of_samples and exchanged.issuperset(of_samples)):
            exchanged.update(op.output_arg_names)
            continue
        exchanged.difference_update(op.output_arg_names)
        if op.type == "sync_batch_norm":  # exchanges its statistics, but what it normalizes is of a rank's own samples
            continue
        if op.role & Role.LR_SCHED or keeps_seed(op) or not of_samples:
            continue
        unchanged = unchanged_names(op)
        kept = [name for name in op.output_arg_names if name in state and name not in unchanged and last[name] is op]
        if kept or (op.type == "batch_norm" and not (op.attr("is_test") or op.attr("use_global_stats"))):
            yield op, kept
