"""Statistics and checks of gradients while a program trains."""

from __future__ import annotations

import numpy as np

from minigraph.errors import NonfiniteError
from minigraph.kernels.buffers import deliver
from minigraph.kernels.norm import norm
from minigraph.kernels.registry import kernel


@kernel("guard_nonfinite", view="xs")
def guard_nonfinite(xp, xs, skipped, *, policy, params, out=None):
    outs, found_out, skipped_out = out or ([None] * len(xs), None, None)
    found = xp.zeros(1, bool)
    passed = []
    for x, name, each in zip(xs, params, outs, strict=True):
        finite = xp.isfinite(x)
        found = found | ~xp.all(finite)
        if policy == "raise" and not xp.all(finite):
            raise NonfiniteError(_what_is_wrong(xp, x, name), name)
        # Passing the array itself costs nothing; on a GPU asking whether all are finite would wait for the device.
        is_kept = policy != "zero" or (xp is np and finite.all())
        passed.append(deliver(xp, x if is_kept else xp.where(finite, x, x.dtype.type(0)), each))
    count = None if skipped is None else deliver(xp, skipped + found, skipped_out)
    return passed, deliver(xp, found, found_out), count


@kernel("guard_nonfinite_grad")
def guard_nonfinite_grad(xp, xs, d_outs, *, policy):
    if policy != "zero":
        return [d_out.copy() for d_out in d_outs]
    return [xp.where(xp.isfinite(x), d_out, x.dtype.type(0)) for x, d_out in zip(xs, d_outs, strict=True)]


def _what_is_wrong(xp, x, name) -> str:
    nans, infinities = int(xp.sum(xp.isnan(x))), int(xp.sum(xp.isinf(x)))
    kinds = [f"{number} {kind}" for number, kind in ((nans, "NaN"), (infinities, "infinite")) if number]
    return f"the gradient of {name} is not finite: {' and '.join(kinds)} of {x.size} elements"


@kernel("clip_statistics")
def clip_statistics(xp, before, after, steps, clipped, *, p, out=None):
    outs = out or (None,) * 5
    first, last = (xp.asarray(scale * ratio) for scale, ratio in (norm(xp, before, p), norm(xp, after, p)))
    is_zero = first == 0
    factor = xp.where(is_zero, 1.0, last / xp.where(is_zero, 1.0, first))
    # NaN differs from itself, but was not clipped.
    differs = (first != last) & ~xp.isnan(first)
    values = (first.reshape(1), last.reshape(1), factor.reshape(1), steps + 1, clipped + differs)
    return tuple(deliver(xp, value, each) for value, each in zip(values, outs, strict=True))
