"""Functions that write programs: each appends operators to the default main program and returns their results."""

from minigraph.layers.activation import abs, exp, log, log_softmax, relu, sigmoid, sign, softmax, sqrt, square, tanh
from minigraph.layers.clipping import clip, clip_by_norm
from minigraph.layers.elementwise import (
    elementwise_add,
    elementwise_div,
    elementwise_max,
    elementwise_min,
    elementwise_mul,
    elementwise_sub,
    scale,
)
from minigraph.layers.image import conv2d, pool2d
from minigraph.layers.io import data, fluid_data
from minigraph.layers.loss import cross_entropy, mse_loss, softmax_with_cross_entropy, square_error_cost
from minigraph.layers.metric import accuracy
from minigraph.layers.nn import dropout, embedding, fc, fluid_embedding, matmul, mul
from minigraph.layers.normalization import batch_norm, layer_norm
from minigraph.layers.random import gaussian_random, uniform_random
from minigraph.layers.reduce import mean, reduce_max, reduce_mean, reduce_min, reduce_sum, sum, sums
from minigraph.layers.tensor import (
    assign,
    cast,
    concat,
    create_global_var,
    create_parameter,
    create_tensor,
    fill_constant,
    fill_constant_batch_size_like,
    increment,
    ones,
    reshape,
    topk,
    transpose,
    zeros,
)

__all__ = [
    "abs", "accuracy", "assign", "batch_norm", "cast", "clip", "clip_by_norm", "concat", "conv2d",
    "create_global_var", "create_parameter", "create_tensor", "cross_entropy", "data", "dropout", "elementwise_add",
    "elementwise_div", "elementwise_max", "elementwise_min", "elementwise_mul", "elementwise_sub", "embedding",
    "exp", "fc", "fill_constant", "fill_constant_batch_size_like", "fluid_data", "fluid_embedding",
    "gaussian_random", "increment", "layer_norm", "log", "log_softmax", "matmul", "mean", "mse_loss", "mul", "ones",
    "pool2d", "reduce_max", "reduce_mean", "reduce_min", "reduce_sum", "relu", "reshape", "scale", "sigmoid",
    "sign", "softmax", "softmax_with_cross_entropy", "sqrt", "square", "square_error_cost", "sum", "sums", "tanh",
    "topk", "transpose", "uniform_random", "zeros",
]  # fmt: skip
