"""Read and write files: whole or not at all.

A file is written under a temporary name, flushed to the disk, and renamed: a crash at any time leaves either the old
file or the new one, whole. If several files belong together, all are on the disk before the first is renamed. The next
writer to a folder removes the temporary files of writers that were killed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Protocol, TypeAlias

from minigraph.errors import DataError, FileAccessError, MissingFileError, ProgramError, WrongTypeError, caller_site

Chunks: TypeAlias = Iterable[bytes | memoryview]

_SUFFIX = ".minigraph-tmp"
_is_temporary = re.compile(rf"\..+\.(?:([0-9a-f]{{8}})-([0-9]+)-)?[0-9a-f]{{8,16}}{re.escape(_SUFFIX)}", re.S).fullmatch
_WEEK = 7 * 24 * 3600.0
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ours: set[str] = set()
"""Names of the temporary files that this process is writing."""


class Mark(Protocol):
    """A statement about files that are saved together; see `minigraph.io.marks`."""

    def begin(self, digests: Mapping[Path, str]) -> None:
        """Note that all files are on the disk, and none is renamed yet."""

    def end(self) -> None:
        """Note that all files are in their places."""


def as_path(path: str | os.PathLike[str], what: str) -> Path:
    """`path` as a `Path`.

    Raises
    ------
    WrongTypeError
        If it is no path.
    ProgramError
        If it names no file, being empty or ending in a separator.
    """
    if not isinstance(path, str | os.PathLike):  # checked here because `profiler` uses its path after the call
        raise WrongTypeError(f"{what} must be a path, got {type(path).__name__}", hint=f"Give {what} as a str.")
    text = os.fspath(path)
    if os.path.basename(text) == "" or "\0" in text:
        raise ProgramError(f"{what} must end in the name of a file, got {text!r}", hint="Add a name, such as net.")
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


# Writing


def write_files(files: Mapping[Path, Chunks], mark: Mark | None = None) -> None:
    """Write every file whole or not at all, making folders as needed.

    Parameters
    ----------
    mark : Mark, optional
        Gets the digests of the files before the first is renamed, and is told when all are.

    Raises
    ------
    FileAccessError
        If a file cannot be written, such as on a full disk. The old files are untouched then.
    """
    places: dict[Path, Path] = {}
    digests: dict[Path, str] = {}
    with ExitStack() as partials:
        for path, chunks in files.items():
            target = Path(os.path.realpath(path))  # a link is kept, and what it points to replaced
            with _naming(path, "write"):
                target.parent.mkdir(parents=True, exist_ok=True)
                if all(target.parent != each.parent for each in places.values()):
                    _remove_left_over(target.parent)
                partial = partials.enter_context(_beside(target))
                digests[path] = _write(partial, chunks, mark is not None)
                _flush(partial, target)
            places[partial] = target
        if mark is not None:
            mark.begin(digests)
        _rename(places)
    if mark is not None:
        mark.end()


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written to `path`, without changing what is there.

    Raises
    ------
    FileAccessError
        If it cannot.
    """
    with _naming(path, "write"), _beside(Path(os.path.realpath(path))):
        pass


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file beside `path` that replaces it when the block ends, and is removed if the block fails.

    Raises
    ------
    FileAccessError
        On entry, if `path` cannot be written; later, if the disk is full.
    """
    target = Path(os.path.realpath(path))
    with ExitStack() as partials:
        with _naming(path, "write"):
            _remove_left_over(target.parent)
            partial = partials.enter_context(_beside(target))
        try:
            yield partial
        except OSError as error:  # the block may do other things than write
            if error.errno in DISK_IS_FULL or error.filename == str(partial):
                raise _access_error(path, "write", error) from error
            raise
        with _naming(path, "write"):
            _flush(partial, target)
        _rename({partial: target})


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A new file beside `target`, removed when the block ends unless it was renamed."""
    if target.exists() and not target.is_file():
        problem = errno.EISDIR if target.is_dir() else errno.EACCES
        raise OSError(problem, os.strerror(problem) if target.is_dir() else "it is a device, not a file", str(target))
    if target.exists() and not os.access(target, os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    name = f".{target.name[:40]}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"
    partial = target.with_name(name)
    _ours.add(name)
    try:
        partial.open("xb").close()
        yield partial
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        _ours.discard(name)


def _write(path: Path, chunks: Chunks, is_marked: bool) -> str:
    """Write a file; return the digest of its contents if it `is_marked`."""
    digest = _new_digest()
    with open(path, "wb") as file:
        for chunk in chunks:
            file.write(chunk)
            if is_marked:
                digest.update(chunk)
    return digest.hexdigest()


def digest_of(data: bytes) -> str:
    """Digest of the contents of a file."""
    return _new_digest(data).hexdigest()


def _new_digest(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


def _flush(partial: Path, target: Path) -> None:
    """Flush the contents to the disk, and copy the permissions of the file that is replaced."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    with suppress(FileNotFoundError):
        partial.chmod(target.stat().st_mode & 0o7777)


def _rename(places: Mapping[Path, Path]) -> None:
    """Rename every file into its place and flush that to the disk; an interrupt waits until all are there."""
    waiting = list(places.items())
    try:
        while waiting:
            with _naming(waiting[0][1], "write"):
                os.replace(*waiting[0])
            del waiting[0]
    except FileAccessError:
        raise
    except BaseException:
        for partial, target in waiting:
            with suppress(OSError):
                os.replace(partial, target)
        raise
    for folder in dict.fromkeys(target.parent for target in places.values()):
        _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    """Flush the renames to the disk, where the system can."""
    with suppress(OSError, AttributeError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# Files of writers that were killed


def is_left_over(path: Path) -> bool:
    """Whether a file is temporary: being written now, or left by a writer that was killed."""
    return path.name.startswith(".") and path.name.endswith(_SUFFIX)


def _remove_left_over(folder: Path) -> None:
    """Remove temporary files of writers that have ended."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = _is_temporary(entry.name)
            if found and entry.name not in _ours and entry.is_file(follow_symlinks=False):
                machine, process = found.groups()
                is_old = entry.stat(follow_symlinks=False).st_mtime < time.time() - _WEEK
                # Whether a process of another machine or container has ended, only the date can tell.
                if not _is_running(int(process)) if machine == _machine() else is_old:
                    with suppress(OSError):
                        os.unlink(entry.path)


@cache
def _machine() -> str:
    """A name for this start of the machine and this container, within which process numbers are unique."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8"))
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=4).hexdigest()


def _is_running(process: int) -> bool:
    """Whether another process of this number may be running."""
    if os.name == "nt":  # there is no harmless signal there
        return True
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


# Errors


@contextmanager
def _naming(path: str | os.PathLike[str], verb: str) -> Iterator[None]:
    """Raise errors of the system as errors with the user's file and what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileAccessError):
            raise
        raise _access_error(path, verb, error) from error


def _access_error(path: str | os.PathLike[str], verb: str, error: OSError) -> FileAccessError:
    folder = os.path.dirname(os.path.abspath(path))
    elsewhere = "save elsewhere" if verb == "write" else "give another path"
    hints = {
        **dict.fromkeys(DISK_IS_FULL, f"Free space for it, or {elsewhere}. What was in {folder} is unchanged."),
        errno.EACCES: f"Make {path} and the folder {folder} accessible to you, or {elsewhere}.",
        errno.EPERM: f"Make {path} and the folder {folder} accessible to you, or {elsewhere}.",
        errno.EROFS: f"The disk of {folder} is read-only: {elsewhere}.",
        errno.EISDIR: f"{path} is a folder: give the path of a file.",
        errno.ENOTDIR: f"A part of {folder} is a file, not a folder: {elsewhere}.",
        errno.EEXIST: f"A part of {folder} is a file, not a folder: {elsewhere}.",
        errno.ENOENT: f"Make the folder {folder}, or {elsewhere}.",
        errno.ENAMETOOLONG: "Give it a shorter name, or save all variables in one file, with filename=.",
    }
    hint = hints.get(error.errno or 0, f"Check that {path} can be {'written' if verb == 'write' else 'read'}.")
    return FileAccessError(
        f"cannot {verb} '{os.fspath(path)}': {error.strerror or error}", error.errno, site=caller_site(), hint=hint
    )


# Reading


def read_file(path: Path, what: str) -> bytes:
    """All bytes of a file.

    Raises
    ------
    MissingFileError
        If there is none.
    FileAccessError
        If it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise MissingFileError(
            f"there is no file {path} with {what}", site=caller_site(), hint=_nearby(path)
        ) from error
    except OSError as error:
        raise _access_error(path, "read", error) from error


def _nearby(path: Path) -> str:
    if not path.parent.is_dir():
        return f"There is no folder {path.parent} either."
    names = sorted(entry.name for entry in path.parent.iterdir() if not is_left_over(entry))
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return f"The folder holds {shown}." if names else "The folder is empty."
