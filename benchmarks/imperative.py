"""Training steps of small networks in the imperative mode, beside Paddle 1.8.5; runs on Python 3.7 too.

`python benchmarks/imperative.py --paddle PYTHON [--only NAME ...] [--no-clip]` prints the shortest time of a step of
each network in both engines, and minigraph's divided by that of Paddle. The engines take turns, each time in a new
process with one thread. A step computes the loss, its gradients, a clip by their global norm and the updates of Adam;
`--no-clip` leaves out the clip.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time

import numpy as np

fluid = importlib.import_module(os.environ.get("FLUID", "minigraph"))
layers, dygraph = fluid.layers, fluid.dygraph

SECONDS = 1.5
"""Time of the steps of a network in one process."""

BATCH, LENGTH, WIDTH, WORDS, HEADS = 4, 8, 16, 100, 2


class Network(dygraph.Layer):
    """The mean loss, and the accuracy, of scores of two classes that `read` makes features for."""

    def __init__(self):
        super().__init__()
        self.embedding = dygraph.Embedding([WORDS, WIDTH])
        self.prediction = dygraph.Linear(WIDTH * self.features, 2, act="softmax")

    features = 1

    def forward(self, words, label):
        x = layers.reshape(self.embedding(words), [-1, LENGTH, WIDTH])
        score = self.prediction(self.read(x))
        loss = layers.mean(layers.cross_entropy(score, label))
        return loss, layers.accuracy(score, label)


class BagOfWords(Network):
    def __init__(self):
        super().__init__()
        self.first = dygraph.Linear(WIDTH, WIDTH, act="tanh")
        self.second = dygraph.Linear(WIDTH, WIDTH, act="tanh")

    def read(self, x):
        return self.second(self.first(layers.tanh(layers.reduce_sum(x, dim=1))))


class Convolution(Network):
    def __init__(self):
        super().__init__()
        self.conv = dygraph.Conv2D(1, WIDTH, [3, WIDTH], padding=[1, 0], act="tanh")
        self.dense = dygraph.Linear(WIDTH, WIDTH, act="softmax")

    def read(self, x):
        x = self.conv(layers.reshape(x, [-1, 1, LENGTH, WIDTH]))
        x = layers.reshape(layers.reduce_max(x, dim=2), [-1, WIDTH])
        return self.dense(x)


class Gru(dygraph.Layer):
    def __init__(self, is_reverse):
        super().__init__()
        self.project = dygraph.Linear(WIDTH, 3 * WIDTH)
        self.unit = dygraph.GRUUnit(3 * WIDTH)
        self.is_reverse = is_reverse

    def forward(self, x):
        x = self.project(x)
        hidden = dygraph.to_variable(np.zeros((BATCH, WIDTH), "float32"))
        states = []
        for i in range(x.shape[1])[:: -1 if self.is_reverse else 1]:
            now = layers.reshape(x[:, i : i + 1, :], [-1, 3 * WIDTH])
            hidden, _, _ = self.unit(now, hidden)
            states.append(layers.reshape(hidden, [-1, 1, WIDTH]))
        return layers.concat(states[:: -1 if self.is_reverse else 1], axis=1)


class BidirectionalGru(Network):
    features = 2

    def __init__(self):
        super().__init__()
        self.forwards, self.backwards = Gru(False), Gru(True)

    def read(self, x):
        states = [layers.tanh(layers.reduce_max(gru(x), dim=1)) for gru in (self.forwards, self.backwards)]
        return layers.concat(states, axis=1)


class Attention(Network):
    def __init__(self):
        super().__init__()
        self.parts = dygraph.LayerList([dygraph.Linear(WIDTH, WIDTH) for _ in range(4)])
        self.norms = dygraph.LayerList([dygraph.LayerNorm(WIDTH) for _ in range(2)])
        self.wide = dygraph.Linear(WIDTH, 4 * WIDTH, act="relu")
        self.narrow = dygraph.Linear(4 * WIDTH, WIDTH)

    def heads(self, x):
        return layers.transpose(layers.reshape(x, [0, 0, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    def read(self, x):
        query, key, value = [self.heads(part(x)) for part in list(self.parts)[:3]]
        weights = layers.softmax(layers.matmul(query, key, transpose_y=True, alpha=(WIDTH // HEADS) ** -0.5))
        weights = layers.dropout(weights, 0.1)
        mixed = layers.transpose(layers.matmul(weights, value), [0, 2, 1, 3])
        x = self.norms[0](x + self.parts[3](layers.reshape(mixed, [0, 0, WIDTH])))
        x = self.norms[1](x + self.narrow(self.wide(x)))
        return layers.reduce_mean(x, dim=1)


NETWORKS = {
    "bag-of-words": BagOfWords,
    "cnn": Convolution,
    "bidirectional-gru": BidirectionalGru,
    "attention": Attention,
}


def step_time(name, is_clipped):
    """Shortest time of a step, in milliseconds."""
    rng = np.random.RandomState(0)
    batches = [(rng.randint(0, WORDS, (BATCH, LENGTH)), rng.randint(0, 2, (BATCH, 1))) for _ in range(8)]
    with fluid.dygraph.guard(fluid.CPUPlace()):
        network = NETWORKS[name]()
        clip = fluid.clip.GradientClipByGlobalNorm(1.0) if is_clipped else None
        optimizer = fluid.optimizer.Adam(0.001, parameter_list=network.parameters(), grad_clip=clip)
        times = []
        end = time.perf_counter() + SECONDS
        while len(times) < 16 or time.perf_counter() < end:
            words, label = batches[len(times) % len(batches)]
            before = time.perf_counter()
            words, label = fluid.dygraph.to_variable(words), fluid.dygraph.to_variable(label)
            loss, _ = network(words, label)
            loss.backward()
            optimizer.minimize(loss)
            network.clear_gradients()
            times.append(time.perf_counter() - before)
    return 1e3 * min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paddle", help="an interpreter with Paddle 1.8.5")
    parser.add_argument("--only", nargs="*", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-clip", action="store_true", help="do not clip gradients")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(step_time(given.only[0], not given.no_clip)))
        return
    engines = {"minigraph": ("minigraph", sys.executable)}
    if given.paddle:
        engines["paddle"] = ("paddle.fluid", given.paddle)
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    environment["PYTHONPATH"] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in given.only:
        best = {}
        for _ in range(given.rounds):
            for engine, (module, python) in engines.items():
                command = [python, os.path.abspath(__file__), "--one", "--only", name]
                command += ["--no-clip"] if given.no_clip else []
                made = subprocess.run(command, env=dict(environment, FLUID=module), capture_output=True)
                if made.returncode:
                    print(name, engine, made.stderr.decode().strip().splitlines()[-1:], flush=True)
                    continue
                found = json.loads(made.stdout.decode().splitlines()[-1])
                best[engine] = min(found, best.get(engine, found))
        shown = "".join(f"  {engine} {value:8.3f} ms" for engine, value in best.items())
        ratio = f"  ratio {best['minigraph'] / best['paddle']:.2f}" if len(best) == 2 else ""
        print(f"{name:20}{shown}{ratio}", flush=True)


if __name__ == "__main__":
    main()
