"""One group of operators on elements for many variables, which it may write over."""

from __future__ import annotations

import itertools
from typing import Any

from minigraph.opdef import Attr, OpDef, Slot, define, definition_of
from minigraph.ops.fused import MOST_RESULTS
from minigraph.types import TensorType, product, require

TYPE = "merged_elementwise"

LISTS = tuple(f"X{i}" for i in range(8))
"""Inputs with one tensor for each variable."""

NUMBERS = tuple(f"Number{i}" for i in range(4))
"""Inputs with one number for each variable, whatever its size."""

SHARED = "Shared"
"""Input with what all variables share."""

RESULTS = ("Out", *(f"Out{i}" for i in range(1, MOST_RESULTS)))
"""Outputs, one tensor in each for each variable."""

_DOC = """One group of operators on elements for several variables at once.

`steps` are calls as `minigraph.support.fused_calls` reads them. ``x0``, ``x1``, ... are one tensor from each list that
is given, in order, after these one number from each of ``Number0`` to ``Number3`` that is given, and then the tensors
in ``Shared``, of one element each. ``y0`` to ``y3`` are the results. With numbers, `sizes` must be the numbers of
elements of the variables. Result number i has the place of list number ``replaced[i]``, which a plan may let it write
over.
"""


def _infer(*types: Any, steps: list[str], replaced: list[int], sizes: list[int]) -> tuple[list[TensorType], ...]:
    *lists, shared = types
    given, numbers = _without_gaps(lists[: len(LISTS)]), _without_gaps(lists[len(LISTS) :])
    require(bool(given), "the lists must begin with X0")
    count = len(given[0])
    lengths = [len(each) for each in (*given, *numbers)]
    require(all(length == count for length in lengths), f"lists of {lengths} tensors")
    fits = 0 < len(replaced) <= len(RESULTS) and len(set(replaced)) == len(replaced)
    require(
        fits and all(0 <= i < len(given) for i in replaced),
        f"replaced must name several lists by number, got {replaced}",
    )
    ones = [*itertools.chain(*numbers), *(shared or ())]
    require(all(each.shape in ((1,), (-1,)) for each in ones), "numbers and tensors in Shared must have one element")
    known = [product(x.shape) for x in given[0]] if all(-1 not in x.shape for x in given[0]) else list(sizes)
    require(list(sizes) == known or not (sizes or numbers), f"sizes must be those of the variables, got {sizes}")
    definition = definition_of("fused_elementwise")
    results: list[list[TensorType]] = [[] for _ in RESULTS]
    for i, own in enumerate(zip(*given, strict=True)):
        require(all(x == own[0] for x in own), f"tensors of one variable must have one type, got {list(map(str, own))}")
        one = [each.with_shape((1,)) for each in (*[each[i] for each in numbers], *(shared or ()))]
        found = definition.infer_types({"X": [*own, *one]}, {"steps": steps})
        for result, name in zip(results, RESULTS[: len(replaced)], strict=False):
            require(found[name][0] == own[0], f"a result must have the type of the variables, got {found[name][0]}")
            result.append(found[name][0])
    return tuple(results)


def _without_gaps(lists: list[Any]) -> list[Any]:
    given = [each for each in lists if each]
    require(lists[: len(given)] == given, "the lists must begin with the first and leave none out")
    return given


def _definition() -> OpDef:
    return OpDef(
        type=TYPE,
        inputs=(
            *(Slot(name, duplicable=True, dispensable=name != LISTS[0]) for name in LISTS),
            *(Slot(name, duplicable=True, dispensable=True) for name in NUMBERS),
            Slot(SHARED, duplicable=True, dispensable=True),
        ),
        outputs=tuple(Slot(name, duplicable=True, dispensable=name != RESULTS[0]) for name in RESULTS),
        attrs={
            "steps": Attr("steps", "list[str]"),
            "replaced": Attr("replaced", "list[int]"),
            "sizes": Attr("sizes", "list[int]", []),
        },
        infer=_infer,
        grad=None,
        backend_attrs={},
        doc=_DOC,
    )


define(TYPE, _definition)
