"""Fits of every kind that fail at their end are resumed: the same releases, one charge.

What is public in a fit (directions, particles, first weights) must come out again, for each kept
release to mean what it meant; batches, and all else that is secret, is drawn anew.
"""

from contextlib import suppress

import numpy as np
import pytest

from skdpot import DPSlicedFlowSampler, PrivacyBudget
from skdpot.mechanisms import Resample
from skdpot.privacy.journal import keeping
from skdpot.release.comparison import first_difference
from skdpot.release.gate import record_releases
from tests.contract.fits import ROWS, TABLES

FITS = ROWS | TABLES
QUICK = [
    "scaler",
    "sketch, classes",
    "flow, resample, poisson",
    "classifier, ranks, odds",
    "paths, mfld",
    "distance",
    "encoder, private scale",
    "synthesizer, persons",
]


class FailureError(Exception):
    """What goes wrong at the end."""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", QUICK)
def test_a_fit_of_any_kind_is_resumed(name, tmp_path):
    budget = PrivacyBudget(1e4, 1e-3, ledger=tmp_path / "ledger")

    def releases():
        with record_releases() as found:
            FITS[name].fitted(budget=budget, random_state=None)
        return found

    with suppress(FailureError), keeping():
        due = releases()
        raise FailureError
    assert budget.history()["open"].tolist() == [True]
    with budget.resume():
        found = releases()
    assert len(found) == len(due) > 0
    for one, other in zip(due, found, strict=True):
        assert first_difference(one.value, other.value) is None
    assert budget.history()["open"].tolist() == [False]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["paths, mfld, mean", "paths, mfld, kmeans"])
def test_what_is_released_time_by_time_is_not_kept(name, tmp_path):
    """Of other rows a person at the first time could be at the next one too, for one charge."""
    budget = PrivacyBudget(1e4, 1e-3, ledger=tmp_path / "ledger")
    with suppress(FailureError), keeping():
        FITS[name].fitted(budget=budget, random_state=None)
        raise FailureError
    assert budget.history()["open"].tolist() == [False]


@pytest.mark.slow
def test_empty_batches_keep_the_places_of_others(tmp_path):
    budget = PrivacyBudget(1e4, 1e-3, ledger=tmp_path / "ledger")
    few = Resample(batch_size=2, sampling="poisson")
    sizes = {"n_steps": 20, "n_particles": 20}
    sampler = DPSlicedFlowSampler(few, epsilon=5.0, bounds=(-3, 3), budget=budget, **sizes)
    rows = np.random.default_rng(0).normal(size=(400, 2))
    with suppress(FailureError), keeping():
        sampler.fit(rows)
        raise FailureError
    with budget.resume():
        sampler.fit(rows)
    assert budget.history()["open"].tolist() == [False]
