"""Fluid's path to `minigraph.autodiff.backward`."""

from typing import Any

from minigraph.autodiff.backward import ParamsGrads, append_backward, gradients
from minigraph.ir import Variable
from minigraph.opdef import GRAD_SUFFIX

__all__ = ["ParamsGrads", "append_backward", "calc_gradient", "gradients"]


def calc_gradient(
    targets: Any, inputs: Any, target_gradients: Any = None, no_grad_set: Any = None
) -> Variable | list[Variable | None] | None:
    """`gradients`, as its one element where there is one input: the spelling of fluid before 1.5."""
    found = gradients(targets, inputs, target_gradients, no_grad_set)
    return found[0] if len(found) == 1 else found


def _append_grad_suffix_(name: str) -> str:
    return name + GRAD_SUFFIX
