"""Selected rows: compiled loops for lookups, merging and updates, with the bits of the shared kernels.

State that decays becomes 0 where it would be subnormal, as in `minigraph.kernels.jit.updates`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver, unshared
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.loops.rows import DIGIT
from minigraph.kernels.jit.offers import is_worth_it, numba_name, offer, vectors
from minigraph.kernels.jit.threads import row_pieces, run_together
from minigraph.kernels.jit.updates import body, head, numbers_of
from minigraph.kernels.registry import find_kernel, specialize
from minigraph.kernels.sparse_rows import SparseRows
from minigraph.kernels.update_kernels import buffers_for, is_skipped, kept, one_or_all, owned
from minigraph.kernels.update_rules import RULES, TENSORS, Element, UpdateRule, names_in

_LOOPS = Loops("rows")
INDICES = "int64[::1]"

# Lookups


@offer("lookup_table_v2", any_size=True)
def _lookup(xp, table, ids, *, padding_idx):
    return _taking(table, ids, len(ids.shape), padding_idx)


@offer("lookup_table", any_size=True)
def _lookup_columns(xp, table, ids, *, padding_idx):
    return _taking(table, ids, len(ids.shape) - 1, padding_idx)


@offer("gather", any_size=True)
def _gather(xp, x, index):
    return _taking(x, index, 1, -1)


@offer("gather_nd", any_size=True)
def _gather_nd(xp, x, index):
    return _taking(x, index, len(index.shape) - 1, -1) if index.shape[-1:] == (1,) else None


def _taking(table: Any, ids: Any, rank: int, padding: int) -> Callable[..., Any] | None:
    kind = numba_name(table.dtype)
    if kind is None or ids.dtype.name not in ("int32", "int64") or not is_worth_it(table):
        return None
    matrix, width = f"{kind}[:, ::1]", prod(table.shape[1:])
    loop = _LOOPS.compiled("take_rows", f"int64({matrix}, {ids.dtype.name}[::1], int64, {matrix})")

    def take(table: Any, ids: Any, out: Any = None) -> Any:
        buffer = unshared(np, out, table, ids)
        found = np.empty((*ids.shape[:rank], *table.shape[1:]), table.dtype) if buffer is None else buffer
        elements, numbers, rows = vectors(table, ids, found)
        source, rows = elements.reshape(len(table), width), rows.reshape(numbers.size, width)
        parts = row_pieces(numbers.size, width)
        if len(parts) == 1:
            wrong = [loop(source, numbers, padding, rows)]
        else:
            wrong = []
            run_together([
                partial(lambda part: wrong.append(loop(source, numbers[part], padding, rows[part])), slice(*edges))
                for edges in parts
            ])  # fmt: skip
        if any(wrong):
            raise TypeError("the shared kernel raises the error")
        return deliver(np, found, out)

    return take


@offer("lookup_table_grad", any_size=True)
@offer("lookup_table_v2_grad", any_size=True)
def _lookup_grad(xp, table, ids, d_out, *, padding_idx):
    return _adding(table, ids, d_out, padding_idx)


@offer("gather_grad", any_size=True)
def _gather_grad(xp, x, index, d_out, *, overwrite):
    return None if overwrite else _adding(x, index, d_out, -1)


@offer("gather_nd_grad", any_size=True)
def _gather_nd_grad(xp, x, index, d_out):
    return _adding(x, index, d_out, -1) if index.shape[-1:] == (1,) else None


def _adding(table: Any, ids: Any, d_out: Any, padding: int) -> Callable[..., Any] | None:
    kind = numba_name(table.dtype)
    if kind is None or table.dtype != d_out.dtype or ids.dtype.name not in ("int32", "int64") or not is_worth_it(table):
        return None
    matrix = f"{kind}[:, ::1]"
    loop = _LOOPS.compiled("add_rows", f"int64({ids.dtype.name}[::1], {matrix}, int64, {matrix})")

    def add(table: Any, ids: Any, d_out: Any) -> Any:
        total = np.zeros(table.shape, table.dtype)
        numbers, values = vectors(ids, d_out)
        width = prod(table.shape[1:])
        if loop(numbers, values.reshape(ids.size, width), padding, total.reshape(len(table), width)):
            raise TypeError("the shared kernel raises the error")
        return total

    return add


@offer("lookup_table_grad", rows=True)
@offer("lookup_table_v2_grad", rows=True)
def _lookup_rows(xp, table, ids, d_out, *, padding_idx):
    if ids.dtype.name not in ("int32", "int64") or not (padding_idx == -1 or 0 <= padding_idx < table.shape[0]):
        return None
    loop = _LOOPS.compiled("copy_numbers", f"int64({ids.dtype.name}[::1], int64, {INDICES})")

    def rows(table: Any, ids: Any, d_out: Any) -> SparseRows:
        (flat,), numbers = vectors(ids), np.empty(ids.size, np.int64)
        if loop(flat, len(table), numbers):
            raise TypeError("the shared kernel raises the error")
        return SparseRows(numbers, d_out.reshape(ids.size, *table.shape[1:]), len(table))

    return rows


# Merging


_SORT = f"int64({INDICES}, int64, {', '.join([INDICES] * 3)})"


def _order(x: SparseRows) -> Any:
    """The places of the rows of `x` in the order of their numbers."""
    count = x.rows.size
    room = np.empty(2 * count + (1 << DIGIT), np.int64)
    order = room[:count]
    if _LOOPS.compiled("sort_rows", _SORT)(x.rows, x.height, order, room[count : 2 * count], room[2 * count :]):
        raise TypeError("a row number is out of range")
    return order


def _matrix(x: SparseRows) -> Any:
    (value,) = vectors(x.value)
    return value.reshape(len(x.rows), prod(x.value.shape[1:]))


def _merged(given: Any) -> Any:
    """An input of a kernel with its selected rows merged, unless no loop was compiled for them."""
    if isinstance(given, list | tuple):
        return [_merged(each) for each in given]
    if not isinstance(given, SparseRows) or given.is_merged or numba_name(given.dtype) is None:
        return given
    matrix = f"{numba_name(given.dtype)}[:, ::1]"
    merge = _LOOPS.compiled("merge_rows", f"int64({INDICES}, {matrix}, {INDICES}, {INDICES}, {matrix})")
    try:
        value, order = _matrix(given), _order(given)
        numbers, total = np.empty_like(order), np.empty(value.shape, value.dtype)
        count = merge(given.rows, value, order, numbers, total)
    except TypeError:
        return given
    shape = count, *given.value.shape[1:]
    return SparseRows(numbers[:count], total[:count].reshape(shape), given.height, is_merged=True)


def _on_merged(type: str, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    """The shared kernel, given merged rows."""
    kernel = find_kernel(type, "cpu", rows=True)
    assert kernel is not None
    function = kernel.function
    return lambda *inputs, **out: function(np, *map(_merged, inputs), **attrs, **out)


for _type in (
    "merge_selected_rows", "clip", "clip_by_norm", "clip_by_axis_norm", "clip_by_global_norm", "adaptive_clip",
    "guard_nonfinite", "isfinite", "global_norm", "l1_norm", "squared_l2_norm", "autoclip_threshold",
    "zclip_threshold", "clip_statistics", "momentum", "rmsprop", "lamb",
):  # fmt: skip
    specialize(_type, jit=True, rows=True)(lambda xp, *arrays, _type=_type, **attrs: _on_merged(_type, attrs))


# Updates of the rows alone


@cache
def _loops(rule: UpdateRule, element: Element) -> Loops:
    """The loop over rows for a rule, named by its type.

    Its parameters are the arrays of the selected rows, their order, a row to work in, whole arrays, inputs of one
    number as vectors of one element, the numbers of `element`, and `tiny`, the bound below which state becomes 0.
    """
    parameters = ["numbers", "value", "order", "work", *(f"{name}_" for name in (*rule.arrays, *element.singles))]
    parameters += [*(f"n{i}" for i in range(len(element.numbers))), "tiny"]
    of_row = list(body(rule, element, "{}_[number, i]"))

    def updating(gradient: str) -> list[str]:
        # No view of a row: numba counts its references, which keeps LLVM from making the loop one of vectors.
        return [line.replace("grad_[number, i]", gradient) for line in of_row]

    lines = [
        f"def {rule.type}({', '.join(parameters)}):",
        *head(element),
        "    at = 0",
        "    while at < order.size:",
        "        place = order[at]",
        "        number = numbers[place]",
        "        at += 1",
        "        if at == order.size or numbers[order[at]] != number:",
        "            for i in range(work.size):",
        *(f"                {line}" for line in updating("value[place, i]")),
        "            continue",
        "        for i in range(work.size):",
        "            work[i] = value[place, i]",
        "        while at < order.size and numbers[order[at]] == number:",
        "            for i in range(work.size):",
        "                work[i] += value[order[at], i]",
        "            at += 1",
        "        for i in range(work.size):",
        *(f"            {line}" for line in updating("work[i]")),
    ]
    return Loops("functions", text="\n".join(["", *lines, ""]))


def _is_lazy(element: Element) -> bool:
    """Whether all that is assigned depends on the gradient, so that other rows stay as they are."""
    flowing = {"grad"}
    for name, value in element.own:
        if flowing.isdisjoint(names_in(ast.parse(value))):
            return False
        flowing.add(name)
    return True


def _lazy_update(type: str, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """A function like the kernel of a lazy update; None if there is no loop for these types and attributes."""
    rule = RULES[type]
    at = {name: i for i, name in enumerate(rule.inputs)}
    element, param = rule.element({name: attrs[name] for name in rule.attrs}), arrays[at["param"]]
    states, singles = [arrays[at[name]] for name in rule.arrays], [arrays[at[name]] for name in element.singles]
    kind = numba_name(param.dtype)
    if kind is None or not is_worth_it(param) or not _is_lazy(element):
        return None
    if any(x is None or x.dtype != param.dtype for x in states + singles) or any(x.shape != (1,) for x in singles):
        return None
    if any(name in at and arrays[at[name]] is not None for name in TENSORS.values()):
        return None
    numbers, matrix, vector = numbers_of(element, param.dtype, attrs), f"{kind}[:, ::1]", f"{kind}[::1]"
    types = [INDICES, matrix, INDICES, vector, *[matrix] * len(states), *[vector] * len(singles)]
    loop = _loops(rule, element).compiled(type, f"void({', '.join(types + [kind] * len(numbers))})")
    replaced, count = [at[name] for name in rule.outputs], len(states)
    factors, width = [param.dtype.type(factor) for _, factor in element.powers], prod(param.shape[1:])

    def update(*arrays: Any, out: Any = None) -> Any:
        buffers, given = buffers_for(out, len(replaced)), dict(zip(rule.inputs, arrays, strict=True))
        old, grad = [arrays[i] for i in replaced], given["grad"]
        if given["skip"] is not None and is_skipped(given["skip"]):
            return one_or_all(kept(np, old, buffers))
        value, order = _matrix(grad), _order(grad)
        new = [owned(np, x, y) for x, y in zip(old[:count], buffers, strict=False)]
        whole = [x if x.ndim == 2 and x.flags.c_contiguous else vectors(x)[0].reshape(-1, width) for x in new]
        powers = [x * y for x, y in zip(old[count:], factors, strict=True)]
        if type == "adam":  # as fluid's, see `minigraph.kernels.sparse_updates`
            given.update(zip(rule.outputs[count:], powers, strict=True))
        ones = [given[name] for name in element.singles]
        run_together([
            partial(loop, grad.rows, value, order[start:end], np.empty(width, value.dtype), *whole, *ones, *numbers)
            for start, end in _apart(grad.rows, order, width)
        ])  # fmt: skip
        return one_or_all([*new, *[deliver(np, x, y) for x, y in zip(powers, buffers[count:], strict=True)]])

    return update


def _apart(numbers: Any, order: Any, width: int) -> Iterator[tuple[int, int]]:
    """Begin and end in `order` of the rows for each thread; rows of one number are not parted."""
    start = 0
    for _, end in row_pieces(len(order), width):
        while start < end < len(order) and numbers[order[end]] == numbers[order[end - 1]]:
            end += 1
        if end > start:
            yield start, end
            start = end


def _offer_lazy(type: str) -> None:
    @offer(type, rows=True)
    def offered(xp: Any, *arrays: Any, **attrs: Any) -> Callable[..., Any]:
        return (_lazy_update(type, arrays, attrs) if attrs.get("lazy_mode", True) else None) or _on_merged(type, attrs)


for _type in ("sgd", "adagrad", "adam", "adamw"):
    _offer_lazy(_type)
