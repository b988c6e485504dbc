"""Rows for functions of elements and along dimensions, comparisons, losses of numbers and norms of samples."""

import numpy as np

from minigraph.rewrite.random_programs.sampling import (
    BROADCASTS,
    distinct,
    floats,
    ints,
    number,
    positive,
    probabilities,
    sample,
)

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
    *(sample("elementwise_pow", X=positive(*x), Y=floats(*y), axis=axis) for x, y, axis in BROADCASTS),
    sample("elementwise_pow", X=distinct(3), Y=np.array([2.0, 0.0, -1.0]), wrt="X"),
    *(sample("elementwise_mod", X=distinct(*x), Y=positive(*y), axis=axis) for x, y, axis in BROADCASTS),
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
        for x, y, axis in BROADCASTS
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
    *(
        sample("fused_mean_loss", X=3 * floats(2, 3, 4), Label=label, outputs=outputs, **attrs)
        for label, outputs, attrs in [
            (ints(0, 4, 2, 3, 1), {"Out": 1}, {}),
            (ints(0, 4, 2, 3, 1).astype("int32"), {}, {"ignore_index": 2, "slope": -0.5}),
            (np.array([[[0], [-100], [3]], [[-100], [1], [2]]]), {}, {"slope": 0.0}),
            (ints(0, 4, 2, 3).astype("uint8"), {}, {"ignore_index": 9}),
            (ints(0, 4, 2, 3, 1), {"Out": 1}, {"from_logits": True}),
            (ints(0, 4, 2, 3, 1).astype("int32"), {}, {"ignore_index": 2, "slope": -0.5, "from_logits": True}),
            (np.array([[[0], [-100], [3]], [[-100], [1], [2]]]), {"Out": 1}, {"slope": 0.0, "from_logits": True}),
        ]
    ),
    sample("fused_mean_loss", X=floats(0, 3), Label=ints(0, 1, 0, 1), from_logits=True),
    sample("fused_mean_loss", X=3 * floats(5, 4), Label=ints(0, 4, 5, 1), outputs={"Out": 1}, from_logits=True),
    sample("fused_mean_loss", X=floats(3, 1), Label=ints(0, 1, 3, 1), from_logits=True),
    sample("fused_mean_loss", X=floats(1, 40), Label=ints(0, 40, 1, 1), from_logits=True),
    sample("fused_mean_loss", X=floats(0, 3), Label=ints(0, 1, 0, 1)),
    sample("fused_elementwise", X=[floats(0, 3)], steps=["t0 = relu(x0)", "y0 = square(t0)"]),
    sample(
        "fused_elementwise", X=[floats(5), floats(5), floats(1)], outputs={"Out1": 1, "Out2": 1},
        steps=["y0, y1 = elementwise_mul_grad(x0, x1, x0, axis=-1)", "y2 = elementwise_max(y1, x2, axis=-1)"],
    ),
    sample(
        "merged_elementwise", X0=[floats(2, 3), floats(4), floats(1)], X1=[floats(2, 3), floats(4), floats(1)],
        X2=[floats(2, 3), floats(4), floats(1)], Shared=[floats(1)],
        outputs={"Out": 3, "Out1": 3, "Out2": 0, "Out3": 0}, replaced=[2, 1],
        steps=[
            "t0 = elementwise_sub(x0, x1, axis=-1)", "t1 = elementwise_mul(t0, x3, axis=-1)",
            "y1 = elementwise_add(x1, t1, axis=-1)", "t2 = tanh(y1)", "y0 = elementwise_sub(x2, t2, axis=-1)",
        ],
    ),
    sample(
        "merged_elementwise", X0=[floats(5), floats(0, 2)], outputs={"Out": 2, "Out1": 0, "Out2": 0, "Out3": 0},
        replaced=[0], steps=["y0 = square(x0)"],
    ),
    # Each variable has its own number, and what follows from that alone is computed once.
    sample(
        "merged_elementwise", X0=[floats(2, 3), floats(4), floats(1)], X1=[floats(2, 3), floats(4), floats(1)],
        Number0=[floats(1), floats(1), floats(1)], Shared=[floats(1)],
        outputs={"Out": 3, "Out1": 0, "Out2": 0, "Out3": 0}, replaced=[1], sizes=[6, 4, 1],
        steps=[
            "t0 = elementwise_add(x2, x3, axis=-1)", "t1 = elementwise_mul(x0, t0, axis=-1)",
            "y0 = elementwise_sub(x1, t1, axis=-1)",
        ],
    ),
    # A list is read after the result that replaces it.
    sample(
        "merged_elementwise", X0=[floats(5), floats(3, 2)], X1=[floats(5), floats(3, 2)],
        outputs={"Out": 2, "Out1": 2, "Out2": 0, "Out3": 0}, replaced=[0, 1],
        steps=["y0 = square(x1)", "t0 = sum([x0, y0])", "y1 = relu(t0)"],
    ),
]  # fmt: skip

SAMPLES = [
    *_FUNCTIONS,
    *_FUSED,
    *_POWERS_AND_RESTS,
    *_ALONG_DIMENSIONS,
    *_COMPARISONS,
    *_LOSSES_OF_NUMBERS,
    *_NORMALIZATIONS_OF_SAMPLES,
]
