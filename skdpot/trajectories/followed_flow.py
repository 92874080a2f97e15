"""Following the flow of a population through released tables, and smoothing tables along it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from skdpot.ot.slices import CDFTable
from skdpot.release.projection_counts import count_projections
from skdpot.trajectories.couplings import exact_plans
from skdpot.trajectories.smoothing import smoothing_weights

# Levels closer to 0 or 1 than this many standard deviations of the noise tell nothing.
_SURE = 3.0
# Levels at which the error of quantiles is estimated.
_N_LEVELS = 500
# Particles whose moves are averaged, and whose mean moves carry a point between them.
_NEIGHBOURS = 25
_NEAREST = 3
# A move is an outlier beyond this multiple of the median distance from the median move.
_OUTLIER = 2.5
# Largest number of followed particles, over all times at which they start.
_MOST_FOLLOWED = 6000
# Smooth tables may be further from the measured ones than explained, by this share of the variance.
_TOO_FAR = 0.1
# Candidates for the largest mass of a bin that is taken for noise.
_FAINT = (0.0, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
# Other times must have at least this weight to predict the masses of a time.
_LEAST_WEIGHT = 1e-3


def followed_paths(particles: np.ndarray) -> np.ndarray:
    """Follow the particles (T, m, d) of each time to all others; (T from, T, n_followed, d).

    Neighbouring times are joined by optimal transport. Each particle moves by the mean of the moves
    of its neighbours, without outliers: mass that noise has displaced at one time is not followed,
    and groups of particles stay together.
    """
    n_times, m, _ = particles.shape
    n_followed = min(m, max(_MOST_FOLLOWED // n_times, 1))
    paths = np.empty((n_times, n_times, n_followed, particles.shape[2]))
    for s in range(n_times):
        paths[s, s] = particles[s, :n_followed]
    trees = [cKDTree(cloud) for cloud in particles]
    partners = [plan.tocsr().indices for plan in exact_plans(particles)]
    for t in range(n_times - 1):
        moves = particles[t + 1, partners[t]] - particles[t]
        paths[: t + 1, t + 1] = _carried(paths[: t + 1, t], trees[t], moves)
    for t in range(n_times - 1, 0, -1):
        moves = particles[t - 1, np.argsort(partners[t - 1])] - particles[t]
        paths[t:, t - 1] = _carried(paths[t:, t], trees[t], moves)
    return paths


def _carried(points: np.ndarray, tree: cKDTree, moves: np.ndarray) -> np.ndarray:
    """Move points (..., d) by the mean moves of the particles near them."""
    m = len(moves)
    around = moves[tree.query(tree.data, k=range(1, min(_NEIGHBOURS, m) + 1))[1]]
    distances = np.linalg.norm(around - np.median(around, axis=1, keepdims=True), axis=2)
    usual = distances <= _OUTLIER * np.median(distances, axis=1, keepdims=True)
    means = (around * usual[..., None]).sum(axis=1) / usual.sum(axis=1)[:, None]
    flat = points.reshape(-1, points.shape[-1])
    near = tree.query(flat, k=range(1, min(_NEAREST, m) + 1))[1]
    carried: np.ndarray = points + means[near].mean(axis=1).reshape(points.shape)
    return carried


def smoothed_along_the_flow(
    particles: np.ndarray,
    tables: Sequence[CDFTable],
    times: np.ndarray,
    variances: np.ndarray,
    measured: np.ndarray,
    deviations: np.ndarray | float = 0.0,
) -> tuple[list[CDFTable], np.ndarray]:
    """Return tables that are smoothed over times, and paths of particles, shape (T, m, d).

    Positions and masses are smoothed separately. Positions: the paths of particles that are
    followed through all times are smoothed in time. Masses: those of other times, followed to a
    time, are averaged with those of this time. Both averages have the weights of
    `smoothing_weights`.

    Noise that is cut at zero leaves faint mass in empty bins. The largest mass that is taken for
    noise is chosen by the error with which other times predict the measured, unbiased distribution
    functions (T, L, n_bins + 1) of a time. If the smooth tables are further from the measured ones
    than the deviations explain, the population does not follow the flow, and the tables are
    returned unchanged.
    """
    n_times, m, d = particles.shape
    paths = followed_paths(particles)
    flat = np.swapaxes(paths, 0, 1).reshape(n_times, -1)
    error = _squared_error(tables, variances)
    flat = smoothing_weights(flat @ flat.T, times, variances, error * flat.shape[1]) @ flat
    paths = np.swapaxes(flat.reshape(n_times, n_times, -1, d), 0, 1)
    shares = _shares(tables[0], paths)
    series = shares.reshape(n_times, -1)
    noise = variances.mean() * series.shape[1]
    weights = smoothing_weights(series @ series.T, times, variances, noise)
    others = weights - np.diag(np.diag(weights))
    total = others.sum(axis=1, keepdims=True)
    known = np.abs(total[:, 0]) > _LEAST_WEIGHT
    faint = 0.0
    if known.any():
        mixed = np.einsum("ts,st...->t...", others[known] / total[known], shares[:, known])
        misfits = [
            np.mean((_without_faint_mass(mixed, faint) - measured[known]) ** 2) for faint in _FAINT
        ]
        faint = _FAINT[int(np.argmin(misfits))]
    smooth = _without_faint_mass(np.einsum("ts,st...->t...", weights, shares), faint)
    chosen = np.linspace(0, n_times * paths.shape[2], m, endpoint=False).astype(np.intp)
    sources, number = chosen % n_times, chosen // n_times
    start = np.swapaxes(paths[sources, :, number], 0, 1)
    excess = np.mean((smooth - measured) ** 2) - np.mean(np.square(deviations))
    if excess > _TOO_FAR * variances.mean():
        return list(tables), start
    return [replace(tables[0], cdf=cdf) for cdf in smooth], start


def _squared_error(tables: Sequence[CDFTable], variances: np.ndarray) -> float:
    """Return an estimate of the mean square error of the quantiles of tables.

    An error of the distribution function by one standard deviation moves a quantile to the place
    where the level is higher or lower by as much, also across gaps. Levels as close to 0 or 1 as
    the noise are left out.
    """
    errors = []
    levels = (np.arange(_N_LEVELS) + 0.5) / _N_LEVELS
    for table, deviation in zip(tables, variances**0.5, strict=True):
        inner = levels[np.abs(levels - 0.5) < 0.5 - _SURE * deviation]
        above, below = table.quantiles(inner + deviation), table.quantiles(inner - deviation)
        errors.append(np.mean((above - below) ** 2) / 4 if len(inner) else np.inf)
    return float(np.mean(errors))


def _shares(table: CDFTable, paths: np.ndarray) -> np.ndarray:
    """Return distribution functions of points (T from, T, n, d) at the bin edges of a table."""
    n_from, n_times, n, d = paths.shape
    counts = count_projections(
        paths.reshape(-1, d),
        table.directions,
        table.half_widths,
        table.cdf.shape[1] - 1,
        codes=np.repeat(np.arange(n_from * n_times), n),
        n_classes=n_from * n_times,
    )
    masses = counts.reshape(n_from, n_times, len(table.directions), -1) / n
    return np.cumsum(np.pad(masses, ((0, 0),) * 3 + ((1, 0),)), axis=-1)


def _without_faint_mass(cdf: np.ndarray, faint: float) -> np.ndarray:
    """Return increasing functions from 0 to 1, without the faint mass of each bin."""
    masses = np.maximum(np.diff(np.clip(np.sort(cdf, axis=-1), 0.0, 1.0)) - faint, 0.0)
    totals = masses.sum(axis=-1, keepdims=True)
    kept = np.where(totals > 0, masses / np.where(totals > 0, totals, 1.0), 1 / masses.shape[-1])
    sums = np.minimum(np.cumsum(kept, axis=-1), 1.0)
    cleared = np.concatenate([np.zeros_like(totals), sums], axis=-1)
    cleared[..., -1] = 1.0
    return cleared
