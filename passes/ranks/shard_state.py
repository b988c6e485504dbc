"""Divide the state of optimizers among the ranks: each updates its part of the parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, groupby, takewhile
from typing import Any, NamedTuple

from minigraph.errors import ProgramError
from minigraph.ir import Block, Operator, Program, Role
from minigraph.opdef import EMPTY, is_update
from minigraph.ops.merged_updates import MERGED, own_slots
from minigraph.passes.base import Pass
from minigraph.passes.ranks.part_reductions import Reductions, is_to_one_number
from minigraph.passes.recognize.fuse_global_norm import fuse_in_place
from minigraph.passes.rewriting import completed_pairs, insert_for
from minigraph.support.parts import Division
from minigraph.types import TensorType

_ELEMENTWISE = frozenset({
    "abs", "assign", "cast", "ceil", "clip", "elementwise_add", "elementwise_div", "elementwise_max",
    "elementwise_min", "elementwise_mul", "elementwise_pow", "elementwise_sub", "equal", "exp", "fill_any_like",
    "fill_zeros_like", "floor", "get_tensor_from_selected_rows", "greater_equal", "greater_than", "less_equal",
    "less_than", "log", "merge_selected_rows", "not_equal", "pow", "reciprocal", "relu", "round", "rsqrt", "scale",
    "sigmoid", "sign", "sqrt", "square", "sum", "tanh", "where",
})  # fmt: skip
"""Operators that compute each element of a part from the same elements of other parts."""
UPDATES_OF_PARTS = frozenset(MERGED.values())
"""Updates that compute each element of the parameter and its state for itself."""
_CLIPS = frozenset({"clip_by_norm", "clip_by_global_norm"})
_RESHAPES = frozenset({"reshape2", "flatten2", "squeeze2", "unsqueeze2"})
"""Operators that keep the elements of an array, and so the elements of a flat part, in order."""
_NUMBERS = frozenset({"Grad", "Param", "Beta1Pow", "Beta2Pow"})
"""Inputs of updates that belong to one parameter, but are not state of its shape."""


@dataclass(frozen=True)
class ShardOptimizerState(Pass):
    """Let each rank update its part of the parameters, and keep only its part of the state of the optimizer.

    The program must sum gradients over the ranks, as after `GradAllReduce`. Each rank gets its part of the sums
    (``c_reduce_parts``), clips it by norms over all ranks (``part_norms``, ``c_allgather``, ``clip_parts``), and
    updates its part of the parameters; the parts then become whole parameters (``c_gather_parts``). An operator between
    them may reduce an array to one number, as in a norm that the user has written. Then each block is reduced, and the
    numbers are exchanged (``part_reduction``, ``c_allgather``) where the first of them is needed. Selected rows are
    summed whole, and then divided. The startup program must make parts of the state, see `shard_startup`.

    Law: parameters and clips are those of the program before, but for the rounding of norms. With `shards`, bits are
    the same on all numbers of ranks that divide `shards`. A gradient that is fetched is that of one rank.

    Attributes
    ----------
    ranks : int
        Number of ranks.
    shards : int
        Number of blocks of which norms are computed. Default: one for each rank.

    Raises
    ------
    ProgramError
        If an operator between the gradients and the updates needs whole gradients or parameters, as the update
        ``lamb`` does; if gradients are not summed over the ranks.

    References
    ----------
    S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020; this is its
    first stage.
    """

    ranks: int
    shards: int = 0

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.shards < 0 or self.shards % self.ranks:
            raise ProgramError(f"{self.name}: {self.ranks} ranks cannot share {self.shards} shards")

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        if (self.ranks == 1 and not self.shards) or block.ops.of_type("c_part"):
            return False
        before = _names(block)
        fuse_in_place(program, program.roots or ())
        _Sharding(block, self.ranks, max(1, self.shards // self.ranks)).apply()
        for name in before - _names(block):
            if not (block.vars[name].persistable or block.vars[name].is_data):
                block.remove_var(name)
        return True


class Sharded(NamedTuple):
    """A variable of which each rank keeps a part."""

    whole: TensorType
    division: Division


def sharded_state(program: Program) -> dict[str, Sharded]:
    """The state of optimizers of which each rank keeps a part, by name."""
    block = program.global_block()
    wholes = {}
    for op in block.ops.of_type("c_part"):
        division = Division(op.attr("nranks"), op.attr("blocks"), op.attr("by_rows"))
        type = block.vars[op.input("X")[0]].tensor_type
        assert type is not None
        wholes[op.output("Out")[0]] = Sharded(type, division)
    updates = _updates(block) if wholes else ()
    return {name: wholes[param] for op in updates if (param := op.input("Param")[0]) in wholes for name in state_of(op)}


def shard_startup(startup: Program, program: Program) -> None:
    """Let a startup program make this rank's part of the state of `program`, which `ShardOptimizerState` has rewritten.

    Raises
    ------
    ProgramError
        If it makes the state by something else than a ``fill_constant``.
    """
    block = startup.global_block()
    writers = {op.output("Out")[0]: op for op in block.ops.of_type("fill_constant")}
    for name in sharded_state(program):
        var = block.vars.get(name)
        if var is None:
            continue
        if name not in writers:
            raise ProgramError(f"ShardOptimizerState: the startup program has no fill_constant for {name}")
        var.tensor_type = program.global_block().vars[name].tensor_type
        writers[name].set_attr("shape", var.shape)


class _Sharding:
    """One program whose updates are divided."""

    def __init__(self, block: Block, ranks: int, blocks: int) -> None:
        self.block, self.ranks = block, ranks
        self.attrs = {"nranks": ranks, "blocks": blocks}
        self.updates = dict.fromkeys(_updates(block))
        params = [op.input("Param")[0] for op in self.updates]
        made = {param: grad for op in block.ops for param, grad in completed_pairs(op)}
        self.grads = {param: made[param] for param in params if param in made}
        self.raw = frozenset(self.grads.values())
        self.parts: dict[str, str] = {}
        """Names of parts, by the names of the arrays whose parts they are."""
        self.norms: dict[Operator, tuple[str, list[int]]] = {}
        """Norms by which an operator clips: their name, and the columns."""
        self.levels = 0
        self.by_rows: set[str] = set()
        """Names whose parts are rows."""
        self.reductions = Reductions(block, ranks, blocks)
        self._check(params)

    def apply(self) -> None:
        self.first = self._first_reader()
        self._take_parts()
        self._put_reductions_first()
        section = list(self.block.ops)
        section = section[section.index(self.first) :]
        self.last = list(self.updates)[-1]
        for at, op in enumerate(section):
            op.role_vars = tuple([self._served(name) for name in op.role_vars])
            if self.reductions.are_needed_by(op):
                self.reductions.join_before(op)
            if self._uses(op):
                self._divide(op, section[at:])
            if op is self.last:
                self._gather()
        self.reductions.join_before(None)

    def _put_reductions_first(self) -> None:
        """Move what needs a reduction behind the reductions that do not, so that these are exchanged together."""
        rest = dropwhile(lambda op: op is not self.first, self.block.ops)
        ops = list(takewhile(lambda op: op not in self.updates, rest))
        used: set[str] = set()
        for op in ops:
            if op.definition.has_hidden_names or not used.isdisjoint(op.output_arg_names):
                return  # another order might change a value
            used.update(op.input_arg_names, op.output_arg_names)
        depths: dict[str, int] = {}
        """Reductions that a value needs one after the other, by its name."""
        levels: dict[Operator, int] = {}
        for op in ops:
            levels[op] = max([depths.get(name, 0) for name in op.input_arg_names], default=0)
            depths.update(dict.fromkeys(op.output_arg_names, levels[op] + is_to_one_number(op)))
        order = sorted(ops, key=levels.__getitem__)
        if order == ops:
            return
        after = ops[-1]._next
        for op in ops:
            self.block.remove(op)
        for op in order:
            self.block._link(after, op)
        self.first = order[0]

    def _check(self, params: Sequence[str]) -> None:
        if not params:
            raise ProgramError(
                "ShardOptimizerState: the program has no update outside of branches",
                hint="Call minimize first, of an optimizer that updates in every step.",
            )
        for op in self.updates:
            if op.type not in UPDATES_OF_PARTS:
                raise _refused(op, "its update of an element depends on other elements")
            if op.input("Param")[0] not in self.grads:
                raise _refused(op, "its gradient does not come from the backward pass")
        sums = {op.inputs["X"][0] for op in self.block.ops.of_type("c_allreduce_sum")}
        missing = self.raw - sums if self.ranks > 1 else ()
        if missing:
            raise ProgramError(
                f"ShardOptimizerState: {min(missing)} is not summed over the ranks",
                hint="Apply GradAllReduce before, or DataParallel(ranks, sharded=True).",
            )
        self._check_order()

    def _first_reader(self) -> Operator:
        """The first operator that belongs to the updates, or is a clip that the user has written in front of them.

        Counters of averages may stand in front of all operators.
        """
        ops = dropwhile(lambda op: self.raw.isdisjoint(op.output_arg_names), self.block.ops)
        last = [op for op in self.block.ops if op.role & Role.BACKWARD and not op.type.startswith("c_sync")][-1]
        ops = dropwhile(lambda op: op is not last, ops)
        return next(op for op in ops if op.role & Role.OPTIMIZE or (op is not last and self._reads_gradient(op)))

    def _reads_gradient(self, op: Operator) -> bool:
        return not op.type.startswith("c_") and not self.raw.isdisjoint(op.input_arg_names)

    def _check_order(self) -> None:
        """Raise if gradients are read before all of them are computed."""
        first, summed = self._first_reader(), set[str]()
        for op in takewhile(lambda op: op is not first, self.block.ops):
            if not op.type.startswith("c_") and not summed.isdisjoint(op.input_arg_names):
                if op.role & Role.OPTIMIZE:
                    raise _refused(op, "it updates in front of another backward pass")
                raise _refused(op, "it reads a whole gradient, as an error_clip of a parameter does")
            summed.update(grad for _, grad in completed_pairs(op) if grad in self.raw)

    # Exchanges

    def _take_parts(self) -> None:
        """Replace the sums of gradients by sums of parts; divide selected rows after their sum, and parameters."""
        dense = dict.fromkeys([name for name in self.grads.values() if not self._is_rows(name)])
        for op in list(self.block.ops):
            is_sum = op.type == "c_allreduce_sum" and op.inputs["X"][0] in dense
            if is_sum or (op.type.startswith("c_sync") and op.inputs["X"][0] in self.raw):
                self.block.remove(op)
            elif op.type == "c_allreduce_sum" and op.inputs["X"][0] in self.raw:
                op.set_attr("use_calc_stream", True)  # nothing waits for it any more
        for names in self._by_dtype(list(dense)):
            self._append("c_reduce_parts", names, Role.BACKWARD)
        for param, grad in self.grads.items():
            by_rows = self._is_rows(grad)
            if by_rows:
                self.by_rows.update((param, grad))
                self._append("c_part", [grad], Role.BACKWARD, by_rows=True)
            self._append("c_part", [param], Role.OPTIMIZE, by_rows=by_rows)

    def _gather(self) -> None:
        """Make whole parameters of their parts."""
        anchor = self.last._next
        for names in self._by_dtype(list(self.grads)):
            inputs = {"X": [self.parts[name] for name in names], "Whole": names}
            attrs = {"nranks": self.ranks, "op_role": Role.OPTIMIZE}
            self.block.insert(anchor, "c_gather_parts", inputs, {"Out": names}, attrs).site = self.last.site
        for name in self.grads:
            del self.parts[name]

    def _append(self, type: str, names: Sequence[str], role: Role, **attrs: Any) -> None:
        """Make parts of these arrays in front of the first operator that reads one."""
        with self.block.inserting_before(self.first):
            outs = [self._part(name) for name in names]
            self.block.append_op(type, {"X": names}, {"Out": outs}, {**self.attrs, **attrs, "op_role": role})

    def _by_dtype(self, names: Sequence[str]) -> Iterator[list[str]]:
        def dtype(name: str) -> int:
            return int(self.block.vars[name].dtype)

        return (list(group) for _, group in groupby(sorted(names, key=dtype), dtype))

    def _is_rows(self, name: str) -> bool:
        kind = self.block.vars[name].tensor_type
        return kind is not None and kind.is_rows

    def _part(self, name: str) -> str:
        """The name of the part of an array, which gets a variable."""
        if name not in self.parts:
            self.parts[name] = self._new(f"{name}.part", name)
        return self.parts[name]

    def _new(self, name: str, like: str) -> str:
        var = self.block.vars[like]
        self.block.create_var(name=name, type=var.kind, stop_gradient=var.stop_gradient)
        return name

    # Operators between the sums and the gathered parameters

    def _uses(self, op: Operator) -> bool:
        return not self.parts.keys().isdisjoint((*op.input_arg_names, *op.output_arg_names))

    def _divide(self, op: Operator, rest: Sequence[Operator]) -> None:
        """Let an operator compute a part; `rest` begins with it."""
        if op.role & Role.BACKWARD:
            raise _refused(op, "it reads a whole gradient or parameter between two updates")
        if op in self.updates:
            self._divide_update(op)
        elif op.type in _CLIPS:
            self._clip(op, rest)
        elif self._is_reduction(op):
            (name,) = op.input("X")
            self.reductions.add(op, self.parts[name], self.block.vars[name], name in self.by_rows)
        elif op.type in _RESHAPES and self._is_flat(op):
            insert_for(op, "assign", {"X": self.parts[op.input("X")[0]]}, {"Out": self._part(op.output("Out")[0])}, {})
            self.block.remove(op)
        elif self._is_elementwise(op):
            self._divide_others(op)
            self._rename(op)
        else:
            raise _refused(op, "it needs whole gradients or parameters")

    def _served(self, name: str) -> str:
        """The name of a clipped gradient's part; parameters and the gradients of the backward pass stay."""
        return name if name in self.grads or name in self.raw else self.parts.get(name, name)

    def _is_reduction(self, op: Operator) -> bool:
        """Whether `op` makes one number of a part; of selected rows nobody knows the block that a value is in."""
        if not is_to_one_number(op) or op.input("X")[0] not in self.parts:
            return False
        var = self.block.vars[op.input("X")[0]]
        return var.tensor_type is not None and not var.tensor_type.is_rows and var.tensor_type.is_static

    def _is_flat(self, op: Operator) -> bool:
        """Whether `op` reads one array, of which parts are pieces of the flat array."""
        return op.input_arg_names == op.input("X") and op.input("X")[0] not in self.by_rows

    def _is_elementwise(self, op: Operator) -> bool:
        """Whether each element of the results depends on the same elements of arrays, and on single numbers."""
        shapes = {self.block.vars[name].shape for name in op.input_arg_names if not self._is_number(name)}
        return op.type in _ELEMENTWISE and len(shapes) <= 1

    def _is_number(self, name: str) -> bool:
        return name not in self.parts and self.block.vars[name].size == 1

    def _divide_others(self, op: Operator) -> None:
        """Make parts of whole arrays that `op` reads beside parts, such as a decay that the user has written."""
        for name in op.input_arg_names:
            if name not in self.parts and not self._is_number(name):
                insert_for(op, "c_part", {"X": [name]}, {"Out": [self._part(name)]}, {**self.attrs, "by_rows": False})

    def _rename(self, op: Operator) -> None:
        """Let an operator read and write parts in place of whole arrays."""
        before = op.input_arg_names
        for slot, names in op.inputs.items():
            op.set_input(slot, [self.parts.get(name, name) for name in names])
        if not self.by_rows.isdisjoint(before):
            self.by_rows.update(op.output_arg_names)
        for slot, names in op.outputs.items():
            op.set_output(slot, [self._part(name) for name in names])
        self.block.infer(op)

    def _divide_update(self, op: Operator) -> None:
        for name in state_of(op):
            kind = self.block.vars[op.input("Param")[0]].tensor_type
            part = self.block.vars[self.parts[op.input("Param")[0]]].tensor_type
            if self.block.vars[name].tensor_type == kind:
                self.block.vars[name].tensor_type = part
        for slot in ("Param", "Grad"):
            op.set_input(slot, [self.parts[name] for name in op.input(slot)])
        op.set_output("ParamOut", [self.parts[name] for name in op.output("ParamOut")])
        self.block.infer(op)

    # Clips

    def _clip(self, op: Operator, rest: Sequence[Operator]) -> None:
        if op not in self.norms:
            self._measure(op, rest)
        norms, columns = self.norms[op]
        attrs: dict[str, Any] = dict(op.attrs)
        outs = [name if name == EMPTY else self._part(name) for name in op.output("Out")]
        norm = op.output("Norm")[0] if op.type == "clip_by_global_norm" else self._new(f"{outs[0]}.norm", outs[0])
        inputs = {"X": [self.parts[name] for name in op.input("X")], "Norms": norms}
        if op.type == "clip_by_global_norm":
            inputs["ClipNorm"] = op.input("ClipNorm")
        insert_for(op, "clip_parts", inputs, {"Out": outs, "Norm": norm}, {**attrs, "columns": columns})
        self.block.remove(op)

    def _measure(self, op: Operator, rest: Sequence[Operator]) -> None:
        """Exchange norms once for `op` and for the clips in `rest` whose inputs are computed already."""
        p, measured, written = _order(op), dict[str, int](), set[str]()
        clips = dict[Operator, None]()
        for other in rest:
            xs = other.inputs.get("X", ())
            is_ready = written.isdisjoint(xs) and all(name in self.parts for name in xs)
            if other.type in _CLIPS and _order(other) == p and is_ready:
                clips[other] = None
                for name in xs:
                    measured.setdefault(self.parts[name], len(measured))
            written.update(other.output_arg_names)
        if op not in clips:
            raise _refused(op, "it clips a gradient that no update of the program reads")
        first = next(iter(measured))
        self.levels += 1
        norms = self._new(f"{first}.norms_{self.levels}", first)
        whole = self._new(f"{norms}.all", first)
        attrs = {"blocks": self.attrs["blocks"], "p": p}
        insert_for(op, "part_norms", {"X": list(measured)}, {"Out": norms}, attrs)
        attrs = {"nranks": self.ranks, "use_calc_stream": True}
        insert_for(op, "c_allgather", {"X": norms}, {"Out": whole}, attrs)
        for each in clips:
            self.norms[each] = whole, [measured[self.parts[name]] for name in each.input("X")]


def _updates(block: Block) -> list[Operator]:
    return [op for op in block.ops if is_update(op.definition)]


def state_of(update: Operator) -> Iterator[str]:
    """Names of the state of an update."""
    for slot in own_slots(update.definition):
        if slot not in _NUMBERS:
            yield from update.inputs.get(slot, ())


def _order(clip: Operator) -> float:
    return clip.attr("p") if clip.type == "clip_by_global_norm" else 2.0


def _names(block: Block) -> set[str]:
    """Names that operators use."""
    used = {name for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    return used & block.vars.keys()


def _refused(op: Operator, why: str) -> ProgramError:
    return ProgramError(
        f"ShardOptimizerState cannot divide {op.type}: {why}",
        site=op.site, details=[str(op)],
        hint="Clip by value or by norms of whole gradients, update single elements, or leave sharded out.",
    )  # fmt: skip
