"""What a published sketch says of the distances to it."""

import numpy as np
import pytest

from skdpot import PrivateWassersteinDistance
from skdpot.exceptions import ReliabilityWarning

RNG = np.random.default_rng(38)
LAWS = {
    "normal": lambda n, d: RNG.normal(0, 0.3, (n, d)),
    "uniform": lambda n, d: RNG.uniform(-1, 1, (n, d)),
    "two clusters": lambda n, d: RNG.choice([-0.6, 0.5], (n, d)) + 0.05 * RNG.normal(size=(n, d)),
    "skewed": lambda n, d: RNG.exponential(0.2, (n, d)) - 1,
}


def published(rows, epsilon, **options):
    options = {"bounds": (-1, 1)} | options
    return PrivateWassersteinDistance(epsilon=epsilon, **options).fit(rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_noise_alone_seldom_yields_two_standard_errors(name):
    """Of 48 pairs of equal parties per law; the squared distance is compared, which has no bias."""
    inside, sizes = [], []
    for n, d, epsilon in [(100, 2, 3.0), (300, 4, 1.0), (1000, 12, 1.0), (3000, 2, 0.3)]:
        for _ in range(12):
            rows = np.clip(LAWS[name](n, d), -1, 1)
            one, other = published(rows, epsilon), published(rows, epsilon)
            error = one.reliability_.outputs[0].standard_error
            squared = one.compare(other).squared_distance
            inside.append(squared <= (2 * error) ** 2)
            sizes.append(np.sqrt(abs(squared)) / error)
    assert np.mean(inside) >= 0.95
    assert 0.1 < np.median(sizes) < 1.5  # nor is it far larger than what noise yields


@pytest.mark.filterwarnings("error::skdpot.exceptions.ReliabilityWarning")
def test_parties_with_enough_rows_are_told_nothing():
    for law in LAWS.values():
        assert published(np.clip(law(3000, 4), -1, 1), 1.0).reliability_.unreliable == ()


@pytest.mark.parametrize("n_features", [1, 3])
def test_rows_that_are_all_clipped_to_one_corner_are_told(n_features):
    """Ages in bounds of (0, 1): a distance of 0 to whoever has the same bounds."""
    ages = RNG.uniform(18, 90, (2000, n_features))
    with pytest.warns(ReliabilityWarning, match="at one corner of the bounds: check that bounds="):
        private = published(ages, 1.0, bounds=(0, 1))
    assert private.reliability_.unreliable == ("distances to other parties",)
    with pytest.warns(ReliabilityWarning, match="at one corner"):
        published(-ages, 1.0, bounds=(0, 1))


def test_errors_are_in_the_unit_of_the_distance():
    rows = RNG.normal(0, 0.3, (2000, 3))
    one, hundred = (published(s * rows, 1.0, bounds=(-s, s)) for s in (1.0, 100.0))
    ratio = (
        hundred.reliability_.outputs[0].standard_error / one.reliability_.outputs[0].standard_error
    )
    assert ratio == pytest.approx(100, rel=0.3)


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.NotPrivateWarning")
@pytest.mark.parametrize("protocol", ["triangle", "fedwad"])
def test_protocols_without_noise_state_no_error(protocol):
    exact = PrivateWassersteinDistance(protocol).fit(RNG.normal(size=(20, 2)))
    assert [each.standard_error for each in exact.reliability_] == [0.0]
    assert exact.reliability_.unreliable == ()
