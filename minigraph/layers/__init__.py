"""Functions that write programs: each appends operators to the default main program and returns their results."""

from minigraph.layers.activation import (
    abs,
    acos,
    asin,
    atan,
    brelu,
    ceil,
    cos,
    elu,
    erf,
    exp,
    floor,
    gelu,
    hard_shrink,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    log,
    log1p,
    log_softmax,
    logsigmoid,
    maxout,
    mish,
    pow,
    prelu,
    reciprocal,
    relu,
    relu6,
    round,
    rsqrt,
    selu,
    sigmoid,
    sign,
    sin,
    soft_relu,
    softmax,
    softplus,
    softshrink,
    softsign,
    sqrt,
    square,
    stanh,
    swish,
    tanh,
    tanh_shrink,
    thresholded_relu,
)
from minigraph.layers.array import array_length, array_read, array_write, create_array, tensor_array_to_tensor
from minigraph.layers.branches import Switch, case, cond, switch_case
from minigraph.layers.clipping import clamp, clip, clip_by_norm
from minigraph.layers.compare import (
    allclose,
    elementwise_equal,
    equal,
    greater_equal,
    greater_than,
    has_inf,
    has_nan,
    is_empty,
    isfinite,
    less_equal,
    less_than,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from minigraph.layers.diagonal import diag, diag_embed, eye, trace, tril, triu
from minigraph.layers.distributions import Categorical, MultivariateNormalDiag, Normal, Uniform
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
from minigraph.layers.if_else import IfElse
from minigraph.layers.image import adaptive_pool2d, conv2d, conv2d_transpose, pool2d
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
from minigraph.layers.io import (
    create_py_reader_by_data,
    data,
    double_buffer,
    fluid_data,
    py_reader,
    read_file,
)
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
from minigraph.layers.loops import While, while_loop
from minigraph.layers.loss import (
    cross_entropy,
    dice_loss,
    huber_loss,
    kldiv_loss,
    label_smooth,
    log_loss,
    mse_loss,
    sigmoid_cross_entropy_with_logits,
    smooth_l1,
    softmax_with_cross_entropy,
    square_error_cost,
)
from minigraph.layers.metric import accuracy, auc
from minigraph.layers.nn import dropout, embedding, fc, fluid_embedding, matmul, mul
from minigraph.layers.normalization import batch_norm, group_norm, instance_norm, l2_normalize, layer_norm
from minigraph.layers.printing import Print
from minigraph.layers.products import addcmul, addmm, bmm, cos_sim, cross, dist, dot, kron, t
from minigraph.layers.py_func import py_func
from minigraph.layers.random import (
    gaussian_random,
    gaussian_random_batch_size_like,
    randint,
    randn,
    randperm,
    sampling_id,
    uniform_random,
    uniform_random_batch_size_like,
)
from minigraph.layers.recurrent import gru_unit, lstm_unit
from minigraph.layers.reduce import (
    cumsum,
    logsumexp,
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
from minigraph.layers.rnn import GRUCell, LSTMCell, RNNCell, rnn
from minigraph.layers.search import argmax, argmin, argsort
from minigraph.layers.selected_rows import get_tensor_from_selected_rows, merge_selected_rows
from minigraph.layers.selection import (
    flip,
    index_sample,
    index_select,
    multiplex,
    nonzero,
    roll,
    scatter_nd,
    scatter_nd_add,
    unique,
    unique_with_counts,
)
from minigraph.layers.series import (
    arange,
    full,
    full_like,
    linspace,
    meshgrid,
    ones_like,
    range,
    sequence_mask,
    zeros_like,
)
from minigraph.layers.static_rnn import StaticRNN
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
    rank,
    reshape,
    shape,
    size,
    topk,
    transpose,
    zeros,
)
from minigraph.support.public import refuse_unknown_names

__all__ = [
    "Categorical", "GRUCell", "IfElse", "LSTMCell", "MultivariateNormalDiag", "Normal", "Print", "RNNCell", "StaticRNN",
    "Switch", "Uniform", "While", "abs", "accuracy", "acos", "adaptive_pool2d", "addcmul", "addmm", "allclose",
    "arange", "argmax", "argmin", "argsort", "array_length", "array_read", "array_write", "asin", "assign", "atan",
    "auc", "autoincreased_step_counter", "batch_norm", "bmm", "brelu", "case", "cast", "ceil", "clamp", "clip",
    "clip_by_norm", "concat", "cond", "conv2d", "conv2d_transpose", "cos", "cos_sim", "cosine_decay", "create_array",
    "create_global_var", "create_parameter", "create_py_reader_by_data", "create_tensor", "cross", "cross_entropy",
    "cumsum", "data", "diag", "diag_embed", "dice_loss", "dist", "dot", "double_buffer", "dropout", "elementwise_add",
    "elementwise_div", "elementwise_equal", "elementwise_floordiv", "elementwise_max", "elementwise_min",
    "elementwise_mod", "elementwise_mul", "elementwise_pow", "elementwise_sub", "elu", "embedding", "equal", "erf",
    "exp", "expand", "expand_as", "exponential_decay", "eye", "fc", "fill_constant", "fill_constant_batch_size_like",
    "flatten", "flip", "floor", "fluid_data", "fluid_embedding", "fluid_one_hot", "full", "full_like", "gather",
    "gather_nd", "gaussian_random", "gaussian_random_batch_size_like", "gelu", "get_tensor_from_selected_rows",
    "greater_equal", "greater_than", "group_norm", "gru_unit", "hard_shrink", "hard_sigmoid", "hard_swish", "has_inf",
    "has_nan", "huber_loss", "increment", "index_sample", "index_select", "instance_norm", "inverse_time_decay",
    "is_empty", "isfinite", "kldiv_loss", "kron", "l2_normalize", "label_smooth", "layer_norm", "leaky_relu",
    "less_equal", "less_than", "linear_lr_warmup", "linspace", "log", "log1p", "log_loss", "log_softmax", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logsigmoid", "logsumexp", "lstm_unit", "matmul", "maxout", "mean",
    "merge_selected_rows", "meshgrid", "mish", "mse_loss", "mul", "multiplex", "natural_exp_decay", "noam_decay",
    "nonzero", "not_equal", "one_hot", "ones", "ones_like", "pad", "piecewise_decay", "polynomial_decay", "pool2d",
    "pow", "prelu", "py_func", "py_reader", "randint", "randn", "randperm", "range", "rank", "read_file", "reciprocal",
    "reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum", "relu", "relu6",
    "reshape", "reverse", "rnn", "roll", "round", "rsqrt", "sampling_id", "scale", "scatter", "scatter_nd",
    "scatter_nd_add", "selu", "sequence_mask", "shape", "sigmoid", "sigmoid_cross_entropy_with_logits", "sign", "sin",
    "size", "slice", "smooth_l1", "soft_relu", "softmax", "softmax_with_cross_entropy", "softplus", "softshrink",
    "softsign", "split", "sqrt", "square", "square_error_cost", "squeeze", "stack", "stanh", "strided_slice", "sum",
    "sums", "swish", "switch_case", "t", "tanh", "tanh_shrink", "tensor_array_to_tensor", "thresholded_relu", "topk",
    "trace", "transpose", "tril", "triu", "uniform_random", "uniform_random_batch_size_like", "unique",
    "unique_with_counts", "unsqueeze", "unstack", "where", "while_loop", "zeros", "zeros_like",
]  # fmt: skip

refuse_unknown_names(__name__)
