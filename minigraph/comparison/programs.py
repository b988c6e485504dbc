"""The programs of a comparison: clones of the caller's program, which itself is only read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from minigraph import unique_name
from minigraph.autodiff.backward import ParamsGrads, append_backward
from minigraph.clip import GradientClipBase, error_clip_callback
from minigraph.clip.labels import labelled
from minigraph.errors import ClipError, DataError, NotFoundError, ProgramError, WrongTypeError, caller_site, suggest
from minigraph.executor import Executor
from minigraph.ir import Parameter, Program, Role, Variable
from minigraph.ir.default_programs import program_guard
from minigraph.ir.name_scope import name_scope
from minigraph.optimizer import Optimizer
from minigraph.runtime.place import CPUPlace, Place
from minigraph.runtime.scope import Scope, global_scope

Strategy: TypeAlias = Callable[[ParamsGrads], Sequence[tuple[Parameter, Variable]]] | None
"""Function that appends clip operators for (parameter, gradient) pairs and returns the clipped pairs; None: no clip."""

Feed: TypeAlias = Mapping[str, Any]
Feeds: TypeAlias = Iterable[Feed] | Callable[..., Iterable[Feed]]
Values: TypeAlias = dict[str, NDArray[Any]]

_AFTER_FORWARD = Role.BACKWARD | Role.OPTIMIZE | Role.LR_SCHED


# The caller's arguments


def check_clips(clips: Mapping[str, Strategy]) -> dict[str, Strategy]:
    """`clips` as a dict, if every name is a str and every strategy can be called or is None.

    Raises
    ------
    WrongTypeError
        Otherwise.
    """
    if not isinstance(clips, Mapping):
        raise WrongTypeError(
            f"clips must map names to strategies, got {clips!r:.80}",
            hint='Write {"norm 1": GradientClipByNorm(1.0)}, for example.',
        )
    for name, strategy in clips.items():
        if not isinstance(name, str):
            raise WrongTypeError(f"the name of a strategy must be a str, got {name!r:.60}")
        if strategy is not None and not callable(strategy):
            raise WrongTypeError(
                f"strategy {name!r} must be a clip such as GradientClipByNorm(1.0), or None for unclipped gradients, "
                f"got {strategy!r:.60}"
            )
    return dict(clips)


def name_in(program: Program, variable: Variable | str, what: str) -> str:
    """The name of a variable of the global block, given as itself or by name.

    Raises
    ------
    WrongTypeError
        If it is neither.
    NotFoundError
        If the program has no such variable.
    """
    name = variable.name if isinstance(variable, Variable) else variable
    if not isinstance(name, str):
        raise WrongTypeError(f"{what} must be a Variable or a name, got {variable!r:.60}")
    known = program.global_block().vars
    if name not in known:
        raise NotFoundError(f"the program has no variable {name!r} for {what}", hint=suggest(name, known))
    return name


def made_by(factory: Callable[..., Optimizer], *rate: float) -> Optimizer:
    """The optimizer that the caller's function returns, for a learning rate if one is given.

    Raises
    ------
    WrongTypeError
        If it is no function, or returns something else.
    ClipError
        If the optimizer has a clip of its own.
    """
    if rate and callable(factory) and not _can_be_called(factory, *rate):
        raise WrongTypeError(
            "optimizer must take the learning rate where rates are given",
            hint="Write optimizer=SGDOptimizer, or optimizer=lambda rate: SGDOptimizer(rate), for example.",
        )
    optimizer: Any = factory(*rate) if callable(factory) else factory
    if not callable(factory) or not isinstance(optimizer, Optimizer):
        raise WrongTypeError(
            f"optimizer must be a function that returns a new optimizer, got {optimizer!r:.60}",
            hint="Write optimizer=lambda: SGDOptimizer(0.1), for example: each clone gets one of its own.",
        )
    if optimizer._grad_clip is not None:
        raise ClipError(
            f"the optimizer clips by {optimizer._grad_clip!r} already",
            hint="Leave grad_clip out, and name the strategy in clips.",
        )
    return optimizer


def _can_be_called(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError):  # ValueError: a function written in C has no signature
        return False
    return True


def each_feed(feeds: Feeds, what: str, rng: np.random.Generator | None = None) -> Iterator[Feed]:
    """One pass over `feeds`; a function that cannot be called without an argument gets `rng`.

    Raises
    ------
    DataError
        If there is none, as when an iterator is passed over a second time.
    """
    is_empty = True
    if rng is not None and callable(feeds) and not _can_be_called(feeds) and _can_be_called(feeds, rng):
        feeds = feeds(rng)
    for feed in feeds() if callable(feeds) else feeds:
        is_empty = False
        yield feed
    if is_empty:
        raise DataError(
            f"{what}: there is no batch", site=caller_site(),
            hint="Give a list of feeds, or a function that returns one pass over them each time it is called.",
        )  # fmt: skip


def feed_count(feeds: Feeds) -> int | None:
    """Number of batches in a pass over `feeds`; None if it is not known beforehand."""
    return len(feeds) if isinstance(feeds, Sized) else None


def batch_size(feed: Feed) -> int:
    """The rows of a batch: the leading dimension that all arrays share; -1 if they share none."""
    sizes = {np.asarray(array).shape[:1] for array in feed.values()}
    return sizes.pop()[0] if len(sizes) == 1 and () not in sizes else -1


def check_ranks(ranks: Any) -> int:
    """The number of ranks, if it is one.

    Raises
    ------
    WrongTypeError
        If it is no positive integer.
    """
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        raise WrongTypeError(f"ranks must be an integer of at least 1, got {ranks!r:.60}")
    return ranks


def divided(feed: Feed, ranks: int) -> list[Feed]:
    """The part of a batch that each rank gets.

    Raises
    ------
    DataError
        If they cannot share it evenly.
    """
    rows = batch_size(feed)
    if rows < 0 or rows % ranks:
        sizes = ", ".join(f"{name}: {list(np.asarray(array).shape)}" for name, array in feed.items())
        raise DataError(
            f"{ranks} ranks cannot share a batch evenly", details=[sizes],
            hint=f"Feed arrays with as many rows each, a multiple of {ranks}.",
        )  # fmt: skip
    arrays = {name: np.split(np.asarray(array), ranks) for name, array in feed.items()}
    return [{name: parts[rank] for name, parts in arrays.items()} for rank in range(ranks)]


def fetch(executor: Executor, program: Program, feed: Feed, names: Iterable[str], scope: Scope) -> Values:
    """Run a program once; the arrays by name. Selected rows come as the whole gradient."""
    unique = list(dict.fromkeys(names))
    return dict(zip(unique, map(np.asarray, executor.run(program, feed, unique, scope=scope)), strict=True))


# Building


class FreshNames(unique_name.UniqueNameGenerator):
    """Number names from zero and skip names that are taken."""

    def __init__(self, taken: Container[str]) -> None:
        super().__init__()
        self._taken = taken

    def __call__(self, key: str) -> str:
        name = super().__call__(key)
        while name in self._taken:
            name = super().__call__(key)
        return name


def forward_clone(program: Program) -> Program:
    """A clone without backward pass, updates, the variables that only they use, and clips noted on parameters."""
    twin = program.clone()
    for block in twin.blocks:
        dropped = [op for op in block.ops if op.role & _AFTER_FORWARD]
        for op in dropped:
            block.remove(op)
        unused = {name for op in dropped for name in (*op.input_arg_names, *op.output_arg_names)}
        unused -= {name for b in twin.blocks for op in b.ops for name in (*op.input_arg_names, *op.output_arg_names)}
        for var in list(block.vars.values()):
            if var.name in unused and not isinstance(var, Parameter):
                block.remove_var(var.name)
    for param in twin.all_parameters():
        param.gradient_clip = None
    twin.backward_passes = 0
    return twin


@contextmanager
def building(program: Program) -> Iterator[Program]:
    """Let layers inside write to `program`, under names that are free there; yield their startup program."""
    state = Program()
    state.random_seed = program.random_seed
    with program_guard(program, state), unique_name.guard(FreshNames(program.global_block().vars)):
        yield state


def differentiate(program: Program, loss: str, parameters: Sequence[str] | None = None) -> ParamsGrads:
    """Append the backward pass, error clips included, as an optimizer does.

    Raises
    ------
    ProgramError
        If the loss depends on no parameter.
    """
    pairs = append_backward(program.global_block().var(loss), parameters, callbacks=[error_clip_callback])
    if not pairs:
        raise ProgramError(f"{loss} depends on no trainable parameter")
    return pairs


def clip(name: str, strategy: Strategy, pairs: ParamsGrads) -> ParamsGrads:
    """The pairs with the clipped gradients, in the order of `pairs`.

    Raises
    ------
    ProgramError
        If the strategy leaves a parameter without a gradient.
    """
    if strategy is None:
        return list(pairs)
    with _label_of(strategy):
        clipped = {param.name: grad for param, grad in strategy(list(pairs))}
    missing = [param.name for param, _ in pairs if clipped.get(param.name) is None]
    if missing:
        raise ProgramError(f"strategy {name!r} returns no gradient for {', '.join(missing)}")
    return [(param, clipped[param.name]) for param, _ in pairs]


@contextmanager
def _label_of(strategy: Any) -> Iterator[None]:
    """Label the operators that a function appends with the function, as a strategy labels its own."""
    if isinstance(strategy, GradientClipBase):
        yield
        return
    with name_scope("gradient_clip"), labelled(strategy):
        yield


# Values


def start_values(
    program: Program, startup: Program | None, scope: Scope | None, place: Place | None
) -> tuple[Values, Place]:
    """Copies of the persistable variables' values: after one run of `startup`, or as `scope` holds them.

    Raises
    ------
    ProgramError
        If both are given, or a variable has no value.
    """
    place = place or CPUPlace()
    if startup is not None and scope is not None:
        raise ProgramError("give startup or scope, not both",
                           hint="Give startup= to run it for new values, scope= to use those it holds.")  # fmt: skip
    source = global_scope() if scope is None else scope
    if startup is not None:
        source = Scope()
        Executor(place).run(startup, scope=source)
    values = {}
    for var in program.global_block().vars.values():
        holder = source.find_var(var.name) if var.persistable else None
        if holder is not None and holder.value is not None:
            values[var.name] = np.array(holder.get_tensor())
        elif var.persistable:
            raise ProgramError(
                f"{var.name} has no value",
                hint="Give startup=. Or run the startup program first, and give scope= unless that is the global one.",
            )
    return values, place


def seeded(startup: Program, seed: int) -> Program:
    """A copy of a startup program as if its `random_seed` had been `seed` when it was built.

    A parameter whose initializer has a seed of its own keeps it.
    """
    twin = startup.clone()
    twin._random_seed = seed
    for block in twin.blocks:
        for op in block.ops:
            if op.all_attrs().get("seed") in (0, startup.random_seed):
                op.set_attr("seed", seed)
    return twin


def scope_with(values: Values, state: Program, place: Place) -> Scope:
    """A new scope with copies of `values` and the variables that the startup program `state` makes."""
    scope = Scope()
    for name, value in values.items():
        scope.var(name).get_tensor().set(value, place)
    Executor(place).run(state, scope=scope)
    return scope
