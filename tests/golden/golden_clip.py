"""Recorded gradient clipping, and what counts as right.

tests/golden/clip holds what fluid 1.8.5, Paddle 3.3.1, TensorFlow 2.21.0 (1.15.5 for `clip_by_average_norm`), torch
2.13.0 and optax 0.2.8 returned, good or bad. `cases.json` names the arrays of each case by number; `arrays` there has
their dtypes and shapes; `arrays.npz` holds all elements of one dtype in a row, equal arrays once.

At the edges the originals err: squares overflow and underflow, zeros become NaN. `by_definition` says what the
documented formula gives, computed with 50 digits and unlimited exponents, and `check` applies this rule:

- What minigraph shares with fluid and Paddle is right where it agrees with the definition, for every finite gradient.
  A threshold that makes no sense is refused. A gradient that is not finite stays visible.
- What stands in for another system is right where it agrees with that system or with its definition. What that system
  refuses is refused; a threshold that makes no sense may be.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from functools import cache
from pathlib import Path
from typing import Any

import golden_arrays
import numpy as np
import pytest

from minigraph.errors import ClipError, MinigraphError

FOLDER = Path(__file__).parent / "clip"
OWN = ("paddle18", "paddle3")
TOLERANCES = {"float16": (2e-3, 1e-7), "float32": (3e-6, 2e-38), "float64": (1e-12, 1e-300)}
"""Relative and absolute, by the dtype of the gradient. The float32 results of some systems lose denormal numbers."""

Results = dict[str, np.ndarray | None]


@dataclass(frozen=True)
class Case:
    """A call of one system and what came of it.

    Attributes
    ----------
    function : str
        With its path, such as ``"tf.clip_by_norm"``.
    args : dict
        Arguments by name. One that is an array holds the name of an input, such as ``"in_01"``. ``not_clipped`` and
        ``need_clip`` say for which inputs the parameter asks for no clip.
    set : str
        What the inputs are about: ``"huge"``, ``"zeros"``, ``"threshold"``, ...
    inputs : tuple of array or None
        None where a parameter has no gradient. Those after the first `gradients` are parameters (optax only).
    results : dict
        ``out_00``, ``out_01``, ...: of the input with that number; ``out``, ``norm``, ``total_norm``, ...: of all.
    raises, message : str
        Exception type and the beginning of its message, where the call failed; else empty.
    """

    id: str
    system: str
    function: str
    args: dict[str, Any]
    set: str
    inputs: tuple[np.ndarray | None, ...]
    gradients: int
    results: Results = field(default_factory=dict)
    raises: str = ""
    message: str = ""

    @property
    def name(self) -> str:
        """The function's name without its path."""
        return self.function.rpartition(".")[2]

    @property
    def is_finite(self) -> bool:
        return all(np.isfinite(array).all() for array in self.inputs if array is not None)

    def clips(self, i: int) -> bool:
        """Whether the parameter of input `i` asks for clipping."""
        need_clip = self.args.get("need_clip")
        return i not in self.args.get("not_clipped", ()) if need_clip is None else need_clip[i]


def cases(system: str | None = None, function: str | None = None) -> list[Case]:
    """The recorded cases, of one system and one function (with or without its path) where given."""
    return [
        case for case in _all_cases() if system in (None, case.system) and function in (None, case.function, case.name)
    ]


@cache
def _all_cases() -> tuple[Case, ...]:
    recording = json.loads((FOLDER / "cases.json").read_text(encoding="utf-8"))
    arrays = golden_arrays.in_a_row(FOLDER, recording["arrays"])

    def array(number: int | None) -> np.ndarray | None:
        return None if number is None else arrays[number]

    made = []
    for fields in recording["cases"]:
        fields["args"] = {key: _number(value) for key, value in fields["args"].items()}
        fields["inputs"] = tuple(map(array, fields["inputs"]))
        fields["results"] = {key: array(number) for key, number in fields.get("results", {}).items()}
        made.append(Case(**{"gradients": len(fields["inputs"]), **fields}))
    return tuple(made)


def _number(value: Any) -> Any:
    """JSON has no infinity and no NaN; they are written as words."""
    return float(value) if value in ("inf", "-inf", "nan") else value


# Definitions. They compute with arrays of Decimals, which neither overflow nor underflow.


def by_definition(case: Case) -> Results | None:
    """What the documented formula gives, rounded to float64; None if there is none or an input is not finite."""
    definition = _DEFINITIONS.get(case.function)
    numbers = [value for value in case.args.values() if isinstance(value, float)]
    if definition is None or not case.is_finite or any(map(math.isnan, numbers)):
        return None
    with localcontext(Context(prec=50)):
        results = definition(case, [None if array is None else _exact(array) for array in case.inputs])
    return results and {name: None if x is None else np.array(x, np.float64) for name, x in results.items()}


def _exact(array: np.ndarray) -> np.ndarray:
    exact = np.empty(array.shape, object)
    exact[...] = np.frompyfunc(lambda x: Decimal(float(x)), 1, 1)(array)
    return exact


def norm(arrays: list[Any], order: float = 2.0) -> Decimal:
    """The norm of all elements together, ``sum(|x| ** order) ** (1 / order)``, of any order > 0."""
    magnitudes = [abs(x) for array in arrays for x in array.flat]
    if order == math.inf:
        return max(magnitudes, default=Decimal(0))
    if order == 2:
        return sum((x * x for x in magnitudes), Decimal(0)).sqrt()
    return sum((x ** Decimal(order) for x in magnitudes), Decimal(0)) ** (1 / Decimal(order))


def _factor(threshold: float, norms: Any) -> Any:
    """``threshold / max(norms, threshold)`` of a number or an array."""
    limit = Decimal(threshold)
    return np.frompyfunc(lambda n: limit / n if n > limit else Decimal(1), 1, 1)(norms)


def _outs(case: Case, exact: list[Any], clip: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    return {f"out_{i:02}": x if x is None or not case.clips(i) else clip(x) for i, x in enumerate(exact)}


def _by_value(case: Case, exact: list[Any]) -> dict[str, Any]:
    high = case.args["max"]
    low, high = Decimal(case.args.get("min", -high)), Decimal(high)
    return _outs(case, exact, lambda x: np.minimum(np.maximum(x, low), high))


def _by_norm(case: Case, exact: list[Any]) -> dict[str, Any]:
    return _outs(case, exact, lambda x: x * _factor(case.args["clip_norm"], norm([x])))


def _by_global_norm(case: Case, exact: list[Any]) -> dict[str, Any]:
    total = norm([x for i, x in enumerate(exact) if x is not None and case.clips(i)])
    return _outs(case, exact, lambda x: x * _factor(case.args["clip_norm"], total))


def _tf_by_norm(case: Case, exact: list[Any]) -> dict[str, Any]:
    (x,), axes = exact, case.args.get("axes")
    axes = tuple(axes) if isinstance(axes, list) else axes
    squares = np.sum(x * x, axis=axes, keepdims=True, initial=Decimal(0))
    return {"out": x * _factor(case.args["clip_norm"], np.frompyfunc(Decimal.sqrt, 1, 1)(squares))}


def _tf_by_average_norm(case: Case, exact: list[Any]) -> dict[str, Any]:
    (x,) = exact
    return {"out": x * _factor(case.args["clip_norm"] * x.size, norm([x]))}


def _tf_by_global_norm(case: Case, exact: list[Any]) -> dict[str, Any] | None:
    if "use_norm" in case.args or "rows" in case.args:
        return None
    total = norm([x for x in exact if x is not None])
    return {**_outs(case, exact, lambda x: x * _factor(case.args["clip_norm"], total)), "norm": total}


def _torch_norm(case: Case, exact: list[Any]) -> dict[str, Any] | None:
    if not case.args["norm_type"] > 0:
        return None
    total = norm([x for x in exact if x is not None], case.args["norm_type"])
    factor = min(Decimal(1), Decimal(case.args["max_norm"]) / (total + Decimal("1e-6")))
    return {**_outs(case, exact, lambda x: x * factor), "total_norm": total}


_DEFINITIONS: dict[str, Callable[[Case, list[Any]], dict[str, Any] | None]] = {
    "fluid.clip.GradientClipByValue": _by_value,
    "fluid.clip.GradientClipByNorm": _by_norm,
    "fluid.clip.GradientClipByGlobalNorm": _by_global_norm,
    "paddle.nn.ClipGradByValue": _by_value,
    "paddle.nn.ClipGradByNorm": _by_norm,
    "paddle.nn.ClipGradByGlobalNorm": _by_global_norm,
    "tf.clip_by_norm": _tf_by_norm,
    "tf.clip_by_average_norm": _tf_by_average_norm,
    "tf.clip_by_global_norm": _tf_by_global_norm,
    "tf.linalg.global_norm": lambda case, exact: {"norm": norm(exact)},
    "torch.nn.utils.clip_grad_norm_": _torch_norm,
}


# Comparison


def check(case: Case, run: Callable[[Case], Results]) -> None:
    """Raise unless what `run` makes of a case is right by the rule above.

    Parameters
    ----------
    run : callable
        Does on minigraph what the case says; returns arrays by the names they have in the recording.
    """
    if case.system in OWN:
        _check_own(case, run)
    else:
        _check_other(case, run)


def _check_own(case: Case, run: Callable[[Case], Results]) -> None:
    if _is_senseless(case):
        with pytest.raises(ClipError):
            run(case)
        return
    found = run(case)
    # Minimum and maximum give something definite for infinity and NaN too.
    expected = by_definition(case) or (case.results if case.name.endswith("ByValue") else None)
    if expected is not None:
        assert not differences(case, found, expected)
        return
    for i, array in enumerate(case.inputs):
        if array is not None and case.clips(i) and not np.isfinite(array).all():
            assert not np.isfinite(found[f"out_{i:02}"]).all(), "a gradient that is not finite became finite"


def _is_senseless(case: Case) -> bool:
    """Whether a strategy with these arguments is refused when it is made."""
    if "clip_norm" in case.args:
        return not 0 < case.args["clip_norm"] < math.inf
    return case.args.get("min", -case.args["max"]) > case.args["max"]


def _check_other(case: Case, run: Callable[[Case], Results]) -> None:
    if case.raises:
        with pytest.raises(MinigraphError):
            run(case)
        return
    try:
        found = run(case)
    except ClipError:
        assert case.set == "threshold"
        return
    wrong = differences(case, found, case.results)
    definition = by_definition(case)
    assert not wrong or (definition and not differences(case, found, definition)), wrong


def differences(case: Case, found: Results, expected: Results) -> list[str]:
    """What of `found` is not as expected, one line each."""
    lines = []
    for name, right in expected.items():
        got = found.get(name)
        i = int(name.removeprefix("out_")) if name.startswith("out_") else 0
        like = next((a for a in (*case.inputs[i : i + 1], *case.inputs) if a is not None), np.zeros((), np.float32))
        if got is None or right is None:
            if got is not right:
                lines.append(f"{name}: {got!r}, expected {right!r}")
        elif not is_close(got, right, like.dtype) or (name.startswith("out") and not is_like(got, like)):
            lines.append(
                f"{name}: {got.dtype}{list(got.shape)} {got.reshape(-1)[:4]}, expected {right.reshape(-1)[:4]}"
            )
    return lines


def is_like(found: np.ndarray, like: np.ndarray) -> bool:
    """Whether dtype and shape are those of the gradient."""
    return (found.dtype, found.shape) == (like.dtype, like.shape)


def is_close(found: np.ndarray, expected: np.ndarray, dtype: np.dtype) -> bool:
    """Whether the values agree as far as `dtype` goes; what exceeds its range is infinite there."""
    if found.size != expected.size:
        return False
    rtol, atol = TOLERANCES[dtype.name]
    found, expected = found.reshape(-1).astype(np.float64), expected.reshape(-1).astype(np.float64)
    with np.errstate(all="ignore"):
        in_range = np.where(np.abs(expected) > np.float64(np.finfo(dtype).max) * (1 + rtol), np.inf, np.abs(expected))
        expected = np.copysign(in_range, expected)
        near = np.abs(found - expected) <= rtol * np.abs(expected) + atol
    return bool((near & np.isfinite(expected) | (found == expected) | np.isnan(found) & np.isnan(expected)).all())
