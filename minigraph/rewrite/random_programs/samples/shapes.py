"""Rows for shapes, slices, picking, recurrent units and transposed convolutions."""

from typing import Any

import numpy as np

from minigraph.rewrite.random_programs.sampling import distinct, floats, ints, sample

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
        # The gradient of X where it is replaced is fluid's, and not the slope.
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

SAMPLES = [
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
