"""Rows for making and rearranging tensors, for losses over classes and for random numbers."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import distinct, floats, ints, number, probabilities, sample

_TENSORS = [
    # Each type to each other
    *(
        sample("cast", X=values, in_dtype=source, out_dtype=target, dtypes=("float64",), wrt="")
        for source, values in {
            0: np.array([True, False]), 1: ints(-9, 9, 3, dtype="int16"), 2: ints(-9, 9, 3, dtype="int32"),
            3: ints(-9, 9, 3), 6: distinct(3, 2), 20: ints(0, 99, 3, dtype="uint8"), 21: ints(-9, 9, 3, dtype="int8"),
        }.items()
        for target in (0, 1, 2, 3, 4, 5, 6, 20, 21)
    ),
    sample("cast", X=floats(2, 3), in_dtype=6, out_dtype=6, dtypes=("float64",)),
    *(sample("assign", X=values) for values in (floats(2, 3), floats(0, 2), np.array([True, False]), ints(-9, 9, 3))),
    *(
        sample("scale", X=floats(2, 3), wrt="X", **tensor, **attrs)
        for tensor in ({}, {"ScaleTensor": number(1.7)})
        for attrs in [
            {}, {"scale": -2.5}, {"scale": 0.1, "bias": 0.3}, {"bias": 1.0},
            {"scale": 0.1, "bias": 0.3, "bias_after_scale": False},
        ]
    ),
    sample("scale", X=floats(0, 3), scale=2.0, bias=1.0),
    sample("scale", X=floats(1), ScaleTensor=number(1.7), bias=0.5, bias_after_scale=False, wrt="X"),
    *(
        sample("scale", X=ints(0, 40, 3, 4, dtype=dtype), scale=scale, bias=-1.0)
        for dtype in ("int8", "uint8", "int16", "int32", "int64")
        for scale in (-2.0, 1.7, 0.5)
    ),
    *(
        sample("reshape2", X=floats(*shape), shape=wanted)
        for shape, wanted in [
            ((2, 6), [3, 4]), ((2, 3, 4), [0, -1]), ((2, 3, 4), [-1, 0]), ((2, 3, 4), [4, 0, 2]), ((4,), [2, 1, 2]),
            ((1, 1), [1]), ((0, 3), [-1, 3]), ((0, 3), [0, -1]),
        ]
    ),
    sample("reshape2", X=floats(2, 6), Shape=np.array([-1, 4], "int32"), shape=[-1, 4]),
    sample("reshape2", X=floats(2, 6), ShapeTensor=[np.array([-1]), np.array([4])], shape=[-1, 4]),
    sample("reshape2", X=ints(0, 9, 2, 6), shape=[12]),
    *(
        sample("transpose2", X=floats(*shape), axis=axis)
        for shape, axis in [((2, 3), [1, 0]), ((2, 3, 4), [2, 0, 1]), ((3,), [0]), ((2, 0, 3), [1, 2, 0])]
    ),
    sample("transpose2", X=np.array([[True, False]]), axis=[1, 0]),
    sample("concat", X=[floats(2, 3), floats(1, 3), floats(0, 3)]),
    sample("concat", X=[floats(2, 1, 3), floats(2, 4, 3)], axis=-2),
    sample("concat", X=[floats(2, 3)], axis=1),
    sample("concat", X=[floats(2, 1), floats(2, 3)], AxisTensor=np.array([-1], "int32"), axis=0),
    sample("concat", X=[ints(0, 9, 2), ints(0, 9, 3)]),
    *(
        sample("fill_constant", shape=[2, 3], dtype=dtype, value=value)
        for dtype in (0, 1, 2, 3, 4, 5, 6, 20, 21)
        for value in (0.0, 2.7)
    ),
    sample("fill_constant", shape=[0, 3], value=2.0),
    sample("fill_constant", shape=[70, 61], value=2.0),
    sample("fill_constant", shape=[2], dtype=3, str_value="-9007199254740993"),
    sample("fill_constant", shape=[2], value=np.inf, str_value="inf"),
    sample("fill_constant", ShapeTensor=np.array([2, 3]), shape=[-1, 3], value=0.5),
    sample("fill_constant", ShapeTensorList=[np.array([2]), np.array([3], "int32")], shape=[-1, 3], value=0.5),
    sample("fill_constant", ValueTensor=ints(3, 4, 1), shape=[2], dtype=3),
    sample("fill_constant_batch_size_like", Input=floats(2, 5), shape=[-1, 3], value=0.5),
    sample(
        "fill_constant_batch_size_like", Input=floats(2, 5), shape=[3, 7], input_dim_idx=1, output_dim_idx=1, dtype=3,
        str_value="9007199254740993",
    ),
    *(sample("fill_zeros_like", X=values) for values in (floats(2, 3), floats(0), ints(1, 9, 3), np.array([True]))),
    *(sample("fill_any_like", X=floats(2, 3), value=1.0, dtype=dtype) for dtype in (-1, 0, 2, 3, 4, 5, 6, 20)),
    sample("fill_any_like", X=ints(0, 9, 3), value=2.7),
    sample("assign_value", shape=[2, 2], dtype=0, bool_values=[1, 0, 2, 0]),
    sample("assign_value", shape=[2], dtype=2, int32_values=[1, -5]),
    sample("assign_value", shape=[1, 2], dtype=3, int64_values=[1, 2**53 + 1]),
    sample("assign_value", shape=[2], dtype=5, fp32_values=[0.1, np.inf]),
    sample("assign_value", shape=[2], dtype=6, fp64_values=[0.1, 1e300]),
    sample("assign_value", shape=[0, 2], dtype=6),
    *(sample("shape", Input=values) for values in (floats(2, 0, 3), ints(0, 9, 4), np.array([True]))),
    sample("increment", X=number(1.5), step=-0.25),
    sample("increment", X=floats(1, 1)),
    sample("increment", X=ints(3, 4, 1), step=-1.9),
]  # fmt: skip

_LABELS = ints(0, 4, 2, 3, 1)
_SOME_IGNORED = np.array([[[0], [-100], [3]], [[-100], [1], [2]]])

_LOSSES = [
    *(
        sample(name, X=floats(*shape), axis=axis)
        for name in ("softmax", "log_softmax")
        for shape, axis in [((3, 4), -1), ((2, 3, 4), 1), ((4,), 0), ((3, 1), -1), ((0, 3), 1), ((3, 0), 1)]
    ),
    *(
        sample(name, X=probabilities(2, 3, 4), Label=label.reshape(shape), **attrs)
        for name in ("cross_entropy", "cross_entropy2")
        for shape in ((2, 3, 1), (2, 3))
        for label, attrs in [
            (_LABELS, {}), (_LABELS.astype("int32"), {"ignore_index": 2}), (_SOME_IGNORED, {}),
            (_LABELS.astype("uint8"), {"ignore_index": 9}),
        ]
    ),
    *(sample(name, X=floats(0, 3), Label=ints(0, 1, 0, 1)) for name in ("cross_entropy", "cross_entropy2")),
    sample("cross_entropy", X=probabilities(3, 4), Label=probabilities(3, 4), soft_label=True),
    sample("cross_entropy", X=probabilities(3, 4), Label=np.eye(4)[:3], soft_label=True, wrt="X"),
    *(
        sample("softmax_with_cross_entropy", Logits=3 * floats(*shape), Label=label, **attrs)
        for shape, label, attrs in [
            ((2, 3, 4), _LABELS, {}), ((2, 3, 4), _LABELS, {"numeric_stable_mode": False}),
            ((2, 3, 4), _SOME_IGNORED, {}), ((2, 4, 3), _LABELS.reshape(2, 1, 3), {"axis": 1}),
            ((4, 3), np.array([[0, 3, -1]], "int32"), {"axis": -2, "ignore_index": -1}), ((4,), np.array([2]), {}),
            ((3, 1), np.zeros((3, 1), "int64"), {}), ((0, 3), np.zeros((0, 1), "int64"), {}),
            ((2, 3, 4), probabilities(2, 3, 4), {"soft_label": True}), ((2, 4), np.eye(4)[:2], {"soft_label": True}),
            ((3, 2), probabilities(2, 3).T, {"soft_label": True, "axis": 0}),
        ]
    ),
    sample("softmax_with_cross_entropy", Logits=floats(2, 3, 4), Label=_LABELS, ignore_index=1, wrt=""),
]  # fmt: skip

_RANDOM = [
    *(
        sample(f"{name}_random", is_random=True, **given)
        for name in ("uniform", "gaussian")
        for given in [
            {"shape": [3, 4]}, {"shape": [3, 4], "dtype": 6}, {"shape": [3, 4], "dtype": 4}, {"shape": [0, 4]},
            {"ShapeTensor": np.array([2, 3]), "shape": [-1, 3]},
            {"ShapeTensorList": [np.array([2]), np.array([3], "int32")], "shape": [-1, -1]},
        ]
    ),
    sample("uniform_random", shape=[3, 3], diag_num=3, diag_step=3, is_random=True),
    *(sample("truncated_gaussian_random", shape=[3, 4], dtype=dtype, is_random=True) for dtype in (4, 5, 6)),
    *(
        sample("dropout", X=floats(3, 4), dropout_prob=p, dropout_implementation=name, is_random=True, **attrs)
        for p in (0.0, 0.3, 1.0)
        for name in ("downgrade_in_infer", "upscale_in_train")
        for attrs in ({}, {"fix_seed": True, "seed": 3}, {"Seed": np.array([3], "int32")})
    ),
    *(
        sample("dropout", X=floats(3, 4), dropout_prob=p, dropout_implementation=name, **attrs)
        for name in ("downgrade_in_infer", "upscale_in_train")
        for p, attrs in [(0.3, {"is_test": True}), (0.0, {"fix_seed": True}), (1.0, {"fix_seed": True})]
    ),
    sample("dropout", X=floats(0, 4), fix_seed=True),
]  # fmt: skip

SAMPLES = [*_TENSORS, *_LOSSES, *_RANDOM]
