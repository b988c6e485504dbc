"""The messages of Paddle's ``framework.proto``, which its ``__model__`` files hold, with their names and numbers.

Only fields of Paddle 1.8.5 are listed, and ``float64s`` of a later version, which an operator of minigraph needs.
"""

# ruff: noqa: RUF009  (proto makes a dataclasses.field)

from __future__ import annotations

import enum
from dataclasses import dataclass

from minigraph.io.wire import proto


class VarTypeType(enum.IntEnum):
    """Kinds of variables; the element types of the same enumeration are in `DType`."""

    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17
    TUPLE = 18


@dataclass(slots=True)
class Version:
    version: int | None = proto(1, "int64")


@dataclass(slots=True)
class OpAttr:
    """``OpDesc.Attr``."""

    name: str = proto(1, "string", required=True)
    type: int = proto(2, "enum", required=True)
    i: int | None = proto(3, "int32")
    f: float | None = proto(4, "float")
    s: str | None = proto(5, "string")
    ints: list[int] = proto(6, "int32", repeated=True)
    floats: list[float] = proto(7, "float", repeated=True)
    strings: list[str] = proto(8, "string", repeated=True)
    b: bool | None = proto(10, "bool")
    bools: list[bool] = proto(11, "bool", repeated=True)
    block_idx: int | None = proto(12, "int32")
    l: int | None = proto(13, "int64")
    blocks_idx: list[int] = proto(14, "int32", repeated=True)
    longs: list[int] = proto(15, "int64", repeated=True)
    float64s: list[float] = proto(16, "double", repeated=True)


@dataclass(slots=True)
class OpVar:
    """``OpDesc.Var``: a slot and the variables in it."""

    parameter: str = proto(1, "string", required=True)
    arguments: list[str] = proto(2, "string", repeated=True)


@dataclass(slots=True)
class OpDesc:
    inputs: list[OpVar] = proto(1, OpVar, repeated=True)
    outputs: list[OpVar] = proto(2, OpVar, repeated=True)
    type: str = proto(3, "string", required=True)
    attrs: list[OpAttr] = proto(4, OpAttr, repeated=True)
    is_target: bool | None = proto(5, "bool")


@dataclass(slots=True)
class TensorDesc:
    data_type: int = proto(1, "enum", required=True)
    dims: list[int] = proto(2, "int64", repeated=True)


@dataclass(slots=True)
class LoDTensorDesc:
    """Fields of ``LoDTensorDesc``, and of ``LoDTensorArrayDesc``, which has the same."""

    tensor: TensorDesc = proto(1, TensorDesc, required=True)
    lod_level: int | None = proto(2, "int32")


@dataclass(slots=True)
class ReaderDesc:
    lod_tensor: list[LoDTensorDesc] = proto(1, LoDTensorDesc, repeated=True)


@dataclass(slots=True)
class TupleDesc:
    """``VarType.Tuple``."""

    element_type: list[int] = proto(1, "enum", repeated=True)


@dataclass(slots=True)
class VarType:
    type: int = proto(1, "enum", required=True)
    selected_rows: TensorDesc | None = proto(2, TensorDesc)
    lod_tensor: LoDTensorDesc | None = proto(3, LoDTensorDesc)
    tensor_array: LoDTensorDesc | None = proto(4, LoDTensorDesc)
    reader: ReaderDesc | None = proto(5, ReaderDesc)
    tuple: TupleDesc | None = proto(7, TupleDesc)


@dataclass(slots=True)
class VarDesc:
    name: str = proto(1, "string", required=True)
    type: VarType = proto(2, VarType, required=True)
    persistable: bool | None = proto(3, "bool")
    need_check_feed: bool | None = proto(4, "bool")


@dataclass(slots=True)
class BlockDesc:
    idx: int = proto(1, "int32", required=True)
    parent_idx: int = proto(2, "int32", required=True)
    vars: list[VarDesc] = proto(3, VarDesc, repeated=True)
    ops: list[OpDesc] = proto(4, OpDesc, repeated=True)
    forward_block_idx: int | None = proto(5, "int32")


@dataclass(slots=True)
class CompatibleInfo:
    version: str = proto(1, "string", required=True)
    type: int = proto(2, "enum", required=True)


@dataclass(slots=True)
class OpCompatiblePair:
    op_name: str = proto(1, "string", required=True)
    compatible_info: CompatibleInfo = proto(2, CompatibleInfo, required=True)


@dataclass(slots=True)
class OpCompatibleMap:
    pair: list[OpCompatiblePair] = proto(1, OpCompatiblePair, repeated=True)
    default_required_version: str | None = proto(2, "string")


@dataclass(slots=True)
class ProgramDesc:
    blocks: list[BlockDesc] = proto(1, BlockDesc, repeated=True)
    op_compatible_map: OpCompatibleMap | None = proto(3, OpCompatibleMap)
    version: Version | None = proto(4, Version)
