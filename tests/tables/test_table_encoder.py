"""TableEncoder: exact round trips, the unit ball, names, and what is private about it."""

import math
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal as assert_polars_equal
from sklearn.pipeline import make_pipeline

from skdpot import PrivacyBudget
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableEncoder,
    TableSchema,
)
from skdpot.privacy.events import ComposedEvent, NonPrivateEvent
from skdpot.privacy.spent import total_spent
from tests.flat_options import flow_sampler
from tests.tables.table_cases import ArrowTable, mixed_rows, tables

SECRET = "Secret-4711"
PUBLIC = TableSchema(
    [
        NumericColumn("age", lower=0, upper=100),
        NumericColumn("gain", lower=0, upper=1e6, integer=True, log_scale=True),
        NumericColumn("height", lower=0, upper=3, missing=True),
        CategoricalColumn("job", categories=["clerk", "cook", "farmer", "poet"], missing=True),
        BooleanColumn("member"),
        DatetimeColumn("since", lower="2015-01-01", upper="2025-01-01", resolution="D"),
    ]
)


@pytest.fixture(scope="module")
def frame():
    return mixed_rows(3000)


# ---------------------------------------------------- there and back again


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pandas", "polars"])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_tables_come_back_exactly(library, data):
    frame, schema = data.draw(tables(library))
    encoder = TableEncoder(schema).fit(frame)
    places = encoder.transform(frame)
    back = encoder.inverse_transform(places)
    if library == "pandas":
        pd.testing.assert_frame_equal(back, frame, check_exact=True)
    else:
        assert back.schema == frame.schema
        assert_polars_equal(back, frame, check_exact=True, categorical_as_str=True)
    assert (np.linalg.norm(places, axis=1) <= 1).all()
    assert places.shape[1] == len(set(encoder.get_feature_names_out()))


def test_a_schema_for_one_library_serves_the_other(frame):
    there = TableEncoder(PUBLIC).fit(frame)
    held = {n: frame[n].astype(object).where(frame[n].notna(), None).tolist() for n in frame}
    table = pl.DataFrame(held)
    encoder = TableEncoder(there.schema_).fit(table)
    np.testing.assert_array_equal(encoder.transform(table), there.transform(frame))
    np.testing.assert_array_equal(there.transform(table), there.transform(frame))
    back = encoder.inverse_transform(encoder.transform(table))
    assert back["job"].to_list() == held["job"]
    assert back["since"].dtype == pl.Datetime("ms")
    # Nullable types of pandas where numpy cannot miss a value.
    table = pl.DataFrame({"n": [1, None], "b": [True, None]})
    schema = TableEncoder(TableSchema.guess(table).confirm()).fit(table).schema_
    encoder = TableEncoder(schema).fit(pd.DataFrame({"n": [1, 1], "b": [True, False]}))
    back = encoder.inverse_transform(encoder.transform(table))
    assert back.dtypes.astype(str).tolist() == ["Int64", "boolean"]
    assert back.isna().to_numpy().tolist() == [[False, False], [True, True]]


def test_a_table_of_arrow_is_read_by_its_names(frame):
    table = pl.DataFrame({"a": [1, None, 3], "b": ["x", "y", None], "c": [0.5, 0.25, 0.0]})
    schema = TableSchema(
        [
            NumericColumn("c", lower=0, upper=1, missing=True),
            CategoricalColumn("b", categories=["x", "y"], missing=True),
            NumericColumn("a", lower=0, upper=4, missing=True),
        ]
    )
    expected = TableEncoder(schema).fit(table)
    encoder = TableEncoder(schema).fit(ArrowTable(table))
    assert encoder.feature_names_in_.tolist() == ["a", "b", "c"]
    places = encoder.transform(ArrowTable(table))
    np.testing.assert_array_equal(places, expected.transform(table))
    assert_polars_equal(encoder.inverse_transform(places), table)
    with pytest.raises(ValueError, match="same order"):
        encoder.transform(ArrowTable(table.select("c", "a", "b")))


def test_what_of_arrow_is_no_table(monkeypatch):
    column = ArrowTable(pl.Series([1, 2]))
    with pytest.raises(TypeError, match="type ArrowTable cannot be read as a table; pass a Data"):
        TableEncoder().fit(column)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(TypeError, match="Reading ArrowTable needs polars: pip install polars"):
        TableEncoder().fit(column)


# ------------------------------------------------------------ the unit ball


@given(tables("pandas"), st.integers(0, 2**31), st.sampled_from([0.01, 0.3, 1.0, 100.0]))
@settings(max_examples=60, deadline=None)
def test_any_point_is_decoded_to_the_nearest_value(case, seed, scale):
    frame, schema = case
    encoder = TableEncoder(schema).fit(frame)
    points = np.random.default_rng(seed).normal(size=(30, len(encoder.get_feature_names_out())))
    points *= scale
    decoded = encoder.inverse_transform(points)
    chosen = encoder.transform(decoded)
    # No row of the table is nearer than the row that was decoded, column by column.
    rows = encoder.transform(frame)
    for column in encoder.schema_:
        if getattr(column, "log_scale", False):
            continue  # there integers are rounded by value, not by place
        block = encoder.column_blocks_[column.name]
        distance = np.linalg.norm(chosen[:, block] - points[:, block], axis=1)
        others = np.linalg.norm(rows[:, block][:, None] - points[:, block], axis=2)
        assert (distance <= others.min(axis=0) + 1e-6 * scale).all()


def test_every_column_has_the_same_room(frame):
    encoder = TableEncoder(PUBLIC).fit(frame)
    places = encoder.transform(frame)
    side = 1 / math.sqrt(6)
    for name, block in encoder.column_blocks_.items():
        norms = np.linalg.norm(places[:, block], axis=1)
        assert norms.max() <= side, name
    assert encoder.column_blocks_ == {
        "age": slice(0, 1),
        "gain": slice(1, 2),
        "height": slice(2, 4),
        "job": slice(4, 9),
        "member": slice(9, 10),
        "since": slice(10, 11),
    }
    corner = frame.iloc[[0]].assign(age=100, gain=1e6, height=3.0, member=True, job="cook")
    corner["since"] = pd.Series([pd.Timestamp("2025-01-01")], index=corner.index, dtype="M8[s]")
    assert np.linalg.norm(encoder.transform(corner)) == pytest.approx(1, abs=1e-11)
    assert np.linalg.norm(encoder.transform(corner)) <= 1


# ------------------------------------------------------------- what it costs


def test_a_fit_is_free_when_everything_is_public(frame):
    budget = PrivacyBudget(1.0)
    encoder = TableEncoder(PUBLIC, budget=budget, random_state=0).fit(frame)  # and no warning
    assert encoder.privacy_spent_ is None
    assert len(budget.history()) == 0
    assert encoder.schema_.is_resolved


def test_a_private_scale_gives_room_to_where_rows_are_and_is_paid_for():
    """Half a million is stated; half of the rows are below 20, and a third of them 0."""
    rng = np.random.default_rng(0)
    paid = np.where(rng.random(10_000) < 0.3, 0.0, rng.lognormal(3, 1, 10_000))
    frame = pd.DataFrame({"paid": paid, "gain": np.rint(10 * paid).astype(int)})
    schema = TableSchema(
        [
            NumericColumn("paid", lower=-1e5, upper=5e5),
            NumericColumn("gain", lower=0, upper=10**6, log_scale=True),
        ]
    )
    budget = PrivacyBudget(1.0)
    encoder = TableEncoder(schema, scale="private", budget=budget).fit(frame)
    assert encoder.privacy_spent_.epsilon == 1.0
    assert len(budget.history()) == 1
    assert encoder.schema_["gain"] == TableEncoder(schema).fit(frame).schema_["gain"]
    column = encoder.schema_["paid"]
    assert (column.lower, column.upper) == (-1e5, 5e5)
    places = column.to_places(frame["paid"])
    assert np.subtract(*np.quantile(places, [0.9, 0.1])) > 0.1
    assert np.subtract(*np.quantile(column.to_unit(frame["paid"]), [0.9, 0.1])) < 2e-4
    # Zero has a stretch of its own, in which all places are decoded to it.
    stretch = column.from_places(places[paid == 0][0] + np.linspace(-0.01, 0.01, 9))
    assert (stretch == 0.0).all()
    np.testing.assert_allclose(column.from_places(places), paid, atol=1e-7)
    again = TableEncoder(TableSchema.from_json(encoder.schema_.to_json()), scale="private")
    np.testing.assert_array_equal(again.fit(frame).transform(frame), encoder.transform(frame))
    assert again.privacy_spent_ is None


def test_scales_of_columns_without_bounds_cost_nothing_more(frame):
    fitted = [TableEncoder(scale=scale).fit(frame) for scale in ("auto", "even")]
    events = [encoder.privacy_spent_.event for encoder in fitted]
    assert events[0] == events[1]
    names = ("age", "gain", "height", "since")
    assert all(fitted[0].schema_[name].knots is not None for name in names)
    assert all(fitted[1].schema_[name].knots is None for name in names)


def test_no_noise_at_infinite_epsilon(frame):
    encoder = TableEncoder(epsilon=math.inf).fit(frame)
    assert isinstance(encoder.privacy_spent_.event, ComposedEvent)
    assert all(isinstance(e, NonPrivateEvent) for e in encoder.privacy_spent_.event.events)
    assert (encoder.schema_["age"].lower, encoder.schema_["age"].upper) == (17, 90)
    assert encoder.schema_["job"].categories == ("clerk", "cook", "farmer", "poet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": math.nan}, "'age' has missing values, but missing"),
        ({"gain": math.inf}, "'gain' holds infinity"),
        ({"member": SECRET}, "'member' must hold True and False"),
        ({"since": 17}, "'since' must hold dates or times"),
        ({"height": SECRET}, "'height' must hold numbers"),
    ],
)
def test_rows_that_do_not_fit_are_not_encoded(frame, change, message):
    """`test_table_synthesizer_privacy` has more tables that a fit refuses."""
    encoder = TableEncoder(PUBLIC).fit(frame)
    (name,) = change
    bad = frame.astype({name: object})
    bad.loc[3, name] = change[name]
    if name in ("age", "gain"):
        bad = bad.astype({name: float})
    with pytest.raises(ValueError, match=message) as caught:
        encoder.transform(bad)
    assert SECRET not in str(caught.value)


def test_later_private_steps_say_what_both_cost(frame):
    places = TableEncoder(epsilon=1.0).fit_transform(frame)
    with pytest.warns(PrivacyWarning, match="private step that spent epsilon=1 on the same people"):
        flow_sampler(norm_bound=1.0, n_steps=2, n_projections=5).fit(places)
    free = TableEncoder(PUBLIC).fit_transform(frame)
    sampler = flow_sampler(norm_bound=1.0, n_steps=2, n_projections=5).fit(free)
    assert sampler.privacy_spent_.epsilon == 1.0
    total = total_spent(make_pipeline(TableEncoder(PUBLIC), sampler).fit(frame))
    assert total.epsilon == pytest.approx(1.0, rel=0.01)


# ------------------------------------------------------------- scikit-learn


def test_set_output(frame):
    encoder = TableEncoder(PUBLIC).fit(frame)
    plain = encoder.transform(frame)
    names = encoder.get_feature_names_out().tolist()
    assert names == [
        *("age", "gain", "height", "height is missing"),
        *("job=clerk", "job=cook", "job=farmer", "job=poet", "job is missing"),
        *("member", "since"),
    ]
    shuffled = frame.sample(frac=1, random_state=0)
    output = encoder.set_output(transform="pandas").transform(shuffled)
    assert output.columns.tolist() == names
    assert output.index.equals(shuffled.index)
    pd.testing.assert_frame_equal(
        encoder.inverse_transform(output)[["age"]], shuffled[["age"]].reset_index(drop=True)
    )
    output = encoder.set_output(transform="polars").transform(frame)
    assert output.columns == names
    np.testing.assert_array_equal(output.to_numpy(), plain)


def test_coordinates_have_different_names():
    frame = pd.DataFrame({"a": ["b=c"], "a=b": ["c"], "a=b=c": [0.0], "a is missing": [True]})
    schema = TableSchema(
        [
            CategoricalColumn("a", categories=["b=c"], missing=True),
            CategoricalColumn("a=b", categories=["c"]),
            NumericColumn("a=b=c", lower=0, upper=1),
            BooleanColumn("a is missing"),
        ]
    )
    names = TableEncoder(schema).fit(frame).get_feature_names_out().tolist()
    assert names == ["a=b=c", "a is missing", "a=b=c_", "a=b=c__", "a is missing_"]


def test_feature_names_are_checked(frame):
    encoder = TableEncoder(PUBLIC).fit(frame)
    assert encoder.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names should match"):
        encoder.transform(frame.iloc[:, ::-1])
    with pytest.raises(ValueError, match="input_features is not equal"):
        encoder.get_feature_names_out(["a"])
    encoder.get_feature_names_out(frame.columns)
    with pytest.raises(ValueError, match="X has 3 coordinates, but .* by 11"):
        encoder.inverse_transform(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="contains NaN"):
        encoder.inverse_transform(np.full((2, 11), np.nan))
    with pytest.raises(TypeError, match="collect"):
        encoder.transform(pl.LazyFrame({"a": [1, 2]}))
