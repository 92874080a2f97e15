"""From rows to a model: what is released, and that nothing else of the rows gets through."""

import math

import numpy as np
import pytest

from skdpot._utils.validation import SecretStream, Streams
from skdpot.preprocessing import BooleanColumn, CategoricalColumn, NumericColumn, TableSchema
from skdpot.privacy.accounting import SingleFitTarget
from skdpot.release.release import record_releases
from skdpot.tables.fitting import TableFit, plan_tables

SCHEMA = TableSchema(
    [
        CategoricalColumn("a", categories=list("uvwx"), dtype="object"),
        NumericColumn("b", lower=0, upper=60, dtype="int64"),
        NumericColumn("c", lower=0, upper=1, missing=True, dtype="float64"),
        BooleanColumn("d", dtype="bool"),
        CategoricalColumn("e", categories=[1, 2, 3], ordered=True, dtype="int64"),
    ]
)
GRIDS = tuple(column.grid() for column in SCHEMA)


def dependent_codes(n_rows, seed):
    """Cells of rows in which every column depends on the first."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, GRIDS[0].size, n_rows)
    columns = [first]
    for grid in GRIDS[1:]:
        near = (first + rng.random(n_rows)) / 4 * grid.n_cells
        columns.append(np.where(rng.random(n_rows) < 0.8, near, rng.integers(0, grid.size, n_rows)))
    return np.stack(columns, axis=1).astype(np.int32)


CODES, OTHERS = dependent_codes(2000, 0), dependent_codes(2000, 1)[::-1] * 0


def streams(seed=None):
    rng = np.random.default_rng(0)
    return Streams(SecretStream(seed), rng, rng)


def fitted(codes=CODES, epsilon=2.0, target=None, grids=GRIDS, schema=SCHEMA):
    plan = plan_tables(SingleFitTarget(epsilon, 1e-6), schema, len(codes))
    return TableFit(plan, streams(), codes, grids, target, 1000).model(), plan


def test_pairs_are_those_of_the_bins():
    model, _ = fitted(target=3)
    sizes = [found.n_bins for found in model.bins]
    groups = [found.coarse.max() + 1 for found in model.bins]
    for noisy in model.marginals:
        known = groups if noisy.marginal.levels == (1, 1) else sizes
        assert noisy.marginal.shape == tuple(known[c] for c in noisy.marginal.columns)


def test_without_noise_the_pairs_are_met():
    model, plan = fitted(epsilon=math.inf)
    assert plan.sigma == 0.0
    codes = model.draw(20_000, np.random.default_rng(0))
    binned = np.stack([b.bins[CODES[:, j]] for j, b in enumerate(model.bins)], axis=1)
    for noisy in model.marginals:
        ours, theirs = (noisy.marginal.counts(rows) / len(rows) for rows in (codes, binned))
        # A noise of five rows is assumed in every cell.
        assert np.abs(ours - theirs).sum() / 2 < 0.1


@pytest.mark.parametrize("target", [None, 0])
def test_one_column_is_released_once(target):
    schema = TableSchema([SCHEMA["a"]])
    with record_releases() as releases:
        model, plan = fitted(CODES[:, :1], grids=GRIDS[:1], schema=schema, target=target)
    (release,) = releases
    (sigma,) = release.sigma
    assert 2 / sigma**2 == pytest.approx(1 / plan.sigma**2)
    assert model.marginals == model.potentials == ()
    assert model.draw(10, np.random.default_rng(0)).shape == (10, 1)
