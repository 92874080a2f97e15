r"""Private starting points: one mean a time, or k-means centres with the shares of their clusters.

Both release sums of rows. The rows of a time lie in a ball of public radius :math:`R`. Each
coordinate of each row is rounded to a lattice of spacing :math:`g` by itself, so that the sums are
sums of *integers*: they are exact, they do not depend on the order of the rows, and the discrete
Gaussian noise lives on the same lattice. A rounded row has a norm of at most
:math:`r = R + \tfrac g2 \sqrt d`.

*Mean.* The sum of all rows of one time. A replaced row moves it by at most :math:`2r`. The number
of rows a time is public; dividing by it is post-processing.

*k-means.* Each of :math:`S` Lloyd steps assigns the rows to the nearest of the current centres,
which are public by then, and releases for all clusters together the sums of their rows and their
counts, the latter times a weight :math:`w \le R` on the lattice. Replacing the row :math:`u` by
:math:`u'` does one of two things to this table:

* the cluster stays: one sum moves by :math:`\|u - u'\| \le 2r`, no count moves;
* the cluster changes: one cluster loses :math:`(u, w)`, another one gains :math:`(u', w)`. These
  are different entries of the table, so that the squared distance is
  :math:`\|u\|^2 + \|u'\|^2 + 2 w^2 \le 2 r^2 + 2 r^2`.

Either way it is at most :math:`4r^2`: the counts come free with the sums, at the precision of
:math:`\sigma / w` rows. One step is one Gaussian release of sensitivity
:math:`2r = 2R + g\sqrt d`; the steps compose, each being a function of the rows and of earlier
releases. The times compose in parallel, even where one time starts from the released centres of
another (`skdpot.trajectories.langevin_plan` has the proof).

References
----------
Blum, Dwork, McSherry and Nissim, "Practical privacy: the SuLQ framework", PODS 2005 (private Lloyd
steps). Su, Cao, Li, Bertino and Jin, "Differentially private k-means clustering", CODASPY 2016
(starting centres that keep apart from each other and from the boundary).
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.group_privacy import check_group_size, in_different_parts
from skdpot.privacy.noise import LatticeNoise, calibrate_rounded

__all__ = ["WarmStartPlan", "plan_kmeans_start", "plan_mean_start"]

# Lattice steps a radius when there is no noise: finer than any use, and sums stay exact.
_EXACT_STEPS = 2.0**36


@dataclass(frozen=True, kw_only=True)
class WarmStartPlan:
    """The public part of a warm start, fixed before data are touched.

    Parameters
    ----------
    method : {"mean", "kmeans"}
        What is released for each time.
    noise : LatticeNoise or None
        Noise of one release; None is no noise and no privacy.
    radius : float
        Rows are shortened to this norm.
    n_features : int
        Number of features.
    n_clusters : int
        Centres a time; 1 for the mean.
    n_iter : int
        Releases a time: Lloyd steps; 1 for the mean.
    group_size : int
        Largest number of rows of a person, all at different times.
    """

    method: Literal["mean", "kmeans"]
    noise: LatticeNoise | None
    radius: float
    n_features: int
    n_clusters: int
    n_iter: int
    group_size: int

    @property
    def event(self) -> Event:
        """The charge for the releases of all times together."""
        if self.noise is None:
            return NonPrivateEvent()
        of_one_row = GaussianEvent(
            sigma=self.noise.sigma,
            sensitivity=self.noise.sensitivity,
            lattice=self.noise.lattice,
            n_steps=self.n_iter,
        )
        return in_different_parts(of_one_row, self.group_size)

    @property
    def lattice(self) -> float:
        """Spacing that rows are rounded to, and on which the noise lives."""
        if self.noise is None:
            return 2.0 ** math.floor(math.log2(self.radius / _EXACT_STEPS))
        return self.noise.lattice

    @property
    def count_weight(self) -> int:
        """What one row adds to its cluster's count, in units of the lattice: at most the radius."""
        return math.floor(self.radius / self.lattice)

    @property
    def count_sigma(self) -> float:
        """Standard deviation of a noisy count, in rows."""
        if self.noise is None:
            return 0.0
        return self.noise.sigma / (self.count_weight * self.lattice)


def plan_mean_start(
    mu: float, radius: float, n_features: int, *, group_size: int = 1
) -> WarmStartPlan:
    """Plan the release of the mean of each time.

    Parameters
    ----------
    mu : float
        Privacy parameter that the warm start may use for all rows of a person; infinity for no
        noise.
    radius : float
        Public norm that no row exceeds, or is shortened to.
    n_features : int
        Number of features.
    group_size : int, default=1
        Largest number of rows of a person, all at different times.

    Returns
    -------
    WarmStartPlan
        Its event is `mu`-GDP.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    CalibrationError
        If no noise reaches `mu`.
    """
    return _plan("mean", mu, radius, n_features, 1, 1, group_size)


def plan_kmeans_start(
    mu: float,
    radius: float,
    n_features: int,
    n_clusters: int,
    n_iter: int = 4,
    *,
    group_size: int = 1,
) -> WarmStartPlan:
    """Plan the release of k-means centres and shares of each time.

    Parameters
    ----------
    mu : float
        Privacy parameter that the warm start may use for all rows of a person; infinity for no
        noise.
    radius : float
        Public norm that no row exceeds, or is shortened to.
    n_features : int
        Number of features.
    n_clusters : int
        Number of centres.
    n_iter : int, default=4
        Number of Lloyd steps, among which `mu` is divided.
    group_size : int, default=1
        Largest number of rows of a person, all at different times.

    Returns
    -------
    WarmStartPlan
        Its event is `mu`-GDP.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    CalibrationError
        If no noise reaches `mu`.
    """
    return _plan("kmeans", mu, radius, n_features, n_clusters, n_iter, group_size)


def _plan(
    method: Literal["mean", "kmeans"],
    mu: float,
    radius: float,
    n_features: int,
    n_clusters: int,
    n_iter: int,
    group_size: int,
) -> WarmStartPlan:
    counts = {"n_features": n_features, "n_clusters": n_clusters, "n_iter": n_iter}
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ValueError(f"`{name}` must be an integer >= 1, got {count!r}.")
    if isinstance(radius, bool) or not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"`radius` must be positive and finite, got {radius!r}.")
    if isinstance(mu, bool) or not mu > 0:
        raise ValueError(f"`mu` must be positive (or infinity), got {mu!r}.")
    group_size = check_group_size(group_size)
    noise = None
    if not math.isinf(mu):
        # The factor absorbs the rounding of the root: the squares must not exceed mu**2.
        of_one = mu / math.sqrt(n_iter * group_size) * (1 - 1e-13)
        noise = calibrate_rounded(of_one, 2.0 * radius, n_features)
    return WarmStartPlan(
        method=method,
        noise=noise,
        radius=float(radius),
        n_features=n_features,
        n_clusters=n_clusters,
        n_iter=n_iter,
        group_size=group_size,
    )
