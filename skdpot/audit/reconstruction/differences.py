"""What two messages, or squared distances to known points, tell without the reference."""

import numpy as np
from numpy.typing import ArrayLike

from skdpot.audit.reconstruction.result import PairedDifferences, Reconstruction
from skdpot.audit.reconstruction.seen_measure import SeenMeasure, as_measure
from skdpot.federated.plans import optimal_plan

__all__ = ["paired_differences", "positions_from_distances", "rows_from_cost_matrices"]

_FLAT = 1e-9  # relative singular value below which the points do not span a direction


def paired_differences(
    first: SeenMeasure, second: SeenMeasure, t: float | None = None
) -> PairedDifferences:
    """Read differences between rows of two parties from their messages alone.

    A server that sees ``η = (1 − t) x + t γ_σ`` and ``η' = (1 − t) y + t γ_τ`` computes the plan
    between them, for that is its part of TriangleWad. Where it pairs two rows that were moved
    towards the same reference point, γ cancels: ``η_i − η'_j = (1 − t) (x_i − y_j)``, exactly.
    Who knows the rows of one party then knows those of the other; neither γ nor the plans
    are needed.

    **All pairs are exact as soon as the reference hides anything**: if the rows of each party
    lie in a ball of radius R, it suffices that ``t / (1 − t) · min_k≠l ‖γ_k − γ_l‖ ≥ 2 R``.
    *Proof.* Number both parties' rows by their reference points. Taking a matching s in place
    of the identity changes ``sum_k ⟨η_k, η'_s(k)⟩`` by four sums: ``t (1 − t)`` times two that
    are not positive, as both plans are optimal; ``−t²/2 sum ‖γ_k − γ_s(k)‖²``; and
    ``(1 − t)² sum ⟨x_k − c, y_s(k) − y_k⟩`` for any centre c, which for each row that moves is
    at most ``(1 − t)² · R · 2 R``. ∎

    With a smaller reference fewer pairs are exact, and the others are wrong only by
    ``t (γ_σ(i) − γ_τ(j)) / (1 − t)``: little, since then the reference is small or t is.

    Parameters
    ----------
    first, second : DiscreteMeasure or message
        Messages of two parties with as many rows as reference points, made with the same
        reference and t.
    t : float, optional
        The fraction, in [0, 1). Without it the differences are too small by ``1 − t``.

    Returns
    -------
    PairedDifferences
        Differences, and which rows they belong to.

    Raises
    ------
    ValueError
        If the messages or t do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.audit.reconstruction import paired_differences
    >>> from skdpot.federated.interpolation import interpolate
    >>> from skdpot.federated.measures import DiscreteMeasure, gaussian_reference
    >>> from skdpot.federated.plans import optimal_plan
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.uniform(size=(2, 40, 20))
    >>> gamma = gaussian_reference(40, 20, scale=5.0, rng=rng)
    >>> sent = [interpolate(optimal_plan(DiscreteMeasure(Z), gamma), 0.5) for Z in (X, Y)]
    >>> paired_differences(*sent, t=0.5).n_exact(X, Y)
    40
    """
    fraction = 0.0 if t is None else t
    if not 0 <= fraction < 1:
        raise ValueError(f"t={t!r} must be in [0, 1).")
    plan = optimal_plan(as_measure(first), as_measure(second))
    differences = first.points[plan.rows] - second.points[plan.columns]
    return PairedDifferences(
        first_rows=plan.rows, second_rows=plan.columns, differences=differences / (1 - fraction)
    )


def positions_from_distances(
    squared_distances: ArrayLike, anchors: ArrayLike
) -> tuple[np.ndarray, int]:
    """Locate points by their squared distances to known ones.

    ``‖y − p_j‖² − ‖y − p_0‖²`` is linear in y, so that distances to d + 1 points in general
    position determine y (trilateration).

    Parameters
    ----------
    squared_distances : array-like of shape (n_rows, n_anchors)
        Squared Euclidean distances.
    anchors : array-like of shape (n_anchors, n_features)
        The known points.

    Returns
    -------
    positions : ndarray of shape (n_rows, n_features)
        The points; if the anchors do not span the space, their projections on what they span.
    n_dimensions : int
        Dimension of what the anchors span: n_features when the positions are exact.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    distances, points = np.asarray(squared_distances, float), np.asarray(anchors, float)
    if distances.ndim != 2 or points.ndim != 2 or distances.shape[1] != len(points):
        raise ValueError(
            f"squared_distances has shape {distances.shape} and anchors {points.shape}; they "
            "must be (n_rows, n_anchors) and (n_anchors, n_features)."
        )
    centre = points.mean(axis=0)
    arms = points - centre
    lengths = np.sum(arms**2, axis=1)
    sides = (lengths - lengths.mean()) - (distances - distances.mean(axis=1, keepdims=True))
    solution, _, rank, _ = np.linalg.lstsq(2 * arms, sides.T, rcond=_FLAT)
    return solution.T + centre, int(rank)


def rows_from_cost_matrices(
    fractions: ArrayLike, costs: ArrayLike, points: ArrayLike
) -> Reconstruction:
    """Recover a seller's rows from the cost matrices that it sends to the buyer.

    The buyer knows its own points and receives the squared distances of each ``η_i(s)`` from
    them, for several s. `positions_from_distances` locates the ``η_i(s)``. One plan serves all
    s, so that ``η_i(s) = (1 − s) x_i + s b_i`` is a straight line, and two fractions give the
    row at s = 0, without the plan, the reference or the buyer's t.

    Parameters
    ----------
    fractions : array-like of shape (n_fractions,)
        The s, at least two different ones.
    costs : array-like of shape (n_fractions, n_rows, n_points)
        Squared distances.
    points : array-like of shape (n_points, n_features)
        The buyer's points.

    Returns
    -------
    Reconstruction
        The rows: exact when the points span the space, which takes more points than features,
        otherwise their projections on what the points span. `method` tells the dimension.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    s = np.asarray(fractions, dtype=np.float64)
    if len(np.unique(s)) < 2 or len(s) != len(np.asarray(costs)):
        raise ValueError("fractions must hold two different values at least, one a cost matrix.")
    located = [positions_from_distances(matrix, points) for matrix in np.asarray(costs)]
    positions = np.stack([place for place, _ in located])
    # The value at 0 of the line through positions at s, by least squares.
    value_at_0 = np.linalg.pinv(np.stack([np.ones_like(s), s], axis=1))[0]
    return Reconstruction(
        rows=np.tensordot(value_at_0, positions, axes=1),
        n_plans=0,
        method=f"trilateration in {located[0][1]} of {positions.shape[2]} dimensions",
    )
