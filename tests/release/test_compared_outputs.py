"""What of the outputs is compared: derivatives, and the sets that values never leave."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.release.gradients import shares_of_jacobians
from skdpot.release.output_tables import ClippedOutputs, Probabilities

RNG = np.random.default_rng(6607)
EXTREME = (0.0, 1.0, -40.0, 800.0, 1e300, -1e300, np.inf, -np.inf, np.nan)
SETS = [Probabilities(q) for q in (1, 3, 4, 5, 6)]
SETS += [ClippedOutputs(k, radius) for k in (1, 2, 5) for radius in (1e-20, 0.3, 7.0)]


def outputs_of(compared, n, scale=3.0):
    return torch.from_numpy(RNG.normal(scale=scale, size=(n, compared.n_outputs)))


def single_derivatives(compared, outputs):
    """One record at a time, by autograd."""
    return torch.stack(
        [
            torch.autograd.functional.jacobian(lambda o: compared.values(o[None])[0], row)
            for row in outputs
        ]
    )


@pytest.mark.parametrize("n_outputs", [1, 3, 4, 6])
def test_derivatives_are_those_of_autograd(n_outputs):
    compared = Probabilities(n_outputs)
    outputs = outputs_of(compared, 30)
    expected = single_derivatives(compared, outputs)
    torch.testing.assert_close(compared.derivatives(outputs), expected, rtol=1e-12, atol=1e-15)
    vectors = torch.from_numpy(RNG.normal(size=(30, n_outputs)))
    torch.testing.assert_close(
        compared.pull_back(vectors, outputs), torch.einsum("nkq,nk->nq", expected, vectors)
    )
    jacobians = torch.from_numpy(RNG.normal(size=(30, n_outputs, 9)))
    through = expected @ jacobians
    torch.testing.assert_close(
        compared.gram(jacobians @ jacobians.mT, outputs),
        through @ through.mT,
        rtol=1e-7,
        atol=1e-7,
    )


@pytest.mark.parametrize("n_outputs", [3, 4, 5, 8])
@pytest.mark.parametrize("logits", ["equal", "random", "steep"])
def test_jacobians_that_cancel_behind_the_softmax_are_still_clipped(n_outputs, logits):
    """All logits move together by 1e30, which no probability shows but for rounding.

    Without room for what cancels, one record adds a thousand times its share.
    """
    compared = Probabilities(n_outputs)
    scale = {"equal": 0.0, "random": 1.0, "steep": 30.0}[logits]
    outputs = outputs_of(compared, 400, scale=scale)
    common = torch.ones(400, n_outputs, 1).double() * torch.logspace(0, 30, 400)[:, None, None]
    own = torch.from_numpy(RNG.normal(size=(400, n_outputs, 3)))
    jacobians = torch.cat([common, own], dim=2)
    shares = shares_of_jacobians(compared.gram(jacobians @ jacobians.mT, outputs), 1.0)
    vectors = torch.from_numpy(RNG.normal(size=(400, n_outputs)))
    chosen = compared.pull_back(vectors * shares[:, None], outputs)
    added = torch.einsum("nq,nqp->np", chosen, jacobians).norm(dim=1)
    assert bool((added <= vectors.norm(dim=1)).all())


def corners(compared, directions):
    """Outputs that reach the ends of the set along each direction."""
    if isinstance(compared, Probabilities):
        if compared.n_outputs == 1:
            return torch.tensor([[-1e6], [1e6]], dtype=torch.float64)
        return 1e6 * torch.eye(compared.n_outputs, dtype=torch.float64)
    return torch.from_numpy(1e6 * np.concatenate([directions, -directions]))


@pytest.mark.parametrize("compared", SETS, ids=repr)
def test_widths_are_attained_and_never_exceeded(compared):
    directions, alone = compared.directions(12, RNG), compared.n_outputs == 1
    assert directions.shape == (1 if alone else 12, compared.n_outputs)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1.0, rtol=1e-12)
    if isinstance(compared, Probabilities) and not alone:
        np.testing.assert_allclose(directions.sum(axis=1), 0.0, atol=1e-12)
    widths, half_widths = compared.widths(directions), compared.half_widths(directions)
    assert widths.shape == half_widths.shape == (len(directions),)
    ends = directions @ compared.values(corners(compared, directions)).numpy().T
    np.testing.assert_allclose(np.ptp(ends, axis=1), widths, rtol=1e-12)
    np.testing.assert_allclose(np.abs(ends).max(axis=1), half_widths, rtol=1e-12)
    anywhere = np.concatenate(
        [directions @ compared.values(outputs_of(compared, 500, s)).numpy().T for s in (0.1, 9)],
        axis=1,
    )
    assert np.all(np.ptp(anywhere, axis=1) <= widths * (1 + 1e-12))
    assert np.all(np.abs(anywhere).max(axis=1) <= half_widths * (1 + 1e-12))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(SETS) - 1), st.data())
def test_values_lie_in_the_set_whatever_the_outputs(number, data):
    """Not a number, infinite, beyond what can be squared: a value is finite and in its set."""
    compared = SETS[number]
    entry = st.one_of(st.sampled_from(EXTREME), st.floats(allow_nan=True, allow_infinity=True))
    row = data.draw(st.lists(entry, min_size=compared.n_outputs, max_size=compared.n_outputs))
    outputs = torch.tensor([row], dtype=torch.float64)
    if isinstance(compared, Probabilities):  # which training bounds before it asks
        outputs = outputs.nan_to_num(nan=0.0, posinf=1e100, neginf=-1e100)
    values = compared.values(outputs).numpy()
    assert np.isfinite(values).all()
    directions = compared.directions(5, RNG)
    reached = np.abs(directions @ values.T)[:, 0]
    assert np.all(reached <= compared.half_widths(directions) * (1 + 1e-12))
