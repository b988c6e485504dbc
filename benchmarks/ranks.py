"""Steps of the wide network on several ranks with one thread each, against one rank: ``python benchmarks/ranks.py``.

Each number of ranks runs in processes of its own, which `minigraph launch` starts; numbers take turns, because machines
are noisy. A rank is fed its part of the batch, and then as many samples as one rank is.

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
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
WIDTH, BATCH = 1024, 256
MEGABYTE = 2**20


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


def _train(fluid, parallel, batch, steps, width, sharded):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden, y = fluid.data("x", [None, 784]), fluid.data("y", [None, 1], "int64")
        for _ in range(2):
            hidden = fluid.layers.fc(hidden, width, act="relu")
        scores = fluid.layers.fc(hidden, 10)
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, y))
        fluid.optimizer.Adam(1e-3, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)).minimize(loss)
    rewrite = parallel.DataParallel(parallel.size(), sharded=sharded)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    rng = np.random.default_rng(parallel.rank())
    feed = {"x": rng.normal(size=(batch, 784)).astype("float32"), "y": rng.integers(0, 10, (batch, 1))}
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        executor.run(twin, feed, [loss], scope=scope)
        times.append(time.perf_counter() - start)
    with ThreadPoolExecutor(1) as thread:
        ended = threading.Event()
        most = thread.submit(_most_memory, ended)
        for _ in range(steps // 2):
            executor.run(twin, feed, [loss], scope=scope)
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


def measured(ranks, batch, steps, width=WIDTH, sharded=False):
    """Start `ranks` ranks; return the measures of the first."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "minigraph", "launch", "-n", str(ranks), __file__]
    command += ["--rank", str(batch), "--steps", str(steps), "--width", str(width), *["--state"] * sharded]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(next(line for line in output.splitlines() if line.startswith("[0] "))[4:])


def compare_state(numbers, steps, rounds, width):
    """Print what a rank keeps and needs, with whole and with divided state."""
    found = {}
    for _ in range(rounds):
        for key in [(ranks, sharded) for ranks in numbers for sharded in (False, True)]:
            found.setdefault(key, []).append(measured(key[0], BATCH // key[0], steps, width, key[1]))
    for (ranks, sharded), all_found in found.items():
        least = {key: min(each[key] for each in all_found) for key in ("step", "state", "peak")}
        print(
            f"{ranks} ranks, {'a part of the' if sharded else 'whole'} state: {least['state']:.1f} MB of state, "
            f"{least['peak']:.0f} MB in all at most, {least['step'] * 1e3:.1f} ms a step"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="1,2", help="numbers of ranks (default: 1,2)")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=WIDTH, help="units of the hidden layers (default: %(default)s)")
    parser.add_argument("--state", action="store_true", help="compare whole with divided state of the optimizer")
    parser.add_argument("--rank", type=int, metavar="BATCH", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        print(json.dumps(measures(given.rank, given.steps, given.width, given.state)))
        return
    numbers = [int(each) for each in given.ranks.split(",")]
    if given.state:
        compare_state(numbers, given.steps, given.rounds, given.width)
        return
    found = {}
    for _ in range(given.rounds):
        for ranks in numbers:
            for what, batch in (("of one batch", BATCH // ranks), ("of a batch each", BATCH)):
                found.setdefault((what, ranks), []).append(measured(ranks, batch, given.steps, given.width)["step"])
    for what in ("of one batch", "of a batch each"):
        alone = min(found[what, numbers[0]])
        for ranks in numbers:
            best = min(found[what, ranks])
            samples = BATCH if what == "of one batch" else BATCH * ranks
            gain = samples / best / (BATCH / alone)
            print(f"{ranks} ranks {what}: {best * 1e3:.1f} ms a step, {gain:.2f} times the samples of one")


if __name__ == "__main__":
    main()
