"""How the generator touches private data, and what its network is trained on."""

import math
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from skdpot._utils.devices import resolve_device
from skdpot._utils.labels import encode_labels
from skdpot._utils.rng import Streams
from skdpot._utils.validation import validate_rows
from skdpot.estimators._generator_training import (
    default_width,
    grouped_latents,
    latent_dim,
    new_network,
    train_generator,
)
from skdpot.mechanisms import Sketch
from skdpot.mechanisms.base import FitContext
from skdpot.mechanisms.noisy_training import charge_training
from skdpot.nets.generator_training import (
    OutputUnits,
    generator_steps,
    noisy_gradient_steps,
    release_batches,
    table_batches,
)
from skdpot.nets.networks import to_network_units
from skdpot.nets.private_modules import check_per_record, with_trained_parameters
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.nets.wasserstein_gradient import fixed_side_sensitivity
from skdpot.privacy.calibration import privacy_target
from skdpot.slicing.plan import bounds_or_plan
from skdpot.slicing.row_plan import RowParameters
from skdpot.slicing.row_release import release_projections
from skdpot.slicing.rules import public_bounds
from skdpot.slicing.step_directions import StepDirections, fresh_directions

if TYPE_CHECKING:
    from skdpot.estimators.generator import DPSlicedGenerator

__all__ = ["GENERATOR_MECHANISMS", "GeneratorMechanism"]

_ROW_SLICES = 70  # of the flow paper
_GRADIENT_SLICES = 64
_EPOCHS = 20
_FEWEST_STEPS, _MOST_STEPS = 60, 2000
_STEPS_PER_ROOT = 15
_FEWEST_LATENTS, _MOST_LATENTS = 256, 1000
_FEWEST_PER_CLASS = 64
_WIDTH_FOR_GRADIENTS = 32  # every parameter gets noise


class GeneratorMechanism(Protocol):
    """What the generator asks of a mechanism."""

    retrains: bool

    def release(
        self, generator: "DPSlicedGenerator", streams: Streams, X: Any, y: Any
    ) -> dict[str, Any]:
        """Charge, publish, and return the fitted attributes that follow."""

    def train(self, generator: "DPSlicedGenerator", rng: np.random.Generator) -> dict[str, Any]:
        """Train a network on what was published; return attributes."""


class SketchLoss:
    """Publish distribution functions, once, and train on their quantiles."""

    retrains = True

    def release(
        self, generator: "DPSlicedGenerator", streams: Streams, X: Any, y: Any
    ) -> dict[str, Any]:
        """Publish a `SlicedSketch`, after a look at the network that will be trained on it."""
        rows = validate_rows(generator, X, reset=True, min_samples=2)
        if generator.module is not None:
            n_classes = 0
            if generator.conditional:
                n_classes = len(encode_labels(y, len(rows), generator.classes)[1])
            new_network(generator, 1, rows.shape[1], n_classes, streams.solver)
        if generator.sigma is not None or generator.noise != "discrete":
            raise ValueError(
                'mechanism="sketch" takes its noise from epsilon and delta and adds it on a '
                'lattice: leave sigma=None and noise="discrete". The other mechanisms take them.'
            )
        sketch = Sketch(generator.n_slices, generator.n_bins, generator.slices, generator.classes)
        context = FitContext.of(generator, X, streams)
        conditional = generator.conditional
        release = sketch.release(context, rows, y, conditional=conditional, n_steps=None)
        fitted = {
            "sketch_": release.value,
            "bounds_": release.bounds,
            "privacy_spent_": release.privacy_spent,
            "n_samples_": len(rows),
        }
        return fitted if release.classes is None else fitted | {"classes_": release.classes}

    def train(self, generator: "DPSlicedGenerator", rng: np.random.Generator) -> dict[str, Any]:
        """Train on the sketch, all classes at once and with equal weight."""
        sketch, n, d = generator.sketch_, generator.n_samples_, generator.n_features_in_
        tables = [sketch.table(label) for label in getattr(generator, "classes_", [None])]
        units = OutputUnits.of_table(sketch.table())
        n_classes = len(tables) if hasattr(generator, "classes_") else 0
        network = new_network(generator, default_width(n, d), d, n_classes, rng)
        size = generator.n_latents or min(max(n, _FEWEST_LATENTS), _MOST_LATENTS)
        if len(tables) > 1:
            size = max(size // len(tables), _FEWEST_PER_CLASS)
        batches = table_batches(tables, size, units, rng)
        n_steps = generator.n_steps or int(
            np.clip(_STEPS_PER_ROOT * math.sqrt(n), _FEWEST_STEPS, _MOST_STEPS)
        )

        draw = partial(grouped_latents, latent_dim(generator, d), n_classes, rng=rng)
        device = resolve_device(generator.device)
        step = generator_steps(batches, draw, rng)
        train_generator(generator, network, step, n_steps, rng, device)
        return {
            "module_": network,
            "n_steps_": n_steps,
            "_units": units,
            "_n_latents": latent_dim(generator, d),
        }


class SmoothedLoss:
    """Publish noisy projections of a batch a step, and compare with them (DPSWgen)."""

    retrains = True

    def release(
        self, generator: "DPSlicedGenerator", streams: Streams, X: Any, y: Any
    ) -> dict[str, Any]:
        """Publish `SmoothedProjections`."""
        _check_rows_can_be_used(generator)
        rows = validate_rows(generator, X, reset=True, min_samples=2)
        resolve_device(generator.device)
        if generator.module is not None:
            new_network(generator, 1, rows.shape[1], 0, streams.solver)
        size, n_slices = min(generator.batch_size, len(rows)), generator.n_slices
        parameters = RowParameters(
            n_steps=generator.n_steps or _epochs(len(rows), size),
            n_slices=_ROW_SLICES if n_slices == "auto" else int(n_slices),
            slices=_kind(generator),
            batch_size=size,
            sampling=generator.sampling,  # type: ignore[arg-type]
            sigma=generator.sigma,
            noise=generator.noise,  # type: ignore[arg-type]
        )
        release = release_projections(
            type(generator).__name__,
            streams,
            rows,
            privacy_target(generator.epsilon, generator.delta, generator.budget),
            parameters,
            bounds=generator.bounds,
            norm_bound=generator.norm_bound,
            budget=generator.budget,
            X=X,
            progress="release" if generator.verbose else None,
        )
        return {
            "releases_": release.projections,
            "bounds_": release.bounds,
            "privacy_spent_": release.privacy_spent,
            "n_samples_": len(rows),
        }

    def train(self, generator: "DPSlicedGenerator", rng: np.random.Generator) -> dict[str, Any]:
        """Take one step a release."""
        releases, n, d = generator.releases_, generator.n_samples_, generator.n_features_in_
        units = OutputUnits.of_release(releases, generator.bounds_.radius)
        network = new_network(generator, default_width(n, d), d, 0, rng)
        size = generator.n_latents or min(generator.batch_size, n)
        batches = release_batches(releases, size, units)

        draw = partial(grouped_latents, latent_dim(generator, d), 0, rng=rng)
        device, n_steps = resolve_device(generator.device), len(releases.batches)
        step = generator_steps(batches, draw, rng)
        train_generator(generator, network, step, n_steps, rng, device)
        return {
            "module_": network,
            "n_steps_": n_steps,
            "_units": units,
            "_n_latents": latent_dim(generator, d),
        }


class NoisyGradients:
    """Publish noisy gradients of the distance, a step at a time: training is the release."""

    retrains = False

    def release(
        self, generator: "DPSlicedGenerator", streams: Streams, X: Any, y: Any
    ) -> dict[str, Any]:
        """Charge all steps, then train."""
        _check_rows_can_be_used(generator)
        if generator.sampling == "poisson":
            raise ValueError(
                'mechanism="gradient" matches the ranks of a batch, whose size has to be fixed: '
                'use sampling="without_replacement".'
            )
        rows = validate_rows(generator, X, reset=True, min_samples=2)
        n, d = rows.shape
        n_latents, device = latent_dim(generator, d), resolve_device(generator.device)
        network = new_network(generator, _WIDTH_FOR_GRADIENTS, d, 0, streams.solver)
        check_per_record(network, (n_latents,), streams.solver, parameter="module")
        clean = deepcopy(network)
        directions, plan = self._plan(generator, streams, n, d, trained_numbers(network))
        spent = charge_training(
            FitContext.of(generator, X, streams),
            plan,
            ("the network and its initial weights",),
            (
                f"{plan.n_steps} noisy gradients of the sliced Wasserstein distance to secret "
                f"batches of {plan.batch_size} rows"
            ),
            sigma_given=generator.sigma is not None,
        )
        bounds = plan.settle_bounds(rows, streams)
        step = noisy_gradient_steps(
            to_network_units(bounds, rows.astype(np.float64, copy=False)),
            math.sqrt(d),
            plan,
            iter(directions),
            partial(
                grouped_latents,
                n_latents,
                0,
                generator.n_latents or plan.batch_size,
                streams.solver,
            ),
            generator.clip_jacobian,
            streams.secret,
        )
        train_generator(generator, network, step, plan.n_steps, streams.solver, device)
        return {
            "module_": with_trained_parameters(clean, network),
            "n_steps_": plan.n_steps,
            "bounds_": bounds,
            "privacy_spent_": spent,
            "n_samples_": len(rows),
            "_units": OutputUnits.of_ball(bounds),
            "_n_latents": n_latents,
        }

    def train(self, generator: "DPSlicedGenerator", rng: np.random.Generator) -> dict[str, Any]:
        """Do nothing: the network is what was released."""
        return {}

    def _plan(
        self,
        generator: "DPSlicedGenerator",
        streams: Streams,
        n: int,
        d: int,
        n_parameters: int,
    ) -> tuple[StepDirections, TrainingPlan]:
        """Settle directions, batches and noise from public facts."""
        size = min(generator.batch_size, n)
        n_steps = generator.n_steps or _epochs(n, size)
        n_slices = generator.n_slices
        if n_slices == "auto":
            n_slices = d * max(1, round(_GRADIENT_SLICES / d))
        directions = fresh_directions(_kind(generator), n_steps, int(n_slices), d, streams.public)
        target = privacy_target(generator.epsilon, generator.delta, generator.budget)
        known = public_bounds(generator.bounds, generator.norm_bound, d)
        plan = plan_training(
            target,
            n_samples=n,
            batch_size=size,
            n_steps=n_steps,
            sampling="without_replacement",
            sensitivity=fixed_side_sensitivity(
                math.sqrt(d), generator.clip_jacobian, int(n_slices), directions.largest_norm
            ),
            n_parameters=n_parameters,
            bounds=bounds_or_plan(known or n, d, target.mu_cap),
            sigma=generator.sigma,
        )
        return directions, plan


GENERATOR_MECHANISMS: dict[str, GeneratorMechanism] = {
    "sketch": SketchLoss(),
    "smoothing": SmoothedLoss(),
    "gradient": NoisyGradients(),
}


def _check_rows_can_be_used(generator: "DPSlicedGenerator") -> None:
    """Refuse parameters that only a sketch can follow, before any charge."""
    if generator.conditional:
        raise ValueError(
            f'conditional=True needs mechanism="sketch": with mechanism="{generator.mechanism}" '
            "each class would have batches of its own, and a record that changes its class would "
            "change their sizes, which no noise hides."
        )
    if not isinstance(generator.slices, str):
        raise ValueError(
            f'mechanism="{generator.mechanism}" draws directions anew for every step: slices must '
            'be "orthogonal" (for which "axes+orthogonal" stands too) or "uniform". Own '
            'directions work with mechanism="sketch".'
        )


def _kind(generator: "DPSlicedGenerator") -> Literal["orthogonal", "uniform"]:
    return "uniform" if generator.slices == "uniform" else "orthogonal"


def _epochs(n_samples: int, batch_size: int) -> int:
    """Return the steps of so many passes over the data, within public limits."""
    return int(np.clip(_EPOCHS * n_samples // batch_size, _FEWEST_STEPS, _MOST_STEPS))
