r"""What correct guesses of coins prove: lower bounds of ε and μ, with their proofs.

An auditor flips m independent fair coins. Each coin decides which of two records fills a slot of
the data. The auditor sees one release of the data and guesses r of the coins; r does not depend on
the coins, and the guesses use only the release and what was fixed before the coins. W is the number
of correct guesses.

*(ε, δ)-private releases* (Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training
run", NeurIPS 2023, Theorem 5.2, arXiv:2305.08846). With B ~ Binomial(r, e^ε / (1 + e^ε)),

.. math::
    P[W ≥ v] ≤ P[B ≥ v] + 2 m δ \max_{1 ≤ i ≤ m} \frac{P[v − i ≤ B < v]}{i}.

The theorem is for coins that include or omit a record. Its proof uses only that the release is
(ε, δ)-private between the data of the two values of a coin, the others being fixed. Under
replace-one this holds for two records that replace each other in one slot.

*μ-GDP releases* (Mahloujifar, Melis and Chaudhuri, "Auditing f-differential privacy in one run",
arXiv:2410.22235; proved here for pairs). No event is more probable than F(x) = Φ(Φ⁻¹(x) + μ) if
its probability is x under a neighbour; F grows and is concave. Write :math:`p_w = P[W = w]` and

.. math::
    a_j = \sum_{w ≥ j} \frac{w}{m} p_w, \quad b_j = \sum_{w ≥ j} \frac{r - w}{m} p_w,
    \quad a_0 + b_0 = \frac{r}{m}.

1. :math:`a_j ≤ F(b_{j-1})`. Let E be the event that coin i is guessed, rightly, and W ≥ j. Turn
   coin i and nothing else: for the same outputs the guess of i is now wrong, and W smaller by one.
   So P(E | coins) ≤ F(P(i is guessed, wrongly, and W ≥ j − 1 | coins with i turned)). The mean over
   all i and all coins is a_j on the left, and by Jensen at most F(b_{j−1}) on the right, since
   turned coins are as uniform as the others.
2. Suppose that P[W ≥ v] ≥ α. The inequalities of 1 are convex in p and hold for p = 0, so they
   hold for a multiple of p for which P[W ≥ v] = α and :math:`a_0 + b_0 ≤ r/m`. Keep those with
   j ≤ v, move all mass above v to v, and then, from w = v − 1 down to 1, what :math:`a_{w+1} ≤
   F(b_w)` does not need of :math:`p_w` to w − 1; drop what is not needed of :math:`p_0`.
   Every move lowers :math:`a_j` and raises :math:`b_j` for the j that matter later, and adds no
   mass. What is left is known: :math:`p_v = α`, and going down, the smallest :math:`p_w` with
   :math:`b_w ≥ F^{-1}(a_{w+1})`. If its :math:`a_0 + b_0` exceeds r/m, then P[W ≥ v] < α.

More right guesses and a smaller μ can only make this :math:`a_0 + b_0` larger.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from skdpot.privacy.gdp import gdp_epsilon

# Bisection of ε or μ: its precision, and a value that no number of guesses refutes.
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
        # P[v − i ≤ B < v] / i for i up to v, beyond which the numerator no longer grows.
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
            needed = max(wrong, _least_wrong(right, mu))
            right += w / (n_guesses - w) * (needed - wrong)
            wrong = needed
        return right + wrong > n_guesses / n_canaries

    return _last_refuted(refuted)


def _least_wrong(right: float, mu: float) -> float:
    """Return F⁻¹ of a probability: the least that μ-GDP leaves for the turned coin."""
    return float(ndtr(ndtri(right) - mu))


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
    # The p-value grows with ε up to the bulk of the mass; the smallest crossing is safe.
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
