"""Groups of elementwise operators as one loop each, generated from `minigraph.kernels.formulas`.

Sums, products, quotients and roots have the bits of the shared kernels. Exponentials and logarithms are within 2 units
of the last place, error functions within 3, hyperbolic tangents within 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from math import prod
from types import CodeType
from typing import Any

import numpy as np

from minigraph.kernels.formulas import has_formula, written
from minigraph.kernels.fused import RESULTS, ArrayType, BroadcastLayout, delivered
from minigraph.kernels.jit import offers
from minigraph.kernels.jit.compiling import Loops, compiled
from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.offers import numba_name, or_kernel
from minigraph.kernels.jit.recorders import native_loop
from minigraph.kernels.jit.recording import Recording, Symbol
from minigraph.kernels.jit.threads import least_of, pieces, run_together
from minigraph.kernels.registry import specialize
from minigraph.support.fused_calls import FusedCall, parse_calls

MODULES = {
    "float32": ("functions", "functions32", "exponentials", "error_function32"),
    "float64": ("functions", "functions64", "exponentials"),
}
"""Modules with the functions that formulas call."""

_FUNCTIONS = {kind: Loops(*names) for kind, names in MODULES.items()}
_TABLE = Loops("layout", "table")
_MOST_DIMENSIONS = 4
"""Maximum dimensions of a group."""

_SHORT_ROW = 16
"""Minimum elements of a row for which a matrix keeps its two dimensions."""

_WORK = 4
"""Minimum elements of a group, as a multiple of that of other loops. Each operator counts its elements."""

_MOST_IN_SEGMENT = 8
"""Maximum operators of a segment."""

_STRIP = 1024
"""Elements of a strip, over which the segments run one after the other."""

_LONG = re.compile(r"\b(erf|erfc|exp|expm1|log|log1p|tanh)\(")
"""Functions of many dependent instructions."""


_LONG_EFFORT = 32
"""Elements that are read in the time of one of the functions in `_LONG`."""


@lru_cache(1024)
def effort(source: str) -> int:
    """Elements that are read in the time of one pass through a loop: its assignments, some of them long."""
    return source.count(" = ") + _LONG_EFFORT * len(_LONG.findall(source))


def _nest_of(xs: Sequence[Any], steps: Sequence[str], least: int) -> _Nest | None:
    """The loops for a group, if it has `least` elements, counted once for each operator."""
    steps = tuple(steps)
    calls, types = parse_calls(steps), {f"x{i}": ArrayType(x.shape, x.dtype) for i, x in enumerate(xs)}
    shape, count = types[calls[0].reads[0]].shape, _number_of_segments(steps)
    # A matrix with long rows keeps its shape, which saves a reshape of each array.
    layout = BroadcastLayout(calls, types, joins=len(shape) != 2 or shape[-1] < _SHORT_ROW or count > 1)
    is_worth_it = prod(shape) * len(calls) >= least and 0 not in shape
    if numba_name(layout.dtype) is None or len(layout.flat) > _MOST_DIMENSIONS or not is_worth_it:
        return None
    return _Nest(layout, steps)


@specialize("fused_elementwise", jit=True)
def fused_elementwise(xp, xs, *, steps):
    return _group(xs, steps, _WORK * offers.LEAST)


def _group(xs: Sequence[Any], steps: Sequence[str], least: int) -> Callable[..., Any] | None:
    """A function for a group, if it has `least` elements, counted once for each operator; else None."""
    nest = _nest_of(xs, steps, least)
    if nest is None:
        return None
    steps, layout, kind = tuple(steps), nest.layout, str(numba_name(nest.layout.dtype))
    loop = compiled(_with_functions(nest.source, kind), "fused", nest.signature(kind))
    length, row = layout.flat[0], prod(layout.flat[1:])
    least = least_of(layout.dtype.itemsize * effort(nest.source))
    is_there = [f"y{i}" in nest.results for i in range(RESULTS)]

    def run(xs, out=None):
        if not all([x.flags.c_contiguous for x in xs]):
            raise TypeError("not contiguous")
        made = layout.results(xs, is_there, out)
        arrays = nest.arrays(xs, made)
        parts = [(0, length)] if length * row < 2 * least else pieces(length, -(-least // row), 64 if row == 1 else 1)
        if len(parts) == 1:
            loop(*arrays)
        else:
            run_together([partial(loop, *nest.part(arrays, start, end)) for start, end in parts])
        return delivered(np, made, out)

    careful = or_kernel(run, "fused_elementwise", {"steps": steps})
    return careful if length * row >= 2 * least else nest.quick(loop, [x.shape for x in xs], careful)


@lru_cache(1024)
def _with_functions(source: str, kind: str) -> str:
    return _FUNCTIONS[kind].import_line + source


@native_loop("fused_elementwise")
def _record(recording: Recording, xs: Sequence[Symbol], *, steps: Sequence[str]) -> Any:
    """Record the loop for a group that one thread computes."""
    nest = _nest_of(xs, steps, 0)
    if nest is None or any(x.dtype != nest.layout.dtype or not x.value.layout.flags.c_contiguous for x in xs):
        raise UnsupportedError("no loop, several types, or another order")
    layout, kind = nest.layout, str(numba_name(nest.layout.dtype))
    if prod(layout.shape) >= 2 * least_of(layout.dtype.itemsize * effort(nest.source)):
        raise UnsupportedError("several threads are quicker")
    made = {name: recording.new(layout.shape, layout.dtype) for name in nest.results}
    operands = [xs[int(name[1:])] for name, _ in layout.views.values()]
    loops = _in_table(_with_functions(nest.source, kind), kind, nest.ranks)
    sizes = [size for each in nest.shapes for size in each]
    recording.work += prod(layout.shape)
    recording.emit(loops.address("fused_in_table"), [*operands, *made.values()], sizes, [])
    return tuple(made.get(f"y{i}") for i in range(RESULTS))


@cache
def _in_table(source: str, kind: str, ranks: tuple[int, ...]) -> Loops:
    """The function for tables that calls the loop of a source for operands and results of these ranks."""
    given, at = [], 0
    for number, rank in enumerate(ranks):
        shape = ", ".join(f"load(sizes + {8 * (at + i)})" for i in range(rank))
        given.append(f"carray(pointer(load(operands + {8 * number}), like), ({shape},))")
        at += rank
    lines = [source, "", "def fused_in_table(operands, sizes, strides, own):", f"    like = np.{kind}(0)"]
    return Loops(text="\n".join([_TABLE.import_line, *lines, f"    fused({', '.join(given)})", ""]))


def _offer_one(type: str) -> Callable[..., Any]:
    """Offer a loop for a single operator that takes NumPy several calls."""

    def offer(xp, *operands, **attrs):
        steps = _steps_of_one(type, operands, attrs)
        group = _group(operands, steps, _WORK * offers.LEAST // 2) if steps else None
        if group is None:
            return None
        return lambda *xs, out=None: group(xs, out=None if out is None else (out, None, None, None))[0]

    return offer


def _record_one(type: str) -> Callable[..., Any]:
    """Record the loop for a single operator."""

    def recorded(recording: Recording, *operands: Any, **attrs: Any) -> Any:
        steps = _steps_of_one(type, operands, attrs)
        if not steps:
            raise UnsupportedError("no loop")
        return _record(recording, operands, steps=steps)[0]

    return recorded


def _steps_of_one(type: str, operands: Sequence[Any], attrs: dict[str, Any]) -> tuple[str, ...]:
    """A single operator as a group; nothing if its operands differ, or if it has no formula."""
    if any(x.shape != operands[0].shape or x.dtype != operands[0].dtype for x in operands):
        return ()
    names = tuple(f"x{i}" for i in range(len(operands)))
    call = FusedCall(type, names, ("y0",), attrs)
    return (str(call),) if has_formula(type, attrs, operands[0].dtype) else ()


for _type in (
    "erf", "erf_grad", "gelu", "gelu_grad", "leaky_relu_grad", "logsigmoid", "logsigmoid_grad", "relu_grad", "rsqrt",
    "rsqrt_grad", "sigmoid", "sigmoid_cross_entropy_with_logits", "sigmoid_cross_entropy_with_logits_grad",
    "sigmoid_grad", "softplus", "softplus_grad", "softsign", "softsign_grad", "sqrt_grad", "square_grad", "swish",
    "swish_grad", "tanh_grad",
):  # fmt: skip
    specialize(_type, jit=True)(_offer_one(_type))
    native_loop(_type)(_record_one(_type))


_SOURCES: dict[Any, str] = {}
"""Sources of loops, by the calls and by the dimensions of their operands."""


class _Nest:
    """A nest of loops over the dimensions of a layout.

    Attributes
    ----------
    source : str
        A function ``fused`` of the operands and then the results.
    results : list of str
    shapes : list of tuple of int
        Shapes of the operands and results.
    """

    def __init__(self, layout: BroadcastLayout, steps: tuple[str, ...]) -> None:
        self.layout = layout
        self.results = [f"y{i}" for i in range(RESULTS) if any(f"y{i}" in call.writes for call in layout.calls)]
        # The dimensions along which an operand is not broadcast.
        self.own = {
            view: [i for i, size in enumerate(layout.flat) if shape[i] == size]
            for view, (_, shape) in layout.views.items()
        }
        self.shapes = [tuple(layout.flat[i] for i in own) or (1,) for own in self.own.values()]
        self.shapes += [layout.flat] * len(self.results)
        # The lines name dimensions, not sizes; the names of the operands tell those of the calls.
        key = steps, *[(view, *own) for view, own in self.own.items()], len(layout.flat)
        source = _SOURCES.get(key)
        if source is None:
            source = _SOURCES[key] = "\n".join(self._lines()) + "\n"
        self.source = source

    def _lines(self) -> list[str]:
        segments = _segments(self.layout.calls)
        if len(self.layout.flat) == 1 and len(segments) > 1:
            return self._strips(segments)
        rank = len(self.layout.flat)
        lines = ["", "", f"def fused({', '.join([*self.own, *(f'all_{y}' for y in self.results)])}):"]
        for level in range(rank + 1):
            indent = "    " * (level + 1)
            for view, own in self.own.items():
                if (own[-1] + 1 if own else 0) == level:
                    index = ", ".join(f"i{i}" for i in own) or "0"
                    lines.append(f"{indent}one_{view} = {view}[{index}]")
            if level < rank:
                lines.append(f"{indent}for i{level} in range(all_{self.results[0]}.shape[{level}]):")
        values = {view: f"one_{view}" for view in self.own}
        lines += [f"{indent}{line}" for line in statements(self.layout.calls, values)]
        index = ", ".join(f"i{i}" for i in range(rank))
        return [*lines, *(f"{indent}all_{y}[{index}] = {y}" for y in self.results)]

    def _strips(self, segments: Sequence[Sequence[FusedCall]]) -> list[str]:
        """Code with a loop for each segment over one strip of the vectors after another.

        A loop with one long formula overlaps the formulas of several elements, which a loop with many cannot.
        """
        kept = _read_elsewhere(segments)
        rooms = [name for name in dict.fromkeys(kept) if name not in self.results]
        vectors = [*(view for view, own in self.own.items() if own), *(f"all_{y}" for y in self.results)]
        lines = ["", "", f"def fused({', '.join([*self.own, *(f'all_{y}' for y in self.results)])}):"]
        lines += [f"    one_{view} = {view}[0]" for view, own in self.own.items() if not own]
        lines += [f"    room_{name} = np.empty({_STRIP}, T)" for name in rooms]
        lines.append(f"    for start in range(0, all_{self.results[0]}.size, {_STRIP}):")
        lines.append(f"        end = min(start + {_STRIP}, all_{self.results[0]}.size)")
        lines += [f"        part_{name} = {name}[start:end]" for name in vectors]
        lines += [f"        part_{name} = room_{name}[:end - start]" for name in rooms]
        for segment in segments:
            values = {view: f"one_{view}" for view in self.own}
            written_here = [name for call in segment for name in call.writes]
            read = dict.fromkeys(name for call in segment for name in call.reads if name not in written_here)
            lines.append("        for i in range(end - start):")
            for name in read:
                if self.own.get(name, [0]):
                    source = f"all_{name}" if name in self.results else name
                    lines.append(f"            one_{name} = part_{source}[i]")
                values[name] = f"one_{name}"
            lines += [f"            {line}" for line in statements(segment, values)]
            lines += [f"            part_all_{name}[i] = {name}" for name in written_here if name in self.results]
            lines += [f"            part_{name}[i] = {name}" for name in written_here if name in rooms]
        return lines

    def quick(
        self, loop: Callable[..., Any], shapes: Sequence[Sequence[int]], careful: Callable[..., Any]
    ) -> Callable[..., Any]:
        """A function for one thread that calls `loop` with as little Python as possible.

        Arrays that the loop refuses, and results that overwrite operands, are left to `careful`.
        """
        inputs, layout = [f"x{i}" for i in range(len(shapes))], self.layout
        # Shapes have names, so that groups of all sizes share the code.
        names: dict[str, Any] = {"shape": layout.shape, "flat": layout.flat, "empty": np.empty, "dtype": layout.dtype}
        operands = []
        for number, ((name, _), shape) in enumerate(zip(layout.views.values(), self.shapes, strict=False)):
            names[f"shape_{number}"] = shape
            operands.append(name if tuple(shapes[int(name[1:])]) == shape else f"{name}.reshape(shape_{number})")
        results = [y if layout.flat == layout.shape else f"{y}.reshape(flat)" for y in self.results]
        lines = ["def run(xs, out=None):", f"    {', '.join(inputs)}, = xs", "    if out is None:"]
        lines += [f"        {y} = empty(shape, dtype)" for y in self.results]
        lines += ["    else:", f"        {', '.join(f'y{i}' for i in range(RESULTS))} = out"]
        for y in self.results:
            lines += [f"        if {y} is None:", f"            {y} = empty(shape, dtype)"]
            overlaps = " or ".join(f"{y} is {x}" for x in inputs)
            lines += [
                f"        elif not {y}.flags.c_contiguous or {overlaps}:",
                "            return careful(xs, out=out)",
            ]
        lines += ["    try:", f"        loop({', '.join([*operands, *results])})"]
        lines += ["    except TypeError:", "        return careful(xs, out=out)"]
        lines.append(f"    return {', '.join(f'y{i}' if f'y{i}' in self.results else 'None' for i in range(RESULTS))}")
        names |= {"loop": loop, "careful": careful}
        exec(_code("\n".join(lines)), names)
        run: Callable[..., Any] = names["run"]
        return run

    def signature(self, kind: str) -> str:
        return f"void({', '.join(kind + '[' + ':, ' * (rank - 1) + '::1]' for rank in self.ranks)})"

    @property
    def ranks(self) -> tuple[int, ...]:
        """Number of dimensions of each operand and result."""
        return tuple(map(len, self.shapes))

    def arrays(self, xs: Sequence[Any], made: Sequence[Any]) -> list[Any]:
        """The arguments of the function."""
        names = [int(name[1:]) for name, _ in self.layout.views.values()]
        operands = [xs[i].reshape(shape) for i, shape in zip(names, self.shapes, strict=False)]
        return [*operands, *(y.reshape(self.layout.flat) for y in made if y is not None)]

    def part(self, arrays: Sequence[Any], start: int, end: int) -> list[Any]:
        """`arrays` for a part of the outermost loop."""
        is_cut = [0 in own for own in self.own.values()] + [True] * len(self.results)
        return [array[start:end] if cut else array for array, cut in zip(arrays, is_cut, strict=True)]


@lru_cache(512)
def _code(source: str) -> CodeType:
    return compile(source, "<minigraph group>", "exec")


def statements(calls: Sequence[FusedCall], values: dict[str, str]) -> list[str]:
    """Assignments of the results of `calls`, which are added to `values`."""
    lines = []
    for call in calls:
        for name, formula in zip(call.outputs, written(call, values), strict=True):
            if name is not None:
                lines.append(f"{name} = {formula}")
        values.update({name: name for name in call.writes})
    return lines


def is_long(call: FusedCall) -> bool:
    """Whether the formula of a call has a function of many dependent instructions."""
    return bool(_LONG.search(" ".join(written(call, {name: name for name in call.reads}))))


@lru_cache(1024)
def _number_of_segments(steps: tuple[str, ...]) -> int:
    return len(_segments(parse_calls(steps)))


def _segments(calls: Sequence[FusedCall]) -> list[list[FusedCall]]:
    """`calls` in segments of a few, with at most one long formula each."""
    found: list[list[FusedCall]] = [[]]
    long = 0
    for call in calls:
        this = is_long(call)
        if long + this > 1 or len(found[-1]) == _MOST_IN_SEGMENT:
            found.append([])
            long = 0
        found[-1].append(call)
        long += this
    return found


def _read_elsewhere(segments: Sequence[Sequence[FusedCall]]) -> list[str]:
    """The results that a later segment reads."""
    made: list[str] = []
    kept: list[str] = []
    for segment in segments:
        kept += [name for call in segment for name in call.reads if name in made]
        made += [name for call in segment for name in call.writes]
    return kept
