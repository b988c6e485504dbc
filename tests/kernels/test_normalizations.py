"""Normalizations and their gradients in float32 against float64: large means, small groups, gradients that cancel."""

import numpy as np
import pytest
from jit_support import needs_numba

import minigraph as fluid

pytestmark = pytest.mark.numbers

layers = fluid.layers

LAYERS = {
    "batch_norm": layers.batch_norm,
    "layer_norm": layers.layer_norm,
    "instance_norm": layers.instance_norm,
    "group_norm": lambda x, **attrs: layers.group_norm(x, groups=2, **attrs),
}
SHAPES = {
    "batch_norm": [(2, 3), (3, 2), (16, 8), (300, 20), (2, 3, 4, 5), (8, 4, 17, 9), (64, 2, 28, 28)],
    "layer_norm": [(4, 2), (3, 3), (2000, 3), (16, 64), (300, 24), (3, 20_000), (2, 3, 4, 5)],
    "instance_norm": [(2, 3, 1, 2), (2, 3, 4, 5), (8, 4, 17, 9), (2, 2, 100, 100)],
    "group_norm": [(2, 4, 1, 2), (2, 4, 3, 5), (8, 4, 17, 9), (2, 2, 100, 100)],
}
SPREADS = [(0, 1), (0, 1e-3), (3, 1), (100, 1), (1000, 0.1), (5, 1e-3)]
"""Means and standard deviations."""


def results(name, x, d, dtype, jit):
    """What a normalization gives, and the gradients by X, scale and bias for the gradient `d`."""
    size = int(np.prod(x.shape[1:])) if name == "layer_norm" else x.shape[1]
    rng = np.random.default_rng(2)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        attrs = {
            which: fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(start.astype("float32")))
            for which, start in [("param_attr", rng.uniform(0.5, 2, size)), ("bias_attr", rng.uniform(-1, 1, size))]
        }
        given = fluid.data("x", x.shape, dtype)
        given.stop_gradient = False
        y = LAYERS[name](given, **attrs)
        params = [param for param in main.all_parameters() if param.trainable]
        fetched = [y, *fluid.gradients([y], [given, *params], [fluid.data("d", d.shape, dtype)])]
    executor, scope = fluid.Executor(jit=jit), fluid.Scope()
    executor.run(startup, scope=scope)
    return executor.run(main, {"x": x.astype(dtype), "d": d.astype(dtype)}, fetched, scope=scope)


@pytest.mark.laws
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)], ids=["plain", "jit"])
@pytest.mark.parametrize(("mean", "spread"), SPREADS)
@pytest.mark.parametrize("name", LAYERS)
def test_normalizations_in_float32_are_those_of_float64(name, mean, spread, jit):
    for seed, shape in enumerate(SHAPES[name]):
        rng = np.random.default_rng(seed)
        x, d = ((a * rng.standard_normal(shape) + b).astype("float32") for a, b in ((spread, mean), (1, 0)))
        found, exact = results(name, x, d, "float32", jit), results(name, x, d, "float64", False)
        # Half a dozen roundings, and those of sums, which grow with the logarithm of the number of elements.
        roundings = 6 + np.log2(x.size) / 4
        for value, expected in zip(found, exact, strict=True):
            assert np.abs(value - expected).max() <= roundings * 2.0**-24 * np.abs(expected).max(), (shape, name)
