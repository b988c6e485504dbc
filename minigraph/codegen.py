"""From steps to one Python function of straight-line kernel calls.

The generated source is registered with `linecache`, so tracebacks and debuggers show it. Its lines map back to steps,
and by these to operators and to the user's lines.
"""

from __future__ import annotations

import itertools
import linecache
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, TracebackType
from typing import Any, NamedTuple

from minigraph.kernels import find_specializer
from minigraph.lowering import Step, Steps, Value, attrs_for_kernel, wanted_outputs
from minigraph.memory import Layout
from minigraph.place import Place

_NUMBERS = itertools.count()


@dataclass(frozen=True, eq=False)
class Compiled:
    """A generated function ``(feeds, state, rng, buffers) -> (fetches, new state)`` and where its lines come from."""

    function: Callable[..., Any]
    source: str
    filename: str
    step_of_line: dict[int, Step]
    ticks: list[int] | None = None
    """When it was made to be timed: nanoseconds at which the latest run began and each of its steps ended."""

    def __del__(self) -> None:
        linecache.cache.pop(self.filename, None)

    def failing_step(self, traceback: TracebackType | None) -> Step | None:
        """The step at whose line an exception passed through the function."""
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self.filename:
                return self.step_of_line.get(traceback.tb_lineno)
            traceback = traceback.tb_next
        return None


class TypeOfArray(NamedTuple):
    """What a specializer sees of an array."""

    shape: tuple[int, ...]
    dtype: Any


def generate(
    steps: Steps, place: Place, layout: Layout | None = None, timed: bool = False, jit: bool = False
) -> Compiled:
    """Write and compile the function that runs `steps` on `place`, with values at their places in `layout`.

    If `timed`, it notes when each step ends. With `jit` it calls loops that numba compiles where they are offered.
    """
    return _Writer(steps, place, layout or Layout(), [] if timed else None, jit).compile()


class _Writer:
    def __init__(self, steps: Steps, place: Place, layout: Layout, ticks: list[int] | None, jit: bool) -> None:
        self.steps = steps
        self.jit = jit and place.kind == "cpu"
        self.layout = layout
        self.place = place
        self.ticks = ticks
        self.namespace: dict[str, Any] = {"xp": place.xp}
        self.lines: list[str] = []
        self.step_of_line: dict[int, Step] = {}
        self._locals: dict[int, str] = {}
        self._taken = dict.fromkeys(("feeds", "state", "rng", "buffers", "xp", "ticks", "now", "_"), 1)
        self._kernels: dict[int, str] = {}

    def compile(self) -> Compiled:
        filename = f"<minigraph plan {next(_NUMBERS)}>"
        source = self._source()
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        code: CodeType = compile(source, filename, "exec")
        exec(code, self.namespace)
        return Compiled(self.namespace["run"], source, filename, self.step_of_line, self.ticks)

    def _source(self) -> str:
        steps = self.steps
        self.lines = ["def run(feeds, state, rng, buffers):"]
        self._unpack(steps.feeds, "feeds")
        self._unpack(steps.state, "state")
        if self.layout.places:
            self._buffers = [self._unused(f"buffer_{i}") for i in range(len(self.layout.places))]
            self.lines.append(f"    {''.join(f'{name}, ' for name in self._buffers)} = buffers")
        if self.ticks is not None:
            self.namespace.update(ticks=self.ticks, now=self.place.now)
            self.lines.append("    ticks[:] = [now()]")
        for step, released in zip(steps.steps, steps.released, strict=True):
            # Numbered as linecache counts: the line about to be written.
            self.step_of_line[len(self.lines) + 1] = step
            self.lines.append(f"    {self._call(step)}")
            if released:
                self.lines.append(f"    del {', '.join(map(self._local, released))}")
            if self.ticks is not None:
                self.lines.append("    ticks.append(now())")
        fetches = "".join(f"{self._local(v)}, " for v in steps.fetches)
        new_state = "".join(f"{self._local(v)}, " for v in steps.new_state.values())
        self.lines.append(f"    return ({fetches}), ({new_state})")
        return "\n".join(self.lines) + "\n"

    def _unpack(self, values: list[Value], source: str) -> None:
        if values:
            self.lines.append(f"    {''.join(f'{self._local(v)}, ' for v in values)} = {source}")

    def _local(self, value: Value | None) -> str:
        if value is None:
            return "None"
        name = self._locals.get(id(value))
        if name is None:
            # An underscore in front keeps clear of kernels, keywords and builtins.
            name = self._locals[id(value)] = self._unused("_" + re.sub(r"\W", "_", value.name))
        return name

    def _unused(self, name: str) -> str:
        while name in self._taken:
            self._taken[name] += 1
            name = f"{name}__{self._taken[name]}"
        self._taken[name] = 1
        return name

    def _call(self, step: Step) -> str:
        values = [
            "[" + ", ".join(map(self._local, entry)) + "]" if isinstance(entry, list) else self._local(entry)
            for entry in step.inputs
        ]
        special = self._specialized(step)
        if special is not None:
            call = f"{special}({', '.join([*values, *self._out(step)])})"
        else:
            call = f"{self._kernel(step)}({', '.join(['xp', *values, *self._keywords(step)])})"
        return f"{self._targets(step)} = {call}"

    def _targets(self, step: Step) -> str:
        if len(step.outputs) == 1 and not step.op.definition.outputs[0].duplicable:
            return self._local(step.outputs[0][0]) if step.outputs[0] else "_"
        slots = []
        for slot, values in zip(step.op.definition.outputs, step.outputs, strict=True):
            if slot.duplicable and values:
                slots.append(f"[{', '.join('_' if v is None else self._local(v) for v in values)}]")
            else:
                slots.append(self._local(values[0]) if values and values[0] is not None else "_")
        return ", ".join(slots) if len(slots) > 1 else slots[0]

    def _keywords(self, step: Step) -> list[str]:
        words = [f"{name}={self._literal(value)}" for name, value in attrs_for_kernel(step.op, step.kernel).items()]
        if step.kernel.takes_wanted:
            words.append(f"wanted={wanted_outputs(step.op)!r}")
        if step.kernel.takes_rng:
            words.append("rng=rng")
        return [*words, *self._out(step)]

    def _out(self, step: Step) -> list[str]:
        """The arrays that the kernel is to write to, as a keyword; nothing if it may choose."""
        if step.in_place:
            outs = [self._local(v.storage) for v in step.values_written()]
            return [f"out={outs[0] if len(outs) == 1 else '(' + ', '.join(outs) + ')'}"]
        places = [self.layout.place_of.get(id(slot[0])) if slot else None for slot in step.outputs]
        if all(place is None for place in places):
            return []
        outs = ["None" if place is None else self._buffers[place] for place in places]
        return [f"out={outs[0] if len(outs) == 1 else '(' + ', '.join(outs) + ')'}"]

    def _kernel(self, step: Step) -> str:
        function = step.kernel.function
        name = self._kernels.get(id(function))
        if name is None:
            name = self._kernels[id(function)] = self._unused(step.op.type)
            self.namespace[name] = function
        return name

    def _specialized(self, step: Step) -> str | None:
        """A quicker function for these shapes, if the operator has one."""
        found = [("jit", find_specializer(step.op.type, jit=True))] if self.jit else []
        if not step.in_place:
            found.append(("fast", find_specializer(step.op.type)))
        offers = [(kind, offer) for kind, offer in found if offer is not None]
        if not offers:
            return None
        arguments = [
            None if v is None else [_type_of(each) for each in v if each] if isinstance(v, list) else _type_of(v)
            for v in step.inputs
        ]
        if not all(v.has_known_size for v in (*step.values_read(), *step.values_written())):
            return None
        keywords = attrs_for_kernel(step.op, step.kernel)
        if step.kernel.takes_wanted:
            keywords["wanted"] = wanted_outputs(step.op)
        for kind, offer in offers:
            function = offer(self.place.xp, *arguments, **keywords)
            if function is not None:
                name = self._kernels.get(id(function))
                if name is None:
                    name = self._kernels[id(function)] = self._unused(f"{kind}_{step.op.type}")
                    self.namespace[name] = function
                return name
        return None

    def _literal(self, value: Any) -> str:
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if isinstance(value, tuple):
            return f"({''.join(f'{self._literal(v)}, ' for v in value)})"
        return repr(value)


def _type_of(value: Value) -> TypeOfArray:
    return TypeOfArray(value.tensor_type.shape, value.tensor_type.dtype.numpy)
