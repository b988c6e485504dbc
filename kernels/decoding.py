"""Sequences from the choices of each step of a search."""

from __future__ import annotations

from minigraph.kernels.indexing import require_inside
from minigraph.kernels.registry import kernel


@kernel("gather_tree")
def gather_tree(xp, ids, parents):
    steps, _, beams = ids.shape
    require_inside(xp, parents, beams, "Parents")
    result = ids.copy()
    if steps == 0:
        return result
    # The beams of the step that is read next, for all sequences at once.
    beam = parents[-1]
    for step in range(steps - 2, -1, -1):
        result[step] = xp.take_along_axis(ids[step], beam, 1)
        beam = xp.take_along_axis(parents[step], beam, 1)
    return result
