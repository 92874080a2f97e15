"""Budgets, events, accounting, calibration and noise."""

from skdpot.privacy.accounting import (
    EventCost,
    PrivacyLoss,
    PrivacyTarget,
    calibrate,
    compose,
    event_cost,
)
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    NonPrivateEvent,
    Relation,
    SampledGaussianEvent,
)
from skdpot.privacy.gdp import ApproximateGDP, gdp_delta, gdp_epsilon, gdp_mu
from skdpot.privacy.private_selection import BudgetedEvent, ThresholdedCountsEvent
from skdpot.privacy.spent import PrivacySpent, PrivateEstimatorMixin, charge, total_spent

__all__ = [
    "ApproximateGDP",
    "BudgetedEvent",
    "ComposedEvent",
    "Event",
    "EventCost",
    "GaussianEvent",
    "NonPrivateEvent",
    "PrivacyBudget",
    "PrivacyLoss",
    "PrivacySpent",
    "PrivacyTarget",
    "PrivateEstimatorMixin",
    "Relation",
    "SampledGaussianEvent",
    "ThresholdedCountsEvent",
    "calibrate",
    "charge",
    "compose",
    "event_cost",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "total_spent",
]
