"""What the pages under docs/ say of files and tests is true."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED_TEST = re.compile(r"`(?:(test_\w+\.py))?::(test_\w+)`")
NAMED_FILE = re.compile(r"`((?:minigraph|kernels|passes|tests|examples|benchmarks|docs)/[\w/]+(?:\.\w+|/))`")


def test_every_difference_is_held_by_a_test_that_exists():
    named = 0
    for line in (ROOT / "docs/differences.md").read_text().splitlines():
        file = ""
        for found in NAMED_TEST.finditer(line):
            file = found[1] or file
            assert f"def {found[2]}(" in (ROOT / "tests" / file).read_text(), found[0]
            named += 1
    assert named > 20


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/differences.md", "README.md", "CONTRIBUTING.md"])
def test_every_file_that_is_named_exists(page):
    for name in NAMED_FILE.findall((ROOT / page).read_text()):
        assert (ROOT / name).exists(), name
