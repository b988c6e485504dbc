"""`rewrite.check` finds a pass that changes what a program declares, and none of the project's passes does."""

from dataclasses import fields, replace
from random import Random

import numpy as np
import pytest
from one_type import one_type_for_each_name
from plants import PLANTS

from minigraph import Program, passes, rewrite
from minigraph.clip import ErrorClipByValue, GradientClipByNorm
from minigraph.passes import IN_ORDER
from minigraph.regularizer import L2Decay
from minigraph.rewrite.declarations import changed_declaration
from minigraph.rewrite.hints import hints_of
from minigraph.rewrite.random_programs.drawing import draw


def parameters(program):
    return program.all_parameters()


def fed(program):
    return [var for var in program.list_vars() if var.is_data]


def computed(program):
    return [var for var in program.list_vars() if not var.is_data and not var.persistable]


def program_itself(program):
    return [program]


def operators(program):
    return [op for block in program.blocks for op in block.ops]


def setting(things, field, value):
    def sets(program):
        changed = [each for each in things(program) if getattr(each, field) != value]
        for each in changed:
            setattr(each, field, value)
        return bool(changed)

    return sets


CHANGES = [
    (parameters, "trainable", False), (parameters, "trainable", True), (parameters, "stop_gradient", True),
    (parameters, "need_clip", False), (parameters, "need_clip", True), (parameters, "regularizer", None),
    (parameters, "regularizer", L2Decay(0.5)), (parameters, "optimize_attr", {"learning_rate": 1.0}),
    (parameters, "gradient_clip", None), (parameters, "gradient_clip", GradientClipByNorm(3.0)),
    (parameters, "do_model_average", True), (parameters, "do_model_average", False),
    (parameters, "persistable", False), (computed, "persistable", True),
    (computed, "stop_gradient", True), (computed, "stop_gradient", False), (fed, "stop_gradient", True),
    (fed, "stop_gradient", False), (fed, "need_check_feed", False), (fed, "is_data", False),
    (parameters, "is_distributed", True), (parameters, "is_distributed", False),
    (fed, "lod_level", 1), (computed, "lod_level", 0), (program_itself, "backward_passes", 0),
    (computed, "error_clip", None), (computed, "error_clip", ErrorClipByValue(3.0)),
    (program_itself, "random_seed", 7), (program_itself, "random_seed", 0), (program_itself, "roots", None),
    (operators, "namescope", "/"), (operators, "namescope", "/mine/"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:random_seed")
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: f"{each[0].__name__}-{each[1]}-{each[2]}")
def test_a_change_of_a_declaration_is_found_within_dozens_of_programs(change):
    found = rewrite.check(setting(*change), programs=40, reduce=False)
    assert found is not None and found.law == "declarations"
    assert change[1].replace("namescope", "name scope") in found.difference


def orders_parameters(program):
    names = [var.name for var in program.all_parameters()]
    for name in sorted(names) if names != sorted(names) else ():
        program.global_block().vars[name] = program.global_block().vars.pop(name)
    return names != sorted(names)


def makes_variables_of_parameters(program):
    block, found = program.global_block(), program.all_parameters()
    for var in found:
        del block.vars[var.name]
        block.create_var(name=var.name, shape=var.shape, dtype=var.dtype, persistable=True)
    return bool(found)


def fixes_the_batch(program):
    found = [var for var in fed(program) if var.shape and var.shape[0] == -1]
    for var in found:
        var.tensor_type = var.tensor_type.with_shape((3, *var.shape[1:]))
    return bool(found)


def test_what_is_fed_keeps_its_shape():
    found = rewrite.check(fixes_the_batch, programs=60, reduce=False)
    assert found is not None and found.law == "declarations" and ".shape was (-1," in found.difference


@pytest.mark.parametrize("change", [orders_parameters, makes_variables_of_parameters])
def test_parameters_stay_parameters_in_their_order(change):
    found = rewrite.check(change, programs=40, reduce=False)
    assert found is not None and found.law == "declarations"


def test_a_change_that_the_pass_does_not_tell_is_found():
    def freezes(program):
        Freeze().apply(program)
        return False

    assert rewrite.check(freezes, programs=40, reduce=False).law == "truthful"


@pytest.mark.slow
def test_what_is_found_is_small_and_its_script_shows_the_declaration(capsys):
    found = rewrite.check(setting(parameters, "need_clip", True), programs=40)
    block = found.program.global_block()
    assert len(block.ops) <= 1 and len(block.vars) <= 3
    (parameter,) = block.all_parameters()
    assert (parameter.regularizer, parameter.gradient_clip, parameter.trainable) == (None, None, True)
    with np.printoptions():  # the script sets options of its own
        exec(compile(found.to_python(), "script.py", "exec"), {"__name__": "__main__"})
    assert "need_clip=False" in capsys.readouterr().out


class Freeze(passes.Pass):
    """Make all parameters constant in later training."""

    keeps_declarations = False

    def apply(self, program):
        return setting(parameters, "trainable", False)(program)


@pytest.mark.slow
def test_a_pass_may_change_declarations_on_purpose():
    assert rewrite.check(Freeze(), programs=100) is None


def test_one_operator_for_two_may_be_in_either_name_scope():
    first, second, other = (
        Program.parse(f"""
        block 0
          data x: float32[2, 3]
          data y: float32[2, 3]
          data d: float32[2, 3]
          X@GRAD=a: float32[2, 3], Y@GRAD=b: float32[2, 3] = elementwise_mul_grad(X=x, Y=y, Out@GRAD=d) {{namescope='{scope}'}}
        """)  # noqa: E501
        for scope in ("/one/", "/two/", "/other/")
    )
    assert changed_declaration(first, first.clone()) == ""
    assert "name scope /one/, is in /other/" in changed_declaration(first, other)
    two = Program.parse("""
    block 0
      data x: float32[2, 3]
      data y: float32[2, 3]
      data d: float32[2, 3]
      X@GRAD=a: float32[2, 3] = elementwise_mul_grad(X=x, Y=y, Out@GRAD=d) {namescope='/one/'}
      b: float32[2, 3] = elementwise_mul(X=x, Y=d) {namescope='/two/'}
    """)
    assert changed_declaration(two, second) == changed_declaration(two, first) == ""
    assert changed_declaration(two, other) != ""


def _with_least(each):
    return replace(each, least=2) if "least" in {field.name for field in fields(each)} else each


@pytest.mark.slow
@pytest.mark.parametrize(
    "each", [each if isinstance(each, passes.rules.Rules) else _with_least(each) for each in IN_ORDER],
    ids=lambda each: each.name,
)  # fmt: skip
def test_passes_of_executors_keep_declarations(each):
    hints = hints_of(each, (PLANTS[each.name],) if each.name in PLANTS else ())
    for number in range(12):
        program = draw(Random(f"declared/{number}"), hints).program
        one_type_for_each_name(program)
        twin = program.clone()
        with np.errstate(all="ignore"):
            each.apply(twin)
        assert changed_declaration(program, twin) == ""
