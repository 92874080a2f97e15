"""Wasserstein distances between two samples of points."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from skdpot._utils.rng import solver_generator
from skdpot.metrics._samples import as_points, check_order, check_same_features, check_slices
from skdpot.slicing.directions import orthogonal_directions
from skdpot.slicing.transport import point_masses, power_mean, wasserstein_1d

__all__ = ["sliced_wasserstein_distance", "wasserstein_distance"]

_MAX_PIVOTS = 10**8  # of the network simplex; a few times n suffice in practice


def wasserstein_distance(
    X: ArrayLike,
    Y: ArrayLike,
    *,
    p: float = 2.0,
    X_weights: ArrayLike | None = None,
    Y_weights: ArrayLike | None = None,
) -> float:
    """Wasserstein-p distance between two samples, exact.

    ``W_p = (min_P sum_ij P_ij ‖x_i − y_j‖^p)^(1/p)`` over the couplings P of the two samples,
    with Euclidean distances. Solved by network simplex (POT).

    Parameters
    ----------
    X : array-like of shape (n, d)
        First sample.
    Y : array-like of shape (m, d)
        Second sample; m may differ from n.
    p : float, default=2
        Order, at least 1.
    X_weights, Y_weights : array-like of shape (n,), (m,), optional
        Non-negative masses, scaled to sum to one; uniform by default.

    Returns
    -------
    float
        W_p (not its p-th power), in the unit of the features.

    Raises
    ------
    ValueError
        If the rows, the weights or p are not usable.
    RuntimeError
        If the solver gives up.

    See Also
    --------
    sliced_wasserstein_distance : Sorting instead of a linear program, for large samples.

    Notes
    -----
    Needs memory for a few n × m matrices, and about n³ time: a second or less for 2,000 rows
    a side. Between samples of the same law the distance is far from 0 and falls only like
    n^(−1/d), so compare samples of equal size, or look at the sliced distance.

    Privacy
    -------
    Both samples are treated as public: the distance is computed from them without noise.

    References
    ----------
    Bonneel, van de Panne, Paris, Heidrich, "Displacement interpolation using Lagrangian mass
    transport", SIGGRAPH Asia 2011 (the solver).

    Examples
    --------
    >>> from skdpot.metrics import wasserstein_distance
    >>> wasserstein_distance([[0.0, 0.0], [1.0, 0.0]], [[4.0, 4.0], [3.0, 4.0]])
    5.0
    """
    p = check_order(p)
    first, second = as_points(X, "X"), as_points(Y, "Y")
    check_same_features(first.shape[1], second.shape[1])
    a = point_masses(X_weights, len(first), "X_weights")
    b = point_masses(Y_weights, len(second), "Y_weights")
    if first.shape[1] == 1:
        return float(wasserstein_1d(first[:, 0], second[:, 0], a, b, p=p))
    from ot import emd  # here, because POT loads torch and the other metrics do without

    distances = cdist(first, second)
    # The solver's tolerances are absolute: give it costs of size one, whatever the unit.
    unit = float(distances.max())
    if unit == 0.0:
        return 0.0
    uniform: list[float] = []  # as POT writes it
    _, log = emd(
        uniform if a is None else a,
        uniform if b is None else b,
        (distances / unit) ** p,
        numItermax=_MAX_PIVOTS,
        log=True,
    )
    if log["warning"] is not None:
        raise RuntimeError(f"The network simplex of POT stopped early: {log['warning']}")
    return unit * max(float(log["cost"]), 0.0) ** (1 / p)


def sliced_wasserstein_distance(
    X: ArrayLike,
    Y: ArrayLike,
    *,
    p: float = 2.0,
    n_slices: int = 256,
    random_state: int | np.random.RandomState | None = 0,
    X_weights: ArrayLike | None = None,
    Y_weights: ArrayLike | None = None,
) -> float:
    """Sliced Wasserstein-p distance between two samples.

    ``SW_p = (mean_j W_p^p(θ_j·X, θ_j·Y))^(1/p)`` along random directions θ_j in orthogonal
    blocks. Each one-dimensional distance is exact.

    Parameters
    ----------
    X : array-like of shape (n, d)
        First sample.
    Y : array-like of shape (m, d)
        Second sample; m may differ from n.
    p : float, default=2
        Order, at least 1.
    n_slices : int, default=256
        Number of directions L, rounded up to a multiple of d: whole blocks weigh all features
        alike, so that the distance between a sample and its translate by t is ``‖t‖ / √d``,
        exactly, when p = 2.
    random_state : int, RandomState or None, default=0
        Draws the directions. The same integer gives the same directions for all samples with d
        features, so that distances can be compared; None draws new ones.
    X_weights, Y_weights : array-like of shape (n,), (m,), optional
        Non-negative masses, scaled to sum to one; uniform by default.

    Returns
    -------
    float
        SW_p (not its p-th power), in the unit of the features. When p = 2 it is at most
        ``W_2 / √d``.

    Raises
    ------
    ValueError
        If the rows, the weights, p or `n_slices` are not usable.

    See Also
    --------
    wasserstein_distance : Without slices.
    skdpot.slicing.sliced_wasserstein_distance : Along directions that are given.

    Privacy
    -------
    Both samples are treated as public: the distance is computed from them without noise.

    References
    ----------
    Bonneel, Rabin, Peyré, Pfister, "Sliced and Radon Wasserstein barycenters of measures",
    JMIV 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.metrics import sliced_wasserstein_distance
    >>> X = np.random.default_rng(0).normal(size=(500, 4))
    >>> sliced_wasserstein_distance(X, X + 1.0)
    1.0
    """
    p = check_order(p)
    n_slices = check_slices(n_slices)
    first, second = as_points(X, "X"), as_points(Y, "Y")
    n_features = first.shape[1]
    check_same_features(n_features, second.shape[1])
    a = point_masses(X_weights, len(first), "X_weights")
    b = point_masses(Y_weights, len(second), "Y_weights")
    directions = orthogonal_directions(
        n_features * -(-n_slices // n_features), n_features, solver_generator(random_state)
    )
    distances = wasserstein_1d(directions @ first.T, directions @ second.T, a, b, p=p)
    return power_mean(np.asarray(distances), p)
