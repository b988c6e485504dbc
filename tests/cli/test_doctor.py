"""The BLAS that NumPy uses, when minigraph tells it the processor, and the command that reports on all of it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minigraph.cli import doctor
from minigraph.cli.main import main
from minigraph.support import blas

ROOT = Path(__file__).resolve().parents[2]
AVX512 = "avx512f avx512dq avx512cd avx512bw avx512vl"


def processor(family=26, vendor="AuthenticAMD", flags=f"fpu sse avx2 {AVX512} avx512_bf16"):
    """What Linux says of a processor with two cores."""
    one = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 2\nmodel name\t: EPYC\nflags\t\t: {flags}\n"
    return f"processor\t: 0\n{one}\nprocessor\t: 1\n{one}"


# When OpenBLAS is told


def test_a_processor_newer_than_openblas_knows_gets_the_kernels_of_its_instructions():
    assert blas.core_type_to_set(processor(), {}) == "SkylakeX"
    assert blas.core_type_to_set(processor(family=27), {}) == "SkylakeX"


@pytest.mark.parametrize("missing", AVX512.split())
def test_it_is_never_told_without_every_instruction_that_those_kernels_use(missing):
    flags = " ".join(flag for flag in AVX512.split() if flag != missing)
    assert blas.core_type_to_set(processor(flags=f"fpu avx2 {flags} {missing}_other"), {}) is None


@pytest.mark.parametrize(
    "text",
    [processor(family=25), processor(family=23), processor(vendor="GenuineIntel"), processor(family="x"), "", "junk"],
    ids=["Zen 4", "Zen 2", "Intel", "no number", "no Linux", "junk"],
)
def test_what_openblas_knows_or_nobody_knows_is_left_alone(text):
    assert blas.core_type_to_set(text, {}) is None


@pytest.mark.parametrize(
    "environment",
    [{"OPENBLAS_CORETYPE": "Zen"}, {"OPENBLAS_CORETYPE": ""}, {"MINIGRAPH_BLAS_CORETYPE": "off"},
     {"MINIGRAPH_BLAS_CORETYPE": " OFF "}],
)  # fmt: skip
def test_the_user_decides(environment):
    assert blas.core_type_to_set(processor(), environment) is None


def loaded_on(tmp_path, text, before="", **environment):
    """What a NumPy that only looks at the environment sees, and what is left of it, on a Linux with this processor."""
    (tmp_path / "numpy.py").write_text("import os\nseen = os.environ.get('OPENBLAS_CORETYPE')\n", encoding="utf-8")
    (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
    program = f"""
import builtins, os, platform, runpy, sys
{before}
sys.platform, platform.machine = "linux", lambda: "x86_64"
places, opened = {{"/proc/cpuinfo": {str(tmp_path / "cpuinfo")!r}}}, open
builtins.open = lambda path, *rest, **how: opened(places.get(path, path), *rest, **how)
runpy.run_path({str(ROOT / "minigraph" / "support" / "blas.py")!r}, run_name="minigraph.support.blas")
import numpy
print(numpy.seen, os.environ.get("OPENBLAS_CORETYPE"))
"""
    own = {name: value for name, value in os.environ.items() if name not in (blas.CORETYPE, blas.SWITCH)}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**own, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert ended.stderr == ""
    return ended.stdout.split()


@pytest.mark.slow
def test_numpy_sees_the_core_type_and_the_environment_is_put_back(tmp_path):
    assert loaded_on(tmp_path, processor()) == ["SkylakeX", "None"]


@pytest.mark.slow
def test_other_processors_and_choices_of_the_user_leave_the_environment_alone(tmp_path):
    assert loaded_on(tmp_path, processor(family=25)) == ["None", "None"]
    assert loaded_on(tmp_path, processor(), OPENBLAS_CORETYPE="Zen") == ["Zen", "Zen"]
    assert loaded_on(tmp_path, processor(), MINIGRAPH_BLAS_CORETYPE="off") == ["None", "None"]


@pytest.mark.slow
def test_a_numpy_without_openblas_that_was_imported_first_is_left_alone(tmp_path):
    assert loaded_on(tmp_path, processor(), before="import numpy") == ["None", "None"]


def chosen(program, start="Nehalem"):
    """What a program prints, and products of matrices, where NumPy's OpenBLAS has the kernels `start` at first."""
    program = f"""
import os, sys, threading, time
os.environ["OPENBLAS_CORETYPE"] = "{start}"
import numpy as np
del os.environ["OPENBLAS_CORETYPE"]
from minigraph.support import blas
{program}
print(blas.numpy_blas().core_type, end=" ")
rng = np.random.RandomState(0)
print(*[(rng.rand(size, 300).astype("f4") @ rng.rand(300, 70).astype("f4")).tobytes().hex()[:4000] for size in (50, 3)])
"""
    environment = {**os.environ, blas.SWITCH: "off"}
    how = {"capture_output": True, "encoding": "utf-8", "timeout": 60, "cwd": ROOT, "check": True}
    return subprocess.run([sys.executable, "-W", "always", "-c", program], env=environment, **how)


needs_kernels = pytest.mark.skipif(
    not any(hasattr(each, "gotoblas_dynamic_init") for each in blas.libraries()),
    reason="NumPy has no OpenBLAS whose kernels can be chosen again",
)
AGAIN = """
blas.core_type_to_set = lambda processor, environment: "Sandybridge"
blas.load_numpy()
assert "OPENBLAS_CORETYPE" not in os.environ
"""


@pytest.mark.slow
@needs_kernels
def test_kernels_are_chosen_again_when_numpy_was_imported_first():
    old, found, expected = chosen(""), chosen(AGAIN), chosen("", start="Sandybridge")
    assert (old.stdout.split()[0], found.stdout.split()[0]) == ("Nehalem", "Sandybridge")
    assert found.stdout == expected.stdout
    assert found.stderr == ""


@pytest.mark.slow
@needs_kernels
def test_they_are_chosen_again_beside_threads_that_wait():
    threads = """
import concurrent.futures, queue
pool = concurrent.futures.ThreadPoolExecutor()
pool.submit(int).result()
threading.Thread(target=queue.Queue().get, daemon=True).start()
threading.Thread(target=threading.Event().wait, daemon=True).start()
time.sleep(0.1)
"""
    found = chosen(threads + AGAIN)
    assert found.stdout.split()[0] == "Sandybridge"
    assert found.stderr == ""


@pytest.mark.slow
@needs_kernels
def test_beside_threads_that_may_multiply_a_warning_says_what_to_do():
    threads = """
def work():
    time.sleep(60)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""
    found = chosen(threads + AGAIN)
    assert found.stdout.split()[0] == "Nehalem"
    assert "RuntimeWarning" in found.stderr
    assert "set OPENBLAS_CORETYPE=SkylakeX" in found.stderr


@pytest.mark.slow
@needs_kernels
def test_kernels_that_are_not_slow_are_left_alone():
    found = chosen("blas._WITH_AVX512 = {'nehalem'}" + AGAIN)
    assert found.stdout.split()[0] == "Nehalem"
    assert found.stderr == ""


def test_one_thread_computes_inside_and_as_many_as_before_afterwards(monkeypatch):
    count = blas.thread_counter()
    if count is None:
        pytest.skip("NumPy has no OpenBLAS of its own")
    before = count()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(KeyboardInterrupt), blas.one_thread():
        assert count() == 1
        raise KeyboardInterrupt
    assert count() == before
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    with blas.one_thread():
        assert count() == before


@pytest.mark.slow
def test_importing_minigraph_looks_before_anything_loads_numpy():
    program = """
import sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print("minigraph.support.blas" in sys.modules, [n for n in sys.modules if n.startswith("minigraph.") ])
sys.meta_path.insert(0, Watch())
import minigraph
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, encoding="utf-8", timeout=60)
    before = ["", ".current_folder", ".interrupted_import", ".blas"]
    assert ended.stdout.splitlines()[0] == f"True {[f'minigraph.support{each}' for each in before]}"


# What is found


@pytest.mark.slow
def test_threads_are_those_that_openblas_was_given():
    if blas.numpy_blas().threads is None:
        pytest.skip("this NumPy has no OpenBLAS of its own to ask")
    program = "from minigraph.support import blas; print(blas.numpy_blas().threads)"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert ended.stdout == "1\n"


def finding(monkeypatch, subject, library=None, text="", **environment):
    """What the examination says of a subject on a machine with this BLAS and processor."""
    for name in (blas.CORETYPE, blas.SWITCH):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(blas, "read_processor", lambda: text)
    if library is not None:
        monkeypatch.setattr(blas, "numpy_blas", lambda: library)
    return next(each for each in doctor.examine() if each.subject == subject)


def openblas(core_type, threads=1):
    return blas.Blas("openblas", "0.3.31", core_type, threads)


def test_slow_kernels_because_numpy_came_first_are_told_in_one_line(monkeypatch):
    found = finding(monkeypatch, "BLAS kernels", openblas("Haswell"), processor())
    assert found.state == "Haswell"
    assert "Set OPENBLAS_CORETYPE=SkylakeX, or import minigraph before NumPy" in found.advice
    assert "\n" not in found.advice


def test_the_switch_is_named_where_it_is_what_keeps_kernels_slow(monkeypatch):
    found = finding(monkeypatch, "BLAS kernels", openblas("Haswell"), processor(), MINIGRAPH_BLAS_CORETYPE="off")
    assert "unset MINIGRAPH_BLAS_CORETYPE" in found.advice


def test_good_kernels_need_no_advice(monkeypatch):
    found = finding(monkeypatch, "BLAS kernels", openblas("SkylakeX"), processor())
    assert (found.state.split(",")[0], found.advice) == ("SkylakeX", "")
    assert finding(monkeypatch, "BLAS kernels", openblas("Zen"), processor(family=23)).advice == ""
    own = finding(monkeypatch, "BLAS kernels", openblas("Zen"), processor(), OPENBLAS_CORETYPE="Zen")
    assert (own.state, own.advice) == ("Zen; you have set OPENBLAS_CORETYPE=Zen", "")


def test_more_threads_than_cores_are_told(monkeypatch):
    monkeypatch.setattr(doctor, "_cores", lambda: 2)
    assert "Set OPENBLAS_NUM_THREADS=2" in finding(monkeypatch, "BLAS threads", openblas("Zen", 8)).advice
    assert finding(monkeypatch, "BLAS threads", openblas("Zen", 1)).advice == ""


def test_what_is_not_installed_comes_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert "pip install 'minigraph[jit]'" in finding(monkeypatch, "compiler").advice
    assert "pip install 'minigraph[cuda12]'" in finding(monkeypatch, "GPU").advice


def test_the_command_prints_every_finding(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for found in doctor.examine():
        assert f"{found}\n" in out
    assert f"NumPy {np.__version__}" in out
