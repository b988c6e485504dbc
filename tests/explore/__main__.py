"""Try laws on new cases for some time: ``python -m tests.explore --minutes 60``, from the root of the checkout."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests import each other by bare names
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

from explore import EXPLORATIONS, case_of


@dataclass
class Figures:
    """What became of the cases of one exploration."""

    name: str
    case: Callable[[int], None]
    cases: int = 0
    failures: int = 0
    seconds: float = 0.0
    smallest: str = ""
    """The shortest report of a failure."""

    def try_one(self, seed: int) -> None:
        start = time.monotonic()
        try:
            self.case(seed)
        except Exception as error:
            self.failures += 1
            said = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            report = f"{said}\n\npython -m tests.explore --only {self.name} --seed {seed} --cases 1"
            if not self.smallest or len(report) < len(self.smallest):
                self.smallest = report
        finally:
            self.cases += 1
            self.seconds += time.monotonic() - start

    def __str__(self) -> str:
        return f"{self.name}: {self.cases} cases, {self.failures} failures, {self.seconds:.0f} s"


def explore(names: Sequence[str], seed: int, seconds: float, cases: int | None = None) -> list[Figures]:
    """Try cases of each exploration, by turns of one second, until the time is over or each had that many cases.

    Case number i has the seed ``seed + i``, so that it can be repeated by itself.
    """
    found = [Figures(name, case_of(name)) for name in names]
    end = time.monotonic() + seconds
    try:
        for figures in cycle(found):
            turn = time.monotonic() + 1
            while time.monotonic() < min(turn, end) and figures.cases != cases:
                figures.try_one(seed + figures.cases)
            if time.monotonic() >= end or all(each.cases == cases for each in found):
                break
    except KeyboardInterrupt:
        pass  # the figures so far are worth having
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Explore as the command line says; the exit status is 1 if a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to explore (default 1)")
    parser.add_argument("--cases", type=int, help="how many cases of each exploration at most")
    parser.add_argument("--seed", type=int, help="seed of the first case (default: a new one)")
    parser.add_argument("--only", default=",".join(EXPLORATIONS), help=f"of {', '.join(EXPLORATIONS)}; default all")
    options = parser.parse_args(words)
    names = options.only.split(",")
    if not set(names) <= set(EXPLORATIONS):
        parser.error(f"--only must name explorations out of {', '.join(EXPLORATIONS)}, got {options.only}")
    seed = time.time_ns() % 10**9 if options.seed is None else options.seed
    found = explore(names, seed, 60 * options.minutes, options.cases)
    for figures in found:
        if figures.smallest:
            print(f"Smallest failure of {figures.name}:\n\n{figures.smallest}\n")
    print(f"seed {seed}; {'; '.join(map(str, found))}")
    return int(any(figures.failures for figures in found))


if __name__ == "__main__":
    sys.exit(main())
