"""Programs as the bytes of their descriptions."""

from __future__ import annotations

from minigraph.io.program_desc import describe
from minigraph.io.program_reading import read_program
from minigraph.io.wire import encode
from minigraph.ir import Program
from minigraph.support.public import public

__all__ = ["serialize_program"]


@public
def serialize_program(program: Program) -> bytes:
    """The bytes of a program's description, as ``__model__`` and ``.pdmodel`` files hold it.

    Notes
    -----
    A program that was read from a description and has not changed since is written as it was read, with what has no
    meaning here: call stacks, hints for backends, the order of slots and variables.

    See Also
    --------
    deserialize_program : the inverse, except for facts that a description does not hold.

    Examples
    --------
    >>> import minigraph as fluid
    >>> main = fluid.Program()
    >>> with fluid.program_guard(main), fluid.unique_name.guard():
    ...     y = fluid.layers.relu(fluid.data("x", [None, 4]))
    >>> fluid.io.deserialize_program(serialize_program(main)).global_block().ops[0]
    <Operator relu_0.tmp_0: float32[-1, 4] = relu(X=x)>
    """
    data = encode(describe(program))
    if program.origin is not None and data == encode(describe(read_program(program.origin, "the origin")[0])):
        return program.origin
    return data
