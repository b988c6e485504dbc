"""Rows by themselves: merging them, and updates by them, whose truth is the dense array."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kernel_calls import OTHER

from minigraph.errors import ExecutionError
from minigraph.kernels import find_kernel
from minigraph.kernels.buffers import Scratch
from minigraph.kernels.indexing import added_rows, taken
from minigraph.kernels.sparse_rows import SparseRows, dense, joined, merged

UPDATES = {
    "sgd": ("param rate grad", {}),
    "momentum": ("param grad velocity rate", {"mu": 0.9, "use_nesterov": False}),
    "nesterov": ("param grad velocity rate", {"mu": 0.9, "use_nesterov": True}),
    "adagrad": ("param grad moment rate", {"epsilon": 1e-6}),
    "adamw": (
        "param grad rate moment1 moment2 beta1_pow beta2_pow none none",
        {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "coeff": 0.1, "with_decay": True, "lr_ratio": 0.5},
    ),
    "lamb": (
        "param grad rate moment1 moment2 beta1_pow beta2_pow",
        {"weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6},
    ),
    "rmsprop": (
        "param mean_square mean_grad rate grad moment",
        {"epsilon": 1e-10, "decay": 0.9, "momentum": 0.5, "centered": False},
    ),
    "centered": (
        "param mean_square mean_grad rate grad moment",
        {"epsilon": 1e-10, "decay": 0.9, "momentum": 0.5, "centered": True},
    ),
}
"""Inputs of the kernel in order, and attributes."""


def update_inputs(slots, grad, dtype, rate_dtype="float32"):
    """Arrays for the inputs of an update, but for the gradient."""
    rng = np.random.default_rng(3)
    special = {
        "rate": np.array([0.1], rate_dtype), "beta1_pow": np.array([0.9], dtype), "beta2_pow": np.array([0.99], dtype),
        "none": None, "grad": grad,
    }  # fmt: skip
    # Means of squares that are large enough for any mean.
    return [special[s] if s in special else rng.uniform(1, 2, grad.shape).astype(dtype) for s in slots]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("rate_dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", UPDATES)
def test_an_update_by_rows_has_the_bits_of_the_dense_update(name, rate_dtype, dtype):
    type = {"nesterov": "momentum", "centered": "rmsprop"}.get(name, name)
    slots, attrs = UPDATES[name]
    if dtype == "float16" and type not in ("sgd", "momentum"):
        return  # the operator refuses it
    value = np.random.default_rng(4).standard_normal((5, 3)).astype(dtype)
    rows = SparseRows(np.array([6, 1, 6, 6, 0]), value, 8)
    for xp in (np, OTHER):
        results = []
        for grad in (rows, dense(np, rows)):
            by_rows = grad is rows
            inputs = update_inputs(slots.split(), grad, dtype, rate_dtype)
            copies = [x if x is None else x.copy() for x in inputs]
            kernel = find_kernel(type, "cpu", rows=by_rows).function
            lazy = {"lazy_mode": False} if by_rows and type == "adamw" else {}
            found = kernel(xp, *inputs, None, **attrs, **lazy)
            results.append(found if isinstance(found, tuple) else (found,))
            for x, copy in zip(inputs, copies, strict=True):
                assert x is None or np.array_equal(getattr(x, "value", x), getattr(copy, "value", copy))
        for found, expected in zip(*results, strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("over_the_old", [True, False])
@pytest.mark.parametrize("name", ["sgd", "adagrad", "momentum"])
def test_an_update_writes_to_what_it_is_given(name, over_the_old):
    slots, attrs = UPDATES[name]
    grad = SparseRows(np.array([2, 2]), np.ones((2, 3), "float32"), 4)
    inputs = update_inputs(slots.split(), grad, "float32")
    kernel = find_kernel(name, "cpu", rows=True).function
    expected = kernel(np, *inputs, None, **attrs)
    state = [x for slot, x in zip(slots.split(), inputs, strict=True) if slot not in ("rate", "grad")]
    outs = state if over_the_old else [np.empty_like(x) for x in state]
    found = kernel(np, *inputs, None, **attrs, out=outs[0] if name == "sgd" else tuple(outs))
    listed = [x if isinstance(x, tuple | list) else (x,) for x in (found, outs, expected)]
    for each, out, value in zip(*listed, strict=True):
        assert each is out
        assert np.array_equal(each, value)


# Merging


@st.composite
def some_rows(draw, dtypes=("float64", "float32", "float16")):
    height = draw(st.integers(1, 6))
    numbers = draw(st.lists(st.integers(0, height - 1), max_size=40))
    shape = (len(numbers), *draw(hnp.array_shapes(min_dims=1, max_dims=2, max_side=3, min_side=0)))
    elements = st.floats(-8, 8, width=16)
    value = draw(hnp.arrays(draw(st.sampled_from(dtypes)), shape, elements=elements))
    return SparseRows(np.array(numbers, np.int64), value, height)


@pytest.mark.slow
@given(some_rows())
def test_merged_rows_are_unique_sorted_and_exactly_those_of_the_dense_array(x):
    expected = added_rows(np, np.zeros(x.shape, x.dtype), x.rows, x.value)
    for xp in (np, OTHER):
        found = merged(xp, x)
        assert found.rows.tolist() == sorted(set(x.rows.tolist()))
        assert (found.dtype, found.shape, found.is_merged) == (x.dtype, x.shape, True)
        assert np.array_equal(found.value, expected[found.rows])
        assert merged(xp, found) is found
        assert np.array_equal(dense(xp, x), expected)


@pytest.mark.slow
@given(some_rows(dtypes=["float64"]), st.randoms(use_true_random=False))
def test_the_order_of_rows_matters_only_for_rounding(x, random):
    order = list(range(len(x.rows)))
    random.shuffle(order)
    other = SparseRows(x.rows[order], x.value[order], x.height)
    assert np.allclose(dense(np, other), dense(np, x), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@given(some_rows(dtypes=["float64"]))
def test_joining_adds_up(x):
    assert np.allclose(dense(np, joined(np, [x, x, x])), 3 * dense(np, x), rtol=1e-12, atol=1e-12)


def test_many_rows_of_one_number_are_added_in_order():
    """More of them than are added round by round, next to rows of few."""
    numbers = np.array([4] * 100 + [0, 2, 0] + [4] * 100 + [2] * 9)
    value = np.random.default_rng(0).standard_normal((len(numbers), 3)).astype("float32")
    found = merged(np, SparseRows(numbers, value, 5))
    expected = np.zeros((5, 3), "float32")
    for number, row in zip(numbers, value, strict=True):
        expected[number] += row
    assert np.array_equal(found.value, expected[[0, 2, 4]])


def test_a_sum_of_float16_is_taken_in_float32():
    value = np.full((3000, 1), 1.0, "float16")
    assert merged(np, SparseRows(np.zeros(3000, int), value, 1)).value.item() == 3000  # in float16 it stops at 2048


def test_a_norm_is_taken_of_merged_rows():
    rows = SparseRows(np.array([1, 1]), np.array([[3.0], [-3.0]]), 4)
    clipped = find_kernel("clip_by_norm", "cpu", rows=True).function(np, rows, max_norm=0.5)
    assert clipped.value.tolist() == [[0.0]]
    rows = SparseRows(np.array([1, 1]), np.array([[3.0], [1.0]]), 4)
    clipped = find_kernel("clip_by_norm", "cpu", rows=True).function(np, rows, max_norm=2.0)
    assert (clipped.rows.tolist(), clipped.value.tolist()) == ([1], [[2.0]])


NUMBERS = {"none": [], "one": [3], "distinct": [4, 0, 2], "repeated": [2, 4, 2, 2, 0, 4], "many": [1] * 20 + [3] * 3}


@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 3, 40_000])
def test_an_update_in_kept_memory_has_the_bits_of_the_dense_one(width, dtype, numbers):
    rng = np.random.default_rng(5)
    param, rate = rng.standard_normal((5, width)).astype(dtype), np.array([0.1], dtype)
    value = rng.standard_normal((len(numbers), width)).astype(dtype)
    rows = SparseRows(np.array(numbers, np.int64), value.copy(), 5)
    expected = param - added_rows(np, param, rows.rows, value) * rate
    update = find_kernel("sgd", "cpu", rows=True).function
    results = [update(np, param, rate, rows, None) for _ in range(2)]
    assert not np.shares_memory(*results)
    np.testing.assert_array_equal(update(np, param, rate, rows, None, out=param), expected)
    for result in results:
        np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(rows.value, value)


@pytest.mark.parametrize("number", [5, -6])
def test_an_update_of_a_row_that_is_not_there_is_an_error(number):
    rows = SparseRows(np.array([number]), np.ones((1, 2)), 5)
    with pytest.raises(IndexError):
        find_kernel("sgd", "cpu", rows=True).function(np, np.ones((5, 2)), np.array([0.1]), rows, None)


def test_rows_that_are_merged_in_scratch_memory_have_the_same_bits():
    value = np.random.default_rng(6).standard_normal((6, 4)).astype("float32")
    rows = SparseRows(np.array([3, 1, 3, 3, 0, 1]), value, 5)
    there, own = merged(np, rows, Scratch(np)), merged(np, rows)
    np.testing.assert_array_equal(there.rows, own.rows)
    np.testing.assert_array_equal(there.value, own.value)
    assert own.base is None


@pytest.mark.parametrize("ids_dtype", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(0,), (1,), (4, 1), (3, 2)])
@pytest.mark.parametrize("padding_idx", [-1, 2])
def test_a_lookup_writes_to_its_buffer(shape, dtype, ids_dtype, padding_idx):
    rng = np.random.default_rng(7)
    table, ids = rng.standard_normal((5, 3)).astype(dtype), rng.integers(0, 5, shape).astype(ids_dtype)
    expected = np.where((ids == padding_idx)[..., None], 0, table[ids])
    lookup, out = find_kernel("lookup_table_v2", "cpu").function, np.full((*shape, 3), np.nan, dtype)
    assert lookup(np, table, ids, padding_idx=padding_idx, out=out) is out
    np.testing.assert_array_equal(out, expected)
    found = lookup(np, table, ids, padding_idx=padding_idx)
    np.testing.assert_array_equal(found, expected)
    assert not np.shares_memory(found, table)
    with pytest.raises(ExecutionError, match="W has 5 rows"):
        lookup(np, table, np.array([5], ids_dtype), padding_idx=padding_idx, out=np.empty((1, 3), dtype))


def test_rows_are_taken_before_they_are_written_over():
    x = np.arange(6.0).reshape(3, 2)
    order = np.array([2, 0, 1])
    expected = x[order]
    np.testing.assert_array_equal(taken(np, x, order, x), expected)
