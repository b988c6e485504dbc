"""Ranks that begin with different parameters are told so, when they first run a program that sums gradients."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers, parallel
from minigraph.parallel import DataParallel
from minigraph.support.communicator import current

pytestmark = pytest.mark.filterwarnings("ignore:each rank averages")


def run(rank, seed=5, is_prepared=True, sharded=False, rate=0.1, threshold=1.0):
    """Two steps; the number of exchanges of each."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = layers.mean(layers.fc(layers.fc(fluid.data("x", [None, 4]), 3), 1))
        fluid.optimizer.Adam(rate, grad_clip=fluid.clip.GradientClipByGlobalNorm(threshold)).minimize(loss)
    rewrite = DataParallel(2, sharded=sharded)
    twin = rewrite(main)
    if is_prepared:
        rewrite.prepare(startup, twin)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    history, counts = current()._meeting.histories[rank], []
    for _ in range(2):
        before = len(history)
        executor.run(twin, {"x": np.ones((2, 4), "float32")}, scope=scope)
        counts.append(len(history) - before)
    return counts


@pytest.mark.parametrize("sharded", [False, True])
def test_a_startup_program_that_is_not_rewritten_is_noticed(sharded):
    def start(rank):
        return run(rank, seed=rank + 1, is_prepared=sharded, sharded=sharded)

    if sharded:  # which cannot do without
        parallel.simulate(start, 2)
        return
    with pytest.warns(UserWarning, match=r"ranks begin with different parameters.*prepare\(startup\)") as found:
        counts = parallel.simulate(start, 2)
    assert len([each for each in found if "begin with" in str(each.message)]) == 2
    assert counts == [[2, 1]] * 2  # they are compared once


@pytest.mark.filterwarnings("error:ranks begin")
@pytest.mark.parametrize(("seed", "is_prepared"), [(5, False), (0, True)])
def test_ranks_with_one_seed_or_a_rewritten_startup_program_are_alike(seed, is_prepared):
    parallel.simulate(lambda rank: run(rank, seed, is_prepared), 2)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": [0.1, 0.2]}, r"different values of learning_rate_0, which updates read"),
        ({"threshold": [1.0, 2.0]}, "ranks make different updates.*without conditions on the rank"),
    ],
)
def test_updates_that_depend_on_the_rank_are_noticed(options, message, sharded):
    with pytest.warns(UserWarning, match=message):
        parallel.simulate(
            lambda rank: run(rank, sharded=sharded, **{key: values[rank] for key, values in options.items()}), 2
        )
