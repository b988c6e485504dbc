"""Exchange of arrays with the other ranks, by the current communicator."""

from __future__ import annotations

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel
from minigraph.kernels.sparse_rows import SparseRows
from minigraph.support.communicator import REDUCTIONS, Call, check_size, current


def _call(type, names, ring_id, x):
    return Call(type, names[0], ring_id, str(x.dtype), x.shape)


def _all_reduce(reduction):
    type = f"c_allreduce_{reduction}"

    @kernel(type)
    def reduce(xp, x, *, ring_id, op_input_names):
        return current().on(xp).all_reduce(x, reduction, _call(type, op_input_names, ring_id, x))


for _reduction in REDUCTIONS:
    _all_reduce(_reduction)


@kernel("merged_c_allreduce_sum", view="x", joins="over")
def merged_c_allreduce_sum(xp, x, *, ring_id, op_input_names, over=None):
    flat = over if over is not None else xp.concatenate([each.reshape(-1) for each in x])
    total = current().on(xp).all_reduce(flat, "sum", merged_call(op_input_names, ring_id, flat), over)
    parts, start = [], 0
    for each in x:
        parts.append(total[start : start + each.size].reshape(each.shape))
        start += each.size
    return parts


def merged_call(names, ring_id, flat):
    """The exchange of several arrays as one vector."""
    return _call("merged_c_allreduce_sum", (f"{names[0]} and {len(names) - 1} more",), ring_id, flat)


@kernel("c_allreduce_sum", rows=True)
def all_reduce_rows(xp, x, *, ring_id, op_input_names):
    """The rows of all ranks one after the other, as the sum of selected rows is."""
    call = _call("c_allreduce_sum", op_input_names, ring_id, x)._replace(shape=(-1, *x.shape[1:]))
    rows = current().on(xp).all_gather(x.rows, call._replace(dtype=str(x.rows.dtype)))
    return SparseRows(rows, current().on(xp).all_gather(x.value, call), x.height)


@kernel("c_broadcast")
def c_broadcast(xp, x, *, ring_id, root, op_input_names):
    ranks = current().size
    if root >= ranks:
        raise ExecutionError(f"root is {root}, but the ranks are 0 to {ranks - 1}", hint="Give one of them as root.")
    return current().on(xp).broadcast(x, root, _call("c_broadcast", op_input_names, ring_id, x))


@kernel("c_allgather")
def c_allgather(xp, x, *, ring_id, nranks, op_input_names):
    check_size(nranks)
    return current().on(xp).all_gather(x, _call("c_allgather", op_input_names, ring_id, x))


@kernel("c_reducescatter")
def c_reducescatter(xp, x, *, ring_id, nranks, op_input_names):
    check_size(nranks)
    return current().on(xp).reduce_scatter(x, _call("c_reducescatter", op_input_names, ring_id, x))


@kernel("c_sync_calc_stream", view="x", rows=True)
@kernel("c_sync_calc_stream", view="x")
def c_sync_calc_stream(xp, x):
    return x


@kernel("c_sync_comm_stream", view="x", rows=True)
@kernel("c_sync_comm_stream", view="x")
def c_sync_comm_stream(xp, x):
    return x


@kernel("c_gen_nccl_id")
def c_gen_nccl_id(xp, *, endpoint, other_endpoints):
    name = "\n".join(sorted([endpoint, *other_endpoints])).encode()
    return xp.asarray(np.random.default_rng([*name]).integers(0, 256, 128, np.uint8))


@kernel("c_comm_init")
def c_comm_init(xp, x, *, nranks, rank):
    check_size(nranks)
    found = current().rank
    if found != rank:
        raise ExecutionError(f"the program is for rank {rank}, but this is rank {found}")
    current().on(xp)  # connects GPUs, which may fail
    return ()


@kernel("c_comm_init_all")
def c_comm_init_all(xp):
    return ()
