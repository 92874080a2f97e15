"""Measures between two measures."""

from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.plans import TransportPlan

__all__ = ["check_fraction", "interpolate"]


def interpolate(plan: TransportPlan, t: float, *, kind: str = "barycentric") -> DiscreteMeasure:
    """Return the measure at fraction t of the way from the plan's source to its target.

    Parameters
    ----------
    plan : TransportPlan
        Optimal plan between the two measures.
    t : float
        Fraction of the way, in [0, 1]: 0 is the source.
    kind : {"barycentric", "exact"}, default="barycentric"
        "exact" has a point ``(1 − t) x_i + t y_j`` of mass P_ij for every entry of the plan,
        n + m − 1 at most. It lies on a geodesic: ``W(source, ·) = t W`` and
        ``W(·, target) = (1 − t) W``.
        "barycentric" has one point for each source point, of its mass, on the way to the mean
        of its targets. Both are the same when the plan splits no source point, in particular
        between equally many points of equal mass; otherwise the barycentric measure is nearer
        to the source than t says, ``W(source, ·) ≤ t W``.

    Returns
    -------
    DiscreteMeasure
        The interpolating measure.

    Raises
    ------
    ValueError
        If t or the kind is not allowed.

    Privacy
    -------
    Reveals every row of the source to whoever knows the target and t: the plan between the
    measure and the target is again optimal, and the step can be undone.

    References
    ----------
    Ambrosio, Gigli, Savaré, "Gradient flows", 2005, section 7.2.

    Examples
    --------
    >>> from skdpot.federated.interpolation import interpolate
    >>> from skdpot.federated.measures import DiscreteMeasure
    >>> from skdpot.federated.plans import optimal_plan
    >>> plan = optimal_plan(DiscreteMeasure([[0.0], [1.0]]), DiscreteMeasure([[5.0], [4.0]]))
    >>> interpolate(plan, 0.25).points.ravel()
    array([1., 2.])
    """
    check_fraction(t)
    source, target = plan.source, plan.target
    if kind not in ("barycentric", "exact"):
        raise ValueError(f"kind={kind!r} must be 'barycentric' or 'exact'.")
    if kind == "barycentric" or plan.is_map:
        return DiscreteMeasure((1 - t) * source.points + t * plan.barycenters(), source.masses)
    points = (1 - t) * source.points[plan.rows] + t * target.points[plan.columns]
    return DiscreteMeasure(points, plan.masses)


def check_fraction(t: float, name: str = "t", *, below_one: bool = False) -> None:
    """Refuse fractions of the way outside of [0, 1], or of [0, 1)."""
    if not 0 <= t <= 1 or (below_one and t == 1):
        allowed = "[0, 1)" if below_one else "[0, 1]"
        raise ValueError(f"{name}={t!r} must be a fraction in {allowed}.")
