"""Models as objects: layers that hold parameters and sublayers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from minigraph import layers
from minigraph.dygraph.base import imperative
from minigraph.dygraph.tensor import EagerParameter
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, caller_site, suggest
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper
from minigraph.types import as_dtype
from minigraph.unique_name import generate


class Layer:
    """Base of models. Parameters and layers set as attributes are found by `parameters` and `sublayers`.

    Parameters
    ----------
    name_scope : str, optional
        What names of parameters begin with. Default: the class name.
    dtype : str
        Default element type of parameters.
    """

    def __init__(self, name_scope: str | None = None, dtype: Any = "float32") -> None:
        object.__setattr__(self, "_parameters", {})
        object.__setattr__(self, "_sublayers", {})
        self.training = True
        self._full_name = generate(name_scope or _snake_case(type(self).__name__))
        self._helper = LayerHelper(self._full_name, self._full_name)
        self._dtype = as_dtype(dtype)
        self._pre_hooks: dict[int, Callable[..., Any]] = {}
        self._post_hooks: dict[int, Callable[..., Any]] = {}

    def full_name(self) -> str:
        """The layer's own name, such as ``linear_0``."""
        return self._full_name

    # Parameters and sublayers

    def __setattr__(self, name: str, value: Any) -> None:
        if "_parameters" not in self.__dict__:
            raise ProgramError(
                f"{type(self).__name__}.{name} is set before the layer is one", site=caller_site(),
                hint="Call super().__init__() first.",
            )  # fmt: skip
        self._parameters.pop(name, None)
        self._sublayers.pop(name, None)
        if isinstance(value, EagerParameter):
            self.__dict__.pop(name, None)
            self._parameters[name] = value
        elif isinstance(value, Layer):
            self.__dict__.pop(name, None)
            self._sublayers[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for members in (self.__dict__.get("_parameters", {}), self.__dict__.get("_sublayers", {})):
            if name in members:
                return members[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for members in (self._parameters, self._sublayers):
            if name in members:
                del members[name]
                return
        object.__delattr__(self, name)

    def create_parameter(
        self, shape: Any, attr: Any = None, dtype: Any = None, is_bias: bool = False, default_initializer: Any = None
    ) -> Any:
        """A parameter named after the layer; None when `attr` is False. Set it as an attribute to register it."""
        with imperative():
            return self._helper.parameter(attr, shape, dtype or self._dtype, is_bias, default_initializer)

    def add_parameter(self, name: str, parameter: EagerParameter | None) -> EagerParameter | None:
        """Register a parameter under a name."""
        if parameter is not None and not isinstance(parameter, EagerParameter):
            raise WrongTypeError(f"{name} must be a parameter, got {parameter!r:.60}", site=caller_site())
        setattr(self, name, parameter)
        return parameter

    def add_sublayer(self, name: str, sublayer: Layer) -> Layer:
        """Register a layer under a name."""
        if not isinstance(sublayer, Layer):
            raise WrongTypeError(f"{name} must be a Layer, got {sublayer!r:.60}", site=caller_site())
        setattr(self, name, sublayer)
        return sublayer

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, EagerParameter]]:
        """Dotted names and parameters, each parameter once."""
        seen: set[int] = set()
        for layer_name, layer in self.named_sublayers(prefix, include_self=True):
            for name, param in layer._parameters.items():
                if id(param) not in seen:
                    seen.add(id(param))
                    yield f"{layer_name}.{name}" if layer_name else name, param

    def parameters(self, include_sublayers: bool = True) -> list[EagerParameter]:
        """The parameters of the layer and, unless told otherwise, of its sublayers."""
        if not include_sublayers:
            return list(self._parameters.values())
        return [param for _, param in self.named_parameters()]

    def named_sublayers(self, prefix: str = "", include_self: bool = False) -> Iterator[tuple[str, Layer]]:
        """Dotted names and layers, depth first."""
        if include_self:
            yield prefix, self
        for name, layer in self._sublayers.items():
            yield from layer.named_sublayers(f"{prefix}.{name}" if prefix else name, include_self=True)

    def sublayers(self, include_sublayers: bool = True) -> list[Layer]:
        """The layers below this one, or only those directly below."""
        if not include_sublayers:
            return list(self._sublayers.values())
        return [layer for _, layer in self.named_sublayers()]

    # Modes, gradients, state

    def train(self) -> None:
        """Behave as in training."""
        for _, layer in self.named_sublayers(include_self=True):
            layer.training = True

    def eval(self) -> None:
        """Behave as in a test: dropout keeps everything."""
        for _, layer in self.named_sublayers(include_self=True):
            layer.training = False

    def clear_gradients(self) -> None:
        """Set the gradients of all parameters to zero."""
        for param in self.parameters():
            param.clear_gradient()

    def state_dict(self, prefix: str = "") -> dict[str, EagerParameter]:
        """Dotted names to parameters."""
        return dict(self.named_parameters(prefix))

    def set_dict(
        self, state: Mapping[str, Any], include_sublayers: bool = True, use_structured_name: bool = True
    ) -> None:
        """Set every parameter to the value that `state` has for its dotted name (or its own, if not structured).

        Raises
        ------
        NotFoundError
            If a name is missing.
        ProgramError
            If a shape or dtype differs. Nothing is changed then.
        """
        wanted = {name if use_structured_name else p.name: p for name, p in self.named_parameters()}
        arrays = {}
        for name, param in wanted.items():
            if name not in state:
                raise NotFoundError(f"the state has no {name!r}", site=caller_site(), hint=suggest(name, state))
            arrays[name] = np.asarray(state[name])
            if arrays[name].shape != param.shape or arrays[name].dtype != param.dtype.numpy:
                raise ProgramError(
                    f"{name} is {param.tensor_type}, the state has {arrays[name].dtype}{list(arrays[name].shape)}",
                    site=caller_site(),
                )
        for name, param in wanted.items():
            param.set_value(arrays[name])

    load_dict = set_dict
    set_state_dict = set_dict

    # Calling

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Callable[[], None]:
        """Call ``hook(layer, inputs)`` before `forward`; what it returns, if anything, replaces the inputs.

        Returns a function that takes the hook away.
        """
        return _register(self._pre_hooks, hook)

    def register_forward_post_hook(self, hook: Callable[..., Any]) -> Callable[[], None]:
        """Call ``hook(layer, inputs, outputs)`` after `forward`; what it returns, if anything, replaces the outputs.

        Returns a function that takes the hook away.
        """
        return _register(self._post_hooks, hook)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the layer computes."""
        raise WrongTypeError(f"{type(self).__name__} does not define forward", site=caller_site())

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        with imperative():
            for hook in list(self._pre_hooks.values()):
                replaced = hook(self, inputs)
                if replaced is not None:
                    inputs = replaced if isinstance(replaced, tuple) else (replaced,)
            outputs = self.forward(*inputs, **kwargs)
            for hook in list(self._post_hooks.values()):
                replaced = hook(self, inputs, outputs)
                if replaced is not None:
                    outputs = replaced
        return outputs


def _register(hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> Callable[[], None]:
    key = max(hooks, default=-1) + 1
    hooks[key] = hook
    return lambda: hooks.pop(key, None) and None


def _snake_case(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


class Linear(Layer):
    """``act(x @ weight + bias)`` over the last dimension.

    Parameters
    ----------
    input_dim, output_dim : int
    param_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
    act : str, optional
        Operator applied to the result.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__("linear", dtype)
        self._act = act
        self.weight = self.create_parameter([input_dim, output_dim], param_attr)
        self.bias = self.create_parameter([output_dim], bias_attr, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        helper = LayerHelper("linear")
        result = layers.matmul(input, self.weight)
        if self.bias is not None:
            assert result.shape is not None
            result = layers.elementwise_add(result, self.bias, axis=len(result.shape) - 1)
        return helper.activation(result, self._act)


class Dropout(Layer):
    """Zero each element with probability `p` in training; see `minigraph.layers.dropout`."""

    def __init__(
        self,
        p: float = 0.5,
        seed: int | None = None,
        dropout_implementation: str = "downgrade_in_infer",
        is_test: bool = False,
    ) -> None:
        super().__init__("dropout")
        self._p, self._seed, self._implementation, self._is_test = p, seed, dropout_implementation, is_test

    def forward(self, input: Variable) -> Variable:
        is_test = self._is_test or not self.training
        return layers.dropout(
            input, self._p, is_test=is_test, seed=self._seed, dropout_implementation=self._implementation
        )


class Sequential(Layer):
    """Layers called one after the other; given as layers, or as (name, layer) pairs."""

    def __init__(self, *sublayers: Any) -> None:
        super().__init__("sequential")
        for i, item in enumerate(sublayers):
            name, layer = item if isinstance(item, tuple | list) else (str(i), item)
            self.add_sublayer(str(name), layer)

    def __getitem__(self, name: int | str) -> Layer:
        return list(self._sublayers.values())[name] if isinstance(name, int) else self._sublayers[name]

    def __len__(self) -> int:
        return len(self._sublayers)

    def forward(self, input: Any) -> Any:
        for layer in self._sublayers.values():
            input = layer(input)
        return input


class LayerList(Layer):
    """A list of layers."""

    def __init__(self, sublayers: Any = None) -> None:
        super().__init__("layer_list")
        for layer in sublayers or ():
            self.append(layer)

    def __getitem__(self, index: int) -> Layer:
        found: Layer = list(self._sublayers.values())[index]
        return found

    def __len__(self) -> int:
        return len(self._sublayers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._sublayers.values())

    def append(self, sublayer: Layer) -> LayerList:
        """Add a layer at the end."""
        self.add_sublayer(str(len(self)), sublayer)
        return self


class ParameterList(Layer):
    """A list of parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__("parameter_list")
        for param in parameters or ():
            self.append(param)

    def __getitem__(self, index: int) -> EagerParameter:
        found: EagerParameter = list(self._parameters.values())[index]
        return found

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[EagerParameter]:
        return iter(self._parameters.values())

    def append(self, parameter: EagerParameter) -> ParameterList:
        """Add a parameter at the end."""
        self.add_parameter(str(len(self)), parameter)
        return self
