"""Compute a global norm safely: one operator for fluid's chain of square, sum, square root and division."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from minigraph.ir import Block, Operator, Program
from minigraph.opdef import EMPTY, definition_of
from minigraph.passes.base import Pass

_TYPES = frozenset({
    "square", "reduce_sum", "sum", "sqrt", "elementwise_max", "elementwise_div", "elementwise_mul",
    "get_tensor_from_selected_rows", "merge_selected_rows",
})  # fmt: skip
"""Types of the operators in such a clip."""


class FuseGlobalNorm(Pass):
    """Compute the norm and the products of a global-norm clip by one operator, ``clip_by_global_norm``.

    Law: norm and clipped gradients are the same up to rounding wherever fluid's operators stay finite, and right where
    those overflow or underflow on the way (the square of 1e30 is infinite in float32, its root is not). That is why
    this rewrite is part of what a program means, and not only of how fast it runs.

    The pass matches::

        s_i = reduce_sum(square(g_i))     n = sqrt(sum(s_0, s_1, ...))
        f = elementwise_div(c, elementwise_max(c, n))     y_i = elementwise_mul(g_i, f)

    where selected rows are merged before their values are squared.

    The products and the root are removed, and so are the operators before the root whose results nothing else needs.
    """

    def apply(self, program: Program) -> bool:
        return fuse_in_place(program, program.roots)


def fuse_in_place(program: Program, roots: Iterable[str] | None) -> bool:
    """Replace the operators of `program` by those that `fuse_global_norms` returns."""
    block = program.global_block()
    before = block.ops[:]
    after = fuse_global_norms(before, block, roots)
    gone, new = set(before).difference(after), set(after).difference(before)
    for op, anchor in pairwise(after):
        if op in new:  # a maximum follows, so that a new operator is never the last
            with block.inserting_before(anchor, role=op.role):
                block.append_op(op.type, op.inputs, op.outputs)
    for op in before:
        if op in gone:
            block.remove(op)
    return bool(new)


def fuse_global_norms(ops: Sequence[Operator], block: Block, roots: Iterable[str] | None) -> list[Operator]:
    """Return the operators that do the work of `ops` of `block` when `roots` are fetched.

    The new operators among them are in no block yet, and each has the role and the source line of the next operator.
    """
    square_roots = [at for at, op in enumerate(ops) if op.definition.type == "sqrt"]
    if not square_roots:
        return list(ops)
    uses = _Uses(ops, block, roots)
    clips = [clip for root in square_roots if (clip := _find_clip(root, uses)) is not None]
    removed: set[int] = set()
    for clip in clips:
        removed.update((clip.root, *clip.products.values()))
        _remove_unread(clip, uses, removed)
    new = {clip.maximum: _one_operator(clip, ops) for clip in clips}
    result = []
    for at, op in enumerate(ops):
        if at in new:  # before the maximum, which still reads the norm
            result.append(new[at])
        if at not in removed:
            result.append(op)
    return result


class _Clip(NamedTuple):
    """Positions of the operators of a clip by global norm."""

    root: int
    maximum: int
    threshold: str
    grads: list[str]
    products: dict[str, int]
    """Positions of the products, by gradient."""


class _Uses:
    """Positions of the operators that write and read the names in chains."""

    def __init__(self, ops: Sequence[Operator], block: Block, roots: Iterable[str] | None) -> None:
        self.ops = ops
        self._block = block
        self._roots = None if roots is None else frozenset(roots)
        mine = [op for op in ops if op.definition.type in _TYPES]
        made = set[str]().union(*[names for op in mine for names in op.outputs.values()])
        known = made.union(*[names for op in mine for names in op.inputs.values()])
        self.writers = writers = defaultdict[str, list[int]](list)
        self.readers = readers = defaultdict[str, list[int]](list)
        for at, op in enumerate(ops):
            hides = op.definition.has_hidden_names
            # Most operators are in no chain, and one test for each slot skips them.
            for names in (op.output_arg_names,) if hides else op.outputs.values():
                if not known.isdisjoint(names):
                    for name in names:
                        writers[name].append(at)
            for names in (op.input_arg_names,) if hides else op.inputs.values():
                if not made.isdisjoint(names):
                    for name in names:
                        readers[name].append(at)

    def sole_writer(self, name: str, type: str) -> int | None:
        """The only operator that writes `name`, if it is of this type."""
        writers = self.writers[name]
        # A name that is written twice is two values, of which one may be another's.
        return writers[0] if len(writers) == 1 and self.ops[writers[0]].type == type else None

    def reader(self, name: str, type: str, slot: str) -> int | None:
        """The first operator of this type that reads `name` in this slot."""
        found = (at for at in self.readers[name] if self.ops[at].type == type)
        return next((at for at in found if self.ops[at].inputs[slot][0] == name), None)

    def is_unread(self, name: str, removed: set[int]) -> bool:
        """Whether no remaining operator reads `name`, and it is neither fetched nor persistable."""
        if self._roots is None or name in self._roots or self._block.vars[name].persistable:
            return False
        return removed.issuperset(self.readers[name])


def _find_clip(root: int, uses: _Uses) -> _Clip | None:
    """The clip around the square root `root` of a sum of squares, if that is what it is."""
    ops = uses.ops
    squares = _squares_under(root, uses)
    norm = ops[root].outputs["Out"][0]
    maximum = uses.reader(norm, "elementwise_max", "Y")
    if squares is None or maximum is None or len(uses.writers[norm]) != 1:
        return None
    # The new operator writes the norm at the maximum: an earlier reader would miss it.
    if uses.readers[norm][0] < maximum:
        return None
    threshold = ops[maximum].inputs["X"][0]
    divide = uses.reader(ops[maximum].outputs["Out"][0], "elementwise_div", "Y")
    # The same threshold above and below: else the quotient is no factor of a clip.
    if divide is None or ops[divide].inputs["X"][0] != threshold:
        return None
    products = _products_with(ops[divide].outputs["Out"][0], squares, uses)
    return _Clip(root, maximum, threshold, list(squares), products) if products else None


def _squares_under(root: int, uses: _Uses) -> dict[str, int] | None:
    """The values whose squared elements `root` sums, each with the position where it is read."""
    total = uses.sole_writer(uses.ops[root].inputs["X"][0], "sum")
    squares: dict[str, int] = {}
    for name in uses.ops[total].inputs["X"] if total is not None else ():
        reduction = uses.sole_writer(name, "reduce_sum")
        if reduction is None or not uses.ops[reduction].attr("reduce_all"):
            return None
        reader = uses.sole_writer(uses.ops[reduction].inputs["X"][0], "square")
        if reader is None:
            return None
        grad = uses.ops[reader].inputs["X"][0]
        # Selected rows are merged, and then their values are squared.
        values = uses.sole_writer(grad, "get_tensor_from_selected_rows")
        merge = uses.sole_writer(uses.ops[values].inputs["X"][0], "merge_selected_rows") if values is not None else None
        if merge is not None:
            grad, reader = uses.ops[merge].inputs["X"][0], merge
        # A value summed twice counts twice, which the one operator would not do.
        if grad in squares:
            return None
        squares[grad] = reader
    return squares or None


def _products_with(factor: str, squares: dict[str, int], uses: _Uses) -> dict[str, int]:
    """The product of each value with the factor, if it may be computed before the maximum."""
    products: dict[str, int] = {}
    for at in uses.readers[factor]:
        op = uses.ops[at]
        if op.type != "elementwise_mul" or op.inputs["Y"][0] != factor:
            continue
        grad, out = op.inputs["X"][0], op.outputs["Out"][0]
        # The product moves up to the maximum: it must read the value squared, and nothing may use its name before.
        is_movable = (
            grad in squares
            and grad not in products
            and not any([squares[grad] < write < at for write in uses.writers[grad]])
            and uses.writers[out][0] == at
            and all([reader > at for reader in uses.readers[out]])
        )
        if is_movable:
            products[grad] = at
    return products


def _one_operator(clip: _Clip, ops: Sequence[Operator]) -> Operator:
    maximum = ops[clip.maximum]
    products = [ops[clip.products[grad]].outputs["Out"][0] if grad in clip.products else EMPTY for grad in clip.grads]
    inputs = {"X": tuple(clip.grads), "ClipNorm": (clip.threshold,)}
    outputs = {"Out": tuple(products), "Norm": ops[clip.root].outputs["Out"]}
    definition = definition_of("clip_by_global_norm")
    return Operator(definition, inputs, outputs, {}, role=maximum.role, site=maximum.site)


def _remove_unread(clip: _Clip, uses: _Uses, removed: set[int]) -> None:
    """Add to `removed` the operators that compute the sum of squares, except those whose results others read."""
    grads = set(clip.grads)
    pending = [uses.writers[uses.ops[clip.root].inputs["X"][0]][0]]
    # From the sum backward: an operator may go when all its readers have gone.
    while pending:
        at = pending.pop()
        op = uses.ops[at]
        if at not in removed and uses.is_unread(op.outputs["Out"][0], removed):
            removed.add(at)
            pending += [uses.writers[name][0] for name in op.inputs["X"] if name not in grads]
