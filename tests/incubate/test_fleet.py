"""Fleet's interface with one rank: roles, and training that is the optimizer's own."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import parallel
from minigraph.errors import MissingFileError, ProgramError, UnknownNameError, WrongTypeError
from minigraph.incubate.fleet.base import role_maker
from minigraph.incubate.fleet.collective import Collective, DistributedStrategy, TrainStatus, fleet

BATCH = {"x": np.arange(6, dtype="float32").reshape(2, 3)}


@pytest.fixture(autouse=True)
def programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield


def loss_of(width=3):
    x = fluid.data("x", [None, width])
    hidden = fluid.layers.fc(x, 4, act="tanh", param_attr=fluid.initializer.Constant(0.1))
    return hidden, fluid.layers.mean(fluid.layers.fc(hidden, 1, param_attr=fluid.initializer.Constant(0.2)))


def trained(minimize):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        hidden, loss = loss_of()
        program = minimize(hidden, loss) or fluid.default_main_program()
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        return [executor.run(program, BATCH, [loss.name], scope=scope)[0].tobytes() for _ in range(3)]


@pytest.mark.parametrize("recompute", [False, True])
def test_one_rank_trains_as_the_optimizer_does(recompute, tmp_path):
    def by_fleet(hidden, loss):
        fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
        strategy = DistributedStrategy()
        strategy.exec_strategy.num_threads = 2
        strategy.forward_recompute, strategy.recompute_checkpoints = recompute, [hidden]
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.5), strategy).minimize(loss)
        return fleet.main_program

    def alone(hidden, loss):
        fluid.optimizer.SGD(0.5).minimize(loss)

    assert trained(by_fleet) == trained(alone)
    assert isinstance(fleet.main_program, fluid.CompiledProgram) and fleet.startup_program is not None


def test_what_was_minimized_is_saved(tmp_path):
    hidden, loss = loss_of()
    fleet.init()
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.5)).minimize(loss)
    executor = fluid.Executor()
    executor.run(fleet.startup_program)
    fleet.save_persistables(executor, str(tmp_path / "values"))
    fleet.save_inference_model(executor, str(tmp_path / "model"), ["x"], [hidden])
    assert (tmp_path / "values").is_dir() and (tmp_path / "model" / "__model__").exists()


def test_training_goes_on_from_a_checkpoint(tmp_path):
    _, loss = loss_of()
    fleet.init()
    fleet.distributed_optimizer(fluid.optimizer.Adam(0.5)).minimize(loss)
    executor, path = fluid.Executor(), str(tmp_path / "points")
    executor.run(fleet.startup_program)
    assert fleet.load_check_point(executor, path, 0) is None
    with pytest.raises(MissingFileError, match="there is no checkpoint in"):
        fleet.load_check_point(executor, path, 0, ignore_empty=False)
    expected = []
    for epoch in range(TrainStatus().next(), 3):
        executor.run(fleet.main_program, BATCH, [loss])
        fleet.save_check_point(executor, path, TrainStatus(epoch), remain_all_checkpoint=epoch < 2)
        expected.append(executor.run(fleet.main_program, BATCH, [loss])[0].tobytes())
    assert [each.name for each in (tmp_path / "points").iterdir()] == ["__paddle_fleet_checkpoint__.2"]
    status = fleet.load_check_point(executor, path, 0)
    assert status == TrainStatus(2) and status.next() == 3
    assert executor.run(fleet.main_program, BATCH, [loss])[0].tobytes() == expected[-1]
    with pytest.raises(ProgramError, match="fs must be None"):
        fleet.save_check_point(executor, path, status, fs="hdfs")


@pytest.mark.slow
def test_mixed_precision_is_a_field_of_the_strategy():
    def by_fleet(hidden, loss):
        fleet.init()
        strategy = DistributedStrategy()
        strategy.use_amp, strategy.amp_loss_scaling = True, 8.0
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.5), strategy).minimize(loss)
        return fleet.main_program

    def alone(hidden, loss):
        fluid.contrib.mixed_precision.decorate(fluid.optimizer.SGD(0.5), init_loss_scaling=8.0).minimize(loss)

    assert trained(by_fleet) == trained(alone)


@pytest.mark.parametrize("mode", ["nccl2", "collective"])
def test_batch_norms_of_ranks_are_synchronized(mode):
    def types(rank):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            loss = fluid.layers.mean(fluid.layers.batch_norm(fluid.data("x", [None, 3])))
            own = Collective()
            endpoints = ["127.0.0.1:6170", "127.0.0.1:6171"]
            own.init(role_maker.UserDefinedCollectiveRoleMaker(rank, endpoints))
            strategy = DistributedStrategy()
            strategy.mode, strategy.sync_batch_norm = mode, True
            own.distributed_optimizer(fluid.optimizer.SGD(0.5), strategy).minimize(loss)
            return {op.type for op in own.main_program.program.global_block().ops}

    for found in parallel.simulate(types, 2):
        assert {"sync_batch_norm", "sync_batch_norm_grad"} <= found and "batch_norm" not in found


def test_the_only_rank_is_the_first_worker(monkeypatch):
    monkeypatch.delenv("PADDLE_TRAINER_ENDPOINTS", raising=False)
    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    assert (fleet.worker_index(), fleet.worker_num()) == (0, 1)
    assert fleet.is_worker() and fleet.is_first_worker() and not fleet.is_server()
    assert fleet.worker_endpoints(to_string=True) == "127.0.0.1:6170"
    assert (fleet.server_num(), fleet.server_endpoints(), fleet.server_endpoints(to_string=True)) == (0, [], "")
    assert fleet.split_files(["a", "b"]) == ["a", "b"]
    with pytest.warns(UserWarning, match="no servers"):
        fleet.init_worker()


def test_more_ranks_than_run_are_refused():
    for maker in (
        role_maker.UserDefinedCollectiveRoleMaker(1, ["a:1", "b:1"]),
        role_maker.UserDefinedRoleMaker(1, worker_num=2, server_endpoints=["a:1"]),
    ):
        with pytest.raises(ProgramError, match="there are 2 ranks, but 1 runs"):
            fleet.init(maker)
    fleet.init()


def test_roles_come_from_the_environment(monkeypatch):
    for name, value in {
        "PADDLE_PSERVERS_IP_PORT_LIST": "a:1,b:2", "PADDLE_TRAINERS_NUM": "3", "TRAINING_ROLE": "PSERVER",
        "POD_IP": "b", "PADDLE_PORT": "2",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    maker = role_maker.PaddleCloudRoleMaker()
    maker.generate_role()
    assert maker.is_server() and maker.server_index() == 1 and maker.worker_num() == 3
    assert maker.get_pserver_endpoints() == ["a:1", "b:2"]
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "c:1,d:1")
    general = role_maker.GeneralRoleMaker(path="/tmp/fs", init_timeout_seconds=100)
    general.generate_role()
    assert general.is_server() and general.server_index() == 1 and general.worker_num() == 2
    monkeypatch.setenv("PADDLE_PSERVER_ID", "0")
    general.generate_role()
    assert general.is_server() and general.server_index() == 0
    monkeypatch.setenv("TRAINING_ROLE", "TRAINER")
    with pytest.raises(ProgramError, match="KeyError 'PADDLE_TRAINER_ID'"):
        general.generate_role()
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    general.generate_role()
    assert general.is_worker() and general.worker_index() == 1
    assert general.get_trainer_endpoints() == ["c:1", "d:1"] and general.get_pserver_endpoints() == ["a:1", "b:2"]
    monkeypatch.setenv("TRAINING_ROLE", "CHIEF")
    with pytest.raises(ProgramError, match="KeyError 'CHIEF'"):
        role_maker.PaddleCloudRoleMaker().generate_role()


def test_wrong_roles_and_strategies_are_refused():
    for call in (
        lambda: role_maker.UserDefinedCollectiveRoleMaker(2, ["a:1", "b:1"]),
        lambda: role_maker.UserDefinedCollectiveRoleMaker(0, ["a:1", "a:1"]),
        lambda: role_maker.UserDefinedRoleMaker(0, 3, 1, ["a:1"]),
        lambda: setattr(DistributedStrategy(), "use_dist_fc", True),
        lambda: fleet.__class__().save_persistables(fluid.Executor(), "folder"),
    ):
        with pytest.raises(ProgramError):
            call()
    with pytest.raises(WrongTypeError, match="takes a role maker"):
        fleet.init("worker")
    with pytest.raises(WrongTypeError, match="must be a DistributedStrategy"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), "sync")
    with pytest.raises(UnknownNameError, match="parameter servers"):
        _ = fluid.incubate.fleet.parameter_server
