"""What ranks sum together is one vector, which the sums are written over unless somebody still needs it."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import parallel
from minigraph.executor.interpreter import Interpreter
from minigraph.executor.plan import lower
from minigraph.passes import EXACT
from minigraph.runtime.place import CPUPlace
from minigraph.types import TensorType, as_dtype

HEAD = """
    block 0
      data x: float32[4, 3]
      data k: float32[3, 4]
      w: float32[3, 4] = tanh(X=k)
      g: float32[4, 3] = exp(X=x)
      h: float32[3, 4] = exp(X=w)
"""
SUMS = """
      g = c_allreduce_sum(X=g)
      h = c_allreduce_sum(X=h)
"""
SHAPES = {"x": (4, 3), "k": (3, 4)}
BETWEEN = {
    "nothing": ("", "r: float32[3, 4] = relu(X=h)", True),
    "a view that is read": ("v: float32[4, 3] = c_sync_calc_stream(X=g)", "r: float32[4, 3] = relu(X=v)", False),
    "a view that is read before": (
        "v: float32[4, 3] = c_sync_calc_stream(X=g)\n      u: float32[4, 3] = relu(X=v)",
        "r: float32[4, 3] = relu(X=u)",
        True,
    ),
    "another value that is read": ("v: float32[4, 3] = relu(X=g)", "r: float32[4, 3] = relu(X=v)", True),
    "a view of the sum": ("", "r: float32[4, 3] = c_sync_calc_stream(X=g)", True),
}  # fmt: skip


def found(executor, program, names, rank):
    rng = np.random.default_rng(rank)
    for _ in range(3):
        feed = {name: rng.normal(size=shape).astype("float32") for name, shape in SHAPES.items()}
        results = executor.run(program, feed, names)
    return [each.tobytes() for each in results]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("what", BETWEEN)
def test_sums_are_those_of_the_interpreter(what, check):
    before, after, _ = BETWEEN[what]
    program = fluid.Program.parse(f"{HEAD}      {before}{SUMS}      {after}\n")
    names = ["g", "h", "r"]
    sums = parallel.simulate(lambda rank: found(fluid.Executor(check=check), program, names, rank), 2)
    assert sums == parallel.simulate(lambda rank: found(Interpreter(), program, names, rank), 2)


@pytest.mark.parametrize("what", BETWEEN)
def test_sums_are_written_over_what_nobody_reads(what):
    before, after, is_over = BETWEEN[what]
    program = fluid.Program.parse(f"{HEAD}      {before}{SUMS}      {after}\n")
    types = {name: TensorType(as_dtype("float32"), shape) for name, shape in SHAPES.items()}
    plan = lower(program, types, ["r"], CPUPlace())
    assert bool(plan.buffers.flat.over) == is_over


def training(decay=None):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden, y = fluid.data("x", [None, 8]), fluid.data("y", [None, 1])
        for _ in range(3):
            hidden = fluid.layers.fc(hidden, 150, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        clip = fluid.clip.GradientClipByGlobalNorm(0.1)
        fluid.optimizer.Adam(0.01, grad_clip=clip, regularization=decay).minimize(loss)
    rewrite = parallel.DataParallel(2)
    rewrite.prepare(startup)
    return rewrite(main), startup, loss


def trained(executor, rank, main, startup, names):
    """Fetches of each step and the parameters."""
    scope = fluid.Scope()
    executor.run(startup, scope=scope)
    rng = np.random.default_rng(rank)
    fetched = []
    for _ in range(4):
        feed = {"x": rng.normal(size=(6, 8)).astype("float32"), "y": rng.normal(size=(6, 1)).astype("float32")}
        fetched += executor.run(main, feed, names, scope=scope)
    # Fetches of earlier steps are the caller's own.
    return [*map(np.array, fetched), *[np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each rank averages")
@pytest.mark.parametrize("check", [False, True])
def test_a_clip_takes_single_arrays_of_the_vector_and_returns_others(check):
    main, startup, loss = training(fluid.regularizer.L2Decay(0.1))

    def last_parameter(make):
        executors = [make() for _ in range(2)]
        return parallel.simulate(lambda rank: trained(executors[rank], rank, main, startup, [loss])[-1].tobytes(), 2)

    assert last_parameter(lambda: fluid.Executor(check=check, passes=EXACT)) == last_parameter(Interpreter)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each rank averages")
@pytest.mark.parametrize("check", [False, True])
def test_gradients_of_a_step_are_one_vector_for_the_exchange_and_for_the_update(check):
    main, startup, loss = training()
    names = [loss.name, "fc_1.w_0@GRAD"]
    expected, other = parallel.simulate(lambda rank: trained(Interpreter(), rank, main, startup, names), 2)
    executors = [fluid.Executor(check=check, passes=EXACT) for _ in range(2)]
    found = parallel.simulate(lambda rank: trained(executors[rank], rank, main, startup, names), 2)
    for arrays, wanted in zip(found, (expected, other), strict=True):
        assert [each.tobytes() for each in arrays] == [each.tobytes() for each in wanted]
    flat = executors[0].plans[-1].buffers.flat
    (exchange,) = flat.over
    ((whole,),) = flat.inputs[exchange].values()
    update = next(step for step in flat.targets if step.op.type == "merged_adam")
    assert [whole] in flat.inputs[update].values()
    assert not flat.copies
