"""Compute float16 in float32: several roundings in float16 would lose most digits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver


def widen(x) -> Any:
    """Return `x`, in float32 if it is float16."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def narrow(xp, result, dtype, out=None) -> Any:
    """Return `result` in `dtype`, in the buffer `out` if there is one."""
    return deliver(xp, result.astype(dtype, copy=False), out)


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a kernel with one result compute float16 in float32."""

    @functools.wraps(function)
    def kernel_function(xp, x, *others, out=None, **attrs):
        if x.dtype != np.float16:
            return function(xp, x, *others, out=out, **attrs)
        wide = [None if a is None else widen(a) for a in (x, *others)]
        return deliver(xp, function(xp, *wide, **attrs).astype(np.float16), out)

    return kernel_function
