"""Groups of elementwise operators for many variables, as one compiled loop that writes over its operands.

Results are rounded as `minigraph.kernels.jit.fused` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from minigraph.kernels.fused import RESULTS
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.fused import MODULES, effort, is_long, statements
from minigraph.kernels.jit.offers import elementwise_loop, numba_name, vectors
from minigraph.kernels.jit.recorders import native, native_loop
from minigraph.kernels.jit.recording import Recording, Symbol
from minigraph.kernels.jit.threads import least_of, over_pieces
from minigraph.kernels.merged_elementwise import NUMBERS, given, of_one, variables
from minigraph.kernels.registry import specialize
from minigraph.kernels.update_kernels import owned
from minigraph.support.fused_calls import FusedCall, parse_calls

TYPE = "merged_elementwise"


@cache
def _loops(steps: tuple[str, ...], replaced: tuple[int, ...], own: int, ones: int, kind: str) -> Loops:
    """The loop ``merged`` over `own` vectors, with `ones` vectors of one element; and it for tables of calls."""
    singles = range(own, own + ones)
    parameters = [*(f"x{i}_" for i in range(own)), *(f"x{i}_" for i in singles)]
    lines = ["", "", f"def merged({', '.join(parameters)}):", *(f"    x{i} = x{i}_[0]" for i in singles)]
    values = {f"x{i}": f"x{i}" for i in range(own + ones)}
    of_ones, of_each = _by_operands(parse_calls(steps), [f"x{i}" for i in singles])
    lines += [f"    {line}" for line in statements(of_ones, values)]
    lines += ["    for i in range(x0_.size):", *(f"        x{i} = x{i}_[i]" for i in range(own))]
    lines += [f"        {line}" for line in statements(of_each, values)]
    lines += [f"        x{at}_[i] = y{i}" for i, at in enumerate(replaced)]
    given = [f"array_at(load(operands + {8 * i}), {'load(sizes)' if i < own else 1}, like)" for i in range(own + ones)]
    lines += ["", "", "def merged_in_table(operands, sizes, strides, own):", f"    like = np.{kind}(0)"]
    lines += [f"    merged({', '.join(given)})", ""]
    return Loops(*MODULES[kind], "layout", "table", text="\n".join(lines))


def _by_operands(calls: Sequence[FusedCall], ones: Sequence[str]) -> tuple[list[FusedCall], list[FusedCall]]:
    """The calls whose operands are all of one element, given the names of those, and the others."""
    names, of_ones, of_each = set(ones), list[FusedCall](), list[FusedCall]()
    for call in calls:
        if names.issuperset(call.reads):
            names.update(call.writes)
            of_ones.append(call)
        else:
            of_each.append(call)
    return of_ones, of_each


def _parts(lists: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The lists that are given: of variables, of numbers, and what is shared."""
    *lists, shared = lists
    return given(lists[:-NUMBERS]), given(lists[-NUMBERS:]), shared or []


@specialize(TYPE, jit=True)
def _offer(xp, *lists, steps, replaced, sizes):
    own, numbers, shared = _parts(lists)
    ones = [*[x[0] for x in numbers], *shared]
    dtype, size = own[0][0].dtype, sum(int(np.prod(x.shape)) for x in own[0])
    kind = numba_name(dtype)
    if kind is None:
        return None
    steps, replaced = tuple(steps), tuple(replaced)
    loops = _loops(steps, replaced, len(own), len(ones), kind)
    long = [x[0]._replace(shape=(size,)) for x in own]
    loop = elementwise_loop(loops, "merged", long, [each._replace(shape=(1,)) for each in ones])
    if loop is None:
        return None
    least = least_of(dtype.itemsize * effort(loops.text))

    def written_over(arrays, outs, ones):
        new = list(arrays)
        for at, y in zip(replaced, outs, strict=True):
            new[at] = owned(np, arrays[at], y)
        over_pieces(loop, vectors(*new), ones, least)
        return [new[at] for at in replaced]

    def run(*lists, out=None):
        own, numbers, shared = _parts(lists)
        found: tuple[list[Any], ...] = tuple([] for _ in range(RESULTS))
        for arrays, own_ones, outs in variables(np, own, numbers, sizes, out, len(replaced)):
            ones = [*own_ones, *shared]
            try:
                made = written_over(arrays, outs, ones)
            except TypeError:  # arrays that no loop was compiled for
                made = of_one(np, [*arrays, *ones], steps, replaced, outs)
            for result, y in zip(found, made, strict=False):
                result.append(y)
        return found

    return run


def _record_loop(
    recording: Recording, *lists: Any, steps: Sequence[str], replaced: Sequence[int], sizes: Sequence[int]
) -> Any:
    """Record the loop for each variable, or for the vector of all that have no numbers of their own, in place."""
    own, numbers, shared = _parts(lists)
    dtype, size = own[0][0].dtype, sum(x.size for x in own[0])
    kind = numba_name(dtype)
    if kind is None or any(x.dtype != dtype or x.is_transposed for each in (*own, *numbers, shared) for x in each):
        raise UnsupportedError("several types, or halves, or another order")
    loops = _loops(tuple(steps), tuple(replaced), len(own), len(numbers) + len(shared), kind)
    if size >= 2 * least_of(dtype.itemsize * effort(loops.text)):
        raise UnsupportedError("several threads are quicker")
    is_apart = bool(numbers) and len(own[0]) < len(sizes)
    variables = [_apart(x, sizes) for x in own] if is_apart else own
    ones = [_apart(x, [1] * len(sizes)) for x in numbers] if is_apart else numbers
    for i, arrays in enumerate(zip(*variables, strict=True)):
        if len({x.size for x in arrays}) > 1:
            raise UnsupportedError("other sizes")
        operands = [*arrays, *[each[i] for each in ones], *shared]
        recording.emit(loops.address("merged_in_table"), operands, [arrays[0].size], [])
    return tuple(list(own[at]) for at in replaced) + ([],) * (RESULTS - len(replaced))


def _apart(joined: Sequence[Symbol], sizes: Sequence[int]) -> list[Symbol]:
    """Cut one vector into parts of these sizes."""
    (vector,) = joined
    ends = list(accumulate(sizes))
    return [vector[end - size : end] for end, size in zip(ends, sizes, strict=True)]


@native(TYPE, replaces_loops=False)
def _record(recording: Recording, *lists: Any, steps: Sequence[str], **attrs: Any) -> Any:
    """Record the loop where it has the bits of the shared kernel."""
    if any(is_long(call) for call in parse_calls(tuple(steps))):
        raise UnsupportedError("rounded in another way")
    return _record_loop(recording, *lists, steps=steps, **attrs)


native_loop(TYPE)(_record_loop)
