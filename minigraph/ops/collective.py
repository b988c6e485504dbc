"""Exchange between the ranks that run a program; the current communicator says who they are.

Paddle 1.8 declares the same slots and attributes. `use_calc_stream` chooses a stream of a GPU and changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, GradRule, OpSpec
from minigraph.types import RAW, TensorType, require


def _grad_by(type: str) -> GradRule:
    """The gradient rule of an operator whose gradient is another exchange, with the same attributes."""

    def rule(ctx: GradContext) -> Iterator[OpSpec]:
        yield OpSpec(type, {"X": ctx.d_output("Out")}, {"Out": ctx.d_input("X")}, ctx.op.attrs)

    return rule


def _all_reduce(x: TensorType, *, ring_id: int = 0, use_calc_stream: bool = False) -> TensorType:
    return x


for _reduction, _result in (
    ("sum", "sum"), ("max", "largest element"), ("min", "smallest element"), ("prod", "product"),
):  # fmt: skip
    op(
        f"c_allreduce_{_reduction}",
        inputs="X",
        outputs="Out",
        rows="X" if _reduction == "sum" else "",
        # The sum's gradient on each rank is the sum of what flows into the results of all; the original has no others.
        grad=_grad_by("c_allreduce_sum") if _reduction == "sum" else None,
        has_effect=True,
        doc=f"The {_result} over all ranks, elementwise, on every rank.",
    )(_all_reduce)


@op("merged_c_allreduce_sum", inputs="X", outputs="Out*", grad=None, has_effect=True)
def merged_c_allreduce_sum(x: list[TensorType], *, ring_id: int = 0) -> tuple[list[TensorType]]:
    """``c_allreduce_sum`` of each, in one exchange."""
    require(len({each.dtype for each in x}) <= 1, f"X must have one element type, got {', '.join(map(str, x))}")
    return (list(x),)


@op("c_broadcast", inputs="X", outputs="Out", grad=None, has_effect=True)
def c_broadcast(x: TensorType, *, ring_id: int = 0, root: int = 0, use_calc_stream: bool = False) -> TensorType:
    """X of rank `root`, on every rank."""
    require(root >= 0, f"root must be the number of a rank, got {root}")
    return x


@op("c_allgather", inputs="X", outputs="Out", grad=_grad_by("c_reducescatter"), has_effect=True)
def c_allgather(x: TensorType, *, ring_id: int = 0, nranks: int, use_calc_stream: bool = False) -> TensorType:
    """X of all ranks along the first dimension, in the order of ranks."""
    require(nranks >= 1, f"nranks must be at least 1, got {nranks}")
    require(x.rank >= 1, "X has no dimension to join along")
    return x.with_shape((x.shape[0] * nranks if x.shape[0] >= 0 else -1, *x.shape[1:]))


@op("c_reducescatter", inputs="X", outputs="Out", grad=_grad_by("c_allgather"), has_effect=True)
def c_reducescatter(x: TensorType, *, ring_id: int = 0, nranks: int, use_calc_stream: bool = False) -> TensorType:
    """The sum of X over all ranks, of which each rank gets one part along the first dimension."""
    require(nranks >= 1, f"nranks must be at least 1, got {nranks}")
    require(x.rank >= 1, "X has no dimension to divide")
    require(x.shape[0] % nranks == 0 or x.shape[0] < 0, f"{nranks} ranks cannot divide {x.shape[0]} rows")
    return x.with_shape((x.shape[0] // nranks if x.shape[0] >= 0 else -1, *x.shape[1:]))


@op("c_sync_calc_stream", inputs="X", outputs="Out", rows="X", grad=None)
def c_sync_calc_stream(x: TensorType) -> TensorType:
    """X. On a GPU the original waits for its computation here; an executor's runs are in order anyway."""
    return x


@op("c_sync_comm_stream", inputs="X", outputs="Out", rows="X", grad=None)
def c_sync_comm_stream(x: TensorType, *, ring_id: int = 0) -> TensorType:
    """X. On a GPU the original waits for the exchange here; an executor's runs are in order anyway."""
    return x


@op("c_gen_nccl_id", outputs="Out", grad=None)
def c_gen_nccl_id(*, rank: int, endpoint: str, other_endpoints: list[str]) -> TensorType:
    """A name for the group of ranks at `endpoint` and `other_endpoints`, the same on each of them."""
    return RAW


@op("c_comm_init", inputs="X", outputs="", grad=None, has_effect=True, arrays="X")
def c_comm_init(x: TensorType, *, nranks: int, rank: int, ring_id: int = 0) -> tuple[()]:
    """Check that `nranks` ranks run this program, of which this one is number `rank`."""
    require(0 <= rank < nranks, f"rank must be from 0 to {nranks - 1}, got {rank}")
    return ()


@op("c_comm_init_all", outputs="", grad=None, has_effect=True)
def c_comm_init_all(*, devices: list[int] = (), ring_id: int = 0) -> tuple[()]:  # type: ignore[assignment]
    """Nothing: the ranks of one process know each other."""
    return ()
