"""PrivateScaler: what it learns."""

import math

import numpy as np
import pytest
from sklearn.preprocessing import RobustScaler

from skdpot.exceptions import ReliabilityWarning
from skdpot.preprocessing import PrivateScaler
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).normal([5.0, -300.0, 0.0], [1.0, 50.0, 1e-3], (5000, 3))


# ------------------------------------------------------------ what it learns


def test_centres_and_scales(X):
    scaler = PrivateScaler(epsilon=2.0).fit(X)
    assert np.abs(scaler.transform(X).mean(axis=0)).max() < 0.2
    np.testing.assert_allclose(scaler.transform(X).std(axis=0), 1, rtol=0.2)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X, rtol=1e-9)


def test_no_noise_at_infinite_epsilon(X):
    scaler = PrivateScaler(epsilon=math.inf).fit(X)
    off = (scaler.center_ - RobustScaler().fit(X).center_) / X.std(axis=0)
    assert np.abs(off).max() < 0.01  # the cells of histograms
    np.testing.assert_allclose(scaler.scale_, X.std(axis=0), rtol=0.05)
    assert scaler.privacy_spent_.epsilon == math.inf
    assert isinstance(scaler.privacy_spent_.event, NonPrivateEvent)


@pytest.mark.parametrize(("epsilon", "n_fits", "least"), [(1.0, 8, 5), (math.inf, 1, 1)])
def test_constant_features_get_scale_one(epsilon, n_fits, least):
    """At epsilon 1 noise leaves one a spread in 1.5 % of fits: false alarms are below 1 in 10^5."""
    X = np.column_stack([np.full(5000, 7.0), np.zeros(5000)])
    fits = [PrivateScaler(epsilon=epsilon).fit(X) for _ in range(n_fits)]
    assert sum(scaler.scale_.tolist() == [1.0, 1.0] for scaler in fits) >= least
    assert all(np.abs(scaler.center_ - [7, 0]).max() < 0.3 for scaler in fits)


def test_parts_can_be_left_out(X):
    scaler = PrivateScaler(with_centering=False).fit(X)
    assert scaler.center_ is None
    np.testing.assert_allclose(scaler.transform(X), X / scaler.scale_)
    assert isinstance(scaler.privacy_spent_.event, GaussianEvent)
    scaler = PrivateScaler(with_scaling=False).fit(X)
    assert scaler.scale_ is None
    np.testing.assert_allclose(scaler.transform(X), X - scaler.center_)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X)


def test_few_rows_fall_back_with_a_warning(X):
    with pytest.warns(ReliabilityWarning, match="noise hides the centre of feature 0.* 3 more"):
        scaler = PrivateScaler(epsilon=0.1).fit(X[:10])
    assert len(scaler.reliability_.unreliable) == 6


LAWS = {
    "normal": lambda rng, shape: rng.normal(3.0, 1.0, shape),
    "uniform": lambda rng, shape: rng.uniform(-3, 5, shape),
    "skewed": lambda rng, shape: rng.exponential(2.0, shape),
    "heavy-tailed": lambda rng, shape: rng.standard_t(3, shape),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_true_scales_are_within_two_stated_errors(name):
    """200 fits of each law, of features of sizes from .01 to 100; scales that are kept."""
    rng, of_centers, of_scales = np.random.default_rng(7), [], []
    for n, d, epsilon in [(300, 4, 1.0), (1000, 8, 1.0), (3000, 4, 0.3), (10_000, 4, 1.0)]:
        for _ in range(50):
            rows = LAWS[name](rng, (n, d)) * 10.0 ** rng.integers(-2, 3, d)
            found = PrivateScaler(epsilon=epsilon).fit(rows)
            true = PrivateScaler(epsilon=math.inf).fit(rows)
            errors = np.array([each.standard_error for each in found.reliability_]).reshape(2, d)
            kept = np.array([each.reliable for each in found.reliability_])[d:]
            of_centers += (np.abs(found.center_ - true.center_) <= 2 * errors[0])[kept].tolist()
            of_scales += (np.abs(found.scale_ - true.scale_) <= 2 * errors[1])[kept].tolist()
    assert len(of_scales) > 800
    assert np.mean(of_centers) > 0.93
    assert np.mean(of_scales) > 0.93


def test_a_common_value_before_hidden_ones_is_no_constant():
    """Where 8 % of the values are far away, noise tells neither their size nor that there are none.

    A constant is one only if noise hides less than 2 % of the rows.
    """
    rng = np.random.default_rng(0)
    gains = np.where(rng.random(3000) < 0.08, rng.exponential(5000.0, 3000), 0.0)[:, None]
    for rows in (np.zeros((3000, 1)), gains):
        told = PrivateScaler(epsilon=0.1).fit(rows).reliability_.unreliable
        assert "the scale of feature 0" in told
    constant = PrivateScaler(epsilon=3.0).fit(np.full((30_000, 1), 7.0))
    assert constant.reliability_.unreliable == ()
    assert constant.scale_[0] == 1.0
