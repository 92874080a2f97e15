r"""The cost of a search, planned from public facts before it starts.

The split is drawn once, from the number of rows alone, and is public. Under replace-one a record
keeps its position, so that both neighbours have the same split.

**One split.** A record is trained on or held out, never both. If it is trained on, neighbours
differ in the fit, and the score is the same function of the model and the same held-out rows:
post-processing. If it is held out, the model has the same law under both, and only the score
differs. A trial therefore costs the *larger* of both (parallel composition).

**Folds.** With k folds a record is trained on in k − 1 fits and held out of one. Its fits and its
score *add up*: :math:`\mu^2 = (k - 1) \mu_{fit}^2 + \mu_{score}^2`. In general a record
that is trained on a times and held out b times pays :math:`a \mu_{fit}^2 + (b / \sigma)^2`, since
the sum of all scores, each in [0, 1], changes by at most b; the trial costs the largest of these.

The split must not be drawn from the data: in a stratified split one changed label moves *other*
records between the parts. For the same reason nothing may be learned from all rows beforehand, such
as a scale or a selection of features, unless it is private and charged.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scipy.optimize import brentq

from skdpot._utils.pages import html_card
from skdpot.exceptions import CalibrationError
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent
from skdpot.privacy.gdp import gdp_delta, gdp_epsilon
from skdpot.privacy.noise import LatticeNoise, calibrate_rounded
from skdpot.privacy.pipelines import private_parts_of
from skdpot.privacy.reliability import OutputError, Reliability
from skdpot.privacy.rounding import epsilon_text
from skdpot.privacy.selection import LARGEST_MU, BudgetedEvent, TrialLaw, worst_profile
from skdpot.privacy.targets import LEAK_SHARE, PrivacyTarget, SingleFitTarget
from skdpot.search.splits import Splits

# Share of the squared mu of a trial that is spent on the score, if fits and score add up.
_SCORE_SHARE = 0.1
# Share of the squared mu of the search that is spent on the refit.
_REFIT_SHARE = 0.5
# Share of the tail of delta that the thresholds and samples of all fits together may leak.
_LEAK_SHARE = 0.5
# Leak of the sampler of the noise of a score (`skdpot.privacy.accounting`).
_SAMPLER_LEAK = 1e-18
# No search has a smaller mu per trial, as a logarithm.
_SMALLEST_LOG_MU = -9.0
# Calibration: the epsilon at which the first guess is made, precision of the root, first width of
# the bracket, first step to the private side.
_LARGEST_GUESSED_EPSILON = 600.0
_ROOT_TOLERANCE = 5e-4
_GUESS_TOLERANCE = 1e-3
_FIRST_WIDTH = 0.02
_FIRST_STEP = 1e-4
# Relative amounts by which the epsilon of a fit is rounded down until its mu is within the plan.
_ROUNDED_DOWN = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_UNIFORM_SPREAD = 1.0 / math.sqrt(12.0)  # standard deviation of a uniform score
_ADVICE = "Use more rows or a larger epsilon, or declare the parameters in place of a search."
_LAWS = {1.0: "geometric", 0.0: "logarithmic", math.inf: "Poisson, at least one"}


@dataclass(frozen=True)
class FitTerms:
    """The budget of one fit of a candidate, and the epsilon of each of its private parts."""

    epsilon: float
    delta: float
    part_epsilon: float

    @classmethod
    def within(cls, mu: float, delta: float, n_parts: int) -> "FitTerms":
        """Return terms that are mu-GDP except for their leak, divided equally among the parts."""
        if math.isinf(mu):
            return cls(mu, delta, mu)
        part = whole = _epsilon_within(mu, delta)
        if n_parts > 1:
            part_mu = PrivacyTarget(whole, delta).mu_cap / math.sqrt(n_parts)
            part = _epsilon_within(part_mu, delta)
        return cls(whole, delta, part)


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """The cost of a private search, before it starts."""

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
        """Epsilon of a single trial that is released without a choice, at `delta`."""
        return gdp_epsilon(self.trial_mu, self.delta)

    @property
    def score_deviation(self) -> float:
        """Standard deviation of the noise on a score, which lies in [0, 1]."""
        return 0.0 if self.score_noise is None else self.score_noise.sigma / self.n_scored

    def n_trials(self, level: float) -> int:
        """Return the number of trials that is exceeded with probability at most ``1 - level``."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level!r}.")
        return self.law.quantile(level)

    def reliability(self, score: float, winner: Any) -> Reliability:
        """Return the errors of the best score and of the outputs of the winner, if there is one.

        The score is the largest of several noisy ones, whose error is at most about the deviation
        times the root of 1 + 2 log m for m trials on average.
        """
        error = self.score_deviation * math.sqrt(1.0 + 2.0 * math.log(self.law.mean))
        of_score = OutputError(
            output="score of the best trial",
            estimate=score,
            standard_error=min(error, 1.0),
            trivial="a score drawn from [0, 1]",
            trivial_error=_UNIFORM_SPREAD,
        )
        parts = [] if winner is None else private_parts_of(winner)
        stated = [part.reliability_ for part in parts if hasattr(part, "reliability_")]
        outputs = (output for reliability in stated for output in reliability)
        return Reliability((of_score, *outputs), advice=_ADVICE)

    def __str__(self) -> str:
        guarantee = f"{epsilon_text(self.epsilon)}, δ = {self.delta:g}"
        rows = [("whole search", guarantee), *self._facts]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        rows = [(name.capitalize(), value) for name, value in self._facts]
        title = f"Private search: {epsilon_text(self.epsilon)}"
        return html_card(title, f"δ = {self.delta:g} · nothing spent yet", rows)

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """The rows of the printed plan."""
        law = _LAWS.get(self.law.shape, f"negative binomial of shape {self.law.shape:g}")
        trials = (
            f"{self.law.mean:.4g} on average ({law}); half of the searches make at most "
            f"{self.n_trials(0.5)}, 95 % at most {self.n_trials(0.95)}"
        )
        times = f", {self.n_fits} times" if self.n_fits > 1 else ""
        fit = f"{epsilon_text(self.fit.epsilon)} at δ = {self.fit.delta:.2g}"
        score = f"{self.score}, of the release, without noise"
        if self.n_scored:
            noise = f"noise of standard deviation {self.score_deviation:.2g}"
            score = f"{self.score} of {self.n_scored:,} rows, {noise}"
        facts = [
            ("trials", trials),
            ("finds one of the best tenth", f"with probability {1.0 - self.law.misses(0.1):.0%}"),
            ("a trial alone", epsilon_text(self.trial_epsilon)),
            ("a candidate's fit", f"{fit}, on {self.n_trained:,} rows{times}"),
            ("score", score),
        ]
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
    """Divide the budget of a search among trials, fits, scores and the refit."""
    law = TrialLaw.with_mean(mean_trials, shape)
    fits = splits.most_fits
    leak = _LEAK_SHARE * target.tail_delta / (mean_trials * fits + refit)
    trial_leak = leak * fits + _SAMPLER_LEAK
    if math.isinf(target.epsilon):
        event: Event = NonPrivateEvent()
        trial_mu = refit_mu = math.inf
    else:
        refit_mu = math.sqrt(_REFIT_SHARE) * target.mu_cap if refit else 0.0
        event = _calibrated(
            target,
            mean_trials=mean_trials,
            shape=shape,
            leak=trial_leak,
            refit_mu=refit_mu,
            refit_leak=leak,
        )
        trial_mu = event.phases[0].mu
    add_up = reads_rows and not splits.disjoint
    fit_mu = trial_mu * math.sqrt((1.0 - _SCORE_SHARE if add_up else 1.0) / fits)
    score_mu = trial_mu * (math.sqrt(_SCORE_SHARE) if add_up else 1.0)
    noisy = reads_rows and math.isfinite(score_mu)
    noise = calibrate_rounded(score_mu, float(splits.most_scores), 1) if noisy else None
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
    *,
    mean_trials: float,
    shape: float,
    leak: float,
    refit_mu: float,
    refit_leak: float,
) -> Event:
    """Return the event of a search with the largest mu per trial that the target admits."""

    def make(mu: float) -> Event:
        best = BudgetedEvent(
            mu=mu, mean_trials=mean_trials, shape=shape, leak=leak, label="The search"
        )
        if refit_mu == 0.0:
            return best
        refit = BudgetedEvent(mu=refit_mu, leak=refit_leak, label="The refit of the winner")
        return ComposedEvent(events=(best, refit))

    def excess(log_mu: float) -> float:
        return target.log_excess(make(math.exp(log_mu)))

    # An account is slow; the search for the root starts from one point of the profile.
    low, high = _guess(target, TrialLaw.with_mean(mean_trials, shape), refit_mu), math.inf
    ceiling, width = math.log(min(target.mu_cap, LARGEST_MU)), _FIRST_WIDTH
    while excess(low) > 0.0:
        low, high, width = low - width, low, 2.0 * width
        if low < _SMALLEST_LOG_MU:
            raise CalibrationError(
                f"No search fits in epsilon={target.epsilon:g} at delta={target.delta:g}. Raise "
                "epsilon, or expect fewer trials."
            )
    while math.isinf(high) and low < ceiling:
        above, width = min(low + width, ceiling), 2.0 * width
        low, high = (low, above) if excess(above) > 0.0 else (above, high)
    root = low if math.isinf(high) else float(brentq(excess, low, high, xtol=_ROOT_TOLERANCE))
    step = _FIRST_STEP
    while not target.admits(event := make(math.exp(root))):
        root -= step
        step *= 2.0
    return event


def _guess(target: PrivacyTarget, law: TrialLaw, refit_mu: float) -> float:
    """Estimate log(mu) of a trial from one point of the privacy profile of the best trial."""
    rest = math.sqrt(max(target.mu_cap**2 - refit_mu**2, 0.0))
    alone = isinstance(target, SingleFitTarget)
    epsilon = min(target.epsilon, _LARGEST_GUESSED_EPSILON) * rest / target.mu_cap if alone else 0.0
    due = gdp_delta(epsilon, rest)

    def excess(log_mu: float) -> float:
        delta = worst_profile(math.exp(log_mu), law, epsilon)[0]
        return math.log(max(delta, 1e-300) / due)

    high = math.log(min(rest, LARGEST_MU))
    if excess(high) <= 0.0:
        return high
    if excess(_SMALLEST_LOG_MU) >= 0.0:
        return _SMALLEST_LOG_MU
    return float(brentq(excess, _SMALLEST_LOG_MU, high, xtol=_GUESS_TOLERANCE))


def _epsilon_within(mu: float, delta: float) -> float:
    """Return the epsilon of a budget, rounded down, that is mu-GDP except for its leak."""
    epsilon = gdp_epsilon(mu, (1.0 - LEAK_SHARE) * delta)
    for share in _ROUNDED_DOWN:
        candidate = epsilon * (1.0 - share)
        if candidate > 0.0 and PrivacyTarget(candidate, delta).mu_cap <= mu:
            return candidate
    raise CalibrationError(
        f"A fit would have mu={mu:.2g} at delta={delta:.2g}, too little for any release. Raise "
        "epsilon, or expect fewer trials."
    )
