"""Places: what they are equal to, what there is, training on a GPU."""

import sys
import types

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import MissingExtraError, PlaceError, WrongTypeError
from minigraph.runtime.place import CPUPlace, CUDAPlace, Place, cpu_places, cuda_places, is_compiled_with_cuda


def fake_cupy(device_count):
    """As much of CuPy as a place touches, on a machine with so many GPUs (None: no driver)."""
    cupy = types.ModuleType("cupy")

    class CUDARuntimeError(RuntimeError):
        pass

    def count():
        if device_count is None:
            raise CUDARuntimeError("cudaErrorInsufficientDriver")
        return device_count

    used = []
    device = lambda number: types.SimpleNamespace(use=lambda: used.append(number))  # noqa: E731
    runtime = types.SimpleNamespace(getDeviceCount=count, CUDARuntimeError=CUDARuntimeError)
    cupy.cuda = types.SimpleNamespace(runtime=runtime, Device=device)
    cupy.used = used
    return cupy


@pytest.fixture
def no_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)


@pytest.fixture
def machine(monkeypatch):
    def with_gpus(count):
        cupy = fake_cupy(count)
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        return cupy

    return with_gpus


def test_cpu_is_numpy():
    place = CPUPlace()
    array = np.ones(3)
    assert place.xp is np
    assert place.to_device(array) is array
    assert place.to_host(array) is array


def test_places_are_equal_when_they_are_the_same_device():
    assert CPUPlace() == CPUPlace()
    assert CUDAPlace(1) == CUDAPlace(1)
    assert len({CPUPlace(), CPUPlace(), CUDAPlace(0), CUDAPlace(0), CUDAPlace(1)}) == 3
    assert CUDAPlace(0) != CUDAPlace(1)
    assert CPUPlace() != CUDAPlace(0)


def test_a_place_shows_what_would_make_it():
    assert [repr(p) for p in (CPUPlace(), CUDAPlace(2))] == ["CPUPlace()", "CUDAPlace(2)"]


def test_the_base_class_is_no_place_to_run_on():
    with pytest.raises(PlaceError, match=r"CPUPlace\(\) or CUDAPlace\(0\)"):
        fluid.Executor(Place())


def test_a_seeded_generator_repeats_itself():
    place = CPUPlace()
    assert place.rng(3).integers(1000) == place.rng(3).integers(1000)
    assert place.rng().random() != place.rng().random()


@pytest.mark.parametrize("number", ["0", 1.0, True, None])
def test_a_device_number_is_an_int(number):
    with pytest.raises(WrongTypeError, match="device_id must be an int"):
        CUDAPlace(number)


def test_a_device_number_is_not_negative():
    with pytest.raises(PlaceError, match="at least 0, got -1"):
        CUDAPlace(-1)


def test_without_cupy_the_error_names_the_extra(no_cupy):
    place = CUDAPlace(0)  # may be named in a program that then runs elsewhere
    with pytest.raises(MissingExtraError, match=r"pip install 'minigraph\[cuda12\]'"):
        fluid.Executor(place)
    with pytest.raises(ImportError, match="CuPy"):
        _ = place.xp


def test_without_cupy_there_are_no_gpus(no_cupy):
    assert not is_compiled_with_cuda()
    with pytest.raises(MissingExtraError):
        cuda_places()


@pytest.mark.parametrize(("count", "said"), [(None, "sees 0 GPUs"), (0, "sees 0 GPUs"), (1, "sees 1 GPU$")])
def test_a_gpu_that_is_not_there_is_an_error_that_counts_those_that_are(machine, count, said):
    machine(count)
    with pytest.raises(PlaceError, match="(?m)" + said) as caught:
        fluid.Executor(CUDAPlace(count or 0))
    assert "CPUPlace()" in str(caught.value)
    assert not isinstance(caught.value, ImportError)


def test_the_gpus_of_a_machine_are_counted(machine):
    cupy = machine(2)
    assert is_compiled_with_cuda()
    assert cuda_places() == [CUDAPlace(0), CUDAPlace(1)]
    assert CUDAPlace(1).xp is cupy
    assert cupy.used == [1]
    machine(None)
    assert not is_compiled_with_cuda()
    assert cuda_places() == []


def test_lists_of_places():
    assert cpu_places(3) == [CPUPlace()] * 3
    assert cpu_places() == [CPUPlace()]
    assert cuda_places([0, 2]) == [CUDAPlace(0), CUDAPlace(2)]


def test_an_executor_needs_a_place():
    with pytest.raises(WrongTypeError, match="place must be a Place or None, got 'cpu'"):
        fluid.Executor("cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("clip", ["value", "norm", "global"])
def test_training_on_a_gpu_agrees_with_the_processor(cuda_place, clip):
    strategy = {
        "value": fluid.clip.GradientClipByValue(0.01),
        "norm": fluid.clip.GradientClipByNorm(0.1),
        "global": fluid.clip.GradientClipByGlobalNorm(0.2),
    }[clip]
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 5
    with fluid.program_guard(main, startup):
        image = layers.data(name="image", shape=[64])
        label = layers.data(name="label", shape=[1], dtype="int64")
        hidden = layers.fc(image, 32, act="relu")
        prediction = layers.fc(hidden, 10, act="softmax")
        loss = layers.mean(layers.cross_entropy(prediction, label))
        unclipped = main.clone()
        pairs = fluid.optimizer.Adam(0.01, grad_clip=strategy).minimize(loss)[1]
    random = np.random.default_rng(0)
    batches = [
        {"image": random.random((16, 64), "float32"), "label": random.integers(0, 10, (16, 1))} for _ in range(3)
    ]
    start = fluid.Scope()
    fluid.Executor(CPUPlace()).run(startup, scope=start)
    results = {}
    for place in (CPUPlace(), cuda_place):
        executor, scope = fluid.Executor(place), fluid.Scope()
        for name in start.local_var_names():
            scope.var(name).get_tensor().set(np.array(start.find_var(name).get_tensor()), place)
        fetch = [loss, *(grad for _, grad in pairs)]
        trained = [executor.run(main, feed=batch, fetch_list=fetch, scope=scope) for batch in batches]
        tested = executor.run(unclipped, feed=batches[0], fetch_list=[prediction], scope=scope)
        params = [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]
        results[place] = [*(value for step in trained for value in step), *tested, *params]
    for found, expected in zip(results[cuda_place], results[CPUPlace()], strict=True):
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-6)


@pytest.mark.gpu
def test_a_parameter_moves_to_the_place_that_uses_it(cuda_place):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [2, 2])
        out = layers.fc(x, 2, param_attr=fluid.ParamAttr("w", fluid.initializer.Constant(2.0)))
    feed = {"x": np.ones((2, 2), "float32")}
    scope = fluid.Scope()
    fluid.Executor(CPUPlace()).run(startup, scope=scope)
    for place in (cuda_place, CPUPlace(), cuda_place):
        np.testing.assert_array_equal(
            fluid.Executor(place).run(main, feed, [out], scope=scope)[0], np.full((2, 2), 4.0)
        )
        assert scope.find_var("w").place == place
