"""Rows for decoding."""

from minigraph.rewrite.random_programs.sampling import ints, sample

SAMPLES = [
    *(
        sample("gather_tree", Ids=ints(0, 9, *shape, dtype=dtype), Parents=ints(0, shape[2], *shape, dtype=dtype))
        for shape in ((4, 2, 3), (1, 2, 3), (5, 1, 1), (3, 0, 2))
        for dtype in ("int32", "int64")
    ),
]  # fmt: skip
