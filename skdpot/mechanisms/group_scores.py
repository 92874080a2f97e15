"""Private networks that rules and maps for groups rest on: of the targets, and of the group.

Where what is predicted may use the group, it is a feature. Where it may not, a second network
learns the probability of each group given the features, of private rows although groups are public.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax
from torch import nn

from skdpot.mechanisms.base import FitContext
from skdpot.mechanisms.fair import FairTask
from skdpot.mechanisms.scores import ScorePlan, plan_scores
from skdpot.nets.training import build_predictor, evaluate
from skdpot.privacy.events import Event


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
