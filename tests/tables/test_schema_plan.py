"""Private bounds and categories of a schema: what is charged, what is drawn, what is found."""

import math
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skdpot._utils.streams import SecretStream, Streams
from skdpot.exceptions import ReliabilityWarning
from skdpot.preprocessing import (
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableEncoder,
    TableSchema,
)
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent
from skdpot.privacy.statement import scales_of
from skdpot.privacy.thresholds import ThresholdedCountsEvent
from skdpot.release.private_bounds import plan_private_bounds, release_ranges
from skdpot.sources import HeldRows
from skdpot.tables.schema_release import plan_schema, release_schema
from tests.core.release.exact import moves
from tests.tables.table_cases import mixed_rows

MU, TAIL = 1.0, 1e-7


@pytest.fixture(scope="module")
def frame():
    return mixed_rows(20_000)


def seeded(seed=0):
    """Streams for tests of accuracy, which would else fail once in a while."""
    public = np.random.default_rng(seed)
    return Streams(SecretStream(seed), public, public)


def released(frame, plan, seed=0):
    rows = HeldRows(plan.schema.read(frame), len(frame))
    return release_schema(rows, plan, seeded(seed))


def resolved(frame, mu=MU, columns=None, seed=0):
    schema = TableSchema(columns) if columns else TableSchema.from_dtypes(frame)
    plan = plan_schema(schema.bind(frame), len(frame), mu=mu, delta=TAIL)
    return released(frame, plan, seed)[0]


# --------------------------------------------------------------- what is paid


def leaves(event):
    parts = getattr(event, "events", None)
    return [event] if parts is None else [leaf for part in parts for leaf in leaves(part)]


@pytest.mark.parametrize("names", [["age", "gain", "since"], ["job"], ["age", "height", "job"]])
def test_each_open_column_has_the_same_share_of_one_event(frame, names):
    plan = plan_schema(TableSchema.from_dtypes(frame[names]), 1000, mu=MU, delta=TAIL)
    open_lists = names.count("job")
    expected = [GaussianEvent] * (names != ["job"]) + [ThresholdedCountsEvent] * open_lists
    assert [type(event) for event in leaves(plan.event)] == expected
    loss = compose(plan.event)
    assert 0.9999 * MU < loss.mu_without_sampling <= MU
    assert loss.leak <= TAIL
    assert [len(scale) for scale in scales_of(plan.event)] == [len(expected)] * 2
    of_ranges = 0.0 if plan.ranges is None else plan.ranges.event.to_gdp().mu ** 2
    of_lists = 0.0 if plan.categories is None else plan.categories.event.mu**2
    assert of_ranges == pytest.approx((len(names) - open_lists) / len(names) * MU**2)
    assert of_lists == pytest.approx(open_lists / len(names) * MU**2)


def test_what_is_known_costs_nothing(frame):
    assert plan_schema(TableSchema.from_dtypes(frame[["member"]]), 9, mu=MU, delta=0).event is None
    schema = TableSchema.from_dtypes(frame[["age", "height"]])
    for bounds, n_open in (({"lower": 0, "upper": 1}, 1), ({"lower": 0}, 2)):
        known = schema.replace(NumericColumn("age", **bounds, dtype="int64"))
        assert plan_schema(known, 9, mu=MU, delta=TAIL).ranges.n_features == n_open


@pytest.mark.parametrize("new", [np.nan, 0.0, -7.0, 3.5, 1e300, -1e-300])
@pytest.mark.parametrize("old", [np.nan, 2.0])
def test_one_record_moves_bounds_no_further_than_they_are_charged(old, new):
    """A value or a hole, in both columns; cells follow from releases before, which are known."""
    rng = np.random.default_rng(0)
    columns = [np.where(rng.random(4000) < 0.3, np.nan, rng.normal(size=4000)) for _ in range(2)]
    plan = plan_private_bounds(4000, 2, 5.0, mode="features")
    for row in (0, 1000, 3999):
        pair = [np.column_stack(columns) for _ in range(2)]
        pair[0][row], pair[1][row] = old, new
        run = partial(release_ranges, plan=plan, streams=seeded())
        distances, stated = moves(run, *pair)
        assert len(distances) == 5
        assert (distances <= stated * (1 + 1e-12)).all()


# --------------------------------------------------------------- what is found


def test_bounds_hold_nearly_all_values_and_not_much_more(frame):
    for seed in range(5):
        schema = resolved(frame, mu=0.5, seed=seed)
        assert schema.is_resolved
        age = schema["age"]
        assert age.integer
        assert 0 <= age.lower <= 19
        assert 86 <= age.upper <= 125
        height = schema["height"]
        assert 1.2 < height.lower < 1.5 < 1.9 < height.upper < 2.2
        gain = schema["gain"]
        assert gain.lower == 0
        assert gain.upper > 2000
        since = schema["since"]
        assert since.lower < "2015-04-01"
        assert "2020-03-01" < since.upper < "2025-01-01"
        outside = [(frame[c.name] < c.lower) | (frame[c.name] > c.upper) for c in (age, height)]
        assert max(part.mean() for part in outside) < 0.03


def test_what_is_not_seen_gets_public_bounds_and_one_warning_names_it(frame):
    few = frame.iloc[:40]
    plan = plan_schema(TableSchema.from_dtypes(few), len(few), mu=0.1, delta=TAIL)
    schema, estimates = released(few, plan)
    names = ("age", "gain", "height", "since", "job")
    whats = dict.fromkeys(names, "bounds") | {"job": "categories"}
    assert {item.column: item.what for item in estimates} == whats
    assert not any(item.found or item.output.reliable for item in estimates)
    with pytest.warns(ReliabilityWarning, match="hides bounds of .* in their place. State") as told:
        encoder = TableEncoder(epsilon=0.05).fit(few)
    assert len(told) == 1
    assert set(encoder.reliability_.unreliable) == {f"{w} of {n}" for n, w in whats.items()}
    assert (schema["age"].lower, schema["age"].upper) == (-4, 4)
    assert (schema["since"].lower, schema["since"].upper) == ("1900-01-01", "2100-01-01")
    assert (schema["job"].categories, schema["job"].other) == ((), "other")
    assert schema["job"].n_categories == 1


def test_known_bounds_are_kept(frame):
    schema = resolved(
        frame[["age", "since"]],
        columns=[NumericColumn("age", lower=0), DatetimeColumn("since", upper="2030-01-01")],
    )
    assert schema["age"].lower == 0
    assert 86 <= schema["age"].upper <= 125
    assert schema["since"].upper == "2030-01-01"
    assert schema["since"].lower < "2015-04-01"
    beyond = resolved(frame[["age"]], columns=[NumericColumn("age", lower=1000)])
    assert (beyond["age"].lower, beyond["age"].upper) == (1000, 1000)
    late = resolved(frame[["since"]], columns=[DatetimeColumn("since", lower="2040-01-01")])
    assert late["since"].n_values == 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "Int64", "float32"])
def test_bounds_fit_the_data_type(dtype):
    values = pd.Series(np.random.default_rng(0).integers(0, 127, 20_000), dtype=dtype)
    column = resolved(pd.DataFrame({"x": values}))["x"]
    assert column.lower == 0
    assert 100 < column.upper <= (127 if dtype == "int8" else 255 if dtype == "uint8" else 300)


def test_dates_with_zones_and_of_polars():
    days = pd.date_range("2019-01-01", periods=20_000, freq="h")
    for table in (
        pd.DataFrame({"t": days.tz_localize("UTC").tz_convert("Asia/Tokyo")}),
        pl.DataFrame({"t": days.to_pydatetime().tolist()}),
        pl.DataFrame({"t": [day.date() for day in days]}),
    ):
        column = resolved(table)["t"]
        assert column.lower[:10] < "2019-02-01"
        assert column.upper[:10] > "2021-03-01"
        unit = column.to_unit(table["t"])
        assert (unit > 0).mean() > 0.9
        assert (unit < 1).mean() > 0.9


# ------------------------------------------------------------------ categories


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_common_categories_are_selected_and_missing_ones_never(library):
    rng = np.random.default_rng(0)
    words = rng.choice(["b", "a", "nan", "None", ""], 20_000).astype(object)
    words[::3] = None
    words[:2] = ["rare", "rarest"]
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame}[library]
    frame = make({"c": words.tolist()})
    for order in (slice(None), slice(None, None, -1)):
        column = resolved(frame[order])["c"]
        assert column.categories == ("", "None", "a", "b", "nan")
        assert column.other == "other"
        assert column.missing
        assert column.to_codes(["rare", None, "a"]).tolist() == [5, -1, 2]


@pytest.mark.parametrize(
    ("dtype", "values", "other"),
    [
        ("uint8", [250, 3], 255),
        ("uint8", [255, 3], 254),
        ("uint64", [2**64 - 1, 3], 2**64 - 2),
        ("int8", list(range(-128, 0)), 0),
        ("int8", [-1, -2], -3),
        ("uint8", list(range(256)), None),
        ("category", [250, 3], -1),
        ("float32", [-1, 0.5], -2),
        ("str", ["other", "other_", "b"], "other__"),
    ],
)
def test_the_category_for_all_others_fits_the_data_type(dtype, values, other):
    """It comes back as itself, and not as another that somebody has."""
    series = pd.Series(values * (20_000 // len(values)), dtype=dtype)
    column = resolved(pd.DataFrame({"c": series}), mu=math.inf, columns=[CategoricalColumn("c")])
    column = column["c"].replace(missing=False)
    assert column.other == other
    assert set(column.categories) == set(values)
    codes = np.arange(column.n_categories)
    assert column.from_codes(codes).tolist() == list(column.levels)
    np.testing.assert_array_equal(column.to_codes(column.from_codes(codes)), codes)


def test_everything_is_exact_at_infinite_mu():
    frame = pd.DataFrame({"n": [3, 8], "c": ["z", "y"]})
    plan = plan_schema(TableSchema.from_dtypes(frame), 2, mu=math.inf, delta=TAIL)
    assert all(isinstance(event, NonPrivateEvent) for event in leaves(plan.event))
    assert scales_of(plan.event) == (None, None)
    schema, estimates = released(frame, plan)
    assert (schema["n"].lower, schema["n"].upper) == (3, 8)
    assert [item.hidden for item in estimates] == [0.0, 0.0]
    assert schema["c"].categories == ("y", "z")
