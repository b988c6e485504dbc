"""Mixed precision: programs are those that Paddle 1.8.5 builds, and train in float16."""

import json
from pathlib import Path

import golden_mixed_precision
import numpy as np
import pytest

import minigraph as fluid
from minigraph.contrib import mixed_precision
from minigraph.errors import ProgramError

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "mixed_precision.json").read_text(encoding="utf-8"))
RANDOM = np.random.default_rng(0)
BATCH = {"x": RANDOM.normal(size=(16, 4)).astype("float32"), "y": RANDOM.normal(size=(16, 1)).astype("float32")}


@pytest.mark.parametrize(("kind", "dynamic", "expected"), RECORDED, ids=[f"{kind} {dyn}" for kind, dyn, _ in RECORDED])
def test_operators_are_those_of_the_original(kind, dynamic, expected):
    assert golden_mixed_precision.operators(golden_mixed_precision.build(fluid, kind, dynamic)[0]) == expected


def test_it_goes_around_recomputation():
    """As fleet puts them; the operators are those of 1.8.5."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        hidden = fluid.layers.fc(fluid.data("x", [None, 4]), 4, act="tanh")
        inner = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.Momentum(0.1, 0.9))
        inner._set_checkpoints([hidden])
        optimizer = mixed_precision.decorate(inner, init_loss_scaling=8.0, use_dynamic_loss_scaling=False)
        optimizer.minimize(fluid.layers.mean(fluid.layers.fc(hidden, 1)))
    assert [op.type for op in main.global_block().ops] == [
        *("cast", "cast", "mul", "cast", "elementwise_add", "tanh"),
        *("cast", "mul", "cast", "elementwise_add", "cast", "mean"),
        *("elementwise_mul", "fill_constant", "elementwise_mul_grad", "mean_grad"),
        *("cast", "elementwise_add_grad", "mul_grad", "cast", "cast"),
        *("mul", "cast", "elementwise_add", "tanh_grad", "elementwise_add_grad", "mul_grad", "cast", "cast"),
        *("cast",) * 2, *("elementwise_div",) * 4, *("momentum",) * 4,
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_float16_trains_as_float32_to_its_digits(dynamic):
    main, startup, loss, optimizer = golden_mixed_precision.build(fluid, "mlp", dynamic)
    assert main.global_block().var("fc_0.tmp_0").dtype == fluid.float16
    assert main.global_block().var("fc_0.w_0@GRAD").dtype == fluid.float32
    with fluid.program_guard(plain := fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
        h = fluid.layers.fc(x, 3, act="relu")
        same = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(h, 1), y))
        fluid.optimizer.SGD(0.1).minimize(same)
    executor, scopes = fluid.Executor(), (fluid.Scope(), fluid.Scope())
    for scope in scopes:
        executor.run(startup, scope=scope)
    for param in plain.all_parameters():
        scopes[1].var(param.name).value = scopes[0].var(param.name).value.copy()
    scopes[1].var("learning_rate_0").value = np.full(1, 0.1, "float32")
    losses = [
        [executor.run(program, BATCH, [var.name], scope=scope)[0].item() for _ in range(20)]
        for program, var, scope in ((main, loss, scopes[0]), (plain, same, scopes[1]))
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=5e-3)
    assert losses[0][-1] < losses[0][0]
    assert optimizer.get_scaled_loss() is not None


def test_the_factor_follows_the_gradients():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2])
        loss = fluid.layers.mean(fluid.layers.fc(x, 1, bias_attr=False))
        optimizer = mixed_precision.decorate(
            fluid.optimizer.SGD(0.1), init_loss_scaling=4.0, incr_every_n_steps=2, decr_every_n_nan_or_inf=2
        )
        optimizer.minimize(loss)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)

        def step(value):
            feed = {"x": np.full((1, 2), value, "float32")}
            found = executor.run(feed=feed, fetch_list=[optimizer.get_loss_scaling(), "fc_0.w_0"], scope=scope)
            return found[0].item(), found[1]

        assert [step(1.0)[0] for _ in range(4)] == [4, 4, 8, 8]  # in the step after two good ones
        before = step(1.0)[1]
        found = [step(np.inf) for _ in range(3)]
        assert [each[0] for each in found] == [8, 8, pytest.approx(8 * 0.8)]
        np.testing.assert_array_equal(found[2][1], before)


def test_lists_may_be_changed():
    lists = mixed_precision.AutoMixedPrecisionLists({"tanh"}, {"mul"}, {"x"})
    assert "tanh" in lists.white_list and "mul" in lists.black_list and lists.black_varnames == {"x"}
    with pytest.raises(ProgramError, match="tanh cannot be both"):
        mixed_precision.AutoMixedPrecisionLists({"tanh"}, {"tanh"})
