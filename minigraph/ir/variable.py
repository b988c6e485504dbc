"""Variables: the named values of a block."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minigraph.errors import ProgramError, WrongTypeError, warn
from minigraph.ir.description import Description
from minigraph.ir.text.notation import DEFAULTS, braces, fields_text, name_text
from minigraph.ir.variable_methods import Methods
from minigraph.ir.variable_operators import Arithmetic
from minigraph.ir.variable_subscripts import Subscripts
from minigraph.opdef import GRAD_SUFFIX
from minigraph.support.undo import note
from minigraph.types import FIXED_TYPES, DType, TensorType, VarKind, product

if TYPE_CHECKING:
    from minigraph.ir.block import Block


class Variable(Arithmetic, Subscripts, Methods):
    """A named value of a block.

    Attributes
    ----------
    name : str
    tensor_type : TensorType or None
        Element type, shape and kind; None until the operator that makes the value is appended.
    kind : VarKind
        A dense array, or selected rows.
    persistable : bool
        Lives in the scope from run to run.
    stop_gradient : bool
        No gradient flows to or through it.
    is_data : bool
        Must be fed.
    need_check_feed : bool
        Its declared shape and dtype bind what is fed.
    error_clip : object or None
        How the gradient of this value is clipped inside the backward pass.
    lod_level : int
        Number of levels of sequences that its rows make up, as declared or inferred.
    """

    __slots__ = (
        "__dict__", "_kind", "_persistable", "block", "error_clip", "is_data", "lod_level", "name", "need_check_feed",
        "stop_gradient", "tensor_type",
    )  # fmt: skip

    def __init__(
        self,
        block: Block,
        name: str,
        tensor_type: TensorType | None = None,
        *,
        kind: VarKind = VarKind.LOD_TENSOR,
        persistable: bool = False,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        error_clip: Any = None,
        lod_level: int = 0,
    ) -> None:
        self.block = block
        self.name = name
        if kind in FIXED_TYPES:
            tensor_type = FIXED_TYPES[kind]
        elif tensor_type is not None and tensor_type.kind is not kind:
            tensor_type = tensor_type.held_as(kind)
        self.tensor_type = tensor_type
        self._kind = kind
        self._persistable = persistable
        self.stop_gradient = stop_gradient
        self.is_data = is_data
        self.need_check_feed = need_check_feed
        self.error_clip = error_clip
        self.lod_level = lod_level

    def _set_error_clip(self, error_clip: Any) -> None:
        # Spelled as in fluid, whose examples clip errors so.
        self.error_clip = error_clip

    @property
    def persistable(self) -> bool:
        """Whether the value lives in the scope from run to run; changing it changes what a run of the program does."""
        return self._persistable

    @persistable.setter
    def persistable(self, value: bool) -> None:
        self._persistable = value
        self.block.program.version += 1

    @property
    def kind(self) -> VarKind:
        return self._kind if self.tensor_type is None else self.tensor_type.kind

    @kind.setter
    def kind(self, kind: VarKind) -> None:
        self._kind = kind
        if kind in FIXED_TYPES:
            self.tensor_type = FIXED_TYPES[kind]
        elif self.tensor_type is not None:
            self.tensor_type = self.tensor_type.held_as(kind)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Dimensions, -1 where unknown; None as long as nothing is known."""
        return self.tensor_type.shape if self.tensor_type else None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape or ())

    @property
    def size(self) -> int:
        """Number of elements, -1 where unknown."""
        return product(self.shape or ())

    @property
    def dtype(self) -> DType:
        """Element type; float32 as long as nothing is known, as in fluid."""
        return self.tensor_type.dtype if self.tensor_type else DType.FP32

    @property
    def type(self) -> VarKind:
        return self.kind

    @property
    def desc(self) -> Description:
        return Description(self)

    @property
    def op(self) -> Any:
        """Last operator of its block that writes it; None if there is none."""
        return next((op for op in reversed(self.block.ops) if self.name in op.output_arg_names), None)

    @property
    def grad_name(self) -> str:
        return self.name + GRAD_SUFFIX

    @property
    def keyword(self) -> str:
        """The word that the variable is declared with in text."""
        return "data" if self.is_data else "persist" if self._persistable else "var"

    def declaration(self) -> str:
        """Name, type and unusual fields, as they stand in text."""
        # The kind is one of the fields.
        type_text = "unknown" if self.tensor_type is None else str(self.tensor_type.held_as(VarKind.LOD_TENSOR))
        return f"{name_text(self.name)}: {type_text}{braces(fields_text(self, DEFAULTS[self.keyword]))}"

    def __str__(self) -> str:
        return f"{self.name}: {self.tensor_type or 'unknown'}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        return str(self)

    def __bool__(self) -> bool:
        """True, as in fluid, where ``if attn_bias:`` asks whether there is a variable; a condition has no value yet."""
        if self.dtype is DType.BOOL:
            raise ProgramError(
                f"the value of {self.name} is not known while the program is built, so it cannot decide an `if`",
                hint="Choose by layers.cond when the program runs. Write `is` for identity: `in` a list asks ==, which "
                "is an operator; compare names, or use a set.",
            )
        if self.size == 1:
            warn(
                f"`if` asks whether there is a variable {self.name}, not for its value, which only a run knows: write "
                "`is not None`, or choose by layers.cond"
            )
        return True

    # Methods that need a value, which the tensors of the imperative mode have

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise self._no_value("cannot become an array")

    def __float__(self) -> float:
        raise self._no_value("cannot become a number")

    __int__: Any = __float__
    __complex__: Any = __float__
    __index__: Any = __float__

    def __len__(self) -> int:
        raise self._no_value("has no len()", f"Its shape is {self.shape}; layers.shape gives it while running.")

    def __setitem__(self, item: Any, value: Any) -> None:
        raise self._no_value("cannot be written to in parts", "Use layers.scatter, or layers.assign for the whole.")

    def numpy(self) -> Any:
        """Return the value of a tensor of the imperative mode; a variable of a program has none."""
        raise self._no_value("has no value to show")

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Find gradients, in the imperative mode; a program is given them by `append_backward`."""
        raise self._no_value(
            "cannot be differentiated by backward()", "Call optimizer.minimize(loss) or fluid.append_backward(loss)."
        )

    def gradient(self) -> Any:
        """Return the gradient of a tensor of the imperative mode; that of a variable is a variable."""
        raise self._no_value("has no gradient to show", f"Fetch it by its name: fetch_list=[{self.grad_name!r}].")

    def clear_gradient(self) -> None:
        """Forget the gradient, in the imperative mode; a program computes its gradients anew in each run."""
        raise self._no_value("has no gradient to clear", "Leave it out: each run computes the gradients anew.")

    def detach(self) -> Any:
        """Return the value without its history, in the imperative mode."""
        raise self._no_value("cannot be detached", "Set stop_gradient on a copy: layers.assign(variable).")

    def set_value(self, value: Any) -> None:
        """Replace the value of a tensor of the imperative mode; that of a variable is in the scope."""
        raise self._no_value(
            "cannot be set", "Set it in the scope: global_scope().find_var(name).get_tensor().set(...)."
        )

    def _no_value(self, what: str, hint: str = "Fetch it: executor.run(program, feed, fetch_list=[variable]).") -> Any:
        return WrongTypeError(
            f"{self.name} {what}: a variable of a program gets its value when the program runs",
            details=[str(self)],
            hint=hint,
        )

    def structure(self) -> tuple[Any, ...]:
        """Every field but the block; equal for equal variables."""
        return (
            type(self).__name__, self.name, self.tensor_type, self.kind, self.persistable, self.stop_gradient,
            self.is_data, self.need_check_feed, self.lod_level, self.error_clip,
        )  # fmt: skip

    def _copy_to(self, block: Block) -> Variable:
        twin = Variable.__new__(Variable)
        twin.block = block
        twin._take_fields(self)
        return twin

    def _take_fields(self, original: Variable) -> None:
        """Copy every field except `block`; clones copy all variables, so nothing is checked again."""
        self.name = original.name
        self.tensor_type = original.tensor_type
        self._kind = original._kind
        self._persistable = original._persistable
        self.stop_gradient = original.stop_gradient
        self.is_data = original.is_data
        self.need_check_feed = original.need_check_feed
        self.lod_level = original.lod_level
        self.error_clip = None if original.error_clip is None else copy.copy(original.error_clip)


_TRAINING = (
    "trainable", "_optimize_attr", "regularizer", "do_model_average", "need_clip", "gradient_clip", "stop_gradient",
    "error_clip",
)  # fmt: skip
"""Attributes of a parameter that a layer which shares it sets anew."""


class Parameter(Variable):
    """A persistable variable that training updates.

    Attributes
    ----------
    trainable : bool
    optimize_attr : dict
        ``{"learning_rate": factor}``.
    regularizer : object or None
        Wins over the optimizer's.
    do_model_average : bool
    need_clip : bool
        Whether an optimizer's clip concerns it (Paddle 2).
    gradient_clip : object or None
        The clip strategy that `minigraph.clip.set_gradient_clip` gave it.
    is_distributed : bool
        Fluid's mark for parameter servers, which changes nothing.
    creation : int
        Grows from parameter to parameter; a copy has that of its original.
    """

    __slots__ = (
        "_optimize_attr", "creation", "do_model_average", "gradient_clip", "is_distributed", "need_clip", "regularizer",
        "trainable",
    )  # fmt: skip

    keyword = "param"
    _creations = itertools.count()

    def __init__(
        self,
        block: Block,
        name: str,
        tensor_type: TensorType,
        *,
        trainable: bool = True,
        optimize_attr: Mapping[str, Any] | None = None,
        regularizer: Any = None,
        do_model_average: bool = True,
        need_clip: bool = True,
        gradient_clip: Any = None,
        stop_gradient: bool = False,
        error_clip: Any = None,
        lod_level: int = 0,
    ) -> None:
        super().__init__(
            block, name, tensor_type, persistable=True, stop_gradient=stop_gradient, error_clip=error_clip,
            lod_level=lod_level,
        )  # fmt: skip
        self.trainable = trainable
        self._optimize_attr = dict(optimize_attr) if optimize_attr else None
        self.regularizer = regularizer
        self.do_model_average = do_model_average
        self.need_clip = need_clip
        self.gradient_clip = gradient_clip
        self.is_distributed = False
        self.creation = next(Parameter._creations)

    @property
    def optimize_attr(self) -> dict[str, Any]:
        if self._optimize_attr is None:
            self._optimize_attr = {"learning_rate": 1.0}
        return self._optimize_attr

    @optimize_attr.setter
    def optimize_attr(self, value: Mapping[str, Any]) -> None:
        self._optimize_attr = dict(value)

    def take_attributes(self, other: Parameter) -> None:
        """Take from `other` all that says how the parameter is trained."""
        for field in _TRAINING:
            note(setattr, self, field, getattr(self, field))
            setattr(self, field, getattr(other, field))

    @property
    def gradient_clip_attr(self) -> Any:
        """Fluid's name of `gradient_clip`."""
        return self.gradient_clip

    def structure(self) -> tuple[Any, ...]:
        return (
            *super().structure(), self.trainable, tuple(sorted(self.optimize_attr.items())), self.regularizer,
            self.do_model_average, self.need_clip, self.gradient_clip, self.is_distributed,
        )  # fmt: skip

    def _copy_to(self, block: Block) -> Parameter:
        twin = Parameter.__new__(Parameter)
        twin.block = block
        twin._take_fields(self)
        twin.trainable = self.trainable
        twin._optimize_attr = None if self._optimize_attr is None else self._optimize_attr.copy()
        twin.regularizer = None if self.regularizer is None else copy.copy(self.regularizer)
        twin.do_model_average = self.do_model_average
        twin.need_clip = self.need_clip
        twin.gradient_clip = None if self.gradient_clip is None else copy.copy(self.gradient_clip)
        twin.is_distributed = self.is_distributed
        twin.creation = self.creation
        return twin


def name_of(value: Any) -> str:
    if isinstance(value, Variable):
        return value.name
    if isinstance(value, str):
        return value
    raise WrongTypeError(f"a Variable or its name is needed, got {type(value).__name__}: {value!r:.80}")
