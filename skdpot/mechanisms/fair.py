"""How the gradients of a fair predictor are made private: by a sketch of its outputs, or ranks."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from torch import nn

from skdpot._utils.validation import Interval, StrOptions
from skdpot.exceptions import warn_of_fairness
from skdpot.mechanisms.base import FitContext, Mechanism
from skdpot.nets.fair_training import FairLoss, OutputLoss, ranked_steps, tabled_steps
from skdpot.nets.training import GradientStep, noisy_learning_rate
from skdpot.nets.wasserstein_gradient import Cells, ClippedOutputs, ComparedOutputs, ParityPenalty
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.privacy.events import Event
from skdpot.release.bounds import DataBounds
from skdpot.release.gradients import TrainingPlan, plan_training, trained_numbers
from skdpot.release.output_tables import plan_tables
from skdpot.release.private_bounds import BoundsPlan

_DEFAULT_STEPS = 200
_LARGEST_RATE = 0.1
_FEWEST_RECORDS = 5.0  # of a cell, over the noise of one entry of its table
_TABLE_SHARE = 0.1  # of the squared mu, for the distributions of the outputs

_LENGTH = Interval(Real, 1e-30, 1e30, closed="both")
_COUNT = Interval(Integral, 1, None, closed="left")


@dataclass(frozen=True, eq=False, kw_only=True)
class FairTask:
    """What a fit is for, all of it public: loss, comparison, cells, and what else it releases."""

    gradient: OutputLoss
    compared: ComparedOutputs
    alpha: float
    cells: Cells
    network: nn.Module
    bounds: DataBounds | BoundsPlan | None = None
    others: tuple[Event, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class FairPlan:
    """What a fit will release, its steps, and what that is called in the statement."""

    training: TrainingPlan
    steps: Callable[..., GradientStep]
    learning_rate: float
    description: str


@dataclass(eq=False, repr=False)
class FairGradients(Mechanism):
    """What both mechanisms of the fair predictors read."""

    n_steps: int | None = None
    learning_rate: float | str = "auto"
    _: KW_ONLY
    batch_fraction: float = 0.2
    clip_loss: float = 2.0
    clip_output: float | None = None
    n_projections: int = 50

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_steps": [_COUNT, None],
        "learning_rate": [Interval(Real, 0, 10, closed="right"), StrOptions({"auto"})],
        "batch_fraction": [Interval(Real, 0, 1, closed="right")],
        "clip_loss": [_LENGTH],
        "clip_output": [_LENGTH, None],
        "n_projections": [_COUNT],
    }

    def plan(self, context: FitContext, task: FairTask) -> FairPlan:
        """Fix batches, releases and noise from public facts."""
        loss, n_steps = self._loss(task), self.n_steps or _DEFAULT_STEPS
        training, steps, description = self._plan(context, task, loss, n_steps)
        return FairPlan(
            training=training,
            steps=partial(steps, loss=loss, cells=task.cells, plan=training),
            learning_rate=noisy_learning_rate(
                self.learning_rate, task.network, n_steps, _LARGEST_RATE
            ),
            description=f"{n_steps} noisy sums of clipped gradients over batches of {description}",
        )

    def _loss(self, task: FairTask) -> FairLoss:
        compared, alpha, clip = task.compared, task.alpha, float(self.clip_loss)
        if self.clip_output is not None:
            compared = ClippedOutputs(compared.n_outputs, float(self.clip_output))
        return FairLoss(gradient=task.gradient, compared=compared, alpha=alpha, clip=clip)

    def _plan(
        self, context: FitContext, task: FairTask, loss: FairLoss, n_steps: int
    ) -> tuple[TrainingPlan, Callable[..., GradientStep], str]:
        """Return batches and noise, the steps, and how the releases are called."""
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class SketchedOutputs(FairGradients):
    r"""Private gradients of a fair predictor by a sketch of its outputs: the default.

    The distributions of the outputs of each group are released `n_releases` times. In between the
    penalty is a sum over records, clipped together with the loss, to :math:`(1 - \alpha) C`.
    Batches are Poisson samples.

    Parameters
    ----------
    n_steps : int, optional
        Training steps; 200 by default.
    learning_rate : "auto" or float, default="auto"
        Of Adam, at the start; it falls to zero along a half cosine. "auto" is 0.32 over the fourth
        root of the number of parameters, at most 0.1, and beyond 400 steps less by the root of
        their number.
    batch_fraction : float, default=0.2
        Expected share of the records in a step's batch.
    clip_loss : float, default=2.0
        C: largest norm of the gradient of a record's loss, from 1e-30 to 1e30.
    clip_output : float, optional
        M: largest norm of what is compared. A classifier compares logits shortened to M in place
        of probabilities; a small M looks at decisions near the threshold only. A regressor
        shortens mapped predictions to M, by default the root of the number of targets.
    n_projections : int, default=50
        Directions along which more than two classes, or several targets, are compared.
    n_releases : int, default=20
        How often distributions are released. They cost 10 % of the squared mu together, however
        many they are.
    """

    _: KW_ONLY
    n_releases: int = 20

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **FairGradients._parameter_constraints,
        "n_releases": [_COUNT],
    }

    def _plan(
        self, context: FitContext, task: FairTask, loss: FairLoss, n_steps: int
    ) -> tuple[TrainingPlan, Callable[..., GradientStep], str]:
        target, cells, others = context.target, task.cells, list(task.others)
        tables = None
        # Spread over the steps, none before the first: then all outputs are equal.
        wanted = min(self.n_releases, n_steps - 1) if cells.strata else 0
        release_at = sorted({1 + (k + 1) * (n_steps - 1) // (wanted + 1) for k in range(wanted)})
        if release_at:
            n_projections = len(
                loss.compared.directions(self.n_projections, np.random.default_rng(0))
            )
            mu, fewest = mu_share(target, _TABLE_SHARE), max(1, min(cells.sizes))
            tables = plan_tables(mu, len(release_at), n_projections, fewest)
            others.append(tables.event)
            # What is averaged over the blocks of directions has less noise.
            n_blocks = max(1.0, n_projections / loss.compared.n_outputs)
            _warn_of_small_cells(context.caller, cells, tables.sigma / math.sqrt(n_blocks))
        n_samples = sum(cells.sizes)
        training = plan_training(
            target,
            n_samples=n_samples,
            batch_size=max(1, math.floor(self.batch_fraction * n_samples)),
            n_steps=n_steps,
            sampling="poisson",
            sensitivity=2.0 * loss.joint_clip(cells),
            n_parameters=trained_numbers(task.network),
            bounds=task.bounds,
            others=() if math.isinf(target.epsilon) else others,
        )
        steps = partial(
            tabled_steps,
            noise=tables,
            release_at=release_at,
            n_projections=self.n_projections,
            public=context.streams.public,
        )
        text = f"about {training.batch_size} records"
        if tables is not None:
            text += f", {len(release_at)} noisy distributions of the outputs of all records"
        return training, steps, text


@dataclass(eq=False, repr=False)
class RankedOutputs(FairGradients):
    r"""Private gradients of a fair predictor by ranks, as in the paper.

    The outputs of a batch are ranked, and one record moves the ranks of others, which needs more
    noise than `SketchedOutputs`. Batches are a fixed number of records of each group.

    Parameters
    ----------
    n_steps : int, optional
        Training steps; 200 by default.
    learning_rate : "auto" or float, default="auto"
        As of `SketchedOutputs`.
    batch_fraction : float, default=0.2
        Share of the records of each group in a step's batch.
    clip_loss : float, default=2.0
        C: largest norm of the gradient of a record's loss, from 1e-30 to 1e30.
    clip_output : float, optional
        M, as of `SketchedOutputs`.
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
        **FairGradients._parameter_constraints,
        "clip_jacobian": [_LENGTH],
    }

    def _loss(self, task: FairTask) -> FairLoss:
        return replace(super()._loss(task), clip_jacobian=float(self.clip_jacobian))

    def _plan(
        self, context: FitContext, task: FairTask, loss: FairLoss, n_steps: int
    ) -> tuple[TrainingPlan, Callable[..., GradientStep], str]:
        target, cells = context.target, task.cells
        if not cells.strata:  # nothing is compared, so that nothing is ranked
            sketched = SketchedOutputs(
                n_steps, batch_fraction=self.batch_fraction, n_projections=self.n_projections
            )
            return sketched._plan(context, task, loss, n_steps)
        sizes = cells.batch_sizes(self.batch_fraction)
        penalty = ParityPenalty(cells.strata, sizes)
        # Their widths enter the sensitivity, so that they are drawn now.
        draw = partial(loss.compared.directions, self.n_projections, context.streams.public)
        directions = tuple(draw() for _ in range(n_steps))
        width = max(float(loss.compared.widths(of_step).mean()) for of_step in directions)
        training = plan_training(
            target,
            n_samples=cells.sizes,
            batch_size=sizes,
            n_steps=n_steps,
            sampling="without_replacement",
            sensitivity=loss.ranked_sensitivity(sum(sizes), penalty, width),
            n_parameters=trained_numbers(task.network),
            bounds=task.bounds,
            others=() if math.isinf(target.epsilon) else task.others,
        )
        steps = partial(ranked_steps, penalty=penalty, directions=directions)
        return training, steps, f"{sizes} records, compared by rank"


FAIR_MECHANISMS: dict[str, type[FairGradients]] = {
    "sketch": SketchedOutputs,
    "ranks": RankedOutputs,
}


def mu_share(target: PrivacyTarget, share: float) -> float:
    """Return the privacy parameter of a part of the fit; infinite without privacy."""
    return math.inf if math.isinf(target.epsilon) else target.mu_cap * math.sqrt(share)


def _warn_of_small_cells(caller: str, cells: Cells, sigma: float) -> None:
    """Say which groups are so small that their distributions are mostly noise; all public."""
    small = [
        f"{name} ({size} records)"
        for name, size in zip(cells.names, cells.sizes, strict=True)
        if size < _FEWEST_RECORDS * sigma
    ]
    if small:
        warn_of_fairness(
            f"{caller}: these groups are too small for this epsilon: "
            f"{', '.join(small[:3])}{', ...' if len(small) > 3 else ''}. The noise on their counts "
            f"has a standard deviation of {sigma:.0f} records, which hides the distributions. "
            "Merge small groups, leave them out, or take a larger epsilon."
        )
