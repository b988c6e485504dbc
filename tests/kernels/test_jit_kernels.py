"""Compiled loops against the kernels they stand in for: the samples of every operator, extremes, large arrays."""

import itertools
import math

import numpy as np
import pytest
from jit_support import few_pieces, needs_numba
from kernel_calls import array_type, calls, each_array, flat
from sampled import DETERMINISTIC, each

from minigraph.errors import ExecutionError
from minigraph.kernels import find_kernel, find_specializer, update_rules
from minigraph.kernels.clip import clip_by_global_norm
from minigraph.kernels.jit import norms
from minigraph.kernels.jit.threads import shares

pytestmark = [pytest.mark.numbers, needs_numba, pytest.mark.usefixtures("like_an_executor")]

SAME_BITS = ("sgd", "momentum", "adam", "adamw", "adamax", "adagrad", "decayed_adagrad", "adadelta", "rmsprop", "ftrl")
"""Operators whose loops give the bits of the kernel."""


def offered(call):
    """What is compiled for a call, or None."""
    offer = find_specializer(call.op.type, jit=True)
    if offer is None:
        return None
    function = offer(np, *[each_array(array_type, entry) for entry in call.inputs], **call.keywords)
    if function is None:
        return None

    def run(inputs=None, **out):
        result = function(*(call.inputs if inputs is None else inputs), **out)
        return list(result) if len(call.expected) > 1 else [result]

    return run


def assert_close(call, found, ulps=16):
    for value, expected in zip(flat(found), flat(call.expected), strict=False):
        assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
        if call.op.type in SAME_BITS:
            assert value.tobytes() == expected.tobytes(), f"{value} is not {expected}"
        else:
            size = np.abs(expected).max(initial=1) if np.isfinite(expected).all() else 1
            tolerance = ulps * np.finfo(expected.dtype).eps if expected.dtype.kind == "f" else 0
            assert np.allclose(value, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)


COMPILED = [s for s in DETERMINISTIC if any(find_specializer(s.op + end, jit=True) for end in ("", "_grad"))]


@each(COMPILED)
def test_a_compiled_loop_agrees_with_the_kernel(sample, dtype, always_compiled):
    for call in calls(sample, dtype):
        function = offered(call)
        if function is None:
            continue
        before = [each_array(np.copy, entry) for entry in call.inputs]
        found = function()
        assert_close(call, [v for v, e in zip(found, call.expected, strict=True) if e is not None])
        for value, old in zip(flat(call.inputs), flat(before), strict=True):
            assert value.tobytes() == old.tobytes(), "an input was written over"
        if call.kernel.takes_out:
            buffers = [each_array(lambda array: np.full_like(array, 77), entry) for entry in call.expected]
            again = function(out=call.out(buffers))
            for one, other in zip(flat(found), flat(again), strict=False):
                assert one.tobytes() == other.tobytes()
            for entry, buffer in zip(again, buffers, strict=True):
                assert buffer is None or all(a is b for a, b in zip(flat([entry]), flat([buffer]), strict=True))


@each(COMPILED)
def test_arrays_that_no_loop_was_compiled_for_go_to_the_kernel(sample, always_compiled):
    """Every second element of a larger array, which in addition must not be written to."""
    for call in calls(sample, "float32"):
        function = offered(call)
        if function is not None and not any(isinstance(entry, list) for entry in call.inputs):
            found = function(inputs=[each_array(apart, entry) for entry in call.inputs])
            assert_close(call, [v for v, e in zip(found, call.expected, strict=True) if e is not None])


def apart(array):
    if not array.ndim:
        return array
    wide = np.repeat(array, 2, axis=-1)
    wide.flags.writeable = False
    return wide[..., ::2]


@pytest.mark.slow
def test_every_update_rule_has_a_sample_that_is_compiled(always_compiled):
    seen = {
        call.op.type for s in COMPILED if s.op in SAME_BITS for call in calls(s, "float32") if offered(call) is not None
    }
    assert seen == set(SAME_BITS)


# Updates


RULES = {
    "sgd": ({}, "rate grad"),
    "momentum": ({"mu": 0.9, "use_nesterov": True}, "grad moment rate"),
    "adam": ({"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}, "grad rate moment moment pow pow none none"),
    "adamw": (
        {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "coeff": 0.01, "with_decay": True, "lr_ratio": 0.5},
        "grad rate moment moment pow pow none none",
    ),
    "adamax": ({"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}, "grad rate moment moment pow"),
    "adagrad": ({"epsilon": 1e-6}, "grad moment rate"),
    "decayed_adagrad": ({"decay": 0.95, "epsilon": 1e-6}, "grad moment rate"),
    "adadelta": ({"rho": 0.95, "epsilon": 1e-6}, "grad moment moment"),
    "rmsprop": (
        {"epsilon": 1e-6, "decay": 0.9, "momentum": 0.5, "centered": True}, "moment moment rate grad moment",
    ),
    "ftrl": ({"l1": 0.5, "l2": 0.25, "lr_power": -0.5}, "moment grad grad rate"),
}  # fmt: skip


def state(words, shape, dtype, seed=0):
    """A parameter and what else its rule takes."""
    rng = np.random.default_rng(seed)
    makers = {
        "grad": lambda: rng.normal(size=shape).astype(dtype),
        "moment": lambda: rng.uniform(size=shape).astype(dtype),
        "rate": lambda: np.array([0.1], dtype),
        "pow": lambda: np.array([0.9], dtype),
        "none": lambda: None,
    }
    return [makers["grad"](), *[makers[word]() for word in words.split()], None]


def compiled_rule(type, arrays, attrs):
    return find_specializer(type, jit=True)(np, *[each_array(array_type, x) for x in arrays], **attrs)


@pytest.mark.parametrize("type", RULES)
def test_long_vectors_are_updated_by_several_threads_to_the_same_bits(type, monkeypatch):
    monkeypatch.setattr("minigraph.kernels.jit.threads.thread_count", lambda: 3)
    attrs, words = RULES[type]
    arrays = state(words, (7, 40_001), "float32")
    expected = find_kernel(type, "cpu").function(np, *arrays, **attrs)
    found = compiled_rule(type, arrays, attrs)(*arrays)
    for value, other in zip(found, expected, strict=True):
        assert value.tobytes() == other.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("type", RULES)
def test_a_flag_to_skip_leaves_everything_as_it_was(type):
    attrs, words = RULES[type]
    arrays = state(words, (2000,), "float64")
    rule = compiled_rule(type, arrays, attrs)
    expected = find_kernel(type, "cpu").function(np, *arrays[:-1], [np.array([True])], **attrs)
    found = rule(*arrays[:-1], [np.array([True])])
    for value, other in zip(found, expected, strict=True):
        assert value.tobytes() == other.tobytes()


@pytest.mark.parametrize("type", RULES)
def test_values_that_are_not_finite_or_tiny_go_the_same_way(type):
    attrs, words = RULES[type]
    arrays = state(words, (2048,), "float32")
    special = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e-45, -1e-39, 1e-30, 3e38, -1e30], "float32")
    for i, array in enumerate(arrays):
        if array is not None and array.size > 1:
            array[: 20 * (i + 1)] = np.resize(np.roll(special, i), 20 * (i + 1))
    expected = find_kernel(type, "cpu").function(np, *arrays, **attrs)
    found = compiled_rule(type, arrays, attrs)(*arrays)
    for value, other in zip(found, expected, strict=True):
        # What would be subnormal may have become 0, which is divided by the epsilon of the rule then.
        assert np.allclose(value, other, rtol=0, atol=np.finfo("float32").tiny / 1e-8, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("type", ["adamax", "adagrad", "decayed_adagrad", "adadelta", "ftrl"])
def test_state_of_zeros_and_gradients_that_are_not_finite_give_the_same_bits(type, dtype):
    attrs, words = RULES[type]
    special = np.array([0, -0.0, 1e-3, 1, -1, np.inf, -np.inf, np.nan], dtype)
    arrays = state(words, (2048,), dtype)
    names = update_rules.RULES[type].inputs
    for name, array in zip(names, arrays, strict=True):
        if array is not None and array.size > 1 and name != "param":
            array[...] = np.resize(special, 2048) if name == "grad" else 0
    attrs = attrs | {"l2": 0.0} if "l2" in attrs else attrs  # so that ftrl divides 0 by 0
    expected = find_kernel(type, "cpu").function(np, *arrays, **attrs)
    found = compiled_rule(type, arrays, attrs)(*arrays)
    for value, other in zip(found, expected, strict=True):
        assert np.array_equal(np.isnan(value), np.isnan(other))
        assert value[~np.isnan(value)].tobytes() == other[~np.isnan(other)].tobytes()


def test_ftrl_with_another_power_has_no_loop():
    attrs, words = RULES["ftrl"]
    assert compiled_rule("ftrl", state(words, (2048,), "float32"), attrs | {"lr_power": -0.7}) is None


@pytest.mark.slow
@pytest.mark.parametrize("type", ["momentum", "adam", "adamw", "rmsprop"])
def test_state_that_fades_away_becomes_zero(type):
    attrs, words = RULES[type]
    arrays = state(words, (3000,), "float32")
    names = update_rules.RULES[type].inputs
    fading = [i for i, name in enumerate(names) if name in update_rules.RULES[type].outputs and "pow" not in name and i]
    arrays[names.index("grad")][...] = 0
    for i in fading:
        arrays[i][...] = np.float32(1e-38)
    param = arrays[0].copy()
    rule = compiled_rule(type, arrays, attrs)
    for _ in range(2000):
        rule(*arrays, out=tuple(arrays[names.index(name)] for name in update_rules.RULES[type].outputs))
        values = np.concatenate([arrays[i] for i in fading])
        assert ((values == 0) | (np.abs(values) >= np.finfo("float32").tiny)).all()
    if type != "adamw":
        assert arrays[0].tobytes() == param.tobytes()


def test_state_does_not_become_zero_where_a_step_would_notice():
    attrs, words = RULES["adam"]
    arrays = state(words, (2000,), "float32")
    arrays[1][...] = 1e-20
    arrays[3][...], arrays[4][...] = 1e-21, 1e-41
    expected = find_kernel("adam", "cpu").function(np, *arrays, **(attrs | {"epsilon": 0.0}))
    found = compiled_rule("adam", arrays, attrs | {"epsilon": 0.0})(*arrays)
    for value, other in zip(found, expected, strict=True):
        assert value.tobytes() == other.tobytes()


# Norms


EXTREME = {
    "1e30": np.full(5000, 1e30), "1e-30": np.full(5000, -1e-30), "the largest": np.full(5000, 3e38),
    "subnormal": np.full(5000, 1e-42), "zero": np.zeros(5000), "far apart": np.resize([1e30, 1e-30, 1.0], 5000),
    "NaN": np.resize([1.0, np.nan], 5000), "infinity": np.resize([1.0, -np.inf], 5000),
    "both": np.resize([np.inf, np.nan], 5000), "beyond float32": np.full(5000, 1e200), "tiny": np.full(5000, 1e-200),
}  # fmt: skip


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("what", EXTREME)
def test_extreme_gradients_are_clipped_as_by_the_kernel(what, dtype, threads, monkeypatch):
    monkeypatch.setattr("minigraph.kernels.jit.threads.thread_count", lambda: threads)
    monkeypatch.setattr("minigraph.kernels.jit.threads.pieces", few_pieces(threads))
    monkeypatch.setattr("minigraph.kernels.jit.norms.pieces", few_pieces(threads))
    monkeypatch.setattr("minigraph.kernels.jit.norms._WORTH_A_THREAD", 0)
    xs = [EXTREME[what].astype(dtype), np.ones((3, 7), dtype), EXTREME[what][:9].astype(dtype)]
    for threshold in (1e-3, 1.0, 1e35, 1e-42):
        limit = np.array([threshold], dtype)
        found, norm = compiled_clip(xs, limit)(xs, limit)
        expected, expected_norm = clip_by_global_norm(np, xs, limit)
        near = max(4 * np.finfo(dtype).eps, 1e-13)
        assert np.allclose(norm, expected_norm, rtol=near, atol=0, equal_nan=True)
        for value, other in zip(found, expected, strict=True):
            assert np.allclose(value, other, rtol=near, atol=0 if other.any() else 1e-300, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_past_the_caches_have_the_bits_of_numpy(dtype):
    write = norms._STREAMS.compiled("write_products", f"void({dtype}[::1], {dtype}, {dtype}[::1])")
    x, number = np.random.default_rng(0).standard_normal(300).astype(dtype), np.dtype(dtype).type(0.3)
    x[[3, 40, 200]] = np.nan, np.inf, 1e-38
    for size, start in itertools.product((0, 1, 5, 16, 17, 31, 300), range(17)):
        memory = np.full(size + 40, 7, dtype)
        write(x[:size], number, memory[start : start + size])
        expected = np.full(size + 40, 7, dtype)
        expected[start : start + size] = x[:size] * number
        assert memory.tobytes() == expected.tobytes()


def compiled_clip(xs, limit):
    offer = find_specializer("clip_by_global_norm", jit=True)
    return offer(np, [array_type(x) for x in xs], array_type(limit), p=2.0, strict=False)


def test_a_gradient_under_the_threshold_is_itself():
    x = np.linspace(-1, 1, 3000, dtype="float32")
    found, _ = compiled_clip([x], np.array([100.0], "float32"))([x], np.array([100.0], "float32"))
    assert found[0] is x


@pytest.mark.slow
def test_the_norm_of_float32_is_exact_to_14_digits():
    random = np.random.default_rng(1)
    for size in (3000, 300_001):
        x = random.lognormal(0, 4, size).astype("float32")
        exact = math.fsum(float(v) ** 2 for v in x)
        norm = find_specializer("clip_factor", jit=True)(np, [array_type(x)], array_type(np.ones(1, "float32")), p=2.0)(
            [x], np.ones(1, "float32")
        )[0][2]
        assert abs(norm / math.sqrt(exact) - 1) < 1e-14


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norms_of_parts_have_the_bits_of_their_blocks(dtype):
    """Whether a block is measured by a loop does not depend on how many blocks a rank has."""
    random = np.random.default_rng(2)
    arrays = [random.normal(size=size).astype(dtype) for size in (8 * 3000, 8 * 5)]
    if dtype == "float64":
        arrays.append(random.normal(size=8 * 2000) * 1e200)
    found = {}
    for ranks in (1, 2, 8):
        blocks, rows = 8 // ranks, []
        for rank in range(ranks):
            parts = [np.split(each, ranks)[rank] for each in arrays]
            attrs = {"blocks": blocks, "p": 2.0}
            measure = find_specializer("part_norms", jit=True)(np, [array_type(each) for each in parts], **attrs)
            rows.append(measure(parts))
            expected = find_kernel("part_norms", "cpu").function(np, parts, **attrs)
            norms = [scales * np.sqrt(highs + lows) for scales, highs, lows in (rows[-1].T, expected.T)]
            np.testing.assert_allclose(*norms, rtol=1e-13)
        found[ranks] = np.concatenate(rows)
    assert found[1].tobytes() == found[2].tobytes() == found[8].tobytes()
    assert find_specializer("part_norms", jit=True)(np, [array_type(arrays[1])], blocks=8, p=2.0) is None


@pytest.mark.slow
def test_the_parts_for_the_threads_cover_every_array_once(monkeypatch):
    for count in (1, 2, 5):
        monkeypatch.setattr("minigraph.kernels.jit.threads.thread_count", lambda count=count: count)
        for sizes in ([0], [5, 0, 7], [400_000, 3, 400_000], [10] * 50_000, [900_000]):
            found = shares(sizes)
            assert len(found) == max(1, min(count, sum(sizes) // 65_536)) if sum(sizes) >= 131_072 else len(found) == 1
            seen = {}
            for number, start, end in (part for share in found for part in share):
                assert seen.get(number, 0) == start
                seen[number] = end
            assert [seen.get(i, 0) for i in range(len(sizes))] == sizes


# Merged updates


@pytest.mark.parametrize("factor", [None, (1.0, 1.0, 0.5), (1.0, 1.0, 3.0), (1e-30, 1.0, 1e30), (1.0, 1.0, np.nan)])
@pytest.mark.parametrize("is_joined", [True, False])
@pytest.mark.parametrize("type", RULES)
def test_merged_updates_give_the_same_bits(type, is_joined, factor):
    attrs, words = RULES[type]
    sizes = (1500, 700, 1)
    parts = [state(words, (size,), "float32", seed) for seed, size in enumerate(sizes)]
    names = update_rules.RULES[type].inputs
    lists = [
        part[0] if name in ("rate", "skip", "beta1_tensor", "beta2_tensor") else list(part)
        for name, part in zip(names, zip(*parts, strict=True), strict=True)
    ]
    types = [each_array(array_type, x) for x in lists]
    if is_joined:
        lists = [[np.concatenate(x)] if isinstance(x, list) else x for x in lists]
    given = None if factor is None else np.array(factor)
    rule = find_specializer(f"merged_{type}", jit=True)(np, *types, given, **attrs, sizes=sizes)
    kernel = find_kernel(f"merged_{type}", "cpu").function
    results = []
    for function in (lambda *a, out: kernel(np, *a, **attrs, sizes=sizes, out=out), rule):
        arrays = [each_array(np.copy, x) for x in lists]
        at = [names.index(name) for name in update_rules.RULES[type].outputs]
        out = tuple(arrays[i] for i in at)
        function(*arrays, given, out=out if len(out) > 1 else out[0])
        results.append(flat(out))
        results.append(
            flat(
                list(function(*[each_array(np.copy, x) for x in lists], given, out=None))
                if len(out) > 1
                else [function(*[each_array(np.copy, x) for x in lists], given, out=None)]
            )
        )
    for value, other in zip(results[0] + results[1], results[2] + results[3], strict=True):
        assert value.tobytes() == other.tobytes()


# Losses and sums


def compiled_kernel(type, arrays, **attrs):
    types = [None if array is None else array_type(array) for array in arrays]
    function = find_specializer(type, jit=True)(np, *types, **attrs)
    return function, lambda *arrays, **out: find_kernel(type, "cpu").function(np, *arrays, **attrs, **out)


LOSSES = {
    "softmax_with_cross_entropy": ({"soft_label": False, "ignore_index": -100, "axis": -1}, "x label"),
    "softmax_with_cross_entropy_grad": ({"soft_label": False, "ignore_index": -100, "axis": 1}, "p label d"),
    "cross_entropy": ({"soft_label": False, "ignore_index": -100}, "p label"),
    "cross_entropy_grad": ({"soft_label": False, "ignore_index": 3}, "p label d"),
    "cross_entropy2": ({"ignore_index": 3}, "p label"),
    "fused_mean_loss": (
        {"ignore_index": 3, "slope": 2.0, "from_logits": False, "wanted": (True, True, True)},
        "x label",
    ),
    "softmax": ({"axis": -1}, "x"),
    "softmax_grad": ({"axis": -1}, "p x"),
}


ENOUGH_ROWS = {"fused_mean_loss": 900}
"""Of fewer the loop is not compiled."""


def loss_arrays(words, dtype, rows=200):
    rng = np.random.default_rng(4)
    x = rng.normal(0, 30, (rows, 10))
    x[:4, 0] = np.nan, np.inf, -np.inf, 1e4
    x[4], x[5] = -np.inf, 0
    label = rng.integers(0, 10, (rows, 1))
    label[7:12] = 3
    makers = {
        "x": lambda: x.astype(dtype),
        "p": lambda: np.maximum(rng.dirichlet(np.ones(10), rows), 1e-20).astype(dtype),
        "d": lambda: rng.normal(size=(rows, 1)).astype(dtype),
        "label": lambda: label,
    }
    return [makers[word]() for word in words.split()]


@pytest.mark.laws
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("type", LOSSES)
def test_losses_agree_where_values_are_not_finite_and_in_place(type, dtype):
    attrs, words = LOSSES[type]
    arrays = loss_arrays(words, dtype, ENOUGH_ROWS.get(type, 200))
    function, kernel = compiled_kernel(type, arrays, **attrs)
    expected, eps = kernel(*arrays), np.finfo(dtype).eps
    for found in (function(*arrays), in_place(function, arrays, type)):
        for value, other in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, expected)], strict=True):
            assert np.allclose(value, other, rtol=8 * eps, atol=8 * eps, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [1, 4, 7, 37])
@pytest.mark.parametrize("value", [50.0, np.inf, np.nan])
def test_the_greatest_may_be_at_every_place_of_a_row(value, classes):
    x = np.random.default_rng(5).normal(size=(max(classes, 1100), classes)).astype("float32")
    x[range(classes), range(classes)] = value
    function, kernel = compiled_kernel("softmax", [x], axis=-1)
    np.testing.assert_allclose(function(x), kernel(x), rtol=1e-6, atol=1e-6)


def in_place(function, arrays, type):
    """What a loop gives that writes over what it reads first, as far as it has that shape."""
    arrays = [array.copy() for array in arrays]
    if type == "softmax_with_cross_entropy":
        return function(*arrays, out=(arrays[0], np.empty(arrays[1].shape, arrays[0].dtype)))
    if type == "fused_mean_loss":
        return function(*arrays, out=(np.empty_like(arrays[0]), None, arrays[0]))
    return function(*arrays) if type in ("cross_entropy", "cross_entropy2") else function(*arrays, out=arrays[0])


@pytest.mark.parametrize(
    "type", [type for type in LOSSES if "label" in LOSSES[type][1] and type != "softmax_with_cross_entropy_grad"]
)
def test_a_label_that_is_no_class_is_the_error_that_it_always_is(type):
    attrs, words = LOSSES[type]
    arrays = loss_arrays(words, "float32", ENOUGH_ROWS.get(type, 200))
    arrays[1][5] = 10
    function, _ = compiled_kernel(type, arrays, **attrs)
    with pytest.raises(ExecutionError, match="Label is 10 in row 5, but there are 10 classes"):
        function(*arrays)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("wants_y", [True, False])
@pytest.mark.parametrize("ignore_index", [-100, 3])
@pytest.mark.parametrize("from_logits", [False, True])
def test_a_mean_loss_and_its_gradient_are_those_of_the_single_operators(from_logits, ignore_index, wants_y, dtype):
    x, label = loss_arrays("x label", dtype, ENOUGH_ROWS["fused_mean_loss"])
    x, label[::5] = x[6:], -100 if ignore_index == -100 else 3
    wanted = wants_y, True, True
    attrs = {"ignore_index": ignore_index, "slope": 0.5, "from_logits": from_logits, "wanted": wanted}
    function, kernel = compiled_kernel("fused_mean_loss", [x, label[6:]], **attrs)
    found, expected, eps = function(x, label[6:]), kernel(x, label[6:]), np.finfo(dtype).eps
    for value, other, is_there in zip(found, expected, wanted, strict=True):
        assert (value is not None) == (other is not None) == is_there
        if is_there:
            assert (value.shape, value.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(value, other, rtol=16 * eps, atol=8 * eps * np.abs(other).max())


def test_ignored_labels_count_nothing():
    arrays = loss_arrays("x label", "float32")
    arrays[1][::3] = -100
    function, kernel = compiled_kernel("softmax_with_cross_entropy", arrays, **LOSSES["softmax_with_cross_entropy"][0])
    found, expected = function(*arrays), kernel(*arrays)
    assert (found[1][::3] == 0).all()
    assert np.allclose(found[1], expected[1], rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("shape", "own", "axis"),
    [((128, 64), (64,), 1), ((128, 64), (64,), -1), ((40, 64), (40,), 0), ((9, 16, 5, 7), (16,), 1),
     ((9, 16, 5, 7), (16, 5), 1), ((3000, 3), (3,), 1), ((6, 200, 1), (200, 1), 1)],
)  # fmt: skip
def test_sums_for_what_was_added_are_closer_to_the_exact_ones(shape, own, axis, always_compiled):
    rng = np.random.default_rng(5)
    x, y, d = rng.normal(size=shape).astype("float32"), np.zeros(own, "float32"), rng.lognormal(0, 2, shape)
    d = d.astype("float32")
    function, kernel = compiled_kernel("elementwise_add_grad", [x, y, d], axis=axis, wanted=(True, True))
    d_x, d_y = function(x, y, d)
    assert d_x is d
    exact = kernel(x.astype("float64"), y.astype("float64"), d.astype("float64"))[1]
    assert (np.abs(d_y - exact) <= 20 * np.spacing(np.abs(exact).astype("float32"))).all()
    worst = np.abs(d_y - exact).max()
    assert worst <= max(np.abs(kernel(x, y, d)[1] - exact).max(), 2 * np.spacing(np.float32(np.abs(exact).max())))
    buffers = np.empty_like(d), np.empty_like(y)
    found = function(x, y, d, out=buffers)
    assert found[0] is buffers[0] and found[1] is buffers[1]
    assert found[0].tobytes() == d.tobytes() and found[1].tobytes() == d_y.tobytes()


@pytest.mark.parametrize(("dim", "keep_dim"), [([0], False), ([0], True), ([0, 1], False), ([1, 0], True)])
def test_sums_over_leading_dimensions_are_closer_to_the_exact_ones(dim, keep_dim, always_compiled):
    x = np.random.default_rng(6).lognormal(0, 2, (70, 50, 9)).astype("float32")
    attrs = {"dim": dim, "keep_dim": keep_dim, "reduce_all": False, "out_dtype": -1}
    function, kernel = compiled_kernel("reduce_sum", [x], **attrs)
    exact, found = kernel(x.astype("float64")), function(x)
    assert found.shape == exact.shape
    assert (np.abs(found - exact) <= np.spacing(exact.astype("float32"))).all()
    buffer = np.empty_like(found)
    assert function(x, out=buffer) is buffer
    assert buffer.tobytes() == found.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(7, 300), (2100,), (3, 4, 50, 6)])
def test_an_operator_alone_that_takes_several_calls_is_one_loop(shape):
    rng = np.random.default_rng(7)
    result, d = np.tanh(rng.normal(size=shape)).astype("float32"), rng.normal(size=shape).astype("float32")
    for type in ("tanh_grad", "relu_grad", "sigmoid_grad"):
        function, kernel = compiled_kernel(type, [result, d])
        assert function(result, d).tobytes() == kernel(result, d).tobytes()
        buffer = d.copy()
        assert function(result, buffer, out=buffer) is buffer
        assert buffer.tobytes() == kernel(result, d).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("begin", [1, 2])
def test_normalized_rows_are_closer_to_the_exact_ones(begin):
    rng = np.random.default_rng(8)
    shape = (30, 20, 24)
    own = int(np.prod(shape[begin:]))
    x = (rng.normal(size=shape) + 100).astype("float32")
    scale, bias = (rng.uniform(0.5, 2, own).astype("float32") for _ in range(2))
    attrs = {"epsilon": 1e-5, "begin_norm_axis": begin}
    function, kernel = compiled_kernel("layer_norm", [x, scale, bias], **attrs)
    exact = kernel(*[a.astype("float64") for a in (x, scale, bias)])
    found, usual = function(x, scale, bias), kernel(x, scale, bias)
    for value, other, best in zip(found, usual, exact, strict=True):
        assert np.abs(value - best).max() <= max(np.abs(other - best).max(), 1e-6)
    d_y = rng.normal(size=shape).astype("float32")
    arrays = [x, scale, bias, *found[1:], d_y]
    backward, kernel = compiled_kernel("layer_norm_grad", arrays, **attrs, wanted=(True, True, True))
    exact = kernel(*[a.astype("float64") for a in arrays])
    for value, other, best in zip(backward(*arrays), kernel(*arrays), exact, strict=True):
        assert value.shape == best.shape
        assert np.abs(value - best).max() <= max(1.5 * np.abs(other - best).max(), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("given", [(), ("scale",), ("bias",), ("scale", "bias")])
def test_rows_are_normalized_with_and_without_scale_and_bias(given, dtype):
    rng = np.random.default_rng(9)
    x, d_y = (rng.normal(size=(60, 240)).astype(dtype) for _ in range(2))
    own = [rng.uniform(0.5, 2, 240).astype(dtype) if name in given else None for name in ("scale", "bias")]
    attrs = {"epsilon": 1e-5, "begin_norm_axis": 1}
    function, kernel = compiled_kernel("layer_norm", [x, *own], **attrs)
    arrays = [x, *own, *kernel(x, *own)[1:], d_y]
    wanted = True, *(each is not None for each in own)
    backward, gradients = compiled_kernel("layer_norm_grad", arrays, **attrs, wanted=wanted)
    found, expected = [*function(x, *own), *backward(*arrays)], [*kernel(x, *own), *gradients(*arrays)]
    for value, other in zip(found, expected, strict=True):
        assert (value is None) == (other is None)
        if other is not None:
            assert (value.dtype, value.shape) == (other.dtype, other.shape)
            assert np.abs(value - other).max() <= 16 * np.finfo(dtype).eps * np.abs(other).max()


@pytest.mark.slow
@pytest.mark.parametrize("is_test", [False, True])
@pytest.mark.parametrize("shape", [(8, 32, 16, 16), (8, 64, 2, 2), (64, 20)])
def test_batch_normalization_is_as_exact_as_the_kernel(shape, is_test):
    rng = np.random.default_rng(3)
    x, d_y = (rng.normal(size=shape) + level for level in (100, 0))
    scale, bias, mean, variance = (rng.uniform(0.5, 2, shape[1]) for _ in range(4))
    x, d_y, scale, bias, mean, variance = (a.astype("float32") for a in (x, d_y, scale, bias, mean, variance))
    shared = {"epsilon": 1e-5, "data_layout": "NCHW", "is_test": is_test}
    shared |= {"use_global_stats": False, "trainable_statistics": False}
    given = [x, scale, bias, mean, variance, None]
    function, kernel = compiled_kernel("batch_norm", given, **shared, momentum=0.9)
    exact = kernel(*[a if a is None else a.astype("float64") for a in given])
    found = function(*given)
    for value, other, best in zip(found, kernel(*given), exact, strict=True):
        assert value.shape == best.shape and value.dtype == other.dtype
        assert np.abs(value - best).max() <= max(1.5 * np.abs(other - best).max(), 1e-6)
    arrays = [x, scale, bias, *found[3:], d_y]
    backward, kernel = compiled_kernel("batch_norm_grad", arrays, **shared, wanted=(True, True, True))
    exact = kernel(*[a.astype("float64") for a in arrays])
    for value, other, best in zip(backward(*arrays), kernel(*arrays), exact, strict=True):
        assert value.shape == best.shape and value.dtype == other.dtype
        assert np.abs(value - best).max() <= max(1.5 * np.abs(other - best).max(), 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_of_what_has_no_dimensions_needs_no_loop(dtype):
    found = find_specializer("reduce_sum", jit=True)(
        np, array_type(np.zeros((), dtype)), dim=(0,), keep_dim=False, reduce_all=True, out_dtype=-1
    )
    assert found is None
