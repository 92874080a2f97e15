r"""The objective of a penalised training, and the clipped contribution of each record.

The objective is :math:`(1 - \alpha)` times the mean loss plus :math:`\alpha` times the squared
(sliced) Wasserstein distance between the outputs of groups (`skdpot.nets.parity_penalty`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from skdpot.fair.mechanism import OutputLoss
from skdpot.fair.training_rows import TrainingRows
from skdpot.nets.compared_outputs import ComparedOutputs
from skdpot.nets.gradients import ClippedVectors, shares_of_jacobians, shares_of_vectors
from skdpot.nets.local_penalty import LocalPenalty, finite_outputs, network_outputs
from skdpot.nets.parity_penalty import ParityPenalty


@dataclass(frozen=True, kw_only=True)
class FairLoss:
    """What is minimised, and how the gradients of a record are clipped."""

    gradient: OutputLoss
    compared: ComparedOutputs
    alpha: float  # 0 where nothing is compared
    clip: float
    clip_jacobian: float = 1.0

    def ranked_vectors(
        self,
        network: nn.Module,
        batch: TrainingRows,
        penalty: ParityPenalty,
        directions: np.ndarray,
    ) -> ClippedVectors:
        """Return the vectors of a batch whose sum, pulled back, is its gradient times its size.

        Not private by itself. Replacing one record by another of its cell moves the sum by at most
        `ranked_sensitivity`.
        """
        n, alpha = len(batch.rows), self.alpha
        values = compared_values(self.compared, network, batch.rows)
        of_cells = np.split(values, np.cumsum(penalty.batch_sizes)[:-1])
        pulled = np.concatenate(penalty.vectors(of_cells, directions))
        pulls = torch.from_numpy(pulled).to(batch.rows.device)

        def vectors(
            outputs: torch.Tensor, gram: torch.Tensor, records: torch.Tensor
        ) -> torch.Tensor:
            gradients = self.gradient(outputs, batch.targets[records])
            loss = _shortened(gradients, shares_of_vectors(gradients, gram, self.clip))
            shares = shares_of_jacobians(self.compared.gram(gram, outputs), self.clip_jacobian)
            pull = self.compared.pull_back(_shortened(pulls[records], shares), outputs)
            return _zero_unless_finite((1.0 - alpha) * loss + alpha * n * pull)

        return vectors

    def ranked_sensitivity(self, batch_size: int, penalty: ParityPenalty, width: float) -> float:
        r"""Bound how far one record moves a ranked sum, under replace-one within its cell.

        The loss moves by at most :math:`(1 - \alpha)\, 2 C`, because its gradients are a clipped
        sum, and the penalty by :math:`\alpha n'` times `ParityPenalty.sensitivity`.
        """
        moved = penalty.sensitivity(width, self.clip_jacobian)
        return (1.0 - self.alpha) * 2.0 * self.clip + self.alpha * batch_size * moved

    def joint_vectors(self, batch: TrainingRows, local: LocalPenalty | None) -> ClippedVectors:
        r"""Return the vectors of a batch whose sum, pulled back, is that of loss and local penalty.

        Record i contributes :math:`(1 - \alpha) \nabla \ell_i + \alpha J_i^\top w_i`, with the
        vector w of `LocalPenalty.vectors`, shortened to the norm `joint_clip`.

        Not private by itself. A record contributes a vector of norm at most `joint_clip`, which
        depends on the other records only through the release.
        """
        alpha = self.alpha

        def vectors(
            outputs: torch.Tensor, gram: torch.Tensor, records: torch.Tensor
        ) -> torch.Tensor:
            total = (1.0 - alpha) * self.gradient(outputs, batch.targets[records])
            if local is not None:
                pull = local.vectors(self.compared.values(finite_outputs(outputs)), records)
                total = total + alpha * self.compared.pull_back(pull, outputs)
            total = _zero_unless_finite(total)
            return _shortened(total, shares_of_vectors(total, gram, self.joint_clip))

        return vectors

    @property
    def joint_clip(self) -> float:
        """Largest norm of the contribution of a record to a joint sum."""
        return (1.0 - self.alpha) * self.clip


def compared_values(
    compared: ComparedOutputs, network: nn.Module, rows: torch.Tensor
) -> np.ndarray:
    """Return the values of the outputs of rows, (n_rows, k)."""
    return compared.values(network_outputs(network, rows)).cpu().numpy()


def _shortened(vectors: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Multiply vectors by shares; a share of 0 is 0 also for a vector that is not finite."""
    return torch.where(shares[:, None] > 0.0, vectors * shares[:, None], 0.0)


def _zero_unless_finite(vectors: torch.Tensor) -> torch.Tensor:
    return torch.where(vectors.isfinite().all(1, keepdim=True), vectors, 0.0)
