"""Declarations of random programs that no run depends on, but a later ``minimize`` does."""

from __future__ import annotations

from random import Random

from minigraph.clip import ErrorClipByValue, GradientClipByNorm
from minigraph.ir import Parameter, Program, Variable
from minigraph.regularizer import L1Decay, L2Decay


def declare(choose: Random, program: Program) -> None:
    """Declare something unusual of the program, of some parameters and values, and name the scope of some operators.

    The operators stay as they are, as if gradients and updates had been appended before. Most programs declare nothing
    unusual of values, on which conditions of passes may depend.
    """
    if choose.random() < 0.3:
        program.random_seed = choose.randrange(1, 1000)
    block, with_values = program.global_block(), choose.random() < 0.4
    for var in block.vars.values():
        if isinstance(var, Parameter):
            _declare_parameter(choose, var)
        elif with_values and not var.persistable:
            _declare_value(choose, var)
    if block.ops and choose.random() < 0.3:
        start = choose.randrange(len(block.ops))
        for op in block.ops[start : start + choose.randrange(1, 6)]:
            op.namescope = f"/part{op.namescope}"


def _declare_parameter(choose: Random, parameter: Parameter) -> None:
    if choose.random() < 0.2:
        parameter.trainable = False
    if choose.random() < 0.2:
        parameter.need_clip = False
    if choose.random() < 0.2:
        parameter.do_model_average = False
    if choose.random() < 0.2:
        parameter.optimize_attr = {"learning_rate": choose.choice((0.0, 0.5, 2.0))}
    if choose.random() < 0.2:
        parameter.regularizer = choose.choice((L1Decay, L2Decay))(0.1)
    if choose.random() < 0.2 and parameter.gradient_clip is None:
        parameter.gradient_clip = GradientClipByNorm(choose.choice((0.1, 1.0)))
    if choose.random() < 0.2:
        parameter.is_distributed = True


def _declare_value(choose: Random, var: Variable) -> None:
    if choose.random() < 0.1:
        var.stop_gradient = not var.stop_gradient
    if choose.random() < 0.05 and var.dtype.is_floating:
        var.error_clip = ErrorClipByValue(choose.choice((0.1, 1.0)))
