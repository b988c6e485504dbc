"""Decoders in the imperative mode, their gradients, and the tokens that they draw."""

import numpy as np
import pytest
from golden_decoding import Network
from lengths import run_both

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError, ProgramError, WrongTypeError


class Cell(layers.RNNCell):
    """A state that follows its input."""

    def call(self, inputs, states):
        return states + inputs, states * 0.5 + inputs


EMBEDDING = np.random.RandomState(0).standard_normal((5, 5)).astype("float32")
START = np.random.RandomState(1).standard_normal((3, 5)).astype("float32")


def decoded(make, **options):
    """Run `make`, from a table of embeddings to a decoder, in a program and at once; both results as arrays."""

    def run(table, start):
        decoder = make(lambda ids: layers.gather_nd(table, layers.unsqueeze(ids, [len(ids.shape)])))
        outputs, _, lengths = layers.dynamic_decode(decoder, start, return_length=True, **options)
        return [*outputs] if isinstance(outputs, tuple) else [outputs], lengths

    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        outputs, lengths = run(fluid.data("table", [5, 5]), fluid.data("start", [None, 5]))
        found = fluid.Executor().run(main, {"table": EMBEDDING, "start": START}, [*outputs, lengths])
    with fluid.dygraph.guard():
        outputs, lengths = run(fluid.dygraph.to_variable(EMBEDDING), fluid.dygraph.to_variable(START))
        return found, [each.numpy() for each in (*outputs, lengths)]


def greedy(embed):
    start = layers.fill_constant([3], "int64", 0)
    return layers.BasicDecoder(Cell(), layers.GreedyEmbeddingHelper(embed, start, 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [lambda embed: layers.BeamSearchDecoder(Cell(), 0, 1, 3, embed), greedy], ids=["beams", "greedy"]
)
def test_both_modes_decode_the_same(make):
    for options in ({}, {"impute_finished": True}, {"output_time_major": True}):
        in_program, at_once = decoded(make, max_step_num=6, **options)
        for expected, found in zip(in_program, at_once, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
def test_tokens_are_drawn_from_the_scores():
    def make(embed, temperature=None):
        start = layers.fill_constant([3], "int64", 0)
        return layers.BasicDecoder(Cell(), layers.SampleEmbeddingHelper(embed, start, 1, temperature, seed=3))

    (_, drawn, lengths), _ = decoded(make, max_step_num=5)
    assert drawn.shape[0] == 3 and set(drawn.ravel()) <= set(range(5)) and lengths.max() <= 6
    # A small temperature leaves only the best.
    cold, _ = decoded(lambda embed: make(embed, 1e-4), max_step_num=5)
    best, _ = decoded(greedy, max_step_num=5)
    assert np.array_equal(cold[1], best[1])


@pytest.mark.slow
def test_a_gradient_flows_through_all_steps():
    def loss_of(encoded):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            network, x = Network(layers), fluid.data("x", encoded.shape)
            x.stop_gradient = False
            words = layers.assign(np.array([[2, 3, 1], [4, 5, 6]], "int64"))
            helper = layers.TrainingHelper(network.embed(words), layers.assign(np.array([3, 2], "int64")))
            decoder = layers.BasicDecoder(network.cell, helper, network.score)
            outputs, _ = layers.dynamic_decode(decoder, layers.reduce_mean(x, dim=1), encoded=x)
            loss = layers.reduce_mean(layers.square(outputs.cell_outputs))
            (gradient,) = fluid.gradients(loss, x)
        executor = fluid.Executor()
        with fluid.scope_guard(fluid.Scope()):
            executor.run(startup)
            return executor.run(main, {"x": encoded}, [loss, gradient])

    encoded = np.random.RandomState(2).standard_normal((2, 4, 6)).astype("float32")
    _, gradient = loss_of(encoded)
    direction, step = np.random.RandomState(3).standard_normal(encoded.shape).astype("float32"), 1e-2
    (after,), (before,) = (loss_of(encoded + sign * step * direction)[0] for sign in (1, -1))
    assert (after - before) / (2 * step) == pytest.approx((gradient * direction).sum(), rel=1e-3)


def test_what_cannot_be_decoded_is_refused():
    with pytest.raises(WrongTypeError, match="decoder must be a Decoder, got GRUCell"):
        layers.dynamic_decode(layers.GRUCell(3))
    with pytest.raises(WrongTypeError, match="beam_size must be a positive int, got 0"):
        layers.BeamSearchDecoder(Cell(), 0, 1, 0)
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.zeros((1, 2, 5), "float32"))
        helper = layers.TrainingHelper(x, fluid.dygraph.to_variable(np.array([0])))
        with pytest.raises(ProgramError, match="all sequences have ended before the first step"):
            layers.dynamic_decode(layers.BasicDecoder(Cell(), helper), x[:, 0])
        ids = fluid.dygraph.to_variable(np.zeros((2, 1, 2), "int64"))
        with pytest.raises(ExecutionError, match=r"Parents must be in \[0, 2\)"):
            layers.gather_tree(ids, ids + 2)


def rows(array, *lengths):
    return fluid.create_lod_tensor(np.array(array), list(lengths), fluid.CPUPlace())


def test_a_source_whose_beams_had_all_ended_has_none_any_more(new_program):
    last, total = fluid.data("last", [None, 1], "int64", 2), fluid.data("total", [None, 1], lod_level=2)
    scores = fluid.data("scores", [None, 3], lod_level=2)
    fetched = layers.beam_search(last, total, None, scores, 2, 0, return_parent_idx=True)
    lengths = [2, 1], [1, 1, 1]
    feed = {"last": rows([[0], [0], [0]], *lengths), "total": rows(np.ones((3, 1), "float32"), *lengths)}
    feed["scores"] = rows(np.ones((3, 3), "float32"), *lengths)
    ids, sums, parents = run_both(*fetched, feed=feed)
    assert (ids.shape(), sums.shape(), parents.shape()) == ([0, 1], [0, 1], [0])
    assert ids.lod() == sums.lod() == [[0, 2, 3], [0, 0, 0, 0]]


def test_a_search_over_tensors_without_sequences_is_refused(new_program):
    ids, scores = fluid.data("ids", [None, 1], "int64"), fluid.data("scores", [None, 1])
    with pytest.raises(WrongTypeError, match="ids and scores must be arrays"):
        layers.beam_search_decode(ids, scores, 2, 0)
    with pytest.raises(OpError, match="beam_size must be positive, got 0"):
        layers.beam_search(ids, scores, None, scores, 0, 1)
    best, _ = layers.beam_search(ids, scores, None, scores, 2, 1)
    feed = {"ids": np.zeros((2, 1), "int64"), "scores": np.zeros((2, 1), "float32")}
    with pytest.raises(ExecutionError, match="beam_search: scores = scores has no sequences"):
        fluid.Executor().run(feed=feed, fetch_list=[best])


def test_of_equal_candidates_the_first_are_kept(new_program):
    last, total = fluid.data("last", [None, 1], "int64", 2), fluid.data("total", [None, 1], lod_level=2)
    scores = fluid.data("scores", [None, 3], lod_level=2)
    ids, _ = layers.beam_search(last, total, None, scores, 2, 9)
    lengths = [1], [1]
    feed = {"last": rows([[1]], *lengths), "total": rows(np.ones((1, 1), "float32"), *lengths)}
    (found,) = run_both(ids, feed={**feed, "scores": rows(np.full((1, 3), 0.5, "float32"), *lengths)})
    assert np.array(found).ravel().tolist() == [0, 1]
