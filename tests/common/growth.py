"""How the time of some work grows with its size.

Processor time of this process, so that what else the machine does counts little; the lowest of several measurements of
each size, taken by turns. Where a ratio is too large the work is measured again: noise only ever adds time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from minigraph.support.gc_pause import without_collector

ROUNDS = 20
"""Maximum number of measurements of each size in one attempt."""

PAUSES = (0, 1, 3, 9)
"""Seconds before each attempt. A machine may slow down for a second, in the middle of an attempt."""

Found = TypeVar("Found")


def measured_until(holds: Callable[[Found], bool], measure: Callable[[], Found]) -> Found:
    """What `measure` finds in the first attempt in which it `holds`, otherwise in the last."""
    for pause in PAUSES:
        time.sleep(pause)
        found = measure()
        if holds(found):
            break
    return found


def ratios(
    times: Callable[[int], dict[str, float]], size: int, factor: int, limit: float, least: float = 0.0
) -> dict[str, float]:
    """How many times longer each stage takes for `factor` times the size; measured until all ratios are below `limit`.

    `times` gives the seconds of each stage; those that take less than `least` for the larger size are left out.
    """

    def below_limit(found: dict[str, float]) -> bool:
        return all(ratio < limit for ratio in found.values())

    def attempt() -> dict[str, float]:
        lowest: dict[tuple[str, int], float] = {}
        found: dict[str, float] = {}
        for _ in range(ROUNDS):
            for count in (size, factor * size):
                for stage, taken in times(count).items():
                    lowest[stage, count] = min(taken, lowest.get((stage, count), taken))
            stages = [stage for stage, count in lowest if count == size and lowest[stage, factor * size] > least]
            found = {stage: lowest[stage, factor * size] / lowest[stage, size] for stage in stages}
            if below_limit(found):
                break
        return found

    return measured_until(below_limit, attempt)


def assert_grows(work: Callable[[int], Callable[[], object]], size: int, factor: int, limit: float) -> None:
    """``work(factor * size)()`` takes less than `limit` times as long as ``work(size)()``."""

    @without_collector
    def times(count: int) -> dict[str, float]:
        function = work(count)
        start = time.process_time()
        function()
        return {"work": time.process_time() - start}

    (ratio,) = ratios(times, size, factor, limit).values()
    assert ratio < limit, f"{factor} times the size takes {ratio:.1f} times as long"
