"""The gradients of gradient operators for which fluid has operators, such as ``square_grad_grad``.

The name of a slot says what it holds (`minigraph.opdef.gradient_rules.DoubleGrad`): DX is the gradient of X, DDX the
gradient of DX, which flows in or, as a result, out. Of several that flow in some may be left out, and count as zero.
A result has the type of what it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from minigraph.opdef import OpDef, Slot, define, definition_of
from minigraph.opdef.gradient_rules import differentiated
from minigraph.types import (
    TensorType,
    merge_shapes,
    require,
    require_floating,
    require_same_dtype,
    same_shape,
)

Check: TypeAlias = "Callable[[dict[str, TensorType]], None] | None"


def _define(forward: str, inputs: str, outputs: str, doc: str, check: Check = None) -> None:
    """Define the gradient of the gradient operator of `forward`.

    `check` gets the types by what they belong to, and may refuse them; those of a function of two tensors are checked
    as its own.
    """
    define(f"{forward}_grad_grad", partial(_definition, forward, inputs, outputs, doc, check))


def _definition(forward: str, inputs: str, outputs: str, doc: str, check: Check) -> OpDef:
    definition = definition_of(forward)
    operands = [slot.name for slot in definition.inputs if not slot.dispensable]
    result = definition.outputs[0].name
    slots, results = inputs.split(), outputs.split()
    flowing = [slot for slot in slots if differentiated(slot)[1] == 2]

    def infer(*types: TensorType | None, **attrs: Any) -> Any:
        given = {slot: type for slot, type in zip(slots, types, strict=True) if type is not None}
        require(
            any(slot in given for slot in flowing), f"nothing flows in: {' and '.join(flowing)} are left out",
            hint=f"Give one of them to {forward}_grad_grad.",
        )  # fmt: skip
        found: dict[str, TensorType] = {}
        (start, leading), *_ = given.items()
        for slot, own in given.items():
            require_floating(own, slot)
            require_same_dtype(f"{start} and {slot}", leading, own)
            name = differentiated(slot)[0]
            first = found.setdefault(name, own)
            what = f"{slot} and what it belongs to"
            found[name] = first.with_shape(merge_shapes(first.shape, own.shape, what))
        if len(operands) == 2 and all(name in found for name in operands):
            absent = [None] * (len(definition.inputs) - 2)
            whole = definition.infer(*(found[name] for name in operands), *absent, **attrs)
            found[result] = whole.with_shape(merge_shapes(whole.shape, found[result].shape, f"{result} and D{result}"))
        if check is not None:
            check(found)
        inferred = tuple(found[differentiated(slot)[0]] for slot in results)
        return inferred if len(inferred) > 1 else inferred[0]

    return OpDef(
        type=f"{forward}_grad_grad",
        inputs=tuple(Slot(slot, dispensable=len(flowing) > 1 and slot in flowing) for slot in slots),
        outputs=tuple(Slot(slot, dispensable=True) for slot in results),
        attrs=definition.attrs,
        infer=infer,
        grad=None,
        backend_attrs=definition.backend_attrs,
        doc=f"Gradient of the gradient of ``{forward}``: {doc}",
    )


# Functions of one element


def _check_elements(of: dict[str, TensorType]) -> None:
    if "X" in of and "Out" in of:
        merge_shapes(of["X"].shape, of["Out"].shape, "what belongs to X and to Out")


_define(
    "square", "X DOut DDX", "DX DDOut",
    "``DX = 2 * DOut * DDX`` and ``DDOut = 2 * X * DDX``.",
    _check_elements,
)  # fmt: skip
_define(
    "sqrt", "Out DX DDX", "DOut DDOut",
    "``DOut = -DX * DDX / Out`` and ``DDOut = DDX / (2 * Out)``, where DOut is what flows into the root itself.",
    _check_elements,
)  # fmt: skip
_define("relu", "Out DDX", "DDOut", "``DDOut`` is DDX where Out is positive, else 0.", _check_elements)
_define(
    "leaky_relu", "Out DDX", "DDOut",
    "``DDOut`` is DDX where Out is positive, else ``alpha * DDX``.",
    _check_elements,
)  # fmt: skip
_define(
    "elu", "X DOut DDX", "DX DDOut",
    "``DDOut`` is DDX where X is positive, else ``alpha * exp(X) * DDX``; ``DX`` is 0 there, else\n"
    "``alpha * exp(X) * DOut * DDX``.",
    _check_elements,
)  # fmt: skip


# Functions of two tensors


def _check_quotient(of: dict[str, TensorType]) -> None:
    require(
        same_shape(of["X"].shape, of["Out"].shape),
        f"DX and DDX must have the shape of Out, got {list(of['X'].shape)} and {list(of['Out'].shape)}",
        hint="Expand X to the shape of Out first: the gradient of a broadcast X has lost the elements of Out.",
    )


_define(
    "elementwise_add", "Y DOut DDX DDY", "DDOut",
    "``DDOut = DDX + DDY``, with DDY laid over DDX as Y over X.",
)  # fmt: skip
_define(
    "elementwise_sub", "Y DOut DDX DDY", "DDOut",
    "``DDOut = DDX - DDY``, with DDY laid over DDX as Y over X.",
)  # fmt: skip
_define(
    "elementwise_mul", "X Y DOut DDX DDY", "X@GRAD Y@GRAD DDOut",
    "``X@GRAD = DOut * DDY``, ``Y@GRAD = DOut * DDX``, ``DDOut = DDX * Y + X * DDY``.\n\n"
    "What belongs to an operand that was repeated is summed.",
)  # fmt: skip
_define(
    "elementwise_div", "Y Out DX DDX DDY", "Y@GRAD DOut DDOut",
    "``DOut = -DX * DDY``, ``DDOut = (DDX - Out * DDY) / Y``,\n"
    "``Y@GRAD = DX * (Out * DDY - DDX) / Y``.\n\n"
    "DOut is what flows into the quotient itself. What belongs to a Y that was repeated is summed; X must not be.",
    _check_quotient,
)  # fmt: skip
_define(
    "mul", "X Y DOut DDX DDY", "DX DY DDOut",
    "``DX = DOut @ DDY'``, ``DY = DDX' @ DOut``, ``DDOut = DDX @ Y + X @ DDY``, products of matrices.",
)  # fmt: skip
_define(
    "conv2d", "Input Filter DOutput DDInput DDFilter", "DInput DFilter DDOutput",
    "``DDOutput`` is the convolution of DDInput with Filter, and of Input with DDFilter, added up;\n"
    "``DInput`` what ``conv2d_grad`` gives for DDFilter in place of Filter, ``DFilter`` for DDInput in place of Input.",
)  # fmt: skip


# Others

_define(
    "instance_norm", "X Scale SavedMean SavedVariance DY DDX DDScale DDBias", "DX DScale DDY",
    "with ``n = (X - SavedMean) * s``, ``s = SavedVariance``\n"
    "and ``P(v) = v - mean(v) - n * mean(v * n)`` over each channel of each sample,\n"
    "``DDY = Scale * s * P(DDX) + DDScale * n + DDBias``, ``DScale`` the sum of ``s * P(DDX) * DY``, and\n"
    "``DX = DDScale * s * P(DY) - Scale * s ** 2 * B`` with\n"
    "``B = n * mean(P(DDX) * DY) + mean(DDX * n) * P(DY) + mean(DY * n) * P(DDX)``.",
)  # fmt: skip
_define("reshape2", "DOut DDX", "DDOut", "``DDOut`` has the elements of DDX in the shape of DOut.")
