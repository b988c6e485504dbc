"""The collective transpilers where the recorded programs of test_golden_collective.py do not go."""

import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ProgramError
from minigraph.transpiler import collective

RANKS = ["127.0.0.1:6170", "127.0.0.1:6171"]


def transpile(kind, main):
    getattr(collective, kind)(1).transpile(fluid.Program(), main, 0, RANKS, RANKS[0], wait_port=False)


@pytest.mark.parametrize("first", ["GradAllReduce", "LocalSGD"])
@pytest.mark.parametrize("second", ["GradAllReduce", "LocalSGD"])
def test_a_second_call_is_refused(first, second):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.fc(fluid.data("x", [None, 4]), 1)))
    transpile(first, main)
    before = str(main)
    with pytest.raises(ProgramError, match="the program sums over ranks already"):
        transpile(second, main)
    assert str(main) == before


def test_a_network_that_sums_an_activation_over_ranks_is_transpiled_once():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = layers.fc(fluid.data("x", [None, 4]), 1)
        total = main.global_block().create_var(name="total", stop_gradient=False)
        main.global_block().append_op("c_allreduce_sum", {"X": x}, {"Out": total})
        fluid.optimizer.SGD(0.1).minimize(layers.mean(total))
    sums = len(main.global_block().ops.of_type("c_allreduce_sum"))
    transpile("GradAllReduce", main)
    assert len(main.global_block().ops.of_type("c_allreduce_sum")) == sums + 2
