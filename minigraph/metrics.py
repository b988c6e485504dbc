"""Metrics accumulated over many batches, on the host."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, caller_site
from minigraph.support.arguments import number
from minigraph.support.public import public, refuse_unknown_names


@public
class MetricBase:
    """Base of the metrics.

    Parameters
    ----------
    name : str, optional
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name or type(self).__name__

    def __str__(self) -> str:
        return self._name

    def get_config(self) -> dict[str, Any]:
        """The name, and as ``states`` a copy of the state by attribute name."""
        return {"name": self._name, "states": copy.deepcopy(self._states())}

    def _states(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if not key.startswith("_")}

    def reset(self) -> None:
        """Forget all batches: numbers become 0."""
        for key, value in self._states().items():
            if isinstance(value, int | float):
                setattr(self, key, type(value)(0))

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch."""
        raise NotImplementedError(f"{type(self).__name__} does not define update")

    def eval(self) -> Any:
        """The measure over all batches so far."""
        raise NotImplementedError(f"{type(self).__name__} does not define eval")


@public
class _Counting(MetricBase):
    """Base of the metrics that begin with counts of 0."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.reset()


@public
class Accuracy(_Counting):
    """Mean of the accuracies of batches, weighted by their sizes.

    Examples
    --------
    >>> metric = Accuracy()
    >>> metric.update(value=0.5, weight=10)
    >>> metric.update(value=1.0, weight=30)
    >>> metric.eval()
    0.875
    """

    def reset(self) -> None:
        """Forget all batches."""
        self.value: Any = 0.0
        self.weight = 0.0

    def update(self, value: Any, weight: float) -> None:
        """Add a batch: its accuracy, a number or an array as it is fetched, and its size."""
        if np.asarray(value).dtype.kind not in "fiub":
            raise WrongTypeError(f"value must be a number or an array of numbers, got {value!r:.60}")
        size = number(weight, "weight", at_least=0)
        self.value = self.value + value * size if isinstance(value, np.ndarray) else self.value + float(value) * size
        self.weight += size

    def eval(self) -> Any:
        """The weighted mean; an array if accuracies were arrays.

        Raises
        ------
        ProgramError
            If there is no batch yet.
        """
        if not self.weight:
            raise ProgramError("no batch has been seen", site=caller_site(), hint="Call update first.")
        return self.value / self.weight


@public
class Precision(_Counting):
    """Precision of a binary classifier: of the samples that it calls positive, the share that is positive.

    Examples
    --------
    >>> metric = Precision()
    >>> metric.update(preds=[0.1, 0.7, 0.8, 0.9], labels=[0, 1, 1, 0])
    >>> round(metric.eval(), 4)
    0.6667
    """

    def reset(self) -> None:
        self.tp = self.fp = 0

    def update(self, preds: Any, labels: Any) -> None:
        called, positive = _called_and_positive(preds, labels)
        self.tp += int((called & positive).sum())
        self.fp += int((called & ~positive).sum())

    def eval(self) -> float:
        return self.tp / max(self.tp + self.fp, 1)


@public
class Recall(_Counting):
    """Recall of a binary classifier: of the positive samples, the share that it calls positive.

    Examples
    --------
    >>> metric = Recall()
    >>> metric.update(preds=[0.1, 0.7, 0.8, 0.9], labels=[1, 1, 1, 0])
    >>> round(metric.eval(), 4)
    0.6667
    """

    def reset(self) -> None:
        self.tp = self.fn = 0

    def update(self, preds: Any, labels: Any) -> None:
        called, positive = _called_and_positive(preds, labels)
        self.tp += int((called & positive).sum())
        self.fn += int((~called & positive).sum())

    def eval(self) -> float:
        return self.tp / max(self.tp + self.fn, 1)


@public
class ChunkEvaluator(_Counting):
    """Precision, recall and F1 of chunks, such as named entities, from the counts of all batches.

    Examples
    --------
    >>> metric = ChunkEvaluator()
    >>> metric.update(num_infer_chunks=10, num_label_chunks=9, num_correct_chunks=8)
    >>> [round(share, 3) for share in metric.eval()]
    [0.8, 0.889, 0.842]
    """

    def reset(self) -> None:
        self.num_infer_chunks: Any = 0
        self.num_label_chunks: Any = 0
        self.num_correct_chunks: Any = 0

    def update(  # type: ignore[override]  # fluid's
        self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any
    ) -> None:
        """Add a batch: how many chunks were found, how many there are, and how many were found rightly."""
        found = _as_given(num_infer_chunks, "num_infer_chunks")
        there = _as_given(num_label_chunks, "num_label_chunks")
        self.num_correct_chunks = self.num_correct_chunks + _as_given(num_correct_chunks, "num_correct_chunks")
        self.num_infer_chunks = self.num_infer_chunks + found
        self.num_label_chunks = self.num_label_chunks + there

    def eval(self) -> tuple[float, float, float]:
        """Precision, recall and their harmonic mean; 0 where nothing was found. Arrays if counts were arrays."""
        right = self.num_correct_chunks
        precision = right / self.num_infer_chunks if self.num_infer_chunks else 0.0
        recall = right / self.num_label_chunks if self.num_label_chunks else 0.0
        return precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0


@public
class EditDistance(_Counting):
    """Mean edit distance of pairs of sequences, and the share of pairs that differ.

    Examples
    --------
    >>> metric = EditDistance("distance")
    >>> metric.update(np.array([[0.0], [2.0], [1.0], [0.0]]), seq_num=4)
    >>> metric.eval()
    (0.75, 0.5)
    """

    def reset(self) -> None:
        self.total_distance, self.seq_num, self.instance_error = 0.0, 0, 0

    def update(self, distances: np.ndarray[Any, Any], seq_num: int) -> None:
        """Add a batch: the distances of its pairs, float[pairs, 1], and their number."""
        array = np.asarray(distances)
        if array.dtype.kind not in "fiu":
            raise WrongTypeError(f"distances must be an array of numbers, got {distances!r:.60}")
        pairs = _count(seq_num, "seq_num")
        self.seq_num += pairs
        self.instance_error += pairs - int(np.sum(array == 0))
        self.total_distance += float(np.sum(array))

    def eval(self) -> tuple[float, float]:
        """The mean distance, and the share of pairs whose distance is not 0.

        Raises
        ------
        ProgramError
            If there is no batch yet.
        """
        if not self.seq_num:
            raise ProgramError("no batch has been seen", site=caller_site(), hint="Call update first.")
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


def _as_given(value: Any, name: str) -> Any:
    """A count; an array stays one, so that programs may read the first element of what they get."""
    count = _count(value, name)
    return np.full(value.shape, count) if isinstance(value, np.ndarray) else count


def _count(value: Any, name: str) -> int:
    """A count that is a number, or an array of one as it is fetched."""
    array = np.asarray(value)
    return int(number(array.reshape(()).item() if array.size == 1 else value, name, at_least=0))


@public
class Auc(MetricBase):
    """The area under the curve of true over false positives, as the layer `minigraph.layers.auc` computes it.

    Parameters
    ----------
    name : str, optional
    curve : {'ROC'}
    num_thresholds : int
        Number of intervals that probabilities are sorted into.

    Raises
    ------
    NotFoundError
        If `curve` is another word.

    Examples
    --------
    >>> metric = Auc("auc")
    >>> metric.update(preds=[[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.6, 0.4]], labels=[0, 1, 1, 1])
    >>> metric.eval()
    1.0
    """

    def __init__(self, name: str | None = None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        super().__init__(name)
        if curve != "ROC":
            raise NotFoundError(f"there is no curve {curve!r:.60}", hint="Use ROC.")
        self._thresholds = int(number(num_thresholds, "num_thresholds", at_least=1, below=2**31))
        self.reset()

    def reset(self) -> None:
        self._counts = np.zeros((2, self._thresholds + 1), np.int64)

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch: the probabilities [n, 2] of both classes, and the classes."""
        scores, classes = np.asarray(preds)[:, 1], np.asarray(labels).reshape(-1)
        _check_sizes(scores, classes)
        buckets = (scores * scores.dtype.type(self._thresholds)).astype(np.int64)
        for positive in (0, 1):
            chosen = buckets[(classes > 0) == bool(positive)]
            self._counts[positive] += np.bincount(chosen, minlength=self._thresholds + 1)

    @staticmethod
    def trapezoid_area(x1: float, x2: float, y1: float, y2: float) -> float:
        """The area below a line from (`x1`, `y1`) to (`x2`, `y2`)."""
        return abs(x1 - x2) * (y1 + y2) / 2.0

    def eval(self) -> float:
        """The area; 0 if a class has no sample."""
        alarms, hits = np.cumsum(self._counts[:, ::-1], axis=1)
        before = hits - self._counts[1, ::-1]
        area = (self._counts[0, ::-1] * (hits + before)).sum() / 2
        return float(area / max(hits[-1] * alarms[-1], 1))


@public
class CompositeMetric(MetricBase):
    """Several metrics at once, all given the same batches.

    Examples
    --------
    >>> metric = CompositeMetric()
    >>> metric.add_metric(Precision())
    >>> metric.add_metric(Recall())
    >>> metric.update(preds=[0.1, 0.7, 0.8], labels=[1, 1, 0])
    >>> metric.eval()
    [0.5, 0.5]
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[MetricBase] = []

    def add_metric(self, metric: MetricBase) -> None:
        """Add a metric.

        Raises
        ------
        WrongTypeError
            If it is no `MetricBase`.
        """
        if not isinstance(metric, MetricBase):
            raise WrongTypeError(f"metric must be a MetricBase, got {metric!r:.60}")
        self._metrics.append(metric)

    def reset(self) -> None:
        for metric in self._metrics:
            metric.reset()

    def update(self, preds: Any, labels: Any) -> None:
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self) -> list[Any]:
        return [metric.eval() for metric in self._metrics]


def _called_and_positive(preds: Any, labels: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Masks of the samples called positive, with a probability that rounds to 1, and of the positive samples."""
    called = np.rint(np.asarray(preds, "float64")).astype(int).reshape(-1) == 1
    positive = np.asarray(labels).reshape(-1) == 1
    _check_sizes(called, positive)
    return called, positive


def _check_sizes(preds: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> None:
    if preds.size != labels.size:
        raise WrongTypeError(f"there are {preds.size} predictions but {labels.size} labels")


refuse_unknown_names(__name__)
