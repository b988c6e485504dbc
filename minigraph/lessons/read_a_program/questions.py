"""Questions of lesson 1, with their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minigraph.ir import Program, Role


@dataclass(frozen=True)
class Question:
    """One question: its key in ``answers``, its answer, and what to say to wrong answers that are expected."""

    key: str
    text: str
    answer: Any
    slips: tuple[tuple[Any, str], ...]

    def message(self, given: Any) -> str:
        """Say what is wrong with an answer; empty if nothing is."""
        found = _comparable(given)
        if found is None:
            return f'Not answered: set answers["{self.key}"].'
        if found == _comparable(self.answer):
            return ""
        return next((said for slip, said in self.slips if _comparable(slip) == found), self._mismatch(given))

    def _mismatch(self, given: Any) -> str:
        """Say what kind of answer is wanted, or what of a list is wrong."""
        if isinstance(self.answer, str | int | float):
            wanted = "a name" if isinstance(self.answer, str) else "a number"
            is_kind = isinstance(given, str if isinstance(self.answer, str) else int | float)
            return f"{given!r:.60} is not right." if is_kind else f"The answer is {wanted}, not {given!r:.60}."
        has_names = all(isinstance(each, str) for each in self.answer)
        if not isinstance(given, list):
            return f"The answer is a list of {'names' if has_names else 'numbers'}, not {given!r:.60}."
        if not has_names:
            count = len(self.answer)
            return (
                f"{given!r:.60} is not right." if len(given) == count else f"The answer is a list of {count} numbers."
            )
        extra = next((each for each in given if each not in self.answer), None)
        if extra is not None:
            return f"{extra!r:.60} is none of them."
        missing = len(set(self.answer).difference(given))
        return f"{missing} of {len(set(self.answer))} are missing." if missing else "Name each as often as it is there."


def _comparable(value: Any) -> Any:
    """Return a value by which answers are compared: lists in any order, numbers to three digits."""
    if isinstance(value, list):
        parts = [_comparable(each) for each in value]
        return sorted(parts) if all(isinstance(each, str) for each in parts) else parts
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(float(value), 3)
    return value


def questions(program: Program) -> tuple[Question, ...]:
    """Return the questions about a program, with the answers that it gives."""
    block = program.global_block()
    ops, variables = list(block.ops), block.vars.values()
    backward = [op for op in ops if op.role & Role.BACKWARD]
    parameters = [var.name for var in block.all_parameters()]
    hidden = next(op.outputs["Out"][0] for op in ops if op.type == "relu")
    readers = [op.type for op in ops if hidden in op.input_arg_names]
    update = next(op for op in ops if op.type == "sgd" and op.inputs["Param"] == ("w_1",))
    return (
        Question(
            "backward", "the number of operators that compute gradients", len(backward),
            (
                (len(backward) - 1, "You missed fill_constant: it is the gradient of the loss itself."),
                (len(ops), "These are all operators. Count those whose role has the word backward."),
                (len(backward) + 2, "The clips read gradients, but their role is optimize|clip."),
            ),
        ),
        Question(
            "fed", "the names that a run must be fed", [var.name for var in variables if var.is_data],
            ((["x"], "The loss compares with the target, which is fed, too."),
             (["x", "y", *parameters], "Parameters live in the scope. Only variables marked data are fed.")),
        ),
        Question(
            "state", "the names that keep their value from run to run",
            [var.name for var in variables if var.persistable],
            ((parameters, "The learning rate is kept, too: it is marked persist."),
             ([*parameters, "x", "y"], "x and y are fed anew in each run. Look for param and persist.")),
        ),
        Question(
            "readers", f"the types of the operators that read {hidden}", readers,
            ((readers[:1], "The backward pass reads the value again: a value lives until its last reader."),
             (["relu", *readers], "relu writes the value. Readers have its name inside the brackets.")),
        ),
        Question(
            "update", "the gradient that the update of w_1 reads", update.inputs["Grad"][0],
            (("w_1@GRAD", "This is the raw gradient. The update reads what the clip wrote."),
             ("clip_by_norm_1.tmp_0", "This is the other clip. Look at its X, or at role_vars.")),
        ),
        Question(
            "step", "w_2[0] and w_2[1] after one step", [0.7, 0.6],
            (([0.4, 0.2], "This step uses the raw gradient (6, 8). Its norm is 10, and the clip allows 5."),
             ([0.5, 0.5], "This clips each element to 5. clip_by_norm scales the whole gradient: factor 5 / 10."),
             ([0.9, 0.88], "This scales to norm 1 or less. The clip allows a norm of 5."),
             ([1.3, 1.4], "This adds the gradient. SGD subtracts: w - 0.1 * g.")),
        ),
    )  # fmt: skip
