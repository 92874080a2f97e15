r"""How many right guesses a private release allows.

An auditor flips m fair coins, each of which puts one of two records into a slot of the data,
sees one release of the data, and guesses r of the coins, abstaining on the others. Coins are
independent, r does not depend on them, and the guesses are made from the release and from what was
fixed before the coins. The number of right guesses is W.

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
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from skdpot.privacy.gdp import gdp_epsilon

__all__ = ["epsilon_lower_bound", "guessing_p_value", "mu_lower_bound"]

_TOLERANCE = 1e-6
_LARGEST = 60.0


def guessing_p_value(
    epsilon: float, delta: float, *, n_canaries: int, n_guesses: int, n_correct: int
) -> float:
    """Bound the probability that an (ε, δ)-private release allows so many right guesses."""
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
    """Return the largest μ of μ-GDP that so many right guesses refute, 0 if there is none."""
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
    """Return the largest ε that so many right guesses refute, 0 if there is none.

    Of (ε, δ)-private releases, or if `gaussian`, of μ-GDP ones: by the better of both theorems,
    which costs nothing, since each refutes from some number of right guesses on.
    """
    counts = {"n_canaries": n_canaries, "n_guesses": n_guesses, "n_correct": n_correct}
    bound = _last_refuted(lambda eps: guessing_p_value(eps, delta, **counts) < 1.0 - confidence)
    if gaussian:
        bound = max(bound, gdp_epsilon(mu_lower_bound(confidence, **counts), delta))
    return bound


def _last_refuted(refuted: Callable[[float], bool]) -> float:
    """Return where a hypothesis, refuted up to there, is not refuted any more; at least 0."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, _LARGEST
    # The p-value grows with ε up to where most of the mass lies; the smallest crossing is safe.
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
