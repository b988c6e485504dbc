"""Programs of one of several ranks, made by the collective transpilers of Paddle 1.8.5.

A case is a network with its optimizer, a transpiler and its number of rings. Running this file with Paddle,
``python golden_collective.py``, writes ``collective.json`` beside it; it is therefore written for Python 3.7, and the
test hands it minigraph instead. Paddle for processors lacks ``c_gen_nccl_id``, which the recording leaves out.
"""

import json
from pathlib import Path

FILE = Path(__file__).parent / "collective.json"
ENDPOINTS = ["127.0.0.1:6170", "127.0.0.1:6171", "127.0.0.1:6172", "127.0.0.1:6173"]
ATTRS = ("op_role", "op_role_var", "ring_id", "root", "scale", "nranks", "rank")


def regression(fluid):
    x, y = fluid.data("x", [None, 13]), fluid.data("y", [None, 1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.1).minimize(loss)


def clipped(fluid):
    x, y = fluid.data("x", [None, 20]), fluid.data("y", [None, 1], "int64")
    hidden = fluid.layers.fc(x, 16, act="tanh")
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(hidden, 4), y))
    decay = fluid.regularizer.L2Decay(1e-3)
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    fluid.optimizer.Momentum(0.1, 0.9, regularization=decay, grad_clip=clip).minimize(loss)


def lenet(fluid):
    x, y = fluid.data("x", [None, 1, 28, 28]), fluid.data("y", [None, 1], "int64")
    hidden = fluid.nets.simple_img_conv_pool(x, 6, 5, 2, 2, act="relu")
    hidden = fluid.nets.simple_img_conv_pool(hidden, 16, 5, 2, 2, act="relu")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, 10, act="softmax"), y))
    fluid.optimizer.Adam(1e-3, grad_clip=fluid.clip.GradientClipByValue(1.0)).minimize(loss)


def normalized(fluid):
    x, y = fluid.data("x", [None, 3, 8, 8]), fluid.data("y", [None, 1], "int64")
    hidden = fluid.layers.batch_norm(fluid.layers.conv2d(x, 4, 3, bias_attr=False), act="relu")
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(hidden, 5), y))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)


def shared(fluid):
    x, y = fluid.data("x", [None, 6]), fluid.data("y", [None, 6])
    weight = fluid.ParamAttr("shared")
    hidden = fluid.layers.fc(fluid.layers.fc(x, 6, param_attr=weight, act="tanh"), 6, param_attr=weight)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(hidden, y))
    fluid.optimizer.Adagrad(0.1, grad_clip=fluid.clip.GradientClipByNorm(1.0)).minimize(loss)


def scheduled(fluid):
    words, y = fluid.data("words", [None, 5], "int64"), fluid.data("y", [None, 1], "int64")
    hidden = fluid.layers.reduce_mean(fluid.embedding(words, [50, 8]), 1)
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(hidden, 3), y))
    rate = fluid.layers.exponential_decay(0.1, 100, 0.9)
    fluid.optimizer.SGD(rate).minimize(loss)


NETWORKS = [regression, clipped, lenet, normalized, shared, scheduled]
CASES = {
    "-".join([network.__name__, transpiler, str(rings)]): (network, transpiler, rings)
    for network in NETWORKS
    for transpiler, rings in (("GradAllReduce", 1), ("GradAllReduce", 2), ("LocalSGD", 2))
}


def build(fluid, collective, name):
    """The operators of a case's programs: type, inputs, outputs, attributes."""
    network, transpiler, rings = CASES[name]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        network(fluid)
        made = getattr(collective, transpiler)(rings)
        made.transpile(startup, main, 1, ENDPOINTS, ENDPOINTS[1], False)
    return {"main": operators(main), "startup": operators(startup)}


def operators(program):
    return [
        [
            op.type,
            {slot: list(op.input(slot)) for slot in sorted(op.input_names) if op.input(slot)},
            {slot: list(op.output(slot)) for slot in sorted(op.output_names) if op.output(slot)},
            {name: op.attr(name) for name in ATTRS if op.has_attr(name) and op.attr(name) != []},
        ]
        for op in program.global_block().ops
    ]


def record():
    import paddle.fluid as fluid
    from paddle.fluid.transpiler import collective

    def init_without_id(self, program, current_endpoint, endpoints, rank, ring_id, wait_port):
        block = program.global_block()
        kind = fluid.core.VarDesc.VarType.RAW
        name = block.create_var(name=fluid.unique_name.generate("nccl_id"), persistable=True, type=kind)
        attrs = {"nranks": len(endpoints), "rank": rank, "ring_id": ring_id, "op_role": 0}
        block.append_op(type="c_comm_init", inputs={"X": name}, outputs={}, attrs=attrs)

    collective.Collective._init_communicator = init_without_id
    cases = {name: build(fluid, collective, name) for name in CASES}
    lines = [f"{json.dumps(name)}: {json.dumps(cases[name])}" for name in sorted(cases)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    record()
