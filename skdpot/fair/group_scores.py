"""Networks that score rows, and groups where these are hidden from predictions.

If predictions may use the group, it is a feature. Otherwise a second network learns the probability
of each group given the features, with privacy too: groups are public, but rows are not.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import softmax
from torch import nn

from skdpot.base import FitContext
from skdpot.fair.mechanism import FairTask
from skdpot.fair.score_noise import ScoreSpread
from skdpot.fair.scores import ScorePlan, plan_scores
from skdpot.nets.networks import build_predictor, evaluate
from skdpot.privacy.events import Event


@dataclass(frozen=True, eq=False)
class GroupScores:
    """A trained network of the targets, and one of the group if it is hidden."""

    network: nn.Module
    posterior: nn.Module | None
    n_groups: int
    spread: ScoreSpread | None = None  # of the outputs, for what is said of their errors

    def __call__(self, rows: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return outputs and probabilities of groups; `codes` are read if groups are known."""
        rows = np.asarray(rows, dtype=np.float64)
        if self.posterior is None:
            groups = np.eye(self.n_groups)[codes]
            rows = with_groups(rows, codes, self.n_groups)
        else:
            groups = class_probabilities(evaluate(self.posterior, rows, None))
        return evaluate(self.network, rows, None), groups

    def probabilities(self, rows: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each class and of each group."""
        logits, groups = self(rows, codes)
        return class_probabilities(logits), groups


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
    """How the networks are trained."""

    scores: ScorePlan
    hidden: tuple[nn.Module, ScorePlan] | None  # the network of the group

    @property
    def events(self) -> tuple[Event, ...]:
        """The events to charge."""
        hidden = () if self.hidden is None else (self.hidden[1].event,)
        return (self.scores.event, *hidden)

    def train(
        self,
        context: FitContext,
        task: FairTask,
        rows: np.ndarray,
        targets: np.ndarray,
        *,
        most_signal: float = math.inf,
    ) -> GroupScores:
        """Train the networks, whose events the caller has charged.

        Outputs have a variance of at most `most_signal` without noise.
        """
        cells, n_groups = task.cells, len(task.cells.sizes)
        options = {"cells": cells, **context.training}
        inputs, seen = rows, None
        if task.group_aware:
            inputs = with_groups(rows, cells.codes, n_groups)
            seen = partial(_rows_with_groups, n_groups)
        network, spread = self.scores.train(
            task.network,
            inputs,
            targets,
            context.streams,
            callbacks=task.callbacks,
            seen=seen,
            most_signal=most_signal,
            **options,
        )
        posterior = None
        if self.hidden is not None:
            start, plan = self.hidden
            posterior, _ = plan.train(
                start, rows, cells.codes, context.streams, seen=_groups_as_targets, **options
            )
        return GroupScores(network, posterior, n_groups, spread)


def plan_group_scores(
    mu: float, posterior_share: float, task: FairTask, n_features: int, loss: str
) -> GroupScorePlan:
    """Divide a privacy parameter between the networks, by public facts."""
    n_samples, n_groups, hidden = sum(task.cells.sizes), len(task.cells.sizes), None
    if task.cells.strata and not task.group_aware:
        start = build_predictor("linear", n_features, n_groups if n_groups > 2 else 1)
        of_group = "softmax" if n_groups > 2 else "logistic"
        hidden = start, plan_scores(mu * math.sqrt(posterior_share), start, n_samples, of_group)
        mu *= math.sqrt(1.0 - posterior_share)
    recalibrated = loss != "squared" and bool(task.cells.strata)  # by the counts of scores
    scores = plan_scores(mu, task.network, n_samples, loss, recalibrated=recalibrated)
    return GroupScorePlan(scores, hidden)


# What the networks are trained on, made of the rows, targets and groups of an audit.


def _groups_as_targets(
    rows: np.ndarray, _: np.ndarray, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    return rows, codes


def _rows_with_groups(
    n_groups: int, rows: np.ndarray, targets: np.ndarray, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    return with_groups(rows, codes, n_groups), targets
