"""Profiles: what they count, that they change no numbers, and that nothing is timed outside them."""

import json
import time
from itertools import pairwise

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import DataError, ProgramError
from minigraph.executor import profiler
from minigraph.kernels import registry
from minigraph.kernels.jit import compiling

FEED = {"x": np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)}


@pytest.fixture
def trained(shared_kernels):  # a table of native calls would stand in a source without times
    """A program with an update, its executor, its scope and what to fetch."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 3, act="tanh"))
        fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByNorm(0.01)).minimize(loss)
    exe, scope = fluid.Executor(passes=fluid.passes.LEGALIZE), fluid.Scope()  # operators stay as they were written
    exe.run(startup, scope=scope)
    return main, exe, scope, loss


def run(trained, times=1):
    main, exe, scope, loss = trained
    return [exe.run(main, feed=FEED, fetch_list=[loss], scope=scope)[0] for _ in range(times)]


def sources(exe):
    return [plan.compiled.source for plan in exe.plans]


def test_each_operator_is_counted_once_a_run(trained):
    with fluid.profiler.profile() as p:
        run(trained, 3)
    ops = [op.type for op in trained[0].global_block().ops]
    counted = {}
    for row in p.rows():
        counted[row.op_type] = counted.get(row.op_type, 0) + row.calls
    assert counted == {op: 3 * ops.count(op) for op in ops}


def test_a_row_says_which_line_made_the_operator(trained):
    with fluid.profiler.profile() as p:
        run(trained)
    sites = {op.type: op.site for op in trained[0].global_block().ops}
    assert {row.op_type: row.site for row in p.rows()} == sites
    assert f"test_profiler.py:{sites['tanh'].line}, in: loss = fluid.layers.mean(" in str(p)


def test_the_figures_of_the_rows_agree_with_each_other(trained):
    with fluid.profiler.profile() as p:
        run(trained, 4)
    rows = p.rows()
    assert sum(row.share for row in rows) == pytest.approx(1)
    for row in rows:
        assert 0 < row.min <= row.ave <= row.max <= row.total == pytest.approx(row.calls * row.ave)


def test_time_is_charged_to_the_operator_that_takes_it(trained, monkeypatch):
    def slow(xp, x):
        time.sleep(0.02)
        return xp.tanh(x)

    monkeypatch.setitem(registry._KERNELS, ("tanh", None), registry.Kernel(slow, (), False, False, False, None))
    monkeypatch.setattr(registry, "_SPECIALIZERS", {})
    with fluid.profiler.profile() as p:
        run(trained, 2)
    slowest = p.rows()[0]
    assert (slowest.op_type, slowest.calls) == ("tanh", 2)
    assert slowest.min >= 0.02


@pytest.mark.slow
def test_compiling_a_loop_is_charged_to_no_operator(trained, monkeypatch):
    def compiles(xp, x):
        compiling.compiled("", f"made up {len(compiling._compiled)}", "")
        return xp.tanh(x)

    def slow(*key):
        time.sleep(0.3)
        return abs

    monkeypatch.setattr(compiling, "_compile", slow)
    monkeypatch.setattr(compiling, "_compiled", {})
    monkeypatch.setitem(registry._KERNELS, ("tanh", None), registry.Kernel(compiles, (), False, False, False, None))
    monkeypatch.setattr(registry, "_SPECIALIZERS", {})
    with fluid.profiler.profile() as p:
        run(trained, 2)
    assert len(compiling._compiled) == 2
    assert sum(row.total for row in p.rows()) < 0.3


def test_columns_of_times_have_a_unit(trained):
    with fluid.profiler.profile() as p:
        run(trained)
    heads, *rows = p.table().splitlines()[1:]
    titles = [f"{name} [us]" for name in ("total", "mean", "min", "max")]
    ends = [heads.index(title) + len(title) for title in titles]
    for line, row in zip(rows, p.rows(), strict=True):
        figures = [line[:end].split()[-1] for end in ends]
        expected = [f"{row.total * 1e6:.1f}", *(f"{each * 1e6:.2f}" for each in (row.ave, row.min, row.max))]
        assert figures == expected


def test_results_are_the_same_bits_with_and_without(trained):
    scope = trained[2]
    saved = {name: np.array(scope.find_var(name).get_tensor()) for name in ("fc_0.w_0", "fc_0.b_0")}
    plain = run(trained, 3)
    for name, value in saved.items():
        scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())
    with fluid.profiler.profile():
        timed = run(trained, 3)
    np.testing.assert_array_equal(plain, timed)


def test_outside_a_profile_plans_know_nothing_of_time(trained):
    run(trained)
    with fluid.profiler.profile():
        run(trained)
    run(trained)
    plain, timed = sorted([source for source in sources(trained[1]) if "tanh" in source], key=len)
    assert "now()" in timed
    assert plain == "".join(line for line in timed.splitlines(keepends=True) if "now()" not in line)


def test_runs_before_and_after_are_not_counted(trained):
    run(trained, 2)
    with fluid.profiler.profile() as p:
        run(trained)
    run(trained, 2)
    assert sum(row.calls for row in p.rows()) == len(trained[0].global_block().ops)


def test_a_run_that_fails_is_not_counted_and_names_its_line(monkeypatch):
    def fails(xp, x):
        raise ValueError("no")

    monkeypatch.setitem(registry._KERNELS, ("tanh", None), registry.Kernel(fails, (), False, False, False, None))
    monkeypatch.setattr(registry, "_SPECIALIZERS", {})
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        y = fluid.layers.tanh(fluid.layers.relu(fluid.data("x", [None, 4])))
        with (
            fluid.profiler.profile() as p,
            pytest.raises(fluid.errors.ExecutionError, match=r"y = fluid\.layers\.tanh"),
        ):
            fluid.Executor().run(feed=FEED, fetch_list=[y])
    assert p.rows() == []


def test_the_trace_is_one_event_for_each_run_and_operator_inside_it(trained, tmp_path):
    with fluid.profiler.profile() as p:
        run(trained, 2)
    p.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    runs = [event for event in events if event["cat"] == "run"]
    ops = [event for event in events if event["cat"] == "operator"]
    assert len(runs) == 2
    assert [event["name"] for event in ops] == 2 * [op.type for op in trained[0].global_block().ops]
    assert {event["ph"] for event in events} == {"X"}
    for whole, inside in zip(runs, (ops[: len(ops) // 2], ops[len(ops) // 2 :]), strict=True):
        assert sum(event["dur"] for event in inside) == pytest.approx(whole["dur"])
        for before, after in pairwise(inside):
            assert after["ts"] == pytest.approx(before["ts"] + before["dur"])
    assert ops[0]["args"]["outputs"] == trained[0].global_block().ops[0].output_arg_names


def test_what_executors_do_for_the_imperative_mode_is_seen():
    with fluid.dygraph.guard(), fluid.profiler.profile() as p:
        w = fluid.dygraph.to_variable(np.ones(4, "float32"))
        w.stop_gradient = False
        fluid.layers.mean(fluid.layers.tanh(w)).backward()
    assert "tanh_grad" in {row.op_type for row in p.rows()}


@pytest.mark.gpu
def test_on_a_gpu_a_step_ends_when_its_work_is_done(cuda_place):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4096])
        y = fluid.layers.tanh(fluid.layers.matmul(x, x))
        exe = fluid.Executor(cuda_place)
        with fluid.profiler.profile() as p:
            for _ in range(3):
                exe.run(feed={"x": np.ones((4096, 4096), "float32")}, fetch_list=[y])
    slowest = p.rows()[0]
    # Launching the product, which matmul is rewritten to, takes no longer than launching tanh.
    assert (slowest.op_type, slowest.calls) == ("mul", 3)


# Fluid's functions


def test_fluids_context_prints_the_table_and_writes_the_trace(trained, tmp_path, capsys):
    with fluid.profiler.profiler("CPU", "total", tmp_path / "trace.json"):
        run(trained, 5)
    out = capsys.readouterr().out
    assert out.startswith("5 runs, ")
    shares = [float(line.split("%")[0].split()[-1]) for line in out.splitlines()[2:]]
    assert shares == sorted(shares, reverse=True)
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]


def test_the_trace_goes_where_fluid_writes_its_profile(trained, monkeypatch, capsys):
    written = []
    monkeypatch.setattr(profiler.Profile, "save_trace", lambda self, path: written.append(path))
    with fluid.profiler.profiler("CPU"):
        run(trained)
    with fluid.profiler.profiler("CPU", profile_path=None):
        run(trained)
    assert written == ["/tmp/profile"]


@pytest.mark.parametrize("key", ["calls", "total", "max", "min", "ave"])
def test_rows_are_sorted_by_fluids_keys(trained, key):
    with fluid.profiler.profile() as p:
        run(trained, 3)
    values = [getattr(row, key) for row in p.rows(key)]
    assert values == sorted(values, reverse=True)


def test_without_a_key_rows_are_in_program_order(trained):
    with fluid.profiler.profile() as p:
        run(trained)
    order = list(dict.fromkeys(op.type for op in trained[0].global_block().ops))
    assert [row.op_type for row in p.rows(None)] == order


def test_start_reset_and_stop(trained, capsys):
    fluid.profiler.start_profiler("All")
    run(trained, 2)
    fluid.profiler.reset_profiler()
    run(trained)
    fluid.profiler.stop_profiler("calls", None)
    assert capsys.readouterr().out.startswith("1 runs, ")
    assert profiler._active == []


def test_a_profile_whose_trace_cannot_be_written_is_kept(trained, tmp_path, capsys):
    fluid.profiler.start_profiler("CPU")
    run(trained)
    with pytest.raises(DataError, match="is a folder"):
        fluid.profiler.stop_profiler(profile_path=tmp_path)
    assert capsys.readouterr().out == ""
    fluid.profiler.stop_profiler(profile_path=tmp_path / "trace.json")
    assert capsys.readouterr().out.startswith("1 runs, ")
    assert (tmp_path / "trace.json").stat().st_size > 0
    with pytest.raises(DataError, match="is a folder"), fluid.profiler.profiler("CPU", profile_path=tmp_path):
        run(trained)
    assert capsys.readouterr().out.startswith("1 runs, ")
    assert profiler._active == []


def test_the_profile_of_gpus_leaves_the_cpu_alone(trained, capsys):
    with fluid.profiler.profiler("GPU", profile_path=None):
        run(trained)
    assert capsys.readouterr().out.startswith("0 runs, ")
    assert not any("now()" in source for source in sources(trained[1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("TPU",), "state must be one of 'CPU', 'GPU', 'All', got 'TPU'"),
        (("CPU", "size"), "sorted_key must be one of None, 'calls', 'total', 'max', 'min', 'ave', got 'size'"),
        (("CPU", None, None, "All"), "tracer_option must be one of"),
    ],
)
def test_other_arguments_are_refused(arguments, message):
    with pytest.raises(ProgramError, match=message), fluid.profiler.profiler(*arguments):
        pass
    assert profiler._active == []


def test_starting_twice_and_stopping_without_a_start_are_refused(tmp_path):
    with pytest.raises(ProgramError, match="not started"):
        fluid.profiler.stop_profiler()
    with (
        fluid.profiler.profiler("CPU", profile_path=str(tmp_path / "profile")),
        pytest.raises(ProgramError, match="started already"),
    ):
        fluid.profiler.start_profiler("CPU")
    assert profiler._active == []
