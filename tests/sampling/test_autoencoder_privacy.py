"""PrivateSWAutoencoder: what a fit costs and says, and what an interrupted one keeps."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.privacy_accountant import NeighboringRelation
from sklearn.pipeline import Pipeline

from skdpot import DPSlicedFlowSampler, PrivacyBudget
from skdpot.exceptions import BudgetExceededError, PrivacyWarning
from skdpot.mechanisms import Sketch
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.spent import total_spent
from skdpot.sampling import autoencoder_training
from tests.sampling.test_autoencoder import X, autoencoder

TWO = np.where(np.arange(300) % 5 < 3, "b", "a")  # 180 and 120


def test_the_stated_epsilon_is_that_of_dp_accounting():
    """Poisson batches, replace-one; noise in units of the clipping norm."""
    spent = (
        autoencoder(sigma=1.6, clip_gradient=0.8, n_steps=20, batch_size=30).fit(X).privacy_spent_
    )
    accountant = pld_privacy_accountant.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    step = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0))
    accountant.compose(step, 20)
    # Rounding to the lattice adds at most 1/512 to the sensitivity.
    assert spent.epsilon >= accountant.get_epsilon(1e-5) * (1 - 1e-4)
    assert spent.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1 / 128)
    assert spent.sigma == 1.6
    assert 1.6 < spent.sensitivity <= 1.6 * (1 + 1 / 511)


def within_rounding(sensitivity):
    """Rounding sums to the lattice of the noise adds at most 1/512."""
    return pytest.approx(sensitivity * (1 + 1 / 1024), rel=1 / 1000)


@pytest.mark.parametrize(
    ("groups", "options", "expected"),
    [
        (TWO, {"alpha": 0.3, "clip_gradient": 1.5, "clip_jacobian": 0.7},
         0.7 * 2 * 1.5 + 0.3 * 60 * 4 * 2 * 0.7 / 24),
        (TWO, {"normalize_codes": False, "clip_output": 3.0, "alpha": 0.3},
         0.7 * 2 + 0.3 * 60 * 4 * 6 / 24),
        (np.arange(300) % 3, {"alpha": 0.5}, 0.5 * 2 + 0.5 * 60 * (8 / 9) * 4 * 2 / 20),
        # 20 % of 6 rows are one, a smaller share than 58 of 294: the ranks of a single code.
        (np.arange(300) < 6, {"alpha": 0.5}, 0.5 * 2 + 0.5 * 59 * 4 * 2 / 1),
    ],
    ids=["two groups", "codes of any norm", "three groups", "a small group"],
)  # fmt: skip
def test_the_event_and_the_sensitivity_are_those_of_the_batches_of_groups(
    groups, options, expected
):
    """(1 - alpha) 2C + alpha n' 4 (K - 1) / K^2 4 r L / min n'_j with r = 2 on the sphere."""
    estimator = autoencoder(penalty="parity", latent_dim=2, batch_size=60, **options)
    spent = estimator.fit(X, sensitive_features=groups).privacy_spent_
    sizes = np.unique(groups, return_counts=True)[1]
    assert spent.event.group_sizes == tuple(sizes)
    assert spent.event.batch_sizes == tuple(sizes // 5)
    assert spent.event.rate == max(sizes // 5 / sizes)
    assert spent.event.n_steps == 5
    assert spent.sensitivity == spent.event.sensitivity == within_rounding(expected)


def test_the_statement():
    spent = autoencoder(epsilon=3.0, delta=1e-6, batch_size=30).fit(X).privacy_spent_
    assert (spent.epsilon, spent.delta) == (3.0, 1e-6)
    assert "5 noisy sums of clipped gradients over Poisson batches of 30 records" in spent.mechanism
    for fact in ("number of rows", "bounds given by the caller", "initial weights"):
        assert fact in " ".join(spent.assumptions)
    of_groups, fixed = (
        autoencoder(penalty=penalty, batch_size=30).fit(X, sensitive_features=TWO).privacy_spent_
        for penalty in ("parity", "prior")
    )
    assert "batches without replacement of 30 records (12 + 18 by group)" in of_groups.mechanism
    assert "has the same group" in str(of_groups)
    assert "batches without replacement of 30 records" in fixed.mechanism
    assert "group" not in " ".join(fixed.assumptions)


def test_public_training_says_so_and_a_finite_budget_refuses_it():
    spent = autoencoder(private=False).fit(X).privacy_spent_
    assert (spent.epsilon, spent.event) == (np.inf, NonPrivateEvent())
    assert spent.assumptions == ("the rows given to fit are public",)
    budget = PrivacyBudget(1e6)
    with pytest.raises(BudgetExceededError, match="pass no budget if the rows are public.*left"):
        autoencoder(private=False, budget=budget).fit(X)
    assert len(budget.history()) == 0


@pytest.mark.parametrize("output", ["default", "pandas"])
@pytest.mark.parametrize(
    ("budget", "private", "text"),
    [(10.0, True, None), (None, True, "together with"), (None, False, "without pri")],
)
def test_steps_of_a_pipeline_share_a_budget_or_say_what_they_cost_together(
    budget, private, text, output
):
    budget = budget and PrivacyBudget(budget)
    first = autoencoder(epsilon=3.0, budget=budget, private=private).set_output(transform=output)
    sketch = Sketch(n_projections=4, n_bins=8)
    flow = DPSlicedFlowSampler(sketch, epsilon=3.0, norm_bound=1.0, n_steps=2, budget=budget)
    both = Pipeline([("ae", first), ("flow", flow)])
    warned = pytest.warns(PrivacyWarning, match=f"DPSlicedFlowSampler: .*{text}")
    with warned if text else nullcontext():
        both.fit(X)
    assert (3.0 < total_spent(both).epsilon < 6.0) == private
    assert budget is None or len(budget.history()) == 2


@pytest.mark.parametrize("refit", [False, True])
def test_an_interrupted_fit_keeps_the_steps_that_were_finished(refit, monkeypatch):
    """The network is that of a fit of as many steps with the same noise and schedule."""
    budget = PrivacyBudget(50.0)
    estimator = autoencoder(budget=budget)
    if refit:
        estimator.fit(X[:, :4])
    clipped_sum = autoencoder_training.AutoencoderLoss.clipped_sum
    seen = []

    def interrupted(self, network, *given):
        seen.append([p.detach().clone() for p in network.parameters()])
        if len(seen) == 4:
            raise KeyboardInterrupt
        return clipped_sum(self, network, *given)

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


@pytest.mark.filterwarnings("error:.* hides the reconstructions")
def test_it_says_that_noise_will_hide_the_rows_before_the_charge():
    """Ranks of codes need more rows than a sketch of them, which has nothing to say here."""
    budget = PrivacyBudget(1.0, 1e-5)
    rows, options = np.tile(X, (20, 1)), {"n_steps": 60, "batch_size": 3000, "latent_dim": 2}
    groups = np.arange(len(rows)) % 2
    ranked = autoencoder(penalty="parity", alpha=0.75, budget=budget, **options)
    with pytest.raises(PrivacyWarning, match='hides the reconstr.*comparison="sketch"'):
        ranked.fit(rows, sensitive_features=groups)
    assert budget.remaining() == 1.0
    sketched = autoencoder(penalty="parity", alpha=0.75, comparison="sketch", **options)
    sketched.fit(rows, sensitive_features=groups)
    spent = sketched.privacy_spent_
    assert not sketched.reliability_.unreliable
    tables, training = spent.event.phases[-2:]
    assert tables.n_steps == 20
    assert training.sampling == "poisson"
    assert 1.0 <= training.sensitivity <= 1.01  # 4 (1 - alpha) C
