"""What a private regression knows of the errors of its predictions, from its releases alone."""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd

from skdpot._utils.streams import Streams
from skdpot.exceptions import PrivacyWarning
from skdpot.fair.score_noise import ScoreSpread
from skdpot.fair.transport import Transport
from skdpot.privacy.reliability import OutputError
from skdpot.release.bounds import DataBounds
from skdpot.release.private_bounds import BoundsPlan, ball_radius

# Errors that are good enough, as shares of the range and of the standard deviation of a target.
_GOOD, _GOOD_SHARE = 0.05, 0.2
_CLEAR = 5.0  # signal over noise at which predictions are trusted to explain the target
_DOUBT = 2.0  # times its error a mean may be off
ADVICE = (
    "Declare target_bounds=(low, high), scale X to about [-1, 1], use more rows or fewer features, "
    "or take a larger epsilon."
)


def settled_range(
    bounds: DataBounds | BoundsPlan, targets: np.ndarray, streams: Streams
) -> DataBounds:
    """Return the bounds of targets, which are released if they are private.

    What the release of bounds says of rows and features is left to `PredictionErrors`.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Private bounds", PrivacyWarning)
        return bounds.settled(targets, streams)


def _range_error(plan: DataBounds | BoundsPlan, bounds: DataBounds) -> list[OutputError]:
    """Return the error of bounds that did not stand out from the noise; nothing of others."""
    if isinstance(plan, DataBounds):
        return []
    unknown = (bounds.center == 0.0) & (bounds.scale == 1.0)
    lost = unknown.any() and (plan.by_features or bounds.radius == ball_radius(bounds.n_features))
    in_one_ball = bounds.n_features > 1 and not plan.by_features and plan.features is None
    if not (lost or in_one_ball):
        return []
    widest = float(2.0 * bounds.radius * bounds.scale.max())
    answer = "the public range about 0" if lost else "one range for all targets"
    return [
        OutputError(
            output="range of the target" + "s" * (bounds.n_features > 1),
            standard_error=widest,
            trivial=answer,
            trivial_error=0.0,
            replaced=True,
        )
    ]


@dataclass(frozen=True, eq=False, kw_only=True)
class PredictionErrors:
    """The errors of predictions of targets in their own unit.

    Parameters
    ----------
    bounds : DataBounds
        Map from the targets to [-1, 1].
    spread : ScoreSpread
        The variances of predictions of mapped targets.
    mean_error : float, optional
        Standard deviation of the noise of the mean of the predictions, if it is known.
    moves : float, default=0.0
        Standard deviation of the noise of what predictions are moved by.
    deviation : float, default=inf
        Released standard deviation of mapped targets.
    variance_error : float, default=0.0
        Standard deviation of the noise of its square.
    replaced : bool, default=True
        Whether predictions of which noise explains all variance have become their mean.
    """

    bounds: DataBounds
    spread: ScoreSpread
    mean_error: float | None = None
    moves: float = 0.0
    deviation: float = math.inf
    variance_error: float = 0.0
    replaced: bool = True

    def outputs(self, plan: DataBounds | BoundsPlan) -> list[OutputError]:
        """Return the errors of the mean and of the predictions of each target.

        If the range of the targets, as planned, is lost, nothing else is known.
        """
        if lost := _range_error(plan, self.bounds):
            return lost
        scales = half_ranges(self.bounds)
        names = [""] if len(scales) == 1 else [f" {j}" for j in range(len(scales))]
        found = []
        for j, (scale, name) in enumerate(zip(scales.tolist(), names, strict=True)):
            if self.mean_error is not None:
                found.append(self._of_mean(j, scale, name, min(self.mean_error, 1.0)))
            found.append(self._of_predictions(j, scale, name))
        return found

    def _of_mean(self, j: int, scale: float, name: str, error: float) -> OutputError:
        mean = float(self.spread.mean[j])
        return OutputError(
            output=f"mean of the target{name}",
            standard_error=scale * error,
            trivial="the middle of its bounds",
            trivial_error=scale * max(mean**2 - error**2, 0.0) ** 0.5,
            estimate=float(self.bounds.center[j]) + scale * mean,
            margin=2.0 * _GOOD * scale,
        )

    def _of_predictions(self, j: int, scale: float, name: str) -> OutputError:
        """Return the error of the predictions; that of their mean is one draw, so it may be twice.

        Both errors count beside what the predictions surely explain of the target.
        """
        spread, of_mean = self.spread, (self.mean_error or 0.0) ** 2
        noise = float(spread.error[j] if self.replaced else spread.noise[j])
        explained = float(spread.sure_signal[j])
        if explained < _CLEAR * noise:  # else the scores say more than the released spread
            explained = min(explained, self.deviation**2 - self.variance_error)
        explained = max(explained - (_DOUBT**2 - 1.0) * of_mean, 0.0)
        return OutputError(
            output=f"predictions of the target{name}",
            standard_error=scale * min((noise + self.moves**2 + of_mean) ** 0.5, 2.0),
            trivial="the mean of the target",
            trivial_error=scale * explained**0.5,
            margin=scale * min(2.0 * _GOOD, _GOOD_SHARE * self.deviation),
            replaced=bool(self.replaced and spread.kept[j] == 0.0),
        )


def distance_error(
    frontier: pd.DataFrame, transport: Transport, level: float, half_width: float
) -> OutputError:
    """Return the error of the distance between the groups' predictions at a level.

    It is that of the moves, or that of the measured distance if this is smaller.
    """

    def at(level: float, column: str) -> float:
        return float(np.interp(level, frontier["level"], frontier[column]))

    def of_pair(moves: np.ndarray) -> float:
        return half_width * math.sqrt(2.0 * float(np.mean(moves**2)))

    signal, first = transport.signal, transport.rounds[0]
    before = max(at(0.0, "wasserstein") ** 2 - at(0.0, "wasserstein_se") ** 2, 0.0) ** 0.5
    moves = of_pair(transport.errors(np.maximum(signal, first.errors)))
    measured = at(level, "wasserstein_se")
    return OutputError(
        output="distance between groups",
        standard_error=min(level * moves, measured),
        trivial="an unmoved prediction",
        trivial_error=max(before, of_pair(signal)),
        estimate=at(level, "wasserstein") if measured <= level * moves else None,
        margin=2.0 * _GOOD * half_width,
    )


def half_ranges(bounds: DataBounds) -> np.ndarray:
    """Return the half ranges of targets that are mapped to [-1, 1]."""
    return np.asarray(bounds.scale * (bounds.radius / np.sqrt(bounds.n_features)))
