"""Attacks on what the package releases and sends: what an observer can really learn."""

from skdpot.audit.membership import gaussian_audit, synthetic_membership
from skdpot.audit.one_run import one_run_audit
from skdpot.audit.report import privacy_report
from skdpot.distance.reconstruction import reconstruct

__all__ = [
    "gaussian_audit",
    "one_run_audit",
    "privacy_report",
    "reconstruct",
    "synthetic_membership",
]
