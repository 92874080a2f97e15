"""A fit gives the same to the last bit however its rows are held and divided."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot import (
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    DPTableSynthesizer,
    PrivateWassersteinDistance,
    SlicedSketch,
)
from skdpot.preprocessing import (
    CategoricalColumn,
    DatetimeColumn,
    LessEqual,
    NumericColumn,
    TableEncoder,
    TableSchema,
)
from skdpot.release.comparison import first_difference
from skdpot.release.gate import record_releases
from skdpot.sources.exact_counts import ExactCounts
from skdpot.sources.reading import source_of
from tests.core.sources import forms
from tests.core.sources.forms import FORMS, NUMBERS, TABLE

pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")

BOX = {"bounds": (-3, 3), "random_state": 0}
SKETCH = BOX | {"n_projections": 5, "n_bins": 8}
CLASSES = {"conditional": True, "classes": ["u", "v", "w", "never"]}
SCHEMA = TableSchema(
    [
        NumericColumn("a", lower=-4, upper=4),
        CategoricalColumn("label", categories=["u", "v", "w"]),
        NumericColumn("least", lower=0, upper=20, integer=True),
        NumericColumn("most", lower=0, upper=40, integer=True),
        DatetimeColumn("day", lower="2021-01-01", upper="2024-01-01"),
        CategoricalColumn("text", missing=True),
    ],
    rules=[LessEqual("least", "most")],
    excluded=["b", "c"],
)
LABELLED = [*NUMBERS, "label"]
FITS = {
    "sketch": (SlicedSketch(**SKETCH), NUMBERS),
    "sketch, automatic": (SlicedSketch(**BOX), NUMBERS),
    "sketch, norms": (SlicedSketch(norm_bound=4.0, n_bins=8, random_state=0), NUMBERS),
    "sketch, classes": (SlicedSketch(**SKETCH, conditional=True), LABELLED),
    "sketch, public labels": (SlicedSketch(**SKETCH, **CLASSES, public_labels=True), LABELLED),
    "sketch, private bounds": (SlicedSketch(epsilon=50.0, n_bins=8, random_state=0), NUMBERS),
    "flow": (DPSlicedFlowSampler(**BOX, conditional=True, n_steps=3), LABELLED),
    "generator": (DPSlicedGenerator(**BOX, n_steps=3), NUMBERS),
    "distance": (PrivateWassersteinDistance(**BOX), NUMBERS),
    "encoder, nothing known": (TableEncoder(random_state=0, epsilon=50.0), list(TABLE)),
    "encoder": (TableEncoder(SCHEMA, random_state=0, epsilon=5.0), list(TABLE)),
    "synthesizer": (
        DPTableSynthesizer(SCHEMA, random_state=0, epsilon=5.0, target="label", n_particles=300),
        list(TABLE),
    ),
}


def result(name, X, y=None):
    """What a fit releases, and what is made of it."""
    estimator = FITS[name][0]
    with record_releases() as releases:
        fitted = type(estimator)(**estimator.get_params()).fit(X, y)
    found = [(r.kind, r.value, r.sigma, r.sensitivity) for r in releases]
    made = fitted.sample(20, random_state=1) if hasattr(fitted, "sample") else None
    seen = [fitted.n_features_in_, getattr(fitted, "feature_names_in_", None)]
    seen += [getattr(fitted, what, None) for what in ("n_samples_", "bounds_")]
    seen.append(list(map(str, getattr(fitted, "classes_", ()))))
    return found, seen, str(fitted.privacy_spent_), None if made is None else as_texts(made)


def as_texts(rows):
    """Synthetic rows, of whichever library."""
    columns = np.asarray(rows).T.tolist()
    return [["" if str(v) in ("nan", "None", "<NA>") else str(v) for v in c] for c in columns]


@pytest.fixture(scope="module")
def in_memory():
    """Of each fit, of rows in memory."""
    known = {}

    def of(name):
        if name not in known:
            rows = TABLE[FITS[name][1]]
            X = rows.drop(columns="label") if FITS[name][1] == LABELLED else rows
            known[name] = result(name, X, rows["label"] if X is not rows else None)
        return known[name]

    return of


SOME = dict.fromkeys(FITS, (forms.own, forms.reader, forms.dask))
SOME |= dict.fromkeys(("sketch, classes", "encoder"), FORMS)
SOME |= {name: (*SOME[name], forms.arrow) for name in ("sketch, classes", "flow")}
SOME["synthesizer"] += (forms.csv, forms.duckdb, forms.lazy)


@pytest.mark.parametrize(
    ("name", "form"),
    [pytest.param(n, f, id=f"{n}-{f.__name__}") for n in FITS for f in SOME[n]],
)
def test_every_form_of_the_same_rows_gives_the_same_release(name, form, in_memory, tmp_path):
    library = {"lazy": "polars", "dask_many": "dask"}.get(form.__name__, form.__name__)
    if library in ("polars", "dask", "duckdb"):
        pytest.importorskip(library)
    columns, rng = FITS[name][1], np.random.default_rng([len(name), len(form.__name__)])
    found = result(name, form(TABLE[columns], tmp_path, rng), "label")
    different = first_difference(in_memory(name), found)
    assert different is None


@dataclass
class Seen:
    """Counts the columns of batches."""

    def __call__(self, batch):
        return ExactCounts((Counter(batch.columns),), len(batch))


@pytest.mark.parametrize(
    "form", [form for form in FORMS if form not in (forms.own, forms.one_row_each)]
)
def test_columns_that_are_not_selected_are_not_read(form, tmp_path):
    library = {"lazy": "polars", "dask_many": "dask"}.get(form.__name__, form.__name__)
    if library in ("polars", "dask", "duckdb"):
        pytest.importorskip(library)
    source = source_of(form(TABLE, tmp_path, np.random.default_rng(1)))
    assert set(source.select(["text", "a"]).sum(Seen())._tables[0]) == {"text", "a"}
    assert set(source.sum(Seen())._tables[0]) == set(TABLE)


def test_a_fit_selects_the_columns_of_its_schema(in_memory):
    """A source of one's own may read less, which changes nothing."""
    selected = []

    class Columns(forms.Parts):
        def select(self, names):
            selected.append(names)
            return forms.Parts(self.rows[list(names)], self.parts, self.rng)

    parts = Columns(TABLE, [slice(0, 50), slice(50, None)], np.random.default_rng(0))
    assert first_difference(in_memory("synthesizer"), result("synthesizer", parts)) is None
    assert selected == [SCHEMA.names]


def test_blocks_of_an_array_of_dask(in_memory, tmp_path):
    pytest.importorskip("dask.array")
    found = result("sketch", forms.dask_array(TABLE[NUMBERS], tmp_path, np.random.default_rng(5)))
    assert first_difference(in_memory("sketch")[0], found[0]) is None


@given(seed=st.integers(0, 2**32), lengths=st.lists(st.integers(0, 60), max_size=12))
@settings(max_examples=15, deadline=None)
def test_any_partition_gives_the_same_release(in_memory, seed, lengths):
    """Some parts have no rows; parts are counted and added up in any order, and travel packed."""
    rng, ends = np.random.default_rng(seed), np.minimum(np.cumsum(lengths).astype(int), len(TABLE))
    parts = [slice(*pair) for pair in pairwise([0, *ends.tolist(), len(TABLE)])]
    for name in ("sketch, classes", "encoder"):
        found = result(name, forms.Parts(TABLE[FITS[name][1]], parts, rng), "label")
        assert first_difference(in_memory(name), found) is None


def test_files_of_years_and_files_without_values(tmp_path):
    """Columns that names of directories hold, and files that cannot tell their data types."""
    for year in (2020, 2021, 2022):
        (tmp_path / f"year={year}").mkdir()
        TABLE[NUMBERS][year % 7 :: 3].to_parquet(tmp_path / f"year={year}" / "rows.parquet")
    found = forms.ds.dataset(tmp_path, partitioning="hive")
    assert SlicedSketch(bounds=(0, 3000)).fit(found).feature_names_in_[-1] == "year"
    pd.DataFrame({"a": [], "b": []}).to_csv(tmp_path / "0.csv", index=False)
    pd.DataFrame({"a": [1.5, 2.0], "b": [3, 4]}).to_csv(tmp_path / "1.csv", index=False)
    pd.DataFrame({"a": [1, 2], "b": [3.0, 4]}).assign(b=None).to_csv(
        tmp_path / "2.csv", index=False
    )
    schema = TableSchema([NumericColumn(n, lower=0, upper=9, missing=True) for n in "ab"])
    with pytest.raises(ValueError, match="2.csv' differs from the other files in 'a'"):
        TableEncoder(schema).fit(tmp_path / "*.csv")
    (tmp_path / "2.csv").unlink()
    assert TableEncoder(schema).fit(tmp_path / "*.csv").n_features_in_ == 2
