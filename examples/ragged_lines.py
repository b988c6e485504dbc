"""A stacked LSTM on lines of different lengths, trained with and without a clip; takes about 6 seconds.

Each line of the sonnets is a sequence of its own length: the rows of a batch are the characters of its lines, one line
after the other, and nothing is padded. Three LSTMs, one above the other and every second one backward in time, read
a line whose vowels are gaps and name them. The learning rate is high: without a clip the first steps throw the network
to where its numbers overflow; with a clip by global norm, which was proposed for recurrent networks, it learns.

References
----------
R. Pascanu, T. Mikolov and Y. Bengio, On the difficulty of training recurrent neural networks, ICML 2013.
"""

import argparse
from pathlib import Path

import numpy as np

import minigraph as fluid

LINES = [
    line.strip().lower()
    for line in (Path(__file__).parent / "data/sonnets.txt").read_text(encoding="utf-8").splitlines()
]
LINES = [line for line in LINES if len(line) > 10]
VOWELS, GAP = "aeiou", "_"
ALPHABET = sorted({*"".join(LINES), GAP})
HIDDEN, LAYERS, ROWS = 32, 3, 10
STEPS, LEARNING_RATE, CLIP_NORM = 150, 1.0, 0.5


def build(clip=None, seed=1):
    """The network; returns the two programs and the loss."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        characters = fluid.data("characters", [None, 1], "int64", lod_level=1)
        vowels = fluid.data("vowels", [None, 1], "int64", lod_level=1)
        inputs = [fluid.layers.embedding(characters, [len(ALPHABET), HIDDEN])]
        for number in range(LAYERS):
            share = fluid.layers.fc(inputs, 4 * HIDDEN)
            hidden, _ = fluid.layers.dynamic_lstm(share, 4 * HIDDEN, is_reverse=number % 2 == 1)
            inputs = [share, hidden]
        logits = fluid.layers.fc(inputs, len(VOWELS))
        # Characters that are no gap have the label -100, which does not count.
        costs = fluid.layers.softmax_with_cross_entropy(logits, vowels, ignore_index=-100)
        loss = fluid.layers.reduce_sum(costs) / fluid.layers.reduce_sum(
            fluid.layers.cast(fluid.layers.not_equal(vowels, fluid.layers.fill_constant([1], "int64", -100)), "float32")
        )
        fluid.optimizer.SGD(LEARNING_RATE, grad_clip=clip).minimize(loss)
    return main, startup, loss


def make_batches(count=STEPS, seed=7):
    """Feeds of `ROWS` lines each."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        lines = [LINES[number] for number in rng.choice(len(LINES), ROWS, replace=False)]
        lengths, text = [[len(line) for line in lines]], "".join(lines)
        read = [ALPHABET.index(GAP if character in VOWELS else character) for character in text]
        asked = [VOWELS.find(character) if character in VOWELS else -100 for character in text]
        yield {
            name: fluid.create_lod_tensor(np.array(numbers)[:, None], lengths, fluid.CPUPlace())
            for name, numbers in (("characters", read), ("vowels", asked))
        }


def train(clip=None):
    """The losses of all steps; after one that is no number, the rest is none either."""
    main, startup, loss = build(clip)
    executor, losses = fluid.Executor(), []
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        for feed in make_batches():
            losses.append(executor.run(main, feed=feed, fetch_list=[loss])[0].item())
            if not np.isfinite(losses[-1]):
                break
    return np.array(losses + [np.nan] * (STEPS - len(losses)))


def main(arguments=None):
    """Train both ways, print the first losses and the mean losses of fifths of the training, and return the losses."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args(arguments)
    lengths = [len(line) for line in LINES]
    print(f"{len(LINES)} lines of {min(lengths)} to {max(lengths)} characters; a guess among vowels has a loss of "
          f"{np.log(len(VOWELS)):.3f}")  # fmt: skip
    found = {"unclipped": train(), "by global norm": train(fluid.clip.GradientClipByGlobalNorm(CLIP_NORM))}
    for name, losses in found.items():
        first = " ".join(f"{loss:.4g}" for loss in losses[:4])
        print(f"{name:15} begins with {first}, then " + " ".join(f"{part.mean():.3f}" for part in np.split(losses, 5)))
    return found


if __name__ == "__main__":
    main()
