"""Gradient clipping: strategies, and the doors through which they reach a program.

A strategy is a frozen dataclass whose `emit` appends fluid's clip operators for a group of (parameter, gradient)
pairs. `set_gradient_clip` with `append_gradient_clip_ops`, an optimizer's ``grad_clip=``, and calling a strategy are
three doors to the one pass in `minigraph.passes.gradient_clip`.

What always holds, whatever the magnitudes: the norm neither overflows nor underflows, zero stays zero, and a gradient
whose norm is at or under the threshold is left bit for bit as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minigraph.defaults import default_main_program
from minigraph.errors import ClipError, NotFoundError, WrongTypeError, caller_site, suggest, warn
from minigraph.ir import Block, Operator, Parameter, Program, Role, Variable
from minigraph.opdef import GRAD_SUFFIX
from minigraph.passes.gradient_clip import clip_pairs, clipped_gradients
from minigraph.strategies import printable

NeedClip = Callable[[Parameter], bool] | None
ParamsGrads = list[tuple[Parameter, Variable]]


@dataclass(frozen=True)
class GradientClipBase:
    """What all strategies have in common.

    Subclasses are frozen dataclasses with a field ``need_clip`` and a method `emit`.
    """

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        """Append the operators that clip the gradients of `pairs` together; returns the clipped gradients in order."""
        raise TypeError(f"{type(self).__name__} does not define emit")

    def group_key(self) -> Any:
        """Parameters whose strategies have equal keys are clipped together."""
        return self

    def check_group(self, other: Any, param: Parameter) -> None:
        """Raise unless `other`, which `param` of the same group asks for, agrees with this strategy."""

    def wants(self, param: Parameter) -> bool:
        """Whether the strategy concerns `param`: by its ``need_clip`` field and this strategy's function."""
        need_clip = getattr(self, "need_clip", None)
        return param.need_clip and (need_clip is None or bool(need_clip(param)))

    def __call__(self, params_grads: Sequence[tuple[Parameter, Variable | None]]) -> ParamsGrads:
        """Append the clip operators for (parameter, gradient) pairs to the gradients' own program.

        Pairs whose gradient is None are left out of the result; parameters that need no clip keep their gradient.
        """
        pairs = [(param, grad) for param, grad in params_grads if grad is not None]
        return clip_pairs(pairs, lambda param: self if self.wants(param) else None)


@printable
@dataclass(frozen=True)
class GradientClipByValue(GradientClipBase):
    """Limit each element to [`min`, `max`].

    Parameters
    ----------
    max : float
        Upper bound.
    min : float, optional
        Lower bound. Default: ``-max``.
    need_clip : callable, optional
        Called with each Parameter; says whether its gradient is to be clipped.

    Raises
    ------
    ClipError
        If a bound is NaN, `min` is not below `max`, or `max` is not positive while `min` is left out.
    """

    max: float
    min: float | None = None
    need_clip: NeedClip = None

    def __post_init__(self) -> None:
        _check_need_clip(self.need_clip)
        upper = _number(self.max, "max")
        if self.min is None and not upper > 0:
            raise ClipError(
                f"max must be positive when min is left out, got {upper}", site=caller_site(), hint="Give min too."
            )
        lower = -upper if self.min is None else _number(self.min, "min")
        if not lower < upper:
            raise ClipError(f"min must be below max, got min={lower}, max={upper}", site=caller_site())
        object.__setattr__(self, "max", upper)
        object.__setattr__(self, "min", lower)

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        return [_emit_for(block, pair, "clip", min=self.min, max=self.max) for pair in pairs]


@printable
@dataclass(frozen=True)
class GradientClipByNorm(GradientClipBase):
    """Scale each gradient down to an L2 norm of at most `clip_norm`: ``g * clip_norm / max(norm(g), clip_norm)``.

    Parameters
    ----------
    clip_norm : float
        The largest norm, positive and finite.
    need_clip : callable, optional
        Called with each Parameter; says whether its gradient is to be clipped.

    Raises
    ------
    ClipError
        If `clip_norm` is not positive and finite.

    References
    ----------
    R. Pascanu, T. Mikolov and Y. Bengio, On the difficulty of training recurrent neural networks, ICML 2013.
    """

    clip_norm: float
    need_clip: NeedClip = None

    def __post_init__(self) -> None:
        _check_need_clip(self.need_clip)
        object.__setattr__(self, "clip_norm", _threshold(self.clip_norm))

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        return [_emit_for(block, pair, "clip_by_norm", max_norm=self.clip_norm) for pair in pairs]


@printable
@dataclass(frozen=True)
class GradientClipByGlobalNorm(GradientClipBase):
    """Scale all gradients of a group by one factor: ``g * clip_norm / max(norm of all together, clip_norm)``.

    Parameters
    ----------
    clip_norm : float
        The largest norm, positive and finite.
    group_name : str
        Parameters whose strategies name the same group are clipped together.
    need_clip : callable, optional
        Called with each Parameter; one that needs no clip is no part of the norm either.

    Raises
    ------
    ClipError
        If `clip_norm` is not positive and finite, or, when operators are made, a group has two thresholds.
    """

    clip_norm: float
    group_name: str = "default_group"
    need_clip: NeedClip = None

    def __post_init__(self) -> None:
        _check_need_clip(self.need_clip)
        object.__setattr__(self, "clip_norm", _threshold(self.clip_norm))

    def group_key(self) -> Any:
        return type(self), self.group_name

    def check_group(self, other: Any, param: Parameter) -> None:
        if other.clip_norm != self.clip_norm:
            raise ClipError(
                f"group {self.group_name!r} has two thresholds",
                details=[f"clip_norm = {self.clip_norm}", f"clip_norm = {other.clip_norm} for {param}"],
                site=caller_site(),
                hint="Give the strategies different group_name.",
            )

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        """Fluid's operators; `threshold_first` puts the constant in front, as ``append_gradient_clip_ops`` has it."""
        program, role = block.program, block.program.current_role
        threshold = _emit_threshold(block, self.clip_norm, pairs[0]) if threshold_first else None
        squares = []
        for pair in pairs:
            with program.role_guard(role, pair):
                squares.append(block.emit("reduce_sum", X=block.emit("square", X=pair[1]), dim=[0], reduce_all=True))
        with program.role_guard(role, pairs[0 if threshold_first else -1]):
            norm = block.emit("sqrt", X=block.emit("sum", X=squares))
            if threshold is None:
                threshold = _emit_threshold(block, self.clip_norm, pairs[-1])
            factor = block.emit("elementwise_div", X=threshold, Y=block.emit("elementwise_max", X=threshold, Y=norm))
        return [_emit_for(block, pair, "elementwise_mul", Y=factor) for pair in pairs]


def _emit_for(block: Block, pair: tuple[Parameter, Variable], op_type: str, **slots_and_attrs: Any) -> Variable:
    """Append the operator that makes the clipped gradient of one parameter; its ``role_vars`` name both."""
    with block.program.role_guard(block.program.current_role, pair):
        clipped = block.emit(op_type, X=pair[1], **slots_and_attrs)
    return clipped


def _emit_threshold(block: Block, clip_norm: float, pair: tuple[Parameter, Variable]) -> Variable:
    dtype = pair[1].dtype
    with block.program.role_guard(block.program.current_role, pair):
        return block.emit(
            "fill_constant", stop_gradient=True, shape=[1], dtype=int(dtype), value=clip_norm, str_value=str(clip_norm)
        )


def _number(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise WrongTypeError(f"{what} must be a number, got {value!r:.60}", site=caller_site()) from None
    if math.isnan(number):
        raise ClipError(f"{what} must not be NaN", site=caller_site())
    return number


def _threshold(clip_norm: Any) -> float:
    number = _number(clip_norm, "clip_norm")
    if not 0 < number < math.inf:
        raise ClipError(
            f"clip_norm must be positive and finite, got {number}",
            site=caller_site(),
            hint="Leave the clip out to turn it off.",
        )
    return number


def _check_need_clip(need_clip: Any) -> None:
    if need_clip is not None and not callable(need_clip):
        raise WrongTypeError(
            f"need_clip must be a function of a Parameter, got {need_clip!r:.60}", site=caller_site(),
            hint="For example: need_clip=lambda param: param.name != 'fc_0.b_0'.",
        )  # fmt: skip


def set_gradient_clip(
    clip: GradientClipBase, param_list: Sequence[Parameter | str] | None = None, program: Program | None = None
) -> None:
    """Note on parameters which clip their gradients get, for `append_gradient_clip_ops` and optimizers to insert.

    A later call for the same parameter wins; an optimizer's own ``grad_clip`` wins over all.

    Parameters
    ----------
    clip : GradientClipBase
    param_list : sequence of Parameter or str, optional
        Default: all parameters of the program. The clip's ``need_clip`` picks among them.
    program : Program, optional
        Default: the default main program.

    Raises
    ------
    WrongTypeError
        If `clip` is no strategy, or `param_list` no list of parameters or names.
    NotFoundError
        If a name is unknown.
    ClipError
        If the program has no parameter to match, or its updates were appended already: both mean that the call comes
        at the wrong place.
    """
    if not isinstance(clip, GradientClipBase):
        raise WrongTypeError(
            f"a gradient clip must be a strategy such as GradientClipByNorm(1.0), got {clip!r:.60}", site=caller_site()
        )
    program = program or default_main_program()
    _check_order(program)
    params = [param for param in _parameters(program.global_block(), param_list) if clip.wants(param)]
    if not params:
        raise ClipError(
            "the program has no parameter to clip" if param_list is None else "param_list holds no parameter to clip",
            site=caller_site(),
            hint="Call set_gradient_clip after the layers and before minimize, on the parameters' own program.",
        )
    for param in params:
        param.gradient_clip = clip


def _check_order(program: Program) -> None:
    for op in reversed(program.global_block().ops):
        if op.role & Role.OPTIMIZE and not op.role & Role.CLIP and "ParamOut" in op.outputs:
            raise ClipError(
                "set_gradient_clip comes too late: the program updates its parameters already",
                details=[f"{op.type} updates {op.outputs['ParamOut'][0]}, made at {op.site}"],
                site=caller_site(),
                hint="Call it after the layers and before minimize (or apply_gradients).",
            )


def _parameters(block: Block, param_list: Sequence[Parameter | str] | None) -> list[Parameter]:
    if param_list is None:
        return block.all_parameters()
    if isinstance(param_list, str) or not isinstance(param_list, Sequence):
        raise WrongTypeError(
            f"param_list must be a list of Parameters or names, got {param_list!r:.60}",
            site=caller_site(),
            hint="Write [name].",
        )
    found = []
    for item in param_list:
        name = item.name if isinstance(item, Variable) else item
        param = block.vars.get(name) if isinstance(name, str) else None
        if param is None and isinstance(name, str):
            known = [p.name for p in block.all_parameters()]
            raise NotFoundError(f"the program has no parameter {name!r}", site=caller_site(), hint=suggest(name, known))
        if not isinstance(param, Parameter):
            raise WrongTypeError(f"param_list holds {item!r:.60}, which is no Parameter or name", site=caller_site())
        found.append(param)
    return found


def append_gradient_clip_ops(param_grads: Sequence[tuple[Parameter, Variable | None]]) -> ParamsGrads:
    """Append the clips that `set_gradient_clip` noted on the parameters.

    Each parameter gets the clip that it asked for; parameters of one global-norm group are clipped together; one
    without a clip keeps its gradient. The operators go to the gradients' own program.

    Parameters
    ----------
    param_grads : sequence of (Parameter, Variable)
        As `minigraph.backward.append_backward` returns them; pairs without a gradient are left out of the result.

    Returns
    -------
    list of (Parameter, Variable)
        In the same order, with the clipped gradients.

    Warns
    -----
    UserWarning
        If a gradient has been clipped already; it is not clipped again.
    """
    pairs = [(param, grad) for param, grad in param_grads if grad is not None]
    blocks = {id(grad.block): grad.block for _, grad in pairs}
    done = {number: clipped_gradients(block) for number, block in blocks.items()}
    asked = [(param, grad) for param, grad in pairs if param.gradient_clip is not None]
    repeated = {grad.name for _, grad in asked if grad.name in done[id(grad.block)]}
    if repeated:
        warn(
            f"{', '.join(sorted(repeated))} {'have' if len(repeated) > 1 else 'has'} been clipped already and "
            "will not be clipped again"
        )
    todo = [pair for pair in pairs if pair[1].name not in repeated]
    clipped = iter(clip_pairs(todo, lambda param: param.gradient_clip, threshold_first=True))
    return [pair if pair[1].name in repeated else next(clipped) for pair in pairs]


@dataclass(frozen=True)
class BaseErrorClipAttr:
    """Base of the clips that work inside the backward pass, on the gradient of one variable."""

    def append_clip_op(self, block: Block, grad_name: str) -> None:
        """Append the operator that clips the gradient `grad_name` in place."""
        raise TypeError(f"{type(self).__name__} does not define append_clip_op")


@printable
@dataclass(frozen=True)
class ErrorClipByValue(BaseErrorClipAttr):
    """Limit each element of a variable's gradient to [`min`, `max`] before it flows further back.

    Set it on a variable: ``x.error_clip = ErrorClipByValue(max=1.0)``. Optimizers apply it by themselves;
    `append_backward` does with ``callbacks=[error_clip_callback]``.

    Parameters
    ----------
    max : float
    min : float, optional
        Default: ``-max``.
    """

    max: float
    min: float | None = None

    def __post_init__(self) -> None:
        checked = GradientClipByValue(self.max, self.min)
        object.__setattr__(self, "max", checked.max)
        object.__setattr__(self, "min", checked.min)

    def append_clip_op(self, block: Block, grad_name: str) -> None:
        block.append_op("clip", {"X": grad_name}, {"Out": grad_name}, {"min": self.min, "max": self.max})


def error_clip_callback(block: Block, context: dict[str, Any]) -> None:
    """A callback for `append_backward` that applies the ``error_clip`` of variables to their gradients.

    Raises
    ------
    WrongTypeError
        If a variable's ``error_clip`` is not an error clip.
    """
    op: Operator = context["__current_op_desc__"]
    for grad_name in op.output_arg_names:
        name = context.get(grad_name)
        var = block.find_var(name) if isinstance(name, str) and grad_name.endswith(GRAD_SUFFIX) else None
        error_clip = getattr(var, "error_clip", None)
        if error_clip is None:
            continue
        if not isinstance(error_clip, BaseErrorClipAttr):
            raise WrongTypeError(
                f"error_clip of {name} must be an ErrorClipByValue, got {error_clip!r:.60}", site=op.site
            )
        error_clip.append_clip_op(block, grad_name)


# Fluid's later names.
ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm
