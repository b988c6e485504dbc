"""Writes docs/fluid-names.md and the table of `minigraph port`: ``python tests/fluid_names_page.py``.

To be run after names or docs/differences.md have changed.
"""

import json
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "fluid-names.md"
TABLE = ROOT / "minigraph" / "cli" / "differences.json"
DIFFERENCES = ROOT / "docs" / "differences.md"
NAMES = json.loads((ROOT / "tests" / "golden" / "fluid_names.json").read_text(encoding="utf-8"))
"""Public names of the modules of fluid 1.8.5."""
INTRODUCTION = """\
# Names of fluid 1.8.5

Every public name of fluid 1.8.5, by module: names that are here and do the same; names that are here and differ, with a
link to what differs; names that are absent, with the reason. A name counts as differing if
[differences.md](differences.md) has a row about it, however rare its case. This page is generated:
`python tests/fluid_names_page.py` writes it anew. `python -m minigraph port SCRIPT` tells the same of the names that a
script uses, with lines.
"""


def differences() -> Iterator[tuple[str, str, str, str]]:
    """Names, or paths to them, in the rows of the page of differences; what fluid does, what is done here, section."""
    public = {name for names in NAMES.values() for name in names} - {name.partition(".")[0] for name in NAMES}
    section, is_table = "", False
    for line in DIFFERENCES.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("| fluid 1.8.5"):
            is_table = "and minigraph" not in line  # which are kept as they are
        elif not line.startswith("|"):
            is_table = False
        elif is_table and not line.startswith("|---"):
            there, here, _ = (part.strip() for part in line.strip("| ").split(" | "))
            for name in dict.fromkeys(re.findall(r"`([\w.]+)", there)):
                if name.rpartition(".")[2] in public:
                    yield name, there, here, section


def table() -> str:
    """The rows by name, as JSON."""
    found: dict[str, list[list[str]]] = {}
    for name, there, here, _ in differences():
        found.setdefault(name, []).append([there, here])
    return json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def text() -> str:
    sections: dict[str, list[str]] = {}
    for name, _, _, section in differences():
        sections.setdefault(name, []).append(section)
    parts = [_of_module(module, sections) for module in sorted(NAMES)]
    return "\n".join([INTRODUCTION, *parts])


def _of_module(module: str, sections: dict[str, list[str]]) -> str:
    from minigraph.cli.porting import is_about
    from minigraph.errors import UnknownNameError
    from minigraph.support.fluid_absent import ABSENT

    here, differing, absent = [], [], {}
    for name in NAMES[module]:
        try:
            value = _find([*filter(None, module.split(".")), name])
        except UnknownNameError:
            gone = next(part for part in (name, *module.split(".")) if part in ABSENT)
            absent.setdefault(ABSENT[gone].reason, []).append(f"`{name}`")
            continue
        path = ".".join(filter(None, [module, name]))
        found = [each for mention, places in sections.items() if is_about(mention, path) for each in places]
        if found and not isinstance(value, types.ModuleType):
            links = ", ".join(f"[{each}](differences.md#{_anchor(each)})" for each in dict.fromkeys(found))
            differing.append(f"`{name}` ({links})")
        else:
            here.append(f"`{name}`")
    lines = [f"## {'.'.join(filter(None, ['fluid', module]))}", ""]
    lines += [f"- Here: {', '.join(here)}"] if here else []
    lines += [f"- Differing: {', '.join(differing)}"] if differing else []
    lines += [f"- Absent, because {reason}: {', '.join(names)}" for reason, names in sorted(absent.items())]
    return "\n".join(lines) + "\n"


def _find(path: list[str]) -> object:
    import minigraph

    found: object = minigraph
    for part in path:
        found = getattr(found, part)
    return found


def _anchor(section: str) -> str:
    return re.sub(r"[^\w -]", "", section.lower()).replace(" ", "-")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    TABLE.write_text(table(), encoding="utf-8")
    PAGE.write_text(text(), encoding="utf-8")
