r"""Private starting points: one mean per time, or k-means centres with cluster shares.

Both release sums of rows. The rows of a time lie in a ball of public radius :math:`R`. Each
coordinate of each row is rounded to a lattice of spacing :math:`g` by itself. The sums are
therefore sums of *integers*: they are exact, they do not depend on the order of the rows, and the
discrete Gaussian noise lives on the same lattice. A rounded row has a norm of at most
:math:`r = R + \tfrac g2 \sqrt d`.

*Mean.* The sum of all rows of one time. A replaced row moves it by at most :math:`2r`. The number
of rows per time is public; dividing by it is post-processing.

*k-means.* Each of :math:`S` Lloyd steps assigns the rows to the nearest of the current centres,
which are released already. It releases a table of all clusters: the sums of their rows, and their
counts times a weight :math:`w \le R` on the lattice. Replacing the row :math:`u` by :math:`u'` has
one of two effects on this table:

* the cluster stays: one sum moves by :math:`\|u - u'\| \le 2r`, no count moves;
* the cluster changes: one cluster loses :math:`(u, w)`, another one gains :math:`(u', w)`. These
  are different entries of the table, and the squared distance is
  :math:`\|u\|^2 + \|u'\|^2 + 2 w^2 \le 2 r^2 + 2 r^2`.

In both cases it is at most :math:`4r^2`: the counts add nothing to the sensitivity of the sums, and
their noise has a standard deviation of :math:`\sigma / w` rows. One step is one Gaussian release of
sensitivity :math:`2r = 2R + g\sqrt d`. The steps compose, since each is a function of the rows and
of earlier releases. The times compose in parallel, although one time starts from the released
centres of another (`skdpot.trajectories.langevin_release` has the proof).

References
----------
Blum, Dwork, McSherry and Nissim, "Practical privacy: the SuLQ framework", PODS 2005 (private Lloyd
steps). Su, Cao, Li, Bertino and Jin, "Differentially private k-means clustering", CODASPY 2016
(starting centres at a distance from each other and from the boundary).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from skdpot._utils.arrays import FloatArray
from skdpot._utils.streams import SecretStream
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.journal import keep_no_more
from skdpot.privacy.noise import LatticeNoise, calibrate_rounded, lattice_noise, round_to_lattice
from skdpot.release.gate import pass_gate
from skdpot.release.releases import Part, Records, Release, Vectors

RowsOfTimes: TypeAlias = Sequence[npt.NDArray[np.floating]]

# Lattice steps per radius without noise: finer than any use, and sums stay exact.
_EXACT_STEPS = 2.0**36
# Attempts to place a starting centre at a distance, and bisections of that distance.
_PACKING_TRIES = 100
_PACKING_ROUNDS = 10
# A cluster whose count is below this many standard deviations of its noise keeps its centre.
_LEAST_COUNT = 4.0
# In all steps but the last, so does a cluster with less than this share of the average count.
_LEAST_SHARE = 0.125
# Distance, in radii, of the two halves of a split cluster from its centre.
_SPLIT = 1e-3


@dataclass(frozen=True, kw_only=True)
class WarmStartPlan:
    """The public parameters of a warm start, fixed before private rows are read."""

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
        of_one_row = GaussianEvent(**vars(self.noise), n_steps=self.n_iter, label="Warm start")
        return of_one_row.grouped(self.group_size)

    @property
    def lattice(self) -> float:
        """Spacing of the lattice of rounded rows and of noise."""
        if self.noise is None:
            return 2.0 ** math.floor(math.log2(self.radius / _EXACT_STEPS))
        return self.noise.lattice

    @property
    def count_weight(self) -> int:
        """Weight of a row in the count of its cluster, in units of the lattice: at most R."""
        return math.floor(self.radius / self.lattice)

    @property
    def count_sigma(self) -> float:
        """Standard deviation of a noisy count, in rows."""
        if self.noise is None:
            return 0.0
        return self.noise.sigma / (self.count_weight * self.lattice)


def plan_warm_start(
    method: Literal["mean", "kmeans"],
    mu: float,
    radius: float,
    n_features: int,
    n_clusters: int = 1,
    n_iter: int = 4,
    *,
    group_size: int = 1,
) -> WarmStartPlan:
    """Plan a `mu`-GDP release of the means, or k-means centres and shares, of each time.

    `mu` covers all rows of a person; it is infinite for no noise. k-means divides it among
    `n_iter` steps. Rows with a norm above the public `radius` are scaled down to it.
    """
    if method == "mean":
        n_clusters = n_iter = 1
    noise = None
    if not math.isinf(mu):
        # The factor absorbs the rounding of the root, so that the squares sum to at most mu**2.
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


def sphere_packed_centers(
    n_clusters: int, n_features: int, radius: float, public: np.random.Generator
) -> FloatArray:
    """Return public starting centres (k, d) at a distance from each other and the boundary."""
    low, high = 0.0, 1.0
    best = _packed(n_clusters, n_features, 0.0, public)
    for _ in range(_PACKING_ROUNDS):
        distance = (low + high) / 2
        if (packed := _packed(n_clusters, n_features, distance, public)) is None:
            high = distance
        else:
            low, best = distance, packed
    return radius * np.asarray(best)


def start_particles(
    centers: npt.ArrayLike,
    shares: npt.ArrayLike | None,
    m: int,
    spread: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw m particles per time around released centres (T, k, d) or (T, d): post-processing."""
    centers = np.asarray(centers, dtype=np.float64)
    centers = centers[:, None] if centers.ndim == 2 else centers
    n_times, k, n_features = centers.shape
    weights = np.full((n_times, k), 1.0 / k) if shares is None else np.asarray(shares, float)
    weights = weights / weights.sum(axis=1, keepdims=True)
    # Centre j gets the particles whose levels (a + 1/2) / m lie in its part of [0, 1].
    levels = (np.arange(m) + 0.5) / m
    chosen = [np.searchsorted(np.cumsum(w)[:-1], levels, side="right") for w in weights]
    at = centers[np.arange(n_times)[:, None], np.stack(chosen)]
    return at + spread * rng.standard_normal((n_times, m, n_features))


def _packed(
    n_clusters: int, n_features: int, distance: float, public: np.random.Generator
) -> list[FloatArray] | None:
    """Return points of the unit ball with disjoint balls of this radius in it, or None."""
    packed: list[FloatArray] = []
    tries = 0
    while len(packed) < n_clusters:
        direction = public.standard_normal(n_features)
        length = (1.0 - distance) * public.random() ** (1.0 / n_features)
        point = length * direction / np.linalg.norm(direction)
        if all(np.linalg.norm(point - other) >= 2 * distance for other in packed):
            packed.append(point)
        elif (tries := tries + 1) > _PACKING_TRIES:
            return None
    return packed


def _keep_none_of_several(rows: RowsOfTimes) -> None:
    """Keep a resumed fit from reusing the releases of some of several times.

    Each time has a release of its own, and the charge covers the release of one time per person. A
    second attempt might move a person to a time that is not released yet.
    """
    if len(rows) > 1:
        keep_no_more()


def release_mean_start(rows: RowsOfTimes, plan: WarmStartPlan, secret: SecretStream) -> FloatArray:
    """Release the mean of each time; row counts are public. Charge ``plan.event`` first."""
    _keep_none_of_several(rows)
    means, origin = np.empty((len(rows), plan.n_features)), np.zeros((1, plan.n_features))
    for i, of_time in enumerate(rows):
        sums, _ = _released_sums(of_time, origin, plan, secret=secret, time=i)
        means[i] = sums[0] / len(of_time)
    return _shortened(means, plan.radius)


def release_kmeans_start(
    rows: RowsOfTimes, plan: WarmStartPlan, secret: SecretStream, public: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Release the centres and shares of clusters at each time. Charge ``plan.event`` first.

    The starting centres are public, and the later ones are functions of releases.
    """
    _keep_none_of_several(rows)
    # Scaled before anything else, so that no warning of arithmetic depends on extreme values.
    scaled = [_shortened(of_time, plan.radius) for of_time in rows]
    n_times, k = len(rows), plan.n_clusters
    centers = np.empty((n_times, k, plan.n_features))
    shares = np.empty((n_times, k))
    packed = sphere_packed_centers(k, plan.n_features, plan.radius, public)
    for step in range(plan.n_iter):
        for i in range(n_times):
            if step == 0:
                centers[i] = packed if i == 0 else centers[i - 1]
            centers[i], shares[i] = _lloyd_step(
                scaled[i],
                centers[i],
                plan,
                secret=secret,
                public=public,
                time=i,
                is_last=step == plan.n_iter - 1,
            )
    return centers, shares


def _lloyd_step(
    rows: npt.NDArray[np.floating],
    centers: FloatArray,
    plan: WarmStartPlan,
    *,
    secret: SecretStream,
    public: np.random.Generator,
    time: int = 0,
    is_last: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """Return new centres and shares of the clusters, as a function of one release of the rows."""
    sums, counts = _released_sums(rows, centers, plan, secret=secret, time=time)
    least = max(1.0, _LEAST_COUNT * plan.count_sigma)
    if not is_last:  # a better optimum is worth more than a cluster of a few rows
        least = max(least, _LEAST_SHARE * len(rows) / plan.n_clusters)
    large = counts >= least
    moved: FloatArray = np.where(large[:, None], sums / np.maximum(counts, 1.0)[:, None], centers)
    for j in np.flatnonzero(~large):
        largest = int(np.argmax(counts))
        if counts[largest] < 2 * least:
            break
        # A small cluster would stay small: it gets one half of the largest one.
        offset = public.standard_normal(plan.n_features)
        offset *= _SPLIT * plan.radius / np.linalg.norm(offset)
        moved[j] = moved[largest] - offset
        moved[largest] += offset
        counts[j] = counts[largest] = counts[largest] / 2
    return _shortened(moved, plan.radius), _on_simplex(counts / len(rows))


def _released_sums(
    rows: npt.NDArray[np.floating],
    centers: FloatArray,
    plan: WarmStartPlan,
    *,
    secret: SecretStream,
    time: int,
) -> tuple[FloatArray, FloatArray]:
    """Release the sums (k, d) and the counts (k,) of the clusters of one time.

    The noise is drawn before the rows are read.
    """
    k, d, noise = plan.n_clusters, plan.n_features, plan.noise
    table = np.zeros((k, d + 1), dtype=np.int64)
    if noise is not None:
        table += lattice_noise(noise.sigma, table.shape, secret, lattice=noise.lattice, mu=noise.mu)
    units = round_to_lattice(_shortened(rows, plan.radius), plan.lattice)
    weights = np.full((len(rows), 1), plan.count_weight, dtype=np.int64)
    np.add.at(table, _nearest(rows, centers), np.hstack([units, weights]))
    release = Release(
        "cluster_sums",
        (table[:, :d].astype(np.float64) * plan.lattice, table[:, d] / plan.count_weight),
        {"plan": plan, "centers": centers, "time": time},
        event=plan.event,
        linear=_sums_of_rows,
        **({} if noise is None else vars(noise)),  # of the sums
    )
    return pass_gate(release)


def _sums_of_rows(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield the terms of the rows of one time in the sums and in the counts."""
    (rows, times), (sums, counts) = records, release.value
    plan: WarmStartPlan = release.facts["plan"]
    members = np.flatnonzero(times == release.facts["time"])
    scaled = _shortened(rows[members], plan.radius)
    units = round_to_lattice(scaled, plan.lattice) * plan.lattice
    table = sums
    if plan.n_clusters > 1:  # the count of a single cluster is public
        weight = plan.count_weight * plan.lattice
        table = np.column_stack([sums, weight * counts])
        units = np.column_stack([units, np.full(len(members), weight)])
    terms = np.zeros((len(members), *table.shape))
    terms[np.arange(len(members)), _nearest(scaled, release.facts["centers"])] = units
    yield Part(
        value=table.ravel(),
        sigma=float(np.max(release.sigma)),
        rows=Vectors(terms.reshape(len(members), -1)),
        members=members,
    )


def _nearest(rows: npt.NDArray[np.floating], centers: FloatArray) -> npt.NDArray[np.intp]:
    """Return the index of the nearest centre of each row, by arithmetic on this row alone."""
    return cdist(rows, centers, "sqeuclidean").argmin(axis=1)


def _shortened(rows: npt.NDArray[np.floating], radius: float) -> FloatArray:
    """Scale each row with a larger norm down to slightly less than the radius."""
    limit = 1e100 * radius  # so that no square overflows
    shortened: FloatArray = np.clip(rows.astype(np.float64), -limit, limit)
    norms = np.sqrt(np.einsum("ij,ij->i", shortened, shortened))
    inside = radius * (1 - 1e-12)
    shortened *= np.where(norms > inside, inside / np.maximum(norms, inside), 1.0)[:, None]
    return shortened


def _on_simplex(shares: FloatArray) -> FloatArray:
    """Project shares to the simplex of non-negative shares with sum one."""
    descending = np.sort(shares)[::-1]
    excess = (np.cumsum(descending) - 1.0) / np.arange(1, len(shares) + 1)
    return np.maximum(shares - excess[np.flatnonzero(descending > excess)[-1]], 0.0)
