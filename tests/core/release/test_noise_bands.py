"""The bands of a sketch hold the truth as often as they say, and are no wider than needed."""

import numpy as np
import pytest
from scipy.stats import norm

from skdpot import SlicedSketch
from skdpot.privacy import Reliability
from skdpot.release.decoding import class_totals, measured_cdf

RNG = np.random.default_rng(4410)
X = np.clip(RNG.normal(size=(400, 3)) * [0.2, 0.3, 0.1] + [0.1, -0.2, 0.3], -1, 1)
Y = np.array(["a", "b", "b", "b"])[np.arange(400) % 4]
DIRECTIONS = np.concatenate([np.eye(3), np.full((1, 3), 3**-0.5), [[0.6, -0.8, 0]]])
OPTIONS = {"bounds": (-1, 1), "projections": DIRECTIONS, "n_bins": 12}


def truth(rows, edges, directions=DIRECTIONS):
    """Shares of rows below the inner edges; those beyond the ends are in the end bins."""
    projections = rows @ directions.T
    return np.stack(
        [np.mean(projections[:, [k]] < edges[k, 1:-1], axis=0) for k in range(len(edges))]
    )


def scores(label, rows, n_fits=300, **options):
    """Errors of the measured values in units of their stated deviations, (n_fits, L, B - 1)."""
    found = []
    for _ in range(n_fits):
        sketch = SlicedSketch(epsilon=1.0, **(OPTIONS | options)).fit(X, Y)
        values, deviations = measured_cdf(sketch, label)
        error = values[:, 1:-1] - truth(rows, sketch.table().edges)
        found.append(error / deviations[:, 1:-1])
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "options"),
    [
        (None, {}),
        (None, {"conditional": True}),
        ("b", {"conditional": True}),
        (None, {"conditional": True, "public_labels": True}),
        ("a", {"conditional": True, "public_labels": True}),
    ],
    ids=["plain", "classes together", "private class", "public classes together", "public class"],
)
def test_errors_have_the_stated_deviation(label, options, monkeypatch):
    """At each edge the mean square is 1; of 300 fits it has a standard deviation of 0.08.

    Over all edges, which are correlated, it has 0.016, and the share within two deviations 0.002
    (measured): the tolerances are 6 deviations or more.
    """
    monkeypatch.setattr(SlicedSketch, "_decode", quick_decode)
    rows = X if label is None else X[Y == label]
    errors = scores(label, rows, **options)
    np.testing.assert_allclose(np.mean(errors**2, axis=0), 1.0, atol=0.65)
    assert np.mean(errors**2) == pytest.approx(1.0, abs=0.12)
    assert np.mean(np.abs(errors) < 2) == pytest.approx(norm.cdf(2) - norm.cdf(-2), abs=0.02)
    assert np.abs(errors.mean(axis=0)).max() < 7 / np.sqrt(300)


def quick_decode(sketch):
    """What the bands need of the decoded table; the real one takes a hundred times longer."""
    strategy = sketch.strategy_
    totals = (sketch.statistic_ @ strategy.decoder.T)[:, :, -1].mean(axis=1)
    counts = sketch._label_counts
    if counts is None:
        counts = class_totals(totals, sketch.n_samples_)
    sketch.class_counts_ = np.asarray(counts, dtype=float)
    parts = [X] if len(totals) == 1 else [X[Y == "a"], X[Y == "b"]]
    edges = sketch.half_widths_[:, None] * np.linspace(-1, 1, 13)
    cdf = np.ones((len(parts), *edges.shape))
    cdf[:, :, 0] = 0
    for k, rows in enumerate(parts):
        cdf[k, :, 1:-1] = truth(rows, edges, sketch.directions_)
    sketch.cdf_, sketch.reliability_ = cdf, Reliability(())


def test_an_unknown_size_widens_the_band(monkeypatch):
    """Along one direction, where the first bins hold all rows, the size is most of the error.

    300 fits: the mean square has a deviation of 0.08 at each edge, and near 0.06 on average.
    """
    monkeypatch.setattr(SlicedSketch, "_decode", quick_decode)
    low = np.concatenate([np.full((400, 1), -0.95), X[:, 1:]], axis=1)
    errors = []
    for _ in range(300):
        options = OPTIONS | {"projections": DIRECTIONS[:1], "conditional": True}
        sketch = SlicedSketch(epsilon=3.0, **options).fit(low, Y)
        sketch.cdf_[:, :, 1:] = 1.0
        values, deviations = measured_cdf(sketch, "b")
        errors.append((values[0, 1:4] - 1) / deviations[0, 1:4])
    assert np.mean(np.square(errors)) == pytest.approx(1.0, abs=0.4)


def test_without_noise_the_values_are_exact():
    sketch = SlicedSketch(epsilon=np.inf, **OPTIONS).fit(X)
    values, deviations = measured_cdf(sketch)
    assert (deviations == 0).all()
    np.testing.assert_allclose(values[:, 1:-1], truth(X, sketch.table().edges), atol=1e-9)
    np.testing.assert_array_equal(values[:, [0, -1]], [[0, 1]] * 5)


def test_merged_sketches_have_the_noise_of_both():
    first, second = (SlicedSketch(epsilon=1.0, **OPTIONS).fit(part) for part in (X[:200], X[200:]))
    alone, together = (measured_cdf(one)[1][0, 6] for one in (first, first.merge(second)))
    # Twice the rows, and the squares of two equal noises.
    assert together == pytest.approx(alone / np.sqrt(2))


def test_what_is_refused():
    sketch = SlicedSketch(epsilon=1.0, conditional=True, **OPTIONS).fit(X, Y)
    with pytest.raises(ValueError, match="not a class of this sketch"):
        measured_cdf(sketch, "c")
    options = {"conditional": True, "public_labels": True, "classes": ["a", "b", "c"]}
    sketch = SlicedSketch(epsilon=1.0, **options, **OPTIONS).fit(X, Y)
    with pytest.raises(ValueError, match="class without rows"):
        measured_cdf(sketch, "c")
