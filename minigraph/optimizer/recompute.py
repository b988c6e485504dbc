"""Train by another optimizer while forward results are computed again instead of kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import NotSupportedError, ProgramError
from minigraph.ir import Program, Variable
from minigraph.optimizer.base import Optimizer
from minigraph.optimizer.wrapping import WrappedOptimizer
from minigraph.support.public import public


@public
class RecomputeOptimizer(WrappedOptimizer):
    """`optimizer`, whose backward pass recomputes what lies between checkpoints.

    The memory for results between checkpoints is needed for one segment at a time; gradients are the same to the bit.
    `minigraph.passes.Recompute` says what is repeated.

    Parameters
    ----------
    optimizer : Optimizer

    Raises
    ------
    WrongTypeError
        If `optimizer` is none.
    ProgramError
        In the imperative mode, and when checkpoints were not set before the backward pass.

    References
    ----------
    T. Chen, B. Xu, C. Zhang and C. Guestrin, Training deep nets with sublinear memory cost, arXiv:1604.06174, 2016.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
    ...     h = first = fluid.layers.fc(fluid.data("x", [None, 4]), 4, act="relu")
    ...     for _ in range(3):
    ...         h = fluid.layers.fc(h, 4, act="relu")
    ...     updates = RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    ...     updates._set_checkpoints([first, h])
    ...     ops, pairs = updates.minimize(fluid.layers.mean(h))
    ...     [op.type for op in fluid.default_main_program().global_block().ops][15:18]
    ['mul', 'elementwise_add', 'relu']
    """

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__(optimizer)
        self._checkpoints: list[Variable | str] | None = None

    @property
    def _learning_rate(self) -> Any:
        """The rate of the inner optimizer, which mixed precision around this one reads, as in fluid."""
        return self.inner_optimizer._learning_rate

    @property
    def _learning_rate_map(self) -> dict[Program, Variable]:
        rates: dict[Program, Variable] = self.inner_optimizer._learning_rate_map
        return rates

    def _set_checkpoints(self, checkpoints: Sequence[Variable | str]) -> None:
        """The variables to keep, or their names; to be called before `backward` or `minimize`."""
        self._checkpoints = list(checkpoints)

    set_checkpoints = _set_checkpoints

    def load(self, stat_dict: Any) -> None:
        """Refuse, as in fluid: state is loaded with the parameters, by `minigraph.io.load_persistables`."""
        raise NotSupportedError(
            "RecomputeOptimizer does not load state",
            hint="Load it with the parameters: io.load_persistables(exe, folder, program).",
        )  # fmt: skip

    def _rewrite(self, program: Program) -> None:
        if self._checkpoints is None:
            raise ProgramError(
                "RecomputeOptimizer has no checkpoints",
                hint="Call _set_checkpoints([...]) with variables of the forward pass first.",
            )  # fmt: skip
        from minigraph.passes.memory.recompute import recompute  # late: few programs have checkpoints

        recompute(program, self._checkpoints)
