"""What a run hands out is the caller's own: writeable, row by row in memory, and never changed by later runs."""

import itertools

import numpy as np
import pytest
from jit_support import needs_numba

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ProgramError
from minigraph.executor.interpreter import Interpreter
from minigraph.lowering import memory_plan as memory

X = np.random.default_rng(0).standard_normal((4, 6), np.float32)


def views_of_a_result(x):
    h = layers.relu(x)
    return [layers.reshape(h, [-1]), layers.slice(h, [0], [0], [2]), h, layers.slice(h, [1], [2], [4]), h]


def views_of_what_is_fed(x):
    return [
        x,
        layers.transpose(x, [1, 0]),
        layers.reverse(x, [0, 1]),
        layers.unsqueeze(x, [0]),
        layers.reshape(x, [0, 6]),
    ]


def sums_of_columns(x):
    """Calls of NumPy's, which lay their results out as their operands lie."""
    columns = layers.transpose(x, [1, 0])
    return [layers.relu(columns), layers.elementwise_add(columns, layers.square(columns)), layers.scale(columns, 2.0)]


def repeated(x):
    """Along dimensions of 1, then clipped, which writes over what it is given where it may."""
    wide = layers.reshape(x, [0, 6, 1])
    spread = [
        layers.expand(wide, [1, 1, 3]),
        layers.expand(x, [1, 1]),
        layers.expand_as(wide, layers.concat([wide] * 2, 2)),
    ]
    clips = [lambda y: layers.clip(y, -0.1, 0.1), lambda y: layers.clip_by_norm(y, 0.5), layers.relu]
    return spread + [clip(layers.expand(wide, [1, 1, 3])) for clip in clips]


def a_parameter_and_its_update(x):
    w = layers.create_parameter([4, 6], "float32", "w")
    seen = [w, layers.reshape(w, [24]), layers.transpose(w, [1, 0]), layers.expand(layers.reshape(w, [24, 1]), [1, 3])]
    fluid.optimizer.Momentum(0.1, 0.9).minimize(layers.reduce_sum(layers.square(layers.elementwise_mul(w, x))))
    return [*seen, "w@GRAD"]


def a_parameter_that_is_assigned(x):
    w = layers.create_parameter([4, 6], "float32", "w")
    seen = [layers.expand(layers.unsqueeze(w, [2]), [1, 1, 2]), layers.expand(w, [1, 1]), layers.unsqueeze(w, [0])]
    layers.assign(layers.elementwise_sub(w, layers.scale(x, 0.1)), output=w)
    return [*seen, w, layers.reshape(w, [24])]


def clipped_gradients(x):
    loss = layers.reduce_sum(layers.square(layers.fc(layers.fc(x, 5), 3)))
    pairs = fluid.append_backward(loss)
    return [grad for _, grad in fluid.clip.GradientClipByGlobalNorm(0.5)(pairs)] + [grad for _, grad in pairs]


def pieces(x):
    parts = layers.split(x, 3, 1)
    return [*parts, layers.stack(parts, 0), *layers.unstack(layers.stack(parts, 0), 0), layers.concat(parts[:2], 0)]


BUILT = [
    views_of_a_result, views_of_what_is_fed, sums_of_columns, repeated, a_parameter_and_its_update,
    a_parameter_that_is_assigned, clipped_gradients, pieces,
]  # fmt: skip


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])
@pytest.mark.parametrize("least", [1, memory.LEAST_BYTES], ids=["placed", "free"])
@pytest.mark.parametrize("build", BUILT, ids=lambda build: build.__name__)
def test_results_are_the_callers_own(build, least, jit, monkeypatch):
    monkeypatch.setattr(memory, "LEAST_BYTES", least)
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetch = build(fluid.data("x", [None, 6]))
    feed, made = {"x": X.copy()}, []
    engines = [(executor, fluid.Scope()) for executor in (fluid.Executor(jit=jit), Interpreter())]
    for executor, scope in engines:
        executor.run(startup, scope=scope)
    for _ in range(4):
        found, expected = (executor.run(main, feed, fetch, scope=scope) for executor, scope in engines)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
            assert one.flags.writeable
            assert one.flags.c_contiguous
        made += zip(found, map(np.copy, found), strict=True)
    assert all((array == copy).all() for array, copy in made), "a later run has changed it"
    scope = engines[0][1]
    kept = [scope.find_var(name).value for name in scope.local_var_names()]
    for array, other in itertools.combinations([array for array, _ in made] + [feed["x"], *kept], 2):
        assert not np.shares_memory(array, other)
    for array, _ in made:
        array[...] = 7
    found, expected = (executor.run(main, feed, fetch, scope=scope) for executor, scope in engines)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_tensors_are_read_row_by_row(new_scope):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        w = layers.create_global_var([6, 4], 0.0, "float32", persistable=True, name="w")
        layers.assign(layers.transpose(fluid.data("x", [4, 6]), [1, 0]), output=w)
        executor = fluid.Executor()
        (tensor,) = executor.run(feed={"x": X}, fetch_list=[w], return_numpy=False)
    for found in (tensor, fluid.global_scope().find_var("w").get_tensor()):
        assert np.array(found).flags.c_contiguous
        assert np.array_equal(np.array(found), X.T)
    with fluid.dygraph.guard():
        found = layers.transpose(fluid.dygraph.to_variable(X), [1, 0]).numpy()
    assert found.flags.c_contiguous


def test_an_array_of_tensors_that_is_fetched_twice_has_its_tensors_twice():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        array = layers.create_array("float32")
        layers.array_write(fluid.data("x", [4, 6]), layers.fill_constant([1], "int64", 0), array)
        first, second = fluid.Executor().run(feed={"x": X}, fetch_list=[array, array])
    assert not np.shares_memory(first[0], second[0])


def test_a_scope_keeps_a_whole_number(new_scope):
    variable = fluid.global_scope().var("i")
    variable.set_int(5)
    assert (variable.get_int(), fluid.global_scope().find_var("i").get_int()) == (5, 5)
    variable.get_tensor().set(X, fluid.CPUPlace())
    with pytest.raises(ProgramError, match="i holds no number that set_int has stored"):
        variable.get_int()
