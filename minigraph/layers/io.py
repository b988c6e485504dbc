"""Variables that are fed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.defaults import default_main_program
from minigraph.errors import WrongTypeError, caller_site
from minigraph.ir import Variable


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: Any = None,
    stop_gradient: bool = True,
) -> Variable:
    """A variable to feed, of shape ``[-1, *shape]``.

    The batch dimension is not added when `append_batch_size` is False or `shape` holds a -1 or None already.
    What is fed may have another dtype if the conversion changes no value.
    """
    dims = _dims(shape)
    if append_batch_size and -1 not in dims:
        dims = [-1, *dims]
    return (
        default_main_program()
        .current_block()
        .create_var(name=name, shape=dims, dtype=dtype, lod_level=lod_level, stop_gradient=stop_gradient, is_data=True)
    )


def fluid_data(name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0) -> Variable:
    """A variable to feed, of exactly this shape (None or -1: any size) and dtype; ``minigraph.data``."""
    return (
        default_main_program()
        .current_block()
        .create_var(
            name=name,
            shape=_dims(shape),
            dtype=dtype,
            lod_level=lod_level,
            stop_gradient=True,
            is_data=True,
            need_check_feed=True,
        )
    )


def _dims(shape: Sequence[int | None]) -> list[int]:
    if not isinstance(shape, list | tuple):
        raise WrongTypeError(f"shape must be a list of sizes, got {shape!r:.80}", site=caller_site(), hint="Write [n].")
    return [-1 if dim is None else int(dim) for dim in shape]
