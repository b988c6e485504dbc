"""Rewrite gradient operators as ordinary ones, so that second gradients need no kernels of their own.

A rule computes the results of a ``*_grad`` operator by operators that have gradient rules themselves.
`minigraph.autodiff.backward` rewrites the gradient operators that it has to differentiate by these rules. Values change
by rounding only. The rules are imported for the first gradient operator that is differentiated.

Two kinds of gradient operators need no rule here, because they have a gradient of their own: those of linear operators,
whose gradient is the operator itself (`minigraph.opdef.gradient_rules.FusedGrad`), and those for which fluid has
operators such as ``square_grad_grad`` (`minigraph.ops.second_order`). The latter have rules here for third gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

from minigraph.autodiff.decompositions import rewriting
from minigraph.ir import Block, Operator

__all__ = ["has_rule", "needs_rewriting", "rewrite"]


def has_rule(op: Operator) -> bool:
    """Whether there is a rule for the operator."""
    if "_grad" not in op.type:  # as the types of all gradient operators have it
        return False
    import minigraph.autodiff.decompositions.all_rules  # noqa: F401

    return rewriting.has_rule(op)


def needs_rewriting(op: Operator) -> bool:
    """Whether the operator is not differentiated as it stands."""
    return has_rule(op) or rewriting.is_norm_of_clip(op)


def rewrite(block: Block, ops: Sequence[Operator]) -> None:
    """Replace the operators of `ops` that need it; `ops` are operators of `block`, in order.

    Ordinary operators replace gradient operators. One operator, whose gradient is finite everywhere, replaces the chain
    of a global norm.
    """
    import minigraph.autodiff.decompositions.all_rules  # noqa: F401

    rewriting.rewrite(block, ops)
