"""Programs read from ``ProgramDesc`` messages, the contents of Paddle's ``__model__`` files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minigraph.errors import DataError, MinigraphError, NotFoundError, suggest
from minigraph.io.framework_proto import AttrType, OpAttr, OpDesc, OpVar, ProgramDesc, VarDesc, VarTypeType
from minigraph.io.program_desc import FEED, FETCH, FIELDS, source_of
from minigraph.io.wire import decode
from minigraph.ir import Block, Program, Variable, VarKind
from minigraph.ir.effects import DEEPEST
from minigraph.opdef import EMPTY, HINT_ATTRS, SUB_BLOCK, OpDef, all_definitions, definition_of
from minigraph.support.public import public
from minigraph.types import DType, TensorType

__all__ = ["deserialize_program"]

_IGNORED_ATTRS = HINT_ATTRS | {
    "skip_eager_deletion_vars", "workspace_size_MB", "exhaustive_search", "mkldnn_data_type",
    "min_row_size_to_use_multithread",
}  # fmt: skip
_LEFT_OVER = {("concat", "num"), ("concat", "sections")}
"""Attributes of ``split`` that Paddle leaves on the operator that is its gradient."""

_BACKEND_ATTRS = {
    "use_quantizer": False, "force_fp32_output": False, "fuse_brelu": False, "fuse_brelu_threshold": 6.0,
    "fuse_activation": "", "fuse_alpha": 0.0, "fuse_beta": 0.0, "Scale_in": 1.0, "Scale_out": 1.0,
    "Scale_in_eltwise": 1.0, "Scale_weights": [1.0], "height_sections": [], "epmap": [], "table_names": [],
    "x_data_format": "", "y_data_format": "",
}  # fmt: skip
"""Attributes for quantized, fused or distributed execution, with the value that turns it off."""


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
    """A program, the names that it feeds and those that it fetches; `source` names the file for errors."""
    try:
        description = decode(ProgramDesc, data)
    except DataError as error:
        raise DataError(f"{source} is damaged or no program: {error.message}") from None
    if not description.blocks:
        raise DataError(f"{source} is damaged or no program: it has no block")
    _refuse_unknown_operators(description, source)
    problems: list[str] = []
    program = _build(description, problems)
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
                _add_operator(block, op, f"operator {at}", problems)
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


def _add_operator(block: Block, op: OpDesc, place: str, problems: list[str]) -> None:
    missing = [
        f"{place}, {op.type}: there is no variable {name!r}"
        for slot in (*op.inputs, *op.outputs)
        for name in slot.arguments
        if name != EMPTY and block.find_var(name) is None
    ]
    problems += missing
    try:
        attrs = _read_attrs(definition_of(op.type), op.attrs)
        made = block._make_op(op.type, _read_slots(op.inputs), _read_slots(op.outputs), attrs, None)
    # All problems of a file are collected, and told together.
    except MinigraphError as error:
        problems += [f"{place}, {error.message}", *error.details]
        return
    if not missing:
        block._link(None, made)


def _read_slots(slots: Iterable[OpVar]) -> dict[str, list[str]]:
    return {slot.parameter: list(slot.arguments) for slot in slots if slot.arguments}


def _read_attrs(definition: OpDef, attrs: Iterable[OpAttr]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attr in attrs:
        if attr.name in _IGNORED_ATTRS or (definition.type, attr.name) in _LEFT_OVER:
            continue
        if attr.type not in FIELDS:
            raise DataError(f"{definition.type}: attribute {attr.name} has the type number {attr.type}")
        value = getattr(attr, FIELDS[AttrType(attr.type)])
        if value is None:
            raise DataError(f"{definition.type}: attribute {attr.name} has no value")
        if not _is_backend_default(definition, attr.name, value):
            found[attr.name] = value
    return found


def _is_backend_default(definition: OpDef, name: str, value: Any) -> bool:
    known = name in definition.attrs or name in definition.backend_attrs
    return not known and name in _BACKEND_ATTRS and value == _BACKEND_ATTRS[name]


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
