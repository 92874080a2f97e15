"""What a closed sketch consists of, for files and messages, and whether it can be true.

A record is made of plain facts and arrays, without objects. Whoever reads one need not trust
who wrote it: nothing in it is executed, and a record whose parts contradict each other (more
precise than its noise allows, a smaller epsilon than its events cost) is refused.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent
from skdpot.privacy.relation import Relation
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.event_record import leaves
from skdpot.slicing.histogram import bin_edges
from skdpot.slicing.plan import table_sensitivity
from skdpot.slicing.rules import projection_half_widths
from skdpot.slicing.statement_record import (
    LARGEST_COUNT,
    as_plain,
    check_cost,
    check_epsilon_delta,
    is_number,
    mu_of_choice,
    restoring,
    statement_from_dict,
    statement_to_dict,
)
from skdpot.slicing.strategy import square_root_strategy

__all__ = ["ARRAYS", "BOUNDS", "SketchRecord"]

ARRAYS = ("directions_", "half_widths_", "statistic_", "classes_", "feature_names_in_")
BOUNDS = ("center", "scale", "radius", "box")
_PARAMETERS = ("epsilon", "delta", "norm_bound", "conditional", "public_labels", "group_size")
_FACTS = {"n_samples", "noise_scale", "parameters", "declared_bounds", "label_counts", "spent"}
_PRIVATE_LABELS = {"public_labels": False, "group_size": 1}  # in records that do not say
_MOST_BINS = 4096
_LARGEST_NOISE = 1e15
_LARGEST_RADIUS = 1e150
_NOISE_REACH = 20.0  # standard deviations; noise beyond has a probability of 1e-88
_ROUNDING = 1e-9  # machines may differ in the last digits


@dataclass(frozen=True, eq=False)
class SketchRecord:
    """The released parts of a closed sketch.

    Parameters
    ----------
    facts : dict
        What JSON can hold; an epsilon may be infinite.
    arrays : dict of str to ndarray
        Numbers, and perhaps text for classes and names of features.
    """

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @classmethod
    def of(cls, sketch: Any) -> "SketchRecord":
        """Return the record of a closed sketch.

        Parameters
        ----------
        sketch : SlicedSketch
            Closed.

        Returns
        -------
        SketchRecord

        Raises
        ------
        ValueError
            If the classes are neither numbers nor strings.
        """
        arrays = {name: getattr(sketch, name) for name in ARRAYS if hasattr(sketch, name)}
        for name in ("classes_", "feature_names_in_"):
            if name in arrays and arrays[name].dtype == object:
                arrays[name] = _as_text(arrays[name], name)
        arrays |= {f"bounds_{name}": value for name, value in sketch.bounds_.to_dict().items()}
        facts = {
            "n_samples": sketch.n_samples_,
            "noise_scale": sketch.noise_scale_,
            "parameters": {name: as_plain(getattr(sketch, name)) for name in _PARAMETERS},
            "declared_bounds": not isinstance(sketch.bounds, str),
            "label_counts": _as_list(getattr(sketch, "_label_counts", None)),
            "spent": statement_to_dict(sketch.privacy_spent_),
        }
        return cls(facts, arrays)

    def restore(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Validate the record and return what a sketch is made of.

        Returns
        -------
        parameters, fitted : dict
            Constructor parameters and fitted attributes.

        Raises
        ------
        ValueError
            If something is missing, of a wrong type or shape, or cannot be true.
        """
        with restoring("sketch"):
            return self._rebuild()

    def _rebuild(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = dict(self.arrays)
        if unknown := set(self.facts) - _FACTS:
            raise ValueError(f"The sketch has unknown facts, {len(unknown)} of them.")
        bounds = DataBounds.from_dict({name: arrays.pop(f"bounds_{name}") for name in BOUNDS})
        _check_shapes(arrays, bounds)
        label_counts = _read_label_counts(self.facts, len(arrays["statistic_"]))
        n_samples, noise_scale = _check_counts(self.facts, arrays["statistic_"], label_counts)
        _check_widths(arrays, bounds)
        parameters = _read_parameters(self.facts["parameters"], arrays, label_counts)
        if _is_true(self.facts["declared_bounds"]):
            limits = _box(bounds)
            parameters["bounds"] = limits if bounds.box else bounds
        spent = statement_from_dict(self.facts["spent"], "sketch")
        _check_statement(spent, noise_scale, arrays["statistic_"], parameters)
        fitted: dict[str, Any] = {
            **arrays,
            "bounds_": bounds,
            "n_samples_": n_samples,
            "noise_scale_": noise_scale,
            "n_features_in_": bounds.n_features,
            "privacy_spent_": spent,
        }
        if "feature_names_in_" in fitted:
            fitted["feature_names_in_"] = fitted["feature_names_in_"].astype(object)
        if label_counts is not None:
            fitted["_label_counts"] = label_counts
        return parameters, fitted


def _check_shapes(arrays: dict[str, np.ndarray], bounds: DataBounds) -> None:
    unknown = set(arrays) - set(ARRAYS)
    missing = {"directions_", "half_widths_", "statistic_"} - set(arrays)
    if unknown or missing:
        raise ValueError(f"The sketch lacks {sorted(missing)} and has unknown {sorted(unknown)}.")
    directions, statistic = arrays["directions_"], arrays["statistic_"]
    n_classes = len(arrays["classes_"]) if "classes_" in arrays else 1
    names = arrays.get("feature_names_in_")
    consistent = (
        directions.ndim == 2
        and directions.shape[1] == bounds.n_features
        and arrays["half_widths_"].shape == (len(directions),)
        and statistic.ndim == 3
        and statistic.shape[:2] == (n_classes, len(directions))
        and 2 <= statistic.shape[2] <= _MOST_BINS
        and (names is None or names.shape == (bounds.n_features,))
    )
    if not consistent:
        raise ValueError("The arrays of the sketch have inconsistent shapes.")
    due = ("directions_", "half_widths_", "statistic_")
    if any(arrays[name].dtype != np.float64 for name in due):
        raise TypeError("numbers in double precision are due")
    numbers = (directions, statistic, bin_edges(arrays["half_widths_"], 1))
    if not all(np.isfinite(values).all() for values in numbers):
        raise ValueError("The arrays of the sketch hold non-finite values.")
    _check_names(arrays)


def _check_names(arrays: dict[str, np.ndarray]) -> None:
    """Refuse classes that occur twice, and names of features that are no text."""
    classes, names = arrays.get("classes_"), arrays.get("feature_names_in_")
    if classes is not None and not np.array_equal(np.unique(classes), classes):
        raise ValueError("The classes of the sketch must be different and sorted.")
    if names is not None and names.dtype.kind not in "UO":
        raise TypeError("text is due")


def _read_label_counts(facts: dict[str, Any], n_classes: int) -> np.ndarray | None:
    """Return the public number of rows of each class; None where labels are private."""
    counts = facts.get("label_counts")
    if counts is None:
        return None
    if not (
        isinstance(counts, list)
        and len(counts) == n_classes
        and all(type(count) is int and count >= 0 for count in counts)
        and sum(counts) == facts["n_samples"]
    ):
        raise ValueError("The numbers of rows of the classes of the sketch cannot be.")
    return np.array(counts, dtype=np.int64)


def _check_counts(
    facts: dict[str, Any], statistic: np.ndarray, label_counts: np.ndarray | None
) -> tuple[int, float]:
    """Return number of rows and noise scale; refuse a table that no such rows can give."""
    n_samples, noise_scale = facts["n_samples"], facts["noise_scale"]
    if not (type(n_samples) is int and 1 <= n_samples <= LARGEST_COUNT):
        raise ValueError(f"n_samples of the sketch is {_short(n_samples)}, which cannot be.")
    if not (is_number(noise_scale) and 0 <= noise_scale <= _LARGEST_NOISE):
        raise ValueError(f"noise_scale of the sketch is {_short(noise_scale)}, which cannot be.")
    # No entry of the strategy matrix exceeds 1.
    reached = np.abs(statistic).max(axis=(1, 2))
    most = n_samples if label_counts is None else label_counts
    if not (reached <= most + _NOISE_REACH * noise_scale).all():
        raise ValueError(
            "The table of the sketch holds values that its rows and its noise cannot reach."
        )
    return n_samples, float(noise_scale)


def _check_widths(arrays: dict[str, np.ndarray], bounds: DataBounds) -> None:
    """Refuse directions and ranges that no sketch with these bounds has."""
    if not 1 / _LARGEST_RADIUS <= bounds.radius <= _LARGEST_RADIUS:
        raise ValueError("The radius of the bounds of the sketch is out of range.")
    directions = arrays["directions_"]
    lengths = np.linalg.norm(np.clip(directions, -2, 2), axis=1)
    if not np.allclose(lengths, 1, rtol=0, atol=_ROUNDING):
        raise ValueError("The directions of the sketch do not have unit length.")
    widths = projection_half_widths(bounds, directions)
    if not np.allclose(arrays["half_widths_"], widths, rtol=_ROUNDING, atol=0):
        raise ValueError("The binned ranges of the sketch do not follow from its bounds.")


def _box(bounds: DataBounds) -> tuple[np.ndarray, np.ndarray]:
    """Return the limits of the features that were declared."""
    side = bounds.scale * (bounds.radius / math.sqrt(bounds.n_features))
    low, high = bounds.center - side, bounds.center + side
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError("The bounds of the sketch are not finite.")
    return low, high


def _read_parameters(
    given: dict[str, Any], arrays: dict[str, np.ndarray], label_counts: np.ndarray | None
) -> dict[str, Any]:
    given = _PRIVATE_LABELS | given
    if set(given) != set(_PARAMETERS):
        raise ValueError("The sketch lacks an entry among its parameters, or has an unknown one.")
    parameters = {name: given[name] for name in _PARAMETERS}
    check_epsilon_delta(parameters["epsilon"], parameters["delta"], "sketch")
    norm_bound = parameters["norm_bound"]
    if not (norm_bound is None or (is_number(norm_bound) and 0 < norm_bound < math.inf)):
        raise ValueError("norm_bound of the sketch must be a positive number or nothing.")
    if _is_true(parameters["conditional"]) != ("classes_" in arrays):
        raise ValueError("A sketch has classes exactly if it is conditional.")
    public = _is_true(parameters["public_labels"])
    if public != (label_counts is not None) or (public and "classes_" not in arrays):
        raise ValueError("A sketch knows the sizes of its classes exactly if labels are public.")
    group_size, most = parameters["group_size"], len(arrays["statistic_"]) if public else 1
    if not (type(group_size) is int and 1 <= group_size <= most):
        raise ValueError("group_size of the sketch must be 1 up to the number of public labels.")
    return parameters | {"slices": arrays["directions_"], "n_bins": arrays["statistic_"].shape[-1]}


def _check_statement(
    spent: PrivacySpent, noise_scale: float, statistic: np.ndarray, parameters: dict[str, Any]
) -> None:
    """Refuse a statement that promises more than its own events and noise give."""
    tables = list(leaves(spent.event))
    charged = mu_of_choice(spent)
    kinds = (GaussianEvent, NonPrivateEvent)
    if charged is None and not all(type(event) in kinds for event in tables):
        raise ValueError("A sketch is released by Gaussian events only.")
    if spent.relation is not Relation.REPLACE_ONE:
        raise ValueError("A sketch is private under replace-one, and states no other relation.")
    if any(isinstance(event, NonPrivateEvent) for event in tables):
        if math.isfinite(spent.epsilon):
            raise ValueError("The sketch states a finite epsilon for a release without noise.")
        return
    check_cost(spent, "sketch")
    table = tables[-1]
    strategy = square_root_strategy(statistic.shape[2])
    due = table_sensitivity(
        strategy,
        statistic.shape[1],
        changes_table=parameters["conditional"] and not parameters["public_labels"],
        group_size=parameters["group_size"],
    )
    if charged is not None:
        if due > noise_scale * charged * (1 + _ROUNDING):
            raise ValueError("The noise of the sketch is less than its statement speaks of.")
        return  # the lattice of the noise is not a part of such a statement
    if not (
        isinstance(table, GaussianEvent)
        and table.n_steps == 1
        and table.sensitivity >= due * (1 - _ROUNDING)
        and noise_scale >= table.sigma * (1 - _ROUNDING)
        and math.isclose(_number(spent.sigma), table.sigma, rel_tol=_ROUNDING)
        and math.isclose(_number(spent.sensitivity), table.sensitivity, rel_tol=_ROUNDING)
    ):
        raise ValueError("The noise of the sketch is not the one that its statement speaks of.")
    _check_lattice(table.lattice, strategy.lattice, statistic)


def _check_lattice(lattice: float | None, coarsest: float, statistic: np.ndarray) -> None:
    """Refuse a table that is not on the lattice of its noise, or noise on none.

    What is off the lattice did not come out of the sampler whose noise is charged. In a sum of
    several sketches the stated lattice is that of the least noise, and so the finest.
    """
    steps = coarsest / lattice if lattice is not None else 0.0
    if not (1 <= steps < math.inf and math.frexp(steps)[0] == 0.5):
        raise ValueError("The sketch states noise on a lattice that no sketch has.")
    units = statistic * (steps / coarsest)
    if not (np.rint(units) == units).all():
        raise ValueError("The table of the sketch holds values off the lattice of its noise.")


def _number(scale: Any) -> float:
    return float(scale)


def _is_true(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("a truth value is due")
    return value


def _short(value: Any) -> str:
    """Quote what was given, and not much of it."""
    return f"{value!r:.40}"


def _as_list(counts: np.ndarray | None) -> list[int] | None:
    return None if counts is None else counts.tolist()


def _as_text(values: np.ndarray, name: str) -> np.ndarray:
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} holds objects that are not strings and cannot be saved.")
    return values.astype(str)
