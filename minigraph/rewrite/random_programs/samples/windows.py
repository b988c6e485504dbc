"""Rows for regions and windows, for products of two inputs, and for divisions by norms."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import floats, ints, positive, sample


def _sizes(*numbers: int) -> np.ndarray:
    return np.array(numbers, "int32")


_TREES = np.array([[[1, 2], [1, 3], [1, 4], [3, 5], [3, 6]], [[2, 1], [1, 3], [0, 0], [1, 2], [0, 0]]], "int32")
"""Edges of two trees, the second of which ends at the first 0."""

SAMPLES = [
    sample("crop", X=floats(4, 3, 5), shape=[2, 3, 2], offsets=[1, 0, 3]),
    sample("crop", X=floats(4, 3), shape=[-1, 2], offsets=[0, 1], known="X"),
    sample("crop", X=floats(4, 3), Y=floats(2, 3), offsets=[2, 0]),
    sample("crop", X=ints(0, 9, 4, 3), shape=[2, 1], Offsets=_sizes(2, 1)),
    sample("crop", X=floats(4, 3), shape=[2, 1], Offsets=_sizes(2, 1)),
    sample("crop", X=floats(1, 1), shape=[1, 1], offsets=[0, 0]),
    sample("crop", X=floats(0, 3), shape=[0, 2], offsets=[0, 1]),
    sample("crop_tensor", X=floats(4, 3, 5), shape=[2, -1, 2], offsets=[1, 1, 3], known="X"),
    sample("crop_tensor", X=floats(4, 3), shape=[2, 1], offsets=[-1, -1], Offsets=_sizes(2, 1)),
    sample("crop_tensor", X=floats(4, 3), Shape=_sizes(2, -1), offsets=[1, 1]),
    sample(
        "crop_tensor", X=floats(4, 3), shape=[2, 0], offsets=[1, -1], ShapeTensor=[_sizes(2), _sizes(1)],
        OffsetsTensor=[_sizes(1), _sizes(2)],
    ),
    sample("crop_tensor", X=floats(1, 1), shape=[1, 1], offsets=[0, 0]),
    *(
        sample(
            "unfold", X=floats(*x), kernel_sizes=size, **{"strides": [1, 1], "paddings": [0] * 4, "dilations": [1, 1],
            **attrs},
        )
        for x, size, attrs in [
            ((2, 3, 4, 5), [2, 3], {}), ((1, 2, 5, 4), [2, 2], {"strides": [2, 1], "paddings": [1, 0, 2, 1]}),
            ((1, 1, 5, 5), [2, 2], {"dilations": [2, 3]}), ((2, 2, 3, 3), [1, 1], {}), ((1, 1, 1, 1), [1, 1], {}),
            ((0, 2, 3, 3), [2, 2], {}),
        ]
    ),
    sample("bilinear_tensor_product", X=floats(3, 2), Y=floats(3, 4), Weight=floats(5, 2, 4), Bias=floats(1, 5)),
    sample("bilinear_tensor_product", X=floats(1, 1), Y=floats(1, 1), Weight=floats(1, 1, 1)),
    sample("bilinear_tensor_product", X=floats(0, 2), Y=floats(0, 3), Weight=floats(2, 2, 3), Bias=floats(1, 2)),
    sample("fsp", X=floats(2, 3, 2, 4), Y=floats(2, 2, 2, 4)),
    sample("fsp", X=floats(1, 1, 1, 1), Y=floats(1, 1, 1, 1)),
    sample("fsp", X=floats(0, 2, 2, 2), Y=floats(0, 3, 2, 2)),
    sample("tree_conv", NodesVector=floats(2, 6, 3), EdgeSet=_TREES, Filter=floats(3, 3, 2, 2), max_depth=3),
    sample("tree_conv", NodesVector=floats(2, 6, 1), EdgeSet=_TREES, Filter=floats(1, 3, 1, 1)),
    sample("tree_conv", NodesVector=floats(1, 1, 1), EdgeSet=_TREES[:1, :0], Filter=floats(1, 3, 1, 1)),
    sample("tree_conv", NodesVector=floats(0, 2, 2), EdgeSet=_TREES[:0], Filter=floats(2, 3, 2, 1)),
    sample("row_conv", X=floats(2, 5, 3), Filter=floats(3, 3)),
    sample("row_conv", X=floats(2, 2, 3), Filter=floats(4, 3)),
    sample("row_conv", X=floats(1, 1, 1), Filter=floats(1, 1)),
    sample("row_conv", X=floats(0, 4, 2), Filter=floats(2, 2)),
    # Without power iterations, the derivatives of which the gradient leaves out, as in fluid.
    *(
        sample("spectral_norm", Weight=floats(*shape), U=positive(u), V=positive(v), dim=dim, power_iters=0)
        for shape, u, v, dim in [((3, 4), 3, 4, 0), ((2, 3, 2, 2), 3, 8, 1), ((1, 1), 1, 1, 0)]
    ),
    *(
        sample("lrn", X=floats(*x), **attrs)
        for x, attrs in [
            ((2, 6, 2, 3), {}), ((1, 5, 2, 2), {"n": 4, "k": 1.0, "alpha": 0.5, "beta": 0.5}),
            ((1, 2, 3, 5), {"n": 3, "alpha": 0.3, "data_format": "NHWC"}), ((1, 2, 1, 2), {"n": 7, "alpha": 1.0}),
            ((1, 1, 1, 1), {"n": 1}), ((0, 3, 2, 2), {}),
        ]
    ),
]  # fmt: skip
