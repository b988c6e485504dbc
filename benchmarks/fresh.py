"""Measure in fresh processes the time of the first step and the most memory that steps need."""

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial

from measuring import CONSOLE, report
from rich.table import Table

FIRST, STEPS = "(b) first step", 5
IMPORT = "(k) import, in a process of its own"


def first_steps(settings):
    """Seconds from the program, model and data at hand to the loss of the first step of (b)."""
    with tempfile.TemporaryDirectory() as cache:
        rows = []
        for engine in settings.engines:
            for what in ("", " again") if engine in ("minigraph+jit", "torch.compile") else ("",):
                rows.append((engine + what, _in_own_process("small", engine, cache)))
    table = Table("engine", "first step of (b), ms", "later steps, us")
    for name, found in rows:
        table.add_row(name, f"{found['first'] * 1e3:,.0f}", f"{found['later'] * 1e6:,.0f}")
        settings.results.append({"workload": FIRST, "engine": name, "median_s": found["first"], "lowest_s": None})
    CONSOLE.print(table)


def imports(settings):
    """Seconds that Python takes to start, to import minigraph, and to import NumPy."""
    codes = {"minigraph": "import minigraph", "numpy": "import numpy", "nothing": "pass"}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    functions = {
        name: partial(subprocess.run, [sys.executable, "-c", code], check=True, env=environment)
        for name, code in codes.items()
    }
    report(IMPORT, settings.turns(IMPORT, functions, 2 * settings.rounds), settings)


def peaks(settings):
    """Bytes that the steps of (c) take beyond what was there before the first: state, gradients, activations."""
    table = Table("engine", "peak of (c) beyond what was there before, MB")
    for engine in settings.engines:
        # Those that compile do it in the same process, which takes more than the step.
        if engine in ("minigraph+jit", "jax", "torch.compile"):
            continue
        found = _in_own_process("large", engine, None)
        table.add_row(engine, f"{found['peak'] / 1e6:,.1f}")
        settings.results.append({"workload": "(c) memory of five steps", "engine": engine, "bytes": found["peak"]})
    CONSOLE.print(table)


def _in_own_process(model, engine, cache):
    environment = dict(os.environ)
    if cache is not None:
        environment.update(MINIGRAPH_JIT_CACHE=cache, TORCHINDUCTOR_CACHE_DIR=cache)
    command = [sys.executable, __file__, model, engine]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _measure(model, engine):
    import models
    import training

    sizes, batch = {"small": ((784, 128, 64, 10), 128), "large": ((784, 1024, 1024, 10), 256)}[model]
    make = training.makers([models.Perceptron(sizes, batch)], training.Recipe("adam", 0.001))[engine]
    step = make()
    before = _resident("VmRSS")
    _forget_peak()
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    return {"first": first, "later": (time.perf_counter() - start) / STEPS, "peak": _resident("VmHWM") - before}


def _resident(what):
    """Bytes of memory that this process has now (VmRSS) or had at most (VmHWM), where Linux tells."""
    with open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{what}:"))


def _forget_peak():
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
        file.write("5")


if __name__ == "__main__":
    print(json.dumps(_measure(*sys.argv[1:])))
