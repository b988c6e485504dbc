"""From a program to the program of one rank: the public pass."""

from __future__ import annotations

from dataclasses import dataclass

from minigraph.errors import ProgramError, warn
from minigraph.ir import Program
from minigraph.parallel.machine import warn_of_threads
from minigraph.parallel.verifying import verify
from minigraph.passes.collective import GradAllReduce, broadcast_parameters
from minigraph.passes.shards import ShardBatch, count_steps
from minigraph.passes.weighted_means import WeightMeans, means_of_loss
from minigraph.support.public import public


@public
@dataclass(frozen=True)
class DataParallel(GradAllReduce):
    """Make a training program one of `ranks` ranks, each of which is fed its own samples.

    It inserts what Paddle's collective transpiler inserts, see `minigraph.passes.GradAllReduce`: gradients are summed
    over ranks where the backward pass has made them, so that clips and decays see the gradient of all samples.

    With `exact`, each rank computes its part of `shards` shards of the batch one by one, and sums over them have one
    order: the bits of parameters, norms and factors are the same on every number of ranks that divides `shards`. They
    are so on machines with the same processor, BLAS and number of its threads.

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

    Raises
    ------
    ProgramError
        If the program has no backward pass, or cannot be divided into shards.
    VerifyError
        If ranks would not train as one does, see `minigraph.parallel.verify`.

    Warns
    -----
    UserWarning
        If the loss averages over samples and `ragged` is false: ranks must then be fed as many samples each. With
        `exact`, if the number of BLAS threads is not chosen.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shards and not self.exact:
            raise ProgramError(f"{self.name}: shards={self.shards} needs exact=True")
        if self.exact and self._shards % self.ranks:
            raise ProgramError(f"{self.name}: {self.ranks} ranks cannot share {self._shards} shards")

    @property
    def _shards(self) -> int:
        return self.shards or self.ranks

    def apply(self, program: Program) -> bool:
        changed = False
        if self.exact:
            warn_of_threads()
            changed = ShardBatch(self._shards // self.ranks).apply(program)
            program.is_exact = True
        if self.ranks > 1:
            self._weight_means(program)
        changed = super().apply(program) or changed
        if self.ranks > 1:
            verify(program, statistics="local")
        return changed

    def _weight_means(self, program: Program) -> None:
        if self.ragged:
            WeightMeans(self.ranks).apply(program)
            return
        means = [op.output("Out")[0] for op in means_of_loss(program)]
        if means and not self.exact:
            warn(
                f"each rank averages {', '.join(means[::-1])} over its own samples, and counts as much as others: feed "
                "all ranks as many samples, or say DataParallel(..., ragged=True)"
            )

    def prepare(self, startup: Program) -> None:
        """Let every rank start with the parameters of rank 0."""
        if self.exact:
            count_steps(startup)
        if self.ranks > 1:
            broadcast_parameters(startup, self.rings)
