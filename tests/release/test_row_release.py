"""The release of noisy projections: charged first, noised once, in no row's order."""

import math

import numpy as np
import pytest

from skdpot import PrivacyBudget
from skdpot._utils.validation import SecretStream, Streams
from skdpot.exceptions import BudgetExceededError
from skdpot.mechanisms import FitContext, Resample
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import ComposedEvent, GaussianEvent
from skdpot.release import rows as noisy_rows
from skdpot.release.bounds import ball_radius
from skdpot.release.rows import project_rows

LEVEL = 1e-4


def _streams(seed=0):
    return Streams(SecretStream(seed), np.random.default_rng(seed), np.random.default_rng(seed))


def _rows(n=300, d=3, seed=0):
    rows = np.random.default_rng(seed).standard_normal((n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _release(rows=None, *, epsilon=None, seed=0, streams=None, **options):
    shape = {name: options.pop(name) for name in list(options) if name in SHAPE}
    if epsilon is None:  # a given sigma saves the time of a calibration
        shape = {"sigma": 2.0} | shape
    shape = {"n_steps": 4, "n_projections": 6, "batch_size": 20} | shape
    rows = _rows() if rows is None else rows
    given = {"source": None, "budget": None, "bounds": "private", "norm_bound": 1.0} | options
    given |= {"caller": "flow", "epsilon": epsilon or 1.0, "delta": 1e-5}
    context = FitContext(streams=streams or _streams(seed), **given)
    mechanism = Resample(**{name: shape.pop(name) for name in OWN if name in shape})
    return mechanism._noisy_rows(context, rows, **shape)


OWN = ("projections", "sigma", "noise")
SHAPE = ("n_steps", "n_projections", "batch_size", "projections", "sampling", "sigma", "noise")


@pytest.mark.parametrize("noise", ["discrete", "float"])
@pytest.mark.parametrize("projections", ["orthogonal", "uniform"])
def test_shapes_types_and_order(projections, noise):
    release = _release(projections=projections, noise=noise)
    assert len(release.value.batches) == 4
    for batch in release.value.batches:
        assert batch.directions.shape == (6, 3)
        assert batch.values.shape == (6, 20)
        assert batch.directions.dtype == batch.values.dtype == np.float32
        assert np.all(np.diff(batch.values, axis=1) >= 0)
        assert np.linalg.norm(batch.directions, axis=1) == pytest.approx(np.ones(6), abs=1e-6)
    assert release.value.sigma == release.privacy_spent.sigma
    first, second = release.value.batches[:2]
    assert not np.array_equal(first.directions, second.directions)


def test_without_noise_the_values_are_projections_of_a_batch():
    rows = _rows(50)
    release = _release(
        rows, sigma=0, projections="uniform", n_steps=20, batch_size=7, norm_bound=2.0
    )
    members = []
    for batch in release.value.batches:
        projected = (2 * project_rows(rows, batch.directions, 2.0)).astype(np.float32)
        held = [np.flatnonzero(np.isin(p, v)) for p, v in zip(projected, batch.values, strict=True)]
        assert all(np.array_equal(held[0], other) for other in held)  # the same rows everywhere
        assert len(held[0]) == 7
        members.append(tuple(held[0]))
    assert len(set(members)) > 15  # fresh at every step
    assert release.value.sigma == 0.0


def test_private_bounds_scale_the_noise():
    rows = 7.0 + 2.0 * np.random.default_rng(1).standard_normal((5000, 3))
    release = _release(
        rows, bounds="private", norm_bound=None, batch_size=None, n_steps=1, epsilon=5.0
    )
    spent = release.privacy_spent
    assert isinstance(spent.event, ComposedEvent)
    assert isinstance(spent.event.events[-1], GaussianEvent)
    assert release.bounds.radius == ball_radius(3)
    assert release.value.sigma == pytest.approx(spent.sigma * release.bounds.radius)
    assert "shares of the radius" in spent.mechanism
    assert np.abs(release.bounds.center - 7.0).max() < 1.5
    # The mean projection is that of the mapped rows, which are centred.
    (batch,) = release.value.batches
    error = release.value.sigma / math.sqrt(5000)
    mapped = release.bounds.to_ball(rows) @ batch.directions.T
    assert np.abs(batch.values.mean(axis=1) - mapped.mean(axis=0)).max() < 5 * error


def test_given_sigma_is_stated_with_its_cost():
    release = _release(sigma=2.5)
    spent = release.privacy_spent
    assert release.value.sigma == spent.sigma == 2.5
    exact = compose(spent.event).epsilon(1e-5)
    assert exact <= spent.epsilon <= exact * (1 + 1e-6)
    assert spent.epsilon > 1.5  # the target's epsilon of 1 has no say
    silent = _release(sigma=0)
    assert silent.privacy_spent.epsilon == math.inf
    with pytest.raises(BudgetExceededError):
        _release(sigma=0, budget=PrivacyBudget(epsilon=100.0, delta=1e-5))


@pytest.mark.parametrize("sampling", ["without_replacement", "poisson"])
def test_batches_are_as_large_as_is_charged(sampling):
    """Of 400 Poisson samples the mean size is within 5.5 standard deviations: one in 10^7."""
    release = _release(sampling=sampling, n_steps=400, n_projections=1, noise="float")
    event = release.privacy_spent.event
    sizes = np.array([batch.values.shape[1] for batch in release.value.batches])
    assert len(sizes) == event.n_steps
    if sampling == "without_replacement":
        assert (set(sizes.tolist()), event.group_sizes) == ({event.batch_sizes[0]}, (300,))
    else:
        expected = event.sampling_rate * event.n_samples
        assert abs(sizes.mean() - expected) < 5.5 * math.sqrt(expected / len(sizes))


def test_empty_samples_are_left_out():
    release = _release(sampling="poisson", batch_size=1, n_steps=60)
    batches = release.value.batches
    assert all(batch.values.shape[1] > 0 for batch in batches)
    assert 25 <= len(batches) <= 50  # 38 expected, standard deviation 3.7


def test_nothing_but_empty_samples_is_an_error(monkeypatch):
    empty = np.empty(0, dtype=np.intp)
    monkeypatch.setattr(noisy_rows, "poisson_batches", lambda *args: iter([empty] * 4))
    with pytest.raises(ValueError, match="Every Poisson sample came out empty"):
        _release(sampling="poisson")


def test_rows_outside_the_ball_are_shortened():
    rows = np.full((40, 3), 1e30)
    (batch,) = _release(rows, epsilon=math.inf, batch_size=None, n_steps=1).value.batches
    assert np.abs(batch.values).max() <= 1.0


@pytest.mark.parametrize("noise", ["discrete", "float"])
def test_the_worst_record_moves_a_truncated_block_by_the_sensitivity(noise):
    """20 directions in 8 dimensions are two blocks and a half: the half counts as a whole.

    One row, so that sorting moves nothing; it lies in the span of the half block.
    """
    options = {"batch_size": None, "n_steps": 1, "n_projections": 20, "noise": noise, "sigma": 20.0}
    (batch,) = _release(_rows(1, 8), **options).value.batches
    worst = np.linalg.svd(batch.directions.astype(float))[2][:1]
    one, two = (_release(sign * worst, **options) for sign in (1, -1))
    first, second = (r.value.batches[0].values.astype(float) for r in (one, two))
    stated = one.privacy_spent.sensitivity
    assert 0.99 * stated < np.linalg.norm(first - second) <= stated * (1 + 1e-6)
