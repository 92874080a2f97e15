"""The base of samplers of rows: `fit`, `fit_sketch`, `sample`, `sample_labeled` and `score`.

`fit` validates the rows, lets the mechanism plan, charge and release, stores the release, and makes
the sampler from it (`_make`: a flow of particles, or a trained network). Everything after the
release is post-processing.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from skdpot._utils.arguments import check_count
from skdpot._utils.devices import resolve_device
from skdpot._utils.parameters import all_or_nothing, check_is_fitted, fit_context
from skdpot._utils.rows import validate_rows
from skdpot._utils.streams import solver_generator, spawn_streams
from skdpot.base import FitContext, MechanismResult, PrivateSampler, chosen_mechanism, like_input
from skdpot.ot.distances import sliced_wasserstein_distance
from skdpot.release.sketch import SlicedSketch
from skdpot.sampling.sketch import Sketch
from skdpot.sources import Source, fit_rows, head_of, record_columns


@dataclass(eq=False, repr=False)
class SyntheticRows(PrivateSampler):
    """Base of samplers of rows, with or without classes.

    A subclass defines `_make`, `_draw` and `_scored_rows`. They read what `_store` has kept, and no
    private rows.
    """

    _: KW_ONLY
    conditional: bool = False
    n_steps: Any = None
    device: str = "auto"

    _parameter_constraints = PrivateSampler._parameter_constraints | {"conditional": ["boolean"]}

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Release X privately, and make the sampler from the release.

        If the fit is interrupted after the release, the release is kept, and the first `sample` or
        `score` completes the fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or source of rows
            Private rows, at least two: in memory, or read in batches from the paths of files,
            datasets of pyarrow, relations of DuckDB, LazyFrames of polars, DataFrames of Dask or
            Spark, or a `skdpot.sources.Source`. Batches need a `Sketch`.
        y : array-like of shape (n_samples,) or str, optional
            Class labels, only used with ``conditional=True``; private unless the mechanism declares
            them public. If X is read in batches, the name of their column.
        groups : array-like of shape (n_samples,), optional
            The person of each row, if persons have several, see `SlicedSketch.fit`. Needs a
            `Sketch`, and X in memory.

        Returns
        -------
        self : estimator
            Fitted sampler.

        Raises
        ------
        ValueError
            If parameters or data are not usable. Nothing is charged, unless X is read in batches
            and cannot be read to the end after the charge, which then stays.
        ImportError
            If what X needs is not installed, such as pyarrow for files.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.
        """
        streams = spawn_streams(self.random_state, type(self).__name__)
        mechanism = chosen_mechanism(self.mechanism, self._mechanisms)
        resolve_device(self.device)  # refused before any charge
        with all_or_nothing(self, forget=True):
            X = self._flat(X)
            needs = "" if isinstance(mechanism, Sketch) else 'mechanism="sketch"'
            rows = fit_rows(self, X, groups, needs, y)
            result = self._release(mechanism, FitContext.of(self, X, streams, groups), rows, y)
            if isinstance(rows, Source):
                record_columns(self, result.value)
                X = head_of(rows)
            self.n_samples_ = _number_of_records(result.value, rows)
            self._store(mechanism, result, X)
        if not hasattr(self, self._made_last):  # the release may be the training
            self._make(streams.solver)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def fit_sketch(self, sketch: SlicedSketch) -> Self:
        """Make the sampler from a sketch that was released before, at no privacy cost.

        Rows that arrive in chunks go into `SlicedSketch.partial_fit`. Sketches can also be loaded
        from a file, or merged from those of several parties.

        Parameters
        ----------
        sketch : SlicedSketch
            A closed sketch. The parameters that only a release reads (epsilon, delta, budget,
            bounds and the shape of the sketch) are those of the sketch.

        Returns
        -------
        self : estimator
            Fitted sampler; `privacy_spent_` is that of the sketch.

        Raises
        ------
        ValueError
            If the mechanism is not a `Sketch`, or only one of both is conditional.
        OpenSketchError
            If the sketch is still open.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpot import DPSlicedFlowSampler, SlicedSketch
        >>> sketch = SlicedSketch(bounds=(-1, 1))
        >>> for chunk in np.random.default_rng(0).uniform(-1, 1, size=(5, 200, 2)):
        ...     sketch = sketch.partial_fit(chunk, n_samples=1000)
        >>> DPSlicedFlowSampler().fit_sketch(sketch).sample(3).shape
        (3, 2)
        """
        mechanism = chosen_mechanism(self.mechanism, self._mechanisms)
        if not isinstance(mechanism, Sketch) or sketch.conditional != self.conditional:
            raise ValueError(
                'fit_sketch needs mechanism="sketch", and conditional= as the sketch has it.'
            )
        sketch._check_readable()
        result = mechanism.result_of(sketch, type(self).__name__)
        with all_or_nothing(self, forget=True):
            record_columns(self, sketch)
            self.n_samples_ = sketch.n_samples_
            self._store(mechanism, result, None)
            self._frame_out = hasattr(sketch, "feature_names_in_")
        self._make(solver_generator(self.random_state))
        return self

    def _flat(self, X: Any) -> Any:
        """Return X with images as rows, if the estimator knows their shape."""
        return X

    def _release(
        self, mechanism: Any, context: FitContext, rows: np.ndarray, y: Any
    ) -> MechanismResult:
        """Let the mechanism plan, charge and release."""
        result: MechanismResult = mechanism.release(
            context, rows, y, conditional=self.conditional, n_steps=self.n_steps
        )
        return result

    def _store(self, mechanism: Any, release: MechanismResult, X: Any) -> None:
        """Keep the release, and the classes with their shares."""
        super()._store(mechanism, release, X)
        self._class_shares = release.class_shares
        if release.classes is not None:
            self.classes_ = release.classes

    @abstractmethod
    def _draw(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in the units of the data, and the positions of their classes."""

    @abstractmethod
    def _scored_rows(self) -> np.ndarray:
        """Return the synthetic rows that `score` compares with."""

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw synthetic rows; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows; a DataFrame when the estimator was fitted on one.

        Raises
        ------
        TypeError, ValueError
            If `n_samples` is not a positive integer.
        """
        rng = self._ready(random_state)
        return like_input(self, self._draw(check_count(n_samples, "n_samples"), rng)[0])

    def sample_labeled(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, Any]:
        """Draw synthetic rows with their classes; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows. Classes occur with their frequency in the private data, noisy
            unless labels are public.
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        X : ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows.
        y : ndarray of shape (n_samples,)
            Their classes.

        Raises
        ------
        TypeError, ValueError
            If the estimator was fitted without classes, or `n_samples` is not positive.
        """
        check_is_fitted(self)
        if not hasattr(self, "classes_"):
            raise ValueError(
                f"sample_labeled needs a {type(self).__name__} that was fitted with "
                "conditional=True; this one has no classes. Use sample."
            )
        rng = self._ready(random_state)
        rows, positions = self._draw(check_count(n_samples, "n_samples"), rng)
        return like_input(self, rows), self.classes_[positions]

    def score(self, X: Any, y: Any = None) -> float:
        """Negative sliced Wasserstein-2 distance from X to synthetic rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            **Public** rows: the score is computed from them without noise.
        y : object, optional
            Ignored.

        Returns
        -------
        float
            −SW₂ in the units of the data, along 256 or more fixed directions; higher is better.
        """
        self._ready(0)
        rows = validate_rows(self, X, reset=False)
        return -sliced_wasserstein_distance(rows, self._scored_rows())


def _number_of_records(released: Any, rows: Any) -> int:
    """Return the number that a release states, such as a noisy number of persons, or of rows."""
    return getattr(released, "n_samples_", None) or len(rows)
