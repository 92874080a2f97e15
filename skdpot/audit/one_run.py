r"""The one-run audit of a fit, the bounds behind it, and the checks that all audits share.

An auditor flips m independent fair coins. Each coin decides which of two records fills a slot of
the data. The auditor sees one release of the data and guesses r of the coins; r does not depend on
the coins, and the guesses use only the release and what was fixed before the coins. W is the number
of correct guesses.

*(ε, δ)-private releases* (Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training
run", NeurIPS 2023, Theorem 5.2, arXiv:2305.08846). With B ~ Binomial(r, e^ε / (1 + e^ε)),

.. math::
    P[W ≥ v] ≤ P[B ≥ v] + 2 m δ \max_{1 ≤ i ≤ m} \frac{P[v − i ≤ B < v]}{i}.

The theorem is for coins that include or omit a record. Its proof uses only that the two
values of a coin, the others being fixed, give data between which the release is (ε, δ)-private;
so are two records that replace each other in one slot, under replace-one.

*μ-GDP releases* (Mahloujifar, Melis and Chaudhuri, "Auditing f-differential privacy in one run",
arXiv:2410.22235; proved here for pairs). No event is more probable than F(x) = Φ(Φ⁻¹(x) + μ) if
its probability is x under a neighbour; F grows and is concave. Write :math:`p_w = P[W = w]` and

.. math::
    a_j = \sum_{w ≥ j} \frac{w}{m} p_w, \quad b_j = \sum_{w ≥ j} \frac{r - w}{m} p_w,
    \quad a_0 + b_0 = \frac{r}{m}.

1. :math:`a_j ≤ F(b_{j-1})`. Let E be the event that coin i is guessed, rightly, and W ≥ j. Turn
   coin i and nothing else: of the same outputs the guess of i is now wrong, and W smaller by one.
   So P(E | coins) ≤ F(P(i is guessed, wrongly, and W ≥ j − 1 | coins with i turned)). The mean over
   all i and all coins is a_j on the left, and by Jensen at most F(b_{j−1}) on the right, since
   turned coins are as uniform as the others.
2. Suppose that P[W ≥ v] ≥ α. The inequalities of 1 are convex in p and hold for p = 0, so they
   hold for a multiple of p for which P[W ≥ v] = α and :math:`a_0 + b_0 ≤ r/m`. Keep those with
   j ≤ v, move all mass above v to v, and then, from w = v − 1 down to 1, what :math:`a_{w+1} ≤
   F(b_w)` does not need of :math:`p_w` to w − 1; leave out what is not needed of :math:`p_0`.
   Every move lowers :math:`a_j` and raises :math:`b_j` for the j that matter later, and adds no
   mass. What is left is known: :math:`p_v = α`, and going down, the smallest :math:`p_w` with
   :math:`b_w ≥ F^{-1}(a_{w+1})`. If its :math:`a_0 + b_0` exceeds r/m, then P[W ≥ v] < α.

More right guesses and a smaller μ can only make this :math:`a_0 + b_0` larger.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom
from sklearn.pipeline import Pipeline

from skdpot._utils.panels import COLORS, single_axes
from skdpot._utils.validation import check_confidence, check_count, solver_generator
from skdpot.audit.attacks import NoiseEvidence, default_score, evidence_of
from skdpot.audit.canaries import (
    AuditedFit,
    AuditTask,
    CanaryPairs,
    NoKnownAttackError,
    Score,
    default_canaries,
)
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import gdp_epsilon
from skdpot.privacy.spent import total_spent

_TOLERANCE = 1e-6
_LARGEST = 60.0


def guessing_p_value(
    epsilon: float, delta: float, *, n_canaries: int, n_guesses: int, n_correct: int
) -> float:
    """Bound the probability of so many correct guesses under (ε, δ)-differential privacy."""
    if n_correct <= 0 or math.isinf(epsilon):
        return 1.0
    right = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(binom.sf(n_correct - 1, n_guesses, right))
    if delta > 0.0:
        # P[v − i ≤ B < v] / i, for i up to v; beyond, the numerator no longer grows.
        below = binom.pmf(np.arange(n_correct - 1, -1, -1), n_guesses, right)
        i = np.arange(1, n_correct + 1)
        likely = np.max(np.cumsum(below)[:n_canaries] / i[:n_canaries])
        tail += 2.0 * n_canaries * delta * float(likely)
    return min(1.0, tail)


def mu_lower_bound(confidence: float, *, n_canaries: int, n_guesses: int, n_correct: int) -> float:
    """Return the largest μ of μ-GDP that so many correct guesses refute, or 0."""
    share = (1.0 - confidence) / n_canaries

    def refuted(mu: float) -> bool:
        right, wrong = n_correct * share, (n_guesses - n_correct) * share  # a_v, b_v
        for w in range(n_correct - 1, -1, -1):
            if right + wrong > n_guesses / n_canaries:
                break
            needed = max(wrong, float(ndtr(ndtri(right) - mu)))
            right += w / (n_guesses - w) * (needed - wrong)
            wrong = needed
        return right + wrong > n_guesses / n_canaries

    return _last_refuted(refuted)


def epsilon_lower_bound(
    delta: float,
    confidence: float,
    *,
    n_canaries: int,
    n_guesses: int,
    n_correct: int,
    gaussian: bool = False,
) -> float:
    """Return the largest ε that so many correct guesses refute, or 0.

    If `gaussian`, by the better of both theorems. That costs no confidence, since each of them
    refutes from some number of correct guesses on.
    """
    counts = {"n_canaries": n_canaries, "n_guesses": n_guesses, "n_correct": n_correct}
    bound = _last_refuted(lambda eps: guessing_p_value(eps, delta, **counts) < 1.0 - confidence)
    if gaussian:
        bound = max(bound, gdp_epsilon(mu_lower_bound(confidence, **counts), delta))
    return bound


def _last_refuted(refuted: Callable[[float], bool]) -> float:
    """Return the largest value up to which a hypothesis is refuted, at least 0."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, _LARGEST
    # The p-value grows with ε up to where most of the mass lies; the smallest crossing is safe.
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def lower_text(bound: float, claim: float = math.inf) -> str:
    """Write a lower bound, rounded down, with enough digits to tell it from a smaller claim."""
    if math.isinf(bound):
        return "∞"
    for digits in range(2, 16):
        text = f"{math.floor(bound * 10**digits) / 10**digits:.{digits}f}"
        if float(text) > claim or bound <= claim:
            return text
    return repr(bound)


def verdict_of(bound: float, claim: float, confidence: float, noise: str = "") -> str:
    """Compare a lower bound with a claim in a sentence."""
    found = f"ε ≥ {lower_text(bound, claim)}{noise} at {100 * confidence:g} % confidence"
    if math.isinf(claim):
        return f"{found}; nothing was claimed."
    if bound > claim:
        return f"REFUTED: {found}, but ε = {claim:.4g} was claimed."
    return f"Not refuted: {found}, within the claimed ε = {claim:.4g}."


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AuditResult:
    """The outcome of `one_run_audit`, which explains the attributes."""

    confidence: float
    n_canaries: int
    n_guesses: int
    n_correct: int
    epsilon: float
    delta: float
    right: np.ndarray
    gaussian: bool = False
    noise: NoiseEvidence | None = None
    leak: str | None = None

    @cached_property
    def epsilon_lower(self) -> float:
        """The ε that the guesses prove; if `gaussian`, that of the Gaussian noise they refute."""
        return self._shown_by(self.n_correct)

    @property
    def gaussian_epsilon_lower(self) -> float | None:
        """The bound from the noise that was found and the surest pair, if the noise is normal."""
        return None if self.noise is None else self.noise.gaussian_epsilon_lower(self.delta)

    @property
    def power(self) -> float | None:
        """The share of the stated noise below which missing noise is found; None if unknown."""
        return None if self.noise is None else self.noise.seen_below

    @property
    def ceiling(self) -> float:
        """The lower bound if all guesses were correct."""
        return self._shown_by(self.n_guesses)

    @property
    def refuted(self) -> bool:
        """Whether guesses, missing noise or outputs beside the releases refute the claim.

        The guesses refute a correct claim with a probability of at most ``1 - confidence``, the
        noise with a hundredth of that, and the outputs never.
        """
        found = max(self.epsilon_lower, self.gaussian_epsilon_lower or 0.0)
        too_little = self.noise is not None and bool(self.noise.refuting)
        return found > self.epsilon or too_little or bool(self.leak)

    @property
    def verdict(self) -> str:
        """The result, and what this audit could have refuted, in words."""
        normal, told = self.gaussian_epsilon_lower or 0.0, []
        if self.epsilon_lower > self.epsilon or not self.refuted:
            noise = " of Gaussian noise" if self.gaussian else ""
            told.append(verdict_of(self.epsilon_lower, self.epsilon, self.confidence, noise))
        if math.isinf(self.epsilon):
            return told[0]
        if normal > 0.0:
            found = f"ε ≥ {lower_text(normal, self.epsilon)} if the noise is normal"
            broken = f"REFUTED: {found}, but ε = {self.epsilon:.4g} was claimed."
            told.append(broken if normal > self.epsilon else f"It is {found}.")
        if self.noise is None and not self.refuted:
            told.append(f"All guesses correct would show ε ≥ {lower_text(self.ceiling)}.")
        elif self.noise is not None:
            told.append(self.noise.verdict)
        if self.leak:
            told.append(f"REFUTED: the result depends on the rows beside the releases: {self.leak}")
        return " ".join(told)

    def plot(self, ax: Any = None, *, legend: bool = True, **kwargs: Any) -> Any:
        """Draw the share of correct guesses against their number, and what the claim allows."""
        ax = single_axes(ax, (6.4, 4.8))
        made = np.arange(1, len(self.right) + 1)
        shares = np.cumsum(self.right) / made
        label = f"correct guesses: ε ≥ {lower_text(self.epsilon_lower)}"
        ax.plot(made, shares, **({"color": COLORS[0], "label": label} | kwargs))
        if math.isfinite(self.epsilon):
            limit = binom.ppf(self.confidence, made, expit(self.epsilon)) / made
            label = f"most that ε = {self.epsilon:g} allows ({100 * self.confidence:g} %)"
            ax.plot(made, limit, color=COLORS[1], linestyle="--", label=label)
        ax.axhline(0.5, color="black", linestyle=":", linewidth=1, label="coin flips")
        ax.axvline(self.n_guesses, color="gray", linewidth=1, label="guesses counted")
        ax.set(xlim=(0, len(self.right)), ylim=(0.35, 1.02))
        ax.set(xlabel="guesses, surest first", ylabel="share of correct guesses")
        if legend:
            ax.legend(loc="lower right" if shares[-1] > 0.7 else "upper right", fontsize="small")
        return ax

    def _shown_by(self, n_correct: int) -> float:
        counts = {"n_canaries": self.n_canaries, "n_guesses": self.n_guesses}
        claim = (self.delta, self.confidence)
        return epsilon_lower_bound(*claim, n_correct=n_correct, gaussian=self.gaussian, **counts)

    def __repr__(self) -> str:
        found = f"{self.n_correct} of {self.n_guesses} guesses correct, {self.n_canaries} canaries"
        return f"AuditResult({found}. {self.verdict})"


def checked_task(
    fit: Any, X: Any, y: Any, canaries: Any, fit_params: Any, random_state: Any, verbose: int = 0
) -> AuditTask:
    """Check the arguments of an audit, and make the canaries if none are given."""
    if not (callable(fit) or hasattr(fit, "fit")) or isinstance(fit, type):
        raise ValueError("fit must be an estimator (an object, not a class) or a function.")
    if isinstance(fit, Pipeline):
        raise NoKnownAttackError("Audit the private steps of a Pipeline one by one.")
    if issparse(X):
        raise ValueError("X must be dense. Pass X.toarray().")
    rows = np.asarray(X)
    if rows.ndim != 2:
        raise ValueError(f"X must have two dimensions, not {rows.ndim}.")
    labels = None if y is None else np.asarray(y)
    known = {name: np.asarray(value) for name, value in (fit_params or {}).items()}
    for name, column in {"y": labels, **known}.items():
        if column is not None and column.shape[:1] != (len(rows),):
            raise ValueError(f"{name} must have one entry per row of X, which has {len(rows)}.")
    if not isinstance(canaries, CanaryPairs):
        n_pairs, rng = check_count(canaries, "canaries"), solver_generator(random_state)
        canaries = default_canaries(fit, n_pairs, rows, labels, fit_params=known, rng=rng)
    if canaries.first.shape[1] != rows.shape[1]:
        raise ValueError(
            f"The canaries have {canaries.first.shape[1]} features, and X has {rows.shape[1]}."
        )
    known_rows: dict[str, Any] = {"X": rows, "y": labels, "fit_params": known}
    return AuditTask(fit=fit, pairs=canaries, verbose=int(verbose), **known_rows)


def check_claim(epsilon: Any, delta: Any, score: Any) -> None:
    """Refuse an impossible claim or score before anything is fitted."""
    if not callable(score) and score != "auto":
        raise ValueError(f'score must be a function or "auto", not {type(score).__name__}.')
    if epsilon is not None and not (isinstance(epsilon, Real) and float(epsilon) >= 0):
        raise ValueError(f"epsilon={epsilon!r} must be at least 0; inf claims nothing.")
    if delta is not None and not (isinstance(delta, Real) and 0 <= float(delta) < 1):
        raise ValueError(f"delta={delta!r} must be in [0, 1).")


def claimed(fitted: Any, epsilon: float | None, delta: float | None) -> tuple[float, float, bool]:
    """Return the claimed ε and δ, and whether the claim is μ-GDP."""
    if epsilon is not None and delta is not None:
        return float(epsilon), float(delta), False
    try:
        spent = getattr(fitted, "privacy_spent_", None) or total_spent(fitted)
    except TypeError as error:
        raise ValueError(
            "Pass epsilon and delta: what fit returned has no privacy_spent_."
        ) from error
    loss = compose(spent.event)
    gaussian = not (loss.is_sampled or loss.leak) and 0.0 < loss.mu_without_sampling < math.inf
    stated = float(spent.epsilon if epsilon is None else epsilon)
    missed = float(spent.delta if delta is None else delta)
    return stated, missed, gaussian and epsilon is None and delta is None


def scores_of(score: Score | str, audited: AuditedFit) -> np.ndarray:
    """Score the pairs of an audited fit."""
    judge = default_score(audited.fitted) if isinstance(score, str) else score
    n_pairs = len(audited.pairs)
    scores = np.asarray(judge(audited), dtype=np.float64)
    if scores.shape != (n_pairs,) or np.isnan(scores).any():
        allowed = f"{n_pairs} numbers, one per pair, none of them NaN"
        raise ValueError(f"score must return {allowed}; it returned shape {scores.shape}.")
    return scores


def one_run_audit(
    fit: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    canaries: CanaryPairs | int = 1000,
    score: Score | str = "auto",
    n_guesses: int | None = None,
    confidence: float = 0.95,
    epsilon: float | None = None,
    delta: float | None = None,
    fit_params: Mapping[str, ArrayLike] | None = None,
    random_state: int | np.random.RandomState | None = None,
    verbose: int = 0,
) -> AuditResult:
    """Audit a fit by running it once, and bound its epsilon from below.

    Each canary slot holds one of two records, chosen by a fair coin. The estimator is fitted once
    to the rows and the slots. An attacker who knows everything but the coins guesses those with the
    largest scores. More correct guesses than the claimed epsilon allows refute the claim, as does
    noise that is missing from a release, or an output that depends on the rows beside the releases.

    Parameters
    ----------
    fit : estimator or callable
        An estimator, which is cloned, or a function ``fit(X, y, **fit_params)`` that returns
        what it released, for instance a fitted estimator.
    X : array-like of shape (n_samples, n_features)
        Public or made-up rows beside the canaries. There may be none:
        ``np.empty((0, n_features))``.
    y : array-like of shape (n_samples,), optional
        Labels of the rows.
    canaries : CanaryPairs or int, default=1000
        Pairs of records (`skdpot.audit.canaries.CanaryPairs`), or the number of pairs to make.
    score : callable or "auto", default="auto"
        ``score(audited) -> ndarray of shape (n_pairs,)`` for an
        `skdpot.audit.canaries.AuditedFit`: positive if the release speaks for the first record of
        the pair, and larger if surer. "auto" reads all releases of the fit.
    n_guesses : int, optional
        Number of coins to guess; half of them by default. Choose it before the run.
    confidence : float, default=0.95
        Probability with which the bound holds, in (0, 1).
    epsilon, delta : float, optional
        The claim, if `fit` returns something without a ``privacy_spent_``.
    fit_params : mapping of str to array-like of shape (n_samples,), optional
        Further arguments of `fit`, one value per row; those of the slots come with the canaries.
    random_state : int, RandomState or None, default=None
        Seed for making canaries. Coins always come from the operating system.
    verbose : int, default=0
        If positive, show a progress bar over the releases.

    Returns
    -------
    AuditResult
        With the attributes ``epsilon_lower`` (the lower bound from the guesses), ``refuted``
        (whether guesses, missing noise or a leak refute the claim), ``verdict`` (the result in
        words), ``confidence``, ``n_canaries``, ``n_guesses``, ``n_correct``, ``epsilon`` and
        ``delta`` (the claim), ``right`` (whether each guess is correct, surest first), ``gaussian``
        (whether the bound for Gaussian noise applies), ``ceiling`` (the bound if all guesses were
        correct), ``noise`` (the test of each release's noise, with ``to_frame()`` and ``blind``, or
        None with a score of your own), ``gaussian_epsilon_lower`` (a bound from the noise found, if
        it is normal), ``power`` (noise below this share of the stated noise is found with a
        probability of 95 %) and ``leak`` (the first output that depends on rows beside the
        releases; empty if none, None if not tested). ``plot()`` draws the guesses.

    Raises
    ------
    ValueError
        If the estimator has a budget, a parameter is out of range, the score has a wrong shape,
        the claim is unknown, or no attack on the estimator is known.

    Privacy
    -------
    For public or made-up rows: the scores are computed from the rows without noise. A low bound
    does not prove privacy, since canaries and scores may be weak.

    References
    ----------
    T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.
    S. Mahloujifar, L. Melis, K. Chaudhuri, "Auditing f-differential privacy in one run", 2024.
    The second one is used for Gaussian noise on quantities that all records enter.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import SlicedSketch
    >>> from skdpot.audit import one_run_audit
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(200, 8))
    >>> result = one_run_audit(SlicedSketch(epsilon=1.0, bounds=(-1, 1)), X, canaries=400)
    >>> result.refuted
    False
    """
    check_confidence(confidence)
    check_claim(epsilon, delta, score)
    task = checked_task(fit, X, y, canaries, fit_params, random_state, verbose)
    n_pairs = len(task.pairs)
    n_guesses = (n_pairs + 1) // 2 if n_guesses is None else n_guesses
    check_count(n_guesses, "n_guesses", most=n_pairs)
    # The theorem needs fair coins that nobody knows, whatever else has a seed.
    heads = np.random.default_rng().random(n_pairs) < 0.5
    audited = task.run(heads)
    stated, missed, gaussian = claimed(audited.fitted, epsilon, delta)
    noise = None
    if isinstance(score, str):  # the attack is ours, so that the noise of all releases is checked
        evidence = evidence_of(audited, heads)
        noise = NoiseEvidence.of(evidence.checks, confidence, evidence.unseen)
        scores = scores_of(lambda _: evidence.scores(), audited)
    else:
        scores = scores_of(score, audited)
    # A score of zero is a guess like any other, of the second record.
    right = ((scores > 0) == heads)[np.argsort(-np.abs(scores), kind="stable")]
    return AuditResult(
        confidence=confidence,
        n_canaries=n_pairs,
        n_guesses=n_guesses,
        n_correct=int(right[:n_guesses].sum()),
        epsilon=stated,
        delta=missed,
        right=right,
        gaussian=gaussian,
        noise=None if math.isinf(stated) else noise,
        leak=None if math.isinf(stated) else task.leak(heads),
    )
