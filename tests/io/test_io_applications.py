"""Programs on sequences that Paddle 1.8.5 saved: they run, train and are written again to the same bytes."""

import golden_sequence_applications as golden
import numpy as np
import pytest

import minigraph as fluid
from minigraph.io.framework_proto import ProgramDesc, VarTypeType
from minigraph.io.wire import decode

pytestmark = pytest.mark.usefixtures("new_scope")

KNOWN = dict(np.load(golden.MODELS / "known.npz"))
exe = fluid.Executor()


@pytest.fixture(params=golden.SAVED)
def name(request):
    return request.param


@pytest.fixture
def folder(name):
    return golden.MODELS / name


def feeds_of(name):
    return golden.NETWORKS[name](fluid, golden.Texts(fluid, name))[2]


@pytest.fixture
def feeds(name, new_program):
    return feeds_of(name)


@pytest.mark.slow
def test_a_model_gives_what_it_gave_and_is_written_again_to_the_same_bytes(name, folder, feeds, tmp_path):
    program, fed, targets = fluid.io.load_inference_model(folder, exe, "model", "params")
    found = golden.results(fluid, exe, program, feeds, targets, fed)
    expected = {key[len(name) + 1 :]: value for key, value in KNOWN.items() if key.startswith(f"{name}/")}
    expected.pop("losses")
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6, err_msg=key)
    fluid.io.save_inference_model(tmp_path, fed, targets, exe, program, "model", "params")
    for file in ("model", "params"):
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


@pytest.mark.slow
def test_a_training_program_goes_on_and_is_written_again_to_the_same_bytes(name, folder, feeds, tmp_path):
    data = (folder / "training").read_bytes()
    program = fluid.Program.parse_from_string(data)
    fluid.verify(program)
    fluid.io.load_persistables(exe, folder, program, "persistables")
    fluid.io.save_persistables(exe, tmp_path, program, "persistables")
    assert (tmp_path / "persistables").read_bytes() == (folder / "persistables").read_bytes()
    loss = next(op.input("X")[0] for op in program.global_block().ops if op.type == "mean_grad")
    loss = next(
        op.output("Out")[0] for op in program.global_block().ops if op.type == "mean" and op.input("X") == [loss]
    )
    np.testing.assert_allclose(
        golden.losses(fluid, exe, program, feeds, loss), KNOWN[f"{name}/losses"], rtol=1e-5, atol=1e-6
    )
    assert program.serialize_to_string() == program.clone().serialize_to_string() == data


@pytest.mark.slow
def test_a_program_that_was_changed_is_described_anew(folder, name):
    data = (folder / "training").read_bytes()
    program = fluid.Program.parse_from_string(data)
    program.global_block().append_op(
        "scale",
        {"X": program.global_block().ops[-1].output_arg_names[0]},
        {"Out": program.global_block().create_var(name="more")},
    )
    again = fluid.Program.parse_from_string(program.serialize_to_string())
    assert [op.type for op in again.global_block().ops] == [op.type for op in program.global_block().ops]
    assert again.global_block().ops[-1].type == "scale"


@pytest.mark.slow
def test_rank_tables_and_gradients_that_begin_in_a_loop_are_described_as_the_original_does():
    name = "translation_by_rnn"
    ours = decode(ProgramDesc, golden.built(fluid, name)[0].serialize_to_string())
    theirs = decode(ProgramDesc, (golden.MODELS / name / "training").read_bytes())
    tables, loops = [], []
    for description in (ours, theirs):
        variables = [var for block in description.blocks for var in block.vars]
        tables.append([var.name for var in variables if var.type.type == VarTypeType.LOD_RANK_TABLE])
        (loop,) = (op for op in description.blocks[0].ops if op.type == "while_grad")
        (outer,) = (slot.arguments for slot in loop.inputs if slot.parameter == "Out@GRAD")
        (inner,) = (attr.strings for attr in loop.attrs if attr.name == "original_output_grad")
        loops.append(set(zip(outer, inner, strict=True)))
    assert tables[0] == tables[1] == ["lod_rank_table_0"]
    assert loops[0] == loops[1] and len(loops[0]) == 2
