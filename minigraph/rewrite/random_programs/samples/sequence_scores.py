"""Rows for scores of sequences."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import ints, sample

SAMPLES = [
    *(
        sample(
            "chunk_eval", Inference=ints(0, 2 * tags + 1, 3, 6), Label=ints(0, 2 * tags + 1, 3, 6),
            SeqLength=np.array([6, 0, 4]), chunk_scheme=scheme, num_chunk_types=2, **attrs,
        )
        for scheme, tags in (("IOB", 2), ("IOE", 2), ("IOBES", 4), ("plain", 1))
        for attrs in ({}, {"excluded_chunk_types": [1]})
    ),
    *(
        sample(
            "edit_distance", Hyps=ints(0, 3, batch, m), Refs=ints(0, 3, batch, n), HypsLength=ints(0, m + 1, batch),
            RefsLength=ints(1, n + 1, batch), normalized=normalized,
        )
        for batch, m, n in ((3, 5, 4), (1, 1, 1), (2, 3, 6), (0, 2, 2))
        for normalized in (True, False)
    ),
]  # fmt: skip
