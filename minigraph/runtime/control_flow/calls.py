"""Which class describes which operator of control flow."""

from __future__ import annotations

from minigraph.ir import Operator
from minigraph.runtime.control_flow.call import Call
from minigraph.runtime.control_flow.recurrent import Recurrent, RecurrentGrad
from minigraph.runtime.control_flow.repeated import Conditional, ConditionalGrad, While, WhileGrad

_CALLS: dict[str, type[Call]] = {
    "while": While,
    "while_grad": WhileGrad,
    "conditional_block": Conditional,
    "conditional_block_grad": ConditionalGrad,
    "recurrent": Recurrent,
    "recurrent_grad": RecurrentGrad,
}


def call_of(op: Operator) -> Call:
    """What an operator of control flow does."""
    return _CALLS[op.type](op)
