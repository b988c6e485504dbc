"""The command ``minigraph``: what it prints, what it writes, how it ends."""

import builtins
import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from interrupting import interrupt_after

from minigraph import __version__
from minigraph.cli.comparisons import DEFAULT_CLIPS
from minigraph.cli.main import main
from minigraph.comparison import progress, records

ROOT = Path(__file__).resolve().parents[2]
SHORT = ["compare", "--batches", "2", "--batch-size", "16"]
TRAIN = ["train", "--epochs", "2", "--batch-size", "500", "--seeds", "1", "--rates", "0.2"]
SWEEP = [
    "train", "--epochs", "1", "--batch-size", "500", "--seeds", "1", "2", "--rates", "0.05", "0.2", "--clip", "norm=2"
]  # fmt: skip
PNG = b"\x89PNG\r\n\x1a\n"


def run(*arguments, cwd=ROOT, **environment):
    return subprocess.run(
        [sys.executable, "-m", "minigraph", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def printed(capsys, *arguments, command=SHORT):
    assert main([*command, *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys, *arguments):
    """The message of a command that is refused for its options."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


# What it prints


@pytest.mark.slow
def test_the_default_run_clips_with_each_kind(capsys):
    out = printed(capsys)
    for text in ("norm=2", "global_norm=1", "value=0.1"):
        assert f"\n{text}  GradientClip" in out
    assert len(re.findall(r"^all together +[\d.]", out, re.MULTILINE)) == 3
    assert len(re.findall(r" norm +norm .*\nparameter .* before +after ", out)) == 3
    assert re.search(r"^all together +before.*\n.*\nnorm=2 .*\nglobal_norm=1 .*\nvalue=0.1 .*\n\nOn average", out, re.M)


@pytest.mark.slow
def test_some_batches_are_clipped_by_each_of_the_default_clips(tmp_path):
    file = tmp_path / "out.json"
    assert main(["compare", "--quiet", "--json", str(file)]) == 0
    clips = json.loads(file.read_text(encoding="utf-8"))["clips"]
    assert [clip["clip"] for clip in clips] == ["norm=2", "global_norm=1", "value=0.1"]
    for clip in clips:
        assert clip["total"]["mean"]["share_clipped"] > 0
        assert 0 < clip["total"]["mean"]["factor"] < 1


@pytest.mark.slow
def test_the_operators_inserted_are_shown_unless_declined(capsys):
    shown = printed(capsys, "--clip", "norm=2")
    assert len(re.findall(r"^\+ +clip_by_norm_\d\.tmp_0: float32", shown, re.MULTILINE)) == 6
    assert "clip_by_norm(" not in printed(capsys, "--clip", "norm=2", "--no-diff")


@pytest.mark.slow
def test_the_output_is_the_same_for_the_same_seed(capsys):
    first = printed(capsys, "--seed", "3")
    assert first == printed(capsys, "--seed", "3")
    assert first != printed(capsys, "--seed", "4")


@pytest.mark.slow
def test_nothing_is_wider_than_a_hundred_columns(capsys):
    assert max(map(len, printed(capsys).splitlines())) <= 100


@pytest.mark.slow
def test_quiet_prints_nothing(capsys):
    assert printed(capsys, "--quiet") == ""


@pytest.mark.slow
def test_piped_output_is_plain_text():
    ended = run(*SHORT)
    assert ended.returncode == 0
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 100


@pytest.mark.slow
def test_a_terminal_that_knows_only_ascii_is_served_too():
    ended = run(*SHORT, PYTHONIOENCODING="ascii")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.isascii()


@pytest.mark.slow
def test_equal_seeds_print_the_same_in_different_processes():
    assert run(*SHORT, PYTHONHASHSEED="1").stdout == run(*SHORT, PYTHONHASHSEED="2").stdout


@pytest.mark.slow
def test_training_shows_the_loss_going_down(capsys):
    out = printed(capsys, "--train", "0.05", "--batches", "12", "--batch-size", "128", "--no-diff")
    first, last = map(float, re.search(r"([\d.]+) in the first batch, ([\d.]+) in the last", out).groups())
    assert last < first


@pytest.mark.slow
def test_each_clip_is_shown_on_the_gradients_of_each_rank(capsys):
    out = printed(capsys, "--ranks", "2", "--batch-size", "16", "--no-diff")
    assert out.count("rank 0 alone") == out.count("rank 1 alone") == out.count("all ranks") == len(DEFAULT_CLIPS)
    assert main([*SHORT, "--ranks", "3"]) == 1
    assert "3 ranks cannot share a batch evenly" in capsys.readouterr().err


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"minigraph {__version__}\n"


@pytest.mark.slow
def test_help_loads_no_subcommand():
    loaded = "import sys; from minigraph.cli.main import main; main(['--help']); print(*sys.modules)"
    words = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    assert "minigraph.cli.main" in words
    assert [each for each in words if each.startswith(("minigraph.rewrite", "minigraph.comparison"))] == []


def test_help_explains_clips_and_has_examples(capsys):
    assert main(["compare", "--help"]) == 0
    out = capsys.readouterr().out
    for text in ("global_norm=C", "value=LOW:HIGH", "minigraph compare --train", "--place", "--no-diff"):
        assert text in out
    assert main(["train", "--help"]) == 0
    out = capsys.readouterr().out
    for text in ("global_norm=C", "minigraph train --epochs", "held out", "--optimizer", "--html"):
        assert text in out
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "compare a program's gradients" in out
    assert "compare training" in out


# Training


@pytest.mark.slow
def test_training_compares_the_clips_with_an_unclipped_run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    out = printed(capsys, command=TRAIN)
    for name in ("unclipped", "norm=2", "global_norm=1", "value=0.1"):
        assert len(re.findall(rf"^{name} +[\d.]+ ", out, re.MULTILINE)) == 3  # summary, loss, accuracy
    assert "held-out accuracy after epoch" in out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.slow
def test_training_learns_and_says_how_well(capsys, tmp_path):
    file = tmp_path / "out.json"
    arguments = ["--quiet", "--clip", "global_norm=1", "--epochs", "8", "--rate", "0.3", "--seed", "1"]
    assert printed(capsys, *arguments, "--json", str(file), command=["train"]) == ""
    found = json.loads(file.read_text(encoding="utf-8"), parse_constant=reject)
    assert (found["format"], found["is_held_out"], found["partial"]) == ("minigraph-training", True, None)
    assert found["settings"] == {
        "data": "digits", "batch_size": 128, "optimizer": "sgd", "epochs": 8, "steps": 96, "place": "CPUPlace()",
    }  # fmt: skip
    assert (found["seeds"], found["rates"], found["judged_by"]) == ([1], [0.3], "held-out loss")
    assert [clip["clip"] for clip in found["clips"]] == ["unclipped", "global_norm=1"]
    [clipped] = found["clips"][1]["runs"]
    assert len(clipped["loss"]) == len(clipped["total"]["steps"]["norm_before"]) == len(found["epoch_of_step"]) == 96
    assert len(clipped["metrics"]["accuracy"]) == 8
    assert clipped["metrics"]["accuracy"][-1] > 0.7
    assert clipped["diverged_at"] is None
    assert max(clipped["total"]["steps"]["norm_after"]) <= 1.0001
    check_numbers(found)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_each_optimizer_trains(capsys, optimizer):
    out = printed(capsys, "--optimizer", optimizer, "--rate", "0.001", "--clip", "norm=2", command=TRAIN)
    [(first, last)] = re.findall(r"^unclipped +([\d.]+) +([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+", out, re.MULTILINE)[:1]
    assert float(last) < float(first)


@pytest.mark.slow
def test_training_prints_the_same_for_the_same_seed(capsys):
    first = printed(capsys, "--seed", "3", command=TRAIN)
    assert first == printed(capsys, "--seed", "3", command=TRAIN)
    assert first != printed(capsys, "--seed", "4", command=TRAIN)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["json", "csv", "plot.png", "html"])
def test_training_writes_each_kind_of_file(tmp_path, path):
    pytest.importorskip("matplotlib", reason="needs the extra [plot]")
    file = tmp_path / f"out.{path}"
    assert main([*TRAIN, "--quiet", f"--{path.partition('.')[0]}", str(file)]) == 0
    assert file.stat().st_size > 1000
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


# Progress


class Terminal:
    """Standard error as a terminal that keeps what it is shown."""

    encoding = "utf-8"

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(("patience", "is_shown"), [(0.0, True), (60.0, False)])
@pytest.mark.parametrize("command", [SHORT, TRAIN])
def test_long_runs_show_progress_on_a_terminal(monkeypatch, command, patience, is_shown):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "PATIENCE", patience)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main(command) == 0
    assert ("batches" in sys.stderr.text) == is_shown


def test_a_quiet_run_shows_no_progress(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main([*SHORT, "--quiet"]) == 0
    assert sys.stderr.text == ""


# JSON


QUANTITIES = ["norm_before", "norm_after", "factor", "cosine", "share_changed"]


def check_numbers(value):
    if isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            check_numbers(item)


def reject(constant):
    raise AssertionError(f"{constant} is not JSON")


@pytest.mark.slow
def test_json_has_the_documented_keys(tmp_path):
    file = tmp_path / "out.json"
    assert main([*SHORT, "--quiet", "--clip", "norm=0.5", "--clip", "value=-0.1:0.2", "--json", str(file)]) == 0
    found = json.loads(file.read_text(encoding="utf-8"), parse_constant=reject)
    check_numbers(found)
    keys = "format version minigraph partial finding settings program batches clips"
    assert list(found) == keys.split()
    assert found["partial"] is None
    assert (found["format"], found["version"], found["minigraph"]) == ("minigraph-comparison", 1, __version__)
    assert found["settings"] == {
        "data": "digits", "batches": 2, "batch_size": 16, "seed": 1, "place": "CPUPlace()", "learning_rate": None,
    }  # fmt: skip
    assert found["program"]["operators"] > found["program"]["forward_operators"] > 0
    assert found["program"]["parameters"][0] == {"name": "fc_0.w_0", "shape": [784, 128]}
    assert [batch["size"] for batch in found["batches"]] == [16, 16]
    assert [clip["clip"] for clip in found["clips"]] == ["norm=0.5", "value=-0.1:0.2"]
    assert found["clips"][0]["strategy"] == "GradientClipByNorm(clip_norm=0.5)"
    for clip in found["clips"]:
        assert list(clip) == ["clip", "strategy", "operators_inserted", "parameters", "total", "ranks"]
        assert clip["operators_inserted"] == 6
        assert [{"name": p["name"], "shape": p["shape"]} for p in clip["parameters"]] == found["program"]["parameters"]
        for changes in (*clip["parameters"], clip["total"]):
            assert list(changes)[-5:] == ["mean", "min", "max", "median", "batches"]
            assert set(changes["mean"]) == {*QUANTITIES, "share_clipped"}
            assert set(changes["min"]) == set(changes["max"]) == set(changes["median"]) == set(QUANTITIES)
            assert set(changes["batches"]) == {*QUANTITIES, "clipped"}
            assert {len(values) for values in changes["batches"].values()} == {2}
            assert all(isinstance(value, bool) for value in changes["batches"]["clipped"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_that_are_not_finite_are_null_in_json(tmp_path):
    file = tmp_path / "out.json"
    assert main([*SHORT, "--quiet", "--batches", "4", "--train", "1e30", "--json", str(file)]) == 0
    found = json.loads(file.read_text(encoding="utf-8"), parse_constant=reject)
    assert found["batches"][-1]["loss"] is None
    assert found["clips"][0]["total"]["batches"]["norm_before"][-1] is None


@pytest.mark.slow
def test_files_are_replaced_whole_and_nothing_else_is_left(tmp_path):
    file = tmp_path / "out.json"
    file.write_text("old", encoding="utf-8")
    link = tmp_path / "link.json"
    link.symlink_to(file)
    assert main([*SHORT, "--quiet", "--json", str(link)]) == 0
    assert json.loads(file.read_text(encoding="utf-8"))["version"] == 1
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "out.json"]


def test_a_run_that_fails_leaves_the_old_file_alone(tmp_path, monkeypatch, capsys):
    file = tmp_path / "out.json"
    file.write_text("old", encoding="utf-8")
    monkeypatch.setenv("MINIGRAPH_OFFLINE", "1")
    monkeypatch.setenv("MINIGRAPH_DATA_HOME", str(tmp_path / "nothing"))
    assert main([*SHORT, "--data", "mnist", "--json", str(file)]) == 1
    assert "minigraph: error: train-images-idx3-ubyte.gz" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


# CSV


def rows_of(file):
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


@pytest.mark.slow
def test_csv_has_a_row_for_each_strategy_parameter_and_batch(tmp_path):
    files = tmp_path / "out.csv", tmp_path / "out.json"
    clips = ["--clip", "norm=0.5", "--clip", "value=0.1"]
    assert main([*SHORT, "--quiet", *clips, "--csv", str(files[0]), "--json", str(files[1])]) == 0
    rows, found = rows_of(files[0]), json.loads(files[1].read_text(encoding="utf-8"))
    assert list(rows[0]) == ["strategy", "parameter", "batch", "loss", *QUANTITIES, "clipped"]
    assert len(rows) == 2 * 7 * 2
    expected = [
        (clip["clip"], name, batch + 1, values["batches"])
        for clip in found["clips"]
        for name, values in [*((p["name"], p) for p in clip["parameters"]), ("all together", clip["total"])]
        for batch in range(2)
    ]
    for row, (clip, name, batch, values) in zip(rows, expected, strict=True):
        assert (row["strategy"], row["parameter"], row["batch"]) == (clip, name, str(batch))
        assert float(row["loss"]) == found["batches"][batch - 1]["loss"]
        assert [float(row[key]) for key in QUANTITIES] == [values[key][batch - 1] for key in QUANTITIES]
        assert row["clipped"] == str(int(values["clipped"][batch - 1]))


@pytest.mark.slow
def test_csv_of_training_has_a_row_for_each_run_parameter_and_step(tmp_path):
    files = tmp_path / "out.csv", tmp_path / "out.json"
    assert main([*SWEEP, "--quiet", "--csv", str(files[0]), "--json", str(files[1])]) == 0
    rows, found = rows_of(files[0]), json.loads(files[1].read_text(encoding="utf-8"))
    runs = [(clip["clip"], run) for clip in found["clips"] for run in clip["runs"]]
    assert len(rows) == len(runs) * 7 * 3 == 2 * 2 * 2 * 7 * 3
    for clip, run in runs:
        for name, values in [*((p["name"], p) for p in run["parameters"]), ("all together", run["total"])]:
            chosen = [row for row in rows if row["strategy"] == clip and row["parameter"] == name]
            mine = [row for row in chosen if (int(row["seed"]), float(row["rate"])) == (run["seed"], run["rate"])]
            assert [(row["epoch"], row["step"]) for row in mine] == [("1", "1"), ("1", "2"), ("1", "3")]
            assert [float(row["loss"]) for row in mine] == run["loss"]
            for key in QUANTITIES:
                assert [float(row[key]) for row in mine] == values["steps"][key]
            accuracies = [row["held_out_accuracy"] for row in mine]
            assert accuracies[:2] == ["", ""]
            assert [float(accuracies[2])] == run["metrics"]["accuracy"]


# The plot


@pytest.mark.slow
@pytest.mark.parametrize(("name", "start"), [("out.png", PNG), ("out.PDF", b"%PDF"), ("out.svg", b"<?xml")])
def test_the_plot_has_the_format_of_its_suffix(tmp_path, name, start):
    pytest.importorskip("matplotlib", reason="needs the extra [plot]")
    file = tmp_path / name
    assert main([*SHORT, "--quiet", "--plot", str(file)]) == 0
    assert file.read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("option", ["--plot", "--html"])
def test_a_picture_without_matplotlib_names_the_extra(tmp_path, monkeypatch, capsys, option):
    imported = builtins.__import__

    def without_matplotlib(name, *arguments, **options):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    file = tmp_path / "out.png"
    message = refused(capsys, *SHORT, option, str(file))
    assert "pip install 'minigraph[plot]'" in message
    assert not file.exists()


# Options that are refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--clip", "nrom=2"], "Did you mean norm?"),
        (["--clip", "globalnorm=2"], "Did you mean global_norm"),
        (["--clip", "xyz=2"], "The kinds are norm, global_norm, value."),
        (["--clip", "norm"], "the threshold of 'norm' must be a finite number"),
        (["--clip", "norm=nan"], "finite"),
        (["--clip", "norm=inf"], "finite"),
        (["--clip", "norm=0"], "positive"),
        (["--clip", "norm=-2"], "positive"),
        (["--clip", "value=0.2:0.1"], "min must be below max"),
        (["--clip", "norm=2", "--clip", "norm=2.0"], "given twice"),
        (["--batches", "0"], "--batches: must be a whole number of at least 1, got '0'"),
        (["--batches", "1.5"], "--batches"),
        (["--batch-size", "-1"], "--batch-size"),
        (["--seed", "0"], "--seed"),
        (["--seed", str(2**31)], "--seed: must be at most 2147483647"),
        (["--train", "nan"], "--train: must be a positive number"),
        (["--place", "gpu"], "unknown place 'gpu'\n  Did you mean cuda?"),
        (["--place", "cdua"], "Did you mean cuda?"),
        (["--place", "cuda:x"], "unknown place 'cuda:x'"),
        (["--data", "cifar"], "--data"),
        (["--plot", "out.txt"], "the name must end in .png, .svg, .pdf"),
        (["--json", "same.png", "--plot", "same.png"], "--json and --plot name the same file"),
        (["--csv", "same", "--html", "same"], "--csv and --html name the same file"),
        (["--clip", "GradientClipByNrom(clip_norm=1)"], "Did you mean GradientClipByNorm"),
        (["--no-such-option"], "--no-such-option\n  minigraph compare --help lists the options."),
        (["--batchs", "3"], "Did you mean --batches"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_with_one_message(capsys, arguments, said):
    message = refused(capsys, "compare", *arguments)
    assert said in message
    assert message.startswith("minigraph")
    assert message.count("error:") == 1


def test_a_command_is_needed(capsys):
    assert "COMMAND" in refused(capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epochs", "0"], "--epochs"),
        (["--rate", "0"], "--rate: must be a positive number"),
        (["--rates", "0.1", "0.10"], "--rates has the same number twice"),
        (["--seeds", "1", "0"], "must be a whole number of at least 1"),
        (["--seeds", "2", "2"], "--seeds has the same number twice"),
        (["--optimizer", "sdg"], "--optimizer"),
        (["--batches", "3"], "--batches"),
    ],
)
def test_an_option_that_makes_no_sense_for_training_is_refused(capsys, arguments, said):
    assert said in refused(capsys, "train", *arguments)


@pytest.mark.parametrize("option", ["--json", "--plot", "--csv", "--html"])
@pytest.mark.parametrize("path", ["missing/out.png", "folder.png", "/dev/null/out.png"])
def test_a_path_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch, capsys, option, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    monkeypatch.setattr("minigraph.cli.comparisons.compare_gradients", lambda *_, **__: pytest.fail("it began"))
    assert f"cannot write '{path}': " in refused(capsys, *SHORT, option, path)


def test_a_device_is_not_replaced_by_a_file(capsys):
    assert "cannot write '/dev/null'" in refused(capsys, *SHORT, "--json", "/dev/null")


def test_cuda_without_cupy_names_the_extra(monkeypatch, capsys):
    imported = builtins.__import__

    def without_cupy(name, *arguments, **options):
        if name == "cupy":
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_cupy)
    assert "pip install 'minigraph[cuda12]'" in refused(capsys, *SHORT, "--place", "cuda")


# Other ends


def test_an_interrupt_ends_quietly(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("minigraph.cli.comparisons.compare_gradients", interrupted)
    assert main(SHORT) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="pipes break otherwise there")
@pytest.mark.parametrize("arguments", ["compare --batches 1", "doctor", "operators"])
def test_a_reader_that_leaves_early_gets_no_traceback(arguments):
    command = f"'{sys.executable}' -u -m minigraph {arguments} | head -n 1"
    ended = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.stdout.count("\n") == 1
    assert ended.stderr == ""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full, of Linux")
def test_a_full_disk_is_one_line_with_what_to_do():
    with open("/dev/full", "w", encoding="utf-8") as full:
        found = subprocess.run(
            [sys.executable, "-m", "minigraph", "lessons"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert found.returncode == 1
    assert found.stderr == (
        "minigraph: error: cannot write the output: No space left on device\n"
        "  Free space on its disk, or write elsewhere: TMPDIR is the folder of temporary files.\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there is no such signal there")
@pytest.mark.parametrize("module", ["minigraph.ir", "minigraph.layers", "minigraph.comparison", "minigraph.__main__"])
def test_an_interrupt_during_the_import_leaves_no_traceback(tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n",
        encoding="utf-8",
    )
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    ended = run("compare", "--help", PYTHONPATH=path)
    assert (ended.stdout, ended.stderr) == ("", "")
    assert ended.returncode != 0
    program = f"try: import {module}\nexcept KeyboardInterrupt: print('raised')"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
                           capture_output=True, text=True, timeout=120)  # fmt: skip
    assert ended.stdout == "raised\n"  # in a program that is not the command


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, 20, 11])
def test_what_an_interrupted_training_has_is_written_and_marked(tmp_path, monkeypatch, capsys, count):
    pytest.importorskip("matplotlib", reason="needs the extra [plot]")
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "html", "plot.svg")}
    options = [word for kind, file in files.items() for word in (f"--{kind.partition('.')[0]}", str(file))]
    interrupt_after(monkeypatch, count)
    assert main([*SWEEP, *options]) == 130
    out, err = capsys.readouterr()
    said = re.fullmatch(r"minigraph: error: (interrupted after step \d.*)\n", err)[1]
    assert " ".join(out.split()).count(said) == 1
    found = json.loads(files["json"].read_text(encoding="utf-8"), parse_constant=reject)
    assert found["partial"] == said
    rows = rows_of(files["csv"])
    assert {row["partial"] for row in rows} == {said}
    runs = [run for clip in found["clips"] for run in clip["runs"]]
    assert len(rows) == 7 * sum(len(run["loss"]) for run in runs) > 0
    for run in runs:
        lengths = {len(run["loss"]), len(run["total"]["steps"]["factor"])}
        assert len(lengths) == 1
        assert run["is_complete"] == (lengths == {3} and len(run["metrics"]["accuracy"]) == 1)
    # Eight clones: four with each seed, each of three steps and one evaluation.
    assert {run["seed"] for run in runs} == ({1, 2} if count == 40 else {1})
    assert said in files["html"].read_text(encoding="utf-8")
    assert "interrupted" in files["plot.svg"].read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_an_interrupted_comparison_of_gradients_has_is_written_and_marked(tmp_path, monkeypatch, capsys):
    files = tmp_path / "out.json", tmp_path / "out.csv"
    interrupt_after(monkeypatch, 4)
    assert main([*SHORT, "--batches", "9", "--json", str(files[0]), "--csv", str(files[1])]) == 130
    found, out = json.loads(files[0].read_text(encoding="utf-8")), capsys.readouterr().out
    assert found["partial"] == "interrupted after batch 2"
    assert len(found["batches"]) == 2
    assert {row["partial"] for row in rows_of(files[1])} == {found["partial"]}
    assert found["partial"] in out and found["finding"] in " ".join(out.split())


def test_an_interrupt_before_the_first_step_leaves_files_alone(tmp_path, monkeypatch, capsys):
    file = tmp_path / "out.json"
    file.write_text("old", encoding="utf-8")
    interrupt_after(monkeypatch, 3)
    assert main([*SWEEP, "--json", str(file)]) == 130
    assert file.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there is no such signal there")
def test_ctrl_c_ends_a_training_with_its_figures(tmp_path):
    file = tmp_path / "out.json"
    command = [sys.executable, "-m", "minigraph", "train", "--epochs", "500", "--json", str(file)]
    for seconds in (4, 16, 60):  # on a machine that is busy the first step may come late
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        if file.exists():
            break
    assert process.returncode == 130
    assert err.startswith("minigraph: error: interrupted after step")
    assert "Traceback" not in err
    assert json.loads(file.read_text(encoding="utf-8"))["partial"] in " ".join(out.split())


@pytest.mark.slow
def test_the_core_does_not_import_the_command():
    heavy = "rich", "matplotlib", "http"
    program = (
        "import sys, minigraph\n"
        f"print([m for m in sys.modules if m.partition('.')[0] in {heavy} or m == 'minigraph.cli'])"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "[]", ended.stderr
    uses = re.compile(r"minigraph\.(comparison|cli|__main__)\b|import (comparison|cli)\b")
    users = {
        path.relative_to(ROOT)
        for path in (ROOT / "minigraph").rglob("*.py")
        if uses.search(path.read_text(encoding="utf-8"))
    }
    outside = {path.as_posix() for path in users if path.parts[1] not in ("cli", "comparison")}
    assert outside == {"minigraph/__init__.py", "minigraph/__main__.py"}


@pytest.mark.parametrize(
    ("function", "format"),
    [(records.gradient_json, records.GRADIENT_FORMAT), (records.training_json, records.TRAINING_FORMAT)],
)
def test_the_json_documented_is_the_json_written(function, format):
    assert f'"{format}"' in function.__doc__
