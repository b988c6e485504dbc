"""`verify` accepts programs that were built, and says what is wrong with broken ones."""

import linecache
import re

import pytest
from growth import assert_grows
from hypothesis import given, settings
from hypothesis import strategies as st

import minigraph as fluid
from minigraph import layers
from minigraph.errors import VerifyError
from minigraph.ir import Program
from minigraph.ir.other_values import other_value_read
from minigraph.ir.text.parser import parse
from minigraph.ir.verifier import verify, verify_rewritten
from minigraph.rewrite.strategies import trained_programs
from minigraph.types import DType, TensorType

SOUND = """
    block 0
      param w: float32[4]
      persist lr: float32[1]
      data x: float32[-1, 4]
      var given: float32[4]
      y: float32[-1, 4] = elementwise_mul(X=x, Y=w) {axis=1}
      z: float32[-1, 4] = scale(X=y) {scale=2.0}
      s: float32[4] = sum(X=[w, given])
      w = sgd(Param=w, LearningRate=lr, Grad=s)
"""


@pytest.mark.laws
@settings(deadline=None)
@given(trained_programs())
def test_a_program_that_was_built_is_sound(program):
    verify(program)
    verify(program.clone())


@pytest.mark.laws
@settings(deadline=None, max_examples=25)
@given(trained_programs(), st.randoms(use_true_random=False))
def test_a_program_without_one_of_its_values_is_not(program, random):
    block = program.global_block()
    name = random.choice(block.ops).output_arg_names[0]
    block.remove_var(name)
    with pytest.raises(VerifyError, match=re.escape(name)):
        verify(program)


def test_what_no_operator_writes_comes_from_outside():
    verify(parse(SOUND))


def test_a_sub_block_reads_what_its_parent_has():
    verify(
        parse("block 0\n  data x: float32[4]\n  var y: float32[4]\nblock 1 parent 0\n  y = relu(X=x)\n  y = relu(X=y)")
    )


@pytest.mark.parametrize("nested", [False, True])
def test_a_sub_block_makes_what_it_reads_of_its_own(nested):
    """Nobody can feed a variable of a sub-block; one of the global block may be."""
    program = Program()
    with fluid.program_guard(program):
        x, flag = fluid.data("x", [2]), fluid.data("flag", [1], "bool")

        def branch():
            return layers.relu(layers.scale(x, 2.0))

        layers.cond(flag, (lambda: layers.cond(flag, branch, branch)) if nested else branch, lambda: layers.tanh(x))
    verify(program)
    scale = next(op for block in program.blocks for op in block.ops if op.type == "scale")
    made, block = scale.output("Out")[0], scale.block
    block.remove(scale)
    with pytest.raises(VerifyError) as caught:
        verify(program)
    assert caught.value.message == f"relu reads {made}, which nobody makes in block {block.idx}"
    assert caught.value.op is block.ops[0]


def rename_a_variable(block):
    block.vars["other"] = block.vars.pop("y")


def take_a_variable_of_another_program(block):
    block.vars["y"] = Program().global_block().create_var(name="y", shape=[-1, 4])


def read_too_early(block):
    block.ops[0].replace_input("x", "z")


def read_what_does_not_exist(block):
    block.ops[0].replace_input("x", "xx")


def write_what_does_not_exist(block):
    block.ops[1].replace_output("z", "zz")


def forget_an_input(block):
    del block.ops[0].inputs["Y"]


def forget_an_output(block):
    block.ops[0].outputs["Out"] = ()


def use_an_unknown_slot(block):
    block.ops[0].inputs["Z"] = ("x",)


def crowd_a_slot(block):
    block.ops[0].inputs["X"] = ("x", "x")


def crowd_an_output(block):
    block.ops[0].outputs["Out"] = ("y", "z")


def declare_another_shape(block):
    block.var("y").tensor_type = TensorType(DType.FP32, (-1, 5))


def declare_another_dtype(block):
    block.var("z").tensor_type = TensorType(DType.FP64, (-1, 4))


def forget_a_type(block):
    block.var("z").tensor_type = None


def forget_the_type_of_an_input(block):
    block.var("given").tensor_type = None


def feed_what_does_not_fit(block):
    block.var("x").tensor_type = TensorType(DType.FP32, (-1, 7))


def hold_an_unknown_attribute(block):
    block.ops[1].attrs["scales"] = 1.0


def hold_an_attribute_of_the_wrong_type(block):
    block.ops[1].attrs["scale"] = "2"


def hold_an_attribute_that_is_not_converted(block):
    block.ops[1].attrs["scale"] = 2


def hold_a_default(block):
    block.ops[1].attrs["bias"] = 0.0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (rename_a_variable, "block 0 holds y of block 0 under the name other"),
        (take_a_variable_of_another_program, "block 0 holds y of another program"),
        (read_too_early, "elementwise_mul reads z before it is written"),
        (read_what_does_not_exist, "elementwise_mul reads xx, which does not exist"),
        (write_what_does_not_exist, "scale writes zz, which does not exist"),
        (forget_an_input, "elementwise_mul: input Y is missing"),
        (forget_an_output, "elementwise_mul: output Out is missing"),
        (use_an_unknown_slot, "elementwise_mul: unknown input slot Z"),
        (crowd_a_slot, "elementwise_mul: input X takes one variable, has 2"),
        (crowd_an_output, "elementwise_mul: output Out takes one variable, has 2"),
        (declare_another_shape, "elementwise_mul: y is declared float32[-1, 5] but is float32[-1, 4]"),
        (declare_another_dtype, "scale: z is declared float64[-1, 4] but is float32[-1, 4]"),
        (forget_a_type, "scale: z is declared unknown but is float32[-1, 4]"),
        (forget_the_type_of_an_input, "sum reads given, whose type is unknown"),
        (feed_what_does_not_fit, "elementwise_mul: shapes [-1, 7] and [4] do not broadcast"),
        (hold_an_unknown_attribute, "scale: unknown attribute scales"),
        (hold_an_attribute_of_the_wrong_type, "scale: attribute scale must be float, got '2'"),
        (hold_an_attribute_that_is_not_converted, "scale: attribute scale is held as 2"),
        (hold_a_default, "scale: attribute bias is held as 0.0"),
    ],
)
def test_a_broken_program_is_refused(spoil, message):
    program = parse(SOUND)
    spoil(program.global_block())
    with pytest.raises(VerifyError) as caught:
        verify(program)
    assert caught.value.message.startswith(message)


TRAINED = """
    block 0
      param w: float32[4]
      persist lr: float32[1]
      data x: float32[4]
      var g: float32[4]
      data fed: float32[4]
      y: float32[1] = mean(X=x) {role='loss'}
      w@GRAD: float32[4] = scale(X=w) {role='backward', role_vars=[w, w@GRAD]}
      w = sgd(Param=w, LearningRate=lr, Grad=w@GRAD) {role='optimize', role_vars=[w, w@GRAD]}
"""


def test_an_update_reads_a_gradient_that_something_makes():
    program = parse(TRAINED)
    update = program.global_block().ops[2]
    for name in ("w@GRAD", "fed", "w"):
        update.set_input("Grad", [name])
        verify(program)
    update.set_input("Grad", ["g"])
    with pytest.raises(VerifyError, match="sgd reads the gradient g, which nobody makes") as caught:
        verify(program)
    assert (caught.value.op, caught.value.names) == (update, ("g",))
    program.global_block().remove(1)  # without a backward pass every variable may be fed
    verify(program)


def test_role_vars_name_what_is_there():
    program = parse(TRAINED)
    backward = program.global_block().ops[1]
    backward.role_vars = ("w", "g")
    with pytest.raises(VerifyError, match="scale: role_vars names the gradient g, which the operator does not make"):
        verify(program)
    backward.role_vars = ("w", "w@GRAD@GONE")
    with pytest.raises(VerifyError, match="scale: role_vars names w@GRAD@GONE, which does not exist"):
        verify(program)


def test_what_a_program_reads_goes_on_being_made():
    before = parse(TRAINED)
    after = before.clone()
    after.global_block().remove(1)
    verify(after)
    with pytest.raises(VerifyError, match="sgd reads w@GRAD, which nobody makes any more"):
        verify_rewritten(before, after)
    after.global_block().var("w@GRAD").is_data = True
    verify_rewritten(before, after)
    after.global_block().remove(0)
    verify_rewritten(before, after)
    before.roots = after.roots = ("y",)
    with pytest.raises(VerifyError, match="y is fetched, but nobody makes it any more"):
        verify_rewritten(before, after)


OVERWRITTEN = """
    block 0
      data x: float32[2]
      h: float32[2] = scale(X=x) {scale=2.0}
      a: float32[2] = assign(X=h)
      h = relu(X=x)
      y: float32[2] = scale(X=a) {scale=3.0}
      z: float32[2] = tanh(X=h)
"""


def test_what_a_pass_makes_reads_no_later_value():
    before = parse(OVERWRITTEN)
    before.roots = ("y", "z")
    after = before.clone()
    block = after.global_block()
    block.remove(3)
    with block.inserting_before(block.ops[3]):
        fused = block.append_op("scale", {"X": "h"}, {"Out": "y"}, {"scale": 3.0})
    verify(after)
    with pytest.raises(VerifyError, match="scale reads the value of h that relu makes; before the pass") as caught:
        verify_rewritten(before, after)
    assert (caught.value.op, caught.value.names) == (fused, ("h",))
    block.remove(fused)
    with block.inserting_before(block.ops[2]):
        block.append_op("scale", {"X": "h"}, {"Out": "y"}, {"scale": 3.0})
    verify_rewritten(before, after)


def test_operators_that_change_places_keep_their_values():
    before = parse(OVERWRITTEN)
    before.roots = ("y", "z")
    after = before.clone()
    block = after.global_block()
    relu = block.ops[2]
    block.remove(relu)
    with block.inserting_before(block.ops[1]):
        block.append_op("relu", {"X": "x"}, {"Out": "h"})
    with pytest.raises(VerifyError, match="assign reads the value of h that relu makes; before"):
        verify_rewritten(before, after)


def test_a_result_may_be_computed_from_one_behind_it():
    before = parse("""
        block 0
          data x: float32[2]
          w: float32[2] = relu(X=x)
          h: float32[2] = scale(X=w) {scale=2.0}
          g: float32[2] = scale(X=h) {scale=4.0}
          w = scale(X=h) {scale=2.0}
    """)
    before.roots = ("g", "w")
    after = before.clone()
    block = after.global_block()
    block.remove(2)
    block.append_op("elementwise_add", {"X": "w", "Y": "w"}, {"Out": "g"})
    verify_rewritten(before, after)


def test_a_value_that_a_pass_makes_anew_may_be_read():
    before = parse(OVERWRITTEN)
    before.roots = ("y", "z")
    after = before.clone()
    block = after.global_block()
    block.remove(0)
    with block.inserting_before(block.ops[0]):
        block.append_op("elementwise_add", {"X": "x", "Y": "x"}, {"Out": "h"})
    verify_rewritten(before, after)


def test_the_error_shows_the_types_and_the_users_line():
    program = parse(SOUND)
    feed_what_does_not_fit(program.global_block())
    with pytest.raises(VerifyError) as caught:
        verify(program)
    assert caught.value.details == ("X = x: float32[-1, 7]", "Y = w: float32[4]")
    assert linecache.getline(caught.value.site.filename, caught.value.site.line).strip() == "program = parse(SOUND)"


def a_network():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        rnn = fluid.layers.StaticRNN()
        x = fluid.data("x", [3, 2, 4])
        with rnn.step():
            word = rnn.step_input(x)
            state = rnn.memory(shape=[-1, 4], batch_ref=word)
            after = fluid.layers.elementwise_add(word, state)
            rnn.update_memory(state, after)
            rnn.step_output(after)
        found = rnn()
    return main, found.name, after.name


def test_the_result_of_a_sub_block_has_its_type():
    main, result, _ = a_network()
    verify(main)
    main.global_block().var(result).tensor_type = TensorType(DType.FP32, (3, 2, 5))
    with pytest.raises(VerifyError, match=r"is declared float32\[3, 2, 5\] but is float32\[3, 2, 4\]") as caught:
        verify(main)
    assert (caught.value.op.type, caught.value.names) == ("recurrent", (result,))


def test_a_state_keeps_its_type():
    main, _, result = a_network()
    body = main.block(1)
    body.create_var(name="state", dtype="float64", shape=[2, 4])
    body.append_op("cast", {"X": result}, {"Out": "state"}, {"in_dtype": 5, "out_dtype": 6})
    (network,) = main.global_block().ops.of_type("recurrent")
    network.set_attr("states", ["state"])
    with pytest.raises(VerifyError, match=r"a state starts as float32\[2, 4\] and is updated to float64\[2, 4\]"):
        verify(main)


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        ("pow_grad(X=x, Out@GRAD=wide) {factor=2.0}", "Out@GRAD must have the type of Out, float32[3, 4]"),
        ("pow_grad(X=x, Out@GRAD=double) {factor=2.0}", "Out@GRAD must have the type of Out, float32[3, 4]"),
        ("relu_grad(Out=x, Out@GRAD=wide)", "Out@GRAD must have the type of Out, float32[3, 4]"),
        ("cross_entropy_grad2(MatchX=match, Label=label, XShape=shape, Y@GRAD=x)",
         "Y@GRAD must have the type of Y, float32[3, 1]"),
        ("reduce_sum_grad(X=x, Out@GRAD=wide) {dim=[0]}", "Out@GRAD must have the type of Out, float32[4]"),
        ("transpose2_grad(XShape=front, Out@GRAD=x) {axis=[1, 0]}",
         "Out@GRAD must have the type of Out, float32[4, 3]"),
        ("softmax_grad(Out=x, Out@GRAD=wide)", "Out@GRAD must have the type of Out, float32[3, 4]"),
    ],
)  # fmt: skip
def test_what_flows_into_a_gradient_has_the_type_of_the_result(gradient, message):
    text = f"""
        block 0
          data x: float32[3, 4]
          data wide: float32[3, 5]
          data double: float64[3, 4]
          data match: float32[3, 1]
          data label: int64[3, 1]
          data shape: float32[3, 4, 0]
          data front: float32[0, 3, 4]
          dx: float32[3, 4] = {gradient}
    """
    with pytest.raises(VerifyError, match=re.escape(message)):
        verify(parse(text))


@pytest.mark.timing
@pytest.mark.parametrize("is_chain", [False, True])
def test_the_values_of_one_name_are_compared_in_linear_time(is_chain):
    def overwriting(kind, count):
        """A name is written again and again, and its values are added up, in one variable or in a new one each."""
        block = fluid.Program().global_block()
        for name in ("s", "total", "result"):
            block.create_var(name=name, shape=[2], dtype="float32", persistable=True)
        last = "total"
        for i in range(count):
            block.append_op("scale", inputs={"X": "s"}, outputs={"Out": "s"}, attrs={"scale": 2.0})
            total = block.create_var(name=f"{kind}{i}", shape=[2], dtype="float32").name if is_chain else last
            block.append_op(kind, inputs={"X": last, "Y": "s"}, outputs={"Out": total})
            last = total
        block.append_op("relu", inputs={"X": last}, outputs={"Out": "result"})
        return block

    def comparison(count):
        before, after = (overwriting(kind, count) for kind in ("elementwise_add", "elementwise_sub"))
        return lambda: other_value_read(before, after)

    assert_grows(comparison, 200, factor=4, limit=6)
