"""Stages from an empty program to first results, for large programs, beside Paddle 1.8.5; runs on Python 3.7 too."""

import json
import os
import subprocess
import sys
import tempfile
import time

BATCH, OTHER_BATCH, STEPS = 2, 3, 5
STAGES = ("build", "minimize", "startup", "first step", "first results", "second step", "another batch size", "a step")
"""A first or second step, and that with another batch size, without what a later step takes."""


def bench(settings):
    """Lowest times of the stages over processes of their own, in turns of the engines."""
    from large_programs import PROGRAMS
    from measuring import CONSOLE
    from rich.table import Table

    engines = {name: sys.executable for name in settings.engines if name in ("minigraph", "minigraph+jit")}
    if settings.paddle:
        engines["paddle"] = settings.paddle
    for program in PROGRAMS:
        title = f"(l) {program}: first results"
        found = _lowest(engines, program, min(3, settings.rounds))
        table = Table(f"{title}, lowest ms", *found)
        for stage in STAGES:
            table.add_row(stage, *(f"{lowest[stage] * 1e3:,.0f}" for lowest in found.values()))
        for name, lowest in found.items():
            row = {"workload": title, "engine": name, "median_s": lowest["first results"], "stages": lowest}
            settings.results.append(row)
        CONSOLE.print(table)


def _lowest(engines, program, rounds):
    """By engine, and again for one whose compiled loops are kept, the lowest seconds of each stage."""
    found = {}
    for _ in range(rounds):
        for engine, python in engines.items():
            with tempfile.TemporaryDirectory() as cache:
                for again in ("", " again") if engine == "minigraph+jit" else ("",):
                    environment = dict(os.environ, MINIGRAPH_JIT_CACHE=cache)
                    command = [python, __file__, engine, program]
                    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
                    stages = json.loads(done.stdout.decode().splitlines()[-1])
                    before = found.setdefault(engine + again, stages)
                    found[engine + again] = {stage: min(before[stage], stages[stage]) for stage in STAGES}
    return found


def measure(engine, program):
    """Seconds of each stage in this process."""
    if engine == "paddle":
        import paddle.fluid as fluid

        executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.core.Scope()
    else:
        import minigraph as fluid

        executor, scope = fluid.Executor(fluid.CPUPlace(), jit=engine == "minigraph+jit"), fluid.Scope()
    from large_programs import PROGRAMS

    parts = PROGRAMS[program](fluid)
    next(parts)
    stages = {}
    stages["build"], _ = _timed(next, parts)
    stages["minimize"], (programs, startup, feed) = _timed(next, parts)
    feeds, others = feed(BATCH), feed(OTHER_BATCH)

    def step(feeds):
        return [executor.run(main, feed=feeds, fetch_list=[loss]) for main, loss in programs]

    with fluid.scope_guard(scope):
        stages["startup"], _ = _timed(executor.run, startup)
        runs = [_timed(step, feeds)[0] for _ in range(STEPS)]
        other_runs = [_timed(step, others)[0] for _ in range(STEPS)]
    stages["a step"] = min(runs)
    stages["first results"] = stages["build"] + stages["minimize"] + stages["startup"] + runs[0]
    stages["first step"], stages["second step"] = runs[0] - min(runs), runs[1] - min(runs)
    stages["another batch size"] = other_runs[0] - min(other_runs)
    return stages


def _timed(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
