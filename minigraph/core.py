"""Names that fluid programs reach through ``fluid.core``."""

from minigraph.ir import VarKind
from minigraph.place import CPUPlace, CUDAPlace, is_compiled_with_cuda
from minigraph.scope import LoDTensor, Scope
from minigraph.types import DType

__all__ = ["CPUPlace", "CUDAPlace", "DType", "LoDTensor", "Scope", "VarDesc", "VarKind", "is_compiled_with_cuda"]


class VarDesc:
    """Holder of ``VarDesc.VarType``, the element types; kinds of variables are `minigraph.ir.VarKind`."""

    VarType = DType
