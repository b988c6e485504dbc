"""Updates of many parameters at once: the kernel of one update, on lists of arrays or on long vectors.

If the arrays of a list are neighbours in memory, an executor passes one vector instead. NumPy then updates the vector
in pieces that fit in the cache. Every element is computed as by the kernel for one parameter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

import minigraph.kernels.adaptive_optimizer  # noqa: F401
from minigraph.kernels.buffers import Scratch
from minigraph.kernels.clip import Times, shrinker
from minigraph.kernels.registry import find_kernel, kernel
from minigraph.kernels.update_kernels import Update, agree, apart, buffers_for, one_or_all
from minigraph.kernels.update_rules import POWERS, RULES, SHARED

TYPES = tuple(type for type, rule in RULES.items() if "skip" in rule.inputs)
"""Updates that compute each element for itself."""

_PIECE = 131_072
"""Maximum elements of each array that are updated at a time: all arrays together fit in the cache."""


class Merged:
    """Kernel for many parameters, made from the kernel for one."""

    def __init__(self, type: str) -> None:
        self._type = type
        found = find_kernel(type, "cpu")
        assert found is not None
        self._kernel = found.function
        parameters = list(inspect.signature(self._kernel).parameters.values())
        self.names = [p.name for p in parameters[1:] if p.kind is not p.KEYWORD_ONLY]
        self.param, self.grad = self.names.index("param"), self.names.index("grad")
        self._own = [i for i, name in enumerate(self.names) if name not in SHARED]
        self._numbers = [i for i, name in enumerate(self.names) if name in POWERS]
        self.__signature__ = _merged_signature(parameters)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The kernel for one parameter; for a rule, the function generated from it."""
        return self._kernel.function if isinstance(self._kernel, Update) else self._kernel

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The inputs that the kernel replaces, in the order of its results."""
        return RULES[self._type].outputs

    @cached_property
    def _number_outputs(self) -> list[int]:
        return [i for i, name in enumerate(self.outputs) if name in POWERS]

    def __call__(self, xp, *inputs, sizes, out=None, **attrs):
        *lists, factor = inputs
        targets = list(buffers_for(out, len(self.outputs)))
        if len(lists[self.param]) < len(sizes) and not self._numbers_agree(lists):
            ones = [1] * len(sizes)
            for i in self._own:
                lists[i] = apart(lists[i], ones if i in self._numbers else sizes)
            targets = [apart(x, ones if i in self._number_outputs else sizes) for i, x in enumerate(targets)]
        shrink = None if factor is None else shrinker(xp, lists[self.grad][0].dtype, factor)
        results = []
        for number in range(len(lists[self.param])):
            arrays = list(lists)
            for i in self._own:
                arrays[i] = lists[i][number] if lists[i] else None
            results.append(self._update(xp, arrays, [x[number] if x else None for x in targets], shrink, attrs))
        return one_or_all([list(each) for each in zip(*results, strict=True)])

    def _numbers_agree(self, lists) -> bool:
        """Whether the powers of all parameters in a vector are equal."""
        return agree([lists[i][0] for i in self._numbers])

    def _update(self, xp, arrays, targets, shrink, attrs) -> list[Any]:
        """The new arrays of one parameter, or of one vector of parameters whose numbers agree."""
        outs = list(targets)
        # Equal powers: one number stands for those of all parameters, in the call and in its results.
        for i in self._numbers:
            arrays[i] = arrays[i].reshape(-1)[:1]
        for i in self._number_outputs:
            outs[i] = None
        results = self.update_one(xp, arrays, outs, shrink, attrs)
        for i in self._number_outputs:
            if targets[i] is not None:
                targets[i][...] = results[i]
                results[i] = targets[i]
        return results

    def update_one(self, xp, arrays, outs, shrink, attrs) -> list[Any]:
        """Call the kernel for one parameter, on pieces if arrays are long and results have buffers."""
        size = arrays[self.param].size
        if xp is not np or size <= _PIECE or outs[0] is None:
            return self._at_once(xp, arrays, outs, shrink, attrs)
        long = [x for x in (*arrays, *outs) if getattr(x, "size", None) == size]
        if not all([x.flags.c_contiguous for x in long]):
            return self._at_once(xp, arrays, outs, shrink, attrs)
        flat = {id(x): x.reshape(-1) for x in long}
        step = _piece(size)
        # Backwards: the norm before has read the gradients forwards, so that their end is still in the cache.
        for start in reversed(range(0, size, step)):
            part = slice(start, start + step)
            parts = [flat[id(x)][part] if id(x) in flat else x for x in arrays]
            part_outs = [flat[id(x)][part] if id(x) in flat else x for x in outs]
            results = self._at_once(xp, parts, part_outs, shrink, attrs)
        return [result if out is None else out for result, out in zip(results, outs, strict=True)]

    def _at_once(self, xp, arrays, outs, shrink, attrs) -> list[Any]:
        grad = arrays[self.grad]
        if isinstance(shrink, Times):
            arrays[self.grad] = shrink(grad, Scratch(np, around=True).empty(grad.shape, grad.dtype))
        elif shrink is not None:
            arrays[self.grad] = shrink(grad)
        if len(outs) == 1:
            return [self.function(xp, *arrays, **attrs, out=outs[0])]
        return list(self.function(xp, *arrays, **attrs, out=None if outs[0] is None else tuple(outs)))


def _piece(size: int) -> int:
    """Number of the `size` elements to update at a time: pieces of about one length that begin with a cache line."""
    return -(-size // -(-size // _PIECE) // 64) * 64


def _merged_signature(parameters: list[inspect.Parameter]) -> inspect.Signature:
    """The signature of a kernel with the parameters `factor` and `sizes` besides."""
    out = next(p for p in parameters if p.name == "out")
    factor = inspect.Parameter("factor", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    sizes = inspect.Parameter("sizes", inspect.Parameter.KEYWORD_ONLY)
    inputs = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "out"]
    return inspect.Signature([*inputs, factor, *keywords, sizes, out])


for _type in TYPES:
    kernel(f"merged_{_type}", joins="all")(Merged(_type))
