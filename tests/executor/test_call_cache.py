"""A call like one before is found in the cache without a check of each array, and only such a call."""

import gc
import weakref

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import FeedError, NotFoundError
from minigraph.executor.call_cache import Key, names_in


@pytest.fixture
def program():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 2]), fluid.data("y", [2])
        fluid.layers.elementwise_sub(x, y, name="out")
    return main


def out(program):
    (found,) = [var for var in program.list_vars() if var.name.startswith("out")]
    return found


def feed(rows=1, x=3.0, y=1.0):
    return {"y": np.full(2, y, "float32"), "x": np.full((rows, 2), x, "float32")}


def run(executor, program, what, fetch=None):
    return executor.run(program, what, [out(program)] if fetch is None else fetch)[0]


def is_found(executor, program, what, fetch=None):
    """Whether the plan for a call is found without a check of what is fed."""
    names = names_in([out(program)] if fetch is None else fetch)
    return executor._calls.find(executor._subject(program, names), what) is not None


def test_a_second_call_is_found_whatever_its_values_and_order(program):
    executor = fluid.Executor()
    assert not is_found(executor, program, feed())
    assert run(executor, program, feed()).tolist() == [[2, 2]]
    again = dict(reversed(feed(x=5.0).items()))
    assert is_found(executor, program, again)
    assert run(executor, program, again).tolist() == [[4, 4]]
    assert len(executor.plans) == 1


def test_names_are_found_like_variables(program):
    executor = fluid.Executor()
    run(executor, program, feed())
    assert is_found(executor, program, feed(), [out(program).name])
    assert run(executor, program, feed(), [out(program).name]).tolist() == [[2, 2]]


TO_BE_CHECKED = {
    "shape": lambda: feed(rows=2),
    "subclass": lambda: feed() | {"y": np.full(2, 1, "float32").view(np.recarray)},
    "list": lambda: feed() | {"y": [1.0, 1.0]},
    "integers": lambda: feed() | {"y": np.ones(2, "int64")},
}


@pytest.mark.parametrize("what", TO_BE_CHECKED)
def test_other_feeds_are_looked_at(program, what):
    executor = fluid.Executor()
    run(executor, program, feed())
    given = TO_BE_CHECKED[what]()
    assert not is_found(executor, program, given)
    if what == "integers":
        with pytest.raises(FeedError, match="y is float32 but int64 was fed"):
            run(executor, program, given)
    else:
        assert run(executor, program, given).tolist() == [[2, 2]] * len(given["x"])
    assert run(executor, program, feed()).tolist() == [[2, 2]]


def test_what_is_missing_or_too_much_is_reported(program):
    executor = fluid.Executor()
    run(executor, program, feed())
    for wrong in ({"x": feed()["x"]}, None, {}):
        with pytest.raises(FeedError, match=r"[xy] is not fed"):
            run(executor, program, wrong)
    with (
        pytest.warns(UserWarning, match="no variable 'z' to feed"),
        pytest.raises(FeedError, match="y is not fed"),
    ):
        run(executor, program, {"x": feed()["x"], "z": feed()["y"]})
    with pytest.warns(UserWarning, match="no variable 'z' to feed"):
        assert run(executor, program, feed() | {"z": feed()["y"]}).tolist() == [[2, 2]]
    with pytest.raises(NotFoundError, match="no variable 'nowhere' to fetch"):
        run(executor, program, feed(), ["nowhere"])


def test_a_program_that_changed_is_not_found(program):
    executor = fluid.Executor()
    run(executor, program, feed())
    with fluid.program_guard(program):
        fluid.layers.assign(fluid.layers.scale(out(program), 10.0), output=out(program))
    assert not is_found(executor, program, feed())
    assert run(executor, program, feed()).tolist() == [[20, 20]]


def test_calls_that_are_found_keep_their_plan_among_the_latest(program):
    executor = fluid.Executor(cache_size=2)
    for rows in (1, 2, 1, 3):
        run(executor, program, feed(rows))
    first, _ = executor.plans
    assert first.steps.feeds[0].tensor_type.shape == (1, 2)


def test_any_call_of_before_is_found_not_only_the_latest(program):
    executor = fluid.Executor()
    for rows in (1, 2):
        run(executor, program, feed(rows))
    assert is_found(executor, program, feed(1))
    assert is_found(executor, program, feed(2))
    assert executor.plan_for(program, feed(1), [out(program)]) is not executor.plan_for(
        program, feed(2), [out(program)]
    )
    assert len(executor.plans) == 2


def test_a_new_size_is_planned_like_any_plan_whose_program_is_right_for_it():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        y = fluid.layers.exp(fluid.layers.tanh(fluid.data("x", [None, 16])))  # one operator from 1,024 elements on
        executor, program = fluid.Executor(), fluid.default_main_program()
    few, many, fewer, more = (
        executor.plan_for(program, {"x": np.zeros((rows, 16), "float32")}, [y]) for rows in (63, 64, 50, 80)
    )
    assert fewer.source.rewritten is few.source.rewritten is not many.source.rewritten
    assert more.source.rewritten is many.source.rewritten


@pytest.mark.slow
def test_a_plan_that_is_dropped_is_forgotten(program):
    executor = fluid.Executor(cache_size=1)
    run(executor, program, feed())
    gone = weakref.ref(executor.plans[0])
    run(executor, program, feed(), ["x"])
    gc.collect()
    assert gone() is None
    assert not is_found(executor, program, feed())
    run(executor, program, feed())
    executor.close()
    assert not is_found(executor, program, feed())


def test_nothing_may_be_fed_and_nothing_fetched():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        seven = fluid.layers.fill_constant([1], "float32", 7.0)
    executor = fluid.Executor()
    for empty in (None, {}, None, {}):
        assert executor.run(main, empty, [seven])[0].tolist() == [7]
        assert executor.run(main, empty) == []
    assert executor._calls.find(executor._subject(main, ()), None) is not None


def test_what_holds_other_things_than_names_gets_a_closer_look(program):
    variable = out(program)
    assert names_in([variable, variable]) == (variable.name,) * 2
    assert names_in(["a", "b"]) == ("a", "b")
    assert names_in(None) == names_in([]) == ()
    assert names_in([variable, "a"]) is names_in((variable,)) is names_in([1]) is names_in(variable) is None


def test_keys_are_equal_as_their_parts_are():
    assert Key((1, "a")) == Key((1, "a"))
    assert len({Key((1, "a")), Key((1, "a")), Key((1, "b"))}) == 2
    assert Key((1, "a")) != (1, "a")
