"""Trainings on several places, recorded from Paddle 1.8.5: what three steps fetch, and the parameters after them.

Running this file with Paddle, ``python golden_places.py``, writes ``places/arrays.npz`` beside it; it is therefore
written for Python 3.7, and the test hands it minigraph instead.
"""

from pathlib import Path

import golden_arrays
import numpy as np

FOLDER = Path(__file__).parent / "places"
STEPS = 3
CASES = {}
LOADERS = []
"""The loader of the latest network, until it is started."""


def case(places=2, batch=8, **options):
    """Register a network, a function of `fluid` that returns the loss and fetches, with how it is run."""

    def decorate(network):
        CASES[f"{network.__name__}-{places}"] = (network, places, batch, options)
        return network

    return decorate


def weights(fluid, name, *shape):
    value = np.sin(np.arange(np.prod(shape))).reshape(shape).astype("float32")
    return fluid.ParamAttr(name, initializer=fluid.initializer.NumpyArrayInitializer(value))


def perceptron(fluid, optimizer, loader=False):
    x, y = fluid.data("x", [None, 6]), fluid.data("y", [None, 1], "int64")
    if loader:
        LOADERS.append(fluid.io.DataLoader.from_generator([x, y], 16, iterable=False))
        feeds = [feeds_of(x.block.program, 2 + number % 3, number) for number in range(4 * STEPS)]
        LOADERS[-1].set_batch_generator(lambda: ([feed["x"], feed["y"]] for feed in feeds))
    hidden = fluid.layers.fc(x, 5, param_attr=weights(fluid, "w", 6, 5), act="tanh")
    scores = fluid.layers.fc(hidden, 3, param_attr=weights(fluid, "v", 5, 3))
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, y))
    optimizer.minimize(loss)
    return loss, [loss, scores, "w@GRAD"]


@case(2)
@case(4)
def gradient_descent(fluid):
    return perceptron(fluid, fluid.optimizer.SGD(0.5))


@case(2)
@case(4, fetches="apart")
def global_norm(fluid):
    clip = fluid.clip.GradientClipByGlobalNorm(0.1)
    decay = fluid.regularizer.L2Decay(0.01)
    return perceptron(fluid, fluid.optimizer.Momentum(0.5, 0.9, regularization=decay, grad_clip=clip))


@case(2, batch=5)
@case(4, batch=7)
def batches_that_places_do_not_divide(fluid):
    return perceptron(fluid, fluid.optimizer.Adam(0.1, grad_clip=fluid.clip.GradientClipByValue(0.05)))


@case(2, scale="One")
@case(4, scale="One")
def sum_of_losses(fluid):
    return perceptron(fluid, fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByNorm(0.2)))


@case(1, scale="Customized")
@case(2, scale="Customized")
@case(4, scale="Customized", feeds="list")
def gradients_of_the_loss_that_are_fed(fluid):
    return perceptron(fluid, fluid.optimizer.SGD(0.1))


@case(1, loader=True)
@case(2, loader=True)
@case(4, loader=True)
def batches_of_a_loader(fluid):
    return perceptron(fluid, fluid.optimizer.SGD(0.1), loader=True)


@case(2, feeds="list")
@case(4, feeds="list")
def a_feed_for_each_place(fluid):
    return perceptron(fluid, fluid.optimizer.Adagrad(0.1))


@case(2)
@case(4, reduce="Reduce")
def decaying_rate(fluid):
    loss, fetches = perceptron(fluid, fluid.optimizer.SGD(fluid.layers.exponential_decay(0.5, 2, 0.5)))
    return loss, fetches[:2]  # with Reduce, gradients of the original are summed on one place only


@case(2)
@case(4)
def batch_norm(fluid):
    x, y = fluid.data("x", [None, 6]), fluid.data("y", [None, 1], "int64")
    hidden = fluid.layers.fc(x, 4, param_attr=weights(fluid, "w", 6, 4), bias_attr=False)
    hidden = fluid.layers.batch_norm(hidden, act="relu", moving_mean_name="mean", moving_variance_name="variance")
    scores = fluid.layers.fc(hidden, 3, param_attr=weights(fluid, "v", 4, 3))
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss, [loss, scores, "mean"]


@case(2)
@case(4)
def sparse_table(fluid):
    words, y = fluid.data("words", [None, 3], "int64"), fluid.data("y", [None, 1], "int64")
    table = fluid.embedding(words, [20, 4], is_sparse=True, param_attr=weights(fluid, "w", 20, 4))
    scores = fluid.layers.fc(fluid.layers.reduce_mean(table, 1), 3, param_attr=weights(fluid, "v", 4, 3))
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, y))
    fluid.optimizer.SGD(0.5).minimize(loss)
    return loss, [loss, scores]


@case(2)
@case(4)
def convolution(fluid):
    x, y = fluid.data("image", [None, 1, 6, 6]), fluid.data("y", [None, 1], "int64")
    hidden = fluid.layers.conv2d(x, 2, 3, param_attr=weights(fluid, "w", 2, 1, 3, 3), act="relu")
    hidden = fluid.layers.pool2d(hidden, 2, "max", 2)
    scores = fluid.layers.fc(hidden, 3, param_attr=weights(fluid, "v", 8, 3))
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, y))
    fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True).minimize(loss)
    return loss, [loss, scores]


@case(2, executor="ParallelExecutor")
@case(4, executor="ParallelExecutor")
def older_executor(fluid):
    return perceptron(fluid, fluid.optimizer.SGD(0.5))


@case(2, batch=6)
@case(4, batch=7)
def sequences(fluid):
    rows = fluid.data("rows", [None, 2], lod_level=2)
    hidden = fluid.layers.fc(rows, 3, param_attr=weights(fluid, "w", 2, 3), act="tanh")
    pooled = fluid.layers.sequence_pool(fluid.layers.sequence_pool(hidden, "sum"), "max")
    loss = fluid.layers.mean(fluid.layers.fc(pooled, 1, param_attr=weights(fluid, "v", 3, 1)))
    fluid.optimizer.SGD(0.5).minimize(loss)
    return loss, [loss, pooled]


@case(2)
@case(4)
def forward_only(fluid):
    x = fluid.data("x", [None, 6])
    scores = fluid.layers.fc(x, 3, param_attr=weights(fluid, "w", 6, 3))
    return None, [scores, fluid.layers.reduce_sum(scores)]


def feeds_of(program, batch, step):
    rng = np.random.RandomState(step)
    shapes = {"x": [6], "y": [1], "words": [3], "image": [1, 6, 6]}
    top = {"y": 3, "words": 20}
    return {
        name: rng.randint(0, top[name], [batch] + shapes[name]).astype("int64")
        if name in top
        else rng.randn(*([batch] + shapes[name])).astype("float32")
        for name in sorted(shapes)
        if program.global_block().has_var(name)
    }


def run(fluid, name):
    """Arrays of a case by what they are: each fetch of each step, each parameter."""
    network, places, batch, options = CASES[name]
    main, startup = fluid.Program(), fluid.Program()
    found = {}
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        loss, fetches = network(fluid)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        if options.get("loader"):
            LOADERS.pop().start()
        run_step = prepare(fluid, executor, main, loss, places, options)
        for step in range(STEPS):
            feed = feeds_of(main, batch, step)
            if options.get("scale") == "Customized":
                feed[loss.name + "@GRAD"] = np.linspace(-1, 2, places).astype("float32")
            if options.get("loader"):
                feed = None
            if main.global_block().has_var("rows"):
                feed = {"rows": nested(fluid, batch, step)}
            if options.get("feeds") == "list":
                feed = [{key: np.array_split(feed[key], places)[i] for key in feed} for i in range(places)]
            values = run_step(feed, [each if isinstance(each, str) else each.name for each in fetches])
            for i, value in enumerate(values):
                for place, part in enumerate(value if isinstance(value, list) else [value]):
                    found[f"step{step}.{i}.{place}"] = np.array(part)
        for param in main.global_block().all_parameters():
            found[f"param.{param.name}"] = np.array(fluid.global_scope().find_var(param.name).get_tensor())
    return found


def nested(fluid, count, step):
    """So many sequences of up to three sequences of up to three rows."""
    rng = np.random.RandomState(step)
    outer = rng.randint(1, 4, count).tolist()
    inner = rng.randint(1, 4, sum(outer)).tolist()
    return fluid.create_lod_tensor(rng.randn(sum(inner), 2).astype("float32"), [outer, inner], fluid.CPUPlace())


def prepare(fluid, executor, main, loss, places, options):
    """A function of feed and fetches that makes a step."""
    strategy = fluid.BuildStrategy()
    if "scale" in options:
        scale = getattr(fluid.BuildStrategy.GradientScaleStrategy, options["scale"])
        strategy.gradient_scale_strategy = scale
    if options.get("reduce") == "Reduce":
        strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    name = None if loss is None else loss.name
    if options.get("executor") == "ParallelExecutor":
        parallel = fluid.ParallelExecutor(False, name, main, build_strategy=strategy)
        return lambda feed, fetches: parallel.run(fetches, feed)
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        name, build_strategy=strategy, places=fluid.cpu_places(places)
    )

    def step(feed, fetches):
        return executor.run(compiled, feed, fetches, return_merged=options.get("fetches") != "apart")

    return step


def record():
    import os

    import paddle.fluid as fluid

    arrays = {}
    for name in sorted(CASES):
        os.environ["CPU_NUM"] = str(CASES[name][1])
        for what, array in run(fluid, name).items():
            arrays[f"{name}/{what}"] = array
    FOLDER.mkdir(exist_ok=True)
    golden_arrays.write(FOLDER, arrays, {})


if __name__ == "__main__":
    record()
