"""Particles that are moved, against the law that they follow by enumeration."""

import itertools

import numpy as np
import pytest

from skdpot.tables import particles
from skdpot.tables.contingency import Marginal, NoisyMarginal
from skdpot.tables.particles import Moves, ScaledParticles

SIZES = (3, 2, 4, 2)
EVERY = np.array(list(itertools.product(*map(range, SIZES))), dtype=np.int32)


def factors(rng):
    """Return factors of pairs, one of them of groups of bins, and one of three columns."""
    whole = [np.arange(size) for size in SIZES]
    columns = [(0,), (0, 1), (0, 1), (1, 3), (2, 0), (0, 2, 3)]
    groups = [tuple(whole[column] for column in some) for some in columns]
    groups[4] = (np.array([0, 0, 1, 1]), np.array([0, 1, 0]))
    found = [Marginal(some, own) for some, own in zip(columns, groups, strict=True)]
    return tuple((marginal, rng.normal(size=marginal.n_cells)) for marginal in found)


@pytest.mark.parametrize("most_merged", [particles._MOST_MERGED, 0])
@pytest.mark.parametrize("impossible", [(), ({0: np.arange(3) == 1, 2: np.arange(4) > 1},)])
def test_moved_particles_follow_the_product_of_factors(monkeypatch, most_merged, impossible):
    monkeypatch.setattr(particles, "_MOST_MERGED", most_merged)
    rng, n_particles = np.random.default_rng(0), 40_000
    known = factors(rng)
    law = np.exp(sum(logs[marginal.cells(EVERY)] for marginal, logs in known))
    for marks in impossible:
        law[np.all([mark[EVERY[:, c]] for c, mark in marks.items()], axis=0)] = 0.0
    law /= law.sum()
    codes = np.zeros((n_particles, len(SIZES)), dtype=np.int32, order="F")
    moves = Moves(known, impossible, n_particles, rng)
    for _ in range(20):
        moves.apply(codes)
    found = np.bincount(np.ravel_multi_index(tuple(codes.T), SIZES), minlength=len(law))
    assert (found[law == 0.0] == 0).all()
    # A chi-squared variable, if the particles have forgotten that all of them began as zeros.
    statistic = np.sum((found - n_particles * law)[law > 0] ** 2 / (n_particles * law[law > 0]))
    assert statistic < np.sum(law > 0) + 5 * np.sqrt(2 * len(law))


def test_many_strong_relations_leave_many_particles():
    """Of 30 bits in a chain, from particles with independent ones."""
    rng, n_columns, n_particles = np.random.default_rng(1), 30, 20_000
    bits = np.arange(2)
    due = np.array([0.4, 0.1, 0.1, 0.4]) * n_particles
    pairs = [Marginal((c, c + 1), (bits, bits)) for c in range(n_columns - 1)]
    codes = rng.integers(0, 2, (n_particles, n_columns)).astype(np.int32)
    even = tuple((Marginal((c,), (bits,)), np.zeros(2)) for c in range(n_columns))
    found = ScaledParticles(
        codes, np.ones(n_particles), Moves(even, (), n_particles // 2, np.random.default_rng(2))
    )
    for pair in pairs:
        found.add(NoisyMarginal(pair, due, 0.0))
    found.run(30)
    assert len(found.codes) == len(found.weights) == n_particles // 2
    assert found.weights.sum() == pytest.approx(n_particles)
    assert found.weights.sum() ** 2 > 0.2 * len(found.weights) * np.sum(found.weights**2)
    for pair, potentials in zip(pairs, found.potentials, strict=True):
        np.testing.assert_allclose(pair.counts(found.codes, found.weights), due, atol=10)
        a, b, c, d = potentials
        assert a - b - c + d == pytest.approx(np.log(16), abs=0.3)
