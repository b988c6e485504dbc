"""Marks: files that tell whether the files beside them come from one save.

A save of several files renames them into place one after the other, so that a crash in between leaves new files among
old ones, each of them whole. The mark holds a digest of each file. It is written before the first file is renamed, with
the digests to come, and again after the last. Loading compares it with the files read:

- A save that did not end, with some of its files in place and some not, is an error.
- A file other than the one saved beside the others is a warning that names it.
- Without a mark loading says nothing: the original Paddle writes none, and deleting the mark allows to mix files. If no
  file is as the mark states, another program has saved them all, and loading says nothing either.

The mark is a file with one tensor, because Paddle 1.8.5 reads each file of a folder as tensors.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minigraph.eager import updates as eager_updates
from minigraph.errors import DataError, warn
from minigraph.io.tensors import read_tensors, tensor_chunks
from minigraph.support.atomic_files import digest_of, read_file, write_files

FOLDER_MARK = "__minigraph_mark__"
"""The mark of a folder with a file for each variable."""

_PROCESS = secrets.token_hex(8)


class Entry(NamedTuple):
    """Statement about one file: the digest of its contents, and its save."""

    digest: str
    save: str


@dataclass
class Statement:
    """Contents of a mark, by the paths of files from its folder."""

    held: dict[str, Entry] = field(default_factory=dict)
    coming: dict[str, Entry] = field(default_factory=dict)
    """Entries of saves that have not ended."""


def folder_mark(folder: Path) -> Path:
    return folder / FOLDER_MARK


def moment() -> str:
    """A name for the present state of training in this process, which changes with each imperative update."""
    return f"{_PROCESS}-{os.getpid()}-{eager_updates.count}"


# Saving


class Mark:
    """The mark at `path` of the files that `write_files` is about to write.

    Parameters
    ----------
    save : str
        Name of the save. Default: a new one.
    partners : iterable of Path
        Files that are loaded with these, but are saved by another call.

    Notes
    -----
    A file that is saved alone gets no mark, unless one is there already or it has partners.
    """

    def __init__(self, path: Path, save: str = "", partners: Iterable[Path] = ()) -> None:
        self.path = path
        self.save = save or secrets.token_hex(8)
        self.partners = list(partners)
        self.coming: dict[str, Entry] = {}

    def begin(self, digests: Mapping[Path, str]) -> None:
        if len(digests) < 2 and not any(path.exists() for path in (self.path, *self.partners)):
            return
        statement = _read(self.path)
        for path, digest in digests.items():
            name = _name(path, self.path)
            if (name not in statement.held or name in statement.coming) and path.is_file():
                # Its digest lets loading tell the old file from the new one.
                statement.held[name] = Entry(digest_of(path.read_bytes()), "")
            self.coming[name] = Entry(digest, self.save)
        statement.coming.update(self.coming)
        self._write(statement)

    def end(self) -> None:
        if self.coming:
            statement = _read(self.path)  # another program may have saved in the meantime
            statement.held.update(self.coming)
            for name in self.coming:
                statement.coming.pop(name, None)
            with suppress(DataError):  # the files are in their places, and the mark says that they were coming
                self._write(statement)

    def _write(self, statement: Statement) -> None:
        content = json.dumps({"held": statement.held, "coming": statement.coming}).encode()
        write_files({self.path: tensor_chunks(np.frombuffer(content, np.uint8))})


def _read(path: Path) -> Statement:
    """Read the mark at `path`; empty if it is missing or damaged."""
    try:
        (tensor,) = read_tensors(path.read_bytes(), str(path), 1)
        found = json.loads(np.asarray(tensor).tobytes())
        held, coming = (
            {name: Entry(*map(str, entry)) for name, entry in found[side].items()} for side in ("held", "coming")
        )
    except (OSError, DataError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Statement()
    return Statement(held, coming)


def _name(path: Path, mark: Path) -> str:
    return Path(os.path.relpath(path, mark.parent)).as_posix()


# Loading


class Reading:
    """Read files that are loaded together, and check whether they come from one save.

    Parameters
    ----------
    mark : Path
    is_one_save : bool
        Whether files that were saved one by one fit together only if nothing was trained in between.
    """

    def __init__(self, mark: Path, is_one_save: bool = False) -> None:
        self.mark = mark
        self.is_one_save = is_one_save
        self.statement = _read(mark)
        self.digests: dict[str, str] = {}

    def read(self, path: Path, what: str) -> bytes:
        """All bytes of a file; see `minigraph.support.atomic_files.read_file`."""
        data = read_file(path, what)
        name = _name(path, self.mark)
        if name in self.statement.held or name in self.statement.coming:
            self.digests[name] = digest_of(data)
        return data

    def check(self) -> None:
        """Compare the files that were read with the mark.

        Raises
        ------
        DataError
            If a save ended before all of its files were in their places, and some of them were read.
        """
        held, coming = self.statement.held, self.statement.coming
        # A file that a save does not change belongs to both saves.
        moving = {name for name in self.digests if name in coming and coming[name].digest != _digest(held, name)}
        arrived = {name: coming[name] for name in sorted(moving) if coming[name].digest == self.digests[name]}
        for save in dict.fromkeys(entry.save for entry in arrived.values()):
            new = [name for name, entry in arrived.items() if entry.save == save]
            old = [name for name in sorted(moving - arrived.keys()) if coming[name].save == save]
            if new and old:
                raise DataError(
                    f"{self.mark.parent} holds files of two saves: the last one ended before it was complete",
                    details=[f"of the last save: {_listed(new)}", f"of one before: {_listed(old)}"],
                    hint=f"Save again, or load another copy. To load the mixture, delete {self.mark}.",
                )
        stated = {name: arrived.get(name) or held[name] for name in self.digests if name in arrived or name in held}
        known = [name for name, entry in stated.items() if entry.digest == self.digests[name]]
        changed = [name for name in self.digests if name not in stated or stated[name].digest != self.digests[name]]
        if changed and known:
            self._warn(f"{_listed(changed)} changed after the save that {_listed(known)} came from")
        saves = {stated[name].save for name in known if name not in coming or name in moving}
        if self.is_one_save and len(saves) > 1:
            self._warn(f"{_listed(known)} were saved at different moments of training, or by different programs")

    def _warn(self, problem: str) -> None:
        warn(
            f"in {self.mark.parent}, {problem}\n  Unless that is on purpose, save again or load another copy. "
            f"To hear no more of it, delete {self.mark}."
        )


def _digest(entries: Mapping[str, Entry], name: str) -> str:
    return entries[name].digest if name in entries else ""


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
