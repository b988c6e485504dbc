"""BuildStrategy turns passes on and off."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import passes
from minigraph.compiler import _FIELDS
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError

FLUID_FIELDS = """
    async_mode cache_runtime_context debug_graphviz_path enable_auto_fusion enable_backward_optimizer_op_deps
    enable_inplace enable_sequential_execution fuse_all_optimizer_ops fuse_all_reduce_ops fuse_bn_act_ops
    fuse_broadcast_ops fuse_elewise_add_act_ops fuse_relu_depthwise_conv gradient_scale_strategy
    hierarchical_allreduce_inter_nranks is_distribution memory_optimize mkldnn_enabled_op_types nccl_comm_num
    num_trainers reduce_strategy remove_unnecessary_lock sync_batch_norm trainer_id trainers_endpoints
    use_hierarchical_allreduce
"""
"""Those of fluid 1.8.5."""


def names(strategy):
    return [each.name for each in strategy.pipeline()]


def test_every_field_of_fluid_is_known_and_may_be_set_to_its_default():
    strategy = fluid.BuildStrategy()
    for name in FLUID_FIELDS.split():
        setattr(strategy, name, getattr(strategy, name))
    assert set(FLUID_FIELDS.split()) <= set(_FIELDS)


def test_by_default_the_passes_are_those_of_every_executor():
    assert fluid.BuildStrategy().pipeline() == passes.LOWERING


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("fold_constants", "FoldConstants"),
        ("clean_up", "CleanUp"),
        ("share_common_subexpressions", "ShareCommonSubexpressions"),
        ("transpose_into_matmul", "TransposeIntoMatmul"),
        ("fuse_softmax_cross_entropy", "FuseSoftmaxCrossEntropy"),
        ("merge_matmuls", "MergeMatmuls"),
    ],
)
def test_each_switch_is_one_pass(field, name):
    strategy = fluid.BuildStrategy()
    for value in (True, False):
        setattr(strategy, field, value)
        assert (name in names(strategy)) == value


def test_auto_fusion_is_every_fusion():
    strategy = fluid.BuildStrategy()
    strategy.enable_auto_fusion = True
    assert {"FuseSoftmaxCrossEntropy", "MergeMatmuls"} <= set(names(strategy))


def test_what_has_no_effect_warns():
    with pytest.warns(UserWarning, match="fuse_elewise_add_act_ops = True has no effect"):
        fluid.BuildStrategy().fuse_elewise_add_act_ops = True


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("fold_constant", True, NotFoundError, "Did you mean fold_constants"),
        ("clean_up", 1, WrongTypeError, "clean_up must be True or False, got 1"),
        ("num_trainers", 2, ProgramError, "(?s)num_trainers = 2 asks for what minigraph does not have.*Leave it at 1"),
        (
            "gradient_scale_strategy",
            fluid.BuildStrategy.GradientScaleStrategy.Customized,
            ProgramError,
            "must be CoeffNumDevice or One",
        ),
    ],
)
def test_what_cannot_be_is_refused(field, value, error, message):
    with pytest.raises(error, match=message):
        setattr(fluid.BuildStrategy(), field, value)


def test_two_strategies_share_nothing():
    fluid.BuildStrategy().trainers_endpoints.append("a")
    assert fluid.BuildStrategy().trainers_endpoints == []


def test_a_compiled_program_is_run_with_its_passes():
    main = fluid.Program.parse(
        "block 0\n data x: float32[2]\n a: float32[2] = tanh(X=x)\n b: float32[2] = assign(X=a)\n"
        " c: float32[2] = tanh(X=b)"
    )
    strategy = fluid.BuildStrategy()
    strategy.clean_up = False
    executor, seen = fluid.Executor(), []
    for program in (main, fluid.CompiledProgram(main), fluid.CompiledProgram(main, strategy)):
        (result,) = executor.run(program, feed={"x": np.ones(2, "float32")}, fetch_list=["c"])
        np.testing.assert_array_equal(result, np.tanh(np.tanh(np.ones(2, "float32"))))
    for each in (executor, *executor._others.values()):
        (plan,) = each._plans.values()
        seen.append([step.op.type for step in plan.steps.steps])
    assert seen == [["tanh", "tanh"], ["tanh", "assign", "tanh"]]


def test_random_numbers_go_on_from_one_program_to_the_other():
    main = fluid.Program.parse("block 0\n a: float32[2] = uniform_random() {shape=[2]}")
    strategy = fluid.BuildStrategy()
    strategy.clean_up = False
    found = []
    for second in (main, fluid.CompiledProgram(main, strategy)):
        executor = fluid.Executor()
        executor._rng = np.random.default_rng(1)
        found.append([executor.run(program, fetch_list=["a"])[0] for program in (main, second)])
    np.testing.assert_array_equal(found[0], found[1])


def test_only_programs_can_be_compiled():
    with pytest.raises(WrongTypeError, match="needs a Program, got int"):
        fluid.CompiledProgram(3)
    with pytest.raises(WrongTypeError, match="must be a BuildStrategy, got int"):
        fluid.CompiledProgram(fluid.Program(), 3)
    with pytest.raises(ProgramError, match="out of scope"):
        fluid.CompiledProgram(fluid.Program()).with_data_parallel()
