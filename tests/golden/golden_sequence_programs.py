"""Whole programs on sequences of different lengths, small ones of those that people wrote for fluid 1.x.

Each is trained for twenty steps, without a clip and with a clip by global norm, with Paddle 1.8.5: losses, results and
updated parameters are recorded. Running this file with Paddle, ``python golden_sequence_programs.py``, writes the
recording beside it; it is therefore written for Python 3.7, and the tests hand it minigraph instead.
"""

import sys
import zlib
from pathlib import Path

import golden_arrays
import numpy as np
from golden_scripts import begin

FOLDER = Path(__file__).parent / "sequence_programs"
NETWORKS = {}
"""Name to a function of `fluid` and of `Texts`: the loss, the variables fetched with it, and the batches to feed."""

WORDS, CLASSES, EMBEDDED, HIDDEN = (
    30,
    3,
    6,
    7,
)  # the LSTM of Paddle 1.8.5 has wrong gradients where HIDDEN is a multiple of 8
STEPS, BATCHES = 20, 3


def network(function):
    NETWORKS[function.__name__] = function
    return function


class Texts:
    """Random sequences of numbers, from a seed that a name makes; the lengths of each batch are others."""

    def __init__(self, fluid, name):
        self.fluid = fluid
        self.state = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)

    def lengths(self, count=5, longest=7):
        return self.state.randint(1, longest + 1, count).tolist()

    def numbers(self, lengths, below=WORDS):
        rows = self.state.randint(0, below, (sum(lengths), 1)).astype("int64")
        return self.fluid.create_lod_tensor(rows, [list(lengths)], self.fluid.CPUPlace())

    def labels(self, count=5, below=CLASSES):
        return self.state.randint(0, below, (count, 1)).astype("int64")


def ids(fluid, name):
    return fluid.layers.data(name=name, shape=[1], dtype="int64", lod_level=1)


def embed(fluid, words, size=WORDS, **options):
    return fluid.layers.embedding(input=words, size=[size, EMBEDDED], **options)


def classified(fluid, texts, words, predict):
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    cost = fluid.layers.cross_entropy(input=predict, label=label)
    accuracy = fluid.layers.accuracy(input=predict, label=label)
    feeds = [{"words": texts.numbers(texts.lengths()), "label": texts.labels()} for _ in range(BATCHES)]
    return fluid.layers.mean(cost), [accuracy], feeds


# Sentiment


@network
def sentiment_convolution(fluid, texts):
    words = ids(fluid, "words")
    emb = embed(fluid, words, is_sparse=True)
    conv_3 = fluid.nets.sequence_conv_pool(input=emb, num_filters=HIDDEN, filter_size=3, act="tanh", pool_type="sqrt")
    conv_4 = fluid.nets.sequence_conv_pool(input=emb, num_filters=HIDDEN, filter_size=4, act="tanh", pool_type="sqrt")
    predict = fluid.layers.fc(input=[conv_3, conv_4], size=CLASSES, act="softmax")
    return classified(fluid, texts, words, predict)


@network
def sentiment_stacked_lstm(fluid, texts):
    words = ids(fluid, "words")
    emb = embed(fluid, words, is_sparse=True)
    fc1 = fluid.layers.fc(input=emb, size=4 * HIDDEN)
    lstm1, _ = fluid.layers.dynamic_lstm(input=fc1, size=4 * HIDDEN)
    inputs = [fc1, lstm1]
    for i in range(2, 4):
        fc = fluid.layers.fc(input=inputs, size=4 * HIDDEN)
        lstm, _ = fluid.layers.dynamic_lstm(input=fc, size=4 * HIDDEN, is_reverse=(i % 2) == 0)
        inputs = [fc, lstm]
    fc_last = fluid.layers.sequence_pool(input=inputs[0], pool_type="max")
    lstm_last = fluid.layers.sequence_pool(input=inputs[1], pool_type="max")
    predict = fluid.layers.fc(input=[fc_last, lstm_last], size=CLASSES, act="softmax")
    return classified(fluid, texts, words, predict)


@network
def sentiment_dynamic_rnn(fluid, texts):
    words = ids(fluid, "words")
    sentence = fluid.layers.fc(input=embed(fluid, words), size=HIDDEN, act="tanh")
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(sentence)
        prev_hidden = rnn.memory(value=0.0, shape=[HIDDEN])
        prev_cell = rnn.memory(value=0.0, shape=[HIDDEN])

        def gate_common(ipt, hidden, size):
            gate0 = fluid.layers.fc(input=ipt, size=size, bias_attr=True)
            gate1 = fluid.layers.fc(input=hidden, size=size, bias_attr=False)
            return fluid.layers.sums(input=[gate0, gate1])

        forget_gate = fluid.layers.sigmoid(x=gate_common(word, prev_hidden, HIDDEN))
        input_gate = fluid.layers.sigmoid(x=gate_common(word, prev_hidden, HIDDEN))
        output_gate = fluid.layers.sigmoid(x=gate_common(word, prev_hidden, HIDDEN))
        cell_gate = fluid.layers.tanh(x=gate_common(word, prev_hidden, HIDDEN))
        cell = fluid.layers.sums(
            input=[
                fluid.layers.elementwise_mul(x=forget_gate, y=prev_cell),
                fluid.layers.elementwise_mul(x=input_gate, y=cell_gate),
            ]
        )
        hidden = fluid.layers.elementwise_mul(x=output_gate, y=fluid.layers.tanh(x=cell))
        rnn.update_memory(prev_cell, cell)
        rnn.update_memory(prev_hidden, hidden)
        rnn.output(hidden)
    last = fluid.layers.sequence_last_step(rnn())
    predict = fluid.layers.fc(input=last, size=CLASSES, act="softmax")
    return classified(fluid, texts, words, predict)


@network
def sentiment_bag_of_words(fluid, texts):
    words = ids(fluid, "words")
    bow = fluid.layers.tanh(fluid.layers.sequence_pool(input=embed(fluid, words), pool_type="sum"))
    fc_1 = fluid.layers.fc(input=bow, size=HIDDEN, act="tanh")
    predict = fluid.layers.fc(input=[fc_1, bow], size=CLASSES, act="softmax")
    return classified(fluid, texts, words, predict)


@network
def sentiment_bidirectional_lstm(fluid, texts):
    words = ids(fluid, "words")
    emb = embed(fluid, words)
    fc0 = fluid.layers.fc(input=emb, size=HIDDEN * 4)
    rfc0 = fluid.layers.fc(input=emb, size=HIDDEN * 4)
    lstm_h, _ = fluid.layers.dynamic_lstm(input=fc0, size=HIDDEN * 4, is_reverse=False)
    rlstm_h, _ = fluid.layers.dynamic_lstm(input=rfc0, size=HIDDEN * 4, is_reverse=True)
    lstm_last = fluid.layers.sequence_last_step(input=lstm_h)
    rlstm_last = fluid.layers.sequence_last_step(input=rlstm_h)
    concat = fluid.layers.concat(input=[fluid.layers.tanh(lstm_last), fluid.layers.tanh(rlstm_last)], axis=1)
    predict = fluid.layers.fc(input=fluid.layers.fc(input=concat, size=HIDDEN, act="tanh"), size=CLASSES, act="softmax")
    return classified(fluid, texts, words, predict)


# Recommendation


@network
def recommender(fluid, texts):
    layers = fluid.layers
    user = layers.fc(input=embed(fluid, layers.data(name="user", shape=[1], dtype="int64")), size=HIDDEN)
    user = layers.fc(input=user, size=2 * HIDDEN, act="tanh")
    category, title = ids(fluid, "category"), ids(fluid, "title")
    categories = layers.sequence_pool(input=embed(fluid, category, is_sparse=True), pool_type="sum")
    words = fluid.nets.sequence_conv_pool(
        input=embed(fluid, title), num_filters=HIDDEN, filter_size=3, act="tanh", pool_type="sum"
    )
    movie = layers.fc(input=layers.concat(input=[categories, words], axis=1), size=2 * HIDDEN, act="tanh")
    inference = layers.scale(x=layers.cos_sim(X=user, Y=movie), scale=2.0)
    score = layers.data(name="score", shape=[1], dtype="float32")
    loss = layers.mean(layers.square_error_cost(input=inference, label=score))
    feeds = [
        {
            "user": texts.labels(below=WORDS),
            "category": texts.numbers(texts.lengths(longest=3)),
            "title": texts.numbers(texts.lengths()),
            "score": texts.labels(below=3).astype("float32"),
        }
        for _ in range(BATCHES)
    ]
    return loss, [inference], feeds


@network
def gru4rec(fluid, texts):
    src, dst = ids(fluid, "src_wordseq"), ids(fluid, "dst_wordseq")
    emb = fluid.layers.embedding(
        input=src,
        size=[WORDS, HIDDEN],
        param_attr=fluid.ParamAttr(name="emb", learning_rate=2.0, initializer=fluid.initializer.Uniform(-0.1, 0.1)),
        is_sparse=True,
    )
    fc0 = fluid.layers.fc(
        input=emb, size=HIDDEN * 3, param_attr=fluid.ParamAttr(learning_rate=0.5, name="fc0.w"), bias_attr="fc0.b"
    )
    gru_h0 = fluid.layers.dynamic_gru(input=fc0, size=HIDDEN, is_reverse=False)
    fc = fluid.layers.fc(input=gru_h0, size=WORDS, act="softmax", bias_attr="out.b")
    cost = fluid.layers.cross_entropy(input=fc, label=dst)
    acc = fluid.layers.accuracy(input=fc, label=dst, k=5)
    feeds = []
    for _ in range(BATCHES):
        lengths = texts.lengths()
        feeds.append({"src_wordseq": texts.numbers(lengths), "dst_wordseq": texts.numbers(lengths)})
    return fluid.layers.mean(x=cost), [acc], feeds


@network
def ssr(fluid, texts):
    """Matches sessions with articles; one encoder adds the words, the other is a gated recurrent unit."""
    layers = fluid.layers
    query, right, wrong = ids(fluid, "query"), ids(fluid, "right"), ids(fluid, "wrong")

    def added(words):
        return layers.softsign(layers.sequence_pool(input=embed(fluid, words, param_attr="emb"), pool_type="sum"))

    fc0 = layers.fc(input=embed(fluid, query, param_attr="emb"), size=HIDDEN * 3)
    session = layers.sequence_pool(input=layers.dynamic_gru(input=fc0, size=HIDDEN), pool_type="max")
    session = layers.fc(input=session, size=HIDDEN, name="query_fc")
    first, second = (
        layers.fc(input=added(words), size=HIDDEN, param_attr="title.w", bias_attr="title.b")
        for words in (right, wrong)
    )
    near, far = layers.cos_sim(session, first), layers.cos_sim(session, second)
    margin = layers.fill_constant_batch_size_like(input=far, shape=[-1, 1], value=0.5, dtype="float32")
    above = layers.elementwise_add(layers.elementwise_sub(margin, near), far)
    zero = layers.fill_constant_batch_size_like(input=far, shape=[-1, 1], value=0.0, dtype="float32")
    loss = layers.mean(layers.elementwise_max(zero, above))
    feeds = [{name: texts.numbers(texts.lengths()) for name in ("query", "right", "wrong")} for _ in range(BATCHES)]
    return loss, [near], feeds


# Tags for each word


@network
def tagging(fluid, texts):
    word, target = ids(fluid, "word"), ids(fluid, "target")
    hidden = embed(fluid, word)
    for _ in range(2):
        both = []
        for is_reverse in (False, True):
            pre = fluid.layers.fc(input=hidden, size=HIDDEN * 3)
            both.append(fluid.layers.dynamic_gru(input=pre, size=HIDDEN, is_reverse=is_reverse))
        hidden = fluid.layers.concat(input=both, axis=1)
    predict = fluid.layers.fc(input=hidden, size=CLASSES, act="softmax")
    cost = fluid.layers.cross_entropy(input=predict, label=target)
    sums = fluid.layers.sequence_pool(cost, "average")
    feeds = []
    for _ in range(BATCHES):
        lengths = texts.lengths()
        feeds.append({"word": texts.numbers(lengths), "target": texts.numbers(lengths, CLASSES)})
    return fluid.layers.mean(sums), [predict], feeds


def roles(fluid, texts, decode):
    names = ["word", "verb", "ctx_n1", "ctx_0", "ctx_p1"]
    given = {name: ids(fluid, name) for name in names}
    mark, target = ids(fluid, "mark"), ids(fluid, "target")
    layers = fluid.layers
    embedded = [embed(fluid, given[name], param_attr="word_emb") for name in names if name != "verb"]
    embedded += [embed(fluid, given["verb"], param_attr="verb_emb"), embed(fluid, mark, 2)]
    hidden_0 = layers.sums(input=[layers.fc(input=each, size=HIDDEN, act="tanh") for each in embedded])
    options = {"candidate_activation": "relu", "gate_activation": "sigmoid", "cell_activation": "sigmoid"}
    lstm, _ = layers.dynamic_lstm(input=layers.fc(hidden_0, 4 * HIDDEN), size=4 * HIDDEN, **options)
    inputs = [layers.fc(hidden_0, 4 * HIDDEN), lstm]
    for i in range(1, 3):
        mixed = layers.sums(input=[layers.fc(input=each, size=4 * HIDDEN, act="tanh") for each in inputs])
        lstm, _ = layers.dynamic_lstm(input=mixed, size=4 * HIDDEN, is_reverse=(i % 2) == 1, **options)
        inputs = [mixed, lstm]
    feature = layers.sums(input=[layers.fc(input=each, size=CLASSES, act="tanh") for each in inputs])
    feeds = []
    for _ in range(BATCHES):
        lengths = texts.lengths()
        feed = {name: texts.numbers(lengths) for name in names}
        feeds.append(dict(feed, mark=texts.numbers(lengths, 2), target=texts.numbers(lengths, CLASSES)))
    return (*decode(layers, feature, target), feeds)


@network
def semantic_roles(fluid, texts):
    def decode(layers, feature, target):
        attr = fluid.ParamAttr(name="crfw", learning_rate=0.5)
        cost = layers.linear_chain_crf(input=feature, label=target, param_attr=attr)
        return layers.mean(cost), [layers.crf_decoding(input=feature, param_attr=fluid.ParamAttr(name="crfw"))]

    return roles(fluid, texts, decode)


@network
def semantic_roles_softmax(fluid, texts):
    def decode(layers, feature, target):
        cost, predict = layers.softmax_with_cross_entropy(feature, target, return_softmax=True)
        return layers.mean(cost), [predict]

    return roles(fluid, texts, decode)


# Translation


def encoded(fluid):
    """Both directions of a source, what attention compares with, and the first state of a decoder."""
    layers, source, directions = fluid.layers, ids(fluid, "source"), []
    for is_reverse in (False, True):
        pre = layers.fc(input=embed(fluid, source), size=HIDDEN * 3, bias_attr=False)
        directions.append(layers.dynamic_gru(input=pre, size=HIDDEN, is_reverse=is_reverse))
    both = layers.concat(input=directions, axis=1)
    projected = layers.fc(input=both, size=HIDDEN, bias_attr=False)
    start = layers.fc(input=layers.sequence_pool(directions[1], "first"), size=HIDDEN, bias_attr=False, act="tanh")
    return both, projected, start


def attending_step(fluid, word, memory, vectors, keys):
    """The next state of a decoder that attends to a source, and the probabilities of the next word."""
    layers = fluid.layers
    state = layers.sequence_expand(x=layers.fc(input=memory, size=HIDDEN, bias_attr=False), y=keys)
    weights = layers.fc(input=layers.elementwise_add(keys, state), size=1, act="tanh", bias_attr=False)
    weights = layers.reshape(x=layers.sequence_softmax(input=weights), shape=[-1])
    context = layers.sequence_pool(layers.elementwise_mul(x=vectors, y=weights, axis=0), "sum")
    inputs = layers.fc(input=[context, word], size=HIDDEN * 3, bias_attr=False)
    hidden, _, _ = layers.gru_unit(input=inputs, hidden=memory, size=HIDDEN * 3)
    return hidden, layers.fc(input=hidden, size=WORDS, act="softmax")


@network
def translation_with_attention(fluid, texts):
    layers = fluid.layers
    both, projected, start = encoded(fluid)
    target, following = ids(fluid, "target"), ids(fluid, "following")
    words = embed(fluid, target)
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(words)
        vectors, keys = rnn.static_input(both), rnn.static_input(projected)
        memory = rnn.memory(init=start, need_reorder=True)
        hidden, predict = attending_step(fluid, word, memory, vectors, keys)
        rnn.update_memory(memory, hidden)
        rnn.output(predict)
    predict = rnn()
    loss = layers.mean(layers.cross_entropy(input=predict, label=following))
    feeds = []
    for _ in range(BATCHES):
        lengths = texts.lengths()
        feed = {"source": texts.numbers(texts.lengths()), "target": texts.numbers(lengths)}
        feeds.append(dict(feed, following=texts.numbers(lengths)))
    return loss, [], feeds


BEAM, LONGEST, END = 3, 6, 23  # a likely word, so that some candidates end early


def translated(fluid):
    """The words and scores of a beam search with the parameters of `translation_with_attention`."""
    layers = fluid.layers
    vectors, keys, state = encoded(fluid)
    first_words = layers.data(name="first_words", shape=[1], dtype="int64", lod_level=2)
    first_scores = layers.data(name="first_scores", shape=[1], dtype="float32", lod_level=2)
    longest = layers.fill_constant(shape=[1], dtype="int64", value=LONGEST)
    step = layers.zeros(shape=[1], dtype="int64", force_cpu=True)
    words, scores, states = (layers.array_write(x, i=step) for x in (first_words, first_scores, state))
    goes_on = layers.less_than(x=step, y=longest)
    loop = layers.While(cond=goes_on)
    with loop.block():
        word, score, state = (layers.array_read(array=array, i=step) for array in (words, scores, states))
        hidden, predict = attending_step(fluid, embed(fluid, word), state, vectors, keys)
        best, candidates = layers.topk(predict, k=BEAM)
        total = layers.elementwise_add(x=layers.log(best), y=layers.reshape(score, shape=[-1]), axis=0)
        total = layers.lod_reset(x=total, y=word)
        chosen, chosen_scores = layers.beam_search(word, score, candidates, total, BEAM, end_id=END)
        layers.increment(x=step, value=1, in_place=True)
        layers.array_write(chosen, array=words, i=step)
        layers.array_write(chosen_scores, array=scores, i=step)
        layers.array_write(layers.sequence_expand(hidden, chosen), array=states, i=step)
        for outer in (vectors, keys):
            layers.assign(layers.sequence_expand(outer, chosen), outer)
        is_left = layers.logical_not(layers.is_empty(x=chosen))
        layers.logical_and(x=layers.less_than(x=step, y=longest), y=is_left, out=goes_on)
    return layers.beam_search_decode(ids=words, scores=scores, beam_size=BEAM, end_id=END)


def decode(fluid, exe, source):
    """The words and scores that `translated` finds for sources, with the offsets of sentences and of candidates."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fetches = list(translated(fluid))
    count = len(source.lod()[0]) - 1
    start, place = [[1] * count] * 2, fluid.CPUPlace()
    feed = {
        "source": source,
        "first_words": fluid.create_lod_tensor(np.zeros((count, 1), "int64"), start, place),
        "first_scores": fluid.create_lod_tensor(np.zeros((count, 1), "float32"), start, place),
    }
    found = {}
    for key, value in zip(("words", "scores"), exe.run(main, feed=feed, fetch_list=fetches, return_numpy=False)):
        found["decoded/" + key] = np.array(value)
        found.update({f"decoded/{key}@LOD{i}": np.array(level) for i, level in enumerate(value.lod())})
    return found


CASES = [name + ending for name in NETWORKS for ending in ("", "_clipped")]


def run(fluid, name, networks=NETWORKS):
    """What a case gives: losses, results of the last step, parameters at the end; and the types of its operators."""
    which, norm = name.replace("_clipped", ""), 0.2 if name.endswith("_clipped") else None
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        loss, others, feeds = networks[which](fluid, Texts(fluid, which))
        clip = fluid.clip.GradientClipByGlobalNorm(clip_norm=norm) if norm else None
        fluid.optimizer.SGD(learning_rate=0.1, grad_clip=clip).minimize(loss)
        exe = begin(fluid, main, startup)
        losses = []
        for i in range(STEPS):
            results = exe.run(main, feed=feeds[i % BATCHES], fetch_list=[loss, *others], return_numpy=False)
            losses.append(np.array(results[0]).item())
        found = {"losses": np.array(losses, "float32")}
        found.update({f"result/{i}": np.array(result) for i, result in enumerate(results[1:])})
        for param in main.all_parameters():
            found[param.name] = np.array(fluid.global_scope().find_var(param.name).get_tensor())
        if which == "translation_with_attention":
            found.update(decode(fluid, exe, feeds[0]["source"]))
    return found, [op.type for block in main.blocks for op in block.ops]


def record(fluid, folder, names, networks):
    """Write what some cases give to a folder; only those with a word of the command line in their names, if any."""
    recorded, operators = {}, {}
    for name in names:
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        arrays, operators[name] = run(fluid, name, networks)
        print(name, arrays["losses"][[0, -1]], flush=True)
        recorded.update({name + "/" + key: value for key, value in arrays.items()})
    golden_arrays.write(folder, recorded, operators)


if __name__ == "__main__":
    import paddle.fluid

    record(paddle.fluid, FOLDER, CASES, NETWORKS)
