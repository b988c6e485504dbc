"""The difference of two texts, line by line, in time that grows little faster than their length.

`difflib` alone takes quadratic time for a long program with many small changes. So lines that occur once in each text
are matched first (patience diff), as nearly all lines of a program do; `difflib` sees only the short runs in between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from operator import eq

from minigraph.errors import WrongTypeError
from minigraph.ir.program import Program
from minigraph.support.public import public

Pair = tuple[int, int]
Lines = Sequence[Hashable]


class Difference(str):
    """Lines of a difference as one text; at a prompt it says how much there is, in a notebook it has colours."""

    __slots__ = ()

    def counts(self) -> str:
        """Numbers of lines that come and go, in words."""
        come, go = (sum(line.startswith(mark) for line in self.split("\n")) for mark in "+-")
        return f"{come} lines come, {go} go" if self else "no difference"

    def __repr__(self) -> str:
        return f"<difference: {self.counts()}; print() shows them>" if self else "<no difference>"

    def html_lines(self) -> str:
        """The lines escaped for HTML, new lines in ``ins``, old ones in ``del``."""
        from html import escape

        tags = {"+": "ins", "-": "del"}
        marked = [(tags.get(line[:1]), escape(line)) for line in self.split("\n")]
        return "\n".join(f"<{tag}>{line}</{tag}>" if tag else line for tag, line in marked)

    def _repr_html_(self) -> str:
        from minigraph.support.html import code, in_notebook

        return in_notebook(self.counts(), code(self.html_lines(), "Difference") if self else "")


@public
def diff(a: Program, b: Program, context: int = 3) -> Difference:
    """Compare the texts of two programs: lines marked ``-`` are only in `a`, those marked ``+`` only in `b`.

    Around each change stand `context` lines and the heading of its block; ``...`` stands for lines left out. The
    empty string if the texts are equal.

    Examples
    --------
    >>> from minigraph.ir import Role
    >>> before = Program.parse('''
    ...     block 0
    ...       data x: float32[-1, 4]
    ...       y: float32[-1, 4] = relu(X=x)
    ... ''')
    >>> after = before.clone()
    >>> after.global_block().ops[0].role |= Role.LOSS
    >>> print(diff(before, after))
      block 0
        data x: float32[-1, 4]
    -   y: float32[-1, 4] = relu(X=x)
    +   y: float32[-1, 4] = relu(X=x) {role='forward|loss'}
    """
    for each in (a, b):
        if not isinstance(each, Program):
            raise WrongTypeError(f"a Program is needed, got {each!r:.80}")
    return Difference("\n".join(diff_lines(str(a).split("\n"), str(b).split("\n"), context)))


def diff_lines(old: Sequence[str], new: Sequence[str], context: int) -> Iterator[str]:
    """Lines of a readable difference: marked, with `context` lines around; none if the texts are equal."""
    marked = list(_marked(old, new))
    shown = _lines_to_show(marked, context)
    if not shown:
        return
    for i, line in enumerate(marked):
        if i in shown:
            yield line
        elif i == 0 or i - 1 in shown:
            yield "    ..."


def _marked(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Every line of both texts after two blanks, ``-`` or ``+``."""
    i = j = 0
    for a, b in [*matching_lines(old, new), (len(old), len(new))]:
        yield from ("- " + line for line in old[i:a])
        yield from ("+ " + line for line in new[j:b])
        if a < len(old):
            yield "  " + old[a]
        i, j = a + 1, b + 1


def _lines_to_show(marked: Sequence[str], context: int) -> set[int]:
    """The changed lines, those around them, and the headings (which are not indented) that they stand under."""
    shown: set[int] = set()
    heading = 0
    for i, line in enumerate(marked):
        if line[2:3] != " ":
            heading = i
        if line[0] != " ":
            shown.add(heading)
            shown.update(range(max(0, i - context), min(len(marked), i + context + 1)))
    return shown


def matching_lines(old: Lines, new: Lines) -> list[Pair]:
    """Pairs of indices of equal lines, increasing in both texts.

    Examples
    --------
    >>> matching_lines(["a", "b", "c"], ["a", "x", "c"])
    [(0, 0), (2, 2)]
    """
    pairs: list[Pair] = []
    stretches = [(0, len(old), 0, len(new))]  # a stack, the first stretch on top, so that pairs come out in order
    while stretches:
        a, a_end, b, b_end = stretches.pop()
        head = _equal(old[a:a_end], new[b:b_end])
        pairs.extend(zip(range(a, a + head), range(b, b + head), strict=True))
        a, b = a + head, b + head
        tail = _equal(old[a:a_end][::-1], new[b:b_end][::-1])
        if tail:
            stretches.append((a_end - tail, a_end, b_end - tail, b_end))
            a_end, b_end = a_end - tail, b_end - tail
        if a == a_end or b == b_end:
            continue
        anchors = _anchors(old, a, a_end, new, b, b_end)
        if anchors:
            # An anchor begins a stretch, which the loop above follows as far as the lines are equal.
            starts, ends = [(a, b), *anchors], [*anchors, (a_end, b_end)]
            both = list(zip(starts, ends, strict=True))
            stretches.extend((s[0], e[0], s[1], e[1]) for s, e in reversed(both))
        else:
            pairs.extend(_by_difflib(old, a, a_end, new, b, b_end))
    return pairs


def _equal(a: Lines, b: Lines) -> int:
    """Number of lines that are equal from the start."""
    same = list(map(eq, a, b))
    return same.index(False) if False in same else len(same)


def _anchors(old: Lines, a: int, a_end: int, new: Lines, b: int, b_end: int) -> list[Pair]:
    """The longest increasing sequence of lines that occur once in either stretch."""
    times_old, times_new = Counter(old[a:a_end]), Counter(new[b:b_end])
    place = {line: i for i, line in enumerate(old[a:a_end], a) if times_old[line] == 1}
    candidates = [(place[line], j) for j, line in enumerate(new[b:b_end], b) if line in place and times_new[line] == 1]
    lowest: list[int] = []  # lowest[k]: the smallest end of an increasing sequence of k + 1 candidates
    chains: list[int] = []  # the candidate that this end is
    before: list[int | None] = []  # for each candidate, the one in front of it in the longest sequence that it ends
    for n, (i, _) in enumerate(candidates):
        k = bisect_left(lowest, i)
        lowest[k : k + 1], chains[k : k + 1] = [i], [n]
        before.append(chains[k - 1] if k else None)
    found: list[Pair] = []
    at = chains[-1] if chains else None
    while at is not None:
        found.append(candidates[at])
        at = before[at]
    return found[::-1]


def _by_difflib(old: Lines, a: int, a_end: int, new: Lines, b: int, b_end: int) -> Iterator[Pair]:
    from difflib import SequenceMatcher

    blocks = SequenceMatcher(None, old[a:a_end], new[b:b_end]).get_matching_blocks()
    return ((a + i + k, b + j + k) for i, j, size in blocks for k in range(size))
