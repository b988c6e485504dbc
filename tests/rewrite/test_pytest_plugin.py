"""The fixture for pytest, as the tests of another project see it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = """
import sys

def test_nothing_is_loaded():
    assert "minigraph" not in sys.modules

def test_a_pass_is_checked(check_pass):
    check_pass(lambda program: False, programs=2)
"""


def passed(folder, *options, **environment):
    (folder / "test_passes.py").write_text(TESTS, encoding="utf-8")
    path = os.pathsep.join([str(folder / "installed"), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options, "test_passes.py"]
    ended = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path, **environment}, capture_output=True, text=True
    )
    return "2 passed" in ended.stdout


@pytest.mark.slow
def test_pytest_finds_the_fixture_where_minigraph_is_installed(tmp_path):
    installed = tmp_path / "installed" / "minigraph-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: minigraph\nVersion: 1\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text("[pytest11]\npytest_minigraph = pytest_minigraph\n", encoding="utf-8")
    assert passed(tmp_path)
    assert passed(tmp_path, "-p", "pytest_minigraph")


@pytest.mark.slow
def test_a_checkout_gives_the_fixture_when_it_is_asked_for(tmp_path):
    # As if nothing were installed, minigraph among it.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    assert passed(tmp_path, "-p", "pytest_minigraph", **alone)
    assert not passed(tmp_path, **alone)
