"""Runs on several ranks: each has its part of the batch and its own state, and gradients are summed."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any, NamedTuple, Protocol, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from minigraph.errors import ExecutionError, FeedError, warn
from minigraph.executor.feeds import feed_of_one, prepare_feed, with_batches
from minigraph.ir import Program, Role, VarKind
from minigraph.runtime.place import Place
from minigraph.runtime.scope import Scope
from minigraph.runtime.scope_variable import LoDTensor, ScopeVariable, SelectedRows
from minigraph.support.communicator import check_size, current
from minigraph.support.simulated_ranks import run_ranks


class GradientScaleStrategy(enum.Enum):
    """Start value of the gradient of a loss on each place: 1 / their number, 1, or what is fed as ``loss@GRAD``."""

    CoeffNumDevice = 0
    One = 1
    Customized = 2


class Exchange(NamedTuple):
    """How the samples of all ranks enter the gradient of the loss and the statistics of batches."""

    gradient_of_loss: GradientScaleStrategy = GradientScaleStrategy.CoeffNumDevice
    """Value of the gradient of the loss, with which the backward pass begins."""
    sync_batch_norm: bool = False
    """Whether a ``batch_norm`` has the statistics of all samples."""

    def apply(self, program: Program, ranks: int) -> None:
        """Let a program exchange statistics, if wanted, and if it is trained sum its gradients over the ranks."""
        # Late imports: few programs run on ranks.
        from minigraph.passes.ranks.collective import GradAllReduce, feed_gradients_of_losses
        from minigraph.passes.ranks.own_draws import describe_draws
        from minigraph.passes.ranks.sync_batch_norm import SyncBatchNorm

        if self.sync_batch_norm and ranks > 1:
            SyncBatchNorm().apply(program)
        if not is_trained(program):
            return
        if ranks > 1 and (draws := describe_draws(program, "place")) is not None:
            warn(draws)
        GradAllReduce(ranks, scales_loss=self.gradient_of_loss is GradientScaleStrategy.CoeffNumDevice).apply(program)
        if self.gradient_of_loss is GradientScaleStrategy.Customized:
            feed_gradients_of_losses(program)


def is_trained(program: Program) -> bool:
    """Whether a program has a backward pass."""
    return any(op.role & Role.BACKWARD for op in program.global_block().ops)


class Runs(Protocol):
    """The part of an executor that replicas use."""

    def run(self, program: Program, feed: Any, fetch_list: Any, *, scope: Scope, return_numpy: bool) -> list[Any]: ...

    def twin(self) -> Any: ...


class State:
    """The values of a scope's places between runs.

    Parameters
    ----------
    places : int
        Number of places; the caller's scope is that of the first.
    """

    def __init__(self, places: int) -> None:
        self._others = [Scope() for _ in range(places - 1)]
        self._programs: WeakSet[Program] = WeakSet()
        """Programs whose variables every place has."""
        self._missing: set[str] = set()
        """Variables that got a value in the caller's scope only."""
        self._seen: int | None = None
        """Moment of the caller's scope after the latest run."""

    def begin(self, program: Program, first: Scope) -> list[Scope]:
        """The scopes of all places, in which those of the caller's values are copied that the others lack."""
        if self._seen is None:  # nothing was copied yet, or places disagree because a run has failed on some
            self._others = [Scope() for _ in self._others]
            self._programs.clear()
        else:
            self._missing |= first.changes.since(self._seen)
        self._seen = None
        if self._missing or program not in self._programs:
            for var in program.list_vars():
                if var.persistable:
                    self._copy(var.name, first, program)
            self._programs.add(program)
        return [first, *self._others]

    def _copy(self, name: str, first: Scope, program: Program) -> None:
        holder = first.find_var(name)
        if holder is None or holder.value is None:
            return
        for scope in self._others:
            if name in self._missing or scope.var(name).value is None:
                # A copy, because each place updates its own in place.
                scope.var(name).replace(holder.value.copy(), holder.place, keep_old=False)
        self._missing.discard(name)

    def end(self, first: Scope) -> None:
        """Note that a run has succeeded on all places."""
        self._seen = first.changes.moment()


States: TypeAlias = WeakKeyDictionary[Scope, dict[int, State]]
"""States by the scope of the first place and the number of places, for all programs that share their variables."""


class _Rewritten:
    """A program, and what it becomes on one of several ranks."""

    def __init__(self, program: Program, ranks: int, exchange: Exchange) -> None:
        self._program = program
        self._ranks = ranks
        self._exchange = exchange
        self._twin: tuple[int, Program] | None = None

    def _rewritten(self) -> Program:
        """The program with sums of its gradients, made again when the user has changed it."""
        if self._twin is None or self._twin[0] != self._program.version:
            twin = self._program.clone()
            twin.loaders.clear()  # their batches are fed
            self._exchange.apply(twin, self._ranks)
            self._twin = self._program.version, twin
        return self._twin[1]


class Trainer(_Rewritten):
    """A program in one of several processes, each of which has one place, as `BuildStrategy.num_trainers` asks for.

    As in Paddle, gradients are summed over the processes, and all start with the values of the first one.

    Parameters
    ----------
    program : Program
    trainers : int
        Number of processes.
    trainer : int
        Number of this one.
    exchange : Exchange
    """

    def __init__(self, program: Program, trainers: int, trainer: int, exchange: Exchange) -> None:
        super().__init__(program, trainers, exchange)
        self._trainer = trainer
        self._started: WeakSet[Scope] = WeakSet()

    def run(self, executor: Runs, feed: Any, names: Any, scope: Scope, return_numpy: bool) -> list[list[Any]]:
        """Fetches of this process, as by `Replicas.run`.

        Raises
        ------
        ExecutionError
            If other processes run than the strategy says.
        """
        check_size(self._ranks)
        if self._trainer != current().rank:
            raise ExecutionError(f"trainer_id is {self._trainer}, but this is rank {current().rank}")
        program = self._rewritten()
        if scope not in self._started:
            executor.run(_broadcast(program, scope), None, [], scope=scope, return_numpy=return_numpy)
            self._started.add(scope)

        def run(feeds: Sequence[dict[str, Any]], go_on: Callable[[], None]) -> list[list[Any]]:
            found = executor.run(program, feeds[0], names, scope=scope, return_numpy=return_numpy)
            go_on()
            return [found]

        return with_batches(self._program, [dict(feed_of_one(feed))], run)


def _broadcast(program: Program, scope: Scope) -> Program:
    """A program that gives the values that `program` keeps in the scope those of rank 0."""
    from minigraph.passes.ranks.collective import broadcast

    found = Program()
    for name, var in sorted(program.global_block().vars.items()):
        holder = scope.find_var(name) if var.persistable and var.kind is VarKind.LOD_TENSOR else None
        if holder is not None and holder.value is not None:
            found.global_block().create_var(name=name, shape=var.shape, dtype=var.dtype, persistable=True)
    broadcast(found, list(found.global_block().vars.values()), rings=1)
    return found


class Replicas(_Rewritten):
    """A program on several places.

    As Paddle's ParallelExecutor has it: the gradient of the loss begins as `exchange` says, each gradient of a
    parameter is summed over the places, and each place makes its own updates. Statistics of batch norm are those of the
    place's parts of batches, unless `exchange` says otherwise; those of the first place stay in the caller's scope.
    What gets a value there by other means reaches every place before the next run.

    Parameters
    ----------
    program : Program
    places : sequence of Place
    exchange : Exchange
    states : mapping
        Where to keep the values of the places between runs.
    """

    def __init__(
        self,
        program: Program,
        places: Sequence[Place],
        exchange: Exchange,
        states: States,
    ) -> None:
        super().__init__(program, len(places), exchange)
        self._places = places
        self._states = states
        self._executors: WeakKeyDictionary[Runs, list[Runs]] = WeakKeyDictionary()

    def run(self, executor: Runs, feed: Any, names: Any, scope: Scope, return_numpy: bool) -> list[list[Any]]:
        """Fetches of each place.

        Parameters
        ----------
        executor : Executor or Interpreter
            Runs the first place; the others have one like it each, with a generator of random numbers of its own.
        feed : mapping or sequence of mapping
            Arrays for all places, divided along the first dimension, or those for each.
        names : list of Variable or str
        scope : Scope
            Of the first place.

        Raises
        ------
        FeedError
            If there are fewer samples than places and the program is trained.
        """
        program = self._rewritten()
        return with_batches(
            self._program,
            self._divided(feed),
            lambda feeds, go_on: self._run_fed(executor, program, feeds, names, scope, return_numpy, go_on),
        )

    def _run_fed(
        self,
        executor: Runs,
        program: Program,
        feeds: Sequence[dict[str, Any]],
        names: Any,
        scope: Scope,
        return_numpy: bool,
        then: Callable[[], None],
    ) -> list[list[Any]]:
        states = self._states.setdefault(scope, {})
        state = states.get(len(self._places))
        if state is None:
            state = states[len(self._places)] = State(len(self._places))
        scopes = state.begin(program, scope)
        executors = self._executors.get(executor)
        if executors is None:
            executors = self._executors[executor] = [executor, *(executor.twin() for _ in self._places[1:])]

        def run(rank: int) -> list[Any]:
            return executors[rank].run(program, feeds[rank], names, scope=scopes[rank], return_numpy=return_numpy)

        found = run_ranks([partial(run, rank) for rank in range(len(feeds))], shares_state=True)
        state.end(scope)
        then()
        return found

    def _divided(self, feed: Any) -> list[dict[str, Any]]:
        """The feed of each place."""
        count = len(self._places)
        if isinstance(feed, list | tuple):
            if len(feed) != count and not (self._may_be_fewer() and 0 < len(feed) < count):
                raise FeedError(
                    f"a list of {len(feed)} feeds is given for {count} places",
                    hint="Give a dict for each place, or one dict to be divided among them.",
                )
            return [self._checked(each, place) for each, place in zip(feed, self._places, strict=False)]
        divided: dict[str, list[Any]] = {}
        whole: dict[str, Any] = {}
        for name, value in feed_of_one(feed).items():
            var = self._program.global_block().vars.get(name)
            if var is None or var.persistable:
                whole[name] = value
                continue
            is_array = isinstance(value, np.ndarray) or _has_sequences(value)
            array = value if is_array else self._checked({name: value}, self._places[0])[name]
            divided[name] = _pieces(name, array, count, self._may_be_fewer())
        parts = [whole | dict(zip(divided, pieces, strict=True)) for pieces in zip(*divided.values(), strict=False)]
        if any(len(pieces) != len(parts) for pieces in divided.values()):
            numbers = ", ".join(f"{name} for {len(pieces)}" for name, pieces in divided.items())
            raise FeedError(
                f"the places get different numbers of batches: {numbers}", hint="Feed as many rows of each."
            )
        # Declared shapes are those of one place.
        return [self._checked(part, place) for part, place in zip(parts or [whole] * count, self._places, strict=False)]

    def _may_be_fewer(self) -> bool:
        """Whether some places may be without a batch, as in fluid where nothing is trained."""
        return not is_trained(self._program)

    def _checked(self, feed: Any, place: Place) -> dict[str, Any]:
        """The arrays that are fed, and tensors where they have sequences."""
        given = feed_of_one(feed)
        arrays = prepare_feed(self._program, feed, place)
        return {name: given[name] if _has_sequences(given[name]) else arrays[name] for name in given}


def _has_sequences(value: Any) -> bool:
    return isinstance(value, LoDTensor) and bool(value.lod())


def _pieces(name: str, array: Any, count: int, may_be_fewer: bool) -> list[Any]:
    """An array divided along its first dimension, a tensor with sequences between sequences of its first level.

    As Paddle divides it: all parts but the last have as many rows or sequences.
    """
    if not _has_sequences(array):
        rows = array.shape[0] if array.ndim else 0
        return [array[begin:end] for begin, end in _bounds(name, rows, "rows", count, may_be_fewer)]
    lod, pieces = array.lod(), []
    for begin, end in _bounds(name, len(lod[0]) - 1, "sequences", count, may_be_fewer):
        levels = []
        for offsets in lod:
            levels.append([each - offsets[begin] for each in offsets[begin : end + 1]])
            begin, end = offsets[begin], offsets[end]
        pieces.append(_tensor(np.asarray(array)[begin:end], levels))
    return pieces


def _bounds(name: str, size: int, what: str, count: int, may_be_fewer: bool) -> list[tuple[int, int]]:
    """Return the offsets at which the parts of a batch begin and end."""
    step = max(1, -(-size // count))
    found = [(begin, min(begin + step, size)) for begin in range(0, size, step)]
    if len(found) < count and not (found and may_be_fewer):
        raise FeedError(
            f"{name} has {size} {what}, which {count} places divide into {len(found)} parts of up to {step}",
            hint=f"Feed a multiple of {count} {what}, or give fewer places.",
        )
    return found


def _tensor(array: Any, lod: Sequence[Sequence[int]]) -> LoDTensor:
    tensor = LoDTensor(ScopeVariable("the tensor", array))
    tensor.set_lod(lod)
    return tensor


def merged(values: Sequence[Any]) -> Any:
    """The fetches of one variable from all places, along the first dimension; selected rows stay apart."""
    first = values[0]
    if isinstance(first, list):  # an array of tensors
        return [merged(each) for each in zip(*values, strict=True)]
    if isinstance(first, SelectedRows):
        return list(values)
    joined = np.concatenate([np.atleast_1d(each) for each in values])
    if not isinstance(first, LoDTensor):
        return joined
    lengths = zip(*[each.recursive_sequence_lengths() for each in values], strict=True)
    return _tensor(joined, [[0, *accumulate(chain(*level))] for level in lengths])
