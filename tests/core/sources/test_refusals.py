"""What cannot be read is refused before the charge where that is possible, and no value is told."""

import traceback

import numpy as np
import pandas as pd
import pytest

from skdpot import (
    DPSlicedFlowSampler,
    DPTableSynthesizer,
    FairPrivateClassifier,
    PrivacyBudget,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
    SlicedSketch,
)
from skdpot.preprocessing import (
    CategoricalColumn,
    NumericColumn,
    PrivateScaler,
    TableEncoder,
    TableSchema,
)
from skdpot.release.gate import record_releases
from skdpot.sources.exact_counts import ExactCounts
from skdpot.sources.source import Source
from tests.core.sources import forms

pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")

SECRET = "Xq7secret"
RNG = np.random.default_rng(11)
ROWS = pd.DataFrame(RNG.uniform(-1, 1, (30, 2)), columns=["a", "b"]).assign(label=["u", "v"] * 15)
NAMED = ROWS.assign(label=[SECRET, *ROWS["label"][1:]])
SCHEMA = TableSchema(
    [
        NumericColumn("a", lower=-1, upper=1),
        NumericColumn("b", lower=-1, upper=1),
        CategoricalColumn("label", categories=["u", "v"]),
    ]
)
CLASSES = {"conditional": True, "bounds": (-1, 1)}
KINDS = {
    "sketch": (SlicedSketch, CLASSES | {"classes": ["u", "v"]}),
    "flow": (DPSlicedFlowSampler, CLASSES | {"n_steps": 2}),
    "encoder": (TableEncoder, {"schema": SCHEMA.replace(CategoricalColumn("label"))}),
    "synthesizer": (DPTableSynthesizer, {"schema": SCHEMA, "n_particles": 100}),
}
EACH = pytest.mark.parametrize("kind", KINDS)


class Batches(Source):
    """Batches of each pass: a list, or what a function of the number of the pass returns."""

    def __init__(self, batches, head=ROWS[:0]):
        self.batches, self.first, self.n_passes = batches, head, 0

    @property
    def head(self):
        return self.first() if callable(self.first) else self.first

    def sum(self, count):
        self.n_passes += 1
        batches = self.batches(self.n_passes) if callable(self.batches) else self.batches
        return ExactCounts.total(count(batch) for batch in batches)


def fail(*args):
    raise ValueError(f"this is no number: {SECRET}")


def told(kind, X, charges=0, **options):
    """Fit, which must be refused; check what that has cost, and return what it says."""
    made, defaults = KINDS[kind]
    budget = PrivacyBudget(9.0)
    estimator = made(**defaults | {"epsilon": 1.0, "budget": budget} | options)
    before = dict(vars(estimator))
    with record_releases() as releases, pytest.raises(BaseException, match=".") as caught:
        estimator.fit(X() if callable(X) else X, "label")
    text = "".join(traceback.format_exception(caught.value))
    assert SECRET not in text.replace("{SECRET}", "")
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert vars(estimator) == before
    assert len(budget.history()) == charges
    assert not releases
    return f"{type(caught.value).__name__}: {caught.value}"


class Panic(BaseException):
    """What polars raises where its code fails is no Exception."""


def panic(*args):
    raise Panic(SECRET)


class Hostile:
    """Rows of a library that quotes values in all that it says."""

    def __init__(self, **answers):
        self.answers = answers

    def __len__(self):
        return self.answers.get("length") or self.answers.get("fail", fail)()

    def __getattr__(self, name):
        return fail()


# What a reader, an engine or a user's own source may do, and quote a value.
def late(number):
    yield ROWS
    if number > 1:
        fail()


QUOTING = {
    "a pass": lambda: Batches(fail),
    "a batch": lambda: Batches(lambda number: (fail() if k else ROWS for k in range(2))),
    "names and data types": lambda: Batches([ROWS], head=fail),
    "rows of another library": lambda: Batches([Hostile()]),
    "a panic of a pass": lambda: Batches(panic),
    "a panic in a batch": lambda: Batches([Hostile(fail=panic)]),
    "rows that have a length": lambda: Batches([ROWS, Hostile(length=3)]),
}


@EACH
@pytest.mark.parametrize("name", QUOTING)
def test_errors_of_readers_quote_nothing(kind, name):
    assert told(kind, QUOTING[name]).startswith("ValueError: X could not be read (")


@EACH
def test_a_later_pass_that_fails_is_charged_once(kind):
    assert told(kind, Batches(late), charges=1).startswith("ValueError: X could not be read (")


CHANGED = {
    "more rows": ([ROWS, ROWS[:1]], "different numbers of rows"),
    "fewer rows": ([ROWS[:-1]], "different numbers of rows"),
    "no rows": ([], "different numbers of rows"),
    "other columns": ([ROWS.drop(columns="b")], "could not be read"),
    "text": ([ROWS[1:], ROWS[:1].assign(a=SECRET)], "could not be read"),
    "NaN": ([ROWS[1:], ROWS[:1].assign(a=np.nan)], "could not be read"),
}


@EACH
@pytest.mark.parametrize("change", CHANGED)
def test_rows_that_change_between_passes(kind, change):
    other, expected = CHANGED[change]
    source = Batches(lambda number: [ROWS] if number == 1 else other)
    assert expected in told(kind, source, charges=1)


WRONG = {
    "text in a column of numbers": (ROWS.assign(a=["1", SECRET] * 15), "number|text"),
    "a missing number": (ROWS.assign(a=[np.nan] + [0.5] * 29), "NaN|missing"),
    "an infinite number": (ROWS.assign(a=[np.inf] + [0.5] * 29), "infinity|infinite|finite"),
    "a missing column": (ROWS.drop(columns="b"), "lacks? .*'b'|no columns? .*'b'|'b'"),
}


@EACH
@pytest.mark.parametrize("name", WRONG)
def test_wrong_batches_are_refused_before_the_charge(kind, name):
    batch, expected = WRONG[name]
    found = told(kind, Batches([ROWS, batch]))
    assert found.startswith(("ValueError", "TypeError"))
    assert pd.Series([found]).str.contains(expected).all(), found


@pytest.mark.parametrize("kind", ["sketch", "synthesizer"])
def test_labels_that_are_not_declared(kind):
    assert "not among" in told(kind, Batches([ROWS, NAMED]))


def test_labels_of_two_kinds():
    found = told("flow", Batches([ROWS, ROWS.assign(label=3)]))
    assert found.startswith("ValueError: Unknown label type")


@EACH
@pytest.mark.parametrize("n_rows", [0, 1])
@pytest.mark.parametrize("form", [forms.parquet, forms.reader, Batches])
def test_too_few_rows(kind, n_rows, form, tmp_path):
    if form is Batches:
        X = Batches([ROWS[:0], ROWS[:n_rows]])
    else:
        X = form(ROWS[:n_rows], tmp_path, np.random.default_rng(0))
    if kind == "encoder" and n_rows:
        pytest.skip("a schema can be found from one row")
    assert f"Found {n_rows} sample(s) while a minimum of" in told(kind, X)


@EACH
def test_a_sum_that_is_none(kind):
    class Forgetful(Batches):
        def sum(self, count):
            super().sum(count)

    assert "must be ExactCounts" in told(kind, Forgetful([ROWS]))


# ------------------------------------------------------------------ files and engines


def files(path, *frames, suffix="parquet"):
    for k, frame in enumerate(frames):
        name = path / f"{k}.{suffix}"
        getattr(frame, {"parquet": "to_parquet", "csv": "to_csv"}[suffix])(name, index=False)
    return str(path)


@EACH
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_files_that_differ(kind, suffix, tmp_path):
    lacking, text = ROWS.drop(columns="b"), ROWS.assign(a=SECRET)
    more, headless = ROWS.assign(**{SECRET: 1.0}), ROWS.set_axis([SECRET, "b", "l"], axis=1)
    for other in (lacking, text, more, headless):
        found = told(kind, files(tmp_path, ROWS, other, suffix=suffix))
        assert "1." in found
        assert "differs from the other files in" in found
    assert "'a'" in told(kind, files(tmp_path, ROWS, text, suffix=suffix))


@EACH
def test_files_that_cannot_be_read(kind, tmp_path):
    (tmp_path / "wide.csv").write_text(f"a,b,label\n1,2,u\n3,{SECRET},4,5\n")
    (tmp_path / "late.csv").write_text("a,b,label\n" + "0,0,u\n" * 300_000 + f"{SECRET},0,u\n")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1" + SECRET.encode() * 9)
    for name in ("wide.csv", "late.csv", "damaged.parquet"):
        assert "could not be read (ArrowInvalid)" in told(kind, tmp_path / name)


def test_paths(tmp_path):
    ROWS.to_parquet(tmp_path / "0.parquet", index=False)
    both = [tmp_path / "*.parquet", tmp_path / "." / "0.parquet"]
    assert "names a file twice" in told("sketch", both)
    assert "No file exists at entry 1 of X" in told("sketch", [tmp_path, SECRET])
    assert "files of one format" in told("sketch", [tmp_path, __file__])
    (tmp_path / "none").mkdir()
    assert "files of one format" in told("sketch", tmp_path / "none")


@EACH
@pytest.mark.parametrize("library", ["duckdb", "polars", "dask", "pyarrow"])
def test_engines_that_quote_values(kind, library):
    module = pytest.importorskip(library)
    if library == "duckdb":
        given = ROWS.assign(a=["1", SECRET] * 15)
        X = module.from_df(given).project("CAST(a AS DOUBLE) AS a, b, label")
    elif library == "polars":
        X = module.from_pandas(ROWS.assign(a=["1", SECRET] * 15)).lazy()
        X = X.with_columns(module.col("a").cast(module.Float64))
    elif library == "dask":
        dd = pytest.importorskip("dask.dataframe")
        X = dd.from_pandas(ROWS, npartitions=3).map_partitions(fail, meta=ROWS[:0])
    else:
        table = forms.pa.Table.from_pandas(ROWS)

        def batches():
            yield from table.to_batches()
            fail()

        X = module.RecordBatchReader.from_batches(table.schema, batches())
    assert told(kind, X).startswith("ValueError: X could not be read (")


MEMORY = (PrivateScaler, PrivateTrajectorySampler, FairPrivateClassifier)


@pytest.mark.parametrize("made", MEMORY)
def test_estimators_without_sources_say_what_to_do(made, tmp_path):
    path = files(tmp_path, ROWS)
    for X in (path, tmp_path, [path], forms.ds.dataset(path), Batches([ROWS])):
        with pytest.raises(TypeError, match="needs X in memory here, not a .* Read or collect"):
            made().fit(X, np.arange(30) % 2)


def test_what_needs_rows_in_memory(tmp_path):
    path = files(tmp_path, ROWS[["a", "b"]])
    with pytest.raises(ValueError, match="groups needs X in memory"):
        SlicedSketch(bounds=(-1, 1)).fit(path, groups=np.arange(30))
    with pytest.raises(ValueError, match="unit needs X in memory"):
        DPTableSynthesizer(unit="a").fit(path)
    with pytest.raises(ValueError, match='X in batches needs protocol="sliced"'):
        PrivateWassersteinDistance("triangle").fit(path)
    with pytest.raises(ValueError, match="y must be the name of the column"):
        SlicedSketch(conditional=True).fit(path, ROWS["label"])
    stream = SlicedSketch(bounds=(-1, 1))
    with pytest.raises(ValueError, match="partial_fit takes rows in memory"):
        stream.partial_fit(path)
    assert stream.partial_fit(ROWS[["a", "b"]]).close().fit(path).n_samples_ == 30
