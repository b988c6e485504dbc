"""Three ways to clip gradients, side by side: what they do to the gradients of a network, and to its training.

`compare_gradients` runs one program that holds the backward pass once and each way's clipped gradients behind it.
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


main, startup, inputs, loss, accuracy = build()
feeder = fluid.DataFeeder(inputs, place=fluid.CPUPlace())
random.seed(1)  # the order of the images
batches = fluid.batch(fluid.reader.shuffle(fluid.dataset.digits.train(), buf_size=2000), batch_size=64)
held_out = fluid.batch(fluid.dataset.digits.test(), batch_size=300)


def feeds():
    """The batches of an epoch, in a new order each time."""
    return map(feeder.feed, batches())


few = [feeder.feed(rows) for rows in fluid.reader.firstn(batches, BATCHES)()]
report = fluid.compare_gradients(main, loss, CLIPS, few, startup=startup)
count, raw_count = (len(program.global_block().ops) for program in (report.program, report.unclipped))
raw_count = len(report.unclipped.global_block().ops)
print(f"The program and its backward pass have {raw_count} operators. Clipping appends more:")
for name, clip in report.strategies.items():
    types = Counter(op.type for op in clip.program.global_block().ops[raw_count:])
    print(f"{name:>15}: " + ", ".join(f"{count} {op_type}" for op_type, count in types.items()))
print(f"All ways together, in one program: {len(report.program.global_block().ops)} operators.")

for number in range(BATCHES):
    print(
        f"\nbatch {number + 1}: norms" + "".join(f"{name:>12}" for name in [*report["by norm"].parameters, "together"])
    )
    for name, clip in report.strategies.items():
        statistics = [*clip.parameters.values(), clip.total]
        if name == "by norm":
            print(f"{'before clipping':>15}" + "".join(f"{s.norm_before[number]:12.4f}" for s in statistics))
        print(f"{name:>15}" + "".join(f"{s.norm_after[number]:12.4f}" for s in statistics))

training = fluid.compare_training(
    main, loss, {"unclipped": None, **CLIPS}, feeds, epochs=EPOCHS, startup=startup,
    optimizer=lambda: fluid.optimizer.SGD(1.0), metrics={"accuracy": accuracy},
    evaluate=[feeder.feed(rows) for rows in held_out()],
)  # fmt: skip
print("\nTraining at a high learning rate:\n")
print(training)
