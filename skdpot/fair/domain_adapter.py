"""A private classifier for rows of another domain than those that have labels."""

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from torch.nn import functional

from skdpot._utils.devices import resolve_device
from skdpot._utils.labels import encode_labels
from skdpot._utils.parameters import (
    HasMethods,
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    fit_context,
    safe_indexing,
)
from skdpot._utils.streams import spawn_streams
from skdpot.base import FitContext, chosen_mechanism
from skdpot.fair.mechanism import FairMechanism, FairTask
from skdpot.fair.penalty_mechanism import PenaltyMechanism
from skdpot.fair.predictor import NetworkPredictor
from skdpot.fair.ranked_outputs import RankedOutputs
from skdpot.fair.sketched_outputs import SketchedOutputs
from skdpot.fair.training_rows import TrainingRows
from skdpot.fair.transported_rows import SOURCE, TARGET, TransportedRows
from skdpot.nets.cells import Cells, one_cell
from skdpot.nets.compared_outputs import Probabilities
from skdpot.nets.networks import evaluate
from skdpot.nets.training import check_callbacks
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.charges import KNOWN_LABELS
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.release.releases import Records, Release

SAME_DOMAIN = (
    "the domain of each record and the sizes of both domains are public: the record that replaces "
    "another has the same domain"
)
_MECHANISMS: dict[str, type[FairMechanism]] = {
    "transport": TransportedRows,
    "sketch": SketchedOutputs,
    "ranks": RankedOutputs,
}
_NO_LABEL = -1  # code of the target rows
_LABELS = {
    "needed_by": "A classifier",
    "advice": "for a continuous target there is no domain adapter",
}


@dataclass(eq=False, repr=False)
class DPDomainAdapter(ClassifierMixin, NetworkPredictor):
    r"""Private classifier for a target domain, trained on labelled rows of a source domain.

    Rows of the source have labels. Rows of the target, to which the classifier will be applied,
    have no labels and another distribution, for example another hospital, instrument or year. One
    budget protects the rows of both. The domains are aligned by optimal transport, in one of three
    ways (`mechanism`). The classes should be about equally frequent in both domains, because
    transport moves one whole distribution to the other.

    X is not scaled. Scale it first by *public* ranges to about [-1, 1], or with a `PrivateScaler`
    that shares the budget.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    module : {"linear", "mlp"}, torch.nn.Module or callable, default="linear"
        Network from features to logits, one per class, as in `FairPrivateClassifier`.
    mechanism : {"transport", "sketch", "ranks"} or a mechanism, default="transport"
        "transport" (`skdpot.mechanisms.TransportedRows`): one release of the distributions of both
        domains, and training on source rows that are moved to the target. "sketch"
        (`skdpot.mechanisms.SketchedOutputs`) and "ranks" (`skdpot.mechanisms.RankedOutputs`): the
        distance between the predicted probabilities of both domains is a penalty, with weight
        ``alpha``; "ranks" is the method of the paper. Their ``tune_threshold`` is not used.
    classes : array-like, optional
        The public set of classes. By default the classes of the source in y, which are then taken
        as public.
    callbacks : list of skorch.callbacks.Callback, optional
        Called at each training step, which counts as an epoch. They see the network and its noisy
        gradients; callbacks that need rows, losses or batch sizes are refused. Copies are
        tried for one step before the charge.
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
    classes_ : ndarray of shape (n_classes,)
        The classes.
    network_ : torch.nn.Module
        From rows of the target to logits.
    mechanism_ : TransportedRows, SketchedOutputs or RankedOutputs
        The mechanism of the fit, a copy.
    map_ : SlicedMap or None
        Moves arrays of source rows to the target. Only with "transport"; None with one domain.
    n_steps_ : int
        Number of training steps.
    losses_ : DataFrame or None
        Loss and penalty before at most 300 steps, on at most 2,000 records; only with "sketch" and
        "ranks" at ``epsilon=inf``.
    reliability_ : Reliability
        The errors that noise adds to predicted probabilities and, with "transport", to the map from
        source to target.
    privacy_spent_ : PrivacySpent
        Cost of the fit and its assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    One composed event under replace-one, for a neighbour with *the same domain*. Each row of either
    domain and the labels of the source are protected; labels of target rows are not read. The
    domain of each row, the sizes of both, the set of classes, the number and names of features, and
    the initial weights are public. Releases and sensitivities are those of the mechanism. Rows
    given to `predict` and `score` are treated as public.

    References
    ----------
    N. Courty, R. Flamary, D. Tuia, A. Rakotomamonjy, "Optimal transport for domain adaptation",
    TPAMI 2017.
    C.-Y. Lee, T. Batra, M. H. Baig, D. Ulbricht, "Sliced Wasserstein discrepancy for unsupervised
    domain adaptation", CVPR 2019.
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025 ("ranks").

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import DPDomainAdapter
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 6000)
    >>> X = rng.normal(0.25, 0.2, (6000, 2)) * (2 * y[:, None] - 1)
    >>> domain = np.where(np.arange(6000) < 3000, 1, -1)  # 1 source, -1 target
    >>> X[domain < 0] += 0.3
    >>> adapter = DPDomainAdapter(epsilon=2.0).fit(X, y, sample_domain=domain)
    >>> bool(adapter.score(X[domain < 0], y[domain < 0]) > 0.9)
    True
    """

    epsilon: float = 1.0
    _: KW_ONLY
    delta: float = 1e-5
    module: Any = "linear"
    mechanism: str | FairMechanism = "transport"
    classes: Any = None
    callbacks: Sequence[Any] | None = None
    budget: PrivacyBudget | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    _canaries = "opposite rows"
    _parameter_constraints = {
        **PrivateEstimatorMixin._parameter_constraints,
        "module": [StrOptions({"linear", "mlp"}), HasMethods("parameters"), callable],
        "mechanism": [StrOptions(set(_MECHANISMS)), TransportedRows, PenaltyMechanism],
        "classes": ["array-like", None],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, *, sample_domain: Any = None) -> Self:
        """Align the domains and train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows of both domains, scaled to about [-1, 1].
        y : array-like of shape (n_samples,)
            Class of each row of the source, private: integers, strings or booleans. Entries of
            target rows are not read.
        sample_domain : array-like of shape (n_samples,), optional
            Positive for rows of the source, negative for rows of the target; public. If None, all
            rows are of the source, and nothing is aligned.

        Returns
        -------
        self : DPDomainAdapter
            Fitted classifier. An interrupted fit stays charged and sets no attributes.

        Raises
        ------
        ValueError
            If parameters, network or data are not usable. Nothing is charged.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.
        """
        check_callbacks(self.callbacks)
        with all_or_nothing(self):
            mechanism = self.mechanism_ = chosen_mechanism(self.mechanism, _MECHANISMS)
            if isinstance(mechanism, PenaltyMechanism):
                mechanism.set_params(tune_threshold=False)  # it reads labels of all rows
            rows = self._rows(X, reset=True)
            cells = _domains(sample_domain, len(rows))
            if not cells.strata:
                warnings.warn(
                    "DPDomainAdapter: without sample_domain all rows are of the source, so that "
                    "nothing is aligned. Pass fit(X, y, sample_domain=...); in a Pipeline enable "
                    "metadata routing and call set_fit_request(sample_domain=True).",
                    stacklevel=3,
                )
            targets, self.classes_ = self._codes(y, cells)
            if len(self.classes_) < 2:
                raise ValueError(
                    "y holds a single class; a classifier needs two. Declare others with classes=."
                )
            public = ["the set of classes", *[SAME_DOMAIN] * bool(cells.strata)]
            public += [KNOWN_LABELS] * (self.classes is not None)
            context = FitContext.of(self, X, spawn_streams(self.random_state, type(self).__name__))
            task = FairTask(
                gradient=_gradient_where_labelled,
                compared=Probabilities(len(self.classes_)),
                cells=cells,
                network=self._network(rows.shape[1], len(self.classes_), context.streams.solver),
                public=public,
                callbacks=self.callbacks,
            )
            result = mechanism.release(context, task, rows, targets)
            self.network_, self.privacy_spent_ = result.value, result.privacy_spent
            self.__dict__.update(result.attributes)
            self.__dict__.pop("threshold_", None)
            self.reliability_ = result.reliability
        self.reliability_.warn(type(self).__name__)
        return self

    def _codes(self, y: Any, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Encode the labels of the source; target rows have none."""
        source, codes = np.flatnonzero(cells.codes == SOURCE), np.full(len(cells.codes), _NO_LABEL)
        if cells.strata and y is not None:
            if len(y) != len(codes):
                raise ValueError(f"y has {len(y)} labels for {len(codes)} rows of X.")
            y = safe_indexing(y, source)
        codes[source], classes = encode_labels(y, len(source), self.classes, **_LABELS)
        return codes, classes

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return the rows and codes of labels that a release reads, for audits."""
        codes = encode_labels(y, len(y), self.classes_)[0]
        records = TrainingRows.of(self.network_, X, codes, "cpu")
        return records.rows, records.targets

    @property
    def _clip_gradient(self) -> float:
        """The norm that each record's loss gradient is clipped to, which canaries exceed."""
        return chosen_mechanism(self.mechanism, _MECHANISMS).clip_gradient

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows of the target.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        return softmax(evaluate(self.network_, rows, resolve_device(self.device)), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows of the target.

        Returns
        -------
        ndarray of shape (n_samples,)
            Classes.
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # thirty rows teach nothing under noise
        return tags


def _domains(sample_domain: Any, n_rows: int) -> Cells:
    """Read the domain of each row; one cell if there is one domain."""
    if sample_domain is None:
        return one_cell(n_rows)
    signs = np.sign(np.asarray(sample_domain))
    if signs.shape != (n_rows,) or not np.isin(signs, (-1, 1)).all():
        raise ValueError(
            "sample_domain must hold one number per row of X: positive for rows of the source and "
            "negative for rows of the target."
        )
    codes = np.where(signs > 0, SOURCE, TARGET).astype(np.intp)
    sizes = tuple(np.bincount(codes, minlength=2).tolist())
    if min(sizes) < 2:
        raise ValueError(
            f"sample_domain names {sizes[SOURCE]} rows of the source and {sizes[TARGET]} of the "
            "target; two of each are needed."
        )
    return Cells(codes, sizes, ((SOURCE, TARGET),), ("source", "target"))


def _gradient_where_labelled(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the cross-entropy by the logits; 0 for rows without a label."""
    labelled, n_classes = targets >= 0, outputs.shape[1]
    gradients = outputs.softmax(1) - functional.one_hot(targets.long().clamp(min=0), n_classes)
    return torch.where(labelled[:, None], gradients, 0.0)
