"""Closed sketches as records for files and messages, and the checks of such a record.

A record whose parts contradict each other is refused, for example one that is more precise than its
noise allows, or one that states a smaller epsilon than its events cost.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from skdpot._utils.arrays import FloatArray
from skdpot._utils.records import LARGEST_COUNT, Record, refusing
from skdpot.ot.slices import bin_edges
from skdpot.privacy.accounting import compose
from skdpot.privacy.noise import NOISE_REACH
from skdpot.privacy.statement import PrivacySpent, check_epsilon_delta, check_statement
from skdpot.release.bounds import DataBounds
from skdpot.release.contributions import UNITS
from skdpot.release.histogram import sketch_release
from skdpot.release.sketch_plan import projection_half_widths
from skdpot.release.strategy import Energy, Strategy, strategy_of

_FITTED = ("directions", "half_widths", "bounds", "n_samples")  # attributes without underscore
_PARAMETERS = ("epsilon", "delta", "norm_bound", "conditional", "public_labels", "group_size")
_MOST_BINS = 4096
_LEAST_NOISE, _LARGEST_NOISE = 1e-15, 1e15  # even the largest finite epsilon has more noise
_LARGEST_RADIUS = 1e150
_ROUNDING = 1e-9  # machines may differ in the last digits
_BOUNDS = "bounds; declare the same public bounds=(low, high) or norm_bound= in all of them"
_PERSONS = "numbers of rows of one person; give all the largest group_size"


@dataclass(frozen=True, eq=False, kw_only=True)
class SketchRecord(Record):
    """The released parts of a closed sketch."""

    directions: FloatArray
    half_widths: FloatArray
    statistic: FloatArray
    bounds: DataBounds
    declared_bounds: bool
    n_samples: int
    noise_scale: float
    strategy: float | None  # the energy that the strategy is optimised for
    epsilon: float
    delta: float
    norm_bound: float | None
    conditional: bool
    public_labels: bool
    group_size: int
    label_counts: tuple[int, ...] | None
    classes: np.ndarray | None
    feature_names: tuple[str, ...] | None
    spent: PrivacySpent

    kind: ClassVar[str] = "skdpot.SlicedSketch"
    noun: ClassVar[str] = "sketch"

    @classmethod
    def of(cls, sketch: Any) -> "SketchRecord":
        """Return the record of a closed sketch; raise ValueError if its classes cannot be saved."""
        optional = ("classes_", "feature_names_in_", "_label_counts")
        classes, names, counts = (getattr(sketch, name, None) for name in optional)
        return cls(
            **{name: getattr(sketch, name) for name in _PARAMETERS},
            **{name: getattr(sketch, f"{name}_") for name in _FITTED},
            statistic=sketch.statistic_,
            noise_scale=sketch.noise_scale_,
            strategy=sketch.strategy_.energy,
            declared_bounds=not isinstance(sketch.bounds, str),
            label_counts=None if counts is None else tuple(counts.tolist()),
            classes=None if classes is None else _without_objects(classes),
            feature_names=None if names is None else tuple(map(str, names)),
            spent=sketch.privacy_spent_,
        )

    def restore(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters and fitted attributes of a sketch, or raise ValueError."""
        with refusing(self.noun):
            self._check_table()
            self._check_parameters()
            self._check_statement()
            parameters = {name: getattr(self, name) for name in _PARAMETERS}
            parameters |= {"projections": self.directions, "n_bins": self.statistic.shape[-1]}
            if self.declared_bounds:
                bounds = self.bounds
                side = bounds.scale * (bounds.radius / math.sqrt(bounds.n_features))
                limits = bounds.center - side, bounds.center + side
                if not np.isfinite(limits).all():
                    raise ValueError("The bounds of the sketch are not finite.")
                parameters["bounds"] = limits if bounds.box else bounds
            return parameters, self._fitted()

    def _fitted(self) -> dict[str, Any]:
        release = sketch_release(
            self.statistic,
            bounds=self.bounds,
            directions=self.directions,
            half_widths=self.half_widths,
            strategy=self._strategy,
            sigma=float(self.noise_scale),
            sensitivity=self.spent.sensitivity,
            event=self.spent.event,
        )
        counts, names = self.label_counts, self.feature_names
        optional = {
            "classes_": self.classes,
            "feature_names_in_": None if names is None else np.array(names, dtype=object),
        }
        return {
            **{f"{name}_": getattr(self, name) for name in _FITTED},
            **{name: value for name, value in optional.items() if value is not None},
            "release_": release,
            "n_features_in_": self.bounds.n_features,
            "privacy_spent_": self.spent,
            "_label_counts": None if counts is None else np.array(counts, dtype=np.int64),
        }

    @property
    def _strategy(self) -> Strategy:
        return strategy_of(self.statistic.shape[-1], self.strategy)

    def _check_table(self) -> None:
        """Refuse a table that does not fit its number of rows, its noise and its bounds."""
        directions, statistic, classes = self.directions, self.statistic, self.classes
        n_classes, n_features = 1 if classes is None else len(classes), self.bounds.n_features
        if not (
            directions.ndim == 2
            and directions.shape[1] == n_features
            and self.half_widths.shape == (len(directions),)
            and statistic.ndim == 3
            and statistic.shape[:2] == (n_classes, len(directions))
            and n_classes >= 1
            and 2 <= statistic.shape[2] <= _MOST_BINS
            and (self.feature_names is None or len(self.feature_names) == n_features)
        ):
            raise ValueError("The arrays of the sketch have inconsistent shapes.")
        if not np.isfinite(bin_edges(self.half_widths, 1)).all():
            raise ValueError("The arrays of the sketch hold non-finite values.")
        if classes is not None and not np.array_equal(np.unique(classes), classes):
            raise ValueError("The classes of the sketch must be different and sorted.")
        counts, n_samples, noise = self.label_counts, self.n_samples, self.noise_scale
        if counts is not None and not (
            len(counts) == n_classes and min(counts) >= 0 and sum(counts) == n_samples
        ):
            raise ValueError("The numbers of rows of the classes of the sketch are inconsistent.")
        if not 1 <= n_samples <= LARGEST_COUNT:
            raise ValueError(f"n_samples of the sketch is {n_samples!r:.40}, which is impossible.")
        if not (noise == 0 or _LEAST_NOISE <= noise <= _LARGEST_NOISE):
            raise ValueError(f"noise_scale of the sketch is {noise!r:.40}, which is impossible.")
        # No entry of a strategy matrix exceeds 1.
        reached = np.abs(statistic).max(axis=(1, 2))
        most = n_samples if counts is None else np.array(counts)
        if not (reached <= most + NOISE_REACH * noise).all():
            raise ValueError(
                "The table of the sketch holds values that its rows and its noise cannot reach."
            )

    def _check_parameters(self) -> None:
        """Refuse ranges and parameters that contradict each other."""
        if not 1 / _LARGEST_RADIUS <= self.bounds.radius <= _LARGEST_RADIUS:
            raise ValueError("The radius of the bounds of the sketch is out of range.")
        lengths = np.linalg.norm(np.clip(self.directions, -2, 2), axis=1)
        if not np.allclose(lengths, 1, rtol=0, atol=_ROUNDING):
            raise ValueError("The directions of the sketch do not have unit length.")
        widths = projection_half_widths(self.bounds, self.directions)
        if not np.allclose(self.half_widths, widths, rtol=_ROUNDING, atol=0):
            raise ValueError("The binned ranges of the sketch do not follow from its bounds.")
        check_epsilon_delta(self.epsilon, self.delta, self.noun)
        if not (self.norm_bound is None or 0 < self.norm_bound < math.inf):
            raise ValueError("norm_bound of the sketch must be a positive number or nothing.")
        if self.conditional != (self.classes is not None):
            raise ValueError("A sketch has classes exactly if it is conditional.")
        public = self.public_labels
        if public != (self.label_counts is not None) or (public and self.classes is None):
            raise ValueError(
                "A sketch knows the sizes of its classes exactly if labels are public."
            )
        if not 1 <= self.group_size <= (len(self.statistic) if public else 1):
            raise ValueError(
                "group_size of the sketch must be 1 up to the number of public labels."
            )

    def _check_statement(self) -> None:
        """Refuse a statement that claims more privacy than its events and its noise give."""
        spent, noise_scale = self.spent, self.noise_scale
        tables, charged = check_statement(spent, self.noun)
        if not tables:
            return
        table = tables[-1]
        strategy = self._strategy
        due = strategy.sensitivity(
            Energy.of(self.bounds, self.directions, self.half_widths),
            conditional=self.conditional and not self.public_labels,
            group_size=self.group_size,
        )
        if charged is not None:
            if due > noise_scale * charged * (1 + _ROUNDING):
                raise ValueError("The noise of the sketch is less than its statement claims.")
            return  # such a statement does not include the lattice of the noise
        if not (
            table.n_steps == 1
            and table.sensitivity >= due * (1 - _ROUNDING)
            and noise_scale >= table.sigma * (1 - _ROUNDING)
            and _is_close(spent.sigma, table.sigma)
            and _is_close(spent.sensitivity, table.sensitivity)
        ):
            raise ValueError("The noise of the sketch is not the noise that its statement claims.")
        _check_lattice(table.lattice, strategy.lattice, self.statistic)


def _check_lattice(lattice: float | None, coarsest: float, statistic: np.ndarray) -> None:
    """Refuse a table off the lattice of its noise, and a lattice that no sketch has.

    A value off the lattice did not come from the sampler whose noise is charged. A sum of several
    sketches states the lattice of the least noise, which is the finest.
    """
    steps = coarsest / lattice if lattice is not None else 0.0
    if not (1 <= steps < math.inf and math.frexp(steps)[0] == 0.5):
        raise ValueError("The sketch states noise on a lattice that no sketch has.")
    # Rows of a person weigh multiples of 1/16, and a sum may state the lattice of one sketch only.
    units = statistic * (UNITS * steps / coarsest)
    if not (np.rint(units) == units).all():
        raise ValueError("The table of the sketch holds values off the lattice of its noise.")


def _is_close(stated: object, due: float) -> bool:
    return isinstance(stated, int | float) and math.isclose(stated, due, rel_tol=_ROUNDING)


def _without_objects(classes: np.ndarray) -> np.ndarray:
    if classes.dtype == object:
        if not all(isinstance(label, str) for label in classes):
            raise ValueError("classes_ holds objects that are not strings and cannot be saved.")
        return classes.astype(str)
    return classes


def counts_persons(sketch: Any) -> bool:
    """Whether a record of a sketch consists of all rows of a person."""
    stated = sketch.privacy_spent_.assumptions
    return any(text.startswith("one record is one person") for text in stated)


Readings = Sequence[tuple[Callable[[Any], Any], str]]

_MEASURED: Readings = (
    (
        attrgetter("directions_"),
        "directions; draw them once and pass the same array as projections= to all of them",
    ),
    (lambda sketch: sketch.statistic_.shape[-1], "numbers of bins; give all the same n_bins"),
    (attrgetter("bounds_"), _BOUNDS),
    (attrgetter("half_widths_"), _BOUNDS),
    (attrgetter("strategy_"), "strategy matrices; make all of them with one version of skdpot"),
)
_ADDED: Readings = (
    (lambda sketch: getattr(sketch, "classes_", ()), "classes; declare the same classes="),
    (
        lambda sketch: sketch._label_counts is None,
        "public_labels: labels are public in some of them",
    ),
    (attrgetter("group_size"), _PERSONS),
    (attrgetter("release_.sensitivity"), _PERSONS),  # parameters may have changed since the fit
    (counts_persons, "records: one record is a row in some, and all rows of a person in others"),
)


def check_comparable(sketches: Sequence[Any], readings: Readings = _MEASURED) -> list[Any]:
    """Refuse sketches that cannot be compared; return those that have names of features."""
    named = [sketch for sketch in sketches if hasattr(sketch, "feature_names_in_")]
    names = "names of features; give the columns the same names, in the same order"
    checks = [(sketches, read, name) for read, name in readings]
    checks.append((named, attrgetter("feature_names_in_"), names))
    for compared, read, name in checks:
        if not all(np.array_equal(read(sketch), read(compared[0])) for sketch in compared[1:]):
            raise ValueError(f"The sketches have different {name}.")
    return named


def check_overlap(sketches: Sequence[Any]) -> int:
    """Refuse sketches that differ along the directions that all have; return their number."""
    n_shared = min(len(sketch.directions_) for sketch in sketches)

    def cut(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda sketch: read(sketch)[:n_shared]

    directions, bins, bounds, widths, _ = _MEASURED
    shared = ((cut(read), name) for read, name in (directions, widths))
    check_comparable(sketches, (bins, bounds, *shared))
    return n_shared


def merged_fields(sketches: Sequence[Any]) -> dict[str, Any]:
    """Return the fitted attributes in which the sum of disjoint sketches differs from the first.

    By parallel composition a person is protected by the sketch of the party that holds their row.
    So the statement is that of the party with the least private event, the one of the largest mu;
    epsilons cannot be compared, because parties may state different deltas. The statement has the
    assumptions of all parties.
    """
    named = check_comparable(sketches)
    for first, second in combinations(sketches, 2):
        noisy = first.noise_scale_ > 0 and second.noise_scale_ > 0
        # Two releases never hold the same noise by chance.
        if first is second or (noisy and np.array_equal(first.statistic_, second.statistic_)):
            raise ValueError("merge was given one sketch twice; the parties must be disjoint.")
    if not all(sketch._is_declared for sketch in sketches):
        raise ValueError(
            'merge needs bounds that were declared: a sketch with bounds="private" has '
            "bounds of its own. Give all parties the same bounds=(low, high) or norm_bound=."
        )
    check_comparable(sketches, _ADDED)
    first = sketches[0]
    statement = max(
        (sketch.privacy_spent_ for sketch in sketches),
        key=lambda spent: compose(spent.event).mu_without_sampling,
    )
    assumptions = (text for sketch in sketches for text in sketch.privacy_spent_.assumptions)
    statement = replace(statement, assumptions=tuple(dict.fromkeys(assumptions)))
    total = replace(
        first.release_,
        value=sum(sketch.statistic_ for sketch in sketches),
        sigma=math.hypot(*(sketch.noise_scale_ for sketch in sketches)),
        event=statement.event,
    )
    n_samples = sum(sketch.n_samples_ for sketch in sketches)
    fields = {"release_": total, "n_samples_": n_samples, "privacy_spent_": statement}
    if named:
        fields["feature_names_in_"] = named[0].feature_names_in_
    if first._label_counts is not None:
        fields["_label_counts"] = sum(sketch._label_counts for sketch in sketches)
    return fields
