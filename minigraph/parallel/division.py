"""Refuse programs whose gradients are not means over ranks: each must be divided by their number, once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from minigraph.ir import Operator, Program, Role
from minigraph.ir.dataflow import is_persistable
from minigraph.opdef import EMPTY, is_update
from minigraph.parallel.wrong import every_op, wrong
from minigraph.passes.ranks.shard_statistics import state_between_runs

_LAW = "a gradient is the mean over the ranks"
_OF_LOSS, _INSIDE, _OF_PARAMETER, _MERGED = range(4)
"""Stages of a path: the gradient of a loss, that of a value in between, that of a parameter, a sum over steps."""


class _Path(NamedTuple):
    """A way from the gradient of a loss to a value."""

    start: Operator
    stage: int = _OF_LOSS
    divisor: float = 1.0
    """Product of the numbers by which `divisions` divide."""
    divisions: tuple[Operator, ...] = ()

    def divided(self, op: Operator, divisor: float) -> _Path:
        return self._replace(divisor=self.divisor * divisor, divisions=(*self.divisions, op))


def check_division(program: Program, ranks: int | None) -> None:
    """Raise unless every gradient that updates a parameter is divided by the number of ranks, once.

    The division may be that of the loss, of its gradient, or of the gradient of each parameter, before or after the
    sum. A division of what is added up over steps is another one.

    Parameters
    ----------
    program : Program
    ranks : int, optional
        Number of ranks. Default: the number by which a gradient is divided first.

    Raises
    ------
    VerifyError
    """
    walk = _Walk(_shards_of_a_rank(program), ranks)
    for op in every_op(program.global_block()):
        walk.visit(op)


def _shards_of_a_rank(program: Program) -> int:
    """Number of shards that `ShardBatch` has divided a rank's samples into."""
    names = program.global_block().vars if program.is_exact else ()
    return max(1, len({found[1] for name in names if (found := re.search(r"\.shard_(\d+)$", name))}))


def describe_divided_loss(program: Program, ranks: int) -> str | None:
    """Say that a loss is divided by the number of ranks already; None if it is not.

    The gradient of a loss is divided whatever the loss is, as by the original's transpiler.
    """
    constants: dict[str, float] = {}
    for op in program.global_block().ops:
        if op.type == "fill_constant":
            constants[op.output("Out")[0]] = float(op.attr("value"))
        divisor = _divisor(op, constants) if op.role & Role.LOSS and not op.role & Role.BACKWARD else None
        if divisor is not None and math.isclose(divisor, ranks, rel_tol=1e-5):
            return (
                f"{op.type} divides the loss {op.output_arg_names[0]} by {ranks}, the number of ranks, by which its "
                "gradient is divided once more: leave it out if it is meant to average over the ranks, or say "
                f"DataParallel(..., scales_loss=False) without exact (created at {op.site})"
            )
    return None


def check_averages(program: Program, ranks: int | None) -> None:
    """Raise unless every parameter, or change of one, that is summed over the ranks is divided by their number.

    Parameters and errors are those of `check_division`.
    """
    summed: dict[str, Operator] = {}
    for op in every_op(program.global_block()):
        for name in () if op.type.startswith("c_") else [name for name in summed if name in op.input_arg_names]:
            before = summed.pop(name)
            divisor = _divisor(op, {}) or 1.0
            if divisor > 1 and _is_whole(divisor) and (ranks is None or math.isclose(divisor, ranks, rel_tol=1e-5)):
                continue
            raise wrong(
                op, f"reads {name}, which is not divided by the number of ranks", "a sum of parameters is no mean",
                "Put scale by 1 / ranks in front of it.", [f"before: {before}"], _LAW,
            )  # fmt: skip
        if op.type == "c_allreduce_sum" and is_persistable(op.block.find_var(op.output("Out")[0])):
            summed[op.output("Out")[0]] = op
    for name, op in summed.items():
        raise wrong(
            op, f"leaves {name} as a sum over the ranks", "a sum of parameters is no mean",
            "Put scale by 1 / ranks after it.", law=_LAW,
        )  # fmt: skip


def check_kept_sums(program: Program) -> None:
    """Raise if state that outlives a run is left as a sum over the ranks in which its old value is.

    Raises
    ------
    VerifyError
    """
    block = program.global_block()
    state = state_between_runs(block)
    last = {name: op for op in block.ops for name in op.output_arg_names if name in state}
    for name, op in last.items():
        if op.type == "c_allreduce_sum" and _reads_old(op, name):
            raise wrong(
                op, f"leaves {name} as a sum over the ranks", "its old value is in it once for each rank, in each run",
                "Put scale by 1 / ranks after it for a mean; for a count sum only what a run adds to it.", law=_LAW,
            )  # fmt: skip


def _reads_old(last: Operator, state: str) -> bool:
    """Whether an operator reads what is made of the value that `state` has before the run."""
    names = {state}
    for op in last.block.ops:
        if op is last:
            break
        if names.isdisjoint(op.input_arg_names):
            names.difference_update(op.output_arg_names)
        else:
            names.update(op.output_arg_names)
    return not names.isdisjoint(last.input_arg_names)


class _Walk:
    """The paths to values, from operator to operator."""

    def __init__(self, shards: int, ranks: int | None) -> None:
        self.shards, self.ranks = shards, ranks
        self.paths: dict[str, tuple[_Path, ...]] = {}
        self.constants: dict[str, float] = {}

    def visit(self, op: Operator) -> None:
        if op.type == "fill_constant":
            self.constants[op.output("Out")[0]] = float(op.attr("value"))
        if op.role & Role.BACKWARD and op.role & Role.LOSS:
            self._start(op)
        elif is_update(op.definition):
            for name in op.input("Grad"):
                for path in self.paths.get(name, ()):
                    self._check(op, name, path)
        else:
            found = dict(self._found(op))
            if not op.role & (Role.BACKWARD | Role.OPTIMIZE):  # a loss may read gradients; a clip has no role by hand
                found = {name: paths for name, paths in found.items() if paths[0].stage >= _OF_PARAMETER}
            for name in op.output_arg_names:
                self.paths.pop(name, None)
            self.paths.update(found)
        for name in op.role_vars[1::2] if op.role & Role.BACKWARD else ():
            if name in self.paths:
                paths = self.paths[name]
                self.paths[name] = tuple([path._replace(stage=max(path.stage, _OF_PARAMETER)) for path in paths])

    def _start(self, op: Operator) -> None:
        """Begin a path at the gradient of a loss, which may begin as one over the number of ranks."""
        value = float(op.attr("value")) if op.type == "fill_constant" else 1.0
        path = _Path(op)
        if 0 < value < 1 and _is_whole(1 / value):
            path = path.divided(op, 1 / value)
        self.paths.update(dict.fromkeys(op.output_arg_names, (path,)))

    def _found(self, op: Operator) -> Iterator[tuple[str, tuple[_Path, ...]]]:
        """The paths to the results of an operator."""
        divisor = _divisor(op, self.constants)
        xs = op.inputs.get("X", ())
        for slot, names in op.outputs.items():
            for at, name in enumerate(names):
                sources: Iterable[str] = op.input_arg_names
                if op.type in ("elementwise_mul", "elementwise_div"):  # Y may be the factor of a clip
                    sources = xs
                elif slot == "Out" and len(names) == len(xs):
                    sources = [xs[at]]
                paths = [path for source in sources for path in self.paths.get(source, ())]
                if paths and name != EMPTY:
                    yield name, tuple(dict.fromkeys([self._along(op, path, name, divisor) for path in paths]))

    def _along(self, op: Operator, path: _Path, out: str, divisor: float | None) -> _Path:
        """A path after an operator."""
        if out in op.input_arg_names and is_persistable(op.block.find_var(out)):
            return path._replace(stage=_MERGED)
        if divisor is not None and self._is_by_ranks(op, path, divisor):
            path = path.divided(op, divisor)
        if path.stage == _OF_LOSS and divisor is None:
            path = path._replace(stage=_INSIDE)
        return path

    def _is_by_ranks(self, op: Operator, path: _Path, divisor: float) -> bool:
        """Whether a division is one by the number of ranks, or of shards."""
        if path.stage == _OF_LOSS:
            # Transpilers divide in place; another one is the gradient of a division that the user made.
            return op.inputs["X"] == op.outputs["Out"] or (not path.divisions and self._may_be_ranks(divisor))
        if path.divisions and not op.role & (Role.BACKWARD | Role.OPTIMIZE):
            return False  # the user's own factor, written out behind the backward pass
        ranks = path.divisor / self.shards
        is_same = math.isclose(divisor, ranks, rel_tol=1e-5) if path.divisions else self._may_be_ranks(divisor)
        return path.stage == _OF_PARAMETER and is_same

    def _may_be_ranks(self, divisor: float) -> bool:
        if self.ranks is not None:
            return math.isclose(divisor, self.ranks, rel_tol=1e-5)
        return divisor > 1 and _is_whole(divisor)

    def _check(self, update: Operator, grad: str, path: _Path) -> None:
        """Raise unless a path has one division by the number of ranks, besides that by the number of shards."""
        loss, divisor = path.start.output_arg_names[0], path.divisor / self.shards
        if len(path.divisions) > 1 + (self.shards > 1):
            first, last = path.divisions[-2:]
            raise wrong(
                last, f"divides {last.input_arg_names[0]} by the number of ranks, as {first.type} has done already",
                "the mean over the ranks is divided once more", "Leave one of the two out.", [f"before: {first}"], _LAW,
            )  # fmt: skip
        if not path.divisions or math.isclose(divisor, 1, rel_tol=1e-5):
            raise wrong(
                path.start, f"makes {loss}, which is not divided by the number of ranks",
                f"{grad}, a sum over them, is as many times the mean",
                "Put scale by 1 / ranks after it, as DataParallel does, or say verify(program, scales_loss=False).",
                [f"read by: {update}"], _LAW,
            )  # fmt: skip
        if self.ranks is not None and not math.isclose(divisor, self.ranks, rel_tol=1e-5):
            raise wrong(
                path.divisions[-1], f"divides {loss} by {divisor:g}, but there are {self.ranks} ranks",
                f"{grad} is not their mean", f"Divide it by {self.ranks}.", law=_LAW,
            )  # fmt: skip


def _divisor(op: Operator, constants: Mapping[str, float]) -> float | None:
    """The number by which an operator divides, or None."""
    if op.type == "scale" and op.attr("scale") and not op.attr("bias"):
        return 1 / float(op.attr("scale"))
    if op.type in ("elementwise_div", "elementwise_mul"):
        value = constants.get(op.input("Y")[0])
        return (value if op.type == "elementwise_div" else 1 / value) if value else None
    return None


def _is_whole(number: float) -> bool:
    return math.isclose(number, round(number), rel_tol=1e-5)
