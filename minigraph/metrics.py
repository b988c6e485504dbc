"""Measures kept over many batches, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import MinigraphError, WrongTypeError, caller_site


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
        """The state, by attribute name."""
        return {key: value for key, value in vars(self).items() if not key.startswith("_")}


class Accuracy(MetricBase):
    """Mean of the accuracies of batches, weighted by their sizes.

    Examples
    --------
    >>> metric = Accuracy()
    >>> metric.update(value=0.5, weight=10)
    >>> metric.update(value=1.0, weight=30)
    >>> metric.eval()
    0.875
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self.value = 0.0
        self.weight = 0.0

    def update(self, value: Any, weight: float) -> None:
        """Take in a batch: its accuracy (a number or an array of one) and its size."""
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "fiub":
            raise WrongTypeError(f"value must be one number, got {value!r:.60}", site=caller_site())
        try:
            size = float(weight)
        except (TypeError, ValueError):
            size = -1.0
        if not size >= 0:
            raise WrongTypeError(f"weight must be a number, not negative, got {weight!r:.60}", site=caller_site())
        self.value += float(array.reshape(())) * size
        self.weight += size

    def eval(self) -> float:
        """The weighted mean.

        Raises
        ------
        MinigraphError
            If there is no batch yet.
        """
        if not self.weight:
            raise MinigraphError("no batch has been seen", site=caller_site(), hint="Call update first.")
        return self.value / self.weight
