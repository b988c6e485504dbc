"""Right calls of what `golden_layers` does not call, in functions of minigraph or of what records its calls."""

import numpy as np

CALLS = []


def calls(function):
    CALLS.append(function)
    return function


def inputs(fluid):
    x = fluid.data("x", [None, 4])
    return x, fluid.data("y", [3, 4]), fluid.data("ids", [3, 1], "int64"), fluid.data("image", [2, 3, 8, 8])


@calls
def elementwise(fluid):
    L, (x, y, ids, _) = fluid.layers, inputs(fluid)
    for name in ("sub", "mul", "div", "max", "min", "pow", "mod", "floordiv"):
        z = ids if name in ("mod", "floordiv") else y
        getattr(L, f"elementwise_{name}")(z, z)
    for name in ("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"):
        getattr(L, name)(y, y)
    for name in ("sum", "mean", "max", "min", "prod"):
        getattr(L, f"reduce_{name}")(y, dim=1, keep_dim=True)
    truth = L.equal(y, y)
    L.reduce_all(truth), L.reduce_any(truth)
    (
        L.relu(x),
        L.sum([x, x]),
        L.clip_by_norm(x, 1.0),
        L.cos_sim(x, x),
        L.rank(x),
        L.fluid_one_hot(ids, 5),
        L.fluid_embedding(ids, [5, 2]),
        L.spectral_norm(y),
        L.random_crop(y, [1]),
        L.hash(L.cast(y, "int64"), 100),
    )
    L.Print(y, message="y"), L.data("z", [3]), L.fluid_data("w", [3]), L.autoincreased_step_counter()


@calls
def recurrent(fluid):
    L = fluid.layers
    gates, hidden, cell = fluid.data("gates", [2, 12]), fluid.data("h", [2, 4]), fluid.data("c", [2, 4])
    start = fluid.data("first", [1, None, 3])
    L.lstm(fluid.data("series", [5, None, 4]), start, start, 5, 3, 1)
    L.gru_unit(gates, hidden, 12), L.lstm_unit(fluid.data("i", [2, 4]), hidden, cell)
    sequence = fluid.data("s", [2, 5, 4])
    L.rnn(L.GRUCell(4), sequence)
    L.rnn(L.LSTMCell(4), sequence)
    L.gather_tree(fluid.data("tokens", [3, 2, 2], "int64"), fluid.data("parents", [3, 2, 2], "int64"))
    tags, lengths = fluid.data("tags", [2, 5], "int64"), fluid.data("steps", [2], "int64")
    L.linear_chain_crf(sequence, tags, fluid.ParamAttr(name="crf"), lengths)
    L.crf_decoding(sequence, fluid.ParamAttr(name="crf"), tags, lengths)
    labels = fluid.data("labels", [2, 3], "int32")
    L.warpctc(fluid.data("frames", [5, 2, 4]), labels, 0, True, input_length=lengths, label_length=lengths)
    L.ctc_greedy_decoder(sequence, 0, lengths, 9)
    L.chunk_eval(tags, tags, "IOB", 2, [1], lengths)
    L.edit_distance(tags, tags, False, None, lengths, lengths)
    word, total = fluid.data("word", [None, 1], "int64", 2), fluid.data("total", [None, 1], lod_level=2)
    scores = fluid.data("scores", [None, 3], lod_level=2)
    zero = L.fill_constant([1], "int64", 0)
    chosen = L.beam_search(word, total, None, scores, 2, 0, 0, True, return_parent_idx=True)
    L.beam_search_decode(L.array_write(chosen[0], zero), L.array_write(chosen[1], zero), 2, 0)
    helper = L.TrainingHelper(sequence, fluid.data("lengths", [2], "int64"))
    L.dynamic_decode(L.BasicDecoder(L.GRUCell(4), helper), hidden, max_step_num=3)
    words = fluid.data("words", [2], "int64")

    def embed(numbers):
        return fluid.embedding(numbers, [5, 4])

    def score(x):
        return L.fc(x, 5, num_flatten_dims=len(x.shape) - 1)

    for helper in (L.GreedyEmbeddingHelper(embed, words, 1), L.SampleEmbeddingHelper(embed, words, 1, 0.5, 3)):
        L.dynamic_decode(L.BasicDecoder(L.GRUCell(4), helper, score), hidden, max_step_num=3)
    decoder = L.BeamSearchDecoder(L.GRUCell(4), 0, 1, 2, embed, score)
    L.dynamic_decode(decoder, fluid.data("start", [None, 4]), max_step_num=3)
    columns, rnn = L.transpose(sequence, [1, 0, 2]), L.StaticRNN()
    with rnn.step():
        word = rnn.step_input(columns)
        before = rnn.memory(init=hidden)
        now = L.elementwise_add(word, before)
        rnn.update_memory(before, now)
        rnn.step_output(now)
    rnn()


@calls
def control_flow(fluid):
    L, (x, y, _, _) = fluid.layers, inputs(fluid)
    i, n = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 10)
    condition = L.less_than(i, n)
    L.while_loop(lambda i: L.less_than(i, n), lambda i: [i + 1], [i])
    L.cond(condition, lambda: x, lambda: x)
    L.case([(condition, lambda: y)], lambda: y)
    L.switch_case(i, {0: lambda: y, 1: lambda: y})
    array = L.array_write(y, i)
    L.array_read(array, i), L.array_length(array), L.create_array("float32")
    L.tensor_array_to_tensor(array), L.create_tensor("float32")
    with L.While(condition).block():
        L.increment(i)
        L.less_than(i, n, cond=condition)
    with L.Switch() as switch, switch.case(condition):
        L.assign(n, i)
    either = L.IfElse(L.less_than(fluid.data("q", [3, 1]), L.zeros([3, 1], "float32")))
    with either.true_block():
        either.output(either.input(y))
    with either.false_block():
        either.output(either.input(y))
    either()
    L.py_func(lambda a: a, y, fluid.default_main_program().current_block().create_var("result", [3, 4], "float32"))


@calls
def rates(fluid):
    L = fluid.layers
    L.exponential_decay(0.1, 10, 0.5), L.natural_exp_decay(0.1, 10, 0.5), L.inverse_time_decay(0.1, 10, 0.5)
    L.noam_decay(4, 10), L.polynomial_decay(0.1, 10), L.piecewise_decay([10, 20], [0.1, 0.2, 0.3])
    L.cosine_decay(0.1, 10, 3), L.linear_lr_warmup(0.1, 10, 0.0, 0.1)


@calls
def distributions(fluid):
    L = fluid.layers
    L.Normal(0.0, 1.0).sample([3], seed=1), L.Uniform(0.0, 1.0).sample([3], seed=1)
    L.Categorical(fluid.data("logits", [3, 4]))
    L.MultivariateNormalDiag(fluid.data("loc", [2]), fluid.data("scale", [2, 2]))


@calls
def readers(fluid):
    L = fluid.layers
    reader = L.py_reader(4, [[-1, 3]], ["float32"])
    L.double_buffer(reader), L.read_file(reader)
    L.create_py_reader_by_data(4, [fluid.data("x", [None, 3])])


@calls
def networks(fluid):
    _, y, _, image = inputs(fluid)
    fluid.nets.simple_img_conv_pool(image, 4, 3, 2, 2), fluid.nets.img_conv_group(image, [4, 4], 2), fluid.nets.glu(y)
    q = fluid.data("queries", [3, 5, 9])
    fluid.nets.scaled_dot_product_attention(q, q, q, 3)


@calls
def engine(fluid):
    x, y, ids, _ = inputs(fluid)
    fluid.data("more", [None, 2], "float32"), fluid.embedding(ids, [5, 2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1))
    fluid.gradients(loss, x)
    pairs = fluid.append_backward(loss)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(1.0))
    fluid.clip.append_gradient_clip_ops(pairs)
    fluid.clip.explain(fluid.default_main_program())
    fluid.regularizer.append_regularization_ops(pairs, fluid.regularizer.L2Decay(0.1))
    fluid.name_scope("scope"), fluid.device_guard("cpu"), fluid.program_guard(fluid.default_main_program())
    fluid.scope_guard(fluid.global_scope()), fluid.cpu_places(1), fluid.require_version("1.0.0")
    fluid.diff(fluid.default_main_program(), fluid.default_main_program())
    fluid.verify(fluid.default_main_program())
    fluid.create_lod_tensor(np.ones((3, 1), "float32"), [[3]], fluid.CPUPlace())
    fluid.DataFeeder([x, y], fluid.CPUPlace()).feed([(np.ones(4), np.ones((3, 4)))])
    fluid.CompiledProgram(fluid.default_main_program())
    fluid.Executor(fluid.CPUPlace()), fluid.Interpreter(fluid.CPUPlace())
    fluid.batch(lambda: iter(range(4)), 2), fluid.get_flags("FLAGS_check_nan_inf")


@calls
def blocks(fluid):
    x, _, _, _ = inputs(fluid)
    program = fluid.recorded(fluid.default_main_program())
    block = fluid.recorded(program.global_block())
    block.create_var("made", [2, 3], "float32"), block.create_parameter("weight", [4, 3], "float32")
    block.append_op("scale", {"X": x}, {"Out": "made"}, {"scale": 2.0})
    block.prepend_op("fill_constant", {}, {"Out": "first"}, {"shape": [1], "value": 1.0})
    block.insert(0, "fill_constant", {}, {"Out": "zeroth"}, {"shape": [1], "value": 1.0})
    block.var("made")
    op = fluid.recorded(block.ops[-1])
    op.set_attr("scale", 3.0)
    op.set_input("X", [x]), op.set_output("Out", ["made"]), op.replace_input("x", x), op.replace_output("made", "made")
    program.block(0), program.clone(True), program.parse("block 0"), program.equals(x.block.program)
    fluid.recorded(x).astype("float64")


@calls
def metrics(fluid):
    M, one = fluid.metrics, np.ones(1, "float32")
    for metric, update in (
        (M.Accuracy("a"), (0.5, 1)), (M.Precision("p"), (one, one)), (M.Recall("r"), (one, one)),
        (M.Auc("auc"), (np.full((2, 2), 0.5), np.ones((2, 1), "int64"))),
    ):  # fmt: skip
        fluid.recorded(metric).update(*update)
    fluid.average.WeightedAverage()


def train(fluid, optimizer=None, clip=None, decay=None, weight=None, error_clip=None):
    """Build a program that trains, of what a constructor has given."""
    x = fluid.data("fed", [2, 4])
    hidden = fluid.layers.fc(x, 4)
    hidden.error_clip = error_clip
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 1, param_attr=weight))
    if optimizer is None:
        optimizer = fluid.optimizer.SGD(0.1, grad_clip=clip, regularization=decay)
    optimizer.minimize(loss)


def constructors(fluid):
    """Classes, what they are called with, and what `train` takes an instance as."""
    for name, numbers in {
        "SGD": [0.1], "Momentum": [0.1, 0.9], "Adam": [0.1], "AdamW": [0.1], "Adagrad": [0.1], "Adamax": [0.1],
        "Adadelta": [0.1], "RMSProp": [0.1], "Ftrl": [0.1], "Lamb": [0.1], "DecayedAdagrad": [0.1],
        "LarsMomentum": [0.1, 0.9], "Dpsgd": [0.1],
    }.items():  # fmt: skip
        yield getattr(fluid.optimizer, name), numbers, "optimizer"
    for name, numbers in {
        "GradientClipByNorm": [1.0], "GradientClipByValue": [1.0], "GradientClipByGlobalNorm": [1.0], "AutoClip": [],
        "ZClip": [], "AdaptiveGradientClip": [],
    }.items():  # fmt: skip
        yield getattr(fluid.clip, name), numbers, "clip"
    yield fluid.clip.ErrorClipByValue, [1.0], "error_clip"
    yield fluid.regularizer.L1Decay, [0.1], "decay"
    yield fluid.regularizer.L2Decay, [0.1], "decay"
    for name, numbers in {
        "Constant": [1.0], "Uniform": [], "Normal": [], "TruncatedNormal": [], "Xavier": [], "MSRA": [],
        "NumpyArrayInitializer": [np.ones((4, 1), "float32")],
    }.items():  # fmt: skip
        yield getattr(fluid.initializer, name), numbers, "weight"
    yield fluid.ParamAttr, ["w"], "weight"
    yield fluid.WeightNormParamAttr, [0], "weight"
