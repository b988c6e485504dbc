"""What every layer function does: take a name, make parameters and temporaries, append operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.defaults import default_main_program, default_startup_program
from minigraph.errors import WrongTypeError, caller_site
from minigraph.initializer import Constant, Initializer, Xavier
from minigraph.ir import Block, Operator, Parameter, Variable
from minigraph.param_attr import ParamAttr, WeightNormParamAttr, as_param_attr
from minigraph.types import as_dtype
from minigraph.unique_name import generate


class LayerHelper:
    """One call of a layer function.

    A layer takes one name, ``<type>_<n>`` unless given; its temporaries are ``<name>.tmp_<k>``, its parameters
    ``<name>.w_<k>`` and ``<name>.b_<k>``.
    """

    def __init__(self, layer_type: str, name: str | None = None) -> None:
        self.layer_type = layer_type
        self.name = generate(layer_type) if name is None else name

    @property
    def block(self) -> Block:
        return default_main_program().current_block()

    def temporary(self, dtype: Any = None, stop_gradient: bool = False) -> Variable:
        """A fresh variable for the output of an operator."""
        return self.block.create_var(name=generate(f"{self.name}.tmp"), dtype=dtype, stop_gradient=stop_gradient)

    def append(
        self,
        op_type: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
    ) -> Operator:
        return self.block.append_op(op_type, inputs, outputs, attrs)

    def unary(self, op_type: str, inputs: Mapping[str, Any], out: str = "Out", **attrs: Any) -> Variable:
        """Append an operator with one output and return that."""
        block = self.block
        result = block.create_var(generate(f"{self.name}.tmp"))
        block.append_op(op_type, inputs, {out: result}, attrs)
        return result

    def parameter(
        self,
        attr: Any,
        shape: Sequence[int],
        dtype: Any,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
    ) -> Parameter | None:
        """The parameter that `attr` describes, made in the main and the startup program; None when `attr` is False."""
        attr = as_param_attr(attr)
        if attr is None:
            return None
        name = attr.name or generate(f"{self.name}.{'b' if is_bias else 'w'}")
        initializer = attr.initializer or default_initializer or self._default_initializer(dtype, is_bias)
        shape = tuple(shape)
        if isinstance(attr, WeightNormParamAttr):
            from minigraph.weight_norm import normalized_parameter

            return normalized_parameter(self, attr, name, shape, dtype, initializer)
        fields = attr.parameter_fields()
        main, startup = default_main_program().global_block(), default_startup_program().global_block()
        # A name used again shares the parameter: it has its start value already.
        if startup is not main:
            is_shared = startup.has_var(name)
            startup.create_parameter(name, shape, dtype, initializer=None if is_shared else initializer, **fields)
            initializer = None
        return main.create_parameter(name, shape, dtype, initializer=initializer, **fields)

    def _default_initializer(self, dtype: Any, is_bias: bool) -> Initializer:
        if not as_dtype(dtype).is_floating:
            raise WrongTypeError(
                f"{self.layer_type}: a parameter of {as_dtype(dtype)} has no default start values", site=caller_site(),
                hint="Give an initializer.",
            )  # fmt: skip
        return Constant(0.0) if is_bias else Xavier()

    def bias(self, x: Variable, attr: Any, dim_start: int = 1) -> Variable:
        """`x` plus a bias over its dimensions from `dim_start` on; `x` itself when `attr` is False."""
        assert x.shape is not None
        param = self.parameter(attr, x.shape[dim_start:], x.dtype, is_bias=True)
        if param is None:
            return x
        return self.unary("elementwise_add", {"X": x, "Y": param}, axis=dim_start)

    def activation(self, x: Variable, act: str | None) -> Variable:
        """The operator named `act` applied to `x`; `x` itself when it is None."""
        if act is None:
            return x
        if not isinstance(act, str):
            raise WrongTypeError(
                f"{self.layer_type}: act must be the name of an activation, got {act!r:.80}", site=caller_site()
            )
        return self.unary(act, {"X": x})


def check_variable(x: Any, what: str) -> Variable:
    """`x`, if it is a Variable.

    Raises
    ------
    WrongTypeError
        Otherwise; `what` names the layer and the argument.
    """
    if not isinstance(x, Variable):
        raise WrongTypeError(f"{what} must be a Variable, got {type(x).__name__}: {x!r:.60}", site=caller_site())
    return x


def check_floating(x: Any, what: str) -> Variable:
    """`x`, if it is a floating-point Variable.

    Raises
    ------
    WrongTypeError
        Otherwise.
    """
    check_variable(x, what)
    if not x.dtype.is_floating:
        raise WrongTypeError(
            f"{what} must be floating point, got {x}", site=caller_site(), hint="Convert it with layers.cast."
        )
    return x


__all__ = ["LayerHelper", "ParamAttr", "check_floating", "check_variable"]
