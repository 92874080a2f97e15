"""Distributions of outputs: what of them is compared, how they are released, where they pull."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot._utils.streams import SecretStream
from skdpot.fair.thresholds import plan_threshold, tuned_threshold
from skdpot.nets.compared_outputs import ClippedOutputs, Probabilities
from skdpot.nets.gradients import shares_of_jacobians
from skdpot.nets.output_tables import TableNoise, noisy_counts, release_tables
from skdpot.ot.transport import pulls_between
from skdpot.privacy.events import NonPrivateEvent
from skdpot.release.strategy import strategy_of

RNG = np.random.default_rng(6607)
EXTREME = (0.0, 1.0, -40.0, 800.0, 1e300, -1e300, np.inf, -np.inf, np.nan)
SETS = [Probabilities(q) for q in (1, 3, 4, 5, 6)]
SETS += [ClippedOutputs(k, radius) for k in (1, 2, 5) for radius in (1e-20, 0.3, 7.0)]


def outputs_of(compared, n, scale=3.0):
    return torch.from_numpy(RNG.normal(scale=scale, size=(n, compared.n_outputs)))


@pytest.mark.parametrize("n_outputs", [1, 3, 4, 6])
def test_derivatives_are_those_of_autograd(n_outputs):
    compared = Probabilities(n_outputs)
    outputs = outputs_of(compared, 30)
    expected = torch.func.vmap(torch.func.jacrev(lambda row: compared.values(row[None])[0]))(
        outputs
    )
    torch.testing.assert_close(compared.derivatives(outputs), expected, rtol=1e-12, atol=1e-15)
    vectors = torch.from_numpy(RNG.normal(size=(30, n_outputs)))
    torch.testing.assert_close(
        compared.pull_back(vectors, outputs), torch.einsum("nkq,nk->nq", expected, vectors)
    )
    jacobians = torch.from_numpy(RNG.normal(size=(30, n_outputs, 9)))
    through = expected @ jacobians
    torch.testing.assert_close(
        compared.gram(jacobians @ jacobians.mT, outputs), through @ through.mT, rtol=1e-7, atol=1e-7
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


# Tables.

LINE, LINE_HALF = np.ones((1, 1)), np.full(1, 0.5)


def silent(n_bins):
    strategy = strategy_of(n_bins)
    none = {"sigma": 0.0, "mu": math.inf, "event": NonPrivateEvent()}
    return TableNoise(strategy=strategy, lattice=strategy.lattice, **none)


def by_hand(values, codes, n_codes, directions, half_widths, n_bins):
    """Counts by numpy's histogram, times the strategy."""
    counts = np.zeros((n_codes, len(directions), n_bins))
    for c, s in np.ndindex(*counts.shape[:2]):
        half = half_widths[s]
        projected = np.clip(directions[s] @ values[codes == c].T, -half, half)
        counts[c, s] = np.histogram(projected, n_bins, (-half, half))[0]
    return counts @ strategy_of(n_bins).matrix.T


@pytest.mark.parametrize("compared", [Probabilities(1), Probabilities(3), ClippedOutputs(2, 0.7)])
def test_without_noise_the_statistic_is_that_of_the_histograms(compared):
    directions = compared.directions(5, RNG)
    halves = compared.half_widths(directions)
    values = RNG.uniform(-1, 1, (200, compared.n_outputs)) * halves.max()
    codes = RNG.integers(0, 3, 200)
    counts = noisy_counts(
        values,
        codes,
        n_codes=3,
        directions=directions,
        centres=np.zeros(len(halves)),
        half_widths=halves,
        noise=silent(16),
        stream=SecretStream(0),
        seen=lambda records, public_codes: (records[0], public_codes),
        known=None,
    )
    expected = by_hand(values, codes, 3, directions, halves, 16)
    np.testing.assert_allclose(counts, expected, atol=1e-9)


def test_a_second_release_looks_where_the_first_found_outputs():
    """Squeezed outputs are resolved, and the ranges stay within the limits."""
    values = 0.3 + 0.01 * RNG.uniform(-1, 1, (600, 1))
    codes, sizes = np.repeat([0, 1], 300), (300, 300)
    args = (values, codes, sizes, LINE, LINE_HALF, silent(16), SecretStream(0))
    first = release_tables(*args)
    second = release_tables(*args, previous=first)
    third = release_tables(*args, previous=second)
    widths = [found.tables[0].half_widths[0] for found in (first, second, third)]
    assert widths[0] == 0.5
    assert widths[0] > 3 * widths[1] > 6 * widths[2] > 0.02
    for found in (second, third):
        centre, half = found.centres[0], found.tables[0].half_widths[0]
        assert centre - half <= values.min() <= values.max() <= centre + half
        assert -0.5 <= centre - half <= centre + half <= 0.5
    exact = np.quantile(values[:300, 0], [0.1, 0.5, 0.9])
    found = third.tables[0].quantiles_along(0, np.array([0.1, 0.5, 0.9])) + third.centres[0]
    np.testing.assert_allclose(found, exact, atol=0.002)


def test_outputs_that_are_all_equal_can_be_measured_for_ever():
    """Ranges stop shrinking before single precision cannot count in them any more."""
    values, codes = np.full((40, 1), 0.25), np.repeat([0, 1], 20)
    found = None
    for _ in range(60):
        found = release_tables(
            values, codes, (20, 20), LINE, LINE_HALF, silent(64), SecretStream(0), previous=found
        )
    assert found.tables[0].half_widths[0] == 0.5e-6
    assert np.abs(found.pulls(found.projections(values), 0, [1])).max() < 1e-6


@pytest.mark.parametrize(
    ("compared", "n_groups"), [(Probabilities(3), 2), (ClippedOutputs(2, 0.8), 3)]
)
def test_without_noise_the_pull_converges_to_that_of_ranks(compared, n_groups):
    """The error falls with the number of bins, at about its rate."""
    n, k = 3000, compared.n_outputs
    directions = compared.directions(6, RNG)
    halves = compared.half_widths(directions)
    reach = 0.5 * halves.min() / math.sqrt(k)
    samples = [reach * RNG.uniform(-1, 1, (n, k)) * (1 - 0.2 * c) for c in range(n_groups)]
    samples = [sample + 0.3 * reach * c for c, sample in enumerate(samples)]
    exact = pulls_between(samples, directions)
    size = max(np.abs(vectors).mean() for vectors in exact)
    errors = []
    for n_bins in (8, 32, 128):
        cells = np.repeat(np.arange(n_groups), n), (n,) * n_groups
        args = np.concatenate(samples), *cells, directions, halves, silent(n_bins), SecretStream(0)
        tables = release_tables(*args)
        for cell, sample in enumerate(samples):
            others = [b for b in range(n_groups) if b != cell]
            pull = tables.pulls(tables.projections(sample), cell, others).T @ tables.directions
            errors.append(np.abs(pull / n - exact[cell]).mean() / size)
    errors = np.array(errors).reshape(3, n_groups).mean(axis=1)
    assert errors[1] < 0.5 * errors[0]
    assert errors[2] < 0.6 * errors[1]
    assert errors[2] < 0.05


# The threshold at which classes are equally frequent, read off noisy statistics alone.


NO_NOISE = plan_threshold(math.inf, 20_000, public_classes=False)


def scores(n, centre, share=0.3, spread=0.2):
    """Scores of two classes, those of the second higher."""
    labels = (RNG.random(n) < share).astype(np.intp)
    return np.clip(RNG.normal(centre + spread * labels, spread), 0, 1), labels


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("centre", [0.1, 0.4, 0.7])
@pytest.mark.parametrize("spread", [0.01, 0.1])
def test_without_noise_as_many_are_selected_as_belong_to_the_second_class(share, centre, spread):
    """Up to what is in a bin; squeezed scores are resolved too."""
    probabilities, labels = scores(20_000, centre, share, spread)
    found = tuned_threshold(probabilities, labels, NO_NOISE, SecretStream(0))
    expected = np.quantile(probabilities, 1 - labels.mean())
    assert found == pytest.approx(expected, abs=0.03 * spread)
    assert np.mean(probabilities > found) == pytest.approx(labels.mean(), abs=0.01)


@pytest.mark.parametrize("label", [0, 1])
def test_a_single_class_still_has_a_threshold(label):
    """Declared classes may be absent, and nobody is told."""
    probabilities, labels = RNG.uniform(0.2, 0.8, 40), np.full(40, label)
    found = tuned_threshold(probabilities, labels, NO_NOISE, SecretStream(0))
    assert 0 < found < 1
    assert (found > 0.7) == (label == 0)
