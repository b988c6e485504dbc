"""Groups of elementwise operators for many variables, as one compiled loop that writes over its operands.

Results are rounded as `minigraph.kernels.jit.fused` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from minigraph.kernels.fused import RESULTS
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.fused import MODULES, effort, is_long, statements
from minigraph.kernels.jit.offers import elementwise_loop, numba_name, vectors
from minigraph.kernels.jit.recorders import native, native_loop
from minigraph.kernels.jit.recording import Recording
from minigraph.kernels.jit.threads import least_of, over_pieces
from minigraph.kernels.merged_elementwise import of_one, variables
from minigraph.kernels.registry import specialize
from minigraph.kernels.update_kernels import owned
from minigraph.support.fused_calls import parse_calls

TYPE = "merged_elementwise"


@cache
def _loops(steps: tuple[str, ...], replaced: tuple[int, ...], own: int, shared: int, kind: str) -> Loops:
    """The loop ``merged`` over `own` vectors, with `shared` vectors of one element; and it for tables of calls."""
    singles = range(own, own + shared)
    parameters = [*(f"x{i}_" for i in range(own)), *(f"x{i}_" for i in singles)]
    lines = ["", "", f"def merged({', '.join(parameters)}):", *(f"    x{i} = x{i}_[0]" for i in singles)]
    lines += ["    for i in range(x0_.size):", *(f"        x{i} = x{i}_[i]" for i in range(own))]
    values = {f"x{i}": f"x{i}" for i in range(own + shared)}
    lines += [f"        {line}" for line in statements(parse_calls(steps), values)]
    lines += [f"        x{at}_[i] = y{i}" for i, at in enumerate(replaced)]
    given = [f"vector(operands, {i}, {'load(sizes)' if i < own else 1}, like)" for i in range(own + shared)]
    lines += ["", "", "def merged_in_table(operands, sizes, strides, own):", f"    like = np.{kind}(0)"]
    lines += [f"    merged({', '.join(given)})", ""]
    return Loops(*MODULES[kind], "layout", "table", text="\n".join(lines))


def _parts(lists: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    *own, shared = lists
    return [x for x in own if x], shared or []


@specialize(TYPE, jit=True)
def _offer(xp, *lists, steps, replaced):
    own, shared = _parts(lists)
    dtype, size = own[0][0].dtype, sum(int(np.prod(x.shape)) for x in own[0])
    kind = numba_name(dtype)
    if kind is None:
        return None
    steps, replaced = tuple(steps), tuple(replaced)
    loops = _loops(steps, replaced, len(own), len(shared), kind)
    long = [x[0]._replace(shape=(size,)) for x in own]
    loop = elementwise_loop(loops, "merged", long, shared)
    if loop is None:
        return None
    least = least_of(dtype.itemsize * effort(loops.text))

    def written_over(arrays, outs, shared):
        new = list(arrays)
        for at, y in zip(replaced, outs, strict=True):
            new[at] = owned(np, arrays[at], y)
        over_pieces(loop, vectors(*new), shared, least)
        return [new[at] for at in replaced]

    def run(*lists, out=None):
        own, shared = _parts(lists)
        found: tuple[list[Any], ...] = tuple([] for _ in range(RESULTS))
        for arrays, outs in variables(own, out, len(replaced)):
            try:
                made = written_over(arrays, outs, shared)
            except TypeError:  # arrays that no loop was compiled for
                made = of_one(np, [*arrays, *shared], steps, replaced, outs)
            for result, y in zip(found, made, strict=False):
                result.append(y)
        return found

    return run


def _record_loop(recording: Recording, *lists: Any, steps: Sequence[str], replaced: Sequence[int]) -> Any:
    """Record the loop for each variable, or for the vector of all, in place."""
    own, shared = _parts(lists)
    dtype, size = own[0][0].dtype, sum(x.size for x in own[0])
    kind = numba_name(dtype)
    if kind is None or any(x.dtype != dtype or x.is_transposed for each in (*own, shared) for x in each):
        raise UnsupportedError("several types, or halves, or another order")
    loops = _loops(tuple(steps), tuple(replaced), len(own), len(shared), kind)
    if size >= 2 * least_of(dtype.itemsize * effort(loops.text)):
        raise UnsupportedError("several threads are quicker")
    for arrays in zip(*own, strict=True):
        if len({x.size for x in arrays}) > 1:
            raise UnsupportedError("other sizes")
        recording.emit(loops.address("merged_in_table"), [*arrays, *shared], [arrays[0].size], [])
    return tuple(list(own[at]) for at in replaced) + ([],) * (RESULTS - len(replaced))


@native(TYPE, replaces_loops=False)
def _record(recording: Recording, *lists: Any, steps: Sequence[str], replaced: Sequence[int]) -> Any:
    """Record the loop where it has the bits of the shared kernel."""
    if any(is_long(call) for call in parse_calls(tuple(steps))):
        raise UnsupportedError("rounded in another way")
    return _record_loop(recording, *lists, steps=steps, replaced=replaced)


native_loop(TYPE)(_record_loop)
