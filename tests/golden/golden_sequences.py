"""Calls of layers on sequences of different lengths, whose results on Paddle 1.8.5 are recorded.

A case is a function of `layers` and of the variables that are fed, as in `golden_layers`. What it returns is fetched
with the lengths of its sequences, and so are the gradients of its weighted sum with respect to what was fed and
to parameters. Running this file with Paddle, ``python golden_sequences.py``, writes the recording beside it; it is
therefore written for Python 3.7, and the tests hand it minigraph instead.
"""

import sys
from pathlib import Path

import golden_arrays
import numpy as np
from golden_layers import Draw, contrib, line_of

FOLDER = Path(__file__).parent / "sequences"
CASES = {}
"""Name to function, fed arrays, their lengths, and whether gradients are taken."""


def case(name, function, gradients=True, **specs):
    """`specs` are those of `Draw`, with the lengths of sequences after ``@``, outermost first: ``f 3 @ 2,0,1``.

    The shape is that of one row then.
    """
    if name in CASES:
        raise ValueError(name)
    draw, arrays, lengths = Draw(name), {}, {}
    for key, spec in specs.items():
        if isinstance(spec, str):
            spec, *levels = (part.strip() for part in spec.split("@"))
            lengths[key] = [[int(size) for size in level.split(",")] for level in levels]
            if levels:
                kind, shape, dtype = (spec.split() + [""])[:3]
                spec = f"{kind} {sum(lengths[key][-1])},{'' if shape == '-' else shape} {dtype}"
            spec = draw(spec)
        arrays[key] = spec
    CASES[name] = (function, arrays, lengths, gradients)


def both(name, function, gradients=True, **specs):
    """A case in float32 and one in float64."""
    case(name, function, gradients, **specs)
    double = {key: _in_double(spec) if isinstance(spec, str) else spec for key, spec in specs.items()}
    case(name + "_double", function, gradients, **double)


def _in_double(spec):
    first, *levels = spec.split("@")
    return "@".join([first.rstrip() + (" float64 " if first[0] in "fpus" else " "), *levels]).strip()


def variables(fluid, arrays, lengths):
    """Variables for what a case feeds."""
    found = {}
    for key, array in arrays.items():
        levels = len(lengths.get(key, ()))
        shape = [None, *array.shape[1:]] if levels else array.shape
        found[key] = fluid.data(key, shape, str(array.dtype), lod_level=levels)
    return found


def run(fluid, name, place=None):
    """What a case gives by name: ``out/0``, its lengths ``out/0/lod/0``, ``grad/x``, ...; and a line per operator."""
    function, arrays, lengths, gradients = CASES[name]
    place = place or fluid.CPUPlace()
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fed = variables(fluid, arrays, lengths)
        for key, var in fed.items():
            var.stop_gradient = not gradients or arrays[key].dtype.kind != "f"
        result = function(fluid.layers, **fed)
        outputs = list(result) if isinstance(result, (list, tuple)) else [result]
        lines = [line_of(op) for block in main.blocks for op in block.ops if op.type != "while"]
        fetched = {f"out/{i}": var for i, var in enumerate(outputs)}
        wanted = {key: var for key, var in fed.items() if not var.stop_gradient}
        parameters = main.global_block().all_parameters()
        if gradients:
            wanted.update({f"param/{i}": var for i, var in enumerate(parameters)})
        targets = [var for var in outputs if "FP" in str(var.dtype) or "float" in str(var.dtype)]
        targets = [weighted(fluid.layers, var) for var in targets if not var.stop_gradient]
        if wanted and targets:
            for key, gradient in zip(wanted, fluid.gradients(targets, list(wanted.values()))):
                if gradient is not None:
                    fetched["grad/" + key] = gradient
    executor = fluid.Executor(place)
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        for i, var in enumerate(parameters):
            values = np.sin(np.arange(np.prod(var.shape)) + i).reshape(var.shape)
            double = "64" in str(var.dtype) or str(var.dtype).endswith("FP64")
            tensor = fluid.global_scope().find_var(var.name).get_tensor()
            tensor.set((0.7 * values).astype("float64" if double else "float32"), place)
        feed = {
            key: fluid.create_lod_tensor(array, lengths[key], place) if lengths.get(key) else array
            for key, array in arrays.items()
        }
        values = executor.run(main, feed=feed, fetch_list=list(fetched.values()), return_numpy=False)
    found = {}
    for key, value in zip(fetched, values):
        found[key] = np.array(value)
        if key.startswith("out"):
            for i, level in enumerate(value.recursive_sequence_lengths()):
                found[f"{key}/lod/{i}"] = np.array(level, "int64")
    return found, lines


def weighted(layers, x):
    """`x` times its cosines, which count as constants."""
    if x.lod_level:  # the gradient of some operators asks for lengths, which that of lod_reset has
        x = layers.lod_reset(x, x)
    weights = layers.cos(x)
    weights.stop_gradient = True
    return layers.elementwise_mul(x, weights)


def append(type, x, inputs, outputs, **attrs):
    """Append an operator of a type; the variables of `outputs`, slots to dtypes, in order."""
    made = {slot: [x.block.create_var(dtype=dtype)] for slot, dtype in outputs.items()}
    x.block.append_op(type=type, inputs=inputs, outputs=made, attrs=attrs)
    return [variables[0] for variables in made.values()]


def nets(layers):
    return sys.modules[layers.__name__.rpartition(".")[0]].nets


LENGTHS = {"mixed": "3,1,4,2", "empty": "2,0,3,0,1", "ones": "1,1,1", "single": "5", "nested": "2,1,2 @ 3,1,4,2,1"}
"""Lengths by what is special about them; those of ``nested`` make up sequences of sequences."""


def some(names):
    return [(name, LENGTHS[name]) for name in names.split()]


# Pooling

for _type in ["average", "sum", "sqrt", "max", "last", "first"]:
    for _what, _lengths in [*LENGTHS.items(), ("rank3", "2,3"), ("padded", "2,0,3,0,1")]:
        _shape = "2,3" if _what == "rank3" else "3"
        _pad = 1.5 if _what == "padded" else 0.0
        case(
            f"sequence_pool_{_type}_{_what}",
            lambda L, x, _t=_type, _p=_pad: L.sequence_pool(x, _t, pad_value=_p),
            x=f"f {_shape} @ {_lengths}",
        )
for _what, _lengths in LENGTHS.items():
    case(f"sequence_first_step_{_what}", lambda L, x: L.sequence_first_step(x), x=f"f 4 @ {_lengths}")
    case(f"sequence_last_step_{_what}", lambda L, x: L.sequence_last_step(x), x=f"f 4 @ {_lengths}")
case("sequence_pool_is_test", lambda L, x: L.sequence_pool(x, "max", is_test=True), False, x="f 3 @ 2,3")

# Windows

for _what, _lengths in some("mixed empty ones single"):
    case(f"sequence_conv_{_what}", lambda L, x: L.sequence_conv(x, 4), x=f"f 3 @ {_lengths}")
    case(
        f"sequence_conv_bare_{_what}",
        lambda L, x: L.sequence_conv(x, 2, 5, padding_start=-1, bias_attr=False, act="tanh"),
        x=f"f 3 @ {_lengths}",
    )
for _size, _starts in ((1, (None, 0, 2)), (2, (None, 0, 1)), (4, (None, 0, 1, -3))):
    for _start in _starts:
        case(
            f"sequence_conv_{_size}_from_{_start}",
            lambda L, x, _s=_size, _b=_start: L.sequence_conv(x, 2, _s, padding_start=_b),
            gradients=(_start or 0) <= 0,  # that of the filter is wrong in Paddle 1.8.5
            x="f 3 @ 3,1,4,2",
        )
for _what, _lengths in some("mixed ones single"):
    case(f"row_conv_{_what}", lambda L, x: L.row_conv(x, 2), x=f"f 3 @ {_lengths}")
case("row_conv_act", lambda L, x: L.row_conv(x, 5, act="tanh"), x="f 3 @ 3,1,4")
for _size, _pad in ((2, 0), (3, 7), (6, -1)):
    for _dtype in ("int64", "int32"):
        case(
            f"sequence_enumerate_{_size}_{_dtype}",
            lambda L, x, _s=_size, _p=_pad: L.sequence_enumerate(x, _s, _p),
            x=f"i0:9 1 {_dtype} @ 3,1,4,2",
        )
case("sequence_enumerate_empty", lambda L, x: L.sequence_enumerate(x, 2), x="i0:9 1 @ 2,0,3,0")

# Softmax

for _what, _lengths in LENGTHS.items():
    both(f"sequence_softmax_{_what}", lambda L, x: L.sequence_softmax(x), x=f"f 1 @ {_lengths}")
    both(f"sequence_softmax_vector_{_what}", lambda L, x: L.sequence_softmax(x), x=f"f - @ {_lengths}")

# Repetition

for _name, _x, _y, _level in [
    ("rows", "f 2,3", "f 1 @ 2,3", -1),
    ("rows_level", "f 2,3", "f 1 @ 2,3", 0),
    ("rows_of_outer", "f 3,3", "f 1 @ 2,1,2 @ 3,1,4,2,1", 0),
    ("rows_of_inner", "f 5,3", "f 1 @ 2,1,2 @ 3,1,4,2,1", 1),
    ("rows_none", "f 4,2", "f 1 @ 2,0,3,1", -1),
    ("rank3", "f 2,3,2", "f 1 @ 2,3", -1),
    ("sequences", "f 3 @ 1,3,2", "f 1 @ 2,1,2 @ 3,1,4,2,1", 0),
    ("sequences_inner", "f 1 @ 2,1,1", "f 2 @ 2,3,1", 0),
    ("sequences_none", "f 3 @ 1,3,2", "f 1 @ 2,0,2 @ 3,1,4,2", 0),
    ("sequences_empty", "f 3 @ 1,0,2", "f 1 @ 2,1,2 @ 3,1,4,2,1", 0),
    ("sequences_once", "f 3 @ 2,2", "f 1 @ 1,1 @ 3,1", 0),
]:
    both(f"sequence_expand_{_name}", lambda L, x, y, _l=_level: L.sequence_expand(x, y, _l), x=_x, y=_y)
for _dtype in ("int32", "int64"):
    case(
        f"sequence_expand_{_dtype}",
        lambda L, x, y: L.sequence_expand(x, y),
        x=f"i0:9 2,1 {_dtype}",
        y="f 1 @ 2,3",
    )
    case(
        f"sequence_expand_as_{_dtype}",
        lambda L, x, y: L.sequence_expand_as(x, y),
        x=f"i0:9 2,1 {_dtype}",
        y="f 1 @ 2,3",
    )
for _name, _x, _y in [
    ("rows", "f 2,3", "f 1 @ 2,3"),
    ("ones", "f 3,2", "f 1 @ 1,1,1"),
    ("none", "f 4,2", "f 1 @ 2,0,3,1"),
    ("sequences", "f 2 @ 1,1,1", "f 1 @ 3,1,2"),
    ("rank3", "f 2,3,2", "f 1 @ 2,3"),
]:
    both(f"sequence_expand_as_{_name}", lambda L, x, y: L.sequence_expand_as(x, y), x=_x, y=_y)

# Parts and order

for _name, _specs in {
    "two": {"x": "f 3 @ 2,1,3", "y": "f 3 @ 1,3,2"},
    "three": {"x": "f 2 @ 2,1", "y": "f 2 @ 1,2", "z": "f 2 @ 4,1"},
    "empty": {"x": "f 2 @ 2,0,3", "y": "f 2 @ 0,0,1"},
    "rank3": {"x": "f 2,2 @ 2,1", "y": "f 2,2 @ 1,3"},
}.items():
    both(f"sequence_concat_{_name}", lambda L, **given: L.sequence_concat(list(given.values())), **_specs)
case("sequence_concat_int64", lambda L, x, y: L.sequence_concat([x, y]), x="i0:9 1 @ 2,1", y="i0:9 1 @ 1,2")
both(
    "sequence_slice",
    lambda L, x, offset, length: L.sequence_slice(x, offset, length),
    x="f 2 @ 3,1,4",
    offset=np.array([[1], [0], [0]]),
    length=np.array([[2], [1], [3]]),
)
case(
    "sequence_slice_of_ints",
    lambda L, x, offset, length: L.sequence_slice(x, offset, length),
    x="i0:9 1 @ 3,2,4",
    offset=np.array([[1], [0], [3]]),
    length=np.array([[2], [1], [1]]),
)
both(
    "sequence_slice_rank3",
    lambda L, x, offset, length: L.sequence_slice(x, offset, length),
    x="f 2,2 @ 3,2",
    offset=np.array([[1], [0]]),
    length=np.array([[1], [2]]),
)
for _what, _lengths in [*some("mixed empty ones single"), ("rank3", "2,3")]:
    _shape = "2,3" if _what == "rank3" else "3"
    both(f"sequence_reverse_{_what}", lambda L, x: L.sequence_reverse(x), x=f"f {_shape} @ {_lengths}")
for _dtype in ("int32", "int64"):
    case(f"sequence_reverse_{_dtype}", lambda L, x: L.sequence_reverse(x), x=f"i0:9 2 {_dtype} @ 3,1,2")
for _name, _shape, _new, _lengths in [
    ("wider", "2", 4, "4,2,6"),
    ("narrower", "6", 2, "2,1,3"),
    ("same", "3", 3, "2,1"),
    ("other", "6", 4, "2,4"),
    ("empty", "2", 4, "4,0,2"),
]:
    both(f"sequence_reshape_{_name}", lambda L, x, _n=_new: L.sequence_reshape(x, _n), x=f"f {_shape} @ {_lengths}")
for _dtype in ("int32", "int64"):
    case(f"sequence_reshape_{_dtype}", lambda L, x: L.sequence_reshape(x, 4), x=f"i0:9 2 {_dtype} @ 4,2")
    case(
        f"sequence_erase_{_dtype}",
        lambda L, x, _d=_dtype: append("sequence_erase", x, {"X": [x]}, {"Out": _d}, tokens=[2, 3, 5])[0],
        x=f"i0:6 1 {_dtype} @ 6,1,5,2",
    )
case(
    "sequence_erase_nothing",
    lambda L, x: append("sequence_erase", x, {"X": [x]}, {"Out": "int64"}, tokens=[])[0],
    x="i0:6 1 @ 3,2",
)
case(
    "sequence_erase_nested",
    lambda L, x: append("sequence_erase", x, {"X": [x]}, {"Out": "int64"}, tokens=[1])[0],
    x="i0:4 1 @ 2,1 @ 3,2,4",
)

# Padding

for _what, _lengths in [*some("mixed empty ones single"), ("rank3", "2,3")]:
    _shape = "2,3" if _what == "rank3" else "3"
    for _maxlen in (None, 6):
        for _width in (1, 3):
            if _width == 1 or _what != "rank3":
                both(
                    f"sequence_pad_{_what}_{_maxlen}_{_width}",
                    lambda L, x, p, _m=_maxlen: L.sequence_pad(x, p, _m),
                    x=f"f {_shape} @ {_lengths}",
                    p=f"f {_width}",
                )
for _dtype in ("int32", "int64"):
    case(
        f"sequence_pad_{_dtype}",
        lambda L, x, _d=_dtype: L.sequence_pad(x, L.assign(np.array([7], _d))),
        x=f"i0:5 1 {_dtype} @ 3,1,2",
    )
    case(
        f"sequence_unpad_{_dtype}",
        lambda L, x, length: L.sequence_unpad(x, length),
        x=f"i0:5 3,4 {_dtype}",
        length=np.array([4, 1, 2]),
    )
for _name, _shape, _lengths in [
    ("mixed", "3,4,2", [4, 1, 2]),
    ("full", "2,3,2", [3, 3]),
    ("ones", "3,1,2", [1, 1, 1]),
    ("column", "2,4,1", [3, 2]),
    ("rank4", "2,3,2,2", [3, 1]),
]:
    both(
        f"sequence_unpad_{_name}",
        lambda L, x, length: L.sequence_unpad(x, length),
        x=f"f {_shape}",
        length=np.array(_lengths),
    )
    both(
        f"sequence_unpad_pooled_{_name}",
        lambda L, x, length: L.sequence_softmax(L.reduce_sum(L.sequence_unpad(x, length), -1)),
        x="f " + ",".join(_shape.split(",")[:3]),
        length=np.array(_lengths),
    )
for _dtype in ("int64", "int32", "float32", "float64", "bool"):
    case(f"sequence_mask_{_dtype}", lambda L, x, _d=_dtype: L.sequence_mask(x, 5, _d), x=np.array([3, 0, 5, 7]))
    case(f"sequence_mask_longest_{_dtype}", lambda L, x, _d=_dtype: L.sequence_mask(x, dtype=_d), x=np.array([3, 0, 2]))
case("sequence_mask_rank2", lambda L, x: L.sequence_mask(x, 4), x=np.array([[3, 0], [2, 1]]))
case("sequence_mask_of_int32", lambda L, x: L.sequence_mask(x, 4), x=np.array([3, 0, 1], "int32"))
case(
    "sequence_mask_tensor",
    lambda L, x, m: L.sequence_mask(x, m, "float32"),
    x=np.array([3, 0, 1]),
    m=np.array([6], "int32"),
)
both(
    "sequence_scatter",
    lambda L, x, i, u: L.sequence_scatter(x, i, u),
    x="f 3,5",
    i="i0:5 1 @ 3,1,2",
    u="f 1 @ 3,1,2",
)
both(
    "sequence_scatter_long",
    lambda L, x, i, u: L.sequence_scatter(x, i, u),
    x="f 2,3",
    i="i0:3 1 @ 6,4",
    u="f 1 @ 6,4",
)
for _dtype in ("int32", "int64"):
    case(
        f"sequence_scatter_{_dtype}",
        lambda L, x, i, u: L.sequence_scatter(x, i, u),
        x=f"i0:9 2,4 {_dtype}",
        i="i0:4 1 @ 3,1",
        u=f"i0:9 1 {_dtype} @ 3,1",
    )

# Lengths themselves

both("lod_reset_given", lambda L, x: L.lod_reset(x, target_lod=[0, 2, 6]), x="f 3 @ 3,1,2")
both("lod_reset_bare", lambda L, x: L.lod_reset(x, target_lod=[0, 1, 4]), x="f 4,2")
both("lod_reset_as", lambda L, x, y: L.lod_reset(x, y), x="f 3 @ 3,1,2", y="f 1 @ 2,2,2")
both("lod_reset_as_nested", lambda L, x, y: L.lod_reset(x, y), x="f 3 @ 3,1,2", y="f 1 @ 2,1 @ 2,2,2")
both("lod_reset_values", lambda L, x, y: L.lod_reset(x, y), x="f 3 @ 3,1,2", y=np.array([0, 4, 6], "int32"))
both("lod_reset_pooled", lambda L, x: L.sequence_softmax(L.lod_reset(x, target_lod=[0, 2, 6])), x="f 1 @ 3,1,2")
for _dtype in ("int32", "int64"):
    case(f"lod_reset_{_dtype}", lambda L, x: L.lod_reset(x, target_lod=[0, 2, 6]), x=f"i0:9 1 {_dtype} @ 3,1,2")
both("lod_append_given", lambda L, x: L.lod_append(x, list(range(7))), x="f 3 @ 3,1,2")
both("lod_append_as", lambda L, x, y: L.lod_append(x, y), x="f 3 @ 3,3", y="f 1 @ 2,2,2")
both("lod_append_bare", lambda L, x: L.lod_append(x, [0, 2, 6]), x="f 6,3")

# Recurrent layers


def only_hidden(results):
    """Both results, with a gradient of the first: Paddle 1.8.5 drops that of the cells."""
    results[1].stop_gradient = True
    return results


ACTIVATIONS = ("sigmoid", "tanh", "relu", "identity")
for _what, _lengths in some("mixed empty ones single"):
    for _reverse in (False, True):
        _name = f"{_what}_reversed" if _reverse else _what
        for _suffix, _dtype in (("", "float32"), ("_double", "float64")):
            _spec = f"{_dtype} @ {_lengths}"
            case(
                f"dynamic_lstm_{_name}{_suffix}",
                lambda L, x, _r=_reverse, _d=_dtype: only_hidden(L.dynamic_lstm(x, 12, is_reverse=_r, dtype=_d)),
                x=f"f 12 {_spec}",
            )
            case(
                f"dynamic_lstm_plain_{_name}{_suffix}",
                lambda L, x, _r=_reverse, _d=_dtype: L.dynamic_lstm(x, 8, use_peepholes=False, is_reverse=_r, dtype=_d)[
                    0
                ],
                x=f"f 8 {_spec}",
            )
            case(
                f"dynamic_lstmp_{_name}{_suffix}",
                lambda L, x, _r=_reverse, _d=_dtype: only_hidden(L.dynamic_lstmp(x, 12, 2, is_reverse=_r, dtype=_d)),
                x=f"f 12 {_spec}",
            )
            for _origin in (False, True):
                case(
                    f"dynamic_gru_{'origin_' if _origin else ''}{_name}{_suffix}",
                    lambda L, x, _r=_reverse, _o=_origin: L.dynamic_gru(x, 3, is_reverse=_r, origin_mode=_o),
                    x=f"f 9 {_spec}",
                )
for _suffix, _dtype in (("", "float32"), ("_double", "float64")):
    for _what in ("mixed", "single"):
        _lengths = LENGTHS[_what]
        _once = ",".join(["1"] * len(_lengths.split(",")))
        for _reverse in (False, True):
            _name = f"{_what}{'_reversed' if _reverse else ''}{_suffix}"
            case(
                f"dynamic_lstm_started_{_name}",
                lambda L, x, h, c, _r=_reverse, _d=_dtype: only_hidden(
                    L.dynamic_lstm(x, 12, h, c, is_reverse=_r, dtype=_d)
                ),
                x=f"f 12 {_dtype} @ {_lengths}",
                h=f"f 3 {_dtype} @ {_once}",
                c=f"f 3 {_dtype} @ {_once}",
            )
            case(
                f"dynamic_lstmp_started_{_name}",
                lambda L, x, h, c, _r=_reverse, _d=_dtype: only_hidden(
                    L.dynamic_lstmp(x, 12, 2, h_0=h, c_0=c, is_reverse=_r, dtype=_d)
                ),
                x=f"f 12 {_dtype} @ {_lengths}",
                h=f"f 2 {_dtype} @ {_once}",
                c=f"f 3 {_dtype} @ {_once}",
            )
            case(
                f"dynamic_gru_started_{_name}",
                lambda L, x, h, _r=_reverse: L.dynamic_gru(x, 3, h_0=h, is_reverse=_r),
                x=f"f 9 {_dtype} @ {_lengths}",
                h=f"f 3 {_dtype} @ {_once}",
            )
    for _gate, _cell, _candidate in (
        ("sigmoid", "relu", "identity"),
        ("tanh", "sigmoid", "relu"),
        ("identity", "tanh", "sigmoid"),
        ("relu", "identity", "tanh"),
    ):
        _name = f"{_gate}_{_cell}_{_candidate}{_suffix}"
        case(
            f"dynamic_lstm_{_name}",
            lambda L, x, _a=(_gate, _cell, _candidate), _d=_dtype: only_hidden(
                L.dynamic_lstm(x, 8, gate_activation=_a[0], cell_activation=_a[1], candidate_activation=_a[2], dtype=_d)
            ),
            x=f"u 8 {_dtype} @ 2,1,3",
        )
        case(
            f"dynamic_lstmp_{_name}",
            lambda L, x, _a=(_gate, _cell, _candidate), _d=_dtype: only_hidden(
                L.dynamic_lstmp(
                    x, 8, 2, gate_activation=_a[0], cell_activation=_a[1], candidate_activation=_a[2],
                    proj_activation=_a[1], dtype=_d,
                )
            ),
            x=f"u 8 {_dtype} @ 2,1,3",
        )  # fmt: skip
        case(
            f"dynamic_gru_{_name}",
            lambda L, x, _a=(_gate, _cell, _candidate): L.dynamic_gru(
                x, 2, gate_activation=_a[0], candidate_activation=_a[2], bias_attr=False
            ),
            x=f"u 6 {_dtype} @ 2,1,3",
        )
    for _cell_clip, _proj_clip in ((0.3, None), (None, 0.2), (0.4, 0.1)):
        case(
            f"dynamic_lstmp_clipped_{_cell_clip}_{_proj_clip}{_suffix}",
            lambda L, x, _c=_cell_clip, _p=_proj_clip, _d=_dtype: only_hidden(
                L.dynamic_lstmp(x, 12, 2, cell_clip=_c, proj_clip=_p, dtype=_d)
            ),
            x=f"f 12 {_dtype} @ 3,1,2",
        )
case("dynamic_lstmp_plain", lambda L, x: only_hidden(L.dynamic_lstmp(x, 12, 4, use_peepholes=False)), x="f 12 @ 3,1,2")

for _origin in (False, True):
    both(
        "gru_unit_of_lengths" + ("_origin" if _origin else ""),
        lambda L, x, h, _o=_origin: L.gru_unit(x, h, 9, origin_mode=_o)[0],
        x="f 9 @ 1,1,1",
        h="f 3,3",
    )
for _size, _act, _type in ((3, "sigmoid", "max"), (2, "tanh", "average"), (4, "relu", "sqrt"), (5, None, "last")):
    case(
        f"sequence_conv_pool_{_size}_{_type}",
        lambda L, x, _s=_size, _a=_act, _t=_type: nets(L).sequence_conv_pool(x, 4, _s, act=_a, pool_type=_t),
        x="f 3 @ 3,1,4,2",
    )

# Tables of lengths, and arrays of the steps of sequences


def in_steps(L, x):
    table = L.control_flow.lod_rank_table(x)
    return table, L.control_flow.lod_tensor_to_array(x, table)


def step(L, x, i):
    return L.array_read(in_steps(L, x)[1], L.fill_constant([1], "int64", i))


for _what, _lengths in LENGTHS.items():
    both(
        f"max_sequence_len_{_what}",
        lambda L, x: L.control_flow.max_sequence_len(L.control_flow.lod_rank_table(x)),
        False,
        x=f"f 2 @ {_lengths}",
    )
    both(
        f"steps_and_back_{_what}",
        lambda L, x: L.control_flow.array_to_lod_tensor(*reversed(in_steps(L, x))),
        x=f"f 2 @ {_lengths}",
    )
    both(f"first_step_in_array_{_what}", lambda L, x: step(L, x, 0), False, x=f"f 2 @ {_lengths}")
    if _what not in ("ones", "nested"):
        both(f"second_step_in_array_{_what}", lambda L, x: step(L, x, 1), False, x=f"f 2 @ {_lengths}")
both(
    "reorder_rows",
    lambda L, x, y: L.reorder_lod_tensor_by_rank(x, L.control_flow.lod_rank_table(y)),
    x="f 4,3",
    y="f 1 @ 3,1,4,2",
)
both(
    "reorder_sequences",
    lambda L, x, y: L.reorder_lod_tensor_by_rank(x, L.control_flow.lod_rank_table(y)),
    x="f 3 @ 1,2,2,1",
    y="f 1 @ 3,1,4,2",
)
both(
    "reorder_equal",
    lambda L, x, y: L.reorder_lod_tensor_by_rank(x, L.control_flow.lod_rank_table(y)),
    x="f 3 @ 1,2,2,1",
    y="f 1 @ 2,3,2,3",
)
for _i in (0, 1, 2, 3):
    both(
        f"shrink_memory_{_i}",
        lambda L, x, y, _i=_i: L.control_flow.shrink_memory(
            x, L.fill_constant([1], "int64", _i), L.control_flow.lod_rank_table(y)
        ),
        x="f 4,3",
        y="f 1 @ 3,1,4,2",
    )

# Dynamic networks


def accumulating(L, x, start=None, **memory):
    rnn = L.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        if start is None:
            before = rnn.memory(shape=[3], value=0.5, dtype=memory["dtype"])
        else:
            before = rnn.memory(init=start, **memory)
        after = L.tanh(L.elementwise_add(L.scale(before, 0.5), word))
        rnn.update_memory(before, after)
        rnn.output(after)
    return rnn()


def with_fc(L, x, dtype):
    rnn = L.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[4], dtype=dtype)
        after = L.fc([word, before], 4, act="tanh")
        rnn.update_memory(before, after)
        rnn.output(after, L.scale(after, 2.0))
    return rnn()


def two_inputs(L, x, y, static, start):
    rnn = L.DynamicRNN()
    with rnn.block():
        one, other, fixed = rnn.step_input(x), rnn.step_input(y), rnn.static_input(static)
        before = rnn.memory(init=start, need_reorder=True)
        after = L.elementwise_mul(L.elementwise_add(one, other), L.elementwise_add(fixed, before))
        rnn.update_memory(before, after)
        rnn.output(after)
    return rnn()


def attending(L, x, memory):
    """Sums a sequence that every step sees as a whole."""
    rnn = L.DynamicRNN()
    with rnn.block():
        word, seen = rnn.step_input(x), rnn.static_input(memory)
        total = L.sequence_pool(L.elementwise_mul(seen, L.sequence_expand(word, seen)), "sum")
        rnn.output(total)
    return rnn()


def pooled_steps(L, x):
    """Each step is a sequence, which is pooled."""
    rnn = L.DynamicRNN()
    with rnn.block():
        sentence = rnn.step_input(x)
        rnn.output(L.sequence_pool(sentence, "sum"))
    return rnn()


for _what, _lengths in some("mixed ones single"):
    _count = len(_lengths.split(","))
    _once = ",".join(["1"] * _count)
    for _suffix, _dtype in (("", "float32"), ("_double", "float64")):
        _spec = f"f 3 {_dtype} @ {_lengths}"
        case(f"dynamic_rnn_{_what}{_suffix}", lambda L, x, _d=_dtype: accumulating(L, x, dtype=_d), x=_spec)
        case(f"dynamic_rnn_fc_{_what}{_suffix}", lambda L, x, _d=_dtype: with_fc(L, x, _d), x=_spec)
        for _order in (False, True):
            case(
                f"dynamic_rnn_started_{_what}_{_order}{_suffix}",
                lambda L, x, s, _o=_order, _d=_dtype: accumulating(L, x, s, need_reorder=_o, dtype=_d),
                x=_spec,
                s=f"f {_count},3 {_dtype}",
            )
        _others = {"static": f"f 3 {_dtype} @ {_once}", "start": f"f {_count},3 {_dtype}"}
        case(f"dynamic_rnn_static_{_what}{_suffix}", two_inputs, x=_spec, y=_spec, **_others)
case("dynamic_rnn_attending", attending, x="f 3 @ 3,1,4,2", memory="f 3 @ 2,1,3,1")
case("dynamic_rnn_of_sequences", pooled_steps, x="f 3 @ 2,1,3 @ 3,1,4,2,1,1")


# Windows of images, positions, losses and classes

for _i, _options in enumerate([{}, {"stride": 2, "padding": 1}, {"padding": [1, 0, 2, 1]}]):
    case(
        f"im2sequence_{_i}",
        lambda L, x, _o=_options: L.sequence_pool(L.im2sequence(x, [2, 3], **_o), "last"),
        x="f 2,3,5,6",
    )
case("im2sequence_rows", lambda L, x: L.im2sequence(x, 2, 2), x="f 3,1,4,4")
case(
    "im2sequence_sizes",
    lambda L, x, s: L.im2sequence(x, 2, input_image_size=s, out_stride=2),
    gradients=False,
    x="f 3,2,4,6",
    s=np.array([[8, 12], [5, 7], [4, 9]], "float32"),
)
case("add_position_encoding", lambda L, x: L.add_position_encoding(x, 0.5, 2.0), x="f 6 @ 3,1,2")
both("bpr_loss", lambda L, x, y: L.bpr_loss(x, y), x="f 4 @ 3,1,2", y="i0:4 1 @ 3,1,2")
case("shard_index", lambda L, x: L.shard_index(x, 20, 3, 1), x="i0:20 1 @ 3,1,2")
case(
    "bilinear_tensor_product",
    lambda L, x, y: L.bilinear_tensor_product(x, y, 2),
    x="f 3 @ 3,1,2",
    y="f 2 @ 3,1,2",
)
for _what, _options in [("dense", {}), ("padded", {"padding_idx": -3}), ("sparse", {"is_sparse": True})]:
    for _kind, _lengths in some("mixed single"):
        case(
            f"fused_embedding_seq_pool_{_what}_{_kind}",
            lambda L, ids, _o=_options: contrib(L).fused_embedding_seq_pool(ids, [10, 3], **_o),
            gradients=_what != "sparse",
            ids=f"i0:10 1 @ {_lengths}",
        )
for _channels, _x, _y in [(1, "3,1,2", "2,2,4"), (3, "2,1", "1,5"), (2, "4", "3")]:
    case(
        f"match_matrix_tensor_{_channels}",
        lambda L, x, y, _c=_channels: contrib(L).match_matrix_tensor(x, y, _c, act="relu" if _c == 3 else None),
        x=f"f 4 @ {_x}",
        y=f"f 4 @ {_y}",
    )
for _i, (_high, _wide, _size, _stride, _channels) in enumerate(
    [("2,1,3", "3,2,1", [3, 2], [1, 2], 2), ("2,0,3,1", "3,2,0,2", 2, 1, 1), ("4", "5", [2, 3], [3, 2], 3)]
):
    _pixels = [_channels * int(a) * int(b) for a, b in zip(_high.split(","), _wide.split(","))]
    _images = {
        "x": "f 1 @ " + ",".join(map(str, _pixels)),
        "row": f"f 1 @ {_high}",
        "col": f"f 1 @ {_wide}",
    }
    case(
        f"var_conv_2d_{_i}",
        lambda L, x, row, col, _words=(_channels, 2, _size, _stride), _act="relu" if _i == 1 else None: contrib(
            L
        ).var_conv_2d(x, row, col, *_words, act=_act),
        **_images,
    )
    case(
        f"sequence_topk_avg_pooling_{_i}",
        lambda L, x, row, col, _c=_channels, _k=[[1, 3], [1, 2, 4], [2]][_i]: contrib(L).sequence_topk_avg_pooling(
            x, row, col, _k, _c
        ),
        **_images,
    )
for _name, _x, _wanted in [
    ("some", "f 2 @ 2,1,3", [1, 7]),
    ("more", "f 2 @ 2,1,3", [0, 3]),
    ("none", "f 2 @ 2,0,3", [5]),
    ("all", "f 2 @ 2,0,3", [0, 1, 2, 3, 4]),
    ("rows", "f 3,2", [2, 3]),
]:
    both(
        f"filter_by_instag_{_name}",
        lambda L, x, tags, wanted, _lod="@" in _x: L.filter_by_instag(x, tags, wanted, _lod, 7)[0],
        x=_x,
        tags="i0:5 1 @ 2,1,2",
        wanted=np.array(_wanted, "int64"),
    )


if __name__ == "__main__":
    import paddle.fluid

    recorded, operators = {}, {}
    for name in CASES:
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        print(name, flush=True)
        arrays, operators[name] = run(paddle.fluid, name)
        recorded.update({name + "/" + key: value for key, value in arrays.items()})
    golden_arrays.write(FOLDER, recorded, operators)
