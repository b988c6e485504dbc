"""What a trace records of the rewriting of programs."""

import threading
import time

import numpy as np
import pytest
from exact_rules import square
from hypothesis import given, settings
from networks import Network
from traced import Doubled, X, chain

import minigraph as fluid
from minigraph import layers, rewrite
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir.verifier import verify
from minigraph.passes import LOWERING, CleanUp, FuseElementwise, RemoveDeadOps, events
from minigraph.passes.base import Pass
from minigraph.rewrite.random_programs.recipes import build
from minigraph.rewrite.strategies import recipes, trainings
from minigraph.rewrite.tracing import Track, numbers
from minigraph.runtime.evaluate import evaluate


def check_replay(trace):
    """Every step's text parses, verifies and prints alike, and the last state of each program is that program."""
    for step in trace.steps:
        parsed = fluid.Program.parse(step.text)
        verify(parsed)
        assert str(parsed) == str(step.program) == step.text
    for track in trace.tracks:
        assert track.steps[-1].text == str(track.program)
        assert track.steps[-1].program.equals(track.program)


def names(trace):
    return [step.name for step in trace.steps if step.changed]


def test_each_pass_is_a_step_with_what_it_changed():
    main, _ = chain()
    with rewrite.trace(main) as t:
        RemoveDeadOps().apply(main)
        RemoveDeadOps().apply(main)
    assert [(step.name, step.changed, step.operators) for step in t.steps] == [
        ("start", False, 4), ("RemoveDeadOps", True, 3), ("RemoveDeadOps", False, 3),
    ]  # fmt: skip
    assert "-   scale_3.tmp_0: float32[-1, 4] = scale(X=scale_2.tmp_0) {scale=3.0}" in t[1].diff.split("\n")
    assert t[1].matched == ("scale_3.tmp_0: float32[-1, 4] = scale(X=scale_2.tmp_0) {scale=3.0}",)
    assert t[1].site.filename.endswith("dead_ops.py")
    assert t[0].bytes - t[1].bytes == 2 * 16, "one value is read and one written"
    assert t[1].seconds > 0
    check_replay(t)


def test_edits_between_passes_are_steps_too():
    main, _ = chain()
    with rewrite.trace(main) as t:
        main.global_block().ops[0].set_attr("scale", 7.0)
        RemoveDeadOps().apply(main)
        main.global_block().ops[0].set_attr("scale", 8.0)
    assert names(t) == ["edits", "RemoveDeadOps", "edits"]
    check_replay(t)


def test_a_state_stays_as_it_was():
    main, _ = chain()
    before = str(main)
    with rewrite.trace(main) as t:
        RemoveDeadOps().apply(main)
    changed = t[0].program
    changed.global_block().ops[0].set_attr("scale", 9.0)
    main.global_block().ops[0].set_attr("scale", 8.0)
    assert t[0].text == before
    assert str(t[0].program) == before
    assert t[0].program.global_block().ops[0].site == main.global_block().ops[0].site


def test_a_firing_is_a_step_inside_its_rule():
    class Halve(Pass):
        def apply(self, program):
            for op in program.global_block().ops.of_type("scale")[:2]:
                events.fired(self, program, [op])
                op.set_attr("scale", 0.25)
            return True

    main, _ = chain()
    with rewrite.trace(main) as t:
        Halve().apply(main)
    assert names(t) == ["Halve", "Halve"]
    assert [step.matched[0].split(":")[0] for step in t.steps[1:]] == ["scale_0.tmp_0", "scale_1.tmp_0"]
    check_replay(t)


@pytest.mark.slow
def test_each_firing_of_rules_is_a_program():
    @rewrite.rule
    def scale_of_scale(x, a=rewrite.attr("scale"), b=rewrite.attr("scale")):
        return layers.scale(layers.scale(x, scale=a), scale=b)

    @scale_of_scale.to
    def _(x, a, b):
        return layers.scale(x, scale=a * b)

    main, value = chain(40)
    with rewrite.trace(main, feed={"x": X}) as t:
        rewrite.Rules(scale_of_scale).apply(main)
        RemoveDeadOps().apply(main)
    firings = [step for step in t.steps if step.name == "scale_of_scale"]
    assert [step.operators for step in firings] == list(range(40, 1, -1))
    assert t[-1].program.equals(main)
    assert all(step.inside == ("Rules",) and len(step.matched) == 2 for step in firings)
    assert t.first_wrong(value) is None
    check_replay(t)


@pytest.mark.slow
def test_building_and_running_are_traced():
    with rewrite.trace() as t:
        network = Network("adam", "global norm")
        scope = fluid.Scope()
        executor = fluid.Executor()
        executor.run(network.startup, scope=scope)
    titles = [track.title for track in t.tracks]
    assert titles[:2] == ["program 0", "startup program"] or "startup program" in titles
    assert any(title.startswith("private copy of startup program") for title in titles)
    steps = [step.name for step in t.steps]
    assert {"append_backward", "GradientClipByGlobalNorm", "AdamOptimizer", "prune", "concretize"} <= set(steps)
    assert [step.name for step in t.steps if step.inside == ("Pipeline",)] == [each.name for each in LOWERING]
    check_replay(t)


def test_a_given_program_is_followed_into_its_copies_only():
    main, value = chain()
    other, _ = chain()
    with rewrite.trace(main) as t:
        RemoveDeadOps().apply(other)
        RemoveDeadOps()(main)
        fluid.Executor().run(main, feed={"x": X}, fetch_list=[value])
    assert [track.title for track in t.tracks] == [
        "program 0", "clone of program 0", "private copy of program 0, fetching scale_2.tmp_0",
    ]  # fmt: skip
    check_replay(t)


def test_clones_of_a_given_program_are_followed():
    main, _ = chain()
    with rewrite.trace(main) as t:
        twin = main.clone().clone()
        RemoveDeadOps().apply(twin)
        RemoveDeadOps().apply(chain()[0])
    assert [track.program for track in t.tracks] == [main, twin]
    assert [(step.name, step.track.title) for step in t.steps] == [
        ("start", "program 0"), ("clone", "clone of program 0"), ("RemoveDeadOps", "clone of program 0"),
    ]  # fmt: skip


@pytest.mark.slow
def test_the_time_of_a_step_is_without_that_of_the_recording(monkeypatch):
    class Slow(Pass):
        def apply(self, program):
            program.global_block().ops[0].set_attr("scale", 0.75)
            time.sleep(0.01)
            return True

    main, _ = chain()
    look = Track.look

    def slowly(self, carefully):
        time.sleep(0.2)
        return look(self, carefully)

    monkeypatch.setattr(Track, "look", slowly)
    with rewrite.trace(main) as t:
        Slow().apply(main)
    assert 0.01 <= t[1].seconds < 0.2


def test_other_threads_are_not_recorded():
    main, _ = chain()
    with rewrite.trace(main) as t:
        thread = threading.Thread(target=lambda: RemoveDeadOps().apply(chain()[0]))
        thread.start()
        thread.join()
    assert names(t) == []


def test_an_error_ends_the_trace_and_keeps_the_steps():
    class Fails(Pass):
        def apply(self, program):
            program.global_block().remove(0)
            raise ValueError("no")

    main, _ = chain()
    with pytest.raises(ValueError), rewrite.trace(main) as t:
        RemoveDeadOps().apply(main)
        Fails().apply(main)
    assert names(t) == ["RemoveDeadOps", "Fails"]
    assert not events.observers
    with rewrite.trace(main) as t, pytest.raises(ValueError):
        Fails().apply(main)
    assert len(t.steps) == 2


# Numbers


def test_a_right_pass_changes_no_value():
    main, value = chain()
    with rewrite.trace(main, feed={"x": X}) as t:
        RemoveDeadOps().apply(main)
    assert t[1].difference.largest == 0
    assert t.first_wrong(fetch=[value]) is None


def test_the_first_wrong_step_is_found_among_many():
    main, value = chain(30)
    with rewrite.trace(main, feed={"x": X}) as t:
        for number in range(20):
            (Doubled() if number == 13 else RemoveDeadOps()).apply(main)
            main.global_block().ops[-1].set_attr("bias", 0.0)
    assert t.first_wrong(fetch=[value]).name == "Doubled"
    assert t.first_wrong(fetch=value.name) is t.first_wrong(fetch=[value])
    wrong = t.first_wrong(fetch=[value])
    assert wrong.difference.name == "scale_0.tmp_0"
    assert wrong.difference.largest == pytest.approx(0.5)
    assert wrong.difference.relative == pytest.approx(1.0)


def test_what_computes_the_same_is_computed_once(monkeypatch):
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        value = fluid.data("x", [None, 4])
        for _ in range(20):
            value = layers.tanh(layers.square(value))
    main.roots = (value.name,)
    with rewrite.trace(main, feed={"x": X}) as trace:
        square.apply(main)
    evaluated = []
    monkeypatch.setattr(numbers, "evaluate", lambda op, *rest: evaluated.append(op.type) or evaluate(op, *rest))
    assert trace.steps[-1].difference.largest == 0 and len(evaluated) == 40 + 1
    assert all(step.difference.largest == 0 for step in trace.steps[1:])
    assert evaluated.count("elementwise_mul") == 20 and len(evaluated) == 60


def test_a_dropped_fetch_is_wrong():
    class Drops(Pass):
        def apply(self, program):
            program.global_block().remove(2)
            return True

    main, value = chain()
    RemoveDeadOps().apply(main)
    with rewrite.trace(main, feed={"x": X}) as t:
        Drops().apply(main)
    assert t.first_wrong(fetch=[value]) is t[1]


def test_an_operator_that_cannot_run_is_named():
    class Breaks(Pass):
        def apply(self, program):
            program.global_block().ops[1].set_attr("shape", [3, 3])
            return True

    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        value = layers.scale(layers.reshape(layers.scale(fluid.data("x", [None, 4]), 2.0), [-1, 2]), 2.0)
    with rewrite.trace(main, feed={"x": X}) as t:
        Breaks().apply(main)
    assert t[0].errors == ()
    assert t[1].errors[0].startswith("reshape2: ")
    assert t.first_wrong(value).name == "Breaks"


def test_random_operators_are_no_difference():
    class RemoveFirst(Pass):
        def apply(self, program):
            program.global_block().remove(0)
            return True

    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4])
        layers.dropout(x, 0.5)
        kept = layers.dropout(layers.assign(x), 0.5)
        loss = layers.mean(kept * layers.uniform_random([2, 4]))
        main.roots = (loss.name,)
    with rewrite.trace(main, feed={"x": X}) as t:
        RemoveFirst().apply(main)
        CleanUp().apply(main)
    assert names(t) == ["RemoveFirst", "CleanUp"]
    assert [step.difference.largest for step in t.steps[1:]] == [0, 0]


def test_numbers_follow_a_run_into_its_private_copy(new_scope):
    network = Network("adam", "global norm", sizes=(5, 7, 3))
    executor = fluid.Executor()
    executor.run(network.startup)
    with rewrite.trace(network.main, feed=network.feed) as t:
        executor.run(network.main, feed=network.feed, fetch_list=[network.loss])
    assert "MergeUpdates" in names(t)
    assert all(step.difference.largest < 1e-6 for step in t.steps if step.difference)
    assert t.first_wrong(fetch=[network.loss]) is None
    assert t.first_wrong() is None


def test_without_a_feed_the_first_run_gives_one(new_scope):
    main, value = chain()
    wrong = main.clone()
    with rewrite.trace() as t:
        fluid.Interpreter().run(main, feed={"x": X}, fetch_list=[value])
        fluid.Executor().run(wrong, feed={"x": X}, fetch_list=[value])
        Doubled().apply(wrong)
    assert t.first_wrong(value).name == "Doubled"
    assert t.first_wrong(value).difference.name == "scale_0.tmp_0"


def test_a_dead_write_that_goes_is_no_difference():
    main, value = chain()
    with fluid.program_guard(main):
        layers.assign(fluid.layers.scale(value, 7.0), output=main.global_block().var("scale_0.tmp_0"))
    with rewrite.trace(main, feed={"x": X}) as t:
        RemoveDeadOps().apply(main)
    assert t[1].operators == 3
    assert t[1].difference.largest == 0


def test_questions_inside_of_a_trace_are_no_steps():
    main, _ = chain()
    with rewrite.trace(feed={"x": X}) as t:
        RemoveDeadOps().apply(main)
        assert t[1].difference.largest == 0
    assert len(t.tracks) == 1


def test_a_question_for_numbers_needs_a_feed():
    main, value = chain()
    with rewrite.trace(main) as t:
        RemoveDeadOps().apply(main)
    assert t[1].difference is None
    with pytest.raises(ProgramError, match="without a feed"):
        t.first_wrong(fetch=[value])
    with rewrite.trace(main, feed={}) as t:
        RemoveDeadOps().apply(main)
    with pytest.raises(ProgramError, match="no program of the trace computes"):
        t.first_wrong(fetch=[value])


def test_only_programs_are_traced():
    with pytest.raises(WrongTypeError, match="a trace is of Programs"):
        rewrite.trace({"x": X})


def test_a_trace_prints_what_changed():
    main, _ = chain()
    with rewrite.trace(main, feed={"x": X}) as t:
        RemoveDeadOps().apply(main)
        Doubled().apply(main)
    lines = str(t).split("\n")
    assert lines[0] == "3 steps on 1 program"
    assert lines[1] == "program 0: 4 to 3 operators"
    assert lines[2].startswith("     1  RemoveDeadOps  +1 -1 lines, 3 operators, ")
    assert lines[3].endswith("largest difference 0.5 in scale_0.tmp_0")


# Laws


@pytest.mark.laws
@settings(max_examples=settings.default.max_examples // 5)
@given(recipes(training=trainings()))
def test_every_state_of_a_random_program_is_a_program(recipe):
    with rewrite.trace() as t:
        built = build(recipe)
        fluid.Executor().run(built.startup, scope=(scope := fluid.Scope()))
        fluid.Executor().run(built.main, feed=built.feed(0), fetch_list=[built.loss], scope=scope)
    check_replay(t)


def test_control_flow_is_recorded():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [2, 4])
        total = layers.reduce_sum(x)
        out = layers.cond(total > 0, lambda: layers.scale(x, 2.0), lambda: layers.scale(x, 3.0))
        out = layers.tanh(layers.scale(out, 1.0) + 1.0)
        layers.scale(out, 5.0)
        main.roots = (out.name,)
    with rewrite.trace(main, feed={"x": X + 1}) as t:
        CleanUp().apply(main)
        RemoveDeadOps().apply(main)
        FuseElementwise().apply(main)
    assert "RemoveDeadOps" in names(t)
    assert t.first_wrong(out) is None
    check_replay(t)


def _of_sequences():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4], lod_level=1)
        pooled = layers.sequence_pool(layers.scale(layers.scale(x, 2.0), 3.0), "sum")
    main.roots = (pooled.name,)
    return main, {"x": fluid.create_lod_tensor(np.ones((5, 4), "float32"), [[2, 3]], fluid.CPUPlace())}


def test_values_are_those_of_the_sequences_that_are_fed(tmp_path):
    program, feed = _of_sequences()

    class Five(Pass):
        def apply(self, program):
            program.global_block().ops[0].set_attr("scale", 5.0)
            return True

    with rewrite.trace(program, feed=feed) as t:
        Five().apply(program)
    assert str(t[1].difference) == f"27 in {program.roots[0]}"  # 3 rows of (5 - 2) * 3
    assert t.first_wrong(fetch=program.roots).name == "Five"
    assert t[1].bytes > 0
    t.save(tmp_path / "steps.html")


def test_a_trace_without_lengths_knows_no_sequences():
    program, feed = _of_sequences()
    with rewrite.trace(program, feed={"x": np.array(feed["x"])}) as t:
        program.global_block().ops[0].set_attr("scale", 5.0)
    assert str(t[1].difference) == "9 in scale_1.tmp_0"
    with pytest.raises(ProgramError, match="no program of the trace computes"):
        t.first_wrong(fetch=program.roots)
