"""Operators of users, which are Python here and compiled libraries in fluid."""

from __future__ import annotations

from typing import NoReturn

from minigraph.errors import NotSupportedError
from minigraph.support.public import public

__all__ = ["load_op_library"]


@public
def load_op_library(lib_filename: str) -> NoReturn:
    """Fluid's name for loading operators from a compiled library, which raises here.

    Such a library is compiled against Paddle, whose memory and kernels minigraph does not have. Define its operators in
    Python under the same types, slots and attributes; programs that append them by a `LayerHelper` stay as they are.

    Raises
    ------
    NotSupportedError
        Always.

    Notes
    -----
    `examples/own_operator.py` has a whole one: types, arithmetic, gradient and layer::

        @minigraph.opdef.op("relu2", inputs="X", outputs="Y", grad=minigraph.opdef.gradient_rules.fused("X"))
        def relu2(x: minigraph.types.TensorType):
            return x

        @minigraph.kernels.kernel("relu2")
        def forward(xp, x):
            return xp.maximum(x, 0)

        @minigraph.kernels.kernel("relu2_grad")
        def backward(xp, x, d_y):
            return d_y * (x > 0)
    """
    raise NotSupportedError(
        f"load_op_library: {lib_filename!r:.80} is compiled against Paddle, and cannot be loaded here",
        hint=(
            "Define its operators in Python, by minigraph.opdef.op and minigraph.kernels.kernel, and leave this call "
            "out; help(load_op_library) has an example."
        ),
    )
