"""The releases of one fit, their shares of the privacy budget, and their noise.

A fit has five releases: marginals of single columns; for each pair, the distance of the columns
from independence; the pairs of a tree; the misfits of that tree; and the pairs with the largest
misfits. Each has a fixed share of the squared mu, whatever earlier releases choose, and the shares
add up under adaptive composition (Dong, Roth and Su, "Gaussian differential privacy", 2022,
Corollary 3.3 with Theorem 3.2).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from skdpot._utils.arrays import FloatArray
from skdpot.exceptions import CalibrationError
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.choices import CHOICE_MU, ChoiceEvent
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent
from skdpot.privacy.noise import MAX_TABLE_S, required_bits
from skdpot.privacy.targets import PrivacyTarget
from skdpot.tables.bins import MAX_BINS
from skdpot.tables.cells import BLOCKS, ROUNDS
from skdpot.tables.choices import choice_sensitivity
from skdpot.tables.contingency import Marginal, NoisyMarginal
from skdpot.tables.marginal_release import MARGINAL_SENSITIVITY, misfit_sensitivity
from skdpot.tables.schema import TableSchema
from skdpot.tables.schema_release import SchemaPlan, plan_schema

# Shares of the squared mu (doc/tables.rst), for two, for few and for many columns; changes of 3 %
# matter little.
_TWO = {"columns": 0.2, "pairs": 0.8}
_FEW = {
    "columns": 0.1,
    "independence": 0.05,
    "tree": 0.4,
    "candidates": 0.01,
    "misfit": 0.05,
    "pairs": 0.39,
}
_MANY = {
    "columns": 0.1,
    "edges": 0.1,
    "independence": 0.02,
    "tree": 0.42,
    "candidates": 0.05,
    "misfit": 0.02,
    "pairs": 0.29,
}
# Columns with more values than cells need more rounds of counts. If their share exceeds the usual
# one, single columns get this part of the excess from the other releases.
_WIDE_SHARE, _USUAL_WIDE = 0.6, 0.2
_LONG_SHARE = 0.1  # more, times the part of columns that are counted in blocks as well
MOST_FEW = 30  # columns up to which all pairs are candidates
_LABELS = {
    "roundness": "Counts of round numbers in columns on a scale",
    "magnitudes": "Counts of columns on a scale, in coarse cells",
    "cells": "Counts of columns on a scale, in finer cells",
    "columns": "Counts of each column",
    "edges": "Choice of pairs that are far from independent",
    "independence": "How far pairs of columns are from independent",
    "tree": "Counts of pairs that form a tree",
    "candidates": "Choice of triples, and of many pairs, that are far from what the tree says",
    "misfit": "How far other pairs, and these triples, are from what the tree says",
    "pairs": "Counts of the pairs and triples that it gets worst",
}
_SCHEMA_SHARE = 0.2  # of the squared mu, for bounds and categories, if all columns lack them
MOST_GROUPS = 8  # groups of a column in pairs
_SEEN_CELL = 4.0  # standard deviations of noise at which a cell of a pair stands out
_LATTICE = 1 / 16  # coarsest lattice of the noise, as a share of sigma
# Largest sigma times number of columns. A single marginal may have a few hundred times this noise,
# on a lattice of 1/16, and the sampler draws up to 2^40 steps.
_LARGEST_SIGMA = 2.0**26


@dataclass(frozen=True)
class TablePlan:
    """The releases of one fit and their noise, fixed before rows are read."""

    n_samples: int  # rows, or persons
    sigma: float  # noise of a release of sensitivity 1 with the whole squared mu
    shares: dict[str, float]  # of the squared mu, by release
    schema: SchemaPlan
    event: Event
    weight: float = 1.0  # largest total weight of the rows of one person

    def marginal_sigmas(self, release: str, weights: FloatArray) -> FloatArray:
        """Return the noise of marginals that share one release in proportion to `weights`."""
        share = self.shares[release] * weights / weights.sum()
        return self.sigma * self.weight * MARGINAL_SENSITIVITY / np.sqrt(share)

    def n_groups(self, n_columns: int) -> int:
        """Return the number of groups of a column that pairs can tell apart in noise."""
        if self.sigma == 0.0 or n_columns < 2:
            return MOST_GROUPS
        release, most = ("tree", MOST_GROUPS) if n_columns > 2 else ("pairs", MAX_BINS)
        noise = self.marginal_sigmas(release, np.ones(n_columns - 1))[0]
        return int(np.clip(math.sqrt(self.n_samples / (_SEEN_CELL * noise)), 2, most))

    def choice_sigma(self, event: Event, marginals: Sequence[Marginal]) -> float:
        """Return the noise on the scores of marginals in a choice."""
        if not isinstance(event, ChoiceEvent):  # no noise at all
            return 0.0
        return event.sigma * self.weight * choice_sensitivity(marginals) / event.sensitivity

    def misfit_sigma(self, release: str, marginals: Sequence[Marginal]) -> float:
        """Return the noise of the misfits of several marginals."""
        sensitivity = self.weight * misfit_sensitivity(marginals)
        return self.sigma * sensitivity / math.sqrt(self.shares[release])

    def counted(self, columns: Sequence[NoisyMarginal]) -> "TablePlan":
        """Return the plan with the number of rows that noisy counts show, if persons have several.

        Each column sums to the number of rows. The mean over columns is weighted by precision.
        """
        if self.weight == 1.0:
            return self
        precision = [1.0 / (max(n.sigma, 1e-9) ** 2 * n.marginal.n_cells) for n in columns]
        total = np.average([noisy.counts.sum() for noisy in columns], weights=precision)
        total = np.clip(total, self.n_samples, self.n_samples * self.weight)
        return replace(self, n_samples=round(float(total)))


def plan_marginals(
    target: PrivacyTarget, schema: TableSchema, n_samples: int, weight: float = 1.0
) -> TablePlan:
    """Share a target among the releases of a fit to `n_samples` persons."""
    n_open = sum(not column.is_resolved for column in schema)
    mu = target.mu_cap * math.sqrt(_SCHEMA_SHARE * n_open / len(schema)) if n_open else math.inf
    first = plan_schema(schema, n_samples, mu=mu, delta=target.tail_delta, scale="cells")
    shares = shares_of(schema)
    before = () if first.event is None else (first.event,)

    def event(sigma: float) -> Event:
        releases = (
            _planned_event(name, share, sigma, len(schema)) for name, share in shares.items()
        )
        return ComposedEvent(events=(*before, *releases))

    calibrated = calibrate(target, event)
    sigma = calibrated.phases[-1].sigma if calibrated.is_private else 0.0
    if sigma > 0.0:
        _check_drawable(sigma, weight, shares, len(schema))
    return TablePlan(n_samples, sigma, shares, first, calibrated, weight)


def shares_of(schema: TableSchema) -> dict[str, float]:
    """Return the releases of a fit in their order, with their shares of the squared mu."""
    usual = _FEW if len(schema) <= MOST_FEW else _MANY
    shares = {1: {"columns": 1.0}, 2: _TWO}.get(len(schema), usual)
    wide = [c.on_scale and not (c.is_resolved and c.grid().is_final) for c in schema]
    long = [c.on_scale and c.is_resolved and c.grid().is_long for c in schema]
    part, long_part = sum(wide) / len(wide), sum(long) / len(long)
    # For pairs and choices:
    left = 1 - _WIDE_SHARE * max(part - _USUAL_WIDE, 0.0) - _LONG_SHARE * long_part
    shares = {name: share * left for name, share in shares.items()}
    shares["columns"] += 1 - left
    rounds = {name: share * part for name, share in ROUNDS.items() if part}
    if long_part:
        rounds["magnitudes"] = rounds.get("magnitudes", 0.0) + BLOCKS * long_part
    rounds = {name: share * shares["columns"] for name, share in rounds.items()}
    return rounds | shares | {"columns": shares["columns"] - sum(rounds.values())}


def n_choices(name: str, n_columns: int) -> int:
    """Return the number of pairs or triples that a choice takes."""
    return {"edges": n_columns - 1, "pairs": n_columns, "triples": 1 + n_columns // 5}[name]


def _planned_event(name: str, share: float, sigma: float, n_columns: int) -> Event:
    """Return the event of a release with this share of ``1 / sigma**2``."""
    label, mu = _LABELS[name], math.sqrt(share)
    if name not in ("edges", "candidates"):
        return GaussianEvent(sigma=sigma, sensitivity=mu, lattice=sigma * _LATTICE, label=label)
    steps = n_choices("edges" if name == "edges" else "triples", n_columns)
    if name == "candidates" and n_columns > MOST_FEW:
        steps += n_choices("pairs", n_columns)
    each = mu / math.sqrt(steps) / CHOICE_MU
    return ChoiceEvent(sigma=sigma, sensitivity=each, n_steps=steps, label=label)


def events_of(event: Event) -> dict[str, Event]:
    """Return the part of the event of a fit that pays for each release."""
    phases = {phase.label: phase for phase in event.phases}
    # Without noise, and in the event of a private search, releases have no phases of their own.
    return {name: phases.get(label, event) for name, label in _LABELS.items()}


def _check_drawable(
    sigma: float, weight: float, shares: Mapping[str, float], n_columns: int
) -> None:
    """Refuse before the charge what the sampler of the noise would refuse."""
    required_bits(MAX_TABLE_S, math.sqrt(max(shares.values())) / sigma)
    if sigma * weight * n_columns > _LARGEST_SIGMA:
        raise CalibrationError(
            f"Noise of sigma = {sigma:.3g} for a table of {n_columns} columns is too wide to be "
            "drawn, and leaves nothing of the data. Raise epsilon or delta."
        )
