"""Make a program the program of one rank: the public pass."""

from __future__ import annotations

from dataclasses import dataclass

from minigraph.errors import ProgramError, warn
from minigraph.ir import Program
from minigraph.parallel.division import describe_divided_loss
from minigraph.parallel.feeds import describe_feeds
from minigraph.parallel.joining import join_state
from minigraph.parallel.losses import describe_mixed_samples
from minigraph.parallel.machine import warn_of_threads
from minigraph.parallel.statistics import describe_statistics, of_own_samples
from minigraph.parallel.verifying import verify
from minigraph.passes.ranks.collective import GradAllReduce, broadcast_parameters
from minigraph.passes.ranks.own_draws import describe_draws
from minigraph.passes.ranks.shard_draws import count_steps
from minigraph.passes.ranks.shard_state import ShardOptimizerState, shard_startup
from minigraph.passes.ranks.shard_statistics import average_statistics
from minigraph.passes.ranks.shards import ShardBatch
from minigraph.passes.ranks.sync_batch_norm import SyncBatchNorm
from minigraph.passes.ranks.weighted_means import WeightMeans, fixed_batch, means_of_loss
from minigraph.support.public import public


@public
@dataclass(frozen=True)
class DataParallel(GradAllReduce):
    """Make a training program one of `ranks` ranks, each of which is fed its own samples.

    It inserts what Paddle's collective transpiler inserts, see `minigraph.passes.GradAllReduce`: gradients are summed
    over ranks where the backward pass has made them, so that clips and decays see the gradient of all samples.

    With `exact`, each rank computes its part of `shards` shards of the batch one by one, and sums over them have one
    order: the bits of parameters, norms and factors are the same on every number of ranks that divides `shards`. They
    are so on machines with the same processor, BLAS and number of its threads. Random numbers follow from the seed, the
    step and the shard; those of an operator with a seed of its own are the same in every step. A ``batch_norm`` has the
    statistics of each shard, and as running statistics the mean over the shards, see `minigraph.passes.ShardBatch`.
    State of samples that the program keeps otherwise, as ``auc`` does, is that of all ranks' samples. Norms that the
    program computes by operators such as ``reduce_sum`` may differ by rounding with `sharded`: those operators add in
    the type of the array, and block by block where it is divided. Norms of clips have the same bits, because squares
    are added exactly.

    Attributes
    ----------
    ranks : int
        Number of ranks.
    rings : int
        Number of groups of connections, which exchanges take in turns.
    scales_loss : bool
        Whether to divide the gradient of the loss by the number of ranks.
    shards : int
        Number of shards of the batch of all ranks, a power of two. Default: one for each rank.
    exact : bool
        Whether to compute shard by shard, and to have executors make no rewrite that changes a bit.
    ragged : bool
        Whether ranks may be fed different numbers of samples, see `minigraph.passes.WeightMeans`.
    sharded : bool
        Whether each rank updates a part of the parameters and keeps only its part of the optimizer's state, see
        `minigraph.passes.ShardOptimizerState`.
    sync_batch_norm : bool
        Whether a ``batch_norm`` has the statistics of all ranks' samples, see `minigraph.passes.SyncBatchNorm`. It goes
        without `exact`.

    Raises
    ------
    ProgramError
        If the program has no backward pass, or cannot be divided into shards.
    VerifyError
        If ranks would not train as one does, see `minigraph.parallel.verify`.

    Warns
    -----
    UserWarning
        If the loss averages over samples and `ragged` is false: ranks must then be fed as many samples each. If the
        loss is no mean over samples. If samples lie along another dimension of a feed than the first of unknown size.
        If a ``batch_norm`` normalizes by the samples of a rank, or something such as ``auc`` keeps state of them that
        `exact` can't join. Without `exact`, if each rank draws random numbers for itself, as ``dropout`` and ``nce``
        do. With `exact`, if the number of BLAS threads is not chosen.

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph.parallel import DataParallel
    >>> main, startup = fluid.Program(), fluid.Program()
    >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
    ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1, bias_attr=False))
    ...     clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    ...     _ = fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(loss)
    >>> twin = DataParallel(ranks=4)(main)
    >>> for line in str(fluid.diff(main, twin)).splitlines():
    ...     if line.startswith("+"):
    ...         print(line)
    +   mean_0.tmp_0@GRAD = scale(X=mean_0.tmp_0@GRAD) {scale=0.25, role='backward'}
    +   fc_0.w_0@GRAD = c_sync_calc_stream(X=fc_0.w_0@GRAD) {role='backward'}
    +   fc_0.w_0@GRAD = c_allreduce_sum(X=fc_0.w_0@GRAD) {role='backward'}
    +   fc_0.w_0@GRAD = c_sync_comm_stream(X=fc_0.w_0@GRAD) {role='backward'}
    """

    shards: int = 0
    exact: bool = False
    ragged: bool = False
    sharded: bool = False
    sync_batch_norm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shards and not self.exact:
            raise ProgramError(f"{self.name}: shards={self.shards} needs exact=True")
        if self.exact and self._shards % self.ranks:
            raise ProgramError(f"{self.name}: {self.ranks} ranks cannot share {self._shards} shards")
        if self.exact and self.sync_batch_norm:
            raise ProgramError(
                f"{self.name}: sync_batch_norm=True needs all samples at once, but exact=True computes shard by shard",
                hint="Leave one of the two out; with exact=True the statistics are those of shards.",
            )

    @property
    def _shards(self) -> int:
        return self.shards or self.ranks

    def apply(self, program: Program) -> bool:
        changed = self.sync_batch_norm and self.ranks > 1 and SyncBatchNorm().apply(program)
        statistics = dict(of_own_samples(program)) if self.ranks > 1 else {}
        self._warn_of_losses(program)
        if self.ranks > 1 and not self.exact and (draws := describe_draws(program)) is not None:
            warn(draws)
        if self.exact:
            warn_of_threads()
            changed = ShardBatch(self._shards // self.ranks).apply(program)
            program.is_exact = True
        if self.ranks > 1 and self.ragged:
            WeightMeans(self.ranks, self.scales_loss).apply(program)
        changed = super().apply(program) or changed
        if self.exact and self.ranks > 1 and changed:
            average_statistics(program, self.ranks)
            keepers = [op for op in statistics if op.type != "batch_norm"]
            for op in join_state(program, self.ranks, keepers):
                del statistics[op]
        for said in describe_statistics(statistics.items(), self.exact):
            warn(said)
        if self.sharded:
            changed = ShardOptimizerState(self.ranks, self._shards if self.exact else 0).apply(program) or changed
        if self.ranks > 1:
            verify(program, statistics="local", ranks=self.ranks, scales_loss=self.scales_loss)
        return changed

    def _warn_of_losses(self, program: Program) -> None:
        """Warn where the mean of the losses of ranks, or shards, is not the loss of all samples."""
        if (self._shards if self.exact else self.ranks) == 1:
            return
        if (feeds := describe_feeds(program)) is not None:
            warn(feeds)
        scales = self.scales_loss or self.exact
        if scales and self.ranks > 1 and (divided := describe_divided_loss(program, self.ranks)) is not None:
            warn(divided)
        mixed = describe_mixed_samples(program, scales, self.ragged and not self.exact)
        if mixed is not None:
            if not (self.ragged or self.exact) and describe_mixed_samples(program, scales, ragged=True) is None:
                mixed += "; or say DataParallel(..., ragged=True)"
            warn(mixed)
            return
        means = list(means_of_loss(program))
        is_fixed = fixed_batch(program.global_block()) is not None
        if self.exact or is_fixed:  # shards, or ranks, have as many samples, or sequences, but not rows
            own = _of_own_rows(program)
            means = [op for op in means if op.type not in ("mean", "reduce_mean") or not own.isdisjoint(op.input("X"))]
        if self.exact:
            who, hint = (
                "shard averages",
                "divide by a constant, or leave exact out and say DataParallel(..., ragged=True)",
            )
        elif is_fixed:
            who, hint = "rank averages", "divide by a constant, or say DataParallel(..., ragged=True)"
        else:
            who, hint = "rank averages", "feed all ranks as many samples, or say DataParallel(..., ragged=True)"
        if means and (self.exact or not self.ragged):
            names = ", ".join(op.output_arg_names[0] for op in reversed(means))
            warn(f"each {who} {names} over its own samples, and counts as much as others: {hint}")

    def prepare(self, startup: Program, program: Program | None = None) -> None:
        """Let every rank start with the parameters of rank 0.

        Parameters
        ----------
        startup : Program
            Rewritten in place.
        program : Program, optional
            The rewritten training program; needed if `sharded`, because each rank makes its part of the state.
        """
        if self.sharded:
            if program is None:
                raise ProgramError(
                    f"{self.name}: with sharded=True a startup program makes parts of the optimizer's state",
                    hint="Give the rewritten program too: prepare(startup, twin).",
                )
            shard_startup(startup, program)
        if self.exact:
            count_steps(startup)
        if self.ranks > 1:
            broadcast_parameters(startup, self.rings)


_SELECTIONS = frozenset({"unique", "unique_with_counts", "where_index"})
"""Operators whose results have as many rows as the values say."""


def _of_own_rows(program: Program) -> set[str]:
    """Names of values of which shards may have different numbers of rows: those of sequences, and of selected rows."""
    block = program.global_block()
    selected: set[str] = set()
    for op in block.ops:
        if op.type in _SELECTIONS or not selected.isdisjoint(op.input_arg_names):
            selected.update(op.output_arg_names)
    return selected.union([name for name, var in block.vars.items() if var.lod_level > 0])
