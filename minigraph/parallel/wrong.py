"""The error for a program of one of several ranks that computes something else than one rank would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minigraph.errors import VerifyError
from minigraph.ir import Block, Operator

_LAW = "what ranks take for the same is the same on every rank"


def wrong(op: Operator, what: str, why: str, hint: str, details: Sequence[str] = (), law: str = _LAW) -> VerifyError:
    """The error that `op` does something which has a bad effect."""
    return VerifyError(f"{op.type} {what}: {why}", op=op, law=law, details=[str(op), *details], hint=hint)


def every_op(block: Block) -> Iterator[Operator]:
    """The operators of a block, each followed by those of the block that it runs."""
    for op in block.ops:
        yield op
        if op.sub_block is not None:
            yield from every_op(op.sub_block)
