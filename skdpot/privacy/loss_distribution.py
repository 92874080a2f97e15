"""Discretised privacy losses and what can be read from them.

Only this file touches dp-accounting's mass functions, whose arrays are private attributes.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from scipy.optimize import brentq

from skdpot.privacy.gdp import gdp_delta, gdp_epsilon

__all__ = ["LossDistribution", "LossPair"]

_MACHINE_EPSILON = float(np.finfo(np.float64).eps)
_TAIL_MASS = 1e-15
_EXP_RANGE = 600.0

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Privacy loss in one order of the neighbours, on a grid, rounded to the private side.

    Parameters
    ----------
    interval : float
        Spacing of the grid.
    lowest : int
        The first loss is ``lowest * interval``.
    probabilities : ndarray
        Mass at each loss, none negative.
    infinity_mass : float
        Mass at an infinite loss.
    """

    interval: float
    lowest: int
    probabilities: _Floats
    infinity_mass: float

    @classmethod
    def from_pmf(cls, pmf: Any, roundoff: float = 0.0) -> "LossDistribution":
        """Take over a mass function of dp-accounting.

        Parameters
        ----------
        pmf : dp_accounting.pld.pld_pmf.PLDPmf
            A pessimistic mass function.
        roundoff : float, default=0.0
            Mass that rounding may have lost. It is added at infinity, and so is whatever else
            is missing: Fourier transforms leave masses near 1e-18 that can be negative.
        """
        dense = pmf.to_dense_pmf()
        raw = np.asarray(dense._probs, dtype=np.float64)
        probabilities = np.maximum(raw, 0.0)
        infinity_mass = float(dense._infinity_mass) + roundoff + float(np.sum(probabilities - raw))
        missing = max(0.0, 1.0 - math.fsum((float(np.sum(probabilities)), infinity_mass)))
        return cls(
            float(dense._discretization),
            int(dense._lower_loss),
            probabilities,
            min(1.0, infinity_mass + missing),
        )

    @property
    def pmf(self) -> pld_pmf.DensePLDPmf:
        """The same distribution as dp-accounting's mass function."""
        return pld_pmf.DensePLDPmf(
            self.interval, self.lowest, self.probabilities, self.infinity_mass, True
        )

    @cached_property
    def values(self) -> _Floats:
        """The finite losses, increasing."""
        return (np.arange(len(self.probabilities), dtype=np.float64) + self.lowest) * self.interval

    def self_compose(self, count: int) -> "LossDistribution":
        """Return the loss of `count` independent repetitions."""
        if count == 1:
            return self
        composed = self.pmf.self_compose(count, tail_mass_truncation=_TAIL_MASS)
        # Raising a transform to the power `count` multiplies its relative error by `count`.
        return self.from_pmf(composed, roundoff=count * _MACHINE_EPSILON)

    def compose(self, other: "LossDistribution") -> "LossDistribution":
        """Return the loss of both mechanisms together; the grids must be equal."""
        composed = self.pmf.compose(other.pmf, tail_mass_truncation=_TAIL_MASS)
        return self.from_pmf(composed, roundoff=_MACHINE_EPSILON)

    def profile(self) -> tuple[_Floats, _Floats]:
        """Return the losses from 0 on and delta at each, the last one beyond all finite losses."""
        n_below = max(0, -self.lowest)
        start = max(0, self.lowest)
        losses = np.arange(start, max(start, self.lowest + len(self.probabilities)) + 1.0)
        epsilon = losses * self.interval
        masses = np.append(self.probabilities[n_below:], 0.0)[: len(losses)]
        upper = _sums_after(masses)
        # exp(epsilon) times the other data set's mass, accumulated without exp(epsilon) itself.
        lower = _sums_after(masses * np.exp(-epsilon))
        # Beyond the range of exp nothing is subtracted, which only makes delta larger.
        scaled = np.where(
            epsilon < _EXP_RANGE, np.exp(np.minimum(epsilon, _EXP_RANGE)) * lower, 0.0
        )
        delta = self.infinity_mass + np.maximum(upper - scaled, 0.0)
        if start > 0:  # every loss is positive: the profile at 0 needs a node of its own
            epsilon = np.append(0.0, epsilon)
            delta = np.append(self.delta(0.0), delta)
        return epsilon, np.minimum(np.minimum.accumulate(delta), 1.0)

    def delta(self, epsilon: float, mu: float = 0.0) -> float:
        """Return delta at `epsilon` of this loss composed with a mu-GDP release.

        The Gaussian needs no grid: the composition is the mean of its closed form at
        ``epsilon - loss``, an infinite loss counting fully.
        """
        if mu == 0.0:
            above = self.values > epsilon
            gains = -np.expm1(epsilon - self.values[above])
            return min(1.0, self.infinity_mass + float(gains @ self.probabilities[above]))
        gains = gdp_delta(epsilon - self.values, mu)
        return min(1.0, self.infinity_mass + float(gains @ self.probabilities))

    def epsilon(self, delta: float, mu: float = 0.0) -> float:
        """Return an epsilon with ``self.delta(epsilon, mu) <= delta``, smallest up to 1e-9."""
        if self.delta(0.0, mu) <= delta:
            return 0.0
        share = 0.5 * (delta - self.infinity_mass)
        if share <= 0.0:
            return math.inf
        high = self._grid_epsilon(self.infinity_mass + share) + gdp_epsilon(mu, share)

        def log_excess(epsilon: float) -> float:
            return math.log(max(self.delta(epsilon, mu), 1e-300) / delta)

        epsilon = high if log_excess(high) >= 0.0 else float(brentq(log_excess, 0.0, high))
        nudge = 1e-12
        while self.delta(epsilon, mu) > delta:
            epsilon += nudge * max(1.0, epsilon)
            nudge *= 2.0
        return epsilon

    def _grid_epsilon(self, delta: float) -> float:
        """Return the first node of the grid at which the profile is at most `delta`."""
        epsilon, profile = self.profile()
        return float(epsilon[int(np.argmax(profile <= delta))])


@dataclass(frozen=True, eq=False)
class LossPair:
    """The privacy loss in both orders of the neighbours.

    Parameters
    ----------
    forward : LossDistribution
        Loss when the data are the first neighbour (the one with the record, if they differ so).
    backward : LossDistribution or None, default=None
        Loss when they are the second one; ``None`` when both are the same.
    """

    forward: LossDistribution
    backward: LossDistribution | None = None

    @property
    def orders(self) -> tuple[LossDistribution, ...]:
        """The one or two distributions of which the larger value counts."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)

    @property
    def infinity_mass(self) -> float:
        """Probability of an infinite loss: cut-off tails and what rounding may have lost."""
        return max(order.infinity_mass for order in self.orders)

    def self_compose(self, count: int) -> "LossPair":
        """Return the losses of `count` independent repetitions."""
        return LossPair(*(order.self_compose(count) for order in self.orders))

    def compose(self, other: "LossPair") -> "LossPair":
        """Return the losses of both mechanisms together."""
        forward = self.forward.compose(other.forward)
        if self.backward is None and other.backward is None:
            return LossPair(forward)
        mine, theirs = self.backward or self.forward, other.backward or other.forward
        return LossPair(forward, mine.compose(theirs))

    def delta(self, epsilon: float, mu: float = 0.0) -> float:
        """Return delta at `epsilon` of the losses composed with a mu-GDP release."""
        return max(order.delta(epsilon, mu) for order in self.orders)

    def epsilon(self, delta: float, mu: float = 0.0) -> float:
        """Return epsilon at `delta` of the losses composed with a mu-GDP release."""
        return max(order.epsilon(delta, mu) for order in self.orders)


def _sums_after(masses: _Floats) -> _Floats:
    """Sum of all entries behind each one, added from the small end."""
    return np.append(np.cumsum(masses[:0:-1])[::-1], 0.0)
