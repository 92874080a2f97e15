"""Adding the released tables of parties that hold different people's rows."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from skdpot.privacy.accounting import compose
from skdpot.privacy.events import GaussianEvent

__all__ = ["check_comparable", "merged_fields"]


def check_comparable(sketches: Sequence[Any]) -> None:
    """Raise ValueError unless all sketches measure the same features, directions and bins."""
    first = sketches[0]
    for other in sketches[1:]:
        if not np.array_equal(first.directions_, other.directions_):
            raise ValueError(
                "The sketches have different directions. Draw them once and pass the same array "
                "as slices= to every sketch."
            )
        if first.statistic_.shape[-1] != other.statistic_.shape[-1]:
            raise ValueError(
                f"The sketches have {first.statistic_.shape[-1]} and "
                f"{other.statistic_.shape[-1]} bins; give all the same n_bins."
            )
        if first.bounds_ != other.bounds_ or not np.array_equal(
            first.half_widths_, other.half_widths_
        ):
            raise ValueError(
                "The sketches map their rows with different bounds. Declare the same public "
                "bounds=(low, high) or norm_bound= in all of them."
            )
    names = [sketch.feature_names_in_ for sketch in _named(sketches)]
    if not all(np.array_equal(other, names[0]) for other in names[1:]):
        raise ValueError(
            "The sketches name their features differently. Give the columns the same names, in "
            "the same order."
        )


def _named(sketches: Sequence[Any]) -> list[Any]:
    """Return those sketches whose rows had names of features."""
    return [sketch for sketch in sketches if hasattr(sketch, "feature_names_in_")]


def _same_sensitivity(sketch: Any, other: Any) -> bool:
    """Return whether two sketches are private for as many rows; parameters may have changed."""
    events = (sketch.privacy_spent_.event, other.privacy_spent_.event)
    noisy = [event for event in events if isinstance(event, GaussianEvent)]
    return len({event.sensitivity for event in noisy}) <= 1


def _one_release(first: Any, second: Any) -> bool:
    """Return whether two sketches hold the same noise: no two releases do by chance."""
    noisy = first.noise_scale_ > 0 and second.noise_scale_ > 0
    return first is second or (noisy and np.array_equal(first.statistic_, second.statistic_))


def merged_fields(sketches: Sequence[Any]) -> dict[str, Any]:
    """Return the fitted attributes of the sum of disjoint sketches.

    By parallel composition a person is protected by the sketch of the party that holds
    their row, so the statement is that of the party whose event is the least private: the
    largest mu. The largest epsilon would not do, as parties may state different deltas.
    """
    first = sketches[0]
    if any(_one_release(*pair) for pair in combinations(sketches, 2)):
        raise ValueError("merge was given one sketch twice; the parties must be disjoint.")
    for sketch in sketches:
        if isinstance(sketch.bounds, str) and sketch.norm_bound is None:
            raise ValueError(
                'merge needs bounds that were declared: a sketch with bounds="private" has '
                "bounds of its own. Give all parties the same bounds=(low, high) or norm_bound=."
            )
        none = np.array([])
        if not np.array_equal(getattr(first, "classes_", none), getattr(sketch, "classes_", none)):
            raise ValueError("The sketches have different classes; declare the same classes=.")
        if hasattr(sketch, "_label_counts") != hasattr(first, "_label_counts"):
            raise ValueError(
                "Labels are public in some of the sketches and private in others; give all the "
                "same public_labels."
            )
        if sketch.group_size != first.group_size or not _same_sensitivity(sketch, first):
            raise ValueError(
                "The sketches assume different numbers of rows of one person; give all the largest "
                "group_size."
            )
    statement = max(
        (s.privacy_spent_ for s in sketches),
        key=lambda spent: compose(spent.event).mu_without_sampling,
    )
    fields = {
        name: getattr(first, name)
        for name in (
            "bounds_",
            "classes_",
            "directions_",
            "half_widths_",
            "n_features_in_",
        )
        if hasattr(first, name)
    }
    if named := _named(sketches):
        fields["feature_names_in_"] = named[0].feature_names_in_
    if hasattr(first, "_label_counts"):
        fields["_label_counts"] = sum(s._label_counts for s in sketches)
    return fields | {
        "noise_scale_": math.hypot(*(s.noise_scale_ for s in sketches)),
        "n_samples_": sum(s.n_samples_ for s in sketches),
        "privacy_spent_": statement,
        "statistic_": sum(s.statistic_ for s in sketches),
    }
