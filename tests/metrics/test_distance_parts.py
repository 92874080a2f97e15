"""The parts of the noise-aware distance: exact pieces, decoding on a support, sampling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.metrics.debiased_distance import (
    SupportedDecoder,
    copula_rows,
    sampling_deviations,
    squared_distances,
)
from skdpot.ot.slices import CDFTable, orthogonal_directions
from skdpot.release.histogram import count_projections, square_root_strategy

masses = st.lists(st.integers(0, 9), min_size=6, max_size=6).filter(any)


def cdf(*rows):
    values = np.zeros((len(rows), len(rows[0]) + 1))
    values[:, 1:] = np.cumsum(rows, axis=1) / np.sum(rows, axis=1, keepdims=True)
    values[:, -1] = 1.0
    return values


def gaussian_table(directions, covariance, n_rows=200_000, n_bins=64):
    rng = np.random.default_rng(2)
    rows = rng.multivariate_normal(np.zeros(len(covariance)), covariance, n_rows)
    widths = np.full(len(directions), 4 * np.sqrt(np.linalg.eigvalsh(covariance)[-1]))
    counts = count_projections(rows, directions, widths, n_bins)
    return CDFTable(directions, widths, cdf(*counts))


@given(first=masses, second=masses)
@settings(max_examples=100, deadline=None)
def test_all_rows_at_once_agree_with_one_by_one(first, second):
    one, two = cdf(first, second), cdf(second, [1] * 6)
    tables = [CDFTable(np.ones((2, 1)), np.ones(2), values) for values in (one, two)]
    expected = tables[0].squared_distances(tables[1])
    found = squared_distances(one, two) * (2 / 6) ** 2
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(squared_distances(two, one) * (2 / 6) ** 2, found, atol=1e-15)
    np.testing.assert_allclose(squared_distances(one, one), 0.0, atol=1e-15)


def test_decoding_on_a_support_is_exact_without_noise():
    strategy = square_root_strategy(8)
    counts = np.array([[0, 0, 3, 5, 1, 1, 0, 0], [4, 0, 0, 6, 0, 0, 0, 0]])
    decoder = SupportedDecoder(strategy, np.array([[2, 6], [0, 4]]))
    np.testing.assert_allclose(decoder.decode(counts @ strategy.matrix.T / 10), cdf(*counts))


def test_a_support_takes_noise_away_inside_too():
    """Best among linear unbiased estimates: less noise at every edge than without a support."""
    strategy, rng = square_root_strategy(32), np.random.default_rng(4)
    counts = np.zeros((1, 32))
    counts[0, 12:20] = 1000
    decoder = SupportedDecoder(strategy, np.array([[11, 21]]))
    errors = []
    for _ in range(300):
        statistic = counts @ strategy.matrix.T + 30 * rng.standard_normal((1, 32))
        plain = strategy.decoded(statistic, 8000)
        found = decoder.decode(statistic / 8000)
        np.testing.assert_allclose(
            found,
            decoder.decode(
                statistic / 8000 - counts @ strategy.matrix.T / 8000, cdf(counts[0])[:, 1:-1]
            ),
            atol=1e-12,
        )
        errors.append([(each - cdf(counts[0]))[0] for each in (plain, found)])
    plain, found = np.array(errors).std(axis=0)[:, 13:20]
    assert np.all(found < plain)
    assert np.abs(np.mean(errors, axis=0)[1, 13:20]).max() < 5e-4


@pytest.mark.parametrize("n_features", [2, 3])
def test_rows_of_the_copula_vary_like_rows(n_features):
    """Variances of means of projections over all directions, which the table does not show."""
    rng = np.random.default_rng(6)
    root = rng.normal(size=(n_features, n_features))
    covariance = root @ root.T + 0.1 * np.eye(n_features)
    directions = orthogonal_directions(6 * n_features, n_features, rng)
    known = gaussian_table(directions, covariance)
    bins = copula_rows(known, np.ones(len(directions)), rng)
    width = 2 * known.half_widths[0] / 64
    for weights in (np.ones(len(directions)), rng.normal(size=len(directions))):
        combined = (bins * width) @ weights
        expected = weights @ directions @ covariance @ directions.T @ weights
        assert combined.var() == pytest.approx(expected, rel=0.15, abs=0.05)
    shares = np.stack([np.bincount(column, minlength=64) for column in bins.T]) / len(bins)
    np.testing.assert_allclose(np.cumsum(shares, axis=1), known.cdf[:, 1:], atol=0.06)


def test_deviations_of_samples_have_the_variance_of_counts():
    rng = np.random.default_rng(7)
    bins = rng.integers(0, 4, size=(1000, 3))
    bins[:, 1] = bins[:, 0]
    bins[:, 2] = 3 - bins[:, 0]
    drawn = sampling_deviations(bins, 200, 4, 4000, rng)
    np.testing.assert_allclose(drawn.sum(axis=2), 0.0, atol=1e-6)
    # One column of a product may round differently from another one that is equal to it.
    np.testing.assert_allclose(drawn[:, 0], drawn[:, 1], atol=1e-6)
    np.testing.assert_allclose(drawn[:, 0], drawn[:, 2, ::-1], atol=1e-6)
    share = np.bincount(bins[:, 0], minlength=4) / 1000
    np.testing.assert_allclose(drawn[:, 0].var(axis=0), share * (1 - share) / 200, rtol=0.1)
