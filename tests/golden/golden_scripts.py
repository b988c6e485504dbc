"""Whole scripts as they are written for fluid 1.8, whose results on Paddle 1.8.5 are recorded.

Most follow the chapters of the Paddle book, made small. A script is a function of the module `fluid`; it runs in
programs and a scope of its own, and returns named arrays, such as the losses step by step. Parameters start from given
values. Running this file with Paddle, ``python golden_scripts.py``, writes the recording beside it; it is therefore
written for Python 3.7, and the tests hand it minigraph instead.
"""

import json
import sys
import tempfile
import zlib
from pathlib import Path

import golden_arrays
import numpy as np

FOLDER = Path(__file__).parent / "scripts"
SCRIPTS = {}


def script(function):
    SCRIPTS[function.__name__] = function
    return function


def run(fluid, name):
    """What a script gives by name, and the operators of its main program, a line each; with loops, no gradients."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        found = SCRIPTS[name](fluid)
    ops = [op for block in main.blocks for op in block.ops]
    if any(op.type == "recurrent_grad" for op in ops):
        # Fluid leaves out some zeros, which stand for results of a loop that nothing uses.
        ops = [op for op in ops if "@GRAD" not in str((op.input_arg_names, op.output_arg_names))]
    lines = [line_of(op) for op in ops]
    return {key: np.asarray(value) for key, value in found.items()}, lines


def line_of(op):
    def slots(names, of):
        # What a block reads from outside stands in no order in fluid.
        found = {slot: sorted(of(slot)) if op.type.startswith("recurrent") else of(slot) for slot in names}
        return " ".join("{}={}".format(slot, ",".join(found[slot])) for slot in sorted(found) if found[slot])

    return f"{op.type} {slots(op.input_names, op.input)} -> {slots(op.output_names, op.output)}"


# What the scripts are made of


def waves(name, shape):
    """Small numbers that the name and the shape say."""
    size = int(np.prod(shape))
    return 0.3 * np.sin(np.arange(size) * 1.7 + zlib.crc32(name.encode()) % 1000).reshape(shape)


def begin(fluid, program=None, startup=None):
    """Run the startup program, and give the parameters their values, small waves; normalizing ones keep theirs."""
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(startup or fluid.default_startup_program())
    for param in (program or fluid.default_main_program()).all_parameters():
        tensor = fluid.global_scope().find_var(param.name).get_tensor()
        if "batch_norm" not in param.name and "_bn" not in param.name:
            tensor.set(waves(param.name, param.shape).astype(np.array(tensor).dtype), place)
    return exe


def classes(count, number, seed):
    """Labels, and a template for each that pictures of its class resemble."""
    state = np.random.RandomState(seed)
    return state, state.randint(0, number, (count, 1)).astype("int64")


def pictures(count, channels, size, number, seed=0):
    """Rows (picture, label) of which something can be learned."""
    state, labels = classes(count, number, seed)
    templates = state.standard_normal((number, channels, size, size))
    images = templates[labels[:, 0]] + 0.5 * state.standard_normal((count, channels, size, size))
    return [(image.astype("float32"), label) for image, label in zip(images, labels)]


# The chapters


@script
def fit_a_line(fluid):
    """Linear regression on a table with 13 columns."""
    state = np.random.RandomState(1)
    table = state.uniform(-1, 1, (60, 13)).astype("float32")
    rows = [(x, [float(x.sum() - 2 * x[3])]) for x in table]

    x = fluid.data(name="x", shape=[None, 13], dtype="float32")
    y = fluid.data(name="y", shape=[None, 1], dtype="float32")
    y_predict = fluid.layers.fc(input=x, size=1, act=None)
    main_program = fluid.default_main_program()
    cost = fluid.layers.square_error_cost(input=y_predict, label=y)
    avg_loss = fluid.layers.mean(cost)
    sgd_optimizer = fluid.optimizer.SGD(learning_rate=0.05)
    test_program = main_program.clone(for_test=True)
    sgd_optimizer.minimize(avg_loss)

    train_reader = fluid.io.batch(lambda: iter(rows), batch_size=20)
    place = fluid.CPUPlace()
    exe = begin(fluid)
    feeder = fluid.DataFeeder(place=place, feed_list=[x, y])
    losses, tests = [], []
    for _ in range(3):
        for data in train_reader():
            (loss,) = exe.run(main_program, feed=feeder.feed(data), fetch_list=[avg_loss])
            losses.append(loss)
        tests.append(exe.run(test_program, feed=feeder.feed(rows[:10]), fetch_list=[avg_loss.name])[0])
    return {"losses": losses, "tests": tests}


def _train_pictures(fluid, net, channels, size, number, optimizer, steps=4, batch=8, feed_names=("img", "label")):
    images = fluid.data(name=feed_names[0], shape=[None, channels, size, size], dtype="float32")
    label = fluid.data(name=feed_names[1], shape=[None, 1], dtype="int64")
    predict = net(images)
    cost = fluid.layers.cross_entropy(input=predict, label=label)
    avg_cost = fluid.layers.mean(cost)
    acc = fluid.layers.accuracy(input=predict, label=label)
    test_program = fluid.default_main_program().clone(for_test=True)
    optimizer.minimize(avg_cost)

    exe = begin(fluid)
    feeder = fluid.DataFeeder(feed_list=[images, label], place=fluid.CPUPlace())
    rows = pictures(steps * batch, channels, size, number)
    reader = fluid.io.batch(lambda: iter(rows), batch_size=batch)
    found = {"losses": [], "accuracies": []}
    for data in reader():
        loss, accuracy = exe.run(feed=feeder.feed(data), fetch_list=[avg_cost, acc])
        found["losses"].append(loss)
        found["accuracies"].append(accuracy)
    found["test"] = exe.run(test_program, feed=feeder.feed(rows[:5]), fetch_list=[predict])[0]
    return found


@script
def recognize_digits(fluid):
    """Two convolutions with pooling, by nets.simple_img_conv_pool."""

    def convolutional_neural_network(img):
        conv_pool_1 = fluid.nets.simple_img_conv_pool(
            input=img, filter_size=5, num_filters=4, pool_size=2, pool_stride=2, act="relu"
        )
        conv_pool_1 = fluid.layers.batch_norm(conv_pool_1)
        conv_pool_2 = fluid.nets.simple_img_conv_pool(
            input=conv_pool_1, filter_size=3, num_filters=6, pool_size=2, pool_stride=2, act="relu"
        )
        return fluid.layers.fc(input=conv_pool_2, size=10, act="softmax")

    return _train_pictures(fluid, convolutional_neural_network, 1, 16, 10, fluid.optimizer.Adam(learning_rate=0.001))


@script
def vgg_bn(fluid):
    """image_classification: groups of convolutions, by nets.img_conv_group."""

    def vgg_bn_drop(input):
        def conv_block(ipt, num_filter, groups, dropouts):
            return fluid.nets.img_conv_group(
                input=ipt,
                pool_size=2,
                pool_stride=2,
                conv_num_filter=[num_filter] * groups,
                conv_filter_size=3,
                conv_act="relu",
                conv_with_batchnorm=True,
                conv_batchnorm_drop_rate=dropouts,
                pool_type="max",
            )

        conv1 = conv_block(input, 4, 2, [0.0, 0])
        conv2 = conv_block(conv1, 6, 2, [0.0, 0])
        fc1 = fluid.layers.fc(input=conv2, size=16, act=None)
        bn = fluid.layers.batch_norm(input=fc1, act="relu")
        fc2 = fluid.layers.fc(input=bn, size=16, act=None)
        return fluid.layers.fc(input=fc2, size=10, act="softmax")

    # Not Adam: the gradients of biases in front of a normalization are rounding, which it would make steps of.
    return _train_pictures(fluid, vgg_bn_drop, 3, 8, 10, fluid.optimizer.Momentum(learning_rate=0.01, momentum=0.9))


@script
def resnet_cifar10(fluid):
    """image_classification: residual blocks, L2 decay, piecewise learning rate."""

    def conv_bn_layer(input, ch_out, filter_size, stride, padding, act="relu", bias_attr=False):
        tmp = fluid.layers.conv2d(
            input=input,
            filter_size=filter_size,
            num_filters=ch_out,
            stride=stride,
            padding=padding,
            act=None,
            bias_attr=bias_attr,
        )
        return fluid.layers.batch_norm(input=tmp, act=act)

    def shortcut(input, ch_in, ch_out, stride):
        if ch_in != ch_out:
            return conv_bn_layer(input, ch_out, 1, stride, 0, None)
        return input

    def basicblock(input, ch_in, ch_out, stride):
        tmp = conv_bn_layer(input, ch_out, 3, stride, 1)
        tmp = conv_bn_layer(tmp, ch_out, 3, 1, 1, act=None, bias_attr=True)
        short = shortcut(input, ch_in, ch_out, stride)
        return fluid.layers.elementwise_add(x=tmp, y=short, act="relu")

    def resnet(input):
        conv1 = conv_bn_layer(input, ch_out=4, filter_size=3, stride=1, padding=1)
        res1 = basicblock(conv1, 4, 4, 1)
        res2 = basicblock(res1, 4, 8, 2)
        pool = fluid.layers.pool2d(input=res2, pool_size=4, pool_type="avg", pool_stride=1)
        return fluid.layers.fc(input=pool, size=10, act="softmax")

    rate = fluid.layers.piecewise_decay(boundaries=[2, 3], values=[0.1, 0.05, 0.01])
    optimizer = fluid.optimizer.Momentum(
        learning_rate=rate, momentum=0.9, regularization=fluid.regularizer.L2Decay(1e-3)
    )
    return _train_pictures(fluid, resnet, 3, 8, 10, optimizer)


@script
def word2vec(fluid):
    """An n-gram model whose words share one table."""
    size, dims = 30, 6
    words = [fluid.data(name=n, shape=[None, 1], dtype="int64") for n in ("first", "second", "third", "next")]
    embeds = [
        fluid.embedding(input=word, size=[size, dims], dtype="float32", is_sparse=True, param_attr="shared_w")
        for word in words[:3]
    ]
    concat_embed = fluid.layers.concat(input=embeds, axis=2)
    concat_embed = fluid.layers.reshape(concat_embed, [-1, 3 * dims])
    hidden = fluid.layers.fc(input=concat_embed, size=16, act="sigmoid")
    predict_word = fluid.layers.fc(input=hidden, size=size, act="softmax")
    cost = fluid.layers.cross_entropy(input=predict_word, label=words[3])
    avg_cost = fluid.layers.mean(cost)
    optimizer = fluid.optimizer.AdagradOptimizer(
        learning_rate=3e-3, regularization=fluid.regularizer.L2DecayRegularizer(8e-4)
    )
    optimizer.minimize(avg_cost)

    state = np.random.RandomState(3)
    exe = begin(fluid)
    feeder = fluid.DataFeeder(feed_list=words, place=fluid.CPUPlace())
    losses = []
    for _ in range(5):
        rows = [tuple([int(number)] for number in state.randint(0, size, 4)) for _ in range(12)]
        losses.append(exe.run(feed=feeder.feed(rows), fetch_list=[avg_cost])[0])
    table = np.array(fluid.global_scope().find_var("shared_w").get_tensor())
    return {"losses": losses, "table": table}


@script
def recommender_system(fluid):
    """Features of a user and of a film, compared by their cosine."""
    state = np.random.RandomState(4)

    def features(name, size):
        number = fluid.data(name=name, shape=[None, 1], dtype="int64")
        table = fluid.layers.embedding(
            input=number, size=[size, 8], dtype="float32", param_attr=name + "_table", is_sparse=True
        )
        return fluid.layers.fc(input=table, size=8)

    user = fluid.layers.concat([features("user_id", 10), features("gender_id", 2), features("age_id", 5)], axis=1)
    user = fluid.layers.fc(input=user, size=12, act="tanh")
    film = fluid.layers.concat([features("movie_id", 20), features("category_id", 4)], axis=1)
    film = fluid.layers.fc(input=film, size=12, act="tanh")
    inference = fluid.layers.cos_sim(X=user, Y=film)
    scale_infer = fluid.layers.scale(x=inference, scale=5.0)
    label = fluid.data(name="score", shape=[None, 1], dtype="float32")
    avg_cost = fluid.layers.mean(fluid.layers.square_error_cost(input=scale_infer, label=label))
    fluid.optimizer.SGD(learning_rate=0.2).minimize(avg_cost)

    exe = begin(fluid)
    losses = []
    for _ in range(5):
        feed = {
            name: state.randint(0, size, (9, 1)).astype("int64")
            for name, size in [("user_id", 10), ("gender_id", 2), ("age_id", 5), ("movie_id", 20), ("category_id", 4)]
        }
        feed["score"] = state.randint(1, 6, (9, 1)).astype("float32")
        losses.append(exe.run(fluid.default_main_program(), feed=feed, fetch_list=[avg_cost])[0])
    return {"losses": losses}


@script
def dc_gan(fluid):
    """Two programs that train parameters of each other's networks, picked by name."""
    g_program, d_program, g_start, d_start = fluid.Program(), fluid.Program(), fluid.Program(), fluid.Program()

    def bn(x, name, act=None):
        return fluid.layers.batch_norm(
            x,
            param_attr=name + "1",
            bias_attr=name + "2",
            moving_mean_name=name + "3",
            moving_variance_name=name + "4",
            name=name,
            act=act,
        )

    def conv(x, num_filters, name, act=None):
        return fluid.nets.simple_img_conv_pool(
            input=x,
            filter_size=3,
            num_filters=num_filters,
            pool_size=2,
            pool_stride=2,
            param_attr=name + "w",
            bias_attr=name + "b",
            act=act,
        )

    def fc(x, num_filters, name, act=None):
        return fluid.layers.fc(input=x, size=num_filters, act=act, param_attr=name + "w", bias_attr=name + "b")

    def deconv(x, num_filters, name, filter_size=5, stride=2, padding=2, output_size=None, act=None):
        return fluid.layers.conv2d_transpose(
            input=x,
            param_attr=name + "w",
            bias_attr=name + "b",
            num_filters=num_filters,
            output_size=output_size,
            filter_size=filter_size,
            stride=stride,
            padding=padding,
            act=act,
        )

    def D(x):
        x = fluid.layers.reshape(x=x, shape=[-1, 1, 12, 12])
        x = conv(x, 4, act="leaky_relu", name="d_conv1")
        x = bn(fc(x, 10, name="d_fc1"), act="leaky_relu", name="d_bn2")
        return fc(x, 1, act="sigmoid", name="d_fc2")

    def G(x):
        x = bn(fc(x, 4 * 3 * 3, name="g_fc"), act="relu", name="g_bn")
        x = fluid.layers.reshape(x, [-1, 4, 3, 3])
        x = deconv(x, num_filters=4, act="relu", output_size=[6, 6], name="g_deconv1")
        x = deconv(x, num_filters=1, filter_size=5, padding=2, act="tanh", output_size=[12, 12], name="g_deconv2")
        return fluid.layers.reshape(x, shape=[-1, 144])

    def loss(x, label):
        return fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(x=x, label=label))

    with fluid.program_guard(d_program, d_start):
        img = fluid.data("img", [None, 144], "float32")
        label = fluid.data("label", [None, 1], "float32")
        d_loss = loss(D(img), label)
        names = [p.name for p in d_program.global_block().all_parameters() if p.name.startswith("d")]
        fluid.optimizer.Adam(learning_rate=2e-3).minimize(d_loss, parameter_list=names)
    with fluid.program_guard(g_program, g_start):
        noise = fluid.data("noise", [None, 7], "float32")
        g_img = G(noise)
        g_program_test = g_program.clone(for_test=True)
        dg_logit = D(g_img)
        ones = fluid.layers.fill_constant_batch_size_like(noise, dtype="float32", shape=[-1, 1], value=1)
        dg_loss = loss(dg_logit, ones)
        names = [p.name for p in g_program.global_block().all_parameters() if p.name.startswith("g")]
        fluid.optimizer.Adam(learning_rate=2e-3).minimize(dg_loss, parameter_list=names)

    begin(fluid, d_program, d_start)
    exe = begin(fluid, g_program, g_start)
    state = np.random.RandomState(5)
    found = {"d": [], "g": []}
    for _ in range(3):
        draw = state.uniform(-1, 1, (6, 7)).astype("float32")
        fake = exe.run(g_program_test, feed={"noise": draw}, fetch_list=[g_img])[0]
        real = state.uniform(-1, 1, (6, 144)).astype("float32")
        for images, value in ((real, 1), (fake, 0)):
            feed = {"img": images, "label": np.full((6, 1), value, "float32")}
            found["d"].append(exe.run(d_program, feed=feed, fetch_list=[d_loss])[0])
        found["g"].append(exe.run(g_program, feed={"noise": draw}, fetch_list=[dg_loss])[0])
    return found


@script
def sentiment_rnn(fluid):
    """understand_sentiment for padded sentences: a StaticRNN, its clip, and a model that is saved and loaded."""
    length, size, dims = 5, 25, 8
    words = fluid.data(name="words", shape=[None, length], dtype="int64")
    label = fluid.data(name="label", shape=[None, 1], dtype="int64")
    emb = fluid.embedding(input=words, size=[size, dims])
    steps = fluid.layers.transpose(emb, [1, 0, 2])
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(steps)
        prev = rnn.memory(shape=[-1, 10], batch_ref=word, init_value=0.0)
        hidden = fluid.layers.fc(input=[word, prev], size=10, act="tanh")
        rnn.update_memory(prev, hidden)
        rnn.step_output(hidden)
    last = fluid.layers.slice(rnn(), axes=[0], starts=[length - 1], ends=[length])
    last = fluid.layers.squeeze(last, axes=[0])
    predict = fluid.layers.fc(input=last, size=2, act="softmax")
    avg_cost = fluid.layers.mean(fluid.layers.cross_entropy(input=predict, label=label))
    acc = fluid.layers.accuracy(input=predict, label=label)
    clip = fluid.clip.GradientClipByGlobalNorm(clip_norm=0.5)
    fluid.optimizer.Adagrad(learning_rate=0.02, grad_clip=clip).minimize(avg_cost)

    exe = begin(fluid)
    state = np.random.RandomState(6)
    found = {"losses": [], "accuracies": []}
    for _ in range(4):
        sentences = state.randint(0, size, (8, length)).astype("int64")
        feed = {"words": sentences, "label": (sentences[:, :1] > 12).astype("int64")}
        loss, accuracy = exe.run(feed=feed, fetch_list=[avg_cost, acc])
        found["losses"].append(loss)
        found["accuracies"].append(accuracy)
    return found


@script
def sentiment_lstm(fluid):
    """Stacked layers.rnn with LSTMCell over padded sentences, with their lengths."""
    length, size, dims = 6, 20, 5
    words = fluid.data(name="words", shape=[None, length], dtype="int64")
    lengths = fluid.data(name="lengths", shape=[None], dtype="int64")
    label = fluid.data(name="label", shape=[None, 1], dtype="float32")
    x = fluid.embedding(input=words, size=[size, dims])
    for name in ("first", "second"):
        cell = fluid.layers.LSTMCell(hidden_size=dims, name=name)
        x, _ = fluid.layers.rnn(cell=cell, inputs=x, sequence_length=lengths, is_reverse=name == "second")
    pooled = fluid.layers.reduce_max(x, dim=1)
    logit = fluid.layers.fc(pooled, size=1)
    avg_cost = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(logit, label))
    fluid.optimizer.RMSProp(learning_rate=0.01, centered=True, momentum=0.5).minimize(avg_cost)

    exe = begin(fluid)
    state = np.random.RandomState(7)
    losses = []
    for _ in range(3):
        sentences = state.randint(0, size, (6, length)).astype("int64")
        feed = {"words": sentences, "lengths": state.randint(1, length + 1, 6).astype("int64")}
        feed["label"] = (sentences[:, :1] > 10).astype("float32")
        losses.append(exe.run(feed=feed, fetch_list=[avg_cost])[0])
    return {"losses": losses}


@script
def attention(fluid):
    """Self-attention with several heads, a gated unit, and a scheduled learning rate."""
    x = fluid.data("x", [None, 4, 12], "float32")
    y = fluid.data("y", [None, 4, 6], "float32")
    heads = fluid.nets.scaled_dot_product_attention(x, x, x, num_heads=3)
    one = fluid.nets.scaled_dot_product_attention(x, heads, heads)
    out = fluid.nets.glu(fluid.layers.fc(one, 12, num_flatten_dims=2), dim=-1)
    loss = fluid.layers.reduce_mean(fluid.layers.square(out - y))
    rate = fluid.layers.learning_rate_scheduler.noam_decay(12, 3)
    fluid.optimizer.Adam(learning_rate=rate, beta1=0.8, epsilon=1e-6).minimize(loss)

    exe = begin(fluid)
    state = np.random.RandomState(8)
    losses, outs = [], []
    for _ in range(4):
        feed = {"x": state.standard_normal((3, 4, 12)).astype("float32")}
        feed["y"] = feed["x"][:, :, ::2] * 0.5
        found = exe.run(feed=feed, fetch_list=[loss, out])
        losses.append(found[0])
        outs.append(found[1])
    return {"losses": losses, "outs": outs}


@script
def training_and_deployment(fluid):
    """A schedule with a warm-up, smoothed labels, averages; saving, going on, and a model for inference."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        img = fluid.layers.data(name="img", shape=[1, 8, 8], dtype="float32")
        label = fluid.layers.data(name="label", shape=[1], dtype="int64")
        hidden = fluid.layers.batch_norm(fluid.layers.dropout(fluid.layers.conv2d(img, 4, 3, act="relu"), 0.0))
        pred = fluid.layers.fc([fluid.layers.pool2d(hidden, 2, "max", 2)], size=10, act="softmax")
        smooth = fluid.layers.label_smooth(fluid.layers.one_hot(label, 10), epsilon=0.1)
        loss = fluid.layers.mean(fluid.layers.cross_entropy(pred, smooth, soft_label=True))
        acc1, acc5 = fluid.layers.accuracy(pred, label, k=1), fluid.layers.accuracy(input=pred, label=label, k=5)
        test = main.clone(for_test=True)
        rate = fluid.layers.linear_lr_warmup(fluid.layers.cosine_decay(0.1, 2, 3), 2, 0.0, 0.1)
        regularizer = fluid.regularizer.L2DecayRegularizer(1e-4)
        fluid.optimizer.Momentum(rate, 0.9, regularization=regularizer).minimize(loss)
        average = fluid.optimizer.ExponentialMovingAverage(0.9)
        average.update()
    exe = begin(fluid, main, startup)
    rows, metric = pictures(40, 1, 8, 10), fluid.metrics.Accuracy()
    feeder = fluid.DataFeeder(feed_list=["img", "label"], place=fluid.CPUPlace(), program=main)
    found = {"steps": []}
    with tempfile.TemporaryDirectory() as folder:
        for step in range(5):
            feed = feeder.feed(rows[8 * step : 8 * step + 8])
            values = exe.run(main, feed=feed, fetch_list=[loss, acc1, acc5, rate])
            found["steps"].append(np.concatenate(values))
            metric.update(value=values[1], weight=8)
            if step == 2:
                fluid.io.save_persistables(exe, folder + "/kept", main)
        found["metric"] = float(np.asarray(metric.eval()).ravel()[0])
        with average.apply(exe):
            found["averaged"] = exe.run(test, feed=feeder.feed(rows[:4]), fetch_list=[pred.name])[0]
        fluid.io.load_persistables(exe, folder + "/kept", main)
        found["again"] = exe.run(main, feed=feeder.feed(rows[24:32]), fetch_list=[loss])[0]
        fluid.io.save_inference_model(folder + "/model", ["img"], [pred], exe, main, "model", "params")
        with fluid.scope_guard(fluid.Scope()):
            program, names, targets = fluid.io.load_inference_model(folder + "/model", exe, "model", "params")
            images = np.stack([image for image, _ in rows[:3]])
            found["inferred"] = exe.run(program, feed={names[0]: images}, fetch_list=targets)[0]
    return found


@script
def many_layers(fluid):
    """Layers of every kind in one model, which is clipped as a whole."""
    layers = fluid.layers
    x = layers.data("x", [4], dtype="float32")
    words = layers.embedding(layers.data("ids", [5, 1], dtype="int64"), size=[20, 6], padding_idx=0)
    hidden = layers.layer_norm(layers.fc(input=[x, layers.reduce_mean(words, dim=1)], size=8, act="tanh"))
    pair = layers.transpose(layers.stack(layers.split(hidden, 2, dim=-1), axis=1), [0, 2, 1])
    likeness = layers.softmax(layers.matmul(pair, pair, transpose_y=True, alpha=0.5))
    flat = layers.reshape(likeness, [-1, 16])
    flat = layers.elementwise_add(flat, layers.create_parameter([16], "float32", name="shift", is_bias=True))
    flat = layers.clip(layers.l2_normalize(flat, axis=1), -0.5, 0.5)
    twice = layers.reduce_sum(layers.expand(layers.unsqueeze(flat, [1]), [1, 2, 1]), dim=[1])
    top, places = layers.topk(twice, 3)
    target = layers.reduce_sum(x, dim=1, keep_dim=True)
    loss = layers.mean(layers.huber_loss(layers.fc(twice, 1), target, 1.0))
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.7))
    fluid.optimizer.AdamaxOptimizer(0.02).minimize(loss)
    exe, state = begin(fluid), np.random.RandomState(3)
    found = {"losses": [], "top": [], "places": []}
    for _ in range(4):
        feed = {"x": state.rand(6, 4).astype("float32"), "ids": state.randint(0, 20, (6, 5, 1)).astype("int64")}
        for key, value in zip(("losses", "top", "places"), exe.run(feed=feed, fetch_list=[loss, top, places])):
            found[key].append(value)
    return found


@script
def loaders(fluid):
    """The same training with a loop over a DataLoader, with one that feeds the program, and with PyReader."""
    rows = [(x.ravel()[:6], x.sum() > 0) for x, _ in pictures(22, 1, 3, 2, seed=9)]

    def samples():
        for x, y in rows:
            yield x, [int(y)]

    found = {}
    for kind in ("loop", "feeding", "reader"):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup):
            x = fluid.data("x", [None, 6], "float32")
            y = fluid.data("y", [None, 1], "int64")
            if kind == "reader":
                loader = fluid.io.PyReader(feed_list=[x, y], capacity=4)
                loader.decorate_sample_list_generator(fluid.io.batch(samples, 5), fluid.cpu_places())
            else:
                loader = fluid.io.DataLoader.from_generator(
                    feed_list=[x, y], capacity=4, iterable=kind == "loop", use_double_buffer=True
                )
                loader.set_sample_generator(samples, batch_size=5, drop_last=kind == "loop", places=fluid.cpu_places())
            predict = fluid.layers.fc(x, 2, act="softmax", param_attr="w", bias_attr="b")
            loss = fluid.layers.mean(fluid.layers.cross_entropy(predict, y))
            fluid.optimizer.SGD(0.5).minimize(loss)
        exe = begin(fluid, main, startup)
        losses = found[kind] = []
        for _ in range(2):
            if kind == "feeding":
                loader.start()
                try:
                    while True:
                        losses.append(exe.run(main, fetch_list=[loss])[0])
                except fluid.core.EOFException:
                    loader.reset()
            else:
                for data in loader():
                    losses.append(exe.run(main, feed=data, fetch_list=[loss])[0])
    return found


@script
def py_readers(fluid):
    """Training from layers.py_reader, and from one for variables that there are."""
    rows = [(x.ravel()[:6], [int(x.sum() > 0)]) for x, _ in pictures(17, 1, 3, 2, seed=9)]
    found = {}
    for kind in ("own", "given"):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup):
            if kind == "own":
                reader = fluid.layers.py_reader(capacity=4, shapes=[(-1, 6), (-1, 1)], dtypes=["float32", "int64"])
            else:
                x = fluid.layers.data("x", [6], dtype="float32")
                y = fluid.layers.data("y", [1], dtype="int64")
                reader = fluid.layers.create_py_reader_by_data(capacity=4, feed_list=[x, y])
            reader.decorate_paddle_reader(fluid.io.batch(lambda: iter(rows), 5))
            x, y = fluid.layers.read_file(reader)
            predict = fluid.layers.fc(x, 2, act="softmax", param_attr="w", bias_attr="b")
            loss = fluid.layers.mean(fluid.layers.cross_entropy(predict, y))
            fluid.optimizer.SGD(0.5).minimize(loss)
        exe = begin(fluid, main, startup)
        found[kind] = []
        for _ in range(2):
            reader.start()
            try:
                while True:
                    found[kind].append(exe.run(main, fetch_list=[loss.name])[0])
            except fluid.core.EOFException:
                reader.reset()
    return found


@script
def weight_norm(fluid):
    """Weights with lengths of their own, over each dimension."""
    found = {}
    for dim in (None, 0, 1, 2):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup):
            x = fluid.data("x", [None, 2, 5, 5], "float32")
            attr = fluid.WeightNormParamAttr(
                dim=dim,
                name="w",
                initializer=fluid.initializer.NumpyArrayInitializer(waves("w", [3, 2, 3, 2]).astype("float32")),
                regularizer=fluid.regularizer.L2Decay(0.01),
            )
            y = fluid.layers.conv2d(x, num_filters=3, filter_size=[3, 2], param_attr=attr, bias_attr=False)
            if dim is None:
                y = fluid.layers.fc(y, 2, param_attr=fluid.WeightNormParamAttr(dim=1, name="fc"))
            loss = fluid.layers.reduce_mean(fluid.layers.square(y - 1.0))
            fluid.optimizer.SGD(0.5).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        tensor = fluid.global_scope().find_var("w_g").get_tensor()
        found[f"start/{dim}"] = np.array(tensor)
        if dim is None:
            begin(fluid, main, startup)
        feed = {"x": waves("x", [2, 2, 5, 5]).astype("float32")}
        found[f"losses/{dim}"] = [exe.run(main, feed=feed, fetch_list=[loss])[0] for _ in range(3)]
        for name in "gv":
            found[f"{name}/{dim}"] = np.array(fluid.global_scope().find_var("w_" + name).get_tensor())
    return found


@script
def layers_of_users(fluid):
    """A layer and start values that users write with LayerHelper and Initializer, and a schedule of their own."""

    class Ramp(fluid.initializer.Initializer):
        def __init__(self, step):
            super().__init__()
            self._step = step

        def __call__(self, var, block):
            values = self._step * np.arange(np.prod(var.shape), dtype="float32")
            op = block._prepend_op(
                type="assign_value",
                outputs={"Out": [var]},
                attrs={"dtype": int(var.dtype), "shape": list(var.shape), "fp32_values": values.tolist()},
                stop_gradient=True,
            )
            return op

    def bilinear(input, size, param_attr=None, bias_attr=None, act=None, name=None):
        helper = fluid.layer_helper.LayerHelper("bilinear", **locals())
        dtype = helper.input_dtype()
        parts = []
        for var, attr in helper.iter_inputs_and_params():
            weight = helper.create_parameter(attr=attr, shape=[var.shape[1], size], dtype=dtype, is_bias=False)
            out = helper.create_variable_for_type_inference(dtype)
            helper.append_op(
                type="mul",
                inputs={"X": var, "Y": weight},
                outputs={"Out": out},
                attrs={"x_num_col_dims": 1, "y_num_col_dims": 1},
            )
            parts.append(out)
        product = helper.create_variable_for_type_inference(dtype=dtype)
        helper.append_op(type="elementwise_mul", inputs={"X": [parts[0]], "Y": [parts[1]]}, outputs={"Out": [product]})
        biased = helper.append_bias_op(product, dim_start=1)
        return helper.append_activation(biased)

    def rising_rate(start):
        step = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="step")
        with fluid.default_main_program()._lr_schedule_guard():
            fluid.layers.increment(step, 1.0)
            return step * start

    x = fluid.data("x", [None, 3], "float32")
    y = fluid.data("y", [None, 4], "float32")
    target = fluid.data("target", [None, 2], "float32")
    attrs = [fluid.ParamAttr(initializer=Ramp(0.05)), fluid.ParamAttr(name="second", initializer=Ramp(-0.1))]
    out = bilinear([x, y], 2, param_attr=attrs, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, target))
    fluid.optimizer.SGD(rising_rate(0.1)).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {name: waves(name, [5, size]).astype("float32") for name, size in (("x", 3), ("y", 4), ("target", 2))}
    return {"losses": [exe.run(feed=feed, fetch_list=[loss])[0] for _ in range(4)]}


@script
def distributions(fluid):
    """Entropies and divergences, and gradients of both."""
    main = fluid.Program()
    with fluid.program_guard(main):
        a = fluid.data("a", [2, 3], "float32")
        b = fluid.data("b", [2, 3], "float32")
        mean = fluid.data("mean", [2], "float32")
        variance = fluid.data("variance", [2, 2], "float32")
        given = [a, b, mean, variance]
        for var in given:
            var.stop_gradient = False
        first, second = fluid.layers.Categorical(a), fluid.layers.Categorical(b)
        wide = fluid.layers.MultivariateNormalDiag(mean, variance)
        # Of arrays fluid makes a mean of the shape of the matrix.
        other = fluid.layers.MultivariateNormalDiag(
            fluid.layers.assign(np.array([0.2, 0.4], "float32")),
            fluid.layers.assign(np.array([[0.3, 0], [0, 0.4]], "float32")),
        )
        results = [first.entropy(), first.kl_divergence(second), wide.entropy(), wide.kl_divergence(other)]
        total = fluid.layers.reduce_sum(results[0]) + fluid.layers.reduce_sum(results[1]) + results[2] + results[3]
        gradients = fluid.gradients(total, given[:3])
    feed = {"a": waves("a", [2, 3]).astype("float32"), "b": waves("b", [2, 3]).astype("float32")}
    feed["mean"] = np.array([0.3, 0.5], "float32")
    feed["variance"] = np.array([[0.4, 0], [0, 0.5]], "float32")
    values = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=results + gradients)
    return {str(number): value for number, value in enumerate(values)}


def _strategies(fluid):  # noqa: C901, a class each
    """Classes as users derive them from fluid's."""
    layers = fluid.layers

    class ClipByMean(fluid.clip.GradientClipBase):
        """Divide each gradient by the mean of its magnitudes, where that is above a limit."""

        def __init__(self, limit, need_clip=None):
            super().__init__(need_clip)
            self.limit = limit

        def __str__(self):
            return f"Gradient Clip By Mean, limit={self.limit}"

        def _clipped(self, grad):
            mean = layers.reduce_mean(layers.abs(grad), keep_dim=True)
            limit = layers.fill_constant([1], "float32", self.limit)
            factor = limit / layers.elementwise_max(layers.reshape(mean, [1]), limit)
            return layers.elementwise_mul(grad, factor)

        def _static_clip(self, params_grads):
            found = []
            with fluid.name_scope("gradient_clip"):
                for param, grad in params_grads:
                    if grad is None:
                        continue
                    if self._need_clip_func is not None and not self._need_clip_func(param):
                        found.append((param, grad))
                        continue
                    with param.block.program._optimized_guard([param, grad]):
                        found.append((param, self._clipped(grad)))
            return found

        def _process_context(self, context, param, grad):
            self.seen = context.setdefault("seen", [])
            self.seen.append(param.name)

        def _create_operators(self, param, grad):
            assert len(self.seen) > 1
            return param, self._clipped(grad)

    class Halved(fluid.clip.GradientClipByGlobalNorm):
        """Half of what a global norm leaves."""

        def _static_clip(self, params_grads):
            clipped = super()._static_clip(params_grads)
            with fluid.default_main_program()._optimized_guard(clipped[0]):
                return [(param, layers.scale(grad, 0.5)) for param, grad in clipped]

    class CubicDecay(fluid.regularizer.WeightDecayRegularizer):
        """A penalty on the fourth power."""

        def __init__(self, coeff):
            super().__init__()
            self._coeff = coeff

        def __call__(self, param, grad, block):
            decay = block.create_var(name=param.name + "_cube", dtype=param.dtype, shape=param.shape)
            block.append_op(type="pow", inputs={"X": param}, outputs={"Out": decay}, attrs={"factor": 3.0})
            block.append_op(type="scale", inputs={"X": decay}, outputs={"Out": decay}, attrs={"scale": self._coeff})
            return decay

        def __str__(self):
            return "CubicDecay"

    class SignMomentum(fluid.optimizer.Optimizer):
        """Steps of one size, by the sign of a running mean of the gradients."""

        def __init__(self, learning_rate, beta, **options):
            super().__init__(learning_rate=learning_rate, **options)
            self.type = "sign_momentum"
            self._beta = beta

        def _create_accumulators(self, block, parameters):
            assert isinstance(block, fluid.framework.Block)
            for param in parameters:
                self._add_accumulator("mean", param)
                self._add_accumulator("count", param, fill_value=1.0, shape=[1])

        def _append_optimize_op(self, block, param_and_grad):
            param, grad = param_and_grad
            mean = self._get_accumulator("mean", param)
            rate = self._create_param_lr(param_and_grad)
            old = layers.scale(mean, self._beta)
            new = layers.elementwise_add(old, layers.scale(grad, 1.0 - self._beta))
            layers.assign(new, mean)
            return block.append_op(
                type="sgd",
                inputs={"Param": param, "Grad": layers.sign(new), "LearningRate": rate},
                outputs={"ParamOut": param},
            )

        def _finish_update(self, block, parameters_and_grads):
            for param, _ in parameters_and_grads:
                count = self._get_accumulator("count", param)
                block.append_op(type="scale", inputs={"X": count}, outputs={"Out": count}, attrs={"scale": 2.0})

    return ClipByMean, Halved, CubicDecay, SignMomentum


@script
def strategies_of_users(fluid):
    """A clip, a decay and an optimizer that users derive from fluid's classes, in each of the ways to ask for them."""
    clip_by_mean, halved, cubic_decay, sign_momentum = _strategies(fluid)
    rows = [(x.ravel()[:6], x.sum() > 0) for x, _ in pictures(20, 1, 3, 2, seed=9)]
    feed = {"x": np.stack([x for x, _ in rows]), "y": np.array([[int(y)] for _, y in rows])}
    found = {}
    for kind in ("optimizer", "picked", "set", "super", "decay", "update"):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup):
            x = fluid.data("x", [None, 6], "float32")
            y = fluid.data("y", [None, 1], "int64")
            hidden = fluid.layers.fc(x, 5, act="tanh", param_attr="w0", bias_attr="b0")
            predict = fluid.layers.fc(hidden, 2, act="softmax", param_attr="w1", bias_attr="b1")
            loss = fluid.layers.mean(fluid.layers.cross_entropy(predict, y))
            clip, decay = None, None
            if kind == "optimizer":
                clip = clip_by_mean(0.01)
            elif kind == "picked":
                clip = clip_by_mean(0.01, need_clip=lambda param: param.name.startswith("w"))
            elif kind == "super":
                clip = halved(0.1)
            elif kind == "set":
                fluid.clip.set_gradient_clip(clip_by_mean(0.02))
            elif kind == "decay":
                decay = cubic_decay(0.3)
            if kind == "update":
                optimizer = sign_momentum(0.05, 0.7, regularization=fluid.regularizer.L2Decay(0.01))
            else:
                optimizer = fluid.optimizer.Momentum(0.5, 0.9, regularization=decay, grad_clip=clip)
            optimizer.minimize(loss)
        exe = begin(fluid, main, startup)
        found[kind] = [exe.run(main, feed=feed, fetch_list=[loss])[0] for _ in range(4)]
        if kind == "update":
            count = optimizer._get_accumulator("count", main.global_block().var("w0"))
            found["counts"] = np.array(fluid.global_scope().find_var(count.name).get_tensor())
    return found


def _renamed_copy(source, target, prefix, kept):
    """Append the operators of a program to another one, with `prefix` before the names of all variables but `kept`."""
    for block in source.blocks:
        for var in list(block.vars.values()):
            if var.name not in kept:
                block._rename_var(var.name, prefix + var.name)
    for var in source.list_vars():
        if var.name not in kept:
            target.global_block()._clone_variable(var, force_persistable=False).stop_gradient = True
    block = source.global_block()
    for op in block.ops:
        target.global_block().append_op(
            type=op.type,
            inputs={slot: [block.var(name) for name in op.input(slot)] for slot in op.input_names},
            outputs={slot: [block.var(name) for name in op.output(slot)] for slot in op.output_names},
            attrs={name: op.attr(name) for name in op.attr_names},
        )


@script
def distillation(fluid):
    """A teacher whose operators are copied into the program of its student, with other names."""
    layers = fluid.layers

    def net(width, dropout):
        image = fluid.data("image", [None, 1, 6, 6])
        hidden = layers.batch_norm(layers.conv2d(image, width, 3, padding=1), act="relu")
        return hidden, layers.fc(layers.dropout(hidden, dropout), 5)

    teacher, start = fluid.Program(), fluid.Program()
    with fluid.program_guard(teacher, start), fluid.unique_name.guard():
        maps, scores = [var.name for var in net(4, 0.3)]
    exe = begin(fluid, teacher, start)
    learned = {
        var.name: np.array(fluid.global_scope().find_var(var.name).get_tensor())
        for var in teacher.list_vars()
        if var.persistable
    }
    student = fluid.default_main_program()
    with fluid.unique_name.guard():
        own_maps, own_scores = net(3, 0.0)
        _renamed_copy(teacher.clone(for_test=True), student, "teacher_", ["image"])
        block, label = student.global_block(), fluid.data("label", [None, 1], "int64")
        maps, scores = block.var("teacher_" + maps), block.var("teacher_" + scores)
        matrices = layers.fsp_matrix(own_maps, own_maps), layers.fsp_matrix(maps, layers.slice(maps, [1], [0], [3]))
        matrices = (
            layers.reduce_sum(matrices[0], dim=1),
            layers.slice(layers.reduce_sum(matrices[1], dim=1), [1], [0], [3]),
        )
        soft = layers.mean(
            layers.cross_entropy(layers.softmax(own_scores / 2.0), layers.softmax(scores / 2.0), soft_label=True)
        )
        hard = layers.mean(layers.softmax_with_cross_entropy(own_scores, label))
        loss = hard + soft + layers.reduce_mean(layers.square_error_cost(*matrices))
        fluid.optimizer.Momentum(0.02, 0.9, regularization=fluid.regularizer.L2Decay(4e-5)).minimize(loss)
    begin(fluid)
    for name, value in learned.items():
        fluid.global_scope().var("teacher_" + name).get_tensor().set(value, fluid.CPUPlace())
    feed = {"image": waves("image", [4, 1, 6, 6]).astype("float32"), "label": np.arange(4).reshape(4, 1)}
    losses = [exe.run(student, feed=feed, fetch_list=[loss, soft]) for _ in range(4)]
    return {"losses": losses, "kept": np.array(fluid.global_scope().find_var("teacher_fc_0.w_0").get_tensor())}


@script
def language_model(fluid):
    """A stacked LSTM that is written out, whose states go on in fed variables, and a rate that is fed."""
    layers, batch, length, size, words, count = fluid.layers, 3, 4, 5, 11, 2
    x = fluid.data("x", [batch, length, 1], "int64")
    y = fluid.data("y", [batch * length, 1], "int64")
    first = [fluid.data(name, [count, batch, size]) for name in ("init_hidden", "init_cell")]
    for var in first:
        var.persistable = True

    def uniform(name):
        return fluid.ParamAttr(name=name, initializer=fluid.initializer.UniformInitializer(low=-0.1, high=0.1))

    table = layers.embedding(x, size=[words, size], param_attr=uniform("table"))
    steps = layers.split(layers.reshape(table, [-1, length, size]), num_or_sections=length, dim=1)
    hidden, cell = (
        [layers.reshape(layers.slice(var, [0], [i], [i + 1]), [-1, size]) for i in range(count)] for var in first
    )
    weights = [layers.create_parameter([2 * size, 4 * size], "float32", attr=uniform(f"w{i}")) for i in range(count)]
    biases = [
        layers.create_parameter(
            [4 * size], "float32", name=f"b{i}", default_initializer=fluid.initializer.Constant(0.0)
        )
        for i in range(count)
    ]
    outputs = []
    for step in steps:
        row = layers.reshape(step, [-1, size])
        for k in range(count):
            gates = layers.elementwise_add(layers.matmul(layers.concat([row, hidden[k]], 1), weights[k]), biases[k])
            i, j, f, o = layers.split(gates, num_or_sections=4, dim=-1)
            cell[k] = cell[k] * layers.sigmoid(f) + layers.sigmoid(i) * layers.tanh(j)
            row = hidden[k] = layers.tanh(cell[k]) * layers.sigmoid(o)
        outputs.append(layers.reshape(row, [1, -1, size]))
    output = layers.transpose(layers.concat(outputs, 0), perm=[1, 0, 2])
    last = [
        layers.transpose(layers.reshape(layers.concat(states, 1), [-1, count, size]), perm=[1, 0, 2])
        for states in (hidden, cell)
    ]
    scores = layers.reshape(layers.fc(output, words, num_flatten_dims=2), [-1, words])
    loss = layers.reshape(layers.softmax_with_cross_entropy(scores, y), [-1, length])
    loss = layers.reduce_sum(layers.reduce_mean(loss, dim=[0]))
    loss.permissions = True
    for value, var in zip(last, first):
        layers.assign(value, var)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.clip.set_gradient_clip(clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=0.5))
    rate = layers.create_global_var(name="rate", shape=[1], value=1.0, dtype="float32", persistable=True)
    fluid.optimizer.SGD(learning_rate=rate).minimize(loss)

    exe, state, found = begin(fluid), np.random.RandomState(6), {"losses": [], "rates": []}
    feed = {var.name: np.zeros([count, batch, size], "float32") for var in first}
    for step in range(5):
        feed["x"], feed["y"] = state.randint(0, words, (batch, length, 1)), state.randint(0, words, (batch * length, 1))
        feed["rate"] = np.array([0.8**step], "float32")
        value, used, feed["init_hidden"], feed["init_cell"] = exe.run(
            feed=feed, fetch_list=[loss.name, "rate", last[0].name, last[1].name], use_program_cache=True
        )
        found["losses"].append(value)
        found["rates"].append(used)
    del feed["rate"]
    found["test"] = exe.run(test_program, feed=feed, fetch_list=[loss.name])[0]
    found["cells"] = feed["init_cell"]
    return found


@script
def graph_attention(fluid):
    """Messages along the edges of a graph, which variables of the program hold, weighted by a softmax at each node."""
    layers, inits = fluid.layers, {}
    edges = np.array([[3, 0], [0, 1], [1, 2], [3, 2], [0, 3], [2, 3]])
    offsets = [0, *(int(end) for end in np.cumsum(np.bincount(edges[:, 1], minlength=4)))]

    def constant(name, value):
        var = layers.create_global_var(shape=value.shape, value=0, dtype=value.dtype, name=name, persistable=True)
        var.stop_gradient = True
        var.desc.set_shape([-1] + list(value.shape[1:]))
        inits[name] = value
        return var

    source, target = constant("source", edges[:, 0]), constant("target", edges[:, 1])
    features = constant("features", waves("features", [4, 3]).astype("float32"))
    hidden = layers.fc(features, 8, bias_attr=False)
    heads = layers.reshape(hidden, [-1, 2, 4])
    scores = [
        layers.reduce_sum(heads * layers.create_parameter([1, 2, 4], "float32", name), dim=-1)
        for name in ("from", "to")
    ]
    weight = layers.leaky_relu(layers.gather(scores[0], source) + layers.gather(scores[1], target), alpha=0.2)
    weight = layers.lod_reset(weight, target_lod=offsets)
    weight = layers.exp(weight - layers.sequence_expand_as(layers.sequence_pool(weight, "max"), weight))
    weight = weight / layers.sequence_expand_as(layers.sequence_pool(weight, "sum"), weight)
    message = layers.elementwise_mul(layers.reshape(layers.gather(hidden, source), [-1, 2, 4]), weight, axis=0)
    message = layers.lod_reset(layers.reshape(message, [-1, 8]), target_lod=offsets)
    output = layers.fc(layers.relu(layers.sequence_pool(message, "sum")), 2)
    nodes = layers.data("nodes", [None, 1], dtype="int64", append_batch_size=False)
    label = layers.data("label", [None, 1], dtype="int64", append_batch_size=False)
    loss, predict = layers.softmax_with_cross_entropy(layers.gather(output, nodes), label, return_softmax=True)
    loss = layers.mean(loss)
    fluid.optimizer.Adam(0.05, regularization=fluid.regularizer.L2DecayRegularizer(0.0005)).minimize(loss)
    exe = begin(fluid)
    for name, value in inits.items():
        fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())
    feed = {"nodes": np.array([[0], [2], [3]]), "label": np.array([[0], [1], [1]])}
    losses, predictions = zip(*[exe.run(feed=feed, fetch_list=[loss, predict]) for _ in range(5)])
    return {"losses": losses, "predictions": predictions}


def record(names):
    """Run scripts with Paddle, and write what they give beside what is recorded of others."""
    import paddle.fluid

    operators = json.loads((FOLDER / "operators.json").read_text(encoding="utf-8"))
    recorded = dict(np.load(str(FOLDER / "arrays.npz")))
    for name in names:
        arrays, operators[name] = run(paddle.fluid, name)
        print(name, {key: value.ravel()[-1] for key, value in arrays.items()})
        recorded.update({name + "/" + key: value for key, value in arrays.items()})
    golden_arrays.write(FOLDER, recorded, operators)


if __name__ == "__main__":
    record(sys.argv[1:] or SCRIPTS)
