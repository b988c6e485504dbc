"""Importing the package loads what a plain run uses, and nothing else."""

import subprocess
import sys

import pytest

LATE = {
    "minigraph.comparison", "minigraph.dataset", "minigraph.dygraph", "minigraph.executor.checking", "minigraph.io",
    "minigraph.nets", "minigraph.nn", "minigraph.reader", "minigraph.rewrite", "difflib", "hashlib", "html",
    "importlib.resources", "json", "pathlib", "tempfile", "cupy", "matplotlib", "networkx", "numba", "rich",
}  # fmt: skip


def loaded_by(code):
    """The modules of `LATE` that code imports; some NumPy imports itself."""
    code = f"import sys, numpy; before = {{*sys.modules}}; {code}; print(*{LATE} & {{*sys.modules}} - before)"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_what_a_plain_run_does_not_use_is_not_imported():
    assert loaded_by("import minigraph") == set()


@pytest.mark.slow
def test_a_late_module_is_there_when_it_is_asked_for():
    assert "minigraph.io" in loaded_by("import minigraph as fluid; fluid.io")
    assert "minigraph.comparison" in loaded_by("from minigraph import compare_training")
    assert loaded_by("import minigraph; assert {'io', 'save', 'metrics'} <= {*dir(minigraph)}") == set()
