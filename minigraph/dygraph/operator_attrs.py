"""Fluid's private attributes of layers, by which scripts count operations or freeze statistics."""

from __future__ import annotations

from typing import Any


def operator_attr(key: str) -> property:
    """A property of a layer that is the attribute `key` of its operator: a value set to it counts in the next call."""

    def read(layer: Any) -> Any:
        return layer._attrs[key]

    def write(layer: Any, value: Any) -> None:
        layer._attrs[key] = value

    return property(read, write)
