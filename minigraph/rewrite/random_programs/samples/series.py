"""Rows for ranges, grids and masks."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, number, sample

_RANGES = [(0, 10, 3), (10, 0, -3), (-2, -2, 1), (0, 3, 1)]

SAMPLES = [
    *(
        sample("range", Start=np.array([a], dtype), End=np.array([b], dtype), Step=np.array([by], dtype))
        for dtype in ("int32", "int64")
        for a, b, by in _RANGES
    ),
    *(
        sample("range", Start=number(a), End=number(b), Step=number(by))
        for a, b, by in ((0.0, 1.0, 0.25), (5.0, 1.0, -1.5), (2.0, 2.0, 1.0))
    ),
    *(
        sample("linspace", Start=number(a), Stop=number(b), Num=ints(count, count + 1, 1, dtype="int32"))
        for a, b, count in ((0.0, 1.0, 5), (3.0, 1.0, 4), (2.0, 9.0, 1), (1.0, 1.0, 2))
    ),
    *(
        sample("meshgrid", X=[floats(size) for size in sizes])
        for sizes in ((3, 4), (2, 1, 3), (4,), (0, 2), (1, 1))
    ),
    sample("meshgrid", X=[ints(0, 9, 2), ints(0, 9, 3)]),
    *(
        sample("sequence_mask", X=x, out_dtype=dtype, **attrs)
        for x, attrs in (
            (ints(0, 5, 3), {"maxlen": 4}), (ints(0, 5, 2, 2, dtype="int32"), {}), (ints(0, 5, 0), {}),
            (ints(-3, 0, 2), {}), (ints(0, 5, 3), {"MaxLenTensor": ints(3, 4, 1, dtype="int32")}),
        )
        for dtype in (3, 5, 0)
    ),
]  # fmt: skip
