"""The secret coupling behind an interpolating measure, by convex programming, for any sizes."""

from dataclasses import dataclass

import numpy as np

from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.plans import optimal_plan

__all__ = ["CouplingSearch", "find_barycenters"]

_NEGLIGIBLE = 1e-14  # relative duality gap at which the search ends
_ROUNDING = 2.0**-52  # relative duality gap that arithmetic cannot tell from 0


@dataclass(frozen=True, eq=False, kw_only=True)
class CouplingSearch:
    """Where the points of a message were moved to.

    Parameters
    ----------
    barycenters : ndarray of shape (n_points, n_features)
        The mean of the reference that each row was moved towards.
    squared_error_bound : float
        Largest squared distance, weighed by the masses, of ``t · barycenters`` from the truth.
    n_plans : int
        Optimal transport plans that it took.
    """

    barycenters: np.ndarray
    squared_error_bound: float
    n_plans: int


def find_barycenters(
    message: DiscreteMeasure, reference: DiscreteMeasure, t: float, *, max_plans: int
) -> CouplingSearch:
    """Find the barycenters that an interpolating measure was made with.

    A party with rows x_i of masses a_i sends ``η = (1 − t) x + t B(P*)``, where
    ``B(Q) = diag(1/a) Q γ`` are the barycenters of a coupling Q of the masses and P* is an
    optimal plan between its rows and the reference γ.

    **Theorem.** For all sizes, masses, and t < 1, and whether or not P* is unique, ``t B(P*)``
    is the point nearest to η in the convex set ``Z = {t B(Q)}``, in the norm
    ``‖z‖² = sum_i a_i ‖z_i‖²``. Hence η, γ and t determine the rows, by
    ``(1 − t) x = η − projection of η on Z``.

    *Proof.* P* is optimal when ``sum_i ⟨x_i, (Q γ)_i⟩``, which is ``⟨x, B(Q)⟩`` in that norm's
    inner product, is maximal at Q = P*. As ``η − t B(P*) = (1 − t) x``, for every coupling Q
    ``⟨η − t B(P*), t B(Q) − t B(P*)⟩ = t (1 − t) ⟨x, B(Q) − B(P*)⟩ ≤ 0``, which is the
    condition that characterises the projection on a convex set. It is unique. ∎

    A message that was rounded or disturbed by e gives rows that are wrong by at most
    ``‖e‖ / (1 − t)``, because ``η ↦ η − projection`` does not increase distances: hiding rows
    takes as much noise in the message as there shall be in the rows.

    The projection is computed by the method of Frank and Wolfe. The linear problem of each step
    is an optimal transport between what is left of the message and the reference, and the step
    along it is the best one. It begins with the plan between η and γ, which is P* already
    when every row moved towards one reference point (`rows_from_interpolation`). Elsewhere the
    search ends after finitely many plans at P* itself if P* is the only optimal plan: close to
    the solution the linear problem answers P*, and the best step along it arrives. Where
    several plans are optimal, as between divided rows that are equal, it may converge like one
    over the number of plans only.

    Parameters
    ----------
    message : DiscreteMeasure
        η.
    reference : DiscreteMeasure
        γ.
    t : float
        Fraction of the way that the rows were moved, in [0, 1).
    max_plans : int
        Stop here, wherever the search is; at least 2.

    Returns
    -------
    CouplingSearch
        The barycenters. With the gap ``g = ⟨η − z, s − z⟩`` at the last point z, s being the
        solution of the linear problem, ``‖z − t B(P*)‖² ≤ g``, since
        ``⟨η − z, z* − z⟩ ≤ g`` and ``⟨η − z*, z − z*⟩ ≤ 0`` add up to it.

    References
    ----------
    Frank, Wolfe, "An algorithm for quadratic programming", Naval Research Logistics Quarterly
    1956; Jaggi, "Revisiting Frank-Wolfe", ICML 2013 (the gap as a certificate).
    """
    weights = message.weights[:, None]
    scale = float(np.sum(weights * message.points**2)) or 1.0
    moved = t * optimal_plan(message, reference).barycenters()
    for n_plans in range(2, max_plans + 1):
        residual = message.points - moved
        corner = t * _best_barycenters(residual, message, reference)
        step = corner - moved
        gap = float(np.sum(weights * residual * step))
        if gap <= _NEGLIGIBLE * scale or n_plans == max_plans:
            break
        length = gap / float(np.sum(weights * step**2))
        # A whole step lands on the corner itself, without the rounding of a sum.
        moved = corner if length >= 1 - 1e-9 else moved + length * step
    return CouplingSearch(
        barycenters=moved / t if t else moved,
        squared_error_bound=max(gap, _ROUNDING * scale),
        n_plans=n_plans,
    )


def _best_barycenters(
    residual: np.ndarray, message: DiscreteMeasure, reference: DiscreteMeasure
) -> np.ndarray:
    """Return the barycenters of the coupling that maximises ``⟨residual, B(Q)⟩``."""
    return optimal_plan(DiscreteMeasure(residual, message.masses), reference).barycenters()
