"""Budgets, events, accounting, calibration and noise."""

from skdpot.privacy.accounting import PrivacyLoss, compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import EventCost, PrivacyTarget, calibrate, event_cost
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import (
    BudgetedEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    NonPrivateEvent,
    SampledGaussianEvent,
    ThresholdedCountsEvent,
)
from skdpot.privacy.gdp import ApproximateGDP, gdp_delta, gdp_epsilon, gdp_mu
from skdpot.privacy.projections import lemma1_sensitivity, projection_sensitivity
from skdpot.privacy.relation import Relation
from skdpot.privacy.spent import PrivacySpent, PrivateEstimatorMixin, charge, total_spent

__all__ = [
    "ApproximateGDP",
    "BudgetedEvent",
    "ComposedEvent",
    "DataBounds",
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
    "lemma1_sensitivity",
    "projection_sensitivity",
    "total_spent",
]
