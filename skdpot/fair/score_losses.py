"""Losses of predictors: the gradient of each record by its outputs, and the curvature."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from skdpot.fair.mechanism import OutputLoss


@dataclass(frozen=True)
class ScoreLoss:
    """A loss: its gradient by the outputs, and its largest curvature."""

    gradient: OutputLoss
    curvature: float
    of_classes: bool = True  # outputs are logits

    def usual_curvature(self, n_outputs: int) -> float:
        """Return the curvature by one of the outputs where all are equal."""
        return min(self.curvature, 1.0 / n_outputs) if self.of_classes else self.curvature


def _of_a_logit(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the cross-entropy by the logit of the second class."""
    return outputs.sigmoid() - targets[:, None]


def _of_logits(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the cross-entropy by the logits."""
    return outputs.softmax(1) - functional.one_hot(targets.long(), outputs.shape[1])


def _of_predictions(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the gradient of half the squared error by the predictions."""
    return outputs - targets


LOSSES: dict[str, ScoreLoss] = {
    "logistic": ScoreLoss(_of_a_logit, 0.25),
    "softmax": ScoreLoss(_of_logits, 0.5),
    "squared": ScoreLoss(_of_predictions, 1.0, of_classes=False),
}
