"""Rewrite gradient operators as ordinary ones, so that second gradients need no kernels of their own.

A rule says how to compute what a ``*_grad`` operator computes, by operators that have gradient rules themselves.
`minigraph.autodiff.backward` rewrites by these rules the gradient operators that it is to differentiate. Their values
change by rounding only.

Where a gradient operator has a gradient rule of its own there is no need for a rule here: the gradient of a linear
operator's gradient is the operator itself, and definitions say so (`minigraph.opdef.gradient_rules.FusedGrad`); and
for some there are operators in fluid, such as ``square_grad_grad`` (`minigraph.ops.second_order`). These have rules,
for third gradients.
"""

from __future__ import annotations

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
import minigraph.autodiff.decompositions.reshaping  # noqa: F401
from minigraph.autodiff.decompositions.rewriting import (
    RULES,
    Rewriting,
    has_rule,
    needs_rewriting,
    rewrite,
    rewritten_as,
)

__all__ = ["RULES", "Rewriting", "has_rule", "needs_rewriting", "rewrite", "rewritten_as"]
