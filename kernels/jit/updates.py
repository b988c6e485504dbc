"""Update rules as one compiled loop each, with the bits of the shared kernels.

There is one exception: state that decays, such as the mean of gradients that have become 0, is set to 0 where it would
be subnormal, because processors take several times as long with subnormal numbers.

The functions offered have a keyword `shrink`, a number that the gradient is multiplied with first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from minigraph.kernels.adaptive_optimizer import lamb_along
from minigraph.kernels.clip import Times
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.norms import record_short_norm
from minigraph.kernels.jit.offers import elementwise_loop, numba_name, offer, vectors
from minigraph.kernels.jit.recorders import native, native_loop
from minigraph.kernels.jit.recording import Recording, Symbol
from minigraph.kernels.jit.threads import least_of, over_pieces
from minigraph.kernels.merged_updates import Merged
from minigraph.kernels.optimizer import lars_along
from minigraph.kernels.registry import specialize
from minigraph.kernels.update_kernels import buffers_for, is_skipped, kept, one_or_all, owned
from minigraph.kernels.update_rules import POWERS, RULES, SINGLE, TENSORS, Element, UpdateRule

_LEAST_EPSILON = 1e-15
"""Minimum `epsilon` for which a step is the same with state of 0 as with subnormal state."""


@cache
def _loops(rule: UpdateRule, element: Element) -> Loops:
    """The loop over vectors for a rule, named by its type.

    Its parameters are the vectors, the inputs of one number as vectors of one element, `shrink`, the numbers of
    `element`, and `tiny`, the bound below which state becomes 0.
    """
    names = _vectors(element)
    parameters = [f"{name}_" for name in (*names, *element.singles)]
    parameters += ["shrink", *(f"n{i}" for i in range(len(element.numbers))), "tiny"]
    lines = ["", f"def {rule.type}({', '.join(parameters)}):", *head(element), "    for i in range(param_.size):"]
    lines += [f"        {line}" for line in body(rule, element, "{}_[i]", " * shrink")]
    return Loops("functions", text="\n".join([*lines, ""]))


@cache
def _loops_for_tables(rule: UpdateRule, element: Element) -> Loops:
    """The loop, called with operands of a table: the vectors, the single inputs, `shrink`, and a vector of numbers."""
    names, singles, count = _vectors(element), element.singles, len(element.numbers)
    addresses = [f"load(operands + {8 * i})" for i in range(len(names) + len(singles) + 2)]
    given = [f"array_at({at}, {'load(sizes)' if i < len(names) else 1}, like)" for i, at in enumerate(addresses[:-2])]
    given += [f"load_as({addresses[-2]}, like)", *(f"numbers[{i}]" for i in range(count + 1))]
    lines = [""]
    for kind in ("float32", "float64"):
        lines += [f"def update_{kind}(operands, sizes, strides, own):", f"    like = np.{kind}(0)"]
        lines += [
            f"    numbers = array_at({addresses[-1]}, {count + 1}, like)",
            f"    {rule.type}({', '.join(given)})",
            "",
        ]
    return Loops("functions", "layout", "table", text=_loops(rule, element).text + "\n".join(lines))


def _vectors(element: Element) -> tuple[str, ...]:
    """The names of the vectors that a loop takes."""
    return tuple(dict.fromkeys([*element.reads, *element.writes]))


def head(element: Element) -> list[str]:
    """The lines before the loop: what all elements share."""
    lines = ["    T = param_.dtype.type", *(f"    {name} = {name}_[0]" for name in element.singles)]
    return [*lines, *(f"    {name} = {value}" for name, value in element.common)]


def body(rule: UpdateRule, element: Element, place: str, shrink: str = "") -> Iterator[str]:
    """The lines for one element; `place` is the expression of an array's element, with ``{}`` for the array's name."""
    for name in element.reads:
        yield f"{name} = {place.format(name)}{shrink if name == 'grad' else ''}"
    fading = [name for name, _ in element.own if name in rule.fades]
    for name, value in element.own:
        yield f"{name} = {value}"
        # After the last of them, because one may be computed from another.
        if fading and name == fading[-1]:
            yield from (f"{each} = {each} if not abs({each}) < tiny else T(0)" for each in fading)
    for name in element.writes:
        yield f"{place.format(name)} = {name}"


def numbers_of(element: Element, dtype: Any, attrs: Mapping[str, Any]) -> list[Any]:
    """The numbers that a loop takes: those of `element`, and `tiny`."""
    fades = attrs.get("epsilon", 1.0) >= _LEAST_EPSILON
    return [*map(dtype.type, element.numbers), np.finfo(dtype).tiny if fades else dtype.type(0)]


def _element(rule: UpdateRule, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Element, list[Any]] | None:
    """Return the code for one element and the arguments after `shrink`; None if no loop takes such arrays."""
    given = dict(zip(rule.inputs, arrays, strict=True))
    is_missing = any(given.get(name, True) is None for name in ("grad", *rule.outputs))
    # A loop takes attributes as numbers, and reads no tensors in their place.
    if is_missing or any(given.get(name) is not None for name in TENSORS.values()):
        return None
    element, dtype = rule.element(attrs), given["param"].dtype
    return (element, numbers_of(element, dtype, attrs)) if element.is_exact else None


def _least(element: Element, dtype: Any) -> int:
    """Minimum elements per thread."""
    return least_of((len(element.reads) + len(element.writes)) * dtype.itemsize)


def update_loop(type: str, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """A function like the kernel of an update rule, with `shrink`, for arrays of these types; None if there is none.

    For arrays that are not contiguous it raises TypeError before it changes anything.
    """
    rule = RULES[type]
    found = _element(rule, arrays, attrs)
    if found is None:
        return None
    element, numbers = found
    given = dict(zip(rule.inputs, arrays, strict=True))
    names, dtype = _vectors(element), given["param"].dtype
    one = dtype.type(1)
    types, singles = [given.get(name, given["param"]) for name in names], [given[name] for name in element.singles]
    loop = elementwise_loop(_loops(rule, element), type, types, singles, 1 + len(numbers))
    if loop is None:
        return None
    at = {name: i for i, name in enumerate(rule.inputs)}
    replaced, skip = [at.get(name) for name in rule.outputs], at.get("skip")
    count, powers = len(rule.arrays), [dtype.type(factor) for _, factor in element.powers]
    places = [(name in rule.arrays, rule.arrays.index(name) if name in rule.arrays else at[name]) for name in names]
    ones, least = [at[name] for name in element.singles], _least(element, dtype)

    def update(*arrays: Any, shrink: Any = one, out: Any = None) -> Any:
        buffers = buffers_for(out, len(replaced))
        old: list[Any] = [None if i is None else arrays[i] for i in replaced]
        if skip is not None and arrays[skip] is not None and is_skipped(arrays[skip]):
            return one_or_all(kept(np, old, buffers))
        new = [
            _like(arrays[0], y) if x is None else owned(np, x, y) for x, y in zip(old[:count], buffers, strict=False)
        ]
        taken = [new[i] if is_new else arrays[i] for is_new, i in places]
        over_pieces(loop, vectors(*taken), [*[arrays[i] for i in ones], shrink, *numbers], least)
        new += [np.multiply(x, y, out=z) for x, y, z in zip(old[count:], powers, buffers[count:], strict=True)]
        return one_or_all(new)

    return update


def _like(param: Any, buffer: Any) -> Any:
    """The buffer, or a new array like `param`."""
    return np.empty_like(param) if buffer is None else buffer


class _Merged(Merged):
    """A merged update with a loop for one parameter or for the vector of all."""

    def __init__(self, type: str, loop: Callable[..., Any]) -> None:
        super().__init__(type)
        self._loop = loop

    def update_one(self, xp, arrays, outs, shrink, attrs) -> list[Any]:
        words = {"shrink": shrink.number} if isinstance(shrink, Times) else {}
        if shrink is None or words:
            try:
                out = outs[0] if len(outs) == 1 else None if outs[0] is None else tuple(outs)
                found = self._loop(*arrays, **words, out=out)
                return list(found) if len(outs) > 1 else [found]
            except TypeError:  # arrays that no loop was compiled for
                pass
        return super().update_one(xp, arrays, outs, shrink, attrs)


def _offer_merged(type: str) -> Callable[..., Any]:
    def offered(xp, *lists, sizes, **attrs):
        types = [
            x if not isinstance(x, list) or name == "skip"
            else x[0]._replace(shape=(1,) if name in SINGLE else (sum(sizes),)) if x else None
            for name, x in zip(RULES[type].inputs, lists[:-1], strict=True)
        ]  # fmt: skip
        loop = update_loop(type, types, attrs)
        if loop is None:
            return None
        merged = _Merged(type, loop)
        return lambda *inputs, out=None: merged(np, *inputs, sizes=sizes, out=out, **attrs)

    return offered


for _type, _rule in RULES.items():
    if "skip" in _rule.inputs:
        offer(_type)(lambda xp, *arrays, _type=_type, **attrs: update_loop(_type, arrays, attrs))
        specialize(f"merged_{_type}", jit=True)(_offer_merged(_type))


# Updates in tables of calls


def record_update(
    recording: Recording, type: str, arrays: Sequence[Any], attrs: Mapping[str, Any], shrink: Symbol | None = None
) -> Any:
    """Record the loop of `update_loop`, in place; arrays that the rule only writes are new."""
    rule = RULES[type]
    found = _element(rule, arrays, attrs)
    given = dict(zip(rule.inputs, arrays, strict=True))
    param = given["param"]
    if found is None or given.get("skip") is not None or param.size >= 2 * _least(found[0], param.dtype):
        raise UnsupportedError("another way")
    element, numbers = found
    names = _vectors(element)
    given.update((name, recording.new(param.shape, param.dtype)) for name in element.writes if name not in given)
    vectors = [given.get(name) for name in names]
    if any(x is None or x.size != param.size or x.is_transposed for x in vectors):
        raise UnsupportedError("state that is left out")
    operands = [*vectors, *[given[name] for name in element.singles]]
    if len({x.dtype for x in operands}) > 1 or numba_name(param.dtype) is None:
        raise UnsupportedError("several types, or halves")
    shrink = recording.constant([1], param.dtype) if shrink is None else shrink
    operands += [shrink, recording.constant(numbers, param.dtype)]
    loops = _loops_for_tables(rule, element)
    recording.emit(loops.address(f"update_{param.dtype.name}"), operands, [param.size], [])
    results = {name: np.multiply(given[name], param.dtype.type(factor)) for name, factor in element.powers}
    return one_or_all([results.get(name, given.get(name)) for name in rule.outputs])


def _record_merged(type: str) -> Callable[..., Any]:
    def record(recording, *lists, sizes, **attrs):
        *inputs, factor = lists
        names = RULES[type].inputs
        count = len(inputs[names.index("param")])
        if any(isinstance(x, list) and x and len(x) != count for x in inputs):
            raise UnsupportedError("other lists")
        if count < len(sizes):
            for name in POWERS.intersection(names):
                recording.check_same(inputs[names.index(name)][0])
        shrink = None if factor is None else recording.shrink(factor, inputs[names.index("grad")][0].dtype)
        found = []
        for number in range(count):
            arrays = [x if not isinstance(x, list) else x[number] if x else None for x in inputs]
            found.append(record_update(recording, type, arrays, attrs, shrink))
        outputs = found if len(RULES[type].outputs) > 1 else [(each,) for each in found]
        return one_or_all([list(each) for each in zip(*outputs, strict=True)])

    return record


for _type, _rule in RULES.items():
    if "skip" in _rule.inputs:
        native_loop(_type)(
            lambda recording, *arrays, _type=_type, **attrs: record_update(recording, _type, arrays, attrs)
        )
        native_loop(f"merged_{_type}")(_record_merged(_type))
        # Loops have the bits of the shared kernels, so few parameters are updated by them as well.
        native(f"merged_{_type}", replaces_loops=False)(_record_merged(_type))


@offer("lamb")
def lamb(xp, param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, skip, **attrs):
    direction = update_loop("lamb_direction", [param, grad, moment1, moment2], attrs)
    if direction is None or rate.shape != (1,):
        return None
    kernel = lamb_along(lambda xp, *arrays, out, **attrs: direction(*arrays, out=out))
    return lambda *arrays, out=None: kernel(np, *arrays, out=out, **attrs)


@offer("lars_momentum")
def lars_momentum(xp, param, grad, velocity, rate, skip, **attrs):
    step = update_loop("lars_step", [param, grad, velocity, rate], attrs)
    if step is None or rate.shape != (1,):
        return None
    kernel = lars_along(lambda xp, *arrays, out, **attrs: step(*arrays, out=out))
    return lambda *arrays, out=None: kernel(np, *arrays, out=out, **attrs)


def _of_short_arrays(*types: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the recording of updates that measure whole arrays: loops and shared kernels have the same bits."""
    return lambda function: native_loop(*types)(native(*types, replaces_loops=False)(function))


def _length(xp: Any, x: Symbol) -> Symbol:
    return record_short_norm(x.recording, [x])


@_of_short_arrays("lars_momentum")
def record_lars(recording, *arrays, **attrs):
    def step(xp, *arrays, out, **attrs):
        return record_update(recording, "lars_step", arrays, attrs)

    return lars_along(step, _length)(np, *arrays, **attrs)


@_of_short_arrays("lamb")
def record_lamb(recording, *arrays, **attrs):
    def direction(xp, *arrays, out, **attrs):
        return record_update(recording, "lamb_direction", arrays, attrs)

    return lamb_along(direction, _length)(np, *arrays, **attrs)
