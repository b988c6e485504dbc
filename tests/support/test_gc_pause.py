"""The collector waits while the library makes many objects, and is afterwards what it was before."""

import gc

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.support.gc_pause import without_collector


@pytest.fixture(autouse=True)
def collecting():
    was_enabled, threshold = gc.isenabled(), gc.get_threshold()
    gc.enable()
    yield
    gc.set_threshold(*threshold)
    (gc.enable if was_enabled else gc.disable)()


@without_collector
def is_collecting():
    return gc.isenabled()


def test_it_waits_and_goes_on():
    assert not is_collecting()
    assert gc.isenabled()


def test_it_goes_on_after_an_error():
    with pytest.raises(ZeroDivisionError):
        without_collector(lambda: 1 / 0)()
    assert gc.isenabled()


def test_it_goes_on_only_behind_the_outermost_of_several():
    assert without_collector(lambda: (is_collecting(), gc.isenabled()))() == (False, False)
    assert gc.isenabled()


def test_it_stays_off_where_the_user_has_turned_it_off():
    gc.disable()
    assert not is_collecting()
    assert not gc.isenabled()


@pytest.mark.slow
def test_no_stage_is_interrupted():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        h = fluid.data("x", [None, 4])
        for _ in range(200):
            h = layers.fc(h, 4, act="tanh")
        loss, main = layers.mean(h), fluid.default_main_program()
        exe = fluid.Executor(jit=False)
        exe.run(fluid.default_startup_program())
        feed = {"x": np.ones((2, 4), "float32")}
        pairs = collections(lambda: fluid.append_backward(loss))
        clipped = collections(lambda: fluid.clip.GradientClipByGlobalNorm(1.0)(pairs))
        twin = collections(main.clone)
        collections(lambda: exe.run(twin, feed, [grad.name for _, grad in clipped]))


def collections(stage):
    """What a stage returns that makes thousands of objects, during which there may be one collection at its end."""
    seen = []
    gc.collect()
    gc.set_threshold(100)
    gc.callbacks.append(lambda phase, info: seen.append(phase))
    try:
        result = stage()
    finally:
        gc.callbacks.pop()
        gc.set_threshold(700)
    assert seen.count("stop") <= 2
    return result
