"""Models as objects: a layer holds parameters, buffers and further layers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np

from minigraph.dygraph.in_programs import has_variables, parameter_in_program, writes_program, writing
from minigraph.dygraph.layer_object_helper import LayerObjectHelper
from minigraph.eager.guard import eager_block, imperative
from minigraph.eager.tape import recording
from minigraph.eager.tensor import Eager, EagerParameter, Tensor
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, caller_site, suggest
from minigraph.initializer import Initializer
from minigraph.ir import Parameter, Variable
from minigraph.ir.default_programs import default_main_program, is_imperative
from minigraph.support.context import holding
from minigraph.support.interrupts import deferred
from minigraph.support.public import public_but
from minigraph.types import VarKind, as_dtype
from minigraph.unique_name import generate

_OUTERMOST: ContextVar[bool] = ContextVar("outermost", default=True)
"""Whether no layer is being called."""
_KINDS = ("_parameters", "_sub_layers", "_buffers")


@public_but("forward")
class Layer:
    """Base of models. Parameters and layers set as attributes are found by `parameters` and `sublayers`.

    Parameters
    ----------
    name_scope : str, optional
        Prefix of the names of parameters. Default: the class name, such as ``my_layer``.
    dtype : str
        Default element type of parameters.

    Attributes
    ----------
    training : bool
        Set by `train` and `eval`.

    Notes
    -----
    Inside `minigraph.dygraph.guard`, what a layer in `eval` mode computes is not remembered for ``backward``, unless it
    is part of one in training mode. So it is in fluid, where `eval` ends this for everything that follows.

    Examples
    --------
    >>> from minigraph import dygraph
    >>> class Twice(Layer):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = dygraph.Linear(2, 2)
    ...
    ...     def forward(self, x):
    ...         return self.linear(self.linear(x))
    >>> [name for name, _ in Twice().named_parameters()]
    ['linear.weight', 'linear.bias']
    """

    training: bool

    def __init__(self, name_scope: str | None = None, dtype: Any = "float32") -> None:
        # `__setattr__` looks for these, so they are set past it.
        for members in _KINDS:
            object.__setattr__(self, members, {})
        self.training = True
        self._full_name = generate(name_scope or _snake_case(type(self).__name__))
        self._helper = LayerObjectHelper(self._full_name)
        self._built = False
        self._dtype = as_dtype(dtype)
        self._passing_buffers: set[str] = set()
        self._forward_pre_hooks: dict[Hook, Callable[..., Any]] = {}
        self._forward_post_hooks: dict[Hook, Callable[..., Any]] = {}

    def full_name(self) -> str:
        """The layer's own name, such as ``linear_0``."""
        return self._full_name

    # Members

    def _members(self) -> tuple[dict[str, Any], ...]:
        found = self.__dict__
        return tuple([found[kind] for kind in _KINDS if kind in found])

    def __setattr__(self, name: str, value: Any) -> None:
        if not self._members():
            raise ProgramError(
                f"{type(self).__name__}.{name} is set before the layer is one",
                hint="Call super().__init__() first.",
            )  # fmt: skip
        if isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        home = self._home(name, value)
        # A name is a member of one kind: a parameter that is replaced by None or by a number is a parameter no more.
        for place in (*self._members(), self.__dict__):
            if place is not home:
                place.pop(name, None)
        if home is None and not isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        elif home is not None:
            home[name] = value

    def _home(self, name: str, value: Any) -> dict[str, Any] | None:
        """Among which members an attribute of this value belongs; None for a plain one."""
        if isinstance(value, Parameter):
            return self.__dict__["_parameters"]
        if isinstance(value, Layer):
            return self.__dict__["_sub_layers"]
        for members, kind in zip(self._members(), ("parameter", "Layer", "Tensor"), strict=True):
            if name in members:
                if value is not None and not (kind == "Tensor" and isinstance(value, Tensor)):
                    raise WrongTypeError(
                        f"{type(self).__name__}.{name} is a {kind}, it cannot be set to {value!r:.60}",
                        hint=f"Set it to another {kind} or None, or delete it first.",
                    )
                return members
        return None

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__
        for kind in _KINDS:
            members = found.get(kind)
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for members in self._members():
            if name in members:
                del members[name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for members in self._members() for name in members)})

    def create_parameter(
        self,
        shape: Any,
        attr: Any = None,
        dtype: Any = "float32",
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
    ) -> Any:
        """A parameter named after the layer; None when `attr` is False. Set it as an attribute to register it.

        A `dtype` of None is that of the layer.
        """
        with nullcontext() if writes_program() else imperative():
            return self._helper.parameter(attr, shape, dtype or self._dtype, is_bias, default_initializer)

    def _required(self, shape: Any, attr: Any, is_bias: bool = False, start: Initializer | None = None) -> Any:
        """`create_parameter`, which `attr` may not turn off."""
        options: dict[str, Any] = {"what": type(self).__name__, "is_bias": is_bias, "default_initializer": start}
        with nullcontext() if writes_program() else imperative():
            return self._helper.required(attr, shape, self._dtype, **options)

    def create_variable(
        self,
        name: str | None = None,
        persistable: bool | None = None,
        dtype: Any = None,
        type: Any = VarKind.LOD_TENSOR,
    ) -> Variable:
        """A tensor without a value yet, for an operator to write to; `type` says whether it is an array of tensors."""
        full = f"{self._full_name}.{name}" if name else generate(f"{self._full_name}._generated_var")
        block = default_main_program().current_block() if writes_program() else eager_block()
        return block.create_var(name=full, persistable=bool(persistable), dtype=dtype or self._dtype, type=type)

    def add_parameter(self, name: str, parameter: Parameter | None) -> Parameter | None:
        """Register a parameter under a name."""
        if parameter is not None and not isinstance(parameter, Parameter):
            raise WrongTypeError(f"{name} must be a parameter or None, got {parameter!r:.60}")
        self._parameters[name] = parameter
        return parameter

    def add_sublayer(self, name: str, sublayer: Layer) -> Layer:
        """Register a layer under a name."""
        if not isinstance(sublayer, Layer):
            raise WrongTypeError(f"{name} must be a Layer, got {sublayer!r:.60}")
        self._sub_layers[name] = sublayer
        return sublayer

    def register_buffer(self, name: str, tensor: Tensor | None, persistable: bool = True) -> None:
        """Register a tensor that is no parameter but belongs to the layer.

        Parameters
        ----------
        persistable : bool
            Whether `state_dict` holds it.
        """
        if tensor is not None and not isinstance(tensor, Tensor):
            raise WrongTypeError(f"buffer {name} must be a Tensor, got {tensor!r:.60}")
        # A buffer in the place of a parameter would take it away from the optimizer.
        if name in self.__dict__ or any(name in m for m in self._members() if m is not self._buffers):
            raise ProgramError(f"{type(self).__name__} has an attribute {name} already")
        (self._passing_buffers.discard if persistable else self._passing_buffers.add)(name)
        self._buffers[name] = tensor

    # Walking

    def named_sublayers(
        self,
        prefix: str = "",
        include_sublayers: bool = True,
        include_self: bool = False,
        layers_set: set[Any] | None = None,
    ) -> Iterator[tuple[str, Layer]]:
        """Dotted names and layers, depth first, each layer once; those in `layers_set` are left out."""
        seen = set() if layers_set is None else layers_set
        if include_self and self not in seen:
            seen.add(self)
            yield prefix, self
        if not include_sublayers:
            return
        for name, layer in self._sub_layers.items():
            if layer is not None:
                yield from layer.named_sublayers(_dotted(prefix, name), True, True, seen)

    def sublayers(self, include_sublayers: bool = True) -> list[Layer]:
        """The layers below this one; none unless `include_sublayers`."""
        return [layer for _, layer in self.named_sublayers(include_sublayers=include_sublayers)]

    def named_children(self) -> Iterator[tuple[str, Layer]]:
        """Names and layers directly below this one."""
        return ((name, layer) for name, layer in self._sub_layers.items() if layer is not None)

    def children(self) -> Iterator[Layer]:
        """The layers directly below this one."""
        return (layer for _, layer in self.named_children())

    def named_parameters(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Dotted names and parameters, each parameter once."""
        yield from self._named("_parameters", prefix, include_sublayers)

    def parameters(self, include_sublayers: bool = True) -> list[Parameter]:
        """The parameters of the layer and, unless told otherwise, of its sublayers."""
        return [param for _, param in self.named_parameters(include_sublayers=include_sublayers)]

    def named_buffers(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Dotted names and buffers, each buffer once."""
        yield from self._named("_buffers", prefix, include_sublayers)

    def buffers(self, include_sublayers: bool = True) -> list[Tensor]:
        """The buffers of the layer and, unless told otherwise, of its sublayers."""
        return [tensor for _, tensor in self.named_buffers(include_sublayers=include_sublayers)]

    def _named(self, kind: str, prefix: str, include_sublayers: bool) -> Iterator[tuple[str, Any]]:
        # Layers may share a parameter, which an optimizer must update once.
        seen: set[int] = set()
        for layer_name, layer in self.named_sublayers(prefix, include_sublayers, include_self=True):
            for name, tensor in layer.__dict__[kind].items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield _dotted(layer_name, name), tensor

    def apply(self, fn: Callable[[Layer], Any]) -> Layer:
        """Call `fn` with each layer, this one last."""
        for layer in self.children():
            layer.apply(fn)
        fn(self)
        return self

    # Modes, gradients, state

    def train(self) -> None:
        """Behave as in training, sublayers too."""
        self._set_mode(True)

    def eval(self) -> None:
        """Behave as in a test, sublayers too: dropout drops nothing, normalization uses what it has learned."""
        self._set_mode(False)

    def _set_mode(self, training: bool) -> None:
        for _, layer in self.named_sublayers(include_self=True):
            layer.training = training

    def clear_gradients(self) -> None:
        """Set the gradients of all parameters to zero."""
        for param in self.parameters():
            param.clear_gradient()

    def state_dict(
        self,
        destination: dict[str, Any] | None = None,
        include_sublayers: bool = True,
        structured_name_prefix: str = "",
    ) -> dict[str, Any]:
        """Dotted names to parameters and persistable buffers: the live tensors, not copies.

        Parameters
        ----------
        destination : dict, optional
            Gets the entries. Default: a new dictionary.
        structured_name_prefix : str
            What every name begins with, as it stands.
        """
        found = {} if destination is None else destination
        for name, tensor in {**self._parameters, **self._buffers}.items():
            if tensor is not None and name not in self._passing_buffers:
                found[structured_name_prefix + name] = tensor
        if include_sublayers:
            for name, layer in self.named_children():
                layer.state_dict(found, True, f"{structured_name_prefix}{name}.")
        return found

    def set_dict(
        self, stat_dict: Mapping[str, Any], include_sublayers: bool = True, use_structured_name: bool = True
    ) -> None:
        """Set every parameter and persistable buffer to the value that `stat_dict` has for it.

        Parameters
        ----------
        stat_dict : mapping
            Names to arrays or tensors. What belongs to nothing here is warned about.
        use_structured_name : bool
            Whether its names are dotted, as in `state_dict`, or those of the parameters themselves.

        Raises
        ------
        NotFoundError
            If a name is missing. Nothing is changed then.
        ProgramError
            If a shape or dtype differs. Nothing is changed then.
        """
        state = self.state_dict(include_sublayers=include_sublayers)
        wanted = {name if use_structured_name else tensor.name: tensor for name, tensor in state.items()}
        # All entries are checked before the first one is set.
        arrays = {name: _fitting(name, tensor, stat_dict) for name, tensor in wanted.items()}
        unused = [name for name in stat_dict if name not in wanted]
        if unused:
            warnings.warn(f"the layer has nothing for {', '.join(map(str, unused))}", stacklevel=2)
        # Ctrl-C waits, so that no layer is left half old and half new.
        with deferred():
            for name, tensor in wanted.items():
                tensor.set_value(arrays[name])

    load_dict = set_dict
    set_state_dict = set_dict

    # Calling

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Hook:
        """Call ``hook(layer, inputs)`` before `forward`; what it returns, if anything, replaces the inputs.

        Returns
        -------
        Hook
            ``remove()`` takes it away.
        """
        return Hook(self._forward_pre_hooks, hook)

    def register_forward_post_hook(self, hook: Callable[..., Any]) -> Hook:
        """Call ``hook(layer, inputs, outputs)`` after `forward`; what it returns, if anything, replaces the outputs.

        Returns
        -------
        Hook
            ``remove()`` takes it away.
        """
        return Hook(self._forward_post_hooks, hook)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Compute the results of the layer."""
        raise WrongTypeError(f"{type(self).__name__} does not define forward")

    def _build_once(self, *inputs: Any, **kwargs: Any) -> None:
        """Create what depends on the first inputs; a user's layer may define it."""

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        outermost = _OUTERMOST.get()
        if not outermost and is_imperative():  # a part of another layer, which has done what follows
            return self._called(inputs, kwargs)
        if not is_imperative() and (writes_program() or has_variables((*inputs, *kwargs.values()))):
            return self._written(inputs, kwargs)
        with imperative(), self._remembering():
            # As by `as_parts`, but an interrupt cannot come between the end of the call and what a guard does then.
            try:
                _OUTERMOST.set(False)
                return self._called(inputs, kwargs)
            finally:
                _OUTERMOST.set(outermost)

    def _written(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Write the operators of the layer to the program, and its parameters where they are values yet."""
        for layer in (self, *self.sublayers()):
            for name, param in layer._parameters.items():
                if isinstance(param, EagerParameter):
                    layer._parameters[name] = parameter_in_program(param)
        with writing():
            return self._called(inputs, kwargs)

    def _remembering(self) -> AbstractContextManager[None]:
        """Whether what is computed is remembered for ``backward``; the outermost layer decides."""
        # Inside of `guard` nothing is remembered for a layer in eval mode. Outside, where Paddle 2's programs run, it
        # is.
        accumulates = getattr(eager_block().program, "accumulates", True)
        if self.training or accumulates or not _OUTERMOST.get():
            return nullcontext()
        return recording(False)

    def _called(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # A copy: a hook may remove itself.
        for hook in list(self._forward_pre_hooks.values()) if self._forward_pre_hooks else ():
            replaced = hook(self, inputs)
            if replaced is not None:
                inputs = replaced if isinstance(replaced, tuple) else (replaced,)
        if not self._built:
            self._build_once(*inputs, **kwargs)
            self._built = True
        outputs = self.forward(*inputs, **kwargs)
        for hook in list(self._forward_post_hooks.values()) if self._forward_post_hooks else ():
            replaced = hook(self, inputs, outputs)
            if replaced is not None:
                outputs = replaced
        return outputs


def as_parts() -> AbstractContextManager[None]:
    """Call layers as parts of another: their operators are recorded, whatever their mode."""
    return holding(_OUTERMOST, False)


class Hook:
    """A function that a layer calls; `remove` ends that."""

    def __init__(self, hooks: dict[Hook, Callable[..., Any]], function: Callable[..., Any]) -> None:
        if not callable(function):
            raise WrongTypeError(f"hook must be a function, got {function!r:.60}")
        self._hooks = hooks
        hooks[self] = function

    def remove(self) -> None:
        """Call it no more."""
        self._hooks.pop(self, None)


def _dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _snake_case(name: str) -> str:
    """The name of a class in snake case, as fluid writes it.

    Examples
    --------
    >>> _snake_case("BatchNorm"), _snake_case("Conv2D"), _snake_case("HTTPNet2D")
    ('batch_norm', 'conv2d', 'http_net2d')
    """
    # First between any letter and a word, then between a small letter and an acronym.
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()


def _fitting(name: str, tensor: Eager, state: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """The entry of `state` for `tensor`."""
    if name not in state:
        raise NotFoundError(f"the state has no {name!r}", site=caller_site(), hint=suggest(name, state))
    array = np.asarray(state[name])
    assert tensor.tensor_type is not None
    if array.shape != tensor.tensor_type.shape or array.dtype != tensor.tensor_type.dtype.numpy:
        raise ProgramError(f"{name} is {tensor.tensor_type}, the state has {array.dtype}{list(array.shape)}")
    return array
