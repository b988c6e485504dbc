"""Straight-line programs that write a variable several times, whose gradients on Paddle 1.8.5 are recorded.

A case is a function of `layers`, two fed variables and a parameter, all float64[2, 3]; the loss is the sum of what it
returns. Paddle's gradients are recorded where they agree with a central difference; it is known for which cases they do
not. Running this file with Paddle, ``python golden_overwriting.py``, writes the recording beside it; it is therefore
written for Python 3.7, and the tests hand it minigraph instead.
"""

from pathlib import Path

import golden_arrays
import numpy as np
from golden_layers import line_of

FOLDER = Path(__file__).parent / "overwriting"
SHAPE = [2, 3]
STARTS = {
    "x": np.linspace(0.3, 1.1, 6).reshape(SHAPE),
    "y": np.linspace(1.4, 0.5, 6).reshape(SHAPE),
    "w": np.array([[0.7, -0.4, 0.2], [-0.9, 0.6, 1.2]]),
}
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def build(fluid, name, differentiates=True):
    """The programs of a case, its loss, and the gradients by name, None where there is none."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = (fluid.data(each, SHAPE, "float64") for each in "xy")
        x.stop_gradient = y.stop_gradient = False
        start = fluid.initializer.Constant(0.0)
        w = fluid.layers.create_parameter(SHAPE, "float64", "w", default_initializer=start)
        loss = fluid.layers.reduce_sum(CASES[name](fluid.layers, x, y, w))
        found = fluid.gradients(loss, [x, y, w]) if differentiates else []
    return main, startup, loss, dict(zip("xyw", found))


def run(fluid, executor, program, startup, fetch, starts):
    """What is fetched in one run from these values of x, y and w."""
    place = fluid.CPUPlace()
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        fluid.global_scope().find_var("w").get_tensor().set(starts["w"].copy(), place)
        # Copied, because the original lets a program write over what it was fed.
        feed = {name: starts[name].copy() for name in "xy"}
        return [np.array(value) for value in executor.run(program, feed=feed, fetch_list=fetch)]


def central_differences(fluid, executor, name, step=1e-5):
    """The slopes of a case's loss by x, y and w."""
    main, startup, loss, _ = build(fluid, name, differentiates=False)
    slopes = {}
    for each, value in STARTS.items():
        slopes[each] = np.zeros(SHAPE)
        for at in np.ndindex(*SHAPE):
            ends = []
            for sign in (1, -1):
                moved = value.copy()
                moved[at] += sign * step
                ends.append(run(fluid, executor, main, startup, [loss], dict(STARTS, **{each: moved}))[0].item())
            slopes[each][at] = (ends[0] - ends[1]) / (2 * step)
    return slopes


def gradients(fluid, executor, name):
    """The gradients of a case that there are, by name, and its operators, a line each."""
    main, startup, _, found = build(fluid, name)
    there = {each: grad for each, grad in found.items() if grad is not None}
    values = run(fluid, executor, main, startup, list(there.values()), STARTS)
    return dict(zip(there, values)), [line_of(op) for block in main.blocks for op in block.ops]


def agree(found, slopes):
    """Whether gradients are those of the mathematics; none is as good as zero."""
    return all(np.allclose(found.get(each, 0.0), slopes[each], rtol=1e-6, atol=1e-8) for each in slopes)


def again(var, type, **attrs):
    """Apply an operator to a variable in place, as programs do that append operators by hand."""
    var.block.append_op(type=type, inputs={"X": [var]}, outputs={"Out": [var]}, attrs=attrs)
    return var


def new(L, shape=SHAPE, dtype="float64", value=0.0):
    """A variable with a value that gradients flow to, to be overwritten."""
    var = L.fill_constant(shape, dtype, value)
    var.stop_gradient = False
    return var


def statistic(L):
    var = L.create_global_var(SHAPE, 0.5, "float64", persistable=True)
    var.stop_gradient = False
    return var


# Values that are overwritten before anybody reads them, or whose readers' gradients do not need them


@case
def assigned_to_a_new_tensor(L, x, y, w):
    out = L.create_tensor("float64")
    L.assign(L.tanh(x) * w, out)
    return out * y


@case
def assigned_over_a_constant(L, x, y, w):
    out = new(L)
    L.assign(L.tanh(x) * w, out)
    return out * y


@case
def sum_into_a_constant(L, x, y, w):
    out = new(L)
    L.sums([L.tanh(x), w * y], out=out)
    return L.exp(out)


@case
def scaled_in_place(L, x, y, w):
    return again(L.elementwise_mul(x, w), "scale", scale=3.0) * y


@case
def scaled_in_place_three_times(L, x, y, w):
    h = L.tanh(x * w)
    for factor in (2.0, -0.5, 3.0):
        again(h, "scale", scale=factor)
    return h + y


@case
def rectified_in_place(L, x, y, w):
    return again(x - y * w, "relu") * w


@case
def squashed_in_place(L, x, y, w):
    return again(L.elementwise_mul(x, w), "tanh") * y


@case
def root_in_place(L, x, y, w):
    return again(L.elementwise_add(x, y), "sqrt") * w


@case
def incremented(L, x, y, w):
    total = L.reshape(L.reduce_sum(L.tanh(x) * w), [1])
    L.increment(total, 2.0)
    return y * L.reduce_sum(total)


@case
def increment_that_is_read_before(L, x, y, w):
    total = L.reshape(L.reduce_sum(L.tanh(x) * w), [1])
    before = L.scale(total, 2.0)
    L.increment(total, 2.0)
    return L.square(total) + before


@case
def reshaped_in_place(L, x, y, w):
    h = L.elementwise_mul(x, w)
    return L.tanh(L.reshape(h, [3, 2], inplace=True)) + L.reshape(y, [3, 2])


@case
def reshaped_in_place_with_an_activation(L, x, y, w):
    h = L.elementwise_mul(x, w)
    return L.reshape(h, [6], act="sigmoid", inplace=True) * L.reshape(y, [6])


@case
def assigned_onto_itself(L, x, y, w):
    h = L.elementwise_mul(x, w)
    L.assign(h, h)
    return h * y


@case
def cast_onto_itself(L, x, y, w):
    h = L.elementwise_mul(x, w)
    h.block.append_op(type="cast", inputs={"X": [h]}, outputs={"Out": [h]}, attrs={"in_dtype": 6, "out_dtype": 6})
    return L.tanh(h) * y


@case
def added_onto_itself(L, x, y, w):
    h = L.elementwise_mul(x, w)
    h.block.append_op(type="elementwise_add", inputs={"X": [h], "Y": [y]}, outputs={"Out": [h]})
    return L.square(h)


@case
def subtracted_as_the_second_operand(L, x, y, w):
    h = L.elementwise_mul(x, w)
    h.block.append_op(type="elementwise_sub", inputs={"X": [y], "Y": [h]}, outputs={"Out": [h]})
    return L.square(h)


@case
def normalized_in_place(L, x, y, w):
    return L.batch_norm(x * w, in_place=True) * y


@case
def activation_after_addition(L, x, y, w):
    return L.elementwise_add(x * w, y, act="tanh")


@case
def comparison_written_again(L, x, y, w):
    flag = L.less_than(x, y)
    L.less_than(y, x, cond=flag)
    return L.cast(flag, "float64") * x * w


@case
def logical_written_again(L, x, y, w):
    flag, other = L.less_than(x, y), L.less_than(w, y)
    L.logical_and(flag, other, out=flag)
    L.logical_not(flag, out=flag)
    return L.cast(flag, "float64") * x * w


@case
def index_written_again(L, x, y, w):
    index = L.argmax(x, axis=0)
    index.block.append_op(type="arg_min", inputs={"X": [x]}, outputs={"Out": [index]}, attrs={"axis": 0})
    return L.gather(y * w, L.slice(index, [0], [0], [1]))


@case
def constant_written_again(L, x, y, w):
    c = L.fill_constant(SHAPE, "float64", 2.0)
    L.fill_constant(SHAPE, "float64", 3.0, out=c)
    return c * x * w


@case
def constant_read_between_two_values(L, x, y, w):
    c = L.fill_constant(SHAPE, "float64", 2.0)
    first = L.elementwise_add(c, x)
    L.fill_constant(SHAPE, "float64", 3.0, out=c)
    return L.elementwise_add(c, first) * w


@case
def counted_metrics(L, x, y, w):
    label = L.cast(L.fill_constant([2, 1], "float32", 1.0), "int64")
    correct, total = L.fill_constant([1], "int32", 0), L.fill_constant([1], "int32", 0)
    for score in (x, y):
        L.accuracy(L.softmax(L.cast(score, "float32")), label, correct=correct, total=total)
    return x * w * L.cast(total, "float64")


@case
def branch_assigns_its_result(L, x, y, w):
    total = L.reduce_sum(x)
    out = L.cond(L.less_than(total, L.reduce_sum(y)), lambda: L.tanh(x) * w, lambda: y * w)
    L.assign(L.scale(out, 2.0), out)
    return out * y


@case
def switch_over_a_constant(L, x, y, w):
    out = new(L)
    total = L.reduce_sum(x)
    with L.Switch() as switch:
        with switch.case(L.less_than(total, L.fill_constant([1], "float64", 100.0))):
            L.assign(L.tanh(x) * w, out)
        with switch.default():
            L.assign(y, out)
    return out * y


@case
def array_written_again(L, x, y, w):
    at = L.fill_constant([1], "int64", 0)
    array = L.array_write(L.tanh(x), at)
    L.array_write(w * y, at, array=array)
    return L.array_read(array, at) * x


@case
def array_of_two(L, x, y, w):
    first, second = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 1)
    array = L.array_write(L.tanh(x), first)
    L.array_write(w * y, second, array=array)
    return L.array_read(array, first) * L.array_read(array, second)


@case
def array_index_counted(L, x, y, w):
    at = L.fill_constant([1], "int64", 0)
    array = L.array_write(L.tanh(x), at)
    read = L.array_read(array, at)
    L.increment(at, 1)
    L.array_write(w * y, at, array=array)
    return read * L.array_read(array, at)


@case
def statistic_that_moves(L, x, y, w):
    average = statistic(L)
    L.assign(L.scale(average, 0.9) + L.scale(x, 0.1), average)
    return average * w


@case
def statistic_read_before_it_moves(L, x, y, w):
    average = statistic(L)
    out = L.elementwise_add(average, x * w)
    L.assign(L.scale(average, 0.9), average)
    return L.square(out)


@case
def zeros_and_ones_written(L, x, y, w):
    out = new(L)
    L.zeros_like(x, out=out)
    first = out + x
    L.ones_like(x, out=out)
    return (first + out) * w


@case
def numbers_given(L, x, y, w):
    out = new(L, dtype="float32")
    L.assign(np.ones(SHAPE, "float32"), out)
    return L.cast(out, "float64") * x * w


@case
def fed_variable_overwritten(L, x, y, w):
    L.assign(w * y, x)
    return L.tanh(x)


@case
def fed_variable_squashed(L, x, y, w):
    again(x, "tanh")
    return x * w + y


@case
def fed_variable_scaled_after_a_sum(L, x, y, w):
    before = L.elementwise_add(x, y)
    again(x, "scale", scale=2.0)
    return before * w + x


@case
def swapped(L, x, y, w):
    a, b = L.scale(x, 2.0), L.scale(y, 3.0)
    kept = L.assign(a)
    L.assign(b, a)
    L.assign(kept, b)
    return a * w + L.exp(b)


@case
def never_read_again(L, x, y, w):
    h = L.tanh(x)
    out = h * w
    L.fill_constant(SHAPE, "float64", 7.0, out=h)
    h.stop_gradient = False
    return out + y


@case
def value_that_is_not_used(L, x, y, w):
    h = L.tanh(x)
    L.assign(L.exp(y), h)
    return h * w


@case
def running_total(L, x, y, w):
    total = new(L)
    for each in (x, y, w):
        L.sums([total, L.tanh(each)], out=total)
    return L.square(total)


@case
def running_total_by_assign(L, x, y, w):
    total = new(L)
    for each in (x, y, w):
        L.assign(total + L.tanh(each), total)
    return L.square(total)


@case
def running_product(L, x, y, w):
    product = new(L, value=1.0)
    for each in (x, y, w):
        L.assign(product * each, product)
    return product


@case
def counter_beside(L, x, y, w):
    at = L.fill_constant([1], "int64", 0)
    L.increment(at, 2)
    return x * w * L.cast(at, "float64")


@case
def bounded_in_place(L, x, y, w):
    return again(x - y * w, "relu6", threshold=1.0) * w


@case
def slanted_in_place(L, x, y, w):
    return again(x - y * w, "leaky_relu", alpha=0.1) * w


@case
def reciprocal_in_place(L, x, y, w):
    return again(L.elementwise_add(x, y), "reciprocal") * w


@case
def sigmoid_in_place(L, x, y, w):
    return again(x * w, "sigmoid") * y


@case
def exponential_in_place(L, x, y, w):
    return L.square(again(x * w, "exp")) * y


@case
def normalized_rows_in_place(L, x, y, w):
    return again(x * w, "softmax") * y


@case
def scaled_with_a_bias_in_place(L, x, y, w):
    return L.tanh(again(L.elementwise_mul(x, w), "scale", scale=-2.0, bias=0.5)) * y


@case
def tensors_filled_one_after_the_other(L, x, y, w):
    first, second = L.create_tensor("float64"), L.create_tensor("float64")
    L.assign(x * w, first)
    L.assign(first * y, second)
    return L.sums([L.tanh(first), second], out=L.create_tensor("float64"))


@case
def flipped_flag(L, x, y, w):
    flag = L.greater_than(x, y)
    L.equal(x, y, cond=flag)
    L.not_equal(x, y, cond=flag)
    L.logical_or(flag, flag, out=flag)
    L.logical_xor(flag, L.less_equal(w, x), out=flag)
    return L.cast(flag, "float64") * y * w


@case
def numbers_read_after_they_changed(L, x, y, w):
    rate = L.create_global_var([1], 0.5, "float64", persistable=True)
    L.assign(L.scale(rate, 3.0), rate)
    return L.elementwise_mul(x * w, rate, axis=0)


# Values that gradients need


@case
def read_then_scaled(L, x, y, w):
    h = L.elementwise_mul(x, w)
    out = L.square(h)
    again(h, "scale", scale=3.0)
    return out * y


@case
def read_before_and_after(L, x, y, w):
    h = L.elementwise_mul(x, w)
    out = L.tanh(h)
    again(h, "scale", scale=3.0)
    return out * y + L.exp(h)


@case
def squared_in_place(L, x, y, w):
    return again(L.elementwise_mul(x, w), "square") * y


@case
def exponential_of_a_square_in_place(L, x, y, w):
    h = again(again(L.elementwise_mul(x, w), "square"), "exp")
    return h * y


@case
def result_scaled(L, x, y, w):
    h = L.tanh(x * w)
    out = L.exp(h)
    again(h, "scale", scale=3.0)
    return out + h * y


@case
def multiplied_onto_itself(L, x, y, w):
    h = L.elementwise_mul(x, w)
    h.block.append_op(type="elementwise_mul", inputs={"X": [h], "Y": [y]}, outputs={"Out": [h]})
    return L.square(h)


@case
def multiplied_by_itself(L, x, y, w):
    h = L.elementwise_mul(x, w)
    h.block.append_op(type="elementwise_mul", inputs={"X": [h], "Y": [h]}, outputs={"Out": [h]})
    return h * y


@case
def factor_overwritten(L, x, y, w):
    h = L.scale(y, 2.0)
    out = x * h
    L.assign(L.exp(w), h)
    return out + h


@case
def constant_factor_overwritten(L, x, y, w):
    c = L.fill_constant(SHAPE, "float64", 2.0)
    first = c * x
    L.fill_constant(SHAPE, "float64", 3.0, out=c)
    return c * x * w + first


@case
def assigned_from_what_it_made(L, x, y, w):
    h = L.elementwise_mul(x, w)
    made = L.tanh(h)
    L.assign(made, h)
    return h * made * y


@case
def fed_variable_overwritten_after_it_was_read(L, x, y, w):
    out = L.square(x)
    L.assign(y, x)
    return out * w + L.exp(x)


@case
def fed_variable_squared(L, x, y, w):
    again(x, "square")
    return x * w + y


@case
def parameter_scaled(L, x, y, w):
    L.assign(L.tanh(w), w)
    return w * x + y


@case
def parameter_read_before_and_after(L, x, y, w):
    before = w * x
    L.assign(L.tanh(w), w)
    return before + L.square(w) * y


@case
def parameter_stepped_by_hand(L, x, y, w):
    first = w * x
    L.assign(w - L.scale(L.exp(first), 0.1), w)
    return first + L.square(w) * y


@case
def statistic_multiplied_before_it_moves(L, x, y, w):
    average = statistic(L)
    out = average * x * w
    L.assign(L.scale(average, 0.9) + L.scale(x, 0.1), average)
    return out


@case
def branch_result_overwritten(L, x, y, w):
    out = L.cond(L.less_than(L.reduce_sum(x), L.reduce_sum(y)), lambda: L.tanh(x) * w, lambda: y * w)
    read = L.square(out)
    L.assign(L.exp(y), out)
    return out * read


@case
def branch_reads_what_is_overwritten(L, x, y, w):
    h = x * w
    out = L.cond(L.less_than(L.reduce_sum(x), L.reduce_sum(y)), lambda: L.square(h), lambda: h)
    L.assign(L.exp(y), h)
    return out + h


@case
def switch_over_a_value(L, x, y, w):
    h = L.tanh(x)
    read = L.square(h)
    with L.Switch() as switch, switch.case(L.less_than(L.reduce_sum(x), L.reduce_sum(y))):
        L.assign(h * w, h)
    return read + h * y


@case
def array_index_overwritten(L, x, y, w):
    at = L.fill_constant([1], "int64", 0)
    array = L.array_write(L.tanh(x), at)
    L.array_write(w * y, L.fill_constant([1], "int64", 1), array=array)
    read = L.array_read(array, at)
    L.fill_constant([1], "int64", 1, out=at)
    return read * L.array_read(array, at)


@case
def matrix_overwritten(L, x, y, w):
    h = L.matmul(x, w, transpose_y=True)
    g = L.matmul(h, h)
    L.assign(L.matmul(g, h), h)
    return L.matmul(h, g)


@case
def softmax_in_place_twice(L, x, y, w):
    h = x * w
    for _ in range(2):
        again(h, "softmax")
    return h * y


@case
def indices_overwritten(L, x, y, w):
    ids = L.fill_constant([1], "int64", 0)
    first = L.gather(x * w, ids)
    L.fill_constant([1], "int64", 1, out=ids)
    return first * L.gather(y, ids)


@case
def condition_overwritten(L, x, y, w):
    flag = L.less_than(x, y)
    out = new(L)
    out.block.append_op(type="where", inputs={"Condition": [flag], "X": [x * w], "Y": [y]}, outputs={"Out": [out]})
    L.logical_not(flag, out=flag)
    return out * L.cast(flag, "float64") + out


@case
def rows_scattered_over(L, x, y, w):
    h = L.elementwise_mul(x, w)
    ids = L.fill_constant([1], "int64", 1)
    row = L.slice(y, [0], [0], [1])
    h.block.append_op(type="scatter", inputs={"X": [h], "Ids": [ids], "Updates": [row]}, outputs={"Out": [h]})
    return L.square(h)


@case
def rows_scattered_twice(L, x, y, w):
    h = L.elementwise_mul(x, w)
    out = L.square(h)
    ids = L.fill_constant([1], "int64", 1)
    row = L.slice(y, [0], [0], [1])
    h.block.append_op(type="scatter", inputs={"X": [h], "Ids": [ids], "Updates": [row]}, outputs={"Out": [h]})
    return L.square(h) + out


@case
def reshaped_in_place_after_a_square(L, x, y, w):
    h = L.elementwise_mul(x, w)
    out = L.square(h)
    flat = L.reshape(h, [6], inplace=True)
    return L.reduce_sum(L.exp(flat)) + L.reduce_sum(out * y)


@case
def branch_over_what_is_reshaped_later(L, x, y, w):
    h = L.elementwise_mul(x, w)
    with L.Switch() as switch, switch.case(L.less_than(L.reduce_sum(x), L.reduce_sum(y))):
        L.assign(L.tanh(h) * h, h)
    out = L.square(h)
    return L.reduce_sum(L.exp(L.reshape(h, [6], inplace=True))) + L.reduce_sum(out * y)


@case
def loop_over_what_is_reshaped_later(L, x, y, w):
    h, total, i = L.elementwise_mul(x, w), new(L), L.fill_constant([1], "int64", 0)
    limit = L.fill_constant([1], "int64", 2)
    goes_on = L.less_than(i, limit)
    loop = L.While(goes_on)
    with loop.block():
        L.assign(total * h + L.tanh(h), total)
        L.assign(L.square(h) * y, h)
        L.increment(i, 1)
        L.less_than(i, limit, cond=goes_on)
    out = L.square(h)
    return L.reduce_sum(L.exp(L.reshape(h, [6], inplace=True))) + L.reduce_sum(out * total)


if __name__ == "__main__":
    import paddle.fluid

    recorded, operators = {}, {}
    for name in CASES:
        executor = paddle.fluid.Executor(paddle.fluid.CPUPlace())
        try:
            found, lines = gradients(paddle.fluid, executor, name)
        except (paddle.fluid.core_avx.EnforceNotMet, AssertionError):
            found, lines = {}, None
        if not agree(found, central_differences(paddle.fluid, executor, name)):
            found, lines = {}, None
        print(name, "is wrong" if lines is None else "is right")
        operators[name] = lines
        recorded.update({name + "/" + key: value for key, value in found.items()})
    golden_arrays.write(FOLDER, recorded, operators)
