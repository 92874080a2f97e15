r"""The cost of a search, planned from public facts before it starts.

The split is drawn once, from the number of rows alone, and is public. Under replace-one a record
keeps its place, so that both neighbours have the same split.

**One split.** A record is trained on or held out, never both. If it is trained on, neighbours
differ in the fit; the score is then the same function of the model and the same held-out rows:
post-processing. If it is held out, the model has the same law under both, and only the score
differs. So a trial costs the *larger* of both (parallel composition).

**Folds.** With k folds a record is trained on in k − 1 fits and held out of one, so that its fits
and its score *add up*: :math:`\mu^2 = (k - 1) \mu_{fit}^2 + \mu_{score}^2`. In general a record
that is trained on a times and held out b times pays :math:`a \mu_{fit}^2 + (b / \sigma)^2`, since
the sum of all scores, each in [0, 1], moves by b at most; the trial costs the largest of these.

The split must not be drawn from the data: a stratified split moves *other* records between the
parts when one label changes. For the same reason nothing may be learned from all rows beforehand,
such as a scale or a selection of features, unless it is private and charged.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.model_selection import KFold, ShuffleSplit

from skdpot._utils.pages import html_card
from skdpot.exceptions import CalibrationError
from skdpot.privacy.accounting import LEAK_SHARE, PrivacyTarget, SingleFitTarget
from skdpot.privacy.budget import epsilon_text
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent, gdp_delta, gdp_epsilon
from skdpot.privacy.noise import LatticeNoise, calibrate_rounded
from skdpot.privacy.selection import LARGEST_MU, BudgetedEvent, TrialLaw, worst_profile

_WORST_SPLITS = 1000


@dataclass(frozen=True, eq=False)
class Splits:
    """Positions of rows to train on and to score on; the most fits and scores of one record.

    They are disjoint if no record is both trained on and held out.
    """

    folds: tuple[tuple[np.ndarray, np.ndarray], ...]
    most_fits: int
    most_scores: int
    disjoint: bool

    @property
    def n_scored(self) -> int:
        """Number of scores that are added up."""
        return sum(len(held_out) for _, held_out in self.folds)

    @property
    def n_trained(self) -> int:
        """Number of rows of the smallest fit."""
        return min(len(train) for train, _ in self.folds)


def draw_splits(cv: Any, n_samples: int, rng: np.random.Generator) -> Splits:
    """Draw the split of a search."""
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    fits, scores = np.zeros((2, n_samples), dtype=int)
    for pair in _pairs(cv, n_samples, rng):
        if len(pairs) >= _WORST_SPLITS:
            raise ValueError(f"`cv` gives more than {_WORST_SPLITS} splits.")
        train, held_out = (_positions(part, n_samples) for part in pair)
        if np.intersect1d(train, held_out).size:
            raise ValueError("A split of `cv` trains on rows that it holds out.")
        pairs.append((train, held_out))
        fits[train] += 1
        scores[held_out] += 1
    if not pairs:
        raise ValueError("`cv` gives no split; at least one is needed.")
    disjoint = not np.any((fits > 0) & (scores > 0))
    return Splits(tuple(pairs), int(fits.max()), int(scores.max()), disjoint)


def _pairs(cv: Any, n_samples: int, rng: np.random.Generator) -> Any:
    """Return the splits; a splitter only sees a column of zeros."""
    try:
        if isinstance(cv, Integral) and not isinstance(cv, bool):
            cv = KFold(int(cv), shuffle=True, random_state=int(rng.integers(2**31)))
        elif isinstance(cv, float):
            held_out, seed = round(cv * n_samples), int(rng.integers(2**31))
            cv = ShuffleSplit(1, test_size=held_out, random_state=seed)
        return list(cv.split(np.zeros((n_samples, 1)))) if hasattr(cv, "split") else cv
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`cv` gives no split from the number of rows alone: {error} Labels and groups are "
            "private, and a split by them reveals them. Use a share, a number of folds, KFold, "
            "ShuffleSplit, or a list of public (train, held_out) positions."
        ) from None


def _positions(part: Any, n_samples: int) -> np.ndarray:
    positions = np.asarray(part)
    whole = positions.ndim == 1 and positions.dtype.kind in "iu" and positions.size > 0
    if not whole or positions.min() < 0 or positions.max() >= n_samples:
        most = n_samples - 1
        raise ValueError(f"`cv` must give pairs of non-empty arrays of positions from 0 to {most}.")
    if len(np.unique(positions)) < len(positions):
        raise ValueError("A part of a split of `cv` names a row twice.")
    return positions


_SCORE_SHARE = 0.1  # of the squared mu of a trial, where fits and score add up
_REFIT_SHARE = 0.5  # of the squared mu of the search
_LEAK_ROOM = 0.5  # of what thresholds and samples of one fit may leak
_SAMPLER = 1e-18
_SMALLEST_LOG_MU = -9.0
_LAWS = {1.0: "geometric", 0.0: "logarithmic", math.inf: "Poisson, at least one"}


@dataclass(frozen=True)
class FitTerms:
    """What one fit of a candidate, and each of its private parts, may spend."""

    epsilon: float
    delta: float
    part_epsilon: float

    @classmethod
    def within(cls, mu: float, delta: float, n_parts: int) -> "FitTerms":
        """Return terms whose budget is at most mu-GDP beside its leak, in equal parts."""
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
        """The epsilon of one trial that is released without a choice, at `delta`."""
        return gdp_epsilon(self.trial_mu, self.delta)

    @property
    def score_deviation(self) -> float:
        """Standard deviation of the noise on a score, which lies in [0, 1]."""
        return 0.0 if self.score_noise is None else self.score_noise.sigma / self.n_scored

    def n_trials(self, level: float) -> int:
        """Return the number of trials that is exceeded with probability ``1 - level`` at most."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level!r}.")
        return self.law.quantile(level)

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
    # A fit's own budget leaks at most this, and there are so many of them.
    leak = _LEAK_ROOM * target.tail_delta / (mean_trials * fits + refit)
    trial_leak = leak * fits + _SAMPLER
    if math.isinf(target.epsilon):
        event: Event = NonPrivateEvent()
        trial_mu = refit_mu = math.inf
    else:
        refit_mu = math.sqrt(_REFIT_SHARE) * target.mu_cap if refit else 0.0
        event = _calibrated(target, mean_trials, shape, trial_leak, refit_mu, leak)
        trial_mu = event.phases[0].mu
    together = reads_rows and not splits.disjoint
    fit_mu = trial_mu * math.sqrt((1.0 - _SCORE_SHARE if together else 1.0) / fits)
    score_mu = trial_mu * (math.sqrt(_SCORE_SHARE) if together else 1.0)
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
    mean_trials: float,
    shape: float,
    leak: float,
    refit_mu: float,
    refit_leak: float,
) -> Event:
    """Return the selection among the least private trials that fits in the target."""

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

    # An account takes a while: start from what one point of the profile says.
    low, high = _guess(target, TrialLaw.with_mean(mean_trials, shape), refit_mu), math.inf
    ceiling, width = math.log(min(target.mu_cap, LARGEST_MU)), 0.02
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
    root = low if math.isinf(high) else float(brentq(excess, low, high, xtol=5e-4))
    step = 1e-4
    while not target.admits(event := make(math.exp(root))):
        root -= step
        step *= 2.0
    return event


def _guess(target: PrivacyTarget, law: TrialLaw, refit_mu: float) -> float:
    """Return about the log(mu) of a trial, from one point of the profile of the best one."""
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
        return _SMALLEST_LOG_MU
    return float(brentq(excess, _SMALLEST_LOG_MU, high, xtol=1e-3))


def _epsilon_within(mu: float, delta: float) -> float:
    """Return an epsilon, rounded down, of which the budget is at most mu-GDP beside its leak."""
    epsilon = gdp_epsilon(mu, (1.0 - LEAK_SHARE) * delta)
    for digits in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        candidate = epsilon * (1.0 - digits)
        if candidate > 0.0 and PrivacyTarget(candidate, delta).mu_cap <= mu:
            return candidate
    raise CalibrationError(
        f"A fit would have mu={mu:.2g} at delta={delta:.2g}, too little for any release. Raise "
        "epsilon, or expect fewer trials."
    )
