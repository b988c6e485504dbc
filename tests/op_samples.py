"""One row for each operator, or several: inputs and attributes that are worth checking.

A row is ``sample("op", X=array, Y=[array, array], attr=value)``. Floating-point arrays are given in float64; the tests
convert them. To add a row, append it to `SAMPLES` here or in the file of the operator's family in `samples`.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sampling import Sample, distinct, floats, ints, number, positive, probabilities, sample

from minigraph.ops.merged_updates import MERGED, own_slots

ROWS_ONLY = ("get_tensor_from_selected_rows", "merge_selected_rows")
"""Operators that take nothing but selected rows, which no array describes; test_selected_rows.py tries them."""


_BROADCASTS = [
    ((3, 4), (3, 4), -1), ((2, 3, 4), (4,), -1), ((2, 3, 4), (3,), 1), ((2, 3, 4), (2, 3), 0), ((2, 3, 4), (3, 1), 1),
    ((2, 3), (1,), -1), ((2, 1, 4), (1, 3, 1), -1), ((3,), (2, 3), -1), ((0, 3), (3,), -1), ((2, 3, 4), (2, 3, 1), -1),
]  # fmt: skip
"""Shapes of X and Y, and the axis."""

_ELEMENTWISE = [
    sample(f"elementwise_{name}", X=distinct(*x), Y=y_values(*y), axis=axis)
    for name, y_values in {
        "add": floats, "sub": floats, "mul": floats, "div": positive, "max": floats, "min": floats
    }.items()
    for x, y, axis in _BROADCASTS
]  # fmt: skip

_INTEGER_ELEMENTWISE = [
    sample(f"elementwise_{name}", X=ints(-9, 9, 3, 4, dtype=dtype), Y=ints(1, 5, 4, dtype=dtype))
    for name in ("add", "sub", "mul", "div", "max", "min")
    for dtype in ("int32", "int64")
]

_ACTIVATIONS = [
    *(
        sample(name, X=values(*shape))
        for name, values in {
            "relu": distinct, "sigmoid": distinct, "tanh": distinct, "exp": distinct, "log": positive, "sqrt": positive,
            "abs": distinct, "square": distinct, "sign": distinct,
        }.items()
        for shape in ((3, 4), (1,), (0, 2))
    ),
    *(sample(name, X=ints(-3, 4, 5)) for name in ("exp", "abs", "square")),
    sample("relu", X=distinct(70, 61), wrt=""),
]  # fmt: skip

_REDUCTIONS = [
    sample(f"reduce_{name}", X=distinct(*shape), **attrs)
    for name in ("sum", "mean", "max", "min")
    for shape, attrs in [
        ((3, 4), {}),
        ((2, 3, 4), {"dim": [-1]}),
        ((2, 3, 4), {"dim": [2, 0], "keep_dim": True}),
        ((2, 3), {"dim": [0, 1]}),
        ((2, 3), {"reduce_all": True}),
        ((2, 3), {"reduce_all": True, "keep_dim": True}),
        ((5,), {"dim": [0]}),
        ((3, 0), {"dim": [0]}),
        ((2, 3), {"dim": [1], "out_dtype": 6}),
    ]
]

_MATRIX_PRODUCTS = [
    sample("mul", X=floats(3, 4), Y=floats(4, 5)),
    sample("mul", X=floats(2, 3, 4), Y=floats(4, 5), x_num_col_dims=2),
    sample("mul", X=floats(2, 3, 4), Y=floats(3, 4, 2), y_num_col_dims=2),
    sample("mul", X=floats(0, 4), Y=floats(4, 5)),
    *(
        sample(
            "matmul",
            X=floats(*x_batch, *((4, 3) if transpose_x else (3, 4))),
            Y=floats(*y_batch, *((5, 4) if transpose_y else (4, 5))),
            transpose_X=transpose_x, transpose_Y=transpose_y, alpha=alpha,
        )
        for x_batch, y_batch in [((), ()), ((2,), (2,)), ((2,), ()), ((), (2,)), ((2, 1), (1, 2))]
        for transpose_x, transpose_y, alpha in [
            (False, False, 1.0), (False, True, -0.5), (True, False, 2.0), (True, True, 1.0)
        ]
    ),
    sample("matmul", X=floats(4), Y=floats(4)),
    sample("matmul", X=floats(4), Y=floats(3), transpose_X=True, transpose_Y=True),
    sample("matmul", X=floats(4), Y=floats(2, 4, 3)),
    sample("matmul", X=floats(2, 3, 4), Y=floats(4)),
    sample("matmul", X=floats(0, 4), Y=floats(4, 5)),
    sample("matmul", X=floats(3, 0), Y=floats(0, 5)),
]  # fmt: skip

_PARAM = {"Param": floats(3, 4), "Grad": floats(3, 4), "LearningRate": number(0.1)}
_ADAM = {
    **_PARAM, "Moment1": floats(3, 4), "Moment2": positive(3, 4), "Beta1Pow": number(0.9), "Beta2Pow": number(0.99),
    "dtypes": ("float64", "float32"),
}  # fmt: skip

_ADAPTIVE = {**_PARAM, "dtypes": ("float64", "float32")}

SAMPLES: list[Sample] = [
    *_ELEMENTWISE,
    *_INTEGER_ELEMENTWISE,
    *_ACTIVATIONS,
    *_REDUCTIONS,
    *_MATRIX_PRODUCTS,
    # Sums
    sample("mean", X=floats(3, 4)),
    sample("mean", X=floats(1)),
    sample("reduce_sum", X=ints(-4, 5, 3, 4), dim=[1]),
    sample("reduce_sum", X=floats(2100, 2), dim=[0], dtypes=("float32",)),
    sample("reduce_mean", X=ints(-4, 5, 3, 4), reduce_all=True),
    sample("reduce_max", X=ints(-4, 5, 3, 4, dtype="int32"), dim=[0]),
    sample("reduce_min", X=ints(-4, 5, 3, 4, dtype="int32"), keep_dim=True),
    sample("sum", X=[floats(3, 4)]),
    sample("sum", X=[floats(3, 4), floats(3, 4)]),
    sample("sum", X=[floats(3), floats(3), floats(3), floats(3)]),
    sample("sum", X=[ints(-4, 5, 3), ints(-4, 5, 3)]),
    sample("squared_l2_norm", X=floats(3, 4)),
    # Clipping
    sample("clip", X=distinct(3, 4), min=-1.0, max=0.5),
    sample("clip", X=distinct(70, 61), min=-1.0, max=0.5, wrt=""),
    sample("clip", X=distinct(3, 4), Min=number(-0.75), Max=number(0.625), min=-1.0, max=1.0),
    sample("clip_by_norm", X=floats(3, 4), max_norm=1.0),
    sample("clip_by_norm", X=floats(3, 4), max_norm=100.0),
    sample("clip_by_norm", X=np.zeros((2, 3)), max_norm=1.0),
    sample("clip_by_norm", X=floats(0, 3), max_norm=1.0),
    sample("clip_by_global_norm", X=[floats(3, 4), floats(5), floats(0, 2)], ClipNorm=number(1.0)),
    sample("clip_by_global_norm", X=[floats(3, 4), floats(5)], ClipNorm=number(100.0)),
    *(
        sample("clip_by_global_norm", X=[distinct(3, 4), distinct(5)], ClipNorm=number(threshold), p=p)
        for threshold in (0.25, 100.0)
        for p in (1.0, 2.0, 3.0, np.inf)
    ),
    sample("clip_by_global_norm", X=[floats(3, 4), floats(5)], ClipNorm=number(1.0), strict=True),
    *(
        sample("clip_by_axis_norm", X=distinct(*shape), axes=axes, max_norm=max_norm, p=p)
        for shape, axes, max_norm in [
            ((3, 4), [1], 1.5),
            ((2, 3, 4), [0, -1], 2.0),
            ((3, 4), [], 1.0),
            ((5,), [0], 99.0),
        ]
        for p in (1.0, 2.0, 2.5, np.inf)
    ),
    sample("clip_by_axis_norm", X=np.diag([3.0, 0.0, 0.5]), axes=[0], max_norm=1.0),
    sample("clip_by_axis_norm", X=floats(3, 4), MaxNorm=number(1.25), axes=[-1]),
    *(sample("clip_by_axis_norm", X=floats(*shape), axes=[0], max_norm=1.0) for shape in ((0, 3), (3, 0))),
    *(
        sample("global_norm", X=[distinct(*shape) for shape in shapes], p=p)
        for shapes in ([(3, 4), (5,)], [(1,)], [(2, 2), (0, 3)])
        for p in (0.5, 1.0, 2.0, 3.5, np.inf)
    ),
    # Optimizers
    sample("sgd", **_PARAM),
    sample("momentum", **_PARAM, Velocity=floats(3, 4), mu=0.9),
    sample("momentum", **_PARAM, Velocity=floats(3, 4), mu=0.9, use_nesterov=True),
    sample("adam", **_ADAM, beta1=0.9, beta2=0.99, epsilon=1e-4),
    sample("adam", **_ADAM, Beta1Tensor=number(0.5), Beta2Tensor=number(0.75), lazy_mode=True),
    sample("adamw", **_ADAM, with_decay=True, coeff=0.1, lr_ratio=0.5, beta1=0.9, beta2=0.99),
    sample("adamw", **_ADAM, Beta1Tensor=number(0.5), Beta2Tensor=number(0.75), epsilon=0.1),
    sample("lamb", **_ADAM, weight_decay=0.1),
    sample("lamb", **{**_ADAM, "Param": np.zeros((3, 4))}, weight_decay=0.0),
    sample("lars_momentum", **_PARAM, Velocity=floats(3, 4), mu=0.9, lars_coeff=0.5, lars_weight_decay=0.1),
    sample("lars_momentum", **{**_PARAM, "Grad": np.zeros((3, 4))}, Velocity=floats(3, 4), mu=0.9),
    *(sample("dpsgd", **_PARAM, clip=clip, sigma=0.0) for clip in (0.5, 100.0)),
    sample("dpsgd", **_PARAM, sigma=0.5, is_random=True),
    *(
        sample("adamax", **_ADAPTIVE, Moment=floats(3, 4), InfNorm=positive(3, 4), Beta1Pow=number(0.9), **more)
        for more in ({}, {"outputs": {"Beta1PowOut": 1}})
    ),
    sample("adagrad", **_ADAPTIVE, Moment=positive(3, 4)),
    sample("decayed_adagrad", **_ADAPTIVE, Moment=positive(3, 4), decay=0.75),
    sample(
        "adadelta",
        Param=floats(3, 4),
        Grad=floats(3, 4),
        AvgSquaredGrad=positive(3, 4),
        AvgSquaredUpdate=positive(3, 4),
        dtypes=("float64", "float32"),
    ),
    sample("rmsprop", **_ADAPTIVE, MeanSquare=positive(3, 4), Moment=floats(3, 4), momentum=0.5),
    sample(
        "rmsprop",
        **_ADAPTIVE,
        MeanSquare=2 + positive(3, 4),
        MeanGrad=0.5 * floats(3, 4),
        Moment=floats(3, 4),
        centered=True,
    ),
    *(
        sample("ftrl", **_ADAPTIVE, SquaredAccumulator=positive(3, 4), LinearAccumulator=floats(3, 4), **penalties)
        for penalties in ({}, {"l1": 0.5, "l2": 0.25}, {"l1": 0.5, "lr_power": -0.75})
    ),
    *(
        sample(
            "average_accumulates",
            param=floats(3, 4),
            **{f"in_sum_{i}": floats(3, 4) for i in (1, 2, 3)},
            in_num_accumulates=ints(count, count + 1, 1),
            in_old_num_accumulates=ints(2, 3, 1),
            in_num_updates=ints(updates, updates + 1, 1),
            average_window=0.5,
            min_average_window=2,
            max_average_window=8,
        )
        for count, updates in ((0, 4), (4, 9), (3, 16383))
    ),
    # Metrics
    sample("top_k", X=distinct(3, 5), k=2),
    sample("top_k", X=distinct(6), k=1),
    sample("top_k", X=distinct(2, 2, 3), K=ints(2, 3, 1, dtype="int32")),
    sample("accuracy", Out=floats(6, 2), Indices=ints(0, 3, 6, 2), Label=ints(0, 3, 6, 1)),
]

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
    sample("reshape2", X=floats(2, 6), Shape=np.array([3, -1], "int32"), shape=[-1, 4]),
    sample("reshape2", X=floats(2, 6), ShapeTensor=[np.array([3]), np.array([-1])], shape=[-1, 4]),
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

SAMPLES += [*_TENSORS, *_LOSSES, *_RANDOM]

_CONVOLUTIONS = [
    sample(name, Input=floats(*x), Filter=floats(*filter), **attrs)
    for name in ("conv2d", "depthwise_conv2d")
    for x, filter, attrs in [
        ((2, 3, 5, 4), (4, 3, 3, 2), {}),
        ((2, 4, 5, 4), (6, 2, 2, 2), {"groups": 2, "strides": [2, 1], "paddings": [1, 0, 2, 1]}),
        ((1, 2, 7, 6), (4, 1, 3, 2), {"groups": 2, "dilations": [2, 3], "paddings": [1, 1]}),
        ((2, 5, 6, 2), (3, 2, 3, 2), {"data_format": "NHWC", "padding_algorithm": "SAME", "strides": [2, 3]}),
        ((2, 5, 6, 4), (2, 2, 2, 3), {"data_format": "NHWC", "padding_algorithm": "VALID", "groups": 2}),
        ((1, 1, 5, 5), (2, 1, 3, 3), {"padding_algorithm": "SAME", "dilations": [2, 2]}),
        ((2, 3, 4, 4), (2, 3, 1, 1), {}),
        ((1, 1, 1, 1), (1, 1, 1, 1), {}),
        ((0, 3, 4, 4), (2, 3, 3, 3), {"paddings": [1, 1]}),
        ((2, 1, 2, 2), (1, 1, 2, 2), {"strides": [3, 3], "paddings": [2, 2]}),
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
    ]
]

_PER_CHANNEL = {"Scale": positive(3), "Bias": floats(3), "Mean": floats(3), "Variance": positive(3)}

_NORMALIZATIONS = [
    *(
        # In float16 the variance of a few elements is too rough to compare.
        sample(
            "batch_norm", X=2 * floats(*shape), **_PER_CHANNEL, **attrs, dtypes=("float64", "float32"), tolerance=1e-5
        )
        for shape, attrs in [
            ((4, 3), {}), ((2, 3, 4), {"epsilon": 1e-3}), ((2, 3, 2, 4), {"momentum": 0.5}),
            ((2, 3, 2, 2, 2), {}), ((2, 4, 2, 3), {"data_layout": "NHWC"}), ((4, 3), {"use_global_stats": True}),
            ((2, 3, 4), {"is_test": True}), ((2, 3, 4), {"is_test": True, "trainable_statistics": True}),
            ((2, 4, 3), {"data_layout": "NHWC", "is_test": True}), ((1, 3), {}), ((0, 3, 2), {}),
            ((4, 3), {"MomentumTensor": number(0.5)}),
        ]
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

SAMPLES += [
    *_CONVOLUTIONS,
    sample("conv2d", Input=floats(2, 2, 4, 4), Filter=floats(3, 2, 2, 2), Bias=floats(3)),
    sample("conv2d", Input=floats(2, 4, 4, 2), Filter=floats(3, 2, 2, 2), Bias=floats(3), data_format="NHWC"),
    sample("conv2d", Input=floats(2, 3, 4, 4), Filter=floats(2, 3, 1, 1), Bias=floats(2)),
    *_POOLINGS,
    *_NORMALIZATIONS,
    *_LOOKUPS,
]

_HISTORY = {"History": np.array([3.0, 1.0, 2.0, 0.0]), "dtypes": ("float64",)}
_STATISTICS = {"Mean": number(1.0), "Variance": number(0.04), "dtypes": ("float64",)}
_AFTER_ZEROS = {"Mean": number(0.0), "Variance": number(0.0), "dtypes": ("float64",)}
_COUNTS = {"Steps": ints(4, 5, 1), "ClippedSteps": ints(1, 2, 1)}
_WITH_INFINITY = np.array([[1.5, np.inf, -2.0]])

_CLIPPING_BY_STEPS = [
    *(
        sample("adaptive_clip", X=floats(*shape), Param=floats(*shape), axes=axes, clipping=clipping)
        for shape, axes in [((3, 4), [0]), ((3, 2, 2, 2), [1, 2, 3]), ((5,), []), ((0, 3), [0]), ((3, 0), [0])]
        for clipping in (0.125, 64.0)
    ),
    sample("adaptive_clip", X=np.diag([3.0, 0.0, 0.5]), Param=np.zeros((3, 3)), axes=[-2], eps=0.5),
    *(
        sample("autoclip_threshold", X=[floats(3), floats(2, 2)], Count=np.array([count]), **_HISTORY, **attrs)
        for count in (0, 3, 4, 9)
        for attrs in ({}, {"percentile": 100.0}, {"percentile": 62.5})
    ),
    sample("autoclip_threshold", X=[_WITH_INFINITY], Count=np.array([2]), **_HISTORY, percentile=50.0),
    sample("autoclip_threshold", X=[_WITH_INFINITY], Count=np.array([0]), **_HISTORY),
    *(
        sample("zclip_threshold", X=[values], Count=np.array([count]), **_STATISTICS)
        for values in (np.array([0.5, -1.0]), np.array([2.0, 9.0]), _WITH_INFINITY)
        for count in (0, 24, 25, 99)
    ),
    sample("zclip_threshold", X=[floats(3)], Count=np.array([30]), **{**_STATISTICS, "Mean": number(0.0)}),
    sample("zclip_threshold", X=[floats(3)], Count=np.array([30]), **_AFTER_ZEROS),
]  # fmt: skip

_CHECKS = [
    *(
        sample("guard_nonfinite", X=[floats(3, 2), x], policy=policy, params=["w", "b"])
        for x, policy in [(floats(4), "raise"), (floats(4), "zero"), (_WITH_INFINITY, "zero"), (floats(0, 2), "zero")]
    ),
    *(
        sample(
            "guard_nonfinite",
            X=[x],
            Skipped=ints(3, 4, 1),
            outputs={"SkippedOut": 1},
            policy="skip",
            params=["w"],
            wrt=wrt,
        )
        for x, wrt in ((floats(3, 2), "X"), (_WITH_INFINITY, ""))
    ),
    *(
        sample(
            "clip_statistics", Before=[x, 2 * x], After=[scale * x, scale * 2 * x], **_COUNTS, params=["w", "b"], p=p
        )
        for x in (floats(3, 4), np.zeros(2), floats(0, 3))
        for scale in (1.0, 0.5)
        for p in (1.0, 2.0, np.inf)
    ),
]

_FLAGS = [np.array([False]), np.array([True])]

SAMPLES += [
    *_CLIPPING_BY_STEPS,
    *_CHECKS,
    *(
        sample(name, **given, **attrs, SkipUpdate=flags)
        for flags in (_FLAGS, _FLAGS[:1])
        for name, given, attrs in [
            ("sgd", _PARAM, {}),
            ("momentum", _PARAM, {"Velocity": floats(3, 4), "mu": 0.9}),
            ("adam", _ADAM, {}),
            ("adamw", _ADAM, {"with_decay": True}),
            ("lamb", _ADAM, {"weight_decay": 0.1}),
            ("lars_momentum", _PARAM, {"Velocity": floats(3, 4), "mu": 0.9}),
            ("dpsgd", _PARAM, {"sigma": 0.0}),
            ("adamax", _ADAPTIVE, {"Moment": floats(3, 4), "InfNorm": positive(3, 4), "Beta1Pow": number(0.9)}),
            ("adagrad", _ADAPTIVE, {"Moment": positive(3, 4)}),
            ("decayed_adagrad", _ADAPTIVE, {"Moment": positive(3, 4)}),
            (
                "adadelta",
                {"Param": floats(3, 4), "Grad": floats(3, 4), "dtypes": ("float64", "float32")},
                {"AvgSquaredGrad": positive(3, 4), "AvgSquaredUpdate": positive(3, 4)},
            ),
            ("rmsprop", _ADAPTIVE, {"MeanSquare": positive(3, 4), "Moment": floats(3, 4)}),
            ("ftrl", _ADAPTIVE, {"SquaredAccumulator": positive(3, 4), "LinearAccumulator": floats(3, 4)}),
        ]
    ),
]

_INT32 = "int32"
_RANGE = {"axes": [0], "starts": [1], "ends": [3]}


def _numbers(*values: int) -> list[np.ndarray[Any, Any]]:
    """Integers, each as a tensor."""
    return [np.array([value], _INT32) for value in values]


_RESHAPINGS = [
    *(
        sample("squeeze2", X=values, axes=axes)
        for values, axes in [
            (floats(1, 3, 1, 4), [0]), (floats(1, 3, 1, 4), [0, -2]), (floats(1, 3), [0, 0]), (floats(1, 1), [1]),
            (floats(1, 0), [0]), (ints(0, 9, 1, 3, dtype="int8"), [0]), (np.array([[True]]), [0]),
        ]
    ),
    *(
        sample("unsqueeze2", X=values, axes=axes)
        for values, axes in [
            (floats(2, 3), [0]), (floats(2, 3), [-1, 0]), (floats(2, 3), [2, 0]), (floats(0, 3), [1, 1]),
            (floats(2), []), (ints(0, 9, 3), [0, 2]),
        ]
    ),
    sample("unsqueeze2", X=floats(2, 3), AxesTensorList=_numbers(0, -1)),
    sample("unsqueeze2", X=floats(2, 3), AxesTensor=np.array([0, 2], _INT32), known="AxesTensor"),
    sample("squeeze2", X=floats(1, 3, 1), known="X"),
    *(sample("flatten2", X=floats(2, 3, 4), axis=axis) for axis in (0, 1, 2, 3)),
    sample("flatten2", X=floats(0, 3, 4)),
    sample("flatten2", X=ints(0, 9, 5)),
    *(
        sample("split", X=floats(*shape), outputs={"Out": count}, **attrs)
        for shape, count, attrs in [
            ((4, 6), 2, {"num": 2}), ((4, 6), 3, {"num": 3, "axis": -1}), ((4, 6), 1, {"num": 1, "sections": [9]}),
            ((4, 6), 3, {"sections": [1, -1, 2], "axis": 1}), ((4, 6), 2, {"sections": [0, 4]}),
            ((0, 3), 3, {"num": 3, "axis": 1}),
        ]
    ),
    sample("split", X=floats(4, 6), AxisTensor=np.array([1]), num=2, outputs={"Out": 2}, wrt=""),
    sample("split", X=floats(4, 6), SectionsTensorList=_numbers(2, -1), axis=1, outputs={"Out": 2}, wrt=""),
    sample("split", X=ints(0, 9, 4), num=2, outputs={"Out": 2}),
    *(
        sample("stack", X=[floats(*shape) for _ in range(count)], axis=axis)
        for shape, count, axis in [((2, 3), 2, 0), ((2, 3), 3, -1), ((2, 3), 2, 1), ((2,), 1, 0), ((0, 2), 2, 0)]
    ),
    sample("stack", X=[ints(0, 9, 3), ints(0, 9, 3)], axis=1),
    *(
        sample("unstack", X=floats(*shape), axis=axis, num=count, outputs={"Y": count})
        for shape, axis, count in [((2, 3), 0, 2), ((2, 3), -1, 3), ((2, 1, 3), 1, 1), ((2, 0), 0, 2)]
    ),
    sample("unstack", X=ints(0, 9, 2, 3), num=2, outputs={"Y": 2}),
    *(
        sample("expand", X=values, expand_times=times)
        for values, times in [
            (floats(2, 3), [2, 1]), (floats(2, 3), [3, 2]), (floats(1, 1), [1, 1]), (floats(0, 2), [3, 1]),
            (floats(2, 1, 3), [1, 4, 1]), (ints(0, 9, 3), [2]), (np.array([True, False]), [2]),
        ]
    ),
    sample("expand", X=floats(2, 3), ExpandTimes=np.array([2, 1], _INT32), expand_times=[-1, 1]),
    sample("expand", X=floats(2, 3), expand_times_tensor=_numbers(1, 2)),
    *(
        sample("expand_as", X=floats(*x), target_tensor=floats(*target), wrt="X")
        for x, target in [((2, 1), (2, 3)), ((2, 3), (4, 6)), ((2, 3), (2, 3)), ((0, 1), (0, 2))]
    ),
    *(
        sample("pad", X=floats(*shape), paddings=paddings, pad_value=0.1)
        for shape, paddings in [((2, 3), [0, 1, 2, 0]), ((2, 1, 3), [1, 1, 0, 2, 0, 0]), ((2,), [0, 0]), ((0,), [1, 2])]
    ),
    sample("pad", X=ints(0, 9, 3), paddings=[1, 1], pad_value=-1.7),
]  # fmt: skip

_SLICES = [
    *(
        sample("slice", Input=floats(*shape), axes=axes, starts=starts, ends=ends, decrease_axis=gone)
        for shape, axes, starts, ends, gone in [
            ((4, 5), [0], [1], [3], []), ((4, 5), [1, 0], [-3, 0], [9, -1], []), ((4, 5), [-1], [-9], [2], []),
            ((4, 5), [0], [-1], [9], [0]), ((4, 5), [0, 1], [2, 1], [3, 2], [1, 0]), ((3,), [0], [1], [2], [0]),
            ((1, 0), [0], [0], [1], []), ((3, 4), [], [], [], []),
        ]
    ),
    sample("slice", Input=ints(0, 9, 4, 2), **_RANGE, infer_flags=[-1]),
    sample("slice", Input=np.array([True, False, True]), **_RANGE),
    sample("slice", Input=floats(4, 5), StartsTensor=np.array([1], _INT32), axes=[0], ends=[3]),
    sample("slice", Input=floats(4, 5), StartsTensor=np.array([1]), EndsTensor=np.array([-1]), axes=[1]),
    sample(
        "slice", Input=floats(4, 5), StartsTensorList=_numbers(1, -1), EndsTensorList=_numbers(2, 9), axes=[0, 1],
        starts=[-1, -1], ends=[-1, 9], infer_flags=[-1, -1], decrease_axis=[0],
    ),
    *(
        sample("strided_slice", Input=floats(*shape), axes=axes, starts=starts, ends=ends, strides=strides)
        for shape, axes, starts, ends, strides in [
            ((6,), [0], [0], [6], [2]), ((6, 2), [0], [4], [0], [-2]), ((6,), [0], [-1], [-99], [-2]),
            ((6,), [-1], [5], [-1], [-1]), ((4, 5), [0, 1], [3, 0], [-5, 5], [-1, 2]), ((6,), [0], [-10], [10], [4]),
            ((1, 0), [0], [0], [1], [1]),
        ]
    ),
    sample(
        "strided_slice", Input=floats(4, 5), axes=[0, 1], starts=[2, 0], ends=[3, 5], strides=[1, 2], decrease_axis=[0]
    ),
    sample("strided_slice", Input=ints(0, 9, 6), axes=[0], starts=[5], ends=[0], strides=[-1]),
    sample(
        "strided_slice", Input=floats(6), StartsTensor=np.array([1], _INT32), EndsTensor=np.array([5], _INT32),
        StridesTensor=np.array([2], _INT32), axes=[0],
    ),
    sample(
        "strided_slice", Input=floats(6), StartsTensorList=_numbers(4), EndsTensorList=_numbers(0),
        StridesTensorList=_numbers(-3), axes=[0], starts=[-1], ends=[-1], strides=[-1], infer_flags=[-1],
    ),
    *(sample("reverse", X=floats(2, 3), axis=axis) for axis in ([0], [-1], [0, 1], [])),
    sample("reverse", X=ints(0, 9, 0, 3), axis=[0]),
]  # fmt: skip

_PICKS = [
    *(
        sample("gather", X=floats(*shape), Index=index, overwrite=overwrite)
        for shape in ((5, 3), (5,), (5, 0))
        for index, overwrite in [
            (np.array([4, 0, 2]), True), (np.array([[3], [1]], _INT32), True), (np.array([1, 1, 4, 1]), False),
            (np.zeros(0, "int64"), True),
        ]
    ),
    sample("gather", X=ints(0, 99, 5, 2, dtype="uint8"), Index=np.array([4, 4])),
    sample("gather_nd", X=floats(2, 3, 4), Index=np.array([[0, 1], [1, 2], [0, 1]]), known="Index"),
    sample("gather_nd", X=floats(2, 3), Index=np.array([[[1], [1]]], _INT32), known="Index"),
    sample("gather_nd", X=floats(2, 3), Index=np.array([[1, 2], [0, 0]]), known="Index"),
    sample("gather_nd", X=floats(2, 3), Index=np.zeros((0, 2), "int64"), known="Index"),
    sample("gather_nd", X=np.array([[True, False]]), Index=np.array([[0, 1]]), known="Index"),
    *(
        # What flows to X where it is replaced is fluid's, and not the slope.
        sample("scatter", X=floats(5, *row), Ids=ids, Updates=floats(len(ids), *row), overwrite=replaces, wrt="Updates")
        for row in ((3,), (), (0,))
        for ids, replaces in [
            (np.array([1, 3]), True), (np.array([0, 4, 0], _INT32), False), (np.zeros(0, "int64"), True)
        ]
    ),
    sample("scatter", X=ints(0, 9, 4), Ids=np.array([1, 1]), Updates=ints(0, 9, 2), overwrite=False),
    *(
        sample(name, X=x.reshape(*x.shape, 1) if name == "one_hot" else x, **attrs)
        for name in ("one_hot", "one_hot_v2")
        for x, attrs in [
            *((np.array([[1, 0]]), {"depth": 3, "dtype": dtype}) for dtype in (0, 2, 3, 4, 5, 6)),
            (np.array([1, 7, -1], _INT32), {"depth": 4, "allow_out_of_range": True}), (ints(0, 1, 0), {"depth": 2}),
            (np.array([1]), {"depth_tensor": np.array([3], _INT32), "depth": 9}),
        ]
    ),
    *(
        sample("where", Condition=ints(0, 2, *shape, dtype="bool"), X=floats(*shape), Y=floats(*shape))
        for shape in ((3, 4), (1,), (0, 2))
    ),
    sample("where", Condition=np.array([True, False]), X=ints(0, 9, 2), Y=ints(0, 9, 2)),
    *(sample("where_index", Condition=x) for x in (ints(0, 2, 3, 4, dtype="bool"), ints(0, 2, 5), np.zeros((2, 0)))),
]  # fmt: skip

_RECURRENT = [
    *(
        sample(
            "gru_unit", Input=distinct(3, 6), HiddenPrev=floats(3, 2), Weight=floats(2, 6), Bias=floats(1, 6),
            activation=activation, gate_activation=gate_activation, origin_mode=origin_mode,
        )
        for activation, gate_activation, origin_mode in [(2, 1, False), (2, 1, True), (1, 2, False), (0, 3, True)]
    ),
    sample("gru_unit", Input=floats(1, 3), HiddenPrev=floats(1, 1), Weight=floats(1, 3)),
    sample("gru_unit", Input=floats(0, 6), HiddenPrev=floats(0, 2), Weight=floats(2, 6), Bias=floats(1, 6)),
    *(
        sample("lstm_unit", X=floats(batch, 4 * size), C_prev=floats(batch, size), forget_bias=bias)
        for batch, size, bias in [(3, 2, 0.0), (1, 1, 0.5), (0, 2, 0.0)]
    ),
]  # fmt: skip

_TRANSPOSED = [
    sample(name, Input=floats(*x), Filter=floats(*filter), **attrs)
    for name in ("conv2d_transpose", "depthwise_conv2d_transpose")
    for x, filter, attrs in [
        ((2, 3, 4, 3), (3, 4, 3, 2), {}),
        ((2, 4, 3, 3), (4, 3, 2, 2), {"groups": 2, "strides": [2, 1], "paddings": [1, 0, 2, 1]}),
        ((1, 2, 3, 3), (2, 1, 3, 3), {"groups": 2, "dilations": [2, 1], "output_size": [7, 5]}),
        ((1, 2, 3, 3), (2, 3, 3, 3), {"strides": [2, 3], "output_size": [8, 11], "paddings": [0, 0]}),
        ((2, 3, 4, 2), (2, 3, 3, 2), {"data_format": "NHWC", "padding_algorithm": "SAME", "strides": [2, 3]}),
        ((1, 3, 3, 4), (4, 1, 2, 2), {"data_format": "NHWC", "padding_algorithm": "VALID", "groups": 2}),
        ((1, 1, 1, 1), (1, 1, 1, 1), {}),
        ((0, 2, 3, 3), (2, 3, 2, 2), {}),
    ]
]

SAMPLES += [
    *_RESHAPINGS,
    *_SLICES,
    *_PICKS,
    *_RECURRENT,
    *_TRANSPOSED,
    sample("conv2d_transpose", Input=floats(2, 3, 3, 3), Filter=floats(3, 2, 2, 2), Bias=floats(2)),
    *(
        sample("randint", low=-2, high=3, is_random=True, **given)
        for given in [
            {"shape": [3, 4]}, {"shape": [3, 4], "dtype": 2, "seed": 7}, {"shape": [0, 4]},
            {"ShapeTensor": np.array([2, 3]), "shape": [-1, 3]}, {"ShapeTensorList": _numbers(2, 3), "shape": [-1, 3]},
        ]
    ),
]  # fmt: skip

_FUNCTIONS = [
    *(
        sample(name, X=values(*shape))
        for name, values in {
            "rsqrt": positive, "reciprocal": positive, "floor": distinct, "ceil": distinct, "round": distinct,
            "sin": distinct, "cos": distinct, "logsigmoid": distinct, "softplus": distinct, "softsign": distinct,
            "swish": distinct, "elu": distinct, "leaky_relu": distinct, "relu6": distinct, "hard_sigmoid": distinct,
            "hard_swish": distinct, "erf": distinct, "gelu": distinct, "l1_norm": distinct,
        }.items()
        for shape in ((3, 4), (1,), (0, 2))
    ),
    sample("swish", X=distinct(5), beta=-1.5),
    *(sample("elu", X=distinct(5), alpha=alpha) for alpha in (2.0, 0.0, -0.5)),
    *(sample("leaky_relu", X=distinct(5), alpha=alpha) for alpha in (2.0, 1.0, 0.0)),
    sample("leaky_relu", X=distinct(5), alpha=-0.5, wrt=""),
    sample("relu6", X=distinct(5), threshold=0.75),
    sample("hard_sigmoid", X=distinct(5), slope=0.75, offset=0.25),
    sample("hard_swish", X=distinct(7), threshold=1.5, scale=2.0, offset=0.75),
    sample("gelu", X=distinct(3, 4), approximate=True),
    *(sample(name, X=3 * distinct(50, 7)) for name in ("erf", "gelu")),
    *(sample("pow", X=positive(3, 4), factor=factor) for factor in (2.0, -1.5, 1.0, 0.0)),
    *(sample("pow", X=distinct(4), factor=factor) for factor in (2.0, 3.0, -1.0)),
    sample("pow", X=positive(3, 4), FactorTensor=number(2.5), factor=3.0, wrt="X"),
    sample("pow", X=positive(0, 4), factor=2.0),
    *(
        sample("pow", X=ints(1, 4, 5, dtype=dtype), factor=factor)
        for dtype in ("int32", "int64")
        for factor in (3.0, -1.0)
    ),
    *(
        sample("prelu", X=distinct(*x), Alpha=positive(*alpha), mode=mode)
        for x, alpha, mode in [
            ((2, 3, 4), (1,), "all"), ((2, 3, 4), (1, 3, 1, 1), "channel"), ((2, 3), (3,), "channel"),
            ((2, 3, 4), (1, 3, 4), "element"), ((3,), (1,), "element"), ((1, 3), (1, 3), "element"),
            ((0, 3), (3,), "channel"),
        ]
    ),
]  # fmt: skip

_POWERS_AND_RESTS = [
    *(sample("elementwise_pow", X=positive(*x), Y=floats(*y), axis=axis) for x, y, axis in _BROADCASTS),
    sample("elementwise_pow", X=distinct(3), Y=np.array([2.0, 0.0, -1.0]), wrt="X"),
    *(sample("elementwise_mod", X=distinct(*x), Y=positive(*y), axis=axis) for x, y, axis in _BROADCASTS),
    *(
        sample(f"elementwise_{name}", X=ints(low, 9, 3, 4, dtype=dtype), Y=ints(1, 5, *y, dtype=dtype), axis=axis)
        for name, low in (("mod", -9), ("floordiv", -9), ("pow", 1))
        for dtype in ("int32", "int64")
        for y, axis in (((4,), -1), ((3,), 0))
    ),
    sample("elementwise_pow", X=ints(1, 4, 5), Y=ints(-2, 3, 5)),
]

_ALONG_DIMENSIONS = [
    *(
        sample("reduce_prod", X=distinct(*shape), **attrs)
        for shape, attrs in [
            ((3, 4), {}), ((2, 3, 4), {"dim": [-1]}), ((2, 3, 4), {"dim": [2, 0], "keep_dim": True}),
            ((2, 3), {"reduce_all": True}), ((2, 3), {"reduce_all": True, "keep_dim": True}), ((5,), {"dim": [0]}),
            ((3, 0), {"dim": [1]}), ((0, 3), {"dim": [1]}), ((2, 1), {"dim": [1]}),
            ((2, 3), {"dim": [1], "out_dtype": 6}),
        ]
    ),
    sample("reduce_prod", X=np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 2.0]]), dim=[1]),
    sample("reduce_prod", X=ints(-4, 5, 3, 4, dtype="int32"), dim=[0]),
    *(
        sample(name, X=ints(0, 2, *shape).astype(bool), **attrs)
        for name in ("reduce_all", "reduce_any")
        for shape, attrs in [
            ((3, 4), {}), ((2, 3, 4), {"dim": [-1, 0], "keep_dim": True}), ((2, 3), {"reduce_all": True}),
            ((3, 0), {"dim": [1]}), ((1,), {"dim": [0]}),
        ]
    ),
    *(
        sample("cumsum", X=values, axis=axis, exclusive=exclusive, reverse=reverse)
        for values in (floats(2, 3, 4), ints(-4, 5, 2, 3, 4), floats(2, 1, 4), floats(2, 0, 4))
        for axis in (1, -1)
        for exclusive in (False, True)
        for reverse in (False, True)
    ),
    *(
        sample("p_norm", X=distinct(*shape), porder=porder, axis=axis, keepdim=keepdim)
        for shape, axis in (((3, 4), -1), ((2, 3, 4), 1), ((5,), 0), ((0, 3), 1), ((3, 0), 1))
        for porder in (1.0, 2.0, 2.5)
        for keepdim in (False, True)
    ),
    *(
        sample("norm", X=floats(*shape), axis=axis, epsilon=epsilon)
        for shape, axis in (((3, 4), -1), ((2, 3, 4), 1), ((5,), 0), ((4, 1), 1), ((0, 3), 1), ((3, 0), 1))
        for epsilon in (1e-10, 0.5)
    ),
    *(
        sample(name, X=values, axis=axis, **attrs)
        for name in ("arg_max", "arg_min")
        for values in (distinct(2, 3, 4), ints(0, 3, 2, 3, 4, dtype="uint8"), ints(0, 3, 5))
        for axis, attrs in ((0, {}), (-1, {"keepdims": True}), (0, {"dtype": 2}))
    ),
    sample("arg_max", X=floats(0, 3), axis=1),
    *(
        sample("argsort", X=values, axis=axis, descending=descending)
        for values in (distinct(2, 3, 4), ints(0, 3, 2, 3, dtype="int32"), distinct(5), distinct(1, 1), floats(0, 3))
        for axis in (0, -1)
        for descending in (False, True)
    ),
]  # fmt: skip

_FLAGS_OF_SHAPE = [ints(0, 2, *shape).astype(bool) for shape in ((3, 4), (3, 4), (0, 2), (0, 2))]

_COMPARISONS = [
    *(
        sample(name, X=values(*x), Y=values(*y), axis=axis)
        for name in ("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal")
        for values in (floats, lambda *shape: ints(0, 3, *shape))
        for x, y, axis in _BROADCASTS
    ),
    sample("equal", X=_FLAGS_OF_SHAPE[0], Y=_FLAGS_OF_SHAPE[1]),
    *(
        sample(f"logical_{name}", X=x, Y=y)
        for name in ("and", "or", "xor")
        for x, y in (_FLAGS_OF_SHAPE[:2], _FLAGS_OF_SHAPE[2:])
    ),
    *(sample("logical_not", X=x) for x in _FLAGS_OF_SHAPE[1:3]),
    *(sample("isfinite", X=x) for x in (floats(3, 4), np.array([1.0, np.inf]), ints(0, 3, 4), floats(0, 2))),
]

_LOGITS_LABELS = {"X": distinct(3, 4), "Label": np.array([[1, -1, 0, 0.5], [-1, 1, -1, -1], [0.25, 0, 1, -1]])}

_LOSSES_OF_NUMBERS = [
    *(
        sample("sigmoid_cross_entropy_with_logits", **_LOGITS_LABELS, **attrs)
        for attrs in ({}, {"ignore_index": -1}, {"ignore_index": -1, "normalize": True}, {"normalize": True})
    ),
    sample("sigmoid_cross_entropy_with_logits", X=floats(2), Label=-np.ones(2), ignore_index=-1, normalize=True),
    sample("sigmoid_cross_entropy_with_logits", X=floats(0, 2), Label=floats(0, 2), normalize=True),
    *(
        sample("huber_loss", X=distinct(*shape), Y=distinct(*shape), delta=delta)
        for shape in ((4, 1), (2, 3), (1,), (0, 1))
        for delta in (0.7, 5.0)
    ),
    *(
        sample("smooth_l1_loss", X=distinct(*shape), Y=1.03 * distinct(*shape), **weights, **attrs)
        for shape in ((4, 3), (2, 2, 2), (3, 1), (0, 2))
        for attrs in ({}, {"sigma": 0.5}, {"sigma": 3.0}, {"sigma": 0.0})
        for weights in ({}, {"InsideWeight": positive(*shape), "OutsideWeight": positive(*shape)})
    ),
    sample(
        "log_loss", Predicted=probabilities(4, 2)[:, :1], Labels=np.array([[1.0], [0.0], [0.25], [1.0]]), epsilon=1e-4
    ),
    sample("log_loss", Predicted=floats(0, 1), Labels=floats(0, 1), epsilon=1e-4),
]

_AFFINE = {"Scale": positive(4), "Bias": floats(4)}

_NORMALIZATIONS_OF_SAMPLES = [
    *(
        sample("group_norm", X=2 * floats(*shape), **given, **attrs, dtypes=("float64", "float32"), tolerance=1e-5)
        for shape, given, attrs in [
            ((2, 4, 3, 3), _AFFINE, {"groups": 2}), ((2, 3, 2, 4), _AFFINE, {"groups": 2, "data_layout": "NHWC"}),
            ((2, 4, 3), {"Scale": positive(4)}, {"groups": 4, "epsilon": 0.5}), ((2, 4), _AFFINE, {"groups": 1}),
            ((2, 4, 2, 2), {**_AFFINE, "Scale": np.array([0.0, 1.0, 0.0, 2.0])}, {"groups": 2}),
            ((1, 1, 5), {"Scale": positive(1), "Bias": floats(1)}, {"groups": 1}), ((0, 4, 3), _AFFINE, {"groups": 2}),
            ((2, 4, 0), _AFFINE, {"groups": 2}), ((2, 4, 1), _AFFINE, {"groups": 4}),
        ]
    ),
    sample("group_norm", X=floats(2, 4, 3), groups=2, wrt="", dtypes=("float64", "float32")),
    *(
        sample(
            "instance_norm", X=2 * floats(*shape), Scale=positive(shape[1]), Bias=floats(shape[1]),
            dtypes=("float64", "float32"), tolerance=1e-5,
        )
        for shape in ((2, 3, 4, 4), (2, 3, 5), (3, 2), (1, 1, 2, 2, 2), (0, 3, 2), (2, 3, 0))
    ),
]  # fmt: skip

_FUSED = [
    sample(
        "fused_elementwise", X=[floats(2, 3, 4), floats(3), floats(2, 3, 4)], outputs={"Out1": 1},
        steps=[
            "t0 = elementwise_add(x0, x1, axis=1)", "y1 = tanh(t0)", "t1 = sum([t0, x2, y1])",
            "y0 = scale(t1, None, scale=2.0, bias=-1.0, bias_after_scale=True)",
        ],
    ),
    sample("fused_elementwise", X=[floats(0, 3)], steps=["t0 = relu(x0)", "y0 = square(t0)"]),
    sample(
        "fused_elementwise", X=[floats(5), floats(5), floats(1)], outputs={"Out1": 1, "Out2": 1},
        steps=["y0, y1 = elementwise_mul_grad(x0, x1, x0, axis=-1)", "y2 = elementwise_max(y1, x2, axis=-1)"],
    ),
]  # fmt: skip

SAMPLES += [
    *_FUNCTIONS,
    *_FUSED,
    *_POWERS_AND_RESTS,
    *_ALONG_DIMENSIONS,
    *_COMPARISONS,
    *_LOSSES_OF_NUMBERS,
    *_NORMALIZATIONS_OF_SAMPLES,
]

_IMAGE = distinct(1, 1, 4, 4)

_PICKED_BY_POOLING = [
    sample("pool2d_grad_grad", X=_IMAGE, Out=out, DDX=floats(1, 1, 4, 4), wrt="DDX", pooling_type="max", **attrs)
    for out, attrs in [
        (_IMAGE.reshape(1, 1, 2, 2, 2, 2).max((3, 5)), {"ksize": [2, 2], "strides": [2, 2]}),
        (_IMAGE.max((2, 3), keepdims=True), {"ksize": [1, 1], "global_pooling": True}),
        (np.array([[[[9.0]]]]), {"ksize": [4, 4]}),
    ]
]

_CHOICES = [
    sample("rnn_memory_helper", X=floats(2, 3), dtype=6),
    sample("select_input", X=[ints(0, 9, 2, 3), ints(0, 9, 2, 3)], Mask=np.array([1], "int32")),
]

_MASK = np.array([[True], [False], [True]])
_CHOICES += [
    sample("split_lod_tensor", X=floats(3, 2), Mask=_MASK, outputs={"OutTrue": 1, "OutFalse": 1}),
    sample("merge_lod_tensor", X=_MASK, Mask=_MASK, InTrue=ints(0, 9, 2, 4), InFalse=ints(0, 9, 1, 4)),
]

WITHOUT_SAMPLES = {
    "print": "test_print.py",
    "while": "test_loops.py",  # runs a block, like the next two
    "recurrent": "test_recurrent_networks.py",
    **dict.fromkeys(("conditional_block", "select_output"), "test_branches.py"),  # outputs may have no value
    **dict.fromkeys(
        ("write_to_array", "read_from_array", "lod_array_length", "tensor_array_to_tensor"), "test_arrays.py"
    ),
}
"""Operators that a row cannot describe, and where their tests are."""

SAMPLES += [*_CHOICES, *_PICKED_BY_POOLING, sample("assign", X=floats(2, 3), wrt="X")]


def merged(row: Sample) -> Sample:
    """The row of an update for two parameters, the second with other values."""
    inputs = {
        slot: [*arrays, *(array[:1] / 2 for array in arrays)] if slot in own_slots(row.definition) else arrays
        for slot, arrays in row.inputs.items()
    }
    sizes = [int(array.size) for array in inputs["Param"]]
    outputs = {slot: 2 for slot in row.outputs}
    return replace(row, op=f"merged_{row.op}", inputs=inputs, outputs=outputs, attrs={**row.attrs, "sizes": sizes})


_MERGED_UPDATES = [merged(row) for row in SAMPLES if f"merged_{row.op}" in MERGED]

SAMPLES += [
    *_MERGED_UPDATES,
    *(
        replace(row, inputs={**row.inputs, "ClipFactor": [np.array(factor)]}, attrs=row.attrs)
        for row in _MERGED_UPDATES
        for factor in ([1.0, 1.0, 4.0], [1.0, 1.0, 0.5], [1.0, 2.0**12, 3.0])
    ),
    *(
        sample("clip_factor", X=[floats(3, 4), floats(5), floats(0, 2)], ClipNorm=number(1.0), p=p)
        for p in (1.0, 2.0, np.inf)
    ),
]


# Imported only now, so that the numbers drawn above stay as they are.
for _file in sorted((Path(__file__).parent / "samples").glob("[a-z]*.py")):
    SAMPLES += import_module(f"samples.{_file.stem}").SAMPLES
