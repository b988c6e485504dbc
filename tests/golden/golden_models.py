"""More programs whose results on Paddle 1.8.5 are recorded in tests/golden/programs: networks, layers, saving.

They are written with what `golden_programs` has, and register with its `builder`.
"""

import tempfile
from pathlib import Path

import numpy as np
from golden_programs import (
    Random,
    Run,
    builder,
    classifier,
    clip_strategy,
    current_place,
    decay,
    fc,
    note,
    optimizer,
    parameters,
    programs,
    starting_from,
    train,
)

import minigraph as fluid
from minigraph import layers


def update(name, clip, rate, args):
    return optimizer(name, rate, grad_clip=clip_strategy(*clip) if clip else None, **(args or {}))


def batch_norm(x, channels, random, **options):
    scale = starting_from(random.uniform(channels) + np.float32(1.5), "bn.s")
    bias = starting_from(random.uniform(channels), "bn.b")
    return layers.batch_norm(
        x, param_attr=scale, bias_attr=bias, moving_mean_name="bn.m", moving_variance_name="bn.v", **options
    )


# Networks


@builder
def conv_net(seed, steps, opt="Momentum", args=None, clip=None, bias=True):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        image = layers.data(name="img", shape=[1, 8, 8], dtype="float32")
        label = layers.data(name="y", shape=[1], dtype="int64")
        weight = starting_from(random.uniform(4, 1, 3, 3), "c.w")
        c = layers.conv2d(
            image, num_filters=4, filter_size=3, padding=1, param_attr=weight,
            bias_attr=starting_from(random.uniform(4), "c.b") if bias else False,
        )  # fmt: skip
        b = batch_norm(c, 4, random, act="relu")
        p = layers.pool2d(b, pool_size=2, pool_type="max", pool_stride=2)
        q = layers.pool2d(p, pool_size=2, pool_type="avg", pool_stride=2)
        prediction = fc(q, 3, random, act="softmax", name="o")
        loss = layers.mean(layers.cross_entropy(prediction, label))
    feeds = [{"img": random.uniform(5, 1, 8, 8), "y": random.labels(3, 5, 1)} for _ in range(2)]
    with fluid.program_guard(main, startup):
        update(opt, clip, 0.05, args).minimize(loss)
    note("main", main)
    note("startup", startup)
    run = Run(startup)
    losses = [run(main, feeds[i % 2], [loss])[0].item() for i in range(steps)]
    statistics = {name: run.value(name) for name in ("bn.m", "bn.v")}
    return {"losses": np.array(losses, "float32"), **parameters(run, main), **statistics}


@builder
def clone_with_batch_norm(seed, p=0.4, impl="downgrade_in_infer", steps=2):
    """The evaluation program uses the statistics that training has collected."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[6], dtype="float32")
        h = batch_norm(fc(x, 8, random, act="relu", name="h"), 8, random)
        dropped = layers.dropout(h, dropout_prob=p, dropout_implementation=impl)
        out = fc(dropped, 3, random, name="o")
        loss = layers.mean(layers.square(out))
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(0.0).minimize(loss)
    note("test", test)
    note("main", main)
    run, feed = Run(startup), {"x": random.uniform(9, 6)}
    for _ in range(steps):
        run(main, feed, [loss])
    results = dict(zip(["test out", "test dropout"], run(test, feed, [out.name, dropped.name]), strict=True))
    return {**results, "mean": run.value("bn.m"), "variance": run.value("bn.v")}


@builder
def norms_net(seed):
    """Group, instance and layer norm, prelu, a depthwise and a transposed convolution in one network."""
    random = Random(seed)
    main, startup = programs()

    def affine(name, size):
        scale = starting_from(random.uniform(size) + np.float32(1.5), f"{name}.s")
        return {"param_attr": scale, "bias_attr": starting_from(random.uniform(size), f"{name}.b")}

    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[4, 6, 6], dtype="float32")
        weight = starting_from(random.uniform(4, 1, 3, 3), "dw")
        a = layers.conv2d(x, 4, 3, padding=1, groups=4, param_attr=weight, bias_attr=False)
        a = layers.group_norm(a, 2, **affine("gn", 4))
        slopes = np.array([0.1, 0.2, 0.3, 0.4], "float32").reshape(1, 4, 1, 1)
        a = layers.prelu(a, "channel", param_attr=starting_from(slopes, "pr"))
        weight = starting_from(random.uniform(4, 3, 3, 3), "ct.w")
        bias = starting_from(random.uniform(3), "ct.b")
        a = layers.conv2d_transpose(a, 3, filter_size=3, stride=2, padding=1, param_attr=weight, bias_attr=bias)
        a = layers.instance_norm(a, **affine("in", 3))
        a = layers.flatten(layers.pool2d(a, pool_type="avg", global_pooling=True), axis=1)
        a = layers.layer_norm(a, **affine("ln", 3))
        loss = layers.mean(layers.square(a))

    def append_updates():
        fluid.optimizer.SGD(0.05).minimize(loss)

    results = train(main, startup, loss, append_updates, 3, [{"x": random.uniform(3, 4, 6, 6)}])
    note("main", main)
    return results


@builder
def embedding_train(seed, sparse, opt, args=None, clip=None, padding_idx=None, steps=3, v2=False):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        label = layers.data(name="y", shape=[1], dtype="int64")
        if v2:
            ids, lookup = fluid.data(name="ids", shape=[None, 3], dtype="int64"), fluid.embedding
        else:
            ids, lookup = layers.data(name="ids", shape=[3, 1], dtype="int64"), layers.embedding
        table = starting_from(random.uniform(9, 4), "emb")
        rows = lookup(ids, size=[9, 4], is_sparse=sparse, padding_idx=padding_idx, param_attr=table)
        prediction = fc(layers.reshape(rows, [-1, 12]), 3, random, act="softmax", name="o")
        loss = layers.mean(layers.cross_entropy(prediction, label))
    feeds = []
    for _ in range(2):
        numbers = random.labels(9, 4, 3, 1)
        feeds.append({"ids": numbers.reshape(4, 3) if v2 else numbers, "y": random.labels(3, 4, 1)})
    results = train(main, startup, loss, lambda: update(opt, clip, 0.1, args).minimize(loss), steps, feeds)
    note("main", main)
    return results


@builder
def embedding_shared_sparse(seed, clip=None):
    """A table looked up twice: two gradients of selected rows are added."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        a, b = (layers.data(name=name, shape=[1], dtype="int64") for name in "ab")
        table = starting_from(random.uniform(7, 3), "emb")
        rows_a, rows_b = (layers.embedding(ids, size=[7, 3], is_sparse=True, param_attr=table) for ids in (a, b))
        loss = layers.mean(layers.square(rows_a * 2.0 - rows_b))
    feeds = [{"a": random.labels(7, 5, 1), "b": random.labels(7, 5, 1)}]
    results = train(main, startup, loss, lambda: update("SGD", clip, 0.5, None).minimize(loss), 2, feeds)
    note("main", main)
    return results


@builder
def rnn_units(seed, b, h):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=[b, 3 * h], dtype="float32")
        hp, xt, cp = (fluid.data(name=name, shape=[b, h], dtype="float32") for name in ("hp", "xt", "cp"))
        cp.stop_gradient = False
        weight, bias = starting_from(random.uniform(h, 3 * h), "gw"), starting_from(random.uniform(1, 3 * h), "gb")
        hidden, _, _ = layers.gru_unit(x, hp, 3 * h, param_attr=weight, bias_attr=bias)
        weight, bias = starting_from(random.uniform(2 * h, 4 * h), "lw"), starting_from(random.uniform(4 * h), "lb")
        out, cell = layers.lstm_unit(xt, hp, cp, forget_bias=0.5, param_attr=weight, bias_attr=bias)
        loss = layers.reduce_sum(hidden) + layers.reduce_sum(layers.elementwise_mul(out, cell))
        pairs = fluid.append_backward(loss)
    note("main", main)
    feed = {"x": random.uniform(b, 3 * h), **{name: random.uniform(b, h) for name in ("hp", "xt", "cp")}}
    names = ["hid", "h", "c", "loss", *(param.name for param, _ in pairs)]
    results = Run(startup)(main, feed, [hidden, out, cell, loss, *(grad for _, grad in pairs)])
    return dict(zip(names, results, strict=True))


# Layers


@builder
def shape_chain(seed):
    """Layers for shapes and indices in a chain, forward and backward."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=[4, 6], dtype="float32")
        x.stop_gradient = False
        b = layers.transpose(layers.reshape(x, [2, 2, 6]), [0, 2, 1])
        first, second = layers.split(b, 2, dim=1)
        e = layers.slice(layers.concat([second, first], axis=1), axes=[1], starts=[1], ends=[5])
        f = layers.unsqueeze(layers.squeeze(layers.unsqueeze(e, [0]), [0]), [3])
        g = layers.expand(f, [1, 1, 1, 2])
        h = layers.pad(layers.flatten(g, axis=2), [0, 0, 1, 0], pad_value=0.5)
        k = layers.stack([h, layers.scale(h, 2.0)], axis=1)
        m = layers.gather(layers.reshape(k, [-1, 4]), layers.assign(np.array([0, 3, 3, 5], "int32")))
        values, indices = layers.topk(m, k=2)
        n = layers.l2_normalize(layers.softmax(m), axis=1)
        total = layers.reduce_sum(n) + layers.reduce_sum(values)
        (grad,) = fluid.gradients([total], [x])
    note("main", main)
    results = Run(startup)(main, {"x": random.uniform(4, 6)}, [k, values, indices, n, total, grad])
    return {str(i): value for i, value in enumerate(results)}


@builder
def every_loss(seed):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=[5, 3], dtype="float32")
        y = fluid.data(name="y", shape=[5, 3], dtype="float32")
        label = fluid.data(name="l", shape=[5, 1], dtype="int64")
        x.stop_gradient = False
        s = layers.softmax(x)

        def column(z, i):
            return layers.slice(z, [1], [i], [i + 1])

        found = [
            layers.cross_entropy(s, label),
            layers.softmax_with_cross_entropy(x, label),
            layers.softmax_with_cross_entropy(x, layers.softmax(y), soft_label=True),
            layers.sigmoid_cross_entropy_with_logits(x, layers.sigmoid(y)),
            layers.square_error_cost(x, y),
            layers.huber_loss(column(x, 0), column(y, 0), 0.5),
            layers.smooth_l1(x, y),
            layers.log_loss(column(s, 0), layers.sigmoid(column(y, 1))),
            layers.mse_loss(x, y),
            layers.kldiv_loss(layers.log(s), layers.softmax(y), "batchmean"),
            layers.cross_entropy(s, label, ignore_index=1),
        ]
        (grad,) = fluid.gradients([layers.sum([layers.reduce_sum(loss) for loss in found])], [x])
    note("main", main)
    feed = {"x": random.uniform(5, 3), "y": random.uniform(5, 3), "l": random.labels(3, 5, 1)}
    results = Run(startup)(main, feed, [*found, grad])
    return {f"{i:02}": value for i, value in enumerate(results)}


@builder
def every_operator(seed):
    """Operators and subscripts of variables, comparisons among them."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=[3, 4], dtype="float32")
        y = fluid.data(name="y", shape=[3, 4], dtype="float32")
        i = fluid.data(name="i", shape=[4], dtype="int64")
        found = [x + y, x - y, x * y, x / y, x + 1.5, 2.0 - x, 3 * x, 1.0 / y, x**2, 2.0**x, -x]
        found += [x < y, x <= y, x > y, x >= y, x == y, x != y]
        found += [i % layers.fill_constant([4], "int64", 3), i // layers.fill_constant([4], "int64", 2)]
        found += [x[1], x[0:2, 1:3], x[-1], x[:, 2], x[0:3:2], i + 1, i * 2, x.astype("float64"), x.astype("int32")]
    note("main", main)
    v = random.uniform(3, 4)
    w = np.where(np.abs(random.uniform(3, 4)) < 0.2, 0.7, v * 1.3 + 0.01).astype("float32")
    w[np.abs(w) < 0.1] = 0.5
    v[0, 0] = w[0, 0] = 0.75
    results = Run(startup)(main, {"x": v, "y": w, "i": np.array([3, 7, 8, 5], "int64")}, found)
    return {f"{k:02}": value for k, value in enumerate(results)}


@builder
def image_names(seed):
    """The names that layers take, those for images among them, with gradients, clipping, decay and updates."""
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[4], dtype="float32")
        image = layers.data(name="img", shape=[2, 6, 6], dtype="float32")
        y = layers.data(name="y", shape=[1], dtype="int64")
        a = layers.fc(x, 3, act="relu")
        b = layers.fc([x, a], 2, act="tanh", bias_attr=False)
        c = layers.fc(x, 3, name="named")
        e = layers.layer_norm(layers.dropout(c, 0.5))
        g = layers.pool2d(layers.conv2d(image, 3, 3, act="relu"), 2, pool_stride=2)
        p = layers.fc(layers.batch_norm(g), 2, act="softmax")
        losses = [layers.mean(layers.cross_entropy(p, y)), layers.mean(layers.softmax_with_cross_entropy(b, y))]
        losses.append(layers.reduce_mean(layers.square_error_cost(e, a)))
        with fluid.name_scope("scoped"):
            losses.append(layers.mean(layers.sigmoid(c) + layers.elu(c)))
        clip, l2 = fluid.clip.GradientClipByGlobalNorm(1.0), fluid.regularizer.L2Decay(0.1)
        fluid.optimizer.Adam(0.01, grad_clip=clip, regularization=l2).minimize(layers.sum(losses))
    note("main", main)
    note("startup", startup)
    names = sorted(var.name for var in main.list_vars() if var.persistable)
    note("persistables", names)
    return {"number of persistables": np.array(len(names))}


# Programs and parameters as files


@builder
def program_text(seed):
    """A program written as bytes and read again runs like the original."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random, named=True).loss
        fluid.append_backward(loss)
    note("original", main)
    copy = fluid.Program.parse_from_string(main.serialize_to_string())
    note("copy", copy)
    loss, grad = Run(startup)(copy, random.batch(), [loss.name, "h0.w@GRAD"])
    return {"loss": loss, "g": grad}


@builder
def save_load(seed, how, opt="Adam"):
    """Training goes on from what was saved as if it had not been interrupted."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        _, prediction, loss = classifier(random, named=True)
        test = main.clone(for_test=True)
        optimizer(opt, 0.05).minimize(loss)
    feed, first = random.batch(), Run(startup)
    first(main, feed, [loss])
    with tempfile.TemporaryDirectory() as folder:
        where, net = str(Path(folder) / "m"), str(Path(folder) / "m" / "net")
        executor = first.executor
        with fluid.scope_guard(first.scope):
            if how == "params":
                fluid.io.save_params(executor, where, main)
            elif how == "params_one_file":
                fluid.io.save_params(executor, where, main, filename="all")
            elif how == "persistables":
                fluid.io.save_persistables(executor, where, main)
            elif how == "save":
                fluid.save(main, net)
            else:
                targets = [test.global_block().var(prediction.name)]
                fluid.io.save_inference_model(where, ["x"], targets, executor, main_program=test)
        note("files", sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()))
        second = Run()
        if how == "inference":
            with fluid.scope_guard(second.scope):
                program, feeds, fetches = fluid.io.load_inference_model(where, second.executor)
            note("feeds", list(feeds))
            (found,) = second(program, {"x": feed["x"]}, fetches)
            (before,) = first(test, feed, [prediction.name])
            return {"pred": found, "pred before saving": before}
        second(startup)
        with fluid.scope_guard(second.scope):
            if how == "params":
                fluid.io.load_params(second.executor, where, main)
            elif how == "params_one_file":
                fluid.io.load_params(second.executor, where, main, filename="all")
            elif how == "persistables":
                fluid.io.load_persistables(second.executor, where, main)
            else:
                fluid.load(main, net, second.executor)
        (found,) = second(test, feed, [prediction.name])
        for run in (second, first):
            run(main, feed, [loss])
        unbroken = np.allclose(second.value("h0.w"), first.value("h0.w"), rtol=1e-6)
        return {"pred": found, "pred before saving": found, "same as unbroken run": np.array(unbroken)}


# The imperative mode


@builder
def dygraph_linear(seed, opt, args=None, clip=None, reg=None, steps=4, lr=0.1):
    random = Random(seed)
    with fluid.dygraph.guard(current_place()):
        first = fluid.dygraph.Linear(
            6, 5, act="relu", param_attr=starting_from(random.uniform(6, 5)), bias_attr=starting_from(random.uniform(5))
        )
        second = fluid.dygraph.Linear(
            5, 3, param_attr=starting_from(random.uniform(5, 3)), bias_attr=starting_from(random.uniform(3))
        )
        params = first.parameters() + second.parameters()
        rule = decay(*reg) if reg else None
        strategy = clip_strategy(*clip) if clip else None
        updates = optimizer(opt, lr, parameter_list=params, grad_clip=strategy, regularization=rule, **(args or {}))
        x = fluid.dygraph.to_variable(random.uniform(7, 6))
        y = fluid.dygraph.to_variable(random.labels(3, 7, 1))
        losses, gradients = [], None
        for _ in range(steps):
            loss = layers.mean(layers.softmax_with_cross_entropy(second(first(x)), y))
            loss.backward()
            gradients = gradients or [np.array(param.gradient()) for param in params]
            updates.minimize(loss)
            for param in params:
                param.clear_gradient()
            losses.append(loss.numpy().item())
        results = {"losses": np.array(losses, "float32")}
        for i, (param, gradient) in enumerate(zip(params, gradients, strict=True)):
            results |= {f"p{i}": param.numpy(), f"g{i}": gradient}
    return results


class Net(fluid.dygraph.Layer):
    """Layers of every kind."""

    def __init__(self, random):
        super().__init__()
        modules = fluid.dygraph

        def given(*shape, offset=0.0):
            return starting_from(random.uniform(*shape) + np.float32(offset))

        self.conv = modules.Conv2D(1, 2, 3, padding=1, act="relu", param_attr=given(2, 1, 3, 3), bias_attr=given(2))
        self.bn = modules.BatchNorm(2, param_attr=given(2, offset=1.5), bias_attr=given(2))
        self.pool = modules.Pool2D(2, "max", 2)
        self.drop = modules.Dropout(0.3)
        self.emb = modules.Embedding([5, 4], param_attr=given(5, 4))
        self.ln = modules.LayerNorm(12, param_attr=given(12, offset=1.0), bias_attr=given(12))
        self.fc = modules.Linear(12, 2, param_attr=given(12, 2), bias_attr=given(2))

    def forward(self, image, ids):
        a = layers.reshape(self.pool(self.bn(self.conv(image))), [-1, 8])
        e = layers.reshape(self.emb(ids), [-1, 4])
        return self.fc(self.drop(self.ln(layers.concat([a, e], axis=1))))


@builder
def dygraph_model(seed):
    """A Layer of convolution, norms, dropout and embedding: its evaluation, state and gradients."""
    random = Random(seed)
    with fluid.dygraph.guard(current_place()):
        net = Net(random)
        image = fluid.dygraph.to_variable(random.uniform(3, 1, 4, 4))
        ids = fluid.dygraph.to_variable(random.labels(5, 3, 1))
        net.eval()
        results = {"eval": net(image, ids).numpy()}
        note("state", sorted(f"{name} {list(value.shape)}" for name, value in net.state_dict().items()))
        note("sublayers", [str(len(net.sublayers()))])
        layers.reduce_sum(layers.square(net(image, ids))).backward()
        for i, param in enumerate(net.parameters()):
            gradient = param.gradient()
            results[f"g{i:02}"] = np.zeros(1, "float32") if gradient is None else np.array(gradient)
        with fluid.dygraph.no_grad():
            results["no_grad"] = np.array(net(image, ids).stop_gradient)
    return results


@builder
def dygraph_grad(seed):
    """`grad`, `detach`, and gradients that add up over two passes."""
    random = Random(seed)
    with fluid.dygraph.guard(current_place()):
        a, b = (fluid.dygraph.to_variable(random.uniform(3, 2)) for _ in range(2))
        a.stop_gradient = b.stop_gradient = False
        c = a * b + a
        (by_a,) = fluid.dygraph.grad([layers.reduce_sum(c)], [a], retain_graph=True)
        results = {"ga": by_a.numpy(), "c": c.numpy()}
        layers.reduce_sum(layers.square(a)).backward()
        results["g1"] = np.array(a.gradient())
        layers.reduce_sum(a * 3.0).backward()
        results["g2"] = np.array(a.gradient())
        a.clear_gradient()
        layers.reduce_sum(a.detach() * b).backward()
        return {**results, "b": np.array(b.gradient()), "cleared": np.array(np.abs(a.gradient()).sum())}


@builder
def recompute(seed, checkpoints, net, steps=3):
    """What lies between checkpoints is computed again in the backward pass."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        h = layers.data(name="x", shape=[6], dtype="float32")
        label = layers.data(name="y", shape=[1], dtype="int64")
        made = []
        for i in range(4):
            h = fc(h, 6, random, act="tanh" if net == "tanh" else "relu", name=f"h{i}")
            if net == "dropout":
                h = layers.dropout(h, 0.4, dropout_implementation="upscale_in_train")
            if net == "skip" and i == 2:
                h = layers.elementwise_add(h, made[0])
            made.append(h)
        prediction = fc(h, 3, random, act="softmax", name="o")
        loss = layers.mean(layers.cross_entropy(prediction, label))
        updates = fluid.optimizer.RecomputeOptimizer(optimizer("SGD", 0.1))
        updates._set_checkpoints([made[i] for i in checkpoints])
        updates.minimize(loss)
    note("main", main)
    note("startup", startup)
    run, feed = Run(startup), {"x": random.uniform(7, 6), "y": random.labels(3, 7, 1)}
    losses = [run(main, feed, [loss])[0].item() for _ in range(steps)]
    return {"losses": np.array(losses, "float32"), **parameters(run, main)}
