"""Learning rate and state of an optimizer, for programs and for the imperative mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minigraph.eager.epoch_learning_rate import _LearningRateEpochDecay
from minigraph.eager.guard import to_variable
from minigraph.eager.learning_rate import LearningRateDecay
from minigraph.eager.updates import EagerUpdates
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, caller_site, suggest, warn
from minigraph.ir import Parameter, Program, Role, Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.ir.name_scope import name_scope
from minigraph.ir.variable_operators import is_eager
from minigraph.layer_helper import create_state
from minigraph.layers.tensor import create_global_var
from minigraph.support.arguments import number
from minigraph.support.public import public
from minigraph.support.undo import note
from minigraph.types import DType
from minigraph.unique_name import generate

LearningRate = float | Variable | LearningRateDecay
Parameters = Sequence[Parameter | str] | None

_DECAY_STATE = "LR_Scheduler"
_STEPS = "global_step"


@public
class OptimizerState:
    """Learning rate and state of an optimizer.

    Parameters
    ----------
    learning_rate : float or Variable, float[1], or LearningRateDecay
    parameter_list : sequence of Parameter or str, optional
        What to update.
    name : str, optional
        Prefix of the names of the state.
    updates : EagerUpdates
        Updates of the imperative mode, which have state of their own.
    """

    def __init__(
        self, learning_rate: LearningRate, parameter_list: Parameters, name: str | None, updates: EagerUpdates
    ) -> None:
        if isinstance(learning_rate, Variable) and is_eager(learning_rate):
            learning_rate = float(learning_rate)
        if not isinstance(learning_rate, Variable | LearningRateDecay):
            learning_rate = number(learning_rate, "learning_rate")
        self._rate: float | Variable
        self._learning_rate = learning_rate
        # An iterator, such as a filter of parameters, could be read once only.
        self._parameter_list = list(parameter_list) if isinstance(parameter_list, Iterator) else parameter_list
        self._name = name
        self._dtype = DType.FP32
        self._learning_rate_map: dict[Program, Variable] = {}
        """The learning rate variable of each program; fluid's name, because scripts set one before ``minimize``."""
        self._state_by_program: dict[tuple[int, str, str], Variable] = {}
        """State by program, kind and parameter."""
        self._updates = updates

    # Learning rate

    @property
    def _learning_rate(self) -> LearningRate:
        """The learning rate as it was given, or set since."""
        return self._rate if self._decay is None else self._decay

    @_learning_rate.setter
    def _learning_rate(self, value: LearningRate) -> None:
        self._decay = value if isinstance(value, LearningRateDecay) else None
        self._rate = value.current() if isinstance(value, LearningRateDecay) else value

    def get_lr(self) -> float:
        """The learning rate in use; of a `LearningRateDecay` that of the last update, or else of the first."""
        if isinstance(self._rate, Variable):
            raise ProgramError("the learning rate is a variable of a program", hint="Fetch it with an Executor.")
        return self._rate

    current_step_lr = get_lr

    def set_lr(self, value: float) -> None:
        """Go on with another learning rate; accumulators stay (imperative mode).

        Raises
        ------
        WrongTypeError
            If `value` is no number.
        ProgramError
            If the optimizer has updated a program, where the learning rate is a variable of the scope, or follows a
            `LearningRateDecay`.
        """
        rate = number(value, "the learning rate")
        if self._learning_rate_map and not self._updates.has_programs:
            raise ProgramError(
                "set_lr works in the imperative mode; here the learning rate is a variable of the program",
                hint="Set it in the scope, or make it with layers such as a decay.",
            )
        if self._decay is not None:
            raise ProgramError(
                f"the learning rate follows a {type(self._decay).__name__}",
                hint="Make the optimizer with a float to set it.",
            )  # fmt: skip
        self._follow(rate)

    def _follow(self, rate: float) -> None:
        self._rate = rate
        self._updates.set_learning_rate(rate)

    def _create_global_learning_rate(self) -> None:
        program = default_main_program()
        if program in self._learning_rate_map:
            return
        rate = self._rate
        if isinstance(rate, Variable):
            if rate.block.program is not program:
                raise ProgramError(
                    f"the learning rate {rate} belongs to another program",
                    hint="Give a float, or make the variable in the program to optimize.",
                )  # fmt: skip
        else:
            rate = create_global_var([1], rate, self._dtype, persistable=True, name=generate("learning_rate"))
        self._learning_rate_map[program] = rate
        # If the call fails, its variables are removed from the program, and must be forgotten here as well.
        note(self._learning_rate_map.pop, program)

    def _rate_for(self, param: Parameter) -> Variable:
        """The learning rate times the parameter's own factor."""
        program = default_main_program()
        rate, factor = self._learning_rate_map[program], param.optimize_attr["learning_rate"]
        # As in fluid, a variable takes the place of the learning rate; a number is a factor.
        if isinstance(factor, Variable):
            return factor
        if factor == 1.0:
            return rate
        # Fluid gives the product both roles.
        with program.role_guard(Role.OPTIMIZE | Role.LR_SCHED), name_scope("scale_with_param_lr"):
            return rate * float(factor)

    def _create_param_lr(self, param_and_grad: tuple[Parameter, Variable]) -> Variable:
        """The global learning rate times the parameter's own factor; fluid's name and arguments."""
        return self._rate_for(param_and_grad[0])

    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        """The learning rate of a program, by default the main one, or of the imperative mode; None before an update."""
        if program is None and self._updates.has_programs:
            return to_variable(np.array([self.get_lr()], self._dtype.numpy))
        return self._learning_rate_map.get(program or default_main_program())

    # State

    def _add_accumulator(
        self,
        name: str,
        param: Parameter,
        dtype: Any = None,
        fill_value: float = 0.0,
        shape: Sequence[int] | None = None,
        type: Any = None,
        device: str | None = None,
    ) -> Variable:
        """The state `name` of a parameter, made unless it is there; `type` and `device` serve programs of fluid's."""
        key = (default_main_program().serial, name, param.name)
        if key in self._state_by_program:
            return self._state_by_program[key]
        prefix = f"{self._name}_{name}" if self._name else name
        name = generate(f"{param.name}_{prefix}")
        shape = param.shape if shape is None else shape
        self._state_by_program[key] = create_state(name, shape, dtype or param.dtype, float(fill_value))
        note(self._state_by_program.pop, key)
        return self._state_by_program[key]

    @property
    def _accumulators(self) -> dict[str, dict[str, Variable]]:
        """State by kind and parameter, as scripts read it; of several programs that of the last."""
        found: dict[str, dict[str, Variable]] = {}
        for (_, kind, param), var in self._state_by_program.items():
            found.setdefault(kind, {})[param] = var
        return found

    def get_opti_var_name_list(self) -> list[str]:
        """Names of the state that the optimizer keeps for its parameters, in order of creation."""
        return [var.name for var in self._state_by_program.values()]

    def _get_accumulator(self, name: str, param: Parameter) -> Variable:
        """The state `name` of a parameter.

        Raises
        ------
        NotFoundError
            If there is none.
        """
        # State is filed under the program that was the default one, which is not always that of the parameter.
        for program in (param.block.program, default_main_program()):
            found = self._state_by_program.get((program.serial, name, param.name))
            if found is not None:
                return found
        known = {kind for _, kind, of in self._state_by_program if of == param.name}
        raise NotFoundError(
            f"{type(self).__name__} has no state {name!r} for {param.name}", site=caller_site(),
            hint=suggest(name, known) or "Make it in _create_accumulators, with _add_accumulator.",
        )  # fmt: skip

    # State of the imperative mode

    def state_dict(self) -> dict[str, Any]:
        """Accumulators and learning rate by the names of their variables, as tensors (imperative mode).

        The state of a `LearningRateDecay` is there as ``LR_Scheduler`` and, where it counts steps, ``global_step``.

        Examples
        --------
        >>> import minigraph as paddle
        >>> with paddle.unique_name.guard():
        ...     model = paddle.nn.Linear(2, 1)
        ...     optimizer = paddle.optimizer.Momentum(0.1, parameters=model.parameters())
        >>> sorted(optimizer.state_dict())
        ['learning_rate_0', 'linear_0.b_0_velocity_0', 'linear_0.w_0_velocity_0']
        """
        state = self._updates.state(self._eager_parameters(None))
        if self._decay is not None:
            state[_DECAY_STATE] = self._decay.state_dict()
            if not isinstance(self._decay, _LearningRateEpochDecay):
                state[_STEPS] = to_variable(np.array([self._decay.step_num], "int32"))
        return state

    def set_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` has given, as tensors or arrays (imperative mode).

        What Paddle 1.8 has saved is taken, too, where a constant learning rate is left out: it stays as it is.

        Raises
        ------
        NotFoundError
            If another name is missing, or there is one that this optimizer has not.
        ProgramError
            If a shape or dtype differs. Nothing is changed then.
        """
        if self._decay is not None and _DECAY_STATE not in state_dict:
            raise NotFoundError(f"the state has no {_DECAY_STATE!r}", site=caller_site())
        others = () if self._decay is None else (_DECAY_STATE, _STEPS)
        arrays = {name: value for name, value in state_dict.items() if name not in others}
        self._updates.set_state(self._eager_parameters(None), arrays)
        if self._decay is not None:
            self._decay.set_dict(state_dict[_DECAY_STATE])
        self._rate = self._updates.learning_rate(self._rate)

    set_dict = set_state_dict

    def _wanted(self, parameter_list: Parameters) -> Parameters:
        """The parameters that a call lists, or those of the optimizer if it lists none."""
        if isinstance(parameter_list, list | tuple) and not parameter_list:
            warn("parameter_list is empty: what the optimizer updates by default is updated, as in fluid 1.8.5")
            return self._parameter_list
        return self._parameter_list if parameter_list is None else parameter_list

    def _eager_parameters(self, parameter_list: Parameters) -> list[Any]:
        params = self._wanted(parameter_list)
        if params is None:
            raise ProgramError(
                "the optimizer does not know what to update",
                hint="Give it parameter_list=model.parameters() in the imperative mode.",
            )  # fmt: skip
        for param in params:
            if not is_eager(param):
                raise WrongTypeError(
                    f"{param!r:.60} is no parameter of the imperative mode",
                    hint="Give model.parameters(), or update the program with minimize(loss).",
                )  # fmt: skip
        return list(params)
