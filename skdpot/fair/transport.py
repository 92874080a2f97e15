r"""Outputs of groups moved to one distribution, round by round.

In a round, the distributions of the outputs of each group are released along the directions of an
orthogonal basis, another one in each round, and outputs are moved to the barycentre of the groups
along each. What a round leaves is moved by the next. The last round decides how alike groups
become: what the rounds before got wrong is part of what it measures.

Records are moved by a weighted sum of the moves of all groups. If the group is known, the weights
are its indicators. Otherwise they are its posterior probabilities :math:`\pi_a(x)`. Let
:math:`M_{sa}` be the mean of :math:`\pi_a` in group s, and T the maps of the groups. Moving by
:math:`\sum_a \pi_a(x) c_a(f)` with :math:`c = M^{-1} (T - \mathrm{id})` then moves group s by about
:math:`T_s - \mathrm{id}`. M and the distributions are measured with noise for the true groups, so
the posterior need not be calibrated.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from skdpot._utils.streams import SecretStream
from skdpot.fair.group_scores import GroupScores
from skdpot.fair.recalibration import Affine
from skdpot.nets.cells import Cells
from skdpot.nets.output_tables import OutputTables, TableNoise, plan_output_tables, release_tables
from skdpot.ot.directions import orthogonal_directions
from skdpot.privacy.events import Event
from skdpot.release.moments import SumNoise, as_finite_rows, plan_sums, release_sums

# From rows and groups to outputs in a ball, (n, q), and the weights of the moves, (n, k).
ScoresOf: TypeAlias = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

_N_POINTS = 257  # of a move along a direction
_LEVELS = (np.arange(256) + 0.5) / 256  # of the quantiles that moves are computed from
_RIDGE = 1e-3  # keeps the inverse of M bounded
_UNRESOLVED = 0.1  # error of a distribution function at which half of a move is left out
_TINY = 1e-9  # in place of 0, for quotients
# Error of a quantile by that of the distribution function, in standard deviations: about the root
# of 2 pi in the middle of normal outputs, and more near the ends.
_STEEPEST = 3.0
_IN_A_BIN = 0.08  # error of a place that is interpolated in a bin, as a share of the bin
_LARGEST_MOVE = 2.0  # error of a move, in standard deviations of the outputs
# Levels nearer to an end than so many errors are hidden by the noise, up to the largest tail.
_HIDDEN, _LARGEST_TAIL = 3.0, 0.2


class BallScores(GroupScores):
    """Networks whose outputs are shortened to a ball, with the weight of each group's moves."""

    def __call__(self, rows: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return outputs and weights of rows; `codes` are their groups, read if known."""
        outputs, weights = super().__call__(rows, codes)
        return in_ball(as_finite_rows(outputs)), weights


@dataclass(frozen=True, eq=False)
class Round:
    """Moves along the directions of a basis."""

    basis: np.ndarray  # (q, q)
    grid: np.ndarray  # (q, n_points)
    moves: np.ndarray  # (q, k, n_points), of which each record takes a weighted sum
    lengths: np.ndarray  # (k,): root mean square of the moves of each group along a direction
    errors: np.ndarray  # (k,): of that, what noise adds
    kept: np.ndarray  # (k,): share of the moves that is made

    def __call__(self, outputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return moved outputs, (n, q)."""
        along = outputs @ self.basis.T
        for j, (points, moves) in enumerate(zip(self.grid, self.moves, strict=True)):
            shifts = [np.interp(along[:, j], points, move) for move in moves]
            along[:, j] += np.einsum("nk,kn->n", weights, shifts)
        return in_ball(along @ self.basis)


@dataclass(frozen=True, eq=False)
class Transport:
    """The map of outputs to one distribution for all groups."""

    rounds: tuple[Round, ...] = ()
    last: Affine | None = None
    within: tuple[np.ndarray, np.ndarray] | None = None  # centre and half widths of the outputs

    def __call__(self, outputs: np.ndarray, weights: np.ndarray, level: float = 1.0) -> np.ndarray:
        """Move outputs, (n, q), by a share of the way."""
        moved = outputs
        for move in self.rounds:
            moved = move(moved, weights)
        if self.last is not None:
            moved = in_ball(self.last(moved))
        return (1.0 - level) * outputs + level * moved

    @property
    def signal(self) -> np.ndarray:
        """Length of the moves of each group along a direction, less its part that is noise."""
        first = self.rounds[0]
        return np.sqrt(np.maximum(first.lengths**2 - first.errors**2, 0.0))

    def errors(self, unmoved: np.ndarray | float) -> np.ndarray:
        """Return the error of the moves of each group, from that of unmoved outputs.

        The noise of all rounds adds up; a later round corrects only the distributions along its
        directions.
        """
        noise = np.array([move.kept * move.errors for move in self.rounds])
        left = np.prod([1.0 - move.kept for move in self.rounds], axis=0) * unmoved
        return np.asarray(np.sqrt(np.square(noise).sum(axis=0) + left**2))

    def of_rows(self, scores_of: ScoresOf, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Score rows and move the outputs."""
        outputs, weights = scores_of(rows, codes)
        return self(outputs, weights)


@dataclass(frozen=True, kw_only=True)
class RoundsPlan:
    """The noise of the rounds, and their bases."""

    tables: TableNoise
    weights: SumNoise | None  # None: the weights are the groups
    bases: np.ndarray  # (n_rounds, q, q)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events to charge."""
        return (self.tables.event, *(() if self.weights is None else (self.weights.event,)))


def plan_rounds(
    mu: float,
    cells: Cells,
    n_outputs: int,
    n_rounds: int,
    rng: np.random.Generator,
    label: str = "Predictions of each group, to be moved",
    *,
    mu_of_weights: float = 0.0,
) -> RoundsPlan:
    """Plan the rounds, and the release of the mean weights if the group is hidden."""
    bases = orthogonal_directions(n_rounds * n_outputs, n_outputs, rng, axes_first=True)
    # A posterior is at most this far from equal probabilities.
    radius = math.sqrt(1.0 - 1.0 / len(cells.sizes))
    weights = None
    if mu_of_weights:
        weights = plan_sums(mu_of_weights, radius, "Posteriors of each group")
    return RoundsPlan(
        tables=plan_output_tables(mu, n_rounds, n_outputs, max(1, min(cells.sizes)), label),
        weights=weights,
        bases=bases.reshape(n_rounds, n_outputs, n_outputs),
    )


def release_rounds(
    scores: tuple[np.ndarray, np.ndarray],
    scores_of: ScoresOf,
    cells: Cells,
    plan: RoundsPlan,
    stream: SecretStream,
    known: tuple[np.ndarray, np.ndarray] | None = None,
) -> Transport:
    """Measure and move outputs, round by round. The caller has charged the plan.

    `scores` are the outputs and weights of the private rows, and `scores_of` those of other rows,
    for audits. If centre and half widths of nearly all outputs are `known`, noise moves none to a
    place beyond.
    """
    outputs, weights = scores
    mixing, transport = _mixing(weights, scores_of, cells, plan.weights, stream), Transport()
    limits = np.full(outputs.shape[1], math.sqrt(outputs.shape[1]))
    within: tuple[np.ndarray, np.ndarray] | None = None
    for basis in plan.bases:
        around = None if within is None else (basis @ within[0], np.abs(basis) @ within[1])
        tables = release_tables(
            transport(outputs, weights),
            cells.codes,
            cells.sizes,
            basis,
            limits,
            plan.tables,
            stream,
            within=around,
            values_of=partial(transport.of_rows, scores_of),
        )
        if within is None:
            within = tables.range_of_interest(limits)
        ends = None
        if known is not None:
            centre, half = basis @ known[0], np.abs(basis) @ known[1]
            ends = (centre - half)[:, None], (centre + half)[:, None]
        moves = _round(tables, cells.sizes, mixing, plan.tables, ends)
        transport = Transport((*transport.rounds, moves), within=within)
    return transport


def in_ball(outputs: np.ndarray, radius: float | None = None) -> np.ndarray:
    """Shorten to a ball, by default one that holds the cube [-1, 1]^q."""
    radius = math.sqrt(outputs.shape[1]) if radius is None else radius
    norms = np.linalg.norm(outputs, axis=1, keepdims=True) / radius
    return outputs / np.maximum(norms, 1.0)


def _mixing(
    weights: np.ndarray,
    scores_of: ScoresOf,
    cells: Cells,
    noise: SumNoise | None,
    stream: SecretStream,
) -> np.ndarray:
    """Return the map from moves of groups to moves by weights: a regularised inverse of M."""
    n_groups = len(cells.sizes)
    if noise is None:
        return np.eye(n_groups)
    centre = 1.0 / n_groups

    def vectors_of(rows: np.ndarray, _: np.ndarray, codes: np.ndarray) -> np.ndarray:
        return scores_of(rows, codes)[1] - centre

    sums = release_sums(weights - centre, cells.codes, n_groups, noise, stream, vectors_of)
    sizes = np.array(cells.sizes, dtype=np.float64)[:, None]
    means = np.clip(sums / sizes + centre, 0.0, 1.0)
    ridge = _RIDGE + float(np.mean((noise.sigma / sizes) ** 2)) * n_groups
    return np.linalg.solve(means.T @ means + ridge * np.eye(n_groups), means.T)


def _round(
    tables: OutputTables,
    sizes: Sequence[int],
    mixing: np.ndarray,
    noise: TableNoise,
    ends_of_outputs: tuple[np.ndarray, np.ndarray] | None,
) -> Round:
    """Return the moves to the barycentre of noisy distributions."""
    of_group, error = np.array(sizes, dtype=np.float64), group_cdf_errors(noise, sizes)
    ends = np.minimum(_HIDDEN * error, _LARGEST_TAIL)[:, None]
    inside = np.clip(_LEVELS, ends, 1.0 - ends)
    pairs = zip(tables.tables, inside, strict=True)
    quantiles = np.stack([table.quantiles(levels) for table, levels in pairs])  # (K, q, levels)
    quantiles = quantiles + tables.centres[:, None]
    if ends_of_outputs is not None:
        quantiles = np.clip(quantiles, *ends_of_outputs)
    moves = np.einsum("k,kql->ql", of_group / sum(sizes), quantiles) - quantiles
    lengths = np.sqrt(np.square(moves).mean(axis=(1, 2)))
    spreads = np.sqrt(quantiles.var(axis=2).mean(axis=1))
    errors = np.minimum(_STEEPEST * error, _LARGEST_MOVE) * spreads
    if noise.sigma > 0.0:
        errors = np.hypot(errors, _bin_error(tables))
    kept = kept_of_moves(noise, sizes) * _above_noise(lengths, errors)
    moves *= kept[:, None, None]
    half = tables.tables[0].half_widths
    grid = tables.centres[:, None] + np.linspace(-1.0, 1.0, _N_POINTS) * half[:, None]
    on_grid = [
        [np.interp(points, *pair) for pair in zip(quantiles[:, j], moves[:, j], strict=True)]
        for j, points in enumerate(grid)
    ]
    return Round(tables.directions, grid, mixing @ np.array(on_grid), lengths, errors, kept)


def _bin_error(tables: OutputTables) -> float:
    """Return the error of an interpolated place within a bin."""
    first = tables.tables[0]
    return _IN_A_BIN * float(2.0 * first.half_widths.mean()) / (first.cdf.shape[1] - 1)


def kept_of_moves(noise: TableNoise, sizes: Sequence[int]) -> np.ndarray:
    """Return the share of its moves that each group makes: less where noise hides them."""
    return np.asarray(1.0 / (1.0 + (group_cdf_errors(noise, sizes) / _UNRESOLVED) ** 2))


def _above_noise(lengths: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return 0 for moves that noise alone explains, and 1 if their signal is as large as noise."""
    signal = lengths**2 - errors**2
    return np.clip(signal / np.maximum(errors, _TINY) ** 2, 0.0, 1.0)


def group_cdf_errors(noise: TableNoise, sizes: Sequence[int]) -> np.ndarray:
    """Return the typical error of the distribution function of each group."""
    return noise.sigma * noise.strategy.typical_deviation / np.array(sizes, dtype=np.float64)
