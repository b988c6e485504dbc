"""Several optimizers may update one parameter in a program; a run does what the operators say, one after the other."""

import itertools

import numpy as np
import pytest
from jit_support import needs_numba

import minigraph as fluid
from minigraph import layers, optimizer
from minigraph.executor.interpreter import Interpreter

MAKERS = {
    "SGD": lambda: optimizer.SGD(0.1),
    "Momentum": lambda: optimizer.Momentum(0.1, 0.9),
    "Adam": lambda: optimizer.Adam(0.1),
    "Adagrad": lambda: optimizer.Adagrad(0.1),
    "Lamb": lambda: optimizer.Lamb(0.1),
    "clipped": lambda: optimizer.Adamax(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1)),
}


def trained(executor, makers, size):
    """Losses of three steps, and all persistable values after them."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [-1, size])
        weight = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5 / size))
        y = layers.fc(x, size, param_attr=weight, act="tanh")
        losses = [layers.mean(layers.square(y - target)) for target in range(len(makers))]
        for maker, loss in zip(makers, losses, strict=True):
            MAKERS[maker]().minimize(loss)
    scope, feed = fluid.Scope(), {"x": np.linspace(-1, 2, 3 * size, dtype="float32").reshape(3, size)}
    executor.run(startup, scope=scope)
    found = [array for _ in range(3) for array in executor.run(main, feed=feed, fetch_list=losses, scope=scope)]
    return found + [np.array(scope.find_var(v.name).get_tensor()) for v in main.list_vars() if v.persistable]


@pytest.mark.laws
@pytest.mark.filterwarnings("ignore:.*are updated already")
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])
@pytest.mark.parametrize("size", [2, 40])
@pytest.mark.parametrize("makers", [*itertools.product(MAKERS, repeat=2), ("Adam", "SGD", "Adam")], ids="-".join)
def test_each_updates_what_the_one_before_left(makers, size, jit):
    found = trained(fluid.Executor(jit=jit), makers, size)
    for array, expected in zip(found, trained(Interpreter(), makers, size), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5)
