"""What a ledger's totals mean: how much of (epsilon, delta) is spent, left, or asked for."""

import math
from dataclasses import dataclass

from skdpot.privacy.calibration import LEAK_SHARE, PrivacyTarget
from skdpot.privacy.display import rounded_down, rounded_up
from skdpot.privacy.gdp import gdp_epsilon
from skdpot.privacy.ledger import Charge, Terms, Totals
from skdpot.privacy.relation import Relation
from skdpot.privacy.units import Units, mu_of

__all__ = ["BudgetState", "epsilon_of", "make_terms"]


def make_terms(epsilon: float, delta: float, relation: str) -> Terms:
    """Check a budget's arguments and compute its caps.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    relation : str
        The value of a `Relation`.

    Returns
    -------
    Terms
        For a new ledger.

    Raises
    ------
    TypeError
        If `epsilon` or `delta` is not a number.
    ValueError
        If an argument is out of range, or so small that nothing could ever be released.
    """
    try:
        target = PrivacyTarget(epsilon, delta)
    except TypeError:
        raise TypeError(
            "`epsilon` and `delta` must be numbers, got "
            f"{type(epsilon).__name__} and {type(delta).__name__}."
        ) from None
    if target.mu_squared_units < 1 or target.leak_units < 1:
        raise ValueError(
            f"Nothing fits in epsilon={epsilon!r} and delta={delta!r}: use a delta of at least "
            "1e-17 and a larger epsilon."
        )
    allowed = [str(member) for member in Relation]
    if relation not in allowed:
        raise ValueError(f"`relation` must be one of {allowed}, got {relation!r}.")
    return Terms(
        target.epsilon,
        target.delta,
        Relation(relation),
        target.mu_squared_units,
        target.leak_units,
    )


def epsilon_of(mu_squared_units: Units, delta: float) -> float:
    """Return the epsilon of that many units, with the same split of `delta` as the caps."""
    return gdp_epsilon(mu_of(mu_squared_units), (1.0 - LEAK_SHARE) * delta)


@dataclass(frozen=True)
class BudgetState:
    """A ledger's terms and its totals at one moment.

    Parameters
    ----------
    terms : Terms
        The guarantee and the caps.
    totals : Totals
        The sums over all charges.
    """

    terms: Terms
    totals: Totals

    @property
    def spent(self) -> float:
        """The epsilon of all charges, rounded up, though not past the cap that they obey."""
        return min(
            epsilon_of(self.totals.mu_squared_units, self.terms.delta),
            self.terms.epsilon,
        )

    @property
    def charges(self) -> str:
        """How many charges there are, in words."""
        n = self.totals.n_charges
        return "1 charge" if n == 1 else f"{n} charges"

    @property
    def share(self) -> float:
        """The spent share of the caps, the fuller one of both."""
        if math.isinf(self.terms.epsilon):
            return 0.0
        return max(
            self.totals.mu_squared_units / self.terms.mu_squared_cap,
            self.totals.leak_units / self.terms.leak_cap,
        )

    @property
    def remaining(self) -> float:
        """The largest epsilon, rounded down, of an estimator whose whole target still fits."""
        if self.totals.n_charges == 0 or math.isinf(self.terms.epsilon):
            return self.terms.epsilon
        left = self.terms.mu_squared_cap - self.totals.mu_squared_units
        if left <= 0 or self.totals.leak_units >= self.terms.leak_cap:
            return 0.0
        epsilon = min(epsilon_of(left, self.terms.delta), self.terms.epsilon)
        for exponent in range(-53, 0):
            if epsilon == 0.0:
                break
            if PrivacyTarget(epsilon, self.terms.delta).mu_squared_units <= left:
                return epsilon
            epsilon *= 1.0 - math.ldexp(1.0, exponent)
        return 0.0

    def refusal(self, charge: Charge) -> str:
        """Say what was asked, what is left and what to do about it, in public values only."""
        name = f"{charge.label!r} asks" if charge.label else "A release asks"
        asked = f"epsilon={rounded_up(charge.epsilon)} at delta={self.terms.delta:g}"
        left = rounded_down(self.remaining)
        problem = f"epsilon={left} is left"
        advice = f"Ask for epsilon={left} or less"
        if float(left) == 0.0:
            advice = "Reuse what was already released (sampling from a fitted model is free)"
        if self.totals.after(charge).mu_squared_units <= self.terms.mu_squared_cap:
            problem = "the part of delta that pays for random batches and thresholds is used up"
            advice = "Fit without random batches and with the categories declared"
        return (
            f"{name} for {asked}, but {problem} in this budget (epsilon={self.terms.epsilon:g}, "
            f"{self.charges} so far). Nothing was charged or released. {advice}, "
            "or set up a larger budget if your policy allows one. In GridSearchCV and "
            "cross_val_score pass error_score='raise': their default turns this error into a nan "
            "score and goes on."
        )
