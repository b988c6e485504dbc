"""Client for files of HDFS, and transfers of whole folders by several trainers."""

from __future__ import annotations

import os
import posixpath
import re

from minigraph.contrib.utils.hadoop import HadoopFiles, for_all, succeeds
from minigraph.errors import ExecutionError, MissingFileError, caller_site
from minigraph.support.public import public

__all__ = ["HDFSClient", "multi_download", "multi_upload"]


@public
class HDFSClient(HadoopFiles):
    """Files of HDFS, one at a time; see `HadoopFiles` for the parameters and errors.

    Examples
    --------
    >>> client = HDFSClient("/opt/hadoop", {"fs.default.name": "hdfs://name-node:54310"})
    >>> client.pre_commands
    ['/opt/hadoop/bin/hadoop', 'fs', '-Dfs.default.name=hdfs://name-node:54310']
    """

    def upload(self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5) -> bool:
        """Copy a file of this machine into a folder of HDFS, which is made if needed.

        Returns False for a local folder, and for a file that is there already unless `overwrite`.

        Raises
        ------
        MissingFileError
            If there is no local file.
        """
        return succeeds(lambda: self._put(hdfs_path, local_path, overwrite, retry_times))

    def download(self, hdfs_path: str, local_path: str, overwrite: bool = False, unzip: bool = False) -> bool:
        """Copy a file of HDFS into a folder of this machine, which is made if needed; `unzip` changes nothing.

        Returns False if HDFS has no such file, and for one that is here already unless `overwrite`.
        """
        return succeeds(lambda: self._get(hdfs_path, local_path, overwrite))

    def ls(self, hdfs_path: str) -> list[str]:
        """Paths of what a folder of HDFS holds; none if there is no such folder."""
        return [each.path for each in self._listed("-ls", hdfs_path, 1)]

    def lsr(self, hdfs_path: str, only_file: bool = True, sort: bool = True) -> list[str]:
        """Paths of what a folder of HDFS and those in it hold, the oldest first if `sort`."""
        found = [each for each in self._listed("-lsr", hdfs_path, 1) if not (only_file and each.is_folder)]
        return [each.path for each in (sorted(found, key=lambda each: each.written) if sort else found)]

    def _put(self, hdfs_path: str, local_path: str, overwrite: bool, retry_times: int) -> None:
        if not os.path.exists(local_path):
            raise MissingFileError(
                f"there is no file {local_path} to upload", site=caller_site(), hint="Give a file of this machine."
            )
        if os.path.isdir(local_path):
            raise ExecutionError(f"{local_path} is a folder", hint="Upload its files with multi_upload.")
        target = f"{hdfs_path.rstrip('/')}/{os.path.basename(local_path)}"
        if not self.is_exist(hdfs_path):
            self._run(1, "-mkdir", hdfs_path)
        elif self.is_exist(target):
            if not overwrite:
                raise ExecutionError(f"HDFS has {target} already", hint="Upload it with overwrite=True.")
            self._run(0, "-rm", target)
        self._run(retry_times, "-put", local_path, hdfs_path)

    def _get(self, hdfs_path: str, local_path: str, overwrite: bool) -> None:
        if not self.is_exist(hdfs_path):
            raise ExecutionError(f"HDFS has no {hdfs_path}", hint="List what it has with ls.")
        target = os.path.join(local_path, posixpath.basename(hdfs_path))
        if os.path.exists(target):
            if not overwrite:
                raise ExecutionError(f"{target} is here already", hint="Download it with overwrite=True.")
            os.remove(target)
        self.make_local_dirs(local_path)
        self._run(5, "-get", hdfs_path, local_path)


@public
def multi_download(
    client: HDFSClient, hdfs_path: str, local_path: str, trainer_id: int, trainers: int, multi_processes: int = 5
) -> list[str]:
    """Copy this trainer's share of the files in a folder of HDFS to this machine; files that are here already stay.

    Parameters
    ----------
    client : HDFSClient
    hdfs_path, local_path : str
        Folders on HDFS and on this machine.
    trainer_id, trainers : int
        Of the files, the oldest first, this trainer gets those with the numbers `trainer_id` + n * `trainers`.
    multi_processes : int
        Number of files that are copied at the same time.

    Returns
    -------
    list of str
        Paths of the files on this machine.

    Raises
    ------
    ExecutionError
        If hadoop fails to copy some of them.
    """
    client.make_local_dirs(local_path)
    share = client.lsr(hdfs_path)[trainer_id::trainers]
    folders = {path: os.path.normpath(os.path.join(local_path, _folder_in(path, hdfs_path))) for path in share}
    targets = {path: os.path.join(folder, posixpath.basename(path)) for path, folder in folders.items()}
    missing = [path for path in share if not os.path.exists(targets[path])]
    for_all("multi_download", lambda path: client._get(path, folders[path], False), missing, multi_processes)
    return list(targets.values())


@public
def multi_upload(
    client: HDFSClient,
    hdfs_path: str,
    local_path: str,
    multi_processes: int = 5,
    overwrite: bool = False,
    sync: bool = True,
) -> None:
    """Copy all files of a folder to a folder of HDFS.

    Parameters
    ----------
    client : HDFSClient
    hdfs_path, local_path : str
        Folders on HDFS and on this machine.
    multi_processes : int
        Number of files that are copied at the same time.
    overwrite : bool
        Whether to replace files that are there already; otherwise they stay.
    sync : bool
        No effect: the call ends when all are copied.

    Raises
    ------
    ExecutionError
        If hadoop fails to copy some of them.
    """
    pairs: list[tuple[str, str]] = []
    for folder, _, names in os.walk(local_path):
        inner = os.path.relpath(folder, local_path).replace(os.sep, "/")
        target = hdfs_path.rstrip("/") + ("" if inner == os.curdir else f"/{inner}")
        client.makedirs(target)  # before the copies, of which two would make one folder at once
        present = set() if overwrite else {posixpath.basename(path) for path in client.ls(target)}
        pairs += [(target, os.path.join(folder, name)) for name in sorted(names) if name not in present]
    for_all("multi_upload", lambda pair: client._put(*pair, overwrite, 5), pairs, multi_processes)


def _folder_in(path: str, above: str) -> str:
    """The folder of a path, seen from another folder; hadoop may print paths with or without the address."""
    bare, bare_above = (re.sub(r"^\w+://[^/]*", "", each) for each in (path, above))
    return os.path.relpath(posixpath.dirname(bare), bare_above)
