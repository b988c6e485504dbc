"""The programs whose results on Paddle 1.8.5 are recorded in tests/golden/programs.

Each builder makes programs, runs them and returns named arrays; it notes the programs whose operators were recorded.
Parameters start from given arrays, so that no stream of random numbers has to match. The order in which a builder
draws its numbers is part of the recording.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import minigraph as fluid
from minigraph import layers
from minigraph.runtime.place import Place

Arrays = dict[str, np.ndarray]


class Outcome(NamedTuple):
    arrays: Arrays
    programs: dict[str, list[str]]
    """The operators of each noted program, one line each."""


BUILDERS: dict[str, Callable[..., Arrays]] = {}
_noted: dict[str, list[str]] = {}
_place: Place = fluid.CPUPlace()


def builder(function: Callable[..., Arrays]) -> Callable[..., Arrays]:
    BUILDERS[function.__name__] = function
    return function


def run_case(name: str, arguments: dict[str, Any], place: Place | None = None) -> Outcome:
    """What the builder `name` gives on `place`."""
    global _place
    _place = place or fluid.CPUPlace()
    _noted.clear()
    with fluid.unique_name.guard():
        arrays = BUILDERS[name](**arguments)
    return Outcome({key: np.asarray(value) for key, value in arrays.items()}, dict(_noted))


def note(name: str, found: fluid.Program | list[str]) -> None:
    """Keep the operators of a program as they are now, or other lines, to be compared."""
    _noted[name] = operator_lines(found) if isinstance(found, fluid.Program) else found


def current_place() -> Place:
    """Where the case at hand runs."""
    return _place


def operator_lines(program: fluid.Program) -> list[str]:
    """Each operator as ``type Slot=name,name -> Slot=name``, slots in alphabetical order.

    Examples
    --------
    >>> program = fluid.Program.parse("block 0\\n data x: float32[2]\\n y: float32[2] = relu(X=x)")
    >>> operator_lines(program)
    ['relu X=x -> Out=y']
    """
    return [
        " ".join([op.type, *_slots(op.inputs), "->", *_slots(op.outputs)])
        for block in program.blocks
        for op in block.ops
    ]


def _slots(slots: dict[str, tuple[str, ...]]) -> list[str]:
    return [f"{slot}={','.join(names)}" for slot, names in sorted(slots.items()) if names]


# What the builders are made of


class Random:
    """Numbers from a seed, as they were drawn for the recording."""

    def __init__(self, seed: int) -> None:
        self.state = np.random.RandomState(seed)

    def uniform(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (self.state.uniform(-1, 1, shape) * scale).astype("float32")

    def labels(self, classes: int, *shape: int) -> np.ndarray:
        return self.state.randint(0, classes, shape).astype("int64")

    def batch(self, n: int = 7, features: int = 6, classes: int = 4) -> dict[str, np.ndarray]:
        return {"x": self.uniform(n, features), "y": self.labels(classes, n, 1)}


class Run:
    """An executor with a scope of its own; calling it runs a program on copies of what is fed."""

    def __init__(self, startup: fluid.Program | None = None) -> None:
        self.scope, self.executor = fluid.Scope(), fluid.Executor(_place)
        if startup is not None:
            self(startup)

    def __call__(self, program: fluid.Program, feed: Arrays | None = None, fetch: Any = ()) -> list[np.ndarray]:
        feed = {name: array.copy() for name, array in (feed or {}).items()}
        return self.executor.run(program, feed=feed, fetch_list=list(fetch), scope=self.scope)

    def value(self, name: str) -> np.ndarray:
        return np.array(self.scope.find_var(name).get_tensor())


def programs() -> tuple[fluid.Program, fluid.Program]:
    return fluid.Program(), fluid.Program()


def starting_from(array: np.ndarray, name: str | None = None, **fields: Any) -> fluid.ParamAttr:
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(array), **fields)


def fc(x, size, random, act=None, name=None, **fields):
    features = int(np.prod(x.shape[1:]))
    weight = starting_from(random.uniform(features, size, scale=0.7), name and f"{name}.w", **fields)
    bias = starting_from(random.uniform(size, scale=0.3), name and f"{name}.b", **fields)
    return layers.fc(x, size=size, act=act, param_attr=weight, bias_attr=bias)


class Classifier(NamedTuple):
    label: fluid.Variable
    prediction: fluid.Variable
    loss: fluid.Variable


def classifier(random, features=6, hidden=(8, 5), classes=4, act="relu", named=False) -> Classifier:
    """A multilayer perceptron with softmax and cross-entropy; its layers are h0, h1, ..., out when `named`."""
    h = layers.data(name="x", shape=[features], dtype="float32")
    label = layers.data(name="y", shape=[1], dtype="int64")
    for i, size in enumerate(hidden):
        h = fc(h, size, random, act=act, name=f"h{i}" if named else None)
    prediction = fc(h, classes, random, act="softmax", name="out" if named else None)
    return Classifier(label, prediction, layers.mean(layers.cross_entropy(input=prediction, label=label)))


def clip_strategy(kind, threshold, **options):
    if kind == "value":
        return fluid.clip.GradientClipByValue(max=threshold, **options)
    if kind == "value2":
        return fluid.clip.GradientClipByValue(max=threshold, min=-0.5 * threshold, **options)
    if kind == "norm":
        return fluid.clip.GradientClipByNorm(clip_norm=threshold, **options)
    if kind == "global":
        return fluid.clip.GradientClipByGlobalNorm(clip_norm=threshold, **options)
    return None


def optimizer(name, learning_rate=0.1, **options):
    return getattr(fluid.optimizer, name)(learning_rate=learning_rate, **options)


def decay(kind, coefficient):
    return {"l1": fluid.regularizer.L1Decay, "l2": fluid.regularizer.L2Decay}[kind](coefficient)


def train(main, startup, loss, append_updates, steps, feeds) -> Arrays:
    """Losses of `steps` steps, and the parameters after them."""
    with fluid.program_guard(main, startup):
        append_updates()
    run = Run(startup)
    losses = [run(main, feeds[i % len(feeds)], [loss])[0].item() for i in range(steps)]
    return {"losses": np.array(losses, "float32"), **parameters(run, main)}


def parameters(run, program) -> Arrays:
    return {param.name: run.value(param.name) for param in program.all_parameters()}


# Forward, backward, clipping


@builder
def mlp_forward(seed, act, hidden, n):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        label, prediction, loss = classifier(random, hidden=hidden, act=act)
        accuracy = layers.accuracy(input=prediction, label=label, k=1)
    note("main", main)
    note("startup", startup)
    results = Run(startup)(main, random.batch(n), [prediction, loss, accuracy])
    return dict(zip(["pred", "loss", "acc"], results, strict=True))


@builder
def mlp_append_backward(seed, act, hidden, n, parameter_list=None, no_grad=None):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random, hidden=hidden, act=act, named=True).loss
        pairs = fluid.append_backward(loss, parameter_list, set(no_grad) if no_grad else None)
    note("main", main)
    results = Run(startup)(main, random.batch(n), [loss, *(grad for _, grad in pairs)])
    names = ["loss", *(f"{param.name}|{grad.name}" for param, grad in pairs)]
    return dict(zip(names, results, strict=True))


@builder
def clip_example(seed, kind, a, n=16, d=20, hidden=(12, 8), classes=10):
    """One graph, cloned before the backward pass; the clone's gradients are clipped."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random, features=d, hidden=hidden, classes=classes).loss
    clipped = main.clone()
    pairs = sorted_by_name(fluid.append_backward(loss))
    clipped_pairs = sorted_by_name(fluid.append_backward(clipped.block(0).var(loss.name)))
    with fluid.program_guard(clipped, startup):
        fluid.clip.set_gradient_clip(clip_strategy(kind, a))
        clipped_pairs = fluid.clip.append_gradient_clip_ops(clipped_pairs)
    note("clip", clipped)
    run, feed = Run(startup), random.batch(n, d, classes)
    results = {}
    for word, program, found in (("raw", main, pairs), ("cut", clipped, clipped_pairs)):
        for (param, _), value in zip(found, run(program, feed, [grad for _, grad in found]), strict=True):
            results[f"{word} {param.name}"] = value
    return results


def sorted_by_name(pairs):
    return sorted(pairs, key=lambda pair: pair[0].name)


@builder
def clip_in_optimizer(seed, kind, a, opt="SGD", steps=3, lr=0.1, opt_args=None):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random).loss

    def append_updates():
        optimizer(opt, lr, grad_clip=clip_strategy(kind, a), **(opt_args or {})).minimize(loss)

    results = train(main, startup, loss, append_updates, steps, [random.batch(), random.batch()])
    note("main", main)
    note("startup", startup)
    return results


@builder
def clip_by_set(seed, spec, opt="SGD", steps=3, opt_clip=None, by_name=True):
    """Calls of set_gradient_clip, each [kind, threshold, parameter names or None for all, group].

    The last call that names a parameter counts for it; the parameters of one global-norm group are clipped together; a
    parameter never named keeps its gradient; a clip of the optimizer wins over all. Fluid 1.8.5 does this only where
    one clip covers every parameter; the other recordings call each clip on its own pairs, which is what it documents.
    """
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random, named=True).loss

    def append_updates():
        updates = optimizer(opt, 0.2, grad_clip=clip_strategy(*opt_clip) if opt_clip else None)
        for kind, threshold, names, group in spec:
            options = {"group_name": group} if group and kind == "global" else {}
            given = names
            if names is not None and not by_name:
                given = [main.global_block().var(name) for name in names]
            fluid.clip.set_gradient_clip(clip_strategy(kind, threshold, **options), param_list=given, program=main)
        updates.minimize(loss)
        note("main", main)

    return train(main, startup, loss, append_updates, steps, [random.batch(), random.batch()])


@builder
def clip_need(seed, kind, a, skip, steps=3, opt="SGD"):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random, named=True).loss

    def append_updates():
        clip = clip_strategy(kind, a, need_clip=lambda param: param.name not in skip)
        optimizer(opt, 0.2, grad_clip=clip).minimize(loss)

    results = train(main, startup, loss, append_updates, steps, [random.batch()])
    note("main", main)
    return results


@builder
def clip_need_in_append(seed, kind, a, skip):
    """A strategy with need_clip, called on pairs."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random, named=True).loss
        pairs = fluid.append_backward(loss)
        clipped = clip_strategy(kind, a, need_clip=lambda param: param.name not in skip)(pairs)
    note("main", main)
    results = Run(startup)(main, random.batch(), [grad for _, grad in [*pairs, *clipped]])
    names = [f"raw {param.name}" for param, _ in pairs] + [f"cut {param.name}" for param, _ in clipped]
    return dict(zip(names, results, strict=True))


@builder
def error_clip(seed, hi, lo=None):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[6], dtype="float32")
        h = fc(x, 8, random, act="tanh", name="h")
        h.error_clip = fluid.clip.ErrorClipByValue(max=hi, min=lo)
        loss = layers.reduce_sum(layers.square(fc(h, 3, random, name="o")))
        pairs = fluid.append_backward(loss, callbacks=[fluid.clip.error_clip_callback])
    note("main", main)
    fetch = [*(grad for _, grad in pairs), h.grad_name]
    results = Run(startup)(main, {"x": random.uniform(5, 6)}, fetch)
    return dict(zip([*(param.name for param, _ in pairs), "dh"], results, strict=True))


@builder
def clip_layers(seed, a, shape):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=shape, dtype="float32")
        x.stop_gradient = False
        limited = layers.clip(x, min=-a, max=0.5 * a)
        scaled = layers.clip_by_norm(x, max_norm=a)
        (grad,) = fluid.gradients([layers.reduce_sum(layers.square(limited))], [x])
    note("main", main)
    results = Run(startup)(main, {"x": random.uniform(*shape)}, [limited, scaled, grad])
    return dict(zip(["clip", "norm", "grad"], results, strict=True))


# Optimizers, decay


@builder
def optimizer_steps(seed, opt, args, steps=5, lr=0.1):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random, act="tanh").loss
    options = {key: value for key, value in args.items() if not key.startswith("_")}
    if "_reg" in args:
        options["regularization"] = decay(*args["_reg"])
    if "_clip" in args:
        options["grad_clip"] = clip_strategy(*args["_clip"])

    def append_updates():
        optimizer(opt, lr, **options).minimize(loss)

    results = train(main, startup, loss, append_updates, steps, [random.batch(), random.batch()])
    note("main", main)
    note("startup", startup)
    return results


@builder
def optimizer_parts(seed, opt="Momentum", args=None, clip=None, reg=None):
    """backward() and apply_gradients() one after the other, the gradients doubled in between."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random).loss

    def append_updates():
        updates = optimizer(
            opt,
            grad_clip=clip_strategy(*clip) if clip else None,
            regularization=decay(*reg) if reg else None,
            **(args or {}),
        )
        pairs = updates.backward(loss)
        updates.apply_gradients([(param, grad * 2.0) for param, grad in pairs])

    results = train(main, startup, loss, append_updates, 3, [random.batch()])
    note("main", main)
    return results


@builder
def regularizers(seed, glob, per_param, clip=None, opt="SGD"):
    """Decay for the whole optimizer, another for the parameters of the first layer."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[6], dtype="float32")
        y = layers.data(name="y", shape=[1], dtype="int64")
        h = fc(x, 8, random, act="relu", name="h0", regularizer=decay(*per_param) if per_param else None)
        prediction = fc(h, 4, random, act="softmax", name="out")
        loss = layers.mean(layers.cross_entropy(prediction, y))

    def append_updates():
        optimizer(
            opt,
            0.2,
            regularization=decay(*glob) if glob else None,
            grad_clip=clip_strategy(*clip) if clip else None,
        ).minimize(loss)

    results = train(main, startup, loss, append_updates, 3, [random.batch()])
    note("main", main)
    return results


@builder
def lr_schedule(seed, name, args, steps=20, warmup=None):
    """A learning rate computed in the program. Those that fluid selects by conditional blocks have no operators."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[4], dtype="float32")
        loss = layers.mean(layers.square(fc(x, 1, random, name="o")))
        rate = getattr(layers, name)(**args) if name else args["lr"]
        if warmup:
            rate = layers.linear_lr_warmup(rate, **warmup)
        fluid.optimizer.SGD(learning_rate=rate).minimize(loss)
    note("main", main)
    note("startup", startup)
    run, feed = Run(startup), {"x": random.uniform(5, 4)}
    rates, losses = zip(*(run(main, feed, [rate, loss]) for _ in range(steps)), strict=True)
    return {"lr": np.concatenate(rates), "loss": np.concatenate(losses), **parameters(run, main)}


@builder
def param_attrs(seed, lr_w, trainable, opt="SGD", args=None):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[6], dtype="float32")
        y = layers.data(name="y", shape=[1], dtype="int64")
        w0 = starting_from(random.uniform(6, 5), "w0", learning_rate=lr_w)
        b0 = starting_from(random.uniform(5), "b0", trainable=trainable)
        h = layers.fc(x, 5, act="tanh", param_attr=w0, bias_attr=b0)
        w1 = starting_from(random.uniform(5, 4), "w1", trainable=trainable)
        prediction = layers.fc(h, 4, act="softmax", param_attr=w1, bias_attr=False)
        loss = layers.mean(layers.cross_entropy(prediction, y))

    def append_updates():
        optimizer(opt, 0.3, **(args or {})).minimize(loss)

    results = train(main, startup, loss, append_updates, 3, [random.batch()])
    note("main", main)
    return results


@builder
def optimizer_arguments(seed, how):
    """One way of calling an optimizer."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random, hidden=(5,), named=True).loss

    def append_updates():
        _OPTIMIZER_CALLS[how](fluid.optimizer, main, startup, loss)

    results = train(main, startup, loss, append_updates, 3, [random.batch(), random.batch()])
    note("main", main)
    note("startup", startup)
    return results


def number(name, value):
    return layers.create_global_var([1], value, "float32", persistable=True, name=name)


def rate_that_decays(optimizers, main, startup, loss):
    rate = number("rate", 0.3)
    optimizers.Momentum(rate, 0.9).minimize(loss)
    layers.assign(layers.scale(rate, 0.5), rate)


def in_another_program(optimizers, main, startup, loss):
    with fluid.program_guard(*programs()):
        optimizers.Adam(0.1, grad_clip=clip_strategy("global", 0.1)).minimize(loss, startup_program=startup)


def backward_and_apply_optimize(optimizers, main, startup, loss):
    updates = optimizers.Momentum(0.1, 0.9, regularization=decay("l2", 0.1))
    pairs = updates.backward(loss, startup_program=startup)
    with fluid.program_guard(*programs()):
        updates.apply_optimize(loss, startup, pairs)


def backward_with_error_clip(optimizers, main, startup, loss):
    main.global_block().var("fc_0.tmp_2").error_clip = fluid.clip.ErrorClipByValue(0.001)
    updates = optimizers.SGD(0.1)
    updates.apply_gradients(updates.backward(loss))


def twice(optimizers, main, startup, loss):
    optimizers.SGD(0.1).minimize(loss)
    optimizers.SGD(0.05).minimize(loss)


def clip_on_some_pairs(optimizers, main, startup, loss):
    updates = optimizers.SGD(0.1)
    pairs = updates.backward(loss)
    updates.apply_gradients(clip_strategy("norm", 0.05)(pairs[:2]) + pairs[2:])


def betas_in_variables(optimizers, main, startup, loss):
    beta1, beta2 = number("b1", 0.8), number("b2", 0.9)
    optimizers.Adam(0.1, beta1=beta1, beta2=beta2).minimize(loss)


def clone_and_original(optimizers, main, startup, loss):
    clone = main.clone()
    with fluid.program_guard(clone, startup):
        optimizers.SGD(0.1).minimize(clone.global_block().var(loss.name))
    optimizers.SGD(0.1, grad_clip=clip_strategy("value", 0.001)).minimize(loss)
    note("clone", clone)


def clip_set_on_the_program(optimizers, main, startup, loss):
    fluid.clip.set_gradient_clip(clip_strategy("global", 0.1), program=main)
    optimizers.SGD(0.1).minimize(loss)


_OPTIMIZER_CALLS = {
    "rate variable": lambda o, main, startup, loss: o.SGD(number("rate", 0.3)).minimize(loss),
    "rate decays": rate_that_decays,
    "parameters of the optimizer": lambda o, main, startup, loss: o.Adam(
        0.1, parameter_list=["h0.w", "out.b"]
    ).minimize(loss),
    "parameters of minimize win": lambda o, main, startup, loss: o.SGD(0.1, parameter_list=["h0.w", "out.b"]).minimize(
        loss, parameter_list=["out.w"]
    ),
    "no_grad_set": lambda o, main, startup, loss: o.SGD(0.1).minimize(loss, no_grad_set={"h0.w", "out.b"}),
    "no_grad_set of a value": lambda o, main, startup, loss: o.SGD(0.1).minimize(loss, no_grad_set={"fc_0.tmp_2"}),
    "startup given": in_another_program,
    "apply_optimize": backward_and_apply_optimize,
    "callbacks": backward_with_error_clip,
    "twice": twice,
    "named": lambda o, main, startup, loss: o.Adam(0.1, name="my").minimize(loss),
    "clip called, rest passed on": clip_on_some_pairs,
    "beta tensors": betas_in_variables,
    "clone minimized": clone_and_original,
    "clip set on the program": clip_set_on_the_program,
}


# Shapes of graphs


@builder
def dropout_train(seed, p, impl):
    """What is true of the random mask, whatever its values."""
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=[40, 50], dtype="float32")
        x.stop_gradient = False
        dropped = layers.dropout(x, dropout_prob=p, dropout_implementation=impl)
        (grad,) = fluid.gradients([layers.reduce_sum(dropped)], [x])
    feed = {"x": np.random.RandomState(seed).uniform(0.5, 1.5, (40, 50)).astype("float32")}
    run = Run(startup)
    out, d_x = run(main, feed, [dropped, grad])
    (again,) = run(main, feed, [dropped])
    kept = out != 0
    scale = 1.0 / (1.0 - p) if impl == "upscale_in_train" else 1.0
    return {
        "kept in range": np.array(abs(kept.mean() - (1 - p)) < 0.06),
        "out": np.array(np.allclose(out[kept], feed["x"][kept] * scale, rtol=1e-5)),
        "grad": np.array(np.allclose(d_x, kept * scale, rtol=1e-5)),
        "fresh mask each run": np.array(bool((out != again).any())),
    }


@builder
def shared_param(seed, times=2, clip=None):
    random = Random(seed)
    main, startup = programs()
    start = random.uniform(6, 6)
    with fluid.program_guard(main, startup):
        h = layers.data(name="x", shape=[6], dtype="float32")
        for _ in range(times):
            h = layers.fc(h, 6, act="tanh", param_attr=starting_from(start, "shared.w"), bias_attr=False)
        loss = layers.mean(layers.square(h))
        pairs = fluid.append_backward(loss)
        note("backward", main)
    results = Run(startup)(main, {"x": random.uniform(4, 6)}, [loss, *(grad for _, grad in pairs)])
    return {"loss": results[0], "grad": results[1], "pairs": np.array(len(pairs))}


@builder
def branches(seed, stop, no_grad=None):
    """A variable with three consumers; one branch may be cut."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[5], dtype="float32")
        h = fc(x, 5, random, act="relu", name="h")
        a = fc(h, 3, random, act="tanh", name="a")
        b = fc(h, 3, random, act="sigmoid", name="b")
        product = layers.elementwise_mul(a, b)
        if stop is not None:
            {"a": a, "b": b, "h": h}[stop].stop_gradient = True
        mean = layers.reduce_mean(h, dim=1, keep_dim=True)
        loss = layers.reduce_sum(layers.elementwise_add(product, mean, axis=0))
        pairs = fluid.append_backward(loss, no_grad_set=set(no_grad) if no_grad else None)
    note("main", main)
    results = Run(startup)(main, {"x": random.uniform(4, 5)}, [loss, *(grad for _, grad in pairs)])
    return dict(zip(["loss", *(param.name for param, _ in pairs)], results, strict=True))


@builder
def gradients_api(seed, with_cot, two_targets=False, no_grad=False):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=[3, 4], dtype="float32")
        z = fluid.data(name="z", shape=[4], dtype="float32")
        x.stop_gradient = z.stop_gradient = False
        u = layers.elementwise_mul(layers.tanh(x), z, axis=-1)
        v = layers.reduce_sum(layers.exp(u), dim=1)
        feed = {"x": random.uniform(3, 4), "z": random.uniform(4)}
        targets = [u, v] if two_targets else [u]
        given = None
        if with_cot:
            given = []
            for i, target in enumerate(targets):
                given.append(fluid.data(name=f"c{i}", shape=list(target.shape), dtype="float32"))
                feed[f"c{i}"] = random.uniform(*target.shape)
        grads = fluid.gradients(targets, [x, z], target_gradients=given, no_grad_set={z.name} if no_grad else None)
    note("main", main)
    results = Run(startup)(main, feed, [grad for grad in grads if grad is not None])
    return {"none": np.array([grad is None for grad in grads]), **{f"g{i}": value for i, value in enumerate(results)}}


@builder
def multi_loss(seed, w0, w1):
    """Two losses joined; a list says which parameters are updated."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[5], dtype="float32")
        h = fc(x, 5, random, act="tanh", name="h")
        a, b = fc(h, 2, random, name="a"), fc(h, 3, random, name="b")
        loss_a, loss_b = layers.mean(layers.square(a)), layers.mean(layers.abs(b))
        total = layers.sum([layers.scale(loss_a, w0), layers.scale(loss_b, w1)])
        fluid.optimizer.SGD(0.1).minimize(total, parameter_list=["h.w", "a.w", "b.w", "h.b"])
    note("main", main)
    run, feed = Run(startup), {"x": random.uniform(4, 5)}
    results = {f"step{i}": np.concatenate(run(main, feed, [loss_a, loss_b, total])) for i in range(3)}
    return results | parameters(run, main)


@builder
def several_inputs(seed, n):
    """Layers with two inputs, and with two dimensions of rows."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[2, 3], dtype="float32")
        z = layers.data(name="z", shape=[4], dtype="float32")
        weights = [starting_from(random.uniform(6, 5), "w0"), starting_from(random.uniform(4, 5), "w1")]
        bias = starting_from(random.uniform(5), "b0")
        h = layers.fc([x, z], 5, act="sigmoid", param_attr=weights, bias_attr=bias)
        weight, bias = starting_from(random.uniform(3, 2), "w2"), starting_from(random.uniform(2), "b2")
        k = layers.fc(x, 2, num_flatten_dims=2, param_attr=weight, bias_attr=bias)
        loss = layers.mean(layers.square(h)) + layers.mean(k)
        pairs = fluid.append_backward(loss)
    note("main", main)
    feed = {"x": random.uniform(n, 2, 3), "z": random.uniform(n, 4)}
    results = Run(startup)(main, feed, [h, k, loss, *(grad for _, grad in pairs)])
    return dict(zip(["h", "k", "loss", *(param.name for param, _ in pairs)], results, strict=True))


@builder
def layer_chain(seed):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=[4, 6], dtype="float32")
        x.stop_gradient = False
        a = layers.transpose(layers.reshape(x, [2, 0, -1]), [0, 2, 1])
        b = layers.concat([a, layers.scale(a, 2.0, bias=0.5, bias_after_scale=False)], axis=-1)
        c = layers.matmul(b, a, transpose_x=True, alpha=0.5)
        d = layers.elementwise_sub(c, layers.reduce_mean(c, dim=[0, -1]), axis=1)
        e = layers.reduce_max(d, dim=2, keep_dim=True)
        f = layers.elementwise_min(layers.elementwise_max(d, e), layers.abs(d))
        values, indices = layers.topk(layers.reshape(d, [-1, 3]), k=2)
        g = layers.log(layers.sqrt(layers.softmax(f, axis=1)))
        total = layers.reduce_sum(g) + layers.reduce_sum(values) + layers.reduce_min(f)
        total = total + layers.mean(layers.elementwise_div(f, layers.exp(layers.sign(d))))
        (grad,) = fluid.gradients([total], [x])
    note("main", main)
    results = Run(startup)(main, {"x": random.uniform(4, 6)}, [b, f, values, indices, g, total, grad])
    return {str(i): value for i, value in enumerate(results)}


@builder
def losses(seed):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=[5, 3], dtype="float32")
        y = fluid.data(name="y", shape=[5, 3], dtype="float32")
        label = fluid.data(name="l", shape=[5, 1], dtype="int64")
        x.stop_gradient = False
        softmax = layers.softmax(x)
        found = [
            layers.cross_entropy(softmax, label),
            layers.softmax_with_cross_entropy(x, label),
            layers.softmax_with_cross_entropy(x, layers.softmax(y), soft_label=True),
            layers.square_error_cost(x, y),
            layers.mse_loss(x, y),
            layers.cross_entropy(softmax, label, ignore_index=1),
            layers.softmax_with_cross_entropy(x, label, ignore_index=2),
            layers.cross_entropy(softmax, layers.softmax(y), soft_label=True),
        ]
        (grad,) = fluid.gradients([layers.sum([layers.reduce_sum(loss) for loss in found])], [x])
    note("main", main)
    feed = {"x": random.uniform(5, 3), "y": random.uniform(5, 3), "l": random.labels(3, 5, 1)}
    results = Run(startup)(main, feed, [*found, grad])
    return {f"{i:02}": value for i, value in enumerate(results)}


@builder
def variable_operators(seed, batch=None):
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = fluid.data(name="x", shape=[batch, 4], dtype="float32")
        y = fluid.data(name="y", shape=[batch, 4], dtype="float32")
        z = fluid.data(name="z", shape=[4], dtype="float32")
        i = fluid.data(name="i", shape=[4], dtype="int64")
        found = [x + y, x - y, x * y, x / y, x + 1.5, 2.0 - x, 3 * x, 1.0 / y, x / 4.0, x - 0.25, -x]
        found += [i + 1, i * 2, 5 - i, -i, x.astype("float64"), x.astype("int32"), x + z, x * z]
        found += [x - i.astype("float32"), layers.reduce_sum(x) * 2.0 + layers.reduce_mean(y)]
    note("main", main)
    v, w = random.uniform(3, 4), random.uniform(3, 4)
    w = np.where(np.abs(w) < 0.2, 0.7, w).astype("float32")
    feed = {"x": v, "y": w, "z": random.uniform(4), "i": np.array([3, -7, 8, 5], "int64")}
    return {f"{k:02}": value for k, value in enumerate(Run(startup)(main, feed, found))}


@builder
def clone_for_test(seed, p=0.4, impl="downgrade_in_infer", after=False):
    """The evaluation program, taken before or after the updates are appended."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[6], dtype="float32")
        h = fc(x, 8, random, act="relu", name="h")
        dropped = layers.dropout(h, dropout_prob=p, dropout_implementation=impl)
        out = fc(dropped, 3, random, name="o")
        loss = layers.mean(layers.square(out))
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(0.0).minimize(loss)
        if after:
            test = main.clone(for_test=True)
    note("test", test)
    note("main", main)
    run, feed = Run(startup), {"x": random.uniform(9, 6)}
    run(main, feed, [loss])
    return dict(zip(["test out", "test dropout"], run(test, feed, [out.name, dropped.name]), strict=True))


@builder
def error_clip_shared(seed, hi):
    """An error clip on a variable with two consumers, applied by the optimizer."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[6], dtype="float32")
        h = fc(x, 5, random, act="tanh", name="h")
        h.error_clip = fluid.clip.ErrorClipByValue(max=hi)
        loss = layers.reduce_sum(layers.square(layers.elementwise_add(fc(h, 5, random, name="o"), layers.square(h))))

    def append_updates():
        fluid.optimizer.SGD(0.01).minimize(loss)

    results = train(main, startup, loss, append_updates, 3, [{"x": random.uniform(5, 6)}])
    note("main", main)
    return results


@builder
def two_optimizers(seed):
    """Two losses, each with an optimizer and parameters of its own."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[5], dtype="float32")
        h = fc(x, 5, random, act="tanh", name="h")
        a, b = fc(h, 2, random, name="a"), fc(h, 3, random, name="b")
        loss_a, loss_b = layers.mean(layers.square(a)), layers.mean(layers.abs(b))
        clip = clip_strategy("norm", 0.1)
        fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(loss_a, parameter_list=["a.w", "a.b"])
        fluid.optimizer.Momentum(0.2, 0.9).minimize(loss_b, parameter_list=["b.w", "h.w"])
    note("main", main)
    note("startup", startup)
    run, feed = Run(startup), {"x": random.uniform(4, 5)}
    results = {f"step{i}": np.concatenate(run(main, feed, [loss_a, loss_b])) for i in range(3)}
    return results | parameters(run, main)


@builder
def names(seed):
    """The names that layers take, with gradients, clipping, decay and updates."""
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[4], dtype="float32")
        y = layers.data(name="y", shape=[1], dtype="int64")
        a = layers.fc(x, 3, act="relu")
        b = layers.fc([x, a], 2, act="tanh", bias_attr=False)
        c = layers.fc(x, 3, name="named")
        d = layers.dropout(c, 0.5)
        e = layers.fc(c, 3, name="named", act="sigmoid")
        p = layers.fc(layers.reshape(d, [-1, 3, 1]), 2, act="softmax")
        loss_p = layers.mean(layers.cross_entropy(p, y))
        loss_b = layers.mean(layers.softmax_with_cross_entropy(b, y))
        loss_e = layers.reduce_mean(layers.square_error_cost(e, a))
        first, second = layers.relu(c, name="r"), layers.relu(c, name="r")
        with fluid.name_scope("scoped"):
            loss_r = layers.mean(layers.sigmoid(first) + layers.exp(second))
        layers.cast(layers.transpose(layers.topk(p, k=1)[0], [1, 0]), "float64")
        layers.mse_loss(layers.clip_by_norm(layers.clip(c, -1.0, 1.0), 1.0), c)
        layers.scale(layers.concat([first, second], axis=1), 2.0, name="sc")
        largest = layers.elementwise_max(first, second)
        w = layers.create_parameter([3], "float32")
        layers.create_global_var([1], 0.5, "float32", persistable=True)
        layers.fill_constant([2], "float32", 1.5)
        layers.log_softmax(largest)
        loss_w = layers.reduce_sum(layers.elementwise_mul(largest, w))
        total = layers.sum([loss_p, loss_b, loss_e, loss_r, loss_w])
        clip, l2 = fluid.clip.GradientClipByGlobalNorm(1.0), fluid.regularizer.L2Decay(0.1)
        fluid.optimizer.Adam(0.01, grad_clip=clip, regularization=l2).minimize(total)
    note("main", main)
    note("startup", startup)
    return {"number of persistables": np.array(sum(var.persistable for var in main.list_vars()))}


@builder
def more_names(seed):
    """Every layer, with and without a name given."""
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[4], dtype="float32")
        f = fluid.data(name="f", shape=[3, 4], dtype="float32")
        y = layers.data(name="y", shape=[1], dtype="int64")
        for name in ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "square", "abs", "softmax"):
            getattr(layers, name)(x)
            getattr(layers, name)(x, name="given")
        layers.sign(x)
        layers.log_softmax(x, axis=1, dtype="float64", name="ls")
        for name in ("add", "sub", "mul", "div", "max", "min"):
            getattr(layers, f"elementwise_{name}")(x, x)
            getattr(layers, f"elementwise_{name}")(x, x, act="relu", name="given")
        for name in ("sum", "mean", "max", "min"):
            getattr(layers, f"reduce_{name}")(x)
            getattr(layers, f"reduce_{name}")(x, dim=1, keep_dim=True)
            getattr(layers, f"reduce_{name}")(x, dim=[0, 1], name="given")
        layers.mean(x, name="m")
        total = layers.sums([x, x])
        layers.sums([x, x], out=total)
        layers.sum(x)
        layers.scale(x, 2.0, act="tanh")
        layers.cast(x, "int64")
        layers.assign(x)
        layers.assign(x, output=total)
        layers.assign(np.array([1.5, 2.0], "float32"))
        layers.concat([x, x], axis=1, name="cc")
        layers.reshape(x, [-1, 2, 2], act="relu")
        layers.reshape(f, [0, -1], name="rs")
        layers.transpose(f, [1, 0], name="tr")
        layers.topk(x, 2, name="tk")
        layers.fill_constant([2, 3], "int64", 3)
        layers.fill_constant_batch_size_like(x, [-1, 3], "float32", 0.5)
        layers.ones([2], "float32")
        layers.zeros([2], "int64")
        layers.increment(layers.create_global_var([1], 0.0, "float32", persistable=True), 2.0)
        layers.create_tensor("float32")
        layers.create_parameter([2, 3], "float32", name="cp")
        layers.create_parameter([2], "float32", is_bias=True)
        layers.uniform_random([2, 3], min=0.0)
        layers.gaussian_random([2, 3], std=2.0)
        layers.matmul(f, f, transpose_y=True, alpha=2.0, name="mm")
        layers.mul(x, layers.create_parameter([4, 2], "float32"))
        layers.clip(x, 0.0, 1.0, name="cl")
        layers.clip_by_norm(x, 1.0, name="cn")
        p = layers.fc(x, 3, act="softmax", name="p")
        layers.accuracy(p, y, k=2)
        layers.cross_entropy(p, p, soft_label=True)
        layers.softmax_with_cross_entropy(p, y, return_softmax=True)
        layers.dropout(p, 0.5, name="dr")
        layers.square_error_cost(x, x)
        layers.mse_loss(x, x)
        layers.fc(f, 2, num_flatten_dims=1, param_attr="pw", bias_attr="pb", act="tanh", name="nn")
        layers.fc(f, 2, param_attr="pw", bias_attr="pb")
        _ = -x, x * 2.0, x / x, 1.0 - x, 2.0 / x, x.astype("float64")
    note("main", main)
    note("startup", startup)
    return {"number of variables": np.array(len(list(main.list_vars())))}


# The executor's surface


@builder
def feed_forms(seed):
    """Fetching by name or variable, tensors for arrays, a DataFeeder, two batch sizes, a counter in the scope."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        x = layers.data(name="x", shape=[3], dtype="float32")
        z = fluid.data(name="z", shape=[None, 3], dtype="float32")
        y = layers.data(name="y", shape=[1], dtype="int64")
        total = x + z
        counter = layers.create_global_var([1], 1.0, "float32", persistable=True, name="counter")
        layers.increment(counter, 2.0)
        feeder = fluid.DataFeeder(feed_list=[x, z, y], place=_place)
    rows = [(random.uniform(3), random.uniform(3), int(random.state.randint(5))) for _ in range(4)]
    fed = feeder.feed(rows)
    run = Run(startup)
    with fluid.scope_guard(run.scope):
        first = run.executor.run(main, feed=fed, fetch_list=[total, "y", "counter"])
        tensors = run.executor.run(main, feed=fed, fetch_list=[total], return_numpy=False)
    batch = {"x": random.uniform(2, 3), "z": random.uniform(2, 3), "y": np.zeros((2, 1), "int64")}
    second = run(main, batch, [total.name, counter])
    return {
        "s": first[0],
        "y": first[1],
        "counter 1": first[2],
        "raw": np.array(tensors[0]),
        "s2": second[0],
        "counter 3": second[1],
    }


@builder
def initializers(seed, name, args, shape):
    """Moments of a random parameter."""
    main, startup = programs()
    with fluid.program_guard(main, startup):
        attr = fluid.ParamAttr(name="p", initializer=getattr(fluid.initializer, name)(**args))
        layers.create_parameter(shape, "float32", name="p", attr=attr)
    note("startup", startup)
    value = Run(startup).value("p")
    return {"mean": value.mean(), "std": value.std(), "absmax": np.abs(value).max()}


@builder
def two_programs_one_scope(seed):
    """Programs for training and evaluation, built apart, that share a parameter by its name."""
    random = Random(seed)
    training, startup = programs()
    evaluation, other_startup = programs()
    start = random.uniform(5, 2)
    with fluid.program_guard(training, startup):
        x = layers.data(name="x", shape=[5], dtype="float32")
        loss = layers.mean(layers.square(layers.fc(x, 2, param_attr=starting_from(start, "w"), bias_attr=False)))
        fluid.optimizer.SGD(0.5).minimize(loss)
    with fluid.program_guard(evaluation, other_startup):
        x = layers.data(name="x", shape=[5], dtype="float32")
        out = layers.fc(x, 2, param_attr=starting_from(start, "w"), bias_attr=False)
    run = Run(startup)
    feed = {"x": random.uniform(3, 5)}
    (before,) = run(evaluation, feed, [out])
    run(training, feed, [loss])
    (after,) = run(evaluation, feed, [out])
    return {"before": before, "after": after}


@builder
def readers(seed):
    def numbers():
        for i in range(10):
            yield (i, i * i)

    reader = fluid.reader
    batches = [[list(row) for row in batch] for batch in fluid.batch(numbers, 4)()]
    return {
        "batch": np.array([number for batch in batches for row in batch for number in row]),
        "lens": np.array([len(batch) for batch in batches]),
        "drop_last": np.array([len(batch) for batch in fluid.batch(numbers, 4, drop_last=True)()]),
        "shuffle": np.array(sorted(row[0] for row in reader.shuffle(numbers, 5)())),
        "firstn": np.array([row[0] for row in reader.firstn(numbers, 3)()]),
        "chain": np.array([row[0] for row in reader.chain(numbers, numbers)()]),
        "map": np.array(list(reader.map_readers(lambda p, q: p[0] + q[1], numbers, numbers)())),
        "compose": np.array([list(row) for row in reader.compose(numbers, numbers)()]),
        "buffered": np.array([row[1] for row in reader.buffered(numbers, 2)()]),
        "cache": np.array([row[1] for row in reader.cache(numbers)()]),
    }


@builder
def errors(seed):
    """1 where the call raises."""
    random = Random(seed)
    main, startup = programs()
    with fluid.program_guard(main, startup):
        loss = classifier(random).loss
        z = fluid.data(name="z", shape=[2, 3], dtype="float32")
        doubled = layers.scale(z, 2.0)
    run = Run(startup)
    feed = random.batch()
    full = {**feed, "z": np.zeros((2, 3), "float32")}

    def while_building(layer):
        def build():
            with fluid.program_guard(*programs()):
                layer()

        return build

    def data(name, *shape, dtype="float32"):
        return fluid.data(name, list(shape), dtype)

    def block():
        return fluid.default_main_program().global_block()

    calls = {
        "missing feed": lambda: run(main, {"x": feed["x"]}, [loss]),
        "startup not run": lambda: Run()(main, full, [loss]),
        "unknown fetch": lambda: run(main, full, ["no such variable"]),
        "wrong dtype for fluid.data": lambda: run(main, {**full, "z": np.zeros((2, 3), "float64")}, [doubled]),
        "wrong shape for fluid.data": lambda: run(main, {**full, "z": np.zeros((3, 3), "float32")}, [doubled]),
        "wrong inner size for fc": lambda: run(main, {**full, "x": np.zeros((7, 5), "float32")}, [loss]),
        "label out of range": lambda: run(main, {**full, "y": feed["y"] + 100}, [loss]),
        "good run": lambda: run(main, full, [loss]),
    }
    building = {
        "mul inner mismatch": lambda: layers.mul(data("a", 2, 3), data("b", 4, 2)),
        "concat mismatch": lambda: layers.concat([data("a", 2, 3), data("b", 2, 4)], axis=0),
        "unknown op type": lambda: block().append_op(type="no_such_op", inputs={}, outputs={}),
        "int input to fc": lambda: layers.fc(data("a", 2, 3, dtype="int64"), 2),
        "clip not a clip object": lambda: fluid.clip.set_gradient_clip(1.0),
        "optimizer clip not a clip object": lambda: fluid.optimizer.SGD(0.1, grad_clip=1.0),
        "bad string learning rate": lambda: fluid.optimizer.SGD("x"),
        "backward loss not a variable": lambda: fluid.append_backward("loss"),
        "reshape impossible": lambda: layers.reshape(data("a", 2, 3), [4, 2]),
        "dropout string": lambda: layers.dropout("a", 0.5),
        "var not in block": lambda: block().var("nothing"),
    }
    calls |= {name: while_building(layer) for name, layer in building.items()}
    return {name: np.array(int(raises(call))) for name, call in calls.items()}


def raises(call) -> bool:
    try:
        call()
    except fluid.MinigraphError:
        return True
    return False
