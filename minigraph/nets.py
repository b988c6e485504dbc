"""Networks that many models are made of, written with the functions of `minigraph.layers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph import layers
from minigraph.errors import OpError, WrongTypeError, caller_site
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating
from minigraph.layers.image import Padding, Size
from minigraph.support.arguments import INTEGERS
from minigraph.support.public import public, refuse_unknown_names

__all__ = [
    "glu", "img_conv_group", "scaled_dot_product_attention", "sequence_conv_pool", "simple_img_conv_pool",
]  # fmt: skip


@public
def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: Size,
    pool_size: Size,
    pool_stride: Size,
    pool_padding: Padding = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: Size = 1,
    conv_padding: Padding = 0,
    conv_dilation: Size = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """`layers.conv2d`, then `layers.pool2d` of what that gives.

    Parameters
    ----------
    input : Variable, float[batch, channels, height, width]
    num_filters, filter_size, conv_stride, conv_padding, conv_dilation, conv_groups, param_attr, bias_attr, act
        As in `layers.conv2d`, by the names without ``conv_``.
    pool_size, pool_stride, pool_padding, pool_type, global_pooling
        As in `layers.pool2d`.
    use_cudnn : bool
        Of both.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     image = fluid.data("image", [None, 1, 28, 28])
    ...     fluid.nets.simple_img_conv_pool(image, 20, 5, pool_size=2, pool_stride=2, act="relu").shape
    (-1, 20, 12, 12)
    """
    filtered = layers.conv2d(
        input, num_filters, filter_size, conv_stride, conv_padding, conv_dilation, conv_groups, param_attr, bias_attr,
        use_cudnn, act,
    )  # fmt: skip
    return layers.pool2d(filtered, pool_size, pool_type, pool_stride, pool_padding, global_pooling, use_cudnn)


@public
def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: Size,
    conv_padding: int | Sequence[Padding] = 1,
    conv_filter_size: int | Sequence[Size] = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: bool | Sequence[bool] = False,
    conv_batchnorm_drop_rate: float | Sequence[float] = 0.0,
    pool_stride: Size = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """A convolution for each number of filters, each followed by normalization and dropout if so wished; then pooling.

    Parameters
    ----------
    input : Variable, float[batch, channels, height, width]
    conv_num_filter : sequence of int
        How many filters each convolution has.
    conv_padding, conv_filter_size, param_attr : or a sequence of them
        As `padding`, `filter_size` and `param_attr` of `layers.conv2d`, for all convolutions or for each.
    conv_act : str, optional
        Activation of each convolution, or of the `layers.batch_norm` that follows it.
    conv_with_batchnorm : bool or sequence of bool
        Whether a `layers.batch_norm` follows.
    conv_batchnorm_drop_rate : float or sequence of float
        Probability of the `layers.dropout` after a `layers.batch_norm`; none for 0. It has no meaning without.
    pool_size, pool_stride, pool_type, use_cudnn
        As in `layers.pool2d`.

    Raises
    ------
    WrongTypeError
        If `conv_num_filter` is no list or tuple.
    OpError
        If a sequence has not as many elements as there are convolutions.
    """
    if not isinstance(conv_num_filter, list | tuple):
        raise WrongTypeError(f"img_conv_group: conv_num_filter must be a list of int, got {conv_num_filter!r:.60}")
    count = len(conv_num_filter)
    paddings = _for_each("conv_padding", conv_padding, count)
    filter_sizes = _for_each("conv_filter_size", conv_filter_size, count)
    param_attrs = _for_each("param_attr", param_attr, count)
    is_normalized = _for_each("conv_with_batchnorm", conv_with_batchnorm, count)
    drop_rates = _for_each("conv_batchnorm_drop_rate", conv_batchnorm_drop_rate, count)
    x = input
    for i, filters in enumerate(conv_num_filter):
        x = layers.conv2d(
            x, filters, filter_sizes[i], padding=paddings[i], param_attr=param_attrs[i], use_cudnn=use_cudnn,
            act=None if is_normalized[i] else conv_act,
        )  # fmt: skip
        if is_normalized[i]:
            x = layers.batch_norm(x, act=conv_act)
            if abs(drop_rates[i]) > 1e-5:
                x = layers.dropout(x, drop_rates[i])
    return layers.pool2d(x, pool_size, pool_type, pool_stride, use_cudnn=use_cudnn)


def _for_each(name: str, given: Any, count: int) -> Sequence[Any]:
    if not hasattr(given, "__len__"):
        return [given] * count
    if len(given) != count:
        raise OpError(
            f"img_conv_group: {name} has {len(given)} elements for {count} convolutions", site=caller_site(),
            hint=f"Give one for each, or one for all: {name}={given!r:.60}.",
        )  # fmt: skip
    return list(given)


@public
def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: Any = None,
    act: str | None = "sigmoid",
    pool_type: str = "max",
    bias_attr: Any = None,
) -> Variable:
    """`layers.sequence_conv`, then `layers.sequence_pool` of what that gives: one row for each sequence.

    Parameters
    ----------
    input : Variable, float[rows, width] with lengths
    num_filters, filter_size, param_attr, act, bias_attr
        As in `layers.sequence_conv`.
    pool_type : str
        As in `layers.sequence_pool`.

    Returns
    -------
    Variable, float[sequences, num_filters]
    """
    filtered = layers.sequence_conv(
        input, num_filters, filter_size, param_attr=param_attr, bias_attr=bias_attr, act=act
    )
    return layers.sequence_pool(filtered, pool_type)


@public
def glu(input: Variable, dim: int = -1) -> Variable:
    """Gated linear unit: with `input` split into halves ``a`` and ``b`` along `dim`, ``a * sigmoid(b)``.

    Parameters
    ----------
    input : Variable, float
        An even number of elements along `dim`.
    dim : int

    References
    ----------
    Y. Dauphin, A. Fan, M. Auli and D. Grangier, Language modeling with gated convolutional networks, ICML 2017.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     fluid.nets.glu(fluid.data("words", [None, 6, 3, 9]), dim=1).shape
    (-1, 3, 3, 9)
    """
    a, b = layers.split(check_floating(input, "glu: input"), num_or_sections=2, dim=dim)
    return layers.elementwise_mul(a, layers.sigmoid(b))


@public
def scaled_dot_product_attention(
    queries: Variable, keys: Variable, values: Variable, num_heads: int = 1, dropout_rate: float = 0.0
) -> Variable:
    """The mean of the values for each query, weighted by ``softmax(query . key / sqrt(d))``, ``d`` features a head.

    With several heads, the features are split among them after a linear projection of all three, and put together
    again in the end. With one head nothing is projected.

    Parameters
    ----------
    queries : Variable, float[batch, number of queries, features]
    keys : Variable, float[batch, number of keys, features]
    values : Variable, float[batch, number of keys, features of a value]
    num_heads : int
        Divides both numbers of features.
    dropout_rate : float
        Probability by which a weight is dropped.

    Returns
    -------
    Variable, float[batch, number of queries, features of a value]

    Raises
    ------
    WrongTypeError
        If the three are not floating-point variables of one dtype.
    OpError
        If their shapes do not fit.

    References
    ----------
    A. Vaswani et al., Attention is all you need, NeurIPS 2017.
    """
    features = _check_attention(queries, keys, values, num_heads)
    q, k, v = queries, keys, values
    if num_heads > 1:
        sized = zip((q, k, v), features, strict=True)
        projected = [layers.fc(x, size, num_flatten_dims=2) for x, size in sized]
        q, k, v = (_split_heads(x, num_heads) for x in projected)
    scaled = layers.scale(q, scale=(features[1] // num_heads) ** -0.5)
    product = layers.matmul(scaled, k, transpose_y=True)
    shape = _shape(product)
    weights = layers.reshape(layers.reshape(product, [-1, shape[-1]], act="softmax"), shape)
    if dropout_rate:
        weights = layers.dropout(weights, dropout_rate)
    weighted = layers.matmul(weights, v)
    return weighted if num_heads == 1 else _join_heads(weighted)


def _check_attention(queries: Variable, keys: Variable, values: Variable, num_heads: int) -> list[int]:
    """The number of features of each, if they fit."""
    given = {"queries": queries, "keys": keys, "values": values}
    q, k, v = (_shape(check_floating(x, f"scaled_dot_product_attention: {name}")) for name, x in given.items())
    details = [f"{name} = {x}" for name, x in given.items()]
    if len({x.dtype for x in given.values()}) > 1:
        raise WrongTypeError(
            "scaled_dot_product_attention: queries, keys and values must have one dtype", details=details,
        )  # fmt: skip
    wrong = ""
    if any(len(shape) != 3 for shape in (q, k, v)):
        wrong = "queries, keys and values must have three dimensions: batch, number, features"
    elif q[2] != k[2]:
        wrong = f"a query has {q[2]} features but a key has {k[2]}"
    elif k[1] != v[1]:
        wrong = f"there are {k[1]} keys but {v[1]} values"
    elif not isinstance(num_heads, INTEGERS) or num_heads < 1:
        wrong = f"num_heads must be a positive int, got {num_heads!r:.60}"
    elif k[2] % num_heads or v[2] % num_heads:
        wrong = f"{k[2]} and {v[2]} features cannot be split among {num_heads} heads"
    if wrong:
        raise OpError(f"scaled_dot_product_attention: {wrong}", details=details, site=caller_site())
    return [q[2], k[2], v[2]]


def _split_heads(x: Variable, heads: int) -> Variable:
    """``[batch, number, features]`` as ``[batch, heads, number, features of a head]``."""
    batch, number, features = _shape(x)
    return layers.transpose(layers.reshape(x, [batch, number, heads, features // heads]), perm=[0, 2, 1, 3])


def _join_heads(x: Variable) -> Variable:
    """The reverse of `_split_heads`."""
    x = layers.transpose(x, perm=[0, 2, 1, 3])
    batch, number, heads, features = _shape(x)
    return layers.reshape(x, [batch, number, heads * features])


def _shape(x: Variable) -> tuple[int, ...]:
    assert x.shape is not None
    return x.shape


refuse_unknown_names(__name__)
