"""What the picture of marginals counts and draws, kind by kind."""

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSlicedFlowSampler
from skdpot.metrics import MarginalsDisplay

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


def marginals(display):
    return {marginal.name: marginal for marginal in display.marginals}


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


def test_where_the_cells_are():
    found = marginals(MarginalsDisplay.from_frames(REAL, FAKE))
    assert found["town"].values.tolist() == ["Ulm", "Bonn", "Kiel", "Rom"]  # the frequent first
    mixed = pd.DataFrame({"mixed": [True, 1, "1", 1.0, None, "True", True]}, dtype=object)
    (one,) = MarginalsDisplay.from_frames(mixed, mixed).marginals
    assert one.values.tolist() == ["True", "1", "1.0"]
    rising = pd.DataFrame({"size": pd.Categorical(["M", "S"], ["S", "M", "L"], ordered=True)})
    other = pd.DataFrame({"size": ["L", "XL"]})
    (one,) = MarginalsDisplay.from_frames(rising, other).marginals
    assert one.values.tolist() == ["S", "M", "L", "XL"]
    edges = found["height"].values
    assert len(edges) == 21
    np.testing.assert_allclose(edges[[0, -1]], np.quantile(REAL["height"], [0.005, 0.995]))
    np.testing.assert_array_equal(found["children"].values, np.arange(7) - 0.5)
    ages = pd.DataFrame({"age": np.arange(100)})
    # Without the outer half per cent on each side: 0 to 99, five years a bin.
    (found,) = MarginalsDisplay.from_frames(ages, ages, bins=20).marginals
    np.testing.assert_array_equal(found.values, -0.5 + 5 * np.arange(21))
    infinite = pd.DataFrame({"x": [-np.inf, 0.5, 1.5, 2.5, np.inf]})
    (found,) = MarginalsDisplay.from_frames(infinite, infinite, bins=4).marginals
    assert np.isfinite(found.values).all()
    assert found.real.sum() == pytest.approx(1)
    zoned = REAL[["joined"]].assign(joined=REAL["joined"].dt.tz_localize("Europe/Berlin"))
    assert MarginalsDisplay.from_frames(zoned, zoned).marginals[0].kind == "date"


def test_rare_categories_share_a_bar():
    towns = pd.DataFrame({"town": list("aaaaabbbbcccdde")})
    display = MarginalsDisplay.from_frames(towns, towns, max_categories=3)
    widths = [bar.get_width() for bar in display.artists_["town"][0]]
    np.testing.assert_allclose(widths, [5 / 15, 4 / 15, 6 / 15])


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


def test_pairs_by_correlation():
    display = MarginalsDisplay.from_frames(REAL, FAKE, pairs="correlation")
    expected = (
        FAKE[["height", "children"]].corr().iloc[0, 1]
        - REAL[["height", "children"]].corr().iloc[0, 1]
    )
    assert list(display.pairs.columns) == ["height", "children"]
    assert display.pairs.iloc[0, 1] == pytest.approx(expected)


def test_a_sampler_is_sampled():
    X = REAL[["height", "children"]]
    sampler = DPSlicedFlowSampler(epsilon=9.0, bounds=([100, 0], [250, 4]), n_steps=5).fit(X)
    display = MarginalsDisplay.from_estimator(sampler, X[:50], random_state=0)
    again = MarginalsDisplay.from_frames(X[:50], sampler.sample(1000, random_state=0))
    np.testing.assert_array_equal(display.marginals[0].synthetic, again.marginals[0].synthetic)
