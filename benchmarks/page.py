"""The page of figures: each workload runs in a process of its own, and tables are made from what is kept of it.

`page.md` beside this file is the page without its tables. The figures of each number of cores are kept in a file of
`figures/`; the page is a function of these.
"""

import datetime
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEMPLATE, FIGURES = HERE / "page.md", HERE / "figures"

CLIPS = ("clip", "clip-memory", "clip-state", "clip-update")
TRAINING = (
    "seed", "small", "large", "rnn", "lenet", "clip-cost", "transformer", "lstm", "resnet", "mobilenet", "word2vec",
    "gan", "policy",
)  # fmt: skip
FIRSTS = ("first", "build", "large-programs", "memory")
TABLES = {
    "training": TRAINING,
    "clip": CLIPS,
    "others": ("chain", "lookups"),
    "first": FIRSTS,
    "spellings": ["spellings"],
}
"""Workloads of each table."""
RUNS = {
    "cpu-1": [name for names in TABLES.values() for name in names],
    "cpu-2": [*TRAINING, *CLIPS],
    "cuda-4": ["seed", "small", "large", "rnn", "lenet", "clip-cost"],
}
"""Workloads by device and number of cores."""
TIMEOUT = 400
"""Maximum seconds of one workload."""
SIZES = "--sizes=1000,10000"
"""Programs that are built; larger ones take minutes."""

COLUMNS = {
    "minigraph": "minigraph", "minigraph+jit": "with `jit`", "minigraph-launches": "without CUDA graphs",
    "minigraph+jit again": "with `jit`, again", "numpy": "NumPy", "torch": "torch", "torch.compile": "torch.compile",
    "torch.compile again": "torch.compile, again", "jax": "JAX", "paddle": "Paddle 1.8.5",
    "products alone": "products alone", "memory alone": "memory alone",
}  # fmt: skip
"""Heading of each engine's column, in the order of the columns."""
PEERS = ("numpy", "torch", "torch.compile", "jax", "paddle")


def make(path, device, arguments):
    """Run what the page reports on for a device, and write the page; a run that was killed goes on where it was."""
    runs = {which: names for which, names in RUNS.items() if which.startswith(device)}
    for which, names in runs.items():
        measure(which, names, arguments)
    for which in runs:
        (FIGURES / f"{which}.unfinished").replace(FIGURES / f"{which}.json")
    Path(path).write_text(text(), encoding="utf-8")


def measure(which, names, arguments):
    """Run each workload that the unfinished file of figures lacks, and write the file when one has ended."""
    device, cores = which.split("-")
    unfinished = FIGURES / f"{which}.unfinished"
    figures = json.loads(unfinished.read_text(encoding="utf-8")) if unfinished.exists() else {"workloads": {}}
    for name in names:
        if name in figures["workloads"]:
            continue
        found = run([f"--device={device}", f"--cores={cores}", f"--only={name}", SIZES, *arguments])
        figures["workloads"][name] = found.pop("results")
        figures |= found
        unfinished.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def run(arguments):
    """Date, command, machine and results of one process; where it fails, a row that says so."""
    script = str(HERE / "run.py")
    # Kernels that the environment asks of OpenBLAS would slow the products of some engines only.
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        try:
            subprocess.run(
                [sys.executable, script, *arguments, f"--json={file}"], check=True, timeout=TIMEOUT, env=environment
            )
            found = json.loads(file.read_text(encoding="utf-8"))
        except (subprocess.SubprocessError, FileNotFoundError) as error:
            found = {"results": [{"workload": arguments[2], "engine": "minigraph", "failed": str(error)}]}
    shown = shlex.join(argument for argument in arguments if not argument.startswith(("--only", "--paddle")))
    return {"date": f"{datetime.date.today()}", "command": f"benchmarks/run.py {shown}", **found}


def text():
    """The page: the template with its tables, of the figures that are kept."""
    runs = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FIGURES.glob("*.json"))}

    def fill(match):
        table, _, which = match[1].partition(" ")
        figures = runs[which]
        if table == "origin":
            return f"{figures['machine']}. Measured on {figures['date']} by `{figures['command']}`."
        lines = spelled if table == "spellings" else rows
        return "\n".join(lines(figures["workloads"], TABLES[table]))

    return re.sub(r"\{([a-z]+ [a-z]+-\d+)\}", fill, TEMPLATE.read_text(encoding="utf-8"))


def rows(workloads, names):
    """A table with a row for each title, a column for each engine; what comes first has no ratios."""
    by_title = {}
    for row in (row for name in names for row in workloads.get(name, ())):
        by_title.setdefault(row["workload"], {})[row["engine"]] = row
    if not by_title:
        yield "Not measured yet."
        return
    engines = [name for name in COLUMNS if any(name in found for found in by_title.values())]
    yield f"| | {' | '.join(COLUMNS[name] for name in engines)} |"
    yield "|---|" + "---|" * len(engines)
    for title, found in by_title.items():
        peers = [found[name]["median_s"] for name in PEERS if found.get(name, {}).get("median_s") and names != FIRSTS]
        cells = (cell(name, found.get(name), peers) for name in engines)
        yield f"| {title} | {' | '.join(cells)} |"


def spelled(workloads, names):
    """A table with a row for each title: the fastest and the slowest spelling, and how many times slower that is."""
    by_title = {}
    for row in (row for name in names for row in workloads.get(name, ()) if "median_s" in row):
        by_title.setdefault(row["workload"], []).append((row["median_s"], row["engine"]))
    yield "| | fastest | slowest | times slower |"
    yield "|---|---|---|---|"
    for title, found in by_title.items():
        (best, first), (worst, last) = min(found), max(found)
        yield f"| {title} | {first}: {micro(best)} | {last}: {micro(worst)} | {worst / best:.2f} |"


def cell(engine, row, peers):
    """The median; in brackets its ratio to the best peer, or for how much a clip adds the share."""
    if row is None or row.get("median_s", row.get("bytes", row.get("failed"))) is None:
        return "-"
    if "failed" in row:
        return "fails"
    if "bytes" in row:
        return f"{row['bytes'] / 1e6:,.0f} MB"
    if "added" in row:
        return f"{row['added']:.1%}"
    ratio = f" ({row['median_s'] / min(peers):.2f})" if peers and engine not in PEERS else ""
    return f"{micro(row['median_s'])}{ratio}"


def micro(seconds):
    value = seconds * 1e6
    if value >= 1e6:
        return f"{seconds:,.2f} s"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
