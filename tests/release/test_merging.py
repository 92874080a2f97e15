"""Adding sketches of disjoint parties."""

import math

import numpy as np
import pandas as pd
import pytest

from skdpot import SlicedSketch
from skdpot.metrics.debiased_distance import debiased_squared_distance
from skdpot.ot.slices import uniform_directions

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (90, 2))
Y = RNG.integers(0, 2, 90)
DIRECTIONS = uniform_directions(5, 2, RNG)


def sketch(rows=slice(None), **changes):
    parameters = {"bounds": (-1, 1), "projections": DIRECTIONS, "n_bins": 8} | changes
    return SlicedSketch(**parameters).fit(X[rows], Y[rows])


PARTIES = [slice(0, 20), slice(20, 50), slice(50, 90)]


@pytest.mark.parametrize("conditional", [False, True])
def test_merging_is_adding(conditional):
    options = {"epsilon": np.inf, "conditional": conditional}
    merged = sketch(PARTIES[0], **options).merge(*(sketch(rows, **options) for rows in PARTIES[1:]))
    whole = sketch(**options)
    np.testing.assert_array_equal(merged.statistic_, whole.statistic_)
    np.testing.assert_array_equal(merged.cdf_, whole.cdf_)
    assert merged.n_samples_ == 90


def test_each_party_brings_its_own_noise():
    parties = [sketch(rows, epsilon=1.0) for rows in PARTIES]
    before = [party.statistic_.copy() for party in parties]
    merged = parties[0].merge(*parties[1:])
    np.testing.assert_array_equal(merged.statistic_, sum(before))
    for party, statistic in zip(parties, before, strict=True):
        np.testing.assert_array_equal(party.statistic_, statistic)


def test_the_statement_is_that_of_the_weakest_party_whatever_their_deltas():
    """A larger epsilon at a much smaller delta can be the stronger guarantee."""
    strict = sketch(epsilon=1.0, delta=1e-9)
    loose = sketch(epsilon=0.9, delta=1e-2)
    assert loose.privacy_spent_.event.mu > strict.privacy_spent_.event.mu
    for merged in (strict.merge(loose), loose.merge(strict)):
        assert merged.privacy_spent_ == loose.privacy_spent_


def test_one_party_without_noise_leaves_no_guarantee():
    merged = sketch(epsilon=1.0).merge(sketch(epsilon=np.inf))
    assert merged.privacy_spent_.epsilon == math.inf


PUBLIC = {"conditional": True, "public_labels": True, "classes": [0, 1]}
ROWS_OF_ONE = "different numbers of rows of one person"


@pytest.mark.parametrize(
    ("given", "changes", "text"),
    [
        ({}, {"projections": uniform_directions(5, 2, RNG)}, "different directions"),
        ({}, {"projections": DIRECTIONS[:4]}, "different directions"),
        ({}, {"n_bins": 9}, "different numbers of bins"),
        ({}, {"bounds": (-1, 2)}, "different bounds"),
        ({}, {"bounds": "private", "norm_bound": math.sqrt(2)}, "different bounds"),
        ({}, {"conditional": True}, "different classes"),
        (PUBLIC, {"public_labels": False}, "public in some of them"),
        (PUBLIC, {"group_size": 2}, ROWS_OF_ONE),
    ],
)
def test_sketches_of_other_statistics_are_refused(given, changes, text):
    first, other = sketch(epsilon=9.0, **given), sketch(epsilon=9.0, **given | changes)
    for one, two in ((first, other), (other, first)):
        with pytest.raises(ValueError, match=text):
            one.merge(two)
        if "bins" in text or "directions" in text:
            with pytest.raises(ValueError, match=text):
                one.distance(two)
    if text == ROWS_OF_ONE:  # what they released counts, not what they say
        with pytest.raises(ValueError, match=text):
            first.set_params(group_size=2).merge(other)


def test_only_sketches_are_merged():
    with pytest.raises(TypeError, match="merge adds sketches, not a list"):
        sketch().merge([sketch()])


def test_bounds_must_be_declared():
    """Private bounds that happen to agree would make the statistic of one depend on both."""
    first, second = (sketch(epsilon=np.inf, bounds="private") for _ in range(2))
    second.bounds_, second.half_widths_ = first.bounds_, first.half_widths_
    with pytest.raises(ValueError, match="bounds that were declared"):
        first.merge(second)


@pytest.mark.parametrize("position", [1, 2])
def test_one_release_is_not_two_parties(position, tmp_path):
    """A copy of a release is the same rows again, and the same noise twice is not independent."""
    parties = [sketch(rows, epsilon=1.0) for rows in PARTIES]
    parties[0].save(tmp_path / "copy.safetensors")
    for again in (SlicedSketch.load(tmp_path / "copy.safetensors"), parties[0]):
        several = [*parties[:position], again, *parties[position:]]
        for order in (several, several[::-1]):
            with pytest.raises(ValueError, match="one sketch twice"):
                order[0].merge(*order[1:])
    # Without noise equal tables can come about by chance.
    assert sketch(epsilon=np.inf).merge(sketch(epsilon=np.inf)).n_samples_ == 180


def test_features_in_another_order_are_refused():
    def named(columns, **options):
        frame = pd.DataFrame(X, columns=list(columns))
        return SlicedSketch(bounds=(-1, 1), projections=DIRECTIONS, n_bins=8, **options).fit(frame)

    one, other, unnamed = named("ab"), named("ba"), sketch()
    text = r"The sketches have different names of features; give the columns the same names, in"
    for call in (
        lambda: one.distance(other),
        lambda: one.merge(other),
        lambda: unnamed.merge(one, other),
        lambda: unnamed.merge(one).distance(other),
        lambda: debiased_squared_distance(one, other),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    assert one.distance(unnamed) > 0
    assert one.distance(named("ab")) > 0
    assert list(one.merge(named("ab")).feature_names_in_) == ["a", "b"]
