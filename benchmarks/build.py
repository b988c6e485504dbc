"""Measure the way to the first clipped gradients: the cost of a program of many operators until its first run."""

import gc
import time
from functools import partial

import numpy as np
from measuring import CONSOLE, report
from rich.table import Table

import minigraph as fluid

WIDTH = 4
JAX_LIMIT = 1_000  # beyond it the compilation by XLA takes minutes


def bench(settings):
    gc.collect()
    gc.freeze()  # what other workloads and engines left behind is not looked at while objects are made here
    stages_by_size = {size: minigraph_stages(size) for size in settings.sizes}
    table = Table("minigraph, us an operator", *(f"{size:,} forward operators" for size in settings.sizes))
    for stage in stages_by_size[settings.sizes[0]]:
        table.add_row(
            stage, *(f"{stages[stage][0] / stages[stage][1] * 1e6:.1f}" for stages in stages_by_size.values())
        )
    CONSOLE.print(table)
    table = Table("seconds to the first clipped gradients", *(f"{size:,} forward operators" for size in settings.sizes))
    for engine, first in FIRST.items():
        if engine in settings.engines:
            seconds = [first(size, stages_by_size) for size in settings.sizes]
            table.add_row(engine, *("too long" if s is None else f"{s:.3f}" for s in seconds))
            for size, value in zip(settings.sizes, seconds, strict=True):
                workload = f"(h) first clipped gradients of {size:,} operators"
                row = {"workload": workload, "engine": engine, "median_s": value, "lowest_s": value}
                settings.results.append(row)
    CONSOLE.print(table)
    for size in settings.sizes[:2]:  # whole lives of larger programs take seconds each
        title = f"(h) whole life of a program of {size:,} operators"
        times = settings.turns(title, {"minigraph": partial(minigraph_stages, size)}, settings.rounds)
        report(title, times, settings)


def minigraph_stages(count):
    """Seconds and number of operators of each stage in the life of a program with `count` forward operators."""
    stages = {}
    main, startup = fluid.Program(), fluid.Program()

    def timed(stage, function):
        start = time.perf_counter()
        result = function()
        stages[stage] = time.perf_counter() - start, len(main.global_block().ops)
        return result

    gc.collect()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = timed("build", lambda: deep_network(count))
        pairs = timed("differentiate", lambda: fluid.append_backward(loss))
        clipped = timed("clip", lambda: fluid.clip.GradientClipByGlobalNorm(1.0)(pairs))
        twin = timed("clone", main.clone)
    exe, scope = fluid.Executor(jit=False), fluid.Scope()
    exe.run(startup, scope=scope)
    feed = {"x": np.ones((2, WIDTH), "float32")}
    fetch = [loss.name, *(grad.name for _, grad in clipped)]
    timed("first run", lambda: exe.run(twin, feed=feed, fetch_list=fetch, scope=scope))
    timed("second run", lambda: exe.run(twin, feed=feed, fetch_list=fetch, scope=scope))  # which compiles the plan
    timed("run again", lambda: exe.run(twin, feed=feed, fetch_list=fetch, scope=scope))
    return stages


def deep_network(count):
    """`count` forward operators: a third are products, a third sums, a third activations."""
    x = fluid.data("x", [None, WIDTH])
    for _ in range(count // 3):
        x = fluid.layers.fc(x, WIDTH, act="tanh")
    return fluid.layers.mean(x)


def minigraph_first(count, stages_by_size):
    return sum(
        seconds for stage, (seconds, _) in stages_by_size[count].items() if stage not in ("second run", "run again")
    )


def weights(count):
    rng = np.random.RandomState(0)
    return [rng.uniform(-0.5, 0.5, (WIDTH, WIDTH)).astype("float32") for _ in range(count // 3)]


def torch_first(count, _):
    """PyTorch has no build: forward, backward and clip are the first run and any other."""
    import torch

    params = []
    for weight in weights(count):
        params += [torch.from_numpy(weight).requires_grad_(), torch.zeros(WIDTH, requires_grad=True)]
    gc.collect()
    start = time.perf_counter()
    h = torch.ones(2, WIDTH)
    for weight, bias in zip(params[::2], params[1::2], strict=True):
        h = torch.tanh(h @ weight + bias)
    h.mean().backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    return time.perf_counter() - start


def jax_first(count, _):
    import jax
    import optax

    if count > JAX_LIMIT:
        return None
    params = [(weight, np.zeros(WIDTH, "float32")) for weight in weights(count)]
    start = time.perf_counter()

    def loss(params):
        h = jax.numpy.ones((2, WIDTH))
        for weight, bias in params:
            h = jax.numpy.tanh(h @ weight + bias)
        return h.mean()

    def clipped(params):
        value, grads = jax.value_and_grad(loss)(params)
        return value, optax.clip_by_global_norm(1.0).update(grads, optax.EmptyState())[0]

    jax.block_until_ready(jax.jit(clipped)(params))
    return time.perf_counter() - start


FIRST = {"minigraph": minigraph_first, "torch": torch_first, "jax": jax_first}
