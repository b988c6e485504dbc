"""`Executor.explain`: what it tells agrees with what runs, and the estimates with arithmetic done by hand."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from one_op import append

import minigraph as fluid
from minigraph.errors import FeedError, NotFoundError
from minigraph.lowering import costs
from minigraph.opdef import definition_of
from minigraph.rewrite.random_programs.rows import SAMPLES

FEED = {"x": np.ones((8, 4), "float32")}
ONLY_MEANING = fluid.passes.LEGALIZE
"""Where numbers are compared with what was counted by hand, operators stay as they were written."""


@pytest.fixture
def clipped():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = fluid.layers.fc(fluid.data("x", [None, 4]), 16, act="tanh")
        loss = fluid.layers.mean(fluid.layers.fc(hidden, 2))
        fluid.layers.relu(hidden)  # nothing needs it
        fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.01)).minimize(loss)
    return main, startup, loss


@pytest.mark.slow
def test_stages_begin_with_the_pruned_program_and_have_one_for_each_pass(clipped):
    main, _, loss = clipped
    exe = fluid.Executor()
    report = exe.explain(main, FEED, [loss])
    assert [stage.name for stage in report.stages] == ["prune", "concretize", *(each.name for each in exe.passes)]
    pruned = [op.type for op in report.stages[0].program.global_block().ops]
    assert pruned == [op.type for op in main.global_block().ops if op.type != "relu"]


@pytest.mark.slow
def test_each_difference_leads_from_one_stage_to_the_next(clipped):
    main, _, loss = clipped
    stages = fluid.Executor().explain(main, FEED, [loss]).stages
    for before, after in pairwise(stages):
        assert after.difference == fluid.diff(before.program, after.program)
    assert "float32[8, 16]" in stages[1].difference
    assert "clip_by_global_norm(" in "".join(stage.difference for stage in stages[2:])


@pytest.mark.slow
def test_source_and_steps_are_those_of_the_plan_that_runs(clipped):
    main, startup, loss = clipped
    exe, scope = fluid.Executor(), fluid.Scope()
    report = exe.explain(main, FEED, [loss])
    exe.run(startup, scope=scope)
    exe.run(main, feed=FEED, fetch_list=[loss], scope=scope)
    plan = exe.plan_for(main, FEED, [loss])
    assert report.source == plan.compiled.source
    assert [step.op.type for step in report.steps] == [step.op.type for step in plan.steps.steps]


@pytest.mark.slow
def test_explaining_runs_nothing_and_needs_no_values(clipped):
    main, _, loss = clipped
    scope = fluid.Scope()
    before = str(main)
    with fluid.scope_guard(scope):
        fluid.Executor().explain(main, FEED, [loss])
    assert str(main) == before
    assert scope.find_var("fc_0.w_0") is None


@pytest.mark.slow
def test_a_hook_of_the_passes_is_still_called(clipped):
    main, _, loss = clipped
    seen = []
    passes = fluid.passes.Pipeline(fluid.passes.LOWERING.passes, hook=lambda each, *_: seen.append(each.name))
    fluid.Executor(passes=passes).explain(main, FEED, [loss])
    assert seen == [each.name for each in passes]


@pytest.mark.slow
def test_it_prints_every_part(clipped):
    main, _, loss = clipped
    report = fluid.Executor().explain(main, FEED, [loss])
    text = str(report)
    for part in ("After prune\n", "After concretize\n", "After FuseGlobalNorm\n", "Steps: ", "Memory: ", "Source\n"):
        assert part in text
    assert str(report.stages[0].program).rstrip() in text
    assert report.source.rstrip() in text
    assert f"{report.flops:,} flops, {report.bytes:,} bytes moved" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("feed", "fetch", "error"), [({}, None, FeedError), (FEED, ["nothing"], NotFoundError)], ids=["feed", "fetch"]
)
def test_what_run_refuses_is_refused(clipped, feed, fetch, error):
    main, _, loss = clipped
    with pytest.raises(error):
        fluid.Executor().explain(main, feed, fetch or [loss])


# Memory


def memory(build, feed, fetch=lambda out: [out]):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        out = build()
    return fluid.Executor(passes=ONLY_MEANING).explain(main, feed, fetch(out)).memory


def test_the_peak_of_a_chain_is_the_feed_and_two_values():
    def chain():
        y = fluid.data("x", [None, 4])
        for _ in range(5):
            y = fluid.layers.tanh(y)
        return y

    plan = memory(chain, FEED)
    assert plan.peak == 3 * 8 * 4 * 4
    assert {size for _, size in plan.alive} == {8 * 4 * 4}
    assert plan.at == 1  # the first step reads the feed itself


def test_values_that_many_steps_later_read_are_alive_until_then():
    def wide():
        x = fluid.data("x", [None, 4])
        return fluid.layers.sums([fluid.layers.scale(x, 2.0 + i) for i in range(6)])

    assert memory(wide, FEED).peak == (1 + 6 + 1) * 8 * 4 * 4


def test_what_shares_memory_is_counted_once():
    def reshaped():
        return fluid.layers.reshape(fluid.layers.tanh(fluid.data("x", [None, 4])), [-1])

    assert memory(reshaped, FEED).peak == 2 * 8 * 4 * 4


def test_the_result_of_a_clip_is_counted_though_it_may_be_its_argument():
    def clipped():
        return fluid.layers.clip_by_norm(fluid.layers.tanh(fluid.data("x", [None, 4])), 0.1)

    assert memory(clipped, FEED).peak == 3 * 8 * 4 * 4


@pytest.mark.slow
def test_an_update_in_place_takes_no_memory_of_its_own(clipped):
    main, _, loss = clipped
    report = fluid.Executor(passes=ONLY_MEANING).explain(main, FEED, [loss])
    updates = [step for step in report.steps if step.op.type == "sgd"]
    assert updates
    assert all(step.in_place for step in updates)
    names = [name for name, _ in report.memory.alive]
    assert len(names) == len(set(names))


def test_the_peak_is_near_what_is_allocated_when_it_runs():
    def network():
        y = fluid.data("x", [None, 256])
        for _ in range(4):
            y = fluid.layers.tanh(y)
        return fluid.layers.reduce_sum(fluid.layers.reshape(y, [-1]))

    feed = {"x": np.ones((4096, 256), "float32")}
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        out = network()
    exe = fluid.Executor(passes=ONLY_MEANING)
    tracemalloc.start()
    exe.run(main, feed=feed, fetch_list=[out])
    allocated = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    planned = exe.explain(main, feed, [out]).memory.peak - feed["x"].nbytes
    assert planned == 2 * feed["x"].nbytes
    assert allocated == pytest.approx(planned, rel=0.05)


# Costs


def cost_of(op_type, build, feed):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        out = build()
    report = fluid.Executor(passes=ONLY_MEANING).explain(main, feed, [out])
    (found,) = [each for each in report.costs if each.op_type == op_type]
    return found


def test_a_product_costs_two_operations_for_each_of_rows_inner_and_columns():
    found = cost_of("mul", lambda: fluid.layers.fc(fluid.data("x", [None, 4]), 16, bias_attr=False), FEED)
    assert found.flops == 2 * 8 * 4 * 16
    assert found.bytes == 4 * (8 * 4 + 4 * 16 + 8 * 16)


@pytest.mark.parametrize(("transpose_x", "shape"), [(False, (5, 3, 4)), (True, (5, 4, 3))])
def test_a_batch_of_products(transpose_x, shape):
    def build():
        x, y = fluid.data("x", shape), fluid.data("y", (5, 4, 6))
        return fluid.layers.matmul(x, y, transpose_x=transpose_x)

    feed = {"x": np.ones(shape, "float32"), "y": np.ones((5, 4, 6), "float32")}
    assert cost_of("matmul", build, feed).flops == 2 * 5 * 3 * 4 * 6


def test_a_convolution_costs_its_windows():
    def build():
        return fluid.layers.conv2d(fluid.data("x", [None, 3, 10, 10]), 7, 5, bias_attr=False)

    feed = {"x": np.ones((2, 3, 10, 10), "float32")}
    assert cost_of("conv2d", build, feed).flops == 2 * (2 * 7 * 6 * 6) * (3 * 5 * 5)


def test_a_gradient_of_a_product_costs_a_product_for_each_that_is_wanted(clipped):
    main, _, loss = clipped
    report = fluid.Executor(passes=ONLY_MEANING).explain(main, FEED, [loss])
    found = [each.flops for each in report.costs if each.op_type == "mul_grad"]
    assert found == [2 * (2 * 8 * 16 * 2), 2 * 8 * 4 * 16]  # of weight and input, of the weight alone


def test_a_view_costs_nothing_and_other_operators_one_for_each_element():
    found = cost_of("reshape2", lambda: fluid.layers.reshape(fluid.data("x", [None, 4]), [-1]), FEED)
    assert (found.flops, found.bytes) == (0, 0)
    assert cost_of("tanh", lambda: fluid.layers.tanh(fluid.data("x", [None, 4])), FEED).flops == 32


def test_a_clip_costs_what_it_costs_above_the_threshold(clipped):
    main, _, loss = clipped
    report = fluid.Executor(passes=ONLY_MEANING).explain(main, FEED, [loss])
    (found,) = [each for each in report.costs if each.op_type == "clip_by_global_norm"]
    values = 4 * 16 + 16 + 16 * 2 + 2
    assert (found.flops, found.bytes) == (3 * values, 4 * (2 * values + 2))  # and threshold and norm


def test_every_type_in_the_tables_is_an_operator():
    for op_type in [*costs.FLOPS, *costs.VIEWS, *costs.PASSES_ON]:
        assert definition_of(op_type).type == op_type


def _is_joint(sample):
    """Whether it has as many outputs as inputs, which `append` does not make."""
    return sample.op == "clip_by_global_norm"


FIRST_SAMPLES = {each.op: each for each in reversed(SAMPLES) if each.op in costs.FLOPS and not _is_joint(each)}


@pytest.mark.parametrize("sample", FIRST_SAMPLES.values(), ids=FIRST_SAMPLES)
def test_the_table_reads_only_slots_and_attributes_that_exist(sample):
    program, variables, feed = append(sample.op, sample.inputs, **sample.attrs)
    outputs = [variables[slot.name][0] for slot in sample.definition.outputs if not slot.dispensable]
    (found,) = fluid.Executor(passes=ONLY_MEANING).explain(program, feed, outputs).costs
    assert found.bytes == 0 or found.bytes >= sum(array.nbytes for arrays in sample.inputs.values() for array in arrays)
