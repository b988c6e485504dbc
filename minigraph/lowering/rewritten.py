"""Rewritten programs: what pruning, inference and passes have made of a program, for every feed to which it applies.

The dimensions that a program leaves open, such as the batch, are open sizes while it is rewritten, see
`minigraph.support.sizes`. So it is known for which other sizes the same would come out, and a plan for those begins
with a copy of the rewritten program, in which all sizes are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minigraph.ir import Program
from minigraph.lowering.prune import prune
from minigraph.lowering.steps import concretize
from minigraph.passes.base import Pipeline
from minigraph.support.sizes import OpenDimensions, closed
from minigraph.types import TensorType


@dataclass(frozen=True, eq=False)
class Rewritten:
    """A program after all rewrites, with open sizes.

    Attributes
    ----------
    program : Program
        It is copied for each plan.
    feed_types : mapping
        Types of the feed that the program was rewritten for, by name.
    numbers : mapping
        Number of each open dimension of the feed, by name and axis; those that are equal have one number.
    dimensions : OpenDimensions
        They know for which sizes the program is right.
    """

    program: Program
    feed_types: Mapping[str, TensorType]
    numbers: Mapping[tuple[str, int], int]
    dimensions: OpenDimensions

    def program_for(self, feed_types: Mapping[str, TensorType]) -> Program | None:
        """Copy the program for sizes of a feed; None if other sizes may have led to another program."""
        sizes = self._sizes(feed_types)
        return _closed(self.program, sizes) if sizes is not None and self.dimensions.allow(sizes) else None

    def _sizes(self, feed_types: Mapping[str, TensorType]) -> Sequence[int] | None:
        """Sizes of the open dimensions; None if the feed differs in anything else."""
        if feed_types.keys() != self.feed_types.keys():
            return None
        found: dict[int, int] = {}
        for name, known in self.feed_types.items():
            given = feed_types[name]
            if (given.dtype, given.rank, given.kind) != (known.dtype, known.rank, known.kind):
                return None
            for axis, (size, known_size) in enumerate(zip(given.shape, known.shape, strict=True)):
                number = self.numbers.get((name, axis))
                if size != (known_size if number is None else found.setdefault(number, size)):
                    return None
        return [found[number] for number in range(len(found))]


def rewrite(
    program: Program,
    feed_types: Mapping[str, TensorType],
    fetch_names: Sequence[str],
    passes: Pipeline,
    fuse_norms: bool,
) -> Rewritten | None:
    """Prune, concretize and rewrite a copy of `program` with open sizes.

    None if the program leaves no dimension open, or if something fails, as for sizes that do not fit: errors tell
    more about numbers.
    """
    declared = program.global_block().vars
    number_of: dict[int, int] = {}
    numbers: dict[tuple[str, int], int] = {}
    for name, fed in feed_types.items():
        known = declared[name].shape if name in declared else None
        for axis, (size, wanted) in enumerate(zip(fed.shape, known or (), strict=False)):
            if wanted == -1 and size > 0:
                numbers[name, axis] = number_of.setdefault(size, len(number_of))
    if not numbers:
        return None
    dimensions = OpenDimensions(list(number_of))

    def opened(name: str, fed: TensorType) -> TensorType:
        found = [(numbers.get((name, axis)), size) for axis, size in enumerate(fed.shape)]
        shape: list[Any] = [size if number is None else dimensions.size(number) for number, size in found]
        return fed.with_shape(shape)

    try:
        private = prune(program, list(feed_types), fetch_names, fuse_norms)
        concretize(private, {name: opened(name, fed) for name, fed in feed_types.items()})
        passes.apply(private)
    except Exception:
        return None
    dimensions.cache.clear()
    return Rewritten(private, dict(feed_types), numbers, dimensions)


def _closed(program: Program, sizes: Sequence[int]) -> Program:
    """Copy a program, with numbers for its open sizes."""
    twin = program.clone()
    types: dict[int, TensorType] = {}
    for block, of_block in zip(program.blocks, twin.blocks, strict=True):
        of_block.first_names.update(block.first_names)
        for var in of_block.vars.values():
            old = var.tensor_type
            if old is None:
                continue
            new = types.get(id(old))  # `program` keeps its types, so that an `id` is not used again
            if new is None:
                new = types[id(old)] = TensorType(old.dtype, closed(old.shape, sizes), old.kind)
            var.tensor_type = new
    return twin
