"""Base of the clipping strategies, and the operators that several of them append."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

from minigraph.clip.labels import labelled
from minigraph.clip.nonfinite import check_policy, guard
from minigraph.clip.statistics import measure
from minigraph.eager.block import EagerBlock
from minigraph.errors import ClipError, OpError, WrongTypeError
from minigraph.ir import Block, Parameter, Role, Variable
from minigraph.ir.default_programs import default_startup_program, program_guard
from minigraph.ir.name_scope import name_scope
from minigraph.ir.printable import Strategy
from minigraph.ir.variable_operators import is_eager
from minigraph.passes.gradient_clip import clip_pairs
from minigraph.support.gc_pause import without_collector
from minigraph.support.public import public, public_but
from minigraph.types import DType, same_shape
from minigraph.unique_name import generate

__all__ = ["GradientClipBase"]

NeedClip = Callable[[Parameter], bool] | None
ParamsGrads = list[tuple[Parameter, Variable]]


@public_but("wants")
@dataclass(frozen=True, kw_only=True, init=False)
class GradientClipBase(Strategy):
    """Base of the clipping strategies.

    Subclasses are frozen dataclasses with a field ``need_clip`` and a method `emit`. Subclasses written for fluid work,
    too: they have an ``__init__`` that passes ``need_clip`` on, and a method ``_static_clip``, which takes and returns
    pairs as `__call__` does, or ``_process_context`` and ``_create_operators``.

    Parameters
    ----------
    need_clip : callable, optional
        Called with each Parameter; says whether its gradient is to be clipped.
    nonfinite : {'propagate', 'raise', 'zero', 'skip'}
        Policy for gradients that are NaN or infinite; see `minigraph.clip.nonfinite`.
    telemetry : bool
        Whether the program records norms and factors; see `minigraph.clip.telemetry`.
    """

    nonfinite: str = "propagate"
    telemetry: bool = False

    is_joint: ClassVar[bool] = False
    """Whether one factor clips all gradients of a group."""

    _has_hooks: ClassVar[bool] = False
    """Whether fluid's methods, and not `emit`, say how the strategy clips."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # The nearest class that defines a way to clip decides: a subclass of either kind may define the other.
        if "emit" in cls.__dict__:
            cls._has_hooks = False
        elif "_static_clip" in cls.__dict__ or "_create_operators" in cls.__dict__:
            cls._has_hooks = True

    def __init__(self, need_clip: NeedClip = None, *, nonfinite: str = "propagate", telemetry: bool = False) -> None:
        self._settle(need_clip=need_clip, nonfinite=nonfinite, telemetry=telemetry)
        self.__post_init__()

    _checks: ClassVar[Mapping[str, Callable[[Any, str], Any]]] = {}
    """Functions that check fields and convert them, by the names of the fields."""

    def __post_init__(self) -> None:
        check_policy(self.nonfinite)
        check_flag(self.telemetry, "telemetry")
        check_need_clip(self._need_clip_func)
        for name, check in self._checks.items():
            self._settle(**{name: check(getattr(self, name), name)})

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        """Append the operators that clip the gradients of `pairs` together; returns the clipped gradients in order."""
        raise TypeError(f"{type(self).__name__} does not define emit")

    def insert(self, block: Block, pairs: ParamsGrads, **emit_options: Any) -> list[Variable]:
        """Append the guard against nonfinite values, the clip and the telemetry; returns the clipped gradients.

        `emit_options` are passed on to `emit`.
        """
        if isinstance(block, EagerBlock):
            # It computes at once: the operators go to a program, once for each group, and the program is run.
            return block.emit_group(self, partial(self.insert, **emit_options), pairs)
        guarded = guard(block, pairs, self.nonfinite)
        # `role_vars` name the gradients of the backward pass, not the guarded ones.
        raw = {new.name: old.name for (_, new), (_, old) in zip(guarded, pairs, strict=True) if new is not old}
        emit = self._emit_by_hooks if self._has_hooks else self.emit
        with block.program.standing_for(raw), labelled(self):
            try:
                clipped = emit(block, guarded, **emit_options)
            except OpError as error:
                raise self._in_its_name(error, guarded) from error
            self._check(clipped, guarded)
            if self.telemetry:
                self._measure(block, guarded, clipped)
        return clipped

    def _in_its_name(self, error: OpError, pairs: ParamsGrads) -> ClipError:
        """Return the error of an operator as an error of the strategy, which is what the user has written."""
        grads = ", ".join(str(grad) for _, grad in pairs[:3])
        return ClipError(
            f"{self!r} cannot clip {grads}",
            details=[error.message.partition(": ")[2] or error.message],
            hint=error.hint or "Give values that the dtype of the gradients can hold.",
        )

    def _check(self, clipped: Any, pairs: ParamsGrads) -> None:
        """Raise unless `clipped` has one variable for each gradient, of its type."""
        name = f"{type(self).__name__}.emit"
        if not isinstance(clipped, list | tuple) or not all(isinstance(each, Variable) for each in clipped):
            raise WrongTypeError(
                f"{name} must return a list of Variables, got {clipped!r:.80}",
                hint="Return the clipped gradients in order.",
            )  # fmt: skip
        if len(clipped) != len(pairs):
            raise ClipError(
                f"{name} was given {len(pairs)} gradients and returned {len(clipped)}",
                hint="Return one clipped gradient for each pair, in order.",
            )  # fmt: skip
        for (_, grad), after in zip(pairs, clipped, strict=True):
            # A gradient without dimensions, of the imperative mode, may come back as a vector.
            shapes = (grad.shape or (1,), after.shape or (1,))
            if after.dtype is not grad.dtype or not same_shape(*shapes):
                raise ClipError(
                    f"{name} returned {after} for {grad}",
                    hint="Return a clipped gradient of the shape and dtype of the gradient.",
                )

    def _measure(self, block: Block, pairs: ParamsGrads, clipped: list[Variable]) -> None:
        # Strategies without an order of their own, such as those by value, are measured by the L2 norm.
        p = getattr(self, "p", 2.0)
        if self.is_joint:
            measure(block, "global_clip", pairs, clipped, p)
            return
        for pair, after in zip(pairs, clipped, strict=True):
            measure(block, f"{pair[0].name}_clip", [pair], [after], p)

    def group_key(self) -> Any:
        """Return the key by which gradients are grouped: those with equal keys are clipped together."""
        return self

    def check_group(self, other: Any, param: Parameter) -> None:
        """Raise unless `other`, the strategy of `param` in the same group, agrees with this one."""

    def wants(self, param: Parameter) -> bool:
        """Whether the strategy concerns `param`: by its ``need_clip`` field and this strategy's function.

        In the imperative mode tensors that are no parameters may be clipped, too; they have no such field.
        """
        need_clip = self._need_clip_func
        return getattr(param, "need_clip", True) and (need_clip is None or bool(need_clip(param)))

    @without_collector
    def __call__(self, params_grads: Sequence[tuple[Parameter, Variable | None]]) -> ParamsGrads:
        """Append the clip operators for (parameter, gradient) pairs to the gradients' own program.

        Pairs whose gradient is None are left out of the result; parameters that need no clip keep their gradient. In
        the imperative mode the gradients are clipped at once.
        """
        pairs = [(param, grad) for param, grad in params_grads if grad is not None]
        if self.nonfinite == "skip" and any(is_eager(grad) for _, grad in pairs):
            raise ClipError(
                "nonfinite='skip' concerns updates, which a call in the imperative mode does not see",
                hint="Give the strategy to the optimizer, as grad_clip=.",
            )
        # A strategy written for fluid may compute with tensors of the imperative mode by itself.
        if type(self)._dygraph_clip is not GradientClipBase._dygraph_clip and any(is_eager(g) for _, g in pairs):
            return self._dygraph_clip(pairs)
        return clip_pairs(pairs, lambda param: self if self.wants(param) else None)

    # Fluid's words

    def _static_clip(self, params_grads: Sequence[tuple[Parameter, Variable | None]]) -> ParamsGrads:
        """Return the pairs with clipped gradients, without pairs that have no gradient; a subclass may define this."""
        pairs = [(param, grad) for param, grad in params_grads if grad is not None]
        chosen = [pair for pair in pairs if self.wants(pair[0])]
        if not chosen:
            return pairs
        block = chosen[0][1].block
        with block.program.role_guard(Role.OPTIMIZE | Role.CLIP), name_scope("gradient_clip"):
            clipped = self.emit(block, chosen)
        by_name = {param.name: grad for (param, _), grad in zip(chosen, clipped, strict=True)}
        return [(param, by_name.get(param.name, grad)) for param, grad in pairs]

    def _dygraph_clip(self, params_grads: Sequence[tuple[Parameter, Variable | None]]) -> ParamsGrads:
        """Clip at once in the imperative mode, for a call; updates use `_static_clip`."""
        return self(params_grads)

    def _process_context(self, context: dict[Any, Any], param: Parameter, grad: Variable) -> None:
        """See each pair, with one dictionary for all, before `_create_operators`; a subclass may define this."""

    def _create_operators(self, param: Parameter, grad: Variable) -> tuple[Parameter, Variable]:
        """Return the pair with the clipped gradient; a subclass may define this."""
        return self._static_clip([(param, grad)])[0]

    @property
    def _need_clip_func(self) -> NeedClip:
        """Return the field ``need_clip``; a strategy written for fluid may lack it."""
        return getattr(self, "need_clip", None)

    def _emit_by_hooks(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        """Do what `emit` does by fluid's methods; `threshold_first` asks for the methods that take one parameter."""
        # In fluid `append_gradient_clip_ops` calls the methods that take one parameter, and optimizers that for all.
        has_static = type(self)._static_clip is not GradientClipBase._static_clip
        has_single = type(self)._create_operators is not GradientClipBase._create_operators
        # Fluid's methods call layers, which append to the default program.
        with program_guard(block.program, default_startup_program()):
            if has_single and (threshold_first or not has_static):
                context: dict[Any, Any] = {}
                for param, grad in pairs:
                    self._process_context(context=context, param=param, grad=grad)
                found = [self._create_operators(param=param, grad=grad) for param, grad in pairs]
            else:
                found = self._static_clip(pairs)
        by_name = {param.name: grad for param, grad in found if grad is not None}
        for param, _ in pairs:
            if param.name not in by_name:
                raise ClipError(
                    f"{type(self).__name__} returned no gradient for {param.name}",
                    hint="Return a pair for each one that was given.",
                )  # fmt: skip
        return [by_name[param.name] for param, _ in pairs]


@public
class GroupClip(GradientClipBase):
    """A strategy that clips parameters with one ``group_name`` together."""

    group_name: str

    is_joint = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.group_name, str):
            raise WrongTypeError(f"group_name must be a str, got {self.group_name!r:.60}")

    def group_key(self) -> Any:
        return type(self), self.group_name

    def check_group(self, other: Any, param: Parameter) -> None:
        """Raise if `other` has other options than this strategy."""
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            # `need_clip` picks parameters and does not change how these are clipped.
            if field.name != "need_clip" and ours != theirs:
                raise ClipError(
                    f"group {self.group_name!r} has two values of {field.name}",
                    details=[f"{field.name} = {ours}", f"{field.name} = {theirs} for {param}"],
                    hint="Give the strategies different group_name.",
                )


def emit_for(block: Block, pair: tuple[Parameter, Variable], op_type: str, **slots_and_attrs: Any) -> Variable:
    """Append the operator that clips the gradient of one parameter; its ``role_vars`` name both."""
    with block.program.role_guard(block.program.current_role, pair):
        clipped = block.emit(op_type, X=pair[1], **slots_and_attrs)
    return clipped


def fits_attribute(value: float) -> bool:
    """Whether a float32, as attributes are, can hold `value` without turning it into 0 or infinity."""
    # A threshold of 1e-50 would become 0 and clip everything away; one of 1e50 would clip nothing.
    rounded = ctypes.c_float(value).value
    return math.isfinite(rounded) == math.isfinite(value) and (rounded == 0) == (value == 0)


def emit_constant(block: Block, value: float, pair: tuple[Parameter, Variable], dtype: DType = DType.FP64) -> Variable:
    """Append the operator that makes a threshold of shape [1]; its ``role_vars`` name the pair."""
    with block.program.role_guard(block.program.current_role, pair):
        # `str_value` keeps the digits that `value`, a float32 attribute, loses.
        return block.emit(
            "fill_constant", stop_gradient=True, shape=[1], dtype=int(dtype), value=value, str_value=str(value)
        )


def emit_clipped(block: Block, pairs: ParamsGrads, threshold: Variable, p: float) -> list[Variable]:
    """Append the operator that scales gradients down to a joint norm of order `p` of at most `threshold`."""
    layer = generate("clip_by_global_norm")
    clipped = [block.create_var(name=generate(f"{layer}.tmp")) for _ in pairs]
    norm = block.create_var(name=f"{layer}.norm", stop_gradient=True)
    inputs: dict[str, Any] = {"X": [grad for _, grad in pairs], "ClipNorm": threshold}
    with block.program.role_guard(block.program.current_role, [var for pair in pairs for var in pair]):
        block.append_op("clip_by_global_norm", inputs, {"Out": clipped, "Norm": norm}, {"p": p})
    return clipped


def check_number(value: Any, what: str) -> float:
    """Return `value` as a float that is not NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise WrongTypeError(f"{what} must be a number, got {value!r:.60}") from None
    # No element is above NaN: such a clip would do nothing, silently.
    if math.isnan(number):
        raise ClipError(f"{what} must not be NaN")
    return number


def check_flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise WrongTypeError(f"{what} must be True or False, got {value!r:.60}")
    return value


def check_threshold(value: Any, what: str) -> float:
    """Return `value` as a float that is positive and finite."""
    number = check_number(value, what)
    if not 0 < number < math.inf:
        raise ClipError(f"{what} must be positive and finite, got {number}", hint="Leave the clip out to turn it off.")
    return number


def check_need_clip(need_clip: Any) -> None:
    if need_clip is not None and not callable(need_clip):
        raise WrongTypeError(
            f"need_clip must be a function of a Parameter, got {need_clip!r:.60}",
            hint="For example: need_clip=lambda param: param.name != 'fc_0.b_0'.",
        )  # fmt: skip
