"""Membership inference on synthetic rows, by an attacker who holds nothing else.

Three attacks on what a sampler publishes: `distance_to_closest_record` and
`nearest_neighbour_distance_ratio` look for copies, `density_ratio_membership` (DOMIAS) for places
where the generator overfits; `closest_record_share` counts how often members are the closest. All
of them know the synthetic rows alone, and judge the average person.
`synthetic_membership` runs them all.

They find a generator that repeats its rows. They cannot show that another one is private: an
outlier may be exposed while nobody else is, and an attacker may know more. The test with teeth is
`skdpot.audit.one_run_audit`, and what guarantees privacy is the ε of the release.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from skdpot._utils.rng import solver_generator
from skdpot.audit.membership.attacks import (
    ClosestRecordShare,
    SyntheticMembershipResult,
    closest_record_share,
    density_ratio_membership,
    distance_to_closest_record,
    nearest_neighbour_distance_ratio,
    read_rows,
)
from skdpot.audit.membership.result import (
    MembershipDisplay,
)
from skdpot.metrics._panels import COLORS
from skdpot.privacy.spent import PrivacySpent

__all__ = ["SyntheticMembership", "synthetic_membership"]

_FEWEST_SAMPLED = 1000


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticMembership:
    """What all attacks on one source of synthetic rows found.

    Parameters
    ----------
    results : mapping of str to SyntheticMembershipResult
        By the name of the attack.
    share : ClosestRecordShare
        How often the real row closest to a synthetic one is a member.
    n_synthetic : int
        Number of synthetic rows that were attacked.
    """

    results: Mapping[str, SyntheticMembershipResult]
    share: ClosestRecordShare
    n_synthetic: int

    @property
    def best(self) -> SyntheticMembershipResult:
        """The attack with the largest area under its operating characteristic."""
        return max(self.results.values(), key=lambda result: result.auc)

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """Return the figures, a row for each attack.

        Parameters
        ----------
        confidence : float, default=0.95
            Of the limits, in (0, 1).

        Returns
        -------
        DataFrame
            Indexed by attack; columns as in `SyntheticMembershipResult.figures`.

        Raises
        ------
        ValueError
            If `confidence` is not in (0, 1).
        """
        figures = {name: result.figures(confidence) for name, result in self.results.items()}
        return pd.DataFrame.from_dict(figures, orient="index").rename_axis("attack")

    def plot(self, ax: Any = None, *, log: bool = False, legend: bool = True) -> MembershipDisplay:
        """Draw the operating characteristics of all attacks.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        log : bool, default=False
            Whether both axes are logarithmic, for small false positive rates.
        legend : bool, default=True
            Whether to draw the legend.

        Returns
        -------
        MembershipDisplay
            The display of the first one; all are on its axes.
        """
        (name, first), *others = self.results.items()
        display = first.plot(ax=ax, log=log, legend=False, color=COLORS[0], label=name)
        for (name, result), color in zip(others, COLORS[1:], strict=False):
            fpr, tpr, _ = result.roc()
            display.ax_.plot(fpr, tpr, drawstyle="steps-post", color=color, label=name)
        if legend:
            display.ax_.legend(fontsize="small")
        return display

    def __repr__(self) -> str:
        best = self.best
        return (
            f"SyntheticMembership({len(self.results)} attacks on {self.n_synthetic} rows, "
            f"largest auc={best.auc:.3f} by {best.attack!r}, "
            f"members closest {self.share.share.value:.3f} of {self.share.expected:.3f} expected)"
        )


def synthetic_membership(
    sampler: Any,
    X_members: ArrayLike,
    X_holdout: ArrayLike,
    *,
    X_reference: ArrayLike | None = None,
    n_samples: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> SyntheticMembership:
    """Attack synthetic rows in every way that is here.

    Parameters
    ----------
    sampler : estimator or array-like of shape (n_synthetic, n_features)
        A fitted estimator with a ``sample`` method, or synthetic rows.
    X_members : array-like of shape (n_members, n_features)
        Rows that it was fitted on.
    X_holdout : array-like of shape (n_holdout, n_features)
        Rows of the same population that it was not fitted on.
    X_reference : array-like of shape (n_reference, n_features), optional
        Rows of the population that the attacker holds. By default a random half of `X_holdout`
        is taken from it for that.
    n_samples : int, optional
        Synthetic rows to draw; as many as members by default, at least 1,000. To a sampler
        that is itself published, more rows are free.
    random_state : int, RandomState or None, default=None
        For the draws.

    Returns
    -------
    SyntheticMembership
        With `to_frame` and `plot`.

    Raises
    ------
    ValueError
        If rows do not fit together, the sampler draws no rows of features, or `n_samples` is
        less than 2. No value is quoted.
    TypeError
        If the sampler cannot draw rows.

    Privacy
    -------
    A test for those who may see `X_members`: the result is computed from them without noise. On
    public rows, fit a clone to one part of them and hold out another.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.audit import synthetic_membership
    >>> X, _ = load_iris(return_X_y=True)
    >>> sampler = DPSlicedFlowSampler(epsilon=1.0, bounds=(0, 8)).fit(X[::2])
    >>> found = synthetic_membership(sampler, X[::2], X[1::2], random_state=0)
    >>> found.best.auc < 0.85
    True
    """
    if n_samples is None:
        n_samples = max(_FEWEST_SAMPLED, len(read_rows(X_members, "X_members")))
    elif isinstance(n_samples, bool) or not isinstance(n_samples, Integral) or n_samples < 2:
        raise ValueError("n_samples must be an integer of at least 2, or None.")
    rng = solver_generator(random_state)
    holdout = read_rows(X_holdout, "X_holdout")
    if X_reference is None:
        if len(holdout) < 4:
            raise ValueError(
                f"X_holdout has {len(holdout)} rows and must have at least 4, half of which are "
                "the attacker's reference; or give X_reference."
            )
        shuffled = rng.permutation(holdout)
        holdout, reference = np.array_split(shuffled, 2)
    else:
        reference = read_rows(X_reference, "X_reference")
    members = read_rows(X_members, "X_members")
    rows, claim = _synthetic(sampler, int(n_samples), rng)
    seed = int(rng.integers(2**31))
    attacks = [
        distance_to_closest_record(rows, members, holdout, **claim),
        distance_to_closest_record(rows, members, holdout, reference=reference, **claim),
        *(
            [nearest_neighbour_distance_ratio(rows, members, holdout, **claim)]
            if (rows != rows[0]).any()
            else []
        ),
        *(
            density_ratio_membership(
                rows, members, holdout, reference, density=kind, random_state=seed, **claim
            )
            for kind in ("kernel", "classifier")
        ),
    ]
    return SyntheticMembership(
        results={result.attack: result for result in attacks},
        share=closest_record_share(rows, members, holdout),
        n_synthetic=len(rows),
    )


def _synthetic(
    sampler: Any, n_samples: int, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return synthetic rows, and the ε and δ that their source claims."""
    if not hasattr(sampler, "sample"):
        if hasattr(sampler, "fit"):
            raise TypeError(f"{type(sampler).__name__} has no method sample: pass synthetic rows.")
        return read_rows(sampler, "sampler"), {"epsilon": math.inf, "delta": 0.0}
    drawn = sampler.sample(n_samples, random_state=int(rng.integers(2**31)))
    if np.ndim(drawn) != 2:
        raise ValueError(
            f"{type(sampler).__name__}.sample returns an array of {np.ndim(drawn)} dimensions: "
            "pass synthetic rows, for instance those of sample_marginal at one time."
        )
    rows = read_rows(drawn, "the synthetic rows")
    spent = getattr(sampler, "privacy_spent_", None)
    if not isinstance(spent, PrivacySpent):  # a sampler that claims nothing
        return rows, {"epsilon": math.inf, "delta": 0.0}
    return rows, {"epsilon": spent.epsilon, "delta": spent.delta}
