"""Fleet's client for files of HDFS, which copies several files at a time."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection
from typing import ClassVar

from minigraph.contrib.utils.hadoop import HadoopFiles, for_all, succeeds
from minigraph.support.public import public

__all__ = ["HDFSClient"]


@public
class HDFSClient(HadoopFiles):
    """Files of HDFS, several at a time; see `HadoopFiles` for the parameters and errors.

    Notes
    -----
    In fluid 1.8.5 this client works on Python 2 only.

    Examples
    --------
    >>> HDFSClient.split_files(["a", "b", "c", "d", "e"], trainer_id=1, trainers=3)
    ['c', 'd']
    """

    _PAUSE: ClassVar[float] = 3.0

    def cat(self, hdfs_path: str | None = None) -> str:
        """The text of a file without white space at its ends; empty if there is no such file."""
        return self._run(1, "-cat", hdfs_path) if self.is_file(hdfs_path) else ""

    def is_file(self, hdfs_path: str | None = None) -> bool:
        """Whether the path is on HDFS, and no folder."""
        return self.is_exist(hdfs_path) and not self._test("-d", hdfs_path)

    def ls(self, hdfs_path: str) -> list[str]:
        """Paths of what a folder of HDFS holds; none if there is no such folder."""
        return [each.path for each in self._listed("-ls", hdfs_path, 10)]

    def lsr(self, hdfs_path: str, excludes: Collection[str] = ()) -> list[str]:
        """Paths of the files in a folder of HDFS and those in it, without `excludes`."""
        found = self._listed("-lsr", hdfs_path, 1)
        return [each.path for each in found if not each.is_folder and each.path not in excludes]

    @staticmethod
    def split_files(files: list[str], trainer_id: int, trainers: int) -> list[str]:
        """The share of one trainer: a part of the list, which the first ones get one longer if needed."""
        size, longer = divmod(len(files), trainers)
        begin = trainer_id * size + min(trainer_id, longer)
        return files[begin : begin + size + (trainer_id < longer)]

    def download(
        self, hdfs_path: str, local_path: str, multi_processes: int = 5, overwrite: bool = False, retry_times: int = 5
    ) -> list[str]:
        """Copy what a folder of HDFS holds to this machine; files that are here already stay, unless `overwrite`.

        Returns
        -------
        list of str
            Paths of all files in the local folder.

        Raises
        ------
        ExecutionError
            If hadoop fails to copy some of them.
        """
        self.make_local_dirs(local_path)
        targets = {path: os.path.join(local_path, posixpath.basename(path)) for path in self.ls(hdfs_path)}
        for target in filter(os.path.isfile, targets.values()):
            if overwrite:
                os.remove(target)
        missing = [path for path, target in targets.items() if not os.path.exists(target)]
        for_all("download", lambda path: self._run(retry_times, "-get", path, local_path), missing, multi_processes)
        return [os.path.join(folder, name) for folder, _, names in os.walk(local_path) for name in names]

    def upload(
        self, hdfs_path: str, local_path: str, multi_processes: int = 5, overwrite: bool = False, retry_times: int = 5
    ) -> None:
        """Copy a file, or what a folder of this machine holds, to HDFS; `overwrite` empties the folder there before.

        Raises
        ------
        ExecutionError
            If hadoop fails to copy some of them.
        """
        found = [local_path] if os.path.exists(local_path) else []
        if os.path.isdir(local_path):
            found = [os.path.join(local_path, name) for name in sorted(os.listdir(local_path))]
        if found and overwrite and self.is_exist(hdfs_path):
            self.delete(hdfs_path)
            self.makedirs(hdfs_path)
        for_all("upload", lambda path: self._run(retry_times, "-put", path, hdfs_path), found, multi_processes)

    def upload_dir(self, dest_dir: str, local_dir: str, overwrite: bool = False) -> bool:
        """Copy a folder of this machine into one of HDFS; with `overwrite` in place of one that is there already."""
        source, folder = local_dir.rstrip("/"), dest_dir.rstrip("/")
        target = f"{folder}/{os.path.basename(source)}"
        if overwrite and self.is_exist(target):
            self.delete(target)
        self.makedirs(folder)
        return succeeds(lambda: self._run(5, "-put", source, folder))
