"""Let the code of a student change only files in the folder of its copies.

Two means: an audit hook, on every platform, refuses calls of Python and names the file and the student's line;
Landlock, where Linux has it (5.13, 2021), refuses the rest, such as calls by ctypes, also in forks. Neither needs
rights. Without Landlock calls that go past Python are not seen, nor names that start from an opened folder.

References
----------
Linux kernel documentation, *Landlock: unprivileged access control*.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from minigraph.errors import LessonError


class OutsideError(LessonError, PermissionError):
    """The file of a student writes to a folder of the user; libraries take it for a folder that is write-protected."""


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_CHANGES = {
    "os.chflags": 1, "os.chmod": 1, "os.chown": 1, "os.link": 2, "os.mkdir": 1, "os.removexattr": 1, "os.setxattr": 1,
    "os.truncate": 1, "os.utime": 1, "shutil.rmtree": 1, "sqlite3.connect": 1,
}  # fmt: skip
"""Number of paths among the first arguments of each audit event that changes files."""

_MOVES = {"os.remove": 1, "os.rename": 2, "os.rmdir": 1}
"""The same for events that change names. A link is changed itself, not the file that it leads to."""


def keep_inside(folders: Sequence[str]) -> None:
    """Let this process, and its forks, change no file but in these folders."""
    real = [os.path.realpath(folder) for folder in folders]
    _restrict(real)  # first: it opens the folders
    sys.addaudithook(lambda event, args: _refuse_outside(event, args, real))


def _refuse_outside(event: str, args: tuple[Any, ...], folders: Sequence[str]) -> None:
    """Raise if a file outside of `folders` is going to be changed."""
    for path in _changed(event, args):
        is_inside = any(path == folder or path.startswith(folder + os.sep) for folder in folders)
        if not is_inside and path != os.devnull:
            raise OutsideError(
                f"the file writes to {path}, which is not among its copies",
                hint="Write to the current folder, which has copies of the files beside yours.",
            )


def _changed(event: str, args: tuple[Any, ...]) -> list[str]:
    """Return the real paths of what is going to be changed."""
    if event == "open":
        given = args[:1] if isinstance(args[2], int) and args[2] & _WRITING else ()
    elif event == "os.symlink":
        given = args[1:2]
    else:
        given = args[: _CHANGES.get(event, 0) or _MOVES.get(event, 0)]
    paths = [os.fsdecode(path) for path in given if isinstance(path, str | bytes | os.PathLike)]  # the others are open
    if event in _MOVES:
        return [os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in paths]
    return [os.path.realpath(path) for path in paths]


# Landlock. The numbers of its calls are the same on every architecture; access rights came with versions of it.

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _NO_NEW_PRIVILEGES = 444, 445, 446, 38
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13


def _restrict(folders: Sequence[str]) -> bool:
    """Let the kernel refuse changes of files outside of `folders`; returns whether it can."""
    if not sys.platform.startswith("linux") or platform.machine() == "alpha":
        return False
    with suppress(OSError, AttributeError):
        call = ctypes.CDLL(None, use_errno=True).syscall
        version = _checked(call(_CREATE_RULESET, None, 0, 1))
        rights = _WRITE_FILE | _REMOVE_AND_MAKE | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
        handled = ctypes.c_uint64(rights)
        rules = _checked(call(_CREATE_RULESET, ctypes.byref(handled), ctypes.sizeof(handled), 0))
        try:
            _allow(call, rules, os.devnull, _WRITE_FILE)
            for folder in folders:
                _allow(call, rules, folder, rights)
            _checked(ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
            _checked(call(_RESTRICT_SELF, rules, 0))
        finally:
            os.close(rules)
        return True
    return False


class _PathBeneath(ctypes.Structure):
    """``struct landlock_path_beneath_attr``."""

    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def _allow(call: Any, rules: int, path: str, rights: int) -> None:
    """Add a rule for a file, or for a folder and what is in it."""
    opened = os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
    try:
        beneath = _PathBeneath(rights, opened)
        _checked(call(_ADD_RULE, rules, 1, ctypes.byref(beneath), 0))
    finally:
        os.close(opened)


def _checked(result: int) -> int:
    """Return what a system call returns; raise if it fails."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
