"""Attacks on what the package releases and sends: what an observer can really learn."""

from skdpot.audit.audit_result import AuditResult
from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.canaries import CanaryPairs, antipodal_pairs
from skdpot.audit.gaussian import GaussianAuditResult, gaussian_audit
from skdpot.audit.one_run import one_run_audit
from skdpot.audit.white_box import default_canaries, default_score

__all__ = [
    "AuditResult",
    "AuditedFit",
    "CanaryPairs",
    "GaussianAuditResult",
    "antipodal_pairs",
    "default_canaries",
    "default_score",
    "gaussian_audit",
    "one_run_audit",
]
