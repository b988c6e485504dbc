"""Walk backward over a block: plan the operators that gradient rules return, then append them.

A variable read more than once gets its partial gradients under ``@RENAME`` names and one ``sum`` right before the first
use of the total. Only when every name is final are the operators appended. Everything is linear in the number of
operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from minigraph import unique_name
from minigraph.autodiff.block_gradients import differentiate_call
from minigraph.autodiff.decompositions import needs_rewriting, rewrite
from minigraph.autodiff.overwritten import Overwritten, separate_types
from minigraph.autodiff.path import operators_between, warn_of_stopped_loops
from minigraph.errors import ProgramError, Site, caller_site, warn
from minigraph.ir import Block, Operator, Parameter, Role, Variable
from minigraph.ir.effects import is_count, rename
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK, definition_of
from minigraph.opdef.gradient_context import BlockGrad, GradContext, GradName, GradRule, OpSpec
from minigraph.opdef.gradient_rules import DoubleGrad, FusedGrad
from minigraph.support.undo import note

ParamsGrads = list[tuple[Parameter, Variable]]
Callback = Callable[..., None]


@dataclass(slots=True, eq=False)
class _Planned:
    """An operator to append; parts among its outputs may still be renamed."""

    type: str
    inputs: dict[str, Any]
    outputs: dict[str, list[Any]]
    """Names, and a `_Part` for each gradient."""
    attrs: dict[str, Any]
    site: Site | None
    namescope: str = "/"
    is_checked: bool = False
    """Slots and attributes are those of an operator that was checked, so they need not be again."""


@dataclass(slots=True, eq=False)
class _Part:
    """One of the values that add up to a gradient."""

    name: str
    writer: _Planned | None
    """Last operator that writes the part; None for a gradient that a sub-block is given, whose name is fixed."""


class _Gradient:
    """Gradient of one variable at the current operator of the walk."""

    renames = 0
    """Number of parts renamed so far."""
    is_ready = False
    """Whether the gradient has a value here."""
    was_ready = False
    """Whether the gradient had a value after the operator that writes the variable."""
    is_seed = False
    """Whether the gradient flows in from outside."""
    computed: _Gradient | None = None
    """Gradient that is written instead, for a target whose own gradient the caller gave."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[_Part] = []


class BackwardPass:
    """One walk backward over a block.

    In a rule the gradient of ``v`` is ``v@GRAD`` (a `GradName`). A `_Gradient` holds its name in the program, since an
    earlier pass may have taken ``v@GRAD``, and a seed has the name that the caller gave.
    """

    def __init__(
        self, block: Block, no_grad: set[str], callbacks: Sequence[Callback], target: Block | None = None
    ) -> None:
        self.block = block
        self.target = target or block
        """Block that gets the gradients: `block` itself, or a new one for a sub-block."""
        self.program = block.program
        if target is None:
            note(setattr, self.program, "backward_passes", self.program.backward_passes)
            self.program.backward_passes += 1
        self.no_grad = no_grad
        self.callbacks = callbacks
        self._gradients: dict[str, _Gradient] = {}
        """Gradients by the name of the variable."""
        self._planned: list[_Planned] = []
        self._added_up: dict[_Gradient, None] = {}
        """Gradients that have had parts; the sums at the end of the walk follow this order."""
        self._grad_to_var: dict[str, Any] = {}
        """Variables by gradient, for callbacks."""
        self._appended: list[Operator] = []
        self._overwritten = Overwritten(block)
        self._asks_for_inputs = False

    # Names

    def fresh_grad(self, var: Variable, rename: Callable[[str], str]) -> Variable:
        """A new variable for the whole gradient of `var`."""
        name = var.name + GRAD_SUFFIX
        if name in self.target.vars:
            name = rename(name)
        assert var.tensor_type is not None
        return self.target.create_var(name=name, shape=var.tensor_type.shape, dtype=var.tensor_type.dtype)

    def seed(self, var_name: str, grad_name: str, given: bool = False) -> None:
        """The gradient that flows into `var_name` is the variable `grad_name`; `given` by the caller or made here."""
        gradient = _Gradient(grad_name)
        gradient.is_ready = gradient.is_seed = True
        if given and grad_name != var_name + GRAD_SUFFIX:
            gradient.computed = _Gradient(var_name + GRAD_SUFFIX)
        self._gradients[var_name] = gradient
        if self.callbacks:
            self._grad_to_var[grad_name] = var_name

    def _gradient(self, name: str) -> _Gradient:
        """The gradient of the variable `name`."""
        found = self._gradients.get(name)
        if found is None:
            actual = name + GRAD_SUFFIX
            if actual in self.target.vars:
                actual = "grad/" * self.program.backward_passes + actual
                if actual in self.target.vars:
                    actual = unique_name.generate(actual)
            found = self._gradients[name] = _Gradient(actual)
        return found

    def is_no_grad(self, name: str) -> bool:
        """Whether no gradient flows to a variable."""
        var = self.block.find_var(name)
        if var is None or var.stop_gradient or var.tensor_type is None:
            return True
        return not var.tensor_type.dtype.is_floating or name in self.no_grad

    # The walk

    def run(self, targets: Sequence[Variable], inputs: set[str] | None) -> None:
        self._asks_for_inputs = inputs is not None
        path = self._path(targets, inputs)
        warn_of_stopped_loops(self.block, path, targets)
        if self._overwritten.names:
            self._walk_over_all(set(path))
        else:
            for op in reversed(path):
                self._differentiate(op)
        # Gradients that no operator on the path reads, such as those of parameters, are still in parts here.
        for gradient in self._added_up:
            if len(gradient.parts) > 1:
                self._add_up(gradient)
        with self.program.role_guard(Role.BACKWARD):
            for planned in self._planned:
                self._append_planned(planned)

    def _walk_over_all(self, path: set[Operator]) -> None:
        """Walk over all operators: if variables have several values, any operator may end one of them."""
        for op in reversed(self.block.ops):
            if op in path:
                self._differentiate(op)
            elif self.target is not self.block and is_count(op, self.block):
                self._plan_counting_back(op)
            self._leave(op, is_on_path=op in path)

    def _path(self, targets: Sequence[Variable], inputs: set[str] | None) -> list[Operator]:
        """The operators to differentiate, in order, after rewriting those that cannot be differentiated as they are."""

        def find() -> list[Operator]:
            return operators_between(self.block, {t.name for t in targets}, inputs, self.is_no_grad)

        path = find()
        has_rewrites = any(map(needs_rewriting, path))
        has_blocks = any(SUB_BLOCK in op.attrs for op in path)
        if self._overwritten.names and (has_rewrites or has_blocks):
            separate_types(self.block)
        elif not has_rewrites:
            return path
        rewrite(self.block, path)
        self._overwritten = Overwritten(self.block)
        return find()

    def _differentiate(self, op: Operator) -> None:
        rule = op.definition.grad
        if isinstance(rule, FusedGrad):
            self._differentiate_fused(op, rule)
        elif isinstance(rule, BlockGrad):
            differentiate_call(self, op, rule)
        else:
            assert callable(rule)
            self._differentiate_by_specs(op, rule)

    def _differentiate_by_specs(self, op: Operator, rule: GradRule) -> None:
        found = list(rule(GradContext(op, self.is_no_grad)))
        specs = [spec for spec in found if self._is_wanted(spec)]
        if isinstance(rule, DoubleGrad) and self._asks_for_inputs:  # otherwise fluid makes zeros
            specs = [self._without_absent(spec) for spec in specs]
        self._complete(_flowing_into(*specs), op)
        self._refuse_to_lose(op, _flowing_into(*found))
        self._plan([self._overwritten.checked(spec, op) for spec in specs], op)

    def _differentiate_fused(self, op: Operator, rule: FusedGrad) -> None:
        """Plan the one operator of a fused rule, without an `OpSpec`: most gradients are made here."""
        if rule.check is not None:
            rule.check(op)
        read = [name for slot, _ in rule.flowing for name in op.outputs.get(slot, ())]
        if not rule.reads_all:
            self._refuse_to_lose(op, read)
        flowing = rule.flowing
        if rule.optional:
            flowing = tuple(each for each in flowing if each[0] not in rule.optional or self._is_reached(op, each[0]))
            read = [name for slot, _ in flowing for name in op.outputs.get(slot, ())]
        wanted = self._wanted_of(op, rule)
        is_reached = wanted and any([self._gradient(name).is_ready for name in read])
        # Sums belong to the values that `op` writes, so they come before these values end.
        if is_reached:
            self._complete(read, op)
        if self._overwritten.names:
            self._end_values(op)
        if not is_reached:
            return
        inputs: dict[str, Any] = {}
        for slot, is_input in rule.values:
            names = (op.inputs if is_input else op.outputs).get(slot)
            if names:
                inputs[slot] = self._overwritten.kept_in_slot(slot, names, op) if self._overwritten.names else names
        for slot, d_slot in flowing:
            inputs[d_slot] = tuple([self._gradients[name].name for name in op.outputs[slot]])
        results = {
            d_slot: [EMPTY if name == EMPTY else self._gradient_to_write(name) for name in names]
            for d_slot, names in wanted.items()
        }
        self._plan_one(_Planned(rule.type, inputs, results, op.attrs.copy(), op.site, op.namescope, is_checked=True))

    def _is_reached(self, op: Operator, slot: str) -> bool:
        """Whether a gradient flows into what is in an output slot."""
        return any(self._gradient(name).is_ready for name in op.outputs.get(slot, ()))

    def _wanted_of(self, op: Operator, rule: FusedGrad) -> dict[str, list[str]]:
        """Variables whose gradients a gradient operator computes, by its output slot; empty if there are none."""
        wanted, is_any = {}, False
        for slot, d_slot, is_list in rule.results:
            names = [EMPTY if self.is_no_grad(name) else name for name in op.inputs.get(slot, ())]
            flows = names.count(EMPTY) < len(names)
            # A slot of one variable without a gradient is left out; in a list its place must be kept.
            if flows or (is_list and names):
                wanted[d_slot] = names
            is_any = is_any or flows
        return wanted if is_any else {}

    def _complete(self, names: Sequence[str], op: Operator) -> None:
        """Complete the gradients of these variables of `op`: add up their parts, or plan zeros if there are none."""
        gradients = {name: self._gradient(name) for name in names}
        for gradient in gradients.values():
            if len(gradient.parts) > 1:
                self._add_up(gradient)
        for name, gradient in gradients.items():
            if not gradient.is_ready:
                self._plan_zeros(name, gradient, op)

    def _plan(self, specs: Sequence[OpSpec], op: Operator) -> None:
        self._end_values(op)
        for spec in specs:
            self._plan_spec(spec, op)

    def _end_values(self, op: Operator) -> None:
        """End the gradients of what `op` overwrites: parts found from here on belong to the value before."""
        for gradient in self._overwritten_by(op):
            gradient.parts = []
            gradient.is_seed = False
            self._added_up.setdefault(gradient)

    def _is_wanted(self, spec: OpSpec) -> bool:
        """Whether `spec` computes something from a gradient that there is."""
        if all(name == EMPTY for names in spec.outputs.values() for name in names):
            return False
        flowing = _flowing_into(spec)
        return not flowing or any(self._gradient(name).is_ready for name in flowing)

    def _without_absent(self, spec: OpSpec) -> OpSpec:
        """Drop the dispensable inputs of `spec` whose gradients have no value."""
        slots = definition_of(spec.type).input_slots
        inputs = {
            slot: names
            for slot, names in spec.inputs.items()
            if not slots[slot].dispensable
            or not all(isinstance(name, GradName) and not self._gradient(name.variable).is_ready for name in names)
        }
        return spec._replace(inputs=inputs)

    def _refuse_to_lose(self, op: Operator, read: Sequence[str]) -> None:
        """Raise if a gradient flows into an output of `op` and is lost: the output is not in `read`."""
        if all(map(self.is_no_grad, op.input_arg_names)):
            return
        for name in op.output_arg_names:
            gradient = self._gradients.get(name)
            if gradient is not None and gradient.is_ready and name not in read:
                raise ProgramError(
                    f"{op.type} passes no gradient on from its output {name}",
                    site=op.site,
                    hint=f"Set stop_gradient=True on {name} to treat it as a constant.",
                )

    def _overwritten_by(self, op: Operator) -> list[_Gradient]:
        """The gradients of the outputs of `op` that are not the variable's first value."""
        ended = self._overwritten.ended_by(op)
        return [self._gradients[name] for name in op.output_arg_names if name in ended and name in self._gradients]

    def _leave(self, op: Operator, is_on_path: bool) -> None:
        """Go past `op`: its outputs have another value before it, or none, and so do their gradients."""
        for gradient in self._overwritten_by(op):
            if not is_on_path:
                gradient.parts = []
            if not gradient.parts:
                gradient.is_ready, gradient.was_ready = False, True

    def _plan_zeros(self, name: str, gradient: _Gradient, op: Operator) -> None:
        """Plan the gradient zero of an output `name` that the targets do not use."""
        self._declare(gradient.name, name)
        # For the gradient of a gradient, fluid takes the shape from the variable that the first gradient belongs to.
        like = self.block.find_var(name.partition(GRAD_SUFFIX)[0])
        if like is None or like.tensor_type != self.variable(name).tensor_type:
            like = self.variable(name)
        self._planned.append(_Planned("fill_zeros_like", {"X": [like.name]}, {"Out": [gradient.name]}, {}, op.site))
        gradient.is_ready = True

    def _plan_spec(self, spec: OpSpec, forward: Operator) -> None:
        inputs = {
            slot: [self._gradient(name.variable).name if isinstance(name, GradName) else name for name in names]
            for slot, names in spec.inputs.items()
        }
        slots = definition_of(spec.type).output_slots
        # A slot of one variable without a gradient is left out; in a list its place must be kept.
        results = {
            slot: list(map(self._result, names))
            for slot, names in spec.outputs.items()
            if names and (slots[slot].duplicable or names[0] != EMPTY)
        }
        self._plan_one(_Planned(spec.type, inputs, results, dict(spec.attrs), forward.site, forward.namescope))

    def _plan_one(self, planned: _Planned) -> None:
        """Plan an operator, and replace each gradient among its outputs by a new part."""
        self._planned.append(planned)
        for slot, results in sorted(planned.outputs.items()):  # fluid's order, in which sums follow in the end
            for position, gradient in enumerate(results):
                if isinstance(gradient, _Gradient):
                    results[position] = self._new_part(gradient, planned, slot)

    def _result(self, name: str) -> str | _Gradient:
        """The program's variable or gradient for a name in a rule's spec; it is declared now."""
        if name == EMPTY:
            return EMPTY
        if isinstance(name, GradName):
            return self._gradient_to_write(name.variable)
        return self.target.create_var(name=name).name

    def _gradient_to_write(self, name: str) -> _Gradient:
        """The gradient of the variable `name` for an operator that writes it; its variable is declared now."""
        gradient = self._gradient(name)
        if gradient.is_seed:
            _warn_dependent_target(name)
        gradient = gradient.computed or gradient
        self._declare(gradient.name, name)
        return gradient

    def _new_part(self, gradient: _Gradient, writer: _Planned, slot: str) -> _Part:
        """Note that `writer` writes a part of a gradient to `slot`."""
        parts = gradient.parts
        gradient.is_ready = True
        self._added_up.setdefault(gradient)
        if parts and slot in definition_of(writer.type).updates:  # adds to the elements that an array has already
            parts[-1].writer = writer
            return parts[-1]
        parts.append(_Part(gradient.name, writer))
        # A first part has the name of the gradient and loses it when a second one comes, as in fluid.
        if len(parts) == 2:
            self._rename_part(gradient, parts[0])
        if len(parts) > 1:
            self._rename_part(gradient, parts[-1])
        return parts[-1]

    def _rename_part(self, gradient: _Gradient, part: _Part) -> None:
        if part.writer is None:
            return
        part.name = f"{gradient.name}@RENAME@block{self.block.idx}@{gradient.renames}"
        gradient.renames += 1
        whole = self.target.var(gradient.name).tensor_type
        assert whole is not None
        self.target.create_var(name=part.name, shape=whole.shape, dtype=whole.dtype, type=whole.kind)

    def _add_up(self, gradient: _Gradient) -> None:
        """Plan the sum of a gradient's several parts."""
        last = [part.writer for part in gradient.parts if part.writer is not None][-1]
        total = _Part(gradient.name, None)
        names = [part.name for part in gradient.parts]
        total.writer = _Planned("sum", {"X": names}, {"Out": [total]}, {}, last.site)
        self._planned.append(total.writer)
        gradient.parts = [total]

    # Sub-blocks

    def variable(self, name: str) -> Variable:
        found = self.block.find_var(name)
        assert found is not None
        return found

    def has_gradient(self, name: str) -> bool:
        """Whether a variable has a gradient at the current operator of the walk."""
        return self._gradient(name).is_ready

    def inside(self, forward: Block) -> BackwardPass:
        """A walk over a sub-block, whose gradients go to a new block."""
        target = Block(self.program, len(self.program.blocks), self.target.idx, forward.idx)
        self.program.add_block(target)
        return BackwardPass(forward, self.no_grad, self.callbacks, target)

    def inside_needs(self, forward: Block, targets: Sequence[str]) -> set[str]:
        """The variables on whose values those of `targets` depend differentiably, in one run of a sub-block."""
        is_no_grad = BackwardPass(forward, self.no_grad, (), self.target).is_no_grad
        path = operators_between(forward, set(targets), None, is_no_grad)
        return {name for op in path for name in op.input_arg_names if not is_no_grad(name)}

    def seed_inside(self, name: str) -> None:
        """Let the gradient of `name` begin with the part that the operator that runs the block gives to it."""
        gradient = self._gradient(name)
        self._declare(gradient.name, name)
        gradient.parts = [_Part(gradient.name, None)]
        gradient.is_ready = True
        self._added_up.setdefault(gradient)

    def has_value_before(self, name: str, op: Operator) -> bool:
        """Whether a variable has a value where `op` stands."""
        var, overwritten = self.variable(name), self._overwritten
        if var.block is not self.block or var.persistable or var.is_data:
            return True
        return any(overwritten.position[each] < overwritten.position[op] for each in overwritten.writers.get(name, ()))

    def plan_call(
        self, op: Operator, spec: OpSpec, gradients: Block, needed: Iterable[str], counters: Iterable[str] = ()
    ) -> None:
        """Plan the operator that runs `gradients`, the block of gradients of `op`.

        The operator also reads the variables `needed`. Of these it counts the `counters` back to where they started.
        """
        overwritten, back = self._overwritten, set(counters)
        for name in needed:
            kept = overwritten.kept(name, op, is_result=name in back)
            if kept != name:
                rename(gradients, {name: kept})
            elif name in back:
                overwritten.restored.add((op, name))
        self._complete(_flowing_into(spec), op)
        self._plan([spec], op)

    def _plan_counting_back(self, op: Operator) -> None:
        names = [op.outputs["Out"][0]]
        attrs = {"step": -op.attr("step")}
        self._planned.append(_Planned("increment", {"X": names}, {"Out": list(names)}, attrs, op.site, op.namescope))

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

    def _append_planned(self, planned: _Planned) -> None:
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

    def _declare(self, grad: str, forward: str) -> None:
        if grad not in self.target.vars:
            tensor_type = self.variable(forward).tensor_type
            assert tensor_type is not None
            self.target.declare(grad, tensor_type)
        if self.callbacks:
            self._grad_to_var[grad] = forward

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


def _flowing_into(*specs: OpSpec) -> list[str]:
    """The variables whose gradients these operators read."""
    inputs = (names for spec in specs for names in spec.inputs.values())
    return [name.variable for names in inputs for name in names if isinstance(name, GradName)]


def _warn_dependent_target(target: str) -> None:
    warn(
        f"gradients: another target depends on the target {target}; as in fluid the two do not add up: the gradient of "
        f"{target} is the target gradient given for it, or, with none given, what flows back from the other target. "
        "Add up the targets first to get the gradient of their sum."
    )
