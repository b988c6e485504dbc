"""Losses as layers, with fluid's signatures."""

from __future__ import annotations

from minigraph.dygraph.layer import Layer
from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating, check_variable
from minigraph.layers.elementwise import elementwise_mul, elementwise_sub
from minigraph.layers.reduce import reduce_mean, reduce_sum
from minigraph.layers.tensor import reshape
from minigraph.support.public import public


@public
class _Loss(Layer):
    """A loss of each element, or their mean or sum."""

    def __init__(self, reduction: str) -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ProgramError(f"{type(self).__name__}: reduction must be mean, sum or none, got {reduction!r:.60}")
        self.reduction = reduction

    def _reduced(self, losses: Variable) -> Variable:
        reductions = {"mean": reduce_mean, "sum": reduce_sum}
        return reductions[self.reduction](losses) if self.reduction in reductions else losses


class MSELoss(_Loss):
    """``(input - label) ** 2``, its mean, or its sum."""

    @public
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Variable, label: Variable) -> Variable:
        difference = elementwise_sub(check_floating(input, "MSELoss: input"), label)
        return self._reduced(self._helper.emit("square", X=difference))


class L1Loss(_Loss):
    """``|input - label|``, its mean, or its sum."""

    @public
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Variable, label: Variable) -> Variable:
        return self._reduced(elementwise_sub(check_variable(input, "L1Loss: input"), label, act="abs"))


class BCELoss(_Loss):
    """``-label * log(input) - (1 - label) * log(1 - input)`` of probabilities, its mean, or its sum.

    Parameters
    ----------
    weight : Variable, optional
        Factors of the losses before they are reduced.
    """

    @public
    def __init__(self, weight: Variable | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight = None if weight is None else check_variable(weight, "BCELoss: weight")

    def forward(self, input: Variable, label: Variable) -> Variable:
        x, y = check_floating(input, "BCELoss: input"), check_floating(label, "BCELoss: label")
        losses = self._helper.emit("bce_loss", X=x, Label=y)
        return self._reduced(losses if self.weight is None else elementwise_mul(losses, self.weight))


class NLLLoss(_Loss):
    """``-input[label]`` of logarithms of probabilities, the weighted mean, or the sum.

    Parameters
    ----------
    weight : Variable, float[classes], optional
        Weight of each class.
    ignore_index : int
        Samples with this label do not count.
    """

    @public
    def __init__(self, weight: Variable | None = None, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__(reduction)
        self.weight = None if weight is None else check_variable(weight, "NLLLoss: weight")
        self.ignore_index = ignore_index

    def forward(self, input: Variable, label: Variable) -> Variable:
        """The loss of `input`, float[samples, classes, ...], for `label`, int64[samples, ...]."""
        x, labels = check_floating(input, "NLLLoss: input"), check_variable(label, "NLLLoss: label")
        shape = x.shape or ()
        # The operator takes samples and classes, with two further dimensions or none.
        folded = len(shape) not in (2, 4)
        if folded:
            x, labels = reshape(x, [0, 0, 1, -1]), reshape(labels, [0, 1, -1])
        inputs = {"X": x, "Label": labels} | ({} if self.weight is None else {"Weight": self.weight})
        out, total = self._helper.temporary(), self._helper.temporary(stop_gradient=True)
        attrs = {"reduction": self.reduction, "ignore_index": self.ignore_index}
        self._helper.append("nll_loss", inputs, {"Out": out, "Total_weight": total}, attrs)
        return reshape(out, [shape[0], *shape[2:]]) if folded and self.reduction == "none" else out
