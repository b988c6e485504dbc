"""An unrolled recurrent network whose gradients explode, trained with and without clipping; takes about 6 seconds.

A tanh network reads a sonnet and learns to name the next character. It is a static program of 50 steps that share
their parameters by name, so that the gradient of a recurrent weight is a sum over all ways back through time. The
weights begin large enough for it to grow on the way. Without a clip the first updates throw the network to where it
learns nothing any more. Thresholds that stand from the start keep it learning. AutoClip and ZClip learn theirs from
earlier norms, and let the first steps pass; AutoClip after a plain bound does well.

``--html FILE`` writes the whole comparison as a page, with curves of losses and norms.
"""

import argparse
import itertools
from functools import partial

import numpy as np

import minigraph as fluid

SONNET = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date:
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimmed;
And every fair from fair sometime declines,
By chance, or nature's changing course, untrimmed;
But thy eternal summer shall not fade,
Nor lose possession of that fair thou ow'st;
Nor shall death brag thou wander'st in his shade,
When in eternal lines to time thou grow'st:
So long as men can breathe or eyes can see,
So long lives this, and this gives life to thee.
""".lower()  # Shakespeare, 1609
ALPHABET = sorted(set(SONNET))
LENGTH, HIDDEN, ROWS = 50, 32, 16
STEPS, LEARNING_RATE = 250, 2.0
GAIN = 1.7  # of the recurrent weights at the start: what flows back through time grows by up to this factor per step
CLIPS = {
    "unclipped": None,
    "by value": fluid.clip.GradientClipByValue(0.02),
    "by norm": fluid.clip.GradientClipByNorm(0.25),
    "by global norm": fluid.clip.GradientClipByGlobalNorm(0.25),
    "by unit": fluid.clip.AdaptiveGradientClip(0.05),
    "AutoClip": fluid.clip.AutoClip(percentile=10.0),
    "ZClip": fluid.clip.ZClip(),
    "bound, AutoClip": fluid.clip.ClipPipeline([fluid.clip.GradientClipByGlobalNorm(1.0), fluid.clip.AutoClip(10.0)]),
}


def build(length=LENGTH, seed=1):
    """The network, unrolled over `length` characters; returns the two programs and the loss."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = seed
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(HIDDEN, HIDDEN)))[0]
    recurrent = fluid.ParamAttr("recurrent.w", fluid.initializer.NumpyArrayInitializer(GAIN * rotation))
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        characters = [fluid.data(f"character_{t}", [None, 1], "int64") for t in range(length + 1)]
        embed = partial(fluid.layers.embedding, size=[len(ALPHABET), HIDDEN], param_attr="input.w")
        fc = partial(fluid.layers.fc, size=HIDDEN, param_attr=recurrent, bias_attr="hidden.b")
        state = fluid.layers.fill_constant_batch_size_like(characters[0], [-1, HIDDEN], "float32", 0.0)
        states = []
        for character in characters[:-1]:
            state = fluid.layers.tanh(embed(character) + fc(state))
            states.append(state)
        logits = fluid.layers.fc(fluid.layers.concat(states), len(ALPHABET), param_attr="out.w", bias_attr="out.b")
        loss = fluid.layers.softmax_with_cross_entropy(logits, fluid.layers.concat(characters[1:]))
        return main, startup, fluid.layers.mean(loss)


def make_batches(count=STEPS, length=LENGTH, seed=7):
    """Feeds of `ROWS` passages each; the passages begin anywhere."""
    rng = np.random.default_rng(seed)
    numbers = np.array([ALPHABET.index(character) for character in SONNET])
    for _ in range(count):
        starts = rng.integers(0, len(numbers) - length, ROWS)
        yield {f"character_{t}": numbers[starts + t][:, None] for t in range(length + 1)}


def print_table(report, columns=5):
    """Mean losses over equal parts of the training, the largest norm of the gradients, how many steps were clipped."""
    ends = np.linspace(0, report.steps, columns + 1, dtype=int)
    parts = [slice(start, end) for start, end in itertools.pairwise(ends)]
    headings = "".join(f"{f'{part.start + 1}-{part.stop}':>9}" for part in parts)
    print(f"{'mean loss of steps':18}{headings}   largest norm   clipped")
    for name, run in report.strategies.items():
        means = "".join(f"{run.loss[part].mean():9.3f}" for part in parts)
        print(f"{name:18}{means}{run.total.norm_before.max():15.4g}{run.total.share_clipped:10.0%}")


def main(arguments=None):
    """Train under each strategy, print the table and return the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--html", metavar="FILE", help="write the comparison as a page (needs matplotlib)")
    options = parser.parse_args(arguments)
    program, startup, loss = build()
    print(f"{len(program.global_block().ops)} operators, {len(program.all_parameters())} parameters; a guess among "
          f"{len(ALPHABET)} characters has a loss of {np.log(len(ALPHABET)):.3f}")  # fmt: skip
    report = fluid.compare_training(program, loss, CLIPS, list(make_batches()), startup=startup,
                                    optimizer=lambda: fluid.optimizer.SGD(LEARNING_RATE))  # fmt: skip
    print_table(report)
    if options.html:
        report.save_html(options.html)
        print(f"wrote {options.html}")
    return report


if __name__ == "__main__":
    main()
