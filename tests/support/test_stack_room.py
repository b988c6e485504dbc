"""A function that has room on the stack makes its calls without new memory, however deep the stack is."""

import sys

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.lowering import codegen
from minigraph.support.stack_room import page_faults, with_room


def inner(number):
    return number + 1


def many_calls(number):
    for _ in range(200):
        number = inner(number)
    return number


def faults_at(depth, function):
    """New pages of a call that many frames are below of."""
    if depth:
        return faults_at(depth - 1, function)
    assert function(1) == 201
    before = page_faults()
    function(1)
    return page_faults() - before


@pytest.mark.skipif(sys.platform != "linux" or sys.version_info < (3, 11), reason="frames are elsewhere there")
def test_calls_at_the_end_of_a_chunk_take_no_new_memory():
    depths = range(200)
    if max(faults_at(depth, many_calls) for depth in depths) < 100:
        pytest.skip("this Python keeps chunks of its stack")
    assert max(faults_at(depth, with_room(many_calls)) for depth in depths) < 20


def test_a_function_with_room_is_the_same():
    def scale(x, factor=2.0, *, offset=0.0):
        return x * factor + offset + bound

    bound = 0.5
    assert with_room(scale)(3.0) == scale(3.0) == 6.5
    assert with_room(lambda: bound)() == 0.5
    with pytest.raises(ZeroDivisionError) as caught:
        with_room(lambda: 1 / 0)()
    assert caught.traceback[-1].path.name == "test_stack_room.py"


def test_a_plan_gets_room_where_that_saves_new_pages(monkeypatch):
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        y = layers.scale(fluid.data("x", [2]), 2.0)
    executor, counts, pages = fluid.Executor(jit=False), [], iter(range(1000))
    plan = executor.plan_for(main, {"x": np.ones(2, "float32")}, [y]).compiled

    def counted():
        """Before a run zero, after it as many as the next of `counts`."""
        return 0 if next(pages) % 2 == 0 else counts.pop(0)

    monkeypatch.setattr(codegen, "page_faults", counted)

    def look(*found):
        """Whether there is room after runs that took as many new pages."""
        counts.extend(found)
        while counts:
            assert executor.run(main, {"x": np.ones(2, "float32")}, [y])[0].tolist() == [2.0, 2.0]
        return plan.function is not plan._written.function

    few, many = codegen.MANY_FAULTS - 1, 100
    assert not look(few, few)
    assert not look(many, few)  # of memory that is used for the first time
    assert not look(many)
    assert look(many)
    assert look(few, few)  # it helps
    assert not look(many)  # it does not
    assert not look(many, 2 * many)  # as many as usual
    assert not look(3 * many)
    assert look(3 * many)
