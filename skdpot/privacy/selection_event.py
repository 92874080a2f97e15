"""Events of what is released after a choice: of the best of many trials, or under a cap."""

import math
from dataclasses import dataclass

from skdpot.privacy.event_base import Event, positive_float
from skdpot.privacy.number_of_trials import MOST_STEEP_TRIALS, STEEP_SHAPE

__all__ = ["BudgetedEvent", "PrivateSelectionEvent"]


@dataclass(frozen=True, kw_only=True)
class BudgetedEvent(Event):
    """Whatever a `PrivacyBudget` of its own admits, taken as one event.

    A budget is a filter: however many fits draw on it, and however later ones depend on earlier
    ones, all together tell no more than "everything with probability `leak`, otherwise one draw of
    N(mu b, 1)". So what happens under it can be charged before it is known.

    Parameters
    ----------
    mu : float
        Privacy of what is not leaked, ``PrivacyTarget.mu_cap``.
    leak : float
        Probability in [0, 1) of telling everything, ``PrivacyTarget.leak_cap``.
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation of the budget.

    Raises
    ------
    ValueError
        If a field is out of range.
    """

    mu: float
    leak: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._store("mu", positive_float(self, "mu", self.mu))
        self._store("leak", _probability(self, "leak", self.leak))


@dataclass(frozen=True, kw_only=True)
class PrivateSelectionEvent(Event):
    """The best of a random, secret number of independent trials, and nothing of the others.

    Every trial is "everything with probability `leak`, otherwise `mu`-GDP", and so is its score;
    of all trials the one with the best score is released whole. `skdpot.privacy.private_selection`
    proves what that costs.

    Parameters
    ----------
    mu : float
        Privacy of one trial.
    mean_trials : float
        Expected number of trials, from 1 to a million; to 50 for a shape above 3.
    shape : float, default=1.0
        Shape of the law of their number: 1 is geometric, 0 logarithmic, infinity Poisson given at
        least one; any other number from -0.5 on a truncated negative binomial law.
    leak : float, default=0.0
        Probability that one trial tells everything.
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation of the trials.

    Raises
    ------
    ValueError
        If a field is out of range.
    """

    mu: float
    mean_trials: float
    shape: float = 1.0
    leak: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._store("mu", positive_float(self, "mu", self.mu))
        mean = positive_float(self, "mean_trials", self.mean_trials)
        self._store("shape", _shape(self, self.shape))
        most = MOST_STEEP_TRIALS if self.shape > STEEP_SHAPE else 1e6
        if not 1.0 <= mean <= most:
            raise ValueError(
                f"PrivateSelectionEvent: `mean_trials` must lie in [1, {most:g}] for "
                f"shape={self.shape:g}, got {mean!r}."
            )
        self._store("mean_trials", mean)
        self._store("leak", _probability(self, "leak", self.leak))
        if self.leak * mean >= 1.0:
            raise ValueError(
                "PrivateSelectionEvent: `leak` must be below one over the expected number of "
                f"trials, got {self.leak!r} with mean_trials={mean!r}."
            )

    @property
    def trial(self) -> BudgetedEvent:
        """What one trial is."""
        return BudgetedEvent(mu=self.mu, leak=self.leak, relation=self.relation)


def _shape(owner: object, value: object) -> float:
    number = float(value) if _is_real(value) else math.nan  # type: ignore[arg-type]
    if not number >= -0.5:
        raise ValueError(
            f"{type(owner).__name__}: `shape` must be at least -0.5, or infinity, got {value!r}."
        )
    return number


def _probability(owner: object, name: str, value: object) -> float:
    number = float(value) if _is_real(value) else math.nan  # type: ignore[arg-type]
    if not 0.0 <= number < 1.0:
        raise ValueError(f"{type(owner).__name__}: `{name}` must lie in [0, 1), got {value!r}.")
    return number


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
