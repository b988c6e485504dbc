"""Programs with sub-blocks: text, copies, verification, rewrites, graph, explanation, diagnosis."""

import numpy as np
import pytest
from both_executors import data, integer, main, numbers, run

import minigraph as fluid
from minigraph import layers
from minigraph.backward import append_backward
from minigraph.errors import OpError, ProgramError, VerifyError
from minigraph.ir import block as blocks
from minigraph.ir import effects as sub_blocks
from minigraph.ir.graph import ancestors_of
from minigraph.ir.verifier import verify

pytestmark = pytest.mark.usefixtures("new_program")


def looping():
    """A program with a nested branch, its gradients and updates."""
    x = fluid.data("x", [None, 3], "float32")
    w = layers.create_parameter([3, 3], "float32", name="w")

    def body(i, h):
        return [i + 1, layers.cond(i < 2, lambda: layers.tanh(layers.mul(h, w)), lambda: layers.dropout(h, 0.5) + 0.0)]

    _, h = layers.while_loop(lambda i, h: i < 3, body, [integer(0), x * 1.0])
    loss = layers.mean(h)
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.01)).minimize(loss)
    return loss


def test_a_program_with_sub_blocks_comes_back_from_its_text_and_its_description():
    looping()
    text = str(main())
    again = fluid.Program.parse(text)
    assert str(again) == text
    assert again.equals(main())
    verify(again)
    assert "block 1 parent 0\n" in text
    assert " parent 0 forward 1\n" in text
    described = fluid.io.deserialize_program(fluid.io.serialize_program(main()))
    for block, twin in zip(main().blocks, described.blocks, strict=True):
        assert (block.parent_idx, block.forward_block_idx) == (twin.parent_idx, twin.forward_block_idx)
        if block.idx:
            assert [op.structure() for op in block.ops] == [op.structure() for op in twin.ops]
    verify(described)


def test_an_operator_that_lacks_what_its_sub_block_needs_is_refused():
    looping()
    (loop,) = main().global_block().ops.of_type("while_grad")
    (inner,) = loop.sub_block.ops.of_type("conditional_block_grad")[:1]
    for op in (loop, inner):
        whole = op.inputs
        op._change("inputs", {**whole, "Out@GRAD": whole["Out@GRAD"][1:]})
        with pytest.raises(VerifyError, match=rf"{op.type}: Out@GRAD must be .* variables, got"):
            verify(main())
        op._change("inputs", whole)
    loop.sub_block.forward_block_idx = -1
    with pytest.raises(VerifyError, match=r"while_grad: block .* is the gradient of no block"):
        verify(main())


def test_a_network_has_as_many_states_as_it_begins_with():
    x, start, network = fluid.data("x", [2, 3], "float32"), fluid.data("start", [3], "float32"), layers.StaticRNN()
    with network.step():
        word, memory = network.step_input(x), network.memory(init=start)
        network.update_memory(memory, word + memory)
        network.step_output(memory)
    network()
    (op,) = main().global_block().ops.of_type("recurrent")
    op._change("inputs", {**op.inputs, "initial_states": ("start", "start")})
    with pytest.raises(VerifyError, match="recurrent: initial_states must be 1 variables, got 2"):
        verify(main())


def test_a_copy_shares_nothing_and_a_copy_for_tests_has_no_gradients():
    loss = looping()
    twin, test = main().clone(), main().clone(for_test=True)
    assert twin.equals(main())
    owned = {id(op) for block in main().blocks for op in block.ops}
    assert not any(id(op) in owned for block in twin.blocks for op in block.ops)
    twin.block(1).ops[0].set_attr("bias", 5.0)
    assert not twin.equals(main())
    assert [(block.idx, block.forward_block_idx) for block in test.blocks] == [(n, -1) for n in range(4)]
    verify(test)
    (dropout,) = (op for block in test.blocks for op in block.ops if op.type == "dropout")
    assert dropout.attr("is_test")
    (loop,) = (op for op in test.global_block().ops if op.type == "while")
    assert loop.attr("is_test")
    scope = fluid.Scope()
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program(), scope=scope)
    feed = {"x": numbers(4, 3, dtype="float32")}
    first, second = (executor.run(test, feed=feed, fetch_list=[loss.name], scope=scope)[0] for _ in range(2))
    assert first.tobytes() == second.tobytes()


@pytest.mark.slow
def test_a_program_with_sub_blocks_is_pruned_to_what_is_fetched():
    loss = looping()
    plain = main().clone(for_test=True)
    plan = fluid.Executor().explain(plain, {"x": np.zeros((4, 3), "float32")}, [loss.name])
    assert "while" in str(plan)
    report = fluid.Executor().explain(main(), {"x": np.zeros((4, 3), "float32")}, [loss.name])
    assert "while_grad" in str(report)


def test_the_verifier_looks_into_sub_blocks():
    looping()
    (loop,) = (op for op in main().global_block().ops if op.type == "while")
    broken = main().clone()
    op = next(op for op in broken.global_block().ops if op.type == "while")
    op.inputs = {**op.inputs, "X": tuple(name for name in op.inputs["X"] if name != "w")}
    with pytest.raises(VerifyError, match="while: block 1 uses w, which no slot names"):
        verify(broken)
    broken = main().clone()
    next(op for op in broken.global_block().ops if op.type == "while").set_attr("sub_block", 2)
    with pytest.raises(VerifyError, match="while runs block 2, which is no sub-block of block 0"):
        verify(broken)
    assert loop.sub_block is main().block(1)


def test_a_text_with_a_sub_block_that_is_not_there_is_refused():
    outputs = "Out=[c], StepScopes=s: unknown {kind='step_scopes'}"
    text = f"block 0\n  data c: bool[1]\n  {outputs} = while(Condition=[c]) {{sub_block=1}}"
    with pytest.raises(fluid.errors.ParseError, match="block 0 has no sub-block 1"):
        fluid.Program.parse(text)


def test_rewrites_do_not_reach_across_what_a_sub_block_writes():
    x = layers.fill_constant([1], "float32", 2.0)
    before, i = x * 3.0, integer(0)
    condition = i < 2
    with layers.While(condition).block():
        layers.assign(x + 1.0, x)
        layers.increment(i)
        layers.less_than(i, integer(2), cond=condition)
    after = x * 3.0
    copied = layers.assign(x)
    assert [each.tolist() for each in run(before, after, copied)] == [[6.0], [12.0], [4.0]]


def test_one_plan_is_made_for_each_shape():
    x = fluid.data("x", [None, 2], "float32")
    y = layers.cond(layers.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: x - 1.0)
    executor = fluid.Executor()
    for rows, sign in ((3, 1), (5, -1), (3, -1), (5, 1)):
        given = np.full((rows, 2), sign, "float32")
        (found,) = executor.run(feed={"x": given}, fetch_list=[y])
        assert np.array_equal(found, given * 2 if sign > 0 else given - 1)
    assert len(executor.plans) == 2


@pytest.mark.slow
def test_explain_shows_the_functions_of_sub_blocks():
    loss = looping()
    report = str(fluid.Executor().explain(main(), {"x": np.zeros((4, 3), "float32")}, [loss.name]))
    for block, op_type in ((1, "while"), (2, "conditional_block"), (3, "conditional_block"), (4, "while_grad")):
        assert f"# block {block}, of {op_type}\n" in report


def test_a_loss_in_a_sub_block_is_an_error_that_says_what_to_do():
    x = fluid.data("x", [None, 3], "float32")
    with layers.Switch() as switch, switch.case(layers.reduce_sum(x) > 0.0):
        loss = layers.mean(layers.fc(x, 1))
        with pytest.raises(ProgramError, match=r"the loss mean_0\.tmp_0 is computed in a sub-block"):
            fluid.optimizer.SGD(0.1).minimize(loss)
        with pytest.raises(ProgramError, match=r"the target mean_0\.tmp_0 is computed in a sub-block"):
            fluid.gradients(loss, x)


def test_which_optimizer_updates_may_be_decided_when_it_runs():
    """The numbers are those of Paddle 1.8.5."""
    x, n = fluid.data("x", [None, 3], "float32"), fluid.data("n", [1], "int64")
    half = fluid.initializer.Constant(0.5)
    loss = layers.mean(layers.square(layers.fc(x, 1, param_attr=fluid.ParamAttr("w", half), bias_attr=False)))
    with layers.Switch() as switch:
        with switch.case(n < 1):
            fluid.optimizer.SGD(0.1).minimize(loss)
        with switch.default():
            fluid.optimizer.SGD(1.0).minimize(loss)
    verify(main())
    for number, expected in ((0, 0.2), (1, -2.5)):
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        feed = {"x": np.ones((2, 3), "float32"), "n": np.array([number])}
        assert executor.run(main(), feed, [loss], scope=scope)[0].item() == 2.25
        assert np.allclose(scope.find_var("w").get_tensor(), expected)


def test_the_graph_of_a_program_leads_through_its_loops():
    x, n = data("x", 2), integer(2)
    i, h = integer(0), x * 1.0
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        layers.assign(layers.square(h) + x, h)
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    y = layers.tanh(h)
    graph = main().graph()
    (loop,) = (node for node in graph if getattr(node, "type", "") == "while")
    read = {value.name: slots for value, _, slots in graph.in_edges(loop, data="slots")}
    assert read[x.name] == ("X",)
    assert read[h.name] == ("X",)
    assert {value.name for value in graph.successors(loop)} >= {h.name, i.name, condition.name}
    assert loop in ancestors_of(main(), y)


def test_what_is_not_finite_is_found_behind_a_loop():
    x = fluid.data("x", [2], "float32")
    w = layers.create_parameter([2], "float32", name="w", default_initializer=fluid.initializer.Constant(1e30))
    _, h = layers.while_loop(lambda i, h: i < 2, lambda i, h: [i + 1, h * w], [integer(0), x * 1.0])
    clip = fluid.clip.GradientClipByGlobalNorm(1.0, nonfinite="raise")
    fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(layers.reduce_sum(h * 1e30))
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    with pytest.raises(fluid.errors.NonfiniteError) as error:
        executor.run(feed={"x": np.ones(2, "float32")}, scope=scope)
    assert "w" in error.value.param
    assert "the first such value is" in str(error.value)


@pytest.mark.slow
def test_checkpoints_around_a_loop_change_no_bit():
    def results(checkpointed):
        program, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(program, startup), fluid.unique_name.guard():
            x = fluid.data("x", [4, 3], "float32")
            before = layers.fc(layers.tanh(layers.fc(x, 3)), 3, act="tanh")
            _, h = layers.while_loop(
                lambda i, h: i < 3, lambda i, h: [i + 1, layers.square(h) + h], [integer(0), before * 1.0]
            )
            loss = layers.mean(layers.tanh(layers.fc(h, 3, act="tanh")))
            optimizer = fluid.optimizer.SGD(0.1)
            if checkpointed:
                optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
                optimizer._set_checkpoints([before, h])
            optimizer.minimize(loss)
        verify(program)
        scope, executor = fluid.Scope(), fluid.Executor()
        executor.run(startup, scope=scope)
        for seed, param in enumerate(program.all_parameters()):
            scope.find_var(param.name).get_tensor().set(
                numbers(*param.shape, seed=seed, dtype="float32"), fluid.CPUPlace()
            )
        feed = {"x": numbers(4, 3, dtype="float32")}
        return [executor.run(program, feed=feed, fetch_list=[loss.name], scope=scope)[0].tobytes() for _ in range(3)]

    assert results(True) == results(False)


@pytest.mark.slow
def test_every_rewrite_keeps_what_a_program_with_sub_blocks_computes():
    from minigraph.passes import LOWERING, FuseElementwise, MergeMatmuls, TransposeIntoMatmul

    x = data("x", 40, 40)
    w = layers.create_parameter([40, 40], "float64", name="w")
    same, twin = layers.tanh(layers.assign(x)), layers.tanh(layers.assign(x))

    def body(i, h):
        other = layers.tanh(layers.assign(x))
        branch = layers.cond(i < 1, lambda: layers.matmul(h, w) + same, lambda: h * twin)
        return [i + 1, layers.assign(branch) * 1.0 + other * 0.0]

    _, h = layers.while_loop(lambda i, h: i < 3, body, [integer(0), x * 1.0])
    loss = layers.mean(layers.reshape(layers.reshape(h, [1600]), [40, 40]) + same * twin)
    append_backward(loss)
    given, scope = numbers(40, 40), fluid.Scope()
    scope.var("w").get_tensor().set(numbers(40, 40, seed=1), fluid.CPUPlace())
    fetch = [loss.name, h.name, "w@GRAD", "x@GRAD"]

    def results(program):
        return fluid.Executor(passes=fluid.passes.Pipeline(())).run(
            program, feed={"x": given}, fetch_list=fetch, scope=scope
        )

    expected = results(main())
    for each in (*LOWERING, FuseElementwise(), MergeMatmuls(), TransposeIntoMatmul()):
        rewritten = main().clone()
        rewritten.roots = tuple(fetch)
        each.apply(rewritten)
        verify(rewritten)
        for found, wanted in zip(results(rewritten), expected, strict=True):
            assert np.allclose(found, wanted, rtol=1e-12, atol=1e-14), each.name
        assert not each.apply(rewritten), each.name


def test_a_loop_for_tests_has_no_gradient():
    x, n = data("x", 2), integer(2)
    i, h = integer(0), x * 1.0
    body = lambda i, h: [i + 1, layers.tanh(h)]  # noqa: E731
    _, h = layers.while_loop(lambda i, h: i < n, body, [i, h], is_test=True)
    (found,) = run(h, feed={"x": np.array([0.5, 1.0])})
    assert np.allclose(found, np.tanh(np.tanh([0.5, 1.0])))
    with pytest.raises(ProgramError, match="while keeps nothing for a gradient, because it is for tests only"):
        append_backward(layers.reduce_sum(h))


def test_a_difference_shows_the_block_that_it_is_in():
    looping()
    changed = main().clone()
    (tanh,) = (op for op in changed.block(2).ops if op.type == "tanh")
    tanh.role |= fluid.ir.Role.LOSS
    lines = [line for line in fluid.diff(main(), changed, context=0).split("\n") if line.strip() != "..."]
    assert lines[0] == "  block 2 parent 1"
    assert [line[0] for line in lines] == [" ", "-", "+"]


@pytest.mark.slow
def test_many_branches_in_each_other_are_built_and_differentiated():
    x, k = data("x", 2), fluid.data("k", [1], "int64")
    y = layers.switch_case(k, {i: lambda i=i: x * float(i + 1) for i in range(30)})
    append_backward(layers.reduce_sum(layers.square(y)))
    for chosen in (0, 17, 29, 50):
        factor = min(chosen, 29) + 1
        value, grad = run(y, "x@GRAD", feed={"x": np.array([1.0, 2.0]), "k": np.array([chosen])})
        assert value.tolist() == [factor, 2.0 * factor]
        assert grad.tolist() == [2.0 * factor**2, 4.0 * factor**2]


@pytest.mark.parametrize("index", [0, 1, 7, -1])
def test_an_operator_runs_a_sub_block_of_its_own_block(index):
    condition = layers.fill_constant([1], "bool", True)
    inside = main().create_block()
    scopes = {"StepScopes": inside.create_var(name="scopes", type=fluid.ir.VarKind.STEP_SCOPES)}
    with pytest.raises(OpError, match=f"while: block {index} is no sub-block of block 1"):
        inside.append_op("while", {"Condition": condition}, {"Out": condition, **scopes}, {"sub_block": index})
    assert not list(inside.ops)


@pytest.mark.slow
def test_what_nested_blocks_use_is_worked_out_in_proportion_to_their_number(monkeypatch):
    found = []

    def counted(*names, original=blocks.OuterNames):
        found.append(1)
        return original(*names)

    monkeypatch.setattr(blocks, "OuterNames", counted)
    work = {}
    for depth in (10, 20, 40):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            x, n = data("x", 2), integer(3)

            def inside(left, x=x, n=n):
                return (
                    layers.cond(n < left, lambda: layers.tanh(inside(left - 1)), lambda: x * 3.0) if left else x * 2.0
                )

            found.clear()
            fluid.gradients(layers.reduce_sum(inside(depth)), x)
            work[depth] = len(found)
    assert work[40] - work[20] <= 2.05 * (work[20] - work[10])


def test_what_a_block_uses_is_known_after_a_change_in_one_inside():
    x, n = data("x", 2), integer(3)
    y, z = x * 1.0, x * 2.0
    condition = n < 5
    with layers.Switch() as outer, outer.case(condition), layers.Switch() as inner, inner.case(condition):
        layers.assign(x, y)
    program = main()
    (branch,) = (op for op in program.global_block().ops if op.type == "conditional_block")
    (inside,) = (op for op in branch.sub_block.ops if op.type == "conditional_block")
    assert y.name in branch.output_arg_names
    assert z.name not in branch.output_arg_names + branch.input_arg_names
    inside.set_output("Out", [])  # the slots themselves name nothing
    inside.set_input("Input", [])
    (copy,) = inside.sub_block.ops
    copy.replace_output(y, z)
    assert sub_blocks.outer_names(branch.sub_block)[1] == [z.name]
    inside.sub_block.append_op("assign", {"X": z}, {"Out": y})
    assert sub_blocks.outer_names(branch.sub_block)[1] == [z.name, y.name]
    inside.sub_block.remove(copy)
    assert sub_blocks.outer_names(branch.sub_block) == ([condition.name, z.name, y.name], [y.name])
    inside.sub_block.create_var(name=z.name, shape=[2], dtype="float64")
    assert sub_blocks.outer_names(branch.sub_block) == ([condition.name, y.name], [y.name])
