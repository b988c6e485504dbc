"""A recurrent network, built as a loop, learns to add two numbers that it saw long ago; takes about 6 seconds.

Each entry of a sequence is a random number and a mark; two marks are 1, and the answer is the sum of the two marked
numbers. Whoever always answers 1 has a mean squared error of 1/6. The step of the network is built once, inside of
`layers.StaticRNN`; its gradient is a block of the program too, which runs backward through time. With recurrent weights
that begin as the identity (Le, Jaitly and Hinton, arXiv:1504.00941) what flows back neither fades nor grows at first,
but the first steps without a clip are so long that nothing is learned any more.
"""

from itertools import pairwise

import numpy as np

import minigraph as fluid

LENGTH, HIDDEN, ROWS = 20, 24, 32
STEPS, LEARNING_RATE, THRESHOLD = 2000, 0.1, 0.5


def build(clip=None, seed=1):
    """The network and its training; returns the two programs and the loss."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = seed
    small = fluid.ParamAttr("input.w", fluid.initializer.Normal(0.0, 0.1))
    identity = fluid.ParamAttr("recurrent.w", fluid.initializer.NumpyArrayInitializer(np.eye(HIDDEN, dtype="float32")))
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        pairs = fluid.data("pairs", [LENGTH, None, 2])
        answer = fluid.data("answer", [None, 1])
        rnn = fluid.layers.StaticRNN()
        with rnn.step():
            pair, before = rnn.step_input(pairs), rnn.memory(shape=[-1, HIDDEN], batch_ref=pairs)
            fresh = fluid.layers.fc(pair, HIDDEN, param_attr=small)
            state = fluid.layers.relu(fresh + fluid.layers.fc(before, HIDDEN, param_attr=identity, bias_attr=False))
            rnn.update_memory(before, state)
            rnn.step_output(state)
        found = fluid.layers.fc(rnn()[LENGTH - 1], 1)
        loss = fluid.layers.mean(fluid.layers.square(found - answer))
        fluid.optimizer.SGD(LEARNING_RATE, grad_clip=clip).minimize(loss)
    return main, startup, loss


def make_batches(count=STEPS, seed=0):
    """Feeds of `ROWS` sequences each; one mark is in the first half, the other in the second."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        numbers, marks = rng.random((LENGTH, ROWS)), np.zeros((LENGTH, ROWS))
        for first, last in ((0, LENGTH // 2), (LENGTH // 2, LENGTH)):
            marks[rng.integers(first, last, ROWS), np.arange(ROWS)] = 1
        yield {
            "pairs": np.stack([numbers, marks], 2).astype("float32"),
            "answer": (numbers * marks).sum(0)[:, None].astype("float32"),
        }


def train(clip=None, count=STEPS):
    """The loss of every step."""
    main, startup, loss = build(clip)
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(startup, scope=scope)
    losses = [executor.run(main, feed=feed, fetch_list=[loss], scope=scope)[0].item() for feed in make_batches(count)]
    return np.array(losses)


def main():
    """Train without and with a clip, print the losses and return them by name."""
    program, _, _ = build()
    for block in program.blocks:
        kind = "of gradients" if block.forward_block_idx > 0 else "of the step" if block.idx else "of the program"
        print(f"block {block.idx}, {kind}: {len(block.ops)} operators")
    clips = {"unclipped": None, f"norm at most {THRESHOLD}": fluid.clip.GradientClipByGlobalNorm(THRESHOLD)}
    parts = np.linspace(0, STEPS, 5, dtype=int)
    print("mean loss of steps  " + "".join(f"{f'{a + 1}-{b}':>12}" for a, b in pairwise(parts)))
    results = {}
    for name, clip in clips.items():
        losses = results[name] = train(clip)
        means = (losses[a:b].mean() for a, b in pairwise(parts))
        print(f"{name:20}" + "".join(f"{mean:12.3g}" for mean in means))
    return results


if __name__ == "__main__":
    main()
