r"""Steps that train a predictor of which the outputs of groups are alike, with privacy.

What is minimised is :math:`(1 - \alpha)` times the mean loss plus :math:`\alpha` times the squared
(sliced) Wasserstein distance between the groups' outputs (`skdpot.nets.wasserstein_gradient`). Two
private gradients of it are here.

*Ranks*, the paper's: the outputs of a batch are compared with each other. One record moves the
terms of others by a rank, which the sensitivity pays for; batches have a fixed size a cell.

*Tables*: a few times during training the distributions of all outputs are released
(`skdpot.release.output_tables`). They give each record a point halfway to where the other group has
its like. Until the next release the penalty is a sum of squared distances to these points, so that
it is clipped together with the loss, and one record moves only its own term.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from skdpot._utils.validation import SecretStream
from skdpot.nets.training import GradientStep
from skdpot.nets.wasserstein_gradient import Cells, ComparedOutputs, ParityPenalty
from skdpot.release import release as recording
from skdpot.release.gradients import (
    ClippedVectors,
    TrainingPlan,
    expected_batch,
    gradients_of_vectors,
    pulled_back_sum,
    release_gradient,
    shares_of_jacobians,
    shares_of_vectors,
)
from skdpot.release.output_tables import OutputTables, TableNoise, release_tables
from skdpot.release.per_sample import record_outputs

_STIFFNESS = 0.5 * 4.0


@dataclass(frozen=True, eq=False)
class LocalPenalty:
    r"""A penalty that is a sum over records, in the place of the distance between cells.

    Let :math:`u_i^0` be the values at a release, :math:`T_b` the optimal map from the cell of i to
    cell b along a direction, and :math:`t_i = (u_i^0 + T_b(u_i^0)) / 2`. The points t of two cells
    have the same distribution B, so that, for any later values u,

    .. math:: W_2^2(P_a, P_b) \le 2 W_2^2(P_a, B) + 2 W_2^2(P_b, B)
              \le \frac{2}{n_a} \sum_{i \in a} (u_i - t_i)^2
              + \frac{2}{n_b} \sum_{i \in b} (u_i - t_i)^2,

    with equality, and the same gradient, at the release: less of the right side is less than the
    distance then was. Its gradient grows by 4 for every unit that a value moves. Without that,
    both groups would be pulled to where the other one was, and past each other, until the next
    release. But it also resists what all groups do together, for the loss. Half of it is kept: on
    Adult and COMPAS 0.2, 0.5 and 1 could not be told apart, on a regression of two targets by a
    network 0.2 was too soft.
    """

    values: torch.Tensor
    pulls: torch.Tensor
    stiffness: torch.Tensor

    @classmethod
    def of_release(cls, tables: OutputTables, values: np.ndarray, cells: Cells) -> "LocalPenalty":
        """Return the penalty of all records, whose values were released."""
        n, directions = sum(cells.sizes), tables.directions
        weight = ParityPenalty(cells.strata, cells.sizes).pair_weight
        pulls, scale = np.zeros_like(values), np.zeros(len(values))
        for cell, size in enumerate(cells.sizes):
            own, others = cells.codes == cell, cells.others(cell)
            pulls[own] = weight * (n / size) * tables.pull(values[own], cell, others)
            scale[own] = _STIFFNESS * weight * (n / size) * len(others)
        mean_square = directions.T @ directions / len(directions)
        return cls(
            torch.from_numpy(values),
            torch.from_numpy(pulls),
            torch.from_numpy(scale[:, None, None] * mean_square),
        )

    def take(self, batch: np.ndarray) -> "LocalPenalty":
        """Return the penalty of a batch."""
        index = torch.from_numpy(batch)
        return LocalPenalty(self.values[index], self.pulls[index], self.stiffness[index])

    def vectors(self, values: torch.Tensor, records: slice) -> torch.Tensor:
        """Return n times the gradient of the penalty by the values of some records."""
        moved = values - self.values[records].to(values)
        stiffness = self.stiffness[records].to(values)
        return self.pulls[records].to(values) + torch.einsum("nkl,nl->nk", stiffness, moved)


OutputLoss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_ROWS_AT_ONCE = 8192
_LARGEST = 1e100  # what outputs that are not finite count as


@dataclass(frozen=True, eq=False)
class Records:
    """Private rows and targets, on the device of training."""

    rows: torch.Tensor
    targets: torch.Tensor

    def take(self, batch: np.ndarray) -> "Records":
        """Return the records of a batch."""
        index = torch.from_numpy(batch).to(self.rows.device)
        return Records(self.rows[index], self.targets[index])


@dataclass(frozen=True, kw_only=True)
class FairLoss:
    """What is minimised, and how the gradients of a record are clipped."""

    gradient: OutputLoss
    compared: ComparedOutputs
    alpha: float
    clip: float
    clip_jacobian: float = 1.0

    def ranked_vectors(
        self,
        network: nn.Module,
        batch: Records,
        penalty: ParityPenalty | None,
        directions: np.ndarray,
    ) -> ClippedVectors:
        """Return what is pulled back of each record of a batch: the gradient, times its size.

        Privacy
        -------
        Not private by itself. Replacing one record by another of its cell moves the sum by at most
        `ranked_sensitivity`.
        """
        n, alpha = len(batch.rows), self.alpha if penalty else 0.0
        pulls: torch.Tensor | None = None
        if penalty is not None:
            values = self.compared.values(network_outputs(network, batch.rows)).cpu().numpy()
            of_cells = np.split(values, np.cumsum(penalty.batch_sizes)[:-1])
            pulled = np.concatenate(penalty.vectors(of_cells, directions))
            pulls = torch.from_numpy(pulled).to(batch.rows.device)

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
        r"""Bound how far one record moves a ranked sum, under replace-one within its cell.

        :math:`(1 - \alpha)\, 2 C` by the loss, whose clipped gradients are a sum, and
        :math:`\alpha n'` times what the penalty moves by (`ParityPenalty.sensitivity`).
        """
        if penalty is None:
            return 2.0 * self.clip
        moved = penalty.sensitivity(width, self.clip_jacobian)
        return (1.0 - self.alpha) * 2.0 * self.clip + self.alpha * batch_size * moved

    def joint_vectors(
        self, batch: Records, local: LocalPenalty | None, cells: Cells
    ) -> ClippedVectors:
        r"""Return what is pulled back of each record: gradients of loss and penalty together.

        Record i contributes :math:`(1 - \alpha) \nabla \ell_i + \alpha J_i^\top w_i`, with the
        vector w of `LocalPenalty.vectors`, shortened to the norm `joint_clip`.

        Privacy
        -------
        Not private by itself. A record contributes a vector of norm at most `joint_clip`, which
        does not depend on the other records but through the release.
        """
        alpha = self._alpha(cells)

        def vectors(outputs: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
            total = (1.0 - alpha) * self.gradient(outputs, batch.targets[records])
            if local is not None:
                pull = local.vectors(self.compared.values(_bounded(outputs)), records)
                total = total + alpha * self.compared.pull_back(pull, outputs)
            total = _finite(total)
            return _scaled(total, shares_of_vectors(total, gram, self.joint_clip(cells)))

        return vectors

    def joint_clip(self, cells: Cells) -> float:
        """Return the largest norm of what a record contributes to a joint sum."""
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


def ranked_steps(
    loss: FairLoss,
    records: Records,
    cells: Cells,
    penalty: ParityPenalty | None,
    directions: Sequence[np.ndarray],
    plan: TrainingPlan,
    secret: SecretStream,
) -> GradientStep:
    """Make the steps of training by ranks.

    Privacy
    -------
    Each step releases one noisy sum, on a lattice.
    """
    batches = plan.batches(secret, cells.members)

    def step(network: nn.Module, number: int) -> None:
        batch, along = records.take(next(batches)), directions[number]
        vectors = loss.ranked_vectors(network, batch, penalty, along)
        total = pulled_back_sum(network, batch.rows, vectors)
        facts = {"loss": loss, "cells": cells, "penalty": penalty, "directions": along}
        release_gradient(network, total, plan, secret, facts, _ranked_part)

    return step


def tabled_steps(
    loss: FairLoss,
    records: Records,
    cells: Cells,
    plan: TrainingPlan,
    noise: TableNoise | None,
    release_at: Sequence[int],
    n_projections: int,
    secret: SecretStream,
    public: np.random.Generator,
) -> GradientStep:
    """Make the steps of training by released tables.

    Privacy
    -------
    Each step releases one noisy sum, and each release a noisy table of all cells, all of them on
    lattices.
    """
    batches = plan.batches(secret)
    directions = loss.compared.directions(n_projections, public)
    limits = loss.compared.half_widths(directions)
    tables: OutputTables | None = None
    local: LocalPenalty | None = None

    def step(network: nn.Module, number: int) -> None:
        nonlocal tables, local
        if noise is not None and number in release_at:
            values = _values(loss.compared, network, records.rows)
            values_of = partial(_values, loss.compared, deepcopy(network).cpu().eval())
            parts = (values, cells.codes, cells.sizes, directions, limits, noise, secret)
            tables = release_tables(*parts, previous=tables, values_of=values_of)
            local = LocalPenalty.of_release(tables, values, cells)
        batch = next(batches)
        of_batch = None if local is None else local.take(batch)
        chosen = records.take(batch)
        total = pulled_back_sum(network, chosen.rows, loss.joint_vectors(chosen, of_batch, cells))
        facts = {"loss": loss, "cells": cells, "tables": tables}
        release_gradient(network, total, plan, secret, facts, _joint_part)

    return step


def _values(compared: ComparedOutputs, network: nn.Module, rows: torch.Tensor) -> np.ndarray:
    """Return what is compared of the outputs of rows."""
    return compared.values(network_outputs(network, rows)).cpu().numpy()


def _ranked_part(
    network: nn.Module,
    given: recording.Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: FairLoss,
    penalty: ParityPenalty | None,
    directions: np.ndarray,
    **_: Any,
) -> dict[str, Any]:
    """Return what each record adds to a ranked sum, in an expected batch."""
    rows, targets = given
    order, places, sizes = expected_batch(codes, shares)
    batch = Records(rows, targets).take(order)
    of_batch = None if penalty is None else replace(penalty, batch_sizes=sizes)
    vectors = loss.ranked_vectors(network, batch, of_batch, directions)
    own = gradients_of_vectors(network, rows, vectors, places=places)
    return {"rows": own, "exact": False}


def _joint_part(
    network: nn.Module,
    given: recording.Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: FairLoss,
    cells: Cells,
    tables: OutputTables | None,
) -> dict[str, Any]:
    """Return what each record adds to a joint sum.

    Its own penalty follows from its output under the network that the tables were released of.
    """
    rows, targets = given
    local = None
    if tables is not None:
        values = tables.values_of(rows)
        local = LocalPenalty.of_release(tables, values, replace(cells, codes=codes))
    vectors = loss.joint_vectors(Records(rows, targets), local, cells)
    return {"rows": gradients_of_vectors(network, rows, vectors)}
