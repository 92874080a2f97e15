r"""Private training of scores: logits or predictions that are post-processed afterwards.

Every step releases one noisy sum of the clipped gradients of *all* records. No batch is drawn:
under Gaussian differential privacy the steps compose exactly, and at the noise of a small epsilon
secret batches gain nothing. Number and length of the steps follow from public facts: the number
of records and features and the privacy parameter.

Features are standardised first, with means and spreads from one noisy sum of all rows and their
squares, which gets `_MOMENTS` of the squared mu. It makes noise of one size suit columns of any
spread, constant parts of a row (one-hot columns coded -1 and 1) cost nothing, and the norm of
most rows is known without looking at them. The map is folded into the first layer of the network.

Training is gradient descent with momentum, of which the mean of the parameters over the last 70 %
of the steps is kept: the noise of the steps averages out. Let :math:`\sigma_1` be the standard
deviation that the noise of all steps has in their mean. Directions of curvature below about
:math:`6 \sigma_1` hold more noise than signal, and descent stops before it reaches them. Networks
that do not begin with a linear layer are trained by Adam, on features as they are.

Where what is predicted may use the group, it is a feature. Where it may not, a second network
learns the probability of each group given the features, of private rows although groups are public.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from scipy.special import softmax
from torch import nn
from torch.nn import functional

from skdpot._utils.validation import Streams
from skdpot.base import FitContext
from skdpot.exceptions import warn_of_privacy
from skdpot.fair.penalties import FairTask
from skdpot.nets.cells import Cells
from skdpot.nets.gradient_release import gradients_of_vectors, release_gradient
from skdpot.nets.gradients import ClippedVectors, pulled_back_sum, shares_of_vectors
from skdpot.nets.networks import build_predictor, evaluate
from skdpot.nets.per_sample import chain_of_layers
from skdpot.nets.training import noisy_learning_rate, train_to_the_end
from skdpot.nets.training_plan import TrainingPlan, trained_numbers
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import LatticeNoise, calibrate_rounded, noisy_sum
from skdpot.release.gate import Part, Records, Release, Vectors, of_candidates, pass_gate

_MOMENTS = 0.1  # of the squared mu, for means and spreads of the features
_LATTICE = 2.0**-10  # of features, whose squares then lie on a lattice, too
_LOST, _MOST_DOUBT = 0.01, 0.1  # distance of moments from 1, and its error: clipped features
_NARROWEST = 0.01  # spread of a feature that is told from a constant
_MOMENTUM, _MOMENTUM_WITHOUT_NOISE = 0.8, 0.97
_TRANSIENT = 0.3  # of the steps, whose parameters are not in the mean
_FEWEST_STEPS, _FEWEST_OF_HIDDEN, _MOST_STEPS = 60, 100, 300
_CURVATURES, _CURVATURES_OF_RANKINGS = 6.0, 4.0  # in units of the noise: where descent stops
_CLASSES, _HIDDEN = 3.0, 3.0
_STABLE = 3.0  # step, over the inverse of the largest curvature; heavy balls leave at 3.6
_ROWS_PER_NOISE, _ROWS_PER_NOISE_OF_RANKINGS = 20.0, 80.0
_SHORTEST = 0.01
_OTHER_SIZE = 4
_LARGEST_RATE = 0.1
_NO_CLIP = 1e30
_DOWN = 1.0 - 1e-13  # absorbs the rounding of roots: squares must not exceed mu**2


# From rows, targets and cells of records to what a network is trained on.
Seen: TypeAlias = Callable[[np.ndarray, Any, np.ndarray], tuple[np.ndarray, Any]]
Look: TypeAlias = Callable[[Records, np.ndarray], tuple[np.ndarray, Any]]


@dataclass(frozen=True)
class ScoreLoss:
    """A loss: its gradient at the outputs, and its largest curvature."""

    gradient: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    curvature: float


def _logistic(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradient of the cross-entropy of the second class by its logit."""
    return outputs.sigmoid() - targets[:, None]


def _softmax(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradient of the cross-entropy by the logits."""
    return outputs.softmax(1) - functional.one_hot(targets.long(), outputs.shape[1])


def _squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradient of half the squared error by the outputs."""
    return outputs - targets


LOSSES: dict[str, ScoreLoss] = {
    "logistic": ScoreLoss(_logistic, 0.25),
    "softmax": ScoreLoss(_softmax, 0.5),
    "squared": ScoreLoss(_squared, 1.0),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class ScorePlan:
    """How a network is trained: public facts, fixed and to be charged before a row is read."""

    loss: ScoreLoss
    clip: float
    steps: TrainingPlan
    moments: LatticeNoise | None  # None: no noise, or features are left as they are
    learning_rate: float
    momentum: float | None  # None: Adam, with a rate that falls to zero

    @property
    def event(self) -> Event:
        """The charge for all that is released."""
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
        **options: Any,
    ) -> nn.Module:
        """Return a trained copy of a network, whose event the caller has charged.

        Targets are classes 0 and 1 ("logistic"), 0, 1, 2, ... ("softmax"), or arrays of one column
        per output with values in [-1, 1] ("squared"). Where rows or targets are not those of the
        fit alone, `seen` makes them of these and of the public `cells` of records, for audits.
        """
        look = partial(_seen, seen, cells)
        rows = rows.astype(np.float64)  # in which sums of moments are exact
        center, scale = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
        if _first_layer(network) is not None:
            center, scale = self._standardised(rows, streams, look, caller)
        facts = {"loss": self.loss, "clip": self.clip, "center": center, "scale": scale}
        where = device or "cpu"
        units = torch.from_numpy((rows - center) / scale).to(where, torch.float32)
        vectors = _clipped(self.loss, torch.from_numpy(targets).to(where), self.clip)
        trained, first = deepcopy(network), math.floor(_TRANSIENT * self.steps.n_steps)
        total = [torch.zeros_like(p, dtype=torch.float64) for p in trained.parameters()]

        def step(current: nn.Module, number: int) -> None:
            with torch.no_grad():
                for mean, parameter in zip(total, current.parameters(), strict=True):
                    mean += (number >= first) / (self.steps.n_steps - first) * parameter.cpu()
            gradient = pulled_back_sum(current, units, vectors)
            of_step = partial(_of_step, look)
            release_gradient(current, gradient, self.steps, streams.secret, facts, of_step)

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
            _fold(trained, center, scale)
        return trained

    def _standardised(
        self, rows: np.ndarray, streams: Streams, look: Look, caller: str
    ) -> tuple[np.ndarray, np.ndarray]:
        r"""Release means and spreads; return what is subtracted from features, and divided by.

        One row of values in [-1, 1] moves the sums of values and squares by at most
        :math:`2 \sqrt d`: with u = a - b and v = a + b, |u| + |v| <= 2, it moves those of a feature
        by :math:`u^2 (1 + v^2) \le (2 - |v|)^2 (1 + v^2) \le 4`, squared. Rows are rounded one by
        one, so that the sums are exact.
        """
        n, noise = len(rows), self.moments
        if noise is None:
            return rows.mean(0), np.maximum(rows.std(0), _NARROWEST)
        release = Release(
            "moments",
            noisy_sum(_moments(rows).sum(0), noise, streams.secret),
            event=self.event,
            sigma=noise.sigma,
            lattice=noise.lattice,
            sensitivity=noise.sensitivity,
            linear=partial(_of_moments, look),
        )
        mean, square = np.split(pass_gate(release) / n, 2)
        doubt = 2.0 * noise.sigma / n
        lost = np.minimum(mean, square) > 1.0 - _LOST - doubt
        if lost.any() and doubt < _MOST_DOUBT:
            warn_of_privacy(
                f"{caller}: features seem to be unscaled: {lost.sum()} are 1 or more in nearly all "
                "rows. They are read between -1 and 1, so nothing is learned from these. Scale X "
                "by public ranges, or put a PrivateScaler in front."
            )
        mean = mean.clip(-1.0, 1.0)
        variance = np.maximum(square - mean**2, 0.0)
        scale = np.sqrt(np.maximum(variance, max(_NARROWEST**2, doubt)))
        # Where spreads are not resolved, rows are shorter than the clip allows for.
        length = math.sqrt(max(float((variance / scale**2).mean()), _SHORTEST))
        return mean, scale * length


def plan_scores(
    mu: float, network: nn.Module, n_samples: int, loss: str, *, recalibrated: bool = False
) -> ScorePlan:
    """Plan the training of a network that is mu-GDP under replace-one; infinite for no privacy.

    Scores that are `recalibrated` afterwards need to rank records alone: more of these are clipped.

    `loss` is one of `LOSSES`. The network must treat records alone
    (`skdpot.nets.per_record_check.check_per_record`).
    """
    kind, private = LOSSES[loss], math.isfinite(mu)
    first = _first_layer(network)
    linear = first is not None and trained_numbers(network) == trained_numbers(first)
    # The squared norm of most rows, with the intercept.
    size = _OTHER_SIZE if first is None else 1 + first.in_features
    moments, events = None, []
    if first is not None and private:
        d, of_moments = first.in_features, mu * math.sqrt(_MOMENTS)
        moments = calibrate_rounded(of_moments, 2.0 * math.sqrt(d), 2 * d)
        events = [GaussianEvent(**vars(moments), label="Means and spreads")]
        mu *= math.sqrt(1.0 - _MOMENTS)
    # With few records for the noise it is better to shorten more of them.
    per_noise = _ROWS_PER_NOISE_OF_RANKINGS if recalibrated else _ROWS_PER_NOISE
    share = min(max(1.0, math.sqrt(n_samples * mu / size / per_noise)), 2.0) / 2.0
    clip = share * math.sqrt(size) if private else _NO_CLIP
    # The curvature of cross-entropy falls with the number of classes; that of networks is less.
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
    noise, event = None, cast(Event, NonPrivateEvent())
    if private:
        of_step = mu / math.sqrt(n_steps) * _DOWN
        noise = calibrate_rounded(of_step, 2.0 * clip, trained_numbers(network))
        steps = GaussianEvent(**vars(noise), n_steps=n_steps, label="Gradients")
        event = ComposedEvent(events=(*events, steps))
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
            event=event,
        ),
    )


def _clipped(loss: ScoreLoss, targets: torch.Tensor, clip: float) -> ClippedVectors:
    """Return the gradients of records by their outputs, shortened.

    Not private by itself. A record adds a vector of norm at most `clip` to the sum, and replacing
    it moves the sum by at most twice that.
    """

    def vectors(outputs: torch.Tensor, gram: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
        own = loss.gradient(outputs, targets[records])
        own = torch.where(own.isfinite().all(1, keepdim=True), own, 0.0)
        return own * shares_of_vectors(own, gram, clip)[:, None]

    return vectors


def _moments(rows: np.ndarray) -> np.ndarray:
    """Return values in [-1, 1] and their squares, on a lattice."""
    values = np.rint(np.clip(rows, -1.0, 1.0) / _LATTICE) * _LATTICE
    return np.hstack([values, values**2])


def _seen(
    seen: Seen | None, cells: Cells | None, records: Records, shares: np.ndarray
) -> tuple[np.ndarray, Any]:
    """Return rows and targets of the records of an audit."""
    rows, targets = np.asarray(records[0], dtype=np.float64), records[1]
    if seen is None or cells is None:
        return rows, targets
    return seen(rows, targets, of_candidates(cells.codes, shares))


def _of_moments(
    look: Look, release: Release, records: Records, shares: np.ndarray
) -> Iterator[Part]:
    rows, _ = look(records, shares)
    yield Part(value=release.value, sigma=cast(float, release.sigma), rows=Vectors(_moments(rows)))


def _of_step(
    look: Look,
    network: nn.Module,
    given: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: ScoreLoss,
    clip: float,
    center: np.ndarray,
    scale: np.ndarray,
) -> dict[str, Any]:
    """Return what each record adds to a step."""
    rows, targets = look(given, shares)
    units = torch.from_numpy((rows - center) / scale).float()
    vectors = _clipped(loss, torch.as_tensor(targets), clip)
    return {"rows": gradients_of_vectors(network, units, vectors)}


def _first_layer(network: nn.Module) -> nn.Linear | None:
    """Return the layer that a map of the features can be folded into, if there is one."""
    first = (chain_of_layers(network) or [network])[0]
    return first if isinstance(first, nn.Linear) and first.bias is not None else None


def _fold(network: nn.Module, center: np.ndarray, scale: np.ndarray) -> None:
    """Let the first layer read features as they are."""
    if (first := _first_layer(network)) is not None:
        weight = first.weight.double() / torch.from_numpy(scale)
        first.bias.copy_(first.bias - weight @ torch.from_numpy(center))
        first.weight.copy_(weight)


@dataclass(frozen=True, eq=False)
class GroupScores:
    """Trained networks: of the targets, and of the group where it is hidden."""

    network: nn.Module
    posterior: nn.Module | None
    n_groups: int

    def __call__(self, rows: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return outputs, and the probability of each group; `codes` are read if it is known."""
        rows = np.asarray(rows, dtype=np.float64)
        if self.posterior is None:
            weights = np.eye(self.n_groups)[codes]
            rows = with_groups(rows, codes, self.n_groups)
        else:
            weights = class_probabilities(evaluate(self.posterior, rows, None))
        return evaluate(self.network, rows, None), weights

    def probabilities(self, rows: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each class and of each group."""
        logits, weights = self(rows, codes)
        return class_probabilities(logits), weights


def class_probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the probability of each class; a single logit is that of the second of two."""
    logits = np.nan_to_num(logits, nan=0.0)
    if logits.shape[1] == 1:
        logits = np.hstack([np.zeros_like(logits), logits])
    return softmax(logits, axis=1)


def with_groups(rows: np.ndarray, codes: np.ndarray, n_groups: int) -> np.ndarray:
    """Append a column of -1 and 1 for each group but the first."""
    return np.hstack([rows, 2.0 * np.eye(n_groups)[codes][:, 1:] - 1.0])


@dataclass(frozen=True, eq=False)
class GroupScorePlan:
    """How the networks are trained, and what is to be charged for it."""

    scores: ScorePlan
    hidden: tuple[nn.Module, ScorePlan] | None  # of the group

    @property
    def events(self) -> tuple[Event, ...]:
        """What is to be charged."""
        hidden = () if self.hidden is None else (self.hidden[1].event,)
        return (self.scores.event, *hidden)

    def train(
        self,
        context: FitContext,
        task: FairTask,
        rows: np.ndarray,
        targets: np.ndarray,
        callbacks: Sequence[Any] | None,
    ) -> GroupScores:
        """Train the networks, whose events the caller has charged."""
        cells, n_groups = task.cells, len(task.cells.sizes)
        options = {"cells": cells, **context.training}
        inputs, seen = rows, None
        if task.group_aware:
            inputs = with_groups(rows, cells.codes, n_groups)
            seen = partial(_seen_with_groups, n_groups)
        of_targets = (task.network, inputs, targets, context.streams)
        network = self.scores.train(*of_targets, callbacks=callbacks, seen=seen, **options)
        posterior = None
        if self.hidden is not None:
            start, plan = self.hidden
            of = (start, rows, cells.codes, context.streams)
            posterior = plan.train(*of, seen=_seen_groups, **options)
        return GroupScores(network, posterior, n_groups)


def plan_group_scores(
    mu: float, posterior_share: float, task: FairTask, n_features: int, loss: str
) -> GroupScorePlan:
    """Divide a privacy parameter between the networks; by public facts."""
    n_samples, n_groups, hidden = sum(task.cells.sizes), len(task.cells.sizes), None
    if task.cells.strata and not task.group_aware:
        start = build_predictor("linear", n_features, n_groups if n_groups > 2 else 1)
        of_group = "softmax" if n_groups > 2 else "logistic"
        given = (mu * math.sqrt(posterior_share), start, n_samples, of_group)
        hidden = start, plan_scores(*given)
        mu *= math.sqrt(1.0 - posterior_share)
    recalibrated = loss != "squared" and bool(task.cells.strata)  # by the release of scores
    scores = plan_scores(mu, task.network, n_samples, loss, recalibrated=recalibrated)
    return GroupScorePlan(scores, hidden)


def _seen_groups(rows: np.ndarray, _: Any, codes: np.ndarray) -> tuple[np.ndarray, Any]:
    return rows, codes


def _seen_with_groups(
    n_groups: int, rows: np.ndarray, targets: Any, codes: np.ndarray
) -> tuple[np.ndarray, Any]:
    return with_groups(rows, codes, n_groups), targets
