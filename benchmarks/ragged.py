"""Steps of networks over sequences of different lengths, beside Paddle 1.8.5 and NumPy; runs on Python 3.7 too.

`python benchmarks/ragged.py --paddle PYTHON [--only NAME ...]` prints the shortest time of a step of each network in
both engines, and minigraph's divided by that of Paddle. The engines take turns, each time in a new process with one
thread. The lengths of the sequences differ in each step, and gradients are clipped by their global norm. `--numpy`
compares with steps that are written by hand in NumPy (`ragged_by_hand.py`), whose losses and parameters are checked on
the way; they take turns in one process.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np


def sequences(fluid, batch, longest, seed, row=(1,), high=None, lengths=None):
    """A tensor of sequences: numbers below `high`, or normal ones."""
    rng = np.random.RandomState(seed)
    if lengths is None:
        lengths = rng.randint(longest // 3, longest + 1, batch).tolist()
    shape = (sum(lengths),) + tuple(row)
    rows = rng.randint(0, high, shape).astype("int64") if high else rng.randn(*shape).astype("float32")
    return fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())


def data(fluid, name, row=(1,), dtype="float32", lod_level=1):
    return fluid.data(name, [None] + list(row), dtype, lod_level)


def classified(fluid, x):
    label = fluid.data("label", [None, 1], "int64")
    score = fluid.layers.fc(x, 2, act="softmax")
    return fluid.layers.mean(fluid.layers.cross_entropy(score, label))


def words(fluid, width=128):
    return fluid.embedding(data(fluid, "words", (), "int64"), [5000, width])


def fed_words(fluid, seed, batch=32, longest=60):
    labels = np.random.RandomState(seed).randint(0, 2, (batch, 1)).astype("int64")
    return {"words": sequences(fluid, batch, longest, seed, (), 5000), "label": labels}


def lstm(fluid, depth=1):
    x = words(fluid)
    for i in range(depth):
        x, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(x, 512), 512, is_reverse=i % 2 == 1, use_peepholes=False)
    return classified(fluid, fluid.layers.sequence_pool(x, "max")), fed_words


def stacked_lstm(fluid):
    return lstm(fluid, 3)


def gru(fluid):
    x = fluid.layers.dynamic_gru(fluid.layers.fc(words(fluid), 384), 128)
    return classified(fluid, fluid.layers.sequence_last_step(x)), fed_words


def conv(fluid):
    parts = [fluid.nets.sequence_conv_pool(words(fluid), 128, size, act="tanh", pool_type="sqrt") for size in (3, 4)]
    return classified(fluid, fluid.layers.concat(parts, 1)), fed_words


def pooled(fluid):
    x = words(fluid)
    weights = fluid.layers.sequence_softmax(fluid.layers.fc(x, 1))
    state = fluid.layers.sequence_expand(fluid.layers.sequence_pool(x, "average"), x)
    x = fluid.layers.elementwise_mul(x * state, weights, axis=0)
    padded, lengths = fluid.layers.sequence_pad(x, fluid.layers.fill_constant([1], "float32", 0.0))
    x = fluid.layers.sequence_unpad(padded, lengths)
    return classified(fluid, fluid.layers.sequence_pool(x, "sum")), fed_words


def by_hand(fluid):
    rnn, x = fluid.layers.DynamicRNN(), words(fluid, 64)
    with rnn.block():
        now, before = rnn.step_input(x), rnn.memory(shape=[64])
        state = fluid.layers.fc([now, before], 64, act="tanh")
        rnn.update_memory(before, state)
        rnn.output(state)
    return classified(fluid, fluid.layers.sequence_last_step(rnn())), fed_words


def tagging(fluid):
    x = fluid.layers.dynamic_gru(fluid.layers.fc(words(fluid, 64), 192), 64)
    emission, tags = fluid.layers.fc(x, 20), data(fluid, "tags", (1,), "int64")
    loss = fluid.layers.linear_chain_crf(emission, tags, fluid.ParamAttr("crfw"))
    fluid.layers.crf_decoding(emission, fluid.ParamAttr("crfw"))

    def feed(fluid, seed):
        given = sequences(fluid, 32, 60, seed, (), 5000)
        return {"words": given, "tags": sequences(fluid, 0, 0, seed, (1,), 20, given.recursive_sequence_lengths()[0])}

    return fluid.layers.mean(loss), feed


def ctc(fluid):
    x, labels = data(fluid, "x", (64,)), data(fluid, "labels", (1,), "int32")
    loss = fluid.layers.warpctc(fluid.layers.fc(x, 96), labels, blank=95)

    def feed(fluid, seed):
        marks = sequences(fluid, 32, 12, seed, (1,), 95)
        rows = fluid.create_lod_tensor(
            np.array(marks).astype("int32"), marks.recursive_sequence_lengths(), fluid.CPUPlace()
        )
        return {"x": sequences(fluid, 32, 60, seed, (64,), None, [40 + i % 21 for i in range(32)]), "labels": rows}

    return fluid.layers.mean(loss), feed


def edit_distance(fluid):
    given = [data(fluid, name, (1,), "int64") for name in ("a", "b")]
    distance, _ = fluid.layers.edit_distance(*given)

    def feed(fluid, seed):
        return {name: sequences(fluid, 32, 60, seed + i, (1,), 100) for i, name in enumerate("ab")}

    return fluid.layers.mean(fluid.layers.cast(distance, "float32")), feed


def row_conv(fluid):
    x = fluid.layers.row_conv(words(fluid), 5)
    return classified(fluid, fluid.layers.sequence_pool(x, "sum")), fed_words


def sampled(function):
    def network(fluid):
        word = fluid.data("word", [None], "int64")
        label = fluid.data("label", [None, 1], "int64")
        loss = function(fluid, fluid.embedding(word, [5000, 64]), label)

        def feed(fluid, seed):
            given = np.random.RandomState(seed).randint(0, 5000, (128, 1)).astype("int64")
            return {"word": given[::-1, 0].copy(), "label": given}

        return fluid.layers.mean(loss), feed

    return network


def on_images(function, shape=(8, 16, 32, 32)):
    def network(fluid):
        x = fluid.data("x", [None] + list(shape[1:]))
        x.stop_gradient = False
        out = function(fluid, fluid.layers.scale(x, 1.5))

        def feed(fluid, seed):
            return {"x": np.random.RandomState(seed % 2).randn(*shape).astype("float32")}

        return fluid.layers.mean(fluid.layers.square(out)), feed

    return network


VOLUMES = (2, 8, 8, 16, 16)

NETWORKS = {
    "lstm": lstm,
    "stacked-lstm": stacked_lstm,
    "gru": gru,
    "conv": conv,
    "pool-softmax-expand-pad": pooled,
    "dynamic-rnn": by_hand,
    "gru-crf": tagging,
    "ctc": ctc,
    "edit-distance": edit_distance,
    "row-conv": row_conv,
    "nce": sampled(lambda fluid, x, label: fluid.layers.nce(x, label, 5000, num_neg_samples=10)),
    "hsigmoid": sampled(lambda fluid, x, label: fluid.layers.hsigmoid(x, label, 5000)),
    "conv3d": on_images(lambda fluid, x: fluid.layers.conv3d(x, 16, 3, padding=1), VOLUMES),
    "pool3d": on_images(lambda fluid, x: fluid.layers.pool3d(x, 2, "max", 2), VOLUMES),
    "resize-bilinear": on_images(lambda fluid, x: fluid.layers.resize_bilinear(x, [64, 64])),
    "resize-nearest": on_images(lambda fluid, x: fluid.layers.resize_nearest(x, [64, 64])),
    "unfold": on_images(lambda fluid, x: fluid.layers.unfold(x, [3, 3], 1, 1)),
    "lrn": on_images(lambda fluid, x: fluid.layers.lrn(x)),
    "im2sequence": on_images(lambda fluid, x: fluid.layers.im2sequence(x, [4, 4], [4, 4])),
    "grid-sampler": on_images(
        lambda fluid, x: fluid.layers.grid_sampler(
            x, fluid.layers.transpose(fluid.layers.tanh(fluid.layers.conv2d(x, 2, 1)), [0, 2, 3, 1])
        )
    ),
}


def step_time(name, engine, seconds):
    """Shortest time of a step, in milliseconds."""
    if engine == "paddle":
        import paddle.fluid as fluid
    else:
        import minigraph as fluid
    executor, loss, feeds = started(fluid, name)
    return mean_of_best(seconds, [lambda feed=feed: executor.run(feed=feed, fetch_list=[loss]) for feed in feeds])[0]


def started(fluid, name):
    """An executor that has run the startup program of a network, its loss, and eight feeds."""
    loss, feed = NETWORKS[name](fluid)
    if any(True for _ in fluid.default_main_program().all_parameters()):
        fluid.optimizer.SGD(0.001, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)).minimize(loss)
    else:
        fluid.backward.append_backward(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor, loss, [feed(fluid, seed) for seed in range(8)]


def mean_of_best(seconds, *engines):
    """Milliseconds of a step of each engine, which is a list of its steps on the feeds; the engines take turns."""
    best = np.full((len(engines), len(engines[0])), np.inf)
    rounds, end = 0, time.process_time() + seconds * len(engines)
    while rounds < 2 or time.process_time() < end:
        for engine, steps in enumerate(engines):
            for i, step in enumerate(steps):
                before = time.process_time()
                step()
                best[engine, i] = min(best[engine, i], time.process_time() - before)
        rounds += 1
    # The lengths decide the work, so each feed counts with its own best step.
    return [1e3 * float(each) for each in best.mean(1)]


def steps_in_numpy():
    """Steps that are written by hand, by name of the network."""
    from ragged_by_hand import STEPS

    return STEPS


def beside_numpy(name, seconds):
    """Milliseconds of a step in minigraph and in NumPy, whose losses must agree."""
    import minigraph as fluid

    executor, loss, feeds = started(fluid, name)
    scope, given = fluid.global_scope(), fluid.default_main_program().all_parameters()
    params = {param.name: np.array(scope.find_var(param.name).get_tensor()) for param in given}
    labels = [np.array(feed[next(key for key in feed if key != "words")]) for feed in feeds]
    texts = [(np.array(feed["words"]), np.array(feed["words"].lod()[0])) for feed in feeds]
    batches = [(*text, label) for text, label in zip(texts, labels, strict=True)]
    ours = [lambda feed=feed: executor.run(feed=feed, fetch_list=[loss])[0] for feed in feeds]
    theirs = [lambda batch=batch: steps_in_numpy()[name](params, *batch) for batch in batches]
    for here, there in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(here(), there(), rtol=1e-5)
    for param, value in params.items():
        np.testing.assert_allclose(np.array(scope.find_var(param).get_tensor()), value, atol=1e-6)
    return dict(zip(("minigraph", "numpy"), mean_of_best(seconds, ours, theirs), strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paddle", help="an interpreter with Paddle 1.8.5")
    parser.add_argument("--only", nargs="*", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--numpy", action="store_true", help="compare with steps by hand, where there are any")
    parser.add_argument("--seconds", type=float, default=1.5, help="of the steps of an engine in one process")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name = given.only[0]
        if given.one == "numpy":
            found = beside_numpy(name, given.seconds)
        else:
            found = {given.one: step_time(name, given.one, given.seconds)}
        print(json.dumps(found))
        return 0
    pythons = {"numpy" if given.numpy else "minigraph": sys.executable}
    if given.paddle:
        pythons["paddle"] = given.paddle
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment["PYTHONPATH"] = root
    failed = False
    for name in given.only:
        if given.numpy and name not in steps_in_numpy():
            continue
        best = {}
        for _ in range(given.rounds):
            for engine, python in pythons.items():
                command = [python, os.path.abspath(__file__), "--one", engine, "--only", name]
                command += ["--seconds", str(given.seconds)]
                made = subprocess.run(command, env=environment, capture_output=True)
                if made.returncode:
                    failed = True
                    print(name, engine, made.stderr.decode().strip().splitlines()[-1:], flush=True)
                    continue
                for timed, found in json.loads(made.stdout.decode().splitlines()[-1]).items():
                    best[timed] = min(found, best.get(timed, found))
        shown = "".join(f"  {engine} {value:8.2f} ms" for engine, value in best.items())
        others = [value for engine, value in best.items() if engine != "minigraph"]
        ratio = f"  ratio {best['minigraph'] / others[0]:.2f}" if "minigraph" in best and others else ""
        print(f"{name:26}{shown}{ratio}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
