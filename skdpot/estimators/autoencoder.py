"""An autoencoder trained with differential privacy, or once on public rows for all later fits."""

import math
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils import Tags

from skdpot._utils.devices import resolve_device
from skdpot._utils.rng import solver_generator, spawn_streams
from skdpot._utils.validation import (
    Interval,
    StrOptions,
    all_or_nothing,
    fit_context,
    validate_rows,
)
from skdpot.estimators._autoencoder import (
    build_autoencoder,
    charge_private,
    charge_public,
    read_bounds,
    train_private,
    train_public,
)
from skdpot.estimators._autoencoder_plan import BatchCells, choose_cells, choose_loss, plan_fit
from skdpot.estimators._codes import CodeReadings
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.provenance import made_by, warn_of_composition
from skdpot.privacy.spent import PrivateEstimatorMixin
from skdpot.slicing.rules import public_bounds

__all__ = ["PrivateSWAutoencoder"]


class PrivateSWAutoencoder(PrivateEstimatorMixin, CodeReadings):
    """Autoencoder with codes on a sphere, trained with or without differential privacy.

    With ``private=True`` every record's gradient is clipped and the sums are noised (DP-SGD).
    With ``private=False`` it is trained on rows that are *public*, to give later, private
    steps few and well-behaved features: for example a `DPSlicedFlowSampler` of codes, whose
    samples `inverse_transform` turns into images::

        autoencoder = PrivateSWAutoencoder(private=False).fit(X_public)
        sampler = DPSlicedFlowSampler(norm_bound=1.0)
        pipeline = make_pipeline(FrozenEstimator(autoencoder), sampler).fit(X_private)
        images = autoencoder.inverse_transform(pipeline[-1].sample(n))

    where ``norm_bound=1.0`` holds for codes on the sphere, without any cost.

    Private training needs many rows. With the default network on 64 pixels, 900 rows learn
    little at epsilon 3 and nothing at epsilon 1, 1,800 rows something at both; a network for
    784 pixels learns from 10,000 rows at epsilon 3. With fewer rows train on public ones.

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
    penalty : {None, "prior", "parity"}, default=None
        Adds a squared sliced Wasserstein distance to the reconstruction error: with "prior"
        that between the codes of a batch and the prior that `sample` draws from, with "parity"
        the mean over pairs of groups of that between their codes, so that little can be told
        from a code about the group of its row. "parity" needs the groups as
        ``fit(X, sensitive_features=groups)``.
    alpha : float, default=0.1
        Weight of the penalty in [0, 1); the reconstruction error has the rest.
    architecture : {"mlp", "conv", "dcgan"} or (encoder, decoder), default="mlp"
        "mlp" has two hidden layers each way; "conv" is for images with even sides (28 x 28,
        32 x 32), "dcgan" for 64 x 64. A pair holds `torch.nn.Module` or functions without
        arguments that make them. Modules are copied and start from the weights that they
        have, which must be public. The encoder sees tensors of `image_shape`, or flat rows,
        scaled to [-1, 1] by `bounds`; the decoder returns as many values.
    image_shape : tuple of int, optional
        (height, width) or (channels, height, width) of the images in the flat rows of X.
    normalize_codes : bool, default=True
        Divide every code by its norm. The prior is then uniform on the sphere, otherwise
        standard normal.
    clip : float, default=1.0
        Largest norm C of the gradient of one record's reconstruction error (half of the squared
        error, in mapped units), from 1e-30 to 1e30. The default shortens nearly all gradients to
        that norm, whatever the data are.
    clip_jacobian : float, default=1.0
        With a penalty: largest spectral norm L of the Jacobian of a record's code.
    clip_output : float, default=2.0
        With ``penalty="parity"``: largest norm M of a code when groups are compared; longer ones
        count as shortened to it. The noise that the penalty needs is proportional to it. Not used
        for normalised codes, whose norm is 1.
    n_steps : int, optional
        Training steps; by default a public rule: 40 epochs, at least 60 steps, or at least
        1,500 with ``private=False``, where they cost no privacy.
    batch_size : int, default=250
        (Expected) number of records a step; all records when there are fewer. With
        ``penalty="parity"`` a batch takes the same share of each group, rounded down.
    learning_rate : "auto" or float, default="auto"
        Of Adam, at the start; it falls to zero along a half cosine. "auto" is 0.002 for public
        rows; for private ones 0.32 over the fourth root of the number of parameters, at most
        0.03, and beyond 400 steps less by the root of their number: few noisy steps have to
        be long.
    sampling : {"auto", "poisson", "without_replacement"}, default="auto"
        How private batches are drawn. "auto" is "poisson", whose account is tighter, without a
        penalty; with one, ranks couple the records of a batch, and only batches of a fixed
        size are accounted for.
    sigma : float, optional
        Standard deviation of the noise on a batch's summed gradient. By default it is calibrated
        to `epsilon`; when it is given, `epsilon` is not used and ``privacy_spent_`` states what
        the fit costs. Needs public bounds.
    n_slices : int, default=50
        Directions of the penalty a step, made a multiple of `latent_dim`.
    bounds : "private" or (low, high), default="private"
        Range of each feature: ``(low, high)``, scalars or arrays of shape (n_features,), is
        public and costs nothing, for example (0, 255) for pixels. "private" spends at most 10 % of
        the squared mu on estimating it; with ``private=False`` it is read off the rows.
    norm_bound : float, optional
        Public bound of the norm of every row, in place of `bounds`.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to. A fit with ``private=False`` has no noise:
        a finite budget refuses it, so give none when the rows are public.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where networks run; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Makes everything reproducible, the privacy noise included. With ``private=True`` for
        tests only: whoever knows it can remove the noise.
    verbose : int, default=0
        1 shows a progress bar, of steps and not of losses.

    Attributes
    ----------
    encoder_ : torch.nn.Module
        From mapped rows to codes, normalised if `normalize_codes`.
    decoder_ : torch.nn.Module
        From codes to mapped rows.
    bounds_ : DataBounds
        Map from the data to the set that rows and reconstructions are clipped to.
    n_steps_ : int
        Number of finished training steps.
    privacy_spent_ : PrivacySpent
        What the fit cost, and under which assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    A private fit releases the network of every step: sums of clipped gradients over secret
    batches with Gaussian noise, one event under replace-one, after the events of the bounds
    when these are private. Without a penalty the sensitivity of a sum is 2C; with one it is
    ``(1 - alpha) * 2C`` plus alpha times that of `skdpot.nets.code_penalties.PriorPenalty` or
    `skdpot.nets.code_penalties.CodeParity`. Rounding to the lattice of the noise adds at most 1/512
    (`skdpot.privacy.noise.noise_for_sums`). Gradients are computed in single precision, of which
    the last bits can depend on the size of a Poisson batch; the statement assumes that they do
    not. No loss is recorded or shown. Public: the number of rows and of features and their names,
    the dtype, the architecture and its first weights, and that all values are finite. With
    ``penalty="parity"`` the groups, their sizes and **who belongs to
    which** are public too: protected is what X says of a person, given the person's group.

    What `transform`, `inverse_transform` and `score` are given is treated as public: **codes of
    private rows are not private**. A private estimator that is fitted on them has to pay for
    itself. It warns of a fit on the same rows that shares no budget with it only if the
    codes came from `fit_transform`, as in a pipeline; codes of the training rows from `transform`,
    or from a `FrozenEstimator`, are not noticed: train on other rows than those that are encoded.

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
    >>> autoencoder = PrivateSWAutoencoder(epsilon=8.0, bounds=(0, 16), n_steps=50).fit(X)
    >>> autoencoder.transform(X[:5]).shape, autoencoder.sample(3).shape
    ((5, 8), (3, 64))
    >>> autoencoder.privacy_spent_.epsilon
    8.0
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "latent_dim": [Interval(Integral, 1, None, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "private": ["boolean"],
        "penalty": [StrOptions({"parity", "prior"}), None],
        "alpha": [Interval(Real, 0, 1, closed="left")],
        "architecture": [StrOptions({"mlp", "conv", "dcgan"}), tuple, list],
        "image_shape": [tuple, list, None],
        "normalize_codes": ["boolean"],
        "clip": [Interval(Real, 1e-30, 1e30, closed="both")],
        "clip_jacobian": [Interval(Real, 1e-30, 1e30, closed="both")],
        "clip_output": [Interval(Real, 1e-30, 1e30, closed="both")],
        "n_steps": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 10, closed="right"), StrOptions({"auto"})],
        "sampling": [StrOptions({"auto", "poisson", "without_replacement"})],
        "sigma": [Interval(Real, 0, 1e30, closed="both"), None],
        "n_slices": [Interval(Integral, 1, None, closed="left")],
        "bounds": [StrOptions({"private"}), tuple, list],
        "norm_bound": [Interval(Real, 0, None, closed="neither"), None],
        "budget": [PrivacyBudget, None],
        "device": [StrOptions({"auto", "cpu", "cuda"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        latent_dim: int = 8,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        private: bool = True,
        penalty: str | None = None,
        alpha: float = 0.1,
        architecture: Any = "mlp",
        image_shape: tuple[int, ...] | None = None,
        normalize_codes: bool = True,
        clip: float = 1.0,
        clip_jacobian: float = 1.0,
        clip_output: float = 2.0,
        n_steps: int | None = None,
        batch_size: int = 250,
        learning_rate: float | str = "auto",
        sampling: str = "auto",
        sigma: float | None = None,
        n_slices: int = 50,
        bounds: Any = "private",
        norm_bound: float | None = None,
        budget: PrivacyBudget | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.latent_dim = latent_dim
        self.epsilon = epsilon
        self.delta = delta
        self.private = private
        self.penalty = penalty
        self.alpha = alpha
        self.architecture = architecture
        self.image_shape = image_shape
        self.normalize_codes = normalize_codes
        self.clip = clip
        self.clip_jacobian = clip_jacobian
        self.clip_output = clip_output
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.sampling = sampling
        self.sigma = sigma
        self.n_slices = n_slices
        self.bounds = bounds
        self.norm_bound = norm_bound
        self.budget = budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _epsilon_due(self) -> float:
        return self.epsilon if self.private else math.inf

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Self:
        """Train encoder and decoder.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows with ``private=True``, public ones otherwise; at least two.
        y : None
            Ignored.
        sensitive_features : array-like of shape (n_samples,), optional
            Group of each row: strings, integers, booleans or categories, at least two and none
            missing. Treated as public. Needed with ``penalty="parity"`` and ignored otherwise, so
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
        What stops private training, a KeyboardInterrupt for example, does not lose what was
        paid for: the network of the finished steps stays and can be used, `n_steps_` says how
        many they were, and the charge is still that of all steps. Stopped before its first
        step is finished, a fit leaves nothing behind but its charge.
        """
        stopped = None
        with all_or_nothing(self):
            resolve_device(self.device)  # refused before any charge
            rows = validate_rows(self, X, reset=True, min_samples=2)
            self._frame_out, self._latent_dim = isinstance(X, pd.DataFrame), self.latent_dim
            cells = choose_cells(self, len(rows), sensitive_features)
            if self.private:
                stopped = self._fit_private(X, rows, cells)
            else:
                self._fit_public(rows, cells)
        if stopped is not None:
            raise stopped
        return self

    def _fit_private(self, X: Any, rows: np.ndarray, cells: BatchCells) -> BaseException | None:
        """Plan, build, charge, and only then touch the rows; return what stopped training."""
        streams = spawn_streams(self.random_state, type(self).__name__)
        loss = choose_loss(self, cells)
        known = public_bounds(self.bounds, self.norm_bound, rows.shape[1])
        box = known is not None and known.box
        autoencoder = build_autoencoder(self, rows.shape[1], streams.solver, box=box)
        plan = plan_fit(self, loss, cells, rows.shape[1], autoencoder)
        self.privacy_spent_ = charge_private(self, plan, streams)
        warn_of_composition(X, self.privacy_spent_, self.budget, type(self).__name__)
        self.bounds_ = plan.settle_bounds(rows, streams)
        return train_private(self, autoencoder, loss, plan, cells, rows, streams)

    def _fit_public(self, rows: np.ndarray, cells: BatchCells) -> None:
        rng = solver_generator(self.random_state)
        loss = choose_loss(self, cells)
        # All that can be refused comes first; of public rows nothing has to wait for the charge.
        self.bounds_ = read_bounds(self, rows)
        autoencoder = build_autoencoder(self, rows.shape[1], rng, box=self.bounds_.box)
        self.privacy_spent_ = charge_public(self)
        train_public(self, autoencoder, loss, cells, rows, rng)

    def fit_transform(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Any:
        """Fit, then encode the same rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to train on.
        y : None
            Ignored.
        sensitive_features : array-like of shape (n_samples,), optional
            As in `fit`.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, latent_dim)
            Codes. They are as private as X; a private estimator that is fitted on them
            without sharing `budget` warns of what both fits cost together, which is no
            protection at all after ``private=False``.
        """
        codes = self.fit(X, y, sensitive_features=sensitive_features).transform(X)
        return made_by(X, codes, self.privacy_spent_, self.budget)

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of this estimator."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
