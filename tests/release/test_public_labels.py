"""Sketches of rows whose labels everybody may know: less noise, exact sizes, one decoding a class.

Noise is not seeded where it is not said. Tolerances are five standard errors or more (false
alarms below 1e-6).
"""

import math
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.federated.messages import Message, SketchMessage
from skdpot.ot.slices import uniform_directions
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.privacy.events import ComposedEvent, GaussianEvent, gdp_delta
from skdpot.release.bounds import DataBounds
from skdpot.release.decoding import (
    decode,
    increasing,
    known_total,
    posterior_mean,
    square_root_strategy,
)
from skdpot.release.histogram import plan_sketch
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


def test_public_labels_need_less_noise_than_private_ones():
    private = SlicedSketch(**SHAPE, conditional=True, classes=range(4)).fit(X, TIMES)
    public = SlicedSketch(**PUBLIC).fit(X, TIMES)
    without = SlicedSketch(**SHAPE).fit(X)
    columns = square_root_strategy(16).matrix.T
    ratio = table_move(16, 1) / math.sqrt(2 * max(np.sum(a**2) for a in columns))
    assert ratio < 0.95
    assert public.noise_scale_ / private.noise_scale_ == pytest.approx(ratio, rel=1e-4)
    assert public.noise_scale_ == without.noise_scale_


@pytest.mark.parametrize("group_size", [1, 3])
def test_the_noise_is_drawn_as_it_is_stated(group_size):
    """The variance of 38,400 values has a standard error of 0.7 %."""
    parameters = PUBLIC | {"projections": uniform_directions(300, 2, RNG), "n_bins": 32}
    noisy = SlicedSketch(0.1, **parameters, group_size=group_size).fit(X, TIMES)
    exact = SlicedSketch(np.inf, **parameters).fit(X, TIMES)
    noise = (noisy.statistic_ - exact.statistic_) / noisy.privacy_spent_.sigma
    assert noise.var() == pytest.approx(1, abs=0.036)
    for table in noise:
        assert table.var() == pytest.approx(1, abs=0.075)


def test_class_sizes_are_exact_and_of_all_rows():
    for sketch in (SlicedSketch(0.1, **PUBLIC), SlicedSketch(np.inf, **PUBLIC)):
        sketch.fit(X, TIMES)
        np.testing.assert_array_equal(sketch.class_counts_, np.bincount(TIMES))
    noisy = SlicedSketch(0.1, **SHAPE, conditional=True).fit(X, TIMES)
    assert not np.array_equal(noisy.class_counts_, np.bincount(TIMES))


def test_sizes_are_not_even_counted_where_labels_are_private():
    sketch = SlicedSketch(**SHAPE, conditional=True, classes=range(4)).partial_fit(X, TIMES)
    assert sketch._accumulator.label_counts is None
    assert sketch.close()._label_counts is None


def test_a_later_fit_forgets_the_sizes():
    sketch = SlicedSketch(**PUBLIC).fit(X, TIMES)
    assert sketch._label_counts is not None
    sketch.set_params(public_labels=False).fit(X, TIMES)
    assert sketch._label_counts is None
    assert not np.array_equal(sketch.class_counts_, np.bincount(TIMES))


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


@pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")
def test_knowing_the_labels_makes_moving_marginals_more_exact():
    """Seeded: 600 rows at each of ten times, a cloud that moves."""
    rng = np.random.default_rng(3)
    times = np.repeat(np.arange(10), 600)
    rows = rng.normal(0, 0.25, (6000, 2)) + np.stack([times / 10, 1 - times / 10], axis=1)
    options = {"bounds": (-1.5, 2.0), "n_projections": 20, "n_bins": 32, "conditional": True}
    exact = SlicedSketch(np.inf, **options, random_state=0).fit(rows, times)
    errors = []
    for public in (False, True):
        sketch = SlicedSketch(2.0, 1e-5, **options, public_labels=public, random_state=0)
        sketch.fit(rows, times)
        distances = [
            sketch.table(time).squared_distances(exact.table(time)).mean() for time in range(10)
        ]
        errors.append(np.mean(distances))
    assert errors[1] < 0.5 * errors[0]


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


def test_one_label_is_a_sketch_without_classes_of_known_size():
    options = PUBLIC | {"classes": ["all"], "epsilon": np.inf}
    sketch = SlicedSketch(**options).fit(X, np.full(300, "all"))
    plain = SlicedSketch(np.inf, **SHAPE).fit(X)
    np.testing.assert_array_equal(sketch.cdf_, plain.cdf_)


@pytest.mark.parametrize("n_chunks", [1, 3, 50])
def test_chunks_give_what_one_fit_gives(n_chunks):
    whole = SlicedSketch(np.inf, **PUBLIC).fit(X, TIMES)
    parts = SlicedSketch(np.inf, **PUBLIC)
    for rows in np.array_split(np.arange(300), n_chunks):
        parts.partial_fit(X[rows], TIMES[rows])
    parts.close()
    np.testing.assert_array_equal(parts.cdf_, whole.cdf_)
    np.testing.assert_array_equal(parts.class_counts_, whole.class_counts_)


def test_parties_add_their_sizes():
    parts = [slice(0, 100), slice(100, 300)]
    one, two = (SlicedSketch(**PUBLIC).fit(X[rows], TIMES[rows]) for rows in parts)
    merged = one.merge(two)
    np.testing.assert_array_equal(merged.class_counts_, np.bincount(TIMES))
    np.testing.assert_array_equal(one.class_counts_ + two.class_counts_, merged.class_counts_)
    np.testing.assert_array_equal(merged.merge(one).class_counts_.sum(), 400)


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


@pytest.mark.parametrize("group_size", [1, 3])
def test_files_pickles_and_messages_keep_everything(tmp_path, group_size):
    sketch = SlicedSketch(2.0, **PUBLIC | {"classes": range(5)}, group_size=group_size)
    sketch.fit(X, TIMES)
    sketch.save(tmp_path / "sketch.safetensors")
    message = Message.from_bytes(SketchMessage(sketch).to_bytes())
    for copy in (
        SlicedSketch.load(tmp_path / "sketch.safetensors"),
        pickle.loads(pickle.dumps(sketch)),
        message.sketch,
    ):
        np.testing.assert_array_equal(copy.class_counts_, sketch.class_counts_)
        np.testing.assert_array_equal(copy.cdf_, sketch.cdf_)
        assert copy.privacy_spent_ == sketch.privacy_spent_
        assert (copy.public_labels, copy.group_size) == (True, group_size)
        assert copy.merge(SlicedSketch(2.0, **copy_of(sketch)).fit(X, TIMES)).n_samples_ == 600


def copy_of(sketch):
    parameters = clone(sketch).get_params()
    del parameters["epsilon"]
    return parameters


def test_a_message_says_that_sizes_are_exact():
    public = SketchMessage(SlicedSketch(**PUBLIC, group_size=2).fit(X, TIMES)).reveals
    assert "depends much on any 2 rows of different labels" in public
    assert "how many rows have each label, exactly" in public
    private = SlicedSketch(**SHAPE, conditional=True).fit(X, TIMES)
    assert "exactly" not in SketchMessage(private).reveals


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


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_for_free(what):
    changes, text = REFUSED[what]
    budget = PrivacyBudget(3.0)
    sketch = SlicedSketch(budget=budget, classes=range(4), **SHAPE, **changes)
    with pytest.raises(ValueError, match=text):
        sketch.fit(X, TIMES)
    with pytest.raises(ValueError, match=text):
        sketch.partial_fit(X, TIMES)
    assert budget.history().empty
    assert not hasattr(sketch, "privacy_spent_")


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


def test_the_shape_follows_the_signal_that_is_left_for_a_row():
    """Four rows a person halve the signal, as a quarter of the rows' worth of mu would."""
    box = DataBounds.from_box(-1, 1, 2)
    target, options = PrivacyTarget(2.0, 1e-3), {"bounds": box, "public_labels": True}
    four = plan_sketch(target, 20_000, 2, 10, group_size=4, **options)
    half = plan_sketch(target, 10_000, 2, 10, **options)
    assert (four.n_projections, four.strategy.n_bins) == (half.n_projections, half.strategy.n_bins)


def test_a_fit_with_private_bounds_is_calibrated_for_groups():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # few rows
        sketch = SlicedSketch(4.0, **PUBLIC | {"bounds": "private"}, group_size=2).fit(X, TIMES)
    mu = math.sqrt(sum(event.mu**2 for event in sketch.privacy_spent_.event.events))
    assert gdp_delta(4.0, mu) == pytest.approx(1e-5, rel=1e-3)
    assert gdp_delta(4.0, mu) <= 1e-5


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


def test_parties_are_compared_by_what_they_released_and_not_by_what_they_say():
    one, two = (SlicedSketch(**PUBLIC | {"group_size": k}).fit(X, TIMES) for k in (1, 2))
    one.set_params(group_size=2)  # after the fit, whose noise is for one row
    with pytest.raises(ValueError, match="different numbers of rows of one person"):
        two.merge(one)
