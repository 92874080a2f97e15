"""A private regressor whose predictions are alike in all groups."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from skdpot._utils.validation import validate_targets
from skdpot.estimators._fair_predictor import SAME_GROUP, FairPredictor
from skdpot.mechanisms.base import FitContext
from skdpot.mechanisms.fair import FairTask
from skdpot.nets.wasserstein_gradient import Cells, ClippedOutputs
from skdpot.release import release as recording
from skdpot.release.bounds import public_bounds
from skdpot.release.histogram import bounds_or_plan, settled_bounds


@dataclass(eq=False, repr=False)
class FairPrivateRegressor(RegressorMixin, FairPredictor):
    r"""Regressor that treats groups alike, trained with differential privacy.

    What is minimised is :math:`(1 - \alpha)` times half the squared error plus :math:`\alpha`
    times the squared (sliced) Wasserstein distance between the groups' distributions of
    predictions, averaged over pairs of groups; targets are mapped to [-1, 1] by their bounds.

    X is used as it is: scale it first by *public* ranges, to about [-1, 1], or by a
    `PrivateScaler` that shares the budget.

    Parameters
    ----------
    alpha : float, default=0.5
        Weight of fairness in [0, 1); 0 is DP-SGD for the squared error alone.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    module : {"linear", "mlp"}, torch.nn.Module or callable, default="linear"
        Network from features to mapped targets. "mlp" has one hidden layer of 64 units and needs
        tens of thousands of rows at epsilon 1. A module is copied and starts from the weights that
        it has, which must be public; a function without arguments makes one. It must treat every
        record by itself.
    mechanism : {"sketch", "ranks"}, SketchedOutputs or RankedOutputs, default="sketch"
        How gradients are made private: steps, batches, learning rate, clipping. A name is short
        for `skdpot.mechanisms.SketchedOutputs` or `skdpot.mechanisms.RankedOutputs` with their
        defaults.
    callbacks : list of skorch.callbacks.Callback, optional
        Called by skorch during training, where a step is an epoch of one batch: a learning-rate
        schedule in place of the half cosine, a checkpoint, a stop. They see the network and its
        noisy gradients, never rows, losses or sizes of batches; what needs those is refused.
    target_bounds : "private" or (low, high), default="private"
        Range of each target: ``(low, high)``, scalars or arrays of shape (n_targets,), is public
        and costs nothing. "private" spends at most 10 % of the squared mu on estimating it.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where networks run; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Makes everything reproducible, the privacy noise included. For tests only: whoever knows
        it can remove the noise.
    verbose : int, default=0
        1 shows a progress bar, of steps and not of losses.

    Attributes
    ----------
    groups_ : ndarray of shape (n_groups,) or None
        The groups of `sensitive_features`; None if nothing is compared (alpha=0).
    network_ : torch.nn.Module
        From rows to mapped targets.
    mechanism_ : SketchedOutputs or RankedOutputs
        The mechanism that was used.
    target_bounds_ : DataBounds
        Map from targets to [-1, 1]; predictions lie within.
    n_steps_ : int
        Number of training steps.
    privacy_spent_ : PrivacySpent
        What the fit cost, and under which assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    A fit releases the noisy summed gradient of every step, noisy distributions of the outputs of
    all records with a sketch, and the bounds of the targets unless they are public: one composed
    event under replace-one, for a neighbour that has *the same group*. Public are the groups, their
    sizes, who belongs to which, the number of rows, features and targets, names, and the network's
    first weights. With a sketch batches are Poisson samples and the sensitivity of a sum is
    :math:`(1-\alpha)\,2C` (`skdpot.nets.fair_training`); with ranks they are fixed numbers of
    records of each group and it is :math:`(1-\alpha)\,2C + \alpha\, n' \frac{2}{K} \frac{4 r
    L}{\min_c n'_c}` with r = 2M (`skdpot.nets.wasserstein_gradient`). Rounding to the lattice of
    the noise adds at most 1/512 (`skdpot.privacy.noise.noise_for_sums`). Networks that are not
    plain chains of layers are trained in single precision, of which the last bits can depend on the
    size of the batch; the statement assumes that they do not. No loss is recorded or shown.

    What `predict` and `score` are given is treated as public. A grid search that scores on
    private records leaks through its scores and its choice.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025. The sensitivity here is smaller than the paper's, and proved.

    Examples
    --------
    >>> from skdpot import FairPrivateRegressor
    >>> from skdpot.datasets import make_biased_regression
    >>> X, Y, group = make_biased_regression(2000, random_state=0)
    >>> regressor = FairPrivateRegressor(alpha=0.5, epsilon=3.0, target_bounds=(0, 1))
    >>> regressor.fit(X, Y, sensitive_features=group).predict(X[:3]).shape
    (3, 2)
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    target_bounds: Any = "private"

    _parameter_constraints = FairPredictor._parameter_constraints | {
        "target_bounds": [str, tuple, list, np.ndarray],
    }

    def _fit(self, context: FitContext, rows: np.ndarray, y: Any, cells: Cells) -> None:
        targets = validate_targets(y, len(rows))
        self._flat, targets = targets.ndim == 1, targets.reshape(len(rows), -1)
        n_samples, n_targets = targets.shape
        network = self._network(rows.shape[1], n_targets, context.streams.solver)
        if isinstance(self.target_bounds, str) and self.target_bounds != "private":
            raise ValueError('target_bounds must be "private" or a pair (low, high).')
        given = public_bounds(self.target_bounds, None, n_targets)
        bounds = bounds_or_plan(given or n_samples, n_targets, context.target.mu_cap)
        task = FairTask(
            gradient=_squared_error_gradient,
            compared=ClippedOutputs(n_targets, math.sqrt(n_targets)),
            alpha=self.alpha,
            cells=cells,
            network=network,
            bounds=bounds,
        )
        plan = self.mechanism_.plan(context, task)
        public = ("the number of targets", *([] if self.groups_ is None else [SAME_GROUP]))
        self._charge(context, plan, network, public)
        self.target_bounds_ = settled_bounds(bounds, targets, context.streams)
        self._train(context, plan, network, self._records(network, rows, self._targets(targets)))

    def _targets(self, y: Any) -> np.ndarray:
        return self.target_bounds_.to_units(y.reshape(len(y), -1))

    def _seen_by(self, release: recording.Release, X: Any, y: Any) -> recording.Records:
        """Return rows and mapped targets; of private bounds, targets as they are."""
        if release.kind == "histogram":
            return (y.reshape(len(y), -1).astype(np.float64),)
        return super()._seen_by(release, X, y)

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, within the bounds of the targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            As y was in `fit`.
        """
        outputs = self._outputs(X)
        predicted = self.target_bounds_.from_units(outputs)
        return predicted.ravel() if self._flat else predicted

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of this estimator."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # thirty rows teach nothing under noise
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


def _squared_error_gradient(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradient of half the squared error by the outputs."""
    return outputs - targets
