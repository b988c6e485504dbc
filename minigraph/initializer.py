"""Start values of parameters: each initializer puts one operator in front of the startup program.

A seed of 0 means the startup program's ``random_seed`` when the initializer is used, and if that is 0 too, other
numbers in every run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Block, Operator, Variable
from minigraph.support.arguments import as_float
from minigraph.support.public import public, refuse_unknown_names


class Initializer:
    """Base of the initializers: ``initializer(var, block)`` prepends its operator and returns it."""

    def __call__(self, var: Variable, block: Block) -> Operator:
        type_, attrs = self.op_for(var, block)
        return block.prepend_op(type_, {}, {"Out": var}, attrs)

    def op_for(self, var: Variable, block: Block) -> tuple[str, dict[str, Any]]:
        """Type and attributes of the operator that fills `var`."""
        raise WrongTypeError(f"{type(self).__name__} does not say how to fill a variable")


class ConstantInitializer(Initializer):
    """Every element is `value`."""

    @public
    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        self.value = value
        self.force_cpu = force_cpu

    def op_for(self, var: Variable, block: Block) -> tuple[str, dict[str, Any]]:
        return "fill_constant", _shape_and_dtype(var, value=as_float(self.value), force_cpu=self.force_cpu)


class UniformInitializer(Initializer):
    """Uniform on [`low`, `high`); `diag_val` on every `diag_step`-th of the first `diag_num` diagonal places."""

    @public
    def __init__(
        self,
        low: float = -1.0,
        high: float = 1.0,
        seed: int = 0,
        diag_num: int = 0,
        diag_step: int = 0,
        diag_val: float = 1.0,
    ) -> None:
        self.low, self.high, self.seed = low, high, seed
        self.diag_num, self.diag_step, self.diag_val = diag_num, diag_step, diag_val

    def op_for(self, var: Variable, block: Block) -> tuple[str, dict[str, Any]]:
        diagonal = {"diag_num": self.diag_num, "diag_step": self.diag_step, "diag_val": self.diag_val}
        return _uniform(var, self.low, self.high, _seed(self.seed, block), **diagonal)


class NormalInitializer(Initializer):
    """Normal with mean `loc` and standard deviation `scale`."""

    @public
    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        self.loc, self.scale, self.seed = loc, scale, seed

    def op_for(self, var: Variable, block: Block) -> tuple[str, dict[str, Any]]:
        return _normal("gaussian_random", var, self.loc, self.scale, _seed(self.seed, block))


class TruncatedNormalInitializer(NormalInitializer):
    """Normal, drawn again until within two standard deviations of the mean."""

    def op_for(self, var: Variable, block: Block) -> tuple[str, dict[str, Any]]:
        return _normal("truncated_gaussian_random", var, self.loc, self.scale, _seed(self.seed, block))


class XavierInitializer(Initializer):
    """Random values of variance ``2 / (fan_in + fan_out)``, which keep the scale of gradients equal in all layers.

    References
    ----------
    X. Glorot and Y. Bengio, Understanding the difficulty of training deep feedforward neural networks, AISTATS 2010.
    """

    @public
    def __init__(
        self, uniform: bool = True, fan_in: float | None = None, fan_out: float | None = None, seed: int = 0
    ) -> None:
        self.uniform, self.fan_in, self.fan_out, self.seed = uniform, fan_in, fan_out, seed

    def op_for(self, var: Variable, block: Block) -> tuple[str, dict[str, Any]]:
        inputs, outputs = fans(var)
        fan_in = inputs if self.fan_in is None else self.fan_in
        fan_out = outputs if self.fan_out is None else self.fan_out
        return _with_variance(var, 2.0 / max(fan_in + fan_out, 1), self.uniform, _seed(self.seed, block))


class MSRAInitializer(Initializer):
    """Random values of variance ``2 / fan_in``, which keep the scale of activations equal in layers of rectifiers.

    References
    ----------
    K. He et al., Delving deep into rectifiers, ICCV 2015.
    """

    @public
    def __init__(self, uniform: bool = True, fan_in: float | None = None, seed: int = 0) -> None:
        self.uniform, self.fan_in, self.seed = uniform, fan_in, seed

    def op_for(self, var: Variable, block: Block) -> tuple[str, dict[str, Any]]:
        fan_in = fans(var)[0] if self.fan_in is None else self.fan_in
        return _with_variance(var, 2.0 / max(fan_in, 1), self.uniform, _seed(self.seed, block))


class NumpyArrayInitializer(Initializer):
    """The values of a given array, converted to the variable's dtype."""

    @public
    def __init__(self, value: Any) -> None:
        if not isinstance(value, np.ndarray):
            raise WrongTypeError(f"NumpyArrayInitializer needs an array, got {type(value).__name__}")
        self.value = value

    def op_for(self, var: Variable, block: Block) -> tuple[str, dict[str, Any]]:
        array = self.value.astype(var.dtype.numpy)
        slot = {"b": "bool_values", "i": "int32_values", "f": "fp32_values"}[array.dtype.kind]
        if array.dtype in (np.int64, np.float64):
            slot = {"i": "int64_values", "f": "fp64_values"}[array.dtype.kind]
        values = array.ravel().astype(np.int64) if array.dtype.kind == "b" else array.ravel()
        return "assign_value", {"shape": list(array.shape), "dtype": int(var.dtype), slot: values.tolist()}


class BilinearInitializer(Initializer):
    """Filters [out, in, size, size] of a transposed convolution that interpolate between pixels.

    With the stride s, size ``2 * s - s % 2`` and padding ``(s - 1) / 2``, rounded up, each channel is enlarged s times;
    a group for each channel keeps them apart.

    Raises
    ------
    ProgramError
        If the variable has another number of dimensions, or windows that are not square.
    """

    @public
    def __call__(self, var: Variable, block: Block) -> Operator:
        """Append the operator, as fluid's does, where the others are put first."""
        type_, attrs = self.op_for(var, block)
        return block.append_op(type_, {}, {"Out": var}, attrs)

    def op_for(self, var: Variable, block: Block) -> tuple[str, dict[str, Any]]:
        shape = var.shape or ()
        if len(shape) != 4 or shape[2] != shape[3]:
            raise ProgramError(f"Bilinear fills filters [out, in, size, size], not {var}")
        half = math.ceil(shape[3] / 2)
        center = (2 * half - 1 - half % 2) / (2 * half)
        weights = 1 - np.abs(np.arange(shape[3]) / half - center)
        return NumpyArrayInitializer(np.broadcast_to(np.outer(weights, weights), shape)).op_for(var, block)


@public
def fans(var: Variable) -> tuple[int, int]:
    """Number of inputs that an output of the layer depends on, and of outputs that an input reaches.

    For a matrix [in, out] its dimensions; for a convolution kernel [out, in, *window] the channels times the window.
    """
    shape = var.shape or ()
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    if len(shape) == 2:
        return shape[0], shape[1]
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def _shape_and_dtype(var: Variable, **more: Any) -> dict[str, Any]:
    return {"shape": var.shape or (), "dtype": int(var.dtype), **more}


def _seed(seed: int, block: Block) -> int:
    return seed or block.program.random_seed


def _uniform(var: Variable, low: float, high: float, seed: int, **more: Any) -> tuple[str, dict[str, Any]]:
    return "uniform_random", _shape_and_dtype(var, min=low, max=high, seed=seed, **more)


def _normal(type_: str, var: Variable, mean: float, std: float, seed: int) -> tuple[str, dict[str, Any]]:
    return type_, _shape_and_dtype(var, mean=mean, std=std, seed=seed)


def _with_variance(var: Variable, variance: float, uniform: bool, seed: int) -> tuple[str, dict[str, Any]]:
    if uniform:
        limit = math.sqrt(3.0 * variance)
        return _uniform(var, -limit, limit, seed)
    return _normal("gaussian_random", var, 0.0, math.sqrt(variance), seed)


# Fluid's short names.
Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer

refuse_unknown_names(__name__)
