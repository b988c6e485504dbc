"""Groups of operators on elements: written by hand, and one for each call that a row of samples makes."""

import numpy as np
from kernel_calls import calls, flat
from sampled import DETERMINISTIC

from minigraph.kernels import find_kernel, formulas
from minigraph.support.fused_calls import FusedCall

CASES = {
    "vectors": (
        [(1000,), (1000,)],
        ["t0 = elementwise_mul(x0, x1, axis=-1)", "y0 = relu(t0)", "t1 = tanh(y0)", "y1 = scale(t1, None, scale=2.0, "
         "bias=1.0, bias_after_scale=False)"],
    ),
    "a row over rows": ([(37, 9), (9,)], ["t0 = elementwise_add(x0, x1, axis=1)", "y0 = sigmoid(t0)"]),
    "a column over columns": ([(37, 9), (37,)], ["t0 = elementwise_sub(x0, x1, axis=0)", "y0 = square(t0)"]),
    "channels": (
        [(6, 5, 4, 3), (5,), (6, 5, 4, 3)],
        ["t0 = elementwise_add(x0, x1, axis=1)", "t1 = relu(t0)", "y0 = sum([t1, x2, t0])"],
    ),
    "a number": ([(50, 3), (1,)], ["t0 = elementwise_div(x0, x1, axis=-1)", "y0 = elementwise_max(t0, x1, axis=-1)"]),
    "one operand twice, differently": (
        [(9, 9), (9,)], ["t0 = elementwise_add(x0, x1, axis=0)", "y0 = elementwise_mul(t0, x1, axis=1)"],
    ),
    "gradients of both": (
        [(300,), (300,), (300,)],
        ["t0 = relu_grad(x0, x2)", "y0, y1 = elementwise_mul_grad(x0, x1, t0, axis=-1)",
         "_, y2 = elementwise_div_grad(x0, x1, t0, y0, axis=-1)"],
    ),
    "activations": (
        [(300,), (300,)],
        ["y0 = swish(x0, beta=1.5)", "y1 = softsign(y0)", "t1 = square(x1)", "y2 = rsqrt(t1)"],
    ),
    "one row": ([(1, 600), (600,)], ["t0 = elementwise_add(x0, x1, axis=1)", "y0 = exp(t0)"]),
}  # fmt: skip


def operands(shapes, dtype="float32"):
    rng = np.random.default_rng(2)
    found = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    special = [np.nan, -0.0, np.inf, 0.0, -np.inf, 1e-40, 3e38]
    for array in found:
        places = array.reshape(-1)[:: max(array.size // 7, 1)]
        places[...] = np.resize(special, places.shape)
    return found


def plain(xs, steps):
    return find_kernel("fused_elementwise", "cpu").function(np, xs, steps=steps)


def single_calls(dtype):
    """A call for each operator with a formula that some sample makes."""
    seen = {}
    for sample in DETERMINISTIC:
        for call in calls(sample, dtype) if dtype in sample.dtypes else ():
            if formulas.has_formula(call.op.type, call.op.attrs, np.dtype(dtype)) and is_plain(call, np.dtype(dtype)):
                seen.setdefault((call.op.type, str(call.keywords)), call)
    return list(seen.values())


def is_plain(call, dtype):
    """Whether the pass would let the call be part of a group."""
    xs, wanted = flat(call.inputs), [x for x in call.expected if x is not None]
    if not all(isinstance(a, np.ndarray) and a.dtype == dtype for a in [*xs, *wanted]) or not xs[0].size:
        return False
    if call.op.type in ("scale", "clip", "clip_grad"):  # with tensors for their attributes
        return len(xs) == 1 + call.op.type.endswith("_grad")
    return all(x.shape == xs[0].shape for x in wanted)


def as_steps(call):
    names = iter(f"x{i}" for i in range(99))
    inputs = tuple(
        tuple(next(names) for _ in entry) if isinstance(entry, list) else None if entry is None else next(names)
        for entry in call.inputs
    )
    results = iter(f"y{i}" for i in range(9))
    outputs = tuple(None if each is None else next(results) for each in call.expected)
    attrs = {name: value for name, value in call.keywords.items() if name != "wanted"}
    return [str(FusedCall(call.op.type, inputs, outputs, attrs))]
