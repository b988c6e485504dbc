"""Note clips on parameters, and append their operators."""

from __future__ import annotations

from collections.abc import Sequence

from minigraph.clip.base import GradientClipBase, ParamsGrads
from minigraph.errors import ClipError, NotFoundError, WrongTypeError, caller_site, suggest, warn
from minigraph.ir import Block, Parameter, Program, Role, Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.passes.gradient_clip import clip_pairs
from minigraph.support.public import public

__all__ = ["append_gradient_clip_ops", "set_gradient_clip"]


@public
def set_gradient_clip(
    clip: GradientClipBase, param_list: Sequence[Parameter | str] | None = None, program: Program | None = None
) -> None:
    """Note on parameters which clip their gradients get, for `append_gradient_clip_ops` and optimizers to insert.

    A later call for the same parameter wins; an optimizer's own ``grad_clip`` wins over all.

    Parameters
    ----------
    clip : GradientClipBase
    param_list : sequence of Parameter or str, optional
        Default: all parameters of the program that no optimizer updates yet. The clip's ``need_clip`` picks among them.
    program : Program, optional
        Default: the default main program.

    Raises
    ------
    WrongTypeError
        If `clip` is no strategy, or `param_list` no list of parameters or names.
    NotFoundError
        If a name is unknown.
    ClipError
        If there is no parameter to clip, or an optimizer updates one of `param_list`, or all, already: both mean that
        the call comes at the wrong place.

    Warns
    -----
    UserWarning
        If by default a parameter is left out that is updated already without a clip.
    """
    if not isinstance(clip, GradientClipBase):
        raise WrongTypeError(f"a gradient clip must be a strategy such as GradientClipByNorm(1.0), got {clip!r:.60}")
    program = program or default_main_program()
    params = [param for param in _parameters(program.global_block(), param_list) if clip.wants(param)]
    params = _not_updated(program, params, is_default=param_list is None)
    if not params:
        raise ClipError(
            "the program has no parameter to clip" if param_list is None else "param_list holds no parameter to clip",
            hint="Call set_gradient_clip after the layers and before minimize, on the parameters' own program.",
        )
    for param in params:
        param.gradient_clip = clip


def _not_updated(program: Program, params: list[Parameter], is_default: bool) -> list[Parameter]:
    """The parameters that no optimizer, such as that of another loss, updates yet."""
    # Fluid gives clips the role of updates, so the role alone does not tell an update.
    updates = {
        op.outputs["ParamOut"][0]: op
        for op in program.global_block().ops
        if op.role & Role.OPTIMIZE and not op.role & Role.CLIP and "ParamOut" in op.outputs
    }
    late = [param for param in params if param.name in updates]
    # The clip would never be inserted: the update reads its gradient already.
    if late and (not is_default or len(late) == len(params)):
        op = updates[late[0].name]
        raise ClipError(
            f"set_gradient_clip comes too late: the program updates {late[0].name} already",
            details=[f"{op.type} updates {late[0].name}, made at {op.site}"],
            hint="Call it after the layers and before minimize (or apply_gradients).",
        )
    unclipped = [param.name for param in late if param.gradient_clip is None]
    if unclipped:
        warn(f"set_gradient_clip leaves out {', '.join(unclipped)}: updated already, without a clip")
    return [param for param in params if param.name not in updates]


def _parameters(block: Block, param_list: Sequence[Parameter | str] | None) -> list[Parameter]:
    if param_list is None:
        return block.all_parameters()
    if isinstance(param_list, str) or not isinstance(param_list, Sequence):
        raise WrongTypeError(
            f"param_list must be a list of Parameters or names, got {param_list!r:.60}", hint="Write [name]."
        )
    found = []
    for item in param_list:
        name = item.name if isinstance(item, Variable) else item
        param = block.vars.get(name) if isinstance(name, str) else None
        if param is None and isinstance(name, str):
            known = [p.name for p in block.all_parameters()]
            raise NotFoundError(f"the program has no parameter {name!r}", site=caller_site(), hint=suggest(name, known))
        if not isinstance(param, Parameter):
            raise WrongTypeError(f"param_list holds {item!r:.60}, which is no Parameter or name")
        found.append(param)
    return found


@public
def append_gradient_clip_ops(param_grads: Sequence[tuple[Parameter, Variable | None]]) -> ParamsGrads:
    """Append the clips that `set_gradient_clip` noted on the parameters.

    Parameters of one global-norm group are clipped together; a parameter without a clip keeps its gradient. The
    operators go to the program of the gradients.

    Parameters
    ----------
    param_grads : sequence of (Parameter, Variable)
        As `minigraph.autodiff.backward.append_backward` returns them; pairs without a gradient are left out of the
        result.

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
    return clip_pairs(pairs, lambda param: param.gradient_clip, threshold_first=True)
