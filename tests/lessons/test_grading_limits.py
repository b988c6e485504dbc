"""What a student's file may do to its process, and what the grader says of it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time

import pytest

from minigraph.errors import LessonError, MissingFileError
from minigraph.lessons import student_process
from minigraph.lessons.answer import Answer
from minigraph.lessons.catalogue import find_lesson
from minigraph.lessons.grader import Grade, grade
from minigraph.lessons.student_process import StudentProcess, environment

PASS = """
from minigraph.passes import Pass

class ClipEachGradient(Pass):
    def apply(self, program):
        {body}
"""

RAISED = {
    "exit": ("import sys\nsys.exit(3)", "the file calls sys.exit\n  at answer.py:2, in: sys.exit(3)"),
    "error": ("x = 1\nx / 0", "ZeroDivisionError: division by zero\n  at answer.py:2, in: x / 0"),
    "syntax": ("def f(:\n    pass", "the file is not Python"),
    "null byte": ("x = '\0'", "null bytes"),
    "no name": ("", "the file defines no ClipEachGradient"),
    "no pass": ("ClipEachGradient = 3", "ClipEachGradient is 3, which is no pass"),
    "recursion": ("def f(): f()\nf()", "RecursionError"),
    "own exception": ("class E(BaseException): pass\nraise E('odd')", "E: odd"),
    "interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "memory": ("x = bytearray(1 << 60)", "the file needs more memory than allowed\n  at answer.py:1"),
    "number": (PASS.format(body="return 1"), "apply returned 1"),
    "text": (PASS.format(body="program.global_block().ops[0].inputs['X'] = (7,); return True"), "cannot be printed"),
    "minigraph": (PASS.format(body="program.global_block().var('z')"), "NotFoundError: block 0 has no variable 'z'"),
}  # fmt: skip

ENDED = {
    "at the start": ("while True:\n    pass", "the file needs more than 1 s\n  at answer.py:"),
    "in apply": (PASS.format(body="while True: pass"), "the file needs more than 1 s\n  at answer.py:6"),
    "exit": ("import os\nos._exit(3)", "the file ended its process, with status 3"),
    "signal": ("import os\nos.kill(os.getpid(), 9)", "was ended by signal 9"),
    "reply": ("import os\nfor n in range(3, 20):\n    try: os.write(n, b'junk\\n')\n    except OSError: pass",
              "gave no proper reply"),
    "input": (PASS.format(body="return input()"), "EOFError"),
    "memory": ("x = 0\nx = bytearray(1 << 34)", "the file needs more memory than allowed\n  at answer.py:2"),
}  # fmt: skip

FOLDER = "import minigraph.lessons, os\nfolder = minigraph.lessons.__path__[0]\n"
ANSWERS = {
    "import": "from minigraph.lessons.insert_clip.reference import ClipEachGradient",
    "module by name": "import importlib\nimportlib.import_module('minigraph.lessons.insert_clip.' + 'reference')",
    "through a judge": "from minigraph.lessons.first_rule import clip_of_clip",
    "text": f"{FOLDER}open(folder + '/insert_clip/reference.py').read()",
    "bytes": f"{FOLDER}os.open(folder.encode() + b'/insert_clip/reference.py', os.O_RDONLY)",
    "link": f"{FOLDER}os.symlink(folder + '/insert_clip/reference.py', 'mine.py')\nimport mine",
    "hard link": f"{FOLDER}os.link(folder + '/insert_clip/reference.py', 'mine.py')",
    "folder": f"{FOLDER}os.open('reference.py', os.O_RDONLY, dir_fd=os.open(folder + '/insert_clip', os.O_RDONLY))",
    "questions": "from minigraph.lessons.read_a_program.questions import questions",
}

STARTED = {
    "subprocess": "import subprocess\nsubprocess.run(['cat', '/dev/null'])",
    "shell": "import os\nos.system('cat /dev/null')",
    "spawn": "import os\nos.posix_spawn('/bin/cat', ['cat', '/dev/null'], {})",
    "instead": "import os\nos.execv('/bin/cat', ['cat', '/dev/null'])",
    "multiprocessing": "import multiprocessing\nmultiprocessing.get_context('spawn').Process(target=print).start()",
    "server": "import multiprocessing\nmultiprocessing.get_context('forkserver').Process(target=print).start()",
}

FORKED = {
    "fork": "import os\nos.fork()",
    "process": "import multiprocessing\nmultiprocessing.get_context('fork').Process(target=print).start()",
    "pool": "import multiprocessing\nmultiprocessing.get_context('fork').Pool(2)",
    "executor": "import concurrent.futures as f\nf.ProcessPoolExecutor(2)",
}

CHEATS = """
        import minigraph.lessons.grader as grader, minigraph.lessons.student_pass as marking
        from minigraph.lessons import insert_clip
        grader.Grade.score = 100
        marking.verify = insert_clip.outcome = lambda *args, **options: {}
        insert_clip.QUESTIONS.clear()
        print('{"lesson": 7, "score": 100}')
        return False
"""


@pytest.fixture
def answer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(source: str):
        path = tmp_path / "answer.py"
        path.write_text(source, encoding="utf-8")
        return path

    return write


PROGRAM = "block 0\n  data x: float32[2]\n  y: float32[2] = tanh(X=x)"


@pytest.mark.parametrize("kind", RAISED)
def test_whatever_a_file_raises_becomes_a_message_with_its_line(kind, answer):
    source, message = RAISED[kind]
    with pytest.raises(LessonError) as raised:
        Answer(str(answer(source))).call("rewrite", name="ClipEachGradient", program=PROGRAM, roots=None)
    assert message in str(raised.value)


def said(path, seconds=1) -> str:
    """What the process of a file says when it starts, or when its pass is applied."""
    with StudentProcess(path, seconds, megabytes=1024) as student:
        try:
            student.start()
            student.call("rewrite", name="ClipEachGradient", program=PROGRAM, roots=None)
        except LessonError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("kind", ["byte order mark", "named encoding"])
def test_a_file_has_the_encoding_that_python_finds(kind, tmp_path):
    text = '# coding: latin-1\nclaim = "caf\xe9"\n'.encode("latin-1")
    path = tmp_path / "answer.py"
    path.write_bytes(text if kind == "named encoding" else b"\xef\xbb\xbfclaim = 'caf\xc3\xa9'\n")
    found = Answer(str(path))
    assert found.value("claim") == "caf\xe9" and "caf\xe9" in found.words()


def test_a_file_in_another_encoding_is_told(tmp_path):
    path = tmp_path / "answer.py"
    path.write_bytes(b"x = 1\ny = 2\n# caf\xe9\n")
    with pytest.raises(LessonError, match="the file is not text in utf-8: invalid continuation byte"):
        Answer(str(path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDED)
def test_a_file_that_ends_its_process_or_has_to_be_ended_gets_a_message(kind, answer):
    source, message = ENDED[kind]
    if kind == "memory" and sys.platform != "linux":
        pytest.skip("only Linux limits memory")
    assert message in said(answer(source))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ANSWERS)
def test_a_file_cannot_read_the_answers(kind, answer):
    lines = ANSWERS[kind].splitlines()
    message = said(answer(ANSWERS[kind]), seconds=30)
    assert f"the file reads the answers of a lesson\n  at answer.py:{len(lines)}, in: {lines[-1]}" in message
    assert "Write the answer yourself." in message


@pytest.mark.skipif(sys.platform == "win32", reason="starts programs of other systems")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no forks")
@pytest.mark.slow
@pytest.mark.parametrize("kind", FORKED)
def test_a_file_that_forks_is_told_so(kind, answer):
    message = said(answer(FORKED[kind]), seconds=30)
    assert "the file starts a second process\n  at answer.py:2" in message
    assert "Do the work in one process." in message


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no forks")
def test_of_two_processes_one_answers(answer):
    source = "import ctypes\nchild = ctypes.CDLL(None).fork()\nx = 1"
    with StudentProcess(answer(source), 30) as student:
        student.start()
        assert [student.call("value", name="x") for _ in range(2)] == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", STARTED)
def test_a_file_cannot_start_a_program_that_could(kind, answer):
    message = said(answer(STARTED[kind]), seconds=30)
    assert "the file starts another program\n  at answer.py:2" in message
    assert "Do the work in the file itself." in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "class_name"),
    [("insert_clip", "ClipEachGradient"), ("training_order", "AddDecay"), ("11", "SumOverRanks")],
)
def test_a_program_without_updates_gets_no_points(name, class_name, answer):
    body = "[program.global_block().remove(op) for op in list(program.global_block().ops)]; return True"
    found = grade(find_lesson(name), answer(PASS.format(body=body).replace("ClipEachGradient", class_name)))
    assert found.score == 0
    assert "any more" in str(found)


@pytest.mark.slow
def test_random_numbers_are_the_same_in_each_grade(answer):
    source = (
        "import random\nimport numpy as np\nanswers = {'backward': random.choice(range(3, 9)), 'fed': np.random.rand()}"
    )
    first, second = (grade(find_lesson("1"), answer(source)) for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_each_call_that_does_not_end_is_told_at_once(answer, monkeypatch):
    monkeypatch.setattr(student_process, "LONGEST_CALL", 1.0)
    with StudentProcess(answer(PASS.format(body="while True: pass")), seconds=30) as student:
        student.start()
        started = time.monotonic()
        for _ in range(20):
            with pytest.raises(LessonError, match=r"the file needs more than 1 s\n  at answer.py:6"):
                student.call("rewrite", name="ClipEachGradient", program=PROGRAM, roots=None)
    assert time.monotonic() - started < 15


@pytest.mark.slow
def test_a_file_that_prints_without_end_is_told_so(answer):
    body = "print('x' * (1 << 27)); return False"
    assert "the file prints or writes more than 64 MB\n  at answer.py:6" in said(answer(PASS.format(body=body)), 30)


@pytest.mark.slow
def test_a_pass_cannot_change_how_it_is_judged(answer):
    found = grade(find_lesson("insert_clip"), answer(PASS.format(body=CHEATS)))
    assert found.score == 0
    assert "nothing is clipped yet" in str(found)


@pytest.mark.slow
def test_what_a_file_prints_is_shown_and_does_no_harm(answer):
    found = grade(find_lesson("1"), answer("print('{}' * 10)\nprint('x' * 10**7)\nanswers = {}"))
    assert found.printed.startswith("{}{}{}{}{}{}{}{}{}{}\nxxx")
    assert len(found.printed) < 3000
    assert "Your file printed:\n  {}{}" in str(found)


@pytest.mark.slow
def test_a_program_that_does_not_end_or_fit_does_no_harm(answer):
    body = 'program.global_block().emit("fill_constant", shape=[1 << 40], dtype="float32", value=1.0); return True'
    found = grade(find_lesson("insert_clip"), answer(PASS.format(body=body)))
    assert found.score == 0


@pytest.mark.slow
def test_a_program_that_prints_does_not_disturb_the_grade(answer):
    body = """
        from minigraph import layers, program_guard
        with program_guard(program):
            layers.Print(program.global_block().var("x"))
        return True
    """
    found = grade(find_lesson("insert_clip"), answer(PASS.format(body=body)))
    assert found.score == 0
    assert "nothing is clipped yet" in str(found)


@pytest.mark.slow
def test_processes_that_a_file_starts_end_with_it(answer):
    started = time.monotonic()
    source = "import ctypes, os, time\nchild = ctypes.CDLL(None).fork() if hasattr(os, 'fork') else os.getpid()\n"
    source += "if not child:\n    time.sleep(600)\nprint(child, flush=True)"
    with StudentProcess(answer(source), 30) as student:
        student.start()
        child = int(student.printed())
    assert time.monotonic() - started < 20
    if hasattr(os, "killpg"):
        deadline = time.monotonic() + 5
        while _runs(child) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _runs(child)


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_a_file_works_on_copies_of_the_files_beside_it(answer, tmp_path):
    (tmp_path / "data.txt").write_text("seven", encoding="utf-8")
    (tmp_path / "beside.py").write_text("number = 7", encoding="utf-8")
    path = answer(
        "import os\nfrom beside import number\nprint(open('data.txt').read(), number)\n"
        "for each in os.listdir(): os.remove(each)\nopen('made.txt', 'w').write('x')"
    )
    before = sorted(os.listdir(tmp_path))
    assert grade(find_lesson("insert_clip"), path).printed == "seven 7\n"
    assert sorted(os.listdir(tmp_path)) == before


OUTSIDE = {
    "write": "open(notes, 'w')",
    "append": "open(notes, 'a')",
    "write and read": "open(notes, 'r+b')",
    "pathlib": "pathlib.Path(notes).write_text('x')",
    "bytes": "open(os.fsencode(notes), 'w')",
    "descriptor": "os.open(notes, os.O_WRONLY | os.O_TRUNC)",
    "a new file": "open(home + '/new.txt', 'x')",
    "a new folder": "os.mkdir(home + '/new')",
    "remove": "os.remove(notes)",
    "remove all": "shutil.rmtree(home)",
    "rename": "os.rename(notes, 'mine.txt')",
    "replace": "os.replace('mine.txt', notes)",
    "move": "shutil.move(notes, 'mine.txt')",
    "through a link": "os.symlink(notes, 'link'); open('link', 'w')",
    "through a folder's link": "os.symlink(home, 'link'); os.remove('link/notes.txt')",
    "a hard link": "os.link(notes, 'link')",
    "a link outside": "os.symlink('mine.txt', home + '/link')",
    "above": "open('../printed.txt', 'w')",
    "truncate": "os.truncate(notes, 0)",
    "rights": "os.chmod(notes, 0)",
    "time": "os.utime(notes, (0, 0))",
    "NumPy": "numpy.save(home + '/array.npy', [1])",
    "NumPy, past Python": "numpy.ones(2).tofile(notes)",
    "a table of SQLite": "sqlite3.connect(home + '/table.db')",
}


def _tree(folder):
    """The files of a folder with what can be changed of them."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        content = path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else b""
        found[str(path)] = state.st_mode, state.st_mtime_ns, state.st_nlink, content
    return found


@pytest.fixture
def home(tmp_path):
    """A folder of the user's with a file."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "notes.txt").write_text("seven", encoding="utf-8")
    return folder


def _outcomes(path):
    """The messages that the code of a file has printed, one for each thing that it tried."""
    with StudentProcess(path, 30) as student:
        student.start()
        return student.printed().splitlines()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="links and rights of other systems")
def test_a_file_changes_nothing_outside_of_its_copies(answer, home):
    lines = ["import os, pathlib, shutil, sqlite3, numpy", f"home = {str(home)!r}", "notes = home + '/notes.txt'"]
    for act in OUTSIDE.values():
        lines += [
            "open('mine.txt', 'w').close()",
            "try:",
            f"    {act}",
            "except OSError as error: print(error.message[:19])",
        ]
        lines += ["else: print('done')", "for each in os.listdir(): os.remove(each)"]
    before = _tree(home)
    found = dict(zip(OUTSIDE, _outcomes(answer("\n".join(lines))), strict=True))
    assert _tree(home) == before
    assert found == dict.fromkeys(OUTSIDE, "the file writes to ")


@pytest.mark.slow
def test_a_write_outside_is_told_with_its_line(answer, home):
    path = answer(f"x = 1\nopen({str(home / 'notes.txt')!r}, 'w')")
    found = str(grade(find_lesson("insert_clip"), path))
    assert f"the file writes to {os.path.realpath(home / 'notes.txt')}, which is not among its copies" in found
    assert "at answer.py:2, in: open(" in found
    assert "Write to the current folder" in found
    assert (home / "notes.txt").read_text(encoding="utf-8") == "seven"


PAST_PYTHON = [
    "libc.unlink(notes)", "libc.creat(home + b'/new.txt', 0o600)", "libc.rename(notes, b'mine.txt')",
    "libc.truncate(notes, 0)", "libc.mkdir(home + b'/new', 0o700)", "libc.link(notes, b'link')",
    "os.mkfifo(home + b'/fifo')", "os.remove('notes.txt', dir_fd=os.open(home, os.O_RDONLY))",
    "os.open('notes.txt', os.O_WRONLY, dir_fd=os.open(home, os.O_RDONLY))",
    "libc.fork() or os._exit(libc.unlink(notes))",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux refuses what goes past Python")
def test_neither_do_calls_that_go_past_python(answer, home):
    if ctypes.CDLL(None).syscall(444, None, 0, 1) < 0:
        pytest.skip("this kernel has no Landlock")
    lines = ["import ctypes, os", "libc = ctypes.CDLL(None)", f"home = {os.fsencode(home)!r}"]
    lines += ["notes = home + b'/notes.txt'", "open('mine.txt', 'w').close()"]
    for act in PAST_PYTHON:
        lines += ["try:", f"    print(({act}) == 0, flush=True)", "except OSError as error: print(error.strerror)"]
    before = _tree(home)
    found = _outcomes(answer("\n".join([*lines, "os.wait()"])))
    assert _tree(home) == before
    refused = ["Permission denied" if act.startswith("os.") and "fork" not in act else "False" for act in PAST_PYTHON]
    assert found == refused


@pytest.mark.slow
def test_a_file_may_write_where_its_copies_are(answer):
    source = (
        "import os, shutil, tempfile\nopen('a.txt', 'w').write('x')\nos.mkdir('b')\nshutil.move('a.txt', 'b/c.txt')\n"
        "os.link('b/c.txt', 'd.txt')\nos.symlink('d.txt', 'e.txt')\nopen('e.txt', 'a').write('y')\n"
        "print(open(os.path.abspath('b/c.txt')).read())\nshutil.rmtree('b')\nprint(sorted(os.listdir()))\n"
        "with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as file:\n"
        "    file.write(b'x'); open(folder + '/a', 'w'); open(os.devnull, 'w').write('x')"
    )
    with StudentProcess(answer(source), 30) as student:
        student.start()
        assert student.printed() == "xy\n['d.txt', 'e.txt']\n"


@pytest.mark.slow
def test_files_beside_it_may_have_the_names_of_modules_of_python(tmp_path):
    path = tmp_path / "solution.py"
    path.write_text("print('runs')", encoding="utf-8")
    for name in ("copy", "json", "queue", "random"):
        (tmp_path / f"{name}.py").write_text("x = 1", encoding="utf-8")
    command = [sys.executable, "-m", "minigraph", "grade", "insert_clip", path.name]
    ended = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert "Your file printed:\n  runs" in ended.stdout, ended.stderr


@pytest.mark.slow
def test_the_same_file_gets_the_same_grade():
    lesson = find_lesson("2")
    path = lesson.file("reference.py")
    first, second = grade(lesson, path), grade(lesson, path)
    assert first == second
    assert first.score == 100
    assert Grade.from_json(first.to_json()) == first


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingFileError, match=r"there is no file .*absent\.py"):
        grade(find_lesson("1"), tmp_path / "absent.py")
