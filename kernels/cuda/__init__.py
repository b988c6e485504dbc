"""Kernels for NVIDIA GPUs that are CUDA themselves: norms, clips and merged updates over any number of arrays at once.

The sources are the files ``*.cu`` beside this, and what `minigraph.kernels.cuda.updates` generates. They are compiled
when they are first needed, by CuPy. Each takes a table of arrays (addresses, sizes, types), so that the number of
launches does not depend on how many arrays there are, and nothing is waited for. Arrays of other types than float32
and float64 are left to the shared kernels.
"""

import minigraph.kernels.cuda.norms
import minigraph.kernels.cuda.updates  # noqa: F401
