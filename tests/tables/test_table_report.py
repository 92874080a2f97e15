"""Reports on synthetic tables: right figures, honest about noise and about whose rows they show."""

import copy
import json
import math
import re
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from skdpot import DPTableSynthesizer, PrivacyBudget, TableSchema
from skdpot.exceptions import ReliabilityWarning
from skdpot.metrics import MarginalsDisplay
from skdpot.preprocessing import CategoricalColumn, DatetimeColumn, NumericColumn
from skdpot.tables.bins import project_to_total
from skdpot.tables.contingency import Marginal, NoisyMarginal
from skdpot.tables.marginals import marginal_total_variations, normalized_wasserstein_distance
from skdpot.tables.report_figures import compare_counts, figures_of_counts
from tests.tables.table_models import SCHEMA, fit, fitted, people

GROWN = people(20_000, seed=5)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def grown():
    """A synthesizer with enough rows to know something."""
    return fit(GROWN, schema=SCHEMA, target="smokes", epsilon=1.0, n_particles=5000)


@pytest.fixture(scope="module")
def report(grown):
    return grown.quality_report(random_state=0)


@pytest.fixture(scope="module")
def beside(grown):
    return grown.quality_report(GROWN, random_state=0)


@pytest.fixture(scope="module")
def page(report):
    return report.to_html()


def drawing(synthesizer, rows):
    """Return a synthesizer that draws the given rows."""
    changed = copy.copy(synthesizer)
    changed._sampled = lambda n_samples, conditions, random_state: rows
    return changed


# ------------------------------------------------------------------- against own releases


def test_distances_are_those_to_the_released_counts(grown):
    rows = grown.sample(5000, random_state=1)
    found = drawing(grown, rows).quality_report(n_samples=5000, random_state=0)
    cells = np.stack(
        [g.codes(SCHEMA[g.column.name].read(rows[g.column.name])) for g in grown._grids], axis=1
    )
    city = grown.model_.columns[2]
    noisy = project_to_total(city.counts, 20_000) / 20_000
    due = np.abs(noisy - np.bincount(cells[:, 2], minlength=5) / 5000).sum() / 2
    assert found.columns.loc["city", "total_variation"] == pytest.approx(due, abs=1e-12)
    bins = grown.model_.bins
    released = [noisy for noisy in grown.model_.marginals if len(noisy.marginal.columns) == 2]
    assert len(found.pairs) == len(released) >= 5
    for noisy, (name, row) in zip(released, found.pairs.iterrows(), strict=True):
        first, second = noisy.marginal.columns
        assert name == (SCHEMA.names[first], SCHEMA.names[second])
        groups = noisy.marginal.groups
        table = np.zeros(noisy.marginal.shape)
        places = (
            groups[0][bins[first].bins[cells[:, first]]],
            groups[1][bins[second].bins[cells[:, second]]],
        )
        np.add.at(table, places, 1 / 5000)
        counts = project_to_total(noisy.counts, 20_000) / 20_000
        assert row["cells"] == table.size
        assert row["total_variation"] == pytest.approx(np.abs(counts - table.ravel()).sum() / 2)


@pytest.mark.slow
def test_what_noise_explains_is_what_noise_does():
    """Noise is drawn 400 times: the mean is right to 5 %, and the limit is never exceeded."""
    rng = np.random.default_rng(0)
    truth, n_rows, sigma = np.array([0.6, 0.2, 0.1, 0.07, 0.03, 0.0]), 3000, 40.0
    marginal = Marginal((0,), (np.arange(6),))
    found, expected = [], []
    for _ in range(400):
        noisy = NoisyMarginal(marginal, n_rows * truth + sigma * rng.standard_normal(6), sigma)
        sample = rng.multinomial(10_000, truth) / 10_000
        figures = compare_counts(noisy, sample, np.arange(6), n_rows, 10_000, rng)
        assert not figures["beyond_noise"]
        found.append(figures["total_variation"])
        expected.append(figures["expected"])
    assert np.mean(found) == pytest.approx(np.mean(expected), rel=0.05)


def test_a_misfit_beyond_the_noise_is_told(grown, report):
    assert not report.columns["beyond_noise"].any()
    assert not report.pairs["beyond_noise"].any()
    rows = grown.sample(20_000, random_state=0)
    rng = np.random.default_rng(0)
    wrong = rows.assign(size=rows["size"].to_numpy()[rng.permutation(20_000)])
    wrong["city"] = np.where(rng.random(20_000) < 0.2, "Linz", wrong["city"])
    found = drawing(grown, wrong).quality_report(n_samples=20_000, random_state=0)
    assert found.columns["beyond_noise"].to_dict() == {
        name: name == "city" for name in SCHEMA.names
    }
    assert found.pairs["beyond_noise"].any()
    assert all("city" in pair for pair in found.pairs.index[found.pairs["beyond_noise"]])


def test_tables_and_summary_are_complete(report, beside):
    assert report.columns.index.tolist() == list(SCHEMA.names)
    for frame in (report.columns, report.pairs):
        figures = frame[["total_variation", "expected", "limit"]]
        assert ((figures >= 0) & (figures <= 1)).all(axis=None)
        assert (frame["expected"] <= frame["limit"]).all()
        due = frame["total_variation"] > frame["limit"] + 1e-12
        assert (frame["beyond_noise"] == due).all()
    found, other = report.summary, beside.summary
    for one in (found, other):
        assert json.loads(json.dumps(one, allow_nan=False)) == one
    assert found["columns_total_variation"] == report.columns["total_variation"].mean()
    assert found["pairs_expected"] == report.pairs["expected"].mean()
    assert (found["columns"], found["pairs"]) == (len(SCHEMA), len(report.pairs))
    assert (found["private"], other["private"]) == (True, False)
    assert (found["epsilon"], found["rows"], found["synthetic_rows"]) == (1.0, 20_000, 20_000)
    assert found["normalized_wasserstein"] is None
    assert other["normalized_wasserstein"] < 0.05
    matrix = report.pair_matrix()
    np.testing.assert_array_equal(np.diag(matrix), report.columns["total_variation"])
    pd.testing.assert_frame_equal(matrix, matrix.T)
    finest = report.pairs.sort_values("cells").groupby(level=[0, 1])["total_variation"].last()
    for (first, second), distance in finest.items():
        assert matrix.loc[first, second] == distance
    assert matrix.notna().sum(axis=None) == len(SCHEMA) + 2 * len(finest)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["array", "one column", "no noise"])
def test_every_kind_of_table_has_a_page(name):
    report = fitted(name).quality_report(n_samples=200, random_state=0)
    assert report.to_html().startswith("<!DOCTYPE html>")
    assert (len(report.pairs) == 0) == (len(report.columns) == 1)
    assert f"{len(report.columns)} columns" in repr(report)


# ------------------------------------------------------------------- beside public rows


def test_distances_to_rows_are_those_of_the_metrics(grown):
    rows = grown.sample(3000, random_state=1)
    found = drawing(grown, rows).quality_report(GROWN, n_samples=3000, random_state=0)
    real, synthetic = (
        frame.assign(
            **{name: frame[name].astype(str) for name in ("city", "size", "smokes")},
            stay=frame["stay"].dt.total_seconds(),
        )
        for frame in (GROWN, rows)
    )
    for n_way, frame in ((1, found.columns), (2, found.pairs)):
        due = marginal_total_variations(real, synthetic, n_way=n_way)
        assert frame.index.tolist() == due.index.tolist()
        np.testing.assert_allclose(frame["total_variation"], due, atol=1e-12)
    distances = normalized_wasserstein_distance(real, synthetic)
    assert set(distances.index) == {"age", "income", "seen", "stay"}
    for name, distance in distances.items():
        assert found.columns.loc[name, "normalized_wasserstein"] == pytest.approx(distance)
    assert found.columns["normalized_wasserstein"].isna().sum() == 3
    assert len(found.pairs) == 21


@pytest.mark.slow
def test_every_rendering_says_whose_rows_it_shows(report, page, beside):
    words = "as confidential as they are"
    assert words not in page
    assert words in beside.cautions[0]
    for rendering in (beside._repr_html_(), beside.to_html()):
        assert words in rendering
    for text in (repr(beside), beside.summary["compared_with"], *beside.plot().labels[:1]):
        assert "rows that were given" in text
    assert report.compared_with == "noisy counts that the synthesizer released"


def test_wrong_rows_are_refused(grown):
    with pytest.raises(ValueError, match="feature names should match"):
        grown.quality_report(GROWN[["age"]])
    with pytest.raises(ValueError, match="n_samples == 0, must be >= 1"):
        grown.quality_report(n_samples=0)
    with pytest.raises(NotFittedError):
        DPTableSynthesizer().quality_report()


# ------------------------------------------------------------------- warnings


def cautions(frame, schema, **parameters):
    return " | ".join(fit(frame, schema=schema, **parameters).quality_report(n_samples=50).cautions)


def piles(values, column):
    return pd.DataFrame({column.name: values}), TableSchema([column]), {}


NORMAL = np.random.default_rng(0).normal(50, 15, 5000)
UNIFORM = np.random.default_rng(0).integers(0, 300, 5000)
RARE = (
    pd.DataFrame({"x": ["common"] * 600 + ["usual"] * 300 + ["rare"] * 2 + ["seldom"]}),
    TableSchema([CategoricalColumn("x", categories=["rare", "common", "usual", "seldom"])]),
)
GUESS = TableSchema.guess(people()[["age", "city"]])
# A table, its schema and parameters; what is told of it, and what is not.
TOLD = {
    "much noise": (
        (people(60), SCHEMA, {"epsilon": 0.05}),
        "Nothing stands out of the noise in 'age', 'income', 'city', 'size'", "apart, with",
    ),
    "little noise": ((GROWN, SCHEMA, {"epsilon": 5.0}), "", "stands out"),
    "rare categories": (
        (*RARE, {"epsilon": 1.0}), "'x': 2 of 4 categories .*'rare', 'seldom'", "'usual'"
    ),
    "no noise": (
        (*RARE, {"epsilon": math.inf}), "neither its rows nor this report are private", "too rare"
    ),
    "a guess": ((people(), GUESS, {}), "guessed from the values and never confirmed", "never seen"),
    "a seed": ((people(), GUESS.confirm(), {}), "fitted with a random_state", "guessed"),
    "neither": ((people(), GUESS.confirm(), {"random_state": None}), "", "random_state"),
    "numbers above": (
        piles(NORMAL, NumericColumn("x", lower=0, upper=65.5)),
        "About 1[4-7] % of the rows are at the upper bound of 'x', 65.5: larger", "lower bound",
    ),
    "numbers below": (
        piles(NORMAL, NumericColumn("x", lower=40, upper=150, integer=True)),
        "About 2[4-7] % of the rows are at the lower bound of 'x', 40: small", "upper bound",
    ),
    "days": (
        piles(
            pd.Timestamp("2024-01-01") + pd.to_timedelta(UNIFORM, "D"),
            DatetimeColumn("x", lower="2024-01-01", upper="2024-07-01", resolution="D"),
        ),
        "upper bound of 'x', 2024-07-01", "lower bound",
    ),
    "no pile": (piles(NORMAL, NumericColumn("x", lower=-40, upper=140)), "", "bound of"),
    "an even end": (piles(UNIFORM, NumericColumn("x", lower=1, upper=300)), "", "bound of"),
    # Most amounts are zero, and most marks the best one.
    "amounts": (
        piles(np.repeat([0, 700], [4500, 500]), NumericColumn("x", lower=0, upper=1000)),
        "", "bound of",
    ),
    "marks": (
        piles(np.repeat([1, 5], [500, 4500]), NumericColumn("x", lower=1, upper=5, integer=True)),
        "", "bound of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TOLD)
def test_what_a_reader_must_know_is_told_and_nothing_else(case):
    (frame, schema, parameters), told, untold = TOLD[case]
    found = cautions(frame[list(schema.names)], schema, **parameters)
    assert re.search(told, found)
    assert untold not in found


def test_a_table_that_is_too_small_is_told_before_the_charge():
    """Whatever the rows are: by the noise and their number alone."""
    budget = PrivacyBudget(1.0)
    synthesizer = DPTableSynthesizer(SCHEMA, epsilon=0.5, budget=budget)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ReliabilityWarning, match="too small for this epsilon: it has 300 rec"):
            synthesizer.fit(people(300))
        assert len(budget.history()) == 0
        warnings.filterwarnings("ignore", ".*noise hides")
        DPTableSynthesizer(SCHEMA, epsilon=5.0, n_particles=500).fit(people(1000))


# ------------------------------------------------------------------- means and quantiles


FIGURES = ["mean", "std", "quantile_99"]


def test_figures_of_rows_are_those_of_pandas(grown):
    rows = grown.sample(3000, random_state=1)
    found = drawing(grown, rows).quality_report(GROWN, n_samples=3000, random_state=0).columns
    numbers = found.loc[["age", "income"]]
    for prefix, table in (("", GROWN), ("synthetic_", rows)):
        values = table[["age", "income"]].astype(float)
        high = values.quantile(0.99, interpolation="higher")
        np.testing.assert_allclose(numbers[f"{prefix}mean"], values.mean())
        np.testing.assert_allclose(numbers[f"{prefix}std"], values.std(ddof=0))
        np.testing.assert_allclose(numbers[f"{prefix}quantile_99"], high, rtol=1e-3)
    assert found.loc["stay", "mean"] == pytest.approx(119.5 * 3600, rel=0.01)
    assert found.drop(index=["age", "income", "stay"])[FIGURES].isna().all(axis=None)
    assert "mean_noise" not in found.columns


def test_without_noise_counts_know_the_rows():
    frame = people()
    found = fitted("no noise").quality_report(n_samples=100).columns
    age = found.loc["age"]
    assert age["mean"] == pytest.approx(frame["age"].mean())
    assert age["std"] == pytest.approx(frame["age"].std(ddof=0))
    assert age["quantile_99"] == np.quantile(frame["age"], 0.99, method="inverted_cdf")
    assert age["mean_noise"] == 0.0
    assert found.loc["income", "mean"] == pytest.approx(frame["income"].mean(), rel=0.02)
    seconds = frame["stay"].dt.total_seconds()
    assert found.loc["stay", "mean"] == pytest.approx(seconds.mean())


def test_the_noise_of_a_mean_is_what_noise_does():
    """The mean of 400 draws is right to four of its standard deviations: no bias."""
    rng = np.random.default_rng(0)
    grid = NumericColumn("x", lower=0, upper=99, integer=True).grid()
    counts = np.where(np.arange(100) < 20, 1000.0, 0.0)
    marginal = Marginal((0,), (np.arange(100),))
    found = [
        figures_of_counts(
            grid, NoisyMarginal(marginal, counts + 30 * rng.standard_normal(100), 30.0)
        )
        for _ in range(400)
    ]
    means = np.array([figures["mean"] for figures in found])
    noise = np.mean([figures["mean_noise"] for figures in found])
    assert means.std() == pytest.approx(noise, rel=0.15)
    assert means.mean() == pytest.approx(9.5, abs=4 * noise / 20)
    hidden = figures_of_counts(grid, NoisyMarginal(marginal, np.ones(100), 100.0))
    assert all(math.isnan(figure) for figure in hidden.values())


# ------------------------------------------------------------------- the page and the picture


def test_the_page_needs_nothing_else_and_holds_the_statement(report, page, tmp_path):
    place = tmp_path / "report.html"
    assert report.to_html(place) == place.read_text(encoding="utf-8") == page
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=[\"'](?!data:)", page)
    assert "@import" not in page
    assert "http" not in re.sub(r"base64,[^\"]+", "", page)
    assert page.count("data:image/svg") == 2
    assert report.spent._repr_html_() in page
    assert report.schema._repr_html_() in page
    assert all(f">{name}</td>" in page for name in report.columns.index)


def test_names_are_escaped():
    name = "<b>&\"'"
    schema = TableSchema([CategoricalColumn(name, categories=["<i>", "b", "c", "d"])])
    frame = pd.DataFrame({name: ["b"] * 900 + ["<i>"]})
    page = fit(frame, schema=schema, epsilon=math.inf).quality_report(n_samples=50).to_html()
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;b&gt;" in page
    assert "This report uses counts that were released without noise. It is not private." in page


def test_a_wide_table_has_a_page_of_bounded_length(monkeypatch):
    monkeypatch.setattr("skdpot.tables.report.MOST_DRAWN", 4)
    monkeypatch.setattr("skdpot.tables.report._MOST_ROWS", 6)
    wide = pd.DataFrame({f"c{k}": np.random.default_rng(k).random(200) < 0.5 for k in range(10)})
    report = fit(wide, schema=TableSchema.from_dtypes(wide)).quality_report(n_samples=100)
    page = report.to_html()
    assert re.search(r"6 columns .*not drawn", page)
    assert "4 more columns" in page
    assert page.count("data:image/svg") == 1  # the map would be too fine to read


def test_the_plot_shows_noisy_counts_and_synthetic_rows(report):
    display = report.plot()
    assert isinstance(display, MarginalsDisplay)
    for marginal in report.marginals:
        assert marginal.real.sum() + marginal.real_missing == pytest.approx(1, abs=0.02)
    marginals = {marginal.name: marginal for marginal in report.marginals}
    assert marginals["income"].real_missing == pytest.approx(0.1, abs=0.02)
    assert marginals["income"].values[0] > 0.1  # without the empty end
    assert marginals["city"].values[0] == "Bonn"  # the frequent first
    assert marginals["size"].values.tolist() == ["S", "M", "L"]
    assert len(report.plot(pairs=False).axes_) == len(SCHEMA)
    row = report.columns.iloc[0]
    assert f"TV = {row['total_variation']:.3f}, by noise" in display.axes_[0].get_title()
