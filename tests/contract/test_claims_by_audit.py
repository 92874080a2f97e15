"""Mechanisms against the strongest attack on one record, with the whole noise to be seen.

Each case is made such that the replaced record moves the release by the whole sensitivity, or by as
much of it as stated, and is run hundreds of times on both neighbours. The lower bound of ε that
follows (`skdpot.audit.gaussian_audit`) exceeds the claim by chance once in 10^7 audits, or less;
with a defect it does in all but one of 10^6, as `test_the_audits_have_power` works out.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from skdpot import SlicedSketch
from skdpot._utils.validation import SecretStream, Streams
from skdpot.audit import gaussian_audit
from skdpot.audit.canaries import CanaryPairs
from skdpot.audit.message_attacks import statistic_of
from skdpot.mechanisms import FitContext, Resample
from skdpot.mechanisms.fair import FairLoss, Records, tabled_steps
from skdpot.nets.autoencoder_training import AutoencoderLoss, private_steps
from skdpot.privacy.accounting import SingleFitTarget
from skdpot.privacy.events import NonPrivateEvent, gdp_mu
from skdpot.privacy.noise import calibrate_lattice
from skdpot.release.bounds import DataBounds
from skdpot.release.categories import plan_category_selection, select_categories
from skdpot.release.contingency import (
    Marginal,
    misfit_sensitivity,
    release_marginals,
    release_misfits,
    tables_of,
)
from skdpot.release.gradients import plan_training
from skdpot.release.histogram import square_root_strategy
from skdpot.release.langevin import LangevinPhase, mean_field_langevin, plan_langevin
from skdpot.release.output_tables import Cells, ClippedOutputs, noisy_counts, plan_tables
from skdpot.release.value_histogram import Counting, SignedGrid, noisy_histogram
from skdpot.release.warm_start import plan_warm_start, release_mean_start

EPSILON, DELTA = 50.0, 1e-5
MU = gdp_mu(EPSILON, DELTA)
TARGET = SingleFitTarget(EPSILON, DELTA)
CONFIDENCE = 1 - 1e-7
N_BINS = 16
LINE = {"epsilon": EPSILON, "bounds": (-1, 1), "projections": np.ones((1, 1)), "n_bins": N_BINS}
KNOWN = np.zeros((3, 1))
CENTRES = (2 * np.arange(N_BINS) + 1) / N_BINS - 1


@pytest.fixture(autouse=True)
def _without_decoding(monkeypatch):
    """What is read from a table later is no release, and takes most of the time."""
    monkeypatch.setattr(SlicedSketch, "_decode", lambda self: None)


def pair(first, second, *labels):
    """Two records that replace each other."""
    given = dict(
        zip(("first_labels", "second_labels"), np.array(labels)[:, None], strict=bool(labels))
    )
    return CanaryPairs(first=np.array([[first]]), second=np.array([[second]]), **given)


def farthest_bins(matrix):
    """The two bins between which a count moves the statistic furthest."""
    apart = np.linalg.norm(matrix.T[:, None] - matrix.T[None], axis=2)
    return np.unravel_index(apart.argmax(), apart.shape)


A, B = farthest_bins(square_root_strategy(N_BINS).matrix)


def along(direction):
    """Score of a release that the two records move along a direction."""
    return lambda audited: np.array([float(np.sum(audited.fitted * direction))])


def attacked(fit, score=None, *, known=KNOWN, y=None, canaries=None):
    """What is fitted to which known rows and labels, the two records, and the score."""
    score = along(1.0) if score is None else score
    return fit, known, y, pair(1.0, -1.0) if canaries is None else canaries, score


def sketch():
    return attacked(SlicedSketch(**LINE), "auto", canaries=pair(CENTRES[A], CENTRES[B]))


def sketch_with_classes():
    """The record stays where it is and changes its class; with two bins that counts by √2."""
    fit = SlicedSketch(**LINE | {"n_bins": 2}, conditional=True, classes=[0, 1])
    return attacked(fit, "auto", y=np.zeros(3, int), canaries=pair(-1.0, -1.0, 0, 1))


def sketch_of_persons():
    """A person with a row of each of two labels, which are public."""

    def fit(X, _):
        sketch = SlicedSketch(
            **LINE, conditional=True, classes=[0, 1], public_labels=True, group_size=2
        )
        return sketch.fit(np.concatenate([X, X]), np.repeat([0, 1], len(X)))

    def score(audited):
        released = audited.fitted
        first, second = (
            statistic_of(released, np.repeat(row, 2, axis=0), [0, 1])
            for row in (audited.pairs.first, audited.pairs.second)
        )
        return np.array([np.sum(released.statistic_ * (first - second))])

    return attacked(fit, score, canaries=pair(CENTRES[A], CENTRES[B]))


def projected_rows(n_steps):
    """One row beside the record; values lose their order, so that their sum is what tells most.

    It has the noise of both rows: the audit sees 1 / √2 of the distance.
    """

    def score(audited):
        batches = audited.fitted.value.batches
        return np.array([sum(float(np.sum(b.values * b.directions)) for b in batches)])

    mechanism = Resample(batch_size=2, n_projections=1)

    def fit(X, _):
        streams = Streams(SecretStream(), np.random.default_rng(), np.random.default_rng())
        promise = {"epsilon": EPSILON, "delta": DELTA, "budget": None, "bounds": (-1, 1)}
        context = FitContext(caller="rows", streams=streams, source=X, **promise)
        return mechanism.release(context, X, None, conditional=False, n_steps=n_steps)

    return attacked(fit, score, known=KNOWN[:1])


def mean_start():
    plan = plan_warm_start("mean", MU, 1.0, 1)

    def fit(X, _):
        return release_mean_start([X], plan, SecretStream())

    # The mean is shortened to the ball afterwards: many known rows keep it inside.
    return attacked(fit, known=np.zeros((60, 1)))


def histogram():
    noise = calibrate_lattice(MU, math.sqrt(2))

    def fit(X, _):
        counting = Counting(grid=grid, order=np.arange(4), shape=X.shape, feature=0)
        return noisy_histogram(X[:, 0], counting, noise, SecretStream(), NonPrivateEvent())

    grid = SignedGrid(n_uniform=1, octaves=2)
    return attacked(fit, along(np.array([0.0, -1.0, 0.0, 1.0, 0.0])))


def category_counts():
    """A record that leaves one category for another, both of which are shown."""
    known = np.repeat([[-1.0], [1.0]], 30, axis=0)
    plan = plan_category_selection(len(known) + 1, mu=MU, delta=1e-9, n_columns=1)

    def fit(X, _):
        _, counts = select_categories(np.where(X[:, 0] > 0, "b", "a"), plan, SecretStream())
        return counts

    return attacked(fit, along(np.array([-1.0, 1.0])), known=known)


COLUMNS = 4
TABLES = [Marginal((j,), (np.arange(2),)) for j in range(COLUMNS)]
TABLES += [Marginal((j, j + 1), (np.arange(2),) * 2) for j in range(COLUMNS - 1)]


def all_codes(X):
    """A record has one and the same value in all columns, which decides on every cell."""
    return np.repeat((X[:, :1] > 0).astype(int), COLUMNS, axis=1)


def table_counts():
    weights = np.geomspace(1, 50, len(TABLES))
    sigmas = np.sqrt(2 * weights.sum() / weights) / MU

    def fit(X, _):
        released = tables_of(
            release_marginals(all_codes(X), TABLES, sigmas, SecretStream(), NonPrivateEvent())
        )
        return np.concatenate([noisy.counts / noisy.sigma for noisy in released])

    ends = [all_codes(np.array([[x]])) for x in (1.0, -1.0)]
    steps = [
        (table.counts(ends[0]) - table.counts(ends[1])) / sigma
        for table, sigma in zip(TABLES, sigmas, strict=True)
    ]
    return attacked(fit, along(np.concatenate(steps)))


def table_misfits():
    """One count is predicted too low for either record, the other too high."""
    sigma = misfit_sensitivity(len(TABLES)) / MU
    predictions = [np.zeros(table.n_cells) for table in TABLES]
    for prediction in predictions:
        prediction[0] = 10.0

    def fit(X, _):
        return release_misfits(
            all_codes(X), TABLES, predictions, sigma, SecretStream(), NonPrivateEvent()
        )

    return attacked(fit)


def output_table():
    noise = plan_tables(MU, 1, 1, 100)
    matrix = noise.strategy.matrix
    a, b = farthest_bins(matrix)
    centres = (2 * np.arange(len(matrix)) + 1) / len(matrix) - 1

    def fit(X, _):
        codes, line = np.zeros(len(X), int), np.ones((1, 1))
        return noisy_counts(X, codes, 1, line, np.ones(1), noise, SecretStream())

    return attacked(fit, along(matrix[:, a] - matrix[:, b]), canaries=pair(centres[a], centres[b]))


def langevin():
    """One step of a particle that stands alone, and a record on either side of it."""
    options = {"clip": 0.5, "dim": 12, "sampling_rate": 1.0, "n_samples": 4}
    plan = plan_langevin(
        TARGET, [LangevinPhase(0.01, 0.3, 1)], bounds=DataBounds.from_box(-1, 1, 1), **options
    )
    options = {"bandwidth": 0.2, "regularization": 1e-3, "coupling": None}

    def fit(X, _):
        start = np.zeros((1, 1, 1))
        steps = mean_field_langevin([X], start, [], plan, secret=SecretStream(), **options)
        return steps.particles

    return attacked(fit)


def noisy_steps(step):
    """Sum of the noisy gradients of three steps of a network that is an offset.

    Opposite records have opposite gradients of any length.
    """
    network, total = nn.Sequential(nn.Identity(), nn.Linear(1, 1)), 0.0
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    network[1].weight.requires_grad_(False)
    for number in range(3):
        step(network, number)
        total = total + float(network[-1].bias.grad.double())
    return total


TRAINING = plan_training(
    TARGET, n_samples=4, batch_size=4, n_steps=3, sampling="poisson", sensitivity=0.2,
    n_parameters=100,
)  # fmt: skip


def autoencoder():
    def fit(X, _):
        rows, rng = torch.from_numpy(X).float(), np.random.default_rng()
        loss = AutoencoderLoss(clip=0.1)
        return noisy_steps(private_steps(loss, rows, TRAINING, SecretStream(), rng))

    return attacked(fit, canaries=pair(-1.0, 1.0))


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

    def fit(X, _):
        records = Records(torch.from_numpy(X).float(), torch.from_numpy(X[:, 0]).double())
        streams = {"secret": SecretStream(), "public": np.random.default_rng()}
        return noisy_steps(tabled_steps(records, **options, **streams))

    return attacked(fit, canaries=pair(-1.0, 1.0))


# What is audited; the share of the claimed distance that the attack can see; by how much the
# smallest defect that it is there for makes the distance longer; and fits of either neighbour.
CASES = {
    "sketch": (sketch, 1.0, 2.0, 70),
    "sketch with classes": (sketch_with_classes, 1.0, 2**0.5, 250),
    "sketch of persons": (sketch_of_persons, 1.0, 2**0.5, 250),
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
}


@pytest.mark.parametrize("case", CASES)
def test_no_audit_proves_more_than_the_claim(case):
    make, share, _, n_trials = CASES[case]
    fit, X, y, canaries, score = make()
    claim = {} if hasattr(fit, "fit") else {"epsilon": EPSILON, "delta": DELTA}
    result = gaussian_audit(fit, X, y, canaries=canaries, score=score, n_trials=n_trials, **claim)
    assert result.gaussian_epsilon_lower_bound(CONFIDENCE) <= EPSILON
    # And it sees what it is made to see, up to five and a half standard errors.
    one, other = result.member_scores, result.other_scores
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
