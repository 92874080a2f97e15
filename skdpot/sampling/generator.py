"""A network that draws synthetic rows, trained with differential privacy."""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from skdpot._utils.validation import (
    HasMethods,
    Interval,
    StrOptions,
    check_is_fitted,
    encode_labels,
    fit_context,
    image_rows,
    resolve_device,
    solver_generator,
)
from skdpot.base import Mechanism
from skdpot.nets.networks import evaluate
from skdpot.nets.training import GradientStep, check_callbacks, train_network
from skdpot.release.gate import Records, Release
from skdpot.sampling.generator_gradient import Gradient
from skdpot.sampling.generator_training import (
    distribution_steps,
    draw_groups,
    generator_steps,
    release_batches,
    table_batches,
)
from skdpot.sampling.image_network import ImageNetwork
from skdpot.sampling.latent_network import LatentNetwork, draw_latents
from skdpot.sampling.noisy_rows import Resample
from skdpot.sampling.output_units import OutputUnits
from skdpot.sampling.sketch import Sketch
from skdpot.sampling.synthetic_rows import SyntheticRows
from skdpot.sources import Source, head_of

MECHANISMS: dict[str, type[Mechanism]] = {
    "sketch": Sketch,
    "smoothing": Resample,
    "gradient": Gradient,
    "DPSWgen": Resample,  # as the paper calls it
}

_STEPS_PER_ROOT, _FEWEST_STEPS, _MOST_STEPS = 15, 60, 2000
_FEWEST_LATENTS, _MOST_LATENTS, _FEWEST_PER_CLASS = 256, 1000, 64
_IMAGES, _FEWEST_IMAGES, _MOST_STEPS_OF_IMAGES = 256, 16, 4000
_FEWEST_SCORED, _MOST_SCORED = 1000, 10_000
_NARROWEST, _WIDEST, _UNITS_PER_ROOT = 32, 256, 1.5


@dataclass(eq=False, repr=False)
class DPSlicedGenerator(SyntheticRows):
    """Network that turns random numbers into differentially private synthetic rows.

    Like `DPSlicedFlowSampler` it minimises the sliced Wasserstein distance to private rows, but the
    result is a function: any number of rows costs one pass through a network.

    Parameters
    ----------
    mechanism : {"sketch", "smoothing", "gradient"} or Mechanism, default="sketch"
        How private data are read: an object such as ``Gradient(batch_size=100)``, or a name for
        the object with default parameters. "sketch" (`Sketch`) releases a `SlicedSketch` once and
        trains on its quantiles; steps are free. The other two pay for every step: "smoothing"
        (`Resample`, also "DPSWgen") releases noisy projections of a batch of rows and compares them
        with equally noisy projections of generated rows; "gradient" (`Gradient`) releases the
        gradient with noise.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy. Not used when the mechanism
        is given its noise (``sigma``).
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    module : torch.nn.Module, callable, LatentNetwork or ImageNetwork, optional
        Network from standard normal numbers (and one indicator per class) to one number per
        feature; mean 0 and variance 1 stand for the centre and spread of the rows. A module is
        copied and starts from its weights, which must be public; a function without arguments
        makes one. `skdpot.mechanisms.LatentNetwork` also holds the number of latent numbers;
        `skdpot.mechanisms.ImageNetwork` draws images and needs declared `bounds`. By default a
        perceptron with two hidden layers, whose width follows a public rule in n, which draws one
        of 64 components first. With "gradient" its layers have 32 units, and it must treat inputs
        one by one (no batch normalisation).
    n_steps : int, optional
        Training steps. By default ``15 sqrt(n)`` with a sketch, otherwise 20 passes over the rows,
        both between 60 and 2000.
    learning_rate : float, default=5e-3
        Initial learning rate of Adam; it falls to zero along a half cosine.
    callbacks : list of skorch.callbacks.Callback, optional
        Called at each training step, which counts as an epoch. They see the network and what was
        released; callbacks that need rows or losses are refused.
    conditional : bool, default=False
        Learn the rows of each class of `y`, as `sample_labeled` needs. Otherwise `y` is ignored.
        Needs a `Sketch`, which declares whether labels are public.
    bounds : "private" or (low, high), default="private"
        Range of each feature. ``(low, high)``, scalars or arrays of shape (n_features,), is public
        and free; "private" spends at most 10 % of the squared mu on estimating it.
    norm_bound : float, optional
        Public bound of the norm of every row, in place of `bounds`.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    device : {"auto", "cpu", "cuda", "cuda:0", ...} or torch.device, default="auto"
        Where the network runs; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything, the noise included. For tests only: it lets anyone remove the noise.
    verbose : int, default=0
        1 shows progress bars, of steps and not of losses.

    Attributes
    ----------
    mechanism_ : Mechanism
        The mechanism of the fit, a copy.
    module_ : torch.nn.Module
        The trained network. If a fit is interrupted after its release, the first `sample` or
        `score` trains it.
    sketch_ : SlicedSketch
        The release; only with a `Sketch`.
    releases_ : SmoothedProjections
        The release, one batch per step; only with `Resample`, whose rows may be outside the bounds.
    bounds_ : DataBounds
        Map from the data to the ball of projected rows.
    n_samples_ : int
        Number of rows, or of persons with `groups`.
    n_steps_ : int
        Number of training steps.
    classes_ : ndarray of shape (n_classes,)
        Classes; only with ``conditional=True``.
    privacy_spent_ : PrivacySpent
        Cost of the fit and its assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    Releases `sketch_`, `releases_`, or the noisy gradients of all steps as one event under
    replace-one; training on the first two is free. Sensitivities: `SlicedSketch`,
    `skdpot.sampling.row_releases.projection_sensitivity`,
    `skdpot.nets.parity_penalty.fixed_side_sensitivity`. No loss is recorded or shown. The initial
    network and the facts that `SlicedSketch` lists are public. Each row of X is protected and, with
    ``conditional=True``, its label unless labels are public. Rows given to `score` are treated as
    public.

    See Also
    --------
    DPSlicedFlowSampler : Particles instead of a network.
    skdpot.mechanisms : The mechanisms and their parameters.

    References
    ----------
    "smoothing": Rakotomamonjy and Ralaivola, "Differentially private sliced Wasserstein
    distance", ICML 2021, as "DPSWgen" in "Differentially private gradient flow based on the
    sliced Wasserstein distance", with exact sensitivities and accounting. "gradient":
    "Differentially private gradients of the Wasserstein distance", corrected.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdpot import DPSlicedGenerator
    >>> X, y = load_iris(return_X_y=True)
    >>> generator = DPSlicedGenerator(epsilon=5.0, bounds=(0, 8), conditional=True, n_steps=50)
    >>> X_new, y_new = generator.fit(X, y).sample_labeled(500)
    >>> X_new.shape, y_new.shape
    ((500, 4), (500,))
    >>> generator.privacy_spent_.epsilon
    5.0
    """

    _: KW_ONLY
    module: Any = None
    n_steps: int | None = None
    learning_rate: float = 5e-3
    callbacks: Sequence[Any] | None = None

    _mechanisms = MECHANISMS
    _made_last = "module_"
    _parameter_constraints = SyntheticRows._parameter_constraints | {
        "mechanism": [StrOptions(set(MECHANISMS)), *MECHANISMS.values()],
        "module": [HasMethods("forward"), callable, LatentNetwork, ImageNetwork, None],
        "n_steps": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, 10, closed="right")],
    }

    def _flat(self, X: Any) -> Any:
        shape = getattr(self.module, "image_shape", None)
        return X if shape is None else image_rows(X, shape)

    def _options(
        self, mechanism: Any, rows: np.ndarray, y: Any, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Return what is trained, where training is the release; refuse what cannot be trained."""
        check_callbacks(self.callbacks)
        network = LatentNetwork.of(self.module)
        if isinstance(network, ImageNetwork) and (
            isinstance(self.bounds, str) or self.norm_bound is not None
        ):
            raise ValueError(
                "module=ImageNetwork(...) needs bounds=(low, high), the range of the pixels."
            )
        if isinstance(mechanism, Gradient):
            rate, callbacks = self.learning_rate, self.callbacks
            return {"latent": network, "learning_rate": rate, "callbacks": callbacks}
        if network.of_caller:
            classes = getattr(mechanism, "classes", None) if self.conditional else ()
            if isinstance(rows, Source):  # its labels are not read yet
                n_features = head_of(rows).shape[1] - self.conditional
            else:
                n_features = rows.shape[1]
                classes = encode_labels(y, len(rows), classes)[1] if self.conditional else ()
            if classes is not None:
                network.build(n_features, len(classes), 1, rng)
        return {}

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return rows and labels; for noisy gradients rows in the units of the network."""
        if release.kind == "gradient":
            X = self.bounds_.to_units(X.astype(np.float64))
        return super()._seen_by(release, X, y)

    @fit_context(prefer_skip_nested_validation=True)
    def retrain(self, random_state: Any = None) -> Self:
        """Train a new network on the release of the last fit; free of any privacy cost.

        Parameters of the network and of its training can be changed before with `set_params`.

        Parameters
        ----------
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        self : DPSlicedGenerator
            Generator with a new `module_`.

        Raises
        ------
        ValueError
            If a parameter is not usable, or the mechanism was "gradient", where the training
            itself is the release.
        """
        check_is_fitted(self)
        if isinstance(self.mechanism_, Gradient):
            raise ValueError(
                'With mechanism="gradient" nothing is released but the training steps '
                "themselves: call fit, which is charged, or use another mechanism."
            )
        check_callbacks(self.callbacks)
        self._make(solver_generator(random_state))
        return self

    def _make(self, rng: np.random.Generator) -> None:
        """Train a network on what was released, all classes at once and with equal weight."""
        n, d, latent = self.n_samples_, self.n_features_in_, LatentNetwork.of(self.module)
        n_classes = len(self.classes_) if hasattr(self, "classes_") else 0
        draw = partial(draw_groups, latent.dimension(d), n_classes, rng=rng)
        units, step, n_steps = self._loss(n, latent, draw, rng)
        train_network(
            network := latent.build(d, n_classes, _default_width(n, d), rng),
            step,
            n_steps,
            learning_rate=self.learning_rate,
            rng=rng,
            device=resolve_device(self.device),
            callbacks=self.callbacks,
            progress=type(self).__name__ if self.verbose else None,
        )
        self.n_steps_, self._units, self._latent_dim = n_steps, units, latent.dimension(d)
        self.module_ = network

    def _loss(
        self, n: int, latent: Any, draw: Callable[[int], np.ndarray], rng: np.random.Generator
    ) -> tuple[OutputUnits, GradientStep, int]:
        """Return units of outputs, what a step does, and the number of steps."""
        images = isinstance(latent, ImageNetwork)
        if hasattr(self, "releases_"):
            units = OutputUnits.of_release(self.releases_, self.bounds_.radius)
            units = latent.units(self.bounds_) if images else units
            size = min(self.mechanism_.batch_size, n)
            step = generator_steps(release_batches(self.releases_, size, units), draw, rng)
            return units, step, len(self.releases_.batches)
        labels = getattr(self, "classes_", [None])
        size = min(max(n, _FEWEST_LATENTS), _MOST_LATENTS)
        if images:
            size = _IMAGES // len(labels)
        elif len(labels) > 1:
            size = max(size // len(labels), _FEWEST_PER_CLASS)
        most = _MOST_STEPS_OF_IMAGES if images else _MOST_STEPS
        public_rule = np.clip(_STEPS_PER_ROOT * math.sqrt(n), _FEWEST_STEPS, most)
        n_steps, together = self.n_steps or int(public_rule), self.mechanism_.n_projections_per_step
        if images:
            units = latent.units(self.bounds_)
            size = max(size, _FEWEST_IMAGES)
            step = distribution_steps(self.sketch_, labels, units, draw, size, rng, together)
            return units, step, n_steps
        units = OutputUnits.of_table(self.sketch_.table())
        tables = [self.sketch_.table(label) for label in labels]
        batches = table_batches(tables, size, units, rng, together)
        return units, generator_steps(batches, draw, rng), n_steps

    def _scored_rows(self) -> np.ndarray:
        """Return a fixed sample of as many rows as were fitted, within limits."""
        size = int(np.clip(self.n_samples_, _FEWEST_SCORED, _MOST_SCORED))
        return self._draw(size, np.random.default_rng(0))[0]

    def _draw(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in the units of the data, and the positions of their classes."""
        positions, indicators = np.zeros(n_samples, dtype=int), None
        if hasattr(self, "classes_"):
            n_classes = len(self.classes_)
            positions = rng.choice(n_classes, size=n_samples, p=self._class_shares)
            indicators = np.eye(n_classes)[positions]
        latents = draw_latents(n_samples, self._latent_dim, rng, indicators)
        outputs = evaluate(self.module_, latents, resolve_device(self.device))
        rows = self.bounds_.from_ball(self._units.to_mapped(outputs))
        if hasattr(self, "releases_"):  # the law of DPSWgen, as of the paper's flows, is not cut
            return rows, positions
        return self.bounds_.from_ball(self.bounds_.to_ball(rows)), positions


def _default_width(n_samples: int, n_features: int) -> int:
    """Return the width of the hidden layers: a public rule, a power of two in [32, 256]."""
    wanted = 2 ** round(math.log2(_UNITS_PER_ROOT * math.sqrt(n_samples)))
    return min(max(wanted, _NARROWEST, 2 ** math.ceil(math.log2(n_features))), _WIDEST)
