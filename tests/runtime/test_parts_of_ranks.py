"""Operators on parts of arrays, on simulated ranks, against arithmetic by NumPy on the whole arrays."""

import math
from fractions import Fraction

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import ExecutionError, OpError
from minigraph.kernels import find_kernel
from minigraph.kernels.norm import norm, norm_of_sums, sums_of_powers
from minigraph.kernels.sparse_rows import SparseRows, dense
from minigraph.support.communicator import in_order, tree
from minigraph.support.simulated_ranks import run_ranks

SHAPES = [(3, 2), (1,), (0, 4), (5, 7), (4096,)]
ROWS = [1, 4, 5, 9, 12]


def appended(type, inputs, outputs, **attrs):
    """A program of one operator; `inputs` are arrays by slot, `outputs` counts of results."""
    main, feed, given = fluid.Program(), {}, {}
    block = main.global_block()
    with fluid.program_guard(main):
        for slot, arrays in inputs.items():
            for at, array in enumerate(arrays):
                given.setdefault(slot, []).append(fluid.data(f"{slot}_{at}", array.shape, str(array.dtype)))
                feed[f"{slot}_{at}"] = array
        made = {slot: [block.create_var(name=f"{slot}_{at}") for at in range(n)] for slot, n in outputs.items()}
        block.append_op(type, given, made, attrs)
    return main, feed, [var for names in made.values() for var in names]


def on_ranks(ranks, runner, type, inputs, outputs, **attrs):
    """What each rank gets; ``inputs(rank)`` are arrays by slot."""

    def run(rank):
        main, feed, fetches = appended(type, inputs(rank), outputs, **attrs)
        found = runner().run(main, feed, fetches, scope=fluid.Scope())
        for array, var in zip(found, fetches, strict=True):
            assert (array.dtype, array.shape) == (var.dtype, var.shape)
        return found

    return run_ranks([lambda rank=rank: run(rank) for rank in range(ranks)])


def parts_on_ranks(ranks, runner, arrays, **attrs):
    """The parts of arrays that each rank takes."""
    taken = [on_ranks(ranks, runner, "c_part", lambda _, x=x: {"X": [x]}, {"Out": 1}, **attrs) for x in arrays]
    return [[part for (part,) in each] for each in zip(*taken, strict=True)]


def drawn(rank, dtype="float32"):
    rng = np.random.default_rng(rank)
    return [rng.uniform(-4, 4, shape).astype(dtype) for shape in SHAPES]


def joined(parts, like):
    return np.concatenate([part.reshape(-1) for part in parts])[: like.size].reshape(like.shape)


@pytest.mark.slow
@pytest.mark.parametrize("runner", [fluid.Executor, fluid.Interpreter])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_parts_are_summed_and_gathered(ranks, blocks, runner):
    count, attrs = len(SHAPES), {"nranks": ranks, "blocks": blocks}
    sums = [tree(each, np.add) for each in zip(*[drawn(rank, "float64") for rank in range(ranks)], strict=True)]
    reduced = on_ranks(
        ranks, runner, "c_reduce_parts", lambda rank: {"X": drawn(rank, "float64")}, {"Out": count}, **attrs
    )
    for by_rows in (False, True):
        taken = parts_on_ranks(ranks, runner, sums, **attrs, by_rows=by_rows)
        for at, whole in enumerate(sums):
            assert np.array_equal(joined([each[at] for each in taken], whole), whole)
            assert len(taken[0][at]) % blocks == 0
            if not by_rows:
                assert np.array_equal(joined([each[at] for each in reduced], whole), whole)
        gathered = on_ranks(
            ranks, runner, "c_gather_parts", lambda rank, parts=taken: {"X": parts[rank], "Whole": sums},
            {"Out": count}, nranks=ranks,
        )  # fmt: skip
        for found in gathered:
            assert all(map(np.array_equal, found, sums))


@pytest.mark.laws
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("p", [1.0, 2.0, np.inf])
@pytest.mark.parametrize("clip_norm", [0.5, 1e9])
def test_norms_and_clips_have_the_bits_of_the_whole_on_all_ranks(clip_norm, p, dtype):
    arrays, bits = drawn(0, dtype), set()
    threshold = np.array([clip_norm], np.result_type(dtype, np.float32))
    columns = [0, 2, 3]
    ((*expected, norm),) = on_ranks(
        1, fluid.Executor, "clip_by_global_norm",
        lambda _: {"X": [arrays[at] for at in columns], "ClipNorm": [threshold]}, {"Out": 3, "Norm": 1}, p=p,
    )  # fmt: skip
    for ranks in (1, 2, 4, 8):
        attrs = {"nranks": ranks, "blocks": 8 // ranks}
        parts = parts_on_ranks(ranks, fluid.Executor, arrays, **attrs)
        norms = on_ranks(
            ranks, fluid.Executor, "part_norms", lambda rank, parts=parts: {"X": parts[rank]}, {"Out": 1},
            blocks=8 // ranks, p=p,
        )  # fmt: skip
        norms = np.concatenate([each for (each,) in norms])
        clipped = on_ranks(
            ranks, fluid.Executor, "clip_parts",
            lambda rank, parts=parts, norms=norms: {
                "X": [parts[rank][at] for at in columns], "Norms": [norms], "ClipNorm": [threshold],
            },
            {"Out": 3, "Norm": 1}, columns=columns, p=p,
        )  # fmt: skip
        assert all(np.allclose(each[-1], norm, rtol=1e-6) for each in clipped)
        ((factor, same),) = on_ranks(
            1, fluid.Executor, "clip_parts_factor",
            lambda _, norms=norms: {"Norms": [norms], "ClipNorm": [threshold]}, {"Factor": 1, "Norm": 1},
            columns=columns, p=p,
        )  # fmt: skip
        assert same.tobytes() == clipped[0][-1].tobytes()
        assert (factor[0], np.array([factor[1] * factor[2]]).astype(same.dtype)) == (threshold, same)
        wholes = [joined([each[at] for each in clipped], whole) for at, whole in enumerate(expected)]
        for found, whole in zip(wholes, expected, strict=True):
            np.testing.assert_allclose(found, whole, rtol=2e-3 if dtype == "float16" else 1e-6)
        bits.add(b"".join([*(each.tobytes() for each in wholes), norms.tobytes()]))
    assert len(bits) == 1


def norm_of_blocks(arrays, blocks, p):
    """The joint norm of arrays, computed of blocks that may be of different lengths."""
    sums = [sums_of_powers(np, block, p) for x in arrays for block in np.array_split(x, blocks)]
    return norm_of_sums(np, np.array(sums), p)


@pytest.mark.laws
@pytest.mark.parametrize("size", [1.0, 1e-170, 1e170, 1e-310])
@pytest.mark.parametrize("p", [1.0, 2.0, np.inf])
def test_norms_of_float64_do_not_depend_on_the_division(p, size):
    """Of random gradients, with sizes that blocks do not divide, and elements of very different sizes."""
    rng = np.random.default_rng(8)
    for draw in range(60):
        arrays = [rng.standard_t(1.5, rng.integers(1, 300)) * size for _ in range(3)]
        arrays.append(rng.normal(size=9001) * 10 ** rng.uniform(-9, 9, 9001) * size if draw % 20 == 0 else np.empty(0))
        expected = math.prod(norm(np, arrays, p))
        for blocks in (1, 2, 5, 8):
            assert math.prod(norm_of_blocks(arrays, blocks, p)) == expected


@pytest.mark.laws
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_norms_of_narrower_types_do_not_depend_on_the_division_in_exact_programs(dtype):
    rng = np.random.default_rng(9)
    with in_order():
        for draw in range(100):
            arrays = [rng.standard_t(3, rng.integers(1, 300)).astype(dtype) for _ in range(3)]
            arrays.append(rng.normal(size=9001 if draw % 20 == 0 else 0).astype(dtype))
            expected = norm(np, arrays)
            assert [norm_of_blocks(arrays, blocks, 2.0) for blocks in (1, 2, 5, 8)] == [expected] * 4


def near_the_middle(small, count):
    """Numbers of float32 whose norm is a little more than the middle between two of them, by `count` small numbers."""
    rest = (Fraction(3, 2) + Fraction(1, 2**24)) ** 2 - count * Fraction(small) ** 2 * Fraction(99, 100)
    found = []
    while rest > Fraction(1, 2**120):
        number = np.float32(np.sqrt(float(rest)))
        while Fraction(float(number)) ** 2 > rest:
            number = np.nextafter(number, np.float32(0))
        found.append(number)
        rest -= Fraction(float(number)) ** 2
    return np.array(found + [small] * count, np.float32)


@pytest.mark.parametrize("count", [4000, 8000])
def test_a_norm_of_float32_is_rounded_to_the_same_number_whatever_is_added_first(count):
    """Small squares that are added to a large one one by one are lost, and those of a block are not."""
    arrays = [near_the_middle(float(np.float32(2**-27.5)), count)]
    with in_order():
        norms = [norm_of_blocks(arrays, blocks, 2.0) for blocks in (1, 2, 4, 8)]
        assert {np.float32(ratio) for _, ratio in (norm(np, arrays), *norms)} == {
            np.nextafter(np.float32(1.5), np.float32(2.0))
        }


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, np.inf])
def test_norms_of_what_is_not_finite_or_empty(p):
    for values, expected in [
        ([np.inf, 1e300, -np.inf], np.inf), ([np.nan, np.inf], np.nan), ([0.0, 0.0], 0.0), ([1e-310, 2.0, 0.0], 2.0),
    ]:  # fmt: skip
        found = math.prod(norm_of_blocks([np.array(values)], 3, p))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


REDUCED = {
    "sum": (np.sum, np.sum), "max": (np.max, np.max), "min": (np.min, np.min),
    "squares": (lambda x: np.sum(np.square(x)), np.sum), "sizes": (lambda x: np.sum(np.abs(x)), np.sum),
}  # fmt: skip


@pytest.mark.laws
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("reduction", REDUCED)
def test_numbers_of_parts_have_the_same_bits_on_all_ranks(reduction, dtype, by_rows):
    """Padding does not count: no element is 0, and some shapes have fewer rows than there are ranks."""
    of_whole, of_numbers = REDUCED[reduction]
    for shape in [(3, 2), (1,), (5, 7), (4096,), (9, 1, 2)]:
        whole = (np.random.default_rng(2).uniform(1, 9, shape) * (-1) ** (reduction == "max")).astype(dtype)
        bits = set()
        for ranks in (1, 2, 4, 8):
            attrs = {"nranks": ranks, "blocks": 8 // ranks, "by_rows": by_rows}
            parts = parts_on_ranks(ranks, fluid.Executor, [whole], **attrs)
            attrs |= {"reduction": reduction, "size": shape[0] if by_rows else whole.size}
            found = on_ranks(
                ranks, fluid.Executor, "part_reduction", lambda rank, parts=parts: {"X": parts[rank]}, {"Out": 1},
                **attrs,
            )  # fmt: skip
            numbers = np.concatenate([each for (each,) in found])
            np.testing.assert_allclose(of_numbers(numbers), of_whole(whole.astype("float64")), rtol=1e-6)
            bits.add(numbers.tobytes())
        assert len(bits) == 1


def test_reductions_and_blocks_must_be_known():
    array = np.ones(4, "float32")
    for attrs, why in [({"reduction": "prod"}, "must be one of sum, max"), ({"reduction": "sum", "blocks": 3}, "no 3")]:
        with pytest.raises(OpError, match=why):
            appended("part_reduction", {"X": [array]}, {"Out": 1}, size=4, nranks=1, **attrs)


def test_an_attribute_gives_the_threshold_and_large_values_do_not_overflow():
    array = np.full(4, 3e200)
    ((norms,),) = on_ranks(1, fluid.Executor, "part_norms", lambda _: {"X": [array]}, {"Out": 1}, blocks=2)
    scales, highs, lows = np.moveaxis(norms, 2, 0)
    np.testing.assert_allclose(scales * np.sqrt(highs + lows), np.full((2, 1), 3e200 * 2**0.5))
    ((found, norm),) = on_ranks(
        1, fluid.Executor, "clip_parts", lambda _: {"X": [array], "Norms": [norms]}, {"Out": 1, "Norm": 1},
        columns=[0], max_norm=2.0,
    )  # fmt: skip
    np.testing.assert_allclose(found, np.ones(4))
    np.testing.assert_allclose(norm, [6e200])


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_selected_rows_are_divided(ranks):
    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 13, 20)
    rows = SparseRows(numbers, rng.normal(size=(20, 3)), 13)
    attrs = {"nranks": ranks, "blocks": 4 // ranks}

    def run(_):
        part = find_kernel("c_part", "cpu", rows=True).function(np, rows, by_rows=True, **attrs)
        norms = find_kernel("part_norms", "cpu", rows=True).function(np, [part], blocks=4 // ranks, p=2.0)
        return part, norms

    found = run_ranks([lambda rank=rank: run(rank) for rank in range(ranks)])
    whole = dense(np, rows)
    np.testing.assert_allclose(np.concatenate([dense(np, part) for part, _ in found])[:13], whole)
    norms = np.concatenate([norms for _, norms in found])
    padded = np.concatenate([whole, np.zeros((3, 3))])
    np.testing.assert_allclose(np.sqrt(norms[:, 0, 1]), np.linalg.norm(padded.reshape(4, -1), axis=1))
    clip = find_kernel("clip_parts", "cpu", rows=True).function
    (clipped,), total = clip(np, [rows], norms, None, columns=[0], max_norm=0.1, p=2.0, strict=False)
    np.testing.assert_allclose(np.linalg.norm(dense(np, clipped)), 0.1)
    np.testing.assert_allclose(total, np.linalg.norm(whole))


def test_what_cannot_be_divided_is_refused():
    two, clipped = [np.zeros(4, "float32"), np.zeros(4)], {"Out": 2, "Norm": 1}
    for type, inputs, outputs, attrs, shown in [
        ("c_reduce_parts", {"X": two}, {"Out": 2}, {"nranks": 2}, "one element type"),
        ("c_gather_parts", {"X": two[:1], "Whole": two}, {"Out": 2}, {"nranks": 2}, "1 parts but 2 arrays"),
        ("c_part", {"X": two[:1]}, {"Out": 1}, {"nranks": 0}, "must be at least 1, got 0"),
        ("part_norms", {"X": two}, {"Out": 1}, {"blocks": 3}, "has no 3 blocks"),
        ("clip_parts", {"X": two, "Norms": [np.zeros((1, 2, 3))]}, clipped, {"columns": [2]}, "columns are"),
        ("clip_parts", {"X": two, "Norms": two[:1]}, clipped, {"columns": [0]}, "what part_norms makes"),
    ]:
        with pytest.raises(OpError, match=shown):
            appended(type, inputs, outputs, **attrs)
    main = fluid.Program()
    with fluid.program_guard(main), pytest.raises(OpError, match="known size"):
        main.global_block().emit("c_part", X=fluid.data("x", [None, 2]), nranks=2)
    for type in ("c_part", "c_reduce_parts"):
        main, feed, fetches = appended(type, {"X": two[:1]}, {"Out": 1}, nranks=2)
        with pytest.raises(ExecutionError, match="the program is for 2 ranks, but 1 runs"):
            fluid.Executor().run(main, feed, fetches)
