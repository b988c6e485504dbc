"""Fluid's descriptions, which public scripts query: ``var.desc.type()``, ``program.desc.serialize_to_string()``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Description:
    """The properties of a variable, an operator, a block or a program, as methods."""

    def __init__(self, described: Any) -> None:
        self._described = described

    def set_shape(self, shape: Sequence[int]) -> None:
        """Declare another shape of a variable, as scripts do that cut channels off."""
        var = self._described
        var.tensor_type = var.tensor_type.with_shape(tuple(shape))
        var.block.program.version += 1

    def infer_shape(self, block: Description) -> None:
        """Infer the results of an operator again, after its inputs got other shapes."""
        op = self._described
        op.block.infer(op)
        op.block.program.version += 1

    def flush(self) -> None:
        """Do nothing: a description is the thing that it describes."""

    _set_version = check_attrs = flush

    def set_is_target(self, is_target: bool) -> None:
        """Do nothing: `Program._prune` is told what to keep."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_described":
            raise AttributeError(name)  # asked of copies that are not filled in yet
        value = getattr(self._described, name)
        return value if callable(value) else lambda: list(value) if isinstance(value, tuple) else value
