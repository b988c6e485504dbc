"""Three ways to clip gradients, side by side: what they do to a network's gradients and training; takes about a second.

`compare_gradients` runs one program that holds the backward pass once and each way's clipped gradients after it.
`compare_training` trains a clone for each way, from the same start and on the same batches.
"""

import random
from collections import Counter

import minigraph as fluid

CLIPS = {
    "by norm": fluid.clip.GradientClipByNorm(clip_norm=1.0),
    "by global norm": fluid.clip.GradientClipByGlobalNorm(clip_norm=1.0),
    "by value": fluid.clip.GradientClipByValue(max=0.05),
}
BATCHES = 3
EPOCHS = 4


def build():
    """The network, its loss and its accuracy."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1  # the same start values in every run
    with fluid.program_guard(main, startup):
        image = fluid.data("image", [None, 64])
        label = fluid.data("label", [None, 1], dtype="int64")
        hidden = fluid.layers.fc(image, 32, act="relu")
        predict = fluid.layers.fc(hidden, 10, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(predict, label))
        accuracy = fluid.layers.accuracy(predict, label)
    return main, startup, [image, label], loss, accuracy


def print_operators(report):
    """Number of operators that each way appends."""
    before = len(report.unclipped.global_block().ops)
    print(f"The program and its backward pass have {before} operators. Clipping appends more:")
    for name, clip in report.strategies.items():
        types = Counter(op.type for op in clip.program.global_block().ops[before:])
        print(f"{name:>15}: " + ", ".join(f"{count} {op_type}" for op_type, count in types.items()))
    print(f"All ways together, in one program: {len(report.program.global_block().ops)} operators.")


def print_norms(report):
    """The norm of each gradient and of all together, by batch, before and after clipping."""
    headings = "".join(f"{name:>12}" for name in [*report["by norm"].parameters, "together"])
    for number in range(BATCHES):
        print(f"\nbatch {number + 1}: norms{headings}")
        for name, clip in report.strategies.items():
            statistics = [*clip.parameters.values(), clip.total]
            if name == "by norm":
                print(f"{'before clipping':>15}" + "".join(f"{s.norm_before[number]:12.4f}" for s in statistics))
            print(f"{name:>15}" + "".join(f"{s.norm_after[number]:12.4f}" for s in statistics))


def main():
    """Both comparisons on the bundled digits; returns their reports."""
    program, startup, inputs, loss, accuracy = build()
    feeder = fluid.DataFeeder(inputs, place=fluid.CPUPlace())
    random.seed(1)  # the order of the images
    batches = fluid.batch(fluid.reader.shuffle(fluid.dataset.digits.train(), buf_size=2000), batch_size=64)
    held_out = fluid.batch(fluid.dataset.digits.test(), batch_size=300)

    few = [feeder.feed(rows) for rows in fluid.reader.firstn(batches, BATCHES)()]
    gradients = fluid.compare_gradients(program, loss, CLIPS, few, startup=startup)
    print_operators(gradients)
    print_norms(gradients)

    training = fluid.compare_training(
        program, loss, {"unclipped": None, **CLIPS},
        lambda: map(feeder.feed, batches()),  # called for each epoch: in a new order each time
        epochs=EPOCHS, startup=startup, optimizer=lambda: fluid.optimizer.SGD(1.0), metrics={"accuracy": accuracy},
        evaluate=[feeder.feed(rows) for rows in held_out()],
    )  # fmt: skip
    print("\nTraining at a high learning rate:\n")
    print(training)
    return gradients, training


if __name__ == "__main__":
    main()
