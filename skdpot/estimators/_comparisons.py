"""What a fitted party can ask about others."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if

from skdpot._utils.notices import warn_not_private
from skdpot._utils.validation import check_is_fitted
from skdpot.estimators._distance_estimate import DistanceEstimate
from skdpot.estimators._distance_protocols import NOT_PRIVATE, PROTOCOLS
from skdpot.federated.messages import Message
from skdpot.federated.party import Party

__all__ = ["Comparisons"]


def _publishes(estimator: "Comparisons") -> bool:
    """Say whether `transform` exists: always, but for a sketch after `fit` alone.

    A sketch is one table for all rows, so that before `fit` a pipeline must not take the
    estimator for a step that transforms rows.
    """
    if estimator.protocol == "sliced" and not hasattr(estimator, "sketch_"):
        raise AttributeError(
            'With protocol="sliced" transform publishes a table that can be compared with the '
            "one that fit published: call fit first."
        )
    return True


class Comparisons(BaseEstimator):
    """Methods of `PrivateWassersteinDistance` that need what `fit` has set."""

    protocol: str
    _fitted_protocol: str

    def compare(self, other: Any, y: Any = None, *, masses: Any = None) -> DistanceEstimate:
        """Estimate the distance to another party's measure, and say how far to trust it.

        Parameters
        ----------
        other : array-like of shape (n_rows, n_features), PrivateWassersteinDistance, \
Party, or a published message
            The other party. Rows are treated as public; with the protocols that are not
            private they play the other party's part. A sequence of parties stands for the
            union of their rows (with ``protocol="triangle"``).
        y : array-like of shape (n_rows,), optional
            Classes of rows; needed with ``labeled=True``.
        masses : array-like of shape (n_rows,), optional
            Weights of rows.

        Returns
        -------
        DistanceEstimate
            Distance, standard error, noise floor, interval, and what was sent.

        Raises
        ------
        ValueError
            If the other party measures something else.
        MessageError
            If what it sent is damaged or does not fit.
        """
        check_is_fitted(self)
        return PROTOCOLS[self._fitted_protocol].compare(self, other, y, masses)

    def distance(self, other: Any, y: Any = None, *, masses: Any = None) -> float:
        """Return the estimated distance to another party's measure.

        Parameters
        ----------
        other, y, masses
            As in `compare`.

        Returns
        -------
        float
            W₂, or SW₂ with ``protocol="sliced"``; in the unit of the features, or of the
            scaled features where `bounds` scales each by its own range
            (``compare(other).unit`` tells).
        """
        return self.compare(other, y, masses=masses).distance

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the distance to public rows: higher is nearer.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            **Public** rows.
        y : array-like of shape (n_rows,), optional
            Their classes; only used with ``labeled=True``.

        Returns
        -------
        float
            Minus `distance`.
        """
        return 0.0 - self.distance(X, y)

    def publish(self, X: Any = None, y: Any = None) -> Message:
        """Return the message that a party sends under this protocol.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features), optional
            Rows of another party, which are measured like the fitted ones: with "sliced" a new
            release at (epsilon, delta), charged to `budget`. None stands for the fitted rows,
            whose sketch is published already: that is free.
        y : array-like of shape (n_rows,), optional
            Their classes; only used with ``labeled=True``.

        Returns
        -------
        Message
            A `SketchMessage`, or an `InterpolatingMeasure` (the first one of "fedwad"). Its
            ``reveals`` says what it tells, and to whom.
        """
        check_is_fitted(self)
        return PROTOCOLS[self._fitted_protocol].publish(self, X, y)

    @available_if(_publishes)
    def transform(self, X: Any) -> np.ndarray:
        """Return the numbers that a party with these rows would publish.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows. With "sliced" they are private: **each call releases and charges a new
            sketch**, and calls on the same rows add up. Publish once and keep what comes back.

        Returns
        -------
        ndarray of shape (n_slices, n_bins + 1) or (n_rows, n_features)
            With "sliced" the noisy distribution functions, otherwise the interpolated rows.
            `publish` returns the whole message.
        """
        check_is_fitted(self)
        return PROTOCOLS[self._fitted_protocol].numbers(self.publish(X))

    def score_samples(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the data value of each row: how it moves the distance to this measure.

        The derivative of the squared distance when mass is moved to a row from all others
        (equation 13 of the paper). Rows with large positive values drive the distance up:
        they are likely noise. Negative ones bring the two together.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            **Public** rows.
        y : array-like of shape (n_rows,), optional
            Their classes; only used with ``labeled=True``.

        Returns
        -------
        ndarray of shape (n_rows,)
            Values, in the squared unit of the distance. `skdpot.federated.valuation.DataValues`
            ranks them.
        """
        check_is_fitted(self)
        return PROTOCOLS[self._fitted_protocol].values(self, X, y)

    def pairwise_distances(
        self, parties: Sequence[Party] | Mapping[str, Any], *, return_std: bool = False
    ) -> pd.DataFrame | tuple[pd.DataFrame, pd.DataFrame]:
        """Return the distances between all parties; each publishes once.

        Parameters
        ----------
        parties : sequence of Party, or mapping of name to rows
            At least two. A `Party` has privacy parameters of its own and must allow the
            protocol. Rows are private to a party made for them, which publishes with the
            parameters of this estimator.
        return_std : bool, default=False
            Whether to return standard errors of the distances too; zero for the protocols that
            add no noise.

        Returns
        -------
        distances : DataFrame of shape (n_parties, n_parties)
            Symmetric, zero on the diagonal.
        standard_errors : DataFrame of shape (n_parties, n_parties)
            Only with ``return_std=True``.

        Notes
        -----
        The estimator need not be fitted; with "sliced" it must declare public bounds then.

        Privacy
        -------
        With "sliced" one Gaussian event a party. A `Party` charges its own budget. For rows that
        are given, `budget` is charged once for all of them, before any noise is drawn: each
        person's row must be with one party only (parallel composition). Of a person whose rows
        are with k parties k sketches are released, as if `budget` were charged k times.
        """
        self._validate_params()
        if self.protocol != "sliced":
            warn_not_private(NOT_PRIVATE[self.protocol])
        matrix = PROTOCOLS[self.protocol].matrix(self, parties)
        return matrix if return_std else matrix[0]
