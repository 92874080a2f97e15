"""Rows from a sketch: no better than its ε allows, and exactly where there is too little noise."""

import numpy as np
import pytest

from skdpot import SlicedSketch
from skdpot.distance.reconstruction import rows_from_sketch

# Given seeds make the noise the same in every run; the package warns that they are for tests.
pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")


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
