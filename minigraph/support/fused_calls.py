"""Small straight-line programs as text: what an operator that stands for several does, one call a line.

A line reads ``t0 = elementwise_add(x0, x1, axis=1)``: results, the type of an operator, what its kernel takes in order
and the attributes that its kernel takes. ``x0``, ``x1``, ... are what the whole reads and ``y0``, ``y1``, ... what it
gives. A list of arrays is written ``[x0, x1]``, an input or result left out ``None`` or ``_``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from minigraph.errors import OpError

Argument: TypeAlias = "str | tuple[str, ...] | None"


@dataclass(frozen=True)
class FusedCall:
    """One line.

    Attributes
    ----------
    type : str
        Of the operator.
    inputs : tuple
        Names in the order of the kernel's parameters: a name, a tuple of names for a list, None for one left out.
    outputs : tuple of (str or None)
        Names in the order of the operator's output slots.
    attrs : dict
    """

    type: str
    inputs: tuple[Argument, ...]
    outputs: tuple[str | None, ...]
    attrs: Mapping[str, Any] = field(hash=False)

    @cached_property
    def reads(self) -> Sequence[str]:
        """Every name among the inputs."""
        names: list[str] = []
        for entry in self.inputs:
            names.extend(entry if isinstance(entry, tuple) else [entry] if entry is not None else [])
        return names

    @cached_property
    def writes(self) -> Sequence[str]:
        return [name for name in self.outputs if name is not None]

    def __str__(self) -> str:
        inputs = [f"[{', '.join(x)}]" if isinstance(x, tuple) else str(x) for x in self.inputs]
        attrs = [f"{name}={literal(value)}" for name, value in self.attrs.items()]
        results = ", ".join("_" if name is None else name for name in self.outputs)
        return f"{results} = {self.type}({', '.join([*inputs, *attrs])})"


def literal(value: Any) -> str:
    """An attribute as text that Python reads back."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "1e999" if value > 0 else "-1e999"  # which Python reads as infinity
    return repr(value)


@lru_cache(maxsize=1024)
def parse_calls(lines: tuple[str, ...]) -> tuple[FusedCall, ...]:
    """The calls that `lines` spell; printing them gives the lines again.

    Raises
    ------
    OpError
        If a line cannot be read.

    Examples
    --------
    >>> add, relu = parse_calls(("t0 = elementwise_add(x0, x1, axis=1)", "y0 = relu(t0)"))
    >>> add.type, add.reads, add.attrs, relu.writes
    ('elementwise_add', ['x0', 'x1'], {'axis': 1}, ['y0'])
    """
    return tuple(_parse(line) for line in lines)


def _parse(line: str) -> FusedCall:
    try:
        (statement,) = ast.parse(line).body
        if not isinstance(statement, ast.Assign):
            raise ValueError(line)
        (target,) = statement.targets
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        call = statement.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError(line)
        outputs = tuple(None if (name := _name(each)) == "_" else name for each in targets)
        attrs = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        return FusedCall(call.func.id, tuple(map(_argument, call.args)), outputs, attrs)
    except (SyntaxError, ValueError, TypeError):
        raise OpError(f"a step must read like 'y0 = relu(x0)', got {line!r:.80}") from None


def _argument(node: ast.expr) -> Argument:
    if isinstance(node, ast.List):
        return tuple(map(_name, node.elts))
    return None if isinstance(node, ast.Constant) and node.value is None else _name(node)


def _name(node: ast.expr) -> str:
    if not isinstance(node, ast.Name):
        raise ValueError(node)
    return node.id


def last_uses(calls: Sequence[FusedCall]) -> dict[str, int]:
    """Number of the last call that reads each name."""
    return {name: number for number, call in enumerate(calls) for name in call.reads}
