"""One row for each operator, or several: inputs and attributes that are worth checking.

A row is ``sample("op", X=array, Y=[array, array], attr=value)``. Floating-point arrays are given in float64; the tests
convert them. To add a row, append it to `SAMPLES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.opdef import FusedGrad, OpDef, definition_of

ALL_FLOATS = ("float64", "float32", "float16")

Arrays = dict[str, list[np.ndarray[Any, Any]]]


@dataclass(frozen=True, eq=False)
class Sample:
    """An operator with inputs and attributes to try it on.

    Parameters
    ----------
    op : str
        Operator type.
    inputs : dict
        Slot to arrays.
    attrs : dict
        Attributes.
    outputs : dict
        How many variables an output slot takes, where it is not as many as the first input slot of several has.
    wrt : tuple of str
        Slots to differentiate.
    dtypes : tuple of str
        The floating-point types to try. float64 has to be among them for the gradient to be checked.
    is_random : bool
        The values differ from run to run: only types are compared.
    tolerance : float
        How far the gradient may be from the central difference.
    """

    op: str
    inputs: Arrays
    attrs: dict[str, Any]
    outputs: dict[str, int]
    wrt: tuple[str, ...]
    dtypes: tuple[str, ...]
    is_random: bool
    tolerance: float

    @property
    def definition(self) -> OpDef:
        return definition_of(self.op)

    def inputs_as(self, dtype: str) -> Arrays:
        """The inputs with floating-point arrays converted to `dtype`."""
        return {
            slot: [array.astype(dtype) if array.dtype.kind == "f" else array for array in arrays]
            for slot, arrays in self.inputs.items()
        }


def sample(
    op: str,
    *,
    outputs: dict[str, int] | None = None,
    wrt: str | None = None,
    dtypes: Sequence[str] = ALL_FLOATS,
    is_random: bool = False,
    tolerance: float = 1e-6,
    **inputs_and_attrs: Any,
) -> Sample:
    """A `Sample`; what is named like an input slot is an input, anything else an attribute.

    `wrt` holds slot names separated by spaces. Default: all floating-point inputs that the gradient rule serves.
    """
    definition = definition_of(op)
    inputs = {
        name: value if isinstance(value, list) else [value]
        for name, value in inputs_and_attrs.items()
        if name in definition.input_slots
    }
    attrs = {name: value for name, value in inputs_and_attrs.items() if name not in inputs}
    rule = definition.grad
    required = [slot.name for slot in definition.inputs if not slot.dispensable]
    served = rule.to if isinstance(rule, FusedGrad) else () if rule is None else required
    floating = tuple(slot for slot in served if slot in inputs and inputs[slot][0].dtype.kind == "f")
    return Sample(
        op,
        inputs,
        attrs,
        outputs or {},
        floating if wrt is None else tuple(wrt.split()),
        tuple(dtypes),
        is_random,
        tolerance,
    )


_rng = np.random.default_rng(20)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Normal numbers."""
    return _rng.standard_normal(shape)


def positive(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers between 0.5 and 2."""
    return _rng.uniform(0.5, 2, shape)


def distinct(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers between -2 and 2, no two alike and none near 0, -1 or 1: clear of kinks and ties."""
    count = int(np.prod(shape))
    grid = np.linspace(-2, 2, 2 * count + 3) + 0.07 / (count + 1)
    grid = grid[np.abs(grid[:, None] - [-1, 0, 1]).min(axis=1) > 0.05 / (count + 1)]
    return _rng.permutation(grid)[:count].reshape(shape)


def ints(low: int, high: int, *shape: int, dtype: str = "int64") -> np.ndarray[Any, Any]:
    """Integers from `low` up to but not including `high`."""
    return _rng.integers(low, high, shape).astype(dtype)


def probabilities(*shape: int) -> np.ndarray[Any, Any]:
    """Positive numbers that add up to 1 along the last dimension."""
    numbers = _rng.uniform(0.05, 1, shape)
    return numbers / numbers.sum(axis=-1, keepdims=True)


def number(value: float) -> np.ndarray[Any, Any]:
    """One number, as a tensor of shape [1]."""
    return np.array([value])


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
        sample("batch_norm", X=2 * floats(*shape), **_PER_CHANNEL, **attrs, dtypes=("float64", "float32"), tolerance=1e-5)
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
    sample("zclip_threshold", X=[floats(3)], Mean=number(0.0), Variance=number(0.0), Count=np.array([30]), dtypes=("float64",)),
]  # fmt: skip

_CHECKS = [
    *(
        sample("guard_nonfinite", X=[floats(3, 2), x], policy=policy, params=["w", "b"])
        for x, policy in [(floats(4), "raise"), (floats(4), "zero"), (_WITH_INFINITY, "zero"), (floats(0, 2), "zero")]
    ),
    *(
        sample("guard_nonfinite", X=[x], Skipped=ints(3, 4, 1), outputs={"SkippedOut": 1}, policy="skip", params=["w"])
        for x in (floats(3, 2), _WITH_INFINITY)
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
        ]
    ),
]
