"""From steps to one Python function of straight-line kernel calls.

The generated source is registered with `linecache`, so tracebacks and debuggers show it. Its lines map back to steps,
and by these to operators and to the user's lines.
"""

from __future__ import annotations

import itertools
import linecache
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import CodeType, TracebackType
from typing import Any, NamedTuple

from minigraph.inference import blame
from minigraph.kernels import find_specializer
from minigraph.lowering import Joined, Step, Steps, Value, attrs_for_kernel, wanted_outputs
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
    state: list[Value | Joined]
    """What the function takes as its state, in order."""
    replaces: list[str]
    """Names of the new state that it returns."""
    ticks: list[int] | None = None
    """When it was made to be timed: nanoseconds at which the latest run began and each of its steps ended."""
    bodies: Sequence[tuple[Step, Compiled]] = ()
    """The functions of sub-blocks, each with the step that calls it."""

    def listing(self) -> str:
        """The source, and behind it that of the sub-blocks."""
        parts = [
            f"# block {step.call.body.idx}, of {step.op.type}\n{body.listing()}"
            for step, body in self.bodies
            if step.call is not None
        ]
        return "\n".join([self.source, *parts])

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
        self.replaced = steps.replaced_state
        self._locals: dict[int, str] = {}
        self._state: dict[int, Value | Joined] = {}
        self._written_over = {id(v) for step in steps.steps if step.in_place for v in step.values_written()}
        """New values in the memory of old ones, which they share a local variable with."""
        self._made_free = {id(v) for step in steps.steps if step.is_free for v in step.values_written()}
        self._copied = {id(value) for values in steps.copied.values() for value in values}
        self._taken = dict.fromkeys(("feeds", "state", "rng", "buffers", "xp", "ticks", "now", "_"), 1)
        self._kernels: dict[int, str] = {}
        self.bodies: list[tuple[Step, Compiled]] = []

    def compile(self) -> Compiled:
        filename = f"<minigraph plan {next(_NUMBERS)}>"
        source = self._source()
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        code: CodeType = compile(source, filename, "exec")
        exec(code, self.namespace)
        run = self.namespace["run"]
        return Compiled(
            run, source, filename, self.step_of_line, list(self._state.values()), list(self.replaced), self.ticks,
            self.bodies,
        )  # fmt: skip

    def _source(self) -> str:
        self._buffers = [self._unused(f"buffer_{i}") for i in range(len(self.layout.places))]
        body = self._body()
        head = ["def run(feeds, state, rng, buffers):"]
        head += _unpack([self._local(v) for v in self.steps.feeds], "feeds")
        head += _unpack([self._local(v) for v in self._state.values()], "state")
        head += _unpack(self._buffers, "buffers")
        if self.ticks is not None:
            self.namespace.update(ticks=self.ticks, now=self.place.now)
            head.append("    ticks[:] = [now()]")
        # Numbered as linecache counts.
        self.step_of_line = {len(head) + line: step for line, step in self.step_of_line.items()}
        return "\n".join([*head, *body]) + "\n"

    def _body(self) -> list[str]:
        steps, lines = self.steps, self.lines
        for number, (step, released) in enumerate(zip(steps.steps, steps.released, strict=True)):
            for value in steps.copied.get(number, ()):
                self.step_of_line[len(lines) + 1] = step
                lines.append(f"    {self._buffers[self.layout.place_of[id(value)]]}[...] = {self._local(value)}")
            if not step.is_free:
                self.step_of_line[len(lines) + 1] = step
                lines.append(f"    {self._call(step)}")
            gone = [self._local(value) for value in released if id(value) in self._locals]
            if gone:
                lines.append(f"    del {', '.join(gone)}")
            if self.ticks is not None:
                lines.append("    ticks.append(now())")
        fetches = "".join(f"{self._local(v)}, " for v in steps.fetches)
        new_state = "".join(f"{self._local(v)}, " for v in self.replaced.values())
        lines.append(f"    return ({fetches}), ({new_state})")
        return lines

    def _local(self, value: Value | Joined | None) -> str:
        if value is None:
            return "None"
        if isinstance(value, Value) and id(value) in self._written_over:
            assert value.storage is not None
            return self._local(value.storage)
        if (isinstance(value, Joined) or id(value) in self._made_free) and id(value) in self.layout.place_of:
            return self._buffers[self.layout.place_of[id(value)]]
        name = self._locals.get(id(value))
        if name is None:
            if isinstance(value, Joined) or value.origin == "state":
                self._state[id(value)] = value
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
        entries = [step.joined.get(i, entry) for i, entry in enumerate(step.inputs)]
        values = [self._list(entry) if isinstance(entry, list) else self._local(entry) for entry in entries]
        special = self._specialized(step)
        if special is not None:
            call = f"{special}({', '.join([*values, *self._out(step)])})"
        else:
            call = f"{self._kernel(step)}({', '.join(['xp', *values, *self._keywords(step)])})"
        return call if step.in_place else f"{self._targets(step)} = {call}"

    def _list(self, values: Sequence[Value | Joined | None]) -> str:
        return f"[{', '.join(map(self._local, values))}]"

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
            outs = [self._written_to(step, i) for i, values in enumerate(step.outputs) if values]
        else:
            places = [None if not slot or slot[0] is None else self._place(slot[0]) for slot in step.outputs]
            if all(place is None for place in places):
                return []
            outs = ["None" if place is None else self._buffers[place] for place in places]
        return [f"out={outs[0] if len(outs) == 1 else '(' + ', '.join(outs) + ')'}"]

    def _place(self, value: Value) -> int | None:
        """The number of the place that a kernel is to write `value` to."""
        return None if id(value) in self._copied else self.layout.place_of.get(id(value))

    def _written_to(self, step: Step, slot: int) -> str:
        """The state that an output takes over: an array, a list of them, or one vector in a list."""
        if step.targets is not None:
            return self._list([step.targets[slot]])
        storage = [value.storage for value in step.outputs[slot] if value is not None]
        return self._list(storage) if step.op.definition.outputs[slot].duplicable else self._local(storage[0])

    def _calling(self, step: Step) -> Callable[..., Any]:
        """The kernel of an operator of control flow, with its sub-block compiled."""
        assert step.body is not None
        body = generate(step.body, self.place, jit=self.jit)
        self.bodies.append((step, body))
        return bind_body(step, body)

    def _kernel(self, step: Step) -> str:
        function = step.kernel.function if step.call is None else self._calling(step)
        name = self._kernels.get(id(function))
        if name is None:
            name = step.op.type if step.call is None else f"run_{step.op.type}"  # `while` is a keyword
            name = self._kernels[id(function)] = self._unused(name)
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


def _unpack(names: Sequence[str], source: str) -> list[str]:
    return [f"    {''.join(f'{name}, ' for name in names)} = {source}"] if names else []


def bind_body(step: Step, compiled: Compiled) -> Callable[..., Any]:
    """The kernel of an operator of control flow from the function of its sub-block."""
    call, steps = step.call, step.body
    assert call is not None and steps is not None
    shared = fetches_to_copy(steps, call.private)

    def kernel(xp: Any, values: Any, *, rng: Any) -> list[Any]:
        def body(given: Sequence[Any]) -> Sequence[Any]:
            try:
                taken, _ = compiled.function(given, (), rng, ())
            except Exception as error:
                raise _blame(compiled, error) from error
            return [value.copy() if copy else value for value, copy in zip(taken, shared, strict=True)]

        return _distinct(call.run(body, values, xp))

    return kernel


def fetches_to_copy(steps: Steps, private: Collection[str]) -> list[bool]:
    """Which fetches may share memory with a feed that is not private."""
    shared = {id(value) for value in steps.feeds if value.name not in private}
    return [id(value.root) in shared for value in steps.fetches]


def _distinct(values: list[Any]) -> list[Any]:
    """Copies of the arrays whose memory one before them has."""
    seen: set[int] = set()
    for i, value in enumerate(values):
        if hasattr(value, "base"):
            root = id(value if value.base is None else value.base)
            if root in seen:
                values[i] = value.copy()
            seen.add(root)
    return values


def _blame(compiled: Compiled, error: Exception) -> Exception:
    """The error with the operator of the sub-block that it is about."""
    step = compiled.failing_step(error.__traceback__)
    return error if step is None else blame(error, step.op)


def _type_of(value: Value) -> TypeOfArray:
    return TypeOfArray(value.tensor_type.shape, value.tensor_type.dtype.numpy)
