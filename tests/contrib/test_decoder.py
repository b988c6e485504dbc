"""Decoders of fluid.contrib: the cell is written once, trained in one decoder and searched with in the other."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from minigraph.errors import ProgramError

WORDS, SIZE = 7, 4


def cell(text, **inputs):
    state_cell = StateCell({"x": None, **inputs}, {"h": InitState(text, need_reorder=True)}, "h")

    @state_cell.state_updater
    def updater(cell):
        each = [cell.get_state("h"), *(cell.get_input(name) for name in ("x", *inputs))]
        cell.set_state("h", fluid.layers.fc(each, SIZE, act="tanh"))

    return state_cell


def fill(program):
    for number, param in enumerate(sorted(program.all_parameters(), key=lambda param: param.name)):
        values = np.sin(np.arange(np.prod(param.shape)) + 3 * number).reshape(param.shape)
        fluid.global_scope().find_var(param.name).get_tensor().set(values.astype("float32"), fluid.CPUPlace())


def levels(rows, count=2):
    return fluid.create_lod_tensor(rows, [[1] * len(rows)] * count, fluid.CPUPlace())


def test_a_search_finds_what_the_original_found():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        text, topic = (fluid.data(name, [None, SIZE]) for name in ("text", "topic"))
        ids, scores = fluid.data("ids", [None, 1], "int64", 2), fluid.data("scores", [None, 1], "float32", 2)
        decoder = BeamSearchDecoder(
            cell(text, topic=None), ids, scores, WORDS, 3, {"topic": topic}, WORDS, max_len=5, beam_size=2
        )
        decoder.decode()
        found = decoder()
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor()
        exe.run(startup)
        fill(main)
        feed = {
            "text": np.cos(np.arange(8)).reshape(2, 4).astype("float32"),
            "topic": np.cos(np.arange(8) * 2).reshape(2, 4).astype("float32"),
            "ids": levels(np.array([[0], [0]])),
            "scores": levels(np.zeros((2, 1), "float32")),
        }
        tokens, totals = exe.run(main, feed, list(found), return_numpy=False)
    assert tokens.lod() == totals.lod() == [[0, 2, 4], [0, 6, 12, 18, 24]]
    first, second = [0, 6, 0, 6, 6, 6, 0, 6, 6, 6, 6, 6], [0, 3, 4, 0, 3, 4, 0, 3, 4, 0, 3, 3]
    assert np.array(tokens).ravel().tolist() == first + second  # recorded from 1.8.5
    last = np.array(totals).ravel()[5::6]
    np.testing.assert_allclose(last, [-4.2044, -4.2096, -5.4336, -5.6233], atol=1e-4)


def test_training_is_that_of_a_dynamic_network_by_hand():
    def decoder(text, words):
        state_cell = cell(text)
        decoder = TrainingDecoder(state_cell)
        with decoder.block():
            decoder.state_cell.compute_state(inputs={"x": decoder.step_input(words)})
            decoder.state_cell.update_states()
            decoder.output(decoder.state_cell.out_state())
        return decoder()

    def by_hand(text, words):
        network = fluid.layers.DynamicRNN()
        with network.block():
            word = network.step_input(words)
            before = network.memory(init=text, need_reorder=True)
            after = fluid.layers.fc([before, word], SIZE, act="tanh")
            network.update_memory(before, after)
            network.output(after)
        return network()

    programs = []
    for network in (decoder, by_hand):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            text, words = fluid.data("text", [None, SIZE]), fluid.data("words", [None, 3], lod_level=1)
            fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(network(text, words)))
            programs.append(str(fluid.default_main_program()))
    assert programs[0] == programs[1]


def test_a_step_may_be_written_by_hand_and_may_end_the_search():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        ids = fluid.data("ids", [None, 1], "int64", 2)
        decoder = BeamSearchDecoder(cell(fluid.data("text", [None, SIZE])), ids, ids, WORDS, 3)
        with decoder.block():
            before = decoder.read_array(ids, is_ids=True)
            decoder.update_array(before, before + before)
            decoder.early_stop()
        read = fluid.layers.array_read(decoder._ids_array, fluid.layers.fill_constant([1], "int64", 0))
    (found,) = fluid.Executor().run(main, {"ids": levels(np.array([[3]]))}, [read], return_numpy=False)
    assert np.array(found).tolist() == [[3]]


def test_an_initial_state_may_be_a_constant():
    with fluid.program_guard(fluid.Program()):
        assert InitState(shape=[-1, 3], init_boot=fluid.data("x", [None, 2])).value.shape == (-1, 3)


def test_misuse_says_what_to_do():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        text = fluid.data("text", [None, SIZE])
        with pytest.raises(ProgramError, match="init, or init_boot"):
            InitState()
        with pytest.raises(ProgramError, match="out_state must be one of"):
            StateCell({}, {"h": InitState(text)}, "c")
        with pytest.raises(ProgramError, match="must be an InitState"):
            StateCell({}, {"h": text}, "h")
        state_cell = cell(text)
        decoder = TrainingDecoder(state_cell)
        with pytest.raises(ProgramError, match="StateCell for each decoder"):
            TrainingDecoder(state_cell)
        with pytest.raises(ProgramError, match="belongs after the block"):
            decoder()
        with pytest.raises(ProgramError, match="belongs inside the block"):
            decoder.step_input(text)
        with pytest.raises(ProgramError, match="the input x has no value"):
            state_cell.get_input("x")
        with pytest.raises(ProgramError, match="has no input y"):
            StateCell({}, {"h": InitState(text)}, "h").compute_state({"y": text})
        with pytest.raises(ProgramError, match="no updater"):
            StateCell({}, {"h": InitState(text)}, "h").compute_state({})
