"""A private map of features or codes that makes groups alike."""

from copy import copy
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags

from skdpot._utils.labels import encode_labels
from skdpot._utils.parameters import (
    Interval,
    all_or_nothing,
    check_is_fitted,
    check_parameters,
    fit_context,
)
from skdpot._utils.rows import validate_rows, without_groups
from skdpot._utils.streams import spawn_streams
from skdpot.base import FitContext
from skdpot.exceptions import warn_of_fairness
from skdpot.fair.transport import (
    Transport,
    plan_rounds,
    release_rounds,
)
from skdpot.nets.cells import SAME_GROUP, one_cell, read_groups
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.earlier_steps import made_by
from skdpot.privacy.events import ComposedEvent, NonPrivateEvent
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.reliability import OutputError, Reliability
from skdpot.release.bounds import ROW_BOUNDS, DataBounds, public_bounds
from skdpot.release.private_bounds import BoundsPlan, bounds_share, planned_bounds
from skdpot.release.releases import Records, Release

_GOOD = 0.1  # error of a move that is good enough, where features span 2
_ADVICE = (
    "Merge small groups, use fewer features or rounds, declare bounds=(low, high), or take a "
    "larger epsilon."
)


@dataclass(eq=False, repr=False)
class FairPrivateTransformer(
    PrivateEstimatorMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator
):
    """Move rows of all groups to one distribution, with differential privacy.

    Use it for few features, such as the codes of an encoder that is public or private by itself.
    Models that are trained on moved codes can hardly distinguish the groups. The distributions of
    the groups along the directions of orthogonal bases are released, one basis after the other, and
    rows are moved towards the barycentre of the groups along each (iterative distribution
    transfer). `level` is how far, and can be chosen before or after the fit, at no cost.

    Parameters
    ----------
    level : float, default=1.0
        Share of the way to the barycentre, and so of the distance between groups that is removed,
        from 0, unchanged rows, to 1, the same distribution in all groups.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    n_rounds : int, default=8
        Number of bases. More bases find differences in more directions, each with more noise.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    bounds : "private", (low, high) or DataBounds, default="private"
        Range of each feature. ``(low, high)``, scalars or arrays of shape (n_features,), is public
        and free; rows beyond are clipped, and clipped rows are not spread out. "private" spends at
        most 25 % of the squared mu on estimating it.
    norm_bound : float, optional
        Public bound of the norm of every row, in place of `bounds`: 1 for codes on the sphere.
    random_state : int, RandomState or None, default=None
        Seed of everything, the noise included. For tests only: it lets anyone remove the noise.

    Attributes
    ----------
    groups_ : ndarray of shape (n_groups,) or None
        The groups of `sensitive_features`; None if there is one.
    bounds_ : DataBounds
        Map from the data to the set that rows are clipped to.
    transport_ : object
        The map, in the units of `bounds_`.
    reliability_ : Reliability
        The error that noise adds to the moves of each group along a direction, where features that
        are mapped by `bounds_` span 2.
    privacy_spent_ : PrivacySpent
        Cost of the fit and its assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    Releases noisy distributions of each group along `n_rounds` bases: one Gaussian event under
    replace-one within a group, of which each round has the sensitivity of
    `skdpot.nets.output_tables.release_tables` (a record moves one count per direction, wherever
    rows were moved before), after the events of private bounds. The groups, their sizes and **the
    group of each row**, the number of rows and features, names, and the fact that all values are
    finite are public. Rows given to `transform` are treated as public: moved private rows are still
    private.

    See Also
    --------
    PrivateSWAutoencoder : Learns codes, with a penalty for groups if the group is unknown later.
    FairPrivateRegressor : Moves predictions rather than features.

    References
    ----------
    F. Pitié, A. Kokaram, R. Dahyot, "N-dimensional probability density function transfer and its
    application to colour transfer", ICCV 2005.
    P. Gordaliza, E. del Barrio, F. Gamboa, J.-M. Loubes, "Obtaining fairness using optimal
    transport theory", ICML 2019 (features moved to the barycentre, without privacy).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import FairPrivateTransformer
    >>> from skdpot.metrics import wasserstein_parity
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(0, 2, 20_000)
    >>> codes = rng.normal(0.2 * group[:, None], 0.2, (20_000, 2)).clip(-1, 1)
    >>> fair = FairPrivateTransformer(epsilon=1.0, bounds=(-1, 1))
    >>> fair = fair.fit(codes, sensitive_features=group)
    >>> moved = fair.transform(codes, sensitive_features=group)
    >>> wasserstein_parity(moved, sensitive_features=group) < 0.02
    True
    >>> half = fair.with_level(0.5).transform(codes, sensitive_features=group)
    """

    level: float = 1.0
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    n_rounds: int = 8
    budget: PrivacyBudget | None = None
    bounds: Any = "private"
    norm_bound: float | None = None
    random_state: Any = None

    _canaries = "orthogonal rows"
    __metadata_request__transform = {"sensitive_features": False}
    _parameter_constraints = {
        **PrivateEstimatorMixin._parameter_constraints,
        **ROW_BOUNDS,
        "level": [Interval(Real, 0, 1, closed="both")],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Self:
        """Release the distributions of the groups.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, such as codes.
        y : None
            Ignored.
        sensitive_features : array-like of shape (n_samples,) or str, optional
            Group of each row: integers, strings, booleans or categories; public. Or the name of a
            column of X, a DataFrame, that holds them, and is not moved. If None, there is one
            group, and no row is moved.

        Returns
        -------
        self : FairPrivateTransformer
            Fitted transformer.

        Raises
        ------
        ValueError
            If parameters or data are not usable. Nothing is charged.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.
        """
        with all_or_nothing(self):
            features, groups = without_groups(self, X, sensitive_features, reset=True)
            rows = validate_rows(self, features, reset=True, min_samples=2)
            (n, d), name = rows.shape, type(self).__name__
            cells, self.groups_ = one_cell(n), None
            if sensitive_features is None:
                warn_of_fairness(
                    f"{name}: without sensitive_features all records are one group, so that none "
                    "is moved. Pass fit(X, sensitive_features=...). In a Pipeline enable metadata "
                    "routing and call set_fit_request(sensitive_features=True)."
                )
            else:
                cells, self.groups_ = read_groups(groups, n)
            streams = spawn_streams(self.random_state, name)
            context = FitContext.of(self, X, streams)
            mu, events = context.divisible_mu, []
            bounds = planned_bounds(public_bounds(self.bounds, self.norm_bound, d) or n, d, mu)
            if isinstance(bounds, BoundsPlan):
                mu *= np.sqrt(1.0 - bounds_share(n, d, mu))
                events.append(bounds.event)
            label = "Rows of each group, to be moved"
            plan = plan_rounds(mu, cells, d, self.n_rounds, streams.public, label)
            private = np.isfinite(context.target.epsilon)
            declared = isinstance(bounds, DataBounds)
            self.privacy_spent_ = context.charge_event(
                ComposedEvent(events=(*events, *plan.events)) if private else NonPrivateEvent(),
                n,
                (*context.assumptions(declared_bounds=declared), SAME_GROUP),
                f"noisy distributions of each group along {self.n_rounds} bases",
            )
            self.bounds_ = bounds.settled(rows, streams)
            units = self.bounds_.to_units(rows.astype(np.float64))
            scores = self._scores(units, cells.codes)
            self.transport_ = release_rounds(scores, self._scores, cells, plan, streams.secret)
            self.reliability_ = Reliability(self._errors(), _ADVICE)
        self.reliability_.warn(name)
        return self

    def _errors(self) -> tuple[OutputError, ...]:
        """Return the error of the moves of each group."""
        moved, first = self.transport_.signal, self.transport_.rounds[0]
        errors = self.transport_.errors(np.maximum(moved, first.errors))
        names = ["all rows"] if self.groups_ is None else [f"group {g}" for g in self.groups_]
        return tuple(
            OutputError(
                output=f"moves of {name}",
                standard_error=min(float(errors[k]), 2.0),
                trivial="an unmoved row",
                trivial_error=float(moved[k]),
                estimate=float(first.lengths[k]),
                margin=_GOOD,
            )
            for k, name in enumerate(names)
        )

    def _scores(self, rows: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows with the weights of the moves, which are indicators of the groups."""
        n_groups = 1 if self.groups_ is None else len(self.groups_)
        return np.asarray(rows, dtype=np.float64), np.eye(n_groups)[codes]

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return the rows that a release reads: distributions are in the units of the map."""
        return (self.bounds_.to_units(X.astype(np.float64)) if release.kind == "table" else X), y

    def transform(self, X: Any, *, sensitive_features: Any = None) -> np.ndarray:
        """Move rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, treated as public, clipped to the bounds.
        sensitive_features : array-like of shape (n_samples,), optional
            Group of each row; needed if the fit had groups.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Moved rows, within the bounds.

        Raises
        ------
        ValueError
            If groups are not given, or are not among those of the fit.
        """
        check_is_fitted(self)
        features, groups = without_groups(self, X, sensitive_features)
        rows = validate_rows(self, features, reset=False)
        codes = np.zeros(len(rows), dtype=np.intp)
        if self.groups_ is not None:
            codes = encode_labels(
                groups,
                len(rows),
                self.groups_,
                argument="sensitive_features",
                meaning="group label",
                needed_by="FairPrivateTransformer.transform",
                advice="these are the groups that it was fitted with",
            )[0]
        transport: Transport = self.transport_
        units, weights = self._scores(self.bounds_.to_units(rows), codes)
        moved = transport(units, weights, self.level)
        return self.bounds_.from_units(moved).astype(rows.dtype, copy=False)

    def fit_transform(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Any:
        """Fit, then move the same rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows.
        y : None
            Ignored.
        sensitive_features : array-like of shape (n_samples,), optional
            As in `fit`.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Moved rows, as private as X. A private estimator fitted on them warns of the total cost,
            unless it shares `budget`.
        """
        self.fit(X, y, sensitive_features=sensitive_features)
        moved = self.transform(X, sensitive_features=sensitive_features)
        return made_by(X, moved, self.privacy_spent_, self.budget)

    def with_level(self, level: float) -> Self:
        """Return a fitted copy with another level, at no cost.

        Parameters
        ----------
        level : float
            In [0, 1].

        Returns
        -------
        FairPrivateTransformer
            Copy that shares the release of this one. Both are covered by one charge.

        Raises
        ------
        ValueError
            If the level is out of range.
        """
        check_is_fitted(self)
        other = copy(self)
        other.level = level
        check_parameters(other)
        return other

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
