"""Rules between columns: every synthetic row obeys them, and what a private row breaks is no one's.

What a rule says is written here a second time, in pandas.
"""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from skdpot import DPTableSynthesizer
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
from skdpot.tables.frames import Table
from skdpot.tables.row_map import RowMap
from tests.contract.hostile_files import facts_of, forged
from tests.tables.table_models import as_polars

GRADES = {"school": 9, "college": 13, "doctor": 16}
DAYS = {"lower": "2020-01-01", "upper": "2021-12-31", "resolution": "D"}
COLUMNS = [
    CategoricalColumn("education", categories=list(GRADES)),
    NumericColumn("grade", lower=1, upper=16, integer=True),
    DatetimeColumn("admission", **DAYS),
    DatetimeColumn("discharge", missing=True, **DAYS),
    NumericColumn("age", lower=0, upper=99, integer=True),
    BooleanColumn("married"),
    NumericColumn("rent", lower=0, upper=900.0),
    NumericColumn("food", lower=0, upper=500.0),
    NumericColumn("spent", lower=0, upper=1200.0),
    NumericColumn("yes", lower=0, upper=100, integer=True),
    NumericColumn("no", lower=0, upper=100, integer=True),
    NumericColumn("perhaps", lower=0, upper=60, integer=True),
    CategoricalColumn("town", categories=["Bonn", "Graz", "Linz"]),
    CategoricalColumn("country", categories=["AT", "DE"], ordered=True),
]
RULES = [
    Implies("education", "grade", GRADES),
    LessEqual("admission", "discharge", largest=60),
    Forbidden({"age": (None, 15), "married": True}),
    Forbidden({"education": ["college", "doctor"], "age": (0, 17)}),
    SumTo(("rent", "food"), "spent"),
    SumTo(("yes", "no", "perhaps"), 100),
    Implies("town", "country"),
    Pattern("patient_id", r"P\d{4}-[XY]", unique=True),
    Pattern("code", r"[A-C]-\d{3}|\d{2}"),
]
SCHEMA = TableSchema(COLUMNS, excluded=["patient_id"], rules=RULES)


def people(n=3000, seed=0, wrong=0.05):
    """Rows that break every rule now and then."""
    rng = np.random.default_rng(seed)
    wrong = rng.random((8, n)) < wrong
    education = rng.choice(list(GRADES), n, p=[0.5, 0.3, 0.2])
    days = rng.integers(0, 730, n)
    ends = np.clip(days + rng.geometric(0.1, n) - 1 - 300 * wrong[0], 0, 730)
    age = rng.integers(0, 100, n)
    rent, food = rng.gamma(3, 100, n), rng.gamma(3, 40, n)
    yes = rng.binomial(100, 0.4, n)
    no = rng.binomial(100 - yes, 0.6)
    town = rng.choice(["Bonn", "Graz", "Linz"], n, p=[0.5, 0.3, 0.2])
    start = pd.Timestamp("2020-01-01")
    frame = pd.DataFrame(
        {
            "patient_id": [f"private {i}" for i in range(n)],
            "education": np.where((age < 18) & ~wrong[1], "school", education),
            "grade": 0,
            "admission": start + pd.to_timedelta(days, "D"),
            "discharge": start + pd.to_timedelta(ends, "D"),
            "age": age,
            "married": (rng.random(n) < 0.4) & ((age > 15) | wrong[2]),
            "rent": rent,
            "food": food,
            "spent": rent + food + 50 * wrong[3],
            "yes": yes,
            "no": no,
            "perhaps": 100 - yes - no + 7 * wrong[4],
            "town": town,
            "country": np.where((town == "Bonn") ^ wrong[5], "DE", "AT"),
        }
    )
    frame["grade"] = np.where(wrong[6], 1, frame["education"].map(GRADES))
    frame.loc[wrong[7], "discharge"] = pd.NaT
    return frame


def fit(frame, schema=SCHEMA, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        options = {"epsilon": 3.0, "n_particles": 5000, "random_state": 0} | options
        return DPTableSynthesizer(schema, **options).fit(frame)


@pytest.fixture(scope="module")
def fitted():
    return fit(people(), target="discharge")


def broken(frame):
    """How many rows break each of `RULES`."""
    f = frame
    grades = f["education"].map(GRADES)
    stay = f["discharge"] - f["admission"]
    sums = f["yes"] + f["no"] + f["perhaps"]
    found = {
        "implies": grades != f["grade"],
        "less or equal": (f["discharge"] < f["admission"]) | (stay > pd.Timedelta(60, "D")),
        "forbidden": (f["age"] <= 15) & f["married"].astype(bool),
        "forbidden ages": f["education"].isin(["college", "doctor"]) & (f["age"] <= 17),
        "sum": (f["rent"] + f["food"] - f["spent"]).abs() > 1e-9,
        "constant": (sums != 100) | ~f["perhaps"].between(0, 60),
        "bounds": ~f["spent"].between(0, 1200)
        | ~f["discharge"].le("2021-12-31").where(f["discharge"].notna(), True),
        "learned": f.groupby("town")["country"].transform("nunique") != 1,
        "unique": f["patient_id"].duplicated(),
        "patterns": ~f["patient_id"].str.fullmatch(r"P\d{4}-[XY]"),
        "alternatives": ~f["code"].str.fullmatch(r"[A-C]-\d{3}|\d{2}"),
    }
    return {name: int(wrong.sum()) for name, wrong in found.items() if wrong.any()}


CONDITIONS = {
    "none": None,
    "of a model column": {"education": "doctor"},
    "of what is implied": {"grade": (13, None)},
    "of what is learned": {"country": "AT"},
    "of a larger column": {"discharge": ("2020-06-01", "2020-06-30")},
    "missing": {"discharge": None},
    "of a sum": {"spent": (None, 200)},
    "of the rest of a constant": {"perhaps": (25, 30)},
    "near a forbidden cell": {"age": (10, 20), "married": True},
    "several": {"spent": (300, 700), "grade": 16, "admission": ("2021-01-01", None)},
}


QUICK = ("none", "of a larger column", "several")
CASES = [
    pytest.param(wanted, id=name, marks=[pytest.mark.slow] * (name not in QUICK))
    for name, wanted in CONDITIONS.items()
]


@pytest.mark.slow
@pytest.mark.parametrize("wanted", CASES)
def test_every_row_obeys_every_rule_and_condition(fitted, wanted):
    rows = fitted.sample(4000, conditions=wanted, random_state=1)
    assert list(rows.columns) == [*people(1).columns, "code"]
    assert broken(rows) == {}
    for name, value in (wanted or {}).items():
        if isinstance(value, tuple):
            low, high = value
            assert low is None or (rows[name] >= low).all()
            assert high is None or (rows[name] <= high).all()
        else:
            assert rows[name].isna().all() if value is None else (rows[name] == value).all()


@pytest.mark.slow
def test_rules_cost_no_utility(fitted):
    """What determines a column is counted as ever, and what it determines is exact."""
    rows, real = fitted.sample(20_000, random_state=2), people()
    learned = rows.drop_duplicates("town").set_index("town")["country"].to_dict()
    assert learned == {"Bonn": "DE", "Graz": "AT", "Linz": "AT"}
    stay, due = ((f["discharge"] - f["admission"]).dt.days for f in (rows, real))
    assert stay.mean() == pytest.approx(due[due >= 0].mean(), rel=0.15)
    assert rows["discharge"].isna().mean() == pytest.approx(0.05, abs=0.02)
    assert rows["married"].mean() == pytest.approx(real["married"].mean(), abs=0.03)
    assert "grade" not in fitted._rules.model.names


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"age": (5, 9), "married": True}, r"Forbidden\(values={'age'.*contradicts conditions"),
        ({"grade": 10}, r"Implies\(.*contradicts the condition on 'grade'"),
        pytest.param(
            {"grade": 9, "education": "doctor"},
            "condition on 'grade' with Implies.*contradict each",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"discharge": (None, "2020-02-01"), "admission": ("2020-03-01", None)},
            "condition on 'discharge' with LessEqual",
            marks=pytest.mark.slow,
        ),
        ({"yes": 90, "no": (50, None)}, r"rows of the model obeys SumTo\("),
        ({"patient_id": "P0000-X"}, "draws codes at random"),
        ({"shoe": 1}, "conditions names 'shoe'"),
    ],
)
def test_conditions_that_contradict_rules_are_refused_with_the_reason(fitted, wanted, why):
    with pytest.raises(ValueError, match=why):
        fitted.sample(10, conditions=wanted, random_state=0)


def test_codes_run_out(fitted):
    with pytest.raises(ValueError, match="20,000 codes, fewer than 20,001 rows"):
        fitted.sample(20_001, random_state=0)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (LessEqual("a", "b"), "“a” is at most “b”"),
        (LessEqual("a", "b", 30), "“a” is at most “b”, which is at most 30 more"),
        (Implies(("a", "b"), "c"), "“a” and “b” determine “c”"),
        (SumTo(("a", "b"), 1.0), "“a” and “b” add up to 1"),
        (Pattern("a", "[0-9]{4}", unique=True), "“a” has made-up codes, all different"),
        (
            Forbidden({"a": (None, 12), "b": ("x", None), "c": True}),
            "No row has “a” any to 12 with “b” x or missing with “c” True",
        ),
    ],
)
def test_a_rule_in_words(rule, told):
    assert rule.in_words == told


@pytest.mark.slow
def test_the_report_shows_that_rules_hold(fitted):
    report = fitted.quality_report(n_samples=2000, random_state=0)
    assert report.rules["broken"].tolist() == [0] * 7
    assert "discharge - admission" in report.columns.index
    assert "0 of 2,000" in report._repr_html_()
    given = fitted.quality_report(people(500), n_samples=500, random_state=0)
    assert given.rules["broken"].sum() == 0
    assert fitted.score(people(500)) > -0.2


def test_a_saved_synthesizer_keeps_its_rules(fitted, tmp_path):
    fitted.save(tmp_path / "s.safetensors")
    loaded = DPTableSynthesizer.load(tmp_path / "s.safetensors")
    assert loaded.schema_ == fitted.schema_
    assert loaded.schema_.rules[6].learned
    pd.testing.assert_frame_equal(
        loaded.sample(500, random_state=1), fitted.sample(500, random_state=1)
    )
    data = (tmp_path / "s.safetensors").read_bytes()
    for change, why in (
        (lambda rules: rules.pop(0), "do not fit its columns|does not hang"),
        (lambda rules: rules[1].update(largest=-1), "largest"),
        (lambda rules: rules[0]["table"].append(["school", 3]), "twice"),
        (lambda rules: rules.append({"kind": "pattern", "column": "x", "pattern": "a{999}"}), "64"),
    ):
        facts = facts_of(data)
        change(facts["schema"]["rules"])
        (tmp_path / "f").write_bytes(forged(data, facts))
        with pytest.raises(ValueError, match=why):
            DPTableSynthesizer.load(tmp_path / "f")


def test_bounds_categories_and_tables_that_are_open_are_found():
    frame = people(6000)[["admission", "discharge", "education", "grade", "rent", "food", "spent"]]
    frame["discharge"] = frame["discharge"].fillna(frame["admission"])
    rules = [
        LessEqual("admission", "discharge"),
        Implies("education", "grade"),
        SumTo(("rent", "food"), "spent"),
        Forbidden({"education": ["doctor", "never seen"], "rent": (-9.0, 1e9)}),
    ]
    columns = [c for c in TableSchema.from_dtypes(frame) if c.name != "grade"]
    columns.append(NumericColumn("grade", lower=1, upper=16, integer=True))
    schema = TableSchema([c.replace(missing=False) for c in columns], rules=rules)
    synthesizer = fit(frame, schema, epsilon=20.0)
    assert synthesizer.schema_.is_resolved
    assert RowMap(synthesizer.schema_).model.names == tuple(
        grid.column.name for grid in synthesizer._grids
    )
    assert [grid.column for grid in synthesizer._grids] == list(RowMap(synthesizer.schema_).model)
    rows = synthesizer.sample(3000, random_state=0)
    assert (rows["admission"] <= rows["discharge"]).all()
    assert (rows["education"] != "doctor").all()
    np.testing.assert_allclose(rows["rent"] + rows["food"], rows["spent"])
    assert (rows["education"].map(GRADES) == rows["grade"]).mean() > 0.99


@pytest.mark.slow
def test_tables_of_polars():
    rows = fit(as_polars(people(400))).sample(200, random_state=0)
    plain = pd.DataFrame(rows.to_dict(as_series=False))
    assert rows.columns == [*people(1).columns, "code"]
    assert broken(plain) == {}


# --- privacy --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("few_synthetic_rows")
def test_rows_that_break_rules_are_not_told_of():
    """Neither an error, a warning nor the statement says whether, or how many, there are."""
    frame, good = people(400), people(400, wrong=0.0)
    rows = RowMap(SCHEMA.bind(frame))
    for table, n_broken in ((frame, 5), (good, 0)):
        faults = rows.faults(rows.schema.read(Table.of(table)))
        assert sum(wrong.any() for wrong in faults.values()) == n_broken
    with warnings.catch_warnings(record=True) as first:
        warnings.simplefilter("always")
        one = DPTableSynthesizer(SCHEMA, n_particles=300).fit(frame)
    with warnings.catch_warnings(record=True) as second:
        warnings.simplefilter("always")
        other = DPTableSynthesizer(SCHEMA, n_particles=300).fit(good)
    assert [str(w.message) for w in first] == [str(w.message) for w in second]
    assert not any("rule" in str(w.message) for w in first)
    assert one.privacy_spent_.event == other.privacy_spent_.event
    assert any("rules between columns" in text for text in one.privacy_spent_.assumptions)


EXTREMES = {
    "doubles": ("float64", [-1.7e308, 0.0, 1.7e308]),
    "short numbers": ("float32", [-3e38, 0.0, 3e38]),
    "integers": ("int64", [-(2**63), 0, 2**63 - 1]),
    "short integers": ("Int8", [-128, None, 127]),
    "times": ("datetime64[ns]", ["1678-01-01", None, "2261-12-31"]),
    "durations": ("timedelta64[s]", ["-99999 days", None, "99999 days"]),
}


@pytest.mark.parametrize(("dtype", "values"), EXTREMES.values(), ids=EXTREMES)
def test_no_private_value_is_too_large(dtype, values):
    """Neither errors nor warnings: they would tell of it."""
    rows = pd.DataFrame([(a, b, c) for a in values for b in values for c in values])
    rows.columns = list("abc")
    frame = rows.astype(dtype)
    rules = [LessEqual("a", "b"), SumTo(("b", "a"), "c")]
    rules = rules if frame["a"].dtype.kind not in "mM" else [rules[0], LessEqual("b", "c")]
    schema = TableSchema.from_dtypes(frame)
    low = {"Int8": -128, "datetime64[ns]": "1700-01-01", "timedelta64[s]": "-9 days"}.get(dtype)
    columns = [column.replace(lower=low, missing=low is not None) for column in schema]
    for schema in (TableSchema(columns, rules=rules), TableSchema(columns, rules=rules[1:])):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = RowMap(schema).to_model(schema.read(Table.of(frame)))
        assert not told
        for column in RowMap(schema).model:
            numbers = column.numbers(found[column.name])
            assert (np.isfinite(numbers) | np.isnan(numbers)).all()


# --- random rules ---------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "d"]


@st.composite
def schemas(draw):
    """A schema of four numbers or four dates, two categories, and some rules that fit together."""
    kind = draw(st.sampled_from(["integers", "floats", "dates", "durations"]))
    columns = []
    for name in NAMES:
        low = draw(st.integers(0, 20))
        high = low + draw(st.integers(1, 30))
        missing = draw(st.booleans())
        if kind == "dates":
            ends = [str(np.datetime64("2020-03-20") + end) for end in (low, high)]
            zone = "datetime64[us, Europe/Rome]"
            columns.append(
                DatetimeColumn(
                    name, lower=ends[0], upper=ends[1], resolution="D", missing=missing, dtype=zone
                )
            )
        elif kind == "durations":
            columns.append(
                TimedeltaColumn(
                    name, lower=f"{low} h", upper=f"{high} h", resolution="h", missing=missing
                )
            )
        else:
            whole = kind == "integers"
            columns.append(
                NumericColumn(name, lower=low, upper=high, integer=whole, missing=missing)
            )
    letters = ["x", "y", "z"]
    columns.append(CategoricalColumn("k", categories=letters, missing=draw(st.booleans())))
    columns.append(CategoricalColumn("t", categories=[1, 2], missing=True))
    order = draw(st.permutations(NAMES))
    table = [[key, draw(st.sampled_from([1, 2, None]))] for key in letters]
    pool = [
        LessEqual(order[0], order[1]),
        LessEqual(order[1], order[2], largest=draw(st.integers(0, 9))),
        LessEqual(order[3], order[2]),
        SumTo(order[:2], order[2]),
        SumTo(order[:3], draw(st.integers(20, 80))),
        Implies("k", "t", table),
        Forbidden({"k": "x", "t": [draw(st.sampled_from([1, 2]))]}),
        Forbidden({"k": ["y"], order[3]: (None, columns[NAMES.index(order[3])].lower)}),
    ]
    rules = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4, unique_by=id))
    try:
        return TableSchema(columns, rules=rules)
    except ValueError:
        assume(False)


def drawn(schema, n, seed):
    """Rows of any values, wild ones among them, as numbers and categories are read."""
    rng = np.random.default_rng(seed)
    values = {}
    for column in schema:
        grid = column.grid()
        values[column.name] = grid.values(rng.integers(0, grid.size, n), rng)
        if column.on_scale:
            numbers = column.numbers(values[column.name])
            numbers += column.step * rng.integers(-9, 10, n) * (rng.random(n) < 0.2)
            values[column.name] = column.from_numbers(numbers)
    return values


def rows_of(rows, schema, values):
    """The columns of the model as numbers."""
    found = rows.to_model(values)
    assert tuple(found) == rows.model.names
    return np.column_stack([c.to_unit(found[c.name]) for c in rows.model])


@settings(max_examples=25, deadline=None)
@given(schema=schemas(), seed=st.integers(0, 999), row=st.integers(0, 29))
def test_a_row_is_mapped_by_itself_and_obeys_rules_afterwards(schema, seed, row):
    assert TableSchema.from_json(schema.to_json()) == schema
    rows = RowMap(schema)
    values, others = drawn(schema, 30, seed), drawn(schema, 30, seed + 1)
    one = {
        n: pd.concat([v.iloc[:row], others[n].iloc[[row]], v.iloc[row + 1 :]])
        for n, v in values.items()
    }
    one = {name: v.reset_index(drop=True) for name, v in one.items()}
    before, after = (rows_of(rows, schema, rows_) for rows_ in (values, one))
    np.testing.assert_array_equal(np.delete(after, row, 0), np.delete(before, row, 0))
    # What obeys all rules, between the bounds, comes back as it was.
    back = rows.from_model(rows.to_model(values))
    inside = np.all(
        [
            np.isnan(v := column.numbers(values[column.name]))
            | ((column.span[0] <= v) & (v <= column.span[1]))
            for column in schema
            if column.on_scale
        ],
        axis=0,
    )
    limited = [r for r in schema.rules if isinstance(r, LessEqual) and r.largest is not None]
    for rule in limited:
        steps = [schema[n].numbers(values[n]) / (schema[n].step or 1.0) for n in rule.names]
        inside &= ~(np.diff(steps, axis=0)[0] > rule.largest) & ~np.isnan(steps[0])
    for rule in schema.rules:
        if isinstance(rule, SumTo):  # a single missing value is lost
            inside &= ~schema[rule.made].read(values[rule.made]).missing
    obeys = inside & ~np.logical_or.reduce(list(rows.faults(values).values()))
    for column in schema:
        first, second = (column.to_unit(v[column.name])[obeys] for v in (values, back))
        np.testing.assert_allclose(second, first, atol=2e-6)  # sums are rounded


@settings(max_examples=25, deadline=None)
@given(schema=schemas(), seed=st.integers(0, 999))
def test_rows_of_any_model_obey_random_rules(schema, seed):
    rows = RowMap(schema)
    rng = np.random.default_rng(seed)

    def draw(n):
        grids = [column.grid() for column in rows.model]
        return {g.column.name: g.values(rng.integers(0, g.size, n), rng) for g in grids}

    try:
        found = rows.sample(200, draw, {}, rng)
    except ValueError as error:
        assume("contradict each other" not in str(error))
        raise
    frame = pd.DataFrame(found)
    assert len(frame) == 200
    for rule in schema.rules:
        parts = [frame[name] for name in rule.names]
        if isinstance(rule, LessEqual):
            assert not (parts[0] > parts[1]).any()
        elif isinstance(rule, SumTo):
            total = parts.pop() if isinstance(rule.total, str) else rule.total
            assert not ((sum(p.astype(float) for p in parts) - total).abs() > 1e-6).any()
        elif isinstance(rule, Implies):
            due = frame["k"].map(dict(rule.table)).astype(float)
            assert due.fillna(-1).equals(frame["t"].astype(float).fillna(-1))
    for column in schema:
        if column.on_scale:
            numbers = column.numbers(found[column.name])
            assert not ((numbers < column.span[0]) | (numbers > column.span[1])).any()
    assert RowMap(schema).broken(Table.of(frame))["broken"].sum() == 0


# --- what is refused ------------------------------------------------------------------------------

A, B = COLUMNS[4].replace(name="a"), COLUMNS[4].replace(name="b", lower=10, upper=20)
LATE = DatetimeColumn("late", lower="2030-01-01", upper="2031-01-01", resolution="D")
WRONG = {
    "no such column": ([Implies("education", "shoe")], "names 'shoe'"),
    "two makers": ([SumTo(("a", "b"), 30), LessEqual("a", "b")], "both determine 'b'"),
    "circle": ([LessEqual("a", "b"), LessEqual("b", "a")], "LessEqual.* and .*LessEqual.*circle"),
    "bounds": ([LessEqual("late", "discharge")], "contradicts bounds: '2030-01-01' is above"),
    "kinds": ([LessEqual("a", "rent")], "needs numbers or times of one resolution"),
    "sums": ([SumTo(("a", "b"), 500)], "contradicts the bounds of 'b': it gives 401"),
    "halves": ([SumTo(("a", "b"), 20.5)], "gives no integers"),
    "texts": ([SumTo(("a", "town"), 3)], "needs columns of numbers"),
    "gaps": ([Implies("education", "grade", {"school": 9})], "must list every combination"),
    "unknown source": ([Implies("town", "grade", {"Rome": 9})], "holds a value that Cat"),
    "unknown target": ([Implies("town", "a", {"Bonn": 100})], "holds a value that Num"),
    "halves in a table": ([Implies("town", "a", {"Bonn": 9.5})], "holds a value that Num"),
    "twice": ([Implies("town", "grade", [["Bonn", 1], ["Bonn", 2]])], "lists a combination"),
    "wrong category": ([Forbidden({"town": ["Bonn", "Rome"]})], "'town' cannot be 'Rome'"),
    "beyond bounds": ([Forbidden({"a": (200, 300)})], "No value of 'a' lies in"),
    "nothing left": ([Forbidden({"a": (None, None)})], "leaves no value of 'a'"),
    "described": ([Pattern("town", "x")], "'town' is in the schema twice"),
    "no rules": (["a < b"], "rules must hold instances of Implies"),
}


@pytest.mark.parametrize(("rules", "why"), WRONG.values(), ids=WRONG)
def test_rules_that_contradict_columns_or_each_other_are_refused(rules, why):
    with pytest.raises(ValueError, match=why):
        TableSchema([*COLUMNS, A, B, LATE], rules=rules)


@pytest.mark.parametrize("target", ["grade", "spent"])
def test_a_target_that_is_not_modelled_is_refused(target):
    with pytest.raises(ValueError, match=f"determines target='{target}'"):
        fit(people(50), target=target)


def test_schemas_keep_their_rules():
    schema = TableSchema.from_json(SCHEMA.to_json())
    assert schema == SCHEMA
    assert schema.bind(people(3)).rules == SCHEMA.rules
    assert schema.replace(A.replace(name="age")).rules == SCHEMA.rules
    assert schema.confirm().rules == SCHEMA.rules
    with pytest.raises(ValueError, match="names 'rent', which the schema does not"):
        schema.exclude("rent")
    assert set(schema.excluded) == {"patient_id", "code"}
    for rules, why in (
        ({}, "must be a list"),
        ([3], "Every rule of a schema must be an object"),
        ([{"kind": "always"}], "A rule has the unknown kind 'always'"),
        ([{"kind": "less_equal", "smaller": "a"}], "needs the field 'larger'"),
        ([{"kind": "pattern", "column": "x", "pattern": "a", "_alternatives": 1}], "no field"),
        ([{"kind": "sum_to", "columns": ["a", "b"], "total": 10**400}], "cannot hold"),
        ([{"kind": "implies", "columns": "a", "target": "b", "table": [1]}], "table must have"),
    ):
        content = json.loads(SCHEMA.to_json()) | {"rules": rules}
        with pytest.raises(ValueError, match=why):
            TableSchema.from_json(json.dumps(content))


# --- patterns -------------------------------------------------------------------------------------

PARTS = st.sampled_from(["A", r"\d", "[A-Z0-9_]", r"\-", "[x-z]{3}", r"\d{2}", " ", r"\."])


@settings(max_examples=50, deadline=None)
@given(
    texts=st.lists(st.lists(PARTS, min_size=1, max_size=5).map("".join), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
@example(texts=["[A-Z]{62}"], seed=0)
def test_codes_match_their_pattern(texts, seed):
    pattern = "|".join(texts)
    codes = Pattern("c", pattern).draw(50, np.random.default_rng(seed))
    assert codes.str.fullmatch(pattern).all()
    if len(texts) == 1:
        many = Pattern("c", texts[0] + r"\d{2}", unique=True)
        assert many.draw(100, np.random.default_rng(seed)).nunique() == 100


def test_every_code_is_equally_likely():
    codes = Pattern("c", "[ab][0-4]").draw(20_000, np.random.default_rng(0))
    assert codes.value_counts().between(1_800, 2_200).all()
    numbers = Pattern("c", r"[1-9]\d{3}", unique=True, dtype="int64")
    numbers = numbers.draw(9000, np.random.default_rng(0))
    assert sorted(numbers) == list(range(1000, 10_000))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"pattern": "a+"}, "cannot be read at character 1"),
        ({"pattern": "(a|b)"}, "cannot be read at character 0"),
        ({"pattern": "[z-a]"}, "a set that is empty"),
        ({"pattern": ""}, "an alternative or a set that is empty"),
        ({"pattern": "a||b"}, "an alternative or a set that is empty"),
        ({"pattern": "a{65}"}, "more than 64"),
        ({"pattern": "|".join("a" * 70)}, "more than 64"),
        ({"pattern": "[\u00e0-\uffff]"}, "ASCII"),
        ({"pattern": "a|b", "unique": True}, "cannot be unique"),
        ({"pattern": "a", "dtype": "int64"}, "needs the data type"),
        ({"pattern": r"\d{19}", "dtype": "int64"}, "needs the data type"),
        ({"pattern": 7}, "must be texts"),
    ],
)
def test_patterns_that_cannot_be_drawn_from_are_refused(options, why):
    with pytest.raises(ValueError, match=why):
        Pattern("c", **options)
