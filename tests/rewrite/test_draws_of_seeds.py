"""Random programs depend on their seed and on the code of the pass, not on what the process has done before."""

import hashlib
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from random import Random

import numpy as np
import pytest
from plants import PLANTS

import minigraph
from minigraph import Program, layers
from minigraph.errors import MinigraphError
from minigraph.ir.versions import types_in_order
from minigraph.passes import IN_ORDER, LOWERING
from minigraph.rewrite.hints import hints_of
from minigraph.rewrite.random_programs.drawing import Hints, draw


def drawn(each, seed):
    return draw(Random(seed), hints_of(each, (PLANTS[each.name],) if each.name in PLANTS else ())).program


def digests():
    """Each pass with a digest of programs that are drawn for it."""
    return {
        each.name: hashlib.sha256("".join(str(drawn(each, seed)) for seed in range(2)).encode()).hexdigest()
        for each in IN_ORDER
    }


def use_everything():
    """Import each module, apply each pass, and run a program."""
    for module in pkgutil.walk_packages(minigraph.__path__, "minigraph.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except (ImportError, MinigraphError):  # of an extra that is not installed
                continue
    for each in (*IN_ORDER, LOWERING):
        program = drawn(each, 0)
        with np.errstate(all="ignore"):
            each.apply(program)
    program = Program.parse("block 0\n  x: float32[2] = fill_constant() {shape=[2]}")
    minigraph.Executor().run(program, fetch_list=["x"])


BEFORE_AND_AFTER = """
import json
from test_draws_of_seeds import digests, use_everything
before = digests()
use_everything()
print(json.dumps([before, digests()]))
"""


@pytest.mark.slow
def test_a_seed_gives_the_same_programs_whatever_the_process_has_done_before():
    paths = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    found = subprocess.run(
        [sys.executable, "-c", BEFORE_AND_AFTER], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "7"},
    )  # fmt: skip
    before, after = json.loads(found.stdout.splitlines()[-1])
    assert after == before == digests()


def test_a_program_whose_operators_do_not_fit_at_last_is_drawn_anew():
    made = []

    def turns_out_not_to_fit(pick):
        x, y = (layers.fill_constant(shape, "float32", 1.0) for shape in ([2, 3], [3, 2]))
        found = layers.matmul(x, y)
        if not made:
            x.tensor_type = x.tensor_type.with_shape((2, 4))
            x.op.set_attr("shape", [2, 4])
        made.append(found)
        return found

    for seed in range(8):
        made.clear()
        program = draw(Random(seed), Hints(plants=(turns_out_not_to_fit,))).program
        assert list(types_in_order(program.global_block()))
    assert made
