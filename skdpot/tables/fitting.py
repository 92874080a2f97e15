"""From private rows to a model of the table, by noisy marginals alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from skdpot._utils.rng import Streams
from skdpot.preprocessing.column_base import ColumnGrid
from skdpot.slicing.marginal_release import release_marginals, release_misfits
from skdpot.slicing.marginals import FloatArray, IntArray, Marginal, NoisyMarginal
from skdpot.tables.choice import (
    TARGET_IMPORTANCE,
    Candidates,
    Choice,
    all_pairs,
    choose,
    choose_tree,
    sampling_misfit,
)
from skdpot.tables.coarsening import ColumnBins, coarsen
from skdpot.tables.model import TableModel
from skdpot.tables.plan import TablePlan
from skdpot.tables.tree import ColumnTree, TreeNode, fit_tree

__all__ = ["TableProblem", "fit_table"]

_SWEEPS = 30


@dataclass(frozen=True, eq=False)
class TableProblem:
    """A private table, and what is public about it.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_rows, n_columns)
        Private: the cell of each value.
    grids : tuple of ColumnGrid
        Cells of each column.
    target : int or None
        Column whose pairs matter most.
    n_particles : int
        Particles that potentials are fitted with.
    """

    codes: IntArray
    grids: tuple[ColumnGrid, ...]
    target: int | None
    n_particles: int


def fit_table(
    problem: TableProblem,
    plan: TablePlan,
    streams: Streams,
    advance: Callable[[str], None] = lambda stage: None,
) -> TableModel:
    """Release what `plan` says and fit a model to it.

    Parameters
    ----------
    problem : TableProblem
        The rows.
    plan : TablePlan
        Noise of each release.
    streams : Streams
        Noise and particles.
    advance : callable, optional
        Told the name of each stage that ends.

    Returns
    -------
    TableModel

    Privacy
    -------
    The caller has charged ``plan.event``. What is chosen after a release depends on it and on
    public facts only.
    """
    columns = _release_columns(problem, plan, streams)
    n_groups = plan.n_groups(len(columns))
    bins = tuple(
        coarsen(
            noisy.counts,
            noisy.sigma,
            plan.n_samples,
            ordered=grid.ordered,
            missing=grid.column.missing,
            doubtful=grid.is_doubtful,
            n_groups=n_groups,
        )
        for noisy, grid in zip(columns, problem.grids, strict=True)
    )
    advance("columns")
    codes = _binned(problem.codes, bins)
    tree, pairs = _release_tree(problem, codes, bins, plan, streams)
    advance("tree")
    model = TableModel(plan.n_samples, columns, bins, tree, (), ())
    if len(bins) == 1:
        return model
    return _release_pairs(problem, codes, model, pairs, plan, streams, advance)


def _release_columns(
    problem: TableProblem, plan: TablePlan, streams: Streams
) -> tuple[NoisyMarginal, ...]:
    marginals = [
        Marginal((column,), (np.arange(grid.size),)) for column, grid in enumerate(problem.grids)
    ]
    sigmas = plan.marginal_sigmas("columns", np.ones(len(marginals)))
    return release_marginals(problem.codes, marginals, sigmas, streams.secret)


def _binned(codes: IntArray, bins: Sequence[ColumnBins]) -> IntArray:
    binned = np.empty(codes.shape, dtype=np.int32, order="F")
    for column, found in enumerate(bins):
        binned[:, column] = found.bins[codes[:, column]]
    return binned


def _release_tree(
    problem: TableProblem,
    codes: IntArray,
    bins: tuple[ColumnBins, ...],
    plan: TablePlan,
    streams: Streams,
) -> tuple[ColumnTree, tuple[NoisyMarginal, ...]]:
    """Choose a tree by how far pairs are from independent, and release its pairs."""
    shares = [found.shares for found in bins]
    if len(bins) == 1:
        return fit_tree((TreeNode(0, None),), shares, {}, plan.n_samples, None), ()
    marginals = all_pairs(bins)
    independent = [
        pair.joined(plan.n_samples * np.outer(*(shares[column] for column in pair.columns)))
        for pair in marginals
    ]
    candidates = _candidates(problem, codes, marginals, independent, plan, "independence", streams)
    sigma = float(plan.marginal_sigmas("tree", np.ones(1))[0])
    nodes, choice = choose_tree(candidates, len(bins), problem.target, sigma)
    pairs = () if choice is None else _released(codes, choice, plan, "tree", streams)
    by_columns = {(noisy.marginal.columns[0], noisy.marginal.columns[1]): noisy for noisy in pairs}
    return fit_tree(nodes, shares, by_columns, plan.n_samples, problem.target), pairs


def _release_pairs(
    problem: TableProblem,
    codes: IntArray,
    model: TableModel,
    pairs: tuple[NoisyMarginal, ...],
    plan: TablePlan,
    streams: Streams,
    advance: Callable[[str], None],
) -> TableModel:
    """Release the pairs that the tree gets worst, and fit potentials to all."""
    particles = model.particles(problem.n_particles, streams.solver)
    marginals = all_pairs(model.bins)
    predictions = [pair.counts(particles.codes, particles.weights) for pair in marginals]
    candidates = _candidates(problem, codes, marginals, predictions, plan, "misfit", streams)
    choice = choose(candidates, float(plan.marginal_sigmas("pairs", np.ones(1))[0]))
    known = {noisy.marginal: noisy for noisy in pairs}
    for noisy in _released(codes, choice, plan, "pairs", streams):
        before = known.get(noisy.marginal)
        known[noisy.marginal] = noisy if before is None else before.merge(noisy)
    advance("pairs")
    for noisy in known.values():
        particles.add(noisy)
    particles.run(_SWEEPS)
    advance("particles")
    return replace(model, marginals=tuple(known.values()), potentials=tuple(particles.potentials))


def _candidates(
    problem: TableProblem,
    codes: IntArray,
    marginals: tuple[Marginal, ...],
    predictions: Sequence[FloatArray],
    plan: TablePlan,
    release: str,
    streams: Streams,
) -> Candidates:
    """Release misfits, and take off what chance and the noise explain."""
    sigma = plan.misfit_sigma(release, len(marginals))
    noisy = release_misfits(codes, marginals, predictions, sigma, streams.secret)
    chance = [sampling_misfit(table, plan.n_samples) for table in predictions]
    importance = [
        TARGET_IMPORTANCE if problem.target in marginal.columns else 1.0 for marginal in marginals
    ]
    return Candidates(marginals, noisy - np.array(chance) - sigma, np.array(importance))


def _released(
    codes: IntArray, choice: Choice, plan: TablePlan, release: str, streams: Streams
) -> tuple[NoisyMarginal, ...]:
    sigmas = plan.marginal_sigmas(release, choice.weights)
    return release_marginals(codes, choice.marginals, sigmas, streams.secret)
