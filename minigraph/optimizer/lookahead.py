"""Slow parameters that follow the fast ones every few steps."""

from __future__ import annotations

from typing import Any

from minigraph.autodiff.backward import ParamsGrads
from minigraph.errors import ProgramError
from minigraph.ir import Operator, Program, Role, Variable
from minigraph.ir.default_programs import default_startup_program, program_guard, refuse_imperative_mode
from minigraph.layer_helper import emit
from minigraph.layers.activation import sign
from minigraph.layers.elementwise import elementwise_add, elementwise_mul, elementwise_sub
from minigraph.layers.tensor import cast, create_global_var, fill_constant, increment
from minigraph.optimizer.base import Optimizer
from minigraph.optimizer.wrapping import positive
from minigraph.support.public import public


@public
class LookaheadOptimizer:
    """Another optimizer, whose parameters are pulled every `k` steps toward where they were `k` steps before.

    Every `k` steps ``slow = alpha * param + (1 - alpha) * slow; param = slow``. Slow parameters, ``<name>@SLOW``, start
    from the start values.

    Parameters
    ----------
    inner_optimizer : Optimizer
    alpha : float
        From 0 to 1.
    k : int
        At least 1.

    Raises
    ------
    WrongTypeError, ProgramError
        If an argument is not as said; in the imperative mode.

    Notes
    -----
    Where fluid has a conditional block, the parameters are selected between in each step: the numbers are the same.

    References
    ----------
    M. R. Zhang, J. Lucas, G. Hinton, J. Ba, Lookahead optimizer: k steps forward, 1 step back, NeurIPS 2019.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     w = fluid.layers.create_parameter([2], "float32", name="w")
    ...     updates = LookaheadOptimizer(fluid.optimizer.SGD(0.1), alpha=0.5, k=5)
    ...     ops, pairs = updates.minimize(fluid.layers.mean(w))
    """

    def __init__(self, inner_optimizer: Optimizer, alpha: float = 0.5, k: int = 5) -> None:
        refuse_imperative_mode("LookaheadOptimizer")
        self.inner_optimizer = inner_optimizer
        if not 0 <= alpha <= 1:
            raise ProgramError(f"alpha must be from 0 to 1, got {alpha:g}")
        self.alpha, self.k = alpha, positive(k, "k")

    def minimize(self, loss: Variable, startup_program: Program | None = None) -> tuple[list[Operator], ParamsGrads]:
        """`Optimizer.minimize` of the inner optimizer, and the slow parameters after it."""
        ops, pairs = self.inner_optimizer.minimize(loss, startup_program)
        program, startup = loss.block.program, startup_program or default_startup_program()
        with program_guard(program, startup), program.role_guard(Role.OPTIMIZE):
            is_due = self._append_schedule()
            alpha = create_global_var([1], self.alpha, "float32", persistable=True, name="lookahead_alpha")
            for param, _ in pairs:
                self._append_pull(param, startup, alpha, is_due)
        return ops, pairs

    def _append_schedule(self) -> Variable:
        """1 in every k-th step, else 0."""
        k = create_global_var([1], self.k, "int32", persistable=True, name="lookahead_k")
        step = create_global_var([1], 0, "int32", persistable=True, name="lookahead_step")
        increment(step)
        # Integers are divided without a rest, so this is step mod k.
        rest = elementwise_sub(step, elementwise_mul(step / k, k))
        return 1.0 - sign(cast(rest, "float32"))

    def _append_pull(self, param: Any, startup: Program, alpha: Variable, is_due: Variable) -> None:
        name = f"{param.name}@SLOW"
        block, start = param.block, startup.global_block()
        slow = block.create_var(name=name, shape=param.shape, dtype=param.dtype, persistable=True)
        start.create_var(name=name, shape=param.shape, dtype=param.dtype, persistable=True)
        # Appended after the initializer of the parameter, so that both start from the same values.
        start.append_op("assign", {"X": param.name}, {"Out": name})
        if alpha.dtype is not param.dtype:
            alpha = cast(alpha, param.dtype)
        pulled = elementwise_add(elementwise_mul(param, alpha), elementwise_mul(slow, 1.0 - alpha))
        # `where` takes a condition of the shape of its values.
        threshold = fill_constant(param.shape, "float32", 0.5)
        condition = emit("less_than", X=threshold, Y=is_due)
        for var in (slow, param):
            block.append_op("where", {"Condition": condition, "X": pulled, "Y": var}, {"Out": var})
