"""Trainings at the same time, in threads and in forked processes, get what they get one after the other."""

import multiprocessing

import numpy as np
import pytest
from jit_support import needs_numba
from networks import Network, at_the_same_time

import minigraph as fluid
from minigraph.runtime.place import CPUPlace

STEPS = 20


def training(network, executor, number):
    """The losses and the parameters of a training that starts where `number` says, as bytes."""
    scope = network.scope()
    for param, _ in network.params_grads:
        start = np.array(scope.find_var(param.name).get_tensor()) * (1 + number)
        scope.find_var(param.name).get_tensor().set(start, CPUPlace())
    losses = [executor.run(network.main, network.feed, [network.loss], scope=scope)[0] for _ in range(STEPS)]
    return b"".join([*map(bytes, losses), *(bytes(scope.find_var(p.name).value) for p, _ in network.params_grads)])


WITH_AND_WITHOUT_JIT = pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])


@pytest.mark.slow
@WITH_AND_WITHOUT_JIT
def test_one_executor_trains_in_several_threads(jit):
    network, executor = Network(), fluid.Executor(jit=jit)
    expected = [training(network, executor, number) for number in range(4)]
    assert len(set(expected)) == 4
    found = at_the_same_time([lambda n=n: training(network, executor, n) for n in range(4)])
    assert found == expected


@pytest.mark.slow
@WITH_AND_WITHOUT_JIT
def test_each_thread_has_an_executor(jit):
    network = Network("momentum", "value")
    expected = [training(network, fluid.Executor(jit=jit), number) for number in range(4)]
    found = at_the_same_time([lambda n=n: training(network, fluid.Executor(jit=jit), n) for n in range(4)])
    assert found == expected


@pytest.mark.slow
@WITH_AND_WITHOUT_JIT
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_trains_on(jit):
    """It inherits plans, memory and scopes, and shares none of them."""
    network, executor = Network(), fluid.Executor(jit=jit)
    expected = [training(network, executor, number) for number in range(2)]
    fork = multiprocessing.get_context("fork")
    results = fork.SimpleQueue()
    child = fork.Process(target=lambda: results.put(training(network, executor, 1)))
    child.start()
    own = training(network, executor, 0)
    found = results.get()
    child.join(60)
    assert child.exitcode == 0
    assert [own, found] == expected
