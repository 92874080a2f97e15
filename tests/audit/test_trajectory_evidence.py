"""What the steps and starts of trajectories say about canaries."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from skdpot import PrivateTrajectorySampler
from skdpot.audit.attacks import default_score
from skdpot.audit.canaries import AuditedFit, AuditTask, default_canaries
from skdpot.release.langevin import clipped_fit_gradient, clipped_pulls
from skdpot.release.release import record_releases
from tests.flat_options import trajectory_sampler

pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")

N_PAIRS, N_FEATURES, N_TIMES = 40, 16, 4


def _score(audited: AuditedFit) -> np.ndarray:
    return default_score(audited.fitted)(audited)


def _sampler(**parameters: Any) -> PrivateTrajectorySampler:
    settings = {"mechanism": "mfld", "epsilon": np.inf, "schedule": [(1e-4, None, 3)]}
    settings |= {"bounds": (-1, 1), "n_particles": 8, "random_state": 0}
    return trajectory_sampler(**(settings | parameters))


def _known() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(-1, 1, size=(12, N_FEATURES))
    return X, 10.0 * (np.arange(12) % N_TIMES)


def _coins() -> np.ndarray:
    return np.random.default_rng(7).random(N_PAIRS) < 0.5


def _audited(sampler: PrivateTrajectorySampler, heads: np.ndarray) -> AuditedFit:
    X, t = _known()
    rng = np.random.default_rng(1)
    pairs = default_canaries(sampler, N_PAIRS, X, t, fit_params={}, rng=rng)
    return AuditTask(fit=sampler, pairs=pairs, X=X, y=t, fit_params={}).run(heads)


@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_pulls_are_what_the_mechanism_sums(clip: float) -> None:
    """But for a room of 1e-6 that the mechanism leaves below the clip."""
    rng = np.random.default_rng(0)
    particles, rows = rng.normal(size=(7, 3)), rng.normal(size=(20, 3))
    pulls = clipped_pulls(particles, rows, bandwidth=0.3, weight=1.7, clip=clip)
    total = clipped_fit_gradient(particles, rows, bandwidth=0.3, weight=1.7, clip=clip)
    np.testing.assert_allclose(pulls.sum(axis=0), total.ravel(), rtol=1e-5)
    for row, pull in zip(rows, pulls, strict=True):
        alone = clipped_fit_gradient(particles, row[None], bandwidth=0.3, weight=1.7, clip=clip)
        np.testing.assert_allclose(pull, alone.ravel(), rtol=1e-5)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"warm_start": "mean"}, {"warm_start": "kmeans"}, {"bounds": "private"}],
    ids=["steps", "means", "clusters", "bounds"],
)
def test_without_noise_all_coins_are_seen(parameters: dict) -> None:
    heads = _coins()
    scores = _score(_audited(_sampler(**parameters), heads))
    np.testing.assert_allclose(scores, np.where(heads, 1, -1), atol=0.05)


@pytest.mark.parametrize(
    ("kind", "start"),
    [("fit_gradients", "mean"), ("cluster_sums", "mean"), ("cluster_sums", "kmeans")],
)
def test_each_kind_of_release_counts(kind: str, start: str) -> None:
    heads = _coins()
    audited = _audited(_sampler(warm_start=start), heads)
    only = tuple(release for release in audited.releases if release.kind == kind)
    scores = _score(replace(audited, releases=only))
    assert ((scores > 0) == heads).mean() > 0.8
    assert np.all(_score(replace(audited, releases=())) == 0)


def test_tables_of_times_are_read_by_the_stamps_of_the_canaries() -> None:
    heads = _coins()
    sampler = _sampler(mechanism="sketch", n_projections=32, n_bins=8, schedule=[(1.0, None, 1)])
    scores = _score(_audited(sampler, heads))
    np.testing.assert_allclose(scores, np.where(heads, 1, -1), atol=0.05)


def test_the_score_is_read_from_the_releases_of_this_run() -> None:
    audited, other = (_audited(_sampler(), heads) for heads in (_coins(), ~_coins()))
    swapped = _score(replace(audited, releases=other.releases))
    np.testing.assert_array_equal(swapped > 0, ~_coins())


@pytest.mark.parametrize("start", [None, "mean", "kmeans"])
def test_recording_changes_nothing_and_shows_nothing_without_noise(start: str | None) -> None:
    X, t = _known()
    sampler = _sampler(epsilon=1.0, warm_start=start, n_clusters=2)
    plain = sampler.fit(X, t).particles_
    with record_releases() as releases:
        heard = sampler.fit(X, t)
    np.testing.assert_array_equal(plain, heard.particles_)
    rows, noise_of_means = X, []  # bounds (-1, 1) are the unit of particles
    for release in releases:
        facts = release.facts
        if release.kind == "fit_gradients":
            assert set(facts) == {
                "particles", "rate", "expected", "clip", "bandwidth", "weights",
            }  # fmt: skip
            noise = [
                release.value[i] * facts["expected"][i]
                - clipped_fit_gradient(
                    facts["particles"][i],
                    rows[t == stamp],
                    bandwidth=facts["bandwidth"],
                    weight=float(facts["weights"][i]),
                    clip=facts["clip"],
                )
                for i, stamp in enumerate(np.unique(t))
            ]
            assert np.std(noise) == pytest.approx(release.sigma, rel=0.25)
        else:
            assert set(facts) == {"centers", "plan", "time"}
            # Nobody's table of integers is recorded: counts have their noise.
            sums, counts = release.value
            assert np.abs(counts - np.rint(counts)).max() > 0
            if start == "mean":
                noise_of_means.append(sums[0] - rows[t == np.unique(t)[facts["time"]]].sum(axis=0))
                sigma = release.sigma
    if start == "mean":
        assert np.std(noise_of_means) == pytest.approx(sigma, rel=0.5)


def test_samplers_that_leave_out_rows_are_refused() -> None:
    X, t = _known()
    rng = np.random.default_rng(0)
    for sampler, facts in ((_sampler(n_time_subsample=2), {}), (_sampler(), {"groups": t})):
        with pytest.raises(ValueError, match="n_time_subsample=None and without groups"):
            default_canaries(sampler, 4, X, t, fit_params=facts, rng=rng)
