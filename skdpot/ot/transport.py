"""Exact optimal transport between distributions on the line, and its sliced average.

On the line the optimal plan for a convex cost matches quantiles:
``W_p^p(μ, ν) = ∫_0^1 |F_μ^{-1}(q) - F_ν^{-1}(q)|^p dq`` (Santambrogio 2015, Theorem 2.9).
Both quantile functions are step functions, so the integral is a finite sum over the merged
steps; with equal sizes and no weights the steps coincide and sorting is all there is.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.validation import as_finite

_SAFE = 150.0  # decimal digits of a power, of the 308 that a double has

_MAX_PIVOTS = 10**8  # of the network simplex; a few times n suffice in practice


def exact_plan(
    costs: np.ndarray, a: np.ndarray | None = None, b: np.ndarray | None = None
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return POT's optimal plan for these costs and masses, and its log, by network simplex.

    Its tolerances are absolute: give it costs of size one, whatever the unit. It uses them up.
    """
    from ot import emd  # here, because POT loads torch

    uniform: list[float] = []  # as POT writes it
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
    p = float(p)  # of half precision no power would be finite
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


def sliced_wasserstein_distance(
    X: ArrayLike, Y: ArrayLike, directions: np.ndarray, *, p: float = 2.0
) -> float:
    """Sliced Wasserstein-p distance along given directions.

    Parameters
    ----------
    X, Y : array-like of shape (n, d), (m, d)
        Two samples.
    directions : ndarray of shape (n_projections, d)
        Unit rows.
    p : float, default=2
        Order.

    Returns
    -------
    float
        ``(mean_j W_p^p(θ_j·X, θ_j·Y))^(1/p)``.

    References
    ----------
    Bonneel, Rabin, Peyré, Pfister, "Sliced and Radon Wasserstein barycenters of measures",
    JMIV 2015.
    """
    distances = wasserstein_1d(directions @ np.asarray(X).T, directions @ np.asarray(Y).T, p=p)
    return float(power_mean(np.asarray(distances), p))


def power_mean(distances: np.ndarray, p: float, weights: np.ndarray | None = None) -> Any:
    """Return ``mean(distances^p)^(1/p)`` along the last axis, also where a power would overflow."""
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
        raise ValueError(f"{name} has shape {masses.shape}; it must be ({size},), one a position.")
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
    """Return the distances of matched positions."""
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
