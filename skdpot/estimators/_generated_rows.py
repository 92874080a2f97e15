"""What a trained generator gives; all of it is post-processing."""

from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from torch import nn

from skdpot._utils.devices import resolve_device
from skdpot._utils.rng import solver_generator
from skdpot._utils.validation import check_is_fitted, validate_rows
from skdpot.nets.evaluation import evaluate
from skdpot.nets.generator_network import draw_latents
from skdpot.nets.output_units import OutputUnits
from skdpot.privacy.data_bounds import DataBounds
from skdpot.slicing.directions import orthogonal_directions
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.smoothed import SmoothedProjections
from skdpot.slicing.transport import sliced_wasserstein_distance

__all__ = ["GeneratedRows"]

_SCORING_SLICES = 256
_FEWEST_SCORED, _MOST_SCORED = 1000, 10_000


class GeneratedRows(BaseEstimator):
    """Methods of `DPSlicedGenerator` that run its network."""

    sketch_: SlicedSketch
    releases_: SmoothedProjections
    module_: nn.Module
    bounds_: DataBounds
    classes_: np.ndarray
    n_samples_: int
    n_features_in_: int
    device: str
    _units: OutputUnits
    _n_latents: int
    _frame_out: bool

    def _train(self, rng: np.random.Generator) -> None:
        raise NotImplementedError

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw synthetic rows; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows; a DataFrame when the generator was fitted on one.

        Raises
        ------
        ValueError
            If `n_samples` is not a positive integer.
        """
        rows, _ = self._draw(n_samples, solver_generator(random_state))
        return self._like_input(rows)

    def sample_labeled(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, Any]:
        """Draw synthetic rows with their classes; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows. Classes occur with their (noisy) frequency in the private data.
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        X : ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows.
        y : ndarray of shape (n_samples,)
            Their classes.

        Raises
        ------
        ValueError
            If the generator was fitted without classes, or `n_samples` is not positive.
        """
        check_is_fitted(self)
        if not hasattr(self, "classes_"):
            raise ValueError(
                "sample_labeled needs a generator that was fitted with conditional=True; "
                "this one knows no classes. Use sample."
            )
        rows, positions = self._draw(n_samples, solver_generator(random_state))
        return self._like_input(rows), self.classes_[positions]

    def score(self, X: Any, y: Any = None) -> float:
        """Negative sliced Wasserstein-2 distance from X to generated rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            **Public** rows: the score is computed from them without noise.
        y : object, optional
            Ignored.

        Returns
        -------
        float
            −SW₂ in the units of the data, along 256 or more fixed directions, to a fixed sample
            of as many rows as were fitted (1000 to 10,000); higher is better.
        """
        check_is_fitted(self)
        rows = validate_rows(self, X, reset=False)
        n_features = rows.shape[1]
        n_slices = n_features * -(-_SCORING_SLICES // n_features)
        directions = orthogonal_directions(n_slices, n_features, np.random.default_rng(0))
        size = int(np.clip(self.n_samples_, _FEWEST_SCORED, _MOST_SCORED))
        generated, _ = self._draw(size, np.random.default_rng(0))
        return -sliced_wasserstein_distance(rows, generated, directions)

    def _draw(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in the units of the data, and the positions of their classes."""
        check_is_fitted(self)
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples={n_samples!r} must be an integer of at least 1.")
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

    def _like_input(self, rows: np.ndarray) -> Any:
        if not self._frame_out:
            return rows
        return pd.DataFrame(rows, columns=getattr(self, "feature_names_in_", None))
