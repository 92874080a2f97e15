"""Budgets, events, accounting, calibration and noise."""

from skdpot.privacy.accounting import calibrate, compose
from skdpot.privacy.events import Event, GaussianEvent, SampledGaussianEvent
from skdpot.privacy.gdp import gdp_delta, gdp_epsilon, gdp_mu
from skdpot.privacy.spent import PrivacySpent, PrivateEstimatorMixin, charge, total_spent

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
    "total_spent",
]
