"""A fit on rows with canaries among them, and what an attacker holds after it."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from tqdm.auto import tqdm

from skdpot.audit.canaries import CanaryPairs
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.recording import (
    Release,
    first_difference,
    record_releases,
    replay_releases,
)

__all__ = ["AuditTask", "AuditedFit", "Score"]


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

    @property
    def candidates(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Known rows, then the first of all pairs, then the second, and their labels."""
        pairs = self.pairs
        rows = np.concatenate([self.X, pairs.first, pairs.second])
        if self.y is None or pairs.first_labels is None or pairs.second_labels is None:
            return rows, None
        return rows, np.concatenate([self.y, pairs.first_labels, pairs.second_labels])

    @property
    def shares(self) -> np.ndarray:
        """How many of each candidate are expected: 1 of known rows, and 1/2 of the others."""
        return np.concatenate([np.ones(len(self.X)), np.full(2 * len(self.pairs), 0.5)])

    def of_candidates(self, of_fit: np.ndarray) -> np.ndarray:
        """Return public facts of the rows of the fit for all candidates."""
        return np.concatenate([of_fit, of_fit[len(self.X) :]])


Score = Callable[[AuditedFit], np.ndarray]


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditTask:
    """A function to audit, the rows that everybody knows, and the pairs that coins choose from."""

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
        """Fit once on the known rows and what the coins chose, and keep what was released."""
        function = clone(self.fit).fit if hasattr(self.fit, "fit") else self.fit
        with record_releases() as releases:
            fitted, facts = self._fitted(function, self.pairs.choose(heads))
        return AuditedFit(
            fitted=fitted,
            releases=tuple(releases),
            pairs=self.pairs,
            X=self.X,
            y=self.y,
            fit_params=facts,
            verbose=self.verbose,
        )

    def leak(self, heads: np.ndarray) -> str | None:
        """Name what a fit shows of the rows beside its releases.

        An estimator is fitted twice with one seed, the second time to other records, with the
        releases of the first fit in the place of its own. What depends on the rows through the
        releases alone is the same then, to the last bit. A slot of the other rows has the label
        of its other record, and the features of that of another slot: pairs may have equal ones.
        """
        seeds = [
            name
            for name in (self.fit.get_params(deep=True) if hasattr(self.fit, "get_params") else ())
            if name.rpartition("__")[2] == "random_state"
        ]
        if not seeds:
            return None
        seeded = clone(self.fit).set_params(**dict.fromkeys(seeds, 0))

        def difference(other: tuple[np.ndarray, np.ndarray | None]) -> str:
            try:
                with replay_releases(releases):
                    again, _ = self._fitted(clone(seeded).fit, other)
            except Exception as error:  # it did not fail on the first rows
                return str(error)
            return first_difference(vars(fitted), vars(again)) or ""

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a seed or noise warns of concerns nobody here
            own, (rows, labels) = self.pairs.choose(heads), self.pairs.choose(~heads)
            with record_releases(forgetting=False) as releases:
                fitted, _ = self._fitted(clone(seeded).fit, own)
            found = difference((rows[np.arange(len(rows)) // 2], labels))
            return None if found and difference(own) else found

    def _fitted(
        self, function: Callable[..., Any], slots: tuple[np.ndarray, np.ndarray | None]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Call a function with the known rows and those in the slots."""
        chosen, labels = slots
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
        return function(rows, targets, **facts), facts
