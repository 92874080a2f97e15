"""Membership: how well a sketch tells whether a given person is in the data.

The attacker here is the strongest that differential privacy speaks of: it knows the directions, the
bins, the noise scale, all other rows, the row in question and the row that would be there in its
place. What is left to it is the test between two data sets, and the best test
compares their likelihoods. Whatever it does with a release that is (ε, δ)-private, its
true and false positives obey ``TPR ≤ e^ε FPR + δ``.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta
from sklearn.base import clone

from skdpot.audit.membership_display import MembershipDisplay
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


@dataclass(frozen=True, eq=False, repr=False)
class MembershipResult:
    """Scores of a membership attack, and what a claimed (ε, δ) says about them.

    Parameters
    ----------
    member_scores : ndarray of shape (n_members,)
        Scores of releases of data with the record.
    other_scores : ndarray of shape (n_others,)
        Scores of releases of data without it.
    epsilon, delta : float
        The claim.
    """

    member_scores: np.ndarray
    other_scores: np.ndarray
    epsilon: float
    delta: float

    def roc(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the operating characteristic of the attack.

        Returns
        -------
        fpr, tpr : ndarray of shape (n_thresholds,)
            Shares of the releases without and with the record that score at least the
            threshold.
        thresholds : ndarray of shape (n_thresholds,)
            Decreasing, from infinity, which no score reaches.
        """
        scores = np.unique(np.concatenate([self.member_scores, self.other_scores]))[::-1]
        thresholds = np.concatenate([[np.nan], scores])
        shares = [
            np.concatenate([[0.0], 1 - np.searchsorted(np.sort(kind), scores) / len(kind)])
            for kind in (self.other_scores, self.member_scores)
        ]
        thresholds[0] = np.inf
        return shares[0], shares[1], thresholds

    @property
    def advantage(self) -> float:
        """Largest ``TPR − FPR`` over the thresholds: 0 for guessing, 1 for knowing."""
        fpr, tpr, _ = self.roc()
        return float(np.max(tpr - fpr))

    @property
    def advantage_bound(self) -> float:
        """Largest advantage that the claim allows, ``(e^ε − 1 + 2 δ) / (e^ε + 1)``."""
        if math.isinf(self.epsilon):
            return 1.0
        return math.tanh(self.epsilon / 2) + 2 * self.delta / (math.exp(self.epsilon) + 1)

    def tpr_bound(self, fpr: ArrayLike) -> np.ndarray:
        """Return the most true positives that the claim allows.

        Parameters
        ----------
        fpr : array-like
            Shares of false positives.

        Returns
        -------
        ndarray
            ``min(e^ε FPR + δ, 1 − e^−ε (1 − δ − FPR), 1)``: the inequality for the attack and
            for its complement.
        """
        x = np.asarray(fpr, dtype=np.float64)
        with np.errstate(invalid="ignore"):
            steep = np.where(x > 0, np.exp(self.epsilon) * x, 0.0) + self.delta
        flat = 1 - math.exp(-self.epsilon) * (1 - self.delta - x)
        bound: np.ndarray = np.clip(np.minimum(steep, flat), 0.0, 1.0)
        return bound

    def epsilon_lower_bound(self, confidence: float = 0.95) -> float:
        """Bound the ε of whatever made the scores from below.

        A threshold is chosen on the first half of the scores and judged on the second, with
        exact binomial confidence limits (Clopper and Pearson) for its two error rates.

        Parameters
        ----------
        confidence : float, default=0.95
            Probability that the bound holds, in (0, 1).

        Returns
        -------
        float
            At least 0. More than `epsilon` refutes the claim at this confidence.

        Raises
        ------
        ValueError
            If `confidence` is not in (0, 1) or there are fewer than two scores of a kind.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence={confidence!r} must be in (0, 1).")
        if min(len(self.member_scores), len(self.other_scores)) < 2:
            raise ValueError("Two scores of each kind are needed at least.")
        # The attack and its complement, in which the two kinds change places.
        kinds = (self.member_scores, self.other_scores)
        tail = (1 - confidence) / 2
        tests = [(kinds[0], kinds[1]), (-kinds[1], -kinds[0])]
        candidates = [_threshold(ups[::2], downs[::2], self.delta, tail) for ups, downs in tests]
        best = int(np.argmax([epsilon for epsilon, _ in candidates]))
        ups, downs = tests[best]
        threshold = candidates[best][1]
        return float(
            max(0.0, _epsilon(ups[1::2], downs[1::2], np.array([threshold]), self.delta, tail)[0])
        )

    def plot(self, ax: Any = None, **kwargs: Any) -> MembershipDisplay:
        """Draw the operating characteristic, and the region that the claim allows.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        **kwargs : dict
            For ``Axes.plot``.

        Returns
        -------
        MembershipDisplay
            The display.
        """
        fpr, tpr, _ = self.roc()
        grid = np.unique(np.concatenate([np.linspace(0, 1, 201), fpr]))
        display = MembershipDisplay(
            fpr=fpr,
            tpr=tpr,
            allowed_fpr=grid,
            allowed_tpr=self.tpr_bound(grid),
            epsilon=self.epsilon,
        )
        return display.plot(ax=ax, **kwargs)

    def __repr__(self) -> str:
        return (
            f"MembershipResult({len(self.member_scores)} + {len(self.other_scores)} releases, "
            f"epsilon={self.epsilon:.4g}, delta={self.delta:.2g}, "
            f"advantage={self.advantage:.3f} of at most {self.advantage_bound:.3f})"
        )


def _threshold(
    members: np.ndarray, others: np.ndarray, delta: float, tail: float
) -> tuple[float, float]:
    """Return the ε that the best threshold seems to show, and that threshold."""
    thresholds = np.unique(np.concatenate([members, others]))
    shown = _epsilon(members, others, thresholds, delta, tail)
    best = int(np.argmax(shown))
    return float(shown[best]), float(thresholds[best])


def _epsilon(
    members: np.ndarray, others: np.ndarray, thresholds: np.ndarray, delta: float, tail: float
) -> np.ndarray:
    """Return ``log((TPR − δ) / FPR)`` of each threshold at the limits of the two rates."""
    hits = len(members) - np.searchsorted(np.sort(members), thresholds)
    alarms = len(others) - np.searchsorted(np.sort(others), thresholds)
    least = np.where(hits > 0, beta.ppf(tail, np.maximum(hits, 1), len(members) - hits + 1), 0.0)
    most = beta.ppf(1 - tail, alarms + 1, np.maximum(len(others) - alarms, 1))
    most = np.where(alarms < len(others), most, 1.0)
    shown: np.ndarray = np.log(np.maximum(least - delta, 1e-300) / most)
    return shown
