"""What every fitted source of synthetic rows gives; all of it is post-processing."""

from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from skdpot._utils.rng import solver_generator
from skdpot._utils.validation import check_is_fitted, validate_rows
from skdpot.metrics import sliced_wasserstein_distance

_TOO_MANY = 2**31  # rows of a call


class SyntheticRows(BaseEstimator):
    """Sampling and scoring, whatever the rows are drawn from."""

    classes_: np.ndarray
    _frame_out: bool

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
            Randomness of this call, which protects nothing.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows; a DataFrame when the estimator was fitted on one.

        Raises
        ------
        ValueError
            If `n_samples` is not a positive integer.
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples)
        rows, _ = self._draw(n_samples, solver_generator(random_state))
        return like_input(self, rows)

    def sample_labeled(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, Any]:
        """Draw synthetic rows with their classes; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows. Classes occur with their frequency in the private data, noisy
            unless labels are public.
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        X : ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows.
        y : ndarray of shape (n_samples,)
            Their classes.

        Raises
        ------
        ValueError
            If the estimator was fitted without classes, or `n_samples` is not positive.
        """
        check_is_fitted(self)
        if not hasattr(self, "classes_"):
            raise ValueError(
                f"sample_labeled needs a {type(self).__name__} that was fitted with "
                "conditional=True; this one knows no classes. Use sample."
            )
        n_samples = check_n_samples(n_samples)
        rows, positions = self._draw(n_samples, solver_generator(random_state))
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
        check_is_fitted(self)
        rows = validate_rows(self, X, reset=False)
        return -sliced_wasserstein_distance(rows, self._scored_rows())


def check_n_samples(n_samples: Any, name: str = "n_samples") -> int:
    """Return a number of rows, of whatever type it is, as an int of Python."""
    whole = isinstance(n_samples, Integral) and not isinstance(n_samples, bool)
    if not whole or not 1 <= n_samples < _TOO_MANY:
        given = repr(n_samples) if isinstance(n_samples, int | float | str) else "what was given"
        raise ValueError(f"{name}={given} must be an integer of at least 1 and below 2^31.")
    return int(n_samples)


def like_input(estimator: Any, rows: np.ndarray) -> Any:
    """Return rows as a DataFrame if the estimator was fitted on one."""
    if not estimator._frame_out:
        return rows
    return pd.DataFrame(rows, columns=getattr(estimator, "feature_names_in_", None))
