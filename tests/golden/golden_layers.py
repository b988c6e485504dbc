"""Calls of layer functions, one operator or a few each, whose results on Paddle 1.8.5 are recorded.

A case is a function of `layers` and of the variables that are fed; what it returns is fetched, and so are the gradients
that flow to the floating-point ones. Running this file with Paddle, ``python golden_layers.py``, writes the recording
beside it; it is therefore written for Python 3.7, and the tests hand it minigraph instead.
"""

import json
import sys
import zlib
from pathlib import Path

import golden_arrays
import numpy as np

FOLDER = Path(__file__).parent / "layers"
CASES = {}
"""Name to function, fed arrays, and whether gradients are taken."""
WRITTEN_OTHERWISE = {
    "npair_loss": "the original reshapes the variable of the labels itself",
    "sampled_softmax": "the original writes to the samples that it is given",
    "inplace_abn": "the original has one operator, which writes over its input",
    "hsigmoid": "the original names the weight as an output, which it does not write",
    "data_norm": "the original names the counts as outputs, which it does not write",
    "fused_elemwise_activation": "the original has one operator, which executors make of two here",
    "fused_embedding_seq_pool": "the original has one operator for the look-up and the sum",
    "ctr_metric_bundle": "the original writes to variables that keep their names",
}
"""Beginnings of the names of cases whose operators name other variables here, each with the reason."""


class Draw:
    """Random arrays for one case, from a seed that its name makes."""

    def __init__(self, name):
        self.state = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)

    def __call__(self, spec):
        """`spec` is a kind, a shape and an optional dtype: ``f 3,4``, ``p 2,3 float64``, ``i0:5 3,1 int32``."""
        kind, shape, dtype = (spec.split() + [None])[:3]
        shape = tuple(int(size) for size in shape.split(",") if size)
        if kind == "f":  # normal
            values = self.state.standard_normal(shape)
        elif kind == "p":  # positive
            values = self.state.uniform(0.5, 2, shape)
        elif kind == "u":  # between -0.9 and 0.9
            values = self.state.uniform(-0.9, 0.9, shape)
        elif kind == "s":  # probabilities of classes
            values = self.state.uniform(0.05, 1, shape)
            values = values / values.sum(-1, keepdims=True)
        elif kind == "b":
            return self.state.uniform(0, 1, shape) < 0.5
        else:
            low, high = map(int, kind[1:].split(":"))
            return self.state.randint(low, high, shape).astype(dtype or "int64")
        return values.astype(dtype or "float32")


class Rows(np.ndarray):
    """The rows of sequences, with their `lengths` by level."""

    def __new__(cls, array, *lengths):
        rows = np.asarray(array).view(cls)
        rows.lengths = list(lengths)
        return rows

    def __array_finalize__(self, whole):
        self.lengths = getattr(whole, "lengths", [])


def case(name, function, gradients=True, cases=CASES, **specs):
    draw = Draw(name)
    arrays = {key: draw(spec) if isinstance(spec, str) else spec for key, spec in specs.items()}
    if name in cases:
        raise ValueError(name)
    cases[name] = (function, arrays, gradients)


def run(fluid, name, place=None, cases=CASES):
    """What a case gives by name: ``out/0``, ``grad/x``, ...; and its operators, a line each.

    Other `cases` than those of this file are declared with a first dimension that only a run knows. Some of their
    arrays are `Rows`; then the offsets of sequences are given, too, as ``out/0@LOD0``.
    """
    function, arrays, gradients = cases[name]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        shapes = {key: a.shape if cases is CASES else (None,) + a.shape[1:] for key, a in arrays.items()}
        variables = {
            key: fluid.data(key, shapes[key], str(array.dtype), len(getattr(array, "lengths", ())))
            for key, array in arrays.items()
        }
        for key, array in arrays.items():
            variables[key].stop_gradient = not gradients or array.dtype.kind != "f"
        result = function(fluid.layers, **variables)
        outputs = list(result) if isinstance(result, (list, tuple)) else [result]
        lines = [line_of(op) for op in main.global_block().ops]
        fetched = {f"out/{i}": var for i, var in enumerate(outputs)}
        wanted = [key for key, var in variables.items() if not var.stop_gradient]
        targets = [var for var in outputs if "FP" in str(var.dtype) or "float" in str(var.dtype)]
        targets = [var for var in targets if not var.stop_gradient]
        if wanted and targets:
            found = fluid.gradients(targets, [variables[key] for key in wanted])
            for key, gradient in zip(wanted, found or [None] * len(wanted)):
                if gradient is not None:
                    fetched["grad/" + key] = gradient
    place = place or fluid.CPUPlace()
    executor = fluid.Executor(place)
    has_rows = any(isinstance(array, Rows) for array in arrays.values())
    feed = {
        key: fluid.create_lod_tensor(np.array(array), array.lengths, place) if isinstance(array, Rows) else array
        for key, array in arrays.items()
    }
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        values = executor.run(main, feed=feed, fetch_list=list(fetched.values()), return_numpy=not has_rows)
    found = {key: np.asarray(value) for key, value in zip(fetched, values) if value is not None}
    for key, value in zip(fetched, values if has_rows else ()):
        found.update({f"{key}@LOD{i}": np.array(level) for i, level in enumerate(value.lod())})
    return found, lines


def line_of(op):
    def slots(names, of):
        return " ".join("{}={}".format(slot, ",".join(of(slot))) for slot in sorted(names) if of(slot))

    return f"{op.type} {slots(op.input_names, op.input)} -> {slots(op.output_names, op.output)}"


def waves(layers):
    """A start value for parameters that needs no random numbers: the sines of their elements' numbers."""
    initializer = sys.modules[layers.__name__.rpartition(".")[0]].initializer

    class Waves(initializer.Initializer):
        def _array(self, var):
            return initializer.NumpyArrayInitializer(
                np.sin(np.arange(np.prod(var.shape))).reshape(var.shape).astype("float32")
            )

        def __call__(self, var, block):
            return self._array(var)(var, block)

        def op_for(self, var, block):
            return self._array(var).op_for(var, block)

    return Waves()


def constant(layers, value):
    """A start value for parameters of any type: Paddle has arrays for float32 only."""
    return sys.modules[layers.__name__.rpartition(".")[0]].initializer.Constant(value)


# Functions of one element

for _name in [
    "acos",
    "asin",
    "atan",
    "cos",
    "sin",
    "exp",
    "log1p",
    "sigmoid",
    "tanh",
    "softsign",
    "erf",
    "tanh_shrink",
    "abs",
    "square",
    "reciprocal",
    "ceil",
    "floor",
    "round",
    "sign",
]:
    case(_name, lambda L, x, _f=_name: getattr(L, _f)(x), x="u 3,4")
    case(_name + "_double", lambda L, x, _f=_name: getattr(L, _f)(x), x="u 2,1,3 float64")
for _name in ["log", "sqrt", "rsqrt"]:
    case(_name, lambda L, x, _f=_name: getattr(L, _f)(x), x="p 3,4")
case("brelu", lambda L, x: L.brelu(x, -0.5, 0.75), x="f 4,5")
case("soft_relu", lambda L, x: L.soft_relu(x, 3.0), x="u 4,5")
case("thresholded_relu", lambda L, x: L.thresholded_relu(x, 0.25), x="f 4,5")
case("hard_shrink", lambda L, x: L.hard_shrink(x), x="f 4,5")
case("softshrink", lambda L, x: L.softshrink(x, 0.25), x="f 4,5")
case("stanh", lambda L, x: L.stanh(x), x="f 4,5")
case("selu", lambda L, x: L.selu(x), x="f 4,5")
case("selu_numbers", lambda L, x: L.selu(x, 1.5, 0.5), x="f 4,5")
case("mish", lambda L, x: L.mish(x, 20), x="f 4,5")
case("maxout", lambda L, x: L.maxout(x, 3), x="f 2,6,3,2")
case("maxout_last", lambda L, x: L.maxout(x, 2, axis=-1), x="f 2,3,2,4")
case("elu", lambda L, x: L.elu(x, 0.3), x="f 4,5")
case("leaky_relu", lambda L, x: L.leaky_relu(x, 0.3), x="f 4,5")
case("relu6", lambda L, x: L.relu6(x, 0.5), x="f 4,5")
case("hard_sigmoid", lambda L, x: L.hard_sigmoid(x, 0.5, 0.25), x="f 4,5")
case("hard_swish", lambda L, x: L.hard_swish(x, 3.0, 6.0, 1.5), x="f 4,5")
case("swish_default", lambda L, x: L.swish(x), x="f 4,5")
case("gelu", lambda L, x: L.gelu(x), x="f 4,5")
case("gelu_approximate", lambda L, x: L.gelu(x, True), x="f 4,5")
case("softplus", lambda L, x: L.softplus(x), x="f 4,5")
case("logsigmoid", lambda L, x: L.logsigmoid(x), x="f 4,5")
case("pow", lambda L, x: L.pow(x, 2.5), x="p 4,5")
case("pow_tensor", lambda L, x: L.pow(x, L.fill_constant([1], "float32", 3.0)), x="p 4,5")
case("pow_integers", lambda L, x: L.pow(x, 2.0), x="i-3:4 5")
case("prelu_all", lambda L, x: L.prelu(x, "all"), x="f 2,3,4")
case("prelu_channel", lambda L, x: L.prelu(x, "channel"), x="f 2,3,4,2")
case("prelu_element", lambda L, x: L.prelu(x, "element"), x="f 2,3,4")
case("clamp", lambda L, x: L.clamp(x, -0.5, 0.25), x="f 4,5")
case("clamp_below", lambda L, x: L.clamp(x, min=-0.5), x="f 4,5")
case("clip", lambda L, x: L.clip(x, -0.25, 1.0), x="f 4,5")
case("scale", lambda L, x: L.scale(x, 2.5, 0.5, False, act="tanh"), x="f 4,5")
case("scale_integers", lambda L, x: L.scale(x, 3.0, 2.0), x="i-3:4 5")
case("square_integers", lambda L, x: L.square(x), x="i-3:4 5")
case("cumsum", lambda L, x: L.cumsum(x, axis=1, exclusive=True, reverse=True), x="f 2,3,4")
case("cumsum_default", lambda L, x: L.cumsum(x), x="f 2,3,4")

# Softmax and normalization

for _axis in (-1, 0, 1, 2, -3):
    case(f"softmax_{_axis}", lambda L, x, _a=_axis: L.softmax(x, axis=_a), x="f 2,3,4")
    case(f"log_softmax_{_axis}", lambda L, x, _a=_axis: L.log_softmax(x, axis=_a), x="f 2,3,4")
    case(f"l2_normalize_{_axis}", lambda L, x, _a=_axis: L.l2_normalize(x, axis=_a, epsilon=1e-3), x="f 2,3,4")
case("log_softmax_double", lambda L, x: L.log_softmax(x, dtype="float64"), x="f 2,3")
case("l2_normalize_vector", lambda L, x: L.l2_normalize(x, axis=0), x="f 5")
case("layer_norm", lambda L, x: L.layer_norm(x, begin_norm_axis=2, epsilon=1e-4), x="f 2,3,4,2")
case("layer_norm_bare", lambda L, x: L.layer_norm(x, scale=False, shift=False, act="relu"), x="f 3,5")
case("instance_norm", lambda L, x: L.instance_norm(x, epsilon=1e-3), x="f 2,3,4,5")
case("batch_norm", lambda L, x: L.batch_norm(x, momentum=0.5, epsilon=1e-3), x="f 4,3,2,2")
case("batch_norm_last", lambda L, x: L.batch_norm(x, data_layout="NHWC", act="relu"), x="f 4,2,2,3")
case("batch_norm_rows", lambda L, x: L.batch_norm(x), x="f 6,3")
case("batch_norm_test", lambda L, x: L.batch_norm(x, is_test=True), gradients=False, x="f 2,3,2,2")
case("group_norm", lambda L, x: L.group_norm(x, 2, param_attr="scale", bias_attr="shift"), x="f 2,4,3,3")

# Elementwise, broadcast from an axis

for _name in ["add", "sub", "mul", "div", "max", "min", "pow", "mod"]:
    for _i, (_x, _y, _axis) in enumerate(
        [
            ("2,3,4", "2,3,4", -1),
            ("2,3,4", "4", -1),
            ("2,3,4", "3", 1),
            ("2,3,4", "2", 0),
            ("2,3,4", "2,3", 0),
            ("2,3,4", "3,1", 1),
            ("2,3,4", "1", -1),
            ("2,1,4", "1,3,1", -1),
            ("1,3", "2,1", -1),
        ]
    ):
        case(
            f"elementwise_{_name}_{_i}",
            lambda L, x, y, _f="elementwise_" + _name, _a=_axis: getattr(L, _f)(x, y, axis=_a),
            x="p " + _x,
            y="p " + _y,
        )
for _name in ["add", "sub", "mul", "div", "max", "min", "mod", "floordiv"]:
    case(
        f"elementwise_{_name}_integers",
        lambda L, x, y, _f="elementwise_" + _name: getattr(L, _f)(x, y),
        x="i-9:10 3,4",
        y="i1:5 3,4",
    )
case("elementwise_add_activation", lambda L, x, y: L.elementwise_add(x, y, act="sigmoid"), x="f 2,3", y="f 3")
case("operators", lambda L, x, y: [x + y, x - 1.5, 2 * x, 1 / y, -x, x / y, x**2, 3.0 - x], x="f 2,3", y="p 2,3")
case("comparisons", lambda L, x, y: [x < y, x <= y, x > y, x >= y, L.elementwise_equal(x, x)], x="f 2,3", y="f 2,3")
case(
    "logic",
    lambda L, x, y: [L.logical_and(x, y), L.logical_or(x, y), L.logical_xor(x, y), L.logical_not(x)],
    x="b 2,3",
    y="b 2,3",
)
case("allclose", lambda L, x, y: L.allclose(x, y, rtol=0.5), x="p 2,3", y="p 2,3")
case(
    "finite",
    lambda L, x: [L.has_nan(x), L.has_inf(x), L.isfinite(x), L.is_empty(x)],
    gradients=False,
    x=np.array([[1, np.nan]], "float32"),
)

# Reductions

for _name in ["sum", "mean", "max", "min", "prod"]:
    for _i, (_dim, _keep) in enumerate(
        [
            (None, False),
            (None, True),
            (0, False),
            (-1, True),
            ([0, 2], False),
            ([1, -1], True),
            ([-3], False),
        ]
    ):
        case(
            f"reduce_{_name}_{_i}",
            lambda L, x, _f="reduce_" + _name, _d=_dim, _k=_keep: getattr(L, _f)(x, dim=_d, keep_dim=_k),
            gradients=_i != 1,
            x="f 2,3,4",
        )
    case(
        f"reduce_{_name}_integers", lambda L, x, _f="reduce_" + _name: getattr(L, _f)(x, dim=0), x="i1:5 3,4"
    ) if _name != "mean" else None
for _name in ["all", "any"]:
    for _dim, _keep in ((None, False), (1, True), ([0, -1], False)):
        case(
            f"reduce_{_name}_{_dim}",
            lambda L, x, _f="reduce_" + _name, _d=_dim, _k=_keep: getattr(L, _f)(x, _d, _k),
            x="b 2,3,2",
        )
case("mean", lambda L, x: L.mean(x), x="f 3,4")
case("logsumexp", lambda L, x: L.logsumexp(x, [0, -1], True), x="f 2,3,4")
case("logsumexp_all", lambda L, x: L.logsumexp(x), x="f 2,3")
case("sums", lambda L, x, y: L.sums([x, y]), x="f 2,3", y="f 2,3")

# Products

case("bmm", lambda L, x, y: L.bmm(x, y), x="f 2,3,4", y="f 2,4,2")
for _i, (_x, _y, _tx, _ty, _alpha) in enumerate(
    [
        ("3,4", "4,5", False, False, 1.0),
        ("4,3", "4,5", True, False, 0.5),
        ("3,4", "5,4", False, True, -2.0),
        ("4,3", "5,4", True, True, 1.0),
        ("2,3,4", "2,4,5", False, False, 1.0),
        ("2,4,3", "2,5,4", True, True, 2.0),
        ("2,3,4", "4,5", False, False, 1.0),
        ("4", "4", False, False, 1.0),
        ("4", "2,4,3", False, False, 1.0),
        ("2,3,4", "4", False, False, 1.0),
        ("3", "3", True, True, 1.0),
        ("2,2,3,4", "2,2,4,1", False, False, 1.0),
    ]
):
    case(
        f"matmul_{_i}",
        lambda L, x, y, _a=_tx, _b=_ty, _c=_alpha: L.matmul(x, y, _a, _b, _c),
        x="f " + _x,
        y="f " + _y,
    )
case("mul", lambda L, x, y: L.mul(x, y, x_num_col_dims=2, y_num_col_dims=2), x="f 2,3,2,2", y="f 2,2,3")
case("dot", lambda L, x, y: L.dot(x, y), x="f 4", y="f 4")
case("dot_rows", lambda L, x, y: L.dot(x, y), x="f 3,4 float64", y="f 3,4 float64")
case("cross", lambda L, x, y: L.cross(x, y), x="f 3,4", y="f 3,4")
case("cross_last", lambda L, x, y: L.cross(x, y, dim=-1), x="f 3,4,3", y="f 3,4,3")
case("kron", lambda L, x, y: L.kron(x, y), x="f 2,3", y="f 3,2")
case("kron_vector", lambda L, x, y: L.kron(x, y), x="f 2,3", y="f 2")
case("addmm", lambda L, i, x, y: L.addmm(i, x, y, alpha=0.5, beta=2.0), i="f 3,4", x="f 3,2", y="f 2,4")
case("addmm_row", lambda L, i, x, y: L.addmm(i, x, y), i="f 1,4", x="f 3,2", y="f 2,4")
case("addcmul", lambda L, x, y, z: L.addcmul(x, y, z, value=0.5), x="f 3,4", y="f 3,4", z="f 3,4")
for _p in (0, 1, 2, 3.5, float("inf"), float("-inf")):
    case(f"dist_{_p}", lambda L, x, y, _p=_p: L.dist(x, y, _p), x="f 2,3", y="f 1,3")
case("t", lambda L, x: L.t(x), x="f 3,4")

# Shapes and places

case("transpose", lambda L, x: L.transpose(x, [2, 0, 1]), x="f 2,3,4")
case("reshape", lambda L, x: L.reshape(x, [0, -1, 2], act="tanh"), x="f 2,3,4")
case("reshape_tensor", lambda L, x: L.reshape(x, L.assign(np.array([4, 6], "int32"))), x="f 2,3,4")
case("reshape_list", lambda L, x: L.reshape(x, [L.fill_constant([1], "int32", 6), -1]), x="f 2,3,4")
case("squeeze", lambda L, x: L.squeeze(x, [-1, 1]), x="f 2,1,3,1")
case("squeeze_all", lambda L, x: L.squeeze(x, []), x="f 2,1,3,1")
case("unsqueeze", lambda L, x: L.unsqueeze(x, [0, 2, -1]), x="f 2,3")
case("unsqueeze_number", lambda L, x: L.unsqueeze(x, -1), x="f 2,3")
case("flatten_0", lambda L, x: L.flatten(x, axis=0), x="f 2,3,4")
case("flatten_3", lambda L, x: L.flatten(x, axis=3), x="f 2,3,4")
case("concat", lambda L, x, y: L.concat([x, y, x], axis=-2), x="f 2,1,3", y="f 2,2,3")
case("split", lambda L, x: L.split(x, 3, dim=-1), x="f 2,6")
case("split_sections", lambda L, x: L.split(x, [1, -1, 2], dim=1), x="f 2,6")
case("stack", lambda L, x, y: L.stack([x, y], axis=-1), x="f 2,3", y="f 2,3")
case("unstack", lambda L, x: L.unstack(x, axis=-2), x="f 2,3,4")
case("expand", lambda L, x: L.expand(x, [2, 1, 3]), x="f 2,3,1")
case("expand_as", lambda L, x, y: L.expand_as(x, y), x="f 1,3", y="f 4,6")
case("pad", lambda L, x: L.pad(x, [0, 1, 2, 0], pad_value=-1.5), x="f 2,3")
case("slice", lambda L, x: L.slice(x, [0, 2], [0, -3], [1, 100]), x="f 2,3,4")
case("slice_tensor", lambda L, x: L.slice(x, [1], [L.fill_constant([1], "int32", 1)], [3]), x="f 2,3,4")
case("strided_slice", lambda L, x: L.strided_slice(x, [0, 1], [0, 5], [2, 0], [1, -2]), x="f 2,6")
case("getitem", lambda L, x: [x[0], x[:, 1:], x[-1, 0:2], x[0, 1, 2]], x="f 2,3,4")
case("gather", lambda L, x, i: L.gather(x, i, overwrite=False), x="f 4,3", i="i0:4 5 int32")
case("gather_column", lambda L, x, i: L.gather(x, i), x="f 4,3", i=np.array([[2], [0], [3]]))
case("gather_nd", lambda L, x, i: L.gather_nd(x, i), x="f 2,3,4", i="i0:2 3,2")
case("scatter", lambda L, x, i, u: L.scatter(x, i, u), x="f 4,2", i=np.array([3, 1]), u="f 2,2")
case("scatter_add", lambda L, x, i, u: L.scatter(x, i, u, overwrite=False), x="f 4,2", i=np.array([3, 1, 3]), u="f 3,2")
case("scatter_nd", lambda L, i, u: L.scatter_nd(i, u, [4, 3]), i="i0:4 3,1", u="f 3,3")
case("scatter_nd_add", lambda L, x, i, u: L.scatter_nd_add(x, i, u), x="f 4,3", i="i0:3 5,2 int32", u="f 5")
case("index_select", lambda L, x, i: L.index_select(x, i, dim=-1), x="f 2,4", i="i0:4 5 int32")
case("index_sample", lambda L, x, i: L.index_sample(x, i), x="f 3,4", i="i0:4 3,2")
case("multiplex", lambda L, x, y, i: L.multiplex([x, y], i), x="f 4,3", y="f 4,3", i="i0:2 4,1 int32")
case("flip", lambda L, x: L.flip(x, [0, -1]), x="f 2,3,2")
case("reverse", lambda L, x: L.reverse(x, [1, 0]), x="f 2,3")
case("roll", lambda L, x: L.roll(x, [1, -1], [0, 1]), gradients=False, x="f 3,4")
case("roll_flat", lambda L, x: L.roll(x, 5), gradients=False, x="f 2,3")
case("one_hot", lambda L, x: L.one_hot(x, 5), x="i0:5 3,1")
case("one_hot_any", lambda L, x: L.one_hot(x, 3, allow_out_of_range=True), x="i0:5 4,1")
case("where", lambda L, x: L.where(x), x="b 3,4")
case("nonzero", lambda L, x: L.nonzero(x, as_tuple=True), x="i0:2 3,4")
case("unique", lambda L, x: L.unique(x), x="i0:4 9")
case("unique_with_counts", lambda L, x: L.unique_with_counts(x, "int64"), x="i0:4 9 int32")
case("argmax", lambda L, x: [L.argmax(x, 1), L.argmax(x, -1), L.argmin(x, 0)], x="f 2,3,4")
case("argsort", lambda L, x: L.argsort(x, axis=0, descending=True), x="f 5,3")
case("topk", lambda L, x: L.topk(x, 3), x="f 2,6")
case(
    "topk_ties", lambda L, x: L.topk(x, 5), x=np.array([[1, 2, 2, 0, 1, 2, 1, 0], [3, 3, 3, 3, 3, 3, 3, 3]], "float32")
)

# Made tensors

case("diag", lambda L, x: L.diag(x), x="f 3")
case("diag_embed", lambda L, x: L.diag_embed(x, offset=-1, dim1=0, dim2=2), x="f 2,3")
case("eye", lambda L: L.eye(2, 3, batch_shape=[2, 1], dtype="int64"))
case("trace", lambda L, x: L.trace(x, offset=1, dim1=0, dim2=2), x="f 3,2,4")
case("trace_outside", lambda L, x: L.trace(x, offset=9), x="f 3,4")
case("tril", lambda L, x: L.tril(x, -1), x="f 2,3,4")
case("triu", lambda L, x: L.triu(x, 1), x="f 4,3")
case("range", lambda L: [L.range(0, 10, 3, "int32"), L.range(5.0, 1.0, -1.5, "float32"), L.arange(2, 7)])
case("linspace", lambda L: [L.linspace(0, 1, 5, "float32"), L.linspace(2.0, 9.0, 1, "float32")])
case("meshgrid", lambda L, x, y: L.meshgrid([x, y]), x="f 2", y="f 3")
case("sequence_mask", lambda L, x: [L.sequence_mask(x, 4), L.sequence_mask(x, dtype="float32")], x="i0:6 2,3")
case("full", lambda L: [L.full([2, 3], 1.5), L.full([2], 7, dtype="int64")])
case("full_like", lambda L, x: [L.full_like(x, 2.5), L.full_like(x, 2, dtype="int32")], x="f 2,3")
case("likes", lambda L, x: [L.ones_like(x), L.zeros_like(x)], x="i0:9 2,3")
case("shape", lambda L, x: [L.shape(x), L.size(x)], x="f 2,3")
case("fill_constant", lambda L: [L.fill_constant([2], "int64", 3), L.ones([2, 1], "float64"), L.zeros([3], "bool")])
case(
    "fill_constant_batch_size_like",
    lambda L, x: L.fill_constant_batch_size_like(x, [7, -1], "float32", 2.5, 1, 1),
    x="f 2,3",
)
case("cast", lambda L, x: [L.cast(x, "int32"), L.cast(x, "bool"), L.cast(x, "float64")], x="f 2,3")
case("assign", lambda L, x: [L.assign(x), L.assign(np.array([[1, 2]], "int64"))], x="f 2,3")

for _name, _make in {
    "uniform_random": lambda L, shape: L.uniform_random(shape, min=-2.0, seed=3),
    "gaussian_random": lambda L, shape: L.gaussian_random(shape, 1.0, 2.0),
    "randint": lambda L, shape: L.randint(2, 9, shape, seed=3),
    "randint_below": lambda L, shape: L.randint(9, shape=shape, dtype="int32", name="numbers"),
    "fill": lambda L, shape: L.fill_constant(shape, "float32", 1.5),
}.items():
    case(_name + "_shape", lambda L, _m=_make: L.shape(_m(L, [2, 3])))
    case(_name + "_list", lambda L, _m=_make: L.shape(_m(L, [L.fill_constant([1], "int32", 2), 3])))
    case(_name + "_tensor", lambda L, _m=_make: L.shape(_m(L, L.assign(np.array([2, 3], "int64")))))
case("randn", lambda L: L.shape(L.randn([2, 3], dtype="float64")))
case("randperm", lambda L: L.shape(L.randperm(5, seed=3)))
case("sampling_id", lambda L, x: L.shape(L.sampling_id(x, seed=3)), gradients=False, x="s 4,3")
case(
    "uniform_like",
    lambda L, x: L.shape(L.uniform_random_batch_size_like(x, [-1, 5], min=0.0)),
    gradients=False,
    x="f 3,2",
)
case(
    "gaussian_like",
    lambda L, x: L.shape(L.gaussian_random_batch_size_like(x, [7, -1], 1, 1, 2.0)),
    gradients=False,
    x="f 3,2",
)
case("expand_list", lambda L, x: L.expand(x, [L.fill_constant([1], "int32", 2), 3]), x="f 2,1")
case("expand_tensor", lambda L, x: L.expand(x, L.assign(np.array([2, 3], "int32"))), x="f 2,1")
case("unsqueeze_list", lambda L, x: L.unsqueeze(x, [L.fill_constant([1], "int32", 1), 0]), x="f 2,3")
case("split_list", lambda L, x: L.split(x, [2, L.fill_constant([1], "int32", 3), -1], dim=1), x="f 2,9")
case(
    "strided_slice_list", lambda L, x: L.strided_slice(x, [1], [L.fill_constant([1], "int32", 1)], [8], [3]), x="f 2,9"
)
case("concat_axis", lambda L, x: L.concat([x, x], axis=L.fill_constant([1], "int32", 1)), x="f 2,3")
case("topk_tensor", lambda L, x: L.topk(x, L.fill_constant([1], "int32", 2)), x="f 2,5")
case("one_hot_tensor", lambda L, x: L.one_hot(x, L.fill_constant([1], "int32", 4)), x="i0:4 3,1")
case("fill_with_tensor", lambda L: L.fill_constant([2], "float32", L.fill_constant([1], "float32", 2.5)))
case("range_tensor", lambda L: L.range(L.fill_constant([1], "int64", 1), 7, L.fill_constant([1], "int64", 2), "int64"))
case("linspace_tensor", lambda L: L.linspace(0.0, L.fill_constant([1], "float32", 2.0), 5, "float32"))
case("scatter_nd_list", lambda L, i, u: L.scatter_nd(i, u, [4]), i="i0:4 3,1", u="f 3")
case("sequence_mask_tensor", lambda L, x: L.sequence_mask(x, L.fill_constant([1], "int32", 3)), x="i0:6 4")
case("eye_square", lambda L: L.eye(3))
case("create_parameter", lambda L: L.create_parameter([2, 3], "float32", default_initializer=waves(L)))
case("create_global_var", lambda L: L.create_global_var([2], 1.5, "float64", persistable=True) + 1.0)
case("increment", lambda L: L.increment(L.fill_constant([1], "int64", 3), 2))
case("increment_beside", lambda L: L.increment(L.fill_constant([1], "float32", 3), 0.5, in_place=False))

# Losses and measures

for _axis in (-1, 1, 0):
    case(
        f"softmax_with_cross_entropy_{_axis}",
        lambda L, x, y, _a=_axis: L.softmax_with_cross_entropy(x, y, axis=_a),
        x="f 3,3,3",
        y="i0:3 " + {-1: "3,3,1", 1: "3,1,3", 0: "1,3,3"}[_axis],
    )
    case(
        f"softmax_with_cross_entropy_soft_{_axis}",
        lambda L, x, y, _a=_axis: L.softmax_with_cross_entropy(x, L.softmax(y, axis=_a), soft_label=True, axis=_a),
        x="f 2,3,4",
        y="f 2,3,4",
    )
case(
    "softmax_with_cross_entropy_ignored",
    lambda L, x, y: L.softmax_with_cross_entropy(x, y, ignore_index=1),
    x="f 4,3",
    y=np.array([[0], [1], [2], [1]]),
)
case(
    "softmax_with_cross_entropy_both",
    lambda L, x, y: L.softmax_with_cross_entropy(x, y, return_softmax=True),
    gradients=False,
    x="f 4,3",
    y="i0:3 4,1",
)
case("cross_entropy", lambda L, x, y: L.cross_entropy(x, y, ignore_index=2), x="s 5,3", y="i0:3 5,1")
case("cross_entropy_soft", lambda L, x, y: L.cross_entropy(x, y, soft_label=True), x="s 4,3", y="s 4,3")
case("cross_entropy_deep", lambda L, x, y: L.cross_entropy(x, y), x="s 2,3,4", y="i0:4 2,3,1")
case(
    "sigmoid_cross_entropy",
    lambda L, x, y: L.sigmoid_cross_entropy_with_logits(x, y, ignore_index=-1, normalize=True),
    x="f 3,4",
    y=np.array([[0, 1, -1, 1], [1, -1, 0, 0], [0.5, 1, 1, -1]], "float32"),
)
for _reduction in ("none", "mean", "sum", "batchmean"):
    case("kldiv_loss_" + _reduction, lambda L, x, y, _r=_reduction: L.kldiv_loss(x, y, _r), x="f 3,4", y="s 3,4")
case("kldiv_loss_zero", lambda L, x, y: L.kldiv_loss(x, y, "sum"), x="f 1,3", y=np.array([[0, 1, 0]], "float32"))
case("label_smooth", lambda L, x: L.label_smooth(x, epsilon=0.2), x="s 3,4")
case("label_smooth_prior", lambda L, x, p: L.label_smooth(x, p, 0.2), gradients=False, x="s 3,4", p="s 1,4")
case("dice_loss", lambda L, x, y: L.dice_loss(x, y), x="s 4,3", y="i0:3 4,1")
case("huber_loss", lambda L, x, y: L.huber_loss(x, y, 0.5), x="f 5,1", y="f 5,1")
case("smooth_l1", lambda L, x, y: L.smooth_l1(x, y, sigma=2.0), x="f 3,4", y="f 3,4")
case("smooth_l1_weights", lambda L, x, y, a, b: L.smooth_l1(x, y, a, b), x="f 3,4", y="f 3,4", a="p 3,4", b="p 3,4")
case(
    "log_loss",
    lambda L, x, y: L.log_loss(x, y, 1e-3),
    x=np.array([[0.2], [0.9]], "float32"),
    y=np.array([[0.0], [1.0]], "float32"),
)
case("mse_loss", lambda L, x, y: L.mse_loss(x, y), x="f 3,4", y="f 3,4")
case("square_error_cost", lambda L, x, y: L.square_error_cost(x, y), x="f 3,4", y="f 3,4")
case("accuracy", lambda L, x, y: L.accuracy(x, y, k=2), x="s 5,4", y="i0:4 5,1")
case("auc", lambda L, x, y: L.auc(x, y)[:2], x="s 20,2", y="i0:2 20,1")
case("auc_coarse", lambda L, x, y: L.auc(x, y, num_thresholds=7, slide_steps=3)[:2], x="s 20,2", y="i0:2 20,1")

# Images

for _i, _options in enumerate(
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": "SAME"},
        {"padding": "VALID", "dilation": 2},
        {"groups": 2, "bias_attr": False},
        {"padding": [1, 0, 2, 1], "stride": [2, 1]},
        {"padding": [[0, 0], [0, 0], [1, 2], [0, 1]]},
        {"filter_size": [1, 3]},
        {"data_format": "NHWC", "padding": "SAME", "stride": 2},
        {"groups": 4, "use_cudnn": False, "act": "relu"},
    ]
):
    case(
        f"conv2d_{_i}",
        lambda L, x, _o=_options: L.conv2d(x, 4, **dict({"filter_size": 3}, **_o), param_attr=waves(L)),
        x="f 2,6,5,4" if "data_format" in _options else "f 2,4,6,5",
    )
for _i, _options in enumerate(
    [
        {},
        {"stride": 2, "padding": 1},
        {"output_size": [12, 11], "stride": 2, "filter_size": None},
        {"groups": 2},
        {"padding": "SAME", "stride": 2},
        {"dilation": 2},
        {"padding": [1, 0, 0, 1]},
        {"data_format": "NHWC"},
    ]
):
    case(
        f"conv2d_transpose_{_i}",
        lambda L, x, _o=_options: L.conv2d_transpose(x, 4, **dict({"filter_size": 3}, **_o), param_attr=waves(L)),
        x="f 1,4,3,2" if "data_format" in _options else "f 1,2,5,4",
    )
for _type in ("max", "avg"):
    for _i, _options in enumerate(
        [
            {},
            {"pool_stride": 2},
            {"pool_padding": 1, "pool_stride": 2},
            {"ceil_mode": True, "pool_stride": 2},
            {"global_pooling": True},
            {"pool_padding": "SAME", "pool_stride": 2},
            {"pool_padding": "VALID"},
            {"exclusive": False, "pool_padding": 1},
            {"pool_padding": [1, 0, 1, 0]},
            {"data_format": "NHWC", "pool_stride": [2, 1]},
            {"ceil_mode": True, "exclusive": False, "pool_stride": 2, "pool_padding": 1},
        ]
    ):
        case(
            f"pool2d_{_type}_{_i}",
            lambda L, x, _t=_type, _o=_options: L.pool2d(x, **dict({"pool_size": [3, 2], "pool_type": _t}, **_o)),
            x="f 2,6,5,3" if "data_format" in _options else "f 2,3,6,5",
        )
    case("adaptive_pool2d_" + _type, lambda L, x, _t=_type: L.adaptive_pool2d(x, [2, 3], _t), x="f 2,3,5,7")
case("adaptive_pool2d_index", lambda L, x: L.adaptive_pool2d(x, 2, "max", require_index=True), x="f 2,3,5,7")
case("embedding", lambda L, x: L.embedding(x, [6, 3], padding_idx=-2, param_attr=waves(L)), x="i0:6 4,1")
case("dropout_test", lambda L, x: L.dropout(x, 0.3, is_test=True), gradients=False, x="f 3,4")
case(
    "dropout_test_upscaled",
    lambda L, x: L.dropout(x, 0.3, is_test=True, dropout_implementation="upscale_in_train"),
    gradients=False,
    x="f 3,4",
)
case("fc", lambda L, x: L.fc(x, 4, num_flatten_dims=2, act="tanh", param_attr=waves(L)), x="f 2,3,5")
case("fc_several", lambda L, x, y: L.fc([x, y], 4, param_attr=waves(L), bias_attr=False), x="f 2,3", y="f 2,5")

# Images in another layout or size

case("pixel_shuffle", lambda L, x: L.pixel_shuffle(x, 3), x="f 2,18,3,2")
case("space_to_depth", lambda L, x: L.space_to_depth(x, 2), x="f 2,8,4,6")
case("shuffle_channel", lambda L, x: L.shuffle_channel(x, 3), x="f 2,6,3,2")
for _ratio in (0.25, 0.4):
    case(f"temporal_shift_{_ratio:g}", lambda L, x, _r=_ratio: L.temporal_shift(x, 3, _r), x="f 6,7,2,3")
case("affine_channel", lambda L, x, s, b: L.affine_channel(x, s, b, act="tanh"), x="f 2,3,4,5", s="f 3", b="f 3")
case("affine_channel_last", lambda L, x, s, b: L.affine_channel(x, s, b, "NHWC"), x="f 2,4,5,3", s="f 3", b="f 3")
for _mode in ("constant", "reflect", "edge"):
    for _format in ("NCHW", "NHWC"):
        case(
            "pad2d_" + _mode + "_" + _format,
            lambda L, x, _m=_mode, _f=_format: L.pad2d(x, [1, 2, 0, 3], _m, 1.5, _f),
            x="f 2,4,5,4",
        )
    case(
        "pad2d_given_" + _mode,
        lambda L, x, p, _m=_mode: L.pad2d(x, p, _m),
        x="f 1,2,3,4",
        p=np.array([2, 1, 3, 0], "int32"),
    )
case("pad_constant_like", lambda L, x, y: L.pad_constant_like(x, y, -2.0), x="f 3,4,5", y="f 2,4,3")
for _resize in ("nearest", "bilinear", "trilinear"):
    _sizes = [5, 3, 8] if _resize == "trilinear" else [5, 9]
    for _i, _options in enumerate(
        [
            {"out_shape": _sizes},
            {"out_shape": _sizes, "align_corners": False},
            {"out_shape": _sizes, "align_corners": False, "align_mode": 0},
            {"scale": 2.5},
            {"scale": 0.5, "align_corners": False},
            {"out_shape": [1] * len(_sizes)},
            {"out_shape": _sizes, "data_format": "NDHWC" if _resize == "trilinear" else "NHWC"},
        ]
    ):
        if not (_resize == "nearest" and "align_mode" in _options):
            case(
                f"resize_{_resize}_{_i}",
                lambda L, x, _r=_resize, _o=_options: getattr(L, "resize_" + _r)(x, **_o),
                x="f 2,3,4,4,6" if _resize == "trilinear" else "f 2,3,4,6",
            )
case("resize_by_tensors", lambda L, x, h: L.resize_bilinear(x, [h, 7]), x="f 2,3,4,6", h=np.array([5], "int32"))
case("resize_by_shape", lambda L, x, s: L.resize_nearest(x, s), x="f 2,3,4,6", s=np.array([5, 7], "int32"))
case("resize_by_scale", lambda L, x, s: L.resize_bilinear(x, scale=s), x="f 2,3,4,6", s=np.array([1.5], "float32"))
for _resample in ("BILINEAR", "NEAREST"):
    case(
        "image_resize_" + _resample.lower(),
        lambda L, x, _r=_resample: L.image_resize(x, [3, 7], resample=_r, align_corners=False),
        x="f 2,3,4,6",
    )
case("interpolate", lambda L, x: L.interpolate(x, scale=2.0), x="f 2,3,4,6")
case("image_resize_short", lambda L, x: L.image_resize_short(x, 3), x="f 2,3,4,6")

# Volumes

for _i, _options in enumerate(
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": "SAME", "stride": [2, 1, 3]},
        {"padding": "VALID", "dilation": [2, 1, 2]},
        {"groups": 2, "bias_attr": False},
        {"padding": [1, 0, 2, 1, 0, 1], "stride": [2, 1, 1]},
        {"padding": [[0, 0], [0, 0], [1, 2], [0, 1], [1, 1]], "act": "relu"},
        {"filter_size": [1, 3, 2]},
        {"data_format": "NDHWC", "padding": "SAME", "stride": 2},
    ]
):
    case(
        f"conv3d_{_i}",
        lambda L, x, _o=_options: L.conv3d(x, 4, **dict({"filter_size": [3, 2, 3]}, **_o), param_attr=waves(L)),
        x="f 2,5,4,5,2" if "data_format" in _options else "f 2,2,5,4,5",
    )
case("conv3d_double", lambda L, x: L.conv3d(x, 3, 2, padding=1, param_attr=constant(L, 0.3)), x="f 1,2,3,3,3 float64")
for _i, _options in enumerate(
    [
        {},
        {"stride": 2, "padding": 1},
        {"output_size": [6, 7, 8], "stride": 2, "filter_size": None},
        {"groups": 2},
        {"padding": "SAME", "stride": 2},
        {"dilation": [2, 1, 3]},
        {"padding": [1, 0, 0, 1, 1, 1], "bias_attr": False},
        {"data_format": "NDHWC", "stride": [1, 2, 2]},
    ]
):
    case(
        f"conv3d_transpose_{_i}",
        lambda L, x, _o=_options: L.conv3d_transpose(
            x, 4, **dict({"filter_size": [2, 3, 3]}, **_o), param_attr=waves(L)
        ),
        x="f 1,2,3,3,2" if "data_format" in _options else "f 1,2,2,3,3",
    )
for _type in ("max", "avg"):
    for _i, _options in enumerate(
        [
            {},
            {"pool_stride": 2},
            {"pool_padding": 1, "pool_stride": 2},
            {"ceil_mode": True, "pool_stride": 2},
            {"global_pooling": True},
            {"pool_padding": "SAME", "pool_stride": 2},
            {"pool_padding": "VALID"},
            {"exclusive": False, "pool_padding": 1},
            {"pool_padding": [1, 0, 1, 0, 0, 1]},
            {"data_format": "NDHWC", "pool_stride": [2, 1, 2]},
        ]
    ):
        case(
            f"pool3d_{_type}_{_i}",
            lambda L, x, _t=_type, _o=_options: L.pool3d(x, **dict({"pool_size": [3, 2, 2], "pool_type": _t}, **_o)),
            x="f 1,4,5,3,2" if "data_format" in _options else "f 1,2,4,5,3",
        )
    case("adaptive_pool3d_" + _type, lambda L, x, _t=_type: L.adaptive_pool3d(x, [2, 3, 1], _t), x="f 2,2,3,5,4")
case("adaptive_pool3d_index", lambda L, x: L.adaptive_pool3d(x, 2, "max", require_index=True), x="f 1,2,3,5,4")

# Losses of scores that are to have an order

case(
    "rank_loss", lambda L, y, a, b: L.rank_loss(y, a, b), y=np.array([[1], [0], [0.5]], "float32"), a="f 3,1", b="f 3,1"
)
case(
    "margin_rank_loss",
    lambda L, y, a, b: L.margin_rank_loss(y, a, b, 0.7),
    y=np.array([[1], [-1], [1], [-1]], "float32"),
    a="f 4,1",
    b="f 4,1",
)
for _dtype in ("float32", "float64"):
    case("bpr_loss_" + _dtype, lambda L, x, y: L.bpr_loss(x, y), x="f 4,5 " + _dtype, y="i0:5 4,1")
    case(
        "teacher_student_sigmoid_loss_" + _dtype,
        lambda L, x, y: L.teacher_student_sigmoid_loss(x, y),
        x=np.array([[0.4], [-1.5], [2.5], [0.1], [1.1], [16.0]], _dtype),
        y=np.array([[-2.0], [-1.0], [0.3], [1.4], [0.0], [1.0]], _dtype),
    )
case(
    "teacher_student_sigmoid_loss_bounds",
    lambda L, x, y: L.teacher_student_sigmoid_loss(x, y, 1, -1),
    x=np.array([[0.4], [-1.5], [2.5], [0.1], [1.0], [-1.0]], "float32"),
    y=np.array([[-2.0], [-1.0], [0.3], [1.4], [0.0], [1.0]], "float32"),
)
case(
    "npair_loss",
    lambda L, x, y, t: L.npair_loss(x, y, t, 0.01),
    x="f 4,3",
    y="f 4,3",
    t=np.array([0, 1, 0, 2], "int64"),
)

# Regions and windows, products of two inputs, divisions by norms

case("crop", lambda L, x: L.crop(x, [2, 2, 3], [1, 0, 2]), x="f 4,3,6")
case("crop_whole_batch", lambda L, x: L.crop(x, [-1, 2, 3]), x="f 4,3,6")
case("crop_like", lambda L, x, y: L.crop(x, y, [0, 1, 1]), x="f 4,3,6", y="f 2,1,4")
case("crop_offsets", lambda L, x, o: L.crop(x, [2, 2], o), x="f 4,3", o=np.array([1, 1], "int32"))
case("crop_tensor", lambda L, x: L.crop_tensor(x, [2, -1, 3], [1, 1, 2]), x="f 4,3,6")
case("crop_tensor_double", lambda L, x: L.crop_tensor(x, [2, -1, 3]), x="f 4,3,6 float64")
case("crop_tensor_integers", lambda L, x: L.crop_tensor(x, [2, 2], [1, 1]), x="i0:9 4,3")
case(
    "crop_tensor_given",
    lambda L, x, s: L.crop_tensor(x, s, [1, 0]),
    x="f 4,3",
    s=np.array([2, 2], "int32"),
)
case(
    "crop_tensor_parts",
    lambda L, x, s, o: L.crop_tensor(x, [s, 2], [1, o]),
    x="f 4,3",
    s=np.array([2], "int32"),
    o=np.array([1], "int32"),
)
for _i, _options in enumerate(
    [
        {},
        {"strides": 2, "paddings": 1},
        {"paddings": [1, 0], "dilations": 2},
        {"paddings": [1, 0, 2, 1], "strides": [2, 1]},
    ]
):
    case(f"unfold_{_i}", lambda L, x, _o=_options: L.unfold(x, [2, 3], **_o), x="f 2,3,5,6")
case("unfold_double", lambda L, x: L.unfold(x, 2), x="f 1,2,3,3 float64")
for _i, _options in enumerate([{}, {"stride": 2, "padding": 1}, {"padding": [1, 0, 2, 1], "stride": [2, 1]}]):
    case(
        f"im2sequence_{_i}",
        lambda L, x, _o=_options: L.transpose(L.im2sequence(x, [2, 3], **_o), [1, 0]),
        x="f 2,3,5,6",
    )
case(
    "bilinear_tensor_product",
    lambda L, x, y: L.bilinear_tensor_product(x, y, 4, "tanh", param_attr=waves(L), bias_attr=waves(L)),
    x="f 3,2",
    y="f 3,5",
)
case(
    "bilinear_tensor_product_plain",
    lambda L, x, y: L.bilinear_tensor_product(x, y, 2, param_attr=constant(L, 0.3), bias_attr=False),
    x="f 1,3 float64",
    y="f 1,2 float64",
)
for _dtype in ("float32", "float64"):
    case("fsp_matrix_" + _dtype, lambda L, x, y: L.fsp_matrix(x, y), x="f 2,3,4,2 " + _dtype, y="f 2,5,4,2 " + _dtype)
case("row_conv", lambda L, x: L.row_conv(x, 2, param_attr=waves(L), act="relu"), x="f 2,6,3")
case("row_conv_short", lambda L, x: L.row_conv(x, 4, param_attr=waves(L)), x="f 2,3,2")
for _i, _options in enumerate(
    [{}, {"n": 3, "k": 2.0, "alpha": 0.3, "beta": 0.5}, {"n": 7, "alpha": 0.5}, {"data_format": "NHWC", "alpha": 0.2}]
):
    case(f"lrn_{_i}", lambda L, x, _o=_options: L.lrn(x, **_o), x="f 2,6,3,4")

# Losses of many classes that compute the scores of some only


def _nce(*classes, **options):
    """An nce whose samples are not random."""

    def function(layers, x, label, weight=None):
        bias = waves(layers) if weight is None else False
        cost = layers.nce(x, label, 5, weight, waves(layers), bias, len(classes), **options)
        (op,) = [op for op in x.block.ops if op.type == "nce"]
        op._set_attr("custom_neg_classes", list(classes))
        return cost

    return function


for _i, _options in enumerate(
    [{}, {"sampler": "log_uniform"}, {"sampler": "custom_dist", "custom_dist": [0.1, 0.2, 0.3, 0.15, 0.25]}]
):
    case(f"nce_{_i}", _nce(2, 0, 2, **_options), x="f 3,4", label="i0:5 3,1")
case("nce_several", _nce(1, 4), x="f 3,4", label="i0:5 3,2")
case("nce_weighted", _nce(1, 4), x="f 3,4", label="i0:5 3,1", weight="p 3,1")
for _classes in (2, 4, 6, 7):
    case(
        f"hsigmoid_{_classes}",
        lambda L, x, y, _c=_classes: L.hsigmoid(x, y, _c, param_attr=waves(L), bias_attr=waves(L)),
        x="f 5,3",
        y=f"i0:{_classes} 5,1",
    )
case(
    "hsigmoid_plain", lambda L, x, y: L.hsigmoid(x, y, 4, param_attr=waves(L), bias_attr=False), x="f 5,3", y="i0:4 5,1"
)
case(
    "hsigmoid_double",
    lambda L, x, y: L.hsigmoid(x, y, 6, param_attr=constant(L, 0.3)),
    x="f 5,3 float64",
    y="i0:6 5,1",
)
case(
    "hsigmoid_custom",
    lambda L, x, y, t, c: L.hsigmoid(
        x, y, 4, param_attr=waves(L), bias_attr=waves(L), path_table=t, path_code=c, is_custom=True
    ),
    x="f 2,3",
    y=np.array([[0], [1]], "int64"),
    t=np.array([[0, 2, -1], [0, 1, 3]], "int64"),
    c=np.array([[1, 0, -1], [0, 1, 1]], "int64"),
)
for _remove in (True, False):
    case(
        "sampled_softmax_" + ("without_hits" if _remove else "with_hits"),
        lambda L, x, y, s, p, _r=_remove: L.sampled_softmax_with_cross_entropy(
            x,
            y,
            4,
            remove_accidental_hits=_r,
            use_customized_samples=True,
            customized_samples=s,
            customized_probabilities=p,
        ),
        x="f 3,6",
        y=np.array([[1], [4], [0]], "int64"),
        s=np.array([[1, 3, 2, 5, 0], [4, 3, 2, 4, 0], [0, 3, 2, 5, 1]], "int64"),
        p=np.array([[0.25, 0.5, 0.125, 0.25, 0.1]] * 3, "float32"),
    )


def record(folder, cases):
    """Record what the cases give on Paddle; arrays that were recorded before stay as they are."""
    import paddle.fluid

    recorded, operators = {}, {}
    for name in cases:
        print(name)
        arrays, operators[name] = run(paddle.fluid, name, cases=cases)
        recorded.update({name + "/" + key: value for key, value in arrays.items()})
    if (folder / "arrays.npz").exists():
        with np.load(str(folder / "arrays.npz")) as before:
            recorded.update({key: before[key] for key in before.files if key in recorded})
        before = json.loads((folder / "operators.json").read_text(encoding="utf-8"))
        operators.update({name: lines for name, lines in before.items() if name in operators})
    golden_arrays.write(folder, recorded, operators)


# Images sampled between their elements, positions, numbers of classes

case("affine_grid", lambda L, t: L.affine_grid(t, [2, 3, 4, 5]), t="f 2,2,3")
case("affine_grid_double", lambda L, t: L.affine_grid(t, [1, 1, 3, 2]), t="f 1,2,3 float64")
case(
    "affine_grid_given",
    lambda L, t, s: L.affine_grid(t, s),
    t="f 2,2,3",
    s=np.array([2, 1, 3, 4], "int32"),
)
for _dtype in ("float32", "float64"):
    case(
        "grid_sampler_" + _dtype, lambda L, x, g: L.grid_sampler(x, g), x="f 2,3,4,5 " + _dtype, g="u 2,4,5,2 " + _dtype
    )
case("grid_sampler_outside", lambda L, x, g: L.grid_sampler(x, g), x="f 2,3,4,5", g="f 2,4,5,2")
case("add_position_encoding", lambda L, x: L.add_position_encoding(x, 0.5, 2.0), x="f 2,5,6")
case("add_position_encoding_narrow", lambda L, x: L.add_position_encoding(x, 1.0, 1.0), x="f 2,3,2")


def _hash(x, size, count):
    """The operator by itself: the layer of the original fails."""
    out = x.block.create_var(name="hashed", dtype=x.dtype)
    x.block.append_op(type="hash", inputs={"X": [x]}, outputs={"Out": [out]}, attrs={"num_hash": count, "mod_by": size})
    return out


case("shard_index", lambda L, x: L.shard_index(x, 20, 3, 1), x="i0:20 6,1")
for _dtype in ("int32", "int64"):
    case("hash_" + _dtype, lambda L, x: _hash(x, 1000, 3), x="i0:1000000 4,3 " + _dtype)
    case("hash_long_" + _dtype, lambda L, x: _hash(x, 2**30, 2), x="i0:1000000 2,13 " + _dtype)
    case("mean_iou_" + _dtype, lambda L, x, y: L.mean_iou(x, y, 4), x="i0:3 3,5 " + _dtype, y="i0:3 3,5 " + _dtype)

# Parts chosen by their values, centers of classes

for _axis, _indexes in ((1, [0]), (1, [0, 2]), (2, [1]), (3, [3, 0])):
    case(
        f"similarity_focus_{_axis}_{len(_indexes)}",
        lambda L, x, _a=_axis, _n=_indexes: L.similarity_focus(x, _a, _n),
        x="f 2,3,2,4",
    )


def _center_loss(layers, x, label, alpha, update):
    """The loss and the centers after it."""
    loss = layers.center_loss(x, label, 4, alpha, waves(layers), update)
    (op,) = [op for op in x.block.ops if op.type == "center_loss"]
    return loss, layers.scale(x.block.var(op.output("CentersOut")[0]), 1.0)


for _update in (True, False):
    case(
        "center_loss_" + ("moving" if _update else "fixed"),
        lambda L, x, y, _u=_update: _center_loss(L, x, y, 0.3, _u),
        x="f 5,3",
        y=np.array([[1], [3], [1], [0], [1]], "int64"),
    )
case(
    "center_loss_given_rate",
    lambda L, x, y, a: _center_loss(L, x, y, a, True),
    x="f 3,2",
    y=np.array([[1], [2], [1]], "int64"),
    a=np.array([0.7], "float32"),
)

for _act in ("identity", "leaky_relu", "elu"):
    # Scaled, because the gradient of the original writes over the result.
    case(
        "inplace_abn_" + _act,
        lambda L, x, _a=_act: L.scale(
            L.inplace_abn(L.scale(x, 2.0), _a, param_attr=constant(L, 1.3), act_alpha=0.4), 1.0
        ),
        x="f 3,2,4,3",
    )
case(
    "inplace_abn_last",
    lambda L, x: L.inplace_abn(L.scale(x, 2.0), data_layout="NHWC", is_test=True, bias_attr=waves(L)),
    gradients=False,
    x="f 3,4,2,3",
)

# Windows whose elements have places of their own

for _name, _parts, _spread, _options in [
    ("plain", 1, 1.0, {}),
    ("parts", 2, 2.0, {"deformable_groups": 2, "stride": 2, "padding": 1}),
    ("groups", 2, 4.0, {"groups": 2, "deformable_groups": 2, "dilation": 2, "padding": (2, 1), "stride": (1, 2)}),
]:  # fmt: skip
    for _dtype in ("float32", "float64"):
        _shape = {"plain": (4, 4), "parts": (3, 3), "groups": (7, 2)}[_name]
        for _modulated in (True, False)[: 1 + (_dtype == "float32")]:  # the original has no other for doubles
            _draw = Draw(f"deformable {_name} {_dtype}")
            _arrays = {
                "x": _draw("f 2,4,5,6 " + _dtype),
                "o": (_spread * _draw("f 2,{},{},{}".format(12 * _parts, *_shape))).astype(_dtype),
                "m": _draw("u 2,{},{},{} {}".format(6 * _parts, *_shape, _dtype)),
            }
            _given = {"groups": 1, "deformable_groups": 1, "im2col_step": 1, "modulated": _modulated, **_options}
            if not _modulated:
                del _arrays["m"]
            case(
                f"deformable_conv_{_name}_{_modulated}_{_dtype}",
                lambda L, x, o, m=None, _g=_given: L.deformable_conv(
                    x, o, m, 4, (2, 3), param_attr=constant(L, 0.3), bias_attr=constant(L, 0.1), **_g
                ),
                **_arrays,
            )
case(
    "deformable_conv_of_waves",
    lambda L, x, o, m: L.deformable_conv(x, o, m, 4, 3, 1, 1, 1, 2, 2, 1, param_attr=waves(L), bias_attr=waves(L)),
    x="f 1,4,5,3",
    o="f 1,36,5,3",
    m="p 1,18,5,3",
)

# Networks that predict clicks


def contrib(layers):
    """The module of layers in contrib."""
    return __import__(layers.__name__.rpartition(".")[0] + ".contrib.layers", fromlist=["partial_sum"])


def _data_norm(layers, x, **attrs):
    """The result, its gradient and what the counts get for gradients, which the original computes together only."""
    y = layers.data_norm(x, **attrs)
    parameters = sorted((v for v in x.block.vars.values() if v.name.startswith("dn.")), key=lambda v: v.name)
    found = sys.modules[layers.__name__.rpartition(".")[0]].gradients([y * y], [x] + parameters)
    if len(attrs) == 2 and "slot_dim" in attrs:
        found = found[1:]  # the original gives slots that were never shown a gradient, unless they are scaled
    results = [each for each in [y] + found if each is not None]
    for each in results:
        each.stop_gradient = True
    return results


_COUNTS = {"batch_size": 4.0, "batch_sum": 2.0, "batch_square": 8.0, "scale_w": 2.0, "bias": 0.5}
for _name, _options in [
    ("start", {}), ("counts", {"param_attr": _COUNTS, "summary_decay_rate": 0.5, "epsilon": 0.001}),
    ("learned", {"param_attr": _COUNTS, "enable_scale_and_shift": True}), ("act", {"act": "relu"}),
]:  # fmt: skip
    for _dtype in ("float32", "float64"):
        case(f"data_norm_{_name}_{_dtype}", lambda L, x, _o=_options: _data_norm(L, x, **_o), x="f 4,3 " + _dtype)
    case(f"data_norm_{_name}_one", lambda L, x, _o=_options: _data_norm(L, x, **_o), x="f 1,1")
for _options in ({}, {"enable_scale_and_shift": True}):
    case(
        f"data_norm_slots_{len(_options)}",
        lambda L, x, _o=_options: _data_norm(L, x, param_attr=_COUNTS, slot_dim=2, **_o),
        x=np.array([[0, 1, 2, 3], [1, 0, 1e-8, 3], [2, 0.5, -1, 0.3]], "float32"),
    )
for _use in (True, False):
    for _dtype in ("float32", "float64"):
        case(
            f"continuous_value_model_{_use}_{_dtype}",
            lambda L, x, c, _u=_use: L.continuous_value_model(x, c, _u),
            x="p 3,5 " + _dtype,
            c="p 3,2 " + _dtype,
        )
for _start, _length in ((0, -1), (1, 2), (2, -1), (0, 1)):
    for _name in ("partial_concat", "partial_sum"):
        for _dtype in ("float32", "float64"):
            case(
                f"{_name}_{_start}_{_length}_{_dtype}",
                lambda L, x, y, z, _n=_name, _s=_start, _l=_length: getattr(contrib(L), _n)([x, y, z], _s, _l),
                x="f 3,4 " + _dtype,
                y="f 3,4 " + _dtype,
                z="f 3,4 " + _dtype,
            )
case("partial_concat_from_the_end", lambda L, x, y: contrib(L).partial_concat([x, y], -2, 1), x="f 3,4", y="f 3,4")
case("partial_concat_of_one", lambda L, x: contrib(L).partial_concat([x], 1), x="f 2,3")
for _name in ("partial_concat", "partial_sum"):
    for _dtype in ("int32", "int64"):
        case(
            f"{_name}_{_dtype}",
            lambda L, x, y, _n=_name: getattr(contrib(L), _n)([x, y], 0, 2),
            x="i0:9 2,3 " + _dtype,
            y="i0:9 2,3 " + _dtype,
        )
for _functions in (
    "elementwise_add,relu", "relu,elementwise_add", "elementwise_mul,scale", "elementwise_add,scale",
    "scale,elementwise_add",
):  # fmt: skip
    for _save in (True, False):
        case(
            f"fused_elemwise_activation_{_functions}_{_save}",
            lambda L, x, y, _f=_functions, _s=_save: contrib(L).fused_elemwise_activation(
                x, y, _f.split(","), scale=2.0, save_intermediate_out=_s
            ),
            x="f 2,3",
            y="f 2,3",
        )
case(
    "fused_elemwise_activation_along_rows",
    lambda L, x, y: contrib(L).fused_elemwise_activation(x, y, "relu,elementwise_add", 0),
    x="f 2,3 float64",
    y="f 2 float64",
)
_TREES = np.array([[[1, 2], [1, 3], [1, 4], [2, 5], [2, 6]], [[2, 1], [2, 3], [3, 4], [3, 6], [4, 5]]], "int32")
for _depth in (2, 3, 8):
    case(
        f"tree_conv_{_depth}",
        lambda L, x, edges, _d=_depth: contrib(L).tree_conv(
            x, edges, 1, 1, _d, param_attr=waves(L), bias_attr=waves(L) if _d == 3 else False
        ),
        x="f 2,6,4",
        edges=_TREES,
    )
case(
    "tree_conv_of_several_filters",  # whose gradient is wrong in 1.8.5
    lambda L, x, edges: contrib(L).tree_conv(x, edges, 2, 3, act=None, param_attr=waves(L), bias_attr=False),
    gradients=False,
    x="f 2,6,3",
    edges=_TREES,
)
case("ctr_metric_bundle", lambda L, p, y: contrib(L).ctr_metric_bundle(p, y), gradients=False, p="s 4,1", y="s 4,1")


if __name__ == "__main__":
    record(FOLDER, CASES)
