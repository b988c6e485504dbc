"""A character LSTM learns eight sonnets with a clip; without one its gradients explode; takes about 6 seconds.

The network reads 40 letters one after the other and names the next one each time. The same weights serve 40 times, so
that their gradient is a sum over products of up to 40 factors, and at a rate at which the clipped network learns fast
these products grow until nothing is learned any more. The two trainings differ in `grad_clip` alone; the one without a
clip is lost within 20 steps and slow (its gates make subnormal numbers), so it ends early. Then the clipped one writes.

The text is in examples/data, with its source. `--plot FILE` draws losses and norms (needs the extra `plot`).

R. Pascanu, T. Mikolov and Y. Bengio, On the difficulty of training recurrent neural networks, ICML 2013.
"""

import argparse
from pathlib import Path

import numpy as np

import minigraph as fluid
from minigraph import layers

TEXT = (Path(__file__).parent / "data" / "sonnets.txt").read_text(encoding="utf-8")
LETTERS = sorted(set(TEXT))
NUMBERS = np.array([LETTERS.index(letter) for letter in TEXT])
UNITS, LENGTH, ROWS, STEPS, LOST_STEPS, RATE, THRESHOLD = 96, 40, 24, 500, 60, 15.0, 0.5


def step(letter, hidden, cell):
    """Read one letter, int64[n, 1]: the scores of the next one and the new state. All calls share the same weights."""
    weights = [fluid.ParamAttr(name, fluid.initializer.Uniform(-0.2, 0.2)) for name in ("lstm.w", "out.w")]
    one_hot = layers.one_hot(letter, len(LETTERS))
    hidden, cell = layers.lstm_unit(one_hot, hidden, cell, 1.0, param_attr=weights[0], bias_attr="lstm.b")
    return layers.fc(hidden, len(LETTERS), param_attr=weights[1], bias_attr="out.b"), hidden, cell


def build(length=LENGTH):
    """The network unrolled over `length` letters; the programs and the loss, the mean over letters."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        letters = [fluid.data(f"letter_{t}", [None, 1], "int64") for t in range(length + 1)]
        hidden = cell = layers.fill_constant_batch_size_like(letters[0], [-1, UNITS], "float32", 0.0)
        scores = []
        for letter in letters[:-1]:
            score, hidden, cell = step(letter, hidden, cell)
            scores.append(score)
        losses = layers.softmax_with_cross_entropy(layers.concat(scores), layers.concat(letters[1:]))
        return main, startup, layers.mean(losses)


def batches(steps, length=LENGTH, seed=7):
    """Feeds of passages that begin anywhere."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        starts = rng.integers(0, len(NUMBERS) - length, ROWS)
        yield {f"letter_{t}": NUMBERS[starts + t][:, None] for t in range(length + 1)}


def train(clip, steps=STEPS, length=LENGTH):
    """Losses and norms of the whole gradient before any clip, for each step; and the scope with the weights."""
    main, startup, loss = build(length)
    with fluid.program_guard(main, startup):
        _, pairs = fluid.optimizer.SGD(RATE, grad_clip=clip).minimize(loss)
        norm = layers.sqrt(layers.sum([layers.reduce_sum(layers.square(grad)) for _, grad in pairs]))
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    fetched = np.array([executor.run(main, feed, [loss, norm], scope=scope) for feed in batches(steps, length)])
    return fetched[:, 0, 0], fetched[:, 1, 0], scope


def write(scope, count=160, seed=3):
    """Let the network write: each letter is drawn with the probabilities that it gives, sharpened a little."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        before = [fluid.data(name, [1, UNITS]) for name in ("hidden", "cell")]
        scores, hidden, cell = step(fluid.data("letter", [1, 1], "int64"), *before)
        shares = layers.softmax(scores * 1.5)
    executor, rng = fluid.Executor(), np.random.default_rng(seed)
    state, number, text = [np.zeros((1, UNITS), "float32")] * 2, LETTERS.index("\n"), ""
    for _ in range(count):
        feed = {"letter": np.array([[number]]), "hidden": state[0], "cell": state[1]}
        probability, *state = executor.run(main, feed, [shares, hidden, cell], scope=scope)
        number = rng.choice(len(LETTERS), p=probability[0].astype("float64") / probability[0].sum(dtype="float64"))
        text += LETTERS[number]
    return text


def plot(runs, file):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for name, (losses, norms, _) in runs.items():
        upper.plot(losses, label=name, linewidth=1)
        lower.semilogy(norms, label=name, linewidth=1)
    upper.set(ylabel="loss per letter (nats)", ylim=(0, 8))
    lower.set(ylabel="norm of the gradient", xlabel="step")
    for axes, height, label in ((upper, np.log(len(LETTERS)), "a guess"), (lower, THRESHOLD, "threshold")):
        axes.axhline(height, color="gray", linestyle=":", label=label)
        axes.legend()
    figure.savefig(file, dpi=120)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plot", metavar="FILE", help="draw losses and norms (needs matplotlib)")
    options = parser.parse_args(arguments)
    print(f"{len(TEXT)} letters, {len(LETTERS)} different ones; a guess has a loss of {np.log(len(LETTERS)):.3f}")
    clip = fluid.clip.GradientClipByGlobalNorm(THRESHOLD)
    runs = {"without a clip": train(None, LOST_STEPS), "clipped": train(clip)}
    for name, (losses, norms, _) in runs.items():
        print(f"{name:15} loss {losses[:20].mean():6.3f} in the first 20 and {losses[-20:].mean():6.3f} in the last, "
              f"largest norm {norms.max():.4g}, median {np.median(norms):.4g}")  # fmt: skip
    print("The clipped network writes:\n" + write(runs["clipped"][2]))
    if options.plot:
        plot(runs, options.plot)
    return runs


if __name__ == "__main__":
    main()
