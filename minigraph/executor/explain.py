"""Explain a run without running it: stages of lowering, steps, memory, source and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minigraph.executor.plan import Plan, lower
from minigraph.ir import Program
from minigraph.ir.text.diff import Difference, diff
from minigraph.lowering.costs import Cost, cost, size_in_bytes
from minigraph.lowering.liveness import Lifetimes
from minigraph.lowering.memory_plan import BufferPlan
from minigraph.lowering.steps import Step, Steps, Value
from minigraph.passes.base import Pass, Pipeline
from minigraph.runtime.place import Place
from minigraph.types import TensorType


@dataclass(frozen=True, eq=False)
class Stage:
    """The private program after one stage of lowering.

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
    difference: Difference

    def __str__(self) -> str:
        return f"After {self.name}\n{self.difference or 'no change'}"

    def html(self) -> str:
        """The difference below the name."""
        from minigraph.support.html import code, details

        heading = f"After {self.name}: {self.difference.counts()}"
        return (
            details(heading, code(self.difference.html_lines(), heading))
            if self.difference
            else f"<div>{heading}</div>"
        )


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Values that are alive at the step that needs the most memory.

    A view and its source count once, and so do new state and the state that it is written over. A kernel that returns
    its argument needs less than is counted here, and a kernel that allocates temporaries needs more.

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
        lines = [self.heading()]
        lines += [f"  {size:>14,}  {name}" for name, size in self.alive]
        if self.unknown:
            lines.append(f"  with a shape that depends on data: {', '.join(self.unknown)}")
        return "\n".join(lines)

    def heading(self) -> str:
        """The peak, in words."""
        where = f" at step {self.at}" if self.at is not None else ""
        return f"Memory: {self.peak:,} bytes at the peak{where}"


@dataclass(frozen=True, eq=False)
class RunExplanation:
    """Result of `Executor.explain`; prints as text, and in a notebook unfolds.

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
        """Estimated arithmetic operations of one run."""
        return sum(each.flops for each in self.costs)

    @property
    def bytes(self) -> int:
        """Estimated bytes that one run moves."""
        return sum(each.bytes for each in self.costs)

    def __str__(self) -> str:
        first, *others = self.stages
        parts = [f"After {first.name}\n{first.program}", *map(str, others)]
        parts += [_steps_text(self.steps, self.costs), str(self.memory), f"Source\n{self.source}"]
        return "\n\n".join(part.rstrip() for part in parts)

    def _repr_html_(self) -> str:
        from html import escape

        from minigraph.ir.text.html import program_details
        from minigraph.support.html import code, details, in_notebook, table, words_table

        first, *others = self.stages
        heads = ["step", "kernel", "flops", "bytes moved", "results"]
        rows = [
            [str(number), each.op_type, f"{each.flops:,}", f"{each.bytes:,}", _results(step)]
            for number, (step, each) in enumerate(zip(self.steps, self.costs, strict=True))
        ]
        alive = [[name, f"{size:,}"] for name, size in self.memory.alive]
        parts = [
            program_details(f"After {first.name}", first.program.blocks, is_open=False),
            *(stage.html() for stage in others),
            details(f"Steps: {_total(self.costs)}", words_table(heads, rows)),
            details(self.memory.heading(), table("", ["alive", "bytes"], alive)),
            details("Source", code(escape(self.source), "Source")),
        ]
        return in_notebook(f"A run of {len(self.steps)} steps", "".join(parts))


def _total(costs: Sequence[Cost]) -> str:
    flops, moved = sum(c.flops for c in costs), sum(c.bytes for c in costs)
    return f"{len(costs)}, {flops:,} flops, {moved:,} bytes moved, estimated"


def _results(step: Step) -> str:
    return ", ".join(f"{value.name}: {value.tensor_type}" for value in step.writes)


def _steps_text(steps: Sequence[Step], costs: Sequence[Cost]) -> str:
    lines = [f"Steps: {_total(costs)}"]
    for number, (step, each) in enumerate(zip(steps, costs, strict=True)):
        note = "; over the old value" if step.in_place else ""
        lines.append(f"  {number:>4}  {_results(step)} = {each}{note}")
    return "\n".join(lines)


def explain_run(
    program: Program,
    feed_types: dict[str, TensorType],
    fetch_names: Sequence[str],
    place: Place,
    passes: Pipeline,
    jit: bool = False,
) -> RunExplanation:
    """Lower `program` and keep the result of each stage; see `minigraph.executor.executor.Executor.explain`."""
    stages: list[Stage] = []

    def watch(name: str, stage: Program) -> None:
        twin = stage.clone()
        stages.append(Stage(name, twin, diff(stages[-1].program, twin) if stages else Difference()))

    def hook(each: Pass, stage: Program, changed: bool) -> None:
        if passes.hook is not None:
            passes.hook(each, stage, changed)
        watch(each.name, stage)

    plan: Plan = lower(program, feed_types, fetch_names, place, replace(passes, hook=hook), watch, jit)
    costs = tuple(map(cost, plan.steps.steps))
    memory = memory_plan(plan.steps, plan.buffers)
    return RunExplanation(tuple(stages), tuple(plan.steps.steps), memory, plan.compiled.listing(), costs)


def memory_plan(steps: Steps, buffers: BufferPlan) -> MemoryPlan:
    """Find the values that are alive at the step where they need the most memory together."""
    lifetimes = Lifetimes(steps, buffers.flat, buffers.liveness)
    peak, at = lifetimes.peak()
    alive = list(lifetimes.at(at))
    listed = sorted(((value.name, size_in_bytes(value)) for value in alive), key=lambda pair: -pair[1])
    unknown = tuple(v.name for v in alive if isinstance(v, Value) and not v.has_known_size)
    return MemoryPlan(peak, at if at >= 0 else None, tuple(listed), unknown)
