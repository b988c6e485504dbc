"""Comparisons of gradients over ranks against `parallel.compare_norms`, which runs the training program of each."""

import json

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers, parallel
from minigraph.errors import DataError, WrongTypeError

RANKS, CLIP = 4, 0.05
BATCHES = [{"x": np.random.default_rng(seed).normal(size=(8, 3)).astype("float32")} for seed in range(3)]
CLIPS = {"all": fluid.clip.GradientClipByGlobalNorm(CLIP), "raw": None}


def network():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = layers.mean(layers.square(layers.fc(layers.fc(fluid.data("x", [None, 3]), 4, act="tanh"), 1) - 1.0))
    return main, startup, loss


def descent():
    return fluid.optimizer.SGD(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [None, descent])
def test_norms_and_factors_are_those_of_each_ranks_part(optimizer):
    main, startup, loss = network()
    report = fluid.compare_gradients(main, loss, CLIPS, BATCHES, startup=startup, optimizer=optimizer, ranks=RANKS)
    with fluid.program_guard(main, startup):
        descent().minimize(loss)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for number, batch in enumerate(BATCHES):
        feeds = [{"x": part} for part in np.split(batch["x"], RANKS)]
        expected = parallel.compare_norms(main, feeds, CLIP, scope)
        found = report.over_ranks("all")
        assert list(found) == [*(f"rank {rank} alone" for rank in range(RANKS)), "all ranks"]
        norms = [each.norm_before[number] for each in found.values()]
        factors = [each.factor[number] for each in found.values()]
        np.testing.assert_allclose(norms, [*expected.local, expected.joint], rtol=1e-5)
        np.testing.assert_allclose(factors, [*expected.local_factors, expected.factor], rtol=1e-5)
        if optimizer is not None:
            executor.run(main, batch, scope=scope)
    assert {each.share_clipped for each in report.over_ranks("raw").values()} == {0.0}


@pytest.mark.slow
def test_the_report_shows_them():
    main, startup, loss = network()
    report = fluid.compare_gradients(main, loss, CLIPS, BATCHES, startup=startup, ranks=2)
    for text in (str(report), report.html()):
        assert "over ranks" in text or "if each rank clipped" in text
        assert text.count("rank 0 alone") == text.count("rank 1 alone") == len(CLIPS)
    for clip in json.loads(json.dumps(report.to_json()))["clips"]:
        shown = [each["mean"]["norm_before"] for each in clip["ranks"]]
        assert shown == [each[clip["clip"]].summary("norm_before").mean for each in report.ranks]


def test_of_one_rank_nothing_is_shown():
    main, startup, loss = network()
    report = fluid.compare_gradients(main, loss, CLIPS, BATCHES, startup=startup)
    assert report.ranks == () and "rank" not in str(report)


def test_rows_say_which_rank_they_are_of():
    main, startup, loss = network()
    report = fluid.compare_gradients(main, loss, CLIPS, BATCHES, startup=startup, ranks=2)
    heading, *rows = report.rows()
    assert heading[:4] == ["strategy", "parameter", "rank", "batch"]
    for rank, alone in enumerate(report.ranks):
        for name in report.strategies:
            found = [row for row in rows if (row[0], row[2]) == (name, rank)]
            assert [row[3] for row in found] == [*range(1, len(BATCHES) + 1)]
            assert [row[heading.index("norm_after")] for row in found] == alone[name].norm_after.tolist()
            assert {(row[1], row[heading.index("loss")]) for row in found} == {("all together", "")}
    assert {len(row) for row in rows} == {len(heading)}
    alone = fluid.compare_gradients(main, loss, CLIPS, BATCHES, startup=startup)
    assert [row[:2] + row[3:] for row in rows if row[2] == "all"] == [list(row) for row in list(alone.rows())[1:]]


def test_batches_that_ranks_cannot_share_and_numbers_that_are_none_are_refused():
    main, startup, loss = network()
    with pytest.raises(DataError, match="3 ranks cannot share a batch evenly"):
        fluid.compare_gradients(main, loss, CLIPS, BATCHES, startup=startup, ranks=3)
    for ranks in (0, -1, True, 2.0):
        with pytest.raises(WrongTypeError, match="ranks must be an int"):
            fluid.compare_gradients(main, loss, CLIPS, BATCHES, startup=startup, ranks=ranks)
