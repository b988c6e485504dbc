"""Choose among values; the value of a block that did not run is None."""

from __future__ import annotations

from minigraph.errors import OpError
from minigraph.kernels.registry import kernel


@kernel("rnn_memory_helper", view="x")
def rnn_memory_helper(xp, x, *, dtype):
    return x


@kernel("rnn_memory_helper_grad", view="d_out")
def rnn_memory_helper_grad(xp, x, out, d_out, *, dtype):
    return d_out


@kernel("select_input")
def select_input(xp, x, mask):
    return x[_choice(mask, len(x))].copy()


@kernel("select_output")
def select_output(xp, x, mask, *, wanted):
    (flags,) = wanted
    results = [None] * len(flags)
    results[_choice(mask, len(flags))] = x.copy()
    return results


@kernel("split_lod_tensor")
def split_lod_tensor(xp, x, mask, *, level):
    chosen = mask.reshape(-1)
    return x[chosen], x[~chosen]


@kernel("merge_lod_tensor")
def merge_lod_tensor(xp, x, mask, in_true, in_false, *, level):
    chosen = mask.reshape(-1)
    parts = ((chosen, in_true), (~chosen, in_false))
    # A branch without rows has not run, and its result is None.
    given = next((part for _, part in parts if part is not None), None)
    if given is None:
        raise OpError("neither branch has run, because there are no rows")
    merged = xp.empty((chosen.size, *given.shape[1:]), given.dtype)
    for where, part in parts:
        if part is not None:
            merged[where] = part
    return merged


def _choice(mask, count: int) -> int:
    chosen = int(mask.item())
    if not 0 <= chosen < count:
        raise OpError(f"Mask chooses {chosen}, there are {count} to choose from")
    return chosen
