"""Mechanisms against the strongest attack on one record, with the whole noise to be seen.

Each case is made such that the replaced record moves the release by the whole sensitivity, or by as
much of it as stated, and is run hundreds of times on both neighbours. What it releases is compared
along the difference of the releases without noise. The lower bound of ε that follows exceeds the
claim by chance once in 10^7 audits, or less; with a defect it does in all but one of 10^6, as
`test_the_audits_have_power` works out.
"""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from skdpot import SlicedSketch
from skdpot._utils.streams import SecretStream, Streams
from skdpot.audit.many_runs import GaussianAuditResult
from skdpot.fair.fair_loss import FairLoss
from skdpot.fair.sketched_outputs import tabled_steps
from skdpot.fair.training_rows import TrainingRows
from skdpot.mechanisms import FitContext, Resample
from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ClippedOutputs
from skdpot.nets.output_tables import plan_output_tables, release_tables
from skdpot.nets.training_plan import plan_training
from skdpot.privacy import Reliability
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.gdp import gdp_mu
from skdpot.privacy.noise import calibrate_lattice
from skdpot.privacy.targets import SingleFitTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.gate import record_releases
from skdpot.release.strategy import strategy_of
from skdpot.release.value_histogram import Intervals, release_histograms
from skdpot.sampling.autoencoder_training import AutoencoderLoss, private_steps
from skdpot.tables.category_selection import plan_category_selection, select_categories
from skdpot.tables.contingency import Marginal
from skdpot.tables.marginal_release import misfit_sensitivity, release_marginals, release_misfits
from skdpot.trajectories.langevin_release import mean_field_langevin, plan_langevin
from skdpot.trajectories.schedule import Phase
from skdpot.trajectories.warm_start_release import plan_warm_start, release_mean_start
from tests.core.release.exact import no_noise

EPSILON, DELTA = 50.0, 1e-5
MU = gdp_mu(EPSILON, DELTA)
TARGET = SingleFitTarget(EPSILON, DELTA)
CONFIDENCE = 1 - 1e-7
N_BINS = 16
CENTRES = (2 * np.arange(N_BINS) + 1) / N_BINS - 1


@pytest.fixture(autouse=True)
def _without_decoding(monkeypatch):
    """What is read from a table later is no release, and takes most of the time."""
    monkeypatch.setattr(SlicedSketch, "_decode", lambda self: None)
    monkeypatch.setattr(SlicedSketch, "reliability_", Reliability(()), raising=False)


def farthest_bins(matrix):
    """The two bins between which a count moves the statistic furthest."""
    apart = np.linalg.norm(matrix.T[:, None] - matrix.T[None], axis=2)
    return np.unravel_index(apart.argmax(), apart.shape)


A, B = farthest_bins(strategy_of(N_BINS, 1.0).matrix)


def beside(n, first=1.0, second=-1.0):
    """Rows of either record and of n others."""
    return [np.append(np.zeros(n), x)[:, None] for x in (first, second)]


def sketch(ends, labels=((0,) * 4,) * 2, *, rows=1, **options):
    options = {"bounds": (-1, 1), "projections": np.ones((1, 1)), "n_bins": N_BINS} | options
    data = [(np.tile(X, (rows, 1)), y) for X, y in zip(beside(3, *ends), labels, strict=True)]
    return lambda given: SlicedSketch(EPSILON, **options).fit(*given), *data


OF_CLASSES = {"conditional": True, "classes": [0, 1]}
# The record stays where it is and changes its class; with two bins that counts by √2.
CHANGED_CLASS = ((0, 0, 0, 0), (0, 0, 0, 1))
# A person with a row of each of two labels, which are public.
PERSONS = {"rows": 2, "public_labels": True, "group_size": 2} | OF_CLASSES


def projected_rows(n_steps):
    """One row beside the record; values lose their order, so that their sum is what tells most.

    It has the noise of both rows: the audit sees 1 / √2 of the distance.
    """
    mechanism = Resample(batch_size=2, n_projections=1)

    def run(X):
        streams = Streams(SecretStream(), np.random.default_rng(), np.random.default_rng())
        promise = {"epsilon": EPSILON, "delta": DELTA, "budget": None, "bounds": (-1, 1)}
        context = FitContext(caller="rows", streams=streams, source=X, **promise)
        mechanism.release(context, X, None, conditional=False, n_steps=n_steps)

    return run, *beside(1)


def mean_start():
    plan = plan_warm_start("mean", MU, 1.0, 1)
    return lambda X: release_mean_start([X], plan, SecretStream()), *beside(60)


def histogram():
    noise = calibrate_lattice(MU, math.sqrt(2))
    cells = Intervals(n_features=1, lowest=np.array([-4.0]), width=np.ones(1), n_cells=8)

    def run(X):
        release_histograms(cells, X, noise, SecretStream(), NonPrivateEvent())

    return run, *beside(3)


def category_counts():
    """A record that leaves one category for another, both of which are shown."""
    columns = [np.repeat(["a", "b", x], [30, 30, 1]) for x in "ba"]
    plan = plan_category_selection(61, mu=MU, delta=1e-9, n_columns=1)
    return lambda column: select_categories(column, plan, SecretStream()), *columns


COLUMNS = 4
TABLES = [Marginal((j,), (np.arange(2),)) for j in range(COLUMNS)]
TABLES += [Marginal((j, j + 1), (np.arange(2),) * 2) for j in range(COLUMNS - 1)]
# A record has one and the same value in all columns, which decides on every cell.
CODES = [np.repeat((X > 0).astype(int), COLUMNS, axis=1) for X in beside(3)]


def table_counts():
    weights = np.geomspace(1, 50, len(TABLES))
    sigmas = np.sqrt(2 * weights.sum() / weights) / MU
    return (
        lambda codes: release_marginals(codes, TABLES, sigmas, SecretStream(), NonPrivateEvent()),
        *CODES,
    )


def table_misfits():
    """One count is predicted too low for either record, the other too high."""
    sigma = misfit_sensitivity(TABLES) / MU
    predicted = [np.append(10.0, np.zeros(table.n_cells - 1)) for table in TABLES]
    options = TABLES, predicted, sigma
    return lambda X: release_misfits(X, *options, SecretStream(), NonPrivateEvent()), *CODES


def output_table():
    noise = plan_output_tables(MU, 1, 1, 100)
    n, codes, line = len(noise.strategy.matrix), np.zeros(4, int), np.ones((1, 1))
    ends = ((2 * end + 1) / n - 1 for end in farthest_bins(noise.strategy.matrix))

    def run(X):
        release_tables(X, codes, (4,), line, np.ones(1), noise, SecretStream())

    return run, *beside(3, *ends)


def langevin():
    """One step of a particle that stands alone, and a record on either side of it."""
    options = {"clip": 0.5, "dim": 12, "sampling_rate": 1.0, "n_samples": 4}
    box, start = DataBounds.from_box(-1, 1, 1), np.zeros((1, 1, 1))
    plan = plan_langevin(TARGET, [Phase(0.01, 0.3, 1)], bounds=box, **options)
    options = {"bandwidth": 0.2, "regularization": 1e-3, "coupling": None}

    def run(X):
        mean_field_langevin([X], start, [], plan, secret=SecretStream(), **options)

    return run, *beside(3)


TRAINING = plan_training(
    TARGET, n_samples=4, batch_size=4, n_steps=3, sampling="poisson", sensitivity=0.2,
    n_parameters=100,
)  # fmt: skip


def noisy_steps(step):
    """Noisy gradients of three steps of a network that is an offset.

    Opposite records have opposite gradients of any length.
    """
    network = nn.Sequential(nn.Identity(), nn.Linear(1, 1))
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    network[1].weight.requires_grad_(False)
    for number in range(3):
        step(network, number)


def autoencoder():
    def run(X):
        rows, rng = torch.from_numpy(X).float(), np.random.default_rng()
        loss = AutoencoderLoss(clip=0.1)
        noisy_steps(private_steps(loss, rows, TRAINING, SecretStream(), rng))

    return run, *beside(3)


def fair_sums():
    loss = FairLoss(
        gradient=lambda outputs, targets: outputs - targets[:, None],
        compared=ClippedOutputs(1, 1.0),
        alpha=0.0,
        clip=0.1,
        clip_jacobian=1.0,
    )
    options = {"loss": loss, "cells": Cells(np.zeros(4, int), (4,), ()), "plan": TRAINING}
    options |= {"noise": None, "release_at": (), "n_projections": 1}

    def run(X):
        records = TrainingRows(torch.from_numpy(X).float(), torch.from_numpy(X[:, 0]).double())
        streams = {"secret": SecretStream(), "public": np.random.default_rng()}
        noisy_steps(tabled_steps(records, **options, **streams))

    return run, *beside(3)


# What is released of either neighbour; the share of the claimed distance that the attack can see;
# by how much the smallest defect that it is there for makes the distance longer; and runs on each.
CASES = {
    "sketch": (partial(sketch, CENTRES[[A, B]]), 1.0, 2.0, 70),
    "sketch with classes": (
        partial(sketch, (-1.0, -1.0), CHANGED_CLASS, n_bins=2, **OF_CLASSES), 1.0, 2**0.5, 250
    ),
    "sketch of persons": (
        partial(sketch, CENTRES[[A, B]], ((0,) * 4 + (1,) * 4,) * 2, **PERSONS), 1.0, 2**0.5, 250
    ),
    "projected rows": (lambda: projected_rows(1), 2**-0.5, 2.0, 250),
    "projected rows of four steps": (lambda: projected_rows(4), 2**-0.5, 2.0, 250),
    "mean of a warm start": (mean_start, 0.97, 2.0, 75),  # what rounding may add is charged
    "histogram of bounds": (histogram, 1.0, 2.0, 70),
    "counts of categories": (category_counts, 1.0, 2.0, 70),
    "counts of a synthesizer": (table_counts, 1.0, 2.0, 70),
    "misfits of a synthesizer": (table_misfits, 1.0, 2.0, 70),
    "fair table": (output_table, 1.0, 2.0, 70),
    "mean-field Langevin": (langevin, 1.0, 2.0, 70),
    "sums of an autoencoder": (autoencoder, 1.0, 2.0, 70),
    "fair sums": (fair_sums, 1.0, 2.0, 70),
}  # fmt: skip


def released_by(run, data):
    """All numbers that a run releases, in standard deviations of their noise."""
    with record_releases() as releases:
        run(data)
    found = []
    for release in releases:
        value, sigma = release.value, release.sigma
        if release.kind == "rows":  # directions are drawn, and have a sign
            value = np.sum(value * release.facts["directions"])
        if release.kind == "category_counts":
            value = [count for _, count in sorted(value)]
        if release.kind == "cluster_sums":
            value = value[0]
        several = value if isinstance(value, tuple) else (value,)
        sigmas = sigma if isinstance(sigma, tuple) else (sigma,) * len(several)
        found += [np.ravel(one) / by for one, by in zip(several, sigmas, strict=True)]
    return np.concatenate(found)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_no_audit_proves_more_than_the_claim(case):
    make, share, _, n_trials = CASES[case]
    run, *neighbours = make()
    with no_noise():
        first, second = (released_by(run, data) for data in neighbours)
    scores = [
        np.array([released_by(run, data) @ (first - second) for _ in range(n_trials)])
        for data in neighbours
    ]
    result = GaussianAuditResult(*scores, epsilon=EPSILON, delta=DELTA)
    assert result.gaussian_epsilon_lower_bound(CONFIDENCE) <= EPSILON
    # And it sees what it is made to see, up to five and a half standard errors.
    one, other = scores
    seen = (one.mean() - other.mean()) / math.sqrt((one.var() + other.var()) / 2)
    expected = 0.98 * share * MU
    assert seen > expected - 5.5 * math.sqrt((2 + expected**2 / 4) / n_trials)


@pytest.mark.parametrize("case", CASES)
def test_the_audits_have_power(case):
    """The statistic is t with 2 n - 2 degrees, noncentral by the distance over √(2/n).

    The bound exceeds the claim where the tail beyond the statistic, for the claim, is below 10^-7.
    """
    _, share, longer, n = CASES[case]
    scale = math.sqrt(2 / n)
    critical = stats.nct.isf(1 - CONFIDENCE, 2 * n - 2, MU / scale)
    assert stats.nct.cdf(critical, 2 * n - 2, share * longer * MU / scale) < 1e-6
