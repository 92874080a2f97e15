"""Noise is fresh in every fit. `tests/contract/test_replay.py` has what a fit may give."""

import numpy as np
import pytest
import torch

from skdpot import SlicedSketch
from tests.flat_options import flow_sampler

X = np.random.default_rng(8841).uniform(-1, 1, (300, 3))
OPTIONS = {"bounds": (-2, 2), "projections": np.eye(3), "n_bins": 16}


@pytest.mark.parametrize("seeded", [False, True])
def test_the_same_rows_give_other_statistics_every_time(seeded):
    """Only random_state makes noise reproducible, and then it warns."""
    tables = []
    for _ in range(2):
        if seeded:
            np.random.seed(0)  # noqa: NPY002, TID251
            torch.manual_seed(0)  # noqa: TID251
        tables.append(SlicedSketch(**OPTIONS).fit(X).statistic_)
    assert np.mean(tables[0] == tables[1]) < 0.1


def test_particles_are_not_rows():
    particles = flow_sampler(**OPTIONS, n_steps=5, n_particles=60).fit(X).particles_
    assert np.min(np.abs(particles[:, None] - X[None]).max(axis=2)) > 0
