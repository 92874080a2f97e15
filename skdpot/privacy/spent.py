"""The total privacy cost of several fitted estimators on the same records."""

from typing import Any

from sklearn.frozen import FrozenEstimator

from skdpot.privacy.accounting import compose
from skdpot.privacy.events import ComposedEvent
from skdpot.privacy.pipelines import learns, leaves
from skdpot.privacy.searches import is_wrapper, parts_within
from skdpot.privacy.statement import PrivacySpent, stated_epsilon


def total_spent(*fitted: Any, delta: float | None = None) -> PrivacySpent:
    """Compute the total privacy cost of several fitted estimators on the same records.

    A shared `PrivacyBudget` adds up while the fits are made, and also counts refits and discarded
    fits, which this function cannot see.

    Parameters
    ----------
    *fitted : estimator or PrivacySpent
        Fitted estimators with a ``privacy_spent_``, or pipelines and other composites of them. An
        object that is passed several times counts once.
    delta : float, default=None
        The delta of the total. If None, the largest delta of the parts.

    Returns
    -------
    PrivacySpent
        The composition of all events. `epsilon` is infinite if a part has no noise. The assumptions
        name parts without an event, which must not have learned from the private records. Parts
        whose ``privacy_spent_`` is None released nothing and are not named.

    Raises
    ------
    TypeError
        If an estimator has no ``privacy_spent_``, if none has spent anything, or if one is a
        search, which does not keep all its fits.
    ValueError
        If nothing is passed, the relations differ, or `delta` is out of range.

    Notes
    -----
    If a later estimator or its epsilon was chosen after looking at earlier results, the total is
    only a running figure. The cap of a shared budget also covers that case.
    """
    parts = [part for estimator in fitted for part in _private_parts(estimator)]
    if not fitted:
        raise ValueError("total_spent needs at least one fitted estimator.")
    if not parts:
        names = ", ".join(dict.fromkeys(type(estimator).__name__ for estimator in fitted))
        raise TypeError(
            f"{names} spent nothing: the fit released nothing about private records, so that there "
            "is no event to add up. Pass estimators that were fitted privately."
        )
    spent = list({id(part): part for _, part in parts if part is not None}.values())
    delta = max(part.delta for part in spent) if delta is None else delta
    event = ComposedEvent(events=tuple(part.event for part in spent))
    assumptions = dict.fromkeys(text for part in spent for text in part.assumptions)
    assumptions |= dict.fromkeys(
        f"{name} (it has no event) learned nothing from the private records"
        for name in silent_parts(*fitted)
    )
    return PrivacySpent(
        epsilon=stated_epsilon(compose(event), delta),
        delta=float(delta),
        relation=event.relation,
        event=event,
        sigma=None,
        sensitivity=None,
        assumptions=tuple(assumptions),
        mechanism=" + ".join(part.mechanism or "unnamed" for part in spent),
    )


def silent_parts(*fitted: Any) -> tuple[str, ...]:
    """Return the names of fitted parts that learned something and have no event."""
    parts = [part for estimator in fitted for part in _private_parts(estimator)]
    return tuple(dict.fromkeys(name for name, spent in parts if spent is None))


def _private_parts(estimator: object) -> list[tuple[str, PrivacySpent | None]]:
    """Return the parts that learned something, each with its statement; one must have one."""
    parts: list[tuple[str, PrivacySpent | None]] = []
    for _, part in leaves(estimator):
        name = type(part).__name__
        fits_private = is_wrapper(part) and next(parts_within(part), None) is not None
        if fits_private or hasattr(part, "cv_results_"):
            raise TypeError(
                f"{name} made many fits and does not keep them all. Give its estimator a "
                "PrivacyBudget, which counts them all."
            )
        spent = getattr(part, "privacy_spent_", part)  # None if the fit released nothing
        if isinstance(spent, PrivacySpent):
            parts.append((name, spent))
        elif spent is part:
            if part is estimator or learns(part) or isinstance(part, FrozenEstimator):
                parts.append((name, None))
    if parts and all(spent is None for _, spent in parts):
        raise TypeError(
            f"{type(estimator).__name__} has no `privacy_spent_`: fit it first, and pass private "
            "estimators or pipelines that hold one."
        )
    return parts
