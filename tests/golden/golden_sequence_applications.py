"""More whole programs on sequences, as in `golden_sequence_programs`: matching, tagging, recognition, recommendation.

Running this file with Paddle, ``python golden_sequence_applications.py``, writes the recording beside it;
``python golden_sequence_applications.py --models`` writes models and programs that Paddle saves.
"""

import sys
from pathlib import Path

import numpy as np
from golden_scripts import begin
from golden_sequence_programs import BATCHES, CLASSES, EMBEDDED, HIDDEN, WORDS, Texts, embed, ids, record

FOLDER = Path(__file__).parent / "sequence_applications"
MODELS = Path(__file__).parent / "io" / "applications"
NETWORKS = {}
"""Name to function, as in `golden_sequence_programs`."""


def network(function):
    NETWORKS[function.__name__] = function
    return function


@network
def matching(fluid, texts):
    """SimNet: pairs of texts, an encoder of convolutions, and a margin between cosines."""
    layers = fluid.layers

    def vector(words):
        emb = embed(fluid, words, param_attr="emb")
        conv = fluid.nets.sequence_conv_pool(
            input=emb,
            num_filters=HIDDEN,
            filter_size=3,
            act="relu",
            pool_type="max",
            param_attr="conv.w",
            bias_attr="conv.b",
        )
        return layers.fc(input=conv, size=HIDDEN, act="tanh", param_attr="fc.w", bias_attr="fc.b")

    query, near, far = (vector(ids(fluid, name)) for name in ("query", "near", "far"))
    left, right = layers.cos_sim(query, near), layers.cos_sim(query, far)
    label = layers.fill_constant_batch_size_like(input=left, shape=[-1, 1], value=1.0, dtype="float32")
    loss = layers.mean(layers.margin_rank_loss(label, left=left, right=right, margin=0.3))
    feeds = [{name: texts.numbers(texts.lengths()) for name in ("query", "near", "far")} for _ in range(BATCHES)]
    return loss, [left, right], feeds


@network
def lexical_analysis(fluid, texts):
    """LAC: two layers of GRUs in both directions, a CRF, and the chunks that it finds."""
    layers = fluid.layers
    word, target = ids(fluid, "word"), ids(fluid, "target")
    uniform = fluid.initializer.Uniform(low=-0.3, high=0.3)
    decay = fluid.regularizer.L2DecayRegularizer(regularization_coeff=1e-3)

    def attr(**more):
        return fluid.ParamAttr(initializer=uniform, regularizer=decay, **more)

    hidden = layers.embedding(
        word,
        size=[WORDS, EMBEDDED],
        param_attr=fluid.ParamAttr(learning_rate=2.0, name="word_emb", initializer=uniform),
    )
    for _ in range(2):
        pre = layers.fc(input=hidden, size=HIDDEN * 3, param_attr=attr())
        forward = layers.dynamic_gru(input=pre, size=HIDDEN, param_attr=attr())
        pre_r = layers.fc(input=hidden, size=HIDDEN * 3, param_attr=attr())
        backward = layers.dynamic_gru(input=pre_r, size=HIDDEN, is_reverse=True, param_attr=attr())
        hidden = layers.concat(input=[forward, backward], axis=1)
    emission = layers.fc(size=5, input=hidden, param_attr=attr())
    cost = layers.linear_chain_crf(
        input=emission, label=target, param_attr=fluid.ParamAttr(name="crfw", learning_rate=0.2)
    )
    decoded = layers.crf_decoding(input=emission, param_attr=fluid.ParamAttr(name="crfw"))
    scores = layers.chunk_eval(input=decoded, label=target, chunk_scheme="IOB", num_chunk_types=2)
    feeds = []
    for _ in range(BATCHES):
        lengths = texts.lengths()
        feeds.append({"word": texts.numbers(lengths), "target": texts.numbers(lengths, 5)})
    return layers.mean(x=cost), [decoded, *scores], feeds


@network
def text_recognition(fluid, texts):
    """CRNN-CTC: convolutions, columns of the image as a sequence, GRUs in both directions, CTC and edit distances."""
    layers = fluid.layers
    image = layers.data(name="image", shape=[1, 8, 24], dtype="float32")
    label = layers.data(name="label", shape=[1], dtype="int32", lod_level=1)
    conv = image
    for filters in (3, 4):
        conv = layers.conv2d(conv, filters, 3, padding=1, bias_attr=False)
        conv = layers.batch_norm(conv, act="relu")
        conv = layers.pool2d(conv, pool_size=2, pool_stride=2, ceil_mode=True)
    columns = layers.im2sequence(conv, stride=[1, 1], filter_size=[conv.shape[2], 1])
    both = []
    for is_reverse in (False, True):
        pre = layers.fc(input=columns, size=HIDDEN * 3)
        both.append(layers.dynamic_gru(input=pre, size=HIDDEN, is_reverse=is_reverse, candidate_activation="relu"))
    scores = layers.fc(input=both, size=CLASSES + 1)
    loss = layers.mean(layers.warpctc(input=scores, label=label, blank=CLASSES, norm_by_times=True))
    decoded = layers.ctc_greedy_decoder(input=scores, blank=CLASSES)
    error, count = layers.edit_distance(input=decoded, label=layers.cast(label, "int64"))
    feeds = []
    for _ in range(BATCHES):
        marks = texts.numbers(texts.lengths(4, 3), CLASSES)
        rows = fluid.create_lod_tensor(
            np.array(marks).astype("int32"), marks.recursive_sequence_lengths(), fluid.CPUPlace()
        )
        feeds.append({"image": texts.state.standard_normal((4, 1, 8, 24)).astype("float32"), "label": rows})
    return loss, [decoded, error, count], feeds


@network
def interests(fluid, texts):
    """DIN: an attention over the history of each user by the item that is asked for."""
    layers = fluid.layers
    history, categories = ids(fluid, "history"), ids(fluid, "categories")
    item, category = (layers.data(name=name, shape=[1], dtype="int64") for name in ("item", "category"))
    label = layers.data(name="label", shape=[1], dtype="float32")
    past = layers.concat(
        [embed(fluid, history, param_attr="items"), embed(fluid, categories, param_attr="categories.w")], axis=1
    )
    asked = layers.concat(
        [embed(fluid, item, param_attr="items"), embed(fluid, category, param_attr="categories.w")], axis=1
    )
    wide = layers.sequence_expand(asked, past)
    pair = layers.concat([past, wide, layers.elementwise_sub(past, wide), layers.elementwise_mul(past, wide)], axis=1)
    weight = layers.fc(layers.fc(pair, 8, act="sigmoid", name="att_1"), 1, name="att_2")
    weight = layers.sequence_softmax(weight)
    out = layers.sequence_pool(layers.elementwise_mul(past, weight, axis=0), pool_type="sum")
    out = layers.fc(out, 2 * EMBEDDED, name="out")
    bias = embed(fluid, item, param_attr=fluid.ParamAttr(name="item_b", initializer=fluid.initializer.Constant(0.1)))
    deep = layers.concat([out, asked, bias], axis=1)
    for i, size in enumerate((8, 4)):
        deep = layers.fc(deep, size, act="sigmoid", name=f"deep_{i}")
    logit = layers.fc(deep, 1)
    loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(x=logit, label=label))
    feeds = []
    for _ in range(BATCHES):
        lengths = texts.lengths()
        feeds.append(
            {
                "history": texts.numbers(lengths),
                "categories": texts.numbers(lengths),
                "item": texts.labels(below=WORDS),
                "category": texts.labels(below=WORDS),
                "label": texts.labels(below=2).astype("float32"),
            }
        )
    return loss, [layers.sigmoid(logit)], feeds


@network
def translation_by_rnn(fluid, texts):
    """An LSTM encodes, a `DynamicRNN` decodes from its last state, which each step sees too."""
    layers = fluid.layers
    source, target, following = ids(fluid, "source"), ids(fluid, "target"), ids(fluid, "following")
    hidden, _ = layers.dynamic_lstm(layers.fc(embed(fluid, source, is_sparse=True), 4 * HIDDEN, act="tanh"), 4 * HIDDEN)
    context = layers.sequence_last_step(hidden)
    rnn = layers.DynamicRNN()
    words = embed(fluid, target, is_sparse=True)
    with rnn.block():
        word = rnn.step_input(words)
        fixed = rnn.static_input(context)
        memory = rnn.memory(init=context, need_reorder=True)
        state = layers.fc(input=[word, memory, fixed], size=HIDDEN, act="tanh")
        rnn.update_memory(memory, state)
        rnn.output(layers.fc(input=state, size=WORDS, act="softmax"))
    predict = rnn()
    cost = layers.cross_entropy(input=predict, label=following)
    feeds = []
    for _ in range(BATCHES):
        lengths = texts.lengths()
        feeds.append(
            {
                "source": texts.numbers(texts.lengths()),
                "target": texts.numbers(lengths),
                "following": texts.numbers(lengths),
            }
        )
    return layers.mean(cost), [layers.sequence_pool(cost, "sum")], feeds


@network
def sentences_of_documents(fluid, texts):
    """A text of sentences of words: two levels, pooled one by one, the outer by an LSTM and by a DynamicRNN."""
    layers = fluid.layers
    words = layers.data(name="words", shape=[1], dtype="int64", lod_level=2)
    emb = embed(fluid, words)
    sentence = layers.sequence_pool(emb, "average")
    hidden, _ = layers.dynamic_lstm(layers.fc(sentence, 4 * HIDDEN), 4 * HIDDEN, use_peepholes=False)
    rnn = layers.DynamicRNN()
    with rnn.block():
        words_of = rnn.step_input(emb, level=0)
        memory = rnn.memory(shape=[EMBEDDED], value=0.0)
        now = layers.fc([layers.sequence_pool(words_of, "max"), memory], EMBEDDED, act="tanh")
        rnn.update_memory(memory, now)
        rnn.output(now)
    both = layers.concat([layers.sequence_pool(hidden, "max"), layers.sequence_last_step(rnn())], 1)
    predict = layers.fc(both, CLASSES, act="softmax")
    label = layers.data(name="label", shape=[1], dtype="int64")
    cost = layers.cross_entropy(input=predict, label=label)
    feeds = []
    for _ in range(BATCHES):
        outer = texts.lengths(3, 3)
        inner = texts.lengths(sum(outer), 4)
        rows = texts.state.randint(0, WORDS, (sum(inner), 1)).astype("int64")
        feeds.append(
            {"words": fluid.create_lod_tensor(rows, [outer, inner], fluid.CPUPlace()), "label": texts.labels(3)}
        )
    return layers.mean(cost), [predict], feeds


@network
def choice_by_length(fluid, texts):
    """IfElse on a row of each text, and a while loop that pools the text again and again."""
    layers = fluid.layers
    words, label = ids(fluid, "words"), layers.data(name="label", shape=[1], dtype="int64")
    emb = embed(fluid, words)
    pooled = layers.fc(layers.sequence_pool(emb, "sqrt"), HIDDEN, act="tanh")
    score = layers.fc(pooled, 1)
    chosen = layers.IfElse(
        layers.less_than(score, layers.fill_constant_batch_size_like(score, [-1, 1], "float32", 0.0))
    )
    with chosen.true_block():
        chosen.output(layers.fc(chosen.input(pooled), HIDDEN, act="relu"))
    with chosen.false_block():
        chosen.output(layers.fc(chosen.input(pooled), HIDDEN, act="tanh"))
    predict = layers.fc([chosen()[0], score], CLASSES, act="softmax")
    cost = layers.cross_entropy(input=predict, label=label)
    feeds = [{"words": texts.numbers(texts.lengths()), "label": texts.labels()} for _ in range(BATCHES)]
    return layers.mean(cost), [predict], feeds


CASES = [name + ending for name in NETWORKS for ending in ("", "_clipped")]
SAVED = ["text_recognition", "translation_by_rnn", "sentences_of_documents", "choice_by_length"]


def built(fluid, name):
    """A training program, its startup program, what it gives, and its feeds."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, others, feeds = NETWORKS[name](fluid, Texts(fluid, name))
        fluid.optimizer.Adam(0.05, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.2)).minimize(loss)
    return main, startup, [loss, *others], feeds


def results(fluid, exe, program, feeds, targets, fed):
    """What a program gives for each feed, with the offsets of sequences."""
    found = {}
    for i, feed in enumerate(feeds):
        feed = {key: value for key, value in feed.items() if key in fed}
        for j, value in enumerate(exe.run(program, feed=feed, fetch_list=targets, return_numpy=False)):
            found[f"{i}/{j}"] = np.array(value)
            found.update({f"{i}/{j}@LOD{k}": np.array(level) for k, level in enumerate(value.lod())})
    return found


def losses(fluid, exe, program, feeds, loss):
    return [float(np.ravel(exe.run(program, feed=feed, fetch_list=[loss])[0])[0]) for feed in (*feeds, feeds[0])]


def save(fluid):
    """Save each of `SAVED` in Paddle, as a model with its results and as a program with its next losses."""
    fluid.framework.traceback.format_stack = lambda *_: []  # no paths of this machine in the files
    exe, known = fluid.Executor(fluid.CPUPlace()), {}
    for name in SAVED:
        main, startup, targets, feeds = built(fluid, name)
        folder = str(MODELS / name)
        with fluid.scope_guard(fluid.Scope()):
            begin(fluid, main, startup)
            with fluid.unique_name.guard():
                fluid.io.save_inference_model(folder, sorted(feeds[0]), targets, exe, main, "model", "params")
            fluid.io.save_persistables(exe, folder, main, filename="persistables")
            with open(folder + "/training", "wb") as file:
                file.write(main.desc.serialize_to_string())
            program, fed, fetched = fluid.io.load_inference_model(folder, exe, "model", "params")
            of_model = results(fluid, exe, program, feeds, fetched, fed)
            known.update({f"{name}/{key}": value for key, value in of_model.items()})
            known[name + "/losses"] = np.array(losses(fluid, exe, main, feeds, targets[0].name))
    np.savez_compressed(MODELS / "known.npz", **known)


if __name__ == "__main__":
    import paddle.fluid

    if sys.argv[1:] == ["--models"]:
        save(paddle.fluid)
    else:
        record(paddle.fluid, FOLDER, CASES, NETWORKS)
