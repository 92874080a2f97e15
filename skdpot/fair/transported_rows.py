"""Domain adaptation by transport: one release of both domains, then training on moved rows.

The distributions of the rows of both domains along slices are released once. A map from the source
to the target is post-processing (`skdpot.ot.flow`). The map is public and moves each row by itself,
so training on moved rows has the privacy of training on the rows.
"""

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from skdpot._utils.parameters import Interval, StrOptions
from skdpot._utils.streams import SecretStream
from skdpot.base import COUNT, LENGTH, FitContext, MechanismResult
from skdpot.fair.decision_errors import ADVICE, probability_errors
from skdpot.fair.fair_loss import FairLoss
from skdpot.fair.mechanism import FairMechanism, FairTask
from skdpot.fair.score_losses import LOSSES
from skdpot.fair.score_noise import spread_after_adam
from skdpot.fair.training_rows import TrainingRows, train_on
from skdpot.fair.transport import group_cdf_errors
from skdpot.nets.cells import Cells
from skdpot.nets.gradient_release import gradients_of_vectors, release_gradient
from skdpot.nets.gradients import pulled_back_sum
from skdpot.nets.output_tables import (
    OutputTables,
    TableNoise,
    plan_output_tables,
    release_tables,
)
from skdpot.nets.training import GradientStep, noisy_learning_rate
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.sliced_map import SlicedMap, sliced_map
from skdpot.privacy.reliability import OutputError, Reliability
from skdpot.release.releases import Records

SOURCE, TARGET = 0, 1  # codes of the domains

_DEFAULT_STEPS = 200
_LARGEST_RATE = 0.1  # of Adam
_LEVELS = (np.arange(64) + 0.5) / 64  # of quantiles, for the spread of rows
_LARGEST_ERROR = 2.0  # of a quantile, in standard deviations
_GOOD = 0.1  # shift of a row along a direction that is good enough, where features span 2
_RANGE = 0.5  # share of the projection of the box [-1, 1]; other rows count in the outermost bins


@dataclass(eq=False, repr=False)
class TransportedRows(FairMechanism):
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
        self, context: FitContext, task: FairTask, rows: np.ndarray, targets: np.ndarray
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
        assumptions = context.assumptions(declared_bounds=False)
        spent = context.charge_event(
            plan.event,
            len(rows),  # of both domains
            (*assumptions, *task.public, "the network's initial weights", *context.arithmetic),
            f"noisy distributions of both domains along {n_projections} slices, and {plan.n_steps} "
            f"noisy sums of clipped gradients over batches of about {plan.batch_size} moved rows",
            scales=(plan.sigma, plan.sensitivity),
        )
        records = TrainingRows.of(network, rows, targets, context.device)
        released, to_target = None, None
        if noise is not None:
            directions = orthogonal_directions(n_projections, d, context.streams.public)
            released = release_tables(
                rows.astype(np.float64),
                cells.codes,
                cells.sizes,
                directions,
                _RANGE * np.abs(directions).sum(axis=1),
                noise,
                secret,
            )
            source, target = released.tables[SOURCE], released.tables[TARGET]
            to_target = sliced_map(source, target, context.streams.solver)
        rate = noisy_learning_rate(self.learning_rate, network, plan.n_steps, _LARGEST_RATE)
        network = train_on(
            records,
            network,
            partial(
                transported_steps,
                to_target=to_target,
                loss=loss,
                cells=cells,
                plan=plan,
                secret=secret,
            ),
            plan.n_steps,
            learning_rate=rate,
            context=context,
            callbacks=task.callbacks,
        )
        attributes = {"n_steps_": plan.n_steps, "map_": to_target}
        spread = spread_after_adam(network, d, LOSSES["softmax"], plan, rate)
        stated = probability_errors(spread, shrunk=False)
        if released is not None and noise is not None:
            stated.insert(0, _map_error(released, cells, noise))
        return MechanismResult(
            network,
            None,
            spent,
            attributes=attributes,
            reliability=Reliability(tuple(stated), ADVICE),
        )


def _map_error(released: OutputTables, cells: Cells, noise: TableNoise) -> OutputError:
    """Return the error of the map from source to target, as a shift of a row along a direction.

    Each block of directions measures the map by itself, and the map is about their mean.
    """
    source, target = released.tables[SOURCE], released.tables[TARGET]
    quantiles = source.quantiles(_LEVELS)
    spread = float(np.sqrt(quantiles.var(axis=1).mean()))
    of_slice = float(np.linalg.norm(group_cdf_errors(noise, cells.sizes))) * math.sqrt(2 * math.pi)
    n_blocks = len(released.directions) / released.directions.shape[1]
    error = min(of_slice, _LARGEST_ERROR) * spread
    distance = float(source.squared_distances(target).mean())
    return OutputError(
        output="map to the target",
        standard_error=error / math.sqrt(n_blocks),
        trivial="an unmoved row",
        trivial_error=max(distance - error**2, 0.0) ** 0.5,
        estimate=distance**0.5,
        margin=_GOOD,
    )


def transported_steps(
    records: TrainingRows,
    *,
    to_target: SlicedMap | None,
    loss: FairLoss,
    cells: Cells,
    plan: TrainingPlan,
    secret: SecretStream,
) -> GradientStep:
    """Make steps of DP-SGD on the rows of the source, moved by a public map."""
    source = records.take(np.flatnonzero(cells.codes == SOURCE))
    source = TrainingRows(_moved(source.rows, to_target), source.targets)
    batches, contributions = plan.batches(secret), partial(_contributions, to_target=to_target)
    vectors = loss.joint_vectors(source, None)

    def step(network: nn.Module, number: int) -> None:
        total = pulled_back_sum(network, source.rows, vectors, batch=next(batches))
        facts = {"loss": loss, "cells": cells}
        release_gradient(network, total, plan, secret, facts, contributions)

    return step


def _moved(rows: torch.Tensor, to_target: SlicedMap | None) -> torch.Tensor:
    if to_target is None:
        return rows
    return torch.from_numpy(to_target(rows.cpu().double().numpy())).to(rows)


def _contributions(
    network: nn.Module,
    private: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: FairLoss,
    to_target: SlicedMap | None,
    **_: Any,
) -> dict[str, Any]:
    """Return the contribution of each record to a sum, for audits.

    Rows of the target have no label, so they contribute 0.
    """
    rows, targets = private
    of_source = torch.from_numpy(codes == SOURCE)
    placed = torch.where(of_source[:, None], _moved(rows, to_target), rows)
    vectors = loss.joint_vectors(TrainingRows(placed, targets), None)
    return {"rows": gradients_of_vectors(network, placed, vectors)}
