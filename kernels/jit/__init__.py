"""Kernels for the processor that numba compiles, offered beside the shared ones where arrays are large enough.

What is compiled are the plain functions in `minigraph.kernels.jit.loops`: loops over arrays that use nothing of Python
but numbers. The other modules here offer them for operators, as specializers do: when a plan is built, an offer sees
shapes, types and attributes, and returns a function of the arrays, or None to leave the shared kernel in place. numba
is imported when the first offer is taken up.

Updates of parameters give the bits of the shared kernels, because each number goes through the same roundings. Sums and
exponentials round otherwise; each module says how much.
"""

import minigraph.kernels.jit.by_number
import minigraph.kernels.jit.conv
import minigraph.kernels.jit.crf
import minigraph.kernels.jit.ctc
import minigraph.kernels.jit.fused
import minigraph.kernels.jit.losses
import minigraph.kernels.jit.moves
import minigraph.kernels.jit.native
import minigraph.kernels.jit.normalization
import minigraph.kernels.jit.norms
import minigraph.kernels.jit.recurrent
import minigraph.kernels.jit.rows
import minigraph.kernels.jit.sequence_pool
import minigraph.kernels.jit.sequence_scores
import minigraph.kernels.jit.sequence_windows
import minigraph.kernels.jit.small_products
import minigraph.kernels.jit.sums
import minigraph.kernels.jit.updates  # noqa: F401
from minigraph.kernels.jit.compiling import is_available, require

__all__ = ["is_available", "require"]
