"""Rows for connectionist temporal classification."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, sample

SAMPLES = [
    *(
        sample(
            "warpctc", Logits=floats(*shape), Label=ints(1, shape[2], shape[1], labels, dtype="int32"),
            LogitsLength=np.array(steps, "int64"), LabelLength=np.array(counts, "int64"), dtypes=("float64", "float32"),
            **attrs,
        )
        for shape, labels, steps, counts, attrs in (
            ((6, 3, 5), 3, [6, 4, 5], [3, 2, 0], {}), ((5, 2, 3), 2, [5, 5], [2, 1], {}),
            ((1, 1, 2), 1, [1], [1], {}), ((4, 2, 3), 1, [0, 4], [1, 1], {}),
        )
    ),
    sample(
        "warpctc", Logits=floats(5, 2, 4), Label=ints(0, 3, 2, 2, dtype="int32"), LogitsLength=np.array([5, 4]),
        LabelLength=np.array([2, 1]), blank=3, dtypes=("float64", "float32"),
    ),
    *(
        sample("ctc_align", Input=ints(0, 3, *shape), InputLength=np.array(lengths).reshape(-1, 1), **attrs)
        for shape, lengths in (((3, 6), [6, 0, 4]), ((1, 1), [1]))
        for attrs in ({}, {"blank": 1, "padding_value": 7}, {"merge_repeated": False})
    ),
]  # fmt: skip
