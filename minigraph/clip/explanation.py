"""Explain which operator clips which gradient, with which threshold, by roles and types of operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from minigraph.clip.labels import label_of
from minigraph.clip.statistics import STATISTICS
from minigraph.ir import Block, Operator, Parameter, Program, Role
from minigraph.opdef import GRAD_SUFFIX
from minigraph.passes.gradient_clip import NONFINITE_GUARD
from minigraph.support.public import public

__all__ = ["explain"]


@dataclass(frozen=True)
class ClipStep:
    """One operator that changes a gradient.

    Attributes
    ----------
    op_type : str
    what : str
        Description, with the threshold.
    result : str
        Name of the gradient after it.
    site : str
        The user's line.
    attrs : str
        Attributes that are not at their defaults, for operators of a type without a description.
    """

    op_type: str
    what: str
    result: str
    site: str
    attrs: str = ""

    @property
    def call(self) -> str:
        """The type, with attributes where there are any."""
        return f"{self.op_type}({self.attrs})" if self.attrs else self.op_type

    def __str__(self) -> str:
        return f"{self.call}: {self.what} -> {self.result} ({self.site})"


@dataclass(frozen=True)
class ClippedGradient:
    """The operators that change the gradient of one parameter; without steps it is not clipped."""

    param: str
    grad: str
    steps: tuple[ClipStep, ...]

    def __str__(self) -> str:
        heading = f"{self.grad} of {self.param}"
        if not self.steps:
            return f"{heading}: not clipped"
        return "\n".join([heading, *(f"  {step}" for step in self.steps)])

    def rows(self) -> list[list[str]]:
        """Cells of a table, a row for each operator; the first names the gradient."""
        heading = f"{self.grad} of {self.param}"
        if not self.steps:
            return [[heading, "", "not clipped", self.grad, ""]]
        steps = [[step.call, step.what, step.result, step.site] for step in self.steps]
        return [[heading, *steps[0]], *(["", *step] for step in steps[1:])]


@dataclass(frozen=True, repr=False)
class Explanation:
    """Findings of `explain`, gradient by gradient; prints as text, and in a notebook as a table."""

    gradients: tuple[ClippedGradient, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.gradients)) or "the program has no gradients of parameters"

    def counts(self) -> str:
        """The number of clipped gradients, in words."""
        changed = sum(bool(gradient.steps) for gradient in self.gradients)
        return f"{changed} of {len(self.gradients)} gradients are clipped"

    def __repr__(self) -> str:
        return f"<Explanation: {self.counts()}>"

    def _repr_html_(self) -> str:
        from minigraph.support.html import in_notebook, words_table

        rows = [row for gradient in self.gradients for row in gradient.rows()]
        return in_notebook(self.counts(), words_table(["gradient", "operator", "what it does", "result", "line"], rows))


@public
def explain(program: Program) -> Explanation:
    """Explain which operators change which gradients before updates read them, and their thresholds.

    Operators of a strategy of your own have its name, and the text that its method ``describe`` returns.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()) as _, fluid.unique_name.guard():
    ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2, bias_attr=False))
    ...     pairs = fluid.clip.GradientClipByNorm(1.0)(fluid.append_backward(loss))
    ...     print(fluid.clip.explain(fluid.default_main_program()))  # doctest: +ELLIPSIS
    fc_0.w_0@GRAD of fc_0.w_0
      clip_by_norm: L2 norm at most 1 -> clip_by_norm_0.tmp_0 (...)
    """
    block = program.global_block()
    values: dict[str, _Grad] = {}
    """Results computed from gradients so far, by name."""
    raw: dict[tuple[str, str], _Grad] = {}
    clipped: dict[_Grad, _Grad] = {}
    read: dict[_Grad, _Grad] = {}
    """The last clipped value of each raw gradient, and the one that an update reads."""
    producers: dict[str, Operator] = {}
    for op in block.ops:
        if op.role & Role.BACKWARD:
            # The backward pass says in `role_vars` which gradients it completes.
            for pair in zip(op.role_vars[::2], op.role_vars[1::2], strict=True):
                raw[pair] = values[pair[1]] = _Grad(pair[1])
        elif "Param" in op.inputs and "Grad" in op.inputs:
            # An update: of several clipped values, the one that it reads counts.
            value = values.get(op.inputs["Grad"][0])
            if value is not None:
                read[value.raw] = value
        else:
            is_clip = bool(op.role & Role.CLIP) or bool(label_of(op))
            if is_clip:
                _note_pairs(op, block, raw, values)
            made = list(_made_of_gradients(op, block, values, producers))
            values.update({value.name: value for value in made})
            # Telemetry reads gradients and changes none. Norms and factors have another shape than the gradient.
            if is_clip and op.type != STATISTICS:
                fit = (each for each in made if _shape(block, each.name) == _shape(block, each.raw.name))
                clipped.update({each.raw: each for each in fit})
        producers.update({name: op for name in op.output_arg_names})
    return Explanation(
        tuple(
            ClippedGradient(*pair, tuple((read.get(first) or clipped.get(first) or first).steps()))
            for pair, first in raw.items()
        )
    )


@dataclass(frozen=True, eq=False)
class _Grad:
    """A gradient of the backward pass, or the result of an operator on another value."""

    name: str
    before: _Grad | None = None
    op: Operator | None = None
    what: str = ""

    @property
    def raw(self) -> _Grad:
        return self if self.before is None else self.before.raw

    def steps(self) -> list[ClipStep]:
        """Return the operators from the raw gradient to here, without regularization."""
        if self.before is None or self.op is None:
            return []
        steps = self.before.steps()
        if self.op.role & Role.REGULARIZE:
            return steps
        site = str(self.op.site).split(", in: ")[0]
        attrs = "" if self.op.type in _DESCRIPTIONS else ", ".join(f"{k}={v!r}" for k, v in self.op.attrs.items())
        return [*steps, ClipStep(self.op.type, self.what, self.name, site, attrs)]


def _shape(block: Block, name: str) -> tuple[int, ...] | None:
    var = block.find_var(name)
    return None if var is None else var.shape


def _note_pairs(op: Operator, block: Block, raw: dict[tuple[str, str], _Grad], values: dict[str, _Grad]) -> None:
    """Add pairs that the backward pass does not name, such as those of `minigraph.gradients`."""
    named = list(zip(op.role_vars[::2], op.role_vars[1::2], strict=True))
    for name in op.input_arg_names:
        param = name.rpartition("/")[2].removesuffix(GRAD_SUFFIX)
        if name.endswith(GRAD_SUFFIX) and isinstance(block.vars.get(param), Parameter):
            named.append((param, name))
    for pair in named:
        if pair[1] not in values:
            raw[pair] = values[pair[1]] = _Grad(pair[1])


def _made_of_gradients(
    op: Operator, block: Block, values: Mapping[str, _Grad], producers: Producers
) -> Iterator[_Grad]:
    """Map each result of an operator to the first gradient of its shape that it reads."""
    read = [name for name in op.input_arg_names if name in values]
    if not read:
        return
    # A joint clip computes its n-th output from its n-th input.
    lists = op.inputs.get("X", ()), op.outputs.get("Out", ())
    same_place = dict(zip(lists[1], lists[0], strict=True)) if len(lists[0]) == len(lists[1]) else {}
    what = _what(op, producers)
    for name in op.output_arg_names:
        source = same_place.get(name, "")
        if source not in values:
            same = (each for each in read if _shape(block, each) == _shape(block, name))
            source = next(same, read[0])
        yield _Grad(name, values[source], op, what)


def _what(op: Operator, producers: Producers) -> str:
    """Describe what an operator does to a gradient."""
    name, _, said = label_of(op).partition(": ")
    if not said:
        describe = _DESCRIPTIONS.get(op.type, "changes the gradient")
        said = describe.format_map(op.attrs) if isinstance(describe, str) else describe(op, producers)
    return f"{said} ({name}, a strategy of your own)" if name else said


Producers = Mapping[str, Operator]
"""The last writer of each name."""


def _axis_norm(op: Operator, producers: Producers) -> str:
    axes = op.attr("axes")
    slices = f"each slice over the dimensions {list(axes)}" if axes else "the whole"
    return f"{_order(op.attr('p'))} norm of {slices} at most {op.attr('max_norm'):g}"


def _fused_global_norm(op: Operator, producers: Producers) -> str:
    limit = _threshold(op.input("ClipNorm")[0], producers)
    return f"{_of_norm(_order(op.attr('p')), len(op.input('X')))} at most {limit}"


def _global_norm(op: Operator, producers: Producers) -> str:
    """Describe a product with fluid's factor, ``threshold / max(threshold, norm)``."""
    # From the product back: factor = threshold / max(threshold, sqrt(sum of squares)).
    chain = [op]
    for type, slot in (("elementwise_div", "Y"), ("elementwise_max", "Y"), ("sqrt", "X"), ("sum", "X")):
        made = producers.get(chain[-1].inputs["X" if chain[-1].type == "sqrt" else "Y"][0])
        if made is None or made.type != type or not made.inputs.get(slot):
            return f"times {op.inputs['Y'][0]}"
        chain.append(made)
    _, factor, _, _, squares = chain
    return f"{_of_norm('L2', len(squares.inputs['X']))} at most {_threshold(factor.inputs['X'][0], producers)}"


def _of_norm(order: str, count: int) -> str:
    return f"{order} norm" if count == 1 else f"joint {order} norm of {count} gradients"


def _nonfinite(op: Operator, producers: Producers) -> str:
    return {"raise": "an error", "zero": "0 in its place", "skip": "the update is skipped"}[op.attr("policy")] + (
        " where an element is not finite"
    )


def _threshold(name: str, producers: Producers) -> str:
    """Describe where a threshold comes from."""
    op = producers.get(name)
    if op is None:
        return name
    if op.type == "fill_constant":
        # The attribute `value` is rounded to float32.
        return f"{float(op.attr('str_value') or op.attr('value')):g}"
    if op.type == "autoclip_threshold":
        return f"their percentile {op.attr('percentile'):g} so far"
    if op.type == "zclip_threshold":
        return f"{op.attr('z_threshold'):g} standard deviations above its running mean"
    return name


def _order(p: float) -> str:
    return "max" if p == math.inf else f"L{p:g}"


_DESCRIPTIONS: Mapping[str, str | Callable[[Operator, Producers], str]] = {
    "adaptive_clip": "norm of each unit at most {clipping:g} times that of its weights",
    "clip": "each element from {min:g} to {max:g}",
    "clip_by_axis_norm": _axis_norm,
    "clip_by_global_norm": _fused_global_norm,
    "clip_by_norm": "L2 norm at most {max_norm:g}",
    "elementwise_mul": _global_norm,
    NONFINITE_GUARD: _nonfinite,
}
"""Descriptions of operators that clip a gradient, by type: texts with attributes, or functions."""
