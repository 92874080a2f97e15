r"""A penalised training by released tables of the outputs.

The distributions of the outputs of each group are released a few times during training. Each record
then gets a target, halfway to the matching quantile of the other group. Until the next release the
penalty is the sum of squared distances to these targets (`skdpot.nets.local_penalty`). It is
clipped together with the loss, and one record moves only its own term.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import nn

from skdpot._utils.streams import SecretStream
from skdpot.base import COUNT, FitContext
from skdpot.fair.fair_loss import FairLoss, compared_values
from skdpot.fair.mechanism import FairTask
from skdpot.fair.penalty_mechanism import PenaltyMechanism, PenaltyPlan, SideReleases
from skdpot.fair.target_bins import cells_of_a_bin
from skdpot.fair.training_rows import TrainingRows
from skdpot.nets.cells import Cells, warn_of_small_cells
from skdpot.nets.gradient_release import gradients_of_vectors, release_gradient
from skdpot.nets.gradients import pulled_back_sum
from skdpot.nets.local_penalty import TABLE_SHARE, LocalPenalty
from skdpot.nets.output_tables import OutputTables, TableNoise, plan_output_tables, release_tables
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan
from skdpot.release.releases import Records

_N_RELEASES = 20
_N_RELEASES_GIVEN_TARGET = 5  # cells hold fewer records, so each release needs more of the budget


@dataclass(eq=False, repr=False)
class SketchedOutputs(PenaltyMechanism):
    r"""Private gradients of a fair predictor by a sketch of its outputs: the default.

    The distributions of the outputs of each group are released `n_releases` times. In between, the
    penalty is a sum over records and is clipped together with the loss, to :math:`(1 - \alpha) C`.
    Batches are Poisson samples.

    Parameters
    ----------
    alpha : float, default=0.75
        Weight of fairness in [0, 1); 0 is DP-SGD for the loss alone. Groups become alike from about
        0.5; most of the effect lies between 0.7 and 0.95.
    n_steps : int, optional
        Training steps; 200 by default up to ``alpha=0.75``, beyond in inverse proportion to the
        root of ``1 - alpha``.
    learning_rate : "auto" or float, default="auto"
        Initial learning rate of Adam; it falls to zero along a half cosine. "auto" is 0.32 over the
        fourth root of the number of parameters, at most 0.1, and beyond 400 steps it shrinks with
        the square root of their number.
    batch_fraction : float, default=0.2
        Expected share of the records in the batch of a step.
    clip_gradient : float, default=2.0
        C: largest norm of the gradient of a record's loss, from 1e-30 to 1e30.
    tune_threshold : bool, default=True
        Where groups are compared: move the intercept after training, so that as many training
        records are predicted in the second of two classes as belong to it, or set mean and spread
        of predicted targets right. Costs 5 % of the squared mu. A penalty squeezes outputs.
    clip_output : float, optional
        M: largest norm of what is compared. A classifier then compares logits shortened to M
        instead of probabilities; a small M compares decisions near the threshold only. A regressor
        shortens mapped predictions to M, by default the square root of the number of targets.
    n_projections : int, default=50
        Directions along which more than two classes, or several targets, are compared.
    n_releases : int, optional
        Number of times that the distributions are released; together they cost 10 % of the squared
        mu. By default 20. Given the target, where the records of a bin are few: 5, for 20 %.
    """

    _: KW_ONLY
    n_releases: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **PenaltyMechanism._parameter_constraints,
        "n_releases": [COUNT, None],
    }

    def _plan(
        self, context: FitContext, task: FairTask, loss: FairLoss, side: SideReleases, n_steps: int
    ) -> PenaltyPlan:
        cells, tables, given_target = task.cells, None, side.bins is not None
        release_at = self._release_at(n_steps, given_target) if cells.strata else []
        if release_at:
            rng = np.random.default_rng(0)
            n_projections = len(loss.compared.directions(self.n_projections, rng))
            mu, fewest = context.mu_share((1 + given_target) * TABLE_SHARE), min(cells.sizes)
            tables = plan_output_tables(mu, len(release_at), n_projections, fewest)
            # The mean over the blocks of directions has less noise.
            n_blocks = max(1.0, n_projections / loss.compared.n_outputs)
            compared = cells_of_a_bin(cells) if given_target else cells
            warn_of_small_cells(context.caller, compared, tables.sigma / math.sqrt(n_blocks))
        n_samples = sum(cells.sizes)
        training = self._training_plan(
            context,
            task,
            side,
            tables,
            n_samples=n_samples,
            batch_size=max(1, math.floor(self.batch_fraction * n_samples)),
            n_steps=n_steps,
            sampling="poisson",
            sensitivity=2.0 * loss.joint_clip,
        )
        batches = f"about {training.batch_size} records"
        if tables is not None:
            batches += f", {len(release_at)} noisy distributions of the outputs of all records"
        make_steps = partial(
            tabled_steps,
            loss=loss,
            noise=tables,
            release_at=release_at,
            n_projections=self.n_projections,
            public=context.streams.public,
        )
        return PenaltyPlan(training=training, make_steps=make_steps, batches=batches)

    def _release_at(self, n_steps: int, given_target: bool) -> list[int]:
        """Return the steps before which outputs are released: spread, and none at the first.

        Before the first step all outputs are equal.
        """
        default = _N_RELEASES_GIVEN_TARGET if given_target else _N_RELEASES
        wanted = min(self.n_releases or default, n_steps - 1)
        return sorted({1 + (k + 1) * (n_steps - 1) // (wanted + 1) for k in range(wanted)})


def tabled_steps(
    records: TrainingRows,
    *,
    loss: FairLoss,
    cells: Cells,
    plan: TrainingPlan,
    noise: TableNoise | None,
    release_at: Sequence[int],
    n_projections: int,
    secret: SecretStream,
    public: np.random.Generator,
) -> GradientStep:
    """Make the steps of training by released tables."""
    batches = plan.batches(secret)
    directions = loss.compared.directions(n_projections, public)
    limits = loss.compared.half_widths(directions)
    tables: OutputTables | None = None
    local: LocalPenalty | None = None
    # The cells of records are private where they depend on the target.
    private_cells = replace(cells, codes=cells.codes_of(records.targets.cpu().numpy(), cells.codes))

    def step(network: nn.Module, number: int) -> None:
        nonlocal tables, local
        if noise is not None and number in release_at:
            values = compared_values(loss.compared, network, records.rows)
            recorded = deepcopy(network).cpu().eval()
            values_of = partial(compared_values, loss.compared, recorded)
            tables = release_tables(
                values,
                private_cells.codes,
                cells.sizes,
                directions,
                limits,
                noise,
                secret,
                previous=tables,
                values_of=lambda rows, _: values_of(rows),
                seen=lambda rows, codes: (values_of(rows[0]), cells.codes_of(rows[1], codes)),
                known=cells.codes,
            )
            local = LocalPenalty.of_release(tables, values, private_cells)
        vectors = loss.joint_vectors(records, local)
        total = pulled_back_sum(network, records.rows, vectors, batch=next(batches))
        facts = {"loss": loss, "cells": cells, "tables": tables}
        release_gradient(network, total, plan, secret, facts, _contributions)

    return step


def _contributions(
    network: nn.Module,
    private: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: FairLoss,
    cells: Cells,
    tables: OutputTables | None,
) -> dict[str, Any]:
    """Return the contribution of each record to a joint sum, for audits."""
    rows, targets = private
    records, local = TrainingRows(rows, targets), None
    if tables is not None:
        private_cells = replace(cells, codes=cells.codes_of(targets, codes))
        values = tables.values_of(rows, codes)
        local = LocalPenalty.of_release(tables, values, private_cells)
    vectors = loss.joint_vectors(records, local)
    return {"rows": gradients_of_vectors(network, rows, vectors)}
