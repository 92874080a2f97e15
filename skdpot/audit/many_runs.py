"""The audit by many runs: fit hundreds of times on two neighbours, and compare the scores."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import nct
from tqdm.auto import tqdm

from skdpot._utils.arguments import check_confidence, check_count
from skdpot.audit.attacks import scores_of
from skdpot.audit.audited_fit import Score, checked_task, named_parameters
from skdpot.audit.canaries import CanaryPairs
from skdpot.audit.claims import check_claim, claimed, lower_text, verdict_of
from skdpot.audit.membership import MembershipResult
from skdpot.privacy.gdp import gdp_epsilon


def gaussian_audit(
    fit: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    canaries: CanaryPairs | None = None,
    score: Score | str = "auto",
    n_trials: int = 500,
    epsilon: float | None = None,
    delta: float | None = None,
    fit_params: Mapping[str, ArrayLike] | None = None,
    random_state: int | np.random.RandomState | None = None,
    verbose: int = 0,
) -> "GaussianAuditResult":
    """Audit a fit by running it many times on two neighbouring data sets.

    Hundreds of runs show the noise of a mechanism precisely: a standard deviation that is wrong by
    a tenth is found, where `one_run_audit` finds a factor. The audit costs ``2 * n_trials`` fits.

    Parameters
    ----------
    fit : estimator or callable
        An estimator, which is cloned, or a function ``fit(X, y, **fit_params)`` that returns
        what it released.
    X : array-like of shape (n_samples, n_features)
        Public or made-up rows that both data sets share.
    y : array-like of shape (n_samples,), optional
        Labels of the rows.
    canaries : CanaryPairs of one pair, optional
        The record of each data set. By default, `skdpot.audit.canaries` makes them.
    score : callable or "auto", default="auto"
        As for `one_run_audit`.
    n_trials : int, default=500
        Number of fits with each of the two records.
    epsilon, delta : float, optional
        The claim, if `fit` returns something without a ``privacy_spent_``.
    fit_params : mapping of str to array-like of shape (n_samples,), optional
        As for `one_run_audit`.
    random_state : int, RandomState or None, default=None
        Seed for making the pair.
    verbose : int, default=0
        If positive, show a progress bar.

    Returns
    -------
    GaussianAuditResult
        With the attributes ``member_scores`` and ``other_scores`` (the scores of the fits with
        either record), ``epsilon`` and ``delta`` (the claim), ``refuted`` and ``verdict`` (by
        counting, at 95 %), ``advantage`` and ``advantage_bound``. ``epsilon_lower_bound()`` holds
        for any noise, but cannot exceed about ``log(n_trials / 8)``. ``mu_lower_bound()``,
        ``gaussian_epsilon_lower_bound()`` and ``refuted_if_normal()`` show much more, but only for
        Gaussian noise. ``roc()`` and ``plot()`` give the operating characteristic.

    Raises
    ------
    ValueError
        If the estimator has a budget or a seed, there is not exactly one pair, `n_trials` is less
        than 4, a score has a wrong shape, or the claim is unknown.

    Privacy
    -------
    For public or made-up rows: `n_trials` releases cost `n_trials` times the epsilon or more, and
    the scores are computed from the rows without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import SlicedSketch
    >>> from skdpot.audit import gaussian_audit
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(100, 2))
    >>> sketch = SlicedSketch(epsilon=1.0, bounds=(-1, 1), n_projections=2, n_bins=4)
    >>> result = gaussian_audit(sketch, X, n_trials=20)
    >>> result.epsilon, round(result.advantage_bound, 3)
    (1.0, 0.462)
    """
    check_count(n_trials, "n_trials", least=4)
    check_claim(epsilon, delta, score)
    for name, value in named_parameters(fit, "random_state").items():
        if value is not None:
            raise ValueError(f"fit must have {name}=None: a seed repeats the noise of a trial.")
    if canaries is not None and not (isinstance(canaries, CanaryPairs) and len(canaries) == 1):
        raise ValueError("canaries must be CanaryPairs of one pair, or None.")
    task = checked_task(fit, X, y, canaries or 1, fit_params, random_state)
    scores = np.empty((2, n_trials))
    for trial in tqdm(range(n_trials), desc="trials", disable=verbose <= 0):
        for world in (0, 1):
            audited = task.run(np.array([world == 0]))
            if not (trial or world):
                claimed_epsilon, claimed_delta, _ = claimed(audited.fitted, epsilon, delta)
            scores[world, trial] = scores_of(score, audited)[0]
    return GaussianAuditResult(scores[0], scores[1], epsilon=claimed_epsilon, delta=claimed_delta)


@dataclass(frozen=True, eq=False, repr=False)
class GaussianAuditResult(MembershipResult):
    """The outcome of `gaussian_audit`, which explains the attributes."""

    def mu_lower_bound(self, confidence: float = 0.95) -> float:
        r"""Bound the distance of the two normal distributions of scores, in standard deviations.

        With n and n' scores of pooled standard deviation s the statistic
        :math:`t = (\bar x - \bar x') / (s \sqrt{1/n + 1/n'})` has a noncentral t distribution with
        noncentrality :math:`μ / \sqrt{1/n + 1/n'}`.
        """
        check_confidence(confidence)
        members, others = self.member_scores, self.other_scores
        freedom = len(members) + len(others) - 2
        gap = float(members.mean() - others.mean())
        squares = sum(float(np.sum((each - each.mean()) ** 2)) for each in (members, others))
        scale = math.sqrt(squares / freedom)
        if gap <= 0.0 or math.isnan(gap):
            return 0.0
        if scale <= 1e-12 * gap:
            return math.inf
        unit = math.sqrt(1 / len(members) + 1 / len(others))
        statistic = gap / (scale * unit)

        def excess(mu: float) -> float:
            return float(nct.sf(statistic, freedom, mu / unit)) - (1.0 - confidence)

        if excess(0.0) >= 0.0:
            return 0.0
        high = gap / scale  # where the tail is about a half
        with warnings.catch_warnings():
            # SciPy returns the closest value of an unfinished series: the root keeps five digits.
            warnings.filterwarnings("ignore", "Error in function", RuntimeWarning)
            while excess(high) < 0.0:
                high *= 2.0
            return float(brentq(excess, 0.0, high))

    def gaussian_epsilon_lower_bound(self, confidence: float = 0.95) -> float:
        """Bound ε from below by a normal fit, see `mu_lower_bound`."""
        mu = self.mu_lower_bound(confidence)
        return gdp_epsilon(mu, self.delta) if mu > 0.0 else 0.0

    def refuted_if_normal(self, confidence: float = 0.95) -> bool:
        """Return whether the normal fit refutes the claim of a mechanism with Gaussian noise."""
        return self.gaussian_epsilon_lower_bound(confidence) > self.epsilon

    @property
    def refuted(self) -> bool:
        """Whether counting refutes the claim at 95 %."""
        return self.epsilon_lower_bound() > self.epsilon

    @property
    def verdict(self) -> str:
        """What counting shows at 95 % confidence, in a sentence."""
        return verdict_of(self.epsilon_lower_bound(), self.epsilon, 0.95)

    def __repr__(self) -> str:
        return (
            f"GaussianAuditResult({len(self.member_scores)} + {len(self.other_scores)} fits, "
            f"epsilon >= {lower_text(self.gaussian_epsilon_lower_bound())} by a normal fit and "
            f">= {lower_text(self.epsilon_lower_bound())} by counting, at 95 %; "
            f"claimed epsilon={self.epsilon:.4g}, delta={self.delta:.2g})"
        )
