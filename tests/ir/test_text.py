"""The text of a program: printing and parsing are inverse; errors and differences."""

import math
from dataclasses import dataclass
from itertools import pairwise
from textwrap import dedent

import pytest
from asserting import assert_text
from drawn_programs import PretendClip, any_programs
from growth import assert_grows
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from minigraph.errors import MinigraphError, ParseError, WrongTypeError
from minigraph.ir import Program, Role
from minigraph.ir.printable import printable
from minigraph.ir.text.diff import diff, diff_lines, matching_lines
from minigraph.ir.text.notation import name_text, value_text
from minigraph.ir.text.parser import parse
from minigraph.ir.verifier import verify
from minigraph.rewrite.strategies import trained_programs
from minigraph.types import DType


@printable
@dataclass(frozen=True)
class ClipByNorm:
    clip_norm: float

    def __post_init__(self):
        if not self.clip_norm > 0:
            raise MinigraphError("clip_norm must be positive", hint="Leave it out.")


TRAINING = """
    block 0
      param w: float32[4] {gradient_clip=ClipByNorm(clip_norm=1.0)}
      persist lr: float32[1]
      data w@GRAD: float32[4]
      clip_by_norm_0.tmp_0: float32[4] = clip_by_norm(X=w@GRAD) {max_norm=1.0, role='optimize'}
      w = sgd(Param=w, LearningRate=lr, Grad=clip_by_norm_0.tmp_0) {role='optimize'}
"""


def assert_round_trip(program):
    text = str(program)
    again = parse(text)
    assert str(again) == text
    assert again.equals(program)


# Printing


def test_a_program_that_was_built_prints_as_it_would_be_written():
    program = Program()
    block = program.global_block()
    w = block.create_parameter("w", [4], gradient_clip=ClipByNorm(1.0))
    lr = block.create_var(name="lr", shape=[1], persistable=True)
    grad = block.create_var(name="w@GRAD", shape=[4], is_data=True, stop_gradient=True)
    with program.role_guard(Role.OPTIMIZE):
        clipped = block.create_var(name="clip_by_norm_0.tmp_0")
        block.append_op("clip_by_norm", {"X": grad}, {"Out": clipped}, {"max_norm": 1.0})
        block.append_op("sgd", {"Param": w, "LearningRate": lr, "Grad": clipped}, {"ParamOut": w})
    assert_text(program, TRAINING)


@pytest.mark.parametrize(
    "line",
    [
        "param p: float64[2, 3] {trainable=False, optimize_attr={'learning_rate': 0.5}, need_clip=False}",
        "param p: float32[2] {stop_gradient=True, regularizer=ClipByNorm(clip_norm=0.1), do_model_average=False}",
        "param p: float32[2] {kind='selected_rows', persistable=False}",
        "persist p: int64[1] {stop_gradient=True}",
        "data p: float16[-1, 4] {need_check_feed=True}",
        "data p: float32[1] {persistable=True, stop_gradient=False}",
        "var p: unknown",
        "var p: float32[]",
        "var p: bool[0] {error_clip=PretendClip(limit=1.0, axes=(1,))}",
        'var "two words": float32[1]',
        'var "": uint8[1]',
        'var "a=b, [c] # \\"d\\" \\n": int8[1]',
        "var größe: float32[1]",
        "var grad/grad/x@GRAD@RENAME@block0@0: float32[1]",
    ],
)
def test_a_declaration_keeps_every_field(line):
    program = parse(f"block 0\n  {line}")
    assert str(program) == f"block 0\n  {line}"
    assert_round_trip(program)


@pytest.mark.parametrize(
    "line",
    [
        "y: float32[-1, 4] = relu(X=x)",
        "y: float32[-1, 4] {stop_gradient=True} = relu(X=x)",
        "x = relu(X=x)",
        "y: float32[-1, 4] = scale(X=x) {scale=0.1, bias=-inf, bias_after_scale=False}",
        "y: float32[-1, 4] = scale(X=x) {scale=nan, role='forward|loss', role_vars=[x, \"a b\"], namescope='/\\'/'}",
        "y: float64[-1, 4] = cast(X=x) {in_dtype=float32, out_dtype=float64}",
        "y: float32[-1, 4] = sum(X=[x, x])",
        "y: float32[-1, 4] = sum(X=[x])",
        "[y: float32[-1, 4], z: float32[-1, 4]] = concat_grad(X=[x, x], Out@GRAD=x) {axis=1}",
        "[y: float32[-1, 4], @EMPTY@] = concat_grad(X=[x, x], Out@GRAD=x) {axis=1}",
        "Out=y: float32[-1, 4], Mask=z: uint8[-1, 4] = dropout(X=x)",
        "Out=y: float32[-1, 4] = dropout(X=x)",
        "y: float32[-1, 4] = relu(X=x) {role='backward|loss'}",
        "y: float32[-1, 4] = relu(X=x) {role='optimize|clip'}",
        "y: float32[-1, 4] = relu(X=x) {role='lr_sched'}",
        "y: float32[-1, 4] = relu(X=x) {role=32}",
    ],
)
def test_an_operator_keeps_every_field(line):
    program = parse(f"block 0\n  data x: float32[-1, 4]\n  {line}")
    assert str(program).splitlines()[-1] == f"  {line}"
    assert_round_trip(program)


def test_a_variable_is_declared_where_it_is_first_written():
    program = parse("""
        block 0
          data x: float32[4]
          y: float32[4] = relu(X=x)
          y = relu(X=y)
    """)
    assert [str(op) for op in program.global_block().ops] == [
        "y: float32[4] = relu(X=x)",
        "y: float32[4] = relu(X=y)",  # alone, a line shows its types
    ]
    assert str(program.global_block()) == str(program)
    assert_round_trip(program)


def test_an_operator_that_left_its_block_still_prints():
    program = parse("block 0\n  data x: float32[4]\n  y: float32[4] = relu(X=x)")
    op = program.global_block().ops[0]
    program.global_block().remove(op)
    assert str(op) == "y = relu(X=x)"
    assert str(program) == "block 0\n  data x: float32[4]\n  var y: float32[4]"


def test_the_fields_of_a_program_stand_in_a_header_only_where_they_differ():
    program = parse("program {random_seed=7, backward_passes=2}\nblock 0")
    assert (program.random_seed, program.backward_passes) == (7, 2)
    assert str(program) == "program {random_seed=7, backward_passes=2}\nblock 0"
    assert str(Program()) == "block 0"


def test_a_sub_block_names_its_parent_and_sees_its_variables():
    text = dedent("""
        block 0
          data x: float32[4]
          var y: float32[4]
        block 1 parent 0
          y = relu(X=x)
          z: float32[4] = relu(X=y)
        block 2 parent 1
          z = relu(X=z)
    """).strip()
    program = parse(text)
    assert [block.parent_idx for block in program.blocks] == [-1, 0, 1]
    assert str(program) == text


def test_a_name_may_be_declared_below_its_use():
    # What verify has to report must be possible to write down.
    program = parse("block 0\n  y: float32[4] = relu(X=z)\n  z: float32[4] = relu(X=y)")
    assert_round_trip(program)
    with pytest.raises(MinigraphError, match="before it is written"):
        verify(program)


def test_indentation_comments_and_blank_lines_are_free():
    program = parse("""
  # a comment

block 0 # another
       data x :float32 [ -1,4, ]
  y:float32[-1,4]=scale( X=x ){scale=2, }
\t\t\r
""")
    assert str(program).splitlines()[1:] == ["  data x: float32[-1, 4]", "  y: float32[-1, 4] = scale(X=x) {scale=2.0}"]


def test_parsing_keeps_declared_types_even_wrong_ones():
    program = parse("block 0\n  data x: float32[4]\n  y: float64[7] = relu(X=x)")
    assert program.global_block().var("y").shape == (7,)
    assert program.global_block().var("y").dtype is DType.FP64


def test_float_attributes_print_the_shortest_text_of_their_float32():
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[1], is_data=True)
    for value in (0.1, 1e-8, 1 / 3, 16777216, -0.5, 1e30, math.inf):
        block.append_op("scale", {"X": "x"}, {"Out": "x"}, {"scale": value})
    shown = [str(op).split("scale=")[1].rstrip("}") for op in block.ops]
    assert shown == ["0.1", "1e-08", "0.33333334", "16777216.0", "-0.5", "1e+30", "inf"]
    assert_round_trip(program)


def test_values_read_like_python():
    values = [True, None, 3, 0.1, math.inf, "it's", [1, [2.5]], (), (1,), (1, "a"), {"a": {1: None}}]
    assert value_text(values) == (
        "[True, None, 3, 0.1, inf, 'it\\'s', [1, [2.5]], (), (1,), (1, 'a'), {'a': {1: None}}]"
    )


def test_of_a_strategy_only_the_fields_that_differ_from_their_defaults_are_shown():
    assert value_text(PretendClip(0.25)) == "PretendClip(limit=0.25)"
    assert (
        value_text(PretendClip(1.0, inner=ClipByNorm(2.0))) == "PretendClip(limit=1.0, inner=ClipByNorm(clip_norm=2.0))"
    )


def test_a_function_prints_but_does_not_parse():
    program = Program()
    program.global_block().create_parameter("w", [1], gradient_clip=PretendClip(1.0, inner=lambda param: True))
    assert (
        str(program)
        == dedent("""
        block 0
          param w: float32[1] {gradient_clip=PretendClip(limit=1.0, inner=<function lambda>)}
    """).strip()
    )
    with pytest.raises(ParseError, match="<function lambda> is a Python object that text cannot hold"):
        parse(str(program))


@pytest.mark.slow
@given(st.text())
@example("\ud800 \x85 \u2028 \U0001f600 \\ \" '")
@example("@EMPTY")
def test_any_string_is_a_name_and_an_attribute(text):
    program = Program()
    block = program.global_block()
    block.create_var(name=text, shape=[1], is_data=True)
    block.append_op("relu", {"X": text}, {"Out": text}, {"op_role_var": [text], "op_namescope": text or "/"})
    assert len(str(program).splitlines()) == 3
    assert_round_trip(program)


def test_plain_names_have_no_quotes():
    assert [name_text(name) for name in ("x@GRAD", "a b", "a:b", "ä", "1", "")] == [
        "x@GRAD",
        '"a b"',
        '"a:b"',
        "ä",
        "1",
        '""',
    ]


@pytest.mark.laws
@settings(
    max_examples=settings.default.max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
)
@given(any_programs())
def test_printing_and_parsing_are_inverse(program):
    assert_round_trip(program)


@pytest.mark.laws
@settings(deadline=None)
@given(trained_programs())
def test_the_text_of_a_trained_program_describes_a_sound_program(program):
    assert_round_trip(program)
    verify(parse(str(program)))
    assert diff(program, parse(str(program))) == ""


def test_a_parsed_operator_remembers_the_line_that_called_parse():
    program = parse("block 0\n  data x: float32[4]\n  y: float32[4] = relu(X=x)")
    site = program.global_block().ops[0].site
    assert site.filename == __file__
    assert "program = parse(" in str(site)


# Errors

START = "block 0\n  param w: float32[4]\n  data x: float32[-1, 4]\n"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        # Statements
        ("data x: float32[1]", "line 1: this stands in no block", "The first line is `block 0`"),
        ("block 1", "expected block 0, found block 1", "numbered in order"),
        (START + "block 3", "expected block 1, found block 3", "numbered in order"),
        (START + "block 1 parent 1", "the parent of a block must stand above it", "block 1 parent 0"),
        (START + "parm v: float32[3]", "line 4: parm does not start a statement", "Did you mean param?"),
        (START + "program {random_seed=1}", "the fields of the program stand above its blocks", ""),
        ("program {random_sed=1}", "a program has no field 'random_sed'", "Did you mean random_seed?"),
        ("program {random_seed=1.5}", "random_seed must be int, not 1.5", ""),
        (START + "relu", "expected '=', the line ends", "An operator reads"),
        (START + "y = relu", "expected '=', the line ends", "An operator reads"),
        (START + "w = relu(X=x) w", "expected the end of the line, found 'w'", ""),
        (START + "(", "expected an output, found '('", ""),
        (START + "w = relu(X=x", "expected ',' or ')', the line ends", ""),
        # Declarations
        (START + "data w: float32[4]", "w is declared twice", ""),
        (START + "w: float32[4] = relu(X=x)", "w is declared twice", ""),
        (START + "var v float32[4]", "expected ':', found 'float32'", "A declaration reads `var v: float32[-1, 4]`"),
        (START + "var v: float31[4]", "float31 is no element type", "Did you mean float32"),
        (START + "var v: quaternion[4]", "quaternion is no element type", "Use one of bool, int16"),
        (START + "var v: float32", "expected '[', the line ends", "where -1 is unknown"),
        (START + "var v: float32[a]", "a dimension must be at least 0, or -1 for unknown, not a", ""),
        (START + "var v: float32[-2]", "a dimension must be at least 0, or -1 for unknown, not -2", ""),
        (START + "param v: unknown", "the type of a parameter must be known", ""),
        (START + "var v: float32[4] {colour=True}", "a var has no field 'colour'", "It has kind, persistable"),
        (START + "param v: float32[4] {trainible=True}", "a param has no field 'trainible'", "Did you mean trainable?"),
        (START + "param v: float32[4] {trainable=1}", "trainable must be bool, not 1", ""),
        (START + "param v: float32[4] {trainable=True, trainable=True}", "trainable is given twice", ""),
        (START + "var v: float32[4] {kind='tree'}", "kind must be 'lod_tensor' or 'selected_rows' or 'lod_tensor", ""),
        # Values
        (START + "w = scale(X=x) {scale=abc}", "abc is no value", "A string is written in quotes"),
        (START + "w = scale(X=x) {scale=Tru}", "Tru is no value", "Did you mean True?"),
        (START + "w = scale(X=x) {scale=}", "expected a value, found '}'", ""),
        (START + "var v: float32[4] {error_clip={[1]: 2}}", "[1] cannot be a key", ""),
        (START + "var v: float32[4] {error_clip=ClipByNom(clip_norm=1.0)}", "there is no ClipByNom", "ClipByNorm"),
        (START + "var v: float32[4] {error_clip=ClipByNorm(norm=1.0)}", "ClipByNorm has no field 'norm'", "clip_norm"),
        (START + "var v: float32[4] {error_clip=ClipByNorm(clip_norm=0.0)}", "clip_norm must be positive", "Leave"),
        (START + "var v: float32[4] {error_clip=ClipByNorm()}", "missing 1 required positional argument", ""),
        (START + "var v: float32[4] {error_clip=<function f>}", "is a Python object that text cannot hold", "Leave"),
        (START + "var 'v: float32[4]", "this string has no end", "a line break in it is written \\n"),
        (START + "var 'v\\q': float32[4]", "unknown escape", "A backslash is written \\\\"),
        (START + "var v; float32[4]", "unexpected character ';'", "double quotes"),
        # Operators
        (START + "w = rellu(X=x)", "there is no operator type 'rellu'", "Did you mean relu"),
        (START + "w = relu(Y=x)", "relu has no input slot 'Y'", "It has X."),
        (START + "w = relu(X=x, X=w)", "X is given twice", "X=[a, b]"),
        (START + "w = relu(X)", "expected '=', found ')'", "An input reads X=x"),
        (START + "w = relu(X=[x, w])", "relu: input X takes one variable, got 2: x, w", ""),
        (START + "w = relu()", "relu: input X is missing", ""),
        (START + "w = dropout(X=x)", "dropout has the outputs Out, Mask: say which", "Write Slot=name"),
        (START + "Ot=w, Mask=x = dropout(X=x)", "dropout has no output slot 'Ot'", "Did you mean Out?"),
        (START + "w, x = relu(X=x)", "Out is written twice", "Out=[a, b]"),
        (START + "w = scale(X=x) {scal=1.0}", "scale: unknown attribute scal", "Did you mean scale?"),
        (START + "w = scale(X=x) {scale='a'}", "attribute scale must be float, got 'a'", ""),
        (START + "w = clip_by_norm(X=x)", "clip_by_norm: attribute max_norm is missing", ""),
        (START + "w = relu(X=x) {role='optimise'}", "'optimise' is no role", "Did you mean optimize?"),
        (START + "w = relu(X=x) {op_role=1}", "op_role is written role in text", ""),
        (START + "w = relu(X=x) {namescope=3}", "namescope must be a string", ""),
        (START + "w = relu(X=xx)", "xx is not declared", "Did you mean x?"),
        (START + "result = relu(X=x)", "result is not declared", "Declare it where it is first written"),
        (START + f"var v: float32[{2**63}]", "a dimension must be at least 0", "below 2**63"),
    ],
)  # fmt: skip
def test_what_is_no_program_is_refused(text, message, hint):
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert caught.value.message.startswith("line ")
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.details[0] == text.splitlines()[-1]


@pytest.mark.parametrize(
    "text, message, hint",
    [
        (START + f"var v: float32[{'9' * 5000}]", "a number of 5000 digits is too long", "at most 400"),
        (START + f"w = scale(X=x) {{scale={'9' * 5000}}}", "a number of 5000 digits is too long", "at most 400"),
        (START + f"w = assign_value() {{shape={'[' * 500}", "values are nested more than 64 levels deep", ""),
        (START + f"w = assign_value() {{shape={'{1: (' * 500}", "values are nested more than 64 levels deep", ""),
        (START + "w = relu(X=" + '"' + '\\"' * 300_000, "this string has no end", "Close it on the same line"),
        ("block 0\n" + "\n".join(f"block {n} parent {n - 1}" for n in range(1, 5000)), "is in more than 64 blocks", ""),
    ],
    ids=["dimension", "number", "lists", "dictionaries", "marks", "blocks"],
)
def test_text_without_measure_is_refused_at_once(text, message, hint):
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert len(str(caught.value)) < 1000


@pytest.mark.laws
@settings(
    max_examples=2 * settings.default.max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
)
@given(any_programs(), st.data())
def test_a_damaged_text_is_a_program_or_refused_with_a_line(program, data):
    text = str(program)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 5)))
    damage = data.draw(st.text("[](){}=,:<>'\"\\#-.1eE aAx@\n", max_size=3))
    try:
        again = parse(text[:start] + damage + text[end:])
    except ParseError as error:
        assert error.message.startswith("line ")
    else:
        assert_round_trip(again)


def test_an_error_points_at_the_place():
    with pytest.raises(ParseError) as caught:
        parse("block 0\n  data x: float32[4]\n    y: float32[4] = rellu(X=x)")
    assert str(caught.value).splitlines()[:4] == [
        "line 3: there is no operator type 'rellu'",
        "  y: float32[4] = rellu(X=x)",
        "                  ^",
        "  Did you mean relu or relu6 or prelu?",
    ]


def test_an_error_in_a_long_line_shows_the_part_that_matters():
    names = ", ".join(["x"] * 5000)
    with pytest.raises(ParseError) as caught:
        parse(f"block 0\n  data x: float32[4]\n  y: float32[4] = sum(X=[{names}, zz, {names}])")
    shown, caret = caught.value.details
    assert len(shown) <= 130
    assert shown[caret.index("^") :].startswith("zz, x")


def test_only_a_string_is_parsed():
    with pytest.raises(WrongTypeError, match="must be a str, got Program"):
        parse(Program())


# Difference


def test_equal_programs_have_no_difference():
    assert diff(parse(TRAINING), parse(TRAINING)) == ""


def test_a_difference_shows_what_goes_and_what_comes():
    before, after = parse(TRAINING), parse(TRAINING)
    block = after.global_block()
    block.ops[1].replace_input("clip_by_norm_0.tmp_0", "w@GRAD")
    block.remove(0)
    block.remove_var("clip_by_norm_0.tmp_0")
    assert "\n" + diff(before, after, context=1) == dedent("""
        |  block 0
        |    ...
        |    data w@GRAD: float32[4]
        |-   clip_by_norm_0.tmp_0: float32[4] = clip_by_norm(X=w@GRAD) {max_norm=1.0, role='optimize'}
        |-   w = sgd(Param=w, LearningRate=lr, Grad=clip_by_norm_0.tmp_0) {role='optimize'}
        |+   w = sgd(Param=w, LearningRate=lr, Grad=w@GRAD) {role='optimize'}
    """).replace("\n|", "\n").rstrip()  # fmt: skip


def test_a_difference_names_the_blocks_it_is_in():
    before = parse(
        "block 0\n  data x: float32[4]\n  var y: float32[4]\nblock 1 parent 0\n  y = relu(X=x)\n  y = relu(X=y)"
    )
    after = before.clone()
    after.block(1).ops[1].role = Role.BACKWARD
    assert diff(before, after, context=0).splitlines() == [
        "    ...",
        "  block 1 parent 0",
        "    ...",
        "-   y = relu(X=y)",
        "+   y = relu(X=y) {role='backward'}",
    ]


few_lines = st.lists(st.sampled_from("abcde"), max_size=12)


@pytest.mark.slow
@given(few_lines, few_lines)
def test_a_difference_leads_from_one_text_to_the_other(old, new):
    old, new = [f" {line}" for line in old], [f" {line}" for line in new]
    lines = list(diff_lines(old, new, context=12))
    if old == new:
        assert lines == []
    else:
        assert [line[2:] for line in lines if line[0] in " -"] == old
        assert [line[2:] for line in lines if line[0] in " +"] == new


@pytest.mark.slow
@given(few_lines, few_lines)
def test_matches_increase_and_match(old, new):
    pairs = matching_lines(old, new)
    assert all(old[i] == new[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))


# Speed


def chain(length):
    program = Program()
    block = program.global_block()
    block.create_var(name="t0", shape=[-1, 4], is_data=True, stop_gradient=True)
    for i in range(length):
        block.append_op("scale", {"X": f"t{i}"}, {"Out": f"t{i + 1}"}, {"scale": float(i)})
    return program


@pytest.mark.timing
def test_printing_parsing_and_comparing_take_linear_time():
    def work(length):
        before = chain(length)
        after = before.clone()
        for op in list(after.global_block().ops)[::5]:
            op.role = Role.LOSS

        def print_parse_and_compare():
            parse(str(before))
            diff(before, after)

        return print_parse_and_compare

    assert_grows(work, 1000, factor=8, limit=25)
