"""A fit on rows with canaries among them, and what an attacker holds after it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from tqdm.auto import tqdm

from skdpot.audit.canaries import CanaryPairs
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.recording import Release, record_releases

__all__ = ["AuditTask", "AuditedFit", "NoKnownAttackError", "Score"]


class NoKnownAttackError(ValueError):
    """Nothing here attacks such an estimator; give canaries and a score of your own."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditedFit:
    """What an attacker holds who knows everything but the coins.

    Parameters
    ----------
    fitted : object
        What the audited function returned, usually a fitted estimator.
    releases : tuple of Release
        Every noisy quantity that it released while it ran.
    pairs : CanaryPairs
        The candidates of each slot.
    X : ndarray of shape (n_samples, n_features)
        The other rows, which come before the slots.
    y : ndarray of shape (n_samples,) or None
        Their labels.
    fit_params : mapping of str to ndarray of shape (n_samples + n_pairs,)
        Public facts of all rows.
    verbose : int, default=0
        Shows progress bars if it is positive.
    """

    fitted: Any
    releases: tuple[Release, ...]
    pairs: CanaryPairs
    X: np.ndarray
    y: np.ndarray | None
    fit_params: Mapping[str, np.ndarray]
    verbose: int = 0

    def watched(self, steps: Iterable[Any], label: str) -> Iterable[Any]:
        """Return the steps of a score, under a progress bar where one is wanted."""
        return tqdm(steps, desc=label) if self.verbose > 0 else steps

    def rows_and_weights(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Return the rows that are expected: the known ones, and of each pair both by half.

        Returns
        -------
        rows : ndarray of shape (n_samples + 2 * n_pairs, n_features)
            Known rows, then the first of all pairs, then the second.
        labels : ndarray or None
        weights : ndarray of shape (n_samples + 2 * n_pairs,)
        """
        pairs = self.pairs
        rows = np.concatenate([self.X, pairs.first, pairs.second])
        weights = np.concatenate([np.ones(len(self.X)), np.full(2 * len(pairs), 0.5)])
        if self.y is None or pairs.first_labels is None or pairs.second_labels is None:
            return rows, None, weights
        labels = np.concatenate([self.y, pairs.first_labels, pairs.second_labels])
        return rows, labels, weights


Score = Callable[[AuditedFit], np.ndarray]


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditTask:
    """A function to audit, the rows that everybody knows, and the pairs that coins choose from.

    Parameters
    ----------
    fit : estimator or callable
        An estimator, which is cloned, or ``fit(X, y, **fit_params)``.
    pairs : CanaryPairs
        The candidates of each slot.
    X : ndarray of shape (n_samples, n_features)
        Known rows.
    y : ndarray of shape (n_samples,) or None
        Their labels.
    fit_params : mapping of str to ndarray of shape (n_samples,)
        Further public facts of them.
    verbose : int, default=0
        Shows progress bars if it is positive.

    Raises
    ------
    ValueError
        If the estimator has a budget.
    """

    fit: Any
    pairs: CanaryPairs
    X: np.ndarray
    y: np.ndarray | None
    fit_params: Mapping[str, np.ndarray]
    verbose: int = 0

    def __post_init__(self) -> None:
        if not hasattr(self.fit, "get_params"):
            return
        charged = [
            name
            for name, value in self.fit.get_params(deep=True).items()
            if isinstance(value, PrivacyBudget)
        ]
        if charged:
            raise ValueError(
                f"fit must have {charged[0]}=None: an audit fits made-up records, which are not to "
                "be charged to the budget of real ones."
            )

    def run(self, heads: np.ndarray) -> AuditedFit:
        """Fit once on the known rows and what the coins chose, and keep what was released.

        Parameters
        ----------
        heads : ndarray of bool of shape (n_pairs,)
            Where the first record of the pair is in.

        Returns
        -------
        AuditedFit

        Raises
        ------
        ValueError
            If labels or facts are given of rows and not of canaries, or the other way round.
        """
        chosen, labels = self.pairs.choose(heads)
        rows = np.concatenate([self.X, chosen])
        if (labels is None) != (self.y is None):
            raise ValueError("y must be given if the canaries have labels, and only then.")
        if set(self.fit_params) != set(self.pairs.fit_params):
            raise ValueError(
                f"fit_params has {sorted(self.fit_params)} for the rows, and the canaries have "
                f"{sorted(self.pairs.fit_params)}: they must have the same names."
            )
        targets = None if labels is None else np.concatenate([np.asarray(self.y), labels])
        facts = {
            name: np.concatenate([value, self.pairs.fit_params[name]])
            for name, value in self.fit_params.items()
        }
        function = clone(self.fit).fit if hasattr(self.fit, "fit") else self.fit
        with record_releases() as releases:
            fitted = function(rows, targets, **facts)
        return AuditedFit(
            fitted=fitted,
            releases=tuple(releases),
            pairs=self.pairs,
            X=self.X,
            y=self.y,
            fit_params=facts,
            verbose=self.verbose,
        )
