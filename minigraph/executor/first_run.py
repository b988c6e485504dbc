"""Check, when ranks first run a program that sums gradients, that they begin with the same parameters."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import numpy as np

from minigraph.errors import warn
from minigraph.ir import Program
from minigraph.passes.rewriting import completed_pairs
from minigraph.runtime.scope import Scope
from minigraph.support.communicator import Call, Communicator

_FEW = 4096
"""Maximum elements of a parameter that are compared: numbers drawn from other seeds differ in the first ones."""

_seen: WeakKeyDictionary[Scope, set[int]] = WeakKeyDictionary()
"""Serial numbers of the programs that have run in a scope."""


def compare_parameters(program: Program, scope: Scope, ranks: Communicator) -> None:
    """Compare the parameters whose gradients are summed, in the first run of the program in this scope.

    All ranks run one program in the same order, so that all compare at the same time.

    Warns
    -----
    UserWarning
        If they differ.
    """
    seen = _seen.setdefault(scope, set())
    if program.serial in seen:
        return
    seen.add(program.serial)
    names = sorted(set(_summed(program)))
    if not names:
        return
    call = Call("the first run of a program", "digests of parameters", 0, "int64", (1,))
    found = ranks.gather(np.array([_digest(names, scope)], np.int64), call)
    if len({int(each[0]) for each in found}) > 1:
        warn(
            f"ranks begin with different parameters ({names[0]} and {len(names) - 1} more are compared), so that they "
            "do not train one network: rewrite the startup program by DataParallel(...).prepare(startup), or give all "
            "ranks the same random_seed"
        )


def _summed(program: Program) -> Iterator[str]:
    """Names of the parameters whose gradients are summed over the ranks."""
    ops = program.global_block().ops
    sums = {
        name for type in ("c_allreduce_sum", "c_reduce_parts") for op in ops.of_type(type) for name in op.input("X")
    }
    for op in ops if sums else ():
        yield from (param for param, grad in completed_pairs(op) if grad in sums)


def _digest(names: list[str], scope: Scope) -> int:
    digest = 0
    for name in names:
        var = scope.find_var(name)
        if var is not None and var.value is not None:
            array = np.asarray(var.get_tensor()).reshape(-1)[:_FEW]
            digest = zlib.crc32(array.tobytes(), digest)
    return digest
