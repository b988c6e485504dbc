"""From a program to the program of one rank: the public pass."""

from __future__ import annotations

from dataclasses import dataclass

from minigraph.ir import Program
from minigraph.passes.collective import GradAllReduce, broadcast_parameters


@dataclass(frozen=True)
class DataParallel(GradAllReduce):
    """Make a training program one of `ranks` ranks, each of which is fed its own samples.

    It inserts what Paddle's collective transpiler inserts, see `minigraph.passes.GradAllReduce`: gradients are summed
    over ranks where the backward pass has made them, so that clips and decays see the gradient of all samples.

    Attributes
    ----------
    ranks : int
        Number of ranks.
    rings : int
        Number of groups of connections, which exchanges take in turns.
    scales_loss : bool
        Whether to divide the gradient of the loss by the number of ranks.

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph.parallel import DataParallel
    >>> main, startup = fluid.Program(), fluid.Program()
    >>> with fluid.program_guard(main, startup):
    ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1, bias_attr=False))
    ...     clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    ...     _ = fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(loss)
    >>> twin = DataParallel(ranks=4)(main)
    >>> print(fluid.diff(main, twin))  # doctest: +ELLIPSIS
    ...
    """

    def prepare(self, startup: Program) -> None:
        """Let every rank start with the parameters of rank 0."""
        broadcast_parameters(startup, self.rings)
