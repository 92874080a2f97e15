"""The private sketch: noisy distribution functions along L directions, released once."""

from copy import copy, deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if

from skdpot._utils.finite import as_line
from skdpot._utils.labels import encode_labels
from skdpot._utils.parameters import (
    DEVICE,
    Interval,
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    fit_context,
)
from skdpot._utils.rows import validate_rows
from skdpot._utils.streams import Streams, spawn_streams
from skdpot.exceptions import OpenSketchError
from skdpot.ot.slices import CDFTable
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.charges import charge, row_assumptions
from skdpot.privacy.earlier_steps import warn_of_composition
from skdpot.privacy.journal import keep_no_more
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.targets import privacy_target
from skdpot.release.bounds import ROW_BOUNDS, public_bounds
from skdpot.release.contributions import UNITS, Parts, Unit, count_records, read_persons
from skdpot.release.decoding import decode
from skdpot.release.histogram import NoisyAccumulator, rows_among
from skdpot.release.joint import SecureSum
from skdpot.release.projection_counts import counting_device
from skdpot.release.releases import Records, Release
from skdpot.release.sketch_plan import plan_sketch, projection_half_widths
from skdpot.release.sketch_record import SketchRecord, check_comparable, merged_fields
from skdpot.release.sketch_reliability import sketch_reliability
from skdpot.release.strategy import Strategy
from skdpot.sources.reading import read_numbers, source_of
from skdpot.sources.rows import HeldRows, Rows, SourceRows


def _not_closed(sketch: "SlicedSketch") -> bool:
    """Refuse more rows for a closed sketch; scikit-learn shows this error as the cause."""
    if hasattr(sketch, "release_"):
        raise OpenSketchError(
            "This sketch is closed, which is final: its table is a release. Call fit, or "
            "make a new sketch and merge the two."
        )
    return True


def check_arrivals(sketch: "SlicedSketch", n_rows: int, given: Any) -> None:
    """Refuse, before any charge, a chunk that does not fit in the declared number of rows."""
    n_before, declared = 0, given
    if sketch._is_open:  # only the first chunk can declare it
        n_before, declared = sketch._accumulator.n_rows, sketch._declared
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
            raise ValueError(f"n_samples={given!r} must be an integer of at least 1.")
        if given != declared:
            raise ValueError(f"n_samples={given} differs from the {declared} of the first chunk.")
    if declared is not None and n_before + n_rows > declared:
        raise ValueError(
            f"{n_before + n_rows} rows arrived but n_samples={declared} were declared; the "
            "chunk was not added."
        )


@dataclass(eq=False, repr=False)
class SlicedSketch(PrivateEstimatorMixin, BaseEstimator):
    r"""Noisy distribution functions of private data along many directions.

    The sketch is released once. Everything computed from it afterwards (distances, quantiles,
    particle flows, scores) is post-processing: free, unlimited and repeatable.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    budget : PrivacyBudget, optional
        Shared budget that the fit is charged to.
    bounds : "private", (low, high) or DataBounds, default="private"
        Range of each feature. ``(low, high)``, scalars or arrays of shape (n_features,), is public
        knowledge and free; features are mapped to [-1, 1] and clipped. "private" spends at most
        25 % of the squared mu on estimating location and scale, in `partial_fit` from the first
        chunk. The released `bounds_` of another fit are public: with them sketches of several
        parties can be compared.
    norm_bound : float, optional
        Public bound of the Euclidean norm of every row, instead of `bounds`; longer rows are
        shortened.
    n_projections : int or "auto", default="auto"
        Number of directions L. "auto" follows a public rule in n, d and epsilon
        (`skdpot.release.sketch_plan.recommended_n_projections`).
    n_bins : int or "auto", default="auto"
        Number of bins B along each direction.
    projections : {"axes+orthogonal", "orthogonal", "uniform"} or array of shape (n_projections, \
    n_features), default="axes+orthogonal"
        How directions are drawn. An array must be public and is used as it is.
    conditional : bool, default=False
        Make one table per class of `y`; otherwise `y` is ignored.
    classes : array-like, optional
        The public set of classes. By default the labels found in `y`, which then count as public.
        Required by `partial_fit` with ``conditional=True``.
    public_labels : bool, default=False
        Whether the label of every row is public: time stamps, hospitals, arms of a trial.
        Neighbouring data sets then differ in the values of one row but not in its label, which
        needs less noise; the sizes of the classes are exact. Needs ``conditional=True``.
    group_size : int, default=1
        Largest number of rows per person, all with different labels. The guarantee covers all of
        them together. More than 1 needs ``public_labels=True``.
    device : {"auto", "cpu", "cuda", "cuda:0", ...} or torch.device, default="auto"
        Where projections are counted.
    random_state : int, RandomState or None, default=None
        Makes directions and noise reproducible. For tests only: anyone who knows it can remove the
        noise.

    Attributes
    ----------
    directions_ : ndarray of shape (n_projections, n_features)
        Directions θ, in the units of the mapped features.
    half_widths_ : ndarray of shape (n_projections,)
        Half width of the binned range along each direction.
    release_ : Release
        The release: value, noise, event, and the map from rows to the value.
    statistic_ : ndarray of shape (n_classes, n_projections, n_bins)
        The released table, the value of `release_`.
    strategy_ : Strategy
        The strategy matrix, how entries are decoded, and their sensitivity.
    noise_scale_ : float
        Standard deviation of the noise of each entry of `statistic_`.
    cdf_ : ndarray of shape (n_classes, n_projections, n_bins + 1)
        Distribution functions at the bin edges, decoded from `statistic_`.
    class_counts_ : ndarray of shape (n_classes,)
        Estimated number of rows per class, exact with ``public_labels=True``; n without classes.
    classes_ : ndarray of shape (n_classes,)
        Classes; only with ``conditional=True``.
    bounds_ : DataBounds
        Map from the data to the ball that is binned.
    n_samples_ : int
        Number of rows, or of persons with `groups`.
    privacy_spent_ : PrivacySpent
        Cost of the fit, and its assumptions.
    reliability_ : Reliability
        Root mean square errors of the distribution functions: along each axis, beside those of
        uniform ones, or of each class, beside those of all classes together.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    Releases ``A_g H + noise`` for the histograms H of all slices and classes, as one Gaussian event
    under replace-one, with the sensitivity of
    `skdpot.release.strategy.Strategy.sensitivity`, after the two events of private
    bounds. Public: the number of rows and of features, their names, the dtype, the set of classes,
    the directions, and that all values are finite and all labels known (a refused fit shows it).
    Protected: each row of X, and its label unless ``public_labels=True``. Public labels show how
    many rows each class has, and protect a person whose values are replaced and whose labels stay.
    With `groups` one record is one person: the number of persons is public, and the number of rows
    is protected (`skdpot.release.contributions`). Private bounds use one row of each.

    See Also
    --------
    DPSlicedFlowSampler : Synthetic rows from a sketch.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import SlicedSketch
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(5000, 2))
    >>> sketch = SlicedSketch(epsilon=1.0, bounds=(-1, 1)).fit(X)
    >>> median = sketch.quantiles([0.5])[0, 0]  # of the first axis
    >>> bool(abs(median) < 0.1)
    True
    """

    epsilon: float = 1.0
    _: KW_ONLY
    delta: float = 1e-5
    budget: PrivacyBudget | None = None
    bounds: Any = "private"
    norm_bound: float | None = None
    n_projections: int | str = "auto"
    n_bins: int | str = "auto"
    projections: Any = "axes+orthogonal"
    conditional: bool = False
    classes: ArrayLike | None = None
    public_labels: bool = False
    group_size: int = 1
    device: str = "auto"
    random_state: Any = None

    _parameter_constraints = {
        **PrivateEstimatorMixin._parameter_constraints,
        **ROW_BOUNDS,
        "n_projections": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "n_bins": [StrOptions({"auto"}), Interval(Integral, 2, 4096, closed="both")],
        "projections": [StrOptions({"axes+orthogonal", "orthogonal", "uniform"}), "array-like"],
        "conditional": ["boolean"],
        "classes": ["array-like", None],
        "public_labels": ["boolean"],
        "group_size": [Interval(Integral, 1, None, closed="left")],
        "device": [DEVICE],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Release the sketch of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or source of rows
            Private rows, at least two: in memory, or read in batches from the paths of files,
            datasets of pyarrow, relations of DuckDB, LazyFrames of polars, DataFrames of Dask or
            Spark, or a `skdpot.sources.source.Source`.
        y : array-like of shape (n_samples,) or str, optional
            Class labels, private unless `public_labels`; only used with ``conditional=True``. If X
            is read in batches, the name of their column.
        groups : array-like of shape (n_samples,), optional
            The person of each row, if persons have several. Up to 16 rows of each, drawn at random,
            together weigh as one row: the noise is that of one row per person. Not with
            ``public_labels=True``, see `group_size`. Needs X in memory.

        Returns
        -------
        self : SlicedSketch
            The closed sketch.

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
        self._release(type(self).__name__, streams, X, y, groups=groups)
        self.reliability_.warn(type(self).__name__)
        return self

    @available_if(_not_closed)
    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, *, n_samples: int | None = None) -> Self:
        """Add a chunk of rows; memory does not grow with their number.

        The first call fixes shape and bounds, charges the whole fit and draws the noise. An open
        sketch can be neither read nor copied. Feed each row exactly once.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Private rows of this chunk.
        y : array-like of shape (n_rows,), optional
            Their labels; ``conditional=True`` also needs the parameter `classes`.
        n_samples : int, optional
            Public total number of rows, declared in the first call. The public rule for "auto"
            shapes uses it, and the sketch closes itself when they have arrived. Without it the rule
            uses the size of the first chunk, and `close` ends the stream.

        Returns
        -------
        self : SlicedSketch
            The sketch.

        Raises
        ------
        AttributeError
            If the sketch is closed, which is final.
        OpenSketchError
            If an earlier chunk was interrupted.
        ValueError
            If a chunk is not usable, or more rows than `n_samples` arrive. The chunk is not added,
            and the stream can continue.
        """
        if self.conditional and self.classes is None:
            raise ValueError("partial_fit with conditional=True needs the parameter classes.")
        with all_or_nothing(self):
            first = not self._is_open
            if source_of(X, y) is not None:
                raise ValueError("partial_fit takes rows in memory: pass it one batch at a time.")
            rows, _ = self._read(X, y, reset=first)
            check_arrivals(self, rows.n_rows, n_samples)
            if first:
                streams = spawn_streams(self.random_state, type(self).__name__)
                classes = self.classes if self.conditional else None
                self._open(type(self).__name__, streams, rows, classes, n_samples)
                keep_no_more()  # the table will be released in another call
            self._accumulator.add(rows)
        if self._accumulator.n_rows == self._declared:
            self.close()
        return self

    def close(self) -> Self:
        """End the stream of `partial_fit` and decode the released table.

        Returns
        -------
        self : SlicedSketch
            The closed sketch.

        Raises
        ------
        OpenSketchError
            If there is no open stream.
        """
        if not self._is_open:
            raise OpenSketchError("close() ends a stream that partial_fit began; there is none.")
        self._close()
        self.reliability_.warn(type(self).__name__)
        return self

    def _close(self) -> None:
        """Decode the released table; the estimators that compose a sketch give the warning."""
        self.n_samples_ = self._accumulator.n_rows
        self._label_counts = self._accumulator.label_counts  # None unless labels are public
        self.release_ = self._accumulator.close()
        del self._accumulator, self._declared
        self._decode()

    def _release(
        self,
        label: str,
        streams: Streams,
        X: Any,
        y: Any,
        *,
        origin: Any = None,
        groups: Any = None,
        parties: SecureSum | None = None,
    ) -> Self:
        """Fit with the given label and streams; used by the estimators that compose a sketch."""
        with all_or_nothing(self):
            fewest = 2 if groups is None else 1  # of rows; a refusal counts them
            rows, classes = self._read(X, y, reset=True, min_samples=fewest)
            if groups is not None and isinstance(rows, SourceRows):
                raise ValueError("groups needs X in memory, as an array or a DataFrame.")
            persons = None if groups is None else read_persons(groups, "groups", rows.n_rows)
            n_samples = count_records(rows, persons)
            n_samples = n_samples if parties is None else parties.rows(n_samples, classes)
            self.__dict__.pop("_accumulator", None)
            parts = self._open(label, streams, rows, classes, n_samples, persons, parties)
            origin = X if origin is None else origin
            warn_of_composition(origin, self.privacy_spent_, self.budget, label)
            self._accumulator.add(rows, parts)
            self._accumulator.join(parties, n_samples)
            self._close()
        return self

    def _read(
        self, X: Any, y: Any, *, reset: bool, min_samples: int = 1
    ) -> tuple[Rows, np.ndarray | None]:
        """Validate rows and labels, in memory or of a source; return them and the classes."""
        source = source_of(X, y) if reset else None
        if source is not None:
            given, labelled = (self, source, y, self.classes), self.conditional
            return read_numbers(*given, labelled=labelled, min_samples=min_samples)
        rows = validate_rows(self, X, reset=reset, min_samples=min_samples)
        codes = classes = None
        if self.conditional:
            # Later chunks are encoded like the first, whatever the parameter has become.
            codes, classes = encode_labels(y, len(rows), self.classes if reset else self.classes_)
        return HeldRows((rows, codes), len(rows)), classes

    def _open(
        self,
        label: str,
        streams: Streams,
        rows: Rows,
        classes: Any,
        n_samples: int | None,
        persons: np.ndarray | None = None,
        parties: SecureSum | None = None,
    ) -> Parts | None:
        """Plan, charge, draw rows of persons, settle the bounds and draw the noise, in this order.

        Returns the rows that were drawn, by their weight.
        """
        unit = Unit() if persons is None else Unit("groups", UNITS)
        if persons is not None and self.public_labels:
            raise ValueError(
                "groups is for private labels. With public_labels=True the rows of one person must "
                "have different labels; state their largest number as group_size."
            )
        n_bounded = count_records(rows, persons)
        bounds = public_bounds(self.bounds, self.norm_bound, self.n_features_in_)
        if classes is not None:
            classes = np.unique(classes)
            if n_samples is not None and len(classes) > n_samples:
                raise ValueError(
                    f"There are {len(classes)} classes for {n_samples} rows; a class-conditional "
                    "fit needs at least one row per class."
                )
        plan = plan_sketch(
            privacy_target(self.epsilon, self.delta, self.budget),
            n_samples or rows.n_rows,
            self.n_features_in_,
            None if classes is None else len(classes),
            rng=streams.public,
            projections=self.projections,
            n_projections=self.n_projections,
            n_bins=self.n_bins,
            bounds=bounds or n_bounded,
            public_labels=self.public_labels,
            group_size=self.group_size,
            n_units=1 if persons is None else UNITS,
            parties=parties,
        )
        device = counting_device(self.device)
        self.privacy_spent_ = charge(
            self,
            plan.event,
            label=label,
            n_samples=n_samples or rows.n_rows,
            assumptions=row_assumptions(
                classes=classes is not None,
                declared_bounds=bounds is not None,
                seeded=streams.secret.reproducible,
                public_labels=self.public_labels,
                group_size=self.group_size,
                records=() if persons is None else unit.assumptions,
                others=() if parties is None else parties.assumptions,
            ),
            scales=(plan.sigma, plan.sensitivity),
            mechanism=(
                f"noisy distribution functions along {len(plan.directions)} directions on "
                f"{plan.strategy.n_bins} bins"
            ),
        )
        drawn = None if persons is None else unit.draw(persons, streams.secret)
        one_each = slice(None) if drawn is None else drawn.one_each
        self.bounds_ = plan.bounds.settled(rows.map(partial(rows_among, some=one_each)), streams)
        self.__dict__.pop("classes_", None)
        if classes is not None:
            self.classes_ = classes
        self.directions_ = plan.directions
        self.half_widths_ = projection_half_widths(self.bounds_, plan.directions)
        self._declared = n_samples
        self._accumulator = NoisyAccumulator(
            plan, self.bounds_, self.half_widths_, streams.secret, device
        )
        return None if drawn is None else drawn.parts

    def __getstate__(self) -> Any:
        """Refuse to be pickled or copied while open."""
        if self._is_open:
            self._check_readable()
        return super().__getstate__()

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return rows and the positions of their classes."""
        labelled = hasattr(self, "classes_")
        return X, encode_labels(y, len(X), self.classes_)[0] if labelled else None

    @property
    def statistic_(self) -> np.ndarray:
        """The released table."""
        return self.release_.value

    @property
    def strategy_(self) -> Strategy:
        """What was measured of each histogram."""
        return cast(Strategy, self.release_.facts["strategy"])

    @property
    def noise_scale_(self) -> float:
        """Standard deviation of the noise of each entry of the table."""
        return float(np.max(self.release_.sigma))

    def merge(self, *others: Self) -> Self:
        """Add sketches of disjoint sets of people, for instance of several hospitals.

        Every party keeps its own full guarantee: the tables are added with the noise of each. All
        must have the same directions (pass one public array as `projections`), bins, classes and
        declared bounds, and agree on whether labels are public.

        Parameters
        ----------
        *others : SlicedSketch
            Closed sketches.

        Returns
        -------
        SlicedSketch
            A closed sketch of all rows together.

        Raises
        ------
        TypeError
            If an argument is not a sketch.
        ValueError
            If the sketches do not measure the same statistic.
        """
        for other in others:
            if not isinstance(other, SlicedSketch):
                raise TypeError(f"merge adds sketches, not a {type(other).__name__}.")
        parties = (self, *others)
        for party in parties:
            party._check_readable()
        total = copy(self)
        total.__dict__.update(merged_fields(parties))
        total._decode()
        return total

    def cdf(self, x: ArrayLike, *, label: Any = None) -> np.ndarray:
        """Distribution functions of the projections of the mapped rows.

        Parameters
        ----------
        x : array-like of shape (n_points,)
            Finite positions.
        label : optional
            A class; by default all classes together.

        Returns
        -------
        ndarray of shape (n_projections, n_points)
            Values in [0, 1].

        Raises
        ------
        ValueError
            If `x` does not hold finite numbers.
        """
        return self.table(label).evaluate(as_line(x, "x"))

    def quantiles(self, q: ArrayLike, *, label: Any = None) -> np.ndarray:
        """Quantiles of the projections of the mapped rows.

        Parameters
        ----------
        q : array-like of shape (n_levels,)
            Levels in [0, 1].
        label : optional
            A class; by default all classes together.

        Returns
        -------
        ndarray of shape (n_projections, n_levels)
            Positions in the units of the mapped features, ``(x - center) / scale``.

        Raises
        ------
        ValueError
            If a level is outside [0, 1].
        """
        levels = as_line(q, "q", "must hold levels in [0, 1].")
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError("q must hold levels in [0, 1].")
        return self.table(label).quantiles(levels)

    def distance(self, other: Any) -> float:
        """Sliced Wasserstein-2 distance to another sketch or to public rows, exact for the two.

        Parameters
        ----------
        other : SlicedSketch or array-like of shape (n_samples, n_features)
            A sketch with the same directions and bounds, or **public** rows, which are mapped and
            clipped like the private rows.

        Returns
        -------
        float
            SW₂ in the units of the mapped features. The noise of a sketch adds to it: two sketches
            of equal data are not at distance zero.

        Raises
        ------
        ValueError
            If the other sketch has other directions, bins or bounds.
        """
        table = self.table()
        if isinstance(other, SlicedSketch):
            other._check_readable()
            check_comparable((self, other))
            return float(np.sqrt(table.squared_distances(other.table()).mean()))
        rows = self.bounds_.to_ball(validate_rows(self, other, reset=False))
        widths = self.half_widths_[:, None]
        projections = np.clip(self.directions_ @ rows.T, -widths, widths)
        return float(np.sqrt(table.squared_distances_to_sample(projections).mean()))

    def table(self, label: Any = None) -> CDFTable:
        """Return the distribution functions of one class, or of all together.

        Parameters
        ----------
        label : optional
            A class; by default the mixture of all.

        Returns
        -------
        CDFTable
            Directions, edges and values.

        Raises
        ------
        OpenSketchError
            If the sketch is open.
        ValueError
            If there is no such class.
        """
        self._check_readable()
        if label is None:
            cdf = np.average(self.cdf_, axis=0, weights=self.class_counts_)
        else:
            cdf = self.cdf_[self._position(label)]
        return CDFTable(self.directions_, self.half_widths_, cdf)

    def save(self, path: str | Path) -> None:
        """Write the closed sketch as a ``.safetensors`` file; nothing in it is a pickle.

        Parameters
        ----------
        path : str or Path
            File to write; an existing file is replaced.
        """
        self._check_readable()
        SketchRecord.of(self).save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a sketch that `save` wrote; the file is validated and runs no code.

        Parameters
        ----------
        path : str or Path
            File to read.

        Returns
        -------
        SlicedSketch
            A closed sketch.

        Raises
        ------
        ValueError
            If the file is not a sketch of a known version.
        """
        return cls._restored(*deepcopy(SketchRecord.load(path).restore()))

    def _with_statistic(
        self, statistic: np.ndarray, kept: Any = slice(None), sizes: np.ndarray | None = None
    ) -> Self:
        """Return a copy with another table, of some of the classes or of others of public sizes."""
        other = copy(self)
        other.release_ = replace(self.release_, value=statistic)
        counts = cast(np.ndarray, self._label_counts)[kept] if sizes is None else sizes
        other.classes_, other._label_counts = self.classes_[kept], counts
        other.n_samples_ = int(counts.sum())
        other._decode()
        return other

    @classmethod
    def _restored(cls, parameters: dict[str, Any], fitted: dict[str, Any]) -> Self:
        """Make a closed sketch from its parameters and released values."""
        sketch = cls(**parameters)
        sketch.__dict__.update(fitted)
        sketch._decode()
        return sketch

    def _decode(self) -> None:
        """Store what follows from the released table."""
        measured = (self.n_samples_, self.noise_scale_, self.directions_, self.half_widths_)
        decoded = decode(self.statistic_, self.strategy_, *measured, self._label_counts)
        self.cdf_, self.class_counts_ = decoded
        self.reliability_ = sketch_reliability(self)

    @property
    def _is_open(self) -> bool:
        return hasattr(self, "_accumulator")

    @property
    def _is_declared(self) -> bool:
        """Whether the bounds were declared rather than estimated."""
        return not isinstance(self.bounds, str) or self.norm_bound is not None

    def _position(self, label: Any) -> int:
        try:
            if np.ndim(label) == 0:  # an array would broadcast
                return int(getattr(self, "classes_", np.array([])).tolist().index(label))
        except (TypeError, ValueError):
            pass
        raise ValueError(
            "label is not a class of this sketch; classes_ lists them (a sketch has "
            "classes when it is fitted with conditional=True)."
        )

    def _check_readable(self) -> None:
        if self._is_open:
            raise OpenSketchError(
                "This sketch is open: reading it while rows are added would reveal them. "
                "Call close() first."
            )
        check_is_fitted(self, "release_")
