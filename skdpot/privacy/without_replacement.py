"""Gaussian steps on secret subsets: the C_p account for replace-one.

The privacy profile of one step on a uniformly random subset that holds a given record with
probability p is at most, for every epsilon >= 0,

    C_p(epsilon) = p * delta_G(log(1 + (exp(epsilon) - 1) / p)),

delta_G being the profile of the same step on all records [1]_. Replace-one is symmetric, so
the profile at negative epsilon follows and C_p belongs to one pair of distributions, whose
composition bounds the composition of the steps [2]_. Normal approximations of that composition
are not bounds: they can fall below what an adversary attains.

References
----------
.. [1] B. Balle, G. Barthe, M. Gaboardi, "Privacy Amplification by Subsampling", 2018, theorem 9.
.. [2] Y. Zhu, J. Dong, Y.-X. Wang, "Optimal Accounting of Differential Privacy via
   Characteristic Function", 2022, proposition 30.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skdpot.privacy.gdp import gdp_delta
from skdpot.privacy.loss_distribution import LossPair
from skdpot.privacy.symmetric_profile import symmetric_losses

__all__ = ["SubsetStep", "amplified_delta"]

_Floats = npt.NDArray[np.float64]


def amplified_delta(epsilon: _Floats, mu: float, rate: float) -> _Floats:
    """Evaluate the profile C_p of a mu-GDP step on a sample.

    Parameters
    ----------
    epsilon : ndarray
        At least 0.
    mu : float
        Privacy of the step on all records, ``sensitivity / sigma``.
    rate : float
        Probability in (0, 1] that a given record is in the sample.

    Returns
    -------
    ndarray
        An upper bound of delta at every `epsilon`.
    """
    # log(1 + (e^eps - 1) / p) = eps - log(p) + log(1 - (1 - p) e^-eps), which cannot overflow;
    # near 0 the first form is the accurate one.
    near = np.log1p(np.expm1(np.minimum(epsilon, 1.0)) / rate)
    far = epsilon - math.log(rate) + np.log1p(-(1.0 - rate) * np.exp(-np.maximum(epsilon, 1.0)))
    return rate * gdp_delta(np.where(epsilon < 1.0, near, far), mu)


@dataclass(frozen=True)
class SubsetStep:
    """One Gaussian step on a secret sample, under replace-one.

    Parameters
    ----------
    mu : float
        Privacy of the step on all records, ``sensitivity / sigma``.
    rate : float
        Probability in (0, 1) that a given record is in the sample.
    """

    mu: float
    rate: float

    def losses(self, interval: float) -> LossPair:
        """Discretise C_p."""
        return symmetric_losses(
            lambda epsilon: amplified_delta(epsilon, self.mu, self.rate), interval
        )
