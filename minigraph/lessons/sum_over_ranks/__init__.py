"""Lesson 11: a pass that sums gradients over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minigraph import layers, parallel, unique_name
from minigraph import optimizer as optimizers
from minigraph.clip import GradientClipByGlobalNorm
from minigraph.errors import VerifyError
from minigraph.executor import Executor
from minigraph.ir import Program
from minigraph.ir.default_programs import program_guard
from minigraph.layers.io import fluid_data
from minigraph.lessons.arrays import numbers, state_of
from minigraph.lessons.findings import Finding, asked
from minigraph.lessons.student_pass import Call, StudentPass, again, sound
from minigraph.runtime.place import CPUPlace
from minigraph.runtime.scope import Scope

RANKS = 2
UNDONE = "Nothing is exchanged: each rank updates by its own samples."


def network(clips: bool = False) -> Program:
    """Return a training program of a small network."""
    main = Program()
    with program_guard(main, Program()), unique_name.guard():
        value = fluid_data("x", [None, 3])
        for number in range(2):
            value = layers.fc(value, 3, param_attr=f"w_{number}", bias_attr=False)
        loss = layers.mean(layers.square(value))
        clip = GradientClipByGlobalNorm(0.1) if clips else None
        optimizers.SGD(0.1, grad_clip=clip).minimize(loss)
    return main


def judge(call: Call) -> Iterator[Finding]:
    """Verify what the pass makes, and train with it on simulated ranks."""
    return asked(QUESTIONS, StudentPass(call, "SumOverRanks"))


def trained(program: Program, rows: Any) -> dict[str, Any]:
    """Return the parameters after a step."""
    scope = Scope()
    for name, array in state_of(program).items():
        scope.var(name).get_tensor().set(array, CPUPlace())
    Executor().run(program, {"x": rows}, scope=scope)
    return {name: np.array(scope.find_var(name).get_tensor()) for name in ("w_0", "w_1")}  # type: ignore[union-attr]


def _verified(rewrite: StudentPass, clips: bool) -> str:
    rewritten = sound(rewrite, network(clips))
    if not any(op.type.startswith("c_") for op in rewritten.global_block().ops):
        return UNDONE
    try:
        parallel.verify(rewritten, scales_loss=False)  # another question asks for that
    except VerifyError as error:
        return f"{error.message}.\n{error.hint}"
    return ""


def _summed(rewrite: StudentPass) -> str:
    return _verified(rewrite, clips=False)


def _before_clips(rewrite: StudentPass) -> str:
    return _verified(rewrite, clips=True)


def _alike(rewrite: StudentPass) -> str:
    rows = numbers("x", (4, 3), "float32", negative=True)
    for clips in (False, True):
        program = network(clips)
        rewritten, start = sound(rewrite, program), state_of(program)
        expected = trained(program, rows)
        found = parallel.simulate(lambda rank, twin=rewritten: trained(twin, np.split(rows, RANKS)[rank]), RANKS)  # type: ignore[misc]
        for name, value in expected.items():
            moved, wanted = (np.float64(each - start[name]) for each in (found[0][name], value))
            if np.allclose(moved, wanted * RANKS, 1e-3):
                return f"{name} moves {RANKS} times too far. Divide the gradient of the loss by the number of ranks."
            if not np.allclose(moved, wanted, 1e-3, 1e-6):
                return f"{name} moves by {moved.round(4).tolist()}, with all samples by {wanted.round(4).tolist()}."
    return ""


def _again(rewrite: StudentPass) -> str:
    rewritten = sound(rewrite, network())
    if len(rewritten.global_block().ops) == len(network().global_block().ops):
        return UNDONE
    message = again(rewrite, rewritten)
    return f"{message}\nLeave a program alone that exchanges already." if message else ""


def _for_test(rewrite: StudentPass) -> str:
    rewritten = sound(rewrite, network())
    if not any(op.type.startswith("c_") for op in rewritten.global_block().ops):
        return UNDONE
    if any(op.type.startswith("c_") for op in rewritten.clone(for_test=True).global_block().ops):
        return "A clone for testing still exchanges. What sums gradients is part of the backward pass: Role.BACKWARD."
    return ""


QUESTIONS: dict[str, Callable[[StudentPass], str]] = {
    "each gradient is summed once": _summed,
    "clips see the sum": _before_clips,
    "ranks train like one": _alike,
    "the second time nothing changes": _again,
    "a clone for testing exchanges nothing": _for_test,
}
