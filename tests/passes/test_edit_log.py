"""The error for a pass that breaks a program names the pass, the operator, the law, and the line of the pass."""

import inspect
import linecache

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers, rewrite
from minigraph.errors import NotFoundError, OpError, PassError, WrongTypeError
from minigraph.ir import Program
from minigraph.ir.verifier import verify
from minigraph.passes import CleanUp, Pass, Pipeline, Recompute, RemoveDeadOps
from minigraph.rewrite import Values
from minigraph.support.undo import all_or_nothing

TEXT = """
block 0
  data x: float32[2]
  h: float32[2] = scale(X=x) {scale=2.0}
  y: float32[2] = relu(X=h)
  z: float32[2] = tanh(X=y)
"""


def program(text=TEXT):
    found = Program.parse(inspect.cleandoc(text))
    found.roots = ("z",)
    return found


def line(site):
    return linecache.getline(site.filename, site.line).strip()


class ReadTooEarly(Pass):
    def apply(self, program):
        first, second, _ = program.global_block().ops
        first.set_input("X", ["y"])
        second.set_attr("use_cudnn", False)
        return True


class LoseAResult(Pass):
    def apply(self, program):
        program.global_block().ops[2].set_input("X", ["y"])
        remove_second(program)
        program.global_block().ops[0].set_attr("scale", 3.0)
        return True


def remove_second(program):
    program.global_block().remove(1)  # by an index


class LoseAFetch(Pass):
    def apply(self, program):
        block = program.global_block()
        block.remove(block.ops[2])
        return True


class ChangeAType(Pass):
    def apply(self, program):
        values = Values(program)
        attrs = {"in_dtype": 5, "out_dtype": 3}
        op = values.insert("cast", {"X": "x"}, {"Out": "whole"}, attrs, before=first(program))
        third = program.global_block().ops[2]
        third.replace_input("h", op.output("Out")[0])
        return True


def first(program):
    return program.global_block().ops[0]


class ForgetAnInput(Pass):
    def apply(self, program):
        del first(program).inputs["X"]
        return True


class ScaleByAWord(Pass):
    def apply(self, program):
        first(program).attrs["scale"] = "two"
        return True


class NameTooMuch(Pass):
    def apply(self, program):
        attrs = {"op_role_var": ["w", "g"]}
        program.global_block().append_op("relu", {"X": "x"}, {"Out": "r"}, attrs)
        return True


CASES = [
    (ReadTooEarly(), "scale reads y before it is written", "h: float32[2] = scale(X=y) {scale=2.0}",
     "a value is written before it is read", 'first.set_input("X", ["y"])'),
    (LoseAResult(), "tanh reads y, which nobody makes any more", "z: float32[2] = tanh(X=y)",
     "what is read or fetched goes on being made", "program.global_block().remove(1)  # by an index"),
    (LoseAFetch(), "z is fetched, but nobody makes it any more", None,
     "what is read or fetched goes on being made", "block.remove(block.ops[2])"),
    (ChangeAType(), "relu: X must be floating point, got int64", "y: float32[2] = relu(X=whole)",
     "inference run again gives the declared types", 'third.replace_input("h", op.output("Out")[0])'),
    (ForgetAnInput(), "scale: input X is missing", "h: float32[2] = scale() {scale=2.0}",
     "slots and attributes fit the definition of the operator", "def apply(self, program):"),
    (ScaleByAWord(), "scale: attribute scale must be float, got 'two'", "h: float32[2] = scale(X=x) {scale='two'}",
     "slots and attributes fit the definition of the operator", "def apply(self, program):"),
    (NameTooMuch(), "relu: role_vars names w, which does not exist", "r: float32[2] = relu(X=x) {role_vars=[w, g]}",
     "role_vars name variables, and those of a backward operator the gradients that it makes",
     'program.global_block().append_op("relu", {"X": "x"}, {"Out": "r"}, attrs)'),
]  # fmt: skip


@pytest.mark.parametrize(("rewrite", "message", "operator", "law", "source"), CASES, ids=lambda each: str(each)[:12])
def test_the_error_names_pass_operator_law_and_line(rewrite, message, operator, law, source):
    with fluid.unique_name.guard(), pytest.raises(PassError) as caught:
        rewrite(program())
    error = caught.value
    assert (error.rewrite, error.message) == (rewrite, f"{rewrite.name} breaks the program: {message}")
    assert (None if error.op is None else str(error.op), error.law, line(error.line)) == (operator, law, source)
    shown = str(error)
    assert f"law: {law}" in shown
    assert f"line of the pass: {error.line}" in shown
    assert operator is None or f"operator: {operator}" in shown


@pytest.mark.parametrize(("rewrite", "source"), [(case[0], case[4]) for case in CASES[:2]])
def test_in_a_pipeline_the_error_names_the_pass(rewrite, source):
    for passes in (
        Pipeline((CleanUp(), rewrite, RemoveDeadOps())),
        Pipeline((CleanUp(), rewrite), hook=lambda each, program, changed: verify(program)),
    ):
        if passes.hook is not None and isinstance(rewrite, LoseAResult):
            continue  # seen only beside the program before
        with pytest.raises(PassError) as caught:
            passes(program())
        assert (caught.value.rewrite, line(caught.value.line)) == (rewrite, source)


@pytest.mark.parametrize(("rewrite", "source"), [(case[0], case[4]) for case in CASES])
def test_an_executor_names_a_pass_of_the_users(rewrite, source):
    executor = fluid.Executor(passes=Pipeline((CleanUp(), rewrite, RemoveDeadOps())))
    found = program()
    found.roots = None
    with pytest.raises(PassError) as caught:
        executor.run(found, feed={"x": np.ones(2, "float32")}, fetch_list=["z"])
    assert (caught.value.rewrite, line(caught.value.line)) == (rewrite, source)


def test_an_update_without_its_gradient_is_refused(new_program):
    class ForgetTheGradient(Pass):
        def apply(self, program):
            (update,) = program.global_block().ops.of_type("sgd")
            program.global_block().create_var(name="nothing", shape=[1])
            update.set_input("Grad", ["nothing"])
            return True

    loss = layers.mean(layers.create_parameter([1], "float32", name="w"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.raises(PassError, match="sgd reads the gradient nothing, which nobody makes") as caught:
        ForgetTheGradient()(fluid.default_main_program())
    assert line(caught.value.line) == 'update.set_input("Grad", ["nothing"])'


class Fail(Pass):
    def __init__(self, call):
        self.call = call

    def apply(self, program):
        first(program)
        return self.call(program)


def test_a_pass_that_fails_is_named():
    with pytest.raises(PassError, match="Fail fails with KeyError: 'h'") as caught:
        Fail(lambda program: {}["h"])(program())
    assert "{}" in line(caught.value.line)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(OpError, match="unknown attribute scales") as caught:
        Fail(lambda program: first(program).set_attr("scales", 1))(program())
    assert any("raised by the pass Fail at" in detail for detail in caught.value.details)
    with pytest.raises(NotFoundError, match="raised by the pass Recompute at"):
        Recompute(("nothing",))(program())


def test_what_a_failing_pass_has_done_is_undone_with_the_call_around_it():
    found = program()
    text = str(found)

    class Halfway(Pass):
        def apply(self, program):
            first(program).set_attr("scale", 5.0)
            raise ValueError("halfway")

    passes = Pipeline((Halfway(),), hook=lambda each, program, changed: None)
    with pytest.raises(PassError), all_or_nothing():
        passes.apply(found)
    assert str(found) == text


def test_the_error_names_the_rule_and_its_line():
    @rewrite.rule
    def relu_of_scale(x, a=rewrite.attr("scale")):
        return layers.relu(layers.scale(x, scale=a))

    @relu_of_scale.edit
    def _(match):
        match.ops[0].block.remove(match.ops[0])  # its result is read
        return True

    for each in (relu_of_scale, rewrite.Rules(relu_of_scale)):
        with pytest.raises(PassError, match="relu_of_scale breaks the program: relu reads h") as caught:
            each(program())
        assert line(caught.value.line).endswith("# its result is read")


@rewrite.rule
def loses_a_result(x):
    return layers.scale(x)


@loses_a_result.edit
def _(match):
    match.ops[0].block.remove(match.ops[0])
    return True


@pytest.mark.parametrize("each", [loses_a_result, rewrite.Rules(loses_a_result)], ids=["alone", "among others"])
def test_an_executor_names_a_rule_of_the_users(each):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        z = layers.relu(layers.scale(fluid.data("x", [2])))
    with pytest.raises(PassError, match=r"loses_a_result|Rules"):
        fluid.Executor(passes=Pipeline((each,))).run(main, feed={"x": np.ones(2, "float32")}, fetch_list=[z])


def test_what_is_fetched_stays():
    class FetchesLess(Pass):
        def apply(self, program):
            program.roots = ("y",)
            return True

    with pytest.raises(
        PassError, match=r"FetchesLess breaks the program: program\.roots is \('y',\), and was \('z',\)"
    ):
        FetchesLess()(program())


@pytest.mark.parametrize("given", [CleanUp(), (CleanUp(), 3), Pipeline((CleanUp(),))])
def test_a_pipeline_is_of_passes(given):
    with pytest.raises(WrongTypeError, match="a pipeline is of several passes"):
        Pipeline(given)
