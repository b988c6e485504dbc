"""Whose memory a kernel returns: new memory, the buffer it is given, or that of the input it declares to view.

A plan uses memory again as soon as it knows of nothing that needs it, and it knows of no other sharing.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count, product

import numpy as np
import pytest
from host_cuda import needs_compiler
from kernel_calls import OTHER, Call, array_type, each_array, flat
from sampled import Built, types_of

from minigraph.errors import MinigraphError
from minigraph.executor.interpreter import evaluate
from minigraph.kernels import find_kernel, find_specializer
from minigraph.kernels.formulas import TYPES as FUSIBLE
from minigraph.kernels.formulas import has_formula
from minigraph.kernels.fused import LARGE
from minigraph.opdef.gradient_rules import FusedGrad
from minigraph.ops.merged_updates import MERGED
from minigraph.rewrite.random_programs.rows import SAMPLES
from minigraph.rewrite.random_programs.sampling import sample
from minigraph.runtime.place import CPUPlace
from minigraph.support.fused_calls import FusedCall as Line
from minigraph.types import as_dtype, same_shape

pytestmark = pytest.mark.usefixtures("like_an_executor", "always_compiled", "_loops_that_do_nothing")

BY_OPERATOR = defaultdict(list)
for _sample in SAMPLES:
    BY_OPERATOR[_sample.op].append(_sample)

OTHER_TYPES = ("int64", "bool")
"""Tried in place of floats; most operators refuse them."""

UNCHECKED = {"fused_elementwise", "reshape2", *(type for type in BY_OPERATOR if type.endswith("_grad_grad"))}
"""Operators that take the shapes of their inputs as read: what has one size is cut together there."""


@pytest.fixture
def _loops_that_do_nothing(monkeypatch):
    """Stand in for compiled loops, which only write to arrays that the functions around them make."""

    def compiled(source, name, signature):
        returned = re.match(r"void|int64|float64|UniTuple\(float64, (\d)\)", signature)
        numbers = {"void": None, "int64": 0, "float64": 1e6}
        result = (1e6,) * int(returned[1]) if returned[1] else numbers[returned[0]]
        return lambda *arguments: result

    # First where it is imported by name: a module that is loaded in between would keep the stand-in.
    monkeypatch.setattr("minigraph.kernels.jit.fused.compiled", compiled)
    monkeypatch.setattr("minigraph.kernels.jit.compiling.compiled", compiled)


def in_order(xp, array):
    return xp.array(array)


def in_columns(xp, array):
    return xp.array(array, order="F")


def with_gaps(xp, array):
    return xp.repeat(xp.array(array), 2, axis=-1)[..., ::2] if array.ndim else xp.array(array)


LAYOUTS = (in_order, in_columns, with_gaps)
"""How the elements of what views give to kernels lie, too."""


def with_ones(row):
    """`row` with each dimension in turn cut to 1, then those of one size together, then all of them.

    Where they are cut together, the lists among the attributes have 1 in the place of that size, too.
    """
    by_size = defaultdict(list)
    for slot, arrays in row.inputs.items():
        for i, array in enumerate(arrays):
            for axis, size in enumerate(array.shape):
                by_size[size].append((slot, i, axis))
    places = [place for size, alike in by_size.items() if size > 1 for place in alike]
    if row.op not in UNCHECKED:
        yield from (cut(row, [place]) for place in places)
    for size in sorted(by_size.keys() - {0, 1}):
        yield cut(row, by_size[size])
        yield cut(row, by_size[size], {name: with_one(value, size) for name, value in row.attrs.items()})
    if places:
        yield cut(row, places)


def cut(row, places, attrs=None):
    inputs = {slot: list(arrays) for slot, arrays in row.inputs.items()}
    for slot, i, axis in places:
        inputs[slot][i] = inputs[slot][i].take([0], axis)
    attrs = row.attrs if attrs is None else attrs
    if row.op in MERGED:
        attrs = {**attrs, "sizes": [param.size for param in inputs["Param"]]}
    return replace(row, inputs=inputs, attrs=attrs)


def with_one(value, size):
    return [1 if each == size else each for each in value] if isinstance(value, list) else value


def calls(row, dtype):
    """The calls of the operator and of the one that is its gradient."""
    built, rule = Built(row, dtype), row.definition.grad
    values, types = dict(built.feed), {row.op}
    if row.wrt and isinstance(rule, FusedGrad) and as_dtype(dtype).is_floating:
        types.add(rule.type)
        built.differentiate({var.name: None for var in built.targets}, row.wrt)
    for op in built.block.ops:
        values.update(evaluate(op, values.__getitem__, CPUPlace(), np.random.default_rng(0)))
        if op.type in types:
            yield Call(op, values)


@lru_cache(maxsize=2000)  # the laws try the rows of an operator one after the other
def accepted(row, dtype):
    """The calls if neither inference nor a kernel refuses the sample."""
    try:
        return list(calls(row, dtype))
    except (MinigraphError, ValueError, TypeError):
        return []


def functions(call, xp):
    """Functions that a plan may call, by name, each with whether it takes a buffer."""
    kernel, words = call.kernel if xp is np else find_kernel(call.op.type, "cuda"), dict(call.keywords)
    if kernel.takes_rng:
        words["rng"] = xp.random.default_rng(0)
    yield "kernel", partial(kernel.function, xp, **words), kernel.takes_out
    if xp is np:
        yield "kernel for another array module", partial(kernel.function, OTHER, **words), kernel.takes_out
    types = [each_array(array_type, entry) for entry in call.inputs]
    for jit, own in product((False, True), repeat=2) if xp is np else [(False, False)]:
        offer = find_specializer(call.op.type, jit, own)
        function = None if offer is None else offer(xp, *types, **call.keywords)
        if function is not None:
            yield f"{'compiled ' * jit}{'own ' * own}function", function, kernel.takes_out and not own


def results_of(call, returned):
    """What was asked for: the number of the slot, the position there, the variable and the array."""
    slots, found = call.op.definition.outputs, []
    for number, (slot, entry) in enumerate(zip(slots, returned if len(slots) > 1 else (returned,), strict=True)):
        pairs = zip(call.op.outputs.get(slot.name, ()), entry if slot.duplicable else (entry,), strict=False)
        found += [(number, i, *pair) for i, pair in enumerate(pairs)]
    return found


def faults(call, xp, inputs, function, takes_out, times):
    """A fault of the arrays that one of the functions for a call returns, called once or twice."""
    first, *again = (results_of(call, function(*inputs)) for _ in range(times))
    for slot, i, var, array in first:
        inferred = call.op.block.vars[var].tensor_type
        if type(array) is not xp.ndarray or (xp is np and not array.flags.writeable):
            yield f"{var} is no array that may be written to: {type(array)}"
            continue
        if array.dtype != inferred.dtype.numpy or not same_shape(array.shape, inferred.shape):
            yield f"{var} is {array_type(array)} where {inferred} was inferred"
        elif array.size and any(size > 1 and not step for size, step in zip(array.shape, array.strides, strict=True)):
            yield f"{var} has elements in one place"
        may_view = viewed(call, inputs, slot, i)
        others = [x for x in flat(inputs) if x is not may_view] + [x for _, _, name, x in first if name != var]
        if may_view is None:
            others += [x for results in again for *_, x in results]
        if any(xp.may_share_memory(array, x) and xp.shares_memory(array, x) for x in others):
            yield f"{var} is in the memory of an input, another result or an earlier one"
    if takes_out:
        buffers = [each_array(lambda x: xp.empty(x.shape, x.dtype), entry) for entry in call.expected]
        written = results_of(call, function(*inputs, out=call.out(buffers)))
        is_same = operator.is_ if xp is np else xp.may_share_memory
        if not all(map(is_same, [array for *_, array in written if array.size], [x for x in flat(buffers) if x.size])):
            yield "out is ignored"


def viewed(call, inputs, slot, i):
    """The input whose memory this output may have."""
    if slot or call.kernel.view_of is None:
        return None
    source = inputs[call.kernel.view_of]
    return source[i] if isinstance(source, list) else source


def assert_lawful(found, xp=np, layouts=LAYOUTS):
    """Check one of the calls that are alike; return how many those are."""
    alike = {
        (call.op.type, repr([each_array(array_type, entry) for entry in call.inputs]), repr(call.keywords)): call
        for call in found
    }
    for key, call in alike.items():
        tried = set()
        for layout in layouts:
            inputs = [each_array(partial(layout, xp), entry) for entry in call.inputs]
            strides = tuple(x.strides for x in flat(inputs))
            if strides in tried:  # vectors lie in columns as they do in order
                continue
            times = 1 if tried else 2
            tried.add(strides)
            for name, function, takes_out in functions(call, xp):
                wrong = list(faults(call, xp, inputs, function, takes_out, times))
                assert not wrong, f"the {name} of {key}: {wrong}"
    return len(alike)


@lru_cache(maxsize=8)
def cut_rows(type):
    """Rows of an operator with dimensions of 1, each once."""
    return list({facts(row): row for each in BY_OPERATOR[type] for row in with_ones(each)}.values())


each_type = pytest.mark.parametrize("type", BY_OPERATOR, scope="module")
"""Tries the laws of an operator one after the other, then those of the next."""


@pytest.mark.laws
@each_type
def test_results_share_no_memory_that_is_not_declared(type):
    rows = BY_OPERATOR[type]
    assert assert_lawful(call for row in rows for dtype in row.dtypes for call in calls(row, dtype))
    assert_lawful(call for row in rows for dtype in OTHER_TYPES for call in accepted(row, dtype))


def assert_lawful_with_cupy(type, xp, dtypes):
    rows = [*{facts(row): row for row in BY_OPERATOR[type]}.values(), *cut_rows(type)]
    found = (call for row in rows for dtype in row.dtypes[:dtypes] for call in accepted(row, dtype))
    assert_lawful(found, xp, LAYOUTS[:1])


@pytest.mark.gpu
@each_type
def test_results_on_a_gpu_share_no_memory_that_is_not_declared(type, cuda_place):
    assert_lawful_with_cupy(type, cuda_place.xp, dtypes=None)


@needs_compiler
@pytest.mark.laws
@each_type
def test_results_on_the_stand_in_share_no_memory_that_is_not_declared(type, strict_host_cuda):
    assert_lawful_with_cupy(type, strict_host_cuda, dtypes=1)


@pytest.mark.laws
@pytest.mark.parametrize(
    "type", [type for type, rows in BY_OPERATOR.items() if any(map(any, map(with_ones, rows)))], scope="module"
)
def test_results_of_dimensions_of_one_share_no_memory_that_is_not_declared(type):
    rows = enumerate(cut_rows(type))
    assert assert_lawful(call for i, row in rows for dtype in types_of(row, i) for call in accepted(row, dtype))


def facts(row):
    """What tells samples apart; of floats only their shapes matter."""
    inputs = {s: [x.shape if x.dtype.kind == "f" else x.tolist() for x in given] for s, given in row.inputs.items()}
    return repr((inputs, row.attrs, row.outputs))


@pytest.mark.laws
@pytest.mark.parametrize("type", sorted(FUSIBLE))
def test_results_of_fused_operators_share_no_memory(type, monkeypatch):
    forward = type.removesuffix("_grad")
    rows = [*{facts(row): row for row in BY_OPERATOR[forward]}.values(), *cut_rows(forward)]
    found = [group for row in rows for call in accepted(row, "float32") if (group := fused(call, type))]
    for large in (1, LARGE):  # in pieces, and at once
        monkeypatch.setattr("minigraph.kernels.fused.LARGE", large)
        assert assert_lawful(call for group in found for call in calls(group, "float32"))


def fused(call, type):
    """A sample: the operator in a group that returns its results and their squares, None if it may be in none."""
    arrays = flat(call.inputs)
    if (
        call.op.type != type
        or not has_formula(type, call.op.attrs, np.float32)
        or any(x.dtype != np.float32 for x in arrays)
    ):
        return None
    if any(x.shape != arrays[0].shape for x in flat(call.expected)):
        return None
    numbers = count()

    def named(entry):
        return tuple(map(named, entry)) if isinstance(entry, list) else None if entry is None else f"x{next(numbers)}"

    results = [None if x is None else f"y{i}" for i, x in enumerate(call.expected)]
    attrs = {name: value for name, value in call.keywords.items() if name != "wanted"}
    lines = [Line(type, tuple(map(named, call.inputs)), tuple(results), attrs)]
    lines += [Line("square", (name,), (f"y{i + 2}",), {}) for i, name in enumerate(results) if name is not None]
    outputs = {f"Out{name[1:]}".rstrip("0"): 1 for line in lines for name in line.writes}
    return sample("fused_elementwise", X=arrays, outputs=outputs, steps=[str(line) for line in lines])
