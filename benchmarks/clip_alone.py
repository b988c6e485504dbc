"""Clipping by global norm and nothing else: gradients in, new clipped gradients out, by each engine."""

from functools import partial

import numpy as np

import minigraph as fluid

MAX_NORM = 1.0
COMPILED_BELOW = 500  # torch.compile takes minutes for a function of 1,000 arrays


def resnet50_shapes():
    """The shapes of ResNet-50's 161 parameters: 53 convolutions, 53 normalizations of two, one layer of two."""

    def conv(outputs, inputs, size):
        return [(outputs, inputs, size, size), (outputs,), (outputs,)]

    shapes, channels = conv(64, 3, 7), 64
    for width, blocks in [(64, 3), (128, 4), (256, 6), (512, 3)]:
        for block in range(blocks):
            shapes += [*conv(width, channels, 1), *conv(width, width, 3), *conv(4 * width, width, 1)]
            if block == 0:
                shapes += conv(4 * width, channels, 1)
            channels = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


SETS = {
    "ResNet-50's 161 gradients": resnet50_shapes(),
    "1,000 gradients of 4": [(4,)] * 1000,
    "1,000 gradients of 1,000": [(1000,)] * 1000,
    "50 gradients of 100,000": [(100_000,)] * 50,
}


def gradients(shapes):
    rng = np.random.RandomState(0)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def makers(shapes):
    grads = gradients(shapes)
    engines = {
        "minigraph": partial(by_minigraph, grads),
        "numpy": partial(by_numpy, grads),
        "torch": partial(by_torch, grads, compiled=False),
        "jax": partial(by_jax, grads),
    }
    if len(grads) < COMPILED_BELOW:
        engines["torch.compile"] = partial(by_torch, grads, compiled=True)
    return engines


def by_minigraph(grads):
    main, startup = fluid.Program(), fluid.Program()
    feed = {f"g{i}": grad for i, grad in enumerate(grads)}
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        pairs = []
        for name, grad in feed.items():
            param = fluid.layers.create_parameter(list(grad.shape), "float32", name=f"{name}_param")
            pairs.append((param, fluid.data(name, list(grad.shape))))
        clipped = [grad for _, grad in fluid.clip.GradientClipByGlobalNorm(MAX_NORM)(pairs)]
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    return lambda: exe.run(main, feed=feed, fetch_list=clipped, scope=scope)


def by_numpy(grads):
    def clip():
        norm = np.sqrt(sum(float(np.vdot(grad, grad)) for grad in grads))
        factor = np.float32(MAX_NORM / max(norm, MAX_NORM))
        return [grad * factor for grad in grads]

    return clip


def by_torch(grads, compiled):
    import torch

    tensors = [torch.from_numpy(grad) for grad in grads]

    def clip(tensors):
        norm = torch.nn.utils.get_total_norm(tensors)
        return torch._foreach_mul(tensors, (MAX_NORM / (norm + 1e-6)).clamp(max=1.0))

    if compiled:
        clip = torch.compile(clip)
    return lambda: clip(tensors)


def by_jax(grads):
    import jax
    import optax

    arrays = [jax.numpy.array(grad) for grad in grads]
    clip = jax.jit(lambda grads: optax.clip_by_global_norm(MAX_NORM).update(grads, optax.EmptyState())[0])
    return lambda: jax.block_until_ready(clip(arrays))
