"""Noisy marginals as tables: what their cells hold, and fits to tables of somebody else."""

import itertools

import numpy as np
import pandas as pd
import pytest

from skdpot import DPTableSynthesizer, PrivacyBudget, TableSchema
from skdpot.metrics import marginal_total_variation
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TimedeltaColumn,
)
from skdpot.privacy.spent import total_spent
from skdpot.tables.marginal_tables import grid_within, labelled_parts, labels_of, plain_label
from tests.tables.table_cases import COLUMNS

pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")

N = 6000
SCHEMA = TableSchema(
    [
        NumericColumn("age", lower=0, upper=99, integer=True, missing=True),
        NumericColumn("amount", lower=0, upper=10**6, integer=True),
        NumericColumn("weight", lower=30.0, upper=150.0),
        CategoricalColumn("job", categories=[*"abcdefgh"], other="rest", missing=True),
        BooleanColumn("member"),
        DatetimeColumn("since", lower="2020-01-01", upper="2024-12-31", resolution="D"),
        TimedeltaColumn("stay", lower="0 h", upper="90 days", resolution="h"),
    ]
)
NAMES = list(SCHEMA.names)


def private_rows(n, seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    rare = rng.choice([*"abcdefgh"], n, p=[0.4, 0.3, 0.2, 0.06, 0.02, 0.01, 0.005, 0.005])
    table = pd.DataFrame(
        {
            "age": np.clip(40 + 15 * z + rng.normal(0, 8, n), 0, 99).round(),
            "amount": np.where(rng.random(n) < 0.3, 0, rng.lognormal(6 + 0.7 * z).round()),
            "weight": np.clip(rng.normal(70 + 5 * z, 10), 30, 150).round(1),
            "job": np.where(rng.random(n) < 0.7, rare, np.where(z > 0, "a", "b")),
            "member": z + rng.normal(size=n) > 0,
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta((rng.beta(2, 1 + np.exp(z)) * 1800).astype(int), "D"),
            "stay": pd.to_timedelta(rng.gamma(2, 20, n).astype(int), "h"),
        }
    )
    table.loc[rng.random(n) < 0.1, "age"] = np.nan
    table.loc[rng.random(n) < 0.05, "job"] = None
    return table


TABLE = private_rows(N, 0)


@pytest.fixture(scope="module", params=[np.inf, 2.0], ids=["no noise", "epsilon 2"])
def fitted(request):
    return DPTableSynthesizer(
        SCHEMA, epsilon=request.param, delta=1e-6, target="member", random_state=0
    ).fit(TABLE)


def holds(values, label):
    if isinstance(label, pd.Interval):
        return values.between(label.left, label.right)
    if isinstance(label, tuple):
        return values.isin(label)
    return values.isna() if pd.isna(label) else values == label


def members(values, labels):
    """Return the place of the label that each value has: a single one before an interval."""
    found = np.full(len(values), -1)
    wide = [isinstance(label, pd.Interval) and label.left < label.right for label in labels]
    for place in sorted(range(len(labels)), key=lambda place: not wide[place]):
        found[holds(values, labels.iloc[place]).fillna(False)] = place
    return found


def test_cells_hold_what_their_labels_say(fitted):
    """Every row is in one cell of each table; without noise the counts are those of the rows."""
    kinds = set()
    for table in fitted.marginals_:
        names = [name for name in NAMES if name in table]
        assert list(table) == [*names, "count", "standard_error", "n_releases"]
        labels = [table[name].drop_duplicates() for name in names]
        cells = np.stack([members(TABLE[n], one) for n, one in zip(names, labels, strict=True)])
        assert (cells >= 0).all()
        shape = tuple(map(len, labels))
        assert len(table) == np.prod(shape)
        counts = np.bincount(np.ravel_multi_index(tuple(cells), shape), minlength=len(table))
        off = table["count"] - counts
        if np.isinf(fitted.epsilon):
            np.testing.assert_allclose(off, 0.0, atol=1e-9)
        else:
            assert (off / table["standard_error"]).abs().max() < 6
            assert (off**2).mean() < 3 * (table["standard_error"] ** 2).mean()
        kinds |= {type(label) for one in labels for label in one}
    assert {pd.Interval, str, bool} <= kinds
    assert np.isinf(fitted.epsilon) or tuple in kinds  # rare categories are counted together


@pytest.mark.slow
def test_a_fit_to_the_marginals_of_a_fit_is_about_as_good(fitted):
    again = DPTableSynthesizer(SCHEMA, target="member", random_state=0)
    again.fit_marginals(fitted.marginals_, N)
    drawn = [one.sample(20_000, random_state=1) for one in (fitted, again)]
    for n_way in (1, 2, 3):
        first, second = (marginal_total_variation(TABLE, rows, n_way=n_way) for rows in drawn)
        assert second < 1.15 * first + 0.002


@pytest.mark.slow
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("joined", [1, 3, pytest.param(50, marks=pytest.mark.slow)])
def test_labels_are_read_as_the_cells_that_they_name(name, joined):
    column = COLUMNS[name]
    grid = column.grid()
    parts = np.arange(grid.n_cells) // joined
    parts = np.append(parts, parts.max() + 1) if column.missing else parts
    labels = [plain_label(label) for label in labels_of(grid, parts).astype(object)]
    found = grid_within(column, labels)
    again = labelled_parts(found, labels, "table")
    if grid.is_final:
        np.testing.assert_array_equal(again, parts)
    assert [str(plain_label(one)) for one in labels_of(found, again)] == [*map(str, labels)]


# --------------------------------------------------------------- tables of somebody else

OFFICE = TableSchema(
    [
        NumericColumn("age", lower=0, upper=99, integer=True),
        NumericColumn("income", lower=0.0, upper=1e5),
        CategoricalColumn("region", categories=["N", "E", "S", "W"], missing=True),
        *(CategoricalColumn(name, categories=["no", "yes"]) for name in "pqr"),
    ]
)
AGES = [pd.Interval(0, 18, closed="left"), pd.Interval(18, 65, closed="left"), (65, 99)]
AGES[2] = pd.Interval(65, 99, closed="both")
INCOMES = [0.0, pd.Interval(0, 2e4), pd.Interval(2e4, 1e5)]
REGIONS = [["N", "E"], "S", "W", None]


def office_table(sigma, shares, /, **labels):
    """Return noisy counts of 10,000 rows with such shares."""
    noise = np.random.default_rng(len(labels)).normal(0, sigma, np.size(shares))
    cells = list(itertools.product(*labels.values()))
    frame = pd.DataFrame(cells, columns=list(labels)).astype(object)
    return frame.assign(count=10_000 * np.ravel(shares) + noise, standard_error=sigma)


XOR = np.array([[[(p + q + r + 1) % 2 / 4 for r in (0, 1)] for q in (0, 1)] for p in (0, 1)])
YES = ["no", "yes"]
GIVEN = [
    office_table(9, np.array([[2, 1, 1], [1, 5, 6], [2, 1, 1]]) / 20, age=AGES, income=INCOMES),
    office_table(9, [0.4, 0.3, 0.2, 0.1], region=REGIONS),
    office_table(9, XOR, p=YES, q=YES, r=YES),
]


@pytest.fixture(scope="module")
def from_office():
    budget = PrivacyBudget(1.0, 1e-6)
    synthesizer = DPTableSynthesizer(OFFICE, target="r", budget=budget, random_state=0)
    return synthesizer.fit_marginals(GIVEN, 10_000)


def test_tables_of_an_office_are_reproduced(from_office):
    rows = from_office.sample(20_000, random_state=0)
    assert abs((rows["income"] == 0).mean() - 0.25) < 0.01
    assert abs((rows["age"] < 18).mean() - 0.2) < 0.01
    middle = rows["age"].between(18, 64)
    assert abs((middle & (rows["income"] > 2e4)).mean() - 0.3) < 0.01
    assert abs(rows["region"].isin(["N", "E"]).mean() - 0.4) < 0.01
    assert abs(rows["region"].isna().mean() - 0.1) < 0.01
    ones = rows[["p", "q", "r"]].eq("yes").sum(axis=1)
    assert (ones % 2 == 0).mean() > 0.97  # of three columns, no two of which depend on each other
    assert rows["age"].between(0, 99).all()


def test_nothing_is_spent_on_given_tables(from_office, tmp_path):
    assert from_office.privacy_spent_ is None
    assert from_office.releases_ == ()
    assert from_office.budget.epsilon_spent() == 0.0
    with pytest.raises(TypeError, match="spent nothing"):
        total_spent(from_office)
    report = from_office.quality_report()
    assert report.summary["epsilon"] is None
    assert "Nothing was spent here" in report._repr_html_()
    with pytest.raises(ValueError, match="Save the tables that were passed"):
        from_office.save(tmp_path / "fit.safetensors")
    stated = DPTableSynthesizer(OFFICE.exclude(*"pqr")).fit(from_office.sample(100)).privacy_spent_
    again = DPTableSynthesizer(OFFICE).fit_marginals(GIVEN, 10_000, statement=stated)
    assert again.privacy_spent_ is stated


def changed(table, **columns):
    return [GIVEN[0], GIVEN[1].assign(**columns) if table else GIVEN[1], GIVEN[2]]


REGION = GIVEN[1]
CASES = [
    (GIVEN[:2], 10_000, "no table with the column 'p'"),
    ([*GIVEN, REGION.to_numpy()], 10_000, r"marginals\[3\] must be a DataFrame, got ndarray"),
    ([*GIVEN, REGION.drop(columns="count")], 10_000, "'count' and 'standard_error'"),
    ([*GIVEN, REGION.assign(count=np.nan)], 10_000, "finite counts"),
    ([*GIVEN, REGION.assign(standard_error=-1.0)], 10_000, "standard errors of at least 0"),
    ([*GIVEN, GIVEN[0].iloc[1:]], 10_000, "one row for each of the 3 × 3 combinations"),
    ([*GIVEN, pd.concat([REGION, REGION])], 10_000, "it has 8 rows"),
    ([*GIVEN, REGION.assign(region=[["N"], "S", "W", None])], 10_000, "must be all that"),
    ([*GIVEN, REGION.assign(region=[["N", "S"], "S", "W", None])], 10_000, "must be all that"),
    ([*GIVEN, REGION.assign(region=["N", "S", "X", None])], 10_000, "cannot be 'X'"),
    (GIVEN, 20_000, "add up to .*, not to n_samples"),
    (GIVEN, 0, "n_samples"),
]


@pytest.mark.parametrize(("tables", "n_samples", "told"), CASES)
def test_what_is_refused_changes_nothing(from_office, tables, n_samples, told):
    before = dict(vars(from_office))
    with pytest.raises((TypeError, ValueError), match=told):
        from_office.fit_marginals(tables, n_samples)
    assert vars(from_office) == before


def test_an_open_schema_is_refused():
    for schema in (None, TableSchema([NumericColumn("age", lower=0)])):
        with pytest.raises(ValueError, match="states all bounds and categories"):
            DPTableSynthesizer(schema).fit_marginals(GIVEN, 10_000)
