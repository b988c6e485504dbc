"""Gradients that go in and come out clipped: the caller's own, in memory of their own from the start."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jit_support import few_pieces, needs_numba
from networks import at_the_same_time
from pass_laws import assert_same_bits

import minigraph as fluid
from minigraph.errors import ExecutionError
from minigraph.executor.interpreter import Interpreter
from minigraph.kernels.clip_to_keep import views
from minigraph.kernels.jit import norms

SHAPES = [(3,), (3,), (2, 2), (9000,), (3,), (0, 4), (100, 100), (8193,), (1,), (5, 1, 2), (5, 1, 2)]
WITH_AND_WITHOUT_JIT = pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])


class Clip:
    """A program that clips what is fed, and all it clips fetched."""

    def __init__(
        self, dtypes=("float32",), shapes=SHAPES, max_norm=1.0, p=2.0, strict=False, kind=fluid.Executor, **how
    ):
        self.main, self.executor, self.scope = fluid.Program(), kind(fluid.CPUPlace(), **how), fluid.Scope()
        rng = np.random.default_rng(0)
        block = self.main.global_block()
        self.feed, self.fetch = {}, []
        with fluid.program_guard(self.main, fluid.Program()), fluid.unique_name.guard():
            bound = fluid.layers.fill_constant([1], "float64", max_norm)
            for i, (shape, dtype) in enumerate(zip(shapes, itertools.cycle(dtypes), strict=False)):
                fluid.data(f"g{i}", list(shape), dtype)
                self.fetch.append(block.create_var(f"c{i}", list(shape), dtype))
                self.feed[f"g{i}"] = rng.uniform(-1, 1, shape).astype(dtype)
            self.norm = block.create_var("norm", [1], "float64")
            block.append_op(
                "clip_by_global_norm", {"X": list(self.feed), "ClipNorm": bound},
                {"Out": self.fetch, "Norm": self.norm}, {"p": p, "strict": strict},
            )  # fmt: skip

    def run(self, factor=1, **feed):
        feed = {name: (x * factor).astype(x.dtype) for name, x in self.feed.items()} | feed
        return self.executor.run(self.main, feed, [*self.fetch, self.norm], scope=self.scope)


def assert_like_interpreter(factor=1, feed=None, **how):
    mine, truth = Clip(**how), Clip(kind=Interpreter, **{name: x for name, x in how.items() if name != "jit"})
    for _ in range(3):
        found = dict(enumerate(mine.run(factor, **(feed or {}))))
        assert_same_bits(found, dict(enumerate(truth.run(factor, **(feed or {})))))
    (plan,) = mine.executor.plans
    assert "own_clip_by_global_norm" in plan.compiled.source


@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 1e6, 1e-36])
@pytest.mark.parametrize("dtypes", [("float32",), ("float64",), ("float16",), ("float32", "float32", "float64")])
def test_clipped_gradients_have_the_bits_of_the_interpreter(dtypes, max_norm):
    assert_like_interpreter(dtypes=dtypes, max_norm=max_norm, jit=False)


@pytest.mark.parametrize("p", [1.0, 3.0, np.inf])
def test_other_norms_have_the_bits_of_the_interpreter(p):
    assert_like_interpreter(p=p, jit=False)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, 1e-40, 0.0])
@pytest.mark.parametrize("name", ["g0", "g3"])
@pytest.mark.parametrize("strict", [False, True])
def test_special_values_have_the_bits_of_the_interpreter(name, value, strict):
    size = {"g0": (3,), "g3": (9000,)}[name]
    feed = {name: np.full(size, value, "float32")}
    assert_like_interpreter(feed=feed, strict=strict, jit=False)


def test_extreme_doubles_have_the_bits_of_the_interpreter():
    assert_like_interpreter(1e200, dtypes=["float64"], jit=False)
    assert_like_interpreter(1e-200, dtypes=["float64"], max_norm=1e-202, jit=False)


def test_elements_that_are_not_side_by_side_are_clipped_as_well():
    backwards = {"g3": np.linspace(-1, 1, 9000, dtype="float32")[::-1], "g2": np.eye(2, 4, dtype="float32")[:, ::2]}
    assert_like_interpreter(feed=backwards, jit=False)


@needs_numba
@pytest.mark.parametrize("max_norm", [1e-3, 1e6])
@pytest.mark.parametrize("dtypes", [("float32",), ("float64",), ("float32", "float64")])
def test_compiled_sums_agree_with_the_interpreter(dtypes, max_norm):
    found = Clip(dtypes, max_norm=max_norm, jit=True).run()
    for a, b in zip(found, Clip(dtypes, max_norm=max_norm, kind=Interpreter).run(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.slow
@needs_numba
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_results_are_written_past_the_caches(dtype, threads, monkeypatch):
    monkeypatch.setattr("minigraph.kernels.jit.norms._PAST_CACHES", 10_000)
    monkeypatch.setattr("minigraph.kernels.jit.norms._WORTH_A_THREAD", 0)
    monkeypatch.setattr("minigraph.kernels.jit.threads.pieces", few_pieces(threads))
    monkeypatch.setattr("minigraph.kernels.jit.norms.pieces", few_pieces(threads))
    for max_norm in (1e-3, 1e6):
        found = Clip([dtype], max_norm=max_norm, jit=True).run()
        for a, b in zip(found, Clip([dtype], max_norm=max_norm, kind=Interpreter).run(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert norms._STREAMS.is_compiled("write_products", f"void({dtype}[::1], {dtype}, {dtype}[::1])")


@needs_numba
def test_compiled_sums_are_not_asked_of_arrays_that_they_do_not_take():
    odd = {"g3": np.linspace(-1, 1, 9000, dtype="float32")[::-1], "g6": np.ones((100, 100), "float32")}
    odd["g6"].flags.writeable = False
    found = Clip(jit=True).run(**odd)
    for a, b in zip(found, Clip(kind=Interpreter).run(**odd), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_bad_threshold_is_refused():
    with pytest.raises(ExecutionError, match="ClipNorm must be positive, got -1"):
        Clip(max_norm=-1.0, strict=True).run()


@WITH_AND_WITHOUT_JIT
@pytest.mark.parametrize("max_norm", [1.0, 1e6])
def test_results_share_no_element_with_each_other_or_the_feed(max_norm, jit):
    clip = Clip(max_norm=max_norm, jit=jit)
    feed = {name: x.copy() for name, x in clip.feed.items()}
    first, second = (clip.executor.run(clip.main, feed, clip.fetch * 2, scope=clip.scope) for _ in range(2))
    for a, b in itertools.combinations([*first, *second, *feed.values()], 2):
        assert not np.shares_memory(a, b)
    for each in first:
        each[...] = 7
    assert all((each != 7).all() for each in second)
    assert all((each == clip.feed[name]).all() for name, each in feed.items())


@pytest.mark.laws
@WITH_AND_WITHOUT_JIT
@given(st.lists(st.sets(st.integers(0, len(SHAPES) - 1)), max_size=8))
def test_what_is_held_is_never_written_over(jit, held_by_run):
    clip, held = _CLIPS.setdefault(jit, Clip(jit=jit)), []
    for number, positions in enumerate(held_by_run):
        results = clip.run(number + 1)
        held += [(results[i].reshape(-1)[::2], results[i].reshape(-1)[::2].copy()) for i in sorted(positions)]
        del results
    assert all((view == copy).all() for view, copy in held)


_CLIPS: dict = {}


HOLDERS = {
    "view": lambda x: x[1:],
    "last base": lambda x: np.asarray(last_base(x)),
    "memoryview of a memoryview": lambda x: memoryview(memoryview(x)[1:]),
    "array over a buffer": lambda x: np.frombuffer(x, "int32"),
    "array from DLPack": np.from_dlpack,
    "array of ctypes": np.ctypeslib.as_ctypes,
    "buffer of pickle": lambda x: out_of_band(x)[0],
}


def last_base(array):
    while array.base is not None:
        array = array.base
    return array


def out_of_band(array):
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
    return buffers


@WITH_AND_WITHOUT_JIT
@pytest.mark.parametrize("hold", HOLDERS)
def test_whatever_holds_a_result_keeps_it(hold, jit):
    clip = Clip(jit=jit)
    held = [HOLDERS[hold](x) for x in clip.run() if x.ndim == 1]
    before = [bytes(each) for each in held]
    for number in range(5):
        clip.run(number + 2)
    assert [bytes(each) for each in held] == before


def test_parts_of_a_vector_have_their_shapes():
    shapes = [(2,), (2,), (), (), (0, 3), (1, 2, 2), (2,)]
    parts = views(np.arange(12.0), shapes)
    assert [part.shape for part in parts] == shapes
    assert np.concatenate(parts, axis=None).tolist() == list(range(12))
    assert all(isinstance(part, np.ndarray) and part.base is parts[0].base for part in parts)


@pytest.mark.slow
@WITH_AND_WITHOUT_JIT
def test_runs_in_several_threads_get_memory_of_their_own(jit):
    clip = Clip(jit=jit)
    expected = [[x.tobytes() for x in clip.run(number + 1)] for number in range(4)]

    def work(number):
        found = []
        for _ in range(50):
            results = clip.run(number + 1)
            found.append([x.tobytes() for x in results] == expected[number])
        return all(found)

    assert at_the_same_time([lambda n=n: work(n) for n in range(4)]) == [True] * 4


# Clips that write over what they read


CLIPS = {
    "clip_by_norm": lambda x: fluid.layers.clip_by_norm(x, 0.1),
    "clip": lambda x: fluid.layers.clip(x, -0.01, 0.01),
}


def clipped_gradient(clip, then=lambda grad, clipped: [clipped]):
    """A program, its feed and what to fetch: a gradient clipped, and what `then` makes of it."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [7, 40], "float32")
        given = fluid.initializer.NumpyArrayInitializer(np.random.default_rng(1).uniform(-1, 1, (40, 30)))
        w = fluid.layers.create_parameter([40, 30], "float32", "w", default_initializer=given)
        loss = fluid.layers.reduce_sum(fluid.layers.square(fluid.layers.mul(x, w)))
        (grad,) = fluid.gradients(loss, w)
        fetch = then(grad, CLIPS[clip](grad))
    return main, startup, {"x": np.random.default_rng(0).uniform(-1, 1, (7, 40)).astype("float32")}, fetch


def run_both(main, startup, feed, fetch):
    """What the third runs of the executor and of the interpreter return, by position, and the source of the plan."""
    engines = fluid.Executor(jit=False), Interpreter()
    results = []
    for exe in engines:
        scope = fluid.Scope()
        exe.run(startup, scope=scope)
        results.append(dict(enumerate([exe.run(main, feed, fetch, scope=scope) for _ in range(3)][-1])))
    return *results, engines[0].plan_for(main, feed, fetch).compiled.source


@pytest.mark.parametrize("clip", CLIPS)
def test_a_clip_writes_over_a_gradient_that_nothing_else_reads(clip):
    found, expected, source = run_both(*clipped_gradient(clip))
    assert "out=_w_GRAD" in source
    assert_same_bits(found, expected)


@WITH_AND_WITHOUT_JIT
@pytest.mark.parametrize("clip", CLIPS)
def test_what_was_written_over_is_the_callers_own(clip, jit):
    main, startup, feed, fetch = clipped_gradient(clip)
    exe, scope = fluid.Executor(jit=jit), fluid.Scope()
    exe.run(startup, scope=scope)
    results = [exe.run(main, feed, fetch, scope=scope)[0] for _ in range(4)]
    for each in results[:-1]:
        each[...] = 7
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations([*results, feed["x"]], 2))
    np.testing.assert_allclose(results[-1], run_both(main, startup, feed, fetch)[1][0], rtol=1e-6)


@pytest.mark.parametrize(
    "then",
    [
        lambda grad, clipped: [grad, clipped],
        lambda grad, clipped: [clipped, fluid.layers.reduce_sum(grad)],
        lambda grad, clipped: [clipped, fluid.layers.reshape(grad, [30, 40])],
        lambda grad, clipped: [clipped, fluid.layers.clip_by_norm(grad, 0.2)],
        lambda grad, clipped: [clipped, fluid.layers.assign(grad, grad.block.var("w"))],
    ],
    ids=["fetched", "read", "seen in another shape", "clipped twice", "kept"],
)
@pytest.mark.parametrize("clip", CLIPS)
def test_a_gradient_that_is_used_otherwise_stays(clip, then):
    found, expected, source = run_both(*clipped_gradient(clip, then))
    assert "out=_w_GRAD" not in source
    assert_same_bits(found, expected)


@pytest.mark.parametrize("clip", CLIPS)
def test_a_view_of_something_else_is_not_written_over(clip):
    main, startup, feed, _ = clipped_gradient(clip)
    with fluid.program_guard(main, startup):
        again = CLIPS[clip](fluid.layers.reshape(main.global_block().var("x"), [40, 7]))
    before = feed["x"].copy()
    found, expected, _ = run_both(main, startup, feed, [again, "x"])
    assert_same_bits(found, expected)
    np.testing.assert_array_equal(feed["x"], before)
