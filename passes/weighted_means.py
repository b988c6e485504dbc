"""Means over all samples where each rank has its own number of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from minigraph.ir import Block, Operator, Program, Role
from minigraph.opdef import GRAD_SUFFIX
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for


@dataclass(frozen=True)
class WeightMeans(Pass):
    """Let the gradient of each mean over a rank's samples count by how many samples these are among those of all ranks.

    What flows into the mean is multiplied by ``ranks * n / total``: n is the number of elements of this rank, and the
    total is summed over the ranks. Where a sum is divided by a count of this rank, such as its number of tokens, its
    gradient is divided by ``total / ranks`` in place of the count.

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
        grads = {op.inputs["Out" + GRAD_SUFFIX][0]: op for op in block.ops if "Out" + GRAD_SUFFIX in op.inputs}
        changed = False
        for op in list(means_of_loss(program)):
            grad = grads.get(op.output("Out")[0] + GRAD_SUFFIX)
            if grad is not None and not block.has_var(op.output("Out")[0] + ".count"):
                self._weight(op, grad)
                changed = True
        return changed

    def _weight(self, op: Operator, grad: Operator) -> None:
        """Let what `grad` computes, the gradient of `op`, count by the samples of this rank."""
        block, incoming = op.block, grad.input("Out" + GRAD_SUFFIX)[0]
        name = op.output("Out")[0] + ".count"  # the same on every rank
        dtype = int(block.var(incoming).dtype)

        def add(type: str, inputs: dict[str, str], suffix: str, **attrs: object) -> str:
            out = name + suffix
            if not block.has_var(out):
                block.create_var(name=out, stop_gradient=True)
            made = insert_for(grad, type, inputs, {"Out": out}, attrs)
            made.role_vars = ()
            return out

        def total_of(value: str, suffix: str) -> str:
            # On the stream of the computation, which needs the sum at once.
            return add("c_allreduce_sum", {"X": value}, suffix, use_calc_stream=True)

        def sized(values: str, suffix: str) -> str:
            size = add("size", {"Input": values}, f"{suffix}.int")
            return add("cast", {"X": size}, suffix, in_dtype=int(block.var(size).dtype), out_dtype=dtype)

        if op.type == "elementwise_div":
            # Divide by the mean count of the ranks: a rank may have none of what is counted.
            count = add("reduce_sum", {"X": op.input("Y")[0]}, "", reduce_all=True)
            mean = _mean_after(op)
            if mean is None:
                total = total_of(count, ".total")
                grad.set_input("Y", [add("scale", {"X": total}, ".mean", scale=1.0 / self.ranks)])
                return
            size = sized(mean.input("X")[0], ".size")
            weighted = add("elementwise_mul", {"X": count, "Y": size}, ".weighted")
            total = total_of(weighted, ".total")
            sizes = total_of(size, ".sizes")
            grad.set_input("Y", [add("elementwise_div", {"X": total, "Y": sizes}, ".mean")])
            return
        count = sized(op.input("X")[0], "")
        total = total_of(count, ".total")
        share = add("elementwise_div", {"X": count, "Y": total}, ".share")
        factor = add("scale", {"X": share}, ".factor", scale=float(self.ranks))
        grad.set_input("Out" + GRAD_SUFFIX, [add("elementwise_mul", {"X": incoming, "Y": factor}, ".weighted")])


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
        if _is_mean(op):
            yield op
        if op.type == "elementwise_div" and op.input("Y")[0] in fed and block.var(op.input("Y")[0]).shape == (1,):
            yield op


def _is_mean(op: Operator) -> bool:
    return op.type == "mean" or (op.type == "reduce_mean" and (op.attr("reduce_all") or 0 in op.attr("dim")))


def _mean_after(division: Operator) -> Operator | None:
    """The mean over samples by which an operator divides, perhaps with a small number added."""
    name = division.input("Y")[0]
    before = takewhile(lambda op: op is not division, division.block.ops)
    for op in reversed(list(before)):
        if name in op.output_arg_names:
            if _is_mean(op):
                return op
            if op.type not in _KEEP_MEANS:
                return None
            name = op.input("X")[0]
    return None


_KEEP_MEANS = frozenset({"assign", "cast", "clip", "elementwise_add", "elementwise_max", "reshape2", "scale"})
"""Operators between a mean and the division by it."""


def _of_samples(block: Block) -> set[str]:
    """Names of values that depend on what is fed."""
    found = {name for name, var in block.vars.items() if var.is_data}
    for op in block.ops:
        if not op.role & (Role.BACKWARD | Role.OPTIMIZE) and not found.isdisjoint(op.input_arg_names):
            found.update(op.output_arg_names)
    return found
