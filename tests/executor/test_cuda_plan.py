"""Plans of a `CUDAPlace`: the same flat buffers, places and bits as on the processor, run on a stand-in for CuPy."""

from itertools import pairwise

import numpy as np
import pytest
from asserting import assert_close
from host_cuda import launches, needs_compiler
from networks import CLIPS, CLIPS_IN_SCOPE, OPTIMIZERS, SHAPES, GradientsInScope, Network

import minigraph as fluid
from minigraph import layers
from minigraph.runtime.place import CUDAPlace

pytestmark = pytest.mark.numbers

CASES = [
    *((optimizer, clip, "float32") for optimizer in OPTIMIZERS for clip in CLIPS),
    *((optimizer, "global norm", "float64") for optimizer in OPTIMIZERS),
]


def trained(network, executor, start, dtype=None):
    """What three steps make of the scope `start`, which stays as it is; converted to `dtype`, if that is given."""
    scope = fluid.Scope()
    for name in start.local_var_names():
        scope.var(name).get_tensor().set(np.array(start.find_var(name).get_tensor(), dtype), fluid.CPUPlace())
    return network.run(executor, scope)


def assert_as_close_as_the_processor(found, start, optimizer, clip, dtype):
    """In float32 both are compared with training in float64: updates may magnify roundings of products a lot."""

    def on_the_processor(dtype):
        return trained(Network(optimizer, clip, dtype=dtype), fluid.Executor(jit=False), start, dtype)

    expected, exact = on_the_processor(dtype), on_the_processor("float64")
    if dtype == "float64":
        assert_close(found, expected, 1e-12)
        return
    for name, value in expected.items():
        error, error_here = (np.abs(each - exact[name]).max() for each in (found[name], value))
        assert error <= 16 * error_here + 64 * np.finfo(dtype).eps * np.abs(exact[name]).max(), name


@pytest.mark.laws
@needs_compiler
@pytest.mark.parametrize(("optimizer", "clip", "dtype"), CASES)
def test_training_agrees_with_the_processor(optimizer, clip, dtype, host_cuda):
    network = Network(optimizer, clip, dtype=dtype)
    start = network.scope()
    executor = fluid.Executor(CUDAPlace(0))
    assert_as_close_as_the_processor(trained(network, executor, start), start, optimizer, clip, dtype)
    plan = network.plan(executor)
    assert plan.buffers.flat.views
    assert plan.buffers.layout.size
    assert all(isinstance(array, host_cuda.ndarray) for array in plan.binding.arrays(start))


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_of_training_is_few_launches(optimizer, host_cuda_fused):
    """Fused operators, too, whose hyperbolic tangents are another library's."""
    network = Network(optimizer, "global norm", dtype="float64")
    start, executor = network.scope(), fluid.Executor(CUDAPlace(0))
    found = trained(network, executor, start)
    own = [name for name in launches if name != "fused"]
    assert own == ["partial_sums", "finish", "update"] * 3
    assert "fused" in launches
    expected = trained(network, fluid.Executor(jit=False), start)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-9, err_msg=str(name))


@pytest.mark.gpu
@pytest.mark.parametrize(("optimizer", "clip", "dtype"), CASES)
def test_training_on_a_gpu_agrees_with_the_processor(optimizer, clip, dtype, cuda_place):
    network = Network(optimizer, clip, dtype=dtype)
    start = network.scope()
    assert_as_close_as_the_processor(trained(network, fluid.Executor(cuda_place), start), start, optimizer, clip, dtype)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("clip", CLIPS_IN_SCOPE)
def test_gradients_of_the_scope_are_clipped_as_on_the_processor(clip, host_cuda):
    gradients = GradientsInScope(SHAPES, CLIPS_IN_SCOPE[clip])
    found, expected = gradients.run(fluid.Executor(CUDAPlace(0))), gradients.run(fluid.Executor(jit=False))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.frombuffer(a, "float32"), np.frombuffer(b, "float32"), rtol=2e-6)


@needs_compiler
def test_state_lies_side_by_side_in_the_memory_of_the_place(host_cuda):
    network = Network()
    executor, scope = fluid.Executor(CUDAPlace(0)), network.scope()
    network.run(executor, scope, steps=1)
    arrays = [scope.find_var(p.name).value for p, _ in network.params_grads]
    plan = network.plan(executor)
    joined = [a for a in plan.binding.arrays(scope) if a.ndim == 1 and a.size == sum(x.size for x in arrays)]
    ends = sorted((a.data.ptr, a.data.ptr + a.nbytes) for a in arrays)
    assert all(end == start for (_, end), (start, _) in pairwise(ends))
    assert any(a.data.ptr == ends[0][0] for a in joined)
    before = [a.data.ptr for a in arrays]
    network.run(executor, scope, steps=1)
    assert [scope.find_var(p.name).value.data.ptr for p, _ in network.params_grads] == before


@pytest.mark.gpu
def test_what_a_gpu_has_trained_is_read_on_the_processor(cuda_place):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3])
        loss = layers.mean(layers.fc(x, 2))
        test = fluid.default_main_program().clone(for_test=True)
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        scope, feed = fluid.Scope(), {"x": np.ones((4, 3), "float32")}
        on_gpu = fluid.Executor(cuda_place)
        on_gpu.run(fluid.default_startup_program(), scope=scope)
        for _ in range(3):
            on_gpu.run(feed=feed, fetch_list=[loss], scope=scope)
            (expected,) = on_gpu.run(test, feed, [loss], scope=scope)
            for other in (fluid.Interpreter(), fluid.Executor(), fluid.Interpreter(cuda_place)):
                np.testing.assert_allclose(other.run(test, feed, [loss], scope=scope)[0], expected, rtol=1e-5)


@pytest.mark.gpu
def test_runs_of_sequences_are_checked_on_a_gpu(cuda_place):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        words = fluid.data("words", [None, 2], lod_level=1)
        words.stop_gradient = False
        loss = layers.mean(layers.sequence_pool(layers.sequence_softmax(layers.reduce_sum(words, 1)), "max"))
        (grad,) = fluid.gradients([loss], [words])
        feed = {"words": fluid.create_lod_tensor(np.ones((5, 2), "float32"), [[2, 3]], fluid.CPUPlace())}
        found, expected = (
            each.run(feed=feed, fetch_list=[loss, grad], return_numpy=False)
            for each in (fluid.Executor(cuda_place, check=True), fluid.Interpreter())
        )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.array(one), np.array(other), rtol=1e-5)
