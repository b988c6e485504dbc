"""Fragments that some passes look for, and that random programs hold too rarely: for ``rewrite.check(plant=...)``."""

from dataclasses import fields, replace

import numpy as np
from one_type import one_type_for_each_name

from minigraph import layers
from minigraph.ir.default_programs import default_main_program
from minigraph.param_attr import ParamAttr
from minigraph.passes import IN_ORDER


def _matrix(pick, *shape):
    """A matrix that depends on an earlier value and on a parameter."""
    factor = layers.reshape(layers.reduce_mean(layers.cast(pick(), "float32")), [1])
    return layers.create_parameter(list(shape), "float32") * factor


def _rows(pick, whole, step):
    """The rows of a matrix, cut apart in one of the ways that programs do it."""
    count = whole.shape[0] // step
    if pick.choose.random() < 0.5:
        return layers.split(whole, count, dim=0)
    return [layers.slice(whole, [0], [step * i], [step * (i + 1)]) for i in range(count)]


def network(pick):
    """A recurrent network of three or four steps."""
    inputs, state, bias = (layers.create_parameter(shape, "float32") for shape in ([3, 4], [4, 4], [4]))
    hidden = _matrix(pick, 2, 4)
    multiply = pick.choose.choice([layers.mul, layers.matmul])
    for part in _rows(pick, _matrix(pick, pick.choose.choice((6, 8)), 3), 2):
        hidden = layers.tanh(multiply(part, inputs) + multiply(hidden, state) + bias)
    return [hidden]


def frozen_network(pick):
    """A recurrent network whose weight is not trained."""
    hidden = _matrix(pick, 2, 4)
    weight = layers.create_parameter([4, 4], "float32", attr=ParamAttr(trainable=False))
    for _ in range(3):
        hidden = layers.tanh(layers.mul(hidden, weight))
    return [hidden]


def joined_network(pick):
    """A recurrent network that joins each input with the state."""
    weight, hidden = layers.create_parameter([7, 4], "float32"), _matrix(pick, 2, 4)
    for part in _rows(pick, _matrix(pick, 6, 3), 2):
        hidden = layers.tanh(layers.mul(layers.concat([part, hidden], axis=1), weight))
    return [hidden]


def transposed_network(pick):
    """A recurrent network whose weight is read transposed."""
    weight, hidden = layers.create_parameter([4, 4], "float32"), _matrix(pick, 2, 4)
    for _ in range(3):
        hidden = layers.tanh(layers.matmul(hidden, weight, transpose_y=True))
    return [hidden]


def losses(pick):
    """Losses of a classifier, of which a training takes the mean."""
    x, label = _matrix(pick, 4, 3), layers.fill_constant([4, 1], "int64", pick.choose.choice((0, 2)))
    if pick.choose.random() < 0.5:
        return [layers.softmax_with_cross_entropy(x, label)]
    return [layers.cross_entropy(layers.softmax(x), label)]


def entropy(pick):
    """The cross entropy with classes that are written as ones and zeros."""
    x, hot = _matrix(pick, 4, 3), layers.one_hot(layers.fill_constant([4, 1], "int64", 1), 3)
    log_p = layers.log(layers.softmax(x)) if pick.choose.random() < 0.5 else layers.log_softmax(x)
    return [layers.scale(layers.reduce_sum(hot * log_p, dim=-1, keep_dim=True), -1.0)]


def picks(pick):
    """The element of each row that a label names."""
    x, label = _matrix(pick, 4, 3), layers.fill_constant([4], "int64", pick.choose.choice((0, 2)))
    rows = layers.assign(np.arange(4))
    if pick.choose.random() < 0.5:
        index = layers.stack([rows, label], axis=1)
    else:
        index = layers.concat([layers.reshape(each, [4, 1]) for each in (rows, label)], axis=1)
    return [layers.gather_nd(layers.tanh(x), index)]


def multiples(pick):
    """A sum or mean of multiples, or of products of them."""
    x, y = (_matrix(pick, 4, 3) for _ in range(2))
    added = layers.scale(x, pick.choose.choice((0.5, -3.0)))
    if pick.choose.random() < 0.5:
        added = pick.choose.choice([added * y, y * added])
    reduce = pick.choose.choice([layers.mean, layers.reduce_sum, lambda z: layers.reduce_mean(z, dim=1)])
    return [layers.scale(reduce(added), 2.0)]


def slices(pick):
    """All slices of a matrix."""
    x = _matrix(pick, 4, 6)
    return [layers.tanh(layers.slice(x, [1], [2 * i], [2 * i + 2])) for i in range(3)]


def _count(number):
    return layers.fill_constant([1], "int64", number)


def loops(pick):
    """A loop that keeps an old state, and one that reads rows."""
    rows, count = _matrix(pick, 3, 4), pick.choose.choice((1, 3))
    state, old = layers.assign(_matrix(pick, 2, 4)), layers.assign(_matrix(pick, 2, 4))

    def body(i, state, old):
        row = layers.slice(rows, [0], [i], [i + 1])
        return [i + 1, layers.tanh(state + row), state * 0.5 + old]

    _, state, old = layers.while_loop(lambda i, *_: i < count, body, [_count(0), state, old])
    return [state, old]


def branches(pick):
    """Cases of which one writes a number, and a choice between two numbers."""
    number = layers.reshape(layers.reduce_mean(_matrix(pick, 2, 2)), [1])
    limits = [layers.fill_constant([1], "float32", limit) for limit in (0.0, 0.1)]
    chosen = layers.create_global_var([1], 0.5, "float32", persistable=pick.choose.random() < 0.5)
    if pick.choose.random() < 0.5:
        layers.assign(number, chosen)
    with layers.Switch() as switch:
        for limit in limits[: pick.choose.choice((1, 2))]:
            with switch.case(number < limit):
                layers.assign(layers.tanh(number) * 2.0, chosen)
        if pick.choose.random() < 0.7:
            with switch.default():
                layers.assign(chosen - number, chosen)
    other = layers.cond(number < limits[1], lambda: 0.5 / (number + 2.0), lambda: limits[0])
    other.stop_gradient = True
    return [chosen, other]


def arrays(pick):
    """Elements of an array, of which one is written twice."""
    array, x = layers.create_array("float32"), _matrix(pick, 2, 3)
    for index in (0, pick.choose.choice((0, 1)), 1):
        layers.array_write(layers.tanh(x) * (index + 1.0), _count(index), array)
    return [layers.array_read(array, _count(index)) for index in (0, 1)]


def bounded_slices(pick):
    """Slices whose bounds are constant tensors."""
    x = _matrix(pick, 4, 3)
    return [layers.tanh(layers.slice(x, [0], [_count(i)], [_count(i + 2)])) for i in range(2)]


def square_sums(pick):
    """The sum of all squares of a large tensor."""
    return [layers.reduce_sum(layers.square(layers.expand(_matrix(pick, 2, 3), [100, 100])))]


def units(pick):
    """A unit of a long short-term memory."""
    return list(layers.lstm_unit(_matrix(pick, 2, 3), _matrix(pick, 2, 2), _matrix(pick, 2, 2)))


def gated_units(pick):
    """Two steps of a gated recurrent unit."""
    hidden = _matrix(pick, 2, 3)
    for _ in range(2):
        hidden, _, _ = layers.gru_unit(_matrix(pick, 2, 9), hidden, 9)
    return [hidden]


def grouped_convolutions(pick):
    """Convolutions of the halves of the channels, whose results are joined."""
    x = layers.reshape(_matrix(pick, 4, 8), [1, 2, 4, 4])
    filters = [layers.create_parameter([2, 1, 2, 2], "float32") for _ in range(2)]
    parts = layers.split(x, 2, dim=1)
    return [layers.tanh(layers.concat([_convolved(*each) for each in zip(parts, filters, strict=True)], axis=1))]


def grouped_activations(pick):
    """Activations of convolutions of the halves of the channels, which are joined."""
    x = layers.reshape(_matrix(pick, 4, 8), [1, 2, 4, 4])
    filters = [layers.create_parameter([2, 1, 2, 2], "float32") for _ in range(2)]
    made = [layers.tanh(_convolved(*each)) for each in zip(layers.split(x, 2, dim=1), filters, strict=True)]
    return [layers.concat(made, axis=1)]


def tested_norms(pick):
    """A convolution that a batch norm in a test normalizes."""
    x = layers.reshape(_matrix(pick, 4, 8), [1, 2, 4, 4])
    filters = layers.create_parameter([3, 2, 2, 2], "float32")
    return [layers.batch_norm(_convolved(x, filters, paddings=[12, 12]), act="tanh", is_test=True)]


def _convolved(x, filters, **attrs):
    block = default_main_program().current_block()
    return block.emit("conv2d", Input=x, Filter=filters, **attrs)


def looked_up_rows(pick):
    """Rows of a table, which a training updates."""
    ids = layers.fill_constant([3, 1], "int64", pick.choose.choice((0, 4)))
    return [layers.tanh(layers.embedding(ids, [20, 3]))]


def clips(pick):
    """A clip of two tensors by their norm, which is written out."""
    tensors, limit = [layers.tanh(_matrix(pick, 2, 3)) for _ in range(2)], layers.fill_constant([1], "float32", 0.5)
    norm = layers.sqrt(layers.sums([layers.reduce_sum(layers.square(each)) for each in tensors]))
    if pick.choose.random() < 0.5:
        factor = limit / layers.elementwise_max(norm, limit)
    else:
        factor = layers.elementwise_min(limit / norm, layers.fill_constant([1], "float32", 1.0))
    return [layers.elementwise_mul(each, factor) for each in tensors]


def gates(pick):
    """The gates of a recurrent network, cut from one product."""
    return [layers.tanh(gate) for gate in layers.unstack(layers.reshape(_matrix(pick, 2, 12), [2, 4, 3]), 1)]


def projections(pick):
    """Several projections by one product."""
    weights = layers.concat([layers.create_parameter([3, 2], "float32") for _ in range(3)], axis=1)
    multiply = pick.choose.choice([layers.mul, layers.matmul])
    return [layers.relu(part) for part in layers.split(multiply(_matrix(pick, 4, 3), weights), 3, dim=1)]


def transposed_operand(pick):
    """A product with the transpose of a matrix."""
    a, b = _matrix(pick, 3, 4), _matrix(pick, 3, 2)
    return [pick.choose.choice([layers.matmul, layers.mul])(layers.transpose(a, [1, 0]), b)]


def updates(pick):
    """Updates of parameters that are written out, some of them with momentum."""
    made = []
    for _ in range(pick.choose.choice((1, 2, 3))):
        param = layers.create_parameter([3], "float32")
        velocity = layers.create_global_var([3], 0.0, "float32", persistable=True)
        change = velocity * 0.9 + layers.tanh(param * 0.5)
        if pick.choose.random() < 0.7:
            layers.assign(change, velocity)
            rate = layers.fill_constant([1], "float32", 0.1)
            names = {"Param": param, "Grad": change, "LearningRate": rate}
            if pick.choose.random() < 0.5:
                default_main_program().current_block().append_op("sgd", names, {"ParamOut": param})
                continue
        layers.assign(param - layers.scale(change, 0.1), param)
        made.append(change)
    return made or [_matrix(pick, 2, 2)]


def clipped_state(pick):
    """A clip of state that is written over it."""
    state = layers.create_global_var([3], 0.5, "float32", persistable=True)
    if pick.choose.random() < 0.5:
        clipped = layers.clip_by_norm(state, 0.1)
    else:
        clipped = layers.clip(state, -0.1, 0.1)
    layers.assign(clipped, state)
    return [layers.tanh(state)]


def two_parameters(pick):
    """Two parameters, whose updates become one."""
    return [layers.tanh(layers.create_parameter([3], "float32") * layers.create_parameter([3], "float32"))]


PLANTS = {
    "ComputeBranches": branches, "FindCrossEntropy": entropy, "FindGlobalNorm": clips, "FindGradientDescent": updates,
    "FindMomentum": updates, "FoldBatchNorms": tested_norms, "FuseMeanLoss": losses,
    "FuseSoftmaxCrossEntropy": losses, "GroupConvolutions": grouped_convolutions, "JoinSlices": slices,
    "KeepRows": looked_up_rows, "MergeColumnSums": network, "MergeElementwise": updates,
    "MergeMatmuls": network, "MergeProducts": network, "MoveFactors": multiples, "MoveJoins": grouped_activations,
    "NameElements": arrays,
    "NumberBounds": bounded_slices, "PickElements": picks,
    "ShrinkInUpdate": two_parameters,
    "SumSquares": square_sums, "SplitOperands": joined_network, "SplitProducts": projections, "SplitReshaped": gates,
    "TransposeIntoMatmul": transposed_operand, "TransposeOnce": frozen_network, "TransposeWeights": transposed_network,
    "UnrollLoops": loops, "WriteOutGates": gated_units, "WriteOutUnits": units,
    "WriteWhereAssigned": clipped_state,
}  # fmt: skip
"""Fragments by the name of the pass that looks for them."""


def check_with_plants(check_pass, each, programs, seed=0):
    """Check a pass of executors on programs that hold what it looks for, of few and small values."""
    names = {field.name for field in fields(each)}
    planted = [PLANTS[each.name]] if each.name in PLANTS else []
    # What it looks for is made by those before it.
    before = IN_ORDER[: IN_ORDER.index(each)] if each.name == "ShrinkInUpdate" else ()

    def prepare(program):
        for earlier in before:
            earlier.apply(program)
        one_type_for_each_name(program)

    small = replace(each, least=2) if "least" in names else each
    check_pass(small, programs=programs, seed=seed, plant=planted, prepare=prepare)
