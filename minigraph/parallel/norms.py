"""Norms of gradients over ranks, of their own and of mean gradients, and the factors that clips compute from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.errors import ProgramError
from minigraph.executor import Executor
from minigraph.ir import Program, Role
from minigraph.runtime.scope import Scope, global_scope
from minigraph.runtime.scope_variable import SelectedRows
from minigraph.support.html import styled, table
from minigraph.support.public import public


@dataclass(frozen=True)
class NormsOverRanks:
    """Result of `compare_norms`.

    Attributes
    ----------
    local : tuple of float
        For each rank the joint norm of its own gradients.
    joint : float
        Norm of the mean of the ranks' gradients, by which one rank with all samples clips.
    clip_norm : float
        Threshold of the clip.
    """

    local: tuple[float, ...]
    joint: float
    clip_norm: float

    @property
    def local_factors(self) -> tuple[float, ...]:
        """The factor of each rank's own clip, before the gradients are summed."""
        return tuple(self._factor(norm) for norm in self.local)

    @property
    def factor(self) -> float:
        """The factor of the clip after the sum."""
        return self._factor(self.joint)

    def _factor(self, norm: float) -> float:
        return self.clip_norm / max(norm, self.clip_norm)

    def __str__(self) -> str:
        rows = [("", "norm", f"factor of {self.clip_norm:g}"), *self._rows()]
        return "\n".join(f"{name:12} {norm:>12} {factor:>16}" for name, norm, factor in rows)

    def html_table(self) -> str:
        """The table for the page of a report, see `save_html` of what `compare_gradients` returns."""
        caption = "Norms by which ranks would clip if each clipped its own gradients, and that of the mean of all."
        return table(caption, ["", "norm", f"factor of {self.clip_norm:g}"], self._rows(), strong=_ALL)

    def _repr_html_(self) -> str:
        return styled(self.html_table())

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        names = [*(f"rank {rank} alone" for rank in range(len(self.local))), _ALL]
        norms, factors = (*self.local, self.joint), (*self.local_factors, self.factor)
        return (
            (name, f"{norm:.6g}", f"{factor:.6g}") for name, norm, factor in zip(names, norms, factors, strict=True)
        )


_ALL = "all ranks"


@public
def compare_norms(
    program: Program,
    feeds: Sequence[dict[str, Any]],
    clip_norm: float,
    scope: Scope | None = None,
    executor: Executor | None = None,
) -> NormsOverRanks:
    """The norms by which ranks would clip if each clipped its own gradients, and the norm of the mean of all.

    Parameters
    ----------
    program : Program
        A training program, before or after `DataParallel`. Nothing is updated.
    feeds : sequence of dict
        What each rank is fed.
    clip_norm : float
        Threshold of a clip by the joint norm of all gradients.
    scope : Scope, optional
        Where the parameters are. Default: the global scope.
    executor : Executor, optional

    Raises
    ------
    ProgramError
        If the program has no backward pass, or no rank is fed.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> from minigraph import parallel
    >>> main, startup = fluid.Program(), fluid.Program()
    >>> with fluid.program_guard(main, startup):
    ...     zero = fluid.initializer.Constant(0.0)
    ...     y = fluid.layers.fc(fluid.data("x", [None, 2]), 1, param_attr=fluid.ParamAttr(initializer=zero))
    ...     _ = fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(y))
    >>> executor = fluid.Executor()
    >>> executor.run(startup)
    []
    >>> feeds = [{"x": np.full((1, 2), value, "float32")} for value in (2.0, -2.0)]
    >>> print(parallel.compare_norms(main, feeds, clip_norm=1.0))
                         norm      factor of 1
    rank 0 alone            3         0.333333
    rank 1 alone            3         0.333333
    all ranks               1                1

    The gradients of the ranks partly cancel: together they need no clip, and each rank's own would take two thirds.
    """
    if not feeds:
        raise ProgramError("compare_norms needs what at least one rank is fed")
    twin = program.clone()
    block = twin.global_block()
    names = list(dict.fromkeys(n for op in block.ops if op.role & Role.BACKWARD for n in op.role_vars[1::2]))
    if not names:
        raise ProgramError(
            "compare_norms: the program has no backward pass",
            hint="Call minimize or append_backward on its loss first.",
        )
    for op in list(block.ops):
        # The exchange between ranks, and the division by their number, would be in the way.
        if op.role & Role.OPTIMIZE or op.type.startswith("c_") or _scales_loss(op):
            block.remove(op)
    executor, scope = executor or Executor(), scope or global_scope()
    found = [[_dense(each) for each in executor.run(twin, feed, names, scope=scope)] for feed in feeds]
    means = [sum(grads) / len(feeds) for grads in zip(*found, strict=True)]
    return NormsOverRanks(tuple(_norm(grads) for grads in found), _norm(means), float(clip_norm))


def _scales_loss(op: Any) -> bool:
    """Whether an operator divides the gradient of a loss by the number of ranks."""
    before = op._prev
    return bool(op.type == "scale" and before is not None and before.role & Role.BACKWARD and before.role & Role.LOSS)


def _dense(grad: Any) -> np.ndarray[Any, Any]:
    return np.asarray(grad.numpy() if isinstance(grad, SelectedRows) else grad, np.float64)


def _norm(grads: Sequence[Any]) -> float:
    return float(np.sqrt(sum(np.vdot(grad, grad) for grad in grads)))
