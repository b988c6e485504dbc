"""Definitions of operator types: schema, inference of results, rule of the gradient.

`minigraph.opdef.registry` makes definitions of functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from minigraph.errors import NotFoundError, OpError, suggest
from minigraph.opdef.attr_types import converter_of
from minigraph.opdef.gradient_context import BlockGrad, GradRule
from minigraph.opdef.lengths import LengthSource
from minigraph.support.sizes import OpenSize
from minigraph.types import FIXED_TYPES, TensorType

SUB_BLOCK = "sub_block"
"""Attribute that holds the index of the block that an operator of control flow runs."""


class _Required:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "required"


REQUIRED: Any = _Required()

DECLARED: Any = type("Declared", (), {})()
"""Type that inference gives a slot whose variables keep the types that they declare."""

HINT_ATTRS = frozenset({
    "use_cudnn", "use_mkldnn", "op_device", "op_callstack", "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@",
    "skip_eager_deletion_vars", "workspace_size_MB", "exhaustive_search", "mkldnn_data_type",
    "min_row_size_to_use_multithread",
})  # fmt: skip
"""Attributes of fluid's operators that choose or describe an implementation and never change a result."""

UPDATES_OF_ROWS: list[str] = []
"""Types of operators that update a parameter and take selected rows as its gradient; `op` adds them."""

_BACKEND_ATTRS: Mapping[str, Any] = MappingProxyType({
    "use_quantizer": False, "force_fp32_output": False, "fuse_brelu": False, "fuse_brelu_threshold": 6.0,
    "fuse_activation": "", "fuse_alpha": 0.0, "fuse_beta": 0.0, "Scale_in": 1.0, "Scale_out": 1.0,
    "Scale_in_eltwise": 1.0, "Scale_weights": [1.0], "height_sections": [], "epmap": [], "table_names": [],
    "x_data_format": "", "y_data_format": "",
})  # fmt: skip
"""Attributes for quantized, fused or distributed execution, with the value that turns it off."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One input or output of an operator: a name and how many variables it takes."""

    name: str
    duplicable: bool = False
    """Whether it takes a list of variables."""
    dispensable: bool = False
    """May be left out."""
    intermediate: bool = False
    """An output kept only for the gradient."""
    takes_rows: bool = False
    """An input that may be selected rows."""
    takes_arrays: bool = False
    """An input that may be an array of tensors."""


@dataclass(frozen=True, slots=True)
class Attr:
    """One attribute: its type (a key of `minigraph.opdef.attr_types.CONVERTERS`) and its default."""

    name: str
    type: str
    default: Any = REQUIRED


class OperatorRule(ABC):
    """A gradient rule that appends one gradient operator, defined by that of the forward operator."""

    @abstractmethod
    def type_for(self, forward: str) -> str:
        """The type of the gradient operator of operators of the type `forward`."""

    @abstractmethod
    def complete(self, forward: OpDef) -> None:
        """Fill in the defaults from the operator that the rule belongs to; it is asked for when that is made."""

    @abstractmethod
    def define(self, forward: OpDef) -> OpDef:
        """The definition of the gradient operator of `forward`."""


class SubBlockRule(Protocol):
    """The rule of an operator that runs a sub-block, as the IR uses it."""

    given: list[str]
    """Variables of the sub-block, or seen from it, that the operator gives it before each run."""

    def settle_types(self) -> None:
        """Set the types of what the operator writes; raise if those of the sub-block do not fit."""


_SUB_BLOCK_RULES: dict[str, Callable[[Any], SubBlockRule]] = {}
"""Operator type -> rule; `minigraph.runtime.control_flow` registers them."""


def register_sub_block_rule(type: str, rule: Callable[[Any], SubBlockRule]) -> None:
    """Let `OpDef.call` apply `rule` to operators of this type."""
    _SUB_BLOCK_RULES[type] = rule


@dataclass(frozen=True, eq=False)
class OpDef:
    """The schema, inference and gradient of an operator type; kernels compute it."""

    type: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    attrs: Mapping[str, Attr]
    infer: Callable[..., Any]
    grad: GradRule | OperatorRule | BlockGrad | None
    backend_attrs: Mapping[str, Any]
    """Attributes that only served another backend, with the one value that is accepted."""
    doc: str
    forward: str | None = None
    """Type of the forward operator, for a gradient operator."""
    has_effect: bool = False
    """Whether operators do more than compute their results, so that they run even if nothing reads these."""
    updates: tuple[str, ...] = ()
    """Output slots whose variables may keep old values, or parts of them, so that the operator reads them, too."""
    unchanged: Callable[[Callable[[str], Any]], Mapping[str, str]] | None = None
    """Output slots that have the values of input slots, by what `Operator.attr` says."""
    lod: Mapping[str, LengthSource] = field(default_factory=dict)
    """Sources of the lengths of results, by output slot; slots without lengths are left out."""
    lengths: tuple[str, ...] = ()
    """Input slots whose lengths the kernel gets, after the inputs; ``X?`` may have none."""
    input_slots: Mapping[str, Slot] = field(init=False)
    output_slots: Mapping[str, Slot] = field(init=False)
    main_output: str = field(init=False)
    """The output ``Out``, or else the first."""
    _inferred: dict[Any, dict[str, tuple[Any, ...]]] = field(init=False, repr=False)
    """Cache of inferred types, by types of inputs and attributes: many operators of a program have equal types."""
    _conversions: Mapping[str, tuple[Callable[[Any], Any], Any]] = field(init=False, repr=False)
    """Attribute -> converter and default."""
    _required_attrs: tuple[str, ...] = field(init=False, repr=False)
    required_inputs: tuple[str, ...] = field(init=False)
    required_outputs: tuple[str, ...] = field(init=False)
    handles_lengths: bool = field(init=False)
    """Whether the kernel gets lengths or makes some."""
    has_hidden_names: bool = field(init=False)
    """Whether operators may have effects that their slots do not show, so that rewrites leave them alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_slots", {slot.name: slot for slot in self.inputs})
        object.__setattr__(self, "_inferred", {})
        required = tuple(attr.name for attr in self.attrs.values() if attr.default is REQUIRED)
        object.__setattr__(self, "_required_attrs", required)
        conversions = {attr.name: (converter_of(attr.name, attr.type), attr.default) for attr in self.attrs.values()}
        object.__setattr__(self, "_conversions", conversions)
        object.__setattr__(self, "required_inputs", _required(self.inputs))
        object.__setattr__(self, "required_outputs", _required(self.outputs))
        object.__setattr__(self, "output_slots", {slot.name: slot for slot in self.outputs})
        main = "Out" if "Out" in self.output_slots else next(iter(self.output_slots), "")
        object.__setattr__(self, "main_output", main)
        makes = any(source.kind == "new" for source in self.lod.values())
        object.__setattr__(self, "handles_lengths", makes or bool(self.lengths))
        object.__setattr__(self, "has_hidden_names", bool(self.updates) or SUB_BLOCK in self.attrs or self.has_effect)

    def needs_lengths(self, attrs: Mapping[str, Any]) -> bool:
        """Whether the kernel looks at lengths, or makes some, even if no input has any."""
        nothing = dict.fromkeys(self.input_slots, 0)
        makes = (source.count(nothing, attrs) > 0 for source in self.lod.values() if source.kind == "new")
        return any(not slot.endswith("?") for slot in self.lengths) or any(makes)

    def call(self, op: Any) -> SubBlockRule:
        """Apply the rule of this type to an operator that runs a sub-block."""
        return _SUB_BLOCK_RULES[self.type](op)

    def convert_attrs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes that differ from their defaults, checked and converted to the declared types.

        Raises
        ------
        OpError
            For an unknown attribute, a missing required one, a value of the wrong type, or a backend attribute that
            is not at its default.
        """
        attrs: dict[str, Any] = {}
        for name, value in given.items():
            if name not in self._conversions:
                self._check_foreign_attr(name, value)
                continue
            convert, default = self._conversions[name]
            try:
                value = convert(value)
            except (TypeError, ValueError, OverflowError):
                raise OpError(f"{self.type}: attribute {name} must be {self.attrs[name].type}, got {value!r}") from None
            if value != default or default is REQUIRED:
                attrs[name] = value
        for name in self._required_attrs:
            if name not in attrs:
                raise OpError(f"{self.type}: attribute {name} is missing", hint=f"Give attrs={{'{name}': ...}}.")
        return attrs

    def default_of(self, name: str) -> Any:
        """The default of an attribute.

        Raises
        ------
        NotFoundError
            If operators of this type have no attribute of this name.
        """
        if name in self.attrs:
            return self.attrs[name].default
        if name in self.backend_attrs:
            return self.backend_attrs[name]
        raise NotFoundError(
            f"{self.type} has no attribute {name!r}",
            hint=suggest(name, self.attrs) or f"It has {', '.join(self.attrs) or 'none'}.",
        )

    def _check_foreign_attr(self, name: str, value: Any) -> None:
        # Programs for fluid tell `is_test` to operators that do the same in training and in a test.
        if name in HINT_ATTRS or name == "is_test":
            return
        backend_attrs = {**_BACKEND_ATTRS, **self.backend_attrs}
        if name in backend_attrs:
            expected = backend_attrs[name]
            if value != expected:
                raise OpError(
                    f"{self.type}: attribute {name} serves a backend that minigraph does not have",
                    details=[f"{name} = {value!r}"],
                    hint=f"Leave it at {expected!r}.",
                )
            return
        raise OpError(
            f"{self.type}: unknown attribute {name}", details=[f"{name} = {value!r}"],
            hint=suggest(name, self.attrs) or f"It has {', '.join(self.attrs) or 'none'}.",
        )  # fmt: skip

    def _no_rows(self, slot: Slot) -> OpError:
        """The error for an input that is selected rows where a dense tensor is needed."""
        hint = "Look the rows up with is_sparse=False for a dense gradient."
        if is_update(self):
            hint = f"Updates that take it: {', '.join(sorted(UPDATES_OF_ROWS))}. {hint}"
        return OpError(f"{self.type}: {slot.name} must be dense, got selected rows", hint=hint)

    def infer_types(
        self, inputs: Mapping[str, Sequence[TensorType | None]], attrs: Mapping[str, Any]
    ) -> dict[str, list[Any]]:
        """Output types by slot, from the input types by slot and the attributes that differ from their defaults."""
        found = self.inferred(tuple([(slot, tuple(types)) for slot, types in inputs.items()]), attrs)
        return {slot: types if types is DECLARED else list(types) for slot, types in found.items()}

    def inferred(
        self, inputs: tuple[tuple[str, tuple[TensorType | None, ...]], ...], attrs: Mapping[str, Any]
    ) -> Mapping[str, tuple[Any, ...]]:
        """`infer_types` of slots with their types; the result is cached and must not be changed."""
        key = inputs, tuple(attrs.items())
        try:
            found = self._inferred.get(key)
        except TypeError:  # open sizes have no hash, see `minigraph.support.sizes`
            return self._infer_open(inputs, attrs)
        if found is None:
            found = self._infer_types(dict(inputs), attrs)
            if len(self._inferred) >= _MOST_INFERRED:
                self._inferred.clear()
            self._inferred[key] = found
        return found

    def _infer_open(
        self, inputs: tuple[tuple[str, tuple[TensorType | None, ...]], ...], attrs: Mapping[str, Any]
    ) -> Mapping[str, tuple[Any, ...]]:
        """`inferred` of types with open sizes; the cache is that of their dimensions, which note what is asked."""
        cache: dict[Any, Any] = {}
        parts: list[Any] = [self.type, *attrs.items()]
        for slot, of_slot in inputs:
            parts.append(slot)
            for each in of_slot:
                if each is None:
                    parts.append(None)
                    continue
                parts += (each.dtype, each.kind, len(each.shape))
                sizes: tuple[Any, ...] = each.shape
                for size in sizes:
                    if type(size) is OpenSize:
                        cache, size = size.dimensions.cache, size.key
                    parts.append(size)
        key = tuple(parts)
        found: Mapping[str, tuple[Any, ...]] | None = cache.get(key)
        if found is None:
            found = cache[key] = self._infer_types(dict(inputs), attrs)
        return found

    def _infer_types(
        self, inputs: Mapping[str, Sequence[TensorType | None]], attrs: Mapping[str, Any]
    ) -> dict[str, tuple[Any, ...]]:
        args: list[Any] = []
        for slot in self.inputs:
            types = inputs.get(slot.name)
            if types and not slot.takes_rows and any([t is not None and t.is_rows for t in types]):
                raise self._no_rows(slot)
            if types and not slot.takes_arrays and any([t is not None and t.is_array for t in types]):
                raise OpError(
                    f"{self.type}: {slot.name} must be a tensor, got an array of tensors",
                    hint="Take an element with layers.array_read, or join them with layers.tensor_array_to_tensor.",
                )
            if types and not slot.takes_arrays and any([t is not None and t.kind in FIXED_TYPES for t in types]):
                raise OpError(
                    f"{self.type}: only a run knows the type of {slot.name}, which branches make of different types",
                    hint="Return one element type (layers.cast) and one number of dimensions (layers.reshape) from all "
                    "branches, or fetch it.",
                )
            if slot.duplicable:
                args.append(list(types) if types else ([] if not slot.dispensable else None))
            else:
                args.append(types[0] if types else None)
        full = {name: attr.default for name, attr in self.attrs.items()}
        full.update(attrs)
        if "lambda" in full:  # a word of Python's; see `op`
            full["lambda_"] = full.pop("lambda")
        result = self.infer(*args, **full)
        results = result if type(result) is tuple else (result,)
        return {
            slot.name: DECLARED if value is DECLARED else tuple(value) if slot.duplicable else (value,)
            for slot, value in zip(self.outputs, results, strict=True)
        }


def _required(slots: Sequence[Slot]) -> tuple[str, ...]:
    return tuple(slot.name for slot in slots if not slot.dispensable and not slot.intermediate)


_MOST_INFERRED = 256
"""Maximum kinds of inputs whose inferred types a definition caches."""


def is_update(definition: OpDef) -> bool:
    """Whether operators of this type update a parameter by its gradient."""
    return "Param" in definition.input_slots and "Grad" in definition.input_slots
