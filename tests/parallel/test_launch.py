"""Ranks that are processes: the launcher, and how ranks end."""

import ast
import importlib.util
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from minigraph import parallel
from minigraph.cli.main import main
from minigraph.parallel.launching import _show
from minigraph.parallel.rank import _Prefixed

sys.path.insert(0, str(Path(__file__).parent))
from mpi_exchanges import train

HERE = Path(__file__).parent
needs_mpi = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py, of the extra mpi")

TRAINING = """
import os, signal, sys, time
import numpy as np
import minigraph as fluid
from minigraph import parallel

what, rank = sys.argv[1], parallel.rank()
main = fluid.Program()
with fluid.program_guard(main):
    x = fluid.data("x", [2])
    out = main.global_block().create_var(name="out")
    type = "c_allreduce_max" if what == "other" and rank == parallel.size() - 1 else "c_allreduce_sum"
    main.global_block().append_op(type, {"X": x}, {"Out": out})
executor = fluid.Executor() if parallel.size() < 8 else fluid.Interpreter()  # which many ranks start in less time
for step in range(3):
    if rank == parallel.size() - 1 and step == 2 and what != "train":
        with open(__file__ + ".time", "w") as file:  # what is printed may be lost
            print(time.time(), file=file)
        if what == "raise":
            raise ValueError("on purpose")
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "exit":
            sys.exit(3)
        if what.startswith("leave"):
            os._exit(0)
        if what == "early":
            break
        if what == "wait":
            time.sleep(60)
        if what == "loop":
            while True:
                pass
    if what == "leave others behind" and rank == 0 and step == 2:
        time.sleep(60)
    if step == 2 and what in ("wait", "loop"):
        # The last rank is where it stays, and rank 0 comes before rank 1, however busy the machine is.
        while not os.path.exists(__file__ + (".time" if rank == 0 else ".first")):
            time.sleep(0.01)
        open(__file__ + ".first", "w").close()
        parallel.current().patience = 0.4 + 0.4 * rank
        parallel.current().timeout -= 119  # of those of the option
    print("step", step, executor.run(main, {"x": np.full(2, rank, "float32")}, [out])[0])
print(*(os.environ[f"PADDLE_{name}"] for name in ("TRAINER_ID", "TRAINERS_NUM", "CURRENT_ENDPOINT")))
print("GPU", os.environ["FLAGS_selected_gpus"])
"""


NAMED = r"(rank \d or )*rank LAST( or rank \d)*"
"""Others may be named beside the last rank: those with as few exchanges, and one that was seen to end before it."""


def launched(ranks, script, *arguments, options=(), input=""):
    """The launcher's status, standard output, standard error, and the seconds that it took."""
    start = time.monotonic()
    command = [sys.executable, "-m", "minigraph", "launch", "-n", str(ranks), *options, str(script), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    found = subprocess.run(
        command, capture_output=True, text=True, input=input, timeout=120, env=environment, check=False
    )
    return found.returncode, found.stdout, found.stderr, time.monotonic() - start


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(TRAINING, encoding="utf-8")
    return path


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_processes_give_the_bits_of_simulated_ranks(ranks):
    status, output, errors, _ = launched(ranks, HERE / "mpi_exchanges.py")
    assert status == 0, errors
    (expected,) = set(parallel.simulate(lambda rank: train(rank, ranks), ranks))
    assert sorted(output.splitlines()) == [f"[{rank}] {expected}" for rank in range(ranks)]


@needs_mpi
@pytest.mark.slow
def test_lines_begin_with_their_rank(script):
    status, output, errors, _ = launched(2, script, "train")
    assert (status, errors) == (0, "")
    for rank in range(2):
        lines = [line for line in output.splitlines() if line.startswith(f"[{rank}] ")]
        steps = [f"[{rank}] step {step} [1. 1.]" for step in range(3)]
        assert lines == [*steps, f"[{rank}] {rank} 2 127.0.0.1:{6170 + rank}", f"[{rank}] GPU {rank}"]


@pytest.mark.slow
def test_time_is_linear_in_what_a_rank_prints():
    """Lines of 10 MB, and 300,000 dots in one line, as progress bars print them."""
    printed, shown = io.StringIO(), io.StringIO()
    stream = _Prefixed(printed, 3)
    stream.write("x" * 10_000_000 + "\n")
    for _ in range(300_000):
        stream.write(".")
    stream.end()
    printed.seek(0)
    _show(printed, shown)
    assert shown.getvalue() == f"[3] {'x' * 10_000_000}\n[3] {'.' * 300_000}\n"


@needs_mpi
def test_no_room_for_temporary_files_is_one_line(capsys, monkeypatch, script):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/dev/full"])
    assert main(["launch", "-n", "2", str(script)]) == 1
    message, hint = capsys.readouterr().err.splitlines()
    assert message.startswith("minigraph: error: cannot write temporary files: No usable temporary directory")
    assert "TMPDIR" in hint


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full, of Linux")
@pytest.mark.parametrize("number", [1, 2])
def test_a_launcher_that_cannot_write_ends_all(number, tmp_path):
    """Even if the other stream is open, and a rank writes more than a pipe takes."""
    script = tmp_path / "script.py"
    script.write_text(f"import os, time\nfor _ in range(20): os.write({number}, b'x' * 9999 + b'\\n')\ntime.sleep(60)")
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "minigraph", "launch", "-n", "2", str(script)]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
        streams["stdout" if number == 1 else "stderr"] = full
        ended = subprocess.run(command, **streams, text=True, env=environment, timeout=50, check=False)
    assert ended.returncode == 1
    if number == 1:
        assert ended.stderr.startswith("minigraph: error: cannot write the output: No space left on device\n")


@needs_mpi
@pytest.mark.slow
def test_a_launcher_whose_output_is_closed_ends_as_others_do(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print('nobody reads it')", encoding="utf-8")
    command = f"exec {sys.executable} -m minigraph launch -n 2 {script} >&-"
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    ended = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@needs_mpi
@pytest.mark.slow
def test_an_error_that_is_no_text_is_shown(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(r"raise ValueError('one \udcff')", encoding="utf-8")
    status, _, errors, _ = launched(2, script)
    assert status == 1
    assert re.match(r"rank \d failed first:\nTraceback(.*\n)*ValueError: one \\udcff", errors), errors


@needs_mpi
@pytest.mark.slow
def test_output_that_is_no_text_is_shown(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(r"import os; os.write(1, b'one \xff\n')", encoding="utf-8")
    assert launched(1, script)[:3] == (0, "one \\xff\n", "")


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("raise", r"rank LAST failed first:\nTraceback.*\n  File .*script.py.*\n(.*\n)*ValueError: on purpose"),
        ("exit", r"rank LAST failed first:\nTraceback(.*\n)*SystemExit: 3"),
        ("die", f"{NAMED} ended before its script did, without an error: by a signal"),
        ("leave", f"{NAMED} ended before its script did, without an error: by a signal, os._exit"),
        ("leave others behind", f"{NAMED} ended before its script did, without an error: by a signal, os._exit"),
        ("early", r"rank LAST, exchanges 1 to 3:\n(.*\n)*    the end of the script"),
        (
            "other",
            r"ranks? 0.*, exchanges 1 to 1:\n    c_allreduce_sum of x(.*\n)*  rank LAST.*\n    c_allreduce_max of x",
        ),
    ],
)
@pytest.mark.parametrize("ranks", [2, 8])
def test_when_one_rank_fails_all_end_and_its_error_is_shown(ranks, script, what, shown):
    status, _, errors, _ = launched(ranks, script, what)
    if what != "other":
        assert time.time() - float(Path(f"{script}.time").read_text(encoding="utf-8")) < 5
    assert status == 1
    assert re.search(shown.replace("LAST", str(ranks - 1)), errors), errors
    assert re.search(r"The ranks were last at:\n  rank 0: process \d+, exchange \d: c_allreduce_sum of x", errors)
    named = re.search(r"(.*) ended before its script did", errors)
    if named is not None:
        begun = dict(re.findall(r"  (rank \d): process \d+, exchange (\d+):", errors))
        others = [begun[each] for each in named[1].split(" or ")]
        assert sum(each != begun[f"rank {ranks - 1}"] for each in others) <= 1, errors


@needs_mpi
@pytest.mark.slow
def test_rank_0_reads_what_the_launcher_is_given(tmp_path):
    """Under MPICH the others would wait for ever."""
    path = tmp_path / "reading.py"
    path.write_text("import sys\nprint(sys.stdin.read().split())", encoding="utf-8")
    status, out, error, _ = launched(2, path, input="two words")
    assert (status, sorted(out.splitlines())) == (0, ["[0] ['two', 'words']", "[1] []"]), error


@needs_mpi
@pytest.mark.slow
def test_a_script_that_is_no_python_is_shown_without_the_launcher(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("x = (", encoding="utf-8")
    status, _, error, _ = launched(2, path)
    assert status == 1
    assert re.search(r"rank . failed first:\n  File .*broken.py., line 1\n", error), error


@needs_mpi
@pytest.mark.slow
def test_a_module_is_started_as_python_does(tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "beside.py").write_text("WORD = 'here'", encoding="utf-8")
    (package / "train.py").write_text(
        "import sys\nfrom .beside import WORD\nprint(__name__, WORD, sys.argv[1:])", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    status, out, error, _ = launched(2, "package.train", "x", options=["-m"])
    assert (status, sorted(out.splitlines())) == (0, [f"[{rank}] __main__ here ['x']" for rank in range(2)]), error
    status, _, error, _ = launched(2, package / "train.py")
    assert (status, "launch -n N -m PACKAGE.MODULE" in error) == (1, True)
    status, _, error, _ = launched(2, "package.nothing", options=["-m"])
    assert status == 1
    assert re.search(r"rank . failed first:\nImportError: No module named package.nothing\n", error), error


WAITING = """
import os, pathlib, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT) if "stubborn" in sys.argv else ():
    signal.signal(number, signal.SIG_IGN)
(pathlib.Path(sys.argv[1]) / str(os.getpid())).touch()
time.sleep(120)
"""


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("options", [(), ("stubborn",)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_rank_is_left_behind_when_the_launcher_is_ended(number, options, tmp_path):
    (tmp_path / "script.py").write_text(WAITING, encoding="utf-8")
    (tmp_path / "started").mkdir()
    command = [sys.executable, "-m", "minigraph", "launch", "-n", "2", "script.py", "started", *options]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    # A test runner in the background may ignore Ctrl-C, and what it starts does then, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        launcher = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    end = time.monotonic() + 60
    while len(ranks := list((tmp_path / "started").iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    launcher.send_signal(number)
    launcher.communicate(timeout=30)
    assert launcher.returncode not in (0, None)
    while (left := [each.name for each in ranks if Path("/proc", each.name).exists()]) and time.monotonic() < end:
        time.sleep(0.05)
    assert (len(ranks), left) == (2, [])


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stacks of ranks are asked for by their process")
@pytest.mark.parametrize(("what", "line"), [("wait", "time.sleep(60)"), ("loop", "                pass")])
def test_a_rank_that_others_wait_for_is_named_with_the_line_where_it_is_and_ended(script, what, line):
    status, _, errors, _ = launched(3, script, what, options=["--timeout", "120"])
    assert status == 1
    lines = TRAINING.splitlines()
    number = next(at for at, each in enumerate(lines, 1) if each.endswith(line))
    places = f"(?:{number}|{number - 1})"  # a loop without end is at one of two lines
    late = rf".*\n.*rank 2: process \d+, exchange 2: c_allreduce_sum of x.*\n.* at .*script.py:{places}, in <module>"
    assert len(re.findall(rf"\[0\] rank 0 has waited \d s for the others at c_allreduce_sum of x{late}", errors)) == 1
    assert re.search(rf"Error: .*rank \d has waited 1 s for the others at c_allreduce_sum of x{late}", errors)
    assert not re.search(r"^\[1\] rank 1 has waited", errors, re.MULTILINE)  # one notice is enough


@needs_mpi
@pytest.mark.slow
def test_lines_arguments_and_input_arrive_as_they_are(tmp_path):
    """With more ranks than cores, of a script that knows nothing of ranks."""
    script = tmp_path / "a script.py"
    script.write_text(
        "import sys\n"
        "print('x' * 300_000)\n"
        "print(sys.argv[1:], repr(sys.stdin.read()), '训练', end='')\n"
        "sys.stderr.buffer.write(bytes([255, 10]))\n"
    )
    ranks = (os.cpu_count() or 1) + 1
    status, output, errors, _ = launched(ranks, script, "a b", '"', "-n", "3", input="given")
    assert status == 0, errors
    for rank in range(ranks):
        given = "given" if rank == 0 else ""
        assert f"[{rank}] {'x' * 300_000}" in output.splitlines()
        shown = ["a b", '"', "-n", "3"]
        assert f"[{rank}] {shown} '{given}' 训练" in output.splitlines()


@needs_mpi
@pytest.mark.slow
def test_threads_are_chosen_and_ranks_that_differ_are_named(tmp_path, monkeypatch):
    script = tmp_path / "threads.py"
    script.write_text("import os\nprint(os.environ['OPENBLAS_NUM_THREADS'])\n", encoding="utf-8")
    status, output, errors, _ = launched(2, script, options=["--threads", "3"])
    assert (status, sorted(output.splitlines()), errors) == (0, ["[0] 3", "[1] 3"], "")
    other = tmp_path / "sitecustomize.py"
    other.write_text(
        "import os\nos.environ['OPENBLAS_NUM_THREADS'] = str(1 + int(os.environ.get('PMI_RANK', 0)))\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "minigraph", "launch", "-n", "2", str(script)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(HERE.parents[1])])}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    if "[1] 2" in ended.stdout and os.cpu_count() != 1:  # where MPICH says which rank it is
        assert "ranks are not alike" in ended.stderr


def printed(ranks, script, kinds):
    """Lines that the ranks of a script print about each kind of training, by kind and in the order of the ranks.

    One launch for all kinds, because a rank takes longer to start than to train.
    """
    status, output, errors, _ = launched(ranks, HERE / script, *kinds)
    assert status == 0, errors
    lines = [line.partition("] ")[2].partition(": ") for line in sorted(output.splitlines())]
    return {
        kind: [ast.literal_eval(text.replace("] [", "], [")) for each, _, text in lines if each == kind]
        for kind in kinds
    }


@needs_mpi
@pytest.mark.slow
def test_ranks_of_fleet_train_as_one():
    modes = ["nccl2", "collective", "local", "sum of losses"]
    one, two = (printed(ranks, "fleet_training.py", modes) for ranks in (1, 2))
    for mode in modes:
        assert [files for files, _ in two[mode]] == [["a", "b", "c"], ["d", "e"]], mode
        for _, weights in two[mode]:
            assert weights == two[mode][0][1], mode
            assert weights == pytest.approx(one[mode][0][1], rel=1e-5), mode


@needs_mpi
@pytest.mark.slow
def test_ranks_without_fleet_train_as_one():
    kinds = ["compiled", "older executor", "operators"]
    one, two = (printed(ranks, "older_training.py", kinds) for ranks in (1, 2))
    for kind in kinds:
        assert two[kind][0] == two[kind][1] == pytest.approx(one[kind][0], rel=1e-5), kind


@pytest.mark.slow
@needs_mpi
def test_what_cannot_be_launched_is_refused(script, tmp_path):
    status, _, errors, _ = launched(0, script)
    assert (status, "must be at least 1, got 0" in errors) == (2, True)
    status, _, errors, _ = launched(2, tmp_path / "none.py")
    assert (status, "there is no file" in errors) == (1, True)
