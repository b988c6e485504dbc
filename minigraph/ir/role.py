"""The role of an operator: forward, backward, optimization, clipping."""

import enum


class Role(enum.IntFlag):
    """The purpose of an operator, with fluid's numbers for ``op_role``."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZE = 2
    RPC = 4
    DIST = 8
    LR_SCHED = 16
    LOSS = 256
    # Finer than fluid, whose ``op_role`` leaves them out.
    CLIP = 1 << 16
    REGULARIZE = 1 << 17
    RECOMPUTE = 1 << 18

    __and__ = int.__and__  # type: ignore[assignment]  # asked of every operator; that of enum makes a Role, in Python


_PURPOSES = (
    (Role.CLIP, "clip"),
    (Role.REGULARIZE, "decay"),
    (Role.LR_SCHED, "learning-rate"),
    (Role.OPTIMIZE, "update"),
    (Role.RECOMPUTE, "recomputed"),
    (Role.BACKWARD, "backward"),
    (Role.LOSS, "loss"),
)
"""Words for roles, the finer roles first, because clips and decay are part of the update, recomputation of backward."""


def purpose(role: int) -> str:
    """The one word that says most about an operator of this role, such as ``clip``; ``forward`` if there is none."""
    return next((word for each, word in _PURPOSES if role & each), "forward")
