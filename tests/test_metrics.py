"""Measures over many batches, against counting by hand and the layers that compute the same."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers, metrics
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError

RNG = np.random.default_rng(5)


def batches(count=3, size=40):
    for _ in range(count):
        labels = RNG.integers(0, 2, size)
        yield np.clip(0.3 * labels + RNG.uniform(0, 0.7, size), 0, 1), labels


def test_precision_and_recall_are_shares_of_all_batches():
    seen = list(batches())
    both = metrics.CompositeMetric("both")
    for metric in (metrics.Precision(), metrics.Recall()):
        both.add_metric(metric)
    for scores, labels in seen:
        both.update(scores, labels[:, None])
    scores, labels = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    called = scores > 0.5
    hits = (called & (labels == 1)).sum()
    assert both.eval() == [hits / called.sum(), hits / (labels == 1).sum()]
    both.reset()
    assert both.eval() == [0, 0]


def test_the_area_is_the_share_of_pairs_in_the_right_order_and_that_of_the_layer():
    seen, metric = list(batches()), metrics.Auc("auc", num_thresholds=199)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x, y = fluid.data("x", [None, 2], "float32"), fluid.data("y", [None, 1], "int64")
        area, _, _ = layers.auc(x, y, num_thresholds=199)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for scores, labels in seen:
        both = np.stack([1 - scores, scores], 1).astype("float32")
        metric.update(both, labels)
        (of_layer,) = executor.run(main, {"x": both, "y": labels[:, None]}, [area], scope=scope)
    assert metric.eval() == of_layer.item()
    scores, labels = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    buckets = (scores.astype("float32") * np.float32(199)).astype(int)
    gaps = buckets[labels == 1][:, None] - buckets[labels == 0]
    assert metric.eval() == pytest.approx(((gaps > 0) + 0.5 * (gaps == 0)).mean(), rel=1e-12)
    metric.reset()
    assert metric.eval() == 0


def test_a_metric_of_ones_own():
    class Mistakes(metrics.MetricBase):
        def __init__(self):
            super().__init__("mistakes")
            self.count = 0

        def update(self, preds, labels):
            self.count += int((np.asarray(preds) != labels).sum())

        def eval(self):
            return self.count

    metric = Mistakes()
    metric.update([1, 0], np.array([1, 1]))
    assert (str(metric), metric.eval(), metric.get_config()) == (
        "mistakes",
        1,
        {"name": "mistakes", "states": {"count": 1}},
    )
    metric.reset()
    assert metric.eval() == 0
    with pytest.raises(NotImplementedError):
        metrics.MetricBase("none").eval()


def test_what_makes_no_sense_is_refused():
    with pytest.raises(NotFoundError, match="Use ROC"):
        metrics.Auc("area", curve="PR")
    with pytest.raises(WrongTypeError, match="3 predictions but 2 labels"):
        metrics.Precision().update([1, 0, 1], [1, 0])
    with pytest.raises(WrongTypeError, match="must be a MetricBase"):
        metrics.CompositeMetric().add_metric("precision")


def test_the_area_of_a_trapezoid_is_its_mean_height_times_its_width():
    assert metrics.Auc.trapezoid_area(1, 3, 2, 5) == metrics.Auc("auc").trapezoid_area(3, 1, 5, 2) == 7.0


def test_a_weighted_average_is_that_of_all_values():
    average = fluid.average.WeightedAverage()
    with pytest.raises(ProgramError, match="there is nothing to average"):
        average.eval()
    average.add(np.array([2.0, 4.0]), 1)
    average.add(np.array([4.0, 8.0]), np.array([3.0]))
    assert average.eval().tolist() == [3.5, 7.0]
    average.reset()
    average.add(3, 2.0)
    assert average.eval() == 3
    for value, weight in (("3", 1), (None, 1), (1.0, "1"), (1.0, np.ones(2))):
        with pytest.raises(WrongTypeError, match="must be a number"):
            average.add(value, weight)


def test_chunks_are_counted_over_batches():
    """Counts come as numbers, or as they are fetched; the shares are those of Paddle 1.8.5."""
    metric = metrics.ChunkEvaluator()
    assert metric.eval() == (0, 0, 0)
    metric.update(10, 9, 8)
    assert metric.eval() == pytest.approx((0.8, 8 / 9, 2 * 0.8 * (8 / 9) / (0.8 + 8 / 9)))
    metric.update(np.array([3]), np.array([3], "int64"), np.array([[3]]))
    assert metric.eval() == pytest.approx((11 / 13, 11 / 12, 2 * (11 / 13) * (11 / 12) / (11 / 13 + 11 / 12)))
    for wrong in ("3", None, np.ones(2), -1):
        with pytest.raises((WrongTypeError, ProgramError), match="num_infer_chunks"):
            metric.update(wrong, 1, 1)
    assert metric.eval() == pytest.approx((11 / 13, 11 / 12, 2 * (11 / 13) * (11 / 12) / (11 / 13 + 11 / 12)))


def test_chunks_counted_in_arrays_give_arrays():
    metric = metrics.ChunkEvaluator()
    for _ in range(2):
        metric.update(np.array([10]), np.array([8]), np.array([4]))
    assert [share.tolist() for share in metric.eval()] == [[0.4], [0.5], [pytest.approx(4 / 9)]]  # as 1.8.5


def test_distances_are_averaged_over_batches():
    metric = metrics.EditDistance("distance")
    with pytest.raises(ProgramError, match="no batch"):
        metric.eval()
    metric.update(np.array([[0.0], [2.0]]), 2)
    metric.update(np.array([[1.0], [0.0], [0.0]]), np.array([3]))
    assert metric.eval() == (3 / 5, 2 / 5)
    metric.reset()
    metric.update(np.array([[4.0]]), 1)
    assert metric.eval() == (4, 1)
    with pytest.raises(WrongTypeError, match="distances must be an array"):
        metric.update(["a"], 1)


def test_an_empty_measure_is_the_value_error_that_scripts_for_fluid_catch():
    for metric in (metrics.Accuracy("accuracy"), metrics.EditDistance("distance")):
        with pytest.raises(ValueError, match="no batch"):  # 1.8.5 raises ValueError
            metric.eval()


def test_an_accuracy_of_arrays_is_an_array():
    metric = metrics.Accuracy()
    metric.update(np.array([0.5], "float32"), 10)
    metric.update(np.array([1.0], "float32"), 30)
    assert metric.eval().tolist() == [0.875]
    assert metric.eval().dtype == "float32"
    metric.reset()
    metric.update(np.array([0.5, 1.0], "float32"), 2)  # as two places give them
    assert metric.eval().tolist() == [0.5, 1.0]
    with pytest.raises(WrongTypeError, match="a number or an array of numbers"):
        metric.update("high", 1)
