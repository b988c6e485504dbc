"""Programs as data: blocks of variables and operators; imports opdef and what lies below it, never ops or kernels.

What is always true of them: a block's operators stand in execution order; an operator refers to variables by name; a
name is found in the operator's block or one of its parents; every order (variables, parameters, operators) is the
order of creation. Programs change through a few verbs: append, insert, remove, replace a use. Each change raises the
program's `version`, by which executors know that what they compiled is outdated.
"""

from minigraph.ir.block import Block
from minigraph.ir.block_arguments import Names
from minigraph.ir.operator import Operator
from minigraph.ir.program import Program
from minigraph.ir.role import Role
from minigraph.ir.type_inference import explain, infer_outputs
from minigraph.ir.variable import Parameter, Variable
from minigraph.types import VarKind

__all__ = [
    "Block",
    "Names",
    "Operator",
    "Parameter",
    "Program",
    "Role",
    "VarKind",
    "Variable",
    "explain",
    "infer_outputs",
]
