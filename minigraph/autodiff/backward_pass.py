"""One walk backward over a block, which plans what the gradient rules of its operators return and appends that.

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
from minigraph.autodiff.decompositions import has_rule, rewrite
from minigraph.autodiff.overwritten import Overwritten, separate_types
from minigraph.autodiff.path import operators_between, warn_of_stopped_loops
from minigraph.errors import ProgramError, Site, caller_site, warn
from minigraph.ir import Block, Operator, Parameter, Role, Variable, infer_outputs
from minigraph.ir.effects import is_count, rename
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK, definition_of
from minigraph.opdef.gradient_context import BlockGrad, GradContext, GradName, OpSpec
from minigraph.opdef.gradient_rules import DoubleGrad, FusedGrad, FusedRecipe
from minigraph.passes.fuse_global_norm import FuseGlobalNorm
from minigraph.support.undo import note

ParamsGrads = list[tuple[Parameter, Variable]]
Callback = Callable[..., None]


@dataclass(slots=True)
class _Planned:
    """An operator to append; its outputs may still be renamed."""

    type: str
    inputs: dict[str, Any]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any]
    site: Site | None
    namescope: str = "/"
    is_checked: bool = False
    """Slots and attributes are those of an operator that was checked, so they need not be again."""


@dataclass(slots=True)
class _Part:
    """One of the values that add up to a gradient: what it is called, and where it is written."""

    name: str
    places: list[tuple[_Planned, str, int]]
    """Operator, slot and position; none for what a sub-block is given, whose name is fixed."""


class BackwardPass:
    """One walk backward over a block.

    A rule speaks of the gradient of ``v`` as ``v@GRAD`` (a `GradName`). What that is called in the program is kept in
    `_actual`: an earlier pass may have taken the name, and a seed has the name that the caller gave.
    """

    def __init__(
        self, block: Block, no_grad: set[str], callbacks: Sequence[Callback], target: Block | None = None
    ) -> None:
        self.block = block
        self.target = target or block
        """Where the gradients go: behind what they are gradients of, or into a block for them."""
        self.program = block.program
        if target is None:
            note(setattr, self.program, "backward_passes", self.program.backward_passes)
            self.program.backward_passes += 1
        self.no_grad = no_grad
        self.callbacks = callbacks
        self._given: set[str] = set()
        """Variables the value of whose gradient the caller gave."""
        self._seeds: set[str] = set()
        """Variables that a gradient flows into from outside."""
        self._actual: dict[str, str] = {}
        """Variable -> name of its gradient in the program."""
        self._planned: list[_Planned] = []
        self._parts: dict[str, list[_Part]] = {}
        """Gradient name in the program -> its parts."""
        self._renames: dict[str, int] = {}
        self._ready: set[str] = set()
        """Gradients (in the program's words) that have a value, as far as the walk has come."""
        self._left: set[str] = set()
        """Gradients that have had one until the walk came to where the variable gets its value."""
        self._grad_to_var: dict[str, Any] = {}
        """What callbacks get to see."""
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
        self._actual[var_name] = grad_name
        if given:
            self._given.add(var_name)
        self._seeds.add(var_name)
        self._ready.add(grad_name)
        if self.callbacks:
            self._grad_to_var[grad_name] = var_name

    def _resolve(self, name: str) -> str:
        """The program's name for a name in a rule's spec."""
        return self._gradient(name.variable) if isinstance(name, GradName) else name

    def _gradient(self, name: str) -> str:
        """What the gradient of the variable `name` is called in the program."""
        actual = self._actual.get(name)
        if actual is None:
            actual = name + GRAD_SUFFIX
            if actual in self.target.vars:
                actual = "grad/" * self.program.backward_passes + actual
                if actual in self.target.vars:
                    actual = unique_name.generate(actual)
            self._actual[name] = actual
        return actual

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
        for grad_name in list(self._parts):
            self._add_up(grad_name)
        with self.program.role_guard(Role.BACKWARD):
            for planned in self._planned:
                self._append_planned(planned)

    def _walk_over_all(self, path: set[Operator]) -> None:
        """Where variables have several values, every operator may be the end of one."""
        for op in reversed(self.block.ops):
            if op in path:
                self._differentiate(op)
            elif self.target is not self.block and is_count(op, self.block):
                self._plan_counting_back(op)
            self._leave(op, is_on_path=op in path)

    def _path(self, targets: Sequence[Variable], inputs: set[str] | None) -> list[Operator]:
        """The operators to differentiate, in order, once those that have to be are rewritten as others."""

        def find() -> list[Operator]:
            return operators_between(self.block, {t.name for t in targets}, inputs, self.is_no_grad)

        path = find()
        gradient_ops = [op for op in path if has_rule(op)]
        # The gradient of fluid's chain for a global norm is NaN at zero, that of the one operator is not.
        has_chain = any(op.type == "sqrt" and op.role & Role.CLIP for op in path)
        has_blocks = any(SUB_BLOCK in op.attrs for op in path)
        separates = self._overwritten.names and (gradient_ops or has_blocks)
        if not separates and not gradient_ops and not has_chain:
            return path
        if separates:
            separate_types(self.block)
        rewrite(gradient_ops)
        if has_chain:
            FuseGlobalNorm().apply(self.program)
        self._overwritten = Overwritten(self.block)
        return find()

    def _differentiate(self, op: Operator) -> None:
        rule = op.definition.grad
        if isinstance(rule, BlockGrad):
            differentiate_call(self, op)
            return
        assert rule is not None
        if isinstance(rule, FusedGrad) and not self._overwritten.names and self._differentiate_fused(op, rule):
            return
        found = list(rule(GradContext(op, self.is_no_grad)))
        specs = [spec for spec in found if self._is_wanted(spec)]
        if isinstance(rule, DoubleGrad) and self._asks_for_inputs:  # otherwise fluid makes zeros
            specs = [self._without_absent(spec) for spec in specs]
        self._complete(_flowing_into(*specs), op)
        self._refuse_to_lose(op, _flowing_into(*found))
        self._plan([self._overwritten.checked(spec, op) for spec in specs], op)

    def _differentiate_fused(self, op: Operator, rule: FusedGrad) -> bool:
        """Plan the one operator of a fused rule without asking the rule for it: most operators have such a gradient.

        False if it has to be asked after all, because some results are left out.
        """
        if rule.check is not None:
            rule.check(op)
        recipe = rule.recipe
        results = [name for slot, _ in recipe.d_outputs for name in op.outputs.get(slot, (EMPTY,))]
        if not results or EMPTY in results:
            return False
        wanted = self._wanted_of(op, recipe)
        if not recipe.reads_all:
            self._refuse_to_lose(op, results)
        if not wanted or self._ready.isdisjoint(map(self._gradient, results)):
            return True
        self._complete(results, op)
        inputs = {}
        for slot, is_input in recipe.reads:
            read = (op.inputs if is_input else op.outputs).get(slot)
            if read:
                inputs[slot] = read
        for slot, d_slot in recipe.d_outputs:
            inputs[d_slot] = tuple([self._actual[name] for name in op.outputs[slot]])
        planned = _Planned(recipe.type, inputs, {}, op.attrs.copy(), op.site, op.namescope, is_checked=True)
        for d_slot, names in wanted.items():
            planned.outputs[d_slot] = [EMPTY if name == EMPTY else self._gradient_to_write(name) for name in names]
        self._planned.append(planned)
        for d_slot, grads in sorted(planned.outputs.items()):  # fluid's order, in which sums follow in the end
            for position, grad in enumerate(grads):
                if grad != EMPTY:
                    self._note_part(grad, planned, d_slot, position)
        return True

    def _wanted_of(self, op: Operator, recipe: FusedRecipe) -> dict[str, list[str]]:
        """By slot of the gradient operator, the variables whose gradients it is to compute; empty if there are none."""
        wanted, is_any = {}, False
        for slot, d_slot, is_list in recipe.d_inputs:
            names = [EMPTY if self.is_no_grad(name) else name for name in op.inputs.get(slot, ())]
            flows = names.count(EMPTY) < len(names)
            # A slot of one variable without a gradient is left out; in a list its place must be kept.
            if flows or (is_list and names):
                wanted[d_slot] = names
            is_any = is_any or flows
        return wanted if is_any else {}

    def _complete(self, names: Sequence[str], op: Operator) -> None:
        """See to it that the gradients of these variables, which `op` has to do with, are added up, or zero."""
        grads = list(map(self._gradient, names))
        for grad in grads:
            self._add_up(grad)
        for name, grad in zip(names, grads, strict=True):
            if grad not in self._ready:
                self._plan_zeros(name, grad, op)

    def _plan(self, specs: Sequence[OpSpec], op: Operator) -> None:
        for name in self._overwritten_by(op):
            self._parts[name] = []  # used up; what is found from here on belongs to the value before
        self._seeds.difference_update(self._overwritten.ended_by(op))
        for spec in specs:
            self._plan_spec(spec, op)

    def _is_wanted(self, spec: OpSpec) -> bool:
        """Whether `spec` computes something from a gradient that there is."""
        if all(name == EMPTY for names in spec.outputs.values() for name in names):
            return False
        flowing = _flowing_into(spec)
        return not flowing or any(self._gradient(name) in self._ready for name in flowing)

    def _without_absent(self, spec: OpSpec) -> OpSpec:
        """Leave out what may be left out and has no gradient flowing in."""
        slots = definition_of(spec.type).input_slots
        inputs = {
            slot: names
            for slot, names in spec.inputs.items()
            if not slots[slot].dispensable
            or not all(isinstance(name, GradName) and self._resolve(name) not in self._ready for name in names)
        }
        return spec._replace(inputs=inputs)

    def _refuse_to_lose(self, op: Operator, read: Sequence[str]) -> None:
        """Raise if a gradient flows into an output of `op` and no rule reads it; those of `read` are."""
        if all(map(self.is_no_grad, op.input_arg_names)):
            return
        for name in op.output_arg_names:
            if name not in read and self._actual.get(name) in self._ready:
                raise ProgramError(
                    f"{op.type} passes no gradient on from its output {name}",
                    site=op.site,
                    hint=f"Set stop_gradient=True on {name} if it is to count as a constant.",
                )

    def _overwritten_by(self, op: Operator) -> list[str]:
        """Gradients (in the program's words) of the outputs of `op` that are not the variable's first value."""
        ended = self._overwritten.ended_by(op)
        return [grad for name in op.output_arg_names if name in ended and (grad := self._actual.get(name)) is not None]

    def _leave(self, op: Operator, is_on_path: bool) -> None:
        """Before `op` its outputs have another value or none: their gradients are those of that value."""
        for grad in self._overwritten_by(op):
            if not is_on_path:
                self._parts[grad] = []
            if not self._parts.get(grad):
                self._ready.discard(grad)
                self._left.add(grad)

    def _plan_zeros(self, name: str, grad: str, op: Operator) -> None:
        """An output `name` that the targets do not use has gradient zero."""
        self._declare(grad, name)
        like = self.block.find_var(name.partition(GRAD_SUFFIX)[0])  # of a gradient fluid takes what it belongs to
        if like is None or like.tensor_type != self.variable(name).tensor_type:
            like = self.variable(name)
        self._planned.append(_Planned("fill_zeros_like", {"X": [like.name]}, {"Out": [grad]}, {}, op.site))
        self._ready.add(grad)

    def _plan_spec(self, spec: OpSpec, forward: Operator) -> None:
        inputs = {slot: [self._resolve(n) for n in names] for slot, names in spec.inputs.items()}
        planned = _Planned(spec.type, inputs, {}, dict(spec.attrs), forward.site, forward.namescope)
        slots = definition_of(spec.type).output_slots
        for slot, names in spec.outputs.items():
            # A slot of one variable without a gradient is left out; in a list its place must be kept.
            if names and (slots[slot].duplicable or names[0] != EMPTY):
                planned.outputs[slot] = [self._result(name) for name in names]
        self._planned.append(planned)
        for slot, names in sorted(spec.outputs.items()):
            for position, name in enumerate(names):
                if isinstance(name, GradName):
                    self._note_part(planned.outputs[slot][position], planned, slot, position)

    def _result(self, name: str) -> str:
        """The program's name for a result in a rule's spec, where there is a variable of that name now."""
        if name == EMPTY:
            return EMPTY
        if isinstance(name, GradName):
            return self._gradient_to_write(name.variable)
        return self.target.create_var(name=name).name

    def _gradient_to_write(self, name: str) -> str:
        """What the gradient of the variable `name` is called where it is written, where it is declared now."""
        if name in self._seeds:
            _warn_dependent_target(name)
        # What the caller gave is never written to.
        grad = name + GRAD_SUFFIX if name in self._given else self._gradient(name)
        self._declare(grad, name)
        return grad

    def _note_part(self, grad: str, op: _Planned, slot: str, position: int) -> None:
        parts = self._parts.setdefault(grad, [])
        self._ready.add(grad)
        place = op, slot, position
        if parts and slot in definition_of(op.type).updates:  # it adds to what an array holds already
            op.outputs[slot][position] = parts[-1].name
            parts[-1].places.append(place)
            return
        parts.append(_Part(grad, [place]))
        if len(parts) == 2:
            self._rename_part(grad, parts[0])
        if len(parts) > 1:
            self._rename_part(grad, parts[-1])

    def _rename_part(self, grad: str, part: _Part) -> None:
        if not part.places:
            return
        number = self._renames.get(grad, 0)
        self._renames[grad] = number + 1
        part.name = f"{grad}@RENAME@block{self.block.idx}@{number}"
        whole = self.target.var(grad).tensor_type
        assert whole is not None
        self.target.create_var(name=part.name, shape=whole.shape, dtype=whole.dtype, type=whole.kind)
        for op, slot, position in part.places:
            op.outputs[slot][position] = part.name

    def _add_up(self, grad: str) -> None:
        """Plan the sum of a gradient's parts, if it has several."""
        parts = self._parts.get(grad, ())
        if len(parts) > 1:
            last = [part for part in parts if part.places][-1].places[-1][0]
            planned = _Planned("sum", {"X": [part.name for part in parts]}, {"Out": [grad]}, {}, last.site)
            self._planned.append(planned)
            self._parts[grad] = [_Part(grad, [(planned, "Out", 0)])]

    # Sub-blocks

    def variable(self, name: str) -> Variable:
        found = self.block.find_var(name)
        assert found is not None
        return found

    def has_gradient(self, name: str) -> bool:
        """Whether a variable has a gradient, as far as the walk has come."""
        return self._gradient(name) in self._ready

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
        """The operator that runs the block gives the gradient of `name`, one of its parts, to it."""
        grad = self._gradient(name)
        self._declare(grad, name)
        self._parts[grad] = [_Part(grad, [])]
        self._ready.add(grad)

    def has_value_before(self, name: str, op: Operator) -> bool:
        """Whether a variable has a value where `op` stands."""
        var, overwritten = self.variable(name), self._overwritten
        if var.block is not self.block or var.persistable or var.is_data:
            return True
        return any(overwritten.position[each] < overwritten.position[op] for each in overwritten.writers.get(name, ()))

    def plan_call(
        self, op: Operator, spec: OpSpec, gradients: Block, needed: Iterable[str], counters: Iterable[str] = ()
    ) -> None:
        """Plan the operator that runs `gradients`, the block of those of `op`.

        It reads `needed` besides, and among them counts `counters` back, from what `op` has counted to.
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
        """Append an operator that has the source line of the one it serves."""
        op = self.target._make_op(type, inputs, outputs, {**attrs, "op_namescope": namescope}, site or caller_site())
        return self._link(op)

    def _append_planned(self, planned: _Planned) -> None:
        if not planned.is_checked:
            made = self.append(
                planned.type, planned.inputs, planned.outputs, planned.attrs, planned.site, planned.namescope
            )
        else:
            outputs = {slot: tuple(names) for slot, names in planned.outputs.items()}
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
        infer_outputs(op, self.target)
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
        """The gradient by the first value that has one; of what comes from outside, by the value that it comes with."""
        actual = self._actual.get(var.name, "")
        is_there = actual in self._ready or (actual in self._left and not (var.persistable or var.is_data))
        return self.target.vars[actual] if is_there else None

    def params_grads(self, params: Sequence[Parameter]) -> ParamsGrads:
        pairs = [(param, grad) for param in params if (grad := self.gradient_of(param)) is not None]
        producers = self._producers({grad.name for _, grad in pairs})
        for param, grad in pairs:
            producer = producers[grad.name]
            producer.role_vars = (param.name, grad.name, *producer.role_vars)
        return pairs

    def _producers(self, grads: set[str]) -> dict[str, Operator]:
        """The operator that completes each of `grads`."""
        return {name: op for op in self._appended for name in op.output_arg_names if name in grads}


def _flowing_into(*specs: OpSpec) -> list[str]:
    """The variables whose gradients these operators read."""
    inputs = (names for spec in specs for names in spec.inputs.values())
    return [name.variable for names in inputs for name in names if isinstance(name, GradName)]


def _warn_dependent_target(target: str) -> None:
    warn(
        f"gradients: another target depends on the target {target}; as in fluid the two do not add up: the gradient of "
        f"{target} is the target gradient given for it, or, with none given, what flows back from the other target. "
        "Add the targets up first if the sum is meant."
    )
