"""Gradient operators as ordinary ones, so that gradients of gradients need no second set of kernels.

A rule says how to compute what a ``*_grad`` operator computes, by operators that have gradient rules themselves.
`minigraph.backward` rewrites by these rules the gradient operators that it is to differentiate. Their values change by
rounding only.

Where a gradient operator has a gradient rule of its own there is no need for a rule here: the gradient of a linear
operator's gradient is the operator itself, and definitions say so (`minigraph.gradient_rules.FusedGrad`); and for some
there are operators in fluid, such as ``square_grad_grad`` (`minigraph.ops.second_order`). These have rules, for third
gradients.
"""

from __future__ import annotations

import minigraph.second_order.activation
import minigraph.second_order.branches
import minigraph.second_order.clip
import minigraph.second_order.elementwise
import minigraph.second_order.indexing
import minigraph.second_order.loops
import minigraph.second_order.loss
import minigraph.second_order.matrix
import minigraph.second_order.networks
import minigraph.second_order.norm
import minigraph.second_order.normalization
import minigraph.second_order.products
import minigraph.second_order.rectifier
import minigraph.second_order.recurrent
import minigraph.second_order.reduce
import minigraph.second_order.reshaping
import minigraph.second_order.twice  # noqa: F401
from minigraph.second_order.rewriting import RULES, Rewriting, has_rule, rewrite, rewritten_as

__all__ = ["RULES", "Rewriting", "has_rule", "rewrite", "rewritten_as"]
