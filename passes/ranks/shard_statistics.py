"""State that outlives a run, such as running statistics, of programs that are divided into shards."""

from __future__ import annotations

from minigraph.ir import Block, Program


def average_statistics(program: Program, ranks: int) -> None:
    """Let running statistics, which `ShardBatch` has made the mean over the shards of a rank, be that of all shards."""
    block = program.global_block()
    state = state_between_runs(block)
    scales = [op for op in block.ops.of_type("scale") if op.output("Out")[0] in state and ".shard_" in op.input("X")[0]]
    if not scales:
        return
    for type in ("c_sync_calc_stream", "c_allreduce_sum", "c_sync_comm_stream"):
        for op in scales:
            with block.inserting_before(scales[0], role=op.role):
                total = block.var(op.input("X")[0])
                attrs = {} if type == "c_sync_calc_stream" else {"ring_id": 0}
                block.append_op(type, {"X": total}, {"Out": total}, attrs)
    for op in scales:
        op.set_attr("scale", op.attr("scale") / ranks)


def state_between_runs(block: Block) -> set[str]:
    """Names of persistable variables that are read before they are written, so that they outlive a run."""
    written: set[str] = set()
    found: set[str] = set()
    for op in block.ops:
        found.update(name for name in op.input_arg_names if name not in written)
        written.update(op.output_arg_names)
    return {name for name in found if (var := block.find_var(name)) is not None and var.persistable}
