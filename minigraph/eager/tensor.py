"""Variables that have a value: the imperative mode computes each operator when it is appended.

There is no second implementation. An `EagerBlock` takes operators like any block, checks and infers them by their
definitions, and evaluates them at once with the kernels that executors use. Computed operators are remembered.
`backward` turns them into an ordinary program, differentiates it with `minigraph.autodiff.backward`, and runs the
operators that are appended.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from minigraph.eager.shared_variable import SharedVariable
from minigraph.eager.tape import Tape, TapeStep, recording
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, caller_site, suggest, warn
from minigraph.ir import Parameter, Variable
from minigraph.kernels.sparse_rows import SparseRows, added, dense
from minigraph.opdef import GRAD_SUFFIX
from minigraph.runtime.one_element import for_user
from minigraph.runtime.scope_variable import is_rows
from minigraph.support.public import explained
from minigraph.types import TensorType, VarKind
from minigraph.unique_name import generate


class BackwardStrategy:
    """Order in which fluid adds up gradients; `Tensor.backward` takes it without effect and keeps one order always.

    Attributes
    ----------
    sort_sum_gradient : bool

    Raises
    ------
    NotFoundError
        When another field is set.
    """

    sort_sum_gradient: bool

    def __init__(self) -> None:
        self.sort_sum_gradient = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "sort_sum_gradient":
            raise NotFoundError(
                f"BackwardStrategy has no field {name!r}", site=caller_site(), hint=suggest(name, ["sort_sum_gradient"])
            )
        if not isinstance(value, bool):
            raise WrongTypeError(f"{name} must be True or False, got {value!r:.80}")
        object.__setattr__(self, name, value)


_SLOTS = ("__weakref__", "_found", "_found_for", "_grad", "_origin", "_target", "array")


class Shape(list[int]):
    """Dimensions of a tensor of the imperative mode: a list, as in fluid, that equals and joins tuples as well.

    Each read of ``x.shape`` gives another one, so that a change does not concern the tensor.

    Examples
    --------
    >>> shape = Shape((8, 3, 4))
    >>> shape == (8, 3, 4), [-1] + shape[1:], shape[:2] + (2, 2)
    (True, [-1, 3, 4], (8, 3, 2, 2))
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return list.__eq__(self, list(other) if isinstance(other, tuple) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __getitem__(self, item: Any) -> Any:
        found = list.__getitem__(self, item)
        return Shape(found) if isinstance(item, slice) else found

    def __add__(self, other: Any) -> Any:
        return (*self, *other) if isinstance(other, tuple) else [*self, *other]

    def __radd__(self, other: Any) -> Any:
        return (*other, *self) if isinstance(other, tuple) else NotImplemented


class Eager:
    """Base of the tensors and the parameters of the imperative mode.

    Attributes
    ----------
    array : array
        Value, of the place where it was computed. It is never written to: a change gives the tensor another array.
    """

    if not TYPE_CHECKING:
        # The slots are those of the subclasses, because a second base can have none.
        __slots__ = ()

    array: Any
    _grad: Tensor | None
    _found: Any
    """Array of the gradient as long as nobody has asked for the tensor: most gradients nobody looks at."""
    _found_for: Any
    """Weak reference to what it is the gradient of."""
    _origin: tuple[TapeStep, int] | None
    block: Any
    name: str
    tensor_type: TensorType | None
    stop_gradient: bool

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.array = self._grad = self._found = self._origin = None
        # Of a gradient, a weak reference to what it is the gradient of.
        self._target: Any = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Dimensions; a sparse gradient has those of the whole array."""
        shape: Any = None if self.tensor_type is None else Shape(self.tensor_type.shape)
        return shape  # serves as a tuple where variables of programs have one

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value, as a NumPy array of the caller's own; of selected rows the whole array."""
        value, place = self._held(), self.block.place
        return for_user(np.array(place.to_host(dense(place.xp, value) if is_rows(value) else value), order="C"))

    def _held(self) -> Any:
        if self.array is None:
            raise ProgramError(f"{self.name} has no value yet")
        return self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numpy(), dtype=dtype)

    def item(self) -> Any:
        """The only element, as a Python number."""
        array = self.numpy()
        if array.size != 1:
            raise ProgramError(
                f"{self.name} is no number: its shape is {list(array.shape)}",
                site=caller_site(),
                hint="Reduce it to one element, as by layers.reduce_mean, or take its array: numpy().",
            )
        return array.item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self.block.program.current_block().refuses_decisions:
            raise ProgramError(
                f"the value of {self.name} decides what a function does that is to become a program",
                hint="Choose by layers.cond or layers.where, or repeat by layers.while_loop; or use dygraph without "
                "a program.",
            )  # fmt: skip
        return bool(self.item())

    def __len__(self) -> int:
        return len(self._held())

    def __setitem__(self, item: Any, value: Any) -> None:
        raise WrongTypeError(
            f"{self.name} cannot be written to in parts", details=[str(self)],
            hint="Make a new tensor by layers.scatter(x, index, updates), or replace the whole by x.set_value(array).",
        )  # fmt: skip

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        if self.array is None:
            values = "no value yet"
        elif is_rows(self.array):
            # Not the whole array, which may be large.
            shown = (self.block.place.to_host(each) for each in (self.array.rows, self.array.value))
            values = ": ".join(np.array2string(each, separator=", ", threshold=100) for each in shown)
        else:
            values = np.array2string(self.numpy(), separator=", ", threshold=100)
        return f"{type(self).__name__}({self.name}: {self.tensor_type}, {values})"

    __str__ = __repr__

    @explained
    def set_value(self, value: Any) -> None:
        """Replace the value by one of the same shape and dtype.

        Raises
        ------
        ProgramError
            If the shape or dtype differs.
        """
        array = np.asarray(value)
        assert self.tensor_type is not None
        if array.shape != self.tensor_type.shape or array.dtype != self.tensor_type.dtype.numpy:
            raise ProgramError(
                f"{self.name} is {self.tensor_type}, it cannot be set to {array.dtype}{list(array.shape)}"
            )
        self.array = self.block.place.xp.array(array)

    def value(self) -> SharedVariable:
        """The tensor as a variable of a scope: ``x.value().get_tensor()`` reads and sets its array.

        A changed array may have another shape or dtype. `backward` does not see the change.

        Examples
        --------
        >>> from minigraph import CPUPlace, dygraph
        >>> with dygraph.guard():
        ...     x = dygraph.to_variable(np.zeros([2, 3], "float32"))
        ...     x.value().get_tensor().set(np.ones([2, 3], "float32"), CPUPlace())
        ...     float(x.numpy().sum())
        6.0
        """
        return SharedVariable(self.name, self)

    def detach(self) -> Tensor:
        """A tensor with the same value that no gradient flows through."""
        detached: Tensor = self.block.tensor(self._held(), stop_gradient=True)
        return detached

    @property
    def data(self) -> Data:
        """The value without its history, which operators on it do not record; both share the value, as in PyTorch."""
        return Data(self)

    @explained
    def mul_(self, factor: Any) -> Eager:
        """Multiply in place, by a number or a tensor, as in PyTorch; returns the tensor. `backward` does not see it.

        Raises
        ------
        ProgramError
            If the product has another shape than the tensor.
        """
        tensor: Any = self
        if not isinstance(factor, Eager):
            factor = self.block.tensor(self.block.place.xp.full(1, _as_float(factor), tensor.dtype.numpy))
        # PyTorch forbids such a change of what is recorded; here it is like `set_value`.
        with recording(False):
            if factor.array.size == 1:
                # An elementwise product would give a tensor without dimensions the factor's shape, [1].
                product = self.block.emit("scale", X=self, ScaleTensor=factor.astype(tensor.dtype))
            else:
                product = tensor * factor
        if product.shape != tensor.shape:
            raise ProgramError(f"{self.name} is {self.tensor_type}, it cannot become {product.tensor_type}")
        self.array = product.array
        return self

    def gradient(self) -> Any:
        """The gradient as a NumPy array, None if there is none.

        That of a table in which a sparse embedding has looked is a tuple, as in fluid: the values of some rows, and the
        numbers of these rows.
        """
        if self.grad is None:
            return None
        held, place = self.grad._held(), self.block.place
        if is_rows(held):
            return np.array(place.to_host(held.value)), np.array(place.to_host(held.rows))
        return self.grad.numpy()

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` has found, None if there is none. It can be set to a tensor of the same type."""
        if self._found is not None:
            self._grad = None  # so that its name is free
            self._grad = self.block.tensor(self._found, name=self.name + GRAD_SUFFIX)
            self._grad._target, self._found = self._found_for, None
        return self._grad

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        if grad is not None and not isinstance(grad, Tensor):
            raise WrongTypeError(
                f"{self.name}.grad must be a Tensor, got {type(grad).__name__}",
                hint="Make one with to_tensor or to_variable.",
            )  # fmt: skip
        if grad is not None and grad.tensor_type != self.tensor_type and not self._can_have_rows(grad):
            raise ProgramError(f"{self.name} is {self.tensor_type}, its gradient cannot be {grad.tensor_type}")
        self._grad, self._found = grad, None

    def _grad_ivar(self) -> Tensor | None:
        # Fluid has no attribute `grad`; its programs read the tensor so.
        return self.grad

    def _can_have_rows(self, grad: Tensor) -> bool:
        """Whether `grad` is selected rows that can be the gradient of this tensor."""
        return self.tensor_type is not None and grad.tensor_type == self.tensor_type.held_as(VarKind.SELECTED_ROWS)

    @explained
    def clear_gradient(self, set_to_zero: bool = True) -> None:
        """Set the gradient to zero, if there is one, or to None."""
        old, xp = self._held_grad(), self.block.place.xp
        self._grad = self._found = self._found_for = None
        if old is not None and set_to_zero:
            self._found = SparseRows(old.rows[:0], old.value[:0], old.height) if is_rows(old) else xp.zeros_like(old)

    clear_grad = clear_gradient

    @explained
    def backward(
        self,
        grad_tensor: Tensor | BackwardStrategy | None = None,
        retain_graph: bool = False,
        backward_strategy: BackwardStrategy | None = None,
    ) -> None:
        """Give every tensor that this one was computed from its gradient, as ``grad``.

        Inside `guard` it replaces the gradient of an earlier pass, as in fluid; outside, in the mode of Paddle 2, it is
        added to that.

        Parameters
        ----------
        grad_tensor : Tensor, optional
            What flows into this tensor, of its type. Default: ones. In fluid `backward_strategy` comes first, and may
            here, too.
        retain_graph, backward_strategy
            Accepted because Paddle 2 and fluid have them: computed values are kept as long as something holds the
            results, and gradients are always summed in the same order.

        Warns
        -----
        UserWarning
            If the tensor has more or less than one element and no `grad_tensor` is given; the gradients are those of
            the sum, as in fluid. If it was not computed from anything that has a gradient; nothing happens then.
        """
        seed = self._seed(grad_tensor)
        tape = Tape([self])
        sources = tape.sources()
        if not sources:
            warn(f"backward does nothing: {self.name} was computed from nothing that has a gradient")
            return
        # Where the search for the origin of a NaN begins, if an update finds one in a gradient.
        target, adds_up = weakref.ref(self), self.block.program.accumulates
        for tensor, grad in zip(sources, tape.gradients(self.block.gradient_plans, sources, [seed]), strict=True):
            if grad is not None:
                tensor._receive(grad, target, adds_up)

    def _seed(self, grad_tensor: Any) -> Any:
        if grad_tensor is None or isinstance(grad_tensor, BackwardStrategy):
            if self._held().size != 1:
                warn(
                    f"backward of {self.name}, which has {self.array.size} elements, finds the gradients of their sum: "
                    "reduce it with layers.mean or layers.reduce_sum, or give grad_tensor"
                )
            return self.block.place.xp.ones_like(self.array)
        if not isinstance(grad_tensor, Tensor) or grad_tensor.tensor_type != self.tensor_type:
            raise ProgramError(f"grad_tensor must be a Tensor {self.tensor_type}, got {grad_tensor!r:.60}")
        return grad_tensor.array

    def _receive(self, grad: Any, target: Any, adds_up: bool) -> None:
        old = self._held_grad() if adds_up else None
        self._grad, self._found = None, grad if old is None else added(self.block.place.xp, old, grad)
        self._found_for = target

    def _held_grad(self) -> Any:
        """The array of the gradient, None if there is none."""
        return self._found if self._grad is None else self._grad.array


_name = vars(Variable)["name"]
"""The slot in which a variable has its name."""


class Tensor(Eager, Variable):
    """A variable with a value; one without a name gets one, made of its key, when somebody asks for it."""

    __slots__ = (*_SLOTS, "_key")

    if not TYPE_CHECKING:  # a variable's name is a plain attribute

        def __init__(
            self,
            block: Any,
            name: str | None = None,
            tensor_type: TensorType | None = None,
            *,
            key: str = "_generated_var",
            **fields: Any,
        ) -> None:
            self.array = self._grad = self._found = self._origin = None
            # Of a gradient, a weak reference to what it is the gradient of.
            self._target = None
            self._key = key
            Variable.__init__(self, block, name, tensor_type, **fields)

        @property
        def name(self) -> str:
            try:
                return _name.__get__(self)
            except AttributeError:
                self.name = name = self.block.name_of(self, self._key)
                return name

        @name.setter
        def name(self, name: str | None) -> None:
            if name is not None:
                _name.__set__(self, name)


class EagerParameter(Eager, Parameter):
    """A parameter with a value."""

    __slots__ = _SLOTS


class Data(Tensor):
    """The value of a tensor without its history."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any) -> None:
        name = generate(f"{owner.name}.data")
        Variable.__init__(self, owner.block, name, owner.tensor_type, stop_gradient=True)
        self._owner = owner
        self._grad = self._found = self._origin = self._target = None

    @property
    def array(self) -> Any:
        return self._owner.array

    @array.setter
    def array(self, array: Any) -> None:
        self._owner.array = array


def _as_float(factor: Any) -> float:
    try:
        return float(factor)
    except (TypeError, ValueError):
        raise WrongTypeError(f"factor must be a number, got {factor!r:.60}") from None
