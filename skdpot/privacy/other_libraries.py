r"""Releases of other libraries, as events that a `PrivacyBudget` charges.

Of some releases only :math:`(\varepsilon, \delta)` is known. Any such release is a post-processing
of this experiment on a bit b [1]_: with probability :math:`\delta` it tells b, and otherwise it
answers truthfully with probability :math:`p = e^\varepsilon / (1 + e^\varepsilon)`. The profile of
the answer at :math:`x \ge 0` is :math:`\max(0, p - e^x (1 - p))`: in :math:`e^x` a line that ends
at 0. The profile of :math:`\mu`-GDP is convex in :math:`e^x`, is not negative, has the value
:math:`2 \Phi(\mu/2) - 1` and the slope :math:`-\Phi(-\mu/2)` at :math:`x = 0`. With
:math:`\mu = 2 \Phi^{-1}(p)` these are :math:`2p - 1` and :math:`-(1 - p)`, those of the line, which
therefore touches the profile and lies below it. So the release is :math:`\mu`-GDP but for a leak of
:math:`\delta`, and no smaller :math:`\mu` would do.

References
----------
.. [1] P. Kairouz, S. Oh, P. Viswanath, "The composition theorem for differential privacy", 2015.
"""

import math
from collections.abc import Iterable
from typing import Any

from scipy.special import ndtri_exp

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, Relation
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.selection import BudgetedEvent

_ROUNDED_UP = 1.0 + 1e-12
# A discrete Gaussian of s >= 16 lattice steps costs at most 1 + 1 / (20 s^2) times the continuous.
_DISCRETE = 1.0 + 1.0 / (20.0 * 16.0**2)
# How far neighbours are apart in the metrics of OpenDP.
_BY_ROWS = {Relation.REPLACE_ONE: 2, Relation.ADD_REMOVE: 1}
_NEIGHBOURS: dict[str, dict[Relation, int]] = {
    "SymmetricDistance": _BY_ROWS,
    "InsertDeleteDistance": _BY_ROWS,
    "ChangeOneDistance": {Relation.REPLACE_ONE: 1},
    "HammingDistance": {Relation.REPLACE_ONE: 1},
}


def event_of(spent: Any, relation: Relation) -> Event:
    """Return the event of what `PrivacyBudget.spend` is given."""
    if isinstance(spent, Event):
        return spent
    if hasattr(spent, "output_measure"):
        return _of_measurement(spent, relation)
    if hasattr(spent, "spent_budget"):  # of diffprivlib
        limited = math.isfinite(spent.epsilon)
        pairs = [(spent.epsilon, spent.delta)] if limited else list(spent.spent_budget)
        # Of its mechanisms some bound what adding or removing a row does, such as its histogram.
        # Replacing one is twice that, and (2 epsilon, (1 + exp(epsilon)) delta)-private for them.
        if relation is Relation.REPLACE_ONE:
            pairs = [(2.0 * epsilon, (1.0 + math.exp(epsilon)) * d) for epsilon, d in pairs]
        return _together(_of_epsilon(epsilon, delta, relation) for epsilon, delta in pairs)
    history = getattr(spent, "history", spent)
    if isinstance(history, list):  # of Opacus
        return _together(_of_steps(z, rate, n, relation) for z, rate, n in history)
    if isinstance(spent, tuple) and len(spent) == 2:
        epsilon, delta = spent
        return _of_epsilon(epsilon, delta, relation)
    raise UnknownEventError(
        f"No accountant is known for {type(spent).__name__}: it is no Event, no measurement of "
        "OpenDP, no accountant of Opacus or diffprivlib, no list of (noise multiplier, sample "
        "rate, steps), and no (epsilon, delta)."
    )


def _together(events: Iterable[Event]) -> Event:
    found = tuple(events)
    if not found:
        raise ValueError("The accountant has recorded nothing yet. State what will be spent.")
    return found[0] if len(found) == 1 else ComposedEvent(events=found)


def _of_epsilon(epsilon: float, delta: float, relation: Relation) -> Event:
    """Return an event that dominates every (epsilon, delta)-private release."""
    if not (0.0 < epsilon < math.inf and 0.0 <= delta < 1.0):
        raise ValueError(f"epsilon={epsilon!r} must be > 0 and delta={delta!r} in [0, 1).")
    mu = -2.0 * float(ndtri_exp(-math.log1p(math.exp(-epsilon)) - epsilon)) * _ROUNDED_UP
    return BudgetedEvent(mu=mu, leak=delta, relation=relation)


def _of_steps(noise_multiplier: float, rate: float, n_steps: int, relation: Relation) -> Event:
    """Return the event of DP-SGD, in units of the clipping norm."""
    replaced = relation is Relation.REPLACE_ONE
    return SampledGaussianEvent(
        sampling="poisson",
        sigma=noise_multiplier,
        sensitivity=2.0 if replaced else 1.0,
        clipped_sum=replaced,
        sampling_rate=rate,
        n_steps=n_steps,
        relation=relation,
    )


def _of_measurement(measurement: Any, relation: Relation) -> Event:
    """Return the event of a measurement of OpenDP, by its privacy map at neighbouring data sets."""
    metric, measure = str(measurement.input_metric), str(measurement.output_measure)
    metric = metric.partition("(")[0]
    d_in = _NEIGHBOURS.get(metric, {}).get(relation)
    if d_in is None:
        raise ValueError(
            f"How far neighbours under {str(relation)!r} are apart in {metric} is not known. Chain "
            "the measurement to its transformation, or spend measurement.map(d_in) as (epsilon, "
            "delta)."
        )
    cost = measurement.map(d_in)
    if measure == "MaxDivergence":
        return _of_epsilon(cost, 0.0, relation)
    if measure == "Approximate(MaxDivergence)":
        epsilon, delta = cost
        return _of_epsilon(epsilon, delta, relation)
    if measure == "ZeroConcentratedDivergence":
        sigma = 1.0 / math.sqrt(2.0 * cost) / _DISCRETE
        return GaussianEvent(sigma=sigma, sensitivity=1.0, relation=relation)
    if measure == "Approximate(ZeroConcentratedDivergence)":
        rho, delta = cost
        mu = math.sqrt(2.0 * rho) * _DISCRETE
        return BudgetedEvent(mu=mu, leak=delta, relation=relation)
    raise ValueError(f"{measure} is not supported: fix its delta by make_fix_delta of OpenDP.")
