"""A private regressor with similar predictions in all groups."""

import math
from copy import copy
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags

from skdpot._utils.devices import resolve_device
from skdpot._utils.labels import validate_targets
from skdpot._utils.parameters import Interval, StrOptions, check_is_fitted, check_parameters
from skdpot.base import FitContext
from skdpot.fair.barycenter import Barycenter
from skdpot.fair.mechanism import FairMechanism, FairTask
from skdpot.fair.penalty_mechanism import PenaltyMechanism
from skdpot.fair.predictor import PENALTY_MECHANISMS, FairPredictor
from skdpot.fair.regression_errors import distance_error, half_ranges
from skdpot.fair.score_losses import LOSSES
from skdpot.fair.sketched_outputs import SketchedOutputs
from skdpot.fair.transport import BallScores
from skdpot.nets.cells import SAME_GROUP, Cells
from skdpot.nets.compared_outputs import ClippedOutputs
from skdpot.nets.networks import evaluate
from skdpot.privacy.reliability import Reliability
from skdpot.release.bounds import public_bounds
from skdpot.release.private_bounds import planned_bounds
from skdpot.release.releases import Records, Release


@dataclass(eq=False, repr=False)
class FairPrivateRegressor(RegressorMixin, FairPredictor):
    r"""Regressor that treats groups alike, trained with differential privacy.

    A network is trained for its squared error, and its predictions are moved towards the
    Wasserstein barycentre of their distributions in the groups (`skdpot.mechanisms.Barycenter`).
    `level` is the share of the distance between groups that this removes. It can be chosen before
    or after the fit, at no cost. Targets are mapped to [-1, 1] by their bounds.

    With the mechanisms "sketch" and "ranks" training minimises :math:`(1 - \alpha)` times half the
    squared error plus :math:`\alpha` times the squared (sliced) Wasserstein distance between the
    groups' distributions of predictions, summed over pairs of K groups with the weight 4 / K².

    X is not scaled. Scale it first by *public* ranges to about [-1, 1], or with a
    `PrivateScaler` that shares the budget.

    Parameters
    ----------
    level : float, default=1.0
        Share of the distance between groups that is removed, from 0, the most accurate prediction,
        to 1, the same distribution of predictions in all groups. For "barycenter" only; the other
        mechanisms have an `alpha`.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    module : {"linear", "mlp"}, torch.nn.Module or callable, default="linear"
        Network from features to mapped targets, as in `FairPrivateClassifier`. "mlp" needs tens of
        thousands of rows at epsilon 1.
    mechanism : {"barycenter", "sketch", "ranks"} or a mechanism, default="barycenter"
        How predictions are made similar: by moving them, or by a penalty of the training. A name
        stands for `skdpot.mechanisms.Barycenter`, `skdpot.mechanisms.SketchedOutputs` or
        `skdpot.mechanisms.RankedOutputs` with defaults.
    group_aware : bool, default=False
        Whether predictions may use the group. `predict` then needs `sensitive_features`. For
        "barycenter" only; with other mechanisms make the group a feature of X.
    fairness : {"demographic_parity", "equalized_odds"}, default="demographic_parity"
        Whether predictions are compared over all members of the groups, or among those with similar
        targets. Equalised odds [1]_ means that prediction and group are independent given the
        target. Here the penalty is the mean distance of two groups within bins of the target. Each
        bin has about a fifth of the records, and its edges are released. The bin of a record is
        private. Equalised odds needs the mechanism "sketch" and a single target.
    callbacks : list of skorch.callbacks.Callback, optional
        Called at each training step, which counts as an epoch. They see the network and its noisy
        gradients; callbacks that need rows, losses or batch sizes are refused. Copies are
        tried for one step before the charge.
    target_bounds : "private" or (low, high), default="private"
        Range of each target. ``(low, high)``, scalars or arrays of shape (n_targets,), is public
        and free. "private" spends at most 25 % of the squared mu on estimating it.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    device : {"auto", "cpu", "cuda", "cuda:0", ...} or torch.device, default="auto"
        Where networks run; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything, the noise included. For tests only: it lets anyone remove the noise.
    verbose : int, default=0
        1 shows a progress bar of steps.

    Attributes
    ----------
    groups_ : ndarray of shape (n_groups,) or None
        The groups of `sensitive_features`; None if nothing is compared.
    network_ : torch.nn.Module
        From rows to mapped targets.
    mechanism_ : Barycenter, SketchedOutputs or RankedOutputs
        The mechanism of the fit, a copy.
    target_bounds_ : DataBounds
        Map from targets to [-1, 1]; predictions lie within, and with "barycenter" within four
        standard deviations of the released mean.
    target_bins_ : ndarray of shape (n_bins - 1,)
        The edges between the bins of the target, in its unit; only with equalised odds. Measure the
        remaining distance on public rows by ``wasserstein_parity(predictions,
        sensitive_features=groups, y_true=np.digitize(y, target_bins_))``.
    frontier_ : DataFrame or None
        Mean squared error (over targets) and mean Wasserstein distance of two groups
        (`skdpot.metrics.wasserstein_parity`) at 21 levels, with standard errors, from the release.
        Only with "barycenter"; None if there is one group.
    posterior_ : torch.nn.Module or None
        From rows to logits of the groups; only with "barycenter" and ``group_aware=False``.
    transport_ : object
        The map of predictions to one distribution; only with "barycenter".
    n_steps_ : int
        Number of training steps; not with "barycenter".
    losses_ : DataFrame or None
        Loss and penalty before at most 300 steps, on at most 2,000 records; only at ``epsilon=inf``
        and not with "barycenter".
    reliability_ : Reliability
        The errors that noise adds to the mean of each target, to its predictions, and with
        "barycenter" to the distance between groups. Predictions that are all noise become the
        released mean, which is told here.
    privacy_spent_ : PrivacySpent
        Cost of the fit and its assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    A row and its targets are protected, for a neighbour with *the same group*. The groups, their
    sizes and members, the number of rows, features and targets, names, and the initial weights are
    public. "barycenter" releases the noisy summed gradients of the networks, noisy
    distributions of predictions in each group, noisy sums of posteriors per group, and noisy
    moments of targets, predictions, errors and moves (`skdpot.release.moments`); frontier, levels
    and predictions are post-processing. "sketch" and "ranks" release what they do in
    `FairPrivateClassifier` under demographic parity, with r = 2M in the sensitivity of ranks, and
    moments of targets and predictions. Equalised odds releases the noisy distribution of the
    targets of each group in addition, and counts predictions by group and bin with noise for a
    record that changes its bin. Private bounds of the targets are one more release.

    References
    ----------
    E. Chzhen, C. Denis, M. Hebiri, L. Oneto, M. Pontil, "Fair regression with Wasserstein
    barycenters", NeurIPS 2020.
    E. Chzhen, N. Schreuder, "A minimax framework for quantifying risk-fairness trade-off in
    regression", Annals of Statistics 50 (2022).
    V. Divol, S. Gaucher, "Demographic parity in regression and classification within the
    unawareness framework", 2024.
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025. The sensitivity here is smaller than the paper's, and proved.

    .. [1] Y. Romano, S. Bates, E. J. Candès, "Achieving equalized odds by resampling sensitive
       attributes", NeurIPS 2020.

    Examples
    --------
    >>> from skdpot import FairPrivateRegressor
    >>> from skdpot.datasets import make_biased_regression
    >>> X, Y, group = make_biased_regression(2000, random_state=0)
    >>> regressor = FairPrivateRegressor(epsilon=3.0, target_bounds=(0, 1))
    >>> regressor = regressor.fit(X, Y, sensitive_features=group)
    >>> regressor.predict(X[:3]).shape
    (3, 2)
    >>> half = regressor.with_level(0.5)
    >>> list(regressor.frontier_.columns)
    ['level', 'mean_squared_error', 'mean_squared_error_se', 'wasserstein', 'wasserstein_se']
    """

    level: float = 1.0
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    mechanism: str | FairMechanism = "barycenter"
    fairness: str = "demographic_parity"
    target_bounds: Any = "private"

    _mechanisms: ClassVar[dict[str, type[FairMechanism]]] = {
        "barycenter": Barycenter,
        **PENALTY_MECHANISMS,
    }
    _parameter_constraints = {
        **FairPredictor._parameter_constraints,
        "level": [Interval(Real, 0, 1, closed="both")],
        "mechanism": [StrOptions(set(_mechanisms)), Barycenter, PenaltyMechanism],
        "fairness": [StrOptions({"demographic_parity", "equalized_odds"})],
        "target_bounds": [str, tuple, list, np.ndarray],
    }

    def _task(
        self, context: FitContext, rows: np.ndarray, y: Any, cells: Cells
    ) -> tuple[FairTask, np.ndarray]:
        targets = validate_targets(y, len(rows))
        self._flat, targets = targets.ndim == 1, targets.reshape(len(rows), -1)
        n_samples, n_targets = targets.shape
        aware = self._is_aware(cells)
        n_inputs = rows.shape[1] + (len(cells.sizes) - 1 if aware else 0)
        network = self._network(n_inputs, n_targets, context.streams.solver)
        if isinstance(self.target_bounds, str) and self.target_bounds != "private":
            raise ValueError('target_bounds must be "private" or a pair (low, high).')
        if odds := self.fairness == "equalized_odds":
            if not isinstance(self._chosen_mechanism, SketchedOutputs):
                raise ValueError(
                    'fairness="equalized_odds" needs mechanism="sketch": one map of predictions '
                    "cannot make them alike given the target, and ranks would need the bin of "
                    "every target to be public."
                )
            if n_targets > 1:
                raise ValueError('fairness="equalized_odds" needs a single target.')
        declared = public_bounds(self.target_bounds, None, n_targets)
        task = FairTask(
            gradient=LOSSES["squared"].gradient,
            compared=ClippedOutputs(n_targets, math.sqrt(n_targets)),
            cells=cells,
            network=network,
            bounds=planned_bounds(declared or n_samples, n_targets, context.target.mu_cap),
            group_aware=aware,
            given_target=odds,
            public=["the number of targets", *[SAME_GROUP] * (self.groups_ is not None)],
            callbacks=self.callbacks,
        )
        return task, targets

    def _finish(self, stated: Reliability) -> None:
        self._stated = stated
        self._state_distance()

    def _state_distance(self) -> None:
        """State the errors of the release, and that of the distance between groups."""
        frontier, outputs = getattr(self, "frontier_", None), self._stated.outputs
        if frontier is not None and self.level > 0.0:
            rms = float(np.sqrt(np.mean(half_ranges(self.target_bounds_) ** 2)))
            outputs = (*outputs, distance_error(frontier, self.transport_, float(self.level), rms))
        self.reliability_ = Reliability(outputs, self._stated.advice)

    def _targets(self, y: Any) -> np.ndarray:
        return self.target_bounds_.to_units(y.reshape(len(y), -1))

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return the rows and targets that a release reads; private bounds read targets alone."""
        if release.kind == "histogram":
            return (y.reshape(len(y), -1).astype(np.float64),)
        rows, targets = super()._seen_by(release, X, y)
        if release.kind == "gradient" and isinstance(self.mechanism_, Barycenter):
            targets = self._spread.before(np.asarray(targets))
        return rows, targets

    def predict(self, X: Any, *, sensitive_features: Any = None) -> np.ndarray:
        """Return predictions, within the bounds of the targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows.
        sensitive_features : array-like of shape (n_samples,), optional
            Group of each row, needed if ``group_aware=True`` and not read otherwise.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions in the shape of y in `fit`.

        Raises
        ------
        ValueError
            If groups are needed and not given, or are not among those of the fit.
        """
        rows = self._public_rows(X)
        if self.groups_ is None or not isinstance(self.mechanism_, Barycenter):
            outputs = evaluate(self.network_, rows, resolve_device(self.device))
        else:
            scores = BallScores(self.network_, self.posterior_, len(self.groups_))
            codes = self._codes(X, sensitive_features)
            scored, weights = scores(rows, codes)
            outputs = self.transport_(scored, weights, self.level)
        if isinstance(self.mechanism_, Barycenter):
            outputs = np.clip(outputs, *self._reach)
        predicted = self.target_bounds_.from_units(outputs)
        return predicted.ravel() if self._flat else predicted

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> float:
        """Return the coefficient of determination of the predictions, a mean over targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Their targets.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.
        sensitive_features : array-like of shape (n_samples,), optional
            As in `predict`.

        Returns
        -------
        float
        """
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def with_level(self, level: float) -> Self:
        """Return a fitted copy with another level, at no cost.

        Parameters
        ----------
        level : float
            Share of the distance between groups that is removed, in [0, 1].

        Returns
        -------
        FairPrivateRegressor
            Copy that shares the release of this one. Both are covered by one charge.

        Raises
        ------
        ValueError
            If the level is out of range, or the mechanism of the fit has fixed it.
        """
        check_is_fitted(self)
        if not isinstance(self.mechanism_, Barycenter):
            raise ValueError(
                'with_level needs a fit with mechanism="barycenter": the penalty of '
                f"{type(self.mechanism_).__name__} is part of the training."
            )
        other = copy(self)
        other.level = level
        check_parameters(other)
        other._state_distance()
        return other

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # thirty rows teach nothing under noise
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags
