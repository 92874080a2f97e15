"""Networks that callers bring along."""

from functools import partial

import pytest
import torch
from torch import nn

from skdpot.nets.training import checked_network

_checked = partial(checked_network, inputs="what goes in", outputs="what comes out")


def test_a_given_module_is_copied():
    module = nn.Linear(3, 2)
    network = _checked(module, 3, 2)
    with torch.no_grad():
        network.weight += 1
    assert not torch.equal(network.weight, module.weight)
    assert isinstance(_checked(lambda: nn.Linear(3, 2), 3, 2), nn.Linear)


def test_a_function_that_returns_one_network_again_and_again_does_not_share_it():
    kept = nn.Linear(3, 2)
    assert _checked(lambda: kept, 3, 2) is not kept


def test_checking_leaves_running_statistics_alone():
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    network = _checked(module, 3, 2)
    torch.testing.assert_close(network[1].running_var, torch.ones(2))
    assert network.training


@pytest.mark.parametrize(
    ("module", "error", "text"),
    [
        (nn.Linear(3, 4), ValueError, r"must be \(2, 2\)"),
        (nn.Linear(4, 2), ValueError, "does not accept a tensor"),
        (nn.Flatten(), ValueError, "no parameters"),
        (lambda: 3, TypeError, "returns int"),
    ],
)
def test_modules_that_do_not_fit_are_refused(module, error, text):
    with pytest.raises(error, match=text):
        _checked(module, 3, 2)
