"""Compute a global norm safely: one operator for fluid's chain of square, sum, square root and division."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import not_

from minigraph.ir import Block, Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.base import Edits, Insertion, Pass


@dataclass(frozen=True)
class FuseGlobalNorm(Pass):
    """Compute the norm and the products of a global-norm clip by one operator, ``clip_by_global_norm``.

    Law: norm and clipped gradients are the same up to rounding wherever fluid's operators stay finite, and right where
    those overflow or underflow on the way (the square of 1e30 is infinite in float32, its root is not). That is why
    this rewrite is part of what a program means, and not only of how fast it runs.

    The operators are known by how they hang together::

        s_i = reduce_sum(square(g_i))     n = sqrt(sum(s_0, s_1, ...))
        f = elementwise_div(c, elementwise_max(c, n))     y_i = elementwise_mul(g_i, f)

    where selected rows are merged before their values are squared.

    The products and the root go, and so do the operators before the root whose results nobody else reads or fetches.
    """

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        if not block.ops.of_type("sqrt"):
            return False
        edits = self.edits(block.ops[:], block, program.roots)
        for new in edits.inserted:
            new.insert()
        for op in edits.removed:
            block.remove(op)
        return bool(edits.inserted)

    def edits(self, ops: Sequence[Operator], block: Block, roots: Sequence[str] | None) -> Edits:
        """What is to be done to operators of `block`, or to copies of them, when `roots` are fetched."""
        if not any([op.definition.type == "sqrt" for op in ops]):
            return Edits(ops, (), ())
        uses = _Uses(ops, block, roots)
        matches = [match for at in uses.roots if (match := _match(at, uses)) is not None]
        removed = bytearray(len(ops))
        for match in matches:
            for at in (match.root, *match.products.values()):
                removed[at] = True
            _remove_unread(match, uses, removed)
        kept = list(compress(ops, map(not_, removed)))
        return Edits(kept, list(compress(ops, removed)), [_one_operator(match, ops) for match in matches])


_TYPES = frozenset({
    "square", "reduce_sum", "sum", "sqrt", "elementwise_max", "elementwise_div", "elementwise_mul",
    "get_tensor_from_selected_rows", "merge_selected_rows",
})  # fmt: skip
"""Of the operators that such a clip consists of."""


class _Uses:
    """Where the names in a clip's operators are written, and where those that these write are read, by position."""

    def __init__(self, ops: Sequence[Operator], block: Block, roots: Iterable[str] | None) -> None:
        self.ops = ops
        self._block = block
        self._fetched = None if roots is None else frozenset(roots)
        mine = [op for op in ops if op.definition.type in _TYPES]
        made = set[str]().union(*[names for op in mine for names in op.outputs.values()])
        known = made.union(*[names for op in mine for names in op.inputs.values()])
        self.roots: list[int] = []
        self.writers, self.readers = _Positions(), _Positions()
        for at, op in enumerate(ops):
            definition = op.definition
            if definition.type == "sqrt":
                self.roots.append(at)
            hides = definition.has_hidden_names
            for names in [op.output_arg_names] if hides else op.outputs.values():
                if not known.isdisjoint(names):
                    self.writers.note(names, at)
            for names in [op.input_arg_names] if hides else op.inputs.values():
                if not made.isdisjoint(names):
                    self.readers.note(names, at)

    def sole_writer(self, name: str, type: str) -> int | None:
        """The only operator that writes `name`, if it is of this type."""
        at = self.writers.only(name)
        return at if at is not None and self.ops[at].type == type else None

    def reader(self, name: str, type: str, slot: str) -> int | None:
        """The first operator of this type that reads `name` in this slot."""
        readers = self.readers.all(name)
        return next((at for at in readers if (op := self.ops[at]).type == type and op.inputs[slot][0] == name), None)

    def is_unread(self, name: str, removed: bytearray) -> bool:
        """Whether no operator that is left reads `name`, and nobody outside of the block may want it."""
        if self._fetched is None or name in self._fetched or self._block.vars[name].persistable:
            return False
        reader = self.readers.only(name)
        return all([removed[at] for at in self.readers.all(name)]) if reader is None else bool(removed[reader])

    def is_written_between(self, name: str, start: int, end: int) -> bool:
        return any([start < at < end for at in self.writers.all(name)])


class _Positions:
    """For each name some positions; most have one."""

    def __init__(self) -> None:
        self.first: dict[str, int] = {}
        self._later: dict[str, list[int]] = {}

    def note(self, names: Iterable[str], at: int) -> None:
        first = self.first
        for name in names:
            if first.setdefault(name, at) != at:
                self._later.setdefault(name, []).append(at)

    def only(self, name: str) -> int | None:
        """The position of `name` if it has a single one."""
        return None if name in self._later else self.first.get(name)

    def all(self, name: str) -> Sequence[int]:
        first = self.first.get(name)
        return () if first is None else (first, *self._later.get(name, ()))


@dataclass(frozen=True)
class _Match:
    """A clip by global norm: where its operators stand."""

    root: int
    maximum: int
    threshold: str
    grads: list[str]
    products: dict[str, int]
    """By gradient."""


def _match(root: int, uses: _Uses) -> _Match | None:
    """The clip around the square root of a sum of squares, if that is what it is."""
    squares = _squares_under(root, uses)
    norm = uses.ops[root].outputs["Out"][0]
    at_maximum = uses.reader(norm, "elementwise_max", "Y")
    if squares is None or at_maximum is None or uses.writers.only(norm) != root:
        return None
    # Nothing may read the norm before the place where the new operator writes it.
    if any(at < at_maximum for at in uses.readers.all(norm)):
        return None
    maximum = uses.ops[at_maximum]
    threshold = maximum.inputs["X"][0]
    at_divide = uses.reader(maximum.outputs["Out"][0], "elementwise_div", "Y")
    if at_divide is None or uses.ops[at_divide].inputs["X"][0] != threshold:
        return None
    products = _products_with(uses.ops[at_divide].outputs["Out"][0], squares, uses)
    return _Match(root, at_maximum, threshold, list(squares), products) if products else None


def _squares_under(root: int, uses: _Uses) -> dict[str, int] | None:
    """For all values whose squared elements `root` sums, where the value is read."""
    total = uses.sole_writer(uses.ops[root].inputs["X"][0], "sum")
    squares: dict[str, int] = {}
    for name in uses.ops[total].inputs["X"] if total is not None else ():
        reduction = uses.sole_writer(name, "reduce_sum")
        if reduction is None or not uses.ops[reduction].attr("reduce_all"):
            return None
        square = uses.sole_writer(uses.ops[reduction].inputs["X"][0], "square")
        if square is None:
            return None
        grad, reader = _read_by(square, uses)
        # A value summed twice counts twice, which the one operator would not do.
        if grad in squares:
            return None
        squares[grad] = reader
    return squares or None


def _read_by(square: int, uses: _Uses) -> tuple[str, int]:
    """The gradient whose elements are squared, and where it is read: of selected rows where they are merged."""
    squared = uses.ops[square].inputs["X"][0]
    values = uses.sole_writer(squared, "get_tensor_from_selected_rows")
    if values is not None:
        merge = uses.sole_writer(uses.ops[values].inputs["X"][0], "merge_selected_rows")
        if merge is not None:
            return uses.ops[merge].inputs["X"][0], merge
    return squared, square


def _products_with(factor: str, squares: dict[str, int], uses: _Uses) -> dict[str, int]:
    """For each value the product with the factor, where it may as well be computed before the maximum."""
    products: dict[str, int] = {}
    for at in uses.readers.all(factor):
        op = uses.ops[at]
        if op.type != "elementwise_mul" or op.inputs["Y"][0] != factor:
            continue
        grad, out = op.inputs["X"][0], op.outputs["Out"][0]
        is_movable = (
            grad in squares
            and grad not in products
            and not uses.is_written_between(grad, squares[grad], at)
            and uses.writers.first[out] == at
            and all([reader > at for reader in uses.readers.all(out)])
        )
        if is_movable:
            products[grad] = at
    return products


def _one_operator(match: _Match, ops: Sequence[Operator]) -> Insertion:
    norm = ops[match.root].outputs["Out"][0]
    outputs = [ops[match.products[grad]].outputs["Out"][0] if grad in match.products else EMPTY for grad in match.grads]
    inputs = {"X": match.grads, "ClipNorm": [match.threshold]}
    return Insertion(ops[match.maximum], "clip_by_global_norm", inputs, {"Out": outputs, "Norm": [norm]})


def _remove_unread(match: _Match, uses: _Uses, removed: bytearray) -> None:
    """Let what computed the sum of squares go, as far as nobody else reads it."""
    grads = set(match.grads)
    writer = uses.writers.first
    pending = [writer[uses.ops[match.root].inputs["X"][0]]]
    while pending:
        at = pending.pop()
        op = uses.ops[at]
        if not removed[at] and uses.is_unread(op.outputs["Out"][0], removed):
            removed[at] = True
            pending += [writer[name] for name in op.inputs["X"] if name not in grads]
