"""Rows for images whose elements are moved, padded, or scaled by channel."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, sample

SAMPLES = [
    *(
        sample("pixel_shuffle", X=floats(*shape), upscale_factor=factor)
        for shape, factor in (((2, 8, 2, 3), 2), ((1, 9, 1, 1), 3), ((2, 3, 2, 2), 1), ((0, 4, 1, 2), 2))
    ),
    *(
        sample("space_to_depth", X=x, blocksize=size)
        for x, size in (
            (floats(2, 4, 4, 6), 2), (ints(0, 9, 1, 9, 3, 3), 3), (floats(1, 8, 2, 2), 2), (floats(0, 4, 2, 2), 2),
        )
    ),
    *(
        sample("shuffle_channel", X=floats(*shape), group=group)
        for shape, group in (((2, 6, 2, 3), 2), ((1, 6, 1, 1), 3), ((2, 1, 2, 2), 1), ((0, 4, 1, 2), 2))
    ),
    *(
        sample("temporal_shift", X=floats(*shape), seg_num=frames, **attrs)
        for shape, frames, attrs in (
            ((6, 4, 2, 3), 3, {}), ((4, 8, 1, 2), 2, {"shift_ratio": 0.4}), ((3, 4, 1, 1), 1, {}),
            ((0, 4, 1, 2), 2, {}), ((2, 2, 2, 2), 2, {}),
        )
    ),
    *(
        sample("affine_channel", X=floats(*shape), Scale=floats(3), Bias=floats(3), **attrs)
        for shape, attrs in (
            ((2, 3, 4, 5), {}), ((2, 4, 5, 3), {"data_layout": "NHWC"}), ((4, 3), {}),
            ((0, 3, 2, 2), {}), ((1, 3, 1, 1), {}),
        )
    ),
    *(
        sample("pad2d", X=floats(2, 2, 3, 4), paddings=paddings, mode=mode, **attrs)
        for mode in ("constant", "reflect", "edge")
        for paddings in ([1, 2, 0, 3], [0, 0, 0, 0], [2, 2, 1, 1])
        for attrs in ({}, {"pad_value": 2.5})
    ),
    *(
        sample("pad2d", X=floats(*shape), paddings=[1, 1, 2, 0], mode=mode, data_format="NHWC")
        for mode in ("constant", "reflect", "edge")
        for shape in ((2, 2, 3, 2), (0, 4, 5, 1))
    ),
    *(
        sample("pad2d", X=floats(1, 2, 3, 3), Paddings=np.array([1, 0, 2, 1], "int32"), mode=mode)
        for mode in ("constant", "reflect", "edge")
    ),
    sample("pad2d", X=floats(1, 1, 1, 1), paddings=[2, 1, 0, 3], mode="edge"),
    sample("pad2d", X=ints(0, 9, 1, 1, 2, 2), paddings=[1, 1, 1, 1], pad_value=-3.0),
    *(
        sample("pad_constant_like", X=floats(*like), Y=y, pad_value=1.5)
        for like, y in (((3, 4), floats(2, 4)), ((2, 2, 3), floats(1, 2, 1)), ((3,), floats(0)), ((2, 2), floats(2, 2)))
    ),
    sample("pad_constant_like", X=ints(0, 9, 3), Y=ints(0, 9, 2), pad_value=-1.0),
]  # fmt: skip
