"""Savings by a pass: operators, bytes and arithmetic, which count, and time, which is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from minigraph.executor import Executor
from minigraph.ir import Program, Variable
from minigraph.lessons.arrays import feed_of, state_of
from minigraph.lessons.cases import broken
from minigraph.lessons.findings import Finding
from minigraph.lessons.student_pass import become, sound
from minigraph.passes import Pass, Pipeline
from minigraph.rewrite import score
from minigraph.runtime.scope import Scope


def saved(
    rewrite: Pass, reference: Pass, program: Program, then: Callable[[Program], Program] = Program.clone
) -> Iterator[Finding | Timing]:
    """Compare what a pass and the reference save on a program, figure by figure, if the pass keeps its results.

    The figures are those of what `then` makes of a program afterwards. Last comes what to measure.
    """
    message = broken(rewrite, program)
    yield Finding("the program whose savings count keeps its results", message)
    if message:
        return
    programs = [then(each) for each in (program.clone(), sound(rewrite, program), sound(reference, program))]
    before, after, best = map(figures, programs)
    for what, most in before.items():
        if best[what] == most:
            continue
        share = min(max((most - after[what]) / (most - best[what]), 0.0), 1.0)
        title = f"{what}: {most:,} before, {after[what]:,} now, {best[what]:,} by the reference"
        message = "" if share == 1 else "Nothing is saved." if share == 0 else "The reference saves more."
        yield Finding(title, message, share, 1.0)
    yield Timing(programs[0], programs[1])


def figures(program: Program) -> dict[str, int]:
    """Count operators of a program's global block, the bytes that they read and write, and the arithmetic of a run."""
    block = program.global_block()
    moved = [name for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)]
    explained = Executor(passes=Pipeline(()), jit=False).explain(program, feed_of(program), program.roots)
    return {
        "operators": len(block.ops),
        "bytes": sum(_size(block.vars[name]) for name in moved if name in block.vars),
        "flops": explained.flops,
    }


@dataclass(frozen=True)
class Timing:
    """A program before and after a student's pass, to be measured. Times are shown and never count.

    Attributes
    ----------
    passes : tuple of Pass
        What the executor applies besides.
    peer : callable, optional
        Returns a line on what another system needs.
    """

    before: Program
    after: Program
    passes: tuple[Pass, ...] = ()
    peer: Callable[[], str] | None = None

    def text(self) -> str:
        """Measure both programs by turns, and say the shortest times."""
        scope = Scope()
        for name, value in state_of(self.before).items():
            scope.var(name).get_tensor().set(value)
        found = score(self._exchange, self.before, feed_of(self.before), scope=scope, passes=Pipeline(self.passes))
        line = (
            f"Time of a run, which does not count: {1e6 * found.before.seconds:,.0f} us before, "
            f"{1e6 * found.after.seconds:,.0f} us now; {found.saved['seconds']:.0%} saved."
        )
        return f"{line}\n{self.peer()}" if self.peer is not None else line

    def _exchange(self, program: Program) -> bool:
        become(program, self.after.clone())
        return True


def _size(var: Variable) -> int:
    if var.tensor_type is None:
        return 0
    return prod(abs(dim) for dim in var.tensor_type.shape) * var.dtype.numpy.itemsize
