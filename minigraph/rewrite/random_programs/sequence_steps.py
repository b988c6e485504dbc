"""Steps of random programs on sequences of different lengths.

Offsets are an attribute of ``lod_reset``, so that what is fed are plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable

from minigraph import layers
from minigraph.ir import Variable
from minigraph.rewrite.random_programs.free_steps import Sources, Unfit, like, matrix, small

_MOST_ROWS = 6
"""Maximum number of rows of all sequences."""

_KINDS = ("sum", "average", "sqrt", "max", "first", "last")


def _divided(k: Sources, x: Variable, count: int) -> Variable:
    """`x` as that many sequences, some of which may be empty."""
    rows = x.shape[0]
    cuts = sorted(k.random.integers(0, rows + 1, count - 1).tolist())
    return layers.lod_reset(x, target_lod=[0, *cuts, rows])


def _pool(k: Sources, x: Variable) -> Variable:
    return layers.sequence_pool(x, str(k.random.choice(_KINDS)), pad_value=float(k.random.choice([0.0, 0.5])))


def _gates(k: Sources, x: Variable, count: int) -> tuple[Variable, int]:
    """The shares of rows in `count` gates, and the size of each."""
    return k.linear(x, count * k.columns), k.columns


def _conv(k: Sources, x: Variable) -> Variable:
    size = int(k.random.integers(1, 4))
    attr = k.attr(size * x.shape[1], k.columns)
    return layers.sequence_conv(x, k.columns, size, param_attr=attr, bias_attr=False)


def _lstm(k: Sources, x: Variable) -> Variable:
    gates, size = _gates(k, x, 4)
    peeps, backward = (bool(k.random.integers(2)) for _ in range(2))
    hidden, cells = layers.dynamic_lstm(
        gates, 4 * size, param_attr=k.attr(size, 4 * size), bias_attr=k.attr(1, (7 if peeps else 4) * size),
        use_peepholes=peeps, is_reverse=backward, dtype=k.dtype,
    )  # fmt: skip
    return hidden * cells


def _gru(k: Sources, x: Variable) -> Variable:
    gates, size = _gates(k, x, 3)
    options = {"is_reverse": bool(k.random.integers(2)), "origin_mode": bool(k.random.integers(2))}
    return layers.dynamic_gru(gates, size, param_attr=k.attr(size, 3 * size), bias_attr=k.attr(1, 3 * size), **options)


def _softmax(k: Sources, x: Variable) -> Variable:
    return layers.elementwise_mul(x, layers.sequence_softmax(layers.reduce_mean(x, dim=1, keep_dim=True)), axis=0)


def _plus_rows(k: Sources, x: Variable) -> Variable:
    """The sum of rows in sequences and as many in none; the first operand decides that the sum has sequences."""
    if x.tensor_type is None or not x.tensor_type.is_static:
        return x
    return layers.elementwise_add(x, k.fed(k.random.uniform(-1, 1, x.shape).astype(k.dtype)))


def _through_padding(k: Sources, x: Variable) -> Variable:
    return layers.sequence_unpad(*layers.sequence_pad(x, layers.fill_constant([1], k.dtype, 0.5)))


_STEPS: dict[str, Callable[[Sources, Variable], Variable]] = {
    "conv": _conv,
    "expand": lambda k, x: layers.sequence_expand_as(_pool(k, x), x),
    "gru": _gru,
    "lstm": _lstm,
    "padding": _through_padding,
    "plus_rows": _plus_rows,
    "reverse": lambda k, x: layers.sequence_reverse(x),
    "row_conv": lambda k, x: layers.row_conv(x, 1, param_attr=k.attr(2, x.shape[1])),
    "softmax": _softmax,
    "spread": lambda k, x: x * layers.sequence_expand(_pool(k, x), x),
    "tanh": lambda k, x: layers.tanh(x),
}
"""Steps that keep the number and the lengths of sequences."""


def on_sequences(k: Sources, x: Variable, y: Variable, c: float) -> list[Variable]:
    """Divide the rows of `x` and `y` into sequences, apply a few steps to these, and pool them."""
    x = layers.cast(small(matrix(x), _MOST_ROWS), k.dtype)
    if min(x.shape) < 1:
        raise Unfit("no rows, or an unknown number")
    count = int(k.random.integers(1, 4))
    made = [_divided(k, x, count)]
    if c < 0:
        made.append(layers.sequence_concat([made[-1], _divided(k, like(x, y), count)]))
    for name in k.random.choice(sorted(_STEPS), int(k.random.integers(1, 4))):
        made.append(_STEPS[str(name)](k, made[-1]))
    return [*made, _pool(k, made[-1])]


TYPES = frozenset({
    "gru", "lod_reset", "lstm", "row_conv", "sequence_concat", "sequence_conv", "sequence_expand", "sequence_expand_as",
    "sequence_pad", "sequence_pool", "sequence_reverse", "sequence_softmax", "sequence_unpad",
})  # fmt: skip
"""Types of operators that `on_sequences` appends."""
