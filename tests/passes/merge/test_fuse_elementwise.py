"""FuseElementwise makes one operator of several on elements, and changes no bit."""

import hypothesis
import numpy as np
import pytest
from fused_groups import CASES, as_steps, operands, plain, single_calls
from hypothesis import settings
from hypothesis import strategies as st
from jit_support import needs_numba
from kernel_calls import flat
from pass_laws import (
    assert_linear,
    history,
    keeps_the_bits,
    op_lines,
    pipeline,
    rewritten,
)

import minigraph as fluid
from minigraph.errors import OpError
from minigraph.executor.interpreter import Interpreter
from minigraph.kernels import find_specializer, formulas, fused
from minigraph.passes import FuseElementwise
from minigraph.rewrite.random_programs.recipes import SMOOTH_STEPS, Clip, Training, build
from minigraph.rewrite.strategies import recipes
from minigraph.support.fused_calls import parse_calls

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("like_an_executor")]

FUSE = FuseElementwise(least=0)

test_training, test_overwriting = keeps_the_bits(FUSE)


def fused_lines(text, fetch):
    return op_lines(FUSE, text, fetch)


def test_a_bias_and_an_activation_become_one():
    text = """
        block 0
          data x: float32[4, 3]
          data b: float32[3]
          h: float32[4, 3] = elementwise_add(X=x, Y=b) {axis=1}
          y: float32[4, 3] = relu(X=h)
    """
    assert fused_lines(text, ["y"]) == [
        "Out=y = fused_elementwise(X=[x, b]) {steps=['t0 = elementwise_add(x0, x1, axis=1)', 'y0 = relu(t0)']}"
    ]


def test_gradients_of_differences_and_losses_of_logits_take_part():
    text = """
        block 0
          data x: float32[4]
          data t: float32[4]
          s: float32[4] = swish(X=x)
          l: float32[4] = sigmoid_cross_entropy_with_logits(X=s, Label=t)
          X@GRAD=y: float32[4], Y@GRAD=z: float32[4] = elementwise_sub_grad(X=x, Y=t, Out@GRAD=l)
    """
    assert [line.partition(" = ")[2][:17] for line in fused_lines(text, ["y", "z"])] == ["fused_elementwise"]


def test_what_others_read_is_a_result():
    text = """
        block 0
          data x: float32[4]
          h: float32[4] = tanh(X=x)
          z: float32[4] = elementwise_mul(X=h, Y=h)
          s: float32[4] = sum(X=[z, x, h])
          d: float32[4] = tanh_grad(Out=h, Out@GRAD=s)
          m: float32[1] = mean(X=h)
    """
    steps = [
        "y0 = tanh(x0)", "t0 = elementwise_mul(y0, y0, axis=-1)", "t1 = sum([t0, x0, y0])", "y1 = tanh_grad(y0, t1)",
    ]  # fmt: skip
    assert fused_lines(text, ["m", "d"]) == [
        f"Out=h, Out1=d = fused_elementwise(X=[x]) {{steps={steps!r}}}",
        "m = mean(X=h)",
    ]


def test_a_group_stands_where_its_last_operator_stood_with_its_role_and_line():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [4, 3])
        h = fluid.layers.tanh(x)
        m = fluid.layers.mean(x)
        y = fluid.layers.relu(h)
        program = fluid.default_main_program()
    expected = list(program.global_block().ops)[-1]
    once = rewritten(FUSE, program, [m.name, y.name])
    *_, last = once.global_block().ops
    assert (last.type, last.site, last.role) == ("fused_elementwise", expected.site, expected.role)


LEFT_ALONE = {
    "a reader stands between": """
          h: float32[4] = tanh(X=x)
          m: float32[1] = mean(X=h)
          z: float32[4] = elementwise_add(X=h, Y=m)
    """,
    "a name that is read is written again": """
          h: float32[4] = tanh(X=x)
          x = scale(X=b) {scale=2.0, bias=1.0}
          z: float32[4] = elementwise_add(X=h, Y=x)
    """,
    "shapes differ": """
          h: float32[1] = tanh(X=c)
          z: float32[4] = elementwise_add(X=x, Y=h)
    """,
    "state is written": """
          w = tanh(X=x)
          z: float32[4] = relu(X=w)
    """,
    "a factor is a tensor": """
          h: float32[4] = scale(X=x, ScaleTensor=c)
          z: float32[4] = relu(X=h)
    """,
    "integers": """
          h: int64[4] = abs(X=i)
          z: int64[4] = square(X=h)
    """,
    "an error function of float64 has no formula": """
          d: float64[4] = cast(X=x) {in_dtype=5, out_dtype=6}
          h: float64[4] = gelu(X=d)
          z: float64[4] = relu(X=h)
    """,
    "labels are counted": """
          h: float32[4] = sigmoid_cross_entropy_with_logits(X=x, Label=b) {normalize=True}
          z: float32[4] = relu(X=h)
    """,
    "a bound is no number": """
          h: float32[4] = scale(X=x) {scale=nan}
          z: float32[4] = relu(X=h)
    """,
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_what_may_not_move_is_left_alone(what):
    text = f"""
        block 0
          persist w: float32[4]
          data x: float32[4]
          data b: float32[4]
          data c: float32[1]
          data i: int64[4]
{LEFT_ALONE[what]}"""
    if what == "a name that is read is written again":
        assert not any("tanh" in line and "fused" in line for line in fused_lines(text, ["z"]))
    else:
        assert not any("fused" in line for line in fused_lines(text, ["z"]))


def test_small_results_are_left_alone_by_default():
    for size, count in ((1023, 2), (1024, 1)):
        text = f"""
            block 0
              data x: float32[{size}]
              h: float32[{size}] = tanh(X=x)
              y: float32[{size}] = relu(X=h)
        """
        assert len(op_lines(FuseElementwise(), text, ["y"])) == count


def test_a_group_has_so_many_operators_inputs_and_results_at_most():
    with fluid.program_guard(fluid.Program()):
        y = fluid.data("x", [4])
        every = []
        for i in range(60):
            y = fluid.layers.elementwise_add(y, fluid.data(f"x{i}", [4]))
            every.append(y.name)
        program = fluid.default_main_program()
    for fetch in ([y.name], every):
        once = rewritten(FUSE, program, fetch)
        groups = [op for op in once.global_block().ops if op.type == "fused_elementwise"]
        assert groups
        for op in groups:
            assert len(op.attr("steps")) <= 20
            assert len(op.input("X")) <= 16
            assert len(op.output_arg_names) <= 4


def test_a_build_strategy_turns_it_off():
    strategy = fluid.BuildStrategy()
    assert "FuseElementwise" in [each.name for each in strategy.pipeline()]
    strategy.fuse_elementwise = False
    assert "FuseElementwise" not in [each.name for each in strategy.pipeline()]


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program), fluid.unique_name.guard():
            y = x = fluid.data("x", [4])
            for i in range(count):
                y = fluid.layers.elementwise_add(fluid.layers.tanh(y), x if i % 7 else fluid.layers.mean(y))
        program.roots = (y.name,)
        return program

    assert_linear(FUSE, make)


# The steps as text


def test_steps_print_as_they_were_read():
    lines = (
        "t0 = clip(x0, None, None, min=-1e999, max=0.5)",
        "y0, _ = elementwise_mul_grad(x0, t0, x1, axis=-1)",
        "y1 = sum([t0, y0])",
    )
    assert tuple(map(str, parse_calls(lines))) == lines
    assert parse_calls(lines)[0].attrs == {"min": -np.inf, "max": 0.5}


@pytest.mark.parametrize(
    "line",
    ["", "relu(x0)", "y0 = x0", "y0 = relu(x0.T)", "y0 = relu(open('x'))", "a = b = relu(x0)", "y0 = f.g(x0)", "("],
)
def test_what_is_no_step_is_refused(line):
    with pytest.raises(OpError, match="a step must read like"):
        parse_calls((line,))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["y0 = relu(t0)"], "reads t0, which is neither given nor computed before"),
        (["y1 = relu(x0)"], "no step makes y0"),
        (["y0 = relu(x0, x0)"], "has not the 1 inputs"),
        (["y0 = elementwise_add(x0, x1, axis=3)"], "axis must be in"),
        (["y0 = no_such(x0)"], "no operator type 'no_such'"),
    ],
)
def test_steps_that_do_not_fit_are_refused(steps, message):
    block = fluid.Program().global_block()
    for name, shape in {"a": [4, 4], "b": [4]}.items():
        block.create_var(name=name, shape=shape, dtype="float32")
    with pytest.raises(fluid.errors.MinigraphError, match=message):
        block.append_op("fused_elementwise", {"X": ["a", "b"]}, {"Out": block.create_var(name="y")}, {"steps": steps})


# Pieces


def offered(xs, steps, jit=False):
    types = [fused.ArrayType(x.shape, x.dtype) for x in xs]
    return find_specializer("fused_elementwise", jit)(np, types, steps=steps)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 1000])
@pytest.mark.parametrize("case", CASES)
def test_pieces_give_the_same_bits(case, size, monkeypatch):
    monkeypatch.setattr(fused, "LARGE", 0)
    monkeypatch.setattr(fused, "PIECE", 10 * size)
    shapes, steps = CASES[case]
    xs = operands(shapes)
    expected = plain(xs, steps)
    run = offered(xs, steps)
    buffers = tuple(None if x is None else np.full_like(x, 77) for x in expected)
    apart = tuple(None if x is None else np.full((*x.shape, 2), 77, x.dtype)[..., 0] for x in expected)
    overwriting = [x.copy() for x in xs]
    in_place = (overwriting[0], *(None if x is None else np.empty_like(x) for x in expected[1:]))
    for found, targets in (
        (run(xs), None), (run(xs, buffers), buffers), (run(xs, apart), apart), (run(overwriting, in_place), in_place),
    ):  # fmt: skip
        for i, (value, other) in enumerate(zip(found, expected, strict=True)):
            assert (value is None) == (other is None)
            if other is not None:
                assert np.array_equal(value, other, equal_nan=True)
                assert np.array_equal(np.signbit(value), np.signbit(other))
                assert targets is None or value is targets[i]


def test_operands_that_do_not_lie_row_by_row_go_to_the_kernels(monkeypatch):
    monkeypatch.setattr(fused, "LARGE", 0)
    shapes, steps = CASES["a row over rows"]
    x, b = operands(shapes)
    x = np.asfortranarray(x)
    found, expected = offered([x, b], steps)([x, b])[0], plain([x, b], steps)[0]
    assert found.tobytes() == expected.tobytes()
    assert found.strides == expected.strides == x.strides


# Formulas


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_formula_says_what_the_kernel_computes(dtype):
    """Element by element, by the functions that loops are compiled with, as Python runs them."""
    from minigraph.kernels.jit.fused import _FUNCTIONS, _Nest

    seen = set()
    for call in single_calls(dtype):
        xs = flat(call.inputs)
        steps = as_steps(call)
        types = {f"x{i}": fused.ArrayType(x.shape, x.dtype) for i, x in enumerate(xs)}
        nest = _Nest(fused.BroadcastLayout(parse_calls(tuple(steps)), types), tuple(steps))
        namespace = {}
        exec(_FUNCTIONS[dtype].source + nest.source, namespace)
        wanted = [x for x in call.expected if x is not None]
        found = [np.empty(x.shape, x.dtype) for x in wanted]
        namespace["fused"](*nest.arrays(xs, found))
        for value, other in zip(found, wanted, strict=True):
            eps = np.finfo(dtype).eps
            assert np.allclose(value, other, rtol=8 * eps, atol=8 * eps, equal_nan=True), (call.op.type, value, other)
        seen.add(call.op.type)
    assert seen == formulas.TYPES - ({"erf"} if dtype == "float64" else set())


@pytest.mark.laws
@needs_numba
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_compiled_groups_agree(case, threads, always_compiled, monkeypatch):
    """On several threads, on one, and as small groups are called."""
    if threads:
        monkeypatch.setattr("minigraph.kernels.jit.threads.thread_count", lambda: threads)
        monkeypatch.setattr("minigraph.kernels.jit.fused.least_of", lambda bytes_each: 20)
    shapes, steps = CASES[case]
    for dtype in ("float32", "float64"):
        xs = operands(shapes, dtype)
        expected, run = plain(xs, steps), offered(xs, steps, jit=True)
        overwriting = [x.copy() for x in xs]
        in_place = (overwriting[0], *(None if x is None else np.empty_like(x) for x in expected[1:]))
        read_only = [x.copy() for x in xs]
        for x in read_only:
            x.flags.writeable = False
        buffers = tuple(None if x is None else np.full_like(x, 77) for x in expected)
        for found in (
            run(xs), run(overwriting, out=in_place), run([np.asfortranarray(x) for x in xs]), run(read_only),
            run(xs, out=buffers), run(read_only, out=buffers),
        ):  # fmt: skip
            for value, other in zip(found, expected, strict=True):
                if other is not None:
                    assert np.allclose(value, other, rtol=8 * np.finfo(dtype).eps, atol=0, equal_nan=True)


@pytest.mark.slow
@needs_numba
def test_long_groups_are_compiled_in_strips(always_compiled):
    steps = ["t0 = tanh(x0)"]
    steps += [f"t{i} = {'sigmoid' if i % 2 else 'tanh'}(t{i - 1})" for i in range(1, 9)]
    steps += ["y0 = elementwise_add(t8, x1, axis=-1)", "y1 = sum([t0, t7, y0])", "y2 = log(y1)"]
    xs = [np.linspace(-3, 3, 5001, dtype="float32"), np.ones(1, "float32")]
    for value, other in zip(offered(xs, steps, jit=True)(xs)[:3], plain(xs, steps)[:3], strict=True):
        assert np.allclose(value, other, rtol=1e-5)


@pytest.mark.slow
@needs_numba
@settings(max_examples=15)
@hypothesis.given(
    recipes(
        kinds=(*SMOOTH_STEPS, "linear_relu", "clip"),
        dtypes=("float64",),
        training=st.builds(
            Training, st.sampled_from(["SGD", "Momentum", "Adam"]), st.none() | st.just(Clip("global", 0.1))
        ),
    )
)
def test_training_with_compiled_loops_gives_the_same_up_to_rounding(recipe):
    built = build(recipe)
    fetch = [built.loss.name, *(grad.name for _, grad in built.params_grads)]
    expected = history(Interpreter(), built, fetch, steps=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minigraph.kernels.jit.offers.LEAST", 0)
        found = history(fluid.Executor(passes=pipeline(FUSE), jit=True), built, fetch, steps=1)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-9, atol=1e-9 * np.abs(value).max(), err_msg=str(key))
