"""The function that a step calls: the kernel of its operator, or a faster one for its shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from minigraph.kernels import find_specializer, takes_any_size
from minigraph.kernels.numbers import are_numbers, on_numbers
from minigraph.kernels.registry import KERNEL, LOOP
from minigraph.lowering.steps import Step, Value, types_of_inputs
from minigraph.runtime.kernel_call import keywords_of
from minigraph.runtime.place import Place
from minigraph.types import TensorType

OWN = "own"
"""Kind of functions that make arrays for the caller."""


class Function(NamedTuple):
    """Callable of a step."""

    call: Callable[..., Any]
    name: str
    """Name in the source, with a number after it if another function has the name."""
    takes_xp: bool
    constants: dict[str, Any]
    """Keyword arguments that are the same in every run."""
    kind: str = KERNEL
    """KERNEL or LOOP by whose bits it gives, in memory that the plan chooses; OWN if it chooses memory itself."""


class FunctionKey(NamedTuple):
    """Everything that the function of a step depends on."""

    is_on_numbers: bool
    op_type: str
    kernel: int
    attrs: str
    in_place: bool
    types: Any
    """Numbers of the types; equal types have one number."""


class FunctionChoice:
    """Functions for the steps of a plan; steps of equal keys share one.

    Parameters
    ----------
    place : Place
    jit : bool
        Whether steps may call loops that numba compiles.
    own : mapping
        Functions of steps whose results all go to the caller.
    run_body : callable
        Makes the function for a step of control flow.
    numbers : mapping, optional
        Numbers of types in keys that are given.
    """

    def __init__(
        self,
        place: Place,
        jit: bool,
        own: Mapping[Step, Callable[..., Any]],
        run_body: Callable[[Step], Callable[..., Any]],
        numbers: Mapping[TensorType, int] | None = None,
    ) -> None:
        self._place, self._jit, self._own, self._run_body = place, jit and place.kind == "cpu", own, run_body
        self.numbers: dict[TensorType, int] = dict(numbers or {})
        """Numbers of types, by which keys are compared: a type takes longer."""
        self._number_of: dict[int, int] = {}
        """The same by `id` of the type."""
        self._found: dict[FunctionKey, Function] = {}
        self._offers_to: dict[tuple[str, bool, bool], Sequence[tuple[str, Callable[..., Any]]]] = {}
        """Results of `_offers`, by type of operator, whether state is written over, and whether there are rows."""

    def keep(self, key: FunctionKey, function: Function) -> None:
        """Let steps of a key call a function that is known."""
        self._found[key] = function

    def of(self, step: Step, like: FunctionKey | None = None, keywords: dict[str, Any] | None = None) -> Function:
        """Choose the kernel, or a faster function for these shapes.

        `like` and `keywords`, those of the kernel's call, are of a step like it in a plan for other sizes.
        """
        if step.call is not None:  # `while` is a keyword, so the name has a prefix
            return Function(self._run_body(step), f"run_{step.op.type}", True, {})
        own = self._own.get(step)
        if own is not None:
            return Function(own, f"own_{step.op.type}", False, {}, OWN)
        key = self.key(step, like)
        found = self._found.get(key)
        if found is None:
            op, kernel = step.op, step.kernel
            keywords = keywords_of(op, kernel) if keywords is None else keywords
            if key.is_on_numbers:
                found = Function(on_numbers(kernel.function), op.type, True, keywords)
            else:
                found = self._specialized(step, keywords) or Function(kernel.function, op.type, True, keywords)
            if keywords.keys() <= {*op.definition.attrs, "wanted"}:  # other keywords belong to this operator alone
                self._found[key] = found
        return found

    def key(self, step: Step, like: FunctionKey | None = None) -> FunctionKey:
        """The key of a step: steps with equal keys call the same function."""
        if like is not None:  # a dimension of what it reads or writes has another size
            types = None if like.types is None else self._types(step)
            return FunctionKey(False, like.op_type, like.kernel, like.attrs, like.in_place, types)
        is_on_numbers = are_numbers([value.tensor_type.shape for value in (*step.reads, *step.writes)])
        op, kernel = step.op, step.kernel
        # As text, because 1 == 1.0 == True and 0.0 == -0.0.
        attrs = repr(op.attrs) if op.attrs else ""
        return FunctionKey(is_on_numbers, op.type, id(kernel), attrs, step.in_place, self._types(step))

    def _types(self, step: Step) -> Any:
        """The types of all that `step` reads and writes, if what is called for it may depend on them; else None."""
        if not (self._offers(step) or step.kernel.takes_wanted):
            return None
        number = self._number
        inputs = [number(entry) if isinstance(entry, Value) else self._of_list(entry) for entry in step.inputs]
        return *inputs, *[self._of_list(values) for values in step.outputs]

    def _of_list(self, entry: Sequence[Value | None] | None) -> Any:
        number = self._number
        return None if entry is None else tuple([None if value is None else number(value) for value in entry])

    def _number(self, value: Value) -> int:
        found = self._number_of.get(id(value.tensor_type))
        if found is None:
            found = self.numbers.setdefault(value.tensor_type, len(self.numbers))
            self._number_of[id(value.tensor_type)] = found
        return found

    def _offers(self, step: Step) -> Sequence[tuple[str, Callable[..., Any]]]:
        """Specializers that may offer a faster function, in the order in which they are asked."""
        key = type, in_place, for_rows = step.op.type, step.in_place, step.kernel.for_rows
        offers = self._offers_to.get(key)
        if offers is None:
            found = list[tuple[str, Any]]()
            if self._jit:
                found.append(("jit", find_specializer(type, jit=True, rows=for_rows)))
            if not (in_place or for_rows):  # only compiled loops may write over an input, see `specialize`
                found.append(("fast", find_specializer(type)))
            offers = self._offers_to[key] = [(kind, offer) for kind, offer in found if offer is not None]
        return offers

    def _specialized(self, step: Step, keywords: dict[str, Any]) -> Function | None:
        """A faster function for these shapes, if the operator has one."""
        has_sizes = step.has_known_sizes or step.kernel.for_rows
        arguments = types_of_inputs(step)
        for kind, offer in self._offers(step):
            if not (has_sizes or takes_any_size(offer)) or (kind == "jit" and _is_left_to_tables(step)):
                continue
            function = offer(self._place.xp, *arguments, **keywords)
            if function is not None:
                return Function(function, f"{kind}_{step.op.type}", False, {}, LOOP if kind == "jit" else KERNEL)
        return None


def _is_left_to_tables(step: Step) -> bool:
    """Whether a table of C calls computes a step on arrays this small, see `minigraph.lowering.native_segments`."""
    from minigraph.kernels.jit.recorders import is_small  # late: only executors that compile ask

    shapes = [value.tensor_type.shape for value in (*step.reads, *step.writes)]
    return not step.kernel.for_rows and is_small(step.op.type, shapes, step.op.attrs)
