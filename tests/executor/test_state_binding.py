"""A plan looks its state up again when the scope was given other arrays by somebody else."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.executor.state_binding import Binding
from minigraph.runtime.place import CPUPlace


@pytest.fixture
def looked_up(monkeypatch):
    """A list that grows with each time that a plan looks up all of its state."""
    found, find = [], Binding._find

    def noting(self, scope):
        found.append(scope)
        return find(self, scope)

    monkeypatch.setattr(Binding, "_find", noting)
    return found


@pytest.fixture
def counting():
    """A program that counts its runs and adds the count to a parameter of its own, which is replaced as well."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        count = layers.create_global_var([1], 0.0, "float32", persistable=True, name="count")
        total = layers.create_global_var([1], 0.0, "float32", persistable=True, name="total")
        layers.assign(layers.scale(count, 1.0, bias=1.0), output=count)
        layers.assign(layers.elementwise_add(total, count), output=total)
    scope = fluid.Scope()
    fluid.Executor().run(startup, scope=scope)
    return main, scope, total


def value(scope, name):
    return np.array(scope.find_var(name).get_tensor()).item()


def test_what_a_run_replaces_is_not_looked_up_again(looked_up, counting):
    main, scope, total = counting
    executor = fluid.Executor()
    looked_up.clear()
    found = [executor.run(main, fetch_list=[total], scope=scope)[0].item() for _ in range(4)]
    assert found == [1, 3, 6, 10]
    assert value(scope, "count") == 4
    assert len(looked_up) == 1


def test_what_somebody_else_sets_is_looked_up(looked_up, counting):
    main, scope, total = counting
    executor = fluid.Executor()
    for _ in range(2):
        executor.run(main, scope=scope)
    looked_up.clear()
    scope.find_var("count").get_tensor().set(np.array([10], "float32"), CPUPlace())
    assert executor.run(main, fetch_list=[total], scope=scope)[0].item() == 3 + 11
    assert executor.run(main, fetch_list=[total], scope=scope)[0].item() == 14 + 12
    assert len(looked_up) == 1


def test_two_plans_of_one_scope_see_what_each_other_replaces(counting):
    main, scope, total = counting
    first, second = fluid.Executor(), fluid.Executor(passes=fluid.BuildStrategy().pipeline())
    found = [each.run(main, fetch_list=[total], scope=scope)[0].item() for each in (first, second) * 3]
    assert found == [1, 3, 6, 10, 15, 21]


def test_results_of_earlier_runs_stay_as_they_were(counting):
    main, scope, total = counting
    executor = fluid.Executor()
    found = [executor.run(main, fetch_list=[total, "count"], scope=scope) for _ in range(4)]
    assert [[x.item() for x in each] for each in found] == [[1, 1], [3, 2], [6, 3], [10, 4]]
    found[-1][1][...] = 100
    assert executor.run(main, fetch_list=[total], scope=scope)[0].item() == 15


def test_a_schedule_of_learning_rates_does_not_move_parameters_again(looked_up):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = layers.mean(layers.fc(layers.fc(fluid.data("x", [None, 4]), 4), 4))
        fluid.optimizer.SGD(layers.exponential_decay(0.1, 10, 0.9)).minimize(loss)
    scope, executor = fluid.Scope(), fluid.Executor()
    executor.run(startup, scope=scope)
    looked_up.clear()
    for _ in range(5):
        executor.run(main, {"x": np.ones((2, 4), "float32")}, [loss], scope=scope)
    assert len(looked_up) == 1
