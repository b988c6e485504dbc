"""The command ``minigraph``: what it prints, what it writes, how it ends."""

import builtins
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minigraph import __version__, report
from minigraph.__main__ import main

ROOT = Path(__file__).resolve().parent.parent
SHORT = ["compare", "--batches", "2", "--batch-size", "16"]
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


def printed(capsys, *arguments):
    assert main([*SHORT, *arguments]) == 0
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


def test_the_default_run_clips_with_each_kind(capsys):
    out = printed(capsys)
    for text in ("norm=2", "global_norm=1", "value=0.1"):
        assert f"\n{text}  GradientClip" in out
    assert out.count("all together") == 3
    assert len(re.findall(r"norm before +norm after.*\n.* clipping +clipping ", out)) == 3


def test_some_batches_are_clipped_by_each_of_the_default_clips(tmp_path):
    file = tmp_path / "out.json"
    assert main(["compare", "--quiet", "--json", str(file)]) == 0
    clips = json.loads(file.read_text())["clips"]
    assert [clip["clip"] for clip in clips] == ["norm=2", "global_norm=1", "value=0.1"]
    for clip in clips:
        assert clip["total"]["mean"]["share_clipped"] > 0
        assert 0 < clip["total"]["mean"]["factor"] < 1


def test_the_operators_inserted_are_shown_unless_declined(capsys):
    shown = printed(capsys, "--clip", "norm=2")
    assert len(re.findall(r"^\+ +clip_by_norm_\d\.tmp_0: float32", shown, re.MULTILINE)) == 6
    assert "clip_by_norm(" not in printed(capsys, "--clip", "norm=2", "--no-diff")


def test_the_output_is_the_same_for_the_same_seed(capsys):
    first = printed(capsys, "--seed", "3")
    assert first == printed(capsys, "--seed", "3")
    assert first != printed(capsys, "--seed", "4")


def test_nothing_is_wider_than_a_hundred_columns(capsys):
    assert max(map(len, printed(capsys).splitlines())) <= 100


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


def test_training_shows_the_loss_going_down(capsys):
    out = printed(capsys, "--train", "0.05", "--batches", "12", "--batch-size", "128", "--no-diff")
    first, last = map(float, re.search(r"([\d.]+) in the first batch, ([\d.]+) in the last", out).groups())
    assert last < first


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"minigraph {__version__}\n"


def test_help_explains_clips_and_has_examples(capsys):
    assert main(["compare", "--help"]) == 0
    out = capsys.readouterr().out
    for text in ("global_norm=C", "value=LOW:HIGH", "minigraph compare --train", "--place", "--no-diff"):
        assert text in out
    assert main(["--help"]) == 0
    assert "compare a program's gradients" in capsys.readouterr().out


# JSON


def check_numbers(value):
    if isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            check_numbers(item)


def reject(constant):
    raise AssertionError(f"{constant} is not JSON")


def test_json_has_the_documented_keys(tmp_path):
    file = tmp_path / "out.json"
    assert main([*SHORT, "--quiet", "--clip", "norm=0.5", "--clip", "value=-0.1:0.2", "--json", str(file)]) == 0
    found = json.loads(file.read_text(encoding="utf-8"), parse_constant=reject)
    check_numbers(found)
    assert list(found) == ["format", "version", "minigraph", "settings", "program", "batches", "clips"]
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
        assert list(clip) == ["clip", "strategy", "operators_inserted", "parameters", "total"]
        assert clip["operators_inserted"] == 6
        assert [{"name": p["name"], "shape": p["shape"]} for p in clip["parameters"]] == found["program"]["parameters"]
        for changes in (*clip["parameters"], clip["total"]):
            assert list(changes["mean"]) == ["norm_before", "norm_after", "factor", "share_clipped", "cosine"]
            assert list(changes["batches"]) == ["norm_before", "norm_after", "factor", "clipped", "cosine"]
            assert {len(values) for values in changes["batches"].values()} == {2}
            assert all(isinstance(value, bool) for value in changes["batches"]["clipped"])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_that_are_not_finite_are_null_in_json(tmp_path):
    file = tmp_path / "out.json"
    assert main([*SHORT, "--quiet", "--batches", "4", "--train", "1e30", "--json", str(file)]) == 0
    found = json.loads(file.read_text(), parse_constant=reject)
    assert found["batches"][-1]["loss"] is None
    assert found["clips"][0]["total"]["batches"]["norm_before"][-1] is None


def test_files_are_replaced_whole_and_nothing_else_is_left(tmp_path):
    file = tmp_path / "out.json"
    file.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(file)
    assert main([*SHORT, "--quiet", "--json", str(link)]) == 0
    assert json.loads(file.read_text())["version"] == 1
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "out.json"]


def test_a_run_that_fails_leaves_the_old_file_alone(tmp_path, monkeypatch, capsys):
    file = tmp_path / "out.json"
    file.write_text("old")
    monkeypatch.setenv("MINIGRAPH_OFFLINE", "1")
    monkeypatch.setenv("MINIGRAPH_DATA_HOME", str(tmp_path / "nothing"))
    assert main([*SHORT, "--data", "mnist", "--json", str(file)]) == 1
    assert "minigraph: error: train-images-idx3-ubyte.gz" in capsys.readouterr().err
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


# The plot


@pytest.mark.parametrize(("name", "start"), [("out.png", PNG), ("out.PDF", b"%PDF"), ("out.svg", b"<?xml")])
def test_the_plot_has_the_format_of_its_suffix(tmp_path, name, start):
    pytest.importorskip("matplotlib")
    file = tmp_path / name
    assert main([*SHORT, "--quiet", "--plot", str(file)]) == 0
    assert file.read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_plot_without_matplotlib_names_the_extra(tmp_path, monkeypatch, capsys):
    imported = builtins.__import__

    def without_matplotlib(name, *arguments, **options):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    file = tmp_path / "out.png"
    message = refused(capsys, *SHORT, "--plot", str(file))
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
        (["--place", "gpu"], "unknown place 'gpu'"),
        (["--place", "cdua"], "Did you mean cuda?"),
        (["--place", "cuda:x"], "unknown place 'cuda:x'"),
        (["--data", "cifar"], "--data"),
        (["--plot", "out.txt"], "the name must end in .png, .svg, .pdf"),
        (["--json", "same.png", "--plot", "same.png"], "same file"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_with_one_message(capsys, arguments, said):
    message = refused(capsys, "compare", *arguments)
    assert said in message
    assert message.startswith("minigraph")
    assert message.count("error:") == 1


def test_a_command_is_needed(capsys):
    assert "COMMAND" in refused(capsys)


@pytest.mark.parametrize("option", ["--json", "--plot"])
@pytest.mark.parametrize("path", ["missing/out.png", "folder.png", "/dev/null/out.png"])
def test_a_path_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch, capsys, option, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    monkeypatch.setattr("minigraph.comparison.compare", lambda *_, **__: pytest.fail("the work began"))
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

    monkeypatch.setattr("minigraph.comparison.compare", interrupted)
    assert main(SHORT) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="pipes break otherwise there")
def test_a_reader_that_leaves_early_gets_no_traceback():
    command = f"'{sys.executable}' -m minigraph compare --batches 1 | head -n 1"
    ended = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.stdout.count("\n") == 1
    assert ended.stderr == ""


def test_the_core_does_not_import_the_command():
    program = "import sys, minigraph; print([m for m in sys.modules if m.partition('.')[0] in ('rich', 'matplotlib')])"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "[]", ended.stderr
    imports = re.compile(r"minigraph\.(report|comparison|__main__)|import (report|comparison)")
    users = {path.name for path in (ROOT / "minigraph").rglob("*.py") if imports.search(path.read_text())}
    assert users <= {"__main__.py", "report.py", "comparison.py"}


def test_the_json_documented_is_the_json_written():
    text = report.comparison_json.__doc__
    assert f'"{report.JSON_FORMAT}"' in text
