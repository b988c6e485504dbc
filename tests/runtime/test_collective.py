"""Operators that exchange arrays between ranks, on simulated ranks, against arithmetic by NumPy."""

import math
from functools import partial

import numpy as np
import pytest
from together import check_all

import minigraph as fluid
from minigraph.errors import CommunicationError, ExecutionError, OpError
from minigraph.support.communicator import REDUCTIONS, Call, check_same, current, tree
from minigraph.support.simulated_ranks import run_ranks

DTYPES = ["float16", "float32", "float64", "int32", "int64"]
SHAPES = [(3, 2), (1,), (0, 4), (1, 1, 1), (100, 101)]


def program_of(type, x, **attrs):
    """A program of one exchange; its input and its result."""
    main = fluid.Program()
    with fluid.program_guard(main):
        given = fluid.data("x", x.shape, str(x.dtype))
        given.stop_gradient = False
        out = main.global_block().create_var(name="out")
        main.global_block().append_op(type, {"X": given}, {"Out": out}, attrs)
    return main, given, out


def on_ranks(main, arrays, fetch, runner=fluid.Executor):
    """What each rank fetches from a program that is fed its own array."""
    executors = [runner() for _ in arrays]

    def run(rank):
        return executors[rank].run(main, {"x": arrays[rank]}, [fetch], scope=fluid.Scope())[0]

    return run_ranks([lambda rank=rank: run(rank) for rank in range(len(arrays))])


def drawn(ranks, shape, dtype):
    rng = np.random.default_rng(7)
    return [rng.uniform(-4, 4, shape).astype(dtype) for _ in range(ranks)]


@pytest.mark.slow
@pytest.mark.parametrize("runner", [fluid.Executor, fluid.Interpreter])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("reduction", ["sum", "max", "min", "prod"])
def test_all_reduce(reduction, ranks, runner):
    check_all(lambda dtype: check_all_reduce(reduction, dtype, ranks, runner), {dtype: dtype for dtype in DTYPES})


def check_all_reduce(reduction, dtype, ranks, runner):
    combine = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[reduction]
    for shape in [*SHAPES, (257, 257)]:  # of the largest each rank reduces a part
        arrays = drawn(ranks, shape, dtype)
        main, _, out = program_of(f"c_allreduce_{reduction}", arrays[0])
        for found in on_ranks(main, arrays, out, runner):
            assert found.dtype == dtype
            assert np.array_equal(found, tree(arrays, combine))


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
def test_long_arrays_are_reduced_where_they_lie(dtype, ranks):
    """Ranks may give a result another place each: their own array, a new one, another, or one with gaps."""
    size = 70_001  # no number of ranks divides it
    given = drawn(ranks, (size,), dtype)
    call = Call("test", "x", 0, dtype, (size,))
    expected = {name: tree(given, combine) for name, combine in REDUCTIONS.items()}

    def work(rank):
        mine = given[rank].copy()
        for number, name in enumerate(("max", "prod", "sum")):
            outs = [mine, None, np.empty(size, dtype), np.empty(2 * size, dtype)[::2]]
            out = outs[(rank + number) % 4]
            mine[...] = given[rank]
            found = current().all_reduce(mine, name, call, out)
            assert out is None or found is out
            assert found.tobytes() == expected[name].tobytes()
        gaps = np.zeros((size, 2), dtype)
        gaps[:, 0] = given[rank]
        assert np.array_equal(current().all_reduce(gaps[:, 0], "sum", call), expected["sum"])

    run_ranks([partial(work, rank) for rank in range(ranks)])


@pytest.mark.parametrize("ranks", [2, 3])
def test_squares_of_sums_are_added_up_unless_a_rank_does_without(ranks):
    given = drawn(ranks, (70_001,), "float32")
    total = tree(given, np.add)
    call = Call("test", "x", 0, "float32", (70_001,))

    def work(rank, is_measured):
        mine = given[rank].copy()
        if not is_measured and rank == 1:
            current().all_reduce(mine, "sum", call, mine)
            found = None
        else:
            found = current().sum_with_squares(mine, call, lambda part: [float(part.astype("float64") @ part)])
        assert mine.tobytes() == total.tobytes()
        return found

    assert run_ranks([partial(work, rank, False) for rank in range(ranks)]) == [None] * ranks
    (found,) = set(run_ranks([partial(work, rank, True) for rank in range(ranks)]))
    assert found == pytest.approx(math.fsum(np.square(total, dtype="float64").tolist()), rel=1e-14)


def test_a_rank_that_fails_while_it_adds_up_stops_the_others():
    def squares(part):
        raise ValueError("on purpose")

    def work(rank):
        array = np.ones(70_000, "float32")
        current().sum_with_squares(array, Call("test", "x", 0, "float32", (70_000,)), squares if rank == 1 else abs)

    with pytest.raises(ValueError, match="on purpose"):
        run_ranks([partial(work, rank) for rank in range(3)])


@pytest.mark.slow
@pytest.mark.parametrize("root", [0, 2])
def test_broadcast(root):
    for shape in SHAPES:
        arrays = drawn(3, shape, "float32")
        main, _, out = program_of("c_broadcast", arrays[0], root=root)
        for found in on_ranks(main, arrays, out):
            assert np.array_equal(found, arrays[root])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_gather_and_reduce_scatter(ranks):
    for shape in [(4, 3), (8, 1), (0, 2), (4,), (400, 32)]:
        arrays = drawn(ranks, shape, "float64")
        main, _, out = program_of("c_allgather", arrays[0], nranks=ranks)
        for found in on_ranks(main, arrays, out):
            assert np.array_equal(found, np.concatenate(arrays))
        main, _, out = program_of("c_reducescatter", arrays[0], nranks=ranks)
        parts = np.split(tree(arrays, np.add), ranks)
        for found, part in zip(on_ranks(main, arrays, out), parts, strict=True):
            assert np.array_equal(found, part)


@pytest.mark.parametrize("type", ["c_sync_calc_stream", "c_sync_comm_stream"])
def test_waiting_for_a_stream_changes_nothing(type):
    (array,) = drawn(1, (2, 3), "float32")
    main, _, out = program_of(type, array)
    assert np.array_equal(on_ranks(main, [array], out)[0], array)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    ("type", "attrs"), [("c_allreduce_sum", {}), ("c_allgather", {"nranks": 2}), ("c_reducescatter", {"nranks": 2})]
)
def test_gradients_are_those_of_the_sum_of_losses_over_ranks(type, attrs, order):
    """Against central differences of the sum over ranks of <weight, out^2>, or of <start, its gradient>."""
    starts = drawn(2, (4, 2), "float64")
    main, given, out = program_of(type, starts[0], **attrs)
    rng = np.random.default_rng(3)
    feeds = [{"weight": rng.normal(size=out.shape)} for _ in starts]
    with fluid.program_guard(main):
        loss = fluid.layers.reduce_sum(out * out * fluid.data("weight", out.shape, "float64"))
        if order == 2:
            (grad,) = fluid.gradients(loss, given)
            loss = fluid.layers.reduce_sum(grad * fluid.data("start", given.shape, "float64"))
            feeds = [{**feed, "start": start} for feed, start in zip(feeds, starts, strict=True)]
        (grad,) = fluid.gradients(loss, given)

    def run(values, fetch):
        def run_rank(rank):
            return fluid.Executor().run(main, {"x": values[rank], **feeds[rank]}, [fetch])[0]

        return run_ranks([lambda rank=rank: run_rank(rank) for rank in range(len(values))])

    found = run(starts, grad)
    for rank, at in [(0, (0, 0)), (0, (3, 1)), (1, (2, 0)), (1, (1, 1))]:
        ends = []
        for sign in (1, -1):
            moved = [array.copy() for array in starts]
            moved[rank][at] += sign * 1e-5
            ends.append(sum(part.item() for part in run(moved, loss)))
        assert found[rank][at] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)


def test_different_exchanges_are_an_error_with_both_lists():
    arrays = drawn(2, (2,), "float32")
    programs = [program_of("c_allreduce_sum", arrays[0]), program_of("c_allreduce_max", arrays[0])]

    def run(rank):
        main, _, out = programs[rank]
        return fluid.Executor().run(main, {"x": arrays[rank]}, [out])

    with pytest.raises(CommunicationError, match="different exchanges") as error:
        run_ranks([lambda: run(0), lambda: run(1)])
    text = str(error.value)
    assert "rank 0, exchanges 1 to 1:\n    c_allreduce_sum of x: float32[2] on ring 0" in text
    assert "rank 1, exchanges 1 to 1:\n    c_allreduce_max of x: float32[2] on ring 0" in text


def test_an_error_names_the_latest_exchanges_of_ranks_that_agree_together():
    same, other = ([Call(type, "x", 0, "float32", (2,))] for type in ("c_allreduce_sum", "c_allreduce_max"))
    for histories, named in [
        ([same] * 7 + [other], "ranks 0 to 6, exchanges 30 to 30:"),
        ([same, other, same, same], "ranks 0, 2 and 3, exchanges 30 to 30:"),
        ([other, same, same], "ranks 1 and 2, exchanges 30 to 30:"),
    ]:
        with pytest.raises(CommunicationError) as found:
            check_same(histories, count=30)
        assert named in str(found.value)
        assert "c_allreduce_max of x" in str(found.value)
    many = [[Call("c_allreduce_sum", f"x{rank}", 0, "float32", (2,))] * 9 for rank in range(8)]
    with pytest.raises(CommunicationError, match="rank 7, exchanges 8 to 9:\n    c_allreduce_sum of x7"):
        check_same(many)


def test_a_rank_that_ends_early_or_fails_stops_the_others():
    (array,) = drawn(1, (2,), "float32")
    main, _, out = program_of("c_allreduce_sum", array)

    def run():
        return fluid.Executor().run(main, {"x": array}, [out])

    with pytest.raises(CommunicationError, match="the end of the run"):
        run_ranks([run, lambda: None])
    with pytest.raises(ZeroDivisionError):
        run_ranks([run, lambda: 1 // 0])


def test_another_number_of_ranks_is_an_error():
    (array,) = drawn(1, (4,), "float32")
    for type in ("c_allgather", "c_reducescatter"):
        main, _, out = program_of(type, array, nranks=2)
        with pytest.raises(ExecutionError, match="the program is for 2 ranks, but 1 runs"):
            fluid.Executor().run(main, {"x": array}, [out])
    main, _, out = program_of("c_broadcast", array, root=3)
    with pytest.raises(ExecutionError, match="root is 3, but the ranks are 0 to 0"):
        fluid.Executor().run(main, {"x": array}, [out])


def test_rows_that_ranks_cannot_divide_are_refused():
    with pytest.raises(OpError, match="2 ranks cannot divide 3 rows"):
        program_of("c_reducescatter", np.zeros((3, 2), "float32"), nranks=2)
