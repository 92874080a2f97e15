"""Persons with several rows: what all their rows together change, and what is estimated."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skdpot import (
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    DPTableSynthesizer,
    PrivacyBudget,
    PrivateWassersteinDistance,
    SlicedSketch,
)
from skdpot._utils.streams import SecretStream
from skdpot.exceptions import ReplayError
from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableSchema
from skdpot.release.comparison import first_difference
from skdpot.release.contributions import Unit
from skdpot.release.gate import record_releases, replay_releases
from skdpot.tables import choices
from tests.core.release.exact import again, gaps, no_noise

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.usefixtures("few_synthetic_rows"),
]
SECRET = "Xanthippe"
WORDS = list("abcdefgh")
SCHEMA = TableSchema(
    [
        NumericColumn("number", lower=0, upper=100, integer=True),
        CategoricalColumn("word", categories=WORDS),
        CategoricalColumn("second", categories=WORDS),
        CategoricalColumn("third", categories=WORDS),
    ]
)
OPTIONS = {
    "person": {"max_rows": 4},
    "person, one row": {"max_rows": 1},
    "person, all that count": {},
    "row": {"weighting": "row", "max_rows": 4},
}
every_weighting = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def rows_of(sizes, rng):
    """Rows of persons 0, 1, ..., who have as many as `sizes` says."""
    who, columns = np.repeat(np.arange(len(sizes)), sizes), {}
    columns["number"] = rng.integers(0, 101, len(who))
    for name in ("word", "second", "third"):
        columns[name] = rng.choice(WORDS, len(who))
    return pd.DataFrame({"who": who} | columns)


def synthesizer(schema=SCHEMA, **options):
    terms = {"epsilon": 3.0, "unit": "who", "n_particles": 200, "random_state": 0}
    return DPTableSynthesizer(schema, **(terms | options))


def scores_of_choices(patch):
    """The exact scores that are chosen from, in a list that grows."""
    scores = []

    class Spy(choices._ExponentialDraw):
        def __init__(self, exact, *args):
            scores.append(exact)
            super().__init__(exact, *args)

    patch.setattr(choices, "_ExponentialDraw", Spy)
    return scores


def distance(release, other, scores=()):
    """How far a neighbour moves a release, or one score of a choice against another.

    In shares of what is charged for.
    """
    if release.kind == "choices":
        event = release.event.phases[-1]
        assert release.sensitivity / release.sigma == pytest.approx(event.sensitivity / event.sigma)
        return np.ptp(np.subtract(*scores)) / 16 / release.sensitivity
    if release.kind == "category_counts":  # what passes the threshold is the event's to say
        first, second = dict(release.value), dict(other.value)
        return max((abs(first[k] - second[k]) for k in first.keys() & second.keys()), default=0.0)
    if release.kind != "marginals":
        stated = release.sensitivity or release.event.phases[-1].sensitivity
        return np.linalg.norm(gaps(release, other)) / stated
    steps = zip(release.value, other.value, release.sigma, strict=True)
    moved = math.hypot(*(np.linalg.norm(one - two) / sigma for one, two, sigma in steps))
    event = release.event.phases[-1]
    return moved / (event.sensitivity / event.sigma)


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["known", "nothing known"])
@every_weighting
def test_all_rows_of_a_person_move_no_release_further_than_charged(options, schema, monkeypatch):
    """Replaced by more rows, by fewer, or by as many that share nothing with them."""
    worst, scores = {}, scores_of_choices(monkeypatch)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        others = rows_of(rng.integers(1, 9, 30), rng)
        last = [rows_of([size], rng).assign(who=30) for size in rng.integers(1, 30, 2)]
        if seed % 2:  # all rows of one kind, before and after
            sizes = (4, 4) if seed % 4 == 1 else (1, 20)
            kinds = {"number": (3, 97), "word": "ag", "second": "bh", "third": "ac"}
            last = [
                pd.DataFrame({name: [kind[k]] * n for name, kind in kinds.items()}).assign(who=30)
                for k, n in enumerate(sizes)
            ]
        first, second = (pd.concat([others, rows], ignore_index=True) for rows in last)
        run = synthesizer(schema, target="word", epsilon=50.0, **options).fit
        with no_noise(), record_releases() as recorded:
            run(first)
        pairs = list(zip(recorded, again(run, recorded, second), strict=True))
        half = len(scores) // 2
        of_choices = zip(scores[:half], scores[half:], strict=True)
        for one, two in pairs:
            of_pair = next(of_choices) if one.kind == "choices" else ()
            worst[one.kind] = max(worst.get(one.kind, 0.0), distance(one, two, of_pair))
        scores.clear()
    assert max(worst.values()) <= 1 + 1e-12
    assert worst["marginals"] == pytest.approx(1.0)  # attained


def test_rows_that_a_person_repeats_change_nothing(monkeypatch):
    rng, scores = np.random.default_rng(7), scores_of_choices(monkeypatch)
    one = rows_of(np.ones(50, dtype=int), rng)
    run = synthesizer(target="word", epsilon=50.0).fit
    with no_noise(), record_releases() as recorded:
        run(one)
    other = again(run, recorded, one.loc[np.repeat(np.arange(50), rng.integers(1, 30, 50))])
    pairs = [pair for pair in zip(recorded, other, strict=True) if pair[0].kind != "choices"]
    assert {distance(*pair) for pair in pairs} == {0.0}
    half = len(scores) // 2
    np.testing.assert_array_equal(scores[:half], scores[half:])
    assert np.ptp(scores[0]) > 0


def points_of(sizes, rng):
    """Rows of numbers on the edges of bins, with classes, of persons 0, 1, ..."""
    who = np.repeat(np.arange(len(sizes)), sizes)
    return rng.integers(-4, 5, (len(who), 3)) / 4, rng.integers(0, 2, len(who)), who


BOX, SEED = {"bounds": (-1, 1)}, {"random_state": 0}
CLASSES = {"conditional": True, "classes": [0, 1]}
OF_POINTS = {
    "sketch": SlicedSketch(n_bins=8, **BOX, **SEED),
    "sketch, private bounds": SlicedSketch(n_bins=8, epsilon=20.0, **SEED),
    "sketch, classes": SlicedSketch(n_bins=8, **CLASSES, **BOX, **SEED),
    "flow": DPSlicedFlowSampler(n_particles=9, n_steps=2, **BOX, **SEED),
    "generator": DPSlicedGenerator(n_steps=2, **BOX, **SEED),
    "distance": PrivateWassersteinDistance(**BOX, **SEED),
}


def fit_points(name, points):
    X, y, who = points
    return clone(OF_POINTS[name]).fit(X, y, groups=who)


@pytest.mark.parametrize("name", OF_POINTS)
def test_all_rows_of_a_person_move_no_sketch_further_than_one_row(name):
    worst = 0.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        others = points_of(rng.integers(1, 20, 60), rng)
        sides = []
        for corner, size in zip((1.0, -1.0), rng.integers(1, 40, 2), strict=True):
            X, y, who = points_of([size], rng)
            added = corner * np.ones_like(X) if seed % 2 else X, y, who + 60
            sides.append([np.concatenate(parts) for parts in zip(others, added, strict=True)])
        with no_noise(), record_releases() as recorded:
            fit_points(name, sides[0])
        other = again(lambda points: fit_points(name, points), recorded, sides[1])
        worst = max([worst, *(distance(*pair) for pair in zip(recorded, other, strict=True))])
    assert 0.3 < worst <= 1 + 1e-12


@pytest.mark.parametrize("name", [*OF_POINTS, "table", "table of rows"])
def test_nothing_shows_how_many_rows_there_are(name):
    rng = np.random.default_rng(8)
    if name in OF_POINTS:
        some, more = (points_of(rng.integers(1, most, 400), rng) for most in (3, 30))
        fit = partial(fit_points, name)
    else:
        options = OPTIONS["person" if name == "table" else "row"]
        some, more = (rows_of(rng.integers(1, most, 400), rng) for most in (3, 30))
        fit = synthesizer(**options).fit
    with record_releases() as recorded:
        first = fit(some)
    try:
        with replay_releases(recorded):
            second = fit(more)
    except ReplayError as error:
        pytest.fail(f"what is released shows it: {error}")
    assert first_difference(vars(first), vars(second)) is None
    assert first.n_samples_ == 400


def test_rows_of_a_person_are_averaged_in_a_sketch():
    rng = np.random.default_rng(9)
    X, y = rng.uniform(-1, 1, (2, 50, 3))[0], np.zeros(50)
    other = rng.uniform(-1, 1, (50, 3))
    exact = SlicedSketch(epsilon=math.inf, n_bins=8, **BOX, **SEED)

    def table(rows, groups=None):
        return clone(exact).fit(rows, y, groups=groups).statistic_

    who = np.arange(50)
    np.testing.assert_array_equal(table(X), table(X, who))
    np.testing.assert_array_equal(table(X), table(np.tile(X, (3, 1)), np.tile(who, 3)))
    both = table(np.concatenate([X, other]), np.tile(who, 2))
    np.testing.assert_allclose(both, (table(X) + table(other)) / 2, rtol=1e-12)


REFUSED_GROUPS = {
    "a row of nobody": (SlicedSketch(), {"groups": [None, *[SECRET] * 9]}, "groups must identify"),
    "too few": (SlicedSketch(), {"groups": [1, 2]}, "groups must identify"),
    "one person": (SlicedSketch(), {"groups": [1] * 10}, "groups names a single person"),
    "public labels": (
        SlicedSketch(conditional=True, public_labels=True), {}, "groups is for private labels",
    ),
    "noise on rows": (DPSlicedFlowSampler("resample"), {}, 'groups needs mechanism="sketch"'),
    "no privacy": (PrivateWassersteinDistance("fedwad"), {}, 'groups needs protocol="sliced"'),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_GROUPS)
def test_refused_groups_charge_nothing(case):
    estimator, given, message = REFUSED_GROUPS[case]
    budget = PrivacyBudget(math.inf)
    given = {"groups": np.arange(10)} | given
    with pytest.raises(ValueError, match=message) as caught:
        clone(estimator).set_params(budget=budget).fit(np.eye(10), np.arange(10) % 2, **given)
    assert budget.history().empty
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("max_rows", [None, 1, 5])
def test_the_noise_is_that_of_one_row_per_person(max_rows):
    sizes = np.random.default_rng(0).integers(1, 20, 50)
    many = synthesizer(max_rows=max_rows).fit(rows_of(sizes, np.random.default_rng(1)))
    one = synthesizer().fit(rows_of(np.ones(50, dtype=int), np.random.default_rng(2)))
    alone = synthesizer(unit=None).fit(
        rows_of(np.ones(50, dtype=int), np.random.default_rng(2)).drop(columns="who")
    )
    assert many.privacy_spent_.event == one.privacy_spent_.event == alone.privacy_spent_.event
    columns = [fitted.releases_[0] for fitted in (many, one, alone)]
    assert columns[0].sigma == columns[1].sigma == columns[2].sigma
    assert many.n_samples_ == many.model_.n_rows == 50


@every_weighting
def test_without_noise_counts_are_the_weights_of_the_rows_drawn(options):
    rng = np.random.default_rng(3)
    table = rows_of(rng.choice([1, 2, 4], 40), rng).sample(frac=1.0, random_state=0)
    fitted = synthesizer(epsilon=math.inf, **options).fit(table)
    size = table.groupby("who")["who"].transform("size")
    weights = 1.0 if options.get("weighting") == "row" else 1.0 / size
    counts = np.bincount(table["number"], np.broadcast_to(weights, len(table)), 101)
    if options.get("max_rows") != 1:
        np.testing.assert_array_equal(fitted.model_.columns[0].counts, counts)
    total = len(table) if options.get("weighting") == "row" else 40
    noisy = (*fitted.model_.columns, *fitted.model_.marginals)
    assert {table.counts.sum() for table in noisy} == {total}
    assert fitted.model_.n_rows == total


def test_a_private_number_of_rows_is_estimated_from_noisy_counts():
    table = rows_of(np.full(2000, 3), np.random.default_rng(4))
    found = [
        synthesizer(weighting="row", max_rows=8, random_state=k).fit(table).model_.n_rows
        for k in range(2)
    ]
    assert found[0] != found[1]
    np.testing.assert_allclose(found, 6000, rtol=0.2)


@pytest.mark.parametrize(("max_rows", "weighting"), [(1, "person"), (5, "person"), (16, "person"),
                                                    (3, "row")])  # fmt: skip
def test_rows_are_drawn_evenly_and_share_what_a_person_weighs(max_rows, weighting):
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 30, 200)
    persons = rng.permutation(np.repeat(np.arange(200), sizes))
    unit = Unit("who", max_rows, weighting)
    mean = np.zeros(len(persons))
    for seed in range(400):
        drawn = unit.draw(persons, SecretStream(seed))
        assert len(np.unique(drawn.rows)) == len(drawn.rows)
        kept = np.bincount(persons[drawn.rows])
        np.testing.assert_array_equal(kept, np.minimum(sizes, max_rows))
        totals = np.bincount(persons[drawn.rows], drawn.weights)
        np.testing.assert_array_equal(totals, kept if weighting == "row" else 1.0)
        assert (drawn.weights * 16 == np.rint(drawn.weights * 16)).all()
        np.testing.assert_array_equal(persons[drawn.one_each], np.arange(200))
        assert set(drawn.one_each) <= set(drawn.rows)
        if weighting == "person":
            of_parts = np.concatenate([np.tile(rows, units) for rows, units in drawn.parts])
            shares = np.bincount(of_parts, minlength=len(persons)) / 16
            np.testing.assert_array_equal(shares[drawn.rows], drawn.weights)
        mean[drawn.rows] += drawn.weights / 400
    due = np.minimum(sizes, max_rows) if weighting == "row" else np.ones(200)
    # Six standard errors of a row with weight 0 or at most 1: left once in 1e5 runs.
    assert np.abs(mean - (due / sizes)[persons]).max() < 6 * math.sqrt(0.25 / 400)


TABLE = rows_of([2, 3, 1, 4] * 10, np.random.default_rng(6))
REFUSED = {
    "a row of nobody": (TABLE.assign(who=[None, SECRET] * 50), {}, "Column 'who' must identify"),
    "what is no name": (TABLE.assign(who=[[SECRET]] * 100), {}, "Column 'who' must identify"),
    "no such column": (TABLE, {"unit": "whom"}, "unit='whom' must name the column"),
    "an array": (TABLE[["number"]].to_numpy(), {"schema": None}, "must name the column of a Data"),
    "one person": (TABLE.assign(who=SECRET), {}, "names a single person"),
    "one row": (TABLE.iloc[:1], {}, "names a single person"),
    "a person as the target": (TABLE, {"target": "who"}, "target='who' is not a column"),
    "rows without a limit": (TABLE, {"weighting": "row"}, "needs max_rows"),
    "too many rows": (TABLE, {"max_rows": 17}, "max_rows=17 must be at most 16"),
    "a limit for nobody": (TABLE, {"unit": None, "max_rows": 2}, "pass unit"),
    "weights for nobody": (TABLE, {"unit": None, "weighting": "row"}, "pass unit"),
    "an unknown weighting": (TABLE, {"weighting": "visit"}, "'weighting' parameter"),
    "no rows": (TABLE, {"max_rows": 0}, "'max_rows' parameter"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_fit_charges_nothing_and_quotes_no_value(case):
    table, changes, message = REFUSED[case]
    budget = PrivacyBudget(10.0)
    with pytest.raises(ValueError, match=message) as caught:
        synthesizer(budget=budget, **changes).fit(table)
    assert budget.history().empty
    assert SECRET not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("given", [SCHEMA, SCHEMA.replace(), None], ids=["left out", "", "none"])
@pytest.mark.parametrize("dtype", ["int64", "Int64", "str", "category", "object", "polars"])
def test_the_column_of_persons_is_not_modelled_and_may_be_of_any_type(given, dtype, tmp_path):
    polars = pytest.importorskip("polars") if dtype == "polars" else None
    table = TABLE.assign(who=TABLE["who"].astype("int64" if polars else dtype))
    if polars:
        table = polars.DataFrame({name: table[name].tolist() for name in table})
    fitted = synthesizer(given, weighting="row", max_rows=3).fit(table)
    assert fitted.n_samples_ == 40
    assert fitted.schema_.names == ("number", "word", "second", "third")
    assert list(fitted.sample(3).columns) == ["number", "word", "second", "third"]
    assert math.isfinite(fitted.score(table))
    stated = fitted.privacy_spent_.assumptions
    assert stated[0] == "the number of persons"
    assert "all rows with one value in 'who'" in stated[1]
    assert not any("number of rows" in text for text in stated)
    fitted.save(tmp_path / "fit.safetensors")
    loaded = DPTableSynthesizer.load(tmp_path / "fit.safetensors")
    pd.testing.assert_frame_equal(
        pd.DataFrame(fitted.sample(50, random_state=1)),
        pd.DataFrame(loaded.sample(50, random_state=1)),
    )
    assert loaded.get_params()["max_rows"] == 3
    assert (loaded.n_samples_, loaded.releases_[0].sensitivity) == (40, 3 * math.sqrt(2))
