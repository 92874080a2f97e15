"""The one-run audit: fit once, guess the coins from the releases, and test the noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from scipy.stats import binom

from skdpot._utils.arguments import check_confidence, check_count
from skdpot._utils.panels import COLORS, single_axes
from skdpot.audit.attacks import evidence_of, scores_of
from skdpot.audit.audited_fit import Score, checked_task
from skdpot.audit.canaries import CanaryPairs
from skdpot.audit.claims import check_claim, claimed, lower_text, verdict_of
from skdpot.audit.guessing import epsilon_lower_bound
from skdpot.audit.noise_evidence import NoiseEvidence


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
        """The bound from the observed noise and the surest pair, if the noise is normal."""
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

        A correct claim is refuted by the guesses with a probability of at most ``1 - confidence``,
        by the noise with a hundredth of that, and by the outputs never.
        """
        proved = max(self.epsilon_lower, self.gaussian_epsilon_lower or 0.0)
        is_quiet = self.noise is not None and bool(self.noise.refuting)
        return proved > self.epsilon or is_quiet or bool(self.leak)

    @property
    def verdict(self) -> str:
        """The result, and what this audit could have refuted, in words."""
        normal, sentences = self.gaussian_epsilon_lower or 0.0, []
        if self.epsilon_lower > self.epsilon or not self.refuted:
            noise = " of Gaussian noise" if self.gaussian else ""
            verdict = verdict_of(self.epsilon_lower, self.epsilon, self.confidence, noise)
            sentences.append(verdict)
        if math.isinf(self.epsilon):
            return sentences[0]
        if normal > 0.0:
            proved = f"ε ≥ {lower_text(normal, self.epsilon)} if the noise is normal"
            broken = f"REFUTED: {proved}, but ε = {self.epsilon:.4g} was claimed."
            sentences.append(broken if normal > self.epsilon else f"It is {proved}.")
        if self.noise is None and not self.refuted:
            sentences.append(f"All guesses correct would show ε ≥ {lower_text(self.ceiling)}.")
        elif self.noise is not None:
            sentences.append(self.noise.verdict)
        if self.leak:
            leak = f"the result depends on the rows beside the releases: {self.leak}"
            sentences.append(f"REFUTED: {leak}")
        return " ".join(sentences)

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
        """Return the ε that so many correct guesses prove."""
        return epsilon_lower_bound(
            self.delta,
            self.confidence,
            n_canaries=self.n_canaries,
            n_guesses=self.n_guesses,
            n_correct=n_correct,
            gaussian=self.gaussian,
        )

    def __repr__(self) -> str:
        counts = f"{self.n_correct} of {self.n_guesses} guesses correct, {self.n_canaries} canaries"
        return f"AuditResult({counts}. {self.verdict})"


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
        `skdpot.audit.audited_fit.AuditedFit`: positive if the release speaks for the first record
        of the pair, and larger if surer. "auto" reads all releases of the fit.
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
    # The theorem needs fair coins that nobody knows: they never have a seed.
    heads = np.random.default_rng().random(n_pairs) < 0.5
    audited = task.run(heads)
    claimed_epsilon, claimed_delta, gaussian = claimed(audited.fitted, epsilon, delta)
    noise = None
    if isinstance(score, str):  # an attack of ours reads all releases, and checks their noise
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
        epsilon=claimed_epsilon,
        delta=claimed_delta,
        right=right,
        gaussian=gaussian,
        noise=None if math.isinf(claimed_epsilon) else noise,
        leak=None if math.isinf(claimed_epsilon) else task.leak(heads),
    )
