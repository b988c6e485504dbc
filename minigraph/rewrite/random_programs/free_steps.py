"""Steps of random programs on values of any shape and element type, for `recipes`.

A step takes two values, a number, and whatever it can make of them. Where a value does not suit an operator the error
of its inference is raised, and `recipes.build` leaves the step out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from minigraph import layers, unique_name
from minigraph.errors import ProgramError
from minigraph.initializer import NumpyArrayInitializer
from minigraph.ir import Parameter, Variable
from minigraph.layers.io import fluid_data as data
from minigraph.param_attr import ParamAttr
from minigraph.rewrite.random_programs.rows import SAMPLES
from minigraph.rewrite.random_programs.sampling import Sample

CLASSES = 4
"""Number of different labels."""

MOST_ELEMENTS = 1 << 20
"""Maximum number of elements of a value that a step makes larger."""


class Sources:
    """Make parameters and fed variables while a recipe is followed."""

    def __init__(self, dtype: str, columns: int, seed: int, label: Variable, trains: bool) -> None:
        self.dtype = dtype
        self.columns = columns
        self.trains = trains
        self.label = label
        self.arrays: dict[str, np.ndarray] = {}
        """Arrays to feed, by name."""
        self.random = np.random.default_rng(seed)

    def attr(self, *shape: int, name: str | None = None) -> ParamAttr:
        start = self.random.uniform(-1, 1, shape)
        rate = float(self.random.choice([1.0, 1.0, 0.5])) if self.trains else 1.0
        return ParamAttr(name=name, initializer=NumpyArrayInitializer(start), learning_rate=rate)

    def parameter(self, *shape: int) -> Parameter:
        return layers.create_parameter(list(shape), self.dtype, attr=self.attr(*shape))

    def name(self, slot: str) -> str:
        """A new name for a variable."""
        return unique_name.generate(f"{slot}_of_sample")

    def fed(self, array: np.ndarray) -> Variable:
        """A variable that is fed `array`."""
        name = self.name("In")
        self.arrays[name] = array
        var = data(name, array.shape, str(array.dtype))
        var.stop_gradient = array.dtype.kind != "f"
        return var

    def linear(
        self, x: Variable, size: int | None = None, act: str | None = None, weight: str | None = None
    ) -> Variable:
        size = size or self.columns
        attr = self.attr(x.shape[-1], size, name=weight)
        return layers.fc(x, size, param_attr=attr, bias_attr=self.attr(size), act=act)

    def look_up(self, is_sparse: bool = False, table: str | None = None) -> Variable:
        """Rows of a table, one for each label."""
        return self.look_ups((self.label,), is_sparse, table)[0]

    def look_ups(self, labels: Sequence[Variable], is_sparse: bool, table: str | None) -> list[Variable]:
        """Rows of a table for several labels."""
        attr, size = self.attr(CLASSES, self.columns, name=table), [CLASSES, self.columns]
        return [layers.embedding(each, size, is_sparse, param_attr=attr, dtype=self.dtype) for each in labels]


FreeStep = Callable[["Sources", Variable, Variable, float], "Variable | Sequence[Variable]"]


class Unfit(ProgramError):
    """A step has no use for a value."""


def fitted(x: Variable, shape: Sequence[int], dtype: str) -> Variable:
    """The elements of `x`, repeated or cut to a shape."""
    size, wanted = prod(x.shape), prod(shape)
    if not size:
        return layers.fill_constant(list(shape), dtype, 0.5)
    flat = layers.reshape(x, [-1])
    if size < wanted:
        flat = layers.expand(flat, [-(-wanted // size)])
    if flat.shape[0] > wanted:
        flat = layers.slice(flat, axes=[0], starts=[0], ends=[wanted])
    return layers.reshape(layers.cast(flat, dtype), list(shape))


def like(x: Variable, y: Variable) -> Variable:
    """`y`, converted to the shape and type of `x` where that is needed."""
    same = (x.shape, x.dtype) == (y.shape, y.dtype)
    return y if same else fitted(y, x.shape, x.dtype.value)


def axis(x: Variable, c: float) -> int:
    """A dimension of `x`."""
    if not x.shape:
        raise Unfit("no dimensions")
    return int(4 * abs(c)) % len(x.shape)


def matrix(x: Variable, c: float = 0.0) -> Variable:
    """`x` with two dimensions."""
    return layers.flatten(x, axis=1) if len(x.shape) != 2 else x


def small(x: Variable, size: int = 64) -> Variable:
    """The first rows and columns of a matrix of `x`."""
    flat = matrix(x)
    return layers.slice(flat, axes=[0, 1], starts=[0, 0], ends=[size, size])


def images(k: Sources, x: Variable) -> Variable:
    """Some elements of `x` as images."""
    return fitted(x, [2, 2, 4, 4], k.dtype)


def expand(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    times = [1 + (int(8 * abs(c)) >> i) % 3 for i in range(len(x.shape))]
    if prod(times) * prod(x.shape) > MOST_ELEMENTS:
        times = [1] * len(times)
    return layers.expand(x, times)


def expand_ones(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    """Repeat along the dimensions of size 1, which a view could do as well."""
    times = [3 if size == 1 else 1 for size in x.shape]
    if prod(times) * prod(x.shape) > MOST_ELEMENTS:
        raise Unfit("too large")
    return layers.expand(x, times)


def split(k: Sources, x: Variable, y: Variable, c: float) -> Sequence[Variable]:
    at = axis(x, c)
    return layers.split(x, [1, x.shape[at] - 1] if x.shape[at] > 1 else 1, dim=at)


def cut(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    at = axis(x, c)
    return layers.slice(x, axes=[at], starts=[int(c < 0)], ends=[max(1, x.shape[at] - int(c > 1))])


def nothing(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    """No rows."""
    return layers.slice(x, axes=[axis(x, c)], starts=[0], ends=[0])


def broadcast(operator: Callable[..., Variable]) -> FreeStep:
    """A step with an operand that is repeated along all dimensions but one, or along one."""

    def step(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
        at = axis(x, c)
        if c > 0:
            return operator(x, layers.reduce_mean(like(x, y), dim=at, keep_dim=True))
        return operator(x, fitted(y, [x.shape[at]], x.dtype.value), axis=at)

    return step


def branch(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    other = like(x, y)
    is_taken = layers.less_than(layers.fill_constant([1], "float32", c), layers.fill_constant([1], "float32", 0.6))
    return layers.cond(is_taken, lambda: layers.scale(x, c), lambda: layers.elementwise_add(x, other))


def loop(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    i, n = (layers.fill_constant([1], "int64", number) for number in (0, 1 + int(abs(c))))
    step = like(x, y)

    def body(i: Variable, h: Variable) -> list[Variable]:
        return [layers.increment(i, in_place=False), layers.elementwise_add(layers.tanh(h), step)]

    return layers.while_loop(lambda i, h: layers.less_than(i, n), body, [i, layers.scale(x, 1.0)])[1]


def recurrent(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    """The rows of `x` as the steps of a network, which reads `y` from outside."""
    if len(x.shape) < 2 or not x.dtype.is_floating:
        raise Unfit("no rows")
    outer = fitted(y, x.shape[1:], x.dtype.value)
    network = layers.StaticRNN()
    with network.step():
        word, memory = network.step_input(x), network.memory(init=outer)
        made = layers.tanh(layers.elementwise_add(layers.elementwise_add(word, memory), layers.scale(outer, c)))
        network.update_memory(memory, made)
        network.step_output(made)
    return network()


def overwrite(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    """Write to a variable that has a value: neither fed nor a parameter."""
    if k.trains or y.persistable or y.is_data:
        raise Unfit("no variable to write to")
    layers.assign(like(y, x), output=y)
    return y


FREE: dict[str, FreeStep] = {
    "expand": expand,
    "expand_ones": expand_ones,
    "expand_as": lambda k, x, y, c: layers.expand_as(layers.reduce_max(x, dim=axis(x, c), keep_dim=True), x),
    "flat": lambda k, x, y, c: layers.reshape(x, [-1]),
    "column": lambda k, x, y, c: layers.reshape(x, [-1, 1]),
    "row": lambda k, x, y, c: layers.reshape(x, [1, -1]),
    "flat_in_place": lambda k, x, y, c: layers.reshape(layers.scale(x, 1.0), [-1], inplace=True),
    "flat_tanh": lambda k, x, y, c: layers.reshape(x, [-1], act="tanh"),
    "transpose": lambda k, x, y, c: layers.transpose(x, list(np.roll(range(len(x.shape)), 1 + axis(x, c)))),
    "unsqueeze": lambda k, x, y, c: layers.unsqueeze(x, [axis(x, c)]),
    "squeeze": lambda k, x, y, c: layers.squeeze(x, []),
    "flatten": lambda k, x, y, c: layers.flatten(x, axis=axis(x, c)),
    "cut": cut,
    "nothing": nothing,
    "strided": lambda k, x, y, c: layers.strided_slice(
        x, axes=[axis(x, c)], starts=[0], ends=[x.shape[axis(x, c)]], strides=[2]
    ),
    "reverse": lambda k, x, y, c: layers.reverse(x, [axis(x, c)]),
    "concat": lambda k, x, y, c: layers.concat([x, like(x, y), x], axis=axis(x, c)),
    "split": split,
    "stack": lambda k, x, y, c: layers.stack([x, like(x, y)], axis=axis(x, c)),
    "unstack": lambda k, x, y, c: layers.unstack(small(x, 3), axis=0),
    "pad": lambda k, x, y, c: layers.pad(x, [1, 0] * len(x.shape), pad_value=c),
    "sum": lambda k, x, y, c: layers.reduce_sum(x, dim=axis(x, c), keep_dim=c > 0),
    "mean": lambda k, x, y, c: layers.reduce_mean(x, dim=axis(x, c), keep_dim=c > 0),
    "max": lambda k, x, y, c: layers.reduce_max(x, dim=axis(x, c), keep_dim=c > 0),
    "min": lambda k, x, y, c: layers.reduce_min(x, dim=axis(x, c), keep_dim=c > 0),
    "prod": lambda k, x, y, c: layers.reduce_prod(layers.tanh(x), dim=axis(x, c), keep_dim=c > 0),
    "sum_of_all": lambda k, x, y, c: layers.reduce_sum(x),
    "cumsum": lambda k, x, y, c: layers.cumsum(x, axis=axis(x, c), exclusive=c > 1, reverse=c < 0),
    "argmax": lambda k, x, y, c: layers.argmax(x, axis=axis(x, c)),
    "argsort": lambda k, x, y, c: layers.argsort(x, axis=axis(x, c)),
    "topk": lambda k, x, y, c: layers.topk(x, k=1),
    "to_float16": lambda k, x, y, c: layers.cast(layers.clip(x, -99.0, 99.0), "float16"),
    "to_float32": lambda k, x, y, c: layers.cast(x, "float32"),
    "to_float64": lambda k, x, y, c: layers.cast(x, "float64"),
    "to_int32": lambda k, x, y, c: layers.cast(layers.clip(x, -99.0, 99.0), "int32"),
    "to_int64": lambda k, x, y, c: layers.cast(layers.clip(x, -99.0, 99.0), "int64"),
    "to_bool": lambda k, x, y, c: layers.cast(x, "bool"),
    "free_add": lambda k, x, y, c: layers.elementwise_add(x, like(x, y)),
    "free_sub": lambda k, x, y, c: layers.elementwise_sub(x, like(x, y)),
    "free_mul": lambda k, x, y, c: layers.elementwise_mul(x, like(x, y)),
    "free_max": lambda k, x, y, c: layers.elementwise_max(x, like(x, y)),
    "broadcast_add": broadcast(layers.elementwise_add),
    "broadcast_mul": broadcast(layers.elementwise_mul),
    "broadcast_sub": broadcast(layers.elementwise_sub),
    "broadcast_min": broadcast(layers.elementwise_min),
    "less": lambda k, x, y, c: layers.cast(layers.less_than(x, like(x, y)), "float32"),
    "where": lambda k, x, y, c: layers.where(layers.less_than(x, like(x, y))),
    "free_scale": lambda k, x, y, c: layers.scale(x, scale=c, bias=0.5),
    "scale_in_place": lambda k, x, y, c: layers.increment(layers.reduce_sum(x), value=c),
    "free_tanh": lambda k, x, y, c: layers.tanh(x),
    "free_relu": lambda k, x, y, c: layers.relu(x),
    "free_softmax": lambda k, x, y, c: layers.softmax(x),
    "free_clip": lambda k, x, y, c: layers.clip(x, -abs(c), 0.7),
    "free_clip_by_norm": lambda k, x, y, c: layers.clip_by_norm(x, abs(c)),
    "normalize": lambda k, x, y, c: layers.l2_normalize(x, axis=axis(x, c)),
    "layer_norm": lambda k, x, y, c: layers.layer_norm(x, scale=False, shift=False, begin_norm_axis=1),
    "matmul": lambda k, x, y, c: layers.matmul(matrix(x), small(like(x, y)), transpose_x=True)
    if c > 1
    else layers.matmul(small(x), small(like(x, y)), transpose_y=True, alpha=c),
    "fc": lambda k, x, y, c: k.linear(layers.cast(matrix(x), k.dtype), size=4),
    "conv": lambda k, x, y, c: layers.conv2d(images(k, x), 3, 3, param_attr=k.attr(3, 2, 3, 3), bias_attr=False),
    "pool": lambda k, x, y, c: layers.pool2d(images(k, x), 2, "max" if c > 0 else "avg", 2),
    "assign": lambda k, x, y, c: layers.assign(x),
    "overwrite": overwrite,
    "branch": branch,
    "loop": loop,
    "recurrent": recurrent,
    "sums": lambda k, x, y, c: layers.sums([x, like(x, y), like(x, y)]),
    "gather": lambda k, x, y, c: layers.gather(x, layers.fill_constant([2 if x.shape[0] else 0], "int64", 0)),
    "zeros": lambda k, x, y, c: layers.zeros_like(x),
    "constant": lambda k, x, y, c: layers.fill_constant([2, 3], "float32", c),
}  # fmt: skip
"""Functions of two values and a number that append a step, by name."""


def _of_sample(sample: Sample) -> FreeStep:
    """The operator of a sample, on its inputs with something small of a value added to the first floating one."""

    def step(k: Sources, x: Variable, y: Variable, c: float) -> list[Variable]:
        block = layers.tanh(fitted(x, [1], "float32")).block
        dtype = x.dtype.value if x.dtype.value in sample.dtypes else sample.dtypes[-1]
        inputs, is_pure = dict[str, list[Variable]](), True
        for slot, arrays in sample.inputs_as(dtype).items():
            inputs[slot] = []
            for array in arrays:
                var = k.fed(array)
                if is_pure and array.dtype.kind == "f" and array.size:
                    change = layers.scale(layers.tanh(fitted(x, array.shape, str(array.dtype))), 1e-3)
                    var, is_pure = layers.elementwise_add(change, var), False
                inputs[slot].append(var)
        outputs = {
            slot: [block.create_var(name=k.name(slot)) for _ in range(count)]
            for slot, count in sample.output_counts(inputs).items()
        }
        return sample.append_to(block, inputs, outputs, sample.attrs)

    return step


OF_SAMPLES: dict[str, FreeStep] = {
    f"{sample.op} {number}": _of_sample(sample)
    for number, sample in enumerate(SAMPLES)
    if not sample.is_random and not sample.attrs.get("is_sparse")  # what is computed takes no gradient of rows
}
"""Steps that apply a sample, by operator and number of the sample."""
