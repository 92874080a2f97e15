"""Sketches of rows whose labels everybody may know: less noise, exact sizes, one decoding a class.

Noise is not seeded where it is not said. Tolerances are five standard errors or more (false
alarms below 1e-6).
"""

import math

import numpy as np
import pytest

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.ot.slices import uniform_directions
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.privacy.events import ComposedEvent, GaussianEvent, gdp_delta
from skdpot.release.decoding import decode, posterior_mean
from skdpot.release.histogram import increasing, known_total, plan_sketch, square_root_strategy
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (300, 2))
TIMES = RNG.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
DIRECTIONS = uniform_directions(6, 2, RNG)
SHAPE = {"bounds": (-1, 1), "projections": DIRECTIONS, "n_bins": 16}
PUBLIC = SHAPE | {"conditional": True, "public_labels": True, "classes": range(4)}


def table_move(n_bins, n_projections):
    """Return how far one row moves the histograms of its class, computed bin by bin."""
    columns = square_root_strategy(n_bins).matrix.T
    moves = [np.sum((a - b) ** 2) for a in columns for b in columns]
    return math.sqrt(n_projections * max(moves))


@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_the_noise_is_that_of_one_table_a_row(group_size):
    """A second route: the moves of all pairs of bins, and the closed form for the noise."""
    spent = SlicedSketch(1.5, 1e-6, **PUBLIC, group_size=group_size).fit(X, TIMES).privacy_spent_
    due = math.sqrt(group_size) * table_move(16, 6)
    assert spent.sensitivity == pytest.approx(due, rel=1e-12)
    assert spent.sensitivity >= due * (1 - 1e-15)
    assert gdp_delta(1.5, due / spent.sigma) <= 1e-6
    assert gdp_delta(1.5, 1.001 * due / spent.sigma) > 1e-6


@pytest.mark.parametrize("epsilon", [0.1, np.inf])
def test_class_sizes_are_exact_where_labels_are_public(epsilon):
    whole = SlicedSketch(epsilon, **PUBLIC).fit(X, TIMES)
    np.testing.assert_array_equal(whole.class_counts_, np.bincount(TIMES))
    parties = (slice(0, 100), slice(100, 300))
    one, two = (SlicedSketch(epsilon, **PUBLIC).fit(X[rows], TIMES[rows]) for rows in parties)
    np.testing.assert_array_equal(one.merge(two).class_counts_, np.bincount(TIMES))


def test_sizes_are_not_even_counted_where_labels_are_private():
    sketch = SlicedSketch(**PUBLIC).fit(X, TIMES).set_params(public_labels=False)
    sketch.fit(X, TIMES)
    assert sketch._label_counts is None
    assert not np.array_equal(sketch.class_counts_, np.bincount(TIMES))
    sketch = SlicedSketch(**SHAPE, conditional=True, classes=range(4)).partial_fit(X, TIMES)
    assert sketch._accumulator.label_counts is None


def decoded(sketch, classes):
    """Distribution functions of some classes that are decoded together, by `posterior_mean`."""
    strategy = square_root_strategy(sketch.statistic_.shape[-1])
    totals = sketch.class_counts_[classes]
    cumulative = sketch.statistic_[classes] @ strategy.decoder.T
    inner = known_total(cumulative, strategy, totals[:, None, None])
    return increasing(
        posterior_mean(
            inner,
            strategy.known_total_covariance,
            sketch.noise_scale_ / totals,
            totals / totals.sum(),
            sketch.directions_,
            sketch.half_widths_,
        )
    )


def test_classes_that_differ_are_decoded_like_sketches_of_their_rows_alone():
    shift = np.array([[-0.7, 0.7], [-0.2, -0.5], [0.2, 0.6], [0.7, -0.7]])
    width = np.array([0.05, 0.2, 0.1, 0.3])[TIMES, None]
    sketch = SlicedSketch(8.0, **PUBLIC).fit(shift[TIMES] + width * X, TIMES)
    for position, size in enumerate(np.bincount(TIMES).tolist()):
        own = decoded(sketch, [position])[0]
        np.testing.assert_allclose(sketch.cdf_[position], own, atol=1e-12)
        table = sketch.statistic_[position : position + 1]
        measured = (sketch.noise_scale_, sketch.directions_, sketch.half_widths_)
        alone, _ = decode(table, square_root_strategy(16), size, *measured)
        np.testing.assert_allclose(own, alone[0], atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("seed", range(3))
def test_classes_that_are_alike_are_decoded_together(seed):
    """Equal rows in all of them. Seeded: one noise draw in a hundred suggests a difference."""
    sketch = SlicedSketch(1.0, **PUBLIC, random_state=seed)
    sketch.fit(np.tile(X, (4, 1)), np.repeat(np.arange(4), 300))
    np.testing.assert_allclose(sketch.cdf_, decoded(sketch, [0, 1, 2, 3]), atol=1e-12)


@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_a_class_without_rows_is_uniform_and_weighs_nothing(epsilon):
    options = PUBLIC | {"classes": range(6)}
    sketch = SlicedSketch(epsilon, **options).fit(X, TIMES)
    np.testing.assert_array_equal(sketch.class_counts_, [*np.bincount(TIMES), 0, 0])
    for label in (4, 5):
        np.testing.assert_allclose(
            sketch.table(label).cdf, np.tile(np.linspace(0, 1, 17), (6, 1)), atol=1e-15
        )
    np.testing.assert_allclose(
        sketch.table().cdf,
        np.average(sketch.cdf_[:4], axis=0, weights=np.bincount(TIMES)),
        atol=1e-12,
    )
    if np.isfinite(epsilon):
        # Two tables of 96 values each: noise and nothing else, as the others have it.
        assert sketch.statistic_[4:].std() == pytest.approx(sketch.noise_scale_, rel=0.3)


def test_parties_are_compared_by_what_they_released_and_not_by_what_they_say():
    one, two = (SlicedSketch(**PUBLIC | {"group_size": k}).fit(X, TIMES) for k in (1, 2))
    one.set_params(group_size=2)  # after the fit, whose noise is for one row
    with pytest.raises(ValueError, match="different numbers of rows of one person"):
        two.merge(one)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"public_labels": False}, "public in some of them"),
        ({"group_size": 2}, "different numbers of rows of one person"),
    ],
)
def test_parties_that_assume_something_else_are_not_merged(changes, text):
    one, two = (SlicedSketch(**PUBLIC | extra).fit(X, TIMES) for extra in ({}, changes))
    for first, second in ((one, two), (two, one)):
        with pytest.raises(ValueError, match=text):
            first.merge(second)


def test_the_statement_names_what_is_public():
    def assumed(**options):
        sketch = SlicedSketch(**SHAPE, conditional=True, classes=range(4), **options)
        return "; ".join(sketch.fit(X, TIMES).privacy_spent_.assumptions)

    label = "the label of every row, and so the number of rows of each class"
    assert label not in assumed()
    assert label in assumed(public_labels=True)
    assert "each person contributes one row" in assumed(public_labels=True)
    several = assumed(public_labels=True, group_size=3)
    assert "each person contributes at most 3 rows, all of different labels" in several
    assert "one row" not in several


REFUSED = {
    "no classes": ({"public_labels": True}, "needs conditional=True and the label of every row"),
    "private labels": ({"group_size": 2, "conditional": True}, "group_size=2 needs public_labels"),
    "no labels": ({"group_size": 2}, "group_size=2 needs public_labels"),
    "more rows than labels": (
        {"group_size": 5, "conditional": True, "public_labels": True},
        "group_size=5 is more than the 4 labels",
    ),
    "no row": ({"group_size": 0}, "'group_size' parameter of SlicedSketch must be an int"),
    "text": ({"public_labels": "yes"}, "'public_labels' parameter of SlicedSketch must be"),
}


@pytest.mark.parametrize("group_size", [1, 3])
def test_private_bounds_pool_the_rows_of_a_person(group_size):
    """Their rows may all move the same counts of the bounds: k, not the root of k."""
    target = PrivacyTarget(2.0, 1e-5)
    plan = plan_sketch(
        target,
        5000,
        2,
        4,
        n_projections=6,
        n_bins=16,
        bounds=5000,
        public_labels=True,
        group_size=group_size,
    )
    assert isinstance(plan.event, ComposedEvent)
    assert target.admits(plan.event)
    bounds, table = plan.event.events
    for event in bounds.events:
        assert isinstance(event, GaussianEvent)
        assert event.sensitivity == pytest.approx(group_size * math.sqrt(2 * 2))
    assert table.sensitivity == pytest.approx(math.sqrt(group_size) * table_move(16, 6))
    assert plan.public_labels


@pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")
def test_the_sampler_draws_classes_as_often_as_they_occur():
    """Seeded. A class without rows is declared, and gets no particle."""
    sampler = flow_sampler(
        epsilon=2.0,
        **PUBLIC | {"classes": range(5)},
        group_size=2,
        n_particles=1000,
        n_steps=5,
        random_state=0,
    ).fit(X, TIMES)
    assert sampler.sketch_.group_size == 2
    assert "the label of every row" in " ".join(sampler.privacy_spent_.assumptions)
    sizes = np.bincount(sampler.particle_labels_, minlength=5)
    np.testing.assert_allclose(sizes[:4], np.bincount(TIMES) / 300 * 1000, atol=1)
    assert sizes[4] == 0
    rows, labels = sampler.sample_labeled(5000, random_state=1)
    assert rows.shape == (5000, 2)
    # Five standard errors of a share.
    shares = np.bincount(labels, minlength=5) / 5000
    np.testing.assert_allclose(shares[:4], np.bincount(TIMES) / 300, atol=0.036)
    assert shares[4] == 0


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_for_free(what):
    changes, text = REFUSED[what]
    budget = PrivacyBudget(3.0)
    sketch = SlicedSketch(budget=budget, classes=range(4), **SHAPE, **changes)
    for fit in (sketch.fit, sketch.partial_fit):
        with pytest.raises(ValueError, match=text):
            fit(X, TIMES)
    assert budget.history().empty
    assert not hasattr(sketch, "privacy_spent_")
