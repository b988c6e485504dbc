"""Writes docs/operators.md: ``python tests/operators_page.py``, after operators or their tests have changed."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operators.md"
GOLDEN = ROOT / "tests" / "golden"
INTRODUCTION = """\
# Operators

Every operator that a program may hold, by family, as its definition in `minigraph/ops/` describes it. This page is
generated: `python tests/operators_page.py` writes it anew, and `python -m minigraph operators TYPE` prints the part of
one operator. Slots that take several variables, or that may be left out, say so; an attribute without a default has to
be given.

Every operator with rows of samples is compared in those with what its inference says, its gradient with the central
difference, its gradient of a gradient too, float16 and float32 with float64, the plan with the interpreter bit for bit,
and where there is a GPU the GPU with the CPU.

"""


def where_tested() -> dict[str, str]:
    """For each operator, which collections of tests have it."""
    from sampled import WITHOUT_SAMPLES

    from minigraph.rewrite.random_programs.rows import SAMPLES

    files = sorted(set(WITHOUT_SAMPLES.values()))
    collections = {
        "rows of samples": {sample.op for sample in SAMPLES},
        "results recorded on Paddle 1.8.5": _recorded_operators(),
        "programs recorded on Paddle 1.8.5": _operators_in_recorded_programs(),
        **{f"`tests/{file}`": {type for type, at in WITHOUT_SAMPLES.items() if at == file} for file in files},
    }
    everywhere = set().union(*collections.values())
    return {type: ", ".join(name for name, types in collections.items() if type in types) for type in everywhere}


def _recorded_operators() -> set[str]:
    cases = json.loads((GOLDEN / "ops" / "cases.json").read_text(encoding="utf-8"))
    cases += json.loads((GOLDEN / "selected_rows" / "cases.json").read_text(encoding="utf-8"))["operators"]
    return {case["op"] for case in cases}


def _operators_in_recorded_programs() -> set[str]:
    programs = json.loads((GOLDEN / "programs" / "cases.json").read_text(encoding="utf-8"))["programs"]
    programs += json.loads((GOLDEN / "layers" / "operators.json").read_text(encoding="utf-8")).values()
    return {line.split()[0] for lines in programs for line in lines}


def text() -> str:
    from minigraph.cli.operator_reference import page

    return INTRODUCTION + page(tests=where_tested())


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "common")]
    PAGE.write_text(text(), encoding="utf-8")
