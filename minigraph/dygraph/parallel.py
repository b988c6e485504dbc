"""The interface by which a script of the imperative mode trains on several ranks."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigraph.dygraph.layer import Layer
from minigraph.eager.block import EagerBlock
from minigraph.eager.guard import eager_block
from minigraph.eager.tensor import EagerParameter
from minigraph.errors import ProgramError, warn
from minigraph.kernels.collective import all_reduce_rows
from minigraph.runtime.scope_variable import is_rows
from minigraph.support.communicator import Call, current
from minigraph.support.public import public

__all__ = ["DataParallel", "Env", "ParallelEnv", "ParallelStrategy", "prepare_context"]


_NO_HINT = "train a program by parallel.DataParallel(..., exact=True) if another number of ranks is to give the same"


class ParallelEnv:
    """The place of this process among the ranks, as the launcher's environment variables give it.

    In `minigraph.parallel.simulate`, which sets none, it is that of the simulated rank.
    """

    @property
    def nranks(self) -> int:
        """Number of ranks: ``PADDLE_TRAINERS_NUM``, else the number of ranks that run."""
        return int(os.environ.get("PADDLE_TRAINERS_NUM", current().size))

    @property
    def local_rank(self) -> int:
        """Number of this rank: ``PADDLE_TRAINER_ID``, else that of the rank that runs."""
        return int(os.environ.get("PADDLE_TRAINER_ID", current().rank))

    @property
    def dev_id(self) -> int:
        """Number of the GPU: ``FLAGS_selected_gpus``, or 0."""
        return int(os.environ.get("FLAGS_selected_gpus", "0"))  # noqa: SIM112

    @property
    def current_endpoint(self) -> str:
        """Address of this rank: ``PADDLE_CURRENT_ENDPOINT``."""
        return os.environ.get("PADDLE_CURRENT_ENDPOINT", "")

    @property
    def trainer_endpoints(self) -> list[str]:
        """Addresses of all ranks: ``PADDLE_TRAINER_ENDPOINTS``."""
        return os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")


Env = ParallelEnv


@dataclass
class ParallelStrategy:
    """The ranks that `DataParallel` uses."""

    nranks: int = 1
    local_rank: int = 0
    trainer_endpoints: list[str] = field(default_factory=list)
    current_endpoint: str = ""


@public
def prepare_context(strategy: ParallelStrategy | None = None) -> ParallelStrategy:
    """The strategy for `DataParallel`, by default from the environment.

    Raises
    ------
    ProgramError
        If the strategy has another number of ranks than run.
    """
    if strategy is None:
        env = ParallelEnv()
        strategy = ParallelStrategy(env.nranks, env.local_rank, env.trainer_endpoints, env.current_endpoint)
    _check_ranks(strategy)
    return strategy


@public
class DataParallel(Layer):
    """A layer that trains on every rank; with one rank it is the layer itself.

    Ranks start with the same parameters if they are made from the same seed. In each step the loss is divided by
    `scale_loss`, and gradients are summed by `apply_collective_grads` between ``backward`` and ``minimize``.

    Parameters
    ----------
    layers : Layer
    strategy : ParallelStrategy, optional
        From `prepare_context`.

    Warns
    -----
    UserWarning
        Once each: if ranks begin with different parameters, if the first loss depends on random numbers that each rank
        draws for itself, if gradients are cleared that were not summed over the ranks, and if gradients are summed that
        have been summed and not cleared since.

    Examples
    --------
    >>> from minigraph import dygraph
    >>> with dygraph.guard():
    ...     model = dygraph.DataParallel(dygraph.Linear(2, 1), dygraph.prepare_context())
    ...     [name for name, _ in model.state_dict().items()]
    ['weight', 'bias']
    """

    def __init__(self, layers: Layer, strategy: ParallelStrategy | None = None) -> None:
        super().__init__(f"{layers.full_name()}_data_parallel")
        self._layers = layers
        self._strategy = strategy or ParallelStrategy()
        _check_ranks(self._strategy)
        self._watch = _Watch()

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self._strategy.nranks > 1:
            self._watch.begin_draws()
        return self._layers(*inputs, **kwargs)

    def scale_loss(self, loss: Any) -> Any:
        """The loss divided by the number of ranks."""
        if self._strategy.nranks == 1:
            return loss
        self._watch.begin(self._gradients())
        self._watch.end_draws()
        return loss / float(self._strategy.nranks)

    def apply_collective_grads(self) -> None:
        """Sum the gradients of the parameters over the ranks: those of one type in one exchange."""
        if self._strategy.nranks == 1:
            return
        xp = eager_block().place.xp
        groups: dict[Any, list[Any]] = {}
        self._watch.check_before_sum(self._layers.parameters(), self._gradients())
        for grad in self._gradients():
            if is_rows(grad.array):
                grad.array = all_reduce_rows(xp, grad.array, ring_id=0, op_input_names=("a gradient",))
            else:
                groups.setdefault(grad.array.dtype, []).append(grad)
        for dtype, grads in groups.items():
            flat = xp.concatenate([grad.array.reshape(-1) for grad in grads])
            # Names may differ between ranks that are threads of one process.
            call = Call("apply_collective_grads", f"{len(grads)} gradients", 0, str(dtype), flat.shape)
            ends = np.cumsum([grad.array.size for grad in grads])
            parts = xp.split(current().on(xp).all_reduce(flat, "sum", call), ends[:-1].tolist())
            for grad, part in zip(grads, parts, strict=True):
                grad.array = part.reshape(grad.array.shape)
        self._watch.end_sum(self._gradients())

    def _gradients(self) -> list[Any]:
        """The gradients that parameters have."""
        params = [p for p in self._layers.parameters() if isinstance(p, EagerParameter) and p.trainable]
        return [param.grad for param in params if param.grad is not None]

    def state_dict(
        self,
        destination: dict[str, Any] | None = None,
        include_sublayers: bool = True,
        structured_name_prefix: str = "",
    ) -> dict[str, Any]:
        """`Layer.state_dict` of the layer, whose names are those without `DataParallel`."""
        return self._layers.state_dict(destination, include_sublayers, structured_name_prefix)

    def set_dict(
        self, stat_dict: Mapping[str, Any], include_sublayers: bool = True, use_structured_name: bool = True
    ) -> None:
        """`Layer.set_dict` of the layer."""
        self._layers.set_dict(stat_dict, include_sublayers, use_structured_name)

    load_dict = set_dict


class _Watch:
    """Notice steps after which ranks do not train as one."""

    def __init__(self) -> None:
        self._is_open = False
        """Whether a loss was divided, and gradients not summed since."""
        self._has_summed = False
        """Whether gradients were summed that were there when the next loss was divided."""
        self._is_first = True
        self._summed: list[Any] = []
        """Arrays of the latest sum; the gradient has another one when it was cleared or added to."""
        self._said: set[str] = set()
        self._draws_of: EagerBlock | None = None
        """The block that notes what the first loss draws, until it is divided."""
        self._has_drawn = False

    def begin_draws(self) -> None:
        """Note the operators that draw random numbers from the first call of the layers on."""
        if not self._has_drawn:
            self._draws_of, self._has_drawn = eager_block(), True
            self._draws_of.drawing = []

    def end_draws(self) -> None:
        """Name the operators by which the first loss depends on random numbers of one rank."""
        if self._draws_of is None:
            return
        drawing, self._draws_of.drawing, self._draws_of = self._draws_of.drawing or [], None, None
        from minigraph.passes.ranks.own_draws import draws_of_rank, said_of  # late: nothing else here needs passes

        said = said_of(list(filter(draws_of_rank, drawing)), hint=_NO_HINT)
        if said is not None:
            self._say(said)

    def begin(self, gradients: Sequence[Any]) -> None:
        """Check, when a loss is divided, what became of the gradients of the one before."""
        if self._is_open and not any(map(_has_value, gradients)):
            self._say(
                "gradients were cleared that were not summed over the ranks, so that parameters of ranks drift apart: "
                "call apply_collective_grads() between backward() and minimize()"
            )
        is_kept = self._has_summed and any(map(_has_value, gradients))
        self._has_summed = is_kept or self._are_of_sum(gradients)
        self._is_open = True

    def check_before_sum(self, params: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Check what is to be summed over the ranks."""
        if self._is_first and not _are_alike(params):
            self._say(
                "ranks begin with different parameters: set the same seed on each before the layers are made, or load "
                "the same parameters"
            )
        if self._has_summed or self._are_of_sum(gradients):
            self._say(
                "gradients are summed over the ranks that were summed already and not cleared since, so that they "
                "count once for each rank: call apply_collective_grads() once, behind the last backward() of a step"
            )
        self._is_open = self._has_summed = self._is_first = False

    def end_sum(self, gradients: Sequence[Any]) -> None:
        """Note which arrays were summed."""
        self._summed = [grad.array for grad in gradients]

    def _are_of_sum(self, gradients: Sequence[Any]) -> bool:
        return any(grad.array is summed for grad in gradients for summed in self._summed)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            warn(text)


def _has_value(gradient: Any) -> bool:
    """Whether a gradient was not cleared, which sets it to zero."""
    array = gradient.array
    return bool(array.rows.size if is_rows(array) else array.any())


def _are_alike(params: Sequence[Any]) -> bool:
    """Whether all ranks have the same parameters."""
    digest = 0
    for param in params:
        digest = zlib.crc32(param.numpy().tobytes(), digest)
    call = Call("apply_collective_grads", "digests of parameters", 0, "int64", (1,))
    return len({int(each[0]) for each in current().gather(np.array([digest], np.int64), call)}) == 1


def _check_ranks(strategy: ParallelStrategy) -> None:
    size = current().size
    if strategy.nranks != size:
        raise ProgramError(
            f"the strategy is for {strategy.nranks} ranks, but {size} {'run' if size > 1 else 'runs'}",
            hint=f"Start the script by `python -m minigraph launch -n {strategy.nranks} SCRIPT`.",
        )
