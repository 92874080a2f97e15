"""The estimator of distances between parties who cannot share their data."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if

from skdpot._utils.arguments import check_count
from skdpot._utils.parameters import (
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    check_parameters,
    fit_context,
)
from skdpot._utils.rows import validate_rows
from skdpot._utils.streams import spawn_streams
from skdpot.base import FitContext, chosen_mechanism
from skdpot.distance.distance_protocol import DistanceProtocol
from skdpot.distance.estimates import DistanceEstimate
from skdpot.distance.fedwad import FedWad
from skdpot.distance.messages import Message
from skdpot.distance.party import Party
from skdpot.distance.sliced import Sliced
from skdpot.distance.triangle import Triangle
from skdpot.ot.plans import shown_plans
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.release.bounds import ROW_BOUNDS
from skdpot.release.sketch import SlicedSketch
from skdpot.sources import Source, fit_rows, record_columns

PROTOCOLS: dict[str, type[DistanceProtocol[Any]]] = {
    "sliced": Sliced,
    "triangle": Triangle,
    "fedwad": FedWad,
    "TriangleWad": Triangle,  # as the papers call them
    "FedWad": FedWad,
}


def _publishes(estimator: "PrivateWassersteinDistance") -> bool:
    """Whether `transform` exists: with "sliced" after `fit` only, as a sketch is of all rows."""
    if estimator._is_private and not hasattr(estimator, "sketch_"):
        raise AttributeError(
            'With protocol="sliced" transform is compared with what fit published: call fit first.'
        )
    return True


@dataclass(eq=False, repr=False)
class PrivateWassersteinDistance(PrivateEstimatorMixin, BaseEstimator):
    """Wasserstein distance between data sets of parties that cannot share them.

    Only the default protocol is differentially private. With "triangle" and "fedwad", anyone who
    sees a party's message and knows what the parties share recovers every row exactly.

    Parameters
    ----------
    protocol : {"sliced", "triangle", "fedwad"}, Sliced, Triangle or FedWad, default="sliced"
        "sliced" (`Sliced()`): each party publishes a private sketch (`SlicedSketch`), and the
        sliced Wasserstein distance is estimated from two sketches, corrected for their noise.
        "triangle" (`Triangle()`, TriangleWad): each party publishes an interpolation of its rows
        with a shared Gaussian sample. "fedwad" (`FedWad()`): the parties approach a measure between
        them in rounds. The last two are **not private**.
    epsilon : float, default=1.0
        Privacy parameter of each sketch; ``inf`` for no privacy. Only "sliced" uses it, like
        `bounds` and `norm_bound`.
    delta : float, default=1e-5
        Privacy parameter of each sketch, in (0, 1).
    budget : PrivacyBudget, optional
        Shared budget that `fit`, `transform` and `publish` are charged to. A budget with a
        finite epsilon refuses the protocols that are not private.
    bounds : "private", (low, high) or DataBounds, default="private"
        Range of each feature, see `SlicedSketch`. Sketches that were fitted separately are
        comparable if they have the same public bounds: declared bounds, or the `bounds_` that one
        party has released. Rows outside are clipped, and distances are those of the clipped rows.
        With private bounds, which fit the rows of one party, distances are in units of the scaled
        features.
    norm_bound : float, optional
        Public bound on the norm of every row, in place of `bounds`.
    device : {"auto", "cpu", "cuda", "cuda:0", ...} or torch.device, default="auto"
        Device on which projections are counted.
    random_state : int, RandomState or None, default=None
        Seed of everything, the noise included. For tests only: it lets anyone remove the noise.
    verbose : int, default=0
        1 shows a progress bar of the exact plans of "triangle" and "fedwad".

    Attributes
    ----------
    protocol_ : Sliced, Triangle or FedWad
        Fitted protocol.
    sketch_ : SlicedSketch
        Published sketch; only with ``protocol="sliced"``.
    bounds_ : DataBounds
        Map from the data to the ball that is binned; only with ``protocol="sliced"``.
    reference_ : ReferenceMeasure
        Shared sample; only with the other protocols.
    privacy_spent_ : PrivacySpent
        Privacy cost of the fit and its assumptions.
    reliability_ : Reliability
        Standard error of distances to parties with such a sketch, beside the spread of the rows.
    n_samples_ : int
        Number of rows, or of persons with `groups`.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    With ``protocol="sliced"``, `fit` releases one sketch and nothing else, under replace-one;
    `transform` and `publish` of other rows release and charge another. Comparing released
    sketches costs nothing. Rows given to `distance`, `compare`, `score` and `score_samples`
    are treated as public. With ``protocol="triangle"`` and "fedwad" nothing is private: the
    statement says epsilon = inf, and `fit` issues a `NotPrivateWarning`. The fitted estimator
    keeps its rows and cannot be pickled. `skdpot.distance.reconstruction` recovers them.

    See Also
    --------
    skdpot.mechanisms.Sliced, skdpot.mechanisms.Triangle, skdpot.mechanisms.FedWad : The protocols.
    ClientContribution : Compares many parties with a reference.
    skdpot.distance.party.Party : A party with its own rows and budget.
    skdpot.metrics.wasserstein_distance : Exact distance between two public data sets.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import PrivateWassersteinDistance
    >>> rng = np.random.default_rng(0)
    >>> here = rng.normal(0.0, 0.2, size=(5000, 4))
    >>> there = rng.normal(0.3, 0.2, size=(5000, 4))
    >>> private = PrivateWassersteinDistance(epsilon=1.0, bounds=(-1, 1)).fit(here)
    >>> other = PrivateWassersteinDistance(epsilon=1.0, bounds=(-1, 1)).fit(there)
    >>> bool(abs(private.distance(other) - 0.3) < 0.03)
    True
    """

    _stated_in = ("sketch_",)
    _mechanisms = PROTOCOLS
    protocol: str | DistanceProtocol[Any] = "sliced"
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    budget: PrivacyBudget | None = None
    bounds: Any = "private"
    norm_bound: float | None = None
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    _parameter_constraints = {
        **PrivateEstimatorMixin._parameter_constraints,
        **ROW_BOUNDS,
        "protocol": [StrOptions(set(PROTOCOLS)), DistanceProtocol],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        masses: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Store this party's rows, or publish their sketch if the protocol is private.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or source of rows
            This party's rows, at least two; with "sliced" also what is read in batches, see
            `SlicedSketch.fit`.
        y : array-like of shape (n_samples,), optional
            Their classes; only used by a protocol with ``labeled=True``.
        masses : array-like of shape (n_samples,), optional
            Non-negative weights of the rows, scaled to sum to one. Not allowed with "sliced".
        groups : array-like of shape (n_samples,), optional
            The person of each row, if persons have several, see `SlicedSketch.fit`. Only with
            "sliced", and X in memory.

        Returns
        -------
        self : PrivateWassersteinDistance
            Fitted estimator.

        Raises
        ------
        ValueError
            If parameters or data are invalid. Nothing is charged, unless X is read in batches
            and cannot be read to the end after the charge, which then stays.
        ImportError
            If what X needs is not installed, such as pyarrow for files.
        BudgetExceededError
            If `budget` is too small. Nothing is charged and nothing changes.
        """
        with all_or_nothing(self, forget=True):
            protocol = chosen_mechanism(self.protocol, PROTOCOLS)
            needs = "" if protocol.is_private else 'protocol="sliced"'
            rows = fit_rows(self, X, groups, needs)
            streams = spawn_streams(
                self.random_state if protocol.is_private else None, type(self).__name__
            )
            context = FitContext.of(self, X, streams, groups)
            result = protocol.release(context, rows, y, masses)
            self.protocol_, self._fitted_side = protocol, result.value
            if isinstance(rows, Source):
                record_columns(self, result.value)
            self.privacy_spent_, self.reliability_ = result.privacy_spent, result.reliability
            self.__dict__.update(result.attributes)
        # After the fit is stored: a warning that is made an error must not lose the release.
        protocol.advise(result.value)
        self.reliability_.warn(type(self).__name__)
        return self

    def compare(
        self, other: Any, y: ArrayLike | None = None, *, masses: ArrayLike | None = None
    ) -> DistanceEstimate:
        """Estimate the distance to another party, with its uncertainty.

        Parameters
        ----------
        other : array-like of shape (n_rows, n_features), PrivateWassersteinDistance, \
Party, or a published message
            The other party. Rows are treated as public. A sequence of parties stands for the
            union of their rows (not with "fedwad").
        y : array-like of shape (n_rows,), optional
            Classes of rows; needed with ``labeled=True``.
        masses : array-like of shape (n_rows,), optional
            Weights of rows.

        Returns
        -------
        DistanceEstimate
            Attributes ``distance``, ``squared_distance``, ``standard_error``, ``noise_floor`` (what
            noise adds to the squared distance, subtracted), ``unit``, ``details`` and
            ``transcript`` (the messages), and ``interval(confidence)``.

        Raises
        ------
        ValueError
            If the other party measures something else.
        MessageError
            If its message is damaged or does not match.
        """
        check_is_fitted(self)
        parts = (Party, Message, SlicedSketch, BaseEstimator)
        if isinstance(other, Sequence) and other and all(isinstance(o, parts) for o in other):
            other = tuple(self._other_side(part) for part in other)
        else:
            other = self._other_side(other)
        with self._bar():
            return self.protocol_.compare(self._fitted_side, other, y, masses)

    def distance(
        self, other: Any, y: ArrayLike | None = None, *, masses: ArrayLike | None = None
    ) -> float:
        """Return the estimated distance to another party.

        Parameters
        ----------
        other, y, masses
            As in `compare`.

        Returns
        -------
        float
            W₂, or SW₂ with "sliced", in the unit ``compare(other).unit``: that of the features, or
            of the scaled features if `bounds` scales each by its own range.
        """
        return self.compare(other, y, masses=masses).distance

    def score(self, X: Any, y: ArrayLike | None = None) -> float:
        """Return minus the distance to public rows: higher is nearer.

        Parameters
        ----------
        X, y
            **Public** rows, and their classes with ``labeled=True``.

        Returns
        -------
        float
            Minus `distance`.
        """
        return 0.0 - self.distance(X, y)

    def publish(self, X: Any = None, y: ArrayLike | None = None) -> Message:
        """Return the message that a party sends in this protocol.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features), optional
            Rows of another party. With "sliced" they are a new release at (epsilon, delta),
            charged to `budget`. By default the fitted rows, whose sketch is already published.
        y : array-like of shape (n_rows,), optional
            Their classes; only used with ``labeled=True``.

        Returns
        -------
        Message
            A `SketchMessage`, or an `InterpolatingMeasure` (the first one of "fedwad"). Its
            ``reveals`` states what it reveals, and to whom.
        """
        check_is_fitted(self)
        if X is not None:
            _check_rows(X)
            validate_rows(self, X, reset=False, min_samples=self.protocol_.fewest_rows)
        with self._bar():
            return self.protocol_.publish(self._context(X), self._fitted_side, X, y)

    @available_if(_publishes)
    def transform(self, X: Any) -> np.ndarray:
        """Return the numbers that a party with these rows would publish.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows. With "sliced" they are private: **each call releases and charges a new
            sketch**, and calls on the same rows add up.

        Returns
        -------
        ndarray of shape (n_projections, n_bins + 1) or (n_rows, n_features)
            With "sliced" the noisy distribution functions, otherwise the interpolated rows.
        """
        check_is_fitted(self)
        return self.protocol_.numbers(self.publish(X))

    def score_samples(self, X: Any, y: ArrayLike | None = None) -> np.ndarray:
        """Return the data value of each row: its effect on the distance to this party.

        The value is the derivative of the squared distance when mass is moved to a row from all
        others (Li and Pang, equation 13). Rows with large positive values increase the distance
        and are likely noise; rows with negative values decrease it.

        Parameters
        ----------
        X, y
            **Public** rows, and their classes with ``labeled=True``.

        Returns
        -------
        ndarray of shape (n_rows,)
            Values, in the squared unit of the distance.
        """
        check_is_fitted(self)
        _check_rows(X)
        rows = validate_rows(self, X, reset=False, min_samples=self.protocol_.fewest_rows)
        with self._bar():
            return self.protocol_.values(self._fitted_side, rows, y)

    def barycenter(
        self, others: list[Any], *, weights: ArrayLike | None = None, n_points: int = 1000
    ) -> np.ndarray:
        """Return points of the Wasserstein barycenter of this party and others.

        Parameters
        ----------
        others : list of PrivateWassersteinDistance, Party or published messages
            The other parties. The protocols that are not private also take rows.
        weights : array-like of shape (n_parties,), optional
            Weights of the parties, this one first. By default, all are equal.
        n_points : int, default=1000
            Number of points, all of the same mass.

        Returns
        -------
        ndarray of shape (n_points, n_features)
            With "sliced", particles whose quantiles along the shared directions are the means of
            those of the sketches: the sliced barycenter, which is the Wasserstein one of
            isotropic Gaussians and of shifts of one law. "fedwad" and "triangle" move a Gaussian
            sample by ``n_rounds`` rounds, and by one, of the fixed-point iteration of
            ``ot.lp.free_support_barycenter`` (FedBary).

        Raises
        ------
        TypeError, ValueError
            If there is no other party, or parties measure something else.
        MessageError
            If a message is damaged or does not match.

        Privacy
        -------
        With "sliced", post-processing of the sketches; a `Party` publishes, and charges, one. The
        other protocols are **not private**: every round reveals all rows.
        """
        check_is_fitted(self)
        if not isinstance(others, list | tuple):
            raise TypeError(f"others must be a list of parties, got {type(others).__name__}.")
        if not others:
            raise ValueError("others must hold one party or more, got none.")
        size = check_count(n_points, "n_points")
        sides = [self._other_side(other) for other in others]
        with self._bar():
            return self.protocol_.barycenter(self._fitted_side, sides, weights, size)

    def pairwise_distances(
        self, parties: Sequence[Party] | Mapping[str, Any], *, return_std: bool = False
    ) -> pd.DataFrame | tuple[pd.DataFrame, pd.DataFrame]:
        """Return the distances between all parties; each party publishes once.

        Parameters
        ----------
        parties : list of Party, list of rows, or mapping of name to rows
            At least two; rows in a list are named "0", "1" and so on. A `Party` has privacy
            parameters of its own and must allow the protocol. Rows are private and are published
            with the parameters of this estimator.
        return_std : bool, default=False
            Whether to also return standard errors; zero for the protocols without noise.

        Returns
        -------
        distances : DataFrame of shape (n_parties, n_parties)
            Symmetric, zero on the diagonal.
        standard_errors : DataFrame of shape (n_parties, n_parties)
            Only with ``return_std=True``.

        Notes
        -----
        The estimator need not be fitted; with "sliced" it must then declare public bounds.

        Privacy
        -------
        With "sliced", one Gaussian event per party. A `Party` charges its own budget. For given
        rows, `budget` is charged once for all parties, before any noise is drawn, assuming that
        each person's row is with one party only (parallel composition). For a person whose rows
        are with k parties, k sketches are released, as if `budget` were charged k times.
        """
        check_parameters(self)
        protocol = getattr(self, "protocol_", None) or chosen_mechanism(self.protocol, PROTOCOLS)
        side = getattr(self, "_fitted_side", None)
        with self._bar():
            result = protocol.matrix(self._context(None), side, parties)
        distances = result.to_frame()
        return (distances, result.standard_errors()) if return_std else distances

    @property
    def _is_private(self) -> bool:
        by_name = isinstance(self.protocol, str)
        protocol = PROTOCOLS.get(self.protocol) if by_name else self.protocol
        return bool(getattr(protocol, "is_private", False))

    def _epsilon_due(self) -> float:
        return self.epsilon if self._is_private else math.inf

    def _bar(self) -> AbstractContextManager[None]:
        """Show the progress of exact plans, which only protocols that are not private solve."""
        private = self._is_private or not self.verbose
        return shown_plans(None if private else "exact plans")

    def _context(self, X: Any) -> FitContext:
        return FitContext.of(self, X, spawn_streams(None, type(self).__name__))

    def _other_side(self, other: Any) -> Any:
        """Return the other side of a comparison: that of a fit, a party, a message or rows."""
        if isinstance(other, bytes) or other is None:
            raise TypeError(
                "The other side must be rows, a Party, a fitted estimator or a message, got "
                f"{type(other).__name__}. Read bytes with "
                "skdpot.distance.messages.Message.from_bytes."
            )
        protocol = self.protocol_
        if isinstance(other, PrivateWassersteinDistance):
            check_is_fitted(other)
            if type(other.protocol_) is not type(protocol):
                names = f"protocol={protocol.name!r} and {other.protocol_.name!r}"
                raise ValueError(f"{names}: both must be the same.")
            return other._fitted_side
        if isinstance(other, Message) and not isinstance(other, protocol.messages):
            raise TypeError(
                f"A {type(other).__name__} cannot be compared under protocol={protocol.name!r}."
            )
        if isinstance(other, SlicedSketch) and protocol.is_private:
            check_is_fitted(other)
        elif not isinstance(other, Party | Message):
            validate_rows(self, other, reset=False, min_samples=protocol.fewest_rows)
        return other

    def __sklearn_tags__(self) -> Any:
        """Return the tags of an estimator whose noise differs from fit to fit."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


def _check_rows(X: Any) -> None:
    """Refuse parties where rows are asked for."""
    if isinstance(X, (Party, Message, BaseEstimator, bytes)) or X is None:
        raise TypeError(
            f"X must be a table of rows, got {type(X).__name__}; pass parties to compare."
        )
