"""Small programs to trace, and a wrong pass."""

import numpy as np

import minigraph as fluid
from minigraph import layers
from minigraph.passes.base import Pass

X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)


class Doubled(Pass):
    """A wrong pass: doubles the first scale."""

    def apply(self, program):
        op = program.global_block().ops.of_type("scale")[0]
        op.set_attr("scale", 2 * op.attr("scale"))
        return True


def chain(length=3):
    """A program of scales, of which one is dead."""
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        value = fluid.data("x", [None, 4])
        for _ in range(length):
            value = layers.scale(value, 0.5)
        layers.scale(value, 3.0)
        main.roots = (value.name,)
    return main, value
