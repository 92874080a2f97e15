"""Networks that predict: their shape, what they start from, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from skdpot._utils.validation import torch_randomness
from skdpot.nets.training import build_predictor, check_per_record
from skdpot.release.per_sample import chain_of_layers


def built(module, n_features=5, n_outputs=3, seed=0):
    with torch_randomness(np.random.default_rng(seed)):
        return build_predictor(module, n_features, n_outputs)


@pytest.mark.parametrize("name", ["linear", "mlp"])
@pytest.mark.parametrize("n_outputs", [1, 4])
def test_named_networks_start_with_one_prediction_for_all(name, n_outputs):
    """No group has an advantage to begin with."""
    network = built(name, 5, n_outputs)
    rows = torch.linspace(-3, 3, 35).reshape(7, 5)
    assert torch.equal(network(rows), torch.zeros(7, n_outputs))
    n_parameters = sum(parameter.numel() for parameter in network.parameters())
    expected = 6 * n_outputs if name == "linear" else 64 * 6 + 65 * n_outputs
    assert n_parameters == expected
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_named_networks_are_chains_that_treat_records_alone(name):
    """So that gradients of single records are cheap."""
    network = built(name)
    assert chain_of_layers(network) is not None
    check_per_record(network, (5,), np.random.default_rng(0))


def test_hidden_units_come_from_the_generator_that_was_seeded():
    first, again, other = (built("mlp", seed=seed)[0].weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_hidden_units_can_learn_although_the_last_layer_is_zero():
    """The gradient of the last layer is not zero, and after a step neither is that of the first."""
    network = built("mlp", 5, 1)
    rows = torch.linspace(-3, 3, 35).reshape(7, 5)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (network(rows)[:, 0] - rows[:, 0]).square().sum().backward()
        optimizer.step()
    assert float(network[0].weight.grad.abs().max()) > 0


def test_a_given_network_is_copied_with_its_weights():
    given = nn.Linear(5, 3)
    network = built(given)
    assert network is not given
    assert torch.equal(network.weight, given.weight)
    with torch.no_grad():
        network.weight += 1
    assert not torch.equal(network.weight, given.weight)


def test_a_function_makes_a_network_and_may_keep_its_own():
    kept = nn.Linear(5, 3)
    network = built(lambda: kept)
    assert network is not kept
    assert type(built(lambda: nn.Linear(5, 3))) is nn.Linear


@pytest.mark.parametrize(
    ("module", "error", "text"),
    [
        (nn.Linear(5, 1), ValueError, r"must be \(2, 3\): one logit for two classes"),
        (nn.Linear(4, 3), ValueError, r"shape \(2, 5\): one column a feature of X"),
        (nn.Flatten(), ValueError, "no parameters to train"),
        (nn.Linear(5, 3).requires_grad_(False), ValueError, "no parameters to train"),
        (lambda: 3, TypeError, "returns int"),
    ],
)
def test_what_does_not_fit_is_refused(module, error, text):
    with pytest.raises(error, match=text):
        built(module)
