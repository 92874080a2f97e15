"""Rows from an interpolating measure: what the server of TriangleWad or FedWad reads."""

import numpy as np

from skdpot.audit.reconstruction.coupling_search import find_barycenters
from skdpot.audit.reconstruction.fractions import fraction_from_ties
from skdpot.audit.reconstruction.result import Reconstruction
from skdpot.audit.reconstruction.seen_measure import SeenMeasure, as_measure
from skdpot.federated.plans import optimal_plan

__all__ = ["rows_from_interpolation"]

_SAME_ROW = 1e-9  # relative distance of two copies of one row


def rows_from_interpolation(
    message: SeenMeasure,
    reference: SeenMeasure,
    t: float | None = None,
    *,
    interpolation: str = "barycentric",
    method: str = "search",
    max_plans: int = 1000,
) -> Reconstruction:
    """Recover every row from an interpolating measure, exactly.

    A party with rows x_i sends ``η_i = (1 − t) x_i + t (m P* γ)_i`` and keeps the plan P*
    between its rows and the shared reference γ to itself. It is no secret: whoever sees η
    and knows γ and t recovers every row exactly, whatever the scale of γ and t < 1.

    **As many rows as reference points, equal masses** (and wherever every row moved towards
    one reference point, ``η_i = (1 − t) x_i + t γ_σ(i)``). The optimal plan between η and γ
    is the secret σ, and the only optimal one. *Proof.* A matching s is optimal when it maximises

        ``sum_i ⟨η_i, γ_s(i)⟩ = (1 − t) sum_i ⟨x_i, γ_s(i)⟩ + t sum_i ⟨γ_σ(i), γ_s(i)⟩``.

    The first sum is largest at s = σ, because P* is optimal between x and γ. So is the second,
    since ``2 sum ⟨γ_σ(i), γ_s(i)⟩ = 2 sum ‖γ_i‖² − sum ‖γ_σ(i) − γ_s(i)‖²``, and strictly: any
    other s moves a row to another point. ∎ Then ``x_i = (η_i − t γ_σ(i)) / (1 − t)``. The same
    sums, with masses, hold for couplings, for rows that share reference points, and for
    the points of an exact interpolating measure, each of which moved towards one.

    **Other sizes and masses.** P* minimises a convex function whose minimum determines
    the rows, also when there are several optimal plans: see
    `skdpot.audit.reconstruction.coupling_search.find_barycenters` for the theorem and the search.

    Parameters
    ----------
    message : DiscreteMeasure or message
        The interpolating measure η.
    reference : DiscreteMeasure or message
        The measure γ that the rows were moved towards; in FedWad ξ of the same round.
    t : float, optional
        Fraction of the way that they were moved, in [0, 1). None looks for it with
        `fraction_from_ties`.
    interpolation : {"barycentric", "exact"}, default="barycentric"
        With "exact" equal reconstructed rows are joined and their masses added.
    method : {"search", "plan"}, default="search"
        "plan" solves one plan, between η and γ. "search" begins with it, proves that it is
        right or goes on until it is, and so serves all sizes.
    max_plans : int, default=1000
        End of the search, at least 2; `Reconstruction.error_bound` tells whether it was enough.
        It takes two plans when all rows moved to one point each, some hundred for 100 rows
        that were divided, and more for larger t, reference and number of rows.

    Returns
    -------
    Reconstruction
        Rows in the order of the message, which is that of the sender's table (joined rows in
        order of their first copy). `error_bound` is None for ``method="plan"``.

    Raises
    ------
    ValueError
        If measures or parameters do not fit, or t is None and nothing in the data tells it.

    References
    ----------
    Li, Pang, "Private Wasserstein distance", 2024 (TriangleWad; its section 4.2 calls
    finding the plan NP-hard).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.audit.reconstruction import rows_from_interpolation
    >>> from skdpot.federated.interpolation import interpolate
    >>> from skdpot.federated.measures import DiscreteMeasure, gaussian_reference
    >>> from skdpot.federated.plans import optimal_plan
    >>> secret = np.random.default_rng(0).normal(size=(50, 3))
    >>> gamma = gaussian_reference(50, 3, scale=5.0, rng=np.random.default_rng(1))
    >>> eta = interpolate(optimal_plan(DiscreteMeasure(secret), gamma), 0.9)
    >>> rows_from_interpolation(eta, gamma, 0.9).n_exact(secret)
    50
    """
    _check(method, interpolation, max_plans)
    eta, gamma = as_measure(message), as_measure(reference)
    if t is None:
        t = fraction_from_ties(eta, gamma).t
    if not 0 <= t < 1:
        raise ValueError(f"t={t!r} must be in [0, 1).")
    if method == "plan":
        barycenters, bound, n_plans = optimal_plan(eta, gamma).barycenters(), None, 1
    else:
        found = find_barycenters(eta, gamma, t, max_plans=max_plans)
        squared = found.squared_error_bound / eta.n_features
        barycenters, bound, n_plans = found.barycenters, np.sqrt(squared) / (1 - t), found.n_plans
    rows, masses = (eta.points - t * barycenters) / (1 - t), eta.masses
    if interpolation == "exact":
        rows, masses = _joined(rows, eta.weights)
    return Reconstruction(
        rows=rows, masses=masses, t=t, error_bound=bound, n_plans=n_plans, method=method
    )


def _check(method: str, interpolation: str, max_plans: int) -> None:
    if method not in ("search", "plan"):
        raise ValueError(f"method={method!r} must be 'search' or 'plan'.")
    if interpolation not in ("barycentric", "exact"):
        raise ValueError(f"interpolation={interpolation!r} must be 'barycentric' or 'exact'.")
    if max_plans < 2:
        raise ValueError(f"max_plans={max_plans!r} must be at least 2.")


def _joined(rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each row once, with the sum of the masses of its copies."""
    unit = float(np.abs(rows).max()) or 1.0
    # A random line separates different rows; copies, equal up to rounding, stay neighbours.
    line = np.random.default_rng(0).standard_normal(rows.shape[1])
    order = np.argsort(rows @ line, kind="stable")
    gaps = np.abs(np.diff(rows[order], axis=0)).max(axis=1) > _SAME_ROW * unit
    groups = np.empty(len(rows), dtype=np.int64)
    groups[order] = np.concatenate([[0], np.cumsum(gaps)])
    _, first, codes = np.unique(groups, return_index=True, return_inverse=True)
    masses = np.bincount(codes, weights)
    in_order = np.argsort(first)
    joined: np.ndarray = rows[first[in_order]]
    return joined, masses[in_order]
