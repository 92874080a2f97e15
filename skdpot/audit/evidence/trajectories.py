"""Canaries for trajectories, and what noisy steps and starts say about them.

Everything that the steps release of a time is a sum over its rows, at particles and centres that
are public by then: sums of clipped gradients, sums of rows, counts of clusters. So all are added
up as evidence that is linear in the coins. Where a step takes a Poisson sample of the rows, who is
in it counts as further noise.

Which settings have teeth. The gradient of a row pulls the particles next to it. With
``n_particles=1`` two opposite rows pull the same particle in opposite directions, the full 2C
apart; with many particles most pairs are only as far apart as two orthogonal gradients are. Clipped
gradients have to differ in direction: in two dimensions there is room for a few canaries a
time only.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.canaries import CanaryPairs, CanaryRequest
from skdpot.audit.evidence.histograms import add_histograms
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.audit.evidence.sketch import add_sketch, sketch_canaries
from skdpot.privacy.recording import Release
from skdpot.trajectories.langevin import clipped_fit_gradient
from skdpot.trajectories.warm_start import WarmStartPlan

__all__ = ["add_langevin", "add_times", "clipped_pulls", "trajectory_canaries"]


def trajectory_canaries(request: CanaryRequest) -> CanaryPairs:
    """Make opposite corners of the box, both at the time of a known row.

    Raises
    ------
    ValueError
        If the estimator leaves out rows: then nobody outside knows which.
    """
    if request.estimator.n_time_subsample is not None or request.fit_params:
        raise ValueError(
            "Audit a sampler with n_time_subsample=None and without groups=: those leave out rows "
            "by a draw that the release does not show."
        )
    return sketch_canaries(request)


def add_langevin(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add all noisy sums of warm starts and steps, and private bounds."""
    add_histograms(evidence, audited)
    times = _Times(audited)
    steps = [release for release in audited.releases if release.kind == "fit_gradients"]
    for release in audited.watched(steps, "iterations"):
        for i in range(times.n_times):
            _add_gradients(evidence, times, i, release)
    for release in audited.releases:
        if release.kind == "sums":
            for i, total in enumerate(release.value):
                _add_sums(evidence, times, i, total[None], None, release.facts)
    clusters = [release for release in audited.releases if release.kind == "cluster_sums"]
    for number, release in enumerate(clusters):  # step by step, and in each time by time
        sums, counts = release.value
        _add_sums(evidence, times, number % times.n_times, sums, counts, release.facts)


class _Times:
    """The rows of each time in the units of particles, as the sampler maps them."""

    def __init__(self, audited: AuditedFit) -> None:
        sampler, pairs = audited.fitted, audited.pairs
        bounds, axis = sampler.bounds_, sampler._axis
        unit = math.sqrt(bounds.n_features) / bounds.radius
        mapped = [bounds.to_ball(rows) * unit for rows in (pairs.first, pairs.second, audited.X)]
        of_pairs = axis.positions(np.asarray(pairs.first_labels))
        of_known = axis.positions(np.asarray(audited.y)) if len(audited.X) else np.empty(0)
        self.n_times = axis.n_times
        self.members = [np.flatnonzero(of_pairs == i) for i in range(self.n_times)]
        self.first = [mapped[0][chosen] for chosen in self.members]
        self.second = [mapped[1][chosen] for chosen in self.members]
        self.known = [mapped[2][of_known == i] for i in range(self.n_times)]

    def both(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and the second records of the pairs of a time."""
        return self.first[i], self.second[i]


def _add_gradients(evidence: EvidenceSum, times: _Times, i: int, release: Release) -> None:
    """Add the noisy mean gradient of a step at one time."""
    facts = release.facts
    particles, expected = facts["particles"][i], float(facts["expected"][i])
    scales = (facts["bandwidth"], float(facts["weights"][i]), facts["clip"])
    first, second = (clipped_pulls(particles, rows, *scales) for rows in times.both(i))
    mean = (first + second).sum(axis=0) / 2
    mean += clipped_fit_gradient(
        particles, times.known[i], bandwidth=scales[0], weight=scales[1], clip=scales[2]
    ).ravel()
    n_rows = len(times.known[i]) + len(first)
    rate = min(expected / n_rows, 1.0) if n_rows else 1.0
    # Gradients of everybody, of norms up to C, come and go with the sample.
    squares = float(np.sum(first**2) + np.sum(second**2)) / 2
    known_squares = squares / max(len(first), 1) * len(times.known[i])
    sampling = rate * (1.0 - rate) * (squares + known_squares) / particles.size
    evidence.add(
        release.value[i].ravel() * expected - rate * mean,
        rate * (first - second),
        math.sqrt(facts["sigma"] ** 2 + sampling),
        times.members[i],
        name="fit_gradients",
        stated=facts["sigma"],
    )


def clipped_pulls(
    particles: np.ndarray, rows: np.ndarray, bandwidth: float, weight: float, clip: float
) -> np.ndarray:
    """Return the clipped gradient of each row on all particles, shape (n_rows, m * d).

    Their sum is `skdpot.trajectories.langevin.clipped_fit_gradient`, which never forms them.
    """
    offsets = particles - rows[:, None]
    squares = np.einsum("bkd,bkd->bk", offsets, offsets)
    shares = np.exp((squares.min(axis=1, keepdims=True) - squares) / (2.0 * bandwidth**2))
    shares /= shares.sum(axis=1, keepdims=True)
    pulls = (shares[:, :, None] * offsets).reshape(len(rows), -1)
    pulls *= weight * len(particles) / bandwidth**2
    norms = np.linalg.norm(pulls, axis=1, keepdims=True)
    clipped: np.ndarray = pulls * (clip / np.maximum(norms, clip))
    return clipped


def _add_sums(
    evidence: EvidenceSum,
    times: _Times,
    i: int,
    sums: np.ndarray,
    counts: np.ndarray | None,
    facts: Mapping[str, Any],
) -> None:
    """Add the noisy sums of the clusters of one time, and their counts where released."""
    plan: WarmStartPlan = facts["plan"]
    centers = facts.get("centers")
    weight = 0.0 if counts is None else plan.count_weight * plan.lattice
    table = np.concatenate(
        [sums, np.zeros((len(sums), 1)) if counts is None else weight * counts[:, None]], axis=1
    )

    def added(rows: np.ndarray) -> np.ndarray:
        entries = np.zeros((len(rows), *table.shape))
        cluster = np.zeros(len(rows), dtype=np.intp)
        if centers is not None and len(rows):
            cluster = np.sum((rows[:, None] - centers) ** 2, axis=2).argmin(axis=1)
        entries[np.arange(len(rows)), cluster, :-1] = np.rint(rows / plan.lattice) * plan.lattice
        entries[np.arange(len(rows)), cluster, -1] = weight
        return entries.reshape(len(rows), -1)

    first, second = (added(rows) for rows in times.both(i))
    mean = (first + second).sum(axis=0) / 2 + added(times.known[i]).sum(axis=0)
    sigma = 0.0 if plan.noise is None else plan.noise.sigma
    rest, differences = table.ravel() - mean, first - second
    name = "sums" if counts is None else "cluster_sums"
    if counts is None:  # not released
        rest, differences = rest[:-1], differences[:, :-1]
    evidence.add(rest, differences, sigma, times.members[i], name=name)


def add_times(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add the noisy tables of all times, whose labels are the numbers of the times."""
    sampler, pairs = audited.fitted, audited.pairs
    times = sampler._axis.positions(np.asarray(pairs.first_labels))
    of_known = sampler._axis.positions(np.asarray(audited.y)) if len(audited.X) else np.empty(0)
    numbered = replace(pairs, first_labels=times, second_labels=times)
    add_sketch(evidence, replace(audited, fitted=sampler.sketch_, pairs=numbered, y=of_known))
