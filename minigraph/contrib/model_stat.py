"""A table of the parameters and operations of an image network."""

from __future__ import annotations

from minigraph.ir import Operator, Program
from minigraph.support.public import public
from minigraph.types import product

__all__ = ["summary"]

ACTIVATIONS = ("sigmoid", "tanh", "relu", "leaky_relu", "prelu")

HEADERS = ("No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs")


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
    widths = [max(map(len, column)) for column in zip(HEADERS, *cells, strict=True)]
    rule = f"+{'+'.join('-' * (width + 2) for width in widths)}+"
    lines = [f"| {' | '.join(map(str.rjust, line, widths))} |" for line in (HEADERS, *cells)]
    print("\n".join([rule, lines[0], rule, *lines[1:], *([rule] if rows else [])]))
    params, flops = sum(row[3] for row in rows), sum(row[4] for row in rows)
    print(f"Total PARAMs: {params}({params / 10**6:.4f}M)\nTotal FLOPs: {flops}({flops / 10**9:.2f}G)")


def _row(op: Operator) -> tuple[str, tuple[int, ...], tuple[int, ...], int, int] | None:
    """Return type, shapes, parameters and operations of an operator, or None if fluid does not count it."""

    def shape(name: str) -> tuple[int, ...]:
        return tuple(op.block.var(name).shape or ())

    if op.type in ("conv2d", "depthwise_conv2d"):
        source, result = shape(op.input("Input")[0]), shape(op.output("Output")[0])
        params = product(shape(op.input("Filter")[0]))
        flops = 2 * product(result[2:]) * params
    elif op.type == "pool2d":
        source, result = shape(op.input("X")[0]), shape(op.output("Out")[0])
        params, flops = 0, product(result[1:]) * product(op.attr("ksize"))
    elif op.type == "mul" and "fc" in op.output("Out")[0]:
        source, result = shape(op.input("X")[0]), shape(op.output("Out")[0])
        flops = product(shape(op.input("Y")[0]))
        params = flops + 1
    elif op.type in ACTIVATIONS:
        source, result = shape(op.input("X")[0]), shape(op.output("Out")[0])
        params, flops = int(op.type == "prelu"), product(source[1:])
    elif op.type == "batch_norm":
        source, result = shape(op.input("X")[0]), shape(op.output("Y")[0])
        params, flops = source[1] * 2, product(source[1:]) * 2
    else:
        return None
    return op.type, source[1:], result[1:], params, flops
