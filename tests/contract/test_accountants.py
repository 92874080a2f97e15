"""Every accountant passes the contract: closed forms, leaks, losses, and the front door."""

import math
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import optimize

from skdpot.privacy.accounting import PrivacyLoss, compose
from skdpot.privacy.events import ComposedEvent, GaussianEvent, Relation
from skdpot.privacy.gdp import ApproximateGDP
from skdpot.privacy.loss_distribution import LossPair
from skdpot.privacy.sampling import (
    PoissonAddRemoveStep,
    PoissonClippedSumStep,
    PoissonRowsStep,
    SampledGaussianEvent,
    SubsetStep,
)
from skdpot.privacy.selection import BudgetedEvent
from skdpot.privacy.thresholds import ThresholdedCountsEvent
from tests.contract.accountant_suite import AccountantSuite, exact_gdp_delta

RATE = 0.2


def mixture_delta(epsilon: float, rate: float, first: float, second: float) -> float:
    """Return P[S] - e^eps Q[S] for mixtures of N(0, 1) with N(first, 1) and with N(second, 1).

    Whatever the half-line S is, this is attained; the best one ends where the loss is epsilon.
    """

    def log_ratio(x: float) -> float:
        laws = [
            np.logaddexp(math.log1p(-rate), math.log(rate) + centre * x - centre**2 / 2.0)
            for centre in (first, second)
        ]
        return float(laws[0] - laws[1]) - epsilon

    side = 1.0 if first > second else -1.0
    if log_ratio(40.0 * side) <= 0.0:
        return 0.0
    end = optimize.brentq(log_ratio, -40.0, 40.0, xtol=1e-13)
    with mpmath.workdps(40):

        def mass(centre: float) -> mpmath.mpf:
            plain, moved = (mpmath.ncdf(side * (c - end)) for c in (0.0, mpmath.mpf(centre)))
            return (1 - mpmath.mpf(rate)) * plain + mpmath.mpf(rate) * moved

        return float(mass(first) - mpmath.exp(epsilon) * mass(second))


class TestClosedForm(AccountantSuite):
    def make(self, size: float) -> Any:
        return ApproximateGDP(size, 0.0)

    def at_least(self, size: float, epsilon: float) -> float:
        return exact_gdp_delta(epsilon, size)


class TestLeakyClosedForm(AccountantSuite):
    def make(self, size: float) -> Any:
        return ApproximateGDP(size, 1e-6 * size)

    def at_least(self, size: float, epsilon: float) -> float:
        return 1e-6 * size + (1.0 - 1e-6 * size) * exact_gdp_delta(epsilon, size)


@lru_cache(maxsize=64)
def one_step(kind: type, mu: float, *rest: int) -> LossPair:
    return kind(mu, RATE, *rest).losses(1e-3)


class TestSubsets(AccountantSuite):
    def make(self, size: float) -> Any:
        return one_step(SubsetStep, size)

    def at_least(self, size: float, epsilon: float) -> float:
        shifted = math.log1p(math.expm1(epsilon) / RATE)
        return RATE * exact_gdp_delta(shifted, size)


class TestOneRecordMoreOrLess(AccountantSuite):
    def make(self, size: float) -> Any:
        return one_step(PoissonAddRemoveStep, size)

    def at_least(self, size: float, epsilon: float) -> float:
        return max(mixture_delta(epsilon, RATE, size, 0.0), mixture_delta(epsilon, RATE, 0.0, size))


class TestClippedSums(AccountantSuite):
    def make(self, size: float) -> Any:
        return one_step(PoissonClippedSumStep, size)

    def at_least(self, size: float, epsilon: float) -> float:
        return mixture_delta(epsilon, RATE, -size / 2.0, size / 2.0)


class TestRows(AccountantSuite):
    """Of a sample of three records: its size is binomial."""

    def make(self, size: float) -> Any:
        return one_step(PoissonRowsStep, size, 3)

    def at_least(self, size: float, epsilon: float) -> float:
        return math.fsum(
            math.comb(3, b)
            * RATE**b
            * (1.0 - RATE) ** (3 - b)
            * (b / 3.0)
            * exact_gdp_delta(math.log1p(math.expm1(epsilon) * 3.0 / b), size)
            for b in (1, 2, 3)
        )


class TestFrontDoor(AccountantSuite):
    """Of a Gaussian release and what may leak."""

    def make(self, size: float) -> Any:
        parts = (
            GaussianEvent(sigma=1.0, sensitivity=0.6 * size),
            BudgetedEvent(mu=0.8 * size, leak=1e-6),
        )
        return compose(ComposedEvent(events=parts))

    def at_least(self, size: float, epsilon: float) -> float:
        return 1e-6 + (1.0 - 1e-6) * exact_gdp_delta(epsilon, size)


class TestFrontDoorOfSamples(AccountantSuite):
    def make(self, size: float) -> Any:
        return compose(
            SampledGaussianEvent(
                sampling="fixed_size",
                sigma=1.0,
                sensitivity=size,
                batch_sizes=(1,),
                group_sizes=(5,),
                n_steps=1,
            )
        )

    def at_least(self, size: float, epsilon: float) -> float:
        return TestSubsets().at_least(size, epsilon)


def test_thresholds_and_relations_do_not_get_lost():
    counts = ThresholdedCountsEvent(sigma=3.0, threshold=20.0, n_columns=2)
    loss = compose(counts)
    assert isinstance(loss, PrivacyLoss)
    assert loss.relation is Relation.REPLACE_ONE
    assert loss.leak == pytest.approx(counts.delta_tail)
