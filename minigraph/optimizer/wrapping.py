"""Base of optimizers that are made of another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from minigraph.autodiff.backward import ParamsGrads
from minigraph.errors import ProgramError
from minigraph.ir import Operator, Parameter, Program, Variable
from minigraph.ir.default_programs import default_startup_program, program_guard, refuse_imperative_mode
from minigraph.optimizer.state import Parameters
from minigraph.support.public import public


@public
class WrappedOptimizer:
    """The methods of an optimizer, which call those of another one.

    Attributes
    ----------
    inner_optimizer : Optimizer or WrappedOptimizer
    """

    def __init__(self, inner_optimizer: Any) -> None:
        refuse_imperative_mode(type(self).__name__)
        self.inner_optimizer = inner_optimizer

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Parameters = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Sequence[Callable[..., None]] | None = None,
    ) -> ParamsGrads:
        """The backward pass of the inner optimizer, rewritten."""
        pairs: ParamsGrads = self.inner_optimizer.backward(
            loss, startup_program, parameter_list, no_grad_set, callbacks
        )
        self._rewrite(loss.block.program)
        return pairs

    def _rewrite(self, program: Program) -> None:
        """Rewrite a program to which the backward pass was just appended."""

    def apply_gradients(self, params_grads: Sequence[tuple[Parameter, Variable | None]]) -> list[Operator]:
        """`Optimizer.apply_gradients` of the inner optimizer."""
        ops: list[Operator] = self.inner_optimizer.apply_gradients(params_grads)
        return ops

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: ParamsGrads
    ) -> list[Operator]:
        """`apply_gradients` on the program of `loss`."""
        with program_guard(loss.block.program, startup_program or default_startup_program()):
            return self.apply_gradients(params_grads)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Parameters = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], ParamsGrads]:
        """The backward pass and the updates: (update operators, parameters with the gradients of one step)."""
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs

    def state_dict(self) -> dict[str, Any]:
        """`Optimizer.state_dict` of the inner optimizer."""
        state: dict[str, Any] = self.inner_optimizer.state_dict()
        return state

    def set_dict(self, state_dict: Mapping[str, Any]) -> None:
        """`Optimizer.set_dict` of the inner optimizer."""
        self.inner_optimizer.set_dict(state_dict)

    def clear_gradients(self) -> None:
        """`Optimizer.clear_gradients` of the inner optimizer."""
        self.inner_optimizer.clear_gradients()

    def current_step_lr(self) -> float:
        """`Optimizer.current_step_lr` of the inner optimizer."""
        rate: float = self.inner_optimizer.current_step_lr()
        return rate

    def get_opti_var_name_list(self) -> list[str]:
        """Names of the accumulators of the inner optimizer."""
        names: list[str] = self.inner_optimizer.get_opti_var_name_list()
        return names


def positive(value: int, name: str) -> int:
    """`value`, the argument `name`, if it is positive."""
    if value < 1:
        raise ProgramError(f"{name} must be a positive integer, got {value!r:.60}")
    return value
