"""Differentiate programs: append the operators that compute gradients.

`append_backward` and `gradients` check what they are asked for; the walk is a
`minigraph.autodiff.backward_pass.BackwardPass`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minigraph import unique_name
from minigraph.autodiff.backward_pass import BackwardPass
from minigraph.autodiff.gradient_plan import Callback, ParamsGrads
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, caller_site, suggest, warn
from minigraph.ir import Block, Operator, Program, Role, Variable
from minigraph.passes import events
from minigraph.support.gc_pause import without_collector
from minigraph.support.public import public
from minigraph.support.undo import note
from minigraph.types import VarKind, product

__all__ = ["ParamsGrads", "append_backward", "gradients"]


@public
@without_collector
def append_backward(
    loss: Variable,
    parameter_list: Sequence[Variable | str] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
    callbacks: Sequence[Callback] | None = None,
    checkpoints: Sequence[Variable | str] | None = None,
) -> ParamsGrads:
    """Append the operators that compute the gradient of `loss` with respect to the parameters.

    They go to the loss's own program, whatever program is current.

    Parameters
    ----------
    loss : Variable, float[1]
        Variable to differentiate.
    parameter_list : sequence of Variable or str, optional
        Parameters, or other variables, to return; all gradients on the way are appended nevertheless. Default: all
        parameters that are trainable.
    no_grad_set : iterable of Variable or str, optional
        Variables that no gradient flows to or through, besides those with ``stop_gradient``.
    callbacks : sequence of callable, optional
        Each is called as ``callback(block=..., context=...)`` after each operator appended; `context` maps gradient
        names to the names they are the gradient of, and ``"__current_op_desc__"`` to the operator.
    checkpoints : sequence of Variable or str, optional
        Results between these are computed again in the backward pass instead of being kept; see
        `minigraph.passes.Recompute`.

    Returns
    -------
    list of (Parameter, Variable)
        Parameters in order of creation (variables of `parameter_list`, when given), each with its gradient; those that
        the loss does not reach are left out.

    Raises
    ------
    WrongTypeError
        If `loss` is not a Variable.
    ProgramError
        If `loss` does not have exactly one element, is not floating point, or is not computed by the program.
    NotFoundError
        If `parameter_list` or `no_grad_set` names a variable that does not exist.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
    ...     x = fluid.data("x", [None, 3])
    ...     loss = fluid.layers.mean(fluid.layers.fc(x, 1))
    ...     [(param.name, grad.name) for param, grad in append_backward(loss)]
    [('fc_0.w_0', 'fc_0.w_0@GRAD'), ('fc_0.b_0', 'fc_0.b_0@GRAD')]
    """
    if not isinstance(loss, Variable):
        raise WrongTypeError(f"the loss must be a Variable, got {type(loss).__name__}: {loss!r:.80}")
    block, program = loss.block, loss.block.program
    maker = _check_loss(loss)
    _warn_of_earlier_pass(loss)
    _warn_of_misspelled(program)
    params = _variables_to_return(program, parameter_list)
    no_grad = _names(block, no_grad_set, "no_grad_set")
    with events.step(append_backward, program):
        note(setattr, maker, "role", maker.role)
        maker.role |= Role.LOSS
        pass_ = BackwardPass(block, no_grad, callbacks or ())
        seed = pass_.fresh_grad(loss, unique_name.generate)
        with program.role_guard(Role.BACKWARD | Role.LOSS):
            pass_.append(
                "fill_constant",
                {},
                {"Out": [seed.name]},
                {"shape": loss.shape, "value": 1.0, "dtype": int(loss.dtype)},
                maker.site,
            )
        pass_.seed(loss.name, seed.name)
        pass_.run([loss], None)
        if checkpoints is not None:
            from minigraph.passes.memory.recompute import recompute  # late: few programs have checkpoints

            recompute(program, checkpoints)
        return pass_.params_grads(params)


@public
@without_collector
def gradients(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable | None] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> list[Variable | None]:
    """Append the operators that compute the gradients of `targets` with respect to `inputs`, summed over the targets.

    Parameters
    ----------
    targets, inputs : Variable or sequence of Variable
        All in one program, targets in one block.
    target_gradients : Variable or sequence of Variable or None, optional
        The gradient that flows into each target, of its shape; ones where None.
    no_grad_set : iterable of Variable or str, optional
        Variables that no gradient flows to or through, besides those with ``stop_gradient``.

    Returns
    -------
    list of Variable or None
        For each input its gradient, None where the targets do not depend on it.

    Raises
    ------
    ProgramError
        If the numbers or shapes of targets and target gradients differ, or programs are mixed.
    """
    target_list, input_list = _variables(targets, "targets"), _variables(inputs, "inputs")
    seeds: list[Variable | None] = [None] * len(target_list)
    if target_gradients is not None:
        seeds = [target_gradients] if isinstance(target_gradients, Variable) else list(target_gradients)
        _check_target_gradients(target_list, seeds)
    block = target_list[0].block
    if any(v.block.program is not block.program for v in (*target_list, *input_list)):
        raise ProgramError("targets and inputs must be in one program")
    _check_outermost(target_list[0], "the target")
    with events.step(gradients, block.program):
        pass_ = BackwardPass(block, _names(block, no_grad_set, "no_grad_set"), ())
        for target, given_grad in zip(target_list, seeds, strict=True):
            if given_grad is None:
                pass_.seed(target.name, _append_ones_like(pass_, target))
            else:
                pass_.seed(target.name, given_grad.name, given=True)
        pass_.run(target_list, {v.name for v in input_list})
        return [pass_.gradient_of(v) for v in input_list]


def _append_ones_like(pass_: BackwardPass, target: Variable) -> str:
    block = pass_.block
    shape = block.create_var(name=_fresh_name(block, f"{target.name}_shape"))
    grad = pass_.fresh_grad(target, unique_name.generate)
    assert target.tensor_type is not None
    with block.program.role_guard(Role.BACKWARD):
        pass_.append("shape", {"Input": [target.name]}, {"Out": [shape.name]}, {})
        attrs = {"shape": target.tensor_type.shape, "value": 1.0, "dtype": int(target.dtype)}
        pass_.append("fill_constant", {"ShapeTensor": [shape.name]}, {"Out": [grad.name]}, attrs)
    return grad.name


def _check_loss(loss: Variable) -> Operator:
    """The operator that makes the loss."""
    size = product(loss.shape) if loss.shape is not None else 1
    if size != 1 or not loss.dtype.is_floating:
        raise ProgramError(
            f"the loss must be one floating-point number, got {loss}",
            hint="Reduce it with layers.mean or layers.reduce_sum.",
        )  # fmt: skip
    _check_outermost(loss, "the loss")
    for op in reversed(loss.block.ops):
        if loss.name in op.output_arg_names:
            return op
    raise ProgramError(
        f"no operator of its program computes the loss {loss}",
        hint="Take the loss variable from the program to differentiate: program.global_block().var(loss.name).",
    )  # fmt: skip


def _check_outermost(target: Variable, what: str) -> None:
    if target.block.idx:
        raise ProgramError(
            f"{what} {target.name} is computed in a sub-block, which may run never or several times",
            hint="Compute it outside (minimize may still be called inside), or return it from layers.cond and "
            "differentiate the result outside.",
        )


def _variables_to_return(program: Program, parameter_list: Sequence[Variable | str] | None) -> list[Any]:
    """The trainable parameters, or the variables listed, parameters or not."""
    if parameter_list is None:
        return [param for param in program.all_parameters() if param.trainable]
    if not isinstance(parameter_list, list | tuple):
        raise WrongTypeError(f"parameter_list must be a list of Variables or names, got {parameter_list!r:.80}")
    block = program.global_block()
    _names(block, parameter_list, "parameter_list")
    return [block.var(p.name if isinstance(p, Variable) else p) for p in parameter_list]


def _warn_of_earlier_pass(loss: Variable) -> None:
    """Warn of gradients of the same loss that the program has already."""
    if not loss.block.program.backward_passes:
        return
    for op in loss.block.ops.of_type("fill_constant"):
        if op.role == Role.BACKWARD | Role.LOSS and op.outputs["Out"][0].startswith(loss.grad_name):
            warn(
                f"the gradients of {loss.name} are appended a second time, after those made at {op.site}: append them "
                "once and use the pairs that append_backward returns"
            )
            return


def _warn_of_misspelled(program: Program) -> None:
    """Warn of attributes that the user gave a variable and that it does not have, but one of nearly that name."""
    for var in (var for block in program.blocks for var in block.vars.values()):
        for name in vars(var):
            known = [each for each in dir(type(var)) if each[0] != "_"]
            if near := suggest(name, known):
                warn(f"the attribute {name!r} of {var.name} has no effect: a variable has none of that name. {near}")


def _names(block: Block, given: Iterable[Variable | str] | None, what: str) -> set[str]:
    if isinstance(given, str):
        raise WrongTypeError(f"{what} must be a set or list, got the string {given!r}")
    names = set()
    for item in given or ():
        name = item.name if isinstance(item, Variable) else item
        if not isinstance(name, str):
            raise WrongTypeError(f"{what} holds {item!r:.80}, which is no Variable or name")
        if block.find_var(name) is None:
            raise NotFoundError(
                f"{what} names {name!r}, which the program does not have",
                site=caller_site(),
                hint=suggest(name, block.vars),
            )
        names.add(name)
    return names


def _variables(given: Variable | Sequence[Variable], what: str) -> list[Variable]:
    found = [given] if isinstance(given, Variable) else list(given)
    if not found or not all(isinstance(v, Variable) for v in found):
        raise WrongTypeError(f"{what} must be Variables, got {given!r:.80}")
    return found


def _check_target_gradients(targets: list[Variable], given: list[Variable | None]) -> None:
    if len(given) != len(targets):
        raise ProgramError(f"{len(targets)} targets but {len(given)} target gradients")
    for target, grad in zip(targets, given, strict=True):
        if grad is not None and not _fit(grad, target):
            raise ProgramError(f"a target gradient must have the type of its target, got {grad} for {target}")


def _fit(grad: Variable, target: Variable) -> bool:
    """Whether `grad` can flow into `target`; a gradient that flows into selected rows is dense."""
    if grad.tensor_type is None or target.tensor_type is None:
        return False
    return grad.tensor_type.fits(target.tensor_type.held_as(VarKind.LOD_TENSOR))


def _fresh_name(block: Block, name: str) -> str:
    return name if name not in block.vars else unique_name.generate(name)
