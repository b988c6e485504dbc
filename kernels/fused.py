"""Run the kernels of a group of elementwise operators, on pieces that stay in the cache.

On a GPU, run one kernel generated from `minigraph.kernels.formulas`, which rounds after each operator as theirs do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from minigraph.kernels.buffers import deliver, unshared
from minigraph.kernels.registry import find_kernel, find_specializer, is_for_all_sizes, kernel, specialize
from minigraph.support.fused_calls import FusedCall, last_uses, parse_calls
from minigraph.types import align_shape

PIECE = 65_536
"""Elements of each large array that are computed at a time."""

LARGE = 2**20
"""Minimum elements of a large array. Smaller ones fit in the processor's caches, and single calls are faster."""

RESULTS = 4
"""Maximum results of a group."""


@kernel("fused_elementwise")
def fused_elementwise(xp, xs, *, steps, out=None):
    types = tuple(ArrayType(x.shape, x.dtype) for x in xs)
    if hasattr(xp, "ElementwiseKernel") and _fit_one_launch(tuple(steps), types):
        return _in_one_launch(xp, tuple(steps), types)(xs, out)
    known: dict[str | None, Any] = {f"x{i}": x for i, x in enumerate(xs)}
    for call in parse_calls(tuple(steps)):
        results = _bound_kernel(xp, call)(*_arguments(call, known))
        known.update(zip(call.outputs, results if len(call.outputs) > 1 else (results,), strict=True))
    return delivered(xp, [known.get(f"y{i}") for i in range(RESULTS)], out)


def _bound_kernel(xp, call: FusedCall) -> Callable[..., Any]:
    found = find_kernel(call.type, "cpu")
    assert found is not None
    return partial(found.function, xp, **call.attrs, **_wanted(call))


def _wanted(call: FusedCall) -> dict[str, Any]:
    """The keyword `wanted` of a call with several results."""
    return {"wanted": tuple(name is not None for name in call.outputs)} if len(call.outputs) > 1 else {}


def _arguments(call: FusedCall, known: Mapping[Any, Any]) -> list[Any]:
    """Values in `known` for the inputs of a call."""
    return [
        [known[name] for name in entry] if isinstance(entry, tuple) else None if entry is None else known[entry]
        for entry in call.inputs
    ]


def delivered(xp, results: Sequence[Any], out) -> tuple[Any, ...]:
    """The results, in the buffers `out` if there are any; no two share memory."""
    buffers = (None,) * len(results) if out is None else out
    return tuple(
        None if result is None else deliver(xp, result, buffer) for result, buffer in zip(results, buffers, strict=True)
    )


class ArrayType(NamedTuple):
    """Shape and dtype of an array, for specializers."""

    shape: tuple[int, ...]
    dtype: Any


@specialize("fused_elementwise")
def _offer(xp, xs, *, steps):
    """The fastest functions for these shapes, on pieces if the arrays are large."""
    if xp is not np:
        known = tuple(ArrayType(x.shape, x.dtype) for x in xs)
        fits = hasattr(xp, "ElementwiseKernel") and _fit_one_launch(tuple(steps), known)
        return _in_one_launch(xp, tuple(steps), known) if fits else None
    calls, types = parse_calls(tuple(steps)), {f"x{i}": ArrayType(x.shape, x.dtype) for i, x in enumerate(xs)}
    whole = as_calls(tuple(steps), types)
    if prod(types[_first(calls[0])].shape) < LARGE:
        return whole
    layout = BroadcastLayout(calls, types)
    # There is nothing to cut along.
    if layout.flat[0] == 1:
        return whole
    pieces = _pieces(layout)

    def in_pieces(xs, out=None):
        # Results of single kernels have the memory order of their operands, and sums round accordingly.
        return pieces(xs, out) if all([x.flags.c_contiguous for x in xs]) else whole(xs, out)

    return in_pieces


@lru_cache(maxsize=256)
def _fit_one_launch(steps: tuple[str, ...], types: tuple[ArrayType, ...]) -> bool:
    """Whether all results have one type and the shape that the operands broadcast to; gradients add up no rows."""
    calls, known = parse_calls(steps), {f"x{i}": each for i, each in enumerate(types)}
    whole = known[_first(calls[0])]
    if any(each.dtype != whole.dtype for each in types):
        return False
    for call in calls:
        others = [known[name].shape for name in call.reads if name in known and known[name].shape != whole.shape]
        if others and (call.type.endswith("_grad") or known.get(_first(call), whole).shape != whole.shape):
            return False
        if any(len(other) > len(whole.shape) or not _broadcasts(other, whole.shape, call) for other in others):
            return False
    return True


def _broadcasts(shape: tuple[int, ...], whole: tuple[int, ...], call: FusedCall) -> bool:
    aligned = align_shape(whole, shape, call.attrs.get("axis", -1))
    return len(aligned) == len(whole) and all(a in (1, b) for a, b in zip(aligned, whole, strict=True))


@lru_cache(maxsize=256)
def _in_one_launch(xp, steps: tuple[str, ...], types: tuple[ArrayType, ...]) -> Callable[..., Any]:
    """A function for a GPU; operands need not be contiguous, and buffers may be operands."""
    from minigraph.kernels.fused_on_gpu import one_launch

    calls = parse_calls(steps)
    layout = BroadcastLayout(calls, {f"x{i}": each for i, each in enumerate(types)})
    is_there = [any(f"y{i}" in call.writes for call in calls) for i in range(RESULTS)]
    launch = one_launch(xp, layout, [f"y{i}" for i in range(RESULTS) if is_there[i]])

    def run(xs, out=None):
        made = layout.results(xs, is_there, out, xp)
        launch(xs, [y for y in made if y is not None])
        return delivered(xp, made, out)

    return run


def _quickest(call: FusedCall, known: Mapping[str, ArrayType]) -> tuple[Callable[..., Any], bool]:
    """The function for a call on arrays of these types, and whether it is right for other sizes, too."""
    offer = find_specializer(call.type)
    if offer is None:
        return _bound_kernel(np, call), True
    function = offer(np, *_arguments(call, known), **call.attrs, **_wanted(call))
    return (_bound_kernel(np, call), False) if function is None else (function, is_for_all_sizes(function))


def _first(call: FusedCall) -> str:
    """The operand that has the shape of the results."""
    return call.reads[0]


def _text(call: FusedCall) -> str:
    return ", ".join(f"[{', '.join(x)}]" if isinstance(x, tuple) else str(x) for x in call.inputs)


def as_calls(steps: tuple[str, ...], types: Mapping[str, ArrayType], over: Collection[str] = ()) -> Callable[..., Any]:
    """A function that makes the calls one after the other; buffers of the results in `over` may be operands."""
    key = (steps, _pattern(types.values())) if not over else None
    found = _AT_ALL_SIZES.get(key)
    if found is not None:
        return found
    known, namespace = dict(types), dict[str, Any](np=np, deliver=deliver)
    are_for_all_sizes = True
    for number, call in enumerate(parse_calls(steps)):
        # Only kernels, and nothing quicker, may write over what they read.
        is_over = any(name in over for name in call.writes)
        namespace[f"f{number}"], is_for_all = (_bound_kernel(np, call), True) if is_over else _quickest(call, known)
        are_for_all_sizes &= is_for_all
        known.update(dict.fromkeys(call.writes, known[_first(call)]))
    exec(_code_of_whole(steps, len(types)), namespace)
    run: Callable[..., Any] = namespace["run"]
    if are_for_all_sizes and key is not None:
        if len(_AT_ALL_SIZES) >= _MOST_KEPT:
            _AT_ALL_SIZES.clear()
        _AT_ALL_SIZES[key] = run
    return run


_AT_ALL_SIZES: dict[Any, Callable[..., Any]] = {}
"""Functions of `as_calls` that are right for all sizes, by calls and pattern."""

_MOST_KEPT = 1024


def _pattern(types: Iterable[ArrayType]) -> Any:
    """Dtypes, and which dimensions are equal, 0 or 1."""
    numbers = {0: 0, 1: 1}
    return tuple([(each.dtype, *[numbers.setdefault(size, len(numbers)) for size in each.shape]) for each in types])


@lru_cache(maxsize=1024)
def _code_of_whole(steps: tuple[str, ...], inputs: int) -> CodeType:
    """The code of a function that calls f0, f1, ... one after the other, for arrays of all shapes."""
    # Without buffers no `out` is passed on: some functions take the slower way where they are given one.
    lines = ["def run(xs, out=None):", f"    {', '.join(f'x{i}' for i in range(inputs))}, = xs", "    if out is None:"]
    lines += [f"        {line}" for line in _lines(parse_calls(steps), takes_out=False)]
    lines += [f"    {', '.join(f'out{i}' for i in range(RESULTS))} = out"]
    lines += [f"    {line}" for line in _lines(parse_calls(steps), takes_out=True)]
    return _code("\n".join(lines))


def _lines(calls: Sequence[FusedCall], takes_out: bool) -> Iterator[str]:
    """Lines that make the calls and return the results, in the buffers out0, out1, ... or in new memory."""
    last, made = last_uses(calls), {name for call in calls for name in call.writes}
    copied = []
    for number, call in enumerate(calls):
        out = _out(call) if takes_out else ""
        # A kernel that takes no buffer makes its result in new memory, and is copied at the end.
        copied += [] if out or not takes_out else [name for name in call.writes if name.startswith("y")]
        yield f"{', '.join(name or '_' for name in call.outputs)} = f{number}({_text(call)}{out})"
        # Intermediate values are deleted after their last read, so that NumPy reuses the memory.
        gone = [name for name in dict.fromkeys(call.reads) if name.startswith("t") and last[name] == number]
        yield from [f"del {', '.join(gone)}"] if gone else []
    yield from (f"{name} = deliver(np, {name}, out{name[1:]})" for name in copied)
    yield f"return {', '.join(f'y{i}' if f'y{i}' in made else 'None' for i in range(RESULTS))}"


@lru_cache(maxsize=256)
def _code(text: str) -> CodeType:
    """Compile the text of a function, once for groups of other shapes too."""
    return compile(text, "<minigraph group>", "exec")


def _out(call: FusedCall) -> str:
    """The argument ``out`` for a call whose kernel takes buffers and writes results; else nothing."""
    found = find_kernel(call.type, "cpu")
    assert found is not None
    outs = [f"out{name[1:]}" if name and name.startswith("y") else "None" for name in call.outputs]
    if not found.takes_out or not any(name.startswith("out") for name in outs):
        return ""
    return f", out={outs[0] if len(outs) == 1 else '(' + ', '.join(outs) + ')'}"


class BroadcastLayout:
    """Broadcast of operands to the results; `joins` merges neighbouring dimensions that broadcast alike everywhere.

    Attributes
    ----------
    shape : tuple of int
        Shape of the results.
    flat : tuple of int
        Shape of the results with dimensions merged.
    views : dict
        Operands by their names in `calls`: the name of the input, and the shape that broadcasts to `flat`.
    calls : tuple of FusedCall
        The calls on the views, which broadcast by the rules of NumPy.
    """

    def __init__(self, calls: Sequence[FusedCall], types: Mapping[str, ArrayType], joins: bool = True) -> None:
        self.dtype = types[_first(calls[0])].dtype
        self.shape = tuple(types[_first(calls[0])].shape)
        aligned: dict[tuple[str, tuple[int, ...]], str] = {}
        made = []
        for call in calls:
            names = {name: name for name in call.reads}
            for name in call.reads:
                if name in types:
                    over = tuple(types[name].shape)
                    if over != self.shape:
                        over = align_shape(self.shape, over, call.attrs.get("axis", -1))
                    names[name] = aligned.setdefault((name, over), f"{name}_{len(aligned)}")
            attrs = {**call.attrs, "axis": -1} if "axis" in call.attrs else call.attrs
            inputs = tuple(tuple(names[n] for n in x) if isinstance(x, tuple) else x and names[x] for x in call.inputs)
            made.append(replace(call, inputs=inputs, attrs=attrs))
        self.calls = tuple(made)
        # A dimension is merged into the one before it if every operand has both or lacks both.
        patterns = [tuple(over[i] == size for _, over in aligned) for i, size in enumerate(self.shape)]
        groups: list[list[int]] = []
        for i, pattern in enumerate(patterns):
            if joins and groups and patterns[groups[-1][-1]] == pattern:
                groups[-1].append(i)
            else:
                groups.append([i])
        self.flat = tuple(prod(self.shape[i] for i in group) for group in groups) or (1,)
        self.views = {
            view: (name, tuple(prod(over[i] for i in group) for group in groups) or (1,))
            for (name, over), view in aligned.items()
        }

    def views_of(self, xs: Sequence[Any]) -> list[Any]:
        """The contiguous arrays `xs` as operands, in the shapes of the views."""
        return [xs[int(name[1:])].reshape(shape) for name, shape in self.views.values()]

    def results(self, xs: Sequence[Any], wanted: Sequence[bool], out, xp=np) -> list[Any]:
        """Arrays to write results to while `xs` are read: the buffers `out`, unless they share memory with `xs`."""
        found: list[Any] = []
        for is_wanted, buffer in zip(wanted, out or (None,) * len(wanted), strict=True):
            free = buffer is not None and buffer.flags.c_contiguous and unshared(xp, buffer, *xs) is not None
            found.append(None if not is_wanted else buffer if free else xp.empty(self.shape, self.dtype))
        return found


def _pieces(layout: BroadcastLayout) -> Callable[..., Any]:
    """A function that makes the calls on pieces along the first of the merged dimensions."""
    length, *rest = layout.flat
    step = min(length, max(1, PIECE // max(prod(rest), 1)))
    piece = ArrayType((step, *rest), layout.dtype)
    # Operands that are broadcast along the first dimension are the same for every piece.
    cut = {view for view, (_, shape) in layout.views.items() if shape[0] == length}
    known = {
        view: ArrayType((step, *shape[1:]) if view in cut else shape, layout.dtype)
        for view, (_, shape) in layout.views.items()
    }
    rooms = _rooms(layout.calls)
    count = len(set(rooms.values()))
    body = [f"{view} = all_{view}[start:end]" for view in sorted(cut)]
    namespace: dict[str, Any] = {}
    for number, call in enumerate(layout.calls):
        namespace[f"f{number}"], _ = _quickest(call, known)
        known.update(dict.fromkeys(call.writes, piece))
        for name in call.writes:
            body.append(f"{name} = " + (f"r{rooms[name]}[:end - start]" if name in rooms else f"all_{name}[start:end]"))
        outs = [str(name) for name in call.outputs]
        body.append(f"f{number}({_text(call)}, out={outs[0] if len(outs) == 1 else '(' + ', '.join(outs) + ')'})")
    lines = [
        "def run(views, outs, room):",
        f"    {', '.join(f'all_{view}' if view in cut else view for view in layout.views)}, = views",
        f"    {', '.join(f'all_y{i}' for i in range(RESULTS))} = outs",
        *[f"    r{i} = room[{i}]" for i in range(count)],
        f"    for start in range(0, {length}, {step}):",
        f"        end = min(start + {step}, {length})",
        *[f"        {line}" for line in body],
    ]
    exec(_code("\n".join(lines)), namespace)
    run, results = namespace["run"], [f"y{i}" in known for i in range(RESULTS)]

    def in_pieces(xs, out=None):
        made = layout.results(xs, results, out)
        views = [None if x is None else x.reshape(layout.flat) for x in made]
        run(layout.views_of(xs), views, [np.empty(piece.shape, piece.dtype) for _ in range(count)])
        return delivered(np, made, out)

    return in_pieces


def _rooms(calls: Sequence[FusedCall]) -> dict[str, int]:
    """Number of the temporary array of each intermediate value; an array is reused after the last read of its value."""
    last, rooms = last_uses(calls), dict[str, int]()
    free: list[int] = []
    for number, call in enumerate(calls):
        for name in call.writes:
            if name.startswith("t"):
                rooms[name] = free.pop() if free else len(set(rooms.values()))
        free += [rooms[name] for name in dict.fromkeys(call.reads) if name in rooms and last[name] == number]
    return rooms
