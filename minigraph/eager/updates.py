"""Updates in the imperative mode: an optimizer's own static operators, run on the current parameters.

The code of the static mode appends clipping, weight decay and updates to a program, once for each set of parameters
that have gradients. That program is run on their values. So both modes give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from minigraph import unique_name
from minigraph.eager.tape import with_origin
from minigraph.errors import NonfiniteError, NotFoundError, ProgramError, caller_site, suggest
from minigraph.executor import Executor
from minigraph.ir import Block, Parameter, Program, Variable
from minigraph.ir.default_programs import program_guard
from minigraph.runtime.scope import Scope
from minigraph.support.interrupts import deferred
from minigraph.types import TensorType, as_dtype

count = 0
"""Number of updates in the imperative mode in this process. Files saved at one count belong together."""


_MOST_KEPT = 1 << 18
"""Maximum elements of parameters whose values the scope keeps beside them: to look up its state again takes longer."""


class EagerUpdates:
    """The programs of one optimizer, and the state that they share.

    Parameters
    ----------
    append_updates : callable
        Appends the updates of (parameter, gradient) pairs to the default main program, and returns the learning rate.
    settings : callable
        Returns the settings of the optimizer that the programs depend on.

    Attributes
    ----------
    scope : Scope
        Learning rate and accumulators, by the names they have in the static mode.
    """

    def __init__(self, append_updates: Callable[[Any], Variable], settings: Callable[[], Hashable]) -> None:
        self._append_updates, self._settings = append_updates, settings
        self.scope = Scope()
        self._programs: dict[Any, Program] = {}
        self._state: dict[str, TensorType] = {}
        self._rate_name: str | None = None
        self._executor: Executor | None = None
        self._given: dict[str, Any] = {}
        """Values that the latest update gave to parameters, by name; the scope has equal ones, which need no copy."""

    @property
    def has_programs(self) -> bool:
        """Whether anything was updated or prepared in the imperative mode."""
        return bool(self._programs)

    def apply(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Clip, decay and update: the parameters of `pairs` get new values."""
        global count
        count += 1
        program, executor = self._prepare(pairs)
        for param, _ in pairs:
            held, holder = param._held(), self.scope.var(param.name)
            if held is not self._given.get(param.name):
                # A copy, because results computed from the old value may still be differentiated.
                holder.value, holder.place = held.copy(), executor.place
        keeps = sum([param.array.size for param, _ in pairs]) <= _MOST_KEPT

        def update() -> None:
            for param, _ in pairs:
                found = self.scope.var(param.name).value
                if keeps:
                    found = self._given[param.name] = found.copy()
                param.array = found

        try:
            executor.compute(program, {_grad_name(p): grad._held() for p, grad in pairs}, (), self.scope, then=update)
        except NonfiniteError as error:
            raise with_origin(error, *next(pair for pair in pairs if pair[0].name == error.param)) from error

    # State

    def state(self, params: Sequence[Any]) -> dict[str, Any]:
        """Copies of all state for `params`, as tensors by name."""
        self._prepare_all(params)
        block = params[0].block
        return {name: block.tensor(self.scope.var(name).value.copy()) for name in self._state}

    def set_state(self, params: Sequence[Any], state: Mapping[str, Any]) -> None:
        """Replace all state, but for a learning rate that `state` lacks.

        See `minigraph.optimizer.Optimizer.set_state_dict`.
        """
        executor = self._prepare_all(params)
        arrays = {name: np.asarray(value) for name, value in state.items()}
        # All names and types are checked before the first value is set.
        for name in [*self._state, *arrays]:
            if (name not in arrays and name != self._rate_name) or name not in self._state:
                raise NotFoundError(
                    f"the {'state' if name in self._state else 'optimizer'} has no {name!r}", site=caller_site(),
                    hint=suggest(name, arrays if name in self._state else self._state),
                )  # fmt: skip
        for name, array in arrays.items():
            found, expected = TensorType(as_dtype(array.dtype), array.shape), self._state[name]
            if found != expected:
                raise ProgramError(f"{name} is {expected}, the state has {found}")
        with deferred():
            for name, array in arrays.items():
                self._set(name, executor.place.xp.array(array))

    def learning_rate(self, default: Any) -> Any:
        """The learning rate as a number, `default` as long as nothing was updated."""
        return default if self._rate_name is None else float(self.scope.var(self._rate_name).value.item())

    def set_learning_rate(self, value: float) -> None:
        """Use another learning rate from now on; one of updates yet to be prepared is the optimizer's."""
        if self._rate_name is not None:
            old = self.scope.var(self._rate_name).value
            # Computed from the old array, so that it stays on its device.
            self._set(self._rate_name, old * 0 + old.dtype.type(value))

    def _set(self, name: str, array: Any) -> None:
        assert self._executor is not None
        holder = self.scope.var(name)
        holder.value, holder.place = array, self._executor.place

    # Programs

    def _prepare_all(self, params: Sequence[Any]) -> Executor:
        """Make the state of all `params`, even if they have had no gradient yet."""
        trained = sorted((param for param in params if param.trainable), key=lambda param: param.name)
        if not trained:
            raise ProgramError("the optimizer has no parameter to update")
        return self._prepare([(param, param) for param in trained])[1]

    def _prepare(self, pairs: Sequence[tuple[Any, Any]]) -> tuple[Program, Executor]:
        """The program that updates these parameters, and what runs it."""
        if self._executor is None:
            self._executor = Executor(pairs[0][0].block.place)
        key = (self._settings(), *[(_asked_for(param), grad.kind) for param, grad in pairs])
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._build(pairs, self._executor)
        return program, self._executor

    def _build(self, pairs: Sequence[tuple[Any, Any]], executor: Executor) -> Program:
        names = [param.name for param, _ in pairs]
        if len(set(names)) < len(names):
            raise ProgramError(
                f"two parameters of the optimizer have one name: {', '.join(sorted(names))}",
                hint="Give them names with ParamAttr(name=...).",
            )  # fmt: skip
        main, startup = Program(), Program()
        # Numbered from the start, so that state has the names that it has in the static mode.
        with program_guard(main, startup), unique_name.guard():
            rate = self._append_updates([_mirrored(main.global_block(), p, g) for p, g in pairs])
        self._rate_name = rate.name
        fresh = Scope()
        executor.run(startup, scope=fresh)
        with deferred():
            # Programs for other sets of parameters share what state there is; only new state is initialized.
            for name in fresh.local_var_names():
                if name not in self._state:
                    value = fresh.var(name).value
                    self._state[name] = TensorType(as_dtype(value.dtype), tuple(value.shape))
                    self._set(name, value)
        return main


def _asked_for(param: Any) -> Any:
    """The settings of a parameter that its update depends on."""
    factor = param.optimize_attr["learning_rate"]
    return param.name, param.tensor_type, param.need_clip, param.gradient_clip, param.regularizer, factor


def _grad_name(param: Any) -> str:
    return f"{param.name}@GRAD"


def _mirrored(block: Block, param: Any, grad: Any) -> tuple[Parameter, Variable]:
    twin = param._copy_to(block)
    # The same objects, because a strategy may be equal to itself only, and equal ones clip together.
    twin.regularizer, twin.gradient_clip = param.regularizer, param.gradient_clip
    block._add(twin)
    name = _grad_name(param)
    data = block.create_var(name=name, shape=grad.shape, dtype=grad.dtype, type=grad.kind, is_data=True)
    return twin, data
