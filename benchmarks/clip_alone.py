"""Clipping by global norm, by each engine: gradients in and new clipped gradients out; or a step of SGD with it."""

from functools import partial

import numpy as np

import minigraph as fluid

MAX_NORM = 1.0
RATE = 0.1
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
        "minigraph": partial(by_minigraph, grads, jit=False),
        "minigraph+jit": partial(by_minigraph, grads, jit=True),
        "numpy": partial(by_numpy, grads),
        "torch": partial(by_torch, grads, compiled=False),
        "jax": partial(by_jax, grads),
    }
    if len(grads) < COMPILED_BELOW:
        engines["torch.compile"] = partial(by_torch, grads, compiled=True)
    return engines


def by_minigraph(grads, jit):
    main, startup = fluid.Program(), fluid.Program()
    feed = {f"g{i}": grad for i, grad in enumerate(grads)}
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        pairs = []
        for name, grad in feed.items():
            param = fluid.layers.create_parameter(list(grad.shape), "float32", name=f"{name}_param")
            pairs.append((param, fluid.data(name, list(grad.shape))))
        clipped = [grad for _, grad in fluid.clip.GradientClipByGlobalNorm(MAX_NORM)(pairs)]
    exe, scope = fluid.Executor(fluid.CPUPlace(), jit=jit), fluid.Scope()
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


# The same gradients clipped where they are, in the engine's memory. The threshold shrinks from call to call, so that
# there is something to scale in each.

SHRINKS = 0.999


def memory_makers(shapes):
    grads = gradients(shapes)
    engines = {
        "minigraph": partial(memory_by_minigraph, grads, jit=False),
        "minigraph+jit": partial(memory_by_minigraph, grads, jit=True),
        "numpy": partial(memory_by_numpy, grads),
        "torch": partial(memory_by_torch, grads),
        "jax": partial(memory_by_jax, grads),
    }
    return engines


def run_in_scope(main, values, result, jit, startup=None):
    """A step that runs `main` on `values` in the scope and returns a copy of the variable `result`."""
    exe, scope = fluid.Executor(fluid.CPUPlace(), jit=jit), fluid.Scope()
    if startup:
        exe.run(startup, scope=scope)
    for name, value in values.items():
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())

    def step():
        exe.run(main, scope=scope)
        return np.array(scope.find_var(result).get_tensor())

    return step


def memory_by_minigraph(grads, jit):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        block = main.global_block()
        bound = block.create_var("bound", [1], "float32", persistable=True)
        kept = [block.create_var(f"g{i}", list(g.shape), "float32", persistable=True) for i, g in enumerate(grads)]
        clipped = [block.create_var(f"c{i}", list(g.shape), "float32") for i, g in enumerate(grads)]
        norm = block.create_var("norm", [1], "float32")
        block.append_op("clip_by_global_norm", {"X": kept, "ClipNorm": bound}, {"Out": clipped, "Norm": norm})
        for new, old in zip(clipped, kept, strict=True):
            fluid.layers.assign(new, output=old)
        fluid.layers.assign(fluid.layers.scale(bound, SHRINKS), output=bound)
    values = {"bound": np.array([MAX_NORM], "float32")} | {f"g{i}": grad for i, grad in enumerate(grads)}
    return run_in_scope(main, values, "g0", jit)


def memory_by_numpy(grads):
    grads, bound = [grad.copy() for grad in grads], MAX_NORM

    def step():
        nonlocal bound
        norm = np.sqrt(sum(float(np.vdot(grad, grad)) for grad in grads))
        if norm > bound:
            factor = np.float32(bound / norm)
            for grad in grads:
                grad *= factor
        bound *= SHRINKS
        return grads[0].copy()

    return step


def memory_by_torch(grads):
    import torch

    params, bound = [torch.zeros(grad.shape, requires_grad=True) for grad in grads], MAX_NORM
    for param, grad in zip(params, grads, strict=True):
        param.grad = torch.from_numpy(grad.copy())

    def step():
        nonlocal bound
        torch.nn.utils.clip_grad_norm_(params, bound, foreach=True)
        bound *= SHRINKS
        return params[0].grad.numpy().copy()

    return step


def memory_by_jax(grads):
    import jax
    import jax.numpy as jnp
    import optax

    arrays, bound = [jnp.array(grad) for grad in grads], jnp.float32(MAX_NORM)

    @partial(jax.jit, donate_argnums=(0, 1))
    def clip(grads, bound):
        factor = jnp.minimum(bound / optax.global_norm(grads), 1)
        return [grad * factor for grad in grads], bound * SHRINKS

    def step():
        nonlocal arrays, bound
        arrays, bound = clip(arrays, bound)
        return np.array(arrays[0])

    return step


# The same gradients clipped into results that stay in the engine's memory beside them.


def kept_makers(shapes):
    grads = gradients(shapes)
    return {
        "minigraph": partial(kept_by_minigraph, grads, jit=False),
        "minigraph+jit": partial(kept_by_minigraph, grads, jit=True),
        "numpy": partial(kept_by_numpy, grads),
        "torch": partial(kept_by_torch, grads),
        "jax": partial(kept_by_jax, grads),
    }


def kept_by_minigraph(grads, jit):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        block = main.global_block()
        bound = block.create_var("bound", [1], "float32", persistable=True)
        kept = [block.create_var(f"g{i}", list(g.shape), "float32", persistable=True) for i, g in enumerate(grads)]
        clipped = [block.create_var(f"c{i}", list(g.shape), "float32", persistable=True) for i, g in enumerate(grads)]
        norm = block.create_var("norm", [1], "float32")
        block.append_op("clip_by_global_norm", {"X": kept, "ClipNorm": bound}, {"Out": clipped, "Norm": norm})
    values = {"bound": np.array([MAX_NORM], "float32")} | {f"g{i}": grad for i, grad in enumerate(grads)}
    return run_in_scope(main, values, "c0", jit)


def kept_by_numpy(grads):
    results = [np.empty_like(grad) for grad in grads]

    def step():
        norm = np.sqrt(sum(float(np.vdot(grad, grad)) for grad in grads))
        factor = np.float32(MAX_NORM / max(norm, MAX_NORM))
        for grad, result in zip(grads, results, strict=True):
            np.multiply(grad, factor, out=result)
        return results[0].copy()

    return step


def kept_by_torch(grads):
    import torch

    tensors = [torch.from_numpy(grad) for grad in grads]
    results = [torch.empty_like(tensor) for tensor in tensors]

    def step():
        factor = (MAX_NORM / (torch.nn.utils.get_total_norm(tensors) + 1e-6)).clamp(max=1.0)
        for tensor, result in zip(tensors, results, strict=True):
            torch.mul(tensor, factor, out=result)
        return results[0].numpy().copy()

    return step


def kept_by_jax(grads):
    clip = by_jax(grads)
    return lambda: np.array(clip()[0])


def update_makers(shapes):
    """The same gradients clipped and subtracted from parameters, all of which stay in the engine's memory."""
    grads = gradients(shapes)
    engines = {
        "minigraph": partial(update_by_minigraph, grads, jit=False),
        "minigraph+jit": partial(update_by_minigraph, grads, jit=True),
        "numpy": partial(update_by_numpy, grads),
        "torch": partial(update_by_torch, grads, compiled=False),
        "jax": partial(update_by_jax, grads),
    }
    if len(grads) < COMPILED_BELOW:
        engines["torch.compile"] = partial(update_by_torch, grads, compiled=True)
    return engines


def update_by_minigraph(grads, jit):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        pairs = []
        for i, grad in enumerate(grads):
            param = fluid.layers.create_parameter(list(grad.shape), "float32", name=f"p{i}")
            pairs.append(
                (param, main.global_block().create_var(f"g{i}", list(grad.shape), "float32", persistable=True))
            )
        clip = fluid.clip.GradientClipByGlobalNorm(MAX_NORM)
        fluid.optimizer.SGD(RATE, grad_clip=clip).apply_gradients(pairs)
    values = {f"{name}{i}": value for i, g in enumerate(grads) for name, value in (("p", np.zeros_like(g)), ("g", g))}
    return run_in_scope(main, values, "p0", jit, startup)


def update_by_numpy(grads):
    params = [np.zeros_like(grad) for grad in grads]

    def step():
        norm = np.sqrt(sum(float(np.vdot(grad, grad)) for grad in grads))
        factor = np.float32(RATE * MAX_NORM / max(norm, MAX_NORM))
        for param, grad in zip(params, grads, strict=True):
            param -= grad * factor
        return params[0].copy()

    return step


def update_by_torch(grads, compiled):
    import torch

    params = [torch.zeros(grad.shape, requires_grad=True) for grad in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = torch.from_numpy(grad.copy())
    optimizer = torch.optim.SGD(params, lr=RATE, foreach=True)

    def update():
        torch.nn.utils.clip_grad_norm_(params, MAX_NORM)
        optimizer.step()

    if compiled:
        update = torch.compile(update)

    def step():
        update()
        return params[0].detach().numpy().copy()

    return step


def update_by_jax(grads):
    import jax
    import optax

    update = optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.sgd(RATE))
    params = [jax.numpy.zeros(grad.shape) for grad in grads]
    arrays, state = [jax.numpy.array(grad) for grad in grads], update.init(params)

    @partial(jax.jit, donate_argnums=0)
    def apply(params, grads):
        return optax.apply_updates(params, update.update(grads, state, params)[0])

    def step():
        nonlocal params
        params = apply(params, arrays)
        return np.array(params[0])

    return step
