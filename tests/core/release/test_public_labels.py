"""Sketches of rows whose labels everybody may know: exact sizes, one decoding a class.

Noise is not seeded where it is not said. Tolerances are five standard errors or more (false
alarms below 1e-6).
"""

import math

import numpy as np
import pytest

from skdpot import SlicedSketch
from skdpot.ot.directions import uniform_directions
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release.decoding import decode
from skdpot.release.sketch_plan import plan_sketch

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (300, 2))
TIMES = RNG.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
SIZES = np.bincount(TIMES)
SHAPE = {"bounds": (-1, 1), "projections": uniform_directions(6, 2, RNG), "n_bins": 16}
PRIVATE = SHAPE | {"conditional": True, "classes": range(4)}
PUBLIC = PRIVATE | {"public_labels": True}


@pytest.mark.parametrize("epsilon", [0.1, np.inf])
def test_class_sizes_are_exact_where_labels_are_public(epsilon):
    """A class without rows is uniform and weighs nothing. Private sizes are not even counted."""
    sketch = SlicedSketch(epsilon, **PUBLIC | {"classes": range(6)}).fit(X, TIMES)
    np.testing.assert_array_equal(sketch.class_counts_, [*SIZES, 0, 0])
    uniform = np.tile(np.linspace(0, 1, 17), (6, 1))
    for label in (4, 5):
        np.testing.assert_allclose(sketch.table(label).cdf, uniform, atol=1e-15)
    mixture = np.average(sketch.cdf_[:4], axis=0, weights=SIZES)
    np.testing.assert_allclose(sketch.table().cdf, mixture, atol=1e-12)
    if np.isfinite(epsilon):
        # Two tables of 96 values each: noise and nothing else, as the others have it.
        assert sketch.statistic_[4:].std() == pytest.approx(sketch.noise_scale_, rel=0.3)
    parties = (slice(0, 100), slice(100, 300))
    one, two = (SlicedSketch(epsilon, **PUBLIC).fit(X[rows], TIMES[rows]) for rows in parties)
    np.testing.assert_array_equal(one.merge(two).class_counts_, SIZES)
    sketch.set_params(public_labels=False).fit(X, TIMES)
    assert sketch._label_counts is None
    assert not np.array_equal(sketch.class_counts_, [*SIZES, 0, 0])
    assert SlicedSketch(**PRIVATE).partial_fit(X, TIMES)._accumulator.label_counts is None


def test_classes_that_differ_are_decoded_like_sketches_of_their_rows_alone():
    shift = np.array([[-0.7, 0.7], [-0.2, -0.5], [0.2, 0.6], [0.7, -0.7]])
    width = np.array([0.05, 0.2, 0.1, 0.3])[TIMES, None]
    sketch = SlicedSketch(8.0, **PUBLIC).fit(shift[TIMES] + width * X, TIMES)
    measured = (sketch.noise_scale_, sketch.directions_, sketch.half_widths_)
    for k, size in enumerate(SIZES.tolist()):
        table = sketch.statistic_[k : k + 1]
        alone, _ = decode(table, sketch.strategy_, size, *measured)
        np.testing.assert_allclose(sketch.cdf_[k], alone[0], atol=1e-12)


def test_the_statement_names_what_is_public():
    def assumed(**options):
        sketch = SlicedSketch(**PRIVATE, **options).fit(X, TIMES)
        return "; ".join(sketch.privacy_spent_.assumptions)

    seeded = "nobody knows random_state"
    with pytest.warns(UserWarning, match="random_state"):
        assert seeded in assumed(random_state=0)
    assert seeded not in assumed()
    label = "the label of every row, and so the number of rows of each class"
    one, several = "each person contributes one row", "each person contributes at most 3 rows"
    assert label not in assumed()
    assert label in assumed(public_labels=True)
    assert one in assumed(public_labels=True)
    grouped = assumed(public_labels=True, group_size=3)
    assert f"{several}, all of different labels" in grouped
    assert one not in grouped


def test_private_bounds_pool_the_rows_of_a_person():
    """Their rows may all move the same counts of the bounds: k, not the root of k."""
    target, shape = PrivacyTarget(2.0, 1e-5), {"n_projections": 6, "n_bins": 16}
    shape |= {"bounds": 5000, "public_labels": True}
    tables = []
    for group_size in (1, 3):
        rng = np.random.default_rng(0)
        plan = plan_sketch(target, 5000, 2, 4, rng=rng, group_size=group_size, **shape)
        assert target.admits(plan.event)
        *bounds, table = plan.event.phases
        for event, n_tables in zip(bounds, (2, 1), strict=True):
            assert event.sensitivity == pytest.approx(group_size * math.sqrt(2 * n_tables))
        tables.append(table.sensitivity)
    assert tables[1] == pytest.approx(math.sqrt(3) * tables[0])
