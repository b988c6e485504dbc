"""Fluid's paths to names, and small functions that programs reach by them; facts are those of Paddle 1.8.5."""

import importlib
import importlib.util
import json
import operator
import subprocess
import sys
import types
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

import minigraph as fluid
from minigraph import dygraph, layers
from minigraph.errors import (
    ExecutionError,
    NotFoundError,
    ProgramError,
    UnknownImportError,
    UnknownNameError,
    WrongTypeError,
)
from minigraph.framework import op
from minigraph.layers import branches, utils
from minigraph.support.fluid_absent import ABSENT
from minigraph.support.fluid_paths import HOMES

PATHS = {
    "contrib.extend_optimizer.extend_optimizer_with_weight_decay.extend_with_decoupled_weight_decay": (
        fluid.contrib.extend_with_decoupled_weight_decay
    ),
    "contrib.mixed_precision.fp16_lists.AutoMixedPrecisionLists": (
        fluid.contrib.mixed_precision.AutoMixedPrecisionLists
    ),
    "contrib.reader.distributed_reader.distributed_batch_reader": fluid.contrib.reader.distributed_batch_reader,
    "dygraph.base.to_variable": dygraph.to_variable,
    "dygraph.dygraph_to_static.ProgramTranslator": dygraph.ProgramTranslator,
    "dygraph.dygraph_to_static.program_translator.ProgramTranslator": dygraph.ProgramTranslator,
    "dygraph.checkpoint.save_dygraph": fluid.save_dygraph,
    "dygraph.container.Sequential": dygraph.Sequential,
    "dygraph.jit.TracedLayer": dygraph.TracedLayer,
    "dygraph.learning_rate_scheduler.LearningRateDecay": dygraph.LearningRateDecay,
    "dygraph.nn.Conv2DTranspose": dygraph.Conv2DTranspose,
    "dygraph.nn.Linear": dygraph.Linear,
    "dygraph.parallel.Env": dygraph.ParallelEnv,
    "layer_helper_base.LayerHelperBase": fluid.layer_helper.LayerHelperBase,
    "executor.global_scope": fluid.global_scope,
    "input.embedding": fluid.embedding,
    "op.Operator": op.Operator,
    "layers.control_flow.ConditionalBlock": branches.ConditionalBlock,
    "layers.control_flow.StaticRNN": layers.StaticRNN,
    "layers.control_flow.less_than": layers.less_than,
    "layers.metric_op.accuracy": layers.accuracy,
    "layers.nn.elementwise_add": layers.elementwise_add,
    "layers.nn.reduce_sum": layers.reduce_sum,
    "layers.ops.cos": layers.cos,
    "layers.tensor.sums": layers.sums,
    "optimizer.append_backward": fluid.backward.append_backward,
    "optimizer.append_gradient_clip_ops": fluid.clip.append_gradient_clip_ops,
    "optimizer.append_regularization_ops": fluid.regularizer.append_regularization_ops,
    "transpiler.details.program_utils.program_to_code": fluid.transpiler.details.program_to_code,
    "transpiler.memory_optimization_transpiler.memory_optimize": fluid.memory_optimize,
    "Layer": dygraph.Layer,
}


@pytest.mark.parametrize("path", PATHS)
def test_a_name_is_found_by_fluids_path(path):
    *modules, name = path.split(".")
    found = fluid
    for each in modules:
        found = getattr(found, each)
    assert getattr(found, name) is PATHS[path]
    if modules:
        module = importlib.import_module(".".join(["minigraph", *modules]))
        assert getattr(module, name) is PATHS[path]


@pytest.mark.parametrize("path", HOMES)
def test_a_path_of_fluid_offers_the_names_of_one_package(path):
    module, home = importlib.import_module(path), importlib.import_module(HOMES[path])
    assert module.__all__ == home.__all__
    namespace = {}
    exec(f"from {path} import *", namespace)
    assert {name: getattr(home, name) for name in home.__all__}.items() <= namespace.items()


def test_an_unknown_name_is_refused_by_every_path():
    with pytest.raises(UnknownNameError, match=r"minigraph\.layers\.nn has no 'elementwise_ad'"):
        _ = layers.nn.elementwise_ad
    with pytest.raises(ImportError, match=r"rellu'\n.*\n  Did you mean relu"):
        exec("from minigraph.layers.ops import rellu")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("minigraph.layers.control_flows")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("from minigraph import debugger", "minigraph has no 'debugger': fluid has it, but this tool"),
        ("import minigraph.net_drawer", "minigraph has no 'net_drawer': fluid has it, but this tool"),
        (
            "from minigraph.layers import multiclass_nms",
            "minigraph.layers has no 'multiclass_nms': .* detection is out",
        ),
        ("from minigraph.core import AnalysisConfig", "minigraph.core has no 'AnalysisConfig': .* inference engine"),
        (
            "from minigraph.incubate.fleet.utils.fleet_util import FleetUtil",
            "minigraph.incubate.fleet.utils has no 'fleet_util': .* param",
        ),
        ("import minigraph.contrib.slim.prune", "minigraph.contrib has no 'slim': .* quantization"),
        (
            "from minigraph.compat.paddle.fluid.dygraph.nn import FC",
            "minigraph.dygraph has no 'FC': .* only before 1.8",
        ),
    ],
)
def test_an_import_says_why_a_name_is_not_here(line, says):
    with pytest.raises(UnknownImportError, match=says) as told:
        exec(compile(line, "script.py", "exec"), {})
    assert told.value.site.filename == "script.py"
    assert told.value.hint


def test_a_function_is_no_module():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'minigraph\.layers\.fc'"):
        importlib.import_module("minigraph.layers.fc")
    assert importlib.util.find_spec("minigraph.layers._nothing") is None


def test_small_helpers_are_those_of_fluid():
    assert fluid.framework.unique_name is fluid.unique_name
    assert fluid.backward._append_grad_suffix_("x") == "x@GRAD"
    assert [utils._is_symmetric_padding(each, 2) for each in ([1, 2], [1, 1, 2, 2], [1, 2, 1, 2])] == [
        True,
        True,
        False,
    ]
    with pytest.raises(ProgramError, match="padding must have 2 or 4 elements, got 3"):
        utils._is_symmetric_padding([1, 2, 3], 2)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        assert utils._contain_var((1, fluid.data("x", [2])))
        assert not utils._contain_var([1, "x"])
        assert fluid.unique_name.generate_with_ignorable_key("x_slice") == "x_slice_0"
    with dygraph.guard(), fluid.unique_name.guard():
        assert fluid.unique_name.generate_with_ignorable_key("x_slice") == "tmp_0"


def test_the_value_of_a_variable_is_read_from_the_scope():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        layers.fc(fluid.data("x", [None, 3]), 2, param_attr=fluid.initializer.Constant(0.5))
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        weight = fluid.framework._get_var("fc_0.w_0")
        for name in (weight, "fc_0.w_0"):
            np.testing.assert_array_equal(fluid.executor._fetch_var(name, scope), np.full((3, 2), 0.5))
        # As in fluid, a handle on what the scope holds.
        fluid.executor._fetch_var(weight, scope, return_numpy=False).set(np.ones((3, 2), "float32"), fluid.CPUPlace())
        np.testing.assert_array_equal(fluid.executor._fetch_var(weight, scope), np.ones((3, 2)))
        with pytest.raises(NotFoundError, match=r"(?s)no value of 'fc_0.w_1'.*fc_0.w_0"):
            fluid.executor._fetch_var("fc_0.w_1", scope)


def test_arguments_become_attributes_of_parameters():
    to_attr = fluid.ParamAttr._to_attr
    assert to_attr(False) is False
    assert isinstance(to_attr(None), fluid.ParamAttr) and to_attr(True) is not to_attr(True)
    assert [each.name for each in to_attr(["a", None])] == ["a", None]
    constant = fluid.initializer.Constant(1.0)
    assert to_attr(constant).initializer is constant


def test_a_rate_of_the_users_own_counts_steps():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        step = layers.learning_rate_scheduler._decay_step_counter(1)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        found = [executor.run(fetch_list=[step * 0.5], scope=scope)[0].item() for _ in range(3)]
    assert found == [0.5, 1.0, 1.5]


def test_roles_have_fluids_names_and_numbers():
    maker = fluid.core.op_proto_and_checker_maker
    numbers = {"Forward": 0, "Backward": 1, "Optimize": 2, "RPC": 4, "Dist": 8, "LRSched": 16, "Loss": 256}
    assert {name: int(getattr(maker.OpRole, name)) for name in numbers} == numbers
    assert (maker.kOpRoleAttrName(), maker.kOpRoleVarAttrName()) == ("op_role", "op_role_var")
    assert maker.kOpNameScopeAttrName() == "op_namescope"
    with pytest.raises(fluid.core.EnforceNotMet):
        layers.relu("x")


def test_a_wrapped_function_keeps_its_name_and_is_decorated_anew_at_each_call():
    calls = []

    @fluid.wrapped_decorator.signature_safe_contextmanager
    def guard(value):
        """Documented."""
        calls.append(value)
        yield value

    assert (guard.__name__, guard.__doc__) == ("guard", "Documented.")
    for value in (1, 2):
        with guard(value) as given:
            assert given == value
    assert calls == [1, 2]


# layers.utils

Pair = namedtuple("Pair", "first second")


def test_structures_are_flattened_and_packed():
    nest = {"b": [1, (2, 3)], "a": Pair(4, [5])}
    assert utils.flatten(nest) == [4, 5, 1, 2, 3]
    assert utils.pack_sequence_as(nest, "abcde") == {"b": ["c", ("d", "e")], "a": Pair("a", ["b"])}
    assert utils.map_structure(lambda x, y: x + y, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert utils.is_sequence(nest) and not utils.is_sequence("text")
    copy = utils.copy_mutable_vars(nest)
    assert copy == nest and copy["b"] is not nest["b"]
    assert utils.hold_mutable_vars([1, [2]]) and not utils.hold_mutable_vars([1, 2])
    with pytest.raises(ProgramError, match="a structure of 2 cannot hold 3"):
        utils.pack_sequence_as([1, 2], [1, 2, 3])


def test_structures_are_compared():
    utils.assert_same_structure([1, {"a": 2}], [3, {"a": 4}])
    utils.assert_same_structure([1, 2], (3, 4), check_types=False)
    for other in ([1, 2], (1, {"a": 2}), [1, {"b": 2}], [1, [2]]):
        with pytest.raises(ProgramError, match="the two structures differ"):
            utils.assert_same_structure([1, {"a": 2}], other)


def test_numbers_become_lists():
    assert utils.convert_to_list(3, 2, "stride") == [3, 3]
    assert utils.convert_to_list(np.array([1, 2]), 2, "stride") == [1, 2]
    assert utils.convert_to_list(0.5, 3, "ratio", float) == [0.5] * 3
    for value in ([1], 1.5, ["a", "b"]):
        with pytest.raises(WrongTypeError, match="stride must"):
            utils.convert_to_list(value, 2, "stride")


# The top module


def test_the_top_module_has_fluids_version():
    paddle = importlib.import_module("minigraph.compat.paddle")
    assert paddle.__version__ >= "1.8" and paddle.__version__ == paddle.version.full_version == "1.8.5"
    assert (paddle.version.major, paddle.version.minor, paddle.version.patch) == ("1", "8", "5")
    assert len(paddle.version.commit) == 40 and paddle.version.mkl() == "OFF"
    assert paddle.fluid is fluid and paddle.batch is fluid.batch and paddle.dataset.imdb is fluid.dataset.imdb
    assert paddle.to_tensor is fluid.to_tensor
    with pytest.raises(UnknownNameError, match="minigraph has no 'to_tensr'"):
        _ = paddle.to_tensr


@pytest.mark.slow
def test_modules_below_the_top_module_are_those_of_minigraph_itself():
    script = """
import sys
import minigraph.compat.paddle.fluid as fluid
import minigraph.compat.paddle.fluid.layers as layers, minigraph.compat.paddle.fluid.layers.control_flow
from minigraph.compat.paddle.fluid.dygraph.nn import Linear
from minigraph.compat.paddle.fluid.initializer import Constant
import minigraph.compat.paddle.dataset.mnist as mnist, minigraph.compat.paddle.reader as reader
import minigraph, minigraph.dataset.mnist, minigraph.layers.control_flow, importlib
assert fluid is minigraph and layers is minigraph.layers and mnist is minigraph.dataset.mnist
assert reader is minigraph.reader and Linear is minigraph.dygraph.Linear
assert Constant is minigraph.initializer.Constant
assert fluid.__spec__.name == "minigraph" and layers.__spec__.name == "minigraph.layers"
assert importlib.reload(layers) is layers
for name in ("fluid.nope", "nope"):
    try:
        importlib.import_module(f"minigraph.compat.paddle.{name}")
    except ModuleNotFoundError as error:
        assert "nope" in str(error)
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_text_and_numbers_of_paddle_compat_are_those_of_the_original():
    cpt = importlib.import_module("minigraph.compat.paddle.compat")
    assert cpt.to_text([b"a", "b", 1.5, None]) == ["a", "b", 1.5, None] and cpt.to_text({b"k": b"v"}) == {"k": "v"}
    assert cpt.to_bytes(["a", b"b"]) == [b"a", b"b"] and cpt.to_bytes({"a"}) == {b"a"}
    given = [b"a", "b"]
    assert cpt.to_text(given, inplace=True) is given and given == ["a", "b"]
    assert [cpt.round(x) for x in (0.5, 1.5, -2.5, 0.49, 0.0)] == [1.0, 2.0, -3.0, 0.0, 0.0]
    assert cpt.round(2.345, 2) == pytest.approx(2.35)
    assert (cpt.floor_division(7, 2), cpt.get_exception_message(ValueError("why")), cpt.long_type) == (3, "why", int)


# Operators by name


def test_operators_compute_tensors_by_name():
    with dygraph.guard():
        x = dygraph.to_variable(np.arange(6, dtype="float32").reshape(1, 1, 2, 3))
        x.stop_gradient = False
        kernel = dygraph.to_variable(np.ones((1, 1, 2, 2), "float32"))
        result = fluid.core.ops.conv2d(x, kernel, "strides", [1, 1], "paddings", [0, 0], "use_cudnn", False)
        np.testing.assert_array_equal(result.numpy(), [[[[8, 12]]]])
        layers.reduce_sum(result).backward()
        np.testing.assert_array_equal(x.gradient(), [[[[1, 2, 1], [1, 2, 1]]]])
        values, indices = fluid.core.ops.top_k(x, "k", 1)
        assert values.numpy().ravel().tolist() == [2, 5] and indices.numpy().ravel().tolist() == [2, 2]
        assert fluid.core.ops.sum([x, x]).shape == (1, 1, 2, 3)
        with pytest.raises(WrongTypeError, match="takes X, then names and values of attributes, got 2 values"):
            fluid.core.ops.relu(x, x)
        bias = dygraph.to_variable(np.full(1, -3, "float32"))
        act = fluid.dygraph_utils._append_activation_in_dygraph(
            fluid.dygraph_utils._append_bias_in_dygraph(x, bias), "relu"
        )
        assert act.numpy().ravel().tolist() == [0, 0, 0, 0, 1, 2]
    with pytest.raises(NotFoundError, match="conv2d"):
        fluid.core.ops.conv2dd(x)


def test_operators_describe_themselves():
    proto = fluid.framework.OpProtoHolder.instance().get_op_proto("scale")
    assert proto.type == "scale" and [slot.name for slot in proto.outputs] == ["Out"]
    assert fluid.framework.OpProtoHolder.instance().op_proto_map["scale"] == proto
    assert isinstance(fluid.CPUPlace(), fluid.core.Place)


def test_compressed_momentum_is_momentum_on_one_rank():
    with pytest.warns(UserWarning, match="one rank has nothing to send"):
        optimizer = fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, rampup_begin_step=10)
    assert isinstance(optimizer, fluid.optimizer.Momentum)
    with pytest.raises(ProgramError, match="one rank, not 4"):
        fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 10, num_trainers=4)


# contrib


def test_memory_is_estimated_as_by_fluid():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        layers.relu(layers.fc(fluid.data("x", [None, 3]), 2))
        program = fluid.default_main_program()
    assert fluid.contrib.memory_usage(program, 10) == (pytest.approx(252.0), pytest.approx(264.0), "B")
    low, high, unit = fluid.contrib.memory_usage(program, 100_000)
    assert (low, high, unit) == (pytest.approx(2.40325927734375), pytest.approx(2.5177001953125), "MB")
    with pytest.raises(ProgramError, match="must be positive"):
        fluid.contrib.memory_usage(program, 0)


@pytest.mark.parametrize(("ranks", "rank", "expected"), [(1, 0, [0, 1, 2, 3, 4]), (2, 0, [0, 2]), (2, 1, [1, 3])])
def test_each_rank_reads_its_batch_of_a_round(monkeypatch, ranks, rank, expected):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(ranks))
    monkeypatch.setenv("PADDLE_TRAINER_ID", str(rank))
    reader = fluid.contrib.reader.distributed_batch_reader(lambda: iter(range(5)))
    assert list(reader()) == list(reader()) == expected


# dygraph.parallel


def test_one_rank_trains_as_without_data_parallel():
    with dygraph.guard(), fluid.unique_name.guard():
        plain = dygraph.Linear(2, 1)
        model = dygraph.DataParallel(plain, dygraph.prepare_context())
        optimizer = fluid.optimizer.SGD(0.5, parameter_list=model.parameters())
        loss = model.scale_loss(layers.reduce_sum(model(dygraph.to_variable(np.ones((1, 2), "float32")))))
        loss.backward()
        model.apply_collective_grads()
        before = plain.weight.numpy()
        optimizer.minimize(loss)
        np.testing.assert_allclose(plain.weight.numpy(), before - 0.5)
        assert list(model.state_dict()) == list(plain.state_dict()) == ["weight", "bias"]
        model.set_dict({"weight": np.zeros((2, 1), "float32"), "bias": np.ones(1, "float32")})
        assert plain.weight.numpy().tolist() == [[0], [0]]


def test_more_ranks_than_run_are_refused(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    env = dygraph.ParallelEnv()
    assert (env.nranks, env.local_rank, env.dev_id, env.trainer_endpoints) == (2, 0, 0, [""])
    with pytest.raises(ProgramError, match="for 2 ranks, but 1 runs"):
        dygraph.prepare_context()


# Names of fluid that are not here

NAMES = json.loads((Path(__file__).parents[1] / "golden" / "fluid_names.json").read_text(encoding="utf-8"))
"""Public names of the modules of fluid 1.8.5."""


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_of_fluid_is_here_or_says_why_not(module):
    found = fluid
    for part in filter(None, module.split(".")):
        try:
            found = getattr(found, part)
        except UnknownNameError as error:
            assert "fluid has it, but" in error.message and error.hint
            return
    if isinstance(found, types.ModuleType):  # `fluid.data` is a function
        for name in NAMES[module]:
            if not hasattr(found, name):
                with pytest.raises(UnknownNameError, match=rf"has no '{name}': fluid has it, but ") as caught:
                    getattr(found, name)
                assert caught.value.hint
                assert caught.value.site.filename == __file__


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("core.AnalysisConfig", "inference engine is out of scope"),
        ("core.create_paddle_predictor", "inference engine is out of scope"),
        ("transpiler.HashName", "parameter servers"),
        ("incubate.fleet.parameter_server", "parameter servers"),
        ("incubate.fleet.utils.fleet_util", "parameter servers"),
        ("FC", "only before 1.8"),
        ("clip.NullGradientClipAttr", "only before 1.8"),
        ("core.ProgramDesc", "are their own descriptions"),
        ("contrib.slim", "quantization"),
        ("framework.IrGraph", "quantization"),
        ("layers.collective", "exchanges"),
        ("optimizer.PipelineOptimizer", "pipelines over devices"),
        ("dygraph.StaticModelRunner", "do not become layers"),
        ("layers.load", "do not read files"),
        ("ComplexVariable", "complex numbers"),
        ("debugger", "this tool"),
    ],
)
def test_names_outside_of_the_public_lists_say_why_they_are_not_here(path, reason):
    found = fluid
    with pytest.raises(UnknownNameError, match=rf"fluid has it, but .*{reason}"):
        for part in path.split("."):
            found = getattr(found, part)


def test_no_name_that_is_here_is_said_to_be_absent():
    modules = (fluid, layers, dygraph, fluid.nets, fluid.metrics, fluid.optimizer, fluid.contrib)
    # Fluid has two of some names, such as the older decoder of its contrib.
    absent = set(ABSENT) - {"load", "BeamSearchDecoder"}
    assert not {name for module in modules for name in dir(module)} & absent


def test_what_fluid_no_longer_does_is_accepted():
    main = fluid.Program()
    before = str(main)
    fluid.memory_optimize(main, print_log=True)
    fluid.release_memory(main)
    assert str(main) == before
    with pytest.warns(UserWarning, match=r"cuda_profiler writes no out\.txt"), fluid.profiler.cuda_profiler("out.txt"):
        pass


def test_layers_of_the_imperative_mode_stand_beside_the_packages_too():
    names = "BCELoss BatchNorm Conv2D Conv2DTranspose Dropout Embedding GRUUnit LayerNorm Linear NCE PRelu Pool2D"
    for name in names.split():
        assert getattr(fluid, name) is getattr(dygraph, name)


def test_gradients_are_found_by_fluids_older_names():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        x.stop_gradient = False
        loss = fluid.layers.mean(x)
        assert fluid.backward.calc_gradient(loss, x).name == fluid.framework.grad_var_name("x") == "x@GRAD"
        assert len(fluid.backward.calc_gradient(loss, [x, loss])) == 2


@pytest.mark.usefixtures("new_program")
def test_arguments_of_layers_of_ones_own_are_checked():
    check, x = fluid.data_feeder, fluid.data("x", [None, 3])
    assert (
        check.convert_dtype(x.dtype) == check.convert_dtype(np.float32) == check.convert_dtype("float32") == "float32"
    )
    check.check_variable_and_dtype(x, "input", ["float32", "float64"], "mine")
    check.check_type(3, "size", (int, list), "mine")
    with pytest.raises(TypeError, match=r"mine: size must be int or list, got float: 0.5. Give an int"):
        check.check_type(0.5, "size", (int, list), "mine", "Give an int")
    with pytest.raises(TypeError, match=r"mine: input must hold int32 or int64, got float32"):
        check.check_variable_and_dtype(x, "input", ["int32", "int64"], "mine")
    with pytest.raises(TypeError, match="mine: input must be a Variable, got int"):
        check.check_variable_and_dtype(1, "input", ["int32"], "mine")
    with pytest.raises(WrongTypeError, match="not an element type"):
        check.convert_dtype("float31")
    with dygraph.guard():  # as in fluid, nothing is checked there
        check.check_variable_and_dtype(1, "input", ["int32"], "mine")
        assert fluid.framework._dygraph_tracer() is not None
        assert fluid.framework._current_expected_place() == fluid.CPUPlace()
    assert fluid.framework._dygraph_tracer() is None is fluid.framework._current_expected_place()
    assert fluid.framework.convert_np_dtype_to_dtype_("int64") == fluid.core.VarDesc.VarType.INT64
    assert fluid.framework.dtype_is_floating(np.float16) and not fluid.framework.dtype_is_floating("int32")
    assert layers.Variable is fluid.Variable


def test_flags_are_read_and_set_by_name():
    flags = fluid.core.globals()
    assert flags["FLAGS_paddle_num_threads"] == 1 and flags.is_public("FLAGS_benchmark")
    assert "FLAGS_nothing" not in flags and not flags.is_public("FLAGS_nothing")
    assert set(flags) == set(flags.keys()) and len(flags) > 20
    try:
        flags["FLAGS_benchmark"] = True
        assert fluid.get_flags("FLAGS_benchmark") == {"FLAGS_benchmark": True}
    finally:
        flags["FLAGS_benchmark"] = False
    with pytest.raises(ProgramError, match="cannot be removed"):
        del flags["FLAGS_benchmark"]


def test_tensors_become_arrays():
    tensor = fluid.create_lod_tensor(np.ones((2, 1), "float32"), [], None)
    np.testing.assert_array_equal(fluid.executor.as_numpy([tensor])[0], np.ones((2, 1)))
    with pytest.raises(ExecutionError, match="sequences of several lengths"):
        fluid.executor.as_numpy(fluid.create_lod_tensor(np.ones((2, 1), "float32"), [[2]], None))
    with pytest.raises(WrongTypeError, match="as_numpy takes a LoDTensor or a list of them, got int"):
        fluid.executor.as_numpy(1)


@pytest.mark.usefixtures("new_program")
def test_the_value_of_a_parameter_is_read_by_its_name():
    x = fluid.data("x", [None, 3])
    layers.fc(x, 2, param_attr=fluid.ParamAttr("w", fluid.initializer.Constant(0.5)))
    executor = fluid.Executor()
    with pytest.raises(ProgramError, match="the scope has no value"):
        fluid.io.get_parameter_value_by_name("w", executor)
    executor.run(fluid.default_startup_program())
    found = fluid.io.get_parameter_value_by_name("w", executor)
    np.testing.assert_array_equal(found, np.full((3, 2), 0.5))
    with pytest.raises(WrongTypeError, match="takes a parameter"):
        fluid.io.get_parameter_value(x, executor)


@pytest.mark.usefixtures("new_program")
def test_operators_are_counted_one_by_one_and_by_who_reads_whom():
    x = fluid.data("x", [None, 3])
    layers.mean(layers.fc(layers.fc(x, 3), 3))
    counts = fluid.contrib.op_freq_statistic(fluid.default_main_program())
    assert counts[0] == [("mul", 2), ("elementwise_add", 2), ("mean", 1)]
    assert counts[1] == [("mul->elementwise_add", 2), ("elementwise_add->mul", 1), ("elementwise_add->mean", 1)]


def test_types_of_the_imperative_mode_are_told_apart_by_fluids_names():
    with dygraph.guard():
        weight, x = dygraph.Linear(2, 2).weight, dygraph.to_variable(np.ones([1, 2], "float32"))
    assert isinstance(x, fluid.core.VarBase) and isinstance(weight, fluid.VarBase)
    assert isinstance(weight, fluid.framework.ParamBase) and not isinstance(x, fluid.framework.ParamBase)
    with fluid.program_guard(fluid.Program()):
        assert not isinstance(fluid.data("x", [None, 2]), fluid.core.VarBase)
    assert isinstance(fluid.Scope().var("w"), fluid.core.Variable)
    assert (fluid.core.Tensor, fluid.core._Scope) == (fluid.LoDTensor, fluid.Scope)


def test_constants_of_fluid_have_its_values():
    assert (fluid.framework.GRAD_VAR_SUFFIX, fluid.framework.EMPTY_VAR_NAME) == ("@GRAD", "@EMPTY@")
    core = fluid.core
    assert (core.kGradVarSuffix(), core.grad_var_suffix(), core.empty_var_name()) == ("@GRAD", "@GRAD", "@EMPTY@")
    assert not core.is_compiled_with_mkldnn() and not core.is_compiled_with_brpc()


def test_functions_for_one_mode_refuse_the_other():
    only, never = (
        decorate(lambda: 5) for decorate in (fluid.framework.dygraph_only, fluid.framework.dygraph_not_support)
    )
    assert never() == 5
    with pytest.raises(ProgramError, match="only for the imperative mode"):
        only()
    with dygraph.guard():
        assert only() == 5
        with pytest.raises(ProgramError, match="not for the imperative mode"):
            never()


def test_decorators_of_layers_keep_them():
    module = importlib.import_module("minigraph.layers.layer_function_generator")

    @module.templatedoc(op_type="relu")
    def mine(x):
        """${comment}"""
        return layers.relu(x)

    assert module.autodoc(" More.")(mine) is mine and mine.__doc__ == "${comment} More."
    with dygraph.guard():
        assert mine(dygraph.to_variable(np.array([-1.0, 2.0], "float32"))).numpy().tolist() == [0, 2]


def test_an_installation_is_checked(capsys):
    main, ops = fluid.default_main_program(), len(fluid.default_main_program().global_block().ops)
    fluid.install_check.run_check()
    assert "minigraph works" in capsys.readouterr().out
    assert fluid.default_main_program() is main and len(main.global_block().ops) == ops


def test_a_logger_writes_each_message_once(capsys):
    for _ in range(2):
        logger = fluid.log_helper.get_logger("tests.fluid_paths", 20, fmt="%(levelname)s: %(message)s")
    logger.info("ready")
    logger.debug("hidden")
    assert capsys.readouterr().err == "INFO: ready\n"


@pytest.mark.slow
def test_curves_grow_and_are_drawn(tmp_path, monkeypatch):
    from minigraph.compat.paddle.utils.plot import Ploter

    costs = Ploter("train cost", "test cost")
    costs.append("train cost", 1, 0.5)
    costs.append(title="train cost", step=2, value=np.array([0.25]))
    assert costs.points("train cost")[0] == [1, 2] and costs.points("test cost") == ([], [])
    with pytest.raises(NotFoundError, match=r"(?s)'train'.*train cost"):
        costs.append("train", 1, 0.5)
    monkeypatch.setenv("DISABLE_PLOT", "True")
    costs.plot(tmp_path / "no.png")
    assert not (tmp_path / "no.png").exists()
    monkeypatch.delenv("DISABLE_PLOT")
    pytest.importorskip("matplotlib", reason="needs the extra [plot]")
    costs.plot(tmp_path / "costs.png")
    assert (tmp_path / "costs.png").read_bytes().startswith(b"\x89PNG")
    costs.reset()
    assert costs.points("train cost") == ([], [])


@pytest.mark.parametrize(
    ("path", "home"),
    [
        ("InMemoryDataset", "dataset.InMemoryDataset"),
        ("QueueDataset", "dataset.QueueDataset"),
        ("contrib.AutoMixedPrecisionLists", "contrib.mixed_precision.AutoMixedPrecisionLists"),
        ("contrib.decorate", "contrib.mixed_precision.decorate"),
        ("contrib.summary", "contrib.model_stat.summary"),
    ],
)
def test_names_have_the_shorter_paths_of_fluid(path, home):
    assert operator.attrgetter(path)(fluid) is operator.attrgetter(home)(fluid)


def test_quantization_is_said_to_be_out_of_scope():
    with pytest.raises(AttributeError, match="fluid has it, but quantization"):
        operator.attrgetter("contrib.quantize")(fluid)
