"""Rewrite gradient operators as ordinary ones, so that second gradients need no kernels of their own.

A rule computes the results of a ``*_grad`` operator by operators that have gradient rules themselves.
`minigraph.autodiff.backward` rewrites the gradient operators that it has to differentiate by these rules. Values change
by rounding only.

Two kinds of gradient operators need no rule here, because they have a gradient of their own: those of linear operators,
whose gradient is the operator itself (`minigraph.opdef.gradient_rules.FusedGrad`), and those for which fluid has
operators such as ``square_grad_grad`` (`minigraph.ops.second_order`). The latter have rules here for third gradients.
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
import minigraph.autodiff.decompositions.reshaping
import minigraph.autodiff.decompositions.scaling  # noqa: F401
from minigraph.autodiff.decompositions.rewriting import (
    RULES,
    Rewriting,
    has_rule,
    needs_rewriting,
    rewrite,
    rewritten_as,
)

__all__ = ["RULES", "Rewriting", "has_rule", "needs_rewriting", "rewrite", "rewritten_as"]
