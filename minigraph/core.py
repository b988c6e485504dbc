"""Names that fluid programs reach through ``fluid.core``."""

from typing import Any

from minigraph.errors import EOFException
from minigraph.errors import MinigraphError as EnforceNotMet
from minigraph.ir import Role
from minigraph.layer_helper.core_ops import ops
from minigraph.lod_tensor import LoDTensorArray
from minigraph.runtime.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    Place,
    get_cuda_device_count,
    is_compiled_with_cuda,
)
from minigraph.runtime.scope import LoDTensor, Scope, SelectedRows
from minigraph.support.public import public, refuse_unknown_names
from minigraph.types import DType, VarKind

__all__ = [
    "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "DType", "EOFException", "EnforceNotMet", "LoDTensor", "LoDTensorArray",
    "Place", "Scope", "SelectedRows", "VarDesc", "VarKind", "get_cuda_device_count", "is_compiled_with_cuda",
    "op_proto_and_checker_maker", "ops",
]  # fmt: skip


class _VarTypes:
    """Element types and kinds of variables under one roof, as fluid has them."""

    def __getattr__(self, name: str) -> Any:
        for members in (DType.__members__, VarKind.__members__):
            if name in members:
                return members[name]
        raise AttributeError(f"VarType has no member {name!r}")

    def __call__(self, number: int) -> DType:
        return DType(number)


@public
class op_proto_and_checker_maker:
    """Holder of ``OpRole`` and of the names of the attributes that all operators have."""

    class OpRole:
        """Fluid's names of the members of `minigraph.ir.Role`."""

        Forward, Backward, Optimize = Role.FORWARD, Role.BACKWARD, Role.OPTIMIZE
        RPC, Dist, LRSched, Loss = Role.RPC, Role.DIST, Role.LR_SCHED, Role.LOSS

    @staticmethod
    def kOpRoleAttrName() -> str:
        return "op_role"

    @staticmethod
    def kOpRoleVarAttrName() -> str:
        return "op_role_var"

    @staticmethod
    def kOpNameScopeAttrName() -> str:
        return "op_namescope"


class VarDesc:
    """Holder of ``VarDesc.VarType``, the element types and the kinds of variables."""

    VarType = _VarTypes()


refuse_unknown_names(__name__)
