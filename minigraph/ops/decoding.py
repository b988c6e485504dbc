"""Search for the best sequences: what turns the choices of each step into sequences."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.ops.tensor import require_integers
from minigraph.types import TensorType, merge_shapes, require, require_same_dtype


@op("gather_tree", inputs="Ids Parents", outputs="Out", grad=None)
def gather_tree(ids: TensorType, parents: TensorType) -> TensorType:
    """``Out[:, b, k]`` is the sequence that ends in ``Ids[-1, b, k]``, read backwards along Parents.

    Ids and Parents are [time, batch, beams]: the tokens that a beam search chose in each step, and the beams of the
    step before that the tokens continue.
    """
    require_integers(ids, "Ids")
    require_same_dtype("Ids and Parents", ids, parents)
    require(ids.rank == 3, f"Ids must be [time, batch, beams], got {ids}")
    return ids.with_shape(merge_shapes(ids.shape, parents.shape, "Ids and Parents"))
