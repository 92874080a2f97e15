"""One fit under audit: the task that coins are flipped for, and what an attacker knows of it."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from skdpot._utils.arguments import check_count
from skdpot._utils.streams import solver_generator
from skdpot.audit.canaries import CanaryPairs, NoKnownAttackError, default_canaries
from skdpot.privacy.budget import PrivacyBudget
from skdpot.release.comparison import first_difference
from skdpot.release.gate import record_releases, replay_releases
from skdpot.release.releases import Release

Slots: TypeAlias = tuple[np.ndarray, np.ndarray | None]  # the rows of all slots, and their labels


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditedFit:
    """What an attacker knows: everything but the coins."""

    fitted: Any  # what the fit returned
    releases: tuple[Release, ...]  # what passed the gate, in order
    pairs: CanaryPairs  # the two records that each slot can hold
    X: np.ndarray  # known rows, (n_known, n_features)
    y: np.ndarray | None  # their labels
    fit_params: Mapping[str, np.ndarray]  # further arguments, of known rows and then of slots
    verbose: int = 0

    @property
    def candidates(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Known rows, then the first record of each pair, then the second, and their labels."""
        pairs = self.pairs
        rows = np.concatenate([self.X, pairs.first, pairs.second])
        if self.y is None or pairs.first_labels is None or pairs.second_labels is None:
            return rows, None
        return rows, np.concatenate([self.y, pairs.first_labels, pairs.second_labels])

    @property
    def shares(self) -> np.ndarray:
        """The expected count of each candidate: 1 for known rows, 1/2 for the others."""
        return np.concatenate([np.ones(len(self.X)), np.full(2 * len(self.pairs), 0.5)])


Score = Callable[[AuditedFit], np.ndarray]


def named_parameters(fit: Any, name: str) -> dict[str, Any]:
    """Return the parameters of an estimator with a name, its own and those of its parts."""
    parameters = fit.get_params() if hasattr(fit, "get_params") else {}
    return {key: value for key, value in parameters.items() if key.rpartition("__")[2] == name}


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditTask:
    """A function to audit, the known rows, and the pairs that coins choose from."""

    fit: Any
    pairs: CanaryPairs
    X: np.ndarray
    y: np.ndarray | None
    fit_params: Mapping[str, np.ndarray]
    verbose: int = 0

    def __post_init__(self) -> None:
        parameters = self.fit.get_params() if hasattr(self.fit, "get_params") else {}
        for name, value in parameters.items():
            if isinstance(value, PrivacyBudget):
                raise ValueError(f"fit must have {name}=None: audits charge no budget.")

    def run(self, heads: np.ndarray) -> AuditedFit:
        """Fit once to the known rows and the chosen records, and record the releases."""
        function = clone(self.fit).fit if hasattr(self.fit, "fit") else self.fit
        with record_releases() as releases:
            fitted, fit_params = self._fitted(function, self.pairs.choose(heads))
        return AuditedFit(
            fitted=fitted,
            releases=tuple(releases),
            pairs=self.pairs,
            X=self.X,
            y=self.y,
            fit_params=fit_params,
            verbose=self.verbose,
        )

    def leak(self, heads: np.ndarray) -> str | None:
        """Name an output of a fit that depends on the rows beside its releases.

        An estimator is fitted twice with one seed, the second time to other records with the
        releases of the first fit. What depends on the rows through the releases alone is then the
        same to the last bit. None if the fit has no seed, or cannot be repeated.
        """
        seeds = named_parameters(self.fit, "random_state")
        if not seeds:
            return None
        seeded = clone(self.fit).set_params(**dict.fromkeys(seeds, 0))

        def difference(records: Slots) -> str:
            try:
                with replay_releases(releases):
                    again, _ = self._fitted(clone(seeded).fit, records)
            except Exception as error:  # it did not fail on the first rows
                return str(error)
            return first_difference(vars(fitted), vars(again)) or ""

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of seeds and of noise in this test
            records = self.pairs.choose(heads)
            with record_releases(forgetting=False) as releases:
                fitted, _ = self._fitted(clone(seeded).fit, records)
            changed = difference(self._other_records(heads))
            is_unrepeatable = changed and difference(records)
            return None if is_unrepeatable else changed

    def _other_records(self, heads: np.ndarray) -> Slots:
        """Return records that differ from those of the coins in every slot.

        A slot has the label of its other record and the features of another slot, since the records
        of a pair may have equal features.
        """
        rows, labels = self.pairs.choose(~heads)
        return rows[np.arange(len(rows)) // 2], labels

    def _fitted(
        self, function: Callable[..., Any], slots: Slots
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Return what a function returns for the known rows and the slots, and its `fit_params`."""
        chosen, labels = slots
        rows = np.concatenate([self.X, chosen])
        if (labels is None) != (self.y is None):
            raise ValueError("y must be given if and only if the canaries have labels.")
        if set(self.fit_params) != set(self.pairs.fit_params):
            raise ValueError("fit_params of rows and of canaries must have the same names.")
        targets = None if labels is None else np.concatenate([np.asarray(self.y), labels])
        fit_params = {
            name: np.concatenate([value, self.pairs.fit_params[name]])
            for name, value in self.fit_params.items()
        }
        return function(rows, targets, **fit_params), fit_params


def checked_task(
    fit: Any, X: Any, y: Any, canaries: Any, fit_params: Any, random_state: Any, verbose: int = 0
) -> AuditTask:
    """Check the arguments of an audit, and make the canaries if none are given."""
    if not (callable(fit) or hasattr(fit, "fit")) or isinstance(fit, type):
        raise ValueError("fit must be an estimator (an object, not a class) or a function.")
    if isinstance(fit, Pipeline):
        raise NoKnownAttackError("Audit the private steps of a Pipeline one by one.")
    if issparse(X):
        raise ValueError("X must be dense. Pass X.toarray().")
    rows = np.asarray(X)
    if rows.ndim != 2:
        raise ValueError(f"X must have two dimensions, not {rows.ndim}.")
    labels = None if y is None else np.asarray(y)
    known = {name: np.asarray(value) for name, value in (fit_params or {}).items()}
    for name, column in {"y": labels, **known}.items():
        if column is not None and column.shape[:1] != (len(rows),):
            raise ValueError(f"{name} must have one entry per row of X, which has {len(rows)}.")
    if not isinstance(canaries, CanaryPairs):
        n_pairs, rng = check_count(canaries, "canaries"), solver_generator(random_state)
        canaries = default_canaries(fit, n_pairs, rows, labels, fit_params=known, rng=rng)
    if canaries.first.shape[1] != rows.shape[1]:
        raise ValueError(
            f"The canaries have {canaries.first.shape[1]} features, and X has {rows.shape[1]}."
        )
    return AuditTask(
        fit=fit, pairs=canaries, X=rows, y=labels, fit_params=known, verbose=int(verbose)
    )
