"""Names for the phases of a fit in a privacy report, and its sizes, from public facts alone."""

from collections.abc import Iterator, Sequence
from typing import Any

from skdpot.audit.report.words import event_in_words, single_events
from skdpot.privacy.event_base import Event
from skdpot.privacy.events import ComposedEvent, GaussianEvent, PrivateSelectionEvent
from skdpot.privacy.spent import PrivacySpent

__all__ = ["known_sizes", "releases_in_words"]

_OF_TABLES = (
    "Counts of each column",
    "How far pairs of columns are from independent",
    "Counts of pairs that form a tree",
    "How far other pairs are from what the tree says",
    "Counts of the pairs that it gets worst",
)


def releases_in_words(parts: Sequence[tuple[str, Any]], spent: PrivacySpent) -> tuple[str, ...]:
    """Say what touched private data, a sentence for each phase, with its name.

    Parameters
    ----------
    parts : sequence of (str, estimator)
        Fitted private estimators.
    spent : PrivacySpent
        Their statement together.

    Returns
    -------
    tuple of str
        In the order of the phases.
    """
    sentences = event_in_words(spent.event)
    names = [
        ": ".join(filter(None, (name if len(parts) > 1 else "", phase)))
        for name, part in parts
        for phase in _phases(part)
    ]
    if len(names) != len(sentences):  # one fit that occurs twice, or an event of somebody else
        return sentences
    return tuple(
        f"{name}: {sentence}" if name else sentence
        for name, sentence in zip(names, sentences, strict=True)
    )


def _phases(part: Any) -> Iterator[str]:
    """Yield the names of the phases of one fit, empty where there is one phase."""
    event = part.privacy_spent_.event
    if not isinstance(event, ComposedEvent):
        yield ""
        return
    rest = list(event.events)
    if isinstance(rest[0], PrivateSelectionEvent):
        yield from ("The search", "The refit of the winner")
        return
    if type(part).__name__ == "PrivateScaler" and len(rest) == 2:
        yield from ("Histograms of pair distances", "Histograms of values")
        return
    if hasattr(part, "marginals_"):
        counted = list(_OF_TABLES[: 1 if len(part.schema_) == 1 else None])
        found = len(list(single_events(event))) - len(counted)
        yield from ["Finding bounds and categories"] * found + counted
        return
    if _finds_bounds(part) and len(rest) > 1:
        of_what = "the targets" if hasattr(part, "target_bounds") else "the rows"
        yield from [f"Finding the bounds of {of_what}"] * len(list(single_events(rest.pop(0))))
    while rest and isinstance(rest[-1], ComposedEvent):
        rest[-1:] = rest[-1].events
    before = rest[:-1]
    if hasattr(part, "groups_") or hasattr(part, "threshold_"):
        yield from _of_outputs(part, len(before))
        yield "Training"
        return
    if getattr(part, "warm_start", None) is not None and before:
        before = before[1:]
        yield "Warm start"
    main = _main_release(part, rest[-1])
    yield from [f"{main}, phase {i}" for i in range(1, len(before) + 1)]
    yield f"{main}, phase {len(before) + 1}" if before else main


def _of_outputs(part: Any, n_phases: int) -> list[str]:
    """Name the releases of a fair predictor's outputs."""
    names = ["Outputs of each group, compared while training"]
    if getattr(part, "tune_threshold", False):
        of_threshold = ["Range of the outputs, for the threshold", "Outputs in that range"]
        if part.groups_ is None or part.fairness == "statistical_parity":
            of_threshold.append("Records of the second class")
        names = of_threshold + names
    return names[:n_phases]


def _finds_bounds(part: Any) -> bool:
    """Whether a fit found bounds with noise before anything else."""
    if getattr(part, "target_bounds", None) == "private":
        return True
    bounds = getattr(part, "bounds", None)
    private = isinstance(bounds, str) and bounds == "private"
    return private and getattr(part, "norm_bound", None) is None


def _main_release(part: Any, event: Event) -> str:
    """Name what a fit is for."""
    if hasattr(part, "releases_"):
        return "Noisy rows"
    if isinstance(event, GaussianEvent):
        return "Distribution functions"
    return "Gradients"


def known_sizes(
    parts: Sequence[tuple[str, Any]], spent: PrivacySpent
) -> tuple[int | None, int | None]:
    """Return the public numbers of records and of features.

    Parameters
    ----------
    parts : sequence of (str, estimator)
        Fitted private estimators.
    spent : PrivacySpent
        Their statement together.

    Returns
    -------
    n_samples : int or None
        None where neither a part nor its event keeps it.
    n_features : int or None
        Of the first part.
    """
    known = [part.n_samples_ for _, part in parts if hasattr(part, "n_samples_")]
    for event in single_events(spent.event):
        known += [sum(event.group_sizes)] if hasattr(event, "group_sizes") else []
        known += [event.n_samples] if hasattr(event, "n_samples") else []
    features = [part.n_features_in_ for _, part in parts if hasattr(part, "n_features_in_")]
    return int(min(known)) if known else None, int(features[0]) if features else None
