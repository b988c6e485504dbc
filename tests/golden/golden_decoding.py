"""Calls of layers that decode, score and align sequences, recorded as those of `golden_layers` are.

``python golden_decoding.py`` with Paddle 1.8.5 writes the recording beside it.
"""

from pathlib import Path

import golden_layers
import numpy as np
from golden_layers import Draw, Rows, constant, waves

FOLDER = Path(__file__).parent / "decoding"
CASES = {}


def case(name, function, gradients=True, **specs):
    golden_layers.case(name, function, gradients, CASES, **specs)


def fluid_of(layers):
    """The package whose layers these are."""
    return __import__(layers.__name__.rpartition(".")[0], fromlist=["layers"])


# Beam search

for _dtype in ("int32", "int64"):
    for _shape in ("4,2,3", "1,2,3", "5,1,1", "6,3,2"):
        case(
            "gather_tree_{}_{}".format(_dtype, _shape.replace(",", "")),
            lambda L, ids, parents: L.gather_tree(ids, parents),
            ids="i0:9 " + _shape + " " + _dtype,
            parents="i0:" + _shape[-1] + " " + _shape + " " + _dtype,
        )


class Network:
    """A decoder that attends to what was encoded: a cell, an embedding and scores of words."""

    WORDS, SIZE = 7, 6

    def __init__(self, layers):
        self.layers, self.fluid = layers, fluid_of(layers)
        network = self

        class Attention(layers.RNNCell):
            def __init__(self):
                self.cell = layers.GRUCell(network.SIZE, network.attr("cell"), network.attr("bias"))

            def call(self, inputs, states, encoded=None):
                L = network.layers
                weights = L.softmax(L.matmul(L.unsqueeze(states, [1]), encoded, transpose_y=True))
                context = L.squeeze(L.matmul(weights, encoded), [1])
                return self.cell(L.concat([inputs, context], 1), states)

        self.cell = Attention()

    def attr(self, name):
        return self.fluid.ParamAttr(name=name, initializer=waves(self.layers))

    def embed(self, ids):
        return self.fluid.embedding(ids, [self.WORDS, 4], param_attr=self.attr("embedding"))

    def score(self, x):
        dims = len(x.shape) - 1
        return self.layers.fc(x, self.WORDS, num_flatten_dims=dims, param_attr=self.attr("scores"), bias_attr=False)


def beam_search(layers, encoded, beam_size, **options):
    network = Network(layers)
    decoder = layers.BeamSearchDecoder(network.cell, 0, 1, beam_size, network.embed, network.score)
    tiled = layers.BeamSearchDecoder.tile_beam_merge_with_batch(encoded, beam_size)
    ids, states, lengths = layers.dynamic_decode(
        decoder, layers.reduce_mean(encoded, dim=1), return_length=True, encoded=tiled, **options
    )
    return ids, states.cell_states, states.log_probs, states.finished, states.lengths, lengths


for _i, _options in enumerate(
    [
        {"beam_size": 3, "max_step_num": 6},
        {"beam_size": 3, "max_step_num": 6, "is_test": True},
        {"beam_size": 4, "max_step_num": 9, "output_time_major": True},
        {"beam_size": 1, "max_step_num": 4},
        {"beam_size": 2, "max_step_num": 5, "impute_finished": True},
    ]
):
    for _batch in (1, 3):
        case(
            f"beam_search_decoder_{_i}_{_batch}",
            lambda L, x, _o=_options: beam_search(L, x, **_o),
            gradients=False,
            x=f"f {_batch},5,6",
        )


def teacher_forced(layers, encoded, words, lengths, time_major=False, **options):
    network = Network(layers)
    inputs = network.embed(words)
    if time_major:
        inputs = layers.transpose(inputs, [1, 0, 2])
    helper = layers.TrainingHelper(inputs, lengths, time_major)
    decoder = layers.BasicDecoder(network.cell, helper, network.score)
    outputs, state, sizes = layers.dynamic_decode(
        decoder, layers.reduce_mean(encoded, dim=1), return_length=True, encoded=encoded, **options
    )
    return outputs.cell_outputs, outputs.sample_ids, state, sizes


for _i, _options in enumerate(
    [
        {},
        {"impute_finished": True},
        {"time_major": True, "output_time_major": True},
        {"max_step_num": 1},
        {"is_test": True},
    ]
):
    case(
        f"training_helper_{_i}",
        lambda L, x, words, lengths, _o=_options: teacher_forced(L, x, words, lengths, **_o),
        gradients=not _options.get("is_test", False),
        x="f 3,5,6",
        words="i2:7 3,4",
        lengths=np.array([4, 2, 3]),
    )


def greedy(layers, encoded, **options):
    network = Network(layers)
    start = layers.fill_constant_batch_size_like(encoded, [-1], "int64", 0)
    decoder = layers.BasicDecoder(network.cell, layers.GreedyEmbeddingHelper(network.embed, start, 1), network.score)
    outputs, state = layers.dynamic_decode(decoder, layers.reduce_mean(encoded, dim=1), encoded=encoded, **options)
    return outputs.cell_outputs, outputs.sample_ids, state


for _i, _options in enumerate([{"max_step_num": 5}, {"max_step_num": 0}, {"max_step_num": 3, "is_test": True}]):
    case(f"greedy_helper_{_i}", lambda L, x, _o=_options: greedy(L, x, **_o), gradients=False, x="f 3,5,6")


# Conditional random fields


def chain(layers, x, tags, lengths=None, initial=waves):
    weights = fluid_of(layers).ParamAttr(name="crf", initializer=initial(layers))
    cost = layers.linear_chain_crf(x, tags, weights, lengths)
    found = layers.crf_decoding(x, weights, None, lengths), layers.crf_decoding(x, weights, tags, lengths)
    return (cost,) + found


def rows(name, spec, *lengths):
    return Rows(
        Draw(name)("{} {}".format(spec.split()[0], ",".join([str(sum(lengths[-1]))] + spec.split()[1:]))), *lengths
    )


for _i, (_shape, _lengths) in enumerate(
    [((3, 5, 4), [3, 0, 5]), ((2, 6, 3), [[6], [2]]), ((1, 1, 1), [1]), ((4, 3, 5), [3, 3, 1, 2])]
):
    _given = np.array(_lengths)
    _size = ",".join(map(str, _shape))
    _tags = f"i0:{_shape[2]} {_shape[0]},{_shape[1]}" + (",1" if _i % 2 else "")
    case(f"linear_chain_crf_{_i}", chain, x="f " + _size, tags=_tags, lengths=_given)
    _each = [int(length) for length in _given.ravel()]
    case(
        f"linear_chain_crf_rows_{_i}",
        chain,
        x=rows(f"crf_{_i}", f"f {_shape[2]}", _each),
        tags=rows(f"crf_tags_{_i}", f"i0:{_shape[2]} 1", _each),
    )

case(
    "linear_chain_crf_double",
    lambda L, x, tags, lengths: chain(L, x, tags, lengths, lambda layers: constant(layers, 0.3)),
    x="f 3,5,4 float64",
    tags="i0:4 3,5",
    lengths=np.array([3, 5, 1]),
)


# Connectionist temporal classification


def classes(layers, x, labels, steps=None, counts=None, **options):
    if steps is None:
        return layers.warpctc(x, labels, **options)
    # The batch is in the middle.
    x = layers.transpose(x, [1, 0, 2])
    return layers.warpctc(x, labels, input_length=steps, label_length=counts, **options)


_LABELS = np.array([[1, 2, 1], [3, 3, 0], [2, 1, 1], [1, 1, 1]], "int32")
for _i, (_steps, _counts, _options) in enumerate(
    [
        ([6, 4, 5, 6], [3, 2, 1, 0], {}),
        ([6, 4, 5, 2], [3, 2, 1, 3], {}),
        ([6, 6, 6, 5], [3, 1, 2, 3], {"norm_by_times": True}),
        ([6, 4, 5, 6], [3, 2, 1, 2], {"blank": 4}),
        ([6, 5, 3, 0], [2, 2, 1, 1], {}),
    ]
):
    case(
        f"warpctc_{_i}",
        lambda L, x, labels, steps, counts, _o=_options: classes(L, x, labels, steps, counts, **_o),
        x="f 4,6,5",
        labels=_LABELS,
        steps=np.array(_steps),
        counts=np.array(_counts),
    )
    if 0 not in _steps and 0 not in _counts:
        _rows = np.concatenate([_LABELS[i, :count] for i, count in enumerate(_counts)])[:, None]
        case(
            f"warpctc_rows_{_i}",
            lambda L, x, labels, _o=_options: classes(L, x, labels, **_o),
            x=rows(f"warpctc_{_i}", "f 5", _steps),
            labels=Rows(_rows, _counts),
        )
for _i, (_lengths, _options) in enumerate(
    [
        ([[6], [3], [0]], {"blank": 0, "padding_value": 7}),
        ([[6], [5], [1]], {"blank": 2}),
        ([[2], [2], [2]], {"blank": 1}),
    ]
):
    case(
        f"ctc_greedy_decoder_{_i}",
        lambda L, x, lengths, _o=_options: L.ctc_greedy_decoder(x, input_length=lengths, **_o),
        gradients=False,
        x="f 3,6,3",
        lengths=np.array(_lengths),
    )
    case(
        f"ctc_greedy_decoder_rows_{_i}",
        lambda L, x, _b=_options["blank"]: L.ctc_greedy_decoder(x, _b),
        gradients=False,
        x=rows(f"ctc_{_i}", "f 3", [6, 3, 1]),
    )
case(
    "ctc_greedy_decoder_nothing",
    lambda L, x: L.ctc_greedy_decoder(x, 0),
    gradients=False,
    x=Rows(np.array([[1, 0, 0]] * 3, "float32"), [2, 1]),
)


# Scores of sequences

for _scheme, _count in (("IOB", 2), ("IOE", 2), ("IOBES", 4), ("plain", 1)):
    for _i, _excluded in enumerate([None, [1], [0, 2]]):
        _draw = Draw(f"chunks_{_scheme}_{_i}")
        _right = _draw(f"i0:{3 * _count + 1} 3,9,1")
        _found = np.where(_draw("b 3,9,1"), _right, _draw(f"i0:{3 * _count + 1} 3,9,1"))
        case(
            f"chunk_eval_{_scheme}_{_i}",
            lambda L, x, right, lengths, _s=_scheme, _e=_excluded: L.chunk_eval(x, right, _s, 3, _e, lengths),
            gradients=False,
            x=_found if _i else _found[:, :, 0],
            right=_right if _i else _right[:, :, 0],
            lengths=np.array([9, 4, 0] if _i else [9, 8, 5]),
        )
        case(
            f"chunk_eval_rows_{_scheme}_{_i}",
            lambda L, x, right, _s=_scheme, _e=_excluded: L.chunk_eval(x, right, _s, 3, _e),
            gradients=False,
            x=Rows(_found.reshape(-1, 1), [12, 1, 14]),
            right=Rows(_right.reshape(-1, 1), [12, 1, 14]),
        )
case(
    "chunk_eval_nothing",
    lambda L, x, lengths: L.chunk_eval(x, x, "IOB", 2, None, lengths),
    gradients=False,
    x=np.full((2, 3), 4),
    lengths=np.array([3, 2]),
)
for _i, (_m, _n, _lengths, _others) in enumerate(
    [(5, 4, [5, 0, 3], [4, 2, 1]), (1, 1, [1, 1, 0], [1, 1, 1]), (7, 9, [7, 6, 5], [9, 1, 5])]
):
    for _normalized in (True, False):
        case(
            f"edit_distance_{_i}_{_normalized}",
            lambda L, x, right, steps, counts, _f=_normalized: L.edit_distance(x, right, _f, None, steps, counts),
            gradients=False,
            x=f"i0:3 3,{_m}",
            right=f"i0:3 3,{_n}",
            steps=np.array(_lengths),
            counts=np.array(_others),
        )
        if 0 not in _lengths:
            case(
                f"edit_distance_rows_{_i}_{_normalized}",
                lambda L, x, right, _f=_normalized: L.edit_distance(x, right, _f),
                gradients=False,
                x=rows(f"hyps_{_i}", "i0:3 1", _lengths),
                right=rows(f"refs_{_i}", "i0:3 1", _others),
            )


# Beam search over tensors of sequences


def beams(name, spec, *lengths):
    return Rows(Draw(name)(spec), *lengths)


for _i, (_ends, _lengths, _options) in enumerate(
    [
        ([1, 2, 3, 4], ([2, 2], [1, 1, 1, 1]), {}),
        ([1, 0, 3, 4], ([2, 2], [1, 1, 1, 1]), {"beam_size": 3}),
        ([1, 0, 0, 0], ([2, 2], [1, 1, 1, 1]), {}),
        ([1, 2, 3, 4], ([1, 3], [1, 0, 2, 1]), {"is_accumulated": False}),
        ([1, 2, 0, 4], ([1, 2, 1], [1, 1, 1, 1]), {"beam_size": 1}),
    ]
):
    for _has_ids in (True, False):
        case(
            f"beam_search_{_i}_{_has_ids}",
            lambda L, before, total, ids, scores, _o=_options, _h=_has_ids: L.beam_search(
                before,
                total,
                ids if _h else None,
                scores,
                **dict({"beam_size": 2, "end_id": 0}, **_o),
                return_parent_idx=True,
            ),
            gradients=False,
            before=Rows(np.array(_ends)[:, None], *_lengths),
            total=beams(f"totals_{_i}", "p 4,1", *_lengths),
            ids=beams(f"ids_{_i}", "i0:9 4,3", *_lengths),
            scores=beams(f"scores_{_i}", "p 4,3", *_lengths),
        )


def found(layers, beam_size, **steps):
    count = len(steps) // 2
    arrays = [layers.create_array("int64"), layers.create_array("float32")]
    for step in range(count):
        index = layers.fill_constant([1], "int64", step)
        for array, kind in zip(arrays, ("ids", "scores")):
            layers.array_write(steps[f"{kind}{step}"], index, array)
    return layers.beam_search_decode(arrays[0], arrays[1], beam_size, 0)


_STEPS = [
    ([2, 3], ([1, 1], [1, 1])),
    ([4, 5, 6, 0], ([1, 1], [2, 2])),
    ([1, 7, 8, 0], ([2, 2], [0, 2, 1, 1])),
    ([3, 0, 5, 0], ([2, 2], [1, 1, 1, 1])),
    ([0, 0], ([2, 2], [1, 1, 0, 0])),
]
for _count in (1, 2, 3, 4, 5):
    _given = {}
    for _step, (_ids, _lengths) in enumerate(_STEPS[:_count]):
        _given[f"ids{_step}"] = Rows(np.array(_ids)[:, None], *_lengths)
        _given[f"scores{_step}"] = beams(f"found_{_step}", f"p {len(_ids)},1", *_lengths)
    case(
        f"beam_search_decode_{_count}",
        lambda L, _b=1 if _count == 1 else 2, **steps: found(L, _b, **steps),
        gradients=False,
        **_given,
    )


def translated(layers, state, first, total, beam_size=2, steps=5):
    """The decoder of the book on translation: arrays of tensors of sequences, and a loop."""
    L, fluid = layers, fluid_of(layers)

    def attr(name):
        return fluid.ParamAttr(name=name, initializer=waves(L))

    counter, last = L.zeros([1], "int64", force_cpu=True), L.fill_constant([1], "int64", steps)
    states, ids, scores = (L.array_write(x, counter) for x in (state, first, total))
    condition = L.less_than(counter, last)
    with L.While(condition).block():
        before, state, total = (L.array_read(array, counter) for array in (ids, states, scores))
        state = L.sequence_expand(state, total)
        word = L.embedding(before, [7, 6], param_attr=attr("embedding"))
        state = L.fc([state, word], 6, act="tanh", param_attr=[attr("of_state"), attr("of_word")], bias_attr=False)
        probability = L.fc(L.lod_reset(state, total), 7, act="softmax", param_attr=attr("of_scores"), bias_attr=False)
        best, indices = L.topk(probability, 4)
        sums = L.elementwise_add(L.log(best), L.reshape(total, [-1]), axis=0)
        tokens, total = L.beam_search(before, total, indices, sums, beam_size, 0, level=0)
        L.increment(counter, 1)
        for x, array in ((state, states), (tokens, ids), (total, scores)):
            L.array_write(x, counter, array)
        goes_on = L.logical_not(L.is_empty(tokens))
        L.logical_and(L.less_than(counter, last), goes_on, out=condition)
    return L.beam_search_decode(ids, scores, beam_size, 0)


for _beams in (1, 2, 3):
    case(
        f"book_translation_{_beams}",
        lambda L, state, first, total, _b=_beams: translated(L, state, first, total, _b),
        gradients=False,
        state="f 3,6",
        first=Rows(np.array([[1], [2], [3]]), [1, 1, 1], [1, 1, 1]),
        total=Rows(np.zeros((3, 1), "float32"), [1, 1, 1], [1, 1, 1]),
    )


# Networks of several layers


def basic(layers, x, hidden=None, cell=None, lengths=None, **options):
    kind = options.pop("kind")
    made = __import__(layers.__name__.rpartition(".")[0] + ".contrib.layers", fromlist=["basic_lstm"])
    attr = fluid_of(layers).ParamAttr(initializer=waves(layers))
    states = (hidden,) if kind == "gru" else (hidden, cell)
    run = made.basic_gru if kind == "gru" else made.basic_lstm
    return run(x, *states, hidden_size=3, sequence_length=lengths, param_attr=attr, bias_attr=attr, **options)


def basic_of(kind, options):
    return lambda L, x, **given: basic(L, x, kind=kind, **dict(options, **given))


def with_states(kind):
    def function(L, x, hidden, cell):
        first = [L.transpose(each, [1, 0, 2]) for each in (hidden, cell)]
        return basic(L, x, *first, kind=kind, num_layers=2, bidirectional=True)

    return function


for _kind in ("gru", "lstm"):
    case(f"basic_{_kind}_states", with_states(_kind), x="f 2,3,4", hidden="f 2,4,3", cell="f 2,4,3")
    for _i, (_options, _given, _size) in enumerate(
        [
            ({}, {}, "3,5,4"),
            ({"num_layers": 2}, {"lengths": np.array([5, 2, 3])}, "3,5,4"),
            ({"bidirectional": True, "num_layers": 2}, {"lengths": np.array([4, 1])}, "2,4,3"),
            ({"bidirectional": True}, {}, "1,1,1"),
            ({"batch_first": False, "num_layers": 2}, {}, "5,2,3"),
        ]
    ):
        case(f"basic_{_kind}_{_i}", basic_of(_kind, _options), x="f " + _size, **_given)


if __name__ == "__main__":
    golden_layers.record(FOLDER, CASES)
