"""What networks release while they are trained, and how attacks read it."""

import dataclasses
import math
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn

from skdpot import (
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivateSWAutoencoder,
)
from skdpot.audit.attacks import default_score
from skdpot.audit.canaries import AuditTask, CanaryPairs, default_canaries
from skdpot.audit.gaussian import gaussian_audit
from skdpot.audit.matched_filter import EvidenceSum
from skdpot.privacy import noise
from skdpot.release import gradients as noisy_sums
from skdpot.release.gradients import gradients_of_vectors, pulled_back_sum, shares_of_vectors
from tests.flat_options import made, sliced_generator

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
]

N_PAIRS = 60
BOX = (-1.0, 1.0)
COMMON = {"n_steps": 3, "learning_rate": 1e-4, "random_state": 0}
AUTOENCODER = {"latent_dim": 4, "bounds": BOX, "batch_size": 1000} | COMMON
FAIR = {"batch_fraction": 1.0} | COMMON
RANKS = FAIR | {"mechanism": "ranks"}


def autoencoder(epsilon, **parameters):
    return made(PrivateSWAutoencoder, epsilon=epsilon, **(AUTOENCODER | parameters))


def classifier(epsilon, **parameters):
    return made(FairPrivateClassifier, epsilon=epsilon, **(FAIR | parameters))


def regressor(epsilon, **parameters):
    return made(FairPrivateRegressor, epsilon=epsilon, **(FAIR | parameters))


def generator(epsilon, **parameters):
    settings = {"bounds": BOX, "batch_size": 1000, "n_latents": 16} | COMMON | parameters
    return sliced_generator("gradient", epsilon, **settings)


# Maker by epsilon, number of features, what y is.
CASES = {
    "autoencoder": (autoencoder, 64, None),
    "autoencoder, half": (lambda e: autoencoder(e, batch_size=32, n_steps=12), 64, None),
    "autoencoder, prior": (lambda e: autoencoder(e, penalty="prior"), 64, None),
    "autoencoder, parity": (lambda e: autoencoder(e, penalty="parity"), 64, None),
    "autoencoder, conv": (
        lambda e: autoencoder(e, architecture="conv", image_shape=(8, 8)),
        64,
        None,
    ),
    "generator": (generator, 16, None),
    "classifier": (classifier, 80, "classes"),
    "classifier, tuned": (lambda e: classifier(e, tune_threshold=True), 80, "classes"),
    "classifier, half": (lambda e: classifier(e, batch_fraction=0.5, n_steps=12), 160, "classes"),
    "classifier, ranks": (lambda e: classifier(e, **RANKS), 80, "classes"),
    "classifier, odds": (lambda e: classifier(e, fairness="equalized_odds"), 80, "classes"),
    "classifier, odds by ranks": (
        lambda e: classifier(e, **RANKS, fairness="equalized_odds"),
        80,
        "classes",
    ),
    "regressor": (lambda e: regressor(e, target_bounds=BOX), 80, "targets"),
    "regressor, bounds": (regressor, 80, "targets"),
    "regressor, ranks": (lambda e: regressor(e, **RANKS, target_bounds=BOX), 80, "targets"),
}
every_case = pytest.mark.parametrize("case", CASES)


def task_of(case, epsilon):
    make, n_features, kind = CASES[case]
    rng = np.random.default_rng(1)
    X = rng.uniform(*BOX, size=(4, n_features))
    y = {None: None, "classes": np.array([0, 0, 1, 1]), "targets": np.linspace(*BOX, 4)}[kind]
    facts = {"sensitive_features": np.array([0, 1, 0, 1])}
    if kind is None and "parity" not in case:
        facts = {}
    estimator = make(epsilon)
    pairs = default_canaries(estimator, N_PAIRS, X, y, fit_params=facts, rng=rng)
    return AuditTask(fit=estimator, pairs=pairs, X=X, y=y, fit_params=facts)


HEADS = np.random.default_rng(2).random(N_PAIRS) < 0.5


def n_right(audited):
    """Count right guesses among the surer half."""
    scores = default_score(audited.fitted)(audited)
    surest = np.argsort(-np.abs(scores))[: N_PAIRS // 2]
    return int(((scores > 0) == HEADS)[surest].sum())


def steps_of(releases):
    return [release for release in releases if release.kind == "gradient"]


# --- what is recorded ----------------------------------------------------------------------------


@every_case
def test_listening_changes_nothing(case):
    task = task_of(case, 1.0)
    rows, labels = task.pairs.choose(HEADS)
    X = np.concatenate([task.X, rows])
    y = None if labels is None else np.concatenate([task.y, labels])
    names = task.fit_params
    facts = {k: np.concatenate([names[k], task.pairs.fit_params[k]]) for k in names}

    def parameters(fitted):
        networks = [getattr(fitted, name, None) for name in ("encoder_", "module_", "network_")]
        (network,) = [network for network in networks if network is not None]
        return [p.detach().numpy() for p in network.parameters()]

    deaf = parameters(task.fit.fit(X, y, **facts))
    listened = parameters(task.run(HEADS).fitted)
    for one, other in zip(deaf, listened, strict=True):
        np.testing.assert_array_equal(one, other)


PUBLIC = {"parameters", "plan", "loss", "directions"}


@every_case
def test_what_is_recorded_has_its_noise_and_nothing_of_batches(case, monkeypatch):
    """The gradient less the private sum is noise of the recorded scale, entry by entry."""
    sums, release = [], noisy_sums.release_gradient

    def spy(network, total, plan, *rest):
        sums.append([value.clone() / plan.batch_size for value in total.values()])
        release(network, total, plan, *rest)

    for module in ("nets.autoencoder_training", "mechanisms.fair", "nets.generator_training"):
        monkeypatch.setattr(f"skdpot.{module}.release_gradient", spy)
    audited = task_of(case, 1.0).run(HEADS)
    steps = steps_of(audited.releases)
    assert len(steps) == len(sums) == audited.fitted.n_steps_
    spent = audited.fitted.privacy_spent_
    for step, total in zip(steps, sums, strict=True):
        facts, pairs = step.facts, zip(step.value, total, strict=True)
        noise = np.concatenate([(value - true.numpy()).ravel() for value, true in pairs])
        assert step.sigma == pytest.approx(facts["plan"].sigma / facts["plan"].batch_size)
        assert np.count_nonzero(noise) == noise.size
        # Six standard errors; the seed is fixed anyway.
        assert np.std(noise) == pytest.approx(step.sigma, rel=6 / math.sqrt(noise.size))
        extra = {"cells", "tables", "penalty", "inputs", "clip_jacobian"}
        assert set(facts) <= PUBLIC | extra
    assert steps[0].facts["plan"].sigma == pytest.approx(spent.sigma)
    assert all(r.sigma > 0 for r in audited.releases if r.kind == "table")


def test_tables_are_recorded_with_their_noise():
    kinds = [release.kind for release in task_of("classifier, tuned", 1.0).run(HEADS).releases]
    # Two tables between the steps, and two for the threshold with the number of a class.
    of_steps = ["gradient", "table", "gradient", "table", "gradient"]
    assert kinds == [*of_steps, "table", "table", "class_count"]


def test_recorded_parameters_are_those_before_the_step():
    audited = task_of("classifier", math.inf).run(HEADS)
    first, second, _ = steps_of(audited.releases)
    assert all(np.all(value == 0) for value in first.facts["parameters"])  # of the linear network
    # Adam's first step moves every parameter by the learning rate against its gradient.
    moved = second.facts["parameters"][0]
    np.testing.assert_allclose(moved, -1e-4 * np.sign(first.value[0]), rtol=1e-3)


# --- scores --------------------------------------------------------------------------------------


@every_case
def test_without_noise_the_surer_half_is_guessed(case):
    assert n_right(task_of(case, math.inf).run(HEADS)) >= 29


@every_case
def test_scores_come_from_the_noisy_gradients_and_tables(case):
    """Gradients with their entries shuffled, and tables too, tell nothing."""
    audited = task_of(case, math.inf).run(HEADS)
    rng = np.random.default_rng(0)

    def shuffled(release):
        if release.kind == "table":
            return dataclasses.replace(release, value=rng.permutation(release.value, axis=-1))
        if release.kind != "gradient":
            return release
        parts = (rng.permutation(part.ravel()).reshape(part.shape) for part in release.value)
        return dataclasses.replace(release, value=tuple(parts))

    releases = tuple(shuffled(release) for release in audited.releases)
    assert n_right(dataclasses.replace(audited, releases=releases)) <= 25


@pytest.mark.parametrize("case", ["autoencoder", "classifier", "classifier, ranks", "generator"])
def test_enough_noise_hides_the_coins(case):
    assert n_right(task_of(case, 0.01).run(HEADS)) <= 25


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1, 10])
def test_many_runs_refute_a_generator_with_a_tenth_of_the_noise(factor, monkeypatch):
    """With the right noise at 99.9999 %: its trials are few enough for a false alarm otherwise."""
    draw = noise.lattice_noise
    monkeypatch.setattr(
        noise,
        "lattice_noise",
        lambda sigma, *rest, **options: draw(sigma / factor, *rest, **options),
    )
    attacked = generator(1.0, n_steps=1, random_state=None)
    X = np.random.default_rng(0).uniform(*BOX, size=(30, 1))
    pairs = CanaryPairs(first=np.ones((1, 1)), second=-np.ones((1, 1)))
    result = gaussian_audit(attacked, X, canaries=pairs, n_trials=40)
    confidence = 0.999 if factor > 1 else 1 - 1e-6
    assert (result.gaussian_epsilon_lower_bound(confidence) > result.epsilon) == (factor > 1)


def test_canaries_differ_in_what_is_protected_only():
    for case in CASES:
        pairs = task_of(case, 1.0).pairs
        same_rows = np.array_equal(pairs.first, pairs.second)
        if pairs.first_labels is None or "odds" in case:
            np.testing.assert_allclose(pairs.first, -pairs.second)
            assert pairs.first_labels is None or np.all(pairs.first_labels == pairs.second_labels)
        else:
            assert same_rows
            assert np.all(pairs.first_labels != pairs.second_labels)


def test_what_claims_nothing_is_refused():
    X = np.zeros((4, 8))
    with pytest.raises(ValueError, match="private=False claims no privacy"):
        default_canaries(autoencoder(1.0, private=False), 3, X, rng=np.random.default_rng(0))


def test_several_targets_are_refused():
    with pytest.raises(ValueError, match="a single target"):
        default_canaries(
            regressor(1.0), 3, np.zeros((4, 8)), np.zeros((4, 2)), rng=np.random.default_rng(0)
        )


# --- contributions -------------------------------------------------------------------------------


class Residual(nn.Module):
    """Not a chain of layers: goes through torch.func."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 5)
        self.outer = nn.Linear(5, 2, bias=False)

    def forward(self, rows):
        return self.outer(rows + torch.tanh(self.inner(rows)))


def chain():
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))


@pytest.fixture(params=[chain, Residual])
def network(request):
    torch.manual_seed(0)  # noqa: TID251
    return request.param().double()


@pytest.fixture
def rows():
    return torch.from_numpy(np.random.default_rng(0).normal(size=(7, 5)))


def alone(network, rows, vectors, **options):
    """What each row adds to a sum, by a sum of it alone."""
    sums = [pulled_back_sum(network, row[None], vectors, **options) for row in rows]
    return np.stack([np.concatenate([v.ravel() for v in one.values()]) for one in sums])


def test_vectors_are_what_the_sums_add(network, rows):
    def vectors(outputs, gram, records):
        return outputs * shares_of_vectors(outputs, gram, 0.5)[:, None]

    own, expected = gradients_of_vectors(network, rows, vectors), alone(network, rows, vectors)
    np.testing.assert_allclose(own.gram(), expected @ expected.T, atol=1e-12)
    np.testing.assert_allclose(own.inner(expected[0]), expected @ expected[0], atol=1e-12)
    np.testing.assert_allclose(own.sum(np.arange(7.0)), np.arange(7.0) @ expected, atol=1e-12)
    mixed, weights = own.plus(own, 0.25), np.eye(7)[3]
    np.testing.assert_allclose(mixed.gram(), expected @ expected.T, atol=1e-12)
    np.testing.assert_allclose(mixed.sum(weights), expected[3], atol=1e-12)


@pytest.mark.parametrize("case", ["autoencoder", "autoencoder, conv"])
def test_reconstruction_gradients_are_what_a_step_adds(case):
    assert residuals(case) <= 1e-4


def residuals(case, **parameters):
    """The largest relative residual of released sums where both records of each pair are equal."""
    task = task_of(case, math.inf)
    task.fit.set_params(**parameters)
    same = dataclasses.replace(
        task.pairs, second=task.pairs.first, second_labels=task.pairs.first_labels
    )
    found = []

    def add(self, gram, inner, *rest):
        found.append(np.abs(inner).max() / np.abs(gram).max())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvidenceSum, "add_batch", add)
        audited = dataclasses.replace(task, pairs=same).run(HEADS)
        with suppress(np.linalg.LinAlgError):  # nothing was added
            default_score(audited.fitted)(audited)
    assert len(found) == 3
    return max(found)


# Twice in the expected batch, a known row is matched as its first copy is, not as both are.
@pytest.mark.parametrize(("case", "room"), [("classifier", 1e-4), ("classifier, ranks", 0.06)])
def test_the_expected_sum_of_fair_training_is_the_released_one(case, room):
    """Known rows alone, in one batch, give the sum that their contributions add up to."""
    assert residuals(case, mechanism__learning_rate=0.1, alpha=0.9) <= room


def test_the_gradient_of_a_generator_is_nearly_a_sum_over_rows():
    audited = task_of("generator", math.inf).run(HEADS)
    first = steps_of(audited.releases)[0]
    rows = audited.fitted.bounds_.to_units(audited.candidates[0])
    (part,) = first.parts((rows, None), audited.shares)
    chosen = np.concatenate([np.ones(4), HEADS, ~HEADS])
    difference = part.value - part.center
    linear = part.rows.sum(chosen - audited.shares)
    assert np.sum((difference - linear) ** 2) < 0.05 * np.sum(difference**2)


# --- the estimate --------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("noise_scale", [0.1, 3.0])
def test_the_estimate_is_that_of_least_error(rate, noise_scale):
    rng = np.random.default_rng(0)
    m, n, p = 5, 2, 9
    g = rng.normal(size=(n + 2 * m, p))
    rates = np.full(len(g), rate)
    residual = rng.normal(size=p)
    evidence = EvidenceSum(m)
    evidence.add_batch(g @ g.T, g @ residual, noise_scale, rates)
    shares = np.concatenate([np.ones(n), np.full(2 * m, 0.5)])
    covariance = noise_scale**2 * np.eye(p) + (g.T * (shares * rate * (1 - rate))) @ g
    half = rate * (g[n : n + m] - g[n + m :]) / 2
    expected = half @ np.linalg.solve(covariance + half.T @ half, residual)
    np.testing.assert_allclose(evidence.scores(), expected, rtol=1e-6)


def test_releases_add_up():
    """Two releases are worth one of both side by side."""
    rng = np.random.default_rng(0)
    g, residual = rng.normal(size=(8, 6)), rng.normal(size=6)
    apart, together = EvidenceSum(4), EvidenceSum(4)
    for part in (slice(0, 2), slice(2, 6)):
        block = g[:, part]
        apart.add_batch(block @ block.T, block @ residual[part], 0.5, np.ones(8))
    together.add_batch(g @ g.T, g @ residual, 0.5, np.ones(8))
    np.testing.assert_allclose(apart.scores(), together.scores(), rtol=1e-9)


def test_expected_batches_count_known_rows_twice():
    codes = np.tile([1, 0], 62)
    shares = np.concatenate([np.ones(4), np.full(120, 0.5)])
    order, places, sizes = noisy_sums.expected_batch(codes, shares)
    assert sizes == (64, 64)
    assert np.array_equal(order[places], np.arange(len(places)))
    counts = np.bincount(order)
    assert np.all(counts[:4] == 2)
    assert np.all(counts[4:] == 1)
    assert np.all(np.diff(codes[order]) >= 0)
    assert noisy_sums.expected_batch(codes, np.ones(124))[2] == (62, 62)
