"""Means over all samples where each rank has its own number of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from math import prod
from typing import Any

from minigraph.ir import Block, Operator, Program, Role
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for, is_random


@dataclass(frozen=True)
class WeightMeans(Pass):
    """Let the gradient of each mean over a rank's samples count by how many samples these are among those of all ranks.

    What flows into the mean is multiplied by ``ranks * n / total``: n is the number of elements of this rank, and the
    total is summed over the ranks. Where a loss is divided by a count of this rank, such as its number of tokens, its
    gradient is divided by that of all ranks. The sums behind the count are summed over the ranks, and the operators
    that follow, as those of ``max(count, 1)``, are repeated on the totals. If gradients flow into the count as well,
    the dividend and the quotient are those of all ranks, too.

    Law: summed over ranks and divided by their number, gradients are those of the means over all samples, but for
    rounding.

    Attributes
    ----------
    ranks : int
        Number of ranks.
    """

    ranks: int

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        forward = _Forward(block)
        changed = False
        for op in list(means_of_loss(program)):
            for number, grad in enumerate(forward.gradients_of(op)):
                totals = _Totals(forward, op, grad, self.ranks, f"_{number}" if number else "")
                if op.type == "elementwise_div":
                    changed = totals.divide() or changed
                else:
                    changed = totals.weight() or changed
        return changed


def _plain(name: str) -> str:
    """The name of a gradient without what a later backward pass has put in front of it."""
    while name.startswith("grad/"):
        name = name.removeprefix("grad/")
    return name


def means_of_loss(program: Program) -> Iterator[Operator]:
    """The operators by which a loss averages over samples: means, and sums that are divided by a number of samples."""
    block = program.global_block()
    needed = {
        name for op in block.ops if op.role & Role.LOSS and not op.role & Role.BACKWARD for name in op.output_arg_names
    }
    fed = _of_samples(block)
    for op in reversed(block.ops):
        if op.role & (Role.BACKWARD | Role.OPTIMIZE) or needed.isdisjoint(op.output_arg_names):
            continue
        needed.update(op.input_arg_names)
        if fed.isdisjoint(op.input_arg_names):
            continue
        if _is_mean(op) or (op.type == "elementwise_div" and op.input("Y")[0] in fed and _is_number(op, "Y")):
            yield op


class _Forward:
    """The forward pass: what makes each value, and what is made of it."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.fed = _of_samples(block)
        self.learned = learned_names(block)
        self.ops = [op for op in block.ops if not op.role & (Role.BACKWARD | Role.OPTIMIZE)]
        self.readers: dict[tuple[str, str], list[Operator]] = {}
        """Gradient operators, by type and X."""
        for op in block.ops:
            if "Out" + GRAD_SUFFIX in op.inputs and "X" in op.inputs:
                self.readers.setdefault((op.type, op.inputs["X"][0]), []).append(op)
        self.averaged: set[str] = set()
        """Names of values of which a mean is taken, or of what is computed of them."""
        for op in reversed(self.ops):
            if _is_mean(op) or not self.averaged.isdisjoint(op.output_arg_names):
                self.averaged.update(op.input_arg_names)
        made = Counter(name for op in self.ops for name in op.output_arg_names)
        # A value that is overwritten is no longer there where the gradient is computed.
        self.makers = {name: op for op in self.ops for name in op.output_arg_names if made[name] == 1}

    def gradients_of(self, op: Operator) -> list[Operator]:
        """The operators that compute the gradient of `op`, one for each backward pass through it."""
        incoming = op.output("Out")[0] + GRAD_SUFFIX
        found = self.readers.get((f"{op.type}_grad", op.input("X")[0]), ())
        return [each for each in found if _plain(each.input("Out" + GRAD_SUFFIX)[0]).startswith(incoming)]

    def is_number_of_samples(self, name: str) -> bool:
        """Whether a value is one number that depends on what is fed."""
        return name in self.fed and _is_one(self.block, name)

    def can_repeat(self, op: Operator) -> bool:
        """Whether an operator computes one number of numbers, so that it makes the total of totals."""
        if SUB_BLOCK in op.attrs or is_random(op.type) or op.definition.has_effect or _is_mean(op):
            return False
        of_samples = [name for name in op.input_arg_names if name in self.fed]
        return bool(of_samples) and all(map(self.is_number_of_samples, of_samples))

    def averages(self, op: Operator) -> bool:
        """Whether a division is one of means: those it divides, or one that is taken of its rows afterwards."""
        if not _is_number(op, "X"):
            return not self.averaged.isdisjoint(op.output_arg_names)
        names = [op.input("X")[0]]
        while names:
            maker = self.makers.get(names.pop())
            if maker is not None and _is_mean(maker):
                return True
            if maker is not None and self.can_repeat(maker):
                names.extend(maker.input_arg_names)
        return False


@dataclass(frozen=True)
class _Totals:
    """Values over the samples of all ranks, made in front of the gradient of a mean or a division."""

    forward: _Forward
    op: Operator
    grad: Operator
    ranks: int
    suffix: str
    """Ending of the new names, another one for each backward pass."""
    made: dict[str, str] = field(default_factory=dict)
    """Values over all ranks, by the names of those of one rank."""

    @property
    def block(self) -> Block:
        return self.op.block

    @property
    def _out(self) -> str:
        return self.op.output("Out")[0] + self.suffix

    def weight(self) -> bool:
        """Let the gradient of a mean count by the samples of this rank; not a second time."""
        incoming, name = self.grad.input("Out" + GRAD_SUFFIX)[0], f"{self._out}.count"
        if self.block.has_var(name):
            return False
        count = self._size(self.op.input("X")[0], name, incoming)
        total = self._sum(count, f"{name}.total")
        share = self._add("elementwise_div", {"X": count, "Y": total}, f"{name}.share")
        factor = self._add("scale", {"X": share}, f"{name}.factor", scale=float(self.ranks))
        weighted = self._add("elementwise_mul", {"X": incoming, "Y": factor}, f"{name}.weighted")
        self.grad.set_input("Out" + GRAD_SUFFIX, [weighted])
        return True

    def divide(self) -> bool:
        """Let the gradient of a division by a count divide by that of all ranks; not a second time."""
        out = self._out
        if self.block.has_var(f"{out}.divisor"):
            return False
        divided = self._total(self.op.input("Y")[0])
        # A mean is weighted by the samples of its rank already; a sum is divided by the mean count of the ranks.
        scale = 1.0 if self.forward.averages(self.op) else 1.0 / self.ranks
        divisor = self._add("scale", {"X": divided}, f"{out}.divisor", scale=scale)
        self.grad.set_input("Y", [divisor])
        if self.op.input("Y")[0] not in self.forward.learned or not _is_number(self.op, "X"):
            return True
        dividend = self._total(self.op.input("X")[0])
        self.grad.set_input("X", [self._add("scale", {"X": dividend}, f"{out}.dividend", scale=scale)])
        if "Out" in self.grad.inputs:
            self.grad.set_input("Out", [self._add("elementwise_div", {"X": dividend, "Y": divided}, f"{out}.total")])
        return True

    def _total(self, name: str) -> str:
        """One number as it is over the samples of all ranks."""
        if name not in self.forward.fed:
            return name
        if name not in self.made:
            maker = self.forward.makers.get(name)
            if maker is not None and _is_mean(maker):
                self.made[name] = self._mean(maker)
            elif maker is not None and self.forward.can_repeat(maker):
                self._repeat(maker)
            else:
                self.made[name] = self._sum(name, self._name_of(name))
        return self.made[name]

    def _repeat(self, maker: Operator) -> None:
        """Compute of totals what the program computes of the numbers of one rank."""
        inputs = {slot: [self._total(name) for name in names] for slot, names in maker.inputs.items()}
        outputs = {slot: [self._name_of(name) for name in names] for slot, names in maker.outputs.items()}
        self._insert(maker.type, inputs, outputs, dict(maker.attrs))
        self.made.update({name: self._name_of(name) for name in maker.output_arg_names})

    def _mean(self, maker: Operator) -> str:
        """The mean over the samples of all ranks."""
        name = maker.output("Out")[0]
        made = self._name_of(name)
        size = self._size(maker.input("X")[0], f"{made}.size", name)
        weighted = self._add("elementwise_mul", {"X": name, "Y": size}, f"{made}.weighted")
        total, sizes = self._sum(weighted, f"{made}.sum"), self._sum(size, f"{made}.sizes")
        return self._add("elementwise_div", {"X": total, "Y": sizes}, made)

    def _name_of(self, name: str) -> str:
        return f"{self._out}.{name}.total"

    def _sum(self, name: str, out: str) -> str:
        # On the stream of the computation, which needs the sum at once.
        return self._add("c_allreduce_sum", {"X": name}, out, use_calc_stream=True)

    def _size(self, values: str, out: str, like: str) -> str:
        """The number of elements, in the type of another value."""
        size = self._add("size", {"Input": values}, f"{out}.int")
        in_dtype, out_dtype = (int(self.block.var(name).dtype) for name in (size, like))
        return self._add("cast", {"X": size}, out, in_dtype=in_dtype, out_dtype=out_dtype)

    def _add(self, type: str, inputs: dict[str, str], out: str, **attrs: Any) -> str:
        self._insert(type, inputs, {"Out": [out]}, attrs)
        return out

    def _insert(self, type: str, inputs: dict[str, Any], outputs: dict[str, list[str]], attrs: dict[str, Any]) -> None:
        for name in (name for names in outputs.values() for name in names if name != EMPTY):
            if not self.block.has_var(name):
                self.block.create_var(name=name, stop_gradient=True)
        insert_for(self.grad, type, inputs, outputs, attrs).role_vars = ()


def _is_mean(op: Operator) -> bool:
    return op.type == "mean" or (op.type == "reduce_mean" and (op.attr("reduce_all") or 0 in op.attr("dim")))


def _is_number(op: Operator, slot: str) -> bool:
    return _is_one(op.block, op.input(slot)[0])


def _is_one(block: Block, name: str) -> bool:
    """Whether a value is one number."""
    var = block.find_var(name)
    return var is not None and var.shape is not None and -1 not in var.shape and prod(var.shape) == 1


def _of_samples(block: Block) -> set[str]:
    """Names of values that depend on what is fed."""
    return _dependent(block, {name for name, var in block.vars.items() if var.is_data})


def learned_names(block: Block) -> set[str]:
    """Names of values through which gradients flow to parameters."""
    frozen = {name for name, var in block.vars.items() if var.stop_gradient}
    return _dependent(block, {param.name for param in block.all_parameters()} - frozen, frozen)


def _dependent(block: Block, found: set[str], without: Set[str] = frozenset()) -> set[str]:
    """Names of values that are computed of some values, with their names; a loss may read gradients."""
    for op in block.ops:
        if not op.role & Role.OPTIMIZE and not found.isdisjoint(op.input_arg_names):
            found.update(set(op.output_arg_names) - without)
    return found
