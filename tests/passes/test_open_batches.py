"""A spelling whose batch is open is rewritten once for all batches, or the table here says why not."""

import numpy as np
import pytest
from plans_by_size import is_rewritten_again, planned
from spellings import TASKS
from spellings.tasks import BATCH

import minigraph as fluid
from minigraph.errors import MinigraphError
from minigraph.types import TensorType

REASONS = {
    "is 1 / batch": {
        "loss": ["reduce_sum and scale", "log_softmax, all added", "log_softmax of a vector of labels"],
        "mean of squares": ["sums"], "rewards": ["sum"], "squared error": ["pow"], "divergence": ["sum"],
    },
    "numbers of all rows": {"loss": ["gather_nd, stacked"]},
    "a sub-block": {name: ["While", "while_loop"] for name in ("tanh RNN", "LSTM", "GRU")},
}  # fmt: skip
"""What a spelling writes down that is right for one batch only, or cannot have open sizes."""


def with_open_batch(name, spelling):
    """The program, its loss, and a function from a batch to the types of its feeds; None if it has no open batch."""
    task, main = TASKS[name], fluid.Program()
    feed = task.feed()
    shapes = {each: [None if i == 0 and d == BATCH else d for i, d in enumerate(a.shape)] for each, a in feed.items()}
    if not any(None in shape for shape in shapes.values()):
        return None
    try:
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            feeds = {each: fluid.data(each, shapes[each], str(array.dtype)) for each, array in feed.items()}
            loss = task.spellings[spelling](**feeds)
            if task.optimizer is not None:
                task.optimizer().minimize(loss)
    except MinigraphError:  # is written for one batch
        return None

    def types(batch):
        whole = {each: [batch if size is None else size for size in shape] for each, shape in shapes.items()}
        return {each: TensorType(feeds[each].dtype, tuple(whole[each])) for each in sorted(whole)}

    return main, loss.name, types


def is_rewritten_for_each(main, loss, types):
    first = planned(main, types(BATCH), [loss])
    second = planned(main, types(BATCH + 1), [loss], first)
    if isinstance(second, MinigraphError):  # runs with one batch only
        return False
    return first.source.rewritten is None or is_rewritten_again(second, first)


@pytest.mark.laws
@pytest.mark.parametrize("name", TASKS)
def test_a_spelling_is_rewritten_once_for_all_batches(name):
    programs = {spelling: with_open_batch(name, spelling) for spelling in TASKS[name].spellings}
    again = {each for each, found in programs.items() if found is not None and is_rewritten_for_each(*found)}
    assert again == {each for of_tasks in REASONS.values() for each in of_tasks.get(name, ())}


@pytest.mark.parametrize(
    ("columns", "batches", "is_group"),
    [
        (40, (2, 3, 24, 26, 512), True),
        (20, (2, 33, 40, 52, 63), False),
        (20, (64, 70, 100, 513), True),
        (9, (2, 80, 115, 127), False),
        (9, (128, 300), True),
    ],
)
def test_groups_of_operators_on_elements_hold_for_many_batches(columns, batches, is_group):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, columns])
        loss = fluid.layers.reduce_sum(fluid.layers.tanh(fluid.layers.relu(x)))
    sizes = [{"x": TensorType(x.dtype, (batch, columns))} for batch in batches]
    first = planned(main, sizes[0], [loss.name])
    assert ("fused_elementwise" in [step.op.type for step in first.steps.steps]) == is_group
    assert not any(is_rewritten_again(planned(main, types, [loss.name], first), first) for types in sizes[1:])


@pytest.mark.parametrize("seed", ["shape of the target", "zeros"])
def test_constants_for_each_sample_hold_for_all_batches(seed):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        x.stop_gradient = False
        y = fluid.layers.square(x)
        if seed == "zeros":
            y = y * fluid.layers.exp(fluid.layers.zeros_like(x))
        (grad,) = fluid.gradients([y], [x])
    sizes = [{"x": TensorType(x.dtype, (batch, 3))} for batch in (2, 3, 7)]
    first = planned(main, sizes[0], [grad.name])
    assert not any(is_rewritten_again(planned(main, types, [grad.name], first), first) for types in sizes[1:])
    exe = fluid.Executor(fluid.CPUPlace())
    for batch in (2, 3, 7):
        rows = np.arange(3.0 * batch, dtype="float32").reshape(batch, 3)
        np.testing.assert_array_equal(exe.run(main, feed={"x": rows}, fetch_list=[grad])[0], 2 * rows)
