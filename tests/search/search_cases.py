"""A private classifier that takes milliseconds, keeps a log, and what searches of it share."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from skdpot import PrivateSearchCV
from skdpot._utils.parameters import check_is_fitted
from skdpot._utils.rows import validate_rows
from skdpot._utils.streams import spawn_streams
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.charges import charge
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import gaussian_noise
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.selection import TrialLaw
from skdpot.privacy.targets import privacy_target
from skdpot.release.gate import pass_gate
from skdpot.release.releases import Release
from tests.payer import Payer

LOG: list[Any] = []
BAD = 0.7654321  # a value that a fault is about, which no made-up row has
FLOW = {"bounds": (-1, 1), "n_projections": 3, "n_steps": 3, "n_particles": 50}


def search(estimator=None, candidates=None, **options):
    """A search with three trials on average, by default of a `NoisyThreshold`."""
    estimator = NoisyThreshold() if estimator is None else estimator
    candidates = {"shift": [-0.5, 0.1, 0.6]} if candidates is None else candidates
    return PrivateSearchCV(estimator, candidates, **({"n_trials": 3} | options))


def with_trials(monkeypatch, number):
    """Fix the number of trials."""
    monkeypatch.setattr(TrialLaw, "draw", lambda law, stream: number)


@dataclass(eq=False, repr=False)
class NoisyThreshold(PrivateEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Predict 1 where the first feature exceeds its noisy mean plus `shift`."""

    shift: float = 0.0
    epsilon: float = 1.0
    delta: float = 1e-5
    budget: Any = None
    random_state: Any = None
    verbose: int = 0
    fault: Any = None

    def fit(self, X, y, weights=None):
        rows = validate_rows(self, X, reset=True)
        self.classes_ = np.unique(y)
        target, sensitivity = privacy_target(self.epsilon, self.delta, self.budget), 2 / len(rows)
        event = NonPrivateEvent()
        if math.isfinite(target.epsilon):
            event = calibrate(target, lambda s: GaussianEvent(sigma=s, sensitivity=sensitivity))
        if self.fault == "fails" and BAD in rows:
            raise ValueError(f"row {rows[0, 0]} is bad")
        if self.fault == "greedy":
            event = GaussianEvent(sigma=event.sigma / 3, sensitivity=event.sensitivity)
        sigma = getattr(event, "sigma", None)
        budget = None if self.fault == "does not pay" else self.budget
        given = {"n_samples": len(rows), "assumptions": ()}
        payer = Payer(budget, self.epsilon, self.delta, "fit")
        self.privacy_spent_ = charge(payer, event, **given, noise_given=self.fault == "greedy")
        LOG.append((self.get_params(), rows, np.asarray(y), weights))
        if self.fault == "other event":
            other, payer.budget = GaussianEvent(sigma=7.0, sensitivity=1.0), None
            self.privacy_spent_ = charge(payer, other, **given, noise_given=True)
        if self.fault == "states nothing":
            del self.privacy_spent_
        stream = spawn_streams(self.random_state, "NoisyThreshold").secret
        noise = 0.0 if sigma is None else float(gaussian_noise(sigma, 1, stream)[0])
        mean = float(np.clip(rows[:, 0], -1, 1).mean()) + noise
        self.mean_ = pass_gate(Release("mean", mean, sigma=sigma or 0.0, event=event))
        return self

    def predict(self, X):
        check_is_fitted(self)
        rows = validate_rows(self, X, reset=False)
        above = rows[:, 0] > self.mean_ + self.shift
        return self.classes_[np.minimum(above.astype(int), len(self.classes_) - 1)]
