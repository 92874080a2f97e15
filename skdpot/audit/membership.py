"""Membership: how well a sketch tells whether a given person is in the data.

The attacker here is the strongest that differential privacy speaks of: it knows the directions, the
bins, the noise scale, all other rows, the row in question and the row that would be there in its
place. What is left to it is the test between two data sets, and the best test
compares their likelihoods. Whatever it does with a release that is (ε, δ)-private, its
true and false positives obey ``TPR ≤ e^ε FPR + δ``.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from skdpot.audit.membership_result import MembershipResult
from skdpot.audit.sketch_likelihood import statistic_of
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["MembershipResult", "log_likelihood_ratio", "membership_game"]


def log_likelihood_ratio(
    sketch: SlicedSketch,
    X: ArrayLike,
    X_neighbour: ArrayLike,
    *,
    y: ArrayLike | None = None,
    y_neighbour: ArrayLike | None = None,
) -> float:
    """Say how much a released sketch speaks for one data set against another.

    The noise is a discrete Gaussian on a lattice that holds both noiseless tables s and s', so
    that ``log p(S | X) − log p(S | X') = ⟨S − (s + s')/2, s − s'⟩ / σ²``: a matched filter. By the
    lemma of Neyman and Pearson no test has more true positives at the same rate of false ones.

    Parameters
    ----------
    sketch : SlicedSketch
        A closed sketch; only what it published is read.
    X, X_neighbour : array-like of shape (n_samples, n_features)
        The two data sets that the attacker holds possible, usually with one different row.
    y, y_neighbour : array-like of shape (n_samples,), optional
        Their labels, for a sketch with classes.

    Returns
    -------
    float
        The logarithm of the ratio; positive speaks for X. Infinite without noise. Bounds that
        were estimated privately are part of the release too, but are taken as given.

    Raises
    ------
    ValueError
        If the data do not fit the sketch.
    """
    one = statistic_of(sketch, X, y)
    other = statistic_of(sketch, X_neighbour, y_neighbour)
    evidence = float(np.sum((sketch.statistic_ - (one + other) / 2) * (one - other)))
    if sketch.noise_scale_ > 0:
        return evidence / sketch.noise_scale_**2
    return math.copysign(math.inf, evidence) if evidence else 0.0


def membership_game(
    sketch: SlicedSketch,
    X: ArrayLike,
    X_neighbour: ArrayLike,
    *,
    y: ArrayLike | None = None,
    y_neighbour: ArrayLike | None = None,
    n_trials: int = 500,
) -> "MembershipResult":
    """Release many sketches of two neighbouring data sets and attack each of them.

    Parameters
    ----------
    sketch : SlicedSketch
        Parameters of the sketches; it is cloned, never fitted itself.
    X, X_neighbour : array-like of shape (n_samples, n_features)
        Two data sets of equal size that differ in one row. The attack is strongest when the two
        rows fall into bins far apart along most directions.
    y, y_neighbour : array-like of shape (n_samples,), optional
        Their labels, with ``conditional=True``.
    n_trials : int, default=500
        Releases of each of the two.

    Returns
    -------
    MembershipResult
        Scores of both kinds of releases, and the ε and δ that the sketches claim.

    Raises
    ------
    ValueError
        If the sketch has a budget, which every trial would be charged to, or a seed, with which
        all trials would have the same noise, or `n_trials` is less than 2.

    Privacy
    -------
    For audits on public or made-up rows. `n_trials` releases of real rows would cost
    `n_trials` times the ε, and the scores are computed from the rows without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import SlicedSketch
    >>> from skdpot.audit.membership import membership_game
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(100, 2))
    >>> neighbour = X.copy()
    >>> X[0], neighbour[0] = [1, 1], [-1, -1]
    >>> sketch = SlicedSketch(epsilon=1.0, bounds=(-1, 1), n_slices=2, n_bins=4)
    >>> result = membership_game(sketch, X, neighbour, n_trials=20)
    >>> result.epsilon, round(result.advantage_bound, 3)
    (1.0, 0.462)
    """
    if sketch.budget is not None or sketch.random_state is not None:
        raise ValueError(
            "sketch must have budget=None, since every trial is a release of its own, and "
            "random_state=None, since all trials would have the same noise."
        )
    if n_trials < 2:
        raise ValueError(f"n_trials={n_trials!r} must be at least 2.")
    worlds = ((X, y), (X_neighbour, y_neighbour))
    scores = np.empty((2, n_trials))
    for trial in np.ndindex(2, n_trials):
        release = clone(sketch).fit(*worlds[trial[0]])
        scores[trial] = log_likelihood_ratio(release, X, X_neighbour, y=y, y_neighbour=y_neighbour)
    spent = release.privacy_spent_
    return MembershipResult(scores[0], scores[1], epsilon=spent.epsilon, delta=spent.delta)
