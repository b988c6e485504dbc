"""Rows for convolutions, pooling, normalization and lookups."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import distinct, floats, ints, number, positive, sample

_CONVOLUTIONS = [
    sample(name, Input=floats(*x), Filter=floats(*filter), **attrs)
    for name in ("conv2d", "depthwise_conv2d")
    for x, filter, attrs in [
        ((2, 3, 5, 4), (4, 3, 3, 2), {}),
        ((2, 4, 5, 4), (6, 2, 2, 2), {"groups": 2, "strides": [2, 1], "paddings": [1, 0, 2, 1]}),
        ((1, 2, 7, 6), (4, 1, 3, 2), {"groups": 2, "dilations": [2, 3], "paddings": [1, 1]}),
        ((2, 5, 6, 2), (3, 2, 3, 2), {"data_format": "NHWC", "padding_algorithm": "SAME", "strides": [2, 3]}),
        ((2, 5, 6, 4), (2, 2, 2, 3), {"data_format": "NHWC", "padding_algorithm": "VALID", "groups": 2}),
        ((2, 5, 6, 1), (3, 1, 3, 2), {"data_format": "NHWC", "dilations": [2, 1]}),
        ((1, 1, 5, 5), (2, 1, 3, 3), {"padding_algorithm": "SAME", "dilations": [2, 2]}),
        ((2, 3, 4, 4), (2, 3, 1, 1), {}),
        ((1, 1, 1, 1), (1, 1, 1, 1), {}),
        ((0, 3, 4, 4), (2, 3, 3, 3), {"paddings": [1, 1]}),
        ((2, 1, 2, 2), (1, 1, 2, 2), {"strides": [3, 3], "paddings": [2, 2]}),
        ((1, 2, 3, 4), (2, 1, 4, 6), {"strides": [2, 3], "groups": 2}),
    ]
]

_POOLINGS = [
    sample("pool2d", X=distinct(*x), pooling_type=pooling_type, ksize=ksize, **attrs)
    for pooling_type in ("max", "avg")
    for x, ksize, attrs in [
        ((2, 2, 5, 4), [2, 2], {"strides": [2, 2]}),
        ((2, 2, 5, 4), [3, 2], {"strides": [2, 1], "paddings": [1, 1]}),
        ((1, 2, 5, 4), [3, 2], {"paddings": [0, 2, 1, 0], "exclusive": False}),
        ((1, 2, 5, 5), [2, 2], {"strides": [2, 2], "ceil_mode": True}),
        ((1, 2, 6, 6), [2, 3], {"strides": [3, 2], "paddings": [1, 1], "ceil_mode": True, "exclusive": False}),
        ((2, 5, 6, 2), [3, 3], {"strides": [2, 2], "padding_algorithm": "SAME", "data_format": "NHWC"}),
        ((2, 3, 4, 5), [1, 1], {"global_pooling": True}),
        ((2, 4, 5, 3), [1, 1], {"global_pooling": True, "data_format": "NHWC"}),
        ((1, 2, 6, 5), [2, 3], {"adaptive": True}),
        ((1, 7, 5, 2), [3, 2], {"adaptive": True, "data_format": "NHWC"}),
        ((1, 1, 1, 1), [1, 1], {}),
        ((0, 2, 4, 4), [2, 2], {"strides": [2, 2]}),
        ((1, 2, 3, 4), [4, 6], {"strides": [2, 3]}),
        ((1, 2, 3, 4), [5, 5], {"strides": [5, 3], "paddings": [0, 1], "exclusive": False}),
    ]
]

_PER_CHANNEL = {"Scale": positive(3), "Bias": floats(3), "Mean": floats(3), "Variance": positive(3)}

_NORMALIZATIONS = [
    *(
        # In float16 the variance of a few elements is too rough to compare.
        sample(name, X=x, **_PER_CHANNEL, **attrs, dtypes=("float64", "float32"), tolerance=1e-5)
        for shape, attrs in [
            ((4, 3), {}), ((2, 3, 4), {"epsilon": 1e-3}), ((2, 3, 2, 4), {"momentum": 0.5}),
            ((2, 3, 2, 2, 2), {}), ((2, 4, 2, 3), {"data_layout": "NHWC"}), ((4, 3), {"use_global_stats": True}),
            ((2, 3, 4), {"is_test": True}), ((2, 3, 4), {"is_test": True, "trainable_statistics": True}),
            ((2, 4, 3), {"data_layout": "NHWC", "is_test": True}), ((1, 3), {}), ((0, 3, 2), {}),
            ((4, 3), {"MomentumTensor": number(0.5)}),
        ]
        for x in [2 * floats(*shape)]
        for name in ("batch_norm", "sync_batch_norm")
    ),
    *(
        sample("layer_norm", X=2 * floats(*shape), **given, begin_norm_axis=axis, tolerance=1e-5)
        for shape, axis, given in [
            ((3, 4), 1, {"Scale": positive(4), "Bias": floats(4)}), ((2, 3, 4), 1, {}),
            ((2, 3, 4), 2, {"Scale": positive(4)}), ((2, 3, 4), 1, {"Bias": floats(12)}), ((3, 1), 1, {}),
            ((0, 4), 1, {"Scale": positive(4), "Bias": floats(4)}), ((3, 0), 1, {}),
        ]
    ),
]  # fmt: skip

_LOOKUPS = [
    *(
        sample(name, W=floats(5, 3), Ids=ids.reshape(*ids.shape, 1) if name == "lookup_table" else ids, **attrs)
        for name in ("lookup_table", "lookup_table_v2")
        for ids, attrs in [
            (np.array([1, 4, 1, 0]), {}), (np.array([[1, 2], [2, 2]], "int32"), {"padding_idx": 2}),
            (np.array([[1, 9]]), {"padding_idx": 9}), (np.array([[3, 3]]), {"is_sparse": True}),
            (np.array([[1, 9, 1]]), {"padding_idx": 9, "is_sparse": True}),
            (np.zeros((0, 2), "int64"), {}),
        ]
    ),
    sample("lookup_table", W=ints(-4, 5, 4, 2), Ids=np.array([[1]])),
]  # fmt: skip

SAMPLES = [
    *_CONVOLUTIONS,
    sample("conv2d", Input=floats(2, 2, 4, 4), Filter=floats(3, 2, 2, 2), Bias=floats(3)),
    sample("conv2d", Input=floats(2, 4, 4, 2), Filter=floats(3, 2, 2, 2), Bias=floats(3), data_format="NHWC"),
    sample("conv2d", Input=floats(2, 3, 4, 4), Filter=floats(2, 3, 1, 1), Bias=floats(2)),
    *_POOLINGS,
    *_NORMALIZATIONS,
    *_LOOKUPS,
]
