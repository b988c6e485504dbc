"""Means over all samples where each rank has its own number of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, count
from math import prod
from typing import Any

from minigraph.ir import Block, Operator, Program, Role
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK
from minigraph.passes.base import Pass
from minigraph.passes.ranks.shard_blocks import ops_inside
from minigraph.passes.rewriting import insert_for, is_random, open_axes


@dataclass(frozen=True)
class WeightMeans(Pass):
    """Let each rank's gradients be those of the loss of all ranks' samples, whatever number of them a rank has.

    What flows into a mean over samples is multiplied by ``ranks * n / total``: n is the number of this rank's elements,
    and the total is summed over the ranks. What flows into a sum is multiplied by the number of ranks. Some gradients
    depend on a value that the forward pass computes from several samples, such as the number of tokens by which a loss
    is divided. They read the value for the samples of all ranks: sums, means and extremes over samples are exchanged,
    and the operators that follow, as those of ``1 / max(count, 1)``, are repeated on the results. If such a value is
    combined with single samples again, as in a normalization by statistics of the batch, its gradient is summed over
    ranks, too.

    Law: summed over ranks and divided by their number, gradients are those of the loss of all samples, but for
    rounding.

    Attributes
    ----------
    ranks : int
        Number of ranks.
    scales_loss : bool
        Whether the gradient of the loss is divided by the number of ranks; otherwise a loss that adds up samples is
        left alone.
    """

    ranks: int
    scales_loss: bool = True

    def apply(self, program: Program) -> bool:
        samples = Samples(program.global_block())
        made: dict[str, list[tuple[int, str]]] = {}
        places = {op: place for place, op in enumerate(program.global_block().ops)}
        changed = False
        for op in list(ops_of_loss(samples)):
            for grad in samples.gradients_of(op):
                totals = _Totals(samples, op, grad, self.ranks, places, made)
                if not totals.is_done:
                    changed = totals.apply(self.scales_loss) or changed
        return changed


def _plain(name: str) -> str:
    """The name of a gradient without what a later backward pass has put in front of it."""
    while name.startswith("grad/"):
        name = name.removeprefix("grad/")
    return name


def means_of_loss(program: Program) -> Iterator[Operator]:
    """The operators by which a loss averages over samples, the last first.

    They are means, and operators that read what is made of several samples, as a division by their number does.
    """
    samples = Samples(program.global_block())
    yield from (op for op in ops_of_loss(samples) if samples.averages(op) or samples.is_by_totals(op))


def ops_of_loss(samples: Samples) -> Iterator[Operator]:
    """The operators of the forward pass that the loss needs, the last first."""
    ops = samples.block.ops
    needed = {name for op in ops if op.role & Role.LOSS and not op.role & Role.BACKWARD for name in op.output_arg_names}
    for op in reversed(samples.ops):
        if not needed.isdisjoint(op.output_arg_names):
            needed.update(op.input_arg_names)
            yield op


def fixed_batch(block: Block) -> int | None:
    """The number of samples that is fed in every run, None if it is unknown; without declared samples, too.

    It is the first dimension that most feeds have, or else that of the largest.
    """
    fed = [var.shape for var in block.vars.values() if var.is_data and var.shape and set(var.shape) != {1}]
    if not fed or any(-1 in shape for shape in fed):
        return None
    sizes = Counter(shape[0] for shape in fed)
    size = max(fed, key=lambda shape: (sizes[shape[0]], prod(shape)))[0]
    return size if size > 1 else None


class Samples:
    """Values of the forward pass: rows, each of one sample, and values that depend on several samples."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.learned = learned_names(block)
        self.ops = [op for op in block.ops if not op.role & (Role.BACKWARD | Role.OPTIMIZE)]
        made = Counter(name for op in self.ops for name in op.output_arg_names)
        # A value that is overwritten is no longer there where the gradient is computed.
        self.makers = {name: op for op in self.ops for name in op.output_arg_names if made[name] == 1}
        self._firsts = {name: op for op in reversed(self.ops) for name in op.output_arg_names}
        self.batch = fixed_batch(block)
        self.rows = {
            name: next(iter(open_axes(var)), 0)
            for name, var in block.vars.items()
            if var.is_data and set(var.shape or ()) != {1} and self.batch in (None, *(var.shape or ())[:1])
        }
        """Names of values with something for each sample, and along which dimension; one number is no sample."""
        self.of_several: set[str] = set()
        """Names of values that depend on several samples, and can be computed of those of all ranks."""
        self._lost: set[str] = set()
        """Names of other values that depend on several samples."""
        self._sizes: dict[str, int] = {}
        """Names of shapes, and which of their elements is the number of samples."""
        for op in block.ops:
            if not op.role & (Role.BACKWARD | Role.OPTIMIZE):
                self._follow(op)
            elif op.role & Role.BACKWARD and self._reads_rows(op):  # a loss may read gradients
                self.rows.update(
                    (name, self._axis(op, name)) for name in op.output_arg_names if self.has_rows(block, name)
                )
        self._by_totals: set[str] = set()
        """Names of values that flow through an operator that reads a value of several samples, or come from one."""
        self._find_by_totals()
        self._readers: dict[tuple[str, str], list[Operator]] = {}
        """Gradient operators, by type and what of the forward pass they read."""
        for op in block.ops:
            for slot, names in op.inputs.items() if op.type.endswith("_grad") else ():
                for name in () if slot.endswith(GRAD_SUFFIX) else names:
                    self._readers.setdefault((op.type, name), []).append(op)

    def _follow(self, op: Operator) -> None:
        given, outs = set(op.input_arg_names), op.output_arg_names
        known = self.rows.keys() | self.of_several | self._lost | self._sizes.keys()
        if given.isdisjoint(known) or op.type in _OF_SEQUENCES:
            return
        if op.type == "shape" or (op.type == "cast" and not given.isdisjoint(self._sizes)):
            axes = self.rows if op.type == "shape" else self._sizes
            self._sizes.update(dict.fromkeys(outs, next((axes[name] for name in given if name in axes), 0)))
            return
        reduces = self.reduces(op)
        if not reduces and self._reads_rows(op):
            self.rows.update((name, self._axis(op, name)) for name in outs)
        is_lost = not self._lost.isdisjoint(given)
        if not (is_lost or reduces) and given.isdisjoint(self.of_several):
            return
        if not is_lost and _can_repeat(op) and (not reduces or self._can_exchange(op)):
            self.of_several.update(name for name in outs if name in self.makers)
        self._lost.update(name for name in outs if name not in self.of_several)

    def reduces(self, op: Operator) -> bool:
        """Whether an operator makes something of several samples that has no rows."""
        sizes = [self._sizes[name] for name in op.input_arg_names if name in self._sizes]
        if sizes:
            return not (op.type == "slice" and op.attr("starts")[0] != sizes[0])
        rows = [name for name in op.input_arg_names if name in self.rows]
        if not rows:
            return False
        if op.type.startswith("reduce_"):
            return op.attr("reduce_all") or self.rows[rows[0]] in _axes(op)
        if op.type in _WHOLE or ("reduction" in op.attrs and op.attr("reduction") != "none"):
            return True
        if self.batch is not None:
            return not op.type.startswith(_KEEPS_ALL) and not self._keeps_size(op, rows)
        return any(self.has_rows(self.block, name) for name in rows) and not any(
            self.has_rows(self.block, name) for name in op.output_arg_names
        )

    def _keeps_size(self, op: Operator, rows: Sequence[str]) -> bool:
        """Whether a result has a dimension as large as that along which the samples of an input lie."""
        sizes = {size for name in rows for size in _shape(self.block, name)[self.rows[name] :][:1]}
        return any(not sizes.isdisjoint(_shape(self.block, name)) for name in op.output_arg_names)

    def has_rows(self, block: Block, name: str) -> bool:
        """Whether the size of a value is that of the batch, or may be: a dimension is unknown, or as large."""
        if self.batch is None:
            return bool(open_axes(block.find_var(name)))
        return name in self.rows or self.batch in _shape(block, name)

    def knows(self, name: str) -> bool:
        """Whether a value depends on samples."""
        return name in self.rows or name in self.of_several or name in self._lost

    def _reads_rows(self, op: Operator) -> bool:
        return any(name in self.rows for name in op.input_arg_names)

    def _axis(self, op: Operator, out: str) -> int:
        """The dimension of a result along which samples lie, of an operator that reads rows."""
        name = next(name for name in op.input_arg_names if name in self.rows)
        axis = self.rows[name]
        if op.type in ("transpose", "transpose2"):
            return list(op.attr("axis")).index(axis)
        before, after = open_axes(self.block.find_var(name)), open_axes(self.block.find_var(out))
        if self.batch is not None:
            shape = _shape(self.block, out)
            after = [each for each, size in enumerate(shape) if size and size % self.batch == 0]
        elif axis in before and len(before) == len(after):
            return after[before.index(axis)]
        return axis if axis in after or not after else after[0]

    def decider(self, op: Operator) -> Operator | None:
        """The operator by which several samples decide whether a block runs or what it computes, or None."""
        names = [name for slot in ("Cond", "Condition") for name in op.inputs.get(slot, ())]
        found = next((self._firsts[name] for name in names if name in self.of_several | self._lost), None)
        while found is not None and found.type == "logical_not":  # of the other branch
            found = self._firsts[found.input("X")[0]]
        return found or next((each for each in ops_inside(op) if _reduces_rows(each, self.batch or -1)), None)

    def _can_exchange(self, op: Operator) -> bool:
        """Whether the result of an operator on all samples can be had of those of the ranks."""
        is_sum = op.type in _SUMS or op.attrs.get("reduction") == "sum"
        return is_sum or op.type in _EXTREMES or _is_mean(op)

    def _find_by_totals(self) -> None:
        found = self._by_totals
        for op in self.ops:
            if self.is_by_totals(op) or not found.isdisjoint(op.input_arg_names):
                found.update(self.learned.intersection(op.output_arg_names))
        for op in reversed(self.ops):
            if self.is_by_totals(op) or not found.isdisjoint(op.output_arg_names):
                found.update(self.learned.intersection(op.input_arg_names))

    def averages(self, op: Operator) -> bool:
        """Whether an operator takes the mean over samples."""
        return _is_mean(op) and self._reads_rows(op) and self.reduces(op)

    def adds_up(self, op: Operator, scales_loss: bool) -> bool:
        """Whether gradients flow through a sum over samples, or an extreme, that is to count once for each rank."""
        if self.learned.isdisjoint(op.output_arg_names) or self.averages(op) or not self.reduces(op):
            return False
        if self.of_several.isdisjoint(op.output_arg_names):
            return False
        return scales_loss or not self._by_totals.isdisjoint(op.output_arg_names)

    def is_spread(self, op: Operator, name: str) -> bool:
        """Whether `op` combines a learned value of several samples with rows, of which each rank has some."""
        if name not in self.of_several or name not in self.learned or name in self.rows:
            return False
        return self._reads_rows(op) and any(name in self.rows for name in op.output_arg_names)

    def is_by_totals(self, op: Operator) -> bool:
        """Whether an operator combines what is learned with what several samples decide."""
        if self.learned.isdisjoint(op.input_arg_names) or op.type in _ADDING or SUB_BLOCK in op.attrs:
            return False
        if op.type == "elementwise_div" and op.input("Y")[0] in self.of_several:
            return True
        return not self.of_several.isdisjoint(set(op.input_arg_names) - self.learned)

    def gradients_of(self, op: Operator) -> list[Operator]:
        """The operators that compute the gradient of `op`, one for each backward pass through it."""
        incoming = tuple([name + GRAD_SUFFIX for name in op.output_arg_names])
        names = dict.fromkeys((*op.input_arg_names, *op.output_arg_names))
        found = dict.fromkeys(each for name in names for each in self._readers.get((f"{op.type}_grad", name), ()))
        return [each for each in found if any(_plain(name).startswith(incoming) for name in _incoming(each))]


def _incoming(grad: Operator) -> Iterator[str]:
    """The gradients that a gradient operator reads."""
    for slot, names in grad.inputs.items():
        if slot.endswith(GRAD_SUFFIX):
            yield from names


def _can_repeat(op: Operator) -> bool:
    return not (SUB_BLOCK in op.attrs or is_random(op.type) or op.definition.has_effect)


_DONE = re.compile(r"\.(weighted|of_ranks|total)(_\d+)?$")
"""Endings of names that gradient operators read after the pass."""


@dataclass(frozen=True)
class _Totals:
    """Values over the samples of all ranks, made in front of the gradient of one operator."""

    samples: Samples
    op: Operator
    grad: Operator
    ranks: int
    places: Mapping[Operator, int]
    """Places of the operators in the block as it was."""
    made: dict[str, list[tuple[int, str]]]
    """Values over all ranks by the names of those of one rank, with the places from which on they are there."""

    @property
    def block(self) -> Block:
        return self.op.block

    @property
    def is_done(self) -> bool:
        return any(map(_DONE.search, self.grad.input_arg_names))

    def apply(self, scales_loss: bool) -> bool:
        """Let the gradient be that of all samples."""
        changed = self._read_totals()
        changed = self._add_rows() or changed
        incoming, name = next(_incoming(self.grad)), self.op.output_arg_names[0]
        if self.samples.averages(self.op):
            size = self._size(self.op)
            total = self._sum(size, f"{name}.sizes")
            share = self._add("elementwise_div", {"X": size, "Y": total}, f"{name}.share")
            factor = self._add("scale", {"X": share}, f"{name}.factor", scale=float(self.ranks))
            self._redirect(self._add("elementwise_mul", {"X": incoming, "Y": factor}, f"{name}.weighted"))
            return True
        if self.samples.adds_up(self.op, scales_loss):
            self._redirect(self._add("scale", {"X": incoming}, f"{name}.of_ranks", scale=float(self.ranks)))
            return True
        return changed

    def _redirect(self, name: str) -> None:
        """Let the gradient operator read another gradient."""
        slot = next(slot for slot, names in self.grad.inputs.items() if slot.endswith(GRAD_SUFFIX) and names)
        self.grad.set_input(slot, [name])

    def _read_totals(self) -> bool:
        """Let the gradient read values of all samples in place of those of this rank's."""
        changed = False
        for slot, names in list(self.grad.inputs.items()) if self.op.type not in _ADDING else ():
            if slot.endswith(GRAD_SUFFIX) or not self._needs(slot):
                continue
            totals = [self._total(name) for name in names]
            if totals != list(names):
                self.grad.set_input(slot, totals)
                changed = True
        return changed

    def _add_rows(self) -> bool:
        """Let the gradient of a value of several samples that is combined with rows be that of all ranks' rows."""
        after, added = self.grad._next, []
        for slot, names in self.op.inputs.items():
            given = self.grad.outputs.get(slot + GRAD_SUFFIX, ())
            partial = [self.samples.is_spread(self.op, name) for name in names]
            if len(given) != len(names) or not any(partial):
                continue
            made = [self._new(f"{name}.of_rows") if is_partial else grad
                    for name, grad, is_partial in zip(names, given, partial, strict=True)]  # fmt: skip
            self.grad.set_output(slot + GRAD_SUFFIX, made)
            added += [pair for pair in zip(made, given, strict=True) if pair[0] != pair[1]]
        for part, grad in added:
            self.block.var(part).tensor_type = self.block.var(grad).tensor_type
            with self.block.inserting_before(after, role=self.grad.role):
                self.block.append_op("c_allreduce_sum", {"X": part}, {"Out": part}, {"use_calc_stream": True})
                self.block.append_op("scale", {"X": part}, {"Out": grad}, {"scale": 1.0 / self.ranks})
        return bool(added)

    def _needs(self, slot: str) -> bool:
        """Whether the gradients that are wanted depend on the values of a slot."""
        is_product = self.op.type == "elementwise_mul" or (self.op.type == "elementwise_div" and slot != "Y")
        if not is_product:
            return True
        others = self.grad.outputs.get(("X" if slot == "Y" else "Y") + GRAD_SUFFIX, ())
        return any(name != EMPTY for name in others)

    def _total(self, name: str) -> str:
        """A value as it is over the samples of all ranks."""
        if name not in self.samples.of_several:
            return name
        place = self.places[self.grad]
        known = [made for start, made in self.made.get(name, ()) if start <= place]
        if known:
            return known[-1]
        maker = self.samples.makers[name]
        if not self.samples.reduces(maker):
            made = self._repeat(maker, "total")
            for each, total in made.items():
                self._keep(each, total)
            return made[name]
        of_rank = name
        if not self.samples.of_several.isdisjoint(maker.input_arg_names):  # a sum of what totals make of rows
            of_rank = self._repeat(maker, "of_rank")[name]
        if _is_mean(maker):
            return self._keep(name, self._mean(maker, of_rank))
        # On the stream of the computation, which needs the result at once.
        type = _EXTREMES.get(maker.type, "c_allreduce_sum")
        return self._keep(name, self._add(type, {"X": of_rank}, f"{name}.total", use_calc_stream=True))

    def _keep(self, name: str, made: str) -> str:
        self.made.setdefault(name, []).append((self.places[self.grad], made))
        return made

    def _repeat(self, maker: Operator, ending: str) -> dict[str, str]:
        """Compute of totals what the program computes of the values of one rank; return the new names by the old."""
        inputs = {slot: [self._total(name) for name in names] for slot, names in maker.inputs.items()}
        made = {name: self._new(f"{name}.{ending}") for name in maker.output_arg_names if name != EMPTY}
        outputs = {slot: [made.get(name, EMPTY) for name in names] for slot, names in maker.outputs.items()}
        self._insert(maker.type, inputs, outputs, dict(maker.attrs))
        return made

    def _mean(self, maker: Operator, of_rank: str) -> str:
        """The mean over the samples of all ranks, of that over those of this rank."""
        name = maker.output_arg_names[0]
        size = self._size(maker)
        weighted = self._add("elementwise_mul", {"X": of_rank, "Y": size}, f"{name}.weighted")
        sums = {"X": self._sum(weighted, f"{name}.sum"), "Y": self._sum(size, f"{name}.sizes")}
        return self._add("elementwise_div", sums, f"{name}.total")

    def _sum(self, name: str, out: str) -> str:
        return self._add("c_allreduce_sum", {"X": name}, out, use_calc_stream=True)

    def _size(self, op: Operator) -> str:
        """The number of elements of which `op` takes the mean, in the type of its result."""
        if op.type == "nll_loss":
            return op.output("Total_weight")[0]
        name = op.output_arg_names[0]
        size = self._add("size", {"Input": op.input("X")[0]}, f"{name}.count.int")
        in_dtype, out_dtype = (int(self.block.var(each).dtype) for each in (size, name))
        return self._add("cast", {"X": size}, f"{name}.count", in_dtype=in_dtype, out_dtype=out_dtype)

    def _add(self, type: str, inputs: dict[str, str], out: str, **attrs: Any) -> str:
        out = self._new(out)
        self._insert(type, inputs, {"Out": [out]}, attrs)
        return out

    def _new(self, name: str) -> str:
        """A name for a new variable; a later backward pass gets other ones."""
        tries = chain([name], (f"{name}_{number}" for number in count(1)))
        found = next(each for each in tries if not self.block.has_var(each))
        self.block.create_var(name=found, stop_gradient=True)
        return found

    def _insert(self, type: str, inputs: dict[str, Any], outputs: dict[str, list[str]], attrs: dict[str, Any]) -> None:
        insert_for(self.grad, type, inputs, outputs, attrs).role_vars = ()


_SUMS = frozenset({"reduce_sum", "size", "squared_l2_norm", "l1_norm", "slice"})
"""Operators whose result on all samples is the sum of those of ranks, if they reduce; a slice is that of a shape."""
_EXTREMES = {"reduce_max": "c_allreduce_max", "reduce_min": "c_allreduce_min"}
_KEEPS_ALL = ("reshape", "flatten", "squeeze", "unsqueeze", "concat", "split", "stack", "expand", "pad")
"""Beginnings of the types of operators that keep all elements, whatever sizes they give dimensions."""
_WHOLE = frozenset({"mean", "size", "squared_l2_norm", "l1_norm"})
"""Operators that reduce all elements."""
_ADDING = frozenset({
    "assign", "cast", "concat", "elementwise_add", "elementwise_sub", "expand", "reduce_mean", "reduce_sum", "mean",
    "reshape2", "scale", "sum", "stack", "squeeze2", "unsqueeze2",
})  # fmt: skip
"""Operators whose gradients do not depend on the values that they read."""


_OF_SEQUENCES = frozenset({"lod_rank_table", "max_sequence_len"})
"""Operators whose results tell sequences apart, which loops over their steps read."""


def _reduces_rows(op: Operator, batch: int) -> bool:
    """Whether an operator of a block reduces the first dimension, which has the size of the batch, -1 if unknown."""
    var = op.block.find_var(op.inputs["X"][0]) if op.inputs.get("X") else None
    is_open = var is not None and (var.shape or (0,))[0] == batch
    if not is_open or not op.type.startswith("reduce_"):
        return is_open and _is_mean(op)
    return bool(op.attr("reduce_all")) or 0 in _axes(op)


def _axes(op: Operator) -> set[int]:
    """The dimensions that an operator reduces."""
    var = op.block.find_var(op.input("X")[0])
    rank = len(var.shape or ()) if var is not None else 0
    return {axis % rank if rank else axis for axis in op.attr("dim")}


def _shape(block: Block, name: str) -> tuple[int, ...]:
    var = block.find_var(name)
    return tuple(var.shape or ()) if var is not None else ()


def _is_mean(op: Operator) -> bool:
    if op.type in ("kldiv_loss", "nll_loss"):
        return op.attr("reduction") in ("mean", "batchmean")
    return op.type in ("mean", "reduce_mean")


def _is_number(op: Operator, slot: str) -> bool:
    return _is_one(op.block, op.input(slot)[0])


def _is_one(block: Block, name: str) -> bool:
    """Whether a value is one number."""
    var = block.find_var(name)
    return var is not None and var.shape is not None and -1 not in var.shape and prod(var.shape) == 1


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
