"""What clients contribute to a federation, by their distances from reference data."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from skdpot._utils.parameters import HasMethods, all_or_nothing, check_is_fitted, fit_context
from skdpot.distance.estimates import DistanceEstimate
from skdpot.distance.party import Party
from skdpot.distance.wasserstein_distance import PrivateWassersteinDistance


class ClientContribution(BaseEstimator):
    """Contribution of clients to a federation, by their distance from reference data.

    The contribution of a client is how much nearer its rows are to the server's reference rows than
    those of the farthest client. No model is trained. Distances are those of
    `PrivateWassersteinDistance`: by default each client publishes one private sketch.

    Parameters
    ----------
    estimator : PrivateWassersteinDistance, optional
        Estimator of the distances; cloned. By default ``PrivateWassersteinDistance()``.

    Attributes
    ----------
    estimator_ : PrivateWassersteinDistance
        Estimator fitted to the reference rows.
    privacy_spent_ : PrivacySpent
        Privacy cost for the reference rows. Each client pays for itself.
    reliability_ : Reliability
        Standard error of distances from the reference, see `PrivateWassersteinDistance`.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    `fit` releases what the estimator's `fit` releases. `contributions` asks each client for one
    message; with the default protocol that is a sketch at the client's own (epsilon, delta),
    and the contributions are computed from released sketches alone.

    See Also
    --------
    PrivateWassersteinDistance : The distance, and the value of single rows.

    Notes
    -----
    A distance measures how similar data are, not how much a model learns from them: two clients
    with the same rows get the same share, where Shapley values would split one. The time grows
    linearly with the number of clients. Check the intervals before interpreting shares: noise ranks
    equal clients too.

    References
    ----------
    Li, Fu, Zhang, Pang, "Data valuation and detections in federated learning", CVPR 2024
    (FedBary); Li, Pang, "Private Wasserstein distance", appendix E.7.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import ClientContribution, PrivateWassersteinDistance
    >>> rng = np.random.default_rng(0)
    >>> server, near, far = (rng.normal(m, 0.2, size=(4000, 3)) for m in (0.0, 0.05, 0.4))
    >>> private = PrivateWassersteinDistance(epsilon=1.0, bounds=(-1, 1))
    >>> table = ClientContribution(private).fit(server).contributions({"near": near, "far": far})
    >>> bool(table.loc["near", "contribution"] > table.loc["far", "contribution"])
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "compare"]), None]
    }

    def __init__(self, estimator: PrivateWassersteinDistance | None = None) -> None:
        self.estimator = estimator

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Fit the reference that clients are compared with.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The server's rows.
        y : array-like of shape (n_samples,), optional
            Their classes; only used when the estimator is ``labeled``.

        Returns
        -------
        self : ClientContribution
            Fitted estimator.

        Raises
        ------
        ValueError, BudgetExceededError
            As `PrivateWassersteinDistance.fit`. Nothing changes then.
        """
        with all_or_nothing(self):
            self.estimator_ = clone(self._chosen_estimator).fit(X, y)
            self.__dict__.pop("feature_names_in_", None)
            for name in ("n_features_in_", "feature_names_in_", "privacy_spent_", "reliability_"):
                if hasattr(self.estimator_, name):
                    setattr(self, name, getattr(self.estimator_, name))
        return self

    @property
    def _chosen_estimator(self) -> PrivateWassersteinDistance:
        return PrivateWassersteinDistance() if self.estimator is None else self.estimator

    def contributions(
        self, clients: Sequence[Party] | Mapping[str, Any], *, confidence: float = 0.95
    ) -> pd.DataFrame:
        """Compare each client with the reference.

        Parameters
        ----------
        clients : sequence of Party, or mapping of name to what `compare` takes
            A `Party` answers with its own privacy parameters. Arrays of rows are treated as
            public. A fitted `PrivateWassersteinDistance` or a message stands for a client that has
            already published.
        confidence : float, default=0.95
            Confidence level of the interval.

        Returns
        -------
        DataFrame of shape (n_clients, 8)
            Indexed by client, nearest first: "distance", its "standard_error", "low" and "high"
            ends of its interval, "relative" (the distance divided by the largest one),
            "contribution", and "least" and "most", its values at the ends of the client's interval.
            Contributions are shares that sum to one, in proportion to ``max d² − d_i² + s``. With
            s, the root mean square of the standard errors of d², clients that noise does not tell
            apart have about equal shares.

        Raises
        ------
        ValueError
            If there is no client, or two clients have the same name.
        """
        check_is_fitted(self)
        named = _named(clients)
        estimates = {name: self._compared(name, client) for name, client in named.items()}
        distances = np.array([estimate.distance for estimate in estimates.values()])
        intervals = [estimate.interval(confidence) for estimate in estimates.values()]
        squares = np.array([estimate.squared_distance for estimate in estimates.values()])
        errors = np.array([estimate.squared_standard_error for estimate in estimates.values()])
        noise = math.sqrt(float(np.mean(errors**2)))
        shares, ends = _shares(squares, noise), []
        for client, (low, high) in enumerate(intervals):
            moved = np.tile(squares, (2, 1))
            moved[:, client] = high**2, min(low**2, squares[client])  # an estimate may be negative
            ends.append([_shares(each, noise)[client] for each in moved])
        table = pd.DataFrame(
            {
                "distance": distances,
                "standard_error": [estimate.standard_error for estimate in estimates.values()],
                "low": [low for low, _ in intervals],
                "high": [high for _, high in intervals],
                "relative": distances / (distances.max() or 1.0),
                "contribution": shares,
                "least": [least for least, _ in ends],
                "most": [most for _, most in ends],
            },
            index=pd.Index(list(estimates), name="client"),
        )
        return table.sort_values("distance", kind="stable")

    def _compared(self, name: str, client: Any) -> DistanceEstimate:
        """Compare one client; its name is in the error if that fails."""
        try:
            return self.estimator_.compare(client)
        except (TypeError, ValueError) as error:
            refusal = type(error)(f"Client {name!r}: {error}")
        raise refusal


def _named(clients: Sequence[Party] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the clients by name."""
    if isinstance(clients, Mapping):
        named = dict(clients)
    else:
        sequence = isinstance(clients, Sequence) and not isinstance(clients, str | bytes)
        if not sequence or not all(isinstance(client, Party) for client in clients):
            raise TypeError("clients must be a sequence of Party, or a mapping of names to them.")
        named = {client.name: client for client in clients}
    if not named or len(named) < len(clients):
        raise ValueError("clients must hold one client or more, each with a name of its own.")
    return named


def _shares(squares: np.ndarray, noise: float) -> np.ndarray:
    """Return shares that sum to one and fall linearly with the squared distance."""
    nearer = squares.max() - squares + noise
    total = nearer.sum()
    return nearer / total if total > 0 else np.full(len(squares), 1.0 / len(squares))
