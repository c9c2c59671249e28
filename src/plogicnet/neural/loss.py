"""The losses of both recipes (`sampled`, `one_vs_all`), for positives and for explicit negatives."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, softplus


def self_adversarial_loss(
    positive: Tensor, negative: Tensor, usable: Tensor, weight: Tensor, temperature: float
) -> Tensor:
    """Return the weighted mean over positives of (-log σ(s) - Σ_j a_j log σ(-s_j)) / 2.

    s is the score of the positive, and s_j are the scores of its negatives. The weights a_j are the softmax of
    temperature · s_j, without gradient. Unusable negatives have weight 0. A positive without usable negatives has only
    the first term.

    Example:
        >>> one, usable = torch.ones(1), torch.ones(1, 2, dtype=torch.bool)
        >>> loss = self_adversarial_loss(torch.zeros(1), torch.zeros(1, 2), usable, one, temperature=1.0)
        >>> round(loss.item(), 4)
        0.6931
    """
    share = torch.softmax((temperature * negative.detach()).masked_fill(~usable, -torch.inf), dim=-1).nan_to_num(0.0)
    per_positive = -(logsigmoid(positive) + (share * logsigmoid(-negative)).sum(-1)) / 2
    return weighted_mean(per_positive, weight)


def one_vs_all_loss(scores: Tensor, answer: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean of -log softmax(scores) at the answers.

    Example:
        >>> round(one_vs_all_loss(torch.zeros(1, 2), torch.tensor([0]), torch.ones(1)).item(), 4)
        0.6931
    """
    return weighted_mean(cross_entropy(scores, answer, reduction="none"), weight)


def explicit_negative_loss(scores: Tensor) -> Tensor:
    """Return half the mean of -log σ(-s) over explicit negatives. Sampled negatives also have the factor 1/2.

    Example:
        >>> round(explicit_negative_loss(torch.zeros(3)).item(), 4)
        0.3466
    """
    return -logsigmoid(-scores).mean() / 2


def one_vs_all_negative_losses(scores: Tensor, answer: Tensor) -> Tensor:
    """Return -log(1 - p) of each explicit negative, where p is the softmax probability of the negative.

    Example:
        >>> one_vs_all_negative_losses(torch.zeros(1, 2), torch.tensor([0]))
        tensor([0.6931])
    """
    if scores.shape[-1] < 2:  # with one entity, p is always one
        return scores.sum(-1) * 0
    column = answer[:, None]
    others = scores.scatter(-1, column, -torch.inf).logsumexp(-1)
    return softplus(scores.gather(-1, column)[:, 0] - others)


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean. It is 0, not NaN, if all weights underflow to zero in float32.

    Example:
        >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 3.0]))
        tensor(2.5000)
    """
    return (weight * values).sum() / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
