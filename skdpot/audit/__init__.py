"""Attacks on what the package releases and sends: what an observer can really learn."""

from skdpot.audit.gaussian import gaussian_audit
from skdpot.audit.message_attacks import reconstruct
from skdpot.audit.one_run import one_run_audit
from skdpot.audit.report import privacy_report
from skdpot.audit.synthetic import synthetic_membership

__all__ = [
    "gaussian_audit",
    "one_run_audit",
    "privacy_report",
    "reconstruct",
    "synthetic_membership",
]
