"""Walk backward over a block: plan the operators that gradient rules return, then append them.

Everything is linear in the number of operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minigraph.autodiff.block_gradients import differentiate_call
from minigraph.autodiff.decompositions import needs_rewriting, rewrite
from minigraph.autodiff.gradient_plan import Callback, Gradient, GradientPlan, Planned
from minigraph.autodiff.overwritten import Overwritten, separate_types
from minigraph.autodiff.path import operators_between, warn_of_stopped_loops
from minigraph.errors import ProgramError
from minigraph.ir import Block, Operator, Variable
from minigraph.ir.effects import rename
from minigraph.opdef import EMPTY, SUB_BLOCK, definition_of
from minigraph.opdef.gradient_context import BlockGrad, GradContext, GradName, GradRule, OpSpec
from minigraph.opdef.gradient_rules import DoubleGrad, FusedGrad


class BackwardPass(GradientPlan):
    """One walk backward over a block."""

    def __init__(
        self, block: Block, no_grad: set[str], callbacks: Sequence[Callback], target: Block | None = None
    ) -> None:
        super().__init__(block, callbacks, target)
        self.no_grad = no_grad
        self._overwritten = Overwritten(block)
        self._asks_for_inputs = False

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
        self._append_all()

    def _walk_over_all(self, path: set[Operator]) -> None:
        """Walk over all operators: if variables have several values, any operator may end one of them."""
        for op in reversed(self.block.ops):
            if op in path:
                self._differentiate(op)
            elif self.target is not self.block and self._overwritten.undone(op):
                self._plan_counting_back(op)
            self._leave(op, is_on_path=op in path)

    def _path(self, targets: Sequence[Variable], inputs: set[str] | None) -> list[Operator]:
        """The operators to differentiate, in order; operators that have no gradient are rewritten first."""

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
        self._plan_one(Planned(rule.type, inputs, results, op.attrs.copy(), op.site, op.namescope, is_checked=True))

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

    def _overwritten_by(self, op: Operator) -> list[Gradient]:
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
        self._plan_one(Planned(spec.type, inputs, results, dict(spec.attrs), forward.site, forward.namescope))

    def _result(self, name: str) -> str | Gradient:
        """The program's variable or gradient for a name in a rule's spec; it is declared now."""
        if name == EMPTY:
            return EMPTY
        if isinstance(name, GradName):
            return self._gradient_to_write(name.variable)
        return self.target.create_var(name=name).name

    # Sub-blocks

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
        self._planned.append(Planned("increment", {"X": names}, {"Out": list(names)}, attrs, op.site, op.namescope))


def _flowing_into(*specs: OpSpec) -> list[str]:
    """The variables whose gradients these operators read."""
    inputs = (names for spec in specs for names in spec.inputs.values())
    return [name.variable for names in inputs for name in names if isinstance(name, GradName)]
