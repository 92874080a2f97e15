"""What noisy histograms, and medians without noise, say about canaries."""

from dataclasses import replace

import numpy as np
import pytest

from skdpot import SlicedSketch
from skdpot.audit.attacks import default_score
from skdpot.audit.canaries import AuditedFit, AuditTask, CanaryPairs, default_canaries
from skdpot.preprocessing import PrivateScaler
from skdpot.privacy.noise import lattice_noise
from skdpot.release.release import record_releases
from tests.flat_options import private_distance

pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")

N_PAIRS = 50


def _pairs(X: np.ndarray, n_pairs: int = N_PAIRS) -> CanaryPairs:
    rng = np.random.default_rng(1)
    return default_canaries(PrivateScaler(), n_pairs, X, None, fit_params={}, rng=rng)


def _score(audited: AuditedFit) -> np.ndarray:
    return default_score(audited.fitted)(audited)


def _histogram_score(audited: AuditedFit) -> np.ndarray:
    only = tuple(release for release in audited.releases if release.kind == "histogram")
    return _score(replace(audited, releases=only))


def _coins(n_pairs: int = N_PAIRS) -> np.ndarray:
    return np.random.default_rng(7).random(n_pairs) < 0.5


def _audited(fit: object, X: np.ndarray, heads: np.ndarray) -> AuditedFit:
    pairs = _pairs(X, len(heads))
    return AuditTask(fit=fit, pairs=pairs, X=X, y=None, fit_params={}).run(heads)


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw zeros for the histograms."""

    def zeros(*args: object, **options: object) -> np.ndarray:
        return np.zeros_like(lattice_noise(*args, **options))

    monkeypatch.setattr("skdpot.release.private_bounds.lattice_noise", zeros)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("n_features", [4, 40])
@pytest.mark.parametrize("fit", [PrivateScaler(), SlicedSketch(n_projections=4, n_bins=4)])
def test_tables_are_what_known_rows_and_coins_make_of_them(fit: object, n_features: int) -> None:
    heads = _coins()
    X = np.random.default_rng(0).uniform(-1, 1, size=(2000, n_features))
    audited = _audited(fit, X, heads)
    rows, shares = audited.candidates[0], audited.shares
    there = np.concatenate([np.ones(2000), heads, ~heads])
    histograms = [release for release in audited.releases if release.kind == "histogram"]
    # One histogram of norms, or two of every feature.
    is_norm = isinstance(fit, SlicedSketch) and n_features == 40
    assert len(histograms) == (1 if is_norm else 2 * n_features)
    for release in histograms:
        (part,) = release.parts((rows,), shares)
        left = part.value - part.center - part.rows.sum(there - shares)
        if part.exact:
            np.testing.assert_allclose(left, 0.0, atol=1e-9)
            assert np.any(part.rows.sum(there - shares) != 0.0)
        else:  # where two canaries are partners the mean over the other one's coin is taken
            assert np.abs(left).sum() < 0.2 * np.abs(part.value - part.center).sum()
    assert [release.facts["counting"].paired for release in histograms] == (
        [False] if is_norm else [True] * n_features + [False] * n_features
    )


def test_exact_medians_give_away_whose_they_are() -> None:
    heads = _coins()
    for n_known in (0, 1):
        X = np.random.default_rng(0).uniform(-1, 1, size=(n_known, 400))
        scores = _score(_audited(PrivateScaler(epsilon=np.inf), X, heads))
        found = scores != 0
        assert found.mean() > 0.9
        np.testing.assert_array_equal(scores[found] > 0, heads[found])


def test_nothing_is_known_of_a_scaler_that_publishes_no_medians() -> None:
    X = np.zeros((0, 10))
    scaler = PrivateScaler(epsilon=np.inf, with_centering=False)
    assert np.all(_score(_audited(scaler, X, _coins())) == 0)


def test_recording_changes_nothing_and_shows_nothing_without_noise() -> None:
    X = np.random.default_rng(0).normal(size=(500, 3))
    plain = PrivateScaler(random_state=3).fit(X)
    with record_releases() as releases:
        heard = PrivateScaler(random_state=3).fit(X)
    np.testing.assert_array_equal(plain.center_, heard.center_)
    np.testing.assert_array_equal(plain.scale_, heard.scale_)
    tables = [release for release in releases if release.kind == "histogram"]
    assert len(tables) == 6
    for table in tables:
        # Most cells are empty: what is in them is noise, of the scale that is charged.
        quiet = np.median(np.abs(table.value)) / 0.6745
        assert quiet == pytest.approx(table.sigma, rel=0.4)
        assert set(table.facts) == {"counting"}
    assert tables == releases


def test_bounds_of_something_else_are_left_out() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, size=(500, 3))

    def half(rows: np.ndarray, y: None) -> SlicedSketch:
        return SlicedSketch(n_projections=3, n_bins=4).fit(rows[: len(rows) // 2])

    assert np.all(_histogram_score(_audited(half, X, _coins())) == 0)


def test_declared_bounds_leave_no_histogram() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, size=(100, 3))
    fit = private_distance(bounds=(-1, 1), n_projections=3, n_bins=4)
    assert np.all(_histogram_score(_audited(fit, X, _coins())) == 0)
