r"""Canaries for fair predictors, and what noisy gradients and tables of their training say.

A record's gradient of the loss is its features times what its output lacks of the target. So the
strongest pair has the same features, long enough to be clipped, and opposite targets: its two
gradients are opposite. Where classes are public, under equalised odds, features are opposite in
their place. Canaries can be told apart if the network has more parameters than there are of them:
for the linear network more features. The learning rate should be small (a network that has fitted
the canaries gives those of the right class no gradient), and batches large. With ranks the noise
pays for more than a record moves, the more the larger alpha. Tables of outputs, and those of a
tuned threshold or of private bounds of the targets, count all records, along few directions and
in few bins: they show little of one among hundreds, but what they show is counted too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from skdpot._utils.labels import encode_labels
from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.canaries import CanaryPairs, CanaryRequest
from skdpot.audit.evidence.contributions import (
    Contributions,
    Crowd,
    at_parameters,
    crowd_of_audit,
    gradients_by_parameter,
    of_vectors,
    public_facts_of_pairs,
)
from skdpot.audit.evidence.histograms import add_histograms
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.nets.fair_training import FairLoss, LocalPenalty, Records, network_outputs
from skdpot.nets.networks import to_network_units
from skdpot.nets.output_tables import OutputTables
from skdpot.nets.parity import Cells
from skdpot.privacy.recording import Release
from skdpot.slicing.directions import orthogonal_directions
from skdpot.slicing.histogram import count_projections

__all__ = ["add_fair", "fair_canaries"]

_LENGTH = 4.0  # of the features of a canary, in units of the clip of the loss: clipped for sure


def fair_canaries(request: CanaryRequest) -> CanaryPairs:
    """Make pairs of one group each: of opposite targets, or of opposite features.

    Classes are those of `y`, targets its smallest and largest, or the declared bounds.
    """
    estimator, n_pairs = request.estimator, request.n_pairs
    X, y, rng = request.X, request.y, request.rng
    if y is None or np.ndim(y) != 1:
        raise ValueError("y must be an array of shape (n_samples,): classes, or a single target.")
    rows = _LENGTH * estimator.clip_loss * orthogonal_directions(n_pairs, X.shape[1], rng)
    facts = public_facts_of_pairs(n_pairs, request.fit_params, rng)
    if estimator.fairness == "equalized_odds" and estimator.alpha > 0 and facts:
        same = rng.choice(np.unique(np.asarray(y)), size=n_pairs)
        return CanaryPairs(
            first=rows, second=-rows, first_labels=same, second_labels=same, fit_params=facts
        )
    first, second = _opposite_targets(estimator, np.asarray(y), n_pairs, rng)
    return CanaryPairs(
        first=rows, second=rows.copy(), first_labels=first, second_labels=second, fit_params=facts
    )


def _opposite_targets(
    estimator: Any, y: np.ndarray, n_pairs: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two different classes, or the ends of the range of the target in random order."""
    bounds = getattr(estimator, "target_bounds", None)
    if bounds is None:
        choices = np.unique(y)
    elif isinstance(bounds, str):
        choices = np.array([y.min(), y.max()])
    else:
        choices = np.array([np.min(bounds[0]), np.max(bounds[1])])
    own = rng.integers(len(choices), size=n_pairs)
    other = (own + rng.integers(1, len(choices), size=n_pairs)) % len(choices)
    return choices[own], choices[other]


@dataclass(frozen=True, eq=False)
class _Candidates:
    """All candidates, as the training sees them."""

    crowd: Crowd
    records: Records
    classes: np.ndarray | None

    def cells_like(self, cells: Cells) -> Cells:
        """Return the cells of the candidates; the sizes are those of the data."""
        return replace(cells, codes=self.crowd.codes)


def add_fair(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add all noisy gradients and tables.

    With ranks, which compare the outputs of a batch, a record's own term is taken, among known
    rows and both records of all pairs.
    """
    steps = [release for release in audited.releases if release.kind == "gradient"]
    candidates = _candidates(audited, steps[0])
    _add_target_bounds(evidence, audited)
    tables: list[Release] = []
    local: LocalPenalty | None = None
    for release in audited.watched(audited.releases, "steps"):
        if release.kind == "table":
            tables.append(release)
        if release.kind != "gradient":
            continue
        facts = release.facts
        network = at_parameters(audited.fitted.network_, facts["parameters"])
        if tables:  # of the network of this step
            values = _values(facts["loss"], network, candidates.records.rows)
            local = _local(facts["tables"], values, candidates, facts["cells"])
            _add_tables(evidence, tables, values, candidates, candidates.crowd.codes)
            tables = []
        own = _contributions(facts, network, candidates, local)
        gradient = gradients_by_parameter(network, release.value)
        ranked = partial(_of_present, facts, network, candidates) if "penalty" in facts else None
        candidates.crowd.add_step(evidence, own, gradient, facts, facts["plan"], ranked)
    _add_tuning(evidence, tables, audited, candidates)


def _candidates(audited: AuditedFit, step: Release) -> _Candidates:
    fitted, facts = audited.fitted, step.facts
    rows, labels, _ = audited.rows_and_weights()
    given = np.asarray(labels)
    if hasattr(fitted, "classes_"):
        classes = encode_labels(given, len(given), fitted.classes_)[0]
        targets = classes
    else:
        classes = None
        targets = to_network_units(fitted.target_bounds_, given.reshape(len(given), -1))
    dtype = torch.from_numpy(facts["parameters"][0]).dtype
    records = Records(torch.from_numpy(np.asarray(rows)).to(dtype), torch.from_numpy(targets))
    cells: Cells = facts["cells"]
    crowd = crowd_of_audit(audited, cells.codes if len(cells.sizes) > 1 else None)
    return _Candidates(crowd, records, classes)


def _values(loss: FairLoss, network: nn.Module, rows: torch.Tensor) -> np.ndarray:
    values: np.ndarray = loss.compared.values(network_outputs(network, rows)).numpy()
    return values


def _local(
    tables: OutputTables, values: np.ndarray, candidates: _Candidates, cells: Cells
) -> LocalPenalty:
    return LocalPenalty.of_release(tables, values, candidates.cells_like(cells))


def _contributions(
    facts: Mapping[str, Any],
    network: nn.Module,
    candidates: _Candidates,
    local: LocalPenalty | None,
) -> Contributions:
    """Return what each record adds to `FairLoss.joint_sum` or `FairLoss.ranked_sum`."""
    loss, records, crowd = facts["loss"], candidates.records, candidates.crowd
    if "penalty" not in facts:
        cells = candidates.cells_like(facts["cells"])
        return of_vectors(network, records.rows, loss.joint_vectors(records, local, cells))
    # A batch of all known rows, twice, and both records of all pairs has the expected ranks.
    batch = records.take(crowd.order)
    penalty = replace(facts["penalty"], batch_sizes=crowd.sizes)
    vectors = loss.ranked_vectors(network, batch, penalty, facts["directions"])
    return of_vectors(network, batch.rows, vectors).take(crowd.places)


def _of_present(
    facts: Mapping[str, Any],
    network: nn.Module,
    candidates: _Candidates,
    present: Crowd,
    index: np.ndarray,
) -> Contributions:
    """Return what each record of the data adds to `FairLoss.ranked_sum`."""
    return _contributions(
        facts, network, _Candidates(present, candidates.records.take(index), None), None
    )


def _add_tables(
    evidence: EvidenceSum,
    tables: Sequence[Release],
    values: np.ndarray,
    candidates: _Candidates,
    codes: np.ndarray,
) -> None:
    """Add what noisy histograms of values by part say."""
    for release in tables:
        statistic: np.ndarray = release.value
        shares, n_pairs = candidates.crowd.shares, evidence.n_pairs
        parts = codes if len(statistic) > 1 else np.zeros_like(codes)
        single = _statistics(release, values, parts)
        residual = statistic.ravel() - shares @ single
        differences = single[-2 * n_pairs : -n_pairs] - single[-n_pairs:]
        sigma = release.facts["noise"].sigma
        evidence.add(residual, differences, sigma, name="table")


def _statistics(release: Release, values: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return what each record adds to a table, flat."""
    facts = release.facts
    directions, matrix = facts["directions"], facts["noise"].strategy.matrix
    if directions.shape[1] > values.shape[1]:  # less a centre
        values = np.column_stack([values, np.ones(len(values))])
    everybody = np.arange(len(values))
    # Each is a class of its own, so that each bin is the one that was counted.
    counts = count_projections(
        values,
        directions,
        facts["half_widths"],
        len(matrix),
        codes=everybody,
        n_classes=len(values),
    )
    single = np.zeros((len(values), *release.value.shape))
    single[everybody, parts] = counts.reshape(len(values), len(directions), -1) @ matrix.T
    return single.reshape(len(values), -1)


def _add_tuning(
    evidence: EvidenceSum,
    tables: Sequence[Release],
    audited: AuditedFit,
    candidates: _Candidates,
) -> None:
    """Add the histograms that a threshold was read off, and the number of the second class."""
    if not tables:
        return
    classes, n_pairs = candidates.classes, evidence.n_pairs
    for release in audited.releases:
        if classes is not None and release.kind == "histogram" and len(release.value) == 1:
            rest = release.value - candidates.crowd.shares @ classes
            apart = (classes[-2 * n_pairs : -n_pairs] - classes[-n_pairs:])[:, None]
            evidence.add(rest, apart, release.facts["noise"].sigma, name="histogram")
    network = audited.fitted.network_
    outputs = network_outputs(network, candidates.records.rows.to(torch.float32))
    values = outputs[:, :1].sigmoid().numpy() - 0.5
    _add_tables(evidence, tables, values, candidates, np.zeros(len(values), dtype=np.intp))


def _add_target_bounds(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add the histograms of targets that private bounds were read off."""
    pairs, y = audited.pairs, audited.y
    first, second = pairs.first_labels, pairs.second_labels
    if isinstance(getattr(audited.fitted, "target_bounds", None), str):
        targets = [np.asarray(of, dtype=float).reshape(-1, 1) for of in (y, first, second)]
        of_targets = CanaryPairs(first=targets[1], second=targets[2])
        add_histograms(evidence, replace(audited, X=targets[0], pairs=of_targets))
