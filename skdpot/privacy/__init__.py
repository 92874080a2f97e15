"""Budgets, events, accounting, calibration and noise."""

from skdpot.privacy.accounting import calibrate, compose
from skdpot.privacy.events import Event, GaussianEvent, gdp_delta, gdp_epsilon, gdp_mu
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.spent import PrivacySpent, charge, plan_fit, total_spent

__all__ = [
    "Event",
    "GaussianEvent",
    "PrivacySpent",
    "PrivateEstimatorMixin",
    "SampledGaussianEvent",
    "calibrate",
    "charge",
    "compose",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "plan_fit",
    "total_spent",
]
