"""Compiled loops for lookups and selected rows against the shared kernels, bit for bit."""

import numpy as np
import pytest
from jit_support import few_pieces, needs_numba
from kernel_calls import array_type

from minigraph.errors import ExecutionError
from minigraph.kernels import find_kernel, find_specializer
from minigraph.kernels.sparse_rows import SparseRows

pytestmark = [pytest.mark.numbers, needs_numba]

HEIGHT, WIDTH = 5000, 3
NUMBERS = {
    "none": [],
    "one": [7],
    "different": [4999, 0, 2048, 2047, 17],
    "equal": [3] * 40,
    "some equal": [5, 4999, 5, 0, 4999, 5, 1, 4097, 1],
    "many": np.random.default_rng(1).integers(0, 300, 2000).tolist(),
}
each_list = pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)

UPDATES = {
    "sgd": ("param rate grad skip", {}),
    "adagrad": ("param grad moment rate skip", {"epsilon": 1e-6}),
    "adam": (
        "param grad rate moment1 moment2 beta1_pow beta2_pow none none skip",
        {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "lazy_mode": True},
    ),
    "adamw": (
        "param grad rate moment1 moment2 beta1_pow beta2_pow none none skip",
        {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "coeff": 0.1, "with_decay": True, "lr_ratio": 0.5,
         "lazy_mode": True},
    ),
    "momentum": ("param grad velocity rate skip", {"mu": 0.9, "use_nesterov": True}),
}  # fmt: skip


def rows_of(numbers, dtype="float32", seed=0):
    value = np.random.default_rng(seed).standard_normal((len(numbers), WIDTH)).astype(dtype)
    return SparseRows(np.array(numbers, np.int64), value, HEIGHT)


def inputs_of(slots, grad):
    rng, dtype = np.random.default_rng(2), grad.dtype
    special = {
        "grad": grad, "none": None, "skip": None, "rate": np.array([0.1], dtype),
        "beta1_pow": np.array([0.9], dtype), "beta2_pow": np.array([0.99], dtype),
    }  # fmt: skip
    return [special[s] if s in special else rng.uniform(1, 2, grad.shape).astype(dtype) for s in slots.split()]


def offered(type, inputs, rows=True, **attrs):
    types = [each if each is None else array_type(each) for each in inputs]
    return find_specializer(type, jit=True, rows=rows)(np, *types, **attrs)


def assert_same(found, expected):
    for x, y in zip(*[each if isinstance(each, tuple) else (each,) for each in (found, expected)], strict=True):
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


@pytest.mark.slow
@each_list
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("is_in_place", [True, False])
@pytest.mark.parametrize("type", UPDATES)
def test_an_update_by_rows_has_the_bits_of_the_kernel(type, is_in_place, dtype, numbers, monkeypatch):
    monkeypatch.setattr("minigraph.kernels.jit.threads.pieces", few_pieces(3))
    slots, attrs = UPDATES[type]
    if dtype == "float16" and type not in ("sgd", "momentum"):
        return  # the operator refuses it
    inputs = inputs_of(slots, rows_of(numbers, dtype))
    expected = find_kernel(type, "cpu", rows=True).function(np, *inputs, **attrs)
    state = [x for s, x in zip(slots.split(), inputs, strict=True) if s not in ("rate", "grad", "none", "skip")]
    before = [x.copy() for x in state]
    function = offered(type, inputs, **attrs)
    if not is_in_place:
        assert_same(function(*inputs), expected)
        assert_same(tuple(state), tuple(before))
        return
    found = function(*inputs, out=tuple(state) if len(state) > 1 else state[0])
    assert_same(found, expected)
    assert all(x is y for x, y in zip(found if isinstance(found, tuple) else [found], state, strict=True))


@pytest.mark.slow
def test_a_flag_to_skip_leaves_the_table_as_it_was():
    param, rate, grad, _ = inputs_of(UPDATES["sgd"][0], rows_of([1, 2]))
    found = offered("sgd", [param, rate, grad, None])(param, rate, grad, [np.array([True])])
    assert np.array_equal(found, param)


@pytest.mark.slow
def test_a_row_number_out_of_range_is_the_error_that_it_always_is():
    param, rate, grad, _ = inputs_of(UPDATES["sgd"][0], rows_of([1, HEIGHT]))
    with pytest.raises(IndexError, match="out of bounds"):
        offered("sgd", [param, rate, grad, None])(param, rate, grad, None, out=param)


@pytest.mark.slow
@each_list
@pytest.mark.parametrize("type", ["merge_selected_rows", "clip", "clip_by_norm", "squared_l2_norm"])
def test_an_operator_on_whole_rows_has_the_bits_of_the_kernel(type, numbers):
    attrs = {"clip": {"min": -0.5, "max": 0.5}, "clip_by_norm": {"max_norm": 1.0}}.get(type, {})
    inputs = [rows_of(numbers), *[None] * 2 * (type == "clip")]
    expected = find_kernel(type, "cpu", rows=True).function(np, *inputs, **attrs)
    found = offered(type, inputs, **attrs)(*inputs)
    if isinstance(expected, SparseRows):
        assert found.is_merged
        assert_same((found.rows, found.value), (expected.rows, expected.value))
    else:
        assert_same(found, expected)


# Lookups


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("type", ["lookup_table", "lookup_table_v2"])
@pytest.mark.parametrize("padding", [-1, 0, 4097, HEIGHT + 3])
@each_list
def test_a_lookup_gives_the_rows_of_the_kernel(numbers, padding, type, dtype, monkeypatch):
    monkeypatch.setattr("minigraph.kernels.jit.threads.pieces", few_pieces(3))
    table = np.random.default_rng(0).standard_normal((HEIGHT, WIDTH)).astype("float32")
    given = [*numbers, padding] if padding != -1 else numbers
    ids = np.array(given, dtype).reshape((-1, 1) if type == "lookup_table" else (1, -1))
    expected = find_kernel(type, "cpu").function(np, table, ids, padding_idx=padding)
    function = offered(type, [table, ids], rows=False, padding_idx=padding)
    assert_same(function(table, ids), expected)
    assert_same(function(table, ids, out=np.empty_like(expected)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ids_type", ["int32", "int64"])
@pytest.mark.parametrize(("type", "attrs"), [("gather", {"overwrite": False}), ("gather_nd", {})])
@each_list
def test_gathered_rows_and_their_gradient_have_the_bits_of_the_kernel(numbers, type, attrs, ids_type, dtype):
    rng = np.random.default_rng(0)
    x, index = rng.standard_normal((HEIGHT, 2, 3)).astype(dtype), np.array(numbers, ids_type).reshape(-1, 1)
    d_out = rng.standard_normal((len(index), 2, 3)).astype(dtype)
    expected = find_kernel(type, "cpu").function(np, x, index)
    assert_same(offered(type, [x, index], rows=False)(x, index), expected)
    expected = find_kernel(f"{type}_grad", "cpu").function(np, x, index, d_out, **attrs)
    assert_same(offered(f"{type}_grad", [x, index, d_out], rows=False, **attrs)(x, index, d_out), expected)


def test_gathers_that_replace_rows_or_take_elements_keep_their_kernels():
    x, index = np.zeros((HEIGHT, WIDTH), "float32"), np.zeros((4, 2), "int64")
    assert offered("gather_nd", [x, index], rows=False) is None
    assert offered("gather_grad", [x, index[:, 0], np.zeros((4, WIDTH), "float32")], rows=False, overwrite=True) is None


def test_a_gathered_row_out_of_range_is_the_error_that_it_always_is():
    x, index = np.zeros((HEIGHT, WIDTH), "float32"), np.array([[HEIGHT]])
    with pytest.raises(ExecutionError, match="must be in"):
        offered("gather_nd", [x, index], rows=False)(x, index)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("padding", [-1, 0, 4097])
@each_list
def test_the_gradient_of_a_table_has_the_bits_of_the_kernel(numbers, padding, dtype):
    rng = np.random.default_rng(0)
    table, ids = np.empty((HEIGHT, WIDTH), dtype), np.array(numbers, np.int64)
    d_out = rng.standard_normal((len(ids), WIDTH)).astype(dtype)
    expected = find_kernel("lookup_table_v2_grad", "cpu").function(np, table, ids, d_out, padding_idx=padding)
    function = offered("lookup_table_v2_grad", [table, ids, d_out], rows=False, padding_idx=padding)
    assert_same(function(table, ids, d_out), expected)


@pytest.mark.parametrize("ids_type", ["int32", "int64"])
@pytest.mark.parametrize("padding", [-1, 0, 4097])
@each_list
def test_the_rows_of_a_gradient_are_those_of_the_kernel(numbers, padding, ids_type):
    table, ids = np.empty((HEIGHT, WIDTH), "float32"), np.array(numbers, ids_type).reshape(-1, 1)
    d_out = np.ones((len(ids), 1, WIDTH), "float32")
    found = offered("lookup_table_v2_grad", [table, ids, d_out], padding_idx=padding)(table, ids, d_out)
    expected = find_kernel("lookup_table_v2_grad", "cpu", rows=True).function(
        np, table, ids, d_out, padding_idx=padding
    )
    assert_same(found.rows, expected.rows)
    assert_same(found.value, expected.value)
    assert found.height == HEIGHT
    assert not found.is_merged
    assert not np.shares_memory(found.rows, ids)


def test_rows_of_a_padding_that_is_no_row_are_left_to_the_kernel():
    table, ids, d_out = np.empty((HEIGHT, WIDTH), "float32"), np.array([HEIGHT, 1]), np.ones((2, WIDTH), "float32")
    assert offered("lookup_table_v2_grad", [table, ids, d_out], padding_idx=HEIGHT) is None


def test_an_id_that_is_no_row_is_the_error_that_it_always_is():
    table, ids = np.ones((HEIGHT, WIDTH), "float32"), np.array([0, 3, -1])
    with pytest.raises(ExecutionError, match="5000 rows, but element 2 of Ids is -1"):
        offered("lookup_table_v2", [table, ids], rows=False, padding_idx=-1)(table, ids)
    d_out = np.ones((3, WIDTH), "float32")
    with pytest.raises(ExecutionError, match="5000 rows, but element 2 of Ids is -1"):
        offered("lookup_table_v2_grad", [table, ids, d_out], padding_idx=-1)(table, ids, d_out)
