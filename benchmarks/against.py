"""Two checkouts of minigraph side by side: each in a process of its own, which take turns, round by round."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from measuring import CONSOLE, frozen, one_round, repeats_of
from rich.table import Table

HERE = Path(__file__).resolve().parents[1]


def compare(other, arguments, pairs):
    """Run the workloads in this checkout and in `other`; print the ratios of their times and return them as rows.

    This is done by `pairs` of processes, one pair after the other, whose times are put together: memory lies elsewhere
    in each process, which alone can make one of two equal processes a third slower.
    """
    there = Path(other).resolve()
    if not (there / "minigraph" / "__init__.py").exists():
        raise SystemExit(f"--against {other}: there is no checkout of minigraph")
    workloads = {}
    for pair in range(pairs):
        for title, times in _run_pair([_Side(path, arguments) for path in (HERE, there)], pair):
            kept = workloads.setdefault(title, ({}, {}))
            for all_of_side, found in zip(kept, times, strict=True):
                for engine, seconds in found.items():
                    all_of_side.setdefault(engine, []).extend(seconds)
            if pair == pairs - 1:
                _report(title, *kept)
    return [row for title, times in workloads.items() for row in _rows(title, *times)]


def _run_pair(sides, pair):
    """For each workload its title, and for each of two sides the seconds of each engine, which take turns."""
    while None not in (heads := [side.read() for side in sides]):
        if heads[0] != heads[1]:
            raise SystemExit(f"the checkouts differ: {heads[0]} here, {heads[1]} there")
        times = [{engine: [] for engine in heads[0]["engines"]} for _ in sides]
        for number in range(pair, pair + heads[0]["rounds"]):
            for which in (0, 1) if number % 2 else (1, 0):  # neither always comes first
                for engine, found in sides[which].turn().items():
                    times[which][engine] += found
        yield heads[0]["title"], times
    for side in sides:
        side.close()


_KINDS = {"median": statistics.median, "lowest": min}


def _rows(title, here, there):
    """The figures of one workload, a row for each engine."""
    for engine in here:
        row = {"workload": title, "engine": engine}
        for kind, of in _KINDS.items():
            a, b = of(here[engine]), of(there[engine])
            row |= {f"{kind}_s": a, f"{kind}_there_s": b, f"{kind}_ratio": a / b}
        yield row


def _report(title, here, there):
    """Print the table of one workload."""
    table = Table("engine", *(text for kind in _KINDS for text in (f"{kind} us here", "there", "ratio")))
    for row in _rows(title, here, there):
        times = [(row[f"{kind}_s"], row[f"{kind}_there_s"], row[f"{kind}_ratio"]) for kind in _KINDS]
        figures = [(f"{a * 1e6:,.1f}", f"{b * 1e6:,.1f}", f"{ratio:.3f}") for a, b, ratio in times]
        table.add_row(row["engine"], *figures[0], *figures[1])
    CONSOLE.print(f"\n{title}")
    CONSOLE.print(table)


def serve(title, functions, rounds):
    """Stand for `measuring.take_turns` in the process of a side: time one round for each line of standard input."""
    names = [key if isinstance(key, str) else " ".join(map(str, key)) for key in functions]
    _say({"title": title, "engines": names, "rounds": rounds})
    times = {key: [] for key in functions}
    with frozen():
        repeats = repeats_of(functions)
        for _ in range(rounds):
            sys.stdin.readline()
            found = one_round(functions, repeats)
            for key, seconds in found.items():
                times[key] += seconds
            _say(dict(zip(names, found.values(), strict=True)))
    return times


def _say(message):
    print(json.dumps(message), file=sys.__stdout__, flush=True)


class _Side:
    """A process that imports minigraph from a checkout and times a round whenever it is told to."""

    def __init__(self, checkout, arguments):
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        command = [sys.executable, str(HERE / "benchmarks" / "run.py"), *arguments, "--serve"]
        self.checkout = checkout
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self):
        """The next message; None at the end."""
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def turn(self):
        """Seconds of each call of each engine in one round."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found = self.read()
        if found is None:
            raise SystemExit(f"the benchmark of {self.checkout} ended with {self.process.wait()}")
        return found

    def close(self):
        self.process.stdin.close()
        if self.process.wait():
            raise SystemExit(f"the benchmark of {self.checkout} ended with {self.process.returncode}")
