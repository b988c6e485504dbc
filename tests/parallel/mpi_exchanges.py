"""Script for several ranks: exchanges by MPI give the bits of simulated ranks."""

import hashlib
from functools import partial

import numpy as np

import minigraph as fluid
from minigraph import parallel
from minigraph.parallel import DataParallel
from minigraph.support.communicator import REDUCTIONS, Call, current, tree

SHAPES = [(3, 2), (1,), (0, 4), (), (100, 101), (4096,)]
SIZE = (1 << 20) + 3
"""Elements that no number of ranks divides, and a megabyte at least."""


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


def check_in_place(rank, ranks):
    """Sums over arrays of memory that the ranks may share, and where only some of them have such memory."""
    for dtype in ("float16", "float32", "int64"):
        given = [drawn(each, (SIZE,), dtype) for each in range(ranks)]
        expected = tree(given, np.add)
        for allocating in ("all ranks", "rank 0", "no rank"):
            call = Call("test", allocating, 0, dtype, (SIZE,))
            is_shared = allocating == "all ranks" or (allocating == "rank 0" and rank == 0)
            make = current().allocate if is_shared else partial(np.empty, dtype=np.uint8)
            array = make(64 + SIZE * np.dtype(dtype).itemsize)[64:].view(dtype)
            array[:] = given[rank]
            assert current().all_reduce(array, "sum", call, out=array) is array
            assert array.tobytes() == expected.tobytes()


def check_squares(rank, ranks):
    """Squares of sums that are added up on the way, unless one rank does without."""
    given = [drawn(each, (SIZE,), "float32") for each in range(ranks)]
    expected = tree(given, np.add)
    call = Call("test", "squares", 0, "float32", (SIZE,))
    for who in ("all ranks", "all ranks", "rank 0"):
        array = current().allocate(SIZE * 4).view("float32")
        array[:] = given[rank]
        if who == "rank 0" and rank != 0:
            current().all_reduce(array, "sum", call, out=array)
            total = None
        else:
            total = current().sum_with_squares(array, call, lambda part: [float(part.astype("float64").dot(part))])
        assert array.tobytes() == expected.tobytes()
        if who == "rank 0" or (totals := set(current().compare(str(total)))) == {"None"}:  # or nothing is shared
            assert total is None
        else:
            assert totals == {str(total)}
            assert np.isclose(total, np.square(expected, dtype="float64").sum(), rtol=1e-12)


NORMS = {
    "measured": "n: float32[1] = global_norm(X=[g, h])",
    "read": "k: float32[2048, 129] = assign(X=g)\n  n: float32[1] = global_norm(X=[k, h])",
}


def check_plans(rank, ranks):
    """Ranks of which some measure the sums and others read them, with and without compiled loops and checks."""
    rows = [drawn(each, (2048, 129), "float32") / 8 for each in range(ranks)]
    values = [(np.exp(each), np.exp(np.exp(each))) for each in rows]
    sums = [tree(each, np.add) for each in zip(*values, strict=True)]
    expected = np.sqrt(sum(np.square(each, dtype="float64").sum() for each in sums))
    for kinds in ["measured"], ["measured", "read"], ["read", "measured"]:
        program = fluid.Program.parse(
            "block 0\n  data x: float32[2048, 129]\n  g: float32[2048, 129] = exp(X=x)\n"
            "  h: float32[2048, 129] = exp(X=g)\n  g = c_allreduce_sum(X=g)\n  h = c_allreduce_sum(X=h)\n"
            f"  {NORMS[kinds[rank % len(kinds)]]}"
        )
        for options in {}, {"jit": False}, {"jit": bool(rank) and None}, {"check": rank == 0}:
            executor = fluid.Executor(**options)
            for _ in range(3):
                g, norm = executor.run(program, {"x": rows[rank]}, ["g", "n"])
                assert np.isclose(norm[0], expected, rtol=1e-6), (norm, expected)
                assert np.allclose(g, sums[0], rtol=1e-6)
                if kinds == ["measured"] and not (options.keys() & {"check"}):
                    assert len(set(current().compare(norm.tobytes().hex()))) == 1


def check_parts(rank, ranks):
    """Parts of large arrays in shared memory, of large ones elsewhere, and of short ones, with padding.

    In later steps they lie where they were, and then on rank 0 elsewhere.
    """

    def held(array, is_shared):
        memory = current().allocate(array.nbytes).view(array.dtype) if is_shared else np.empty_like(array)
        memory[...] = array
        return memory

    for sizes in ([400_001, 300_000, 7, 0], [400_001, 7, 0]):  # the short ones are copied to shared memory
        shared, call = [size == 400_001 for size in sizes], Call("test", f"{len(sizes)} parts", 0, "float32", ())
        lengths = [-(-size // ranks) for size in sizes]
        mine = parts = None
        for step in range(4):
            given = [[drawn(8 * step + each, (size,), "float32") for size in sizes] for each in range(ranks)]
            sums = [tree(each, np.add) for each in zip(*given, strict=True)]
            padded = [np.append(each, np.zeros(ranks * n - each.size)) for each, n in zip(sums, lengths, strict=True)]
            expected = [each.reshape(ranks, -1)[rank].astype("float32") for each in padded]
            if mine is None or (step == 2 and rank == 0):
                mine, parts = (list(map(held, each, shared)) for each in (given[rank], expected))
            for memory, values in zip((*mine, *parts), (*given[rank], *expected), strict=True):
                memory[...] = values
            reduced = [np.empty(length, "float32") for length in lengths]
            current().reduce_parts(mine, reduced, call)
            assert all(map(np.array_equal, reduced, expected))
            found = [np.empty_like(each) for each in sums]
            current().gather_parts(parts, found, call._replace(operator="gather"))
            assert all(map(np.array_equal, found, sums))
    assert all(np.array_equal(current().broadcast(each, 1, call), given[1][0]) for each in given[rank][:1])


def train(rank, ranks):
    """A digest of the parameters after some steps with a sparse table and a global norm."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words, y = fluid.data("words", [None, 3], "int64"), fluid.data("y", [None, 1])
        hidden = fluid.layers.reduce_mean(fluid.embedding(words, [50, 16], is_sparse=True), 1)
        hidden = fluid.layers.fc(hidden, 300, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        # More than a megabyte without products, whose bits would depend on the number of BLAS threads.
        wide = fluid.layers.create_parameter([300_000], "float32", default_initializer=fluid.initializer.Normal())
        loss = loss + fluid.layers.mean(fluid.layers.square(wide)) * fluid.layers.mean(y)
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
    check_parts(parallel.rank(), parallel.size())
    check_in_place(parallel.rank(), parallel.size())
    check_squares(parallel.rank(), parallel.size())
    check_plans(parallel.rank(), parallel.size())
    print(train(parallel.rank(), parallel.size()))
