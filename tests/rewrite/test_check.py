"""`rewrite.check`: finds the program that a pass breaks, and none where there is none."""

import runpy
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from random import Random
from time import monotonic, sleep

import numpy as np
import pytest
from exact_rules import RULES
from hypothesis import given
from plants import check_with_plants

from minigraph import layers, passes, rewrite, unique_name
from minigraph.errors import ExecutionError, MinigraphError, WrongTypeError
from minigraph.ir import Program
from minigraph.ir.default_programs import program_guard
from minigraph.ir.verifier import verify
from minigraph.layers.io import fluid_data as data
from minigraph.passes import IN_ORDER
from minigraph.rewrite.cases import Case, Rounding, has_declared_types, results_by_op, runs_completely
from minigraph.rewrite.checking import counts, draw
from minigraph.rewrite.counter_examples import _expression
from minigraph.rewrite.hints import hints_of
from minigraph.rewrite.laws import Subject, broken_law, computes_finite_numbers
from minigraph.rewrite.strategies import cases, programs

ROOT = Path(__file__).parents[2]


def drops_scales(program):
    """Let readers of a scaled value read the value itself."""
    block, changed = program.global_block(), False
    for op in block.ops[:]:
        if op.type == "scale" and op.input("X") != op.output("Out"):
            block.remove(op)
            for other in block.ops:
                other.replace_input(op.output("Out")[0], op.input("X")[0])
            changed = True
    return changed


def does_nothing(program):
    return False


@pytest.mark.slow
def test_a_wrong_pass_is_found():
    found = rewrite.check(drops_scales)
    assert found is not None
    assert "drops_scales" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int16"])
def test_a_rule_for_a_seldom_element_type_is_tried_on_it(dtype):
    @rewrite.rule
    def scales(x, a=rewrite.attr("scale"), b=rewrite.attr("scale")):
        return layers.scale(layers.scale(x, a), b)

    @scales.where
    def _(m):
        yield m.x.dtype == dtype, "x must have the type"

    scales.to(lambda x, a, b: layers.scale(x, a * b))
    found = rewrite.check(scales)
    assert found is not None
    assert [op.type for op in found.program.global_block().ops] == ["scale", "scale"]


@pytest.mark.parametrize("made", [None, 3.0, [None]])
def test_a_plant_that_returns_no_variables_is_told(made):
    with pytest.raises(WrongTypeError, match="a fragment to plant returned") as raised:
        rewrite.check(does_nothing, programs=20, plant=[lambda pick: made])
    assert raised.value.hint.startswith("Return the variables that it computes")


def _misspelt(pick):
    return layers.relu(pick(), 1, 2, 3)  # this line


def _fails_in_python(pick):
    return [pick(), int("one")]  # this line


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:does_nothing has changed none")
@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (_misspelt, r"_misspelt failed in (\d+) of \1 calls.*WrongTypeError: relu.*\n  at .*# this line"),
        (_fails_in_python, r"_fails_in_python failed in (\d+) of \1 calls.*ValueError: .*\n  at .*# this line"),
        (3, r"the fragment to plant 3 failed in (\d+) of \1 calls.*TypeError: 'int' object is not callable"),
    ],
)
def test_a_plant_that_mostly_fails_is_told(plant, said):
    with pytest.warns(UserWarning, match=said):
        rewrite.check(does_nothing, programs=20, plant=[plant])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:does_nothing has changed none")
def test_a_plant_that_some_values_do_not_suit_is_not_told():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the fragment to plant")
        rewrite.check(does_nothing, programs=20, plant=[lambda pick: layers.scale(pick(), float(len(pick().shape)))])


@pytest.mark.slow
def test_a_pass_that_warns_of_each_program_is_heard_once():
    def complains(program):
        warnings.warn(f"of {program}", stacklevel=1)
        return False

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rewrite.check(complains, programs=20)
        warnings.warn("others are heard as before", stacklevel=1)
    assert [str(each.message).split()[0] for each in said] == ["of", "complains", "others"]


@pytest.mark.slow
def test_a_pass_that_does_nothing_passes():
    with pytest.warns(UserWarning, match="does_nothing has changed none of the 20 programs"):
        assert rewrite.check(does_nothing, programs=20) is None


def _ends_the_process(program):
    raise SystemExit(0)


def _returns_the_program(program):
    return program


def _takes_two(program, other):
    return False


@pytest.mark.parametrize(
    ("each", "law", "said"),
    [
        (_ends_the_process, "raises", "_ends_the_process raises SystemExit: 0"),
        (_returns_the_program, "truthful", "it must return True or False, got Program"),
        (_takes_two, "raises", "test_check.py"),
    ],
)
def test_what_is_no_pass_is_told(each, law, said):
    found = rewrite.check(each, programs=20, reduce=False)
    assert found.law == law and said in str(found)


@rewrite.rule
def reversed_twice(x, a=rewrite.attr("axis")):
    return rewrite.op("reverse", X=rewrite.op("reverse", X=x, axis=a), axis=a)


@reversed_twice.to
def _(x):
    return layers.assign(x)


def test_where_a_value_lies_in_memory_does_not_decide_its_last_bit():
    # NumPy's arccosine of a reversed array may round otherwise than that of a copy.
    program = Program.parse("""
    block 0
      data x: float64[64]
      a: float64[64] = reverse(X=x) {axis=[0]}
      b: float64[64] = reverse(X=a) {axis=[0]}
      c: float64[64] = acos(X=b)
      d: float64[64] = acos(X=a)
    """)
    program.roots = ("c", "d")
    case = Case(program, {"x": np.random.default_rng(0).uniform(-1, 1, 64)})
    assert broken_law(Subject(reversed_twice), case) is None
    assert np.array_equal(case.results["c"][0], case.results["d"][0][::-1])


def test_a_run_whose_operands_do_not_fit_is_no_alarm():
    program = Program.parse("""
    block 0
      data x: float32[-1, 1]
      data y: float32[1, 1]
      z: float32[1, 1] = sum(X=[x, y])
    """)
    program.roots = ("z",)
    y = np.ones((1, 1), "float32")
    fits = [has_declared_types(Case(program, {"x": np.ones((rows, 1), "float32"), "y": y})) for rows in (1, 3)]
    assert fits == [True, False]


def test_a_run_whose_element_types_do_not_fit_is_no_alarm():
    program = Program.parse("""
    block 0
      data x: int32[2]
      data y: float64[2]
      X@GRAD=z: int32[2] = elementwise_mul_grad(X=x, Y=y, Out@GRAD=x)
    """)
    program.roots = ("z",)
    assert not has_declared_types(Case(program, {"x": np.ones(2, "int32"), "y": np.ones(2)}))


@rewrite.rule
def gathered_twice(x, i, j):
    return rewrite.op("gather", X=rewrite.op("gather", X=x, Index=i), Index=j)


@gathered_twice.where
def _(m):
    yield m.i.tensor_type == m.j.tensor_type and len(m.i.shape) == 1, "two vectors of one size"


@gathered_twice.to
def _(x, i, j):
    return layers.gather(x, layers.gather(j, i))


@rewrite.rule
def transposed_twice(x, a=rewrite.attr("axis"), b=rewrite.attr("axis")):
    return rewrite.op("transpose2", X=rewrite.op("transpose2", X=x, axis=a), axis=b)


@transposed_twice.to
def _(x, a, b):
    return rewrite.op("transpose2", X=x, axis=[b[i] for i in a])


class SliceOfJoin(passes.Pass):
    """Take a slice that begins at 0 for the first part of a join, whatever its end: wrong."""

    def apply(self, program):
        values, changed = rewrite.Values(program), False
        for op in program.global_block().ops.of_type("slice"):
            join = values.producer(values.input(op, "Input"), "concat")
            plain = len(op.inputs) == 1 and not op.attr("decrease_axis") and list(op.attr("starts")) == [0]
            if join is None or not plain or list(op.attr("axes")) != [join.attr("axis")]:
                continue
            if values.is_there(values.input(join, "X"), op):
                values.replace_op(op, "assign", {"X": values.input(join, "X")})
                changed = True
        return changed


@pytest.mark.slow
@pytest.mark.parametrize("each", [gathered_twice, transposed_twice], ids=lambda each: each.name)
def test_values_and_attributes_that_suit_a_pattern_are_planted(each):
    assert rewrite.check(each, programs=300, reduce=False) is not None


@pytest.mark.slow
def test_operators_that_a_pass_names_read_each_other():
    found = (rewrite.check(SliceOfJoin(), programs=400, seed=seed, reduce=False) for seed in range(5))
    assert any(each is not None for each in found)


@pytest.mark.slow
def test_a_seed_gives_one_answer():
    assert str(rewrite.check(drops_scales, seed=5)) == str(rewrite.check(drops_scales, seed=5))


def test_a_class_is_no_pass():
    with pytest.raises(WrongTypeError, match="has a method apply"):
        rewrite.check(passes.CleanUp)


def _takes_away(type):
    """A pass that puts a copy in place of operators of a type."""

    def takes_away(program):
        block = program.global_block()
        found = [op for op in block.ops if op.type == type]
        for op in found:
            (x,), (out,) = op.input("X"), op.output_arg_names
            with block.inserting_before(op, role=op.role):
                block.append_op("assign", {"X": x}, {"Out": out})
            block.remove(op)
        return bool(found)

    return takes_away


@pytest.mark.slow
@pytest.mark.parametrize(("type", "law"), [("sequence_reverse", "values"), ("lod_reset", "runs")])
def test_a_pass_that_is_wrong_about_sequences_is_found(type, law, capsys):
    found = rewrite.check(_takes_away(type), programs=300, plant=[_on_sequences])
    assert found is not None and found.law == law
    assert type in {op.type for op in found.program.global_block().ops}
    if law == "values":
        with np.printoptions():  # the script sets options of its own
            exec(compile(found.to_python(), "script.py", "exec"), {"__name__": "__main__"})
        assert "differs" in capsys.readouterr().out


def _on_sequences(pick):
    x = pick()
    x = layers.reshape(x, [prod(x.shape), 1])
    return layers.sequence_reverse(layers.lod_reset(x, target_lod=[0, x.shape[0]]))


@rewrite.rule
def scale_of_scale(x, a=rewrite.attr("scale"), b=rewrite.attr("scale")):
    return layers.scale(layers.scale(x, scale=a), scale=b)


@scale_of_scale.to
def _(x, a, b):
    return layers.scale(x, scale=a * b)


@pytest.mark.slow
def test_the_pattern_of_a_rule_is_planted():
    found = rewrite.check(scale_of_scale, programs=100)
    assert found is not None and found.law == "values"  # the product is rounded once
    assert [op.type for op in found.program.global_block().ops] == ["scale", "scale"]


@pytest.mark.slow
def test_numbers_beside_those_of_a_condition_are_planted():
    @rewrite.rule
    def almost_itself(x, a=rewrite.attr("factor")):
        return layers.pow(x, factor=a)

    @almost_itself.where
    def _(m):
        yield abs(m.a - 1) < 0.01, "the power must be 1"

    @almost_itself.to
    def _(x):
        return rewrite.op("assign", X=x)

    found = rewrite.check(almost_itself)
    assert found is not None and found.law == "values"


@pytest.mark.slow
def test_a_fragment_can_be_planted():
    def drops_the_second(program):
        """Drop relu of relu, with the values that others read."""
        pairs = [op for op in program.global_block().ops[:] if op.type == "relu"]
        for op in pairs[1:2]:
            op.block.remove(op)
        return len(pairs) > 1

    found = rewrite.check(drops_the_second, programs=30, plant=[lambda pick: layers.relu(layers.relu(pick()))])
    assert found is not None


def test_an_error_names_the_line_of_the_pass():
    def fails(program):
        raise KeyError("Y")  # this line

    found = rewrite.check(fails, programs=3)
    assert found.law == "raises"
    assert "test_check.py" in found.difference and "# this line" in found.difference


def test_an_error_of_a_rule_names_the_line_of_the_rule():
    @rewrite.rule
    def halves(x):
        return layers.exp(x)

    @halves.to
    def _(x):
        return layers.exp(x), x

    found = rewrite.check(halves, programs=50)
    assert found.law == "raises"
    assert str(found).rstrip().endswith(f"at {halves.site}")


@pytest.mark.slow
def test_the_fixture_shows_the_program_and_the_script(check_pass):
    with pytest.raises(AssertionError, match="drops_scales breaks this program") as caught:
        check_pass(drops_scales)
    assert "import minigraph as fluid" in str(caught.value)


@dataclass(frozen=True)
class Keeping(passes.Pass):
    kept: object = None

    def apply(self, program):
        return False


def test_a_script_makes_no_pass_whose_arguments_no_text_gives():
    assert eval(_expression(Subject(Keeping("x"))), {"runpy": runpy}).__self__.kept == "x"
    assert _expression(Subject(Keeping(object()))) is None


class BothScales(rewrite.Rules):
    rules = (scale_of_scale, RULES[0])


@pytest.mark.parametrize(
    "each",
    [
        *IN_ORDER, BothScales(), rewrite.Rules(scale_of_scale), passes.Pipeline((passes.CleanUp(), BothScales())),
        passes.UnrollRecurrent(batch_may_be_open=True), scale_of_scale, drops_scales,
    ],
    ids=lambda each: getattr(each, "name", type(each).__name__),
)  # fmt: skip
def test_a_script_makes_the_pass_anew(each):
    program = Program.parse("""
        block 0
          data x: float32[2]
          y: float32[2] = scale(X=x) {scale=2.0}
          z: float32[2] = scale(X=y) {scale=3.0}
          u: float32[2] = relu(X=z)
          v: float32[2] = relu(X=u)
          w: float32[2] = pow(X=v) {factor=2.0}
    """)
    program.roots = ("w",)
    anew = eval(_expression(Subject(each)), {"runpy": runpy})
    found = []
    for apply in (each if each is drops_scales else each.apply, anew):
        twin = program.clone()
        with unique_name.guard():
            found.append((bool(apply(twin)), str(twin)))
    assert found[0] == found[1]


@pytest.mark.slow
@given(programs(drops_scales))
def test_a_strategy_draws_valid_programs(program):
    verify(program)
    assert program.roots


def test_nothing_of_another_type_is_written_over_what_a_sub_block_makes():
    """A loop of this program made what was written over: one of 40,000 that were drawn."""
    verify(draw(Random("28678/h"), hints_of(drops_scales)).program)


@pytest.mark.slow
@given(cases())
def test_a_strategy_draws_programs_with_what_they_are_run_with(case):
    try:
        results = case.run()
    except MinigraphError:  # such as an index that is too large
        return
    assert set(case.program.roots) <= results.keys()


SELDOM = {"FindNormalizations", "KeepRows", "OrderOperands"}
"""Passes that change none of the first 40 programs."""


@pytest.mark.laws
@pytest.mark.parametrize("each", IN_ORDER, ids=lambda p: p.name)
def test_no_pass_of_the_project_breaks_a_program(each, check_pass):
    with warnings.catch_warnings():
        # Programs of several ranks are not drawn; each other pass must have something to do.
        action = "ignore" if each.name == "MergeExchanges" else "error"
        warnings.filterwarnings(action, message=".* has changed none of the .* programs")
        # python -m tests.explore --only passes tries the same law at length.
        check_with_plants(check_pass, each, programs=100 if each.name in SELDOM else 40)


@pytest.mark.laws
@pytest.mark.parametrize("each", RULES, ids=lambda rule: rule.name)
def test_no_exact_rule_breaks_a_program(each, check_pass):
    check_pass(each, programs=40)


POWER_OF_A_GRADIENT = """
    block 0
      data x: float32[1]
      data d: float32[1]
      g: float32[1] = pow_grad(X=x, Out@GRAD=d) {factor=3.0}
      y: float32[1] = pow(X=g) {factor=-0.5}
"""
INVERSE_ROOT = """
    block 0
      data x: float32[1]
      data d: float32[1]
      y: float32[1] = pow_grad(X=x, Out@GRAD=d) {factor=-0.5}
"""


@pytest.mark.parametrize(
    ("text", "x", "d"),
    [(POWER_OF_A_GRADIENT, 3.3140877e-09, 3.6399213e-26), (INVERSE_ROOT, -np.inf, 1.0)],
    ids=["subnormal", "infinite"],
)
def test_what_rounding_may_change_is_no_alarm(text, x, d):
    program = Program.parse(text)
    program.roots = ("y",)
    case = Case(program, {"x": np.array([x], "float32"), "d": np.array([d], "float32")})
    assert broken_law(Subject(passes.MultiplyPowers()), case) is None


def test_rounding_leaves_the_largest_element_the_largest():
    program = Program.parse("""
        block 0
          data x: float32[2]
          y: float32[2] = exp(X=x)
          m: float32[1] = reduce_max(X=y) {dim=[0]}
          z: float32[1] = exp(X=m)
          w: float32[1] = scale(X=z) {scale=-1.0}
          d: float32[1] = sum(X=[z, w])
          g: float32[2] = reduce_max_grad(X=y, Out=m, Out@GRAD=d) {dim=[0]}
    """)
    program.roots = ("g",)
    case = Case(program, {"x": np.array([0.3, -0.1], "float32")})
    results = case.run()
    assert results["g"][0].tolist() == [0.0, 0.0]
    other = {**results, "g": [np.array([1e-6, 0], "float32")]}
    assert Rounding(case, results).difference(other) is None


@pytest.mark.parametrize(("distance", "is_rounding"), [(1, True), (-2, True), (10_000, False)])
@pytest.mark.parametrize(
    "answer", ["bool[3] = cast(X=d) {in_dtype=float32, out_dtype=bool}", "float32[3] = reciprocal(X=d)"]
)
def test_rounding_decides_whether_a_sum_that_cancels_is_0(distance, is_rounding, answer):
    program = Program.parse(f"""
        block 0
          data x: float32[3]
          data y: float32[3]
          z: float32[3] = pow(X=x) {{factor=-0.5}}
          d: float32[3] = elementwise_sub(X=z, Y=y)
          answer: {answer}
    """)
    program.roots = ("answer",)
    x = np.array([0.3, 2.0, 17.0], "float32")
    root = x ** np.float32(-0.5)
    case = Case(program, {"x": x, "y": root + distance * np.spacing(root)})
    results = case.run()
    other = {"answer": [np.zeros(3, "bool") if "cast" in answer else np.full(3, np.inf, "float32")]}
    assert np.isfinite(results["answer"][0]).all() and results["answer"][0].all()
    assert (Rounding(case, results).difference(other) is None) is is_rounding


def test_a_result_that_nothing_reads_may_fail_together_with_one_that_is_read():
    @rewrite.rule(changes_rounding=True)
    def fused(x, y):
        p = layers.softmax(x)
        return layers.cross_entropy(p, y), p

    @fused.to
    def _(x, y):
        return layers.softmax_with_cross_entropy(x, y, return_softmax=True)

    program = Program.parse("""
        block 0
          data x: float32[1, 2]
          data label: int64[1, 1]
          p: float32[1, 2] = softmax(X=x)
          Y=loss: float32[1, 1], XShape=s: float32[1, 2, 0], MatchX=m: float32[1, 1] = cross_entropy2(X=p, Label=label)
    """)
    program.roots = ("p",)
    case = Case(program, {"x": np.ones((1, 2), "float32"), "label": np.array([[2]])})
    broken = broken_law(Subject(fused), case)
    assert broken.law == "runs"
    assert not counts(broken, case)
    assert broken_law(Subject(fused), Case(program, {**case.feed, "label": np.array([[1]])})) is None


def test_numbers_are_looked_at_past_an_operator_that_fails():
    program = Program.parse("""
        block 0
          data x: float32[2]
          data row: float32[3]
          a: float32[2] = elementwise_add(X=x, Y=row)
          b: float32[2] = relu(X=a)
          c: float32[2] = scale(X=x) {scale=1e30}
          d: float32[2] = square(X=c)
    """)
    program.roots = ("c",)
    arrays = {"x": np.ones(2, "float32"), "row": np.ones(3, "float32")}
    assert [results is None for results in results_by_op(Case(program, arrays))] == [True, True, False, False]
    assert not runs_completely(Case(program, arrays))
    assert not computes_finite_numbers(Case(program, arrays))


def test_a_number_that_asks_for_all_memory_is_an_error():
    program = Program.parse("""
        block 0
          data n: int64[1]
          out: float32[-1] = fill_constant(ShapeTensorList=[n]) {shape=[-1], value=1.0}
    """)
    program.roots = ("out",)
    assert Case(program, {"n": np.array([3])}).run()["out"][0].shape == (3,)
    with pytest.raises(ExecutionError, match="ShapeTensorList asks for more"):
        Case(program, {"n": np.array([2**31])}).run()


@pytest.mark.slow
def test_a_loop_without_an_end_is_an_error():
    def goes_on(program):
        """Let loops keep their first condition."""
        inner = [block for block in program.blocks[1:] if any(op.type == "less_than" for op in block.ops)]
        for block in inner:
            for op in [op for op in block.ops if op.type == "less_than"]:
                block.remove(op)
        return bool(inner)

    found = rewrite.check(goes_on, programs=400)
    assert found is not None and found.law in ("runs", "valid")


def goes_on(program):
    """Turn to the same operator again and again."""
    while any(op.type == "relu" for op in program.global_block().ops):
        pass
    return False


def grows(program):
    """Put a relu after each relu."""
    block, changed = program.global_block(), False
    for op in block.ops:
        if op.type == "relu":
            block.insert(op._next, "relu", {"X": op.output("Out")}, {"Out": [block.create_var().name]})
            changed = True
    return changed


@pytest.mark.slow
@pytest.mark.parametrize("endless", [goes_on, grows])
def test_a_pass_without_an_end_is_named_with_the_program(endless):
    found = rewrite.check(endless, seconds=0.3, plant=[lambda pick: layers.relu(pick())])
    assert found.law == "ends" and f"{endless.__name__} does not end: it has " in found.difference
    assert "test_check.py" in found.difference
    assert [op.type for op in found.program.global_block().ops] == ["relu"]


@pytest.mark.slow
@pytest.mark.parametrize(("waits", "law"), [(0.3, None), (2.0, "ends")])
def test_a_pass_may_wait_for_a_while(waits, law):
    def rests(program):
        end = monotonic() + waits
        while monotonic() < end:
            sleep(0.01)
        return False

    found = rewrite.check(rests, programs=1, seconds=0.1, reduce=False)
    assert (found and found.law) == law


@pytest.mark.slow
def test_a_pass_that_grows_a_program_is_ended_by_the_number_of_its_changes():
    found = rewrite.check(grows, seconds=100, plant=[lambda pick: layers.relu(pick())], reduce=False)
    assert found.law == "ends" and "it has changed the program 1" in found.difference


@pytest.mark.slow
def test_a_pass_cannot_catch_its_end():
    def holds_on(program):
        while True:
            with suppress(Exception):
                program.global_block().ops[0]

    found = rewrite.check(holds_on, programs=1, seconds=0.1, reduce=False)
    assert found.law == "ends"


@pytest.mark.slow
def test_what_follows_a_check_can_be_profiled():
    """A pending exception that is taken back would keep a profiler of CPython 3.11 from going on."""
    program = (
        "import cProfile; from minigraph.rewrite.limits import bounded; bounded(int, 9, 9);"
        "cProfile.run('bounded(int, 9, 9)')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.DEVNULL, check=True, timeout=120)


def test_operators_of_a_sub_block_are_left_out_and_read_past():
    program = Program()
    with program_guard(program, Program()), unique_name.guard():
        x, start, network = data("x", [2, 3]), data("start", [3]), layers.StaticRNN()
        with network.step():
            word, memory = network.step_input(x), network.memory(init=start)
            network.update_memory(memory, layers.tanh(layers.relu(layers.elementwise_add(word, memory))))
            network.step_output(layers.scale(word, 2.0))
        program.roots = (network().name,)
    small = rewrite.reduce(program, lambda each: each.num_blocks > 1 and bool(each.block(1).ops.of_type("scale")))
    inner = small.block(1)
    assert [op.type for op in inner.ops] == ["scale"]
    assert not [name for name in inner.vars if name.startswith(("tanh", "relu", "elementwise_add"))]
