"""The release of private starting points: means, or k-means centres with their shares.

The sensitivities are proved in `skdpot.trajectories.warm_start_plan`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from skdpot._utils.rng import SecretStream
from skdpot.privacy.noise import lattice_noise, round_to_lattice
from skdpot.privacy.recording import released
from skdpot.trajectories.starting_points import sphere_packed_centers, start_particles
from skdpot.trajectories.warm_start_plan import (
    WarmStartPlan,
    plan_kmeans_start,
    plan_mean_start,
)

__all__ = [
    "WarmStartPlan",
    "plan_kmeans_start",
    "plan_mean_start",
    "release_kmeans_start",
    "release_mean_start",
    "sphere_packed_centers",
    "start_particles",
]

FloatArray = npt.NDArray[np.float64]
Rows = Sequence[npt.NDArray[np.floating]]

# A cluster of fewer rows than this many standard deviations of its count keeps its centre.
_LEAST_COUNT = 4.0
# And so does one of less than this part of an average cluster, while there is time to do better.
_LEAST_SHARE = 0.125
# Distance of the halves of a split cluster from where it was, in radii.
_SPLIT = 1e-3


def release_mean_start(rows: Rows, plan: WarmStartPlan, secret: SecretStream) -> FloatArray:
    """Release the mean of each time. Charge ``plan.event`` first.

    Parameters
    ----------
    rows : sequence of T ndarrays of shape (N_i, d)
        Private rows of each time, finite. A time without rows gets a centre of noise alone.
    plan : WarmStartPlan
        Made by `plan_mean_start`.
    secret : SecretStream
        Draws the noise.

    Returns
    -------
    ndarray of shape (T, d)
        Noisy means, shortened to the ball.

    Raises
    ------
    ValueError
        If the plan is for something else.

    Privacy
    -------
    ``plan.event`` under replace-one of ``x`` given its time stamp; the numbers of rows are public.
    """
    _check_plan(rows, plan, "mean")
    clusters = (np.zeros(len(of_time), dtype=np.intp) for of_time in rows)
    sums = [_noisy_sums(r, c, plan, secret)[0][0] for r, c in zip(rows, clusters, strict=True)]
    noisy = released("sums", np.stack(sums), lambda: {"plan": plan})
    means = [total / max(len(r), 1) for total, r in zip(noisy, rows, strict=True)]
    return _shortened(np.stack(means), plan.radius)


def release_kmeans_start(
    rows: Rows, plan: WarmStartPlan, secret: SecretStream, public: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Release the centres of clusters and their shares for each time. Charge ``plan.event`` first.

    Parameters
    ----------
    rows : sequence of T ndarrays of shape (N_i, d)
        Private rows of each time, finite.
    plan : WarmStartPlan
        Made by `plan_kmeans_start`.
    secret : SecretStream
        Draws the noise.
    public : numpy.random.Generator
        Draws the starting centres of the first time, and how clusters are split.

    Returns
    -------
    centers : ndarray of shape (T, k, d)
        Within the ball. Cluster j of one time started from cluster j of the time before.
    shares : ndarray of shape (T, k)
        Share of the rows in each cluster; those of a time add up to one.

    Raises
    ------
    ValueError
        If the plan is for something else.

    Privacy
    -------
    ``plan.event`` under replace-one of ``x`` given its time stamp; the numbers of rows are public.
    The starting centres are drawn in public, the others come from releases.

    Notes
    -----
    In the first step each time starts from what the time before has just released; later ones
    start from their own centres. A cluster in which the noise leaves nothing to be seen gets one
    half of the largest one; without this most starts end in poor optima. All of this is
    post-processing of releases.
    """
    _check_plan(rows, plan, "kmeans")
    # First of all, so that no arithmetic, and no warning of it, depends on wild values.
    kept = [_shortened(of_time, plan.radius) for of_time in rows]
    n_times, k = len(rows), plan.n_clusters
    centers = np.empty((n_times, k, plan.n_features))
    shares = np.empty((n_times, k))
    packed = sphere_packed_centers(k, plan.n_features, plan.radius, public)
    for step in range(plan.n_iter):
        for i in range(n_times):
            if step == 0:
                centers[i] = packed if i == 0 else centers[i - 1]
            centers[i], shares[i] = _lloyd_step(
                kept[i], centers[i], plan, secret, public, is_last=step == plan.n_iter - 1
            )
    return centers, shares


def _check_plan(rows: Rows, plan: WarmStartPlan, method: str) -> None:
    if plan.method != method:
        raise ValueError(f'The plan is for a warm start by "{plan.method}", not "{method}".')
    if not len(rows):
        raise ValueError("`rows` must hold the rows of at least one time.")
    if any(of_time.ndim != 2 or of_time.shape[1] != plan.n_features for of_time in rows):
        raise ValueError(f"`rows` must have {plan.n_features} features at every time.")


def _lloyd_step(
    rows: npt.NDArray[np.floating],
    centers: FloatArray,
    plan: WarmStartPlan,
    secret: SecretStream,
    public: np.random.Generator,
    *,
    is_last: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """Return new centres and the shares of the clusters; of the rows it sees one release."""
    sums, counts = released(
        "cluster_sums",
        _noisy_sums(rows, _nearest(rows, centers), plan, secret),
        lambda: {"centers": centers.copy(), "plan": plan},
    )
    least = max(1.0, _LEAST_COUNT * plan.count_sigma)
    if not is_last:  # a cluster of a few rows is worth less than a better optimum
        least = max(least, _LEAST_SHARE * len(rows) / plan.n_clusters)
    seen = counts >= least
    moved: FloatArray = np.where(seen[:, None], sums / np.maximum(counts, 1.0)[:, None], centers)
    for j in np.flatnonzero(~seen):
        largest = int(np.argmax(counts))
        if counts[largest] < 2 * least:
            break
        # An empty cluster would stay empty: it gets one half of the largest one.
        offset = public.standard_normal(plan.n_features)
        offset *= _SPLIT * plan.radius / np.linalg.norm(offset)
        moved[j] = moved[largest] - offset
        moved[largest] += offset
        counts[j] = counts[largest] = counts[largest] / 2
    return _shortened(moved, plan.radius), _on_simplex(counts / max(len(rows), 1))


def _nearest(rows: npt.NDArray[np.floating], centers: FloatArray) -> npt.NDArray[np.intp]:
    """Return the nearest centre of each row, by arithmetic on this row alone."""
    best = np.full(len(rows), np.inf)
    nearest = np.zeros(len(rows), dtype=np.intp)
    for j, center in enumerate(centers):
        squares = np.zeros(len(rows))
        for column, coordinate in zip(rows.T, center, strict=True):
            squares += (column - coordinate) ** 2
        closer = squares < best
        best[closer], nearest[closer] = squares[closer], j
    return nearest


def _noisy_sums(
    rows: npt.NDArray[np.floating],
    clusters: npt.NDArray[np.intp],
    plan: WarmStartPlan,
    secret: SecretStream,
) -> tuple[FloatArray, FloatArray]:
    """Release the sums (k, d) and counts (k,) of clusters. The noise is drawn first."""
    k, d = plan.n_clusters, plan.n_features
    table = np.zeros((k, d + 1), dtype=np.int64)
    if plan.noise is not None:
        noise = plan.noise
        table += lattice_noise(noise.sigma, table.shape, secret, lattice=noise.lattice, mu=noise.mu)
    units = round_to_lattice(_shortened(rows, plan.radius), plan.lattice)
    weights = np.full((len(rows), 1), plan.count_weight, dtype=np.int64)
    np.add.at(table, clusters, np.hstack([units, weights]))
    return table[:, :d].astype(np.float64) * plan.lattice, table[:, d] / plan.count_weight


def _shortened(rows: npt.NDArray[np.floating], radius: float) -> FloatArray:
    """Scale rows beyond the radius back to it, each by itself, to a rounding error inside."""
    limit = 1e100 * radius  # of all rows, so that no square overflows
    shortened: FloatArray = np.clip(rows.astype(np.float64), -limit, limit)
    norms = np.sqrt(np.einsum("ij,ij->i", shortened, shortened))
    inside = radius * (1 - 1e-12)
    shortened *= np.where(norms > inside, inside / np.maximum(norms, inside), 1.0)[:, None]
    return shortened


def _on_simplex(shares: FloatArray) -> FloatArray:
    """Return the nearest shares that are not negative and add up to one."""
    descending = np.sort(shares)[::-1]
    excess = (np.cumsum(descending) - 1.0) / np.arange(1, len(shares) + 1)
    nearest: FloatArray = np.maximum(shares - excess[np.flatnonzero(descending > excess)[-1]], 0.0)
    return nearest
