"""Rewrite programs: each pass states the law that it keeps.

Passes import the IR, the runtime and what lies below them. They are imported with the first name of one that is asked
for, because a program that is only built needs none; `minigraph.passes.pipelines` says which ones executors apply.
"""

from typing import TYPE_CHECKING

from minigraph.passes.base import Pass, Pipeline
from minigraph.passes.gradient_clip import ClipGradients
from minigraph.support.public import refuse_unknown_names

if TYPE_CHECKING:  # imported when they are asked for, see the end
    from minigraph.passes.broadcast_expanded import BroadcastExpanded
    from minigraph.passes.clean_up import CleanUp
    from minigraph.passes.collective import GradAllReduce, LocalSGD
    from minigraph.passes.common_subexpressions import ShareCommonSubexpressions
    from minigraph.passes.constant_folding import FoldConstants
    from minigraph.passes.dead_ops import RemoveDeadOps
    from minigraph.passes.find_cross_entropy import FindCrossEntropy
    from minigraph.passes.find_global_norm import FindGlobalNorm
    from minigraph.passes.find_gradient_descent import FindGradientDescent
    from minigraph.passes.find_momentum import FindMomentum
    from minigraph.passes.find_normalizations import FindNormalizations
    from minigraph.passes.fold_batch_norms import FoldBatchNorms
    from minigraph.passes.free_addends import FreeAddends
    from minigraph.passes.fuse_elementwise import FuseElementwise
    from minigraph.passes.fuse_global_norm import FuseGlobalNorm
    from minigraph.passes.fuse_mean_loss import FuseMeanLoss
    from minigraph.passes.fuse_softmax_cross_entropy import FuseSoftmaxCrossEntropy
    from minigraph.passes.group_convolutions import GroupConvolutions
    from minigraph.passes.join_slices import JoinSlices
    from minigraph.passes.keep_rows import KeepRows
    from minigraph.passes.matmul_to_mul import MatmulToMul
    from minigraph.passes.mean_of_all import MeanOfAll
    from minigraph.passes.merge_column_sums import MergeColumnSums
    from minigraph.passes.merge_elementwise import MergeElementwise
    from minigraph.passes.merge_exchanges import MergeExchanges
    from minigraph.passes.merge_matmuls import MergeMatmuls
    from minigraph.passes.merge_products import MergeProducts
    from minigraph.passes.merge_updates import MergeUpdates
    from minigraph.passes.move_factors import MoveFactors
    from minigraph.passes.move_joins import MoveJoins
    from minigraph.passes.multiply_powers import MultiplyPowers
    from minigraph.passes.name_elements import NameElements
    from minigraph.passes.number_bounds import NumberBounds
    from minigraph.passes.order_operands import OrderOperands
    from minigraph.passes.pad_sequences import PadSequences
    from minigraph.passes.pick_elements import PickElements
    from minigraph.passes.pipelines import EXACT, IN_ORDER, LEGALIZE, LOWERING
    from minigraph.passes.recompute import Recompute
    from minigraph.passes.scale_by_constants import ScaleByConstants
    from minigraph.passes.scale_into_matmul import ScaleIntoMatmul
    from minigraph.passes.shard_state import ShardOptimizerState
    from minigraph.passes.shards import ShardBatch
    from minigraph.passes.share_gradients import ShareGradients
    from minigraph.passes.shrink_in_update import ShrinkInUpdate
    from minigraph.passes.skip_assigns import SkipAssigns
    from minigraph.passes.skip_joins import SkipJoins
    from minigraph.passes.slice_rows import SliceRows
    from minigraph.passes.split_operands import SplitOperands
    from minigraph.passes.split_products import SplitProducts
    from minigraph.passes.split_reshaped import SplitReshaped
    from minigraph.passes.sum_squares import SumSquares
    from minigraph.passes.sync_batch_norm import SyncBatchNorm
    from minigraph.passes.transpose_into_matmul import TransposeIntoMatmul
    from minigraph.passes.transpose_once import TransposeOnce
    from minigraph.passes.transpose_weights import TransposeWeights
    from minigraph.passes.turn_transposes import TurnTransposes
    from minigraph.passes.unroll_loops import UnrollLoops
    from minigraph.passes.unroll_recurrent import UnrollRecurrent
    from minigraph.passes.weighted_means import WeightMeans
    from minigraph.passes.write_out_gates import WriteOutGates
    from minigraph.passes.write_out_units import WriteOutUnits
    from minigraph.passes.write_where_assigned import WriteWhereAssigned

__all__ = [
    "EXACT",
    "IN_ORDER",
    "LEGALIZE",
    "LOWERING",
    "BroadcastExpanded",
    "CleanUp",
    "ClipGradients",
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
    **dict.fromkeys(("GradAllReduce", "LocalSGD"), "minigraph.passes.collective"),
    "PadSequences": "minigraph.passes.pad_sequences",
    "Recompute": "minigraph.passes.recompute",
    "ShardBatch": "minigraph.passes.shards",
    "ShardOptimizerState": "minigraph.passes.shard_state",
    "SyncBatchNorm": "minigraph.passes.sync_batch_norm",
    "WeightMeans": "minigraph.passes.weighted_means",
}
"""Passes that no executor applies, and their modules."""

_OF_EXECUTORS = {*__all__} - {"ClipGradients", "Pass", "Pipeline"} - {*_OTHERS}

refuse_unknown_names(__name__, **_OTHERS, **dict.fromkeys(_OF_EXECUTORS, "minigraph.passes.pipelines"))
