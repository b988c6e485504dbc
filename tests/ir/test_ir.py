"""Programs, blocks, operators, variables and roles."""

import copy
import enum
import gc
import json
import linecache
import pickle
import threading
import types
import warnings

import numpy as np
import pytest
from drawn_programs import PretendClip, any_programs
from growth import assert_grows
from hypothesis import HealthCheck, given, settings

import minigraph as fluid
from minigraph import framework, unique_name
from minigraph.errors import NotFoundError, OpError, ProgramError, WrongTypeError
from minigraph.ir import Block, Parameter, Program, Role, Variable, VarKind
from minigraph.ir.default_programs import default_main_program, default_startup_program, program_guard
from minigraph.ir.name_scope import current_name_scope, name_scope
from minigraph.ir.text.parser import parse
from minigraph.ir.verifier import verify
from minigraph.opdef import OpDef
from minigraph.rewrite.strategies import trained_programs
from minigraph.types import DType, TensorType


def a_block(count=0):
    """A block of `count` operators, number i writing ``t<i>``."""
    block = Program().global_block()
    block.create_var(name="x", shape=[-1, 4], is_data=True, stop_gradient=True)
    for i in range(count):
        block.append_op("scale", {"X": "x"}, {"Out": f"t{i}"}, {"scale": float(i + 2)})
    return block


def written(block):
    return [op.output_arg_names[0] for op in block.ops]


def line_of(error):
    return linecache.getline(error.site.filename, error.site.line).strip()


# The list of operators


def test_operators_stand_in_order_of_appending():
    block = a_block(3)
    assert written(block) == ["t0", "t1", "t2"]
    assert [op.idx for op in block.ops] == [0, 1, 2]
    assert (len(block.ops), block.ops[-1], block.ops[1:]) == (3, block.ops.last, [block.ops[1], block.ops[2]])
    assert list(reversed(block.ops)) == list(block.ops)[::-1]


def test_the_operators_of_a_type_are_those_of_now():
    block = a_block(2)
    first, second = block.ops.of_type("scale")
    assert (block.ops.of_type("relu"), list(block.ops.by_type)) == ((), ["scale"])
    relu = block.insert(second, "relu", {"X": "x"}, {"Out": "a"})
    last = block.append_op("scale", {"X": "x"}, {"Out": "b"}, {"scale": 3.0})
    assert block.ops.by_type == {"scale": [first, second, last], "relu": [relu]}
    block.remove(second)
    block.remove(relu)
    assert block.ops.by_type == {"scale": [first, last]}


def test_an_operator_is_inserted_in_front_of_another():
    block = a_block(2)
    second = block.ops[1]
    block.insert(second, "relu", {"X": "x"}, {"Out": "a"})
    block.insert(0, "relu", {"X": "x"}, {"Out": "b"})
    block.insert(4, "relu", {"X": "x"}, {"Out": "c"})
    block.insert(None, "relu", {"X": "x"}, {"Out": "d"})
    block.prepend_op("relu", {"X": "x"}, {"Out": "e"})
    assert written(block) == ["e", "b", "t0", "a", "t1", "c", "d"]
    assert [block.ops[i] for i in range(7)] == list(block.ops)


def test_a_removed_operator_knows_no_block_and_cannot_leave_twice():
    block = a_block(3)
    op = block.ops[1]
    block.remove(op)
    block.remove(-1)
    assert written(block) == ["t0"]
    with pytest.raises(ProgramError, match="was removed from its block"):
        _ = op.block
    with pytest.raises(ProgramError, match="scale is not an operator of block 0"):
        block.remove(op)
    with pytest.raises(ProgramError, match="scale is not an operator of block 0"):
        block.insert(op, "relu", {"X": "x"}, {"Out": "a"})


def test_removing_all_leaves_an_empty_list_that_can_grow_again():
    block = a_block(3)
    for op in block.ops:
        block.remove(op)
    assert (len(block.ops), list(block.ops), block.ops.first, block.ops.last) == (0, [], None, None)
    block.append_op("relu", {"X": "x"}, {"Out": "a"})
    assert written(block) == ["a"]


def test_while_iterating_any_operator_may_be_removed():
    block = a_block(6)
    seen = []
    for op in block.ops:
        seen.append(op.output_arg_names[0])
        if seen[-1] == "t1":
            for i in (3, 2, 1, 0):  # the one at hand, those around it
                block.remove(i)
    assert seen == ["t0", "t1", "t4", "t5"]
    assert written(block) == ["t4", "t5"]


def test_while_iterating_backward_any_operator_may_be_removed():
    block = a_block(6)
    seen = []
    for op in reversed(block.ops):
        seen.append(op.output_arg_names[0])
        if seen[-1] == "t4":
            for i in (4, 3, 2):
                block.remove(i)
    assert seen == ["t5", "t4", "t1", "t0"]


def test_while_iterating_what_is_inserted_behind_is_visited():
    block = a_block(2)
    seen = []
    for op in block.ops:
        seen.append(op.output_arg_names[0])
        if seen[-1] == "t0":
            block.insert(op, "relu", {"X": "x"}, {"Out": "in front"})
            block.insert(op._next, "relu", {"X": "x"}, {"Out": "after"})
    assert seen == ["t0", "after", "t1"]
    assert written(block) == ["in front", "t0", "after", "t1"]


def test_replacing_each_operator_while_iterating_visits_each_once():
    block = a_block(4)
    for op in block.ops:
        block.insert(op, "relu", {"X": "x"}, {"Out": f"new {op.output_arg_names[0]}"})
        block.remove(op)
    assert written(block) == ["new t0", "new t1", "new t2", "new t3"]


@pytest.mark.timing
def test_inserting_and_removing_take_constant_time():
    def work(count):
        block = a_block(count)
        anchor = block.ops[count // 2]

        def insert_and_remove():
            for _ in range(300):
                block.remove(block.insert(anchor, "relu", {"X": "x"}, {"Out": "a"}))

        return insert_and_remove

    assert_grows(work, 200, factor=100, limit=8)


def test_every_change_raises_the_version():
    block = a_block(2)
    op = block.ops[0]
    changes = [
        lambda: block.create_var(name="v"),
        lambda: block.create_parameter("p", [1]),
        lambda: block.append_op("relu", {"X": "x"}, {"Out": "a"}),
        lambda: op.set_attr("scale", 9.0),
        lambda: op.replace_input("x", "t1"),
        lambda: op.replace_output("t0", "a"),
        lambda: block.remove(op),
        lambda: block.remove_var("v"),
    ]
    for change in changes:
        before = block.program.version
        change()
        assert block.program.version > before


# Operators


def test_an_operator_is_read_by_slot_and_attribute():
    block = a_block(1)
    op = block.ops[0]
    assert (op.type, op.input("X"), op.output("Out"), op.input("ScaleTensor")) == ("scale", ["x"], ["t0"], [])
    assert (op.attr("scale"), op.attr("bias"), op.attrs) == (2.0, 0.0, {"scale": 2.0})
    assert (op.attrs["scale"], op.attrs["bias"], "bias" in op.attrs) == (2.0, 0.0, False)
    with pytest.raises(NotFoundError, match="scale has no attribute 'bais'"):
        op.attrs["bais"]
    assert op.all_attrs() == {"scale": 2.0, "bias": 0.0, "bias_after_scale": True}
    assert (op.attr("op_role"), op.attr("op_role_var"), op.attr("op_namescope")) == (0, [], "/")
    with pytest.raises(NotFoundError, match="scale has no slot 'Z'"):
        op.input("Z")
    with pytest.raises(NotFoundError, match="scale has no attribute 'bais'") as caught:
        op.attr("bais")
    assert caught.value.hint == "Did you mean bias?"


def test_get_gives_the_default_of_an_attribute_too():
    op = a_block(1).ops[0]
    assert (op.attrs.get("scale"), op.attrs.get("bias"), op.attrs.get("bias", 3.0)) == (2.0, 0.0, 0.0)
    assert (op.attrs.get("axis"), op.attrs.get("axis", -1)) == (None, -1)  # a scale has none
    cast = Program.parse("block 0\n  data x: int64[2]").global_block().append_op(
        "cast", {"X": "x"}, {"Out": "y"}, {"in_dtype": 3, "out_dtype": 5}
    )  # fmt: skip
    del cast.attrs["in_dtype"]
    assert cast.attrs.get("in_dtype") is None  # it has no default


@pytest.mark.parametrize("through", ["layers", "text", "pickle", "description", "set_attr"])
def test_the_element_type_in_an_attribute_is_a_number_that_equals_its_names(through):
    program = Program.parse("""
        block 0
          data x: float32[2]
          y: int64[2] = cast(X=x) {in_dtype=float32, out_dtype=int64}
          one: float32[2] = fill_constant() {shape=[2]}
    """)
    if through == "layers":
        program = Program()
        with program_guard(program):
            fluid.layers.cast(fluid.data("x", [2]), "int64")
            fluid.layers.fill_constant([2], "float32", 1.0)
    elif through == "pickle":
        program = pickle.loads(pickle.dumps(copy.deepcopy(program)))
    elif through == "description":
        program = Program.parse_from_string(program.desc.serialize_to_string())
    cast, constant = program.global_block().ops
    for same in (3, np.int64, np.dtype("int64"), DType.INT64, "int64") if through == "set_attr" else ():
        cast.set_attr("out_dtype", 2)
        cast.set_attr("out_dtype", same)
        assert cast.attrs["out_dtype"] == 3
    number = cast.attr("out_dtype")
    assert number is cast.attrs["out_dtype"]
    for same in (3, "int64", np.int64, np.dtype("int64"), np.int64(3), DType.INT64):
        assert (number == same, same == number, number != same) == (True, True, False)
    for other in (2, "int32", np.float32, np.dtype("int32"), DType.FP32, None, (), 3.5):
        assert (number == other, other == number, number != other) == (False, False, True)
    with pytest.raises(WrongTypeError, match="'int46' is not an element type"):
        number == "int46"  # noqa: B015
    assert number in ("int64", "int32")
    assert constant.attr("dtype") == "float32"  # also a default
    assert constant.all_attrs()["dtype"] == "float32"
    assert cast.attr("in_dtype") != "float64"
    with pytest.raises(OpError, match="attribute out_dtype must be int, got 'int46'"):
        cast.set_attr("out_dtype", "int46")
    # It is the number of fluid everywhere else.
    assert isinstance(number, int)
    assert (str(number), repr(number), f"{number}", json.dumps({"dtype": number})) == ("3", "3", "3", '{"dtype": 3}')
    assert {3: "a"}[number] == "a"
    assert type(pickle.loads(pickle.dumps(number))) is int
    assert copy.deepcopy(number) is number is copy.copy(number)


def test_an_attribute_that_is_set_to_its_default_is_not_held():
    op = a_block(1).ops[0]
    op.set_attr("scale", 1)
    assert op.attrs == {}
    with pytest.raises(OpError, match="attribute scale must be float, got 'a'"):
        op.set_attr("scale", "a")


def test_a_use_is_replaced_wherever_it_occurs():
    block = a_block()
    op = block.append_op("sum", {"X": ["x", "x"]}, {"Out": "y"})
    block.create_var(name="z", shape=[-1, 4])
    op.replace_input("x", block.var("z"))
    assert op.input("X") == ["z", "z"]


@pytest.mark.parametrize(
    ("args", "error", "message", "hint"),
    [
        (("scael", {"X": "x"}, {"Out": "y"}), NotFoundError, "there is no operator type 'scael'", "Did you mean scale"),
        (("relu", {"x": "x"}, {"Out": "y"}), OpError, "relu: unknown input slot 'x'", "It has X."),
        (("relu", {"X": "x"}, {"Outt": "y"}), OpError, "relu: unknown output slot 'Outt'", "Did you mean Out?"),
        (("relu", {}, {"Out": "y"}), OpError, "relu: input X is missing", "inputs={'X': ...}"),
        (("relu", {"X": "x"}), OpError, "relu: output Out is missing", "outputs={'Out': ...}"),
        (("relu", {"X": ["x", "x"]}, {"Out": "y"}), OpError, "input X takes one variable, got 2: x, x", ""),
        (
            ("relu", {"X": "xx"}, {"Out": "y"}),
            NotFoundError,
            "relu: X names 'xx', which does not exist",
            "Did you mean x?",
        ),
        (("relu", {"X": "late"}, {"Out": "y"}), OpError, "relu: X reads late, which nothing has written yet", ""),
        (("relu", {"X": 3}, {"Out": "y"}), WrongTypeError, "a Variable or its name is needed, got int", ""),
        (("relu", {"X": "n"}, {"Out": "y"}), OpError, "relu: ", ""),
        (
            ("scale", {"X": "x"}, {"Out": "y"}, {"scal": 1}),
            OpError,
            "scale: unknown attribute scal",
            "Did you mean scale?",
        ),
        (("scale", {"X": "x"}, {"Out": "y"}, {"scale": "1"}), OpError, "attribute scale must be float, got '1'", ""),
        (
            ("clip_by_norm", {"X": "x"}, {"Out": "y"}),
            OpError,
            "attribute max_norm is missing",
            "attrs={'max_norm': ...}",
        ),
        (
            ("relu", {"X": "x"}, {"Out": "n"}),
            OpError,
            "the result is float32[-1, 4] but n is declared int64[2]",
            "Write to",
        ),
    ],
)
def test_an_operator_that_does_not_fit_is_refused_at_the_users_line(args, error, message, hint):
    block = a_block()
    block.create_var(name="n", shape=[2], dtype="int64")
    block.create_var(name="late")
    before = str(block.program)
    with pytest.raises(error) as caught:
        block.append_op(*args)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert line_of(caught.value) == "block.append_op(*args)"
    assert str(block.program) == before


def test_attributes_that_only_choose_an_implementation_are_taken():
    """Operators that fluid's layers and optimizers append have them, and so have users' classes that are like these."""
    block = a_block()
    block.append_op("elementwise_pow", {"X": "x", "Y": "x"}, {"Out": "y"}, {"x_data_format": "", "y_data_format": ""})
    op = block.append_op("scale", {"X": "x"}, {"Out": "y"}, {"min_row_size_to_use_multithread": 1000, "scale": 2.0})
    assert op.attrs == {"scale": 2.0}
    with pytest.raises(OpError, match="x_data_format serves a backend"):
        block.append_op("elementwise_pow", {"X": "x", "Y": "x"}, {"Out": "y"}, {"x_data_format": "nchw"})


def test_an_error_shows_the_types_of_the_inputs():
    block = a_block()
    block.create_parameter("w", [5])
    with pytest.raises(OpError) as caught:
        block.append_op("elementwise_add", {"X": "x", "Y": "w"}, {"Out": "y"})
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("elementwise_add: ")
    assert lines[1:3] == ["  X = x: float32[-1, 4]", "  Y = w: float32[5]"]
    assert "test_ir.py" in lines[3]
    assert 'in: block.append_op("elementwise_add"' in lines[3]


def test_an_operator_remembers_the_users_line():
    block = a_block()
    op = block.append_op("relu", {"X": "x"}, {"Out": "y"})
    assert line_of(op) == 'op = block.append_op("relu", {"X": "x"}, {"Out": "y"})'


def test_the_operators_of_a_layer_stand_on_the_line_that_calls_it():
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 3])
        y = fluid.layers.fc(x, 2, act="tanh")
        with pytest.raises(WrongTypeError) as caught:
            fluid.layers.fc("y", 2)
        fluid.layers.relu(y)
    *layer, relu = main.global_block().ops
    for op in [*layer, *startup.global_block().ops]:
        assert line_of(op) == 'y = fluid.layers.fc(x, 2, act="tanh")'
    assert line_of(caught.value) == 'fluid.layers.fc("y", 2)'
    assert line_of(relu) == "fluid.layers.relu(y)"


def test_what_is_inserted_for_an_operator_has_its_line_and_the_role_asked_for():
    block = a_block(1)
    served = block.ops[0]
    with block.inserting_before(served, role=Role.BACKWARD):
        first = block.append_op("relu", {"X": "x"}, {"Out": "a"})
        with unique_name.guard():
            out = block.emit("clip_by_norm", X="a", max_norm=1.0)
    after = block.append_op("relu", {"X": "x"}, {"Out": "b"})
    assert written(block) == ["a", "clip_by_norm_0.tmp_0", "t0", "b"]
    assert out.name == "clip_by_norm_0.tmp_0"
    assert [op.role for op in block.ops] == [Role.BACKWARD, Role.BACKWARD, Role.FORWARD, Role.FORWARD]
    assert first.site == served.site
    assert line_of(after).startswith("after = ")


def test_emit_names_every_output():
    block = a_block()
    with unique_name.guard():
        out = block.emit("dropout", X="x", dropout_prob=0.25, stop_gradient=True)
    assert str(block.ops[0]).startswith(
        "Out=dropout_0.tmp_0: float32[-1, 4] {stop_gradient=True}, Mask=dropout_0.tmp_1: "
    )
    assert (out.name, out.stop_gradient, block.ops[0].attr("dropout_prob")) == ("dropout_0.tmp_0", True, 0.25)


# Roles


def test_roles_are_given_inside_a_guard_and_end_with_it():
    block = a_block()
    program = block.program
    with program.role_guard(Role.OPTIMIZE, [block.var("x"), "x@GRAD"]):
        with program.role_guard(Role.LR_SCHED):
            block.append_op("relu", {"X": "x"}, {"Out": "a"})
        block.append_op("relu", {"X": "x"}, {"Out": "b"})
    with pytest.raises(KeyError), program.role_guard(Role.BACKWARD):
        raise KeyError
    block.append_op("relu", {"X": "x"}, {"Out": "c"})
    assert [op.role for op in block.ops] == [Role.LR_SCHED, Role.OPTIMIZE, Role.FORWARD]
    assert [op.role_vars for op in block.ops] == [(), ("x", "x@GRAD"), ()]


def test_the_update_consists_of_the_operators_that_fluid_counts():
    with program_guard(Program(), Program()):
        x, y = (fluid.layers.data(name, [width]) for name, width in (("x", 3), ("y", 1)))
        attr = fluid.ParamAttr(regularizer=fluid.regularizer.L2Decay(0.1))
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1, param_attr=attr), y))
        rate = fluid.layers.exponential_decay(0.1, 2, 0.5)
        fluid.optimizer.SGD(rate, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)).minimize(loss)
        ops = list(default_main_program().global_block().ops)
    norm = "square reduce_sum square reduce_sum sum sqrt fill_constant elementwise_max elementwise_div"
    update = f"{norm} elementwise_mul elementwise_mul scale sum sgd sgd".split()  # recorded from 1.8.5
    assert [op.type for op in ops if op._is_optimize_op()] == update == [op.type for op in ops[-len(update) :]]


def test_the_role_attribute_has_fluids_numbers():
    block = a_block()
    attrs = {"op_role": int(Role.BACKWARD | Role.LOSS), "op_role_var": ["x", "x@GRAD"], "op_namescope": "/a/"}
    op = block.append_op("relu", {"X": "x"}, {"Out": "a"}, attrs)
    assert (op.role, op.role_vars, op.namescope) == (Role.BACKWARD | Role.LOSS, ("x", "x@GRAD"), "/a/")
    assert {name: op.attr(name) for name in attrs} == attrs
    op.role |= Role.CLIP
    assert op.attr("op_role") == 257  # fluid has no number for it


# Variables


def test_a_variable_has_fluids_fields():
    var = a_block().var("x")
    assert (var.shape, var.dtype, var.type, var.lod_level, var.grad_name) == (
        (-1, 4), DType.FP32, VarKind.LOD_TENSOR, 0, "x@GRAD",
    )  # fmt: skip
    assert (str(var), repr(var)) == ("x: float32[-1, 4]", "<Variable x: float32[-1, 4]>")


def test_the_same_variable_may_be_asked_for_again():
    block = a_block()
    assert block.create_var(name="x") is block.var("x")
    assert block.create_var(name="x", shape=[None, 4], dtype="float32") is block.var("x")
    w = block.create_parameter("w", [4])
    assert block.create_parameter("w", [4]) is w


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (
            lambda b: b.create_var(name="x", shape=[4]),
            r"x is already a float32\[-1, 4\], it cannot also be a float32\[4\]",
        ),
        (lambda b: b.create_var(name="x", shape=[-1, 4], dtype="int64"), "cannot also be a int64"),
        (lambda b: b.create_var(name="v", shape=[-2]), "v: a dimension must be at least 0, or -1 for unknown"),
        (lambda b: b.create_var(name="v", shape=[1], lod_level=-1), "lod_level must be a whole number from 0"),
        (lambda b: b.create_parameter("x", [4]), r"x: float32\[-1, 4\] is not a parameter"),
        (lambda b: b.create_parameter("v", [-1, 4]), "parameter v: every dimension must be known"),
    ],
)
def test_a_variable_that_cannot_be_is_refused_at_the_users_line(create, message):
    block = a_block()
    with pytest.raises(ProgramError, match=message) as caught:
        create(block)
    assert caught.value.site.filename == __file__


@pytest.mark.parametrize(
    ("given", "found"), [("double", "float64"), ("f4", "float32"), ("half", "float16"), (float, "float64")]
)
def test_an_element_type_may_have_any_of_numpys_names(given, found):
    assert str(a_block().create_var(name="v", shape=[1], dtype=given).dtype) == found


def test_a_variable_knows_the_operator_that_writes_it():
    block = a_block()
    x = block.create_var(name="new", shape=[2], dtype="float32")
    assert x.op is None
    first = block.append_op("fill_constant", {}, {"Out": x}, {"shape": [2], "value": 1.0})
    assert x.op is first
    assert block.append_op("scale", {"X": x}, {"Out": x}, {"scale": 2.0}) is x.op


def test_an_unknown_element_type_is_refused():
    with pytest.raises(WrongTypeError, match="'float23' is not an element type"):
        a_block().create_var(name="v", shape=[1], dtype="float23")


def test_an_unknown_variable_is_suggested():
    block = a_block(1)
    with pytest.raises(NotFoundError, match="block 0 has no variable 'tt0'") as caught:
        block.var("tt0")
    assert caught.value.hint == "Did you mean t0?"
    with pytest.raises(KeyError):
        block.var("tt0")
    with pytest.raises(WrongTypeError, match="the name of a variable must be a str, got 3"):
        block.var(3)
    assert (block.has_var("tt0"), block.find_var("tt0")) == (False, None)


def test_a_condition_cannot_decide_an_if():
    x = a_block().create_var(name="is_large", shape=[1], dtype="bool")
    with pytest.raises(ProgramError, match="the value of is_large is not known") as caught:
        if x:
            pass
    assert "layers.cond" in caught.value.hint
    assert line_of(caught.value) == "if x:"


def test_a_variable_is_true_in_an_if():
    """`if attn_bias:` asks whether it was given; a number there is more likely a mistake."""
    block = a_block()
    assert block.var("x")
    with pytest.warns(UserWarning, match="whether there is a variable step, not for its value") as caught:
        assert block.create_var(name="step", shape=[1])
    assert caught[0].filename == __file__


def test_a_sub_block_finds_the_variables_of_its_parents():
    program = parse("block 0\n  data x: float32[4]\nblock 1 parent 0\n  y: float32[4] = relu(X=x)\nblock 2 parent 1")
    inner = program.block(2)
    assert inner.find_var("x") is program.global_block().var("x")
    assert inner.find_var("y") is program.block(1).var("y")
    assert inner.parent_block is program.block(1)
    with pytest.raises(NotFoundError, match="the program has blocks 0 to 2, not 3"):
        program.block(3)


# Programs


def test_parameters_are_listed_in_order_of_creation():
    program = parse("""
        block 0
          param b: float32[1]
          data x: float32[1]
          param a: float32[1]
        block 1 parent 0
          param c: float32[1]
    """)
    assert [p.name for p in program.all_parameters()] == ["b", "a", "c"]
    assert [v.name for v in program.list_vars()] == ["b", "x", "a", "c"]


def test_the_random_seed_is_an_int():
    program = Program()
    program.random_seed = 3
    assert program.random_seed == 3
    for bad in (1.0, True, "1"):
        with pytest.raises(WrongTypeError, match="random_seed must be an int"):
            program.random_seed = bad


IMMUTABLE = (str, int, float, type(None), enum.Enum, OpDef, PretendClip, type, types.FunctionType, types.ModuleType)


def objects_of(program):
    """Every mutable object that can be reached from a program, by id."""
    found, todo = {}, [program]
    while todo:
        thing = todo.pop()
        if id(thing) in found or isinstance(thing, IMMUTABLE):
            continue
        if not isinstance(thing, tuple):
            found[id(thing)] = thing
        todo.extend(gc.get_referents(thing))
    return found


@pytest.mark.laws
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(any_programs())
def test_a_clone_shares_no_object_and_keeps_every_field_and_order(program):
    twin = program.clone()
    shared = objects_of(program).keys() & objects_of(twin).keys()
    assert not [objects_of(program)[key] for key in shared]
    assert str(twin) == str(program)
    assert twin.equals(program)
    for block, copied in zip(program.blocks, twin.blocks, strict=True):
        assert list(copied.vars) == list(block.vars)
        assert [op.site for op in copied.ops] == [op.site for op in block.ops]
        assert all(var.block is copied for var in copied.vars.values())
        assert all(op.block is copied for op in copied.ops)


def test_a_changed_clone_leaves_the_original_alone():
    program = parse("block 0\n  param w: float32[4]\n  y: float32[4] = scale(X=w) {scale=2.0}")
    text = str(program)
    twin = program.clone()
    param, op = twin.global_block().var("w"), twin.global_block().ops[0]
    param.optimize_attr["learning_rate"] = 0.5
    op.set_attr("scale", 3.0)
    op.replace_input("w", "y")
    twin.global_block().remove(op)
    twin.random_seed = 5
    assert str(program) == text
    assert not twin.equals(program)


def test_a_clone_for_testing_leaves_out_what_trains():
    program = parse("""
        block 0
          param w: float32[4]
          persist lr: float32[1]
          data x: float32[4]
          data unused: float32[4]
          y: float32[4] = elementwise_mul(X=x, Y=w)
          Out=z: float32[4], Mask=m: uint8[4] = dropout(X=y)
          y@GRAD: float32[4] = relu(X=z) {role='backward'}
          w = sgd(Param=w, LearningRate=lr, Grad=y@GRAD) {role='optimize'}
    """)
    twin = program.clone(for_test=True)
    assert [op.type for op in twin.global_block().ops] == ["elementwise_mul", "dropout"]
    assert twin.global_block().ops[1].attr("is_test") is True
    assert program.global_block().ops[1].attr("is_test") is False
    assert list(twin.global_block().vars) == ["w", "x", "unused", "y", "z", "m"]
    verify(twin)


@pytest.mark.usefixtures("new_program")
def test_pruning_keeps_what_computes_the_targets_from_what_is_fed():
    x = fluid.data("x", [None, 4])
    hidden = fluid.layers.fc(x, 3, name="first")
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 1, name="second"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    program = fluid.default_main_program()
    types = lambda twin: [op.type for op in twin.global_block().ops]  # noqa: E731
    forward = ["mul", "elementwise_add"]
    assert types(program._prune([hidden])) == types(program._prune_with_input("x", hidden.name)) == forward
    assert types(program._prune_with_input([hidden.name], [loss])) == [*forward, "mean"]
    assert types(program._prune(program.global_block().ops[0])) == ["mul"]
    assert len(program.global_block().ops) > 10


@pytest.mark.laws
@settings(deadline=None)
@given(trained_programs())
def test_a_clone_for_testing_is_the_same_before_and_after_training_is_appended(program):
    twin = program.clone(for_test=True)
    assert all(op.role in (Role.FORWARD, Role.LOSS) for op in twin.global_block().ops)
    assert not any(name.endswith("@GRAD") for name in twin.global_block().vars)
    verify(twin)


def test_programs_differ_in_any_field_but_the_order_of_plain_variables():
    def program(text):
        return parse("block 0\n" + text)

    base = "data x: float32[4]\ndata z: float32[4]\ny: float32[4] = scale(X=x) {scale=2.0}"
    assert program(base).equals(program(base))
    assert program(base).equals(
        program("data z: float32[4]\ndata x: float32[4]\ny: float32[4] = scale(X=x) {scale=2.0}")
    )
    assert not program(base).equals(program(base.replace("2.0", "3.0")))
    assert not program(base).equals(program(base.replace("data z", "persist z")))
    assert not program("param a: float32[1]\nparam b: float32[1]").equals(
        program("param b: float32[1]\nparam a: float32[1]")
    )


# Defaults and names


def test_a_guard_makes_programs_the_default_ones_and_gives_them_back():
    old = default_main_program(), default_startup_program()
    main, startup = Program(), Program()
    with program_guard(main, startup):
        assert (default_main_program(), default_startup_program()) == (main, startup)
        with program_guard(Program()):
            assert default_startup_program() is startup
        assert default_main_program() is main
    with pytest.raises(KeyError), program_guard(main):
        raise KeyError
    assert (default_main_program(), default_startup_program()) == old


@pytest.mark.parametrize("bad", [(None,), ("main",), (Program(), "startup")])
def test_a_guard_takes_programs_only(bad):
    with pytest.raises(WrongTypeError, match="program_guard needs Programs"), program_guard(*bad):
        pass


def test_a_guard_of_one_thread_is_not_seen_by_another():
    outside = default_main_program()
    seen = {}

    def look(where):
        seen[where] = default_main_program(), current_name_scope(), unique_name.generate("thread")

    def build(where):
        with program_guard(Program()), name_scope(where), unique_name.guard():
            barrier.wait()
            look(where)
            barrier.wait()

    barrier = threading.Barrier(3)
    threads = [threading.Thread(target=build, args=(where,)) for where in "ab"]
    for thread in threads:
        thread.start()
    barrier.wait()
    assert default_main_program() is outside
    assert current_name_scope() == "/"
    barrier.wait()
    for thread in threads:
        thread.join()
    assert seen["a"][0] is not seen["b"][0]
    assert [seen[where][1:] for where in "ab"] == [("/a/", "thread_0"), ("/b/", "thread_0")]

    with program_guard(Program()):
        thread = threading.Thread(target=look, args=("fresh",))
        thread.start()
        thread.join()
    assert seen["fresh"][:2] == (outside, "/")


def test_name_scopes_label_operators_and_count_repetitions():
    block = a_block()
    with name_scope("encoder"):
        with name_scope("layer"):
            block.append_op("relu", {"X": "x"}, {"Out": "a"})
        with name_scope("layer"):
            block.append_op("relu", {"X": "x"}, {"Out": "b"})
    block.append_op("relu", {"X": "x"}, {"Out": "c"})
    assert [op.namescope for op in block.ops] == ["/encoder/layer/", "/encoder/layer_1/", "/"]
    for bad in ("", None, 3):
        with pytest.raises(ProgramError, match="name_scope needs a name"), name_scope(bad):
            pass


def test_unique_names_count_by_key_and_a_guard_starts_afresh():
    with unique_name.guard():
        assert [unique_name.generate(key) for key in ("fc", "fc", "relu")] == ["fc_0", "fc_1", "relu_0"]
        with unique_name.guard("net/"):
            assert unique_name.generate("fc") == "net/fc_0"
        assert unique_name.generate("fc") == "fc_2"
        old, checker = unique_name.switch()
        assert unique_name.generate("fc") == "fc_0"
        unique_name.switch(old, checker)
        assert unique_name.generate("fc") == "fc_3"


def test_blocks_and_programs_describe_themselves():
    block = a_block(2)
    assert repr(block) == "<Block 0: 3 variables, 2 operators>"
    assert repr(block.program) == "<Program of 2 operators>"
    assert repr(block.ops[0]) == "<Operator t0: float32[-1, 4] = scale(X=x) {scale=2.0}>"
    assert isinstance(block, Block)
    assert type(block.create_parameter("w", [1])) is Parameter
    assert type(block.var("x")) is Variable
    assert block.var("w").tensor_type == TensorType(DType.FP32, (1,))


@pytest.mark.parametrize("is_persistable", [False, True])
def test_integers_and_masks_keep_their_type_in_a_variable_of_another(is_persistable):
    """The dtypes are those that Paddle 1.8.5 fetches for these programs."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1], "int64")
        total, mask = (fluid.layers.create_tensor("int64", persistable=is_persistable) for _ in range(2))
        accuracy = fluid.layers.accuracy(x, y, total=total)
        fluid.layers.assign(x > 0.5, output=mask)
        executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        feed = {"x": np.eye(3, dtype="float32"), "y": np.array([[0], [1], [0]])}
        for _ in range(2):  # a persistable one has its new type when the program runs again
            found = executor.run(feed=feed, fetch_list=[accuracy, total, mask], scope=scope)
        assert [(each.dtype, each.shape) for each in found[1:]] == [("int32", (1,)), ("bool", (3, 3))]
        assert found[1] == [3]
        verify(fluid.default_main_program())


@pytest.mark.usefixtures("new_program")
def test_descriptions_tell_what_scripts_that_save_models_ask():
    out = fluid.layers.fc(fluid.data("x", [None, 3]), 2)
    kinds = fluid.core.VarDesc.VarType
    desc = fluid.default_main_program().global_block().var("x").desc
    assert desc.type() == kinds.LOD_TENSOR and desc.type() not in (kinds.FEED_MINIBATCH, kinds.FETCH_LIST, kinds.READER)
    assert (desc.name(), desc.shape(), desc.persistable(), desc.lod_level()) == ("x", [-1, 3], False, 0)
    desc = fluid.default_main_program().global_block().ops[-1].desc
    assert desc.type() == "elementwise_add" and desc.output_arg_names() == [out.name] == desc.output("Out")
    assert desc.has_attr("axis") and desc.attr("axis") == 1
    read = fluid.Program.parse_from_string(fluid.default_main_program().desc.serialize_to_string())
    assert [op.type for op in read.global_block().ops] == ["mul", "elementwise_add"]


def test_blocks_make_parameters_with_levels_and_initializers_as_in_fluid():
    program = fluid.Program()
    for _ in range(2):
        program.global_block().create_parameter(
            name="w", shape=[5, 10], dtype="float32", lod_level=0, initializer=fluid.initializer.Constant(2.5)
        )
    assert [(op.type, op.attr("value")) for op in program.global_block().ops] == [("fill_constant", 2.5)]


def test_the_generator_of_names_in_force_is_copied():
    with fluid.unique_name.guard():
        fluid.unique_name.generate("fc")
        twin = copy.deepcopy(fluid.unique_name.generator)
        assert fluid.unique_name.generate("fc") == "fc_1"
        with fluid.unique_name.guard(twin):
            assert fluid.unique_name.generate("fc") == "fc_1"


def test_default_programs_may_be_switched_for_good():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        before = default_main_program(), default_startup_program()
        assert (framework.switch_main_program(main), framework.switch_startup_program(startup)) == before
        assert (default_main_program(), default_startup_program()) == (main, startup)
        with pytest.raises(WrongTypeError, match="switch_main_program needs Programs, got NoneType"):
            framework.switch_main_program(None)


def test_a_parameter_is_marked_for_parameter_servers_and_a_clone_keeps_the_mark():
    program = Program()
    w = program.global_block().create_parameter(name="w", shape=[2], dtype="float32")
    assert w.is_distributed is False  # as in 1.8.5
    w.is_distributed = True
    assert program.clone().global_block().var("w").is_distributed is True
    with fluid.dygraph.guard():
        assert fluid.dygraph.Linear(2, 2).weight.is_distributed is False


def test_a_parameter_takes_the_kind_of_value_that_it_has_anyway():
    block = fluid.Program().global_block()
    assert block.create_parameter("w", [4], type=fluid.core.VarDesc.VarType.LOD_TENSOR).kind is VarKind.LOD_TENSOR
    with pytest.raises(ProgramError, match="a parameter is a tensor"):
        block.create_parameter("v", [4], type=VarKind.SELECTED_ROWS)


@pytest.mark.usefixtures("new_program")
def test_a_renamed_variable_is_renamed_in_operators():
    out = fluid.layers.fc(fluid.data("x", [None, 3]), 2, param_attr="w", bias_attr=False)
    block = fluid.default_main_program().global_block()
    names = list(block.vars)
    weight = block._rename_var("w", "teacher_w")
    assert type(weight) is Parameter and weight.name == "teacher_w" and block.var("teacher_w") is weight
    assert list(block.vars) == [name if name != "w" else "teacher_w" for name in names]
    block._rename_var(out.name, "teacher_out")
    assert str(block.ops[0]).startswith("teacher_out: float32[-1, 2] = mul(X=x, Y=teacher_w)")
    with pytest.raises(NotFoundError):
        block._rename_var("w", "other")
    with pytest.raises(ProgramError, match="'x' already"):
        block._rename_var("teacher_w", "x")


@pytest.mark.usefixtures("new_program")
def test_a_description_declares_another_shape():
    fluid.layers.fc(fluid.data("x", [None, 3]), 2, param_attr="w")
    block = fluid.default_main_program().global_block()
    version = block.program.version
    block.var("w").desc.set_shape([3, 1])
    assert block.var("w").shape == (3, 1) and block.program.version > version


@pytest.mark.usefixtures("new_program")
def test_a_description_infers_the_results_of_an_operator_again():
    out = fluid.layers.fc(fluid.data("x", [None, 3]), 2, param_attr="w", bias_attr=False)
    program = fluid.default_main_program()
    block = program.global_block()
    block.var("w").desc.set_shape([3, 7])
    for op in block.ops:
        op.desc.infer_shape(op.block.desc)
    assert out.shape == (-1, 7)
    program.desc.flush()
    program.desc._set_version()
    fluid.core.save_op_compatible_info(program.desc)
    assert Program.parse_from_string(program.desc.serialize_to_string()).global_block().var(out.name).shape == (-1, 7)


@pytest.mark.usefixtures("new_program")
def test_a_description_is_copied():
    x = fluid.data("x", [None, 3])
    assert copy.copy(x.desc).shape() == [-1, 3]
    assert not hasattr(x.desc, "sort_of")


def test_a_slot_takes_one_name_or_several():
    op = Program.parse("block 0\n  data first: float32[2]\n  y: float32[2] = relu(X=first)").global_block().ops[0]
    for name in ("first", op.block.var("first"), ["first"]):
        op.set_input("X", name)
        assert op.inputs == {"X": ("first",)}
    op.set_output("Out", "y")
    assert op.outputs == {"Out": ("y",)}


@pytest.mark.usefixtures("new_program")
def test_a_kind_prints_as_fluids_and_an_element_type_as_numpys():
    kinds = [fluid.data("x", [None, 3]).type, fluid.layers.create_array("float32").type]
    assert [str(kind) for kind in kinds] == ["VarType.LOD_TENSOR", "VarType.LOD_TENSOR_ARRAY"]
    dtype = fluid.data("y", [None, 3], "int64").dtype
    assert (str(dtype), int(dtype), dtype) == ("int64", 3, fluid.core.VarDesc.VarType.INT64)


@pytest.mark.parametrize("dtype", list(DType))
def test_an_element_type_is_equal_to_its_number_its_name_and_numpys_type(dtype):
    others = [dtype, int(dtype), np.int64(dtype), str(dtype), dtype.numpy, dtype.numpy.type]
    for other in others:
        assert (dtype == other, other == dtype, dtype != other, other != dtype) == (True, True, False, False), other
    different = next(each for each in DType if each is not dtype)
    for other in [different, int(different), str(different), different.numpy, different.numpy.type, None, object, str]:
        assert (dtype == other, other == dtype, dtype != other, other != dtype) == (False, False, True, True), other
    assert dtype in (str(dtype),) and dtype not in (str(different), None)


def test_an_element_type_is_compared_with_no_unknown_name():
    for compare in (lambda: DType.FP32 == "fp32", lambda: DType.FP32 != "fp32"):
        with pytest.raises(WrongTypeError, match="'fp32' is not an element type"):
            compare()


@pytest.mark.usefixtures("new_program")
def test_variables_and_operators_keep_what_programs_note_on_them():
    x = fluid.data("x", [None, 3])
    loss = fluid.layers.mean(fluid.layers.fc(x, 2))
    loss.my_note = "kept"
    loss.block.ops[0].my_note = default_main_program().all_parameters()[0].my_note = 5
    assert (loss.my_note, loss.block.ops[0].my_note) == ("kept", 5)
    clone = default_main_program().clone()
    assert not hasattr(clone.global_block().var(loss.name), "my_note")  # as in fluid
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fluid.append_backward(loss)


@pytest.mark.usefixtures("new_program")
def test_a_note_that_looks_like_an_attribute_is_pointed_out():
    x = fluid.data("x", [None, 3])
    x.stop_gradients = False
    with pytest.warns(UserWarning, match="'stop_gradients' of x has no effect.*Did you mean stop_gradient"):
        fluid.append_backward(fluid.layers.mean(fluid.layers.fc(x, 2)))


def test_slots_are_named_in_the_order_of_the_original():
    main = fluid.Program()
    with fluid.program_guard(main):
        x = fluid.data("x", [2, 3])
        loss = fluid.layers.mean(
            fluid.layers.cross_entropy(fluid.layers.scale(x), fluid.data("label", [2, 1], "int64"))
        )
        x.stop_gradient = False
        fluid.gradients(loss, x)
    found = {op.type: (op.input_names, op.output_names) for op in main.global_block().ops}
    assert found["scale"] == (["ScaleTensor", "X"], ["Out"])
    assert found["cross_entropy2"] == (["Label", "X"], ["MatchX", "XShape", "Y"])
    assert found["mean_grad"] == (["Out@GRAD", "X"], ["X@GRAD"])


def test_one_name_has_one_lod_level():
    block = fluid.Program().global_block()
    words = block.create_var(name="words", shape=[-1, 1], dtype="int64", lod_level=1)
    assert block.create_var(name="words") is words is block.create_var(name="words", lod_level=1)
    with pytest.raises(ProgramError, match="words has lod_level 1 already, it cannot also have 0"):
        block.create_var(name="words", lod_level=0)
