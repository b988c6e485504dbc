"""Ranks whose arrays are on GPUs: NCCL where each has one, else memory of the processor."""

import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path

import host_nccl
import numpy as np
import pytest
from host_cuda import needs_compiler

import minigraph as fluid
from minigraph import parallel
from minigraph.errors import CommunicationError, MissingExtraError
from minigraph.parallel import DataParallel
from minigraph.parallel.nccl import NcclRank, between_gpus
from minigraph.runtime.place import CUDAPlace, get_cuda_device_count
from minigraph.support.communicator import REDUCTIONS, Alone, Call, ThroughHost, current, in_order, tree
from minigraph.support.simulated_ranks import SimulatedRank


def has_nccl():
    from cupy.cuda import nccl

    return nccl.available


HERE = Path(__file__).parent
SHAPES = [(3, 2), (1,), (0, 4), (), (33, 125), (4096,)]


@pytest.fixture
def gpus(host_cuda, monkeypatch):
    """Each rank, a thread, has a stand-in for a GPU of its own."""
    monkeypatch.setattr(host_nccl, "available", True)
    monkeypatch.setattr(SimulatedRank, "between_devices", between_gpus)
    monkeypatch.setattr(host_nccl, "_groups", {})
    host_cuda.cuda.nccl = host_nccl
    monkeypatch.setitem(sys.modules, "cupy.cuda", host_cuda.cuda)
    host_cuda.cuda.Device = lambda number=0: types.SimpleNamespace(
        use=lambda: None, pci_bus_id=f"0000:0{current().rank}:00.0"
    )
    host_nccl.calls.clear()
    return host_cuda


def drawn(rank, shape, dtype):
    return np.random.default_rng(rank).uniform(-4, 4, shape).astype(dtype)


def check_exchanges(xp, rank, ranks):
    """Compare each exchange of arrays of `xp` with what NumPy makes of the arrays of all ranks."""
    comm = current().on(xp)
    for dtype in ("float16", "float32", "float64", "int32", "int64", "uint8"):
        for shape in SHAPES:
            arrays = [drawn(each, shape, dtype) for each in range(ranks)]
            mine, call = xp.asarray(arrays[rank]), Call("test", "x", 0, dtype, shape)
            assert all(np.array_equal(xp.asnumpy(a), b) for a, b in zip(comm.gather(mine, call), arrays, strict=True))
            assert np.array_equal(xp.asnumpy(comm.broadcast(mine, ranks - 1, call)), arrays[-1])
            for name, combine in REDUCTIONS.items():
                expected = tree(arrays, combine)
                with in_order():
                    found = xp.asnumpy(comm.all_reduce(mine, name, call))
                assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, shape, expected.tobytes())
                found = xp.asnumpy(comm.all_reduce(mine, name, call))
                np.testing.assert_allclose(found, expected, rtol=2e-2 if dtype == "float16" else 1e-4, atol=1e-2)
            if shape[:1] == (4096,):
                rows = [each[: shape[0] // ranks * ranks] for each in arrays]
                part = xp.asnumpy(comm.reduce_scatter(xp.asarray(rows[rank]), call))
                assert np.array_equal(part, np.split(tree(rows, np.add), ranks)[rank])
                out = mine.copy()
                assert comm.all_reduce(out, "sum", call, out) is out
    ragged = comm.all_gather(xp.asarray(np.full((rank + 1, 2), rank)), Call("test", "rows", 0, "int64", (-1, 2)))
    assert xp.asnumpy(ragged)[:, 0].tolist() == [each for each in range(ranks) for _ in range(each + 1)]
    check_parts(xp, rank, ranks)
    comm.barrier()


def check_parts(xp, rank, ranks):
    """Parts of arrays are those that ranks without GPUs exchange."""
    arrays = [drawn(rank, (size,), "float32") for size in (7, 10)]
    lengths = [-(-each.size // ranks) for each in arrays]
    found = []
    for module in (np, xp):
        call, comm = Call("test", f"parts of {module.__name__}", 0, "float32", ()), current().on(module)
        parts = [module.zeros(length, np.float32) for length in lengths]
        comm.reduce_parts([module.asarray(each) for each in arrays], parts, call)
        wholes = [module.zeros(each.size, np.float32) for each in arrays]
        comm.gather_parts(parts, wholes, call)
        found.append([each.tobytes() for each in map(xp.asnumpy, (*parts, *wholes))])
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_exchanges_are_those_of_the_processor(ranks, gpus):
    def run(rank):
        check_exchanges(gpus, rank, ranks)
        return type(current().on(gpus))

    assert set(parallel.simulate(run, ranks)) == {NcclRank}
    assert {"allGather", "allReduce"} <= set(host_nccl.calls)


def test_identifiers_of_older_versions_of_cupy_are_numbers(gpus, monkeypatch):
    monkeypatch.setattr(host_nccl, "get_unique_id", lambda: (-1, *[7] * 127))
    assert set(parallel.simulate(lambda rank: type(current().on(gpus)), 2)) == {NcclRank}


def test_the_library_takes_the_identifier():
    """NCCL is there, and finds no GPU."""
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    if not has_nccl() or get_cuda_device_count():
        pytest.skip("needs NCCL and no GPU")
    with pytest.raises(CommunicationError, match="NCCL cannot connect the GPUs of 1 ranks: NCCL_ERROR"):
        NcclRank(Alone(), cupy)


@pytest.mark.slow
def test_ranks_that_share_a_gpu_exchange_through_the_processor(gpus):
    gpus.cuda.Device = lambda number=0: types.SimpleNamespace(use=lambda: None, pci_bus_id="0000:00:00.0")

    def run(rank):
        check_exchanges(gpus, rank, 2)
        return type(current().on(gpus))

    assert set(parallel.simulate(run, 2)) == {ThroughHost}
    assert host_nccl.calls == []


def test_without_nccl_every_rank_says_how_to_install_it(gpus, monkeypatch):
    monkeypatch.setattr(host_nccl, "available", False)

    def run(rank):
        with pytest.raises(MissingExtraError, match=r"(?s)no NCCL on rank 0, 1.*pip install nvidia-nccl-cu12"):
            current().on(gpus)

    parallel.simulate(run, 2)


def test_what_nccl_refuses_is_told(gpus, monkeypatch):
    monkeypatch.setattr(host_nccl, "_groups", {"broken": None})

    def run(rank):
        with pytest.raises(CommunicationError, match=r"(?s)cannot connect.*INVALID_USAGE.*NCCL_DEBUG=INFO"):
            current().on(gpus)

    parallel.simulate(run, 2)


def test_ranks_that_make_different_exchanges_are_told_before_nccl_waits(gpus):
    def run(rank):
        call = Call("test", f"x of rank {rank}", 0, "float32", (2,))
        with pytest.raises(CommunicationError, match=r"different exchanges|rank \d failed"):
            current().on(gpus).all_reduce(gpus.asarray(np.ones(2, "float32")), "sum", call)

    parallel.simulate(run, 2)


def trained(rank, ranks, place, exact=True):
    """The parameters after some steps; rows of a sparse table and a global norm among what is exchanged."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words, y = fluid.data("words", [None, 3], "int64"), fluid.data("y", [None, 1])
        hidden = fluid.layers.reduce_mean(fluid.embedding(words, [50, 16], is_sparse=True), 1)
        hidden = fluid.layers.fc(hidden, 30, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        fluid.optimizer.Adam(0.01, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1)).minimize(loss)
    rewrite = DataParallel(ranks, shards=4 if exact else 0, exact=exact)
    rewrite.prepare(startup)
    main = rewrite(main)
    executor, scope = fluid.Executor(place), fluid.Scope()
    executor.run(startup, scope=scope)
    rng = np.random.default_rng(100)
    for _ in range(3):
        rows, targets = rng.integers(0, 50, (8, 3)), rng.normal(size=(8, 1)).astype("float32")
        feed = {"words": np.split(rows, ranks)[rank], "y": np.split(targets, ranks)[rank]}
        executor.run(main, feed, [loss], scope=scope)
    names = sorted(param.name for param in main.all_parameters())
    return np.concatenate([np.array(scope.find_var(name).get_tensor()).ravel() for name in names])


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore:exact=True", "ignore:each rank averages")
def test_exact_programs_have_the_same_bits_on_any_number_of_gpus(gpus):
    (alone,) = parallel.simulate(lambda rank: trained(rank, 1, CUDAPlace(0)), 1)
    for ranks in (2, 4):
        host_nccl.calls.clear()
        found = parallel.simulate(lambda rank, ranks=ranks: trained(rank, ranks, CUDAPlace(0)), ranks)
        assert {each.tobytes() for each in found} == {alone.tobytes()}
        assert "allReduce" not in host_nccl.calls
    for each in parallel.simulate(lambda rank: trained(rank, 4, CUDAPlace(0), exact=False), 4):
        np.testing.assert_allclose(each, alone, rtol=1e-4, atol=1e-6)
    assert host_nccl.calls.count("allReduce") == 3


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:exact=True")
def test_threads_that_share_a_gpu_train_as_one(cuda_place):
    alone = trained(0, 1, cuda_place)
    for found in parallel.simulate(lambda rank: trained(rank, 2, cuda_place), 2):
        assert found.tobytes() == alone.tobytes()


@pytest.mark.gpu
def test_exchanges_of_the_only_gpu_are_those_of_the_processor(cuda_place):
    if not has_nccl():
        pytest.skip("needs NCCL")
    control = Alone()
    comm = NcclRank(control, cuda_place.xp)
    for shape in SHAPES:
        array, call = cuda_place.xp.asarray(drawn(0, shape, "float32")), Call("test", "x", 0, "float32", shape)
        for found in (comm.gather(array, call)[0], comm.all_reduce(array, "sum", call), comm.broadcast(array, 0, call)):
            assert np.array_equal(cuda_place.to_host(found), cuda_place.to_host(array))


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py, of the extra mpi")
def test_processes_with_a_gpu_each_exchange_by_nccl(cuda_place):
    if get_cuda_device_count() < 2 or not has_nccl():
        pytest.skip("needs two GPUs and NCCL")
    command = [sys.executable, "-m", "minigraph", "launch", "-n", "2", str(HERE / "gpu_training.py")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE.parent / "common")])}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["[0] NcclRank", "[1] NcclRank"]


def test_the_parameters_of_the_stand_in_are_those_of_cupy():
    """CuPy and the wheel of NCCL are loaded without a device, too; test_cupy_names.py has the names."""
    pytest.importorskip("cupy", reason="CuPy, of the extras cuda12 and cuda13, is not installed")
    if not has_nccl():
        pytest.skip("needs NCCL")
    from cupy.cuda import nccl

    for name in ("allGather", "allReduce", "send", "recv"):
        theirs = getattr(nccl.NcclCommunicator, name).__doc__.splitlines()[0]  # Cython writes the parameters there
        ours = getattr(host_nccl.NcclCommunicator, name).__code__.co_argcount
        assert theirs.count(",") + 1 == ours, theirs
