"""What a membership attack found, beside what a claimed (ε, δ) allows it to find."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from scipy.stats import beta, norm, rankdata

from skdpot.metrics._panels import COLORS

__all__ = [
    "MembershipDisplay",
    "MembershipResult",
    "Share",
    "binomial_limits",
]


@dataclass(eq=False, repr=False, kw_only=True)
class MembershipDisplay:
    """Operating characteristic of a membership attack, with the region that ε and δ allow.

    `MembershipResult.plot` makes one. Parameters are stored as attributes.

    Parameters
    ----------
    fpr, tpr : ndarray of shape (n_thresholds,)
        False and true positive rates of the attack.
    allowed_fpr, allowed_tpr : ndarray of shape (n_points,)
        Upper boundary of the region that the claim allows.
    epsilon : float
        The claim, for the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curve.
    figure_ : matplotlib Figure
        Figure that holds them.
    line_ : matplotlib Line2D
        The curve.
    region_ : matplotlib FillBetweenPolyCollection
        The region.

    See Also
    --------
    skdpot.audit.gaussian_audit : Makes scores.
    """

    fpr: np.ndarray
    tpr: np.ndarray
    allowed_fpr: np.ndarray
    allowed_tpr: np.ndarray
    epsilon: float

    def plot(
        self, ax: Any = None, *, legend: bool = True, log: bool = False, **kwargs: Any
    ) -> Self:
        """Draw the curve, the region and the diagonal of guessing.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        legend : bool, default=True
            Whether to draw the legend.
        log : bool, default=False
            Whether both axes are logarithmic, for small false positive rates.
        **kwargs : dict
            For ``Axes.plot``.

        Returns
        -------
        MembershipDisplay
            The display.
        """
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots()
        claim = f"{self.epsilon:g}".replace("inf", "∞")
        self.region_ = ax.fill_between(
            self.allowed_fpr,
            self.allowed_fpr,
            self.allowed_tpr,
            color=COLORS[5],
            alpha=0.3,
            linewidth=0,
            label=f"allowed by ε = {claim}",
        )
        style = {"color": COLORS[0], "drawstyle": "steps-post", "label": "attack"} | kwargs
        (self.line_,) = ax.plot(self.fpr, self.tpr, **style)
        # Not with ends at zero: on logarithmic axes such a line would have none.
        ends = [[self._least, 1]] * 2 if log else [[0, 1]] * 2
        ax.plot(*ends, color="black", linestyle=":", linewidth=1, label="guessing")
        if log:
            ax.set(xscale="log", yscale="log")
        lower = self._least if log else 0
        ax.set(
            xlim=(lower, 1),
            ylim=(lower, 1),
            xlabel="false positive rate",
            ylabel="true positive rate",
            aspect="equal",
        )
        if legend:
            ax.legend(loc="lower right")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @property
    def _least(self) -> float:
        """Where logarithmic axes begin: at the smallest rate above zero, below which is nothing."""
        seen = self.fpr[self.fpr > 0]
        return float(np.clip(seen.min() if len(seen) else 1.0, 1e-5, 0.1))


class Share(NamedTuple):
    """A share that was counted, and its exact binomial confidence limits.

    Parameters
    ----------
    value : float
        The share, in [0, 1].
    low, high : float
        Limits of Clopper and Pearson.
    """

    value: float
    low: float
    high: float


def binomial_limits(n_hits: int, n_trials: int, confidence: float = 0.95) -> Share:
    """Return a share with the limits of Clopper and Pearson."""
    _check_confidence(confidence)
    tail = (1 - confidence) / 2
    low = beta.ppf(tail, n_hits, n_trials - n_hits + 1) if n_hits > 0 else 0.0
    high = beta.ppf(1 - tail, n_hits + 1, n_trials - n_hits) if n_hits < n_trials else 1.0
    return Share(n_hits / n_trials, float(low), float(high))


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
    def auc(self) -> float:
        """Area under the operating characteristic: 0.5 for guessing, 1 for knowing.

        The probability that a member scores above another; a tie counts a half.
        """
        n_members, n_others = len(self.member_scores), len(self.other_scores)
        ranks = rankdata(np.concatenate([self.member_scores, self.other_scores]))
        below = float(ranks[:n_members].sum()) - n_members * (n_members + 1) / 2
        return below / (n_members * n_others)

    def auc_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return confidence limits of `auc`, normal on the scale of log odds.

        Parameters
        ----------
        confidence : float, default=0.95
            In (0, 1). It holds approximately, for dozens of scores of each kind or more.

        Returns
        -------
        low, high : float

        Raises
        ------
        ValueError
            If `confidence` is not in (0, 1) or there are fewer than two scores of a kind.

        References
        ----------
        E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson, "Comparing the areas under two or more
        correlated receiver operating characteristic curves", Biometrics 1988.
        """
        _check_confidence(confidence)
        kinds = (self.member_scores, self.other_scores)
        if min(map(len, kinds)) < 2:
            raise ValueError("Two scores of each kind are needed at least.")
        both = rankdata(np.concatenate(kinds))
        placed = np.split(both, [len(kinds[0])])
        variance = 0.0
        for own, other, ranks in zip(kinds, kinds[::-1], placed, strict=True):
            variance += float(np.var((ranks - rankdata(own)) / len(other), ddof=1)) / len(own)
        if variance == 0.0 or not 0.0 < self.auc < 1.0:
            # All of one side: as sure as so many right answers of the smaller kind.
            few = min(map(len, kinds))
            limits = binomial_limits(round(self.auc * few), few, confidence)
            return limits.low, limits.high
        # On the scale of log odds, where limits near 0 and 1 are not cut off.
        odds, spread = logit(self.auc), math.sqrt(variance) / (self.auc * (1.0 - self.auc))
        reach = float(norm.ppf((1 + confidence) / 2)) * spread
        return float(expit(odds - reach)), float(expit(odds + reach))

    def tpr_at(self, fpr: float, confidence: float = 0.95) -> Share:
        """Return the share of members that are found while few others are accused.

        An attack is dangerous if it finds some members for sure, even if it does no better than
        guessing on the average; so look at small `fpr` [1]_.

        Parameters
        ----------
        fpr : float
            Largest share of others with a score above the threshold, in [0, 1]. With fewer than
            ``1 / fpr`` others no single one may be.
        confidence : float, default=0.95
            Of the limits, in (0, 1).

        Returns
        -------
        Share
            Its `value`, and its binomial limits `low` and `high`. The threshold depends on the
            others alone, so that the limits are exact for it; the true share of false positives
            at it may be more than `fpr`, by as much as a sample of others can mislead.

        Raises
        ------
        ValueError
            If a parameter is out of range.

        References
        ----------
        .. [1] N. Carlini et al., "Membership inference attacks from first principles", IEEE S&P
           2022.
        """
        if not 0 <= fpr <= 1:
            raise ValueError(f"fpr={fpr!r} must be in [0, 1].")
        n_members, n_others = len(self.member_scores), len(self.other_scores)
        # One alarm more than 0.29 of 100 must not be lost to rounding.
        allowed = math.floor(fpr * n_others * (1 + 1e-12))
        found = n_members
        if allowed < n_others:
            threshold = np.sort(self.other_scores)[n_others - 1 - allowed]
            found = int(np.count_nonzero(self.member_scores > threshold))
        return binomial_limits(found, n_members, confidence)

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
        small = math.exp(-self.epsilon)
        return math.tanh(self.epsilon / 2) + 2 * self.delta * small / (1 + small)

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
        with np.errstate(invalid="ignore", over="ignore"):
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
        _check_confidence(confidence)
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

    def plot(self, ax: Any = None, *, log: bool = False, **kwargs: Any) -> MembershipDisplay:
        """Draw the operating characteristic, and the region that the claim allows.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        log : bool, default=False
            Whether both axes are logarithmic, which shows what happens at the smallest false
            positive rates.
        **kwargs : dict
            For ``Axes.plot``.

        Returns
        -------
        MembershipDisplay
            The display.
        """
        fpr, tpr, _ = self.roc()
        spaced = np.concatenate([np.linspace(0, 1, 201), np.geomspace(1e-5, 1, 101)])
        grid = np.unique(np.concatenate([spaced, fpr]))
        display = MembershipDisplay(
            fpr=fpr,
            tpr=tpr,
            allowed_fpr=grid,
            allowed_tpr=self.tpr_bound(grid),
            epsilon=self.epsilon,
        )
        return display.plot(ax=ax, log=log, **kwargs)

    def __repr__(self) -> str:
        return (
            f"MembershipResult({len(self.member_scores)} + {len(self.other_scores)} releases, "
            f"epsilon={self.epsilon:.4g}, delta={self.delta:.2g}, "
            f"advantage={self.advantage:.3f} of at most {self.advantage_bound:.3f})"
        )


def _check_confidence(confidence: float) -> None:
    """Refuse what is not a probability."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence!r} must be in (0, 1).")


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
