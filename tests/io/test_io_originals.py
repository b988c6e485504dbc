"""Files that Paddle 1.8.5 made: read here, run here, and written here to the same bytes.

`golden/io/README.md` tells how they were made.
"""

from pathlib import Path

import numpy as np
import pytest

import minigraph as fluid
from minigraph.io import pickles
from minigraph.io.framework_proto import ProgramDesc
from minigraph.io.marks import FOLDER_MARK
from minigraph.io.wire import decode, encode
from minigraph.opdef import HINT_ATTRS, definition_of

GOLDEN = Path(__file__).parents[1] / "golden" / "io"
KNOWN = dict(np.load(GOLDEN / "known.npz"))
BATCHES = [{"x": KNOWN[f"x{i}"], "y": KNOWN[f"y{i}"]} for i in range(4)]
DESCRIPTIONS = [
    "mlp/inference/__model__",
    "mlp/net.pdmodel",
    "conv/model",
    "words/net.pdmodel",
    "lengths/model",
    "boxes/__model__",
]

exe = fluid.Executor(fluid.CPUPlace())


pytestmark = pytest.mark.usefixtures("new_scope")


def build(make):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        return main, startup, make()


def mlp():
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    out = fluid.layers.fc(fluid.layers.fc(x, 3, act="relu"), 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    clip = fluid.clip.GradientClipByGlobalNorm(0.5)
    fluid.optimizer.Momentum(0.1, 0.9, grad_clip=clip).minimize(loss)
    return out, loss


def conv():
    image, weight = fluid.data("image", [None, 1, 6, 6]), fluid.data("weight", [None, 3])
    h = fluid.layers.conv2d(image, 2, 3, act="relu")
    h = fluid.layers.pool2d(fluid.layers.batch_norm(h), 2, "avg", 2)
    p = fluid.layers.softmax(fluid.layers.fc(fluid.layers.dropout(h, 0.5), 3))
    return p, fluid.layers.reduce_sum(p * weight, dim=1)


def files_below(folder):
    """What files hold; the original writes no marks."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != FOLDER_MARK)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


# Parameters


LOADS = {
    "separate files": lambda main: fluid.io.load_persistables(exe, GOLDEN / "mlp" / "separate", main),
    "one file": lambda main: fluid.io.load_persistables(exe, GOLDEN / "mlp", main, "persistables"),
    "bytes": lambda main: fluid.io.load_persistables(
        exe, None, main, (GOLDEN / "mlp" / "persistables").read_bytes()
    ),
    "fluid.load": lambda main: fluid.load(main, str(GOLDEN / "mlp" / "net")),
    "fluid.load of a suffix": lambda main: fluid.load(main, str(GOLDEN / "mlp" / "net.pdparams"), exe),
    "fluid.load of a folder": lambda main: fluid.load(main, GOLDEN / "mlp" / "separate", exe),
    "set_program_state": lambda main: fluid.set_program_state(
        main, fluid.load_program_state(str(GOLDEN / "mlp" / "net"))
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", LOADS)
def test_training_goes_on_from_the_files_of_the_original(how):
    main, _, (_, loss) = build(mlp)
    LOADS[how](main)
    losses = [exe.run(main, feed=batch, fetch_list=[loss])[0][0] for batch in BATCHES[2:]]
    np.testing.assert_allclose(losses, KNOWN["losses"], rtol=1e-6)


def test_variables_are_written_to_the_bytes_of_the_original(tmp_path):
    main, _, _ = build(mlp)
    fluid.load(main, GOLDEN / "mlp" / "net")
    fluid.io.save_persistables(exe, tmp_path / "separate", main)
    fluid.io.save_persistables(exe, tmp_path, main, filename="persistables")
    fluid.io.save_params(exe, tmp_path, main, filename="params")
    written = files_below(tmp_path)
    recorded = files_below(GOLDEN / "mlp")
    assert len(written) == 11
    assert written == {name: recorded[name] for name in written}
    assert fluid.io.save_persistables(exe, None, main) == recorded["persistables"]


def test_pickles_are_written_to_the_bytes_of_the_original(tmp_path):
    main, _, _ = build(mlp)
    fluid.load(main, GOLDEN / "mlp" / "net")
    fluid.save(main, tmp_path / "net")
    for name in ("net.pdparams", "net.pdopt"):
        assert (tmp_path / name).read_bytes() == (GOLDEN / "mlp" / name).read_bytes()


def test_every_element_type_of_the_original_is_read_and_written(tmp_path):
    main = fluid.Program()
    names = ["int8", "int32", "int64", "float32", "float64"]
    for name in names:
        main.global_block().create_var(name=f"of_{name}", shape=[2, 3], dtype=name, persistable=True)
    fluid.io.load_persistables(exe, GOLDEN / "dtypes", main)
    for name in names:
        value = np.array(fluid.global_scope().find_var(f"of_{name}").get_tensor())
        assert value.dtype == name
        assert value.tolist() == [[0, 1, 2], [3, 4, 5]]
    fluid.io.save_persistables(exe, tmp_path, main)
    fluid.io.save_persistables(exe, tmp_path, main, "combined")
    assert files_below(tmp_path) == files_below(GOLDEN / "dtypes")


# Models


def test_a_model_of_the_original_runs_and_gives_its_numbers():
    program, feeds, fetches = fluid.io.load_inference_model(str(GOLDEN / "mlp" / "inference"), exe)
    assert feeds == ["x"]
    (out,) = exe.run(program, feed={"x": KNOWN["x0"]}, fetch_list=fetches)
    np.testing.assert_allclose(out, KNOWN["out"], rtol=1e-6)


def test_feeds_and_fetches_come_in_the_order_of_their_columns():
    program, feeds, fetches = fluid.io.load_inference_model(GOLDEN / "conv", exe, "model", "params")
    assert feeds == ["weight", "image"]
    score, p = exe.run(program, feed={name: KNOWN[name] for name in feeds}, fetch_list=fetches)
    np.testing.assert_allclose(score, KNOWN["score"], rtol=1e-6)
    np.testing.assert_allclose(p, KNOWN["p"], rtol=1e-6)


def test_a_model_is_read_from_bytes():
    files = files_below(GOLDEN / "conv")
    program, feeds, fetches = fluid.io.load_inference_model(None, exe, files["model"], files["params"])
    _, p = exe.run(program, feed={name: KNOWN[name] for name in feeds}, fetch_list=fetches)
    np.testing.assert_allclose(p, KNOWN["p"], rtol=1e-6)


def test_what_is_read_from_the_original_keeps_the_invariants():
    for name in DESCRIPTIONS[:-1]:
        fluid.verify(fluid.io.deserialize_program((GOLDEN / name).read_bytes()))


def test_a_training_program_of_the_original_runs():
    program = fluid.io.deserialize_program((GOLDEN / "mlp" / "net.pdmodel").read_bytes())
    fluid.load(build(mlp)[0], GOLDEN / "mlp" / "net")
    losses = [exe.run(program, feed=batch, fetch_list=["mean_0.tmp_0"])[0][0] for batch in BATCHES[2:]]
    np.testing.assert_allclose(losses, KNOWN["losses"], rtol=1e-6)


def test_a_training_program_with_adam_and_an_embedding_runs():
    program = fluid.io.deserialize_program((GOLDEN / "words" / "net.pdmodel").read_bytes())
    fluid.set_program_state(program, fluid.load_program_state(GOLDEN / "words" / "net"))
    feed = {name: KNOWN[name] for name in ("ids", "label")}
    losses = [exe.run(program, feed=feed, fetch_list=[str(KNOWN["word_loss"])])[0][0] for _ in range(3)]
    np.testing.assert_allclose(losses, KNOWN["word_losses"], rtol=1e-5)


def test_unknown_operators_are_listed_all_at_once():
    with pytest.raises(fluid.errors.NotFoundError) as caught:
        fluid.io.load_inference_model(GOLDEN / "boxes", exe)
    assert caught.value.details == ("iou_similarity, 1 time", "polygon_box_transform, 2 times")


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_is_written_to_the_bytes_it_was_read_from(name):
    data = (GOLDEN / name).read_bytes()
    assert encode(decode(ProgramDesc, data)) == data


def normalized(data):
    """A description without what has no meaning or no order: hash tables' order, hints, defaults that are spelled."""
    description = decode(ProgramDesc, data)
    for block in description.blocks:
        block.vars.sort(key=lambda var: var.name)
        for var in block.vars:
            var.persistable = bool(var.persistable)
            if var.type.lod_tensor is not None:
                var.type.lod_tensor.lod_level = var.type.lod_tensor.lod_level or None
        for op in block.ops:
            known = op.type in ("feed", "fetch")
            chosen = HINT_ATTRS | (set() if known else BACKEND | set(definition_of(op.type).backend_attrs))
            op.attrs = sorted((attr for attr in op.attrs if attr.name not in chosen), key=lambda attr: attr.name)
            op.inputs = [slot for slot in op.inputs if slot.arguments]
            op.outputs = [slot for slot in op.outputs if slot.arguments]
    return encode(description)


BACKEND = {
    "workspace_size_MB", "exhaustive_search", "fuse_brelu", "fuse_brelu_threshold", "fuse_activation", "fuse_alpha",
    "fuse_beta", "x_data_format", "y_data_format", "Scale_in", "Scale_out", "Scale_in_eltwise", "Scale_weights",
    "force_fp32_output",
}  # fmt: skip


def test_a_model_is_written_as_the_original_writes_it(tmp_path):
    main, _, (out, _) = build(mlp)
    fluid.load(main, GOLDEN / "mlp" / "net")
    before = str(main)
    assert fluid.io.save_inference_model(tmp_path, ["x"], [out], exe, main) == ["save_infer_model/scale_0.tmp_0"]
    assert str(main) == before
    written, recorded = files_below(tmp_path), files_below(GOLDEN / "mlp" / "inference")
    assert normalized(written.pop("__model__")) == normalized(recorded.pop("__model__"))
    assert written == recorded


def test_a_model_with_operators_for_tests_is_written_as_the_original_writes_it(tmp_path):
    main, startup, (p, score) = build(conv)
    exe.run(startup)
    fluid.io.save_inference_model(tmp_path, ["weight", "image"], [score, p], exe, main, "model", "params")
    # The original counts names on, from one saved model to the next.
    recorded = (GOLDEN / "conv" / "model").read_bytes().replace(b"scale_0.tmp_1", b"scale_0.tmp_0")
    assert normalized((tmp_path / "model").read_bytes()) == normalized(recorded)
    assert len((tmp_path / "params").read_bytes()) == len((GOLDEN / "conv" / "params").read_bytes())


def sequences():
    ids = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    rows = fluid.layers.data("w2", [4], dtype="float32", lod_level=2)
    e = fluid.layers.embedding(ids, [10, 4], param_attr=fluid.ParamAttr("e"))
    h = fluid.layers.fc(e, 3, act="tanh", param_attr=fluid.ParamAttr("w"), bias_attr=fluid.ParamAttr("b"))
    p = fluid.layers.sequence_pool(h, "max")
    r = fluid.layers.sequence_last_step(fluid.layers.sequence_pool(fluid.layers.relu(rows), "sum"))
    z = fluid.layers.sequence_first_step(fluid.layers.reshape(fluid.layers.concat([e, e], 1), [-1, 2, 4]))
    weights = [fluid.ParamAttr("p1"), fluid.ParamAttr("p2")]
    out = fluid.layers.fc([p, r], 2, act="softmax", param_attr=weights, bias_attr=fluid.ParamAttr("b2"))
    return out, z, fluid.layers.lod_reset(h, rows)


def test_a_model_of_sequences_is_written_as_the_original_writes_it(tmp_path):
    main, startup, targets = build(sequences)
    exe.run(startup)
    fluid.io.save_inference_model(tmp_path, ["words", "w2"], list(targets), exe, main, "model", "params")
    written, recorded = (
        decode(ProgramDesc, normalized((folder / "model").read_bytes())).blocks[0]
        for folder in (tmp_path, GOLDEN / "lengths")
    )
    assert written.vars == recorded.vars
    for op in (*written.ops, *recorded.ops):  # the original writes fields of embeddings for servers
        op.attrs = [attr for attr in op.attrs if attr.name in ("pooltype", "pad_value", "target_lod", "append")]
    assert written.ops == recorded.ops


def test_a_model_of_sequences_runs_and_is_saved_again(tmp_path):
    program, feeds, targets = fluid.io.load_inference_model(GOLDEN / "lengths", exe, "model", "params")
    ids = fluid.create_lod_tensor(np.arange(5).reshape(5, 1), [[3, 2]], fluid.CPUPlace())
    rows = fluid.create_lod_tensor(np.ones((5, 4), "float32"), [[1, 1], [2, 3]], fluid.CPUPlace())
    feed = dict(zip(feeds, (ids, rows), strict=True))
    _, first, regrouped = exe.run(program, feed=feed, fetch_list=targets, return_numpy=False)
    assert (first.shape(), first.lod(), regrouped.lod()) == ([2, 2, 4], [], [[0, 1, 2], [0, 2, 5]])
    fluid.io.save_inference_model(tmp_path, feeds, targets, exe, program, "model", "params")
    assert (tmp_path / "params").read_bytes() == (GOLDEN / "lengths" / "params").read_bytes()
    levels = {
        var.name: var.lod_level
        for var in fluid.io.load_inference_model(tmp_path, exe, "model", "params")[0].list_vars()
    }
    assert levels["fc_0.tmp_2"] == 1 and levels["w2"] == 2


def test_a_variable_with_sequences_is_read_and_written_again(tmp_path):
    ragged = (
        fluid.Program()
        .global_block()
        .create_var(name="ragged", shape=[-1, 2], dtype="float32", lod_level=2, persistable=True)
    )
    fluid.io.load_vars(exe, GOLDEN / "lengths", ragged.block.program, vars=[ragged])
    tensor = fluid.global_scope().find_var("ragged").get_tensor()
    assert (tensor.recursive_sequence_lengths(), tensor.shape()) == ([[2, 1], [1, 2, 3]], [6, 2])
    fluid.io.save_vars(exe, tmp_path, ragged.block.program, vars=[ragged])
    assert (tmp_path / "ragged").read_bytes() == (GOLDEN / "lengths" / "ragged").read_bytes()


def test_a_training_program_is_described_by_the_same_operators(tmp_path):
    main, _, _ = build(mlp)
    described = decode(ProgramDesc, normalized(fluid.io.serialize_program(main))).blocks[0]
    recorded = decode(ProgramDesc, normalized((GOLDEN / "mlp" / "net.pdmodel").read_bytes())).blocks[0]
    assert described.vars == recorded.vars
    # The original serves op_role_var of its clips wrongly, and leaves fields out of what it starts a gradient with.
    fields = {"op_role_var", "op_namescope", "str_value"}
    for block in (described, recorded):
        for op in block.ops:
            op.attrs = [attr for attr in op.attrs if attr.name not in fields]
    assert described.ops == recorded.ops


# The imperative mode


def test_a_layer_goes_on_from_the_state_of_the_original():
    params, optimizer = fluid.load_dygraph(str(GOLDEN / "dygraph" / "net"))
    assert list(params) == ["weight", "bias"]
    with fluid.dygraph.guard():
        layer = fluid.dygraph.Linear(3, 2)
        layer.set_dict(params)
        out = layer(fluid.dygraph.to_variable(KNOWN["x0"][:, :3])).numpy()
    np.testing.assert_allclose(out, KNOWN["dygraph_out"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(optimizer["linear_0.w_0_beta1_pow_acc_0"], [0.9**2], rtol=1e-6)


def test_the_name_table_is_kept_when_asked():
    params, _ = fluid.load_dygraph(GOLDEN / "dygraph" / "net.pdparams", keep_name_table=True)
    assert params["StructuredToParameterName@@"] == {"weight": "linear_0.w_0", "bias": "linear_0.b_0"}


def test_a_state_dictionary_is_written_to_the_bytes_of_the_original():
    recorded = (GOLDEN / "dygraph" / "net.pdparams").read_bytes()
    assert pickles.dump(pickles.load(recorded, "the file")) == recorded
