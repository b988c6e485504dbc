"""Compare passes that are rules with the passes by hand that they replaced: lines, results and time.

    python benchmarks/rules.py [--rounds 5] [--only MeanOfAll,FuseMeanLoss]

The passes by hand come from the history of the repository, which must be there. The corpus are the private programs of
executors, as they reach each pass: those of the spellings, of the large programs and of the recorded programs. Each is
copied and rewritten in turns; the lowest processor time counts. Collecting the programs takes some minutes.

`MeanOfAll` and `FindCrossEntropy` do more today than the passes by hand did. So their rules are those of the commit
that replaced the pass by hand, run by the engine of today. Programs in which rules do more than a pass by hand are
counted, and left out of the times.
"""

import argparse
import ast
import gc
import io
import subprocess
import sys
import time
import tokenize
import types
import warnings
from pathlib import Path

import minigraph as fluid
from minigraph import unique_name
from minigraph.passes import IN_ORDER, RemoveDeadOps, events

ROOT = Path(__file__).parents[1]

REPLACED = {
    "FindCrossEntropy": ("6cfacc43", "recognize/find_cross_entropy"),
    "FuseSoftmaxCrossEntropy": ("322a42ac", "merge/fuse_softmax_cross_entropy"),
    "MeanOfAll": ("ca392a03", "canonical/mean_of_all"),
    "FuseMeanLoss": ("9e941c3b", "merge/fuse_mean_loss"),
    "ScaleIntoMatmul": ("8dfe9224", "canonical/scale_into_matmul"),
    "TurnTransposes": ("819c47a9", "canonical/turn_transposes"),
}
"""Passes, each with the commit that made rules of it, and its file today."""

DO_MORE = ("FindCrossEntropy", "MeanOfAll")
"""Passes whose rules of today are about more than the pass by hand was."""

BEFORE = {
    "FuseGlobalNorm": "FindCrossEntropy",
    "SkipJoins": "FuseSoftmaxCrossEntropy",
    **{name: name for name in ("MeanOfAll", "FuseMeanLoss", "ScaleIntoMatmul", "TurnTransposes")},
}
"""Passes of the executors' pipeline at which the programs are taken, and the passes that they are taken for.

Passes that now come before `FindCrossEntropy` write sums otherwise than the pass by hand found them.
`FuseSoftmaxCrossEntropy` is applied on request only.
"""


class Corpus(events.Observer):
    """Private programs by the pass that they reach, each once."""

    def __init__(self):
        self.found = {name: {} for name in REPLACED}

    def begin(self, rewrite, program):
        name = BEFORE.get(getattr(rewrite, "name", ""))
        if name is not None and program.is_concrete:
            self.found[name].setdefault((str(program), program.roots), _copy(program))


def spellings():
    from spellings import TASKS, plan

    for task in TASKS.values():
        for spelling in task.spellings:
            plan(task, spelling)


def large_programs():
    from large_programs import PROGRAMS

    for program in PROGRAMS.values():
        *_, (programs, startup, feed) = program(fluid)
        executor = fluid.Executor(fluid.CPUPlace(), jit=False)
        with fluid.scope_guard(fluid.Scope()):
            executor.run(startup)
            for main, loss in programs:
                executor.run(main, feed=feed(2), fetch_list=[loss])


def recorded_programs():
    sys.path += [str(ROOT / "tests" / each) for each in ("golden", "common")]
    from golden_programs import run_case
    from test_golden_programs import CASES

    for case, _ in CASES.values():
        run_case(case["builder"], case["arguments"])


def _copy(program):
    """A copy that was asked for its operators already, as a program is that other passes have looked at."""
    twin = program.clone()
    twin.is_concrete, twin.roots = program.is_concrete, program.roots
    for block in twin.blocks:
        assert len(block.ops[:]) == sum(map(len, block.ops.by_type.values()))
    return twin


def forms_of(name):
    """The source of a pass by hand and of its rules, and the two passes."""
    commit, path = REPLACED[name]
    old = f"passes/{path.rpartition('/')[2]}.py"
    by_hand, first = _source(f"{commit}^", old), _source(commit, old)
    if name in DO_MORE:
        return (by_hand, first), (_pass_in(by_hand, name, "by_hand"), _pass_in(first, name, "as_rules"))
    now = next(each for each in IN_ORDER if each.name == name)
    return (by_hand, (ROOT / "passes" / f"{path}.py").read_text(encoding="utf-8")), (
        _pass_in(by_hand, name, "by_hand"), now,
    )  # fmt: skip


def _source(commit, path):
    command = ["git", "-C", str(ROOT), "show", f"{commit}:{path}"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _pass_in(source, name, form):
    module = types.ModuleType(f"minigraph.passes.{form}.{name}")
    sys.modules[module.__name__] = module
    exec(compile(source, module.__name__, "exec"), vars(module))
    return vars(module)[name]()


def lines_of_code(source):
    """Lines with code, without comments and docstrings."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found -= {*range(node.lineno, node.end_lineno + 1)}
    return len(found)


def applied(rewrite, program):
    """Seconds, and the program that a pass leaves."""
    twin = _copy(program)
    with unique_name.guard():
        start = time.process_time()
        rewrite.apply(twin)
        return time.process_time() - start, twin


def listing(program, known):
    """The operators that results need, with numbers for names that are not `known`, which passes make up."""
    RemoveDeadOps().apply(program)
    numbers = {}

    def meant(slots):
        return [
            (slot, [each if each in known else numbers.setdefault(each, len(numbers)) for each in names])
            for slot, names in sorted(slots.items())
        ]

    return [
        (op.type, meant(op.inputs), meant(op.outputs), dict(op.attrs), op.role, op.role_vars)
        for block in program.blocks for op in block.ops
    ]  # fmt: skip


def measured(name, programs, rounds):
    """The row of a pass."""
    sources, passes = forms_of(name)
    lines = [lines_of_code(each) for each in sources]
    total, fired, more, ratios, fired_total = [0.0, 0.0], 0, 0, [], [0.0, 0.0]
    for program in programs:
        known = {name for block in program.blocks for name in block.vars}
        results = [listing(applied(each, program)[1], known) for each in passes]
        is_rewritten = results[0] != listing(_copy(program), known)
        if results[0] != results[1]:
            assert len(results[1]) < len(results[0]) and name not in DO_MORE, f"{name}: other results\n{program}"
            more += 1
            continue
        lowest = [float("inf")] * 2
        for turn in range(rounds):
            for form in (0, 1) if turn % 2 else (1, 0):
                lowest[form] = min(lowest[form], applied(passes[form], program)[0])
        total = [a + b for a, b in zip(total, lowest, strict=True)]
        if is_rewritten:
            fired += 1
            fired_total = [a + b for a, b in zip(fired_total, lowest, strict=True)]
            ratios.append(lowest[1] / lowest[0])
    where = f"{fired_total[1] / fired_total[0]:.2f} | {max(ratios):.1f}" if fired else "- | -"
    share = f"{lines[1]} of {lines[0]} ({lines[1] / lines[0]:.0%})"
    counts = f"{len(programs) - more} | {fired} | {more}"
    return f"| `{name}` | {share} | {counts} | {total[1] / total[0]:.2f} | {where} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*REPLACED])
    settings = parser.parse_args()
    warnings.simplefilter("ignore")
    corpus = Corpus()
    with events.observed_by(corpus):
        for collect in (recorded_programs, large_programs, spellings):
            collect()
    gc.collect()
    gc.freeze()
    gc.disable()
    print("| rules | lines of code | programs | rewritten | more | time | where rewritten | at most |")
    print("|---|---|---|---|---|---|---|---|")
    for name in settings.only:
        print(measured(name, [*corpus.found[name].values()], settings.rounds), flush=True)
        gc.enable()
        gc.collect()
        gc.disable()


if __name__ == "__main__":
    main()
