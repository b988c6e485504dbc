"""What every pass of an executor keeps to: the interpreter's results, and time linear in the program."""

from __future__ import annotations

import inspect
import re
from functools import cache, cached_property

import numpy as np
import pytest
from drawn_programs import overwriting_programs
from growth import assert_grows
from hypothesis import given
from hypothesis import strategies as st

import minigraph as fluid
from minigraph.executor.feeds import types_of
from minigraph.executor.interpreter import Interpreter
from minigraph.executor.plan import _rewritten_for
from minigraph.ir.verifier import verify
from minigraph.passes import FuseGlobalNorm, Pipeline, RemoveDeadOps
from minigraph.rewrite.random_programs.recipes import SMOOTH_STEPS, Clip, Training, build
from minigraph.rewrite.strategies import recipes, trainings
from minigraph.runtime.place import CPUPlace

SPECIAL = np.array([[0.5, -0.0, np.nan], [np.inf, 1e-30, -2.0], [3.0, 0.0, 1.5]], "float32")


def pipeline(*passes):
    """`passes` between the two that executors have always needed; each result is verified."""
    return Pipeline((FuseGlobalNorm(), *passes, RemoveDeadOps()), hook=lambda each, program, changed: verify(program))


def history(executor, built, fetch, steps=2):
    """Fetched values of several steps and the final scope, by name."""
    scope, found = fluid.Scope(), {}
    executor.run(built.startup, scope=scope)
    for number in range(steps):
        results = executor.run(built.main, feed=built.feed(number), fetch_list=fetch, scope=scope)
        found.update({(number, name): value for name, value in zip(fetch, results, strict=True)})
    return found | {("scope", n): np.array(scope.find_var(n).get_tensor()) for n in scope.local_var_names()}


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert (found[key].dtype, found[key].shape) == (value.dtype, value.shape), key
        # Of selected rows the whole array.
        bits, expected_bits = (np.asarray(each).tobytes() for each in (found[key], value))
        assert bits == expected_bits, f"{key}: {found[key]} is not {value}"


def run_once(executor, program, fetch, x):
    """Fetched values and the new `w` of one of the `overwriting_programs`."""
    executor._rng = np.random.default_rng(5)
    scope = fluid.Scope()
    scope.var("w").get_tensor().set(SPECIAL[::-1].copy(), CPUPlace())
    results = executor.run(program, feed={"x": x}, fetch_list=fetch, scope=scope)
    return {**dict(zip(fetch, results, strict=True)), "new w": np.array(scope.find_var("w").get_tensor())}


class _Drawn:
    """A program drawn at random with what is fetched of it; shared by laws, so nobody may change it."""

    def __init__(self, program, fetch, feed):
        self.program, self.fetch, self._feed = program, fetch, feed

    @cached_property
    def expected(self):
        """Results of the interpreter."""
        return self.results(Interpreter())

    @cached_property
    def _plain(self):
        return self._rewritten(pipeline())

    def _rewritten(self, rewrites):
        return _rewritten_for(self.program, types_of(self._feed), self.fetch, rewrites, fuse_norms=False)[0]

    def results_with(self, passes):
        """Results of an executor with `passes`, None if it runs the same program without them."""
        rewrites = pipeline(*passes)
        if passes and self._rewritten(rewrites).equals(self._plain):
            return None
        return self.results(fluid.Executor(passes=rewrites))


class _Trained(_Drawn):
    def __init__(self, recipe, fetches, steps):
        built = build(recipe)
        self._built, self._steps = built, steps
        gradients = [grad.name for _, grad in built.params_grads]
        names = {"all": built.fetchable(), "loss": [built.loss.name], "gradients": [built.loss.name, *gradients]}
        super().__init__(built.main, names[fetches], built.feed(0))

    def results(self, executor):
        return history(executor, self._built, self.fetch, self._steps)


class _Overwriting(_Drawn):
    def __init__(self, program, fetch):
        super().__init__(program, fetch, {"x": SPECIAL})

    def results(self, executor):
        arrays = SPECIAL, np.linspace(-2, 1, 9, dtype="float32").reshape(3, 3)
        runs = [run_once(executor, self.program, self.fetch, x) for x in arrays]
        return {(number, name): value for number, run in enumerate(runs) for name, value in run.items()}


def _all_of(kind, strategy):
    """Every example that hypothesis draws for a test, those of few operators first."""
    found = []

    @given(strategy)
    def keep(example):
        found.append(kind(*example))

    keep()
    return sorted(found, key=lambda each: len(each.program.global_block().ops))


def _check_each(law, drawn):
    """Try a law on programs drawn at random, and show the first, which is the smallest, that breaks it."""
    for each in drawn:
        try:
            law(each)
        except Exception as error:
            raise AssertionError(f"{each.program}\n\nfetching {each.fetch}: {error}") from error


@cache
def _trainings():
    strategy = st.tuples(recipes(training=st.none() | trainings()), st.sampled_from(["loss", "all"]), st.just(2))
    return _all_of(_Trained, strategy)


@cache
def _smooth_trainings():
    strategy = recipes(
        kinds=(*SMOOTH_STEPS, "linear_relu", "clip"),
        dtypes=("float64",),
        training=st.builds(Training, st.just("SGD"), st.none() | st.just(Clip("global", 0.1))),
    )
    return _all_of(_Trained, st.tuples(strategy, st.just("gradients"), st.just(1)))


@cache
def _overwriting():
    @st.composite
    def examples(draw):
        program = draw(overwriting_programs())
        names = [name for name in program.global_block().vars if "generated" not in name]
        return program, draw(st.lists(st.sampled_from(names), unique=True))

    return _all_of(_Overwriting, examples())


def keeps_the_bits(*passes):
    """Two tests: with these passes an executor computes what the interpreter does, for every random program.

    Programs that passes leave as they are without them are run by the test of no passes.
    """

    def check(drawn):
        found = drawn.results_with(passes)
        if found is not None:
            assert_same_bits(found, drawn.expected)

    @pytest.mark.laws
    def test_training_keeps_its_bits():
        _check_each(check, _trainings())

    @pytest.mark.laws
    def test_programs_that_overwrite_names_keep_their_bits():
        _check_each(check, _overwriting())

    return test_training_keeps_its_bits, test_programs_that_overwrite_names_keep_their_bits


def rewritten(rewrite, program, fetch):
    """What a pass makes of a program of which `fetch` is fetched; twice is once."""
    program.roots = tuple(fetch)
    once = rewrite(program)
    twice = once.clone()
    assert not rewrite.apply(twice)
    assert once.equals(twice)
    return once


def repeated(append):
    """Make programs in which `append` has appended to the variable x of shape [4, 2] any number of times."""

    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x = fluid.data("x", [4, 2])
            for _ in range(count):
                append(x)
        return main

    return make


def with_and_without(rewrite, feed, fetch):
    """What an executor with one pass fetches, and the interpreter."""
    executors = fluid.Executor(passes=pipeline(rewrite)), Interpreter()
    return [executor.run(feed=feed, fetch_list=fetch) for executor in executors]


def assert_linear(rewrite, make, size=400):
    """Applying a pass to `make(4 * size)` operators takes less than 6 times as long as to `make(size)`."""

    def work(count):
        program = make(count)
        return lambda: rewrite.apply(program)

    assert_grows(work, size, factor=4, limit=6)


def keeps_trainings(*passes):
    """A test: with these passes a step of training in float64 gives what the interpreter does, up to 1e-9."""

    def check(drawn):
        found = drawn.results_with(passes)
        if found is None:
            return
        expected = drawn.expected
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-9, atol=1e-9 * np.abs(value).max(), err_msg=str(key))

    @pytest.mark.laws
    def test_training_gives_the_same_up_to_rounding():
        _check_each(check, _smooth_trainings())

    return test_training_gives_the_same_up_to_rounding


def op_lines(rewrite, text, fetch):
    """The operators, without types, that are left once `rewrite` and the removal of dead operators are done."""
    once = rewritten(rewrite, fluid.Program.parse(inspect.cleandoc(text)), fetch)
    RemoveDeadOps().apply(once)
    verify(once)
    return [re.sub(r": \w+\[[-\d, ]*\]", "", str(op)) for op in once.global_block().ops]
