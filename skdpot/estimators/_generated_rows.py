"""What a trained generator gives; all of it is post-processing."""

import numpy as np
from torch import nn

from skdpot._utils.devices import resolve_device
from skdpot.estimators._synthetic_rows import SyntheticRows
from skdpot.nets.generator_training import OutputUnits
from skdpot.nets.networks import draw_latents, evaluate
from skdpot.privacy.data_bounds import DataBounds
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.smoothed import SmoothedProjections

__all__ = ["GeneratedRows"]

_FEWEST_SCORED, _MOST_SCORED = 1000, 10_000


class GeneratedRows(SyntheticRows):
    """Methods of `DPSlicedGenerator` that run its network."""

    sketch_: SlicedSketch
    releases_: SmoothedProjections
    module_: nn.Module
    bounds_: DataBounds
    n_samples_: int
    n_features_in_: int
    device: str
    _units: OutputUnits
    _n_latents: int

    def _train(self, rng: np.random.Generator) -> None:
        raise NotImplementedError

    def _scored_rows(self) -> np.ndarray:
        """Return a fixed sample of as many rows as were fitted, within limits."""
        size = int(np.clip(self.n_samples_, _FEWEST_SCORED, _MOST_SCORED))
        return self._draw(size, np.random.default_rng(0))[0]

    def _draw(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in the units of the data, and the positions of their classes."""
        if not hasattr(self, "module_"):  # fit was interrupted
            self._train(rng)
        positions, indicators = np.zeros(n_samples, dtype=int), None
        if hasattr(self, "classes_"):
            counts = self.sketch_.class_counts_
            positions = rng.choice(len(counts), size=n_samples, p=counts / counts.sum())
            indicators = np.eye(len(counts))[positions]
        latents = draw_latents(n_samples, self._n_latents, rng, indicators, stratified=True)
        outputs = evaluate(self.module_, latents, resolve_device(self.device))
        mapped = self.bounds_.to_ball(self.bounds_.from_ball(self._units.to_mapped(outputs)))
        return self.bounds_.from_ball(mapped), positions
