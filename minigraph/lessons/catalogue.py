"""The lessons in order, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minigraph.errors import NotFoundError, ProgramError, suggest
from minigraph.lessons.pages import notebook
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

    def copy_to(self, folder: Path, with_notebook: bool = False, with_solution: bool = False) -> list[Path]:
        """Copy the files to work on; returns their paths.

        Raises
        ------
        ProgramError
            If a file is there already and differs; nothing is copied then.
        """
        files = dict(self._copies(with_notebook, with_solution))
        for name, content in files.items():
            path = folder / name
            if path.exists() and path.read_bytes() != content:
                raise ProgramError(f"{path} is there already", hint="Choose another folder, or rename the file.")
        write_files({folder / name: [content] for name, content in files.items()})
        return [folder / name for name in files]

    def _copies(self, with_notebook: bool, with_solution: bool) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the content of each file for a student."""
        page = self.file("page.md").read_bytes()
        yield f"{self.name}.md", page
        if with_notebook:
            yield f"{self.name}.ipynb", notebook(page.decode()).encode()
        yield f"{self.name}.py", self.file("start.py").read_bytes()
        if with_solution:
            yield f"{self.name}_solution.py", self.file("reference.py").read_bytes()


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
    Lesson(11, "sum_over_ranks", "Sum over ranks"),
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
