"""Times of minigraph, side by side with NumPy by hand; see README.md beside this file."""

import argparse
import platform
import statistics
import time

import numpy as np
from rich.console import Console
from rich.table import Table

import minigraph as fluid

CONSOLE = Console()


def interleaved(functions, rounds, repeats):
    """Median seconds of one call of each function, measured in turns over several rounds."""
    times = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            for _ in range(repeats):
                start = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


# One training step


def seed_program(clip_norm=2.0):
    """Seed 000's network with clipped gradients: program, startup program, what to fetch, the parameters."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.layers.data(name="x", shape=[784], dtype="float32")
        label = fluid.layers.data(name="y", shape=[1], dtype="int64")
        hidden1 = fluid.layers.fc(input=image, size=128, act="relu")
        hidden2 = fluid.layers.fc(input=hidden1, size=64, act="relu")
        predict = fluid.layers.fc(input=hidden2, size=10, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(input=predict, label=label))
        pairs = fluid.append_backward(loss)
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(clip_norm=clip_norm))
        pairs = fluid.clip.append_gradient_clip_ops(pairs)
    return main, startup, [loss, *(grad for _, grad in pairs)], [param.name for param, _ in pairs]


def numpy_step(x, y, w1, b1, w2, b2, w3, b3, clip_norm):
    """The same step as one would write it in NumPy."""
    z1 = x @ w1 + b1
    h1 = np.maximum(z1, 0)
    z2 = h1 @ w2 + b2
    h2 = np.maximum(z2, 0)
    z3 = h2 @ w3 + b3
    e = np.exp(z3 - z3.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(p[rows, y[:, 0]]).mean()
    d3 = p.copy()
    d3[rows, y[:, 0]] -= 1
    d3 /= np.float32(len(x))
    d2 = (d3 @ w3.T) * (h2 > 0)
    d1 = (d2 @ w2.T) * (h1 > 0)
    grads = [x.T @ d1, d1.sum(axis=0), h1.T @ d2, d2.sum(axis=0), h2.T @ d3, d3.sum(axis=0)]
    clipped = []
    for grad in grads:
        norm = np.sqrt(np.vdot(grad, grad))
        clipped.append(grad * (clip_norm / norm) if norm > clip_norm else grad)
    return [loss, *clipped]


def bench_step(rounds):
    main, startup, fetch, names = seed_program()
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    rng = np.random.RandomState(0)
    x = rng.uniform(-1, 1, (128, 784)).astype("float32")
    y = rng.randint(0, 10, (128, 1)).astype("int64")
    params = [np.array(scope.find_var(name).get_tensor()) for name in names]
    feed = {"x": x, "y": y}

    def by_minigraph():
        return exe.run(main, feed=feed, fetch_list=fetch, scope=scope)

    def by_hand():
        return numpy_step(x, y, *params, np.float32(2.0))

    for ours, theirs in zip(by_minigraph(), by_hand(), strict=True):
        np.testing.assert_allclose(np.ravel(ours), np.ravel(theirs), rtol=1e-4, atol=1e-6)
    medians = interleaved({"minigraph": by_minigraph, "NumPy by hand": by_hand}, rounds, 20)
    table = Table("seed 000's step, batch 128", "median us", "ratio to NumPy by hand")
    for name, seconds in medians.items():
        table.add_row(name, f"{seconds * 1e6:.0f}", f"{seconds / medians['NumPy by hand']:.2f}")
    CONSOLE.print(table)


# Cost of an operator


def chain(layer, count, size):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [size])
        y = x
        for _ in range(count):
            y = layer(y, x)
    return main, y


def bench_chain(rounds, count=1000, size=4):
    layers = fluid.layers
    cases = {
        "elementwise_add": (lambda y, x: layers.elementwise_add(y, x), lambda y, x: np.add(y, x)),
        "elementwise_mul": (lambda y, x: layers.elementwise_mul(y, x), lambda y, x: np.multiply(y, x)),
        "relu": (lambda y, _: layers.relu(y), lambda y, _: np.maximum(y, ZERO)),
        "tanh": (lambda y, _: layers.tanh(y), lambda y, _: np.tanh(y)),
        "scale": (lambda y, _: layers.scale(y, 0.999, bias=0.001), lambda y, _: y * SCALE + BIAS),
    }
    table = Table(f"chain of {count:,} operators on {size} elements", "us an operator", "NumPy call", "ratio")
    x = np.linspace(0.1, 0.4, size, dtype="float32")
    for name, (layer, call) in cases.items():
        main, y = chain(layer, count, size)
        exe = fluid.Executor()

        def ours(exe=exe, main=main, y=y):
            exe.run(main, feed={"x": x}, fetch_list=[y])

        def theirs(call=call):
            value = x
            for _ in range(count):
                value = call(value, x)

        ours()
        medians = interleaved({"ours": ours, "theirs": theirs}, rounds, 10)
        each = {key: seconds / count * 1e6 for key, seconds in medians.items()}
        ratio = each["ours"] / each["theirs"]
        table.add_row(name, f"{each['ours']:.2f}", f"{each['theirs']:.2f}", f"{ratio:.2f}")
    CONSOLE.print(table)


ZERO, SCALE, BIAS = np.float32(0), np.float32(0.999), np.float32(0.001)


# Cost of a program


def bench_build(sizes):
    table = Table("us an operator", *(f"{n:,} forward operators" for n in sizes))
    columns = [build_times(n) for n in sizes]
    for stage in columns[0]:
        table.add_row(stage, *(f"{column[stage]:.1f}" for column in columns))
    CONSOLE.print(table)


def build_times(count):
    """Microseconds per operator of the program at hand, for each stage of a program's life."""
    times = {}
    main, startup = fluid.Program(), fluid.Program()

    def timed(stage, function):
        start = time.perf_counter()
        result = function()
        times[stage] = (time.perf_counter() - start) / len(main.global_block().ops) * 1e6
        return result

    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = timed("build", lambda: deep_network(count))
        pairs = timed("differentiate", lambda: fluid.append_backward(loss))
        clipped = timed("clip", lambda: fluid.clip.GradientClipByNorm(1.0)(pairs))
        twin = timed("clone", main.clone)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    feed = {"x": np.ones((2, 4), "float32")}
    fetch = [loss.name, *(grad.name for _, grad in clipped)]
    timed("lower and run once", lambda: exe.run(twin, feed=feed, fetch_list=fetch, scope=scope))
    timed("run again", lambda: exe.run(twin, feed=feed, fetch_list=fetch, scope=scope))
    times["all but run again"] = sum(times.values()) - times["run again"]
    return times


def deep_network(count):
    """`count` forward operators; a third of them have a parameter."""
    x = fluid.data("x", [None, 4])
    for _ in range(count // 3):
        x = fluid.layers.fc(x, 4, act="tanh")
    return fluid.layers.mean(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="step,chain,build", help="which, separated by commas")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of taking turns")
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of operators for build")
    options = parser.parse_args()
    CONSOLE.print(f"minigraph {fluid.__version__}, NumPy {np.__version__}, Python {platform.python_version()}")
    wanted = options.only.split(",")
    if "step" in wanted:
        bench_step(options.rounds)
    if "chain" in wanted:
        bench_chain(options.rounds)
    if "build" in wanted:
        bench_build([int(size) for size in options.sizes.split(",")])


if __name__ == "__main__":
    main()
