"""Layers that normalize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError, on_one_line, warn
from minigraph.initializer import Constant
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, constant, emit, features_of, input_or_attr, layer
from minigraph.param_attr import ParamAttr
from minigraph.support.window_rules import CHANNELS_LAST
from minigraph.types import DType
from minigraph.unique_name import generate

__all__ = ["batch_norm", "group_norm", "inplace_abn", "instance_norm", "l2_normalize", "layer_norm"]


_ONE = Constant(1.0)


def running_statistic(name: str | None, start: float, do_model_average: bool) -> ParamAttr:
    """The attribute of a running mean or variance: no gradient, but saved with the parameters."""
    return ParamAttr(name, Constant(start), trainable=False, do_model_average=bool(do_model_average))


def statistics_dtype(dtype: DType) -> DType:
    """Element type of the parameters and statistics of a batch normalization: float32 beside float16."""
    return DType.FP32 if dtype is DType.FP16 else dtype


@layer
@on_one_line
def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Variable:
    """Batch normalization: each channel to mean 0 and variance 1 over the batch, then a learned scale and shift.

    Parameters
    ----------
    input : Variable, float[batch, channels, ...]
        With the channels last if `data_layout` is NHWC.
    is_test : bool
        Use the running mean and variance, which training keeps.
    momentum : float or Variable
        Share of the running mean and variance that a step keeps.
    in_place : bool
        Write the result over `input`. A gradient that needs `input` is then refused.
    moving_mean_name, moving_variance_name : str, optional
        Names of the running mean and variance.
    use_global_stats : bool
        Use the running mean and variance in training too.

    Returns
    -------
    Variable
        Of the type of `input`.

    Raises
    ------
    ProgramError
        If `param_attr` or `bias_attr` is False, or the number of channels is not known.

    References
    ----------
    S. Ioffe and C. Szegedy, Batch normalization: accelerating deep network training by reducing internal covariate
    shift, ICML 2015.
    """
    x = check_floating(input, "batch_norm: input")
    helper = LayerHelper("batch_norm", name)
    shape, dtype = [_channels(x, data_layout)], statistics_dtype(x.dtype)
    scale = helper.required(param_attr, shape, dtype, default_initializer=_ONE)
    bias = helper.required(bias_attr, shape, dtype, is_bias=True)
    averaged = do_model_average_for_mean_and_var
    mean = helper.required(running_statistic(moving_mean_name, 0.0, averaged), shape, dtype)
    variance = helper.required(running_statistic(moving_variance_name, 1.0, averaged), shape, dtype)
    # The operator writes them; gradients and optimizers leave them alone.
    mean.stop_gradient = variance.stop_gradient = True
    attrs: dict[str, Any] = {
        "epsilon": epsilon, "is_test": is_test, "data_layout": data_layout, "use_global_stats": use_global_stats
    }  # fmt: skip
    inputs = {"X": x, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
    (inputs if isinstance(momentum, Variable) else attrs).update(input_or_attr(momentum, "MomentumTensor", "momentum"))
    return helper.activation(append_batch_norm(helper, inputs, attrs, x if in_place else None), act)


def append_batch_norm(
    helper: LayerHelper, inputs: dict[str, Variable], attrs: dict[str, Any], into: Variable | None = None,
    op_type: str = "batch_norm",
) -> Variable:  # fmt: skip
    """Append a ``batch_norm``, which writes over its running mean and variance; returns what is normalized."""
    running = {"MeanOut": inputs["Mean"], "VarianceOut": inputs["Variance"]}
    return append_norm(helper, op_type, inputs, "SavedMean SavedVariance", attrs, into, **running)


def append_norm(
    helper: LayerHelper, op_type: str, inputs: Mapping[str, Variable | None], saved: str, attrs: dict[str, Any],
    into: Variable | None = None, **outputs: Variable,
) -> Variable:  # fmt: skip
    """Append a normalization, with fresh variables for what it keeps in the slots `saved`; returns its output ``Y``."""
    kept = {slot: helper.temporary(stop_gradient=True) for slot in saved.split()}
    out = helper.temporary() if into is None else into
    given = {slot: var for slot, var in inputs.items() if var is not None}
    helper.append(op_type, given, {"Y": out, **outputs, **kept}, attrs)
    return out


def _channels(x: Variable, data_layout: str, layer: str = "batch_norm") -> int:
    assert x.shape is not None
    if data_layout not in ("NCHW", CHANNELS_LAST):
        raise WrongTypeError(f"{layer}: data_layout must be NCHW or NHWC, got {data_layout!r:.60}")
    if len(x.shape) < 2:
        raise ProgramError(f"{layer}: input must have at least 2 dimensions, got {x}")
    channels = x.shape[-1 if data_layout == CHANNELS_LAST else 1]
    if channels < 0:
        raise ProgramError(f"{layer}: the number of channels of {x} is not known")
    return channels


@layer
@on_one_line
def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Layer normalization: the features of each sample to mean 0 and variance 1, then a learned scale and shift.

    Parameters
    ----------
    input : Variable, float[..., features]
    scale, shift : bool
        Whether to learn a factor, and a term, for each feature.
    begin_norm_axis : int
        Dimensions from here on count as features.

    Raises
    ------
    ProgramError
        If the number of features is not known, or the attribute of what is learned is False.

    Warns
    -----
    UserWarning
        If an attribute is given for what is not learned.

    References
    ----------
    J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, arXiv:1607.06450, 2016.
    """
    x = check_floating(input, "layer_norm: input")
    assert x.shape is not None
    helper = LayerHelper("layer_norm", name)
    # Without scale and shift the operator needs no parameter, and so no number.
    features = features_of(x, begin_norm_axis, "layer_norm") if scale or shift else 0
    inputs: dict[str, Variable] = {"X": x}
    warn_of_unused(scale, param_attr, "layer_norm: param_attr is given, but scale is False")
    warn_of_unused(shift, bias_attr, "layer_norm: bias_attr is given, but shift is False")
    if scale:
        inputs["Scale"] = helper.required(param_attr, [features], x.dtype, default_initializer=_ONE)
    if shift:
        inputs["Bias"] = helper.required(bias_attr, [features], x.dtype, is_bias=True)
    attrs = {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis}
    return helper.activation(append_norm(helper, "layer_norm", inputs, "Mean Variance", attrs), act)


def warn_of_unused(is_used: bool, attr: Any, message: str) -> None:
    """Warn, as fluid does, if `attr` is given where it is not used."""
    if attr and not is_used:
        warn(message)


@layer
@on_one_line
def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Group normalization: each group of channels of each sample to mean 0 and variance 1, then scale and shift.

    Parameters
    ----------
    input : Variable, float[batch, channels, ...]
        With the channels last if `data_layout` is NHWC.
    groups : int
        Number of groups of equal size that the channels are split into.
    param_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
        False means no scale, or no shift. Fluid's function learns none for None either, against its documentation.

    References
    ----------
    Y. Wu and K. He, Group normalization, ECCV 2018.
    """
    x = check_floating(input, "group_norm: input")
    helper = LayerHelper("group_norm", name)
    shape, dtype = [_channels(x, data_layout, "group_norm")], statistics_dtype(x.dtype)
    scale: Variable | None = helper.parameter(param_attr, shape, dtype, default_initializer=_ONE)
    bias = helper.parameter(bias_attr, shape, dtype, is_bias=True)
    scale = constant_ones(helper, shape, dtype) if scale is None else scale
    inputs, attrs = {"X": x, "Scale": scale, "Bias": bias}, {"epsilon": epsilon, "groups": groups}
    # In fluid these have the names of variables without a layer.
    mean, variance, out = (helper.block.create_var(name=generate("_generated_var")) for _ in range(3))
    outputs = {"Mean": constant(mean), "Variance": constant(variance)}
    append_norm(helper, "group_norm", inputs, "", {**attrs, "data_layout": data_layout}, out, **outputs)
    return helper.activation(out, act)


def constant_ones(helper: LayerHelper, shape: list[int], dtype: DType) -> Variable:
    """A scale for a ``group_norm`` without one: as in fluid, its gradient without Scale would be wrong."""
    return constant(helper.emit("fill_constant", shape=shape, dtype=int(dtype), value=1.0))


@layer
@on_one_line
def instance_norm(
    input: Variable, epsilon: float = 1e-5, param_attr: Any = None, bias_attr: Any = None, name: str | None = None
) -> Variable:
    """Instance normalization: each channel of each sample to mean 0 and variance 1, then a learned scale and shift.

    Parameters
    ----------
    input : Variable, float[batch, channels, ...]

    Raises
    ------
    ProgramError
        If `param_attr` or `bias_attr` is False, or the number of channels is not known.

    References
    ----------
    D. Ulyanov, A. Vedaldi and V. Lempitsky, Instance normalization, arXiv:1607.08022, 2016.
    """
    x = check_floating(input, "instance_norm: input")
    helper = LayerHelper("instance_norm", name)
    shape, dtype = [_channels(x, "NCHW", "instance_norm")], statistics_dtype(x.dtype)
    scale = helper.required(param_attr, shape, dtype, default_initializer=_ONE)
    inputs = {"X": x, "Scale": scale, "Bias": helper.required(bias_attr, shape, dtype, is_bias=True)}
    return append_norm(helper, "instance_norm", inputs, "SavedMean SavedVariance", {"epsilon": epsilon})


@layer
def l2_normalize(x: Variable, axis: int | None, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """``x / sqrt(sum(x ** 2) + epsilon)`` along `axis` (None: 1; for a vector always 0)."""
    check_floating(x, "l2_normalize: x")
    helper = LayerHelper("l2_normalize", name)
    # Fluid's rule: for a vector `axis` does not count.
    at = 0 if len(x.shape or ()) == 1 else 1 if axis is None else axis
    out, norm = helper.temporary(), helper.temporary()
    helper.append("norm", {"X": x}, {"Out": out, "Norm": norm}, {"axis": at, "epsilon": epsilon})
    return out


@layer
def inplace_abn(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """`batch_norm` and an activation that can be undone.

    Parameters
    ----------
    act : {None, 'identity', 'leaky_relu', 'elu'}
    act_alpha : float
        The ``alpha`` of the activation.
    input, is_test, momentum, epsilon, param_attr, bias_attr, data_layout : see `batch_norm`
    moving_mean_name, moving_variance_name, do_model_average_for_mean_and_var, use_global_stats : see `batch_norm`

    Notes
    -----
    Fluid writes over `input`; here plans decide what shares memory.

    References
    ----------
    S. Rota Bulo, L. Porzi and P. Kontschieder, In-place activated BatchNorm for memory-optimized training of DNNs,
    CVPR 2018.
    """
    if act not in (None, "identity", "leaky_relu", "elu"):
        raise ProgramError(f"inplace_abn: act must be None, identity, leaky_relu or elu, got {act!r:.60}")
    named = generate("inplace_abn") if name is None else name
    normalized = batch_norm(
        input, None, is_test, momentum, epsilon, param_attr, bias_attr, data_layout, False, named, moving_mean_name,
        moving_variance_name, do_model_average_for_mean_and_var, use_global_stats,
    )  # fmt: skip
    return normalized if act in (None, "identity") else emit(act, X=normalized, alpha=act_alpha)
