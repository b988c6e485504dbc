"""Programs as ``ProgramDesc`` messages, the contents of Paddle's ``__model__`` files.

A description holds less than a program: it does not tell parameters from other persistable variables, has no clips,
regularizers or source lines, and only the roles of ``op_role``. ``str(program)`` holds all but the source lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from minigraph.errors import ProgramError
from minigraph.io import framework_proto as proto
from minigraph.ir import Block, Operator, Program, Variable, VarKind
from minigraph.ir.operator import slot_names
from minigraph.opdef import EMPTY, GRAD_SUFFIX, SUB_BLOCK, OpDef
from minigraph.opdef.attr_types import AttrType, attr_type, attr_type_of
from minigraph.types import DType, TensorType

PADDLE_VERSION = 1008005
"""Version that a description states: that of Paddle 1.8.5."""

FEED, FETCH = "feed", "fetch"

RANK_TABLE = TensorType(DType.INT64, (-1, 2))
"""Type of what ``lod_rank_table`` makes."""

# Paddle 1.8.5 writes into every description since which version it has or has changed these operators.
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

OUT_GRAD, ORIGINALS = "Out" + GRAD_SUFFIX, "original_output_grad"
"""The gradients that ``while_grad`` reads, and the names that they have inside."""

SLOTS_OF_PADDLE = {"reorder_lod_tensor_by_rank_grad": {"X": "Out@GRAD", "Out": "X@GRAD", "Like": "X"}}
"""Slots of a few gradient operators that Paddle calls otherwise, by its names; it has no ``Like``, and ignores it."""

FIELDS: Mapping[AttrType, str] = {
    AttrType.INT: "i", AttrType.FLOAT: "f", AttrType.STRING: "s", AttrType.INTS: "ints", AttrType.FLOATS: "floats",
    AttrType.STRINGS: "strings", AttrType.BOOLEAN: "b", AttrType.BOOLEANS: "bools", AttrType.LONG: "l",
    AttrType.LONGS: "longs", AttrType.FLOAT64S: "float64s", AttrType.BLOCK: "block_idx",
}  # fmt: skip
"""Field of `OpAttr` that holds the value of an attribute, by its type."""


def describe(program: Program) -> proto.ProgramDesc:
    """The description of a program."""
    _refuse_functions(program)
    blocks = [_describe_block(block) for block in program.blocks]
    changes = [
        proto.OpCompatiblePair(op, proto.CompatibleInfo("1.6.0", change)) for op, change in sorted(_CHANGES.items())
    ]
    return proto.ProgramDesc(blocks, proto.OpCompatibleMap(changes, "1.5.0"), proto.Version(PADDLE_VERSION))


def _refuse_functions(program: Program) -> None:
    for op in chain.from_iterable(block.ops for block in program.blocks):
        if op.type == "py_func":
            called = ", ".join(map(str, op.attr("functions")))
            raise ProgramError(
                f"a program that calls the function {called} cannot be saved", site=op.site,
                hint="Save its parameters, and build it again where they are loaded.",
            )  # fmt: skip


def _describe_block(block: Block) -> proto.BlockDesc:
    given = _given_gradients(block)
    tables = {name for op in block.ops.by_type.get("lod_rank_table", ()) for name in op.outputs["Out"]}
    variables = [
        _describe_table(var) if var.name in tables and _is_table(var) else _describe_variable(var)
        for var in block.vars.values()
        if var.name not in given
    ]
    forward = block.forward_block_idx if block.forward_block_idx >= 0 else None
    return proto.BlockDesc(
        block.idx, block.parent_idx, variables, [_describe_operator(op) for op in block.ops], forward
    )


def _given_gradients(block: Block) -> set[str]:
    """The gradients that a block of gradients reads from outside; Paddle finds them there under the same names."""
    given: set[str] = set()
    written: set[str] = set()
    for op in block.ops if block.forward_block_idx >= 0 else ():
        for name in slot_names(op.inputs):
            var = block.vars.get(name)
            source = source_of(block, name) if var is not None and name not in written else None
            if source is not None and var is not None and source.tensor_type == var.tensor_type:
                given.add(name)
        written.update(slot_names(op.outputs))
    return given


def source_of(block: Block, name: str) -> Variable | None:
    """The variable that `name` is a gradient, or a part of a gradient, of."""
    found = _GRADIENT.fullmatch(name)
    return None if found is None else block.find_var(found[1])


_GRADIENT = re.compile(rf"(.*){GRAD_SUFFIX}(?:@RENAME@.*)?")


def _is_table(var: Variable) -> bool:
    """Whether a variable is declared as nothing but what ``lod_rank_table`` makes."""
    return var.tensor_type == RANK_TABLE and var.kind is VarKind.LOD_TENSOR and not (var.lod_level or var.is_data)


def _describe_table(var: Variable) -> proto.VarDesc:
    """The description of a rank table, which is a tensor here and a kind of its own in Paddle."""
    return proto.VarDesc(var.name, proto.VarType(proto.VarTypeType.LOD_RANK_TABLE), bool(var.persistable))


def _describe_variable(var: Variable) -> proto.VarDesc:
    var_type = proto.VarType(proto.VarTypeType[var.kind.name])
    if var.tensor_type is not None:
        tensor = proto.TensorDesc(int(var.tensor_type.dtype), list(var.tensor_type.shape))
        if var.kind is VarKind.LOD_TENSOR_ARRAY:
            var_type.tensor_array = proto.LoDTensorDesc(tensor, var.lod_level)
        elif var.kind is VarKind.SELECTED_ROWS:
            var_type.selected_rows = tensor
        elif var.kind is VarKind.LOD_TENSOR:
            # Paddle states the level 0 of variables that layers make, and none of persistable ones.
            var_type.lod_tensor = proto.LoDTensorDesc(tensor, var.lod_level or (None if var.persistable else 0))
    return proto.VarDesc(var.name, var_type, bool(var.persistable), True if var.need_check_feed else None)


def _describe_operator(op: Operator) -> proto.OpDesc:
    attrs = []
    for name, value in op.all_attrs().items():
        if not _is_unset(op, name):
            attrs.append(_describe_attr(name, attr_type(op.type, name, op.definition.attrs[name].type, value), value))
    if op.definition.forward is not None:
        attrs += _backend_attrs(op.definition)
    inputs = dict(op.inputs)
    if SUB_BLOCK in op.attrs:  # whose empty slots Paddle asks for
        inputs = {**dict.fromkeys((slot.name for slot in op.definition.inputs), ()), **inputs}
        attrs.append(_describe_attr("skip_eager_deletion_vars", AttrType.STRINGS, ()))
        if op.type == "while_grad":
            begun = _begun_inside(op)
            inputs[OUT_GRAD] = (*inputs[OUT_GRAD], *begun)
            named = [*op.attr(ORIGINALS), *begun]
            attrs = [each for each in attrs if each.name != ORIGINALS]
            attrs.append(_describe_attr(ORIGINALS, AttrType.STRINGS, named))
    attrs += _field_attrs(op.attr("op_role"), op.role_vars, op.namescope)
    wanted = {slot: names for slot, names in op.outputs.items() if not _is_unwanted(op, slot)}
    outputs = {**dict.fromkeys(op.outputs, ()), **wanted}
    own = {ours: theirs for theirs, ours in SLOTS_OF_PADDLE.get(op.type, {}).items()}
    inputs, outputs = ({own.get(slot, slot): each[slot] for slot in each} for each in (inputs, outputs))
    return proto.OpDesc(_describe_slots(inputs), _describe_slots(outputs), op.type, attrs)


def _begun_inside(op: Operator) -> list[str]:
    """The gradients of arrays that begin with the block of gradients, which Paddle makes if they stand in a slot."""
    block = op.sub_block
    first_read: dict[str, None] = {}
    written: set[str] = set()
    for each in () if block is None else block.ops:
        first_read |= dict.fromkeys(name for name in slot_names(each.inputs) if name not in written)
        written.update(slot_names(each.outputs))
    names = [name + GRAD_SUFFIX for name in op.inputs["Out"]]
    arrays = (name for name in names if name in first_read and name not in op.inputs[OUT_GRAD])
    found = ((name, op.block.find_var(name)) for name in arrays)
    return [name for name, var in found if var is not None and var.kind is VarKind.LOD_TENSOR_ARRAY]


def _is_unset(op: Operator, name: str) -> bool:
    """Whether an attribute that Paddle does not have is at its default, and so is left out."""
    is_own = op.definition.attrs[name].type == "list[np.float64]" or (op.type, name) in _OWN_ATTRS
    return is_own and name not in op.attrs


_OWN_ATTRS = {("write_to_array", "add"), ("read_from_array", "is_array")}


def _is_unwanted(op: Operator, slot: str) -> bool:
    """Whether a slot holds only gradients that are not wanted; Paddle leaves such a slot empty."""
    return op.definition.output_slots[slot].dispensable and set(op.outputs[slot]) == {EMPTY}


def _describe_slots(slots: Mapping[str, tuple[str, ...]]) -> list[proto.OpVar]:
    return [proto.OpVar(slot, list(names)) for slot, names in sorted(slots.items())]


def _field_attrs(role: int, role_vars: Iterable[str], namescope: str) -> list[proto.OpAttr]:
    return [
        _describe_attr("op_role", AttrType.INT, role),
        _describe_attr("op_role_var", AttrType.STRINGS, role_vars),
        _describe_attr("op_namescope", AttrType.STRING, namescope),
    ]


def _backend_attrs(definition: OpDef) -> Iterable[proto.OpAttr]:
    """Attributes that choose an implementation. Paddle adds them to all but gradient operators, which fail without."""
    hints = {"use_cudnn": False, "use_mkldnn": False, "x_data_format": "", "y_data_format": ""}
    for name, value in {**hints, **definition.backend_attrs}.items():
        if value not in ([], ()):  # the type of an empty list is unknown, and no kernel reads one
            yield _describe_attr(name, attr_type_of(value), value)


def _describe_attr(name: str, kind: AttrType, value: Any) -> proto.OpAttr:
    attr = proto.OpAttr(name, kind)
    is_list = isinstance(getattr(attr, FIELDS[kind]), list)
    setattr(attr, FIELDS[kind], list(value) if is_list else value)
    return attr
