"""FindGlobalNorm turns clips by norm that are written out into the operators that clip."""

from functools import reduce

import numpy as np
import pytest
from both_executors import data
from pass_laws import assert_linear, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.layer_helper import emit
from minigraph.passes import CleanUp, FindGlobalNorm, FoldConstants, MultiplyPowers

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]

SHAPES = [[2, 3], [4], [1]]
CLIP = 0.5


def number(value, dtype="float32"):
    return layers.fill_constant([1], dtype, value)


def square_sum(g):
    return layers.reduce_sum(layers.square(g))


def where(condition, x, y):
    return emit("where", Condition=condition, X=x, Y=y)


def along_dimensions(g):
    return layers.reduce_sum(layers.square(g), dim=list(range(len(g.shape))))


def joined(gs):
    return layers.reduce_sum(layers.square(layers.concat([layers.reshape(g, [-1]) for g in gs], 0)))


def squared_norm(g):
    helper = fluid.layer_helper.LayerHelper("squared_l2_norm")
    out = helper.create_variable_for_type_inference(g.dtype)
    helper.append_op(type="squared_l2_norm", inputs={"X": g}, outputs={"Out": out})
    return out


TOTALS = {
    "sums": lambda gs: layers.sums([square_sum(g) for g in gs]),
    "operators": lambda gs: reduce(lambda a, b: a + b, [square_sum(g) for g in gs]),
    "right to left": lambda gs: reduce(lambda a, b: b + a, [square_sum(g) for g in gs]),
    "squared_l2_norm": lambda gs: layers.sums([squared_norm(g) for g in gs]),
    "dimensions": lambda gs: layers.sums([along_dimensions(g) for g in gs]),
    "joined tensors": joined,
    "joined sums": lambda gs: layers.reduce_sum(layers.concat([square_sum(g) for g in gs], 0)),
    "stacked sums": lambda gs: layers.reduce_sum(layers.stack([square_sum(g) for g in gs])),
    "norms of tensors": lambda gs: layers.sums([layers.square(layers.sqrt(square_sum(g))) for g in gs]),
}
FACTORS = {
    "quotient": lambda n, c: c / layers.elementwise_max(n, c),
    "threshold first": lambda n, c: c / layers.elementwise_max(c, n),
    "least": lambda n, c: layers.elementwise_min(c / n, number(1.0, n.dtype)),
    "clip": lambda n, c: layers.clip(c / n, 0.0, 1.0),
    "multiple": lambda n, c: 1.0 / layers.elementwise_max(n / CLIP, number(1.0, n.dtype)),
    "multiple, least": lambda n, c: layers.elementwise_min(1.0 / (n / CLIP), number(1.0, n.dtype)),
    "chosen": lambda n, c: where(n > c, c / n, number(1.0, n.dtype)),
    "chosen if less": lambda n, c: where(c < n, c / n, number(1.0, n.dtype)),
    "chosen if not": lambda n, c: where(n <= c, number(1.0, n.dtype), c / n),
}
PRODUCTS = {
    "product": lambda gs, n, c: [g * (c / layers.elementwise_max(n, c)) for g in gs],
    "divided": lambda gs, n, c: [layers.scale(g, CLIP) / layers.elementwise_max(n, c) for g in gs],
    "a multiple": lambda gs, n, c: [g * (number(2.0, n.dtype) / layers.elementwise_max(n, c)) for g in gs],
    "some": lambda gs, n, c: [gs[0] * (c / layers.elementwise_max(n, c))],
}


def grads(dtype="float32", shapes=SHAPES):
    return [data(f"g{i}", *shape, dtype=dtype) for i, shape in enumerate(shapes)]


def clipped(gs, total, factor=None, products=None):
    n, c = layers.sqrt(total(gs)), number(CLIP, gs[0].dtype)
    if products is not None:
        return products(gs, n, c)
    f = factor(n, c)
    return [layers.elementwise_mul(g, f) for g in gs]


def feed(length, dtype="float32", shapes=SHAPES):
    random = np.random.RandomState(0)
    arrays = [random.uniform(-1, 1, shape).astype(dtype) for shape in shapes]
    norm = np.sqrt(sum((each.astype("float64") ** 2).sum() for each in arrays))
    return {f"g{i}": (each * (length / norm)).astype(dtype) for i, each in enumerate(arrays)}


def types(fetch):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    for each in (FoldConstants(), MultiplyPowers(), CleanUp()):
        each.apply(program)
    rewrite = FindGlobalNorm()
    rewrite.apply(program)
    assert not rewrite.apply(program)
    return [op.type for op in program.global_block().ops if op.type != "fill_constant"]


def assert_agrees(fetch, dtype="float32", shapes=SHAPES, lengths=(0.1, 0.5, 3.0)):
    for length in lengths:
        found, expected = with_and_without(FindGlobalNorm(), feed(length, dtype, shapes), fetch)
        eps = np.finfo(dtype).eps
        for new, old in zip(found, expected, strict=True):
            np.testing.assert_allclose(new, old, rtol=16 * eps, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("total", TOTALS)
def test_sums_of_squares_are_found(total, dtype):
    fetch = clipped(grads(dtype), TOTALS[total], FACTORS["quotient"])
    assert types(fetch) == ["clip_by_global_norm"]
    assert_agrees(fetch, dtype)


@pytest.mark.parametrize("factor", FACTORS)
def test_factors_are_found(factor):
    fetch = clipped(grads(), TOTALS["sums"], FACTORS[factor])
    assert types(fetch) == ["clip_by_global_norm"]
    assert_agrees(fetch)


@pytest.mark.parametrize("products", PRODUCTS)
def test_products_are_found(products):
    fetch = clipped(grads(), TOTALS["sums"], products=PRODUCTS[products])
    assert set(types(fetch)) == {"clip_by_global_norm"}.union(["scale"] * (products == "a multiple"))
    assert_agrees(fetch)


def test_a_norm_of_one_tensor_is_a_clip_by_norm():
    gs = grads(shapes=SHAPES[:1])
    fetch = clipped(gs, lambda gs: square_sum(gs[0]), FACTORS["quotient"])
    assert types(fetch) == ["clip_by_norm"]
    assert_agrees(fetch, shapes=SHAPES[:1])


def test_a_norm_beside_a_clip_or_without_one_stays_a_result():
    gs = grads()
    n = layers.sqrt(TOTALS["sums"](gs))
    fetch = [n, gs[0] * layers.elementwise_min(1.0 / (n + 1e-6), number(1.0))]
    assert "clip_factor" in types(fetch)
    assert "square" not in types(fetch)
    assert_agrees(fetch)


def test_zeros_and_values_whose_squares_overflow_are_right():
    fetch = clipped(grads(), TOTALS["sums"], FACTORS["least"])
    found, _ = with_and_without(FindGlobalNorm(), feed(0.0), fetch)
    assert all(not each.any() for each in found)
    found, expected = with_and_without(FindGlobalNorm(), feed(1e30), fetch)
    assert not any(each.any() for each in expected)
    np.testing.assert_allclose(np.sqrt(sum((each.astype("float64") ** 2).sum() for each in found)), CLIP, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_give_the_same(value):
    fetch = clipped(grads(), TOTALS["sums"], FACTORS["quotient"])
    given = feed(1.0)
    given["g1"][1] = value
    with np.errstate(all="ignore"):
        found, expected = with_and_without(FindGlobalNorm(), given, fetch)
    for new, old in zip(found, expected, strict=True):
        np.testing.assert_array_equal(new, old)


def twice_counted(gs):
    return clipped([gs[0], gs[1]], lambda gs: layers.sums([square_sum(g) for g in (*gs, gs[0])]), FACTORS["quotient"])


def other_threshold(gs):
    n = layers.sqrt(TOTALS["sums"](gs))
    return [n] + [g * (number(CLIP) / layers.elementwise_max(n, data("c", 1, dtype="float32"))) for g in gs]


def two_thresholds(gs):
    n = layers.sqrt(TOTALS["sums"](gs))
    return [n] + [g * (c / layers.elementwise_max(n, c)) for g, c in zip(gs, map(number, (1.0, 2.0, 3.0)), strict=True)]


def chosen_if_less(gs):
    return clipped(gs, TOTALS["sums"], lambda n, c: where(n < c, c / n, number(1.0)))


def chosen_at_another_norm(gs):
    return clipped(gs, TOTALS["sums"], lambda n, c: where(n > number(0.4), c / n, number(1.0)))


def written_again(gs):
    g = layers.assign(gs[0])
    n = layers.sqrt(layers.sums([square_sum(g), square_sum(gs[1])]))
    layers.assign(g + 1.0, g)
    return [g * FACTORS["quotient"](n, number(CLIP))]


def sum_that_others_read(gs):
    squares = [square_sum(g) for g in gs]
    return [*clipped(gs, lambda gs: layers.sums(squares), FACTORS["quotient"]), squares[0]]


OTHERS = {
    each.__name__: each
    for each in (
        twice_counted,
        other_threshold,
        two_thresholds,
        chosen_if_less,
        chosen_at_another_norm,
        written_again,
        sum_that_others_read,
    )
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_products_stay(what):
    fetch = OTHERS[what](grads())
    assert {"clip_by_global_norm", "clip_by_norm"}.isdisjoint(types(fetch))


def test_float16_stays():
    gs = grads("float16")
    assert "clip_by_global_norm" not in types(clipped(gs, TOTALS["sums"], FACTORS["quotient"]))


def test_a_differentiated_clip_keeps_its_gradient():
    gs = grads()
    out = layers.sums([layers.reduce_sum(layers.tanh(each)) for each in clipped(gs, TOTALS["sums"], FACTORS["least"])])
    assert_agrees([out, *fluid.gradients([out], gs)], lengths=(0.1, 3.0))


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            gs = [fluid.data(f"g{i}", [2, 3]) for i in range(count // 4)]
            main.roots = tuple(each.name for each in clipped(gs, TOTALS["sums"], FACTORS["quotient"]))
        return main

    assert_linear(FindGlobalNorm(), make)


def test_a_norm_that_is_read_beside_its_clip_is_found_at_once():
    x, y = data("x", 2, 3, dtype="float32"), data("y", 4, dtype="float32")
    quotient = number(CLIP) / layers.sqrt(TOTALS["sums"]([x, y]))
    clipped = layers.elementwise_mul(x, layers.elementwise_min(quotient, number(1.0)))
    program = fluid.default_main_program()
    program.roots = (clipped.name, quotient.name)
    assert FindGlobalNorm().apply(program) and not FindGlobalNorm().apply(program)
