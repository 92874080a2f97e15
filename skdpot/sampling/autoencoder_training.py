r"""Steps that train an autoencoder, with and without privacy, and penalties of its codes.

*Prior.* Along a direction θ the prior's quantiles at (j − 1/2)/n are known in closed form, so that
the penalty of a batch of n codes c_i is

.. math:: \frac{1}{S} \sum_\theta \frac{1}{n} \sum_j (u_{(j)} - v_j)^2,
   \qquad u_i = \theta^\top c_i,

with increasing constants v_1, ..., v_n. Its gradient, times n, is :math:`\sum_i J_i^\top w_i` with
:math:`w_i = \frac{2}{S} \sum_\theta (u_i - v_{r_\theta(i)}) \theta` and the rank r.

*Parity.* The mean squared sliced Wasserstein distance between the codes of the groups in a batch
(`skdpot.nets.output_tables`). Codes are shortened to a ball before they are compared. A code
outside of it is pulled as the point that it is shortened to, so that it is not lost to the penalty.
Both are those of Rodríguez-Vítores et al., "Learning with differentially private (sliced)
Wasserstein gradients", 2025, appendix B.3.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from skdpot._utils.validation import SecretStream, Streams
from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ComparedOutputs
from skdpot.nets.gradient_release import expected_batch, gradients_of_vectors, release_gradient
from skdpot.nets.gradients import ClippedVectors, by_jacobians, pulled_back_sum, shares_of_vectors
from skdpot.nets.local_penalty import LocalPenalty, network_outputs
from skdpot.nets.loss_curve import Losses, fixed_subset, parity_distance
from skdpot.nets.output_tables import OutputTables, TableNoise, release_tables
from skdpot.nets.per_sample import record_outputs
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan
from skdpot.ot.slices import CDFTable
from skdpot.release.gate import Records
from skdpot.sampling.code_distances import ParityDistance, PriorDistance

_CODES_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class AutoencoderLoss:
    """What is minimised: ``(1 - alpha) * reconstruction + alpha * penalty``.

    With privacy the reconstruction error is half of the squared error, summed over features:
    its gradients are long beside the default `clip`, so that nearly all are shortened to that
    norm, whatever the unit and the number of features. Without privacy it is the mean squared
    error.
    """

    clip: float
    penalty: PriorDistance | ParityDistance | None = None
    alpha: float = 0.0
    clip_jacobian: float = 1.0
    n_releases: int = 0  # of the distributions of codes, in the place of ranks

    @property
    def sensitivity(self) -> float:
        """How far one record moves a batch's summed gradient, under replace-one."""
        if self.penalty is None:
            return 2.0 * self.clip
        if self.n_releases:  # both terms are clipped, each to (1 - alpha) C
            return 4.0 * (1.0 - self.alpha) * self.clip
        moved = self.alpha * self.penalty.sensitivity(self.clip_jacobian)
        return (1.0 - self.alpha) * 2.0 * self.clip + moved

    def clipped_sum(
        self,
        autoencoder: nn.Sequential,
        rows: torch.Tensor,
        directions: np.ndarray | None,
        batch: np.ndarray | None = None,
    ) -> dict[nn.Parameter, torch.Tensor]:
        """Return the summed, clipped gradient of a batch, which is all rows by default.

        Not private by itself. Replacing one record moves it by at most `sensitivity`.
        """
        if self.penalty is not None and batch is not None:  # of a fixed size: no place is vacant
            rows, batch = rows[torch.from_numpy(batch).to(rows.device)], None
        clipped = by_jacobians(self.clip)
        total = pulled_back_sum(autoencoder, rows, clipped, reconstruction_gradient, batch=batch)
        if self.penalty is None or directions is None:
            return total
        encoder = autoencoder[:-1]
        codes = torch.cat([record_outputs(encoder, chunk) for chunk in rows.split(_CODES_AT_ONCE)])
        pulls = self.penalty.vectors(codes, directions)
        pulled = pulled_back_sum(encoder, rows, by_jacobians(self.clip_jacobian, pulls))
        for parameter in total:
            total[parameter] *= 1.0 - self.alpha
            if parameter in pulled:
                total[parameter] += self.alpha * pulled[parameter]
        return total

    def local_sum(
        self,
        autoencoder: nn.Sequential,
        rows: torch.Tensor,
        local: Any,
        batch: np.ndarray | None = None,
    ) -> dict[nn.Parameter, torch.Tensor]:
        r"""Return the summed, clipped gradient of a batch whose penalty is a sum over records.

        Record i contributes :math:`(1 - \alpha) \nabla \ell_i`, clipped to :math:`(1 - \alpha) C`,
        and :math:`\alpha J_i^\top w_i` with the vectors w of ``local``, clipped to the same norm.
        Not private by itself: it depends on other records through what was released of them.
        """
        clipped = by_jacobians(self.clip)
        total = pulled_back_sum(autoencoder, rows, clipped, reconstruction_gradient, batch=batch)
        pulled = pulled_back_sum(autoencoder[:-1], rows, self.local_vectors(local), batch=batch)
        for parameter in total:
            total[parameter] *= 1.0 - self.alpha
            if parameter in pulled:
                total[parameter] += self.alpha * pulled[parameter]
        return total

    def local_vectors(self, local: Any) -> ClippedVectors:
        """Return what is pulled back of the code of each record."""
        compared = cast("PriorDistance | ParityDistance", self.penalty).compared
        clip = (1.0 - self.alpha) / self.alpha * self.clip

        def vectors(codes: torch.Tensor, gram: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
            pulls = local.vectors(compared.values(codes), records)
            return shares_of_vectors(pulls, gram, clip)[:, None] * pulls

        return vectors


def reconstruction_gradient(outputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Gradient of half of each record's squared error with respect to its reconstruction."""
    return outputs - rows


def private_steps(
    loss: AutoencoderLoss,
    rows: torch.Tensor,
    plan: TrainingPlan,
    secret: SecretStream,
    public: np.random.Generator,
    cells: Cells | None = None,
) -> GradientStep:
    """Make the steps of training with noisy sums of clipped gradients."""
    batches = plan.batches(secret, None if cells is None else cells.members)

    def step(autoencoder: Any, number: int) -> None:
        directions = None if loss.penalty is None else loss.penalty.directions(public)
        total = loss.clipped_sum(autoencoder, rows, directions, next(batches))
        facts = {"loss": loss, "directions": directions, "cells": cells}
        release_gradient(autoencoder, total, plan, secret, facts, _step_part)

    return step


def _step_part(
    autoencoder: Any,
    records: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: AutoencoderLoss,
    directions: np.ndarray | None,
    **_: Any,
) -> dict[str, Any]:
    """Return what each record adds to `AutoencoderLoss.clipped_sum`.

    With a penalty, which compares the codes of a batch, among those of an expected batch.
    """
    rows = torch.from_numpy(records[0]).to(torch.float32)
    clipped = by_jacobians(loss.clip)
    own = gradients_of_vectors(autoencoder, rows, clipped, reconstruction_gradient)
    if loss.penalty is None or directions is None:
        return {"rows": own}
    encoder = autoencoder[:-1]
    order, places, sizes = expected_batch(codes, shares)
    penalty = replace(loss.penalty, batch_sizes=sizes)
    pulls = penalty.vectors(record_outputs(encoder, rows[order]), directions)
    clipped = by_jacobians(loss.clip_jacobian, pulls)
    pulled = gradients_of_vectors(encoder, rows, clipped, places=places)
    return {"rows": own.plus(pulled, loss.alpha), "exact": False}


def public_steps(
    loss: AutoencoderLoss,
    rows: torch.Tensor,
    batch_sizes: Sequence[int],
    rng: np.random.Generator,
    members: Sequence[np.ndarray],
) -> GradientStep:
    """Make the steps of ordinary training on public rows, a share of each cell per batch."""
    epochs = [_epochs(cell, size, rng) for cell, size in zip(members, batch_sizes, strict=True)]
    batches = (np.concatenate(parts) for parts in zip(*epochs, strict=True))

    def step(autoencoder: Any, number: int) -> None:
        batch = rows[torch.from_numpy(next(batches)).to(rows.device)]
        codes = autoencoder[:-1](batch)
        error = ((autoencoder[-1](codes) - batch) ** 2).mean()
        if loss.penalty is not None:
            pull = loss.penalty.vectors(codes.detach(), loss.penalty.directions(rng)) / len(batch)
            # Its gradient by the codes is the pull.
            error = (1.0 - loss.alpha) * error + loss.alpha * (codes * pull).sum()
        error.backward()

    return step


def _epochs(cell: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    while True:
        order = rng.permutation(cell)
        yield from (order[k : k + size] for k in range(0, len(cell) - size + 1, size))


def reconstruction_losses(loss: AutoencoderLoss, rows: torch.Tensor, cells: Cells) -> Losses:
    """Return half the squared error, summed over features, and the penalty of codes."""
    chosen, penalty = fixed_subset(len(rows)), loss.penalty
    rows, codes = rows[chosen], cells.codes[chosen]

    def losses(autoencoder: nn.Sequential) -> tuple[float, float]:
        error = record_outputs(autoencoder, rows) - rows
        half = float(error.square().sum(1).mean() / 2.0)
        if penalty is None:
            return half, 0.0
        values = penalty.compared.values(record_outputs(autoencoder[:-1], rows).double())
        points = values.cpu().numpy()
        directions = penalty.directions(np.random.default_rng(0))
        if isinstance(penalty, PriorDistance):
            along = np.sort(directions @ points.T, axis=1)
            quantiles = replace(penalty, batch_sizes=(len(points),)).quantiles
            return half, float(np.square(along - quantiles).mean())
        return half, parity_distance(points, codes, cells, directions)

    return losses


def sketched_steps(
    loss: AutoencoderLoss,
    rows: torch.Tensor,
    plan: TrainingPlan,
    noise: TableNoise,
    release_at: Sequence[int],
    streams: Streams,
    cells: Cells,
) -> GradientStep:
    """Make the steps of training by released distributions of codes."""
    penalty = cast("PriorDistance | ParityDistance", loss.penalty)
    batches, compared = plan.batches(streams.secret), penalty.compared
    directions = penalty.directions(streams.public)
    limits = compared.half_widths(directions)
    tables: OutputTables | None = None
    local: LocalPenalty | None = None

    def step(autoencoder: Any, number: int) -> None:
        nonlocal tables, local
        if number in release_at:
            encoder = deepcopy(autoencoder[:-1]).eval()
            codes = _codes(compared, encoder, rows)
            of = partial(_codes, compared, encoder.cpu())
            parts = (codes, cells.codes, cells.sizes, directions, limits, noise, streams.secret)
            tables = release_tables(*parts, previous=tables, values_of=lambda rows, _: of(rows))
            local = _local(loss, tables, codes, cells)
        total = loss.local_sum(autoencoder, rows, local, next(batches))
        facts = {"loss": loss, "cells": cells, "tables": tables}
        release_gradient(autoencoder, total, plan, streams.secret, facts, _sketched_part)

    return step


def _codes(compared: ComparedOutputs, encoder: nn.Module, rows: Any) -> np.ndarray:
    """Return the codes of rows in their units, shortened."""
    return compared.values(network_outputs(encoder, torch.as_tensor(rows).float())).cpu().numpy()


def _local(
    loss: AutoencoderLoss, tables: OutputTables, codes: np.ndarray, cells: Cells
) -> LocalPenalty:
    """Return the penalty of all records, whose codes were released."""
    if isinstance(loss.penalty, PriorDistance):
        own = tables.tables[0]
        levels = loss.penalty.cdf(own.edges + tables.centres[:, None])
        prior = CDFTable(own.directions, own.half_widths, levels)
        both = OutputTables((own, prior), tables.centres)
        pulls = both.pulls(both.projections(codes), 0, (1,)).T @ own.directions
        mean_square = own.directions.T @ own.directions / len(own.directions)
        stiffness = np.broadcast_to(mean_square, (len(codes), *mean_square.shape)).copy()
        return LocalPenalty(*map(torch.from_numpy, (codes, pulls, stiffness)))
    return LocalPenalty.of_release(tables, codes, cells)


def _sketched_part(
    autoencoder: Any,
    records: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: AutoencoderLoss,
    cells: Cells,
    tables: OutputTables,
) -> dict[str, Any]:
    """Return what each record adds to `AutoencoderLoss.local_sum`."""
    rows = torch.from_numpy(records[0]).float()
    own = gradients_of_vectors(autoencoder, rows, by_jacobians(loss.clip), reconstruction_gradient)
    local = _local(loss, tables, tables.values_of(rows, codes), replace(cells, codes=codes))
    pulled = gradients_of_vectors(autoencoder[:-1], rows, loss.local_vectors(local))
    return {"rows": own.plus(pulled, loss.alpha)}
