"""When loops are compiled, and where they are kept."""

import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from jit_support import needs_numba

import minigraph as fluid
from minigraph.errors import MissingExtraError
from minigraph.executor import plan
from minigraph.kernels.jit import compiling, threads

ROOT = Path(__file__).resolve().parents[2]


def momentum_program(size=2000):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, size])
        loss = fluid.layers.mean(fluid.layers.fc(x, 8, bias_attr=False))
        fluid.optimizer.Momentum(0.1, momentum=0.9).minimize(loss)
    return main, startup, loss


def source(executor, program=None):
    main, _, loss = momentum_program()
    feed = {"x": np.ones((2, 2000), "float32")}
    report = executor.explain(program(main) if program else main, feed, [loss])
    return report.source


# Choosing


@needs_numba
def test_executors_compile_by_default(monkeypatch):
    monkeypatch.delenv("MINIGRAPH_JIT", raising=False)
    assert "jit_momentum(" in source(fluid.Executor())


@pytest.mark.slow
@needs_numba
def test_an_executor_can_be_told_not_to(monkeypatch):
    assert "jit_momentum(" not in source(fluid.Executor(jit=False))
    monkeypatch.setenv("MINIGRAPH_JIT", "off")
    assert "jit_momentum(" not in source(fluid.Executor())
    assert "jit_momentum(" in source(fluid.Executor(jit=True))


@needs_numba
def test_a_build_strategy_can_say_so_for_one_program(monkeypatch):
    kinds = []
    real = plan.generate
    monkeypatch.setattr(plan, "generate", lambda *rest: (kinds.append(rest[4]), real(*rest))[1])
    main, startup, loss = momentum_program()
    strategy = fluid.BuildStrategy()
    strategy.jit = False
    executor, scope = fluid.Executor(jit=True), fluid.Scope()
    executor.run(startup, scope=scope)
    results = []
    for program in (main, fluid.CompiledProgram(main, strategy), fluid.CompiledProgram(main)):
        kinds.clear()
        results += executor.run(program, {"x": np.zeros((2, 2000), "float32")}, [loss], scope=scope)
        results.append(kinds[:])
    assert (results[1], results[3]) == ([True], [False])
    assert results[0] == results[2] == results[4]


def test_without_numba_nothing_is_compiled_and_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(compiling, "is_installed", lambda: False)
    assert not fluid.Executor().jit
    with pytest.raises(MissingExtraError, match=r"jit=True needs numba.*\n(.*\n)?.*pip install 'minigraph\[jit\]'"):
        fluid.Executor(jit=True)


def run_python(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_numba_is_imported_when_it_is_used_only():
    program = """
import sys, numpy as np, minigraph as fluid
exe = fluid.Executor()
y = fluid.layers.relu(fluid.data("x", [None, 2]))
exe.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[y])
print("numba" in sys.modules)
"""
    assert run_python(program, MINIGRAPH_JIT="") == "False\n"


# Keeping

LOOPS = """
import numpy as np

def twice(x):
    for i in range(x.size):
        x[i] = x[i] * 2
"""


def twice(text=LOOPS):
    function = compiling._compile(text, "twice", "void(float64[::1])")
    x = np.arange(3.0)
    function(x)
    assert x.tolist() == [0, 2, 4]
    return function


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder, and no memory of what was compiled."""
    monkeypatch.setenv("MINIGRAPH_JIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(compiling, "_modules", {})
    return tmp_path / "cache"


def forget():
    compiling._modules.clear()


def hits(function):
    return sum(function.stats.cache_hits.values())


@pytest.mark.slow
@needs_numba
def test_sources_share_what_they_import(cache):
    loops = compiling.Loops("functions", "functions32", "exponentials")

    def value(formula):
        text = f"{loops.import_line}\n\ndef f(x):\n    return {formula}\n"
        return compiling._compile(text, "f", "float32(float32)")(np.float32(0.5))

    assert value("exp(x)") == np.float32(np.exp(0.5))
    helper = compiling._modules[loops.source].exp
    made = helper.overloads.copy()
    assert len(made) == 1
    assert value("exp(x) * x") == np.float32(np.exp(0.5)) / 2
    assert helper.overloads == made
    forget()  # a new process finds both
    assert value("exp(x)") == np.float32(np.exp(0.5))
    assert not compiling._modules[loops.source].exp.overloads


@pytest.mark.slow
@needs_numba
def test_what_was_compiled_is_found_again(cache):
    assert hits(twice()) == 0
    forget()
    assert hits(twice()) == 1
    assert not list(cache.glob("*.new"))


@pytest.mark.slow
@needs_numba
def test_other_text_is_compiled_anew(cache):
    twice()
    forget()
    assert hits(twice(LOOPS.replace("* 2", "+ x[i]"))) == 0
    assert len(list(cache.glob("*.py"))) == 2


@pytest.mark.laws
@needs_numba
@pytest.mark.parametrize("pattern", ["__pycache__/*.nbi", "__pycache__/*.nbc", "*.py"])
@pytest.mark.parametrize("spoil", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"junk" + data])
def test_what_is_spoilt_is_made_anew(cache, pattern, spoil):
    twice()
    (path,) = cache.glob(pattern)
    path.write_bytes(spoil(path.read_bytes()))
    forget()
    twice()
    forget()
    assert hits(twice()) == 1


@pytest.mark.slow
@needs_numba
def test_without_a_folder_to_write_to_it_compiles_all_the_same(cache):
    cache.write_text("a file, where a folder should be", encoding="utf-8")
    twice()


@pytest.mark.slow
@needs_numba
def test_other_types_than_those_compiled_for_are_refused(cache):
    function = twice()
    for x in (np.zeros(3, "float32"), np.zeros((2, 2)), np.zeros(6)[::2]):
        with pytest.raises(TypeError):
            function(x)


@pytest.mark.slow
@needs_numba
def test_a_kept_loop_is_loaded_without_the_compiler_and_its_library(cache):
    if importlib.import_module("numba").version_info.short not in compiling._LOADS_ALONE:
        pytest.skip("another version of numba")
    program = """
import sys, numpy as np, minigraph as fluid
x = fluid.data("x", [None, 4096])
y = fluid.layers.softmax(fluid.layers.exp(fluid.layers.scale(x, 2.0)))
(found,) = fluid.Executor().run(feed={"x": np.full((64, 4096), 0.5, "float32")}, fetch_list=[y])
print("numba.np.arraymath" in sys.modules, found.sum().round())
"""
    environment = {"MINIGRAPH_JIT": "", "MINIGRAPH_JIT_CACHE": str(cache)}
    assert [run_python(program, **environment) for _ in range(2)] == ["True 64.0\n", "False 64.0\n"]


@pytest.mark.slow
def test_processes_may_fill_the_folder_at_a_time(cache):
    program = f"""
from minigraph.kernels.jit import compiling
import numpy as np
x = np.arange(3.0)
compiling.compiled({LOOPS!r}, "twice", "void(float64[::1])")(x)
assert x.tolist() == [0, 2, 4]
"""
    workers = [
        subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for worker in workers:
        assert (worker.communicate()[1], worker.returncode) == ("", 0)
    assert hits(twice()) == 1


def test_the_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.delenv("MINIGRAPH_JIT_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiling.folder() == tmp_path / "minigraph" / "jit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compiling.folder() == tmp_path / ".cache" / "minigraph" / "jit"
    monkeypatch.setenv("MINIGRAPH_JIT_CACHE", "~/loops")
    assert compiling.folder() == tmp_path / "loops"


# Threads


def test_pieces_cover_everything_once(monkeypatch):
    for count in (1, 2, 3, 7):
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        for size in (0, 1, threads.LEAST, 2 * threads.LEAST - 1, 2 * threads.LEAST, 5 * threads.LEAST + 3):
            found = threads.pieces(size)
            assert [i for start, end in found for i in (start, end)][1:-1:2] == [start for start, _ in found[1:]]
            assert (found[0][0], found[-1][1]) == (0, size)
            assert len(found) == (max(1, min(count, size // threads.LEAST)) if size >= 2 * threads.LEAST else 1)


def test_loops_that_only_move_numbers_take_longer_pieces(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    least = threads.least_of(8)
    assert least > threads.LEAST == threads.least_of(1024)
    assert len(threads.pieces(2 * least - 1, least)) == 1 and len(threads.pieces(2 * least, least)) == 2


@pytest.mark.slow
def test_the_number_of_threads_follows_the_environment():
    program = "from minigraph.kernels.jit.threads import _wanted; print(_wanted())"
    assert run_python(program, OMP_NUM_THREADS="3,2", NUMBA_NUM_THREADS="") == "3\n"
    assert run_python(program, OMP_NUM_THREADS="3", NUMBA_NUM_THREADS="5") == "5\n"
    assert run_python(program, OMP_NUM_THREADS="", NUMBA_NUM_THREADS="junk") == f"{len(os.sched_getaffinity(0))}\n"


def test_the_number_of_threads_is_never_above_that_of_blas(monkeypatch):
    monkeypatch.setattr(threads, "_wanted", lambda: 4)
    for blas_threads, expected in ((1, 1), (2, 2), (9, 4)):
        monkeypatch.setattr(threads, "_blas_threads", lambda count=blas_threads: lambda: count)
        assert threads.thread_count() == expected
    monkeypatch.setattr(threads, "_blas_threads", lambda: None)
    assert threads.thread_count() == 4


def test_calls_run_at_a_time_and_an_error_reaches_the_caller():
    together = threading.Barrier(3, timeout=20)
    threads.run_together([together.wait] * 3)

    def fail():
        raise ValueError("this one")

    done = []
    for calls in ([fail, lambda: done.append(1)], [lambda: done.append(1), fail]):
        with pytest.raises(ValueError, match="this one"):
            threads.run_together(calls)
    assert done == [1, 1]
    threads.run_together([together.wait] * 3)


def test_a_caller_who_finds_the_threads_taken_does_everything_himself():
    inner = []

    def nested():
        threads.run_together([lambda: inner.append(threading.get_ident())] * 2)

    threads.run_together([nested, nested])
    assert len(inner) == 4


@pytest.mark.slow
@needs_numba
def test_executors_in_two_threads_and_a_forked_process_get_the_right_numbers():
    program = """
import os, sys, threading
import numpy as np
import minigraph as fluid
from minigraph.kernels.jit import threads
threads.thread_count = lambda: 2

def train(found, at, steps=20):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 400])
        start = fluid.initializer.ConstantInitializer(0.5)
        y = fluid.layers.fc(x, 1000, param_attr=fluid.ParamAttr(name="w", initializer=start), bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.square(y))
        fluid.optimizer.Adam(0.01).minimize(loss)
    executor, scope = fluid.Executor(jit=True), fluid.Scope()
    executor.run(startup, scope=scope)
    for _ in range(steps):
        executor.run(main, {"x": np.ones((2, 400), "float32")}, [loss], scope=scope)
    found[at] = np.array(scope.find_var("w").get_tensor())

def both():
    found = {}
    workers = [threading.Thread(target=train, args=(found, i)) for i in range(2)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    assert found[0].tobytes() == found[1].tobytes()
    return found[0]

first = both()
child = os.fork()
if not child:
    os._exit(0 if both().tobytes() == first.tobytes() else 1)
assert os.waitpid(child, 0)[1] == 0
assert both().tobytes() == first.tobytes()
"""
    run_python(program)
