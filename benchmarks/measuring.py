"""Measure engines that take turns within one run, compare their results and print medians."""

import gc
import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from floors import FLOORS
from rich.console import Console
from rich.table import Table

CONSOLE = Console()


def take_turns(title, functions, rounds):
    """Seconds of single calls of each function, in turns of some 50 ms over several rounds."""
    times = {name: [] for name in functions}
    with frozen():
        repeats = repeats_of(functions)
        for _ in range(rounds):
            for name, seconds in one_round(functions, repeats).items():
                times[name] += seconds
    return times


def repeats_of(functions, turn=0.05):
    """Number of calls of each function that take `turn` seconds, from 1 to 50."""
    once = {name: min(_seconds(function) for _ in range(3)) for name, function in functions.items()}
    return {name: max(1, min(50, int(turn / seconds))) for name, seconds in once.items()}


def one_round(functions, repeats):
    return {name: [_seconds(function) for _ in range(repeats[name])] for name, function in functions.items()}


@contextmanager
def frozen():
    """Keep the collector from looking at what the engines keep alive, whichever of them allocates."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def _seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@dataclass
class Settings:
    """Engines to measure, seconds for each, and the collected results."""

    engines: list[str]
    rounds: int = 10
    device: str = "cpu"
    cores: int = 1
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    paddle: str | None = None
    """Path of a Python interpreter that has Paddle 1.8.5."""
    turns: Callable = take_turns
    results: list[dict] = field(default_factory=list)


def compare(title, makers, settings, unit=1, rtol=1e-3, atol=1e-5, floors=None):
    """Check that the engines agree on their first three calls, let them take turns and print the table.

    `makers` has for each engine a function that prepares and returns what is timed; `unit` is how many operations one
    call stands for. `floors` make what no engine can do without; they take turns with the engines and are peers of
    none. An engine that fails, or computes something else than the first one, is reported and takes no turn.
    """
    functions, firsts = {}, {}
    for name, make in makers.items():
        if name not in settings.engines:
            continue
        try:
            function = make()
            results = [_flat(function()) for _ in range(3)]
            for expected, actual in zip(next(iter(firsts.values()), results), results, strict=True):
                np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)
        except Exception as error:
            failed(title, name, error, settings)
            continue
        functions[name], firsts[name] = function, results
    functions |= {name: make() for name, make in (floors or {}).items()}
    times = settings.turns(title, functions, settings.rounds)
    report(title, {name: [t / unit for t in each] for name, each in times.items()}, settings)


def failed(title, name, error, settings):
    """Print and keep why an engine takes no turn."""
    why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    CONSOLE.print(f"\n{title}: {name} fails: {why}", markup=False)
    settings.results.append({"workload": title, "engine": name, "failed": why})


def added_cost(title, without, makers, settings):
    """How much longer the calls of `makers` take than those of `without`, which take turns with them."""
    pairs = [(name, kind) for name in makers if name in settings.engines for kind in (without, makers)]
    functions = {(name, kind is makers): kind[name]() for name, kind in pairs}
    times = settings.turns(title, functions, 2 * settings.rounds)
    medians = {key: statistics.median(each) for key, each in times.items()}
    table = Table("engine", "us without", "us with", "added")
    for name, is_with in medians:
        if is_with:
            added = medians[name, True] / medians[name, False] - 1
            table.add_row(name, _micro(medians, (name, False)), _micro(medians, (name, True)), f"{added:.1%}")
            row = {"workload": title, "engine": name, "median_s": medians[name, True], "added": added}
            settings.results.append(row)
    CONSOLE.print(f"\n{title}")
    CONSOLE.print(table)


def _flat(result):
    """The numbers that one call returned; only the start of a long result, which is enough to compare."""
    parts = result if isinstance(result, list | tuple) else [result]
    return np.concatenate([np.ravel(np.asarray(part))[:1000] for part in parts])


def report(title, times, settings):
    medians = {name: statistics.median(each) for name, each in times.items()}
    lowest = {name: min(each) for name, each in times.items()}
    CONSOLE.print(f"\n{title}")
    table = Table("engine", "median us", "to the best peer", "lowest us", "to the best peer", "calls")
    for name, each in times.items():
        figures = [f(name) for values in (medians, lowest) for f in (partial(_micro, values), partial(_ratio, values))]
        table.add_row(name, *figures, str(len(each)))
        row = {"workload": title, "engine": name, "median_s": medians[name], "lowest_s": lowest[name]}
        settings.results.append(row)
    CONSOLE.print(table)


def _micro(seconds, name):
    value = seconds[name] * 1e6
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _ratio(seconds, name):
    peers = [value for peer, value in seconds.items() if not peer.startswith("minigraph") and peer not in FLOORS]
    return f"{seconds[name] / min(peers):.2f}" if peers else ""


def describe_machine(engines, device="cpu"):
    import minigraph

    versions = [f"minigraph {minigraph.__version__}", f"NumPy {np.__version__}", f"Python {platform.python_version()}"]
    for module, engine in (("numba", "minigraph+jit"), ("torch", "torch"), ("jax", "jax"), ("optax", "jax")):
        if engine in engines:
            versions.append(f"{module} {importlib.metadata.version(module)}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = f"{_gpu()}; " if device == "cuda" else ""
    kernels = os.environ.get("OPENBLAS_CORETYPE")
    kernels = f"; OPENBLAS_CORETYPE={kernels}" if kernels else ""
    return f"{', '.join(versions)}; {gpu}{_processor()}, {cores} core(s), {_caches()}; load {_load()}{kernels}"


def _gpu():
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return f"CuPy {cupy.__version__} on {properties['name'].decode()}"


def _processor():
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        if names:
            return names[0]
    return platform.processor() or platform.machine()


def _caches():
    """Sizes of the caches of the first processor, where Linux tells."""
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text(encoding="utf-8").strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return " ".join(found) or "caches unknown"


def _load():
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
