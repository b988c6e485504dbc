"""Save memory: compute forward results again for the backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from minigraph.errors import NotFoundError, ProgramError, suggest
from minigraph.ir import Block, Operator, Program, Role, Variable
from minigraph.ir.variable import name_of
from minigraph.opdef import GRAD_SUFFIX
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import is_random, redirect
from minigraph.unique_name import generate

Segment = tuple[int, int]
"""Positions of the first forward operator of a segment and of the one after its last."""


@dataclass(frozen=True)
class Recompute(Pass):
    """Repeat the operators between checkpoints in front of their gradients, which then read the copies.

    The first results need not be kept until then. The operators between one checkpoint and the next are a segment, and
    so are those before the first; results that other segments read are kept. Operators that draw random numbers or read
    names that are written again, branches and loops are not repeated. A dropout is, from a seed that is drawn before.
    Statistics that a forward operator updates are updated once.

    Law: every value keeps its bits, but for the masks of dropouts, which come from other random numbers.

    Parameters
    ----------
    checkpoints : tuple of str
        Variables of the forward pass.

    Raises
    ------
    NotFoundError
        If there is no variable of one of these names.
    ProgramError
        If the program has no backward pass.

    References
    ----------
    T. Chen, B. Xu, C. Zhang and C. Guestrin, Training deep nets with sublinear memory cost, arXiv:1604.06174, 2016.
    """

    checkpoints: tuple[str, ...]

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        for name in self.checkpoints:
            if not block.has_var(name):
                raise NotFoundError(f"there is no checkpoint {name!r}", hint=suggest(name, block.vars))
        if any(op.role & Role.RECOMPUTE for op in block.ops):  # applied before
            return False
        forward = _with_seeds(block, _forward_of_loss(block))
        plan = _Plan(block, forward, self.checkpoints)
        # The last segment comes first, because its gradients do; fluid counts in the same order.
        suffixes = [f".subprog_{i}" for i in range(len(plan.segments))]
        for segment, suffix in zip(reversed(plan.segments), suffixes, strict=True):
            plan.repeat(segment, suffix)
        return bool(plan.segments)


def recompute(program: Program, checkpoints: Iterable[Variable | str]) -> None:
    """Apply `Recompute` with these variables, or names of variables."""
    Recompute(tuple(name_of(each) for each in checkpoints)).apply(program)


def _forward_of_loss(block: Block) -> list[Operator]:
    """Return the operators that the loss depends on, in order."""
    before = []
    for op in block.ops:
        if op.role & Role.BACKWARD:
            break
        before.append(op)
    else:
        raise ProgramError("there is no backward pass to recompute for", hint="Call append_backward first.")
    needed: set[str] = set()
    path = []
    for op in reversed(before):
        if op.role & Role.LOSS or any(name in needed for name in op.output_arg_names):
            needed.update(op.input_arg_names)
            path.append(op)
    return path[::-1]


def _with_seeds(block: Block, forward: Sequence[Operator]) -> list[Operator]:
    """Insert an operator that draws a seed before each dropout, so that it can be repeated."""
    result = []
    for op in forward:
        if op.type == "dropout" and not op.input("Seed"):
            with block.inserting_before(op, role=op.role):
                seed = block.create_var(name=f"{generate('seed')}.tmp_0", dtype="int32", shape=[1])
                # 0 draws another seed in each run; both copies of the dropout then read the same one.
                attrs = {"seed": op.attr("seed") if op.attr("fix_seed") else 0}
                result.append(block.append_op("seed", {}, {"Out": seed}, attrs))
            op.set_input("Seed", [seed])
            op.set_attr("fix_seed", False)
            op.set_attr("seed", 0)
        result.append(op)
    return result


class _Plan:
    """Segments of forward operators to repeat, and variables to keep."""

    def __init__(self, block: Block, forward: Sequence[Operator], checkpoints: Sequence[str]) -> None:
        self.block, self.forward = block, forward
        self.readers: dict[str, list[int]] = {}
        self.writers: dict[str, list[int]] = {}
        for i, op in enumerate(forward):
            for name in op.input_arg_names:
                self.readers.setdefault(name, []).append(i)
            for name in op.output_arg_names:
                self.writers.setdefault(name, []).append(i)
        self.backward_readers: dict[str, list[tuple[int, Operator]]] = {}
        """Operators of the backward pass by the names that they read, each with its position."""
        for i, op in enumerate(block.ops):
            if op.role & Role.BACKWARD:
                for name in op.input_arg_names:
                    self.backward_readers.setdefault(name, []).append((i, op))
        # Checkpoints beside the way to the loss divide nothing.
        known = sorted(
            {name for name in checkpoints if name in self.readers or name in self.writers}, key=self._last_write
        )
        self.segments = self._segments(known)
        self.kept = {*known, *self._kept()}
        self.copies: dict[str, str] = {}

    def _last_write(self, name: str) -> int:
        return max(self.writers.get(name, [-1]))

    def _segments(self, checkpoints: Sequence[str]) -> list[Segment]:
        if len(checkpoints) == 1:
            end = self._last_write(checkpoints[0]) + 1
            return [(0, end)] if end > 1 else []
        found = []
        for here, there in pairwise(checkpoints):
            # A segment is what lies between the first reader of a checkpoint and the last writer of the next one.
            begin, last = min(self.readers.get(here, [len(self.forward)])), self._last_write(there)
            if begin < last:
                found.append((begin, last + 1))
        return [(0, found[0][0]), *found] if found and found[0][0] > 0 else found

    def _kept(self) -> Iterator[str]:
        """Yield names that are fed, that other segments read, or that cannot be computed again."""
        yield from (name for name in self.readers if name not in self.writers)
        for begin, end in self.segments:
            for op in self.forward[begin:end]:
                yield from (n for n in op.output_arg_names if max(self.readers.get(n, [-1])) >= end)
                yield from (n for n in op.input_arg_names if min(self.writers.get(n, [begin])) < begin)
                if not self._is_repeatable(op):
                    yield from op.output_arg_names

    def _is_repeatable(self, op: Operator) -> bool:
        # Repeated, it would draw other numbers; a dropout reads its seed, which is kept.
        if op.type == "seed" or (is_random(op.type) and op.type != "dropout") or op.definition.has_hidden_names:
            return False
        in_place = set(op.input_arg_names) & set(op.output_arg_names)
        # A batch norm updates its statistics in place, but its result does not depend on them in training.
        return op.type == "batch_norm" or (
            not in_place and all(len(self.writers.get(name, ())) <= 1 for name in op.input_arg_names)
        )

    def repeat(self, segment: Segment, suffix: str) -> None:
        """Insert copies of the segment's operators before its gradients, which then read the copies."""
        begin, end = segment
        ops = self.forward[begin:end]
        anchor = self._first_gradient(ops)
        copies = {
            name: name + suffix
            for op in ops
            for name in (*op.input_arg_names, *op.output_arg_names)
            if name not in self.kept and name in self.writers and not self.block.var(name).persistable
        }
        if anchor is None or not copies:  # no gradient flows through the segment, or all its results are kept
            return
        self.copies |= copies
        with self.block.inserting_before(anchor, role=Role.BACKWARD | Role.RECOMPUTE):
            for op in ops:
                if any(name in copies for name in op.output_arg_names):
                    self._copy(op, suffix)
        readers = {op: None for name in copies for _, op in self.backward_readers.get(name, ())}
        for op in readers:
            redirect(op, copies)

    def _copy(self, op: Operator, suffix: str) -> None:
        inputs = {slot: [self.copies.get(n, n) for n in names] for slot, names in op.inputs.items()}
        outputs = {slot: [self._output(n, suffix) for n in names] for slot, names in op.outputs.items()}
        self.block.append_op(op.type, inputs, outputs, {**op.attrs, "op_namescope": op.namescope}).site = op.site

    def _output(self, name: str, suffix: str) -> str:
        """Return the name that a copy writes instead of `name`, so that it updates no persistable variable."""
        original = self.block.find_var(name)
        if original is None or not (name in self.copies or original.persistable):
            return name
        copy = self.copies.get(name, name + suffix)
        if not self.block.has_var(copy):
            self.block.create_var(
                name=copy, shape=original.shape, dtype=original.dtype, stop_gradient=original.stop_gradient
            )
        return copy

    def _first_gradient(self, ops: Sequence[Operator]) -> Operator | None:
        """Return the first operator that reads the gradient of a result of the segment."""
        made = [name + GRAD_SUFFIX for op in ops for name in op.output_arg_names]
        found = (each for name in made for each in self.backward_readers.get(name, ()) if each[1].type != "sum")
        return min(found, key=lambda each: each[0], default=(0, None))[1]
