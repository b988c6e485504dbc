"""Infer whether each value of a rank's program is replicated, partial or local."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from minigraph.ir import Operator, Program, Role
from minigraph.opdef import EMPTY, GRAD_SUFFIX
from minigraph.parallel.wrong import every_op, wrong
from minigraph.passes.ranks.shard_draws import has_fixed_seed
from minigraph.passes.ranks.shard_state import sharded_state
from minigraph.passes.ranks.weighted_means import fixed_batch
from minigraph.passes.rewriting import draws


class Spread(enum.Enum):
    """Relation of the ranks' values of a variable to each other."""

    REPLICATED = "the same on every rank"
    LOCAL = "of the samples of one rank"
    PARTIAL = "one rank's part of a sum over ranks"
    SHARD = "one rank's part of the elements"
    SQUARES = "a sum over one rank's part of the elements"
    MAXIMUM = "a maximum over one rank's part of the elements"
    NORMS = "norms of one rank's part of the elements"
    STACK = "the parts of a sum of all ranks, one after the other"


R, LOCAL, PARTIAL, SHARD = Spread.REPLICATED, Spread.LOCAL, Spread.PARTIAL, Spread.SHARD

_LINEAR = frozenset({
    "assign", "cast", "scale", "sum", "elementwise_add", "elementwise_sub", "c_sync_calc_stream",
    "c_sync_comm_stream", "concat", "split", "stack", "unstack", "slice", "reshape", "reshape2", "squeeze",
    "squeeze2", "unsqueeze", "unsqueeze2", "flatten", "flatten2", "transpose", "transpose2",
    "merge_selected_rows", "get_tensor_from_selected_rows", "reduce_sum", "reduce_mean", "mean",
})  # fmt: skip
"""Operators of whose results the sum over ranks is the result of the sums."""
_RESHAPES = frozenset({
    "assign", "cast", "scale", "reshape", "reshape2", "flatten", "flatten2", "squeeze", "squeeze2", "unsqueeze",
    "unsqueeze2", "c_sync_calc_stream", "c_sync_comm_stream",
})  # fmt: skip
"""Operators that keep the elements of a value in their order."""
_PRODUCTS = frozenset({"elementwise_mul", "elementwise_div", "mul", "matmul"})
"""Operators that are linear in X where Y is replicated."""
_ADDITIONS = frozenset({"sum", "elementwise_add", "elementwise_sub"})
_CLIPS = frozenset({
    "clip", "clip_by_norm", "clip_by_global_norm", "clip_factor", "global_norm", "squared_l2_norm", "norm",
    "p_norm", "sqrt", "square",
})  # fmt: skip
_CURVED = frozenset({
    "sign", "tanh", "sigmoid", "softmax", "log_softmax", "exp", "log", "pow", "rsqrt", "reciprocal",
})  # fmt: skip
"""Operators that make of a divided gradient something else than the divided result, and are no clips."""
_OF_PARTS = dict.fromkeys((SHARD, Spread.SQUARES, Spread.MAXIMUM, Spread.NORMS))
"""Kinds of values that a rank computes from its own part of the elements."""

SUM_GRADIENTS = (
    "Sum gradients in place of parameters, by DataParallel or GradAllReduce, or say verify(program, "
    "statistics='local') if each rank's own are meant."
)
"""Fix of programs that average parameters where one rank with all samples would not have their mean."""


class Spreads:
    """The spreads of a program's values, up to an operator."""

    is_local_sgd = False
    """Whether ranks update by their own gradients, and average parameters."""
    keeps_local = False
    """Whether what a rank makes of its own samples may be meant."""

    def __init__(self, program: Program, kept: Iterable[str] = ()) -> None:
        self.block = program.global_block()
        self.spread: dict[str, Spread] = {name: LOCAL for name, var in self.block.vars.items() if var.is_data}
        self.spread |= dict.fromkeys(sharded_state(program), SHARD)
        self.spread |= dict.fromkeys(kept, LOCAL)
        batch = fixed_batch(self.block)
        self.settings = {
            name
            for name, var in self.block.vars.items()
            if var.is_data and -1 not in (var.shape or (-1,)) and (batch is None or (var.shape or ())[0] != batch)
        }
        """Values that are fed but have no samples, such as a learning rate, and what is computed of them alone."""
        self.draws_alike = False
        """Whether ``seed_draws`` lets all ranks draw the same."""
        self.divided: set[str] = set()
        """Gradients that flow back from a loss, divided by the number of ranks."""
        self.read_back = {name for op in every_op(self.block) if op.role & Role.BACKWARD for name in op.input_arg_names}
        """Names that the backward pass reads."""

    def of(self, name: str) -> Spread:
        return self.spread.get(name, R)

    def _draws(self, op: Operator) -> bool:
        """Whether an operator draws random numbers that are others on each rank."""
        return op.type == "shard_seed" or (draws(op) and not self.draws_alike and not has_fixed_seed(op))

    def _keeps_settings(self, op: Operator) -> bool:
        """Whether an operator of the forward pass computes of settings alone."""
        if op.role & Role.BACKWARD or self._draws(op):
            return False
        return all(name in self.settings or self.of(name) is R for name in op.input_arg_names)

    def _computed(self, op: Operator) -> Spread:
        """The spread of what an operator computes; raise where that is the number of one rank taken for all."""
        given = {slot: [self.of(name) for name in names if name != EMPTY] for slot, names in op.inputs.items()}
        kinds = {kind for each in given.values() for kind in each}
        is_divided = not self.divided.isdisjoint(op.input_arg_names)
        if is_divided or (op.role & Role.LOSS and op.role & Role.BACKWARD):
            self.divided.update(op.output_arg_names)
        if op.role & Role.BACKWARD and op.role & Role.LOSS:
            return LOCAL  # flows through the samples of one rank
        if op.type == "data_norm_grad" and op.attr("slot_dim") > 0:
            raise wrong(
                op, "updates BatchSize, BatchSum and BatchSquareSum by means over the rows of one rank",
                "their sum over ranks is no count of samples",
                "Leave slot_dim out: then they are sums over rows, which add up.",
            )  # fmt: skip
        if is_divided and op.type in _CURVED and LOCAL in kinds and self._flows_back(op):
            raise wrong(
                op, "changes the scale of a gradient inside the backward pass, which is divided by the number of ranks",
                "the updates depend on how many ranks there are",
                "Use it on the gradients of parameters, after their sum.",
            )  # fmt: skip
        if is_divided and op.type in _CLIPS and LOCAL in kinds and self._flows_back(op):
            raise wrong(
                op, "clips a gradient inside the backward pass, which is divided by the number of ranks there",
                "the threshold depends on how many ranks there are",
                "Multiply the threshold by 1 / ranks, or clip the gradients of parameters, after their sum.",
            )  # fmt: skip
        if Spread.STACK in kinds:
            return self._of_stack(op, kinds)
        if PARTIAL in kinds or self._adds_to_a_part(op):
            return self._of_partial(op, given, kinds)
        if not kinds.isdisjoint(_OF_PARTS):
            return self._of_shard(op, kinds)
        if LOCAL in kinds or self._draws(op):
            return LOCAL
        return R

    def _flows_back(self, op: Operator) -> bool:
        """Whether the backward pass goes on with a result; a norm that is only recorded may be of one rank."""
        return bool(op.role & Role.BACKWARD) or not self.read_back.isdisjoint(op.output_arg_names)

    def _adds_to_a_part(self, op: Operator) -> bool:
        """Whether an operator adds a parameter, or what is made of one, to a gradient of a parameter's use."""
        if op.type not in _ADDITIONS or not any(self._is_partial(name) for name in op.input_arg_names):
            return False
        return any(self.of(name) is R and GRAD_SUFFIX not in name for name in op.input_arg_names)

    def _of_partial(self, op: Operator, given: dict[str, list[Spread]], kinds: set[Spread]) -> Spread:
        if op.type in _LINEAR and kinds == {PARTIAL} and not _adds(op):
            return PARTIAL
        if op.type in _PRODUCTS and given["X"] == [PARTIAL] and given.get("Y") == [R]:
            return PARTIAL
        if self.is_local_sgd:
            return self._of_one_rank(op)
        if op.type in _ADDITIONS or op.type == "scale":
            added = "a number" if op.type == "scale" else _which(op, self, R) or "another value"
            raise wrong(
                op, f"adds {added}, the same on every rank, to one rank's part",
                "the sum over ranks then has it once for each rank",
                "Add it after the gradient is summed over the ranks, as decays and accumulated gradients must be.",
            )  # fmt: skip
        name = next(name for name in op.input_arg_names if self.of(name) is PARTIAL)
        if op.role & Role.BACKWARD and op.type in _CLIPS:
            raise wrong(
                op, f"clips {name} before it is summed over the ranks, as an error_clip of a parameter does",
                "the original's transpiler does not even sum it then",
                "Give the parameter a gradient clip in place of the error_clip, or clip an activation.",
            )  # fmt: skip
        why = "each rank then clips by its own norm" if op.type in _CLIPS else "results of parts do not add up to it"
        raise wrong(
            op, f"needs all of {name}, but gets one rank's part of the sum", why,
            "Sum the gradient over the ranks first: c_allreduce_sum, as DataParallel inserts it, in front of this.",
        )  # fmt: skip

    def _of_one_rank(self, op: Operator) -> Spread:
        """The spread of what a rank makes of its own gradient, by which it updates; raise if the mean is another."""
        if op.type not in _ADDITIONS and op.type != "scale" and not self.keeps_local:
            raise wrong(
                op, "changes the gradient of one rank", "each rank then clips or scales by its own samples",
                SUM_GRADIENTS,
            )  # fmt: skip
        return PARTIAL

    def _of_shard(self, op: Operator, kinds: set[Spread]) -> Spread:
        if op.type in ("squared_l2_norm", "reduce_sum") and kinds == {SHARD}:
            return Spread.SQUARES
        if op.type == "reduce_max" and kinds == {SHARD}:
            return Spread.MAXIMUM
        if op.type in ("part_norms", "part_reduction") and kinds == {SHARD}:
            return Spread.NORMS
        if kinds <= {SHARD, R}:
            if op.type in _CLIPS - {"clip", "square", "sqrt"}:
                raise wrong(
                    op, "takes the norm of one rank's part of the elements", "each rank then has another norm",
                    "Sum the squares of all parts (squared_l2_norm, then c_allreduce_sum), and take the root.",
                )  # fmt: skip
            return SHARD
        kind, *others = [each for each in _OF_PARTS if each in kinds and each is not SHARD] or [SHARD]
        if op.type in _LINEAR and kinds == {kind} and not _adds(op):
            return kind
        found = " and ".join(each.value for each in (kind, *others))
        raise wrong(
            op, f"needs a value of all ranks, but gets {found}", "each rank then has another norm",
            "Put c_allreduce_sum (for a maximum c_allreduce_max, for norms c_allgather) in front of it.",
        )  # fmt: skip

    def _of_stack(self, op: Operator, kinds: set[Spread]) -> Spread:
        if op.type in ("reduce_sum", "reduce_mean") and kinds == {Spread.STACK}:
            return R
        if op.type in _RESHAPES and kinds == {Spread.STACK} and not _adds(op):
            return Spread.STACK
        raise wrong(
            op, f"takes {_which(op, self, Spread.STACK)}, the parts of a sum of all ranks, for the sum",
            "it gets one rank's part, or all of them apart",
            "Add them first: reshape2 to [number of ranks, ...], then reduce_sum over dimension 0; or use "
            "c_allreduce_sum in place of c_allgather.",
        )  # fmt: skip

    def _source(self, name: str) -> Spread | None:
        """The spread of the value that a gradient belongs to, or None if `name` is no gradient."""
        source, suffix, _ = name.partition(GRAD_SUFFIX)
        return self.of(source) if suffix and self.block.find_var(source) is not None else None

    def _is_partial(self, name: str) -> bool:
        """Whether a value is one rank's part of a sum, such as a gradient of what is the same on every rank."""
        return self.of(name) is PARTIAL or (self.of(name) is LOCAL and self._source(name) is R)


def _adds(op: Operator) -> bool:
    """Whether a ``scale`` adds a number, so that the result of a sum is not the sum of the results."""
    return op.type == "scale" and bool(op.attr("bias"))


def _which(op: Operator, check: Spreads, kind: Spread) -> str:
    """The inputs of a kind."""
    return ", ".join(name for name in op.input_arg_names if check.of(name) is kind)
