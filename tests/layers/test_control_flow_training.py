"""Training through loops, branches and recurrent networks: optimizers, clips, schedules, several backward passes."""

import numpy as np
import pytest
from both_executors import numbers

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify


@pytest.fixture(autouse=True)
def new_program():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        yield


FEED = {"x": numbers(4, 3, 2, dtype="float32")}


def network():
    """A recurrent network, and a loop with a branch after it."""
    x = fluid.data("x", [None, 3, 2])
    outputs, _ = layers.rnn(layers.GRUCell(3), x)
    shared = {"param_attr": "shared", "bias_attr": False, "act": "tanh"}

    def body(i, h):
        return [i + 1, layers.cond(i < 1, lambda: layers.fc(h, 3, **shared), lambda: h * 2.0)]

    start = [layers.fill_constant([1], "int64", 0), layers.reduce_mean(outputs, dim=1)]
    _, h = layers.while_loop(lambda i, h: i < 2, body, start)
    return layers.mean(layers.square(h))


def losses(executor, loss, steps=4):
    with fluid.scope_guard(fluid.Scope()):
        executor.run(fluid.default_startup_program())
        return [executor.run(feed=FEED, fetch_list=[loss])[0].item() for _ in range(steps)]


CLIPS = {
    "value": lambda: fluid.clip.GradientClipByValue(0.01),
    "norm": lambda: fluid.clip.GradientClipByNorm(0.05),
    "global norm": lambda: fluid.clip.GradientClipByGlobalNorm(0.05),
    "unit": lambda: fluid.clip.AdaptiveGradientClip(0.05),
}
OPTIMIZERS = {
    "sgd": lambda clip: fluid.optimizer.SGD(0.1, grad_clip=clip),
    "momentum": lambda clip: fluid.optimizer.Momentum(0.1, 0.9, grad_clip=clip),
    "adam": lambda clip: fluid.optimizer.Adam(0.01, grad_clip=clip),
    "lamb": lambda clip: fluid.optimizer.Lamb(0.01, grad_clip=clip),
    "lookahead": lambda clip: fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1, grad_clip=clip), k=2),
    "merge": lambda clip: fluid.optimizer.GradientMergeOptimizer(fluid.optimizer.SGD(0.1, grad_clip=clip), 2),
    "schedule": lambda clip: fluid.optimizer.SGD(layers.piecewise_decay([2, 3], [0.1, 0.05, 0.01]), grad_clip=clip),
}


@pytest.mark.laws
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("clip", ["global norm", None])
def test_every_optimizer_trains_through_loops_and_branches(optimizer, clip):
    loss = network()
    OPTIMIZERS[optimizer](CLIPS[clip]() if clip else None).minimize(loss)
    main = fluid.default_main_program()
    verify(main)
    assert fluid.Program.parse(str(main)).equals(main)
    found = losses(fluid.Executor(), loss)
    assert found == losses(Interpreter(), loss)
    assert found[-1] < found[0]


@pytest.mark.slow
@pytest.mark.parametrize("clip", CLIPS)
def test_a_clip_takes_the_gradient_of_a_loop_as_a_whole(clip):
    loss = network()
    pairs = fluid.backward.append_backward(loss)
    strategy = CLIPS[clip]()
    clipped = strategy(pairs)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    found = executor.run(feed=FEED, fetch_list=[grad for _, grad in (*pairs, *clipped)])
    before, after = found[: len(pairs)], found[len(pairs) :]
    assert len(pairs) == 5
    assert any((a != b).any() for a, b in zip(before, after, strict=True))
    if clip == "value":
        assert all(np.array_equal(b, np.clip(a, -0.01, 0.01)) for a, b in zip(before, after, strict=True))
    elif clip == "norm":
        assert all(np.linalg.norm(each) <= 0.05 * (1 + 1e-6) for each in after)
    elif clip == "global norm":
        assert np.sqrt(sum(np.square(each).sum() for each in after)) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.slow
def test_two_backward_passes_have_blocks_of_their_own():
    loss = network()
    once = fluid.backward.append_backward(loss)
    twice = fluid.backward.append_backward(loss * 2.0)
    main = fluid.default_main_program()
    verify(main)
    assert fluid.Program.parse(str(main)).equals(main)
    assert sorted(block.forward_block_idx for block in main.blocks if block.forward_block_idx > 0) == sorted(
        [block.idx for block in main.blocks if block.idx and block.forward_block_idx < 0] * 2
    )
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    found = executor.run(feed=FEED, fetch_list=[grad for _, grad in (*once, *twice)])
    for single, double in zip(found[: len(once)], found[len(once) :], strict=True):
        assert np.allclose(single * 2, double, rtol=1e-5)


@pytest.mark.slow
def test_a_comparison_of_clips_takes_programs_with_blocks():
    loss = network()
    clips = {"none": None, "tight": CLIPS["global norm"]()}
    report = fluid.compare_training(
        fluid.default_main_program(), loss, clips, [FEED] * 4, startup=fluid.default_startup_program(),
        optimizer=lambda: fluid.optimizer.SGD(0.5),
    )  # fmt: skip
    assert (report.strategies["tight"].total.norm_after <= 0.05 * (1 + 1e-6)).all()
    assert report.strategies["none"].loss[-1] < report.strategies["tight"].loss[-1] < report.strategies["tight"].loss[0]
