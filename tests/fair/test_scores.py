"""Private training of scores: its charge, its noise, what a record moves, and what it learns."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error
from torch import nn

from skdpot._utils.streams import SecretStream, Streams
from skdpot.exceptions import PrivacyWarning, ReplayError
from skdpot.fair.scores import plan_scores
from skdpot.nets.networks import build_predictor
from skdpot.privacy.accounting import compose
from skdpot.release.gate import record_releases, replay_releases

N, D = 2000, 6
LOSSES = {"logistic": 1, "softmax": 3, "squared": 2}


def streams(seed):
    rng = np.random.default_rng
    return Streams(SecretStream(seed), rng(seed), rng(seed))


def drawn(loss, n=N, seed=0):
    """Draw rows of columns of very different spread, far from zero, and targets."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, D))
    rows = (latent * np.geomspace(0.02, 0.3, D) + np.linspace(-0.7, 0.7, D)).clip(-1, 1)
    index = latent @ np.array([1.5, -1.0, 1.0, 0.5, -0.5, 1.0])
    if loss == "squared":
        both = np.column_stack([np.tanh(index / 3), np.tanh(latent[:, 0])])
        return rows, both
    noisy = index + rng.logistic(size=n)
    return rows, np.digitize(noisy, [0.0] if loss == "logistic" else [-1.0, 1.0])


def planned(loss, module="linear", n=N, mu=0.5, d=D):
    network = build_predictor(module, d, LOSSES[loss])
    return network, plan_scores(mu, network, n, loss)


def trained(loss, module="linear", mu=0.5, data=None, seed=0):
    rows, targets = drawn(loss) if data is None else data
    network, plan = planned(loss, module, len(rows), mu, rows.shape[1])
    return plan.train(network, rows, targets, streams(seed), caller="test"), plan


def own():
    """Return a module that is no plain chain, to which no map of the features can be added."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(D, 1)

        def forward(self, rows):
            return self.layer(rows) + self.layer(rows.tanh())

    return Own()


@pytest.mark.parametrize("module", ["linear", "mlp", own])
@pytest.mark.parametrize("mu", [1e-6, 0.5, 30.0])
def test_all_releases_together_cost_what_was_asked_for(module, mu):
    _, plan = planned("logistic", module, mu=mu)
    spent = compose(plan.event).to_gdp(0.0)
    assert spent.leak == 0.0
    assert 0.99 * mu <= spent.mu <= mu


@pytest.mark.parametrize("loss", LOSSES)
def test_every_number_has_the_noise_that_is_charged(loss):
    targets = drawn(loss, n=500)[1]
    rows = np.random.default_rng(2).uniform(-1.2, 1.2, (500, 400))  # many moments of features
    with record_releases() as releases:
        _, plan = trained(loss, data=(rows, targets))
    *_, steps = plan.event.phases
    assert len(releases) == 1 + steps.n_steps
    given, each = (torch.from_numpy(rows), torch.from_numpy(targets)), np.ones(500)
    ratios = []
    for release in releases:
        (part,) = release.parts(given, each)
        ratios.append((part.value - part.rows.sum(each)).ravel() / part.sigma)
    for of_kind in (np.asarray(ratios[0]), np.concatenate(ratios[1:])):
        # Five standard deviations of a mean square.
        assert abs(np.mean(of_kind**2) - 1.0) <= 5.0 * np.sqrt(2.0 / len(of_kind))


@pytest.mark.parametrize("loss", LOSSES)
def test_no_neighbour_moves_a_release_further_than_its_sensitivity(loss):
    rows, targets = drawn(loss)
    with record_releases() as releases:
        trained(loss)
    moments, step = releases[0], releases[1]
    largest = {"moments": 0.0, "gradient": 0.0}
    worst = {"logistic": [0, 1], "softmax": [0, 2], "squared": [[-1.0, -1.0], [1.0, 1.0]]}[loss]
    for size in (1.0, 1e8):
        pair = size * np.array([-np.ones(D), np.ones(D)])
        for first in (pair, pair * 0.3, np.array([pair[1], pair[1]])):
            given = torch.from_numpy(first), torch.tensor(worst)
            for release in (moments, step):
                (part,) = release.parts(given, np.ones(2))
                moved = np.linalg.norm(np.asarray(part.rows.sum(np.array([1.0, -1.0]))).ravel())
                sensitivity = release.sensitivity * (N if release is step else 1)
                assert moved <= sensitivity
                largest[release.kind] = max(largest[release.kind], moved / sensitivity)
    # Attained, but for the lattice, and gradients of softmax that are never opposite.
    assert largest["moments"] > 0.98
    assert largest["gradient"] > (0.84 if loss == "softmax" else 0.98)


def test_a_training_follows_from_its_releases():
    rows, targets = drawn("logistic")
    with record_releases() as releases:
        (network, spread), _ = trained("logistic")
    rows[0], targets[0] = 1.0, 1 - targets[0]
    try:
        with replay_releases(releases):
            (other, replayed), _ = trained("logistic", data=(rows, targets), seed=1)
    except ReplayError as error:
        pytest.fail(str(error))
    for one, two in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    for name, value in vars(spread).items():
        np.testing.assert_array_equal(value, getattr(replayed, name))


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "lost"), [(0.75, 0.02), (float("inf"), 0.001)])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_linear_model_is_nearly_the_best_whatever_the_scale_of_columns(loss, mu, lost):
    rows, targets = drawn(loss, n=8000)
    (network, _), _ = trained(loss, mu=mu, data=(rows, targets))
    test, truth = drawn(loss, n=8000, seed=1)
    with torch.no_grad():
        outputs = network(torch.from_numpy(test).float()).double()
    if loss == "squared":
        best = LinearRegression().fit(rows, targets).predict(test)
        figure, found = mean_squared_error, outputs.numpy()
    else:
        best = LogisticRegression(C=1e4, max_iter=2000).fit(rows, targets).predict_proba(test)
        p = outputs.softmax(1) if loss == "softmax" else outputs.sigmoid()
        figure, found = log_loss, p.numpy().squeeze()
    assert figure(truth, found) <= figure(truth, best) + lost


@pytest.mark.slow
def test_moments_of_single_precision_are_summed_exactly():
    """A sum that rounds would move by more than the record that is replaced."""
    rows, targets = drawn("logistic", n=40_000)
    single, moments = rows.astype(np.float32), []
    for given in (single, single.astype(np.float64)):
        with record_releases() as releases:
            trained("logistic", mu=0.02, data=(given, targets))
        moments.append(next(one.value for one in releases if one.kind == "moments"))
    np.testing.assert_array_equal(*moments)
    trained("logistic", mu=np.inf, data=(single[:500], targets[:500]))  # nor is it refused


def test_features_that_clipping_makes_constant_are_told_from_the_release():
    rows, targets = drawn("logistic", n=2000)
    raw = rows.copy()
    raw[:, 1:] = 40 + 5 * rows[:, 1:]
    told = pytest.warns(PrivacyWarning, match=f"{D - 1} of {D} features are 1 or more")
    with record_releases() as releases, told:
        trained("logistic", mu=1.0, data=(raw, targets))
    with replay_releases(releases), told:  # whatever the private rows are
        trained("logistic", mu=1.0, data=(rows, targets), seed=1)
    rows = np.sign(rows - rows.mean(0) + 0.1)  # values at the ends alone are no sign of it
    rows[:, 0] = 1.0  # nor is a column of ones
    trained("logistic", mu=1.0, data=(rows, targets))
