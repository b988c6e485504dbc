"""Functions of groups that are kept for other sizes give what the single kernels give."""

import numpy as np
import pytest

from minigraph.kernels import find_specializer
from minigraph.kernels.fused import fused_elementwise

GROUPS = {
    "a factor for each sample": (
        ("t0 = scale(x0, None, scale=1.25, bias=0.5, bias_after_scale=True)", "y0 = elementwise_mul(t0, x1, axis=0)"),
        lambda n, c: [(n, c, 2, 2), (n, 1, 1, 1)],
    ),
    "a bias for each channel": (
        ("t0 = elementwise_add(x0, x1, axis=1)", "y0 = sigmoid(t0)"),
        lambda n, c: [(n, c, 2, 2), (c,)],
    ),
    "the gradient to one operand": (
        ("t0, _ = elementwise_mul_grad(x0, x1, x2, axis=0)", "y0 = sum([t0, x0])"),
        lambda n, c: [(n, c, 2, 2), (n, 1, 1, 1), (n, c, 2, 2)],
    ),
    "the gradients to both operands": (
        ("t0, y1 = elementwise_mul_grad(x0, x1, x2, axis=-1)", "y0 = sum([t0, x0])"),
        lambda n, c: [(n, c), (c,) if n % 2 else (n, c), (n, c)],
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_functions_for_other_sizes_give_the_bits_of_the_kernels(name):
    steps, shapes_of = GROUPS[name]
    random, offer = np.random.RandomState(0), find_specializer("fused_elementwise")
    for n, c in [(3, 5), (4, 5), (5, 5), (1, 5), (5, 1), (2, 2), (1, 1), (6, 3)]:
        xs = [random.standard_normal(shape).astype("float32") for shape in shapes_of(n, c)]
        function = offer(np, xs, steps=steps)
        buffers = tuple(
            None if each is None else np.empty_like(each) for each in fused_elementwise(np, xs, steps=steps)
        )
        for out in (None, buffers):
            found, expected = function(xs, out=out), fused_elementwise(np, xs, steps=steps)
            for one, other in zip(found, expected, strict=True):
                assert (one is None and other is None) or (one.shape == other.shape and (one == other).all()), (n, c)


def test_a_function_is_kept_where_it_depends_on_no_size():
    offer, (steps, shapes_of) = find_specializer("fused_elementwise"), GROUPS["a bias for each channel"]
    first, second, broadcast = (
        offer(np, [np.zeros(shape, "float32") for shape in shapes_of(n, 5)], steps=steps) for n in (3, 4, 1)
    )
    assert first is second
    assert first is not broadcast
