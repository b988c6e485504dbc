"""Large programs in fluid's API, as public code writes them, which run on Paddle 1.8.5 (Python 3.7) too.

Each function of `PROGRAMS` takes the module ``fluid`` and is a generator with one turn for each stage. It yields before
it builds, before it differentiates, and last the programs of a step (pairs of a main program and the variable to
fetch), the startup program, and a function from a batch size to the feed. Networks are narrow, because the number of
their operators is what counts here.
"""

import math

import numpy as np

IMAGE_SIDE = 32


def images(batch, classes=10, side=IMAGE_SIDE):
    rng = np.random.RandomState(batch)
    pictures = rng.uniform(-1, 1, (batch, 3, side, side)).astype("float32")
    return {"image": pictures, "label": rng.randint(0, classes, (batch, 1)).astype("int64")}


def classifier(fluid, network, optimizer):
    """Programs that train `network` on labelled images."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.data("image", [None, 3, IMAGE_SIDE, IMAGE_SIDE])
        label = fluid.data("label", [None, 1], dtype="int64")
        yield
        logits = network(fluid, image)
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))
        yield
        optimizer(fluid).minimize(loss)
    yield [(main, loss)], startup, images


def momentum(fluid):
    rate = fluid.layers.piecewise_decay([1000, 2000], [0.1, 0.01, 0.001])
    return fluid.optimizer.Momentum(rate, 0.9, regularization=fluid.regularizer.L2Decay(1e-4))


# EfficientNet


def conv_bn(fluid, x, filters, size, stride=1, groups=1, act=None, name=None):
    x = fluid.layers.conv2d(
        x, filters, size, stride, padding=(size - 1) // 2, groups=groups, bias_attr=False,
        param_attr=fluid.ParamAttr(name=name + "_weights"),
    )  # fmt: skip
    x = fluid.layers.batch_norm(
        x, momentum=0.99, epsilon=1e-3, param_attr=fluid.ParamAttr(name=name + "_bn_scale"),
        bias_attr=fluid.ParamAttr(name=name + "_bn_offset"), moving_mean_name=name + "_bn_mean",
        moving_variance_name=name + "_bn_variance",
    )  # fmt: skip
    if act == "swish":
        return fluid.layers.swish(x)
    return getattr(fluid.layers, act)(x) if act else x


def squeeze_excitation(fluid, x, squeezed, channels, name):
    y = fluid.layers.pool2d(x, pool_type="avg", global_pooling=True)
    y = fluid.layers.conv2d(y, squeezed, 1, param_attr=fluid.ParamAttr(name=name + "_reduce"))
    y = fluid.layers.swish(y)
    y = fluid.layers.conv2d(y, channels, 1, param_attr=fluid.ParamAttr(name=name + "_expand"))
    return x * fluid.layers.sigmoid(y)


def drop_connect(fluid, x, prob):
    kept = 1.0 - prob
    noise = kept + fluid.layers.uniform_random_batch_size_like(x, [-1, 1, 1, 1], min=0.0, max=1.0)
    return x / kept * fluid.layers.floor(noise)


def inverted_residual(fluid, x, spec, drop, name):
    size, stride, expansion, wide, out = spec
    y, inner = x, wide * expansion
    if expansion != 1:
        y = conv_bn(fluid, y, inner, 1, act="swish", name=name + "_expand")
    y = conv_bn(fluid, y, inner, size, stride, groups=inner, act="swish", name=name + "_depthwise")
    y = squeeze_excitation(fluid, y, max(1, wide // 4), inner, name + "_se")
    y = conv_bn(fluid, y, out, 1, name=name + "_project")
    if stride == 1 and wide == out:
        if drop:
            y = drop_connect(fluid, y, drop)
        y = fluid.layers.elementwise_add(y, x)
    return y


def efficientnet(fluid, x, width=1.0, depth=1.1, scale=4):
    """EfficientNet-B1 with a `scale`-th of its channels."""
    stages = (
        (1, 3, 1, 1, 32, 16), (2, 3, 2, 6, 16, 24), (2, 5, 2, 6, 24, 40), (3, 3, 2, 6, 40, 80),
        (3, 5, 1, 6, 80, 112), (4, 5, 2, 6, 112, 192), (1, 3, 1, 6, 192, 320),
    )  # fmt: skip
    repeats = [math.ceil(depth * stage[0]) for stage in stages]

    def channels(count):
        return max(4, int(width * count) // scale)

    x = conv_bn(fluid, x, channels(32), 3, 2, act="swish", name="stem")
    at = 0
    for count, (_, size, stride, expansion, wide, out) in zip(repeats, stages):
        for i in range(count):
            spec = (size, stride if i == 0 else 1, expansion, channels(wide if i == 0 else out), channels(out))
            x = inverted_residual(fluid, x, spec, 0.2 * at / sum(repeats), f"block_{at}")
            at += 1
    x = conv_bn(fluid, x, channels(1280), 1, act="swish", name="head")
    x = fluid.layers.pool2d(x, pool_type="avg", global_pooling=True)
    return fluid.layers.fc(fluid.layers.dropout(x, 0.2), 10)


def efficientnet_b1(fluid):
    return classifier(fluid, efficientnet, momentum)


# ResNet


def bottleneck(fluid, x, filters, stride, name):
    y = conv_bn(fluid, x, filters, 1, act="relu", name=name + "_a")
    y = conv_bn(fluid, y, filters, 3, stride, act="relu", name=name + "_b")
    y = conv_bn(fluid, y, filters * 4, 1, name=name + "_c")
    if stride != 1 or x.shape[1] != filters * 4:
        x = conv_bn(fluid, x, filters * 4, 1, stride, name=name + "_shortcut")
    return fluid.layers.elementwise_add(x, y, act="relu")


def resnet(depths, narrow=8):
    def network(fluid, x):
        x = conv_bn(fluid, x, 64 // narrow, 7, 2, act="relu", name="conv1")
        x = fluid.layers.pool2d(x, 3, "max", 2, pool_padding=1)
        for stage, depth in enumerate(depths):
            for i in range(depth):
                filters, stride = (64 << stage) // narrow, 2 if i == 0 and stage else 1
                x = bottleneck(fluid, x, filters, stride, f"res{stage}_{i}")
        return fluid.layers.fc(fluid.layers.pool2d(x, pool_type="avg", global_pooling=True), 10)

    return network


def resnet_50(fluid):
    return classifier(fluid, resnet((3, 4, 6, 3)), momentum)


def resnet_101(fluid):
    return classifier(fluid, resnet((3, 4, 23, 3)), momentum)


# Transformer


LENGTH, WIDTH, HEADS, WORDS = 8, 32, 4, 100


def attention(fluid, queries, keys, bias, drop=0.1):
    layers = fluid.layers
    if keys is None:
        keys = queries
    q, k, v = [
        layers.fc(x, WIDTH, num_flatten_dims=2, bias_attr=False) for x in (queries, keys, keys)
    ]  # fmt: skip

    def split(x):
        return layers.transpose(layers.reshape(x, [0, 0, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    q, k, v = split(q), split(k), split(v)
    product = layers.matmul(q, k, transpose_y=True, alpha=(WIDTH // HEADS) ** -0.5)
    if bias is not None:
        product = layers.elementwise_add(product, bias)
    weights = layers.dropout(layers.softmax(product), drop)
    out = layers.transpose(layers.matmul(weights, v), [0, 2, 1, 3])
    return layers.fc(layers.reshape(out, [0, 0, WIDTH]), WIDTH, num_flatten_dims=2, bias_attr=False)


def sublayer(fluid, x, function, drop=0.1):
    """Pre-norm residual: layer_norm, the function, dropout, sum."""
    normed = fluid.layers.layer_norm(x, begin_norm_axis=2)
    return x + fluid.layers.dropout(function(normed), drop)


def feed_forward(fluid, x):
    hidden = fluid.layers.fc(x, 4 * WIDTH, num_flatten_dims=2, act="relu")
    return fluid.layers.fc(fluid.layers.dropout(hidden, 0.1), WIDTH, num_flatten_dims=2)


def embed(fluid, words, positions, name):
    x = fluid.embedding(words, [WORDS, WIDTH], param_attr=fluid.ParamAttr(name=name + "_words"))
    x = fluid.layers.scale(x, WIDTH**0.5)
    place = fluid.embedding(positions, [LENGTH, WIDTH], param_attr=fluid.ParamAttr(name=name + "_places"))
    place.stop_gradient = True
    return fluid.layers.dropout(x + place, 0.1)


def transformer_base(fluid, layers_count=6):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        names = ("source", "source_place", "target", "target_place", "label")
        source, source_place, target, target_place, label = [
            fluid.data(name, [None, LENGTH], dtype="int64") for name in names
        ]
        mask = fluid.data("mask", [None, HEADS, LENGTH, LENGTH])
        yield
        x = embed(fluid, source, source_place, "source")
        for _ in range(layers_count):
            x = sublayer(fluid, x, lambda y: attention(fluid, y, None, mask))
            x = sublayer(fluid, x, lambda y: feed_forward(fluid, y))
        encoded = fluid.layers.layer_norm(x, begin_norm_axis=2)
        x = embed(fluid, target, target_place, "target")
        for _ in range(layers_count):
            x = sublayer(fluid, x, lambda y: attention(fluid, y, None, mask))
            x = sublayer(fluid, x, lambda y: attention(fluid, y, encoded, None))
            x = sublayer(fluid, x, lambda y: feed_forward(fluid, y))
        logits = fluid.layers.fc(fluid.layers.layer_norm(x, begin_norm_axis=2), WORDS, num_flatten_dims=2)
        hot = fluid.layers.label_smooth(fluid.one_hot(label, WORDS), epsilon=0.1)
        cost = fluid.layers.softmax_with_cross_entropy(logits, hot, soft_label=True)
        loss = fluid.layers.reduce_mean(cost)
        yield
        rate = fluid.layers.noam_decay(WIDTH, 4000)
        fluid.optimizer.Adam(rate, 0.9, 0.997, 1e-9).minimize(loss)

    def feed(batch):
        rng = np.random.RandomState(batch)
        ids = {name: rng.randint(0, WORDS, (batch, LENGTH)).astype("int64") for name in ("source", "target", "label")}
        places = np.tile(np.arange(LENGTH, dtype="int64"), (batch, 1))
        mask = np.triu(np.full((LENGTH, LENGTH), -1e9, "float32"), 1)
        mask = np.tile(mask, (batch, HEADS, 1, 1))
        return dict(ids, source_place=places, target_place=places, mask=mask)

    yield [(main, loss)], startup, feed


# STGAN


ATTRIBUTES, CHANNELS, LAYERS = 5, 8, 5


def gan_conv(fluid, x, filters, name, transposed=False, norm=True, act="leaky_relu", stride=2):
    layer = fluid.layers.conv2d_transpose if transposed else fluid.layers.conv2d
    x = layer(
        x, filters, filter_size=4 if stride == 2 else 3, stride=stride, padding=1,
        param_attr=fluid.ParamAttr(name=name + "_w", initializer=fluid.initializer.NormalInitializer(scale=0.02)),
        bias_attr=False if norm else fluid.ParamAttr(name=name + "_b"),
    )  # fmt: skip
    if norm:
        x = fluid.layers.batch_norm(
            x, param_attr=fluid.ParamAttr(name=name + "_scale"), bias_attr=fluid.ParamAttr(name=name + "_offset"),
            moving_mean_name=name + "_mean", moving_variance_name=name + "_variance",
        )  # fmt: skip
    if act == "leaky_relu":
        return fluid.layers.leaky_relu(x, alpha=0.2)
    return getattr(fluid.layers, act)(x) if act else x


def gru_cell(fluid, x, state, channels, name):
    """Selective transfer unit: a gated cell of convolutions."""
    up = gan_conv(fluid, state, channels, name + "_up", transposed=True, norm=False, act=None)
    both = fluid.layers.concat([x, up], 1)
    reset = gan_conv(fluid, both, channels, name + "_reset", act="sigmoid", stride=1)
    update = gan_conv(fluid, both, channels, name + "_update", act="sigmoid", stride=1)
    left = reset * up
    right = gan_conv(fluid, fluid.layers.concat([x, left], 1), channels, name + "_info", act="tanh", stride=1)
    return (1.0 - update) * up + update * right, left


def tiled(fluid, attributes, like):
    shaped = fluid.layers.reshape(attributes, [-1, ATTRIBUTES, 1, 1])
    return fluid.layers.expand(shaped, [1, 1, like.shape[2], like.shape[3]])


def generator(fluid, image, attributes):
    x, encoded = image, []
    for i in range(LAYERS):
        x = gan_conv(fluid, x, CHANNELS << min(i, 3), f"g_enc_{i}")
        encoded.append(x)
    state = fluid.layers.concat([x, tiled(fluid, attributes, x)], 1)
    skips = []
    for i in reversed(range(LAYERS - 1)):
        out, state = gru_cell(fluid, encoded[i], state, CHANNELS << min(i, 3), f"g_stu_{i}")
        skips.append(out)
    x = fluid.layers.concat([encoded[-1], tiled(fluid, attributes, encoded[-1])], 1)
    for i, skip in enumerate(skips):
        x = gan_conv(fluid, x, CHANNELS << min(LAYERS - 1 - i, 3), f"g_dec_{i}", transposed=True, act="relu")
        x = fluid.layers.concat([x, skip, tiled(fluid, attributes, x)], 1)
    return gan_conv(fluid, x, 3, "g_dec_last", transposed=True, norm=False, act="tanh")


def discriminator(fluid, x):
    for i in range(LAYERS):
        x = gan_conv(fluid, x, CHANNELS << min(i, 3), f"d_{i}", norm=False)
    hidden = fluid.layers.fc(
        x, 64, act="leaky_relu", param_attr=fluid.ParamAttr(name="d_fc_w"), bias_attr=fluid.ParamAttr(name="d_fc_b")
    )
    judged = fluid.layers.fc(
        hidden, 1, param_attr=fluid.ParamAttr(name="d_src_w"), bias_attr=fluid.ParamAttr(name="d_src_b")
    )
    classes = fluid.layers.fc(
        hidden, ATTRIBUTES, param_attr=fluid.ParamAttr(name="d_cls_w"), bias_attr=fluid.ParamAttr(name="d_cls_b")
    )
    return judged, classes


def stgan(fluid):
    startup = fluid.Program()
    mains = [fluid.Program(), fluid.Program()]
    losses = []
    side = 1 << LAYERS

    def inputs():
        image = fluid.data("image", [None, 3, side, side])
        given = fluid.data("given", [None, ATTRIBUTES])
        wanted = fluid.data("wanted", [None, ATTRIBUTES])
        return image, given, wanted

    def parameters(main, prefix):
        return [p.name for p in main.global_block().all_parameters() if p.name.startswith(prefix)]

    layers = fluid.layers
    yield
    with fluid.program_guard(mains[0], startup), fluid.unique_name.guard():
        image, given, wanted = inputs()
        fake = generator(fluid, image, wanted - given)
        rebuilt = generator(fluid, image, given - given)
        judged, classes = discriminator(fluid, fake)
        cls_loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(classes, wanted))
        rec_loss = layers.mean(layers.abs(image - rebuilt))
        loss = 100.0 * rec_loss - layers.mean(judged) + 10.0 * cls_loss
        losses.append(loss)
    with fluid.program_guard(mains[1], startup), fluid.unique_name.guard("d_"):
        image, given, wanted = inputs()
        fake = generator(fluid, image, wanted - given)
        fake.stop_gradient = True
        judged_fake, _ = discriminator(fluid, fake)
        judged, classes = discriminator(fluid, image)
        cls_loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(classes, given))
        mixed = image * 0.3 + fake * 0.7
        mixed.stop_gradient = False
        judged_mixed, _ = discriminator(fluid, mixed)
        slope = fluid.gradients([judged_mixed], [mixed])[0]
        slope = layers.reshape(slope, [-1, 3 * side * side])
        norm = layers.sqrt(layers.reduce_sum(layers.square(slope), dim=1) + 1e-16)
        penalty = layers.reduce_mean(layers.square(norm - 1.0))
        loss = layers.mean(judged_fake) - layers.mean(judged) + cls_loss + 10.0 * penalty
        losses.append(loss)
    yield
    for main, loss, prefix in zip(mains, losses, ("g_", "d_")):
        with fluid.program_guard(main, startup), fluid.unique_name.guard("opt_" + prefix):
            optimizer = fluid.optimizer.Adam(0.0002, beta1=0.5, beta2=0.999)
            optimizer.minimize(loss, parameter_list=parameters(main, prefix))

    def feed(batch):
        rng = np.random.RandomState(batch)
        attributes = {name: rng.randint(0, 2, (batch, ATTRIBUTES)).astype("float32") for name in ("given", "wanted")}
        return dict(attributes, image=images(batch, side=side)["image"])

    yield list(zip(mains, losses)), startup, feed


PROGRAMS = {
    "EfficientNet-B1": efficientnet_b1,
    "ResNet-50": resnet_50,
    "ResNet-101": resnet_101,
    "Transformer": transformer_base,
    "STGAN": stgan,
}
