"""The generator: rows, classes, frames, releases, budgets, interruptions."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from torch import nn

from skdpot import DPSlicedGenerator, PrivacyBudget
from skdpot.estimators import _generator_mechanisms
from skdpot.exceptions import BudgetExceededError, PrivacyWarning
from skdpot.privacy.accounting import compose
from skdpot.privacy.data_bounds import DataBounds
from skdpot.slicing import orthogonal_directions, sliced_wasserstein_distance

RNG = np.random.default_rng(2203)
LABELS = np.array(["left", "right"])[(RNG.random(1500) < 0.25).astype(int)]
X = np.clip(
    np.where(LABELS == "left", -0.4, 0.5)[:, None] + 0.1 * RNG.normal(size=(1500, 3)), -1, 1
)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
SMALL = RNG.uniform(-0.9, 0.9, size=(60, 2))
MECHANISMS = ["sketch", "smoothing", "gradient"]
QUICK = {"bounds": (-1, 1), "n_slices": 12, "n_bins": 64, "n_steps": 10, "n_latents": 50}
ACCURATE = {"n_slices": 60, "n_steps": 250, "n_latents": 300}


def generator(mechanism="sketch", **changes):
    return DPSlicedGenerator(mechanism, **(QUICK | changes))


def distance(rows, others):
    return sliced_wasserstein_distance(
        rows, others, orthogonal_directions(30, rows.shape[1], np.random.default_rng(0))
    )


@pytest.fixture(scope="module")
def plain():
    return generator(epsilon=np.inf, **ACCURATE).fit(X)


@pytest.fixture(scope="module")
def conditional():
    return generator(epsilon=np.inf, conditional=True, **ACCURATE).fit(X, LABELS)


def test_samples_look_like_the_rows(plain):
    assert distance(plain.sample(1500), X) < 0.07
    np.testing.assert_allclose(np.corrcoef(plain.sample(4000).T), np.corrcoef(X.T), atol=0.08)


@pytest.mark.parametrize(
    ("mechanism", "options", "largest"),
    [
        ("sketch", {"n_slices": 60}, 0.12),
        ("smoothing", {"epsilon": np.inf, "batch_size": 300, "n_slices": 30}, 0.1),
        ("gradient", {"epsilon": np.inf, "batch_size": 300, "clip_jacobian": 3.0}, 0.15),
    ],
)
def test_every_mechanism_learns(mechanism, options, largest):
    """Before training the distance is about 0.4."""
    asked = {"epsilon": 5.0, "n_steps": 150, "n_latents": 300} | options
    fitted = generator(mechanism, **asked).fit(X)
    assert distance(fitted.sample(1500), X) < largest
    assert fitted.score(X) > -largest


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("bounds", [(-1, 1), "private"])
def test_a_private_fit_spends_what_it_says(mechanism, bounds):
    budget = PrivacyBudget(5.0)
    rows = np.tile(SMALL, (40, 1))  # enough for bounds to be found without a warning
    fitted = generator(mechanism, epsilon=3.0, bounds=bounds, budget=budget, batch_size=100)
    spent = fitted.fit(rows).privacy_spent_
    assert (spent.epsilon, spent.delta) == (3.0, 1e-5)
    assert len(budget.history()) == 1
    assert 2.0 < compose(spent.event).epsilon(1e-5) <= 3.0
    stated = " ".join(spent.assumptions)
    assert ("bounds given by the caller" in stated) == (bounds != "private")
    assert np.all(np.isfinite(fitted.sample(5)))
    assert len(budget.history()) == 1


@pytest.mark.parametrize("mechanism", ["smoothing", "gradient"])
def test_a_given_sigma_is_costed(mechanism):
    small, large = (
        generator(mechanism, sigma=sigma, batch_size=100).fit(X).privacy_spent_
        for sigma in (20.0, 200.0)
    )
    assert small.sigma == 20.0
    assert small.epsilon > 3 * large.epsilon
    assert small.epsilon == pytest.approx(compose(small.event).epsilon(1e-5), rel=1e-3)
    free = generator(mechanism, sigma=0.0).fit(X).privacy_spent_
    assert free.epsilon == np.inf
    with pytest.raises(ValueError, match="sigma"):
        generator(mechanism, sigma=1.0, bounds="private").fit(X)


def test_the_events_describe_the_batches():
    rows, d = 1500, 3
    smoothing, gradient = (
        generator(m, batch_size=100, n_slices=9).fit(X).privacy_spent_ for m in MECHANISMS[1:]
    )
    for spent in (smoothing, gradient):
        assert (spent.event.batch_sizes, spent.event.group_sizes) == ((100,), (rows,))
        assert spent.event.n_steps == 10
    # Box of side 2: radius √3; nine directions are three blocks.
    assert smoothing.sensitivity == pytest.approx(2 * np.sqrt(d) * np.sqrt(3), rel=5e-3)
    # In the network's units the radius is √3 too, and whole blocks gain a factor √3.
    assert gradient.sensitivity == pytest.approx(4.0, rel=1e-4)
    poisson = generator("smoothing", sampling="poisson", batch_size=100).fit(X)
    assert poisson.privacy_spent_.event.sampling_rate == pytest.approx(1 / 15)


def test_gradients_along_uniform_directions_cost_more():
    spent = generator("gradient", slices="uniform", sigma=50.0).fit(X).privacy_spent_
    assert 4.1 < spent.sensitivity <= 4.0 * np.sqrt(3) + 1e-6


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_refused_fit_changes_nothing(mechanism):
    budget = PrivacyBudget(1.2)
    fitted = generator(mechanism, budget=budget).fit(SMALL)
    before = dict(vars(fitted))
    with pytest.raises(BudgetExceededError, match="left"):
        fitted.fit(SMALL)
    assert vars(fitted) == before
    assert len(budget.history()) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_charge_comes_before_noise_and_rows(mechanism, monkeypatch):
    budget = PrivacyBudget(5.0)
    seen = []
    original = DataBounds.to_ball

    def spy(self, rows):
        seen.append(len(budget.history()))
        return original(self, rows)

    monkeypatch.setattr(DataBounds, "to_ball", spy)
    generator(mechanism, budget=budget).fit(SMALL)
    assert seen
    assert set(seen) == {1}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mechanism": "smoothing", "conditional": True}, "conditional=True needs"),
        ({"mechanism": "gradient", "conditional": True}, "conditional=True needs"),
        ({"mechanism": "smoothing", "slices": np.eye(3)}, "slices must be"),
        ({"mechanism": "gradient", "slices": np.eye(3)}, "slices must be"),
        ({"mechanism": "gradient", "sampling": "poisson"}, "fixed"),
        ({"mechanism": "sketch", "sigma": 1.0}, "sigma"),
        ({"mechanism": "sketch", "module": nn.Linear(3, 2)}, "module"),
        ({"mechanism": "smoothing", "module": nn.Linear(3, 2)}, "module"),
        ({"mechanism": "gradient", "module": nn.Linear(3, 2)}, "module"),
        (
            {
                "mechanism": "gradient",
                "module": nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
            },
            "BatchNorm",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_free_of_charge(options, text):
    budget = PrivacyBudget(5.0)
    with pytest.raises(ValueError, match=text):
        generator(**options, budget=budget).fit(X, LABELS)
    assert len(budget.history()) == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_own_modules(mechanism):
    """A function makes a module, or one is copied; the initial weights are not changed."""
    module = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))
    before = [p.detach().clone() for p in module.parameters()]
    options = {"epsilon": np.inf, "latent_dim": 2, "n_steps": 60, "learning_rate": 0.02}
    for given in (module, lambda: module):
        fitted = generator(mechanism, module=given, **options).fit(X)
        assert fitted.sample(4).shape == (4, 3)
        assert distance(fitted.sample(500), X) < 0.35
        if given is module:
            torch.testing.assert_close(before, list(module.parameters()))
            assert fitted.module is module


def test_a_module_sees_the_classes():
    seen = []

    class Recorder(nn.Linear):
        def forward(self, inputs):
            seen.append(inputs.detach().clone())
            return super().forward(inputs)

    fitted = generator(module=Recorder(7, 3), latent_dim=5, conditional=True)
    fitted.fit(X, LABELS).sample_labeled(3)
    for inputs in seen[2:]:
        torch.testing.assert_close(inputs[:, 5:].sum(dim=1), inputs.new_ones(len(inputs)))


def test_classes_have_their_own_rows_and_frequencies(conditional):
    """5000 draws; five standard errors of a frequency are 0.03."""
    rows, labels = conditional.sample_labeled(5000)
    assert np.mean(labels == "right") == pytest.approx(np.mean(LABELS == "right"), abs=0.031)
    for label in conditional.classes_:
        assert distance(rows[labels == label], X[LABELS == label]) < 0.06
    assert distance(conditional.sample(1500), X) < 0.2


def test_without_classes_there_are_no_labels(plain):
    with pytest.raises(ValueError, match="fitted with conditional=True"):
        plain.sample_labeled(3)
    refitted = generator(conditional=True).fit(X, LABELS).set_params(conditional=False).fit(X)
    assert not hasattr(refitted, "classes_")
    assert refitted.sample(3).shape == (3, 3)


@pytest.mark.parametrize("n_samples", [1, 700, np.int64(4000)])
def test_any_number_of_rows(plain, n_samples):
    rows = plain.sample(n_samples)
    assert rows.shape == (n_samples, 3)
    assert len(np.unique(rows, axis=0)) == n_samples
    assert np.all(np.abs(rows) <= 1 + 1e-9)


@pytest.mark.parametrize("n_samples", [0, 2.5, "3", None])
def test_the_number_must_be_a_positive_integer(plain, n_samples):
    with pytest.raises(ValueError, match="integer of at least 1"):
        plain.sample(n_samples)


def test_random_state_of_a_sample(plain):
    np.testing.assert_array_equal(plain.sample(7, random_state=3), plain.sample(7, random_state=3))
    assert not np.array_equal(plain.sample(7), plain.sample(7))


@pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_random_state_of_a_fit(mechanism):
    first, second, other = (generator(mechanism, random_state=s).fit(SMALL) for s in (5, 5, 6))
    rows = [fitted.sample(20, random_state=0) for fitted in (first, second, other)]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_a_seeded_fit_warns_once():
    with pytest.warns(PrivacyWarning, match="DPSlicedGenerator: `random_state`") as shown:
        generator(random_state=5).fit(SMALL)
    assert len(shown) == 1


def test_frames_in_frames_out():
    fitted = generator(epsilon=np.inf, conditional=True).fit(FRAME, pd.Series(LABELS))
    rows, labels = fitted.sample_labeled(5)
    assert isinstance(rows, pd.DataFrame)
    assert list(rows.columns) == ["a", "b", "c"]
    assert labels.shape == (5,)
    assert isinstance(fitted.sample(2), pd.DataFrame)
    assert isinstance(fitted.fit(X, LABELS).sample(2), np.ndarray)


def test_units_of_the_data_come_back():
    low, high = np.array([0, 1000, -5.0]), np.array([1, 3000, -4.0])
    rows = low + (high - low) * (X + 1) / 2
    fitted = generator(epsilon=np.inf, bounds=(low, high), **ACCURATE).fit(rows)
    sample = fitted.sample(1500)
    assert np.all((sample >= low - 1e-6) & (sample <= high + 1e-6))
    centred = np.abs(sample.mean(axis=0) - rows.mean(axis=0)) / (high - low)
    assert centred.max() < 0.05
    np.testing.assert_allclose(sample.std(axis=0) / rows.std(axis=0), 1, atol=0.15)


def test_norm_bound_keeps_samples_in_the_ball():
    fitted = generator("gradient", bounds="private", norm_bound=0.5).fit(X)
    assert np.linalg.norm(fitted.sample(1500), axis=1).max() <= 0.5 + 1e-9


def test_score_is_the_negative_distance(plain):
    assert plain.score(X) == pytest.approx(-distance(plain.sample(4000), X), abs=0.04)
    assert plain.score(X) > plain.score(X + 0.3)
    assert plain.score(X) == plain.score(X, LABELS)


@pytest.mark.parametrize("mechanism", ["sketch", "smoothing"])
def test_retraining_is_free(mechanism):
    budget = PrivacyBudget(5.0)
    fitted = generator(mechanism, budget=budget).fit(X)
    release, network = fitted.privacy_spent_, fitted.module_
    fitted.set_params(module=nn.Linear(2, 3), latent_dim=2).retrain()
    assert isinstance(fitted.module_, nn.Linear)
    assert fitted.sample(3).shape == (3, 3)
    assert fitted.module_ is not network
    assert fitted.privacy_spent_ is release
    assert len(budget.history()) == 1
    seeded = [fitted.retrain(random_state=1).sample(3, random_state=0) for _ in range(2)]
    np.testing.assert_array_equal(*seeded)


def test_gradients_cannot_be_retrained():
    with pytest.raises(ValueError, match="training steps"):
        generator("gradient").fit(SMALL).retrain()


@pytest.mark.parametrize("mechanism", ["sketch", "smoothing"])
def test_an_interrupt_in_training_keeps_what_was_paid_for(mechanism, monkeypatch):
    budget = PrivacyBudget(5.0)
    fitted = generator(mechanism, budget=budget).fit(X)
    old = fitted.privacy_spent_

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_generator_mechanisms, "train_generator", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit(X + 0.1)
    assert fitted.privacy_spent_ is not old
    assert not hasattr(fitted, "module_")
    assert fitted.sample(4).shape == (4, 3)
    assert len(budget.history()) == 2


def test_an_interrupt_while_gradients_are_released_leaves_the_last_fit(monkeypatch):
    budget = PrivacyBudget(5.0)
    fitted = generator("gradient", budget=budget).fit(SMALL)
    before = dict(vars(fitted))

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(_generator_mechanisms, "train_generator", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(SMALL)
    assert vars(fitted) == before
    assert len(budget.history()) == 2


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_nothing_without_noise_is_kept(mechanism):
    """Neither rows, nor their projections, nor anything of their number, nor a loss."""
    rows = np.random.default_rng(0).uniform(-1e5, 1e5, (61, 2))
    fitted = generator(mechanism, bounds=(-2e5, 2e5), batch_size=61, n_slices=2).fit(rows)
    content = pickle.dumps(fitted, protocol=5)
    mapped = rows / 2e5
    directions = getattr(fitted, "releases_", None)
    projected = [mapped]
    if directions is not None:
        projected += [mapped @ batch.directions.T for batch in directions.batches]
    for table in (rows, *projected):
        for kind in (np.float64, np.float32):
            for part in (*table, *table.T, *np.sort(table, axis=0).T):
                assert part[:4].astype(kind).tobytes() not in content
    assert b"loss" not in content.lower()
    for parameter in fitted.module_.parameters():
        assert parameter.grad is None
    loaded = pickle.loads(content)
    np.testing.assert_array_equal(
        loaded.sample(5, random_state=1), fitted.sample(5, random_state=1)
    )


@pytest.mark.parametrize("mechanism", ["smoothing", "gradient"])
def test_two_fits_have_other_noise(mechanism):
    first, second = (generator(mechanism, batch_size=1500).fit(X) for _ in range(2))
    if mechanism == "smoothing":
        assert not np.array_equal(
            first.releases_.batches[0].values, second.releases_.batches[0].values
        )
    assert not np.array_equal(first.sample(5, random_state=0), second.sample(5, random_state=0))


def test_a_release_a_step():
    fitted = generator("smoothing", batch_size=100).fit(X)
    assert len(fitted.releases_.batches) == fitted.n_steps_ == 10
    assert all(batch.values.shape == (12, 100) for batch in fitted.releases_.batches)
    fitted = generator("smoothing", batch_size=5, sampling="poisson", n_steps=12).fit(SMALL)
    assert fitted.n_steps_ == len(fitted.releases_.batches) <= 12


def test_default_steps_follow_a_public_rule():
    counts = {
        mechanism: [
            DPSlicedGenerator(mechanism, epsilon=np.inf, bounds=(-1, 1), n_slices=2).fit(r).n_steps_
            for r in (SMALL[:10], np.tile(SMALL, (5, 1)))
        ]
        for mechanism in MECHANISMS
    }
    assert counts == {"sketch": [60, 259], "smoothing": [60, 60], "gradient": [60, 60]}


def test_verbose_shows_steps_and_no_losses(capsys):
    generator(verbose=1).fit(SMALL)
    shown = capsys.readouterr().err
    assert "DPSlicedGenerator" in shown
    assert "10/10" in shown
    assert "loss" not in shown
    generator().fit(SMALL)
    output = capsys.readouterr()
    assert output.err == output.out == ""


def test_a_grid_search_charges_folds_times_candidates_and_the_refit():
    budget = PrivacyBudget(50.0)
    search = GridSearchCV(
        generator(budget=budget), {"learning_rate": [1e-3, 1e-2]}, cv=2, error_score="raise"
    ).fit(SMALL)
    assert len(budget.history()) == 5
    assert search.best_estimator_.sample(3).shape == (3, 2)


@pytest.mark.parametrize("method", ["sample", "sample_labeled", "score", "retrain"])
def test_an_unfitted_generator_says_so(method):
    with pytest.raises(AttributeError, match="not fitted yet"):
        getattr(DPSlicedGenerator(), method)(*([X] if method == "score" else []))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_cuda_is_refused_where_there_is_none(mechanism, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    budget = PrivacyBudget(5.0)
    with pytest.raises(ValueError, match="needs a GPU"):
        generator(mechanism, device="cuda", budget=budget).fit(SMALL)
    assert len(budget.history()) == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_gpu_agrees_with_the_cpu(mechanism):
    rows = [
        generator(mechanism, random_state=1, device=device).fit(X).sample(50, random_state=2)
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-3)
