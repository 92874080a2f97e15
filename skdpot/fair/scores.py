r"""Private training of scores: logits or predictions that are post-processed afterwards.

Every step releases one noisy sum of the clipped gradients of *all* records. No batch is drawn:
under Gaussian differential privacy the steps compose exactly, and secret batches gain nothing at
the noise of a small epsilon. The number and length of the steps follow from public facts: the
number of records and features and the privacy parameter.

Features are standardised first. Their means and spreads follow from one noisy sum of all rows and
their squares, which gets `_MOMENTS` of the squared mu. Noise of one size then suits columns of any
spread, constant parts of a row (one-hot columns coded -1 and 1) cost nothing, and the norm of most
rows is known without looking at them. The map is folded into the first layer of the network.

Training is gradient descent with momentum. The result is the mean of the parameters over the last
70 % of the steps, in which the noise of the steps averages out. Let :math:`\sigma_1` be the
standard deviation of the noise of all steps in their mean. Directions of curvature below about
:math:`6 \sigma_1` hold more noise than signal, and descent stops before it reaches them. Networks
that do not begin with a linear layer are trained by Adam, on features as they are.

In the end scores are shrunk towards their mean by the share of their variance that is noise
(`skdpot.fair.score_noise`).
"""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import nn

from skdpot._utils.streams import SecretStream, Streams
from skdpot.exceptions import warn_of_privacy
from skdpot.fair.score_losses import LOSSES, ScoreLoss
from skdpot.fair.score_noise import Response, ScoreSpread, shrink, spread_of_scores
from skdpot.nets.cells import Cells
from skdpot.nets.gradient_release import gradients_of_vectors, release_gradient
from skdpot.nets.gradients import ClippedVectors, pulled_back_sum, shares_of_vectors
from skdpot.nets.per_sample import chain_of_layers
from skdpot.nets.training import noisy_learning_rate, train_to_the_end
from skdpot.nets.training_plan import TrainingPlan, trained_numbers
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import LatticeNoise, calibrate_rounded, noisy_sum
from skdpot.release.gate import pass_gate
from skdpot.release.releases import Part, Records, Release, Vectors, of_candidates

_MOMENTS = 0.1  # of the squared mu, for means and spreads of the features
_LATTICE = 2.0**-10  # of features, so that their squares lie on a lattice, too
# Clipped features: distance of moments from 1, and its error. Columns of 0 and 1 may look alike.
_LOST, _MOST_DOUBT, _MOST_LIKE_THIS = 0.01, 0.1, 0.5
_NARROWEST = 0.01  # spread of a feature that is not constant
_SHORTEST = 0.01  # squared length of standardised rows, if the noise hides their spreads
_MOMENTUM, _MOMENTUM_WITHOUT_NOISE = 0.8, 0.97
_TRANSIENT = 0.3  # of the steps, whose parameters are not part of the mean
_FEWEST_STEPS, _FEWEST_OF_HIDDEN, _MOST_STEPS = 60, 100, 300
# The curvature, in units of the noise, at which descent stops; scores that are recalibrated
# afterwards only need to rank records.
_CURVATURES, _CURVATURES_OF_RANKINGS = 6.0, 4.0
_CLASSES, _HIDDEN = 3.0, 3.0  # how much flatter losses of many classes and of networks are
_STABLE = 3.0  # step over the inverse of the largest curvature; momentum diverges at 3.6
# Records per feature and unit of noise beyond which fewer gradients are clipped.
_ROWS_PER_NOISE, _ROWS_PER_NOISE_OF_RANKINGS = 20.0, 80.0
_OTHER_SIZE = 4  # squared norm of the inputs of the first layer, where it is not known
_LARGEST_RATE = 0.1  # of Adam
_NO_CLIP = 1e30
_DOWN = 1.0 - 1e-13  # absorbs the rounding of roots: squares must not exceed mu**2

# From rows, targets and cells of records to the rows and targets that a network is trained on.
Seen: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
Look: TypeAlias = Callable[[Records, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False, kw_only=True)
class ScorePlan:
    """How a network is trained, planned from public facts and charged before a row is read."""

    loss: ScoreLoss
    clip: float
    steps: TrainingPlan
    moments: LatticeNoise | None  # None: no noise, or features are left as they are
    learning_rate: float
    momentum: float | None  # None: Adam, with a rate that falls to zero

    @property
    def event(self) -> Event:
        """The event of all releases."""
        return self.steps.event

    def train(
        self,
        network: nn.Module,
        rows: np.ndarray,
        targets: np.ndarray,
        streams: Streams,
        *,
        caller: str,
        device: torch.device | None = None,
        cells: Cells | None = None,
        seen: Seen | None = None,
        most_signal: float = math.inf,
        **options: Any,
    ) -> tuple[nn.Module, ScoreSpread]:
        """Return a trained copy of a network and the variances of its scores; `event` is charged.

        Targets are classes 0 and 1 ("logistic"), 0, 1, 2, ... ("softmax"), or arrays of one column
        per output with values in [-1, 1] ("squared"). For audits, `seen` makes the rows and targets
        of the training from those of the fit and the public `cells`. Scores have a variance of at
        most `most_signal` without noise.
        """
        look = partial(_seen, seen, cells)
        rows = rows.astype(np.float64)  # in which sums of moments are exact
        center, (scale, variances) = np.zeros(rows.shape[1]), np.ones((2, rows.shape[1]))
        if _first_layer(network) is not None:
            center, scale, variances = self._standardised(rows, streams, look, caller)
        facts = {"loss": self.loss, "clip": self.clip, "center": center, "scale": scale}
        place = device or "cpu"
        units = torch.from_numpy((rows - center) / scale).to(place, torch.float32)
        vectors = _clipped_gradients(self.loss, torch.from_numpy(targets).to(place), self.clip)
        trained, first = deepcopy(network), math.floor(_TRANSIENT * self.steps.n_steps)
        total = [torch.zeros_like(p, dtype=torch.float64) for p in trained.parameters()]

        def step(current: nn.Module, number: int) -> None:
            with torch.no_grad():
                for mean, parameter in zip(total, current.parameters(), strict=True):
                    mean += (number >= first) / (self.steps.n_steps - first) * parameter.cpu()
            gradient = pulled_back_sum(current, units, vectors)
            contributions = partial(_gradients_seen, look)
            release_gradient(current, gradient, self.steps, streams.secret, facts, contributions)

        train_to_the_end(
            trained,
            step,
            self.steps.n_steps,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            rng=streams.secret.generator(),
            caller=caller,
            device=device,
            **options,
        )
        with torch.no_grad():
            if self.momentum is not None:
                for parameter, mean in zip(trained.parameters(), total, strict=True):
                    parameter.copy_(mean)
            trained, spread = self._shrunk(trained, variances, first, most_signal)
            _fold(trained, center, scale)
        return trained, spread

    def _shrunk(
        self, network: nn.Module, variances: np.ndarray, first: int, most_signal: float
    ) -> tuple[nn.Module, ScoreSpread]:
        """Move scores of standardised rows towards their mean, as far as noise explains them."""
        steps = self.steps
        response = Response(
            steps.sigma / steps.batch_size, steps.n_steps, self.learning_rate, self.momentum, first
        )
        spread = spread_of_scores(network, variances, self.loss, response, most_signal=most_signal)
        return shrink(network, spread), spread

    def _standardised(
        self, rows: np.ndarray, streams: Streams, look: Look, caller: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what is subtracted from features, what divides them, and their variances then."""
        n, noise = len(rows), self.moments
        if noise is None:
            return rows.mean(0), np.maximum(rows.std(0), _NARROWEST), np.ones(rows.shape[1])
        mean, square = self._noisy_moments(rows, noise, streams.secret, look)
        doubt = 2.0 * noise.sigma / n
        lost = np.minimum(mean, square) > 1.0 - _LOST - doubt
        if lost.mean() > _MOST_LIKE_THIS and doubt < _MOST_DOUBT:
            warn_of_privacy(
                f"{caller}: {lost.sum()} of {len(lost)} features are 1 or more in nearly all rows. "
                "Features are read between -1 and 1, so nothing is learned from these. Unless they "
                "are columns of ones, scale X to about [-1, 1] by public ranges or a PrivateScaler."
            )
        mean = mean.clip(-1.0, 1.0)
        variance = np.maximum(square - mean**2, 0.0)
        scale = np.sqrt(np.maximum(variance, max(_NARROWEST**2, doubt)))
        # Rows are shorter than the clip expects where the noise hides spreads.
        length = math.sqrt(max(float((variance / scale**2).mean()), _SHORTEST))
        unsure = np.maximum(variance, doubt / 2.0)
        return mean, scale * length, unsure / (scale * length) ** 2

    def _noisy_moments(
        self, rows: np.ndarray, noise: LatticeNoise, secret: SecretStream, look: Look
    ) -> tuple[np.ndarray, np.ndarray]:
        """Release the means of features and of their squares."""
        release = Release(
            "moments",
            noisy_sum(_moments(rows).sum(0), noise, secret),
            event=self.event,
            sigma=noise.sigma,
            lattice=noise.lattice,
            sensitivity=noise.sensitivity,
            linear=partial(_moments_seen, look),
        )
        mean, square = np.split(pass_gate(release) / len(rows), 2)
        return mean, square


def plan_scores(
    mu: float, network: nn.Module, n_samples: int, loss: str, *, recalibrated: bool = False
) -> ScorePlan:
    """Plan the training of a network that is mu-GDP under replace-one; infinite for no privacy.

    Scores that are `recalibrated` afterwards only need to rank records, so more of their gradients
    are clipped. `loss` is one of `LOSSES`. The network must treat records alone
    (`skdpot.nets.per_record_check.check_per_record`).
    """
    kind, private = LOSSES[loss], math.isfinite(mu)
    first = _first_layer(network)
    linear = first is not None and trained_numbers(network) == trained_numbers(first)
    # The squared norm of most rows, with the intercept.
    size = _OTHER_SIZE if first is None else 1 + first.in_features
    moments = None
    if first is not None and private:
        d = first.in_features
        moments = calibrate_rounded(mu * math.sqrt(_MOMENTS), moments_sensitivity(d), 2 * d)
        mu *= math.sqrt(1.0 - _MOMENTS)
    # If there are few records for the noise, clipping more of them is better.
    per_noise = _ROWS_PER_NOISE_OF_RANKINGS if recalibrated else _ROWS_PER_NOISE
    share = min(max(1.0, math.sqrt(n_samples * mu / size / per_noise)), 2.0) / 2.0
    clip = share * math.sqrt(size) if private else _NO_CLIP
    flat = 1.0 if linear else _HIDDEN
    if linear and first is not None and loss == "softmax":
        flat = max(1.0, first.out_features / _CLASSES)
    sigma = 2.0 * clip / (mu * n_samples)  # of the mean of all steps' mean gradients
    flattest = _CURVATURES_OF_RANKINGS if recalibrated else _CURVATURES
    length = flat / (flattest * sigma) if private else math.inf
    momentum = _MOMENTUM if private or not linear else _MOMENTUM_WITHOUT_NOISE
    largest = _STABLE / (kind.curvature * size)
    fewest = _FEWEST_STEPS if linear else _FEWEST_OF_HIDDEN
    wanted = (1.0 - momentum) * length / largest
    n_steps = math.ceil(min(max(wanted, fewest), _MOST_STEPS))
    rate = min((1.0 - momentum) * length / n_steps, largest)
    if first is None:
        rate = noisy_learning_rate("auto", network, n_steps, _LARGEST_RATE)
    noise = _plan_steps(mu, n_steps, clip, trained_numbers(network)) if private else None
    return ScorePlan(
        loss=kind,
        clip=clip,
        moments=moments,
        learning_rate=rate,
        momentum=None if first is None else momentum,
        steps=TrainingPlan(
            group_sizes=(n_samples,),
            batch_sizes=(n_samples,),
            n_steps=n_steps,
            sampling="without_replacement",
            sensitivity=2.0 * clip if noise is None else noise.sensitivity,
            noise=noise,
            bounds=None,
            event=_event_of(moments, noise, n_steps),
        ),
    )


def moments_sensitivity(n_features: int) -> float:
    r"""Bound how far one row of values in [-1, 1] moves the sums of values and squares.

    The bound is :math:`2 \sqrt d`. With u = a - b and v = a + b, |u| + |v| <= 2, a feature that
    changes from a to b moves its two sums by :math:`u^2 (1 + v^2) \le (2 - |v|)^2 (1 + v^2) \le 4`,
    squared. Rows are rounded one by one, so that the sums are exact.
    """
    return 2.0 * math.sqrt(n_features)


def _plan_steps(mu: float, n_steps: int, clip: float, n_parameters: int) -> LatticeNoise:
    """Choose the noise of each step: a replaced record moves a sum by at most twice the clip."""
    return calibrate_rounded(mu / math.sqrt(n_steps) * _DOWN, 2.0 * clip, n_parameters)


def _event_of(moments: LatticeNoise | None, noise: LatticeNoise | None, n_steps: int) -> Event:
    """Return the event of the moments and of all steps."""
    if noise is None:
        return NonPrivateEvent()
    events = [GaussianEvent(**vars(noise), n_steps=n_steps, label="Gradients")]
    if moments is not None:
        events.insert(0, GaussianEvent(**vars(moments), label="Means and spreads"))
    return ComposedEvent(events=tuple(events))


def _clipped_gradients(loss: ScoreLoss, targets: torch.Tensor, clip: float) -> ClippedVectors:
    """Return the clipped gradients of records by their outputs.

    Not private by itself. A record contributes a vector of norm at most `clip` to the sum, and
    replacing it moves the sum by at most twice that.
    """

    def vectors(outputs: torch.Tensor, gram: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
        gradients = loss.gradient(outputs, targets[records])
        gradients = torch.where(gradients.isfinite().all(1, keepdim=True), gradients, 0.0)
        return gradients * shares_of_vectors(gradients, gram, clip)[:, None]

    return vectors


def _moments(rows: np.ndarray) -> np.ndarray:
    """Return values in [-1, 1] and their squares, on a lattice."""
    values = np.rint(_clipped_features(rows) / _LATTICE) * _LATTICE
    return np.hstack([values, values**2])


def _clipped_features(rows: np.ndarray) -> np.ndarray:
    return np.clip(rows, -1.0, 1.0)


def _seen(
    seen: Seen | None, cells: Cells | None, records: Records, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and targets of a training from the records of an audit."""
    rows, targets = np.asarray(records[0], dtype=np.float64), records[1]
    if seen is None or cells is None:
        return rows, targets
    return seen(rows, targets, of_candidates(cells.codes, shares))


def _moments_seen(
    look: Look, release: Release, records: Records, shares: np.ndarray
) -> Iterator[Part]:
    """Yield the contribution of each record to the moments."""
    rows, _ = look(records, shares)
    yield Part(value=release.value, sigma=cast(float, release.sigma), rows=Vectors(_moments(rows)))


def _gradients_seen(
    look: Look,
    network: nn.Module,
    records: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: ScoreLoss,
    clip: float,
    center: np.ndarray,
    scale: np.ndarray,
) -> dict[str, Any]:
    """Return the contribution of each record to a step."""
    rows, targets = look(records, shares)
    units = torch.from_numpy((rows - center) / scale).float()
    vectors = _clipped_gradients(loss, torch.as_tensor(targets), clip)
    return {"rows": gradients_of_vectors(network, units, vectors)}


def _first_layer(network: nn.Module) -> nn.Linear | None:
    """Return the layer that a map of the features can be folded into, if there is one."""
    first = (chain_of_layers(network) or [network])[0]
    return first if isinstance(first, nn.Linear) and first.bias is not None else None


def _fold(network: nn.Module, center: np.ndarray, scale: np.ndarray) -> None:
    """Fold the standardisation of features into the first layer."""
    if (first := _first_layer(network)) is not None:
        weight = first.weight.double() / torch.from_numpy(scale)
        first.bias.copy_(first.bias - weight @ torch.from_numpy(center))
        first.weight.copy_(weight)
