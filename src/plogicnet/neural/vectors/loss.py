"""The losses of the two recipes, for positives and for explicit negatives."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, softplus


def self_adversarial_loss(
    positive: Tensor, negative: Tensor, usable: Tensor, weight: Tensor, temperature: float
) -> Tensor:
    """Mean of the positives' -log σ(s) and the negatives' -log σ(-s), each positive weighted, weights summing to one.

    A positive's negatives share weight one by softmax(temperature · score), which takes no gradient. Those that are not
    usable have none of it; a positive without any usable negative has no negative part.

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
    """Mean of -log softmax(scores) at the answers, each row weighted, weights summing to one.

    Example:
        >>> round(one_vs_all_loss(torch.zeros(1, 2), torch.tensor([0]), torch.ones(1)).item(), 4)
        0.6931
    """
    return weighted_mean(cross_entropy(scores, answer, reduction="none"), weight)


def rejected_loss(scores: Tensor) -> Tensor:
    """Half the mean of -log σ(-s) over explicit negatives: together they count as much as all the sampled ones.

    Example:
        >>> round(rejected_loss(torch.zeros(3)).item(), 4)
        0.3466
    """
    return -logsigmoid(-scores).mean() / 2


def one_vs_all_rejected_loss(scores: Tensor, answer: Tensor) -> Tensor:
    """Mean of -log(1 - p) over explicit negatives, p the share that softmax gives to what should not be the answer.

    It is the counterpart of cross-entropy: nothing where p is small, much where the model is sure of what was rejected.

    Example:
        >>> round(one_vs_all_rejected_loss(torch.zeros(1, 2), torch.tensor([0])).item(), 4)
        0.6931
    """
    if scores.shape[-1] < 2:  # the only entity is every answer
        return scores.sum() * 0
    at = answer[:, None]
    others = scores.scatter(-1, at, -torch.inf).logsumexp(-1)
    return softplus(scores.gather(-1, at)[:, 0] - others).mean()


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """The mean with weights. They may all vanish in float32: then there is nothing to learn, not 0/0.

    Example:
        >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 3.0]))
        tensor(2.5000)
    """
    return (weight * values).sum() / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
