"""Steps of the wide network on several ranks with one thread each, against one rank: ``python benchmarks/ranks.py``.

Each number of ranks runs in processes of its own, which `minigraph launch` starts; numbers take turns, because machines
are noisy. A rank is fed its part of the batch, and then as many samples as one rank is.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SIZES = (784, 1024, 1024, 10)
BATCH = 256


def step_times(batch, steps):
    """Seconds of each step of one rank: Adam, clip by global norm."""
    import minigraph as fluid
    from minigraph import parallel

    ranks = parallel.size()
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden, y = fluid.data("x", [None, SIZES[0]]), fluid.data("y", [None, 1], "int64")
        for size in SIZES[1:-1]:
            hidden = fluid.layers.fc(hidden, size, act="relu")
        scores = fluid.layers.fc(hidden, SIZES[-1])
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, y))
        fluid.optimizer.Adam(1e-3, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)).minimize(loss)
    rewrite = parallel.DataParallel(ranks, ragged=False)
    rewrite.prepare(startup)
    twin = rewrite(main)
    executor = fluid.Executor()
    executor.run(startup)
    rng = np.random.default_rng(parallel.rank())
    feed = {"x": rng.normal(size=(batch, SIZES[0])).astype("float32"), "y": rng.integers(0, 10, (batch, 1))}
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        executor.run(twin, feed, [loss])
        times.append(time.perf_counter() - start)
    return times[steps // 4 :]


def measured(ranks, batch, steps):
    """The median step of `ranks` ranks in seconds."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "minigraph", "launch", "-n", str(ranks), __file__]
    command += ["--rank", str(batch), "--steps", str(steps)]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return statistics.median(json.loads(next(line for line in output.splitlines() if line.startswith("[0] "))[4:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="1,2", help="numbers of ranks (default: 1,2)")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rank", type=int, metavar="BATCH", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        print(json.dumps(step_times(given.rank, given.steps)))
        return
    numbers = [int(each) for each in given.ranks.split(",")]
    found = {}
    for _ in range(given.rounds):
        for ranks in numbers:
            for what, batch in (("of one batch", BATCH // ranks), ("of a batch each", BATCH)):
                found.setdefault((what, ranks), []).append(measured(ranks, batch, given.steps))
    for what in ("of one batch", "of a batch each"):
        alone = min(found[what, numbers[0]])
        for ranks in numbers:
            best = min(found[what, ranks])
            samples = BATCH if what == "of one batch" else BATCH * ranks
            gain = samples / best / (BATCH / alone)
            print(f"{ranks} ranks {what}: {best * 1e3:.1f} ms a step, {gain:.2f} times the samples of one")


if __name__ == "__main__":
    main()
