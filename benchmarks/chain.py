"""A chain of elementwise operators, one reading what the one before wrote, by each engine."""

from functools import partial

import numpy as np

import minigraph as fluid

COUNT = 1000
KINDS = ("add", "mul", "relu", "tanh", "scale")
"""The chain repeats these; each as it would be written for the engine, so ``scale`` is two NumPy calls."""


def makers(size, count=COUNT):
    x = np.linspace(0.1, 0.4, size, dtype="float32")
    return {
        "minigraph": partial(by_minigraph, x, count, jit=False),
        "minigraph+jit": partial(by_minigraph, x, count, jit=True),
        "numpy": partial(by_numpy, x, count),
        "torch": partial(by_torch, x, count, compiled=False),
        "torch.compile": partial(by_torch, x, count, compiled=True),
        "jax": partial(by_jax, x, count),
    }


def apply_all(kinds, x, count):
    y = x
    for i in range(count):
        y = kinds[KINDS[i % len(KINDS)]](y, x)
    return y


def by_minigraph(x, count, jit):
    layers = fluid.layers
    kinds = {
        "add": layers.elementwise_add,
        "mul": layers.elementwise_mul,
        "relu": lambda y, x: layers.relu(y),
        "tanh": lambda y, x: layers.tanh(y),
        "scale": lambda y, x: layers.scale(y, 0.999, bias=0.1),
    }
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        y = apply_all(kinds, fluid.data("x", [x.size]), count)
    exe = fluid.Executor(fluid.CPUPlace(), jit=jit)
    return lambda: exe.run(main, feed={"x": x}, fetch_list=[y])[0]


def by_numpy(x, count):
    zero, factor, bias = np.float32(0), np.float32(0.999), np.float32(0.1)
    kinds = {
        "add": np.add,
        "mul": np.multiply,
        "relu": lambda y, x: np.maximum(y, zero),
        "tanh": lambda y, x: np.tanh(y),
        "scale": lambda y, x: y * factor + bias,
    }
    return lambda: apply_all(kinds, x, count)


def by_torch(x, count, compiled):
    import torch

    kinds = {
        "add": torch.add,
        "mul": torch.mul,
        "relu": lambda y, x: torch.relu(y),
        "tanh": lambda y, x: torch.tanh(y),
        "scale": lambda y, x: y * 0.999 + 0.1,
    }

    def chain(x):
        return apply_all(kinds, x, count)

    function = torch.compile(chain) if compiled else chain

    def call():
        with torch.no_grad():
            return function(torch.from_numpy(x)).numpy()

    return call


def by_jax(x, count):
    import jax

    kinds = {
        "add": jax.numpy.add,
        "mul": jax.numpy.multiply,
        "relu": lambda y, x: jax.nn.relu(y),
        "tanh": lambda y, x: jax.numpy.tanh(y),
        "scale": lambda y, x: y * 0.999 + 0.1,
    }
    chain = jax.jit(lambda x: apply_all(kinds, x, count))
    return lambda: np.asarray(chain(x))
