"""BuildStrategy turns passes on and off."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import passes
from minigraph.errors import ExecutionError, NotFoundError, ProgramError, WrongTypeError

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
    assert set(FLUID_FIELDS.split()) <= set(fluid.BuildStrategy._defaults())


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
        ("fuse_mean_loss", "FuseMeanLoss"),
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
        ("async_mode", True, ProgramError, "(?s)async_mode = True asks for what minigraph does not have.*at False"),
        ("num_trainers", 0, WrongTypeError, "num_trainers must be like 1, got 0"),
        ("trainers_endpoints", "a:1", WrongTypeError, "trainers_endpoints must be like"),
        (
            "gradient_scale_strategy",
            "Customized",
            ProgramError,
            "must be CoeffNumDevice, One or Customized, got 'Customized'",
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
    feed = {"x": np.ones(2, "float32")}
    for program in (main, fluid.CompiledProgram(main), fluid.CompiledProgram(main, strategy)):
        (result,) = executor.run(program, feed=feed, fetch_list=["c"])
        np.testing.assert_array_equal(result, np.tanh(np.tanh(np.ones(2, "float32"))))
        seen.append([step.op.type for step in executor.plan_for(program, feed, ["c"]).steps.steps])
    assert seen == [["tanh", "tanh"], ["tanh", "tanh"], ["tanh", "assign", "tanh"]]
    assert executor.plan_for(fluid.CompiledProgram(main), feed, ["c"]) is executor.plan_for(main, feed, ["c"])


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
    with pytest.raises(WrongTypeError, match=r"CompiledProgram: program.* must be a Program.*, got 3"):
        fluid.CompiledProgram(3)
    with pytest.raises(WrongTypeError, match="must be a BuildStrategy or None, got 3"):
        fluid.CompiledProgram(fluid.Program(), 3)


# With data parallel: the numbers and the shapes are those of Paddle 1.8.5 on one place


@pytest.fixture
def regression():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1])
        start = fluid.initializer.Constant(0.5)
        predicted = fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr("w", initializer=start), bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(predicted, y))
        total = fluid.layers.reduce_sum(predicted, keep_dim=True)
        test = fluid.default_main_program().clone(for_test=True)
        fluid.optimizer.SGD(0.1).minimize(loss)
        exe = fluid.Executor()
        exe.run(fluid.default_startup_program())
        feed = {"x": np.arange(8, dtype="float32").reshape(4, 2), "y": np.ones((4, 1), "float32")}
        yield exe, test, [predicted, loss, total], feed


@pytest.mark.parametrize("places", [None, fluid.CPUPlace(), fluid.cpu_places(1)])
def test_on_one_place_what_is_fetched_is_what_the_program_computes(regression, places):
    exe, test, fetched, feed = regression
    compiled = fluid.CompiledProgram(test)
    assert compiled.with_data_parallel(places=places) is compiled
    expected = [[[0.5], [2.5], [4.5], [6.5]], [11.25], [[14.0]]]
    for given in (feed, [feed]):
        assert [each.tolist() for each in exe.run(compiled, feed=given, fetch_list=fetched)] == expected
    apart = exe.run(compiled, feed=feed, fetch_list=fetched, return_merged=False)
    assert [[each.tolist() for each in places] for places in apart] == [[each] for each in expected]
    tensors = exe.run(compiled, feed=feed, fetch_list=fetched, return_numpy=False)
    assert all(isinstance(each, fluid.LoDTensor) for each in tensors)


def test_on_one_place_training_is_training(regression):
    exe, _, (_, loss, _), feed = regression
    main = fluid.default_main_program()
    strategy = fluid.ExecutionStrategy()
    strategy.num_threads = 4
    with pytest.warns(UserWarning, match="num_iteration_per_run = 3 has no effect: a call runs the program once"):
        strategy.num_iteration_per_run = 3
    compiled = fluid.CompiledProgram(main).with_data_parallel(loss.name, fluid.BuildStrategy(), strategy)
    found = exe.run(compiled, feed=feed, fetch_list=[loss, "w"])
    np.testing.assert_allclose(found[0], [11.25])
    np.testing.assert_allclose(found[1], [[-2.0], [-2.5]], rtol=1e-6)


def test_a_program_may_run_with_the_scope_of_another(regression):
    exe, test, (_, loss, _), feed = regression
    training = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss.name)
    testing = fluid.CompiledProgram(test).with_data_parallel(share_vars_from=training)
    with pytest.raises(ProgramError, match="given as share_vars_from did not run yet"):
        exe.run(testing, feed=feed, fetch_list=[loss])
    exe.run(training, feed=feed, fetch_list=[loss])
    with fluid.scope_guard(fluid.Scope()):  # which holds no weights
        np.testing.assert_allclose(exe.run(testing, feed=feed, fetch_list=[loss])[0], [390.25], rtol=1e-6)


def test_what_running_on_every_place_cannot_do_is_refused(regression):
    exe, test, (_, loss, _), feed = regression
    main = fluid.default_main_program()
    for arguments, message in [
        ({"loss_name": "mean_0.tmp"}, r"no variable 'mean_0.tmp' to be its loss\n  at .*\n  Did you mean"),
        ({}, "needs the name of its loss"),
    ]:
        with pytest.raises(ProgramError, match=message):
            fluid.CompiledProgram(main).with_data_parallel(**arguments)
    compiled = fluid.CompiledProgram(test).with_data_parallel(places=fluid.CUDAPlace(0))
    with pytest.raises(ProgramError, match=r"compiled for CUDAPlace\(0\), the executor runs on CPUPlace\(\)"):
        exe.run(compiled, feed=feed, fetch_list=[loss])
    with pytest.raises(ProgramError, match="called before"):
        compiled.with_data_parallel()
    for name in ("build_strategy", "exec_strategy", "share_vars_from", "places"):
        with pytest.raises(WrongTypeError, match="must be a"):
            fluid.CompiledProgram(test).with_data_parallel(**{name: 3})


def test_a_parallel_executor_runs_its_program_in_its_scope(regression):
    _, test, (predicted, loss, _), feed = regression
    training = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)
    assert training.device_count == 1
    np.testing.assert_allclose(training.run(fetch_list=[loss.name], feed=feed)[0], [11.25])
    with fluid.scope_guard(fluid.Scope()):
        testing = fluid.ParallelExecutor(use_cuda=False, main_program=test, share_vars_from=training)
        found = testing.run([loss.name, predicted], feed_dict=feed)
    np.testing.assert_allclose(found[0], [390.25], rtol=1e-6)
    np.testing.assert_allclose(found[1], [[-2.5], [-11.5], [-20.5], [-29.5]], rtol=1e-6)
    testing.drop_local_exe_scopes()
    with pytest.raises(ExecutionError, match="the program is for 2 ranks, but 1 runs"):
        fluid.ParallelExecutor(False, loss.name, num_trainers=2).run([loss.name], feed)
    with pytest.raises(ProgramError, match="trainer_id must be from 0 to 0, got 1"):
        fluid.ParallelExecutor(False, loss.name, trainer_id=1)
    for arguments in ({"share_vars_from": 3}, {"scope": 3}):
        with pytest.raises(WrongTypeError, match="must be a"):
            fluid.ParallelExecutor(False, loss.name, **arguments)


def test_fields_of_the_execution_strategy_are_those_of_fluid():
    strategy = fluid.ExecutionStrategy()
    assert vars(strategy) == {
        "allow_op_delay": False, "num_iteration_per_drop_scope": 100, "num_iteration_per_run": 1, "num_threads": 0,
        "use_cuda": True, "use_experimental_executor": True, "use_thread_barrier": False,
    }  # fmt: skip
    with pytest.raises(NotFoundError, match="Did you mean num_threads"):
        strategy.num_thread = 3
    with pytest.raises(WrongTypeError, match="num_threads must be of type int, got 'x'"):
        strategy.num_threads = "x"


@pytest.mark.usefixtures("new_program")
def test_the_places_of_runs_have_fluids_name():
    y = fluid.layers.scale(fluid.data("x", [None]), 2.0)
    feed, executor = {"x": np.ones(2, "float32")}, fluid.Executor()
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    assert compiled._places is None
    executor.run(compiled, feed, [y])
    assert compiled._places == [fluid.CPUPlace()]
    compiled.with_data_parallel(places=fluid.cpu_places(2))
    executor.run(compiled, feed, [y])
    assert compiled._places == fluid.cpu_places(2)
