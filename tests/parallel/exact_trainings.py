"""Trainings whose bits must not depend on the number of ranks; also a script for ranks that MPI connects."""

import hashlib
import sys

import numpy as np

import minigraph as fluid
from minigraph import parallel
from minigraph.parallel import DataParallel

SHARDS = 8
BATCH = 16


def classified(scores):
    y = fluid.data("y", [None, 1], "int64")
    return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, y))


def perceptron():
    hidden = fluid.layers.fc(fluid.data("x", [None, 20]), 32, act="relu")
    hidden = fluid.layers.dropout(hidden, 0.3, dropout_implementation="upscale_in_train")
    return classified(fluid.layers.fc(hidden, 10))


def lenet():
    x = fluid.data("image", [None, 1, 12, 12])
    hidden = fluid.nets.simple_img_conv_pool(x, 4, 3, 2, 2, act="relu")
    hidden = fluid.nets.simple_img_conv_pool(hidden, 8, 3, 2, 2, act="relu")
    return classified(fluid.layers.fc(fluid.layers.dropout(hidden, 0.2), 10))


def characters():
    """An LSTM over 6 characters, with a table of them."""
    table = fluid.embedding(fluid.data("text", [None, 6], "int64"), [30, 12], is_sparse=True)
    table = fluid.layers.dropout(table, 0.1)
    hidden = cell = fluid.layers.fill_constant_batch_size_like(table, [-1, 16], "float32", 0.0)
    for letter in fluid.layers.unstack(table, 1, 6):
        weights = {"param_attr": fluid.ParamAttr("lstm.w"), "bias_attr": fluid.ParamAttr("lstm.b")}
        hidden, cell = fluid.layers.lstm_unit(letter, hidden, cell, **weights)
    return classified(fluid.layers.fc(hidden, 10))


def recurrence():
    """The LSTM as a recurrent block, whose batch is not known, with a dropout in each step."""
    table = fluid.embedding(fluid.data("text", [None, 6], "int64"), [30, 12])
    letters = fluid.layers.transpose(table, [1, 0, 2])
    cell, network = fluid.layers.LSTMCell(16), fluid.layers.StaticRNN()
    with network.step():
        letter = fluid.layers.dropout(network.step_input(letters), 0.1)
        before = [network.memory(shape=[-1, 16], batch_ref=letters) for _ in range(2)]
        hidden, after = cell(letter, before)
        for memory, value in zip(before, after, strict=True):
            network.update_memory(memory, value)
        network.step_output(hidden)
    return classified(fluid.layers.fc(fluid.layers.reduce_sum(network(), 0), 10))


def residual():
    """Convolutions with running statistics, of which one batch norm is used twice."""

    def normed(x, name, act=None):
        names = {"param_attr": f"{name}.scale", "bias_attr": f"{name}.bias"}
        statistics = {"moving_mean_name": f"{name}.mean", "moving_variance_name": f"{name}.variance"}
        return fluid.layers.batch_norm(x, act, **names, **statistics)

    def conv(x):
        return fluid.layers.conv2d(x, 4, 3, padding=1, bias_attr=False)

    hidden = normed(conv(fluid.data("image", [None, 1, 12, 12])), "first", "relu")
    for _ in range(2):
        hidden = fluid.layers.relu(hidden + normed(conv(hidden), "shared"))
    return classified(fluid.layers.fc(fluid.layers.pool2d(hidden, global_pooling=True, pool_type="avg"), 10))


def autoencoder():
    """A variational autoencoder that is fed noise too, and drops hidden units."""
    x = fluid.data("x", [None, 20])
    noisy = x + fluid.layers.uniform_random_batch_size_like(x, [-1, 20], min=-0.1, max=0.1)
    hidden = fluid.layers.dropout(fluid.layers.fc(noisy, 16, act="tanh"), 0.1)
    mean, spread = fluid.layers.fc(hidden, 4), fluid.layers.fc(hidden, 4)
    code = mean + fluid.layers.exp(0.5 * spread) * fluid.layers.gaussian_random_batch_size_like(mean, [-1, 4])
    lost = fluid.layers.reduce_sum(fluid.layers.square(fluid.layers.fc(code, 20) - x), 1)
    divergence = fluid.layers.reduce_sum(fluid.layers.exp(spread) + fluid.layers.square(mean) - 1.0 - spread, 1)
    return fluid.layers.mean(lost + 0.5 * divergence)


def measured():
    """A classifier with metrics that keep state of all ranks' samples."""
    scores = fluid.layers.fc(fluid.data("x", [None, 20]), 10, act="softmax")
    y = fluid.data("y", [None, 1], "int64")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(scores, y))
    fluid.layers.auc(fluid.layers.slice(scores, [1], [0], [2]), fluid.layers.cast(y > 4, "int64"))
    kept = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="kept")
    fluid.layers.assign(0.9 * kept + 0.1 * loss, kept)
    return loss


NETWORKS = {
    each.__name__: each for each in (perceptron, lenet, characters, recurrence, residual, autoencoder, measured)
}

SHORT = dict.fromkeys(NETWORKS, (10,))
FEW = dict.fromkeys(("perceptron", "characters", "measured"), (10,))
LONG = dict.fromkeys(("perceptron", "lenet", "characters"), (100,))
BOTH = {name: (*marks, *LONG.get(name, ())) for name, marks in SHORT.items()}
"""Numbers of steps after which networks are compared; one training shows the shorter one on its way."""


def feeds_of(block, step):
    rng = np.random.default_rng(step)
    made = {
        "x": rng.normal(size=(BATCH, 20)).astype("float32"),
        "image": rng.normal(size=(BATCH, 1, 12, 12)).astype("float32"),
        "text": rng.integers(0, 30, (BATCH, 6)),
        "y": rng.integers(0, 10, (BATCH, 1)),
    }
    return {name: array for name, array in made.items() if block.has_var(name)}


def built(name, ranks, sharded=False):
    """The program of a training, the programs that ranks run to start and to train, and the name of its norm."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 11
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = NETWORKS[name]()
        clip = fluid.clip.GradientClipByGlobalNorm(0.5)
        fluid.optimizer.Adam(0.01, grad_clip=clip).minimize(loss)
    rewrite = DataParallel(ranks, shards=SHARDS, exact=True, sharded=sharded)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    (norm,) = [op.output("Out")[0] for op in main.global_block().ops if op.type == "sqrt"]
    return main, startup, twin, norm


def train(programs, rank, ranks, marks):
    """Digests of state and norms after these numbers of steps of one rank; all ranks may run the same programs."""
    main, startup, twin, norm = programs
    names = [p.name for p in main.all_parameters()]
    names += [out for op in main.global_block().ops.of_type("auc") for out in (*op.output("StatPosOut"), "kept")]
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    norms, found = [], []
    for step in range(max(marks)):
        parts = {key: np.split(array, ranks)[rank] for key, array in feeds_of(main.global_block(), step).items()}
        norms.append(executor.run(twin, parts, [norm], scope=scope)[0].tobytes())
        if step + 1 in marks:
            params = [np.array(scope.find_var(name).get_tensor()).tobytes() for name in names]
            found.append([hashlib.sha256(b"".join(each)).hexdigest() for each in (params, norms)])
    return found


if __name__ == "__main__":
    for name, marks in {"short": SHORT, "few": FEW, "long": LONG, "both": BOTH}[sys.argv[1]].items():
        for sharded in (False, True) if "sharded" in sys.argv else (False,):
            programs = built(name, parallel.size(), sharded)
            for mark, digests in zip(marks, train(programs, parallel.rank(), parallel.size(), marks), strict=True):
                print(name, mark, *digests)
