"""Which marginals are worth their noise."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skdpot.slicing.marginals import FloatArray, Marginal
from skdpot.tables.coarsening import ColumnBins
from skdpot.tables.tree import TreeNode, spanning_tree

__all__ = ["Candidates", "Choice", "all_pairs", "choose", "choose_tree", "sampling_misfit"]

TARGET_IMPORTANCE = 4.0  # of pairs with the target against other pairs
_NOISE_COST = 0.25  # rows put wrong by noise of standard deviation 1 in a cell, scaled
_SHARING = 30  # marginals that the noise of one is guessed for


@dataclass(frozen=True, eq=False)
class Choice:
    """Marginals to release, and how their release is shared.

    Parameters
    ----------
    marginals : tuple of Marginal
        What to release.
    weights : ndarray of shape (n_marginals,)
        Share of the squared mu of each, up to a factor.
    """

    marginals: tuple[Marginal, ...]
    weights: FloatArray

    @classmethod
    def of(cls, marginals: Sequence[Marginal], importance: FloatArray) -> "Choice":
        """Share by size: ``sum(importance * cells * sigma)`` is least at the power 2/3."""
        cells = np.array([marginal.n_cells for marginal in marginals], dtype=np.float64)
        return cls(tuple(marginals), (importance * cells) ** (2 / 3))


def all_pairs(bins: Sequence[ColumnBins]) -> tuple[Marginal, ...]:
    """Return the marginals of all pairs, in groups of bins too where those are fewer."""
    found = []
    for columns in itertools.combinations(range(len(bins)), 2):
        fine, coarse = (
            Marginal(columns, groups, levels=(level,) * 2)
            for level, groups in enumerate(
                (
                    tuple(np.arange(bins[column].n_bins) for column in columns),
                    tuple(bins[column].coarse for column in columns),
                )
            )
        )
        found.append(fine)
        if coarse.n_cells < fine.n_cells:
            found.append(coarse)
    return tuple(found)


def sampling_misfit(prediction: FloatArray, n_rows: int) -> float:
    """Return the misfit that rows drawn from the prediction itself would have, about."""
    shares = np.clip(prediction / n_rows, 0.0, 1.0)
    return float(np.sqrt(2.0 / math.pi * n_rows * shares * (1.0 - shares)).sum())


@dataclass(frozen=True, eq=False)
class Candidates:
    """Marginals of pairs, and how far a model is off in each.

    Parameters
    ----------
    marginals : tuple of Marginal
        What may be released; one or two groupings of each pair.
    misfits : ndarray of shape (n_marginals,)
        Estimated numbers of rows that the model puts wrong, twice.
    importance : ndarray of shape (n_marginals,)
        What a wrong row counts.
    """

    marginals: tuple[Marginal, ...]
    misfits: FloatArray
    importance: FloatArray

    @property
    def n_cells(self) -> FloatArray:
        """Number of cells of each."""
        return np.array([marginal.n_cells for marginal in self.marginals], dtype=np.float64)

    def gains(self, sigma: float) -> dict[tuple[int, int], tuple[float, int]]:
        """Return for each pair the largest gain of a release, and which marginal has it.

        The gain is the misfit, which a release mends, less what noise of scale `sigma` in the
        cells puts wrong.
        """
        gains = self.importance * (self.misfits - _NOISE_COST * sigma * self.n_cells)
        best: dict[tuple[int, int], tuple[float, int]] = {}
        for place, marginal in enumerate(self.marginals):
            first, second = marginal.columns
            if (first, second) not in best or gains[place] > best[first, second][0]:
                best[first, second] = (float(gains[place]), place)
        return best

    def take(self, places: Sequence[int]) -> Choice:
        """Choose some of them."""
        return Choice.of([self.marginals[place] for place in places], self.importance[list(places)])


def choose_tree(
    candidates: Candidates, n_columns: int, target: int | None, sigma: float
) -> tuple[tuple[TreeNode, ...], Choice | None]:
    """Choose the tree whose pairs gain most, and the pairs with the target that gain at all.

    Parameters
    ----------
    candidates : Candidates
        With misfits against independent columns.
    n_columns : int
        Number of columns.
    target : int or None
        Column that is no part of the tree.
    sigma : float
        Noise of a marginal that has the whole release for itself.

    Returns
    -------
    nodes : tuple of TreeNode
        Parents first.
    choice : Choice or None
        What to release; None where nothing gains.
    """
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


def choose(candidates: Candidates, sigma: float) -> Choice:
    """Choose the marginals whose release puts the fewest rows wrong.

    A marginal that is released costs what its noise puts wrong, one that is not costs its
    misfit. Of a pair's groupings the one with the largest gain stands; pairs are taken in
    the order of misfit per size until the sum is least (as Zhang et al., "PrivSyn", 2021,
    Section 4.1, choose marginals once, with misfits against a model in place of dependences).

    Parameters
    ----------
    candidates : Candidates
        With misfits against the model.
    sigma : float
        Noise of a marginal that has the whole release for itself.

    Returns
    -------
    Choice
        At least one marginal.
    """
    best = candidates.gains(sigma * math.sqrt(_SHARING))
    places = np.array([place for _, place in best.values()])
    cells = candidates.n_cells[places]
    importance = candidates.importance[places]
    left_out = np.maximum(importance * candidates.misfits[places], 0.0)
    # With the best shares the noise of k marginals costs the sum of their sizes to the power 3/2.
    sizes = (importance * cells) ** (2 / 3)
    order = np.argsort(-left_out / sizes, kind="stable")
    left_out = left_out.sum() - np.cumsum(left_out[order])
    noise = np.cumsum(sizes[order]) ** 1.5
    n_chosen = int(np.argmin(_NOISE_COST * sigma * noise + left_out)) + 1
    return candidates.take(places[order[:n_chosen]].tolist())
