"""The loss of a fair predictor, and its clipped gradients on a batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from skdpot.nets.anchors import Anchors
from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ComparedOutputs
from skdpot.nets.output_gradients import (
    ClippedVectors,
    pulled_back_sum,
    shares_of_jacobians,
    shares_of_vectors,
)
from skdpot.nets.parity_penalty import ParityPenalty
from skdpot.nets.per_sample import record_outputs

__all__ = ["FairLoss", "Records", "network_outputs"]

OutputLoss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_ROWS_AT_ONCE = 8192
_LARGEST = 1e100  # what outputs that are not finite count as


@dataclass(frozen=True, eq=False)
class Records:
    """Private rows and targets, on the device of training.

    Parameters
    ----------
    rows : tensor of shape (n_samples, n_features)
        Inputs of the network.
    targets : tensor of shape (n_samples,) or (n_samples, n_outputs)
        What the loss compares outputs with.
    """

    rows: torch.Tensor
    targets: torch.Tensor

    def take(self, batch: np.ndarray) -> "Records":
        """Return the records of a batch."""
        index = torch.from_numpy(batch).to(self.rows.device)
        return Records(self.rows[index], self.targets[index])


@dataclass(frozen=True, kw_only=True)
class FairLoss:
    r"""What is minimised, and how the gradients of a record are clipped.

    Parameters
    ----------
    gradient : callable
        Maps outputs (n_records, q), in double precision, and targets to the gradient of each
        record's loss by its outputs.
    compared : ComparedOutputs
        What of the outputs is compared between cells.
    alpha : float
        Weight of the penalty in [0, 1); the loss has the rest.
    clip : float
        C: largest norm of a record's gradient of the loss. With tables loss and penalty are
        clipped together, to :math:`(1 - \alpha) C`: penalties that matter pull about as much as
        the loss.
    clip_jacobian : float
        L: largest spectral norm of the Jacobian of a compared value; with ranks only.
    """

    gradient: OutputLoss
    compared: ComparedOutputs
    alpha: float
    clip: float
    clip_jacobian: float

    def ranked_sum(
        self,
        network: nn.Module,
        batch: Records,
        penalty: ParityPenalty | None,
        directions: np.ndarray,
    ) -> dict[nn.Parameter, torch.Tensor]:
        r"""Return the clipped gradient of a batch, times its size.

        Parameters
        ----------
        network : torch.nn.Module
            Treats records one by one.
        batch : Records
            The records of all cells, cell by cell.
        penalty : ParityPenalty or None
            What compares the cells; None is the loss alone.
        directions : ndarray of shape (n_slices, k)
            Unit rows.

        Privacy
        -------
        Not private by itself. Replacing one record by another of its cell moves it by at most
        `ranked_sensitivity`.
        """
        vectors = self.ranked_vectors(network, batch, penalty, directions)
        return pulled_back_sum(network, batch.rows, vectors)

    def ranked_vectors(
        self,
        network: nn.Module,
        batch: Records,
        penalty: ParityPenalty | None,
        directions: np.ndarray,
    ) -> ClippedVectors:
        """Return what `ranked_sum` pulls back of each record of a batch; as private as it is."""
        n, alpha = len(batch.rows), self.alpha if penalty else 0.0
        pulls = None if penalty is None else self._rank_pulls(network, batch, penalty, directions)

        def vectors(outputs: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
            own = self.gradient(outputs, batch.targets[records])
            total = (1.0 - alpha) * _scaled(own, shares_of_vectors(own, gram, self.clip))
            if pulls is not None:
                shares = shares_of_jacobians(self.compared.gram(gram, outputs), self.clip_jacobian)
                pull = self.compared.pull_back(_scaled(pulls[records], shares), outputs)
                total = total + alpha * n * pull
            return _finite(total)

        return vectors

    def ranked_sensitivity(
        self, batch_size: int, penalty: ParityPenalty | None, width: float
    ) -> float:
        r"""Bound how far one record moves `ranked_sum`, under replace-one within its cell.

        :math:`(1 - \alpha)\, 2 C` by the loss, whose clipped gradients are a sum, and
        :math:`\alpha n'` times what the penalty moves by (`ParityPenalty.sensitivity`).

        Parameters
        ----------
        batch_size : int
            Records n' of a batch.
        penalty : ParityPenalty or None
            What compares the cells.
        width : float
            Mean over the directions of the width of compared values.
        """
        if penalty is None:
            return 2.0 * self.clip
        moved = penalty.sensitivity(width, self.clip_jacobian)
        return (1.0 - self.alpha) * 2.0 * self.clip + self.alpha * batch_size * moved

    def _rank_pulls(
        self, network: nn.Module, batch: Records, penalty: ParityPenalty, directions: np.ndarray
    ) -> torch.Tensor:
        values = self.compared.values(network_outputs(network, batch.rows)).cpu().numpy()
        ends = np.cumsum(penalty.batch_sizes)[:-1]
        pulls = penalty.vectors(np.split(values, ends), directions)
        return torch.from_numpy(np.concatenate(pulls)).to(batch.rows.device)

    def anchored_sum(
        self, network: nn.Module, batch: Records, anchors: Anchors | None, cells: Cells
    ) -> dict[nn.Parameter, torch.Tensor]:
        r"""Return the sum over a batch of clipped gradients of loss and penalty together.

        Record i contributes :math:`(1 - \alpha) \nabla \ell_i + \alpha J_i^\top w_i`, with the
        vector w of `Anchors.vectors`, shortened to the norm `joint_clip`.

        Parameters
        ----------
        network : torch.nn.Module
            Treats records one by one.
        batch : Records
            Any records.
        anchors : Anchors or None
            Those of the batch, of the latest release; None before the first.
        cells : Cells
            Public division of all records.

        Privacy
        -------
        Not private by itself. A record contributes a vector of norm at most `joint_clip`, which
        does not depend on the other records but through the release.
        """
        return pulled_back_sum(network, batch.rows, self.anchored_vectors(batch, anchors, cells))

    def anchored_vectors(
        self, batch: Records, anchors: Anchors | None, cells: Cells
    ) -> ClippedVectors:
        """Return what `anchored_sum` pulls back of each record of a batch; as private as it is."""
        alpha = self._alpha(cells)

        def vectors(outputs: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
            total = (1.0 - alpha) * self.gradient(outputs, batch.targets[records])
            if anchors is not None:
                pull = anchors.vectors(self.compared.values(_bounded(outputs)), records)
                total = total + alpha * self.compared.pull_back(pull, outputs)
            total = _finite(total)
            return _scaled(total, shares_of_vectors(total, gram, self.joint_clip(cells)))

        return vectors

    def joint_clip(self, cells: Cells) -> float:
        """Return the largest norm of what a record contributes to `anchored_sum`."""
        return (1.0 - self._alpha(cells)) * self.clip

    def _alpha(self, cells: Cells) -> float:
        return self.alpha if cells.strata else 0.0


def network_outputs(network: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Return the outputs of all rows in double precision, bounded and without gradients."""
    chunks = [record_outputs(network, chunk) for chunk in rows.split(_ROWS_AT_ONCE)]
    return _bounded(torch.cat(chunks).to(torch.float64))


def _bounded(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.nan_to_num(nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)


def _scaled(vectors: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    # Zero times infinity is not zero.
    return torch.where(shares[:, None] > 0.0, vectors * shares[:, None], 0.0)


def _finite(vectors: torch.Tensor) -> torch.Tensor:
    return torch.where(vectors.isfinite().all(1, keepdim=True), vectors, 0.0)
