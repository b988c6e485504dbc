"""The passes that executors apply, in order.

`LEGALIZE` says what programs mean. Executors apply `LOWERING` to their private copy. Its part `EXACT` changes no bit of
a result; each other pass says how far it changes the rounding. In the copy a variable has values of one type
(`minigraph.lowering.steps.concretize`); several of these passes rely on it.
`minigraph.executor.compiled_program.BuildStrategy` turns passes of `IN_ORDER` on and off, except those of `LEGALIZE`.
"""

from minigraph.passes.base import Pass, Pipeline
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
from minigraph.passes.ranks.merge_exchanges import MergeExchanges
from minigraph.passes.recognize.find_cross_entropy import FindCrossEntropy
from minigraph.passes.recognize.find_global_norm import FindGlobalNorm
from minigraph.passes.recognize.find_gradient_descent import FindGradientDescent
from minigraph.passes.recognize.find_momentum import FindMomentum
from minigraph.passes.recognize.find_normalizations import FindNormalizations
from minigraph.passes.recognize.fuse_global_norm import FuseGlobalNorm
from minigraph.passes.recognize.group_convolutions import GroupConvolutions
from minigraph.passes.unroll.compute_branches import ComputeBranches
from minigraph.passes.unroll.name_elements import NameElements
from minigraph.passes.unroll.number_bounds import NumberBounds
from minigraph.passes.unroll.unroll_loops import UnrollLoops
from minigraph.passes.unroll.unroll_recurrent import UnrollRecurrent
from minigraph.passes.unroll.write_out_gates import WriteOutGates
from minigraph.passes.unroll.write_out_units import WriteOutUnits

# Each pass makes work for later ones: copies hide equal operators, only merged updates take the factor of a clip, and
# readers that are dead would keep values that the last two passes want for one operator alone.
IN_ORDER: tuple[Pass, ...] = (
    FuseGlobalNorm(), MergeExchanges(), ComputeBranches(), UnrollRecurrent(), UnrollLoops(), NameElements(),
    NumberBounds(), WriteOutUnits(), WriteOutGates(), OrderOperands(), PickElements(), MoveFactors(), ShareGradients(),
    FindCrossEntropy(), MeanOfAll(), FindNormalizations(), FoldConstants(), ScaleByConstants(), MultiplyPowers(),
    SumSquares(), BroadcastExpanded(), SliceRows(), JoinSlices(), SplitReshaped(), MoveJoins(), GroupConvolutions(),
    FoldBatchNorms(), MatmulToMul(), TransposeWeights(), SplitProducts(), SplitOperands(), CleanUp(), ScaleIntoMatmul(),
    TurnTransposes(), TransposeIntoMatmul(), ShareCommonSubexpressions(), FuseSoftmaxCrossEntropy(), SkipJoins(),
    MergeMatmuls(), MergeColumnSums(), MergeProducts(), TransposeOnce(), FindGlobalNorm(), FindGradientDescent(),
    FindMomentum(), KeepRows(), MergeElementwise(), MergeUpdates(), ShrinkInUpdate(), FuseMeanLoss(), FreeAddends(),
    RemoveDeadOps(), WriteWhereAssigned(), FuseElementwise(), SkipAssigns(),
)  # fmt: skip
"""Passes that executors may apply, in the order in which they run."""

_ON_REQUEST = frozenset({"TransposeIntoMatmul", "FuseSoftmaxCrossEntropy"})

LEGALIZE: Pipeline = Pipeline((FuseGlobalNorm(), RemoveDeadOps()))
LOWERING: Pipeline = Pipeline(tuple(each for each in IN_ORDER if each.name not in _ON_REQUEST))
EXACT: Pipeline = Pipeline(tuple(each for each in LOWERING if not each.changes_rounding))
