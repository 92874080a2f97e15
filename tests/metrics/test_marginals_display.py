"""What the picture of marginals counts and draws, kind by kind."""

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSlicedFlowSampler
from skdpot.metrics import MarginalsDisplay, marginal_total_variation

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
FAKE = REAL.sample(900, replace=True, random_state=0).reset_index(drop=True)
FAKE = FAKE.assign(height=FAKE["height"] + 10, children=RNG.integers(0, 6, 900))
FAKE["town"] = FAKE["town"].where(RNG.random(900) < 0.7, "Rom")


def shares_of(column, found):
    """Shares of the values of a column and of the missing ones, by other means."""
    known = column.dropna()
    if found.kind == "category":
        counts = known.astype(str).value_counts().reindex(found.values, fill_value=0).to_numpy()
    else:
        if found.kind == "date":
            known = (known - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
        # The end bins take in what is beyond.
        counts, _ = np.histogram(known.clip(*found.values[[0, -1]]), found.values)
    return np.append(counts, len(column) - len(known)) / len(column)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", REAL)
def test_both_tables_are_counted_in_the_same_cells(name, missing):
    real = REAL[name].mask(REAL.index < 100 * missing)
    fake = FAKE[name].mask(FAKE.index < 90 * missing)
    display = MarginalsDisplay.from_frames(real.to_frame(), fake.to_frame())
    (found,) = display.marginals
    due = np.stack([shares_of(real, found), shares_of(fake, found)])
    np.testing.assert_allclose([*found.real, found.real_missing], due[0])
    np.testing.assert_allclose([*found.synthetic, found.synthetic_missing], due[1])
    assert found.total_variation == pytest.approx(np.abs(due[0] - due[1]).sum() / 2)
    for artists, shares in zip(display.artists_[name], (found.real, found.synthetic), strict=True):
        if found.kind == "category":
            drawn = np.array([bar.get_width() for bar in artists])[: len(shares)]
        else:
            drawn = artists.get_data().values
            np.testing.assert_array_equal(artists.get_data().edges, found.values)
        np.testing.assert_array_equal(drawn, shares)
    texts = [text.get_text() for text in display.axes_[0].texts]
    texts += [label.get_text() for label in display.axes_[0].get_yticklabels()]
    assert ("missing" in texts) == missing


def cells(real, synthetic=None, **options):
    """Where the values of the single column of two tables are counted."""
    frames = [
        pd.DataFrame({"x": part}) for part in (real, real if synthetic is None else synthetic)
    ]
    return MarginalsDisplay.from_frames(*frames, **options).marginals[0].values


def test_where_the_cells_are():
    # Of categories, the frequent first, or in their order if they have one.
    assert cells(REAL["town"], FAKE["town"]).tolist() == ["Ulm", "Bonn", "Kiel", "Rom"]
    mixed = pd.Series([True, 1, "1", 1.0, None, "True", True], dtype=object)
    assert cells(mixed).tolist() == ["True", "1", "1.0"]
    rising = pd.Categorical(["M", "S"], ["S", "M", "L"], ordered=True)
    assert cells(rising, ["L", "XL"]).tolist() == ["S", "M", "L", "XL"]
    edges = cells(REAL["height"], FAKE["height"])
    due = np.linspace(*np.quantile(REAL["height"], [0.005, 0.995]), 21)
    np.testing.assert_allclose(edges, due)
    np.testing.assert_array_equal(cells(REAL["children"], FAKE["children"]), np.arange(7) - 0.5)
    # Without the outer half per cent on each side: 0 to 99, five years a bin.
    np.testing.assert_array_equal(cells(np.arange(100)), -0.5 + 5 * np.arange(21))
    infinite = cells([-np.inf, 0.5, 1.5, 2.5, np.inf], bins=4)
    assert np.isfinite(infinite).all()
    zoned = REAL[["joined"]].assign(joined=REAL["joined"].dt.tz_localize("Europe/Berlin"))
    assert MarginalsDisplay.from_frames(zoned, zoned).marginals[0].kind == "date"


def test_rare_categories_share_a_bar():
    towns = pd.DataFrame({"town": list("aaaaabbbbcccdde")})
    display = MarginalsDisplay.from_frames(towns, towns, max_categories=3)
    widths = [bar.get_width() for bar in display.artists_["town"][0]]
    np.testing.assert_allclose(widths, [5 / 15, 4 / 15, 6 / 15])


def test_pairs_by_total_variation_or_correlation():
    options = {"columns": ["town", "children"], "pairs": "total_variation"}
    display = MarginalsDisplay.from_frames(REAL, FAKE, **options)
    pairs = [marginal_total_variation(REAL[names], FAKE[names]) for names in [["town", "children"]]]
    alone = display.marginals[0].total_variation
    np.testing.assert_allclose(display.pairs.loc["town"], [alone, *pairs])
    np.testing.assert_allclose(display.pairs, display.pairs.T)
    np.testing.assert_array_equal(display.image_.get_array(), display.pairs)
    found = MarginalsDisplay.from_frames(REAL, FAKE, pairs="correlation").pairs
    numbers = ["height", "children"]
    pd.testing.assert_frame_equal(found, FAKE[numbers].corr() - REAL[numbers].corr())


def test_a_sampler_is_sampled():
    X = REAL[["height", "children"]]
    sampler = DPSlicedFlowSampler(epsilon=9.0, bounds=([100, 0], [250, 4]), n_steps=5).fit(X)
    display = MarginalsDisplay.from_estimator(sampler, X[:50], random_state=0)
    again = MarginalsDisplay.from_frames(X[:50], sampler.sample(1000, random_state=0))
    np.testing.assert_array_equal(display.marginals[0].synthetic, again.marginals[0].synthetic)
