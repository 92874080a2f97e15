"""Attacks on what the package releases and sends: what an observer can really learn."""

from skdpot.audit.audit_result import AuditResult
from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.canaries import CanaryPairs, antipodal_pairs
from skdpot.audit.closest_record import (
    ClosestRecordShare,
    closest_record_share,
    distance_to_closest_record,
    nearest_neighbour_distance_ratio,
)
from skdpot.audit.density_ratio import density_ratio_membership
from skdpot.audit.evidence import EvidenceSum, linear_evidence
from skdpot.audit.gaussian import GaussianAuditResult, gaussian_audit
from skdpot.audit.membership_result import MembershipResult
from skdpot.audit.one_run import one_run_audit
from skdpot.audit.report import PrivacyReport, privacy_report
from skdpot.audit.sketch_likelihood import log_likelihood_ratio
from skdpot.audit.synthetic_attacks import SyntheticMembership, synthetic_membership
from skdpot.audit.synthetic_rows import SyntheticMembershipResult
from skdpot.audit.white_box import default_canaries, default_score

__all__ = [
    "AuditResult",
    "AuditedFit",
    "CanaryPairs",
    "ClosestRecordShare",
    "EvidenceSum",
    "GaussianAuditResult",
    "MembershipResult",
    "PrivacyReport",
    "SyntheticMembership",
    "SyntheticMembershipResult",
    "antipodal_pairs",
    "closest_record_share",
    "default_canaries",
    "default_score",
    "density_ratio_membership",
    "distance_to_closest_record",
    "gaussian_audit",
    "linear_evidence",
    "log_likelihood_ratio",
    "nearest_neighbour_distance_ratio",
    "one_run_audit",
    "privacy_report",
    "synthetic_membership",
]
