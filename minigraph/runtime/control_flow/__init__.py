"""Control flow: what a sub-block is given, how often it runs, and where its results go; imports the IR and kernels.

A `BlockCall` describes one operator, for plans and for the interpreter alike (`minigraph.runtime.control_flow.call`). A
run that a gradient will need leaves a scope behind, in the variable ``StepScopes``
(`minigraph.runtime.control_flow.scopes`).
"""

from minigraph.runtime.control_flow import repeated  # noqa: F401  # describes its operators
from minigraph.runtime.control_flow.call import BlockCall, Body, call_of
from minigraph.runtime.control_flow.inference import forget_types, infer_again
from minigraph.runtime.control_flow.recurrent import Recurrent, RecurrentGrad
from minigraph.runtime.control_flow.scopes import Saved, saved_by, saved_for
from minigraph.runtime.control_flow.unfit import is_unfit, unfit_kernel

__all__ = [
    "BlockCall",
    "Body",
    "Recurrent",
    "RecurrentGrad",
    "Saved",
    "call_of",
    "forget_types",
    "infer_again",
    "is_unfit",
    "saved_by",
    "saved_for",
    "unfit_kernel",
]
