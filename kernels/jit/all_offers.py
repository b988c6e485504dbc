"""All offers of compiled loops, and recordings of operators as calls of C; importing this registers them."""

import minigraph.kernels.jit.by_number
import minigraph.kernels.jit.conv
import minigraph.kernels.jit.crf
import minigraph.kernels.jit.ctc
import minigraph.kernels.jit.fused
import minigraph.kernels.jit.losses
import minigraph.kernels.jit.merged_elementwise
import minigraph.kernels.jit.moves
import minigraph.kernels.jit.native
import minigraph.kernels.jit.normalization
import minigraph.kernels.jit.norms
import minigraph.kernels.jit.pointwise
import minigraph.kernels.jit.recurrent
import minigraph.kernels.jit.rows
import minigraph.kernels.jit.sequence_pool
import minigraph.kernels.jit.sequence_scores
import minigraph.kernels.jit.sequence_windows
import minigraph.kernels.jit.small_products
import minigraph.kernels.jit.sums
import minigraph.kernels.jit.updates  # noqa: F401
