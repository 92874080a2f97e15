"""What the picture of a sketch draws: its functions, the bands of its noise, public rows."""

import numpy as np
import pandas as pd
import pytest

from skdpot import SlicedSketch
from skdpot.metrics import SketchDisplay
from skdpot.release.decoding import measured_cdf
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(8124)
NAMES = ["age", "income", "height"]
X = pd.DataFrame(RNG.uniform([0, 10, -5], [4, 30, 5], size=(300, 3)), columns=NAMES)
Y = np.where(X["age"] > 2, "old", "young")
DIRECTIONS = np.array([[0, 1.0, 0], [-1.0, 0, 0], [0.6, 0, -0.8], [2 / 3, 1 / 3, -2 / 3]])
OPTIONS = {"bounds": ([0, 10, -5], [4, 30, 5]), "projections": DIRECTIONS, "n_bins": 8}


@pytest.fixture(scope="module")
def sketch():
    return SlicedSketch(epsilon=2.0, conditional=True, **OPTIONS).fit(X, Y)


def outline(band):
    """Lower and upper limits of a band by position."""
    corners = pd.DataFrame(band.get_paths()[0].vertices, columns=["x", "y"]).round(12)
    limits = corners.groupby("x")["y"].agg(["min", "max"])
    return limits.index.to_numpy(), limits["min"].to_numpy(), limits["max"].to_numpy()


@pytest.mark.parametrize("label", [None, "old"])
def test_lines_are_the_sketch_and_bands_are_its_noise(sketch, label):
    display = SketchDisplay.from_estimator(sketch, label=label)
    (measured, deviations), table = measured_cdf(sketch, label), sketch.table(label)
    assert len(display.axes_) == len(display.lines_) == len(display.bands_) == 4
    for k, (line, band) in enumerate(zip(display.lines_, display.bands_, strict=True)):
        np.testing.assert_allclose(line.get_ydata(), table.cdf[k])
        x, low, high = outline(band)
        np.testing.assert_allclose(np.sort(line.get_xdata()), x)
        for sign, edge in ((-1, low), (1, high)):
            expected = measured[k] + sign * 2 * deviations[k]
            np.testing.assert_allclose(edge, np.clip(expected, 0, 1), atol=1e-9)
        assert (high > low).sum() >= 5


def test_axes_are_in_the_units_of_the_data_and_named(sketch):
    display = SketchDisplay.from_estimator(sketch)
    edges = sketch.table().edges
    center, scale = sketch.bounds_.center, sketch.bounds_.scale
    np.testing.assert_allclose(display.lines_[0].get_xdata(), center[1] + scale[1] * edges[0])
    # A direction against an axis shows the values with their signs changed.
    np.testing.assert_allclose(display.lines_[1].get_xdata(), -center[0] + scale[0] * edges[1])
    np.testing.assert_allclose(display.lines_[2].get_xdata(), edges[2])
    assert display.names == [
        "income",
        "−1.00 age",
        "−0.80 height + 0.60 age",
        "0.67 age − 0.67 height + …",
    ]


def test_public_rows_are_drawn_on_the_same_scale(sketch):
    display = SketchDisplay.from_estimator(sketch, X=X[:50])
    line = display.public_lines_[0]
    np.testing.assert_allclose(line.get_xdata()[1:-1], np.sort(X["income"][:50]))
    np.testing.assert_allclose(line.get_ydata()[1:-1], np.arange(1, 51) / 50)
    flipped = display.public_lines_[1].get_xdata()[1:-1]
    np.testing.assert_allclose(flipped, np.sort(-X["age"][:50]))
    mapped = sketch.bounds_.to_ball(X[:50].to_numpy()) @ DIRECTIONS[2]
    np.testing.assert_allclose(display.public_lines_[2].get_xdata()[1:-1], np.sort(mapped))
    assert SketchDisplay.from_estimator(sketch).public_lines_ == []


def test_slices_are_chosen(sketch):
    display = SketchDisplay.from_estimator(sketch, projections=[3, 0])
    assert display.projections.tolist() == [3, 0]
    np.testing.assert_allclose(display.lines_[0].get_ydata(), sketch.table().cdf[3])
    many = SlicedSketch(epsilon=2.0, bounds=(0, 30), n_projections=30).fit(X)
    assert SketchDisplay.from_estimator(many).projections.tolist() == [0, 1, 2, 3, 4, 5]


def test_an_estimator_shows_the_sketch_that_it_has_released():
    sampler = flow_sampler(epsilon=2.0, n_steps=2, **OPTIONS).fit(X)
    display = SketchDisplay.from_estimator(sampler)
    np.testing.assert_allclose(display.lines_[3].get_ydata(), sampler.sketch_.table().cdf[3])
