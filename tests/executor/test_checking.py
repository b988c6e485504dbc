"""Checked runs: they compute what others do, and raise where memory is used as no plan allows."""

import dataclasses
import threading

import numpy as np
import pytest
from jit_support import needs_numba

import minigraph as fluid
from minigraph import layers
from minigraph.errors import MemoryUseError
from minigraph.executor.checking import _PATTERNS, arrays_in, fill_with_pattern
from minigraph.executor.plan import lower
from minigraph.kernels import registry
from minigraph.runtime.place import CPUPlace
from minigraph.types import DType, TensorType, as_dtype

pytestmark = pytest.mark.usefixtures("new_program", "new_scope")

X = np.linspace(-1, 1, 6, dtype="float32").reshape(3, 2)


@pytest.fixture
def kernel_of(monkeypatch):
    """Puts another function in the place of a kernel."""

    def replace(type, function):
        key = type, None
        monkeypatch.setitem(registry._KERNELS, key, dataclasses.replace(registry._KERNELS[key], function=function))
        monkeypatch.setattr(registry, "_SPECIALIZERS", {**registry._SPECIALIZERS, type: lambda *a, **k: None})

    return replace


def run(fetch, feed=None, times=1, **options):
    executor = fluid.Executor(check=True, **options)
    for _ in range(times):
        found = executor.run(feed={"x": X} if feed is None else feed, fetch_list=fetch)
    return found


@pytest.mark.parametrize("size", [2, 300_000])
def test_a_view_that_the_kernel_does_not_declare_is_named(kernel_of, size):
    kernel_of("expand", lambda xp, x, *_, expand_times: xp.broadcast_to(x, (len(x), 3)))
    x, z = fluid.data("x", [None, 1]), fluid.data("z", [None, 1])
    h = layers.elementwise_add(x, z)
    wide = layers.expand(h, [1, 3])
    t = layers.elementwise_mul(x, z)
    for _ in range(2):
        t = layers.cumsum(layers.elementwise_add(t, z), axis=0)
    out = layers.cumsum(layers.transpose(wide, [1, 0]), axis=1)
    feed = {name: np.ones((size, 1), "float32") for name in "xz"}
    with pytest.raises(MemoryUseError) as caught:
        run([out, layers.reduce_max(t)], feed)
    assert caught.value.message == f"expand: {wide.name} shares memory with {h.name}"
    assert "in: wide = layers.expand(h, [1, 3])" in str(caught.value)


def test_a_view_of_what_is_fed_or_of_state_is_named(kernel_of):
    kernel_of("tanh", lambda xp, x, out=None: x)
    x, w = fluid.data("x", [3, 2]), layers.create_parameter([3, 2], "float32", name="w")
    y, z = layers.tanh(x), layers.tanh(w)
    fluid.Executor().run(fluid.default_startup_program())
    for result, source in ((y, x), (z, w)):
        with pytest.raises(MemoryUseError, match=f"{result.name} shares memory with {source.name}"):
            run([result])


@pytest.mark.parametrize("times", [1, 2])
def test_an_operator_that_writes_to_its_input_is_named(kernel_of, times):
    def kernel(xp, x, out=None):
        result = xp.tanh(x)
        x += times == kernel.calls
        kernel.calls += 1
        return result

    kernel.calls = 1
    kernel_of("tanh", kernel)
    h = layers.scale(fluid.data("x", [3, 2]), 2.0)
    y = layers.tanh(h)
    with pytest.raises(MemoryUseError) as caught:
        run([y, h], times=times)
    assert caught.value.message == f"tanh: {h.name} is an input and was written to"
    assert "6 of 6 elements differ: the one at [0, 0] was -2.0, is -1.0" in str(caught.value)
    assert "in: y = layers.tanh(h)" in str(caught.value)


@pytest.fixture
def keeping(kernel_of):
    """tanh keeps what it returns and changes it in the next call."""
    kept = []

    def kernel(xp, x, out=None):
        for each in kept:
            each += 1
        kept.append(xp.tanh(x))
        return kept[-1]

    kernel_of("tanh", kernel)


def test_an_operator_that_changes_an_earlier_result_is_named(keeping):
    x = fluid.data("x", [3, 2])
    first = layers.tanh(x)
    second = layers.tanh(layers.scale(x, 2.0))
    with pytest.raises(MemoryUseError) as caught:
        run([layers.elementwise_add(first, second)])
    assert caught.value.message == f"tanh: {first.name} changed before elementwise_add reads it"
    assert "in: first = layers.tanh(x)" in str(caught.value)


def test_a_result_that_a_later_run_changes_is_named(keeping):
    y = layers.tanh(fluid.data("x", [3, 2]))
    executor = fluid.Executor(check=True)
    held = executor.run(feed={"x": X}, fetch_list=[y])
    with pytest.raises(MemoryUseError, match=f"tanh: {y.name} was handed out by an earlier run and was changed"):
        executor.run(feed={"x": X}, fetch_list=[y])
    del held


def test_memory_that_the_caller_still_has_is_not_handed_out_again(kernel_of):
    memory = np.empty((3, 2), "float32")
    kernel_of("tanh", lambda xp, x, out=None: xp.tanh(x, out=memory))
    y = layers.tanh(fluid.data("x", [3, 2]))
    executor = fluid.Executor(check=True)
    held = executor.run(feed={"x": X}, fetch_list=[y])
    with pytest.raises(
        MemoryUseError, match=f"{y.name} is handed out and shares memory with {y.name} of an earlier run"
    ):
        executor.run(feed={"x": X}, fetch_list=[y])
    del held


def test_a_result_that_cannot_be_written_to_is_named(kernel_of):
    kernel_of("fill_constant", lambda xp, *_, **attrs: xp.broadcast_to(np.float32(1), (2, 2)))
    y = layers.fill_constant([2, 2], "float32", 1.0)
    with pytest.raises(MemoryUseError, match=f"fill_constant: {y.name} is handed out and cannot be written to"):
        run([y], {})


def test_what_the_user_changes_between_runs_is_the_users():
    y = layers.tanh(fluid.data("x", [3, 2]))
    executor = fluid.Executor(check=True)
    (held,) = executor.run(feed={"x": X}, fetch_list=[y])
    held += 1
    executor.run(feed={"x": held}, fetch_list=[y])
    held += 1
    executor.run(feed={"x": held}, fetch_list=[y])


def test_arrays_that_are_fed_may_share_memory():
    x, y = fluid.data("x", [3, 2]), fluid.data("y", [3, 2])
    part = layers.slice(x, axes=[0], starts=[0], ends=[2])
    found = run([layers.scale(part, 2.0), layers.scale(y, 3.0)], {"x": X, "y": X})
    assert np.array_equal(found[0], 2 * X[:2]) and np.array_equal(found[1], 3 * X)


def test_an_error_in_a_sub_block_is_named(kernel_of):
    kernel_of("tanh", lambda xp, x, out=None: x)
    x, i = fluid.data("x", [3, 2]), layers.fill_constant([1], "int64", 0)
    n = layers.fill_constant([1], "int64", 2)
    h = layers.scale(x, 1.0)

    def body(i, h):
        doubled = layers.scale(h, 2.0)
        return layers.increment(i, in_place=False), layers.elementwise_add(layers.tanh(doubled), doubled)

    _, h = layers.while_loop(lambda i, h: layers.less_than(i, n), body, [i, h])
    with pytest.raises(MemoryUseError, match=r"tanh: .* shares memory with") as caught:
        run([h])
    assert "layers.tanh(doubled)" in str(caught.value)


@pytest.mark.parametrize("dtype", list(DType))
def test_each_element_type_has_its_pattern(dtype):
    array = np.zeros((2, 3), dtype.numpy)
    fill_with_pattern(array[:, ::2])
    bits = array.view(f"u{array.itemsize}")
    assert (bits[:, ::2] == _PATTERNS[array.dtype.str[1:]]).all() and not bits[:, 1].any()
    if dtype.is_floating:
        assert np.isnan(array[:, ::2]).all()


def training():
    h = layers.fc(fluid.data("x", [None, 2]), 300, act="tanh")
    loss = layers.mean(layers.square(layers.fc(h, 2)))
    fluid.optimizer.Adam(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1)).minimize(loss)
    return [loss, h, "fc_0.w_0@GRAD"]


@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])
def test_a_checked_run_gives_the_same_bits(jit):
    fluid.default_startup_program().random_seed = 3
    fetch = training()
    x = np.random.default_rng(0).standard_normal((1000, 2), np.float32)
    found = []
    for check in (False, True):
        executor, scope = fluid.Executor(jit=jit, check=check), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        values = [executor.run(feed={"x": x}, fetch_list=fetch, scope=scope) for _ in range(3)]
        found.append([array.tobytes() for each in values for array in each])
    assert found[0] == found[1]


def test_a_run_that_is_not_checked_calls_nothing_that_checks():
    fetch = [getattr(each, "name", each) for each in training()]
    types = {"x": TensorType(as_dtype("float32"), (3, 2))}
    for check in (False, True):
        rows = lower(fluid.default_main_program(), types, fetch, CPUPlace(), check=check).compiled.instructions.rows
        modules = {getattr(row.function.call, "__module__", "numpy") for row in rows if row.function is not None}
        assert ("minigraph.executor.checking" in modules) is check


def test_a_place_of_another_kind_is_checked_too(kernel_of, host_cuda):
    y = layers.tanh(layers.scale(fluid.data("x", [3, 2]), 2.0))
    held = run([y], times=2)
    on_device = run([y], times=2, place=fluid.CUDAPlace(0))
    np.testing.assert_allclose(on_device[0], held[0], rtol=1e-6)
    kernel_of("tanh", lambda xp, x, out=None: x)
    with pytest.raises(MemoryUseError, match=f"tanh: {y.name} shares memory with"):
        run([y], place=fluid.CUDAPlace(0))


def test_threads_check_their_own_runs():
    y = layers.tanh(layers.scale(fluid.data("x", [None, 2]), 2.0))
    executor, main, failures = fluid.Executor(check=True), fluid.default_main_program(), []

    def work(number):
        x = np.full((100 + number, 2), number, "float32")
        try:
            for _ in range(20):
                (found,) = executor.run(main, feed={"x": x}, fetch_list=[y])
                assert np.array_equal(found, np.tanh(2 * x))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures


def test_a_list_consists_of_the_arrays_that_are_there():
    assert list(map(id, arrays_in([X, None, [X]]))) == [id(X), id(X)]


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("", False), ("0", False), ("off", False)])
def test_the_environment_switches_it_on(value, expected, monkeypatch):
    monkeypatch.setenv("MINIGRAPH_CHECK", value)
    assert fluid.Executor().check is expected
    assert fluid.Executor(check=False).check is False
    assert fluid.Executor(check=True).check is True


def test_lengths_of_sequences_have_memory_of_their_own():
    x = fluid.data("x", [None, 2], lod_level=1)
    x.stop_gradient = False
    rnn = layers.DynamicRNN()
    with rnn.block():
        row, before = rnn.step_input(x), rnn.memory(shape=[2], value=0.0)
        after = layers.tanh(row + before)
        rnn.update_memory(before, after)
        rnn.output(after)
    pooled = layers.sequence_pool(layers.lod_reset(rnn(), y=x), "sum")
    (gradient,) = fluid.gradients([layers.reduce_sum(pooled)], [x])
    feed = {"x": fluid.create_lod_tensor(X, [[1, 2]], CPUPlace())}
    checked = fluid.Executor(check=True).run(feed=feed, fetch_list=[pooled, gradient], return_numpy=False)
    expected = fluid.Executor().run(feed=feed, fetch_list=[pooled, gradient], return_numpy=False)
    for a, b in zip(checked, expected, strict=True):
        assert np.array(a).tobytes() == np.array(b).tobytes() and a.lod() == b.lod()
