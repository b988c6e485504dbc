import pytest
from networks import Network

import minigraph as fluid
from minigraph import layers
from minigraph.passes import LOWERING, RemoveDeadOps, events
from minigraph.passes.base import Pass


class Listener(events.Observer):
    def __init__(self):
        self.heard = []

    def begin(self, rewrite, program):
        self.heard.append(("begin", name_of(rewrite)))

    def end(self, rewrite, program, changed):
        self.heard.append(("end", name_of(rewrite), changed))

    def fired(self, rule, program, matched):
        self.heard.append(("fired", rule, [op.type for op in matched]))

    def copied(self, source, copy, why):
        self.heard.append(("copied", why))

    def begun(self):
        return [event[1] for event in self.heard if event[0] == "begin"]


def name_of(rewrite):
    return getattr(rewrite, "__name__", type(rewrite).__name__)


@pytest.fixture
def listener():
    made = Listener()
    with events.observed_by(made):
        yield made


def program_with_a_dead_operator():
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x = fluid.data("x", [2])
        layers.scale(x, 2.0)
        main.roots = (layers.scale(x, 3.0).name,)
    return main


def test_a_pass_tells_when_it_begins_and_whether_it_changed_something(listener):
    program = program_with_a_dead_operator()
    RemoveDeadOps().apply(program)
    RemoveDeadOps().apply(program)
    assert listener.heard == [
        ("begin", "RemoveDeadOps"), ("end", "RemoveDeadOps", True),
        ("begin", "RemoveDeadOps"), ("end", "RemoveDeadOps", False),
    ]  # fmt: skip


def test_a_call_of_a_pass_tells_of_the_clone(listener):
    RemoveDeadOps()(program_with_a_dead_operator())
    assert listener.heard == [("copied", "clone"), ("begin", "RemoveDeadOps"), ("end", "RemoveDeadOps", True)]


def test_a_pass_that_raises_ends_without_an_answer(listener):
    class Raises(Pass):
        def apply(self, program):
            raise ValueError

    with pytest.raises(ValueError):
        Raises().apply(fluid.Program())
    assert listener.heard == [("begin", "Raises"), ("end", "Raises", None)]


def test_gradients_decay_clips_and_updates_are_rewrites(listener):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = layers.mean(layers.fc(fluid.data("x", [None, 3]), 2))
        decay = fluid.regularizer.L2Decay(0.1)
        fluid.optimizer.SGD(0.1, regularization=decay, grad_clip=fluid.clip.GradientClipByNorm(1.0)).minimize(loss)
    assert listener.begun() == ["append_backward", "GradientClipByNorm", "append_regularization_ops", "SGDOptimizer"]


def test_a_first_run_tells_of_its_private_program_and_of_each_pass(listener):
    network = Network()
    del listener.heard[:]
    fluid.Executor().run(network.startup, scope=fluid.Scope())
    assert listener.heard[0] == ("copied", "prune")
    assert listener.begun() == ["concretize", "Pipeline", *(each.name for each in LOWERING)]


def test_an_observer_hears_of_firings_until_it_goes(listener):
    program = program_with_a_dead_operator()
    events.fired("a rule", program, program.global_block().ops[:1])
    assert listener.heard == [("fired", "a rule", ["scale"])]
    with events.observed_by(Listener()):
        assert len(events.observers) == 2
    assert events.observers == (listener,)
