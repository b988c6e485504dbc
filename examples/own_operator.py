"""An operator of one's own with its gradient, in place of one that fluid loads from a library; takes about a second.

The type, the slots and the attributes are those of the library, so that the layer which appends the operator stays as
it was written for fluid. The annotations are what the operator takes; the functions of the kernels are given NumPy or
CuPy first, then arrays in the order of the slots.
"""

import numpy as np

import minigraph as fluid
from minigraph.kernels import kernel
from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import TensorType


@op("relu_up_to", inputs="X", outputs="Y", grad=fused("X"))  # in place of fluid.load_op_library("relu_up_to.so")
def relu_up_to(x: TensorType, *, limit: float = 1.0) -> TensorType:
    """``Y = min(max(X, 0), limit)``, elementwise; the result has the type of X."""
    return x


@kernel("relu_up_to")
def forward(xp, x, *, limit):
    return xp.clip(x, 0, limit)


@kernel("relu_up_to_grad")
def backward(xp, x, d_y, *, limit):
    return d_y * ((x > 0) & (x < limit))


def relu_up_to_layer(x, limit):
    helper = fluid.layer_helper.LayerHelper("relu_up_to")
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(type="relu_up_to", inputs={"X": x}, outputs={"Y": out}, attrs={"limit": limit})
    return out


def main():
    """The results of a run, the gradient of their sum among them."""
    x = fluid.data("x", [None, 4])
    x.stop_gradient = False
    y = relu_up_to_layer(x, limit=2.0)
    [gradient] = fluid.gradients(fluid.layers.reduce_sum(y), x)
    feed = {"x": np.float32([[-1.0, 0.5, 1.5, 3.0]])}
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[y, gradient])
    print("Y     ", *found[0][0])
    print("X@GRAD", *found[1][0])
    return found


if __name__ == "__main__":
    main()
