"""Merging the gradients of k steps is training on batches k times as large."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify

START = np.array([[0.3, -1.0, 2.0], [0.7, 0.1, -0.4]], "float32")

OPTIMIZERS = {
    "sgd": lambda **options: fluid.optimizer.SGD(0.1, **options),
    "momentum": lambda **options: fluid.optimizer.Momentum(0.1, 0.9, **options),
    "adam": lambda **options: fluid.optimizer.Adam(0.1, **options),
    "adamax": lambda **options: fluid.optimizer.Adamax(0.1, **options),
    "lamb": lambda **options: fluid.optimizer.Lamb(0.1, **options),
    "rmsprop": lambda **options: fluid.optimizer.RMSProp(0.1, **options),
    "ftrl": lambda **options: fluid.optimizer.Ftrl(0.1, **options),
    "lars": lambda **options: fluid.optimizer.LarsMomentum(0.1, 0.9, **options),
}
CLIPS = {
    "value": lambda: fluid.clip.GradientClipByValue(0.2),
    "norm": lambda: fluid.clip.GradientClipByNorm(0.5),
    "global norm": lambda: fluid.clip.GradientClipByGlobalNorm(0.5),
    "auto": lambda: fluid.clip.AutoClip(50.0, 4),
    "zclip": lambda: fluid.clip.ZClip(0.9, 0.7, warmup_steps=2),
}


class Training:
    """Parameters whose gradients are fed: ``w``'s as ``g``, the bias's as ``h``."""

    def __init__(self, optimizer, executor=None):
        self.main, self.startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            g, h = fluid.data("g", [2, 3]), fluid.data("h", [3])
            start = fluid.initializer.NumpyArrayInitializer(START)
            w = layers.create_parameter([2, 3], "float32", name="w", default_initializer=start)
            b = layers.create_parameter([3], "float32", name="b", attr=fluid.ParamAttr(name="b", learning_rate=0.5))
            self.loss = layers.reduce_sum(w * g) + layers.reduce_sum(b * h)
            optimizer().minimize(self.loss)
        self.executor = executor or fluid.Executor()
        self.executor.run(self.startup, scope=self.scope)

    def step(self, g, h):
        feed = {"g": np.asarray(g, "float32"), "h": np.asarray(h, "float32")}
        self.executor.run(self.main, feed, [self.loss], scope=self.scope)
        return [np.array(self.scope.find_var(name).get_tensor()) for name in ("w", "b")]


def gradients(steps, k):
    rng = np.random.default_rng(3)
    return rng.standard_normal((steps, k, 2, 3)), rng.standard_normal((steps, k, 3))


def check_against_large_batches(make, k, avg=True, executor=None, rtol=2e-5):
    merging = Training(lambda: fluid.optimizer.GradientMergeOptimizer(make(), k, avg), executor)
    verify(merging.main)
    assert fluid.Program.parse(str(merging.main)).equals(merging.main)
    plain, combine = Training(make), np.mean if avg else np.sum
    before = [START, np.array(merging.scope.find_var("b").get_tensor())]
    plain.scope.var("b").get_tensor().set(before[1])
    for gs, hs in zip(*gradients(4, k), strict=True):
        for g, h in zip(gs[:-1], hs[:-1], strict=True):
            found = merging.step(g, h)
            assert all(np.array_equal(a, b) for a, b in zip(found, before, strict=True))
        found, expected = merging.step(gs[-1], hs[-1]), plain.step(combine(gs, 0), combine(hs, 0))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)
        assert not np.array_equal(found[0], before[0])
        before = found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("avg", [True, False])
def test_every_optimizer_goes_as_with_large_batches(optimizer, avg):
    check_against_large_batches(OPTIMIZERS[optimizer], 3, avg)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_clip_takes_the_merged_gradients(clip, optimizer):
    check_against_large_batches(lambda: OPTIMIZERS[optimizer](grad_clip=CLIPS[clip]()), 2)


def test_decay_is_by_the_update_not_by_the_step():
    decay = fluid.regularizer.L2Decay(0.3)
    clip = fluid.clip.GradientClipByGlobalNorm(0.5)
    check_against_large_batches(lambda: fluid.optimizer.Momentum(0.1, 0.9, regularization=decay, grad_clip=clip), 2)


def test_one_step_is_the_optimizer_itself():
    alone, merged = (
        Training(OPTIMIZERS["adam"]),
        Training(lambda: fluid.optimizer.GradientMergeOptimizer(OPTIMIZERS["adam"](), 1)),
    )
    assert merged.main.equals(alone.main)


def test_the_interpreter_says_the_same():
    check_against_large_batches(OPTIMIZERS["adam"], 2, executor=Interpreter())


def test_an_update_that_is_not_finite_is_skipped_and_its_sum_forgotten():
    clip = fluid.clip.GradientClipByGlobalNorm(1e3, nonfinite="skip")
    training = Training(lambda: fluid.optimizer.GradientMergeOptimizer(fluid.optimizer.SGD(1.0, grad_clip=clip), 2))
    ones, bias = np.ones((2, 3)), np.zeros(3)
    training.step(ones * np.nan, bias)
    found, _ = training.step(ones, bias)
    assert np.array_equal(found, START)
    training.step(ones, bias)
    found, _ = training.step(3 * ones, bias)
    np.testing.assert_allclose(found, START - 2, rtol=1e-6)


def test_rows_of_an_embedding_are_added_up():
    def trained(make, batches):
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            ids = fluid.data("ids", [None, 1], "int64")
            start = fluid.ParamAttr(name="table", initializer=fluid.initializer.Constant(1.0))
            found = fluid.embedding(ids, [5, 2], is_sparse=True, param_attr=start)
            make(fluid.optimizer.SGD(1.0)).minimize(layers.mean(layers.square(found)))
        executor = fluid.Executor()
        executor.run(startup, scope=scope)
        for batch in batches:
            executor.run(main, {"ids": np.array(batch)[:, None]}, scope=scope)
        return np.array(scope.find_var("table").get_tensor())

    merged = trained(lambda inner: fluid.optimizer.GradientMergeOptimizer(inner, 2), [[0, 1, 1], [1, 4, 0]])
    np.testing.assert_allclose(merged, trained(lambda inner: inner, [[0, 1, 1, 1, 4, 0]]), rtol=1e-6)


def test_recomputation_and_merging_go_together():
    def trained(merge, recompute):
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        main.random_seed = startup.random_seed = 4
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            hidden = [fluid.data("x", [None, 4])]
            for _ in range(4):
                hidden.append(layers.fc(hidden[-1], 4, act="tanh"))
            optimizer = fluid.optimizer.SGD(0.1)
            if recompute:
                optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
                optimizer._set_checkpoints(hidden[2:3])
            if merge:
                optimizer = fluid.optimizer.GradientMergeOptimizer(optimizer, 2)
            optimizer.minimize(layers.mean(hidden[-1]))
        executor, x = fluid.Executor(), np.random.default_rng(1).standard_normal((8, 4)).astype("float32")
        executor.run(startup, scope=scope)
        for batch in (x[:4], x[4:]) if merge else (x,):
            executor.run(main, {"x": batch}, scope=scope)
        return [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]

    expected = trained(merge=False, recompute=False)
    for recompute in (False, True):
        for a, b in zip(trained(merge=True, recompute=recompute), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_training_goes_on_from_the_middle_of_a_merge(tmp_path):
    def make():
        return fluid.optimizer.GradientMergeOptimizer(fluid.optimizer.Adam(0.1), 3)

    gs, hs = (each.reshape(-1, *each.shape[2:]) for each in gradients(2, 3))
    whole, first, second = (Training(make) for _ in range(3))
    for name in ("w", "b"):
        first.scope.var(name).get_tensor().set(np.array(whole.scope.find_var(name).get_tensor()))
    for g, h in zip(gs, hs, strict=True):
        expected = whole.step(g, h)
    for g, h in zip(gs[:4], hs[:4], strict=True):
        first.step(g, h)
    with fluid.scope_guard(first.scope):
        fluid.io.save_persistables(first.executor, str(tmp_path), first.main)
    with fluid.scope_guard(second.scope):
        fluid.io.load_persistables(second.executor, str(tmp_path), second.main)
    for g, h in zip(gs[4:], hs[4:], strict=True):
        found = second.step(g, h)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_program_for_tests_has_none_of_it():
    training = Training(lambda: fluid.optimizer.GradientMergeOptimizer(fluid.optimizer.SGD(0.1), 2))
    for_test = training.main.clone(for_test=True)
    assert {op.type for op in for_test.global_block().ops} == {"elementwise_mul", "reduce_sum", "elementwise_add"}


@pytest.mark.parametrize(
    ("inner", "k_steps", "error"),
    [("sgd", 2, WrongTypeError), (None, 0, ProgramError), (None, 1.5, WrongTypeError), (None, True, WrongTypeError)],
)
def test_wrong_arguments_are_refused(inner, k_steps, error):
    with pytest.raises(error):
        fluid.optimizer.GradientMergeOptimizer(inner or fluid.optimizer.SGD(0.1), k_steps)


def test_the_imperative_mode_has_no_use_for_it():
    with fluid.dygraph.guard(), pytest.raises(ProgramError, match="imperative mode"):
        fluid.optimizer.GradientMergeOptimizer(fluid.optimizer.SGD(0.1), 2)
