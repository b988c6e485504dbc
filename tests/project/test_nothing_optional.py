"""Without any optional package everything imports, every command runs, and what needs an extra names it."""

import configparser
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import contextlib, io, json, sys

sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # importing and looking for them finds nothing

def attempt(function):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            said = function()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
    return said, printed.getvalue()

"""


def optional_packages():
    """The names by which the packages of all extras are imported."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = "\n".join(config["options.extras_require"].values()).split("\n")
    names = {re.match(r"[A-Za-z0-9_]*", line)[0] for line in lines if line and not line.startswith("#")}
    return sorted((names | {"llvmlite", "PIL", "cupyx"}) - {"setuptools", ""})


def results(script):
    """What `script` prints as JSON, in a process that has none of the packages of extras."""
    command = [sys.executable, "-c", RUN + script, ",".join(optional_packages())]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_names_of_optional_packages_are_found():
    assert {"numba", "matplotlib", "safetensors", "hypothesis", "pytest", "cupy"} <= set(optional_packages())


@pytest.mark.slow
def test_every_module_imports():
    script = """
import importlib, pkgutil
import minigraph
names = [found.name for found in pkgutil.walk_packages(minigraph.__path__, "minigraph.")]
modules = [name for name in names if not name.endswith("__main__")]
print(json.dumps({name: attempt(lambda: importlib.import_module(name) and None) for name in modules}))
"""
    found = results(script)
    assert len(found) > 300
    assert {name: said for name, (said, _) in found.items() if said} == {}


@pytest.mark.slow
def test_every_command_runs_and_what_needs_an_extra_names_it(tmp_path):
    script = f"""
import os
import numpy as np
import minigraph as fluid
from minigraph.cli.main import main

os.chdir({str(tmp_path)!r})
commands = [
    "--version", "doctor", "operators relu", "compare --batches 1 --json a.json --csv a.csv",
    "train --epochs 1 --seeds 1 --rates 0.1 --batch-size 1500 --quiet", "compare --batches 1 --plot a.png",
    "compare --batches 1 --html a.html", "compare --batches 1 --place cuda",
]
found = {{command: attempt(lambda: main(command.split())) for command in commands}}
x = np.ones((2, 2), "float32")
calls = {{
    "safetensors saved": lambda: fluid.io.save_safetensors({{"x": x}}, "a.safetensors"),
    "safetensors loaded": lambda: fluid.io.load_safetensors("a.safetensors"),
    "state saved": lambda: fluid.save({{"x": x}}, "a.safetensors"),
    "cuda": lambda: fluid.Executor(fluid.CUDAPlace(0)).run(fluid.Program()) and None,
    "loops": lambda: fluid.Executor(jit=True) and None,
    "saved": lambda: fluid.save({{"x": x}}, "a.pdparams"),
    "loaded": lambda: fluid.load("a.pdparams", return_numpy=True)["x"].tolist(),
}}
found.update({{name: attempt(call) for name, call in calls.items()}})
print(json.dumps(found))
"""
    found = results(script)
    extras = {
        "compare --batches 1 --plot a.png": "minigraph[plot]",
        "compare --batches 1 --html a.html": "minigraph[plot]",
        "compare --batches 1 --place cuda": "minigraph[cuda12]",
        "safetensors saved": "minigraph[safetensors]",
        "safetensors loaded": "minigraph[safetensors]",
        "state saved": "minigraph[safetensors]",
        "cuda": "minigraph[cuda12]",
        "loops": "minigraph[jit]",
    }
    assert {name: found[name] for name, extra in extras.items() if extra not in " ".join(map(str, found[name]))} == {}
    done = {name: said for name, (said, _) in found.items() if name not in extras}
    assert done.pop("loaded") == [[1.0, 1.0], [1.0, 1.0]]
    assert {name: said for name, said in done.items() if said} == {}
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "a.csv", "a.pdparams"}
