"""Compute a global norm safely: one operator for fluid's chain of square, sum, square root and division."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from minigraph.ir import Block, Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass


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
        roots = block.ops.of_type("sqrt")
        if not roots:
            return False
        uses = _Uses(block)
        matches = [match for op in roots if (match := _match(op, uses)) is not None]
        for match in matches:
            _rewrite(block, match)
            _remove_unread(match, uses)
        return bool(matches)


_TYPES = (
    "square", "reduce_sum", "sum", "sqrt", "elementwise_max", "elementwise_div", "elementwise_mul",
    "get_tensor_from_selected_rows", "merge_selected_rows",
)  # fmt: skip
"""Of the operators that such a clip consists of."""


class _Uses:
    """Where operators stand, who writes the names in a clip's operators, and who reads what these write."""

    def __init__(self, block: Block) -> None:
        self._variables = block.vars
        self._roots = None if block.program.roots is None else frozenset(block.program.roots)
        ops = block.ops[:]
        self.position = dict(zip(ops, range(len(ops)), strict=True))
        mine = [op for type in _TYPES for op in block.ops.of_type(type)]
        made = {name for op in mine for names in op.outputs.values() for name in names}
        known = made.union(*[names for op in mine for names in op.inputs.values()])
        self.writers: defaultdict[str, list[Operator]] = defaultdict(list)
        self.readers: defaultdict[str, list[Operator]] = defaultdict(list)
        for op in ops:
            hides = op.definition.has_hidden_names
            for names in [op.output_arg_names] if hides else op.outputs.values():
                if not known.isdisjoint(names):
                    for name in names:
                        self.writers[name].append(op)
            for names in [op.input_arg_names] if hides else op.inputs.values():
                if not made.isdisjoint(names):
                    for name in names:
                        self.readers[name].append(op)

    def sole_writer(self, name: str, type: str) -> Operator | None:
        """The only operator that writes `name`, if it is of this type."""
        found = self.writers.get(name, ())
        return found[0] if len(found) == 1 and found[0].type == type else None

    def reader(self, name: str, type: str, slot: str) -> Operator | None:
        """The first operator of this type that reads `name` in this slot."""
        return next((op for op in self.readers[name] if op.type == type and op.inputs[slot][0] == name), None)

    def is_unread(self, name: str) -> bool:
        """Whether no operator that is left reads `name`, and nobody outside of the block may want it."""
        if self._roots is None or name in self._roots or self._variables[name].persistable:
            return False
        return not any([op._block is not None for op in self.readers[name]])

    def is_written_between(self, name: str, start: Operator, end: Operator) -> bool:
        first, last = self.position[start], self.position[end]
        return any([first < self.position[op] < last for op in self.writers[name]])


@dataclass(frozen=True)
class _Match:
    root: Operator
    maximum: Operator
    threshold: str
    grads: list[str]
    products: dict[str, Operator]
    """By gradient."""


def _match(root: Operator, uses: _Uses) -> _Match | None:
    """The clip around the square root of a sum of squares, if that is what it is."""
    squares = _squares_under(root, uses)
    norm = root.outputs["Out"][0]
    maximum = uses.reader(norm, "elementwise_max", "Y")
    if squares is None or maximum is None or uses.writers[norm] != [root]:
        return None
    # Nothing may read the norm before the place where the new operator writes it.
    if any(uses.position[op] < uses.position[maximum] for op in uses.readers[norm]):
        return None
    threshold = maximum.inputs["X"][0]
    divide = uses.reader(maximum.outputs["Out"][0], "elementwise_div", "Y")
    if divide is None or divide.inputs["X"][0] != threshold:
        return None
    products = _products_with(divide.outputs["Out"][0], squares, maximum, uses)
    return _Match(root, maximum, threshold, list(squares), products) if products else None


def _squares_under(root: Operator, uses: _Uses) -> dict[str, Operator] | None:
    """For all values whose squared elements `root` sums, the operator that reads the value."""
    total = uses.sole_writer(root.inputs["X"][0], "sum")
    squares: dict[str, Operator] = {}
    for name in total.inputs["X"] if total is not None else ():
        reduction = uses.sole_writer(name, "reduce_sum")
        if reduction is None or not reduction.attr("reduce_all"):
            return None
        square = uses.sole_writer(reduction.inputs["X"][0], "square")
        if square is None:
            return None
        grad, reader = _read_by(square, uses)
        # A value summed twice counts twice, which the one operator would not do.
        if grad in squares:
            return None
        squares[grad] = reader
    return squares or None


def _read_by(square: Operator, uses: _Uses) -> tuple[str, Operator]:
    """The gradient whose elements are squared, and the operator that reads it: of selected rows the one that merges."""
    values = uses.sole_writer(square.inputs["X"][0], "get_tensor_from_selected_rows")
    merge = uses.sole_writer(values.inputs["X"][0], "merge_selected_rows") if values is not None else None
    reader = merge or square
    return reader.inputs["X"][0], reader


def _products_with(factor: str, squares: dict[str, Operator], maximum: Operator, uses: _Uses) -> dict[str, Operator]:
    """For each value the product with the factor, where it may as well be computed at `maximum`."""
    products: dict[str, Operator] = {}
    for op in uses.readers[factor]:
        if op.type != "elementwise_mul" or op.inputs["Y"][0] != factor:
            continue
        grad, out = op.inputs["X"][0], op.outputs["Out"][0]
        is_movable = (
            grad in squares
            and grad not in products
            and not uses.is_written_between(grad, squares[grad], op)
            and uses.writers[out][0] is op
            and all([uses.position[reader] > uses.position[op] for reader in uses.readers[out]])
        )
        if is_movable:
            products[grad] = op
    return products


def _rewrite(block: Block, match: _Match) -> None:
    norm = match.root.outputs["Out"][0]
    outputs = [match.products[grad].outputs["Out"][0] if grad in match.products else EMPTY for grad in match.grads]
    block.remove(match.root)
    with block.inserting_before(match.maximum, role=match.maximum.role):
        block.append_op(
            "clip_by_global_norm", {"X": match.grads, "ClipNorm": match.threshold}, {"Out": outputs, "Norm": norm}
        )
    for op in match.products.values():
        block.remove(op)


def _remove_unread(match: _Match, uses: _Uses) -> None:
    """Remove what computed the sum of squares, as far as nobody else reads it."""
    grads = set(match.grads)
    pending = [uses.writers[match.root.inputs["X"][0]][0]]
    while pending:
        op = pending.pop()
        if op._block is not None and uses.is_unread(op.outputs["Out"][0]):
            op.block.remove(op)
            pending += [uses.writers[name][0] for name in op.inputs["X"] if name not in grads]
