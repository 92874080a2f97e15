"""Domain adaptation by transport: one frozen release of both domains, then training on moved rows.

The distributions of the rows of both domains along slices are released once. A map from the source
to the target is post-processing (`skdpot.ot.flow`). It is a public function, so that moving a
private row by it changes nothing but this row, and training on the moved rows is training on as
many private rows.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from skdpot._utils.validation import Interval, SecretStream, StrOptions
from skdpot.base import COUNT, LENGTH, FitContext, Mechanism, MechanismResult
from skdpot.fair.penalties import FairLoss, FairTask, Records
from skdpot.nets.cells import Cells
from skdpot.nets.gradient_release import gradients_of_vectors, release_gradient
from skdpot.nets.gradients import pulled_back_sum
from skdpot.nets.output_tables import plan_output_tables, release_tables
from skdpot.nets.training import (
    GradientStep,
    noisy_learning_rate,
    train_to_the_end,
    with_trained_parameters,
)
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.ot.flow import SlicedMap, sliced_map
from skdpot.ot.slices import orthogonal_directions
from skdpot.release import gate as recording

SOURCE, TARGET = 0, 1  # codes of the domains

_DEFAULT_STEPS = 200
_LARGEST_RATE = 0.1
_RANGE = 0.5  # of a projection of the box [-1, 1]; what lies beyond counts in the outermost bins


@dataclass(eq=False, repr=False)
class TransportedRows(Mechanism):
    r"""Train on source rows that are transported to the target: the default of `DPDomainAdapter`.

    The distributions of both domains along slices are released once. Sliced optimal transport from
    one to the other is post-processing. The network is then trained by DP-SGD on the rows of the
    source, each moved by this map. It sees one release for both domains where gradients of a
    Wasserstein distance need one per step, and it aligns whole rows rather than outputs.

    Parameters
    ----------
    n_steps : int, optional
        Training steps; 200 by default.
    learning_rate : "auto" or float, default="auto"
        As in `SketchedOutputs`.
    batch_fraction : float, default=0.2
        Expected share of the source rows in the batch of a step.
    clip_gradient : float, default=2.0
        C: largest norm of the gradient of a record's loss, from 1e-30 to 1e30.
    n_projections : int, default=256
        Directions along which rows are measured, in whole orthogonal blocks.
    share : float, default=0.3
        Share of the squared mu for the release of both domains, in (0, 1).

    Privacy
    -------
    One Gaussian event for both domains, then sums of clipped gradients over Poisson batches of
    source rows, together one composed event under replace-one within a domain. A row of the target
    is read by the first event alone.

    References
    ----------
    N. Courty, R. Flamary, D. Tuia, A. Rakotomamonjy, "Optimal transport for domain adaptation",
    TPAMI 2017 (transport of the source, without privacy).
    """

    n_steps: int | None = None
    _: KW_ONLY
    learning_rate: float | str = "auto"
    batch_fraction: float = 0.2
    clip_gradient: float = 2.0
    n_projections: int = 256
    share: float = 0.3

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_steps": [COUNT, None],
        "learning_rate": [Interval(Real, 0, 10, closed="right"), StrOptions({"auto"})],
        "batch_fraction": [Interval(Real, 0, 1, closed="right")],
        "clip_gradient": [LENGTH],
        "n_projections": [COUNT],
        "share": [Interval(Real, 0, 1, closed="neither")],
    }

    def release(
        self,
        context: FitContext,
        task: FairTask,
        rows: np.ndarray,
        targets: np.ndarray,
        public: Sequence[str],
        callbacks: Sequence[Any] | None,
    ) -> MechanismResult:
        """Plan, charge, and only then read the rows."""
        network, cells, secret = task.network, task.cells, context.streams.secret
        n_source, d = cells.sizes[SOURCE], rows.shape[1]
        n_projections = d * max(1, round(self.n_projections / d))
        noise = None
        if cells.strata:
            mu = context.mu_share(self.share)
            label = "Rows of both domains along slices"
            noise = plan_output_tables(mu, 1, n_projections, min(cells.sizes), label)
        private = math.isfinite(context.target.epsilon)
        loss = FairLoss(
            gradient=task.gradient, compared=task.compared, alpha=0.0, clip=self.clip_gradient
        )
        plan = plan_training(
            context.target,
            n_parameters=trained_numbers(network),
            n_samples=n_source,
            batch_size=max(1, math.floor(self.batch_fraction * n_source)),
            n_steps=self.n_steps or _DEFAULT_STEPS,
            sampling="poisson",
            sensitivity=2.0 * loss.joint_clip,
            others=(noise.event,) if noise is not None and private else (),
        )
        facts = context.assumptions(declared_bounds=False)
        spent = context.charge_event(
            plan.event,
            len(rows),  # of both domains
            (*facts, *public, "the network's initial weights", *context.arithmetic),
            f"noisy distributions of both domains along {n_projections} slices, and {plan.n_steps} "
            f"noisy sums of clipped gradients over batches of about {plan.batch_size} moved rows",
            scales=(plan.sigma, plan.sensitivity),
        )
        records, moved = Records.of(network, rows, targets, context.device), None
        if noise is not None:
            directions = orthogonal_directions(n_projections, d, context.streams.public)
            limits = _RANGE * np.abs(directions).sum(axis=1)
            given = (rows.astype(np.float64), cells.codes, cells.sizes, directions, limits)
            tables = release_tables(*given, noise, secret).tables
            moved = sliced_map(tables[SOURCE], tables[TARGET], context.streams.solver)
        trained = deepcopy(network).to(records.rows.dtype)
        train_to_the_end(
            trained,
            transported_steps(records, moved, loss=loss, cells=cells, plan=plan, secret=secret),
            plan.n_steps,
            learning_rate=noisy_learning_rate(
                self.learning_rate, network, plan.n_steps, _LARGEST_RATE
            ),
            rng=secret.generator(),
            callbacks=callbacks,
            **context.training,
        )
        network = with_trained_parameters(network, trained)
        return MechanismResult(
            network, None, spent, attributes={"n_steps_": plan.n_steps, "map_": moved}
        )


def transported_steps(
    records: Records,
    moved: SlicedMap | None,
    *,
    loss: FairLoss,
    cells: Cells,
    plan: TrainingPlan,
    secret: SecretStream,
) -> GradientStep:
    """Make steps of DP-SGD on the rows of the source, moved by a public map."""
    source = records.take(np.flatnonzero(cells.codes == SOURCE))
    source = Records(_moved(source.rows, moved), source.targets)
    batches, linear = plan.batches(secret), partial(_moved_part, moved=moved)
    vectors = loss.joint_vectors(source, None)

    def step(network: nn.Module, number: int) -> None:
        total = pulled_back_sum(network, source.rows, vectors, batch=next(batches))
        release_gradient(network, total, plan, secret, {"loss": loss, "cells": cells}, linear)

    return step


def _moved(rows: torch.Tensor, moved: SlicedMap | None) -> torch.Tensor:
    return rows if moved is None else torch.from_numpy(moved(rows.cpu().double().numpy())).to(rows)


def _moved_part(
    network: nn.Module,
    given: recording.Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: FairLoss,
    moved: SlicedMap | None,
    **_: Any,
) -> dict[str, Any]:
    """Return what each record adds to a sum: rows of the target, which have no label, nothing."""
    rows, targets = given
    source = torch.from_numpy(codes == SOURCE)
    placed = torch.where(source[:, None], _moved(rows, moved), rows)
    vectors = loss.joint_vectors(Records(placed, targets), None)
    return {"rows": gradients_of_vectors(network, placed, vectors)}
