r"""How many right guesses a private release allows.

An auditor flips m fair coins, each of which puts one of two records into a slot of the data,
sees one release of the data, and guesses r of the coins, abstaining on the others. If the
release is (ε, δ)-private under replace-one, the number W of right guesses obeys (Steinke,
Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, Theorem 5.2,
arXiv:2305.08846), with B ~ Binomial(r, e^ε / (1 + e^ε)),

.. math::
    P[W ≥ v] ≤ P[B ≥ v] + 2 m δ \max_{1 ≤ i ≤ m} \frac{P[v − i ≤ B < v]}{i}.

Theorem and bound are for coins that include or omit a record, and for data that differ by that
record. The proof uses only that the two values of a coin, the others being fixed, give data
between which the release is (ε, δ)-private; two records that replace each other in one slot are
neighbours under replace-one, so that it holds here word for word. Of the auditor it needs that
coins are independent and fair, that r does not depend on them, and that the guesses are made
from the release and from what was fixed before the coins.
"""

import math

import numpy as np
from scipy.stats import binom

__all__ = ["epsilon_lower_bound", "guessing_p_value"]

_TOLERANCE = 1e-6
_LARGEST = 60.0


def guessing_p_value(
    epsilon: float, delta: float, *, n_canaries: int, n_guesses: int, n_correct: int
) -> float:
    """Bound the probability that an (ε, δ)-private release allows so many right guesses.

    Parameters
    ----------
    epsilon, delta : float
        The hypothesis.
    n_canaries : int
        Coins m.
    n_guesses : int
        Coins that were guessed, r.
    n_correct : int
        Right guesses v.

    Returns
    -------
    float
        At most 1.
    """
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


def epsilon_lower_bound(
    delta: float, confidence: float, *, n_canaries: int, n_guesses: int, n_correct: int
) -> float:
    """Return the largest ε that so many right guesses refute.

    Parameters
    ----------
    delta : float
        Of the hypothesis.
    confidence : float
        The hypothesis is refuted if its p-value is below ``1 − confidence``.
    n_canaries, n_guesses, n_correct : int
        As in `guessing_p_value`.

    Returns
    -------
    float
        0 if not even ``ε = 0`` is refuted.
    """

    def refuted(epsilon: float) -> bool:
        p = guessing_p_value(
            epsilon, delta, n_canaries=n_canaries, n_guesses=n_guesses, n_correct=n_correct
        )
        return p < 1.0 - confidence

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, _LARGEST
    # The p-value grows with ε up to where most of the mass lies; the smallest crossing is safe.
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
