"""The private Wasserstein gradient as a tool: what it is, its noise, and what one record moves."""

import math
import pickle

import numpy as np
import ot
import pytest
import torch
from sklearn.base import clone
from torch import nn

from skdpot import PrivacyBudget
from skdpot.exceptions import BudgetExceededError
from skdpot.nets import PrivateWassersteinGradient
from skdpot.nets.wasserstein_gradient import _Sides
from skdpot.release.gate import record_releases
from tests.core.nets.jacobian_sums import chunks_of
from tests.fair.fair_tasks import flat

RNG = np.random.default_rng(4410)
X, Z = RNG.uniform(-1, 1, (30, 4)), RNG.uniform(-1, 1, (50, 4))
POINTS = RNG.uniform(-1, 1, (50, 2))
ALL = {"batch_fraction": 1.0, "n_steps": 3, "n_projections": 6}


def network(scale=1.0, n_inputs=4, n_outputs=2):
    source = torch.Generator().manual_seed(3)
    made = nn.Sequential(nn.Linear(n_inputs, 8), nn.Tanh(), nn.Linear(8, n_outputs))
    for parameter in made.parameters():
        nn.init.uniform_(parameter, -scale, scale, generator=source)
    return made


def gradients(of):
    return torch.cat([parameter.grad.flatten() for parameter in of.parameters()]).double()


@pytest.mark.parametrize("clipping", ["spectral", "rows"])
@pytest.mark.parametrize(("other", "second"), [("network", Z), ("fixed", POINTS)])
def test_without_clipping_it_is_the_gradient_of_the_distance_by_pot(other, second, clipping):
    net, options = network(), {"clip_output": 1e6, "clip_jacobian": 1e6, "clipping": clipping}
    tool = PrivateWassersteinGradient(math.inf, other=other, **ALL, **options)
    with record_releases() as releases:
        assert list(tool.steps(net, X, second)) == [0, 1, 2]
    theta = torch.from_numpy(releases[-1].facts["directions"])
    points = [torch.from_numpy(side).float() for side in (X, second)]
    moved = [net(points[0]).double(), points[1].double()]
    if other == "network":
        moved[1] = net(points[1]).double()
    distance = ot.wasserstein_1d(moved[0] @ theta.T, moved[1] @ theta.T, p=2).mean()
    expected = torch.autograd.grad(distance, list(net.parameters()))
    expected = torch.cat([part.flatten() for part in expected]).double()
    torch.testing.assert_close(gradients(net), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(tool.losses_[-1], distance.item(), rtol=1e-6)


def sides(other="network", clipping="spectral", k=2):
    both = other == "network"
    return _Sides(
        n_outputs=k,
        both_move=both,
        clip_output=1.0,
        clip_jacobian=0.7,
        clipping=clipping,
        n_projections=2 * k,
    )


WILD = np.array([-1e30, -50.0, -1.0, 0.0, 1e-9, 1.0, 50.0, 1e15])


@pytest.mark.parametrize("clipping", ["spectral", "rows"])
@pytest.mark.parametrize("private", ["X", "Z"])
@pytest.mark.parametrize("other", ["network", "fixed"])
def test_no_neighbour_moves_it_further_than_the_sensitivity(other, private, clipping):
    """Random and extreme rows, a network with long Jacobians, batches with ties."""
    of, net, rng = sides(other, clipping), network(4.0), np.random.default_rng(5)
    stated = of.sensitivity((9, 14), [private == side for side in "XZ"])
    theta, worst = np.tile(np.eye(2), (2, 1)), 0.0
    with chunks_of(5):
        for _ in range(60):
            shapes = ((9, 4), (14, 4 if other == "network" else 2))
            draw = rng.normal if rng.random() < 0.4 else lambda size: rng.choice(WILD, size)
            batch = [draw(size=shape) for shape in shapes]
            batch = [torch.from_numpy(side).float() for side in batch]
            changed, place = [side.clone() for side in batch], "XZ".index(private)
            changed[place][rng.integers(len(batch[place]))] = torch.from_numpy(
                rng.choice(WILD, batch[place].shape[1])
            ).float()
            pair = [flat(of.clipped_sum(net, given, theta)[0]) for given in (batch, changed)]
            worst = max(worst, float((pair[0] - pair[1]).norm()))
    assert 0.0 < worst <= stated


class FreeJacobian(nn.Module):
    """The first number of a row is its output, the second is the Jacobian."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, rows):
        return rows[:, :1] + self.layer(rows[:, 1:])


def test_both_bounds_are_attained():
    """A record that passes all others, which pull the other way; then a fixed point."""
    net, ones = FreeJacobian(), torch.ones(20, 1)

    def moved(of, first, second, place, value):
        before = [first.clone(), second.clone()]
        after = [first.clone(), second.clone()]
        after[place][0, 0] = value
        pair = [flat(of.clipped_sum(net, given, np.ones((1, 1)))[0]) for given in (before, after)]
        return float((pair[0] - pair[1]).norm())

    of, halves = sides(k=1), torch.cat([-ones[:10], ones[:10]])
    stated = of.sensitivity((20, 20), (True, True))
    assert stated == pytest.approx(8 * 0.7 / 20)
    first = torch.cat([ones * (1 - 1e-6), -ones], dim=1)
    first[0, 1] = 1.0
    moves = moved(of, first, torch.cat([halves, 0 * ones], dim=1), 0, 1.0)
    assert 0.99 * stated <= moves <= stated
    of = sides("fixed", k=1)
    stated = of.sensitivity((20, 20), (False, True))
    assert stated == pytest.approx(4 * 0.7 / 20)
    assert 0.99 * stated <= moved(of, torch.cat([0.9 * ones, ones], dim=1), -ones, 1, 1.0) <= stated


@pytest.mark.parametrize("private", ["both", "X", "Z"])
def test_a_gradient_has_the_noise_of_its_event(private):
    """Rows that give no gradient: all outputs are one point."""
    net = network(0.0, n_outputs=40)
    tool = PrivateWassersteinGradient(private=private, n_steps=4, batch_fraction=0.5)
    values = []
    with record_releases() as releases:
        for _ in tool.steps(net, X, Z):
            values.append(gradients(net).numpy())
    event, n_rows = tool.privacy_spent_.event, {"both": 40, "X": 15, "Z": 25}[private]
    assert event.batch_sizes == {"both": (15, 25), "X": (15,), "Z": (25,)}[private]
    assert event.group_sizes == {"both": (30, 50), "X": (30,), "Z": (50,)}[private]
    assert event.n_steps == 4 == len(releases)
    sigma = event.sigma / n_rows
    assert np.std(values) == pytest.approx(sigma, rel=5 / math.sqrt(2 * np.size(values)))
    assert tool.losses_ == []  # they would have no noise
    smallest = {"both": 15, "X": 15, "Z": 25}[private]
    assert event.sensitivity >= 8 * n_rows / smallest
    assert event.sensitivity <= 8.02 * n_rows / smallest


def test_a_noisy_gradient_is_shortened_after_the_noise():
    net = network()
    for _ in PrivateWassersteinGradient(clip_noisy=0.01, n_steps=2).steps(net, X, Z):
        assert float(gradients(net).norm()) <= 0.0100001


def test_all_steps_are_charged_before_the_first_and_not_where_refused():
    budget, net = PrivacyBudget(epsilon=1.0, delta=1e-5), network()
    tool = PrivateWassersteinGradient(budget=budget, epsilon=0.8, n_steps=3)
    refused = [
        (tool, (net, X, Z[:, :2]), "Z has 2 columns"),
        (tool, (nn.BatchNorm1d(4), X, Z), "normalises"),
        (tool, (net, X * np.inf, Z), "infinity"),
        (clone(tool).set_params(budget=budget, clipping="no"), (net, X, Z), "clipping"),
        (clone(tool).set_params(budget=budget, other="fixed"), (net, X, Z), "network has outputs"),
    ]
    for given, arguments, message in refused:
        with pytest.raises(ValueError, match=message):
            given.steps(*arguments)
        assert budget.remaining() == 1.0
    tool.steps(net, X, Z)
    assert budget.remaining() < 0.6
    with pytest.raises(BudgetExceededError):
        tool.steps(net, X, Z)


def test_an_error_while_training_quotes_no_row(monkeypatch):
    def fails(self, network, batch, directions):
        raise ValueError(f"found {batch}")

    net, tool = network(), PrivateWassersteinGradient(**ALL)
    monkeypatch.setattr(_Sides, "clipped_sum", fails)
    with pytest.raises(RuntimeError, match="hidden") as caught:
        list(tool.steps(net, X, Z))
    assert "tensor" not in str(caught.value)
    assert caught.value.__context__ is None
    assert "tensor" not in repr(tool)
    pickle.dumps(tool)
