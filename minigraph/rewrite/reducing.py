"""Make a failing program smaller (delta debugging).

Every candidate is a valid program. Operators are left out, first many at once; what they computed is fed instead, with
the numbers that they computed. Then operators are replaced by one of their inputs, attributes, roles and optional
inputs are dropped, shapes shrink, and numbers become simple.

References
----------
A. Zeller and R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from minigraph.errors import MinigraphError, ProgramError
from minigraph.ir import Block, Operator, Program, Role
from minigraph.ir.text.notation import DEFAULTS, PROGRAM_DEFAULTS
from minigraph.ir.type_inference import infer_outputs
from minigraph.ir.verifier import verify
from minigraph.opdef import REQUIRED, SUB_BLOCK
from minigraph.rewrite.cases import Array, Case, results_by_op
from minigraph.support.public import public
from minigraph.types import TensorType, VarKind

Fails = Callable[[Case], bool]

_OF_RUNS = frozenset({"is_data", "kind", "lod_level", "persistable"})
"""Declarations of variables that runs depend on."""

_MOST_TRIES = 2000
"""Maximum candidates that are tried."""


@public
def reduce(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Find a smallest program that still fails.

    Parameters
    ----------
    program : Program
        It is not changed.
    fails : callable
        Says of a program whether it fails. It is asked about valid programs only; those may have inputs that `program`
        does not have, in place of operators that were left out.

    Returns
    -------
    Program
        One of which nothing can be left out. ``program.roots`` has those names of the original that it still has.

    Raises
    ------
    ProgramError
        If `program` does not fail.

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph import layers
    >>> program = fluid.Program()
    >>> with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
    ...     loss = layers.mean(layers.fc(layers.relu(fluid.data("x", [None, 4])), size=3))
    >>> print(reduce(program, lambda each: any(op.type == "mean" for op in each.global_block().ops)))
    block 0
      data fc_0.tmp_1: float32[-1, 3]
      mean_0.tmp_0: float32[1] = mean(X=fc_0.tmp_1)
    """
    if not fails(program.clone()):
        raise ProgramError("reduce: this program does not fail", hint="Give one for which fails(program) is true.")
    return reduced(Case(program), lambda case: bool(fails(case.program.clone()))).program


def reduced(case: Case, fails: Fails) -> Case:
    """Find a smallest case that still fails; arrays are kept, and added for new inputs, where the case has any."""
    search = _Search(case, fails)
    search.run()
    return search.case


class _Search:
    def __init__(self, case: Case, fails: Fails) -> None:
        self.case = case
        self._fails = fails
        self._tries = 0
        self._recorded: list[dict[str, Any] | None] | None = None

    def run(self) -> None:
        before = None
        while before is not self.case and self._tries < _MOST_TRIES:
            before = self.case
            self._leave_out_operators()
            for simpler in (
                _beginnings, _fewer_fetches, _inputs_for_results, _fewer_inner, _without_attributes, _fewer_inputs,
                _smaller_shapes, _plain_fields, _plain_numbers,
            ):  # fmt: skip
                self._take_all(simpler)

    def _take_all(self, simpler: Callable[[Case], Iterator[Case]]) -> None:
        """Take simpler cases until none fails."""
        is_done = False
        while not is_done and self._tries < _MOST_TRIES:
            is_done = not any(map(self._take, _made(simpler(self.case))))

    def _take(self, candidate: Case | None) -> bool:
        """Go on with a candidate if it is valid and fails."""
        if candidate is None or self._tries >= _MOST_TRIES:
            return False
        self._tries += 1
        candidate = _tidied(candidate)
        try:
            verify(candidate.program)
        except MinigraphError:
            return False
        if not self._fails(candidate):
            return False
        self.case, self._recorded = candidate, None
        return True

    def _leave_out_operators(self) -> None:
        size = len(self.case.program.global_block().ops) // 2 or 1
        while size:
            start = len(self.case.program.global_block().ops) - size
            while start > -size:
                self._take(self._without(range(max(start, 0), start + size)))
                start = min(start, len(self.case.program.global_block().ops)) - size
            size //= 2

    def _without(self, positions: Collection[int]) -> Case | None:
        """Leave out operators; what they give to others is fed."""
        if self._recorded is None:
            self._recorded = results_by_op(self.case)
        program = self.case.program.clone()
        block = program.global_block()
        feed, ops = dict(self.case.feed), block.ops[:]
        computed: dict[str, Any] = {}
        written: set[str] = set()
        for position, op in enumerate(ops):
            if position in positions:
                known = self._recorded[position] or {}
                computed.update({name: known.get(name) for name in op.output_arg_names})
                block.remove(op)
                continue
            for name in op.input_arg_names:
                if name in computed and name not in written and not self._feed(block, name, computed[name], feed):
                    return None
                computed.pop(name, None)
            written.update(op.output_arg_names)
        for name in program.roots or ():
            if name in computed and name not in written and not self._feed(block, name, computed[name], feed):
                return None
        return replace(self.case, program=program, feed=feed)

    def _feed(self, block: Block, name: str, value: Any, feed: dict[str, Array]) -> bool:
        """Make a variable an input; says whether that is possible."""
        var = block.vars.get(name)
        if var is None or var.persistable or var.is_data:
            return True
        if var.tensor_type is None or var.kind is not VarKind.LOD_TENSOR or var.tensor_type.is_rows:
            return False
        if self.case.feed or self.case.state:
            if not isinstance(value, np.ndarray) or value.dtype != var.dtype.numpy:
                return False
            feed[name] = value
            var.tensor_type = TensorType(var.dtype, value.shape)
        var.is_data = True
        return True


def _made(candidates: Iterator[Case]) -> Iterator[Case]:
    """The candidates that can be made."""
    while True:
        try:
            yield next(candidates)
        except StopIteration:
            return
        except (MinigraphError, ValueError):
            return


def _tidied(case: Case) -> Case:
    """Drop variables that nothing uses, and fetches of what nothing computes."""
    program = case.program
    program.drop_unused_blocks()
    block = program.global_block()
    written = {name for op in block.ops for name in op.output_arg_names}
    used = {name for each in program.blocks for op in each.ops for name in (*op.input_arg_names, *_named(op))}
    used |= written
    if program.roots is not None:
        kept = tuple(name for name in program.roots if name in written)
        read = {name for op in block.ops for name in op.input_arg_names}
        program.roots = kept or tuple(sorted(name for name in written - read if name in block.vars)) or program.roots
        used.update(program.roots)
    for each in program.blocks:
        for name in [name for name in each.vars if name not in used]:
            del each.vars[name]
    known = block.vars
    return replace(
        case,
        feed={name: value for name, value in case.feed.items() if name in known and known[name].is_data},
        state={name: value for name, value in case.state.items() if name in known},
    )


def _named(op: Operator) -> Iterator[str]:
    """Yield the names of the results of an operator, then names in its attributes, such as states of a recurrence."""
    yield from op.output_arg_names
    for value in op.attrs.values():
        yield from (each for each in (value if isinstance(value, tuple) else ()) if isinstance(each, str))


def _edited(case: Case) -> tuple[Case, Program]:
    program = case.program.clone()
    return replace(case, program=program), program


def _beginnings(case: Case) -> Iterator[Case]:
    """The program up to an operator, whose result is fetched in place of later ones."""
    block = case.program.global_block()
    for position, op in enumerate(block.ops[:-1]):
        for name in op.output_arg_names if case.program.roots is not None else ():
            var = block.vars.get(name)
            if var is not None and var.kind is VarKind.LOD_TENSOR and not var.persistable:
                candidate, program = _edited(case)
                for later in program.global_block().ops[position + 1 :]:
                    program.global_block().remove(later)
                program.roots = (name,)
                yield candidate


def _fewer_fetches(case: Case) -> Iterator[Case]:
    roots = case.fetched
    smaller: list[tuple[str, ...]] = [(name,) for name in roots] if len(roots) > 2 else []
    smaller += [roots[:i] + roots[i + 1 :] for i in range(len(roots)) if len(roots) > 1]
    for names in smaller:
        candidate, program = _edited(case)
        program.roots = names
        yield candidate


def _inputs_for_results(case: Case) -> Iterator[Case]:
    """Replace an operator by one of its inputs."""
    for block in case.program.blocks:
        for position, op in enumerate(block.ops[:]):
            outputs = [name for name in op.output_arg_names if name in block.vars]
            for given in dict.fromkeys(op.input_arg_names):
                for made in outputs:
                    one, other = block.find_var(given), block.vars[made]
                    if one is not None and given != made and one.tensor_type == other.tensor_type:
                        candidate, program = _edited(case)
                        _bypass(program.blocks[block.idx], position, made, given)
                        yield candidate


def _bypass(block: Block, position: int, made: str, given: str) -> None:
    op, *later = block.ops[position:]
    block.remove(op)
    for each in later:
        each.replace_input(made, given)
        if made in each.output_arg_names:
            return
    program = block.program
    if block is program.global_block() and program.roots is not None:
        program.roots = tuple(dict.fromkeys(given if name == made else name for name in program.roots))


def _fewer_inner(case: Case) -> Iterator[Case]:
    """Leave out operators of sub-blocks."""
    for block in case.program.blocks[1:]:
        for position in reversed(range(len(block.ops))):
            candidate, program = _edited(case)
            inner = program.blocks[block.idx]
            inner.remove(inner.ops[position])
            yield candidate


def _each_op(case: Case) -> Iterator[tuple[Operator, Callable[[], tuple[Case, Operator]]]]:
    """Each operator with a function that gives a copy of the case and the operator's copy."""
    for block in case.program.blocks:
        for position, op in enumerate(block.ops[:]):

            def copied(index: int = block.idx, at: int = position) -> tuple[Case, Operator]:
                candidate, program = _edited(case)
                return candidate, program.blocks[index].ops[at]

            yield op, copied


def _without_attributes(case: Case) -> Iterator[Case]:
    for op, copied in _each_op(case):
        for name in op.attrs:
            default = op.definition.attrs[name].default
            if default is not REQUIRED and name != SUB_BLOCK:
                candidate, copy = copied()
                copy.set_attr(name, default)
                yield candidate


def _fewer_inputs(case: Case) -> Iterator[Case]:
    for op, copied in _each_op(case):
        for kind, slots in (("inputs", op.definition.input_slots), ("outputs", op.definition.output_slots)):
            given: dict[str, tuple[str, ...]] = getattr(op, kind)
            for slot, names in given.items():
                smaller: list[tuple[str, ...]] = [()] if slots[slot].dispensable or slots[slot].intermediate else []
                if slots[slot].duplicable and kind == "inputs":
                    smaller += [names[:i] + names[i + 1 :] for i in range(len(names)) if len(names) > 1]
                for kept in smaller:
                    candidate, copy = copied()
                    changed = {**given, slot: kept}
                    copy._change(kind, {name: value for name, value in changed.items() if value})
                    yield candidate


def _smaller_shapes(case: Case) -> Iterator[Case]:
    """Make all dimensions of one size smaller."""
    block = case.program.global_block()
    if case.program.num_blocks > 1:
        return
    sources = {**case.feed, **case.state}
    sizes = {size for name in sources for size in block.vars[name].shape or ()}
    for size in sorted(sizes, reverse=True):
        for smaller in (1, 2):
            if 0 < smaller < size:
                candidate, program = _edited(case)
                _shrink(program, set(sources), size, smaller)
                cut = [
                    {name: _cut(value, program.global_block().vars[name].shape or ()) for name, value in arrays.items()}
                    for arrays in (case.feed, case.state)
                ]
                yield replace(candidate, feed=cut[0], state=cut[1])


def _shrink(program: Program, sources: Collection[str], size: int, smaller: int) -> None:
    block = program.global_block()
    for name, var in block.vars.items():
        known = var.tensor_type
        if name not in sources:
            var.tensor_type = None
        elif known is not None:
            shape = tuple(smaller if dim == size else dim for dim in known.shape)
            var.tensor_type = TensorType(known.dtype, shape)
    for op in block.ops:
        for name, value in list(op.attrs.items()):
            if name in ("shape", "sections", "num") or name.endswith("shape"):
                op.set_attr(name, _with(value, size, smaller))
        infer_outputs(op, block)


def _with(value: Any, size: int, smaller: int) -> Any:
    if isinstance(value, list | tuple):
        return [_with(each, size, smaller) for each in value]
    return smaller if value == size else value


def _cut(value: Array, shape: tuple[int, ...]) -> Array:
    return value[tuple(slice(None) if dim < 0 else slice(dim) for dim in shape)].copy()


def _plain_fields(case: Case) -> Iterator[Case]:
    """Drop roles, name scopes, and what is noted on variables and the program."""
    for op, copied in _each_op(case):
        for name, plain in (("role_vars", ()), ("namescope", "/"), ("role", Role.FORWARD)):
            if getattr(op, name) != plain:
                candidate, copy = copied()
                setattr(copy, name, plain)
                yield candidate
    for field, default in PROGRAM_DEFAULTS.items():
        if getattr(case.program, field) != default:
            candidate, program = _edited(case)
            setattr(program, field, default)
            yield candidate
    for var in case.program.global_block().vars.values():
        for field, default in DEFAULTS[var.keyword].items():
            if field not in _OF_RUNS and getattr(var, field) != default:
                candidate, program = _edited(case)
                setattr(program.global_block().vars[var.name], field, default)
                yield candidate


def _plain_numbers(case: Case) -> Iterator[Case]:
    """Replace numbers of the arrays by ones or zeros."""
    for name, value in case.feed.items():
        for plain in _plainer(value):
            yield replace(_edited(case)[0], feed={**case.feed, name: plain})
    for name, value in case.state.items():
        for plain in _plainer(value):
            yield replace(_edited(case)[0], state={**case.state, name: plain})


def _plainer(value: Array) -> Iterator[Array]:
    plain = np.ones_like(value)
    if not value.size or np.array_equal(value, plain):
        return
    yield plain
    for index in np.ndindex(value.shape) if value.dtype.kind == "f" and value.size <= _FEW else ():
        number = value[index]
        for simple in (1.0, np.round(number, 1)) if number != np.round(number, 1) else ():
            changed = value.copy()
            changed[index] = simple
            if changed.tobytes() != value.tobytes():
                yield changed


_FEW = 6
"""Maximum elements of an array whose numbers are made simple one by one."""
