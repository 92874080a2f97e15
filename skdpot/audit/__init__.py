"""Attacks on what the package releases and sends: what an observer can really learn."""

from skdpot.audit.membership import gaussian_audit, synthetic_membership
from skdpot.audit.one_run import one_run_audit
from skdpot.audit.reconstruction import reconstruct
from skdpot.audit.report import privacy_report

__all__ = [
    "gaussian_audit",
    "one_run_audit",
    "privacy_report",
    "reconstruct",
    "synthetic_membership",
]
