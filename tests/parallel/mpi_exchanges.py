"""Script for several ranks: exchanges by MPI give the bits of simulated ranks."""

import hashlib

import numpy as np

import minigraph as fluid
from minigraph import parallel
from minigraph.parallel import DataParallel
from minigraph.support.communicator import REDUCTIONS, Call, current, tree

SHAPES = [(3, 2), (1,), (0, 4), (), (100, 101), (4096,)]


def drawn(rank, shape, dtype):
    return np.random.default_rng(rank).uniform(-4, 4, shape).astype(dtype)


def check_arrays(rank, ranks):
    for dtype in ("float16", "float32", "float64", "int32", "int64", "bool"):
        for shape in SHAPES:
            arrays = [drawn(each, shape, dtype) for each in range(ranks)]
            call = Call("test", "x", 0, dtype, shape)
            assert all(map(np.array_equal, current().gather(arrays[rank], call), arrays))
            if dtype == "bool":
                continue
            for name, combine in REDUCTIONS.items():
                found = current().all_reduce(arrays[rank], name, call)
                assert found.dtype == dtype
                assert found.shape == shape
                assert np.array_equal(found, tree(arrays, combine))
            if shape == (100, 101):
                rows = [each[: 100 // ranks * ranks] for each in arrays]
                part = current().reduce_scatter(rows[rank], call)
                assert np.array_equal(part, np.split(tree(rows, np.add), ranks)[rank])
    for shape in ((3, 0), (0, 4), (2, 3)):
        joined = current().all_gather(np.full(shape, rank), Call("test", "rows", 0, "int64", shape))
        assert np.array_equal(joined, np.concatenate([np.full(shape, each) for each in range(ranks)]))
    ragged = current().gather(np.full((rank + 1, 2), rank), Call("test", "rows", 0, "int64", (-1, 2)))
    assert [each.tolist() for each in ragged] == [[[each] * 2] * (each + 1) for each in range(ranks)]
    current().barrier()


def train(rank, ranks):
    """A digest of the parameters after some steps with a sparse table and a global norm."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words, y = fluid.data("words", [None, 3], "int64"), fluid.data("y", [None, 1])
        hidden = fluid.layers.reduce_mean(fluid.embedding(words, [50, 16], is_sparse=True), 1)
        hidden = fluid.layers.fc(hidden, 300, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        fluid.optimizer.Adam(0.01, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1)).minimize(loss)
    DataParallel(ranks).apply(main)
    DataParallel(ranks).prepare(startup)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    rng = np.random.default_rng(100 + rank)
    for _ in range(5):
        feed = {"words": rng.integers(0, 50, (4, 3)), "y": rng.normal(size=(4, 1)).astype("float32")}
        executor.run(main, feed, [loss], scope=scope)
    names = sorted(param.name for param in main.all_parameters())
    arrays = [np.array(scope.find_var(name).get_tensor()).tobytes() for name in names]
    return hashlib.sha256(b"".join(arrays)).hexdigest()


if __name__ == "__main__":
    check_arrays(parallel.rank(), parallel.size())
    print(train(parallel.rank(), parallel.size()))
