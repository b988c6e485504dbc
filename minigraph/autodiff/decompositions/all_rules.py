"""All rules; importing this registers them."""

import minigraph.autodiff.decompositions.activation
import minigraph.autodiff.decompositions.branches
import minigraph.autodiff.decompositions.clip
import minigraph.autodiff.decompositions.double_gradients
import minigraph.autodiff.decompositions.elementwise
import minigraph.autodiff.decompositions.from_kernels
import minigraph.autodiff.decompositions.indexing
import minigraph.autodiff.decompositions.loops
import minigraph.autodiff.decompositions.loss
import minigraph.autodiff.decompositions.matrix
import minigraph.autodiff.decompositions.networks
import minigraph.autodiff.decompositions.norm
import minigraph.autodiff.decompositions.normalization
import minigraph.autodiff.decompositions.products
import minigraph.autodiff.decompositions.recurrent
import minigraph.autodiff.decompositions.reduce
import minigraph.autodiff.decompositions.reshaping
import minigraph.autodiff.decompositions.scaling  # noqa: F401
from minigraph.autodiff.decompositions.rewriting import RULES

__all__ = ["RULES"]
