r"""What the two mechanisms with a penalty share: their parameters, and the order of a release.

A network is trained on private gradients of `skdpot.fair.fair_loss`. The mechanisms differ in how
they compute the gradient of the penalty: `skdpot.fair.sketched_outputs` and
`skdpot.fair.ranked_outputs`.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from skdpot._utils.parameters import Interval, StrOptions
from skdpot._utils.streams import SecretStream
from skdpot.base import COUNT, LENGTH, FitContext, MechanismResult
from skdpot.fair.decision_errors import ADVICE as OF_CLASSES
from skdpot.fair.decision_errors import probability_errors
from skdpot.fair.fair_loss import FairLoss
from skdpot.fair.mechanism import FairMechanism, FairTask
from skdpot.fair.recalibration import plan_recalibration, recalibrated
from skdpot.fair.regression_errors import ADVICE as OF_TARGETS
from skdpot.fair.regression_errors import PredictionErrors, settled_range
from skdpot.fair.score_losses import LOSSES, ScoreLoss
from skdpot.fair.score_noise import spread_after_adam
from skdpot.fair.target_bins import plan_target_bins, release_target_bins
from skdpot.fair.thresholds import ThresholdNoise, plan_threshold, tuned_threshold
from skdpot.fair.training_rows import TrainingRows, train_on
from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ClippedOutputs, ComparedOutputs, Probabilities
from skdpot.nets.local_penalty import network_outputs
from skdpot.nets.loss_curve import LossCurve, Losses, fixed_subset, parity_distance
from skdpot.nets.output_tables import TableNoise
from skdpot.nets.per_sample import record_outputs
from skdpot.nets.training import GradientStep, noisy_learning_rate
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.privacy.events import Event
from skdpot.privacy.reliability import Reliability
from skdpot.release.moments import SumNoise

# The number of steps grows where little of the loss is left in each: beyond the usual alpha.
_DEFAULT_STEPS, _USUAL_ALPHA = 200, 0.75
_LARGEST_RATE = 0.1  # with a larger learning rate few parameters diverge under noise
_BINS_SHARE = 0.02  # of the squared mu, for the bins of the targets
_LEVEL_SHARE = 0.05  # of the squared mu, for the level of the outputs


_N_PROJECTIONS = 16  # enough for a curve


@dataclass(frozen=True, kw_only=True)
class SideReleases:
    """The noise of what is released beside the gradients."""

    bins: TableNoise | None  # of private targets, which divide the groups
    level: ThresholdNoise | SumNoise | None  # of the outputs: threshold of two classes, or moments

    @property
    def events(self) -> tuple[Event, ...]:
        """The events to charge."""
        of_level = () if self.level is None else self.level.events
        return (*of_level, *(() if self.bins is None else (self.bins.event,)))


@dataclass(frozen=True, kw_only=True)
class PenaltyPlan:
    """How a mechanism trains, planned from public facts.

    Parameters
    ----------
    training : TrainingPlan
        Batches and noise, with the event of the whole fit.
    make_steps : callable
        Makes the steps, given `TrainingRows` and, by name, `cells`, `plan` and `secret`.
    batches : str
        Description of a batch, for the statement of privacy.
    """

    training: TrainingPlan
    make_steps: Callable[..., GradientStep]
    batches: str


@dataclass(eq=False, repr=False)
class PenaltyMechanism(FairMechanism):
    """A training whose loss has a penalty for the distance between groups.

    A subclass defines `_plan`, which is called once before the charge.
    """

    alpha: float = 0.75
    _: KW_ONLY
    n_steps: int | None = None
    learning_rate: float | str = "auto"
    tune_threshold: bool = True
    batch_fraction: float = 0.2
    clip_gradient: float = 2.0
    clip_output: float | None = None
    n_projections: int = 50

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, 1, closed="left")],
        "n_steps": [COUNT, None],
        "learning_rate": [Interval(Real, 0, 10, closed="right"), StrOptions({"auto"})],
        "batch_fraction": [Interval(Real, 0, 1, closed="right")],
        "clip_gradient": [LENGTH],
        "clip_output": [LENGTH, None],
        "n_projections": [COUNT],
        "tune_threshold": ["boolean"],
    }

    @property
    def compares(self) -> bool:
        """Whether the groups are compared."""
        return self.alpha > 0.0

    def release(
        self, context: FitContext, task: FairTask, rows: np.ndarray, targets: np.ndarray
    ) -> MechanismResult:
        """Plan, charge, and only then read the rows."""
        n_steps = self.n_steps or _default_steps(self.alpha)
        loss, side = self._loss(task), self._side_releases(context, task)
        plan = self._plan(context, task, loss, side, n_steps)
        words = f"{n_steps} noisy sums of clipped gradients over batches of {plan.batches}"
        if side.level is not None:
            words += ", and noisy histograms or moments for the level of predictions"
        facts = (*task.public, "the network's initial weights", *context.arithmetic)
        spent = context.charge(plan.training, facts, words)

        attributes: dict[str, Any] = {"n_steps_": n_steps}
        cells, secret = task.cells, context.streams.secret
        if task.bounds is not None:
            bounds = settled_range(task.bounds, targets, context.streams)
            attributes["target_bounds_"] = bounds
            targets = bounds.to_units(targets)
        if side.bins is not None:
            cells = release_target_bins(targets, cells, side.bins, secret)
            edges = bounds.from_units(cells.edges[:, np.newaxis])
            attributes["target_bins_"] = edges[:, 0]
        records = TrainingRows.of(task.network, rows, targets, context.device)
        rate = noisy_learning_rate(self.learning_rate, task.network, n_steps, _LARGEST_RATE)
        losses = prediction_losses(loss.compared, records.rows, records.targets, cells)
        curve = LossCurve.of_plan(losses, plan.training)

        def make_step(records: TrainingRows) -> GradientStep:
            steps = plan.make_steps(records, cells=cells, plan=plan.training, secret=secret)
            return curve.told(steps)

        network = train_on(
            records,
            task.network,
            make_step,
            n_steps,
            learning_rate=rate,
            context=context,
            callbacks=task.callbacks,
        )
        spread = spread_after_adam(
            network, rows.shape[1], _loss_of(task), plan.training, rate, weight=1.0 - loss.alpha
        )
        if task.bounds is None:
            stated = Reliability(tuple(probability_errors(spread, shrunk=False)), OF_CLASSES)
        else:
            errors = PredictionErrors(bounds=bounds, spread=spread, replaced=False)
            stated = Reliability(tuple(errors.outputs(task.bounds)), OF_TARGETS)
        network, threshold = _levelled(network, task, side.level, rows, targets, secret)
        attributes |= {"losses_": curve.table(), **threshold}
        return MechanismResult(network, None, spent, attributes=attributes, reliability=stated)

    def _loss(self, task: FairTask) -> FairLoss:
        compared = task.compared
        if self.clip_output is not None:
            compared = ClippedOutputs(compared.n_outputs, float(self.clip_output))
        return FairLoss(
            gradient=task.gradient,
            compared=compared,
            alpha=self.alpha if task.cells.strata else 0.0,
            clip=float(self.clip_gradient),
        )

    def _side_releases(self, context: FitContext, task: FairTask) -> SideReleases:
        """Plan the releases beside the gradients."""
        bins = None
        if task.given_target and task.cells.strata:
            bins = plan_target_bins(context.mu_share(_BINS_SHARE), task.cells)
        return SideReleases(bins=bins, level=self._level(context, task))

    def _level(self, context: FitContext, task: FairTask) -> ThresholdNoise | SumNoise | None:
        """Plan the correction of the level of the outputs, which a penalty moves."""
        mu = context.mu_share(_LEVEL_SHARE)
        if not (self.tune_threshold and self.alpha and task.cells.strata):
            return None
        if task.bounds is not None:
            return plan_recalibration(mu)
        if not (isinstance(task.compared, Probabilities) and task.compared.n_outputs == 1):
            return None
        return plan_threshold(mu, sum(task.cells.sizes), public_classes=task.public_classes)

    @abstractmethod
    def _plan(
        self, context: FitContext, task: FairTask, loss: FairLoss, side: SideReleases, n_steps: int
    ) -> PenaltyPlan:
        """Plan the training, whose noise leaves room for the side releases."""

    def _training_plan(
        self,
        context: FitContext,
        task: FairTask,
        side: SideReleases,
        tables: TableNoise | None = None,
        **terms: Any,
    ) -> TrainingPlan:
        """Calibrate the noise of the gradients beside all other releases of the fit."""
        others = (*side.events, *(() if tables is None else (tables.event,)))
        return plan_training(
            context.target,
            n_parameters=trained_numbers(task.network),
            bounds=task.bounds,
            others=() if math.isinf(context.target.epsilon) else others,
            **terms,
        )


def _levelled(
    network: nn.Module,
    task: FairTask,
    level: ThresholdNoise | SumNoise | None,
    rows: np.ndarray,
    targets: np.ndarray,
    secret: SecretStream,
) -> tuple[nn.Module, dict[str, float]]:
    """Correct the level of the outputs; return the network, and the threshold of two classes."""
    if isinstance(level, SumNoise):
        return recalibrated(network, rows, targets, task.cells.codes, level, secret), {}
    if level is not None:
        of_rows = partial(_probabilities, network)
        scores = of_rows(torch.from_numpy(rows))
        return network, {"threshold_": tuned_threshold(scores, targets, level, secret, of_rows)}
    return network, {"threshold_": 0.5} if isinstance(task.compared, Probabilities) else {}


def _probabilities(network: nn.Module, rows: torch.Tensor) -> np.ndarray:
    """Return the probability of the second class, (n_rows,)."""
    outputs = network_outputs(network, rows.to("cpu", torch.float32))
    return outputs[:, 0].sigmoid().numpy()


def _loss_of(task: FairTask) -> ScoreLoss:
    """Return the loss of targets, or of classes."""
    if task.bounds is not None:
        return LOSSES["squared"]
    return LOSSES["logistic" if task.compared.n_outputs == 1 else "softmax"]


def _default_steps(alpha: float) -> int:
    return round(_DEFAULT_STEPS * math.sqrt(max(1.0, (1.0 - _USUAL_ALPHA) / (1.0 - alpha))))


def prediction_losses(
    compared: ComparedOutputs, rows: torch.Tensor, targets: torch.Tensor, cells: Cells
) -> Losses:
    """Return a function from networks to their loss and their penalty, on a fixed subset of rows.

    The loss is the cross-entropy of classes, or half the squared error of targets.
    """
    subset = fixed_subset(len(rows))
    rows, targets = rows[subset], targets[subset]
    codes = cells.codes_of(targets.cpu().numpy(), cells.codes[subset])
    directions = compared.directions(_N_PROJECTIONS, np.random.default_rng(0))

    def losses(network: nn.Module) -> tuple[float, float]:
        outputs = record_outputs(network, rows).double()
        values = compared.values(outputs).cpu().numpy()
        return _loss(outputs, targets), parity_distance(values, codes, cells, directions)

    return losses


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    if targets.ndim == 2:
        return float((outputs - targets).square().sum(1).mean() / 2.0)
    labelled = targets >= 0
    outputs, targets = outputs[labelled], targets[labelled]
    if outputs.shape[1] > 1:
        return float(functional.cross_entropy(outputs, targets.long()))
    return float(functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.double()))
