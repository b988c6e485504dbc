"""Layers with special weights: bilinear products, convolutions of trees, spectral normalization, sampled classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.dygraph.layer import Layer
from minigraph.dygraph.operator_attrs import operator_attr
from minigraph.initializer import Normal, NumpyArrayInitializer
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating
from minigraph.layers.sampled_losses import alias_tables, append_nce, nce_attrs
from minigraph.layers.scaling import singular_sizes
from minigraph.param_attr import ParamAttr
from minigraph.support.public import public


class BilinearTensorProduct(Layer):
    """``x @ weight[i] @ y'`` for each of `output_dim` learned matrices, plus a bias.

    Parameters
    ----------
    input1_dim, input2_dim, output_dim : int
        Number of features of `x`, of `y` and of the result.
    name : str, optional
        Changes nothing.
    act : str, optional
        Operator applied to the result.
    """

    @public
    def __init__(
        self,
        input1_dim: int,
        input2_dim: int,
        output_dim: int,
        name: str | None = None,
        act: str | None = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._act = act
        self.weight = self._required([output_dim, input1_dim, input2_dim], param_attr)
        self.bias = self.create_parameter([1, output_dim], bias_attr, self._dtype, is_bias=True)

    def forward(self, x: Variable, y: Variable) -> Variable:
        x, y = check_floating(x, "BilinearTensorProduct: x"), check_floating(y, "BilinearTensorProduct: y")
        result = self._helper.emit("bilinear_tensor_product", X=x, Y=y, Weight=self.weight, Bias=self.bias)
        return self._helper.activation(result, self._act)


class TreeConv(Layer):
    """A convolution over trees; see `minigraph.contrib.layers.tree_conv`.

    Parameters
    ----------
    feature_size, output_size, num_filters : int
    max_depth : int
        Number of levels of the tree that a filter covers.
    act : str, optional
        Operator applied to the result.
    bias_attr : ParamAttr, optional
        Without one there is no bias.
    """

    @public
    def __init__(
        self,
        feature_size: int,
        output_size: int,
        num_filters: int = 1,
        max_depth: int = 2,
        act: str | None = "tanh",
        param_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._act, self._max_depth = act, max_depth
        self.bias = self.create_parameter([num_filters], bias_attr, dtype, is_bias=True) if bias_attr else None
        self.weight = self._required([feature_size, 3, output_size, num_filters], param_attr)

    def forward(self, nodes_vector: Variable, edge_set: Variable) -> Variable:
        nodes = check_floating(nodes_vector, "TreeConv: nodes_vector")
        slots = {"NodesVector": nodes, "EdgeSet": edge_set, "Filter": self.weight}
        result = self._helper.emit("tree_conv", **slots, max_depth=self._max_depth)
        return self._helper.activation(self._helper.plus(result, self.bias, axis=-1), self._act)


class SpectralNorm(Layer):
    """A weight divided by about its largest singular value; see `minigraph.layers.spectral_norm`.

    Parameters
    ----------
    weight_shape : sequence of int
    dim : int
        The dimension of the weight that is the rows of a matrix.
    power_iters : int
        Number of power iterations that improve the singular vectors in each call.
    """

    _dim = operator_attr("dim")
    _power_iters = operator_attr("power_iters")
    _eps = operator_attr("eps")

    @public
    def __init__(
        self,
        weight_shape: Sequence[int],
        dim: int = 0,
        power_iters: int = 1,
        eps: float = 1e-12,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._attrs: dict[str, Any] = {"dim": dim, "power_iters": power_iters, "eps": eps}
        left, right = singular_sizes(list(weight_shape), dim)
        self.weight_u = self._required([left], ParamAttr(), start=Normal(0.0, 1.0))
        self.weight_v = self._required([right], ParamAttr(), start=Normal(0.0, 1.0))
        self.weight_u.stop_gradient = self.weight_v.stop_gradient = True

    def forward(self, weight: Variable) -> Variable:
        weight = check_floating(weight, "SpectralNorm: weight")
        return self._helper.emit("spectral_norm", Weight=weight, U=self.weight_u, V=self.weight_v, **self._attrs)


class NCE(Layer):
    """Noise contrastive estimation; see `minigraph.layers.nce`.

    Parameters
    ----------
    num_total_classes : int
    dim : int
        Number of features of the input.
    sample_weight : Variable, optional
        Changes nothing, as in fluid: give it to the call.
    bias_attr : ParamAttr, str, Initializer, bool, optional
        As in fluid there is no bias for None.
    """

    @public
    def __init__(
        self,
        num_total_classes: int,
        dim: int,
        sample_weight: Variable | None = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        num_neg_samples: int | None = None,
        sampler: str = "uniform",
        custom_dist: Sequence[float] | None = None,
        seed: int = 0,
        is_sparse: bool = False,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._attrs = nce_attrs(num_total_classes, num_neg_samples, sampler, seed, is_sparse)
        self._inputs: dict[str, Any] = {}
        if sampler == "custom_dist":
            for slot, table in alias_tables(custom_dist, num_total_classes).items():
                start = NumpyArrayInitializer(table)
                found = self.create_parameter(
                    list(table.shape), ParamAttr(), dtype=table.dtype, default_initializer=start
                )
                assert found is not None
                found.stop_gradient = True
                self._inputs[slot] = found
        self.weight = self._required([num_total_classes, dim], param_attr)
        self.bias = (
            self.create_parameter([num_total_classes, 1], bias_attr, self._dtype, is_bias=True) if bias_attr else None
        )

    def forward(self, input: Variable, label: Variable, sample_weight: Variable | None = None) -> Variable:
        given = {
            "Input": check_floating(input, "NCE: input"), "Label": label, "Weight": self.weight, "Bias": self.bias,
            "SampleWeight": sample_weight,
        }  # fmt: skip
        return append_nce(self._helper, {**given, **self._inputs}, self._attrs)
