"""Lowering: pruning, concrete shapes, steps, updates in place, generated source."""

import dataclasses
import inspect
import linecache
import weakref

import networkx
import numpy as np
import pytest
from hypothesis import given

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, FeedError, NotFoundError, OpError
from minigraph.executor.interpreter import evaluate
from minigraph.executor.plan import lower
from minigraph.ir.versions import types_in_order
from minigraph.kernels import find_kernel, registry
from minigraph.lowering.codegen import generate
from minigraph.lowering.liveness import Liveness
from minigraph.lowering.prune import prune
from minigraph.lowering.steps import concretize, to_steps
from minigraph.passes.base import Pass, Pipeline
from minigraph.passes.pipelines import LOWERING
from minigraph.rewrite.random_programs.recipes import build
from minigraph.rewrite.strategies import recipes
from minigraph.runtime.place import CPUPlace
from minigraph.types import DType, TensorType, as_dtype


def parse(text):
    return fluid.Program.parse(inspect.cleandoc(text))


def types(program):
    return [op.type for op in program.global_block().ops]


def float32(*shape):
    return TensorType(DType.FP32, shape)


def feed_types(built):
    return {name: TensorType(as_dtype(array.dtype), array.shape) for name, array in built.feed().items()}


# Pruning

BRANCHES = """
    block 0
      persist counter: float32[1]
      param w: float32[2, 2]
      data x: float32[-1, 2]
      a: float32[-1, 2] = mul(X=x, Y=w)
      b: float32[-1, 2] = relu(X=a)
      c: float32[-1, 2] = tanh(X=a)
      d: float32[1] = mean(X=c)
      counter = increment(X=counter)
"""


@pytest.mark.parametrize(
    ("fetch", "kept"),
    [
        ([], ["increment"]),
        (["x"], ["increment"]),
        (["w"], ["increment"]),
        (["counter"], ["increment"]),
        (["a"], ["mul", "increment"]),
        (["b"], ["mul", "relu", "increment"]),
        (["d"], ["mul", "tanh", "mean", "increment"]),
        (["d", "b"], ["mul", "relu", "tanh", "mean", "increment"]),
    ],
)
def test_what_is_fetched_or_persisted_is_computed_and_nothing_else(fetch, kept):
    assert types(prune(parse(BRANCHES), ["x"], fetch)) == kept


def test_pruning_leaves_the_program_alone():
    program = parse(BRANCHES)
    before, version = program.structure(), program.version
    private = prune(program, ["x"], ["b"])
    assert (program.structure(), program.version) == (before, version)
    assert not {id(op) for op in program.global_block().ops} & {id(op) for op in private.global_block().ops}
    assert not {id(v) for v in program.list_vars()} & {id(v) for v in private.list_vars()}


def test_only_variables_in_use_are_copied():
    private = prune(parse(BRANCHES), ["x"], ["b"])
    assert sorted(private.global_block().vars) == ["a", "b", "counter", "w", "x"]


def test_a_value_overwritten_before_it_is_read_is_not_computed():
    program = parse("""
        block 0
          data x: float32[2]
          a: float32[2] = relu(X=x)
          a = tanh(X=x)
          b: float32[2] = exp(X=a)
          a = square(X=b)
    """)
    assert types(prune(program, ["x"], ["b"])) == ["tanh", "exp"]
    assert types(prune(program, ["x"], ["a"])) == ["tanh", "exp", "square"]


def test_an_update_in_place_keeps_what_it_reads():
    program = parse("""
        block 0
          data x: float32[2]
          a: float32[2] = relu(X=x)
          a = scale(X=a) {scale=2.0}
          a = tanh(X=a)
    """)
    assert types(prune(program, ["x"], ["a"])) == ["relu", "scale", "tanh"]


def test_pruning_for_an_unknown_name_is_an_error():
    with pytest.raises(NotFoundError, match=r"(?s)no variable 'dd'.*Did you mean d"):
        prune(parse(BRANCHES), [], ["dd"])


@pytest.mark.laws
@given(recipes())
def test_pruning_keeps_the_ancestors_of_what_is_fetched_or_persisted(recipe):
    built = build(recipe)
    block = built.main.global_block()
    fetch = [built.values[len(built.values) // 2].name]
    graph, last_writer = networkx.DiGraph(), {}
    ops = list(block.ops)
    for number, op in enumerate(ops):
        graph.add_node(number)
        graph.add_edges_from((last_writer[name], number) for name in op.input_arg_names if name in last_writer)
        last_writer.update(dict.fromkeys(op.output_arg_names, number))
    persisted = {n for n, op in enumerate(ops) if any(block.var(name).persistable for name in op.output_arg_names)}
    wanted = persisted | {last_writer[name] for name in fetch if name in last_writer}
    needed = wanted.union(*(networkx.ancestors(graph, number) for number in wanted))
    kept = prune(built.main, ["x", "label"], fetch).global_block().ops
    whole = [op for n, op in enumerate(ops) if n in needed]
    assert [(op.type, op.inputs, op.attrs) for op in kept] == [(op.type, op.inputs, op.attrs) for op in whole]
    read = {*fetch, *(name for op in whole for name in op.input_arg_names)}
    for op, before in zip(kept, whole, strict=True):
        for name in {*before.output_arg_names} - {*op.output_arg_names}:
            assert name not in read and not block.var(name).persistable


# Concrete shapes


def test_shapes_become_those_of_what_is_fed():
    program = prune(parse(BRANCHES), ["x"], ["b", "d"])
    concretize(program, {"x": float32(5, 2)})
    block = program.global_block()
    assert {name: block.var(name).shape for name in "abcdx"} == {
        "a": (5, 2), "b": (5, 2), "c": (5, 2), "d": (1,), "x": (5, 2)
    }  # fmt: skip


def test_a_shape_that_does_not_fit_names_the_operator_its_inputs_and_the_users_line():
    with fluid.program_guard(fluid.Program()):
        x = layers.data("x", [2])
        y = layers.data("y", [2])
        layers.elementwise_add(layers.relu(x), y, name="sum")
        private = prune(fluid.default_main_program(), ["x", "y"], ["sum.tmp_0"])
    with pytest.raises(OpError) as caught:
        concretize(private, {"x": float32(3, 2), "y": float32(4, 2)})
    text = str(caught.value)
    assert text.startswith("elementwise_add: shapes [3, 2] and [4, 2]")
    assert "Y = y: float32[4, 2]" in text
    assert "test_lowering.py" in text and 'layers.elementwise_add(layers.relu(x), y, name="sum")' in text


@pytest.mark.laws
@given(recipes())
def test_no_pass_of_an_executor_gives_a_variable_a_second_type(recipe):
    built = build(recipe)
    private = prune(built.main, ["x", "label"], [built.loss.name])
    concretize(private, feed_types(built))
    LOWERING.apply(private)
    assert private.is_concrete
    assert [(op.type, changed) for op, changed in types_in_order(private.global_block()) if changed] == []


@pytest.mark.usefixtures("new_program", "new_scope")
def test_types_are_inferred_again_behind_a_pass_of_the_user():
    class Look(Pass):
        def apply(self, program):
            seen.append(program.is_concrete)
            return False

    seen = list[bool]()
    y = layers.relu(layers.data("x", [3]))
    fluid.Executor(passes=Pipeline((Look(), Look()))).run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[y])
    assert seen == [True, False]


# Steps


def steps_of(text, fetch, **feeds):
    program = prune(parse(text), list(feeds), fetch)
    concretize(program, feeds)
    return to_steps(program, list(feeds), fetch, "cpu")


def test_every_value_is_written_once():
    steps = steps_of(
        """
        block 0
          data x: float32[2]
          x = scale(X=x) {scale=2.0}
          x = relu(X=x)
        """,
        ["x"],
        x=float32(2),
    )
    (fed,), (first, second) = steps.feeds, steps.steps
    assert first.reads == [fed]
    assert second.reads == first.writes
    assert steps.fetches == second.writes
    assert len({id(value) for value in (fed, *first.writes, *second.writes)}) == 3


def test_state_is_what_is_read_before_it_is_written():
    steps = steps_of(
        """
        block 0
          persist read: float32[1]
          persist both: float32[1]
          persist written: float32[1]
          written = scale(X=read) {scale=2.0}
          both = elementwise_add(X=both, Y=written)
        """,
        [],
    )
    assert [value.name for value in steps.state] == ["read", "both"]
    assert sorted(steps.new_state) == ["both", "written"]


def test_data_that_is_not_fed_is_an_error_that_names_its_reader():
    with pytest.raises(
        FeedError, match=r"(?s)^x is not fed, which mul reads.*declared x: float32\[-1, 2\].*Add 'x' to the feed"
    ):
        steps_of(BRANCHES, ["b"])
    with pytest.raises(FeedError, match=r"^x is not fed\n"):
        steps_of(BRANCHES, ["x"])


def test_a_value_that_nothing_computes_is_an_error():
    with pytest.raises(ExecutionError, match="nothing computes a, which relu reads"):
        steps_of("block 0\n var a: float32[2]\n b: float32[2] = relu(X=a)", ["b"])


def test_an_operator_without_a_kernel_is_an_error(monkeypatch):
    monkeypatch.delitem(registry._KERNELS, ("relu", None))
    with pytest.raises(ExecutionError, match="relu has no kernel for cpu"):
        steps_of(BRANCHES, ["b"], x=float32(3, 2))


def test_a_view_shares_the_storage_of_its_source():
    steps = steps_of(
        """
        block 0
          data x: float32[2, 3]
          a: float32[2, 3] = relu(X=x)
          Out=b: float32[6] = reshape2(X=a) {shape=[6]}
          Out=c: float32[3, 2] = reshape2(X=b) {shape=[3, 2]}
          d: float32[3, 2] = tanh(X=c)
        """,
        ["d"],
        x=float32(2, 3),
    )
    x, (a, b, c, d) = steps.feeds[0], [step.outputs[0][0] for step in steps.steps]
    root = steps.storage.root
    assert (root(b), root(c)) == (a, a)
    assert (root(a), root(d), root(x)) == (a, d, x)


def test_a_value_is_released_by_its_last_reader():
    steps = steps_of(
        """
        block 0
          data x: float32[2]
          a: float32[2] = relu(X=x)
          b: float32[2] = tanh(X=a)
          c: float32[2] = elementwise_add(X=a, Y=b)
          d: float32[2] = exp(X=c)
        """,
        ["c", "d"],
        x=float32(2),
    )
    released = Liveness(steps, steps.storage).released
    assert [[value.name for value in released.get(step, ())] for step in steps.steps] == [["x"], [], ["a", "b"], []]


@pytest.mark.laws
@given(recipes())
def test_nothing_is_read_after_its_release_and_nothing_is_kept(recipe):
    built = build(recipe)
    fetch = [built.loss.name, built.values[-1].name]
    program = prune(built.main, ["x", "label"], fetch)
    concretize(program, feed_types(built))
    steps = to_steps(program, ["x", "label"], fetch, "cpu")
    liveness = Liveness(steps, steps.storage)
    live = {*steps.feeds, *steps.state}
    for step in steps.steps:
        released = set(liveness.released.get(step, ()))
        assert live.issuperset(step.reads)
        live |= {*step.writes}
        assert released <= live
        live -= released
    kept = {*steps.fetches, *steps.new_state.values(), *steps.state}
    used = {value for step in steps.steps for value in step.reads}
    unread_feeds = {*steps.feeds} - used
    assert live - unread_feeds == kept - (unread_feeds - {*steps.fetches})


def replace_kernel(monkeypatch, type, function):
    """Let every place compute operators of this type with `function`, which must take what the kernel takes."""
    monkeypatch.setitem(
        registry._KERNELS, (type, None), dataclasses.replace(find_kernel(type, "cpu"), function=function)
    )
    monkeypatch.delitem(registry._SPECIALIZERS, type, raising=False)


def test_memory_is_free_once_its_last_reader_has_run(monkeypatch):
    kernel = find_kernel("tanh", "cpu")
    seen, alive = [], []

    def observed(xp, x, **options):
        alive.append([reference() is not None for reference in seen])
        seen.append(weakref.ref(x))
        return kernel.function(xp, x, **options)

    replace_kernel(monkeypatch, "tanh", observed)
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [4])
        x = layers.relu(x)
        for _ in range(4):
            x = layers.tanh(x)
        fluid.Executor().run(feed={"x": np.ones(4, "float32")}, fetch_list=[x])
    assert alive == [[], [False], [False, False], [False, False, False]]


# Updates in place

UPDATES = """
    block 0
      param v: float32[2]
      param w: float32[2]
      persist rate: float32[1]
      data x: float32[2]
      a: float32[2] = elementwise_mul(X=x, Y=w)
      w = sgd(Param=w, LearningRate=rate, Grad=a)
      b: float32[2] = tanh(X=x)
      v = sgd(Param=v, LearningRate=rate, Grad=b)
      rate = scale(X=rate) {scale=0.5}
      c: float32[1] = mean(X=b)
"""


def in_place(steps):
    return [step.outputs[0][0].name for step in steps.steps if step.in_place]


def test_updates_come_last_and_happen_in_place():
    steps = steps_of(UPDATES, ["c"], x=float32(2))
    assert [step.op.type for step in steps.steps] == ["elementwise_mul", "tanh", "mean", "sgd", "sgd", "scale"]
    assert in_place(steps) == ["w", "v", "rate"]
    assert [steps.storage.root(steps.new_state[name]).origin for name in ("w", "v", "rate")] == ["state"] * 3


def test_an_update_whose_result_is_read_stays_where_it_is_and_makes_a_new_array():
    steps = steps_of(UPDATES.replace("b: float32[2] = tanh(X=x)", "b: float32[2] = tanh(X=w)"), ["c"], x=float32(2))
    assert [step.op.type for step in steps.steps] == ["elementwise_mul", "sgd", "tanh", "mean", "sgd", "scale"]
    assert in_place(steps) == ["v", "rate"]


@pytest.mark.parametrize(
    ("line", "fetch"),
    [
        ("Out=old: float32[2, 1] = reshape2(X=w) {shape=[2, 1]}", ["old"]),
        ("persist kept: float32[2, 1]\nOut=kept = reshape2(X=w) {shape=[2, 1]}", []),
        ("persist kept: float32[2]\nkept = clip_by_norm(X=w) {max_norm=100.0}", []),
    ],
)
def test_an_old_value_that_is_needed_is_not_written_over(line, fetch):
    *declarations, operator = line.split("\n")
    program = inspect.cleandoc(UPDATES).splitlines()
    text = "\n".join([program[0], *declarations, *program[1:5], operator, *program[5:]])
    assert in_place(steps_of(text, fetch, x=float32(2))) == ["v", "rate"]


def test_an_old_value_that_a_later_update_reads_is_not_written_over():
    text = """
        block 0
          persist a: float32[2]
          persist b: float32[2]
          Out=c: float32[2] = reshape2(X=b) {shape=[2]}
          b = scale(X=b) {scale=2.0}
          a = elementwise_add(X=a, Y=c)
    """
    assert in_place(steps_of(text, [])) == ["a"]
    assert in_place(steps_of(text.replace("Y=c", "Y=a"), [])) == ["b", "a"]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("w = sgd(Param=w, LearningRate=rate, Grad=g)", []),  # the second velocity waits for the first new w
        ("w = scale(X=w) {scale=0.5}", ["w", "w"]),  # one array after the other
    ],
)
def test_state_is_not_written_over_a_result_outside_of_the_scope(first, expected):
    text = f"""
        block 0
          data x: float32[2]
          persist w: float32[2]
          persist velocity: float32[2]
          persist rate: float32[1]
          g: float32[2] = tanh(X=x)
          {first}
          h: float32[2] = {"tanh(X=w)" if first.startswith("w = sgd") else "relu(X=g)"}
          ParamOut=w, VelocityOut=velocity = momentum(Param=w, Grad=h, Velocity=velocity, LearningRate=rate) {{mu=0.9}}
    """
    assert in_place(steps_of(text, [], x=float32(2))) == expected


def test_a_view_of_state_is_not_written_over():
    text = """
        block 0
          data x: float32[2]
          persist w: float32[2, 1]
          persist velocity: float32[2]
          persist rate: float32[1]
          Out=v: float32[2] = reshape2(X=w) {shape=[2]}
          ParamOut=v, VelocityOut=velocity = momentum(Param=v, Grad=x, Velocity=velocity, LearningRate=rate) {mu=0.9}
    """
    steps = steps_of(text, ["v"], x=float32(2))
    assert in_place(steps) == []


# Generated source


def plan(text, fetch, **feeds):
    return lower(parse(text), feeds, fetch, CPUPlace())


def test_the_generated_function_is_straight_line_code(monkeypatch):
    monkeypatch.setattr("minigraph.lowering.functions.find_specializer", lambda type: None)
    text = """
        block 0
          param w: float32[2, 3]
          persist rate: float32[1]
          data x: float32[-1, 2]
          h.tmp_0: float32[-1, 3] = mul(X=x, Y=w)
          h.tmp_1: float32[-1, 3] = relu(X=h.tmp_0)
          loss: float32[1] = mean(X=h.tmp_1)
          loss@GRAD: float32[1] = scale(X=loss) {scale=0.0, bias=1.0}
          h.tmp_1@GRAD: float32[-1, 3] = mean_grad(X=h.tmp_1, Out@GRAD=loss@GRAD)
          h.tmp_0@GRAD: float32[-1, 3] = relu_grad(Out=h.tmp_1, Out@GRAD=h.tmp_1@GRAD)
          Y@GRAD=w@GRAD: float32[2, 3] = mul_grad(X=x, Y=w, Out@GRAD=h.tmp_0@GRAD)
          w = sgd(Param=w, LearningRate=rate, Grad=w@GRAD)
    """
    expected = """
        def run(feeds, state, rng, buffers, saved):
            _x,  = feeds
            _w, _rate,  = state
            _h_tmp_0 = mul(xp, _x, _w, x_num_col_dims=1, y_num_col_dims=1)
            _h_tmp_1 = relu(xp, _h_tmp_0)
            del _h_tmp_0
            _loss = mean(xp, _h_tmp_1)
            _loss_GRAD = scale(xp, _loss, None, scale=0.0, bias=1.0, bias_after_scale=True)
            _h_tmp_1_GRAD = mean_grad(xp, _h_tmp_1, _loss_GRAD)
            del _loss_GRAD
            _h_tmp_0_GRAD = relu_grad(xp, _h_tmp_1, _h_tmp_1_GRAD)
            del _h_tmp_1, _h_tmp_1_GRAD
            _, _w_GRAD = mul_grad(xp, _x, _w, _h_tmp_0_GRAD, x_num_col_dims=1, y_num_col_dims=1, wanted=(False, True))
            del _x, _h_tmp_0_GRAD
            saved += [(_w, _w.copy())]
            sgd(xp, _w, _rate, _w_GRAD, None, out=_w)
            del _w_GRAD
            return (_loss, ), ()
    """
    assert plan(text, ["loss"], x=float32(4, 2)).compiled.source == inspect.cleandoc(expected) + "\n"


def test_quicker_functions_that_need_no_sizes_are_called_where_only_a_run_knows_them():
    text = """
        block 0
          param w: float32[2, 3]
          param b: float32[3]
          data x: float32[-1, 2]
          h.tmp_0: float32[-1, 3] = mul(X=x, Y=w)
          h.tmp_1: float32[-1, 3] = elementwise_add(X=h.tmp_0, Y=b) {axis=1}
          h.tmp_2: float32[-1, 3] = elementwise_add(X=h.tmp_1, Y=h.tmp_0) {axis=0}
          out: float32[-1, 3] = tanh(X=h.tmp_2)
    """
    source = plan(text, ["out"], x=float32(-1, 2)).compiled.source
    assert [name for name in ("fast_mul(", "fast_elementwise_add(", "fast_tanh(") if name not in source] == []
    high = text.replace("float32[-1, 2]", "float32[-1, -1, 2]").replace("float32[-1, 3]", "float32[-1, -1, 3]")
    high = high.replace("Y=w)", "Y=w) {x_num_col_dims=2}").replace("axis=1", "axis=2")
    source = plan(high, ["out"], x=float32(-1, -1, 2)).compiled.source
    assert "fast_mul(" not in source and "fast_tanh(" in source


def test_a_quicker_function_for_the_shapes_at_hand_is_called_instead_of_the_kernel(monkeypatch):
    seen = []

    def offer(xp, x):
        seen.append((x.shape, x.dtype))
        return (lambda x: x + 100) if x.shape == (3, 2) else None

    monkeypatch.setitem(registry._SPECIALIZERS, "relu", offer)
    with fluid.program_guard(fluid.Program()):
        out = layers.relu(fluid.data("x", [None, 2]))
        for rows, expected in ((3, 101), (4, 1)):
            x = np.ones((rows, 2), "float32")
            np.testing.assert_array_equal(fluid.Executor().run(feed={"x": x}, fetch_list=[out])[0], x * expected)
    assert seen == [((3, 2), np.float32), ((4, 2), np.float32)]


def test_the_source_is_there_for_tracebacks_as_long_as_the_plan_lives():
    made = plan(BRANCHES, ["b"], x=float32(4, 2))
    filename = made.compiled.filename
    linecache.checkcache()
    assert linecache.getline(filename, 1) == "def run(feeds, state, rng, buffers, saved):\n"
    assert inspect.getsource(made.compiled.function) == made.compiled.source
    del made
    assert filename not in linecache.cache


def test_every_line_that_calls_a_kernel_is_known_by_its_step():
    made = plan(BRANCHES, ["b", "d"], x=float32(4, 2))
    lines = made.compiled.source.splitlines()
    steps = made.compiled.step_of_line
    assert [step.op.type for step in steps.values()] == ["mul", "relu", "tanh", "mean", "increment"]
    for number, step in steps.items():
        assert f"{step.op.type}(" in lines[number - 1]


def test_names_that_differ_in_signs_only_stay_apart():
    made = plan(
        """
        block 0
          data a.b: float32[2]
          data a@b: float32[2]
          data a_b: float32[2]
          "for": float32[2] = elementwise_sub(X=a.b, Y=a@b)
          xp: float32[2] = elementwise_mul(X="for", Y=a_b)
          elementwise_mul: float32[2] = elementwise_mul(X=xp, Y=a_b)
        """,
        ["elementwise_mul"],
        **{"a.b": float32(2), "a@b": float32(2), "a_b": float32(2)},
    )
    arrays = [np.array(pair, "float32") for pair in ([5, 7], [1, 2], [3, 10])]
    (result,), _ = made.compiled.function(arrays, [], None, (), [])
    np.testing.assert_array_equal(result, [36, 500])


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 0.1, 1e-45, 3.4e38])
def test_numbers_reach_the_kernel_as_they_are(value):
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [1])
        out = layers.scale(x, 0.0 if np.isinf(value) else 1.0, bias=value)
        (result,) = fluid.Executor().run(feed={"x": np.zeros(1, "float32")}, fetch_list=[out])
    np.testing.assert_array_equal(result, np.array([value], "float32"))


# Which gradients are computed


def test_no_gradient_is_computed_for_data(monkeypatch):
    kernel = find_kernel("mul_grad", "cpu")
    wanted_flags = []

    def observed(xp, *arrays, wanted, **options):
        wanted_flags.append(wanted)
        return kernel.function(xp, *arrays, wanted=wanted, **options)

    replace_kernel(monkeypatch, "mul_grad", observed)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [4, 2])
        loss = layers.mean(layers.fc(layers.fc(x, 3, bias_attr=False), 1, bias_attr=False))
        pairs = fluid.append_backward(loss)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        executor.run(feed={"x": np.ones((4, 2), "float32")}, fetch_list=[grad for _, grad in pairs], scope=scope)
    assert wanted_flags == [(True, True), (False, True)]


def test_wanted_flags_of_a_slot_of_several_variables():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2])
        w = layers.create_parameter([2], "float32", attr=fluid.ParamAttr("w"))
        fluid.append_backward(layers.mean(layers.concat([x, w, w], axis=0)))
        (op,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "concat_grad"]
    values = {"x": np.ones(2, "float32"), "w": np.ones(2, "float32")}
    (out_grad,) = op.input("Out@GRAD")
    values[out_grad] = np.arange(6, dtype="float32")
    found = evaluate(op, values.__getitem__, CPUPlace(), None)
    assert sorted(found) == sorted(name for name in op.output("X@GRAD") if name != "@EMPTY@")
    np.testing.assert_array_equal(np.concatenate(list(found.values())), [2, 3, 4, 5])


@pytest.mark.slow
def test_a_plan_does_not_keep_gradients_that_nobody_wants():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = layers.mean(layers.fc(fluid.data("x", [4, 2]), 3))
        fluid.append_backward(loss)
        made = lower(fluid.default_main_program(), {"x": float32(4, 2)}, [loss.name], CPUPlace())
    assert [step.op.type for step in made.steps.steps] == ["mul", "elementwise_add", "mean"]


def test_the_rewrites_of_the_private_program_leave_that_of_the_user_as_it_was():
    program = parse(BRANCHES)
    before = program.clone()
    private = prune(program, ["x"], ["b", "d"])
    for op in private.global_block().ops:
        op.set_input("X", ["x"])
        if op.type == "increment":
            op.set_attr("step", 7.0)
        op.replace_output(op.output_arg_names[0], "x")
    assert program.equals(before)


def test_generating_twice_gives_the_same_source():
    made = plan(BRANCHES, ["b"], x=float32(4, 2))
    assert generate(made.steps, made.buffers, CPUPlace()).source == made.compiled.source


def test_a_gradient_that_nobody_reads_is_not_computed():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x, w = (fluid.data(name, [3, 3]) for name in "xw")
        x.stop_gradient = w.stop_gradient = False
        fluid.gradients(fluid.layers.mul(x, w), [x, w])
    for fetched in (["x@GRAD"], ["w@GRAD"], ["x@GRAD", "w@GRAD"]):
        (op,) = prune(main, ["x", "w"], fetched).global_block().ops.by_type["mul_grad"]
        assert op.output_arg_names == fetched
    (both,) = main.global_block().ops.by_type["mul_grad"]
    assert both.output_arg_names == ["x@GRAD", "w@GRAD"], "the user's program is as it was"


def test_a_gradient_with_too_few_dimensions_is_reported_by_its_operator():
    program = parse("""
        block 0
          data x: float32[3]
          data y: float32[4,3]
          X@GRAD=dx: float32[3], Y@GRAD=dy: float32[4,3] = elementwise_mul_grad(X=x, Y=y, Out@GRAD=x) {axis=-1}
    """)
    feed = {"x": np.ones(3, "float32"), "y": np.ones((4, 3), "float32")}
    with pytest.raises(OpError, match=r"elementwise_mul_grad: Out@GRAD must have the type of Out, float32\[4, 3\]"):
        fluid.Executor().run(program, feed=feed, fetch_list=["dx", "dy"])
