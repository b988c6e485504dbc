"""What the pages under docs/ say of files and tests is true."""

import re
from pathlib import Path

import fluid_names_page
import operators_page
import pytest
from together import check_all

import minigraph as fluid
from minigraph import unique_name
from minigraph.cli.main import main
from minigraph.errors import WrongTypeError
from minigraph.passes import IN_ORDER

ROOT = Path(__file__).parents[2]
NAMED_TEST = re.compile(r"`(?:(test_\w+\.py))?::(test_\w+)`")
NAMED_FILE = re.compile(r"`((?:minigraph|kernels|passes|tests|examples|benchmarks|docs)/[\w/]+(?:\.\w+|/))`")


ENTRY = re.compile(r"^(?:\|(?!---).*|- (?:.*\n)(?:  .*\n?)*|Also: (?:.+\n?)*)", flags=re.MULTILINE)
"""A row of a table, an item of a list, or a paragraph of what is to be said besides."""


def entries():
    found = ENTRY.findall((ROOT / "docs/differences.md").read_text(encoding="utf-8"))
    return [entry for entry in found if not entry.endswith("| test |")]


def test_every_difference_is_held_by_a_test_that_exists():
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}

    def check(entry):
        named = list(NAMED_TEST.finditer(entry))
        assert named, "name a test that holds it"
        file = ""
        for found in named:
            file = found[1] or file
            assert f"def {found[2]}(" in files[file], found[0]

    check_all(check, {f"{number}: {entry.strip()[:60]}": entry for number, entry in enumerate(entries())})


def test_every_section_on_differences_has_entries():
    sections = re.split(r"^## ", (ROOT / "docs/differences.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(entries()) > 150
    assert [section.splitlines()[0] for section in sections if not ENTRY.search(section)] == ["Out of scope"]


@pytest.mark.parametrize(
    "page",
    [*(f"docs/{name}.md" for name in ("architecture", "clipping", "differences", "rewrite", "write-a-pass")),
     "README.md", "CONTRIBUTING.md"],
)  # fmt: skip
def test_every_file_that_is_named_exists(page):
    for name in NAMED_FILE.findall((ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


def test_the_rooms_name_every_package():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = page.partition("## The rooms")[2].partition("\n## ")[0]
    packages = sorted(path.parent.name for path in (ROOT / "minigraph").glob("*/__init__.py"))
    assert len(packages) > 20
    assert [name for name in packages if f"`{name}/`" not in rooms] == []


def test_the_architecture_page_lists_the_passes_in_their_order():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.partition("### The passes of an executor")[2].partition("\n### ")[0]
    assert re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE) == [each.name for each in IN_ORDER]


@pytest.mark.slow
def test_the_programs_on_clipping_run(capsys):
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/clipping.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    names = {"__name__": "user"}
    for block in blocks:
        exec(block, names)
    printed = capsys.readouterr().out
    assert "joint L2 norm of 4 gradients at most 1" in printed
    assert "elementwise_mul: mean magnitude at most 0.05 (ClipByMean, a strategy of your own)" in printed
    assert names["before"].item() > 1
    assert abs(names["after"].item() - 1) < 1e-6
    assert names["gradients"]["mean 0.05"].total.factor.max() < 1
    assert set(names["clips"]) == set(names["training"].strategies)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("write-a-pass", 15), ("rewrite", 5)])
def test_the_code_of_the_pages_on_rewriting_runs(name, least, capsys, monkeypatch, tmp_path):
    """Each text below a block of code is what the code prints; all code is one file, whose lines errors name."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(python|text)\n(.*?)```", page, flags=re.DOTALL)
    source = "\n".join(text for kind, text in blocks if kind == "python")
    Path("my_passes.py").write_text(source, encoding="utf-8")
    names, line = {"__name__": "my_passes"}, 0
    with unique_name.guard():
        for kind, text in blocks:
            if kind == "python":
                exec(compile("\n" * line + text, "my_passes.py", "exec"), names)
                line += text.count("\n") + 1
            else:
                assert capsys.readouterr().out == text
    assert len(blocks) > least


def test_what_the_page_on_clipping_says_is_refused_is_refused():
    def halve(pairs):
        return [(param, fluid.layers.scale(grad, 0.5)) for param, grad in pairs]

    with fluid.program_guard(fluid.Program(), fluid.Program()):
        fluid.layers.create_parameter([2], "float32")
        for give in (
            lambda: fluid.optimizer.SGD(0.1, grad_clip=halve),
            lambda: fluid.clip.set_gradient_clip(halve),
            lambda: fluid.clip.ClipPipeline([halve]),
        ):
            with pytest.raises(WrongTypeError):
                give()


def test_every_strategy_is_on_the_page_on_clipping():
    from minigraph import clip

    page = (ROOT / "docs/clipping.md").read_text(encoding="utf-8")
    strategies = {
        name
        for name in clip.__all__
        if isinstance(getattr(clip, name), type)
        and issubclass(getattr(clip, name), clip.GradientClipBase)
        and getattr(clip, name).__name__ == name
    }
    assert len(strategies) > 8
    assert all(f"`{name}(" in page for name in strategies - {"GradientClipBase"})


@pytest.mark.slow
def test_the_page_of_fluids_names_is_up_to_date():
    """After a change of names or of docs/differences.md: python tests/fluid_names_page.py."""
    assert fluid_names_page.PAGE.read_text(encoding="utf-8") == fluid_names_page.text()
    assert fluid_names_page.TABLE.read_text(encoding="utf-8") == fluid_names_page.table()


def test_the_page_on_operators_is_what_the_definitions_say():
    """After a change: python tests/operators_page.py."""
    assert operators_page.PAGE.read_text(encoding="utf-8") == operators_page.text()


def test_every_operator_is_tested_and_says_where():
    types = re.findall(r"^### (\w+)$", operators_page.PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    tested = operators_page.where_tested()
    assert len(types) > 200
    assert all(tested.get(type) for type in types)


def test_the_command_describes_one_operator(capsys):
    assert main(["operators", "elu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "- Attributes: `alpha: float = 1.0`" in lines
    assert "- Gradient: `elu_grad`, from `X`, `Out@GRAD` to `X@GRAD`; that has a gradient, too" in lines
    assert "- Places: CPU and GPU" in lines
    assert main(["operators", "ell"]) == 1
    assert "Did you mean elu?" in capsys.readouterr().err
