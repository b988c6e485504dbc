"""Sequences of different lengths as padded ones: the same results and gradients, in plan and interpreter."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ProgramError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify
from minigraph.passes import EXACT, PadSequences

pytestmark = pytest.mark.usefixtures("new_program")

KINDS = ("sum", "average", "sqrt", "max", "first", "last")


def _window(rng):
    """Size, stride and start of a window of `sequence_conv`."""
    size = int(rng.integers(1, 5))
    return size, 1, True, int(rng.integers(-size, size)) if rng.random() < 0.5 else None


def _recurrent(rng, like, *states):
    """Options of recurrent networks, the states before the first step among them."""
    given = {name: layers.sequence_pool(like, "last") for name in states} if rng.random() < 0.5 else {}
    gate = str(rng.choice(["sigmoid", "relu"]))
    return {**given, "is_reverse": bool(rng.integers(2)), "gate_activation": gate}


def _lstm(rng, x, like):
    """Hidden and cell states."""
    activations = {name: str(rng.choice(["tanh", "identity"])) for name in ("cell_activation", "candidate_activation")}
    options = {**_recurrent(rng, like, "h_0", "c_0"), **activations, "use_peepholes": bool(rng.integers(2))}
    return list(layers.dynamic_lstm(layers.fc(x, 24), 24, **options))


def _gru_options(rng):
    return {"candidate_activation": str(rng.choice(["tanh", "relu"])), "origin_mode": bool(rng.integers(2))}


def drawn(rng):
    """A random program on words and vectors of sequences; its results without sequences, and its weights."""
    ids, x = layers.data("ids", [1], dtype="int64", lod_level=1), layers.data("x", [6], lod_level=1)
    values = {"ids": [layers.embedding(ids, [20, 6])], "x": [x]}
    results = []
    for _ in range(rng.integers(3, 9)):
        pool = values[rng.choice(list(values))]
        a, b = (pool[rng.integers(len(pool))] for _ in range(2))
        steps = [
            lambda a, b: layers.fc(a, 6, act=str(rng.choice(["tanh", "relu", "sigmoid"]))),
            lambda a, b: a + b * 0.5,
            lambda a, b: layers.elementwise_max(a, b),
            lambda a, b: layers.softmax(a),
            lambda a, b: layers.fc(layers.concat([a, b], 1), 6),
            lambda a, b: layers.layer_norm(a),
            lambda a, b: layers.reshape(layers.scale(layers.reshape(a, [-1, 2, 3]), 2.0), [-1, 6]),
            lambda a, b: layers.elementwise_mul(a, layers.sequence_softmax(layers.fc(b, 1)), axis=0),
            lambda a, b: layers.sequence_conv(a, 6, *_window(rng)),
            lambda a, b: layers.row_conv(a, int(rng.integers(0, 4))),
            lambda a, b: layers.sequence_reverse(a),
            lambda a, b: b * layers.sequence_expand(layers.sequence_pool(a, "average"), b),
            lambda a, b: layers.sequence_expand_as(layers.sequence_pool(a, "max"), b),
            lambda a, b: layers.fc(layers.concat(_lstm(rng, a, b), 1), 6),
            lambda a, b: layers.dynamic_gru(layers.fc(a, 18), 6, **_recurrent(rng, b, "h_0"), **_gru_options(rng)),
        ]
        pool.append(steps[rng.integers(len(steps))](a, b))
        kind = str(rng.choice(KINDS))
        results.append(layers.sequence_pool(pool[-1], kind, pad_value=float(rng.choice([0.0, 0.5]))))
    loss = layers.mean(layers.square(layers.fc(layers.sums(results) if len(results) > 1 else results[0], 2)))
    return results, loss


def differentiated(main, padded, loss, results):
    """Append gradients of the loss to both programs; returns the names of loss, results and gradients."""
    for program in (main, padded):
        with fluid.program_guard(program, fluid.default_startup_program()):
            fluid.backward.append_backward(program.global_block().var(loss.name))
        verify(program)
    grads = [name for param in main.all_parameters() if main.global_block().has_var(name := f"{param.name}@GRAD")]
    return [loss.name, *(var.name for var in results), *grads]


def padded_feed(feed, longest):
    found = {}
    for name, tensor in feed.items():
        rows, (lengths,) = np.array(tensor), tensor.recursive_sequence_lengths()
        array = np.zeros((len(lengths), longest, *rows.shape[1:]), rows.dtype)
        for sequence, (begin, length) in enumerate(zip(tensor.lod()[0], lengths, strict=False)):
            array[sequence, :length] = rows[begin : begin + length]
        found |= {name: array, f"{name}.lengths": np.array(lengths)}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_give_the_same_results_and_gradients(seed):
    rng = np.random.default_rng(seed)
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    main.random_seed = startup.random_seed = 5
    results, loss = drawn(rng)
    padded = PadSequences()(main)
    left = {op.type for op in padded.global_block().ops} - {"sequence_mask"}
    assert not any(type.startswith(("sequence", "lstm", "gru")) and type != "gru_unit" for type in left)
    names = differentiated(main, padded, loss, results)
    exe = fluid.Executor()
    exe.run(startup)
    feed = {}
    for name, rows in (("ids", lambda n: rng.integers(0, 20, (n, 1))), ("x", lambda n: rng.uniform(-1, 1, (n, 6)))):
        lengths, dtype = rng.integers(0, 5, 4).tolist(), main.global_block().var(name).dtype.numpy
        feed[name] = fluid.create_lod_tensor(rows(sum(lengths)).astype(dtype), [lengths], fluid.CPUPlace())
    ragged = exe.run(main, feed, names)
    exact, stepwise = (each.run(main, feed, names) for each in (fluid.Executor(passes=EXACT, jit=False), Interpreter()))
    assert [a.tobytes() for a in exact] == [b.tobytes() for b in stepwise]
    for name, a, b in zip(names, ragged, exe.run(padded, padded_feed(feed, 6), names), strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-5, err_msg=name)


def tagging(rng):
    """A random network that tags words, by a random field, a cross entropy or both; its results of all sequences."""
    word, tag = (
        layers.data("word", [1], dtype="int64", lod_level=1),
        layers.data("tag", [1], dtype="int64", lod_level=1),
    )
    hidden = layers.embedding(word, [20, 6])
    if rng.random() < 0.5:
        hidden = layers.sequence_conv(hidden, 6, 3, act="tanh")
    if rng.random() < 0.5:
        hidden = hidden * layers.reduce_mean(hidden, dim=-1, keep_dim=True)
    scores, chain = layers.fc(hidden, 5), fluid.ParamAttr(name="chain")
    cost = layers.linear_chain_crf(scores, tag, param_attr=chain)
    path = layers.crf_decoding(scores, chain)
    right = layers.mean(layers.cast(layers.crf_decoding(scores, chain, label=tag), "float32"))
    counts = layers.chunk_eval(path, tag, "IOB", 2)
    entropy = layers.cross_entropy(layers.softmax(scores), tag)
    terms = [
        layers.mean(cost),
        layers.mean(entropy),
        layers.reduce_mean(entropy) * 0.5,
        layers.reduce_sum(scores) * 0.1,
    ]
    kept = [term for term in terms if rng.random() < 0.6] or terms
    return [right, cost, *terms, *counts], layers.sums(kept) if len(kept) > 1 else kept[0]


@pytest.mark.parametrize("seed", range(12))
def test_tagging_gives_the_same_results_and_gradients(seed):
    rng = np.random.default_rng(seed)
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    main.random_seed = startup.random_seed = 5
    results, loss = tagging(rng)
    padded = PadSequences(alike=(("word", "tag"),))(main)
    names = differentiated(main, padded, loss, results)
    exe = fluid.Executor()
    exe.run(startup)
    lengths = rng.integers(1, 6, 4).tolist()
    feed = {
        name: fluid.create_lod_tensor(rng.integers(0, most, (sum(lengths), 1)), [lengths], fluid.CPUPlace())
        for name, most in (("word", 20), ("tag", 5))
    }
    steps = {name: array for name, array in padded_feed(feed, 7).items() if name != "tag.lengths"}
    for name, a, b in zip(names, Interpreter().run(main, feed, names), exe.run(padded, steps, names), strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("alike", "match"),
    [
        ((("x", "z"),), "alike names 'z', which is not fed with sequences"),
        ((("x", "y"), ("y",)), "alike names 'y' 2 times"),
    ],
)
def test_groups_of_other_variables_are_refused(alike, match):
    layers.elementwise_add(layers.data("x", [3], lod_level=1), layers.data("y", [3], lod_level=1))
    program = fluid.default_main_program()
    before = str(program)
    with pytest.raises(ProgramError, match=match):
        PadSequences(alike).apply(program)
    assert str(program) == before


def test_what_mixes_rows_is_refused():
    x = layers.data("x", [3], lod_level=1)
    layers.cumsum(x, axis=0)
    with pytest.raises(ProgramError, match="PadSequences: cumsum has no padded form: it may mix rows"):
        PadSequences()(fluid.default_main_program())


def test_sums_over_rows_alone_are_refused():
    layers.reduce_sum(layers.data("x", [3], lod_level=1), dim=0)
    with pytest.raises(ProgramError, match="reduce_sum has no padded form: it reduces some dimensions"):
        PadSequences()(fluid.default_main_program())


def test_rows_of_different_sequences_are_not_joined():
    layers.elementwise_add(layers.data("x", [3], lod_level=1), layers.data("y", [3], lod_level=1))
    with pytest.raises(ProgramError, match=r"x and y have sequences of different variables[^$]*alike="):
        PadSequences()(fluid.default_main_program())


def test_what_has_no_padded_form_is_refused():
    x = layers.data("x", [6], lod_level=1)
    layers.sequence_expand(x, x)
    with pytest.raises(ProgramError, match="sequence_expand has no padded form"):
        PadSequences()(fluid.default_main_program())


def test_the_sequences_of_another_variable_are_not_reversed():
    x, y = layers.data("x", [6]), layers.data("y", [6], lod_level=1)
    fluid.layer_helper.LayerHelper("reverse").emit("sequence_reverse", X=x, Like=y)
    with pytest.raises(ProgramError, match="X has no sequences of its own"):
        PadSequences()(fluid.default_main_program())


def test_several_levels_are_refused_and_none_change_nothing():
    x = layers.data("x", [3])
    layers.relu(x)
    program = fluid.default_main_program()
    assert str(PadSequences()(program)) == str(program)
    layers.data("y", [3], lod_level=2)
    with pytest.raises(ProgramError, match="y has sequences of 2 levels"):
        PadSequences()(program)
