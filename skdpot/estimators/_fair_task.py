"""What a fair predictor is trained for, and the plan of its fit, settled before any charge."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from skdpot._utils.notices import warn_of_fairness
from skdpot.estimators._groups import Groups, batch_sizes, read_groups
from skdpot.nets.fair_training import FairLoss
from skdpot.nets.output_tables import TableNoise, plan_tables
from skdpot.nets.parity import Cells, ParityPenalty
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.nets.tuned_threshold import ThresholdNoise, plan_threshold
from skdpot.privacy.bounds_plan import BoundsPlan
from skdpot.privacy.calibration import PrivacyTarget
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import Event

if TYPE_CHECKING:
    from skdpot.estimators._fair_predictor import FairPredictor

__all__ = ["FairPlan", "one_cell", "plan_fair_fit", "read_cells"]

_DEFAULT_STEPS = 200
_MOST_GROUPS = 50
_FEWEST_RECORDS = 5.0  # of a cell, over the noise of one entry of its table
_TABLE_SHARE = 0.1  # of the squared mu, for the distributions of the outputs
_TUNING_SHARE = 0.05  # of the squared mu, for the threshold


@dataclass(frozen=True, kw_only=True)
class FairPlan:
    """The public parameters of a fit.

    Parameters
    ----------
    training : TrainingPlan
        Batches and noise; its event is the whole fit.
    directions : tuple of ndarray
        With ranks: the directions of each step.
    penalty : ParityPenalty or None
        With ranks: what compares the cells of a batch.
    tables : TableNoise or None
        With a sketch: noise of the released distributions.
    release_at : tuple of int
        With a sketch: the steps before which they are released.
    tuning : ThresholdNoise or None
        Noise of what the threshold is read off.
    """

    training: TrainingPlan
    directions: tuple[np.ndarray, ...] = ()
    penalty: ParityPenalty | None = None
    tables: TableNoise | None = None
    release_at: tuple[int, ...] = ()
    tuning: ThresholdNoise | None = None


def one_cell(n_samples: int) -> Cells:
    """Return all records as one cell that is compared with none."""
    return Cells(np.zeros(n_samples, dtype=np.intp), (n_samples,), ())


def read_cells(
    predictor: "FairPredictor",
    sensitive_features: Any,
    n_samples: int,
    classes: tuple[np.ndarray, np.ndarray] | None,
) -> tuple[Cells, np.ndarray | None]:
    """Divide the records into what is to have alike outputs.

    Parameters
    ----------
    predictor : FairPredictor
        Its parameters.
    sensitive_features : array-like or None
        Group of each record.
    n_samples : int
        Number of records.
    classes : (codes, labels) or None
        Class of each record, for a classifier.

    Returns
    -------
    cells : Cells
        One cell without groups.
    labels : ndarray or None
        The groups.
    """
    if classes is None and predictor.fairness == "equalized_odds":
        raise ValueError(
            'fairness="equalized_odds" compares groups within each class, and a regressor has no '
            'classes. Use fairness="statistical_parity", or a classifier.'
        )
    if sensitive_features is None:
        if predictor.alpha > 0:
            warn_of_fairness(
                f"{type(predictor).__name__}: without sensitive_features all records are one "
                f"group, so that alpha={predictor.alpha!r} has no effect and the model is trained "
                "for its loss alone. Pass fit(X, y, sensitive_features=...), or alpha=0. In a "
                "Pipeline or a search enable metadata routing and call "
                "set_fit_request(sensitive_features=True)."
            )
        return one_cell(n_samples), None
    if predictor.alpha == 0:
        return one_cell(n_samples), None
    groups = read_groups(sensitive_features, n_samples)
    if len(groups.labels) > _MOST_GROUPS:
        raise ValueError(
            f"sensitive_features holds {len(groups.labels)} groups, and every two are compared: at "
            f"most {_MOST_GROUPS} are allowed. Merge groups; a column of identifiers is no group."
        )
    if predictor.fairness == "statistical_parity" or classes is None:
        stratum = tuple(range(len(groups.labels)))
        names = tuple(str(label) for label in groups.labels)
        return Cells(groups.codes, groups.sizes, (stratum,), names), groups.labels
    return _cells_by_class(groups, *classes), groups.labels


def _cells_by_class(groups: Groups, codes: np.ndarray, labels: np.ndarray) -> Cells:
    n_groups, n_classes = len(groups.labels), len(labels)
    cells = (codes * n_groups + groups.codes).astype(np.intp)
    sizes = tuple(np.bincount(cells, minlength=n_groups * n_classes).tolist())
    for cell, size in enumerate(sizes):
        if size == 0:
            raise ValueError(
                f'fairness="equalized_odds" needs records of every class in every group, but class '
                f"{labels[cell // n_groups]!s} has none in group {groups.labels[cell % n_groups]!s}"
                '. Merge groups, or use fairness="statistical_parity".'
            )
    strata = np.arange(n_groups * n_classes).reshape(n_classes, n_groups).tolist()
    names = tuple(f"{group}, class {label}" for label in labels for group in groups.labels)
    return Cells(cells, sizes, tuple(tuple(stratum) for stratum in strata), names)


def plan_fair_fit(
    predictor: "FairPredictor",
    loss: FairLoss,
    cells: Cells,
    network: nn.Module,
    public: np.random.Generator,
    *,
    bounds: DataBounds | BoundsPlan | None = None,
    tunes: bool = False,
) -> FairPlan:
    """Fix batches, releases and noise from public facts.

    Parameters
    ----------
    predictor : FairPredictor
        Its parameters.
    loss : FairLoss
        What is minimised.
    cells : Cells
        Public division of the records.
    network : torch.nn.Module
        What will be trained.
    public : numpy.random.Generator
        Draws the directions of each step, whose widths enter the sensitivity.
    bounds : DataBounds, BoundsPlan or None
        Of the targets of a regressor.
    tunes : bool
        Whether a threshold is released in the end.
    """
    target = predictor._target()
    n_steps = predictor.n_steps or _DEFAULT_STEPS
    others: list[Event] = []
    tuning = None
    if tunes:
        public_classes = bool(cells.strata) and predictor.fairness == "equalized_odds"
        tuning, events = plan_threshold(
            _mu_of(target, _TUNING_SHARE), sum(cells.sizes), public_classes=public_classes
        )
        others.extend(events)
    if cells.strata and predictor.gradient == "ranks":
        return _plan_ranks(
            predictor, loss, cells, network, public, target, n_steps, bounds, others, tuning
        )
    tables: TableNoise | None = None
    release_at = _release_steps(n_steps, predictor.n_releases) if cells.strata else ()
    if release_at:
        n_slices = len(loss.compared.directions(predictor.n_slices, np.random.default_rng(0)))
        tables, event = plan_tables(
            _mu_of(target, _TABLE_SHARE), len(release_at), n_slices, max(1, min(cells.sizes))
        )
        others.append(event)
        # What is averaged over the blocks of directions has less noise.
        n_blocks = max(1.0, n_slices / loss.compared.n_outputs)
        _warn_of_small_cells(predictor, cells, tables.sigma / math.sqrt(n_blocks))
    n_samples = sum(cells.sizes)
    training = plan_training(
        target,
        n_samples=n_samples,
        batch_size=max(1, math.floor(predictor.batch_fraction * n_samples)),
        n_steps=n_steps,
        sampling="poisson",
        sensitivity=2.0 * loss.joint_clip(cells),
        n_parameters=trained_numbers(network),
        bounds=bounds,
        others=() if math.isinf(target.epsilon) else tuple(others),
    )
    return FairPlan(training=training, tables=tables, release_at=release_at, tuning=tuning)


def _plan_ranks(
    predictor: "FairPredictor",
    loss: FairLoss,
    cells: Cells,
    network: nn.Module,
    public: np.random.Generator,
    target: PrivacyTarget,
    n_steps: int,
    bounds: DataBounds | BoundsPlan | None,
    others: list[Event],
    tuning: ThresholdNoise | None,
) -> FairPlan:
    sizes = batch_sizes(cells.sizes, predictor.batch_fraction, cells.names)
    penalty = ParityPenalty(cells.strata, sizes)
    directions = tuple(loss.compared.directions(predictor.n_slices, public) for _ in range(n_steps))
    width = max(float(loss.compared.widths(of_step).mean()) for of_step in directions)
    training = plan_training(
        target,
        n_samples=cells.sizes,
        batch_size=sizes,
        n_steps=n_steps,
        sampling="without_replacement",
        sensitivity=loss.ranked_sensitivity(sum(sizes), penalty, width),
        n_parameters=trained_numbers(network),
        bounds=bounds,
        others=() if math.isinf(target.epsilon) else tuple(others),
    )
    return FairPlan(training=training, directions=directions, penalty=penalty, tuning=tuning)


def _warn_of_small_cells(predictor: "FairPredictor", cells: Cells, sigma: float) -> None:
    """Say which groups are so small that their distributions are mostly noise; all public."""
    small = [
        f"{name} ({size} records)"
        for name, size in zip(cells.names, cells.sizes, strict=True)
        if size < _FEWEST_RECORDS * sigma
    ]
    if small:
        warn_of_fairness(
            f"{type(predictor).__name__}: these groups are too small for this epsilon: "
            f"{', '.join(small[:3])}{', ...' if len(small) > 3 else ''}. The noise on the counts "
            f"of each group has a standard deviation of {sigma:.0f} records, which hides the "
            "distributions: the fairness penalty mostly follows noise. Merge small groups, leave "
            "them out, or take a larger epsilon."
        )


def _mu_of(target: PrivacyTarget, share: float) -> float:
    """Return the privacy parameter of a part of the fit; infinite without privacy."""
    return math.inf if math.isinf(target.epsilon) else target.mu_cap * math.sqrt(share)


def _release_steps(n_steps: int, n_releases: int) -> tuple[int, ...]:
    """Spread the releases over the steps, none before the first: then all outputs are equal."""
    wanted = min(n_releases, n_steps - 1)
    return tuple(sorted({1 + (k + 1) * (n_steps - 1) // (wanted + 1) for k in range(wanted)}))
