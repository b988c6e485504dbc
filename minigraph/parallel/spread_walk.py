"""Walk over a program of one of several ranks, and refuse exchanges, updates and state that are wrong there."""

from __future__ import annotations

from collections.abc import Iterable

from minigraph.errors import VerifyError
from minigraph.ir import Block, Operator, Parameter, Program, Role, Variable
from minigraph.ir.effects import unchanged_names
from minigraph.opdef import EMPTY, GRAD_SUFFIX, is_update
from minigraph.parallel.spreads import LOCAL, PARTIAL, SHARD, SUM_GRADIENTS, R, Spread, Spreads
from minigraph.parallel.wrong import every_op, wrong
from minigraph.passes.ranks.collective import SNAPSHOT
from minigraph.passes.ranks.shard_state import UPDATES_OF_PARTS, state_of

_NO_SUMS = {"c_allreduce_max": "maximum", "c_allreduce_min": "minimum", "c_allreduce_prod": "product"}
"""Names of the reductions that are no sums."""
_EXTREMES = frozenset({"c_allreduce_max", "c_allreduce_min"})
"""Reductions that leave a value alone that is the same on every rank."""
_LINEAR_UPDATES = frozenset({"sgd", "momentum"})
"""Updates of which a mean over ranks is the update by the mean of the ranks' gradients."""
_LOCAL = "say verify(program, statistics='local') if each rank's own are meant."


def exchanges(program: Program) -> list[Operator]:
    """The operators of a program, with its blocks, that exchange values between ranks."""
    kinds = ("c_allreduce", "c_broadcast", "c_allgather", "c_reduce", "c_gather", "merged_c_", "sync_batch_norm")
    return [op for op in every_op(program.global_block()) if op.type.startswith(kinds)]


class SpreadWalk(Spreads):
    """One walk over a program."""

    def __init__(self, program: Program, keeps_local: bool, kept: Iterable[str] = ()) -> None:
        super().__init__(program, kept)
        self.keeps_local = keeps_local
        self.is_local_sgd = _averages_parameters(program)
        self.kept: dict[str, Operator] = {}
        """Persistable variables that are left with what is of the samples of one rank, and by what."""
        self.wholes: dict[str, str] = {}
        """Parameters, by the names of their parts."""
        self.updated: dict[str, Operator] = {}
        """Parameters of which parts were updated that are not gathered yet, and by what."""
        self.reduced: dict[str, Operator] = {}
        """Names whose latest value was summed over the ranks, and by what."""
        self.summed: set[str] = set()
        """Names that were summed over the ranks, whatever was made of them since."""
        self.later = {op.inputs["X"][0] for op in exchanges(program) if not op.type.startswith("sync_")}

    def run(self) -> None:
        self._visit_all(self.block)
        for name in self.kept:
            if not self.keeps_local or self._learns(name):
                raise self._keeps(name)
        for name, op in self.updated.items():
            raise wrong(
                op, f"updates each rank's part of {name}, which is never gathered", "ranks go on with the old one",
                "Put c_gather_parts after the updates.",
            )  # fmt: skip
        for op in every_op(self.block) if self.is_local_sgd else ():
            if is_update(op.definition) and self.of(param := op.input("Param")[0]) is not R:
                raise wrong(
                    op, f"leaves {param} with the value of one rank", "parameters of ranks then drift apart",
                    f"Average {param} over the ranks after the updates, as LocalSGD does.",
                )  # fmt: skip

    def _learns(self, name: str) -> bool:
        """Whether a variable is a parameter with a gradient, which ranks must have alike."""
        var = self.block.find_var(name)
        return isinstance(var, Parameter) and var.trainable and self.block.has_var(name + GRAD_SUFFIX)

    def _visit_all(self, block: Block) -> None:
        for op in block.ops:
            body = op.sub_block
            if body is not None and _changes_ranks(body):
                self._check_condition(op)
                self._visit_all(body)
            self._visit(op)

    def _check_condition(self, op: Operator) -> None:
        """Raise if ranks may run a block of updates and exchanges that others do not."""
        for slot in ("Cond", "Condition"):
            for name in op.inputs.get(slot, ()):
                if self.of(name) is not R and name not in self.settings:
                    raise wrong(
                        op, f"updates or exchanges if {name}, {self.of(name).value}, says so",
                        "parameters of ranks then drift apart, or ranks wait for each other",
                        f"Decide on all ranks together: c_allreduce_max or c_allreduce_min of {name} as a number.",
                    )  # fmt: skip

    def _visit(self, op: Operator) -> None:
        self._check_reads(op)
        if op.type == "seed_draws":
            self.draws_alike = not op.attr("shards")
        found = self._found(op)
        pairs = set(op.role_vars[1::2]) if op.role & Role.BACKWARD else set()
        unchanged = {EMPTY, *unchanged_names(op)}
        is_setting = found is LOCAL and self._keeps_settings(op)
        exchanged = self._made_of_all(op)
        for name in op.output_arg_names:
            if name in unchanged:
                continue
            self.spread[name] = PARTIAL if name in pairs and found is LOCAL else found
            self.kept.pop(name, None)
            if name in exchanged:
                self.spread[name] = R
                continue
            if is_setting:
                self.settings.add(name)
            elif found in (LOCAL, PARTIAL):
                self.settings.discard(name)
                self._note_kept(op, op.block.find_var(name), found)
            if not op.type.startswith(("c_", "merged_c_")):
                self.reduced.pop(name, None)

    def _made_of_all(self, op: Operator) -> set[str]:
        """Results of an operator that it has exchanged, besides others that are of one rank."""
        if op.type == "clip_parts":
            return {op.output("Norm")[0]}  # of whole arrays
        if op.type == "sync_batch_norm":
            given = [name for slot, names in op.inputs.items() if slot not in ("X", "Scale", "Bias") for name in names]
            if all(self.of(name) is R for name in given):
                return set(op.output_arg_names) - set(op.output("Y"))
        return set()

    def _check_reads(self, op: Operator) -> None:
        for name in op.input_arg_names if self.updated else ():
            if name in self.updated and op.type != "c_gather_parts":
                raise wrong(
                    op, f"reads {name}, parts of which were updated and are not gathered yet",
                    "it gets the old one", "Put it after the c_gather_parts.", [f"before: {self.updated[name]}"],
                )  # fmt: skip

    def _found(self, op: Operator) -> Spread:
        """The spread of what an operator exchanges, updates or computes."""
        if op.type.startswith("c_") or op.type == "merged_c_allreduce_sum":
            return self._exchanged(op)
        if is_update(op.definition):
            self._check_update(op)
            return LOCAL if self.is_local_sgd else self.of(op.input("Param")[0])
        found = self._computed(op)
        if found is LOCAL and any(name in self.summed and self.of(name) is R for name in op.input_arg_names):
            self.summed.update(op.output_arg_names)
        return found

    def _exchanged(self, op: Operator) -> Spread:
        if op.type.startswith("c_sync"):
            return self.of(op.input("X")[0])
        if op.type == "c_part":
            return self._divided(op)
        if op.type == "c_gather_parts":
            self._check_gathered(op)
        for name in op.inputs.get("X", ()):
            self._check_gradient(op, name)
        if op.type == "c_broadcast" and self._is_partial(op.input("X")[0]):
            raise wrong(
                op, f"gives every rank the root's part of {op.input('X')[0]}", "the parts of the others are lost",
                "Use c_allreduce_sum.",
            )  # fmt: skip
        if op.type == "c_allgather":
            return self._gathered(op)
        if op.type in ("c_broadcast", "c_gather_parts"):
            return R
        for name in op.inputs.get("X", ()):
            self._check_reduced(op, name, self.of(name))
            self.reduced[name] = op
            self.summed.add(name)
        return SHARD if op.type.startswith("c_reduce") else R

    def _gathered(self, op: Operator) -> Spread:
        """The spread of what is gathered; raise if that is a gradient that was summed before."""
        (name,) = op.input("X")
        if name in self.reduced and self.of(name) is R:
            raise wrong(
                op, f"gathers {name}, which {self.reduced[name].type} has summed already",
                "the sum over what is gathered is multiplied by the number of ranks",
                "Leave one of the two out.", [f"before: {self.reduced[name]}"],
            )  # fmt: skip
        return Spread.STACK if self._is_partial(name) else R

    def _check_gradient(self, op: Operator, name: str) -> None:
        """Raise if the gradient of a value of one rank's samples is exchanged."""
        if self.of(name) is LOCAL and self._source(name) is LOCAL and not self.is_local_sgd:
            raise wrong(
                op, f"exchanges {name}, the gradient of {name.partition(GRAD_SUFFIX)[0]}, which is of the samples of "
                "one rank", "the samples of a rank then get the gradients of those of other ranks",
                "Leave it out: the gradients of parameters are what ranks sum.",
            )  # fmt: skip

    def _divided(self, op: Operator) -> Spread:
        for name, part in zip(op.input("X"), op.output("Out"), strict=True):
            if self.of(name) is not R:
                raise wrong(
                    op, f"takes a part of {name}, {self.of(name).value}", "the parts of ranks do not belong together",
                    "Sum it over the ranks first, or use c_reduce_parts.",
                )  # fmt: skip
            self.wholes[part] = name
        return SHARD

    def _check_gathered(self, op: Operator) -> None:
        """Raise if parts are gathered that are not those of the parameter."""
        for part, whole in zip(op.input("X"), op.output("Out"), strict=True):
            if self.wholes.get(part) != whole:
                raise wrong(
                    op, f"gathers {part} into {whole}, of which it is no part", "the parameter gets other numbers",
                    f"Gather what c_part has made of {whole}, after its update.",
                )  # fmt: skip
            self.updated.pop(whole, None)

    def _check_reduced(self, op: Operator, name: str, kind: Spread) -> None:
        before = self.reduced.get(name)
        if kind is R and before is not None:
            raise wrong(
                op, f"sums {name} over the ranks, which {before.type} has done already",
                "the gradient is then multiplied by the number of ranks",
                "Leave one of the two out.", [f"before: {before}"],
            )  # fmt: skip
        if kind is R and op.type not in _EXTREMES:
            raise wrong(
                op, f"sums {name} over the ranks, where it is the same", "the sum is multiplied by the number of ranks",
                "Leave it out, or divide it by the number of ranks.",
            )  # fmt: skip
        if kind is Spread.MAXIMUM and op.type != "c_allreduce_max":
            raise wrong(
                op,
                f"sums {name}, the maximum over each rank's part",
                "a maximum norm is no sum",
                "Use c_allreduce_max.",
            )
        if kind is Spread.NORMS:
            raise wrong(
                op, f"adds up {name}, norms of each rank's part", "squares add up, norms do not", "Use c_allgather."
            )
        if (kind is Spread.SQUARES or self._is_partial(name)) and op.type in _NO_SUMS:
            raise wrong(
                op, f"takes the {_NO_SUMS[op.type]} of {name}, one rank's part of a sum", "the parts add up",
                "Use c_allreduce_sum.",
            )  # fmt: skip

    def _check_update(self, op: Operator) -> None:
        param = op.input("Param")[0]
        if self.of(param) is SHARD and op.type not in UPDATES_OF_PARTS:
            raise wrong(
                op, f"updates {param}, one rank's part, by norms of all its elements", "each rank then has other norms",
                "Let it update the whole parameter, by the whole gradient.",
            )  # fmt: skip
        if param in self.wholes:
            self.updated[self.wholes[param]] = op
        for name in state_of(op) if self.of(param) is R else ():
            if self.of(name) is SHARD or _shape(op, name) != _shape(op, param):
                raise wrong(
                    op, f"updates all of {param} by {name}, one rank's part of the state",
                    "parameters of ranks then drift apart", "Let it update c_part of the parameter.",
                )  # fmt: skip
        if self.is_local_sgd and op.type not in _LINEAR_UPDATES and not self.keeps_local:
            raise wrong(
                op, f"updates {param} by state of one rank's gradients",
                "the mean over the ranks is not what one rank with all samples has", SUM_GRADIENTS,
            )  # fmt: skip
        self._check_rate(op, param)
        if self._draws(op) and op.attr("sigma") and not op.attr("seed"):
            raise wrong(
                op, f"adds noise to {param} that each rank draws for itself", "parameters of ranks then drift apart",
                "Say DataParallel(..., exact=True), where all ranks draw the same, or give the update a seed.",
            )  # fmt: skip
        for name in op.inputs["Grad"]:
            kind = self.of(name)
            if kind is R or self.is_local_sgd or (kind is SHARD and self.of(param) is SHARD):
                continue
            if name in self.summed:
                raise wrong(
                    op, f"updates {param} by {name}, which is changed after its sum by numbers of one rank",
                    "parameters of ranks then drift apart",
                    "Change it by what is the same on all ranks, such as a value that c_allreduce_sum has summed, or "
                    "numbers drawn with a seed or with DataParallel(..., exact=True).",
                )  # fmt: skip
            if name in self.later:
                raise wrong(
                    op, f"updates {param} before {name} is summed over the ranks",
                    "parameters of ranks then drift apart", "Put it after the c_allreduce_sum of the gradient.",
                )  # fmt: skip
            raise wrong(
                op, f"updates {param} by one rank's part of its gradient", "parameters of ranks then drift apart",
                f"Sum {name} over the ranks: apply DataParallel to the program, or insert c_allreduce_sum.",
            )  # fmt: skip

    def _check_rate(self, op: Operator, param: str) -> None:
        """Raise if the learning rate, or what else an update reads, is that of one rank."""
        for name in op.input_arg_names if not self.is_local_sgd else ():
            if name in op.inputs["Grad"] or name in self.settings:
                continue
            if self.of(name) in (LOCAL, PARTIAL):
                made = self.kept.get(name)
                if made is not None and not self.keeps_local:
                    raise self._keeps(name)
                raise wrong(
                    op, f"updates {param} by {name}, which is {self.of(name).value}",
                    "parameters of ranks then drift apart", f"Average {name}: c_allreduce_sum, then scale by 1 / N.",
                    [f"made by: {made}"] if made is not None else [],
                )  # fmt: skip

    def _keeps(self, name: str) -> VerifyError:
        """The error that state is left with what is of one rank."""
        if self._learns(name):
            hint = f"Sum {name}{GRAD_SUFFIX} over the ranks before it changes {name}: c_allreduce_sum, scale by 1 / N."
        elif self.kept[name].type == "batch_norm":
            hint = f"Say DataParallel(..., sync_batch_norm=True), or {_LOCAL}"
        else:
            hint = f"Average it over the ranks, or {_LOCAL}"
        what = f"keeps {name}, which is {self.of(name).value}"
        return wrong(self.kept[name], what, "values of ranks then differ", hint)

    def _note_kept(self, op: Operator, var: Variable | None, found: Spread) -> None:
        if var is None or not var.persistable or self.is_local_sgd:
            return
        if found is PARTIAL and not isinstance(var, Parameter):
            return  # accumulated gradients, which a later step sums
        self.kept[var.name] = op


def _averages_parameters(program: Program) -> bool:
    """Whether ranks average parameters in place of gradients: as `LocalSGD` does, or by hand."""
    block = program.global_block()
    if any(name.endswith(SNAPSHOT) for name in block.vars):
        return True
    summed = {name for op in exchanges(program) if op.type.startswith("c_allreduce") for name in op.input("X")}
    updates = [op for op in every_op(block) if is_update(op.definition)]
    found = [op for op in updates if not summed.isdisjoint(op.input("Param"))]
    return bool(found) and all(summed.isdisjoint(op.input("Grad")) for op in updates)


def _shape(op: Operator, name: str) -> tuple[int, ...] | None:
    var = op.block.find_var(name)
    return None if var is None else var.shape


def _changes_ranks(block: Block) -> bool:
    """Whether a block, or one that it runs, has updates or exchanges."""
    return any(is_update(op.definition) or op.type.startswith(("c_", "sync_")) for op in every_op(block))
