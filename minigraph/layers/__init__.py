"""Functions that write programs: each appends operators to the default main program and returns their results."""

from minigraph.layers.activation import (
    abs,
    ceil,
    cos,
    elu,
    erf,
    exp,
    floor,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    log,
    log_softmax,
    logsigmoid,
    pow,
    prelu,
    reciprocal,
    relu,
    relu6,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    softmax,
    softplus,
    softsign,
    sqrt,
    square,
    swish,
    tanh,
)
from minigraph.layers.clipping import clip, clip_by_norm
from minigraph.layers.compare import (
    equal,
    greater_equal,
    greater_than,
    isfinite,
    less_equal,
    less_than,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from minigraph.layers.elementwise import (
    elementwise_add,
    elementwise_div,
    elementwise_floordiv,
    elementwise_max,
    elementwise_min,
    elementwise_mod,
    elementwise_mul,
    elementwise_pow,
    elementwise_sub,
    scale,
)
from minigraph.layers.image import conv2d, conv2d_transpose, pool2d
from minigraph.layers.indexing import (
    fluid_one_hot,
    gather,
    gather_nd,
    one_hot,
    reverse,
    scatter,
    slice,
    strided_slice,
    where,
)
from minigraph.layers.io import data, fluid_data
from minigraph.layers.learning_rate_scheduler import (
    autoincreased_step_counter,
    cosine_decay,
    exponential_decay,
    inverse_time_decay,
    linear_lr_warmup,
    natural_exp_decay,
    noam_decay,
    piecewise_decay,
    polynomial_decay,
)
from minigraph.layers.loss import (
    cross_entropy,
    huber_loss,
    log_loss,
    mse_loss,
    sigmoid_cross_entropy_with_logits,
    smooth_l1,
    softmax_with_cross_entropy,
    square_error_cost,
)
from minigraph.layers.metric import accuracy
from minigraph.layers.nn import dropout, embedding, fc, fluid_embedding, matmul, mul
from minigraph.layers.normalization import batch_norm, group_norm, instance_norm, l2_normalize, layer_norm
from minigraph.layers.random import gaussian_random, randint, uniform_random
from minigraph.layers.recurrent import gru_unit, lstm_unit
from minigraph.layers.reduce import (
    cumsum,
    mean,
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    sum,
    sums,
)
from minigraph.layers.reshaping import expand, expand_as, flatten, pad, split, squeeze, stack, unsqueeze, unstack
from minigraph.layers.search import argmax, argmin, argsort
from minigraph.layers.selected_rows import get_tensor_from_selected_rows, merge_selected_rows
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
    "abs", "accuracy", "argmax", "argmin", "argsort", "assign", "autoincreased_step_counter", "batch_norm", "cast",
    "ceil", "clip", "clip_by_norm", "concat", "conv2d", "conv2d_transpose", "cos", "cosine_decay", "create_global_var",
    "create_parameter", "create_tensor", "cross_entropy", "cumsum", "data", "dropout", "elementwise_add",
    "elementwise_div", "elementwise_floordiv", "elementwise_max", "elementwise_min", "elementwise_mod",
    "elementwise_mul", "elementwise_pow", "elementwise_sub", "elu", "embedding", "equal", "erf", "exp", "expand",
    "expand_as", "exponential_decay", "fc", "fill_constant", "fill_constant_batch_size_like", "flatten", "floor",
    "fluid_data", "fluid_embedding", "fluid_one_hot", "gather", "gather_nd", "gaussian_random", "gelu",
    "get_tensor_from_selected_rows", "greater_equal",
    "greater_than", "group_norm", "gru_unit", "hard_sigmoid", "hard_swish", "huber_loss", "increment", "instance_norm",
    "inverse_time_decay", "isfinite", "l2_normalize", "layer_norm", "leaky_relu", "less_equal", "less_than",
    "linear_lr_warmup", "log", "log_loss", "log_softmax", "logical_and", "logical_not", "logical_or", "logical_xor",
    "logsigmoid", "lstm_unit", "matmul", "mean", "merge_selected_rows",
    "mse_loss", "mul", "natural_exp_decay", "noam_decay", "not_equal",
    "one_hot", "ones", "pad", "piecewise_decay", "polynomial_decay", "pool2d", "pow", "prelu", "randint", "reciprocal",
    "reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum", "relu", "relu6",
    "reshape", "reverse", "round", "rsqrt", "scale", "scatter", "sigmoid", "sigmoid_cross_entropy_with_logits", "sign",
    "sin", "slice", "smooth_l1", "softmax", "softmax_with_cross_entropy", "softplus", "softsign", "split", "sqrt",
    "square", "square_error_cost", "squeeze", "stack", "strided_slice", "sum", "sums", "swish", "tanh", "topk",
    "transpose", "uniform_random", "unsqueeze", "unstack", "where", "zeros",
]  # fmt: skip
