"""Random numbers that follow from a seed, the step and the shard, so that they do not depend on the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.ir import Block, Operator, Program, Variable
from minigraph.opdef import SUB_BLOCK
from minigraph.passes.ranks.shard_blocks import ops_inside
from minigraph.passes.rewriting import draws
from minigraph.types import DType

STEP = "@SHARD_STEP@"
"""Counter of the steps, on which the seeds of draws depend."""


def count_steps(startup: Program) -> None:
    """Start the counter of steps at 0."""
    block = startup.global_block()
    if not block.has_var(STEP):
        block.append_op("fill_constant", {}, {"Out": _counter(block)}, {"shape": [1], "dtype": int(DType.INT64)})


def append_count(block: Block) -> None:
    """Count a step."""
    step = _counter(block)
    block.append_op("increment", {"X": step}, {"Out": step}, {"step": 1.0})


def _counter(block: Block) -> Variable:
    return block.create_var(name=STEP, shape=[1], dtype="int64", persistable=True)


def drawing_ops(op: Operator) -> list[Operator]:
    """The operators that draw random numbers where `op` runs: itself, or those of its block."""
    return [each for each in _run_by(op) if draws(each) or keeps_seed(each)]


def _run_by(op: Operator) -> Iterator[Operator]:
    if SUB_BLOCK not in op.attrs:
        yield op
        return
    yield from (each for each in ops_inside(op) if SUB_BLOCK not in each.attrs)


def keeps_seed(op: Operator) -> bool:
    """Whether an operator draws by a seed that it replaces by that of the next run, as ``shuffle_batch`` does."""
    return "SeedOut" in op.outputs


def has_fixed_seed(op: Operator) -> bool:
    """Whether an operator draws the same numbers in every run, by a seed of its own."""
    if keeps_seed(op) or not draws(op):
        return False
    is_fixed = "fix_seed" in op.definition.attrs
    return bool(op.inputs.get("Seed")) or bool(op.attr("fix_seed") if is_fixed else op.attr("seed"))


def draws_anew(op: Operator) -> bool:
    """Whether something that runs where `op` does draws other numbers in each run."""
    return not all(map(has_fixed_seed, drawing_ops(op)))


def seed_of(op: Operator) -> int:
    """The seed that an operator, or the first of those of its block, was given; else that of the program.

    What a kept seed starts with may be a random number, which each rank has drawn for itself.
    """
    own, drawing = op.block.program.random_seed, drawing_ops(op)
    given = [each.attr("seed") for each in drawing if not keeps_seed(each)]
    starts = [each.attr("startup_seed") for each in drawing if keeps_seed(each)]
    return next(filter(None, [*given, own, *starts]), 0)


def forget_seeds(op: Operator) -> None:
    """Let an operator draw from the generator of the run, whatever seed it was given."""
    for name, value in (("seed", 0), ("fix_seed", False)):
        if name in op.definition.attrs:
            op.set_attr(name, value)


def fix_draws_inside(op: Operator, shard: int, shards: int) -> None:
    """Let what draws by seeds of its own in the block that `op` runs have those of a shard.

    The generator of the run then goes on with a number that it has drawn before.
    """
    for each in drawing_ops(op):
        if not has_fixed_seed(each):
            forget_seeds(each)
            continue
        if each.inputs.get("Seed"):
            continue
        block, key = each.block, {"seed": each.attr("seed"), "number": 0, "shard": shard, "shards": shards}
        with block.inserting_before(each, role=each.role):
            if "Seed" in each.definition.input_slots:
                seed = block.create_var(dtype="int32", stop_gradient=True)
                block.append_op("shard_seed", {}, {"Out": seed}, key)
                each.set_input("Seed", [seed.name])
                continue
            rest = block.create_var(dtype="int32", stop_gradient=True)
            block.append_op("seed", {}, {"Out": rest}, {})
            block.append_op("seed_draws", {}, {}, key)
        forget_seeds(each)
        with block.inserting_before(each._next, role=each.role):
            block.append_op("seed_draws", {"Step": rest}, {}, key)
