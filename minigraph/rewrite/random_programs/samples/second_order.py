"""Rows for the gradients of gradient operators."""

import numpy as np

from minigraph.opdef import definition_of
from minigraph.rewrite.random_programs.sampling import BROADCASTS, distinct, floats, positive, sample
from minigraph.types import TensorType, as_dtype


def row(op, results, fixed="", **inputs_and_attrs):
    """A row that asks for all results, and differentiates by all inputs that `fixed` does not name."""
    inputs = [name for name, value in inputs_and_attrs.items() if isinstance(value, np.ndarray)]
    wrt = " ".join(name for name in inputs if name not in fixed.split())
    return sample(f"{op}_grad_grad", outputs=dict.fromkeys(results.split(), 1), wrt=wrt, **inputs_and_attrs)


def flowing(x, y, names="X Y"):
    """Gradients that may flow in, of shapes `x` and `y`: both, or one; then nothing depends on its own operand."""
    first, second = names.split()
    yield {f"DD{first}": floats(*x), f"DD{second}": floats(*y)}
    yield {f"DD{first}": floats(*x), "fixed": first}
    yield {f"DD{second}": floats(*y), "fixed": second}


def result_of(op, *shapes, **attrs):
    """The shape of what an operator computes from operands of these shapes."""
    definition = definition_of(op)
    attrs = {name: attr.default for name, attr in definition.attrs.items()} | attrs
    types = [TensorType(as_dtype("float64"), shape) for shape in shapes]
    return definition.infer(*types, *[None] * (len(definition.inputs) - len(types)), **attrs).shape


def of_instances(shape, fixed="", **given):
    """A row with the statistics that belong to X, and what flows in as `given`."""
    x, places = floats(*shape), tuple(range(2, len(shape)))
    mean, variance = x.mean(places, keepdims=True), x.var(places)
    saved = {"SavedMean": mean.reshape(-1), "SavedVariance": (variance + 0.01).reshape(-1) ** -0.5}
    given = {"X": x, "Scale": floats(shape[1]), **saved, "DY": floats(*shape), **given}
    # The gradient follows X through the statistics, a difference would not.
    fixed = f"X SavedMean SavedVariance {fixed}"
    return row("instance_norm", "DX DScale DDY", fixed, **given, epsilon=0.01)


CONVOLUTIONS = [
    ((2, 2, 5, 4), (4, 1, 3, 2), {"groups": 2, "strides": [2, 1], "paddings": [1, 1]}),
    ((1, 4, 4, 2), (3, 2, 2, 2), {"data_format": "NHWC", "dilations": [2, 1]}),
    ((1, 1, 3, 3), (1, 1, 3, 3), {"padding_algorithm": "SAME"}),
    ((0, 2, 3, 3), (2, 2, 1, 1), {}),
]

PRODUCTS = [
    ((3, 4), (4, 2), {}),
    ((2, 3, 4), (2, 2, 3), {"x_num_col_dims": 2, "y_num_col_dims": 2}),
    ((1, 1), (1, 1), {}),
    ((0, 3), (3, 2), {}),
]

SAMPLES = [
    *(row("square", "DX DDOut", X=floats(*s), DOut=floats(*s), DDX=floats(*s)) for s in ((3, 4), (1,), (0, 2))),
    *(row("sqrt", "DOut DDOut", Out=positive(*s), DX=floats(*s), DDX=floats(*s)) for s in ((3, 4), (1,), (0, 2))),
    row("relu", "DDOut", Out=np.maximum(distinct(3, 4), 0), DDX=floats(3, 4), fixed="Out"),
    row("leaky_relu", "DDOut", Out=distinct(3, 4), DDX=floats(3, 4), fixed="Out", alpha=0.3),
    row("elu", "DX DDOut", X=distinct(3, 4), DOut=floats(3, 4), DDX=floats(3, 4), alpha=1.5),
    *(
        row(
            f"elementwise_{name}",
            "DDOut",
            **{**given, "fixed": "Y DOut"},
            Y=floats(*y),
            DOut=floats(*result_of("elementwise_add", x, y, axis=axis)),
            axis=axis,
        )
        for name in ("add", "sub")
        for x, y, axis in BROADCASTS
        for given in flowing(x, y)
    ),
    *(
        row("elementwise_mul", "X@GRAD Y@GRAD DDOut", X=floats(*x), Y=floats(*y), DOut=floats(*out), axis=axis, **given)
        for x, y, axis in BROADCASTS
        for out in [result_of("elementwise_mul", x, y, axis=axis)]
        for given in flowing(x, y)
    ),
    *(
        row("elementwise_div", "Y@GRAD DOut DDOut", Y=positive(*y), Out=floats(*x), DX=floats(*x), axis=axis, **given)
        for x, y, axis in BROADCASTS
        if result_of("elementwise_div", x, y, axis=axis) == x
        for given in (
            {"DDX": floats(*x), "DDY": floats(*y)},
            {"DDX": floats(*x), "fixed": "Out"},
            {"DDY": floats(*y)},
        )
    ),
    *(
        row("mul", "DX DY DDOut", X=floats(*x), Y=floats(*y), DOut=floats(*out), **attrs, **given)
        for x, y, attrs in PRODUCTS
        for out in [result_of("mul", x, y, **attrs)]
        for given in flowing(x, y)
    ),
    *(
        row(
            "conv2d",
            "DInput DFilter DDOutput",
            Input=floats(*x),
            Filter=floats(*filter),
            DOutput=floats(*result_of("conv2d", x, filter, **attrs)),
            **attrs,
            **given,
        )
        for x, filter, attrs in CONVOLUTIONS
        for given in flowing(x, filter, "Input Filter")
    ),
    of_instances((2, 3, 4), DDX=floats(2, 3, 4), DDScale=floats(3), DDBias=floats(3)),
    of_instances((2, 3, 2, 2), DDX=floats(2, 3, 2, 2)),
    of_instances((2, 3, 4), DDScale=floats(3), fixed="Scale"),
    of_instances((2, 3, 4), DDBias=floats(3), fixed="Scale DY"),
    of_instances((2, 3, 1), DDX=floats(2, 3, 1), DDScale=floats(3)),
    # Reshaping no elements lets nothing flow.
    of_instances((0, 3, 4), DDX=floats(0, 3, 4), DDScale=floats(3), fixed="Scale DY DDX DDScale"),
    row("reshape2", "DDOut", DOut=floats(2, 6), DDX=floats(3, 4), fixed="DOut"),
    row("reshape2", "DDOut", DOut=floats(0, 2), DDX=floats(4, 0), fixed="DOut DDX"),
]
