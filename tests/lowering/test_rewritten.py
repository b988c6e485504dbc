"""A plan for other sizes of a feed equals the plan that is made from nothing, and rewrites only if it must."""

from random import Random

import numpy as np
import pytest
from plans_by_size import from_nothing, is_rewritten_again, planned, text

import minigraph as fluid
from minigraph import layers, unique_name
from minigraph.errors import MinigraphError
from minigraph.executor import plan as plans
from minigraph.passes import LOWERING, Pass
from minigraph.passes.base import Pipeline
from minigraph.rewrite.random_programs.drawing import Hints, draw
from minigraph.types import TensorType, VarKind, parse_type


def types_of(drawn, rows):
    inputs = {
        name: var
        for name, var in drawn.program.global_block().vars.items()
        if var.is_data and var.tensor_type is not None and var.kind is VarKind.LOD_TENSOR
    }
    shapes = {name: tuple(rows if size < 0 else size for size in var.shape) for name, var in inputs.items()}
    shapes |= {name: array.shape for name, array in drawn.fixed.items() if name in inputs}
    return {name: TensorType(inputs[name].dtype, shapes[name]) for name in sorted(inputs)}


@pytest.mark.laws
@pytest.mark.parametrize("chunk", range(10))
def test_plans_of_random_programs_equal_those_made_from_nothing(chunk):
    made = reused = 0
    for seed in range(20 * chunk, 20 * chunk + 20):
        random = Random(seed)
        drawn = draw(random, Hints(trains=random.random() < 0.4))
        fetch = list(drawn.program.roots)
        first = planned(drawn.program, types_of(drawn, drawn.rows), fetch)
        assert text(first) == text(from_nothing(drawn.program, types_of(drawn, drawn.rows), fetch)), seed
        if isinstance(first, MinigraphError) or first.source.rewritten is None:
            continue
        for rows in (random.randrange(1, 8), random.choice([8, 17, 64, 300])):
            types = types_of(drawn, rows)
            second = planned(drawn.program, types, fetch, first)
            assert text(second) == text(from_nothing(drawn.program, types, fetch)), (seed, rows)
            made += 1
            reused += isinstance(second, plans.Plan) and not is_rewritten_again(second, first)
    assert reused >= made // 3


def classifier(width=64, classes=10, rate=0.1):
    with fluid.program_guard(fluid.Program(), fluid.Program()), unique_name.guard():
        x, label = fluid.data("x", [None, 32]), fluid.data("label", [None, 1], "int64")
        hidden = layers.fc(layers.fc(x, width, act="relu"), width, act="tanh")
        loss = layers.mean(layers.cross_entropy(layers.softmax(layers.fc(hidden, classes)), label))
        fluid.optimizer.Adam(rate, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)).minimize(loss)
        return fluid.default_main_program(), fluid.default_startup_program(), loss.name


def fed(batch):
    return {"label": parse_type(f"int64[{batch},1]"), "x": parse_type(f"float32[{batch},32]")}


def attention(heads=4, width=32):
    with fluid.program_guard(fluid.Program(), fluid.Program()), unique_name.guard():
        x = fluid.data("x", [None, None, width])
        q, k, v = (
            layers.transpose(layers.reshape(layers.fc(x, width, 2), [0, 0, heads, -1]), [0, 2, 1, 3]) for _ in range(3)
        )
        mixed = layers.matmul(layers.softmax(layers.matmul(q, k, transpose_y=True, alpha=0.3)), v)
        y = layers.fc(layers.reshape(layers.transpose(mixed, [0, 2, 1, 3]), [0, 0, width]), width, 2)
        loss = layers.reduce_mean(layers.square(y))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return fluid.default_main_program(), loss.name


def convolutions():
    with fluid.program_guard(fluid.Program(), fluid.Program()), unique_name.guard():
        image, label = fluid.data("image", [None, 3, 8, 8]), fluid.data("label", [None, 1], "int64")
        x = layers.batch_norm(layers.conv2d(image, 8, 3, padding=1, bias_attr=False), act="relu")
        x = layers.pool2d(x, 2, "max", 2)
        rate = layers.piecewise_decay([10, 20], [0.1, 0.01, 0.001])  # a sub-block for each rate
        loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(x, 10), label))
        fluid.optimizer.Momentum(rate, 0.9).minimize(loss)
        return fluid.default_main_program(), loss.name


def sub_blocks():
    with fluid.program_guard(fluid.Program(), fluid.Program()), unique_name.guard():
        x = fluid.data("x", [None, 4])
        i, most = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
        y = layers.scale(x, 2.0)
        is_small = layers.less_than(i, most)
        loop = layers.While(is_small)
        with loop.block():
            layers.assign(layers.tanh(y), y)
            layers.increment(i)
            layers.less_than(i, most, cond=is_small)
        z = layers.cond(layers.reduce_sum(y) > 0, lambda: y * 2.0, lambda: y)
        return fluid.default_main_program(), z.name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (lambda: classifier()[::2], {"label": ("int64", "b,1"), "x": ("float32", "b,32")}),
        (attention, {"x": ("float32", "b,t,32")}),
        (convolutions, {"image": ("float32", "b,3,8,8"), "label": ("int64", "b,1")}),
        (sub_blocks, {"x": ("float32", "b,4")}),
    ],
)
def test_plans_equal_those_made_from_nothing_at_every_size(build, shapes):
    program, fetch = build()

    def types(batch, length):
        known = {"b": batch, "t": length}
        return {
            name: parse_type(f"{dtype}[{','.join(str(known.get(size, size)) for size in shape.split(','))}]")
            for name, (dtype, shape) in shapes.items()
        }

    plan, reused = None, 0
    for batch, length in [(7, 5), (7, 6), (8, 6), (9, 9), (64, 5), (65, 12), (32, 10), (1, 1), (3, 1), (130, 40)]:
        last, plan = plan, planned(program, types(batch, length), [fetch], plan)
        assert text(plan) == text(from_nothing(program, types(batch, length), [fetch]))
        reused += last is not None and not is_rewritten_again(plan, last)
    assert reused >= 2


def test_a_batch_of_the_size_of_a_layer_says_nothing_of_the_layer():
    program, _, loss = classifier(width=64)
    first = planned(program, fed(64), [loss])
    assert not is_rewritten_again(planned(program, fed(63), [loss], first), first)


def test_a_pass_that_decides_by_size_runs_again():
    with fluid.program_guard(fluid.Program()), unique_name.guard():
        y = layers.exp(layers.tanh(fluid.data("x", [None, 16])))  # one operator from 1,024 elements on
    program = y.block.program
    types = [{"x": parse_type(f"float32[{batch},16]")} for batch in (63, 50, 64)]
    few, fewer, many = (planned(program, each, [y.name]) for each in types)
    assert not is_rewritten_again(planned(program, types[1], [y.name], few), few)
    again = planned(program, types[2], [y.name], few)
    assert is_rewritten_again(again, few)
    assert text(again) == text(many)
    assert [len(plan.steps.steps) for plan in (few, fewer, again)] == [2, 2, 1]


def test_sizes_that_were_equal_must_be_equal_again():
    with fluid.program_guard(fluid.Program()):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 4])
        z = layers.elementwise_add(x, y)

    def types(*batches):
        return {name: parse_type(f"float32[{batch},4]") for name, batch in zip("xy", batches, strict=True)}

    program = z.block.program
    first = planned(program, types(5, 5), [z.name])
    assert not is_rewritten_again(planned(program, types(6, 6), [z.name], first), first)
    assert "do not broadcast" in str(planned(program, types(6, 7), [z.name], first))


def test_another_feed_begins_anew():
    with fluid.program_guard(fluid.Program()), unique_name.guard():
        y = layers.tanh(layers.relu(fluid.data("x", [None, 4])))
    types = {"x": parse_type("float32[6,4]")}
    first = planned(y.block.program, types, [y.name])
    second = planned(y.block.program, {**types, "relu_0.tmp_0": parse_type("float32[6,4]")}, [y.name], first)
    assert is_rewritten_again(second, first)
    assert "x is not fed" in str(planned(y.block.program, {}, [y.name], first))


def test_sizes_that_do_not_fit_are_reported_as_numbers():
    with fluid.program_guard(fluid.Program()):
        y = layers.reshape(fluid.data("x", [None, 4]), [-1, 8])
    first = planned(y.block.program, {"x": parse_type("float32[6,4]")}, [y.name])
    error = planned(y.block.program, {"x": parse_type("float32[7,4]")}, [y.name], first)
    assert isinstance(error, MinigraphError)
    assert "float32[7, 4]" in str(error)


def test_passes_of_a_users_own_see_numbers():
    seen = []

    class Look(Pass):
        def apply(self, program):
            seen.append(program.global_block().var("x").shape)
            return False

    program, _, loss = classifier()
    executor = fluid.Executor(passes=Pipeline((Look(), *LOWERING)))
    arrays = [{"x": np.zeros((n, 32), "float32"), "label": np.zeros((n, 1), "int64")} for n in (4, 6)]
    for each in arrays:
        executor.plan_for(program, each, [loss])
    assert seen == [(4, 32), (6, 32)]


@pytest.mark.slow
def test_runs_with_several_sizes_agree_with_new_executors():
    program, startup, loss = classifier()

    def losses(make):
        scope, random = fluid.Scope(), np.random.default_rng(0)
        fluid.Executor().run(startup, scope=scope)
        for name in sorted(scope.local_var_names()):
            tensor = scope.var(name).get_tensor()
            if np.asarray(tensor).dtype == np.float32 and "w_0" in name and "moment" not in name and "pow" not in name:
                tensor.set(random.standard_normal(np.asarray(tensor).shape, np.float32))
        found = []
        for batch in (16, 16, 5, 16, 30, 5):
            feed = {
                "x": random.standard_normal((batch, 32), np.float32), "label": random.integers(0, 10, (batch, 1)),
            }  # fmt: skip
            found += make().run(program, feed=feed, fetch_list=[loss], scope=scope)
        return [each.tobytes() for each in found]

    executor = fluid.Executor()
    assert losses(lambda: executor) == losses(fluid.Executor)


def test_plans_share_what_keeps_its_size():
    program, _, loss = classifier()
    first = planned(program, fed(8), [loss])
    second = planned(program, fed(9), [loss], first)
    assert second.source.own is None  # nobody has asked for the program
    same = [a for a, b in zip(first.steps.steps, second.steps.steps, strict=True) if a is b]
    assert {"adam", "merged_adam"} & {step.op.type for step in same}
    assert second.buffers.flat is first.buffers.flat
    rows = zip(first.compiled.instructions.rows, second.compiled.instructions.rows, strict=True)
    assert all(a.arguments is b.arguments and (a.function is b.function or a.step is not b.step) for a, b in rows)


@pytest.mark.slow
def test_values_get_and_lose_places_in_the_block():
    program, _, loss = classifier()
    plan, places = None, set()
    for batch in (200, 600, 400, 1100, 200):
        last, plan = plan, planned(program, fed(batch), [loss], plan)
        assert text(plan) == text(from_nothing(program, fed(batch), [loss]))
        places.add(len(plan.buffers.layout.places))
        assert last is None or plan.buffers.flat is last.buffers.flat
    assert len(places) == 2


def test_state_of_an_open_size_has_its_steps_made_anew():
    with fluid.program_guard(fluid.Program(), fluid.Program()), unique_name.guard():
        x = fluid.data("x", [None])
        kept = x.block.create_var(name="kept", shape=[-1], dtype="float32", persistable=True)
        layers.assign(layers.elementwise_add(x, layers.scale(x, 2.0)), kept)
    types = {batch: {"x": parse_type(f"float32[{batch}]")} for batch in (5, 4, 600)}
    plan = None
    for batch in types:
        plan = planned(x.block.program, types[batch], ["kept"], plan)
        assert text(plan) == text(from_nothing(x.block.program, types[batch], ["kept"]))


def test_functions_are_chosen_for_the_sizes_of_the_run():
    with fluid.program_guard(fluid.Program()), unique_name.guard():
        x, w = fluid.data("x", [None, 8]), fluid.data("w", [4, 8])
        fetch = [layers.relu(x).name, layers.relu(w).name, layers.tanh(layers.reduce_sum(x, 1)).name]
        program = x.block.program
    types = {rows: {"w": parse_type("float32[4,8]"), "x": parse_type(f"float32[{rows},8]")} for rows in (5, 4, 3, 600)}
    plan = None
    for rows in types:
        plan = planned(program, types[rows], fetch, plan)
        assert text(plan) == text(from_nothing(program, types[rows], fetch))


def test_errors_tell_the_sizes_of_the_run():
    program, startup, loss = classifier()
    executor, scope = fluid.Executor(jit=False), fluid.Scope()
    executor.run(startup, scope=scope)
    for batch in (4, 5):
        feed = {"x": np.zeros((batch, 32), "float32"), "label": np.zeros((batch, 1), "int64")}
        executor.run(program, feed=feed, fetch_list=[loss], scope=scope)
    feed["label"][:] = 10
    with pytest.raises(MinigraphError, match=r"label: int64\[5, 1\]"):
        executor.run(program, feed=feed, fetch_list=[loss], scope=scope)
