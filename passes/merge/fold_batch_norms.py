"""Multiply the filters of convolutions by the factors of batch norms whose statistics are given."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar, NamedTuple

from minigraph import unique_name
from minigraph.ir import Operator, Program
from minigraph.ir.dataflow import is_persistable
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for, served_by
from minigraph.passes.values import Values
from minigraph.support.window_rules import is_channels_last
from minigraph.types import DType, TensorType

_FLOATS = (DType.FP32, DType.FP64)
_CONVOLUTIONS = ("conv2d", "depthwise_conv2d")

LEAST = 1024
"""Minimum elements of a sample that a normalization must write to be worth some operators on vectors."""


class FoldBatchNorms(Pass):
    """Turn ``batch_norm(conv2d(x, w))`` with given statistics into ``conv2d(x, w * s) + t``, and gradients.

    So it is in a test, and with ``use_global_stats``. For each channel ``s = scale / sqrt(variance + epsilon)`` and
    ``t = bias - mean * s``. The filters are multiplied in each run, so that they must have fewer elements than a sample
    of the result. Nothing else may read the result of the convolution or its gradient.

    Law: every value is the same up to rounding, as long as all are finite: an element y of the result by at most
    ``(k + 8) eps`` times ``|s| * (sum(|w * x|) + |mean|) + |bias|``, where k products are added for it.
    """

    changes_rounding: ClassVar[bool] = True

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        if not ops.of_type("batch_norm") or not any(ops.of_type(type) for type in _CONVOLUTIONS):
            return False  # the quick way out for most programs
        values, changed = Values(program), False
        for norm in list(ops.of_type("batch_norm")):
            found = _find(norm, values)
            if found is not None:
                found.replace()
                changed = True
        return changed


class _Gradient(NamedTuple):
    """The gradient of a normalization, and that of the convolution which alone reads it."""

    norm: Operator
    conv: Operator


class _Normalized(NamedTuple):
    """A convolution, the normalization that alone reads its result, and their gradients."""

    conv: Operator
    norm: Operator
    gradient: _Gradient | None

    @property
    def channel_dim(self) -> int:
        return _channel_dim(self.conv)

    def replace(self) -> None:
        conv, norm = self.conv, self.norm
        factor, addend = _factor(norm, norm), unique_name.generate("addend@NORM")
        moved = _insert(norm, "elementwise_mul", X=norm.inputs["Mean"][0], Y=factor)
        insert_for(norm, "elementwise_sub", {"X": norm.inputs["Bias"], "Y": moved}, {"Out": addend}, {})
        inputs = {**conv.inputs, "Filter": _scaled(norm, conv, factor)}
        plain = unique_name.generate("conv@NORM")
        insert_for(norm, conv.type, inputs, {"Output": plain}, conv.attrs)
        # The result keeps its name, and nothing else is read.
        of_channels = {"axis": self.channel_dim}
        insert_for(norm, "elementwise_add", {"X": plain, "Y": addend}, {"Out": norm.outputs["Y"]}, of_channels)
        if self.gradient is not None:
            self._replace_gradient(self.gradient)
        for op in (conv, norm):
            op.block.remove(op)

    def _replace_gradient(self, gradient: _Gradient) -> None:
        """Insert the gradient of the convolution with multiplied filters, and that of the multiplication."""
        conv, norm = gradient.conv, gradient.norm
        d = norm.inputs["Y@GRAD"][0]
        made = {slot: _name(norm, f"{slot}@GRAD") for slot in ("Scale", "Bias")}
        made |= {slot: _name(conv, f"{slot}@GRAD") for slot in ("Input", "Filter")}
        factor = _factor(conv, self.norm)
        inputs = {**conv.inputs, "Filter": _scaled(conv, self.conv, factor), "Output@GRAD": d}
        outputs = {"Input@GRAD": made["Input"]} if made["Input"] else {}
        d_filter = unique_name.generate("filter@NORM") if made["Filter"] or made["Scale"] else ""
        if d_filter:
            outputs["Filter@GRAD"] = d_filter
        insert_for(conv, conv.type, inputs, outputs, conv.attrs)
        if made["Filter"]:
            _insert(conv, "elementwise_mul", made["Filter"], {"axis": 0}, X=d_filter, Y=factor)
        if made["Bias"] or made["Scale"]:
            self._append_vectors(gradient, made, d_filter)
        for op in (conv, norm):
            op.block.remove(op)

    def _append_vectors(self, gradient: _Gradient, made: Mapping[str, str], d_filter: str) -> None:
        """Insert the gradients of the bias and, by that of the multiplied filters, of the scale."""
        conv, channel = gradient.conv, self.channel_dim
        d, over = gradient.norm.inputs["Y@GRAD"][0], {"dim": [axis for axis in range(4) if axis != channel]}
        d_bias = _insert(conv, "reduce_sum", made["Bias"], over, gradient.norm, X=d)
        if not made["Scale"]:
            return
        product = _insert(conv, "elementwise_mul", X=d_filter, Y=self.conv.inputs["Filter"][0])
        of_filters = _insert(conv, "reduce_sum", attrs={"dim": [1, 2, 3]}, X=product)
        of_means = _insert(conv, "elementwise_mul", X=d_bias, Y=self.norm.inputs["Mean"][0])
        apart = _insert(conv, "elementwise_sub", X=of_filters, Y=of_means)
        inverse = _inverse(conv, self.norm)
        _insert(conv, "elementwise_mul", made["Scale"], served=gradient.norm, X=apart, Y=inverse)


def _insert(
    place: Operator, type: str, out: str = "", attrs: Mapping[str, Any] | None = None, served: Operator | None = None,
    **inputs: str,
) -> str:  # fmt: skip
    """Insert an operator on tensors before `place`; returns the name of its result, a new one if `out` is empty.

    It completes the gradients that `served` did, if that is given and not `place`.
    """
    out = out or unique_name.generate(f"{type}@NORM")
    made = insert_for(place, type, inputs, {"Out": out}, attrs or {})
    if served is not None:
        made.role_vars = served_by(served, [out])
    return out


def _inverse(place: Operator, norm: Operator) -> str:
    """Insert ``1 / sqrt(variance + epsilon)``."""
    biased = _insert(place, "scale", attrs={"bias": norm.attr("epsilon")}, X=norm.inputs["Variance"][0])
    return _insert(place, "rsqrt", X=biased)


def _factor(place: Operator, norm: Operator) -> str:
    return _insert(place, "elementwise_mul", X=norm.inputs["Scale"][0], Y=_inverse(place, norm))


def _scaled(place: Operator, conv: Operator, factor: str) -> str:
    return _insert(place, "elementwise_mul", attrs={"axis": 0}, X=conv.inputs["Filter"][0], Y=factor)


def _name(op: Operator, slot: str) -> str:
    """The name that `op` writes in a slot; empty if there is none."""
    (name,) = op.outputs.get(slot, (EMPTY,))
    return "" if name == EMPTY else name


def _channel_dim(conv: Operator) -> int:
    return 3 if is_channels_last(conv.attr("data_format")) else 1


def _find(norm: Operator, values: Values) -> _Normalized | None:
    """Return the operators that become a convolution with multiplied filters, if `norm` is the normalization."""
    x = values.input(norm, "X")
    conv = values.producer(x, *_CONVOLUTIONS)
    if conv is None or values.is_live_out(x) or not _fits(conv, norm, values):
        return None
    others = [op for op in values.readers[x] if op is not norm]
    gradient = _gradient(conv, norm, others, values) if others else None
    if others and gradient is None:
        return None
    read = [values.input(conv, "Input"), values.input(conv, "Filter")]
    kept = [values.input(norm, slot) for slot in ("Scale", "Bias")]
    is_there = all(values.is_there(value, norm) for value in read)
    if gradient is not None:
        # The names of the statistics mean what the normalization writes, which is what it reads.
        kept += [values.output(norm, slot) for slot in ("MeanOut", "VarianceOut")]
        is_there = is_there and all(values.is_there(value, gradient.conv) for value in (*read, *kept))
    return _Normalized(conv, norm, gradient) if is_there else None


def _fits(conv: Operator, norm: Operator, values: Values) -> bool:
    """Whether statistics are given, types are alike, and the filters have fewer elements than the result."""
    if not (norm.attr("use_global_stats") or (norm.attr("is_test") and not norm.attr("trainable_statistics"))):
        return False
    if conv.inputs.get("Bias") or conv.inputs.get("ResidualData") or not _keeps_statistics(norm, values):
        return False
    is_last = is_channels_last(conv.attr("data_format"))
    kinds = [values.type_of(value) for value in (values.input(norm, "X"), values.input(conv, "Filter"))]
    kinds += [values.type_of(values.input(norm, slot)) for slot in ("Scale", "Bias", "Mean", "Variance")]
    if is_last != is_channels_last(norm.attr("data_layout")) or not all(map(_is_plain, kinds)):
        return False
    whole, filters, *vectors = kinds
    assert whole is not None
    assert filters is not None
    is_alike = all(kind is not None and kind.dtype is whole.dtype for kind in (filters, *vectors))
    # A sample is counted, not the batch, so that the rounding is the same for all batches.
    return is_alike and prod(whole.shape[1:]) >= max(LEAST, 2 * prod(filters.shape))


def _is_plain(kind: TensorType | None) -> bool:
    return kind is not None and kind.is_static and kind.dtype in _FLOATS and 0 not in kind.shape


def _keeps_statistics(norm: Operator, values: Values) -> bool:
    """Whether the statistics stay what they are by name, and nobody but the gradient reads those of this run."""
    for slot in ("Mean", "Variance"):
        if norm.outputs[f"{slot}Out"] != norm.inputs[slot]:
            return False
        (name,) = norm.outputs.get(f"Saved{slot}", (EMPTY,))
        saved = None if name == EMPTY else values.written(name, norm)
        if saved is not None and (
            values.is_live_out(saved)
            or is_persistable(norm.block.find_var(name))
            or any(op.type != "batch_norm_grad" for op in values.readers[saved])
        ):
            return False
    return True


def _gradient(conv: Operator, norm: Operator, others: list[Operator], values: Values) -> _Gradient | None:
    """Return the gradients of both, if these are all that reads the result of the convolution."""
    if len(others) != 1 or others[0].type != "batch_norm_grad" or not _belongs(others[0], norm, values):
        return None
    (back,) = others
    name = _name(back, "X@GRAD")
    flowing = values.written(name, back) if name else None
    if flowing is None or not values.is_used_once(flowing):
        return None
    (after,) = values.readers[flowing]
    if after.type != f"{conv.type}_grad" or after.inputs.get("Bias") or values.input(after, "Output@GRAD") != flowing:
        return None
    same = all(values.input(after, slot) == values.input(conv, slot) for slot in ("Input", "Filter"))
    same = same and all(after.attr(each) == conv.attr(each) for each in after.definition.attrs)
    if not same or not values.is_there(values.input(back, "Y@GRAD"), after):
        return None
    return _Gradient(back, after) if _may_wait(back, after, values) else None


def _belongs(back: Operator, norm: Operator, values: Values) -> bool:
    """Whether `back` is the gradient of `norm`."""
    saved = {slot: norm.outputs.get(slot, (EMPTY,))[0] for slot in ("SavedMean", "SavedVariance")}
    return (
        all(values.input(back, slot) == values.input(norm, slot) for slot in ("X", "Scale", "Bias"))
        and all(values.input(back, slot) == values.written(name, norm) for slot, name in saved.items())
        and all(back.attr(each) == norm.attr(each) for each in back.definition.attrs)
    )


def _may_wait(back: Operator, after: Operator, values: Values) -> bool:
    """Whether the gradients of scale and bias may be made where `after` stands."""
    at = values.position[after]
    names = [name for slot in ("Scale@GRAD", "Bias@GRAD") if (name := _name(back, slot))]
    made = [values.written(name, back) for name in names]
    return all(values.is_there(value, after) for value in made) and all(
        values.position[reader] > at for value in made for reader in values.readers[value]
    )
