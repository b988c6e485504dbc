"""Operators of the imperative mode by fluid's ``core.ops``, and the layers' helpers that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigraph.errors import WrongTypeError
from minigraph.layer_helper import LayerHelper, layer
from minigraph.opdef import definition_of

__all__: list[str] = []


class Ops:
    """Every operator as a function: tensors in the order of its input slots, then names and values of attributes.

    Examples
    --------
    >>> from minigraph import core, dygraph
    >>> import numpy as np
    >>> with dygraph.guard():
    ...     x = dygraph.to_variable(np.ones((2, 3), "float32"))
    ...     core.ops.elementwise_add(x, x, "axis", -1).numpy()
    array([[2., 2., 2.],
           [2., 2., 2.]], dtype=float32)
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        function = _function(name)
        self.__dict__[name] = function
        return function


def _function(type: str) -> Callable[..., Any]:
    definition = definition_of(type)
    slots = [slot.name for slot in sorted(definition.inputs, key=lambda slot: slot.dispensable)]

    def compute(*args: Any) -> Any:
        count = next((place for place, each in enumerate(args) if isinstance(each, str)), len(args))
        tensors, attrs = args[:count], args[count:]
        if len(attrs) % 2 or len(tensors) > len(slots):
            raise WrongTypeError(
                f"core.ops.{type} takes {', '.join(slots)}, then names and values of attributes, got {len(args)} values"
            )
        given = dict(zip(slots, tensors, strict=False)) | dict(zip(attrs[::2], attrs[1::2], strict=True))
        results = LayerHelper(type).emit_all(type, **given)
        return results[0] if len(results) == 1 else tuple(results)

    compute.__name__ = compute.__qualname__ = type
    compute.__doc__ = definition.doc
    return layer(compute)


ops = Ops()


def append_activation(
    input: Any, act: str | None = None, use_cudnn: bool | None = None, use_mkldnn: bool | None = None
) -> Any:
    """The operator named `act` of a tensor; the tensor itself if it is None."""
    return input if act is None else getattr(ops, act)(input)


def append_bias(input: Any, bias: Any = None, axis: int = 1) -> Any:
    """The sum of a tensor and a bias over its dimensions from `axis` on."""
    return input if bias is None else ops.elementwise_add(input, bias, "axis", axis)
