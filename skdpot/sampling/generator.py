"""The sampler with a network, which maps random numbers to synthetic rows.

`fit` and `sample` stand in `skdpot.sampling.synthetic_rows`. They call `_release`, which checks the
network before the mechanism is charged; `_make`, which trains the network on the release; and
`_draw`, which runs it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, Self, TypeAlias

import numpy as np

from skdpot._utils.devices import resolve_device
from skdpot._utils.labels import encode_labels
from skdpot._utils.parameters import HasMethods, Interval, StrOptions, check_is_fitted, fit_context
from skdpot._utils.rows import image_rows
from skdpot._utils.streams import solver_generator
from skdpot.base import FitContext, Mechanism, MechanismResult
from skdpot.nets.networks import evaluate
from skdpot.nets.training import GradientStep, check_callbacks, train_network
from skdpot.release.releases import Records, Release
from skdpot.sampling.generator_gradient import Gradient
from skdpot.sampling.generator_mechanism import GeneratorTraining, TrainingMechanism
from skdpot.sampling.generator_network import (
    GeneratorNetwork,
    LatentNetwork,
    chosen_network,
    draw_latents,
)
from skdpot.sampling.generator_training import (
    distribution_steps,
    draw_groups,
    generator_steps,
    release_batches,
    table_batches,
)
from skdpot.sampling.image_network import ImageNetwork
from skdpot.sampling.noisy_rows import Resample
from skdpot.sampling.output_units import OutputUnits
from skdpot.sampling.sketch import Sketch
from skdpot.sampling.synthetic_rows import SyntheticRows
from skdpot.sources import Source, head_of

# From a number of points per class to the inputs of the network.
Draw: TypeAlias = Callable[[int], np.ndarray]

MECHANISMS: dict[str, type[Mechanism]] = {
    "sketch": Sketch,
    "smoothing": Resample,
    "gradient": Gradient,
    "DPSWgen": Resample,  # name of the paper
}

# The default number of steps on a sketch, 15 sqrt(n), within limits.
_STEPS_PER_ROOT, _FEWEST_STEPS, _MOST_STEPS, _MOST_STEPS_OF_IMAGES = 15, 60, 2000, 4000
# Points per step of all classes together, and of a class.
_FEWEST_POINTS, _MOST_POINTS, _FEWEST_PER_CLASS = 256, 1000, 64
# Images per step of all classes together, and of a class.
_N_IMAGES, _FEWEST_IMAGES_PER_CLASS = 256, 16
_FEWEST_SCORED, _MOST_SCORED = 1000, 10_000
# Units of a hidden layer of the default network (`_default_width`).
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
        and free; "private" spends at most 25 % of the squared mu on estimating it.
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
        The release, one batch per step; only with `Resample`.
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
    reliability_ : Reliability
        The error of the distribution of each feature (or class) due to noise, beside that of a
        uniform one in the bounds (or of all classes). With `Gradient`, that of generated rows as a
        share of the error of the untrained network, from public facts.
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
        "mechanism": [StrOptions(set(MECHANISMS)), Sketch, Resample, TrainingMechanism],
        "module": [HasMethods("forward"), callable, LatentNetwork, ImageNetwork, None],
        "n_steps": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, 10, closed="right")],
    }

    def _flat(self, X: Any) -> Any:
        """Return images of the network's shape as rows."""
        shape = getattr(self.module, "image_shape", None)
        return X if shape is None else image_rows(X, shape)

    def _release(
        self, mechanism: Any, context: FitContext, rows: np.ndarray, y: Any
    ) -> MechanismResult:
        """Refuse what cannot be trained, before the charge; let the mechanism release."""
        check_callbacks(self.callbacks)
        network = chosen_network(self.module)
        if isinstance(network, ImageNetwork) and (
            isinstance(self.bounds, str) or self.norm_bound is not None
        ):
            raise ValueError(
                "module=ImageNetwork(...) needs bounds=(low, high), the range of the pixels."
            )
        if isinstance(mechanism, TrainingMechanism):
            training = GeneratorTraining(
                network=network,
                n_steps=self.n_steps,
                learning_rate=self.learning_rate,
                callbacks=self.callbacks,
            )
            return mechanism.release(
                context, rows, y, conditional=self.conditional, training=training
            )
        if network.of_caller:
            self._check_network(network, mechanism, rows, y, context.streams.solver)
        return super()._release(mechanism, context, rows, y)

    def _check_network(
        self, network: GeneratorNetwork, mechanism: Any, rows: Any, y: Any, rng: np.random.Generator
    ) -> None:
        """Build a caller's network once, if the number of classes is known before the charge."""
        classes = getattr(mechanism, "classes", None) if self.conditional else ()
        if isinstance(rows, Source):  # its labels have not been read
            n_features = head_of(rows).shape[1] - self.conditional
        else:
            n_features = rows.shape[1]
            classes = encode_labels(y, len(rows), classes)[1] if self.conditional else ()
        if classes is not None:
            network.build(n_features, len(classes), 1, rng)

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
        if isinstance(self.mechanism_, TrainingMechanism):
            raise ValueError(
                'With mechanism="gradient" nothing is released but the training steps '
                "themselves: call fit, which is charged, or use another mechanism."
            )
        check_callbacks(self.callbacks)
        self._make(solver_generator(random_state))
        return self

    def _make(self, rng: np.random.Generator) -> None:
        """Train a network on the release, all classes at once and with equal weight."""
        n, d, described = self.n_samples_, self.n_features_in_, chosen_network(self.module)
        n_classes = len(self.classes_) if hasattr(self, "classes_") else 0
        draw = partial(draw_groups, described.dimension(d), n_classes, rng=rng)
        if hasattr(self, "releases_"):
            units, step, n_steps = self._on_projections(described, draw, rng)
        elif isinstance(described, ImageNetwork):
            units, step, n_steps = self._on_images(described, draw, rng)
        else:
            units, step, n_steps = self._on_sketch(draw, rng)
        network = described.build(d, n_classes, _default_width(n, d), rng)
        train_network(
            network,
            step,
            n_steps,
            learning_rate=self.learning_rate,
            rng=rng,
            device=resolve_device(self.device),
            callbacks=self.callbacks,
            progress=type(self).__name__ if self.verbose else None,
        )
        self.n_steps_, self._units, self._latent_dim = n_steps, units, described.dimension(d)
        self.module_ = network

    def _on_projections(
        self, described: GeneratorNetwork, draw: Draw, rng: np.random.Generator
    ) -> tuple[OutputUnits, GradientStep, int]:
        """Return units of outputs, steps and their number for released noisy projections."""
        units = OutputUnits.of_release(self.releases_)
        if isinstance(described, ImageNetwork):
            units = described.units(self.bounds_)
        size = min(self.mechanism_.batch_size, self.n_samples_)
        step = generator_steps(release_batches(self.releases_, size, units), draw, rng)
        return units, step, len(self.releases_.batches)

    def _on_images(
        self, described: ImageNetwork, draw: Draw, rng: np.random.Generator
    ) -> tuple[OutputUnits, GradientStep, int]:
        """Return the same for images and a sketch: steps down the distance of Cramér."""
        labels, units = getattr(self, "classes_", [None]), described.units(self.bounds_)
        size = max(_N_IMAGES // len(labels), _FEWEST_IMAGES_PER_CLASS)
        together = self.mechanism_.n_projections_per_step
        step = distribution_steps(self.sketch_, labels, units, draw, size, rng, together)
        return units, step, self._number_of_steps(_MOST_STEPS_OF_IMAGES)

    def _on_sketch(
        self, draw: Draw, rng: np.random.Generator
    ) -> tuple[OutputUnits, GradientStep, int]:
        """Return the same for other rows and a sketch: steps down the Wasserstein distance."""
        labels = getattr(self, "classes_", [None])
        size = min(max(self.n_samples_, _FEWEST_POINTS), _MOST_POINTS)
        if len(labels) > 1:
            size = max(size // len(labels), _FEWEST_PER_CLASS)
        units = OutputUnits.of_table(self.sketch_.table())
        tables = [self.sketch_.table(label) for label in labels]
        together = self.mechanism_.n_projections_per_step
        batches = table_batches(tables, size, units, rng, together)
        return units, generator_steps(batches, draw, rng), self._number_of_steps(_MOST_STEPS)

    def _number_of_steps(self, most: int) -> int:
        """Return the number of steps, by default a public rule in the number of rows."""
        by_rule = np.clip(_STEPS_PER_ROOT * math.sqrt(self.n_samples_), _FEWEST_STEPS, most)
        return self.n_steps or int(by_rule)

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
        return self.bounds_.from_ball(self.bounds_.to_ball(rows)), positions


def _default_width(n_samples: int, n_features: int) -> int:
    """Return the width of the hidden layers: a public rule, a power of two in [32, 256]."""
    wanted = 2 ** round(math.log2(_UNITS_PER_ROOT * math.sqrt(n_samples)))
    return min(max(wanted, _NARROWEST, 2 ** math.ceil(math.log2(n_features))), _WIDEST)
