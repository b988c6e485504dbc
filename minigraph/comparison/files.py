"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minigraph.errors import DataError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file beside `path` that takes its place when the block ends, and goes when the block fails.

    Raises
    ------
    DataError
        On entry, if `path` cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link is kept, and what it points to replaced
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and not (target.is_file() and os.access(target, os.W_OK)):
            raise PermissionError("is not a file that may be written" if not target.is_dir() else "is a directory")
        partial.open("wb").close()
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from None
    try:
        yield partial
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
