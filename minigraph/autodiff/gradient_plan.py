"""The operators that a backward pass will append, and the parts of which gradients are the sum.

A variable read more than once gets its partial gradients under ``@RENAME`` names and one ``sum`` right before the first
use of the total. Only when every name is final are the operators appended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minigraph import unique_name
from minigraph.errors import Site, caller_site, warn
from minigraph.ir import Block, Operator, Parameter, Role, Variable
from minigraph.opdef import GRAD_SUFFIX, definition_of
from minigraph.support.undo import note

ParamsGrads = list[tuple[Parameter, Variable]]
Callback = Callable[..., None]


@dataclass(slots=True, eq=False)
class Planned:
    """An operator to append; parts among its outputs may still be renamed."""

    type: str
    inputs: dict[str, Any]
    outputs: dict[str, list[Any]]
    """Names, and a `Part` for each gradient."""
    attrs: dict[str, Any]
    site: Site | None
    namescope: str = "/"
    is_checked: bool = False
    """Whether slots and attributes come from an operator that was checked already."""


@dataclass(slots=True, eq=False)
class Part:
    """One of the values that add up to a gradient."""

    name: str
    writer: Planned | None
    """Last operator that writes the part; None for a gradient that a sub-block is given, whose name is fixed."""


class Gradient:
    """Gradient of one variable at the current operator of the walk."""

    renames = 0
    """Number of parts renamed so far."""
    is_ready = False
    """Whether the gradient has a value here."""
    was_ready = False
    """Whether the gradient had a value after the operator that writes the variable."""
    is_seed = False
    """Whether the gradient flows in from outside."""
    computed: Gradient | None = None
    """Gradient that is written instead, for a target whose own gradient the caller gave."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[Part] = []


class GradientPlan:
    """Gradients of the variables of one block, and the operators that compute them.

    In a rule the gradient of ``v`` is ``v@GRAD`` (a `GradName`). A `Gradient` holds its name in the program, since an
    earlier pass may have taken ``v@GRAD``, and a seed has the name that the caller gave.
    """

    def __init__(self, block: Block, callbacks: Sequence[Callback], target: Block | None = None) -> None:
        self.block = block
        self.target = target or block
        """Block that gets the gradients: `block` itself, or a new one for a sub-block."""
        self.program = block.program
        if target is None:
            note(setattr, self.program, "backward_passes", self.program.backward_passes)
            self.program.backward_passes += 1
        self.callbacks = callbacks
        self._gradients: dict[str, Gradient] = {}
        """Gradients by the name of the variable."""
        self._planned: list[Planned] = []
        self._added_up: dict[Gradient, None] = {}
        """Gradients that have had parts; the sums at the end of the walk follow this order."""
        self._grad_to_var: dict[str, Any] = {}
        """Variables by gradient, for callbacks."""
        self._appended: list[Operator] = []

    # Names

    def fresh_grad(self, var: Variable, rename: Callable[[str], str]) -> Variable:
        """A new variable for the whole gradient of `var`."""
        name = var.name + GRAD_SUFFIX
        if name in self.target.vars:
            name = rename(name)
        assert var.tensor_type is not None
        return self.target.create_var(name=name, shape=var.tensor_type.shape, dtype=var.tensor_type.dtype)

    def seed(self, var_name: str, grad_name: str, given: bool = False) -> None:
        """Let the variable `grad_name` be the gradient that flows into `var_name`; `given` if the caller chose it."""
        gradient = Gradient(grad_name)
        gradient.is_ready = gradient.is_seed = True
        if given and grad_name != var_name + GRAD_SUFFIX:
            gradient.computed = Gradient(var_name + GRAD_SUFFIX)
        self._gradients[var_name] = gradient
        if self.callbacks:
            self._grad_to_var[grad_name] = var_name

    def seed_inside(self, name: str) -> None:
        """Let the gradient of `name` begin with the part that the operator that runs the block gives to it."""
        gradient = self._gradient(name)
        self._declare(gradient.name, name)
        gradient.parts = [Part(gradient.name, None)]
        gradient.is_ready = True
        self._added_up.setdefault(gradient)

    def _gradient(self, name: str) -> Gradient:
        """The gradient of the variable `name`."""
        found = self._gradients.get(name)
        if found is None:
            actual = name + GRAD_SUFFIX
            if actual in self.target.vars:
                actual = "grad/" * self.program.backward_passes + actual
                if actual in self.target.vars:
                    actual = unique_name.generate(actual)
            found = self._gradients[name] = Gradient(actual)
        return found

    def variable(self, name: str) -> Variable:
        found = self.block.find_var(name)
        assert found is not None
        return found

    def has_gradient(self, name: str) -> bool:
        """Whether a variable has a gradient at the current operator of the walk."""
        return self._gradient(name).is_ready

    # Planning

    def _complete(self, names: Sequence[str], op: Operator) -> None:
        """Complete the gradients of these variables of `op`: add up their parts, or plan zeros if there are none."""
        gradients = {name: self._gradient(name) for name in names}
        for gradient in gradients.values():
            if len(gradient.parts) > 1:
                self._add_up(gradient)
        for name, gradient in gradients.items():
            if not gradient.is_ready:
                self._plan_zeros(name, gradient, op)

    def _add_up(self, gradient: Gradient) -> None:
        """Plan the sum of a gradient's several parts."""
        last = [part.writer for part in gradient.parts if part.writer is not None][-1]
        total = Part(gradient.name, None)
        names = [part.name for part in gradient.parts]
        total.writer = Planned("sum", {"X": names}, {"Out": [total]}, {}, last.site)
        self._planned.append(total.writer)
        gradient.parts = [total]

    def _plan_zeros(self, name: str, gradient: Gradient, op: Operator) -> None:
        """Plan the gradient zero of an output `name` that the targets do not use."""
        self._declare(gradient.name, name)
        # For the gradient of a gradient, fluid takes the shape from the variable that the first gradient belongs to.
        like = self.block.find_var(name.partition(GRAD_SUFFIX)[0])
        if like is None or like.tensor_type != self.variable(name).tensor_type:
            like = self.variable(name)
        self._planned.append(Planned("fill_zeros_like", {"X": [like.name]}, {"Out": [gradient.name]}, {}, op.site))
        gradient.is_ready = True

    def _plan_one(self, planned: Planned) -> None:
        """Plan an operator, and replace each gradient among its outputs by a new part."""
        self._planned.append(planned)
        for slot, results in sorted(planned.outputs.items()):  # fluid's order, in which sums follow in the end
            for position, gradient in enumerate(results):
                if isinstance(gradient, Gradient):
                    results[position] = self._new_part(gradient, planned, slot)

    def _gradient_to_write(self, name: str) -> Gradient:
        """The gradient of the variable `name` for an operator that writes it; its variable is declared now."""
        gradient = self._gradient(name)
        if gradient.is_seed:
            _warn_dependent_target(name)
        gradient = gradient.computed or gradient
        self._declare(gradient.name, name)
        return gradient

    def _new_part(self, gradient: Gradient, writer: Planned, slot: str) -> Part:
        """Note that `writer` writes a part of a gradient to `slot`."""
        parts = gradient.parts
        gradient.is_ready = True
        self._added_up.setdefault(gradient)
        if parts and slot in definition_of(writer.type).updates:  # adds to the elements that an array has already
            parts[-1].writer = writer
            return parts[-1]
        parts.append(Part(gradient.name, writer))
        # A first part has the name of the gradient and loses it when a second one comes, as in fluid.
        if len(parts) == 2:
            self._rename_part(gradient, parts[0])
        if len(parts) > 1:
            self._rename_part(gradient, parts[-1])
        return parts[-1]

    def _rename_part(self, gradient: Gradient, part: Part) -> None:
        if part.writer is None:
            return
        part.name = f"{gradient.name}@RENAME@block{self.block.idx}@{gradient.renames}"
        gradient.renames += 1
        whole = self.target.var(gradient.name).tensor_type
        assert whole is not None
        self.target.create_var(name=part.name, shape=whole.shape, dtype=whole.dtype, type=whole.kind)

    def _declare(self, grad: str, forward: str) -> None:
        if grad not in self.target.vars:
            tensor_type = self.variable(forward).tensor_type
            assert tensor_type is not None
            self.target.declare(grad, tensor_type)
        if self.callbacks:
            self._grad_to_var[grad] = forward

    # Appending

    def append(
        self,
        type: str,
        inputs: dict[str, Any],
        outputs: dict[str, Any],
        attrs: Any,
        site: Any = None,
        namescope: str = "/",
    ) -> Operator:
        """Append an operator with the given source line, that of the operator whose gradient it computes."""
        op = self.target._make_op(type, inputs, outputs, {**attrs, "op_namescope": namescope}, site or caller_site())
        return self._link(op)

    def _append_all(self) -> None:
        """Add up the gradients that are still in parts, and append all planned operators.

        A gradient that no operator of the walk reads, such as that of a parameter, is still in parts.
        """
        for gradient in self._added_up:
            if len(gradient.parts) > 1:
                self._add_up(gradient)
        with self.program.role_guard(Role.BACKWARD):
            for planned in self._planned:
                self._append_planned(planned)

    def _append_planned(self, planned: Planned) -> None:
        outputs = {
            slot: tuple([name if isinstance(name, str) else name.name for name in names])
            for slot, names in planned.outputs.items()
        }
        if not planned.is_checked:
            made = self.append(planned.type, planned.inputs, outputs, planned.attrs, planned.site, planned.namescope)
        else:
            role, role_vars = self.program.current_role, self.program._role_vars
            definition = definition_of(planned.type)
            made = self._link(
                Operator(
                    definition, planned.inputs, outputs, planned.attrs, role, role_vars, planned.namescope, planned.site
                )
            )
        if self.callbacks:
            self._finish(made)

    def _link(self, op: Operator) -> Operator:
        self.target.infer(op)
        self.target._link(None, op)
        self._appended.append(op)
        return op

    def _finish(self, op: Operator) -> None:
        self._grad_to_var["__current_op_desc__"] = op
        for callback in self.callbacks:
            callback(block=self.target, context=self._grad_to_var)

    # Results

    def gradient_of(self, var: Variable) -> Variable | None:
        """The gradient of the first value of `var` that has one; for parameters and data, of the value from outside."""
        gradient = self._gradients.get(var.name)
        if gradient is None:
            return None
        is_there = gradient.is_ready or (gradient.was_ready and not (var.persistable or var.is_data))
        return self.target.vars[gradient.name] if is_there else None

    def params_grads(self, params: Sequence[Parameter]) -> ParamsGrads:
        pairs = [(param, grad) for param in params if (grad := self.gradient_of(param)) is not None]
        producers = self._producers({grad.name for _, grad in pairs})
        for param, grad in pairs:
            producer = producers[grad.name]
            producer.role_vars = (param.name, grad.name, *producer.role_vars)
        return pairs

    def _producers(self, grads: set[str]) -> dict[str, Operator]:
        """The operator that completes each of `grads`: the last one that writes it."""
        return {name: op for op in self._appended for name in op.output_arg_names if name in grads}


def _warn_dependent_target(target: str) -> None:
    warn(
        f"gradients: another target depends on the target {target}; as in fluid the two do not add up: the gradient of "
        f"{target} is the target gradient given for it, or, with none given, what flows back from the other target. "
        "Add up the targets first to get the gradient of their sum."
    )
