"""Layers that decode, score and align sequences give the operators and the numbers that they gave in Paddle 1.8.5."""

import json

import golden_arrays
import pytest
from golden_decoding import CASES, FOLDER
from golden_layers import run
from test_golden_layers import check

import minigraph as fluid

pytestmark = pytest.mark.numbers

OPERATORS = json.loads((FOLDER / "operators.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def recorded():
    return golden_arrays.by_case(FOLDER, CASES)


@pytest.mark.laws
@pytest.mark.parametrize("name", CASES)
def test_decoding_gives_what_the_original_gave(name, recorded):
    found, lines = run(fluid, name, cases=CASES)
    check(found, recorded[name])
    assert ordered(lines) == ordered(OPERATORS[name])


def ordered(lines):
    """All lines but those of loops, whose variables the original lists in the order of a set."""
    return [line for line in lines if not line.startswith(("while ", "recurrent "))]
