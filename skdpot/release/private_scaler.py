"""Robust standardisation whose centres and scales are differentially private."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags

from skdpot._utils.parameters import all_or_nothing, check_is_fitted, fit_context
from skdpot._utils.rows import validate_rows
from skdpot._utils.streams import spawn_streams
from skdpot.exceptions import CalibrationError
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.charges import SEEDED, charge
from skdpot.privacy.earlier_steps import made_by, warn_of_composition
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.reliability import Reliability
from skdpot.privacy.targets import PrivacyTarget, privacy_target
from skdpot.release.private_bounds import plan_private_bounds, release_scales
from skdpot.release.sketch_reliability import feature_names

_ADVICE = "Use more rows, a larger epsilon, fewer features, or public scales of the features."
_ASSUMPTIONS = (
    "the number of rows",
    "the number, the names and the data types of the features",
    "every value is a finite number; others are refused",
    "each person contributes one row",
)


@dataclass(eq=False, repr=False)
class PrivateScaler(PrivateEstimatorMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Centre and scale features by differentially private, robust statistics.

    The private counterpart of `~sklearn.preprocessing.RobustScaler`. The centre of a feature is
    its median. Its scale is the median distance between two different values, divided by the same
    quantity of the standard normal distribution. It is close to the standard deviation for
    bell-shaped features, and robust to outliers. Both are estimated from histograms with cells at
    most about one scale wide. The data may have any range.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of one fit; ``float("inf")`` adds no noise and protects no one.
    delta : float, default=1e-5
        Privacy parameter of one fit, in (0, 1); choose it well below one over the number of
        rows.
    budget : PrivacyBudget or None, default=None
        Shared budget that each fit is charged to. If None, the fit is charged to no budget.
    with_centering : bool, default=True
        Whether to subtract centres.
    with_scaling : bool, default=True
        Whether to divide by scales.
    random_state : int, RandomState instance or None, default=None
        Seed of the privacy noise. For tests only: anyone who knows it can remove the noise.

    Attributes
    ----------
    center_ : ndarray of shape (n_features_in_,) or None
        Private medians; None if `with_centering` is False.
    scale_ : ndarray of shape (n_features_in_,) or None
        Private positive scales, 1 for constant features; None if `with_scaling` is False. Where
        noise hides a scale it is a quarter of the size of most values, or if that is hidden too,
        the geometric mean of the other scales.
    privacy_spent_ : PrivacySpent
        The privacy statement of the fit.
    reliability_ : Reliability
        Standard errors of centres and scales, beside 0 and what sizes of values tell of scales.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when all of them are strings.

    Privacy
    -------
    A fit releases five noisy histograms per feature: of absolute values on a public grid of powers
    of two, and of values in cells that follow from the histograms before. Under replace-one each
    round has L2 sensitivity ``sqrt(2 * n_features)``; the noise is discrete Gaussian. The fit is
    one event, charged before the data are read. ``with_centering=False`` costs the same, because
    the rounds that find the scale also find the centre. The number of rows and the number, names
    and types of the features are treated as public. `transform` and `inverse_transform` treat their
    input as public, and neither clip nor add noise: transformed private rows are still private.

    See Also
    --------
    sklearn.preprocessing.RobustScaler : The same idea without privacy.

    Notes
    -----
    For 8 bell-shaped features, 30,000 rows at ``epsilon=0.2`` give scales accurate to 2 % and
    centres accurate to 0.02 scales; 1,000 rows at ``epsilon=1``, to 11 % and 0.07 scales. Scales of
    heavy-tailed features are wrong by up to a third, because the noise hides a part of the tail. A
    scale that the noise hides is replaced (see `scale_`), with a `ReliabilityWarning`, which
    depends on the noisy histograms only.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.preprocessing import PrivateScaler
    >>> X = np.random.default_rng(0).normal(50.0, 10.0, size=(20_000, 3))
    >>> scaler = PrivateScaler(epsilon=1.0, delta=1e-6).fit(X)
    >>> bool(np.all(np.abs(scaler.center_ - 50.0) < 2.0))
    True
    >>> scaler.privacy_spent_.epsilon
    1.0
    """

    epsilon: float = 1.0
    _: KW_ONLY
    delta: float = 1e-5
    budget: PrivacyBudget | None = None
    with_centering: bool = True
    with_scaling: bool = True
    random_state: int | np.random.RandomState | None = None

    _canaries = "far out"
    _parameter_constraints = PrivateEstimatorMixin._parameter_constraints | {
        "with_centering": ["boolean"],
        "with_scaling": ["boolean"],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Learn private centres and scales.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, at least two.
        y : None
            Ignored.

        Returns
        -------
        self : PrivateScaler
            The fitted scaler.

        Raises
        ------
        BudgetExceededError
            If `budget` has too little left. Nothing is charged or changed.
        ValueError
            If a parameter or X is invalid. Nothing is charged or changed.
        """
        with all_or_nothing(self):
            rows = validate_rows(self, X, reset=True, min_samples=2)
            if not (self.with_centering or self.with_scaling):
                raise ValueError(
                    "with_centering=False and with_scaling=False leave nothing to learn; set one "
                    "of them to True, or use 'passthrough' in place of this step."
                )
            mu = whole_mu(privacy_target(self.epsilon, self.delta, self.budget))
            plan = plan_private_bounds(len(rows), rows.shape[1], mu, mode="features")
            mechanism = "noisy histograms of values"
            if not plan.event.is_private:
                mechanism = "histograms of values, no noise"
            seeded = () if self.random_state is None else (SEEDED,)
            spent = charge(
                self,
                plan.event,
                n_samples=plan.n_samples,
                assumptions=(*_ASSUMPTIONS, *seeded),
                mechanism=mechanism,
            )
            warn_of_composition(X, spent, self.budget, type(self).__name__)
            streams = spawn_streams(self.random_state, type(self).__name__)
            found = release_scales(rows, plan, streams)
            center, scale = np.array([(each.center, each.spread) for each in found]).T
            self.center_ = center if self.with_centering else None
            self.scale_ = scale if self.with_scaling else None
            self.privacy_spent_ = spent
            named = list(zip(found, feature_names(self), strict=True))
            centers = [each.error_of_center(name) for each, name in named]
            scales = [each.error_of_scale(name) for each, name in named]
            outputs = centers * self.with_centering + scales * self.with_scaling
            self.reliability_ = Reliability(tuple(outputs), _ADVICE)
        self.reliability_.warn(type(self).__name__)
        return self

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Subtract the centres and divide by the scales; only overflow is clipped.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, treated as public.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The scaled rows.
        """
        rows, center, scale = self._read(X)
        largest = np.finfo(rows.dtype).max  # a finite row stays finite
        with np.errstate(over="ignore"):
            scaled = np.clip((rows - center) / scale, -largest, largest)
        return scaled.astype(rows.dtype, copy=False)

    def fit_transform(self, X: npt.ArrayLike, y: object = None, **fit_params: Any) -> Any:
        """Fit, then transform the same rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, at least two.
        y : None
            Ignored.
        **fit_params : dict
            None are known.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            The scaled rows, as private as X. A private estimator fitted on them warns of the total
            cost, unless it shares `budget`.
        """
        scaled = self.fit(X, y, **fit_params).transform(X)
        return made_by(X, scaled, self.privacy_spent_, self.budget)

    def inverse_transform(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Multiply by the scales and add the centres.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Scaled rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows in the units of the data.
        """
        rows, center, scale = self._read(X)
        return (rows * scale + center).astype(rows.dtype, copy=False)

    def _read(self, X: npt.ArrayLike) -> tuple[npt.NDArray[Any], Any, Any]:
        """Return validated rows, and the centres and scales; 0 and 1 where there are none."""
        check_is_fitted(self)
        rows = validate_rows(self, X, reset=False)
        zeros = np.zeros(rows.shape[1])
        center = zeros if self.center_ is None else self.center_
        return rows, center, zeros + 1.0 if self.scale_ is None else self.scale_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def whole_mu(target: PrivacyTarget) -> float:
    """Return the mu that fills `target`, less what its rounding to ledger units takes."""
    units = target.mu_squared_units
    if units == 0:
        raise CalibrationError(
            f"epsilon={target.epsilon:g} at delta={target.delta:g} is too small to be accounted "
            "for. Raise epsilon or delta."
        )
    if units != math.inf:
        units = min(units, 10**300)  # beyond, no float holds it
    return math.sqrt(units * 1e-12) * (1 - 1e-13)
