"""Rewritten programs: what pruning, inference and passes have made of a program, for every feed to which it applies.

The dimensions that a program leaves open, such as the batch, are open sizes while it is rewritten, see
`minigraph.support.sizes`. The notes tell for which other sizes the result would be the same. A plan for such sizes
begins with the steps of an earlier plan, or with a copy of the rewritten program. In the end all sizes are numbers
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from minigraph.ir import Program, Variable
from minigraph.lowering.prune import prune
from minigraph.lowering.steps import concretize
from minigraph.passes.base import Pipeline
from minigraph.runtime.control_flow import is_unfit
from minigraph.support.sizes import OpenDimensions, OpenSize, closed, is_closed
from minigraph.types import TensorType


@dataclass(frozen=True, eq=False)
class Rewritten:
    """A program after all rewrites, and the sizes for which it is right.

    Attributes
    ----------
    program : Program
        The program with the sizes of the feed that it was rewritten for.
    feed_types : mapping
        Types of that feed, by name.
    types : sequence of TensorType
        Types of the program with numbers in the place of open sizes.
    open_types : sequence of TensorType
        The same with the open sizes, all different.
    variables : sequence of (Variable, int)
        Variables of the program that have one of these types, with its index.
    numbers : mapping
        Number of each open dimension of the feed, by name and axis; equal dimensions have one number.
    dimensions : OpenDimensions
        They know for which sizes the program is right.
    """

    program: Program
    feed_types: Mapping[str, TensorType]
    types: Sequence[TensorType]
    open_types: Sequence[TensorType]
    variables: Sequence[tuple[Variable, int]]
    numbers: Mapping[tuple[str, int], int]
    dimensions: OpenDimensions

    def types_for(self, feed_types: Mapping[str, TensorType]) -> Sequence[TensorType] | None:
        """The types for the sizes of a feed; None if other sizes may have led to another program."""
        sizes = self._sizes(feed_types)
        return None if sizes is None else _closed(self.open_types, sizes)

    def is_right_for(self, feed_types: Mapping[str, TensorType]) -> bool:
        """Whether the sizes of a feed lead to this program."""
        return self._sizes(feed_types) is not None

    def program_of(self, types: Sequence[TensorType]) -> Program:
        """Copy the program with these types."""
        twin = Program()
        twin.roots = self.program.roots
        twin.copy_blocks(self.program.blocks, private=True)
        for block, copy in zip(self.program.blocks, twin.blocks, strict=True):
            copy.first_names.update(block.first_names)
        for var, index in self.variables:
            twin.blocks[var.block.idx].vars[var.name].tensor_type = types[index]
        return twin

    @cached_property
    def is_flat(self) -> bool:
        """Whether sub-blocks have no variables with open sizes, and no such variable is an array of tensors."""
        return all(var.block.idx == 0 and not self.types[index].is_array for var, index in self.variables)

    def _sizes(self, feed_types: Mapping[str, TensorType]) -> Sequence[int] | None:
        """Sizes of the open dimensions; None if they may lead to another program, or anything else differs."""
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
        sizes = [found[number] for number in range(len(found))]
        return sizes if self.dimensions.allow(sizes) else None


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
        if any(map(is_unfit, private.blocks)):
            return None
        passes.apply(private)
    except Exception:
        return None
    dimensions.cache.clear()
    open_types, variables = _with_open_sizes(private)
    types = _closed(open_types, list(number_of))
    for var, index in variables:
        var.tensor_type = types[index]
    return Rewritten(private, dict(feed_types), types, open_types, variables, numbers, dimensions)


def _with_open_sizes(program: Program) -> tuple[list[TensorType], list[tuple[Variable, int]]]:
    """The types that have open sizes, each once, and the variables that have one of them, with its index."""
    open_types = list[TensorType]()
    variables = list[tuple[Variable, int]]()
    index_of: dict[Any, int] = {}
    index_of_object: dict[int, int] = {}
    """Index of a type by its `id`; -1 for a type without open sizes."""
    for var in program.list_vars():
        found = var.tensor_type
        if found is None:
            continue
        index = index_of_object.get(id(found))
        if index is None:
            index = -1 if is_closed(found.shape) else index_of.setdefault(_key(found), len(open_types))
            if index == len(open_types):
                open_types.append(found)
            index_of_object[id(found)] = index
        if index >= 0:
            variables.append((var, index))
    return open_types, variables


def _key(open_type: TensorType) -> Any:
    """Equal for types that are equal at every size."""
    shape: list[Any] = list(open_type.shape)
    shape = [size.key if type(size) is OpenSize else size for size in shape]
    return open_type.dtype, open_type.kind, *shape


def _closed(types: Sequence[TensorType], sizes: Sequence[int]) -> Sequence[TensorType]:
    """The types with numbers for open sizes; a new object for each."""
    return [TensorType(each.dtype, closed(each.shape, sizes), each.kind) for each in types]
