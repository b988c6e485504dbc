"""Specification of what a run computes: operators evaluated one by one, in order, by name."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.executor.fetches import keep_lengths, refuse_lengths, with_lengths
from minigraph.executor.runner import Runner
from minigraph.ir import Operator, Program
from minigraph.ir.effects import unchanged_names
from minigraph.ir.type_inference import blame
from minigraph.lowering.lengths import CarriedLevels, carry_lengths
from minigraph.passes import events
from minigraph.runtime.evaluate import evaluate
from minigraph.runtime.scope import Scope
from minigraph.runtime.scope_variable import moved
from minigraph.support.interrupts import deferred, is_interrupt

__all__ = ["Interpreter", "evaluate"]


class Interpreter(Runner):
    """Evaluate the operators of a program one by one, for debugging and as the truth that plans are tested against.

    Its only rewrites are those in `minigraph.passes.LEGALIZE`, which say what a program means where the arithmetic of
    single operators would overflow or underflow.
    """

    def _run(
        self,
        program: Program,
        feeds: dict[str, Any],
        names: tuple[str, ...],
        scope: Scope,
        then: Callable[[], None] | None = None,
        as_arrays: bool = True,
    ) -> list[Any]:
        drawn = self._draws_so_far()
        try:
            results, kept, lengths = self._evaluate(program, feeds, names, scope, as_arrays)
        except BaseException:
            self._draw_again(drawn)
            raise
        with deferred():
            for name, value in kept.items():
                scope.var(name).replace(value, self.place, keep_old=False)
            for name, levels in lengths.items():
                keep_lengths(scope, [(name, len(levels))], levels)
            if then is not None:
                then()
        return results

    def _legalize(self, program: Program) -> None:
        """Rewrite what single operators would compute otherwise; a subclass may leave that out."""
        from minigraph.passes.pipelines import LEGALIZE

        LEGALIZE.apply(program)

    def _prepared(
        self, program: Program, feed_names: tuple[str, ...], names: tuple[str, ...]
    ) -> tuple[Program, CarriedLevels]:
        """The operators that a run evaluates, and where lengths are; a subclass may keep them for further runs."""
        from minigraph.lowering.prune import prune  # late, like passes: a program that is only built needs none

        private = prune(program, feed_names, names)
        levels = carry_lengths(private, feed_names, names)
        with events.unobserved():  # what a program means is no step of its rewriting
            self._legalize(private)
        return private, levels

    def _results(self, op: Operator, read: Callable[[str], Any]) -> dict[str, Any]:
        """Compute one operator; a subclass may watch or change what it gives."""
        return evaluate(op, read, self.place, self._rng)

    def _evaluate(
        self, program: Program, feeds: dict[str, Any], names: tuple[str, ...], scope: Scope, as_arrays: bool
    ) -> tuple[list[Any], dict[str, Any], dict[str, list[Any]]]:
        """Return the fetches, the new values of persistable variables, and their lengths of sequences."""
        events.runs(program, feeds, scope)
        private, levels = self._prepared(program, tuple(feeds), names)
        if as_arrays:
            refuse_lengths(names, levels.fetched)
        every = (*names, *chain(*levels.fetched))
        block = private.global_block()
        values = dict(feeds)
        written = set(feeds)

        def read(name: str) -> Any:
            if name not in values:
                holder = scope.find_var(name) if block.vars[name].persistable else None
                if holder is None or holder.value is None:
                    raise ExecutionError(f"{name} is neither fed nor computed nor in the scope")
                # A kernel may write over its input: the scope is changed only when all has succeeded.
                is_here = holder.place == self.place
                values[name] = holder.value.copy() if is_here else moved(holder.value, holder.place, self.place)
            return values[name]

        with np.errstate(all="ignore"):
            for op in block.ops:
                try:
                    values.update(self._results(op, read))
                except Exception as error:
                    if is_interrupt(error):
                        raise
                    raise blame(error, op) from error
                written.update(set(op.output_arg_names).difference(unchanged_names(op)))
        # Copies, because kernels may return views.
        results = [None if (value := read(name)) is None else value.copy() for name in every]
        kept = [name for name, var in block.vars.items() if name in written and var.persistable]
        return (
            with_lengths(results, list(map(len, levels.fetched))),
            {name: values[name].copy() for name in kept},
            {name: list(map(read, found)) for name, found in levels.kept.items()},
        )
