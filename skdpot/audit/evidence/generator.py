r"""Canaries for a generator that learns from noisy gradients, and what these say.

A step releases the gradient of the distance between generated points and a batch of private rows.
Along a direction the j-th generated point is matched with the j-th part of the sorted rows. A
row that moves from u' to u shifts the rows between by one rank, and what the j-th point is
matched with by the length of the j-th part's range that lies between u' and u. So the gradient is,
to first order in the shares of single records, a sum over records of a function of each, which
everything public determines; what this misses, by simulation a few per cent, counts as noise.

Without noise hundreds of canaries are told apart, by some steps of large batches with as many
generated points. Noise hides them sooner than it hides a single record: all generated points are
pulled in much the same way, so that what a step shows of the rows is mostly their mean, and in d
dimensions that moves by a root of d less than the noise is made for. The guesses of one
run do not refute noise that is ten times too small. Its residuals do.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.evidence.contributions import (
    ByParameter,
    Contributions,
    Crowd,
    at_parameters,
    crowd_of_audit,
    gradients_by_parameter,
    pulled_together,
)
from skdpot.audit.evidence.histograms import add_histograms
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.nets.networks import to_network_units
from skdpot.nets.output_gradients import shares_of_jacobians
from skdpot.nets.per_sample import ChunkJacobians, full_precision, record_jacobians
from skdpot.nets.training_plan import TrainingPlan
from skdpot.nets.wasserstein_gradient import Side, clipped_wasserstein_gradient, ranked_projections

__all__ = ["add_generator"]

_SIMULATIONS = 3  # of thousands of numbers each
_SLICES_AT_ONCE = 16


def add_generator(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add the noisy gradients of all steps."""
    fitted = audited.fitted
    rows = to_network_units(fitted.bounds_, audited.rows_and_weights()[0].astype(np.float64))
    crowd = crowd_of_audit(audited)
    rng = np.random.default_rng(0)
    add_histograms(evidence, audited)
    for release in audited.watched(audited.releases, "steps"):
        if release.kind != "gradient":
            continue
        facts = release.facts
        network = at_parameters(fitted.module_, facts["parameters"])
        step = _Step(network, rows, crowd, facts)
        released = gradients_by_parameter(network, release.value)
        residual = {p: value - step.expected[p] for p, value in released.items()}
        noise = math.hypot(facts["noise_scale"], step.unexplained(rng))
        own = step.contributions
        evidence.add_batch(own.gram(), own.inner(residual), noise, crowd.rates(facts["plan"]))
        if evidence.heads is not None:
            step.check(evidence, released, rng)


class _Step:
    """What a step would release without noise, for given batches.

    Parameters
    ----------
    network : torch.nn.Module
        With the parameters of the step.
    rows : ndarray of shape (n_records, n_features)
        Of the crowd, in the network's units.
    crowd : Crowd
        All candidates.
    facts : mapping
        Recorded ones.
    """

    def __init__(
        self, network: nn.Module, rows: np.ndarray, crowd: Crowd, facts: Mapping[str, Any]
    ) -> None:
        self._network, self._rows, self._crowd, self._facts = network, rows, crowd, facts
        self._plan: TrainingPlan = facts["plan"]
        self.expected = _gradient(network, rows[crowd.order], facts)
        derivative = _contributions(network, rows, crowd, facts)
        self.contributions = derivative.times(1.0 / self._plan.batch_size)

    def check(self, evidence: EvidenceSum, released: ByParameter, rng: np.random.Generator) -> None:
        """Check the noise by what the step would release without; batches by simulation."""
        rows = self._rows[self._crowd.present(np.asarray(evidence.heads))[0]]
        exact = _gradient(self._network, rows, self._facts)
        hidden, size = 0.0, self._plan.batch_size
        for _ in range(_SIMULATIONS if size < len(rows) else 0):
            batch = rng.choice(len(rows), size=size, replace=False)
            of_batch = _gradient(self._network, rows[batch], self._facts)
            hidden += _squared_distance(of_batch, exact) / _SIMULATIONS
        n_numbers = sum(value.numel() for value in released.values())
        energy = _squared_distance(released, exact)
        evidence.check("gradient", energy, n_numbers, self._facts["noise_scale"], hidden)

    def unexplained(self, rng: np.random.Generator) -> float:
        """Return the root mean square of what sums of contributions miss, by simulation."""
        crowd, size = self._crowd, self._plan.batch_size
        n_pairs = int(np.sum(crowd.shares < 1.0)) // 2
        n_known = len(crowd.shares) - 2 * n_pairs
        expected = crowd.rates(self._plan) * crowd.shares
        squares, count = 0.0, 0
        for _ in range(_SIMULATIONS):
            second = n_pairs * (rng.random(n_pairs) < 0.5)
            present = np.concatenate([np.arange(n_known), n_known + np.arange(n_pairs) + second])
            batch = np.zeros(len(expected))
            batch[rng.choice(present, size=size, replace=False)] = 1.0
            true = _gradient(self._network, self._rows[batch > 0], self._facts)
            told = self.contributions.weighted_sum(batch - expected)
            for parameter, value in true.items():
                missed = value - self.expected[parameter] - told[parameter]
                squares += float(missed.square().sum())
                count += missed.numel()
        return math.sqrt(squares / count)


def _squared_distance(one: ByParameter, other: ByParameter) -> float:
    return sum(float((value - other[p]).square().sum()) for p, value in one.items())


def _gradient(network: nn.Module, rows: np.ndarray, facts: Mapping[str, Any]) -> ByParameter:
    """Return the gradient of the distance to some rows, without noise."""
    inputs = facts["inputs"]
    made = Side(
        batch_size=len(inputs),
        private=False,
        network=network,
        clip_jacobian=facts["clip_jacobian"],
    )
    return clipped_wasserstein_gradient(
        made,
        Side(batch_size=len(rows), private=True),
        inputs,
        torch.from_numpy(rows),
        facts["directions"],
        clip_output=facts["clip_output"],
    )


def _contributions(
    network: nn.Module, rows: np.ndarray, crowd: Crowd, facts: Mapping[str, Any]
) -> Contributions:
    """Return the derivative of the gradient by the weight of each row, times their number."""
    directions = facts["directions"].astype(np.float64)
    with full_precision(torch.device("cpu")):
        jacobians: ChunkJacobians = record_jacobians(network, facts["inputs"])
    gram = torch.stack([part.gram() for part in jacobians.parts]).sum(0)
    shares = shares_of_jacobians(gram, facts["clip_jacobian"]).numpy()
    points = facts["clip_output"].nearest(jacobians.outputs.double().numpy())
    projections = directions @ rows.T
    lower, upper = _ranges(projections[:, crowd.order], len(points))
    pulls = np.zeros((len(rows), *points.shape))
    order = ranked_projections(points, directions).order
    for start in range(0, len(directions), _SLICES_AT_ONCE):
        block = slice(start, start + _SLICES_AT_ONCE)
        reached = np.empty((len(rows), len(points), len(directions[block])))
        for k, places in enumerate(order[block]):
            ranges = lower[start + k], upper[start + k]
            reached[:, places, k] = np.clip(projections[start + k][:, None], *ranges)
        pulls -= reached @ directions[block]
    pulls *= shares[:, None] * (2.0 / len(directions))
    weights = torch.from_numpy(pulls)
    return Contributions(tuple(pulled_together(part, weights) for part in jacobians.parts))


def _ranges(projections: np.ndarray, n_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the part of the sorted rows begins and ends that each point is matched with."""
    ordered = np.sort(projections, axis=1)
    n = ordered.shape[1]
    inner = ordered[:, (np.arange(1, n_points) * n) // n_points]
    lower = np.column_stack([ordered[:, 0], inner])
    return lower, np.column_stack([inner, ordered[:, -1]])
