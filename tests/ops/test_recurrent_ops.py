"""One step of recurrent cells against the formulas, in float64, and the layers around them."""

import numpy as np
import pytest
from one_op import append, run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import NotFoundError, OpError, ProgramError

RNG = np.random.default_rng(5)
ACTIVATIONS = [lambda x: x, lambda x: 1 / (1 + np.exp(-x)), np.tanh, lambda x: np.maximum(x, 0)]


@pytest.mark.parametrize("origin_mode", [False, True])
@pytest.mark.parametrize("activation", range(4))
@pytest.mark.parametrize("gate_activation", range(4))
def test_a_gated_unit_is_its_formula(activation, gate_activation, origin_mode):
    x, h, b = (RNG.standard_normal(shape) for shape in ((3, 12), (3, 4), (1, 12)))
    gates, candidate = RNG.standard_normal((4, 8)), RNG.standard_normal((4, 4))
    weight = np.concatenate([gates.ravel(), candidate.ravel()]).reshape(4, 12)
    attrs = {"activation": activation, "gate_activation": gate_activation, "origin_mode": origin_mode}
    gate, kept, hidden = run("gru_unit", {"Input": x, "HiddenPrev": h, "Weight": weight, "Bias": b}, **attrs)
    u, r = np.split(ACTIVATIONS[gate_activation]((x + b)[:, :8] + h @ gates), 2, 1)
    c = ACTIVATIONS[activation]((x + b)[:, 8:] + (r * h) @ candidate)
    assert np.allclose(gate, np.concatenate([u, r, c], 1)) and np.allclose(kept, r * h)
    assert np.allclose(hidden, u * h + (1 - u) * c if origin_mode else (1 - u) * h + u * c)


def test_a_long_short_term_memory_is_its_formula():
    x, c = RNG.standard_normal((3, 8)), RNG.standard_normal((3, 2))
    i, f, o, g = np.split(x, 4, 1)
    sigmoid = ACTIVATIONS[1]
    cell, out = run("lstm_unit", {"X": x, "C_prev": c}, forget_bias=0.5)
    expected = sigmoid(f + 0.5) * c + sigmoid(i) * np.tanh(g)
    assert np.allclose(cell, expected) and np.allclose(out, sigmoid(o) * np.tanh(expected))


def test_large_inputs_do_not_overflow():
    x = np.array([[1e4, -1e4, 1e4, -1e4]], "float16")
    cell, out = run("lstm_unit", {"X": x, "C_prev": np.array([[2.0]], "float16")})
    assert cell.item() == -1 and np.isfinite(out).all() and cell.dtype == np.float16


@pytest.mark.parametrize(
    ("type", "shapes", "attrs", "message"),
    [
        ("gru_unit", [(3, 6), (3, 3), (3, 9)], {}, r"Input must be \[batch, 3 \* size\]"),
        ("gru_unit", [(3, 9), (3, 3), (3, 6)], {}, r"Weight must be \[size, 3 \* size\]"),
        ("gru_unit", [(3, 9), (2, 3), (3, 9)], {}, r"Input must be \[batch, 3 \* size\]"),
        ("gru_unit", [(3, 9), (3, 3), (3, 9), (9, 1)], {}, r"Bias must be \[1, 3 \* size\]"),
        ("gru_unit", [(9,), (3, 3), (3, 9)], {}, "all inputs must be matrices"),
        ("gru_unit", [(3, 9), (3, 3), (3, 9)], {"activation": 4}, "activation must be 0, 1, 2 or 3, got 4"),
        ("lstm_unit", [(3, 6), (3, 2)], {}, "four times as wide"),
        ("lstm_unit", [(3, 8), (2, 2)], {}, "the rows of X and C_prev must have equal shapes"),
        ("lstm_unit", [(8,), (3, 2)], {}, "must be matrices"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(type, shapes, attrs, message):
    slots = {"gru_unit": ["Input", "HiddenPrev", "Weight", "Bias"], "lstm_unit": ["X", "C_prev"]}[type]
    with pytest.raises(OpError, match=message):
        append(type, {slot: np.ones(shape, "float32") for slot, shape in zip(slots, shapes, strict=False)}, **attrs)


def test_layers_name_their_parameters_and_operators_as_the_original_does():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x, h, c = fluid.data("x", [None, 3]), fluid.data("h", [None, 4]), fluid.data("c", [None, 4])
        out, cell = layers.lstm_unit(x, h, c)
        hidden, kept, gate = layers.gru_unit(layers.fc(x, 12), h, 12, activation="relu")
    assert [op.type for op in program.global_block().ops] == [
        "concat", "mul", "elementwise_add", "lstm_unit", "mul", "elementwise_add", "gru_unit",
    ]  # fmt: skip
    assert [(p.name, p.shape) for p in program.all_parameters()] == [
        ("fc_0.w_0", (7, 16)), ("fc_0.b_0", (16,)), ("fc_1.w_0", (3, 12)), ("fc_1.b_0", (12,)),
        ("gru_unit_0.w_0", (4, 12)), ("gru_unit_0.b_0", (1, 12)),
    ]  # fmt: skip
    assert [v.name for v in (cell, out, gate, kept, hidden)] == [
        "lstm_unit_0.tmp_0", "lstm_unit_0.tmp_1", "gru_unit_0.tmp_0", "gru_unit_0.tmp_1", "gru_unit_0.tmp_2",
    ]  # fmt: skip
    assert program.global_block().ops[-1].attr("activation") == 3


def test_a_layer_that_makes_no_sense_is_refused():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, h = fluid.data("x", [None, 12]), fluid.data("h", [None, 4])
        with pytest.raises(NotFoundError, match="there is no activation 'tahn'"):
            layers.gru_unit(x, h, 12, activation="tahn")
        with pytest.raises(ProgramError, match="three times the number of units"):
            layers.gru_unit(x, h, 10)
        with pytest.raises(ProgramError, match="without a weight"):
            layers.gru_unit(x, h, 12, param_attr=False)
        with pytest.raises(ProgramError, match="one known width"):
            layers.lstm_unit(x, h, x)


@pytest.mark.slow
def test_a_memory_learns_to_repeat_the_sign_it_saw_first():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        fluid.default_startup_program().random_seed = 3
        steps = fluid.data("steps", [16, 4, 1])
        h = layers.fill_constant([16, 6], "float32", 0.0)
        c = layers.fill_constant([16, 6], "float32", 0.0)
        for i in range(4):
            h, c = layers.lstm_unit(steps[:, i], h, c, param_attr="w", bias_attr="b")
        loss = layers.mean(layers.square(layers.fc(h, 1) - steps[:, 0]))
        fluid.optimizer.Adam(0.05).minimize(loss)
        exe = fluid.Executor()
        exe.run(fluid.default_startup_program())
        data = np.where(RNG.random((16, 4, 1)) < 0.5, 1, -1).astype("float32")
        losses = [float(exe.run(feed={"steps": data}, fetch_list=[loss])[0].item()) for _ in range(60)]
    assert losses[-1] < 0.05 * losses[0]
