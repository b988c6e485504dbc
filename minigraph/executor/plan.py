"""Lower a program to a plan: the stages, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from minigraph.executor import profiler
from minigraph.executor.state_binding import Binding
from minigraph.ir import Operator, Program
from minigraph.ir.verifier import verify_rewritten
from minigraph.lowering.buffer_pool import BufferPool
from minigraph.lowering.codegen import Compiled, Origin, generate
from minigraph.lowering.flat_buffers import flat_buffers_like, form_flat_buffers
from minigraph.lowering.lengths import CarriedLevels, carry_lengths, has_lengths
from minigraph.lowering.memory_plan import BufferPlan, plan_buffers
from minigraph.lowering.output_buffers import plan_outputs
from minigraph.lowering.prune import prune
from minigraph.lowering.resized import Resized
from minigraph.lowering.rewritten import Rewritten, rewrite
from minigraph.lowering.steps import Step, Steps, concretize, to_steps
from minigraph.passes import LOWERING, FuseGlobalNorm, events
from minigraph.passes.base import Pass, Pipeline
from minigraph.passes.rules.rule import is_own
from minigraph.runtime.place import Place
from minigraph.support.gc_pause import without_collector
from minigraph.support.undo import unnoted
from minigraph.types import TensorType, product

Watch = Callable[[str, Program], None]
"""Sees the name of a stage and the program after it."""


@dataclass(frozen=True, eq=False)
class Source:
    """The rewritten program that a plan is made of.

    Attributes
    ----------
    rewritten : Rewritten or None
        The program before its sizes became numbers; None if it holds for one feed alone.
    types : sequence of TensorType
        Types in the place of those with open sizes, see `Rewritten`.
    own : Program or None
        The program with these types; None if it was not needed, because the plan has the steps of another one.
    """

    rewritten: Rewritten | None
    types: Sequence[TensorType]
    own: Program | None

    @cached_property
    def program(self) -> Program:
        if self.own is not None:
            return self.own
        assert self.rewritten is not None
        return self.rewritten.program_of(self.types)

    def op_of(self, step: Step) -> Operator:
        """The operator of a step in `program`, with the types of this plan."""
        block = step.op.block
        if self.own is not None or step.op not in block.ops:  # an operator of control flow has a stand-in
            return step.op
        return self.program.blocks[block.idx].ops[block.ops.index(step.op)]


@dataclass(frozen=True, eq=False)
class Plan:
    """A program lowered for one feed signature, one list of fetches and one place."""

    source: Source
    """The program after all rewrites."""
    steps: Steps
    buffers: BufferPlan
    compiled: Compiled
    binding: Binding
    must_copy: tuple[bool, ...]
    """Whether a fetch may share memory with something that outlives the run, for each fetch."""
    state_must_copy: tuple[bool, ...]
    written_over: tuple[str, ...]
    """Names of the state that a run updates in place."""
    draws: bool
    """Whether a run draws random numbers from the executor's generator."""
    levels: tuple[int, ...]
    """Number of levels of each fetch, whose lengths are fetched after all others; empty if none has any."""
    kept_levels: tuple[tuple[str, int], ...]
    """Persistable variables that get lengths, and their number of levels, which are fetched last."""
    origin: Origin | None
    """The parts that plans for other sizes share; None if those have to be made from nothing."""

    @cached_property
    def numbers(self) -> Sequence[int]:
        """Positions of the fetches that may have one element."""
        fetches = enumerate(self.steps.fetches[: len(self.steps.fetches) - self.kept_count])
        return [i for i, value in fetches if not value.has_known_size or product(value.tensor_type.shape) == 1]

    @cached_property
    def copies_fetches(self) -> bool:
        """Whether any fetch may have to be copied."""
        return any(self.must_copy)

    @cached_property
    def kept_count(self) -> int:
        """Number of fetches, the last ones, that are lengths of persistable variables."""
        return sum(count for _, count in self.kept_levels)

    @property
    def program(self) -> Program:
        """The executor's private copy after all rewrites."""
        return self.source.program


@unnoted
@without_collector
def lower(
    program: Program,
    feed_types: dict[str, TensorType],
    fetch_names: Sequence[str],
    place: Place,
    passes: Pipeline = LOWERING,
    watch: Watch | None = None,
    jit: bool = False,
    blocks: BufferPool | None = None,
    check: bool = False,
    like: Plan | None = None,
) -> Plan:
    """Prune, make shapes concrete, rewrite, schedule and compile `program`.

    Parameters
    ----------
    jit : bool
        Compile loops with numba where that is worth it.
    blocks : BufferPool, optional
        Memory for the runs of sub-blocks.
    check : bool
        Make a plan whose runs are checked, see `minigraph.executor.checking`.
    like : Plan, optional
        A plan for another feed of the program; if its sizes lead to the same rewritten program, that is used again.
    watch : callable, optional
        Sees the name of each stage before the passes, and the program after it; the passes have their own hook.

    Raises
    ------
    MinigraphError
        If the program cannot run with these feeds and fetches; the errors of the stages say why.
    """
    if place.kind != "cpu":
        passes = replace(passes, passes=tuple(each for each in passes if not each.for_processors))
    is_watched = watch is not None or passes.hook is not None or bool(events.observers)
    levels = CarriedLevels()
    if is_watched or not all(map(is_own, passes)) or has_lengths(program, feed_types):
        private, levels = _rewritten_for(program, feed_types, fetch_names, passes, not is_watched, watch)
        source = Source(None, (), private)
    else:
        source = _source(program, feed_types, fetch_names, passes, like)
    # Checks, and what looks at plans for a GPU, read the types of the operators themselves.
    is_plain = not check and place.kind == "cpu"
    earlier = _resized(like, source, feed_types) if is_plain and like is not None else None
    before = None
    origin: Origin | None
    if earlier is None:
        source = replace(source, own=source.program)
        steps = to_steps(source.program, list(feed_types), [*fetch_names, *levels.names], place.kind)
        flat = form_flat_buffers(steps)
    else:
        origin, resized = earlier
        steps, flat = resized.steps, flat_buffers_like(origin.buffers.flat, resized)
        before = (origin.buffers, resized)
        if flat is not origin.buffers.flat:
            before = earlier = None
    buffers = plan_buffers(steps, flat, plan_outputs(steps, flat, place, jit), before)
    kind = Compiled
    if check:
        from minigraph.executor.checking import Checked as kind  # what few runs need is not imported by all
    compiled = generate(steps, buffers, place, profiler.is_active(place), jit, blocks, kind, earlier)
    if source.own is not None:
        is_plain &= source.rewritten is not None and source.rewritten.is_flat
        origin = compiled.origin(source.types) if is_plain else None
    written_over = tuple(name for name in steps.new_state if name not in steps.replaced_state)
    binding = Binding(steps, flat, compiled.state, buffers.outputs.to_scope, place)
    counts = tuple(map(len, levels.fetched)) if any(levels.fetched) else ()
    kept = tuple((name, len(names)) for name, names in levels.kept.items())
    return Plan(
        source, steps, buffers, compiled, binding, *_copies(steps, buffers), written_over, _draws(steps), counts, kept,
        origin,
    )  # fmt: skip


def _source(
    program: Program, feed_types: dict[str, TensorType], fetch_names: Sequence[str], passes: Pipeline, like: Plan | None
) -> Source:
    """The rewritten program of `like`, if the sizes of this feed make no difference; else that of `program`."""
    found = None if like is None else like.source.rewritten
    types = None if found is None else found.types_for(feed_types)
    if types is not None:
        return Source(found, types, None)
    # `prune` does not even copy the operators that this pass removes: that saves a sixth of the first run of a clip.
    fuse_norms = FuseGlobalNorm() in passes
    found = rewrite(program, feed_types, fetch_names, passes, fuse_norms)
    if found is not None:
        return Source(found, found.types, found.program)
    return Source(None, (), _rewritten_for(program, feed_types, fetch_names, passes, fuse_norms)[0])


def _resized(like: Plan, source: Source, feed_types: Mapping[str, TensorType]) -> tuple[Origin, Resized] | None:
    """The steps of `like` for the types of `source`, and what they are made of; None if they have to be made anew."""
    origin = like.origin
    if source.own is not None or origin is None or [value.name for value in like.steps.feeds] != list(feed_types):
        return None
    resized = origin.resizing.at(source.types)
    return None if resized is None else (origin, resized)


def _rewritten_for(
    program: Program,
    feed_types: dict[str, TensorType],
    fetch_names: Sequence[str],
    passes: Pipeline,
    fuse_norms: bool,
    watch: Watch | None = None,
) -> tuple[Program, CarriedLevels]:
    """Rewrite a copy of `program` for this feed alone, in view of whoever watches; with the lengths that it makes."""
    private = events.copied(program, prune(program, list(feed_types), fetch_names, fuse_norms), "prune")
    if watch is not None:
        watch("prune", private)
    levels = carry_lengths(private, feed_types, fetch_names)
    with events.step(concretize, private):
        concretize(private, feed_types)
    if watch is not None:
        watch("concretize", private)
    _verifying(passes, private).apply(private)
    return private, levels


def _verifying(passes: Pipeline, program: Program) -> Pipeline:
    """Return `passes` with a hook that verifies what passes of the user's have made of `program`."""
    own = list(map(is_own, passes))
    if all(own):
        return passes
    before = program.clone()

    def hook(each: Pass, stage: Program, changed: bool) -> None:
        nonlocal before
        if not own.pop(0):
            verify_rewritten(before, stage)
            stage.is_concrete = False  # the user's pass need not keep it
        before = stage.clone()
        if passes.hook is not None:
            passes.hook(each, stage, changed)

    return replace(passes, hook=hook)


def _draws(steps: Steps) -> bool:
    return any(step.kernel.takes_rng if step.body is None else _draws(step.body) for step in steps.steps)


def _copies(steps: Steps, buffers: BufferPlan) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Tell for each fetch, and for each replaced state, whether it must be copied because others share its memory."""
    flat, root = buffers.flat, buffers.storage.root
    shared = {*steps.feeds, *steps.state, *flat.aliases, *[value for values in flat.buffers for value in values]}
    shared.update(value for value in map(root, steps.new_state.values()) if value.origin == "state")
    # Each value that is given away joins `shared`: whoever gets the same memory later gets a copy.
    state_copies = []
    for value in map(root, steps.replaced_state.values()):
        state_copies.append(value in shared)
        shared.add(value)
    fetch_copies = []
    for value in steps.fetches:
        # Arrays of tensors share their elements with others, and selected rows their numbers.
        is_apart = not value.tensor_type.is_array and not value.tensor_type.is_rows
        fetch_copies.append(root(value) in shared or not is_apart)
        shared.add(root(value))
    return tuple(fetch_copies), tuple(state_copies)
