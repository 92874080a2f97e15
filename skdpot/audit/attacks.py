"""What an attacker reads in the releases of a fit: who adds what to which of them.

Each estimator's noisy releases are public in the sense of its ε, so that the attacker reads them
rather than the model. All that are sums over records say themselves what a record adds; here is
what an estimator makes of rows before a mechanism gets them, and the two attacks that are not
linear: on noisy rows in random order (`skdpot.audit.noisy_rows`), and on exact medians.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from skdpot._utils.labels import encode_labels
from skdpot.audit.audited_fit import AuditedFit, Score
from skdpot.audit.canaries import NoKnownAttackError, is_known
from skdpot.audit.matched_filter import EvidenceSum
from skdpot.audit.noisy_rows import add_rows
from skdpot.nets.fair_training import network_outputs
from skdpot.nets.networks import to_network_units
from skdpot.nets.noisy_step import at_parameters
from skdpot.privacy.recording import Records, Release
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["default_score", "evidence_of"]

_NEIGHBOURS = 12  # on either side of a median, that are tried as one of the two middle values
_SAME = 1e-12


def default_score(fitted: Any) -> Score:
    """Return the white-box score of a fitted estimator.

    Parameters
    ----------
    fitted : estimator
        A fitted estimator of this package.

    Returns
    -------
    callable
        For `one_run_audit` and `gaussian_audit`.

    Notes
    -----
    An estimator of your own is scored by those of its releases that have a linear map, which is
    given the rows and labels of `fit`. A ValueError says so if there is none.
    """
    return lambda audited: evidence_of(audited).scores()


def evidence_of(audited: AuditedFit, heads: np.ndarray | None = None) -> EvidenceSum:
    """Gather what the releases of an audited fit say of the coins, and of their noise.

    Noise is checked if the coins are given, which change no score.
    """
    if not (is_known(audited.fitted) or any(release.linear for release in audited.releases)):
        raise NoKnownAttackError(
            f"No attack on {type(audited.fitted).__name__} is known, and nothing that it releases "
            "says what a record adds to it: give canaries= (CanaryPairs) and score= yourself."
        )
    evidence = EvidenceSum(len(audited.pairs), heads)
    shares, there = audited.shares, None
    if heads is not None:
        n_pairs, n_known = len(heads), len(audited.X)
        chosen = n_known + np.arange(n_pairs) + np.where(heads, 0, n_pairs)
        there = np.concatenate([np.arange(n_known), chosen])
    for release, records in audited.watched(_given(audited), "releases"):
        n_checks = len(evidence.checks)
        if records is not None:
            _add(evidence, release, records, shares, there)
        seen = len(evidence.checks) > n_checks or release.kind == "rows"
        if heads is not None and np.max(release.sigma) > 0.0 and not seen:
            evidence.unseen.append(release.kind)
    kinds = {release.kind for release in audited.releases}
    if "rows" in kinds:
        add_rows(evidence, audited)
    elif not kinds and hasattr(audited.fitted, "center_"):
        evidence.add_scores(_found_in_medians(audited))
    return evidence


def _add(
    evidence: EvidenceSum,
    release: Release,
    records: Records,
    shares: np.ndarray,
    there: np.ndarray | None,
) -> None:
    """Add a release, and check its noise."""
    inexact = False
    for part in release.parts(records, shares):
        evidence.add_part(part, shares, release.kind)
        inexact |= not part.exact
    if there is None or np.max(release.sigma) == 0.0:
        return
    if inexact or release.kind == "misfits":
        of_fit = tuple(None if of is None else of[there] for of in records)
        for part in release.parts(of_fit, np.ones(len(there))):
            evidence.check_part(part, release.kind)


def _given(audited: AuditedFit) -> Iterator[tuple[Release, Records | None]]:
    """Yield each release with all candidates as its mechanism was given them, if that is known."""
    if any("cells" in release.facts for release in audited.releases):
        return _fair(audited)
    if hasattr(audited.fitted, "model_"):
        return _table(audited)
    return _paths(audited) if hasattr(audited.fitted, "_axis") else _rows(audited)


def _rows(audited: AuditedFit) -> Iterator[tuple[Release, Records | None]]:
    """Yield releases with rows, and labels, or what a sketch or a network makes of them."""
    (rows, labels), sketch, merged = audited.candidates, _sketch(audited.fitted), False
    for release in audited.releases:
        if release.kind == "histogram":
            yield release, _counted(audited, release, rows)
        elif release.kind == "gradient":
            yield release, _network_rows(audited, release, rows)
        elif release.kind == "sketch" and sketch is not None:
            if not merged:  # what was published may be the sum of several
                table, sigma = np.array(sketch.statistic_), sketch.noise_scale_
                yield replace(release, value=table, sigma=sigma), (rows, _codes(sketch, labels))
            merged = True
        else:
            yield release, (rows, labels)


def _paths(audited: AuditedFit) -> Iterator[tuple[Release, Records | None]]:
    """Yield the releases of trajectories with rows and the numbers of their times."""
    (rows, stamps), fitted = audited.candidates, audited.fitted
    times = fitted._axis.positions(np.asarray(stamps))
    for release in audited.releases:
        if release.kind == "histogram":
            yield release, _counted(audited, release, rows)
        elif release.kind == "sketch":
            yield release, (rows, times)
        else:
            yield release, (to_network_units(fitted.bounds_, rows), times)


def _counted(audited: AuditedFit, release: Release, rows: np.ndarray) -> Records | None:
    """Return rows for a histogram, unless it is of a part of the data or of something else."""
    shape = len(audited.X) + len(audited.pairs), rows.shape[1]
    return (rows,) if release.facts["counting"].shape == shape else None


def _sketch(fitted: Any) -> SlicedSketch | None:
    """Return the sketch that something fitted published."""
    while not isinstance(fitted, SlicedSketch | None):
        fitted = getattr(fitted, "estimator_", None) or getattr(fitted, "sketch_", None)
    return fitted


def _codes(sketch: SlicedSketch, labels: np.ndarray | None) -> np.ndarray | None:
    """Return the classes of records as a sketch numbers them."""
    if labels is None or not hasattr(sketch, "classes_"):
        return None
    codes: np.ndarray = encode_labels(labels, len(labels), sketch.classes_)[0]
    return codes


def _network_rows(audited: AuditedFit, release: Release, rows: np.ndarray) -> Records:
    """Return rows in a network's units, and their groups where these have batches of their own."""
    mapped = to_network_units(audited.fitted.bounds_, rows.astype(np.float64))
    plan = release.facts["plan"]
    of_fit = np.zeros(len(audited.X) + len(audited.pairs), dtype=np.intp)
    if len(plan.group_sizes) > 1:
        groups = np.asarray(audited.fit_params["sensitive_features"])
        of_fit = np.unique(groups, return_inverse=True)[1].astype(np.intp)
    codes = audited.of_candidates(of_fit)
    if "loss" not in release.facts:  # a generator compares points
        return mapped, codes
    return torch.from_numpy(mapped).to(torch.float32), codes


def _fair(audited: AuditedFit) -> Iterator[tuple[Release, Records | None]]:
    """Yield the releases of a fair predictor with rows, targets, values and cells."""
    fitted, releases = audited.fitted, audited.releases
    steps = [release for release in releases if release.kind == "gradient"]
    rows, labels = audited.candidates
    given = np.asarray(labels)
    codes = audited.of_candidates(steps[0].facts["cells"].codes)
    if hasattr(fitted, "classes_"):
        targets = encode_labels(given, len(given), fitted.classes_)[0]
    else:
        targets = to_network_units(fitted.target_bounds_, given.reshape(len(given), -1))
    tensors = [torch.from_numpy(np.asarray(rows)), torch.from_numpy(targets)]
    tensors[0] = tensors[0].to(torch.from_numpy(steps[0].facts["parameters"][0]).dtype)
    values = None
    for i, release in enumerate(releases):
        if release.kind == "gradient":
            yield release, (*tensors, values, codes)
        elif release.kind == "table":
            step = next((r for r in releases[i:] if r.kind == "gradient"), None)
            if step is None:  # of a threshold
                outputs = network_outputs(fitted.network_, tensors[0].to(torch.float32))
                of_all = outputs[:, :1].sigmoid().numpy() - 0.5
                yield release, (of_all, np.zeros(len(codes), dtype=np.intp))
            else:
                network = at_parameters(fitted.network_, step.facts["parameters"])
                outputs = network_outputs(network, tensors[0])
                values = step.facts["loss"].compared.values(outputs).numpy()
                yield release, (values, codes)
        elif release.kind == "class_count":
            yield release, (targets,)
        elif release.kind == "histogram":
            yield release, _counted(audited, release, given.astype(float).reshape(len(given), -1))
        else:
            yield release, None


def _table(audited: AuditedFit) -> Iterator[tuple[Release, Records | None]]:
    """Yield the releases of a table: of cells of columns first, and then of bins of them."""
    fitted, (rows, _) = audited.fitted, audited.candidates
    cells = np.stack([grid.codes(rows[:, j]) for j, grid in enumerate(fitted._grids)], axis=1)
    bins = fitted.model_.bins
    binned = np.stack([found.bins[cells[:, j]] for j, found in enumerate(bins)], axis=1)
    columns = True
    for release in audited.releases:
        if release.kind == "histogram":
            yield release, _counted(audited, release, rows)
        elif release.kind in ("marginals", "misfits"):
            yield release, (cells if columns else binned,)
            columns = False
        else:
            yield release, None


def _found_in_medians(audited: AuditedFit) -> np.ndarray:
    """Count how often each record is the exact median of a feature, or one of the middle two."""
    pairs, scaler = audited.pairs, audited.fitted
    m = len(pairs)
    evidence = np.zeros(m + 1)  # the last entry collects known rows
    if scaler.center_ is None:
        return evidence[:m]
    owners = np.concatenate([np.arange(m), np.arange(m), np.full(len(audited.X), m)])
    signs = np.concatenate([np.ones(m), -np.ones(m), np.zeros(len(audited.X))])
    candidates = np.concatenate([pairs.first, pairs.second, audited.X])
    is_odd = (m + len(audited.X)) % 2 == 1
    for median, column in zip(scaler.center_, candidates.T, strict=True):
        found = list(_middle(float(median), column, is_odd))
        for number in found:
            evidence[owners[number]] += signs[number] / len(found)
    return evidence[:m]


def _middle(median: float, column: np.ndarray, is_odd: bool) -> Iterator[int]:
    """Yield the candidates that the median consists of."""
    order = np.argsort(column, kind="stable")
    place = int(np.searchsorted(column[order], median))
    near = order[max(place - _NEIGHBOURS, 0) : place + _NEIGHBOURS]
    values = column[near]
    room = _SAME * max(float(np.abs(values).max(initial=0.0)), 1e-300)
    if is_odd:
        yield from near[np.abs(values - median) <= room]
        return
    first, second = np.nonzero(np.abs((values[:, None] + values) / 2 - median) <= room)
    yield from near[first[first < second]]
    yield from near[second[first < second]]
