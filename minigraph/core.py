"""Names that fluid programs reach through ``fluid.core``."""

import enum
from collections.abc import Iterator, MutableMapping
from typing import Any

from minigraph.eager.tensor import Eager
from minigraph.errors import EOFException, ProgramError
from minigraph.errors import MinigraphError as EnforceNotMet
from minigraph.framework.flags import DEFAULTS, get_flags, set_flags
from minigraph.ir import Role
from minigraph.layer_helper.core_ops import ops
from minigraph.lod_tensor import LoDTensorArray
from minigraph.opdef import GRAD_SUFFIX
from minigraph.opdef.attr_types import AttrType
from minigraph.runtime.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    Place,
    get_cuda_device_count,
    is_compiled_with_cuda,
)
from minigraph.runtime.scope import Scope
from minigraph.runtime.scope_variable import LoDTensor, ScopeVariable, SelectedRows
from minigraph.support.public import public, refuse_unknown_names
from minigraph.types import DType, VarKind

__all__ = [
    "AttrType", "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "DType", "EOFException", "EnforceNotMet", "LoDTensor",
    "LoDTensorArray", "Place", "Scope", "SelectedRows", "VarDesc", "VarKind", "get_cuda_device_count", "globals",
    "is_compiled_with_brpc", "is_compiled_with_cuda", "is_compiled_with_mkldnn", "op_proto_and_checker_maker", "ops",
    "save_op_compatible_info",
]  # fmt: skip

# Fluid's other names.
Tensor, VarBase, Variable, _Scope = LoDTensor, Eager, ScopeVariable, Scope


_OtherKinds = enum.Enum("_OtherKinds", ["LOD_RANK_TABLE", "PLACE_LIST", "READER"])
"""Kinds of fluid that no variable has here; scripts that save models ask for them."""


class _VarTypes:
    """Element types and kinds of variables under one roof, as fluid has them."""

    def __getattr__(self, name: str) -> Any:
        for members in (DType.__members__, VarKind.__members__, _OtherKinds.__members__):
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


class _Flags(MutableMapping[str, Any]):
    """Fluid's flags by name, see `minigraph.set_flags`."""

    def __getitem__(self, name: str) -> Any:
        return get_flags(name)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        set_flags({name: value})

    def __delitem__(self, name: str) -> None:
        raise ProgramError(f"the flag {name} cannot be removed", hint="Set it to its default.")

    def __iter__(self) -> Iterator[str]:
        return iter(DEFAULTS)

    def __len__(self) -> int:
        return len(DEFAULTS)

    def is_public(self, name: str) -> bool:
        return name in self


def globals() -> _Flags:
    """Fluid's flags, to read and to set."""
    return _Flags()


@public
def is_compiled_with_mkldnn() -> bool:
    """False; layers take `use_mkldnn` without effect."""
    return False


@public
def is_compiled_with_brpc() -> bool:
    """False, because there are no parameter servers."""
    return False


def kEmptyVarName() -> str:
    """Fluid's name for no variable."""
    return "@EMPTY@"


def kGradVarSuffix() -> str:
    """End of the name of a gradient, after that of its variable."""
    return GRAD_SUFFIX


empty_var_name, grad_var_suffix = kEmptyVarName, kGradVarSuffix


@public
def save_op_compatible_info(desc: Any) -> None:
    """Do nothing: what is saved notes by itself since which version its operators are as they are."""


class VarDesc:
    """Holder of ``VarDesc.VarType``, the element types and the kinds of variables."""

    VarType = _VarTypes()


refuse_unknown_names(__name__)
