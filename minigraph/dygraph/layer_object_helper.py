"""The `LayerHelper` of the layers of the imperative mode, whose methods take values in place of names of arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minigraph.errors import WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable
from minigraph.param_attr import ParamAttr
from minigraph.types import DType

__all__ = ["LayerObjectHelper"]


class LayerObjectHelper(LayerHelper):
    """Helper of a `Layer`, as ``self._helper``; a user's layer creates parameters and operators with it.

    Parameters
    ----------
    name : str
        Name of the layer, from which the names of its parameters are made.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, name)

    def iter_inputs_and_params(
        self, inputs_in: Any = None, param_attr_in: Any = None
    ) -> Iterator[tuple[Variable, ParamAttr | None]]:
        """Each of several variables with the attributes of its parameter: those of all, or its own."""
        return self._pairs(_listed(inputs_in), param_attr_in, "inputs")

    def input_dtype(self, inputs_in: Any = None) -> DType:
        """The dtype that all these variables have."""
        return self._common_dtype(_listed(inputs_in), "the inputs")

    def append_activation(
        self, input_var: Variable, act: str | None = None, use_cudnn: Any = None, use_mkl_dnn: Any = None
    ) -> Variable:
        """The activation named `act` of `input_var`; the last two say how fluid computes it."""
        return self.activation(input_var, act)

    def is_instance(self, param: Any, cls: type) -> None:  # a value, where `LayerHelper` takes the name of an argument
        """Raise unless `param` is a `cls`."""
        if not isinstance(param, cls):
            raise WrongTypeError(f"{self.layer_type} takes a {cls.__name__}, got {param!r:.60}")


def _listed(given: Any) -> list[Variable]:
    found = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    return [check_variable(each, "an input of the layer") for each in found]
