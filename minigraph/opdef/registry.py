"""Registry of operator definitions, which functions decorated with `op` fill.

Definitions are made when they are first asked for: a program needs few of them, and making all takes time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from minigraph.errors import NotFoundError, suggest
from minigraph.opdef.attr_types import CONVERTERS, converter_of
from minigraph.opdef.definition import REQUIRED, UPDATES_OF_ROWS, Attr, OpDef, OperatorRule, Slot
from minigraph.opdef.gradient_context import BlockGrad, GradRule
from minigraph.opdef.lengths import Count, LengthSource, length_source_of
from minigraph.support.signatures import parameter_names

_MAKERS: dict[str, Callable[[], OpDef]] = {}
"""Operator type -> function that makes its definition."""

_DEFINITIONS: dict[str, OpDef] = {}
"""Definitions that have been asked for."""


def op(
    type: str,
    *,
    inputs: str = "",
    outputs: str,
    grad: GradRule | OperatorRule | BlockGrad | None,
    rows: str = "",
    arrays: str = "",
    backend_attrs: Mapping[str, Any] | None = None,
    forward: str | None = None,
    updates: str = "",
    unchanged: Callable[[Callable[[str], Any]], Mapping[str, str]] | None = None,
    has_effect: bool = False,
    lod: str | Count | Mapping[str, str | Count] = "",
    lengths: str = "",
    doc: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an operator type; the decorated function infers the output types.

    The attribute ``lambda``, which no parameter can be called, is the parameter ``lambda_`` there and of the kernel.

    Parameters
    ----------
    type : str
        The type's name.
    inputs, outputs : str
        Slot names in order, separated by spaces. An output ``Out*`` takes several variables, ``Out~`` is intermediate
        (kept only for the gradient), ``Out?`` may be left out.
    grad : callable, BlockGrad or None
        `fused(...)`, or a function from a `GradContext` to `OpSpec`, or a `BlockGrad` for an operator that runs a
        sub-block (`minigraph.opdef.gradient_rules`), or None for one without a gradient.
    rows : str
        Input slots that may be selected rows; elsewhere these are refused.
    arrays : str
        Input slots that may be arrays of tensors, or raw; elsewhere these are refused.
    backend_attrs : mapping
        Attributes accepted only at the given value.
    forward : str, optional
        The type that this one is the gradient of, if `fused` did not make it.
    updates : str
        Output slots whose variables may keep what they held; see `OpDef`. A kernel gets the values before the
        operator, None where there are none, after the inputs.
    unchanged : callable, optional
        From a function that gives the value of an attribute to output slots that have the values of input slots.
    has_effect : bool
        It does something besides computing its results.
    lod : str, callable or mapping of output slots to these
        The lengths that results get. ``X``: those of the input X. ``X Y``: those of X, or if X has none of Y.
        ``rows X``: those of X, if the result has as many rows. ``pooled X``: those of X without the last level.
        ``new``: the kernel returns one level after its results; ``new 2`` or a `Count`: it returns that many. By
        default results get none, and intermediate results never do.
    lengths : str
        Input slots whose lengths the kernel gets after the inputs; ``X?`` may have none.
    doc : str, optional
        What the operator computes, where several types share a function; by default the docstring of the function.
    """

    def decorate(infer: Callable[..., Any]) -> Callable[..., Any]:
        slots, attrs = parameter_names(infer)
        names = inputs.split()
        if len(slots) != len(names):
            raise TypeError(f"{type}: {len(names)} input slots but {len(slots)} positional parameters")
        for name in attrs:
            if _annotation(infer, name) not in CONVERTERS:
                raise TypeError(f"attribute {name}: no attribute type {infer.__annotations__[name]}")

        if "Param" in names and "Grad" in rows.split():
            UPDATES_OF_ROWS.append(type)
        # No closure: one would keep eighteen objects for each operator, which the garbage collector looks at.
        define(type, partial(
            _made_of_function, infer, type=type, inputs=names, outputs=outputs, grad=grad, rows=rows.split(),
            arrays=arrays.split(), backend_attrs=backend_attrs, forward=forward, updates=updates, unchanged=unchanged,
            has_effect=has_effect, lod=lod, lengths=lengths, doc=doc,
        ))  # fmt: skip
        if isinstance(grad, OperatorRule):
            define(grad.type_for(type), partial(_made_of_rule, grad, type))
        return infer

    return decorate


def _made_of_function(
    infer: Callable[..., Any],
    *,
    inputs: Sequence[str],
    outputs: str,
    grad: GradRule | OperatorRule | BlockGrad | None,
    rows: Sequence[str],
    arrays: Sequence[str],
    backend_attrs: Mapping[str, Any] | None,
    updates: str,
    lod: str | Count | Mapping[str, str | Count],
    lengths: str,
    doc: str,
    **fields: Any,
) -> OpDef:
    """The definition of an operator whose types `infer` infers; arguments are those of `op`, some of them split."""
    slots, attrs = parameter_names(infer)
    out_slots = tuple(Slot(n.rstrip("*~?"), "*" in n, "?" in n, "~" in n) for n in outputs.split())
    definition = OpDef(
        inputs=tuple(
            _input_slot(name, _annotation(infer, p), name in rows, name in arrays)
            for name, p in zip(inputs, slots, strict=True)
        ),
        outputs=out_slots,
        attrs={attr.name: attr for attr in (_attr(infer, name) for name in attrs)},
        infer=infer,
        grad=grad,
        backend_attrs=dict(backend_attrs or {}),
        doc=inspect.cleandoc(doc or infer.__doc__ or ""),
        updates=tuple(updates.split()),
        lod=_length_sources(lod, out_slots),
        lengths=tuple(lengths.split()),
        **fields,
    )
    if isinstance(grad, OperatorRule):
        grad.complete(definition)
    return definition


def _made_of_rule(rule: OperatorRule, forward: str) -> OpDef:
    return rule.define(definition_of(forward))


def _length_sources(lod: str | Count | Mapping[str, str | Count], outputs: Sequence[Slot]) -> dict[str, LengthSource]:
    if not isinstance(lod, Mapping):
        lod = {slot.name: lod for slot in outputs if not slot.intermediate}
    return {slot: source for slot, text in lod.items() if (source := length_source_of(text)) is not None}


def define(type: str, make: Callable[[], OpDef]) -> None:
    """Register a function that makes the definition of an operator type when it is first asked for.

    Definitions may be made of other ones; `op` makes them of functions.

    Raises
    ------
    TypeError
        If the type is defined already.
    """
    if type in _MAKERS:
        raise TypeError(f"operator {type} is defined twice")
    _MAKERS[type] = make


def _input_slot(name: str, annotation: str, takes_rows: bool, takes_arrays: bool) -> Slot:
    return Slot(
        name, duplicable="list[" in annotation, dispensable="None" in annotation, takes_rows=takes_rows,
        takes_arrays=takes_arrays,
    )  # fmt: skip


def _annotation(infer: Callable[..., Any], parameter: str) -> str:
    """An annotation as text, which it is in a file that postpones annotations."""
    given = infer.__annotations__[parameter]
    return given if isinstance(given, str) else inspect.formatannotation(given)


def _attr(infer: Callable[..., Any], parameter: str) -> Attr:
    kind = _annotation(infer, parameter)
    default = (infer.__kwdefaults__ or {}).get(parameter, REQUIRED)
    name = parameter.removesuffix("_")
    return Attr(name, kind, default if default is REQUIRED else converter_of(name, kind)(default))


def definition_of(type: str) -> OpDef:
    """The definition of an operator type.

    Raises
    ------
    NotFoundError
        If there is none; the message suggests similar names.
    """
    found = _DEFINITIONS.get(type)
    return _made(type) if found is None else found


def _made(type: str) -> OpDef:
    make = _MAKERS.get(type)
    if make is None:
        raise NotFoundError(
            f"there is no operator type {type!r:.80}",
            hint=suggest(type, _MAKERS) or "Run `python -m minigraph operators` for a list.",
        )
    return _DEFINITIONS.setdefault(type, make())  # another thread may have made it meanwhile


def all_definitions() -> list[OpDef]:
    """Every definition, in order of their names."""
    return [definition_of(name) for name in sorted(_MAKERS)]
