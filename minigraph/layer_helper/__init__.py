"""Parts that layers share: names, parameters, temporaries, appending operators; imports the engine and no layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from minigraph.eager.guard import enabled, imperative, to_variable
from minigraph.eager.tensor import Eager
from minigraph.errors import ProgramError, WrongTypeError, warn
from minigraph.initializer import Constant, Initializer, Xavier
from minigraph.ir import Block, Operator, Parameter, Program, Variable
from minigraph.ir.default_programs import default_main_program, default_startup_program
from minigraph.layer_helper.weight_norm import normalized_parameter
from minigraph.opdef import OpDef, definition_of
from minigraph.param_attr import ParamAttr, WeightNormParamAttr, as_param_attr
from minigraph.support.public import public_by
from minigraph.support.undo import note
from minigraph.types import DType, VarKind, as_dtype
from minigraph.unique_name import generate

F = TypeVar("F", bound=Callable[..., Any])

_ZERO, _XAVIER = Constant(0.0), Xavier()
_LISTS = (list, tuple)
"""Types of lists of arguments; to check for ``list | tuple`` takes three times as long."""


def layer(function: F) -> F:
    """`function`, which appends operators, as a `public` one that computes at once if an argument is a tensor.

    It then does so whether or not there is a `minigraph.dygraph.guard` around. Without a tensor it computes inside of a
    guard, and outside writes to the default main program.
    """

    def following(*args: Any, **kwargs: Any) -> Any:
        if not (_holds_tensor(args) or (kwargs and _holds_tensor(kwargs.values()))):
            return function(*args, **kwargs)
        with imperative():
            return function(*args, **kwargs)

    return public_by(function, following)


def layer_called(name: str, formula: str) -> Callable[[F], F]:
    """`layer` for a function that serves several: its name, and its docstring."""

    def decorate(function: F) -> F:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = formula
        return layer(function)

    return decorate


def _holds_tensor(arguments: Iterable[Any]) -> bool:
    for argument in arguments:
        if isinstance(argument, Eager):
            return True
        if isinstance(argument, _LISTS) and any([isinstance(item, Eager) for item in argument]):
            return True
    return False


class LayerHelper:
    """One call of a layer function.

    A layer takes one name, ``<type>_<n>`` unless given; its temporaries are ``<name>.tmp_<k>``, its parameters
    ``<name>.w_<k>`` and ``<name>.b_<k>``.

    Parameters
    ----------
    layer_type : str
    name : str, optional
    **kwargs
        The other arguments of the layer, for the methods in fluid's words, which layers of users are written with:
        ``LayerHelper("my_layer", **locals())``.

    Examples
    --------
    >>> import minigraph as fluid
    >>> def doubled(input, act=None, name=None):
    ...     helper = LayerHelper("doubled", **locals())
    ...     out = helper.create_variable_for_type_inference(dtype=input.dtype)
    ...     helper.append_op(type="scale", inputs={"X": input}, outputs={"Out": out}, attrs={"scale": 2.0})
    ...     return helper.append_activation(out)
    >>> with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
    ...     doubled(fluid.data("x", [None, 3]), act="relu")
    <Variable doubled_0.tmp_1: float32[-1, 3]>
    """

    def __init__(self, layer_type: str, name: str | None = None, **kwargs: Any) -> None:
        self.layer_type = layer_type
        self.name = _name_of(layer_type, name)
        kwargs["name"] = self.name
        self.kwargs = kwargs

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

    def emit(self, op_type: str, /, into: Variable | None = None, **slots_and_attrs: Any) -> Variable:
        """Append an operator and return its output ``Out``, or else the first, which is fresh or `into`.

        Keywords that name an input slot are inputs, the others attributes; None is left out.
        """
        return _emit(self.name, op_type, slots_and_attrs, into)

    def emit_all(self, op_type: str, /, **slots_and_attrs: Any) -> list[Variable]:
        """`emit` an operator and return all its outputs, in the order of its definition."""
        definition = definition_of(op_type)
        inputs, attrs = _sorted_out(definition, slots_and_attrs)
        block = self.block
        outputs = {slot: block.fresh(f"{self.name}.tmp") for slot in definition.output_slots}
        block.append_op(op_type, inputs, outputs, attrs)
        return list(outputs.values())

    def emit_list(self, op_type: str, count: int, /, **slots_and_attrs: Any) -> list[Variable]:
        """`emit` an operator whose only output is a list of `count` variables."""
        definition = definition_of(op_type)
        inputs, attrs = _sorted_out(definition, slots_and_attrs)
        results = [self.temporary() for _ in range(count)]
        self.append(op_type, inputs, {definition.main_output: results}, attrs)
        return results

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
        if 0 in shape and self.layer_type != "create_parameter":  # which takes what it is given, as in fluid
            raise ProgramError(
                f"{self.layer_type}: the parameter {name} of shape {list(shape)} would have no elements",
                hint="Give sizes of at least 1.",
            )
        if isinstance(attr, WeightNormParamAttr):
            return normalized_parameter(self.name, attr, name, shape, dtype, initializer)
        fields = attr.parameter_fields()
        main, startup = default_main_program().global_block(), default_startup_program().global_block()
        # A name used again shares the parameter: it has its start value already.
        if startup is not main:
            is_shared = startup.has_var(name)
            startup.create_parameter(name, shape, dtype, initializer=None if is_shared else initializer, **fields)
            initializer = None
        return main.create_parameter(name, shape, dtype, initializer=initializer, **fields)

    def required(self, attr: Any, shape: Sequence[int], dtype: Any, what: str = "", **options: Any) -> Parameter:
        """`parameter`, which `attr` may not turn off; `what` names the layer."""
        made = self.parameter(attr, shape, dtype, **options)
        if made is None:
            argument, part = ("bias_attr", "bias") if options.get("is_bias") else ("param_attr", "weight")
            raise ProgramError(
                f"{what or self.layer_type}: {argument} cannot be False, the layer does not work without a {part}",
                hint=f"Leave {argument} out, or give a ParamAttr.",
            )
        return made

    def _default_initializer(self, dtype: Any, is_bias: bool) -> Initializer:
        if not as_dtype(dtype).is_floating:
            raise WrongTypeError(
                f"{self.layer_type}: a parameter of {as_dtype(dtype)} has no default start values",
                hint="Give an initializer.",
            )  # fmt: skip
        return _ZERO if is_bias else _XAVIER

    def bias(self, x: Variable, attr: Any, dim_start: int = 1, dim_end: int | None = None) -> Variable:
        """`x` plus a bias over its dimensions from `dim_start` to before `dim_end`; `x` itself when `attr` is False."""
        assert x.shape is not None
        return self.plus(x, self.parameter(attr, x.shape[dim_start:dim_end], x.dtype, is_bias=True), dim_start)

    def plus(self, x: Variable, bias: Variable | None, axis: int) -> Variable:
        """`x` plus `bias`, which lies over its dimensions from `axis` on; `x` itself when it is None."""
        return x if bias is None else self.emit("elementwise_add", X=x, Y=bias, axis=axis)

    def activation(self, x: Variable, act: str | None) -> Variable:
        """The operator named `act` applied to `x`; `x` itself when it is None."""
        if act is None:
            return x
        if not isinstance(act, str):
            raise WrongTypeError(f"{self.layer_type}: act must be the name of an activation, got {act!r:.80}")
        return self.emit(act, X=x)

    # Fluid's words, for layers of users

    @property
    def main_program(self) -> Program:
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        return default_startup_program()

    def append_op(self, *args: Any, **kwargs: Any) -> Operator:
        """`Block.append_op` of the current block."""
        return self.block.append_op(*args, **kwargs)

    def create_variable_for_type_inference(self, dtype: Any = None, stop_gradient: bool = False) -> Variable:
        """A variable for what an operator computes, which says the dtype, whatever `dtype` is."""
        return self.temporary(stop_gradient=stop_gradient)

    create_tmp_variable = create_variable_for_type_inference

    def create_parameter(
        self,
        attr: Any,
        shape: Sequence[int],
        dtype: Any,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
        stop_gradient: bool = False,
        type: Any = VarKind.LOD_TENSOR,
    ) -> Parameter | None:
        """`parameter`; in the imperative mode `stop_gradient` tells whether gradients end there."""
        param = self.parameter(attr, shape, dtype, is_bias, default_initializer)
        if stop_gradient and isinstance(param, Eager):
            param.stop_gradient = True
        return param

    def create_variable(self, *args: Any, **kwargs: Any) -> Variable:
        """`Block.create_var` of the current block."""
        return self.block.create_var(*args, **kwargs)

    def create_global_variable(self, persistable: bool = False, **kwargs: Any) -> Variable:
        """A variable of the global block, by default with a name after the layer's."""
        name = kwargs.pop("name", None) or generate(f"{self.name}.tmp")
        return self.main_program.global_block().create_var(name=name, persistable=persistable, **kwargs)

    def create_or_get_global_variable(self, name: str, **kwargs: Any) -> tuple[Variable, bool]:
        """The variable of the global block with this name, and whether it was made just now."""
        block = self.main_program.global_block()
        if block.has_var(name):
            return block.var(name), False
        return self.create_global_variable(name=name, **kwargs), True

    def set_variable_initializer(self, var: Variable, initializer: Initializer) -> Variable:
        """Let the startup program give `var`, of the global block, its first value."""
        block = self.startup_program.global_block()
        return block.create_var(
            name=var.name, shape=var.shape, dtype=var.dtype, persistable=True, initializer=initializer
        )

    def get_parameter(self, name: str) -> Parameter:
        """The parameter of the main program with this name."""
        param = self.main_program.global_block().var(name)
        if not isinstance(param, Parameter):
            raise WrongTypeError(f"{param} is not a parameter")
        return param

    @property
    def param_attr(self) -> ParamAttr | None:
        return as_param_attr(self.kwargs.get("param_attr"))

    @property
    def bias_attr(self) -> ParamAttr | None:
        return as_param_attr(self.kwargs.get("bias_attr"))

    def multiple_input(self, input_param_name: str = "input") -> list[Variable]:
        """The variables of the argument with this name."""
        given = self.kwargs.get(input_param_name, ())
        listed = list(given) if isinstance(given, list | tuple) else [given]
        return [self._variable(each, f"{self.layer_type}: {input_param_name}") for each in listed]

    def to_variable(self, value: Any, name: str | None = None) -> Variable:
        """`value` itself if it is a Variable; in the imperative mode an array becomes a tensor."""
        return self._variable(value, f"{self.layer_type}: what becomes a variable", name)

    def _variable(self, value: Any, what: str, name: str | None = None) -> Variable:
        if isinstance(value, Variable) or not enabled():
            return check_variable(value, what)
        return to_variable(value, name)

    def input(self, input_param_name: str = "input") -> Variable:
        """The one variable of the argument with this name."""
        found = self.multiple_input(input_param_name)
        if len(found) != 1:
            raise WrongTypeError(f"{self.layer_type} takes one {input_param_name}, got {len(found)}")
        return found[0]

    def iter_inputs_and_params(self, input_param_name: str = "input") -> Iterator[tuple[Variable, Any]]:
        """Each variable of an argument, with the attributes of its parameter: those of all, or its own."""
        return self._pairs(self.multiple_input(input_param_name), self.kwargs.get("param_attr"), input_param_name)

    def _pairs(self, inputs: list[Variable], attrs: Any, what: str) -> Iterator[tuple[Variable, Any]]:
        return zip(inputs, self._attrs(attrs, len(inputs), what), strict=True)

    def multiple_param_attr(self, length: int) -> list[ParamAttr | None]:
        """The attributes of `length` parameters: those given to all, or each its own."""
        return self._attrs(self.kwargs.get("param_attr"), length, "parameters")

    def _attrs(self, attrs: Any, length: int, what: str) -> list[ParamAttr | None]:
        listed = list(attrs) if isinstance(attrs, list | tuple) else [attrs]
        if len(listed) not in (1, length):
            raise WrongTypeError(f"{self.layer_type}: {len(listed)} param_attr for {length} {what}")
        return [as_param_attr(listed[i if len(listed) > 1 else 0]) for i in range(length)]

    def is_instance(self, param_name: str, cls: type) -> None:
        """Raise unless the argument with this name is a `cls`."""
        found = self.kwargs.get(param_name)
        if not isinstance(found, cls):
            raise WrongTypeError(f"{self.layer_type}: {param_name} must be a {cls.__name__}, got {found!r:.60}")

    def input_dtype(self, input_param_name: str = "input") -> DType:
        """The dtype that all variables of an argument have."""
        return self._common_dtype(self.multiple_input(input_param_name), input_param_name)

    def _common_dtype(self, inputs: list[Variable], what: str) -> DType:
        found = {each.dtype for each in inputs}
        if len(found) != 1:
            raise WrongTypeError(
                f"{self.layer_type}: {what} must have one dtype, got {', '.join(map(str, sorted(found)))}"
            )
        return found.pop()

    def append_bias_op(self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None) -> Variable:
        """`input_var` plus the bias that the argument ``bias_attr`` describes, over some of its dimensions."""
        return self.bias(input_var, self.kwargs.get("bias_attr"), dim_start, dim_end)

    def append_activation(self, input_var: Variable) -> Variable:
        """The activation that the argument ``act`` names, of `input_var`."""
        return self.activation(input_var, self.kwargs.get("act"))


class LayerHelperBase(LayerHelper):
    """`LayerHelper` of a layer whose name and kind are given in this order, for helpers of users."""

    def __init__(self, name: str, layer_type: str) -> None:
        super().__init__(layer_type, name)


def emit(op_type: str, name: str | None = None, /, into: Variable | None = None, **slots_and_attrs: Any) -> Variable:
    """The layer `name` that is this one operator: `LayerHelper.emit`."""
    return _emit(_name_of(op_type, name), op_type, slots_and_attrs, into)


def _name_of(layer_type: str, name: Any) -> str:
    if name is None:
        return generate(layer_type)
    if not isinstance(name, str):
        raise WrongTypeError(f"{layer_type}: name must be a str, got {name!r:.80}")
    return name


def _emit(layer: str, op_type: str, slots_and_attrs: dict[str, Any], into: Any) -> Any:
    definition, block = definition_of(op_type), default_main_program().current_block()
    inputs, attrs = _sorted_out(definition, slots_and_attrs)
    main, outputs = definition.main_output, {}
    for name, slot in definition.output_slots.items():
        if name == main and into is not None:
            outputs[name] = check_variable(into, "out")
        elif name == main or not slot.dispensable:
            outputs[name] = block.fresh(f"{layer}.tmp")
    block.append_op(op_type, inputs, outputs, attrs)
    return outputs[main]


def _sorted_out(definition: OpDef, slots_and_attrs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and attributes of an operator."""
    slots = definition.input_slots
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    for key, value in slots_and_attrs.items():
        if key not in slots:
            if value is not None:
                attrs[key] = value
        elif isinstance(value, Variable):
            inputs[key] = value
        elif value is not None:
            listed = value if isinstance(value, _LISTS) else [value]
            inputs[key] = [check_variable(each, f"the input {key}") for each in listed]
    return inputs, attrs


def create_state(
    name: str, shape: Any, dtype: Any, value: float = 0.0, *, program: Program | None = None,
    persistable: bool = True, stop_gradient: bool = False, force_cpu: bool = False,
) -> Variable:  # fmt: skip
    """Create a variable of `program`, or else the default main program, that the startup program sets to `value`."""
    fields = {"name": name, "shape": shape, "dtype": dtype, "persistable": persistable}
    main, startup = program or default_main_program(), default_startup_program()
    var = main.global_block().create_var(**fields, stop_gradient=stop_gradient)
    startup.global_block().create_var(**fields, initializer=Constant(value, force_cpu))
    return var


def constant(var: Variable) -> Variable:
    """`var`, through which no gradient flows."""
    var.stop_gradient = True
    return var


def input_or_attr(value: Any, slot: str, attr: str) -> dict[str, Any]:
    """`value` as an input of an operator if it is a Variable, else as an attribute."""
    return {slot if isinstance(value, Variable) else attr: value}


def check_variable(x: Any, what: str) -> Variable:
    """`x`, if it is a Variable.

    Raises
    ------
    WrongTypeError
        Otherwise; `what` names the layer and the argument.
    """
    if not isinstance(x, Variable):
        raise WrongTypeError(f"{what} must be a Variable, got {type(x).__name__}: {x!r:.60}")
    return x


def one_of(x: Any) -> Any:
    """`x`, or what a list of one holds, which some of fluid's layers take as well."""
    return x[0] if isinstance(x, list | tuple) and len(x) == 1 else x


def fed_integers(x: Any) -> Any:
    """`x`; if it is data of `layers.data` that nothing has read and whose dtype is a float's, declared as int64 now.

    Fluid's data has the dtype of what is fed, so that labels whose dtype was forgotten work there.
    """
    if not isinstance(x, Variable) or not x.is_data or x.need_check_feed or not x.dtype.is_floating:
        return x
    if any(x.name in op.input_arg_names for block in x.block.program.blocks for op in block.ops):
        return x
    warn(
        f"{x.name} is declared {x.dtype} and used for integers: it becomes int64. Write layers.data(..., dtype='int64')"
    )
    assert x.tensor_type is not None
    note(setattr, x, "tensor_type", x.tensor_type)
    x.tensor_type = x.tensor_type.with_dtype(DType.INT64)
    return x


def check_floating(x: Any, what: str) -> Variable:
    """`x`, if it is a floating-point Variable.

    Raises
    ------
    WrongTypeError
        Otherwise.
    """
    check_variable(x, what)
    if not x.dtype.is_floating and x.kind is not VarKind.RAW:  # about which operators say more
        raise WrongTypeError(f"{what} must be floating point, got {x}", hint="Convert it with layers.cast.")
    return x


def features_of(x: Variable, first: int, what: str) -> int:
    """The number of elements of `x` from dimension `first` on, by which parameters are declared.

    Fluid multiplies the declared sizes, so that two that are not known, -1 each, count as 1: the height and the width
    behind a pooling of the whole image, for example. A run with other sizes is an error.

    Raises
    ------
    ProgramError
        If the sizes that are not known are odd in number; `what` names the layer.
    """
    assert x.shape is not None
    sizes = x.shape[first:]
    known, unknown = math.prod(size for size in sizes if size >= 0), sum(size < 0 for size in sizes)
    if unknown % 2:
        raise ProgramError(
            f"{what}: the number of features of {x} is not known",
            hint=f"Give the dimensions from {first} on; only the leading ones may be -1.",
        )  # fmt: skip
    if unknown:
        warn(f"{what}: the {unknown} sizes of {x} that are not known count as 1, as in fluid. Give them.")
    return known


__all__ = [
    "LayerHelper", "LayerHelperBase", "ParamAttr", "check_floating", "check_variable", "constant", "create_state",
    "emit", "features_of", "input_or_attr", "layer", "layer_called", "one_of",
]  # fmt: skip
