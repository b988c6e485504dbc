"""Reading and writing files: whole or not at all.

Files are written beside their final place, flushed to the disk, and renamed: a crash at any time leaves either the old
file or the new one, whole. Where several files belong together, all are on the disk before the first is renamed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from minigraph.errors import DataError, MissingFileError, ProgramError, WrongTypeError, caller_site

Chunks: TypeAlias = Iterable[bytes | memoryview]

_PREFIX, _SUFFIX = ".", ".minigraph-tmp"


def as_path(path: str | os.PathLike[str], what: str) -> Path:
    """`path` as a `Path`.

    Raises
    ------
    WrongTypeError
        If it is no path.
    ProgramError
        If it names no file, being empty or ending in a separator.
    """
    if not isinstance(path, str | os.PathLike):
        raise WrongTypeError(f"{what} must be a path, got {type(path).__name__}", site=caller_site())
    text = os.fspath(path)
    if os.path.basename(text) == "":
        raise ProgramError(f"{what} must end in the name of a file, got {text!r}", site=caller_site())
    return Path(text)


def inside(folder: Path, name: str) -> Path:
    """The file `name` in `folder`; a slash in `name` means a folder below.

    Raises
    ------
    DataError
        If it would lie outside of `folder`: names may come from a file that somebody else made.
    """
    path = os.path.normpath(name)
    if not name or os.path.isabs(path) or path.split(os.sep)[0] in ("..", ".") or "\0" in name:
        raise DataError(
            f"the variable {name!r} cannot be a file in {folder}", site=caller_site(),
            hint="Save all variables in one file, with filename=.",
        )  # fmt: skip
    return folder / path


def write_files(files: Mapping[Path, Chunks]) -> None:
    """Write every file whole or not at all, making folders as needed.

    Raises
    ------
    OSError
        As the system gives it, such as for a full disk. The old files are untouched then.
    """
    written: dict[Path, Path] = {}
    try:
        for path, chunks in files.items():
            target = path.resolve()  # what a link points to is replaced, not the link
            target.parent.mkdir(parents=True, exist_ok=True)
            written[target] = _new_name(target)
            _write(written[target], chunks)
            with suppress(FileNotFoundError):
                written[target].chmod(target.stat().st_mode & 0o7777)
        for target in list(written):
            os.replace(written[target], target)
            del written[target]
    finally:
        for left_over in written.values():
            with suppress(OSError):
                left_over.unlink()
    for folder in dict.fromkeys(path.resolve().parent for path in files):
        _sync_folder(folder)


def _new_name(path: Path) -> Path:
    return path.with_name(f"{_PREFIX}{path.name[:100]}.{secrets.token_hex(8)}{_SUFFIX}")


def _write(path: Path, chunks: Chunks) -> None:
    with open(path, "xb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Have the renames on the disk too, where the system can."""
    with suppress(OSError, AttributeError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def is_left_over(path: Path) -> bool:
    """Whether a file is what a writer that was killed has left behind."""
    return path.name.startswith(_PREFIX) and path.name.endswith(_SUFFIX)


def read_file(path: Path, what: str) -> bytes:
    """All bytes of a file.

    Raises
    ------
    MissingFileError
        If there is none.
    DataError
        If it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MissingFileError(f"there is no file {path} with {what}", site=caller_site(), hint=_nearby(path)) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}", site=caller_site()) from None


def _nearby(path: Path) -> str:
    if not path.parent.is_dir():
        return f"There is no folder {path.parent} either."
    names = sorted(entry.name for entry in path.parent.iterdir() if not is_left_over(entry))
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return f"The folder holds {shown}." if names else "The folder is empty."
