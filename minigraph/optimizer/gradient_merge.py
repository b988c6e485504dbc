"""Updates every few steps, by what the gradients of these steps sum up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from minigraph.autodiff.backward import ParamsGrads
from minigraph.errors import ProgramError, WrongTypeError, caller_site
from minigraph.initializer import Constant
from minigraph.ir import Operator, Parameter, Program, Role, Variable
from minigraph.ir.default_programs import (
    default_main_program,
    default_startup_program,
    program_guard,
    refuse_imperative_mode,
)
from minigraph.layers.branches import ConditionalBlock
from minigraph.layers.compare import equal
from minigraph.layers.elementwise import elementwise_mod, scale
from minigraph.layers.series import zeros_like
from minigraph.layers.tensor import assign, create_global_var, fill_constant, increment
from minigraph.optimizer.base import Optimizer, Parameters
from minigraph.optimizer.recompute import RecomputeOptimizer
from minigraph.support.public import public
from minigraph.unique_name import generate


@public
class GradientMergeOptimizer:
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
        refuse_imperative_mode("GradientMergeOptimizer")
        if not isinstance(inner_optimizer, Optimizer | RecomputeOptimizer):
            raise WrongTypeError(
                f"inner_optimizer must be an Optimizer, got {inner_optimizer!r:.60}", site=caller_site()
            )
        if isinstance(k_steps, bool) or not isinstance(k_steps, int) or k_steps < 1:
            raise ProgramError(f"k_steps must be a positive integer, got {k_steps!r:.60}", site=caller_site())
        self.inner_optimizer, self.k_steps, self.avg = inner_optimizer, k_steps, avg

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Parameters = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Sequence[Callable[..., None]] | None = None,
    ) -> ParamsGrads:
        """The backward pass of the inner optimizer."""
        return self.inner_optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)

    def apply_gradients(self, params_grads: Sequence[tuple[Parameter, Variable | None]]) -> list[Operator]:
        """Append the sums and, under a condition, what the inner optimizer appends; returns its operators."""
        pairs = [(param, grad) for param, grad in params_grads if grad is not None]
        if not pairs or self.k_steps == 1:
            return self.inner_optimizer.apply_gradients(pairs)
        program = default_main_program()
        with program.role_guard(Role.OPTIMIZE):
            sums = [(param, self._append_sum(param, grad)) for param, grad in pairs]
            with ConditionalBlock([self._append_schedule()], is_scalar_condition=True).block():
                merged = [(param, scale(total, 1 / self.k_steps if self.avg else 1.0)) for param, total in sums]
                ops = self.inner_optimizer.apply_gradients(merged)
                for _, total in sums:
                    zeros_like(total, out=total)
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

    def _append_schedule(self) -> Variable:
        """True in every k-th step."""
        k = fill_constant([1], "int32", self.k_steps)
        step = create_global_var([1], 0, "int32", persistable=True, name=generate("gradient_merge_step"))
        increment(step)
        assign(elementwise_mod(step, k), step)
        return equal(step, fill_constant([1], "int32", 0))

    def _append_sum(self, param: Parameter, grad: Variable) -> Variable:
        block, startup = default_main_program().global_block(), default_startup_program().global_block()
        name = generate(f"{param.name}@GRAD@GradientMerge")
        total = block.create_var(name=name, shape=param.shape, dtype=param.dtype, persistable=True)
        startup.create_var(name=name, shape=param.shape, dtype=param.dtype, persistable=True, initializer=Constant(0.0))
        block.append_op("sum", {"X": [total, grad]}, {"Out": total})
        return total
