"""Brownian bridges between two knots."""

import numpy as np

__all__ = ["brownian_bridge"]


def brownian_bridge(
    start: np.ndarray,
    end: np.ndarray,
    at: np.ndarray,
    spacing: float,
    diffusivity: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw Brownian bridges between given points, each at several times.

    A bridge from x to y over the time Δ is a Brownian motion of variance τ per unit time and
    feature, conditioned on its two ends: at time s its mean is ``x + (s/Δ)(y − x)``, and the
    covariance between the times s ≤ t is ``τ s (Δ − t) / Δ`` in each feature.

    Parameters
    ----------
    start, end : ndarray of shape (n, d)
        The ends of n independent bridges.
    at : ndarray of shape (k,)
        Times since the start, in [0, `spacing`], in any order. Equal times give equal points,
        and the times 0 and `spacing` give the ends themselves.
    spacing : float
        Δ, positive.
    diffusivity : float
        τ; 0 gives straight lines.
    rng : numpy Generator
        Draws the bridges.

    Returns
    -------
    ndarray of shape (n, k, d)
        Positions; all k times of one row belong to one and the same bridge.

    Raises
    ------
    ValueError
        If the shapes differ, a time is outside, or `spacing` or `diffusivity` is not usable.

    References
    ----------
    Karatzas, Shreve, "Brownian Motion and Stochastic Calculus", 2nd edition, section 5.6.B.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.trajectories.bridges import brownian_bridge
    >>> rng = np.random.default_rng(0)
    >>> brownian_bridge(np.zeros((1, 1)), np.ones((1, 1)), [0.0, 0.5, 2.0], 2.0, 0.0, rng)[0, :, 0]
    array([0.  , 0.25, 1.  ])
    """
    start, end = np.asarray(start, dtype=np.float64), np.asarray(end, dtype=np.float64)
    at = np.asarray(at, dtype=np.float64)
    _check(start, end, at, spacing, diffusivity)
    times, where = np.unique(at, return_inverse=True)
    points = np.empty((len(start), len(times), start.shape[1]))
    position, passed = start, 0.0
    for step, time in enumerate(times):
        # The bridge is Markov: what is left of it is a bridge from where it stands.
        left = spacing - passed
        share = (time - passed) / left if left > 0 else 1.0
        position = (1 - share) * position + share * end
        deviation = np.sqrt(diffusivity * (time - passed) * (1 - share))
        if deviation > 0:
            position = position + deviation * rng.standard_normal(start.shape)
        points[:, step], passed = position, time
    drawn: np.ndarray = points[:, where]
    return drawn


def _check(
    start: np.ndarray, end: np.ndarray, at: np.ndarray, spacing: float, diffusivity: float
) -> None:
    if start.ndim != 2 or start.shape != end.shape:
        raise ValueError(
            f"start and end must be two arrays of the same shape (n, d); got {start.shape} and "
            f"{end.shape}."
        )
    if not 0 < spacing < np.inf:
        raise ValueError(f"spacing={spacing!r} must be positive and finite.")
    if not 0 <= diffusivity < np.inf:
        raise ValueError(f"diffusivity={diffusivity!r} must be finite and at least 0.")
    if at.ndim != 1 or not np.all((at >= 0) & (at <= spacing)):
        raise ValueError(f"at must be a vector of times in [0, spacing={spacing!r}].")
