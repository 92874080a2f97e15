"""What noisy projections say about canaries."""

from dataclasses import replace

import numpy as np
import pytest

from skdpot.audit.attacks import default_score
from skdpot.audit.canaries import AuditedFit, AuditTask, antipodal_pairs
from tests.flat_options import flow_sampler

N_PAIRS, N_FEATURES = 60, 16


def _score(audited: AuditedFit) -> np.ndarray:
    return default_score(audited.fitted)(audited)


def _fitted(heads: np.ndarray, n_known: int = 5, **parameters: object) -> AuditedFit:
    """Fit with a seed, so that the tests have no false alarms."""
    settings = {"epsilon": np.inf, "n_steps": 12, "n_projections": 16} | parameters
    sampler = flow_sampler(bounds=(-1, 1), n_particles=4, random_state=0, **settings)
    rng = np.random.default_rng(0)
    pairs = antipodal_pairs(
        N_PAIRS, -np.ones(N_FEATURES), np.ones(N_FEATURES), rng=rng, corners=True
    )
    X = rng.uniform(-1, 1, size=(n_known, N_FEATURES))
    with pytest.warns(UserWarning, match="random_state"):
        return AuditTask(fit=sampler, pairs=pairs, X=X, y=None, fit_params={}).run(heads)


def _coins() -> np.ndarray:
    return np.random.default_rng(7).random(N_PAIRS) < 0.5


def _density(points: np.ndarray, place: float, sigma: float) -> np.ndarray:
    return np.exp(-((points - place) ** 2) / (2 * sigma**2))


@pytest.mark.parametrize("size", [10, 1])
def test_the_first_look_is_the_likelihood_ratio_of_the_documentation(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skdpot.audit.attacks._SWEEPS", 1)
    audited = _fitted(_coins(), mechanism="resample", batch_size=size, sigma=1.5, n_steps=1)
    release, bounds, pairs = audited.fitted.releases_, audited.fitted.bounds_, audited.pairs
    n = len(audited.X) + N_PAIRS
    records = bounds.to_ball(np.concatenate([pairs.first, pairs.second, audited.X]))
    shares = np.repeat([0.5, 0.5, 1.0], [N_PAIRS, N_PAIRS, len(audited.X)])
    scores = np.zeros(N_PAIRS)
    assert all(batch.values.shape[1] == size for batch in release.batches)
    for batch in release.batches:
        places = records @ batch.directions.T.astype(float)
        for i in range(N_PAIRS):
            others = np.ones(len(records), dtype=bool)
            others[[i, i + N_PAIRS]] = False
            likelihood = []
            for own in (places[i], places[i + N_PAIRS]):
                if size == 1:
                    joint = [np.prod(_density(batch.values[:, 0], p, 1.5)) for p in places]
                    own_joint = np.prod(_density(batch.values[:, 0], own, 1.5))
                    mixture = (shares * joint)[others].sum() / (n - 1)
                    ratio = own_joint / mixture
                else:
                    ratio = 1.0
                    for j, values in enumerate(batch.values):
                        densities = np.stack([_density(values, p, 1.5) for p in places[:, j]])
                        mixture = (shares[others] @ densities[others]) / (n - 1)
                        ratio *= np.mean(_density(values, own[j], 1.5) / mixture)
                likelihood.append(1 - size / n + size / n * ratio)
            scores[i] += np.log(likelihood[0] / likelihood[1])
    np.testing.assert_allclose(_score(audited), scores, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    "parameters",
    [
        {"mechanism": "presample"},
        {"mechanism": "resample", "batch_size": 20},
        {"mechanism": "resample", "batch_size": 20, "sampling": "poisson"},
    ],
    ids=["presample", "resample", "poisson"],
)
def test_without_noise_every_record_that_was_in_a_batch_is_found(parameters: dict) -> None:
    heads = _coins()
    scores = _score(_fitted(heads, **parameters))
    sure = np.abs(scores) > 1.0
    assert sure.mean() > 0.95
    np.testing.assert_array_equal(scores[sure] > 0, heads[sure])


def test_of_records_that_no_batch_held_nothing_is_known() -> None:
    audited = _fitted(_coins(), mechanism="resample", batch_size=1, n_steps=20)
    scores = _score(audited)
    # Twenty batches of one row show twenty rows at most, however sure they are of those.
    sure = np.abs(scores) > 1.0
    assert 5 < sure.sum() <= 20
    np.testing.assert_array_equal(scores[sure] > 0, _coins()[sure])


def test_the_score_is_read_from_the_release_of_this_run() -> None:
    audited = _fitted(_coins(), mechanism="presample")
    other = _fitted(~_coins(), mechanism="presample")
    swapped = _score(replace(audited, releases=other.releases))
    np.testing.assert_array_equal(swapped > 0, ~_coins())
