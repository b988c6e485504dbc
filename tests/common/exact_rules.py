"""Rules that keep every bit, with patterns of every sort, for laws on random programs."""

from minigraph import layers
from minigraph.ir import Role
from minigraph.passes.rules import attr, marked, op, rule, value
from minigraph.types import DType


def have_one_shape(first, *others):
    """Whether nothing is broadcast, in whatever run."""
    return first.tensor_type.is_static and all(each.tensor_type == first.tensor_type for each in others)


@rule
def relu_twice(x):
    return layers.relu(layers.relu(x))


@relu_twice.to
def _(x):
    return layers.relu(x)


@rule
def copy(x):
    return op("assign", X=x)


@copy.to
def _(x):
    return x


@rule
def powers_of_two(x, a=attr("scale"), b=attr("scale")):
    return layers.scale(layers.scale(x, a), b)


@powers_of_two.where
def _(m):
    yield {m.a, m.b} <= {0.5, 2.0}, "the factors must be powers of two"
    yield m.a * m.b != 1, "the product must not be 1"


@powers_of_two.to
def _(x, a, b):
    return layers.scale(x, a * b)


@rule
def minus_of_minus(x):
    return layers.scale(marked(layers.scale(x, -1.0), shared=True), -1.0)


@minus_of_minus.to
def _(x):
    return x


@rule
def abs_of_relu(x):
    return op(("abs", "relu"), X=layers.relu(x))


@abs_of_relu.where
def _(m):
    yield m.x.dtype is not DType.FP16, "NumPy's maximum of -0 and 0 is -0 in float16"


@abs_of_relu.to
def _(x):
    return layers.relu(x)


@rule
def square(x):
    return op("square", X=x)


@square.where
def _(m):
    yield not m.ops[0].role & Role.CLIP, "the squares of a norm are recognized by their type"


@square.to
def _(x):
    return layers.elementwise_mul(x, x)


@rule
def transposed_twice(x):
    return layers.transpose(layers.transpose(x, [1, 0]), [1, 0])


@transposed_twice.to
def _(x):
    return op("assign", X=x)


@rule
def sum_of_sum(xs=value(several=True), ys=value(several=True)):
    return op("sum", X=[op("sum", X=xs), ys])


@sum_of_sum.where
def _(m):
    yield have_one_shape(*m.xs, *m.ys), "the operands must have one known shape"
    yield m.xs[0].dtype is not DType.FP16, "a sum of float16 is rounded once"


@sum_of_sum.to
def _(xs, ys):
    return op("sum", X=[*xs, *ys])


@rule
def difference(x, y, axis=attr("axis")):
    return op("elementwise_sub", X=x, Y=y, axis=axis)


@difference.to
def _(x, y, axis):
    return op("elementwise_add", X=x, Y=layers.scale(y, -1.0), axis=axis)


@rule
def two_scales(x):
    return layers.scale(x, 2.0), layers.scale(x, 4.0)


@two_scales.to
def _(x):
    y = layers.scale(x, 2.0)
    return y, layers.elementwise_add(y, y)


@rule
def two_clips(x, low=value(optional=True), a=attr("min"), b=attr("max")):
    return op("clip", X=op("clip", X=x, Min=low, min=a, max=b), Min=low, min=a, max=b)


@two_clips.to
def _(x, low, a, b):
    return op("clip", X=x, Min=low, min=a, max=b)


@rule
def relu_plus(x, y):
    return marked(op("elementwise_add", X=op("relu", X=x), Y=op("abs", X=y)), commutes=True)


@relu_plus.where
def _(m):
    yield have_one_shape(m.x, m.y), "the operands must have one known shape"


@relu_plus.to
def _(x, y):
    return op("sum", X=[op("relu", X=x), op("abs", X=y)])


@rule
def backward_copy(x, scale=attr("scale")):
    return marked(op("scale", X=x, scale=scale), role=Role.BACKWARD)


@backward_copy.where
def _(m):
    yield m.scale == 1, "the factor must be 1"


@backward_copy.to
def _(x, scale):
    return op("assign", X=x)


@rule
def mul_of_grad(x, y, d):
    return op("elementwise_add_grad", X=x, Y=y, Out_GRAD=d, outputs=["X@GRAD", "Y@GRAD"])


@mul_of_grad.where
def _(m):
    yield have_one_shape(m.x, m.y, m.d), "all must have one known shape"
    yield m.d.tensor_type.dtype.is_floating, "a gradient must have numbers"
    yield not (m.x.lod_level or m.y.lod_level or m.d.lod_level), "a gradient has the sequences of its operand"


@mul_of_grad.to
def _(d):
    return op("scale", X=d), op("scale", X=d)


RULES = (
    relu_twice, copy, powers_of_two, minus_of_minus, abs_of_relu, square, transposed_twice, sum_of_sum, difference,
    two_scales, two_clips, relu_plus, backward_copy, mul_of_grad,
)  # fmt: skip
