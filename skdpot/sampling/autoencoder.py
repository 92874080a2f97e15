"""The autoencoder: trained with differential privacy, or on public rows for all later fits."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from skdpot._utils.arguments import check_count
from skdpot._utils.devices import resolve_device
from skdpot._utils.parameters import (
    Interval,
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    fit_context,
)
from skdpot._utils.rows import image_rows, read_rows, validate_rows, without_groups
from skdpot._utils.streams import solver_generator, spawn_streams
from skdpot.base import FitContext, MechanismResult, chosen_mechanism, like_input
from skdpot.nets.cells import Cells, one_cell
from skdpot.nets.networks import evaluate
from skdpot.nets.per_record_check import check_per_record
from skdpot.nets.training import check_callbacks
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.earlier_steps import made_by
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.release.bounds import DataBounds, public_bounds
from skdpot.release.releases import Records, Release
from skdpot.sampling.architecture import NETWORKS, Architecture
from skdpot.sampling.autoencoder_mechanism import AutoencoderMechanism, AutoencoderTask
from skdpot.sampling.code_distances import Prior, prior_samples
from skdpot.sampling.code_penalties import CodeParity, CodePenalty, PriorPenalty
from skdpot.sampling.dpsgd import DPSGD

_MECHANISMS: dict[str, type[AutoencoderMechanism]] = {"dpsgd": DPSGD}
_PENALTIES: dict[str, type[CodePenalty]] = {"prior": PriorPenalty, "parity": CodeParity}
_LARGEST_CODE = 1e8  # entries that are decoded; the norms of larger ones would overflow


@dataclass(eq=False, repr=False)
class PrivateSWAutoencoder(
    PrivateEstimatorMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Autoencoder with codes on a sphere, trained with or without differential privacy.

    With ``private=True`` every record's gradient is clipped, and noise is added to sums (DP-SGD).
    With ``private=False`` the networks are trained on *public* rows. Their codes are then few,
    well-behaved features for a private step, for example a `DPSlicedFlowSampler` whose samples
    `inverse_transform` turns into images::

        autoencoder = PrivateSWAutoencoder(private=False).fit(X_public)
        sampler = DPSlicedFlowSampler(norm_bound=1.0)
        pipeline = make_pipeline(FrozenEstimator(autoencoder), sampler).fit(X_private)
        images = autoencoder.inverse_transform(pipeline[-1].sample(n))

    Codes on the sphere have norm 1, so ``norm_bound=1.0`` costs nothing.

    Private training needs many rows. For 64 pixels the default network learns little from 900 rows
    at epsilon 3 and nothing at epsilon 1; from 1,800 rows it learns more at both. A network for 784
    pixels learns from 10,000 rows at epsilon 3. A fit warns before the charge if the noise will
    hide nearly everything. With fewer rows, train on public rows.

    Parameters
    ----------
    latent_dim : int, default=8
        Length of a code.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    private : bool, default=True
        False trains on **public** rows: nothing is clipped or noised, and ``privacy_spent_``
        says that epsilon is infinite.
    penalty : {"prior", "parity"}, PriorPenalty or CodeParity, optional
        Adds a squared sliced Wasserstein distance to the reconstruction error: "prior" between the
        codes of a batch and the prior of `sample`; "parity" between the codes of groups, averaged
        over pairs, so that a code reveals little about the group of its row. "parity" needs
        ``fit(X, sensitive_features=groups)``. A name stands for `skdpot.mechanisms.PriorPenalty`
        or `skdpot.mechanisms.CodeParity` with defaults.
    architecture : {"mlp", "conv", "dcgan"}, (encoder, decoder) or Architecture, default="mlp"
        The networks. `skdpot.mechanisms.Architecture` describes them and also holds the shape of
        images ("conv" and "dcgan" need it) and whether codes are divided by their norms.
    mechanism : "dpsgd" or DPSGD, default="dpsgd"
        Steps, batches, learning rate, clipping and noise; "dpsgd" is `skdpot.mechanisms.DPSGD`
        with defaults. With ``private=False`` there is no clipping and no noise.
    callbacks : list of skorch.callbacks.Callback, optional
        Called at each training step, which counts as an epoch. They see the network and its noisy
        gradients; callbacks that need rows, losses or batch sizes are refused. Copies are
        tried for one step before the charge.
    bounds : "private" or (low, high), default="private"
        Range of each feature. ``(low, high)``, scalars or arrays of shape (n_features,), is public
        and free, for example (0, 255) for pixels. "private" spends at most 25 % of the squared mu
        on estimating it; with ``private=False`` it is read off the rows.
    norm_bound : float, optional
        Public bound of the norm of every row, in place of `bounds`.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to. A finite budget refuses ``private=False``,
        which has no noise: give none when the rows are public.
    device : {"auto", "cpu", "cuda", "cuda:0", ...} or torch.device, default="auto"
        Where networks run; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything, the noise included. With ``private=True`` for tests only: it lets anyone
        remove the noise.
    verbose : int, default=0
        1 shows a progress bar of steps; losses are not shown.

    Attributes
    ----------
    encoder_ : torch.nn.Module
        From mapped rows to codes.
    decoder_ : torch.nn.Module
        From codes to mapped rows.
    bounds_ : DataBounds
        Map from the data to the set that rows and reconstructions are clipped to.
    mechanism_ : DPSGD
        The mechanism of the fit, a copy.
    penalty_ : PriorPenalty, CodeParity or None
        The penalty that was used.
    architecture_ : Architecture
        The architecture that was used.
    n_steps_ : int
        Number of finished training steps.
    losses_ : DataFrame or None
        Half the squared error in mapped units and the penalty before at most 300 steps, on at most
        2,000 rows; only if nothing is protected (``epsilon=inf`` or ``private=False``).
    privacy_spent_ : PrivacySpent
        Cost of the fit and its assumptions.
    reliability_ : Reliability
        The error of reconstructions due to noise, as a share of that of the mean of the rows. It
        follows from public facts, and a fit warns of it before the charge.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    A private fit releases the network of every step: sums of clipped gradients over secret batches
    with Gaussian noise, one event under replace-one, after the events of the bounds when these are
    private. Without a penalty the sensitivity of a sum is 2C. With one, the distributions of codes
    are released as well, and it is ``(1 - alpha) * 4C``; with ranks there is no such release, and
    it is ``(1 - alpha) * 2C`` plus alpha times that of the penalty
    (`skdpot.sampling.code_distances`). Rounding to the lattice of the noise adds at most 1/512
    (`skdpot.privacy.noise.noise_for_sums`). No bit of a
    record's gradient depends on who else is in a batch, or how many (`skdpot.privacy.sampling`); of
    a GPU the statement assumes it. No loss is recorded. The number of rows and of features
    and their names, the dtype, the architecture and its initial weights, and the fact that all
    values are finite are public. With ``penalty="parity"`` the groups, their sizes and **the group
    of each row** are public too, and the features of a person are protected given the group. With
    ``CodeParity(fairness="equalized_odds")`` the class of every row is public as well.

    Rows given to `transform`, `inverse_transform` and `score` are treated as public: **codes of
    private rows are not private**. A private estimator that is fitted on codes is charged
    separately. It warns of a fit on the same rows without a shared budget only if the codes came
    from `fit_transform`, as in a pipeline, and not from `transform` or a `FrozenEstimator`.
    Therefore train the autoencoder and the estimator on different rows.

    References
    ----------
    M. Abadi et al., "Deep learning with differential privacy", CCS 2016.
    I. Sebag et al., "Differentially private gradient flow based on the sliced Wasserstein
    distance", 2023, appendix C.2 (architectures).
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025, appendix B.3 (codes of groups).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpot import PrivateSWAutoencoder
    >>> X = load_digits().data
    >>> from skdpot.mechanisms import DPSGD
    >>> autoencoder = PrivateSWAutoencoder(epsilon=8.0, mechanism=DPSGD(50), bounds=(0, 16))
    >>> autoencoder = autoencoder.fit(X)
    >>> autoencoder.transform(X[:5]).shape, autoencoder.sample(3).shape
    ((5, 8), (3, 64))
    >>> autoencoder.privacy_spent_.epsilon
    8.0
    """

    latent_dim: int = 8
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    private: bool = True
    penalty: str | CodePenalty | None = None
    architecture: Any = "mlp"
    mechanism: str | DPSGD = "dpsgd"
    callbacks: Sequence[Any] | None = None
    bounds: Any = "private"
    norm_bound: float | None = None
    budget: PrivacyBudget | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    _canaries = "orthogonal rows"
    _parameter_constraints = {
        **PrivateEstimatorMixin._parameter_constraints,
        "latent_dim": [Interval(Integral, 1, None, closed="left")],
        "private": ["boolean"],
        "penalty": [StrOptions(set(_PENALTIES)), CodePenalty, None],
        "architecture": [*NETWORKS, Architecture],
        "mechanism": [StrOptions(set(_MECHANISMS)), AutoencoderMechanism],
        "bounds": [StrOptions({"private"}), tuple, list],
        "norm_bound": [Interval(Real, 0, None, closed="neither"), None],
    }

    def _epsilon_due(self) -> float:
        return self.epsilon if self.private else math.inf

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Self:
        """Train encoder and decoder.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows with ``private=True``, public ones otherwise; at least two. Where the
            architecture has an `image_shape`, also images of shape (n_samples, channels, height,
            width).
        y : array-like of shape (n_samples,), optional
            **Public** class of each row, for a penalty of equalised odds; ignored otherwise.
        sensitive_features : array-like of shape (n_samples,) or str, optional
            Group of each row: strings, integers, booleans or categories, at least two and none
            missing; or the name of a column of X, a DataFrame, that holds them, and is no feature.
            Treated as public. Needed with ``penalty="parity"`` and ignored otherwise, so
            that a search can try both.

        Returns
        -------
        self : PrivateSWAutoencoder
            Fitted autoencoder.

        Raises
        ------
        ValueError
            If parameters, networks or data are not usable. Nothing is charged.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.

        Notes
        -----
        If private training is interrupted, the network of the finished steps can be used.
        `n_steps_` is their number, and all steps stay charged. A fit that is interrupted in its
        first step stays charged and sets no attributes.
        """
        check_callbacks(self.callbacks)
        with all_or_nothing(self):
            resolve_device(self.device)  # refused before any charge
            self.architecture_ = Architecture.of(self.architecture)
            groups = without_groups(self, X, sensitive_features, reset=True)[1]
            rows = self._rows(X, reset=True, min_samples=2)
            self._frame_out, self._latent_dim = isinstance(X, pd.DataFrame), self.latent_dim
            self.mechanism_ = chosen_mechanism(self.mechanism, _MECHANISMS)
            penalty = self.penalty
            self.penalty_ = None if penalty is None else chosen_mechanism(penalty, _PENALTIES)
            result = self._train(X, rows, y, groups)
            self.bounds_, self.privacy_spent_ = result.bounds, result.privacy_spent
            self.reliability_ = result.reliability
            self.__dict__.update(result.attributes)
        if result.stopped is not None:
            raise result.stopped
        return self

    def _rows(self, X: Any, *, reset: bool = False, min_samples: int = 1) -> np.ndarray:
        """Validate rows, or images as rows, without the column of the groups."""
        shape, (features, _) = self.architecture_.image_shape, without_groups(self, X, None)
        features = features if shape is None else image_rows(features, shape)
        return validate_rows(self, features, reset=reset, min_samples=min_samples)

    def _train(self, X: Any, rows: np.ndarray, y: Any, groups: Any) -> MechanismResult:
        """Build and check the networks; let the mechanism plan, charge and train."""
        mechanism, d = self.mechanism_, rows.shape[1]
        cells: Cells = one_cell(len(rows))
        public: tuple[str, ...] = ()
        if self.penalty_ is not None:
            cells, public = self.penalty_.cells(len(rows), groups, y)
        on_sphere = self.architecture_.normalize_codes
        loss = mechanism.loss(self.penalty_, self.latent_dim, cells, on_sphere=on_sphere)
        # Public rows need no secret stream, and no warning of a known seed.
        streams = spawn_streams(self.random_state if self.private else None, type(self).__name__)
        context = FitContext.of(self, X, streams)
        declared = public_bounds(self.bounds, self.norm_bound, d)
        if self.private:
            rng, box = streams.solver, declared is not None and declared.box
        else:
            known = declared or self._range(rows)
            rng, box = solver_generator(self.random_state), known.box
        autoencoder = self.architecture_.build(d, self.latent_dim, rng, box=box)
        task = AutoencoderTask(
            autoencoder=autoencoder,
            loss=loss,
            cells=cells,
            callbacks=self.callbacks,
            public=public,
        )
        if self.private:
            check_per_record(autoencoder, (d,), rng, callbacks=self.callbacks)
            result = mechanism.release(context, rows, task)
        else:
            result = mechanism.train_public(context, rows, task, known, rng)
        self.encoder_, self.decoder_ = autoencoder[0], autoencoder[1]
        return result

    def _range(self, rows: np.ndarray) -> DataBounds:
        """Return the range of each feature of public rows; all pixels of images share one range."""
        axis = None if self.architecture_.image_shape is not None else 0
        low, high = rows.min(axis=axis).astype(float), rows.max(axis=axis).astype(float)
        flat = high - low <= 1e-12 * np.maximum(1.0, np.abs(low))
        half = np.maximum(1.0, np.abs(low)) / 2
        return DataBounds.from_box(
            np.where(flat, low - half, low), np.where(flat, high + half, high), rows.shape[1]
        )

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return rows as the mechanism is given them; for gradients and codes in network units."""
        if release.kind in ("gradient", "table"):
            X = self.bounds_.to_units(X.astype(np.float64))
        return X, y

    def fit_transform(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Any:
        """Fit, then encode the same rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to train on.
        y : array-like of shape (n_samples,), optional
            As in `fit`.
        sensitive_features : array-like of shape (n_samples,), optional
            As in `fit`.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, latent_dim)
            Codes, as private as X. A private estimator that is fitted on them without sharing
            `budget` warns of the total cost of both fits, which is infinite after
            ``private=False``.
        """
        codes = self.fit(X, y, sensitive_features=sensitive_features).transform(X)
        return made_by(X, codes, self.privacy_spent_, self.budget)

    def transform(self, X: Any) -> np.ndarray:
        """Encode rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, treated as public: codes of private rows are not private.

        Returns
        -------
        ndarray of shape (n_samples, latent_dim)
            Codes, of norm 1 where they are normalised.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        codes = evaluate(self.encoder_, self.bounds_.to_units(rows), resolve_device(self.device))
        return codes.astype(rows.dtype, copy=False)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Decode codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, latent_dim)
            Codes; normalised first where they are normalised.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows in the units of the data, inside `bounds_`; an array, as scikit-learn's inverse
            transforms return, also when the autoencoder was fitted on a DataFrame.

        Raises
        ------
        ValueError
            If X has another number of columns.
        """
        check_is_fitted(self)
        codes = read_rows(X)
        if codes.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has {codes.shape[1]} columns; a code has latent_dim={self._n_features_out}."
            )
        return self._decode(codes).astype(codes.dtype, copy=False)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Decode codes drawn from the prior; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows; a DataFrame when the autoencoder was fitted on one. They resemble the
            data only if the codes resemble the prior. Use ``penalty="prior"``, or learn the codes
            with a `DPSlicedFlowSampler`.

        Raises
        ------
        TypeError, ValueError
            If `n_samples` is not a positive integer.
        """
        check_is_fitted(self)
        n_samples = check_count(n_samples, "n_samples")
        prior: Prior = "sphere" if self.architecture_.normalize_codes else "normal"
        rng = solver_generator(random_state)
        rows = self._decode(prior_samples(prior, int(n_samples), self._n_features_out, rng))
        return like_input(self, rows)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Negative mean squared reconstruction error.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            **Public** rows: the score is computed from them without noise.
        y : object, optional
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
            Mean over rows and features, in squared units of the data; higher is better.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        with np.errstate(over="ignore"):
            errors = ((self._decode(self.transform(X)) - rows) ** 2).mean(axis=1)
        if not np.isfinite(errors).all():
            raise ValueError("X holds numbers so large that their squared errors are not finite.")
        return -float(np.average(errors, weights=sample_weight))

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the reconstructions of codes in the units of the data."""
        codes = np.clip(codes, -_LARGEST_CODE, _LARGEST_CODE)
        if self.architecture_.normalize_codes:
            norms = np.linalg.norm(codes, axis=1, keepdims=True)
            codes = codes / np.where(norms > 0, norms, 1.0)
        values = evaluate(self.decoder_, codes, resolve_device(self.device))
        return self.bounds_.from_units(values)

    @property
    def _n_features_out(self) -> int:
        """Length of a code; names the columns of a transformed DataFrame."""
        return self._latent_dim

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
