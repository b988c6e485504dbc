"""SkipAssigns lets operators write the variables that their results are assigned to."""

import numpy as np
import pytest
from jit_support import needs_numba
from pass_laws import assert_linear, keeps_the_bits, op_lines

import minigraph as fluid
from minigraph import layers
from minigraph.ir import Role
from minigraph.passes import FuseElementwise, SkipAssigns

test_training, test_overwriting = keeps_the_bits(SkipAssigns())
test_training_in_groups, test_overwriting_in_groups = keeps_the_bits(FuseElementwise(least=1), SkipAssigns())

SINGLE = """
    block 0
      persist p: float32[3]
      persist q: float32[3]
      data x: float32[3]
      y: float32[3] = {made}
      {between}
      p = assign(X=y)
      {after}
"""


def lines(fetch=(), made="tanh(X=x)", between="", after=""):
    return op_lines(SkipAssigns(), SINGLE.format(made=made, between=between, after=after), ["p", *fetch])


@pytest.mark.parametrize("made", ["tanh(X=x)", "scale(X=p) {{scale=0.5}}", "elementwise_add(X=p, Y=x)", "softmax(X=x)"])
def test_the_result_is_written_where_it_is_assigned(made):
    made = made.replace("{{", "{").replace("}}", "}")
    assert lines(made=made) == [f"p = {made}"]


def test_a_copy_with_a_role_of_its_own_stays():
    assert lines(made="tanh(X=x) {role='backward'}") == [
        "y = tanh(X=x) {role='backward'}",
        "p = assign(X=y)",
    ]


def test_the_result_takes_the_mark_of_a_loss():
    program = fluid.Program.parse("""
    block 0
      data x: float32[3]
      y: float32[3] = tanh(X=x)
      p: float32[3] = assign(X=y) {role='forward|loss'}
    """)
    program.roots = ("p",)
    (op,) = SkipAssigns()(program).global_block().ops
    assert (op.type, op.role) == ("tanh", Role.LOSS)


def test_assigns_in_a_row_go_at_once():
    program = fluid.Program.parse("""
    block 0
      persist p: float32[3]
      data x: float32[3]
      y: float32[3] = assign(X=x)
      z: float32[3] = assign(X=y)
      p = assign(X=z)
    """)
    program.roots = ("p",)
    assert SkipAssigns().apply(program)
    assert [str(op) for op in program.global_block().ops] == ["p = assign(X=x)"]
    assert not SkipAssigns().apply(program)


def test_other_readers_read_the_variable():
    between, after = "z: float32[3] = exp(X=y)", "w: float32[3] = relu(X=y)"
    assert lines(["z", "w"], between=between, after=after) == ["p = tanh(X=x)", "z = exp(X=p)", "w = relu(X=p)"]


@pytest.mark.parametrize(
    "given",
    [
        {"fetch": ["y"]},
        {"between": "z: float32[3] = exp(X=p)", "fetch": ["z"]},
        {"between": "p = exp(X=p)"},
        {"after": "p = exp(X=p)"},
        {"after": "y = exp(X=y)"},
        {
            "between": "q = assign(X=y)",
            "fetch": ["q", "z"],
            "after": "z: float32[3] = relu(X=p)\n      p = exp(X=q)",
        },
        {"made": "swish(X=p)"},
    ],
    ids=str,
)
def test_others_stay(given):
    assert any("p = assign(" in line for line in lines(**given))


def test_a_value_that_is_assigned_twice_is_written_once():
    left = lines(["q"], after="q = assign(X=y)")
    assert len(left) == 2
    assert sum("assign" in line for line in left) == 1


FETCHED = """
    block 0
      data x: float32[3]
      y: float32[3] = {made}
      z: float32[3] = {copy}
"""


def fetched(copy, made="tanh(X=x)", fetch=("z",)):
    return op_lines(SkipAssigns(), FETCHED.format(made=made, copy=copy), list(fetch))


@pytest.mark.parametrize("copy", ["assign(X=y)", "scale(X=y)", "scale(X=y) {scale=1.0, bias=0.0}"])
def test_a_copy_that_is_fetched_is_written_at_once(copy):
    assert fetched(copy) == ["z = tanh(X=x)"]


@pytest.mark.parametrize(
    "given",
    [
        {"copy": "scale(X=y) {scale=2.0}"},
        {"copy": "scale(X=y) {bias=1.0}"},
        {"copy": "scale(X=y) {bias_after_scale=False}"},  # turns -0.0 into 0.0
        {"copy": "assign(X=y)", "fetch": ["y", "z"]},
        {"copy": "assign(X=x)", "fetch": ["y", "z"]},
    ],
    ids=str,
)
def test_other_fetched_values_stay(given):
    assert len(fetched(**given)) == 2


AVERAGES = {
    "one factor": lambda p, a: layers.assign(a * 0.9, a),
    "average": lambda p, a: layers.assign(a * 0.9 + p * 0.1, a),
    "momentum": lambda p, a: (layers.assign(a * 0.9 + p, a), layers.assign(p - a * 0.1, p)),
    "difference": lambda p, a: layers.assign(layers.tanh(p) - a, a),
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])
@pytest.mark.parametrize("size", [3, 2000])
@pytest.mark.parametrize("what", AVERAGES)
def test_state_is_that_of_the_single_operators(what, size, jit):
    p, a = (layers.create_global_var([size], value, "float32", persistable=True, name=name)
            for name, value in (("p", 0.5), ("a", -0.25)))  # fmt: skip
    layers.assign(layers.elementwise_mul(p, fluid.data("x", [size])), p)
    AVERAGES[what](p, a)
    feed, found = {"x": np.linspace(-1, 1, size, dtype="float32")}, []
    strategy = fluid.BuildStrategy()
    strategy.skip_assigns = strategy.find_gradient_descent = strategy.fuse_elementwise = False
    for program in (fluid.CompiledProgram(fluid.default_main_program()),
                    fluid.CompiledProgram(fluid.default_main_program(), strategy)):  # fmt: skip
        executor, scope = fluid.Executor(jit=jit), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        for _ in range(40):  # with jit, tables of native calls from the 32nd on
            executor.run(program, feed, [], scope=scope)
        found.append([np.array(scope.find_var(name).get_tensor()) for name in ("p", "a")])
    for value, expected in zip(*found, strict=True):
        assert value.tobytes() == expected.tobytes()


@pytest.mark.timing
def test_applying_takes_linear_time():
    def averages(count):
        program = fluid.Program()
        with fluid.program_guard(program, fluid.Program()):
            for i in range(count):
                p = layers.create_global_var([3], 0.0, "float32", persistable=True, name=f"p{i}")
                layers.assign(p * 0.5, p)
        return program

    assert_linear(SkipAssigns(), averages)
