"""``FLAGS_check_nan_inf``: operators run one by one, and the first result that is NaN or infinite is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from minigraph.errors import ExecutionError
from minigraph.executor.interpreter import Interpreter
from minigraph.executor.nonfinite_origin import is_finite
from minigraph.ir import Operator
from minigraph.runtime.place import Place

is_on = False
"""Whether runs and the imperative mode check; `minigraph.framework.set_flags` changes it."""


class CheckingInterpreter(Interpreter):
    """An interpreter that refuses results that are not finite, and then changes nothing."""

    def _results(self, op: Operator, read: Callable[[str], Any]) -> dict[str, Any]:
        results = super()._results(op, read)
        check(op, results.items(), self.place)
        return results


def check(op: Operator, results: Iterable[tuple[str, Any]], place: Place) -> None:
    """Raise an `ExecutionError` for a result of `op`, an array by name, that has an element that is not finite."""
    for name, value in results:
        if hasattr(value, "dtype") and not is_finite(value, place):
            raise ExecutionError(
                f"{op.type} gives {name} NaN or infinite elements",
                hint="Look at what it reads, or call set_flags({'FLAGS_check_nan_inf': False}) to go on.",
            )  # fmt: skip
