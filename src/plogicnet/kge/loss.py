"""The self-adversarial negative-sampling loss of the paper's recipe."""

import torch
from torch.nn.functional import logsigmoid


def self_adversarial_loss(
    positive: torch.Tensor,
    negative: torch.Tensor,
    usable: torch.Tensor,
    weight: torch.Tensor,
    temperature: float,
) -> torch.Tensor:
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
    # weights may all vanish in float32: then there is nothing to learn, not 0/0
    return (weight * per_positive).sum() / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
