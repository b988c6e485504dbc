"""Layers of ``fluid.contrib`` for networks that predict clicks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigraph.errors import NotFoundError, WrongTypeError
from minigraph.ir import Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, create_state, emit, layer
from minigraph.layers.activation import relu, sigmoid, tanh
from minigraph.layers.elementwise import elementwise_add, elementwise_mul, elementwise_sub
from minigraph.layers.elementwise import scale as scaled
from minigraph.layers.nn import embedding
from minigraph.layers.reduce import reduce_sum
from minigraph.layers.sequence_pool import sequence_pool
from minigraph.unique_name import generate

__all__ = [
    "ctr_metric_bundle",
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "partial_concat",
    "partial_sum",
    "shuffle_batch",
]


@layer
def partial_concat(input: Variable | Sequence[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """The columns from `start_index` of each matrix, side by side: `length` of them, or the rest.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.dygraph.guard():
    ...     x, y = (fluid.dygraph.to_variable(np.arange(i, i + 3).reshape(1, 3)) for i in (0, 10))
    ...     partial_concat([x, y], 1).numpy(), partial_sum([x, y], 0, 2).numpy()
    (array([[ 1,  2, 11, 12]]), array([[10, 12]]))
    """
    return emit("partial_concat", X=input, start_index=start_index, length=length)


@layer
def partial_sum(input: Variable | Sequence[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """The sum of the columns from `start_index` of matrices: `length` of them, or the rest."""
    return emit("partial_sum", X=input, start_index=start_index, length=length)


@layer
def shuffle_batch(x: Variable, seed: int | Variable | None = None) -> Variable:
    """The rows of `x` in a random order, a new one in each run.

    Parameters
    ----------
    x : Variable of at least 2 dimensions
        All but the last count rows.
    seed : int or Variable, int64[1], optional
        The seed of the first run; each run leaves that of the next one. Default: the program's seed, or a random one.
    """
    check_variable(x, "shuffle_batch: x")
    if seed is None:
        seed = default_main_program().random_seed or int(np.random.randint(-65536, 65535))
    start = seed if isinstance(seed, int) else None
    if isinstance(seed, int):
        seed = create_state(generate("shuffle_batch_seed"), [1], "int64", seed, persistable=True, stop_gradient=True)
    elif not isinstance(seed, Variable):
        raise WrongTypeError(f"shuffle_batch: seed must be an integer or a Variable, got {seed!r:.60}")
    helper = LayerHelper("shuffle_batch")
    out, order = helper.temporary(), helper.temporary()
    attrs = {} if start is None else {"startup_seed": start}
    helper.append("shuffle_batch", {"X": x, "Seed": seed}, {"Out": out, "ShuffleIdx": order, "SeedOut": seed}, attrs)
    return out


@layer
def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: str | Sequence[str],
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """``binary(x, unary(y))`` or ``unary(binary(x, y))``, by operators that executors fuse anyway.

    Parameters
    ----------
    functor_list : sequence of str, or str with a comma
        The outer function first: ``elementwise_add`` or ``elementwise_mul``, and ``relu``, ``tanh``, ``sigmoid`` or
        ``scale``.
    axis : int
        The dimension of `x` that the first one of `y` belongs to.
    scale : float
        The factor of ``scale``.
    save_intermediate_out : bool
        Without effect.
    """
    names = functor_list.split(",") if isinstance(functor_list, str) else list(functor_list)
    unary: dict[str, Callable[[Variable], Variable]] = {
        "relu": relu, "scale": lambda z: scaled(z, scale), "sigmoid": sigmoid, "tanh": tanh,
    }  # fmt: skip
    binary = {"elementwise_add": elementwise_add, "elementwise_mul": elementwise_mul}
    if len(names) != 2 or not any(first in unary and last in binary for first, last in (names, names[::-1])):
        raise WrongTypeError(
            f"fused_elemwise_activation: functor_list must be one of {', '.join(binary)} and one of"
            f" {', '.join(unary)}, got {functor_list!r:.80}"
        )
    outer, inner = names
    if outer in unary:
        return unary[outer](binary[inner](x, y, axis=axis))
    return binary[outer](x, unary[inner](y), axis=axis)


@layer
def fused_embedding_seq_pool(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """The sum of the learned rows of each sequence of ids, float32[sequences, size[1]].

    It is `layers.embedding`, which describes the parameters, and `layers.sequence_pool`.

    Parameters
    ----------
    input : Variable, int64[rows, 1], of sequences
    combiner : {'sum'}

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
    ...     sums = fused_embedding_seq_pool(ids, [5, 2], param_attr=fluid.initializer.Constant(1.0))
    ...     executor = fluid.Executor()
    ...     _ = executor.run(fluid.default_startup_program())
    ...     rows = fluid.create_lod_tensor(np.array([[3], [0], [4]]), [[2, 1]], None)
    ...     executor.run(feed={"ids": rows}, fetch_list=[sums])
    [array([[2., 2.],
           [1., 1.]], dtype=float32)]
    """
    if combiner != "sum":
        raise NotFoundError(f"fused_embedding_seq_pool: there is no combiner {combiner!r:.40}", hint="Use 'sum'.")
    rows = embedding(input, size, is_sparse, padding_idx=padding_idx, param_attr=param_attr, dtype=dtype)
    return sequence_pool(rows, combiner)


@layer
def ctr_metric_bundle(input: Variable, label: Variable) -> tuple[Variable, ...]:
    """Sums over all batches so far, of which measures of a predictor of clicks are made.

    Parameters
    ----------
    input, label : Variable, float32[batch, 1]
        Probabilities and what happened.

    Returns
    -------
    tuple of Variable, float32[1]
        The sums of squared errors, absolute errors, probabilities, sigmoids of the probabilities and labels, and the
        number of rows. Divided by the last one, the first is a mean squared error, and so on.
    """
    p, y = check_floating(input, "ctr_metric_bundle: input"), check_floating(label, "ctr_metric_bundle: label")
    error = elementwise_sub(p, y)
    ones = emit("fill_constant_batch_size_like", Input=y, shape=[-1, 1], dtype=int(p.dtype), value=1.0)
    parts = [
        emit("squared_l2_norm", X=error), emit("l1_norm", X=error), reduce_sum(p), reduce_sum(sigmoid(p)),
        reduce_sum(y), reduce_sum(ones),
    ]  # fmt: skip
    # Fluid names the sums, absolute errors first, and nine temporaries by one counter; files have these names.
    names = [generate("_generated_var") for _ in range(len(parts) + 9)]
    totals = []
    for part, name in zip(parts, (names[1], names[0], *names[2:]), strict=False):
        total = create_state(name, [1], "float32", stop_gradient=True)
        totals.append(emit("elementwise_add", into=total, X=part, Y=total))
    return tuple(totals)
