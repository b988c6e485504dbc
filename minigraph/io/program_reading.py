"""Programs read from ``ProgramDesc`` messages, the contents of Paddle's ``__model__`` files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, compress
from typing import Any

from minigraph.errors import DataError, MinigraphError, NotFoundError, suggest
from minigraph.io.framework_proto import OpAttr, OpDesc, OpVar, ProgramDesc, VarDesc, VarTypeType
from minigraph.io.program_desc import FEED, FETCH, FIELDS, ORIGINALS, OUT_GRAD, RANK_TABLE, SLOTS_OF_PADDLE, source_of
from minigraph.io.wire import decode
from minigraph.ir import Block, Operator, Program, Variable, VarKind
from minigraph.ir.effects import DEEPEST
from minigraph.opdef import EMPTY, GRAD_SUFFIX, HINT_ATTRS, SUB_BLOCK, OpDef, all_definitions, definition_of
from minigraph.opdef.attr_types import AttrType
from minigraph.support.public import public
from minigraph.types import DType, TensorType

__all__ = ["deserialize_program"]

_OF_PADDLE = {"op_device", "op_callstack"}
"""Attributes of the operators that Paddle describes, and minigraph does not."""
_LEFT_OVER = {("concat", "num"), ("concat", "sections")}
"""Attributes of ``split`` that Paddle leaves on the operator that is its gradient."""


@public
def deserialize_program(data: bytes) -> Program:
    """The program that a description holds; operators that feed and fetch are left out.

    Parameters
    ----------
    data : bytes
        The contents of a ``__model__`` or ``.pdmodel`` file.

    Raises
    ------
    DataError
        If the bytes are no description, or one that contradicts itself.
    NotFoundError
        If it has operators that minigraph does not have; all of them are listed.

    Notes
    -----
    As with Paddle, parameters come back as persistable variables that are no `Parameter`, because a description does
    not tell them from other persistable variables.
    """
    return read_program(data, "the description")[0]


def read_program(data: bytes, source: str) -> tuple[Program, list[str], list[str]]:
    """A program, the names that it feeds and the names that it fetches; `source` names the file for errors."""
    try:
        description = decode(ProgramDesc, data)
    except DataError as error:
        raise DataError(f"{source} is damaged or no program: {error.message}") from None
    if not description.blocks:
        raise DataError(f"{source} is damaged or no program: it has no block")
    _refuse_unknown_operators(description, source)
    problems: list[str] = []
    program = _build(description, problems)
    program.origin = data
    feeds, fetches = _columns(description, "feed", "outputs"), _columns(description, "fetch", "inputs")
    variables = program.global_block().vars
    problems += [f"{name} is fed or fetched but not there" for name in feeds + fetches if name not in variables]
    if problems:
        raise DataError(f"{source} is no program that minigraph can run", details=problems)
    for name in feeds:
        variables[name].is_data = variables[name].stop_gradient = True
    return program, feeds, fetches


def _refuse_unknown_operators(description: ProgramDesc, source: str) -> None:
    known = {definition.type: None for definition in all_definitions()}
    uses: dict[str, int] = {}
    for block in description.blocks:
        for op in block.ops:
            if op.type not in known and op.type not in (FEED, FETCH):
                uses[op.type] = uses.get(op.type, 0) + 1
    if uses:
        details = [f"{op_type}, {count} time{'s' if count > 1 else ''}" for op_type, count in sorted(uses.items())]
        raise NotFoundError(
            f"{source} has operators that minigraph does not have", details=details,
            hint=" ".join(filter(None, (suggest(op_type, known) for op_type in sorted(uses)[:1]))),
        )  # fmt: skip


def _build(description: ProgramDesc, problems: list[str]) -> Program:
    program = Program()
    for index, block_desc in enumerate(description.blocks):
        # Parents come before their blocks, so that a name can be looked up while reading.
        if block_desc.idx != index or not -1 <= block_desc.parent_idx < max(index, 1):
            problems.append(f"block {block_desc.idx} in block {block_desc.parent_idx} stands at place {index}")
            return program
        forward = -1 if block_desc.forward_block_idx is None else block_desc.forward_block_idx
        if not -1 <= forward < max(index, 1) or forward == 0:
            problems.append(f"block {index} is the gradient of block {forward}")
            return program
        block = program.blocks[0]
        if index:
            block = Block(program, index, block_desc.parent_idx, forward)
            program.blocks.append(block)
            # A file must not exhaust the stack of whoever walks its blocks.
            if block.depth > DEEPEST:
                problems.append(f"block {index} is in more than {DEEPEST} blocks")
                return program
        used = {name for op in block_desc.ops for slot in (*op.inputs, *op.outputs) for name in slot.arguments}
        for var in block_desc.vars:
            _add_variable(block, var, used, problems)
        if forward > 0:
            _declare_gradients(block, used)
        for at, op in enumerate(block_desc.ops):
            if op.type not in (FEED, FETCH):
                _add_operator(block, op, f"operator {at}", description, problems)
    _check_sub_blocks(program, problems)
    return program


def _declare_gradients(block: Block, used: Iterable[str]) -> None:
    """Declare every gradient of a block of gradients; Paddle uses those outside, or declares none."""
    forward = block.forward_block
    for name in sorted(used):
        var = source_of(block, name)
        if var is not None and name not in block.vars and not (forward is not None and name in forward.vars):
            block.vars[name] = Variable(block, name, var.tensor_type, kind=var.kind)


def _check_sub_blocks(program: Program, problems: list[str]) -> None:
    for block in program.blocks:
        for op in block.ops:
            index = op.attrs.get(SUB_BLOCK)
            if index is not None and not (
                0 < index < len(program.blocks) and program.blocks[index].parent_idx == block.idx
            ):
                problems.append(f"{op.type} runs block {index}, which is no sub-block of block {block.idx}")


def _add_variable(block: Block, var: VarDesc, used: set[str], problems: list[str]) -> None:
    kind = var.type.type
    name = VarTypeType(kind).name if kind in VarTypeType._value2member_map_ else f"kind {kind}"
    if kind in (VarTypeType.FEED_MINIBATCH, VarTypeType.FETCH_LIST):
        return
    if kind == VarTypeType.LOD_RANK_TABLE:
        block.vars[var.name] = Variable(block, var.name, RANK_TABLE, persistable=bool(var.persistable))
        return
    if name not in VarKind.__members__:
        # A variable that nothing uses may be of any kind.
        if var.name in used:
            problems.append(f"{var.name} is a {name}, which minigraph does not have")
        return
    holder = var.type.lod_tensor if kind == VarTypeType.LOD_TENSOR else var.type.tensor_array
    tensor = var.type.selected_rows if kind == VarTypeType.SELECTED_ROWS else None if holder is None else holder.tensor
    tensor_type = None
    if tensor is not None:
        if tensor.data_type not in DType._value2member_map_ or min(tensor.dims, default=0) < -1:
            problems.append(f"{var.name} has the element type {tensor.data_type} and the shape {tensor.dims}")
            return
        tensor_type = TensorType(DType(tensor.data_type), tuple(tensor.dims))
    block.vars[var.name] = Variable(
        block, var.name, tensor_type, persistable=bool(var.persistable), need_check_feed=bool(var.need_check_feed),
        kind=VarKind[name], lod_level=0 if holder is None else max(holder.lod_level or 0, 0),
        # Paddle checks the feeds of exactly those variables that layers make for feeding.
        is_data=bool(var.need_check_feed), stop_gradient=bool(var.need_check_feed),
    )  # fmt: skip


def _add_operator(block: Block, op: OpDesc, place: str, description: ProgramDesc, problems: list[str]) -> None:
    is_of_paddle = any(attr.name in _OF_PADDLE for attr in op.attrs)
    missing = [
        f"{place}, {op.type}: there is no variable {name!r}"
        for slot in (*op.inputs, *op.outputs)
        for name in slot.arguments
        if name != EMPTY and block.find_var(name) is None
    ]
    problems += missing
    try:
        definition = definition_of(op.type)
        attrs = _read_attrs(definition, op.attrs)
        inputs, outputs = _read_slots(op.type, op.inputs), _read_slots(op.type, op.outputs)
        if definition.forward is not None:
            _complete(block, definition, inputs)
            if ORIGINALS in attrs and OUT_GRAD in inputs:
                _keep_computed(inputs, attrs, op, description)
        if is_of_paddle and "Like" in definition.input_slots:
            _tell_lengths(block, inputs, outputs)
        made = block._make_op(op.type, inputs, outputs, attrs, None)
    # All problems of a file are collected, and told together.
    except MinigraphError as error:
        problems += [f"{place}, {error.message}", *error.details]
        return
    if not missing:
        block._link(None, made)
        if is_of_paddle:
            _correct_types(block, made)


def _correct_types(block: Block, op: Operator) -> None:
    """Declare results as what they are where Paddle, which does not check it, declares integers or no shape."""
    written = {slot: [block.find_var(name) for name in names] for slot, names in op.outputs.items()}
    if SUB_BLOCK in op.attrs or not any(map(_doubtful, chain(*written.values()))):
        return
    read = {slot: [block.find_var(name) for name in names] for slot, names in op.inputs.items()}
    types = [(slot, tuple([None if var is None else var.tensor_type for var in read[slot]])) for slot in read]
    try:
        found = op.definition.inferred(tuple(types), op.attrs)
    except MinigraphError:  # a run says what is wrong
        return
    for slot, variables in written.items():
        for var, made in zip(variables, found.get(slot, ()), strict=False):
            declared = _doubtful(var)
            if var is None or declared is None or not isinstance(made, TensorType) or not made.dtype.is_floating:
                continue
            var.tensor_type = declared.with_dtype(made.dtype).with_shape(declared.shape or made.shape)


def _doubtful(var: Variable | None) -> TensorType | None:
    """The type of a variable that is declared to hold integers or no shape, if only an operator says what it holds."""
    if var is None or var.persistable or var.is_data or var.kind is not VarKind.LOD_TENSOR or var.tensor_type is None:
        return None
    return var.tensor_type if not (var.tensor_type.dtype.is_floating and var.tensor_type.shape) else None


def _read_slots(op_type: str, slots: Iterable[OpVar]) -> dict[str, list[str]]:
    own = SLOTS_OF_PADDLE.get(op_type, {})
    return {own.get(slot.parameter, slot.parameter): list(slot.arguments) for slot in slots if slot.arguments}


def _complete(block: Block, definition: OpDef, inputs: dict[str, list[str]]) -> None:
    """Give a gradient operator what Paddle's does not read, from the forward one, and drop what only Paddle's reads."""
    missing = [slot for slot in definition.required_inputs if slot not in inputs]
    forward = _forward_of(block, definition, inputs) if missing else None
    if forward is not None:
        of_both = {**forward.inputs, **forward.outputs}
        inputs |= {slot: list(of_both[slot]) for slot in missing if slot in of_both}
        for slot in [slot for slot in inputs if slot not in definition.input_slots and slot in of_both]:
            del inputs[slot]


def _tell_lengths(block: Block, inputs: dict[str, list[str]], outputs: Mapping[str, list[str]]) -> None:
    """Name what a gradient has the lengths of, if an operator can tell them from that; Paddle looks at the gradient."""
    sources = (source_of(block, name) for name in chain(inputs.get("X", ()), *outputs.values()))
    tensors = (var.name for var in sources if var is not None and var.kind is VarKind.LOD_TENSOR)
    like = next(tensors, None)
    if like is not None:
        inputs.setdefault("Like", [like])


def _keep_computed(inputs: dict[str, list[str]], attrs: dict[str, Any], op: OpDesc, description: ProgramDesc) -> None:
    """Drop the gradients that nothing computes before `op`: Paddle names those of arrays that begin with its block."""
    blocks = (block for block in description.blocks if block.idx != attrs[SUB_BLOCK])
    others = (each for block in blocks for each in block.ops if each is not op)
    written = {name for each in others for slot in each.outputs for name in slot.arguments}
    begun = {name + GRAD_SUFFIX for name in inputs.get("Out", ())} - written
    kept = [name not in begun for name in inputs[OUT_GRAD]]
    inputs[OUT_GRAD] = list(compress(inputs[OUT_GRAD], kept))
    attrs[ORIGINALS] = list(compress(attrs[ORIGINALS], kept))


def _forward_of(block: Block, definition: OpDef, inputs: Mapping[str, list[str]]) -> Operator | None:
    """The operator that wrote what the gradients in `inputs` are those of."""
    sources = (source_of(block, name) for names in inputs.values() for name in names)
    written = {var.name for var in sources if var is not None}
    for each in (block, block.forward_block):
        for op in reversed(() if each is None else each.ops.by_type.get(definition.forward or "", ())):
            if not written.isdisjoint(op.output_arg_names):
                return op
    return None


def _read_attrs(definition: OpDef, attrs: Iterable[OpAttr]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attr in attrs:
        if attr.name in HINT_ATTRS or (definition.type, attr.name) in _LEFT_OVER:
            continue
        if attr.type not in FIELDS:
            raise DataError(f"{definition.type}: attribute {attr.name} has the type number {attr.type}")
        value = getattr(attr, FIELDS[AttrType(attr.type)])
        if value is None:
            raise DataError(f"{definition.type}: attribute {attr.name} has no value")
        found[attr.name] = value
    return found


def _columns(description: ProgramDesc, op_type: str, side: str) -> list[str]:
    """The variables of the feed or fetch operators, in the order of their columns."""
    found: dict[int, str] = {}
    for op in description.blocks[0].ops:
        if op.type == op_type:
            names = [name for slot in getattr(op, side) for name in slot.arguments]
            column = next((attr.i for attr in op.attrs if attr.name == "col"), None)
            if len(names) != 1 or column is None or column in found:
                raise DataError(f"the {op_type} operators of the program contradict each other")
            found[column] = names[0]
    return [found[column] for column in sorted(found)]
