"""How much longer each stage from building a program to running it takes for four times the operators.

``python stage_times.py many_operators 500`` prints it for programs of 500 and 2,000 operators, as JSON. A process of
its own has no other threads and no memory in pieces, both of which show in times of less than a millisecond.
"""

import json
import math
import sys
import time

import numpy as np
from growth import ratios

import minigraph as fluid
from minigraph import layers
from minigraph.lowering.codegen import generate
from minigraph.lowering.flat_buffers import form_flat_buffers
from minigraph.lowering.memory_plan import plan_buffers
from minigraph.lowering.prune import prune
from minigraph.lowering.steps import concretize, to_steps
from minigraph.passes import LOWERING
from minigraph.runtime.place import CPUPlace
from minigraph.support.gc_pause import without_collector
from minigraph.types import DType, TensorType

FEED = {"x": TensorType(DType.FP32, (2, 4))}
OTHER = np.zeros(2**26, np.uint8)
"""Longer than the caches: each stage begins without its program there, else the small program is at an advantage."""


def data():
    x = fluid.data("x", [None, 4])
    x.stop_gradient = False
    return x


def many_operators(count):
    h = x = data()
    for _ in range(count // 6):
        h = layers.tanh(layers.scale(layers.elementwise_add(h, x), 0.5))
    return h


def many_parameters(count):
    h = data()
    for _ in range(count // 12):
        h = layers.fc(h, 4, act="tanh")
    return h


def one_weight(count):
    h, attrs = data(), {"param_attr": fluid.ParamAttr("w"), "bias_attr": fluid.ParamAttr("b")}
    for _ in range(count // 8):
        h = layers.fc(h, 4, act="tanh", **attrs)
    return h


def many_branches(count):
    h = data()
    limit = layers.fill_constant([1], "float32", 0.5)
    for _ in range(count // 10):
        condition = layers.less_than(layers.reduce_sum(h), limit)
        h = layers.cond(condition, lambda h=h: layers.tanh(h), lambda h=h: layers.scale(h, 0.5))
    return h


def many_loops(count):
    h, limit = data(), layers.fill_constant([1], "float32", 2.0)
    for _ in range(count // 20):
        i = layers.fill_constant([1], "float32", 0.0)
        i.stop_gradient = False
        _, h = layers.while_loop(
            lambda i, h: layers.less_than(i, limit),
            lambda i, h: [layers.scale(i, 1.0, bias=1.0), layers.tanh(h)],
            [i, h],
        )
    return h


def a_long_block(count):
    x = data()

    def inside():
        h = x
        for _ in range(count // 4):
            h = layers.tanh(layers.scale(h, 0.5))
        return h

    limit = layers.fill_constant([1], "float32", 0.5)
    return layers.cond(layers.less_than(layers.reduce_sum(x), limit), inside, lambda: layers.scale(x, 0.5))


def optimizer(make):
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    return fluid.optimizer.Adam(0.1, grad_clip=clip) if make in (many_parameters, one_weight) else None


def seconds(function, *arguments):
    """The result, and the processor time that it takes."""
    np.invert(OTHER, out=OTHER)
    start = time.process_time()
    result = function(*arguments)
    return result, time.process_time() - start


def calls(function, *arguments):
    """The result, and the number of calls of Python and C functions that it takes."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = function(*arguments)
    finally:
        sys.setprofile(before)
    return result, count


@without_collector
def costs(measure, make, count):
    """What each stage takes by `measure`."""
    taken = {}

    def timed(stage, function, *arguments):
        result, cost = measure(function, *arguments)
        taken[stage] = min(cost, taken.get(stage, math.inf))
        return result

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = layers.mean(timed("build", make, count))
        update = optimizer(make)
        timed("differentiate", fluid.append_backward if update is None else update.minimize, loss)
    timed("clone", main.clone)
    program = timed("prune", prune, main, list(FEED), [loss.name])
    timed("concretize", concretize, program, FEED)
    for each in LOWERING:
        timed(each.name, each.apply, program)
    steps = timed("to_steps", to_steps, program, list(FEED), [loss.name], "cpu")
    flat = timed("form_flat_buffers", form_flat_buffers, steps)
    buffers = timed("plan_buffers", plan_buffers, steps, flat)
    compiled = timed("assemble", generate, steps, buffers, CPUPlace())
    timed("compile", compiled.listing)
    executor, scope, arrays = fluid.Executor(jit=False), fluid.Scope(), {"x": np.ones((2, 4), "float32")}
    others = {"x": np.ones((3, 4), "float32")}
    executor.run(startup, scope=scope)
    for run in ("first run", "second run", *["later run"] * 4):
        timed(run, lambda: executor.run(main, arrays, [loss], scope=scope))
    timed("plan for another batch size", executor.plan_for, main, others, [loss])
    return taken


MAKERS = {
    make.__name__: make
    for make in (many_operators, many_parameters, one_weight, many_branches, many_loops, a_long_block)
}


if __name__ == "__main__":
    make = MAKERS[sys.argv[1]]
    # Where nothing is to be done the clock says nothing.
    print(
        json.dumps(ratios(lambda count: costs(seconds, make, count), int(sys.argv[2]), factor=4, limit=6, least=2e-3))
    )
