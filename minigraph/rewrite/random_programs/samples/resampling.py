"""Rows for images in other sizes."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, sample

_PLACES = (
    {}, {"align_corners": False}, {"align_corners": False, "align_mode": 0}, {"data_layout": "NHWC"},
)  # fmt: skip

SAMPLES = [
    *(
        sample(f"{method}_interp", X=floats(2, 3, 4, 5), interp_method=method, **sizes, **places)
        for method in ("nearest", "bilinear")
        for places in _PLACES
        for sizes in ({"out_h": 7, "out_w": 3}, {"scale": 1.5}, {"out_h": 1, "out_w": 5})
    ),
    *(
        sample(f"{method}_interp", X=floats(*shape), interp_method=method, out_h=3, out_w=2)
        for method in ("nearest", "bilinear")
        for shape in ((1, 1, 1, 1), (0, 2, 3, 3), (1, 2, 1, 6))
    ),
    *(
        sample("bilinear_interp", X=floats(1, 2, 3, 3), **given)
        for given in (
            {"OutSize": np.array([5, 2], "int32")}, {"Scale": np.array([2.0], "float32")},
            {"SizeTensor": [np.array([4], "int32"), np.array([6], "int32")], "out_h": 4, "out_w": -1},
        )
    ),
    sample("nearest_interp", X=ints(0, 9, 1, 2, 3, 3), interp_method="nearest", out_h=6, out_w=6),
    sample("nearest_interp", X=floats(1, 2, 3, 3), out_h=4, out_w=7),
    sample("bilinear_interp", X=floats(1, 2, 3, 3), interp_method="nearest", out_h=4, out_w=7),
    *(sample("trilinear_interp", X=floats(1, 2, 3, 4, 2), **sizes) for sizes in ({"scale": 2.0},
      {"out_d": 2, "out_h": 5, "out_w": 3, "align_corners": False, "align_mode": 0})),
    sample("trilinear_interp", X=floats(1, 2, 3, 2, 2), out_d=1, out_h=3, out_w=4, data_layout="NHWC"),
]  # fmt: skip
