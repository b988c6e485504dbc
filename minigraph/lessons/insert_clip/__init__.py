"""Lesson 7: a pass that clips each gradient by its norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from minigraph import layers, unique_name
from minigraph import optimizer as optimizers
from minigraph.ir import Operator, Program, Role
from minigraph.ir.default_programs import program_guard
from minigraph.layers.io import fluid_data
from minigraph.lessons.arrays import outcome
from minigraph.lessons.findings import Finding, asked
from minigraph.lessons.student_pass import Call, StudentPass, again, inserted, sound, updates

MAX_NORM = 2.0
UNDONE = "The updates read the raw gradients: nothing is clipped yet."


def network(optimizer: str = "SGD", layers_count: int = 2) -> Program:
    """Return a training program of a small network, unclipped."""
    main = Program()
    with program_guard(main, Program()), unique_name.guard():
        value = fluid_data("x", [None, 3])
        for number in range(layers_count):
            value = layers.fc(value, 3, param_attr=f"w_{number}", bias_attr=False)
        loss = layers.mean(layers.square(value))
        options = {"momentum": 0.9} if optimizer == "Momentum" else {}
        getattr(optimizers, optimizer)(0.1, **options).minimize(loss)
    return main


def judge(call: Call) -> Iterator[Finding]:
    """Feed gradients of known norms, and compare what the updates do with them."""
    return asked(QUESTIONS, StudentPass(call, "ClipEachGradient"))


def gradients_read(clip: StudentPass, program: Program, factor: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the raw gradient and the one that is read of each update, for an input of this size."""
    rewritten = sound(clip, program)
    read = [op.inputs["Grad"][0] for op in updates(rewritten)]
    raw = [f"{op.inputs['Param'][0]}@GRAD" for op in updates(rewritten)]
    feed = {"x": factor * np.array([[1.0, -2.0, 2.0]], "float32")}
    before, after = outcome(program, feed, raw), outcome(rewritten, feed, read)
    return [(before[r], after[n]) for r, n in zip(raw, read, strict=True)]


def _long(clip: StudentPass) -> str:
    for raw, read in gradients_read(clip, network(), 10.0):
        norm = np.linalg.norm(raw)
        if np.array_equal(raw, read):
            return UNDONE
        if not np.allclose(read, raw * MAX_NORM / norm, 1e-4):
            if np.abs(read).max() <= MAX_NORM and np.allclose(read, np.clip(raw, -MAX_NORM, MAX_NORM)):
                return "Each element is clipped. clip_by_norm scales the whole gradient, and keeps its direction."
            return f"A gradient of norm {norm:.4g} becomes one of norm {np.linalg.norm(read):.4g}, not {MAX_NORM:g}."
    return ""


def _short(clip: StudentPass) -> str:
    if not _clips(clip):
        return UNDONE
    for raw, read in gradients_read(clip, network(), 0.01):
        if raw.tobytes() != read.tobytes():
            return f"A gradient of norm {np.linalg.norm(raw):.4g} was changed. A short one keeps every bit."
    return ""


def _raw(clip: StudentPass) -> str:
    if not _clips(clip):
        return UNDONE
    names = [f"w_{number}@GRAD" for number in range(2)]
    feed = {"x": np.array([[10.0, -20.0, 20.0]], "float32")}
    before, after = (outcome(program, feed, names) for program in (network(), sound(clip, network())))
    if any(before[name].tobytes() != after[name].tobytes() for name in names):
        return "The raw gradient has another value than before. Write the clipped one under a new name."
    before, after = (outcome(program, feed, ["watched"]) for program in (_watched(), sound(clip, _watched())))
    if before["watched"].tobytes() != after["watched"].tobytes():
        return "An operator that is no update reads the clipped gradient. Let only updates read it."
    return ""


def _watched() -> Program:
    """Return a training program in which another operator reads a raw gradient."""
    program = network()
    with program_guard(program, Program()):
        watched = program.global_block().create_var(name="watched")
        program.global_block().append_op("square", {"X": "w_0@GRAD"}, {"Out": watched})
    return program


def _optimizers(clip: StudentPass) -> str:
    for optimizer in ("Momentum", "Adam", "Adagrad"):
        rewritten = sound(clip, network(optimizer))
        if any(op.inputs["Grad"][0].endswith("@GRAD") for op in updates(rewritten)):
            kind = updates(rewritten)[0].type
            return f"The gradients of {kind} are not clipped. Find updates by their role and slots, not by type."
    return ""


def _again(clip: StudentPass) -> str:
    if not _clips(clip):
        return UNDONE
    message = again(clip, sound(clip, network()))
    return f"{message}\nLeave alone what a clip has written." if message else ""


def _role(clip: StudentPass) -> str:
    clips = _clips(clip)
    for op in clips:
        if not (op.role & Role.CLIP and op.role & Role.OPTIMIZE):
            return f"{op.type} has the role {op.role!r}. Give clips Role.OPTIMIZE | Role.CLIP."
        if tuple(op.role_vars) not in [(f"w_{number}", f"w_{number}@GRAD") for number in range(2)]:
            said = "Name the parameter and its raw gradient, in this order."
            return f"{op.type} has role_vars {list(op.role_vars)}. {said}"
    return "" if clips else UNDONE


def _clips(clip: StudentPass) -> list[Operator]:
    """Return what the pass has inserted, if it reads a gradient."""
    return inserted(network(), sound(clip, network()), "w_0@GRAD")


QUESTIONS: dict[str, Callable[[StudentPass], str]] = {
    "a long gradient is scaled down to the norm": _long,
    "a short gradient keeps every bit": _short,
    "the raw gradient keeps its value": _raw,
    "every optimizer reads clipped gradients": _optimizers,
    "the second time nothing changes": _again,
    "the clip has the roles of a clip": _role,
}
