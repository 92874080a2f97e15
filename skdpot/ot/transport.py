"""Exact optimal transport between distributions on the line, and its sliced average.

On the line the optimal plan for a convex cost matches quantiles:
``W_p^p(μ, ν) = ∫_0^1 |F_μ^{-1}(q) - F_ν^{-1}(q)|^p dq`` (Santambrogio 2015, Theorem 2.9).
Both quantile functions are step functions, so the integral is a finite sum over the merged steps.
With equal sizes and no weights the steps coincide, and sorting suffices.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from skdpot._utils.finite import as_finite

_SAFE = 150.0  # largest decimal exponent of a power; a double has up to 308
_MAX_PIVOTS = 10**8  # of the network simplex; a few times n suffice in practice
_NUMBERS = 2**15  # numbers sorted at once


def exact_plan(
    costs: np.ndarray, a: np.ndarray | None = None, b: np.ndarray | None = None
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return POT's optimal plan for these costs and masses, and its log, by network simplex."""
    from ot import emd  # here, because POT loads torch

    uniform: list[float] = []  # POT's notation
    plan, log = emd(
        uniform if a is None else a,
        uniform if b is None else b,
        costs,
        numItermax=_MAX_PIVOTS,
        log=True,
    )
    if log["warning"] is not None:
        raise RuntimeError(f"The network simplex of POT stopped early: {log['warning']}")
    return plan, log


def wasserstein_1d(
    u: ArrayLike,
    v: ArrayLike,
    u_weights: ArrayLike | None = None,
    v_weights: ArrayLike | None = None,
    *,
    p: float = 2.0,
) -> float | np.ndarray:
    """Wasserstein-p distance between samples on the line, exact."""
    if not 1 <= p < np.inf:
        raise ValueError(
            f"p={p!r} must be finite and at least 1: below, matching quantiles is not optimal."
        )
    p = float(p)  # powers would overflow in half precision
    first, second = np.asarray(u, dtype=np.float64), np.asarray(v, dtype=np.float64)
    if first.ndim != second.ndim or first.ndim not in (1, 2):
        raise ValueError(
            f"u has shape {first.shape} and v {second.shape}; both must have shape (n,) or "
            "(n_projections, n)."
        )
    rows_u, rows_v = np.atleast_2d(first), np.atleast_2d(second)
    if len(rows_u) != len(rows_v) or 0 in rows_u.shape or 0 in rows_v.shape:
        raise ValueError(
            f"u has shape {first.shape} and v {second.shape}; the number of slices must agree "
            "and neither may be empty."
        )
    a = point_masses(u_weights, rows_u.shape[1], "u_weights")
    b = point_masses(v_weights, rows_v.shape[1], "v_weights")
    if not (np.isfinite(rows_u).all() and np.isfinite(rows_v).all()):
        raise ValueError("u and v must hold finite positions, without NaN.")
    if a is None and b is None and rows_u.shape == rows_v.shape:
        distances = power_mean(_gaps(np.sort(rows_u, axis=1), np.sort(rows_v, axis=1)), p)
    else:
        distances = np.array([_merge(x, y, a, b, p) for x, y in zip(rows_u, rows_v, strict=True)])
    return float(distances[0]) if first.ndim == 1 else distances


def sliced_distance(X: ArrayLike, Y: ArrayLike, directions: np.ndarray, *, p: float = 2.0) -> float:
    """Return ``(mean_j W_p^p(θ_j·X, θ_j·Y))^(1/p)``, the sliced distance (Bonneel et al., 2015)."""
    distances = wasserstein_1d(directions @ np.asarray(X).T, directions @ np.asarray(Y).T, p=p)
    return float(power_mean(np.asarray(distances), p))


def power_mean(distances: np.ndarray, p: float, weights: np.ndarray | None = None) -> Any:
    """Return ``mean(distances^p)^(1/p)`` along the last axis, without overflow of the powers."""
    largest = float(distances.max())
    ordinary = largest == 0.0 or abs(np.log10(largest)) < _SAFE / p
    unit = 1.0 if ordinary else max(largest, float(np.finfo(np.float64).tiny))
    powers = (distances / unit) ** p
    mean = np.mean(powers, axis=-1) if weights is None else weights @ powers
    return unit * mean ** (1 / p)


def point_masses(weights: ArrayLike | None, size: int, name: str) -> np.ndarray | None:
    """Validate the weights of a sample and scale them to sum to one."""
    if weights is None:
        return None
    must = "must be finite, non-negative and not all zero."
    masses = as_finite(weights, name, must)
    if masses.shape != (size,):
        raise ValueError(
            f"{name} has shape {masses.shape}; it must be ({size},), one per position."
        )
    with np.errstate(over="ignore"):
        total = masses.sum()
    if not np.isfinite(total) or np.any(masses < 0) or total <= 0:
        raise ValueError(f"{name} {must}")
    return masses / total


def _merge(
    u: np.ndarray, v: np.ndarray, a: np.ndarray | None, b: np.ndarray | None, p: float
) -> float:
    """Return W_p by merging the steps of the two quantile functions."""
    u, u_steps = _quantile_steps(u, a)
    v, v_steps = _quantile_steps(v, b)
    levels = np.sort(np.concatenate([u_steps[:-1], v_steps[:-1], [0.0, 1.0]]))
    widths = np.diff(levels)
    # A level between two steps is in the middle of an interval, away from rounded ties.
    middles = levels[:-1] + widths / 2
    i = np.minimum(np.searchsorted(u_steps, middles), len(u) - 1)
    j = np.minimum(np.searchsorted(v_steps, middles), len(v) - 1)
    return float(power_mean(_gaps(u[i], v[j]), p, widths))


def _gaps(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        gaps: np.ndarray = np.abs(u - v)
    if not np.isfinite(gaps).all():
        raise ValueError("u and v must hold positions whose differences are finite.")
    return gaps


def _quantile_steps(x: np.ndarray, masses: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted positions and the levels at which the quantile function jumps."""
    if masses is None:
        return np.sort(x), np.arange(1, len(x) + 1) / len(x)
    order = np.argsort(x, kind="stable")
    return x[order], np.minimum(np.cumsum(masses[order]), 1.0)


def matched_means(ordered: np.ndarray, m: int) -> np.ndarray:
    """Average sorted points over each of the m equal parts of their ranks."""
    n = ordered.shape[-1]
    if n == m:
        return ordered
    means: np.ndarray = (
        rank_coupling(n, m).astype(ordered.dtype, copy=False) @ ordered.reshape(-1, n).T
    ).T
    return means.reshape(*ordered.shape[:-1], m)


@cache
def rank_coupling(n: int, m: int) -> sparse.csr_array:
    """Return the overlaps of the m and n equal parts of an interval, as shares of one of the m."""
    levels = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    start, mass = levels[:-1], np.diff(levels) / (n * m)
    return sparse.csr_array((m * mass, (start // n, start // m)), shape=(m, n))


def ranked_projections(points: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project points on directions and sort them, ties by position.

    The sensitivities of `skdpot.nets.parity_penalty` require that the order of the other points
    does not change when one point is replaced, and clipped outputs have many ties. So the sort key
    of a point is its projection with its position in the last bits (12 of 64 for 3,000 points). All
    keys differ, so every sorting algorithm gives the same result.
    """
    projected = np.ascontiguousarray(directions.astype(np.float64) @ points.T.astype(np.float64))
    m = projected.shape[1]
    position = np.int64((1 << (m - 1).bit_length()) - 1)
    keys = _sortable(projected.view(np.int64))
    keys &= ~position
    keys |= np.arange(m)
    keys.sort(axis=1)
    order = keys & position
    values = _sortable(keys)
    values &= ~position
    return values.view(np.float64), order


def _sortable(bits: np.ndarray) -> np.ndarray:
    """Map the bits of floats to integers of the same order; its own inverse."""
    flipped = bits >> np.int64(63)
    flipped &= np.int64(2**63 - 1)
    flipped ^= bits
    return flipped


def pulls_between(
    samples: Sequence[np.ndarray], directions: np.ndarray, *, n_moving: int | None = None
) -> list[np.ndarray]:
    r"""Return the gradients of the summed squared distances of samples to each other.

    Let :math:`V_j` be m points and :math:`U_i` n others, projected on a direction θ and ranked, and
    :math:`R_{ij}` the length of the overlap of :math:`(\frac{i-1}{n}, \frac{i}{n}]` and
    :math:`(\frac{j-1}{m}, \frac{j}{m}]`. Then

    .. math:: W_2^2 = \sum_{ij} R_{ij} (V_{(j)} - U_{(i)})^2, \qquad
              \nabla W_2^2 = 2 \sum_{ij} R_{ij} (V_{(j)} - U_{(i)}) J_{(j)}^\top \theta

    with the Jacobian :math:`J_j` of point j by parameters. Averaged over S directions this is
    :math:`\sum_j J_j^\top w_j`; the vectors w of the first `n_moving` samples are returned.
    """
    moving = samples[:n_moving]
    vectors = [np.zeros(sample.shape) for sample in moving]
    at_once = max(1, _NUMBERS // max(map(len, samples)))
    # A few directions at a time fit into the processor's cache. Each sample is sorted once per
    # direction, whatever the number of samples that it is compared with.
    for start in range(0, len(directions), at_once):
        block = directions[start : start + at_once]
        ranked = [ranked_projections(sample, block) for sample in samples]
        for c, total in enumerate(vectors):
            ordered, order = ranked[c]
            peers = [ranked[b][0] for b in range(len(samples)) if b != c]
            total += _rank_gaps(ordered, order, peers).T @ block
    for sample, total in zip(moving, vectors, strict=True):
        total *= 2.0 / (len(directions) * len(sample))
    return vectors


def _rank_gaps(ordered: np.ndarray, order: np.ndarray, peers: Sequence[np.ndarray]) -> np.ndarray:
    """Return the summed gaps of projections to their matched ones, in the order of the points."""
    n_directions, m = ordered.shape
    gaps = ordered * len(peers)
    for peer in peers:
        gaps -= matched_means(peer, m)
    places = order + m * np.arange(n_directions)[:, None]
    in_order = np.empty(gaps.size)
    in_order[places.ravel()] = gaps.ravel()
    return in_order.reshape(gaps.shape)
