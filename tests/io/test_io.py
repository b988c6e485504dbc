"""Saving and loading variables, programs, models and state dictionaries; what does not fit."""

import os
from pathlib import Path

import numpy as np
import pytest
from asserting import assert_same
from drawn_programs import any_programs
from hypothesis import given, settings
from scopes import value

import minigraph as fluid
from minigraph.errors import (
    DataError,
    MismatchError,
    MissingFileError,
    NotFoundError,
    OpError,
    ProgramError,
    WrongTypeError,
)
from minigraph.io.program_desc import FEED, FETCH
from minigraph.opdef import EMPTY
from minigraph.rewrite.strategies import trained_programs

GOLDEN = Path(__file__).parents[1] / "golden" / "io"
ROOT = Path(__file__).parents[2]
DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]

exe = fluid.Executor(fluid.CPUPlace())


pytestmark = pytest.mark.usefixtures("new_scope")


def linear(size=2, optimizer=None):
    """A program with an fc, run up in the current scope; the loss."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(fluid.data("x", [None, 4]), size)))
        if optimizer is not None:
            optimizer().minimize(loss)
    exe.run(startup)
    return main, loss


def values(main):
    return {var.name: value(var.name) for var in main.list_vars() if var.persistable}


# Training that goes on


CLIPPED = {
    "Adam": lambda: fluid.optimizer.Adam(0.1),
    "AutoClip": lambda: fluid.optimizer.Momentum(0.1, 0.9, grad_clip=fluid.clip.AutoClip(percentile=50)),
    "telemetry": lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1, telemetry=True)),
}
SAVES = {
    "separate": (
        lambda main, path: fluid.io.save_persistables(exe, path, main),
        lambda main, path: fluid.io.load_persistables(exe, path, main),
    ),
    "combined": (
        lambda main, path: fluid.io.save_persistables(exe, path, main, "all"),
        lambda main, path: fluid.io.load_persistables(exe, path, main, "all"),
    ),
    "fluid": (lambda main, path: fluid.save(main, path / "net"), lambda main, path: fluid.load(main, path / "net")),
    "safetensors": (
        lambda main, path: fluid.save(main, path / "net.safetensors"),
        lambda main, path: fluid.load(main, path / "net.safetensors"),
    ),
}


@pytest.mark.parametrize("how", SAVES)
@pytest.mark.parametrize("optimizer", CLIPPED)
def test_interrupted_training_gives_the_bits_of_uninterrupted_training(optimizer, how, tmp_path):
    save, load = SAVES[how]
    main, _ = linear(optimizer=CLIPPED[optimizer])
    batches = [{"x": np.random.default_rng(i).normal(size=(3, 4)).astype("float32")} for i in range(6)]
    for batch in batches[:3]:
        exe.run(main, feed=batch)
    save(main, tmp_path)
    for batch in batches[3:]:
        exe.run(main, feed=batch)
    expected = values(main)
    with fluid.scope_guard(fluid.Scope()):
        linear(optimizer=CLIPPED[optimizer])
        load(main, tmp_path)
        for batch in batches[3:]:
            exe.run(main, feed=batch)
        assert_same(values(main), expected)


def test_a_compiled_program_is_saved_and_loaded_as_its_program(tmp_path):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        prediction = fluid.layers.fc(fluid.data("x", [None, 3]), 2)
    exe.run(startup)
    compiled = fluid.CompiledProgram(main).with_data_parallel()
    for name, each in (("plain", main), ("compiled", compiled)):
        fluid.io.save_params(exe, tmp_path / name, main_program=each)
        fluid.io.save_inference_model(tmp_path / name / "model", ["x"], [prediction], exe, main_program=each)
    files = ("fc_0.w_0", "fc_0.b_0", "model/__model__")
    assert all(
        (tmp_path / "plain" / file).read_bytes() == (tmp_path / "compiled" / file).read_bytes() for file in files
    )
    fluid.io.load_persistables(exe, tmp_path / "plain", main_program=compiled)
    assert fluid.global_scope().find_var("fc_0.w_0").get_tensor()._get_dims() == [3, 2]
    assert fluid.global_scope().find_var("fc_0.w_0").get_tensor()._dtype() is fluid.core.VarDesc.VarType.FP32


def test_a_loaded_value_is_not_shared_with_what_was_read(tmp_path):
    main, _ = linear()
    state = {name: array.copy() for name, array in values(main).items()}
    fluid.set_program_state(main, state)
    state["fc_0.w_0"][:] = 0
    assert value("fc_0.w_0").any()


# What does not fit


def test_a_shape_that_does_not_fit_changes_nothing(tmp_path):
    narrow, _ = linear(size=2)
    fluid.io.save_params(exe, tmp_path, narrow)
    fluid.save(narrow, tmp_path / "net")
    with fluid.scope_guard(fluid.Scope()):
        wide, _ = linear(size=3)
        before = values(wide)
        for load in (
            lambda: fluid.io.load_params(exe, tmp_path, wide),
            lambda: fluid.load(wide, tmp_path / "net"),
            lambda: fluid.set_program_state(wide, fluid.load_program_state(tmp_path / "net")),
        ):
            with pytest.raises(MismatchError) as caught:
                load()
            assert caught.value.details == (
                "fc_0.w_0 is declared float32[4, 3], the file has float32[4, 2]",
                "fc_0.b_0 is declared float32[3], the file has float32[2]",
            )
            assert isinstance(caught.value, RuntimeError)
            assert_same(values(wide), before)


def test_another_element_type_does_not_fit():
    main, _ = linear()
    with pytest.raises(MismatchError, match="does not fit"):
        fluid.set_program_state(main, {"fc_0.b_0": np.zeros(2, "float64")})


def test_missing_files_are_listed_all_at_once(tmp_path):
    main, _ = linear()
    with pytest.raises(MissingFileError) as caught:
        fluid.io.load_params(exe, tmp_path, main)
    assert len(caught.value.details) == 2
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, RuntimeError)  # which fluid raises
    for load in (
        lambda: fluid.load(main, tmp_path / "net"),
        lambda: fluid.load_program_state(tmp_path / "net"),
        lambda: fluid.load_dygraph(tmp_path / "net"),
        lambda: fluid.io.load_inference_model(tmp_path, exe),
        lambda: fluid.io.load_params(exe, tmp_path, main, "net"),
        lambda: fluid.load(tmp_path / "net"),
    ):
        with pytest.raises(MissingFileError, match="there is no file"):
            load()


def test_a_file_without_a_variable_of_the_program_is_an_error(tmp_path):
    main, _ = linear()
    fluid.save(main, tmp_path / "net")
    adam, _ = linear(optimizer=CLIPPED["Adam"])
    with pytest.raises(NotFoundError) as caught:
        fluid.load(adam, tmp_path / "net")
    assert "fc_0.w_0_moment1_0" in caught.value.details


def test_the_state_of_an_optimizer_must_be_there_if_the_program_has_one(tmp_path):
    adam, _ = linear(optimizer=CLIPPED["Adam"])
    fluid.save(adam, tmp_path / "net")
    os.unlink(tmp_path / "net.pdopt")
    with pytest.raises(MissingFileError, match=r"net\.pdopt"):
        fluid.load(adam, tmp_path / "net")


def test_what_belongs_to_no_variable_is_warned_about():
    main, _ = linear()
    with pytest.warns(UserWarning, match="no variable for other"):
        fluid.set_program_state(main, {**values(main), "other": np.zeros(1)})


def test_variables_without_a_value_are_listed_all_at_once(tmp_path):
    main, _ = linear()
    with fluid.scope_guard(fluid.Scope()), pytest.raises(ProgramError) as caught:
        fluid.save(main, tmp_path / "net")
    assert caught.value.details == ("fc_0.w_0", "fc_0.b_0")
    assert not list(tmp_path.iterdir())


def test_misuse_is_named(tmp_path):
    main, loss = linear()
    with pytest.raises(ProgramError, match="neither vars nor predicate"):
        fluid.io.save_vars(exe, tmp_path, main)
    with pytest.raises(ProgramError, match="must end in the name of a file"):
        fluid.save(main, f"{tmp_path}/")
    with pytest.raises(WrongTypeError, match="an Executor is needed"):
        fluid.io.load_params(None, tmp_path, main)
    with pytest.raises(WrongTypeError, match="a Program is needed"):
        fluid.io.save_params(exe, tmp_path, "main")
    with pytest.raises(ProgramError, match="tensors without names"):
        fluid.io.save_params(exe, tmp_path, main, "all")
        fluid.load_program_state(tmp_path / "all")
    with pytest.raises(ProgramError, match="export_for_deployment"):
        fluid.io.save_inference_model(tmp_path, ["x"], [loss], exe, main, export_for_deployment=False)
    with pytest.warns(UserWarning, match="no variable to save"):
        assert fluid.io.save_vars(exe, tmp_path, main, predicate=lambda var: False) is None


def test_a_folder_may_lack_variables_which_a_warning_names(tmp_path):
    main, _ = linear()
    expected = values(main)
    fluid.io.save_params(exe, tmp_path, main)
    adam, _ = linear(optimizer=CLIPPED["Adam"])
    exe.run(adam, feed={"x": np.ones((1, 4), "float32")})
    with pytest.warns(UserWarning, match="fc_0.w_0_moment1_0"):
        fluid.load(adam, tmp_path, exe)
    assert_same({name: value(name) for name in expected}, expected)
    assert value("fc_0.w_0_moment1_0").any()


def test_a_combined_file_is_read_with_the_list_of_its_variables(tmp_path):
    main, _ = linear()
    expected = values(main)
    fluid.io.save_params(exe, tmp_path, main, "all")
    assert_same(fluid.load_program_state(tmp_path / "all", main.all_parameters()), expected)
    exe.run(main, feed={"x": np.ones((1, 4), "float32")})
    fluid.load(main, tmp_path / "all", exe, main.all_parameters())
    assert_same(values(main), expected)


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path):
    main = fluid.Program()
    var = main.global_block().create_var(name="../outside", shape=[1], persistable=True)
    fluid.global_scope().var(var.name).get_tensor().set(np.ones(1, "float32"))
    with pytest.raises(DataError, match="cannot be a file in"):
        fluid.io.save_vars(exe, tmp_path / "in", main, vars=[var])
    assert not (tmp_path / "outside").exists()
    fluid.io.save_vars(exe, tmp_path / "in", main, vars=[var], filename="all")


def test_a_name_with_a_slash_is_a_file_in_a_folder(tmp_path):
    main = fluid.Program()
    var = main.global_block().create_var(name="scope/w", shape=[1], dtype="float32", persistable=True)
    fluid.global_scope().var(var.name).get_tensor().set(np.ones(1, "float32"))
    fluid.io.save_persistables(exe, tmp_path, main)
    assert (tmp_path / "scope" / "w").is_file()
    assert list(fluid.load_program_state(tmp_path)) == ["scope/w"]


def test_more_or_fewer_tensors_than_variables_are_an_error(tmp_path):
    main, _ = linear()
    fluid.io.save_persistables(exe, tmp_path, main, "all")
    weight = main.global_block().var("fc_0.w_0")
    with pytest.raises(DataError, match="more than 1 tensors"):
        fluid.io.load_vars(exe, tmp_path, main, vars=[weight], filename="all")
    fluid.io.save_vars(exe, tmp_path, main, vars=[weight], filename="one")
    with pytest.raises(DataError, match="holds 1 tensors, not 2"):
        fluid.io.load_persistables(exe, tmp_path, main, "one")


# Models


def test_a_model_keeps_only_what_its_targets_need(tmp_path):
    main, _ = linear(optimizer=CLIPPED["Adam"])
    hidden = main.global_block().var("fc_0.tmp_1")
    names = fluid.io.save_inference_model(tmp_path, "x", hidden, exe, main)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "__minigraph_mark__",
        "__model__",
        "fc_0.b_0",
        "fc_0.w_0",
    ]
    expected = exe.run(main.clone(for_test=True), {"x": np.ones((1, 4), "float32")}, [hidden])
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(tmp_path, exe)
        assert [var.name for var in fetches] == names
        found = exe.run(program, {feeds[0]: np.ones((1, 4), "float32")}, fetches)
        # Saved once more, from what was loaded.
        fluid.io.save_inference_model(tmp_path / "again", feeds, fetches, exe, program)
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(tmp_path / "again", exe)
        again = exe.run(program, {feeds[0]: np.ones((1, 4), "float32")}, fetches)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again, expected)


def test_a_model_may_be_fed_in_the_middle(tmp_path):
    main, loss = linear()
    fluid.io.save_inference_model(tmp_path, ["fc_0.tmp_1"], [loss], exe, main)
    program, feeds, fetches = fluid.io.load_inference_model(tmp_path, exe)
    assert [op.type for op in program.global_block().ops] == ["square", "mean", "scale"]
    assert exe.run(program, {feeds[0]: np.full((1, 2), 3, "float32")}, fetches) == [[9.0]]


def test_a_target_that_needs_more_than_is_fed_is_an_error(tmp_path):
    main, loss = linear()
    with pytest.raises(ProgramError) as caught:
        fluid.io.save_inference_model(tmp_path, [], [loss], exe, main)
    assert caught.value.details == ("x",)
    with pytest.raises(NotFoundError, match="no variable 'z' to feed"):
        fluid.io.save_inference_model(tmp_path, ["z"], [loss], exe, main)


def test_the_program_alone_is_saved_when_asked(tmp_path):
    main, loss = linear()
    fluid.io.save_inference_model(tmp_path, ["x"], [loss], exe, main, program_only=True)
    assert [path.name for path in tmp_path.iterdir()] == ["__model__"]


@pytest.mark.laws
@given(any_programs())
def test_any_program_comes_back_from_its_description(program):
    try:
        data = fluid.io.serialize_program(program)
    except (DataError, ProgramError) as error:
        is_call = any(op.type == "py_func" for block in program.blocks for op in block.ops)
        assert "does not fit 64 bits" in str(error) or is_call
        return
    again = fluid.io.deserialize_program(data)
    for block, twin in zip(program.blocks, again.blocks, strict=True):
        assert (block.parent_idx, block.forward_block_idx) == (twin.parent_idx, twin.forward_block_idx)
        assert list(map(held, block.vars.values())) == list(map(held, twin.vars.values()))
        kept = [op for op in block.ops if op.type not in (FEED, FETCH)]
        assert list(map(held_of_operator, kept)) == list(map(held_of_operator, twin.ops))


@pytest.mark.laws
@settings(max_examples=30)
@given(trained_programs())
def test_a_program_that_trains_comes_back_from_its_description(program):
    again = fluid.io.deserialize_program(fluid.io.serialize_program(program))
    for block, twin in zip(program.blocks, again.blocks, strict=True):
        assert (block.parent_idx, block.forward_block_idx) == (twin.parent_idx, twin.forward_block_idx)
        assert {name: held(var) for name, var in block.vars.items()} == {n: held(v) for n, v in twin.vars.items()}
        assert list(map(held_of_operator, block.ops)) == list(map(held_of_operator, twin.ops))


def held(var):
    """What a description holds of a variable."""
    return var.name, var.tensor_type, var.kind, var.persistable, var.need_check_feed


def held_of_operator(op):
    """What a description holds of an operator; a slot of gradients that are not wanted is as if left out."""
    optional = {slot.name for slot in op.definition.outputs if slot.dispensable}
    outputs = {slot: names for slot, names in op.outputs.items() if set(names) - {EMPTY} or slot not in optional}
    return op.type, op.inputs, outputs, op.attrs, op.attr("op_role"), op.role_vars, op.namescope


def test_a_number_that_needs_64_bits_has_them():
    main = fluid.Program()
    with fluid.program_guard(main):
        fluid.layers.uniform_random([2**40], seed=2**40)
    again = fluid.io.deserialize_program(fluid.io.serialize_program(main))
    assert again.global_block().ops[0].attrs == main.global_block().ops[0].attrs
    with pytest.raises(OpError, match="uniform_random: attribute seed must be int, got 9223372036854775808"):
        main.global_block().ops[0].set_attr("seed", 2**63)


def test_a_variable_named_like_the_feeds_is_refused(tmp_path):
    main = fluid.Program()
    with fluid.program_guard(main):
        y = fluid.layers.relu(fluid.data("feed", [None, 2]))
    with pytest.raises(ProgramError, match="a variable 'feed'"):
        fluid.io.save_inference_model(tmp_path, ["feed"], [y], exe, main)


def test_programs_come_back_from_their_descriptions():
    main, _ = linear(optimizer=CLIPPED["Adam"])
    again = fluid.io.deserialize_program(fluid.io.serialize_program(main))
    assert fluid.io.serialize_program(again) == fluid.io.serialize_program(main)
    for op, twin in zip(main.global_block().ops, again.global_block().ops, strict=True):
        assert (op.type, op.inputs, op.attrs) == (twin.type, twin.inputs, twin.attrs)
        assert {slot: names for slot, names in op.outputs.items() if set(names) != {"@EMPTY@"}} == twin.outputs


# State dictionaries


def test_layer_and_optimizer_come_back_in_the_imperative_mode(tmp_path):
    with fluid.dygraph.guard(), fluid.unique_name.guard():
        layer = fluid.dygraph.Linear(3, 2)
        adam = fluid.optimizer.Adam(0.1, parameter_list=layer.parameters())
        for _ in range(2):
            fluid.layers.mean(layer(fluid.dygraph.to_variable(np.ones((1, 3), "float32")))).backward()
            adam.minimize(fluid.layers.mean(layer.weight))
        fluid.save_dygraph(layer.state_dict(), tmp_path / "net")
        fluid.dygraph.save_dygraph(adam.state_dict(), tmp_path / "net")
        params, state = fluid.load_dygraph(tmp_path / "net")
        assert_same(params, {name: tensor.numpy() for name, tensor in layer.state_dict().items()})
        assert_same(state, {name: tensor.numpy() for name, tensor in adam.state_dict().items()})
        adam.set_state_dict(state)


@pytest.mark.parametrize("name", ["net.pdparams", "net.safetensors"])
def test_paddle_2_saves_and_loads_dictionaries(name, tmp_path):
    layer = fluid.nn.Linear(3, 2)
    fluid.save(layer.state_dict(), tmp_path / name)
    found = fluid.load(tmp_path / name)
    assert set(found) == {"weight", "bias"}
    assert isinstance(found["weight"], fluid.Tensor)
    twin = fluid.nn.Linear(3, 2)
    twin.set_state_dict(found)
    np.testing.assert_array_equal(twin.weight.numpy(), layer.weight.numpy())
    assert isinstance(fluid.load(tmp_path / name, return_numpy=True)["weight"], np.ndarray)


def test_paddle_2_saves_what_a_training_loop_keeps(tmp_path):
    kept = {"epoch": 3, "best": 0.25, "names": ["a", "b"], "history": (np.arange(3), None)}
    fluid.save(kept, tmp_path / "loop")
    found = fluid.load(tmp_path / "loop", return_numpy=True)
    np.testing.assert_array_equal(found.pop("history")[0], kept.pop("history")[0])
    assert found == kept
    with pytest.raises(ProgramError, match="protocol"):
        fluid.save(kept, tmp_path / "loop", protocol=9)


def test_nothing_is_no_state(tmp_path):
    with pytest.raises(ProgramError, match="nothing to save"):
        fluid.save_dygraph({}, tmp_path / "net")


def test_what_is_neither_array_nor_plain_is_not_saved(tmp_path):
    with pytest.raises(WrongTypeError, match=r"\['layer'\]\[0\] is a object"):
        fluid.save({"layer": [object()]}, tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_writer_left_behind_is_no_variable(tmp_path):
    main, _ = linear()
    fluid.io.save_params(exe, tmp_path, main)
    (tmp_path / ".fc_0.w_0.x1.minigraph-tmp").write_bytes(b"half a t")
    assert set(fluid.load_program_state(tmp_path)) == {"fc_0.w_0", "fc_0.b_0"}
