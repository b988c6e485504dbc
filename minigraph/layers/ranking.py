"""Losses for ranking: of scores that should be in order, and of embeddings that should be near each other."""

from __future__ import annotations

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, emit, layer
from minigraph.layers.compare import equal
from minigraph.layers.loss import softmax_with_cross_entropy
from minigraph.layers.nn import matmul
from minigraph.layers.reduce import reduce_mean, reduce_sum
from minigraph.layers.reshaping import expand
from minigraph.layers.tensor import reshape, transpose
from minigraph.support.arguments import as_float

__all__ = ["bpr_loss", "margin_rank_loss", "npair_loss", "rank_loss", "teacher_student_sigmoid_loss"]


@layer
def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Variable:
    """``log(1 + exp(left - right)) - label * (left - right)``, the loss of RankNet.

    Parameters
    ----------
    label : Variable, float[batch, 1]
        1 where the left one of a pair is to have the higher score, 0 where the right one is.
    left, right : Variable, float[batch, 1]
        Scores.

    References
    ----------
    C. Burges et al., Learning to rank using gradient descent, ICML 2005.
    """
    left, right = check_floating(left, "rank_loss: left"), check_floating(right, "rank_loss: right")
    return emit("rank_loss", name, Label=check_floating(label, "rank_loss: label"), Left=left, Right=right)


@layer
def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """``max(0, margin - label * (left - right))``.

    Parameters
    ----------
    label : Variable, float[batch, 1]
        1 where the left one of a pair is to have the higher score, -1 where the right one is.
    left, right : Variable, float[batch, 1]
        Scores.
    """
    label = check_floating(label, "margin_rank_loss: label")
    left, right = check_floating(left, "margin_rank_loss: left"), check_floating(right, "margin_rank_loss: right")
    helper = LayerHelper("margin_rank_loss", name)
    loss, activated = helper.temporary(), helper.temporary()  # in fluid's order
    inputs = {"Label": label, "X1": left, "X2": right}
    helper.append("margin_rank_loss", inputs, {"Out": loss, "Activated": activated}, {"margin": margin})
    return loss


@layer
def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Bayesian personalized ranking: the mean of ``log(1 + exp(score - input[label]))`` over all other classes.

    Parameters
    ----------
    input : Variable, float[..., classes]
        Scores.
    label : Variable, int64[..., 1]

    Returns
    -------
    Variable, float[..., 1]

    References
    ----------
    B. Hidasi et al., Session-based recommendations with recurrent neural networks, ICLR 2016.
    """
    return emit("bpr_loss", name, X=check_floating(input, "bpr_loss: input"), Label=label)


@layer
def teacher_student_sigmoid_loss(
    input: Variable, label: Variable, soft_max_up_bound: float = 15.0, soft_max_lower_bound: float = -15.0
) -> Variable:
    """Cross entropy of ``sigmoid(input)`` with a click, plus that with the score of a teacher, if there is one.

    Parameters
    ----------
    input : Variable, float[batch, 1]
    label : Variable, float[batch, 1]
        -2 is no click and -1 a click, without a teacher; 0 to 1 is the teacher's score and no click, 1 to 2 one more
        than the score and a click.
    soft_max_up_bound, soft_max_lower_bound : float
        No gradient flows where the input is not between them.
    """
    x = check_floating(input, "teacher_student_sigmoid_loss: input")
    helper = LayerHelper("teacher_student_sigmoid_loss")
    return helper.emit(
        "teacher_student_sigmoid_loss", into=helper.create_variable(dtype=x.dtype), X=x, Label=label,
        soft_max_lower_bound=as_float(soft_max_lower_bound), soft_max_up_bound=as_float(soft_max_up_bound),
    )  # fmt: skip


@layer
def npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002) -> Variable:
    """Cross entropy of the products of anchors and positives, whose classes are equal labels, and a penalty of lengths.

    Parameters
    ----------
    anchor, positive : Variable, float[batch, features]
        Embeddings of pairs of the same class.
    labels : Variable, float or int64[batch]
        Of a known size.
    l2_reg : float
        A quarter of it is the weight of the mean squared lengths.

    Returns
    -------
    Variable, float[1]

    References
    ----------
    K. Sohn, Improved deep metric learning with multi-class N-pair loss objective, NIPS 2016.
    """
    anchor = check_floating(anchor, "npair_loss: anchor")
    positive = check_floating(positive, "npair_loss: positive")
    labels = check_variable(labels, "npair_loss: labels")
    batch = next(iter(labels.shape or ()), -1)
    if batch < 0:
        raise ProgramError(
            f"npair_loss: the number of labels must be known, got {labels}",
            hint="Declare it, fluid.data('labels', [32], 'int64'): each sample is compared with all others.",
        )
    column = expand(reshape(labels, [batch, 1]), [1, batch])
    same = equal(column, transpose(column, [1, 0])).astype("float32")
    weights = same / reduce_sum(same, dim=1, keep_dim=True)
    lengths = [reduce_mean(reduce_sum(emit("square", X=x), 1)) for x in (anchor, positive)]
    penalty = (lengths[0] + lengths[1]) * 0.25 * l2_reg
    similarity = matmul(anchor, positive, transpose_y=True)
    losses = softmax_with_cross_entropy(similarity, weights, soft_label=True)
    return penalty + reduce_mean(reduce_sum(weights * losses, 0))
