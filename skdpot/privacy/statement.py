"""The privacy statement of a fit, and the checks of a statement that is read from a file."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, TypeGuard

from skdpot._utils.pages import html_card
from skdpot._utils.records import LARGEST_COUNT
from skdpot.privacy.accounting import PrivacyLoss, compose
from skdpot.privacy.events import Event, Relation, check_group_size
from skdpot.privacy.gdp import ROUNDING
from skdpot.privacy.rounding import epsilon_text
from skdpot.privacy.units import exact_leak

if TYPE_CHECKING:
    import pandas as pd

# One number for the whole fit, one per phase, or None if there is no single number.
Scale: TypeAlias = float | tuple[float, ...] | None
_ROUNDING = 1e-6  # relative difference of delta between machines


@dataclass(frozen=True)
class PrivacySpent:
    """The privacy statement of one fit, made of public facts only.

    Parameters
    ----------
    epsilon, delta : float
        The whole fit is (epsilon, delta)-differentially private.
    relation : Relation
        Definition of neighbouring data sets.
    event : Event
        Description of all accesses to private data.
    sigma : float, tuple of float or None
        Standard deviation of the noise, possibly one per phase.
    sensitivity : float, tuple of float or None
        L2 sensitivity to which `sigma` was calibrated.
    assumptions : tuple of str
        Facts assumed to be public; the statement holds only if they are.
    mechanism : str, default=""
        Description of the mechanism.
    """

    epsilon: float
    delta: float
    relation: Relation
    event: Event
    sigma: Scale
    sensitivity: Scale
    assumptions: tuple[str, ...]
    mechanism: str = ""

    def for_group(self, group_size: SupportsIndex) -> float:
        """Return the epsilon, at the same delta, for groups of records.

        Parameters
        ----------
        group_size : int
            Number k of records that change together, for example all rows of one person. Under
            replace-one, their values change, and the public facts in the assumptions do not.

        Returns
        -------
        float
            Rounded up; infinity if no bound is known at this delta. For Gaussian releases of all
            records it is the epsilon of k times their mu, which is attained. In general it is
            k x for the smallest x with delta(x) (e^(k x) - 1) / (e^x - 1) <= `delta`, where
            delta(x) is the profile for one record.

        Raises
        ------
        UnknownEventError
            If no accountant is known for the event.
        ValueError
            If `group_size` is not an integer of at least 1.

        Notes
        -----
        Dividing epsilon by k is *not* enough: the group gets a larger epsilon at the same delta.
        For epsilon = 3 with five rows per person, spend 0.5, not 0.6:

        >>> from skdpot.privacy.targets import SingleFitTarget
        >>> from skdpot.privacy.calibration import calibrate
        >>> from skdpot.privacy.events import GaussianEvent
        >>> def spent(epsilon):
        ...     target = SingleFitTarget(epsilon, 1e-5)
        ...     event = calibrate(target, lambda s: GaussianEvent(sigma=s, sensitivity=1.0))
        ...     return PrivacySpent(epsilon, 1e-5, event.relation, event, None, None, ())
        >>> spent(0.6).for_group(5)
        3.58
        >>> spent(0.5).for_group(5)
        2.96
        """
        size = check_group_size(group_size)
        if math.isinf(self.epsilon) or size == 1:
            return self.epsilon
        delta = self.delta * (1.0 - 2.0 * ROUNDING)
        return compose(self.event).group_epsilon(size, delta, self.event.group_leak(size))

    def to_frame(self) -> "pd.DataFrame":
        """Return the statement as one row of a table, with one column per field.

        Returns
        -------
        DataFrame
            The event is converted to text, and the assumptions are joined by semicolons.
        """
        import pandas as pd  # loading it takes half a second

        row = {item.name: getattr(self, item.name) for item in fields(self)}
        row |= {"relation": str(self.relation), "event": str(self.event)}
        row["assumptions"] = "; ".join(self.assumptions)
        return pd.DataFrame([row])

    def __repr__(self) -> str:
        """Return the guarantee and the noise in one line."""
        mechanism = f"mechanism={self.mechanism!r}, " if self.mechanism else ""
        return (
            f"PrivacySpent(epsilon={self.epsilon!r}, delta={self.delta!r}, "
            f"relation={str(self.relation)!r}, {mechanism}"
            f"sigma={self.sigma!r}, sensitivity={self.sensitivity!r})"
        )

    def __str__(self) -> str:
        """Return the whole statement, one fact per line."""
        rows = [("guarantee", f"{epsilon_text(self.epsilon)}, δ = {self.delta:g}"), *self._facts()]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        """Return the statement as a card for notebooks."""
        rows = [
            (name.capitalize(), self.event.describe() if name == "event" else value)
            for name, value in self._facts()
        ]
        title = f"Privacy statement: {epsilon_text(self.epsilon)}"
        aside = f"δ = {self.delta:g} · {str(self.relation).replace('_', ' ')}"
        return html_card(title, aside, rows)

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the statement after the guarantee."""
        meaning = {
            Relation.REPLACE_ONE: "one record replaced by another (their number is public)",
            Relation.ADD_REMOVE: "one record added or removed",
        }
        nothing = "nothing (epsilon is infinite)"
        yield "protects against", nothing if math.isinf(self.epsilon) else meaning[self.relation]
        if self.mechanism:
            yield "mechanism", self.mechanism
        if self.sigma is not None:
            yield "noise sigma", _numbers(self.sigma)
        if self.sensitivity is not None:
            yield "sensitivity", _numbers(self.sensitivity)
        yield "event", str(self.event)
        for number, assumption in enumerate(self.assumptions, start=1):
            yield f"assumes {number}", assumption


def scales_of(event: Event) -> tuple[Scale, Scale]:
    """Return the noise of each phase, and the sensitivity of all steps of the phase together."""
    phases: tuple[Any, ...] = event.phases if event.is_private else ()
    sensitivities = (phase.sensitivity * math.sqrt(phase.n_steps) for phase in phases)
    return tuple(phase.sigma for phase in phases) or None, tuple(sensitivities) or None


def stated_epsilon(loss: PrivacyLoss, delta: float) -> float:
    """Return an epsilon that holds on any machine: delta pays for rounding and the sampler."""
    rest = float(Fraction(delta) - exact_leak(loss.n_steps)) * (1.0 - 2.0 * ROUNDING)
    return loss.epsilon(rest) if rest > 0.0 else math.inf


def _numbers(value: float | tuple[float, ...]) -> str:
    """Format one or several numbers with four digits."""
    return ", ".join(f"{number:.4g}" for number in (value if isinstance(value, tuple) else [value]))


def check_statement(spent: PrivacySpent, noun: str) -> tuple[tuple[Any, ...], float | None]:
    """Refuse a statement that promises more privacy than its events provide.

    Returns the events (none without privacy), and the mu that was charged if the release is the
    result of a private search; the release is then a part of one trial or of the refit.
    """
    check_epsilon_delta(spent.epsilon, spent.delta, noun)
    stated = [
        scale if isinstance(scale, tuple) else () if scale is None else (scale,)
        for scale in (spent.sigma, spent.sensitivity)
    ]
    if not all(is_exact_number(n) and 0 <= n < math.inf for numbers in stated for n in numbers):
        raise ValueError(f"The {noun} states an impossible noise or sensitivity.")
    if spent.relation is not Relation.REPLACE_ONE or spent.event.relation is not spent.relation:
        raise ValueError(f"A {noun} is private under replace-one, and states no other relation.")
    events = spent.event.phases
    chosen = all(event.is_budget for event in events)
    for event in events:
        if not event.in_files or event.is_budget is not chosen:
            raise ValueError(
                f"The {noun} states an event of type {type(event).__name__}, which is not allowed."
            )
    if not spent.event.is_private:
        if math.isfinite(spent.epsilon):
            raise ValueError(f"The {noun} states a finite epsilon for a release without noise.")
        if any(stated[0]):
            raise ValueError(f"The {noun} states noise of a release without noise.")
        return (), None
    if not compose(spent.event).delta(spent.epsilon) <= spent.delta * (1 + _ROUNDING):
        raise ValueError(f"The {noun} states a smaller epsilon than its own events cost.")
    return events, events[-1].mu if chosen else None


def check_epsilon_delta(epsilon: object, delta: object, noun: str) -> None:
    """Refuse an epsilon that is not positive and a delta outside of (0, 1)."""
    if not (is_exact_number(epsilon) and is_exact_number(delta) and epsilon > 0 and 0 < delta < 1):
        raise ValueError(f"The {noun} states an epsilon that is not > 0, or a delta not in (0, 1).")


def is_exact_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number that double precision represents exactly."""
    return type(value) is float or (type(value) is int and abs(value) <= LARGEST_COUNT)
