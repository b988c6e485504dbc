"""Importing the package loads what a plain run uses, and nothing else."""

import os
import subprocess
import sys

import pytest

LATE = {
    "minigraph.autodiff.decompositions.all_rules", "minigraph.clip.adaptive", "minigraph.clip.norms",
    "minigraph.clip.pipeline", "minigraph.comparison", "minigraph.dataset", "minigraph.dygraph",
    "minigraph.executor.checking", "minigraph.io", "minigraph.kernels.cuda.all_kernels",
    "minigraph.kernels.jit.all_offers", "minigraph.kernels.sequence_rows", "minigraph.lowering.native_segments",
    "minigraph.nets", "minigraph.nn", "minigraph.passes.ranks.collective", "minigraph.passes.sequences.pad_sequences",
    "minigraph.passes.memory.recompute", "minigraph.passes.rules.reasons", "minigraph.passes.ranks.shard_state",
    "minigraph.passes.ranks.shards", "minigraph.passes.ranks.weighted_means", "minigraph.reader", "minigraph.rewrite",
    "difflib", "hashlib", "html", "importlib.resources", "json", "pathlib", "tempfile", "cupy", "matplotlib",
    "networkx", "numba", "rich",
}  # fmt: skip

RUNS = {
    "minigraph.executor.plan", "minigraph.kernels.activation", "minigraph.kernels.merged_updates",
    "minigraph.lowering.steps", "minigraph.passes.canonical.clean_up", "minigraph.passes.pipelines",
    "minigraph.passes.rules",
}  # fmt: skip
"""What a program that is only built does not use."""

PLAIN_RUN = """
import numpy as np, minigraph as fluid
with fluid.program_guard(fluid.Program(), fluid.Program()):
    x, label = fluid.data("x", [None, 8]), fluid.data("label", [None, 1], "int64")
    scores = fluid.layers.fc(fluid.layers.fc(x, 16, act="relu"), 4, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(scores, label))
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    fluid.optimizer.Adam(0.1, grad_clip=clip).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace(), jit=False)
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((3, 8), np.float32), "label": np.zeros((3, 1), np.int64)}
    exe.run(feed=feed, fetch_list=[loss])
    exe.run(feed=feed, fetch_list=[loss])
"""


def output_of(code):
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.split()


def loaded_by(code, modules=LATE):
    """The modules of `modules` that code imports; some NumPy imports itself."""
    before, after = "import sys, numpy; before = {*sys.modules}", f"print(*{modules} & {{*sys.modules}} - before)"
    return {*output_of(f"{before}\n{code}\n{after}")}


@pytest.mark.slow
def test_what_a_plain_run_does_not_use_is_not_imported():
    assert loaded_by("import minigraph", LATE | RUNS) == set()


@pytest.mark.slow
def test_an_import_is_of_few_modules_and_makes_few_definitions():
    modules, definitions = map(int, output_of(
        "import sys, minigraph; from minigraph.opdef import registry; "
        "print(sum(name.startswith('minigraph.') for name in sys.modules), len(registry._DEFINITIONS))"
    ))  # fmt: skip
    assert modules <= 310
    assert definitions <= 40


@pytest.mark.slow
def test_objects_of_an_early_import_alone_are_not_looked_at_again():
    code = "import gc, minigraph; print(gc.get_freeze_count() > 10_000, gc.isenabled())"
    assert output_of(code) == ["True", "True"]
    assert output_of(f"objects = [[] for _ in range(30_000)]; {code}") == ["False", "True"]


@pytest.mark.slow
def test_a_plain_run_imports_none_of_it_either():
    numpys = {"hashlib", "pathlib"}  # which generators of random numbers import
    assert loaded_by(PLAIN_RUN, LATE - numpys) == set()
    built = PLAIN_RUN[: PLAIN_RUN.index("    exe.run")]
    assert loaded_by(built, LATE - numpys | RUNS) == set()
    assert loaded_by(PLAIN_RUN, RUNS) == RUNS


@pytest.mark.slow
def test_a_late_module_is_there_when_it_is_asked_for():
    assert "minigraph.io" in loaded_by("import minigraph as fluid; fluid.io")
    assert "minigraph.comparison" in loaded_by("from minigraph import compare_training")
    assert "minigraph.clip.adaptive" in loaded_by("import minigraph as fluid; fluid.clip.AutoClip")
    assert loaded_by("import minigraph; assert {'io', 'save', 'metrics'} <= {*dir(minigraph)}") == set()


@pytest.mark.slow
def test_text_of_a_late_class_is_read():
    clip = "AutoClip(percentile=10.0)"
    lines = ["block 0", f"  param w: float32[4] {{gradient_clip={clip}}}"]
    assert loaded_by(f"import minigraph as fluid; fluid.Program.parse({chr(10).join(lines)!r})") == {
        "minigraph.clip.adaptive"
    }


@pytest.mark.slow
def test_late_kernels_belong_to_operators_without_other_kernels():
    """Nothing asks for them where an operator has a kernel already, for whatever place, or a specializer."""
    found = output_of("""
from minigraph.kernels import find_kernel, registry
find_kernel("relu", "cpu")
dense, rows = registry._KERNELS, registry._ROWS_KERNELS
before = {type for type, _ in dense}, {type for type, _ in rows}
specialized = {*registry._SPECIALIZERS, *registry._OWN_SPECIALIZERS}
keys = {*dense}, {*rows}
assert find_kernel("no operator", "cpu") is None
for table, known, early in zip((dense, rows), before, keys, strict=True):
    print(*[type for type, _ in {*table} - early if type in known])
print(*[type for type in {*registry._SPECIALIZERS, *registry._OWN_SPECIALIZERS} - specialized if type in before[0]])
print(len(dense) - len(keys[0]) > 100)
""")
    assert found == ["True"]


@pytest.mark.timing
def test_an_import_takes_little_longer_than_that_of_numpy():
    """At most 1.5 times as long and a tenth of a second, in processor time, without the start of Python."""
    codes = "pass", "import numpy", "import minigraph"
    rounds = [[seconds_of(code) for code in codes] for _ in range(10)][1:]  # the first writes bytecode
    start, numpy, ours = map(min, zip(*rounds, strict=True))
    assert ours - start <= 1.5 * (numpy - start) + 0.1


def seconds_of(code):
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # whose other threads would spin
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
