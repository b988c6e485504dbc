"""What gets installed is `minigraph` and nothing else, and it works away from the checkout."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

from minigraph.version import __version__

# Looked for, not imported: setuptools puts its own distutils in place of a loaded one, and refuses to come second.
missing = [name for name in ("build", "pip", "setuptools") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}: install the extra [test]"),
]

ROOT = Path(__file__).resolve().parents[2]

# Each folder of modules, and where it is installed. The symlinks in minigraph/ only give the checkout the same view.
FOLDERS = {"minigraph": "minigraph", "passes": "minigraph/passes", "kernels": "minigraph/kernels"}

LINKS = {installed for folder, installed in FOLDERS.items() if folder != installed}
"""A checkout without symbolic links has text files in their places."""

# What may lie in the tree of a source distribution without being part of it; a checkout asks git.
NOT_SOURCE = (
    ".git",
    ".venv",
    "venv",
    "build",
    "dist",
    "htmlcov",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
)


def run(*command: object, cwd: Path) -> str:
    """Run a command that knows the checkout neither by its folder nor by its environment, and give what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=600,
    )
    assert ended.returncode == 0, f"{' '.join(map(str, command))}\nended with {ended.returncode}:\n{ended.stdout}"
    return ended.stdout


def copy_source(target: Path) -> None:
    """Copy the project as a fresh clone would have it: symlinks as symlinks, and nothing that a build left behind."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:  # the source distribution, or no git to ask
        shutil.copytree(ROOT, target, symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCE))
        return
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        if os.path.lexists(ROOT / name):  # else deleted, but not yet from the index
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def files_in(folder: Path) -> set[str]:
    """Every file under a folder, relative to it; symlinks are neither followed nor listed."""
    paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return {path.relative_to(folder).as_posix() for path in paths if not path.is_symlink()}


class Distributions(NamedTuple):
    source: Path
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "source"
    copy_source(source)
    shutil.copytree(source, folder / "built", symlinks=True)  # building writes into its tree
    built = run(
        *(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel"),
        *("--outdir", folder / "dist", folder / "built"),
        cwd=folder,
    )
    wheels, sdists = list(folder.glob("dist/*.whl")), list(folder.glob("dist/*.tar.gz"))
    assert len(wheels) == len(sdists) == 1, built
    return Distributions(source, wheels[0], sdists[0])


def test_the_wheel_installs_minigraph_and_its_plugin_for_pytest(distributions: Distributions):
    with zipfile.ZipFile(distributions.wheel) as wheel:
        top_level = {PurePosixPath(name).parts[0] for name in wheel.namelist()}
        scripts = wheel.read(f"minigraph-{__version__}.dist-info/entry_points.txt").decode()
    assert top_level == {"minigraph", "pytest_minigraph.py", f"minigraph-{__version__}.dist-info"}
    assert "[pytest11]\npytest_minigraph = pytest_minigraph\n" in scripts


def test_the_wheel_holds_every_module_of_the_three_folders_once(distributions: Distributions):
    modules = {
        f"{installed}/{name}": distributions.source / folder / name
        for folder, installed in FOLDERS.items()
        for name in files_in(distributions.source / folder)
        if name.endswith(".py")
    } | {"pytest_minigraph.py": distributions.source / "pytest_minigraph.py"}
    with zipfile.ZipFile(distributions.wheel) as wheel:
        assert {name for name in wheel.namelist() if name.endswith(".py")} == set(modules)
        for name, path in modules.items():
            assert wheel.read(name) == path.read_bytes(), name
        links = [entry.filename for entry in wheel.infolist() if stat.S_ISLNK(entry.external_attr >> 16)]
    assert links == []


def test_the_wheel_holds_the_data_and_the_type_marker(distributions: Distributions):
    data = {f"minigraph/dataset/data/{name}" for name in files_in(distributions.source / "minigraph/dataset/data")}
    assert data, "minigraph/dataset/data is empty"
    pages = {
        f"minigraph/lessons/{name}" for name in files_in(distributions.source / "minigraph/lessons") if ".md" in name
    }
    assert pages, "minigraph/lessons has no pages"
    with zipfile.ZipFile(distributions.wheel) as wheel:
        assert data | pages | {"minigraph/py.typed"} <= set(wheel.namelist())


def test_the_source_distribution_holds_the_project_and_no_links(distributions: Distributions):
    with tarfile.open(distributions.sdist) as sdist:
        members = {member.name.partition("/")[2]: member for member in sdist.getmembers()}
    assert [name for name, member in members.items() if not (member.isfile() or member.isdir())] == []
    assert not any(name.startswith(("minigraph/passes", "minigraph/kernels")) for name in members)
    project = {name for name in files_in(distributions.source) if name.startswith(".ci/") or not name.startswith(".")}
    assert project - set(members) - LINKS == set()


class Environment(NamedTuple):
    python: Path
    command: Path
    site: Path


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A virtual environment with the dependencies of this one, so that nothing is fetched; they come after its own."""
    folder = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=tmp_path)
    bin_folder = folder / ("Scripts" if os.name == "nt" else "bin")
    python = bin_folder / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    needed = [importlib.util.find_spec(name) for name in ("networkx", "numpy", "rich", "setuptools")]
    folders = {str(Path(spec.origin).parent.parent) for spec in needed if spec and spec.origin}
    (site / "dependencies.pth").write_text("\n".join(sorted(folders)) + "\n", encoding="utf-8")
    return Environment(python, bin_folder / "minigraph", site)


def install(environment: Environment, *what: object, cwd: Path) -> None:
    run(
        *(sys.executable, "-m", "pip", "--python", environment.python, "install", "--no-index", "--no-deps"),
        *("--no-build-isolation", "--no-compile", "--ignore-installed", *what),
        cwd=cwd,
    )


def test_the_source_distribution_installs_and_runs_elsewhere(
    distributions: Distributions, environment: Environment, tmp_path: Path
):
    python, command, site = environment
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    install(environment, distributions.sdist, cwd=elsewhere)
    with zipfile.ZipFile(distributions.wheel) as wheel:
        expected = {name for name in wheel.namelist() if name.startswith("minigraph/")}
    assert {name for name in files_in(site) if name.startswith("minigraph/") and "__pycache__" not in name} == expected
    located = run(python, "-c", "import minigraph.passes as p; print(p.__file__)", cwd=elsewhere)
    assert Path(located.strip()) == site / "minigraph" / "passes" / "__init__.py"
    assert run(python, "-m", "minigraph", "compare", "--batches", "1", cwd=elsewhere).strip()
    assert run(command, "--help", cwd=elsewhere).strip()


def copy_without_links(source: Path, target: Path) -> None:
    """Copy the project as a zip has it, or git where it makes no symbolic links."""
    shutil.copytree(source, target, symlinks=True)
    for link in LINKS:
        (target / link).unlink()
        (target / link).write_text(f"../{PurePosixPath(link).name}", encoding="utf-8")


def refused(*command: object, cwd: Path) -> str:
    """The error output of a command that ends with 1."""
    ended = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stderr


@pytest.mark.parametrize("options", [[], ["-e"]], ids=["installed", "editable"])
def test_a_copy_without_symbolic_links_runs_where_it_is_installed(
    options: list[str], distributions: Distributions, environment: Environment, tmp_path: Path
):
    copy, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy_without_links(distributions.source, copy)
    remedy = f"run `python -m pip install -e .` in {copy.resolve()}, or, if you have installed it without -e"
    python = environment.python
    said = refused(python, "-m", "minigraph", "--version", cwd=copy)
    assert said.startswith("minigraph: error: this copy of minigraph has no symbolic links") and said.count("\n") == 1
    assert remedy in said
    assert remedy in refused(python, "-c", "import minigraph", cwd=copy).splitlines()[-1]

    install(environment, *options, copy, cwd=elsewhere)
    compare = (python, "-m", "minigraph", "compare", "--batches", "1")
    assert run(*compare, cwd=elsewhere).strip()
    if options:
        assert run(*compare, cwd=copy).strip()
    else:
        assert remedy in refused(*compare, cwd=copy)
