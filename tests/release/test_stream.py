"""Sketches that are built from chunks: what is equal, what is refused, what is final."""

import copy
import pickle

import numpy as np
import pytest
import sklearn
import torch
from sklearn.utils.fixes import parse_version

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.exceptions import BudgetExceededError, OpenSketchError
from skdpot.ot.slices import uniform_directions
from skdpot.release import histogram

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (101, 3))
Y = RNG.integers(0, 3, 101)
SHAPE = {
    "bounds": (-1, 1),
    "projections": uniform_directions(7, 3, RNG),
    "n_bins": 16,
}


def stream(sketch, n_chunks, *, n_samples=None, y=None):
    for rows in np.array_split(np.arange(len(X)), n_chunks):
        sketch.partial_fit(X[rows], None if y is None else y[rows], n_samples=n_samples)
    return sketch


@pytest.fixture
def open_sketch():
    return SlicedSketch(**SHAPE).partial_fit(X[:40])


@pytest.mark.parametrize("n_chunks", [1, 2, 17, 101])
@pytest.mark.parametrize("conditional", [False, True])
def test_chunks_give_what_one_fit_gives(n_chunks, conditional):
    y = Y if conditional else None
    options = {"conditional": conditional, "classes": [0, 1, 2] if conditional else None}
    whole = SlicedSketch(epsilon=np.inf, **SHAPE, **options).fit(X, y)
    parts = stream(SlicedSketch(epsilon=np.inf, **SHAPE, **options), n_chunks, y=y).close()
    np.testing.assert_array_equal(whole.statistic_, parts.statistic_)
    np.testing.assert_array_equal(whole.cdf_, parts.cdf_)
    np.testing.assert_array_equal(whole.class_counts_, parts.class_counts_)
    assert parts.n_samples_ == len(X)


def test_closes_itself_when_the_declared_rows_have_come():
    sketch = SlicedSketch(**SHAPE).partial_fit(X[:60], n_samples=101)
    with pytest.raises(OpenSketchError, match="open"):
        sketch.quantiles([0.5])
    sketch.partial_fit(X[60:])
    assert sketch.quantiles([0.5]).shape == (7, 1)
    with pytest.raises(AttributeError, match="partial_fit") as refusal:
        sketch.partial_fit(X[:1])
    assert "closed, which is final" in str(refusal.value.__cause__)
    assert isinstance(refusal.value.__cause__, OpenSketchError)
    with pytest.raises(OpenSketchError, match="there is none"):
        sketch.close()


@pytest.mark.parametrize("chunks", [[slice(0, 99), slice(99, 101)], [slice(0, 3)]])
def test_there_may_be_fewer_rows_than_classes(chunks):
    sketch = SlicedSketch(**SHAPE, conditional=True, classes=range(10))
    for rows in chunks:
        sketch.partial_fit(X[rows], Y[rows])
    counts = sketch.close().class_counts_
    assert counts.sum() == pytest.approx(chunks[-1].stop)
    assert counts.min() >= 0


REFUSED = {
    **{
        f"n_samples={given!r}": ({}, {"n_samples": given}, "n_samples=")
        for given in (0, -3, 1.5, "7", True, np.nan)
    },
    "too many rows": ({}, {"n_samples": 100}, "101 rows arrived but n_samples=100"),
    "unknown classes": ({"conditional": True}, {"y": Y}, "needs the parameter classes"),
    "no device": ({"device": "cuda"}, {}, "needs a GPU"),
    "too large": ({"projections": "uniform", "n_projections": 2**21, "n_bins": 1024}, {}, "too la"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_fitted_is_refused_before_any_charge(case, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options, given, text = REFUSED[case]
    budget = PrivacyBudget(9.0)
    sketch = SlicedSketch(**SHAPE | options, budget=budget)
    for fit in (sketch.partial_fit, *(() if given else (sketch.fit,))):
        with pytest.raises(ValueError, match=text):
            fit(X, **given)
    assert len(budget.history()) == 0
    assert not hasattr(sketch, "privacy_spent_")


def test_a_refused_chunk_leaves_the_stream_as_it_was():
    sketch = SlicedSketch(epsilon=np.inf, **SHAPE).partial_fit(X[:60], n_samples=101)
    for rows, options, text in (
        (X[:60], {}, "120 rows arrived"),
        (X[:3], {"n_samples": 81}, "differs from the 101"),
        (np.full((3, 3), np.nan), {}, "NaN"),
        (X[60:, :2], {}, "features"),
    ):
        with pytest.raises(ValueError, match=text):
            sketch.partial_fit(rows, **options)
    sketch.partial_fit(X[60:], n_samples=np.int64(101))
    exact = SlicedSketch(epsilon=np.inf, **SHAPE).fit(X)
    np.testing.assert_array_equal(sketch.statistic_, exact.statistic_)


def test_a_stream_is_charged_once():
    budget = PrivacyBudget(1.0)
    stream(SlicedSketch(**SHAPE, budget=budget), 5, n_samples=101)
    with pytest.raises(BudgetExceededError, match="epsilon"):
        SlicedSketch(**SHAPE, budget=budget).partial_fit(X[:5])
    assert len(budget.history()) == 1


def test_changing_the_classes_of_an_open_stream_changes_nothing():
    sketch = SlicedSketch(epsilon=np.inf, **SHAPE, conditional=True, classes=[0, 1, 2])
    sketch.partial_fit(X[:50], Y[:50])
    sketch.set_params(classes=[-5, 0, 1, 2]).partial_fit(X[50:], Y[50:]).close()
    exact = SlicedSketch(epsilon=np.inf, **SHAPE, conditional=True).fit(X, Y)
    np.testing.assert_array_equal(sketch.statistic_, exact.statistic_)


READINGS = {
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "quantiles": lambda sketch: sketch.quantiles([0.5]),
    "cdf": lambda sketch: sketch.cdf([0.0]),
    "table": lambda sketch: sketch.table(),
    "distance": lambda sketch: sketch.distance(X),
    "merge": lambda sketch: sketch.merge(SlicedSketch(**SHAPE).fit(X)),
    "merged": lambda sketch: SlicedSketch(**SHAPE).fit(X).merge(sketch),
    "distance to it": lambda sketch: SlicedSketch(**SHAPE).fit(X).distance(sketch),
    "save": lambda sketch: sketch.save("nowhere"),
    "state": lambda sketch: sketch.__getstate__(),
    "accumulator": lambda sketch: pickle.dumps(sketch._accumulator),
    "copy of the accumulator": lambda sketch: copy.copy(sketch._accumulator),
    "deep copy of the accumulator": lambda sketch: copy.deepcopy(sketch._accumulator),
}


@pytest.mark.parametrize("reading", READINGS)
def test_an_open_sketch_cannot_be_read_or_copied(reading, open_sketch):
    with pytest.raises(OpenSketchError, match="open"):
        READINGS[reading](open_sketch)
    assert open_sketch.partial_fit(X[40:]).close().n_samples_ == 101


def test_an_open_sketch_shows_no_value(open_sketch):
    html = parse_version(sklearn.__version__) >= parse_version("1.9")  # before, arrays break it
    for text in (repr(open_sketch), open_sketch._repr_html_() if html else ""):
        assert "accumulator" not in text
        assert "statistic" not in text
    public = [name for name in dir(open_sketch) if name.endswith("_") and name[0] != "_"]
    assert not {"statistic_", "cdf_", "class_counts_", "n_samples_"} & set(public)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_chunk_ends_the_stream_for_good(error, open_sketch, monkeypatch):
    """Adding the chunk again would count rows twice, which the sensitivity does not cover."""
    count = histogram.count_projections
    calls = []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise error
        return count(*args, **kwargs)

    monkeypatch.setattr(histogram, "count_projections", interrupted)
    open_sketch.partial_fit(X[40:60])
    with pytest.raises(error):
        open_sketch.partial_fit(X[60:])
    for attempt in (lambda: open_sketch.partial_fit(X[60:]), open_sketch.close):
        with pytest.raises(OpenSketchError, match="interrupted"):
            attempt()
    with pytest.raises(OpenSketchError, match="open"):
        open_sketch.quantiles([0.5])
    open_sketch.fit(X)
    assert open_sketch.n_samples_ == 101


def test_an_interrupted_first_chunk_leaves_nothing_but_the_charge(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(histogram, "count_projections", interrupted)
    budget = PrivacyBudget(1.0)
    sketch = SlicedSketch(**SHAPE, budget=budget)
    before = dict(vars(sketch))
    with pytest.raises(KeyboardInterrupt):
        sketch.partial_fit(X[:40])
    assert len(budget.history()) == 1
    assert vars(sketch) == before
