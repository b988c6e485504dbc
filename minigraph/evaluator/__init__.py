"""Scores that a program adds up over batches in variables of its own; `minigraph.metrics` adds up what is fetched.

Imports layers and what lies below them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigraph.errors import ProgramError, WrongTypeError, warn
from minigraph.executor import Executor
from minigraph.ir import Program, Variable
from minigraph.ir.default_programs import program_guard
from minigraph.layer_helper import LayerHelper
from minigraph.layers import cast, chunk_eval, edit_distance, equal, fill_constant, reduce_sum, sums
from minigraph.runtime.scope import global_scope
from minigraph.support.public import public, refuse_unknown_names
from minigraph.unique_name import generate

__all__ = ["ChunkEvaluator", "EditDistance"]

Scores = NDArray[np.float32]


@public
class Evaluator:
    """Base of evaluators.

    Attributes
    ----------
    states : list of Variable
        What is added up; call `reset` before the first batch.
    metrics : list of Variable
        The scores of one batch.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        warn(f"fluid.evaluator.{type(self).__name__} is deprecated: use fluid.metrics.{type(self).__name__}")
        self.states: list[Variable] = []
        self.metrics: list[Variable] = []
        self.helper = LayerHelper(name)
        if self.helper.block.idx:
            raise ProgramError(f"{type(self).__name__} counts in the global block", hint="Make it outside of branches.")

    def reset(self, executor: Executor, reset_program: Program | None = None) -> None:
        """Set all counts to zero."""
        program = reset_program or Program()
        with program_guard(program):
            for state in self.states:
                assert state.shape is not None
                fill_constant(state.shape, state.dtype, 0.0, out=_twin(program, state))
        executor.run(program)

    def eval(self, executor: Executor, eval_program: Program | None = None) -> Any:
        """The scores since `reset`; each evaluator has its own."""
        raise WrongTypeError(f"{type(self).__name__} does not define eval")

    def _create_state(self, suffix: str, dtype: Any, shape: Sequence[int]) -> Variable:
        """A persistable variable of counts, which `reset` sets to zero."""
        name = f"{generate(self.helper.name)}_{suffix}"
        state = self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape)
        self.states.append(state)
        return state

    def _counted(self, suffix: str, found: Variable) -> None:
        """Add `found` up in a state of the same dtype."""
        state = self._create_state(suffix, found.dtype, [1])
        sums([state, found], out=state)

    def _totals(self, executor: Executor, program: Program | None) -> list[float]:
        for state in self.states:
            found = global_scope().find_var(state.name)
            if found is None or found.value is None:
                raise ProgramError(
                    f"{type(self).__name__} has counted nothing: {state.name} has no value",
                    hint="Call reset(executor) before the first batch.",
                )
        program = program or Program()
        twins = [_twin(program, state) for state in self.states]
        return [found.item() for found in executor.run(program, fetch_list=twins)]


def _twin(program: Program, state: Variable) -> Variable:
    return program.global_block().create_var(name=state.name, shape=state.shape, dtype=state.dtype, persistable=True)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


@public
class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 of chunks over all batches; arguments as for `minigraph.layers.chunk_eval`."""

    def __init__(
        self,
        input: Variable,
        label: Variable,
        chunk_scheme: str,
        num_chunk_types: int,
        excluded_chunk_types: Sequence[int] | None = None,
    ) -> None:
        super().__init__("chunk_eval")
        *scores, inferred, labelled, correct = chunk_eval(
            input, label, chunk_scheme, num_chunk_types, excluded_chunk_types
        )
        for kind, found in (("infer", inferred), ("label", labelled), ("correct", correct)):
            self._counted(f"num_{kind}_chunks", found)
        self.metrics.extend(scores)

    def eval(self, executor: Executor, eval_program: Program | None = None) -> tuple[Scores, Scores, Scores]:
        """Precision, recall and F1, float32[1] each."""
        inferred, labelled, correct = self._totals(executor, eval_program)
        precision, recall = _ratio(correct, inferred), _ratio(correct, labelled)
        return _scores(precision, recall, _ratio(2 * precision * recall, precision + recall))


@public
class EditDistance(Evaluator):
    """Mean edit distance of sequences over all batches, and the share of sequences that differ.

    Parameters
    ----------
    input, label : Variable, int64[rows, 1] with sequences
    ignored_tokens : list of int, optional
    """

    def __init__(
        self, input: Variable, label: Variable, ignored_tokens: Sequence[int] | None = None, **kwargs: Any
    ) -> None:
        super().__init__("edit_distance", **kwargs)
        distances, count = edit_distance(input, label, ignored_tokens=ignored_tokens)
        right = reduce_sum(cast(equal(distances, fill_constant([1], "float32", 0.0)), "int64"))
        wrong, total = count - right, reduce_sum(distances)
        for kind, found in (("total_distance", total), ("seq_num", count), ("instance_error", wrong)):
            self._counted(kind, found)
        self.metrics += [total, wrong]

    def eval(self, executor: Executor, eval_program: Program | None = None) -> tuple[Scores, Scores]:
        """Mean distance and share of wrong sequences, float32[1] each."""
        total, count, wrong = self._totals(executor, eval_program)
        return _scores(_ratio(total, count), _ratio(wrong, count))


def _scores(*numbers: float) -> Any:
    return tuple(np.array([number], np.float32) for number in numbers)


refuse_unknown_names(__name__)
