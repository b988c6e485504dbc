"""Times of minigraph side by side with its peers, as far as they are installed; see README.md beside this file."""

import argparse
import importlib.util
import json
import os

ENGINES = {
    "minigraph": "minigraph", "minigraph+jit": "numba", "minigraph-launches": "cupy", "numpy": "numpy",
    "torch": "torch", "torch.compile": "torch", "jax": "optax",
}  # fmt: skip
"""Name of each engine and the module that it needs."""


def use_cores(count):
    """Bind the process to `count` cores and every engine to as many threads; they look when they are imported."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"):
        os.environ[variable] = str(count)


def installed(wanted):
    """The engines among `wanted` whose module can be imported, in the order of `ENGINES`."""
    return [name for name, module in ENGINES.items() if name in wanted and importlib.util.find_spec(module)]


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="workloads, with commas between; all if it is not given")
    parser.add_argument("--engines", default=",".join(ENGINES), help=f"engines among {','.join(ENGINES)}")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="cuda: the training steps on a GPU")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of taking turns (default: 10)")
    parser.add_argument("--cores", type=int, default=1, help="processor cores and threads of each engine (default: 1)")
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of forward operators for build")
    parser.add_argument("--paddle", metavar="PYTHON", help="an interpreter with Paddle 1.8.5, for large-programs")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--page", metavar="FILE", help="run what docs/benchmarks.md reports on, and write it")
    parser.add_argument("--against", metavar="PATH", help="compare minigraph here with another checkout, without peers")
    parser.add_argument(
        "--pairs", type=int, default=1, metavar="N", help="pairs of processes for --against, %(default)s"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)  # a side of --against
    return parser.parse_args()


def main():
    given = options()
    if given.page:
        import page

        page.make(
            given.page,
            given.device,
            [f"--rounds={given.rounds}", *([f"--paddle={given.paddle}"] if given.paddle else [])],
        )
        return
    use_cores(given.cores)
    import measuring
    import workloads

    known = workloads.WORKLOADS
    chosen = given.only.split(",") if given.only else list(known)
    if unknown := set(chosen) - set(known):
        raise SystemExit(f"--only: no workload {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    engines = installed(given.engines.split(","))
    if given.against or given.serve:
        engines = [name for name in engines if name.startswith("minigraph")]
        chosen = [name for name in chosen if name not in workloads.NOT_AGAINST]
    machine = measuring.describe_machine(engines, given.device)
    settings = measuring.Settings(
        engines,
        given.rounds,
        given.device,
        given.cores,
        tuple(int(size) for size in given.sizes.split(",")),
        given.paddle,
    )
    if given.against:
        import against

        measuring.CONSOLE.print(machine)
        arguments = [f"--{name}={getattr(given, name)}" for name in ("rounds", "cores", "sizes", "device")]
        arguments += [f"--only={','.join(chosen)}", f"--engines={','.join(engines)}"]
        write(given, machine, against.compare(given.against, arguments, given.pairs))
        return
    if given.serve:
        import against

        settings.turns, measuring.CONSOLE.quiet = against.serve, True
    if any(name.startswith("torch") for name in settings.engines):
        import torch

        torch.set_num_threads(given.cores)
    measuring.CONSOLE.print(machine)
    for name in chosen:
        known[name](settings)
    write(given, machine, settings.results)


def write(given, machine, results):
    """Write the figures to the file of ``--json``, if there is one."""
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
