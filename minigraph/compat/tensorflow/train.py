"""TensorFlow 1's optimizers: gradients and updates are two steps, and a user clips between them.

::

    grads = optimizer.compute_gradients(cost)
    for i, (g, v) in enumerate(grads):
        if g is not None:
            grads[i] = (tf.clip_by_norm(g, 5), v)
    train_op = optimizer.apply_gradients(grads)

In a program both steps append operators, and running the program trains. In the imperative mode they compute at once.
The updates are those of `minigraph.optimizer`, whose formulas are TensorFlow's, Adam's "epsilon hat" among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from minigraph import optimizer as engine
from minigraph.autodiff.backward import gradients as append_gradients
from minigraph.compat.tensorflow.appending import as_number, check_tensor, note_gradients
from minigraph.eager.guard import grad as eager_gradients
from minigraph.eager.tape import Tape
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Operator, Parameter, Role, Variable
from minigraph.ir.default_programs import default_main_program, default_startup_program, program_guard
from minigraph.ir.name_scope import name_scope
from minigraph.ir.variable_operators import is_eager
from minigraph.support.public import public, refuse_unknown_names
from minigraph.types import product

GradsAndVars = list[tuple[Variable | None, Parameter]]


@public
def trainable_variables(scope: str | None = None) -> list[Parameter]:
    """The trainable parameters of the default main program whose names begin with `scope`, in order of creation."""
    params = default_main_program().all_parameters()
    return [param for param in params if param.trainable and param.name.startswith(scope or "")]


@public
def gradients(
    ys: Variable | Sequence[Variable],
    xs: Variable | Sequence[Variable],
    grad_ys: Variable | Sequence[Variable | None] | None = None,
    name: str = "gradients",
) -> list[Variable | None]:
    """The gradient of the sum of all elements of `ys` for each of `xs`; None where `ys` do not depend on it.

    Parameters
    ----------
    ys, xs : Variable or Tensor, or sequence of them
    grad_ys : Variable or Tensor, or sequence of them or None, optional
        Gradient of each of `ys`. Default: ones.
    name : str
        Label of the operators.

    Examples
    --------
    >>> import numpy as np
    >>> from minigraph.dygraph import to_variable
    >>> x = to_variable(np.array([1.0, 2.0]))
    >>> x.stop_gradient = False
    >>> print(gradients(x * x, [x])[0].numpy())
    [2. 4.]
    """
    targets, sources = _as_list(ys), _as_list(xs)
    if any(map(is_eager, targets)):
        return list(eager_gradients(targets, sources, grad_ys, allow_unused=True))
    with name_scope(name):
        found = append_gradients(targets, sources, grad_ys)
    note_gradients((x, grad) for x, grad in zip(sources, found, strict=True) if isinstance(x, Parameter))
    return found


def _as_list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


@public
class Optimizer:
    """Base of the optimizers.

    `use_locking`, and in `compute_gradients` `gate_gradients`, `aggregation_method` and `colocate_gradients_with_ops`,
    are accepted because TensorFlow has them, where they change no result either.
    """

    GATE_NONE, GATE_OP, GATE_GRAPH = 0, 1, 2

    def __init__(self, use_locking: bool, name: str, updates: engine.Optimizer) -> None:
        if not name:
            raise WrongTypeError(f"name must be a str, got {name!r:.60}")
        self._name, self._updates = name, updates

    def get_name(self) -> str:
        return self._name

    def minimize(
        self,
        loss: Variable | Callable[[], Variable],
        global_step: Variable | None = None,
        var_list: Sequence[Parameter] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Variable | None = None,
    ) -> list[Operator]:
        """`compute_gradients` and then `apply_gradients`.

        Raises
        ------
        ProgramError
            If the loss depends on none of the parameters.
        """
        pairs = self.compute_gradients(
            loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )
        return self.apply_gradients(pairs, global_step, name)

    def compute_gradients(
        self,
        loss: Variable | Callable[[], Variable],
        var_list: Sequence[Parameter] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Variable | None = None,
    ) -> GradsAndVars:
        """The gradient of `loss` for each parameter.

        Parameters
        ----------
        loss : Variable or Tensor, or a function that returns one
            Of more than one element, the sum counts.
        var_list : sequence of Parameter, optional
            Default: all trainable parameters of the program; in the imperative mode those that the loss was computed
            from.
        grad_loss : Variable or Tensor, optional
            Gradient of the loss. Default: ones.

        Returns
        -------
        list of (Variable or Tensor or None, Parameter)
            In order of `var_list`, or of creation. None for a parameter that the loss does not depend on.

        Raises
        ------
        ProgramError
            If there are no parameters.
        WrongTypeError
            If an argument has the wrong type.
        """
        loss = check_tensor(loss() if callable(loss) else loss, f"{self._name}: loss")
        params = _parameters(loss, var_list)
        if is_eager(loss):
            given: Any = [grad_loss]
            return list(zip(eager_gradients([loss], params, given, allow_unused=True), params, strict=True))
        return _gradients_in_a_program(loss, params, grad_loss, self._updates)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Variable | None, Parameter]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> list[Operator]:
        """Update each parameter by its gradient.

        Parameters
        ----------
        grads_and_vars : iterable of (Variable or Tensor or None, Parameter)
            From `compute_gradients`, with gradients clipped or not. Pairs without a gradient are left out.
        global_step : Variable or Tensor of one element, optional
            Counted up by one after the updates.
        name : str, optional
            Label of the operators. Default: the optimizer's name.

        Returns
        -------
        list of Operator
            The updates in the program, which train when it is run; empty in the imperative mode, where they have been
            computed.

        Raises
        ------
        ProgramError
            If there are no pairs, or none has a gradient.
        """
        pairs = _checked_pairs(grads_and_vars, self._name)
        program = pairs[0][0].block.program
        self._updates._dtype = pairs[0][0].dtype
        with program_guard(program, default_startup_program()), name_scope(name or self._name):
            operators = self._updates.apply_gradients(pairs)
            if global_step is not None:
                operators += _count_up(global_step)
        return operators


@public
class GradientDescentOptimizer(Optimizer):
    """Gradient descent: ``var -= learning_rate * grad``.

    Parameters
    ----------
    learning_rate : float, or Variable of one element
    use_locking : bool
        Accepted because TensorFlow has it; updates never overlap.
    name : str
        Label of the operators.
    """

    def __init__(
        self, learning_rate: float | Variable, use_locking: bool = False, name: str = "GradientDescent"
    ) -> None:
        super().__init__(use_locking, name, engine.SGDOptimizer(as_number(learning_rate, "learning_rate")))


@public
class MomentumOptimizer(Optimizer):
    """Gradient descent with momentum: ``accum = momentum * accum + grad; var -= learning_rate * accum``.

    With `use_nesterov`, ``var -= learning_rate * (grad + momentum * accum)``.

    Parameters
    ----------
    learning_rate : float, or Variable of one element
    momentum : float
    use_locking, name
        As in `GradientDescentOptimizer`.
    use_nesterov : bool

    References
    ----------
    I. Sutskever et al., On the importance of initialization and momentum in deep learning, ICML 2013.
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        mu = as_number(momentum, "momentum")
        if isinstance(mu, Variable):
            raise WrongTypeError(f"momentum must be a number, got {mu}")
        updates = engine.MomentumOptimizer(as_number(learning_rate, "learning_rate"), mu, use_nesterov=use_nesterov)
        super().__init__(use_locking, name, updates)


@public
class AdamOptimizer(Optimizer):
    """Adam: steps scaled by running means of the gradient and of its square.

    ``m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g ** 2``, and in step t
    ``var -= learning_rate * sqrt(1 - beta2 ** t) / (1 - beta1 ** t) * m / (sqrt(v) + epsilon)``.

    Parameters
    ----------
    learning_rate : float, or Variable of one element
    beta1, beta2 : float, or Variable of one element
    epsilon : float
        The "epsilon hat" of the paper, just before its section 2.1.
    use_locking, name
        As in `GradientDescentOptimizer`.

    References
    ----------
    D. P. Kingma and J. Ba, Adam: a method for stochastic optimization, ICLR 2015.
    """

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-08,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        rate, first, second = map(as_number, (learning_rate, beta1, beta2), ("learning_rate", "beta1", "beta2"))
        super().__init__(use_locking, name, engine.AdamOptimizer(rate, first, second, epsilon))


def _parameters(loss: Variable, var_list: Sequence[Parameter] | None) -> list[Parameter]:
    if var_list is None:
        known = Tape([loss]).sources() if is_eager(loss) else loss.block.program.all_parameters()
        params = [param for param in known if isinstance(param, Parameter) and param.trainable]
    else:
        params = list(var_list)
    for param in params:
        if not isinstance(param, Parameter):
            raise WrongTypeError(f"var_list holds {param!r:.60}, which is no Parameter")
    if not params:
        raise ProgramError("there are no variables to optimize", hint="Give var_list.")
    return params


def _gradients_in_a_program(
    loss: Variable, params: list[Parameter], grad_loss: Variable | None, updates: engine.Optimizer
) -> GradsAndVars:
    assert loss.shape is not None
    if grad_loss is not None:
        found = append_gradients([loss], params, [grad_loss])
        pairs = list(zip(params, found, strict=True))
    else:
        if product(loss.shape) != 1:
            loss = loss.block.emit("reduce_sum", X=loss, reduce_all=True)
        by_name = {param.name: grad for param, grad in updates.backward(loss, parameter_list=params)}
        pairs = [(param, by_name.get(param.name)) for param in params]
    note_gradients(pairs)
    return [(grad, param) for param, grad in pairs]


def _checked_pairs(given: Iterable[Any], name: str) -> list[tuple[Any, Any]]:
    """The pairs that have a gradient, as (parameter, gradient)."""
    pairs = list(given)
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[1], Parameter):
            raise WrongTypeError(
                f"{name}: grads_and_vars must hold pairs of a gradient and its Parameter, got {pair!r:.60}"
            )
    if not pairs:
        raise ProgramError(f"{name}: grads_and_vars is empty")
    found = [(param, check_tensor(grad, f"{name}: a gradient")) for grad, param in pairs if grad is not None]
    if not found:
        raise ProgramError(
            f"{name}: no gradients provided for any variable",
            details=[str(param) for _, param in pairs],
            hint="Compute the loss from them, and set stop_gradient=False on the variables in between.",
        )
    return found


def _count_up(step: Variable) -> list[Operator]:
    block = step.block
    with block.program.role_guard(Role.OPTIMIZE):
        op = block.append_op("increment", {"X": step}, {"Out": step}, {"step": 1.0})
    return [] if is_eager(step) else [op]


refuse_unknown_names(__name__)
