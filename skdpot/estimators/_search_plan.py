"""What a search costs, settled and shown before it starts; public facts only."""

import math
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd
from scipy.optimize import brentq

from skdpot.estimators._search_splits import Splits
from skdpot.exceptions import CalibrationError
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import LEAK_SHARE, PrivacyTarget, SingleFitTarget
from skdpot.privacy.display import epsilon_text, html_card, html_table
from skdpot.privacy.events import (
    BudgetedEvent,
    ComposedEvent,
    Event,
    NonPrivateEvent,
    PrivateSelectionEvent,
)
from skdpot.privacy.gdp import gdp_delta, gdp_epsilon
from skdpot.privacy.noise import LatticeNoise, calibrate_rounded
from skdpot.privacy.number_of_trials import TrialLaw
from skdpot.privacy.private_selection import LARGEST_MU, worst_profile

__all__ = ["FitTerms", "SearchPlan", "plan_search"]

_SCORE_SHARE = 0.1  # of the squared mu of a trial, where fits and score add up
_REFIT_SHARE = 0.5  # of the squared mu of the search
_LEAK_ROOM = 0.5  # of what thresholds and samples of one fit may leak
_SAMPLER = 1e-18
_SMALLEST_LOG_MU = -9.0
_LAWS = {1.0: "geometric", 0.0: "logarithmic", math.inf: "Poisson, at least one"}


@dataclass(frozen=True)
class FitTerms:
    """What one fit of a candidate may spend.

    Parameters
    ----------
    epsilon, delta : float
        Of the fit as a whole.
    part_epsilon : float
        Of each private part, where there are several; at the same delta.
    """

    epsilon: float
    delta: float
    part_epsilon: float

    @classmethod
    def within(cls, mu: float, delta: float, n_parts: int) -> "FitTerms":
        """Return terms whose budget is at most mu-GDP beside its leak, in equal parts."""
        if math.isinf(mu):
            return cls(mu, delta, mu)
        whole = _epsilon_within(mu, delta)
        if n_parts == 1:
            return cls(whole, delta, whole)
        part = PrivacyTarget(whole, delta).mu_cap / math.sqrt(n_parts)
        return cls(whole, delta, _epsilon_within(part, delta))

    def budget(self) -> PrivacyBudget:
        """Return a new budget for one fit, which no fit can overspend."""
        return PrivacyBudget(self.epsilon, self.delta)


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """The cost of a private search, before it starts.

    Parameters
    ----------
    epsilon, delta : float
        The whole search is (epsilon, delta)-differentially private.
    event : Event
        What is charged.
    law : TrialLaw
        Law of the number of trials, of which the number itself stays secret.
    trial_mu : float
        One trial, its score included, is `trial_mu`-GDP.
    fit : FitTerms
        What each fit of a candidate may spend.
    refit : FitTerms or None
        What the refit of the winner on all rows may spend.
    score : str
        What the trials are compared by.
    score_noise : LatticeNoise or None
        Noise of the sum of the scores; None for what needs none.
    n_trained, n_scored : int
        Rows of a fit, and held-out rows that a score is the mean of.
    n_fits : int
        Fits of one trial.
    """

    epsilon: float
    delta: float
    event: Event
    law: TrialLaw
    trial_mu: float
    fit: FitTerms
    refit: FitTerms | None
    score: str
    score_noise: LatticeNoise | None
    n_trained: int
    n_scored: int
    n_fits: int

    @property
    def trial_epsilon(self) -> float:
        """What one trial would cost if it were released without a choice, at `delta`."""
        return math.inf if math.isinf(self.trial_mu) else gdp_epsilon(self.trial_mu, self.delta)

    @property
    def score_deviation(self) -> float:
        """Standard deviation of the noise on a score, which lies in [0, 1]."""
        return 0.0 if self.score_noise is None else self.score_noise.sigma / self.n_scored

    def n_trials(self, level: float) -> int:
        """Return the number of trials that is exceeded with probability ``1 - level`` at most.

        Parameters
        ----------
        level : float
            In (0, 1).

        Returns
        -------
        int
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level!r}.")
        return self.law.quantile(level)

    def to_frame(self) -> pd.DataFrame:
        """Return the plan as one row with a column a figure.

        Returns
        -------
        DataFrame
        """
        row = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "trial_epsilon": self.trial_epsilon,
            "fit_epsilon": self.fit.epsilon,
            "fit_delta": self.fit.delta,
            "refit_epsilon": math.nan if self.refit is None else self.refit.epsilon,
            "score": self.score,
            "score_deviation": self.score_deviation,
            "mean_trials": self.law.mean,
            "median_trials": self.n_trials(0.5),
            "trials_95": self.n_trials(0.95),
            "misses_best_tenth": self.law.misses(0.1),
            "n_trained": self.n_trained,
            "n_scored": self.n_scored,
            "n_fits": self.n_fits,
        }
        return pd.DataFrame([row])

    def __str__(self) -> str:
        """Return the plan, a fact a line."""
        guarantee = f"{epsilon_text(self.epsilon)}, δ = {self.delta:g}"
        rows = [("whole search", guarantee), *self._facts]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        """Return the plan as a card for notebooks."""
        rows = [(name.capitalize(), value) for name, value in self._facts]
        title = f"Private search: {epsilon_text(self.epsilon)}"
        return html_card(title, f"δ = {self.delta:g} · nothing spent yet", html_table(rows))

    @property
    def _facts(self) -> list[tuple[str, str]]:
        law = _LAWS.get(self.law.shape, f"negative binomial of shape {self.law.shape:g}")
        facts = [
            (
                "trials",
                f"{self.law.mean:.4g} on average ({law}); half of the searches make at most "
                f"{self.n_trials(0.5)}, 95 % at most {self.n_trials(0.95)}",
            ),
            ("finds one of the best tenth", f"with probability {1.0 - self.law.misses(0.1):.0%}"),
            ("a trial alone", epsilon_text(self.trial_epsilon)),
            (
                "a candidate's fit",
                f"{epsilon_text(self.fit.epsilon)} at δ = {self.fit.delta:.2g}, on "
                f"{self.n_trained:,} rows" + (f", {self.n_fits} times" if self.n_fits > 1 else ""),
            ),
        ]
        if self.n_scored:
            noise = f"noise of standard deviation {self.score_deviation:.2g}"
            facts.append(("score", f"{self.score} of {self.n_scored:,} rows, {noise}"))
        else:
            facts.append(("score", f"{self.score}, of what is released, without noise"))
        if self.refit is not None:
            facts.append(("refit on all rows", epsilon_text(self.refit.epsilon)))
        return facts


def plan_search(
    target: PrivacyTarget,
    splits: Splits,
    *,
    mean_trials: float,
    shape: float,
    refit: bool,
    score: str,
    reads_rows: bool,
    n_parts: int,
) -> SearchPlan:
    """Divide what a search may spend among trials, fits, scores and the refit.

    Parameters
    ----------
    target : PrivacyTarget
        For the whole search.
    splits : Splits
        Public split of the rows.
    mean_trials, shape : float
        Of the number of trials.
    refit : bool
        Whether the winner is fitted again on all rows.
    score : str
        Name of the score.
    reads_rows : bool
        Whether it looks at held-out rows.
    n_parts : int
        Private parts of a candidate, which share the squared mu of a fit.

    Returns
    -------
    SearchPlan

    Raises
    ------
    CalibrationError
        If epsilon or delta is so small that nothing could be fitted.
    """
    law = TrialLaw.with_mean(mean_trials, shape)
    fits = splits.most_fits
    # A fit's own budget leaks at most this, and there are so many of them.
    leak = _LEAK_ROOM * target.tail_delta / (mean_trials * fits + refit)
    trial_leak = leak * fits + _SAMPLER
    if math.isinf(target.epsilon):
        event: Event = NonPrivateEvent()
        trial_mu = refit_mu = math.inf
    else:
        refit_mu = math.sqrt(_REFIT_SHARE) * target.mu_cap if refit else 0.0
        event = _calibrated(target, mean_trials, shape, trial_leak, refit_mu, leak)
        chosen = event.events[0] if isinstance(event, ComposedEvent) else event
        trial_mu = chosen.mu if isinstance(chosen, PrivateSelectionEvent) else math.inf
    together = reads_rows and not splits.disjoint
    fit_mu = trial_mu * math.sqrt((1.0 - _SCORE_SHARE if together else 1.0) / fits)
    score_mu = trial_mu * (math.sqrt(_SCORE_SHARE) if together else 1.0)
    noise = None
    if reads_rows and math.isfinite(score_mu):
        noise = calibrate_rounded(score_mu, float(splits.most_scores), 1)
    delta = leak / LEAK_SHARE
    return SearchPlan(
        epsilon=target.epsilon,
        delta=target.delta,
        event=event,
        law=law,
        trial_mu=trial_mu,
        fit=FitTerms.within(fit_mu, delta, n_parts),
        refit=FitTerms.within(refit_mu, delta, n_parts) if refit else None,
        score=score,
        score_noise=noise,
        n_trained=splits.n_trained,
        n_scored=splits.n_scored if reads_rows else 0,
        n_fits=len(splits.folds),
    )


@lru_cache(maxsize=128)
def _calibrated(
    target: PrivacyTarget,
    mean_trials: float,
    shape: float,
    leak: float,
    refit_mu: float,
    refit_leak: float,
) -> Event:
    """Return the selection among the least private trials that fits in the target."""

    def make(mu: float) -> Event:
        best = PrivateSelectionEvent(mu=mu, mean_trials=mean_trials, shape=shape, leak=leak)
        if refit_mu == 0.0:
            return best
        return ComposedEvent(events=(best, BudgetedEvent(mu=refit_mu, leak=refit_leak)))

    def excess(log_mu: float) -> float:
        return target.log_excess(make(math.exp(log_mu)))

    # An account of every trial takes a while: start from where one point of it says.
    high = _guess(target, TrialLaw.with_mean(mean_trials, shape), refit_mu)
    width = 0.02
    if excess(high) > 0.0:
        low = high - width
        while excess(low) > 0.0:
            width *= 2.0
            high, low = low, low - width
            if low < _SMALLEST_LOG_MU:
                raise CalibrationError(_too_small(target))
        high = float(brentq(excess, low, high, xtol=5e-4))
    else:
        ceiling = math.log(min(target.mu_cap, LARGEST_MU))
        while high < ceiling and excess(min(high + width, ceiling)) <= 0.0:
            high, width = min(high + width, ceiling), 2.0 * width
        if high < ceiling:
            high = float(brentq(excess, high, min(high + width, ceiling), xtol=5e-4))
    step = 1e-4
    while not target.admits(event := make(math.exp(high))):
        high -= step
        step *= 2.0
    return event


def _guess(target: PrivacyTarget, law: TrialLaw, refit_mu: float) -> float:
    """Return about the log(mu) of a trial, from one point of the profile of the best one.

    A fit that stands alone is judged at its epsilon, and one in a ledger by its whole profile,
    of which the point at 0 counts most.
    """
    rest = math.sqrt(max(target.mu_cap**2 - refit_mu**2, 0.0))
    alone = isinstance(target, SingleFitTarget)
    epsilon = min(target.epsilon, 600.0) * rest / target.mu_cap if alone else 0.0
    due = gdp_delta(epsilon, rest)

    def excess(log_mu: float) -> float:
        found = worst_profile(math.exp(log_mu), law, epsilon)[0]
        return math.log(max(found, 1e-300) / due)

    high = math.log(min(rest, LARGEST_MU))
    if excess(high) <= 0.0:
        return high
    if excess(_SMALLEST_LOG_MU) >= 0.0:
        raise CalibrationError(_too_small(target))
    return float(brentq(excess, _SMALLEST_LOG_MU, high, xtol=1e-3))


def _too_small(target: PrivacyTarget) -> str:
    return (
        f"No search fits in epsilon={target.epsilon:g} at delta={target.delta:g}. Raise epsilon, "
        "or expect fewer trials."
    )


def _epsilon_within(mu: float, delta: float) -> float:
    """Return an epsilon, rounded down, of which the budget is at most mu-GDP beside its leak."""
    epsilon = gdp_epsilon(mu, (1.0 - LEAK_SHARE) * delta)
    for digits in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        candidate = epsilon * (1.0 - digits)
        if candidate > 0.0 and PrivacyTarget(candidate, delta).mu_cap <= mu:
            return candidate
    raise CalibrationError(
        f"A fit of a candidate would have mu={mu:.2g} at delta={delta:.2g}, which is too little "
        "for any release. Raise epsilon, or expect fewer trials."
    )
