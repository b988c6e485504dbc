"""Three ways to clip gradients, side by side, on one network and the same batches.

The program is built once. Each way gets a clone of it, which is differentiated and then clipped: a few operators more.
All programs run on the same parameters, so that what differs between their gradients is what clipping did.
"""

import random
from collections import Counter

import numpy as np

import minigraph as fluid

CLIPS = {
    "by norm": fluid.clip.GradientClipByNorm(clip_norm=1.0),
    "by global norm": fluid.clip.GradientClipByGlobalNorm(clip_norm=1.0),
    "by value": fluid.clip.GradientClipByValue(max=0.05),
}
BATCHES = 3


def build():
    """The network, up to its loss."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1  # the same start values in every run
    with fluid.program_guard(main, startup):
        image = fluid.data("image", [None, 64])
        label = fluid.data("label", [None, 1], dtype="int64")
        hidden = fluid.layers.fc(image, 32, act="relu")
        predict = fluid.layers.fc(hidden, 10, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(predict, label))
    return main, startup, [image, label], loss


def differentiated_clone(main, loss, clip=None):
    """A clone with its backward pass, and its (parameter, gradient) pairs; clipped if asked."""
    program = main.clone()
    pairs = fluid.append_backward(program.global_block().var(loss.name))
    if clip is not None:
        fluid.clip.set_gradient_clip(clip, program=program)
        pairs = fluid.clip.append_gradient_clip_ops(pairs)
    return program, pairs


def norm(*arrays):
    """L2 norm of arrays taken together as one vector."""
    return np.linalg.norm(np.concatenate([array.ravel() for array in arrays]))


main, startup, inputs, loss = build()
raw_program, raw_pairs = differentiated_clone(main, loss)
clones = {name: differentiated_clone(main, loss, clip) for name, clip in CLIPS.items()}

raw_count = len(raw_program.global_block().ops)
print(f"The program and its backward pass have {raw_count} operators. Clipping appends more:")
for name, (program, _) in clones.items():
    types = Counter(op.type for op in program.global_block().ops[raw_count:])
    print(f"{name:>15}: " + ", ".join(f"{count} {op_type}" for op_type, count in types.items()))

exe = fluid.Executor(fluid.CPUPlace())
exe.run(startup)
feeder = fluid.DataFeeder(inputs, place=exe.place)
random.seed(1)  # the order of the images
batches = fluid.batch(fluid.reader.shuffle(fluid.dataset.digits.train(), buf_size=2000), batch_size=64)

for number, rows in enumerate(fluid.reader.firstn(batches, BATCHES)(), start=1):
    feed = feeder.feed(rows)
    raw = exe.run(raw_program, feed=feed, fetch_list=[grad for _, grad in raw_pairs])
    names = [param.name for param, _ in raw_pairs]
    print(f"\nbatch {number}: norms" + "".join(f"{name:>12}" for name in [*names, "together"]))
    print(f"{'before clipping':>15}" + "".join(f"{norm(*grads):12.4f}" for grads in [*zip(raw), raw]))
    for name, (program, pairs) in clones.items():
        clipped = exe.run(program, feed=feed, fetch_list=[grad for _, grad in pairs])
        print(f"{name:>15}" + "".join(f"{norm(*grads):12.4f}" for grads in [*zip(clipped), clipped]))
