"""Weight decay that is no part of the gradient, for any optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Operator, Program, Variable
from minigraph.ir.default_programs import default_startup_program, is_imperative, program_guard
from minigraph.ir.name_scope import name_scope
from minigraph.layers.elementwise import elementwise_sub
from minigraph.layers.tensor import assign
from minigraph.optimizer import Optimizer
from minigraph.support.public import public

__all__ = ["extend_with_decoupled_weight_decay"]


@public
def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Optimizer]:
    """A class of optimizers like `base_optimizer`, which also decay weights: ``param -= param * weight_decay``.

    Its constructor takes `weight_decay`, a float or a Variable, `apply_decay_param_fun`, which says by name which
    parameters decay (default: all), and the arguments of `base_optimizer` by keyword. Parameters decay before they are
    updated by gradients that were computed before; the learning rate is no factor of the decay.

    References
    ----------
    I. Loshchilov, F. Hutter, Decoupled weight decay regularization, ICLR 2019.

    Examples
    --------
    >>> import minigraph as fluid
    >>> AdamW = extend_with_decoupled_weight_decay(fluid.optimizer.Adam)
    >>> optimizer = AdamW(learning_rate=0.1, weight_decay=0.01)
    """
    if not (isinstance(base_optimizer, type) and issubclass(base_optimizer, Optimizer)):
        raise WrongTypeError(f"base_optimizer must be a class of optimizers, got {base_optimizer!r:.60}")

    class OptimizerWithDecoupledWeightDecay(base_optimizer):  # type: ignore[misc, valid-type]
        """`base_optimizer` with `weight_decay`."""

        def __init__(
            self,
            weight_decay: float | Variable,
            apply_decay_param_fun: Callable[[str], bool] | None = None,
            **kwargs: Any,
        ) -> None:
            super().__init__(**kwargs)
            if not isinstance(weight_decay, float | Variable):
                raise WrongTypeError(f"weight_decay must be a float or a Variable, got {weight_decay!r:.60}")
            self._decoupled, self._decays_where = weight_decay, apply_decay_param_fun

        def minimize(
            self,
            loss: Variable,
            startup_program: Program | None = None,
            parameter_list: Any = None,
            no_grad_set: Iterable[Variable | str] | None = None,
        ) -> tuple[list[Operator], Any]:
            """Append backward pass, decay and updates for `loss` to its program."""
            if is_imperative():
                raise ProgramError(
                    "decoupled weight decay of fluid.contrib is for programs, not for the imperative mode",
                    hint="Use minigraph.optimizer.AdamW, or regularization=L2Decay(...).",
                )
            pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
            with program_guard(loss.block.program, startup_program or default_startup_program()):
                self._append_decay(pairs)
            return self.apply_optimize(loss, startup_program, pairs), pairs

        def _append_decay(self, pairs: Any) -> None:
            if isinstance(self._decoupled, float) and self._decoupled == 0:
                return
            parts = []
            for param, grad in pairs:
                if grad is not None and (self._decays_where is None or self._decays_where(param.name)):
                    with param.block.program._optimized_guard([param, grad]), name_scope("weight decay"):
                        parts.append((param, grad, param * self._decoupled))
            for param, grad, part in parts:
                with param.block.program._optimized_guard([param, grad]), name_scope("weight decay"):
                    assign(elementwise_sub(param, part), param)

    return OptimizerWithDecoupledWeightDecay
