"""Updates every few steps, by what the gradients of these steps sum up to."""

from __future__ import annotations

from collections.abc import Sequence

from minigraph.ir import Operator, Parameter, Role, Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.layer_helper import create_state
from minigraph.layers.branches import ConditionalBlock
from minigraph.layers.compare import equal
from minigraph.layers.elementwise import elementwise_mod, scale
from minigraph.layers.series import zeros_like
from minigraph.layers.tensor import assign, create_global_var, fill_constant, increment
from minigraph.optimizer.base import Optimizer
from minigraph.optimizer.recompute import RecomputeOptimizer
from minigraph.optimizer.wrapping import WrappedOptimizer, positive
from minigraph.support.public import public
from minigraph.unique_name import generate


@public
class GradientMergeOptimizer(WrappedOptimizer):
    """Another optimizer, which updates every `k_steps` steps only, as if their batches were one.

    Gradients are added up in ``<parameter>@GRAD@GradientMerge``. Every `k_steps` steps a conditional block clips the
    sum, decays weights, updates the parameters and sets the sum back to zero; in the other steps nothing of it runs.
    Learning rates that layers compute go on with every step.

    Parameters
    ----------
    inner_optimizer : Optimizer or RecomputeOptimizer
    k_steps : int
        At least 1.
    avg : bool
        Whether the sum is divided by `k_steps`: the gradient of the mean over all batches.

    Raises
    ------
    WrongTypeError, ProgramError
        If an argument is not as said; in the imperative mode.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
    ...     g = fluid.data("g", [1])
    ...     zero = fluid.initializer.Constant(0.0)
    ...     w = fluid.layers.create_parameter([1], "float32", name="w", default_initializer=zero)
    ...     updates = GradientMergeOptimizer(fluid.optimizer.SGD(1.0), k_steps=2)
    ...     ops, pairs = updates.minimize(fluid.layers.reduce_sum(w * g))
    ...     executor = fluid.Executor()
    ...     executor.run(fluid.default_startup_program())
    ...     [executor.run(feed={"g": np.array([v], "float32")}, fetch_list=[w])[0].item() for v in (1, 3, 5, 7)]
    []
    [0.0, -2.0, -2.0, -8.0]
    """

    def __init__(self, inner_optimizer: Optimizer | RecomputeOptimizer, k_steps: int = 1, avg: bool = True) -> None:
        super().__init__(inner_optimizer)
        self.k_steps, self.avg = positive(k_steps, "k_steps"), avg

    def apply_gradients(self, params_grads: Sequence[tuple[Parameter, Variable | None]]) -> list[Operator]:
        """Append the sums and, under a condition, what the inner optimizer appends; returns its operators."""
        pairs = [(param, grad) for param, grad in params_grads if grad is not None]
        if not pairs or self.k_steps == 1:
            return self.inner_optimizer.apply_gradients(pairs)
        with default_main_program().role_guard(Role.OPTIMIZE):
            sums = [(param, self._append_sum(param, grad)) for param, grad in pairs]
            with ConditionalBlock([self._append_schedule()], is_scalar_condition=True).block():
                merged = [(param, scale(total, 1 / self.k_steps if self.avg else 1.0)) for param, total in sums]
                # Inside the block, so that clips and decay see the merged gradient, once.
                ops = self.inner_optimizer.apply_gradients(merged)
                for _, total in sums:
                    zeros_like(total, out=total)
        return ops

    def _append_schedule(self) -> Variable:
        """Append a condition that is true in every k-th step."""
        k = fill_constant([1], "int32", self.k_steps)
        step = create_global_var([1], 0, "int32", persistable=True, name=generate("gradient_merge_step"))
        increment(step)
        # Below k, so that it never overflows.
        assign(elementwise_mod(step, k), step)
        return equal(step, fill_constant([1], "int32", 0))

    def _append_sum(self, param: Parameter, grad: Variable) -> Variable:
        total = create_state(generate(f"{param.name}@GRAD@GradientMerge"), param.shape, param.dtype)
        total.block.append_op("sum", {"X": [total, grad]}, {"Out": total})
        return total
