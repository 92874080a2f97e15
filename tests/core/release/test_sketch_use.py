"""Sketches built from chunks, read and added: what is equal, what is refused, what is final."""

import copy
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.fixes import parse_version

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.distance.debiased import debiased_squared_distance
from skdpot.exceptions import BudgetExceededError, OpenSketchError
from skdpot.ot.directions import uniform_directions
from skdpot.ot.slices import CDFTable
from skdpot.ot.transport import wasserstein_1d
from skdpot.privacy.charges import SEEDED
from skdpot.release import histogram

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (101, 3)) ** 3
Y = np.arange(101) * 7 % 3
SHAPE = {"bounds": (-1, 1), "projections": uniform_directions(6, 3, RNG), "n_bins": 16}
CLASSES = {"conditional": True, "classes": [0, 1, 2]}
PARTIES = [slice(0, 20), slice(20, 50), slice(50, 101)]
every_shape = pytest.mark.parametrize("options", [{}, CLASSES], ids=["plain", "classes"])


def empty(**changes):
    return SlicedSketch(**{"epsilon": np.inf} | SHAPE | changes)


def sketch(rows=slice(None), **changes):
    """Without noise unless an epsilon is given; of some of the rows, or of others."""
    chosen = (X[rows], Y[rows]) if isinstance(rows, slice) else (rows, None)
    return empty(**changes).fit(*chosen)


def assert_equal(one, other):
    for name in ("statistic_", "cdf_", "class_counts_", "n_samples_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


# Chunks.


@pytest.fixture
def open_sketch():
    return empty(epsilon=1.0).partial_fit(X[:40])


@pytest.mark.parametrize("n_chunks", [1, 2, 17, 101])
@every_shape
def test_chunks_give_what_one_fit_gives(n_chunks, options):
    parts = empty(**options)
    for rows in np.array_split(np.arange(101), n_chunks):
        parts.partial_fit(X[rows], Y[rows])
        if options:
            parts.set_params(classes=[-5, 0, 1, 2])  # which changes nothing while it is open
    assert_equal(parts.close(), sketch(**options))


def test_closes_itself_when_the_declared_rows_have_come_and_is_charged_once():
    budget = PrivacyBudget(1.0)
    made = empty(epsilon=1.0, budget=budget).partial_fit(X[:60], n_samples=101)
    with pytest.raises(OpenSketchError, match="open"):
        made.quantiles([0.5])
    made.partial_fit(X[60:])
    assert made.quantiles([0.5]).shape == (6, 1)
    with pytest.raises(AttributeError, match="partial_fit") as refusal:
        made.partial_fit(X[:1])
    assert "closed, which is final" in str(refusal.value.__cause__)
    assert isinstance(refusal.value.__cause__, OpenSketchError)
    with pytest.raises(OpenSketchError, match="there is none"):
        made.close()
    with pytest.raises(BudgetExceededError, match="epsilon"):
        empty(epsilon=1.0, budget=budget).partial_fit(X[:5])
    assert len(budget.history()) == 1


@pytest.mark.parametrize("chunks", [[slice(0, 99), slice(99, 101)], [slice(0, 3)]])
def test_there_may_be_fewer_rows_than_classes(chunks):
    made = empty(epsilon=1.0, conditional=True, classes=range(10))
    for rows in chunks:
        made.partial_fit(X[rows], Y[rows])
    counts = made.close().class_counts_
    assert counts.sum() == pytest.approx(chunks[-1].stop)
    assert counts.min() >= 0


REFUSED = {
    **{
        f"n_samples={given!r}": ({}, {"n_samples": given}, "n_samples=")
        for given in (0, -3, 1.5, "7", True, np.nan)
    },
    "too many rows": ({}, {"n_samples": 100}, "101 rows arrived but n_samples=100"),
    "unknown classes": ({"conditional": True}, {"y": Y}, "needs the parameter classes"),
    "no device": ({"device": "cuda"}, {}, "needs a GPU"),
    "public labels of one class": ({"public_labels": True}, {"y": Y}, "needs conditional=True and"),
    "rows of one person": (CLASSES | {"group_size": 2}, {"y": Y}, "group_size=2 needs public_lab"),
    "and no classes": ({"group_size": 2}, {}, "group_size=2 needs public_labels"),
    "more rows than labels": (
        CLASSES | {"public_labels": True, "group_size": 4},
        {"y": Y},
        "group_size=4 is more than the 3 labels",
    ),
    "no row": ({"group_size": 0}, {}, "'group_size' parameter of SlicedSketch must be an int"),
    "no answer": ({"public_labels": "yes"}, {}, "'public_labels' parameter of SlicedSketch must"),
    "too large": ({"projections": "uniform", "n_projections": 2**21, "n_bins": 1024}, {}, "too la"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_fitted_is_refused_before_any_charge(case, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options, given, text = REFUSED[case]
    budget = PrivacyBudget(9.0)
    made = empty(epsilon=1.0, budget=budget, **options)
    only_chunks = "n_samples" in given or case == "unknown classes"
    for fit in [made.partial_fit] + [made.fit] * (not only_chunks):
        with pytest.raises(ValueError, match=text):
            fit(X, **given)
    assert len(budget.history()) == 0
    assert not hasattr(made, "privacy_spent_")


def test_a_refused_chunk_leaves_the_stream_as_it_was():
    made = empty().partial_fit(X[:60], n_samples=101)
    for rows, options, text in (
        (X[:60], {}, "120 rows arrived"),
        (X[:3], {"n_samples": 81}, "differs from the 101"),
        (np.full((3, 3), np.nan), {}, "NaN"),
        (X[60:, :2], {}, "features"),
    ):
        with pytest.raises(ValueError, match=text):
            made.partial_fit(rows, **options)
    assert_equal(made.partial_fit(X[60:], n_samples=np.int64(101)), sketch())


READINGS = {
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "quantiles": lambda one: one.quantiles([0.5]),
    "cdf": lambda one: one.cdf([0.0]),
    "table": lambda one: one.table(),
    "distance": lambda one: one.distance(X),
    "merge": lambda one: one.merge(sketch(epsilon=1.0)),
    "merged": lambda one: sketch(epsilon=1.0).merge(one),
    "distance to it": lambda one: sketch().distance(one),
    "save": lambda one: one.save("nowhere"),
    "state": lambda one: one.__getstate__(),
    "accumulator": lambda one: pickle.dumps(one._accumulator),
    "copy of the accumulator": lambda one: copy.copy(one._accumulator),
    "deep copy of the accumulator": lambda one: copy.deepcopy(one._accumulator),
}


@pytest.mark.parametrize("reading", READINGS)
def test_an_open_sketch_cannot_be_read_or_copied(reading, open_sketch):
    with pytest.raises(OpenSketchError, match="open"):
        READINGS[reading](open_sketch)
    assert open_sketch.partial_fit(X[40:]).close().n_samples_ == 101


def test_an_open_sketch_shows_no_value(open_sketch):
    html = parse_version(sklearn.__version__) >= parse_version("1.9")  # before, arrays break it
    for text in (repr(open_sketch), open_sketch._repr_html_() if html else ""):
        assert "accumulator" not in text
        assert "statistic" not in text
    assert not {"statistic_", "cdf_", "class_counts_", "n_samples_"} & set(dir(open_sketch))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_chunk_ends_the_stream_for_good(error, open_sketch, monkeypatch):
    """Adding the chunk again would count rows twice, which the sensitivity does not cover."""

    def interrupted(*args, **kwargs):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(histogram, "count_projections", interrupted)
        with pytest.raises(error):
            open_sketch.partial_fit(X[60:])
        budget = PrivacyBudget(1.0)
        first = empty(epsilon=1.0, budget=budget)
        before = dict(vars(first))
        with pytest.raises(error):
            first.partial_fit(X[:40])
        assert (len(budget.history()), vars(first)) == (1, before)
    for attempt in (lambda: open_sketch.partial_fit(X[60:]), open_sketch.close):
        with pytest.raises(OpenSketchError, match="interrupted"):
            attempt()
    with pytest.raises(OpenSketchError, match="open"):
        open_sketch.quantiles([0.5])
    assert open_sketch.fit(X).n_samples_ == 101


# Distribution functions, quantiles, distances.


def table(masses, half_width=1.0):
    """One slice whose mass is spread evenly over each bin."""
    cdf = np.concatenate([[0.0], np.cumsum(masses) / np.sum(masses)])[None]
    cdf[:, -1] = 1.0
    return CDFTable(np.ones((1, 1)), np.array([half_width]), cdf)


def dense(one, n_points=20_001):
    return one.quantiles((np.arange(n_points) + 0.5) / n_points)


masses = st.lists(st.integers(0, 9), min_size=2, max_size=8).filter(any)
widths = st.floats(0.1, 10)


@given(masses=masses, half_width=widths)
@settings(max_examples=60, deadline=None)
def test_quantiles_and_cdf_are_inverse(masses, half_width):
    """Where there is mass; elsewhere a quantile is the first point that reaches the level."""
    one = table(masses, half_width)
    levels = np.linspace(0, 1, 101)
    positions = one.quantiles(levels)[0]
    assert np.all(np.diff(positions) >= 0)
    np.testing.assert_allclose(one.evaluate(positions)[0], levels, atol=1e-12)
    points = np.linspace(-half_width, half_width, 10 * len(masses) + 1)[:-1] + half_width / 50
    back = one.quantiles(one.evaluate(points)[0])[0]
    assert np.all(back <= points + 1e-9 * half_width)
    solid = np.repeat(np.array(masses) > 0, 10)
    np.testing.assert_allclose(back[solid], points[solid], atol=1e-9 * half_width)
    np.testing.assert_array_equal(one.evaluate(np.array([-1e9, 1e9])), [[0, 1]])


def test_a_class_has_its_own_table_and_the_mixture_is_weighted():
    fitted, shares = sketch(**CLASSES), np.bincount(Y) / 101
    mixture = sum(share * fitted.cdf([0.1], label=label) for label, share in enumerate(shares))
    np.testing.assert_allclose(fitted.cdf([0.1]), mixture)
    np.testing.assert_allclose(fitted.cdf([0.1]), sketch().cdf([0.1]))
    alone = sketch(X[Y == 1])
    np.testing.assert_allclose(fitted.quantiles([0.5], label=1), alone.quantiles([0.5]))


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((lambda one, q=q: one.quantiles(q), r"in \[0, 1\]") for q in ([-0.1], [1.1], [np.nan])),
        (lambda one: one.cdf([[0.5]]), "x must hold numbers along one axis"),
        *(
            (lambda one, label=label: one.cdf([0.5], label=label), "not a class of this sketch")
            for label in ("c", 7, "", 0.5)
        ),
    ],
)
@every_shape
def test_what_cannot_be_read_is_refused(read, text, options):
    with pytest.raises(ValueError, match=text):
        read(sketch(**options))


@given(
    first=masses, second=masses, a=widths, b=widths,
    rows=st.lists(st.floats(-12, 12), min_size=1, max_size=9),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_distances_of_tables_and_to_samples_agree_with_dense_samples(first, second, a, b, rows):
    one, two, sample = table(first, a), table(second, b), np.array([rows])
    exact = np.sqrt(one.squared_distances(two))
    np.testing.assert_allclose(exact, wasserstein_1d(dense(one), dense(two)), atol=2e-2 * max(a, b))
    np.testing.assert_allclose(exact, np.sqrt(two.squared_distances(one)), rtol=1e-9, atol=1e-9)
    exact = np.sqrt(one.squared_distances_to_sample(sample))
    np.testing.assert_allclose(exact, wasserstein_1d(dense(one), sample), atol=2e-2 * max(a, 12))


def test_distance_of_sketches_is_symmetric_and_near_that_of_the_rows():
    """Rows are mapped like the private ones."""
    rows, moved = 100 * X + 7, 100 * np.clip(X + np.array([0.2, -0.1, 0]), -1, 1) + 7
    options = {"bounds": (-93, 107), "n_bins": 256}
    first, second = sketch(rows, **options), sketch(moved, **options)
    assert first.distance(second) == pytest.approx(second.distance(first), rel=1e-12)
    assert first.distance(first) == 0
    assert first.distance(rows) < 0.01
    assert first.distance(np.full((3, 3), 1e9)) == first.distance(np.full((3, 3), 107.0))
    projected = (SHAPE["projections"] @ (values - 7).T / 100 for values in (rows, moved))
    exact = np.sqrt(np.mean(wasserstein_1d(*projected) ** 2))
    assert first.distance(second) == pytest.approx(exact, rel=0.05)
    assert first.distance(moved) == pytest.approx(exact, rel=0.05)


# Adding sketches of disjoint parties.


@every_shape
def test_merging_is_adding(options):
    first, *others = (sketch(rows, **options) for rows in PARTIES)
    assert_equal(first.merge(*others), sketch(**options))


def test_each_party_brings_its_own_noise():
    parties = [sketch(rows, epsilon=1.0) for rows in PARTIES]
    before = [party.statistic_.copy() for party in parties]
    merged = parties[0].merge(*parties[1:])
    np.testing.assert_array_equal(merged.statistic_, sum(before))
    for party, statistic in zip(parties, before, strict=True):
        np.testing.assert_array_equal(party.statistic_, statistic)


def test_the_statement_is_that_of_the_weakest_party_whatever_their_deltas():
    """A larger epsilon at a much smaller delta can be the stronger guarantee."""
    strict, loose = sketch(epsilon=1.0, delta=1e-9), sketch(epsilon=0.9, delta=9e-3)
    assert loose.privacy_spent_.event.mu > strict.privacy_spent_.event.mu
    for merged in (strict.merge(loose), loose.merge(strict)):
        assert merged.privacy_spent_ == loose.privacy_spent_
    assert strict.merge(sketch()).privacy_spent_.epsilon == math.inf


PUBLIC = CLASSES | {"public_labels": True}
ROWS_OF_ONE = "different numbers of rows of one person"


@pytest.mark.parametrize(
    ("given", "changes", "text"),
    [
        ({}, {"projections": uniform_directions(6, 3, RNG)}, "different directions"),
        ({}, {"projections": SHAPE["projections"][:4]}, "different directions"),
        ({}, {"n_bins": 9}, "different numbers of bins"),
        ({}, {"bounds": (-1, 2)}, "different bounds"),
        ({}, {"bounds": "private", "norm_bound": math.sqrt(3)}, "different bounds"),
        ({}, CLASSES, "different classes"),
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


def test_only_sketches_of_declared_bounds_are_merged():
    """Private bounds that happen to agree would make the statistic of one depend on both."""
    with pytest.raises(TypeError, match="merge adds sketches, not a list"):
        sketch().merge([sketch()])
    first, second = (sketch(bounds="private") for _ in range(2))
    second.bounds_, second.half_widths_ = first.bounds_, first.half_widths_
    with pytest.raises(ValueError, match="bounds that were declared"):
        first.merge(second)


@pytest.mark.filterwarnings("ignore:.*makes the privacy noise reproducible")
def test_a_merged_sketch_assumes_what_each_party_does():
    one, seeded = sketch(PARTIES[0], epsilon=9.0), sketch(PARTIES[1], epsilon=9.0, random_state=0)
    for merged in (one.merge(seeded), seeded.merge(one)):
        assert SEEDED in merged.privacy_spent_.assumptions
    persons = empty(epsilon=9.0).fit(X[:20], groups=np.arange(20) // 2)
    for first, second in ((one, persons), (persons, one)):
        with pytest.raises(ValueError, match="different records"):
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
    assert sketch().merge(sketch()).n_samples_ == 202


def test_features_in_another_order_are_refused():
    def named(columns):
        return sketch(pd.DataFrame(X, columns=list(columns)))

    one, other, unnamed = named("abc"), named("bac"), sketch()
    for call in (
        lambda: one.distance(other),
        lambda: one.merge(other),
        lambda: unnamed.merge(one, other),
        lambda: unnamed.merge(one).distance(other),
        lambda: debiased_squared_distance(one, other),
    ):
        with pytest.raises(ValueError, match="The sketches have different names of features; give"):
            call()
    assert one.distance(unnamed) == one.distance(named("abc")) == 0
    assert list(one.merge(named("abc")).feature_names_in_) == ["a", "b", "c"]
