"""PrivateSWAutoencoder: what a fit is charged, when, and that nothing without noise is kept."""

import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.privacy_accountant import NeighboringRelation

from skdpot import PrivacyBudget, PrivateSWAutoencoder
from skdpot._utils.validation import SecretStream
from skdpot.exceptions import BudgetExceededError
from skdpot.nets import autoencoder_training
from skdpot.privacy.events import NonPrivateEvent
from skdpot.release import gradients as noisy_sums
from skdpot.release.bounds import DataBounds
from tests.flat_options import made

RNG = np.random.default_rng(8841)
X = np.tanh(RNG.normal(size=(300, 2)) @ RNG.normal(size=(2, 6)))
GROUPS = np.arange(300) % 3


def autoencoder(**changes):
    options = {"latent_dim": 3, "bounds": (-1, 1), "n_steps": 5, "batch_size": 10_000}
    return made(PrivateSWAutoencoder, **(options | changes))


def test_the_stated_epsilon_is_that_of_dp_accounting():
    """Poisson batches, replace-one; noise in units of the clipping norm."""
    spent = autoencoder(sigma=1.6, clip=0.8, n_steps=20, batch_size=30).fit(X).privacy_spent_
    accountant = pld_privacy_accountant.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    step = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0))
    accountant.compose(step, 20)
    # Rounding to the lattice adds at most 1/512 to the sensitivity.
    assert spent.epsilon >= accountant.get_epsilon(1e-5) * (1 - 1e-4)
    assert spent.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1 / 128)
    assert spent.sigma == 1.6
    assert 1.6 < spent.sensitivity <= 1.6 * (1 + 1 / 511)


def test_the_statement():
    spent = autoencoder(epsilon=3.0, delta=1e-6, batch_size=30).fit(X).privacy_spent_
    assert (spent.epsilon, spent.delta) == (3.0, 1e-6)
    assert "5 noisy sums of clipped gradients over Poisson batches of 30 records" in spent.mechanism
    for fact in ("number of rows", "bounds given by the caller", "initial weights"):
        assert fact in " ".join(spent.assumptions)
    fixed = autoencoder(penalty="prior", batch_size=30).fit(X).privacy_spent_
    assert "batches without replacement of 30 records" in fixed.mechanism
    assert fixed.event.batch_sizes == (30,)


def test_public_training_says_so_and_a_finite_budget_refuses_it():
    spent = autoencoder(private=False).fit(X).privacy_spent_
    assert (spent.epsilon, spent.event) == (np.inf, NonPrivateEvent())
    assert spent.assumptions == ("the rows given to fit are public",)
    budget = PrivacyBudget(1e6)
    with pytest.raises(BudgetExceededError, match="give no budget when the rows are public.*left"):
        autoencoder(private=False, budget=budget).fit(X)
    with pytest.raises(BudgetExceededError, match="left"):
        autoencoder(epsilon=np.inf, budget=budget).fit(X)
    assert len(budget.history()) == 0


@pytest.mark.parametrize("options", [{}, {"penalty": "prior"}, {"bounds": "private"}])
def test_the_charge_is_on_the_disk_before_noise_and_data(options, tmp_path, monkeypatch):
    budget = PrivacyBudget(5.0, ledger=tmp_path / "ledger.sqlite")
    seen = {"noise": [], "rows": []}

    def watched(name, method):
        def spy(self, *args):
            seen[name].append(len(budget.history()))
            return method(self, *args)

        return spy

    monkeypatch.setattr(SecretStream, "random_bytes", watched("noise", SecretStream.random_bytes))
    monkeypatch.setattr(DataBounds, "to_ball", watched("rows", DataBounds.to_ball))
    autoencoder(budget=budget, **options).fit(np.tile(X, (20, 1)))
    for calls in seen.values():
        assert calls
        assert set(calls) == {1}


def test_one_charge_and_a_refused_fit_changes_nothing():
    budget = PrivacyBudget(1.0)
    fitted = autoencoder(budget=budget).fit(X)
    fitted.inverse_transform(fitted.transform(X))
    fitted.sample(5)
    fitted.score(X)
    before = dict(vars(fitted))
    with pytest.raises(BudgetExceededError, match="left"):
        fitted.fit(X[:, :4])
    assert vars(fitted) == before
    assert list(budget.history()["label"]) == ["PrivateSWAutoencoder"]


def test_a_fit_interrupted_in_its_first_step_leaves_only_its_charge(monkeypatch):
    budget = PrivacyBudget(5.0)
    estimator = autoencoder(budget=budget)

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(noisy_sums, "noisy_sum", interrupted)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    assert len(budget.history()) == 1
    assert set(vars(estimator)) == set(estimator.get_params(deep=False))  # nothing fitted


@pytest.mark.parametrize("refit", [False, True])
def test_an_interrupted_fit_keeps_the_steps_that_were_finished(refit, monkeypatch):
    """The network is that of a fit of as many steps with the same noise and schedule."""
    budget = PrivacyBudget(50.0)
    estimator = autoencoder(budget=budget)
    if refit:
        estimator.fit(X[:, :4])
    clipped_sum = autoencoder_training.AutoencoderLoss.clipped_sum
    seen = []

    def interrupted(self, network, rows, directions):
        seen.append([p.detach().clone() for p in network.parameters()])
        if len(seen) == 4:
            raise KeyboardInterrupt
        return clipped_sum(self, network, rows, directions)

    monkeypatch.setattr(autoencoder_training.AutoencoderLoss, "clipped_sum", interrupted)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    assert len(budget.history()) == 1 + refit
    assert estimator.n_steps_ == 3
    assert estimator.privacy_spent_.event.n_steps == 5  # paid for, if not taken
    kept = [*estimator.encoder_.parameters(), *estimator.decoder_.parameters()]
    for value, last in zip(kept, seen[-1], strict=True):
        assert torch.equal(value, last)
        assert value.grad is None
    assert any(not torch.equal(a, b) for a, b in zip(seen[0], seen[-1], strict=True))
    assert estimator.transform(X).shape == (300, 3)
    assert estimator.sample(4).shape == (4, 6)
    assert not estimator.encoder_.training
