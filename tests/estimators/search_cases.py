"""A private classifier that takes milliseconds, and keeps a log of what happened to it."""

import math

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from skdpot._utils.validation import check_is_fitted, spawn_streams, validate_rows
from skdpot.privacy.accounting import calibrate, privacy_target
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import gaussian_noise
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.spent import charge
from skdpot.release.release import Release, released
from tests.payer import Payer

__all__ = ["LOG", "NoisyThreshold"]

LOG = []


class NoisyThreshold(PrivateEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Predict 1 where the first feature exceeds its noisy mean plus `shift`."""

    def __init__(
        self,
        shift=0.0,
        epsilon=1.0,
        delta=1e-5,
        budget=None,
        random_state=None,
        verbose=0,
        fault=None,
    ):
        self.shift = shift
        self.epsilon = epsilon
        self.delta = delta
        self.budget = budget
        self.random_state = random_state
        self.verbose = verbose
        self.fault = fault

    def fit(self, X, y, weights=None):
        rows = validate_rows(self, X, reset=True)
        self.classes_ = np.unique(y)
        LOG.append((self.get_params(), rows, np.asarray(y), weights))
        target = privacy_target(self.epsilon, self.delta, self.budget)
        event = (
            NonPrivateEvent()
            if math.isinf(target.epsilon)
            else calibrate(
                target, lambda sigma: GaussianEvent(sigma=sigma, sensitivity=2.0 / len(rows))
            )
        )
        if self.fault == "fails":
            raise ValueError(f"row {rows[0, 0]} is bad")
        if self.fault == "greedy":
            event = GaussianEvent(sigma=event.sigma / 3, sensitivity=event.sensitivity)
        sigma = getattr(event, "sigma", None)
        budget = None if self.fault == "does not pay" else self.budget
        self.privacy_spent_ = charge(
            Payer(budget, self.epsilon, self.delta, "fit"),
            event,
            n_samples=len(rows),
            assumptions=(),
            noise_given=self.fault == "greedy",
        )
        if self.fault == "other event":
            self.privacy_spent_ = charge(
                Payer(None, self.epsilon, self.delta),
                GaussianEvent(sigma=7.0, sensitivity=1.0),
                n_samples=len(rows),
                assumptions=(),
                noise_given=True,
            )
        if self.fault == "states nothing":
            del self.privacy_spent_
        stream = spawn_streams(self.random_state, "NoisyThreshold").secret
        noise = 0.0 if sigma is None else float(gaussian_noise(sigma, 1, stream)[0])
        mean = float(np.clip(rows[:, 0], -1, 1).mean()) + noise
        self.mean_ = released(Release("mean", mean, sigma=sigma or 0.0, event=event))
        return self

    def predict(self, X):
        check_is_fitted(self)
        rows = validate_rows(self, X, reset=False)
        above = rows[:, 0] > self.mean_ + self.shift
        return self.classes_[np.minimum(above.astype(int), len(self.classes_) - 1)]
