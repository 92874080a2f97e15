"""The attack on synthetic tables: canaries that differ everywhere, and a score that sees it all."""

import math

import numpy as np
import pytest

from skdpot import DPTableSynthesizer
from skdpot.audit.attacks import default_score
from skdpot.audit.canaries import AuditTask, CanaryPairs, default_canaries
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
)

pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
SCHEMA = TableSchema(
    [
        CategoricalColumn("a", categories=[3, 1, 4, 7]),
        NumericColumn("b", lower=-2, upper=5),
        NumericColumn("c", lower=0, upper=9, integer=True),
        BooleanColumn("d"),
    ]
)
RNG = np.random.default_rng(0)
N = 3000
LATENT = RNG.random(N)
ROWS = np.column_stack(
    [
        np.array([3.0, 1.0, 4.0, 7.0])[(LATENT * 4).astype(int)],
        LATENT * 7 - 2,
        (LATENT * 10).astype(int),
        LATENT > 0.5,
    ]
)


def synthesizer(epsilon=1.0, schema=SCHEMA, **options):
    return DPTableSynthesizer(schema, epsilon, n_particles=500, **options)


def canaries(estimator, n_pairs=200, X=ROWS):
    return default_canaries(estimator, n_pairs, X, rng=np.random.default_rng(1))


def audited(epsilon, n_pairs=60, heads=None, **options):
    estimator = synthesizer(epsilon, **options)
    pairs = canaries(estimator, n_pairs)
    heads = np.random.default_rng(2).random(n_pairs) < 0.5 if heads is None else heads
    task = AuditTask(fit=estimator, pairs=pairs, X=ROWS, y=None, fit_params={})
    return task.run(heads), heads


def test_canaries_differ_in_all_columns_and_fit_the_schema():
    pairs = canaries(synthesizer())
    assert pairs.first.shape == pairs.second.shape == (200, 4)
    assert (pairs.first != pairs.second).all()
    for side in (pairs.first, pairs.second):
        assert set(side[:, 0]) == {1.0, 3.0, 4.0, 7.0}
        assert side[:, 1].min() >= -2
        assert side[:, 1].max() <= 5
        assert set(side[:, 2]) <= set(range(10))
        assert set(side[:, 3]) == {0.0, 1.0}
    distance = np.abs(pairs.first - pairs.second)
    assert np.abs(distance[:, 1] - 3.5).max() < 0.1
    assert (distance[:, 2] == 5).all()


def test_without_a_schema_canaries_lie_among_the_rows():
    pairs = canaries(synthesizer(schema=None))
    for side in (pairs.first, pairs.second):
        assert (side >= ROWS.min(axis=0)).all()
        assert (side <= ROWS.max(axis=0)).all()
    part = TableSchema([CategoricalColumn("a"), *(NumericColumn(name) for name in "bcd")])
    assert set(canaries(synthesizer(schema=part)).first[:, 0]) == {1.0, 3.0, 4.0, 7.0}


def test_a_schema_may_be_a_file(tmp_path):
    path = tmp_path / "schema.json"
    SCHEMA.to_json(path)
    first, second = (canaries(synthesizer(schema=s)) for s in (str(path), SCHEMA))
    np.testing.assert_array_equal(first.first, second.first)


@pytest.mark.parametrize(
    "column",
    [
        CategoricalColumn("a", categories=["x", "y"]),
        DatetimeColumn("a", lower="2024-01-01", upper="2024-02-01"),
    ],
)
def test_columns_that_are_no_numbers_are_refused(column):
    schema = SCHEMA.replace(column)
    with pytest.raises(ValueError, match="'a'"):
        canaries(synthesizer(schema=schema))


def test_without_rows_the_schema_must_say_which_values_there_are():
    nothing = np.empty((0, 4))
    assert len(canaries(synthesizer(), X=nothing)) == 200
    with pytest.raises(ValueError, match="Nothing says which values column 'x0' has"):
        canaries(synthesizer(schema=None), X=nothing)


def test_without_noise_every_coin_is_found():
    run, heads = audited(math.inf)
    scores = default_score(run.fitted)(run)
    assert ((scores > 0) == heads).all()
    assert np.abs(scores).min() > 0.5


def test_much_noise_hides_every_coin():
    """Sixty coins; more than 55 of them are found by chance once in 10^11."""
    run, heads = audited(0.01)
    right = (default_score(run.fitted)(run) > 0) == heads
    assert right.sum() < 55


@pytest.mark.parametrize("target", [None, "d"])
def test_the_score_of_one_pair_is_the_likelihood_ratio(target):
    """By hand: each count has noise of its own scale, and the two candidates differ in two."""
    run, _ = audited(4.0, n_pairs=1, target=target, schema=SCHEMA)
    fitted, pairs = run.fitted, run.pairs
    log_ratio = 0.0
    grids, bins = fitted._grids, fitted.model_.bins
    for place, noisy in enumerate(fitted.marginals_):
        expected = []
        for candidate in (pairs.first, pairs.second):
            rows = np.concatenate([run.X, candidate])
            codes = np.stack([g.codes(rows[:, j]) for j, g in enumerate(grids)], axis=1)
            if place >= len(grids):  # pairs are counted in bins
                codes = np.stack([b.bins[codes[:, j]] for j, b in enumerate(bins)], axis=1)
            expected.append(noisy.marginal.counts(codes))
        for sign, table in zip((1, -1), expected, strict=True):
            log_ratio -= sign * np.sum((noisy.counts - table) ** 2) / (2 * noisy.sigma**2)
    (score,) = default_score(fitted)(run)
    information = sum(
        float(np.sum((a - b) ** 2)) / (4 * n.sigma**2)
        for n in fitted.marginals_
        for a, b in [_both(run, n)]
    )
    # The estimate of the coin: the matched filter over what it would be without noise, plus one.
    assert score == pytest.approx(log_ratio / 2 / (information + 1), rel=1e-6)


def _both(run, noisy):
    """The counts of either candidate alone."""
    fitted = run.fitted
    alone = any(noisy is column for column in fitted.model_.columns)
    for candidate in (run.pairs.first, run.pairs.second):
        codes = np.stack([g.codes(candidate[:, j]) for j, g in enumerate(fitted._grids)], axis=1)
        if not alone:
            codes = np.stack(
                [b.bins[codes[:, j]] for j, b in enumerate(fitted.model_.bins)], axis=1
            )
        yield noisy.marginal.counts(codes)


def test_the_score_does_not_depend_on_the_coins_but_through_what_was_released():
    run, heads = audited(2.0)
    scores = default_score(run.fitted)(run)
    swapped = CanaryPairs(first=run.pairs.second, second=run.pairs.first)
    other = run.__class__(**vars(run) | {"pairs": swapped})
    np.testing.assert_allclose(default_score(run.fitted)(other), -scores, rtol=1e-6, atol=1e-9)
    assert heads.any()
