"""Runs on several places: each place has a part of the batch and its own state, and gradients are summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from minigraph.errors import FeedError
from minigraph.executor.feeds import prepare_feed
from minigraph.ir import Program, Role
from minigraph.passes import GradAllReduce
from minigraph.runtime.place import Place
from minigraph.runtime.scope import LoDTensor, Scope, ScopeVariable, SelectedRows
from minigraph.support.simulated_ranks import run_ranks


class Runs(Protocol):
    """The part of an executor that replicas use."""

    def run(self, program: Program, feed: Any, fetch_list: Any, *, scope: Scope, return_numpy: bool) -> list[Any]: ...

    def twin(self) -> Any: ...


@dataclass
class _State:
    """What the replicas of one scope keep between runs."""

    scopes: list[Scope]
    """Of each place; the first is the caller's."""
    seen: tuple[int, int] | None = None
    """Changes of the caller's scope after the latest run."""


class Replicas:
    """A program on several places.

    As Paddle's ParallelExecutor has it: the gradient of the loss is divided by the number of places, each gradient of a
    parameter is summed over the places, and each place makes its own updates. Statistics of batch norm are those of the
    place's part of the batch; those of the first place stay in the caller's scope.

    Parameters
    ----------
    program : Program
    places : sequence of Place
        At least two.
    scales_loss : bool
        Whether to divide the gradient of the loss.
    """

    def __init__(self, program: Program, places: Sequence[Place], scales_loss: bool) -> None:
        self._program = program
        self._places = places
        self._scales_loss = scales_loss
        self._twin: tuple[int, Program] | None = None
        self._states: WeakKeyDictionary[Scope, _State] = WeakKeyDictionary()
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
            If there are fewer samples than places.
        """
        program = self._rewritten()
        feeds = self._divided(feed)
        state = self._states.get(scope)
        if state is None:
            state = self._states[scope] = _State([scope, *(Scope() for _ in self._places[1:])])
        if state.seen != _changes(scope):
            self._copy_state(program, state)
        # The places disagree if a run fails on some of them.
        state.seen = None
        executors = self._executors.get(executor)
        if executors is None:
            executors = self._executors[executor] = [executor, *(executor.twin() for _ in self._places[1:])]

        def run(rank: int) -> list[Any]:
            return executors[rank].run(program, feeds[rank], names, scope=state.scopes[rank], return_numpy=return_numpy)

        found = run_ranks([partial(run, rank) for rank in range(len(self._places))])
        state.seen = _changes(scope)
        return found

    def _rewritten(self) -> Program:
        """The program with sums of its gradients, made again when the user has changed it."""
        if self._twin is None or self._twin[0] != self._program.version:
            twin = self._program.clone()
            if any(op.role & Role.BACKWARD for op in twin.global_block().ops):
                GradAllReduce(len(self._places), scales_loss=self._scales_loss).apply(twin)
            self._twin = self._program.version, twin
        return self._twin[1]

    def _copy_state(self, program: Program, state: _State) -> None:
        """Give every place what the first place's scope holds."""
        first, *others = state.scopes
        for var in program.list_vars():
            holder = first.find_var(var.name) if var.persistable else None
            if holder is not None and holder.value is not None:
                for scope in others:
                    # A copy, because each place updates its own in place.
                    scope.var(var.name).replace(holder.value.copy(), holder.place, keep_old=False)

    def _divided(self, feed: Any) -> list[dict[str, Any]]:
        """What each place is fed."""
        count = len(self._places)
        if isinstance(feed, list | tuple):
            if len(feed) != count:
                raise FeedError(
                    f"a list of {len(feed)} feeds is given for {count} places",
                    hint="Give a dict for each place, or one dict to be divided among them.",
                )
            return [prepare_feed(self._program, each, place) for each, place in zip(feed, self._places, strict=True)]
        parts: list[dict[str, Any]] = [{} for _ in range(count)]
        for name, array in prepare_feed(self._program, feed, self._places[0]).items():
            pieces = [array] * count
            if not self._program.global_block().vars[name].persistable:
                pieces = _pieces(name, array, count)
            for part, piece in zip(parts, pieces, strict=True):
                part[name] = piece
        return parts


def _pieces(name: str, array: Any, count: int) -> list[Any]:
    """An array divided along its first dimension, as Paddle divides it: all parts but the last have as many rows."""
    rows = array.shape[0] if array.ndim else 0
    step = max(1, -(-rows // count))
    pieces = [array[begin : begin + step] for begin in range(0, rows, step)]
    if len(pieces) < count:
        raise FeedError(
            f"{name} has {rows} rows, which {count} places divide into {len(pieces)} parts of up to {step}",
            hint=f"Feed a multiple of {count} rows, or give fewer places.",
        )
    return pieces


def _changes(scope: Scope) -> tuple[int, int]:
    return scope.changes.count, scope.written


def merged(values: Sequence[Any]) -> Any:
    """The fetches of one variable from all places, along the first dimension; selected rows stay apart."""
    first = values[0]
    if isinstance(first, list):  # an array of tensors
        return [merged(each) for each in zip(*values, strict=True)]
    if isinstance(first, SelectedRows):
        return list(values)
    joined = np.concatenate([np.atleast_1d(each) for each in values])
    return LoDTensor(ScopeVariable("the tensor", joined)) if isinstance(first, LoDTensor) else joined
