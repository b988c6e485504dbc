"""What an executor would make of a program: stages of lowering, steps, memory, source and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minigraph.arenas import is_state
from minigraph.costs import VIEWS, Cost, cost, size_in_bytes
from minigraph.executor import Plan, lower
from minigraph.ir import Program
from minigraph.lowering import Joined, Step, Steps, Value
from minigraph.passes.base import Pass, Pipeline
from minigraph.place import Place
from minigraph.text import diff
from minigraph.types import TensorType, product


@dataclass(frozen=True, eq=False)
class Stage:
    """The private program behind one stage of lowering.

    Attributes
    ----------
    name : str
        ``prune``, ``concretize`` or the name of a pass.
    program : Program
    difference : str
        From the stage before, as by `minigraph.diff`; empty for the first stage, or if nothing changed.
    """

    name: str
    program: Program
    difference: str

    def __str__(self) -> str:
        return f"After {self.name}\n{self.difference or 'no change'}"


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """What is alive at the step that needs the most memory.

    A view and the state that an update writes over are counted once. A kernel that returns an argument as it is needs
    less than is counted here, one that makes temporaries needs more.

    Attributes
    ----------
    peak : int
        Bytes alive while the step `at` runs: feeds, state, what it reads and writes, and what later steps read.
    at : int or None
        Number of the step; None if there are none.
    alive : tuple of (str, int)
        Names and bytes, the largest first.
    unknown : tuple of str
        Names of values whose shape depends on data, and which are counted with 1 for each unknown dimension.
    """

    peak: int
    at: int | None
    alive: tuple[tuple[str, int], ...]
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        where = f" at step {self.at}" if self.at is not None else ""
        lines = [f"Memory: {self.peak:,} bytes at the peak{where}"]
        lines += [f"  {size:>14,}  {name}" for name, size in self.alive]
        if self.unknown:
            lines.append(f"  with a shape that depends on data: {', '.join(self.unknown)}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class RunExplanation:
    """What `Executor.explain` found; prints as text.

    Attributes
    ----------
    stages : tuple of Stage
        In the order of lowering.
    steps : tuple of Step
        Kernel calls in the order in which they run.
    memory : MemoryPlan
    source : str
        The Python function that runs.
    costs : tuple of Cost
        For each step.
    """

    stages: tuple[Stage, ...]
    steps: tuple[Step, ...]
    memory: MemoryPlan
    source: str
    costs: tuple[Cost, ...]

    @property
    def flops(self) -> int:
        """Of one run, estimated."""
        return sum(each.flops for each in self.costs)

    @property
    def bytes(self) -> int:
        """Moved by one run, estimated."""
        return sum(each.bytes for each in self.costs)

    def __str__(self) -> str:
        first, *others = self.stages
        parts = [f"After {first.name}\n{first.program}", *map(str, others)]
        parts += [_steps_text(self.steps, self.costs), str(self.memory), f"Source\n{self.source}"]
        return "\n\n".join(part.rstrip() for part in parts)


def _steps_text(steps: Sequence[Step], costs: Sequence[Cost]) -> str:
    total = f"{sum(c.flops for c in costs):,} flops, {sum(c.bytes for c in costs):,} bytes moved, estimated"
    lines = [f"Steps: {len(steps)}, {total}"]
    for number, (step, each) in enumerate(zip(steps, costs, strict=True)):
        written = ", ".join(f"{value.name}: {value.tensor_type}" for value in step.values_written())
        note = "; over the old value" if step.in_place else ""
        lines.append(f"  {number:>4}  {written} = {each}{note}")
    return "\n".join(lines)


def explain_run(
    program: Program,
    feed_types: dict[str, TensorType],
    fetch_names: Sequence[str],
    place: Place,
    passes: Pipeline,
    jit: bool = False,
) -> RunExplanation:
    """Lower `program` and keep what each stage made of it; see `minigraph.executor.Executor.explain`."""
    stages: list[Stage] = []

    def watch(name: str, stage: Program) -> None:
        twin = stage.clone()
        stages.append(Stage(name, twin, diff(stages[-1].program, twin) if stages else ""))

    def hook(each: Pass, stage: Program, changed: bool) -> None:
        if passes.hook is not None:
            passes.hook(each, stage, changed)
        watch(each.name, stage)

    plan: Plan = lower(program, feed_types, fetch_names, place, replace(passes, hook=hook), watch, jit)
    costs = tuple(map(cost, plan.steps.steps))
    return RunExplanation(
        tuple(stages), tuple(plan.steps.steps), memory_plan(plan.steps), plan.compiled.listing(), costs
    )


def memory_plan(steps: Steps) -> MemoryPlan:
    """Which values are alive at the step where they need the most memory together."""
    arenas = _arenas(steps)
    owners = _owners(steps, arenas)
    last_use = _last_uses(steps, owners, arenas)
    alive: dict[int, Value | Joined] = {id(value): value for value in (*steps.feeds, *steps.state)}
    size = sum(map(size_in_bytes, alive.values()))
    peak, at, at_peak = size, None, list(alive.values())
    for number, step in enumerate(steps.steps):
        copied = [arenas[id(value)] for value in steps.copied.get(number, ())]
        for owner in (*copied, *(owners[id(value)] for value in step.values_written())):
            if id(owner) not in alive:
                alive[id(owner)] = owner
                size += size_in_bytes(owner)
        if size > peak:
            peak, at, at_peak = size, number, list(alive.values())
        for value in [value for key, value in alive.items() if last_use.get(key) == number]:
            del alive[id(value)]
            size -= size_in_bytes(value)
    listed = sorted(((value.name, size_in_bytes(value)) for value in at_peak), key=lambda pair: -pair[1])
    unknown = tuple(v.name for v in at_peak if isinstance(v, Value) and not v.has_known_size)
    return MemoryPlan(peak, at, tuple(listed), unknown)


def _arenas(steps: Steps) -> dict[int, Joined]:
    """By identity of each value that lies in an arena of temporaries, or covers one, the whole arena."""
    found: dict[int, Joined] = {}
    for arena in steps.arenas:
        if not is_state(arena):
            size = sum(product(value.tensor_type.shape) for value in arena)
            whole = Joined(
                f"{arena[0].name} and {len(arena) - 1} more", TensorType(arena[0].tensor_type.dtype, (size,)), arena
            )
            found.update({id(value): whole for value in arena})
    return found | {id(whole): found[id(parts[0])] for whole, parts in steps.covers}


def _owners(steps: Steps, arenas: dict[int, Joined]) -> dict[int, Value | Joined]:
    """By identity of each value what surely has its memory: itself, unless it is a view, an update or in an arena."""
    copied = {id(value) for values in steps.copied.values() for value in values}
    owners: dict[int, Value | Joined] = {id(value): value for value in (*steps.feeds, *steps.state)}
    for step in steps.steps:
        shares = step.in_place or step.op.type in VIEWS
        for value in step.values_written():
            if id(value) in arenas and id(value) not in copied:
                owners[id(value)] = arenas[id(value)]
            else:
                owners[id(value)] = owners[id(value.storage)] if shares and value.storage is not None else value
    return owners


def _last_uses(steps: Steps, owners: dict[int, Value | Joined], arenas: dict[int, Joined]) -> dict[int, int]:
    """By identity of an owner, the number of the step behind which nothing needs its memory; what stays is left out."""
    last: dict[int, int] = {}
    for number, released in enumerate(steps.released):
        for value in released:
            last[id(owners[id(value)])] = number
            if id(value) in arenas:
                last[id(arenas[id(value)])] = number
    for value in (*steps.feeds, *steps.state, *steps.fetches, *steps.new_state.values()):
        last.pop(id(owners[id(value)]), None)  # the caller's, the scope's
    return last
