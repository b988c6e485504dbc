"""Single layers with the signatures of fluid, each of which computes one operator or a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.dygraph.layer import Layer
from minigraph.dygraph.operator_attrs import operator_attr
from minigraph.errors import ProgramError
from minigraph.initializer import Constant
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating
from minigraph.layers.image import Padding, Size, pool_attrs
from minigraph.layers.nn import check_integers, dropout, embedding_attrs
from minigraph.layers.recurrent import append_gru, gru_attrs
from minigraph.support.public import public


class Linear(Layer):
    """``act(x @ weight + bias)`` over the last dimension.

    Parameters
    ----------
    input_dim, output_dim : int
    param_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
        ``bias_attr=False``: no bias.
    act : str, optional
        Operator applied to the result.
    """

    @public
    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._act = act
        self.weight = self._required([input_dim, output_dim], param_attr)
        self.bias = self.create_parameter([output_dim], bias_attr, self._dtype, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        result = self._helper.emit("matmul", X=check_floating(input, "Linear: input"), Y=self.weight)
        assert result.shape is not None
        return self._helper.activation(self._helper.plus(result, self.bias, len(result.shape) - 1), self._act)


class Pool2D(Layer):
    """The greatest element or the average of each window of images; see `minigraph.layers.pool2d`."""

    _pool_size = operator_attr("ksize")
    _pool_type = operator_attr("pooling_type")
    _pool_stride = operator_attr("strides")
    _pool_padding = operator_attr("paddings")
    _global_pooling = operator_attr("global_pooling")
    _ceil_mode = operator_attr("ceil_mode")
    _exclusive = operator_attr("exclusive")

    @public
    def __init__(
        self,
        pool_size: Size = -1,
        pool_type: str = "max",
        pool_stride: Size = 1,
        pool_padding: Padding = 0,
        global_pooling: bool = False,
        use_cudnn: bool = True,
        ceil_mode: bool = False,
        exclusive: bool = True,
        data_format: str = "NCHW",
    ) -> None:
        super().__init__()
        self._attrs = pool_attrs(
            pool_size, pool_type, pool_stride, pool_padding, global_pooling, ceil_mode, exclusive, data_format
        )

    def forward(self, input: Variable) -> Variable:
        return self._helper.emit("pool2d", X=check_floating(input, "Pool2D: input"), **self._attrs)


class Embedding(Layer):
    """A learned row for each id, for ids of any shape.

    Parameters
    ----------
    size : sequence of int
        Number of rows, and of elements in each row.
    is_sparse : bool
        Whether the gradient of the table is selected rows, those that were looked up, so that an update need not look
        at the others.
    is_distributed : bool
        Kept as an attribute.
    padding_idx : int, optional
        An id that stands for a row of zeros that is not learned. A negative one counts from the end.
    """

    _is_sparse = operator_attr("is_sparse")
    _is_distributed = operator_attr("is_distributed")
    _padding_idx = operator_attr("padding_idx")

    @public
    def __init__(
        self,
        size: Sequence[int],
        is_sparse: bool = False,
        is_distributed: bool = False,
        padding_idx: int | None = None,
        param_attr: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._attrs = embedding_attrs(size, is_sparse, is_distributed, padding_idx)
        self._size = list(size)
        self.weight = self._required(self._size, param_attr)

    def forward(self, input: Variable) -> Variable:
        ids = check_integers(input, "Embedding: input")
        return self._helper.emit("lookup_table_v2", W=self.weight, Ids=ids, **self._attrs)


class Dropout(Layer):
    """Zero each element with probability `p` in training; see `minigraph.layers.dropout`.

    Parameters
    ----------
    is_test : bool
        Drop nothing even in training mode. In fluid it has an effect in static programs only.
    """

    @public
    def __init__(
        self,
        p: float = 0.5,
        seed: int | None = None,
        dropout_implementation: str = "downgrade_in_infer",
        is_test: bool = False,
    ) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ProgramError(f"Dropout: p must be in [0, 1], got {p!r:.60}")
        self._dropout_prob, self._dropout_implementation = p, dropout_implementation
        self._seed, self._is_test = seed, is_test

    def forward(self, input: Variable) -> Variable:
        is_test = self._is_test or not self.training
        return dropout(
            input, self._dropout_prob, is_test=is_test, seed=self._seed,
            dropout_implementation=self._dropout_implementation,
        )  # fmt: skip


class PRelu(Layer):
    """The input where it is positive, else the input times learned slopes, which start at 1.

    Parameters
    ----------
    mode : {'all', 'channel', 'element'}
        One slope, one for each channel, or one for each element of a sample.
    channel : int, optional
        Number of channels, for 'channel'.
    input_shape : sequence of int, optional
        The shape of the input, for 'element'; the first dimension does not count.
    """

    @public
    def __init__(
        self,
        mode: str,
        channel: int | None = None,
        input_shape: Sequence[int] | None = None,
        param_attr: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(name_scope="prelu", dtype=dtype)
        if mode == "all":
            shape = [1]
        elif mode == "channel" and channel is not None:
            # One slope for each channel of NCHW.
            shape = [1, channel, 1, 1]
        elif mode == "element" and input_shape is not None:
            shape = [1, *input_shape[1:]]
        else:
            raise ProgramError(
                f"PRelu: mode must be all, channel or element, got {mode!r:.60}, channel={channel} and "
                f"input_shape={input_shape}",
                hint="'channel' needs the argument channel, and 'element' input_shape.",
            )  # fmt: skip
        self._mode = mode
        self.weight = self._required(shape, param_attr, start=Constant(1.0))

    def forward(self, input: Variable) -> Variable:
        return self._helper.emit("prelu", X=check_floating(input, "PRelu: input"), Alpha=self.weight, mode=self._mode)


class GRUUnit(Layer):
    """One step of a gated recurrent unit; see `minigraph.layers.gru_unit`.

    Parameters
    ----------
    size : int
        Three times the number of units.
    """

    @public
    def __init__(
        self,
        size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        activation: str = "tanh",
        gate_activation: str = "sigmoid",
        origin_mode: bool = False,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        if size % 3:
            raise ProgramError(f"GRUUnit: size must be three times the number of units, got {size}")
        self._attrs = gru_attrs(activation, gate_activation, origin_mode, "GRUUnit")
        self.weight = self._required([size // 3, size], param_attr)
        self.bias = self.create_parameter([1, size], bias_attr, self._dtype, is_bias=True)

    def forward(self, input: Variable, hidden: Variable) -> tuple[Variable, Variable, Variable]:
        """The state, the state before times the reset gate, and the gates with the candidate."""
        x, state = check_floating(input, "GRUUnit: input"), check_floating(hidden, "GRUUnit: hidden")
        return append_gru(self._helper, x, state, self.weight, self.bias, self._attrs)
