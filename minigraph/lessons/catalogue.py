"""The ten lessons in order, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minigraph.errors import NotFoundError, ProgramError, suggest
from minigraph.support.atomic_files import write_files


@dataclass(frozen=True)
class Lesson:
    """A folder beside this module: ``page.md`` to read, ``start.py`` to fill in, ``reference.py``, and its judge.

    Attributes
    ----------
    number : int
    name : str
        The folder; its module has ``judge(call)``, which yields findings.
    title : str
    """

    number: int
    name: str
    title: str

    def file(self, name: str) -> Path:
        """Return the path of one of the lesson's files."""
        return Path(__file__).parent / self.name / name

    def copies(self, folder: Path, with_solution: bool = False) -> Iterator[tuple[Path, Path]]:
        """Yield each file to copy for a student, and its path in `folder`."""
        yield self.file("page.md"), folder / f"{self.name}.md"
        yield self.file("start.py"), folder / f"{self.name}.py"
        if with_solution:
            yield self.file("reference.py"), folder / f"{self.name}_solution.py"

    def copy_to(self, folder: Path, with_solution: bool = False) -> list[Path]:
        """Copy the files to work on; returns their paths.

        Raises
        ------
        ProgramError
            If a file is there already and differs; nothing is copied then.
        """
        files = {target: source.read_bytes() for source, target in self.copies(folder, with_solution)}
        for target, content in files.items():
            if target.exists() and target.read_bytes() != content:
                raise ProgramError(f"{target} is there already", hint="Choose another folder, or rename the file.")
        write_files({target: [content] for target, content in files.items()})
        return list(files)


LESSONS = (
    Lesson(1, "read_a_program", "Read a program"),
    Lesson(2, "pass_by_hand", "A pass by hand"),
    Lesson(3, "first_rule", "A first rule"),
    Lesson(4, "dead_code", "Dead code and liveness"),
    Lesson(5, "overwritten_names", "Common subexpressions where names are overwritten"),
    Lesson(6, "softmax_loss", "Fuse softmax with its loss"),
    Lesson(7, "insert_clip", "Insert a clip and keep the law"),
    Lesson(8, "training_order", "Order: decay, clip, update"),
    Lesson(9, "gradient_rule", "A gradient rule and its check"),
    Lesson(10, "beat_torch", "Beat torch on one program"),
)


def find_lesson(text: str) -> Lesson:
    """Return the lesson of a number or a name.

    Raises
    ------
    NotFoundError
        If there is none.
    """
    for lesson in LESSONS:
        if text in (lesson.name, str(lesson.number)):
            return lesson
    names = [lesson.name for lesson in LESSONS]
    hint = suggest(text, names) or f"Give a number from 1 to {len(LESSONS)}, or a name: {', '.join(names)}."
    raise NotFoundError(f"there is no lesson {text!r}", hint=hint)
