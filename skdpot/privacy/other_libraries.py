r"""Releases of other libraries, as events that a `PrivacyBudget` charges.

For some releases only :math:`(\varepsilon, \delta)` is known. Any such release is a post-processing
of the following experiment on a bit b [1]_: it reveals b with probability :math:`\delta`, and
otherwise it answers truthfully with probability :math:`p = e^\varepsilon / (1 + e^\varepsilon)`.
The profile of the answer at :math:`x \ge 0` is :math:`\max(0, p - e^x (1 - p))`, which is a line in
:math:`e^x` that ends at 0. The profile of :math:`\mu`-GDP is convex in :math:`e^x` and not
negative. At :math:`x = 0` it has the value :math:`2 \Phi(\mu/2) - 1` and the slope
:math:`-\Phi(-\mu/2)`. With :math:`\mu = 2 \Phi^{-1}(p)` these equal the value :math:`2p - 1` and
the slope :math:`-(1 - p)` of the line, which therefore touches the profile and lies below it. So
the release is :math:`\mu`-GDP with a leak of :math:`\delta`, and no smaller :math:`\mu` suffices.

A release that is :math:`\rho`-zCDP except with probability :math:`\delta` is charged like the worst
such release (`skdpot.privacy.concentrated`). Its laws given events E, E' of probability at least
:math:`1 - \delta` have at most the profile H of the class, so that
:math:`P(S) - e^x Q(S) \le \delta + (1 - \delta) H(x)`.

The statement of an accountant is interpreted under the relation of its mechanisms. Some tools of
diffprivlib protect a replaced record, with noise that depends on the number of rows (a mean, a
sum). Other tools protect a record that is added or removed (a histogram). Replacing a record costs
twice the epsilon of the latter: between the two neighbours, place the data set without the record
for these tools, and the second neighbour for the former ones. Both steps are
:math:`(\varepsilon, \delta)`-private, and together they are
:math:`(2 \varepsilon, (1 + e^\varepsilon) \delta)`-private. Under add-or-remove the former tools
guarantee nothing.

References
----------
.. [1] P. Kairouz, S. Oh, P. Viswanath, "The composition theorem for differential privacy", 2015.
"""

import math
from collections.abc import Iterable
from typing import Any

from scipy.special import ndtri_exp

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.concentrated import gdp_of_zcdp
from skdpot.privacy.events import ComposedEvent, Event, Relation
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.selection import BudgetedEvent

_ROUNDED_UP = 1.0 + 1e-12
# Distances between neighbours in the metrics of OpenDP.
_BY_ROWS = {Relation.REPLACE_ONE: 2, Relation.ADD_REMOVE: 1}
_NEIGHBOURS: dict[str, dict[Relation, int]] = {
    "SymmetricDistance": _BY_ROWS,
    "InsertDeleteDistance": _BY_ROWS,
    "ChangeOneDistance": {Relation.REPLACE_ONE: 1},
    "HammingDistance": {Relation.REPLACE_ONE: 1},
}


def event_of(spent: Any, relation: Relation) -> Event:
    """Return the event of an argument of `PrivacyBudget.spend`."""
    if isinstance(spent, Event):
        return spent
    if hasattr(spent, "output_measure") and hasattr(spent, "map"):
        return _of_measurement(spent, relation)
    if hasattr(spent, "spent_budget"):  # of diffprivlib
        return _of_accountant(spent, relation)
    history = getattr(spent, "history", spent)
    if isinstance(history, list):  # of Opacus
        return _together(_of_steps(entry, relation) for entry in history)
    if isinstance(spent, tuple) and len(spent) == 2:
        epsilon, delta = spent
        return _of_epsilon(epsilon, delta, relation)
    raise UnknownEventError(
        f"No accountant is known for {type(spent).__name__}: it is no Event, no measurement of "
        "OpenDP, no accountant of Opacus or diffprivlib, no list of (noise multiplier, sample "
        "rate, steps), and no (epsilon, delta)."
    )


def _together(events: Iterable[Event]) -> Event:
    """Compose one or more events."""
    all_events = tuple(events)
    if not all_events:
        raise ValueError("The accountant has recorded nothing yet. State what will be spent.")
    return all_events[0] if len(all_events) == 1 else ComposedEvent(events=all_events)


def _of_epsilon(epsilon: float, delta: float, relation: Relation) -> Event:
    """Return an event that dominates every (epsilon, delta)-private release."""
    if not (0.0 < epsilon < math.inf and 0.0 <= delta < 1.0):
        raise ValueError(f"epsilon={epsilon!r} must be > 0 and delta={delta!r} in [0, 1).")
    mu = -2.0 * float(ndtri_exp(-math.log1p(math.exp(-epsilon)) - epsilon)) * _ROUNDED_UP
    return BudgetedEvent(mu=mu, leak=delta, relation=relation)


def _of_accountant(spent: Any, relation: Relation) -> Event:
    """Return the event of an accountant of diffprivlib, valid for any of its tools."""
    if relation is not Relation.REPLACE_ONE:
        raise ValueError(
            "The noise of some tools of diffprivlib depends on the number of rows, so that its "
            f"accountant states nothing under {str(relation)!r}. Use a budget under "
            f"{str(Relation.REPLACE_ONE)!r}, or spend (epsilon, delta) of tools that you know."
        )
    limited = math.isfinite(spent.epsilon)
    pairs = [(spent.epsilon, spent.delta)] if limited else list(spent.spent_budget)
    return _together(
        _of_epsilon(2.0 * epsilon, (1.0 + math.exp(min(epsilon, 700.0))) * delta, relation)
        for epsilon, delta in pairs
    )


def _of_steps(entry: object, relation: Relation) -> Event:
    """Return the event of DP-SGD in a history of Opacus, in units of the clipping norm."""
    if not isinstance(entry, tuple | list) or len(entry) != 3:
        raise ValueError(
            "A history of Opacus holds tuples (noise multiplier, sample rate, steps), got an entry "
            f"of type {type(entry).__name__}."
        )
    noise_multiplier, rate, n_steps = entry
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
    """Return the event of a measurement of OpenDP, by its privacy map at neighbours."""
    metric, measure = measurement.input_metric.type, str(measurement.output_measure.type)
    d_in = _NEIGHBOURS.get(str(metric), {}).get(relation)
    if d_in is None:
        raise ValueError(
            f"How far neighbours under {str(relation)!r} are apart in {metric} is not known. Chain "
            "the measurement to its transformation, or spend what it costs at their distance as "
            "(epsilon, delta)."
        )
    try:
        cost = measurement.map(d_in)
    except Exception as error:  # of OpenDP, for example where another distance was fixed
        raise ValueError(f"OpenDP states no cost of neighbours {d_in} apart: {error}") from error
    known = {"MaxDivergence": _of_epsilon, "ZeroConcentratedDivergence": _of_rho}
    for name, of_loss in known.items():
        if measure == name:
            return of_loss(cost, 0.0, relation)
        if measure == f"Approximate<{name}>":
            loss, delta = cost
            return of_loss(loss, delta, relation)
    raise ValueError(
        f"{measure} is not supported: convert it to (epsilon, delta) or to zero-concentrated "
        "privacy, and fix the delta of a curve by make_fix_delta of OpenDP."
    )


def _of_rho(rho: float, delta: float, relation: Relation) -> Event:
    """Return an event that dominates every release that is rho-zCDP except with delta."""
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta={delta!r} must be in [0, 1).")
    worst = gdp_of_zcdp(rho)
    leak = delta + (1.0 - delta) * worst.leak
    return BudgetedEvent(mu=worst.mu, leak=leak, relation=relation)
