"""Parameters whose length and direction are learned apart: ``w = g * v / norm(v)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minigraph.errors import ProgramError
from minigraph.ir import Block, Parameter, Variable
from minigraph.ir.default_programs import default_main_program, default_startup_program, refuse_imperative_mode
from minigraph.param_attr import WeightNormParamAttr
from minigraph.support.arguments import INTEGERS
from minigraph.types import product
from minigraph.unique_name import generate

if TYPE_CHECKING:
    from minigraph.initializer import Initializer


def normalized_parameter(
    layer_name: str,
    attr: WeightNormParamAttr,
    name: str,
    shape: tuple[int, ...],
    dtype: Any,
    initializer: Initializer,
) -> Any:
    """``w``, computed in the main program from ``<name>_g`` and ``<name>_v``.

    ``v`` starts as `initializer` says, and ``g`` as the norm of that, so that ``w`` does.

    Raises
    ------
    ProgramError
        If `shape` has no dimension ``attr.dim``, or in the imperative mode.
    """
    refuse_imperative_mode("WeightNormParamAttr")
    dim = attr.dim
    if dim is not None and not (isinstance(dim, INTEGERS) and 0 <= dim < len(shape)):
        raise ProgramError(
            f"WeightNormParamAttr: dim must be None or a dimension of {name}, {list(shape)}, got {dim!r:.40}"
        )
    lengths = tuple(size if i == dim else 1 for i, size in enumerate(shape))
    main, startup = default_main_program(), default_startup_program().global_block()
    is_shared = startup.has_var(f"{name}_v")
    g = _parameter(startup, main.global_block(), f"{name}_g", lengths, dtype, attr, None)
    v = _parameter(startup, main.global_block(), f"{name}_v", shape, dtype, attr, None if is_shared else initializer)
    if not is_shared:
        norm = _Appending(startup, layer_name).norm(startup.vars[v.name], dim)
        startup.append_op("assign", {"X": norm}, {"Out": g.name})
    ops = _Appending(main.current_block(), layer_name)
    factor = ops.append("elementwise_div", {"X": g, "Y": ops.norm(v, dim)})
    factors, axis = ((1,), -1) if dim is None else ((shape[dim],), dim)
    w = ops.append("elementwise_mul", {"X": v, "Y": ops.reshaped(factor, factors)}, axis=axis)
    WeightNormParamAttr.params_with_weight_norm.append(w)
    return w


def _parameter(
    startup: Block, main: Block, name: str, shape: tuple[int, ...], dtype: Any, attr: WeightNormParamAttr,
    initializer: Initializer | None,
) -> Parameter:  # fmt: skip
    fields = attr.parameter_fields()
    startup.create_parameter(name, shape, dtype, initializer=initializer, **fields)
    return main.create_parameter(name, shape, dtype, **fields)


class _Appending:
    """Functions that append to one block, with temporaries named after a layer."""

    def __init__(self, block: Block, layer: str) -> None:
        self.block, self.layer = block, layer

    def append(self, type: str, inputs: dict[str, Any], **attrs: Any) -> Variable:
        out = self.block.create_var(name=generate(f"{self.layer}.weight_norm_{type}"))
        outputs = {"Out": out}
        if type in ("reshape2", "transpose2"):
            outputs["XShape"] = self.block.create_var(name=generate(f"{self.layer}.weight_norm_shape"))
        self.block.append_op(type, inputs, outputs, attrs)
        return out

    def reshaped(self, x: Variable, shape: tuple[int, ...]) -> Variable:
        return self.append("reshape2", {"X": x}, shape=shape)

    def norm(self, x: Variable, dim: int | None) -> Variable:
        """The L2 norm of `x` over all dimensions but `dim`, which keep the size 1."""
        shape = x.shape
        assert shape is not None
        if dim is None:
            return self.reshaped(self._norm_over(x, None), (1,) * len(shape))
        perm = [dim if i == 0 else 0 if i == dim else i for i in range(len(shape))]
        first = x if dim == 0 else self.append("transpose2", {"X": x}, axis=perm)
        norm = self._norm_over(self.reshaped(first, (shape[dim], product(shape) // max(shape[dim], 1))), 1)
        return self.reshaped(norm, tuple(size if i == dim else 1 for i, size in enumerate(shape)))

    def _norm_over(self, x: Variable, dim: int | None) -> Variable:
        squares = self.append("pow", {"X": self.append("abs", {"X": x})}, factor=2.0)
        total = self.append("reduce_sum", {"X": squares}, dim=[dim or 0], reduce_all=dim is None)
        return self.append("pow", {"X": total}, factor=0.5)
