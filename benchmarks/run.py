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


def products_of(model, settings):
    """The matrix products of a step alone, by NumPy; None on a GPU."""
    return model.products() if settings.device == "cpu" else None


# Workloads: what they need is imported when they run, behind `use_cores`.


def seed_step(settings):
    import measuring
    import models
    import training

    model = models.Perceptron((784, 128, 64, 10), 128)
    makers = training.gradient_makers(model, 0.05, settings.device)
    title = "(a) 784-128-64-10, batch 128: loss and gradients clipped by norm"
    measuring.compare(title, makers, settings, products=products_of(model, settings))


def small_step(settings):
    import measuring
    import models
    import training

    model = models.Perceptron((784, 128, 64, 10), 128)
    recipe = training.Recipe("adam", 0.001)
    title = "(b) 784-128-64-10, batch 128: Adam, clip by global norm"
    makers = training.makers(model, recipe, settings.device)
    measuring.compare(title, makers, settings, products=products_of(model, settings))


def large_step(settings):
    import measuring
    import models
    import training

    model = models.Perceptron((784, 1024, 1024, 10), 256)
    recipe = training.Recipe("adam", 0.001)
    title = "(c) 784-1024-1024-10, batch 256: Adam, clip by global norm"
    makers = training.makers(model, recipe, settings.device)
    measuring.compare(title, makers, settings, products=products_of(model, settings))


def recurrent_step(settings):
    import measuring
    import models
    import training

    makers = training.makers(models.Recurrent(), training.Recipe("sgd", 0.1), settings.device)
    measuring.compare("(d) tanh RNN 32-64 unrolled 50 steps, batch 32: SGD, clip by global norm", makers, settings)


def lenet_step(settings):
    import measuring
    import models
    import training

    makers = training.makers(models.LeNet(), training.Recipe("momentum", 0.01), settings.device)
    measuring.compare("(e) LeNet, 1x28x28, batch 64: momentum, clip by global norm", makers, settings)


def clip_alone(settings):
    import clip_alone
    import measuring

    for what, shapes in clip_alone.SETS.items():
        measuring.compare(f"(f) clip by global norm: {what}", clip_alone.makers(shapes), settings)


def clip_in_memory(settings):
    import clip_alone
    import measuring

    for what, shapes in clip_alone.SETS.items():
        measuring.compare(f"(f) clip alone, in memory: {what}", clip_alone.memory_makers(shapes), settings)


def clip_update(settings):
    import clip_alone
    import measuring

    for what, shapes in clip_alone.SETS.items():
        measuring.compare(f"(f) clip and SGD, all in memory: {what}", clip_alone.update_makers(shapes), settings)


def chain(settings):
    import chain
    import measuring

    for size in (4, 262_144):
        title = f"(g) chain of {chain.COUNT:,} elementwise operators on {size:,} elements, us an operator"
        measuring.compare(title, chain.makers(size), settings, unit=chain.COUNT)


def build(settings):
    import build

    build.bench(settings)


def clip_cost(settings):
    import measuring
    import models
    import training

    model = models.Perceptron((32,) * 51, 32, "tanh")
    recipes = [training.Recipe("sgd", 0.01, max_norm) for max_norm in (None, 1.0)]
    without, makers = (training.makers(model, recipe, settings.device) for recipe in recipes)
    measuring.compare("(i) 50 layers of 32, batch 32: SGD, without clip", without, settings)
    measuring.compare("(i) 50 layers of 32, batch 32: SGD, clip by global norm", makers, settings)
    measuring.added_cost("(i) what the clip adds", without, makers, settings)


def lookups(settings):
    import lookups
    import measuring

    for height in lookups.HEIGHTS:
        for optimizer in lookups.OPTIMIZERS:
            title = f"(j) {lookups.BATCH} rows of a table {height:,} x {lookups.WIDTH}: {optimizer}, sparse gradient"
            measuring.compare(title, lookups.makers(height, optimizer), settings)
        title = f"(j) {lookups.BATCH} rows of a table {height:,} x {lookups.WIDTH}: sgd, dense gradient"
        measuring.compare(title, lookups.dense_makers(height), settings)


def first_steps(settings):
    import fresh

    fresh.first_steps(settings)


def large_programs(settings):
    import first_results

    first_results.bench(settings)


def imports(settings):
    import fresh

    fresh.imports(settings)


def memory(settings):
    import fresh

    fresh.peaks(settings)


WORKLOADS = {
    "seed": seed_step,
    "small": small_step,
    "large": large_step,
    "rnn": recurrent_step,
    "lenet": lenet_step,
    "clip": clip_alone,
    "clip-memory": clip_in_memory,
    "clip-update": clip_update,
    "chain": chain,
    "build": build,
    "clip-cost": clip_cost,
    "first": first_steps,
    "large-programs": large_programs,
    "memory": memory,
    "import": imports,
    "lookups": lookups,
}


NOT_AGAINST = ("first", "large-programs", "memory")
"""Workloads whose processes see one checkout only."""


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(WORKLOADS), help=f"workloads among {','.join(WORKLOADS)}")
    parser.add_argument("--engines", default=",".join(ENGINES), help=f"engines among {','.join(ENGINES)}")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="cuda: the training steps on a GPU")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of taking turns (default: 10)")
    parser.add_argument("--cores", type=int, default=1, help="processor cores and threads of each engine (default: 1)")
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of forward operators for build")
    parser.add_argument("--paddle", metavar="PYTHON", help="an interpreter with Paddle 1.8.5, for large-programs")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--against", metavar="PATH", help="compare minigraph here with another checkout, without peers")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)  # a side of --against
    return parser.parse_args()


def main():
    given = options()
    use_cores(given.cores)
    import measuring

    engines = installed(given.engines.split(","))
    if given.against or given.serve:
        engines = [name for name in engines if name.startswith("minigraph")]
        given.only = ",".join(name for name in given.only.split(",") if name not in NOT_AGAINST)
    machine = measuring.describe_machine(engines, given.device)
    settings = measuring.Settings(
        engines, given.rounds, given.device, tuple(int(size) for size in given.sizes.split(",")), given.paddle
    )
    if given.against:
        import against

        measuring.CONSOLE.print(machine)
        arguments = [f"--{name}={getattr(given, name)}" for name in ("only", "rounds", "cores", "sizes", "device")]
        arguments.append(f"--engines={','.join(engines)}")
        write(given, machine, against.compare(given.against, arguments))
        return
    if given.serve:
        import against

        settings.turns, measuring.CONSOLE.quiet = against.serve, True
    if any(name.startswith("torch") for name in settings.engines):
        import torch

        torch.set_num_threads(given.cores)
    measuring.CONSOLE.print(machine)
    for name in given.only.split(","):
        WORKLOADS[name](settings)
    write(given, machine, settings.results)


def write(given, machine, results):
    """Write the figures to the file of ``--json``, if there is one."""
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"machine": machine, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
