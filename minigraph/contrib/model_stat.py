"""A table of the parameters and operations of an image network."""

from __future__ import annotations

from minigraph.ir import Operator, Program
from minigraph.support.public import public
from minigraph.types import product

__all__ = ["summary"]

_ACTIVATIONS = frozenset({"sigmoid", "tanh", "relu", "leaky_relu", "prelu"})
_SLOTS = {"conv2d": ("Input", "Output"), "depthwise_conv2d": ("Input", "Output"), "batch_norm": ("X", "Y")}
"""Slots of the images that go in and come out; X and Out of the other operators."""

_HEADERS = ("No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs")


@public
def summary(main_prog: Program) -> None:
    """Print shapes, parameters and operations of convolutions, pools, norms, `fc` and activations.

    Parameters
    ----------
    main_prog : Program

    Notes
    -----
    Shapes and counts are those of one sample. Multiplications and additions count separately for convolutions only.
    Fluid divides grouped convolutions by the groups twice, and gives activations of an unknown batch a negative count.

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph.contrib.model_stat import summary
    >>> with fluid.program_guard(fluid.Program()):
    ...     y = fluid.layers.conv2d(fluid.data("x", [None, 3, 8, 8]), num_filters=4, filter_size=3, act="relu")
    ...     summary(fluid.default_main_program())
    +-----+--------+-----------+-----------+--------+-------+
    | No. |   TYPE |     INPUT |    OUTPUT | PARAMs | FLOPs |
    +-----+--------+-----------+-----------+--------+-------+
    |   0 | conv2d | (3, 8, 8) | (4, 6, 6) |    108 |  7776 |
    |   1 |   relu | (4, 6, 6) | (4, 6, 6) |      0 |   144 |
    +-----+--------+-----------+-----------+--------+-------+
    Total PARAMs: 108(0.0001M)
    Total FLOPs: 7920(0.00G)
    """
    rows = [row for block in main_prog.blocks for op in block.ops if (row := _row(op)) is not None]
    cells = [[str(value) for value in (i, *row)] for i, row in enumerate(rows)]
    widths = [max(map(len, column)) for column in zip(_HEADERS, *cells, strict=True)]
    rule = f"+{'+'.join('-' * (width + 2) for width in widths)}+"
    lines = [f"| {' | '.join(map(str.rjust, line, widths))} |" for line in (_HEADERS, *cells)]
    print("\n".join([rule, lines[0], rule, *lines[1:], *([rule] if rows else [])]))
    params, flops = sum(row[3] for row in rows), sum(row[4] for row in rows)
    print(f"Total PARAMs: {params}({params / 10**6:.4f}M)\nTotal FLOPs: {flops}({flops / 10**9:.2f}G)")


def _row(op: Operator) -> tuple[str, tuple[int, ...], tuple[int, ...], int, int] | None:
    """Return type, shapes, parameters and operations of an operator, or None if fluid does not count it."""

    def shape(name: str) -> tuple[int, ...]:
        return tuple(op.block.var(name).shape or ())

    is_fc = op.type == "mul" and "fc" in op.output("Out")[0]
    if not (is_fc or op.type in _SLOTS or op.type in _ACTIVATIONS or op.type == "pool2d"):
        return None
    given, made = _SLOTS.get(op.type, ("X", "Out"))
    source, result = shape(op.input(given)[0]), shape(op.output(made)[0])
    if given == "Input":
        params = product(shape(op.input("Filter")[0]))
        flops = 2 * product(result[2:]) * params
    elif op.type == "pool2d":
        params, flops = 0, product(result[1:]) * product(op.attr("ksize"))
    elif is_fc:
        flops = product(shape(op.input("Y")[0]))
        params = flops + 1
    elif op.type == "batch_norm":
        params, flops = source[1] * 2, product(source[1:]) * 2
    else:
        params, flops = int(op.type == "prelu"), product(source[1:])
    return op.type, source[1:], result[1:], params, flops
