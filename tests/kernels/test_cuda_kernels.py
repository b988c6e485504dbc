"""Norms, clips and updates in CUDA, run on the processor and compared with the shared kernels."""

import math
import shutil
import subprocess

import host_cuda as stand_in
import numpy as np
import pytest
from exact_norms import exact_norm, units_away
from host_cuda import needs_compiler, on_device
from kernel_calls import calls, flat
from sampled import DETERMINISTIC, each

from minigraph.kernels import find_kernel
from minigraph.kernels.cuda import launching, rows, updates
from minigraph.kernels.merged_updates import TYPES
from minigraph.kernels.update_rules import RULES

DTYPES = ["float32", "float64"]


pytestmark = pytest.mark.usefixtures("like_an_executor")


def both(cupy, type, *inputs, **attrs):
    """What the kernels of the processor and of the GPU make of the same arrays, and the names of what was launched."""
    expected = find_kernel(type, "cpu").function(np, *inputs, **attrs)
    given = [on_device(cupy, entry) for entry in inputs]
    stand_in.launches.clear()
    stand_in.ndarray.looked_at = 0
    found = find_kernel(type, "cuda").function(cupy, *given, **attrs)
    assert not (stand_in.launches and stand_in.ndarray.looked_at), "the values were waited for"
    return expected, found, list(stand_in.launches)


def arrays(dtype, *shapes, size=1.0, seed=0):
    random = np.random.default_rng(seed)
    return [(random.standard_normal(shape) * size).astype(dtype) for shape in shapes]


SHAPES = [(3,), (0, 4), (1,), (70, 83), (4096,), (4097,), (1, 9001), (2, 3, 5)]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threshold", [1e-3, 1.0, 50.0, 1e9])
def test_a_group_is_clipped_in_three_launches_without_waiting(threshold, dtype, host_cuda):
    xs = arrays(dtype, *SHAPES)
    (clipped, norm), (found, found_norm), launched = both(
        host_cuda, "clip_by_global_norm", xs, np.array([threshold], dtype), p=2.0, strict=False
    )
    assert launched == ["partial_sums", "finish", "scale_down"]
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(found_norm, norm, rtol=tolerance)
    assert found_norm.dtype == dtype
    for a, b, x in zip(found, clipped, xs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=tolerance)
        if norm <= threshold:
            assert a.tobytes() == x.tobytes()


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 4097, 100_001, 300_000])
def test_a_norm_is_within_two_units_of_the_exact_one(size, dtype, host_cuda):
    for x in (np.full(size, 0.6732655185893088, dtype), *arrays(dtype, (size,), size=1e-3)):
        found = find_kernel("global_norm", "cuda").function(host_cuda, [host_cuda.asarray(x)], p=2.0)
        assert units_away(np.asarray(found)[0], exact_norm([x])) <= 2


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("type", ["clip_factor", "clip_by_global_norm", "global_norm"])
def test_any_number_of_arrays_takes_as_many_launches_as_one(type, dtype, host_cuda):
    counts = []
    for count in (1, 300):
        xs = arrays(dtype, *[(7,)] * count)
        more = () if type == "global_norm" else (np.array([0.5], dtype),)
        expected, found, launched = both(host_cuda, type, xs, *more, p=2.0)
        counts.append(len(launched))
        if type == "clip_factor":  # its scale may be another power of two
            np.testing.assert_allclose(found[0][1] * found[0][2], expected[0][1] * expected[0][2], rtol=1e-14)
            assert found[0][0] == expected[0][0]
        elif type == "global_norm":
            np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps)
    assert counts[0] == counts[1] <= 3


EXTREMES = {
    "zeros": [0.0, 0.0],
    "huge": [1e300, -2e305, 3e280],
    "largest": [1.7e308, 1.7e308],
    "tiny": [1e-300, 2e-308, -3e-280],
    "subnormal": [5e-324, 1e-320],
    "huge and tiny": [1e300, 1e-300, 1.0],
    "tiny and one": [1e-200, 1.0],
    "at the borders": [2.0**480, 2.0**-480, 2.0**481, 2.0**-481],
    "small middle": [2.0**-470, 2.0**-490],
    "NaN": [1.0, math.nan, 2.0],
    "infinity": [1.0, math.inf],
    "negative infinity": [-math.inf, 1e300],
    "NaN and infinity": [math.nan, math.inf],
}


@pytest.mark.laws
@needs_compiler
@pytest.mark.parametrize("case", EXTREMES)
@pytest.mark.parametrize("threshold", [1.0, 1e-290, 1e300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_are_as_on_the_processor(case, threshold, dtype, host_cuda):
    x = np.array(EXTREMES[case]).astype(dtype)
    expected, found, _ = both(host_cuda, "clip_by_norm", x, max_norm=threshold)
    np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps)
    (total,), (found_total,) = both(host_cuda, "global_norm", [x], p=2.0)[:2]
    np.testing.assert_allclose(found_total, total, rtol=4 * np.finfo(dtype).eps)


@needs_compiler
def test_a_norm_is_exact_where_squares_would_be_lost(host_cuda):
    for power in (-1070, -600, -480, -300, 0, 300, 480, 600, 1020):
        x = np.ldexp(np.array([3.0, 4.0]), power)
        _, found, _ = both(host_cuda, "global_norm", [x], p=2.0)
        assert found[0] == math.ldexp(5.0, power)


@needs_compiler
def test_results_are_written_to_the_buffers_that_are_given(host_cuda):
    xs = [host_cuda.asarray(x) for x in arrays("float32", (5,), (6, 7))]
    threshold = host_cuda.asarray(np.array([0.5], "float32"))
    kernel = find_kernel("clip_by_global_norm", "cuda").function
    expected, expected_norm = kernel(host_cuda, xs, threshold)
    outs, norm_out = [host_cuda.empty(x.shape, x.dtype) for x in xs], host_cuda.empty((1,), "float32")
    found, norm = kernel(host_cuda, xs, threshold, out=(outs, norm_out))
    assert norm is norm_out
    assert all(a is b for a, b in zip(found, outs, strict=True))
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]
    assert norm.tobytes() == expected_norm.tobytes()
    again, _ = kernel(host_cuda, xs, threshold, out=(xs, norm_out))
    assert again[0] is xs[0]
    assert [a.tobytes() for a in xs] == [a.tobytes() for a in expected]


@needs_compiler
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_other_types_and_orders_go_to_the_shared_kernel(dtype, p, host_cuda):
    xs = arrays(dtype, (5,), (6, 7))
    (clipped, norm), (found, found_norm), launched = both(
        host_cuda, "clip_by_global_norm", xs, np.array([0.5], "float32"), p=p
    )
    assert bool(launched) is (dtype == "float32" and p == 2)
    for a, b in zip([*found, found_norm], [*clipped, norm], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3 if dtype == "float16" else 1e-6)


@needs_compiler
def test_columns_are_clipped_as_rows(host_cuda):
    (x,) = arrays("float64", (6, 7))
    given = host_cuda.asarray(x)[:, ::2]
    found = find_kernel("clip_by_norm", "cuda").function(host_cuda, given, max_norm=0.5)
    np.testing.assert_allclose(found, find_kernel("clip_by_norm", "cpu").function(np, x[:, ::2], max_norm=0.5))


@needs_compiler
def test_a_table_is_copied_once(host_cuda):
    rows = [(10, 0, 1, 2), (5000, 1, 3, 4), (4096, 0, 5, 6)]
    table = launching.table_of(host_cuda, rows)
    assert launching.table_of(host_cuda, rows) is table
    assert (table.rows, table.pieces, table.blocks) == (3, 4, 4)
    assert table.array.reshape(3, 5)[:, 0].tolist() == [0, 1, 3]
    assert launching.table_of(host_cuda, rows[:2]) is not table


@needs_compiler
def test_tables_are_let_go_in_the_end(host_cuda, monkeypatch):
    monkeypatch.setattr(launching, "_tables", launching.OrderedDict())
    monkeypatch.setattr(launching, "_KEPT_TABLES", 2)
    for number in range(5):
        launching.table_of(host_cuda, [(number + 1, 0, 0, 0)])
    assert [key[2][0] for key in launching._tables] == [4, 5]


@needs_compiler
def test_tables_of_a_recording_are_its_own_and_there_before_it_runs(host_cuda):
    rows = [(10, 0, 1, 2)]
    shared = launching.table_of(host_cuda, rows)
    with launching.Capturing(host_cuda.cuda.Stream(non_blocking=True)) as capturing:
        table = launching.table_of(host_cuda, rows)
        assert launching.counter(host_cuda) is not launching.counter(host_cuda)
    assert table is not shared
    assert capturing.kept == [table]
    lasting = ["allocate from the driver", "sent on other", "allocate as before"]
    assert host_cuda.events == ["sent on main", *lasting]
    assert launching.table_of(host_cuda, rows) is shared
    assert launching.counter(host_cuda) is launching.counter(host_cuda)


# Updates


MERGED = [s for s in DETERMINISTIC if s.op in {f"merged_{type}" for type in RULES}]


def same_bits(found, expected):
    found, expected = ([each] if isinstance(each, np.ndarray) else list(each) for each in (found, expected))
    for a, b in zip(flat(found), flat(expected), strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@needs_compiler
@each(MERGED)
def test_an_update_has_the_bits_of_the_shared_kernel(sample, host_cuda):
    for dtype in sample.dtypes:
        for call in calls(sample, dtype):
            expected, found, launched = both(host_cuda, call.op.type, *call.inputs, **call.keywords)
            same_bits(found, expected)
            assert launched == (["update"] if dtype in DTYPES and is_taken(call) else [])


def is_taken(call):
    """Whether no tensors stand in for attributes, no state is left out, and roots are no other powers."""
    given = dict(zip((slot.name for slot in call.op.definition.inputs), call.inputs, strict=True))
    if call.keywords.get("lr_power", -0.5) != -0.5:
        return False
    return all(given.get(f"Beta{i}Tensor") is None for i in (1, 2)) and given.get("MeanGrad", True)


def test_every_rule_has_a_sample():
    assert {s.op.removeprefix("merged_") for s in MERGED} == set(TYPES)


ATTRS = {
    "sgd": {},
    "momentum": {"mu": 0.9, "use_nesterov": True},
    "adam": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
    "adamw": {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "coeff": 0.01, "with_decay": True, "lr_ratio": 0.5},
    "adamax": {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8},
    "adagrad": {"epsilon": 1e-6},
    "decayed_adagrad": {"decay": 0.9, "epsilon": 1e-6},
    "adadelta": {"rho": 0.9, "epsilon": 1e-6},
    "rmsprop": {"decay": 0.9, "momentum": 0.5, "epsilon": 1e-6, "centered": True},
    "ftrl": {"l1": 0.5, "l2": 0.25, "lr_power": -0.5},
}
SIZES = (5, 0, 4096, 1, 9001)


def merged_inputs(type, dtype, joined, factor=None, skip=None):
    """Arrays for parameters of `SIZES`, as lists or as one vector each."""
    kernel = find_kernel(f"merged_{type}", "cpu").function
    random = np.random.default_rng(1)
    inputs = []
    for name in kernel.names:
        if name == "rate":
            inputs.append(np.array([0.1], dtype))
        elif name == "skip":
            inputs.append(skip)
        elif name.endswith("_tensor"):
            inputs.append(None)
        elif name.endswith("_pow"):
            numbers = random.uniform(0.1, 0.9, len(SIZES)).astype(dtype)
            inputs.append([numbers] if joined else [numbers[i : i + 1].copy() for i in range(len(SIZES))])
        else:
            values = random.uniform(0.01, 1, sum(SIZES)).astype(dtype)
            inputs.append([values] if joined else [x.copy() for x in np.split(values, np.cumsum(SIZES)[:-1])])
    return kernel, [*inputs, factor]


@pytest.mark.laws
@needs_compiler
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("type", ATTRS)
def test_vectors_are_updated_in_place_by_one_launch(type, dtype, joined, host_cuda):
    """With a factor that shrinks the gradient, and powers that differ from parameter to parameter."""
    factor = np.array([0.5, 1.0, 3.0])
    kernel, inputs = merged_inputs(type, dtype, joined, factor)
    expected = kernel(np, *inputs, sizes=SIZES, **ATTRS[type])
    expected = expected if isinstance(expected, tuple) else (expected,)
    given = [on_device(host_cuda, entry) for entry in inputs]
    outs = [given[kernel.names.index(name)] for name in kernel.outputs]
    found = find_kernel(f"merged_{type}", "cuda").function(
        host_cuda, *given, sizes=SIZES, **ATTRS[type], out=tuple(outs) if len(outs) > 1 else outs[0]
    )
    assert stand_in.launches == ["update"]
    for made, out, right in zip(found if len(outs) > 1 else (found,), outs, expected, strict=True):
        assert all(a is b for a, b in zip(made, out, strict=True))
        assert np.concatenate(out).tobytes() == np.concatenate(right).tobytes()
    again = [on_device(host_cuda, entry) for entry in inputs]  # the counter of blocks begins anew
    more = find_kernel(f"merged_{type}", "cuda").function(host_cuda, *again, sizes=SIZES, **ATTRS[type])
    same_bits(list(more) if len(outs) > 1 else [more], outs)


@pytest.mark.laws
@needs_compiler
@pytest.mark.parametrize("type", ["sgd", "adam", "rmsprop"])
@pytest.mark.parametrize("flags", [(False, False), (False, True)])
def test_a_flag_on_the_device_skips_an_update(type, flags, host_cuda):
    kernel, inputs = merged_inputs(type, "float32", True, skip=[np.array([flag]) for flag in flags])
    expected, found, launched = both(host_cuda, f"merged_{type}", *inputs, sizes=SIZES, **ATTRS[type])
    assert launched == ["update"]
    for made, right in zip(*(x if type != "sgd" else [x] for x in (found, expected)), strict=True):
        assert np.concatenate(made).tobytes() == np.concatenate(right).tobytes()
    if any(flags):
        first = found[0] if type != "sgd" else found
        same_bits([np.concatenate(first)], inputs[kernel.names.index("param")])


@needs_compiler
@pytest.mark.parametrize("factor", [[2.0, 1.0, 1.0], [1.0, 1.0, math.nan], [1.0, 1.0, math.inf], [1.0, 2.0**1000, 3.0]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_factor_does_to_gradients_what_a_clip_does(factor, dtype, host_cuda):
    _, inputs = merged_inputs("sgd", dtype, True, np.array(factor))
    expected, found, _ = both(host_cuda, "merged_sgd", *inputs, sizes=SIZES)
    same_bits(found, expected)


# Compiling


def sources():
    found = {"norms": launching.source("norms"), "rows": rows.text()}
    for type, attrs in ATTRS.items():
        kernel = find_kernel(f"merged_{type}", "cpu").function
        own = tuple(n for n in kernel.names if n not in ("rate", "skip", "beta1_tensor", "beta2_tensor"))
        shape = updates.Shape(type, own, kernel.outputs)
        for flags in ({}, dict.fromkeys([name for name, value in attrs.items() if value is True], False)):
            for number in ("float", "double"):
                element = RULES[type].element({**attrs, **flags})
                found[f"{type}_{number}{'_' * bool(flags)}"] = updates.text(shape, element, number)
    return found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="the CUDA toolkit is not installed")
def test_the_toolkit_compiles_every_source(tmp_path):
    """All in one file, each in a namespace of its own, because the compiler takes a second to start."""
    lines = []
    for number, (name, text) in enumerate(sources().items()):
        text = text.replace(" update(", f" update_{number}(")
        lines += [f"namespace {name} {{", *text.splitlines(), "#undef BLOCK", "#undef PIECE", "#undef RUN", "}"]
    path = tmp_path / "kernels.cu"
    path.write_text("\n".join(lines), encoding="utf-8")
    command = ["nvcc", *launching.OPTIONS, "--ptx", "-Werror", "all-warnings", "-o", tmp_path / "out.ptx", path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entries = sum(text.count("__global__ void") for text in sources().values())
    assert (tmp_path / "out.ptx").read_text(encoding="utf-8").count(".entry") == entries
