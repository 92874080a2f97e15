r"""A penalised training by ranks, the method of the paper.

The outputs of a batch are compared with each other. One record moves the ranks of others, and the
sensitivity covers that. A batch has a fixed number of records of each cell.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import nn

from skdpot._utils.streams import SecretStream
from skdpot.base import LENGTH, FitContext
from skdpot.fair.fair_loss import FairLoss
from skdpot.fair.mechanism import FairTask
from skdpot.fair.penalty_mechanism import PenaltyMechanism, PenaltyPlan, SideReleases
from skdpot.fair.sketched_outputs import SketchedOutputs
from skdpot.fair.training_rows import TrainingRows
from skdpot.nets.cells import Cells
from skdpot.nets.gradient_release import expected_batch, gradients_of_vectors, release_gradient
from skdpot.nets.gradients import pulled_back_sum
from skdpot.nets.parity_penalty import ParityPenalty
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan
from skdpot.release.releases import Records


@dataclass(eq=False, repr=False)
class RankedOutputs(PenaltyMechanism):
    r"""Private gradients of a fair predictor by ranks, as in the paper.

    The outputs of a batch are ranked. One record moves the ranks of others, which needs more noise
    than `SketchedOutputs`. Batches have a fixed number of records of each group.

    Parameters
    ----------
    alpha : float, default=0.75
        Weight of fairness in [0, 1), as in `SketchedOutputs`.
    n_steps : int, optional
        Training steps, by default as in `SketchedOutputs`.
    learning_rate : "auto" or float, default="auto"
        As in `SketchedOutputs`.
    batch_fraction : float, default=0.2
        Share of the records of each group in the batch of a step.
    clip_gradient : float, default=2.0
        C: largest norm of the gradient of a record's loss, from 1e-30 to 1e30.
    tune_threshold : bool, default=True
        As in `SketchedOutputs`.
    clip_output : float, optional
        M, as in `SketchedOutputs`.
    clip_jacobian : float, default=0.25
        L: largest spectral norm of the Jacobian of a compared output.
    n_projections : int, default=50
        Directions along which more than two classes, or several targets, are compared.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025.
    """

    _: KW_ONLY
    clip_jacobian: float = 0.25

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **PenaltyMechanism._parameter_constraints,
        "clip_jacobian": [LENGTH],
    }

    def _plan(
        self, context: FitContext, task: FairTask, loss: FairLoss, side: SideReleases, n_steps: int
    ) -> PenaltyPlan:
        cells = task.cells
        if not cells.strata:  # nothing is compared, so nothing is ranked
            sketched = SketchedOutputs(n_steps=n_steps, batch_fraction=self.batch_fraction)
            return sketched._plan(context, task, loss, side, n_steps)
        loss = replace(loss, clip_jacobian=float(self.clip_jacobian))
        penalty = ParityPenalty(cells.strata, cells.batch_sizes(self.batch_fraction))
        # The sensitivity depends on the widths of the directions, so they are drawn now.
        draw = partial(loss.compared.directions, self.n_projections, context.streams.public)
        directions = tuple(draw() for _ in range(n_steps))
        width = max(float(loss.compared.widths(of_step).mean()) for of_step in directions)
        sizes = penalty.batch_sizes
        return PenaltyPlan(
            training=self._training_plan(
                context,
                task,
                side,
                n_samples=cells.sizes,
                batch_size=sizes,
                n_steps=n_steps,
                sampling="without_replacement",
                sensitivity=loss.ranked_sensitivity(sum(sizes), penalty, width),
            ),
            make_steps=partial(ranked_steps, loss=loss, penalty=penalty, directions=directions),
            batches=f"{sizes} records, compared by rank",
        )


def ranked_steps(
    records: TrainingRows,
    *,
    loss: FairLoss,
    cells: Cells,
    penalty: ParityPenalty,
    directions: Sequence[np.ndarray],
    plan: TrainingPlan,
    secret: SecretStream,
) -> GradientStep:
    """Make the steps of training by ranks. Each releases one noisy sum, on a lattice."""
    batches = plan.batches(secret, cells.members)

    def step(network: nn.Module, number: int) -> None:
        batch, along = records.take(next(batches)), directions[number]
        vectors = loss.ranked_vectors(network, batch, penalty, along)
        total = pulled_back_sum(network, batch.rows, vectors)
        facts = {"loss": loss, "cells": cells, "penalty": penalty, "directions": along}
        release_gradient(network, total, plan, secret, facts, _contributions)

    return step


def _contributions(
    network: nn.Module,
    private: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: FairLoss,
    penalty: ParityPenalty,
    directions: np.ndarray,
    **_: Any,
) -> dict[str, Any]:
    """Return the contribution of each record to a ranked sum, in an expected batch, for audits."""
    rows, targets = private
    records = TrainingRows(rows, targets)
    order, places, sizes = expected_batch(codes, shares)
    of_batch = replace(penalty, batch_sizes=sizes)
    vectors = loss.ranked_vectors(network, records.take(order), of_batch, directions)
    gradients = gradients_of_vectors(network, rows, vectors, places=places)
    return {"rows": gradients, "exact": False}
