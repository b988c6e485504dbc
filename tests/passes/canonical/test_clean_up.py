"""CleanUp leaves out copies, and nothing else."""

import numpy as np
import pytest
from pass_laws import assert_linear, keeps_the_bits, op_lines
from sampled import DETERMINISTIC, each, with_gradients

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import CleanUp, Pipeline, RemoveDeadOps
from minigraph.passes.canonical import clean_up

test_training, test_overwriting = keeps_the_bits(CleanUp())


def test_copies_are_left_out():
    text = """
        block 0
          data x: float32[2, 3]
          a: float32[2, 3] = assign(X=x)
          b: float32[2, 3] = scale(X=a)
          c: float32[2, 3] = cast(X=b) {in_dtype=5, out_dtype=5}
          d: float32[2, 3] = sum(X=[c])
          Out=e: float32[2, 3] = reshape2(X=d) {shape=[2, 3]}
          f: float32[2, 3] = tanh(X=e)
    """
    assert op_lines(CleanUp(), text, ["f"]) == ["f = tanh(X=x)"]


def test_a_gradient_of_a_reshape_that_writes_nothing_is_left_alone():
    text = """
        block 0
          data x: float32[2, 3]
          Out=a: float32[6], XShape=s: float32[0, 2, 3] = reshape2(X=x) {shape=[6]}
          b: float32[6] = assign(X=a)
          reshape2_grad(XShape=s, Out@GRAD=b)
          c: float32[6] = tanh(X=b)
    """
    assert "c = tanh(X=a)" in op_lines(CleanUp(), text, ["c"])


def test_a_reshape_between_shapes_that_are_not_known_is_no_copy():
    text = """
        block 0
          data x: float32[4, -1]
          Out=a: float32[-1] = reshape2(X=x) {shape=[-1]}
          b: float32[-1] = tanh(X=a)
    """
    assert op_lines(CleanUp(), text, ["b"]) == ["Out=a = reshape2(X=x) {shape=[-1]}", "b = tanh(X=a)"]


def test_what_is_fetched_or_persistable_is_still_copied():
    text = """
        block 0
          persist w: float32[2]
          data x: float32[2]
          a: float32[2] = assign(X=x)
          w = assign(X=a)
          b: float32[2] = tanh(X=a)
    """
    assert op_lines(CleanUp(), text, ["a", "b"]) == ["a = assign(X=x)", "w = assign(X=x)", "b = tanh(X=x)"]


def test_a_copy_is_read_once_the_original_is_written_again():
    text = """
        block 0
          persist w: float32[1]
          a: float32[1] = assign(X=w)
          b: float32[1] = tanh(X=a)
          w = increment(X=w)
          c: float32[1] = tanh(X=a)
    """
    assert op_lines(CleanUp(), text, ["b", "c"]) == [
        "a = assign(X=w)",
        "b = tanh(X=w)",
        "w = increment(X=w)",
        "c = tanh(X=a)",
    ]


@pytest.mark.parametrize(
    ("copy", "is_left_out"),
    [
        ("scale(X=x)", True),
        ("scale(X=x) {bias=-0.0}", True),
        ("scale(X=x) {scale=2.0}", False),
        ("scale(X=x) {bias=1.0}", False),
        ("scale(X=x) {bias_after_scale=False}", False),  # -0.0 + 0.0 is 0.0
        ("scale(X=x, ScaleTensor=one)", False),
        ("cast(X=x) {in_dtype=5, out_dtype=6}", False),
        ("sum(X=[x, x])", False),
    ],
)
def test_what_changes_a_bit_stays(copy, is_left_out):
    dtype = "float64" if "out_dtype=6" in copy else "float32"
    text = f"""
        block 0
          data x: float32[2]
          data one: float32[1]
          a: {dtype}[2] = {copy}
          b: {dtype}[2] = tanh(X=a)
    """
    assert (len(op_lines(CleanUp(), text, ["b"])) == 1) == is_left_out


def test_a_copy_of_float16_is_left_out():
    text = "block 0\n data x: float16[2]\n a: float16[2] = scale(X=x)\n b: float16[2] = tanh(X=a)"
    assert len(op_lines(CleanUp(), text, ["b"])) == 1


def test_transposes_that_cancel_are_left_out():
    text = """
        block 0
          data x: float32[2, 3, 4]
          Out=a: float32[3, 4, 2] = transpose2(X=x) {axis=[1, 2, 0]}
          Out=b: float32[2, 3, 4] = transpose2(X=a) {axis=[2, 0, 1]}
          c: float32[2, 3, 4] = tanh(X=b)
          Out=d: float32[4, 2, 3] = transpose2(X=a) {axis=[1, 2, 0]}
          e: float32[4, 2, 3] = tanh(X=d)
    """
    assert op_lines(CleanUp(), text, ["c"]) == ["c = tanh(X=x)"]
    assert len(op_lines(CleanUp(), text, ["e"])) == 3


def test_a_reshape_reads_what_the_reshape_before_it_reads():
    text = """
        block 0
          data x: float32[2, 6]
          Out=a: float32[12] = reshape2(X=x) {shape=[-1]}
          Out=b: float32[3, 4] = reshape2(X=a) {shape=[-1, 4]}
          c: float32[3, 4] = tanh(X=b)
    """
    assert op_lines(CleanUp(), text, ["c"]) == ["Out=b = reshape2(X=x) {shape=[3, 4]}", "c = tanh(X=b)"]


def test_a_copy_of_what_does_not_lie_row_by_row_stays():
    text = """
        block 0
          data x: float32[2, 3]
          Out=a: float32[3, 2] = transpose2(X=x) {axis=[1, 0]}
          b: float32[3, 2] = tanh(X=a)
          c: float32[3, 2] = assign(X=b)
          d: float32[1] = mean(X=c)
    """
    assert len(op_lines(CleanUp(), text, ["d"])) == 4


def test_the_gradient_of_a_reshape_keeps_the_shape_that_it_needs():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        w = fluid.layers.create_parameter([2, 6], "float32", attr=fluid.ParamAttr("w"))
        y = fluid.layers.tanh(fluid.layers.reshape(fluid.layers.reshape(w, [12]), [3, 4]))
        (_, grad), = fluid.append_backward(fluid.layers.mean(y))  # fmt: skip
        executor = fluid.Executor()
        executor.run(startup)
        (found,) = executor.run(main, fetch_list=[grad])
    value = np.array(fluid.global_scope().find_var("w").get_tensor())
    np.testing.assert_allclose(found, (1 - np.tanh(value) ** 2) / 12, rtol=1e-5)


class InRows(Interpreter):
    """Look at the results of the operators that keep rows, on inputs that lie row by row."""

    def _results(self, op, read):
        found = super()._results(op, lambda name: np.asarray(read(name), order="C"))
        if op.type in clean_up._KEEP_ROWS | clean_up._MAKE_ROWS:
            arrays = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
            scattered = [name for name, value in arrays.items() if not value.flags.c_contiguous]
            assert not scattered, f"{op.type}: {scattered}"
        return found


@each([s for s in DETERMINISTIC if s.op in clean_up._KEEP_ROWS | clean_up._MAKE_ROWS])
def test_operators_that_keep_rows_do(sample):
    built = with_gradients(sample, sample.dtypes[0])
    block = built.program.global_block()
    names = dict.fromkeys(name for op in block.ops for name in op.output_arg_names if name in block.vars)
    built.fetch([block.vars[name] for name in names], InRows())


def test_the_gradient_of_a_shift_is_left_out_behind_each_activation():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 3])
        x.stop_gradient = False
        loss = layers.mean(layers.relu6(x + 3.0) + layers.leaky_relu(x + 2.0) + layers.elu(x + 1.0))
        (grad,) = fluid.gradients([loss], [x])
        main = fluid.default_main_program()
        main.roots = (grad.name,)
        shifts = [
            Pipeline(passes)(main).global_block().ops.of_type("scale") for passes in ((), (CleanUp(), RemoveDeadOps()))
        ]
        assert [len(each) for each in shifts] == [6, 3]


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program):
            x = fluid.data("x", [2, 3])
            for _ in range(count // 2):
                x = fluid.layers.assign(fluid.layers.tanh(x))
        program.roots = (x.name,)
        return program

    assert_linear(CleanUp(), make)


def test_a_value_that_had_another_shape_is_no_copy():
    """`y` is declared with the shape of its last value; the reshape between makes no copy of the one before."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        d = fluid.data("d", [2, 3])
        y = layers.scale(d, 2.0)
        layers.reshape(y, [6], inplace=True)
        flat = layers.relu(y)
        z = layers.reshape(y, [2, 3])
        main.global_block().append_op("elementwise_mul", {"X": z, "Y": d}, {"Out": y})
        out = layers.elementwise_add(y, z)
    main.roots = (out.name, flat.name)
    feed = {"d": np.arange(6, dtype="float32").reshape(2, 3) - 2}
    runs = [Interpreter().run(each, feed, [out, flat], scope=fluid.Scope()) for each in (main, CleanUp()(main))]
    for expected, found in zip(*runs, strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)
