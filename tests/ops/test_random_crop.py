"""Crops at random places: which places there are, and what decides them."""

import numpy as np
from one_op import run

import minigraph as fluid
from minigraph import layers


def test_each_sample_is_cropped_at_a_place_of_its_own_and_all_places_are_as_likely():
    places = np.arange(12).reshape(3, 4)
    found, _ = run("random_crop", {"X": np.tile(places, (6000, 1, 1)), "Seed": np.array([3])}, shape=[2, 3])
    first = found[:, :1, :1]
    assert np.array_equal(found, first + places[:2, :3])
    corners, counts = np.unique(first, return_counts=True)
    assert corners.tolist() == [0, 1, 4, 5]
    np.testing.assert_allclose(counts / 6000, 0.25, atol=0.03)


def test_a_seed_decides_the_places_of_all_runs_and_the_runs_differ():
    def runs():
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            out = layers.random_crop(fluid.data("x", [None, 50]), [4], seed=11)
            executor, scope = fluid.Executor(), fluid.Scope()
            executor.run(fluid.default_startup_program(), scope=scope)
            feed = {"x": np.tile(np.arange(50, dtype="float32"), (8, 1))}
            return [executor.run(feed=feed, fetch_list=[out], scope=scope)[0] for _ in range(3)]

    first, again = runs(), runs()
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], first[1]) and not np.array_equal(first[1], first[2])
