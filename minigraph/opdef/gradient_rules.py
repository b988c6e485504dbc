"""Gradient rules: from an operator to the operators that compute its gradient.

A definition has a rule (`minigraph.opdef.definition.OpDef`), and `minigraph.autodiff.backward_pass` applies it. Most
gradients are one operator that reads some slots of the forward operator (`fused`); the gradient of a gradient operator
may be one operator, too (`DoubleGrad`). Every other rule is a function from a `GradContext` to the operators to append,
each an `OpSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from minigraph.errors import MinigraphError, OpError
from minigraph.opdef.definition import OpDef, OperatorRule, Slot
from minigraph.opdef.gradient_context import EMPTY, GRAD_SUFFIX, GradContext, GradRule, OpSpec
from minigraph.opdef.lengths import LengthSource
from minigraph.opdef.registry import definition_of
from minigraph.types import TensorType, same_shape


def of_bilinear(x: str, y: str, out: str, *others: str) -> GradRule:
    """The rule of the gradient operator of one that is linear in each of the slots `x` and `y`.

    Its other slots, `others`, get no gradient. What flows into the gradient of one takes its place. These operators
    have no further derivatives.
    """

    def rule(ctx: GradContext) -> Iterator[OpSpec]:
        forward, to_d_out = ctx.op.definition.forward or "", ctx.d_input(out + GRAD_SUFFIX)
        values = {slot: ctx.input(slot) for slot in (x, y, *others)}
        for slot, other in ((x, y), (y, x)):
            flowing = ctx.d_output(slot + GRAD_SUFFIX)
            if flowing:
                factors = {**values, slot: flowing}
                yield OpSpec(forward, factors, {out: to_d_out}, ctx.op.attrs)
                inputs = {**factors, out + GRAD_SUFFIX: ctx.input(out + GRAD_SUFFIX)}
                yield OpSpec(ctx.op.type, inputs, {other + GRAD_SUFFIX: ctx.d_input(other)}, ctx.op.attrs)

    return rule


class FusedGrad(OperatorRule):
    """The gradient rule that appends one gradient operator, such as ``relu_grad``.

    Parameters
    ----------
    *reads : str
        Slots of the forward operator that the gradient reads.
    to : str
        Input slots that get a gradient, separated by spaces. Default: all that must be given.
    d_out : str
        Output slots whose gradients are read. Default: the first output that is not intermediate. ``Cell?`` is left out
        where nothing flows into it.
    type : str
        Default: the forward type and ``_grad``.
    like : mapping
        Input slot to the slot whose type its gradient has, or a function of that type, for inputs that are not read.
    infer : callable, optional
        The types of the gradients from the types that are read and the attributes, where they follow from those only.
    grad : callable, optional
        The gradient rule of the gradient operator itself, where one is easier to say than ordinary operators that
        compute the same (`minigraph.autodiff.decompositions`).
    linear : bool or mapping
        The operator is linear in the slots `to`: of these its gradient needs the types only, and without `grad` the
        gradient of its gradient is the operator itself. A mapping holds the attributes that make it so.
    check : callable, optional
        Takes the operator and raises an `OpError` if its attributes do not go with a gradient.
    lengths : str
        Slots whose lengths the gradient operator gets. Default: those of which the operator gets them and the gradient
        reads the value.
    lod : bool or str
        Each gradient has the lengths of what it is the gradient of; if False, it has none, as in fluid. A string names
        the slots whose gradients have them.
    """

    def __init__(
        self,
        *reads: str,
        to: str = "",
        d_out: str = "",
        type: str = "",
        like: Mapping[str, str | tuple[str, Callable[[TensorType], TensorType]]] | None = None,
        infer: Callable[..., Any] | None = None,
        grad: GradRule | None = None,
        linear: bool | Mapping[str, Any] = False,
        check: Callable[[Any], None] | None = None,
        lengths: str = "",
        lod: bool | str = True,
    ) -> None:
        self.reads, self.to, self.type = reads, to.split(), type
        self.d_outputs = d_out.replace("?", "").split()
        self.optional = frozenset(slot.rstrip("?") for slot in d_out.split() if slot.endswith("?"))
        """Slots of `d_outputs` that are left out where nothing flows into them."""
        self.like, self.infer = dict(like or {}), infer
        self.grad, self.linear, self.check, self.lengths, self.lod = grad, linear, check, lengths, lod
        # Filled in by `complete`, so that a backward pass computes none of it for each operator.
        self.values: tuple[tuple[str, bool], ...] = ()
        """The slots `reads`, and whether each is an input of the forward operator or an output."""
        self.flowing: tuple[tuple[str, str], ...] = ()
        """The slots `d_outputs`, and the gradient operator's slots for their gradients."""
        self.results: tuple[tuple[str, str, bool], ...] = ()
        """The slots `to`, those for their gradients, and whether they take lists, where each keeps its place."""
        self.reads_all = False
        """Whether the gradients of all output slots are read."""

    def needs_value(self, slot: str) -> bool:
        """Whether the gradient depends on the value in a slot, and not only on its type."""
        return self.linear is not True or slot not in self.to

    def type_for(self, forward: str) -> str:
        return self.type or f"{forward}_grad"

    def complete(self, forward: OpDef) -> None:
        """Fill in the defaults from the operator that the rule belongs to."""
        self.type = self.type_for(forward.type)
        self.to = self.to or [s.name for s in forward.inputs if not s.dispensable]
        self.d_outputs = self.d_outputs or [next(s.name for s in forward.outputs if not s.intermediate)]
        self.values = tuple((slot, slot in forward.input_slots) for slot in self.reads)
        self.flowing = tuple((slot, slot + GRAD_SUFFIX) for slot in self.d_outputs)
        self.results = tuple((slot, slot + GRAD_SUFFIX, forward.input_slots[slot].duplicable) for slot in self.to)
        self.reads_all = len(self.d_outputs) == len(forward.outputs)

    def define(self, forward: OpDef) -> OpDef:
        """The definition of the gradient operator; a gradient has the type of what it is the gradient of."""
        slots = {**forward.input_slots, **forward.output_slots}
        reads = [replace(slots[name], takes_rows=False) for name in self.reads]
        d_outs = [
            Slot(name + GRAD_SUFFIX, slots[name].duplicable, dispensable=name in self.optional)
            for name in self.d_outputs
        ]
        inputs = tuple(reads + d_outs)
        names = [slot.name for slot in inputs]

        def infer(*types: Any, **_attrs: Any) -> tuple[Any, ...]:
            given = dict(zip(names, types, strict=True))
            return tuple(self._type_of(slot, given) for slot in self.to)

        inferred = self.infer or infer

        def checked(*types: Any, **attrs: Any) -> Any:
            found = inferred(*types, **attrs)
            known = dict(zip(self.to, _as_tuple(found), strict=True))
            known.update((slot, given) for slot, given in zip(names, types, strict=True) if given is not None)
            self._check_flowing(forward, known, attrs)
            return found

        return OpDef(
            type=self.type,
            inputs=inputs,
            outputs=tuple(Slot(name + GRAD_SUFFIX, slots[name].duplicable, dispensable=True) for name in self.to),
            attrs=forward.attrs,
            infer=checked,
            grad=self._forward_again if self.linear is not False and self.grad is None else self.grad,
            backend_attrs=forward.backend_attrs,
            doc=f"Gradient of `{forward.type}`.",
            forward=forward.type,
            lod={name + GRAD_SUFFIX: self._length_source(name) for name in self._with_lengths()},
            lengths=tuple(self.lengths.split()) or tuple(s for s in forward.lengths if s.rstrip("?") in self.reads),
        )

    def _check_flowing(self, forward: OpDef, known: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
        """Raise unless what flows in has the types of the results.

        These are among the types in `known`, or follow from them where they tell every input of the forward operator.
        An optional input that the gradient does not read may have been there, so that nothing is known then.
        """
        results: dict[str, Any] = {slot: known[slot] for slot in self.d_outputs if slot in known}
        if len(results) < len(self.d_outputs) and all(
            slot.name in known or slot.name in self.reads for slot in forward.inputs
        ):
            results = {**_results_of(forward, known, attrs), **results}
        for slot in self.d_outputs:
            expected, flowing = _in_list(results.get(slot)), _in_list(known.get(slot + GRAD_SUFFIX))
            for result, gradient in zip(expected, flowing, strict=False):
                if type(result) is TensorType and type(gradient) is TensorType and not _is_like(gradient, result):
                    raise OpError(
                        f"{slot}{GRAD_SUFFIX} must have the type of {slot}, {result}, got {gradient}",
                        hint=f"Pass the gradient of the result of the `{forward.type}`, of its shape and dtype.",
                    )

    def _with_lengths(self) -> Sequence[str]:
        """The slots whose gradients have lengths."""
        return self.lod.split() if isinstance(self.lod, str) else self.to if self.lod else ()

    def _length_source(self, slot: str) -> LengthSource:
        """A gradient has the lengths of what it is the gradient of, if that is read, else those of the result."""
        like, result = self.like.get(slot, slot), self.d_outputs[0]
        candidates = (slot, like if isinstance(like, str) else like[0], result)
        return LengthSource("of", (next((each for each in candidates if each in self.reads), result + GRAD_SUFFIX),))

    def _forward_again(self, ctx: GradContext) -> Iterator[OpSpec]:
        """The gradient of the gradient operator of a linear one, with respect to what flows into that."""
        forward = definition_of(ctx.op.definition.forward or "")
        inputs: dict[str, list[str]] = {}
        for slot in forward.inputs:
            if slot.name in self.to:
                flowing = ctx.d_output(slot.name + GRAD_SUFFIX) or [EMPTY]
                names = inputs[slot.name] = []
                for i, name in enumerate(flowing):
                    if name == EMPTY + GRAD_SUFFIX or name == EMPTY:
                        names.append(ctx.temporary())
                        yield OpSpec("fill_zeros_like", {"X": [ctx.input(slot.name)[i]]}, {"Out": [names[-1]]}, {})
                    else:
                        names.append(name)
            elif slot.name in self.reads and ctx.input(slot.name):
                inputs[slot.name] = ctx.input(slot.name)
        (d_out,) = self.d_outputs
        changed = self.linear if isinstance(self.linear, Mapping) else {}
        outputs = {d_out: ctx.d_input(d_out + GRAD_SUFFIX)}
        yield OpSpec(forward.type, inputs, outputs, {**ctx.op.attrs, **changed})

    def _type_of(self, slot: str, given: Mapping[str, Any]) -> Any:
        like = self.like.get(slot, slot)
        source, change = like if isinstance(like, tuple) else (like, None)
        found = given.get(source)
        if found is None:
            found = given[self.d_outputs[0] + GRAD_SUFFIX]
        return change(found) if change else found


def _as_tuple(found: Any) -> tuple[Any, ...]:
    """Types that an inference returns, as a tuple; for a single result it returns no tuple."""
    return found if type(found) is tuple else (found,)


def _in_list(types: Any) -> Sequence[Any]:
    """The types in a slot, whether it takes a list of variables or one."""
    return types if isinstance(types, list) else [types]


def _results_of(forward: OpDef, known: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The types that `forward` gives its results; none where it does not take what the gradient makes of it."""
    try:
        found = forward.infer(*(known.get(slot.name) for slot in forward.inputs), **attrs)
    except MinigraphError:
        return {}
    return dict(zip((slot.name for slot in forward.outputs), _as_tuple(found), strict=True))


def _is_like(gradient: TensorType, result: TensorType) -> bool:
    """Whether a gradient fits a result; it may be held as selected rows."""
    return gradient.dtype is result.dtype and same_shape(gradient.shape, result.shape)


@dataclass(frozen=True)
class DoubleGrad:
    """The gradient rule of a gradient operator whose gradient is one operator again, such as ``square_grad_grad``.

    Slots of that operator are named by their contents: an input ``DX`` is the value of ``X@GRAD``; an output ``DX`` or
    ``X@GRAD`` is the gradient of ``X``; ``DDX`` is the gradient of ``X@GRAD``, as input or output; others are values.

    Parameters
    ----------
    needs : mapping
        Output slot to the input slot without which it would be zero, and is left out.
    """

    needs: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, ctx: GradContext) -> Iterator[OpSpec]:
        own, definition = ctx.op.definition, definition_of(f"{ctx.op.type}_grad")
        inputs, outputs = {}, {}
        for slot in definition.input_slots:
            source = source_slot(slot, own)
            if differentiated(slot)[1] == 2:
                names = ctx.d_output(source)
            else:
                names = ctx.input(source) if source in own.input_slots else ctx.output(source)
            if names:
                inputs[slot] = names
        for slot in definition.output_slots:
            name, times = differentiated(slot)
            if self.needs.get(slot, slot) in (slot, *inputs):
                outputs[slot] = ctx.d_input(name if times == 1 else name + GRAD_SUFFIX)
        yield OpSpec(definition.type, inputs, outputs, dict(ctx.op.attrs))


def differentiated(slot: str) -> tuple[str, int]:
    """The slot that a slot of a `DoubleGrad` belongs to, and how often that is differentiated."""
    if slot.endswith(GRAD_SUFFIX):
        return slot.removesuffix(GRAD_SUFFIX), 1
    if slot.startswith("DD"):
        return slot[2:], 2
    return (slot[1:], 1) if slot.startswith("D") else (slot, 0)


def source_slot(slot: str, definition: OpDef) -> str:
    """The slot of an operator that corresponds to the input slot `slot` of its gradient."""
    if slot in definition.input_slots or slot in definition.output_slots:
        return slot
    return differentiated(slot)[0] + GRAD_SUFFIX


fused = FusedGrad
"""Name of the class where operators are defined, as in ``grad=fused("X")``."""
