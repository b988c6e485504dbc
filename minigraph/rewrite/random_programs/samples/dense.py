"""Rows for what multilayer perceptrons are made of, and for the updates of their parameters."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import BROADCASTS, distinct, floats, ints, number, positive, sample

_ELEMENTWISE = [
    sample(f"elementwise_{name}", X=distinct(*x), Y=y_values(*y), axis=axis)
    for name, y_values in {
        "add": floats, "sub": floats, "mul": floats, "div": positive, "max": floats, "min": floats
    }.items()
    for x, y, axis in BROADCASTS
]  # fmt: skip

_AXIS_OF_NO_ACCOUNT = [
    sample(f"elementwise_{name}", X=np.array([[2.0, 3.0], [5.0, 7.0]]), Y=np.array([[1.0, 4.0], [6.0, 2.0]]), axis=1)
    for name in ("add", "sub", "mul", "div", "max", "min")
]

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

PARAM = {"Param": floats(3, 4), "Grad": floats(3, 4), "LearningRate": number(0.1)}
ADAM = {
    **PARAM, "Moment1": floats(3, 4), "Moment2": positive(3, 4), "Beta1Pow": number(0.9), "Beta2Pow": number(0.99),
    "dtypes": ("float64", "float32"),
}  # fmt: skip

ADAPTIVE = {**PARAM, "dtypes": ("float64", "float32")}

SAMPLES = [
    *_ELEMENTWISE,
    *_AXIS_OF_NO_ACCOUNT,
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
    sample("sgd", **PARAM),
    sample("momentum", **PARAM, Velocity=floats(3, 4), mu=0.9),
    sample("momentum", **PARAM, Velocity=floats(3, 4), mu=0.9, use_nesterov=True),
    sample("adam", **ADAM, beta1=0.9, beta2=0.99, epsilon=1e-4),
    sample("adam", **ADAM, Beta1Tensor=number(0.5), Beta2Tensor=number(0.75), lazy_mode=True),
    sample("adamw", **ADAM, with_decay=True, coeff=0.1, lr_ratio=0.5, beta1=0.9, beta2=0.99),
    sample("adamw", **ADAM, Beta1Tensor=number(0.5), Beta2Tensor=number(0.75), epsilon=0.1),
    sample("lamb", **ADAM, weight_decay=0.1),
    sample("lamb", **{**ADAM, "Param": np.zeros((3, 4))}, weight_decay=0.0),
    sample("lars_momentum", **PARAM, Velocity=floats(3, 4), mu=0.9, lars_coeff=0.5, lars_weight_decay=0.1),
    sample("lars_momentum", **{**PARAM, "Grad": np.zeros((3, 4))}, Velocity=floats(3, 4), mu=0.9),
    *(sample("dpsgd", **PARAM, clip=clip, sigma=0.0) for clip in (0.5, 100.0)),
    sample("dpsgd", **PARAM, sigma=0.5, is_random=True),
    *(
        sample("adamax", **ADAPTIVE, Moment=floats(3, 4), InfNorm=positive(3, 4), Beta1Pow=number(0.9), **more)
        for more in ({}, {"outputs": {"Beta1PowOut": 1}})
    ),
    sample("adagrad", **ADAPTIVE, Moment=positive(3, 4)),
    sample("decayed_adagrad", **ADAPTIVE, Moment=positive(3, 4), decay=0.75),
    sample(
        "adadelta",
        Param=floats(3, 4),
        Grad=floats(3, 4),
        AvgSquaredGrad=positive(3, 4),
        AvgSquaredUpdate=positive(3, 4),
        dtypes=("float64", "float32"),
    ),
    sample("rmsprop", **ADAPTIVE, MeanSquare=positive(3, 4), Moment=floats(3, 4), momentum=0.5),
    sample(
        "rmsprop",
        **ADAPTIVE,
        MeanSquare=2 + positive(3, 4),
        MeanGrad=0.5 * floats(3, 4),
        Moment=floats(3, 4),
        centered=True,
    ),
    *(
        sample("ftrl", **ADAPTIVE, SquaredAccumulator=positive(3, 4), LinearAccumulator=floats(3, 4), **penalties)
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
