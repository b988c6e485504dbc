"""Multiply with a transposed copy of a weight that many products read transposed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from minigraph.ir import Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.rewriting import MergeSmall, insert_for, is_matrix, is_read_by_many
from minigraph.passes.values import Value, Values

_TRANSPOSES = {"transpose2": "X", "transpose2_grad": "Out@GRAD"}
"""Operators that transpose, with the slot of what they transpose."""

_ENDING = ".transposed"


class TransposeWeights(MergeSmall):
    """Turn ``matmul(x, w, transpose_Y=True)`` into ``mul(x, t)`` with one copy t of ``w'``, and gradients likewise.

    Sums of transposed values become the transpose of the sum, however the program transposes. The merges of products
    then see the form that they look for. Fewer products with one weight than `least` are left alone, and those of
    matrices with more than `most_elements` elements.

    Law: every value is the same up to rounding: a library of matrix products may add in another order. Each element
    differs by at most ``2 k eps`` times that of ``|x| @ |w|'``, with k columns of x.
    """

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        found = self._multiply(program) if is_read_by_many(program, "matmul", self.least) else False
        if "sum" in ops.by_type and any(type in ops.by_type for type in _TRANSPOSES):
            values = Values(program)
            totals = [op for op in ops.of_type("sum") if len(op.inputs["X"]) >= self.least]
            added = [_add_first(op, values) for op in totals]
            found |= any(added)
        return found

    def _multiply(self, program: Program) -> bool:
        values = Values(program)
        products, gradients = (self._transposed(type, values) for type in ("matmul", "matmul_grad"))
        several = {weight: ops for weight, ops in products.items() if len(ops) >= self.least}
        for weight, ops in several.items():
            start = values.position[ops[0]]
            later = [op for op in gradients.get(weight, ()) if values.position[op] > start]
            _multiply_with_copy(ops, later)
        return bool(several)

    def _transposed(self, type: str, values: Values) -> dict[Value, list[Operator]]:
        """The products, or gradients of products, with transposed matrices, by matrix."""
        found: defaultdict[Value, list[Operator]] = defaultdict(list)
        for op in values.block.ops.of_type(type):
            is_plain = op.attr("transpose_Y") and not op.attr("transpose_X") and op.attr("alpha") == 1
            if is_plain and all(is_matrix(values.block, op.inputs[slot][0], self.most_elements) for slot in "XY"):
                found[values.input(op, "Y")].append(op)
        return found


def _multiply_with_copy(products: Sequence[Operator], gradients: Sequence[Operator]) -> None:
    first, (weight,) = products[0], products[0].inputs["Y"]
    given = first.block.vars[weight].shape or ()
    view, copy = (_like(first, weight, given[::-1]) for _ in range(2))
    _transpose(first, weight, view, given)
    insert_for(first, "assign", {"X": view}, {"Out": copy}, {})
    for op in products:
        insert_for(op, "mul", {"X": op.inputs["X"], "Y": copy}, op.outputs, {})
        op.block.remove(op)
    for op in gradients:
        outputs, wanted = dict(op.outputs), [name for name in op.outputs.get("Y@GRAD", ()) if name != EMPTY]
        if wanted:
            outputs["Y@GRAD"] = (_like(op, copy, given[::-1]),)
        insert_for(op, "mul_grad", {"X": op.inputs["X"], "Y": copy, "Out@GRAD": op.inputs["Out@GRAD"]}, outputs, {})
        for name in wanted:
            _transpose(op, outputs["Y@GRAD"][0], name, given[::-1])
        op.block.remove(op)


def _transpose(op: Operator, name: str, out: str, shape: Sequence[int]) -> None:
    """Insert the transpose of a matrix before an operator."""
    insert_for(op, "transpose2", {"X": name}, {"Out": out, "XShape": _like(op, name, (0, *shape))}, {"axis": [1, 0]})


def _like(op: Operator, name: str, shape: Sequence[int]) -> str:
    made = op.block.free_name(f"{name.partition(_ENDING)[0]}{_ENDING}")
    op.block.create_var(name=made, dtype=op.block.vars[name].dtype, shape=shape)
    return made


def _add_first(total: Operator, values: Values) -> bool:
    """Replace the sum of transposed values by the transpose of their sum; returns whether it is one."""
    found: list[Operator] = []
    for i in range(len(total.inputs["X"])):
        value = values.input(total, "X", i)
        op = values.producer(value, *_TRANSPOSES)
        if op is None or not values.is_used_once(value) or not _is_alike(op, found):
            return False
        if not values.is_there(values.input(op, _TRANSPOSES[op.type]), total):
            return False
        if any(_is_read(values, op, name) for name in op.outputs.get("XShape", ())):
            return False
        found.append(op)
    last, slot = found[-1], _TRANSPOSES[found[-1].type]
    if not all(values.is_there(values.input(last, each), total) for each in last.inputs):
        return False
    inner = last.block.vars[last.inputs[slot][0]]
    added = _like(total, last.inputs[slot][0], inner.shape or ())
    insert_for(total, "sum", {"X": [op.inputs[_TRANSPOSES[op.type]][0] for op in found]}, {"Out": added}, {})
    shapes = {each: name for each, name in last.outputs.items() if each == "XShape"}
    outputs = {"Out" if last.type == "transpose2" else "X@GRAD": total.outputs["Out"]}
    insert_for(total, last.type, {**last.inputs, slot: added}, {**outputs, **shapes}, {"axis": last.attr("axis")})
    for op in (total, *found):
        op.block.remove(op)
    return True


def _is_read(values: Values, op: Operator, name: str) -> bool:
    value = values.written(name, op)
    return bool(values.users(value)) or values.is_live_out(value)


def _is_alike(op: Operator, others: Sequence[Operator]) -> bool:
    """Whether `op` transposes like the others."""
    return not others or (op.type == others[0].type and list(op.attr("axis")) == list(others[0].attr("axis")))
