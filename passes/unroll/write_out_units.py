"""Write units of recurrent networks out as the operators that other passes know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from minigraph import unique_name
from minigraph.ir import Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.types import DType


class WriteOutUnits(Pass):
    """Turn ``lstm_unit`` and its gradient into a ``split`` and operators on elements.

    The gradient computes the gates once more; `ShareCommonSubexpressions` then takes those of the unit. float16, which
    the unit computes in float32, and unknown sizes are left alone, as is a gradient operator without ``H@GRAD``.

    Law: every value keeps its bits.
    """

    keeps_gradients: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        units = [op for op in (*ops.of_type("lstm_unit"), *ops.of_type("lstm_unit_grad")) if _is_plain(op)]
        for op in units:
            (_append_unit if op.type == "lstm_unit" else _append_gradient)(op)
            op.block.remove(op)
        return bool(units)


def _is_plain(op: Operator) -> bool:
    kind = op.block.vars[op.inputs["X"][0]].tensor_type
    is_known = kind is not None and kind.is_static and 0 not in kind.shape and kind.dtype is not DType.FP16
    return is_known and (op.type == "lstm_unit" or bool(op.inputs.get("H@GRAD")))


def _insert(op: Operator, type: str, inputs: Mapping[str, Any], outs: Mapping[str, Any] | str, **attrs: Any) -> Any:
    """Insert an operator; `outs` may be the slot of one new name. Returns the names written, one alone as it is."""
    given = {outs: unique_name.generate(f"{type}@UNIT")} if isinstance(outs, str) else dict(outs)
    insert_for(op, type, inputs, given, attrs)
    found = list(given.values())
    return found[0] if len(found) == 1 else found


def _gates(op: Operator) -> Sequence[str]:
    """Insert what computes the gates of input, memory and output, and the candidate; returns their names."""
    parts = [unique_name.generate("gate@UNIT") for _ in range(4)]
    _insert(op, "split", {"X": op.inputs["X"]}, {"Out": parts}, axis=1, num=4)
    if op.attr("forget_bias"):
        parts[1] = _insert(op, "scale", {"X": parts[1]}, "Out", bias=op.attr("forget_bias"))
    types = ("sigmoid", "sigmoid", "sigmoid", "tanh")
    return [_insert(op, type, {"X": part}, "Out") for type, part in zip(types, parts, strict=True)]


def _append_unit(op: Operator) -> None:
    (before,), (cell,) = op.inputs["C_prev"], op.outputs["C"]
    i, f, o, g = _gates(op)
    kept = _insert(op, "elementwise_mul", {"X": f, "Y": before}, "Out")
    new = _insert(op, "elementwise_mul", {"X": i, "Y": g}, "Out")
    _insert(op, "elementwise_add", {"X": kept, "Y": new}, {"Out": cell})
    squashed = _insert(op, "tanh", {"X": cell}, "Out")
    _insert(op, "elementwise_mul", {"X": o, "Y": squashed}, {"Out": op.outputs["H"][0]})


def _append_gradient(op: Operator) -> None:
    (before,), (cell,), (d_h,) = (op.inputs[slot] for slot in ("C_prev", "C", "H@GRAD"))
    i, f, o, g = _gates(op)
    squashed = _insert(op, "tanh", {"X": cell}, "Out")
    d_o, d_squashed = _product_gradient(op, o, squashed, d_h)
    d_c = _insert(op, "tanh_grad", {"Out": squashed, "Out@GRAD": d_squashed}, "X@GRAD")
    if op.inputs.get("C@GRAD"):
        d_c = _insert(op, "sum", {"X": [op.inputs["C@GRAD"][0], d_c]}, "Out")
    d_f, d_before = _product_gradient(op, f, before, d_c)
    d_i, d_g = _product_gradient(op, i, g, d_c)
    d_gates = [
        _insert(op, type, {"Out": gate, "Out@GRAD": d}, "X@GRAD")
        for type, gate, d in (
            ("sigmoid_grad", i, d_i), ("sigmoid_grad", f, d_f), ("sigmoid_grad", o, d_o), ("tanh_grad", g, d_g),
        )
    ]  # fmt: skip
    results = {slot: op.outputs.get(slot, (EMPTY,))[0] for slot in ("X@GRAD", "C_prev@GRAD")}
    if results["X@GRAD"] != EMPTY:
        _insert(op, "concat", {"X": d_gates}, {"Out": results["X@GRAD"]}, axis=1)
    if results["C_prev@GRAD"] != EMPTY:
        _insert(op, "assign", {"X": d_before}, {"Out": results["C_prev@GRAD"]})


def _product_gradient(op: Operator, x: str, y: str, d: str) -> Sequence[str]:
    names = {slot: unique_name.generate("product@UNIT") for slot in ("X@GRAD", "Y@GRAD")}
    found: Sequence[str] = _insert(op, "elementwise_mul_grad", {"X": x, "Y": y, "Out@GRAD": d}, names, axis=-1)
    return found
