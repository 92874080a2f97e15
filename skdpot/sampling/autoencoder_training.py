"""The loss of an autoencoder and the steps that minimise it, with and without privacy.

`private_steps` compare the codes of a batch by ranks, if there is a penalty. `sketched_steps`
release the distributions of all codes from time to time; the penalty is then a sum over records.
`public_steps` are ordinary training on public rows.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from skdpot._utils.streams import SecretStream, Streams
from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ComparedOutputs
from skdpot.nets.gradient_release import expected_batch, gradients_of_vectors, release_gradient
from skdpot.nets.gradients import ClippedVectors, by_jacobians, pulled_back_sum, shares_of_vectors
from skdpot.nets.local_penalty import LocalPenalty, network_outputs
from skdpot.nets.loss_curve import Losses, fixed_subset
from skdpot.nets.output_tables import OutputTables, TableNoise, release_tables
from skdpot.nets.per_sample import record_outputs
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan
from skdpot.release.releases import Records
from skdpot.sampling.code_distances import CodeDistance

_CODES_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class AutoencoderLoss:
    """The objective, ``(1 - alpha) * reconstruction + alpha * penalty``, and its clipping.

    With privacy the reconstruction error is half of the squared error, summed over features. Its
    gradients are long compared with the default `clip`, so nearly all are shortened to that norm,
    whatever the unit and the number of features. Without privacy it is the mean squared error.
    """

    clip: float
    penalty: CodeDistance | None = None
    alpha: float = 0.0
    clip_jacobian: float = 1.0
    n_releases: int = 0  # of the distributions of codes; 0 for ranks

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
        """Return the summed, clipped gradient of a batch, by default of all rows.

        Not private by itself. Replacing one record moves it by at most `sensitivity`.
        """
        if self.penalty is None or directions is None:
            return self._mixed_sum(autoencoder, rows, None, batch)
        if batch is not None:  # of a fixed size: no place is vacant
            rows = rows[torch.from_numpy(batch).to(rows.device)]
        chunks = rows.split(_CODES_AT_ONCE)
        codes = torch.cat([record_outputs(autoencoder[:-1], chunk) for chunk in chunks])
        pulls = self.penalty.vectors(codes, directions)
        return self._mixed_sum(autoencoder, rows, by_jacobians(self.clip_jacobian, pulls), None)

    def local_sum(
        self,
        autoencoder: nn.Sequential,
        rows: torch.Tensor,
        local: LocalPenalty,
        batch: np.ndarray | None = None,
    ) -> dict[nn.Parameter, torch.Tensor]:
        r"""Return the summed, clipped gradient of a batch whose penalty is a sum over records.

        Record i contributes :math:`(1 - \alpha) \nabla \ell_i`, clipped to :math:`(1 - \alpha) C`,
        and :math:`\alpha J_i^\top w_i` with the vectors w of `local`, clipped to the same norm. Not
        private by itself: it depends on the other records through the release of their codes alone.
        """
        return self._mixed_sum(autoencoder, rows, self.local_vectors(local), batch)

    def local_vectors(self, local: LocalPenalty) -> ClippedVectors:
        """Return the vectors that are pulled back from the code of each record."""
        compared = cast("CodeDistance", self.penalty).compared
        clip = (1.0 - self.alpha) / self.alpha * self.clip

        def vectors(codes: torch.Tensor, gram: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
            pulls = local.vectors(compared.values(codes), records)
            return shares_of_vectors(pulls, gram, clip)[:, None] * pulls

        return vectors

    def _mixed_sum(
        self,
        autoencoder: nn.Sequential,
        rows: torch.Tensor,
        code_vectors: ClippedVectors | None,
        batch: np.ndarray | None,
    ) -> dict[nn.Parameter, torch.Tensor]:
        """Add the clipped gradients of reconstruction and of the penalty, with their weights."""
        clipped = by_jacobians(self.clip)
        total = pulled_back_sum(autoencoder, rows, clipped, reconstruction_gradient, batch=batch)
        if code_vectors is None:
            return total
        pulled = pulled_back_sum(autoencoder[:-1], rows, code_vectors, batch=batch)
        for parameter in total:
            total[parameter] *= 1.0 - self.alpha
            if parameter in pulled:
                total[parameter] += self.alpha * pulled[parameter]
        return total


def reconstruction_gradient(outputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the gradient of half of each record's squared error by its reconstruction."""
    return outputs - rows


def private_steps(
    loss: AutoencoderLoss,
    rows: torch.Tensor,
    plan: TrainingPlan,
    secret: SecretStream,
    public: np.random.Generator,
    cells: Cells | None = None,
) -> GradientStep:
    """Make the steps of training by noisy sums of clipped gradients."""
    batches = plan.batches(secret, None if cells is None else cells.members)

    def step(autoencoder: Any, number: int) -> None:
        directions = None if loss.penalty is None else loss.penalty.directions(public)
        total = loss.clipped_sum(autoencoder, rows, directions, next(batches))
        facts = {"loss": loss, "directions": directions, "cells": cells}
        release_gradient(autoencoder, total, plan, secret, facts, _ranked_contributions)

    return step


def _ranked_contributions(
    autoencoder: Any,
    records: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: AutoencoderLoss,
    directions: np.ndarray | None,
    **_: Any,
) -> dict[str, Any]:
    """Return the contribution of each record to `AutoencoderLoss.clipped_sum`.

    A penalty compares the codes of a batch; here that is an expected batch.
    """
    rows = torch.from_numpy(records[0]).to(torch.float32)
    clipped = by_jacobians(loss.clip)
    contributions = gradients_of_vectors(autoencoder, rows, clipped, reconstruction_gradient)
    if loss.penalty is None or directions is None:
        return {"rows": contributions}
    encoder = autoencoder[:-1]
    order, places, sizes = expected_batch(codes, shares)
    penalty = replace(loss.penalty, batch_sizes=sizes)
    pulls = penalty.vectors(record_outputs(encoder, rows[order]), directions)
    clipped = by_jacobians(loss.clip_jacobian, pulls)
    pulled = gradients_of_vectors(encoder, rows, clipped, places=places)
    return {"rows": contributions.plus(pulled, loss.alpha), "exact": False}


def sketched_steps(
    loss: AutoencoderLoss,
    rows: torch.Tensor,
    plan: TrainingPlan,
    noise: TableNoise,
    release_at: Sequence[int],
    streams: Streams,
    cells: Cells,
) -> GradientStep:
    """Make the steps of training by released distributions of codes, the first before step 0."""
    penalty = cast("CodeDistance", loss.penalty)
    batches, compared = plan.batches(streams.secret), penalty.compared
    directions = penalty.directions(streams.public)
    tables: Any = None
    local: Any = None

    def step(autoencoder: Any, number: int) -> None:
        nonlocal tables, local
        if number in release_at:
            encoder = deepcopy(autoencoder[:-1]).eval()
            codes = _shortened_codes(compared, encoder, rows)
            codes_of = partial(_shortened_codes, compared, encoder.cpu())
            tables = release_tables(
                codes,
                cells.codes,
                cells.sizes,
                directions=directions,
                limits=compared.half_widths(directions),
                noise=noise,
                stream=streams.secret,
                previous=tables,
                values_of=lambda rows, _: codes_of(rows),
            )
            local = penalty.local_penalty(tables, codes, cells)
        total = loss.local_sum(autoencoder, rows, local, next(batches))
        facts = {"loss": loss, "cells": cells, "tables": tables}
        release_gradient(autoencoder, total, plan, streams.secret, facts, _sketched_contributions)

    return step


def _shortened_codes(compared: ComparedOutputs, encoder: nn.Module, rows: Any) -> np.ndarray:
    """Return the codes of rows in the units of the network, shortened."""
    return compared.values(network_outputs(encoder, torch.as_tensor(rows).float())).cpu().numpy()


def _sketched_contributions(
    autoencoder: Any,
    records: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: AutoencoderLoss,
    cells: Cells,
    tables: OutputTables,
) -> dict[str, Any]:
    """Return the contribution of each record to `AutoencoderLoss.local_sum`."""
    rows = torch.from_numpy(records[0]).float()
    clipped, penalty = by_jacobians(loss.clip), cast("CodeDistance", loss.penalty)
    contributions = gradients_of_vectors(autoencoder, rows, clipped, reconstruction_gradient)
    cells = replace(cells, codes=codes)
    local = penalty.local_penalty(tables, tables.values_of(rows, codes), cells)
    pulled = gradients_of_vectors(autoencoder[:-1], rows, loss.local_vectors(local))
    return {"rows": contributions.plus(pulled, loss.alpha)}


def public_steps(
    loss: AutoencoderLoss,
    rows: torch.Tensor,
    batch_sizes: Sequence[int],
    rng: np.random.Generator,
    members: Sequence[np.ndarray],
) -> GradientStep:
    """Make the steps of ordinary training on public rows; a batch takes a share of each cell."""
    epochs = [_epochs(cell, size, rng) for cell, size in zip(members, batch_sizes, strict=True)]
    batches = (np.concatenate(parts) for parts in zip(*epochs, strict=True))

    def step(autoencoder: Any, number: int) -> None:
        batch = rows[torch.from_numpy(next(batches)).to(rows.device)]
        codes = autoencoder[:-1](batch)
        error = ((autoencoder[-1](codes) - batch) ** 2).mean()
        if loss.penalty is not None:
            pull = loss.penalty.vectors(codes.detach(), loss.penalty.directions(rng)) / len(batch)
            # The gradient of this product by the codes is the pull.
            error = (1.0 - loss.alpha) * error + loss.alpha * (codes * pull).sum()
        error.backward()

    return step


def _epochs(cell: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield batches of a cell for ever, in a new order in each epoch."""
    while True:
        order = rng.permutation(cell)
        yield from (order[k : k + size] for k in range(0, len(cell) - size + 1, size))


def reconstruction_losses(loss: AutoencoderLoss, rows: torch.Tensor, cells: Cells) -> Losses:
    """Return the function to half the squared error, summed over features, and the penalty."""
    chosen, penalty = fixed_subset(len(rows)), loss.penalty
    rows, cells = rows[chosen], replace(cells, codes=cells.codes[chosen])

    def losses(autoencoder: nn.Sequential) -> tuple[float, float]:
        error = record_outputs(autoencoder, rows) - rows
        half = float(error.square().sum(1).mean() / 2.0)
        if penalty is None:
            return half, 0.0
        codes = penalty.compared.values(record_outputs(autoencoder[:-1], rows).double())
        directions = penalty.directions(np.random.default_rng(0))
        return half, penalty.squared_distance(codes.cpu().numpy(), cells, directions)

    return losses
