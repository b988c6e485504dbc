"""Layers for parts of tensors that are chosen at random or by their values, and for centers of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.errors import WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, create_state, emit, fed_integers, layer
from minigraph.support.arguments import INTEGERS
from minigraph.types import DType
from minigraph.unique_name import generate

__all__ = ["center_loss", "random_crop", "similarity_focus"]


@layer
def random_crop(x: Variable, shape: Sequence[int], seed: int | Variable | None = None) -> Variable:
    """A region of `shape` of the last dimensions of `x`, at random places, another for each sample.

    Parameters
    ----------
    x : Variable
    shape : sequence of int
        The sizes of the last dimensions of the result.
    seed : int or Variable, int64[1], optional
        The seed of the first run; each run leaves that of the next one. Default: a random number.
    """
    check_variable(x, "random_crop: x")
    if seed is None:
        seed = int(np.random.randint(-65536, 65536))
    attrs: dict[str, Any] = {"shape": shape}
    if isinstance(seed, INTEGERS):
        attrs["startup_seed"] = seed
        seed = create_state(generate("random_crop_seed"), [1], "int64", seed, persistable=True, stop_gradient=True)
    elif not isinstance(seed, Variable):
        raise WrongTypeError(f"random_crop: seed must be an integer or a Variable, got {seed!r:.60}")
    helper = LayerHelper("random_crop")
    out = helper.temporary()
    helper.append("random_crop", {"X": x, "Seed": seed}, {"Out": out, "SeedOut": seed}, attrs)
    return out


@layer
def similarity_focus(input: Variable, axis: int, indexes: Sequence[int], name: str | None = None) -> Variable:
    """A mask, 1 where matrices of each sample have the greatest elements, no two of them in a row or a column.

    Parameters
    ----------
    input : Variable, float of 4 dimensions, the batch first
    axis : {1, 2, 3}
        The dimension along which the matrices lie.
    indexes : sequence of int
        Which of them to look at; the mask is the same for all along `axis`.

    References
    ----------
    H. He and J. Lin, Pairwise word interaction modeling with deep neural networks, NAACL 2016.
    """
    x = check_floating(input, "similarity_focus: input")
    return emit("similarity_focus", name, X=x, axis=axis, indexes=indexes)


@layer
def center_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    alpha: float | Variable,
    param_attr: Any,
    update_center: bool = True,
) -> Variable:
    """Half of the squared distance of each row to the center of its class; the centers follow the rows.

    Parameters
    ----------
    input : Variable, float[batch, features]
    label : Variable, int64[batch, 1]
    alpha : float or Variable, float32[1]
        How far a center moves.
    param_attr : ParamAttr, str or Initializer
        Attributes of the centers, which no optimizer updates.
    update_center : bool
        Whether the centers move.

    Returns
    -------
    Variable, float[batch, 1]

    References
    ----------
    Y. Wen et al., A discriminative feature learning approach for deep face recognition, ECCV 2016.
    """
    helper = LayerHelper("center_loss")
    x = check_floating(input, "center_loss: input")
    assert x.shape is not None
    centers = helper.required(param_attr, [num_classes, x.shape[1]], x.dtype, "center_loss")
    centers.stop_gradient = True
    if not isinstance(alpha, Variable):
        if not isinstance(alpha, float | np.floating):
            raise WrongTypeError(f"center_loss: alpha must be a float or a Variable, got {alpha!r:.60}")
        rate = helper.create_variable(
            name="centerloss_alpha", shape=[1], dtype="float32", persistable=True, stop_gradient=True
        )
        dtype = int(DType.FP32)
        alpha = helper.emit("fill_constant", into=rate, shape=[1], dtype=dtype, value=alpha)
    differences, loss = helper.temporary(), helper.temporary()
    helper.append(
        "center_loss", {"X": x, "Label": fed_integers(label), "Centers": centers, "CenterUpdateRate": alpha},
        {"SampleCenterDiff": differences, "Loss": loss, "CentersOut": centers},
        {"cluster_num": num_classes, "need_update": update_center},
    )  # fmt: skip
    return loss
