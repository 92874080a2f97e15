"""The flow paper's mechanisms in the sampler: what they release, cost, keep and refuse."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpot import DPSlicedFlowSampler, PrivacyBudget
from skdpot._utils.validation import SecretStream
from skdpot.exceptions import BudgetExceededError
from skdpot.mechanisms import Presample, Resample
from skdpot.ot.flow import FlowSchedule, NumpyDrift
from skdpot.ot.slices import uniform_directions
from skdpot.ot.transport import sliced_wasserstein_distance
from skdpot.privacy import compose
from skdpot.privacy.events import NonPrivateEvent
from skdpot.release import rows as noisy_rows
from skdpot.release.bounds import DataBounds
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(8841)
LABELS = (RNG.random(600) < 0.25).astype(int)
X = np.clip(0.5 - LABELS[:, None] + 0.1 * RNG.normal(size=(600, 3)), -1, 1)
MECHANISMS = ("resample", "presample")
BOTH = pytest.mark.parametrize("mechanism", MECHANISMS)
QUICK = {"bounds": (-1, 1), "n_projections": 6, "n_steps": 4, "batch_size": 60, "n_particles": 80}
CHECKED = [
    flow_sampler("resample", n_steps=10, n_particles=300),
    flow_sampler("presample", n_steps=50, n_particles=300),
]
SEEDED = pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")


def sampler(mechanism, **changes):
    options = QUICK | changes
    if mechanism != "resample":
        del options["batch_size"]
    return flow_sampler(mechanism, **options)


def distance(rows, others):
    directions = uniform_directions(60, rows.shape[1], np.random.default_rng(0))
    return sliced_wasserstein_distance(rows, others, directions)


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": "resample", "batch_size": 200, "n_projections": 12},
        {"mechanism": "resample", "batch_size": 200, "sampling": "poisson", "n_projections": 12},
        {"mechanism": "presample", "n_projections": 30, "n_projections_per_step": 12},
        {"mechanism": "presample", "projections": "uniform", "n_projections": 30},
    ],
)
def test_without_noise_the_rows_come_back(options):
    """A start of spread 1 is 0.6 from the rows; means of 15 fits were 0.06 and at most 0.14.

    The last batches of 200 move the mean of a coordinate by 0.008 (standard deviation).
    """
    fitted = sampler(**({"epsilon": np.inf, "n_particles": 600, "n_steps": 60} | options)).fit(X)
    assert distance(fitted.particles_, X) < 0.3
    np.testing.assert_allclose(fitted.particles_.mean(axis=0), X.mean(axis=0), atol=0.06)
    assert fitted.privacy_spent_.epsilon == math.inf
    assert fitted.privacy_spent_.event == NonPrivateEvent()
    assert fitted.releases_.sigma == 0


@BOTH
def test_less_privacy_comes_nearer(mechanism):
    """Mean of three fits at each epsilon."""
    means = [
        np.mean(
            [
                distance(sampler(mechanism, epsilon=e, n_steps=20).fit(X).particles_, X)
                for _ in range(3)
            ]
        )
        for e in (0.1, 300.0)
    ]
    assert means[0] > 2 * means[1]


def test_resampling_releases_a_batch_a_step():
    fitted = sampler("resample", n_steps=5).fit(X)
    batches = fitted.releases_.batches
    assert [batch.values.shape for batch in batches] == [(6, 60)] * 5
    assert len({batch.directions.tobytes() for batch in batches}) == 5
    assert fitted.displacements_.shape == (1, 5)
    assert fitted.n_samples_ == 600


def test_presampling_releases_all_rows_once():
    fitted = sampler("presample", n_steps=5).fit(X)
    (batch,) = fitted.releases_.batches
    assert batch.values.shape == (6, 600)
    assert fitted.displacements_.shape == (1, 5)


def test_the_cost_of_presampling_does_not_depend_on_the_number_of_steps():
    few, many = (sampler("presample", n_steps=n).fit(X).privacy_spent_ for n in (1, 40))
    assert few.event == many.event
    assert getattr(few.event, "n_steps", 1) == 1


def test_each_step_of_resampling_costs():
    few, many = (sampler("resample", n_steps=n).fit(X).privacy_spent_ for n in (1, 16))
    assert many.sigma > 1.3 * few.sigma


@BOTH
def test_as_much_noise_is_drawn_as_is_charged(mechanism, monkeypatch):
    """A number for each row and direction of as many releases as the event counts."""
    drawn, draw = [], noisy_rows.lattice_noise

    def spy(sigma, shape, *args, **options):
        drawn.append((sigma, math.prod(shape)))
        return draw(sigma, shape, *args, **options)

    monkeypatch.setattr(noisy_rows, "lattice_noise", spy)
    event = sampler(mechanism, n_steps=5).fit(X).privacy_spent_.event
    n_rows = 60 if mechanism == "resample" else len(X)
    assert {sigma for sigma, _ in drawn} == {event.sigma}
    assert sum(count for _, count in drawn) == event.n_steps * 6 * n_rows


@BOTH
@pytest.mark.parametrize("projections", ["orthogonal", "uniform"])
def test_values_are_sorted_after_the_noise(mechanism, projections):
    for batch in sampler(mechanism, projections=projections).fit(X).releases_.batches:
        assert np.all(np.diff(batch.values, axis=1) >= 0)
        assert batch.values.dtype == batch.directions.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(batch.directions, axis=1), 1, atol=1e-6)


@BOTH
def test_the_default_slices_mean_orthogonal_ones(mechanism):
    for batch in sampler(mechanism).fit(X).releases_.batches:
        theta = batch.directions.astype(float)
        np.testing.assert_allclose(theta.T @ theta, 2 * np.eye(3), atol=1e-5)
        assert not np.array_equal(theta[:3], np.eye(3))


@pytest.mark.parametrize(
    ("mechanism", "n_features", "n_projections", "n_used"),
    [(Resample(batch_size=20), 2, 70, 70), (Presample(), 2, 31, 25), (Presample(), 40, 40, 32)],
)
def test_the_papers_numbers_of_slices_are_the_defaults(
    mechanism, n_features, n_projections, n_used, monkeypatch
):
    used, residual = set(), NumpyDrift.residual

    def watched(self, particles, batch, noise):
        used.add(len(batch.directions))
        return residual(self, particles, batch, noise)

    monkeypatch.setattr(NumpyDrift, "residual", watched)
    rows = RNG.uniform(-1, 1, (30, n_features))
    options = {"bounds": (-1, 1), "n_particles": 80, "n_steps": 2}
    fitted = DPSlicedFlowSampler(mechanism, **options).fit(rows)
    assert len(fitted.releases_.batches[0].directions) == n_projections
    assert used == {n_used}


@BOTH
@pytest.mark.parametrize(("step_size", "share"), [("auto", 0.375), (0.9, 0.9)])
def test_steps_are_those_of_the_paper(mechanism, step_size, share):
    """Euler-Maruyama with equal steps, whatever the parameter n_steps has become."""
    fitted = sampler(mechanism, step_size=step_size, diffusion=0.01).fit(X)
    schedule = fitted._schedule()
    assert schedule == FlowSchedule(4, share, 0.01, momentum=0.0, decay=False)
    longer = fitted.set_params(n_steps=9)._schedule()
    assert longer.n_steps == {"resample": 4, "presample": 9}[mechanism]


def test_steps_towards_a_sketch_are_as_before():
    fitted = sampler("sketch", n_bins=8).fit(X)
    assert fitted._schedule() == FlowSchedule(4)
    diffusing = fitted.set_params(diffusion=0.1, step_size=0.5)._schedule()
    assert diffusing == FlowSchedule(4, 0.5, 0.1, momentum=0.0)


def test_a_batch_holds_at_most_all_rows():
    fitted = flow_sampler("resample", bounds=(-1, 1), n_steps=3).fit(X[:40])
    assert [batch.values.shape for batch in fitted.releases_.batches] == [(70, 40)] * 3


def test_poisson_batches_may_be_small_or_empty():
    """20 fits of 8 steps with two rows on average: a step has none with probability e^-2.

    All 20 fits have the same number of steps with rows with probability below 1e-9, and one has
    none at all, which is refused, with probability 2e-6.
    """
    options = {"sampling": "poisson", "batch_size": 2, "n_steps": 8, "n_projections": 2}
    counts = set()
    for _ in range(20):
        fitted = sampler("resample", epsilon=np.inf, **options).fit(X[:40])
        assert fitted.displacements_.shape == (1, len(fitted.releases_.batches))
        counts.add(len(fitted.releases_.batches))
        assert np.all(np.isfinite(fitted.sample(100)))
    assert len(counts) > 1


@BOTH
def test_the_noise_of_a_release_is_drawn_once(mechanism, monkeypatch):
    """Flows of any number see the values of the release and no secret randomness."""
    fitted = sampler(mechanism).fit(X)
    released = {row.tobytes() for batch in fitted.releases_.batches for row in batch.values}
    seen, residual = set(), NumpyDrift.residual

    def watched(self, particles, batch, noise):
        seen.update(row.tobytes() for row in batch.quantiles)
        assert np.std(noise) == pytest.approx(fitted.releases_.sigma, rel=0.2)
        return residual(self, particles, batch, noise)

    def forbidden(self, n_bytes):
        raise AssertionError

    monkeypatch.setattr(NumpyDrift, "residual", watched)
    monkeypatch.setattr(SecretStream, "random_bytes", forbidden)
    before = pickle.dumps(fitted.releases_)
    for n_samples in (81, 500):
        fitted.sample(n_samples)
    assert seen
    assert seen <= released
    assert pickle.dumps(fitted.releases_) == before


def test_every_fit_draws_its_own_noise():
    first, second = (sampler("presample").fit(X).releases_.batches[0].values for _ in range(2))
    assert np.mean(first == second) < 0.05


@SEEDED
@BOTH
def test_seeds(mechanism):
    fits = [sampler(mechanism, random_state=seed).fit(X) for seed in (3, 3, 4)]
    values = [fitted.releases_.batches[0].values for fitted in fits]
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_array_equal(fits[0].particles_, fits[1].particles_)
    assert np.mean(values[0] == values[2]) < 0.05
    assert not np.array_equal(fits[0].particles_, fits[2].particles_)


@BOTH
@pytest.mark.parametrize("n_samples", [1, 80, 81, 700])
def test_any_number_of_rows(mechanism, n_samples):
    fitted = sampler(mechanism).fit(X)
    rows = fitted.sample(n_samples)
    assert rows.shape == (n_samples, 3)
    assert len(np.unique(rows, axis=0)) == n_samples or np.abs(rows).max() == 1
    assert np.abs(rows).max() <= 1 + 1e-6
    np.testing.assert_array_equal(
        fitted.sample(n_samples, random_state=1), fitted.sample(n_samples, random_state=1)
    )


@BOTH
@pytest.mark.parametrize("sigma", [0.5, 20.0])
def test_given_noise_reports_what_it_costs(mechanism, sigma):
    """The statement follows from its own event, whatever epsilon was asked for."""
    fitted = sampler(mechanism, sigma=sigma, epsilon=0.01).fit(X)
    spent = fitted.privacy_spent_
    assert fitted.releases_.sigma == spent.sigma == sigma
    assert spent.delta == 1e-5
    # The statement keeps a tenth of delta back; how exactly is not looked at here.
    exact = compose(spent.event)
    assert exact.epsilon(1e-5) <= spent.epsilon <= exact.epsilon(0.85e-5) * 1.01
    rows = X @ fitted.releases_.batches[0].directions.T.astype(float)
    values = fitted.releases_.batches[0].values
    assert values.std() == pytest.approx(math.hypot(rows.std(), sigma), rel=0.1)


@BOTH
def test_more_noise_costs_less(mechanism):
    low, high = (sampler(mechanism, sigma=s).fit(X).privacy_spent_.epsilon for s in (10.0, 30.0))
    assert high < low


@BOTH
def test_no_noise_has_no_guarantee(mechanism):
    fitted = sampler(mechanism, sigma=0).fit(X)
    assert fitted.privacy_spent_.epsilon == math.inf
    with pytest.raises(BudgetExceededError, match="left"):
        sampler(mechanism, sigma=0, budget=PrivacyBudget(1e6)).fit(X)


@BOTH
def test_given_noise_needs_public_bounds(mechanism):
    with pytest.raises(ValueError, match="bounds"):
        sampler(mechanism, sigma=1.0, bounds="private").fit(X)


@BOTH
def test_all_steps_are_charged_once(mechanism):
    budget = PrivacyBudget(5.0)
    fitted = sampler(mechanism, budget=budget, n_steps=7).fit(X)
    fitted.sample(300)
    fitted.score(X)
    assert len(budget.history()) == 1
    assert budget.history()["label"][0] == "DPSlicedFlowSampler"
    assert fitted.privacy_spent_.epsilon == 1.0


@BOTH
def test_the_charge_is_on_the_disk_before_noise_and_data(mechanism, tmp_path, monkeypatch):
    budget = PrivacyBudget(5.0, ledger=tmp_path / "ledger.sqlite")
    seen = {"noise": [], "rows": []}

    def watched(name, method):
        def spy(self, *args):
            seen[name].append(len(budget.history()))
            return method(self, *args)

        return spy

    monkeypatch.setattr(SecretStream, "random_bytes", watched("noise", SecretStream.random_bytes))
    monkeypatch.setattr(DataBounds, "to_ball", watched("rows", DataBounds.to_ball))
    sampler(mechanism, budget=budget).fit(X)
    for calls in seen.values():
        assert calls
        assert set(calls) == {1}


@BOTH
def test_a_refused_fit_changes_nothing(mechanism):
    fitted = sampler(mechanism).fit(X)
    before = dict(vars(fitted))
    fitted.set_params(budget=PrivacyBudget(0.1))
    with pytest.raises(BudgetExceededError, match="left"):
        fitted.fit(X)
    assert {name: v for name, v in vars(fitted).items() if name != "budget"} == {
        name: v for name, v in before.items() if name != "budget"
    }


@BOTH
def test_private_bounds_are_part_of_the_event(mechanism):
    rows = np.tile(X, (20, 1))
    fitted = sampler(mechanism, bounds="private", epsilon=5.0, batch_size=12_000).fit(rows)
    assert "bounds given by the caller" not in " ".join(fitted.privacy_spent_.assumptions)
    assert fitted.privacy_spent_.epsilon == 5.0
    assert not fitted.bounds_.box
    assert fitted.sample(5).shape == (5, 3)


@BOTH
def test_classes_need_a_sketch(mechanism):
    budget = PrivacyBudget(5.0)
    with pytest.raises(ValueError, match='conditional=True needs mechanism="sketch"'):
        sampler(mechanism, conditional=True, budget=budget).fit(X, LABELS)
    assert len(budget.history()) == 0


@BOTH
def test_own_directions_need_a_sketch(mechanism):
    with pytest.raises(ValueError, match="'projections' parameter of .*sample must be a str among"):
        sampler(mechanism, projections=np.eye(3)).fit(X)


@BOTH
def test_labels_are_ignored(mechanism):
    fitted = sampler(mechanism).fit(X, [object()] * len(X))
    assert not hasattr(fitted, "classes_")
    with pytest.raises(ValueError, match="fitted with conditional=True"):
        fitted.sample_labeled(3)


def test_a_refit_with_another_mechanism_forgets_the_first():
    fitted = sampler("sketch", n_bins=8, conditional=True).fit(X, LABELS)
    fitted.set_params(mechanism="presample", conditional=False).fit(X)
    for name in ("sketch_", "classes_", "particle_labels_"):
        assert not hasattr(fitted, name)
    assert fitted.sample(100).shape == (100, 3)
    fitted.set_params(mechanism="sketch").fit(X)
    assert not hasattr(fitted, "releases_")
    assert fitted.sample(100).shape == (100, 3)


@BOTH
def test_what_was_published_counts_and_not_the_parameter(mechanism):
    fitted = sampler(mechanism).fit(X).set_params(mechanism="sketch", n_steps=9)
    assert fitted.sample(100).shape == (100, 3)


@BOTH
def test_frames_in_frames_out(mechanism):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = sampler(mechanism).fit(frame)
    assert list(fitted.sample(4).columns) == ["a", "b", "c"]
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]
    assert not hasattr(fitted.fit(X), "feature_names_in_")


@BOTH
def test_units_of_the_data_come_back(mechanism):
    low, high = np.array([0, 1000, -5.0]), np.array([1, 3000, -4.0])
    rows = low + (high - low) * (X + 1) / 2
    options = {"epsilon": np.inf, "n_steps": 60, "n_particles": 600, "n_projections": 40}
    drawn = sampler(mechanism, bounds=(low, high), **options).fit(rows).sample(600)
    np.testing.assert_allclose(drawn.mean(axis=0), rows.mean(axis=0), atol=0.1 * (high - low).max())
    np.testing.assert_allclose(drawn.std(axis=0) / rows.std(axis=0), 1, atol=0.35)


@BOTH
def test_verbose_shows_progress_and_nothing_private(mechanism, capsys):
    sampler(mechanism, verbose=1).fit(X)
    shown = capsys.readouterr().err
    assert "flow" in shown
    assert "4/4" in shown
    sampler(mechanism).fit(X)
    output = capsys.readouterr()
    assert output.err == output.out == ""


@BOTH
def test_a_fitted_sampler_travels(mechanism):
    fitted = sampler(mechanism).fit(X)
    other = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(*(s.sample(200, random_state=1) for s in (fitted, other)))
    assert repr(clone(fitted).mechanism) == repr(fitted.mechanism) == repr(other.mechanism_)


@BOTH
def test_an_interrupted_flow_keeps_the_release(mechanism, monkeypatch):
    budget = PrivacyBudget(5.0)
    interrupted = sampler(mechanism, budget=budget)

    def broken(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(NumpyDrift, "residual", broken)
        with pytest.raises(KeyboardInterrupt):
            interrupted.fit(X)
    assert interrupted.privacy_spent_.epsilon == 1.0
    assert not hasattr(interrupted, "particles_")
    assert interrupted.sample(5).shape == (5, 3)
    assert interrupted.particles_.shape == (80, 3)
    assert len(budget.history()) == 1
