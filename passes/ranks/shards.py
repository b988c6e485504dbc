"""Compute the gradients of a batch part by part, and add them up in one order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Block, Operator, Program, Role, Variable, VarKind
from minigraph.ir.effects import unchanged_names
from minigraph.opdef import EMPTY, SUB_BLOCK
from minigraph.passes.base import Pass
from minigraph.passes.ranks.shard_blocks import BlockCopies, ops_inside
from minigraph.passes.ranks.shard_draws import (
    STEP,
    append_count,
    drawing_ops,
    draws_anew,
    fix_draws_inside,
    forget_seeds,
    has_fixed_seed,
    keeps_seed,
    seed_of,
)
from minigraph.passes.ranks.shard_statistics import state_between_runs
from minigraph.passes.rewriting import completed_pairs, open_axes
from minigraph.passes.unroll.unroll_recurrent import UnrollRecurrent
from minigraph.support.communicator import tree
from minigraph.types import DType


@dataclass(frozen=True)
class ShardBatch(Pass):
    """Divide what is fed into `shards` equal parts, and repeat the forward and the backward pass for each.

    The gradient of the loss is divided by the number of shards, and the gradients of a parameter are added up by a
    binary tree over the shards. The loss becomes the mean of those of the shards. Metrics and other operators that
    neither the loss nor a gradient needs are not repeated: they read the results of all shards, joined along the first
    dimension. What can't be joined they have for each shard, and a floating-point result of one element is then the
    mean over the shards. What belongs to one shard has its number after its name: ``fc_0.tmp_1.shard_0``. Sequences are
    divided by their number on the outermost level. A recurrent network is written out step by step, if their number is
    known; of other loops, and of branches, each shard has its own, which its own samples decide.

    Random numbers follow from the seed of the program, the step, and the number of the shard among those of all ranks.
    What is drawn outside of the forward pass, such as noise for gradients, is the same for all. An operator with a seed
    of its own draws the same in every step, as it does in the given program: other numbers for each shard if it reads
    samples, and else the same for all. The startup program must hold the number of steps, as `count_steps` of
    ``minigraph.passes.ranks.shard_draws`` has it.

    A ``batch_norm`` normalizes each shard by its own statistics. Its running statistics become the mean of those that
    the shards make of them, added up by the tree; `average_statistics` takes it over the ranks.

    Law: if the loss is a mean over the samples, the updates are those of the whole batch, apart from rounding, random
    draws and statistics of the batch. The bits of a shard's gradients depend on the shard alone.

    Attributes
    ----------
    shards : int
        Number of parts, a power of two. A run must be fed a multiple of it, of samples or sequences.

    Raises
    ------
    ProgramError
        If there is no backward pass, or something in it depends on other samples: state that it updates, but for the
        statistics of a ``batch_norm``. If an operator behind the backward pass reads what each shard has a part of and
        that can't be joined, or one between two backward passes reads it, but for gradients of parameters.
    """

    shards: int

    def __post_init__(self) -> None:
        if self.shards < 1 or self.shards & (self.shards - 1):
            raise ProgramError(f"{self.name}: the number of shards must be a power of two, got {self.shards}")

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        if block.has_var(STEP) or any(".shard_" in name for name in block.vars):
            return False
        UnrollRecurrent(batch_may_be_open=True).apply(program)
        _Sharding(block, self.shards).apply()
        program.drop_unused_blocks()
        return True


class _Sharding:
    """One program that is divided."""

    def __init__(self, block: Block, shards: int) -> None:
        self.block, self.shards = block, shards
        self.fed = [name for name, var in block.vars.items() if var.is_data]
        self.axes = {next(iter(open_axes(block.var(name))), 0) for name in self.fed}
        """Dimensions of what is fed along which samples lie, such as the second one of [steps, samples, size]."""
        self.draws: set[Operator] = set()
        """Operators that draw random numbers and that may be divided."""
        self.state = state_between_runs(block)
        dependent = self._dependent()
        whole = self._of_whole_batch(dependent)
        self.metrics = [op for op in dependent if op in whole]
        """Operators of the forward pass that read the results of all shards, such as metrics."""
        self.ops = [op for op in dependent if op not in whole]
        self.last = self.ops[-1]
        self.after: Operator | None = self.ops[0]
        """Operator in front of which others are inserted."""
        mine = set(self.ops)
        self.made = {name for op in self.block.ops if op not in mine for name in op.output_arg_names}
        """Names of the results of operators that are not divided."""
        self._check()

    def apply(self) -> None:
        self._seed_draws_for_all()
        parts = {name: self._split(name) for name in self.fed if self._is_read(name)}
        maps = [{name: each[shard] for name, each in parts.items()} for shard in range(self.shards)]
        copies = [BlockCopies(self.block.program) for _ in maps]
        numbers = {op: number for number, op in enumerate(self.ops)}
        for ops in self._segments():
            self.after = ops[-1]._next
            for shard, names in enumerate(maps):
                for op in ops:
                    if SUB_BLOCK in op.attrs:
                        self._copy_with_block(op, names, shard, numbers[op], copies[shard])
                    else:
                        self._copy(op, names, shard, numbers[op])
            grads = {name: (op, param) for op in ops for param, name in completed_pairs(op)}
            for name, (op, param) in grads.items():
                self._add_up(op, name, [names[name] for names in maps], (param, name))
        self._scale_losses()
        self._join_leaves(maps, {name for op in self.ops for _, name in completed_pairs(op)})
        self._average_state(maps)
        for op in self.metrics:
            self.block.remove(op)
            self.block._link(self.after, op)
        for op in self.ops:
            self.block.remove(op)

    # What is divided

    def _segments(self) -> list[list[Operator]]:
        """The operators in order, apart where an update or clip in between needs the gradients of all shards."""
        mine, others, found = set(self.ops), set(self.metrics), list[list[Operator]]()
        grads, is_new = set[str](), True
        for op in self.block.ops:
            if op in mine:
                found += [[]] if is_new else []
                found[-1].append(op)
                grads.update(name for _, name in completed_pairs(op))
                is_new = False
            elif op not in others and not grads.isdisjoint(op.input_arg_names):
                is_new = True
        return found

    def _dependent(self) -> list[Operator]:
        """The operators of the forward and backward pass that depend on what is fed, in order.

        What is computed from the gradients of parameters, such as a clip, sees their sums. An operator in between that
        writes over what one of them has read or written, as a second loop does with its counter, is one of them.
        """
        ops = [op for op in self.block.ops if not op.role & (Role.OPTIMIZE | Role.LR_SCHED)]
        end = max((number for number, op in enumerate(ops) if completed_pairs(op)), default=0)
        self.draws = {op for op in ops[:end] if draws_anew(op)}
        found = self._followed(ops, with_overwriting=False)
        last = next((op for op in reversed(found) if op.role & Role.BACKWARD), None)
        if last is None:
            raise ProgramError(
                "ShardBatch: the program has no backward pass",
                hint="Call minimize or append_backward on its loss first.",
            )
        # Behind the backward pass nothing is divided: it reads what the shards' results are joined to.
        return self._followed(ops[: ops.index(last) + 1], with_overwriting=True)

    def _of_whole_batch(self, dependent: Sequence[Operator]) -> set[Operator]:
        """Those of the operators that neither a loss nor a gradient needs, and that can read joined results."""
        divided: set[Operator] = set()
        draws, self.draws = self.draws, set()
        of_samples = draws.intersection(self._followed(dependent, with_overwriting=False))
        roots = {op for op in dependent if op.role & (Role.BACKWARD | Role.LOSS) or SUB_BLOCK in op.attrs} | of_samples
        places = {op: place for place, op in enumerate(self.block.ops)}
        writers = defaultdict[str, list[Operator]](list)
        for op in places:
            for name in op.output_arg_names:
                writers[name].append(op)
        while roots:  # those found last, with what they need
            needed: set[str] = set()
            for op in reversed(dependent):
                if op in roots or op in divided or not needed.isdisjoint(op.output_arg_names):
                    divided.add(op)
                    needed.update(op.input_arg_names)
            made = {name: op for op in divided for name in op.output_arg_names}
            used = needed.union(made)
            others = set(dependent) - divided
            roots = set()
            for op in dependent:
                # Nothing that it reads or writes is written over until the gradients are there, but by what waits too.
                can_wait = used.isdisjoint(op.output_arg_names) and all(
                    places[writer] <= places[op] or writer in others
                    for name in (*op.input_arg_names, *op.output_arg_names)
                    for writer in writers[name]
                )
                joins = can_wait and all(
                    self._can_join(name, made[name]) for name in op.input_arg_names if name in made
                )
                if op not in divided and not joins:
                    roots.add(op)
                    made.update(dict.fromkeys(op.output_arg_names, op))
                    used.update(op.input_arg_names, op.output_arg_names)
        return set(dependent) - divided

    def _can_join(self, name: str, maker: Operator) -> bool:
        """Whether the results of shards have a value for the whole batch that does not depend on the shards."""
        var = self.block.var(name)
        if var.tensor_type is None or var.kind is not VarKind.LOD_TENSOR:
            return False
        is_open = self._axis(var) is not None
        return bool(var.lod_level) or is_open or (bool(maker.role & Role.LOSS) and _is_number(var))

    def _axis(self, var: Variable) -> int | None:
        """The dimension of a result along which samples lie."""
        return next((axis for axis in open_axes(var)[:1] if axis in self.axes), None)

    def _followed(self, ops: Sequence[Operator], with_overwriting: bool) -> list[Operator]:
        """The operators that depend on what is fed, or write over what one of them has used."""
        names, used, found = set(self.fed), set[str](), []
        for op in ops:
            is_dependent = not names.isdisjoint(op.input_arg_names) or op in self.draws
            if is_dependent or (with_overwriting and not used.isdisjoint(op.output_arg_names)):
                used.update(op.input_arg_names, op.output_arg_names)
                names.update(op.output_arg_names)
                names.difference_update([grad for _, grad in completed_pairs(op)])
                found.append(op)
        return found

    def _check(self) -> None:
        for op in self.ops:
            unchanged = unchanged_names(op)
            for name in op.output_arg_names:
                if name not in unchanged and not self._has_value(op, name):
                    raise _refused(op, f"it updates {name}, which is the same for all samples")
            for each in ops_inside(op) if SUB_BLOCK in op.attrs else ():
                if each.definition.has_effect:
                    why = f"{each.type} in its block does more than compute"
                    raise _refused(op, why, _HINTS.get(op.type, _HINT))
            if op.definition.has_effect:
                raise _refused(op, "it does more than compute")
            if op.type == "data_norm_grad" and op.attr("slot_dim") > 0:
                raise _refused(op, "it averages over the rows of a shard in which a slot was shown")
        self._check_readers()

    def _check_readers(self) -> None:
        """Raise if operators read what the shards only have parts of, or what is joined in the end, before that."""
        mine, others = set(self.ops), set(self.metrics)
        grads, made, is_behind = set[str](), dict[str, Operator](), False
        for op in self.block.ops:
            if op in mine:
                if not grads.isdisjoint(op.input_arg_names):
                    raise _refused(op, "it reads a gradient of a parameter, of which each shard has a part")
                pairs = {name for _, name in completed_pairs(op)}
                grads |= pairs
                made.update(dict.fromkeys(set(op.output_arg_names) - pairs, op))
                is_behind = is_behind or op is self.last
                continue
            for name in op.input_arg_names if op not in others else ():
                can_read = is_behind and (name not in made or self._has_whole(name, made[name]))
                if name in made and not can_read:
                    raise _refused(op, f"it reads {name}, of which each shard has a part")
            for name in op.output_arg_names:
                made.pop(name, None)

    def _has_whole(self, name: str, maker: Operator) -> bool:
        return self._can_join(name, maker) or _is_number(self.block.var(name))

    def _has_value(self, op: Operator, name: str) -> bool:
        """Whether a result is not kept, or has a value for the whole batch."""
        if name == EMPTY or not self.block.var(name).persistable:
            return True
        if name in self.state:
            return op.type == "batch_norm" or keeps_seed(op)
        return self._has_whole(name, op)

    def _is_read(self, name: str) -> bool:
        return any(name in op.input_arg_names for op in self.ops)

    # Insertions

    def _append(self, type: str, inputs: Any, outputs: Any, attrs: dict[str, Any], like: Operator) -> Operator:
        with self.block.inserting_before(self.after):
            op = self.block.append_op(type, inputs, outputs, {"op_role": like.role & ~Role.LOSS, **attrs})
        op.site = like.site
        return op

    def _new(self, name: str, like: Variable, **fields: Any) -> str:
        if not self.block.has_var(name):
            self.block.create_var(name=name, **fields, stop_gradient=like.stop_gradient)
        return name

    def _seed_draws_for_all(self) -> None:
        """Count steps if anything draws, and let what is not divided draw the same on all ranks."""
        drawing = [op for op in self.block.ops if draws_anew(op)]
        if not drawing:
            return
        with self.block.inserting_before(drawing[0], role=Role(drawing[0].role & ~Role.LOSS)):
            append_count(self.block)
        mine = set(self.ops)
        for number, op in enumerate([op for op in drawing if op not in mine]):
            attrs = {"seed": seed_of(op), "number": number, "op_role": op.role & ~Role.LOSS}
            with self.block.inserting_before(op):
                self.block.append_op("seed_draws", {"Step": STEP}, {}, attrs)
            for each in drawing_ops(op):
                if not has_fixed_seed(each):
                    forget_seeds(each)

    def _split(self, name: str) -> list[str]:
        like = self.block.var(name)
        if like.shape and set(like.shape) == {1}:  # such as a coefficient, no sample
            return [name] * self.shards
        if self.shards == 1:
            return [name]
        parts = [self._new(f"{name}.shard_{shard}", like) for shard in range(self.shards)]
        if like.lod_level:
            for shard, part in enumerate(parts):
                attrs = {"shard": shard, "shards": self.shards}
                self._append("shard_sequences", {"X": name}, {"Out": part}, attrs, self.ops[0])
            return parts
        attrs = {"num": self.shards, "axis": next(iter(open_axes(like)), 0)}
        self._append("split", {"X": name}, {"Out": parts}, attrs, self.ops[0])
        return parts

    def _copy(self, op: Operator, names: dict[str, str], shard: int, number: int) -> None:
        """The operator for one shard; `names` are those of the shard's values so far."""
        inputs: dict[str, Any] = {slot: [names.get(name, name) for name in given] for slot, given in op.inputs.items()}
        is_drawing = bool(drawing_ops(op)) and self.state.issuperset(
            op.inputs.get("Seed", ()) if keeps_seed(op) else ()
        )
        if is_drawing and "Seed" in op.definition.input_slots:
            inputs["Seed"] = self._seed(op, names, shard, number)
        elif is_drawing:
            self._append("seed_draws", _step(op, names), {}, self._key(op, shard, number), op)
        unchanged = unchanged_names(op)  # such as statistics that are only used
        outputs = {
            slot: [names.get(name, name) if name in unchanged else self._of_shard(name, names, shard) for name in given]
            for slot, given in op.outputs.items()
        }
        copy = self._append(op.type, inputs, outputs, {**op.attrs, "op_namescope": op.namescope}, op)
        if is_drawing:
            forget_seeds(copy)

    def _copy_with_block(
        self, op: Operator, names: dict[str, str], shard: int, number: int, copies: BlockCopies
    ) -> None:
        """An operator that runs a block, with a copy of the block, for one shard."""
        if draws_anew(op):
            self._append("seed_draws", {"Step": STEP}, {}, self._key(op, shard, number), op)
        read = set(op.input_arg_names)
        for name in op.output_arg_names:
            if name in read and name not in names and self._is_made_for_all(name):
                # Such as a counter, which starts anew for each shard.
                self._append("assign", {"X": name}, {"Out": self._of_shard(name, names, shard)}, {}, op)
            else:
                self._of_shard(name, names, shard)
        twin = copies.copy(op, names, self.after)
        twin.role = Role(twin.role & ~Role.LOSS)
        fix_draws_inside(twin, shard, self.shards)
        for name in op.output_arg_names:
            if name != EMPTY:
                self.block.var(names.get(name, name)).tensor_type = self.block.var(name).tensor_type

    def _is_made_for_all(self, name: str) -> bool:
        """Whether an operator that does not depend on what is fed makes a variable of the forward or backward pass."""
        return name in self.made and not self.block.var(name).persistable

    def _of_shard(self, name: str, names: dict[str, str], shard: int) -> str:
        if name == EMPTY:
            return name
        names[name] = self._new(f"{name}.shard_{shard}", self.block.var(name), type=self.block.var(name).kind)
        return names[name]

    def _seed(self, op: Operator, names: dict[str, str], shard: int, number: int) -> str:
        seed = self._new(f"{op.output('Out')[0]}.seed.shard_{shard}", self.block.var(op.output("Out")[0]))
        attrs = {"dtype": int(DType.INT64 if keeps_seed(op) else DType.INT32)}
        self._append("shard_seed", _step(op, names), {"Out": seed}, {**self._key(op, shard, number), **attrs}, op)
        return seed

    def _key(self, op: Operator, shard: int, number: int) -> dict[str, int]:
        """Attributes that tell the draws of operators and shards apart, beside the step and the rank.

        Operators that were given one seed draw the same.
        """
        seed, number = (op.attr("seed"), 0) if has_fixed_seed(op) else (seed_of(op), number)
        return {"seed": seed, "number": number, "shard": shard, "shards": self.shards}

    def _add_up(self, op: Operator, name: str, parts: Sequence[str], role_vars: tuple[str, str]) -> None:
        """Add the shards' gradients of a parameter, two neighbours at a time."""
        if self.block.var(parts[0]).tensor_type.is_rows:  # type: ignore[union-attr]
            self._append("sum", {"X": list(parts)}, {"Out": name}, {"op_role_var": role_vars}, op)
            return
        if len(parts) == 1:
            self._append("assign", {"X": parts[0]}, {"Out": name}, {"op_role_var": role_vars}, op)
            return
        sums = 0

        def add(x: str, y: str) -> str:
            nonlocal sums
            sums += 1
            is_last = sums == len(parts) - 1
            out = name if is_last else self._new(f"{name}.sum_{sums}", self.block.var(name))
            self._append(
                "elementwise_add", {"X": x, "Y": y}, {"Out": out}, {"op_role_var": role_vars if is_last else ()}, op
            )
            return out

        tree(list(parts), add)

    def _scale_losses(self) -> None:
        """Divide the gradient of each loss by the number of shards; it is made before the shards."""
        for op in list(self.block.ops) if self.shards > 1 else ():
            if op.role & Role.BACKWARD and op.role & Role.LOSS:
                name = op.output_arg_names[0]
                with self.block.inserting_before(op._next):
                    attrs = {"scale": 1.0 / self.shards, "op_role": Role.BACKWARD}
                    self.block.append_op("scale", {"X": name}, {"Out": name}, attrs)

    def _join_leaves(self, maps: Sequence[dict[str, str]], grads: set[str]) -> None:
        """Give losses, rows of samples, and results that nothing reads, a value for the whole batch.

        A run computes only the values that it fetches.
        """
        divided = set(self.ops)
        read = {name for op in self.ops for name in op.input_arg_names}
        outside = {name for op in self.block.ops if op not in divided for name in op.input_arg_names}
        for op in self.ops:
            for name in op.output_arg_names:
                var = self.block.var(name)
                has_rows = self._axis(var) is not None and not var.lod_level
                is_wanted = has_rows or name not in read or var.persistable or bool(op.role & Role.LOSS)
                is_wanted = (is_wanted and not op.role & Role.BACKWARD) or name in outside
                if name in maps[0] and name not in grads and name not in self.state and is_wanted:
                    self._join(op, name, [names[name] for names in maps])

    def _average_state(self, maps: Sequence[dict[str, str]]) -> None:
        """Let running statistics be the mean of those of the shards."""
        updated = {name: op for op in self.ops if op.type == "batch_norm" for name in op.output_arg_names}
        totals = {}
        for name, op in updated.items():
            if name in self.state and name in maps[0]:
                parts = [names[name] for names in maps]
                totals[name] = tree(parts, partial(self._appended, "elementwise_add", like=op))
        for name, total in totals.items():  # behind all sums, which ranks exchange together
            attrs = {"scale": 1.0 / self.shards}
            self._append("scale", {"X": total}, {"Out": name}, attrs, updated[name])

    def _join(self, op: Operator, name: str, parts: Sequence[str]) -> None:
        var = self.block.var(name)
        if var.tensor_type is None or var.kind is not VarKind.LOD_TENSOR:  # such as the scopes of a loop
            return
        if _is_number(var):
            total = tree(list(parts), lambda x, y: self._appended("elementwise_add", x, y, like=op))
            attrs = {"scale": 1.0 / self.shards, "op_role": op.role}
            self._append("scale", {"X": total}, {"Out": name}, attrs, op)
        elif var.lod_level:
            joined = tree(list(parts), lambda x, y: self._appended("join_sequences", x, y, like=op))
            self._append("assign", {"X": joined}, {"Out": name}, {"op_role": op.role}, op)
        elif (axis := self._axis(var)) is not None:
            self._append("concat", {"X": list(parts)}, {"Out": name}, {"axis": axis}, op)

    def _appended(self, type: str, x: str, y: str, *, like: Operator) -> str:
        """The result of an operator of this type on two values of shards."""
        out = self._new(f"{x}.sum", self.block.var(x))
        self._append(type, {"X": x, "Y": y}, {"Out": out}, {}, like)
        return out


def _step(op: Operator, names: Mapping[str, str]) -> dict[str, str]:
    """The input that changes draws from step to step: the step, a seed that the operator reads, or none."""
    if not has_fixed_seed(op):
        return {"Step": STEP}
    given = op.inputs.get("Seed", ())
    return {"Step": names.get(given[0], given[0])} if given else {}


def _is_number(var: Variable) -> bool:
    return var.shape == (1,) and var.dtype.is_floating


_HINT = "Leave it out, or train without shards."
_HINTS = {
    "recurrent": "Declare the number of steps, as in data of [None, steps, ...]: the network is then written out.",
    "while": "Move it out of the loop, or write the steps out by a loop of Python.",
    "conditional_block": "Move it out of the branch, or compute both results and choose by where.",
}
"""Hints for operators in a block."""


def _refused(op: Operator, why: str, hint: str = _HINT) -> ProgramError:
    return ProgramError(f"ShardBatch cannot divide {op.type}: {why}", site=op.site, details=[str(op)], hint=hint)
