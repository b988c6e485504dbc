"""The older way to say which rank a program is for; test_launch.py has trainings."""

import pytest

import minigraph as fluid
from minigraph.errors import NotFoundError, ProgramError

RANKS = "127.0.0.1:6170,127.0.0.1:6171"


def transpiled(trainers=RANKS, current="127.0.0.1:6171", rank=1, **fields):
    """Types of the operators of the main and of the startup program."""
    config = fluid.DistributeTranspilerConfig()
    for name, value in fields.items():
        setattr(config, name, value)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1, bias_attr=False))
        fluid.optimizer.SGD(0.1).minimize(loss)
        fluid.DistributeTranspiler(config).transpile(rank, trainers=trainers, current_endpoint=current)
    return [[op.type for op in program.global_block().ops] for program in (main, startup)]


def test_with_nccl2_only_the_startup_program_changes():
    before, _ = transpiled(RANKS.split(",")[0], RANKS.split(",")[0], 0, mode="nccl2")
    main, startup = transpiled(mode="nccl2")
    assert main == before
    assert startup[-2:] == ["c_gen_nccl_id", "c_comm_init"]


@pytest.mark.parametrize("kind", ["grad_allreduce", "local_sgd"])
def test_with_collective_the_program_exchanges(kind):
    main, startup = transpiled(RANKS.split(","), mode="collective", collective_mode=kind)
    assert "c_allreduce_sum" in main and "c_broadcast" in startup


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "mode 'pserver'.*parameter servers are out of scope"),
        ({"mode": "nccl2", "trainers": 2}, "(?s)trainers 2.*give the addresses of the ranks"),
        ({"mode": "collective"}, "collective_mode must be grad_allreduce or local_sgd, got None"),
        ({"mode": "nccl2", "rank": 2}, "rank must be from 0 to 1, got 2"),
        ({"mode": "nccl2", "current": "a:1"}, "current_endpoint 'a:1' is not among the endpoints"),
    ],
)
def test_what_cannot_be_is_refused(fields, message):
    with pytest.raises(ProgramError, match=message):
        transpiled(**fields)


def test_a_field_that_is_not_there_is_refused():
    with pytest.raises(NotFoundError, match="Did you mean mode"):
        fluid.DistributeTranspilerConfig().modes = "nccl2"
