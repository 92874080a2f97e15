"""Marginals that may be released: a misfit has to exceed the cost of the noise."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from skdpot._utils.arrays import FloatArray
from skdpot.tables.bins import ColumnBins
from skdpot.tables.contingency import Marginal
from skdpot.tables.tree import TreeNode, spanning_tree

TARGET_IMPORTANCE = 4.0  # weight of pairs with the target; other pairs have 1
NOISE_COST = 0.25  # scaled number of rows misplaced by noise of standard deviation 1 in a cell
_SHARING = 30  # assumed number of chosen marginals, for the noise of each


Places: TypeAlias = tuple[int, ...]


def marginals_of(
    bins: Sequence[ColumnBins], columns: Iterable[Places], level: int
) -> tuple[Marginal, ...]:
    """Return marginals of bins (level 0), of their groups (1) or of few groups (2)."""
    groups = [column.groups(level) for column in bins]
    return tuple(
        Marginal(some, tuple(groups[column] for column in some), levels=(level,) * len(some))
        for some in columns
    )


def both_levels(bins: Sequence[ColumnBins], pairs: Iterable[Places]) -> tuple[Marginal, ...]:
    """Return the marginals of pairs: of bins, and of groups of bins if these are fewer."""
    pairs = list(pairs)
    levels = zip(marginals_of(bins, pairs, 0), marginals_of(bins, pairs, 1), strict=True)
    return tuple(
        m for fine, less in levels for m in (fine, less)[: 1 + (less.n_cells < fine.n_cells)]
    )


def sampling_misfit(prediction: FloatArray, n_rows: int) -> float:
    """Return the approximate expected misfit of rows drawn from the prediction itself."""
    shares = np.clip(prediction / n_rows, 0.0, 1.0)
    return float(np.sqrt(2.0 / math.pi * n_rows * shares * (1.0 - shares)).sum())


@dataclass(frozen=True, eq=False)
class Candidates:
    """Marginals of pairs and triples, and the released misfit of a model in each."""

    marginals: tuple[Marginal, ...]
    misfits: FloatArray
    importance: FloatArray

    @property
    def n_cells(self) -> FloatArray:
        """Number of cells of each marginal."""
        return np.array([marginal.n_cells for marginal in self.marginals], dtype=np.float64)

    def gains(self, sigma: float) -> dict[Places, tuple[float, int]]:
        """Return the largest gain per pair or triple, and the place of its marginal."""
        gains = self.importance * (self.misfits - NOISE_COST * sigma * self.n_cells)
        best: dict[Places, tuple[float, int]] = {}
        for place, marginal in enumerate(self.marginals):
            if marginal.columns not in best or gains[place] > best[marginal.columns][0]:
                best[marginal.columns] = (float(gains[place]), place)
        return best

    @property
    def weights(self) -> FloatArray:
        """Shares of the squared mu; the power 2/3 minimises ``sum(importance * cells * sigma)``."""
        return (self.importance * self.n_cells) ** (2 / 3)

    def take(self, places: Sequence[int]) -> "Candidates":
        """Return the candidates at some places."""
        chosen = tuple(self.marginals[place] for place in places)
        return Candidates(chosen, self.misfits[list(places)], self.importance[list(places)])


def choose_tree(
    candidates: Candidates, n_columns: int, target: int | None, sigma: float
) -> tuple[tuple[TreeNode, ...], Candidates | None]:
    """Choose the tree with the largest gains, and all pairs with the target that gain."""
    columns = [column for column in range(n_columns) if column != target]
    gains = candidates.gains(sigma * math.sqrt(n_columns - 1 + (target is not None) * len(columns)))
    nodes = spanning_tree({pair: gain for pair, (gain, _) in gains.items()}, columns)
    edges = {
        (min(n.parent, n.column), max(n.parent, n.column)) for n in nodes if n.parent is not None
    }
    places = [
        place
        for pair, (gain, place) in gains.items()
        if pair in edges or (target in pair and gain > 0.0)
    ]
    return nodes, candidates.take(places) if places else None


def choose(candidates: Candidates, sigma: float) -> Candidates:
    """Choose the marginals whose release leaves the fewest rows misplaced.

    A released marginal costs the rows that its noise misplaces, any other costs its misfit. Each
    pair has one candidate, the grouping with the largest gain. Pairs are added in the order of
    misfit per size until the total cost is smallest (like Zhang et al., "PrivSyn", 2021, Section
    4.1, with misfits of a model in place of dependences).
    """
    best = candidates.gains(sigma * math.sqrt(_SHARING))
    places = np.array([place for _, place in best.values()])
    left_out = np.maximum((candidates.importance * candidates.misfits)[places], 0.0)
    # With the best shares, the noise of marginals costs (sum of their sizes) ** 1.5.
    sizes = candidates.weights[places]
    order = np.argsort(-left_out / sizes, kind="stable")
    left_out = left_out.sum() - np.cumsum(left_out[order])
    noise = np.cumsum(sizes[order]) ** 1.5
    n_chosen = int(np.argmin(NOISE_COST * sigma * noise + left_out)) + 1
    return candidates.take(places[order[:n_chosen]].tolist())
