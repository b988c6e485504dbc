"""Rows for convolutions and pooling of volumes."""

from minigraph.rewrite.random_programs.sampling import distinct, floats, sample

_X = distinct(1, 1, 4, 2, 2)

SAMPLES = [
    *(
        sample("conv3d", Input=floats(*x), Filter=floats(*filter), **attrs)
        for x, filter, attrs in [
            ((2, 2, 3, 4, 3), (3, 2, 2, 3, 2), {}),
            ((1, 4, 4, 3, 3), (4, 2, 2, 2, 2), {"groups": 2, "strides": [2, 1, 2], "paddings": [1, 0, 1, 1, 0, 2]}),
            ((1, 2, 5, 4, 4), (2, 2, 2, 2, 1), {"dilations": [3, 2, 1], "paddings": [2, 1, 0]}),
            ((1, 3, 4, 3, 2), (2, 2, 3, 2, 2), {"data_format": "NDHWC", "padding_algorithm": "SAME"}),
            ((2, 1, 3, 3, 3), (1, 1, 1, 1, 1), {"padding_algorithm": "VALID"}),
            ((1, 1, 1, 1, 1), (1, 1, 1, 1, 1), {}),
            ((0, 1, 3, 3, 3), (1, 1, 2, 2, 2), {}),
            ((1, 1, 2, 2, 2), (1, 1, 2, 2, 2), {"strides": [3, 3, 3], "paddings": [2, 2, 2]}),
        ]
    ),
    *(
        sample("conv3d_transpose", Input=floats(*x), Filter=floats(*filter), **attrs)
        for x, filter, attrs in [
            ((2, 2, 2, 3, 2), (2, 2, 2, 2, 3), {}),
            ((1, 4, 2, 2, 2), (4, 1, 3, 2, 3), {"groups": 2, "strides": [2, 1, 3], "paddings": [1, 0, 1, 0, 1, 2]}),
            ((1, 2, 2, 2, 1), (1, 2, 2, 2, 2), {"data_format": "NHWC", "strides": [2, 2, 2], "output_size": [5, 4, 4]}),
            ((1, 1, 2, 3, 2), (1, 1, 2, 2, 2), {"dilations": [2, 1, 3]}),
            ((1, 1, 3, 3, 3), (1, 1, 2, 2, 2), {"padding_algorithm": "SAME", "strides": [2, 2, 2]}),
            ((0, 1, 2, 2, 2), (1, 1, 2, 2, 2), {}),
        ]
    ),
    *(
        sample("pool3d", X=distinct(*x), pooling_type=pooling_type, ksize=ksize, **attrs)
        for pooling_type in ("max", "avg")
        for x, ksize, attrs in [
            ((2, 2, 4, 3, 4), [2, 2, 2], {"strides": [2, 1, 2]}),
            ((1, 1, 3, 4, 3), [3, 2, 2], {"strides": [2, 2, 1], "paddings": [1, 1, 0], "exclusive": False}),
            ((1, 1, 3, 4, 3), [2, 2, 2], {"strides": [2, 2, 2], "ceil_mode": True}),
            ((1, 3, 4, 3, 2), [2, 3, 2], {"strides": [2, 2, 2], "padding_algorithm": "SAME", "data_format": "NDHWC"}),
            ((2, 2, 2, 3, 2), [1, 1, 1], {"global_pooling": True}),
            ((1, 2, 4, 6, 4), [2, 3, 2], {"adaptive": True}),
            ((1, 1, 1, 1, 1), [1, 1, 1], {}),
            ((0, 1, 2, 2, 2), [2, 2, 2], {}),
        ]
    ),
    *(
        sample("pool3d_grad_grad", X=_X, Out=out, DDX=floats(*_X.shape), wrt="DDX", pooling_type="max", **attrs)
        for out, attrs in [
            (_X.reshape(1, 1, 2, 2, 1, 2, 1, 2).max((3, 5, 7)), {"ksize": [2, 2, 2], "strides": [2, 2, 2]}),
            (_X.max((2, 3, 4), keepdims=True), {"ksize": [1, 1, 1], "global_pooling": True}),
        ]
    ),
    *(
        sample("max_pool3d_with_index", X=distinct(*x), ksize=ksize, **attrs)
        for x, ksize, attrs in [
            ((2, 2, 3, 4, 3), [2, 2, 2], {"strides": [1, 2, 1]}),
            ((1, 1, 4, 3, 3), [2, 2, 2], {"paddings": [1, 1, 0]}),
            ((1, 2, 3, 4, 5), [2, 2, 3], {"adaptive": True}),
            ((1, 2, 2, 3, 2), [1, 1, 1], {"global_pooling": True}),
            ((0, 1, 2, 2, 2), [2, 2, 2], {}),
        ]
    ),
]
