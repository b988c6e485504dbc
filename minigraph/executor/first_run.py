"""Check, when ranks first run a program that sums gradients, that they begin alike and make the same updates."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import numpy as np

from minigraph.errors import warn
from minigraph.ir import Operator, Program, Role
from minigraph.opdef import SUB_BLOCK, is_update
from minigraph.runtime.scope import Scope
from minigraph.support.communicator import Call, Communicator

_FEW = 4096
"""Maximum elements of a parameter that are compared: numbers drawn from other seeds differ in the first ones."""

_seen: WeakKeyDictionary[Scope, set[int]] = WeakKeyDictionary()
"""Serial numbers of the programs that have run in a scope."""


def compare_starts(program: Program, scope: Scope, ranks: Communicator) -> None:
    """Compare what ranks begin with, in the first run in this scope of a program that sums gradients.

    These are the parameters whose gradients are summed, what else their updates read, such as a learning rate, and the
    attributes of the updates. All ranks run one program in the same order, so that all compare at the same time.

    Warns
    -----
    UserWarning
        If they differ.
    """
    seen = _seen.setdefault(scope, set())
    if program.serial in seen:
        return
    seen.add(program.serial)
    params = sorted(set(_summed(program)))
    if not params:
        return
    names = [*params, *sorted(_state_of_updates(program).difference(params))]
    digests = np.array([*(_digest(name, scope) for name in names), _digest_of_updates(program)], np.int64)
    call = Call("the first run of a program", "digests of parameters and updates", 0, "int64", digests.shape)
    found = np.stack(ranks.gather(digests, call))
    differs = (found != found[0]).any(0).tolist()
    different = [name for name, is_different in zip(names, differs, strict=False) if is_different]
    if not set(params).isdisjoint(different):
        warn(
            f"ranks begin with different parameters ({different[0]} and {len(different) - 1} more), so that they do "
            "not train one network: rewrite the startup program by DataParallel(...).prepare(startup), or give all "
            "ranks the same random_seed"
        )
    elif different:
        warn(
            f"ranks begin with different values of {', '.join(different[:3])}, which updates read, so that parameters "
            "of ranks drift apart: give all ranks the same"
        )
    elif differs[-1]:
        warn(
            "ranks make different updates, such as by other learning rates or thresholds, so that parameters of ranks "
            "drift apart: make the programs of all ranks without conditions on the rank"
        )


def _summed(program: Program) -> Iterator[str]:
    """Names of the parameters whose gradients are summed over the ranks."""
    ops = program.global_block().ops
    sums = {
        name for type in ("c_allreduce_sum", "c_reduce_parts") for op in ops.of_type(type) for name in op.input("X")
    }
    if sums:
        from minigraph.passes.rewriting import completed_pairs  # late: a program that is only built needs none

        for op in ops:
            yield from (param for param, grad in completed_pairs(op) if grad in sums)


def _state_of_updates(program: Program) -> set[str]:
    """Names of the state, the same on every rank, that updates and schedules of learning rates read."""
    from minigraph.passes.ranks.shard_state import sharded_state  # late: a run of one rank shares no state

    block = program.global_block()
    read = {name for op in block.ops if _is_of_updates(op) for name in op.input_arg_names}
    state = {name for name in read if (var := block.find_var(name)) is not None and var.persistable}
    return state.difference(sharded_state(program))


def _is_of_updates(op: Operator) -> bool:
    return is_update(op.definition) or bool(op.role & Role.LR_SCHED)


def _digest(name: str, scope: Scope) -> int:
    var = scope.find_var(name)
    if var is None or var.value is None:
        return 0
    return zlib.crc32(np.asarray(var.get_tensor()).reshape(-1)[:_FEW].tobytes())


def _digest_of_updates(program: Program) -> int:
    """A digest of the types and attributes of updates, and of what else the optimizer does, such as clips."""
    ops = [op for op in program.global_block().ops if op.role & (Role.OPTIMIZE | Role.LR_SCHED)]
    attrs = [sorted((name, repr(value)) for name, value in op.attrs.items() if name != SUB_BLOCK) for op in ops]
    return zlib.crc32(repr([*zip([op.type for op in ops], attrs, strict=True)]).encode())
