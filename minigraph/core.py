"""Names that fluid programs reach through ``fluid.core``."""

from typing import Any

from minigraph.errors import EOFException
from minigraph.lod_tensor import LoDTensorArray
from minigraph.runtime.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, get_cuda_device_count, is_compiled_with_cuda
from minigraph.runtime.scope import LoDTensor, Scope, SelectedRows
from minigraph.types import DType, VarKind

__all__ = [
    "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "DType", "EOFException", "LoDTensor", "LoDTensorArray", "Scope",
    "SelectedRows", "VarDesc", "VarKind", "get_cuda_device_count", "is_compiled_with_cuda",
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


class VarDesc:
    """Holder of ``VarDesc.VarType``, the element types and the kinds of variables."""

    VarType = _VarTypes()
