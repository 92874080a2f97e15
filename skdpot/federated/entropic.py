"""Entropic optimal transport, rounded to a coupling with few entries."""

import numpy as np

__all__ = ["entropic_coupling"]

_REGULARIZATION = 0.005  # in units of the mean cost
_MAX_ITERATIONS = 300
_TOLERANCE = 1e-6
_NEGLIGIBLE = 1e-3  # share of a row's largest entry below which an entry is dropped


def entropic_coupling(
    costs: np.ndarray, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return a coupling near the optimum, and target prices near the optimal ones.

    Sinkhorn's plan is dense and meets its margins only in the limit. Small entries are
    dropped, rows and columns that have too much are scaled down, and the mass that is then
    missing is moved along the north-west rule, which adds at most n + m − 1 entries: the
    result is a coupling of `a` and `b` up to rounding, so its cost bounds the optimum from above.

    Parameters
    ----------
    costs : ndarray of shape (n, m)
        Finite, non-negative costs.
    a, b : ndarray of shape (n,), (m,)
        Positive masses, both of sum one.

    Returns
    -------
    rows, columns, masses : ndarray of shape (n_entries,)
        The coupling, row by row.
    target_potential : ndarray of shape (m,)
        Sinkhorn's prices; not yet feasible.

    References
    ----------
    Cuturi, "Sinkhorn distances", NeurIPS 2013; Altschuler, Weed, Rigollet, "Near-linear time
    approximation algorithms for optimal transport via Sinkhorn iteration", NeurIPS 2017 (the
    rounding; there the missing mass is spread over all entries).
    """
    from ot import sinkhorn  # here, because POT loads torch

    regularization = _REGULARIZATION * (float(a @ costs @ b) or 1.0)
    # Stopping early costs accuracy, not validity: the duality gap of the result shows it.
    with np.errstate(over="ignore"):
        plan, log = sinkhorn(
            a,
            b,
            costs,
            regularization,
            method="sinkhorn_log",
            numItermax=_MAX_ITERATIONS,
            stopThr=_TOLERANCE,
            warn=False,
            log=True,
        )
    plan[plan < _NEGLIGIBLE * plan.max(axis=1, keepdims=True)] = 0.0
    plan *= _at_most(a, plan.sum(axis=1))[:, None]
    plan *= _at_most(b, plan.sum(axis=0))
    rows, columns = np.nonzero(plan)
    masses = plan[rows, columns]
    i, j, rest = _north_west(
        np.maximum(a - plan.sum(axis=1), 0.0), np.maximum(b - plan.sum(axis=0), 0.0)
    )
    rows, columns = np.concatenate([rows, i]), np.concatenate([columns, j])
    cells, where = np.unique(rows * len(b) + columns, return_inverse=True)
    merged = np.bincount(where, np.concatenate([masses, rest]))
    return cells // len(b), cells % len(b), merged, regularization * log["log_v"]


def _at_most(allowed: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return the factors that bring sums down to what is allowed, and leave others alone."""
    with np.errstate(divide="ignore"):
        factors: np.ndarray = np.minimum(allowed / present, 1.0)
    return factors


def _north_west(
    supply: np.ndarray, demand: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Couple two vectors of the same sum in the order of their positions."""
    sent, received = np.cumsum(supply), np.cumsum(demand)
    levels = np.unique(np.concatenate([sent, received]))
    levels = levels[levels <= min(sent[-1], received[-1])]
    masses = np.diff(levels, prepend=0.0)
    middles = levels - masses / 2
    i = np.minimum(np.searchsorted(sent, middles), len(supply) - 1)
    j = np.minimum(np.searchsorted(received, middles), len(demand) - 1)
    keep = masses > 0
    return i[keep], j[keep], masses[keep]
