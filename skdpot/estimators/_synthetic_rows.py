"""What samplers share: the terms of a fit, what is kept of its release, drawing and scoring.

Whatever follows from the release is post-processing.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from skdpot._utils.validation import (
    all_or_nothing,
    check_count,
    check_is_fitted,
    fit_context,
    resolve_device,
    solver_generator,
    spawn_streams,
    validate_rows,
)
from skdpot.mechanisms.base import FitContext, Released, chosen_mechanism
from skdpot.metrics import sliced_wasserstein_distance
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.release.sketch import ROW_BOUNDS, SlicedSketch


@dataclass(eq=False, repr=False)
class PrivateSampler(PrivateEstimatorMixin, BaseEstimator):
    """A mechanism with its terms; what is drawn from is made of the release, once."""

    mechanism: Any = "sketch"
    epsilon: float = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    budget: PrivacyBudget | None = None
    bounds: Any = "private"
    norm_bound: float | None = None
    random_state: Any = None
    verbose: int = 0

    _stated_in = ("sketch_",)
    _mechanisms: ClassVar[dict[str, type[Any]]]
    _made_last: ClassVar[str]  # the attribute that `_make` sets in the end
    _parameter_constraints = PrivateEstimatorMixin._parameter_constraints | ROW_BOUNDS

    def _make(self, rng: np.random.Generator) -> None:
        """Make what samples are drawn from: post-processing of the release."""
        raise NotImplementedError

    def _store(self, mechanism: Any, release: Released, X: Any) -> None:
        """Keep what was released, and the terms."""
        self._keep(release.value)
        self.mechanism_, self.bounds_ = mechanism, release.bounds
        self.privacy_spent_, self._frame_out = release.privacy_spent, isinstance(X, pd.DataFrame)

    def _keep(self, value: Any) -> None:
        """Keep the value of a release."""
        if isinstance(value, SlicedSketch):
            self.sketch_ = value
        else:
            self.releases_ = value

    def _ready(self, random_state: Any) -> np.random.Generator:
        """Return a generator; make what an interrupted fit has left undone."""
        check_is_fitted(self)
        rng = solver_generator(random_state)
        if not hasattr(self, self._made_last):
            self._make(rng)
        return rng


@dataclass(eq=False, repr=False)
class SyntheticRows(PrivateSampler):
    """Samplers of rows, with a class or without."""

    _: KW_ONLY
    conditional: bool = False
    n_steps: Any = None
    device: str = "auto"

    _parameter_constraints = PrivateSampler._parameter_constraints | {
        "conditional": ["boolean"],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Publish a release of X, and make of it what rows are drawn from.

        An interrupt after the release loses nothing that was paid for: the release stays, and
        the first `sample` or `score` does the rest.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, at least two.
        y : array-like of shape (n_samples,), optional
            Class labels, only used with ``conditional=True``; private unless the mechanism says
            that they are public.

        Returns
        -------
        self : estimator
            Fitted sampler.

        Raises
        ------
        ValueError
            If parameters or data are not usable. Nothing is charged.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.
        """
        streams = spawn_streams(self.random_state, type(self).__name__)
        mechanism = chosen_mechanism(self.mechanism, self._mechanisms)
        resolve_device(self.device)  # refused before any charge
        with all_or_nothing(self, forget=True):
            rows = validate_rows(self, X, reset=True, min_samples=2)
            release = mechanism.release(
                FitContext.of(self, X, streams),
                rows,
                y,
                conditional=self.conditional,
                n_steps=self.n_steps,
                **self._options(mechanism, rows, y, streams.solver),
            )
            if release.classes is not None:
                self.classes_ = release.classes
            self.n_samples_, self._class_shares = len(rows), release.class_shares
            self._store(mechanism, release, X)
        if not hasattr(self, self._made_last):  # training may be the release
            self._make(streams.solver)
        return self

    def _options(
        self, mechanism: Any, rows: np.ndarray, y: Any, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Return what else the mechanism is told; refuse what cannot be made of its release."""
        return {}

    def _draw(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in the units of the data, and the positions of their classes."""
        raise NotImplementedError

    def _scored_rows(self) -> np.ndarray:
        """Return the rows that a score is a distance to."""
        raise NotImplementedError

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw synthetic rows; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows; a DataFrame when the estimator was fitted on one.

        Raises
        ------
        TypeError, ValueError
            If `n_samples` is not a positive integer.
        """
        rng = self._ready(random_state)
        return like_input(self, self._draw(check_count(n_samples, "n_samples"), rng)[0])

    def sample_labeled(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, Any]:
        """Draw synthetic rows with their classes; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows. Classes occur with their frequency in the private data, noisy
            unless labels are public.
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        X : ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows.
        y : ndarray of shape (n_samples,)
            Their classes.

        Raises
        ------
        TypeError, ValueError
            If the estimator was fitted without classes, or `n_samples` is not positive.
        """
        check_is_fitted(self)
        if not hasattr(self, "classes_"):
            raise ValueError(
                f"sample_labeled needs a {type(self).__name__} that was fitted with "
                "conditional=True; this one knows no classes. Use sample."
            )
        rng = self._ready(random_state)
        rows, positions = self._draw(check_count(n_samples, "n_samples"), rng)
        return like_input(self, rows), self.classes_[positions]

    def score(self, X: Any, y: Any = None) -> float:
        """Negative sliced Wasserstein-2 distance from X to synthetic rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            **Public** rows: the score is computed from them without noise.
        y : object, optional
            Ignored.

        Returns
        -------
        float
            −SW₂ in the units of the data, along 256 or more fixed directions; higher is better.
        """
        self._ready(0)
        rows = validate_rows(self, X, reset=False)
        return -sliced_wasserstein_distance(rows, self._scored_rows())


def like_input(estimator: Any, rows: np.ndarray) -> Any:
    """Return rows as a DataFrame if the estimator was fitted on one."""
    if not estimator._frame_out:
        return rows
    return pd.DataFrame(rows, columns=getattr(estimator, "feature_names_in_", None))
