"""Files of state of which each rank keeps a part are those of one rank, and any number of ranks loads them."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from built_once import built_once
from exact_trainings import SHARDS, feeds_of, perceptron

import minigraph as fluid
from minigraph import parallel
from minigraph.errors import ExecutionError, MismatchError
from minigraph.parallel import DataParallel

pytestmark = [pytest.mark.filterwarnings("ignore:exact=True", "ignore:in "), pytest.mark.numbers]


def save_vars(executor, twin, folder):
    fluid.io.save_persistables(executor, folder, twin)


def load_vars(executor, twin, folder):
    fluid.io.load_persistables(executor, folder, twin)


WAYS = {
    "a file for each": (save_vars, load_vars),
    "one file": (
        lambda executor, twin, folder: fluid.io.save_persistables(executor, folder, twin, "all"),
        lambda executor, twin, folder: fluid.io.load_persistables(executor, folder, twin, "all"),
    ),
    "save": (
        lambda _, twin, folder: fluid.save(twin, folder + "/net"),
        lambda executor, twin, folder: fluid.load(twin, folder + "/net", executor),
    ),
    "safetensors": (
        lambda _, twin, folder: fluid.save(twin, folder + "/net.safetensors"),
        lambda executor, twin, folder: fluid.load(twin, folder + "/net.safetensors", executor),
    ),
    "state": (
        save_vars,
        lambda _, twin, folder: fluid.io.set_program_state(twin, fluid.io.load_program_state(folder)),
    ),
}


@built_once
def built(ranks, sharded):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 11
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = perceptron()
        fluid.optimizer.Adam(0.01, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)).minimize(loss)
    rewrite = DataParallel(ranks, shards=SHARDS, exact=True, sharded=sharded)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    return main, startup, twin


def train(rank, ranks, steps, sharded=True, load=None, save=None):
    """The bits of the parameters after these steps, of which `load` comes in front, and `save` after."""
    main, startup, twin = built(ranks, sharded)
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor()
        executor.run(startup)
        if load is not None:
            load(executor, twin)
        for step in steps:
            fed = feeds_of(main.global_block(), step)
            executor.run(twin, {key: np.split(array, ranks)[rank] for key, array in fed.items()})
        if save is not None:
            save(executor, twin)
        return [np.array(fluid.global_scope().find_var(p.name).get_tensor()).tobytes() for p in main.all_parameters()]


def files_of(folder):
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    # A mark names its save, and a description the program.
    return {path.name: path.read_bytes() for path in paths if "mark" not in path.name and path.suffix != ".pdmodel"}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_files_are_those_of_one_rank_and_go_on_on_any_number(way, tmp_path):
    if way == "safetensors":
        pytest.importorskip("safetensors", reason="needs the extra [safetensors]")
    save, load = WAYS[way]
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    train(0, 1, range(3), sharded=False, save=partial(save, folder=whole))
    parallel.simulate(partial(train, ranks=4, steps=range(3), save=partial(save, folder=parts)), 4)
    assert files_of(parts) == files_of(whole)
    expected = train(0, 1, range(6), sharded=False)
    assert train(0, 1, range(3, 6), sharded=False, load=partial(load, folder=parts)) == expected
    for ranks in (1, 2, 8):
        run = partial(train, ranks=ranks, steps=range(3, 6), load=partial(load, folder=parts))
        assert parallel.simulate(run, ranks) == [expected] * ranks


@pytest.mark.slow
def test_every_rank_may_have_the_bytes():
    found = []

    def save(executor, twin):
        found.append(fluid.io.save_persistables(executor, None, twin))

    train(0, 1, range(2), sharded=False, save=save)
    parallel.simulate(partial(train, ranks=4, steps=range(2), save=save), 4)
    assert len(found) == 5
    assert len(set(found)) == 1


@pytest.mark.slow
def test_one_rank_alone_neither_saves_nor_loads(tmp_path):
    save, load = (partial(each, folder=str(tmp_path)) for each in (save_vars, load_vars))
    parallel.simulate(partial(train, ranks=2, steps=(), save=save), 2)
    for options in ({"save": save}, {"load": load}):
        with pytest.raises(ExecutionError, match="the program is for 2 ranks, but 1 runs"):
            train(0, 2, (), **options)


@pytest.mark.slow
def test_what_does_not_fit_is_refused(tmp_path):
    def load(executor, twin):
        for path in tmp_path.glob("fc_*moment*"):
            path.write_bytes((tmp_path / "learning_rate_0").read_bytes())
        load_vars(executor, twin, str(tmp_path))

    train(0, 1, (), save=partial(save_vars, folder=str(tmp_path)))
    with pytest.raises(MismatchError, match=r"fc_0\.w_0_moment1_0 is declared float32\[20, 32\]"):
        train(0, 1, (), load=load)
