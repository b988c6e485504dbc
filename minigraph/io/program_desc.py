"""Programs as ``ProgramDesc`` messages, the contents of Paddle's ``__model__`` files, and back.

A description holds less than a program: not which persistable variables are parameters, no clips, regularizers or
source lines, and of roles what ``op_role`` holds. ``str(program)`` holds all but the source lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from minigraph.errors import DataError, MinigraphError, NotFoundError, ProgramError, caller_site, suggest
from minigraph.io.framework_proto import (
    AttrType,
    BlockDesc,
    CompatibleInfo,
    LoDTensorDesc,
    OpAttr,
    OpCompatibleMap,
    OpCompatiblePair,
    OpDesc,
    OpVar,
    ProgramDesc,
    TensorDesc,
    VarDesc,
    VarType,
    VarTypeType,
    Version,
)
from minigraph.io.wire import decode, encode
from minigraph.ir import Block, Operator, Program, Variable, VarKind
from minigraph.opdef import EMPTY, GRAD_SUFFIX, HINT_ATTRS, SUB_BLOCK, OpDef, all_definitions, definition_of
from minigraph.sub_blocks import slot_names
from minigraph.types import DType, TensorType

PADDLE_VERSION = 1008005
"""What a description says it was made by: Paddle 1.8.5."""

FEED, FETCH = "feed", "fetch"

# What Paddle 1.8.5 writes into every description: since when operators have what they have now.
_LIKELY_COMPATIBLE = (
    "bilinear_interp chunk_eval conditional_block conditional_block_infer conv2d conv2d_transpose conv3d "
    "conv3d_transpose crf_decoding ctc_align data_norm depthwise_conv2d depthwise_conv2d_transpose edit_distance "
    "expand fc fused_embedding_seq_pool group_norm hash leaky_relu linear_chain_crf lod_reset matmul mul "
    "nearest_interp one_hot pow prior_box reshape2 slice uniform_random "
    "uniform_random_batch_size_like warpctc"
)
_NEW_THEN = (
    "center_loss coalesce_tensor crop_tensor deformable_conv deformable_conv_v1 dpsgd eye fill_any_like "
    "filter_by_instag gather_nd hard_swish instance_norm lookup_table_v2 match_matrix_tensor multiclass_nms2 "
    "one_hot_v2 prroi_pool pull_box_sparse scatter_nd_add sequence_pad sequence_topk_avg_pooling sequence_unpad "
    "shard_index size strided_slice trilinear_interp unfold unique unique_with_counts var_conv_2d"
)
_CHANGES = {**dict.fromkeys(_NEW_THEN.split(), 1), **dict.fromkeys(_LIKELY_COMPATIBLE.split(), 2), "layer_norm": 3}

_FIELDS: Mapping[AttrType, str] = {
    AttrType.INT: "i", AttrType.FLOAT: "f", AttrType.STRING: "s", AttrType.INTS: "ints", AttrType.FLOATS: "floats",
    AttrType.STRINGS: "strings", AttrType.BOOLEAN: "b", AttrType.BOOLEANS: "bools", AttrType.LONG: "l",
    AttrType.LONGS: "longs", AttrType.FLOAT64S: "float64s", AttrType.BLOCK: "block_idx",
}  # fmt: skip
_TYPES = {
    "int": AttrType.INT, "float": AttrType.FLOAT, "bool": AttrType.BOOLEAN, "str": AttrType.STRING,
    "list[int]": AttrType.INTS, "list[float]": AttrType.FLOATS, "list[np.float64]": AttrType.FLOAT64S,
    "list[bool]": AttrType.BOOLEANS, "list[str]": AttrType.STRINGS, "BlockIndex": AttrType.BLOCK,
}  # fmt: skip
_LONG_ATTRS = {
    ("arg_max", "axis"), ("arg_min", "axis"), ("assign_value", "int64_values"),
    ("average_accumulates", "max_average_window"), ("average_accumulates", "min_average_window"),
    ("fill_constant", "shape"), ("gaussian_random", "shape"), ("lookup_table", "padding_idx"),
    ("lookup_table_grad", "padding_idx"), ("lookup_table_v2", "padding_idx"), ("lookup_table_v2_grad", "padding_idx"),
    ("randint", "shape"), ("uniform_random", "shape"),
}  # fmt: skip
"""Integer attributes that Paddle declares with 64 bits."""

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
"""Attributes for quantized, fused or distributed execution, with the one value that means none of it."""


# Writing


def serialize_program(program: Program) -> bytes:
    """The bytes of a program's description, as ``__model__`` and ``.pdmodel`` files hold it.

    See Also
    --------
    deserialize_program : its inverse, but for what a description does not hold.

    Examples
    --------
    >>> import minigraph as fluid
    >>> main = fluid.Program()
    >>> with fluid.program_guard(main), fluid.unique_name.guard():
    ...     y = fluid.layers.relu(fluid.data("x", [None, 4]))
    >>> deserialize_program(serialize_program(main)).global_block().ops[0]
    <Operator relu_0.tmp_0: float32[-1, 4] = relu(X=x)>
    """
    return encode(describe(program))


def describe(program: Program, feeds: Iterable[str] = (), fetches: Iterable[str] = ()) -> ProgramDesc:
    """The description of a program, with operators that feed and fetch these variables."""
    _refuse_functions(program)
    blocks = [_describe_block(block) for block in program.blocks]
    feed_ops, fetch_ops = list(_feed_ops(feeds)), list(_fetch_ops(fetches))
    blocks[0].ops[:0] = feed_ops
    blocks[0].ops += fetch_ops
    for name, kind, ops in (
        (FEED, VarTypeType.FEED_MINIBATCH, feed_ops),
        (FETCH, VarTypeType.FETCH_LIST, fetch_ops),
    ):
        if ops:
            if program.global_block().has_var(name):
                raise ProgramError(
                    f"a program with a variable {name!r} cannot be saved as a model", site=caller_site(),
                    hint=f"Paddle's operators that {name} need this name.",
                )  # fmt: skip
            blocks[0].vars.append(VarDesc(name, VarType(kind), persistable=True))
    changes = [OpCompatiblePair(op, CompatibleInfo("1.6.0", change)) for op, change in sorted(_CHANGES.items())]
    return ProgramDesc(blocks, OpCompatibleMap(changes, "1.5.0"), Version(PADDLE_VERSION))


def _refuse_functions(program: Program) -> None:
    for block in program.blocks:
        for op in block.ops:
            if op.type == "py_func":
                raise ProgramError(
                    f"a program that calls the function {op.attr('functions')[0]} cannot be saved", site=op.site,
                    hint="Save its parameters, and build it again where they are loaded.",
                )  # fmt: skip


def _feed_ops(names: Iterable[str]) -> Iterable[OpDesc]:
    # The last column stands first, as Paddle has it.
    for column, name in reversed(list(enumerate(names))):
        yield OpDesc([OpVar("X", [FEED])], [OpVar("Out", [name])], "feed", _column(column))


def _fetch_ops(names: Iterable[str]) -> Iterable[OpDesc]:
    for column, name in enumerate(names):
        yield OpDesc([OpVar("X", [name])], [OpVar("Out", [FETCH])], "fetch", _column(column))


def _column(column: int) -> list[OpAttr]:
    return [_describe_attr("col", AttrType.INT, column), *_field_attrs(0, (), "/")]


def _describe_block(block: Block) -> BlockDesc:
    given = _given_gradients(block)
    variables = [_describe_variable(var) for var in block.vars.values() if var.name not in given]
    forward = block.forward_block_idx if block.forward_block_idx >= 0 else None
    return BlockDesc(block.idx, block.parent_idx, variables, [_describe_operator(op) for op in block.ops], forward)


def _given_gradients(block: Block) -> set[str]:
    """The gradients that a block of them is given, which Paddle finds outside, under the same names."""
    given: set[str] = set()
    written: set[str] = set()
    for op in block.ops if block.forward_block_idx >= 0 else ():
        for name in slot_names(op.inputs):
            var = block.vars.get(name)
            source = _source_of(block, name) if var is not None and name not in written else None
            if source is not None and var is not None and source.tensor_type == var.tensor_type:
                given.add(name)
        written.update(slot_names(op.outputs))
    return given


def _source_of(block: Block, name: str) -> Variable | None:
    """The variable that `name` is a gradient, or a part of a gradient, of."""
    found = _GRADIENT.fullmatch(name)
    return None if found is None else block.find_var(found[1])


_GRADIENT = re.compile(rf"(.*){GRAD_SUFFIX}(?:@RENAME@.*)?")


def _describe_variable(var: Variable) -> VarDesc:
    tensor = None
    if var.tensor_type is not None:
        tensor = TensorDesc(int(var.tensor_type.dtype), list(var.tensor_type.shape))
    if var.kind is VarKind.STEP_SCOPES:
        var_type = VarType(VarTypeType.STEP_SCOPES)
    elif var.kind is VarKind.LOD_TENSOR_ARRAY:
        elements = LoDTensorDesc(tensor, 0) if tensor is not None else None
        var_type = VarType(VarTypeType.LOD_TENSOR_ARRAY, tensor_array=elements)
    elif var.kind is VarKind.SELECTED_ROWS:
        var_type = VarType(VarTypeType.SELECTED_ROWS, selected_rows=tensor)
    else:
        # As in Paddle's descriptions, which state the level 0 of what layers make but not of what is saved.
        lod_tensor = LoDTensorDesc(tensor, None if var.persistable else 0) if tensor is not None else None
        var_type = VarType(VarTypeType.LOD_TENSOR, lod_tensor=lod_tensor)
    return VarDesc(var.name, var_type, bool(var.persistable), True if var.need_check_feed else None)


def _describe_operator(op: Operator) -> OpDesc:
    attrs = []
    for name, value in op.all_attrs().items():
        if not _is_unset(op, name):
            attrs.append(_describe_attr(name, _attr_type(op, name, value), value))
    if op.definition.forward is not None:
        attrs += _backend_attrs(op.definition)
    if SUB_BLOCK in op.attrs:
        attrs.append(_describe_attr("skip_eager_deletion_vars", AttrType.STRINGS, ()))
    attrs += _field_attrs(op.attr("op_role"), op.role_vars, op.namescope)
    wanted = {slot: names for slot, names in op.outputs.items() if not _is_unwanted(op, slot)}
    outputs = {**dict.fromkeys(op.outputs, ()), **wanted}
    return OpDesc(_describe_slots(op.inputs), _describe_slots(outputs), op.type, attrs)


def _is_unset(op: Operator, name: str) -> bool:
    """Whether an attribute that Paddle does not have is at its default, so that it need not be told."""
    is_own = op.definition.attrs[name].type == "list[np.float64]" or (op.type, name) in _OWN_ATTRS
    return is_own and name not in op.attrs


_OWN_ATTRS = {("write_to_array", "add"), ("read_from_array", "is_array")}


def _is_unwanted(op: Operator, slot: str) -> bool:
    """Whether a slot has only gradients that are not wanted; Paddle leaves it empty."""
    return op.definition.output_slots[slot].dispensable and set(op.outputs[slot]) == {EMPTY}


def _describe_slots(slots: Mapping[str, tuple[str, ...]]) -> list[OpVar]:
    return [OpVar(slot, list(names)) for slot, names in sorted(slots.items())]


def _field_attrs(role: int, role_vars: Iterable[str], namescope: str) -> list[OpAttr]:
    return [
        _describe_attr("op_role", AttrType.INT, role),
        _describe_attr("op_role_var", AttrType.STRINGS, role_vars),
        _describe_attr("op_namescope", AttrType.STRING, namescope),
    ]


def _attr_type(op: Operator, name: str, value: Any) -> AttrType:
    """The declared type; 64 bits where a number needs them, though Paddle refuses the operator then."""
    found = _TYPES[op.definition.attrs[name].type]
    if found not in (AttrType.INT, AttrType.INTS):
        return found
    numbers = [value] if found is AttrType.INT else value
    bits = max(((number if number >= 0 else ~number).bit_length() for number in numbers), default=0)
    if bits > 63:
        raise DataError(f"{op.type}: attribute {name} = {value} does not fit 64 bits", site=op.site)
    if (op.type, name) in _LONG_ATTRS or bits > 31:
        return AttrType.LONG if found is AttrType.INT else AttrType.LONGS
    return found


def _backend_attrs(definition: OpDef) -> Iterable[OpAttr]:
    """Attributes that choose an implementation; Paddle fills them in but for gradient operators, which fail without."""
    hints = {"use_cudnn": False, "use_mkldnn": False, "x_data_format": "", "y_data_format": ""}
    for name, value in {**hints, **definition.backend_attrs}.items():
        if value not in ([], ()):  # an empty list does not tell its type, and no kernel reads those there are
            yield _describe_attr(name, _type_of(value), value)


def _type_of(value: Any) -> AttrType:
    """The type of a backend attribute, told from its value."""
    if isinstance(value, list | tuple):
        return {AttrType.INT: AttrType.INTS, AttrType.FLOAT: AttrType.FLOATS}[_type_of(value[0])]
    return _TYPES[type(value).__name__]


def _describe_attr(name: str, attr_type: AttrType, value: Any) -> OpAttr:
    attr = OpAttr(name, attr_type)
    is_list = isinstance(getattr(attr, _FIELDS[attr_type]), list)
    setattr(attr, _FIELDS[attr_type], list(value) if is_list else value)
    return attr


# Reading


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
        raise DataError(f"{source} is damaged or no program: {error.message}", site=caller_site()) from None
    if not description.blocks:
        raise DataError(f"{source} is damaged or no program: it has no block", site=caller_site())
    _refuse_unknown_operators(description, source)
    problems: list[str] = []
    program = _build(description, problems)
    feeds, fetches = _columns(description, "feed", "outputs"), _columns(description, "fetch", "inputs")
    variables = program.global_block().vars
    problems += [f"{name} is fed or fetched but not there" for name in feeds + fetches if name not in variables]
    if problems:
        raise DataError(f"{source} is no program that minigraph can run", details=problems, site=caller_site())
    for name in feeds:
        variables[name].is_data = variables[name].stop_gradient = True
    return program, feeds, fetches


def _refuse_unknown_operators(description: ProgramDesc, source: str) -> None:
    known = [definition.type for definition in all_definitions()]
    uses: dict[str, int] = {}
    for block in description.blocks:
        for op in block.ops:
            if op.type not in known and op.type not in (FEED, FETCH):
                uses[op.type] = uses.get(op.type, 0) + 1
    if uses:
        details = [f"{op_type}, {count} time{'s' if count > 1 else ''}" for op_type, count in sorted(uses.items())]
        raise NotFoundError(
            f"{source} has operators that minigraph does not have", details=details, site=caller_site(),
            hint=" ".join(filter(None, (suggest(op_type, known) for op_type in sorted(uses)[:1]))),
        )  # fmt: skip


def _build(description: ProgramDesc, problems: list[str]) -> Program:
    program = Program()
    for index, block_desc in enumerate(description.blocks):
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
    """Give a block of gradients variables for all of them; Paddle relies on those outside, or on none."""
    forward = block.forward_block
    for name in sorted(used):
        var = _source_of(block, name)
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
    kind, tensor = var.type.type, var.type.selected_rows
    if kind in (VarTypeType.FEED_MINIBATCH, VarTypeType.FETCH_LIST):
        return
    if kind in (VarTypeType.LOD_TENSOR_ARRAY, VarTypeType.STEP_SCOPES):
        tensor = var.type.tensor_array.tensor if var.type.tensor_array is not None else None
    elif kind == VarTypeType.LOD_TENSOR:
        tensor = var.type.lod_tensor.tensor if var.type.lod_tensor is not None else None
        if var.type.lod_tensor is not None and var.type.lod_tensor.lod_level:
            problems.append(f"{var.name} has lod_level={var.type.lod_tensor.lod_level}; LoD tensors are out of scope")
    elif kind != VarTypeType.SELECTED_ROWS:
        # A variable that nothing uses does no harm, whatever it is.
        if var.name in used:
            problems.append(f"{var.name} is a {_name_of_kind(kind)}, which minigraph does not have")
        return
    tensor_type = None
    if tensor is not None:
        if tensor.data_type not in DType._value2member_map_ or min(tensor.dims, default=0) < -1:
            problems.append(f"{var.name} has the element type {tensor.data_type} and the shape {tensor.dims}")
            return
        tensor_type = TensorType(DType(tensor.data_type), tuple(tensor.dims))
    block.vars[var.name] = Variable(
        block, var.name, tensor_type, persistable=bool(var.persistable), need_check_feed=bool(var.need_check_feed),
        kind=_KINDS[VarTypeType(kind)],
        # Only what layers make to be fed has its feeds checked.
        is_data=bool(var.need_check_feed), stop_gradient=bool(var.need_check_feed),
    )  # fmt: skip


_KINDS = {
    VarTypeType.LOD_TENSOR: VarKind.LOD_TENSOR, VarTypeType.SELECTED_ROWS: VarKind.SELECTED_ROWS,
    VarTypeType.LOD_TENSOR_ARRAY: VarKind.LOD_TENSOR_ARRAY, VarTypeType.STEP_SCOPES: VarKind.STEP_SCOPES,
}  # fmt: skip


def _name_of_kind(kind: int) -> str:
    return VarTypeType(kind).name if kind in VarTypeType._value2member_map_ else f"kind {kind}"


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
        if attr.type not in _FIELDS:
            raise DataError(f"{definition.type}: attribute {attr.name} has the type number {attr.type}")
        value = getattr(attr, _FIELDS[AttrType(attr.type)])
        if value is None:
            raise DataError(f"{definition.type}: attribute {attr.name} has no value")
        if not _is_backend_default(definition, attr.name, value):
            found[attr.name] = value
    return found


def _is_backend_default(definition: OpDef, name: str, value: Any) -> bool:
    known = name in definition.attrs or name in definition.backend_attrs
    return not known and name in _BACKEND_ATTRS and value == _BACKEND_ATTRS[name]


def _columns(description: ProgramDesc, op_type: str, side: str) -> list[str]:
    """The variables that the feed or fetch operators concern, in the order of their columns."""
    found: dict[int, str] = {}
    for op in description.blocks[0].ops:
        if op.type == op_type:
            names = [name for slot in getattr(op, side) for name in slot.arguments]
            column = next((attr.i for attr in op.attrs if attr.name == "col"), None)
            if len(names) != 1 or column is None or column in found:
                raise DataError(f"the {op_type} operators of the program contradict each other", site=caller_site())
            found[column] = names[0]
    return [found[column] for column in sorted(found)]
