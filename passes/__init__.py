"""Rewrite programs: each pass states the law that it keeps.

Passes import the IR, the runtime and what lies below them. They are imported with the first name of one that is asked
for, because a program that is only built needs none; `minigraph.passes.pipelines` says which ones executors apply.
"""

from typing import TYPE_CHECKING

from minigraph.passes.base import Pass, Pipeline
from minigraph.passes.gradient_clip import ClipGradients
from minigraph.support.public import refuse_unknown_names

if TYPE_CHECKING:  # imported when they are asked for, see the end
    from minigraph.passes.canonical.broadcast_expanded import BroadcastExpanded
    from minigraph.passes.canonical.clean_up import CleanUp
    from minigraph.passes.canonical.common_subexpressions import ShareCommonSubexpressions
    from minigraph.passes.canonical.constant_folding import FoldConstants
    from minigraph.passes.canonical.dead_ops import RemoveDeadOps
    from minigraph.passes.canonical.join_slices import JoinSlices
    from minigraph.passes.canonical.matmul_to_mul import MatmulToMul
    from minigraph.passes.canonical.mean_of_all import MeanOfAll
    from minigraph.passes.canonical.move_factors import MoveFactors
    from minigraph.passes.canonical.move_joins import MoveJoins
    from minigraph.passes.canonical.multiply_powers import MultiplyPowers
    from minigraph.passes.canonical.order_operands import OrderOperands
    from minigraph.passes.canonical.pick_elements import PickElements
    from minigraph.passes.canonical.scale_by_constants import ScaleByConstants
    from minigraph.passes.canonical.scale_into_matmul import ScaleIntoMatmul
    from minigraph.passes.canonical.share_gradients import ShareGradients
    from minigraph.passes.canonical.skip_joins import SkipJoins
    from minigraph.passes.canonical.slice_rows import SliceRows
    from minigraph.passes.canonical.split_operands import SplitOperands
    from minigraph.passes.canonical.split_products import SplitProducts
    from minigraph.passes.canonical.split_reshaped import SplitReshaped
    from minigraph.passes.canonical.sum_squares import SumSquares
    from minigraph.passes.canonical.transpose_into_matmul import TransposeIntoMatmul
    from minigraph.passes.canonical.transpose_weights import TransposeWeights
    from minigraph.passes.canonical.turn_transposes import TurnTransposes
    from minigraph.passes.memory.free_addends import FreeAddends
    from minigraph.passes.memory.keep_rows import KeepRows
    from minigraph.passes.memory.recompute import Recompute
    from minigraph.passes.memory.shrink_in_update import ShrinkInUpdate
    from minigraph.passes.memory.skip_assigns import SkipAssigns
    from minigraph.passes.memory.write_where_assigned import WriteWhereAssigned
    from minigraph.passes.merge.fold_batch_norms import FoldBatchNorms
    from minigraph.passes.merge.fuse_elementwise import FuseElementwise
    from minigraph.passes.merge.fuse_mean_loss import FuseMeanLoss
    from minigraph.passes.merge.fuse_softmax_cross_entropy import FuseSoftmaxCrossEntropy
    from minigraph.passes.merge.merge_column_sums import MergeColumnSums
    from minigraph.passes.merge.merge_elementwise import MergeElementwise
    from minigraph.passes.merge.merge_matmuls import MergeMatmuls
    from minigraph.passes.merge.merge_products import MergeProducts
    from minigraph.passes.merge.merge_updates import MergeUpdates
    from minigraph.passes.merge.transpose_once import TransposeOnce
    from minigraph.passes.pipelines import EXACT, IN_ORDER, LEGALIZE, LOWERING
    from minigraph.passes.ranks.collective import GradAllReduce, LocalSGD
    from minigraph.passes.ranks.merge_exchanges import MergeExchanges
    from minigraph.passes.ranks.shard_state import ShardOptimizerState
    from minigraph.passes.ranks.shards import ShardBatch
    from minigraph.passes.ranks.sync_batch_norm import SyncBatchNorm
    from minigraph.passes.ranks.weighted_means import WeightMeans
    from minigraph.passes.recognize.find_cross_entropy import FindCrossEntropy
    from minigraph.passes.recognize.find_global_norm import FindGlobalNorm
    from minigraph.passes.recognize.find_gradient_descent import FindGradientDescent
    from minigraph.passes.recognize.find_momentum import FindMomentum
    from minigraph.passes.recognize.find_normalizations import FindNormalizations
    from minigraph.passes.recognize.fuse_global_norm import FuseGlobalNorm
    from minigraph.passes.recognize.group_convolutions import GroupConvolutions
    from minigraph.passes.sequences.pad_sequences import PadSequences
    from minigraph.passes.unroll.compute_branches import ComputeBranches
    from minigraph.passes.unroll.name_elements import NameElements
    from minigraph.passes.unroll.number_bounds import NumberBounds
    from minigraph.passes.unroll.unroll_loops import UnrollLoops
    from minigraph.passes.unroll.unroll_recurrent import UnrollRecurrent
    from minigraph.passes.unroll.write_out_gates import WriteOutGates
    from minigraph.passes.unroll.write_out_units import WriteOutUnits

__all__ = [
    "EXACT",
    "IN_ORDER",
    "LEGALIZE",
    "LOWERING",
    "BroadcastExpanded",
    "CleanUp",
    "ClipGradients",
    "ComputeBranches",
    "FindCrossEntropy",
    "FindGlobalNorm",
    "FindGradientDescent",
    "FindMomentum",
    "FindNormalizations",
    "FoldBatchNorms",
    "FoldConstants",
    "FreeAddends",
    "FuseElementwise",
    "FuseGlobalNorm",
    "FuseMeanLoss",
    "FuseSoftmaxCrossEntropy",
    "GradAllReduce",
    "GroupConvolutions",
    "JoinSlices",
    "KeepRows",
    "LocalSGD",
    "MatmulToMul",
    "MeanOfAll",
    "MergeColumnSums",
    "MergeElementwise",
    "MergeExchanges",
    "MergeMatmuls",
    "MergeProducts",
    "MergeUpdates",
    "MoveFactors",
    "MoveJoins",
    "MultiplyPowers",
    "NameElements",
    "NumberBounds",
    "OrderOperands",
    "PadSequences",
    "Pass",
    "PickElements",
    "Pipeline",
    "Recompute",
    "RemoveDeadOps",
    "ScaleByConstants",
    "ScaleIntoMatmul",
    "ShardBatch",
    "ShardOptimizerState",
    "ShareCommonSubexpressions",
    "ShareGradients",
    "ShrinkInUpdate",
    "SkipAssigns",
    "SkipJoins",
    "SliceRows",
    "SplitOperands",
    "SplitProducts",
    "SplitReshaped",
    "SumSquares",
    "SyncBatchNorm",
    "TransposeIntoMatmul",
    "TransposeOnce",
    "TransposeWeights",
    "TurnTransposes",
    "UnrollLoops",
    "UnrollRecurrent",
    "WeightMeans",
    "WriteOutGates",
    "WriteOutUnits",
    "WriteWhereAssigned",
]

_OTHERS = {
    **dict.fromkeys(("GradAllReduce", "LocalSGD"), "minigraph.passes.ranks.collective"),
    "PadSequences": "minigraph.passes.sequences.pad_sequences",
    "Recompute": "minigraph.passes.memory.recompute",
    "ShardBatch": "minigraph.passes.ranks.shards",
    "ShardOptimizerState": "minigraph.passes.ranks.shard_state",
    "SyncBatchNorm": "minigraph.passes.ranks.sync_batch_norm",
    "WeightMeans": "minigraph.passes.ranks.weighted_means",
}
"""Passes that no executor applies, and their modules."""

_OF_EXECUTORS = {*__all__} - {"ClipGradients", "Pass", "Pipeline"} - {*_OTHERS}

refuse_unknown_names(__name__, **_OTHERS, **dict.fromkeys(_OF_EXECUTORS, "minigraph.passes.pipelines"))
