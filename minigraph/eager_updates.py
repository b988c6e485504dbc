"""Updates in the imperative mode: an optimizer's own static operators, run on the parameters at hand.

Clipping, weight decay and update are appended to a program once for each set of parameters that have gradients, by the
same code as in the static mode, and that program is run on their values. So both modes give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minigraph import unique_name
from minigraph.defaults import program_guard
from minigraph.executor import Executor
from minigraph.ir import Block, Parameter, Program, Variable
from minigraph.scope import Scope

if TYPE_CHECKING:
    from minigraph.optimizer import Optimizer


def is_eager(var: Any) -> bool:
    """Whether a variable has a value of its own, as in the imperative mode."""
    return hasattr(var, "value")


class EagerUpdates:
    """The programs of one optimizer, and the state that they share.

    Attributes
    ----------
    scope : Scope
        Learning rate and accumulators, by the names they have in the static mode.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.scope = Scope()
        self._programs: dict[Any, Program] = {}
        self._executor: Executor | None = None

    def apply(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Clip, decay and update: the parameters of `pairs` get new values."""
        if self._executor is None:
            self._executor = Executor(pairs[0][0].block.place)
        key = tuple((param.name, param.tensor_type) for param, _ in pairs)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._build(pairs)
        for param, _ in pairs:
            holder = self.scope.var(param.name)
            # A copy, because what was computed from the old value may still be differentiated.
            holder.value, holder.place = param.value.copy(), self._executor.place
        self._executor.compute(program, {_grad_name(p): grad.value for p, grad in pairs}, (), self.scope)
        for param, _ in pairs:
            param.value = self.scope.var(param.name).value

    def _build(self, pairs: Sequence[tuple[Any, Any]]) -> Program:
        main, startup = Program(), Program()
        with program_guard(main, startup), unique_name.guard():
            self.optimizer._dtype = pairs[0][0].dtype
            self.optimizer.apply_gradients([_mirrored(main.global_block(), p, g) for p, g in pairs])
        fresh = Scope()
        assert self._executor is not None
        self._executor.run(startup, scope=fresh)
        for name in fresh.local_var_names():
            if self.scope.find_var(name) is None:
                self.scope.var(name).value = fresh.var(name).value
                self.scope.var(name).place = self._executor.place
        return main


def _grad_name(param: Any) -> str:
    return f"{param.name}@GRAD"


def _mirrored(block: Block, param: Any, grad: Any) -> tuple[Parameter, Variable]:
    twin = block.create_parameter(
        param.name,
        param.shape,
        param.dtype,
        optimize_attr=param.optimize_attr,
        regularizer=param.regularizer,
        need_clip=param.need_clip,
        gradient_clip=param.gradient_clip,
        trainable=param.trainable,
    )
    data = block.create_var(name=_grad_name(param), shape=grad.shape, dtype=grad.dtype, is_data=True)
    return twin, data
