"""Operator definitions, in which the signature is the schema; imports support and the vocabulary.

A definition is a function decorated with `op`. Its positional parameters are the input slots in order, its keyword-only
parameters are the attributes with their defaults, its body infers the output types. The annotations complete the
schema: ``list[TensorType]`` is a slot that takes several variables, ``TensorType | None`` one that may be left out.
Everything else that is known about an operator derives from this: the checks of ``append_op``, the gradient operator,
shape inference, printing, the documentation.
"""

from minigraph.opdef.definition import (
    DECLARED,
    HINT_ATTRS,
    REQUIRED,
    SUB_BLOCK,
    Attr,
    OpDef,
    OperatorRule,
    Slot,
    is_update,
    register_sub_block_rule,
)
from minigraph.opdef.gradient_context import EMPTY, GRAD_SUFFIX
from minigraph.opdef.registry import all_definitions, define, definition_of, op

__all__ = [
    "DECLARED",
    "EMPTY",
    "GRAD_SUFFIX",
    "HINT_ATTRS",
    "REQUIRED",
    "SUB_BLOCK",
    "Attr",
    "OpDef",
    "OperatorRule",
    "Slot",
    "all_definitions",
    "define",
    "definition_of",
    "is_update",
    "op",
    "register_sub_block_rule",
]
