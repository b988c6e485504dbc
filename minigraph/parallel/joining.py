"""Make state of samples that of all ranks' samples: what keeps it reads what all ranks have made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minigraph.ir import Operator, Program, Role, VarKind
from minigraph.opdef import EMPTY, SUB_BLOCK
from minigraph.passes.rewriting import draws, insert_for, open_axes

_OF_SHARD = ".shard_"


def join_state(program: Program, ranks: int, keepers: Iterable[Operator]) -> set[Operator]:
    """Let operators with state of samples, such as ``auc``, read the samples of all ranks; return those operators.

    These operators, and those between them and the results of the shards, read the rows of all ranks in the order of
    the ranks. A number that is the mean over the shards of a rank becomes the mean over the ranks. So a fetched metric
    is that of all ranks, too. Operators that read sequences, or numbers that are no means, are left alone.

    Law: each rank's state has the bits that it has on one rank which is fed all samples.

    Parameters
    ----------
    program : Program
        What `ShardBatch` has made, rewritten in place.
    ranks : int
    keepers : iterable of Operator
        Operators of the program before, and therefore of its forward pass.
    """
    values = _Values(program)
    found = {op: part for op in keepers if op in values.reads and (part := values.part_before(op)) is not None}
    readers = set().union(*[part.ops for part in found.values()])
    sources = set().union(*[part.sources for part in found.values()])
    names: dict[str, str] = {}
    for op in list(program.global_block().ops):
        if op in readers:
            for name in op.input_arg_names:  # in their order, which is the same on every rank
                if name in sources and name not in names:
                    names[name] = _join(op, name, ranks)
            for slot, given in op.inputs.items():
                op.set_input(slot, [names.get(name, name) if name in sources else name for name in given])
    return set(found)


class _Part(NamedTuple):
    """Operators, and the values of one rank that they begin with."""

    ops: set[Operator]
    sources: set[str]


class _Read(NamedTuple):
    """A value that an operator reads."""

    maker: Operator | None
    is_of_samples: bool
    is_source: bool
    """Whether it is fed, or joined of the results of shards."""


class _Values:
    """Values that the operators of the forward pass read."""

    def __init__(self, program: Program) -> None:
        self.block = program.global_block()
        self.reads: dict[Operator, dict[str, _Read]] = {}
        now = {name: _Read(None, True, True) for name, var in self.block.vars.items() if var.is_data and open_axes(var)}
        nothing = _Read(None, False, False)
        for op in self.block.ops:
            if op.role & (Role.BACKWARD | Role.OPTIMIZE | Role.LR_SCHED):
                now.update(dict.fromkeys(op.output_arg_names, nothing))
                continue
            given = {name: now.get(name, nothing) for name in op.input_arg_names}
            of_shards = any(_OF_SHARD in name for name in given)
            is_of_samples = of_shards or any(read.is_of_samples for read in given.values())
            self.reads[op] = given
            now.update(dict.fromkeys(op.output_arg_names, _Read(op, is_of_samples, of_shards)))

    def part_before(self, op: Operator) -> _Part | None:
        """The operators from the shards' results to `op`; None if they can't read what all ranks have made."""
        ops, sources, waiting = {op}, set[str](), [op]
        while waiting:
            reader = waiting.pop()
            if SUB_BLOCK in reader.attrs or reader.definition.has_effect or draws(reader):
                return None
            for name, read in self.reads[reader].items():
                if read.is_source:
                    if not self._can_join(name, read):
                        return None
                    sources.add(name)
                elif read.is_of_samples and read.maker is not None and read.maker not in ops:
                    ops.add(read.maker)
                    waiting.append(read.maker)
        return _Part(ops, sources)

    def _can_join(self, name: str, read: _Read) -> bool:
        var = self.block.find_var(name)
        if var is None or var.kind is not VarKind.LOD_TENSOR or var.lod_level or name == EMPTY:
            return False
        return open_axes(var) == [0] or (read.maker is not None and read.maker.type == "scale" and var.shape == (1,))


def _join(reader: Operator, name: str, ranks: int) -> str:
    """Insert, in front of its first reader, what makes the value of all ranks."""
    block = reader.block
    joined = f"{name}.of_ranks"
    block.create_var(name=joined, stop_gradient=True)
    if open_axes(block.var(name)):
        insert_for(reader, "c_allgather", {"X": name}, {"Out": joined}, {"nranks": ranks, "use_calc_stream": True})
        return joined
    insert_for(reader, "c_allreduce_sum", {"X": name}, {"Out": joined}, {"use_calc_stream": True})
    insert_for(reader, "scale", {"X": joined}, {"Out": joined}, {"scale": 1.0 / ranks})
    return joined
