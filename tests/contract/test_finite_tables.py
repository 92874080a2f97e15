"""No finite value of a table is an error after the charge: every kind of column, rule and bound.

A fit of each case is refused, with nothing charged, or completed. Some cases run always, in turns
of values, columns and rules, more of them where slow tests run, and all with ``SKDPOT_ALL=1``.
"""

import os
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from skdpot import DPTableSynthesizer, PrivacyBudget
from skdpot.cli.table_files import FileFormat, read_table_file
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    Forbidden,
    Implies,
    LessEqual,
    NumericColumn,
    Pattern,
    SumTo,
    TableSchema,
    TimedeltaColumn,
)

pytestmark = pytest.mark.usefixtures("few_synthetic_rows")

N = 30
LARGEST = np.finfo(float).max
REAL = [5e300, -5e300, 1.7e308, LARGEST, -LARGEST, 5e-324, -5e-324, -0.0, 0.0, 1.0, 1e-310]
WHOLE = [2**63 - 1, -(2**63), 0, 1, -1, 2**53 + 1]
ODD = [2**64, 10**400, -(10**400), Fraction(10**400, 3), np.float32(3e38), np.uint64(2**64 - 1)]
NEW_YORK = "datetime64[us, America/New_York]"
FAR = [2**63 - 1, -(2**63) + 1, 0, 253402300800, -62135596801]  # ticks


def short(dtype):
    found = np.finfo(dtype)
    return pd.Series([found.max, found.min, found.smallest_subnormal, -0.0, 1.0, 0.1], dtype=dtype)


def ticks(dtype, zone=None):
    numbers = [number for number in FAR if zone is None or abs(number) < 2**62]
    found = pd.Series(np.array(numbers, dtype=np.int64).astype(dtype))
    return found if zone is None else found.dt.tz_localize("UTC").dt.tz_convert(zone)


def of(dtype, *values):
    return pd.Series(values, dtype=dtype)


VALUES = {
    "float64": of("float64", *REAL),
    "Float64": of("Float64", *REAL),
    "float64, missing": of("float64", *REAL[:5], np.nan, np.nan, np.nan),
    "float32": short("float32"),
    "float16": short("float16"),
    "int64": of("int64", *WHOLE),
    "Int64, missing": of("Int64", *WHOLE, None),
    "int8": of("int8", -128, 127, 0),
    "uint64": of("uint64", 2**64 - 1, 0, 1, 2**63),
    "numbers": of("object", *REAL, *WHOLE, *ODD),
    "Decimal": of("object", Decimal("1e400"), Decimal(1)),
    "numbers as text": of("str", "1e400", "-1e400", "9" * 5000, "1e-400", "0", "-0", "5e300"),
    **{f"times, {unit}": ticks(f"datetime64[{unit}]") for unit in ("s", "us", "ns")},
    **{f"times, {zone}": ticks("datetime64[us]", zone) for zone in ("UTC", "America/New_York")},
    "times before 1884": of(NEW_YORK, *pd.date_range("1750-01-01", periods=9, tz="UTC")),
    "beyond what can be added up": of("float64", 5e300, -5e300),
    "on a short bound": of("float32", 0.0, 1.0),
    "times, missing": of("datetime64[ns]", pd.NaT, "2024-01-01", "1677-09-22"),
    "times as text": of(
        "str", "10000-01-01", "0000-12-31", "-99999-01-01", "9999-12-31", "0001-01-01", "2024-01-01"
    ),
    "times of a zone as text": of(
        "str", "10000-01-01T00:00Z", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"
    ),
    **{f"durations, {unit}": ticks(f"timedelta64[{unit}]") for unit in ("s", "ns")},
    "durations as text": of("str", "9999999 days", "-" + "9" * 50 + " h", "0 s", "1 s"),
    "texts": of("str", "x" * 200_000, "y", "", "\0", "nan"),
    "categories": of("category", "x" * 2000, "y", ""),
    "truth": of("bool", True, False),
}


def columns_of(name):
    """Return columns that values of a kind are put in, with private, public and narrow bounds."""
    values = VALUES[name]
    options = {"missing": bool(values.isna().any())}
    if name.startswith("durations"):
        ends = ({}, {"lower": "-100000 D", "upper": "100000 D"}, {"lower": "0 s"})
        kind, options["resolution"] = TimedeltaColumn, "s"
    elif name.startswith("times"):
        zoned = getattr(values.dtype, "tz", None) is not None or "zone" in name
        offset = "T00:00+00:00" if zoned else ""
        ends = [{}, *({"lower": f"{a}{offset}", "upper": f"{b}{offset}"} for a, b in (
            ("1700-01-01", "2200-01-01"), ("0001-01-02", "9999-12-30")))]  # fmt: skip
        ends += [{"lower": f"2000-01-01{offset}", "resolution": "D"}, {"resolution": "D"}]
        kind = DatetimeColumn
        if "zone" in name:
            options["dtype"] = "datetime64[us, Asia/Tokyo]"
    elif name in ("texts", "categories"):
        kind, ends = CategoricalColumn, ({}, {"categories": ["y"], "other": "o"})
    elif name == "truth":
        kind, ends = BooleanColumn, ({},)
    else:
        kind = NumericColumn
        pairs = ((-1e300, 1e300), (0.0, 1e-320), (-1, 0.1), (1e299, 1e300), (0, None), (None, 0))
        ends = [{}, {"integer": True}, {"lower": 2**62 - 5, "upper": 2**62, "integer": True}]
        ends += [{"lower": low, "upper": high} for low, high in pairs]
        ends += [{"lower": 0, "upper": 9, "integer": True}]
    found = []
    for bounds in ends:
        try:
            found.append(kind("x", **options, **bounds).bind(str(values.dtype)))
        except ValueError:  # bounds that the data type cannot hold
            pass
    return found


GROUP = CategoricalColumn("g", categories=["a", "b"])
RULES = {
    "none": [],
    "implies": [Implies("g", "x")],
    "implies, from": [Implies("x", "g")],
    "implies, both": [Implies("x", "y")],
    "at most": [LessEqual("x", "y")],
    "at most, within": [LessEqual("x", "y", largest=5)],
    "at most, twice": [LessEqual("x", "y"), LessEqual("y", "z")],
    "at most, implies": [LessEqual("x", "y"), Implies("g", "z")],
    "sum": [SumTo(("x", "y"), "z")],
    "sum to a number": [SumTo(("x", "y"), 1)],
    "sum to a large number": [SumTo(("x", "y"), -1e300)],
    "sum, at most": [SumTo(("x", "y"), "z"), LessEqual("x", "z")],
    "forbidden": [Forbidden({"g": "a", "h": ["a", "b"]}), Forbidden({"h": "b"})],
    "forbidden, implies": [Forbidden({"g": ["a", "b"], "h": "a"}), Implies("h", "x")],
    "codes": [Pattern("code", r"\d{3}")],
}


def cases():
    """Every schema that a kind of value, a column and a rule make."""
    for name in VALUES:
        for place, column in enumerate(columns_of(name)):
            for rule, rules in RULES.items():
                used = {"x"}.union(*(one.names for one in rules))
                known = [column.replace(name=n) for n in "xyz"]
                known += [GROUP, GROUP.replace(name="h")]
                try:
                    schema = TableSchema([c for c in known if c.name in used], rules=rules)
                except ValueError:
                    continue
                yield pytest.param(name, schema, id=f"{name}, {place}, {rule}")


def rows(name, schema):
    """Return a table in which the values meet in many ways, and one group."""
    values, n = VALUES[name], len(VALUES[name])
    found = {}
    for shift, column in enumerate(schema):
        of_groups = pd.Series(["a"] * N, dtype="str")
        places = (np.arange(N) * (1 + shift) + shift) % n
        own = values.iloc[places].reset_index(drop=True)
        found[column.name] = of_groups if column.name in "gh" else own
    return pd.DataFrame(found)


def check(schema, table, epsilon=1.0):
    """Fit; what is refused was not charged."""
    budget = PrivacyBudget(1e6, 1e-5)
    model = DPTableSynthesizer(
        schema, epsilon=epsilon, budget=budget, n_particles=100, random_state=0
    )
    with np.errstate(over="raise", divide="raise", invalid="raise"), warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        try:
            model.fit(table)
        except ValueError:
            assert not len(budget.history())
            assert not hasattr(model, "model_")
            return False
        except (Warning, ArithmeticError) as told:
            raise AssertionError(f"{told}, which tells of values") from None
    assert len(budget.history()) == 1
    return True


ALL = list(cases())


@pytest.mark.parametrize(("name", "schema"), ALL[::89])
def test_no_finite_value_is_an_error_after_the_charge(name, schema):
    assert check(schema, rows(name, schema)) or name == "Decimal"


# A step without a common factor with the numbers of columns and rules takes all of their pairs.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "schema"), ALL if os.environ.get("SKDPOT_ALL") else ALL[1::7])
def test_no_finite_value_is_an_error_after_the_charge_in_any_case(name, schema):
    assert check(schema, rows(name, schema)) or name == "Decimal"


FAILED = {
    "large numbers": ("beyond what can be added up", NumericColumn("x"), "implies"),
    "missing numbers": (
        "float64, missing", NumericColumn("x", integer=True, missing=True), "implies, both"
    ),
    "a short float on its bound": (
        "on a short bound", NumericColumn("x", lower=0, upper=0.1), "implies, both"
    ),
    "integers far from a sum": (
        "int64", NumericColumn("x", integer=True), "sum to a large number"
    ),
    "integers far from a sum, bounded": (
        "int64", NumericColumn("x", integer=True, upper=0), "sum to a large number"
    ),
    "rows that are all forbidden": (
        "int8", NumericColumn("x", lower=-9, upper=9), "forbidden, implies"
    ),
    "far times in a chain": ("times, s", DatetimeColumn("x"), "at most, twice"),
    "times of a zone before 1884": (
        "times before 1884",
        DatetimeColumn("x", lower="1700-01-01", upper="1800-01-01", dtype=NEW_YORK),
        "implies, both",
    ),
    "negative durations": (
        "durations, s", TimedeltaColumn("x", lower="-9 D", upper="9 D"), "implies, both"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILED)
def test_values_by_which_this_failed(case):
    name, column, kind = FAILED[case]
    used = {"x"}.union(*(rule.names for rule in RULES[kind]))
    known = [*(column.replace(name=n) for n in "xyz"), GROUP, GROUP.replace(name="h")]
    schema = TableSchema([c for c in known if c.name in used], rules=RULES[kind])
    assert check(schema, rows(name, schema), 1e3)  # the noise hides nothing


def test_open_bounds_that_a_fit_could_find_against_a_stated_one_are_refused():
    """It would find -5 to 5 for y, which is from 100 on, and fail after the charge."""
    known = [NumericColumn("x"), NumericColumn("y", lower=100, upper=200)]
    with pytest.raises(ValueError, match="needs the bounds of “x”, as those of 'y' are stated"):
        TableSchema(known, rules=[SumTo(("x", "y"), 5)])
    TableSchema([known[0], NumericColumn("y")], rules=[SumTo(("x", "y"), 5)])
    parts = [NumericColumn(name, lower=0) for name in "xyz"]
    TableSchema(parts, rules=[SumTo(("x", "y"), "z")])


@pytest.mark.parametrize("name", ["float64", "int64", "times, us", "texts"])
def test_no_finite_value_in_a_file_is_an_error_after_the_charge(name, tmp_path):
    column = columns_of(name)[0]
    rules = RULES["at most" if column.on_scale else "implies, both"]
    schema = TableSchema([column, column.replace(name="y")], rules=rules)
    table = rows(name, schema)
    table.to_parquet(tmp_path / "rows.parquet")
    assert check(schema, str(tmp_path / "rows.parquet"))
    table.to_csv(tmp_path / "rows.csv", index=False)
    found, stated = read_table_file(str(tmp_path / "rows.csv"), schema, FileFormat())
    with_missing = TableSchema([c.replace(missing=True) for c in stated])  # "" is nothing there
    assert check(stated if name != "texts" else with_missing, found)
