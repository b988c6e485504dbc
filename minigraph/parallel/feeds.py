"""Find feeds whose first dimension of unknown size is not that of the samples."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, product

from minigraph.errors import MinigraphError
from minigraph.ir import Program
from minigraph.lowering.steps import concretize
from minigraph.passes.rewriting import open_axes

_SAMPLES, _OTHERS = 101, (103, 107, 109, 113)
"""Sizes of dimensions in a trial: primes, so that no reshape takes one for another."""
_TRIALS = 16
"""Maximum assignments that are tried."""


def describe_feeds(program: Program) -> str | None:
    """Say for which feeds the first dimension of unknown size is not that of the samples; None if nothing is known.

    Of a feed with several such dimensions the first counts as that of the samples. Where shapes then do not fit to each
    other, as rows of another feed do not fit to steps, and they do for another dimension, it is that one.
    """
    block = program.global_block()
    axes = {name: open_axes(var) for name, var in block.vars.items() if var.is_data}
    unclear = {name: found for name, found in axes.items() if len(found) > 1 and not block.vars[name].lod_level}
    if not unclear:
        return None
    firsts, *others = islice(product(*unclear.values()), _TRIALS)
    if _fits(program, axes, dict(zip(unclear, firsts, strict=True))):
        return None
    for trial in others:
        if _fits(program, axes, dict(zip(unclear, trial, strict=True))):
            wrong = {name: axis for name, axis, first in zip(unclear, trial, firsts, strict=True) if axis != first}
            named = ", ".join(f"dimension {axis} of {name}" for name, axis in wrong.items())
            return (
                f"samples lie along {named}, where another dimension of unknown size is in front of it and counts as "
                "that of the samples: declare the size of the other one, or feed samples first"
            )
    return None


def _fits(program: Program, axes: Mapping[str, list[int]], chosen: Mapping[str, int]) -> bool:
    """Whether shapes fit to each other if samples lie along these dimensions, and else along the only unknown one."""
    types = {}
    for name, found in axes.items():
        known = program.global_block().vars[name].tensor_type
        if known is None:
            return False
        sizes = dict(zip(found, _OTHERS, strict=False))
        if found:
            sizes[chosen.get(name, found[0])] = _SAMPLES
        types[name] = known.with_shape(tuple([sizes.get(axis, size) for axis, size in enumerate(known.shape)]))
    try:
        concretize(program.clone(), types)
    except MinigraphError:
        return False
    return True
