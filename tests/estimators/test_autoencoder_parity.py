"""PrivateSWAutoencoder(penalty="parity"): groups, what they cost, and what they get for it."""

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpot import PrivacyBudget, PrivateSWAutoencoder
from skdpot._utils.validation import SecretStream
from skdpot.datasets import make_biased_classification
from skdpot.exceptions import PrivacyWarning
from skdpot.nets import training
from skdpot.ot.slices import orthogonal_directions
from skdpot.ot.transport import sliced_wasserstein_distance
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.release.bounds import DataBounds
from tests.flat_options import flow_sampler, made

RNG = np.random.default_rng(8841)
X = np.tanh(RNG.normal(size=(300, 2)) @ RNG.normal(size=(2, 6)))
GROUPS = np.where(np.arange(300) % 5 < 3, "b", "a")  # 180 and 120
X[GROUPS == "b"] += 0.5


def autoencoder(**changes):
    options = {"latent_dim": 2, "bounds": (-2, 2), "n_steps": 5, "batch_size": 60}
    return made(PrivateSWAutoencoder, penalty="parity", **(options | changes))


def fitted(groups=GROUPS, **changes):
    return autoencoder(**changes).fit(X, sensitive_features=groups)


# What a fit costs


def within_rounding(sensitivity):
    """Rounding sums to the lattice of the noise adds at most 1/512."""
    return pytest.approx(sensitivity * (1 + 1 / 1024), rel=1 / 1000)


@pytest.mark.parametrize(
    ("groups", "options", "expected"),
    [
        (GROUPS, {"alpha": 0.3, "clip": 1.5, "clip_jacobian": 0.7},
         0.7 * 2 * 1.5 + 0.3 * 60 * 4 * 2 * 0.7 / 24),
        (GROUPS, {"normalize_codes": False, "clip_output": 3.0, "alpha": 0.3},
         0.7 * 2 + 0.3 * 60 * 4 * 6 / 24),
        (np.arange(300) % 3, {"alpha": 0.5}, 0.5 * 2 + 0.5 * 60 * (2 / 3) * 4 * 2 / 20),
    ],
)  # fmt: skip
def test_the_event_and_the_sensitivity_are_those_of_the_batches_of_groups(
    groups, options, expected
):
    """(1 - alpha) 2C + alpha n' (2 / K) 4 r L / min n'_j with r = 2 on the sphere."""
    spent = fitted(groups, **options).privacy_spent_
    sizes = np.unique(groups, return_counts=True)[1]
    assert spent.event.group_sizes == tuple(sizes)
    assert spent.event.batch_sizes == tuple(sizes // 5)
    assert spent.event.n_steps == 5
    assert spent.sensitivity == spent.event.sensitivity == within_rounding(expected)


@pytest.mark.parametrize(("z", "epsilon"), [(5.0, 4.391), (10.0, 1.944)])
def test_the_stated_epsilon_is_that_of_fixed_size_batches(z, epsilon, monkeypatch):
    """Known values of the account for p = 1/5, T = 500, delta = 1/300000."""
    monkeypatch.setattr(training, "train_network", lambda network, *args, **kwargs: network)
    sensitivity = fitted().privacy_spent_.sensitivity
    spent = fitted(n_steps=500, delta=1 / 300_000, sigma=z * sensitivity).privacy_spent_
    assert spent.epsilon == pytest.approx(epsilon, abs=6e-4)
    assert spent.event == SampledGaussianEvent(
        sampling="fixed_size",
        sigma=z * sensitivity,
        sensitivity=sensitivity,
        batch_sizes=(24, 36),
        group_sizes=(120, 180),
        n_steps=500,
        lattice=spent.event.lattice,
    )


def test_the_largest_share_of_a_group_is_charged():
    """10 % of 15 rows are one: a rate of 1/15 beside 28/285, and the ranks of a single code."""
    groups = np.repeat(["small", "large"], [15, 285])
    event = fitted(groups, batch_size=30, alpha=0.5).privacy_spent_.event
    assert (event.batch_sizes, event.group_sizes) == ((28, 1), (285, 15))
    assert event.rate == 28 / 285
    assert event.sensitivity == within_rounding(0.5 * 2 + 0.5 * 29 * 4 * 2 / 1)


def test_the_statement_says_that_groups_are_public():
    spent = fitted().privacy_spent_
    assert "has the same group" in " ".join(spent.assumptions)
    assert "batches without replacement of 60 records (24 + 36 by group)" in spent.mechanism
    other = made(PrivateSWAutoencoder, n_steps=5, bounds=(-2, 2)).fit(X, sensitive_features=GROUPS)
    assert "group" not in str(other.privacy_spent_)


def test_the_charge_is_there_before_noise_and_data(monkeypatch):
    budget, seen = PrivacyBudget(5.0), []

    def watched(method):
        def spy(self, *args):
            seen.append(len(budget.history()))
            return method(self, *args)

        return spy

    monkeypatch.setattr(SecretStream, "random_bytes", watched(SecretStream.random_bytes))
    monkeypatch.setattr(DataBounds, "to_ball", watched(DataBounds.to_ball))
    fitted(budget=budget)
    assert set(seen) == {1}


# Groups


SECRET = "SECRET-8841"
BAD = {
    "none": (None, 'penalty="parity" requires sensitive_features'),
    "missing": ([None, SECRET] * 150, "sensitive_features.*missing"),
    "too short": (GROUPS[:299], "299 labels for 300 rows"),
    "continuous": (X[:, 0], "continuous"),
    "one group": (["a"] * 300, "at least two groups"),
    "two columns": (np.stack([GROUPS, GROUPS], axis=1), r"shape \(300, 2\)"),
    "too small a group": (np.arange(300) == 0, "True has 1 row, .* larger batch_size"),
}


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_unusable_groups_are_refused_before_anything_is_charged(name, private):
    given, text = BAD[name]
    budget = PrivacyBudget(5.0)
    estimator = autoencoder(budget=budget, private=private)
    with pytest.raises(ValueError, match=text) as refusal:
        estimator.fit(X, sensitive_features=given)
    assert SECRET not in str(refusal.value)
    assert len(budget.history()) == 0
    assert set(vars(estimator)) == set(estimator.get_params(deep=False))  # nothing fitted


@pytest.mark.parametrize("penalty", [None, "prior"])
def test_groups_are_ignored_without_the_penalty(penalty):
    with pytest.warns(PrivacyWarning, match="reproducible"):
        fits = [
            autoencoder(random_state=0)
            .set_params(penalty=penalty)
            .fit(X, sensitive_features=given)
            .transform(X)
            for given in (None, GROUPS, ["not checked"])
        ]
    np.testing.assert_array_equal(fits[0], fits[1])
    np.testing.assert_array_equal(fits[0], fits[2])


# What groups get


ROWS, _, SEX = make_biased_classification(6000, random_state=0)
DIRECTIONS = orthogonal_directions(50, 2, np.random.default_rng(0))


def distance_of_codes(**changes):
    """How far the codes of the groups are apart, in units of how far codes are."""
    options = {
        "batch_size": 600,
        "n_steps": 60,
        "learning_rate": 0.02,
        "clip_jacobian": 0.3,
        "random_state": 0,
    }
    estimator = autoencoder(**(options | changes)).fit(ROWS[:4000], sensitive_features=SEX[:4000])
    codes, sex = estimator.transform(ROWS[4000:]), SEX[4000:]
    distance = sliced_wasserstein_distance(codes[sex == 0], codes[sex == 1], DIRECTIONS)
    return distance / codes.std()


@pytest.mark.filterwarnings("ignore:.*makes the privacy noise reproducible")
@pytest.mark.parametrize(
    "options",
    [
        {"private": False, "n_steps": 200},
        {"epsilon": np.inf, "normalize_codes": False},
        {"epsilon": 8.0},
    ],
    ids=str,
)
def test_the_penalty_brings_the_codes_of_groups_together(options):
    apart, together = (distance_of_codes(alpha=alpha, **options) for alpha in (0.0, 0.8))
    assert together < 0.4 * apart


# Pipelines


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def pipeline(**changes):
    last = autoencoder(**changes).set_fit_request(sensitive_features=True)
    return Pipeline([("same", FunctionTransformer()), ("ae", last)])


@pytest.mark.usefixtures("routing")
def test_a_search_over_penalties_charges_every_fit():
    budget = PrivacyBudget(50.0)
    grid = [{"ae__penalty": [None]}, {"ae__penalty__alpha": [0.0, 0.5]}]
    search = GridSearchCV(pipeline(budget=budget), grid, cv=2, error_score="raise")
    search.fit(X, sensitive_features=GROUPS)
    assert list(budget.history()["label"]) == ["PrivateSWAutoencoder"] * (2 * 3 + 1)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.usefixtures("routing")
def test_groups_reach_a_first_step_and_its_fit_transform():
    budget = PrivacyBudget(10.0)
    first = autoencoder(budget=budget).set_fit_request(sensitive_features=True)
    steps = [("ae", first), ("flow", flow_sampler(norm_bound=1.0, budget=budget, n_steps=5))]
    made = Pipeline(steps).fit(X, sensitive_features=GROUPS)
    assert made[0].privacy_spent_.event.group_sizes == (120, 180)
    assert len(budget.history()) == 2
    codes = pipeline().fit_transform(X, sensitive_features=GROUPS)
    assert codes.shape == (300, 2)
