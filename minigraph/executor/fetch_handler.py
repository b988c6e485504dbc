"""Report the values of variables at intervals while ``Executor.train_from_dataset`` runs."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from minigraph.errors import WrongTypeError
from minigraph.runtime.scope import Scope
from minigraph.support.arguments import number
from minigraph.support.public import public


@public
class FetchHandler:
    """Base of handlers: `handler` is given the values of variables every `period_secs` seconds, and at the end.

    Parameters
    ----------
    var_dict : dict
        Persistable variables by the names that `handler` knows them by.
    period_secs : float

    Examples
    --------
    >>> class Show(FetchHandler):
    ...     def handler(self, res_dict):
    ...         print(res_dict["auc"])
    """

    def __init__(self, var_dict: dict[str, Any] | None = None, period_secs: float = 60) -> None:
        if var_dict is None:
            raise WrongTypeError("var_dict is missing", hint="Give it the variables to look at: {'auc': auc}.")
        self.var_dict = var_dict
        self.period_secs = number(period_secs, "period_secs", at_least=0)

    def handler(self, res_dict: dict[str, Any]) -> None:
        """Print the first element of each value; a variable without a value in the scope is None."""
        for name, value in res_dict.items():
            if isinstance(value, np.ndarray):
                sys.stdout.write(f"{name}[0]: {value[0]} ")
        sys.stdout.write("\n")

    @staticmethod
    def help() -> None:
        """Print how a handler is written."""
        print(FetchHandler.__doc__)


class Watch:
    """The calls of a handler during one training: `look` after each batch, `end` behind the last."""

    def __init__(self, handler: Any, scope: Scope) -> None:
        self._handler, self._scope = handler, scope
        self._last = time.monotonic()

    def look(self) -> None:
        if self._handler is not None and time.monotonic() - self._last >= self._handler.period_secs:
            self.end()

    def end(self) -> None:
        """Give the handler the values as they are."""
        if self._handler is None:
            return
        self._last = time.monotonic()
        self._handler.handler({name: self._value(var) for name, var in self._handler.var_dict.items()})

    def _value(self, var: Any) -> Any:
        found = self._scope.find_var(getattr(var, "name", var))
        tensor = None if found is None else found.get_tensor()
        return None if tensor is None or not tensor._is_initialized() else np.array(tensor)
