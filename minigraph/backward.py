"""Differentiation of programs: gradients are more operators, appended behind the ones they differentiate.

`append_backward` and `gradients` walk the operators that the targets need, in reverse, and plan what each operator's
gradient rule returns. A variable read more than once gets its partial gradients under ``@RENAME`` names and one ``sum``
right before the first use of the total. Only then, when every name is final, are the operators appended. Everything is
linear in the number of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minigraph import unique_name
from minigraph.collector import without_collector
from minigraph.control_flow import is_count
from minigraph.errors import NotFoundError, ProgramError, Site, WrongTypeError, caller_site, suggest, warn
from minigraph.ir import Block, Operator, Parameter, Program, Role, Variable, infer_outputs
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK, GradContext, GradName, OpSpec
from minigraph.overwriting import Overwriting
from minigraph.passes.fuse_global_norm import FuseGlobalNorm
from minigraph.passes.recompute import recompute
from minigraph.second_order import has_rule, rewrite
from minigraph.sub_block_gradients import differentiate_call
from minigraph.sub_blocks import rename_reads
from minigraph.types import VarKind, product

ParamsGrads = list[tuple[Parameter, Variable]]
Callback = Callable[..., None]


@without_collector
def append_backward(
    loss: Variable,
    parameter_list: Sequence[Variable | str] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
    callbacks: Sequence[Callback] | None = None,
    checkpoints: Sequence[Variable | str] | None = None,
) -> ParamsGrads:
    """Append the operators that compute the gradient of `loss` with respect to the parameters.

    They go to the loss's own program, whatever program is current.

    Parameters
    ----------
    loss : Variable, float[1]
        What to differentiate.
    parameter_list : sequence of Variable or str, optional
        Parameters to return; all gradients on the way are appended nevertheless. Default: all that are trainable.
    no_grad_set : iterable of Variable or str, optional
        Variables that no gradient flows to or through, besides those with ``stop_gradient``.
    callbacks : sequence of callable, optional
        Each is called as ``callback(block=..., context=...)`` after each operator appended; `context` maps gradient
        names to the names they are the gradient of, and ``"__current_op_desc__"`` to the operator.
    checkpoints : sequence of Variable or str, optional
        What lies between these is computed again in the backward pass instead of being kept; see
        `minigraph.passes.Recompute`.

    Returns
    -------
    list of (Parameter, Variable)
        Parameters in order of creation (of `parameter_list`, when given), each with its gradient; those that the loss
        does not reach are left out.

    Raises
    ------
    WrongTypeError
        If `loss` is not a Variable.
    ProgramError
        If `loss` does not have exactly one element, is not floating point, or is not computed by the program.
    NotFoundError
        If `parameter_list` or `no_grad_set` names a variable that does not exist.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
    ...     x = fluid.data("x", [None, 3])
    ...     loss = fluid.layers.mean(fluid.layers.fc(x, 1))
    ...     [(param.name, grad.name) for param, grad in append_backward(loss)]
    [('fc_0.w_0', 'fc_0.w_0@GRAD'), ('fc_0.b_0', 'fc_0.b_0@GRAD')]
    """
    if not isinstance(loss, Variable):
        raise WrongTypeError(
            f"the loss must be a Variable, got {type(loss).__name__}: {loss!r:.80}", site=caller_site()
        )
    block, program = loss.block, loss.block.program
    maker = _check_loss(loss)
    params = _parameters_to_return(program, parameter_list)
    no_grad = _names(block, no_grad_set, "no_grad_set")
    maker.role |= Role.LOSS
    pass_ = BackwardPass(block, no_grad, callbacks or ())
    seed = pass_.fresh_grad(loss, unique_name.generate)
    with program.role_guard(Role.BACKWARD | Role.LOSS):
        pass_.append(
            "fill_constant",
            {},
            {"Out": [seed.name]},
            {"shape": loss.shape, "value": 1.0, "dtype": int(loss.dtype)},
            maker.site,
        )
    pass_.seed(loss.name, seed.name)
    pass_.run([loss], None)
    if checkpoints is not None:
        recompute(program, checkpoints)
    return pass_.params_grads(params)


@without_collector
def gradients(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable | None] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> list[Variable | None]:
    """Append the operators that compute the gradients of `targets` with respect to `inputs`, summed over the targets.

    Parameters
    ----------
    targets, inputs : Variable or sequence of Variable
        All in one program, targets in one block.
    target_gradients : Variable or sequence of Variable or None, optional
        The gradient that flows into each target, of its shape; ones where None.
    no_grad_set : iterable of Variable or str, optional
        Variables that no gradient flows to or through, besides those with ``stop_gradient``.

    Returns
    -------
    list of Variable or None
        For each input its gradient, None where the targets do not depend on it.

    Raises
    ------
    ProgramError
        If the numbers or shapes of targets and target gradients differ, or programs are mixed.
    """
    target_list, input_list = _variables(targets, "targets"), _variables(inputs, "inputs")
    seeds: list[Variable | None] = [None] * len(target_list)
    if target_gradients is not None:
        seeds = [target_gradients] if isinstance(target_gradients, Variable) else list(target_gradients)
        _check_target_gradients(target_list, seeds)
    block = target_list[0].block
    if any(v.block.program is not block.program for v in (*target_list, *input_list)):
        raise ProgramError("targets and inputs must be in one program", site=caller_site())
    _check_outermost(target_list[0], "the target")
    pass_ = BackwardPass(block, _names(block, no_grad_set, "no_grad_set"), ())
    for target, given_grad in zip(target_list, seeds, strict=True):
        if given_grad is None:
            pass_.seed(target.name, _append_ones_like(pass_, target))
        else:
            pass_.seed(target.name, given_grad.name, given=True)
    pass_.run(target_list, {v.name for v in input_list})
    return [pass_.gradient_of(v) for v in input_list]


def _warn_dependent_target(grad_name: str) -> None:
    target = grad_name[: -len(GRAD_SUFFIX)]
    warn(
        f"gradients: another target depends on the target {target}; as in fluid the two do not add up: the gradient of "
        f"{target} is the target gradient given for it, or, with none given, what flows back from the other target. "
        "Add the targets up first if the sum is meant."
    )


def _append_ones_like(pass_: BackwardPass, target: Variable) -> str:
    block = pass_.block
    shape = block.create_var(name=_fresh_name(block, f"{target.name}_shape"))
    grad = pass_.fresh_grad(target, unique_name.generate)
    assert target.tensor_type is not None
    with block.program.role_guard(Role.BACKWARD):
        pass_.append("shape", {"Input": [target.name]}, {"Out": [shape.name]}, {})
        attrs = {"shape": target.tensor_type.shape, "value": 1.0, "dtype": int(target.dtype)}
        pass_.append("fill_constant", {"ShapeTensor": [shape.name]}, {"Out": [grad.name]}, attrs)
    return grad.name


@dataclass(slots=True)
class _Planned:
    """An operator to append; its outputs may still be renamed."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: Mapping[str, Any]
    site: Site | None
    namescope: str = "/"


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
            self.program.backward_passes += 1
        self.no_grad = no_grad
        self.callbacks = callbacks
        self._given: set[str] = set()
        """Gradient names (in the rules' words) whose value the caller gave."""
        self._seeds: set[str] = set()
        self._actual: dict[str, str] = {}
        """Gradient name in the rules' words -> name in the program."""
        self._planned: list[_Planned] = []
        self._parts: dict[str, list[_Part]] = {}
        """Gradient name in the program -> its parts."""
        self._renames: dict[str, int] = {}
        self._ready: set[str] = set()
        """Gradients (in the program's words) that have a value, as far as the walk has come."""
        self._found: set[str] = set()
        """Gradients that have had one at any time."""
        self.grad_to_var: dict[str, Any] = {}
        self._producer: dict[str, Operator] = {}
        self._overwriting = Overwriting(block)

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
        self._actual[var_name + GRAD_SUFFIX] = grad_name
        if given:
            self._given.add(var_name + GRAD_SUFFIX)
        self._seeds.add(var_name + GRAD_SUFFIX)
        self._note_value(grad_name)
        self.grad_to_var[grad_name] = var_name

    def _resolve(self, name: str) -> str:
        """The program's name for a name in a rule's spec."""
        if not isinstance(name, GradName):
            return name
        actual = self._actual.get(name)
        if actual is None:
            base = str(name)
            actual = base if base not in self.target.vars else "grad/" * self.program.backward_passes + base
            if actual in self.target.vars:
                actual = unique_name.generate(actual)
            self._actual[base] = actual
        return actual

    def _is_no_grad(self, name: str) -> bool:
        var = self.block.find_var(name)
        return (
            name in self.no_grad
            or var is None
            or var.stop_gradient
            or var.tensor_type is None
            or not var.dtype.is_floating
        )

    # The walk

    def run(self, targets: Sequence[Variable], inputs: set[str] | None) -> None:
        path = self._path(targets, inputs)
        self._warn_of_stopped_loops(path, targets)
        on_path = set(path)
        # Where variables have several values, every operator may be the end of one.
        for op in reversed(self.block.ops if self._overwriting.names else path):
            if op in on_path:
                self._differentiate(op)
            elif self.target is not self.block and is_count(op, self.block):
                self._plan_counting_back(op)
            self._leave(op, is_on_path=op in on_path)
        for grad_name in list(self._parts):
            self._add_up(grad_name)
        with self.program.role_guard(Role.BACKWARD):
            for planned in self._planned:
                self._finish(
                    self.append(
                        planned.type, planned.inputs, planned.outputs, planned.attrs, planned.site, planned.namescope
                    )
                )

    def _path(self, targets: Sequence[Variable], inputs: set[str] | None) -> list[Operator]:
        """The operators to differentiate, in order, once those that have to be are rewritten as others."""

        def find() -> list[Operator]:
            return _operators_between(self.block, {t.name for t in targets}, inputs, self._is_no_grad)

        path = find()
        gradient_ops = [op for op in path if op.definition.grad is None]
        # The gradient of fluid's chain for a global norm is NaN at zero, that of the one operator is not.
        has_chain = any(op.type == "sqrt" and op.role & Role.CLIP for op in path)
        if not gradient_ops and not has_chain:
            return path
        rewrite(gradient_ops)
        if has_chain:
            FuseGlobalNorm().apply(self.program)
        self._overwriting = Overwriting(self.block)
        return find()

    def _warn_of_stopped_loops(self, path: Sequence[Operator], targets: Sequence[Variable]) -> None:
        """A loop variable that was made as a constant cuts the gradient, which is seldom meant."""
        loops = {name: op for op in self.block.ops if op.type == "while" for name in op.output_arg_names}
        if not loops:
            return
        read = [target.name for target in targets] + [name for op in path for name in op.input_arg_names]
        for name in dict.fromkeys(name for name in read if name in loops):
            var = self.variable(name)
            if var.stop_gradient and not var.persistable and var.tensor_type is not None and var.dtype.is_floating:
                warn(
                    f"no gradient flows through the loop made at {loops[name].site}, because its variable {name} has "
                    f"stop_gradient=True, as constants have; set it to False before the loop if gradients are wanted"
                )

    def _differentiate(self, op: Operator) -> None:
        if SUB_BLOCK in op.attrs:
            differentiate_call(self, op)
            return
        rule = op.definition.grad
        assert rule is not None
        specs = [spec for spec in rule(GradContext(op, self._is_no_grad)) if self._is_wanted(spec)]
        incoming = self._complete(specs, op)
        self._refuse_to_lose(op, incoming)
        self._plan([self._overwriting.checked(spec, op) for spec in specs], op)

    def _complete(self, specs: Sequence[OpSpec], op: Operator) -> list[str]:
        """See to it that the gradients that `specs` read are added up, or zero; return their names."""
        incoming = [name for spec in specs for name in _gradients_read(spec)]
        for name in incoming:
            self._add_up(self._resolve(name))
        for name in incoming:
            if self._resolve(name) not in self._ready:
                self._plan_zeros(name, op)
        return incoming

    def _plan(self, specs: Sequence[OpSpec], op: Operator) -> None:
        for name in self._overwritten_by(op):
            self._parts[name] = []  # used up; what is found from here on belongs to the value before
        for spec in specs:
            self._plan_spec(spec, op)

    def _is_wanted(self, spec: OpSpec) -> bool:
        """Whether `spec` computes something from a gradient that there is."""
        if all(name == EMPTY for names in spec.outputs.values() for name in names):
            return False
        incoming = _gradients_read(spec)
        return not incoming or any(self._resolve(name) in self._ready for name in incoming)

    def _refuse_to_lose(self, op: Operator, incoming: list[str]) -> None:
        """Raise if a gradient flows into an output of `op` and no rule reads it."""
        if all(map(self._is_no_grad, op.input_arg_names)):
            return
        for name in op.output_arg_names:
            if name + GRAD_SUFFIX not in incoming and self._actual.get(name + GRAD_SUFFIX) in self._ready:
                raise ProgramError(
                    f"{op.type} passes no gradient on from its output {name}",
                    site=op.site,
                    hint=f"Set stop_gradient=True on {name} if it is to count as a constant.",
                )

    def _overwritten_by(self, op: Operator) -> list[str]:
        """Gradients (in the program's words) of the outputs of `op` that are not the variable's first value."""
        names = self._overwriting.names
        grads = (self._actual.get(name + GRAD_SUFFIX) for name in op.output_arg_names if name in names)
        return [grad for grad in grads if grad is not None]

    def _leave(self, op: Operator, is_on_path: bool) -> None:
        """Before `op` its outputs have another value or none: their gradients are those of that value."""
        for grad in self._overwritten_by(op):
            if not is_on_path:
                self._parts[grad] = []
            if not self._parts.get(grad):
                self._ready.discard(grad)

    def _plan_zeros(self, name: str, op: Operator) -> None:
        """An output that the targets do not use has gradient zero."""
        forward = name[: -len(GRAD_SUFFIX)]
        grad = self._resolve(name)
        self._declare(grad, forward)
        self._planned.append(_Planned("fill_zeros_like", {"X": [forward]}, {"Out": [grad]}, {}, op.site))
        self._note_value(grad)

    def _plan_spec(self, spec: OpSpec, forward: Operator) -> None:
        inputs = {slot: [self._resolve(n) for n in names] for slot, names in spec.inputs.items()}
        outputs: dict[str, list[str]] = {}
        places: list[tuple[str, str, int]] = []
        for slot, names in spec.outputs.items():
            # A slot of one variable without a gradient is left out; in a list its place must be kept.
            if all(name == EMPTY for name in names):
                continue
            outputs[slot] = []
            for position, name in enumerate(names):
                if name == EMPTY:
                    outputs[slot].append(EMPTY)
                    continue
                if not isinstance(name, GradName):
                    outputs[slot].append(self.block.create_var(name=name).name)
                    continue
                if name in self._seeds:
                    _warn_dependent_target(name)
                # What the caller gave is never written to.
                grad = str(name) if name in self._given else self._resolve(name)
                self._declare(grad, name[: -len(GRAD_SUFFIX)])
                outputs[slot].append(grad)
                places.append((grad, slot, position))
        planned = _Planned(spec.type, inputs, outputs, spec.attrs, forward.site, forward.namescope)
        self._planned.append(planned)
        for grad, slot, position in places:
            self._note_part(grad, planned, slot, position)

    def _note_value(self, grad: str) -> None:
        self._ready.add(grad)
        self._found.add(grad)

    def _note_part(self, grad: str, op: _Planned, slot: str, position: int) -> None:
        parts = self._parts.setdefault(grad, [])
        self._note_value(grad)
        place = op, slot, position
        if parts and op.type == "write_to_array":
            # It adds to what the array holds already.
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
        whole = self.target.var(grad)
        assert whole.tensor_type is not None
        self.target.create_var(
            name=part.name, shape=whole.tensor_type.shape, dtype=whole.tensor_type.dtype, type=whole.kind
        )
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

    is_no_grad = _is_no_grad

    def variable(self, name: str) -> Variable:
        found = self.block.find_var(name)
        assert found is not None
        return found

    def has_gradient(self, name: str) -> bool:
        """Whether a variable has a gradient, as far as the walk has come."""
        return self._resolve(GradName(name + GRAD_SUFFIX)) in self._ready

    def inside(self, forward: Block) -> BackwardPass:
        """A walk over a sub-block, whose gradients go to a new block."""
        target = Block(self.program, len(self.program.blocks), self.target.idx, forward.idx)
        self.program.blocks.append(target)
        return BackwardPass(forward, self.no_grad, self.callbacks, target)

    def inside_needs(self, forward: Block, targets: Sequence[str]) -> set[str]:
        """The variables on whose values those of `targets` depend differentiably, in one run of a sub-block."""
        is_no_grad = BackwardPass(forward, self.no_grad, (), self.target).is_no_grad
        path = _operators_between(forward, set(targets), None, is_no_grad)
        return {name for op in path for name in op.input_arg_names if not is_no_grad(name)}

    def seed_inside(self, name: str) -> None:
        """The operator that runs the block gives the gradient of `name`, one of its parts, to it."""
        grad = self._resolve(GradName(name + GRAD_SUFFIX))
        self._declare(grad, name)
        self._parts[grad] = [_Part(grad, [])]
        self._note_value(grad)

    def has_value_before(self, name: str, op: Operator) -> bool:
        """Whether a variable has a value where `op` stands."""
        var, overwriting = self.variable(name), self._overwriting
        if var.block is not self.block or var.persistable or var.is_data:
            return True
        return any(overwriting.position[each] < overwriting.position[op] for each in overwriting.writers.get(name, ()))

    def plan_call(self, op: Operator, spec: OpSpec, gradients: Block, needed: Iterable[str]) -> None:
        """Plan the operator that runs `gradients`, the block of those of `op`, which reads `needed` besides."""
        for name in needed:
            kept = self._overwriting.kept(name, op)
            if kept != name:
                rename_reads(gradients, name, kept)
        self._complete([spec], op)
        self._plan([spec], op)

    def restored_by(self, op: Operator, names: Iterable[str]) -> None:
        """Note that the gradient of `op` undoes what it does to `names`."""
        self._overwriting.restored.update((op, name) for name in names)

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
        infer_outputs(op, self.target)
        self.target._link(None, op)
        for name in op.output_arg_names:
            self._producer[name] = op
        return op

    def _declare(self, grad: str, forward: str) -> None:
        if grad not in self.target.vars:
            var = self.block.find_var(forward)
            assert var is not None and var.tensor_type is not None
            shape, dtype = var.tensor_type.shape, var.tensor_type.dtype
            self.target.create_var(name=grad, shape=shape, dtype=dtype, type=var.kind)
        self.grad_to_var[grad] = forward

    def _finish(self, op: Operator) -> None:
        self.grad_to_var["__current_op_desc__"] = op
        for callback in self.callbacks:
            callback(block=self.target, context=self.grad_to_var)

    # Results

    def gradient_of(self, var: Variable) -> Variable | None:
        actual = self._actual.get(var.name + GRAD_SUFFIX)
        return self.target.vars[actual] if actual in self._found else None

    def params_grads(self, params: Sequence[Parameter]) -> ParamsGrads:
        pairs = []
        for param in params:
            grad = self.gradient_of(param)
            if grad is not None:
                producer = self._producer[grad.name]
                producer.role_vars = (param.name, grad.name, *producer.role_vars)
                pairs.append((param, grad))
        return pairs


def _gradients_read(spec: OpSpec) -> list[str]:
    return [name for names in spec.inputs.values() for name in names if isinstance(name, GradName)]


def _operators_between(
    block: Block, targets: set[str], inputs: set[str] | None, is_no_grad: Callable[[str], bool]
) -> list[Operator]:
    """The operators to differentiate, in order: those the targets need and, with `inputs`, that the inputs reach."""
    reached = None if inputs is None else _reached_from(block, inputs, is_no_grad)
    needed = set(targets)
    path = []
    for op in reversed(block.ops):
        if needed.isdisjoint(op.output_arg_names) or (reached is not None and op not in reached):
            continue
        if op.definition.grad is None and not has_rule(op):
            _refuse_second_order(op, is_no_grad)
            continue
        path.append(op)
        needed.update(name for name in op.input_arg_names if not is_no_grad(name))
    path.reverse()
    return path


def _reached_from(block: Block, inputs: set[str], is_no_grad: Callable[[str], bool]) -> set[Operator]:
    names, reached = set(inputs), set()
    for op in block.ops:
        if not names.isdisjoint(op.input_arg_names):
            reached.add(op)
            names.update(name for name in op.output_arg_names if not is_no_grad(name))
    return reached


def _refuse_second_order(op: Operator, is_no_grad: Callable[[str], bool]) -> None:
    """A gradient operator without a rule of its own is not a constant: leaving it out would be silently wrong."""
    if op.definition.forward is not None and not all(map(is_no_grad, op.input_arg_names)):
        raise ProgramError(
            f"{op.type} has no gradient rule: the gradient of a gradient cannot pass through {op.definition.forward}",
            details=[str(op)],
            site=op.site,
            hint="Set stop_gradient=True on the first gradient if it is to count as a constant.",
        )


def _check_loss(loss: Variable) -> Operator:
    """The operator that makes the loss."""
    size = product(loss.shape) if loss.shape is not None else 1
    if size != 1 or not loss.dtype.is_floating:
        raise ProgramError(
            f"the loss must be one floating-point number, got {loss}", site=caller_site(),
            hint="Reduce it with layers.mean or layers.reduce_sum.",
        )  # fmt: skip
    _check_outermost(loss, "the loss")
    for op in reversed(loss.block.ops):
        if loss.name in op.output_arg_names:
            return op
    raise ProgramError(
        f"no operator of its program computes the loss {loss}", site=caller_site(),
        hint="Take the loss variable from the program to differentiate: program.global_block().var(loss.name).",
    )  # fmt: skip


def _check_outermost(target: Variable, what: str) -> None:
    if target.block.idx:
        raise ProgramError(
            f"{what} {target.name} is computed in a sub-block, which may run never or several times",
            site=caller_site(),
            hint="Let layers.cond return it, or assign it to a variable made outside, and differentiate that there.",
        )


def _parameters_to_return(program: Program, parameter_list: Sequence[Variable | str] | None) -> list[Parameter]:
    if parameter_list is None:
        return [param for param in program.all_parameters() if param.trainable]
    if not isinstance(parameter_list, list | tuple):
        raise WrongTypeError(
            f"parameter_list must be a list of Variables or names, got {parameter_list!r:.80}", site=caller_site()
        )
    block = program.global_block()
    _names(block, parameter_list, "parameter_list")
    given = [block.var(p.name if isinstance(p, Variable) else p) for p in parameter_list]
    return [param for param in given if isinstance(param, Parameter)]


def _names(block: Block, given: Iterable[Variable | str] | None, what: str) -> set[str]:
    if isinstance(given, str):
        raise WrongTypeError(f"{what} must be a set or list, got the string {given!r}", site=caller_site())
    names = set()
    for item in given or ():
        name = item.name if isinstance(item, Variable) else item
        if not isinstance(name, str):
            raise WrongTypeError(f"{what} holds {item!r:.80}, which is no Variable or name", site=caller_site())
        if block.find_var(name) is None:
            raise NotFoundError(
                f"{what} names {name!r}, which the program does not have",
                site=caller_site(),
                hint=suggest(name, block.vars),
            )
        names.add(name)
    return names


def _variables(given: Variable | Sequence[Variable], what: str) -> list[Variable]:
    found = [given] if isinstance(given, Variable) else list(given)
    if not found or not all(isinstance(v, Variable) for v in found):
        raise WrongTypeError(f"{what} must be Variables, got {given!r:.80}", site=caller_site())
    return found


def _check_target_gradients(targets: list[Variable], given: list[Variable | None]) -> None:
    if len(given) != len(targets):
        raise ProgramError(f"{len(targets)} targets but {len(given)} target gradients", site=caller_site())
    for target, grad in zip(targets, given, strict=True):
        if grad is not None and not _fit(grad, target):
            raise ProgramError(
                f"a target gradient must have the type of its target, got {grad} for {target}", site=caller_site()
            )


def _fit(grad: Variable, target: Variable) -> bool:
    """Whether `grad` can flow into `target`; what flows into selected rows is dense."""
    if grad.tensor_type is None or target.tensor_type is None:
        return False
    return grad.tensor_type.fits(target.tensor_type.held_as(VarKind.LOD_TENSOR))


def _fresh_name(block: Block, name: str) -> str:
    return name if name not in block.vars else unique_name.generate(name)
