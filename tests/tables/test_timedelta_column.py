"""Durations: a kind of column in one file, in a schema, an encoder, a synthesizer and a report."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skdpot import DPTableSynthesizer
from skdpot.cli.table_files import FileFormat, read_table
from skdpot.cli.where import read_conditions
from skdpot.preprocessing import NumericColumn, TableEncoder, TableSchema, TimedeltaColumn

TICKS = [0, -1, 1, 86_399_999_999, 86_400 * 10**6, -86_400 * 10**6, 3_600 * 10**6 + 1]
LIMITS = {"lower": "-1 days", "upper": "2 days"}
COLUMNS = [TimedeltaColumn("c", resolution=r, **LIMITS) for r in ("s", "min", "h", "D")]


def pandas_durations(unit):
    def make(ticks):
        lost = [tick is None for tick in ticks]
        numbers = np.array([0 if tick is None else tick for tick in ticks])
        return pd.Series(numbers.astype(f"timedelta64[{unit}]")).mask(lost)

    return make


def polars_durations(unit):
    return lambda ticks: pl.Series(ticks, dtype=pl.Int64).cast(pl.Duration(unit))


# For `test_one_row_one_code`, which every kind of column inherits.
PANDAS = {f"timedelta64[{u}]": (pandas_durations(u), TICKS, COLUMNS) for u in ("ms", "us", "ns")}
POLARS = {f"Duration({u})": (polars_durations(u), TICKS, COLUMNS) for u in ("ms", "us", "ns")}


@pytest.fixture(scope="module")
def stays():
    rng = np.random.default_rng(0)
    hours = rng.integers(0, 240, 4000)
    return pd.DataFrame(
        {"stay": pd.to_timedelta(hours, "h").astype("timedelta64[s]"), "age": hours // 3}
    )


def test_a_guess_is_written_as_json_and_read_again(stays):
    schema = TableSchema.guess(stays)
    assert schema["stay"].describe() == "hours from 0 days 00:00:00 to 10 days 00:00:00"
    assert TableSchema.from_json(schema.to_json()) == schema
    assert not TableSchema.from_dtypes(stays).is_resolved
    texts = pd.DataFrame({"stay": stays["stay"].astype(str)})
    assert TableSchema.guess(texts)["stay"].kind == "timedelta"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_durations_come_back(stays, library):
    schema = TableSchema.guess(stays).confirm()
    frame = stays
    if library == "polars":
        spans = [stay.to_pytimedelta() for stay in stays["stay"]]
        frame = pl.DataFrame({"stay": spans, "age": stays["age"]})
    encoder = TableEncoder(schema)
    back = encoder.fit(frame).inverse_transform(encoder.transform(frame))
    assert list(back["stay"]) == list(frame["stay"])


def test_a_synthesizer_draws_durations_and_reports_on_them(stays):
    schema = TableSchema.guess(stays).confirm()
    model = DPTableSynthesizer(schema, epsilon=5.0, n_particles=2000).fit(stays)
    drawn = model.sample(500, random_state=0)
    assert drawn["stay"].dtype == stays["stay"].dtype
    some = model.sample(50, conditions={"stay": ("24 h", "48 h")}, random_state=0)["stay"]
    assert some.between(pd.Timedelta("24 h"), pd.Timedelta("48 h")).all()
    for report in (model.quality_report(n_samples=500), model.quality_report(stays, n_samples=500)):
        assert report.columns.loc["stay", "mean"] == pytest.approx(119.5 * 3600, rel=0.1)
    assert model.score(stays) > -0.4  # as of the same table in numbers of seconds


def test_the_command_line_reads_durations(tmp_path, stays):
    path = tmp_path / "stays.csv"
    stays.to_csv(path, index=False)
    schema = TableSchema(
        [
            TimedeltaColumn("stay", lower="0 h", upper="240 h", resolution="h"),
            NumericColumn("age", lower=0, upper=99, integer=True),
        ]
    )
    table, stated = read_table(str(path), schema, FileFormat())
    units = stated["stay"].to_unit(table["stay"])
    np.testing.assert_array_equal(units, schema["stay"].to_unit(stays["stay"]))
    assert read_conditions(["stay>=36 h"], schema) == {"stay": ("36 h", None)}


@pytest.mark.parametrize("value", ["90", "soon", "P000123", 90, np.nan])
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match="'c'.*(must hold durations|has missing values)"):
        COLUMNS[0].to_unit(pd.Series([value], dtype=object))
    with pytest.raises(ValueError, match="lower must be None or a duration"):
        TimedeltaColumn("c", lower=value if value == value else "x")
