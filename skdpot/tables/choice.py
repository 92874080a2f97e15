"""Which marginals are worth their noise."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skdpot.slicing.marginals import FloatArray, Marginal
from skdpot.tables.coarsening import ColumnBins

__all__ = ["Choice", "all_pairs", "choose", "pair_marginal", "sampling_misfit"]

TARGET_IMPORTANCE = 4.0  # of pairs with the target against other pairs
_NOISE_COST = 0.5  # rows put wrong by noise of standard deviation 1 in a cell, scaled
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


def pair_marginal(
    bins: Sequence[ColumnBins], first: int, second: int, *, coarse: bool = False
) -> Marginal:
    """Return the marginal of two columns in bins, or in groups of bins."""
    columns = (min(first, second), max(first, second))
    groups = tuple(
        bins[column].coarse if coarse else np.arange(bins[column].n_bins) for column in columns
    )
    return Marginal(columns, groups, levels=(int(coarse),) * 2)


def all_pairs(bins: Sequence[ColumnBins], *, coarse: bool) -> tuple[Marginal, ...]:
    """Return the marginals of all pairs, in groups of bins too where those are fewer."""
    found = []
    for first, second in itertools.combinations(range(len(bins)), 2):
        fine = pair_marginal(bins, first, second)
        found.append(fine)
        joined = pair_marginal(bins, first, second, coarse=True)
        if coarse and joined.n_cells < fine.n_cells:
            found.append(joined)
    return tuple(found)


def sampling_misfit(prediction: FloatArray, n_rows: int) -> float:
    """Return the misfit that rows drawn from the prediction itself would have, about."""
    shares = np.clip(prediction / n_rows, 0.0, 1.0)
    return float(np.sqrt(2.0 / math.pi * n_rows * shares * (1.0 - shares)).sum())


def choose(
    candidates: Sequence[Marginal], misfits: FloatArray, importance: FloatArray, sigma: float
) -> Choice:
    """Choose the marginals whose release puts the fewest rows wrong.

    A marginal that is released costs what its noise puts wrong, one that is not costs its
    misfit. Of a pair's groupings the one with the largest gain stands; pairs are taken in
    the order of misfit per size until the sum is least (as Zhang et al., "PrivSyn", 2021,
    Section 4.1, choose marginals once, with misfits against a model in place of dependences).

    Parameters
    ----------
    candidates : sequence of Marginal
        What may be released.
    misfits : ndarray of shape (n_candidates,)
        Estimated numbers of rows that the model puts wrong, twice.
    importance : ndarray of shape (n_candidates,)
        What a wrong row counts.
    sigma : float
        Noise of a marginal that has the whole release for itself.

    Returns
    -------
    Choice
        At least one marginal.
    """
    cells = np.array([marginal.n_cells for marginal in candidates], dtype=np.float64)
    guessed = _NOISE_COST * sigma * math.sqrt(_SHARING) * cells
    gains = importance * (misfits - guessed)
    best: dict[tuple[int, ...], int] = {}
    for place, marginal in enumerate(candidates):
        if marginal.columns not in best or gains[place] > gains[best[marginal.columns]]:
            best[marginal.columns] = place
    places = np.array(list(best.values()))
    ranked = places[
        np.argsort(-(importance * misfits)[places] / cells[places] ** (2 / 3), kind="stable")
    ]
    left_out = np.maximum(importance * misfits, 0.0)[ranked]
    left_out = left_out.sum() - np.cumsum(left_out)
    # With the best shares the noise of k marginals costs the sum of (importance cells)^(2/3),
    # to the power 3/2.
    noise = np.cumsum((importance * cells)[ranked] ** (2 / 3)) ** 1.5
    n_chosen = int(np.argmin(_NOISE_COST * sigma * noise + left_out)) + 1
    chosen = ranked[:n_chosen]
    return Choice.of([candidates[place] for place in chosen], importance[chosen])
