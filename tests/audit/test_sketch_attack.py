"""Rows from a sketch: no better than its ε allows, and exactly where there is too little noise."""

import numpy as np
import pytest
from scipy.stats import norm

from skdpot import SlicedSketch
from skdpot.audit.message_attacks import row_from_sketch, rows_from_sketch
from skdpot.privacy.events import gdp_mu

N_CANDIDATES = 10
RNG = np.random.default_rng(0)
OTHERS = RNG.uniform(-1, 1, size=(80, 4))
PRIOR = RNG.choice([-1.0, 1.0], size=(N_CANDIDATES, 4)) * RNG.uniform(0.5, 1, (N_CANDIDATES, 4))

# Given seeds make the noise the same in every run; the package warns that they are for tests.
pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")


def release(rows, seed, epsilon=1.0, **options):
    options = {"bounds": (-1, 1), "n_projections": 4, "n_bins": 8} | options
    return SlicedSketch(epsilon, random_state=seed, **options).fit(rows)


def success(n_trials=150, **options):
    """Return how often the row is found among ten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SlicedSketch, "_decode", lambda self: None)  # the attack reads the table
        hits = 0
        for seed in range(n_trials):
            row = PRIOR[[seed % N_CANDIDATES]]
            sketch = release(np.concatenate([OTHERS, row]), seed, **options)
            hits += row_from_sketch(sketch, OTHERS, PRIOR).n_exact(row)
    return hits / n_trials


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_row_is_found_hardly_more_often_than_by_guessing(epsilon):
    bound = norm.cdf(norm.ppf(1 / N_CANDIDATES) + gdp_mu(epsilon, 1e-5))
    assert success(epsilon=epsilon) < bound + 3 * np.sqrt(bound * (1 - bound) / 150)


def test_too_little_noise_gives_the_row_away(with_noise_over):
    assert success(n_trials=20, epsilon=np.inf) == 1.0
    with_noise_over(10)
    assert success() > 2 * norm.cdf(norm.ppf(1 / N_CANDIDATES) + gdp_mu(1.0, 1e-5))


def test_labels():
    y, rows = np.arange(81) % 2, np.concatenate([OTHERS, PRIOR[[3]]])
    sketch = SlicedSketch(np.inf, bounds=(-1, 1), n_projections=4, n_bins=8, conditional=True)
    labels = {"y_others": y[:-1], "y_candidates": np.full(N_CANDIDATES, y[-1])}
    found = row_from_sketch(sketch.fit(rows, y), OTHERS, PRIOR, **labels)
    assert found.n_exact(PRIOR[[3]]) == 1
    with pytest.raises(ValueError, match="X has shape"):
        row_from_sketch(sketch, OTHERS[:, :1], PRIOR)


def closeness(epsilon, n_rows, seeds):
    """Compare how near reconstructed rows come to the private rows and to as many fresh ones."""
    private_errors, fresh_errors = [], []
    for seed in seeds:
        rng = np.random.default_rng(1000 + seed)
        private, fresh = rng.uniform(-1, 1, size=(2, n_rows, 2))
        options = {"n_projections": 64, "n_bins": 256} if np.isinf(epsilon) else {}
        sketch = SlicedSketch(epsilon, bounds=(-1, 1), random_state=seed, **options).fit(private)
        found = rows_from_sketch(sketch, n_rows, rng)
        private_errors.append(found.row_errors(private))
        fresh_errors.append(found.row_errors(fresh))
    return np.mean(private_errors, axis=1), np.mean(fresh_errors, axis=1)


@pytest.mark.slow
def test_reconstructed_rows_are_as_near_to_anybody_else():
    private, fresh = closeness(1.0, 50, range(20))
    gain = (fresh - private) / fresh.mean()
    assert abs(gain.mean()) < 3 * gain.std() / np.sqrt(20)
    assert abs(gain.mean()) < 0.05


def test_without_noise_they_are_the_rows():
    private, fresh = closeness(np.inf, 20, range(3))
    assert private.mean() < 0.3 * fresh.mean()
