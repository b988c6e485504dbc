"""Layers that hold other layers, or parameters, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from minigraph.dygraph.layer import Layer
from minigraph.errors import NotFoundError, SubscriptError, WrongTypeError, caller_site, suggest
from minigraph.ir import Parameter
from minigraph.support.arguments import INTEGERS
from minigraph.support.public import public, public_but


def _place(index: int, count: int, what: str) -> str:
    """The name under which the member at `index` is kept, counted from the end if negative."""
    if not isinstance(index, INTEGERS):
        raise WrongTypeError(f"an index of a {what} must be an integer, got {index!r:.60}")
    if not -count <= index < count:
        raise SubscriptError(
            f"{what} has {count} members, there is no number {index!r:.60}",
            hint=f"Give a number from {-count} to {count - 1}.",
        )  # fmt: skip
    return str(index % count)


class _Layers(Layer):
    """Base of what holds layers in order."""

    def __len__(self) -> int:
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._sub_layers.values())


@public_but("forward")
class Sequential(_Layers):
    """Layers called one after the other; given as layers, or as (name, layer) pairs.

    Members are found by name; layers given without one are called "0", "1" and so on, and a number finds any of them.

    Examples
    --------
    >>> from minigraph import dygraph
    >>> model = Sequential(dygraph.Linear(4, 3), dygraph.Linear(3, 2))
    >>> len(model), model[1] is model["1"]
    (2, True)
    """

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        for i, item in enumerate(layers):
            name, layer = item if isinstance(item, tuple | list) else (str(i), item)
            self.add_sublayer(str(name), layer)

    def _name(self, name: int | str) -> str:
        names = list(self._sub_layers)
        # A layer that is called "1" wins over the one at place 1.
        if isinstance(name, INTEGERS) and str(name) not in names:
            return names[int(_place(name, len(names), "Sequential"))]
        if str(name) not in names:
            raise NotFoundError(f"there is no layer {name!r}", site=caller_site(), hint=suggest(str(name), names))
        return str(name)

    def __getitem__(self, name: int | str) -> Layer:
        found: Layer = self._sub_layers[self._name(name)]
        return found

    def __setitem__(self, name: int | str, layer: Layer) -> None:
        self.add_sublayer(str(name), layer)

    def __delitem__(self, name: int | str) -> None:
        del self._sub_layers[self._name(name)]

    def forward(self, input: Any) -> Any:
        for layer in self:
            input = layer(input)
        return input


@public
class LayerList(_Layers):
    """A list of layers."""

    def __init__(self, sublayers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        self.extend(sublayers or ())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._sub_layers[_place(index, len(self), "LayerList")]

    def __setitem__(self, index: int, sublayer: Layer) -> None:
        self.add_sublayer(_place(index, len(self), "LayerList"), sublayer)

    # Members are found by their place, so those after a deleted one are named anew.
    def __delitem__(self, index: int | slice) -> None:
        layers = list(self)
        del layers[index if isinstance(index, slice) else int(_place(index, len(self), "LayerList"))]
        self._replace(layers)

    def _replace(self, layers: list[Layer]) -> None:
        self._sub_layers.clear()
        self.extend(layers)

    def append(self, sublayer: Layer) -> LayerList:
        """Add a layer at the end."""
        self.add_sublayer(str(len(self)), sublayer)
        return self

    def insert(self, index: int, sublayer: Layer) -> None:
        """Put a layer before the one at `index`."""
        if not isinstance(sublayer, Layer):
            raise WrongTypeError(f"a LayerList holds layers, got {sublayer!r:.60}")
        layers = list(self)
        layers.insert(index, sublayer)
        self._replace(layers)

    def extend(self, sublayers: Iterable[Layer]) -> LayerList:
        """Add layers at the end."""
        for layer in sublayers:
            self.append(layer)
        return self


@public
class ParameterList(Layer):
    """A list of parameters."""

    def __init__(self, parameters: Iterable[Parameter] | None = None) -> None:
        super().__init__()
        for param in parameters or ():
            self.append(param)

    def __getitem__(self, index: int) -> Parameter:
        found: Parameter = self._parameters[_place(index, len(self), "ParameterList")]
        return found

    def __setitem__(self, index: int, parameter: Parameter) -> None:
        self.add_parameter(_place(index, len(self), "ParameterList"), parameter)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters.values())

    def append(self, parameter: Parameter) -> ParameterList:
        """Add a parameter at the end."""
        self.add_parameter(str(len(self)), parameter)
        return self
