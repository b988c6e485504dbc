"""Lesson 8: a pass that adds weight decay after the clip and before the update."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from minigraph import layers, regularizer, unique_name
from minigraph import optimizer as optimizers
from minigraph.clip import GradientClipByNorm
from minigraph.ir import Program, Role
from minigraph.ir.default_programs import program_guard
from minigraph.layers.io import fluid_data
from minigraph.lessons.arrays import first_difference, numbers, outcome
from minigraph.lessons.findings import Finding, asked
from minigraph.lessons.student_pass import Call, StudentPass, again, inserted, sound

COEFF = 0.1
MAX_NORM = 0.5
UNDONE = "The updates read gradients without decay."
FEED = {"x": np.array([[1.0, -2.0, 2.0]], "float32")}


def network(
    clips: bool = True, decays: bool = False, optimizer: str = "SGD", names: tuple[str, ...] = ("w",)
) -> Program:
    """Return a training program whose gradients may be clipped, and decayed as fluid does it."""
    main = Program()
    with program_guard(main, Program()), unique_name.guard():
        value = fluid_data("x", [None, 3])
        for name in names:
            value = layers.fc(value, 2, param_attr=name, bias_attr=False)
        loss = layers.mean(layers.square(value))
        make = getattr(optimizers, optimizer)
        make(
            0.1,
            grad_clip=GradientClipByNorm(MAX_NORM) if clips else None,
            regularization=regularizer.L2Decay(COEFF) if decays else None,
        ).minimize(loss)
    return main


def judge(call: Call) -> Iterator[Finding]:
    """Compare with the program in which fluid has added the decay."""
    return asked(QUESTIONS, StudentPass(call, "AddDecay"))


def _without_clip(decay: StudentPass) -> str:
    message = _compared(decay, clips=False)
    if not message and _compared(decay, clips=False, names=("w", "v", "u")):
        return "Of three parameters not all decay, or some by more: look at each update, and add to each gradient once."
    return message


def _with_clip(decay: StudentPass) -> str:
    message = _compared(decay)
    if not message or message == UNDONE:
        return message
    w, rate = numbers("w", (3, 2), "float32"), numbers("learning_rate_0", (1,), "float32")
    raw = outcome(network(), FEED, ["w@GRAD"])["w@GRAD"]
    step = (w - outcome(sound(decay, network()), FEED)["w"]) / rate
    total = raw + COEFF * w
    if np.allclose(step, total * MAX_NORM / np.linalg.norm(total), 1e-3):
        return "The decay is added before the clip, which scales it down, too. Add it to what the clip has written."
    if np.allclose(step, total, 1e-3):
        return "The update reads the raw gradient and the decay, past the clip. Add to what the update reads."
    return message


def _every_optimizer(decay: StudentPass) -> str:
    for optimizer in ("Momentum", "Adam"):
        message = _compared(decay, optimizer=optimizer)
        if message:
            return f"With {optimizer}: {message} Find updates by their role and slots, not by type."
    return ""


def _gradients(decay: StudentPass) -> str:
    names = ["w@GRAD", "clip_by_norm_0.tmp_0"]
    before, after = (outcome(program, FEED, names) for program in (network(), sound(decay, network())))
    if not inserted(network(), sound(decay, network()), "w"):
        return UNDONE
    difference = first_difference({n: before[n] for n in names}, {n: after[n] for n in names})
    return f"{difference} Write the sum under a new name." if difference else ""


def _roles(decay: StudentPass) -> str:
    added = inserted(network(), sound(decay, network()), "w")
    for op in added:
        if not (op.role & Role.REGULARIZE and op.role & Role.OPTIMIZE):
            return f"{op.type} has the role {op.role!r}. Give it Role.OPTIMIZE | Role.REGULARIZE."
        if op.role_vars[:1] != ("w",):
            return f"{op.type} has role_vars {list(op.role_vars)}. Name the parameter and its gradient."
    return "" if added else UNDONE


def _again(decay: StudentPass) -> str:
    once = sound(decay, network())
    if not inserted(network(), once, "w"):
        return UNDONE
    message = again(decay, once)
    return f"{message}\nLeave alone what has a decay: operators with Role.REGULARIZE wrote it." if message else ""


def _compared(decay: StudentPass, clips: bool = True, optimizer: str = "SGD", names: tuple[str, ...] = ("w",)) -> str:
    """Compare new parameters with those of fluid's decay."""
    plain, expected, found = (
        outcome(program, FEED)
        for program in (
            network(clips, False, optimizer, names),
            network(clips, True, optimizer, names),
            sound(decay, network(clips, False, optimizer, names)),
        )
    )
    difference = first_difference(expected, found, 1e-5)
    return UNDONE if difference and not first_difference(plain, found) else difference


QUESTIONS: dict[str, Callable[[StudentPass], str]] = {
    "without a clip: the update reads gradient + 0.1 * w": _without_clip,
    "with a clip: first the clip, then the decay": _with_clip,
    "every optimizer reads the decay": _every_optimizer,
    "raw and clipped gradients keep their values": _gradients,
    "the operators have the roles of a decay": _roles,
    "the second time nothing changes": _again,
}
