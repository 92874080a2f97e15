r"""How many times a private selection tries: a random number, whose law is public.

The number itself stays secret. A *fixed* number would cost far more: see
`skdpot.privacy.private_selection`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from skdpot._utils.rng import SecretStream

__all__ = ["MOST_STEEP_TRIALS", "STEEP_SHAPE", "TrialLaw"]

_Floats: TypeAlias = npt.NDArray[np.float64]

STEEP_SHAPE = 3.0  # laws of a larger shape drop off fast, which takes more to account for
MOST_STEEP_TRIALS = 50.0  # on average, for them

_SMALLEST_LOG = -40.0  # of the parameter: means beyond any search
_NEGLIGIBLE = 1e-25


@dataclass(frozen=True)
class TrialLaw:
    r"""The law of the number K of trials, at least one.

    Truncated negative binomial, with :math:`P[K = k] \propto (1 - \gamma)^k \prod_{l<k}
    \frac{l + \eta}{l + 1}`, of which :math:`\eta = 1` is the geometric and :math:`\eta = 0` the
    logarithmic law; for :math:`\eta = \infty` the Poisson law given :math:`K \ge 1`.

    Parameters
    ----------
    shape : float
        :math:`\eta \ge -1/2`, or infinity for Poisson. A larger shape makes few trials less likely.
    parameter : float
        :math:`\gamma \in (0, 1]`, or the rate of the Poisson law.
    """

    shape: float
    parameter: float

    @classmethod
    def with_mean(cls, mean: float, shape: float) -> "TrialLaw":
        """Return the law of this shape with ``E[K] = mean``, which is at least 1."""
        if mean <= 1.0:
            return cls(shape, _NEGLIGIBLE if math.isinf(shape) else 1.0)

        def excess(log_parameter: float) -> float:
            return math.log(cls(shape, math.exp(log_parameter)).mean / mean)

        highest = math.log(mean) + 1.0 if math.isinf(shape) else -1e-12
        root = brentq(excess, _SMALLEST_LOG, highest, xtol=1e-14, rtol=1e-14)
        return cls(shape, math.exp(float(root)))

    @property
    def mean(self) -> float:
        """Expected number of trials."""
        if math.isinf(self.shape):
            return self.parameter / -math.expm1(-self.parameter)
        if self.parameter == 1.0:
            return 1.0
        log = math.log(self.parameter)
        scale = -1.0 / log if self.shape == 0.0 else self.shape / -math.expm1(self.shape * log)
        return (1.0 - self.parameter) / self.parameter * scale

    def slope(self, above: _Floats) -> _Floats:
        r"""Return :math:`f'(1 - t)`, f being the generating function :math:`E[x^K]`.

        It is the density, relative to one trial, with which the best of all trials has a rank
        that a share t of trials exceeds.
        """
        if math.isinf(self.shape):
            return self.mean * np.exp(-self.parameter * above)
        tilted: _Floats = self.mean * (1.0 + self._odds * above) ** -(self.shape + 1.0)
        return tilted

    def curvature(self, above: _Floats) -> _Floats:
        r"""Return :math:`f''(1 - t)`."""
        if math.isinf(self.shape):
            return self.parameter * self.slope(above)
        factor = (self.shape + 1.0) * self._odds
        return factor * self.slope(above) / (1.0 + self._odds * above)

    def curvature_growth(self, above: _Floats) -> _Floats:
        r"""Return :math:`f'''(1 - t)`."""
        if math.isinf(self.shape):
            return self.parameter * self.curvature(above)
        factor = (self.shape + 2.0) * self._odds
        return factor * self.curvature(above) / (1.0 + self._odds * above)

    def misses(self, share: float) -> float:
        """Return the probability that no trial is among the best `share` of all trials."""
        below = 1.0 - share
        if math.isinf(self.shape):
            return math.expm1(self.parameter * below) / math.expm1(self.parameter)
        if self.parameter == 1.0:
            return below
        inner, outer = math.log1p(-(1.0 - self.parameter) * below), math.log(self.parameter)
        if self.shape == 0.0:
            return inner / outer
        return math.expm1(-self.shape * inner) / math.expm1(-self.shape * outer)

    def quantile(self, level: float) -> int:
        """Return the smallest k with ``P[K <= k] >= level``, for a level in (0, 1)."""
        return self._invert(level)

    def draw(self, stream: SecretStream) -> int:
        """Draw the number of trials."""
        return self._invert((int(stream.random_uint64(1)[0]) + 0.5) / 2.0**64)

    def thinned(self, leak: float) -> "TrialLaw":
        """Return the law of K given that none of K coins of probability `leak` falls heads.

        Its probabilities are proportional to ``(1 - leak) ** k`` times those of K, which changes
        the parameter and not the shape.
        """
        if math.isinf(self.shape):
            return TrialLaw(self.shape, self.parameter * (1.0 - leak))
        return TrialLaw(self.shape, self.parameter + (1.0 - self.parameter) * leak)

    @property
    def _odds(self) -> float:
        return (1.0 - self.parameter) / self.parameter

    def _masses(self) -> Iterator[tuple[int, float]]:
        """Yield k and P[K = k], k = 1, 2, ..."""
        poisson, k = math.isinf(self.shape), 1
        mass = float(self.slope(np.ones(1))[0])  # f'(0)
        while True:
            yield k, mass
            grows = self.parameter if poisson else (1.0 - self.parameter) * (k + self.shape)
            mass *= grows / (k + 1)
            k += 1

    def _invert(self, level: float) -> int:
        for k, mass in self._masses():
            level -= mass
            if level <= 0.0 or (mass < _NEGLIGIBLE and k > self.mean):
                return k
        raise AssertionError  # the masses never end
