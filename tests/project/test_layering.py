"""The direction of imports: each package imports only what lies below it, and nothing imports in a circle.

Imports inside functions and those for annotations only count as well.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).resolve().parents[2]

LAYERS = (
    ("errors version", "Errors with hints, and the version, import nothing of the project."),
    ("types", "Types of values import errors only."),
    ("support", "Shape rules and plain Python know arrays' shapes and no programs."),
    ("unique_name", "Generated names import support and what lies below it."),
    ("opdef", "What a definition and a gradient rule are; imports support and what lies below it."),
    ("ops", "Definitions of operators; imports opdef and what lies below it."),
    ("kernels", "Arithmetic on arrays; imports support and what lies below it, and nothing of programs."),
    ("ir", "Programs, blocks, their text and their verifier; never imports ops or kernels."),
    ("runtime", "Places, scopes, the run of one operator, control flow; imports the IR and what lies below it."),
    ("passes", "From program to program; imports the runtime and what lies below it."),
    ("autodiff", "Differentiates programs; imports passes and what lies below them."),
    ("lowering", "From a program to a plan; imports passes and what lies below them, but not the executor."),
    ("executor", "Runs plans: feeds, state, caches, graphs of a GPU, profiler; imports lowering, and no face."),
    ("eager", "The imperative engine, without layers."),
    (
        "average backward compiler initializer lod_tensor metrics parallel_executor profiler regularizer transpiler"
        " wrapped_decorator",
        "Faces over the engine alone: they import no other face, and the engine never imports a face.",
    ),
    ("param_attr reader", "Attributes of parameters, and batches; import faces over the engine alone."),
    ("layer_helper", "What layers share; imports no layer."),
    ("clip data_feeder layers", "Layers and clip strategies; they import no optimizer."),
    ("evaluator nets optimizer tensor", "Made of layers; import no files and not the imperative mode."),
    ("io", "Files; imports readers and the functions on tensors."),
    ("dataset dygraph", "Data sets, and the imperative mode of fluid 1.8; neither imports the other."),
    ("contrib framework nn", "Names of fluid and of Paddle 2 over the faces below; they import none of one another."),
    ("core incubate", "Names of fluid over all other faces."),
    ("comparison compat parallel rewrite", "Applications; no face imports them, nor they one another."),
    ("lessons", "Lessons import the applications that they teach, and no command."),
    ("cli", "The command line; only the package's command imports it."),
    ("__init__ __main__", "The package."),
)
"""Packages and modules, low to high, with a sentence on each row; those of one row do not import one another."""
LEVEL = {name: level for level, (names, _) in enumerate(LAYERS) for name in names.split()}
SIBLINGS = {("kernels", "opdef"), ("kernels", "ops"), ("ir", "ops"), ("ir", "kernels")}
"""Layers of which the first never imports the second, though that lies below it."""

EXCEPTIONS = {
    ("ir.program", "io.program_bytes"): "Program.serialize_to_string is fluid's method; the format belongs to io",
    ("ir.program", "io.program_reading"): "Program.parse_from_string is fluid's method; the format belongs to io",
    ("ir.program", "ir.text.parser"): "Program.parse is fluid's place for it; the parser builds programs",
    ("ir.program", "ir.graph"): "Program.graph; networkx loads only when it is asked for",
    ("ir.variable", "ir.block"): "a variable knows its block; the annotation only",
    ("ir.operator", "ir.block"): "an operator knows its block; the annotation only",
    ("ir.block", "ir.program"): "a block knows its program; the annotation only",
    ("ir.block_variables", "ir.block"): "a block knows the blocks around it; the annotation only",
    ("ir.block_variables", "ir.program"): "a block knows its program; the annotation only",
    ("support.linked_folders", "kernels"): "looks whether the folder can be imported at all",
}
"""Imports against the direction, each with its reason."""

PUBLIC = [
    "average", "backward", "clip", "compiler", "core", "data_feeder", "dataset", "dataset.mnist", "dataset.digits",
    "dygraph", "errors", "executor", "framework", "initializer", "io", "layer_helper", "layers", "lod_tensor",
    "metrics", "nets", "nn", "optimizer", "parallel_executor", "param_attr", "passes", "kernels", "profiler",
    "reader", "regularizer", "unique_name", "ir", "opdef", "types", "compat.torch", "compat.tensorflow",
    "comparison", "rewrite",
]  # fmt: skip
"""Modules that programs import; they stay where they are."""


def module_name(path: Path) -> str:
    """Name inside of the package: ``kernels/conv.py`` is ``kernels.conv``, ``minigraph/__init__.py`` ``__init__``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "minigraph" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def modules() -> dict[str, Path]:
    folders = [ROOT / "kernels", ROOT / "passes"]
    folders += [p for p in (ROOT / "minigraph").iterdir() if p.is_dir() and p.name not in ("kernels", "passes")]
    files = [*(ROOT / "minigraph").glob("*.py"), *(file for folder in folders for file in folder.rglob("*.py"))]
    return {module_name(file): file for file in files}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements in a node at any depth; to walk through their expressions, too, would take most of the time."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, field, ()):
            yield each
            yield from statements(each)


def imported(module: str, path: Path) -> Iterator[tuple[str, int]]:
    """Modules of the package that a module imports anywhere, with the line."""
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, _, rest = name.partition(".")
            if first != "minigraph":
                continue
            while rest and rest not in modules():
                rest = rest.rpartition(".")[0]
            if (rest or "__init__") != module:
                yield rest or "__init__", node.lineno


@cache
def imports() -> dict[tuple[str, str], int]:
    return {(module, name): line for module, path in modules().items() for name, line in imported(module, path)}


def layer(module: str) -> str:
    return module.partition(".")[0]


def test_every_module_has_its_layer():
    assert sorted({layer(module) for module in modules()} - LEVEL.keys()) == []


@pytest.mark.slow
def test_imports_go_down():
    wrong = []
    for (module, name), line in imports().items():
        above, below = layer(module), layer(name)
        is_wrong = above != below and (LEVEL[below] >= LEVEL[above] or (above, below) in SIBLINGS)
        if is_wrong and (module, name) not in EXCEPTIONS:
            wrong.append(f"{modules()[module].relative_to(ROOT)}:{line} imports {name}. {LAYERS[LEVEL[above]][1]}")
    assert wrong == []


@pytest.mark.slow
def test_no_import_circles():
    graph = networkx.DiGraph(edge for edge in imports() if edge not in EXCEPTIONS and "__init__" not in edge)
    circles = [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1]
    assert circles == []


@pytest.mark.slow
def test_the_exceptions_are_needed():
    assert sorted(EXCEPTIONS.keys() - imports().keys()) == []


def test_the_architecture_page_has_the_same_rows():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split("| room | what lives there |")[1].split("\n\n")[0]
    rows = [re.findall(r"`(\w+)/?`", line.split("|")[1]) for line in table.splitlines()[2:]]
    assert rows == [names.split() for names, _ in LAYERS]


def test_a_package_says_what_lives_there():
    for module, path in modules().items():
        if path.name == "__init__.py" and module != "__init__":
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            assert docstring, module
            assert "import" in docstring.lower() or "." in module, f"{module} does not say whom it may import"


def test_few_modules_lie_beside_the_packages():
    assert len(list((ROOT / "minigraph").glob("*.py"))) <= 20


@pytest.mark.parametrize("name", PUBLIC)
def test_public_paths_stay(name):
    __import__(f"minigraph.{name}")
