"""CUDA kernels of operators; importing this registers them."""

import minigraph.kernels.cuda.norms
import minigraph.kernels.cuda.updates  # noqa: F401
