"""Lesson 9: the gradient of ``clip_by_norm``, checked by central differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minigraph.errors import LessonError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir import Program
from minigraph.lessons.cases import parsed
from minigraph.lessons.findings import Finding, asked
from minigraph.lessons.student_pass import Call

STEP = 1e-6
"""Step of the central differences, in float64."""


def clip_by_norm(x: Any, max_norm: float) -> Any:
    """The operator in NumPy: ``x * max_norm / max(|x|, max_norm)``."""
    return x * (max_norm / max(float(np.linalg.norm(x)), max_norm))


def central_differences(x: Any, d_out: Any, max_norm: float) -> Any:
    """The gradient with respect to `x` of ``sum(clip_by_norm(x) * d_out)``, by definition."""
    gradient = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = STEP
        change = clip_by_norm(x + step, max_norm) - clip_by_norm(x - step, max_norm)
        gradient[at] = np.sum(change * d_out) / (2 * STEP)
    return gradient


def judge(call: Call) -> Iterator[Finding]:
    """Compare with central differences for long, short, zero and random tensors."""

    def gradient(x: Any, d_out: Any, max_norm: float) -> Any:
        text = f"""
            block 0
              data x: float64[{", ".join(map(str, x.shape))}]
              data d_out: float64[{", ".join(map(str, x.shape))}]
        """
        made = call(
            "build", name="gradient", program=str(parsed(text)), inputs=["x", "d_out"], attrs={"max_norm": max_norm}
        )
        program = Program.parse(made["program"])
        (found,) = Interpreter().run(program, feed={"x": x, "d_out": d_out}, fetch_list=[made["result"]])
        if found.shape != x.shape:
            raise LessonError(f"The result has the shape {list(found.shape)}, and x has {list(x.shape)}.")
        return found

    return asked(QUESTIONS, gradient)


Gradient = Callable[[Any, Any, float], Any]
X, D_OUT = np.array([3.0, 4.0]), np.array([10.0, 5.0])


def _long(gradient: Gradient) -> str:
    found, right, scale = gradient(X, D_OUT, 2.0), central_differences(X, D_OUT, 2.0), 2.0 / 5.0
    if np.allclose(found, right, 1e-5):
        return ""
    along = X * (X @ D_OUT) / 25
    for slip, said in (
        (D_OUT * scale, "This takes the norm for a constant. It depends on x: differentiate it, too."),
        (D_OUT, "This is d_out itself. A long x is scaled, and so is its gradient."),
        ((D_OUT + along) * scale, "The part along x has the wrong sign: a longer x does not make the result longer."),
        (clip_by_norm(D_OUT, 2.0), "This clips d_out. The rule for a gradient is the derivative, not the operator."),
        (D_OUT - along, "The factor max_norm / norm is missing."),
        (scale * (1 - X * X.sum() / 25), "This does not read d_out: apply the chain rule."),
    ):
        if np.allclose(found, slip, 1e-5):
            return said
    return _different(found, right)


def _short(gradient: Gradient) -> str:
    found = gradient(X / 10, D_OUT, 2.0)
    if np.array_equal(found, D_OUT):
        return ""
    return f"x = (0.3, 0.4) is short, so d_out passes unchanged. {_different(found, D_OUT)}"


def _zero(gradient: Gradient) -> str:
    found = gradient(0 * X, D_OUT, 2.0)
    if np.isnan(found).any():
        return "For x = 0 the result is NaN: 0 / 0. Divide by max(norm, max_norm), which is never 0."
    return "" if np.array_equal(found, D_OUT) else _different(found, D_OUT)


def _matrix(gradient: Gradient) -> str:
    random = np.random.default_rng(0)
    x, d_out = random.normal(size=(2, 3)) * 3, random.normal(size=(2, 3))
    found, right = gradient(x, d_out, 2.0), central_differences(x, d_out, 2.0)
    return "" if np.allclose(found, right, 1e-5) else f"The norm is of the whole tensor. {_different(found, right)}"


def _limit(gradient: Gradient) -> str:
    found, right = gradient(X, D_OUT, 4.5), central_differences(X, D_OUT, 4.5)
    return "" if np.allclose(found, right, 1e-5) else f"Here max_norm is 4.5. {_different(found, right)}"


def _random(gradient: Gradient) -> str:
    for seed in range(10):
        random = np.random.default_rng(seed)
        x, d_out = random.normal(size=4), random.normal(size=4)
        found, right = gradient(x, d_out, 1.5), central_differences(x, d_out, 1.5)
        if not np.allclose(found, right, 1e-4, 1e-6):
            return f"Seed {seed}, norm of x {np.linalg.norm(x):.4g}, max_norm 1.5: {_different(found, right)}"
    return ""


def _different(found: Any, right: Any) -> str:
    return f"The result is {np.round(found, 4).tolist()} and not {np.round(right, 4).tolist()}."


QUESTIONS: dict[str, Callable[[Gradient], str]] = {
    "x = (3, 4), max_norm = 2: agrees with central differences": _long,
    "a short x: d_out passes bit for bit": _short,
    "x = 0: no NaN": _zero,
    "a matrix": _matrix,
    "another max_norm": _limit,
    "ten random tensors": _random,
}
