r"""What an attacker reads in the releases of a fit: who adds what to which of them.

Each estimator's noisy releases are public in the sense of its ε, so that the attacker reads them
rather than the model. All that are sums over records say themselves what a record adds; here is
what an estimator makes of rows before a mechanism gets them, and the two attacks that are not
linear: on noisy rows in random order (`skdpot.audit.attacks`), and on exact medians.

What noisy projections of rows say about canaries.

A step of the row mechanisms projects a batch of k of the n rows on directions θ_j, adds noise to
every number and sorts the numbers of each direction, so that nobody knows which of them belong
together. What the attacker can ask is whether one of the k numbers of each direction comes from
the candidate a, while the others come from the mixture :math:`f_j` of all other candidates, known
rows and members of pairs by half:

.. math:: R(a) = \sum_j \log \frac1k \sum_{l=1}^k
          \frac{φ_σ(v_{jl} - ⟨a, θ_j⟩)}{f_j(v_{jl})},

the logarithm of the likelihood of the batch with a, divided by that of one without. A row is in
a batch with probability p = k / n, so that the score of a pair is

.. math:: \sum_{\text{steps}} \log \frac{1 - p + p\,e^{R(\text{first})}}
          {1 - p + p\,e^{R(\text{second})}}.

A batch of one row is not torn apart by sorting: its numbers are one point in as many dimensions
as there are directions. Without noise the numbers are exact, and whoever is in the batch is found
in it.

Which settings have teeth. Sorted among n noisy numbers, one record is only as visible as in
their sum, where it drowns in the noise of all: :math:`\sqrt n` times weaker than what is charged.
Guesses of one run over a thousand canaries therefore cannot tell that "presample", or a "resample"
with batches of hundreds, has ten times less noise than it claims, only that there is none; batches
of one row (``batch_size=1``) show it. The sum of squares of the numbers, which no sorting changes,
shows the noise itself.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch

from skdpot._utils.validation import encode_labels
from skdpot.audit.canaries import AuditedFit, NoKnownAttackError, Score, maker_of
from skdpot.audit.matched_filter import EvidenceSum
from skdpot.nets.fair_training import network_outputs
from skdpot.nets.networks import to_network_units
from skdpot.nets.noisy_sums import at_parameters
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.recording import Records, Release
from skdpot.slicing.rows import ProjectedRows, SmoothedProjections, project_rows
from skdpot.slicing.sketch import SlicedSketch

RecordsOf: TypeAlias = Callable[[Release], Records | None]

_NEAREST = 24  # values to a median, that are tried as one of the two middle ones
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
    if not (maker_of(audited.fitted) or any(release.linear for release in audited.releases)):
        name = type(audited.fitted).__name__
        raise NoKnownAttackError(f"No attack on {name} is known: give canaries= and score=.")
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
            evidence.check_part(part, release.kind, len(there))


def _given(audited: AuditedFit) -> Iterator[tuple[Release, Records | None]]:
    """Yield each release with all candidates as its mechanism was given them, if that is known."""
    (rows, labels), fitted, counted = audited.candidates, audited.fitted, audited.candidates[0]
    sketch = None if hasattr(fitted, "_axis") else _sketch(fitted)
    if any("cells" in release.facts for release in audited.releases):
        records, counted = _fair(audited), np.asarray(labels).reshape(len(rows), -1)
    elif hasattr(fitted, "model_"):
        records = _table(audited)
    else:
        records = _paths(audited) if hasattr(fitted, "_axis") else _network_rows(audited)
    whole = len(audited.X) + len(audited.pairs), counted.shape[1]
    merged = False
    for release in audited.releases:
        if release.kind == "histogram":  # of a part of the data, or of something else, is not read
            numbers = counted if counted is rows else counted.astype(float)
            yield release, (numbers,) if release.facts["counting"].shape == whole else None
        elif release.kind != "sketch" or sketch is None:
            yield release, records(release)
        elif not merged:  # what was published may be the sum of several
            table, sigma = np.array(sketch.statistic_), sketch.noise_scale_
            labelled = labels is not None and hasattr(sketch, "classes_")
            codes = encode_labels(labels, len(rows), sketch.classes_)[0] if labelled else None
            yield replace(release, value=table, sigma=sigma), (rows, codes)
            merged = True


def _sketch(fitted: Any) -> SlicedSketch | None:
    """Return the sketch that something fitted published."""
    while not isinstance(fitted, SlicedSketch | None):
        fitted = getattr(fitted, "estimator_", None) or getattr(fitted, "sketch_", None)
    return fitted


def _paths(audited: AuditedFit) -> RecordsOf:
    """Return rows and the numbers of their times, for the releases of trajectories."""
    (rows, stamps), fitted = audited.candidates, audited.fitted
    times = fitted._axis.positions(np.asarray(stamps))
    mapped = to_network_units(fitted.bounds_, rows)
    return lambda release: (rows if release.kind == "sketch" else mapped, times)


def _network_rows(audited: AuditedFit) -> RecordsOf:
    """Return rows and labels, or for a network rows in its units and their groups, if any.

    Groups are those that have batches of their own.
    """
    rows, labels = audited.candidates

    def records(release: Release) -> Records:
        if release.kind != "gradient":
            return rows, labels
        mapped = to_network_units(audited.fitted.bounds_, rows.astype(np.float64))
        of_fit = np.zeros(len(audited.X) + len(audited.pairs), dtype=np.intp)
        if len(release.facts["plan"].group_sizes) > 1:
            groups = np.asarray(audited.fit_params["sensitive_features"])
            of_fit = np.unique(groups, return_inverse=True)[1].astype(np.intp)
        codes = audited.of_candidates(of_fit)
        if "loss" not in release.facts:  # a generator compares points
            return mapped, codes
        return torch.from_numpy(mapped).to(torch.float32), codes

    return records


def _fair(audited: AuditedFit) -> RecordsOf:
    """Return rows, targets, values and cells, for the releases of a fair predictor."""
    fitted, releases = audited.fitted, audited.releases
    first = next(release for release in releases if release.kind == "gradient")
    rows, labels = audited.candidates
    given = np.asarray(labels)
    codes = audited.of_candidates(first.facts["cells"].codes)
    if hasattr(fitted, "classes_"):
        targets = encode_labels(given, len(given), fitted.classes_)[0]
    else:
        targets = to_network_units(fitted.target_bounds_, given.reshape(len(given), -1))
    X = torch.from_numpy(rows).to(torch.from_numpy(first.facts["parameters"][0]).dtype)
    y = torch.from_numpy(targets)
    values: np.ndarray | None = None

    def records(release: Release) -> Records | None:
        nonlocal values
        if release.kind == "gradient":
            return X, y, values, codes
        if release.kind == "class_count":
            return (targets,)
        if release.kind != "table":
            return None
        later = releases[releases.index(release) :]
        step = next((step for step in later if step.kind == "gradient"), None)
        if step is None:  # of a threshold
            outputs = network_outputs(fitted.network_, X.to(torch.float32))
            return outputs[:, :1].sigmoid().numpy() - 0.5, np.zeros(len(codes), dtype=np.intp)
        outputs = network_outputs(at_parameters(fitted.network_, step.facts["parameters"]), X)
        values = step.facts["loss"].compared.values(outputs).numpy()
        return values, codes

    return records


def _table(audited: AuditedFit) -> RecordsOf:
    """Return cells of columns for the first counts of a table, and then bins of these cells."""
    fitted, (rows, _) = audited.fitted, audited.candidates
    cells = np.stack([grid.codes(rows[:, j]) for j, grid in enumerate(fitted._grids)], axis=1)
    bins = fitted.model_.bins
    binned = np.stack([found.bins[cells[:, j]] for j, found in enumerate(bins)], axis=1)
    counts = [r for r in audited.releases if r.kind in ("marginals", "misfits")]

    def records(release: Release) -> Records | None:
        if release.kind not in ("marginals", "misfits"):
            return None
        return (cells if release is counts[0] else binned,)

    return records


def _found_in_medians(audited: AuditedFit) -> np.ndarray:
    """Count how often each record is the exact median of a feature, or one of the middle two."""
    (rows, _), m, medians = audited.candidates, len(audited.pairs), audited.fitted.center_
    evidence = np.zeros(len(rows))
    is_odd = (len(audited.X) + m) % 2 == 1
    for median, column in zip(() if medians is None else medians, rows.T, strict=False):
        near = np.argsort(np.abs(column - median), kind="stable")[:_NEAREST]
        values = column[near]
        room = _SAME * max(float(np.abs(values).max()), 1e-300)
        if is_odd:
            found = near[np.abs(values - median) <= room]
        else:
            means = (values[:, None] + values) / 2
            found = near[np.argwhere(np.triu(np.abs(means - median) <= room, 1)).ravel()]
        np.add.at(evidence, found, 1.0 / max(len(found), 1))
    return evidence[-2 * m : -m] - evidence[-m:]


# Single precision holds the released numbers: what lies nearer than this is the same.
_RESOLUTION = 2.0**-20
_CELLS_A_SIGMA = 16
# Beside a density of 1 at the peak of a kernel.
_FLOOR = 1e-12
_SMALLEST = 1e-300
_SWEEPS = 2


def add_rows(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add how likely each record is to be among the released projections."""
    releases = [release for release in audited.releases if release.kind == "rows"]
    bounds: DataBounds = releases[0].facts["bounds"]
    noise = float(np.max(releases[0].sigma))
    sigma = max(noise, _RESOLUTION * bounds.radius)
    pairs, n_rows = audited.pairs, len(audited.X) + len(audited.pairs)
    candidates = bounds.to_ball(np.concatenate([pairs.first, pairs.second, audited.X]))
    first_shares = np.full(len(pairs), 0.5)
    batches = SmoothedProjections(tuple(releases)).batches
    for _ in range(_SWEEPS):
        # What one look at all steps tells of the others makes the mixture sharper in the next.
        ratios = np.zeros(len(pairs))
        for batch in batches:
            places = project_rows(candidates, batch.directions, bounds.radius) * bounds.radius
            ratios += _of_batch(batch, places, first_shares, sigma, n_rows)
        first_shares = 1.0 / (1.0 + np.exp(-np.clip(ratios, -30.0, 30.0)))
    evidence.add_scores(ratios)
    if evidence.heads is None:
        return
    rows = bounds.to_ball(np.concatenate([audited.X, pairs.choose(evidence.heads)[0]]))
    for batch in batches:
        # Sorting keeps sums of squares: about the mean of all rows, which are less than the noise.
        exact = project_rows(rows, batch.directions, bounds.radius) * bounds.radius
        middle = exact.mean(axis=1, keepdims=True)
        energy = float(np.sum(np.square(batch.values - middle, dtype=np.float64)))
        hidden = float(np.sum(np.square(exact - middle))) * batch.values.shape[1] / len(rows)
        evidence.check("rows", energy, batch.values.size, noise, hidden)


def _of_batch(
    batch: ProjectedRows, places: np.ndarray, first_shares: np.ndarray, sigma: float, n_rows: int
) -> np.ndarray:
    """Return the logarithm of the likelihood ratio of each pair, given one batch."""
    m, size = len(first_shares), batch.values.shape[1]
    shares = np.ones(places.shape[1])
    shares[:m], shares[m : 2 * m] = first_shares, 1.0 - first_shares
    present = np.zeros((2, m))
    for kernel, weights in _kernels(batch, places, sigma):
        pairs = kernel[: 2 * m].reshape(2, m, -1)
        # The mixture of all records but those of the pair itself.
        own = np.einsum("sm,smk->mk", shares[: 2 * m].reshape(2, m), pairs)
        others = np.maximum(shares @ kernel - own, 0.0) / max(n_rows - 1, 1)
        ratios = np.einsum("smk,mk->sm", pairs, weights / size / (others + _FLOOR))
        present += np.log(ratios + _SMALLEST)
    if size >= n_rows:
        return present[0] - present[1]
    rate = size / n_rows
    likelihoods = np.logaddexp(np.log1p(-rate), np.log(rate) + present)
    return likelihoods[0] - likelihoods[1]


def _kernels(
    batch: ProjectedRows, places: np.ndarray, sigma: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield densities of the released points about each candidate, and how many points there are.

    One array of shape (n_candidates, n_points) a direction; a single one for a batch of one row.
    """
    if batch.values.shape[1] == 1:
        squares = np.sum((batch.values - places) ** 2, axis=0)
        squares -= squares.min()
        yield np.exp(-squares[:, None] / (2.0 * sigma**2)), np.ones(1)
        return
    cell = sigma / _CELLS_A_SIGMA
    for values, place in zip(batch.values, places, strict=True):
        points, counts = values.astype(np.float64), np.ones(len(values))
        if np.ptp(points) < cell * len(points):  # fewer cells of a fine grid than points
            cells, number = np.unique(np.rint(points / cell), return_counts=True)
            points, counts = cells * cell, number.astype(np.float64)
        yield np.exp(-(((points - place[:, None]) / sigma) ** 2) / 2.0), counts
