"""What the picture of marginals counts and draws, kind by kind."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from skdpot import DPSlicedFlowSampler
from skdpot.metrics import MarginalsDisplay
from skdpot.metrics._panels import COLORS

RNG = np.random.default_rng(660)
REAL = pd.DataFrame(
    {
        "height": RNG.normal(170, 10, 400),
        "children": RNG.integers(0, 4, 400),
        "town": RNG.choice(["Ulm", "Bonn", "Kiel"], 400, p=[0.6, 0.3, 0.1]),
        "member": RNG.random(400) < 0.25,
        "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, 400), "D"),
    }
)
FAKE = pd.DataFrame(
    {
        "height": RNG.normal(180, 10, 900),
        "children": RNG.integers(0, 6, 900),
        "town": RNG.choice(["Ulm", "Bonn", "Kiel", "Rom"], 900),
        "member": RNG.random(900) < 0.5,
        "joined": pd.Timestamp("2020-06-01") + pd.to_timedelta(RNG.integers(0, 900, 900), "D"),
    }
)


@pytest.fixture(autouse=True)
def backend():
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


def marginals(display):
    return {marginal.name: marginal for marginal in display.marginals}


def widths(bars):
    return [bar.get_width() for bar in bars]


def ticks(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_numbers_share_their_bins():
    display = MarginalsDisplay.from_frames(REAL, FAKE)
    found = marginals(display)["height"]
    assert found.kind == "number"
    assert len(found.values) == 21
    low, high = np.quantile(REAL["height"], [0.005, 0.995])
    np.testing.assert_allclose(found.values[[0, -1]], [low, high])
    for frame, shares in ((REAL, found.real), (FAKE, found.synthetic)):
        clipped = np.clip(frame["height"], low, high)
        np.testing.assert_allclose(shares, np.histogram(clipped, found.values)[0] / len(frame))
        assert shares.sum() == pytest.approx(1)
    real, synthetic = display.artists_["height"]
    np.testing.assert_array_equal(real.get_data().values, found.real)
    np.testing.assert_array_equal(synthetic.get_data().values, found.synthetic)
    np.testing.assert_array_equal(synthetic.get_data().edges, found.values)
    assert synthetic.get_edgecolor()[:3] == mpl.colors.to_rgb(COLORS[0])
    assert display.axes_[0].get_title() == f"height\nTV = {found.total_variation:.3f}"


def test_whole_numbers_have_a_bin_each_or_equally_many():
    found = marginals(MarginalsDisplay.from_frames(REAL, FAKE))["children"]
    np.testing.assert_array_equal(found.values, np.arange(7) - 0.5)
    np.testing.assert_allclose(found.real[:4], np.bincount(REAL["children"]) / 400)
    np.testing.assert_allclose(found.synthetic, np.bincount(FAKE["children"]) / 900)
    ages = pd.DataFrame({"age": np.arange(100)})
    found = MarginalsDisplay.from_frames(ages, ages, bins=20).marginals[0]
    # Without the outer half per cent on each side: 0 to 99, five years a bin.
    np.testing.assert_array_equal(found.values, -0.5 + 5 * np.arange(21))
    np.testing.assert_allclose(found.real, 0.05)
    assert found.total_variation == 0


def test_categories_are_bars_the_frequent_first():
    display = MarginalsDisplay.from_frames(REAL, FAKE)
    found = marginals(display)["town"]
    assert found.kind == "category"
    assert found.values.tolist() == ["Ulm", "Bonn", "Kiel", "Rom"]
    expected = [REAL["town"].eq(name).mean() for name in found.values]
    np.testing.assert_allclose(found.real, expected)
    gap = np.abs(np.array(expected) - [FAKE["town"].eq(name).mean() for name in found.values])
    assert found.total_variation == pytest.approx(gap.sum() / 2)
    real, synthetic = display.artists_["town"]
    np.testing.assert_allclose(widths(real), found.real)
    np.testing.assert_allclose(widths(synthetic), found.synthetic)
    assert ticks(display.axes_[2]) == ["Ulm", "Bonn", "Kiel", "Rom"]
    # The first one is at the top.
    assert display.axes_[2].yaxis_inverted()
    assert ticks(display.axes_[3]) == ["False", "True"]


def test_missing_values_are_shown_and_counted():
    real = REAL.assign(height=REAL["height"].where(REAL.index >= 100))
    fake = FAKE.assign(town=FAKE["town"].where(FAKE.index >= 90))
    display = MarginalsDisplay.from_frames(real, fake)
    found = marginals(display)
    assert (found["height"].real_missing, found["height"].synthetic_missing) == (0.25, 0)
    assert found["height"].real.sum() == pytest.approx(0.75)
    gap = np.abs(found["height"].real - found["height"].synthetic).sum() + 0.25
    assert found["height"].total_variation == pytest.approx(gap / 2)
    heights = [bar.get_height() for bar in display.axes_[0].patches[-2:]]
    assert heights == [0.25, 0]
    assert [text.get_text() for text in display.axes_[0].texts] == ["missing"]
    assert ticks(display.axes_[2]) == ["Ulm", "Bonn", "Kiel", "Rom", "missing"]
    np.testing.assert_allclose(widths(display.artists_["town"][1])[-1], 0.1)
    assert [
        text.get_text() for text in MarginalsDisplay.from_frames(REAL, FAKE).axes_[0].texts
    ] == []


def test_infinite_values_are_in_the_end_bins():
    table = pd.DataFrame({"x": [-np.inf, 0.5, 1.5, 2.5, np.inf]})
    found = MarginalsDisplay.from_frames(table, table, bins=4).marginals[0]
    assert np.isfinite(found.values).all()
    assert found.real.sum() == pytest.approx(1)
    assert found.real[0] >= 0.4


def test_dates_are_days():
    display = MarginalsDisplay.from_frames(REAL, FAKE)
    found = marginals(display)["joined"]
    assert found.kind == "date"
    first = pd.Timestamp("2020-01-01").to_datetime64().astype("datetime64[D]").astype(int)
    assert first - 1 < found.values[0] < first + 20
    display.figure_.canvas.draw()
    assert any("20" in text.get_text() for text in display.axes_[4].get_xticklabels())
    zoned = REAL[["joined"]].assign(joined=REAL["joined"].dt.tz_localize("Europe/Berlin"))
    assert MarginalsDisplay.from_frames(zoned, zoned).marginals[0].kind == "date"


def test_pairs_by_total_variation():
    """Against the definition, by a table of counts."""
    display = MarginalsDisplay.from_frames(
        REAL, FAKE, ["town", "children"], pairs="total_variation"
    )
    cuts = np.unique(np.quantile(REAL["children"], np.linspace(0, 1, 17)[1:-1]))
    tables = []
    for frame in (REAL, FAKE):
        cells = pd.Series(np.searchsorted(cuts, frame["children"]), name="cell")
        tables.append(pd.concat([frame["town"], cells], axis=1).value_counts(normalize=True))
    expected = tables[0].sub(tables[1], fill_value=0).abs().sum() / 2
    assert display.pairs.loc["town", "children"] == pytest.approx(expected)
    assert display.pairs.loc["children", "town"] == pytest.approx(expected)
    assert display.pairs.loc["town", "town"] == pytest.approx(
        marginals(display)["town"].total_variation
    )
    np.testing.assert_array_equal(display.image_.get_array(), display.pairs)
    assert display.axes_[-1].get_title().startswith("total variation of pairs, mean 0.")
    assert len(display.axes_) == 3


def test_pairs_by_correlation():
    display = MarginalsDisplay.from_frames(REAL, FAKE, pairs="correlation")
    expected = (
        FAKE[["height", "children"]].corr().iloc[0, 1]
        - REAL[["height", "children"]].corr().iloc[0, 1]
    )
    assert list(display.pairs.columns) == ["height", "children"]
    assert display.pairs.iloc[0, 1] == pytest.approx(expected)
    assert display.axes_[-1].get_title().startswith("correlation, synthetic − real")
    written = [text.get_text() for text in display.axes_[-1].texts]
    assert written[1] == f"{expected:.2f}".replace("-", "−")
    low, high = display.image_.get_clim()
    assert low == -high


def test_a_sampler_is_sampled():
    X = REAL[["height", "children"]]
    sampler = DPSlicedFlowSampler(epsilon=9.0, bounds=([100, 0], [250, 4]), n_steps=5).fit(X)
    display = MarginalsDisplay.from_estimator(sampler, X[:50], random_state=0)
    again = MarginalsDisplay.from_frames(X[:50], sampler.sample(1000, random_state=0))
    np.testing.assert_array_equal(display.marginals[0].synthetic, again.marginals[0].synthetic)


def test_axes_and_legend():
    figure, axes = plt.subplots(1, 2)
    display = MarginalsDisplay.from_frames(REAL, FAKE, ["height", "town"], ax=axes, color="red")
    assert display.figure_ is figure
    assert figure.legends == []
    assert display.artists_["town"][1][0].get_facecolor()[:3] == (1, 0, 0)
    texts = [text.get_text() for text in axes[0].get_legend().get_texts()]
    assert texts == ["real rows", "synthetic rows"]
    with pytest.raises(ValueError, match="ax holds 2 Axes and there are 5 panels"):
        MarginalsDisplay.from_frames(REAL, FAKE, ax=axes)
    own = MarginalsDisplay.from_frames(REAL, FAKE, name="a study")
    assert own.figure_.get_suptitle() == "a study"


@pytest.mark.parametrize(
    ("real", "options", "message"),
    [
        (REAL, {"columns": ["age"]}, r"Both tables must have the columns \['age'\]"),
        (REAL.assign(new=1), {}, r"Both tables must have the columns \['new'\]"),
        (REAL, {"columns": []}, "columns must name 1 to 40 different columns, and holds 0"),
        (REAL, {"columns": ["town", "town"]}, "different columns"),
        (REAL[:0], {}, "real is empty"),
        (REAL["town"].to_numpy(), {}, r"real has shape \(400,\)"),
        (pd.concat([REAL, REAL], axis=1), {}, "real has several columns of one name"),
        (REAL, {"pairs": "covariance"}, "pairs='covariance' must be None or one of"),
        (REAL, {"pairs": "correlation", "columns": ["town", "height"]}, "two columns of numbers"),
    ],
)
def test_what_is_refused(real, options, message):
    with pytest.raises(ValueError, match=message):
        MarginalsDisplay.from_frames(real, FAKE, **options)
