"""The base of the optimizers.

``minimize`` is ``backward`` and then ``apply_gradients``, which sorts the pairs by parameter name, clips the gradients,
adds weight decay to the clipped gradients, and appends one update per parameter, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

from minigraph.autodiff.backward import ParamsGrads, append_backward
from minigraph.clip import GradientClipBase, append_gradient_clip_ops, error_clip_callback
from minigraph.eager.updates import EagerUpdates
from minigraph.errors import ProgramError, WrongTypeError, warn
from minigraph.ir import Block, Operator, Parameter, Program, Role, Variable
from minigraph.ir.default_programs import default_main_program, default_startup_program, is_imperative, program_guard
from minigraph.ir.name_scope import name_scope
from minigraph.ir.variable_operators import is_eager
from minigraph.optimizer.state import LearningRate, OptimizerState, Parameters
from minigraph.passes import events
from minigraph.passes.gradient_clip import skip_updates
from minigraph.regularizer import L2DecayRegularizer, WeightDecayRegularizer, append_regularization_ops
from minigraph.support.gc_pause import without_collector
from minigraph.support.public import public


def _distributed_tables(program: Program) -> set[str]:
    """Names of the tables that ``lookup_table`` reads with `is_distributed`."""
    lookups = program.global_block().ops.of_type("lookup_table")
    return {op.inputs["W"][0] for op in lookups if op.attr("is_distributed")}


@public
class Optimizer(OptimizerState):
    """Base of the optimizers.

    Parameters
    ----------
    learning_rate : float or Variable, float[1], or LearningRateDecay
        A `LearningRateDecay` is for the imperative mode. A tensor of that mode gives the value that it has now.
    parameter_list : sequence of Parameter or str, optional
        What to update. Default: all trainable parameters of the loss's program.
    regularization : WeightDecayRegularizer, optional
        Decay for the parameters that have none of their own.
    grad_clip : GradientClipBase, optional
        Clip for all gradients; wins over `minigraph.clip.set_gradient_clip`.
    name : str, optional
        Prefix of the names of the optimizer's state.
    parameters
        Paddle 2's name of `parameter_list`.
    weight_decay : float or WeightDecayRegularizer, optional
        Paddle 2's name of `regularization`; a number is the weight of an L2 decay.

    Raises
    ------
    WrongTypeError
        If an argument has the wrong type.
    ProgramError
        If an argument is given by both of its names.
    """

    def __init_subclass__(cls) -> None:
        # Fluid's names of the kinds, such as `_velocity_acc_str`, which classes derived by users read.
        for kind in (*cls._state.values(), *cls._read_state.values()):
            setattr(cls, f"_{kind.strip('_').removesuffix('_acc')}_acc_str", kind)

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        parameter_list: Parameters = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        *,
        parameters: Parameters = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
    ) -> None:
        parameter_list = _one_of("parameter_list", parameter_list, "parameters", parameters)
        updates = EagerUpdates(self._append_eager_updates, self._eager_settings)
        super().__init__(learning_rate, parameter_list, name, updates)
        if isinstance(weight_decay, Real):
            weight_decay = L2DecayRegularizer(float(weight_decay))
        self.regularization = _one_of("regularization", regularization, "weight_decay", weight_decay)
        self._grad_clip = grad_clip
        self._op_attrs: dict[str, Any] = {}
        """Attributes of the operator that updates a parameter."""

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Parameters = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        *,
        parameters: Parameters = None,
    ) -> tuple[list[Operator], ParamsGrads]:
        """Append backward pass and updates for `loss` to its program.

        In the imperative mode the parameters are updated by the gradients that they have: call ``loss.backward()``
        first.

        Parameters
        ----------
        loss : Variable, float[1]
        startup_program : Program, optional
            Gets the start values of the optimizer's state. Default: the default startup program.
        parameter_list, no_grad_set
            As in `minigraph.autodiff.backward.append_backward`.
        parameters
            Paddle 2's name of `parameter_list`.

        Returns
        -------
        (list of Operator, list of (Parameter, Variable))
            The update operators, and the pairs with the gradients before clipping.
        """
        parameter_list = _one_of("parameter_list", parameter_list, "parameters", parameters)
        params_grads = self.backward(loss, startup_program, parameter_list, no_grad_set)
        if not params_grads and not is_eager(loss):
            warn(f"minimize updates nothing: {loss.name} depends on no parameter that is trained")
        return self.apply_optimize(loss, startup_program, params_grads), params_grads

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Parameters = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Sequence[Callable[..., None]] | None = None,
    ) -> ParamsGrads:
        """Append the backward pass; error clips of variables are applied, parameters that are not trainable are cut.

        In the imperative mode, where ``loss.backward()`` is that pass, the pairs of what it has found.
        """
        if is_eager(loss):
            return self._eager_gradients(parameter_list)
        cut = _with_fixed_parameters(loss, no_grad_set)
        pairs = append_backward(loss, self._wanted(parameter_list), cut, [error_clip_callback, *(callbacks or ())])
        # Learning rates are made with the dtype of the loss.
        self._dtype = loss.dtype
        return pairs

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: ParamsGrads
    ) -> list[Operator]:
        """`apply_gradients` on the program of `loss`."""
        with program_guard(loss.block.program, startup_program or default_startup_program()):
            return self.apply_gradients(params_grads)

    def apply_gradients(self, params_grads: Sequence[tuple[Parameter, Variable | None]]) -> list[Operator]:
        """Append clipping, weight decay and updates; returns the update operators.

        Pairs without a gradient are left out.
        """
        # By name, as in fluid, because the order of pairs is that of all operators that follow.
        pairs = sorted(((p, g) for p, g in params_grads if g is not None), key=lambda pair: pair[0].name)
        if not pairs:
            if self._decay is not None:  # counts each call, as in fluid
                self._follow(self._decay())
            elif not is_imperative():
                self._create_global_learning_rate()  # as in fluid, whose saved files have it
            return []
        others = [param for param, _ in pairs if not isinstance(param, Parameter) and not is_eager(param)]
        if others:
            raise WrongTypeError(
                f"an optimizer updates parameters; {others[0]} is none",
                hint=f"Leave {others[0].name} out of parameter_list, or create it with layers.create_parameter.",
            )
        if is_eager(pairs[0][0]):
            if self._decay is not None:
                self._follow(self._decay())
            self._updates.apply(pairs)
            return []
        if self._decay is not None:
            raise ProgramError(
                f"{type(self._decay).__name__} is for the imperative mode",
                hint="Let layers compute the learning rate of a program, such as layers.noam_decay.",
            )  # fmt: skip
        return self.append_updates(pairs)

    @without_collector
    def append_updates(self, pairs: ParamsGrads) -> list[Operator]:
        """`apply_gradients` for pairs of the default main program, sorted and each with a gradient."""
        distributed = _distributed_tables(default_main_program())
        descents = [self._append_descent(*pair) for pair in pairs if pair[0].name in distributed]
        if descents:
            pairs = [pair for pair in pairs if pair[0].name not in distributed]
        clipped = self._clip(pairs)
        decayed = append_regularization_ops(clipped, self.regularization)
        with events.step(self, default_main_program()):
            updated = [(p, g) for p, g in decayed if g is not None and p.trainable]
            return [*(self._append_updates(updated) if updated or not descents else ()), *descents]

    def _append_descent(self, param: Parameter, grad: Variable) -> Operator:
        """Append the update of a distributed table, in front of clips and decay, which leave it out, as in fluid."""
        left_out = (self._grad_clip, param.gradient_clip, self.regularization, param.regularizer)
        if self.type != "sgd" or any(each is not None for each in left_out):
            warn(
                f"{param.name} is a distributed table: as in fluid its update is plain gradient descent, without "
                f"{type(self).__name__}'s rule, clip and decay. Leave is_distributed out to train it like the others"
            )
        program = default_main_program()
        with program.role_guard(Role.OPTIMIZE, (param, grad)), name_scope("optimizer"):
            self._create_global_learning_rate()
            inputs = {"Param": param, "Grad": grad, "LearningRate": self._rate_for(param)}
            return program.global_block().append_op("sgd", inputs, {"ParamOut": param})

    def _clip(self, pairs: ParamsGrads) -> ParamsGrads:
        if self._grad_clip is None:
            return append_gradient_clip_ops(pairs)
        passed_over = [param.name for param, _ in pairs if param.gradient_clip is not None]
        if passed_over:
            warn(f"the optimizer's grad_clip wins over set_gradient_clip for {', '.join(passed_over)}")
        return self._grad_clip(pairs)

    def _append_updates(self, pairs: ParamsGrads) -> list[Operator]:
        program = default_main_program()
        block = program.current_block()
        self._warn_of_updates(block, pairs)
        first = len(block.ops)
        # In fluid's order, because variables are numbered as they are created.
        self._create_accumulators(block, [param for param, _ in pairs])
        self._create_global_learning_rate()
        for pair in pairs:
            with program.role_guard(Role.OPTIMIZE, pair), name_scope("optimizer"):
                self._append_optimize_op(block, pair)
        self._finish_update(block, pairs)
        # Clips with the policy ``skip`` stand before the updates, and could not know them.
        skip_updates(block, [op for op in block.ops[first:] if "ParamOut" in op.outputs])
        return block.ops[first:]

    def _warn_of_updates(self, block: Block, pairs: ParamsGrads) -> None:
        """Warn of parameters that the program updates already."""
        wanted = {param.name for param, _ in pairs}
        updated = {
            name: op.site for op in block.ops if op.role & Role.OPTIMIZE for name in op.outputs.get("ParamOut", ())
            if name in wanted
        }  # fmt: skip
        if updated:
            first = min(updated)
            warn(
                f"{len(updated)} parameters, such as {first}, are updated already, by what was made at "
                f"{updated[first]}: each run will update them twice. Call minimize once for each program, or give each "
                "call its parameter_list"
            )

    # Subclasses define the operator and its state, or else the methods that have fluid's names

    type = ""
    """Type of the operator that updates a parameter."""

    _state: ClassVar[Mapping[str, str]] = {}
    """State that the operator writes over: its slots, and the kinds of accumulators in them."""

    _read_state: ClassVar[Mapping[str, str]] = {}
    """State that the operator only reads."""

    _has_rate = True
    """Whether the operator has a learning rate."""

    def _create_state(self, block: Block, param: Parameter) -> None:
        """Make the state that the update of `param` needs."""
        for kind in self._state.values():
            self._add_accumulator(kind, param)

    def _append_update(self, block: Block, param: Parameter, grad: Variable) -> Operator:
        """Append the update of `param`."""
        if not self.type:
            raise TypeError(f"{type(self).__name__} does not define its update, _append_optimize_op")
        state = {slot: self._get_accumulator(kind, param) for slot, kind in self._state.items()}
        inputs = {"Param": param, "Grad": grad, **state, **self._inputs_besides()}
        inputs |= {slot: self._get_accumulator(kind, param) for slot, kind in self._read_state.items()}
        if self._has_rate:
            inputs["LearningRate"] = self._rate_for(param)
        # Fluid's ftrl reads SquaredAccumulator and writes SquaredAccumOut.
        outputs = {f"{slot.replace('Accumulator', 'Accum')}Out": var for slot, var in state.items()}
        return block.append_op(self.type, inputs, {"ParamOut": param, **outputs}, self._attrs_for(param))

    def _inputs_besides(self) -> dict[str, Variable]:
        """Further inputs of the operator that all parameters share, after the learning rate."""
        return {}

    def _attrs_for(self, param: Parameter) -> Mapping[str, Any]:
        """Attributes of the operator that updates `param`."""
        return self._op_attrs

    def _create_accumulators(self, block: Block, parameters: Sequence[Parameter]) -> None:
        """Make the state that the updates of `parameters` need."""
        for param in parameters:
            self._create_state(block, param)

    def _append_optimize_op(self, block: Block, param_and_grad: tuple[Parameter, Variable]) -> Operator:
        """Append the update of a parameter."""
        return self._append_update(block, *param_and_grad)

    def _finish_update(self, block: Block, parameters_and_grads: ParamsGrads) -> None:
        """Append what follows all updates."""

    # The imperative mode

    def step(self) -> None:
        """Update the parameters by the gradients that they have now (imperative mode)."""
        self.apply_gradients(self._eager_gradients(None))

    def clear_grad(self, set_to_zero: bool = True) -> None:
        """Set the gradients of the parameters to zero, or to None (imperative mode)."""
        for param in self._eager_parameters(None):
            param.clear_gradient(set_to_zero)

    clear_gradients = clear_grad

    def _append_eager_updates(self, pairs: ParamsGrads) -> Variable:
        """`append_updates` for the copies of eager parameters in a program; returns the learning rate."""
        self._dtype = pairs[0][0].dtype
        self.append_updates(pairs)
        return self._learning_rate_map[default_main_program()]

    def _eager_settings(self) -> tuple[Any, ...]:
        return self.regularization, self._grad_clip

    def _eager_gradients(self, parameter_list: Parameters) -> ParamsGrads:
        params = self._eager_parameters(parameter_list)
        pairs = [(param, param.grad) for param in params if param.trainable and param.grad is not None]
        if not pairs:
            warn("nothing is updated, because no parameter has a gradient: call loss.backward() first")
        return pairs


def _one_of(fluid_name: str, fluid: Any, paddle_name: str, paddle: Any) -> Any:
    if fluid is not None and paddle is not None:
        raise ProgramError(f"{fluid_name} and {paddle_name} are two names of one argument")
    return paddle if fluid is None else fluid


def _with_fixed_parameters(loss: Variable, no_grad_set: Iterable[Variable | str] | None) -> Any:
    """`no_grad_set` and the parameters that are not trainable: nothing would read their gradients."""
    if not isinstance(loss, Variable) or isinstance(no_grad_set, str):
        return no_grad_set  # append_backward refuses either
    fixed = [param for param in loss.block.program.all_parameters() if not param.trainable]
    return [*(no_grad_set or ()), *fixed]
