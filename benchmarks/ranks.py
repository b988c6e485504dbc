"""Steps of the wide network on several ranks with one thread each, against one rank: ``python benchmarks/ranks.py``.

Ranks train in one launch and in turns: rank 0 alone with a whole batch, all ranks apart, which exchange nothing, and
all ranks together, each with its part of the batch and with as many samples as one rank. No exchange is quicker than
none, so that the ranks apart are the bound.

``--realtime`` gives steps a real-time priority and each rank a core (Linux, as root), for machines that do other work.

``python benchmarks/ranks.py --state --ranks 1,2,4,8 --width 2048`` shows in place of that the memory of a rank, and the
step, with whole state of the optimizer and with a part of it in each rank (on Linux).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
WIDTH, BATCH = 1024, 256
MEGABYTE = 2**20


def in_turns(parts, rounds, steps, width, realtime):
    """Median milliseconds of a step in each round, by the part of a batch that a rank has and who trains."""
    import minigraph as fluid
    from minigraph import parallel

    rank, ranks = parallel.rank(), parallel.size()
    kinds = {"alone": (1, 1, [0]), "apart": (1, None, range(ranks)), "together": (ranks, None, range(ranks))}
    series = {}
    for part in parts:
        for who, (of, share, members) in kinds.items():
            step = _trainer(fluid, parallel, of, BATCH // (share or part), width, False)[0]
            series[f"{who} {part}"] = step if rank in members else None
    if realtime:
        os.sched_setaffinity(0, {rank % os.cpu_count()})
    found = {key: [] for key in series}
    for _ in range(rounds + 1):  # the first one loads what is compiled
        for key, step in series.items():
            parallel.current().barrier()
            if step is not None:
                with _realtime() if realtime else nullcontext():
                    found[key].append(statistics.median(timed(step, steps)[steps // 8 :]) * 1e3)
    return {key: each[1:] for key, each in found.items()}


def timed(step, steps):
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


@contextmanager
def _realtime():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def measures(batch, steps, width, sharded):
    """Measures of one rank: median seconds of a step (Adam, clip by global norm), and megabytes.

    These are of the optimizer's state in its scope, and the most by which the process grows, shared memory divided by
    the number of its users.
    """
    import minigraph as fluid
    from minigraph import parallel

    _train(fluid, parallel, batch, 2, 64, sharded)  # loads what is compiled
    before = _memory()
    times, state, most = _train(fluid, parallel, batch, steps, width, sharded)
    return {"step": statistics.median(times[steps // 4 :]), "state": state, "peak": most - before}


def _trainer(fluid, parallel, ranks, batch, width, sharded):
    """A function that makes a step of one of `ranks` ranks; with its program and its scope."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden, y = fluid.data("x", [None, 784]), fluid.data("y", [None, 1], "int64")
        for _ in range(2):
            hidden = fluid.layers.fc(hidden, width, act="relu")
        scores = fluid.layers.fc(hidden, 10)
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, y))
        fluid.optimizer.Adam(1e-3, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)).minimize(loss)
    rewrite = parallel.DataParallel(ranks, sharded=sharded)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    rng = np.random.default_rng(parallel.rank())
    feed = {"x": rng.normal(size=(batch, 784)).astype("float32"), "y": rng.integers(0, 10, (batch, 1))}
    return lambda: executor.run(twin, feed, [loss], scope=scope), twin, scope


def _train(fluid, parallel, batch, steps, width, sharded):
    step, twin, scope = _trainer(fluid, parallel, parallel.size(), batch, width, sharded)
    times = timed(step, steps)
    with ThreadPoolExecutor(1) as thread:
        ended = threading.Event()
        most = thread.submit(_most_memory, ended)
        timed(step, steps // 2)
        ended.set()
    names = [var.name for var in twin.list_vars() if fluid.io.is_belong_to_optimizer(var)]
    state = sum(np.asarray(scope.find_var(name).get_tensor()).nbytes for name in names) / MEGABYTE
    return times, state, most.result()


def _most_memory(ended):
    """The most memory that the process has until the event."""
    most = 0.0
    while not ended.wait(1e-4):
        most = max(most, _memory())
    return most


def _memory():
    """Megabytes of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / MEGABYTE


def launched(ranks, *options):
    """Start `ranks` ranks of this file; return the measures of the first."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "minigraph", "launch", "-n", str(ranks), __file__]
    command += [str(each) for each in options]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(next(line for line in output.splitlines() if line.startswith("[0] "))[4:])


def compare_state(numbers, steps, rounds, width):
    """Print what a rank keeps and needs, with whole and with divided state."""
    found = {}
    for _ in range(rounds):
        for key in [(ranks, sharded) for ranks in numbers for sharded in (False, True)]:
            options = ["--rank", BATCH // key[0], "--steps", steps, "--width", width, *["--state"] * key[1]]
            found.setdefault(key, []).append(launched(key[0], *options))
    for (ranks, sharded), all_found in found.items():
        least = {key: min(each[key] for each in all_found) for key in ("step", "state", "peak")}
        print(
            f"{ranks} ranks, {'a part of the' if sharded else 'whole'} state: {least['state']:.1f} MB of state, "
            f"{least['peak']:.0f} MB in all at most, {least['step'] * 1e3:.1f} ms a step"
        )


def compare_ranks(ranks, rounds, steps, width, realtime):
    """Print the steps of ranks that exchange gradients, and what they would be without."""
    options = ["--turns", rounds, "--steps", steps, "--width", width, *["--realtime"] * realtime]
    found = launched(ranks, *options)
    for part, what in ((ranks, "of one batch"), (1, "of a batch each")):
        least = {who: min(found[f"{who} {part}"]) for who in ("alone", "apart", "together")}
        samples = ranks / part
        gains = [samples * least["alone"] / least[who] for who in ("together", "apart")]
        print(
            f"{ranks} ranks {what}: {least['together']:.1f} ms a step, {gains[0]:.2f} times the samples of one "
            f"({least['alone']:.1f} ms); {gains[1]:.2f} times if they exchanged nothing ({least['apart']:.1f} ms)"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2", help="numbers of ranks (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=24, help="steps of a turn (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each training (default: %(default)s)")
    parser.add_argument("--width", type=int, default=WIDTH, help="units of the hidden layers (default: %(default)s)")
    parser.add_argument("--state", action="store_true", help="compare whole with divided state of the optimizer")
    parser.add_argument("--realtime", action="store_true", help="run steps with a real-time priority")
    parser.add_argument("--rank", type=int, metavar="BATCH", help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, metavar="ROUNDS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        print(json.dumps(measures(given.rank, given.steps, given.width, given.state)))
        return
    if given.turns:
        from minigraph import parallel

        parts = (parallel.size(), 1)
        print(json.dumps(in_turns(parts, given.turns, given.steps, given.width, given.realtime)))
        return
    numbers = [int(each) for each in given.ranks.split(",")]
    if given.state:
        compare_state(numbers, given.steps, given.rounds, given.width)
        return
    for ranks in numbers:
        compare_ranks(ranks, given.rounds, given.steps, given.width, given.realtime)


if __name__ == "__main__":
    main()
