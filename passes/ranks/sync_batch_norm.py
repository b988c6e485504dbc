"""Normalize batches by statistics of all ranks' samples."""

from __future__ import annotations

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for

_TYPES = ("batch_norm", "batch_norm_grad")


class SyncBatchNorm(Pass):
    """Let each ``batch_norm`` use the mean and the variance of all ranks' samples: it becomes ``sync_batch_norm``.

    Those that use running statistics are left alone.

    Law: what ranks compute of their samples is what one rank computes of all of them, but for rounding.

    References
    ----------
    ``sync_batch_norm_pass`` of Paddle 1.8.5, for ``BuildStrategy.sync_batch_norm``.
    """

    def apply(self, program: Program) -> bool:
        found = [op for block in program.blocks for op in block.ops if op.type in _TYPES and _computes_statistics(op)]
        for op in found:
            insert_for(op, f"sync_{op.type}", op.inputs, op.outputs, op.attrs)
            op.block.remove(op)
        return bool(found)


def _computes_statistics(op: Operator) -> bool:
    is_test = op.attr("is_test") and not op.attr("trainable_statistics")
    return not (is_test or op.attr("use_global_stats"))
