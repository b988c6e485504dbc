"""Clients for HDFS, with a script in place of hadoop that keeps its files in a folder of this machine."""

import os
import subprocess
from types import SimpleNamespace

import pytest

import minigraph as fluid
from minigraph.contrib.utils import hdfs_utils
from minigraph.errors import ExecutionError, FileAccessError, MissingFileError, WrongTypeError
from minigraph.incubate.fleet.utils import hdfs

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the script is one of a Unix shell")

HADOOP = r"""#!/bin/sh
here=$(dirname "$0")/..
root=$here/hdfs
shift
echo "$*" >> "$here/commands"
while case $1 in -D*) true ;; *) false ;; esac do shift; done
if [ -e "$here/broken$1" ]; then cat "$here/broken$1" >&2; exit 1; fi
fail() { echo "$1" >&2; exit 1; }
list() {
    kind=-rw-r--r--; [ -d "$root$1" ] && kind=drwxr-xr-x
    echo "$kind   3 user group 4 $(date -r "$root$1" '+%Y-%m-%d %H:%M') $1"
}
case $1 in
    -test) [ "$2" "$root$3" ] ;;
    -mkdir) mkdir "$root$2" ;;
    -ls) echo "Found some items"; for each in "$root$2"/*; do list "$2/$(basename "$each")"; done ;;
    -lsr) cd "$root"; find ".$2" -mindepth 1 | sort | while read -r each; do list "${each#.}"; done ;;
    -cat) cat "$root$2" ;;
    -put) [ -e "$root$3/$(basename "$2")" ] && fail "put: File exists"; cp -r "$2" "$root$3" ;;
    -get) [ -e "$3/$(basename "$2")" ] && fail "get: File exists"; cp "$root$2" "$3" ;;
    -mv) mv "$root$2" "$root$3" ;;
    -rm) rm "$root$2" ;;
    -rmr) rm -r "$root$2" ;;
esac
"""


@pytest.fixture
def cluster(tmp_path):
    """The folder that stands for HDFS, one with files of this machine, and `broken`, by which a command fails."""
    (tmp_path / "bin").mkdir()
    hadoop = tmp_path / "bin" / "hadoop"
    hadoop.write_text(HADOOP)
    hadoop.chmod(0o755)
    remote, local = tmp_path / "hdfs", tmp_path / "local"
    remote.mkdir()
    local.mkdir()
    return SimpleNamespace(
        home=str(tmp_path), remote=remote, local=local, log=tmp_path / "commands",
        broken=lambda command, message: (tmp_path / f"broken-{command}").write_text(message + "\n"),
    )  # fmt: skip


@pytest.fixture
def client(cluster):
    return fluid.contrib.HDFSClient(cluster.home, {"fs.default.name": "hdfs://node:1", "hadoop.job.ugi": "me,secret"})


def files_of(folder):
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def test_names_are_found_by_fluids_paths():
    assert fluid.contrib.utils.HDFSClient is hdfs_utils.HDFSClient is fluid.contrib.HDFSClient
    assert fluid.contrib.utils.multi_upload is hdfs_utils.multi_upload is fluid.contrib.multi_upload
    assert fluid.contrib.utils.multi_download is fluid.contrib.multi_download
    assert fluid.incubate.fleet.utils.hdfs.HDFSClient is hdfs.HDFSClient is not hdfs_utils.HDFSClient


def test_a_file_goes_up_and_comes_back(cluster, client, tmp_path):
    (cluster.local / "a file").write_text("one")
    assert client.upload("/data", str(cluster.local / "a file"))
    (cluster.remote / "data" / "other").write_text("stays")
    (cluster.local / "a file").write_text("two")
    with pytest.warns(UserWarning, match="HDFS has /data/a file already"):
        assert not client.upload("/data", str(cluster.local / "a file"))
    assert client.upload("/data", str(cluster.local / "a file"), overwrite=True)
    assert files_of(cluster.remote) == ["data/a file", "data/other"]
    assert client.download("/data/a file", str(tmp_path / "new" / "folder"))
    assert (tmp_path / "new" / "folder" / "a file").read_text() == "two"
    with pytest.warns(UserWarning, match="is here already"):
        assert not client.download("/data/a file", str(tmp_path / "new" / "folder"))
    assert client.download("/data/a file", str(tmp_path / "new" / "folder"), overwrite=True)
    with pytest.warns(UserWarning, match="HDFS has no /data/b"):
        assert not client.download("/data/b", str(tmp_path))
    assert "fs.default.name=hdfs://node:1 -Dhadoop.job.ugi=me,secret -put" in cluster.log.read_text()


def test_folders_are_made_listed_renamed_and_removed(cluster, client):
    assert client.makedirs("/a") is True and client.makedirs("/a") is None
    assert client.makedirs("/a/inner")
    (cluster.remote / "a" / "new").write_text("1")
    (cluster.remote / "a" / "inner" / "old").write_text("1")
    os.utime(cluster.remote / "a" / "inner" / "old", (0, 1e9))
    assert client.ls("/a") == ["/a/inner", "/a/new"]
    assert client.lsr("/a") == ["/a/inner/old", "/a/new"]  # the oldest first
    assert set(client.lsr("/a", only_file=False)) == {"/a/inner", "/a/inner/old", "/a/new"}
    assert client.ls("/none") == client.lsr("/none") == []
    assert client.is_dir("/a") and not client.is_dir("/a/new") and not client.is_dir("/none")
    assert client.rename("/a/new", "/a/newer") and client.is_exist("/a/newer") and not client.is_exist("/a/new")
    assert client.delete("/a/newer") and client.delete("/a") and client.delete("/none")
    assert files_of(cluster.remote) == []


def test_trainers_share_the_files_of_a_folder(cluster, client, tmp_path):
    for number in range(5):
        (cluster.local / f"part{number}").write_text(str(number))
    (cluster.local / "deep" / "deeper").mkdir(parents=True)
    (cluster.local / "deep" / "deeper" / "part").write_text("deep")
    fluid.contrib.multi_upload(client, "/train", str(cluster.local))
    assert files_of(cluster.remote / "train") == files_of(cluster.local)
    (cluster.remote / "train" / "part0").write_text("kept")
    fluid.contrib.multi_upload(client, "/train", str(cluster.local), multi_processes=2)
    assert (cluster.remote / "train" / "part0").read_text() == "kept"
    shares = [fluid.contrib.multi_download(client, "/train", str(tmp_path / "down"), i, 2) for i in range(2)]
    assert [len(share) for share in shares] == [3, 3]
    assert files_of(tmp_path / "down") == files_of(cluster.local)
    assert sorted(each for share in shares for each in share) == sorted(
        str(tmp_path / "down" / each) for each in files_of(cluster.local)
    )
    again = fluid.contrib.multi_download(client, "/train", str(tmp_path / "down"), 0, 2)  # nothing is left to copy
    assert again == shares[0]


def test_the_client_of_fleet_copies_folders(cluster, tmp_path):
    client = hdfs.HDFSClient(cluster.home, {})
    for number in range(3):
        (cluster.local / f"part{number}").write_text(f" {number}\n")
    client.makedirs("/data")
    client.upload("/data", str(cluster.local), multi_processes=2)
    assert files_of(cluster.remote / "data") == ["part0", "part1", "part2"]
    assert client.cat("/data/part2") == "2" and client.cat("/data") == client.cat("/none") == ""
    assert client.is_file("/data/part0") and not client.is_file("/data") and not client.is_file("/none")
    assert client.lsr("/data", excludes=["/data/part1"]) == ["/data/part0", "/data/part2"]
    (cluster.remote / "data" / "extra").write_text("")
    client.upload("/data", str(cluster.local / "part0"), overwrite=True)
    assert client.ls("/data") == ["/data/part0"]
    down = tmp_path / "down"
    assert client.download("/data", str(down)) == client.download("/data", str(down)) == [str(down / "part0")]
    (down / "part0").write_text("changed")
    client.download("/data", str(down), overwrite=True)
    assert (down / "part0").read_text() == " 0\n"
    assert client.upload_dir("/models", str(cluster.local) + "/")
    assert client.upload_dir("/models/", str(cluster.local), overwrite=True)
    assert files_of(cluster.remote / "models") == ["local/part0", "local/part1", "local/part2"]


@pytest.mark.parametrize(("count", "trainers"), [(5, 3), (2, 4), (0, 2), (6, 3)])
def test_shares_of_trainers_make_up_the_list(count, trainers):
    files = [str(number) for number in range(count)]
    shares = [hdfs.HDFSClient.split_files(files, i, trainers) for i in range(trainers)]
    assert [each for share in shares for each in share] == files
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_hadoop_that_is_not_there_is_an_error(tmp_path, cluster):
    with pytest.raises(MissingFileError, match=r"there is no command .*/bin/hadoop") as caught:
        fluid.contrib.HDFSClient(str(tmp_path / "nowhere"), {}).ls("/")
    assert "hadoop_home" in caught.value.hint and caught.value.site.filename == __file__
    (tmp_path / "bin" / "hadoop").chmod(0o644)
    with pytest.raises(FileAccessError, match="cannot be run: Permission denied"):
        fluid.contrib.HDFSClient(cluster.home, {}).is_exist("/")


def test_a_failure_that_no_result_shows_is_an_error(cluster, client, monkeypatch, tmp_path):
    (cluster.remote / "data").mkdir()
    (cluster.remote / "data" / "a").write_text("")
    cluster.broken("get", "get: no route to data node")
    with pytest.raises(ExecutionError, match="multi_download: 1 of 1 files failed") as caught:
        fluid.contrib.multi_download(client, "/data", str(tmp_path / "down"), 0, 1)
    assert "/data/a: hadoop fs -get" in str(caught.value) and "no route to data node" in str(caught.value)
    cluster.broken("ls", "ls: Permission denied: user=me")
    with pytest.raises(ExecutionError, match="hadoop fs -ls /data failed with status 1, 2 times") as caught:
        client.ls("/data")
    assert "Permission denied: user=me" in str(caught.value) and "bin/hadoop fs -Dfs" in str(caught.value)
    cluster.broken("test", "WARN: slow\ntest: Call From me to node failed on connection exception")
    with pytest.raises(ExecutionError, match="hadoop fs -test -e /data failed"):
        client.is_exist("/data")
    cluster.broken("test", "WARN: slow\ntest: File does not exist: /data")
    assert not client.is_exist("/data")
    monkeypatch.setattr(hdfs.HDFSClient, "_PAUSE", 0.0)
    (tmp_path / "broken-test").unlink()
    cluster.broken("put", "put: no space")
    with pytest.raises(ExecutionError, match="upload: 1 of 1 files failed"):
        hdfs.HDFSClient(cluster.home, {}).upload("/data", __file__, retry_times=1)


def test_a_failure_is_false_with_what_hadoop_said(cluster, client):
    cluster.broken("put", "put: no space left")
    with pytest.warns(UserWarning, match="(?s)hadoop fs -put .* failed with status 1, 3 times.*no space left"):
        assert client.upload("/", __file__, retry_times=2) is False
    cluster.broken("mkdir", "mkdir: denied")
    with pytest.warns(UserWarning, match="mkdir: denied"):
        assert client.makedirs("/a") is False
    with pytest.warns(UserWarning, match="is a folder"):
        assert client.upload("/", str(cluster.local)) is False
    with pytest.raises(MissingFileError, match="there is no file nowhere"):
        client.upload("/", "nowhere")
    with pytest.raises(WrongTypeError, match="is_exist"):
        client.is_exist(None)


def test_the_script_that_stands_for_hadoop_lists_as_hadoop_does(cluster):
    (cluster.remote / "a").write_text("")
    listed = subprocess.run([f"{cluster.home}/bin/hadoop", "fs", "-ls", ""], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()[1].split()) == 8
