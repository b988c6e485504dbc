"""Weight decay: a penalty on the size of parameters, as operators that add its gradient to theirs.

Decay is added to the gradient after clipping and is not clipped itself, as in fluid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minigraph.ir import Block, Parameter, Role, Variable, VarKind
from minigraph.ir.name_scope import name_scope
from minigraph.ir.printable import Strategy, printable
from minigraph.passes import events
from minigraph.support.arguments import number
from minigraph.support.public import public, refuse_unknown_names
from minigraph.unique_name import generate


@public
@dataclass(frozen=True)
class WeightDecayRegularizer(Strategy):
    """Base of the regularizers; a subclass defines `emit`, or ``__call__`` as in fluid.

    Parameters
    ----------
    regularization_coeff : float
        Weight of the penalty in the loss.
    """

    regularization_coeff: float = 0.0

    def __post_init__(self) -> None:
        self._settle(regularization_coeff=number(self.regularization_coeff, "regularization_coeff"))

    def emit(self, block: Block, param: Parameter) -> Variable:
        """Append the gradient of the penalty on `param`."""
        raise TypeError(f"{type(self).__name__} does not define emit")

    def __call__(self, param: Parameter, grad: Variable, block: Block) -> Variable:
        """Append the gradient of the penalty on `param`, whose gradient so far is `grad`."""
        return self.emit(block, param)

    @property
    def _regularization_coeff(self) -> float:
        return self.regularization_coeff

    @_regularization_coeff.setter
    def _regularization_coeff(self, value: float) -> None:
        # Fluid's classes of users' own set it in their constructors.
        self._settle(regularization_coeff=number(value, "regularization_coeff"))


@public
@printable
@dataclass(frozen=True)
class L2DecayRegularizer(WeightDecayRegularizer):
    """Penalty ``coeff / 2 * sum(param**2)``, gradient ``coeff * param``."""

    def __str__(self) -> str:
        return f"L2Decay, regularization_coeff={self.regularization_coeff:f}"

    def emit(self, block: Block, param: Parameter) -> Variable:
        decay = _like(block, param)
        block.append_op("scale", {"X": param}, {"Out": decay}, {"scale": self.regularization_coeff})
        return decay


@public
@printable
@dataclass(frozen=True)
class L1DecayRegularizer(WeightDecayRegularizer):
    """Penalty ``coeff * sum(|param|)``, gradient ``coeff * sign(param)``."""

    def __str__(self) -> str:
        return f"L1Decay, regularization_coeff={self.regularization_coeff:f}"

    def emit(self, block: Block, param: Parameter) -> Variable:
        decay = _like(block, param)
        block.append_op("sign", {"X": param}, {"Out": decay})
        block.append_op("scale", {"X": decay}, {"Out": decay}, {"scale": self.regularization_coeff})
        return decay


def _like(block: Block, param: Parameter) -> Variable:
    return block.create_var(name=generate("_generated_var"), shape=param.shape, dtype=param.dtype)


@public
def append_regularization_ops(
    parameters_and_grads: Sequence[tuple[Parameter, Variable | None]],
    regularization: WeightDecayRegularizer | None = None,
) -> list[tuple[Parameter, Variable | None]]:
    """Append the decay of each parameter to its gradient, in place; selected rows become another, dense variable.

    A parameter's own regularizer wins over `regularization`.
    """
    if not parameters_and_grads:
        return []
    pairs = list(parameters_and_grads)
    program = parameters_and_grads[0][0].block.program
    step = events.step(append_regularization_ops, program)
    with step, program.role_guard(Role.OPTIMIZE | Role.REGULARIZE), name_scope("regularization"):
        for at, (param, grad) in enumerate(parameters_and_grads):
            regularizer = param.regularizer or regularization
            if grad is None or regularizer is None:
                continue
            with program.role_guard(Role.OPTIMIZE | Role.REGULARIZE, (param, grad)):
                decay = regularizer(param, grad, grad.block)
                total = _dense(grad)
                grad.block.append_op("sum", {"X": [grad, decay]}, {"Out": total})
                pairs[at] = param, total
    return pairs


def _dense(grad: Variable) -> Variable:
    """Variable for the sum of a gradient and its decay: dense, also for selected rows."""
    if grad.kind is not VarKind.SELECTED_ROWS:
        return grad
    return grad.block.create_var(name=f"{grad.name}@NEWGRAD@", shape=grad.shape, dtype=grad.dtype)


# Fluid's short names.
L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer

refuse_unknown_names(__name__)
